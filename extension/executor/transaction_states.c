/*-------------------------------------------------------------------------
 *
 * transaction_states.c
 *	  Answers a cell's questions about transactions.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/transam.h"
#include "access/xact.h"
#include "storage/lwlock.h"

#include "cellar/compat.h"
#include "cellar/executor.h"

/* Transactions looked up under one hold of XactTruncationLock. */
#define LOOKUPS_AT_ONCE		32

/*
 * What one transaction is to the snapshot.  The order of the tests is that of
 * HeapTupleSatisfiesMVCC: the own transaction first, which is not in its own
 * snapshot; then the snapshot, since a commit after it does not count; and
 * only then the commit log.  A transaction that is not running for the
 * snapshot had ended when it was taken, so one that did not commit was
 * aborted or was lost in a crash.
 *
 * The caller holds XactTruncationLock, so that the part of the commit log from
 * oldestClogXid on stays where it is.
 */
static CellarXidState
transaction_state(TransactionId xid, Snapshot snapshot)
{
	if (!TransactionIdIsNormal(xid))
		return CELLAR_XID_UNKNOWN;
	if (TransactionIdIsCurrentTransactionId(xid))
		return CELLAR_XID_UNKNOWN;
	if (XidInMVCCSnapshot(xid, snapshot))
		return CELLAR_XID_RUNNING;
	if (TransactionIdPrecedes(xid, CellarOldestClogXid()))
		return CELLAR_XID_UNKNOWN;
	if (TransactionIdDidCommit(xid))
		return CELLAR_XID_COMMITTED;
	return CELLAR_XID_ABORTED;
}

void
cellar_transaction_states(const uint32 *xids, size_t count, Snapshot snapshot,
						  uint8 *states)
{
	for (size_t i = 0; i < count;)
	{
		size_t		end = Min(count, i + LOOKUPS_AT_ONCE);

		LWLockAcquire(XactTruncationLock, LW_SHARED);
		for (; i < end; i++)
			states[i] = transaction_state(xids[i], snapshot);
		LWLockRelease(XactTruncationLock);
		CHECK_FOR_INTERRUPTS();
	}
}
