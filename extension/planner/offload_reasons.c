/*-------------------------------------------------------------------------
 *
 * offload_reasons.c
 *	  Records why parts of the last statement were not offloaded, for the view
 *	  cellar.why_not_offloaded.
 *
 * Planner and executor add a note where they decide.  Adding a note is cheap:
 * the text of a qual is deparsed only when the view is read.  Notes of two
 * statements are kept, because the statement that reads the view has notes
 * too.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "access/xact.h"
#include "catalog/catalog.h"
#include "catalog/namespace.h"
#include "executor/executor.h"
#include "funcapi.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "rewrite/rewriteManip.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/ruleutils.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

#include "cellar.h"
#include "cellar/planner.h"

PG_FUNCTION_INFO_V1(cellar_why_not_offloaded);

#define NOTES_MAX		200
#define REASON_CHEAPER	"another access path is estimated to be cheaper"
#define REASON_CHEAPER_AGGREGATION	"another way to aggregate is estimated to be cheaper"

typedef struct Note
{
	Oid			relid;
	Index		varno;
	bool		aggregate;		/* about the aggregation, not the scan */
	Node	   *expr;			/* qual or group key; NULL for the whole scan
								 * or aggregation */
	const char *reason;
	bool		cheaper;		/* removed when the path becomes a plan */
} Note;

/* The notes of one statement. */
typedef struct Notes
{
	TimestampTz statement;		/* start time */
	MemoryContext context;
	List	   *notes;
} Notes;

static Notes notes[2];
static Notes *current_notes = &notes[0];
static ExecutorStart_hook_type previous_executor_start = NULL;

/* Returns the notes of the current statement. */
static Notes *
statement_notes(void)
{
	TimestampTz statement = GetCurrentStatementStartTimestamp();

	if (current_notes->context == NULL || current_notes->statement != statement)
	{
		current_notes = current_notes == &notes[0] ? &notes[1] : &notes[0];
		if (current_notes->context == NULL)
			current_notes->context = AllocSetContextCreate(TopMemoryContext, "cellar notes",
														   ALLOCSET_SMALL_SIZES);
		else
			MemoryContextReset(current_notes->context);
		current_notes->notes = NIL;
		current_notes->statement = statement;
	}
	return current_notes;
}

static void
add_note(Oid relid, Index varno, bool aggregate, Node *expr, const char *reason, bool cheaper)
{
	Notes	   *current = statement_notes();
	MemoryContext oldcontext;
	Note	   *note;
	ListCell   *lc;

	if (list_length(current->notes) >= NOTES_MAX)
		return;
	foreach(lc, current->notes)
	{
		note = lfirst(lc);
		if (note->relid == relid && note->cheaper == cheaper && note->aggregate == aggregate &&
			strcmp(note->reason, reason) == 0 && equal(note->expr, expr))
			return;
	}

	oldcontext = MemoryContextSwitchTo(current->context);
	note = palloc(sizeof(Note));
	note->relid = relid;
	note->varno = varno;
	note->aggregate = aggregate;
	note->expr = copyObject(expr);
	note->reason = pstrdup(reason);
	note->cheaper = cheaper;
	current->notes = lappend(current->notes, note);
	MemoryContextSwitchTo(oldcontext);
}

/*
 * Returns the notes of the current statement so far, for cellar_restore_notes().
 */
List *
cellar_save_notes(void)
{
	Notes	   *current = statement_notes();
	MemoryContext oldcontext = MemoryContextSwitchTo(current->context);
	List	   *saved = list_copy(current->notes);

	MemoryContextSwitchTo(oldcontext);
	return saved;
}

/*
 * Replaces the notes of the current statement by saved ones, because a plan was
 * rejected.
 */
void
cellar_restore_notes(List *saved)
{
	statement_notes()->notes = saved;
}

/*
 * Notes that the scan of the relation is not offloaded.
 */
void
cellar_note_scan(Oid relid, const char *reason)
{
	if (!IsParallelWorker() && !IsCatalogRelationOid(relid))
		add_note(relid, 0, false, NULL, reason, false);
}

/*
 * Notes that another path is cheaper, when the path of a Smart Scan, or of an
 * aggregation in the cell, is added.  The note remains unless cellar_note_chosen
 * removes it.
 */
void
cellar_note_cheaper(Oid relid, bool aggregate)
{
	add_note(relid, 0, aggregate, NULL, aggregate ? REASON_CHEAPER_AGGREGATION : REASON_CHEAPER, true);
}

/*
 * Removes the note of cellar_note_cheaper when the path becomes a plan.
 */
void
cellar_note_chosen(Oid relid, bool aggregate)
{
	Notes	   *current = statement_notes();
	ListCell   *lc;

	foreach(lc, current->notes)
	{
		Note	   *note = lfirst(lc);

		if (note->cheaper && note->aggregate == aggregate && note->relid == relid)
		{
			current->notes = foreach_delete_current(current->notes, lc);
			break;
		}
	}
}

/*
 * Notes that the scan is offloaded but not this qual.
 */
void
cellar_note_qual(Oid relid, Index varno, Node *qual, const char *reason)
{
	add_note(relid, varno, false, qual, reason, false);
}

/*
 * Notes that the aggregation of the scan is not offloaded.  expr is the group
 * key that prevents it, or NULL.
 */
void
cellar_note_aggregate(Oid relid, Index varno, Node *expr, const char *reason)
{
	add_note(relid, varno, true, expr, reason, false);
}

/* Starts the notes of each statement, also of one that adds none. */
static void
executor_start(QueryDesc *queryDesc, int eflags)
{
	if (!IsParallelWorker())
		statement_notes();
	if (previous_executor_start != NULL)
		previous_executor_start(queryDesc, eflags);
	else
		standard_ExecutorStart(queryDesc, eflags);
}

void
cellar_install_offload_reasons(void)
{
	previous_executor_start = ExecutorStart_hook;
	ExecutorStart_hook = executor_start;
}

/* Replaces the placeholders that a subquery below grouping sets leaves, which have no SQL text. */
static Node *
without_placeholders(Node *node, void *context)
{
	if (node == NULL)
		return NULL;
	if (IsA(node, PlaceHolderVar))
		return without_placeholders((Node *) ((PlaceHolderVar *) node)->phexpr, context);
	return expression_tree_mutator(node, without_placeholders, context);
}

/* Returns the SQL text of the note's expression. */
static char *
expression_text(Note *note, const char *name)
{
	Node	   *expr;

	if (contain_subplans(note->expr))
		return pstrdup("(with a subquery)");
	expr = without_placeholders(note->expr, NULL);
	ChangeVarNodes(expr, note->varno, 1, 0);
	return deparse_expression(expr, deparse_context_for(name, note->relid), false, false);
}

/*
 * Returns the notes of the previous statement: relation, what ("scan",
 * "qual" or "aggregation"), expression, reason.
 */
Datum
cellar_why_not_offloaded(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	Notes	   *last = statement_notes();
	ListCell   *lc;

	cellar_begin_rows(fcinfo, 4);
	last = last == &notes[0] ? &notes[1] : &notes[0];
	foreach(lc, last->notes)
	{
		Note	   *note = lfirst(lc);
		char	   *name = get_rel_name(note->relid);
		Datum		values[4];
		bool		nulls[4] = {false, false, false, false};

		if (name == NULL)
			continue;			/* the table was dropped */
		values[0] = ObjectIdGetDatum(note->relid);
		values[1] = CStringGetTextDatum(note->aggregate ? "aggregation" :
										note->expr == NULL ? "scan" : "qual");
		nulls[2] = note->expr == NULL;
		if (!nulls[2])
			values[2] = CStringGetTextDatum(expression_text(note, name));
		values[3] = CStringGetTextDatum(note->reason);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}
