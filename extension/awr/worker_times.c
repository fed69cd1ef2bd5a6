/*-------------------------------------------------------------------------
 *
 * worker_times.c
 *	  CPU time and run-queue time of parallel workers, for the statement of their
 *	  leader.
 *
 * A parallel worker executes a part of one statement.  When its transaction ends,
 * the leader still waits for the worker, so that the statement of the leader is
 * known (current_plan.c).  When the worker exits, the worker adds the times since
 * its start to that statement in shared memory; the leader waits for the exit before
 * the statement ends.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "storage/ipc.h"
#include "storage/proc.h"

#include "cellar/awr.h"
#include "cellar/compat.h"
#include "cellar/statement_clock.h"

static CellarStatementKey leader_statement;

/* The process's times begin with its start. */
static void
add_times(int code, Datum arg)
{
	CellarKernelTimes times = cellar_read_kernel_times(CELLAR_READ_CPU_AND_RUN_QUEUE);

	cellar_add_worker_times(&leader_statement, times.cpu_ns, times.run_queue_ns);
}

/* Called in a parallel worker before its transaction ends. */
void
cellar_count_for_leader(void)
{
	PGPROC	   *leader = MyProc->lockGroupLeader;

	if (cellar_awr_track_statements && leader != NULL && leader != MyProc && leader->pid != 0 && cellar_has_statement_table &&
		cellar_read_current_plan(CellarProcNumber(leader), leader->pid, &leader_statement))
		before_shmem_exit(add_times, (Datum) 0);
}
