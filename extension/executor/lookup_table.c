/*-------------------------------------------------------------------------
 *
 * lookup_table.c
 *	  The plan state of Lookup Table: collects the join key and the columns
 *	  that an aggregation in the cell reads (planner/lookup_path.c), and passes
 *	  the rows of its child on to a Hash node.
 *
 * The Smart Scan that needs the table executes the child to the end when it
 * starts.  If the Hash node needs the rows later, the child is executed again; if
 * the child might return other rows then, the rows are kept.  If the Hash node
 * comes first, the rows are collected as they pass.
 *
 * The table is complete when the child has returned its last row.  Rows with a
 * NULL in the key have no join partner and are left out.  A table with too many rows
 * or bytes is given up: the Smart Scan then returns rows, and PostgreSQL joins
 * and aggregates them.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/tupmacs.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/plannodes.h"
#include "utils/memutils.h"

#include "cellar.h"
#include "cellar/planner.h"
#include "lookup_table.h"

/* The keys are at first this many, and then a power of two. */
#define INITIAL_KEYS	256

static void begin_lookup(CustomScanState *node, EState *estate, int eflags);
static TupleTableSlot *exec_lookup(CustomScanState *node);
static void end_lookup(CustomScanState *node);
static void rescan_lookup(CustomScanState *node);
static void explain_lookup(CustomScanState *node, List *ancestors, ExplainState *es);

static const CustomExecMethods lookup_exec_methods = {
	.CustomName = CELLAR_LOOKUP_NAME,
	.BeginCustomScan = begin_lookup,
	.ExecCustomScan = exec_lookup,
	.EndCustomScan = end_lookup,
	.ReScanCustomScan = rescan_lookup,
	.ExplainCustomScan = explain_lookup
};

Node *
cellar_create_lookup_state(CustomScan *cscan)
{
	CellarLookupState *state = (CellarLookupState *) newNode(sizeof(CellarLookupState), T_CustomScanState);

	state->css.methods = &lookup_exec_methods;
	return (Node *) state;
}

/* Forgets all rows. */
static void
reset_table(CellarLookupState *state)
{
	MemoryContextReset(state->context);
	state->executed = false;
	state->replaying = false;
	state->ncounted = 0;
	state->complete = false;
	state->borrowed = false;
	state->too_large = false;
	state->bytes = 0;
	state->nrows = 0;
	state->allocated = 0;
	state->keys = NULL;
	for (int i = 0; i < state->ncolumns; i++)
	{
		state->columns[i].has_nulls = false;
		state->columns[i].nulls.data = NULL;
		state->columns[i].values.data = NULL;
	}
}

static void
begin_lookup(CustomScanState *node, EState *estate, int eflags)
{
	CellarLookupState *state = (CellarLookupState *) node;
	CustomScan *cscan = (CustomScan *) node->ss.ps.plan;
	PlanState  *ps = &node->ss.ps;
	TupleDesc	tupdesc;
	ListCell   *lc;

	foreach(lc, cscan->custom_plans)
		node->custom_ps = lappend(node->custom_ps, ExecInitNode(lfirst(lc), estate, eflags));

	/* The rows are those of the child, in its slots. */
	ps->scanopsset = true;
	ps->scanopsfixed = false;
	ExecAssignScanProjectionInfoWithVarno(&node->ss, INDEX_VAR);

	state->row = ExecInitExtraTupleSlot(estate, ExecGetResultType(linitial(node->custom_ps)), &TTSOpsMinimalTuple);
	state->kind = linitial_int(list_nth(cscan->custom_private, CELLAR_LOOKUP_KIND));
	state->repeats = lsecond_int(list_nth(cscan->custom_private, CELLAR_LOOKUP_KIND));
	state->comparison = lthird_int(list_nth(cscan->custom_private, CELLAR_LOOKUP_KIND));
	tupdesc = ExecGetResultType(linitial(node->custom_ps));
	foreach(lc, list_nth(cscan->custom_private, CELLAR_LOOKUP_PARTS))
	{
		KeyPart    *part = &state->parts[state->nparts++];

		part->source = lfourth_int(lfirst(lc)) - 1;
		part->length = TupleDescAttr(tupdesc, part->source)->attlen;
	}
	state->context = AllocSetContextCreate(estate->es_query_cxt, "Lookup Table", ALLOCSET_DEFAULT_SIZES);
}

/* Returns the state of a Lookup Table, or NULL if the node is not a Lookup Table. */
static CellarLookupState *
lookup_state(PlanState *state)
{
	if (state == NULL || !IsA(state, CustomScanState) ||
		((CustomScanState *) state)->methods != &lookup_exec_methods)
		return NULL;
	return (CellarLookupState *) state;
}

/*
 * Returns the Smart Scan on the outer side of hash joins with lookup tables, and
 * adds the plan states of the lookup tables to *tables, in the order of the
 * joins.  Returns NULL if there is another node.
 */
CellarScanState *
cellar_find_lookups(PlanState *node, List **tables)
{
	while (node != NULL && IsA(node, HashJoinState))
	{
		CellarLookupState *table = lookup_state(outerPlanState(innerPlanState(node)));

		if (table == NULL)
			return NULL;
		table->hash = innerPlanState(node);
		*tables = lcons(table, *tables);
		node = outerPlanState(node);
	}
	return cellar_scan_state(node);
}

/* Appends the value of a column. */
static void
append_value(LookupColumn *column, Datum value, bool isnull)
{
	const CellarAttribute *attribute = &column->attribute;
	StringInfo	values = &column->values;

	appendStringInfoCharMacro(&column->nulls, isnull ? 1 : 0);
	column->has_nulls |= isnull;
	if (attribute->typlen == -1)
	{
		struct varlena *plain = isnull ? NULL : PG_DETOAST_DATUM_PACKED(value);
		uint32		bytes = isnull ? 0 : VARSIZE_ANY_EXHDR(plain);

		appendBinaryStringInfo(values, (char *) &bytes, sizeof(bytes));
		if (bytes > 0)
			appendBinaryStringInfo(values, VARDATA_ANY(plain), bytes);
		if (!isnull && (Pointer) plain != DatumGetPointer(value))
			pfree(plain);
	}
	else if (isnull || attribute->typbyval)
	{
		enlargeStringInfo(values, attribute->typlen);
		if (isnull)
			memset(values->data + values->len, 0, attribute->typlen);
		else
			store_att_byval(values->data + values->len, value, attribute->typlen);
		values->len += attribute->typlen;
	}
	else
		appendBinaryStringInfo(values, DatumGetPointer(value), attribute->typlen);
}

/* Adds a row of the child.  Gives the table up when it is too large. */
static void
add_row(CellarLookupState *state, TupleTableSlot *slot)
{
	MemoryContext oldcontext;

	slot_getallattrs(slot);
	for (int i = 0; i < state->nparts; i++)
	{
		if (slot->tts_isnull[state->parts[i].source])
			return;
	}

	oldcontext = MemoryContextSwitchTo(state->context);
	if (state->nrows == state->allocated)
	{
		Size		row_bytes = state->nparts * sizeof(int64);

		state->allocated = Max(2 * state->allocated, INITIAL_KEYS);
		state->keys = state->keys == NULL ? palloc(state->allocated * row_bytes) :
			repalloc(state->keys, state->allocated * row_bytes);
	}
	for (int i = 0; i < state->nparts; i++)
		state->keys[state->nrows * state->nparts + i] = cellar_integer_value(slot->tts_values[state->parts[i].source],
																  state->parts[i].length);
	state->nrows++;
	state->bytes = state->nrows * state->nparts * sizeof(int64);
	for (int i = 0; i < state->ncolumns; i++)
	{
		LookupColumn *column = &state->columns[i];

		if (column->values.data == NULL)
		{
			initStringInfo(&column->nulls);
			initStringInfo(&column->values);
		}
		append_value(column, slot->tts_values[column->source], slot->tts_isnull[column->source]);
		state->bytes += column->nulls.len + column->values.len;
	}
	MemoryContextSwitchTo(oldcontext);
	if (state->nrows > cellar_lookup_table_rows || state->bytes > CELLAR_LOOKUP_BYTES_MAX)
	{
		reset_table(state);
		state->too_large = true;
	}
}

/*
 * Executes the second child, if there is one, to the end: the node Join Keys,
 * which sets the parameter that filters the first child.  The keys may be those of
 * another table, which may be executed after this one.
 */
static void
collect_outer_keys(CellarLookupState *table)
{
	TupleTableSlot *slot;

	if (table->keys_owner != NULL)
	{
		table = table->keys_owner;
		cellar_apply_new_parameters(table);
	}
	if (list_length(table->css.custom_ps) < 2 || table->has_outer_keys)
		return;
	do
	{
		CHECK_FOR_INTERRUPTS();
		slot = ExecProcNode(lsecond(table->css.custom_ps));
	} while (!TupIsNull(slot));
	table->has_outer_keys = true;
}

static TupleTableSlot *
exec_lookup(CustomScanState *node)
{
	CellarLookupState *state = (CellarLookupState *) node;
	ExprContext *econtext = node->ss.ps.ps_ExprContext;
	TupleTableSlot *slot;

	CHECK_FOR_INTERRUPTS();
	ResetExprContext(econtext);
	slot = state->row;
	if (state->rows != NULL && tuplestore_gettupleslot(state->rows, true, false, slot))
	{
		/* The row was counted when it was collected. */
		if (node->ss.ps.instrument != NULL)
			node->ss.ps.instrument->tuplecount -= 1;
	}
	else
	{
		bool		passes_on;

		if (state->executed)
		{
			state->executed = false;
			state->replaying = true;
			ExecReScan(linitial(node->custom_ps));
		}
		/* The first child of a Hash node that comes first is filtered, too. */
		cellar_pass_new_parameters(state);
		collect_outer_keys(state);

		/* The child of a table whose keys are borrowed was not executed. */
		passes_on = state->replaying || state->borrowed;

		/* A complete child is not executed beyond its last row. */
		slot = state->complete && !passes_on ? NULL : ExecProcNode(linitial(node->custom_ps));
		if (TupIsNull(slot))
		{
			state->complete = !state->too_large;
			return node->ss.ps.ps_ProjInfo == NULL ? NULL : ExecClearTuple(node->ss.ps.ps_ResultTupleSlot);
		}
		if (!state->too_large && !passes_on)
			add_row(state, slot);
		if (state->ncounted > 0)
		{
			state->ncounted--;
			if (node->ss.ps.instrument != NULL)
				node->ss.ps.instrument->tuplecount -= 1;
		}
	}
	if (node->ss.ps.ps_ProjInfo == NULL)
		return slot;
	econtext->ecxt_scantuple = slot;
	return ExecProject(node->ss.ps.ps_ProjInfo);
}

/* Returns a table's column of the child's rows, or NULL. */
static const LookupColumn *
find_column(const CellarLookupState *table, AttrNumber source)
{
	for (int i = 0; i < table->ncolumns; i++)
	{
		if (table->columns[i].source == source)
			return &table->columns[i];
	}
	return NULL;
}

/*
 * Returns whether the twin is complete and has all columns, and uses them.  Without
 * all columns, the table keeps its own: add_row() appends to them.
 */
static bool
borrow_from_twin(CellarLookupState *table)
{
	CellarLookupState *twin = table->twin;

	if (twin != NULL)
		cellar_apply_new_parameters(twin);
	if (twin == NULL || !twin->complete || twin->borrowed)
		return false;
	for (int i = 0; i < table->ncolumns; i++)
	{
		if (find_column(twin, table->columns[i].source) == NULL)
			return false;
	}
	for (int i = 0; i < table->ncolumns; i++)
	{
		LookupColumn *column = &table->columns[i];
		const LookupColumn *other = find_column(twin, column->source);

		column->has_nulls = other->has_nulls;
		column->nulls = other->nulls;
		column->values = other->values;
	}
	table->keys = twin->keys;
	table->nrows = twin->nrows;
	table->bytes = twin->bytes;
	table->borrowed = true;
	table->complete = true;
	return true;
}

/*
 * Executes the child to the end unless the table is complete.  The earlier tables
 * are complete.
 */
static void
complete_table(CellarLookupState *table)
{
	PlanState  *node = &table->css.ss.ps;
	PlanState  *child = linitial(table->css.custom_ps);
	uint64		nrows = 0;

	cellar_apply_new_parameters(table);
	cellar_forget_new_parameters(table);
	if (table->borrowed)
	{
		/* A new execution of the twin has released the borrowed columns. */
		table->borrowed = false;
		table->complete = false;
		table->nrows = 0;
		if (borrow_from_twin(table))
			return;
		ExecReScan(node);
	}
	if (table->complete || table->too_large || table->nrows > 0 || borrow_from_twin(table))
		return;
	if (table->rows == NULL && !table->repeats)
	{
		MemoryContext oldcontext = MemoryContextSwitchTo(node->state->es_query_cxt);

		table->rows = tuplestore_begin_heap(false, false, work_mem);
		MemoryContextSwitchTo(oldcontext);
	}
	if (node->instrument != NULL)
		InstrStartNode(node->instrument);
	collect_outer_keys(table);
	while (!table->too_large)
	{
		TupleTableSlot *slot = ExecProcNode(child);

		CHECK_FOR_INTERRUPTS();
		if (TupIsNull(slot))
		{
			table->complete = true;
			break;
		}
		if (table->rows != NULL)
			tuplestore_puttupleslot(table->rows, slot);
		add_row(table, slot);
		nrows++;
	}
	table->executed = table->repeats;
	table->ncounted = table->repeats ? nrows : 0;
	if (node->instrument != NULL)
		InstrStopNode(node->instrument, nrows);
}

/*
 * Completes the tables.  Returns their bytes in a request, or -1 if a table is not
 * complete.
 */
int64
cellar_lookup_bytes(List *tables)
{
	int64		bytes = 0;
	ListCell   *lc;

	foreach(lc, tables)
	{
		CellarLookupState *table = lfirst(lc);

		complete_table(table);
		if (!table->complete)
			return -1;
		bytes += table->bytes;
	}
	return bytes;
}

/* Frees the rows of the child that were kept. */
static void
free_rows(CellarLookupState *state)
{
	ExecClearTuple(state->row);
	if (state->rows != NULL)
		tuplestore_end(state->rows);
	state->rows = NULL;
}

static void
rescan_lookup(CustomScanState *node)
{
	CellarLookupState *state = (CellarLookupState *) node;
	ListCell   *lc;

	reset_table(state);
	free_rows(state);
	state->has_outer_keys = false;
	cellar_note_new_parameters(state);
	foreach(lc, node->custom_ps)
	{
		PlanState  *child = lfirst(lc);

		if (node->ss.ps.chgParam != NULL)
			UpdateChangedParamSet(child, node->ss.ps.chgParam);
		if (child->chgParam == NULL)
			ExecReScan(child);
	}
}

static void
end_lookup(CustomScanState *node)
{
	ListCell   *lc;

	free_rows((CellarLookupState *) node);
	foreach(lc, node->custom_ps)
		ExecEndNode(lfirst(lc));
}

/* By CELLAR_COMPARISON_... */
static const char *const comparison_names[] = {"", "<>", "<", "<=", ">", ">="};

/* Shows the key and the columns, and after execution the size of the table. */
static void
explain_lookup(CustomScanState *node, List *ancestors, ExplainState *es)
{
	CellarLookupState *state = (CellarLookupState *) node;
	List	   *tlist = ((CustomScan *) node->ss.ps.plan)->custom_scan_tlist;
	List	   *columns = NIL;
	List	   *keys = NIL;

	for (int i = 0; i < state->nparts; i++)
		keys = lappend(keys, list_nth_node(TargetEntry, tlist, state->parts[i].source)->expr);
	cellar_explain_expressions("Key", keys, node, ancestors, es);
	if (state->comparison != CELLAR_COMPARISON_NONE)
		ExplainPropertyText("Comparison with Last Key", comparison_names[state->comparison], es);
	for (int i = 0; i < state->ncolumns; i++)
		columns = lappend(columns, list_nth_node(TargetEntry, tlist, state->columns[i].source)->expr);
	cellar_explain_expressions("Columns", columns, node, ancestors, es);
	if (!es->analyze)
		return;
	if (state->too_large)
		ExplainPropertyText("Not Offloaded", "the lookup table is too large", es);
	else if (state->complete)
		ExplainPropertyInteger("Lookup Table Size", "kB", (state->bytes + 1023) / 1024, es);
}
