/*-------------------------------------------------------------------------
 *
 * current_plan.c
 *	  The plan that each session executes.
 *
 * The hooks of statements (statements.c) publish the key of a top-level statement
 * in the slot of the process's PGPROC, and clear the slot when the executor or the
 * utility statement returns.  The sampler reads the slots.  The slot of a parallel
 * worker stays empty: the sampler and the worker read the slot of the worker's leader.
 *
 * A slot is written by its process only, without a lock.  A counter of changes
 * that is odd during a change lets a reader recognize a torn copy.  A process
 * that exits during an execution leaves its slot filled; the slot contains the
 * process identifier, so that the next process with the same PGPROC does not
 * appear to execute the plan.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/proc.h"
#include "storage/shmem.h"

#include "cellar/awr.h"
#include "cellar/compat.h"
#include "cellar/statement_table.h"
#include "cellar/statistics.h"

/* Attempts to read a slot that changes meanwhile. */
#define READ_ATTEMPTS	100

typedef struct CurrentPlan
{
	uint32		changes;		/* odd during a change */
	int32		pid;			/* 0 if no plan is executed */
	CellarStatementKey key;
} CurrentPlan;

/* Each slot has its own cache lines: sessions on different CPUs write them often. */
typedef union PaddedPlan
{
	CurrentPlan plan;
	char		padding[PG_CACHE_LINE_SIZE];
} PaddedPlan;

static PaddedPlan *slots = NULL;	/* by process number */

Size
cellar_current_plans_bytes(void)
{
	return mul_size(sizeof(PaddedPlan), cellar_session_slots());
}

void
cellar_current_plans_init(void)
{
	bool		found;

	slots = ShmemInitStruct("cellar current plans", cellar_current_plans_bytes(), &found);
	if (!found)
		memset(slots, 0, cellar_current_plans_bytes());
}

static void
write_slot(int32 pid, const CellarStatementKey *key)
{
	volatile CurrentPlan *mine = &slots[CellarProcNumber(MyProc)].plan;

	mine->changes++;
	pg_write_barrier();
	mine->pid = pid;
	mine->key = *key;
	pg_write_barrier();
	mine->changes++;
}

/* Publishes the statement and plan that this process executes. */
void
cellar_set_current_plan(const CellarStatementKey *key)
{
	write_slot(MyProcPid, key);
}

/* Publishes that this process executes no plan. */
void
cellar_clear_current_plan(void)
{
	static const CellarStatementKey none = {0};

	write_slot(0, &none);
}

/* Reads the statement and plan that a process executes.  Returns false if the process executes none. */
bool
cellar_read_current_plan(int slot, int pid, CellarStatementKey *key)
{
	volatile CurrentPlan *theirs = &slots[slot].plan;

	for (int i = 0; i < READ_ATTEMPTS; i++)
	{
		uint32		before = theirs->changes;
		int32		executing;

		pg_read_barrier();
		executing = theirs->pid;
		*key = theirs->key;
		pg_read_barrier();
		if (before == theirs->changes && before % 2 == 0)
			return executing == pid;
	}
	return false;
}
