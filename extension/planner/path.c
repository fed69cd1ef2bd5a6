/*-------------------------------------------------------------------------
 *
 * path.c
 *	  Offers a Smart Scan to the planner, and knows what one costs.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "access/nbtree.h"
#include "access/sysattr.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/pg_am.h"
#include "catalog/pg_class.h"
#include "miscadmin.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "optimizer/plancat.h"
#include "optimizer/planner.h"
#include "parser/parsetree.h"
#include "utils/rel.h"
#include "utils/spccache.h"

#include "cellar.h"
#include "cellar/cell.h"
#include "cellar/compat.h"
#include "cellar/executor.h"
#include "cellar/planner.h"

/*
 * Costs in units of seq_page_cost, or relative to what the same work costs in
 * Postgres.  They were fitted to the processor time that backend and cell
 * take together, with Postgres's own scan of the same table, all of it in memory, as
 * the measure: 6 million rows of 150 bytes take it 430 ms, which it estimates
 * at 175,000.  A filter comes out about 3.5 times cheaper than a sequential scan,
 * so that a selective index scan keeps its place.
 *
 * A cell reads and decodes a page in a fraction of the time that a
 * sequential scan takes (cellar.cell_page_cost: half of it is reading, which
 * costs the same however many processes do it, and of which a compressed table
 * has less).  What it sends
 * back costs by the row and by the byte; single columns are taken out
 * of the page and put together (cellar.returned_page_cost), whole rows are only copied.
 */
#define REQUEST_COST			10.0	/* asking the cell at all */
#define CHECKPOINT_BUFFER_COST	0.004	/* one shared buffer looked at */
#define CELL_READ_PART			0.5
#define CELL_CPU_FRACTION		0.2
#define RETURNED_ROW_FRACTION	0.4
#define RETURNED_WHOLE_PAGE_COST	1.1
#define WHOLE_ROW_OVERHEAD		(MAXALIGN(SizeofHeapTupleHeader) + 16)	/* bytes */
#define THREAD_PAGES			1024	/* of a smaller table there is no part for another thread */

static set_rel_pathlist_hook_type previous_hook = NULL;
static create_upper_paths_hook_type previous_upper_hook = NULL;

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

/* The storage predicate, when it is all that there is to check; *storage tells it. */
bool
cellar_restrictions_offloadable(RelOptInfo *rel, List **storage)
{
	ListCell   *lc;
	const char *reason;

	*storage = NIL;
	foreach(lc, rel->baserestrictinfo)
	{
		RestrictInfo *rinfo = lfirst_node(RestrictInfo, lc);

		if (rinfo->pseudoconstant || !cellar_restriction_offloadable(rel, rinfo, &reason))
			return false;
		*storage = lappend(*storage, rinfo);
	}
	return true;
}

/* What it costs to send a row back, in units of seq_page_cost, but for the row as such. */
static Cost
returned_bytes_cost(PlannerInfo *root, RelOptInfo *rel, List *filter)
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
		return RETURNED_WHOLE_PAGE_COST * (whole + WHOLE_ROW_OVERHEAD) / BLCKSZ;
	return cellar_returned_page_cost * width / BLCKSZ;
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

/* What reading and decoding the table costs the cell; its processes share *read. */
static void
cost_cell_pages(RelOptInfo *rel, double seq_page, double stored_fraction, Cost *read, Cost *cpu)
{
	Cost		pages = cellar_cell_page_cost * seq_page * rel->pages;

	*read = CELL_READ_PART * pages * stored_fraction;
	*cpu = (1 - CELL_READ_PART) * pages;
}

/*
 * How many of these rows, in any order, are put out when the first are wanted:
 * row i is among the first n so far with the chance n/i.
 */
static double
rows_put_out(double rows, const CellarTopN *top)
{
	if (top == NULL || rows <= top->rows)
		return rows;
	return clamp_row_est(top->rows * (1 + log(rows / top->rows)));
}

static void
cost_smart_scan(PlannerInfo *root, RelOptInfo *rel, Path *path, List *storage, List *filter,
				double stored_fraction, const CellarTopN *top)
{
	double		divisor = path->parallel_workers > 0 ? parallel_divisor(path->parallel_workers) : 1;
	double		seq_page;
	double		rows_returned;
	QualCost	storage_cost;
	QualCost	filter_cost;
	Cost		startup;
	Cost		disk_run;
	Cost		cpu_run = 0;
	Cost		cpu_pages;

	path->rows = rel->rows;

	get_tablespace_page_costs(rel->reltablespace, NULL, &seq_page);
	cost_qual_eval(&storage_cost, storage, root);
	cost_qual_eval(&filter_cost, filter, root);
	rows_returned = clamp_row_est(rel->tuples *
								  clauselist_selectivity(root, storage, 0, JOIN_INNER, NULL));
	if (top != NULL)
	{
		cpu_run = CELL_CPU_FRACTION * cpu_operator_cost * list_length(top->keys) * rows_returned;

		/* Each process puts its own first rows out. */
		rows_returned = rows_put_out(rows_returned / divisor, top) * divisor;
		path->rows = rows_returned;
	}

	startup = REQUEST_COST * seq_page + CHECKPOINT_BUFFER_COST * NBuffers +
		storage_cost.startup + filter_cost.startup + path->pathtarget->cost.startup;

	/* In the cell ... */
	cost_cell_pages(rel, seq_page, stored_fraction, &disk_run, &cpu_pages);
	cpu_run += cpu_pages;
	cpu_run += CELL_CPU_FRACTION * (cpu_tuple_cost + storage_cost.per_tuple) * rel->tuples;

	/* ... and here. */
	cpu_run += (RETURNED_ROW_FRACTION * cpu_tuple_cost + filter_cost.per_tuple +
				seq_page * returned_bytes_cost(root, rel, filter)) * rows_returned;
	cpu_run += path->pathtarget->cost.per_tuple * path->rows;

	if (path->parallel_workers > 0)
	{
		cpu_run /= divisor;
		path->rows = clamp_row_est(path->rows / divisor);
	}

	path->startup_cost = startup * cellar_cost_factor;
	path->total_cost = (startup + disk_run + cpu_run) * cellar_cost_factor;
	if (!enable_seqscan && cellar_cost_factor > 0)
		CellarDisablePath(path);
}

/*
 * How many of the cell's threads share a scan whose results need no order: as
 * many as Postgres would have processes scan the table.
 */
int
cellar_scan_threads(RelOptInfo *rel)
{
	int			workers = 0;

	if (rel->consider_parallel && rel->pages >= THREAD_PAGES)
		workers = compute_parallel_worker(rel, rel->pages, -1,
										  Min(max_parallel_workers_per_gather, max_parallel_workers));
	if (workers > 0 && parallel_leader_participation)
		workers++;
	return Max(workers, 1);
}

/* Groups that a cell returns: all of them from each range, and from a full table of them. */
static double
groups_returned(double groups, double rows, int ranges, double table_groups)
{
	double		returned = groups * ranges;

	if (groups > table_groups)
	{
		/* So many rows have so many different groups, if each is as frequent. */
		double		rows_to_fill = -groups * log1p(-table_groups / groups);

		returned = Max(returned, rows / rows_to_fill * table_groups);
	}
	return clamp_row_est(Min(returned, rows));
}

/*
 * The cost of a scan that the cell aggregates: nothing comes back before its
 * end.  row_cost is what a row that qualifies costs in Postgres's aggregation;
 * groups come back once for each range, from each thread.
 */
void
cellar_cost_aggregate(PlannerInfo *root, RelOptInfo *rel, Path *path, List *storage,
					  double stored_fraction, int threads, Cost row_cost, double groups, double table_groups)
{
	int			ranges = cellar_aggregate_ranges(rel->pages) * threads;
	double		seq_page;
	QualCost	storage_cost;
	Cost		cost;
	Cost		read;
	Cost		cpu;

	path->rows = groups_returned(groups, rel->rows, ranges, table_groups);

	get_tablespace_page_costs(rel->reltablespace, NULL, &seq_page);
	cost_qual_eval(&storage_cost, storage, root);

	cost_cell_pages(rel, seq_page, stored_fraction, &read, &cpu);
	cpu += CELL_CPU_FRACTION * ((cpu_tuple_cost + storage_cost.per_tuple) * rel->tuples +
								row_cost * rel->rows) + cpu_tuple_cost * path->rows;
	cpu /= threads;
	cpu += (RETURNED_ROW_FRACTION * cpu_tuple_cost +
			cellar_returned_page_cost * seq_page * path->pathtarget->width / BLCKSZ) * path->rows;

	cost = REQUEST_COST * seq_page + CHECKPOINT_BUFFER_COST * NBuffers +
		storage_cost.startup + path->pathtarget->cost.startup;
	cost += read + cpu;

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
					  double stored_fraction, const CellarTopN *top, int threads, int parallel_workers)
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

	/*
	 * Going backward evaluates quals again, which must come out the same, and
	 * needs all rows.
	 */
	if (parallel_workers == 0 && top == NULL &&
		!contain_volatile_functions((Node *) rel->baserestrictinfo))
		cpath->flags |= CUSTOMPATH_SUPPORT_BACKWARD_SCAN;

	cost_smart_scan(root, rel, path, storage, filter, stored_fraction, top);
	cpath->custom_private = list_make3(top == NULL ? NIL : top->keys,
									   top == NULL ? NIL : cellar_top_n_private(top),
									   list_make1_int(threads));
	return path;
}

/*
 * What Postgres overestimates in an index-only scan that looks through a
 * whole btree: it counts every heap pointer as an index entry to be tested.
 * Duplicates share one entry, a posting list, that is tested once; how
 * many there are follows from how many pointers a page of the index holds.
 */
static Cost
posting_list_overestimate(RelOptInfo *rel, IndexPath *path)
{
	IndexOptInfo *index = path->indexinfo;
	double		width = sizeof(IndexTupleData);
	double		pointers;
	double		entries;
	ListCell   *lc;

	if (index->relam != BTREE_AM_OID || index->pages < 1 || index->tuples < 1)
		return 0;
	foreach(lc, path->indexclauses)
	{
		if (lfirst_node(IndexClause, lc)->indexcol == 0)
			return 0;			/* only a part of the index is read */
	}
	for (int i = 0; i < index->ncolumns; i++)
	{
		if (index->indexkeys[i] <= 0)
			return 0;
		width += rel->attr_widths[index->indexkeys[i] - rel->min_attr];
	}
	pointers = index->tuples / index->pages;
	entries = (BTREE_DEFAULT_FILLFACTOR / 100.0 * BLCKSZ - pointers * sizeof(ItemPointerData)) /
		(MAXALIGN((Size) width) + sizeof(ItemIdData));
	entries = Max(entries, 1);
	return Max(pointers - entries, 0) * index->pages *
		(cpu_index_tuple_cost + cpu_operator_cost * list_length(path->indexclauses));
}

/*
 * Is some index-only scan cheaper than this, at what it really costs and at
 * row_cost for each of its rows?  Against a sequential scan the
 * overestimate hardly matters.
 */
bool
cellar_index_only_serves(RelOptInfo *rel, Cost total_cost, Cost row_cost)
{
	ListCell   *lc;

	if (cellar_cost_factor == 0)
		return false;
	foreach(lc, rel->pathlist)
	{
		Path	   *path = lfirst(lc);

		if (path->pathtype == T_IndexOnlyScan && path->param_info == NULL &&
			path->total_cost - posting_list_overestimate(rel, (IndexPath *) path) +
			row_cost * path->rows < total_cost)
			return true;
	}
	return false;
}

static void
add_smart_scan_paths(PlannerInfo *root, RelOptInfo *rel, Relation relation)
{
	List	   *storage = NIL;
	List	   *filter = NIL;
	double		stored_fraction = cellar_stored_fraction(relation);
	Path	   *path;
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

	path = cellar_make_scan_path(root, rel, storage, filter, stored_fraction, NULL, 1, 0);
	if (cellar_index_only_serves(rel, path->total_cost, 0))
	{
		cellar_note_scan(RelationGetRelid(relation), "an index-only scan is cheaper");
		return;
	}

	/* Preferred to everything: the others need not be compared. */
	if (cellar_cost_factor == 0)
	{
		rel->pathlist = NIL;
		rel->partial_pathlist = NIL;
	}

	cellar_note_cheaper(RelationGetRelid(relation));
	add_path(rel, path);
	if (rel->consider_parallel)
	{
		int			workers = compute_parallel_worker(rel, rel->pages, -1,
													  max_parallel_workers_per_gather);

		if (workers > 0)
			add_partial_path(rel, cellar_make_scan_path(root, rel, storage, filter,
														stored_fraction, NULL, 1, workers));
	}
}

/* Is the relation one that could be scanned at all, on a cell or not? */
static bool
is_plain_table(RelOptInfo *rel, RangeTblEntry *rte)
{
	return IS_SIMPLE_REL(rel) && rte->rtekind == RTE_RELATION && !rte->inh &&
		(rte->relkind == RELKIND_RELATION || rte->relkind == RELKIND_MATVIEW) &&
		!IS_DUMMY_REL(rel) && IsUnderPostmaster;
}

/*
 * Why no Smart Scan is offered of the table; NULL when one is.
 */
static const char *
scan_unsuitable(PlannerInfo *root, RelOptInfo *rel, RangeTblEntry *rte, Relation relation)
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

	if (!is_plain_table(rel, rte))
		return;

	/* The planner has locked it. */
	relation = table_open(rte->relid, NoLock);

	reason = scan_unsuitable(root, rel, rte, relation);
	if (reason != NULL)
		cellar_note_scan(rte->relid, reason);
	else
		add_smart_scan_paths(root, rel, relation);

	table_close(relation, NoLock);
}

static void
create_upper_paths(PlannerInfo *root, UpperRelationKind stage, RelOptInfo *input_rel,
				   RelOptInfo *output_rel, void *extra)
{
	RangeTblEntry *rte;
	Relation	relation;

	if (previous_upper_hook != NULL)
		previous_upper_hook(root, stage, input_rel, output_rel, extra);

	if ((stage != UPPERREL_GROUP_AGG && stage != UPPERREL_DISTINCT && stage != UPPERREL_ORDERED) ||
		!IS_SIMPLE_REL(input_rel))
		return;
	rte = planner_rt_fetch(input_rel->relid, root);
	if (!is_plain_table(input_rel, rte))
		return;

	/* Why not, the scan itself has noted. */
	relation = table_open(rte->relid, NoLock);
	if (scan_unsuitable(root, input_rel, rte, relation) == NULL)
	{
		if (stage == UPPERREL_GROUP_AGG)
			cellar_add_grouped_paths(root, input_rel, relation, output_rel, extra);
		else if (stage == UPPERREL_DISTINCT)
			cellar_add_distinct_path(root, input_rel, relation, output_rel);
		else
			cellar_add_top_n_paths(root, input_rel, relation, output_rel);
	}
	table_close(relation, NoLock);
}

void
cellar_install_path_hooks(void)
{
	previous_hook = set_rel_pathlist_hook;
	set_rel_pathlist_hook = set_rel_pathlist;
	previous_upper_hook = create_upper_paths_hook;
	create_upper_paths_hook = create_upper_paths;
}
