/*-------------------------------------------------------------------------
 *
 * request.c
 *	  What a scan asks of the cell: relation, columns, snapshot, predicate.
 *
 *-------------------------------------------------------------------------
 */
#include "cellar.h"

#include "access/sysattr.h"
#include "access/transam.h"
#include "access/tupdesc_details.h"
#include "access/xlog.h"
#include "executor/executor.h"
#include "mb/pg_wchar.h"
#include "optimizer/optimizer.h"
#include "utils/lsyscache.h"

/*
 * Chooses the columns that the scan fetches, and whether rows come whole.
 * tuple_identity asks for rows with ctid, which only whole rows have.
 */
void
cellar_choose_projection(CellarScanState *state, bool tuple_identity)
{
	Plan	   *plan = state->css.ss.ps.plan;
	Index		scanrelid = ((Scan *) plan)->scanrelid;
	Relation	rel = state->css.ss.ss_currentRelation;
	TupleDesc	tupdesc = RelationGetDescr(rel);
	Bitmapset  *needed = NULL;
	int			width_needed = 0;
	int			width = 0;
	bool		few_rows;

	pull_varattnos((Node *) plan->targetlist, scanrelid, &needed);
	pull_varattnos((Node *) plan->qual, scanrelid, &needed);

	state->targets = palloc(tupdesc->natts * sizeof(CellarTarget) + 1);
	state->projection = palloc(tupdesc->natts * sizeof(uint16) + 1);
	state->ntargets = 0;
	state->whole_rows = tuple_identity ||
		bms_is_member(-FirstLowInvalidHeapAttributeNumber, needed) ||
		bms_is_member(SelfItemPointerAttributeNumber - FirstLowInvalidHeapAttributeNumber, needed);

	for (int i = 0; i < tupdesc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(tupdesc, i);
		int			bytes;

		if (att->attisdropped)
			continue;
		bytes = att->attlen;
		if (bytes < 0)
			bytes = get_attavgwidth(RelationGetRelid(rel), att->attnum);
		if (bytes <= 0)
			bytes = get_typavgwidth(att->atttypid, att->atttypmod);
		width += bytes;

		if (bms_is_member(att->attnum - FirstLowInvalidHeapAttributeNumber, needed))
		{
			CellarTarget *target = &state->targets[state->ntargets];

			target->attribute = i;
			target->typlen = att->attlen;
			target->byval = att->attbyval;
			state->projection[state->ntargets] = att->attnum;
			state->ntargets++;
			width_needed += bytes;
		}
	}

	/* For a few rows it is dear to make pages of a unit: of an order's first rows few come back, too. */
	few_rows = state->top_rows > 0 ||
		(plan->qual == NIL && plan->plan_rows < CELLAR_FEW_ROWS_FRACTION * rel->rd_rel->reltuples);
	if (!few_rows && state->ntargets > 1 && width_needed >= CELLAR_WHOLE_ROWS_FRACTION * width)
		state->whole_rows = true;
}

/*
 * When the scan puts out nothing but projected columns, rows of batches that
 * need no check go straight into its result.
 */
void
cellar_choose_outputs(CellarScanState *state)
{
	List	   *targetlist = state->css.ss.ps.plan->targetlist;
	ListCell   *lc;

	state->noutputs = -1;
	if (state->whole_rows || state->filter_quals != NULL ||
		state->css.ss.ps.ps_ProjInfo == NULL)
		return;

	state->outputs = palloc(list_length(targetlist) * sizeof(CellarOutput) + 1);
	foreach(lc, targetlist)
	{
		Var		   *var = (Var *) lfirst_node(TargetEntry, lc)->expr;
		CellarOutput *output = &state->outputs[foreach_current_index(lc)];

		if (!IsA(var, Var) || var->varattno <= 0)
			return;
		output->column = 0;
		while (output->column < state->ntargets &&
			   state->projection[output->column] != var->varattno)
			output->column++;
		if (output->column == state->ntargets)
			return;
		output->typlen = state->targets[output->column].typlen;
		output->byval = state->targets[output->column].byval;
	}
	state->noutputs = list_length(targetlist);
}

/*
 * What rows older than the column have in it, as a datum in a tuple; NULL
 * when that is the null value.
 */
static const void *
missing_value(TupleDesc tupdesc, Form_pg_attribute att, char *buffer, size_t *bytes)
{
	AttrMissing *missing;

	if (!att->atthasmissing || tupdesc->constr == NULL || tupdesc->constr->missing == NULL)
		return NULL;
	missing = &tupdesc->constr->missing[att->attnum - 1];
	if (!missing->am_present)
		return NULL;

	if (att->attbyval)
	{
		store_att_byval(buffer, missing->am_value, att->attlen);
		*bytes = att->attlen;
		return buffer;
	}
	if (att->attlen == -1)
		*bytes = VARSIZE_ANY(DatumGetPointer(missing->am_value));
	else if (att->attlen == -2)
		*bytes = strlen(DatumGetCString(missing->am_value)) + 1;
	else
		*bytes = att->attlen;
	return DatumGetPointer(missing->am_value);
}

static void
add_attributes(CellarRequest *request, TupleDesc tupdesc)
{
	for (int i = 0; i < tupdesc->natts; i++)
	{
		Form_pg_attribute att = TupleDescAttr(tupdesc, i);
		char		buffer[sizeof(Datum)];
		size_t		bytes = 0;
		const void *missing = NULL;
		Oid			type = InvalidOid;
		int32		typmod = att->atttypmod;

		if (!att->attisdropped)
		{
			type = getBaseTypeAndTypmod(att->atttypid, &typmod);
			missing = missing_value(tupdesc, att, buffer, &bytes);
		}
		cellar_request_attribute(request,
								 &(CellarAttribute) {type, typmod, att->attlen, att->attalign, att->attbyval,
													 missing, bytes});
	}
}

/*
 * Names a relation and its columns, for what is not a scan.  The caller frees it.
 */
CellarRequest *
cellar_relation_request(Relation rel, const char *file)
{
	CellarRequest *request = cellar_request_new();

	PG_TRY();
	{
		cellar_request_file(request, file, RELSEG_SIZE, DataChecksumsEnabled(),
							GetDatabaseEncoding());
		add_attributes(request, RelationGetDescr(rel));
	}
	PG_CATCH();
	{
		cellar_request_free(request);
		PG_RE_THROW();
	}
	PG_END_TRY();
	return request;
}

/*
 * Builds the request, which the caller frees.  Returns NULL when some storage
 * predicate cannot be sent this time, because a constant in it cannot be
 * evaluated: Postgres then has to come upon that itself, where its order of
 * evaluation leads there.
 */
CellarRequest *
cellar_build_request(CellarScanState *state, const char *file)
{
	Relation	rel = state->css.ss.ss_currentRelation;
	Snapshot	snapshot = state->css.ss.ps.state->es_snapshot;
	CellarRequest *request = cellar_request_new();
	volatile bool complete = false;

	PG_TRY();
	{
		cellar_request_file(request, file, RELSEG_SIZE, DataChecksumsEnabled(),
							GetDatabaseEncoding());
		add_attributes(request, RelationGetDescr(rel));
		cellar_request_snapshot(request, snapshot->xmin, snapshot->xmax,
								snapshot->takenDuringRecovery,
								U64FromFullTransactionId(ReadNextFullTransactionId()));
		cellar_request_threads(request, state->threads);
		cellar_request_projection(request, state->projection, state->ntargets,
								  state->whole_rows);
		complete = cellar_quals_send(state->quals, state->css.ss.ps.ps_ExprContext, request);
		if (state->sort_keys != NULL)
		{
			cellar_request_top_rows(request, state->top_rows);
			complete &= cellar_quals_send(state->sort_keys, state->css.ss.ps.ps_ExprContext, request);
		}
		if (state->aggregate != NULL)
		{
			cellar_request_aggregation(request);
			complete &= cellar_quals_send(state->aggregate->expressions,
										  state->css.ss.ps.ps_ExprContext, request);
		}
	}
	PG_CATCH();
	{
		cellar_request_free(request);
		PG_RE_THROW();
	}
	PG_END_TRY();
	if (!complete)
	{
		cellar_request_free(request);
		return NULL;
	}
	return request;
}
