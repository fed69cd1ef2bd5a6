/*-------------------------------------------------------------------------
 *
 * scan.c
 *	  The plan state of a Smart Scan.
 *
 * Whether the rows come from the cell is decided when the scan starts, since
 * a cached plan may be older than the settings, the table's place, or the
 * cell's life.  When they do not, the same node reads the blocks itself.
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

/* The state as that of a Smart Scan; NULL when it is none. */
CellarScanState *
cellar_scan_state(PlanState *state)
{
	if (state == NULL || !IsA(state, CustomScanState) ||
		((CustomScanState *) state)->methods != &exec_methods)
		return NULL;
	return (CellarScanState *) state;
}

/*
 * Runs when the query's memory goes, after an error too: connections and the
 * client's objects live outside of it.
 */
static void
clean_up(void *arg)
{
	CellarScanState *state = arg;

	if (state->session != NULL)
		cellar_session_close(state->session);
	state->session = NULL;
	if (state->simulation != NULL)
		cellar_simulation_free(state->simulation);
	state->simulation = NULL;
}

/*
 * Could execCurrentOf find this scan below the plan node?  The nodes passed
 * are those that search_plan_tree passes.
 */
static bool
scan_is_current_row(Plan *plan, Plan *scan)
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
				if (scan_is_current_row(lfirst(lc), scan))
					return true;
			}
			return false;
		case T_Result:
		case T_Limit:
			return scan_is_current_row(plan->lefttree, scan);
		case T_SubqueryScan:
			return scan_is_current_row(((SubqueryScan *) plan)->subplan, scan);
		default:
			return false;
	}
}

/*
 * Might WHERE CURRENT OF ask this scan for its row?  That takes a named portal.
 */
static bool
may_be_current_of(CellarScanState *state, EState *estate)
{
	return ActivePortal != NULL && ActivePortal->name[0] != '\0' &&
		ActivePortal->strategy == PORTAL_ONE_SELECT &&
		linitial(ActivePortal->stmts) == (void *) estate->es_plannedstmt &&
		scan_is_current_row(estate->es_plannedstmt->planTree, state->css.ss.ps.plan);
}

/* Storage predicate and filter in the order in which Postgres would evaluate them. */
static List *
merge_quals(CustomScan *cscan)
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

static void
note_filter(CustomScan *cscan, Relation rel)
{
	List	   *reasons = list_nth(cscan->custom_private, CELLAR_PLAN_FILTER_REASONS);
	ListCell   *qual;
	ListCell   *reason;

	forboth(qual, cscan->scan.plan.qual, reason, reasons)
		cellar_note_qual(RelationGetRelid(rel), cscan->scan.scanrelid,
						 lfirst(qual), strVal(lfirst(reason)));
}

static void
begin_scan(CustomScanState *node, EState *estate, int eflags)
{
	CellarScanState *state = (CellarScanState *) node;
	CustomScan *cscan = (CustomScan *) node->ss.ps.plan;
	Relation	rel = node->ss.ss_currentRelation;
	PlanState  *ps = &node->ss.ps;
	List	   *storage = cellar_plan_storage_predicate(cscan);
	CellarTopN	top;

	if (!IsParallelWorker())
		note_filter(cscan, rel);

	if (cellar_plan_top_n(cscan, &top))
		state->top_rows = top.rows;
	state->threads = cellar_plan_threads(cscan);
	cellar_choose_projection(state, may_be_current_of(state, estate));

	/*
	 * Rows come in slots of more than one kind, so the expressions that were
	 * prepared for virtual ones are made anew.
	 */
	ps->scanopsset = true;
	ps->scanopsfixed = false;
	ExecAssignScanProjectionInfoWithVarno(&node->ss, cscan->scan.scanrelid);
	state->filter_quals = ExecInitQual(cscan->scan.plan.qual, ps);
	state->all_quals = storage == NIL ? state->filter_quals :
		ExecInitQual(merge_quals(cscan), ps);
	state->quals = cellar_quals_init(storage, cscan->scan.scanrelid, ps);
	if (state->top_rows > 0)
		state->sort_keys = cellar_sort_keys_init(&top, ps);
	cellar_choose_outputs(state);

	state->heap_slot = ExecAllocTableSlot(&estate->es_tupleTable, RelationGetDescr(rel),
										  &TTSOpsBufferHeapTuple);
	if (state->whole_rows)
		state->row_slot = ExecAllocTableSlot(&estate->es_tupleTable, RelationGetDescr(rel),
											 &TTSOpsHeapTuple);
	else
	{
		state->row_slot = node->ss.ss_ScanTupleSlot;
		memset(state->row_slot->tts_isnull, true, RelationGetDescr(rel)->natts);
	}

	cellar_heap_block_init(&state->heap, rel, estate->es_snapshot);
	state->cleanup.func = clean_up;
	state->cleanup.arg = state;
	MemoryContextRegisterResetCallback(estate->es_query_cxt, &state->cleanup);
}

/*
 * Why this scan cannot use the cell at present; NULL when it can.
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
		return "its snapshot is not an MVCC snapshot";
	if (CellarOldSnapshotsFail())
		return "old_snapshot_threshold is set";
	if (!cellar_relation_place(rel, &state->place))
		return "the table is on no cell";
	return NULL;
}

/*
 * Decides where the rows come from and fixes the number of blocks.  In a
 * parallel scan the leader does so for all.  Holds for rescans too, which see
 * the same snapshot.
 */
void
cellar_prepare_scan(CellarScanState *state)
{
	Relation	rel = state->css.ss.ss_currentRelation;
	MemoryContext oldcontext;

	if (state->prepared)
		return;

	oldcontext = MemoryContextSwitchTo(state->css.ss.ps.state->es_query_cxt);
	if (!IsParallelWorker())
		cellar_attach_session();

	if (state->shared != NULL && IsParallelWorker() && !state->shared->from_cell)
		state->fallback = "the leader does not use the cell";
	else
		state->fallback = unsuitable_now(state);
	MemoryContextSwitchTo(oldcontext);

	state->planned_source = state->fallback == NULL ? CELLAR_SOURCE_CELL : CELLAR_SOURCE_HEAP;
	if (state->shared != NULL && IsParallelWorker())
		state->nblocks = state->shared->nblocks;
	else
	{
		if (state->planned_source == CELLAR_SOURCE_CELL)
			cellar_object_checkpoint(rel);
		else
			PredicateLockRelation(rel, state->css.ss.ps.state->es_snapshot);
		state->nblocks = RelationGetNumberOfBlocks(rel);
	}
	state->prepared = true;

	if (state->fallback != NULL && !IsParallelWorker())
		cellar_note_scan(RelationGetRelid(rel), state->fallback);
}

/*
 * Continues as an ordinary scan from where this one stands, for a cursor that
 * goes back.  Both return the same rows in the same order: blocks ascend,
 * line pointers ascend, and the snapshot is the same.
 */
static void
become_table_scan(CellarScanState *state)
{
	Relation	rel = state->css.ss.ss_currentRelation;
	ExprContext *econtext = state->css.ss.ps.ps_ExprContext;
	uint64		rows = 0;

	cellar_stop_rows(state);
	state->source = CELLAR_SOURCE_TABLE_SCAN;
	state->table_scan = table_beginscan_strat(rel, state->css.ss.ps.state->es_snapshot,
											  0, NULL, true, false);
	while (state->ended || rows < state->rows_emitted)
	{
		if (!table_scan_getnextslot(state->table_scan, ForwardScanDirection, state->heap_slot))
			break;
		CHECK_FOR_INTERRUPTS();
		ResetExprContext(econtext);
		econtext->ecxt_scantuple = state->heap_slot;
		if (ExecQual(state->all_quals, econtext))
			rows++;
	}
}

/* The next row to be checked, and the quals to check it with. */
static TupleTableSlot *
fetch_row(CellarScanState *state, ScanDirection direction, ExprState **quals)
{
	if (ScanDirectionIsBackward(direction) && state->source != CELLAR_SOURCE_TABLE_SCAN)
	{
		if (state->rows_emitted == 0 && !state->ended)
			return NULL;		/* before the first row */
		become_table_scan(state);
	}

	if (state->source == CELLAR_SOURCE_TABLE_SCAN)
	{
		*quals = state->all_quals;
		if (table_scan_getnextslot(state->table_scan, direction, state->heap_slot))
			return state->heap_slot;
		return NULL;
	}

	if (state->ended)
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

	if (!state->started)
	{
		cellar_prepare_scan(state);
		cellar_start_rows(state);
		state->started = true;
	}
	else if (state->batch != NULL && ScanDirectionIsForward(direction))
	{
		TupleTableSlot *output = cellar_next_output(state);

		if (output != NULL)
		{
			state->rows_emitted++;
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
				state->ended = true;
			ExecClearTuple(node->ss.ss_ScanTupleSlot);
			return projection == NULL ? node->ss.ss_ScanTupleSlot :
				ExecClearTuple(projection->pi_state.resultslot);
		}

		/* WHERE CURRENT OF looks here. */
		node->ss.ss_ScanTupleSlot = slot;
		econtext->ecxt_scantuple = slot;
		if (quals == NULL || ExecQual(quals, econtext))
		{
			state->rows_emitted++;
			return projection == NULL ? slot : ExecProject(projection);
		}
		InstrCountFiltered1(node, 1);
		ResetExprContext(econtext);
		CHECK_FOR_INTERRUPTS();
	}
}

/* Stops whatever is under way. */
static void
stop_scan(CellarScanState *state)
{
	cellar_stop_rows(state);
	if (state->table_scan != NULL)
		table_endscan(state->table_scan);
	state->table_scan = NULL;
	ExecClearTuple(state->heap_slot);
	ExecClearTuple(state->row_slot);
	state->source = CELLAR_SOURCE_UNDECIDED;
	state->started = false;
	state->ended = false;
	state->rows_emitted = 0;
}

static void
rescan(CustomScanState *node)
{
	stop_scan((CellarScanState *) node);
}

static void
end_scan(CustomScanState *node)
{
	CellarScanState *state = (CellarScanState *) node;

	stop_scan(state);
	if (state->heap.strategy != NULL)
		FreeAccessStrategy(state->heap.strategy);
	if (state->session != NULL)
		cellar_session_release(state->session);
	state->session = NULL;
}
