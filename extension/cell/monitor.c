/*-------------------------------------------------------------------------
 *
 * monitor.c
 *	  A background worker that watches the cells that the cluster lies on.
 *
 * When a cell's daemon ends and another one mounts the cell anew, the files
 * that sessions have open still belong to the old mount.  The operating system
 * goes on serving what it has cached of them, and knows nothing of what is written
 * through the new mount.  So a cluster that outlives its cell (only a
 * tablespace lies there) has to start afresh: the worker ends in a way that
 * makes the postmaster end all sessions and run recovery.
 *
 * That waits until the cell is back.  Until then nothing can change on it, so
 * nothing that is cached is out of date, and recovery would not find the files.
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
#include "utils/memutils.h"

#include "cellar/cell.h"

/* New tablespaces are looked for this often. */
#define LOOK_FOR_CELLS_MS	1000
/* How soon a cell that is back is noticed. */
#define RECONNECT_MS		50
/* Any exit code but 0 and 1 is a crash to the postmaster. */
#define EXIT_CODE_CRASH		2

typedef struct WatchedCell
{
	char	   *socket_path;
	CellarConnection *connection;
	pid_t		daemon;
} WatchedCell;

PGDLLEXPORT void cellar_monitor_main(Datum arg);

static List *watched = NIL;

static pid_t
connected_daemon(CellarConnection *connection)
{
	struct ucred peer;
	socklen_t	bytes = sizeof(peer);

	if (getsockopt(cellar_socket(connection), SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0)
		return 0;
	return peer.pid;
}

/* NULL when the daemon is gone, or so busy that it takes no connection. */
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

/* Does the daemon still hold its end?  It sends nothing but its welcome. */
static bool
is_there(WatchedCell *cell)
{
	return cell->connection != NULL && cellar_next(cell->connection) != CELLAR_FAILED;
}

/* Are the cluster's files there again?  Recovery without them would lose what they need. */
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
 * Looks after one cell; returns false while its daemon is gone.
 */
static bool
look_after(WatchedCell *cell)
{
	if (is_there(cell))
		return true;
	if (cell->connection != NULL)
	{
		cellar_close(cell->connection);
		cell->connection = NULL;
		ereport(LOG,
				(errmsg("the cell at \"%s\" is gone", cell->socket_path),
				 errhint("Start it again; this server then ends its sessions and runs recovery.")));
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
				(errmsg("the cell at \"%s\" was started anew", cell->socket_path),
				 errdetail("Files that sessions have open belong to the mount before, so all sessions are ended and recovery is run.")));
		proc_exit(EXIT_CODE_CRASH);
	}
	return true;
}

void
cellar_monitor_main(Datum arg)
{
	TimestampTz looked = 0;
	MemoryContext round = AllocSetContextCreate(TopMemoryContext, "cellar monitor",
												ALLOCSET_SMALL_SIZES);

	MemoryContextSwitchTo(round);
	pqsignal(SIGTERM, SignalHandlerForShutdownRequest);
	BackgroundWorkerUnblockSignals();

	while (!ShutdownRequestPending)
	{
		long		timeout = LOOK_FOR_CELLS_MS;
		int			events = WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH;
		pgsocket	socket = PGINVALID_SOCKET;
		ListCell   *lc;

		if (TimestampDifferenceExceeds(looked, GetCurrentTimestamp(), LOOK_FOR_CELLS_MS - 1))
		{
			looked = GetCurrentTimestamp();
			watch_new_cells();
		}
		foreach(lc, watched)
		{
			WatchedCell *cell = lfirst(lc);

			if (!look_after(cell))
				timeout = RECONNECT_MS;
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
	worker.bgw_restart_time = 5;
	strlcpy(worker.bgw_library_name, "cellar", sizeof(worker.bgw_library_name));
	strlcpy(worker.bgw_function_name, "cellar_monitor_main", sizeof(worker.bgw_function_name));
	strlcpy(worker.bgw_name, "cellar monitor", sizeof(worker.bgw_name));
	strlcpy(worker.bgw_type, "cellar monitor", sizeof(worker.bgw_type));
	RegisterBackgroundWorker(&worker);
}
