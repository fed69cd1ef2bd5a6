/*-------------------------------------------------------------------------
 *
 * policy_launcher.c
 *	  Compression policies carried out in the background.
 *
 * A launcher starts a worker for every database in turn, and waits for it, so
 * that one table of the cluster is worked on at a time.  The worker asks the
 * cell which allocation units of a table nothing has written to for a while,
 * and has those compressed that are due and frozen.
 *
 * Freezing is itself a write.  What is due before the table is vacuumed is
 * compressed after it.  What is not due yet begins to wait anew; that it loses
 * little by that, a table is vacuumed as soon as something in it has waited
 * for an eighth of its time.
 *
 * The worker gives way as autovacuum does: it takes no lock that it would have
 * to wait for, and whoever waits for its lock cancels it.
 *
 *-------------------------------------------------------------------------
 */
#include "cellar.h"

#include "access/relation.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/visibilitymap.h"
#include "access/xact.h"
#include "catalog/pg_database.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "postmaster/autovacuum.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/lmgr.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/portal.h"
#include "utils/timestamp.h"

PGDLLEXPORT void cellar_compression_launcher_main(Datum arg);
PGDLLEXPORT void cellar_compression_worker_main(Datum arg);

/* Freezing begins after this part of the time. */
#define FREEZE_PART		8
/* A unit waits while one block in this many is not frozen: it would be due again soon. */
#define THAWED_SHARE	10

#define GAVE_WAY		"gave way to a lock"

typedef struct Policy
{
	Oid			relation;
	char	   *name;
	int			level;
	int64		after_us;
	TimestampTz last_freeze;
} Policy;

/* What a run found and did. */
typedef struct Run
{
	const char *outcome;		/* NULL when there was nothing to do */
	bool		waits;			/* there is more to do, but not soon */
	bool		froze;
} Run;

static MemoryContext worker_context;
static CellarTask *task = NULL;

static void
leave_task(int code, Datum arg)
{
	if (task != NULL)
		cellar_task_leave(task, true);
	task = NULL;
}

/* ---- a table ---- */

/* Opens the table unless it is gone or a conflicting lock is held, and asks what waits for a part of its time. */
static Relation
open_table(Oid relation)
{
	if (!ConditionalLockRelationOid(relation, ShareUpdateExclusiveLock))
		return NULL;
	return try_relation_open(relation, NoLock);
}

static CellarDueUnit *
ask_due(Relation rel, const CellarPlace *place, const Policy *policy, size_t *count)
{
	CellarTalk	talk;
	CellarDueUnit *due = NULL;

	cellar_talk_begin(&talk, rel, place);
	PG_TRY();
	{
		const CellarDueUnit *answer;

		cellar_query_due_units(talk.session->connection, talk.relation, 0, RelationGetNumberOfBlocks(rel),
					   policy->level, policy->after_us / FREEZE_PART);
		cellar_talk_until(&talk, CELLAR_DUE_UNITS, NULL, NULL);
		answer = cellar_due_units(talk.session->connection, count);
		due = MemoryContextAllocHuge(worker_context, sizeof(CellarDueUnit) * Max(*count, 1));
		memcpy(due, answer, sizeof(CellarDueUnit) * *count);
	}
	PG_CATCH();
	{
		cellar_talk_abort(&talk);
		PG_RE_THROW();
	}
	PG_END_TRY();
	cellar_talk_end(&talk);
	return due;
}

static bool
is_due(const CellarDueUnit *unit, const Policy *policy)
{
	return unit->idle_us >= (uint64) policy->after_us;
}

static bool
any_is_due(const Policy *policy, const CellarDueUnit *due, size_t count)
{
	for (size_t i = 0; i < count; i++)
	{
		if (is_due(&due[i], policy))
			return true;
	}
	return false;
}

/* A block that the table was extended by and that has never been used. */
static bool
is_unused(Relation rel, BlockNumber block)
{
	Buffer		buffer = ReadBuffer(rel, block);
	bool		unused;

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	unused = PageIsNew(BufferGetPage(buffer));
	UnlockReleaseBuffer(buffer);
	return unused;
}

/* Unused blocks are never marked frozen in the visibility map; they are looked at on demand. */
static bool
is_frozen(Relation rel, BlockNumber nblocks, const CellarDueUnit *unit, bool look_at_unused)
{
	BlockNumber end = Min(unit->end, nblocks);
	BlockNumber thawed_max = (unit->end - unit->first - 1) / THAWED_SHARE;
	BlockNumber thawed = 0;
	Buffer		map = InvalidBuffer;

	CHECK_FOR_INTERRUPTS();
	for (BlockNumber block = unit->first; block < end && thawed <= thawed_max; block++)
	{
		if (!VM_ALL_FROZEN(rel, block, &map) && !(look_at_unused && is_unused(rel, block)))
			thawed++;
	}
	if (BufferIsValid(map))
		ReleaseBuffer(map);
	return thawed <= thawed_max;
}

/* Compresses what is due and frozen; tells how many units have to wait. */
static size_t
compress_due(Relation rel, const CellarPlace *place, const Policy *policy,
			 const CellarDueUnit *due, size_t count)
{
	CellarTalk	talk;
	BlockNumber nblocks = RelationGetNumberOfBlocks(rel);
	volatile size_t thawed = 0;

	cellar_talk_begin(&talk, rel, place);
	PG_TRY();
	{
		for (size_t i = 0; i < count;)
		{
			const CellarDueUnit *first = &due[i];
			BlockNumber end = first->first;

			while (i < count && due[i].first == end && is_due(&due[i], policy) && is_frozen(rel, nblocks, &due[i], true))
				end = due[i++].end;
			if (end > first->first)
				cellar_compress_blocks(task, &talk, first->first, end);
			else
				thawed += is_due(&due[i++], policy);
		}
	}
	PG_CATCH();
	{
		cellar_talk_abort(&talk);
		PG_RE_THROW();
	}
	PG_END_TRY();
	cellar_talk_end(&talk);
	cellar_refresh_stored(rel);
	return thawed;
}

static void
describe(Run *run, size_t thawed)
{
	StringInfoData outcome;

	initStringInfo(&outcome);
	appendStringInfo(&outcome, "compressed " UINT64_FORMAT " allocation units", task->progress.units_written);
	if (task->progress.units_skipped > 0)
		appendStringInfo(&outcome, ", " UINT64_FORMAT " changed meanwhile or would not become smaller",
						 task->progress.units_skipped);
	if (thawed > 0)
		appendStringInfo(&outcome, ", %zu could not be frozen yet", thawed);
	run->outcome = outcome.data;
	run->waits = task->progress.units_written == 0;
}

/* Freezes what can be frozen, when there is a task, and lets go of the session's lock. */
static void
freeze_table(Oid relation, LockRelId *lock, Run *run)
{
	PG_TRY();
	{
		if (task != NULL)
		{
			cellar_task_phase(task, CELLAR_PHASE_VACUUMING, relation, 0);
			cellar_vacuum(relation, "FREEZE, PROCESS_TOAST FALSE, PARALLEL 0");
			run->froze = true;
			run->outcome = "froze";
		}
	}
	PG_FINALLY();
	{
		UnlockRelationIdForSession(lock, ShareUpdateExclusiveLock);
	}
	PG_END_TRY();
}

/*
 * One table.  Its run is filled in as it goes, so that it is right whenever an
 * error ends it.
 */
static void
compress_table(const Policy *policy, Run *run)
{
	Relation	rel;
	CellarPlace place;
	CellarFileId file;
	LockRelId	lock;
	CellarDueUnit *due;
	size_t		count;
	bool		any_due = false;
	bool		any_thawed = false;

	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	rel = open_table(policy->relation);
	if (rel == NULL)
	{
		run->outcome = GAVE_WAY;
		CommitTransactionCommand();
		return;
	}
	if (!cellar_relation_place(rel, &place))
	{
		run->outcome = "is on no cell";
		run->waits = true;
		relation_close(rel, NoLock);
		CommitTransactionCommand();
		return;
	}
	due = ask_due(rel, &place, policy, &count);
	if (any_is_due(policy, due, count))
	{
		/* Now with what was changed and not yet written. */
		cellar_object_checkpoint(rel);
		due = ask_due(rel, &place, policy, &count);
		any_due = any_is_due(policy, due, count);
	}
	if (GetCurrentTimestamp() - policy->last_freeze >= policy->after_us / FREEZE_PART)
	{
		BlockNumber nblocks = RelationGetNumberOfBlocks(rel);

		for (size_t i = 0; i < count && !any_thawed; i++)
			any_thawed = !is_frozen(rel, nblocks, &due[i], false);
	}
	file = CellarRelationFile(rel);
	lock = rel->rd_lockInfo.lockRelId;
	/* VACUUM would skip a table that somebody locks before it does, and not say so. */
	if (any_thawed)
		LockRelationIdForSession(&lock, ShareUpdateExclusiveLock);
	relation_close(rel, NoLock);
	CommitTransactionCommand();

	if (!any_due && !any_thawed)
		return;
	task = cellar_take_policy_task(policy->relation, policy->level);
	if (any_thawed)
		freeze_table(policy->relation, &lock, run);
	if (task == NULL)
		return;
	if (!any_due)
		return;

	StartTransactionCommand();
	rel = open_table(policy->relation);
	if (rel != NULL && CellarFileEquals(CellarRelationFile(rel), file) && cellar_relation_place(rel, &place))
	{
		size_t		thawed;

		cellar_object_checkpoint(rel);
		cellar_task_phase(task, CELLAR_PHASE_COMPRESSING, policy->relation, RelationGetNumberOfBlocks(rel));
		thawed = compress_due(rel, &place, policy, due, count);
		MemoryContextSwitchTo(worker_context);
		describe(run, thawed);
	}
	else
		run->outcome = GAVE_WAY;
	if (rel != NULL)
		relation_close(rel, NoLock);
	CommitTransactionCommand();
}

/* The error that was caught is over; what is to be told of it was told. */
static void
recover(void)
{
	AbortOutOfAnyTransaction();
	FlushErrorState();
	QueryCancelPending = false;
	RESUME_INTERRUPTS();
}

/* A run that failed; it is in the log, unless the worker only gave way. */
static void
note_failure(const Policy *policy, Run *run)
{
	ErrorData  *error;

	HOLD_INTERRUPTS();
	MemoryContextSwitchTo(worker_context);
	error = CopyErrorData();
	if (error->sqlerrcode == ERRCODE_QUERY_CANCELED)
		run->outcome = GAVE_WAY;
	else
	{
		run->outcome = psprintf("failed with %s: %s", unpack_sql_state(error->sqlerrcode), error->message);
		run->waits = true;
		errcontext("automatic compression of table %s; the view cellar.compression_policies tells when it is tried again",
				   policy->name);
		EmitErrorReport();
	}
	recover();
}

/* ---- a database ---- */

static void
note_run(const Policy *policy, const Run *run)
{
	Oid			types[5] = {OIDOID, TEXTOID, BOOLOID, BOOLOID, INT4OID};
	Datum		values[5];

	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
	SPI_connect();
	values[0] = ObjectIdGetDatum(policy->relation);
	values[1] = CStringGetTextDatum(run->outcome);
	values[2] = BoolGetDatum(run->waits);
	values[3] = BoolGetDatum(run->froze);
	values[4] = Int32GetDatum(cellar_compression_naptime);
	if (SPI_execute_with_args("SELECT cellar.note_compression_run($1, $2, $3, $4, $5)",
							  5, types, values, NULL, false, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not note the outcome of a compression");
	SPI_finish();
	PopActiveSnapshot();
	CommitTransactionCommand();
}

/* The tables of this database that are to be looked at now. */
static List *
read_policies(void)
{
	List	   *policies = NIL;

	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
	if (OidIsValid(get_extension_oid("cellar", true)))
	{
		SPI_connect();
		/* Not where tables are dropped: their transactions must not meet ours. */
		if (SPI_execute("DELETE FROM cellar.compression_run WHERE relation IN (SELECT relation FROM cellar.compression_run"
						" WHERE NOT EXISTS (SELECT FROM pg_class WHERE oid = relation) FOR UPDATE SKIP LOCKED)",
						false, 0) != SPI_OK_DELETE)
			elog(ERROR, "could not forget the runs of dropped tables");
		if (SPI_execute("SELECT \"table\"::oid, \"table\"::text, level, (extract(epoch FROM after) * 1000000)::bigint, last_freeze"
						" FROM cellar.compression_policies JOIN pg_class c ON c.oid = \"table\""
						" WHERE relkind <> 'p' AND coalesce(next_run <= now(), true)"
						" ORDER BY last_run NULLS FIRST", true, 0) != SPI_OK_SELECT)
			elog(ERROR, "could not read the compression policies");
		for (uint64 i = 0; i < SPI_processed; i++)
		{
			HeapTuple	tuple = SPI_tuptable->vals[i];
			TupleDesc	desc = SPI_tuptable->tupdesc;
			MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);
			Policy	   *policy = palloc0(sizeof(Policy));
			bool		isnull;
			Datum		last_freeze;

			policy->relation = DatumGetObjectId(SPI_getbinval(tuple, desc, 1, &isnull));
			policy->name = SPI_getvalue(tuple, desc, 2);
			policy->level = cellar_parse_level(SPI_getvalue(tuple, desc, 3));
			policy->after_us = DatumGetInt64(SPI_getbinval(tuple, desc, 4, &isnull));
			last_freeze = SPI_getbinval(tuple, desc, 5, &isnull);
			policy->last_freeze = isnull ? 0 : DatumGetTimestampTz(last_freeze);
			policies = lappend(policies, policy);
			MemoryContextSwitchTo(old);
		}
		SPI_finish();
	}
	PopActiveSnapshot();
	CommitTransactionCommand();
	return policies;
}

/*
 * To others this is an autovacuum worker: whoever waits for its lock cancels
 * it, and DROP DATABASE ends it.
 */
static void
give_way(void)
{
	LWLockAcquire(ProcArrayLock, LW_EXCLUSIVE);
	MyProc->statusFlags |= PROC_IS_AUTOVACUUM;
	ProcGlobal->statusFlags[MyProc->pgxactoff] = MyProc->statusFlags;
	LWLockRelease(ProcArrayLock);
}

/* What a database or the superuser has set must not change what the worker does. */
static void
settle_settings(void)
{
	static const char *const settings[][2] = {
		{"search_path", ""},
		{"default_transaction_read_only", "off"},
		{"default_transaction_isolation", "read committed"},
		/* For what it does not skip: the row of a run, which a session may have locked. */
		{"lock_timeout", "1000"},
		{"synchronous_commit", "local"},
		{"zero_damaged_pages", "off"},
	};

	for (int i = 0; i < lengthof(settings); i++)
		SetConfigOption(settings[i][0], settings[i][1], PGC_SUSET, PGC_S_OVERRIDE);
	CellarNoTransactionTimeout();
	/* It vacuums at autovacuum's pace. */
	if (autovacuum_vac_cost_delay >= 0)
		SetConfigOption("vacuum_cost_delay", psprintf("%g", autovacuum_vac_cost_delay), PGC_SUSET, PGC_S_OVERRIDE);
}

void
cellar_compression_worker_main(Datum arg)
{
	List	   *policies;
	ListCell   *lc;

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	before_shmem_exit(leave_task, (Datum) 0);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnectionByOid(DatumGetObjectId(arg), InvalidOid, 0);
	give_way();
	settle_settings();
	worker_context = AllocSetContextCreate(TopMemoryContext, "cellar compression", ALLOCSET_DEFAULT_SIZES);
	/* VACUUM keeps its lists below the portal's context. */
	PortalContext = AllocSetContextCreate(TopMemoryContext, "cellar vacuum", ALLOCSET_DEFAULT_SIZES);

	policies = read_policies();
	foreach(lc, policies)
	{
		const Policy *policy = lfirst(lc);
		Run			run = {0};

		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}
		if (!cellar_auto_compression)
			break;
		MemoryContextSwitchTo(worker_context);
		PG_TRY();
		{
			compress_table(policy, &run);
		}
		PG_CATCH();
		{
			note_failure(policy, &run);
		}
		PG_END_TRY();
		leave_task(0, (Datum) 0);
		PG_TRY();
		{
			if (run.outcome != NULL)
				note_run(policy, &run);
		}
		PG_CATCH();
		{
			HOLD_INTERRUPTS();
			errcontext("noting the outcome of the automatic compression of table %s: %s", policy->name, run.outcome);
			EmitErrorReport();
			recover();
		}
		PG_END_TRY();
		MemoryContextReset(worker_context);
		MemoryContextReset(PortalContext);
	}
	proc_exit(0);
}

/* ---- the cluster ---- */

static BackgroundWorker
worker_of(const char *function, const char *name)
{
	BackgroundWorker worker;

	memset(&worker, 0, sizeof(worker));
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	strlcpy(worker.bgw_library_name, "cellar", sizeof(worker.bgw_library_name));
	strlcpy(worker.bgw_function_name, function, sizeof(worker.bgw_function_name));
	strlcpy(worker.bgw_name, name, sizeof(worker.bgw_name));
	strlcpy(worker.bgw_type, name, sizeof(worker.bgw_type));
	return worker;
}

/* Waits for the latch or the time; the settings are current then. */
static void
launcher_wait(long timeout_ms)
{
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, timeout_ms, PG_WAIT_EXTENSION);
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
	/* With 0 the postmaster would not start it again if somebody just ended it. */
	if (ShutdownRequestPending)
		proc_exit(1);
	if (ConfigReloadPending)
	{
		ConfigReloadPending = false;
		ProcessConfigFile(PGC_SIGHUP);
	}
}

/* Returns when the database's worker has ended. */
static void
run_worker(Oid database)
{
	BackgroundWorker worker = worker_of("cellar_compression_worker_main", "cellar compression worker");
	BackgroundWorkerHandle *handle;
	pid_t		pid;

	worker.bgw_restart_time = BGW_NEVER_RESTART;
	worker.bgw_main_arg = ObjectIdGetDatum(database);
	worker.bgw_notify_pid = MyProcPid;
	if (!RegisterDynamicBackgroundWorker(&worker, &handle))
	{
		ereport(LOG,
				(errcode(ERRCODE_INSUFFICIENT_RESOURCES),
				 errmsg("could not start a worker for compression policies"),
				 errhint("Raise max_worker_processes.")));
		return;
	}
	while (GetBackgroundWorkerPid(handle, &pid) != BGWH_STOPPED)
		launcher_wait(1000);
	pfree(handle);
}

static List *
databases(MemoryContext context)
{
	List	   *found = NIL;
	Relation	rel;
	TableScanDesc scan;
	HeapTuple	tuple;

	StartTransactionCommand();
	rel = table_open(DatabaseRelationId, AccessShareLock);
	scan = table_beginscan_catalog(rel, 0, NULL);
	while ((tuple = heap_getnext(scan, ForwardScanDirection)) != NULL)
	{
		Form_pg_database database = (Form_pg_database) GETSTRUCT(tuple);
		MemoryContext old = MemoryContextSwitchTo(context);

		/* -2 marks one whose DROP was interrupted. */
		if (database->datallowconn && database->datconnlimit != -2)
			found = lappend_oid(found, database->oid);
		MemoryContextSwitchTo(old);
	}
	table_endscan(scan);
	table_close(rel, AccessShareLock);
	CommitTransactionCommand();
	return found;
}

void
cellar_compression_launcher_main(Datum arg)
{
	MemoryContext round = AllocSetContextCreate(TopMemoryContext, "cellar compression launcher",
												ALLOCSET_SMALL_SIZES);

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);

	for (;;)
	{
		TimestampTz began = GetCurrentTimestamp();
		ListCell   *lc;
		long		left_ms;

		if (cellar_auto_compression)
		{
			foreach(lc, databases(round))
			{
				MemoryContextSwitchTo(round);
				run_worker(lfirst_oid(lc));
			}
		}
		MemoryContextReset(round);
		while ((left_ms = TimestampDifferenceMilliseconds(GetCurrentTimestamp(),
														  TimestampTzPlusMilliseconds(began, (int64) cellar_compression_naptime * 1000))) > 0)
			launcher_wait(left_ms);
	}
}

void
cellar_register_compression_launcher(void)
{
	BackgroundWorker launcher = worker_of("cellar_compression_launcher_main", "cellar compression launcher");

	launcher.bgw_restart_time = 5;
	RegisterBackgroundWorker(&launcher);
}
