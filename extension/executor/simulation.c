/*-------------------------------------------------------------------------
 *
 * simulation.c
 *	  Offload simulation: counts what a cell would have saved for a table
 *	  that is not on a cell.
 *
 * PostgreSQL reads the rows as usual.  The cell's own scan code, in the client
 * library, also evaluates each page and counts.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/executor.h"

#include "cellar/executor.h"
#include "cellar/statistics.h"

/*
 * Starts the simulation, if the request can be built.
 */
void
cellar_start_simulation(CellarScanState *state)
{
	CellarRequest *request;
	CellarError error;
	const char *reason;

	/* Without a request, the scan would not have used a cell either. */
	request = cellar_scan_request(state, "", &reason);
	if (request == NULL)
		return;
	state->simulation = cellar_simulation_new(request, &error);
	cellar_request_free(request);
	if (state->simulation == NULL)
	{
		ereport(DEBUG1,
				(errmsg_internal("%s", error.message),
				 errdetail_internal("%s", error.detail)));
		return;
	}
	if (state->simulation_page == NULL)
		state->simulation_page =
			MemoryContextAlloc(state->css.ss.ps.state->es_query_cxt, BLCKSZ);
}

/*
 * Scans the page in simulation_page.
 */
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

/*
 * Ends the simulation, if one is running, and adds its counts to the statistics.
 */
void
cellar_finish_simulation(CellarScanState *state)
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
