/*-------------------------------------------------------------------------
 *
 * offload_reasons.c
 *	  The session's notes on what of its last statement was not offloaded.
 *
 * A note is made where a decision falls, as cheaply as possible; its text is
 * made only when somebody asks.  Two statements' notes are kept, so that the
 * statement that asks does not hide the one before it.
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
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "rewrite/rewriteManip.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/ruleutils.h"
#include "utils/timestamp.h"

#include "cellar/planner.h"

PG_FUNCTION_INFO_V1(cellar_why_not_offloaded);

#define NOTES_MAX		200
#define REASON_CHEAPER	"another access path is estimated to be cheaper"

typedef struct Note
{
	Oid			relid;
	Index		varno;
	bool		aggregate;		/* not about the scan, but about its aggregation */
	Node	   *qual;			/* or key or aggregate; NULL for it as a whole */
	const char *reason;
	bool		cheaper;		/* holds unless the path becomes a plan */
} Note;

typedef struct Notes
{
	TimestampTz statement;		/* when it started */
	MemoryContext context;
	List	   *notes;
} Notes;

static Notes notes[2];
static Notes *current_notes = &notes[0];
static ExecutorStart_hook_type previous_executor_start = NULL;

/* The notes of the statement that runs now. */
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
add_note(Oid relid, Index varno, bool aggregate, Node *qual, const char *reason, bool cheaper)
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
			strcmp(note->reason, reason) == 0 && equal(note->qual, qual))
			return;
	}

	oldcontext = MemoryContextSwitchTo(current->context);
	note = palloc(sizeof(Note));
	note->relid = relid;
	note->varno = varno;
	note->aggregate = aggregate;
	note->qual = copyObject(qual);
	note->reason = pstrdup(reason);
	note->cheaper = cheaper;
	current->notes = lappend(current->notes, note);
	MemoryContextSwitchTo(oldcontext);
}

/* The relation's scan is not offloaded. */
void
cellar_note_scan(Oid relid, const char *reason)
{
	if (!IsParallelWorker() && !IsCatalogRelationOid(relid))
		add_note(relid, 0, false, NULL, reason, false);
}

/* A Smart Scan of the relation was offered to the planner ... */
void
cellar_note_cheaper(Oid relid)
{
	add_note(relid, 0, false, NULL, REASON_CHEAPER, true);
}

/* ... and taken. */
void
cellar_note_chosen(Oid relid)
{
	Notes	   *current = statement_notes();
	ListCell   *lc;

	foreach(lc, current->notes)
	{
		Note	   *note = lfirst(lc);

		if (note->cheaper && note->relid == relid)
		{
			current->notes = foreach_delete_current(current->notes, lc);
			break;
		}
	}
}

/* The scan is offloaded, but not this qual. */
void
cellar_note_qual(Oid relid, Index varno, Node *qual, const char *reason)
{
	add_note(relid, varno, false, qual, reason, false);
}

/*
 * The scan may be offloaded, but not the aggregation of its rows; expression
 * is the key or aggregate in the way, if one is.
 */
void
cellar_note_aggregate(Oid relid, Index varno, Node *expression, const char *reason)
{
	add_note(relid, varno, true, expression, reason, false);
}

/* Statements without notes count too: nothing was left behind in them. */
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
cellar_install_why(void)
{
	previous_executor_start = ExecutorStart_hook;
	ExecutorStart_hook = executor_start;
}

static char *
qual_text(Note *note, const char *name)
{
	Node	   *qual;

	if (contain_subplans(note->qual))
		return pstrdup("(with a subquery)");
	qual = copyObject(note->qual);
	ChangeVarNodes(qual, note->varno, 1, 0);
	return deparse_expression(qual, deparse_context_for(name, note->relid), false, false);
}

Datum
cellar_why_not_offloaded(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	Notes	   *last = statement_notes();
	ListCell   *lc;

	InitMaterializedSRF(fcinfo, 0);
	last = last == &notes[0] ? &notes[1] : &notes[0];
	foreach(lc, last->notes)
	{
		Note	   *note = lfirst(lc);
		char	   *name = get_rel_name(note->relid);
		Datum		values[4];
		bool		nulls[4] = {false, false, false, false};

		if (name == NULL)
			continue;			/* dropped since */
		values[0] = ObjectIdGetDatum(note->relid);
		values[1] = CStringGetTextDatum(note->aggregate ? "aggregation" :
										note->qual == NULL ? "scan" : "qual");
		nulls[2] = note->qual == NULL;
		if (!nulls[2])
			values[2] = CStringGetTextDatum(qual_text(note, name));
		values[3] = CStringGetTextDatum(note->reason);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, values, nulls);
	}
	return (Datum) 0;
}
