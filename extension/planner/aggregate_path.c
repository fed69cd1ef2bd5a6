/*-------------------------------------------------------------------------
 *
 * aggregate_path.c
 *	  Offers the planner a Smart Scan whose rows the cell aggregates.
 *
 * The path replaces PostgreSQL's partial aggregation: it outputs group keys
 * and serialized transition states, and PostgreSQL's finalizing aggregation
 * runs above it and evaluates HAVING.  The cell omits groups that the query
 * cannot need; see group_pruning.c.  Several threads of the cell share the
 * scan where PostgreSQL would start parallel workers.
 *
 * If all aggregates of the query ignore duplicates, as count(DISTINCT x), the
 * cell removes duplicates of group keys and arguments instead, and PostgreSQL
 * aggregates the remaining rows.
 *
 * Below the path is PostgreSQL's own partial aggregation over a plain Smart
 * Scan, for rows that the cell does not aggregate; see executor/aggregate.c.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "nodes/nodeFuncs.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "optimizer/planner.h"
#include "optimizer/prep.h"
#include "optimizer/tlist.h"
#include "parser/parse_oper.h"
#include "utils/rel.h"
#include "utils/selfuncs.h"

#include "cellar.h"
#include "cellar/cell.h"
#include "cellar/compat.h"
#include "cellar/planner.h"

/*
 * Removing duplicates in the cell pays if each row occurs this often on
 * average.  PostgreSQL's costs do not contain the sort of an aggregate with
 * DISTINCT, so that comparing them does not show this.
 */
#define DUPLICATES_MIN	3

/*
 * As make_partial_grouping_target, which is not exported: the grouping
 * columns, and aggregates in partial mode.
 */
static PathTarget *
partial_target(PlannerInfo *root, PathTarget *grouping_target, List *group_clause, Node *having)
{
	PathTarget *target = create_empty_pathtarget();
	List	   *others = NIL;
	ListCell   *lc;

	foreach(lc, grouping_target->exprs)
	{
		Index		sortgroupref = get_pathtarget_sortgroupref(grouping_target, foreach_current_index(lc));

		if (sortgroupref != 0 &&
			get_sortgroupref_clause_noerr(sortgroupref, group_clause) != NULL)
			add_column_to_pathtarget(target, lfirst(lc), sortgroupref);
		else
			others = lappend(others, lfirst(lc));
	}
	if (having != NULL)
		others = lappend(others, having);
	add_new_columns_to_pathtarget(target,
								  pull_var_clause((Node *) others,
												  PVC_INCLUDE_AGGREGATES |
												  PVC_RECURSE_WINDOWFUNCS |
												  PVC_INCLUDE_PLACEHOLDERS));
	foreach(lc, target->exprs)
	{
		if (IsA(lfirst(lc), Aggref))
		{
			Aggref	   *aggref = makeNode(Aggref);

			memcpy(aggref, lfirst(lc), sizeof(Aggref));
			mark_partial_aggref(aggref, AGGSPLIT_INITIAL_SERIAL);
			lfirst(lc) = aggref;
		}
	}
	return set_pathtarget_cost_width(root, target);
}

/*
 * Creates and costs the path.  Its child is the partial aggregation of rows
 * that the cell passes through, which are expected to be few.
 */
static Path *
create_aggregate_path(PlannerInfo *root, const CellarAggregateSpec *aggregation)
{
	RelOptInfo *rel = aggregation->scan.rel;
	Path	   *scan = cellar_create_scan_path(root, &aggregation->scan);
	Path	   *rest;
	CustomPath *cpath = makeNode(CustomPath);
	Path	   *path = &cpath->path;

	path->pathtype = T_CustomScan;
	path->parent = rel;
	path->pathtarget = aggregation->target;
	path->param_info = NULL;
	path->parallel_aware = false;
	path->parallel_safe = rel->consider_parallel;
	path->parallel_workers = 0;
	path->pathkeys = NIL;
	cpath->flags = 0;
	cpath->methods = &cellar_aggregate_path_methods;
	if (aggregation->pruning != NULL)
		cpath->custom_private = cellar_group_pruning_private(aggregation->pruning);

	cellar_cost_aggregate(root, path, aggregation);

	/* EXPLAIN shows the cost at the scan too, where the time is spent. */
	scan->rows = 1;
	scan->startup_cost = path->startup_cost;
	scan->total_cost = path->startup_cost;
	((CustomPath *) scan)->flags = CUSTOMPATH_SUPPORT_PROJECTION;
	if (aggregation->distinct)
		scan->pathtarget = aggregation->target;
	rest = (Path *) create_agg_path(root, rel, scan, aggregation->target,
									aggregation->group_clause == NIL ? AGG_PLAIN : AGG_HASHED,
									aggregation->distinct ? AGGSPLIT_SIMPLE : AGGSPLIT_INITIAL_SERIAL,
									aggregation->group_clause, NIL,
									&aggregation->partial_costs, 1);
	rest->startup_cost = path->startup_cost;
	rest->total_cost = path->startup_cost;
	cpath->custom_paths = list_make1(rest);
	return path;
}

/*
 * Creates the path for an upper relation.  Returns NULL, and notes that, if
 * aggregating the rows of an index-only scan is cheaper.
 */
static Path *
offer_aggregate_path(PlannerInfo *root, const CellarAggregateSpec *aggregation, RelOptInfo *upper_rel)
{
	Path	   *path = create_aggregate_path(root, aggregation);

	if (cellar_index_only_scan_is_cheaper(aggregation->scan.rel, path->total_cost,
										  cellar_aggregated_row_cost(aggregation)))
	{
		cellar_note_aggregate(aggregation->relid, 0, NULL, "an index-only scan is cheaper");
		return NULL;
	}

	/* A cost factor of 0 prefers the Smart Scan: drop all other paths. */
	if (cellar_cost_factor == 0)
		upper_rel->pathlist = NIL;
	return path;
}

/* Adds paths that finalize the partial states of a path. */
static void
add_final_paths(PlannerInfo *root, RelOptInfo *grouped_rel,
				const CellarAggregateSpec *aggregation,
				Path *path, GroupPathExtraData *extra)
{
	List	   *having = (List *) extra->havingQual;
	double		groups = Min(aggregation->groups, path->rows);

	if (aggregation->group_clause == NIL)
	{
		add_path(grouped_rel, (Path *)
				 create_agg_path(root, grouped_rel, path, grouped_rel->reltarget, AGG_PLAIN,
								 AGGSPLIT_FINAL_DESERIAL, NIL, having,
								 &aggregation->final_costs, 1));
		return;
	}
	if (extra->flags & GROUPING_CAN_USE_HASH)
		add_path(grouped_rel, (Path *)
				 create_agg_path(root, grouped_rel, path, grouped_rel->reltarget, AGG_HASHED,
								 AGGSPLIT_FINAL_DESERIAL, aggregation->group_clause, having,
								 &aggregation->final_costs, groups));
	if (extra->flags & GROUPING_CAN_USE_SORT)
	{
		Path	   *sorted = path;

		/* Constant group keys need no sort. */
		if (root->group_pathkeys != NIL)
			sorted = (Path *) create_sort_path(root, grouped_rel, path, root->group_pathkeys, -1.0);

		add_path(grouped_rel, (Path *)
				 create_agg_path(root, grouped_rel, sorted, grouped_rel->reltarget, AGG_SORTED,
								 AGGSPLIT_FINAL_DESERIAL, aggregation->group_clause, having,
								 &aggregation->final_costs, groups));
	}
}

/* Returns why the cell cannot contribute to the aggregation of the query, or NULL. */
static const char *
query_unsuitable(PlannerInfo *root)
{
	Query	   *parse = root->parse;

	if (parse->groupingSets != NIL)
		return "the query has grouping sets";
	if (parse->hasTargetSRFs)
		return "the select list contains a set-returning function";
	if (parse->groupClause != NIL && CellarGroupClause(root) == NIL)
		return "the group keys cannot be hashed";
	return NULL;
}

/*
 * Fills the rest of *aggregation, whose target and group_clause are set.
 * Returns false, and notes why, when the cell cannot aggregate the rows.
 */
static bool
init_aggregation(CellarAggregateSpec *aggregation, PlannerInfo *root, RelOptInfo *rel,
				 Relation relation, List *targetlist)
{
	CellarScanSpec *scan = &aggregation->scan;

	aggregation->relid = RelationGetRelid(relation);
	if (!cellar_restrictions_offloadable(rel, &scan->storage))
	{
		cellar_note_aggregate(aggregation->relid, 0, NULL,
							  "a condition of the scan is not offloadable");
		return false;
	}
	if (!cellar_target_offloadable(aggregation->target, rel, aggregation->relid))
		return false;

	scan->rel = rel;
	scan->stored_fraction = cellar_stored_fraction(relation);
	scan->threads = cellar_scan_threads(rel);
	aggregation->groups = 1;
	if (aggregation->group_clause != NIL)
		aggregation->groups =
			estimate_num_groups(root,
								aggregation->distinct ? aggregation->target->exprs :
								get_sortgrouplist_exprs(aggregation->group_clause, targetlist),
								rel->rows, NULL, NULL);
	return true;
}

/*
 * Adds an expression to the target and to the clause, unless it is there.
 * Returns false if the expression cannot be a key.
 */
static bool
add_key(PathTarget *target, List **clause, Index *last_ref, Expr *expr)
{
	SortGroupClause *key;
	Oid			less;
	bool		hashable;

	if (IsA(expr, Const) || list_member(target->exprs, expr))
		return true;
	key = makeNode(SortGroupClause);
	get_sort_group_operators(exprType((Node *) expr), false, true, false, &less, &key->eqop, NULL, &hashable);
	if (!hashable)
		return false;
	key->tleSortGroupRef = ++*last_ref;
	key->sortop = less;
	key->hashable = true;
	add_column_to_pathtarget(target, expr, key->tleSortGroupRef);
	*clause = lappend(*clause, key);
	return true;
}

/* Returns whether the expression is a column or a constant, perhaps relabeled. */
static bool
raises_no_error(Expr *expr)
{
	while (IsA(expr, RelabelType))
		expr = ((RelabelType *) expr)->arg;
	return IsA(expr, Var) || IsA(expr, Const);
}

/*
 * Adds the arguments and the filter of an aggregate as keys.  Returns false if
 * duplicates matter to the aggregate, or an expression cannot be a key.
 */
static bool
add_aggregate_keys(PathTarget *target, List **clause, Index *last_ref, Aggref *aggref)
{
	ListCell   *lc;

	if (!cellar_ignores_duplicates(aggref))
		return false;
	foreach(lc, aggref->args)
	{
		Expr	   *argument = lfirst_node(TargetEntry, lc)->expr;

		/*
		 * PostgreSQL does not evaluate the arguments of rows that fail the
		 * filter, so these must not raise errors.
		 */
		if (aggref->aggfilter != NULL && !raises_no_error(argument))
			return false;
		if (!add_key(target, clause, last_ref, argument))
			return false;
	}
	return aggref->aggfilter == NULL || add_key(target, clause, last_ref, aggref->aggfilter);
}

/*
 * Sets the target and group clause of an aggregation that removes duplicates:
 * the group keys, and the arguments and filters of all aggregates.  Returns
 * false if duplicates matter to an aggregate.
 */
static bool
init_deduplication(CellarAggregateSpec *aggregation, PlannerInfo *root, PathTarget *grouping_target, Node *having)
{
	List	   *group_clause = CellarGroupClause(root);
	PathTarget *target = create_empty_pathtarget();
	List	   *others = NIL;
	Index		last_ref = 0;
	ListCell   *lc;

	foreach(lc, root->parse->targetList)
		last_ref = Max(last_ref, lfirst_node(TargetEntry, lc)->ressortgroupref);
	foreach(lc, grouping_target->exprs)
	{
		Index		ref = get_pathtarget_sortgroupref(grouping_target, foreach_current_index(lc));
		SortGroupClause *key = ref == 0 ? NULL : get_sortgroupref_clause_noerr(ref, group_clause);

		if (key == NULL)
			others = lappend(others, lfirst(lc));
		else
		{
			add_column_to_pathtarget(target, lfirst(lc), ref);
			aggregation->group_clause = lappend(aggregation->group_clause, key);
		}
	}
	if (having != NULL)
		others = lappend(others, having);
	others = pull_var_clause((Node *) others,
							 PVC_INCLUDE_AGGREGATES | PVC_RECURSE_WINDOWFUNCS | PVC_INCLUDE_PLACEHOLDERS);
	foreach(lc, others)
	{
		Expr	   *expr = lfirst(lc);

		if (IsA(expr, Aggref) ?
			!add_aggregate_keys(target, &aggregation->group_clause, &last_ref, (Aggref *) expr) :
			!add_key(target, &aggregation->group_clause, &last_ref, expr))
			return false;
	}
	if (aggregation->group_clause == NIL || !grouping_is_hashable(aggregation->group_clause))
		return false;
	aggregation->target = set_pathtarget_cost_width(root, target);
	aggregation->distinct = true;
	return true;
}

/*
 * Estimates the number of different rows, as if the columns were independent.
 * For several columns of a table, estimate_num_groups returns at most a tenth of
 * its rows.
 */
static double
count_combinations(PlannerInfo *root, RelOptInfo *rel, List *exprs)
{
	double		combinations = 1;
	ListCell   *lc;

	foreach(lc, exprs)
		combinations *= estimate_num_groups(root, list_make1(lfirst(lc)), rel->rows, NULL, NULL);
	return combinations;
}

/* Adds a path that aggregates rows without duplicates. */
static void
add_deduplicated_path(PlannerInfo *root, RelOptInfo *rel, Relation relation,
					  RelOptInfo *grouped_rel, GroupPathExtraData *extra)
{
	CellarAggregateSpec aggregation = {0};
	List	   *group_clause = CellarGroupClause(root);
	double		groups = 1;
	Path	   *path;

	if (!init_deduplication(&aggregation, root, grouped_rel->reltarget, extra->havingQual) ||
		(group_clause != NIL && (extra->flags & GROUPING_CAN_USE_SORT) == 0))
	{
		cellar_note_aggregate(RelationGetRelid(relation), 0, NULL,
							  "an aggregate uses DISTINCT or ORDER BY, or does not support partial aggregation");
		return;
	}
	if (!init_aggregation(&aggregation, root, rel, relation, extra->targetList))
		return;
	if (cellar_cost_factor > 0 && count_combinations(root, rel, aggregation.target->exprs) * DUPLICATES_MIN > rel->rows)
	{
		cellar_note_aggregate(RelationGetRelid(relation), 0, NULL,
							  "the rows have few duplicates for an aggregate with DISTINCT");
		return;
	}
	path = offer_aggregate_path(root, &aggregation, grouped_rel);
	if (path == NULL)
		return;
	if (group_clause != NIL)
		groups = estimate_num_groups(root, get_sortgrouplist_exprs(group_clause, extra->targetList), path->rows, NULL, NULL);
	get_agg_clause_costs(root, AGGSPLIT_SIMPLE, &aggregation.final_costs);

	/*
	 * Since PostgreSQL 16, the keys include the arguments of aggregates that
	 * need sorted input.
	 */
	if (root->group_pathkeys != NIL)
		path = (Path *) create_sort_path(root, grouped_rel, path, root->group_pathkeys, -1.0);
	add_path(grouped_rel, (Path *)
			 create_agg_path(root, grouped_rel, path, grouped_rel->reltarget,
							 group_clause == NIL ? AGG_PLAIN : AGG_SORTED, AGGSPLIT_SIMPLE,
							 group_clause, (List *) extra->havingQual, &aggregation.final_costs, groups));
}

/*
 * Adds paths for GROUP BY, or for aggregates over the whole table.
 */
void
cellar_add_grouped_paths(PlannerInfo *root, RelOptInfo *rel, Relation relation,
						 RelOptInfo *grouped_rel, GroupPathExtraData *extra)
{
	const char *reason = query_unsuitable(root);
	CellarAggregateSpec aggregation = {.group_clause = CellarGroupClause(root)};
	Path	   *path;

	if (reason != NULL)
	{
		cellar_note_aggregate(RelationGetRelid(relation), 0, NULL, reason);
		return;
	}
	if ((extra->flags & GROUPING_CAN_PARTIAL_AGG) == 0)
	{
		add_deduplicated_path(root, rel, relation, grouped_rel, extra);
		return;
	}
	if (aggregation.group_clause != NIL && (extra->flags & GROUPING_CAN_USE_HASH) == 0)
	{
		cellar_note_aggregate(RelationGetRelid(relation), 0, NULL, "the group keys cannot be hashed");
		return;
	}
	aggregation.target = partial_target(root, grouped_rel->reltarget, aggregation.group_clause,
										extra->havingQual);
	if (!init_aggregation(&aggregation, root, rel, relation, extra->targetList))
		return;
	get_agg_clause_costs(root, AGGSPLIT_INITIAL_SERIAL, &aggregation.partial_costs);
	get_agg_clause_costs(root, AGGSPLIT_FINAL_DESERIAL, &aggregation.final_costs);
	aggregation.pruning = cellar_choose_group_pruning(root, &aggregation, grouped_rel, (List *) extra->havingQual);

	path = offer_aggregate_path(root, &aggregation, grouped_rel);
	if (path != NULL)
		add_final_paths(root, grouped_rel, &aggregation, path, extra);
}

/*
 * Adds a path for SELECT DISTINCT: groups without aggregates, which a hash
 * aggregation above merges.
 */
void
cellar_add_distinct_path(PlannerInfo *root, RelOptInfo *rel, Relation relation,
						 RelOptInfo *distinct_rel)
{
	Query	   *parse = root->parse;
	CellarAggregateSpec aggregation = {
		.target = rel->reltarget,
		.group_clause = CellarDistinctClause(root),
		.distinct = true
	};
	Path	   *path;

	if (parse->hasDistinctOn || parse->hasTargetSRFs || parse->hasWindowFuncs ||
		aggregation.group_clause == NIL || !enable_hashagg ||
		!grouping_is_hashable(aggregation.group_clause))
		return;
	if (!init_aggregation(&aggregation, root, rel, relation, parse->targetList))
		return;
	path = offer_aggregate_path(root, &aggregation, distinct_rel);
	if (path == NULL)
		return;
	add_path(distinct_rel, (Path *)
			 create_agg_path(root, distinct_rel, path, path->pathtarget, AGG_HASHED,
							 AGGSPLIT_SIMPLE, aggregation.group_clause, NIL, NULL,
							 aggregation.groups));
}
