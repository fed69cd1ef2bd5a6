/*-------------------------------------------------------------------------
 *
 * explain.c
 *	  EXPLAIN output of Smart Scans.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "commands/explain.h"
#include "nodes/makefuncs.h"
#include "nodes/nodeFuncs.h"
#include "utils/rel.h"
#include "utils/ruleutils.h"

#include "cellar.h"
#include "cellar/executor.h"
#include "cellar/planner.h"

static void
explain_storage_predicate(CellarScanState *state, List *ancestors, ExplainState *es)
{
	Plan	   *plan = state->css.ss.ps.plan;
	List	   *quals = cellar_get_storage_predicate((CustomScan *) plan);
	List	   *context;

	if (quals == NIL || cellar_plan_display == CELLAR_DISPLAY_NEVER)
		return;
	context = set_deparse_context_plan(es->deparse_cxt, plan, ancestors);
	ExplainPropertyText("Storage Predicate",
						deparse_expression((Node *) make_ands_explicit(quals), context,
										   es->verbose, false),
						es);
}

/* Shows the index whose entries are the rows. */
static void
explain_index(CellarScanState *state, ExplainState *es)
{
	if (state->index.rel != NULL && cellar_plan_display != CELLAR_DISPLAY_NEVER)
		ExplainPropertyText("Cell Index", RelationGetRelationName(state->index.rel), es);
}

/* Appends the order of sort keys, for example " by price DESC, id". */
static void
append_order(StringInfo text, const CellarTopN *top, List *keys, List *context, bool forceprefix)
{
	ListCell   *lc;

	foreach(lc, keys)
	{
		int			direction = list_nth_int(top->directions, foreach_current_index(lc));
		bool		descending = (direction & CELLAR_DESCENDING) != 0;
		bool		nulls_first = (direction & CELLAR_NULLS_FIRST) != 0;

		appendStringInfo(text, "%s %s%s%s", foreach_current_index(lc) == 0 ? " by" : ",",
						 deparse_expression(lfirst(lc), context, forceprefix, false),
						 descending ? " DESC" : "",
						 nulls_first == descending ? "" : nulls_first ? " NULLS FIRST" : " NULLS LAST");
	}
}

/* Shows a top-N, for example "10 by price DESC, id". */
static void
explain_top_n(CellarScanState *state, List *ancestors, ExplainState *es)
{
	Plan	   *plan = state->css.ss.ps.plan;
	CellarTopN	top;
	StringInfoData text;

	if (cellar_plan_display == CELLAR_DISPLAY_NEVER || !cellar_get_top_n((CustomScan *) plan, &top))
		return;
	initStringInfo(&text);
	appendStringInfo(&text, "%d", top.rows);
	append_order(&text, &top, top.keys, set_deparse_context_plan(es->deparse_cxt, plan, ancestors), es->verbose);
	ExplainPropertyText("Storage Top-N", text.data, es);
	pfree(text.data);
}

/* Replaces columns that stand for outputs of the cell by the outputs. */
static Node *
replace_outputs(Node *node, List *outputs)
{
	if (node == NULL)
		return NULL;
	if (IsA(node, Var))
	{
		Node	   *output = copyObject(list_nth(outputs, ((Var *) node)->varattno - 1));

		/* Show the result of the aggregate, not its partial state. */
		if (IsA(output, Aggref))
		{
			((Aggref *) output)->aggsplit = AGGSPLIT_SIMPLE;
			((Aggref *) output)->aggtype = ((Var *) node)->vartype;
		}
		return output;
	}
	return expression_tree_mutator(node, replace_outputs, outputs);
}

/* Shows which groups the query can need. */
static void
explain_group_pruning(CustomScanState *node, List *outputs, List *ancestors, ExplainState *es)
{
	const CellarGroupPruning *pruning = &((CellarAggregateState *) node)->pruning;
	List	   *context = set_deparse_context_plan(es->deparse_cxt, node->ss.ps.plan, ancestors);

	if (pruning->conditions != NIL)
		ExplainPropertyText("Cell Group Filter",
							deparse_expression(replace_outputs((Node *) make_ands_explicit(pruning->conditions), outputs),
											   context, es->verbose, false),
							es);
	if (pruning->top.rows > 0)
	{
		StringInfoData text;

		initStringInfo(&text);
		appendStringInfo(&text, "%d", pruning->top.rows);
		append_order(&text, &pruning->top, (List *) replace_outputs((Node *) pruning->top.keys, outputs),
					 context, es->verbose);
		if (pruning->with_ties)
			appendStringInfoString(&text, ", with ties");
		ExplainPropertyText("Cell Group Limit", text.data, es);
		pfree(text.data);
	}
}

static void
explain_columns(CellarScanState *state, ExplainState *es)
{
	TupleDesc	tupdesc = RelationGetDescr(state->css.ss.ss_currentRelation);
	List	   *names = NIL;

	if (state->projection.whole_rows)
		names = list_make1("whole rows");
	else
	{
		for (int i = 0; i < state->projection.ntargets; i++)
			names = lappend(names, NameStr(TupleDescAttr(tupdesc, state->projection.targets[i].attribute)->attname));
	}
	if (names != NIL)
		ExplainPropertyList("Columns", names, es);
}

/*
 * Shows a list of expressions of a plan node.
 */
void
cellar_explain_expressions(const char *label, List *expressions, CustomScanState *node,
						   List *ancestors, ExplainState *es)
{
	List	   *context = set_deparse_context_plan(es->deparse_cxt, node->ss.ps.plan, ancestors);
	List	   *texts = NIL;
	ListCell   *lc;

	foreach(lc, expressions)
		texts = lappend(texts, deparse_expression(lfirst(lc), context, es->verbose, false));
	if (texts != NIL)
		ExplainPropertyList(label, texts, es);
}

static void
explain_threads(const CellarScanState *state, ExplainState *es)
{
	if (state->plan.threads > 1)
		ExplainPropertyInteger("Cell Threads", NULL, state->plan.threads, es);
}

/*
 * Shows what the cell aggregates.  The child Smart Scan shows the counts.
 */
void
cellar_explain_aggregate(CustomScanState *node, List *ancestors, ExplainState *es)
{
	List	   *keys;
	List	   *aggregates;
	PlanState  *scan;

	if (cellar_plan_display == CELLAR_DISPLAY_NEVER)
		return;
	cellar_get_aggregation((CustomScan *) node->ss.ps.plan, &keys, &aggregates);
	cellar_explain_expressions("Cell Group Key", keys, node, ancestors, es);
	cellar_explain_expressions("Cell Aggregates", aggregates, node, ancestors, es);
	cellar_explain_expressions("Cell Join Filter", cellar_get_join_conditions((CustomScan *) node->ss.ps.plan),
							   node, ancestors, es);
	if (((CellarAggregateState *) node)->distinct_argument != NULL)
	{
		const CellarDistinct *distinct = &((CellarAggregateState *) node)->distinct;

		cellar_explain_expressions("Cell Distinct Aggregates", distinct->aggregates, node, ancestors, es);
		keys = list_truncate(keys, distinct->nkeys);
		aggregates = list_concat(aggregates, distinct->aggregates);
	}
	explain_group_pruning(node, list_concat(list_copy(keys), aggregates), ancestors, es);
	scan = outerPlanState(linitial(node->custom_ps));
	while (IsA(scan, HashJoinState))
		scan = outerPlanState(scan);
	explain_threads((CellarScanState *) scan, es);
}

/* Appends one line in text format. */
static void
text_line(ExplainState *es, const char *label, const char *figures)
{
	appendStringInfoSpaces(es->str, es->indent * 2);
	appendStringInfo(es->str, "%s:%s\n", label, figures);
}

static void
add_kilobytes(StringInfo line, const char *name, uint64 bytes)
{
	appendStringInfo(line, " %s=" UINT64_FORMAT "kB", name, (bytes + 1023) / 1024);
}

static void
add_number(StringInfo line, const char *name, uint64 number)
{
	appendStringInfo(line, " %s=" UINT64_FORMAT, name, number);
}

/* Shows the result of an offload simulation. */
static void
explain_simulation(const CellarScanStats *scan, ExplainState *es)
{
	if (es->format == EXPLAIN_FORMAT_TEXT)
	{
		StringInfoData line;

		initStringInfo(&line);
		add_kilobytes(&line, "eligible", scan->eligible_bytes);
		add_kilobytes(&line, "returned", scan->returned_bytes);
		text_line(es, "Simulated Cell IO", line.data);
		pfree(line.data);
		return;
	}
	ExplainPropertyUInteger("Simulated Cell Eligible Bytes", NULL, scan->eligible_bytes, es);
	ExplainPropertyUInteger("Simulated Cell Returned Bytes", NULL, scan->returned_bytes, es);
}

static void
explain_counts_text(const CellarScanStats *scan, ExplainState *es)
{
	StringInfoData line;

	initStringInfo(&line);
	add_kilobytes(&line, "eligible", scan->eligible_bytes);
	if (scan->saved_by_storage_index_bytes > 0)
		add_kilobytes(&line, "saved by storage index", scan->saved_by_storage_index_bytes);
	if (scan->flash_read_bytes > 0)
		add_kilobytes(&line, "flash cache", scan->flash_read_bytes);
	if (scan->saved_by_columnar_cache_bytes > 0)
		add_kilobytes(&line, "saved by columnar cache", scan->saved_by_columnar_cache_bytes);
	/* For raw blocks, these are the bytes that were read. */
	if (scan->uncompressed_bytes > scan->eligible_bytes - scan->saved_by_storage_index_bytes)
		add_kilobytes(&line, "uncompressed", scan->uncompressed_bytes);
	add_kilobytes(&line, "returned", scan->returned_bytes);
	text_line(es, "Cell IO", line.data);

	resetStringInfo(&line);
	add_number(&line, "scanned", scan->rows_scanned);
	if (scan->rows_aggregated > 0)
		add_number(&line, "aggregated", scan->rows_aggregated);
	add_number(&line, "returned", scan->rows_returned);
	text_line(es, "Cell Rows", line.data);

	if (scan->passthru_bytes > 0)
	{
		resetStringInfo(&line);
		add_kilobytes(&line, "bytes", scan->passthru_bytes);
		if (scan->passthru_blocks_visibility > 0)
			add_number(&line, "visibility", scan->passthru_blocks_visibility);
		if (scan->passthru_blocks_predicate > 0)
			add_number(&line, "predicate", scan->passthru_blocks_predicate);
		if (scan->passthru_blocks_page > 0)
			add_number(&line, "page", scan->passthru_blocks_page);
		text_line(es, "Cell Passthru Blocks", line.data);
	}

	if (scan->commit_cache_queries > 0)
	{
		resetStringInfo(&line);
		add_number(&line, "queries", scan->commit_cache_queries);
		add_number(&line, "found", scan->found_in_commit_cache);
		add_number(&line, "blocks helped", scan->blocks_helped_by_commit_cache);
		text_line(es, "Cell Commit Cache", line.data);
	}
	pfree(line.data);
}

static void
explain_counts_structured(const CellarScanStats *scan, ExplainState *es)
{
	ExplainPropertyUInteger("Cell Eligible Bytes", NULL, scan->eligible_bytes, es);
	ExplainPropertyUInteger("Cell Saved By Storage Index Bytes", NULL,
							scan->saved_by_storage_index_bytes, es);
	ExplainPropertyUInteger("Cell Flash Cache Bytes", NULL, scan->flash_read_bytes, es);
	ExplainPropertyUInteger("Cell Saved By Columnar Cache Bytes", NULL,
							scan->saved_by_columnar_cache_bytes, es);
	ExplainPropertyUInteger("Cell Uncompressed Bytes", NULL, scan->uncompressed_bytes, es);
	ExplainPropertyUInteger("Cell Returned Bytes", NULL, scan->returned_bytes, es);
	ExplainPropertyUInteger("Cell Passthru Bytes", NULL, scan->passthru_bytes, es);
	ExplainPropertyUInteger("Cell Passthru Visibility Blocks", NULL,
							scan->passthru_blocks_visibility, es);
	ExplainPropertyUInteger("Cell Passthru Predicate Blocks", NULL,
							scan->passthru_blocks_predicate, es);
	ExplainPropertyUInteger("Cell Passthru Page Blocks", NULL, scan->passthru_blocks_page, es);
	ExplainPropertyUInteger("Cell Commit Cache Queries", NULL, scan->commit_cache_queries, es);
	ExplainPropertyUInteger("Cell Commit Cache Found", NULL, scan->found_in_commit_cache, es);
	ExplainPropertyUInteger("Cell Blocks Helped By Commit Cache", NULL,
							scan->blocks_helped_by_commit_cache, es);
	ExplainPropertyUInteger("Cell Rows Scanned", NULL, scan->rows_scanned, es);
	ExplainPropertyUInteger("Cell Rows Aggregated", NULL, scan->rows_aggregated, es);
	ExplainPropertyUInteger("Cell Rows Returned", NULL, scan->rows_returned, es);
}

static void
explain_waits(const CellarScanCounts *counts, bool index, ExplainState *es)
{
	const char *name = index ? "Cell Smart Index Scan" : "Cell Smart Table Scan";

	if (es->format == EXPLAIN_FORMAT_TEXT)
	{
		StringInfoData line;

		initStringInfo(&line);
		add_number(&line, "waits", counts->waits);
		if (es->timing)
			appendStringInfo(&line, " time=%.3f ms", counts->wait_us / 1000.0);
		text_line(es, name, line.data);
		pfree(line.data);
		return;
	}
	ExplainPropertyUInteger(psprintf("%s Waits", name), NULL, counts->waits, es);
	if (es->timing)
		ExplainPropertyFloat(psprintf("%s Time", name), "ms", counts->wait_us / 1000.0, 3, es);
}

/* Shows why an index was not scanned, or what PostgreSQL has read of index and table. */
static void
explain_index_counts(const CellarScanState *state, ExplainState *es)
{
	const CellarIndexScan *index = &state->index;

	if (index->rel == NULL)
		return;
	if (index->reason != NULL)
		ExplainPropertyText("Cell Index Not Scanned", index->reason, es);
	else if (es->format != EXPLAIN_FORMAT_TEXT)
	{
		ExplainPropertyUInteger("Index Pages Read", NULL, index->pages_walked, es);
		ExplainPropertyUInteger("Heap Fetches", NULL, index->heap_fetches, es);
	}
	else if (index->pages_walked > 0 || index->heap_fetches > 0)
	{
		StringInfoData line;

		initStringInfo(&line);
		add_number(&line, "index pages", index->pages_walked);
		add_number(&line, "heap fetches", index->heap_fetches);
		text_line(es, "Read by PostgreSQL", line.data);
		pfree(line.data);
	}
}

/* Returns the sum of the counts of all processes. */
static CellarScanCounts
total_counts(CellarScanState *state)
{
	CellarScanCounts total = state->counts;

	cellar_add_counts(&total, &state->worker_counts);
	return total;
}

void
cellar_explain_scan(CustomScanState *node, List *ancestors, ExplainState *es)
{
	CellarScanState *state = (CellarScanState *) node;
	CellarScanCounts counts;

	explain_index(state, es);
	explain_storage_predicate(state, ancestors, es);
	explain_top_n(state, ancestors, es);
	if (cellar_plan_display != CELLAR_DISPLAY_NEVER)
		cellar_explain_expressions("Join Filter", list_nth(((CustomScan *) node->ss.ps.plan)->custom_private,
														   CELLAR_PLAN_JOIN_FILTERS),
								   node, ancestors, es);
	/* A Smart Scan Aggregate shows the threads itself. */
	if (cellar_plan_display != CELLAR_DISPLAY_NEVER && state->aggregate == NULL)
		explain_threads(state, es);
	if (es->verbose)
		explain_columns(state, es);
	if (!es->analyze || !state->setup.done)
		return;

	counts = total_counts(state);
	if (state->setup.fallback != NULL)
	{
		ExplainPropertyText("Not Offloaded", state->setup.fallback, es);
		if (counts.scan.eligible_bytes > 0)
			explain_simulation(&counts.scan, es);
		return;
	}
	if (es->format == EXPLAIN_FORMAT_TEXT)
		explain_counts_text(&counts.scan, es);
	else
		explain_counts_structured(&counts.scan, es);
	explain_index_counts(state, es);
	explain_waits(&counts, state->index.active, es);
}
