/*-------------------------------------------------------------------------
 *
 * object_checkpoint.c
 *	  The object checkpoint: writes a relation's dirty buffers before the cell
 *	  scans the relation.
 *
 * The object checkpoint runs after the scan's snapshot was taken.  A change
 * committed before the snapshot is then in a dirty buffer or already written, so
 * the cell sees the change after the flush.  Later states of a block only add
 * tuples that the snapshot does not see, or remove tuples that are dead to every
 * snapshot.
 *
 * Finding a relation's dirty buffers means examining every shared buffer.  A
 * query with many partitions examines the buffers once: BeginCustomScan
 * announces the relation of each Smart Scan, and the first scan that starts
 * searches for the dirty buffers of all announced relations.  Each scan then
 * writes those of one relation, so a partition that is pruned while the query
 * runs is not written.  All scans of a query have the same snapshot.  A change
 * that the snapshot sees is therefore in a buffer that was dirty during the
 * search, or already written:
 *
 * - A change that another transaction committed before the snapshot marked its
 *	 buffer dirty before the commit, and the snapshot was taken before the
 *	 search.
 * - A change of this transaction that the snapshot sees was made by an earlier
 *	 command.
 * - A buffer whose page is replaced is written first.  A buffer that is being
 *	 written stays dirty until the write has finished.
 *
 * The search takes no locks.  A buffer whose page changes during the search
 * either was written, or receives a page that was read from the cell.
 *
 * The search is skipped when no WAL was inserted since this backend last wrote
 * the same file.  Skipping is sound for a relation whose changes are
 * WAL-logged, on a primary.  A page modification marks the buffer dirty before
 * it inserts the WAL record, both under one exclusive lock of the buffer.  Let
 * P be the insert position read before the last search:
 *
 * - A change whose record is below P was dirty when that search began; the
 *	 write that followed waited for the lock of the buffer.
 * - A change whose record is at or above P advances the position, so the search
 *	 is not skipped.
 * - A change whose record is not inserted yet belongs to a transaction that
 *	 has not inserted its commit record either.  The snapshot was taken before
 *	 this backend read the position, so the snapshot does not see the change.
 *	 The change cannot be this backend's own.
 *
 * Hint bits set without WAL may be missing in the cell.  The cell then queries
 * the transaction's state.  A relation that was created or
 * rewritten in a running transaction may skip WAL; RelationNeedsWAL is false
 * in that transaction, and the relation has been synced or logged before
 * other transactions see it.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "executor/instrument.h"
#include "miscadmin.h"
#include "storage/buf_internals.h"
#include "storage/bufmgr.h"
#include "utils/hsearch.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "cellar/compat.h"
#include "cellar/executor.h"
#include "cellar/statistics.h"

/* Files whose last write is remembered; then all are forgotten. */
#define FILES_REMEMBERED	10000

/*
 * Dirty buffers that a search remembers, 12 bytes each.  Further ones are
 * written at once.
 */
#define DIRTY_BLOCKS_MAX	(1024 * 1024)

typedef struct LastWrite
{
	CellarFileId file;			/* hash key */
	XLogRecPtr	position;		/* of WAL insertion, before the search */
} LastWrite;

/* A block that was in a dirty buffer. */
typedef struct DirtyBlock
{
	int			relation;		/* index in QueryRelations.files */
	BlockNumber block;
	Buffer		buffer;
} DirtyBlock;

/* The relations of a query's Smart Scans. */
typedef struct QueryRelations
{
	EState	   *estate;
	CellarFileId *files;		/* sorted when the search is done */
	int			nfiles;
	int			files_allocated;
	bool		searched;
	XLogRecPtr	position;		/* of WAL insertion before the search, or
								 * InvalidXLogRecPtr during recovery */
	DirtyBlock *dirty;			/* sorted */
	int			ndirty;
	int			dirty_allocated;
	MemoryContextCallback cleanup;
	struct QueryRelations *next;
} QueryRelations;

static HTAB *last_writes = NULL;
static QueryRelations *running_queries = NULL;

static int
compare_files(const void *a, const void *b)
{
	return memcmp(a, b, sizeof(CellarFileId));
}

static int
compare_dirty_blocks(const void *a, const void *b)
{
	const DirtyBlock *one = a;
	const DirtyBlock *other = b;

	if (one->relation != other->relation)
		return one->relation < other->relation ? -1 : 1;
	return one->block < other->block ? -1 : one->block > other->block ? 1 : 0;
}

/* Returns whether no buffer of the file can have become dirty since it was last written. */
static bool
is_written(CellarFileId file, XLogRecPtr position)
{
	LastWrite  *last = last_writes == NULL ? NULL :
		hash_search(last_writes, &file, HASH_FIND, NULL);

	return last != NULL && last->position == position;
}

static void
remember_write(CellarFileId file, XLogRecPtr position)
{
	LastWrite  *last;

	if (last_writes != NULL && hash_get_num_entries(last_writes) >= FILES_REMEMBERED)
	{
		hash_destroy(last_writes);
		last_writes = NULL;
	}
	if (last_writes == NULL)
	{
		HASHCTL		info = {0};

		info.keysize = sizeof(CellarFileId);
		info.entrysize = sizeof(LastWrite);
		last_writes = hash_create("object checkpoints", 64, &info, HASH_ELEM | HASH_BLOBS);
	}
	last = hash_search(last_writes, &file, HASH_ENTER, NULL);
	last->position = position;
}

/* Callback of the query's memory context, which contains the relations. */
static void
forget_query(void *arg)
{
	for (QueryRelations **at = &running_queries; *at != NULL; at = &(*at)->next)
	{
		if (*at == arg)
		{
			*at = (*at)->next;
			return;
		}
	}
}

static QueryRelations *
find_query(EState *estate)
{
	QueryRelations *query = running_queries;

	while (query != NULL && query->estate != estate)
		query = query->next;
	return query;
}

/*
 * Announces that the query may start a Smart Scan of the relation.
 */
void
cellar_announce_scan(EState *estate, Relation rel)
{
	QueryRelations *query = find_query(estate);
	MemoryContext oldcontext = MemoryContextSwitchTo(estate->es_query_cxt);

	if (query == NULL)
	{
		query = palloc0(sizeof(QueryRelations));
		query->estate = estate;
		query->files_allocated = 4;
		query->files = palloc0(query->files_allocated * sizeof(CellarFileId));
		query->cleanup.func = forget_query;
		query->cleanup.arg = query;
		MemoryContextRegisterResetCallback(estate->es_query_cxt, &query->cleanup);
		query->next = running_queries;
		running_queries = query;
	}
	if (query->nfiles == query->files_allocated)
	{
		query->files_allocated *= 2;
		query->files = repalloc(query->files, query->files_allocated * sizeof(CellarFileId));
	}
	if (!query->searched)
		query->files[query->nfiles++] = CellarRelationFile(rel);
	MemoryContextSwitchTo(oldcontext);
}

/*
 * Writes a block if the buffer still contains it.  Otherwise the block was
 * written when its buffer was reused.
 */
static void
write_block(CellarFileId file, BlockNumber block, Buffer buffer)
{
	BufferUsage usage = pgBufferUsage;

	if (!ReadRecentBuffer(file, MAIN_FORKNUM, block, buffer))
		return;
	/* The query has not read this block. */
	pgBufferUsage.shared_blks_hit = usage.shared_blks_hit;
	LockBuffer(buffer, CELLAR_BUFFER_LOCK_FLUSH);
	FlushOneBuffer(buffer);
	UnlockReleaseBuffer(buffer);
}

/*
 * Searches all shared buffers for dirty blocks of the query's relations.
 */
static void
search_dirty_blocks(QueryRelations *query)
{
	int			kept = 0;

	qsort(query->files, query->nfiles, sizeof(CellarFileId), compare_files);
	for (int i = 0; i < query->nfiles; i++)
	{
		if (kept == 0 || !CellarFileEquals(query->files[kept - 1], query->files[i]))
			query->files[kept++] = query->files[i];
	}
	query->nfiles = kept;

	query->position = RecoveryInProgress() ? InvalidXLogRecPtr : GetXLogInsertRecPtr();
	for (int i = 0; i < NBuffers; i++)
	{
		BufferDesc *buffer = GetBufferDescriptor(i);
		BufferTag	tag;
		CellarFileId file;
		CellarFileId *found;

		if (i % 65536 == 0)
			CHECK_FOR_INTERRUPTS();
		if ((CellarReadBufferState(buffer) & BM_DIRTY) == 0)
			continue;
		tag = buffer->tag;
		if (CellarTagFork(tag) != MAIN_FORKNUM)
			continue;
		file = CellarTagFile(tag);
		found = bsearch(&file, query->files, query->nfiles, sizeof(CellarFileId), compare_files);
		if (found == NULL)
			continue;
		if (query->ndirty == DIRTY_BLOCKS_MAX)
		{
			CHECK_FOR_INTERRUPTS();
			write_block(file, tag.blockNum, BufferDescriptorGetBuffer(buffer));
			continue;
		}
		if (query->ndirty == query->dirty_allocated)
		{
			Size		size;

			query->dirty_allocated = Max(64, query->dirty_allocated * 2);
			size = query->dirty_allocated * sizeof(DirtyBlock);
			query->dirty = query->dirty == NULL ?
				MemoryContextAlloc(query->estate->es_query_cxt, size) : repalloc(query->dirty, size);
		}
		query->dirty[query->ndirty].relation = found - query->files;
		query->dirty[query->ndirty].block = tag.blockNum;
		query->dirty[query->ndirty].buffer = BufferDescriptorGetBuffer(buffer);
		query->ndirty++;
	}
	qsort(query->dirty, query->ndirty, sizeof(DirtyBlock), compare_dirty_blocks);
	query->searched = true;
}

/*
 * Writes the blocks of a relation that the search found.  Returns how many.
 */
static int
write_dirty_blocks(QueryRelations *query, int relation)
{
	int			first = 0;
	int			end = query->ndirty;
	int			next;

	while (first < end)
	{
		int			middle = first + (end - first) / 2;

		if (query->dirty[middle].relation < relation)
			first = middle + 1;
		else
			end = middle;
	}
	for (next = first; next < query->ndirty && query->dirty[next].relation == relation; next++)
	{
		CHECK_FOR_INTERRUPTS();
		write_block(query->files[relation], query->dirty[next].block, query->dirty[next].buffer);
	}
	return next - first;
}

/*
 * Makes the cell's file contain every change of the relation that the query's
 * snapshot sees.
 */
void
cellar_object_checkpoint_of_scan(EState *estate, Relation rel)
{
	CellarFileId file = CellarRelationFile(rel);
	CellarFileId *found;
	QueryRelations *query = find_query(estate);
	bool		logged = RelationNeedsWAL(rel) && !RecoveryInProgress();
	bool		search;
	int			written;
	instr_time	started;

	if (logged && is_written(file, GetXLogInsertRecPtr()))
		return;
	if (query == NULL)
	{
		cellar_object_checkpoint(rel);
		return;
	}

	INSTR_TIME_SET_CURRENT(started);
	search = !query->searched;
	if (search)
		search_dirty_blocks(query);
	found = bsearch(&file, query->files, query->nfiles, sizeof(CellarFileId), compare_files);
	if (found == NULL)
	{
		/* The relation has another file than at the start of the query. */
		cellar_object_checkpoint(rel);
		return;
	}
	written = write_dirty_blocks(query, found - query->files);
	if (search || written > 0)
		cellar_count_wait(CELLAR_WAIT_OBJECT_CHECKPOINT, started);
	if (logged && query->position != InvalidXLogRecPtr)
		remember_write(file, query->position);
}

/*
 * Writes the dirty buffers of one relation, unless no buffer of the relation can
 * have become dirty since the last call.  For use outside of a query's scans.
 */
void
cellar_object_checkpoint(Relation rel)
{
	CellarFileId file = CellarRelationFile(rel);
	bool		logged = RelationNeedsWAL(rel) && !RecoveryInProgress();
	XLogRecPtr	position = InvalidXLogRecPtr;
	instr_time	started;

	if (logged)
	{
		position = GetXLogInsertRecPtr();
		if (is_written(file, position))
			return;
	}

	/* Outside of a query, a snapshot for catalog access would delay VACUUM. */
	InvalidateCatalogSnapshotConditionally();
	INSTR_TIME_SET_CURRENT(started);
	FlushRelationBuffers(rel);
	cellar_count_wait(CELLAR_WAIT_OBJECT_CHECKPOINT, started);

	if (logged)
		remember_write(file, position);
}
