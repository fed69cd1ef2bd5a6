/*-------------------------------------------------------------------------
 *
 * snapshot_worker.c
 *	  The AWR worker: stores session samples and their sums, texts and AWR snapshots.
 *
 * The launcher (launcher.c) starts the worker in the database of the repository
 * (cellar.awr_database) every minute.  AWR snapshots are due at multiples of
 * cellar.awr_snapshot_interval since midnight UTC, so an interval of 60 minutes
 * takes them on the hour.  The worker does nothing if the extension is not created
 * in that database.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/pg_namespace.h"
#include "commands/extension.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "storage/ipc.h"
#include "tcop/tcopprot.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "cellar.h"
#include "cellar/awr.h"
#include "cellar/compat.h"

PGDLLEXPORT void cellar_awr_worker_main(Datum arg);

/* Session samples are stored this often. */
#define STORE_SAMPLES_US	(60 * USECS_PER_SEC)

/* For so long after the start of the server, each worker warns of an extension of another version. */
#define VERSION_WARNING_AT_START	(2 * USECS_PER_MINUTE)

/* Returns the last multiple of the snapshot interval that is not after a time. */
static TimestampTz
last_due(TimestampTz now)
{
	int64		interval = (int64) cellar_awr_snapshot_interval * SECS_PER_MINUTE * USECS_PER_SEC;

	return now / interval * interval;
}

/* Returns when the worker should run next: in a minute, or when an AWR snapshot is due. */
TimestampTz
cellar_next_awr_work(TimestampTz now)
{
	TimestampTz next = now + STORE_SAMPLES_US;

	if (cellar_awr_snapshot_interval > 0)
		next = Min(next, last_due(now) + (int64) cellar_awr_snapshot_interval * SECS_PER_MINUTE * USECS_PER_SEC);
	return next;
}

/* Returns whether the schema awr exists and belongs to the extension: the worker runs its functions as superuser. */
static bool
repository_exists(void)
{
	Oid			extension = get_extension_oid("cellar", true);
	Oid			schema = get_namespace_oid("awr", true);

	return OidIsValid(extension) && OidIsValid(schema) &&
		getExtensionOfObject(NamespaceRelationId, schema) == extension;
}

/* Logs a warning in the first minutes of a server, and once an hour, if library and repository are of different versions. */
static void
check_version(void)
{
	TimestampTz now = GetCurrentTimestamp();

	if (now - PgStartTime > VERSION_WARNING_AT_START && now % USECS_PER_HOUR >= USECS_PER_MINUTE)
		return;
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	cellar_warn_of_other_version();
	CommitTransactionCommand();
}

/*
 * Executes a statement in a separate transaction.  Logs an error and continues if
 * the statement fails.  A statement that had to wait for a lock is not logged:
 * the next worker repeats it.
 */
static void
execute(const char *statement)
{
	MemoryContext context = CurrentMemoryContext;

	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	PG_TRY();
	{
		PushActiveSnapshot(GetTransactionSnapshot());
		if (repository_exists())
		{
			pgstat_report_activity(STATE_RUNNING, statement);
			SPI_connect();
			SPI_execute(statement, false, 0);
			SPI_finish();
		}
		PopActiveSnapshot();
		CommitTransactionCommand();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		HOLD_INTERRUPTS();
		if (geterrcode() != ERRCODE_LOCK_NOT_AVAILABLE)
			EmitErrorReport();
		AbortCurrentTransaction();
		FlushErrorState();
		RESUME_INTERRUPTS();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
}

void
cellar_awr_worker_main(Datum arg)
{
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnectionByOid(DatumGetObjectId(arg), InvalidOid, 0);
	CellarNoTransactionTimeout();
	pgstat_report_appname("cellar awr worker");

	/*
	 * DROP EXTENSION locks the tables of the repository in another order than
	 * the worker.  The worker gives way before the deadlock detector of the
	 * other session would cancel that session.
	 */
	SetConfigOption("lock_timeout", "200ms", PGC_SUSET, PGC_S_OVERRIDE);
	SetConfigOption("default_transaction_read_only", "off", PGC_SUSET, PGC_S_OVERRIDE);

	check_version();

	/*
	 * Creating partitions needs strong locks, which a snapshot must not hold
	 * until its end.
	 */
	execute("SELECT awr.create_partitions((now() AT TIME ZONE 'UTC')::date + n) FROM generate_series(0, 1) n");

	if (cellar_awr_sample_period > 0)
		execute("SELECT awr.store_samples()");
	if (cellar_awr_track_statements)
		execute("SELECT awr.store_plans()");
	if (cellar_awr_snapshot_interval > 0)
	{
		char	   *statement = psprintf("SELECT awr.create_due_snapshot('%s')",
										 timestamptz_to_str(last_due(GetCurrentTimestamp())));

		execute(statement);
	}
	execute("SELECT awr.sum_samples()");
	execute(psprintf("SELECT awr.drop_expired_snapshots(interval '%d days')", cellar_awr_retention));
	proc_exit(0);
}
