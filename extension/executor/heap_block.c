/*-------------------------------------------------------------------------
 *
 * heap_block.c
 *	  Reads heap blocks through the buffer manager: blocks that the cell has
 *	  passed through, and all blocks when the cell cannot be used.
 *
 * Does what heapgetpage does for a sequential scan: prunes, checks visibility
 * under a share lock on the buffer, sets hint bits, and checks for
 * serialization conflicts.  The tuples stay valid while the buffer is pinned.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/instrument.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/bufpage.h"
#include "storage/predicate.h"

#include "cellar/compat.h"
#include "cellar/executor.h"
#include "cellar/statistics.h"

void
cellar_heap_block_init(CellarHeapBlock *block, Relation rel, Snapshot snapshot)
{
	block->rel = rel;
	block->snapshot = snapshot;
	block->buffer = InvalidBuffer;
}

/*
 * Reads a block and finds its visible tuples.  Copies the page to copy, unless
 * that is NULL.
 */
void
cellar_heap_block_read(CellarHeapBlock *block, BlockNumber number, char *copy)
{
	Relation	rel = block->rel;
	Snapshot	snapshot = block->snapshot;
	int64		reads_before = pgBufferUsage.shared_blks_read;
	instr_time	started;
	Buffer		buffer;
	Page		page;
	OffsetNumber lines;
	bool		all_visible;

	cellar_heap_block_release(block);
	CHECK_FOR_INTERRUPTS();

	if (block->strategy == NULL)
		block->strategy = GetAccessStrategy(BAS_BULKREAD);

	INSTR_TIME_SET_CURRENT(started);
	buffer = ReadBufferExtended(rel, MAIN_FORKNUM, number, RBM_NORMAL, block->strategy);
	if (pgBufferUsage.shared_blks_read != reads_before)
	{
		cellar_count_wait(CELLAR_WAIT_SINGLE_BLOCK_READ, started);

		/* The cell adds reads through its mount to the system statistics. */
		cellar_count_session(CELLAR_STAT_INTERCONNECT_BYTES, BLCKSZ);
		cellar_count_session(CELLAR_STAT_READ_BYTES, BLCKSZ);
		cellar_count_session(CELLAR_STAT_READ_REQUESTS, 1);
	}

	CellarPrunePage(rel, buffer);

	LockBuffer(buffer, BUFFER_LOCK_SHARE);
	page = BufferGetPage(buffer);
#if PG_VERSION_NUM < 170000
	TestForOldSnapshot(snapshot, rel, page);
#endif
	lines = PageGetMaxOffsetNumber(page);
	all_visible = PageIsAllVisible(page) && !snapshot->takenDuringRecovery;

	block->buffer = buffer;
	block->block = number;
	block->ntuples = 0;
	block->next = 0;

	for (OffsetNumber offset = FirstOffsetNumber; offset <= lines; offset++)
	{
		ItemId		item = PageGetItemId(page, offset);
		HeapTupleData tuple;
		bool		valid;

		if (!ItemIdIsNormal(item))
			continue;

		tuple.t_tableOid = RelationGetRelid(rel);
		tuple.t_data = (HeapTupleHeader) PageGetItem(page, item);
		tuple.t_len = ItemIdGetLength(item);
		ItemPointerSet(&tuple.t_self, number, offset);

		valid = all_visible || HeapTupleSatisfiesVisibility(&tuple, snapshot, buffer);
		HeapCheckForSerializableConflictOut(valid, rel, &tuple, buffer, snapshot);
		if (valid)
			block->visible[block->ntuples++] = offset;
	}

	if (copy != NULL)
		memcpy(copy, page, BLCKSZ);
	LockBuffer(buffer, BUFFER_LOCK_UNLOCK);
}

/*
 * Stores the block's next visible tuple in a slot for buffer heap tuples.
 * After the last one, releases the block and returns false.
 */
bool
cellar_heap_block_next(CellarHeapBlock *block, TupleTableSlot *slot)
{
	HeapTuple	tuple = &block->tuple;
	Page		page;
	ItemId		item;
	OffsetNumber offset;

	if (!BufferIsValid(block->buffer))
		return false;
	if (block->next >= block->ntuples)
	{
		cellar_heap_block_release(block);
		return false;
	}

	offset = block->visible[block->next++];
	page = BufferGetPage(block->buffer);
	item = PageGetItemId(page, offset);
	tuple->t_tableOid = RelationGetRelid(block->rel);
	tuple->t_data = (HeapTupleHeader) PageGetItem(page, item);
	tuple->t_len = ItemIdGetLength(item);
	ItemPointerSet(&tuple->t_self, block->block, offset);
	ExecStoreBufferHeapTuple(tuple, slot, block->buffer);
	return true;
}

void
cellar_heap_block_release(CellarHeapBlock *block)
{
	if (BufferIsValid(block->buffer))
		ReleaseBuffer(block->buffer);
	block->buffer = InvalidBuffer;
}
