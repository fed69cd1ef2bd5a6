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
#include "utils/guc.h"

#include "cellar.h"
#include "cellar/awr.h"
#include "cellar/cell.h"
#include "cellar/compression.h"
#include "cellar/planner.h"
#include "cellar/statistics.h"

PG_MODULE_MAGIC;

void		_PG_init(void);

void
_PG_init(void)
{
	/*
	 * Statistics and compression tasks are in shared memory, which can be
	 * requested only at server start.
	 */
	if (!process_shared_preload_libraries_in_progress)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cellar must be loaded via \"shared_preload_libraries\""),
				 errhint("Add \"cellar\" to \"shared_preload_libraries\" in postgresql.conf and restart the server.")));

	cellar_define_settings();
	cellar_install_statistics();
	cellar_install_compression();
	cellar_install_sync_method_check();
	cellar_install_previous_mount_wait();
	RegisterCustomScanMethods(&cellar_scan_methods);
	RegisterCustomScanMethods(&cellar_aggregate_methods);
	cellar_install_planner_hooks();
	cellar_install_offload_reasons();
	cellar_register_monitor();
	cellar_register_launcher();
	cellar_install_awr();
}
