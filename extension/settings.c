/*-------------------------------------------------------------------------
 *
 * settings.c
 *	  The extension's settings.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <float.h>
#include <limits.h>

#include "utils/guc.h"

#include "cellar.h"

bool		cellar_offload_processing = true;
int			cellar_plan_display = CELLAR_DISPLAY_AUTO;
bool		cellar_simulate_offload = false;
int			cellar_min_scan_size = 1024;
double		cellar_cost_factor = 1.0;
double		cellar_cell_page_cost = 0.3;
double		cellar_returned_page_cost = 2.8;
bool		cellar_auto_compression = true;
int			cellar_compression_naptime = 60;

static const struct config_enum_entry plan_display_options[] = {
	{"never", CELLAR_DISPLAY_NEVER, false},
	{"auto", CELLAR_DISPLAY_AUTO, false},
	{"always", CELLAR_DISPLAY_ALWAYS, false},
	{NULL, 0, false}
};

void
cellar_define_settings(void)
{
	DefineCustomBoolVariable("cellar.cell_offload_processing",
							 "Lets cells evaluate scans of the tables that they store.",
							 NULL,
							 &cellar_offload_processing,
							 true,
							 PGC_USERSET,
							 GUC_EXPLAIN,
							 NULL, NULL, NULL);

	DefineCustomEnumVariable("cellar.cell_offload_plan_display",
							 "Shows storage predicates in EXPLAIN.",
							 "AUTO shows them for tables on a cell, ALWAYS also what would be offloaded of other tables.",
							 &cellar_plan_display,
							 CELLAR_DISPLAY_AUTO,
							 plan_display_options,
							 PGC_USERSET,
							 0,
							 NULL, NULL, NULL);

	DefineCustomBoolVariable("cellar.simulate_offload",
							 "Counts what Smart Scan would do for tables that are on no cell.",
							 NULL,
							 &cellar_simulate_offload,
							 false,
							 PGC_USERSET,
							 GUC_EXPLAIN,
							 NULL, NULL, NULL);

	DefineCustomIntVariable("cellar.min_scan_size",
							"Sets the minimum size of a table for Smart Scan.",
							NULL,
							&cellar_min_scan_size,
							(8 * 1024 * 1024) / BLCKSZ,
							0, INT_MAX / 3,
							PGC_USERSET,
							GUC_UNIT_BLOCKS | GUC_EXPLAIN,
							NULL, NULL, NULL);

	DefineCustomRealVariable("cellar.cost_factor",
							 "Scales the planner's estimate of the cost of a Smart Scan.",
							 "With 0 it is preferred to every other scan.",
							 &cellar_cost_factor,
							 1.0,
							 0.0, DBL_MAX,
							 PGC_USERSET,
							 GUC_EXPLAIN,
							 NULL, NULL, NULL);

	DefineCustomRealVariable("cellar.cell_page_cost",
							 "Sets the planner's estimate of the cost of a page that a cell scans.",
							 "It is relative to seq_page_cost.",
							 &cellar_cell_page_cost,
							 0.3,
							 0.0, DBL_MAX,
							 PGC_USERSET,
							 GUC_EXPLAIN,
							 NULL, NULL, NULL);

	DefineCustomRealVariable("cellar.returned_page_cost",
							 "Sets the planner's estimate of the cost of as many column values returned by a cell as fill a page.",
							 "It is relative to seq_page_cost.",
							 &cellar_returned_page_cost,
							 2.8,
							 0.0, DBL_MAX,
							 PGC_USERSET,
							 GUC_EXPLAIN,
							 NULL, NULL, NULL);

	DefineCustomBoolVariable("cellar.auto_compression",
							 "Carries out compression policies in the background.",
							 NULL,
							 &cellar_auto_compression,
							 true,
							 PGC_SIGHUP,
							 0,
							 NULL, NULL, NULL);

	DefineCustomIntVariable("cellar.compression_naptime",
							"Sets how often every database is looked through for what its compression policies ask for.",
							NULL,
							&cellar_compression_naptime,
							60,
							1, INT_MAX / 1000,
							PGC_SIGHUP,
							GUC_UNIT_S,
							NULL, NULL, NULL);

	MarkGUCPrefixReserved("cellar");
}
