/*-------------------------------------------------------------------------
 *
 * snapshot_worker.c
 *	  The background worker that takes AWR snapshots, stores session samples and
 *	  drops expired snapshots.
 *
 * The worker connects to the database of the repository (cellar.awr_database).
 * AWR snapshots are due at multiples of cellar.awr_snapshot_interval since
 * midnight UTC, so an interval of 60 minutes takes them on the hour.  The worker
 * does nothing while the extension is not created in that database.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/namespace.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "cellar.h"
#include "cellar/awr.h"
#include "cellar/compat.h"

PGDLLEXPORT void cellar_snapshot_worker_main(Datum arg);

/* Session samples are stored this often.  A change of the clock takes effect within the same time. */
#define STORE_SAMPLES_MS	60000

/* Returns the first multiple of the interval after a time. */
static TimestampTz
next_due(TimestampTz after)
{
	int64		interval = (int64) cellar_awr_snapshot_interval * SECS_PER_MINUTE * USECS_PER_SEC;

	return (after / interval + 1) * interval;
}

/* Runs one query of awr functions in a separate transaction.  Logs an error and returns false if it fails. */
static bool
run_query(const char *query)
{
	MemoryContext context = CurrentMemoryContext;
	bool		volatile success = false;

	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	PG_TRY();
	{
		PushActiveSnapshot(GetTransactionSnapshot());
		if (OidIsValid(get_namespace_oid("awr", true)))
		{
			pgstat_report_activity(STATE_RUNNING, query);
			SPI_connect();
			SPI_execute(query, false, 0);
			SPI_finish();
		}
		PopActiveSnapshot();
		CommitTransactionCommand();
		success = true;
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		HOLD_INTERRUPTS();
		EmitErrorReport();
		AbortCurrentTransaction();
		FlushErrorState();
		RESUME_INTERRUPTS();
	}
	PG_END_TRY();
	pgstat_report_stat(true);
	pgstat_report_activity(STATE_IDLE, NULL);
	MemoryContextSwitchTo(context);
	return success;
}

void
cellar_snapshot_worker_main(Datum arg)
{
	TimestampTz due;

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnection(cellar_awr_database, NULL, 0);
	CellarNoTransactionTimeout();
	pgstat_report_appname("cellar awr snapshots");

	due = cellar_awr_snapshot_interval > 0 ? next_due(GetCurrentTimestamp()) : DT_NOEND;
	for (;;)
	{
		TimestampTz now = GetCurrentTimestamp();
		long		sleep_ms = Min(TimestampDifferenceMilliseconds(now, due), STORE_SAMPLES_MS);

		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, Max(sleep_ms, 1), PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
			due = cellar_awr_snapshot_interval > 0 ? next_due(GetCurrentTimestamp()) : DT_NOEND;
		}
		if (cellar_awr_sample_period > 0)
			run_query("SELECT awr.store_samples()");
		if (cellar_awr_track_statements)
			run_query("SELECT awr.store_plans()");
		if (GetCurrentTimestamp() < due)
			continue;
		run_query("SELECT awr.create_snapshot('schedule')");
		run_query("SELECT awr.drop_expired_snapshots(make_interval(days => current_setting('cellar.awr_retention')::int))");
		due = next_due(GetCurrentTimestamp());
	}
}

void
cellar_register_snapshot_worker(void)
{
	BackgroundWorker worker;

	memset(&worker, 0, sizeof(worker));
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = 60;	/* seconds */
	strlcpy(worker.bgw_library_name, "cellar", sizeof(worker.bgw_library_name));
	strlcpy(worker.bgw_function_name, "cellar_snapshot_worker_main", sizeof(worker.bgw_function_name));
	strlcpy(worker.bgw_name, "cellar awr snapshots", sizeof(worker.bgw_name));
	strlcpy(worker.bgw_type, "cellar awr snapshots", sizeof(worker.bgw_type));
	RegisterBackgroundWorker(&worker);
}
