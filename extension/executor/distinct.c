/*-------------------------------------------------------------------------
 *
 * distinct.c
 *	  The plan states of Distinct States and Distinct Aggregates, two nodes of an
 *	  aggregation with DISTINCT in two levels (planner/distinct_path.c).
 *
 * Distinct States returns a row per group of the first level: the group keys, and
 * the partial state of each aggregate.  The state of an aggregate with DISTINCT
 * is the state after one value.  If the cell has computed the states of all
 * aggregates, Distinct States returns these groups and does not execute its child.
 *
 * Distinct Aggregates returns the rows of the second level as the results of the
 * query's aggregates, and evaluates HAVING and the target list.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/plannodes.h"
#include "utils/array.h"

#include "cellar.h"
#include "cellar/executor.h"
#include "cellar/planner.h"

/* An output column. */
typedef struct DistinctColumn
{
	int			source;			/* index of the child's column */
	CellarDistinctState kind;
} DistinctColumn;

typedef struct DistinctNodeState
{
	CustomScanState css;
	DistinctColumn *columns;
	int			filter;			/* index of the child's column, or -1 */
	CellarAggregateState *aggregate;	/* of Distinct States: below the child */
	TupleTableSlot *group_slot; /* a group from the cell */
	bool		started;
	bool		has_groups;		/* the cell has returned groups with the
								 * states of all aggregates */
} DistinctNodeState;

static void begin_distinct(CustomScanState *node, EState *estate, int eflags);
static TupleTableSlot *exec_distinct(CustomScanState *node);
static void end_distinct(CustomScanState *node);
static void rescan_distinct(CustomScanState *node);

static const CustomExecMethods states_exec_methods = {
	.CustomName = CELLAR_DISTINCT_STATES_NAME,
	.BeginCustomScan = begin_distinct,
	.ExecCustomScan = exec_distinct,
	.EndCustomScan = end_distinct,
	.ReScanCustomScan = rescan_distinct
};

static const CustomExecMethods aggregates_exec_methods = {
	.CustomName = CELLAR_DISTINCT_AGGREGATES_NAME,
	.BeginCustomScan = begin_distinct,
	.ExecCustomScan = exec_distinct,
	.EndCustomScan = end_distinct,
	.ReScanCustomScan = rescan_distinct
};

Node *
cellar_create_distinct_state(CustomScan *cscan)
{
	DistinctNodeState *state = (DistinctNodeState *) newNode(sizeof(DistinctNodeState), T_CustomScanState);

	state->css.methods = cscan->methods == &cellar_distinct_states_methods ?
		&states_exec_methods : &aggregates_exec_methods;
	return (Node *) state;
}

/*
 * Returns a copy of the first level's plan that combines partial states.  The
 * planner cannot set this AggSplit before setrefs.c has run.
 */
static Plan *
combining_plan(Plan *plan)
{
	Agg		   *agg = makeNode(Agg);

	memcpy(agg, castNode(Agg, plan), sizeof(Agg));
	agg->aggsplit = CELLAR_AGGSPLIT_COMBINE;
	return &agg->plan;
}

static void
begin_distinct(CustomScanState *node, EState *estate, int eflags)
{
	DistinctNodeState *state = (DistinctNodeState *) node;
	CustomScan *cscan = (CustomScan *) node->ss.ps.plan;
	List	   *sources = list_nth(cscan->custom_private, CELLAR_DISTINCT_SOURCES);
	List	   *kinds = list_nth(cscan->custom_private, CELLAR_DISTINCT_STATES);
	Plan	   *child = linitial(cscan->custom_plans);
	ListCell   *source;
	ListCell   *kind;

	if (cscan->methods == &cellar_distinct_states_methods)
		child = combining_plan(child);
	node->custom_ps = list_make1(ExecInitNode(child, estate, eflags));

	state->columns = palloc(list_length(sources) * sizeof(DistinctColumn));
	forboth(source, sources, kind, kinds)
	{
		DistinctColumn *column = &state->columns[foreach_current_index(source)];

		column->source = lfirst_int(source) - 1;
		column->kind = lfirst_int(kind);
	}
	state->filter = linitial_int(list_nth(cscan->custom_private, CELLAR_DISTINCT_FILTER)) - 1;
	if (cscan->methods != &cellar_distinct_states_methods)
		return;

	/* Above an Append, no scan computes states of DISTINCT aggregates: this node computes them from the values. */
	if (!cellar_has_distinct(outerPlan(child)))
		return;
	state->aggregate = cellar_aggregate_state(outerPlanState(linitial(node->custom_ps)));
	state->aggregate->distinct_slot = MakeSingleTupleTableSlot(node->ss.ss_ScanTupleSlot->tts_tupleDescriptor,
															   &TTSOpsVirtual);
	state->aggregate->distinct_tlist = cscan->custom_scan_tlist;
	state->group_slot = ExecInitExtraTupleSlot(estate, node->ss.ss_ScanTupleSlot->tts_tupleDescriptor,
											   &TTSOpsMinimalTuple);
}

/* Returns the state of avg after one value: an array of count and sum. */
static Datum
average_state(int64 count, int64 sum)
{
	Datum		members[2] = {Int64GetDatum(count), Int64GetDatum(sum)};

	return PointerGetDatum(construct_array(members, 2, INT8OID, sizeof(int64), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
}

/*
 * Returns the state of an aggregate after one value.  `skipped` says that the
 * aggregate ignores the value, because the value is NULL or fails the filter.
 */
static Datum
state_of_value(CellarDistinctState kind, Datum value, bool skipped, bool *isnull)
{
	*isnull = false;
	switch (kind)
	{
		case CELLAR_STATE_COUNT:
			return Int64GetDatum(skipped ? 0 : 1);
		case CELLAR_STATE_INT2_SUM:
			*isnull = skipped;
			return skipped ? (Datum) 0 : Int64GetDatum(DatumGetInt16(value));
		case CELLAR_STATE_INT4_SUM:
			*isnull = skipped;
			return skipped ? (Datum) 0 : Int64GetDatum(DatumGetInt32(value));
		case CELLAR_STATE_INT2_AVG:
			return skipped ? average_state(0, 0) : average_state(1, DatumGetInt16(value));
		case CELLAR_STATE_INT4_AVG:
			return skipped ? average_state(0, 0) : average_state(1, DatumGetInt32(value));
		case CELLAR_STATE_COPIED:
			break;
	}
	elog(ERROR, "unrecognized state of an aggregate with DISTINCT: %d", kind);
}

/* Fills the scan slot from a row of the child; arrays are allocated in `context`. */
static void
store_row(DistinctNodeState *state, TupleTableSlot *row, MemoryContext context)
{
	TupleTableSlot *slot = state->css.ss.ss_ScanTupleSlot;
	MemoryContext oldcontext = MemoryContextSwitchTo(context);
	bool		passes = true;

	slot_getallattrs(row);
	if (state->filter >= 0)
		passes = !row->tts_isnull[state->filter] && DatumGetBool(row->tts_values[state->filter]);
	ExecClearTuple(slot);
	for (int i = 0; i < slot->tts_tupleDescriptor->natts; i++)
	{
		const DistinctColumn *column = &state->columns[i];
		Datum		value = row->tts_values[column->source];
		bool		isnull = row->tts_isnull[column->source];

		if (column->kind != CELLAR_STATE_COPIED)
			value = state_of_value(column->kind, value, isnull || !passes, &isnull);
		slot->tts_values[i] = value;
		slot->tts_isnull[i] = isnull;
	}
	ExecStoreVirtualTuple(slot);
	MemoryContextSwitchTo(oldcontext);
}

/* Copies the next group of the cell to the scan slot.  Returns false if there is none. */
static bool
store_group(DistinctNodeState *state)
{
	TupleTableSlot *slot = state->css.ss.ss_ScanTupleSlot;
	TupleTableSlot *group = state->group_slot;

	if (!tuplestore_gettupleslot(state->aggregate->distinct_groups, true, false, group))
		return false;
	slot_getallattrs(group);
	ExecClearTuple(slot);
	memcpy(slot->tts_values, group->tts_values, slot->tts_tupleDescriptor->natts * sizeof(Datum));
	memcpy(slot->tts_isnull, group->tts_isnull, slot->tts_tupleDescriptor->natts * sizeof(bool));
	ExecStoreVirtualTuple(slot);
	return true;
}

/* Stores the next row in the scan slot.  Returns false if there is none. */
static bool
store_next(DistinctNodeState *state)
{
	TupleTableSlot *row;

	if (!state->started)
	{
		state->has_groups = state->aggregate != NULL && cellar_has_distinct_groups(state->aggregate);
		state->started = true;
	}
	if (state->has_groups)
		return store_group(state);
	row = ExecProcNode(linitial(state->css.custom_ps));
	if (TupIsNull(row))
		return false;
	store_row(state, row, state->css.ss.ps.ps_ExprContext->ecxt_per_tuple_memory);
	return true;
}

static TupleTableSlot *
exec_distinct(CustomScanState *node)
{
	DistinctNodeState *state = (DistinctNodeState *) node;
	ExprContext *econtext = node->ss.ps.ps_ExprContext;
	ProjectionInfo *projection = node->ss.ps.ps_ProjInfo;

	for (;;)
	{
		CHECK_FOR_INTERRUPTS();
		ResetExprContext(econtext);
		if (!store_next(state))
			return ExecClearTuple(projection == NULL ? node->ss.ss_ScanTupleSlot : node->ss.ps.ps_ResultTupleSlot);
		econtext->ecxt_scantuple = node->ss.ss_ScanTupleSlot;
		if (!ExecQual(node->ss.ps.qual, econtext))
		{
			InstrCountFiltered1(node, 1);
			continue;
		}
		return projection == NULL ? node->ss.ss_ScanTupleSlot : ExecProject(projection);
	}
}

static void
rescan_distinct(CustomScanState *node)
{
	DistinctNodeState *state = (DistinctNodeState *) node;
	PlanState  *child = linitial(node->custom_ps);

	if (node->ss.ps.chgParam != NULL)
		UpdateChangedParamSet(child, node->ss.ps.chgParam);

	/*
	 * Passes changed parameters on to the Smart Scan Aggregate, which is
	 * executed before the child.
	 */
	ExecReScan(child);
	if (state->has_groups)
	{
		ExecClearTuple(state->group_slot);
		if (state->aggregate->css.ss.ps.chgParam == NULL)
			ExecReScan(&state->aggregate->css.ss.ps);
	}
	state->started = false;
	state->has_groups = false;
}

static void
end_distinct(CustomScanState *node)
{
	DistinctNodeState *state = (DistinctNodeState *) node;

	if (state->aggregate != NULL)
		ExecDropSingleTupleTableSlot(state->aggregate->distinct_slot);
	ExecEndNode(linitial(node->custom_ps));
}
