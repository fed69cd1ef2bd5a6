/*-------------------------------------------------------------------------
 *
 * policy_launcher.c
 *	  The policy launcher: starts the policy worker of each database in turn.
 *
 * Every cellar.compression_naptime seconds, the launcher starts one worker
 * (policy_worker.c) per database and waits until it has exited.  So at most one
 * table of the cluster is compressed by a policy at a time.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "catalog/pg_database.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "cellar.h"
#include "cellar/compression.h"

PGDLLEXPORT void cellar_policy_launcher_main(Datum arg);

/* A background worker that connects to a database. */
static BackgroundWorker
worker_template(const char *function, const char *name)
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

/* Waits for the latch or the timeout, then handles a shutdown request and reloads the settings if requested. */
static void
launcher_wait(long timeout_ms)
{
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, timeout_ms, PG_WAIT_EXTENSION);
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();

	/*
	 * Exit code 1, because the postmaster does not restart a worker that
	 * exits with 0.
	 */
	if (ShutdownRequestPending)
		proc_exit(1);
	if (ConfigReloadPending)
	{
		ConfigReloadPending = false;
		ProcessConfigFile(PGC_SIGHUP);
	}
}

/* Runs the policy worker of a database, and waits until it has exited. */
static void
run_worker(Oid database)
{
	BackgroundWorker worker = worker_template("cellar_policy_worker_main", "cellar policy worker");
	BackgroundWorkerHandle *handle;
	pid_t		pid;

	worker.bgw_restart_time = BGW_NEVER_RESTART;
	worker.bgw_main_arg = ObjectIdGetDatum(database);
	worker.bgw_notify_pid = MyProcPid;
	if (!RegisterDynamicBackgroundWorker(&worker, &handle))
	{
		ereport(LOG,
				(errcode(ERRCODE_INSUFFICIENT_RESOURCES),
				 errmsg("could not start a policy worker"),
				 errhint("Increasing max_worker_processes might help.")));
		return;
	}
	while (GetBackgroundWorkerPid(handle, &pid) != BGWH_STOPPED)
		launcher_wait(1000);
	pfree(handle);
}

/* Returns the OIDs of the databases that allow connections, allocated in the given context. */
static List *
list_databases(MemoryContext context)
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

		/* datconnlimit is -2 if a DROP DATABASE was interrupted. */
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
cellar_policy_launcher_main(Datum arg)
{
	MemoryContext round = AllocSetContextCreate(TopMemoryContext, "cellar policy launcher",
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
			foreach(lc, list_databases(round))
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
	BackgroundWorker launcher = worker_template("cellar_policy_launcher_main", "cellar policy launcher");

	launcher.bgw_restart_time = 5;	/* seconds */
	RegisterBackgroundWorker(&launcher);
}
