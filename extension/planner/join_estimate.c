/*-------------------------------------------------------------------------
 *
 * join_estimate.c
 *	  Corrects PostgreSQL's estimates of joins by all columns of a unique
 *	  index with several columns, and of antijoins with a comparison.
 *
 * PostgreSQL multiplies the selectivities of the equalities, as if the columns
 * were independent, unless a foreign key says that each row of the other table
 * has a partner.  For TPC-H's lineitem and partsupp, which are joined by
 * (partkey, suppkey), the estimate is 2,400 rows, but the join has 6 million.
 * Nested loops above such a join look cheap, but take most of the time.
 *
 * For an antijoin by an equality and a comparison, as in
 * NOT EXISTS (... WHERE l3.orderkey = l1.orderkey AND l3.suppkey <> l1.suppkey),
 * PostgreSQL ignores the comparison: it estimates the rows without an equal row,
 * often a single one.
 *
 * The corrected estimate assumes that each row of the other table has a partner,
 * as other systems do.  The correction is used where a lookup join competes with
 * PostgreSQL's plans of the same query, and for the sizes of lookup tables.
 * Antijoins are also corrected while PostgreSQL plans joins, so that the joins
 * above are planned for the corrected number of rows.
 *
 * There, the costs of Smart Scans are corrected too: while PostgreSQL chooses
 * joins, a Smart Scan's cost may assume a join filter (cost.c), but only a scan
 * on the outer side of a selective hash join gets a join filter.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/amapi.h"
#include "access/table.h"
#include "nodes/pathnodes.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "parser/parsetree.h"
#include "utils/rel.h"
#include "utils/spccache.h"

#include "cellar/compat.h"
#include "cellar/planner.h"

/* An antijoin with a comparison is assumed to keep at least this fraction of its rows. */
#define ANTIJOIN_FRACTION_MIN	0.1

/* Returns whether a foreign key of `other` that refers to `rel` is known to the planner. */
static bool
has_foreign_key(PlannerInfo *root, const RelOptInfo *other, const RelOptInfo *rel)
{
	ListCell   *lc;

	foreach(lc, root->fkey_list)
	{
		ForeignKeyOptInfo *key = lfirst_node(ForeignKeyOptInfo, lc);

		if (key->con_relid == other->relid && key->ref_relid == rel->relid)
			return true;
	}
	return false;
}

/* Returns the column of the relation that an equality of two columns compares, or 0. */
static AttrNumber
compared_column(const RestrictInfo *rinfo, const RelOptInfo *rel)
{
	OpExpr	   *clause = (OpExpr *) rinfo->clause;
	ListCell   *lc;

	if (!IsA(clause, OpExpr))
		return 0;
	foreach(lc, clause->args)
	{
		Node	   *arg = lfirst(lc);

		if (IsA(arg, RelabelType))
			arg = (Node *) ((RelabelType *) arg)->arg;
		if (IsA(arg, Var) && ((Var *) arg)->varno == rel->relid)
			return ((Var *) arg)->varattno;
	}
	return 0;
}

/*
 * Returns by which factor the join of the relation with `other` is
 * underestimated because all columns of a unique index are compared.
 */
static double
pair_factor(PlannerInfo *root, RelOptInfo *other, RelOptInfo *rel)
{
	SpecialJoinInfo sjinfo = {
		.type = T_SpecialJoinInfo,
		.min_lefthand = other->relids,
		.min_righthand = rel->relids,
		.syn_lefthand = other->relids,
		.syn_righthand = rel->relids,
		.jointype = JOIN_INNER
	};
	List	   *clauses = NIL;
	double		factor = 1;
	ListCell   *lc;

	if (!rel->has_eclass_joins || !other->has_eclass_joins)
		return 1;
	foreach(lc, rel->indexlist)
	{
		IndexOptInfo *index = lfirst_node(IndexOptInfo, lc);
		double		selectivity = 1;
		int			column;

		if (!index->unique || !index->immediate || index->nkeycolumns < 2 || index->indexprs != NIL ||
			(index->indpred != NIL && !index->predOK))
			continue;
		if (clauses == NIL)
			clauses = CellarJoinEqualities(root, bms_union(other->relids, rel->relids), other->relids, rel, NULL);
		for (column = 0; column < index->nkeycolumns; column++)
		{
			ListCell   *clause;
			bool		found = false;

			foreach(clause, clauses)
			{
				RestrictInfo *rinfo = lfirst_node(RestrictInfo, clause);

				if (compared_column(rinfo, rel) != index->indexkeys[column])
					continue;
				selectivity *= clause_selectivity(root, (Node *) rinfo, 0, JOIN_INNER, &sjinfo);
				found = true;
				break;
			}
			if (!found)
				break;
		}
		if (column == index->nkeycolumns && selectivity > 0 && rel->tuples > 0)
			factor = Max(factor, 1 / (rel->tuples * selectivity));
	}
	return factor;
}

/*
 * Returns whether one of the tables is on the right side of a semijoin or an
 * antijoin, and the other is not.  Such a join returns at most the rows of its
 * left side.
 */
static bool
are_semijoined(PlannerInfo *root, int relid, int other)
{
	ListCell   *lc;

	foreach(lc, root->join_info_list)
	{
		SpecialJoinInfo *sjinfo = lfirst_node(SpecialJoinInfo, lc);

		if ((sjinfo->jointype == JOIN_SEMI || sjinfo->jointype == JOIN_ANTI) &&
			bms_is_member(relid, sjinfo->syn_righthand) != bms_is_member(other, sjinfo->syn_righthand))
			return true;
	}
	return false;
}

/* Returns whether a clause between the relation and another one is no equality. */
static bool
has_comparison(const RelOptInfo *rel)
{
	ListCell   *lc;

	foreach(lc, rel->joininfo)
	{
		if (!OidIsValid(lfirst_node(RestrictInfo, lc)->hashjoinoperator))
			return true;
	}
	return false;
}

/*
 * Returns by which factor the rows of a join are underestimated because it contains
 * an antijoin with a comparison.
 */
static double
antijoin_factor(PlannerInfo *root, Relids relids)
{
	double		factor = 1;
	ListCell   *lc;

	foreach(lc, root->join_info_list)
	{
		SpecialJoinInfo *sjinfo = lfirst_node(SpecialJoinInfo, lc);
		const RelOptInfo *right;
		const RelOptInfo *joined;
		const RelOptInfo *left;
		Relids		rest;

		if (sjinfo->jointype != JOIN_ANTI || !bms_is_subset(sjinfo->min_lefthand, relids) ||
			!bms_is_subset(sjinfo->syn_righthand, relids))
			continue;
		right = cellar_find_rel(root, sjinfo->syn_righthand);
		if (right == NULL || !has_comparison(right))
			continue;
		rest = bms_difference(relids, sjinfo->syn_righthand);
		if (CellarOuterJoinRelid(sjinfo) != 0)
			rest = bms_del_member(rest, CellarOuterJoinRelid(sjinfo));
		joined = cellar_find_rel(root, relids);
		left = cellar_find_rel(root, rest);
		if (joined != NULL && left != NULL && joined->rows > 0)
			factor = Max(factor, left->rows * ANTIJOIN_FRACTION_MIN / joined->rows);
	}
	return factor;
}

/* Returns whether a table of the relation is on a cell, and its estimates may be corrected. */
static bool
is_on_cell(PlannerInfo *root, const RelOptInfo *rel)
{
	int			relid = -1;

	while ((relid = bms_next_member(rel->relids, relid)) >= 0)
	{
		RelOptInfo *base = root->simple_rel_array[relid];
		Relation	relation;
		bool		suitable;

		if (base == NULL || !cellar_is_scannable(base, planner_rt_fetch(relid, root)))
			continue;
		relation = table_open(planner_rt_fetch(relid, root)->relid, NoLock);
		suitable = cellar_scan_unsuitable(root, base, planner_rt_fetch(relid, root), relation) == NULL;
		table_close(relation, NoLock);
		if (suitable)
			return true;
	}
	return false;
}

/*
 * Corrects the rows of a path of an antijoin.  The rows of the left side are those
 * of one process if the path is partial, and of one execution if it has parameters.
 */
static void
correct_rows(Path *path, const RelOptInfo *left_side)
{
	const JoinPath *join = (const JoinPath *) path;
	double		rows;

	if (!IsA(path, NestPath) && !IsA(path, MergePath) && !IsA(path, HashPath))
		return;
	/* A right antijoin has the left side as its inner one. */
	rows = (bms_equal(join->outerjoinpath->parent->relids, left_side->relids) ? join->outerjoinpath : join->innerjoinpath)->rows;
	rows = clamp_row_est(rows * ANTIJOIN_FRACTION_MIN);
	if (rows <= path->rows)
		return;
	path->total_cost += cpu_tuple_cost * (rows - path->rows);
	path->rows = rows;
	if (path->param_info != NULL)
		path->param_info->ppi_rows = Max(path->param_info->ppi_rows, rows);
}

/* For list_sort(): the order of add_path(). */
static int
compare_costs(const ListCell *a, const ListCell *b)
{
	const Path *left = lfirst(a);
	const Path *right = lfirst(b);

#if PG_VERSION_NUM >= 180000
	if (left->disabled_nodes != right->disabled_nodes)
		return left->disabled_nodes < right->disabled_nodes ? -1 : 1;
#endif
	return (left->total_cost > right->total_cost) - (left->total_cost < right->total_cost);
}

/*
 * Corrects the rows of an antijoin with a comparison, and of its paths, before
 * PostgreSQL estimates the joins above: if it expects one row, it executes index
 * scans for each of the rows.
 */
void
cellar_correct_antijoin(PlannerInfo *root, RelOptInfo *joinrel, const RelOptInfo *outer, const RelOptInfo *inner)
{
	double		rows = clamp_row_est(outer->rows * ANTIJOIN_FRACTION_MIN);
	ListCell   *lc;

	if (rows <= joinrel->rows || !has_comparison(inner) || !is_on_cell(root, inner))
		return;
	foreach(lc, list_concat_copy(joinrel->pathlist, joinrel->partial_pathlist))
		correct_rows(lfirst(lc), outer);
	joinrel->rows = rows;
	list_sort(joinrel->pathlist, compare_costs);
	list_sort(joinrel->partial_pathlist, compare_costs);
}

/* Returns by which factor the rows of a join are underestimated. */
static double
underestimate(PlannerInfo *root, Relids relids)
{
	double		factor;
	int			relid = -1;

	if (bms_membership(relids) != BMS_MULTIPLE)
		return 1;
	factor = antijoin_factor(root, relids);
	while ((relid = bms_next_member(relids, relid)) >= 0)
	{
		RelOptInfo *rel = root->simple_rel_array[relid];
		double		most = 1;
		int			other = -1;

		/* NULL: an outer join */
		if (rel == NULL || rel->indexlist == NIL)
			continue;
		while ((other = bms_next_member(relids, other)) >= 0)
		{
			RelOptInfo *partner = root->simple_rel_array[other];
			double		pair;
			double		reverse;

			if (other == relid || partner == NULL || are_semijoined(root, relid, other) || has_foreign_key(root, partner, rel) ||
				has_foreign_key(root, rel, partner))
				continue;
			pair = pair_factor(root, partner, rel);
			reverse = pair > 1 ? pair_factor(root, rel, partner) : 1;
			if (reverse > 1)
			{
				/* Both tables have the index: count the pair once. */
				if (other < relid)
					continue;
				pair = Min(pair, reverse);
			}
			most = Max(most, pair);
		}
		factor *= most;
	}
	return factor;
}

/* Returns the corrected number of rows of a relation. */
double
cellar_join_rows(PlannerInfo *root, const RelOptInfo *rel)
{
	return IS_JOIN_REL(rel) ? clamp_row_est(rel->rows * underestimate(root, rel->relids)) : rel->rows;
}

/* Returns how many more rows a path returns than PostgreSQL has estimated. */
static double
more_rows(PlannerInfo *root, const Path *path)
{
	return IS_JOIN_REL(path->parent) ? path->rows * (underestimate(root, path->parent->relids) - 1) : 0;
}

/* Returns the cost of executing the inner side of a nested loop for another outer row. */
static Cost
rescan_cost(const Path *inner)
{
	if (inner->param_info != NULL && !IsA(inner, MemoizePath))
		return inner->total_cost;
	return cpu_tuple_cost + cpu_operator_cost * inner->rows;
}

/*
 * Returns the cost of the rows that the index scan on the inner side of a nested
 * loop returns beyond PostgreSQL's estimate, because the join compares all columns
 * of a unique index of the other table.  Each execution returns at least one row by
 * PostgreSQL's estimate; the other rows are mostly on other pages of the table.  As
 * in cost_index(), they need no other pages if the index has the order of the table.
 */
static Cost
inner_rows_cost(PlannerInfo *root, const NestPath *path)
{
	const Path *outer = path->jpath.outerjoinpath;
	IndexPath  *inner = (IndexPath *) path->jpath.innerjoinpath;
	double		loops = outer->rows + more_rows(root, outer);
	double		rows = path->jpath.path.rows + more_rows(root, &path->jpath.path);
	double		estimate;
	double		selectivity = 0;
	double		correlation = 0;
	double		index_pages = 0;
	double		pages;
	double		random_page;
	Cost		startup = 0;
	Cost		total = 0;

	if (!IsA(inner, IndexPath) || inner->path.param_info == NULL ||
		underestimate(root, path->jpath.path.parent->relids) <= underestimate(root, outer->parent->relids))
		return 0;
	estimate = inner->path.rows * loops;
	if (rows <= estimate)
		return 0;
	((amcostestimate_function) inner->indexinfo->amcostestimate) (root, inner, loops, &startup, &total, &selectivity,
																  &correlation, &index_pages);
	pages = index_pages_fetched(rows, inner->path.parent->pages, inner->indexinfo->pages, root) -
		index_pages_fetched(estimate, inner->path.parent->pages, inner->indexinfo->pages, root);
	if (inner->path.pathtype == T_IndexOnlyScan)
		pages *= 1 - inner->path.parent->allvisfrac;
	get_tablespace_page_costs(inner->path.parent->reltablespace, &random_page, NULL);
	return (1 - correlation * correlation) * random_page * cellar_block_cost(root, inner->path.parent) * Max(pages, 0) +
		(cpu_tuple_cost + cpu_index_tuple_cost) * (rows - estimate);
}

/*
 * Returns the cost of the rows of joins that PostgreSQL has underestimated, and of
 * Smart Scans that get no join filter, in a path.  `filtered` says that a hash
 * join above filters the path's rows.
 */
static Cost
missing_cost(PlannerInfo *root, const Path *path, bool filtered)
{
	const Path *child = NULL;
	Cost		row_cost = cpu_operator_cost;

	check_stack_depth();
	switch (nodeTag(path))
	{
		case T_NestPath:
		case T_HashPath:
		case T_MergePath:
			{
				const JoinPath *join = (const JoinPath *) path;
				double		outer = more_rows(root, join->outerjoinpath);
				double		inner = more_rows(root, join->innerjoinpath);
				bool		filters = IsA(path, HashPath) &&
					(filtered || (CellarDropsOuterRows(join->jointype) &&
								  path->rows <= join->outerjoinpath->rows * CELLAR_JOIN_FILTER_FRACTION_MAX));
				Cost		cost = missing_cost(root, join->outerjoinpath, filters) +
					missing_cost(root, join->innerjoinpath, false) + cpu_tuple_cost * more_rows(root, path);

				if (IsA(path, NestPath))
					return cost + outer * rescan_cost(join->innerjoinpath) + inner_rows_cost(root, (const NestPath *) path);
				return cost + (outer + inner) * cpu_operator_cost * list_length(join->joinrestrictinfo);
			}
		case T_AggPath:
			child = ((const AggPath *) path)->subpath;
			row_cost = cpu_operator_cost * (list_length(((const AggPath *) path)->groupClause) +
											list_length(path->pathtarget->exprs));
			break;
		case T_GroupingSetsPath:
			child = ((const GroupingSetsPath *) path)->subpath;
			row_cost = cpu_operator_cost * list_length(((const GroupingSetsPath *) path)->rollups) *
				list_length(path->pathtarget->exprs);
			break;
		case T_GroupPath:
			child = ((const GroupPath *) path)->subpath;
			break;
		case T_SortPath:
		case T_IncrementalSortPath:
			child = ((const SortPath *) path)->subpath;
			break;
		case T_UpperUniquePath:
			child = ((const UpperUniquePath *) path)->subpath;
			break;
		case T_LimitPath:
			child = ((const LimitPath *) path)->subpath;
			break;
		case T_MaterialPath:
			child = ((const MaterialPath *) path)->subpath;
			break;
		case T_MemoizePath:
			child = ((const MemoizePath *) path)->subpath;
			break;
		case T_GatherPath:
			child = ((const GatherPath *) path)->subpath;
			row_cost = parallel_tuple_cost;
			break;
		case T_GatherMergePath:
			child = ((const GatherMergePath *) path)->subpath;
			row_cost = parallel_tuple_cost;
			break;
		case T_ProjectionPath:
			child = ((const ProjectionPath *) path)->subpath;
			break;
		default:
			return filtered ? 0 : cellar_cost_without_join_filter(path);
	}
	return missing_cost(root, child, filtered) + row_cost * more_rows(root, child);
}

/* Returns what the total cost of a path should be. */
Cost
cellar_corrected_cost(PlannerInfo *root, const Path *path)
{
	return path->total_cost + missing_cost(root, path, false);
}

/* Corrects the costs of an upper relation's paths. */
void
cellar_correct_join_costs(PlannerInfo *root, RelOptInfo *upper_rel)
{
	List	   *paths = upper_rel->pathlist;
	ListCell   *lc;

	upper_rel->pathlist = NIL;
	foreach(lc, paths)
	{
		Path	   *path = lfirst(lc);
		Cost		cost = missing_cost(root, path, false);

		if (path->total_cost > 0)
			path->startup_cost += cost * path->startup_cost / path->total_cost;
		path->total_cost += cost;
		add_path(upper_rel, path);
	}
}
