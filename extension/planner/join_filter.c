/*-------------------------------------------------------------------------
 *
 * join_filter.c
 *	  Adds join filters to finished plans: the keys of a hash join's inner side
 *	  reach the Smart Scan of its outer side, and the cell drops rows without a
 *	  join partner.
 *
 * A node "Join Keys" (executor/join_keys.c) below the Hash node collects the
 * keys while the hash table is built.  The Smart Scan has a condition "column
 * = ANY (keys)" for each key, and sends the condition to the cell when the
 * keys are complete.  The join decides as before, so a row that the cell does
 * not drop is harmless, and a scan without the keys is correct.
 *
 * The filter may drop only rows that the join would drop, and dropping a row
 * must not hide an error.  This has four consequences:
 * - The join must not return outer rows without partner.
 * - Between the scan and the join, nothing but columns is evaluated; this includes
 *	 the filter and the target list of the scan.
 * - Hash joins between the scan and the join must not return inner rows without
 *	 partner.
 * - Subqueries may be between the scan and the join.  Sorting, and an aggregation
 *	 with the column as a group key (grouped_filter.c), may be there only if the
 *	 keys stay the same when the join is executed again, because these nodes then
 *	 keep their results.
 * The scan of each partition below an Append has its own filter.
 *
 * The executor fetches the first outer row before it builds the hash table if
 * the startup cost of the outer side is lower than the total cost of the Hash
 * node.  A filtered scan starts after the hash table is complete, and its
 * startup cost says so.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "nodes/parsenodes.h"
#include "nodes/plannodes.h"
#include "optimizer/optimizer.h"
#include "optimizer/planner.h"
#include "utils/lsyscache.h"

#include "cellar.h"
#include "cellar/compat.h"
#include "cellar/planner.h"

static planner_hook_type previous_planner_hook = NULL;

/* Visits the plan nodes from top to bottom. */
void
cellar_visit_plan(Plan *plan, CellarPlanVisitor visit, void *context)
{
	ListCell   *lc;

	if (plan == NULL)
		return;
	check_stack_depth();
	visit(plan, context);
	cellar_visit_plan(outerPlan(plan), visit, context);
	cellar_visit_plan(innerPlan(plan), visit, context);
	foreach(lc, cellar_plan_children(plan))
		cellar_visit_plan(lfirst(lc), visit, context);
}

/* Visits all plan nodes of a statement. */
void
cellar_visit_plans(PlannedStmt *statement, CellarPlanVisitor visit, void *context)
{
	ListCell   *lc;

	cellar_visit_plan(statement->planTree, visit, context);
	foreach(lc, statement->subplans)
		cellar_visit_plan(lfirst(lc), visit, context);
}

static void
find_last_node_id(Plan *plan, void *context)
{
	int		   *last = context;

	*last = Max(*last, plan->plan_node_id);
}

/*
 * Returns whether a plan node can lie between a filtered scan on its outer side
 * and the join: an outer row that is dropped changes nothing but the rows that
 * would have been built from it.
 */
static bool
passes_outer_rows(Plan *plan)
{
	HashJoin   *join = (HashJoin *) plan;
	JoinType	type;

	if (!IsA(plan, HashJoin) || plan->qual != NIL || join->join.joinqual != NIL || !cellar_has_plain_targets(plan))
		return false;
	type = join->join.jointype;
	return type == JOIN_INNER || type == JOIN_LEFT || type == JOIN_SEMI || type == JOIN_ANTI;
}

/* A hash clause, and the parameter with the keys of the inner side. */
typedef struct KeyClause
{
	Expr	   *outer;			/* a column of the outer side, perhaps
								 * relabeled */
	Oid			operator;
	Oid			collation;
	Param	   *keys;
	bool		constant;		/* the keys do not change when the join is
								 * executed again */
} KeyClause;

/*
 * Adds the condition "column = ANY (keys)" to a plan node if the node is a Smart
 * Scan whose rows can be filtered.  Returns whether the condition was added.
 */
static bool
filter_scan(Plan *plan, Var *column, const KeyClause *clause)
{
	CustomScan *scan = (CustomScan *) plan;
	ScalarArrayOpExpr *filter;
	Expr	   *scalar;
	ListCell   *filters;
	const char *reason;

	if (!IsA(plan, CustomScan) || scan->methods != &cellar_scan_methods)
		return false;
	if (plan->qual != NIL || !cellar_has_plain_targets(plan) || column->varno != scan->scan.scanrelid ||
		list_nth(scan->custom_private, CELLAR_PLAN_TOP_N) != NIL)
		return false;

	scalar = copyObject((Expr *) column);
	if (IsA(clause->outer, RelabelType))
	{
		RelabelType *relabel = copyObject((RelabelType *) clause->outer);

		relabel->arg = scalar;
		scalar = (Expr *) relabel;
	}
	filter = makeNode(ScalarArrayOpExpr);
	filter->opno = clause->operator;
	filter->useOr = true;
	filter->inputcollid = clause->collation;
	filter->args = list_make2(scalar, copyObject(clause->keys));
	filter->location = -1;
	set_sa_opfuncid(filter);
	if (!cellar_expression_offloadable((Node *) filter, scan->scan.scanrelid, &reason))
		return false;

	filters = list_nth_cell(scan->custom_private, CELLAR_PLAN_JOIN_FILTERS);
	lfirst(filters) = lappend(lfirst(filters), filter);
	return true;
}

/*
 * Adds the condition to the Smart Scans from which column number `number` of the
 * plan's output comes.  Returns whether there is one.  The nodes above such a scan
 * start after the hash table is complete: at cost `start`.
 */
static bool
filter_scans(Plan *plan, AttrNumber number, const KeyClause *clause, Cost start)
{
	Var		   *column = (Var *) list_nth_node(TargetEntry, plan->targetlist, number - 1)->expr;
	bool		filtered = false;

	if (!IsA(column, Var))
		return false;
	if (passes_outer_rows(plan))
		filtered = column->varno == OUTER_VAR &&
			filter_scans(outerPlan(plan), column->varattno, clause, start);
	else if (cellar_has_group_key(plan, column) || (IsA(plan, Sort) && cellar_has_plain_targets(plan)))
	{
		/* The node keeps its result when the join is executed again. */
		filtered = clause->constant && column->varno == OUTER_VAR &&
			filter_scans(outerPlan(plan), column->varattno, clause, start);
	}
	else if (cellar_returns_groups(plan, column))
		filtered = clause->constant &&
			filter_scans(linitial(((CustomScan *) plan)->custom_plans), column->varattno, clause, start);
	else if (IsA(plan, SubqueryScan) && plan->qual == NIL && cellar_has_plain_targets(plan))
		filtered = column->varno == ((SubqueryScan *) plan)->scan.scanrelid &&
			filter_scans(((SubqueryScan *) plan)->subplan, column->varattno, clause, start);
	else if (IsA(plan, Append) && cellar_has_plain_targets(plan))
	{
		ListCell   *lc;

		/* A scan without the filter returns more rows, which is harmless. */
		foreach(lc, ((Append *) plan)->appendplans)
			filtered |= filter_scans(lfirst(lc), column->varattno, clause, start);
	}
	else
		filtered = filter_scan(plan, column, clause);

	if (filtered)
	{
		plan->startup_cost = Max(plan->startup_cost, start);
		plan->total_cost = Max(plan->total_cost, plan->startup_cost);
	}
	return filtered;
}

static bool
is_integer(Oid type)
{
	return type == INT2OID || type == INT4OID || type == INT8OID;
}

/*
 * Returns whether the cell looks up a column's value in a set of keys.  For
 * other types the cell would compare the value with each key.
 */
bool
cellar_has_key_set(Oid column, Oid key)
{
	if (key == NUMERICOID || key == FLOAT4OID || key == FLOAT8OID)
		return false;
	return column == key || (is_integer(column) && is_integer(key));
}

/* Returns a new node above a plan, whose rows it returns. */
static CustomScan *
create_join_keys(Plan *child, bool parallel_aware, int *last_node_id)
{
	CustomScan *keys = makeNode(CustomScan);
	ListCell   *lc;

	keys->scan.plan = *child;
	keys->scan.plan.type = T_CustomScan;
	keys->scan.plan.parallel_aware = parallel_aware;
	keys->scan.plan.async_capable = false;
	keys->scan.plan.plan_node_id = ++*last_node_id;
	keys->scan.plan.qual = NIL;
	keys->scan.plan.righttree = NULL;
	keys->scan.plan.lefttree = child;
	keys->scan.plan.initPlan = NIL;
	keys->scan.plan.targetlist = NIL;
	foreach(lc, child->targetlist)
	{
		TargetEntry *entry = lfirst_node(TargetEntry, lc);
		Var		   *outer = makeVarFromTargetEntry(OUTER_VAR, entry);
		Var		   *own = makeVarFromTargetEntry(INDEX_VAR, entry);

		keys->custom_scan_tlist = lappend(keys->custom_scan_tlist,
										  makeTargetEntry((Expr *) outer, entry->resno, entry->resname,
														  entry->resjunk));
		keys->scan.plan.targetlist = lappend(keys->scan.plan.targetlist,
											 makeTargetEntry((Expr *) own, entry->resno, entry->resname,
															 entry->resjunk));
	}
	keys->methods = &cellar_join_keys_methods;
	return keys;
}

typedef struct FilterContext
{
	PlannedStmt *statement;
	int			last_node_id;	/* 0 before the first join filter */
} FilterContext;

/* Returns the next parameter of the executor, which the statement does not have yet. */
static Param *
next_parameter(PlannedStmt *statement, Oid type)
{
	Param	   *param = makeNode(Param);

	param->paramkind = PARAM_EXEC;
	param->paramid = list_length(statement->paramExecTypes);
	param->paramtype = type;
	param->paramtypmod = -1;
	param->paramcollid = get_typcollation(type);
	param->location = -1;
	return param;
}

/*
 * Filters the first child of a Lookup Table by the keys that the second child
 * returns (lookup_keys.c), or the second child of an earlier Lookup Table, which is
 * visited before.  Without a filter, the second child is not needed.
 */
static void
filter_lookup_side(CustomScan *lookup, FilterContext *context)
{
	PlannedStmt *statement = context->statement;
	List	   *parts = list_nth(lookup->custom_private, CELLAR_LOOKUP_PARTS);
	Param	   *param = list_nth(lookup->custom_private, CELLAR_LOOKUP_KEYS);
	Plan	   *side = linitial(lookup->custom_plans);
	Plan	   *child = list_length(lookup->custom_plans) == 2 ? lsecond(lookup->custom_plans) : NULL;
	AttrNumber	number = lfourth_int(linitial(parts));
	KeyClause	clause = {
		.outer = list_nth_node(TargetEntry, side->targetlist, number - 1)->expr,
		.operator = linitial_oid(list_nth(lookup->custom_private, CELLAR_LOOKUP_FILTER)),
		.keys = param,
		.constant = true
	};
	CustomScan *keys;
	Var		   *key;

	if (child == NULL)
	{
		/* The earlier table may have no filter. */
		if (param->paramid >= 0)
			filter_scans(side, number, &clause, side->startup_cost);
		return;
	}
	key = makeVarFromTargetEntry(OUTER_VAR, linitial_node(TargetEntry, child->targetlist));
	*param = *next_parameter(statement, get_array_type(getBaseType(key->vartype)));
	if (!filter_scans(side, number, &clause, child->total_cost))
	{
		param->paramid = -1;
		lookup->custom_plans = list_truncate(lookup->custom_plans, 1);
		return;
	}
	statement->paramExecTypes = lappend_oid(statement->paramExecTypes, param->paramtype);
	if (context->last_node_id == 0)
		cellar_visit_plans(statement, find_last_node_id, &context->last_node_id);
	keys = create_join_keys(child, false, &context->last_node_id);
	keys->custom_private = list_make1(list_make3(key, copyObject(param), makeInteger(CELLAR_JOIN_KEYS_MAX)));
	lsecond(lookup->custom_plans) = &keys->scan.plan;
}

/*
 * Lets the executor execute a Lookup Table again if a parameter of the outer side of
 * its join changes: the keys that filter its rows depend on the outer side.  The Hash
 * node must not keep its hash table then.
 */
static void
depend_on_outer_side(HashJoin *join)
{
	Plan	   *outer = outerPlan(&join->join.plan);
	Plan	   *hash = innerPlan(&join->join.plan);
	CustomScan *lookup = castNode(CustomScan, outerPlan(hash));

	if (list_nth(lookup->custom_private, CELLAR_LOOKUP_KEYS) == NULL)
		return;
	for (Plan *plan = hash; plan != NULL; plan = outerPlan(plan))
	{
		plan->extParam = bms_union(plan->extParam, outer->extParam);
		plan->allParam = bms_union(plan->allParam, outer->allParam);
	}
}

/* Adds join filters to the scans on the outer side of a hash join. */
static void
add_join_filters(Plan *plan, void *arg)
{
	FilterContext *context = arg;
	PlannedStmt *statement = context->statement;
	HashJoin   *join = (HashJoin *) plan;
	Hash	   *hash;
	CustomScan *keys = NULL;
	double		inner_rows;
	ListCell   *outer_key,
			   *inner_key,
			   *operator,
			   *collation;

	if (IsA(plan, CustomScan) && ((CustomScan *) plan)->methods == &cellar_lookup_methods &&
		list_nth(((CustomScan *) plan)->custom_private, CELLAR_LOOKUP_KEYS) != NULL)
	{
		filter_lookup_side((CustomScan *) plan, context);
		return;
	}
	if (!IsA(plan, HashJoin))
		return;
	hash = castNode(Hash, innerPlan(plan));

	/* The keys of a lookup table filter the scan. */
	if (IsA(outerPlan(hash), CustomScan) && ((CustomScan *) outerPlan(hash))->methods == &cellar_lookup_methods)
	{
		depend_on_outer_side(join);
		return;
	}
	if (!CellarDropsOuterRows(join->join.jointype))
		return;
	inner_rows = hash->plan.parallel_aware ? hash->rows_total : hash->plan.plan_rows;
	if (inner_rows > CELLAR_JOIN_KEYS_MAX || plan->plan_rows > outerPlan(plan)->plan_rows * CELLAR_JOIN_FILTER_FRACTION_MAX)
		return;

	forfour(outer_key, join->hashkeys, inner_key, hash->hashkeys,
			operator, join->hashoperators, collation, join->hashcollations)
	{
		Expr	   *outer = lfirst(outer_key);
		Var		   *column = (Var *) (IsA(outer, RelabelType) ? ((RelabelType *) outer)->arg : outer);
		Oid			element = getBaseType(exprType(lfirst(inner_key)));
		Oid			array = get_array_type(element);
		bool		is_integer = cellar_is_integer_equality(get_opcode(lfirst_oid(operator)));
		int			most = is_integer ? CELLAR_JOIN_KEYS_MAX : CELLAR_OTHER_JOIN_KEYS_MAX;
		Param	   *param;
		KeyClause	clause;

		if (inner_rows > most || !IsA(column, Var) || column->varno != OUTER_VAR || !OidIsValid(array) ||
			!cellar_has_key_set(getBaseType(exprType((Node *) outer)), element))
			continue;
		/* Processes share only values that are passed by value. */
		if (hash->plan.parallel_aware && !get_typbyval(element))
			continue;

		param = next_parameter(statement, array);
		clause = (KeyClause)
		{
			outer, lfirst_oid(operator), lfirst_oid(collation), param, bms_is_empty(hash->plan.extParam)
		};
		if (!filter_scans(outerPlan(plan), column->varattno, &clause, hash->plan.total_cost))
			continue;

		statement->paramExecTypes = lappend_oid(statement->paramExecTypes, array);
		if (context->last_node_id == 0)
			cellar_visit_plans(statement, find_last_node_id, &context->last_node_id);
		if (keys == NULL)
		{
			keys = create_join_keys(outerPlan(hash), hash->plan.parallel_aware, &context->last_node_id);
			outerPlan(hash) = &keys->scan.plan;
		}
		keys->custom_private = lappend(keys->custom_private,
									   list_make3(copyObject(lfirst(inner_key)), param, makeInteger(most)));
	}
}

static PlannedStmt *
plan_with_join_filters(Query *parse, const char *query_string, int cursor_options,
					   ParamListInfo parameters CELLAR_PLANNER_PARAMETER)
{
	planner_hook_type plan = previous_planner_hook != NULL ? previous_planner_hook : standard_planner;
	/* WHERE CURRENT OF needs the scan of one table. */
	Query	   *unnested = (cursor_options & CURSOR_OPT_FAST_PLAN) != 0 ? NULL : cellar_unnest_subqueries(parse);
	List	   *notes = unnested == NULL ? NIL : cellar_save_notes();
	PlannedStmt *statement = plan(parse, query_string, cursor_options, parameters CELLAR_PLANNER_ARGUMENT);
	FilterContext context = {0};

	if (unnested != NULL && cellar_may_unnest(statement, parameters))
	{
		List	   *first_notes = cellar_save_notes();
		PlannedStmt *other;

		cellar_restore_notes(notes);
		other = plan(unnested, query_string, cursor_options, parameters CELLAR_PLANNER_ARGUMENT);
		if (cellar_is_unnested_cheaper(statement, other))
			statement = other;
		else
			cellar_restore_notes(first_notes);
	}
	context.statement = statement;
	if (cellar_join_filters)
		cellar_visit_plans(statement, add_join_filters, &context);
	return statement;
}

void
cellar_install_join_filters(void)
{
	previous_planner_hook = planner_hook;
	planner_hook = plan_with_join_filters;
}
