/*-------------------------------------------------------------------------
 *
 * unit_block_cost.c
 *	  Adds the cost of blocks of compression units to the paths of index scans.
 *
 * PostgreSQL reads a block of a compression unit as the cell rebuilds the page,
 * which takes several times as long as reading a raw block.  The estimates of
 * index scans assume raw blocks, so nested loops that fetch thousands of
 * rows of a compressed table look cheaper than Smart Scans of it.
 *
 * Only tables for which a Smart Scan is offered are corrected.  An index scan
 * that fetches few rows remains much cheaper than any scan of such a table.
 *
 * Correlated subqueries are not corrected.  Their scans are executed once for each
 * row of the outer query, and PostgreSQL's estimate of an execution does not know
 * that earlier ones have read most of the blocks.
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
#include "cellar/planner.h"

/*
 * How much more a block of a compression unit costs than a raw one, in units of
 * seq_page_cost.  For TPC-H's lineitem and orders at QUERY LOW, which store 0.16 and 0.18 of
 * their size, a block takes 53 and 41 instead of 10 microseconds, unless it
 * is in PostgreSQL's buffers or in the kernel's cache: about 15 units, of 2.5
 * microseconds each.  A quarter of the blocks is assumed to be in neither.
 */
#define UNIT_BLOCK_COST		4.0

/* Returns the cost of a block, relative to a block of a raw table. */
static double
block_cost(const RelOptInfo *rel, Relation relation)
{
	double		random_page;
	double		seq_page;

	get_tablespace_page_costs(rel->reltablespace, &random_page, &seq_page);
	if (random_page <= 0)
		return 1;
	return 1 + UNIT_BLOCK_COST * seq_page / random_page * (1 - Min(cellar_stored_fraction(relation), 1));
}

/* As block_cost() for a relation of the query; 1 if it is no table. */
double
cellar_block_cost(PlannerInfo *root, const RelOptInfo *rel)
{
	Relation	relation;
	double		cost = 1;

	if (!IS_SIMPLE_REL(rel) || planner_rt_fetch(rel->relid, root)->rtekind != RTE_RELATION)
		return 1;
	relation = table_open(planner_rt_fetch(rel->relid, root)->relid, NoLock);
	if (cellar_relation_unsuitable(relation) == NULL)
		cost = block_cost(rel, relation);
	table_close(relation, NoLock);
	return cost;
}

/* Returns which part of a path's cost is that of blocks of the table; 0 for paths other than index scans. */
static Cost
blocks_part(const RelOptInfo *rel, const Path *path, Cost row_cost)
{
	Selectivity selectivity;
	Cost		cost;

	if (IsA(path, IndexPath))
	{
		selectivity = ((const IndexPath *) path)->indexselectivity;
		cost = path->total_cost - ((const IndexPath *) path)->indextotalcost;
	}
	else if (IsA(path, BitmapHeapPath))
	{
		Cost		index_cost;

		cost_bitmap_tree_node(((const BitmapHeapPath *) path)->bitmapqual, &index_cost, &selectivity);
		cost = path->total_cost - index_cost;
	}
	else
		return 0;
	return Max(cost - row_cost * selectivity * rel->tuples, 0);
}

static void
correct_paths(RelOptInfo *rel, bool partial, double factor, Cost row_cost)
{
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

		path->total_cost += (factor - 1) * blocks_part(rel, path, row_cost);
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
	double		factor = block_cost(rel, relation);
	QualCost	quals;

	if (factor <= 1 || (root->query_level > 1 && cellar_is_correlated(root)))
		return;
	cost_qual_eval(&quals, rel->baserestrictinfo, root);
	correct_paths(rel, false, factor, cpu_tuple_cost + quals.per_tuple);
	correct_paths(rel, true, factor, cpu_tuple_cost + quals.per_tuple);
}
