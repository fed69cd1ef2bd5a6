/*-------------------------------------------------------------------------
 *
 * cellar.c
 *	  Entry point of the extension.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/lwlock.h"
#include "storage/shmem.h"
#include "utils/guc.h"

#include "cellar.h"
#include "cellar/awr.h"
#include "cellar/cell.h"
#include "cellar/compression.h"
#include "cellar/planner.h"
#include "cellar/statistics.h"

PG_MODULE_MAGIC;

void		_PG_init(void);

static shmem_request_hook_type previous_request_hook = NULL;
static shmem_startup_hook_type previous_startup_hook = NULL;

static void
request_shmem(void)
{
	if (previous_request_hook != NULL)
		previous_request_hook();
	cellar_request_statistics();
	cellar_request_tasks();
	cellar_request_awr();
}

static void
startup_shmem(void)
{
	if (previous_startup_hook != NULL)
		previous_startup_hook();
	LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
	cellar_init_statistics();
	cellar_init_tasks();
	cellar_init_awr();
	LWLockRelease(AddinShmemInitLock);
}

/* Statistics, compression tasks and what AWR collects are in shared memory. */
static void
install_shmem_hooks(void)
{
	previous_request_hook = shmem_request_hook;
	shmem_request_hook = request_shmem;
	previous_startup_hook = shmem_startup_hook;
	shmem_startup_hook = startup_shmem;
}

void
_PG_init(void)
{
	/* Shared memory can be requested only at server start. */
	if (!process_shared_preload_libraries_in_progress)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cellar must be loaded via \"shared_preload_libraries\""),
				 errhint("Add \"cellar\" to \"shared_preload_libraries\" in postgresql.conf and restart the server.")));

	cellar_define_settings();
	install_shmem_hooks();
	cellar_install_sync_method_check();
	cellar_install_previous_mount_wait();
	RegisterCustomScanMethods(&cellar_scan_methods);
	RegisterCustomScanMethods(&cellar_aggregate_methods);
	RegisterCustomScanMethods(&cellar_join_keys_methods);
	RegisterCustomScanMethods(&cellar_distinct_states_methods);
	RegisterCustomScanMethods(&cellar_distinct_aggregates_methods);
	RegisterCustomScanMethods(&cellar_grouping_sets_methods);
	cellar_install_planner_hooks();
	cellar_install_offload_reasons();
	cellar_register_monitor();
	cellar_register_launcher();
	cellar_install_awr();
}
