/*-------------------------------------------------------------------------
 *
 * cellar/statement_table.h
 *	  Statistics of statements: the table of this process and the shared one.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CELLAR_STATEMENT_TABLE_H
#define CELLAR_STATEMENT_TABLE_H

#include "portability/instr_time.h"

#include "cellar/compat.h"

/* Each statement passes here: hidden symbols are reached without indirection. */
#pragma GCC visibility push(hidden)

typedef struct CellarStatementKey
{
	Oid			database;
	Oid			role;
	int64		query_id;
	int64		plan_id;		/* 0 for utility statements */
} CellarStatementKey;

/* In the order of the columns of awr.get_statements(). */
typedef enum CellarStatementCounter
{
	CELLAR_STATEMENT_CALLS,
	CELLAR_STATEMENT_ELAPSED_US,
	CELLAR_STATEMENT_CPU_US,
	CELLAR_STATEMENT_RUN_QUEUE_US,
	CELLAR_STATEMENT_PLANS,
	CELLAR_STATEMENT_PLAN_US,
	CELLAR_STATEMENT_PARSES,
	CELLAR_STATEMENT_PARSE_US,
	CELLAR_STATEMENT_ROWS,
	CELLAR_STATEMENT_SHARED_HIT,
	CELLAR_STATEMENT_SHARED_READ,
	CELLAR_STATEMENT_SHARED_DIRTIED,
	CELLAR_STATEMENT_SHARED_WRITTEN,
	CELLAR_STATEMENT_TEMP_READ,
	CELLAR_STATEMENT_TEMP_WRITTEN,
	CELLAR_STATEMENT_BLK_READ_US,
	CELLAR_STATEMENT_BLK_WRITE_US,
	CELLAR_STATEMENT_WAL_RECORDS,
	CELLAR_STATEMENT_WAL_FPI,
	CELLAR_STATEMENT_WAL_BYTES,
	CELLAR_STATEMENT_ELIGIBLE_BYTES,
	CELLAR_STATEMENT_SAVED_BYTES,
	CELLAR_STATEMENT_RETURNED_BYTES,
	CELLAR_STATEMENT_OPTIMIZED_BYTES,
	CELLAR_STATEMENT_COUNTERS
} CellarStatementCounter;

/*
 * What this process has not added to the shared table yet.  Members that every
 * execution uses come first: they share few cache lines.
 */
typedef struct CellarStatement
{
	CellarStatementKey key;
	uint64		elapsed_ns;		/* not in the counters yet, as the next three */
	uint64		cpu_ns;
	uint64		run_queue_ns;
	uint64		plan_ns;
	uint64		mean_cpu_ns;	/* of an execution: mean of the last readings */
	uint64		mean_run_queue_ns;	/* as mean_cpu_ns */
	uint32		cpu_readings;	/* of the first executions */
	bool		changed;		/* since the last flush */
	bool		has_text;		/* the texts were stored, by this or another
								 * process */
	uint64		max_us;
	uint64		parse_ns;		/* not in the counters yet */
	uint64		counters[CELLAR_STATEMENT_COUNTERS];
} CellarStatement;

/* A CellarStatement is valid as long as this number does not change. */
extern uint64 cellar_statements_version;

/* Entries that this process used recently; NULL if none. */
#define CELLAR_RECENT_STATEMENTS	64
extern CellarStatement *cellar_recent_statements[CELLAR_RECENT_STATEMENTS];

/* False in a server that has not loaded the library at its start. */
extern bool cellar_has_statement_table;
extern uint64 cellar_last_statements_flush_ns;	/* by the monotonic clock of
												 * instr_time */

extern CellarStatement *cellar_enter_statement(const CellarStatementKey *key);
extern bool cellar_is_known_statement(const CellarStatementKey *key);
extern void cellar_flush_statements(void);
extern void cellar_add_worker_times(const CellarStatementKey *key, uint64 cpu_ns, uint64 run_queue_ns);

static inline bool
cellar_same_statement(const CellarStatementKey *a, const CellarStatementKey *b)
{
	return a->query_id == b->query_id && a->plan_id == b->plan_id && a->role == b->role && a->database == b->database;
}

static inline bool
cellar_is_statement(const CellarStatement *statement, const CellarStatementKey *key)
{
	return statement != NULL && cellar_same_statement(&statement->key, key);
}

static inline int
cellar_recent_statement_slot(const CellarStatementKey *key)
{
	return (uint64) (key->query_id ^ key->plan_id) % CELLAR_RECENT_STATEMENTS;
}

/* Returns this process's entry for a statement.  Sessions repeat few statements. */
static inline CellarStatement *
cellar_find_statement(const CellarStatementKey *key)
{
	CellarStatement *recent = cellar_recent_statements[cellar_recent_statement_slot(key)];

	return cellar_is_statement(recent, key) ? recent : cellar_enter_statement(key);
}

#pragma GCC visibility pop

#endif							/* CELLAR_STATEMENT_TABLE_H */
