/*-------------------------------------------------------------------------
 *
 * scan.c
 *	  The plan state of a Smart Scan.
 *
 * The source of the rows is chosen when the scan starts, because a cached plan
 * can outlive the settings, the location of the table and the cell.  Without
 * the cell, the same node reads the blocks itself.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relscan.h"
#include "access/tableam.h"
#include "access/xact.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/plannodes.h"
#include "storage/predicate.h"
#include "tcop/pquery.h"
#include "utils/portal.h"
#include "utils/rel.h"

#include "cellar.h"
#include "cellar/cell.h"
#include "cellar/compat.h"
#include "cellar/executor.h"
#include "cellar/planner.h"
#include "cellar/statistics.h"

static void begin_scan(CustomScanState *node, EState *estate, int eflags);
static TupleTableSlot *exec_scan(CustomScanState *node);
static void end_scan(CustomScanState *node);
static void rescan(CustomScanState *node);

static const CustomExecMethods exec_methods = {
	.CustomName = CELLAR_SCAN_NAME,
	.BeginCustomScan = begin_scan,
	.ExecCustomScan = exec_scan,
	.EndCustomScan = end_scan,
	.ReScanCustomScan = rescan,
	.EstimateDSMCustomScan = cellar_estimate_dsm,
	.InitializeDSMCustomScan = cellar_initialize_dsm,
	.ReInitializeDSMCustomScan = cellar_reinitialize_dsm,
	.InitializeWorkerCustomScan = cellar_initialize_worker,
	.ShutdownCustomScan = cellar_shutdown,
	.ExplainCustomScan = cellar_explain_scan
};

Node *
cellar_create_scan_state(CustomScan *cscan)
{
	CellarScanState *state = (CellarScanState *) newNode(sizeof(CellarScanState),
														 T_CustomScanState);

	state->css.methods = &exec_methods;
	return (Node *) state;
}

/*
 * Returns the state of a Smart Scan, or NULL if the node is not a Smart Scan.
 */
CellarScanState *
cellar_scan_state(PlanState *state)
{
	if (state == NULL || !IsA(state, CustomScanState) ||
		((CustomScanState *) state)->methods != &exec_methods)
		return NULL;
	return (CellarScanState *) state;
}

/*
 * Callback of the query's memory context: closes the connection and frees
 * objects of the client library, which are allocated outside of memory
 * contexts.  Runs after errors too.
 */
static void
clean_up(void *arg)
{
	CellarScanState *state = arg;

	if (state->cell.session != NULL)
		cellar_session_close(state->cell.session);
	state->cell.session = NULL;
	if (state->simulation != NULL)
		cellar_simulation_free(state->simulation);
	state->simulation = NULL;
}

/*
 * Returns whether execCurrentOf could find this scan below the plan node.
 * Descends through the same nodes as search_plan_tree.
 */
static bool
current_of_finds_scan(Plan *plan, Plan *scan)
{
	ListCell   *lc;

	if (plan == NULL)
		return false;
	if (plan == scan)
		return true;
	switch (nodeTag(plan))
	{
		case T_Append:
			foreach(lc, ((Append *) plan)->appendplans)
			{
				if (current_of_finds_scan(lfirst(lc), scan))
					return true;
			}
			return false;
		case T_Result:
		case T_Limit:
			return current_of_finds_scan(plan->lefttree, scan);
		case T_SubqueryScan:
			return current_of_finds_scan(((SubqueryScan *) plan)->subplan, scan);
		default:
			return false;
	}
}

/*
 * Returns whether WHERE CURRENT OF might need the ctid of this scan's row: the
 * scan must belong to a named portal.
 */
static bool
may_be_current_of(CellarScanState *state, EState *estate)
{
	return ActivePortal != NULL && ActivePortal->name[0] != '\0' &&
		ActivePortal->strategy == PORTAL_ONE_SELECT &&
		linitial(ActivePortal->stmts) == (void *) estate->es_plannedstmt &&
		current_of_finds_scan(estate->es_plannedstmt->planTree, state->css.ss.ps.plan);
}

static void
compile_join_filters(CellarScanState *state)
{
	List	   *filters = list_nth(((CustomScan *) state->css.ss.ps.plan)->custom_private,
								   CELLAR_PLAN_JOIN_FILTERS);
	ListCell   *lc;

	state->plan.njoin_filters = list_length(filters);
	state->plan.join_filters = palloc(state->plan.njoin_filters * sizeof(CellarJoinFilter) + 1);
	foreach(lc, filters)
	{
		ScalarArrayOpExpr *filter = lfirst_node(ScalarArrayOpExpr, lc);
		CellarJoinFilter *compiled = &state->plan.join_filters[foreach_current_index(lc)];

		compiled->expression = cellar_compile_quals(list_make1(filter), &state->css.ss.ps);
		compiled->paramid = lsecond_node(Param, filter->args)->paramid;
		compiled->is_integer_set = cellar_is_integer_equality(filter->opfuncid);
	}
}

static void
begin_scan(CustomScanState *node, EState *estate, int eflags)
{
	CellarScanState *state = (CellarScanState *) node;
	CustomScan *cscan = (CustomScan *) node->ss.ps.plan;
	Relation	rel = node->ss.ss_currentRelation;
	PlanState  *ps = &node->ss.ps;
	List	   *storage = cellar_get_storage_predicate(cscan);
	CellarTopN	top;

	if (!IsParallelWorker())
	{
		cellar_note_filter(cscan, RelationGetRelid(rel));
		cellar_announce_scan(estate, rel);
	}

	if (cellar_get_top_n(cscan, &top))
		state->plan.top_rows = top.rows;
	state->plan.threads = cellar_get_threads(cscan);
	if (OidIsValid(cellar_get_index(cscan)))
		cellar_begin_index_scan(state, cellar_get_index(cscan));
	cellar_choose_projection(state, may_be_current_of(state, estate));

	/*
	 * Rows are in slots of several kinds, so compile the expressions again
	 * without the assumption that the slot is virtual.
	 */
	ps->scanopsset = true;
	ps->scanopsfixed = false;
	ExecAssignScanProjectionInfoWithVarno(&node->ss, cscan->scan.scanrelid);
	state->plan.filter_quals = ExecInitQual(cscan->scan.plan.qual, ps);
	state->plan.all_quals = storage == NIL ? state->plan.filter_quals :
		ExecInitQual(cellar_get_all_quals(cscan), ps);
	state->plan.storage_predicate = cellar_compile_quals(storage, ps);
	compile_join_filters(state);
	if (state->plan.top_rows > 0)
		state->plan.sort_keys = cellar_compile_sort_keys(&top, ps);
	cellar_choose_outputs(state);

	state->heap.slot = CellarAllocTableSlot(&estate->es_tupleTable, RelationGetDescr(rel),
											&TTSOpsBufferHeapTuple);
	if (state->projection.whole_rows)
		state->cell.slot = CellarAllocTableSlot(&estate->es_tupleTable, RelationGetDescr(rel),
												&TTSOpsHeapTuple);
	else
	{
		state->cell.slot = node->ss.ss_ScanTupleSlot;
		memset(state->cell.slot->tts_isnull, true, RelationGetDescr(rel)->natts);
	}

	cellar_heap_block_init(&state->heap.block, rel, estate->es_snapshot);
	state->cleanup.func = clean_up;
	state->cleanup.arg = state;
	MemoryContextRegisterResetCallback(estate->es_query_cxt, &state->cleanup);
}

/*
 * Returns why the scan cannot use the cell now, or NULL.
 */
static const char *
unsuitable_now(CellarScanState *state)
{
	EState	   *estate = state->css.ss.ps.state;
	Relation	rel = state->css.ss.ss_currentRelation;
	const char *reason;

	if (!cellar_offload_processing)
		return "cellar.cell_offload_processing is off";
	reason = cellar_relation_unsuitable(rel);
	if (reason != NULL)
		return reason;
	if (IsolationIsSerializable())
		return "the transaction is serializable";
	if (!IsMVCCSnapshot(estate->es_snapshot))
		return "the snapshot is not an MVCC snapshot";
	if (CellarOldSnapshotsFail())
		return "old_snapshot_threshold is set";
	if (!cellar_relation_location(rel, &state->setup.location))
		return "the table is not on a cell";
	return NULL;
}

/*
 * Chooses the source of the rows and reads the number of blocks.  In a parallel
 * scan the leader does so for all workers.  Rescans use the same snapshot, so
 * the choice also applies to rescans.
 */
void
cellar_prepare_scan(CellarScanState *state)
{
	Relation	rel = state->css.ss.ss_currentRelation;
	MemoryContext oldcontext;

	if (state->setup.done)
		return;

	oldcontext = MemoryContextSwitchTo(state->css.ss.ps.state->es_query_cxt);
	if (!IsParallelWorker())
		cellar_attach_session();

	if (state->shared != NULL && IsParallelWorker() && !state->shared->from_cell)
		state->setup.fallback = "the leader does not use the cell";
	else
		state->setup.fallback = unsuitable_now(state);
	MemoryContextSwitchTo(oldcontext);

	state->setup.source = state->setup.fallback == NULL ? CELLAR_ROWS_FROM_CELL : CELLAR_ROWS_FROM_HEAP;
	if (state->shared != NULL && IsParallelWorker())
		state->setup.nblocks = state->shared->nblocks;
	else if (state->setup.source == CELLAR_ROWS_FROM_HEAP || !cellar_prepare_index_scan(state))
	{
		if (state->setup.source == CELLAR_ROWS_FROM_CELL)
			cellar_object_checkpoint_of_scan(state->css.ss.ps.state, rel);
		else
			PredicateLockRelation(rel, state->css.ss.ps.state->es_snapshot);
		state->setup.nblocks = RelationGetNumberOfBlocks(rel);
	}
	state->setup.done = true;

	if (state->setup.fallback != NULL && !IsParallelWorker())
		cellar_note_scan(RelationGetRelid(rel), state->setup.fallback);
}

/*
 * Continues as a table scan at the current row, for a cursor that moves
 * backward.  Both scans return the same rows in the same order: block numbers
 * and line pointers ascend, and the snapshot is the same.
 */
static void
become_table_scan(CellarScanState *state)
{
	Relation	rel = state->css.ss.ss_currentRelation;
	ExprContext *econtext = state->css.ss.ps.ps_ExprContext;
	uint64		rows = 0;

	cellar_stop_rows(state);
	state->progress.source = CELLAR_ROWS_FROM_TABLE_SCAN;
	state->heap.table_scan = table_beginscan_strat(rel, state->css.ss.ps.state->es_snapshot,
												   0, NULL, true, false);
	while (state->progress.ended || rows < state->progress.rows_emitted)
	{
		if (!table_scan_getnextslot(state->heap.table_scan, ForwardScanDirection, state->heap.slot))
			break;
		CHECK_FOR_INTERRUPTS();
		ResetExprContext(econtext);
		econtext->ecxt_scantuple = state->heap.slot;
		if (ExecQual(state->plan.all_quals, econtext))
			rows++;
	}
}

/* Returns the next row, and the quals that the row must still satisfy. */
static TupleTableSlot *
fetch_row(CellarScanState *state, ScanDirection direction, ExprState **quals)
{
	if (ScanDirectionIsBackward(direction) && state->progress.source != CELLAR_ROWS_FROM_TABLE_SCAN)
	{
		if (state->progress.rows_emitted == 0 && !state->progress.ended)
			return NULL;		/* before the first row */
		become_table_scan(state);
	}

	if (state->progress.source == CELLAR_ROWS_FROM_TABLE_SCAN)
	{
		*quals = state->plan.all_quals;
		if (table_scan_getnextslot(state->heap.table_scan, direction, state->heap.slot))
			return state->heap.slot;
		return NULL;
	}

	if (state->progress.ended)
		return NULL;
	return cellar_next_row(state, quals);
}

static TupleTableSlot *
exec_scan(CustomScanState *node)
{
	CellarScanState *state = (CellarScanState *) node;
	ScanDirection direction = node->ss.ps.state->es_direction;
	ExprContext *econtext = node->ss.ps.ps_ExprContext;
	ProjectionInfo *projection = node->ss.ps.ps_ProjInfo;

	if (!state->progress.started)
	{
		cellar_prepare_scan(state);
		cellar_start_rows(state);
		state->progress.started = true;
	}
	else if (state->cell.batch != NULL && ScanDirectionIsForward(direction))
	{
		TupleTableSlot *output = cellar_next_output(state);

		if (output != NULL)
		{
			state->progress.rows_emitted++;
			return output;
		}
	}
	ResetExprContext(econtext);

	for (;;)
	{
		ExprState  *quals;
		TupleTableSlot *slot = fetch_row(state, direction, &quals);

		if (slot == NULL)
		{
			if (ScanDirectionIsForward(direction))
				state->progress.ended = true;
			ExecClearTuple(node->ss.ss_ScanTupleSlot);
			return projection == NULL ? node->ss.ss_ScanTupleSlot :
				ExecClearTuple(projection->pi_state.resultslot);
		}

		/* execCurrentOf reads this slot. */
		node->ss.ss_ScanTupleSlot = slot;
		econtext->ecxt_scantuple = slot;
		if (quals == NULL || ExecQual(quals, econtext))
		{
			state->progress.rows_emitted++;
			return projection == NULL ? slot : ExecProject(projection);
		}
		InstrCountFiltered1(node, 1);
		ResetExprContext(econtext);
		CHECK_FOR_INTERRUPTS();
	}
}

/* Stops the scan and resets its position. */
static void
stop_scan(CellarScanState *state)
{
	cellar_stop_rows(state);
	if (state->heap.table_scan != NULL)
		table_endscan(state->heap.table_scan);
	state->heap.table_scan = NULL;
	ExecClearTuple(state->heap.slot);
	ExecClearTuple(state->cell.slot);
	state->progress.source = CELLAR_ROWS_UNDECIDED;
	state->progress.started = false;
	state->progress.ended = false;
	state->progress.rows_emitted = 0;
}

/* Returns whether another state of the list has the same plan state. */
static bool
shares_plan_state(List *subqueries, const SubPlanState *subquery)
{
	ListCell   *lc;

	foreach(lc, subqueries)
	{
		if (lfirst(lc) != subquery && lfirst_node(SubPlanState, lc)->planstate == subquery->planstate)
			return true;
	}
	return false;
}

/*
 * Lets each hashed subquery of the conditions be executed again if its parameters have
 * changed: the filter and all conditions have different states of a subquery with the
 * same plan state, and the first one that is evaluated resets the parameters.
 * PostgreSQL builds a new table then; the memory of the old one is released here.
 */
static void
forget_hashed_subqueries(List *subqueries)
{
	ListCell   *lc;

	foreach(lc, subqueries)
	{
		SubPlanState *subquery = lfirst_node(SubPlanState, lc);

		if (subquery->hashtable != NULL && subquery->planstate->chgParam != NULL &&
			shares_plan_state(subqueries, subquery))
		{
			tuplehash_destroy(subquery->hashtable->hashtab);
			subquery->hashtable = NULL;
		}
	}
}

static void
rescan(CustomScanState *node)
{
	forget_hashed_subqueries(node->ss.ps.subPlan);
	stop_scan((CellarScanState *) node);
}

static void
end_scan(CustomScanState *node)
{
	CellarScanState *state = (CellarScanState *) node;

	stop_scan(state);
	cellar_end_index_scan(state);
	if (state->heap.block.strategy != NULL)
		FreeAccessStrategy(state->heap.block.strategy);
	if (state->cell.session != NULL)
		cellar_session_release(state->cell.session);
	state->cell.session = NULL;
}
