/*-------------------------------------------------------------------------
 *
 * initplans.c
 *	  Executes the initplans of a scan's conditions only if PostgreSQL would.
 *
 * PostgreSQL executes an initplan for the first row that reaches the expression with
 * its value.  The cell needs the value when the scan starts.  An initplan that raises
 * no error and has no effects is executed then.  Any other one is executed by
 * evaluating all conditions, in PostgreSQL's order, for the first rows of the table.
 * If no row of the first blocks reaches the expression, PostgreSQL scans the table.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/executor.h"
#include "optimizer/optimizer.h"

#include "cellar/executor.h"
#include "cellar/planner.h"

/* Rows of at most this many blocks are evaluated to execute initplans. */
#define PROBED_BLOCKS_MAX	64

/* Returns whether an initplan of the list was not executed. */
static bool
is_pending(const CellarScanState *state, List *paramids)
{
	const ParamExecData *values = state->css.ss.ps.state->es_param_exec_vals;
	ListCell   *lc;

	foreach(lc, paramids)
	{
		if (values[lfirst_int(lc)].execPlan != NULL)
			return true;
	}
	return false;
}

/*
 * Evaluates the conditions for the first rows of the table, until no initplan of the
 * list is pending or a row fulfils all conditions.
 */
static void
evaluate_first_rows(CellarScanState *state, List *paramids)
{
	ExprContext *econtext = state->css.ss.ps.ps_ExprContext;
	BlockNumber nblocks = Min(RelationGetNumberOfBlocks(state->css.ss.ss_currentRelation), PROBED_BLOCKS_MAX);
	bool		fulfilled = false;

	for (BlockNumber block = 0; block < nblocks && !fulfilled && is_pending(state, paramids); block++)
	{
		cellar_heap_block_read(&state->heap.block, block, NULL);
		while (!fulfilled && is_pending(state, paramids) &&
			   cellar_heap_block_next(&state->heap.block, state->heap.slot))
		{
			ResetExprContext(econtext);
			econtext->ecxt_scantuple = state->heap.slot;
			fulfilled = ExecQual(state->plan.all_quals, econtext);
		}
	}
	ResetExprContext(econtext);
	ExecClearTuple(state->heap.slot);
	cellar_heap_block_release(&state->heap.block);
}

/*
 * Executes the initplans that PostgreSQL executes for the first rows of the table.
 * Returns false if the request needs the value of another one.
 */
bool
cellar_execute_initplans(CellarScanState *state)
{
	CustomScan *cscan = (CustomScan *) state->css.ss.ps.plan;
	List	   *paramids = list_nth(cscan->custom_private, CELLAR_PLAN_INITPLANS);

	/* Volatile functions of the filter must not be called twice for a row. */
	if (is_pending(state, paramids) && !contain_volatile_functions((Node *) cscan->scan.plan.qual))
		evaluate_first_rows(state, paramids);
	if (state->aggregate != NULL)
	{
		CustomScan *aggregate = (CustomScan *) state->aggregate->css.ss.ps.plan;

		if (is_pending(state, list_nth(aggregate->custom_private, CELLAR_AGGREGATE_INITPLANS)))
			return false;
	}
	return !is_pending(state, paramids);
}
