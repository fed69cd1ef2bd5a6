/*-------------------------------------------------------------------------
 *
 * request.c
 *	  Builds the request that opens a scan in the cell: relation, snapshot,
 *	  projection, storage predicate, top-N and aggregation.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/transam.h"
#include "utils/array.h"
#include "utils/rel.h"

#include "cellar/cell.h"
#include "cellar/executor.h"

/* The most bytes of lookup tables and join filters in a request.  Further filters are left out. */
#define FILTER_BYTES_MAX	(12 * 1024 * 1024)

/* Bytes of the encoding of a value other than an integer, beyond those of the value. */
#define CONSTANT_OVERHEAD	10

/* Returns the most bytes that the keys of a join filter occupy in a request. */
static Size
keys_bytes(CellarJoinFilter *filter, Datum keys)
{
	ArrayType  *array = DatumGetArrayTypeP(keys);
	Size		nkeys = ArrayGetNItems(ARR_NDIM(array), ARR_DIMS(array));

	return filter->is_integer_set ? nkeys * sizeof(int64) : nkeys * CONSTANT_OVERHEAD + VARSIZE(array);
}

/*
 * Builds the request for a scan.  The caller frees it.
 *
 * Returns NULL, and sets *reason, when the cell cannot be used: a constant in an
 * expression cannot be evaluated, and PostgreSQL must raise the error itself, if and
 * when its order of evaluation reaches the expression; or the request is too large.
 */
CellarRequest *
cellar_scan_request(CellarScanState *state, const char *file, const char **reason)
{
	Relation	rel = state->css.ss.ss_currentRelation;
	Snapshot	snapshot = state->css.ss.ps.state->es_snapshot;
	ExprContext *econtext = state->css.ss.ps.ps_ExprContext;
	CellarRequest *request;
	volatile bool complete = false;
	Size		filter_bytes = 0;
	bool		aggregates = state->aggregate != NULL;

	if (!cellar_execute_initplans(state))
	{
		*reason = "a subquery that might raise an error must not be executed before a row needs its value";
		return NULL;
	}
	if (aggregates && state->aggregate->lookups != NIL)
	{
		int64		lookup_bytes = cellar_lookup_bytes(state->aggregate->lookups);

		aggregates = lookup_bytes >= 0 && lookup_bytes <= FILTER_BYTES_MAX;
		filter_bytes = aggregates ? lookup_bytes : 0;
	}

	request = cellar_request_new();
	PG_TRY();
	{
		cellar_request_relation(request, rel, file);
		cellar_request_snapshot(request, snapshot->xmin, snapshot->xmax,
								snapshot->takenDuringRecovery,
								U64FromFullTransactionId(ReadNextFullTransactionId()));
		cellar_request_threads(request, state->plan.threads);
		cellar_request_projection(request, state->projection.attributes, state->projection.ntargets,
								  state->projection.whole_rows);
		if (state->index.active)
			cellar_request_index_scan(state, request);
		complete = cellar_request_expressions(request, state->plan.storage_predicate, econtext);

		/* The scan is correct without join filters. */
		if (state->plan.njoin_filters > 0)
			filter_bytes += cellar_request_bytes(request);
		for (int i = 0; i < state->plan.njoin_filters; i++)
		{
			CellarJoinFilter *filter = &state->plan.join_filters[i];
			ParamExecData *keys = &state->css.ss.ps.state->es_param_exec_vals[filter->paramid];

			if (keys->isnull && keys->value != (Datum) 0)
				cellar_complete_join_keys((CellarJoinKeysState *) DatumGetPointer(keys->value));
			if (!keys->isnull && (filter_bytes += keys_bytes(filter, keys->value)) <= FILTER_BYTES_MAX)
				complete &= cellar_request_expressions(request, filter->expression, econtext);
		}
		if (state->plan.sort_keys != NULL)
		{
			cellar_request_top_rows(request, state->plan.top_rows);
			complete &= cellar_request_expressions(request, state->plan.sort_keys, econtext);
		}
		if (aggregates)
		{
			cellar_request_lookups(request, state->aggregate->lookups);
			cellar_request_aggregation(request);
			if (state->aggregate->lookups != NIL)
				complete &= cellar_request_expressions(request, state->aggregate->join_conditions, econtext);
			complete &= cellar_request_expressions(request, state->aggregate->expressions, econtext);
			if (state->aggregate->distinct_argument != NULL)
			{
				ListCell   *lc;

				complete &= cellar_request_expressions(request, state->aggregate->distinct_argument, econtext);
				foreach(lc, complete ? state->aggregate->distinct.aggregates : NIL)
					cellar_distinct_aggregate(request, lfirst_node(Aggref, lc)->aggfnoid);
			}
			complete &= cellar_request_expressions(request, state->aggregate->conditions, econtext);
			if (state->aggregate->pruning.top.rows > 0)
				cellar_request_top_groups(request, state->aggregate->pruning.top.rows,
										  state->aggregate->pruning.with_ties);
			complete &= cellar_request_expressions(request, state->aggregate->sort_keys, econtext);
		}
	}
	PG_CATCH();
	{
		cellar_request_free(request);
		PG_RE_THROW();
	}
	PG_END_TRY();
	if (!complete)
		*reason = "an expression without columns cannot be evaluated in advance, a subquery has too many values, or the time zone is no longer UTC";
	else if (cellar_request_bytes(request) > CELLAR_REQUEST_BYTES_MAX)
		*reason = "the request to the cell is too large";
	else
		return request;
	cellar_request_free(request);
	return NULL;
}
