/*-------------------------------------------------------------------------
 *
 * deduplicated_path.c
 *	  Offers the planner a Smart Scan Aggregate that removes duplicates of group
 *	  keys and arguments, if all aggregates of the query ignore duplicates.
 *	  PostgreSQL aggregates the remaining rows.
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
#include "cellar/compat.h"
#include "cellar/planner.h"

/*
 * Removing duplicates in the cell pays if each row occurs this often on
 * average.
 */
#define DUPLICATES_MIN	3

/*
 * Adds an expression to the target and to the clause, unless it is there.
 * Returns false if the expression cannot be a key.
 */
bool
cellar_add_key(PathTarget *target, List **clause, Index *last_ref, Expr *expr)
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
bool
cellar_raises_no_error(Expr *expr)
{
	while (IsA(expr, RelabelType))
		expr = ((RelabelType *) expr)->arg;
	return IsA(expr, Var) || IsA(expr, Const);
}

/*
 * Adds the group keys of the query to the target and to the clause, and sets
 * *last_ref.  Returns the aggregates and other columns of the grouping target and
 * of HAVING.
 */
List *
cellar_add_group_clause(PathTarget *target, List **clause, Index *last_ref, PlannerInfo *root,
						PathTarget *grouping_target, Node *having)
{
	List	   *group_clause = cellar_group_clause(root);
	List	   *others = NIL;
	ListCell   *lc;

	foreach(lc, root->parse->targetList)
		* last_ref = Max(*last_ref, lfirst_node(TargetEntry, lc)->ressortgroupref);
	foreach(lc, grouping_target->exprs)
	{
		Index		ref = get_pathtarget_sortgroupref(grouping_target, foreach_current_index(lc));
		SortGroupClause *key = ref == 0 ? NULL : get_sortgroupref_clause_noerr(ref, group_clause);

		if (key == NULL)
			others = lappend(others, lfirst(lc));
		else
		{
			add_column_to_pathtarget(target, lfirst(lc), ref);
			*clause = lappend(*clause, key);
		}
	}
	if (having != NULL)
		others = lappend(others, having);
	return pull_var_clause((Node *) others,
						   PVC_INCLUDE_AGGREGATES | PVC_RECURSE_WINDOWFUNCS | PVC_INCLUDE_PLACEHOLDERS);
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
		if (aggref->aggfilter != NULL && !cellar_raises_no_error(argument))
			return false;
		if (!cellar_add_key(target, clause, last_ref, argument))
			return false;
	}
	return aggref->aggfilter == NULL || cellar_add_key(target, clause, last_ref, aggref->aggfilter);
}

/*
 * Sets the target and group clause of an aggregation that removes duplicates:
 * the group keys, and the arguments and filters of all aggregates.  Returns
 * false if duplicates matter to an aggregate.
 */
bool
cellar_init_deduplication(CellarAggregateSpec *aggregation, PlannerInfo *root, PathTarget *grouping_target, Node *having)
{
	PathTarget *target = create_empty_pathtarget();
	Index		last_ref = 0;
	List	   *others;
	ListCell   *lc;

	others = cellar_add_group_clause(target, &aggregation->group_clause, &last_ref, root, grouping_target, having);
	foreach(lc, others)
	{
		Expr	   *expr = lfirst(lc);

		if (IsA(expr, Aggref) ?
			!add_aggregate_keys(target, &aggregation->group_clause, &last_ref, (Aggref *) expr) :
			!cellar_add_key(target, &aggregation->group_clause, &last_ref, expr))
			return false;
	}
	if (aggregation->group_clause == NIL || !grouping_is_hashable(aggregation->group_clause))
		return false;
	aggregation->target = set_pathtarget_cost_width(root, target);
	aggregation->input = aggregation->target;
	aggregation->distinct = true;
	return true;
}

/*
 * Returns whether grouping the rows leaves few enough of them.  PostgreSQL's costs
 * do not show this: they do not contain the sort of an aggregate with DISTINCT,
 * and grouping in two levels costs more than sorting if most rows differ.
 */
bool
cellar_has_duplicates(double rows, double groups)
{
	return cellar_cost_factor == 0 || groups * DUPLICATES_MIN <= rows;
}

/*
 * Estimates the number of different rows of the target, as if its columns were
 * independent.  For several columns of a table, estimate_num_groups returns at most
 * a tenth of the rows.
 */
double
cellar_count_combinations(PlannerInfo *root, const PathTarget *target, double rows)
{
	double		combinations = 1;
	ListCell   *lc;

	foreach(lc, target->exprs)
		combinations *= cellar_num_groups(root, list_make1(lfirst(lc)), rows);
	return combinations;
}

/* Adds a path that aggregates the rows of a path, which have no duplicates. */
void
cellar_add_final_deduplicated_path(PlannerInfo *root, RelOptInfo *grouped_rel, const CellarAggregateSpec *aggregation,
								   Path *path, GroupPathExtraData *extra)
{
	List	   *group_clause = cellar_group_clause(root);
	double		groups = 1;

	if (group_clause != NIL)
		groups = cellar_num_groups(root, get_sortgrouplist_exprs(group_clause, extra->targetList), path->rows);

	/*
	 * Since PostgreSQL 16, the keys include the arguments of aggregates that
	 * need sorted input.
	 */
	if (root->group_pathkeys != NIL)
		path = (Path *) create_sort_path(root, grouped_rel, path, root->group_pathkeys, -1.0);
	add_path(grouped_rel, (Path *)
			 create_agg_path(root, grouped_rel, path, grouped_rel->reltarget,
							 group_clause == NIL ? AGG_PLAIN : AGG_SORTED, AGGSPLIT_SIMPLE,
							 group_clause, (List *) extra->havingQual, &aggregation->final_costs, groups));
}

/*
 * Returns whether PostgreSQL can aggregate rows without duplicates: it sorts them.
 */
bool
cellar_can_sort_groups(PlannerInfo *root, const GroupPathExtraData *extra)
{
	List	   *group_clause = cellar_group_clause(root);

	return group_clause == NIL || ((extra->flags & GROUPING_CAN_USE_SORT) != 0 && grouping_is_sortable(group_clause));
}

/* Adds a path that aggregates rows without duplicates. */
void
cellar_add_deduplicated_path(PlannerInfo *root, RelOptInfo *rel, Relation relation,
							 RelOptInfo *grouped_rel, GroupPathExtraData *extra)
{
	CellarAggregateSpec aggregation = {0};
	ListCell   *lc;

	if (!cellar_init_deduplication(&aggregation, root, grouped_rel->reltarget, extra->havingQual) ||
		!cellar_can_sort_groups(root, extra))
	{
		cellar_note_aggregate(RelationGetRelid(relation), 0, NULL,
							  "an aggregate uses DISTINCT or ORDER BY, or does not support partial aggregation");
		return;
	}
	if (!cellar_init_aggregation(&aggregation, root, rel, relation, extra->targetList))
		return;
	if (!cellar_has_duplicates(rel->rows, cellar_count_combinations(root, aggregation.target, rel->rows)))
	{
		cellar_note_aggregate(RelationGetRelid(relation), 0, NULL,
							  "the rows have few duplicates for an aggregate with DISTINCT");
		return;
	}
	get_agg_clause_costs(root, AGGSPLIT_SIMPLE, &aggregation.final_costs);
	foreach(lc, cellar_offer_aggregate_paths(root, &aggregation, grouped_rel))
		cellar_add_final_deduplicated_path(root, grouped_rel, &aggregation, lfirst(lc), extra);
}
