/*-------------------------------------------------------------------------
 *
 * aggregate.c
 *	  The plan state of a Smart Scan Aggregate: a Smart Scan whose rows the
 *	  cell aggregates.
 *
 * The output is that of a partial aggregation.  The child is PostgreSQL's own
 * partial aggregation over a Smart Scan.  The child aggregates the rows that the
 * cell does not aggregate: rows of blocks that were passed through, rows for which the cell
 * could not evaluate an expression, and all rows when the cell cannot be used.
 *
 * Groups from the cell arrive while the child runs and are kept in a
 * tuplestore.  They are returned after the child's last row.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/plannodes.h"

#include "cellar.h"
#include "cellar/executor.h"

static void begin_aggregate(CustomScanState *node, EState *estate, int eflags);
static TupleTableSlot *exec_aggregate(CustomScanState *node);
static void end_aggregate(CustomScanState *node);
static void rescan_aggregate(CustomScanState *node);

static const CustomExecMethods aggregate_exec_methods = {
	.CustomName = CELLAR_AGGREGATE_NAME,
	.BeginCustomScan = begin_aggregate,
	.ExecCustomScan = exec_aggregate,
	.EndCustomScan = end_aggregate,
	.ReScanCustomScan = rescan_aggregate,
	.ExplainCustomScan = cellar_explain_aggregate
};

Node *
cellar_create_aggregate_state(CustomScan *cscan)
{
	CellarAggregateState *state = (CellarAggregateState *) newNode(sizeof(CellarAggregateState),
																   T_CustomScanState);

	state->css.methods = &aggregate_exec_methods;
	return (Node *) state;
}

static void
begin_aggregate(CustomScanState *node, EState *estate, int eflags)
{
	CellarAggregateState *state = (CellarAggregateState *) node;
	CustomScan *cscan = (CustomScan *) node->ss.ps.plan;
	PlanState  *rest = ExecInitNode(linitial(cscan->custom_plans), estate, eflags);
	CellarScanState *scan = cellar_scan_state(outerPlanState(rest));
	List	   *keys;
	List	   *aggregates;
	int			next_key = 0;
	int			next_aggregate;
	ListCell   *lc;

	node->custom_ps = list_make1(rest);
	if (scan == NULL)
		elog(ERROR, "Smart Scan Aggregate has no Smart Scan below it");

	/* A batch has the keys first; the output has the order of the plan. */
	cellar_get_aggregation(cscan, &keys, &aggregates);
	state->columns = palloc(list_length(cscan->custom_scan_tlist) * sizeof(int) + 1);
	next_aggregate = list_length(keys);
	foreach(lc, cscan->custom_scan_tlist)
	{
		Expr	   *expr = lfirst_node(TargetEntry, lc)->expr;

		state->columns[foreach_current_index(lc)] = IsA(expr, Const) ? -1 :
			IsA(expr, Aggref) ? next_aggregate++ : next_key++;
	}
	state->ncolumns = next_aggregate;

	state->expressions = cellar_compile_aggregation(keys, aggregates, &node->ss.ps);
	cellar_get_group_pruning(cscan, &state->pruning);
	state->conditions = cellar_compile_group_conditions(state->pruning.conditions, &node->ss.ps);
	state->sort_keys = cellar_compile_sort_keys(&state->pruning.top, &node->ss.ps);
	state->group_slot = ExecInitExtraTupleSlot(estate, node->ss.ss_ScanTupleSlot->tts_tupleDescriptor,
											   &TTSOpsMinimalTuple);
	scan->aggregate = state;
}

/*
 * Appends a batch of groups from the cell to the tuplestore.
 */
void
cellar_keep_groups(CellarAggregateState *state, const CellarBatch *batch)
{
	TupleTableSlot *slot = state->css.ss.ss_ScanTupleSlot;
	TupleDesc	tupdesc = slot->tts_tupleDescriptor;
	List	   *tlist = ((CustomScan *) state->css.ss.ps.plan)->custom_scan_tlist;
	bool		fits = batch->ncolumns == state->ncolumns;

	for (int i = 0; fits && i < tupdesc->natts; i++)
		fits = state->columns[i] < 0 ||
			cellar_column_fits(&batch->columns[state->columns[i]],
							   TupleDescAttr(tupdesc, i)->attlen);
	if (!fits)
		ereport(ERROR,
				(errcode(ERRCODE_PROTOCOL_VIOLATION),
				 errmsg("the cell returned groups that do not match the request"),
				 errhint("Make sure that the cell and the extension have the same version.")));

	if (state->groups == NULL)
	{
		MemoryContext oldcontext = MemoryContextSwitchTo(state->css.ss.ps.state->es_query_cxt);

		state->groups = tuplestore_begin_heap(false, false, work_mem);
		MemoryContextSwitchTo(oldcontext);
	}

	for (uint32 row = 0; row < batch->rows; row++)
	{
		ExecClearTuple(slot);
		for (int i = 0; i < tupdesc->natts; i++)
		{
			const CellarColumn *column;
			Form_pg_attribute att = TupleDescAttr(tupdesc, i);
			bool		null;

			if (state->columns[i] < 0)
			{
				Const	   *value = (Const *) list_nth_node(TargetEntry, tlist, i)->expr;

				slot->tts_isnull[i] = value->constisnull;
				slot->tts_values[i] = value->constvalue;
				continue;
			}
			column = &batch->columns[state->columns[i]];
			null = column->nulls != NULL && column->nulls[row];
			slot->tts_isnull[i] = null;
			slot->tts_values[i] = null ? (Datum) 0 :
				cellar_batch_value(column, row, att->attlen, att->attbyval);
		}
		ExecStoreVirtualTuple(slot);
		tuplestore_puttupleslot(state->groups, slot);
	}
	ExecClearTuple(slot);
}

/* Returns the source's tuple in the result slot of this node. */
static TupleTableSlot *
return_tuple(CellarAggregateState *state, TupleTableSlot *source)
{
	TupleTableSlot *slot = state->css.ss.ss_ScanTupleSlot;
	ProjectionInfo *projection = state->css.ss.ps.ps_ProjInfo;

	slot_getallattrs(source);
	ExecClearTuple(slot);
	for (int i = 0; i < slot->tts_tupleDescriptor->natts; i++)
	{
		slot->tts_values[i] = source->tts_values[i];
		slot->tts_isnull[i] = source->tts_isnull[i];
	}
	ExecStoreVirtualTuple(slot);
	if (projection == NULL)
		return slot;
	projection->pi_exprContext->ecxt_scantuple = slot;
	return ExecProject(projection);
}

static TupleTableSlot *
exec_aggregate(CustomScanState *node)
{
	CellarAggregateState *state = (CellarAggregateState *) node;

	CHECK_FOR_INTERRUPTS();
	ResetExprContext(node->ss.ps.ps_ExprContext);

	/*
	 * The child reads its whole input before it returns its first row, so all
	 * groups are in the tuplestore then.
	 */
	if (!state->rest_done)
	{
		TupleTableSlot *slot = ExecProcNode(linitial(node->custom_ps));

		if (!TupIsNull(slot))
			return return_tuple(state, slot);
		state->rest_done = true;
	}
	if (state->groups != NULL &&
		tuplestore_gettupleslot(state->groups, true, false, state->group_slot))
		return return_tuple(state, state->group_slot);
	return ExecClearTuple(node->ss.ps.ps_ProjInfo == NULL ? node->ss.ss_ScanTupleSlot :
						  node->ss.ps.ps_ResultTupleSlot);
}

/* Frees the groups, for a rescan or the end. */
static void
free_groups(CellarAggregateState *state)
{
	ExecClearTuple(state->group_slot);
	if (state->groups != NULL)
		tuplestore_end(state->groups);
	state->groups = NULL;
	state->rest_done = false;
}

static void
rescan_aggregate(CustomScanState *node)
{
	PlanState  *rest = linitial(node->custom_ps);

	free_groups((CellarAggregateState *) node);
	if (node->ss.ps.chgParam != NULL)
		UpdateChangedParamSet(rest, node->ss.ps.chgParam);

	/*
	 * A hashed aggregation would return its old result again, without the
	 * groups from the cell.  A changed parameter forces a new run.
	 */
	outerPlanState(rest)->chgParam = bms_add_member(outerPlanState(rest)->chgParam, 0);
	ExecReScan(rest);
}

static void
end_aggregate(CustomScanState *node)
{
	free_groups((CellarAggregateState *) node);
	ExecEndNode(linitial(node->custom_ps));
}
