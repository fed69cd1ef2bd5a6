/*-------------------------------------------------------------------------
 *
 * launcher.c
 *	  The launcher: the background worker that runs everything periodic.
 *
 * The launcher samples the active sessions itself (awr/sampler.c), publishes the
 * names of databases for the cells (cell/names.c), and starts two kinds of workers,
 * which connect to a database and exit when done:
 *
 * - the policy worker (compression/policy_worker.c): every
 *	 cellar.compression_naptime seconds one for each database in turn, so at most
 *	 one table of the cluster is compressed by a policy at a time;
 * - the AWR worker (awr/snapshot_worker.c): every minute, to store samples, and
 *	 AWR snapshots when they are due.
 *
 * During recovery the launcher only takes samples.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/heapam.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_database.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "cellar.h"
#include "cellar/awr.h"
#include "cellar/compat.h"
#include "cellar/compression.h"

PGDLLEXPORT void cellar_launcher_main(Datum arg);

/* The longest sleep, so that a change of the clock takes effect. */
#define MAX_SLEEP_MS	10000

/*
 * Returns a background worker of the extension that connects to a database, starts
 * after recovery and is not restarted.
 */
BackgroundWorker
cellar_worker(const char *function, const char *name)
{
	BackgroundWorker worker;

	memset(&worker, 0, sizeof(worker));
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	strlcpy(worker.bgw_library_name, "cellar", sizeof(worker.bgw_library_name));
	strlcpy(worker.bgw_function_name, function, sizeof(worker.bgw_function_name));
	strlcpy(worker.bgw_name, name, sizeof(worker.bgw_name));
	strlcpy(worker.bgw_type, name, sizeof(worker.bgw_type));
	return worker;
}

/*
 * Returns whether a worker that the launcher started is running.  Frees the handle
 * of a worker that has exited, and sets it to NULL.
 */
static bool
is_running(BackgroundWorkerHandle **handle)
{
	pid_t		pid;

	if (*handle == NULL)
		return false;
	if (GetBackgroundWorkerPid(*handle, &pid) != BGWH_STOPPED)
		return true;
	pfree(*handle);
	*handle = NULL;
	return false;
}

/* Starts a worker in a database.  Only logs if no worker process is available. */
static void
start_worker(BackgroundWorkerHandle **handle, const char *function, const char *name, Oid database)
{
	BackgroundWorker worker = cellar_worker(function, name);
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);

	worker.bgw_main_arg = ObjectIdGetDatum(database);
	/* The launcher's latch is set when the worker exits. */
	worker.bgw_notify_pid = MyProcPid;
	if (!RegisterDynamicBackgroundWorker(&worker, handle))
	{
		*handle = NULL;
		ereport(LOG,
				(errcode(ERRCODE_INSUFFICIENT_RESOURCES),
				 errmsg("could not start a %s", name),
				 errhint("Increasing max_worker_processes might help.")));
	}
	MemoryContextSwitchTo(old);
}

/*
 * Calls a function for each database.  The catalog is scanned without its indexes:
 * opening these can fail without a database connection.
 */
static void
for_each_database(void (*visit) (Form_pg_database database, void *arg), void *arg)
{
	Relation	rel;
	TableScanDesc scan;
	HeapTuple	tuple;

	StartTransactionCommand();
	rel = table_open(DatabaseRelationId, AccessShareLock);
	scan = table_beginscan_catalog(rel, 0, NULL);
	while ((tuple = heap_getnext(scan, ForwardScanDirection)) != NULL)
		visit((Form_pg_database) GETSTRUCT(tuple), arg);
	table_endscan(scan);
	table_close(rel, AccessShareLock);
	CommitTransactionCommand();
}

typedef struct DatabaseSearch
{
	MemoryContext context;
	const char *name;			/* NULL: all databases */
	List	   *found;			/* OID list */
} DatabaseSearch;

static void
add_connectable(Form_pg_database database, void *arg)
{
	DatabaseSearch *search = arg;
	MemoryContext old = MemoryContextSwitchTo(search->context);

	/* datconnlimit is -2 if a DROP DATABASE was interrupted. */
	if (database->datallowconn && database->datconnlimit != -2 &&
		(search->name == NULL || strcmp(NameStr(database->datname), search->name) == 0))
		search->found = lappend_oid(search->found, database->oid);
	MemoryContextSwitchTo(old);
}

/*
 * Returns the OIDs of the databases that allow connections, allocated in the
 * given context: all of them, or the one of the given name.
 */
static List *
list_databases(MemoryContext context, const char *name)
{
	DatabaseSearch search = {.context = context,.name = name,.found = NIL};

	for_each_database(add_connectable, &search);
	return search.found;
}

/* ---- names for the cells ---- */

static bool databases_changed = true;

/* For CacheRegisterSyscacheCallback(). */
static void
note_changed_database(Datum arg, CELLAR_SYSCACHE_ID cache, uint32 hash)
{
	databases_changed = true;
}

/*
 * Publishes the names of all databases if they have changed, and returns when to
 * call again.  Without a change the catalog is not read: its file may be on a cell
 * that does not answer, and the launcher must go on taking samples.
 */
static TimestampTz
publish_names(TimestampTz now)
{
	static TimestampTz due = 0;

	/* A longer wait means that the clock was set back. */
	if (now < due && due - now <= USECS_PER_SEC)
		return due;
	due = now + USECS_PER_SEC;
	/* A transaction receives the invalidation messages when it starts. */
	StartTransactionCommand();
	CommitTransactionCommand();
	if (databases_changed)
	{
		databases_changed = false;
		cellar_begin_names();
		for_each_database(cellar_add_name, NULL);
		cellar_publish_names();
	}
	return due;
}

/* ---- policies ---- */

/*
 * Starts the policy worker of the next database, or a new round.  Returns when
 * to call again if no worker exits before.
 */
static TimestampTz
run_policies(TimestampTz now)
{
	static MemoryContext round = NULL;
	static List *databases = NIL;	/* of this round, not yet visited */
	static TimestampTz round_due = 0;
	static BackgroundWorkerHandle *worker = NULL;

	if (is_running(&worker))
		return DT_NOEND;
	if (databases == NIL)
	{
		/* A longer wait means that the clock was set back. */
		if (now < round_due && round_due - now <= (int64) cellar_compression_naptime * USECS_PER_SEC)
			return round_due;
		if (round == NULL)
			round = AllocSetContextCreate(TopMemoryContext, "cellar policy round", ALLOCSET_SMALL_SIZES);
		MemoryContextReset(round);
		if (cellar_auto_compression)
			databases = list_databases(round, NULL);
		round_due = TimestampTzPlusMilliseconds(now, (int64) cellar_compression_naptime * 1000);
	}
	if (databases != NIL)
	{
		MemoryContext old = MemoryContextSwitchTo(round);
		Oid			database = linitial_oid(databases);

		databases = list_delete_first(databases);
		MemoryContextSwitchTo(old);
		start_worker(&worker, "cellar_policy_worker_main", "cellar policy worker", database);
		return now;
	}
	return round_due;
}

/* ---- AWR ---- */

/* Starts the AWR worker when samples or an AWR snapshot are due.  Returns when to call again. */
static TimestampTz
run_awr(TimestampTz now)
{
	static TimestampTz due = 0;
	static BackgroundWorkerHandle *worker = NULL;
	List	   *database;

	/* The work is due within a minute, unless the clock was set back. */
	if ((now < due && due - now <= 60 * USECS_PER_SEC) || is_running(&worker))
		return Max(Min(due, now + 60 * USECS_PER_SEC), now + USECS_PER_SEC);
	due = cellar_next_awr_work(now);
	database = list_databases(TopMemoryContext, cellar_awr_database);
	if (database != NIL)
		start_worker(&worker, "cellar_awr_worker_main", "cellar awr worker", linitial_oid(database));
	list_free(database);
	return due;
}

/* ---- the launcher ---- */

void
cellar_launcher_main(Datum arg)
{
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnection(NULL, NULL, 0);
	CacheRegisterSyscacheCallback(DATABASEOID, note_changed_database, (Datum) 0);

	for (;;)
	{
		TimestampTz now = GetCurrentTimestamp();
		TimestampTz next = TimestampTzPlusMilliseconds(now, MAX_SLEEP_MS);

		next = Min(next, cellar_sample_sessions(now));
		next = Min(next, publish_names(now));
		if (!RecoveryInProgress())
		{
			next = Min(next, run_policies(now));
			next = Min(next, run_awr(now));
		}

		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 Min(TimestampDifferenceMilliseconds(GetCurrentTimestamp(), next), MAX_SLEEP_MS), PG_WAIT_EXTENSION);
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
}

void
cellar_register_launcher(void)
{
	BackgroundWorker launcher = cellar_worker("cellar_launcher_main", "cellar launcher");

	launcher.bgw_start_time = BgWorkerStart_ConsistentState;
	launcher.bgw_restart_time = 5;	/* seconds */
	RegisterBackgroundWorker(&launcher);
}
