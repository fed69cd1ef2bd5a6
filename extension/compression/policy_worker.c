/*-------------------------------------------------------------------------
 *
 * policy_worker.c
 *	  The policy worker: carries out the compression policies of one database.
 *
 * The launcher (launcher.c) starts the worker.  For each table of
 * the database with a policy, the worker queries the cell for the table's
 * allocation units without recent writes, freezes the table if necessary, and
 * requests compression of the units that are due and frozen.  Then it exits.
 *
 * Freezing is itself a write, so it restarts the delay of all units that it
 * modifies.  Two rules bound the effect: units that were due before VACUUM are
 * compressed after it, and VACUUM runs early, once a unit has gone without
 * writes for 1/FREEZE_FRACTION of the delay, when little waiting time is lost.
 *
 * Like autovacuum, the worker yields to other sessions.  It skips a table whose
 * lock is not available at once.  A session that waits for a lock of the worker
 * cancels the worker after deadlock_timeout.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/visibilitymap.h"
#include "access/xact.h"
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

#include "cellar.h"
#include "cellar/cell.h"
#include "cellar/compat.h"
#include "cellar/compression.h"
#include "cellar/executor.h"

PGDLLEXPORT void cellar_policy_worker_main(Datum arg);

/* VACUUM may run once a unit has gone without writes for 1/FREEZE_FRACTION of the policy's delay. */
#define FREEZE_FRACTION		8

/*
 * A unit is not compressed while 1/UNFROZEN_FRACTION of its blocks or more are
 * not frozen: freezing those blocks later would supersede them, and the unit
 * would soon be due again.
 */
#define UNFROZEN_FRACTION	10

#define OUTCOME_YIELDED		"yielded to a conflicting lock"

/* A table, and the policy that applies to it. */
typedef struct Policy
{
	Oid			relation;
	char	   *name;
	int			level;
	int64		after_us;		/* a unit is due after this time without
								 * writes */
	TimestampTz last_freeze;	/* 0 if never */
} Policy;

/* The result of processing one table. */
typedef struct Run
{
	const char *outcome;		/* NULL if there was nothing to do */
	bool		postpone;		/* work is left; postpone the next attempt */
	bool		froze;			/* VACUUM ran */
} Run;

static MemoryContext worker_context;
static CellarTask *task = NULL;

static void
leave_task(int code, Datum arg)
{
	if (task != NULL)
		cellar_task_leave(task);
	task = NULL;
}

/* ---- allocation units of a table ---- */

/* Opens the table.  Returns NULL if it no longer exists or its lock is not available at once. */
static Relation
open_table(Oid relation)
{
	if (!ConditionalLockRelationOid(relation, ShareUpdateExclusiveLock))
		return NULL;
	return try_relation_open(relation, NoLock);
}

/*
 * Returns the allocation units that compression at the policy's level would
 * rewrite and that had no writes for 1/FREEZE_FRACTION of the policy's delay.  The
 * array is in block order, in worker_context.
 */
static CellarDueUnit *
find_idle_units(Relation rel, const CellarLocation *location, const Policy *policy, size_t *count)
{
	CellarExchange exchange;
	CellarDueUnit *units = NULL;

	cellar_exchange_begin(&exchange, rel, location);
	PG_TRY();
	{
		const CellarDueUnit *answer;

		cellar_query_due_units(exchange.session->connection, exchange.relation, 0, RelationGetNumberOfBlocks(rel),
							   policy->level, policy->after_us / FREEZE_FRACTION);
		cellar_exchange_wait(&exchange, CELLAR_DUE_UNITS, NULL, NULL);
		answer = cellar_due_units(exchange.session->connection, count);
		units = MemoryContextAllocHuge(worker_context, sizeof(CellarDueUnit) * Max(*count, 1));
		memcpy(units, answer, sizeof(CellarDueUnit) * *count);
	}
	PG_CATCH();
	{
		cellar_exchange_abort(&exchange);
		PG_RE_THROW();
	}
	PG_END_TRY();
	cellar_exchange_end(&exchange);
	return units;
}

static bool
is_due(const CellarDueUnit *unit, const Policy *policy)
{
	return unit->idle_us >= (uint64) policy->after_us;
}

static bool
any_is_due(const Policy *policy, const CellarDueUnit *units, size_t count)
{
	for (size_t i = 0; i < count; i++)
	{
		if (is_due(&units[i], policy))
			return true;
	}
	return false;
}

/* Returns whether the block was added by extending the table and never initialized. */
static bool
is_new_block(Relation rel, BlockNumber block)
{
	Buffer		buffer = ReadBuffer(rel, block);
	bool		is_new;

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	is_new = PageIsNew(BufferGetPage(buffer));
	UnlockReleaseBuffer(buffer);
	return is_new;
}

/*
 * Returns whether fewer than 1/UNFROZEN_FRACTION of the unit's blocks are not
 * frozen.  The visibility map never marks new blocks as frozen.  With
 * check_new_blocks, the function reads blocks that are not marked, and counts
 * new blocks as frozen.
 */
static bool
is_frozen(Relation rel, BlockNumber nblocks, const CellarDueUnit *unit, bool check_new_blocks)
{
	BlockNumber end = Min(unit->end, nblocks);
	BlockNumber unfrozen_max = (unit->end - unit->first - 1) / UNFROZEN_FRACTION;
	BlockNumber unfrozen = 0;
	Buffer		map = InvalidBuffer;

	CHECK_FOR_INTERRUPTS();
	for (BlockNumber block = unit->first; block < end && unfrozen <= unfrozen_max; block++)
	{
		if (!VM_ALL_FROZEN(rel, block, &map) && !(check_new_blocks && is_new_block(rel, block)))
			unfrozen++;
	}
	if (BufferIsValid(map))
		ReleaseBuffer(map);
	return unfrozen <= unfrozen_max;
}

/* Compresses the units that are due and frozen.  Returns the number of due units that are not frozen. */
static size_t
compress_due(Relation rel, const CellarLocation *location, const Policy *policy,
			 const CellarDueUnit *units, size_t count)
{
	CellarExchange exchange;
	BlockNumber nblocks = RelationGetNumberOfBlocks(rel);
	volatile size_t unfrozen = 0;

	cellar_exchange_begin(&exchange, rel, location);
	PG_TRY();
	{
		for (size_t i = 0; i < count;)
		{
			const CellarDueUnit *first = &units[i];
			BlockNumber end = first->first;

			/* Adjacent units are compressed by one request. */
			while (i < count && units[i].first == end && is_due(&units[i], policy) && is_frozen(rel, nblocks, &units[i], true))
				end = units[i++].end;
			if (end > first->first)
				cellar_compress_blocks(task, &exchange, first->first, end);
			else
				unfrozen += is_due(&units[i++], policy);
		}
	}
	PG_CATCH();
	{
		cellar_exchange_abort(&exchange);
		PG_RE_THROW();
	}
	PG_END_TRY();
	cellar_exchange_end(&exchange);
	cellar_refresh_stored(rel);
	return unfrozen;
}

/* Fills the run's outcome from the task's progress. */
static void
set_outcome(Run *run, size_t unfrozen)
{
	StringInfoData outcome;

	initStringInfo(&outcome);
	appendStringInfo(&outcome, "compressed " UINT64_FORMAT " allocation units", task->progress.units_written);
	if (task->progress.units_skipped > 0)
		appendStringInfo(&outcome, ", " UINT64_FORMAT " skipped (modified meanwhile or not smaller)",
						 task->progress.units_skipped);
	if (unfrozen > 0)
		appendStringInfo(&outcome, ", %zu not frozen yet", unfrozen);
	run->outcome = outcome.data;
	run->postpone = task->progress.units_written == 0;
}

/* Runs VACUUM (FREEZE) if the worker has a task.  Releases the session lock in any case. */
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
			run->outcome = "frozen by VACUUM";
		}
	}
	PG_FINALLY();
	{
		UnlockRelationIdForSession(lock, ShareUpdateExclusiveLock);
	}
	PG_END_TRY();
}

/* ---- one table ---- */

/*
 * Carries out the policy of one table.  *run is valid at any time, because an
 * error may leave this function at any time.
 */
static void
process_table(const Policy *policy, Run *run)
{
	Relation	rel;
	CellarLocation location;
	CellarFileId file;
	LockRelId	lock;
	CellarDueUnit *units;
	size_t		count;
	bool		any_due = false;
	bool		any_unfrozen = false;

	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	rel = open_table(policy->relation);
	if (rel == NULL)
	{
		run->outcome = OUTCOME_YIELDED;
		CommitTransactionCommand();
		return;
	}
	if (!cellar_relation_location(rel, &location))
	{
		run->outcome = "not stored on a cell";
		run->postpone = true;
		relation_close(rel, NoLock);
		CommitTransactionCommand();
		return;
	}
	units = find_idle_units(rel, &location, policy, &count);
	if (any_is_due(policy, units, count))
	{
		/*
		 * Dirty buffers are writes that the cell has not seen: write them and
		 * search again.
		 */
		cellar_object_checkpoint(rel);
		units = find_idle_units(rel, &location, policy, &count);
		any_due = any_is_due(policy, units, count);
	}
	if (GetCurrentTimestamp() - policy->last_freeze >= policy->after_us / FREEZE_FRACTION)
	{
		BlockNumber nblocks = RelationGetNumberOfBlocks(rel);

		for (size_t i = 0; i < count && !any_unfrozen; i++)
			any_unfrozen = !is_frozen(rel, nblocks, &units[i], false);
	}
	file = CellarRelationFile(rel);
	lock = rel->rd_lockInfo.lockRelId;

	/*
	 * Hold the lock until VACUUM has locked the table too.  Otherwise another
	 * session could lock the table in between, and VACUUM would wait for that
	 * session.
	 */
	if (any_unfrozen)
		LockRelationIdForSession(&lock, ShareUpdateExclusiveLock);
	relation_close(rel, NoLock);
	CommitTransactionCommand();

	if (!any_due && !any_unfrozen)
		return;
	task = cellar_claim_policy_task(policy->relation, policy->level);
	if (any_unfrozen)
		freeze_table(policy->relation, &lock, run);
	if (task == NULL)
		return;
	if (!any_due)
		return;

	StartTransactionCommand();
	rel = open_table(policy->relation);
	if (rel != NULL && CellarFileEquals(CellarRelationFile(rel), file) && cellar_relation_location(rel, &location))
	{
		size_t		unfrozen;

		cellar_object_checkpoint(rel);
		cellar_task_phase(task, CELLAR_PHASE_COMPRESSING, policy->relation, RelationGetNumberOfBlocks(rel));
		unfrozen = compress_due(rel, &location, policy, units, count);
		MemoryContextSwitchTo(worker_context);
		set_outcome(run, unfrozen);
	}
	else
		run->outcome = OUTCOME_YIELDED;
	if (rel != NULL)
		relation_close(rel, NoLock);
	CommitTransactionCommand();
}

/* Returns the worker to a clean state after an error that was recorded or logged. */
static void
recover(void)
{
	AbortOutOfAnyTransaction();
	FlushErrorState();
	QueryCancelPending = false;
	RESUME_INTERRUPTS();
}

/* Turns the current error into the run's outcome, and logs it unless it is a cancellation by a conflicting lock. */
static void
record_failure(const Policy *policy, Run *run)
{
	ErrorData  *error;

	HOLD_INTERRUPTS();
	MemoryContextSwitchTo(worker_context);
	error = CopyErrorData();
	if (error->sqlerrcode == ERRCODE_QUERY_CANCELED)
		run->outcome = OUTCOME_YIELDED;
	else
	{
		run->outcome = psprintf("failed with %s: %s", unpack_sql_state(error->sqlerrcode), error->message);
		run->postpone = true;
		errcontext("automatic compression of table %s (the view cellar.compression_policies shows the next attempt)",
				   policy->name);
		EmitErrorReport();
	}
	recover();
}

/* ---- all tables of the database ---- */

/* Stores the run's outcome in cellar.compression_run. */
static void
store_outcome(const Policy *policy, const Run *run)
{
	Oid			types[5] = {OIDOID, TEXTOID, BOOLOID, BOOLOID, INT4OID};
	Datum		values[5];

	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
	SPI_connect();
	values[0] = ObjectIdGetDatum(policy->relation);
	values[1] = CStringGetTextDatum(run->outcome);
	values[2] = BoolGetDatum(run->postpone);
	values[3] = BoolGetDatum(run->froze);
	values[4] = Int32GetDatum(cellar_compression_naptime);
	if (SPI_execute_with_args("SELECT cellar.record_compression_run($1, $2, $3, $4, $5)",
							  5, types, values, NULL, false, 0) != SPI_OK_SELECT)
		elog(ERROR, "could not store the outcome of a compression");
	SPI_finish();
	PopActiveSnapshot();
	CommitTransactionCommand();
}

/* Returns the tables of this database to process now, in TopMemoryContext, least recently processed first. */
static List *
read_policies(void)
{
	List	   *policies = NIL;

	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
	if (OidIsValid(get_extension_oid("cellar", true)))
	{
		SPI_connect();

		/*
		 * Remove the outcomes of dropped tables here rather than in the event
		 * trigger on DROP, so that a DROP never waits for this worker's row
		 * locks.
		 */
		if (SPI_execute("DELETE FROM cellar.compression_run WHERE relation IN (SELECT relation FROM cellar.compression_run"
						" WHERE NOT EXISTS (SELECT FROM pg_class WHERE oid = relation) FOR UPDATE SKIP LOCKED)",
						false, 0) != SPI_OK_DELETE)
			elog(ERROR, "could not delete the outcomes of dropped tables");
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
 * Marks this process as an autovacuum worker.  A session that waits for one of
 * its locks then cancels the worker after deadlock_timeout, and DROP DATABASE
 * terminates the worker.
 */
static void
act_as_autovacuum_worker(void)
{
	LWLockAcquire(ProcArrayLock, LW_EXCLUSIVE);
	MyProc->statusFlags |= PROC_IS_AUTOVACUUM;
	ProcGlobal->statusFlags[MyProc->pgxactoff] = MyProc->statusFlags;
	LWLockRelease(ProcArrayLock);
}

/* Overrides settings of the database or the superuser that would change what the worker does. */
static void
override_settings(void)
{
	static const char *const settings[][2] = {
		{"search_path", ""},
		{"default_transaction_read_only", "off"},
		{"default_transaction_isolation", "read committed"},

		/*
		 * The worker waits for no table lock, but a session may hold a row
		 * lock in cellar.compression_run.
		 */
		{"lock_timeout", "1000"},
		{"synchronous_commit", "local"},
		{"zero_damaged_pages", "off"},
	};

	for (int i = 0; i < lengthof(settings); i++)
		SetConfigOption(settings[i][0], settings[i][1], PGC_SUSET, PGC_S_OVERRIDE);
	CellarNoTransactionTimeout();
	/* VACUUM runs with autovacuum's cost delay. */
	if (autovacuum_vac_cost_delay >= 0)
		SetConfigOption("vacuum_cost_delay", psprintf("%g", autovacuum_vac_cost_delay), PGC_SUSET, PGC_S_OVERRIDE);
}

void
cellar_policy_worker_main(Datum arg)
{
	List	   *policies;
	ListCell   *lc;

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	before_shmem_exit(leave_task, (Datum) 0);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnectionByOid(DatumGetObjectId(arg), InvalidOid, 0);
	act_as_autovacuum_worker();
	override_settings();
	worker_context = AllocSetContextCreate(TopMemoryContext, "cellar policy worker", ALLOCSET_DEFAULT_SIZES);
	/* see cellar_vacuum */
	PortalContext = AllocSetContextCreate(TopMemoryContext, "cellar vacuum", ALLOCSET_DEFAULT_SIZES);

	PG_TRY();
	{
		cellar_apply_flash_cache_settings();
	}
	PG_CATCH();
	{
		HOLD_INTERRUPTS();
		MemoryContextSwitchTo(worker_context);
		errcontext("settings of the flash cache");
		EmitErrorReport();
		recover();
	}
	PG_END_TRY();
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
			process_table(policy, &run);
		}
		PG_CATCH();
		{
			record_failure(policy, &run);
		}
		PG_END_TRY();
		leave_task(0, (Datum) 0);
		PG_TRY();
		{
			if (run.outcome != NULL)
				store_outcome(policy, &run);
		}
		PG_CATCH();
		{
			HOLD_INTERRUPTS();
			errcontext("storing the outcome of the automatic compression of table %s: %s", policy->name, run.outcome);
			EmitErrorReport();
			recover();
		}
		PG_END_TRY();
		MemoryContextReset(worker_context);
		MemoryContextReset(PortalContext);
	}
	proc_exit(0);
}
