/*-------------------------------------------------------------------------
 *
 * computed_keys_path.c
 *	  Offers the planner a Smart Scan Aggregate for a query with group keys, or
 *	  arguments of min and max, that the cell does not evaluate.
 *
 * The cell groups by the columns of such expressions.  PostgreSQL evaluates each
 * expression once per group of the cell, and its finalizing aggregation combines
 * the states of the cell's groups that have equal keys:
 *
 *	 Finalize HashAggregate				group key: regexp_replace(url, ...)
 *	   ->	Smart Scan Aggregate		cell group key: url
 *
 * The partial state of min, max, bool_and or bool_or after equal values is the
 * value.  If the argument of such an aggregate is a function of the cell's group
 * keys, Smart Scan Aggregate computes the argument as the state.
 *
 * Equal values of a column that the cell groups by have the same bytes, so the
 * expression has the same result for all rows of a group of the cell.  This is
 * not true of functions that depend on how a value is stored; queries with these
 * are not offloaded.  Equal results of the expression must have the same bytes,
 * too, because the order of the groups decides which of them the query returns.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/tlist.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "utils/selfuncs.h"

#include "cellar.h"
#include "cellar/compat.h"
#include "cellar/planner.h"

/*
 * Columns have few values if a value has this many rows on average.  To interpret an
 * expression for a row takes about as long as PostgreSQL takes for a group.
 */
#define FEW_VALUES_SHARE	100

/* Returns whether the function's result depends on how its argument is stored. */
static bool
depends_on_storage(Oid function, void *context)
{
	switch (function)
	{
		case F_PG_COLUMN_SIZE:
		case F_PG_COLUMN_COMPRESSION:
			return true;
		default:
			return false;
	}
}

static bool
depends_on_storage_walker(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (check_functions_in_node(node, depends_on_storage, NULL))
		return true;
	return expression_tree_walker(node, depends_on_storage_walker, context);
}

/*
 * Adds the columns of an expression as group keys of the cell.  Returns false if
 * the cell cannot group by a column, or if the expression can have different
 * results for equal columns.
 */
static bool
add_columns(PathTarget *target, List **clause, Index *last_ref, Node *expr, RelOptInfo *rel)
{
	ListCell   *lc;

	if (contain_agg_clause(expr) || contain_volatile_functions(expr) || contain_subplans(expr) ||
		depends_on_storage_walker(expr, NULL))
		return false;
	foreach(lc, pull_var_clause(expr, PVC_INCLUDE_PLACEHOLDERS))
	{
		if (!IsA(lfirst(lc), Var) || !cellar_key_offloadable(lfirst(lc), rel) ||
			!cellar_add_key(target, clause, last_ref, lfirst(lc)))
			return false;
	}
	return true;
}

/*
 * Returns whether PostgreSQL should compute a key that the cell can compute: the cell
 * would interpret the expression for each row, or compare a value with those of a CASE, and
 * its columns have few values.
 */
static bool
is_better_computed_later(PlannerInfo *root, RelOptInfo *rel, Node *expr)
{
	List	   *columns = pull_var_clause(expr, PVC_INCLUDE_PLACEHOLDERS);
	bool		compares_value = IsA(expr, CaseExpr) && ((CaseExpr *) expr)->arg != NULL;
	ListCell   *lc;

	if (IsA(expr, Var) || !(cellar_is_interpreted(root, expr) || compares_value) || !cellar_has_one_image(expr))
		return false;
	foreach(lc, columns)
	{
		if (!IsA(lfirst(lc), Var) || !cellar_key_offloadable(lfirst(lc), rel))
			return false;
	}
	return columns != NIL && cellar_num_groups(root, columns, rel->rows) * FEW_VALUES_SHARE <= rel->rows;
}

/*
 * Sets the target, the group clause and the values of an aggregation in the cell,
 * from those of a partial aggregation.  Returns false if the cell evaluates the
 * partial aggregation itself, or cannot contribute to it.  If `later`, keys are computed
 * after grouping where that is better.
 */
static bool
init_cell_target(CellarAggregateSpec *aggregation, PlannerInfo *root, RelOptInfo *rel,
				 const CellarAggregateSpec *plain, bool later)
{
	PathTarget *target = create_empty_pathtarget();
	List	   *values = NIL;
	List	   *keys;
	bool		computes = false;
	Index		last_ref = 0;
	ListCell   *lc;

	/* Group keys */
	foreach(lc, plain->target->exprs)
	{
		Node	   *expr = lfirst(lc);
		bool		offloadable;

		if (IsA(expr, Aggref))
		{
			Aggref	   *aggref = (Aggref *) expr;

			if (cellar_partial_aggregate_offloadable(aggref, rel))
				continue;
			if (!cellar_state_is_value(aggref) ||
				!cellar_has_one_image((Node *) linitial_node(TargetEntry, aggref->args)->expr) ||
				!add_columns(target, &aggregation->group_clause, &last_ref, (Node *) aggref->args, rel))
				return false;
			values = lappend(values, aggref);
			continue;
		}
		offloadable = cellar_key_offloadable(expr, rel) && !(later && is_better_computed_later(root, rel, expr));
		computes |= !offloadable;
		if (offloadable ?
			!cellar_add_key(target, &aggregation->group_clause, &last_ref, (Expr *) expr) :
			!(cellar_has_one_image(expr) && add_columns(target, &aggregation->group_clause, &last_ref, expr, rel)))
			return false;
	}
	if ((!computes && values == NIL) || aggregation->group_clause == NIL ||
		!grouping_is_hashable(aggregation->group_clause))
		return false;

	/* Aggregates */
	keys = list_copy(target->exprs);
	aggregation->input = copy_pathtarget(target);
	foreach(lc, plain->target->exprs)
	{
		Aggref	   *aggref = lfirst(lc);

		if (!IsA(aggref, Aggref))
			continue;

		/* The value of a group key need not be sent twice. */
		if (list_member_ptr(values, aggref) ||
			(cellar_state_is_value(aggref) &&
			 list_member(keys, linitial_node(TargetEntry, aggref->args)->expr)))
			aggregation->values = lappend_int(aggregation->values, list_length(target->exprs));
		add_column_to_pathtarget(target, lfirst(lc), 0);
		add_new_columns_to_pathtarget(aggregation->input,
									  pull_var_clause(lfirst(lc), PVC_RECURSE_AGGREGATES | PVC_INCLUDE_PLACEHOLDERS));
	}
	set_pathtarget_cost_width(root, aggregation->input);
	aggregation->target = set_pathtarget_cost_width(root, target);
	aggregation->projects = true;
	return true;
}

/* Returns whether the keys together have more than one group per FEW_VALUES_SHARE rows. */
static bool
has_many_groups(PlannerInfo *root, RelOptInfo *rel, const PathTarget *target)
{
	List	   *keys = NIL;
	ListCell   *lc;

	foreach(lc, target->exprs)
	{
		if (!IsA(lfirst(lc), Aggref))
			keys = lappend(keys, lfirst(lc));
	}
	return cellar_num_groups(root, keys, rel->rows) * FEW_VALUES_SHARE > rel->rows;
}

/*
 * Sets the target and the keys of an aggregation in the cell for a query with expressions
 * that the cell does not evaluate, or that PostgreSQL computes faster after grouping.
 * `plain` has the target, the group clause and the costs of the partial aggregation that
 * is replaced.  Returns false, and leaves *aggregation unchanged, if the cell should
 * compute the partial aggregation itself.
 */
bool
cellar_choose_computed_keys(CellarAggregateSpec *aggregation, PlannerInfo *root, RelOptInfo *rel,
							const CellarAggregateSpec *plain)
{
	CellarAggregateSpec empty = *plain;
	CellarAggregateSpec chosen;

	empty.group_clause = NIL;
	empty.grouping_sets = NIL;
	chosen = empty;
	if (!init_cell_target(&chosen, root, rel, plain, true) || has_many_groups(root, rel, chosen.target))
	{
		chosen = empty;
		if (!init_cell_target(&chosen, root, rel, plain, false))
			return false;
	}
	*aggregation = chosen;
	return true;
}

/*
 * Adds a path for a query with expressions that the cell does not evaluate, or that
 * PostgreSQL computes faster after grouping; see cellar_choose_computed_keys().  Returns
 * false if the cell should compute the partial aggregation itself.
 */
bool
cellar_add_computed_keys_path(PlannerInfo *root, RelOptInfo *rel, Relation relation,
							  RelOptInfo *grouped_rel, GroupPathExtraData *extra,
							  const CellarAggregateSpec *plain)
{
	CellarAggregateSpec aggregation;
	CellarAggregateSpec final = *plain;
	ListCell   *lc;

	if (!cellar_choose_computed_keys(&aggregation, root, rel, plain))
		return false;
	if (!cellar_init_aggregation(&aggregation, root, rel, relation, extra->targetList))
		return true;
	final.groups = 1;
	if (plain->group_clause != NIL)
		final.groups = cellar_num_groups(root, get_sortgrouplist_exprs(plain->group_clause, extra->targetList),
										 rel->rows);
	foreach(lc, cellar_offer_aggregate_paths(root, &aggregation, grouped_rel))
	{
		Path	   *path = (Path *) create_projection_path(root, grouped_rel, lfirst(lc), plain->target);

		cellar_add_final_paths(root, grouped_rel, &final, path, extra);
	}
	return true;
}
