/*-------------------------------------------------------------------------
 *
 * simulation.c
 *	  Offload simulation: what a cell would have done for a table that is on
 *	  none.
 *
 * The rows come from the heap as usual.  Every page that is read is also given
 * to the cell's own scan code in the client library, which counts.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/executor.h"

#include "cellar/executor.h"
#include "cellar/statistics.h"

void
cellar_simulation_start(CellarScanState *state)
{
	CellarRequest *request;
	CellarError error;

	/* A cell would not have been asked either. */
	request = cellar_build_request(state, "");
	if (request == NULL)
		return;
	state->simulation = cellar_simulation_new(request, &error);
	cellar_request_free(request);
	if (state->simulation == NULL)
	{
		ereport(DEBUG1,
				(errmsg_internal("offload simulation is not possible: %s", error.message)));
		return;
	}
	if (state->simulation_page == NULL)
		state->simulation_page =
			MemoryContextAlloc(state->css.ss.ps.state->es_query_cxt, BLCKSZ);
}

/* Gives the page just read to the scan code. */
void
cellar_simulate_block(CellarScanState *state, BlockNumber block)
{
	while (cellar_simulation_block(state->simulation, block,
								   state->simulation_page) == CELLAR_XID_QUERY)
	{
		size_t		count;
		const uint32 *xids = cellar_simulation_xids(state->simulation, &count);
		uint8	   *states = palloc(count);

		cellar_transaction_states(xids, count, state->css.ss.ps.state->es_snapshot, states);
		cellar_simulation_answer_xids(state->simulation, states, count);
		pfree(states);
	}
}

void
cellar_simulation_end(CellarScanState *state)
{
	CellarScanCounts counts;

	if (state->simulation == NULL)
		return;

	memset(&counts, 0, sizeof(counts));
	counts.scan = cellar_simulation_stats(state->simulation);
	cellar_simulation_free(state->simulation);
	state->simulation = NULL;

	cellar_count(CELLAR_STAT_SIMULATED_ELIGIBLE_BYTES, counts.scan.eligible_bytes);
	cellar_count(CELLAR_STAT_SIMULATED_RETURNED_BYTES, counts.scan.returned_bytes);
	cellar_share_counts(state, &counts);
}
