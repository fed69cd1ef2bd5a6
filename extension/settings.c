/*-------------------------------------------------------------------------
 *
 * settings.c
 *	  The extension's configuration parameters.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <float.h>
#include <limits.h>

#include "utils/guc.h"

#include "cellar.h"
#include "cellar/awr.h"

bool		cellar_offload_processing = true;
bool		cellar_join_filters = true;
bool		cellar_lookup_joins = true;
int			cellar_index_scans = CELLAR_INDEX_SCANS_OFF;
int			cellar_lookup_table_rows = 1048576;
bool		cellar_unnest_subqueries_enabled = true;
int			cellar_plan_display = CELLAR_DISPLAY_AUTO;
bool		cellar_simulate_offload = false;
int			cellar_min_scan_size = 128;
double		cellar_cost_factor = 1.0;
double		cellar_cell_page_cost = 0.3;
double		cellar_returned_page_cost = 2.8;
double		cellar_cached_fraction = -1;
bool		cellar_auto_compression = true;
int			cellar_compression_naptime = 60;
char	   *cellar_awr_database = NULL;
int			cellar_awr_snapshot_interval = 60;
int			cellar_awr_retention = 8;
int			cellar_awr_sample_period = 1000;
int			cellar_awr_sample_buffer = 4096;
bool		cellar_awr_track_statements = true;
int			cellar_awr_max_statements = 5000;
int			cellar_awr_text_buffer = 8192;

static const struct config_enum_entry plan_display_options[] = {
	{"never", CELLAR_DISPLAY_NEVER, false},
	{"auto", CELLAR_DISPLAY_AUTO, false},
	{"always", CELLAR_DISPLAY_ALWAYS, false},
	{NULL, 0, false}
};

static const struct config_enum_entry index_scans_options[] = {
	{"off", CELLAR_INDEX_SCANS_OFF, false},
	{"on", CELLAR_INDEX_SCANS_ON, false},
	{"always", CELLAR_INDEX_SCANS_ALWAYS, false},
	{"true", CELLAR_INDEX_SCANS_ON, true},
	{"false", CELLAR_INDEX_SCANS_OFF, true},
	{NULL, 0, false}
};

void
cellar_define_settings(void)
{
	DefineCustomBoolVariable("cellar.cell_offload_processing",
							 "Enables Smart Scan: cells evaluate scans of the tables that they store.",
							 "When off, PostgreSQL reads all blocks and evaluates all scans itself.",
							 &cellar_offload_processing,
							 true,
							 PGC_USERSET,
							 GUC_EXPLAIN,
							 NULL, NULL, NULL);

	DefineCustomBoolVariable("cellar.join_filters",
							 "Enables join filters: cells drop rows without a join partner.",
							 "A hash join sends the keys of its inner side to the Smart Scan of its outer side.",
							 &cellar_join_filters,
							 true,
							 PGC_USERSET,
							 GUC_EXPLAIN,
							 NULL, NULL, NULL);

	DefineCustomBoolVariable("cellar.lookup_joins",
							 "Enables lookup joins: cells join the rows of a table with small tables and aggregate them.",
							 "PostgreSQL evaluates the other sides of the joins and sends their rows to the cell.",
							 &cellar_lookup_joins,
							 true,
							 PGC_USERSET,
							 GUC_EXPLAIN,
							 NULL, NULL, NULL);

	DefineCustomBoolVariable("cellar.unnest_subqueries",
							 "Lets groups that are computed once replace correlated subqueries with aggregates, or of EXISTS.",
							 "The planner plans such a statement in both forms and chooses by cost.",
							 &cellar_unnest_subqueries_enabled,
							 true,
							 PGC_USERSET,
							 GUC_EXPLAIN,
							 NULL, NULL, NULL);

	DefineCustomEnumVariable("cellar.index_scans",
							 "Enables Smart Scans of indexes: cells aggregate the entries of an index that has all columns of the query.",
							 "\"always\" prefers them to Smart Scans of tables, whatever the estimated costs are.",
							 &cellar_index_scans,
							 CELLAR_INDEX_SCANS_OFF,
							 index_scans_options,
							 PGC_USERSET,
							 GUC_EXPLAIN,
							 NULL, NULL, NULL);

	DefineCustomIntVariable("cellar.lookup_table_rows",
							"Sets the maximum number of rows of a lookup table.",
							"A side of a lookup join with more rows is filtered by the keys of the other sides, or is joined by PostgreSQL.",
							&cellar_lookup_table_rows,
							1048576,
							1, 8388608,
							PGC_USERSET,
							GUC_EXPLAIN,
							NULL, NULL, NULL);

	DefineCustomEnumVariable("cellar.cell_offload_plan_display",
							 "Controls whether EXPLAIN shows storage predicates.",
							 "NEVER hides them. AUTO shows them for tables on a cell. ALWAYS also shows, for other tables, the conditions that a cell could evaluate.",
							 &cellar_plan_display,
							 CELLAR_DISPLAY_AUTO,
							 plan_display_options,
							 PGC_USERSET,
							 0,
							 NULL, NULL, NULL);

	DefineCustomBoolVariable("cellar.simulate_offload",
							 "Simulates Smart Scan on tables that are not on a cell, and counts its effect.",
							 "Queries return the same rows. The statistics whose names start with \"cell simulated\" show the bytes that cells would have scanned and returned.",
							 &cellar_simulate_offload,
							 false,
							 PGC_USERSET,
							 GUC_EXPLAIN,
							 NULL, NULL, NULL);

	DefineCustomIntVariable("cellar.min_scan_size",
							"Sets the minimum size of a table for Smart Scan.",
							"PostgreSQL scans smaller tables itself.",
							&cellar_min_scan_size,
							(1024 * 1024) / BLCKSZ,
							0, INT_MAX / 3,
							PGC_USERSET,
							GUC_UNIT_BLOCKS | GUC_EXPLAIN,
							NULL, NULL, NULL);

	DefineCustomRealVariable("cellar.cost_factor",
							 "Scales the planner's estimate of the cost of a Smart Scan.",
							 "At 0, the planner prefers Smart Scan to all other scans.",
							 &cellar_cost_factor,
							 1.0,
							 0.0, DBL_MAX,
							 PGC_USERSET,
							 GUC_EXPLAIN,
							 NULL, NULL, NULL);

	DefineCustomRealVariable("cellar.cell_page_cost",
							 "Sets the planner's estimate of the cost of scanning one page in a cell.",
							 "The cost is on the same scale as seq_page_cost.",
							 &cellar_cell_page_cost,
							 0.3,
							 0.0, DBL_MAX,
							 PGC_USERSET,
							 GUC_EXPLAIN,
							 NULL, NULL, NULL);

	DefineCustomRealVariable("cellar.returned_page_cost",
							 "Sets the planner's estimate of the cost of receiving one page of column values from a cell.",
							 "The cost is on the same scale as seq_page_cost.",
							 &cellar_returned_page_cost,
							 2.8,
							 0.0, DBL_MAX,
							 PGC_USERSET,
							 GUC_EXPLAIN,
							 NULL, NULL, NULL);

	DefineCustomRealVariable("cellar.cached_fraction",
							 "Sets which fraction of a table and its indexes the planner assumes to be in shared buffers.",
							 "At -1, the planner takes a sample of the pages in shared buffers and in the kernel's page cache.",
							 &cellar_cached_fraction,
							 -1,
							 -1.0, 1.0,
							 PGC_USERSET,
							 GUC_EXPLAIN,
							 NULL, NULL, NULL);

	DefineCustomBoolVariable("cellar.auto_compression",
							 "Enables background compression by policies.",
							 "When off, the policy worker stops after the table that it is processing, and policies have no effect.",
							 &cellar_auto_compression,
							 true,
							 PGC_SIGHUP,
							 0,
							 NULL, NULL, NULL);

	DefineCustomIntVariable("cellar.compression_naptime",
							"Sets the time between the starts of two rounds of the launcher through the compression policies.",
							"In each round, the launcher runs the policies of all databases, one database after another.",
							&cellar_compression_naptime,
							60,
							1, INT_MAX / 1000,
							PGC_SIGHUP,
							GUC_UNIT_S,
							NULL, NULL, NULL);

	DefineCustomStringVariable("cellar.awr_database",
							   "Sets the database that contains the AWR repository.",
							   "The AWR worker takes AWR snapshots if the extension is created in this database.",
							   &cellar_awr_database,
							   "postgres",
							   PGC_POSTMASTER,
							   0,
							   NULL, NULL, NULL);

	DefineCustomIntVariable("cellar.awr_snapshot_interval",
							"Sets the time between two AWR snapshots.",
							"AWR snapshots are taken at multiples of this interval since midnight UTC. 0 takes none.",
							&cellar_awr_snapshot_interval,
							60,
							0, 24 * 60,
							PGC_SIGHUP,
							GUC_UNIT_MIN,
							NULL, NULL, NULL);

	DefineCustomIntVariable("cellar.awr_retention",
							"Sets for how many days AWR snapshots are kept.",
							"The AWR worker drops older days, except those that contain an AWR baseline.",
							&cellar_awr_retention,
							8,
							1, 36500,
							PGC_SIGHUP,
							0,
							NULL, NULL, NULL);

	DefineCustomIntVariable("cellar.awr_sample_period",
							"Sets the time between two samples of the active sessions.",
							"0 takes no samples.",
							&cellar_awr_sample_period,
							1000,
							0, INT_MAX / 1000,
							PGC_SIGHUP,
							GUC_UNIT_MS,
							NULL, NULL, NULL);

	DefineCustomIntVariable("cellar.awr_sample_buffer",
							"Sets the shared memory for session samples that the repository does not contain yet.",
							"When the memory is full, new samples replace the oldest ones.",
							&cellar_awr_sample_buffer,
							4096,
							64, 1024 * 1024,
							PGC_POSTMASTER,
							GUC_UNIT_KB,
							NULL, NULL, NULL);

	DefineCustomBoolVariable("cellar.awr_track_statements",
							 "Collects statistics of each top-level statement and its plans.",
							 "AWR reports need them for statements, plan changes, and parse, plan, execution and commit times.",
							 &cellar_awr_track_statements,
							 true,
							 PGC_SUSET,
							 0,
							 NULL, NULL, NULL);

	DefineCustomIntVariable("cellar.awr_max_statements",
							"Sets the number of combinations of database, role, statement and plan with statistics.",
							"Statistics of combinations with few calls are added up per database when there are more.",
							&cellar_awr_max_statements,
							5000,
							100, INT_MAX / 4096,
							PGC_POSTMASTER,
							0,
							NULL, NULL, NULL);

	DefineCustomIntVariable("cellar.awr_text_buffer",
							"Sets the shared memory for texts of statements and plans that the repository does not contain yet.",
							"When the memory is full, new texts replace the oldest ones.",
							&cellar_awr_text_buffer,
							8192,
							64, 1024 * 1024,
							PGC_POSTMASTER,
							GUC_UNIT_KB,
							NULL, NULL, NULL);

	DefineCustomStringVariable("cellar.consumer_group",
							   "Sets the consumer group of the session.",
							   "If empty, cellar.consumer_group_mappings determines the group.",
							   &cellar_consumer_group,
							   "",
							   PGC_SUSET,
							   0,
							   cellar_check_consumer_group, cellar_assign_consumer_group, NULL);

	DefineCustomStringVariable("cellar.consumer_group_mappings",
							   "Maps application names to consumer groups.",
							   "A list of PATTERN=GROUP, separated by commas; * in a pattern matches any characters. The first pattern that matches counts. Sessions without a match belong to OTHER_GROUPS.",
							   &cellar_consumer_group_mappings,
							   "",
							   PGC_SIGHUP,
							   0,
							   cellar_check_consumer_group_mappings, cellar_assign_consumer_group_mappings, NULL);

	MarkGUCPrefixReserved("cellar");
}
