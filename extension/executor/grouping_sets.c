/*-------------------------------------------------------------------------
 *
 * grouping_sets.c
 *	  The plan state of Grouping Sets, which returns the rows of its child
 *	  (planner/grouping_sets_path.c).
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/executor.h"
#include "nodes/plannodes.h"

#include "cellar.h"
#include "cellar/executor.h"

static void
begin_grouping_sets(CustomScanState *node, EState *estate, int eflags)
{
	CustomScan *cscan = (CustomScan *) node->ss.ps.plan;

	node->custom_ps = list_make1(ExecInitNode(linitial(cscan->custom_plans), estate, eflags));
}

/*
 * The child has the same target list, and both nodes return virtual slots.  The
 * executor may have built a projection, because setrefs.c leaves constants in
 * the target list and refers to the first of equal expressions.  It must not be
 * evaluated: a constant group key is NULL in the rows of other grouping sets.
 */
static TupleTableSlot *
exec_grouping_sets(CustomScanState *node)
{
	return ExecProcNode(linitial(node->custom_ps));
}

static void
end_grouping_sets(CustomScanState *node)
{
	ExecEndNode(linitial(node->custom_ps));
}

static void
rescan_grouping_sets(CustomScanState *node)
{
	PlanState  *child = linitial(node->custom_ps);

	if (node->ss.ps.chgParam != NULL)
		UpdateChangedParamSet(child, node->ss.ps.chgParam);
	ExecReScan(child);
}

static const CustomExecMethods grouping_sets_exec_methods = {
	.CustomName = CELLAR_GROUPING_SETS_NAME,
	.BeginCustomScan = begin_grouping_sets,
	.ExecCustomScan = exec_grouping_sets,
	.EndCustomScan = end_grouping_sets,
	.ReScanCustomScan = rescan_grouping_sets
};

Node *
cellar_create_grouping_sets_state(CustomScan *cscan)
{
	CustomScanState *state = makeNode(CustomScanState);

	state->methods = &grouping_sets_exec_methods;
	return (Node *) state;
}
