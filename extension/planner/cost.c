/*-------------------------------------------------------------------------
 *
 * cost.c
 *	  Estimates the cost of Smart Scans.
 *
 * Costs are in PostgreSQL's units, as for every other path.  The constants
 * were fitted to the processor time of backend and cell together, against a
 * sequential scan of the same table in memory: a sequential scan of 6 million
 * rows of 150 bytes takes 430 ms and is estimated at 175,000.  A Smart Scan
 * that returns few rows comes out about 3.5 times cheaper than a sequential
 * scan, so selective index scans still win.
 *
 * The model has three parts:
 *
 * - The cell reads and decodes each page (cellar.cell_page_cost).  Half of
 *   that is reading, which parallel workers do not divide and which shrinks
 *   with the stored size of a compressed table.
 * - The cell evaluates the storage predicate, or aggregates, at a fraction of
 *   PostgreSQL's processor cost.
 * - Each returned row costs by row and by byte.  Projected columns are
 *   extracted and copied (cellar.returned_page_cost); whole rows are only
 *   copied.
 *
 * docs/planner.md has the measurements.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "access/nbtree.h"
#include "access/sysattr.h"
#include "catalog/pg_am.h"
#include "catalog/pg_statistic.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/paths.h"
#include "optimizer/plancat.h"
#include "optimizer/restrictinfo.h"
#include "optimizer/tlist.h"
#include "parser/parsetree.h"
#include "utils/lsyscache.h"
#include "utils/spccache.h"
#include "utils/syscache.h"

#include "cellar.h"
#include "cellar/compat.h"
#include "cellar/executor.h"
#include "cellar/planner.h"

#define REQUEST_COST			10.0	/* sending the request, in pages */
#define CHECKPOINT_BUFFER_COST	0.004	/* per shared buffer: the object
										 * checkpoint examines all of them */
#define CELL_READ_FRACTION		0.5 /* of cellar.cell_page_cost */
#define CELL_CPU_FRACTION		0.2 /* of PostgreSQL's processor cost */
#define UNIT_ROW_FRACTION		0.3 /* at least, of CELL_CPU_FRACTION in a
									 * compression unit */
#define STORED_FRACTION_MIN		0.02	/* of each page: a unit has a directory,
									 * and its rows are visited */
#define RETURNED_ROW_FRACTION	0.4 /* of cpu_tuple_cost */
#define RETURNED_WHOLE_PAGE_COST	1.1 /* per BLCKSZ bytes of whole rows */
#define WHOLE_ROW_OVERHEAD		(MAXALIGN(SizeofHeapTupleHeader) + 16)	/* bytes */
#define LINK_COST				0.001	/* per leaf page, to follow its link */
#define THREADS_PAGES_MIN		1024	/* of the table, for each cell thread */

#define UNIT_VALUE_COST			0.0015	/* per decoded value of a returned column of
										 * a compression unit */
#define UNIT_BLOCK_ROWS			1024	/* rows whose values are decoded together */

#define CLUSTERED_CORRELATION	0.9

/* As get_parallel_divisor, which is not exported; 1 without workers. */
double
cellar_parallel_divisor(int workers)
{
	double		divisor = workers;

	if (workers == 0)
		return 1;
	if (parallel_leader_participation)
	{
		double		leader = 1.0 - 0.3 * workers;

		if (leader > 0)
			divisor += leader;
	}
	return divisor;
}

/* Returns how many parallel workers a node of a plan can have. */
int
cellar_workers_max(void)
{
	return Min(max_parallel_workers_per_gather, max_parallel_workers);
}

/*
 * Returns how many threads of the cell share a scan whose results need no
 * order: as many as PostgreSQL may use processes, but at most one for each
 * THREADS_PAGES_MIN pages, unless PostgreSQL would use more for a scan of the
 * relation.  The relation's conditions need not be safe in parallel workers, for
 * example because of a subquery: one process evaluates them.
 */
int
cellar_scan_threads(const PlannerInfo *root, RelOptInfo *rel)
{
	int			workers_max = cellar_workers_max();
	int			workers = 0;

	if (root->glob->parallelModeOK && (rel->rel_parallel_workers != -1 || rel->pages >= THREADS_PAGES_MIN))
		workers = compute_parallel_worker(rel, rel->pages, -1, workers_max);

	/*
	 * PostgreSQL plans one more worker when a table is three times as large,
	 * because processes are expensive.  Threads are not.
	 */
	if (workers > 0 && rel->rel_parallel_workers == -1)
		workers = Max(workers, Min(workers_max, rel->pages / THREADS_PAGES_MIN));
	if (workers > 0 && parallel_leader_participation)
		workers++;
	return Max(workers, 1);
}

/*
 * Returns the cost per returned row that depends on its bytes, in units of
 * seq_page_cost.
 */
static Cost
returned_bytes_cost(PlannerInfo *root, const CellarScanSpec *scan)
{
	RelOptInfo *rel = scan->rel;
	double		width = rel->reltarget->width;
	double		whole = get_relation_data_width(planner_rt_fetch(rel->relid, root)->relid, NULL);
	Bitmapset  *output = cellar_needed_attributes(rel, NIL);
	Bitmapset  *needed = cellar_needed_attributes(rel, scan->filter);
	int			member = -1;

	/* Columns that only the filter reads are returned as well. */
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

/*
 * Sets *read and *cpu to the cell's cost of reading and of decoding the
 * relation's pages.
 */
static void
cost_cell_pages(const CellarScanSpec *scan, double seq_page, Cost *read, Cost *cpu)
{
	BlockNumber npages = scan->index != NULL ? scan->index->pages : scan->rel->pages;
	Cost		pages = cellar_cell_page_cost * seq_page * npages *
		Max(scan->stored_fraction, STORED_FRACTION_MIN);

	*read = CELL_READ_FRACTION * pages;
	*cpu = (1 - CELL_READ_FRACTION) * pages;
}

/*
 * Returns the cell's cost of decoding a row and evaluating the storage predicate,
 * whose cost in PostgreSQL is given.  Kernels evaluate conditions over encoded
 * values of compression units.  Other expressions are interpreted, at the same cost
 * for all tables.  values are group keys and aggregates that are computed for the row.
 */
static Cost
cell_row_cost(PlannerInfo *root, const CellarScanSpec *scan, const QualCost *storage, List *values)
{
	double		stored = Min(scan->stored_fraction, 1);
	Cost		cost = CELL_CPU_FRACTION * Max(stored, UNIT_ROW_FRACTION) * (cpu_tuple_cost + storage->per_tuple) +
		cellar_interpreted_cost(root, scan->storage);

	if (stored < 1)
		cost += (1 - stored) * cellar_strings_cost(root, scan->rel,
												   list_concat(extract_actual_clauses(scan->storage, false), values));
	return cost;
}

/*
 * Returns the cell's cost of decoding values of returned columns, in compression units, for rows
 * that are not returned: the values of a block of rows are decoded if one of the rows is
 * returned.  The limit keeps Smart Scans of all columns below sequential scans, whose pages
 * the cell would have to rebuild.
 */
static Cost
decoded_values_cost(const CellarScanSpec *scan, double seq_page, double rows_returned)
{
	RelOptInfo *rel = scan->rel;
	double		fraction = rel->tuples > 0 ? Min(rows_returned / rel->tuples, 1) : 0;
	double		decoded = rel->tuples * (1 - pow(1 - fraction, UNIT_BLOCK_ROWS) - fraction);
	Cost		limit = 0.5 * (seq_page * rel->pages + cpu_tuple_cost * rel->tuples);

	return (1 - Min(scan->stored_fraction, 1)) *
		Min(UNIT_VALUE_COST * bms_num_members(cellar_needed_attributes(rel, scan->filter)) * decoded, limit);
}

/*
 * Returns how many of the given rows a top-N scan returns.  When the rows are
 * in random order, row i belongs to the first n rows so far with probability
 * n/i; the sum over all rows is about n(1 + ln(rows/n)).
 */
static double
top_n_rows_returned(double rows, const CellarTopN *top)
{
	if (rows <= top->rows)
		return rows;
	return clamp_row_est(top->rows * (1 + log(rows / top->rows)));
}

/*
 * Returns which fraction of the relation's rows a join filter keeps, at most: the
 * selectivity of the conditions on another relation that is joined by the
 * equality of a column, if the other relation has fewer rows.  1 without join
 * filters.  The sizes of all base relations are estimated before any path is
 * created.
 */
double
cellar_join_filter_fraction(PlannerInfo *root, RelOptInfo *rel)
{
	double		fraction = 1;
	ListCell   *lc;

	if (!cellar_join_filters || !enable_hashjoin)
		return 1;
	if (rel->top_parent_relids != NULL)
		rel = root->simple_rel_array[bms_singleton_member(rel->top_parent_relids)];
	foreach(lc, root->eq_classes)
	{
		EquivalenceClass *class = lfirst_node(EquivalenceClass, lc);
		Oid			type = InvalidOid;
		ListCell   *member;

		if (class->ec_has_const || class->ec_has_volatile || !bms_is_member(rel->relid, class->ec_relids))
			continue;
		foreach(member, class->ec_members)
		{
			EquivalenceMember *own = lfirst_node(EquivalenceMember, member);

			if (IsA(own->em_expr, Var) && ((Var *) own->em_expr)->varno == rel->relid)
				type = exprType((Node *) own->em_expr);
		}
		if (!OidIsValid(type))
			continue;
		foreach(member, class->ec_members)
		{
			EquivalenceMember *other = lfirst_node(EquivalenceMember, member);
			RelOptInfo *inner;
			int			relid;

			if (!bms_get_singleton_member(other->em_relids, &relid) || relid == rel->relid ||
				!cellar_has_key_set(getBaseType(type), getBaseType(exprType((Node *) other->em_expr))))
				continue;
			inner = root->simple_rel_array[relid];
			if (inner != NULL && inner->reloptkind == RELOPT_BASEREL && inner->tuples > 0 &&
				inner->rows < rel->rows && inner->rows <= CELLAR_JOIN_KEYS_MAX)
				fraction = Min(fraction, inner->rows / inner->tuples);
		}
	}
	return fraction;
}

/*
 * Sets the rows and costs of the path of a Smart Scan.
 */
void
cellar_cost_scan(PlannerInfo *root, Path *path, const CellarScanSpec *scan)
{
	RelOptInfo *rel = scan->rel;
	const CellarTopN *top = scan->top;
	double		divisor = cellar_parallel_divisor(scan->parallel_workers);
	double		seq_page;
	double		rows_returned;
	QualCost	storage_cost;
	QualCost	filter_cost;
	Cost		startup;
	Cost		disk_run;
	Cost		cell_run;
	Cost		cpu_run;

	path->rows = rel->rows;

	get_tablespace_page_costs(rel->reltablespace, NULL, &seq_page);
	cost_qual_eval(&storage_cost, scan->storage, root);
	cost_qual_eval(&filter_cost, scan->filter, root);
	rows_returned = clamp_row_est(rel->tuples *
								  clauselist_selectivity(root, scan->storage, 0, JOIN_INNER, NULL));

	/* Work in the cell */
	cost_cell_pages(scan, seq_page, &disk_run, &cell_run);
	cell_run += cell_row_cost(root, scan, &storage_cost, NIL) * rel->tuples;
	if (top != NULL)
	{
		double		shares = divisor * scan->threads;

		cell_run += CELL_CPU_FRACTION * cpu_operator_cost * list_length(top->keys) * rows_returned;

		/* Each process or thread returns the first rows of its share. */
		rows_returned = top_n_rows_returned(rows_returned / shares, top) * shares;
		path->rows = rows_returned;
	}

	startup = REQUEST_COST * seq_page + CHECKPOINT_BUFFER_COST * NBuffers +
		storage_cost.startup + filter_cost.startup + path->pathtarget->cost.startup;

	/* Work in PostgreSQL */
	if (top == NULL)
		rows_returned *= scan->join_filter_fraction;
	cell_run += decoded_values_cost(scan, seq_page, rows_returned) +
		(1 - Min(scan->stored_fraction, 1)) * cellar_strings_cost(root, rel, rel->reltarget->exprs) * rows_returned;
	cpu_run = (RETURNED_ROW_FRACTION * cpu_tuple_cost + filter_cost.per_tuple +
			   seq_page * returned_bytes_cost(root, scan)) * rows_returned;
	cpu_run += path->pathtarget->cost.per_tuple * path->rows;
	cpu_run += cell_run / scan->threads;

	if (scan->parallel_workers > 0)
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
 * Returns how many threads of the cell share a scan of an index.
 */
int
cellar_index_threads(const CellarScanSpec *scan)
{
	return Max(1, Min(scan->threads, (int) (scan->index->pages / THREADS_PAGES_MIN)));
}

/*
 * Returns PostgreSQL's part of the cost of a Smart Scan of an index: following the
 * links of leaf pages, and fetching the heap rows that are not on all-visible pages.
 * The rows are fetched in the order of the table, so a page costs as much as in a
 * bitmap scan.
 */
static Cost
index_cost(PlannerInfo *root, const CellarScanSpec *scan, const QualCost *quals)
{
	RelOptInfo *rel = scan->rel;
	double		changed = 1 - rel->allvisfrac;
	double		rows = changed * rel->tuples *
		clauselist_selectivity(root, scan->storage, 0, JOIN_INNER, NULL);
	double		pages = Min(rows, changed * rel->pages);
	double		seq_page;
	double		random_page;
	double		page = 0;

	get_tablespace_page_costs(rel->reltablespace, &random_page, &seq_page);
	if (pages > 0)
		page = random_page - (random_page - seq_page) * sqrt(pages / rel->pages);
	return LINK_COST * scan->index->pages + page * pages + (cpu_tuple_cost + quals->per_tuple) * rows;
}

/* ----------------------------------------------------------------
 *		Aggregation in the cell
 * ----------------------------------------------------------------
 */

/*
 * Returns what PostgreSQL's own partial aggregation would cost per row.
 */
Cost
cellar_aggregated_row_cost(const CellarAggregateSpec *aggregation)
{
	return aggregation->partial_costs.transCost.per_tuple +
		cpu_operator_cost * list_length(aggregation->group_clause);
}

/*
 * Returns whether the expression is a column whose equal values are stored
 * near each other.
 */
static bool
is_clustered(const CellarAggregateSpec *aggregation, Node *expr)
{
	HeapTuple	tuple;
	AttStatsSlot slot;
	bool		clustered = false;

	if (!IsA(expr, Var) || ((Var *) expr)->varno != aggregation->scan.rel->relid)
		return false;
	tuple = SearchSysCache3(STATRELATTINH, ObjectIdGetDatum(aggregation->relid), Int16GetDatum(((Var *) expr)->varattno),
							BoolGetDatum(false));
	if (!HeapTupleIsValid(tuple))
		return false;
	if (get_attstatsslot(&slot, tuple, STATISTIC_KIND_CORRELATION, InvalidOid, ATTSTATSSLOT_NUMBERS))
	{
		clustered = slot.nnumbers > 0 && fabsf(slot.numbers[0]) > CLUSTERED_CORRELATION;
		free_attstatsslot(&slot);
	}
	ReleaseSysCache(tuple);
	return clustered;
}

/*
 * Returns about how many groups fit into the cell's tables of groups.
 */
static double
group_table_capacity(const CellarAggregateSpec *aggregation)
{
	PathTarget *target = aggregation->target;
	double		bytes = 32;
	bool		has_strings = false;
	ListCell   *lc;

	foreach(lc, target->exprs)
	{
		Oid			type = exprType(lfirst(lc));

		if (IsA(lfirst(lc), Aggref))
			bytes += type == BYTEAOID ? 48 : 16;
		if (get_pathtarget_sortgroupref(target, foreach_current_index(lc)) == 0)
			continue;
		bytes += 8;
		if ((get_typlen(type) > 0 && get_typlen(type) <= 8) || type == NUMERICOID)
			continue;
		bytes += 40;
		has_strings = true;
	}
	if (has_strings)
		bytes += target->width;
	return aggregation->scan.group_bytes / bytes;
}

/* Returns whether equal values of some group key are stored near each other. */
static bool
has_clustered_key(const CellarAggregateSpec *aggregation)
{
	PathTarget *target = aggregation->target;
	ListCell   *lc;

	foreach(lc, target->exprs)
	{
		if (get_pathtarget_sortgroupref(target, foreach_current_index(lc)) != 0 &&
			is_clustered(aggregation, lfirst(lc)))
			return true;
	}
	return false;
}

/* Returns how many rows the cell aggregates. */
static double
aggregated_rows(const CellarAggregateSpec *aggregation)
{
	return aggregation->rows > 0 ? aggregation->rows : aggregation->scan.rel->rows;
}

/*
 * Returns how many groups the tables of all threads have together, at most: a
 * thread has at most one group for each of its rows.  Few groups are in two tables if the
 * rows of a group are stored near each other.
 */
static double
groups_of_threads(const CellarAggregateSpec *aggregation)
{
	int			tables = has_clustered_key(aggregation) ? 1 : aggregation->scan.threads;

	return Min(aggregated_rows(aggregation), aggregation->groups * tables);
}

/*
 * Returns whether the groups are expected to fit into the cell's memory.
 */
bool
cellar_groups_fit(const CellarAggregateSpec *aggregation)
{
	return groups_of_threads(aggregation) <= group_table_capacity(aggregation);
}

/*
 * Returns how many groups the cell returns.  The threads' groups are merged at
 * the end of the scan, and the groups that the query does not need are omitted,
 * unless the memory for groups does not suffice for all threads.
 */
static double
groups_returned(const CellarAggregateSpec *aggregation)
{
	const CellarGroupPruning *pruning = aggregation->pruning;
	double		groups = aggregation->groups;
	double		rows = aggregated_rows(aggregation);
	double		returned = groups;

	if (!cellar_groups_fit(aggregation) && has_clustered_key(aggregation))
	{
		/* Few groups are in two full tables. */
		returned = groups;
	}
	else if (!cellar_groups_fit(aggregation))
	{
		/* Expected rows until the table is full, with groups equally frequent */
		double		capacity = Min(group_table_capacity(aggregation) / aggregation->scan.threads, groups - 1);
		double		rows_to_fill = -groups * log1p(-capacity / groups);

		returned = Max(returned * aggregation->scan.threads, rows / rows_to_fill * capacity);
	}
	else
	{
		if (aggregation->distinct_aggregates != NULL)
			returned = aggregation->distinct_aggregates->groups;
		if (pruning != NULL)
			returned *= pruning->selectivity;
		if (pruning != NULL && pruning->top.rows > 0)
			returned = Min(returned, pruning->top.rows);
	}
	return clamp_row_est(Min(returned, rows));
}

/*
 * Sets the rows and costs of the path of a Smart Scan that aggregates in the
 * cell.  Nothing is returned before the end of a range, so nearly all of the
 * cost is startup cost.
 */
void
cellar_cost_aggregate(PlannerInfo *root, Path *path, const CellarAggregateSpec *aggregation)
{
	const CellarScanSpec *scan = &aggregation->scan;
	RelOptInfo *rel = scan->rel;
	double		seq_page;
	QualCost	storage_cost;
	Cost		cost;
	Cost		read;
	Cost		cpu;

	path->rows = groups_returned(aggregation);

	get_tablespace_page_costs(rel->reltablespace, NULL, &seq_page);
	cost_qual_eval(&storage_cost, scan->storage, root);

	cost_cell_pages(scan, seq_page, &read, &cpu);
	cpu += cell_row_cost(root, scan, &storage_cost, aggregation->target->exprs) *
		(scan->index != NULL ? scan->index->tuples : rel->tuples) +
		(CELL_CPU_FRACTION * cellar_aggregated_row_cost(aggregation) +
		 cellar_interpreted_values_cost(root, aggregation->target->exprs)) * aggregated_rows(aggregation) +
		cpu_tuple_cost * Max(path->rows, groups_of_threads(aggregation));
	cpu /= scan->threads;
	cpu += (RETURNED_ROW_FRACTION * cpu_tuple_cost +
			cellar_returned_page_cost * seq_page * path->pathtarget->width / BLCKSZ) * path->rows;

	cost = REQUEST_COST * seq_page + CHECKPOINT_BUFFER_COST * NBuffers +
		storage_cost.startup + path->pathtarget->cost.startup;
	cost += read + cpu;
	if (scan->index != NULL)
		cost += index_cost(root, scan, &storage_cost);

	path->startup_cost = cost * cellar_cost_factor;
	path->total_cost = path->startup_cost + RETURNED_ROW_FRACTION * cpu_tuple_cost * path->rows;
	if (!enable_seqscan && cellar_cost_factor > 0)
		CellarDisablePath(path);
}

/* ----------------------------------------------------------------
 *		Comparison with index-only scans
 * ----------------------------------------------------------------
 */

/*
 * Returns by how much PostgreSQL overestimates an index-only scan that reads
 * a whole btree.  PostgreSQL charges every heap pointer as an index entry to
 * be tested, but duplicates share one entry, a posting list, that is tested
 * once.  The number of entries per page is derived from the number of heap
 * pointers per page.
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
			return 0;			/* reads only a part of the index */
	}
	for (int i = 0; i < index->ncolumns; i++)
	{
		if (index->indexkeys[i] <= 0)
			return 0;			/* an expression: its width is unknown */
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
 * Returns whether some index-only scan costs less than total_cost after
 * correction for posting lists, with row_cost added for each of its rows.
 *
 * Only index-only scans are corrected: add_path compares all other paths.
 */
bool
cellar_index_only_scan_is_cheaper(RelOptInfo *rel, Cost total_cost, Cost row_cost)
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
