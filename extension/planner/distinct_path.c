/*-------------------------------------------------------------------------
 *
 * distinct_path.c
 *	  Offers the planner Smart Scan Aggregates for aggregates with DISTINCT.
 *
 * If all DISTINCT aggregates of the query have the same argument x, the query is
 * aggregated in two levels:
 *
 *		Distinct Aggregates				names the results as the query does; HAVING
 *		  Finalize Aggregate			by the group keys
 *			Distinct States				turns x into a partial state
 *			  Partial HashAggregate		by group keys and x: combines the groups
 *				Smart Scan Aggregate	by group keys and x
 *
 * The first level groups by the keys and x, and returns partial states of the
 * other aggregates.  The second level combines the states of a group.  All
 * aggregates of an Agg node have the same AggSplit, so a DISTINCT aggregate
 * receives partial states, too: the state after one value of x, which Distinct
 * States computes.  This is exact for aggregates whose states do not depend on
 * the order of values.
 *
 * A filter of the DISTINCT aggregates, which must be the same for all of them,
 * is another key of the first level.  Each value of x occurs at most once per
 * group among the rows that pass the filter.
 *
 * Other queries with DISTINCT aggregates: see deduplicated_path.c.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_aggregate.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/cost.h"
#include "optimizer/optimizer.h"
#include "optimizer/pathnode.h"
#include "optimizer/paths.h"
#include "optimizer/planner.h"
#include "optimizer/prep.h"
#include "optimizer/tlist.h"
#include "utils/fmgroids.h"
#include "utils/rel.h"
#include "utils/selfuncs.h"

#include "cellar.h"
#include "cellar/compat.h"
#include "cellar/executor.h"
#include "cellar/planner.h"

/* Returns how Distinct States computes a state of the aggregate, or CELLAR_STATE_COPIED. */
static CellarDistinctState
state_kind(const Aggref *aggref)
{
	if (aggref->aggkind != AGGKIND_NORMAL || aggref->aggvariadic || list_length(aggref->args) != 1)
		return CELLAR_STATE_COPIED;
	switch (aggref->aggfnoid)
	{
		case F_COUNT_ANY:
			return CELLAR_STATE_COUNT;
		case F_SUM_INT2:
			return CELLAR_STATE_INT2_SUM;
		case F_SUM_INT4:
			return CELLAR_STATE_INT4_SUM;
		case F_AVG_INT2:
			return CELLAR_STATE_INT2_AVG;
		case F_AVG_INT4:
			return CELLAR_STATE_INT4_AVG;
		default:
			return CELLAR_STATE_COPIED;
	}
}

/*
 * Returns a copy of the aggregate without DISTINCT.  Sets *distinct to whether
 * DISTINCT changes the result: not for min, max, bool_and, bool_or and every.
 * Returns NULL if the order of the values matters.
 */
static Aggref *
without_distinct(Aggref *aggref, bool *distinct)
{
	Aggref	   *plain;

	*distinct = false;
	if (aggref->aggdistinct == NIL && aggref->aggorder != NIL)
		return NULL;
	plain = copyObject(aggref);
	plain->aggdistinct = NIL;
	plain->aggorder = NIL;
	CellarClearPresorted(plain);
	*distinct = aggref->aggdistinct != NIL && !cellar_ignores_duplicates(plain);
	return plain;
}

/* Returns the number of an expression in the target, starting at 1, or 0. */
static int
column_number(PathTarget *target, Expr *expr)
{
	ListCell   *lc;

	foreach(lc, target->exprs)
	{
		if (equal(lfirst(lc), expr))
			return foreach_current_index(lc) + 1;
	}
	return 0;
}

/* Returns the number of a group key of the cell, starting at 1: constants are not counted. */
static int
cell_key_number(PathTarget *target, Expr *expr)
{
	int			number = 0;
	ListCell   *lc;

	foreach(lc, target->exprs)
	{
		if (IsA(lfirst(lc), Const))
			continue;
		number++;
		if (equal(lfirst(lc), expr))
			break;
	}
	return number;
}

/* Appends an aggregate to the targets of all levels. */
static void
add_aggregate(CellarDistinctLevels *levels, Aggref *result, Aggref *plain, CellarDistinctState kind)
{
	Aggref	   *partial;

	/* An Agg node numbers its aggregates and their states without gaps. */
	plain->aggno = plain->aggtransno = levels->naggregates++;
	if (kind != CELLAR_STATE_COPIED)
		plain->aggfilter = NULL;
	partial = copyObject(plain);
	mark_partial_aggref(partial, AGGSPLIT_INITIAL_SERIAL);

	if (kind == CELLAR_STATE_COPIED)
	{
		Aggref	   *combining = copyObject(plain);

		combining->args = list_make1(makeTargetEntry((Expr *) partial, 1, NULL, false));
		combining->aggfilter = NULL;
		mark_partial_aggref(combining, CELLAR_AGGSPLIT_COMBINE);
		add_column_to_pathtarget(levels->first, (Expr *) partial, 0);
		add_column_to_pathtarget(levels->combined, (Expr *) combining, 0);
		levels->sources = lappend_int(levels->sources, list_length(levels->combined->exprs));
	}
	else
		levels->sources = lappend_int(levels->sources, column_number(levels->combined, levels->argument));
	levels->kinds = lappend_int(levels->kinds, kind);
	add_column_to_pathtarget(levels->states, (Expr *) partial, 0);
	add_column_to_pathtarget(levels->second, (Expr *) plain, 0);
	add_column_to_pathtarget(levels->results, (Expr *) result, 0);
}

/* Appends a group key to the targets of all levels. */
static void
add_group_keys(CellarDistinctLevels *levels)
{
	ListCell   *lc;

	foreach(lc, levels->first->exprs)
	{
		Index		ref = get_pathtarget_sortgroupref(levels->first, foreach_current_index(lc));

		add_column_to_pathtarget(levels->states, lfirst(lc), ref);
		add_column_to_pathtarget(levels->second, lfirst(lc), ref);
		add_column_to_pathtarget(levels->results, lfirst(lc), ref);
		levels->kinds = lappend_int(levels->kinds, CELLAR_STATE_COPIED);
		levels->sources = lappend_int(levels->sources, foreach_current_index(lc) + 1);
	}
}

/*
 * Records argument and filter of an aggregate with DISTINCT.  Returns false if
 * they differ from those of another one, or if the aggregate is not supported.
 */
static bool
add_distinct_argument(CellarDistinctLevels *levels, const Aggref *aggref)
{
	Expr	   *argument;

	if (state_kind(aggref) == CELLAR_STATE_COPIED)
		return false;
	argument = linitial_node(TargetEntry, aggref->args)->expr;
	if (IsA(argument, Const) || (aggref->aggfilter != NULL && IsA(aggref->aggfilter, Const)))
		return false;

	/* As in add_aggregate_keys. */
	if (aggref->aggfilter != NULL && !cellar_raises_no_error(argument))
		return false;
	if (levels->argument != NULL)
		return equal(levels->argument, argument) && equal(levels->filter_expr, aggref->aggfilter);
	levels->argument = argument;
	levels->filter_expr = aggref->aggfilter;
	return true;
}

/*
 * Sets the targets and clauses of all levels.  Returns false if the query cannot be
 * aggregated in two levels.
 */
static bool
init_levels(CellarDistinctLevels *levels, PlannerInfo *root, PathTarget *grouping_target, Node *having)
{
	PathTarget *first = create_empty_pathtarget();
	List	   *aggregates = NIL;
	Index		last_ref = 0;
	List	   *others;
	ListCell   *lc;

	levels->first = first;
	levels->states = create_empty_pathtarget();
	levels->second = create_empty_pathtarget();
	levels->results = create_empty_pathtarget();

	/* The group keys and columns that depend on them */
	others = cellar_add_group_clause(first, &levels->second_clause, &last_ref, root, grouping_target, having);
	foreach(lc, others)
	{
		if (IsA(lfirst(lc), Aggref))
			aggregates = list_append_unique(aggregates, lfirst(lc));
		else if (!cellar_add_key(first, &levels->second_clause, &last_ref, lfirst(lc)))
			return false;
	}
	add_group_keys(levels);

	/* The DISTINCT argument and filter */
	levels->first_clause = list_copy(levels->second_clause);
	foreach(lc, aggregates)
	{
		bool		distinct;
		Aggref	   *plain = without_distinct(lfirst(lc), &distinct);

		if (plain == NULL || (distinct && !add_distinct_argument(levels, lfirst(lc))))
			return false;
	}
	if (levels->argument == NULL || !cellar_add_key(first, &levels->first_clause, &last_ref, levels->argument) ||
		(levels->filter_expr != NULL && !cellar_add_key(first, &levels->first_clause, &last_ref, levels->filter_expr)) ||
		!grouping_is_hashable(levels->first_clause))
		return false;
	levels->combined = copy_pathtarget(first);
	levels->input = copy_pathtarget(first);
	if (levels->filter_expr != NULL)
		levels->filter = column_number(first, levels->filter_expr);

	/* The other aggregates, then those with DISTINCT */
	levels->only_distinct = true;
	levels->ignores_duplicates = true;
	levels->distinct.nkeys = list_length(levels->states->exprs);
	foreach(lc, levels->states->exprs)
	{
		if (IsA(lfirst(lc), Const))
			levels->distinct.nkeys--;
	}
	levels->distinct.argument = cell_key_number(first, levels->argument);
	if (levels->filter_expr != NULL)
		levels->distinct.filter = cell_key_number(first, levels->filter_expr);
	for (int pass = 0; pass < 2; pass++)
	{
		foreach(lc, aggregates)
		{
			bool		distinct;
			Aggref	   *plain = without_distinct(lfirst(lc), &distinct);

			if (distinct != (pass == 1))
				continue;
			if (distinct)
				levels->distinct.aggregates = lappend(levels->distinct.aggregates, lfirst(lc));
			else
			{
				levels->only_distinct = false;
				levels->ignores_duplicates &= cellar_ignores_duplicates(plain);
				add_new_columns_to_pathtarget(levels->input,
											  pull_var_clause((Node *) plain, PVC_RECURSE_AGGREGATES | PVC_INCLUDE_PLACEHOLDERS));
			}
			add_aggregate(levels, lfirst(lc), plain, distinct ? state_kind(plain) : CELLAR_STATE_COPIED);
		}
	}
	set_pathtarget_cost_width(root, levels->input);
	set_pathtarget_cost_width(root, first);
	set_pathtarget_cost_width(root, levels->combined);
	set_pathtarget_cost_width(root, levels->states);
	set_pathtarget_cost_width(root, levels->second);
	set_pathtarget_cost_width(root, levels->results);
	return true;
}

/* Creates the path of a node that returns one row for each row of its child. */
static Path *
create_distinct_path(RelOptInfo *rel, Path *child, PathTarget *target, const CustomPathMethods *methods)
{
	CustomPath *cpath = makeNode(CustomPath);
	Path	   *path = &cpath->path;

	path->pathtype = T_CustomScan;
	path->parent = rel;
	path->pathtarget = target;
	path->parallel_safe = rel->consider_parallel && child->parallel_safe;
	path->rows = child->rows;
	path->startup_cost = child->startup_cost;
	path->total_cost = child->total_cost + cpu_operator_cost * child->rows;
	CellarCopyDisabledNodes(path, child);
	cpath->custom_paths = list_make1(child);
	cpath->methods = methods;
	return path;
}

/*
 * Returns the levels of an aggregation with DISTINCT, or NULL if the query cannot
 * be aggregated in two levels.
 */
CellarDistinctLevels *
cellar_create_distinct_levels(PlannerInfo *root, PathTarget *grouping_target, Node *having)
{
	CellarDistinctLevels *levels = palloc0(sizeof(CellarDistinctLevels));

	return init_levels(levels, root, grouping_target, having) ? levels : NULL;
}

/* Lets an aggregation return the groups of the first level. */
void
cellar_set_first_level(CellarAggregateSpec *aggregation, const CellarDistinctLevels *levels)
{
	aggregation->target = levels->first;
	aggregation->input = levels->input;
	aggregation->group_clause = levels->first_clause;
	aggregation->distinct_aggregates = &levels->distinct;
}

/*
 * Returns whether the two levels pay for `rows` rows: groups that fit into the
 * cell's memory are combined there, so duplicates do not matter.
 */
bool
cellar_levels_pay(const CellarAggregateSpec *aggregation, double rows)
{
	return cellar_groups_fit(aggregation) || cellar_has_duplicates(rows, aggregation->groups);
}

/* Sets costs and pruning of an aggregation of `rows` rows in two levels. */
void
cellar_cost_distinct_levels(PlannerInfo *root, CellarDistinctLevels *levels, CellarAggregateSpec *aggregation, double rows,
							RelOptInfo *grouped_rel, GroupPathExtraData *extra)
{
	List	   *group_clause = cellar_group_clause(root);
	ListCell   *lc;

	memset(&levels->combine_costs, 0, sizeof(AggClauseCosts));
	if (!levels->only_distinct)
	{
		get_agg_clause_costs(root, AGGSPLIT_INITIAL_SERIAL, &aggregation->partial_costs);
		get_agg_clause_costs(root, CELLAR_AGGSPLIT_COMBINE, &levels->combine_costs);
	}
	get_agg_clause_costs(root, AGGSPLIT_FINAL_DESERIAL, &aggregation->final_costs);
	levels->groups = 1;
	if (group_clause != NIL)
		levels->groups = cellar_num_groups(root, get_sortgrouplist_exprs(group_clause, extra->targetList), rows);
	levels->distinct.groups = levels->groups;
	foreach(lc, levels->results->exprs)
	{
		if (!IsA(lfirst(lc), Const))
			aggregation->outputs = lappend(aggregation->outputs, lfirst(lc));
	}
	aggregation->pruning = cellar_choose_group_pruning(root, aggregation, grouped_rel, group_clause,
													   (List *) extra->havingQual);
}

/* Adds a path of the other levels above a path that returns the groups of the first one. */
void
cellar_add_final_levels(PlannerInfo *root, RelOptInfo *grouped_rel, CellarDistinctLevels *levels,
						const CellarAggregateSpec *aggregation, Path *path, GroupPathExtraData *extra)
{
	/*
	 * The executor sets the node's AggSplit, which setrefs.c supports only
	 * for other ones.
	 */
	path = (Path *) create_agg_path(root, grouped_rel, path, levels->combined, AGG_HASHED, AGGSPLIT_SIMPLE,
									levels->first_clause, NIL, &levels->combine_costs, path->rows);
	path = create_distinct_path(grouped_rel, path, levels->states, &cellar_distinct_states_path_methods);
	((CustomPath *) path)->custom_private = list_make3(levels->sources, levels->kinds, list_make1_int(levels->filter));
	path = (Path *) create_agg_path(root, grouped_rel, path, levels->second,
									levels->second_clause == NIL ? AGG_PLAIN : AGG_HASHED, AGGSPLIT_FINAL_DESERIAL,
									levels->second_clause, NIL, &aggregation->final_costs,
									Min(levels->groups, path->rows));
	path = create_distinct_path(grouped_rel, path, grouped_rel->reltarget, &cellar_distinct_aggregates_path_methods);
	((CustomPath *) path)->flags = CUSTOMPATH_SUPPORT_PROJECTION;
	((CustomPath *) path)->custom_private = list_make2(levels->results->exprs, extra->havingQual);
	add_path(grouped_rel, path);
}

/*
 * Adds a path that aggregates in two levels, unless another path is better.
 * Returns false if removing duplicates may be possible instead.
 */
static bool
add_two_level_path(PlannerInfo *root, RelOptInfo *rel, Relation relation,
				   RelOptInfo *grouped_rel, GroupPathExtraData *extra)
{
	CellarAggregateSpec aggregation = {0};
	CellarDistinctLevels *levels = cellar_create_distinct_levels(root, grouped_rel->reltarget, extra->havingQual);
	ListCell   *lc;

	if (levels == NULL)
		return false;
	cellar_set_first_level(&aggregation, levels);
	if (!cellar_init_aggregation(&aggregation, root, rel, relation, extra->targetList))
		return !levels->ignores_duplicates;
	if (!cellar_levels_pay(&aggregation, rel->rows))
	{
		cellar_note_aggregate(RelationGetRelid(relation), 0, NULL,
							  "the rows have few duplicates for an aggregate with DISTINCT");
		return true;
	}
	cellar_cost_distinct_levels(root, levels, &aggregation, rel->rows, grouped_rel, extra);
	foreach(lc, cellar_offer_aggregate_paths(root, &aggregation, grouped_rel))
		cellar_add_final_levels(root, grouped_rel, levels, &aggregation, lfirst(lc), extra);
	return true;
}

static Plan *
plan_distinct_states(PlannerInfo *root, RelOptInfo *rel, CustomPath *best_path,
					 List *tlist, List *clauses, List *custom_plans)
{
	CustomScan *cscan = makeNode(CustomScan);

	cscan->scan.plan.targetlist = tlist;
	cscan->flags = best_path->flags;
	cscan->custom_plans = custom_plans;
	cscan->custom_scan_tlist = copyObject(tlist);
	cscan->custom_private = best_path->custom_private;
	cscan->methods = &cellar_distinct_states_methods;
	return &cscan->scan.plan;
}

static Plan *
plan_distinct_aggregates(PlannerInfo *root, RelOptInfo *rel, CustomPath *best_path,
						 List *tlist, List *clauses, List *custom_plans)
{
	CustomScan *cscan = makeNode(CustomScan);
	List	   *sources = NIL;
	List	   *kinds = NIL;
	ListCell   *lc;

	foreach(lc, (List *) linitial(best_path->custom_private))
	{
		int			number = foreach_current_index(lc) + 1;

		cscan->custom_scan_tlist = lappend(cscan->custom_scan_tlist,
										   makeTargetEntry(copyObject(lfirst(lc)), number, NULL, false));
		sources = lappend_int(sources, number);
		kinds = lappend_int(kinds, CELLAR_STATE_COPIED);
	}
	cscan->scan.plan.targetlist = tlist;
	cscan->scan.plan.qual = copyObject(lsecond(best_path->custom_private));
	cscan->flags = best_path->flags;
	cscan->custom_plans = custom_plans;
	cscan->custom_private = list_make3(sources, kinds, list_make1_int(0));
	cscan->methods = &cellar_distinct_aggregates_methods;
	return &cscan->scan.plan;
}

const CustomPathMethods cellar_distinct_states_path_methods = {
	.CustomName = CELLAR_DISTINCT_STATES_NAME,
	.PlanCustomPath = plan_distinct_states
};

const CustomPathMethods cellar_distinct_aggregates_path_methods = {
	.CustomName = CELLAR_DISTINCT_AGGREGATES_NAME,
	.PlanCustomPath = plan_distinct_aggregates
};

const CustomScanMethods cellar_distinct_states_methods = {
	.CustomName = CELLAR_DISTINCT_STATES_NAME,
	.CreateCustomScanState = cellar_create_distinct_state
};

const CustomScanMethods cellar_distinct_aggregates_methods = {
	.CustomName = CELLAR_DISTINCT_AGGREGATES_NAME,
	.CreateCustomScanState = cellar_create_distinct_state
};

/*
 * Adds paths for a query that has aggregates without partial states.
 */
void
cellar_add_distinct_aggregate_paths(PlannerInfo *root, RelOptInfo *rel, Relation relation,
									RelOptInfo *grouped_rel, GroupPathExtraData *extra)
{
	/* Each grouping set has other duplicates. */
	if (root->parse->groupingSets != NIL)
		cellar_note_aggregate(RelationGetRelid(relation), 0, NULL,
							  "an aggregate of grouping sets uses DISTINCT or ORDER BY, or does not support partial aggregation");
	else if (!add_two_level_path(root, rel, relation, grouped_rel, extra))
		cellar_add_deduplicated_path(root, rel, relation, grouped_rel, extra);
}
