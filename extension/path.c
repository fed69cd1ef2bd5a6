/*-------------------------------------------------------------------------
 *
 * path.c
 *	  Offers a Smart Scan to the planner, and knows what one costs.
 *
 *-------------------------------------------------------------------------
 */
#include "cellar.h"

#include "access/sysattr.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "miscadmin.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "optimizer/plancat.h"
#include "parser/parsetree.h"
#include "utils/rel.h"
#include "utils/spccache.h"

/*
 * Costs in units of seq_page_cost, or relative to what the same work costs in
 * Postgres.  They make a filter over a large table about as much cheaper than
 * a sequential scan as it is faster when both find the table in memory (3.5
 * times), so that a selective index scan keeps its place.
 *
 * A cell reads and decodes a page in a fraction of the time that a
 * sequential scan takes; what it sends back costs by the row and by the byte,
 * so that a scan that returns everything is dearer than a sequential one.
 */
#define REQUEST_COST			10.0	/* asking the cell at all */
#define CHECKPOINT_BUFFER_COST	0.004	/* one shared buffer looked at */
#define CELL_PAGE_FRACTION		0.15
#define CELL_CPU_FRACTION		0.2
#define RETURNED_ROW_FRACTION	0.5
#define RETURNED_PAGE_COST		1.3 /* BLCKSZ bytes sent back */
#define WHOLE_ROW_OVERHEAD		(MAXALIGN(SizeofHeapTupleHeader) + 16)	/* bytes */

static set_rel_pathlist_hook_type previous_hook = NULL;

/*
 * Why no Smart Scan of the relation can be part of this query; NULL when one can.
 */
static const char *
query_unsuitable(PlannerInfo *root, RelOptInfo *rel, RangeTblEntry *rte)
{
	ListCell   *lc;

	if (rte->tablesample != NULL)
		return "it is sampled with TABLESAMPLE";
	if (IsolationIsSerializable())
		return "the transaction is serializable";
	if (CellarOldSnapshotsFail())
		return "old_snapshot_threshold is set";
	if (!bms_is_empty(rel->lateral_relids))
		return "it depends on another table laterally";
	if (root->parse->resultRelation == (int) rel->relid ||
		bms_is_member(rel->relid, root->all_result_relids))
		return "the statement changes it";
	foreach(lc, root->rowMarks)
	{
		PlanRowMark *mark = lfirst_node(PlanRowMark, lc);

		if (mark->rti == rel->relid)
			return "its rows are locked or may be checked again";
	}
	return NULL;
}

/*
 * Attribute numbers, offset by FirstLowInvalidHeapAttributeNumber, that the scan returns
 * or that Postgres needs for its filter.
 */
static Bitmapset *
needed_attributes(RelOptInfo *rel, List *filter)
{
	Bitmapset  *needed = NULL;
	ListCell   *lc;

	pull_varattnos((Node *) rel->reltarget->exprs, rel->relid, &needed);
	foreach(lc, filter)
		pull_varattnos((Node *) lfirst_node(RestrictInfo, lc)->clause, rel->relid, &needed);
	return needed;
}

static bool
needs_system_column(RelOptInfo *rel)
{
	Bitmapset  *needed = needed_attributes(rel, rel->baserestrictinfo);
	int			member = -1;

	while ((member = bms_next_member(needed, member)) >= 0)
	{
		int			attribute = member + FirstLowInvalidHeapAttributeNumber;

		if (attribute < 0 && attribute != TableOidAttributeNumber &&
			attribute != SelfItemPointerAttributeNumber)
			return true;
	}
	return false;
}

/*
 * Can the cell evaluate this restriction?  As with index quals, a qual may
 * run before one of a lower security level only if it is leakproof.
 */
bool
cellar_restriction_offloadable(RelOptInfo *rel, RestrictInfo *rinfo, const char **reason)
{
	if (rinfo->security_level > rel->baserestrict_min_security && !rinfo->leakproof)
	{
		*reason = "it is not leakproof, and a security policy comes first";
		return false;
	}
	return cellar_qual_offloadable((Node *) rinfo->clause, rel->relid, reason);
}

/* Average bytes of a row as the scan returns it. */
static double
returned_width(PlannerInfo *root, RelOptInfo *rel, List *filter)
{
	double		width = rel->reltarget->width;
	double		whole = get_relation_data_width(planner_rt_fetch(rel->relid, root)->relid, NULL);
	Bitmapset  *output = needed_attributes(rel, NIL);
	Bitmapset  *needed = needed_attributes(rel, filter);
	int			member = -1;

	/* Columns that only the filter reads come back as well. */
	while ((member = bms_next_member(needed, member)) >= 0)
	{
		int			attribute = member + FirstLowInvalidHeapAttributeNumber;

		if (attribute > 0 && !bms_is_member(member, output))
			width += rel->attr_widths[attribute - rel->min_attr];
	}
	if (bms_num_members(needed) > 1 && width >= CELLAR_WHOLE_ROWS_FRACTION * whole)
		return whole + WHOLE_ROW_OVERHEAD;
	return width;
}

/* Does the scan return every column of every row? */
static bool
returns_everything(RelOptInfo *rel, Relation relation, List *storage)
{
	TupleDesc	tupdesc = RelationGetDescr(relation);
	Bitmapset  *needed;

	if (storage != NIL)
		return false;
	needed = needed_attributes(rel, rel->baserestrictinfo);
	if (bms_is_member(-FirstLowInvalidHeapAttributeNumber, needed))
		return true;			/* the whole row */
	for (int i = 0; i < tupdesc->natts; i++)
	{
		if (!TupleDescAttr(tupdesc, i)->attisdropped &&
			!bms_is_member(i + 1 - FirstLowInvalidHeapAttributeNumber, needed))
			return false;
	}
	return tupdesc->natts > 0;
}

/* As get_parallel_divisor, which is not exported. */
static double
parallel_divisor(int workers)
{
	double		divisor = workers;

	if (parallel_leader_participation)
	{
		double		leader = 1.0 - 0.3 * workers;

		if (leader > 0)
			divisor += leader;
	}
	return divisor;
}

static void
cost_smart_scan(PlannerInfo *root, RelOptInfo *rel, Path *path, List *storage, List *filter)
{
	double		seq_page;
	double		rows_returned;
	QualCost	storage_cost;
	QualCost	filter_cost;
	Cost		startup;
	Cost		disk_run;
	Cost		cpu_run;

	path->rows = rel->rows;

	get_tablespace_page_costs(rel->reltablespace, NULL, &seq_page);
	cost_qual_eval(&storage_cost, storage, root);
	cost_qual_eval(&filter_cost, filter, root);
	rows_returned = clamp_row_est(rel->tuples *
								  clauselist_selectivity(root, storage, 0, JOIN_INNER, NULL));

	startup = REQUEST_COST * seq_page + CHECKPOINT_BUFFER_COST * NBuffers +
		storage_cost.startup + filter_cost.startup + path->pathtarget->cost.startup;
	disk_run = CELL_PAGE_FRACTION * seq_page * rel->pages;

	/* In the cell ... */
	cpu_run = CELL_PAGE_FRACTION * seq_page * rel->pages;
	cpu_run += CELL_CPU_FRACTION * (cpu_tuple_cost + storage_cost.per_tuple) * rel->tuples;

	/* ... and here. */
	cpu_run += (RETURNED_ROW_FRACTION * cpu_tuple_cost + filter_cost.per_tuple +
				RETURNED_PAGE_COST * seq_page * returned_width(root, rel, filter) / BLCKSZ) * rows_returned;
	cpu_run += path->pathtarget->cost.per_tuple * path->rows;

	if (path->parallel_workers > 0)
	{
		double		divisor = parallel_divisor(path->parallel_workers);

		cpu_run /= divisor;
		path->rows = clamp_row_est(path->rows / divisor);
	}

	path->startup_cost = startup * cellar_cost_factor;
	path->total_cost = (startup + disk_run + cpu_run) * cellar_cost_factor;
	if (!enable_seqscan && cellar_cost_factor > 0)
		CellarDisablePath(path);
}

/*
 * The cost of a scan that the cell aggregates: nothing comes back before its
 * end.  row_cost is what a row that qualifies costs in Postgres's aggregation;
 * groups come back once for each range that the cell is asked for.
 */
void
cellar_cost_aggregate(PlannerInfo *root, RelOptInfo *rel, Path *path, List *storage,
					  Cost row_cost, double groups)
{
	int			ranges = cellar_estimate_ranges(rel->pages, path->parallel_workers);
	double		seq_page;
	QualCost	storage_cost;
	Cost		cost;
	Cost		cpu;

	path->rows = clamp_row_est(Min(groups * ranges, rel->rows));

	get_tablespace_page_costs(rel->reltablespace, NULL, &seq_page);
	cost_qual_eval(&storage_cost, storage, root);

	cpu = CELL_PAGE_FRACTION * seq_page * rel->pages;
	cpu += CELL_CPU_FRACTION * ((cpu_tuple_cost + storage_cost.per_tuple) * rel->tuples +
								row_cost * rel->rows);
	cpu += (RETURNED_ROW_FRACTION * cpu_tuple_cost +
			RETURNED_PAGE_COST * seq_page * path->pathtarget->width / BLCKSZ) * path->rows;
	if (path->parallel_workers > 0)
	{
		double		divisor = parallel_divisor(path->parallel_workers);

		cpu /= divisor;
		path->rows = clamp_row_est(path->rows / divisor);
	}

	cost = REQUEST_COST * seq_page + CHECKPOINT_BUFFER_COST * NBuffers +
		storage_cost.startup + path->pathtarget->cost.startup;
	cost += CELL_PAGE_FRACTION * seq_page * rel->pages + cpu;

	path->startup_cost = cost * cellar_cost_factor;
	path->total_cost = path->startup_cost + RETURNED_ROW_FRACTION * cpu_tuple_cost * path->rows;
	if (!enable_seqscan && cellar_cost_factor > 0)
		CellarDisablePath(path);
}

/*
 * Makes a path; which quals go is decided again when it becomes a plan.
 */
Path *
cellar_make_scan_path(PlannerInfo *root, RelOptInfo *rel, List *storage, List *filter,
					  int parallel_workers)
{
	CustomPath *cpath = makeNode(CustomPath);
	Path	   *path = &cpath->path;

	path->pathtype = T_CustomScan;
	path->parent = rel;
	path->pathtarget = rel->reltarget;
	path->param_info = NULL;
	path->parallel_aware = parallel_workers > 0;
	path->parallel_safe = rel->consider_parallel;
	path->parallel_workers = parallel_workers;
	path->pathkeys = NIL;
	cpath->flags = CUSTOMPATH_SUPPORT_PROJECTION;
	cpath->methods = &cellar_path_methods;

	/* Going backward evaluates quals again, which must come out the same. */
	if (parallel_workers == 0 &&
		!contain_volatile_functions((Node *) rel->baserestrictinfo))
		cpath->flags |= CUSTOMPATH_SUPPORT_BACKWARD_SCAN;

	cost_smart_scan(root, rel, path, storage, filter);
	return path;
}

static void
add_smart_scan_paths(PlannerInfo *root, RelOptInfo *rel, Relation relation)
{
	List	   *storage = NIL;
	List	   *filter = NIL;
	ListCell   *lc;

	foreach(lc, rel->baserestrictinfo)
	{
		RestrictInfo *rinfo = lfirst_node(RestrictInfo, lc);
		const char *reason;

		if (rinfo->pseudoconstant)
			continue;
		if (cellar_restriction_offloadable(rel, rinfo, &reason))
			storage = lappend(storage, rinfo);
		else
			filter = lappend(filter, rinfo);
	}

	if (cellar_cost_factor > 0 && returns_everything(rel, relation, storage))
	{
		cellar_note_scan(RelationGetRelid(relation),
						 "it returns every column of every row, which a sequential scan does as fast");
		return;
	}

	/* Preferred to everything: the others need not be compared. */
	if (cellar_cost_factor == 0)
	{
		rel->pathlist = NIL;
		rel->partial_pathlist = NIL;
	}

	cellar_note_cheaper(RelationGetRelid(relation));
	add_path(rel, cellar_make_scan_path(root, rel, storage, filter, 0));
	if (rel->consider_parallel)
	{
		int			workers = compute_parallel_worker(rel, rel->pages, -1,
													  max_parallel_workers_per_gather);

		if (workers > 0)
			add_partial_path(rel, cellar_make_scan_path(root, rel, storage, filter, workers));
	}
}

/* Is the relation one that could be scanned at all, on a cell or not? */
bool
cellar_is_plain_table(RelOptInfo *rel, RangeTblEntry *rte)
{
	return IS_SIMPLE_REL(rel) && rte->rtekind == RTE_RELATION && !rte->inh &&
		(rte->relkind == RELKIND_RELATION || rte->relkind == RELKIND_MATVIEW) &&
		!IS_DUMMY_REL(rel) && IsUnderPostmaster;
}

/*
 * Why no Smart Scan is offered of the table; NULL when one is.
 */
const char *
cellar_scan_unsuitable(PlannerInfo *root, RelOptInfo *rel, RangeTblEntry *rte, Relation relation)
{
	CellarPlace place;
	const char *reason;

	if (!cellar_offload_processing)
		return "cellar.cell_offload_processing is off";
	reason = cellar_relation_unsuitable(relation);
	if (reason == NULL && !cellar_simulate_offload &&
		cellar_plan_display != CELLAR_DISPLAY_ALWAYS &&
		!cellar_relation_place(relation, &place))
		reason = "the table is on no cell";
	if (reason == NULL)
		reason = query_unsuitable(root, rel, rte);
	if (reason == NULL && rel->pages < (BlockNumber) cellar_min_scan_size)
		reason = "it is smaller than cellar.min_scan_size";
	if (reason == NULL && needs_system_column(rel))
		reason = "a system column is read";
	return reason;
}

static void
set_rel_pathlist(PlannerInfo *root, RelOptInfo *rel, Index rti, RangeTblEntry *rte)
{
	Relation	relation;
	const char *reason;

	if (previous_hook != NULL)
		previous_hook(root, rel, rti, rte);

	if (!cellar_is_plain_table(rel, rte))
		return;

	/* The planner has locked it. */
	relation = table_open(rte->relid, NoLock);

	reason = cellar_scan_unsuitable(root, rel, rte, relation);
	if (reason != NULL)
		cellar_note_scan(rte->relid, reason);
	else
		add_smart_scan_paths(root, rel, relation);

	table_close(relation, NoLock);
}

void
cellar_install_path_hook(void)
{
	previous_hook = set_rel_pathlist_hook;
	set_rel_pathlist_hook = set_rel_pathlist;
}
