/*-------------------------------------------------------------------------
 *
 * monitor.c
 *	  The cell monitor: a background worker that restarts the cluster after a
 *	  cell has restarted.
 *
 * When a cell's daemon exits and a new one mounts the cell, files that sessions
 * have open still belong to the old mount.  The kernel serves those files from
 * its page cache and never sees changes through the new mount.  The new daemon
 * refuses all changes while such a file is open (docs/decisions/0013), so no
 * session reads stale data, but no session can write either.  A cluster whose
 * data directory is on the cell stops by itself.  A cluster that only has a
 * tablespace on the cell keeps running.  For such a cluster the monitor exits
 * with a code that the postmaster treats as a crash: the postmaster terminates
 * all sessions and runs recovery.
 *
 * The monitor recognizes a new daemon by the instance in the cell's greeting.
 * It exits only once the mount belongs to that instance too, and no other cell
 * of the cluster is down, because recovery needs the files: the server would not
 * start again.
 *
 * The monitor also tells the cells names (names.c), and warns when recovery_init_sync_method becomes unsafe
 * (sync_method.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "cellar.h"
#include "cellar/cell.h"
#include "cellar/statistics.h"

/* Interval of the search for cells of new tablespaces. */
#define SEARCH_INTERVAL_MS	1000
/* Interval of attempts to reach a daemon that is down. */
#define RECONNECT_MS			50
/* The postmaster treats exit codes other than 0 and 1 as a crash. */
#define EXIT_CODE_CRASH			2

typedef struct WatchedCell
{
	char	   *socket_path;
	CellarConnection *connection;	/* NULL while the daemon is down */
	uint64		instance;		/* of the daemon when the watch began; 0 until
								 * the daemon's greeting has arrived */
	bool		is_delayed;		/* a new daemon serves the cell, but another
								 * cell is down */
} WatchedCell;

PGDLLEXPORT void cellar_monitor_main(Datum arg);

static List *watched = NIL;

/*
 * Returns the cell of this cluster with the given socket, or NULL if the cell
 * is not mounted.
 */
static CellarClusterCell *
mounted_cell(const char *socket_path)
{
	ListCell   *lc;

	foreach(lc, cellar_cluster_cells())
	{
		CellarClusterCell *cell = lfirst(lc);

		if (strcmp(cell->location.socket_path, socket_path) == 0)
			return cell;
	}
	return NULL;
}

/*
 * Adds cells of the cluster that are not watched yet, and tells the watched ones the
 * names of databases and the consumer groups.
 */
static void
watch_new_cells(void)
{
	CellarName *groups = NULL;	/* the same for all cells */
	int			count = 0;
	ListCell   *lc;

	foreach(lc, cellar_cluster_cells())
	{
		CellarClusterCell *mounted = lfirst(lc);
		const char *socket_path = mounted->location.socket_path;
		MemoryContext oldcontext;
		WatchedCell *cell;
		ListCell   *known;
		bool		found = false;

		foreach(known, watched)
		{
			cell = lfirst(known);
			if (strcmp(cell->socket_path, socket_path) != 0)
				continue;
			found = true;
			/* The names of a new daemon wait until its mount is known. */
			if (cell->connection != NULL && cell->instance != 0 &&
				cellar_instance(cell->connection) == cell->instance)
			{
				if (groups == NULL)
					groups = cellar_process_groups(&count);
				cellar_tell_cell(cell->connection, mounted, groups, count);
			}
		}
		if (found)
			continue;
		oldcontext = MemoryContextSwitchTo(TopMemoryContext);
		cell = palloc0(sizeof(WatchedCell));
		cell->socket_path = pstrdup(socket_path);
		watched = lappend(watched, cell);
		MemoryContextSwitchTo(oldcontext);
	}
}

/*
 * Whether sessions of this cluster may have files of an earlier mount open when
 * the watch of a cell begins.  That happens if the daemon was restarted before
 * the monitor noticed a new tablespace, or while no monitor was running.
 *
 * A cell that refuses changes has such files open in some cluster.  If the
 * instance is younger than this cluster's shared memory, this cluster may have
 * them open.
 */
static bool
may_use_earlier_mount(const CellarLocation *location)
{
	TimestampTz instance_start = GetCurrentTimestamp() - (int64) location->age_us;

	return location->refuses_changes && instance_start > cellar_incarnation_start();
}

/*
 * Checks the connection to one cell, and reconnects if necessary.  Returns false
 * while the monitor has no connection on which it can wait.  Exits the process
 * if a new daemon serves the cell.
 */
static bool
check_cell(WatchedCell *cell)
{
	CellarClusterCell *mounted;
	CellarEvent event;
	CellarError error;
	uint64		instance;

	if (cell->connection == NULL)
	{
		cell->connection = cellar_connect(cell->socket_path, MyProcPid, InvalidOid, 0, 0, &error);
		if (cell->connection == NULL)
			return false;
	}
	/* The daemon sends nothing after its greeting. */
	event = cellar_next(cell->connection);
	if (event == CELLAR_FAILED)
	{
		if (cellar_instance(cell->connection) != 0)
			ereport(LOG,
					(errmsg("lost the connection to the cell at \"%s\"", cell->socket_path),
					 errhint("Start the cell again. This server then terminates all sessions and runs recovery.")));
		cellar_close(cell->connection);
		cell->connection = NULL;
		return false;
	}
	instance = cellar_instance(cell->connection);
	if (instance == 0 || instance == cell->instance)
		return event != CELLAR_WAIT_CONNECT;

	mounted = mounted_cell(cell->socket_path);
	if (mounted == NULL || mounted->location.instance != instance)
		return false;
	if (cell->instance != 0 || may_use_earlier_mount(&mounted->location))
	{
		if (!cellar_tablespaces_accessible())
		{
			if (!cell->is_delayed)
				ereport(LOG,
						(errmsg("the cell at \"%s\" has restarted, but a tablespace cannot be accessed", cell->socket_path),
						 errdetail("The server terminates all sessions and runs recovery when all tablespaces can be accessed. Until then the cell refuses changes."),
						 errhint("Start the other cells of this server.")));
			cell->is_delayed = true;
			return false;
		}
		ereport(LOG,
				(errmsg("the cell at \"%s\" has restarted", cell->socket_path),
				 errdetail("Sessions have files of the previous mount open. The server terminates all sessions and runs recovery.")));
		proc_exit(EXIT_CODE_CRASH);
	}
	cell->instance = instance;
	return true;
}

/*
 * Waits for the latch, for the timeout, or until one of the connections is
 * readable.
 */
static void
wait_for_cells(List *connections, long timeout)
{
	WaitEventSet *set = CellarCreateWaitEventSet(list_length(connections) + 2);
	WaitEvent	event;
	ListCell   *lc;

	AddWaitEventToSet(set, WL_LATCH_SET, PGINVALID_SOCKET, MyLatch, NULL);
	AddWaitEventToSet(set, WL_EXIT_ON_PM_DEATH, PGINVALID_SOCKET, NULL, NULL);
	foreach(lc, connections)
		AddWaitEventToSet(set, WL_SOCKET_READABLE, cellar_socket(lfirst(lc)), NULL, NULL);
	(void) WaitEventSetWait(set, timeout, &event, 1, PG_WAIT_EXTENSION);
	FreeWaitEventSet(set);
	ResetLatch(MyLatch);
}

void
cellar_monitor_main(Datum arg)
{
	TimestampTz last_search = 0;
	MemoryContext round = AllocSetContextCreate(TopMemoryContext, "cellar monitor",
												ALLOCSET_SMALL_SIZES);

	MemoryContextSwitchTo(round);
	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	BackgroundWorkerUnblockSignals();

	while (!ShutdownRequestPending)
	{
		long		timeout = SEARCH_INTERVAL_MS;
		List	   *connections = NIL;
		ListCell   *lc;

		if (ConfigReloadPending)
		{
			ConfigReloadPending = false;
			ProcessConfigFile(PGC_SIGHUP);
		}
		if (TimestampDifferenceExceeds(last_search, GetCurrentTimestamp(), SEARCH_INTERVAL_MS - 1))
		{
			last_search = GetCurrentTimestamp();
			watch_new_cells();
			cellar_check_sync_method();
		}
		foreach(lc, watched)
		{
			WatchedCell *cell = lfirst(lc);

			if (check_cell(cell))
				connections = lappend(connections, cell->connection);
			else
				timeout = RECONNECT_MS;
		}
		wait_for_cells(connections, timeout);
		MemoryContextReset(round);
	}
	proc_exit(0);
}

void
cellar_register_monitor(void)
{
	BackgroundWorker worker = cellar_worker("cellar_monitor_main", "cellar monitor");

	worker.bgw_flags = BGWORKER_SHMEM_ACCESS;
	worker.bgw_start_time = BgWorkerStart_PostmasterStart;
	worker.bgw_restart_time = 5;	/* seconds */
	RegisterBackgroundWorker(&worker);
}
