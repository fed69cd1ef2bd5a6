/*-------------------------------------------------------------------------
 *
 * jit.c
 *	  Decides about JIT compilation by the cost of the work that PostgreSQL
 *	  itself does.
 *
 * The planner requests JIT compilation when the cost of a plan exceeds
 * jit_above_cost.  Most of that cost can be the cell's: compiling the
 * expressions that PostgreSQL would evaluate only for rows that the cell leaves
 * undecided then takes longer than the query.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "jit/jit.h"
#include "miscadmin.h"
#include "optimizer/planner.h"

#include "cellar/compat.h"
#include "cellar/planner.h"

static planner_hook_type previous_planner_hook = NULL;

/* Returns the cost of the parts of the plan that the cell evaluates. */
static Cost
cost_in_cell(Plan *plan)
{
	Cost		cost = 0;
	ListCell   *lc;

	if (plan == NULL)
		return 0;
	check_stack_depth();
	if (IsA(plan, CustomScan))
	{
		const CustomScanMethods *methods = ((CustomScan *) plan)->methods;

		/* The plan below an aggregation is for undecided rows. */
		if (methods == &cellar_aggregate_methods || (methods == &cellar_scan_methods && plan->qual == NIL))
			return plan->total_cost;
	}
	foreach(lc, cellar_plan_children(plan))
		cost += cost_in_cell(lfirst(lc));
	return cost + cost_in_cell(outerPlan(plan)) + cost_in_cell(innerPlan(plan));
}

static PlannedStmt *
plan_without_needless_jit(Query *parse, const char *query_string, int cursor_options,
						  ParamListInfo parameters CELLAR_PLANNER_PARAMETER)
{
	planner_hook_type plan = previous_planner_hook != NULL ? previous_planner_hook : standard_planner;
	PlannedStmt *statement = plan(parse, query_string, cursor_options, parameters CELLAR_PLANNER_ARGUMENT);
	Cost		cost;
	ListCell   *lc;

	if ((statement->jitFlags & PGJIT_PERFORM) == 0)
		return statement;
	cost = statement->planTree->total_cost - cost_in_cell(statement->planTree);
	foreach(lc, statement->subplans)
		cost -= cost_in_cell(lfirst(lc));
	if (cost <= jit_above_cost)
		statement->jitFlags = PGJIT_NONE;
	if (cost <= jit_optimize_above_cost)
		statement->jitFlags &= ~PGJIT_OPT3;
	if (cost <= jit_inline_above_cost)
		statement->jitFlags &= ~PGJIT_INLINE;
	return statement;
}

void
cellar_install_jit_decision(void)
{
	previous_planner_hook = planner_hook;
	planner_hook = plan_without_needless_jit;
}
