/*-------------------------------------------------------------------------
 *
 * index_scan.c
 *	  A Smart Scan whose rows are the entries of a btree index.
 *
 * The cell scans the leaf pages of the index in physical order, and counts those
 * that have not changed since a position in the WAL.  An entry whose heap page
 * is not all-visible comes back as a heap TID.  The entries of leaf pages that
 * the cell has not counted are found by leaf_walk.c.  PostgreSQL fetches the
 * heap rows of both.
 *
 * docs/decisions/0029-index-pages-are-scanned-as-of-one-instant.md shows that each row
 * that the snapshot sees is returned once.  The order of the steps in
 * cellar_prepare_index_scan() is essential for that.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/nbtree.h"
#include "access/tableam.h"
#include "access/visibilitymap.h"
#include "access/xlog.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "utils/rel.h"

#include "cellar.h"
#include "cellar/compat.h"
#include "cellar/executor.h"
#include "cellar/statistics.h"

/*
 * The most bytes of all-visible bits in a request.  A cell refuses requests of
 * more than 16 MiB.
 */
#define ALL_VISIBLE_BYTES_MAX	(12 * 1024 * 1024)

/* Heap rows are fetched in the order of the table, at least this number at a time. */
#define TIDS_PER_FETCH	(1024 * 1024)

/* As in visibilitymap.c: two bits for each heap block. */
#define MAP_BYTES_PER_PAGE	(BLCKSZ - MAXALIGN(SizeOfPageHeaderData))
#define MAP_BLOCKS_PER_BYTE	4

/*
 * Opens the index.
 */
void
cellar_begin_index_scan(CellarScanState *state, Oid index)
{
	state->index.rel = index_open(index, AccessShareLock);
}

/* Returns why the index cannot be scanned now, or NULL. */
static const char *
index_unsuitable_now(CellarScanState *state)
{
	CellarIndexScan *index = &state->index;
	Relation	rel = state->css.ss.ss_currentRelation;

	if (cellar_index_scans == CELLAR_INDEX_SCANS_OFF)
		return "cellar.index_scans is off";
	if (RecoveryInProgress() || state->css.ss.ps.state->es_snapshot->takenDuringRecovery)
		return "the server is a standby, or was one when the snapshot was taken";
	if (!RelationNeedsWAL(index->rel))
		return "changes of the index are not logged";
	if (!index->rel->rd_index->indisvalid)
		return "the index is not valid";
	if (RelationGetNumberOfBlocks(rel) / BITS_PER_BYTE >= ALL_VISIBLE_BYTES_MAX)
		return "the table is too large";
	if (!cellar_relation_location(index->rel, &index->location))
		return "the index is not on a cell";
	return NULL;
}

/*
 * Copies the all-visible bits of the heap.
 */
static void
copy_all_visible(CellarIndexScan *index, Relation rel)
{
	BlockNumber nblocks = RelationGetNumberOfBlocks(rel);
	Buffer		map = InvalidBuffer;

	index->all_visible_bytes = (nblocks + BITS_PER_BYTE - 1) / BITS_PER_BYTE;
	index->all_visible = palloc0(index->all_visible_bytes + 1);
	for (Size first = 0; first < index->all_visible_bytes; first += MAP_BYTES_PER_PAGE / 2)
	{
		Size		nbytes = Min(MAP_BYTES_PER_PAGE / 2, index->all_visible_bytes - first);
		const uint8 *bits;

		CHECK_FOR_INTERRUPTS();

		/* Pins the page of the map; none if the map is shorter. */
		(void) visibilitymap_get_status(rel, first * BITS_PER_BYTE, &map);
		if (!BufferIsValid(map))
			break;
		LockBuffer(map, BUFFER_LOCK_SHARE);
		bits = (const uint8 *) PageGetContents(BufferGetPage(map));
		for (Size i = 0; i < nbytes; i++)
		{
			uint8		all_visible = 0;

			for (int block = 0; block < BITS_PER_BYTE; block++)
			{
				uint8		status = bits[2 * i + block / MAP_BLOCKS_PER_BYTE] >> (block % MAP_BLOCKS_PER_BYTE * 2);

				if (status & VISIBILITYMAP_ALL_VISIBLE)
					all_visible |= 1 << block;
			}
			index->all_visible[first + i] = all_visible;
		}
		LockBuffer(map, BUFFER_LOCK_UNLOCK);
	}
	if (BufferIsValid(map))
		ReleaseBuffer(map);
}

/*
 * Chooses the index as the source of the rows, if the plan has one.  Returns false
 * if rows come from the heap.
 */
bool
cellar_prepare_index_scan(CellarScanState *state)
{
	CellarIndexScan *index = &state->index;
	EState	   *estate = state->css.ss.ps.state;
	MemoryContext oldcontext;
	Buffer		leftmost;

	if (index->rel == NULL)
		return false;
	oldcontext = MemoryContextSwitchTo(estate->es_query_cxt);
	index->reason = index_unsuitable_now(state);
	if (index->reason != NULL)
	{
		MemoryContextSwitchTo(oldcontext);
		return false;
	}

	/* 1. The leftmost leaf page; invalid if the index is empty. */
	leftmost = CellarLeftmostLeaf(index->rel, estate->es_snapshot);
	index->leftmost = BufferIsValid(leftmost) ? BufferGetBlockNumber(leftmost) : P_NONE;
	if (BufferIsValid(leftmost))
		_bt_relbuf(index->rel, leftmost);

	/* 2. The position up to which changes of a counted page may have happened. */
	index->lsn = GetXLogInsertRecPtr();

	/* 3. Visibility */
	copy_all_visible(index, state->css.ss.ss_currentRelation);

	/*
	 * 4. The object checkpoint.  That of a query's first scan may have searched
	 * the buffers before the position was read, so search again.
	 */
	cellar_object_checkpoint(index->rel);
	state->setup.nblocks = RelationGetNumberOfBlocks(index->rel);
	state->setup.location = index->location;
	index->links = MemoryContextAllocHuge(estate->es_query_cxt,
										  Max(state->setup.nblocks, 1) * sizeof(uint32));
	index->active = true;
	MemoryContextSwitchTo(oldcontext);
	return true;
}

/*
 * Starts a (re)scan of the index.
 */
void
cellar_start_index_scan(CellarScanState *state)
{
	CellarIndexScan *index = &state->index;

	memset(index->links, 0xff, state->setup.nblocks * sizeof(uint32));
	index->walked = false;
	index->fetching = false;
	index->ntids = 0;
	index->fetch = CellarIndexFetchBegin(state->css.ss.ss_currentRelation);
	cellar_count(CELLAR_STAT_INDEX_SCANS, 1);
	pgstat_count_index_scan(index->rel);
}

/*
 * Stops fetching rows.
 */
void
cellar_stop_index_scan(CellarScanState *state)
{
	CellarIndexScan *index = &state->index;

	if (index->fetch != NULL)
		table_index_fetch_end(index->fetch);
	index->fetch = NULL;
	index->ntids = 0;
}

/*
 * Makes the heap the source of the rows, because the cell cannot be used.  No row
 * was returned yet.
 */
void
cellar_leave_index_scan(CellarScanState *state)
{
	if (!state->index.active)
		return;
	cellar_stop_index_scan(state);
	state->index.active = false;
	state->index.reason = "the cell could not be used";
	state->setup.source = CELLAR_ROWS_FROM_HEAP;
	state->setup.nblocks = RelationGetNumberOfBlocks(state->css.ss.ss_currentRelation);
	state->progress.next_block = 0;
	state->progress.nranges = 0;
}

void
cellar_end_index_scan(CellarScanState *state)
{
	if (state->index.rel != NULL)
		index_close(state->index.rel, NoLock);
	state->index.rel = NULL;
}

/*
 * Adds the index to the request.
 */
void
cellar_request_index_scan(CellarScanState *state, CellarRequest *request)
{
	CellarIndexScan *index = &state->index;
	Form_pg_index definition = index->rel->rd_index;
	uint16		columns[INDEX_MAX_KEYS];

	for (int i = 0; i < definition->indnatts; i++)
		columns[i] = definition->indkey.values[i];
	cellar_request_index(request, index->lsn, columns, definition->indnatts,
						 index->all_visible, index->all_visible_bytes);
}

/*
 * Keeps the right links of index pages that the cell has counted.
 */
void
cellar_keep_leaf_links(CellarScanState *state)
{
	uint32		first;
	size_t		count;
	const uint32 *links = cellar_leaf_links(state->cell.session->connection, &first, &count);

	if (!state->index.active || count > state->setup.nblocks || first > state->setup.nblocks - count)
		ereport(ERROR,
				(errcode(ERRCODE_PROTOCOL_VIOLATION),
				 errmsg("the cell at \"%s\" returned index pages that do not match the request",
						state->setup.location.socket_path),
				 errhint("Make sure that the cell and the extension have the same version.")));
	memcpy(&state->index.links[first], links, count * sizeof(uint32));
}

/*
 * Appends a heap TID to those whose rows are fetched.
 */
void
cellar_add_tid(CellarIndexScan *index, BlockNumber block, OffsetNumber line_pointer)
{
	if (index->ntids == index->tids_allocated)
	{
		index->tids_allocated = Max(1024, index->tids_allocated * 2);
		index->tids = index->tids == NULL ?
			MemoryContextAllocHuge(GetMemoryChunkContext(index->links), index->tids_allocated * sizeof(ItemPointerData)) :
			repalloc_huge(index->tids, index->tids_allocated * sizeof(ItemPointerData));
	}
	/* ItemPointerSet may evaluate its argument twice. */
	ItemPointerSet(&index->tids[index->ntids], block, line_pointer);
	index->ntids++;
}

/*
 * Keeps the heap TIDs of entries whose heap pages are not all-visible.
 */
void
cellar_keep_heap_tids(CellarScanState *state)
{
	size_t		count;
	const uint64 *tids = cellar_heap_tids(state->cell.session->connection, &count);

	if (!state->index.active)
		ereport(ERROR,
				(errcode(ERRCODE_PROTOCOL_VIOLATION),
				 errmsg("the cell sent an unexpected message"),
				 errhint("Make sure that the cell and the extension have the same version.")));
	for (size_t i = 0; i < count; i++)
		cellar_add_tid(&state->index, tids[i] >> 16, tids[i] & 0xffff);
}

static int
compare_tids(const void *a, const void *b, void *unused)
{
	return ItemPointerCompare((ItemPointer) a, (ItemPointer) b);
}

/*
 * Stores the next visible heap row of the TIDs in state->heap.slot.  Returns false
 * if none is left, or if more TIDs should be collected first.
 */
bool
cellar_next_index_row(CellarScanState *state)
{
	CellarIndexScan *index = &state->index;

	if (!index->fetching)
	{
		if (index->ntids == 0 || (index->ntids < TIDS_PER_FETCH && !index->walked))
			return false;
		qsort_interruptible(index->tids, index->ntids, sizeof(ItemPointerData), compare_tids, NULL);
		index->fetching = true;
		index->next_tid = 0;
	}
	while (index->next_tid < index->ntids)
	{
		ItemPointerData tid = index->tids[index->next_tid++];
		bool		call_again = false;

		CHECK_FOR_INTERRUPTS();
		index->heap_fetches++;
		if (table_index_fetch_tuple(index->fetch, &tid, state->css.ss.ps.state->es_snapshot,
									state->heap.slot, &call_again, NULL))
			return true;
	}
	index->fetching = false;
	index->ntids = 0;
	return false;
}
