/*-------------------------------------------------------------------------
 *
 * sync_method.c
 *	  Refuses recovery_init_sync_method = syncfs for clusters on cells.
 *
 * Before crash recovery, PostgreSQL makes all files of the cluster durable.
 * With the method syncfs it calls syncfs() on the file systems of the data
 * directory, of the tablespaces and of pg_wal.  On a FUSE mount, syncfs()
 * returns success without sending a request to the daemon, so the files would
 * not be durable.
 *
 * The postmaster checks the setting whenever it creates shared memory, which
 * precedes recovery at server start and after a crash of a process.  A reload
 * of the configuration cannot be refused; the cell monitor warns instead.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/ipc.h"
#include "utils/guc.h"

#include "cellar/cell.h"

static shmem_startup_hook_type previous_startup_hook = NULL;

/* Whether the method is syncfs, and a cell stores files of this cluster. */
static bool
syncs_cell_with_syncfs(void)
{
	CellarLocation location;

	if (strcmp(GetConfigOption("recovery_init_sync_method", false, false), "syncfs") != 0)
		return false;
	return cellar_cluster_cells() != NIL || cellar_path_location("pg_wal", &location);
}

static void
check_at_start(void)
{
	if (previous_startup_hook != NULL)
		previous_startup_hook();
	if (!IsUnderPostmaster && syncs_cell_with_syncfs())
		ereport(FATAL,
				(errcode(ERRCODE_CONFIG_FILE_ERROR),
				 errmsg("parameter \"recovery_init_sync_method\" must not be \"syncfs\" for a cluster on a cell"),
				 errdetail("Before recovery, syncfs() would not make the files on the cell durable."),
				 errhint("Set \"recovery_init_sync_method\" to \"fsync\".")));
}

/* Logs a warning when the setting becomes unsafe while the server runs.  Called regularly by the cell monitor. */
void
cellar_check_sync_method(void)
{
	static bool was_unsafe = false;
	bool		is_unsafe = syncs_cell_with_syncfs();

	if (is_unsafe && !was_unsafe)
		ereport(WARNING,
				(errcode(ERRCODE_CONFIG_FILE_ERROR),
				 errmsg("parameter \"recovery_init_sync_method\" must not be \"syncfs\" for a cluster on a cell"),
				 errdetail("The server does not start, and does not recover from a crash, with this setting."),
				 errhint("Set \"recovery_init_sync_method\" to \"fsync\".")));
	was_unsafe = is_unsafe;
}

void
cellar_install_sync_method_check(void)
{
	previous_startup_hook = shmem_startup_hook;
	shmem_startup_hook = check_at_start;
}
