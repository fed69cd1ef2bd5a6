/*-------------------------------------------------------------------------
 *
 * transaction_states.c
 *	  Looks up transaction states for a cell.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/transam.h"
#include "access/xact.h"
#include "storage/lwlock.h"

#include "cellar/compat.h"
#include "cellar/executor.h"

/* Lookups under one acquisition of XactTruncationLock */
#define LOOKUPS_PER_LOCK	32

/*
 * Returns the state of a transaction as seen by the snapshot.
 *
 * The tests have the order of HeapTupleSatisfiesMVCC.  The current transaction
 * comes first, because its own snapshot does not contain it.  The snapshot
 * comes before the commit log, because a commit after the snapshot does not
 * count.  A transaction that is not running in the snapshot finished
 * before the snapshot, so without a commit record the transaction aborted or crashed.
 *
 * The caller holds XactTruncationLock, so the commit log is not truncated
 * beyond oldestClogXid during the lookup.
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

/*
 * Sets the state (a CellarXidState) of each transaction, as seen by the
 * snapshot.
 */
void
cellar_transaction_states(const uint32 *xids, size_t count, Snapshot snapshot,
						  uint8 *states)
{
	for (size_t i = 0; i < count;)
	{
		size_t		end = Min(count, i + LOOKUPS_PER_LOCK);

		LWLockAcquire(XactTruncationLock, LW_SHARED);
		for (; i < end; i++)
			states[i] = transaction_state(xids[i], snapshot);
		LWLockRelease(XactTruncationLock);
		CHECK_FOR_INTERRUPTS();
	}
}
