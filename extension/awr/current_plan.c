/*-------------------------------------------------------------------------
 *
 * current_plan.c
 *	  The plan that each session executes.
 *
 * The executor hooks (statements.c) publish the query identifier and the plan
 * identifier of a top-level statement in the slot of the process's PGPROC, and
 * clear the slot when the executor returns.  The sampler reads the slots.  The slot
 * of a parallel worker stays empty: the sampler reads the slot of the worker's
 * leader.
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
#include "cellar/statistics.h"

/* Attempts to read a slot that changes meanwhile. */
#define READ_ATTEMPTS	100

typedef struct CurrentPlan
{
	uint32		changes;		/* odd during a change */
	int32		pid;			/* 0 if no plan is executed */
	int64		query_id;
	int64		plan_id;
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
write_slot(int32 pid, int64 query_id, int64 plan_id)
{
	volatile CurrentPlan *mine = &slots[CellarProcNumber(MyProc)].plan;

	mine->changes++;
	pg_write_barrier();
	mine->pid = pid;
	mine->query_id = query_id;
	mine->plan_id = plan_id;
	pg_write_barrier();
	mine->changes++;
}

/* Publishes the plan that this process executes. */
void
cellar_set_current_plan(int64 query_id, int64 plan_id)
{
	write_slot(MyProcPid, query_id, plan_id);
}

/* Publishes that this process executes no plan. */
void
cellar_clear_current_plan(void)
{
	write_slot(0, 0, 0);
}

/* Reads the plan that a process executes.  Returns false if the process executes none. */
bool
cellar_read_current_plan(int slot, int pid, int64 *query_id, int64 *plan_id)
{
	volatile CurrentPlan *theirs = &slots[slot].plan;

	for (int i = 0; i < READ_ATTEMPTS; i++)
	{
		uint32		before = theirs->changes;
		int32		executing;

		pg_read_barrier();
		executing = theirs->pid;
		*query_id = theirs->query_id;
		*plan_id = theirs->plan_id;
		pg_read_barrier();
		if (before == theirs->changes && before % 2 == 0)
			return executing == pid;
	}
	return false;
}
