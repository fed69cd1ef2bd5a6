/*-------------------------------------------------------------------------
 *
 * parse_times.c
 *	  Parse times that wait for the plan of their statement.
 *
 * Statistics of statements are kept per plan, and a statement is parsed before its
 * plan is known.  A parse time waits here, by query identifier, until this session
 * plans or executes the statement; usually that is the next thing that happens.  A
 * client can prepare several statements before it binds the first.  Parse times of
 * statements that are never planned are only in the totals of the instance
 * (cpu_times.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "cellar/parse_times.h"

/* When more statements wait, that which has waited longest is forgotten. */
#define WAITING_STATEMENTS	32

typedef struct WaitingParse
{
	int64		query_id;
	uint64		parses;
	uint64		elapsed_ns;
} WaitingParse;

static WaitingParse waiting[WAITING_STATEMENTS];
int			cellar_waiting_parses = 0;

static void
remove_waiting(int i)
{
	cellar_waiting_parses--;
	if (i < cellar_waiting_parses)
		memmove(&waiting[i], &waiting[i + 1], (cellar_waiting_parses - i) * sizeof(WaitingParse));
}

/* Adds the time of a parse of a statement. */
void
cellar_add_parse(int64 query_id, uint64 elapsed_ns)
{
	WaitingParse parse = {.query_id = query_id,.parses = 1,.elapsed_ns = elapsed_ns};

	if (cellar_waiting_parses == 0)
	{
		waiting[cellar_waiting_parses++] = parse;
		return;
	}
	for (int i = cellar_waiting_parses - 1; i >= 0; i--)
	{
		if (waiting[i].query_id != query_id)
			continue;
		parse.parses += waiting[i].parses;
		parse.elapsed_ns += waiting[i].elapsed_ns;
		remove_waiting(i);
	}
	if (cellar_waiting_parses == WAITING_STATEMENTS)
		remove_waiting(0);
	waiting[cellar_waiting_parses++] = parse;
}

/* For cellar_take_parses. */
void
cellar_take_waiting_parses(CellarStatement *statement)
{
	for (int i = cellar_waiting_parses - 1; i >= 0; i--)
	{
		if (waiting[i].query_id != statement->key.query_id)
			continue;
		statement->counters[CELLAR_STATEMENT_PARSES] += waiting[i].parses;
		statement->parse_ns += waiting[i].elapsed_ns;
		statement->changed = true;
		remove_waiting(i);
	}
}
