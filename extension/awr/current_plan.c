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
 * that is odd during a change of the key lets a reader recognize a torn copy.  A
 * process executes the plan while the slot contains its process identifier.  The
 * key stays when the execution ends: a session that repeats a statement writes
 * only the identifier.  A process that exits during an execution leaves its slot
 * filled; the next process with the same PGPROC has another identifier, so it does
 * not appear to execute the plan.
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
	uint32		changes;		/* of the key; odd during a change */
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

static volatile CurrentPlan *
own_slot(void)
{
	static CurrentPlan *slot = NULL;

	if (slot == NULL)
		slot = &slots[CellarProcNumber(MyProc)].plan;
	return slot;
}

/* Publishes the statement and plan that this process executes. */
void
cellar_set_current_plan(const CellarStatementKey *key)
{
	volatile CurrentPlan *mine = own_slot();

	/* Only this process changes the key. */
	if (!cellar_same_statement((const CellarStatementKey *) &mine->key, key))
	{
		mine->changes++;
		pg_write_barrier();
		mine->pid = 0;
		mine->key = *key;
		pg_write_barrier();
		mine->changes++;
		pg_write_barrier();
	}
	mine->pid = MyProcPid;
}

/* Publishes that this process executes no plan. */
void
cellar_clear_current_plan(void)
{
	own_slot()->pid = 0;
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
