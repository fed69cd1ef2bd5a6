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

/* Each statement passes here: hidden symbols are reached without indirection. */
#pragma GCC visibility push(hidden)

extern void cellar_add_parse(int64 query_id, uint64 elapsed_ns);
extern void cellar_take_waiting_parses(CellarStatement *statement);

/* Statements whose parse times wait. */
extern int	cellar_waiting_parses;

/* Moves the parses of a statement that is planned or executed to its statistics. */
static inline void
cellar_take_parses(CellarStatement *statement)
{
	if (cellar_waiting_parses > 0)
		cellar_take_waiting_parses(statement);
}

#pragma GCC visibility pop

#endif							/* CELLAR_PARSE_TIMES_H */
