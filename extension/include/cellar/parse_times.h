/*-------------------------------------------------------------------------
 *
 * cellar/parse_times.h
 *	  Parse times that wait for the plan of their statement.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CELLAR_PARSE_TIMES_H
#define CELLAR_PARSE_TIMES_H

#include "cellar/statement_table.h"

extern void cellar_add_parse(int64 query_id, uint64 elapsed_ns);
extern void cellar_take_parses(CellarStatement *statement);

#endif							/* CELLAR_PARSE_TIMES_H */
