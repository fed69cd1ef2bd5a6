/*-------------------------------------------------------------------------
 *
 * command.c
 *	  Hybrid columnar compression as SQL sees it: the commands, what a table's
 *	  allocation units are, and how far commands under way have come.
 *
 * A command's work is done by a background worker (worker.c), because a
 * table is vacuumed first and that ends transactions.  The session waits for
 * its worker and stops it when it is cancelled.  They meet in a task, a slot
 * of shared memory, which whoever leaves it last frees.
 *
 * The session waits on no lock, so Postgres's deadlock detector does not see
 * that it waits.  But it has locks and a snapshot, and whom its worker waits
 * for may wait for them (CREATE INDEX CONCURRENTLY for every older snapshot).
 * So the session looks for such a circle itself, and is the one to give way.
 *
 *-------------------------------------------------------------------------
 */
#include "cellar.h"

#include "access/relation.h"
#include "catalog/catalog.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "commands/tablecmds.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/lwlock.h"
#include "storage/proc.h"
#include "storage/shmem.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/wait_event.h"

PG_FUNCTION_INFO_V1(cellar_compress_relation);
PG_FUNCTION_INFO_V1(cellar_compression_units);
PG_FUNCTION_INFO_V1(cellar_compression_tasks);

/* The last task is that of the policies' worker. */
typedef struct SharedTasks
{
	LWLock	   *lock;
	CellarTask	tasks[CELLAR_TASKS + 1];
} SharedTasks;

static SharedTasks *shared = NULL;
static shmem_request_hook_type previous_request_hook = NULL;
static shmem_startup_hook_type previous_startup_hook = NULL;

static const char *const level_names[CELLAR_LEVELS] = {
	"none", "query low", "query high", "archive low", "archive high"
};

static const char *const phase_names[] = {"starting", "vacuuming", "compressing", "decompressing"};

static void
request_shmem(void)
{
	if (previous_request_hook != NULL)
		previous_request_hook();
	RequestAddinShmemSpace(sizeof(SharedTasks));
	RequestNamedLWLockTranche("cellar", 1);
}

static void
startup_shmem(void)
{
	bool		found;

	if (previous_startup_hook != NULL)
		previous_startup_hook();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	shared = ShmemInitStruct("cellar compression", sizeof(SharedTasks), &found);
	if (!found)
	{
		memset(shared, 0, sizeof(SharedTasks));
		shared->lock = &GetNamedLWLockTranche("cellar")->lock;
	}
	LWLockRelease(AddinShmemInitLock);
}

void
cellar_install_compression(void)
{
	previous_request_hook = shmem_request_hook;
	shmem_request_hook = request_shmem;
	previous_startup_hook = shmem_startup_hook;
	shmem_startup_hook = startup_shmem;
}

void
cellar_tasks_lock(bool exclusive)
{
	LWLockAcquire(shared->lock, exclusive ? LW_EXCLUSIVE : LW_SHARED);
}

void
cellar_tasks_unlock(void)
{
	LWLockRelease(shared->lock);
}

CellarTask *
cellar_task(int number)
{
	return &shared->tasks[number];
}

/* One side has no more to do with the task. */
void
cellar_task_leave(CellarTask *task, bool worker)
{
	cellar_tasks_lock(true);
	if (worker)
		task->has_worker = false;
	else
		task->has_session = false;
	if (!task->has_worker && !task->has_session)
		task->used = false;
	cellar_tasks_unlock();
}

/* Takes a free task of those from first to before end; returns its number, or -1 when there is none. */
static int
take_task(int first, int end, Oid relation, int level, bool has_session)
{
	int			number = -1;

	cellar_tasks_lock(true);
	for (int i = first; i < end && number < 0; i++)
	{
		CellarTask *task = &shared->tasks[i];

		if (task->used)
			continue;
		memset(task, 0, sizeof(CellarTask));
		task->used = true;
		task->has_session = has_session;
		task->session = has_session ? MyProcPid : 0;
		task->has_worker = true;
		task->database = MyDatabaseId;
		task->user = GetUserId();
		task->relation = relation;
		task->current = relation;
		task->level = level;
		number = i;
	}
	cellar_tasks_unlock();
	return number;
}

/* The task of the policies' worker, which no session waits for; NULL when another one has it. */
CellarTask *
cellar_take_policy_task(Oid relation, int level)
{
	CellarTask *task = &shared->tasks[CELLAR_TASKS];

	if (take_task(CELLAR_TASKS, CELLAR_TASKS + 1, relation, level, false) < 0)
		return NULL;
	cellar_tasks_lock(true);
	task->pid = MyProcPid;
	cellar_tasks_unlock();
	return task;
}

static int
claim_task(Oid relation, int level)
{
	int			number = take_task(0, CELLAR_TASKS, relation, level, true);

	if (number < 0)
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("%d compressions are under way already", CELLAR_TASKS),
				 errhint("See the view cellar.compression_progress, and try again when one has ended.")));
	return number;
}

const char *
cellar_level_name(int level)
{
	return level_names[level];
}

int
cellar_parse_level(const char *name)
{
	for (int level = 0; level < CELLAR_LEVELS; level++)
	{
		if (pg_strcasecmp(name, level_names[level]) == 0)
			return level;
	}
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("there is no compression level \"%s\"", name),
			 errhint("The levels are \"query low\", \"query high\", \"archive low\" and \"archive high\", and \"none\" for pages as they are.")));
	return 0;					/* not reached */
}

static void
check_owner(Oid relation)
{
	if (!CellarOwnsRelation(relation))
		aclcheck_error(ACLCHECK_NOT_OWNER, get_relkind_objtype(get_rel_relkind(relation)),
					   get_rel_name(relation));
}

/* Not every relation can be compressed. */
void
cellar_check_kind(Oid relation)
{
	char		relkind = get_rel_relkind(relation);

	if (relkind == '\0')
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation with OID %u does not exist", relation)));
	if ((relkind != RELKIND_RELATION && relkind != RELKIND_MATVIEW && relkind != RELKIND_PARTITIONED_TABLE) ||
		get_rel_persistence(relation) == RELPERSISTENCE_TEMP || IsCatalogRelationOid(relation))
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" cannot be compressed", get_rel_name(relation)),
				 errhint("Tables, partitioned tables and materialized views can, but no temporary tables and no system catalogs.")));
}

/* The owner alone may compress a relation. */
void
cellar_check_compressible(Oid relation)
{
	cellar_check_kind(relation);
	check_owner(relation);
}

/* Who may read it may know how it is compressed. */
void
cellar_check_readable(Oid relation)
{
	if (pg_class_aclcheck(relation, GetUserId(), ACL_SELECT) != ACLCHECK_OK && !CellarOwnsRelation(relation))
		aclcheck_error(ACLCHECK_NO_PRIV, get_relkind_objtype(get_rel_relkind(relation)), get_rel_name(relation));
}

/* Raises what the worker ended with. */
static void
report_failure(const CellarTask *task)
{
	ereport(ERROR,
			(errcode(task->sqlstate),
			 errmsg("%s", task->message),
			 *task->detail ? errdetail("%s", task->detail) : 0,
			 *task->hint ? errhint("%s", task->hint) : 0));
}

/* The compressor that a session waits for, which is no lock that Postgres knows of; 0 if there is none. */
static int
worker_of(int session)
{
	int			worker = 0;

	cellar_tasks_lock(false);
	for (int i = 0; i < CELLAR_TASKS; i++)
	{
		const CellarTask *task = &shared->tasks[i];

		if (task->used && task->has_session && task->has_worker && task->session == session)
			worker = task->pid;
	}
	cellar_tasks_unlock();
	return worker;
}

/*
 * The process that another one waits for and that itself waits for this one,
 * be it through others; this process if it waits for it at once, 0 if none.
 */
static int
waits_for_me(int waiting)
{
	List	   *seen = list_make1_int(waiting);
	List	   *through = list_make1_int(0);

	for (int i = 0; i < list_length(seen); i++)
	{
		ArrayType  *blockers = DatumGetArrayTypeP(DirectFunctionCall1(pg_blocking_pids,
																	  Int32GetDatum(list_nth_int(seen, i))));
		int			count = ArrayGetNItems(ARR_NDIM(blockers), ARR_DIMS(blockers));
		const int32 *pids = (const int32 *) ARR_DATA_PTR(blockers);

		for (int j = 0; j <= count; j++)
		{
			int			pid = j < count ? pids[j] : worker_of(list_nth_int(seen, i));
			int			first = i == 0 ? pid : list_nth_int(through, i);

			if (pid == MyProcPid)
				return first;
			/* A prepared transaction has no process, and waits for nobody. */
			if (pid == 0 || list_member_int(seen, pid))
				continue;
			seen = lappend_int(seen, pid);
			through = lappend_int(through, first);
		}
	}
	return 0;
}

static void
check_deadlock(int worker, Oid relation)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext, "cellar deadlock check", ALLOCSET_SMALL_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	int			through = waits_for_me(worker);

	/* Who waits for whom is not read at one moment: a circle is one that is still there. */
	if (through != 0)
		through = waits_for_me(worker);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
	if (through == MyProcPid)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_DEADLOCK_DETECTED),
				 errmsg("could not compress table \"%s\": this transaction has a lock that excludes VACUUM", get_rel_name(relation)),
				 errhint("End the transaction first.")));
	if (through != 0)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_DEADLOCK_DETECTED),
				 errmsg("could not compress table \"%s\": deadlock detected", get_rel_name(relation)),
				 errdetail("The compressor waits for process %d, which waits for this transaction to end.", through),
				 errhint("Try again when that process has ended its work.")));
}

/* Returns when the worker has ended. */
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
		if (WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, DeadlockTimeout,
					  WAIT_EVENT_BGWORKER_SHUTDOWN) & WL_TIMEOUT && status == BGWH_STARTED)
			check_deadlock(pid, relation);
		ResetLatch(MyLatch);
	}
}

/*
 * A query of this session that reads the relation has pages pinned, which the
 * worker's VACUUM would wait for as long as the query waits for the worker.
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

/* A command whose session waits for its worker. */
typedef struct Command
{
	BackgroundWorkerHandle *handle;
	CellarTask *task;
} Command;

/* Nobody waits any more: the statement was cancelled or failed, or the session ends. */
static void
abandon(int code, Datum arg)
{
	Command    *command = (Command *) DatumGetPointer(arg);

	TerminateBackgroundWorker(command->handle);
	cellar_task_leave(command->task, false);
}

/*
 * cellar.compress_relation(relation, level): returns when all of the relation,
 * or of its partitions, is at the level.
 */
Datum
cellar_compress_relation(PG_FUNCTION_ARGS)
{
	Oid			relation = PG_GETARG_OID(0);
	int			level = cellar_parse_level(text_to_cstring(PG_GETARG_TEXT_PP(1)));
	BackgroundWorker worker;
	Command		command;
	MemoryContext context = CurrentMemoryContext;
	CellarTask *task;
	CellarTask	outcome;
	int			number;

	if (shared == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cellar must be loaded via \"shared_preload_libraries\"")));
	cellar_check_compressible(relation);
	check_not_in_use(relation);

	number = claim_task(relation, level);
	task = cellar_task(number);

	memset(&worker, 0, sizeof(worker));
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	worker.bgw_main_arg = Int32GetDatum(number);
	worker.bgw_notify_pid = MyProcPid;
	strlcpy(worker.bgw_library_name, "cellar", sizeof(worker.bgw_library_name));
	strlcpy(worker.bgw_function_name, "cellar_compressor_main", sizeof(worker.bgw_function_name));
	snprintf(worker.bgw_name, sizeof(worker.bgw_name), "cellar compressor");
	snprintf(worker.bgw_type, sizeof(worker.bgw_type), "cellar compressor");
	if (!RegisterDynamicBackgroundWorker(&worker, &command.handle))
	{
		cellar_task_leave(task, true);
		cellar_task_leave(task, false);
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_RESOURCES),
				 errmsg("could not start a compressor"),
				 errhint("Raise max_worker_processes.")));
	}

	command.task = task;
	PG_ENSURE_ERROR_CLEANUP(abandon, PointerGetDatum(&command));
	{
		wait_for_worker(command.handle, relation);
	}
	PG_END_ENSURE_ERROR_CLEANUP(abandon, PointerGetDatum(&command));

	MemoryContextSwitchTo(context);
	cellar_tasks_lock(false);
	outcome = *task;
	cellar_tasks_unlock();
	/* A worker that was never started could not say that it is gone. */
	if (outcome.has_worker)
		cellar_task_leave(task, true);
	cellar_task_leave(task, false);
	if (outcome.sqlstate != 0)
		report_failure(&outcome);
	if (!outcome.done)
		ereport(ERROR,
				(errcode(ERRCODE_QUERY_CANCELED),
				 errmsg("the compressor ended before its work"),
				 errdetail("What it has compressed stays so."),
				 errhint("See the server's log, and repeat the command to go on.")));
	PG_RETURN_VOID();
}

static void
put_levels(ReturnSetInfo *rsinfo, Oid relation, const CellarLevelUnits *levels, size_t count)
{
	for (size_t i = 0; i < count; i++)
	{
		const CellarLevelUnits *line = &levels[i];
		Datum		values[6];
		bool		nulls[6] = {false};

		values[0] = ObjectIdGetDatum(relation);
		values[1] = CStringGetTextDatum(level_names[Min(line->level, CELLAR_LEVELS - 1)]);
		values[2] = Int64GetDatum(line->units);
		values[3] = Int64GetDatum(line->superseded_blocks);
		values[4] = Int64GetDatum(line->blocks * BLCKSZ);
		values[5] = Int64GetDatum(line->stored_bytes);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
}

/* The units of one table; a table on no cell has none. */
static void
units_of(Oid relation, ReturnSetInfo *rsinfo)
{
	Relation	rel = relation_open(relation, AccessShareLock);
	CellarPlace place;

	if (RELKIND_HAS_STORAGE(rel->rd_rel->relkind) && cellar_relation_place(rel, &place))
	{
		CellarTalk	talk;

		cellar_talk_begin(&talk, rel, &place);
		PG_TRY();
		{
			const CellarLevelUnits *levels;
			size_t		count;

			cellar_query_units(talk.session->connection, talk.relation, 0,
							 RelationGetNumberOfBlocks(rel));
			cellar_talk_until(&talk, CELLAR_UNITS, NULL, NULL);
			levels = cellar_units(talk.session->connection, &count);
			put_levels(rsinfo, relation, levels, count);
		}
		PG_CATCH();
		{
			cellar_talk_abort(&talk);
			PG_RE_THROW();
		}
		PG_END_TRY();
		cellar_talk_end(&talk);
	}
	relation_close(rel, AccessShareLock);
}

/*
 * cellar.get_compression(relation): a row a table (partition) and level.
 */
Datum
cellar_compression_units(PG_FUNCTION_ARGS)
{
	Oid			relation = PG_GETARG_OID(0);
	ListCell   *lc;

	InitMaterializedSRF(fcinfo, 0);
	cellar_check_readable(relation);
	foreach(lc, find_all_inheritors(relation, AccessShareLock, NULL))
		units_of(lfirst_oid(lc), (ReturnSetInfo *) fcinfo->resultinfo);
	return (Datum) 0;
}

/*
 * cellar.get_compression_progress(): a row a command under way in this database.
 */
Datum
cellar_compression_tasks(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;

	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; shared != NULL && i <= CELLAR_TASKS; i++)
	{
		CellarTask	task;
		Datum		values[9];
		bool		nulls[9] = {false};

		cellar_tasks_lock(false);
		task = shared->tasks[i];
		cellar_tasks_unlock();
		if (!task.used || !task.has_worker || task.database != MyDatabaseId)
			continue;
		values[0] = Int32GetDatum(task.pid);
		nulls[0] = task.pid == 0;
		values[1] = ObjectIdGetDatum(task.current);
		values[2] = CStringGetTextDatum(level_names[task.level]);
		values[3] = CStringGetTextDatum(phase_names[task.phase]);
		values[4] = Int64GetDatum(task.blocks_total);
		values[5] = Int64GetDatum(task.progress.blocks_done);
		values[6] = Int64GetDatum(task.progress.bytes_before);
		values[7] = Int64GetDatum(task.progress.bytes_after);
		values[8] = Int64GetDatum(task.progress.units_skipped);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}
