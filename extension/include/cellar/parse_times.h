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

/* Stands for whatever statement is executed next; no statement with statistics has this identifier. */
#define CELLAR_NEXT_STATEMENT	0

extern void cellar_add_parse(int64 query_id, uint64 elapsed_ns);
extern void cellar_forget_next_parse(void);
extern void cellar_take_parses(CellarStatement *statement);

#endif							/* CELLAR_PARSE_TIMES_H */
