/*-------------------------------------------------------------------------
 *
 * parallel.c
 *	  Divides a table into ranges of blocks, and shares state between the
 *	  processes of a parallel scan.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "port/pg_bitutils.h"

#include "cellar/executor.h"

/*
 * Range sizes in blocks.  A serial scan starts with a small range, because the
 * query may stop early.  Each range doubles the number of blocks.  If several
 * threads of the cell share the ranges, each quadruples it, without a limit: at
 * the end of a range, each thread waits for the others.  Ranges are multiples of
 * a region.
 */
#define SERIAL_RANGE_MIN		256
#define SERIAL_RANGE_MAX		16384

/* As the chunks of tableam.c: many ranges of limited size, smaller ones at the end */
#define PARALLEL_RANGES			256
#define PARALLEL_RANGE_MIN		128
#define PARALLEL_RANGE_MAX		8192
#define PARALLEL_RAMPDOWN		32

/*
 * Sets *range to the next blocks for this process to scan.  Returns false when
 * none are left.
 */
bool
cellar_next_range(CellarScanState *state, CellarRange *range)
{
	CellarParallelScan *shared = state->shared;
	uint64		first;
	uint64		blocks;

	if (shared == NULL)
	{
		/* The cell returns its groups at the end of a range. */
		first = state->progress.next_block;
		if (state->aggregate != NULL)
			blocks = state->setup.nblocks;
		else if (state->plan.threads > 1)
			blocks = Max(SERIAL_RANGE_MIN, 3 * first);
		else
			blocks = Max(SERIAL_RANGE_MIN, Min(SERIAL_RANGE_MAX, first));
		state->progress.next_block = Min((uint64) state->setup.nblocks, first + blocks);
	}
	else
	{
		/*
		 * Another process may advance the position between the read and
		 * fetch_add.  The race only affects the size of the range.
		 */
		uint64		seen = pg_atomic_read_u64(&shared->next_block);

		blocks = shared->range_blocks;
		while (blocks > PARALLEL_RANGE_MIN && seen < state->setup.nblocks &&
			   state->setup.nblocks - seen < blocks * PARALLEL_RAMPDOWN)
			blocks /= 2;
		first = pg_atomic_fetch_add_u64(&shared->next_block, blocks);
	}

	if (first >= state->setup.nblocks)
		return false;
	range->first = first;
	range->end = Min((uint64) state->setup.nblocks, first + blocks);
	return true;
}

/*
 * Adds counts to a total.
 */
void
cellar_add_counts(CellarScanCounts *total, const CellarScanCounts *counts)
{
	uint64	   *to = (uint64 *) total;
	const uint64 *from = (const uint64 *) counts;

	for (int i = 0; i < CELLAR_SCAN_COUNTS; i++)
		to[i] += from[i];
}

/*
 * Adds to the counts for EXPLAIN.  A parallel worker adds to shared memory.
 */
void
cellar_share_counts(CellarScanState *state, const CellarScanCounts *counts)
{
	const uint64 *from = (const uint64 *) counts;

	if (state->shared == NULL || !IsParallelWorker())
	{
		cellar_add_counts(&state->counts, counts);
		return;
	}
	for (int i = 0; i < CELLAR_SCAN_COUNTS; i++)
	{
		if (from[i] != 0)
			pg_atomic_fetch_add_u64(&state->shared->counts[i], from[i]);
	}
}

Size
cellar_estimate_dsm(CustomScanState *node, ParallelContext *pcxt)
{
	return sizeof(CellarParallelScan);
}

void
cellar_initialize_dsm(CustomScanState *node, ParallelContext *pcxt, void *coordinate)
{
	CellarScanState *state = (CellarScanState *) node;
	CellarParallelScan *shared = coordinate;
	uint32		blocks;

	cellar_prepare_scan(state);

	shared->from_cell = state->setup.source == CELLAR_ROWS_FROM_CELL;
	shared->nblocks = state->setup.nblocks;
	blocks = pg_nextpower2_32(Max(state->setup.nblocks / PARALLEL_RANGES, 1));
	shared->range_blocks = Max(PARALLEL_RANGE_MIN, Min(blocks, PARALLEL_RANGE_MAX));
	pg_atomic_init_u64(&shared->next_block, 0);
	for (int i = 0; i < CELLAR_SCAN_COUNTS; i++)
		pg_atomic_init_u64(&shared->counts[i], 0);
	state->shared = shared;
}

void
cellar_reinitialize_dsm(CustomScanState *node, ParallelContext *pcxt, void *coordinate)
{
	CellarParallelScan *shared = coordinate;

	pg_atomic_write_u64(&shared->next_block, 0);
}

void
cellar_initialize_worker(CustomScanState *node, shm_toc *toc, void *coordinate)
{
	((CellarScanState *) node)->shared = coordinate;
}

/*
 * Copies the counts of the workers from shared memory, which is freed before
 * EXPLAIN reads the counts.
 */
void
cellar_shutdown(CustomScanState *node)
{
	CellarScanState *state = (CellarScanState *) node;
	CellarScanCounts counts;
	uint64	   *to = (uint64 *) &counts;

	if (state->shared == NULL || IsParallelWorker())
		return;
	for (int i = 0; i < CELLAR_SCAN_COUNTS; i++)
		to[i] = pg_atomic_exchange_u64(&state->shared->counts[i], 0);
	cellar_add_counts(&state->worker_counts, &counts);
	state->shared = NULL;
}
