/*-------------------------------------------------------------------------
 *
 * object_checkpoint.c
 *	  The object checkpoint: a relation's dirty buffers reach the cell before
 *	  it scans them.
 *
 * It comes after the scan's snapshot was taken.  Whatever committed before
 * the snapshot was then either dirty or written already, so the cell has it
 * when the flush returns.  Later states of a block only add row versions that
 * the snapshot does not see, or remove versions that nobody sees.
 *
 * A flush looks at every shared buffer, so a second one is skipped when no
 * WAL was inserted since this backend's last flush of the same file.  That is
 * sound for a relation whose changes are WAL-logged, on a primary.  Changing a page marks its buffer dirty
 * before the change's WAL record is inserted, all under one exclusive lock of the
 * buffer.  Let P be the insert position read before the last flush:
 *
 * - A change whose record lies below P was dirty when that flush began; the
 *   flush waited for the buffer's lock and wrote it.
 * - A change whose record lies at or above P moves the position, so this
 *   flush is not skipped.
 * - A change whose record is not inserted yet belongs to a transaction that
 *   has not inserted its commit record either.  The snapshot, which is older
 *   than our reading of the position, does not see it; nor can it be our own change.
 *
 * Hint bits set without WAL may be missing in the cell, which only makes it
 * ask for a transaction's state.  A relation that was created or rewritten in
 * a running transaction may skip WAL, and RelationNeedsWAL is false for it in
 * that transaction; when others see it, it has been synced or logged.
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

	INSTR_TIME_SET_CURRENT(started);
	FlushRelationBuffers(rel);
	cellar_count_wait(CELLAR_WAIT_OBJECT_CHECKPOINT, started);

	if (logged)
	{
		last->file = file;
		last->position = position;
	}
}
