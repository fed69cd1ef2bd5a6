/*-------------------------------------------------------------------------
 *
 * previous_mount.c
 *	  Delays recovery until the cells accept changes.
 *
 * A cell refuses changes of its files while a process has files of the mount of
 * an earlier daemon open (docs/decisions/0013).  After a crash the postmaster
 * starts recovery when all processes of this cluster have exited, but a process
 * of another cluster may still use such a mount.  Recovery would then fail.
 *
 * The postmaster creates shared memory before it starts recovery, both at server
 * start and after a crash, and no other process of the cluster runs then.
 *
 * The postmaster reacts to a shutdown request only in its main loop, so the wait
 * watches for requests itself.  PostgreSQL 15 blocks the signals here, both at
 * server start and after a crash.  Later versions do not: their handler would
 * record a request where an extension cannot see it.  The wait therefore blocks
 * the signals and looks for pending ones.  With those versions, the postmaster
 * serves a request that arrived before the wait only after the wait.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "miscadmin.h"
#include "storage/ipc.h"
#include "utils/memutils.h"

#include "cellar/cell.h"

#define WAIT_MAX_MS			60000
#define WAIT_INTERVAL_MS	20

static shmem_startup_hook_type previous_startup_hook = NULL;

/* Returns the socket of a cell of this cluster that refuses changes, or NULL. */
static const char *
refusing_cell(void)
{
	ListCell   *lc;

	foreach(lc, cellar_cluster_cells())
	{
		CellarClusterCell *cell = lfirst(lc);

		if (cell->location.refuses_changes)
			return cell->location.socket_path;
	}
	return NULL;
}

/* Returns the signals that request a shutdown. */
static sigset_t
shutdown_signals(void)
{
	sigset_t	signals;

	sigemptyset(&signals);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGQUIT);
	sigaddset(&signals, SIGTERM);
	return signals;
}

/* Returns whether a shutdown was requested while the signals were blocked. */
static bool
is_shutdown_pending(void)
{
	sigset_t	pending;

	return sigpending(&pending) == 0 &&
		(sigismember(&pending, SIGINT) || sigismember(&pending, SIGQUIT) || sigismember(&pending, SIGTERM));
}

static void
wait_for_previous_mounts(void)
{
	sigset_t	signals = shutdown_signals();
	sigset_t	previous;
	MemoryContext round;
	MemoryContext oldcontext;
	const char *socket_path;

	if (previous_startup_hook != NULL)
		previous_startup_hook();
	if (IsUnderPostmaster)
		return;

	sigprocmask(SIG_BLOCK, &signals, &previous);
	round = AllocSetContextCreate(CurrentMemoryContext, "cellar previous mounts", ALLOCSET_SMALL_SIZES);
	oldcontext = MemoryContextSwitchTo(round);
	for (int waited_ms = 0; (socket_path = refusing_cell()) != NULL; waited_ms += WAIT_INTERVAL_MS)
	{
		if (waited_ms == 0)
			ereport(LOG,
					(errmsg("waiting until the cell at \"%s\" accepts changes", socket_path),
					 errdetail("A process uses a mount of an earlier daemon of the cell."),
					 errhint("The log of the cell shows which process.")));
		if (is_shutdown_pending())
			ereport(FATAL,
					(errcode(ERRCODE_ADMIN_SHUTDOWN),
					 errmsg("server startup was canceled by a shutdown request"),
					 errdetail("The cell at \"%s\" refuses changes.", socket_path)));
		if (waited_ms >= WAIT_MAX_MS)
		{
			ereport(WARNING,
					(errcode(ERRCODE_OBJECT_IN_USE),
					 errmsg("the cell at \"%s\" refuses changes", socket_path),
					 errdetail("A process uses a mount of an earlier daemon of the cell."),
					 errhint("Stop the process that the log of the cell shows, then start the server again.")));
			break;
		}
		pg_usleep(WAIT_INTERVAL_MS * 1000L);
		MemoryContextReset(round);
	}
	MemoryContextSwitchTo(oldcontext);
	MemoryContextDelete(round);
	sigprocmask(SIG_SETMASK, &previous, NULL);
}

void
cellar_install_previous_mount_wait(void)
{
	previous_startup_hook = shmem_startup_hook;
	shmem_startup_hook = wait_for_previous_mounts;
}
