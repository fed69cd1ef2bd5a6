/*-------------------------------------------------------------------------
 *
 * monitor.c
 *	  The cell monitor: a background worker that restarts the cluster after a
 *	  cell has restarted.
 *
 * When a cell's daemon exits and a new one mounts the cell, files that sessions
 * have open still belong to the old mount.  The kernel serves those files from
 * its page cache and never sees writes through the new mount, so sessions would
 * read stale data.  A cluster whose data directory is on the cell stops by
 * itself.  A cluster that only has a tablespace on the cell keeps running.  For
 * such a cluster the monitor exits with a code that the postmaster treats as a
 * crash: the postmaster terminates all sessions and runs recovery.
 *
 * The monitor exits only once the new daemon has mounted the cell.  Before that,
 * no file of the cell can change, so cached data is current, and recovery would
 * not find the files.
 *
 * The monitor also warns when recovery_init_sync_method becomes unsafe
 * (sync_method.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/socket.h>

#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "utils/guc.h"
#include "utils/memutils.h"

#include "cellar/cell.h"

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
	pid_t		daemon;			/* the process that served the mount when the
								 * watch began */
} WatchedCell;

PGDLLEXPORT void cellar_monitor_main(Datum arg);

static List *watched = NIL;

/* Returns the process at the other end of the socket, or 0 if unknown. */
static pid_t
connected_daemon(CellarConnection *connection)
{
	struct ucred peer;
	socklen_t	bytes = sizeof(peer);

	if (getsockopt(cellar_socket(connection), SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0)
		return 0;
	return peer.pid;
}

/* Connects to a cell.  Returns NULL if the daemon does not accept the connection now. */
static CellarConnection *
connect_to(const char *socket_path)
{
	CellarError error;
	CellarConnection *connection;

	connection = cellar_connect(socket_path, MyProcPid, InvalidOid, 0, 0, &error);
	if (connection != NULL && connected_daemon(connection) == 0)
	{
		cellar_close(connection);
		connection = NULL;
	}
	return connection;
}

/* Adds cells of the cluster that are not watched yet, if they can be reached. */
static void
watch_new_cells(void)
{
	ListCell   *lc;

	foreach(lc, cellar_cluster_sockets())
	{
		const char *socket_path = lfirst(lc);
		CellarConnection *connection;
		MemoryContext oldcontext;
		WatchedCell *cell;
		ListCell   *known;
		bool		found = false;

		foreach(known, watched)
			found |= strcmp(((WatchedCell *) lfirst(known))->socket_path, socket_path) == 0;
		if (found)
			continue;
		connection = connect_to(socket_path);
		if (connection == NULL)
			continue;
		oldcontext = MemoryContextSwitchTo(TopMemoryContext);
		cell = palloc(sizeof(WatchedCell));
		cell->socket_path = pstrdup(socket_path);
		cell->connection = connection;
		cell->daemon = connected_daemon(connection);
		watched = lappend(watched, cell);
		MemoryContextSwitchTo(oldcontext);
	}
}

/* Returns whether the connection is open.  The daemon sends nothing after its Welcome frame. */
static bool
is_connected(WatchedCell *cell)
{
	return cell->connection != NULL && cellar_next(cell->connection) != CELLAR_FAILED;
}

/* Returns whether the cell is mounted.  Recovery needs the cluster's files. */
static bool
is_mounted(WatchedCell *cell)
{
	ListCell   *lc;

	foreach(lc, cellar_cluster_sockets())
	{
		if (strcmp(lfirst(lc), cell->socket_path) == 0)
			return true;
	}
	return false;
}

/*
 * Checks the connection to one cell, and reconnects if necessary.  Returns false
 * while the daemon is down.  Exits the process if a new daemon serves the cell.
 */
static bool
check_cell(WatchedCell *cell)
{
	if (is_connected(cell))
		return true;
	if (cell->connection != NULL)
	{
		cellar_close(cell->connection);
		cell->connection = NULL;
		ereport(LOG,
				(errmsg("lost the connection to the cell at \"%s\"", cell->socket_path),
				 errhint("Start the cell again. This server then terminates all sessions and runs recovery.")));
	}
	cell->connection = connect_to(cell->socket_path);
	if (cell->connection == NULL)
		return false;
	if (connected_daemon(cell->connection) != cell->daemon)
	{
		if (!is_mounted(cell))
		{
			cellar_close(cell->connection);
			cell->connection = NULL;
			return false;
		}
		ereport(LOG,
				(errmsg("the cell at \"%s\" has restarted", cell->socket_path),
				 errdetail("Sessions have files of the previous mount open. The server terminates all sessions and runs recovery.")));
		proc_exit(EXIT_CODE_CRASH);
	}
	return true;
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
		int			events = WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH;
		pgsocket	socket = PGINVALID_SOCKET;
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

			if (!check_cell(cell))
				timeout = RECONNECT_MS;
			/* Wait for one connection; poll several. */
			else if (list_length(watched) == 1)
				socket = cellar_socket(cell->connection);
			else
				timeout = Min(timeout, 10 * RECONNECT_MS);
		}
		if (socket != PGINVALID_SOCKET)
			events |= WL_SOCKET_READABLE;
		(void) WaitLatchOrSocket(MyLatch, events, socket, timeout, PG_WAIT_EXTENSION);
		ResetLatch(MyLatch);
		MemoryContextReset(round);
	}
	proc_exit(0);
}

void
cellar_register_monitor(void)
{
	BackgroundWorker worker;

	memset(&worker, 0, sizeof(worker));
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS;
	worker.bgw_start_time = BgWorkerStart_PostmasterStart;
	worker.bgw_restart_time = 5;	/* seconds */
	strlcpy(worker.bgw_library_name, "cellar", sizeof(worker.bgw_library_name));
	strlcpy(worker.bgw_function_name, "cellar_monitor_main", sizeof(worker.bgw_function_name));
	strlcpy(worker.bgw_name, "cellar monitor", sizeof(worker.bgw_name));
	strlcpy(worker.bgw_type, "cellar monitor", sizeof(worker.bgw_type));
	RegisterBackgroundWorker(&worker);
}
