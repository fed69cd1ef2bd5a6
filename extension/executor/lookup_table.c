/*-------------------------------------------------------------------------
 *
 * lookup_table.c
 *	  The plan state of Lookup Table: collects the join key and the columns
 *	  that an aggregation in the cell reads (planner/lookup_path.c), and passes
 *	  the rows of its child on to a Hash node.
 *
 * The Smart Scan that needs the table executes the child to the end when it
 * starts, and keeps the rows in case that the Hash node needs them later.  If
 * the Hash node comes first, the rows are collected as they pass.
 *
 * The table is complete when the child has returned its last row.  Rows with a
 * NULL in the key have no join partner and are left out.  A table with too many rows
 * or bytes is given up: the Smart Scan then returns rows, and PostgreSQL joins
 * and aggregates them.
 *
 * In the expressions for the cell, the columns of all tables follow those of
 * the scanned relation, table by table.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/tupmacs.h"
#include "executor/executor.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "nodes/plannodes.h"
#include "optimizer/optimizer.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "cellar.h"
#include "cellar/executor.h"
#include "cellar/planner.h"

/* The keys are at first this many, and then a power of two. */
#define INITIAL_KEYS	256

/* A column of the child's rows that the cell needs. */
typedef struct LookupColumn
{
	AttrNumber	source;			/* zero-based */
	CellarAttribute attribute;
	bool		has_nulls;
	StringInfoData nulls;		/* one byte per row */
	StringInfoData values;
} LookupColumn;

/* A part of the key. */
typedef struct KeyPart
{
	AttrNumber	source;			/* zero-based column of the child's rows */
	int16		length;
	uint16		attribute;		/* that is equal: of the scanned relation, or
								 * the number of a lookup table's column */
} KeyPart;

/* Plan state of Lookup Table. */
struct CellarLookupState
{
	CustomScanState css;
	int			kind;			/* of join */
	int			nparts;
	KeyPart		parts[CELLAR_KEY_PARTS_MAX];
	PlanState  *hash;			/* the Hash node above */
	Tuplestorestate *rows;		/* rows of the child that the Hash node has
								 * not read; NULL if there are none */
	TupleTableSlot *row;
	int			ncolumns;
	LookupColumn *columns;
	bool		complete;		/* the child has returned its last row */
	bool		too_large;
	Size		bytes;
	size_t		nrows;
	size_t		allocated;		/* rows */
	int64	   *keys;			/* nparts per row */
	MemoryContext context;		/* of keys and columns */
};

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
	state->complete = false;
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

	node->custom_ps = list_make1(ExecInitNode(linitial(cscan->custom_plans), estate, eflags));

	/* The rows are those of the child, in its slots. */
	ps->scanopsset = true;
	ps->scanopsfixed = false;
	ExecAssignScanProjectionInfoWithVarno(&node->ss, INDEX_VAR);

	state->row = ExecInitExtraTupleSlot(estate, ExecGetResultType(linitial(node->custom_ps)), &TTSOpsMinimalTuple);
	state->kind = linitial_int(linitial(cscan->custom_private));
	tupdesc = ExecGetResultType(linitial(node->custom_ps));
	foreach(lc, lsecond(cscan->custom_private))
	{
		KeyPart    *part = &state->parts[state->nparts++];

		part->source = lfourth_int(lfirst(lc)) - 1;
		part->length = TupleDescAttr(tupdesc, part->source)->attlen;
	}
	state->context = AllocSetContextCreate(estate->es_query_cxt, "Lookup Table", ALLOCSET_DEFAULT_SIZES);
}

/* Returns the plan state as that of a Lookup Table, or NULL for any other node. */
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

/* Returns the number of a column in the rows of the table, or 0. */
static AttrNumber
source_of(CellarLookupState *table, const Var *var)
{
	ListCell   *lc;

	foreach(lc, ((CustomScan *) table->css.ss.ps.plan)->custom_scan_tlist)
	{
		TargetEntry *entry = lfirst_node(TargetEntry, lc);
		Var		   *column = (Var *) entry->expr;

		if (IsA(column, Var) && column->varno == var->varno && column->varattno == var->varattno)
			return entry->resno;
	}
	return 0;
}

/* Adds a column unless the table has it. */
static void
add_column(CellarLookupState *table, AttrNumber source, const Var *var)
{
	LookupColumn *column;
	CellarAttribute *attribute;

	for (int i = 0; i < table->ncolumns; i++)
	{
		if (table->columns[i].source == source - 1)
			return;
	}
	table->columns = table->columns == NULL ? palloc(sizeof(LookupColumn)) :
		repalloc(table->columns, (table->ncolumns + 1) * sizeof(LookupColumn));
	column = &table->columns[table->ncolumns++];
	memset(column, 0, sizeof(LookupColumn));
	column->source = source - 1;
	attribute = &column->attribute;
	attribute->typmod = var->vartypmod;
	attribute->type = getBaseTypeAndTypmod(var->vartype, &attribute->typmod);
	get_typlenbyvalalign(attribute->type, &attribute->typlen, &attribute->typbyval, &attribute->typalign);
}

typedef struct NumberContext
{
	List	   *tables;
	Index		relation;
	int			natts;			/* of the relation */
} NumberContext;

/* Replaces the columns of lookup tables by columns after those of the relation. */
static Node *
number_columns(Node *node, void *arg)
{
	NumberContext *context = arg;

	if (node == NULL)
		return NULL;
	if (IsA(node, Var) && ((Var *) node)->varno != context->relation)
	{
		Var		   *var = copyObject((Var *) node);
		int			before = context->natts;
		ListCell   *lc;

		foreach(lc, context->tables)
		{
			CellarLookupState *table = lfirst(lc);
			AttrNumber	source = source_of(table, var);

			for (int i = 0; source > 0 && i < table->ncolumns; i++)
			{
				if (table->columns[i].source != source - 1)
					continue;
				var->varno = context->relation;
				var->varattno = before + i + 1;
				return (Node *) var;
			}
			before += table->ncolumns;
		}
		elog(ERROR, "a column is in no lookup table");
	}
	return expression_tree_mutator(node, number_columns, arg);
}

/*
 * Returns the column that is equal to a part of the table's key.
 */
static Var
outer_column(CellarLookupState *table, int part)
{
	CustomScan *cscan = (CustomScan *) table->css.ss.ps.plan;
	List	   *numbers = list_nth(lsecond(cscan->custom_private), part);
	Var		   *key = (Var *) list_nth_node(TargetEntry, cscan->custom_scan_tlist, table->parts[part].source)->expr;
	Var			column = {.varattno = lsecond_int(numbers)};

	/* The planner has moved range table indexes since it created the path. */
	column.varno = linitial_int(numbers) + key->varno - lthird_int(numbers);
	return column;
}

/*
 * Calls add_column for the columns of tables that are parts of the keys of later
 * tables, or with numbers sets the attributes of all parts.
 */
static void
resolve_keys(List *tables, Index relation, int natts, bool numbers)
{
	ListCell   *lc;

	foreach(lc, tables)
	{
		CellarLookupState *table = lfirst(lc);

		for (int i = 0; i < table->nparts; i++)
		{
			Var			column = outer_column(table, i);
			int			before = natts;
			bool		found = column.varno == relation;
			ListCell   *other;

			table->parts[i].attribute = column.varattno;
			foreach(other, tables)
			{
				CellarLookupState *earlier = lfirst(other);
				AttrNumber	source = found ? 0 : source_of(earlier, &column);

				if (source > 0 && !numbers)
				{
					Var		   *var = (Var *) list_nth_node(TargetEntry,
														((CustomScan *) earlier->css.ss.ps.plan)->custom_scan_tlist,
														source - 1)->expr;

					add_column(earlier, source, var);
				}
				for (int j = 0; source > 0 && j < earlier->ncolumns; j++)
				{
					if (earlier->columns[j].source == source - 1)
						table->parts[i].attribute = before + j + 1;
				}
				found |= source > 0;
				before += earlier->ncolumns;
			}
			if (!found)
				elog(ERROR, "the key of a lookup table is in no other table");
		}
	}
}

/*
 * Decides which columns of the lookup tables the expressions need, and returns
 * the expressions over the relation's columns and those that follow them.
 */
List *
cellar_number_lookup_columns(List *tables, List *expressions, Index relation, int natts)
{
	NumberContext context = {.tables = tables,.relation = relation,.natts = natts};
	List	   *vars = pull_var_clause((Node *) expressions, PVC_RECURSE_AGGREGATES);
	ListCell   *table;
	ListCell   *var;

	foreach(table, tables)
	{
		foreach(var, vars)
		{
			AttrNumber	source = source_of(lfirst(table), lfirst(var));

			if (lfirst_node(Var, var)->varno != relation && source > 0)
				add_column(lfirst(table), source, lfirst(var));
		}
	}
	resolve_keys(tables, relation, natts, false);
	resolve_keys(tables, relation, natts, true);
	return castNode(List, number_columns((Node *) expressions, &context));
}

static int64
key_value(Datum datum, int16 typlen)
{
	return typlen == sizeof(int16) ? DatumGetInt16(datum) :
		typlen == sizeof(int32) ? DatumGetInt32(datum) : DatumGetInt64(datum);
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
		state->keys[state->nrows * state->nparts + i] = key_value(slot->tts_values[state->parts[i].source],
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
	if (state->nrows > CELLAR_JOIN_KEYS_MAX || state->bytes > CELLAR_LOOKUP_BYTES_MAX)
	{
		reset_table(state);
		state->too_large = true;
	}
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
	if (state->rows == NULL || !tuplestore_gettupleslot(state->rows, true, false, slot))
	{
		/* A complete child is not executed beyond its last row. */
		slot = state->complete ? NULL : ExecProcNode(linitial(node->custom_ps));
		if (TupIsNull(slot))
		{
			state->complete = !state->too_large;
			return node->ss.ps.ps_ProjInfo == NULL ? NULL : ExecClearTuple(node->ss.ps.ps_ResultTupleSlot);
		}
		if (!state->too_large)
			add_row(state, slot);
	}
	if (node->ss.ps.ps_ProjInfo == NULL)
		return slot;
	econtext->ecxt_scantuple = slot;
	return ExecProject(node->ss.ps.ps_ProjInfo);
}

/*
 * Executes the child to the end unless the table is complete.  A new parameter
 * has not reached this node if the Hash node was not executed since.
 */
static void
complete_table(CellarLookupState *table)
{
	PlanState  *node = &table->css.ss.ps;
	PlanState  *child = linitial(table->css.custom_ps);

	if (table->hash->chgParam != NULL)
	{
		/* A later execution of the Hash node must not execute the child again. */
		UpdateChangedParamSet(node, table->hash->chgParam);
		bms_free(table->hash->chgParam);
		table->hash->chgParam = NULL;
	}
	if (node->chgParam != NULL)
		ExecReScan(node);
	if (table->complete || table->too_large || table->nrows > 0)
		return;
	if (table->rows == NULL)
	{
		MemoryContext oldcontext = MemoryContextSwitchTo(node->state->es_query_cxt);

		table->rows = tuplestore_begin_heap(false, false, work_mem);
		MemoryContextSwitchTo(oldcontext);
	}
	if (node->instrument != NULL)
		InstrStartNode(node->instrument);
	while (!table->too_large)
	{
		TupleTableSlot *slot = ExecProcNode(child);

		CHECK_FOR_INTERRUPTS();
		if (TupIsNull(slot))
		{
			table->complete = true;
			break;
		}
		tuplestore_puttupleslot(table->rows, slot);
		add_row(table, slot);
	}
	if (node->instrument != NULL)
		InstrStopNode(node->instrument, table->nrows);
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

/* Adds the tables to a request. */
void
cellar_request_lookups(CellarRequest *request, List *tables)
{
	ListCell   *lc;

	foreach(lc, tables)
	{
		CellarLookupState *table = lfirst(lc);
		uint16		attributes[CELLAR_KEY_PARTS_MAX];

		for (int i = 0; i < table->nparts; i++)
			attributes[i] = table->parts[i].attribute;
		cellar_request_lookup(request, table->kind, attributes, table->nparts,
							  table->keys, table->nrows * table->nparts);
		for (int i = 0; i < table->ncolumns; i++)
		{
			LookupColumn *column = &table->columns[i];

			cellar_request_lookup_column(request, &column->attribute, (const uint8 *) column->nulls.data,
										 column->has_nulls ? table->nrows : 0,
										 column->values.data, table->nrows == 0 ? 0 : column->values.len);
		}
	}
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
	PlanState  *child = linitial(node->custom_ps);

	reset_table(state);
	free_rows(state);
	if (node->ss.ps.chgParam != NULL)
		UpdateChangedParamSet(child, node->ss.ps.chgParam);
	if (child->chgParam == NULL)
		ExecReScan(child);
}

static void
end_lookup(CustomScanState *node)
{
	free_rows((CellarLookupState *) node);
	ExecEndNode(linitial(node->custom_ps));
}

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
