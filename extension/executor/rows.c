/*-------------------------------------------------------------------------
 *
 * rows.c
 *	  Returns the rows of a Smart Scan one by one.
 *
 * Rows come from batches of the cell and from blocks that PostgreSQL reads, in
 * block order unless several threads of the cell share the scan.  When the query
 * needs no column, batches contain only a number of rows.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/executor.h"
#include "pgstat.h"
#include "utils/rel.h"

#include "cellar.h"
#include "cellar/cell.h"
#include "cellar/compat.h"
#include "cellar/executor.h"

/*
 * Starts returning rows, from the source chosen by cellar_prepare_scan.
 */
void
cellar_start_rows(CellarScanState *state)
{
	Relation	rel = state->css.ss.ss_currentRelation;

	state->progress.source = state->setup.source;
	state->progress.next_block = 0;
	state->progress.nranges = 0;
	state->cell.answered = false;
	state->cell.passed_through = false;
	if (state->index.active)
		cellar_start_index_scan(state);
	else
		pgstat_count_heap_scan(rel);
	if (state->progress.source == CELLAR_ROWS_FROM_CELL && state->setup.nblocks > 0)
		cellar_open_cell_scan(state);
	else if (state->progress.source == CELLAR_ROWS_FROM_HEAP && cellar_simulate_offload)
		cellar_start_simulation(state);
}

/*
 * Stops returning rows.  Keeps the connection for a rescan, unless ranges are
 * in progress: closing the connection cancels them.
 */
void
cellar_stop_rows(CellarScanState *state)
{
	cellar_heap_block_release(&state->heap.block);
	cellar_stop_index_scan(state);
	cellar_finish_simulation(state);
	state->cell.batch = NULL;
	if (state->cell.session != NULL && state->progress.nranges > 0)
	{
		cellar_session_close(state->cell.session);
		state->cell.session = NULL;
	}
	state->progress.nranges = 0;
}

/*
 * Releases the connection at the end of the rows.  A query with many partitions
 * then needs only as many connections as scans are in progress.
 */
static void
release_session(CellarScanState *state)
{
	/* The cell frees lookup tables when the connection is closed. */
	if (state->cell.session != NULL && state->aggregate != NULL && state->aggregate->lookups != NIL)
		cellar_session_close(state->cell.session);
	else if (state->cell.session != NULL)
		cellar_session_release(state->cell.session);
	state->cell.session = NULL;
}

/* Reads the next block of the heap.  Returns false at the end. */
static bool
advance_heap(CellarScanState *state)
{
	CellarRange *range = &state->progress.ranges[0];
	BlockNumber block;

	if (state->progress.nranges == 0)
	{
		if (!cellar_next_range(state, range))
			return false;
		state->progress.nranges = 1;
	}
	block = range->first++;
	if (range->first >= range->end)
		cellar_drop_oldest_range(state);

	cellar_heap_block_read(&state->heap.block, block,
						   state->simulation != NULL ? state->simulation_page : NULL);
	CellarCountTuplesReturned(state->css.ss.ss_currentRelation, state->heap.block.ntuples);
	if (state->simulation != NULL)
		cellar_simulate_block(state, block);
	return true;
}

/*
 * Returns the batch's next row in the result slot, bypassing the scan tuple.
 * Returns NULL at the end of the batch, or when cellar_choose_outputs found
 * that the result needs more than columns of the batch.
 */
TupleTableSlot *
cellar_next_output(CellarScanState *state)
{
	TupleTableSlot *slot = state->css.ss.ps.ps_ResultTupleSlot;
	const CellarBatch *batch = state->cell.batch;
	uint32		row = state->cell.row;

	if (state->projection.noutputs < 0 || row >= batch->rows)
		return NULL;

	/* ExecClearTuple inline: usually the slot has nothing to free. */
	if (unlikely(TTS_SHOULDFREE(slot)))
		ExecClearTuple(slot);
	for (int i = 0; i < state->projection.noutputs; i++)
	{
		const CellarOutput *output = &state->projection.outputs[i];
		const CellarColumn *column = &batch->columns[output->column];
		bool		null = column->nulls != NULL && column->nulls[row];

		slot->tts_isnull[i] = null;
		slot->tts_values[i] = null ? (Datum) 0 : cellar_batch_value(column, row, output->typlen, output->byval);
	}
	slot->tts_nvalid = state->projection.noutputs;
	slot->tts_flags &= ~TTS_FLAG_EMPTY;
	state->cell.row = row + 1;
	return slot;
}

/* Stores a row of a batch of columns in the slot, without copying. */
static inline void
store_columns(CellarScanState *state, const CellarBatch *batch, uint32 row)
{
	TupleTableSlot *slot = state->cell.slot;
	Datum	   *values = slot->tts_values;
	bool	   *isnull = slot->tts_isnull;

	ExecClearTuple(slot);
	for (int i = 0; i < batch->ncolumns; i++)
	{
		const CellarColumn *column = &batch->columns[i];
		const CellarTarget *target = &state->projection.targets[i];
		bool		null = column->nulls != NULL && column->nulls[row];

		isnull[target->attribute] = null;
		if (null)
			continue;
		values[target->attribute] = cellar_batch_value(column, row, target->typlen, target->byval);
	}
	slot->tts_tableOid = RelationGetRelid(state->css.ss.ss_currentRelation);
	ExecStoreVirtualTuple(slot);
}

/* Stores a row of a batch of whole rows in the slot, without copying. */
static inline void
store_whole_row(CellarScanState *state, uint32 row)
{
	CellarRow	entry = cellar_batch_row(state->cell.session->connection, row);
	HeapTuple	tuple = &state->cell.tuple;

	tuple->t_len = entry.bytes;
	tuple->t_tableOid = RelationGetRelid(state->css.ss.ss_currentRelation);
	tuple->t_data = (HeapTupleHeader) entry.tuple;
	ItemPointerSet(&tuple->t_self, entry.block, entry.line_pointer);
	ExecStoreHeapTuple(tuple, state->cell.slot, false);
}

/*
 * Returns the next row, or NULL at the end.  Sets *quals to what the row must
 * still satisfy: the filter for a row from the cell, all quals for a row that
 * PostgreSQL has read.
 */
TupleTableSlot *
cellar_next_row(CellarScanState *state, ExprState **quals)
{
	for (;;)
	{
		if (state->cell.batch != NULL)
		{
			if (state->cell.row < state->cell.batch->rows)
			{
				if (state->cell.batch->whole_rows)
					store_whole_row(state, state->cell.row);
				else
					store_columns(state, state->cell.batch, state->cell.row);
				state->cell.row++;
				*quals = state->plan.filter_quals;
				return state->cell.slot;
			}
			state->cell.batch = NULL;
		}

		if (cellar_heap_block_next(&state->heap.block, state->heap.slot))
		{
			*quals = state->plan.all_quals;
			return state->heap.slot;
		}

		if (state->index.active && cellar_next_index_row(state))
		{
			*quals = state->plan.all_quals;
			return state->heap.slot;
		}

		if (state->progress.source == CELLAR_ROWS_FROM_CELL)
		{
			if (state->progress.nranges == 0 && state->index.active && !state->index.walked)
			{
				cellar_walk_leaf_pages(state);
				continue;
			}
			if (state->progress.nranges == 0)
			{
				release_session(state);
				return NULL;
			}
			cellar_advance_cell(state);
		}
		else if (!advance_heap(state))
		{
			cellar_finish_simulation(state);
			return NULL;
		}
	}
}
