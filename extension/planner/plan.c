/*-------------------------------------------------------------------------
 *
 * plan.c
 *	  Turns paths of Smart Scans into plans.
 *
 * The qual of the plan is the filter.  custom_exprs is the storage predicate,
 * followed by the sort keys of a top-N.  For custom_private see CellarPlanPrivate.
 *
 * The scan tuple has the row type of the relation.  The executor chooses the
 * columns to fetch, because the target list can still change after planning.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/restrictinfo.h"
#include "optimizer/tlist.h"
#include "parser/parsetree.h"

#include "cellar.h"
#include "cellar/executor.h"
#include "cellar/planner.h"

/*
 * Returns all members of the top-N except the keys, for custom_private.
 */
List *
cellar_top_n_private(const CellarTopN *top)
{
	return list_make4(list_make1_int(top->rows), top->less, top->collations, top->directions);
}

/*
 * Reads the top-N of a plan.  Returns false when the scan returns all rows.
 */
bool
cellar_get_top_n(CustomScan *cscan, CellarTopN *top)
{
	List	   *lists = list_nth(cscan->custom_private, CELLAR_PLAN_TOP_N);

	if (lists == NIL)
		return false;
	top->rows = linitial_int(linitial(lists));
	top->less = lsecond(lists);
	top->collations = lthird(lists);
	top->directions = lfourth(lists);
	top->keys = list_copy_tail(cscan->custom_exprs,
							   list_length(cscan->custom_exprs) - list_length(top->less));
	return true;
}

/*
 * Returns how many threads of the cell share the scan.
 */
int
cellar_get_threads(CustomScan *cscan)
{
	return linitial_int(list_nth(cscan->custom_private, CELLAR_PLAN_THREADS));
}

/*
 * Returns the index whose entries are the rows of the scan, or InvalidOid.
 */
Oid
cellar_get_index(CustomScan *cscan)
{
	List	   *index = list_nth(cscan->custom_private, CELLAR_PLAN_INDEX);

	return index == NIL ? InvalidOid : linitial_oid(index);
}

/*
 * Returns the storage predicate: custom_exprs without the sort keys.
 */
List *
cellar_get_storage_predicate(CustomScan *cscan)
{
	CellarTopN	top;

	if (!cellar_get_top_n(cscan, &top))
		return cscan->custom_exprs;
	return list_truncate(list_copy(cscan->custom_exprs),
						 list_length(cscan->custom_exprs) - list_length(top.keys));
}

/*
 * Returns storage predicate and filter, in PostgreSQL's order of evaluation.
 */
List *
cellar_get_all_quals(CustomScan *cscan)
{
	List	   *order = list_nth(cscan->custom_private, CELLAR_PLAN_QUAL_ORDER);
	ListCell   *storage = list_head(cscan->custom_exprs);
	ListCell   *filter = list_head(cscan->scan.plan.qual);
	List	   *merged = NIL;
	ListCell   *lc;

	foreach(lc, order)
	{
		if (lfirst_int(lc))
		{
			merged = lappend(merged, lfirst(storage));
			storage = lnext(cscan->custom_exprs, storage);
		}
		else
		{
			merged = lappend(merged, lfirst(filter));
			filter = lnext(cscan->scan.plan.qual, filter);
		}
	}
	return merged;
}

/*
 * Returns whether a member of custom_scan_tlist of a Smart Scan Aggregate is an
 * aggregate of group keys.  `number` starts at 0.
 */
bool
cellar_is_value(CustomScan *cscan, int number)
{
	return list_member_int(list_nth(cscan->custom_private, CELLAR_AGGREGATE_VALUES), number);
}

/*
 * Returns the group keys and the partial aggregates of a Smart Scan Aggregate
 * that the cell computes, without constant group keys.
 */
void
cellar_get_aggregation(CustomScan *cscan, List **keys, List **aggregates)
{
	ListCell   *lc;

	*keys = NIL;
	*aggregates = NIL;
	foreach(lc, cscan->custom_scan_tlist)
	{
		Expr	   *expr = lfirst_node(TargetEntry, lc)->expr;

		if (lfirst_node(TargetEntry, lc)->resjunk || cellar_is_value(cscan, foreach_current_index(lc)))
			continue;
		if (IsA(expr, Aggref))
			*aggregates = lappend(*aggregates, expr);
		else if (!IsA(expr, Const))
			*keys = lappend(*keys, expr);
	}
}

/* Returns the conditions on joined rows of a Smart Scan Aggregate. */
List *
cellar_get_join_conditions(CustomScan *cscan)
{
	List	   *conditions = NIL;
	ListCell   *lc;

	foreach(lc, cscan->custom_scan_tlist)
	{
		if (lfirst_node(TargetEntry, lc)->resjunk)
			conditions = lappend(conditions, lfirst_node(TargetEntry, lc)->expr);
	}
	return conditions;
}

/*
 * Reads the aggregates with DISTINCT of a Smart Scan Aggregate.  Returns false if
 * there are none.
 */
bool
cellar_get_distinct(CustomScan *cscan, CellarDistinct *distinct)
{
	List	   *numbers = list_nth(cscan->custom_private, CELLAR_AGGREGATE_DISTINCT);

	if (numbers == NIL)
		return false;
	distinct->nkeys = linitial_int(numbers);
	distinct->argument = lsecond_int(numbers);
	distinct->filter = lthird_int(numbers);
	distinct->aggregates = list_copy_tail(cscan->custom_exprs,
										  list_length(cscan->custom_exprs) - lfourth_int(numbers));
	return true;
}

/* Returns whether the plan is a Smart Scan Aggregate that computes aggregates with DISTINCT. */
bool
cellar_has_distinct(const Plan *plan)
{
	const CustomScan *cscan = (const CustomScan *) plan;

	return IsA(plan, CustomScan) && cscan->methods == &cellar_aggregate_methods &&
		list_nth(cscan->custom_private, CELLAR_AGGREGATE_DISTINCT) != NIL;
}

/*
 * Notes why the quals of the filter are not offloaded.
 */
void
cellar_note_filter(CustomScan *cscan, Oid relid)
{
	List	   *reasons = list_nth(cscan->custom_private, CELLAR_PLAN_FILTER_REASONS);
	ListCell   *qual;
	ListCell   *reason;

	forboth(qual, cscan->scan.plan.qual, reason, reasons)
		cellar_note_qual(relid, cscan->scan.scanrelid,
						 lfirst(qual), strVal(lfirst(reason)));
}

/* Splits the quals into storage predicate and filter. */
static Plan *
plan_smart_scan(PlannerInfo *root, RelOptInfo *rel, CustomPath *best_path,
				List *tlist, List *clauses, List *custom_plans)
{
	CustomScan *cscan = makeNode(CustomScan);
	List	   *storage = NIL;
	List	   *filter = NIL;
	List	   *order = NIL;
	List	   *reasons = NIL;
	ListCell   *lc;

	foreach(lc, clauses)
	{
		RestrictInfo *rinfo = lfirst_node(RestrictInfo, lc);
		const char *reason = NULL;

		/* A gating Result node evaluates pseudoconstant quals. */
		if (rinfo->pseudoconstant)
			continue;

		if (cellar_restriction_offloadable(root, rel, rinfo, &reason))
		{
			storage = lappend(storage, rinfo->clause);
			order = lappend_int(order, 1);
		}
		else
		{
			filter = lappend(filter, rinfo->clause);
			reasons = lappend(reasons, makeString(pstrdup(reason)));
			order = lappend_int(order, 0);
		}
	}

	cscan->scan.plan.targetlist = tlist;
	cscan->scan.plan.qual = filter;
	cscan->scan.scanrelid = rel->relid;
	cscan->flags = best_path->flags;
	cscan->custom_private = list_make5(order, reasons,
									   list_nth(best_path->custom_private, CELLAR_PATH_TOP_N),
									   list_nth(best_path->custom_private, CELLAR_PATH_THREADS),
									   NIL);
	cscan->custom_private = lappend(cscan->custom_private,
									list_nth(best_path->custom_private, CELLAR_PATH_INDEX));
	cscan->custom_exprs = list_concat(storage,
									  (List *) list_nth(best_path->custom_private, CELLAR_PATH_SORT_KEYS));
	cscan->custom_private = lappend(cscan->custom_private,
									cellar_uncertain_initplans(root, (Node *) cscan->custom_exprs));
	cscan->methods = &cellar_scan_methods;

	cellar_note_chosen(planner_rt_fetch(rel->relid, root)->relid, false);
	return &cscan->scan.plan;
}

static bool
params_walker(Node *node, List **params)
{
	if (node == NULL)
		return false;
	if (IsA(node, Param))
	{
		*params = lappend(*params, node);
		return false;
	}
	return expression_tree_walker(node, params_walker, (void *) params);
}

/*
 * custom_scan_tlist has the group keys and aggregates that the cell evaluates, and
 * aggregates of group keys, whose arguments are the first members of custom_exprs.
 * Conditions on joined rows follow as junk: the node returns NULL for them.
 * The planner does not search custom_scan_tlist and custom_private for parameters,
 * so custom_exprs repeats them.
 *
 * tlist is NIL if the planner replaces the target list by a projection.
 */
static Plan *
plan_aggregate(PlannerInfo *root, RelOptInfo *rel, CustomPath *best_path,
			   List *tlist, List *clauses, List *custom_plans)
{
	CustomScan *cscan = makeNode(CustomScan);
	List	   *pruning = list_nth(best_path->custom_private, CELLAR_AGGREGATE_PRUNING);
	List	   *distinct = list_nth(best_path->custom_private, CELLAR_AGGREGATE_DISTINCT);
	List	   *values = list_nth(best_path->custom_private, CELLAR_AGGREGATE_VALUES);
	ListCell   *lc;

	cscan->scan.plan.targetlist = tlist;
	cscan->scan.plan.qual = NIL;
	cscan->scan.scanrelid = rel->relid;
	cscan->flags = best_path->flags;
	cscan->custom_plans = custom_plans;
	cscan->custom_scan_tlist = copyObject(make_tlist_from_pathtarget(best_path->path.pathtarget));
	foreach(lc, values)
	{
		TargetEntry *entry = list_nth_node(TargetEntry, cscan->custom_scan_tlist, lfirst_int(lc));
		Aggref	   *aggref = castNode(Aggref, entry->expr);

		cscan->custom_exprs = lappend(cscan->custom_exprs,
									  copyObject(linitial_node(TargetEntry, aggref->args)->expr));
	}
	foreach(lc, list_nth(best_path->custom_private, CELLAR_AGGREGATE_CONDITIONS))
		cscan->custom_scan_tlist = lappend(cscan->custom_scan_tlist,
										   makeTargetEntry(copyObject(lfirst(lc)),
														   list_length(cscan->custom_scan_tlist) + 1, NULL, true));
	params_walker((Node *) cscan->custom_scan_tlist, &cscan->custom_exprs);
	if (pruning != NIL)
		params_walker(linitial(pruning), &cscan->custom_exprs);
	if (distinct != NIL)
	{
		cscan->custom_exprs = list_concat(cscan->custom_exprs, copyObject(lsecond(distinct)));
		distinct = linitial(distinct);
	}

	/* create_plan() labels the columns by processed_tlist, so that has to be the target that replaced the subquery's columns. */
	if (list_nth(best_path->custom_private, CELLAR_AGGREGATE_SUBQUERY) != NIL)
		root->processed_tlist = list_nth(best_path->custom_private, CELLAR_AGGREGATE_SUBQUERY);

	cscan->custom_private = list_make5(pruning, distinct, values, NIL,
									   cellar_uncertain_initplans(root, (Node *) cscan->custom_exprs));
	cscan->methods = &cellar_aggregate_methods;

	cellar_note_chosen(planner_rt_fetch(rel->relid, root)->relid, true);
	return &cscan->scan.plan;
}

/* Returns the children of a plan node other than the outer and the inner one. */
List *
cellar_plan_children(Plan *plan)
{
	switch (nodeTag(plan))
	{
		case T_Append:
			return ((Append *) plan)->appendplans;
		case T_MergeAppend:
			return ((MergeAppend *) plan)->mergeplans;
		case T_SubqueryScan:
			return list_make1(((SubqueryScan *) plan)->subplan);
		case T_CustomScan:
			return ((CustomScan *) plan)->custom_plans;
		default:
			return NIL;
	}
}

const CustomPathMethods cellar_scan_path_methods = {
	.CustomName = CELLAR_SCAN_NAME,
	.PlanCustomPath = plan_smart_scan
};

const CustomPathMethods cellar_aggregate_path_methods = {
	.CustomName = CELLAR_AGGREGATE_NAME,
	.PlanCustomPath = plan_aggregate
};

const CustomScanMethods cellar_scan_methods = {
	.CustomName = CELLAR_SCAN_NAME,
	.CreateCustomScanState = cellar_create_scan_state
};

const CustomScanMethods cellar_aggregate_methods = {
	.CustomName = CELLAR_AGGREGATE_NAME,
	.CreateCustomScanState = cellar_create_aggregate_state
};

const CustomScanMethods cellar_join_keys_methods = {
	.CustomName = CELLAR_JOIN_KEYS_NAME,
	.CreateCustomScanState = cellar_create_join_keys_state
};
