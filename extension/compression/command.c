/*-------------------------------------------------------------------------
 *
 * command.c
 *	  cellar.compress_relation, cellar.compress_table: the session's side of a
 *	  compression command.
 *
 * A background worker (command_worker.c) compresses the table, because the
 * command starts with VACUUM, which commits its own transactions.  The
 * session starts the worker, waits for it, stops it if the session is
 * canceled, and raises the worker's error.  Both sides share a task (task.c).
 *
 * The session waits on a latch, not on a lock, so PostgreSQL's deadlock
 * detector does not see the session wait for its worker.  But the session
 * holds locks and a snapshot, and a process that blocks the worker may wait
 * for them: CREATE INDEX CONCURRENTLY, for example, waits for all older
 * snapshots.  The session therefore searches for such cycles itself, and
 * resolves one by failing.
 *
 * A statement that calls a function holds a snapshot until the function
 * returns, so cellar.compress delays VACUUM of all tables while it waits.  The
 * procedures cellar.compress_table and cellar.decompress_table commit before
 * they wait, and hold neither a snapshot nor locks.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "catalog/pg_inherits.h"
#include "commands/tablecmds.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/wait_event.h"

#include "cellar.h"
#include "cellar/compression.h"

PG_FUNCTION_INFO_V1(cellar_compress_relation);
PG_FUNCTION_INFO_V1(cellar_compress_table);

/* A command whose session waits for its worker. */
typedef struct Command
{
	CellarTask *task;			/* NULL before the slot is claimed */
	BackgroundWorkerHandle *handle; /* NULL before the worker is registered */
} Command;

/* Raises the worker's error in the session. */
static void
report_failure(const CellarTask *task)
{
	ereport(ERROR,
			(errcode(task->sqlstate),
			 errmsg("%s", task->message),
			 *task->detail ? errdetail("%s", task->detail) : 0,
			 *task->hint ? errhint("%s", task->hint) : 0));
}

/* Returns the process of the compression worker that a session waits for, or 0 if none. */
static int
worker_of_session(int session)
{
	int			worker = 0;

	cellar_tasks_lock(false);
	for (int i = 0; i < CELLAR_TASKS; i++)
	{
		const CellarTask *task = cellar_task(i);

		if (task->session == session)
			worker = task->pid;
	}
	cellar_tasks_unlock();
	return worker;
}

/*
 * Searches the wait-for graph, breadth first from the worker, for a path back
 * to this backend.  Returns the first process after the worker on that path:
 * MyProcPid if the worker waits for this backend directly.  Returns 0 if there
 * is no such path.
 *
 * The edges are lock waits (pg_blocking_pids) and sessions that wait for their
 * compression workers.
 */
static int
find_cycle(int worker)
{
	List	   *visited = list_make1_int(worker);
	List	   *first_hops = list_make1_int(0);

	for (int i = 0; i < list_length(visited); i++)
	{
		ArrayType  *blockers = DatumGetArrayTypeP(DirectFunctionCall1(pg_blocking_pids,
																	  Int32GetDatum(list_nth_int(visited, i))));
		int			count = ArrayGetNItems(ARR_NDIM(blockers), ARR_DIMS(blockers));
		const int32 *pids = (const int32 *) ARR_DATA_PTR(blockers);

		for (int j = 0; j <= count; j++)
		{
			int			pid = j < count ? pids[j] : worker_of_session(list_nth_int(visited, i));
			int			first_hop = i == 0 ? pid : list_nth_int(first_hops, i);

			if (pid == MyProcPid)
				return first_hop;

			/*
			 * pid 0 is a prepared transaction, which waits for no other
			 * process.
			 */
			if (pid == 0 || list_member_int(visited, pid))
				continue;
			visited = lappend_int(visited, pid);
			first_hops = lappend_int(first_hops, first_hop);
		}
	}
	return 0;
}

/* Raises an error if the worker waits, directly or indirectly, for this backend. */
static void
check_deadlock(int worker, Oid relation)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "cellar deadlock check", ALLOCSET_SMALL_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	int			first_hop = find_cycle(worker);

	/*
	 * The graph is not read atomically, so a search may combine waits that
	 * never existed at the same time.  Only a cycle found twice is a
	 * deadlock.
	 */
	if (first_hop != 0)
		first_hop = find_cycle(worker);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
	if (first_hop == MyProcPid)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_DEADLOCK_DETECTED),
				 errmsg("deadlock detected while compressing table \"%s\"", get_rel_name(relation)),
				 errdetail("The compression worker waits for a lock that this transaction holds."),
				 errhint("End this transaction, then repeat the command.")));
	if (first_hop != 0)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_DEADLOCK_DETECTED),
				 errmsg("deadlock detected while compressing table \"%s\"", get_rel_name(relation)),
				 errdetail("The compression worker waits for process %d, which waits for this transaction.", first_hop),
				 errhint("Repeat the command when process %d has finished its statement.", first_hop)));
}

/* Waits until the worker has exited.  Checks for a deadlock after every deadlock_timeout. */
static void
wait_for_worker(BackgroundWorkerHandle *handle, Oid relation)
{
	for (;;)
	{
		pid_t		pid;
		BgwHandleStatus status;

		CHECK_FOR_INTERRUPTS();
		status = GetBackgroundWorkerPid(handle, &pid);
		if (status == BGWH_STOPPED)
			return;
		/* A snapshot for catalog access would delay VACUUM during the wait. */
		InvalidateCatalogSnapshotConditionally();
		if (WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, DeadlockTimeout,
					  WAIT_EVENT_BGWORKER_SHUTDOWN) & WL_TIMEOUT && status == BGWH_STARTED)
			check_deadlock(pid, relation);
		ResetLatch(MyLatch);
	}
}

/*
 * Checks that no other query of this session reads the relation.  Such a query
 * may hold pins that block the worker's VACUUM, and cannot release them while
 * this session waits for the worker.
 */
static void
check_not_in_use(Oid relation)
{
	ListCell   *cell;

	foreach(cell, find_all_inheritors(relation, NoLock, NULL))
	{
		Relation	rel = try_relation_open(lfirst_oid(cell), AccessShareLock);

		if (rel == NULL)
			continue;
		CheckTableNotInUse(rel, "cellar.compress");
		relation_close(rel, AccessShareLock);
	}
}

/* Starts the worker of a task. */
static BackgroundWorkerHandle *
start_worker(int number)
{
	const CellarTask *task = cellar_task(number);
	CellarCommandStart start = {number, task->command, task->database, GetAuthenticatedUserId(), task->user};
	BackgroundWorker worker = cellar_worker("cellar_command_worker_main", "cellar compression worker");
	BackgroundWorkerHandle *handle;

	StaticAssertStmt(sizeof(start) <= BGW_EXTRALEN, "the argument of a compression worker is too long");
	memcpy(worker.bgw_extra, &start, sizeof(start));
	worker.bgw_notify_pid = MyProcPid;
	if (!RegisterDynamicBackgroundWorker(&worker, &handle))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_RESOURCES),
				 errmsg("could not start a compression worker"),
				 errhint("Increasing max_worker_processes might help.")));
	return handle;
}

/* Stops the worker when the statement fails or is canceled, or the session ends. */
static void
abandon(int code, Datum arg)
{
	Command    *command = (Command *) DatumGetPointer(arg);

	if (command->handle != NULL)
		TerminateBackgroundWorker(command->handle);
	if (command->task != NULL)
		cellar_task_leave(command->task);
}

/*
 * Carries out a command.  Returns when the relation, and all its partitions and
 * children, are at the level.
 */
static void
run_command(const char *name, Oid relation, int level)
{
	Command		command = {0};
	MemoryContext context = CurrentMemoryContext;
	CellarTask	result;

	cellar_check_not_in_recovery(name);
	cellar_check_compressible(relation);
	check_not_in_use(relation);

	PG_ENSURE_ERROR_CLEANUP(abandon, PointerGetDatum(&command));
	{
		int			number = cellar_claim_task(relation, level);

		command.task = cellar_task(number);
		command.handle = start_worker(number);
		wait_for_worker(command.handle, relation);
	}
	PG_END_ENSURE_ERROR_CLEANUP(abandon, PointerGetDatum(&command));

	MemoryContextSwitchTo(context);
	cellar_tasks_lock(false);
	result = *command.task;
	cellar_tasks_unlock();
	cellar_task_leave(command.task);
	if (result.sqlstate != 0)
		report_failure(&result);
	if (!result.done)
		ereport(ERROR,
				(errcode(ERRCODE_OPERATOR_INTERVENTION),
				 errmsg("compression worker exited before completing"),
				 errdetail("Units already compressed remain compressed."),
				 errhint("See the server log for the cause. Repeat the command to continue.")));
}

/* Raises an error if a parameter of a function or procedure is null. */
static void
check_not_null(FunctionCallInfo fcinfo, const char *name)
{
	for (int i = 0; i < PG_NARGS(); i++)
	{
		if (PG_ARGISNULL(i))
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("parameters of %s must not be null", name)));
	}
}

/* cellar.compress_relation(relation, level) */
Datum
cellar_compress_relation(PG_FUNCTION_ARGS)
{
	int			level;

	check_not_null(fcinfo, "cellar.compress and cellar.decompress");
	level = cellar_parse_level(text_to_cstring(PG_GETARG_TEXT_PP(1)));
	run_command(level == CELLAR_LEVEL_RAW ? "cellar.decompress" : "cellar.compress", PG_GETARG_OID(0), level);
	PG_RETURN_VOID();
}

/*
 * The procedures cellar.compress_table(relation, level) and
 * cellar.decompress_table(relation).
 */
Datum
cellar_compress_table(PG_FUNCTION_ARGS)
{
	const char *name = PG_NARGS() == 1 ? "cellar.decompress_table" : "cellar.compress_table";
	Oid			relation;
	int			level;

	check_not_null(fcinfo, name);
	relation = PG_GETARG_OID(0);
	level = PG_NARGS() == 1 ? CELLAR_LEVEL_RAW : cellar_parse_level(text_to_cstring(PG_GETARG_TEXT_PP(1)));
	if (fcinfo->context == NULL || !IsA(fcinfo->context, CallContext) || castNode(CallContext, fcinfo->context)->atomic)
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("%s cannot run inside a transaction block", name),
				 errhint("Use the functions cellar.compress and cellar.decompress within transactions.")));

	SPI_connect_ext(SPI_OPT_NONATOMIC);
	/* Release the statement's snapshot and locks. */
	SPI_commit();
	run_command(name, relation, level);
	SPI_finish();
	PG_RETURN_VOID();
}
