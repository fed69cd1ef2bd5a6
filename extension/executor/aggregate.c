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
#include "utils/rel.h"

#include "cellar.h"
#include "cellar/executor.h"

/* Members of CellarAggregateState.columns that are not numbers of columns. */
#define COLUMN_IS_CONSTANT	(-1)
#define COLUMN_IS_VALUE		(-2)
#define COLUMN_IS_CONDITION	(-3)

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

/*
 * Replaces the columns of lookup tables in keys and aggregates by those that follow
 * the relation's, and compiles the conditions on joined rows.
 */
static void
add_lookups(CellarAggregateState *state, List **keys, List **aggregates)
{
	CustomScan *cscan = (CustomScan *) state->css.ss.ps.plan;
	int			nkeys = list_length(*keys);
	int			naggregates = list_length(*aggregates);
	List	   *expressions = list_concat(list_concat_copy(*keys, *aggregates), cellar_get_join_conditions(cscan));

	expressions = cellar_number_lookup_columns(state->lookups, expressions, cscan->scan.scanrelid,
											   RelationGetNumberOfAttributes(state->css.ss.ss_currentRelation));
	*keys = list_truncate(list_copy(expressions), nkeys);
	*aggregates = list_truncate(list_copy_tail(expressions, nkeys), naggregates);
	cellar_share_lookups(state->lookups);
	state->join_conditions = cellar_compile_join_conditions(list_copy_tail(expressions, nkeys + naggregates),
															&state->css.ss.ps);
}

static void
begin_aggregate(CustomScanState *node, EState *estate, int eflags)
{
	CellarAggregateState *state = (CellarAggregateState *) node;
	CustomScan *cscan = (CustomScan *) node->ss.ps.plan;
	PlanState  *rest = ExecInitNode(linitial(cscan->custom_plans), estate, eflags);
	CellarScanState *scan = cellar_find_lookups(outerPlanState(rest), &state->lookups);
	List	   *keys;
	List	   *aggregates;
	int			nkeys;
	int			next_key = 0;
	int			next_aggregate;
	ListCell   *lc;

	node->custom_ps = list_make1(rest);
	if (scan == NULL)
		elog(ERROR, "Smart Scan Aggregate has no Smart Scan below it");

	/* A batch has the keys first; the output has the order of the plan. */
	cellar_get_aggregation(cscan, &keys, &aggregates);
	if (state->lookups != NIL)
		add_lookups(state, &keys, &aggregates);
	state->columns = palloc(list_length(cscan->custom_scan_tlist) * sizeof(int) + 1);
	next_aggregate = nkeys = list_length(keys);
	if (cellar_get_distinct(cscan, &state->distinct))
	{
		const CellarDistinct *distinct = &state->distinct;

		/* The argument and the filter, also if they are group keys */
		nkeys = distinct->nkeys;
		next_aggregate = nkeys + (distinct->filter > 0 ? 2 : 1);
		state->distinct_argument =
			cellar_compile_distinct(list_nth(keys, distinct->argument - 1),
									distinct->filter > 0 ? list_nth(keys, distinct->filter - 1) : NULL,
									&node->ss.ps);
	}
	foreach(lc, cscan->custom_scan_tlist)
	{
		Expr	   *expr = lfirst_node(TargetEntry, lc)->expr;
		int		   *column = &state->columns[foreach_current_index(lc)];

		if (lfirst_node(TargetEntry, lc)->resjunk)
			*column = COLUMN_IS_CONDITION;
		else if (cellar_is_value(cscan, foreach_current_index(lc)))
		{
			Expr	   *argument = list_nth(cscan->custom_exprs, list_length(state->values));

			*column = COLUMN_IS_VALUE;
			state->values = lappend(state->values, ExecInitExpr(argument, &node->ss.ps));
		}
		else if (IsA(expr, Const))
			*column = COLUMN_IS_CONSTANT;
		else if (IsA(expr, Aggref))
			*column = next_aggregate++;
		else
		{
			/* Only the filter follows the group keys if the argument is one. */
			bool		is_filter = next_key >= nkeys && next_key + 1 != state->distinct.argument;

			*column = is_filter ? nkeys + 1 : next_key;
			next_key++;
		}
	}
	state->ncolumns = next_aggregate;

	state->expressions = cellar_compile_aggregation(list_truncate(keys, nkeys), aggregates, &node->ss.ps);
	cellar_get_group_pruning(cscan, &state->pruning);
	state->conditions = cellar_compile_group_conditions(state->pruning.conditions, &node->ss.ps);
	state->sort_keys = cellar_compile_sort_keys(&state->pruning.top, &node->ss.ps);
	state->group_slot = ExecInitExtraTupleSlot(estate, node->ss.ss_ScanTupleSlot->tts_tupleDescriptor,
											   &TTSOpsMinimalTuple);
	scan->aggregate = state;
}

/*
 * Appends a batch of groups to a tuplestore, which is created if it is NULL.
 * columns has the number of each attribute in a batch of ncolumns columns, or -1
 * for a constant of the target list.
 */
static void
keep_batch(Tuplestorestate **store, const CellarBatch *batch, const int *columns, int ncolumns,
		   TupleTableSlot *slot, List *tlist)
{
	TupleDesc	tupdesc = slot->tts_tupleDescriptor;
	bool		fits = batch->ncolumns == ncolumns;

	for (int i = 0; fits && i < tupdesc->natts; i++)
		fits = columns[i] < 0 ||
			cellar_column_fits(&batch->columns[columns[i]], TupleDescAttr(tupdesc, i)->attlen);
	if (!fits)
		ereport(ERROR,
				(errcode(ERRCODE_PROTOCOL_VIOLATION),
				 errmsg("the cell returned groups that do not match the request"),
				 errhint("Make sure that the cell and the extension have the same version.")));

	if (*store == NULL)
		*store = tuplestore_begin_heap(false, false, work_mem);
	for (uint32 row = 0; row < batch->rows; row++)
	{
		ExecClearTuple(slot);
		for (int i = 0; i < tupdesc->natts; i++)
		{
			const CellarColumn *column;
			Form_pg_attribute att = TupleDescAttr(tupdesc, i);
			bool		null;

			if (columns[i] == COLUMN_IS_VALUE || columns[i] == COLUMN_IS_CONDITION)
			{
				slot->tts_isnull[i] = true;
				continue;
			}
			if (columns[i] == COLUMN_IS_CONSTANT)
			{
				Const	   *value = (Const *) list_nth_node(TargetEntry, tlist, i)->expr;

				slot->tts_isnull[i] = value->constisnull;
				slot->tts_values[i] = value->constvalue;
				continue;
			}
			column = &batch->columns[columns[i]];
			null = column->nulls != NULL && column->nulls[row];
			slot->tts_isnull[i] = null;
			slot->tts_values[i] = null ? (Datum) 0 :
				cellar_batch_value(column, row, att->attlen, att->attbyval);
		}
		ExecStoreVirtualTuple(slot);
		tuplestore_puttupleslot(*store, slot);
	}
	ExecClearTuple(slot);
}

/* Keeps a batch of groups with the states of aggregates with DISTINCT. */
static void
keep_distinct_groups(CellarAggregateState *state, const CellarBatch *batch)
{
	int			natts = list_length(state->distinct_tlist);
	int		   *columns = palloc(natts * sizeof(int) + 1);
	int			ncolumns = 0;
	ListCell   *lc;

	if (state->distinct_slot == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_PROTOCOL_VIOLATION),
				 errmsg("the cell returned groups that do not match the request"),
				 errhint("Make sure that the cell and the extension have the same version.")));
	foreach(lc, state->distinct_tlist)
		columns[foreach_current_index(lc)] = IsA(lfirst_node(TargetEntry, lc)->expr, Const) ?
		COLUMN_IS_CONSTANT : ncolumns++;
	keep_batch(&state->distinct_groups, batch, columns, ncolumns, state->distinct_slot, state->distinct_tlist);
	pfree(columns);
}

/*
 * Keeps a batch of groups from the cell.
 */
void
cellar_keep_groups(CellarAggregateState *state, const CellarBatch *batch)
{
	MemoryContext oldcontext = MemoryContextSwitchTo(state->css.ss.ps.state->es_query_cxt);

	if (batch->distinct_groups)
		keep_distinct_groups(state, batch);
	else
		keep_batch(&state->groups, batch, state->columns, state->ncolumns, state->css.ss.ss_ScanTupleSlot,
				   ((CustomScan *) state->css.ss.ps.plan)->custom_scan_tlist);
	MemoryContextSwitchTo(oldcontext);
}

/*
 * Returns the first row of the child.  The child reads its whole input before it
 * returns a row, so all groups are in the tuplestores then.
 */
static void
start_groups(CellarAggregateState *state)
{
	if (state->started)
		return;
	state->rest_row = ExecProcNode(linitial(state->css.custom_ps));
	state->rest_pending = true;
	state->started = true;
	if (state->distinct_groups != NULL && (state->groups != NULL || !TupIsNull(state->rest_row)))
		ereport(ERROR,
				(errcode(ERRCODE_PROTOCOL_VIOLATION),
				 errmsg("the cell returned groups that do not contain all rows of the scan"),
				 errhint("Make sure that the cell and the extension have the same version.")));
}

/*
 * Returns the state of a Smart Scan Aggregate, or NULL for another node.
 */
CellarAggregateState *
cellar_aggregate_state(PlanState *state)
{
	if (!IsA(state, CustomScanState) || ((CustomScanState *) state)->methods != &aggregate_exec_methods)
		return NULL;
	return (CellarAggregateState *) state;
}

/*
 * Executes the scan.  Returns true if the cell has returned groups with the
 * states of the aggregates with DISTINCT, in distinct_groups.  These are all groups
 * of the query.
 */
bool
cellar_has_distinct_groups(CellarAggregateState *state)
{
	PlanState  *node = &state->css.ss.ps;
	bool		found;

	if (node->chgParam != NULL)
		ExecReScan(node);
	if (node->instrument != NULL)
		InstrStartNode(node->instrument);
	start_groups(state);
	found = state->distinct_groups != NULL;
	if (node->instrument != NULL)
		InstrStopNode(node->instrument, found ? (double) tuplestore_tuple_count(state->distinct_groups) : 0);
	return found;
}

/*
 * Sets the states of aggregates of group keys in the scan slot, which contains a
 * group from the cell: such a state is the argument's value.
 */
static void
compute_values(CellarAggregateState *state)
{
	TupleTableSlot *slot = state->css.ss.ss_ScanTupleSlot;
	ExprContext *econtext = state->css.ss.ps.ps_ExprContext;
	ListCell   *next = list_head(state->values);

	econtext->ecxt_scantuple = slot;
	for (int i = 0; i < slot->tts_tupleDescriptor->natts; i++)
	{
		if (state->columns[i] != COLUMN_IS_VALUE)
			continue;
		slot->tts_values[i] = ExecEvalExprSwitchContext(lfirst(next), econtext, &slot->tts_isnull[i]);
		next = lnext(state->values, next);
	}
}

/*
 * Returns the source's tuple in the result slot of this node.  `from_cell` says that
 * the source contains a group from the cell.
 */
static TupleTableSlot *
return_tuple(CellarAggregateState *state, TupleTableSlot *source, bool from_cell)
{
	TupleTableSlot *slot = state->css.ss.ss_ScanTupleSlot;
	ProjectionInfo *projection = state->css.ss.ps.ps_ProjInfo;

	slot_getallattrs(source);
	ExecClearTuple(slot);
	for (int i = 0; i < slot->tts_tupleDescriptor->natts; i++)
	{
		/* The child's rows have no join conditions. */
		bool		is_condition = state->columns[i] == COLUMN_IS_CONDITION;

		slot->tts_values[i] = is_condition ? (Datum) 0 : source->tts_values[i];
		slot->tts_isnull[i] = is_condition || source->tts_isnull[i];
	}
	ExecStoreVirtualTuple(slot);
	if (from_cell && state->values != NIL)
		compute_values(state);
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

	if (!state->rest_done)
	{
		TupleTableSlot *slot;

		start_groups(state);
		slot = state->rest_pending ? state->rest_row : ExecProcNode(linitial(node->custom_ps));
		state->rest_pending = false;
		if (!TupIsNull(slot))
			return return_tuple(state, slot, false);
		state->rest_done = true;
	}
	if (state->groups != NULL &&
		tuplestore_gettupleslot(state->groups, true, false, state->group_slot))
		return return_tuple(state, state->group_slot, true);
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
	if (state->distinct_groups != NULL)
		tuplestore_end(state->distinct_groups);
	state->groups = NULL;
	state->distinct_groups = NULL;
	state->started = false;
	state->rest_pending = false;
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
