/*-------------------------------------------------------------------------
 *
 * cell_rows.c
 *	  Scans ranges of blocks in the cell.
 *
 * A process opens the scan once and requests ranges ahead of their use.  The
 * cell answers each range with batches of rows or groups, blocks that it
 * passes through, and queries for transaction states.
 *
 * When the cell cannot be reached, PostgreSQL reads the blocks itself.  After
 * the first answer rows may already have been returned, so a failure is then
 * an error.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "utils/rel.h"

#include "cellar/awr.h"
#include "cellar/cell.h"
#include "cellar/compat.h"
#include "cellar/executor.h"
#include "cellar/planner.h"
#include "cellar/statistics.h"

/* Requests ranges until CELLAR_RANGES_AHEAD are in progress. */
static void
request_ranges(CellarScanState *state)
{
	CellarScanProgress *progress = &state->progress;
	CellarRange range;

	while (progress->nranges < CELLAR_RANGES_AHEAD && cellar_next_range(state, &range))
	{
		progress->ranges[progress->nranges++] = range;
		cellar_scan_range(state->cell.session->connection, range.first, range.end);
	}
}

/* Removes the oldest range from the ranges in progress. */
void
cellar_drop_oldest_range(CellarScanState *state)
{
	CellarScanProgress *progress = &state->progress;

	progress->nranges--;
	memmove(&progress->ranges[0], &progress->ranges[1], progress->nranges * sizeof(CellarRange));
}

/*
 * Switches the scan to blocks that PostgreSQL reads, starting with the ranges
 * in progress.  Warns once per session.
 */
static void
fall_back(CellarScanState *state, const CellarError *error)
{
	static bool warned = false;
	Relation	rel = state->css.ss.ss_currentRelation;

	cellar_leave_index_scan(state);
	state->progress.source = CELLAR_ROWS_FROM_HEAP;
	state->setup.fallback = "the cell could not be used";
	cellar_count(CELLAR_STAT_SESSIONS_OPEN_FAIL, 1);
	if (IsParallelWorker())
		return;

	state->setup.fallback = MemoryContextStrdup(state->css.ss.ps.state->es_query_cxt,
												psprintf("the cell could not be used: %s", error->message));
	cellar_note_scan(RelationGetRelid(rel), state->setup.fallback);
	if (!warned)
	{
		warned = true;
		ereport(WARNING,
				(errcode(CellarErrorCode(*error)),
				 errmsg("could not use the cell at \"%s\" to scan table \"%s\": %s",
						state->setup.location.socket_path, RelationGetRelationName(rel),
						error->message),
				 *error->detail ? errdetail("%s", error->detail) : 0,
				 errhint("%s%sThe table is scanned without the cell.  Later scans in this session that cannot use the cell are reported only in cellar.why_not_offloaded.",
						 error->hint, *error->hint ? "  " : "")));
	}
}

/*
 * Opens the scan in the cell, and requests the ranges in progress again.  When
 * the cell cannot be used, switches to blocks that PostgreSQL reads.
 */
void
cellar_open_cell_scan(CellarScanState *state)
{
	CellarScanProgress *progress = &state->progress;
	CellarRequest *request;
	CellarError error;
	const char *reason;

	if (state->cell.session == NULL)
	{
		state->cell.session = cellar_session_open(state->setup.location.socket_path, &error);
		if (state->cell.session == NULL)
		{
			fall_back(state, &error);
			return;
		}
	}

	request = cellar_scan_request(state, state->setup.location.file, &reason);
	if (request == NULL)
	{
		cellar_leave_index_scan(state);
		state->progress.source = CELLAR_ROWS_FROM_HEAP;
		state->setup.fallback = reason;
		cellar_note_scan(RelationGetRelid(state->css.ss.ss_currentRelation), state->setup.fallback);
		return;
	}
	state->cell.session->scans_index = state->index.active;
	cellar_scan_open(state->cell.session->connection, request);
	cellar_request_free(request);
	for (int i = 0; i < progress->nranges; i++)
		cellar_scan_range(state->cell.session->connection, progress->ranges[i].first,
						  progress->ranges[i].end);
	request_ranges(state);
}

/*
 * Handles a failed connection.  Before the cell has answered, the scan can
 * still be started again: with another connection when the failed one came
 * from the session cache, and otherwise without the cell.
 */
static void
handle_failure(CellarScanState *state)
{
	CellarError error = cellar_session_error(state->cell.session);
	bool		reused = state->cell.session->reused;

	cellar_session_close(state->cell.session);
	state->cell.session = NULL;

	if (!state->cell.answered && reused)
		cellar_open_cell_scan(state);
	else if (!state->cell.answered)
		fall_back(state, &error);
	else
		ereport(ERROR,
				(errcode(CellarErrorCode(error)),
				 errmsg("could not complete the Smart Scan of table \"%s\": %s",
						RelationGetRelationName(state->css.ss.ss_currentRelation),
						error.message),
				 *error.detail ? errdetail("%s", error.detail) :
				 errdetail("The socket of the cell is \"%s\".", state->setup.location.socket_path),
				 errhint("%s", *error.hint ? error.hint :
						 "Check the log of the cell, then run the statement again.")));
}

/* Answers the cell's query for transaction states. */
static void
answer_xids(CellarScanState *state)
{
	CellarConnection *connection = state->cell.session->connection;
	size_t		count;
	const uint32 *xids = cellar_xids(connection, &count);
	uint8	   *states = palloc(count);

	cellar_transaction_states(xids, count, state->css.ss.ps.state->es_snapshot, states);
	cellar_answer_xids(connection, states, count);
	pfree(states);
}

/* Adds the cell's counts of the oldest range since its last report. */
static void
count_range(CellarScanState *state)
{
	CellarScanCounts counts;

	memset(&counts, 0, sizeof(counts));
	counts.scan = cellar_range_stats(state->cell.session->connection);
	cellar_count_scan(&counts.scan);
	cellar_count_relation_scan(RelationGetRelid(state->css.ss.ss_currentRelation), counts.scan.eligible_bytes,
							   counts.scan.saved_by_storage_index_bytes, counts.scan.returned_bytes);
	cellar_share_counts(state, &counts);
	CellarCountTuplesReturned(state->css.ss.ss_currentRelation, counts.scan.rows_scanned);
}

static void
finish_range(CellarScanState *state)
{
	count_range(state);
	cellar_drop_oldest_range(state);
	request_ranges(state);
}

/* Reads a block that the cell has passed through. */
static void
read_passed_through(CellarScanState *state)
{
	CellarPassthruReason reason;
	BlockNumber block = cellar_passthru(state->cell.session->connection, &reason);

	if (!state->cell.passed_through)
	{
		state->cell.passed_through = true;
		cellar_count(CELLAR_STAT_SESSIONS_PASSTHRU_CELLSRV, 1);
	}
	cellar_heap_block_read(&state->heap.block, block, NULL);

	/*
	 * The cell has already counted the rows of a block on whose predicate it
	 * could not decide.
	 */
	if (reason != CELLAR_PASSTHRU_PREDICATE)
		CellarCountTuplesReturned(state->css.ss.ss_currentRelation, state->heap.block.ntuples);
}

static void
wait_for_cell(CellarScanState *state, CellarEvent event)
{
	CellarScanCounts counts;

	memset(&counts, 0, sizeof(counts));
	counts.waits = 1;
	counts.wait_us = cellar_session_wait(state->cell.session, event);
	cellar_share_counts(state, &counts);
}

/*
 * Checks that the batch matches the request.  The client library has already
 * checked that the batch is well-formed.
 */
static void
check_batch(CellarScanState *state)
{
	const CellarBatch *batch = state->cell.batch;
	bool		fits = !batch->groups && batch->whole_rows == state->projection.whole_rows &&
		(batch->whole_rows || batch->ncolumns == state->projection.ntargets);

	for (int i = 0; fits && i < batch->ncolumns; i++)
		fits = cellar_column_fits(&batch->columns[i], state->projection.targets[i].typlen);
	if (!fits)
		ereport(ERROR,
				(errcode(ERRCODE_PROTOCOL_VIOLATION),
				 errmsg("the cell at \"%s\" returned columns that do not match the request",
						state->setup.location.socket_path),
				 errhint("Make sure that the cell and the extension have the same version.")));
}

/*
 * Handles the next event of the connection.  Afterwards the state may have a
 * batch, a block read by PostgreSQL, or another source of rows.
 */
void
cellar_advance_cell(CellarScanState *state)
{
	CellarConnection *connection = state->cell.session->connection;
	CellarEvent event = cellar_next(connection);

	switch (event)
	{
		case CELLAR_WAIT_READABLE:
		case CELLAR_WAIT_WRITABLE:
		case CELLAR_WAIT_CONNECT:
			wait_for_cell(state, event);
			return;

		case CELLAR_FAILED:
			handle_failure(state);
			return;

		case CELLAR_BATCH:
			state->cell.batch = cellar_batch(connection);
			state->cell.row = 0;
			if (state->aggregate != NULL && state->cell.batch->groups)
			{
				cellar_keep_groups(state->aggregate, state->cell.batch);
				state->cell.batch = NULL;
			}
			else
				check_batch(state);
			break;

		case CELLAR_PASSTHRU:
			read_passed_through(state);
			break;

		case CELLAR_XID_QUERY:
			answer_xids(state);
			break;

		case CELLAR_RANGE_PROGRESS:
			count_range(state);
			break;

		case CELLAR_RANGE_DONE:
			finish_range(state);
			break;

		case CELLAR_LEAF_LINKS:
			cellar_keep_leaf_links(state);
			break;

		case CELLAR_HEAP_TIDS:
			cellar_keep_heap_tids(state);
			break;

		case CELLAR_FILE_IO:
		case CELLAR_FILE_TYPE_IO:
		case CELLAR_GROUP:
		case CELLAR_COMPRESS_PROGRESS:
		case CELLAR_COMPRESS_DONE:
		case CELLAR_UNITS:
		case CELLAR_DUE_UNITS:
			ereport(ERROR,
					(errcode(ERRCODE_PROTOCOL_VIOLATION),
					 errmsg("the cell sent an unexpected message"),
					 errhint("Make sure that the cell and the extension have the same version.")));
	}
	state->cell.answered = true;
	if (state->cell.session != NULL)
		state->cell.session->reused = false;
}
