/*-------------------------------------------------------------------------
 *
 * cellar.h
 *	  Names and settings that all parts of the extension share.
 *
 * Each folder of sources has a header below include/cellar.  The folders
 * follow a query: planner offers Smart Scans and splits quals into storage
 * predicate and filter, executor runs them, cell talks to the cell daemon.
 * compression, statistics and awr implement the SQL functions and views.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CELLAR_H
#define CELLAR_H

#include "access/tupdesc.h"
#include "fmgr.h"
#include "postmaster/bgworker.h"

#define CELLAR_SCAN_NAME	"Smart Scan"
#define CELLAR_AGGREGATE_NAME	"Smart Scan Aggregate"
#define CELLAR_JOIN_KEYS_NAME	"Join Keys"
#define CELLAR_LOOKUP_NAME	"Lookup Table"
#define CELLAR_DISTINCT_STATES_NAME	"Distinct States"
#define CELLAR_DISTINCT_AGGREGATES_NAME	"Distinct Aggregates"
#define CELLAR_GROUPING_SETS_NAME	"Grouping Sets"

/* settings.c */

typedef enum CellarPlanDisplay
{
	CELLAR_DISPLAY_NEVER,
	CELLAR_DISPLAY_AUTO,
	CELLAR_DISPLAY_ALWAYS
} CellarPlanDisplay;

typedef enum CellarIndexScans
{
	CELLAR_INDEX_SCANS_OFF,
	CELLAR_INDEX_SCANS_ON,
	CELLAR_INDEX_SCANS_ALWAYS
} CellarIndexScans;

extern bool cellar_offload_processing;
extern bool cellar_join_filters;
extern bool cellar_lookup_joins;
extern bool cellar_unnest_subqueries_enabled;
extern int	cellar_index_scans;
extern int	cellar_lookup_table_rows;
extern int	cellar_plan_display;
extern bool cellar_simulate_offload;
extern int	cellar_min_scan_size;	/* blocks */
extern double cellar_cost_factor;
extern double cellar_cell_page_cost;
extern double cellar_returned_page_cost;
extern double cellar_cached_fraction;	/* -1: measured */
extern bool cellar_auto_compression;
extern int	cellar_compression_naptime; /* seconds */

extern void cellar_define_settings(void);

/* library_version.c */
extern void cellar_begin_rows(FunctionCallInfo fcinfo, int columns);
extern void cellar_check_columns(FunctionCallInfo fcinfo, TupleDesc declared, int columns);
extern void cellar_warn_of_other_version(void);

/* launcher.c */
extern BackgroundWorker cellar_worker(const char *function, const char *name);
extern void cellar_register_launcher(void);

#endif							/* CELLAR_H */
