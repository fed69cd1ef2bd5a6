/*-------------------------------------------------------------------------
 *
 * rows.c
 *	  The rows of a Smart Scan, block by block in order: batches from the cell,
 *	  and the blocks that Postgres reads itself. Rows without a column are only
 *	  counted, and come at the end of their range.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/tupmacs.h"
#include "access/xact.h"
#include "executor/executor.h"
#include "pgstat.h"
#include "utils/rel.h"

#include "cellar.h"
#include "cellar/cell.h"
#include "cellar/compat.h"
#include "cellar/executor.h"
#include "cellar/planner.h"
#include "cellar/statistics.h"

/* Asks for as many ranges as may be under way. */
static void
ask_ahead(CellarScanState *state)
{
	CellarRange range;

	while (state->nranges < CELLAR_RANGES_AHEAD && cellar_next_range(state, &range))
	{
		state->ranges[state->nranges++] = range;
		cellar_scan_range(state->session->connection, range.first, range.end);
	}
}

static void
drop_oldest_range(CellarScanState *state)
{
	state->nranges--;
	memmove(&state->ranges[0], &state->ranges[1], state->nranges * sizeof(CellarRange));
}

/*
 * From here on Postgres reads the blocks, those of ranges under way first.
 * Says so once in a session.
 */
static void
fall_back(CellarScanState *state, const CellarError *error)
{
	static bool warned = false;
	Relation	rel = state->css.ss.ss_currentRelation;

	state->source = CELLAR_SOURCE_HEAP;
	state->fallback = "the cell could not be used";
	cellar_count(CELLAR_STAT_SESSIONS_OPEN_FAIL, 1);
	if (IsParallelWorker())
		return;

	state->fallback = MemoryContextStrdup(state->css.ss.ps.state->es_query_cxt,
										  psprintf("the cell could not be used: %s", error->message));
	cellar_note_scan(RelationGetRelid(rel), state->fallback);
	if (!warned)
	{
		warned = true;
		ereport(WARNING,
				(errcode(CellarErrorCode(*error)),
				 errmsg("could not use the cell at \"%s\" for table \"%s\": %s",
						state->place.socket_path, RelationGetRelationName(rel),
						error->message),
				 *error->detail ? errdetail("%s", error->detail) : 0,
				 errhint("%s%sThe table is scanned without the cell.  Later scans of this session that cannot use it say so only in cellar.why_not_offloaded.",
						 error->hint, *error->hint ? "  " : "")));
	}
}

/* Starts the scan in the cell; the ranges under way are asked for again. */
static void
open_scan(CellarScanState *state)
{
	CellarRequest *request;
	CellarError error;

	if (state->session == NULL)
	{
		state->session = cellar_session_open(state->place.socket_path, &error);
		if (state->session == NULL)
		{
			fall_back(state, &error);
			return;
		}
	}

	request = cellar_build_request(state, state->place.file);
	if (request == NULL)
	{
		state->source = CELLAR_SOURCE_HEAP;
		state->fallback = "a constant of the storage predicate cannot be evaluated";
		cellar_note_scan(RelationGetRelid(state->css.ss.ss_currentRelation), state->fallback);
		return;
	}
	cellar_scan_open(state->session->connection, request);
	cellar_request_free(request);
	for (int i = 0; i < state->nranges; i++)
		cellar_scan_range(state->session->connection, state->ranges[i].first, state->ranges[i].end);
	ask_ahead(state);
}

void
cellar_start_rows(CellarScanState *state)
{
	Relation	rel = state->css.ss.ss_currentRelation;

	state->source = state->planned_source;
	state->next_block = 0;
	state->nranges = 0;
	state->heard = false;
	state->passthru = false;
	pgstat_count_heap_scan(rel);

	if (state->source == CELLAR_SOURCE_CELL && state->nblocks > 0)
		open_scan(state);
	else if (state->source == CELLAR_SOURCE_HEAP && cellar_simulate_offload)
		cellar_simulation_start(state);
}

/*
 * The connection is kept for the next scan.  What is still under way on it is
 * given up together with it.
 */
void
cellar_stop_rows(CellarScanState *state)
{
	cellar_heap_block_release(&state->heap);
	cellar_simulation_end(state);
	state->batch = NULL;
	if (state->session != NULL && state->nranges > 0)
	{
		cellar_session_close(state->session);
		state->session = NULL;
	}
	state->nranges = 0;
}

/*
 * The cell failed.  Before it answered anything the blocks can still be read
 * here; a connection from the session's cache may merely be a stale one.
 */
static void
handle_failure(CellarScanState *state)
{
	CellarError error = cellar_session_error(state->session);
	bool		reused = state->session->reused;

	cellar_session_close(state->session);
	state->session = NULL;

	if (!state->heard && reused)
		open_scan(state);
	else if (!state->heard)
		fall_back(state, &error);
	else
		ereport(ERROR,
				(errcode(CellarErrorCode(error)),
				 errmsg("could not complete the Smart Scan of table \"%s\": %s",
						RelationGetRelationName(state->css.ss.ss_currentRelation),
						error.message),
				 *error.detail ? errdetail("%s", error.detail) :
				 errdetail("The cell's socket is \"%s\".", state->place.socket_path),
				 errhint("%s", *error.hint ? error.hint :
						 "Check the cell's log, then run the statement again.")));
}

static void
answer_xids(CellarScanState *state)
{
	CellarConnection *connection = state->session->connection;
	size_t		count;
	const uint32 *xids = cellar_xids(connection, &count);
	uint8	   *states = palloc(count);

	cellar_transaction_states(xids, count, state->css.ss.ps.state->es_snapshot, states);
	cellar_answer_xids(connection, states, count);
	pfree(states);
}

/* Counts what the cell did for the range under way since it last told. */
static void
count_range(CellarScanState *state)
{
	CellarScanCounts counts;

	memset(&counts, 0, sizeof(counts));
	counts.scan = cellar_range_stats(state->session->connection);
	cellar_count_scan(&counts.scan);
	cellar_share_counts(state, &counts);
	CellarCountTuplesReturned(state->css.ss.ss_currentRelation, counts.scan.rows_scanned);
}

static void
finish_range(CellarScanState *state)
{
	count_range(state);
	drop_oldest_range(state);
	ask_ahead(state);
}

static void
read_passed_through(CellarScanState *state)
{
	CellarPassthruReason reason;
	BlockNumber block = cellar_passthru(state->session->connection, &reason);

	if (!state->passthru)
	{
		state->passthru = true;
		cellar_count(CELLAR_STAT_SESSIONS_PASSTHRU_CELLSRV, 1);
	}
	cellar_heap_block_read(&state->heap, block, NULL);
	/* The cell counts the rows that it looked at. */
	if (reason != CELLAR_PASSTHRU_PREDICATE)
		CellarCountTuplesReturned(state->css.ss.ss_currentRelation, state->heap.ntuples);
}

static void
wait_for_cell(CellarScanState *state, CellarEvent event)
{
	CellarScanCounts counts;

	memset(&counts, 0, sizeof(counts));
	counts.waits = 1;
	counts.wait_us = cellar_session_wait(state->session, event);
	cellar_share_counts(state, &counts);
}

/* A batch is well-formed; is it what was asked for? */
static void
check_batch(CellarScanState *state)
{
	const CellarBatch *batch = state->batch;
	bool		fits = !batch->groups && batch->whole_rows == state->whole_rows &&
		(batch->whole_rows || batch->ncolumns == state->ntargets);

	for (int i = 0; fits && i < batch->ncolumns; i++)
	{
		const CellarColumn *column = &batch->columns[i];
		int16		typlen = state->targets[i].typlen;

		fits = typlen < 0 ? column->offsets != NULL : column->stride >= (uint32) typlen;
	}
	if (!fits)
		ereport(ERROR,
				(errcode(ERRCODE_PROTOCOL_VIOLATION),
				 errmsg("the cell at \"%s\" sent other columns than were asked for",
						state->place.socket_path),
				 errhint("Make sure that cell and extension are of the same version.")));
}

/*
 * Takes the cell's next event.  Afterwards there may be a batch, or a block
 * read, or another source to turn to.
 */
static void
advance_cell(CellarScanState *state)
{
	CellarConnection *connection = state->session->connection;
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
			state->batch = cellar_batch(connection);
			state->row = 0;
			if (state->aggregate != NULL && state->batch->groups)
			{
				cellar_keep_groups(state->aggregate, state->batch);
				state->batch = NULL;
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

		case CELLAR_FILE_IO:
		case CELLAR_COMPRESS_PROGRESS:
		case CELLAR_COMPRESS_DONE:
		case CELLAR_UNITS:
		case CELLAR_DUE_UNITS:
			ereport(ERROR,
					(errcode(ERRCODE_PROTOCOL_VIOLATION),
					 errmsg("the cell answered a question that was not asked")));
	}
	state->heard = true;
	if (state->session != NULL)
		state->session->reused = false;
}

/* Reads the next block from the heap; returns false when there is none. */
static bool
advance_heap(CellarScanState *state)
{
	CellarRange *range = &state->ranges[0];
	BlockNumber block;

	if (state->nranges == 0)
	{
		if (!cellar_next_range(state, range))
			return false;
		state->nranges = 1;
	}
	block = range->first++;
	if (range->first >= range->end)
		drop_oldest_range(state);

	cellar_heap_block_read(&state->heap, block,
						   state->simulation != NULL ? state->simulation_page : NULL);
	CellarCountTuplesReturned(state->css.ss.ss_currentRelation, state->heap.ntuples);
	if (state->simulation != NULL)
		cellar_simulate_block(state, block);
	return true;
}

/*
 * The next row of the batch under way as the scan's result, when that is
 * nothing but its columns and no qual is left to check; else NULL.
 */
TupleTableSlot *
cellar_next_output(CellarScanState *state)
{
	TupleTableSlot *slot = state->css.ss.ps.ps_ResultTupleSlot;
	const CellarBatch *batch = state->batch;
	uint32		row = state->row;

	if (state->noutputs < 0 || row >= batch->rows)
		return NULL;

	/* As ExecClearTuple, but most often there is nothing to free. */
	if (unlikely(TTS_SHOULDFREE(slot)))
		ExecClearTuple(slot);
	for (int i = 0; i < state->noutputs; i++)
	{
		const CellarOutput *output = &state->outputs[i];
		const CellarColumn *column = &batch->columns[output->column];
		bool		null = column->nulls != NULL && column->nulls[row];

		slot->tts_isnull[i] = null;
		slot->tts_values[i] = null ? (Datum) 0 : batch_value(column, row, output->typlen, output->byval);
	}
	slot->tts_nvalid = state->noutputs;
	slot->tts_flags &= ~TTS_FLAG_EMPTY;
	state->row = row + 1;
	return slot;
}

/* Points the slot into a batch of columns. */
static inline void
store_columns(CellarScanState *state, const CellarBatch *batch, uint32 row)
{
	TupleTableSlot *slot = state->row_slot;
	Datum	   *values = slot->tts_values;
	bool	   *isnull = slot->tts_isnull;

	ExecClearTuple(slot);
	for (int i = 0; i < batch->ncolumns; i++)
	{
		const CellarColumn *column = &batch->columns[i];
		const CellarTarget *target = &state->targets[i];
		bool		null = column->nulls != NULL && column->nulls[row];

		isnull[target->attribute] = null;
		if (null)
			continue;
		values[target->attribute] = batch_value(column, row, target->typlen, target->byval);
	}
	slot->tts_tableOid = RelationGetRelid(state->css.ss.ss_currentRelation);
	ExecStoreVirtualTuple(slot);
}

/* Points the slot at a whole row of a batch. */
static inline void
store_whole_row(CellarScanState *state, uint32 row)
{
	CellarRow	entry = cellar_batch_row(state->session->connection, row);
	HeapTuple	tuple = &state->row_tuple;

	tuple->t_len = entry.bytes;
	tuple->t_tableOid = RelationGetRelid(state->css.ss.ss_currentRelation);
	tuple->t_data = (HeapTupleHeader) entry.tuple;
	ItemPointerSet(&tuple->t_self, entry.block, entry.line_pointer);
	ExecStoreHeapTuple(tuple, state->row_slot, false);
}

/*
 * The next row, and the quals that it has still to pass; NULL at the end.
 * Rows of blocks read here have to pass all of them, rows from the cell only
 * the filter.
 */
TupleTableSlot *
cellar_next_row(CellarScanState *state, ExprState **quals)
{
	for (;;)
	{
		if (state->batch != NULL)
		{
			if (state->row < state->batch->rows)
			{
				if (state->batch->whole_rows)
					store_whole_row(state, state->row);
				else
					store_columns(state, state->batch, state->row);
				state->row++;
				*quals = state->filter_quals;
				return state->row_slot;
			}
			state->batch = NULL;
		}

		if (cellar_heap_block_next(&state->heap, state->heap_slot))
		{
			*quals = state->all_quals;
			return state->heap_slot;
		}

		if (state->source == CELLAR_SOURCE_CELL)
		{
			if (state->nranges == 0)
				return NULL;
			advance_cell(state);
		}
		else if (!advance_heap(state))
		{
			cellar_simulation_end(state);
			return NULL;
		}
	}
}
