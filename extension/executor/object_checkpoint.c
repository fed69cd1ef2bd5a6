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
 * A flush examines every shared buffer.  It is therefore skipped when no WAL was
 * inserted since this backend last flushed the same file.  Skipping is sound for
 * a relation whose changes are WAL-logged, on a primary.  A page modification
 * marks the buffer dirty before it inserts the WAL record, both under one
 * exclusive lock of the buffer.  Let P be the insert position read before the
 * last flush:
 *
 * - A change whose record is below P was dirty when that flush began; the
 *	 flush waited for the lock of the buffer and wrote it.
 * - A change whose record is at or above P advances the position, so this
 *	 flush is not skipped.
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
#include "utils/rel.h"

#include "cellar/compat.h"
#include "cellar/executor.h"
#include "cellar/statistics.h"

#define FLUSHES_REMEMBERED	64

typedef struct LastFlush
{
	CellarFileId file;
	XLogRecPtr	position;
} LastFlush;

static LastFlush last_flushes[FLUSHES_REMEMBERED];

/*
 * Writes the dirty buffers of the relation, unless no buffer of the relation
 * can have become dirty since the last call.
 */
void
cellar_object_checkpoint(Relation rel)
{
	CellarFileId file = CellarRelationFile(rel);
	LastFlush  *last = &last_flushes[CellarFileNumber(file) % FLUSHES_REMEMBERED];
	bool		logged = RelationNeedsWAL(rel) && !RecoveryInProgress();
	XLogRecPtr	position = InvalidXLogRecPtr;
	instr_time	started;

	if (logged)
	{
		position = GetXLogInsertRecPtr();
		if (last->position == position && CellarFileEquals(last->file, file))
			return;
	}

	/* Outside of a query, a snapshot for catalog access would delay VACUUM. */
	InvalidateCatalogSnapshotConditionally();
	INSTR_TIME_SET_CURRENT(started);
	FlushRelationBuffers(rel);
	cellar_count_wait(CELLAR_WAIT_OBJECT_CHECKPOINT, started);

	if (logged)
	{
		last->file = file;
		last->position = position;
	}
}
