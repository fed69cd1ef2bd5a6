/*-------------------------------------------------------------------------
 *
 * index_scan_cost.c
 *	  Corrects the costs of index scans of tables on a cell.
 *
 * PostgreSQL's estimates assume that most pages of an index scan are read from disk,
 * and that each of them is raw.  Both assumptions are corrected:
 *
 * - Pages in memory are cheaper.  A Smart Scan of a table that is in memory takes as
 *   long as a few thousand index lookups, but costs as much as a few hundred lookups
 *   that read from disk.
 * - The cell rebuilds a page of a compression unit, which takes several times as long as
 *   reading a raw page.  Nested loops that fetch thousands of rows of a compressed
 *   table look cheaper than Smart Scans of it.
 *
 * Only tables for which a Smart Scan is offered are corrected.  An index scan
 * that fetches few rows remains much cheaper than any scan of such a table.
 *
 * The cost of compression units is not added in correlated subqueries.  Their scans are
 * executed once for each row of the outer query, and PostgreSQL's estimate of an
 * execution does not know that earlier ones have read most of the pages.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "nodes/pathnodes.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "parser/parsetree.h"
#include "utils/rel.h"
#include "utils/spccache.h"

#include "cellar/cell.h"
#include "cellar/compat.h"
#include "cellar/planner.h"

/*
 * How much more a block of a compression unit costs than a raw one, in units of
 * seq_page_cost.  For TPC-H's lineitem and orders at QUERY LOW, which store 0.16 and 0.18 of
 * their size, a block takes 53 and 41 instead of 10 microseconds, unless it
 * is in PostgreSQL's buffers or in the kernel's cache: about 15 units, of 2.5
 * microseconds each.  A quarter of the blocks is assumed to be in neither.
 */
#define UNIT_BLOCK_COST		4.0

/* What a page in shared buffers and in the kernel's page cache costs, in the same units. */
#define BUFFER_PAGE_COST	0.25
#define KERNEL_PAGE_COST	1.0

/*
 * What fetching a row from memory costs, in the same units.  PostgreSQL's estimates contain less, but
 * charge more for the pages.
 */
#define INDEX_ROW_COST		0.1
#define INDEX_ONLY_ROW_COST	0.03
#define BITMAP_ROW_COST		0.05

/* Which pages of a table or an index are in memory, and what the others cost, relative to PostgreSQL's estimate. */
typedef struct PageCosts
{
	CellarCachedPages cached;
	double		seq_page;
	double		random_page;
	double		unit_factor;
} PageCosts;

static void
set_page_costs(PageCosts *costs, const RelOptInfo *rel, Relation relation)
{
	get_tablespace_page_costs(rel->reltablespace, &costs->random_page, &costs->seq_page);
	costs->cached = cellar_cached_pages(relation);
	costs->unit_factor = 1;
	if (costs->random_page > 0)
		costs->unit_factor += UNIT_BLOCK_COST * costs->seq_page / costs->random_page *
			(1 - Min(cellar_stored_fraction(relation), 1));
}

/*
 * Corrects PostgreSQL's estimate of the cost of fetching some pages, given the cost of fetching
 * their rows from memory.
 */
static Cost
corrected_cost(const PageCosts *costs, Cost estimate, double pages, Cost rows)
{
	const CellarCachedPages *cached = &costs->cached;
	double		fraction = Min(cached->buffers + cached->kernel, 1);
	Cost		memory = costs->seq_page *
		(pages * (BUFFER_PAGE_COST * cached->buffers + KERNEL_PAGE_COST * cached->kernel) + rows * fraction);

	return estimate * costs->unit_factor * (1 - fraction) + Min(memory, estimate * fraction);
}

/*
 * Returns what a random page of the relation costs, relative to random_page_cost; 1 if
 * the relation is no table that a cell could scan.
 */
double
cellar_block_cost(PlannerInfo *root, const RelOptInfo *rel)
{
	Relation	relation;
	double		cost = 1;

	if (!IS_SIMPLE_REL(rel) || planner_rt_fetch(rel->relid, root)->rtekind != RTE_RELATION)
		return 1;
	relation = table_open(planner_rt_fetch(rel->relid, root)->relid, NoLock);
	if (cellar_relation_unsuitable(relation) == NULL)
	{
		PageCosts	costs;

		set_page_costs(&costs, rel, relation);
		if (costs.random_page > 0)
			cost = corrected_cost(&costs, costs.random_page, 1, 0) / costs.random_page;
	}
	table_close(relation, NoLock);
	return cost;
}

/* Returns an index that a bitmap scan reads. */
static const IndexPath *
bitmap_index(const Path *path)
{
	while (!IsA(path, IndexPath))
		path = linitial(IsA(path, BitmapAndPath) ? ((const BitmapAndPath *) path)->bitmapquals :
						castNode(BitmapOrPath, (Path *) path)->bitmapquals);
	return (const IndexPath *) path;
}

/* Returns how many entries of the index a scan tests: all, without a condition on the first column. */
static double
tested_entries(const IndexPath *path, double rows)
{
	ListCell   *lc;

	foreach(lc, path->indexclauses)
	{
		if (lfirst_node(IndexClause, lc)->indexcol == 0)
			return rows;
	}
	return Max(rows, path->indexinfo->tuples);
}

/* The corrections of a table, while its paths are corrected. */
typedef struct Correction
{
	RelOptInfo *rel;
	PageCosts	table;
	Cost		row_cost;
} Correction;

/* Returns what has to be added to the cost of a path; 0 for paths other than index scans. */
static Cost
correction(const Correction *correct, Path *path)
{
	const IndexPath *index_path;
	Relation	index;
	PageCosts	costs = correct->table;
	Selectivity selectivity;
	Cost		index_total;
	Cost		index_pages;
	Cost		pages;
	bool		index_only = path->pathtype == T_IndexOnlyScan;
	Cost		row_cost;
	double		rows;
	double		divisor = cellar_parallel_divisor(path->parallel_workers);

	/* The cost of a disabled path is no estimate. */
	if (CellarDisabledCost(path) > 0)
		return 0;
	if (IsA(path, IndexPath))
	{
		row_cost = index_only ? INDEX_ONLY_ROW_COST : INDEX_ROW_COST;
		index_path = (const IndexPath *) path;
		index_total = index_path->indextotalcost;
		selectivity = index_path->indexselectivity;
	}
	else if (IsA(path, BitmapHeapPath))
	{
		row_cost = BITMAP_ROW_COST;
		index_path = bitmap_index(((const BitmapHeapPath *) path)->bitmapqual);
		cost_bitmap_tree_node(((BitmapHeapPath *) path)->bitmapqual, &index_total, &selectivity);
	}
	else
		return 0;
	rows = selectivity * correct->rel->tuples;
	/* Parallel processes share the rows; PostgreSQL's estimate lets each of them pay for all pages. */
	pages = Max(path->total_cost - index_total - correct->row_cost * rows / divisor, 0);
	/* The startup cost is that of descending the tree. */
	index_pages = Max(index_total - (index_path->path.startup_cost - CellarDisabledCost(&index_path->path)) -
					  (cpu_index_tuple_cost + cpu_operator_cost) * tested_entries(index_path, rows), 0);

	/* The planner has locked the index. */
	index = try_relation_open(index_path->indexinfo->indexoid, NoLock);
	if (index != NULL)
	{
		costs.cached = cellar_cached_pages(index);
		relation_close(index, NoLock);
	}
	costs.unit_factor = 1;
	return corrected_cost(&correct->table, pages, Min(rows, pages / Max(correct->table.seq_page, 0.01)),
						  index_only ? 0 : row_cost * rows / divisor) - pages +
		corrected_cost(&costs, index_pages, index_pages / Max(costs.random_page, 0.01),
					   index_only ? row_cost * tested_entries(index_path, rows) / divisor : 0) - index_pages;
}

static void
correct_paths(const Correction *correct, bool partial)
{
	RelOptInfo *rel = correct->rel;
	List	   *paths = partial ? rel->partial_pathlist : rel->pathlist;
	ListCell   *lc;

	/* The lists are sorted by cost. */
	if (partial)
		rel->partial_pathlist = NIL;
	else
		rel->pathlist = NIL;
	foreach(lc, paths)
	{
		Path	   *path = lfirst(lc);

		path->total_cost += correction(correct, path);
		path->startup_cost = Min(path->startup_cost, path->total_cost);
		if (partial)
			add_partial_path(rel, path);
		else
			add_path(rel, path);
	}
}

/*
 * Corrects the costs of the index scans of a table on a cell.
 */
void
cellar_correct_index_scans(PlannerInfo *root, RelOptInfo *rel, Relation relation)
{
	Correction	correct = {.rel = rel};
	QualCost	quals;

	if (rel->indexlist == NIL)
		return;
	set_page_costs(&correct.table, rel, relation);
	if (root->query_level > 1 && cellar_is_correlated(root))
		correct.table.unit_factor = 1;
	cost_qual_eval(&quals, rel->baserestrictinfo, root);
	correct.row_cost = cpu_tuple_cost + quals.per_tuple;
	correct_paths(&correct, false);
	correct_paths(&correct, true);
}
