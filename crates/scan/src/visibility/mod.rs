//! Which tuples a snapshot sees, decided from the tuple header and the states of transactions.
//!
//! The rules follow `HeapTupleSatisfiesMVCC` (`access/heap/heapam_visibility.c`), branch by branch, without the
//! branches for the backend's own transaction: PostgreSQL reports the state of the transaction's own ids as `Unknown`. A
//! tuple that cannot be decided passes its whole block through. A missing hint bit never means that a transaction is
//! still running.

use crate::heap::TupleHeader;
use cellar_format::postgres::TransactionId;
use cellar_format::wire::{Snapshot, XidState};

/// The states of transactions, for the snapshot of the scan.
pub trait XidLookup {
    /// None: the state is not known yet and must be requested.
    fn state(&self, xid: TransactionId) -> Option<XidState>;
}

/// A lookup without states: every state must be requested.
pub struct NoXids;

impl XidLookup for NoXids {
    fn state(&self, _: TransactionId) -> Option<XidState> {
        None
    }
}

/// Whether the snapshot sees a tuple.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TupleVisibility {
    Visible,
    Invisible,
    /// Only PostgreSQL can decide.
    Undecided,
    /// The state of this transaction is required.
    NeedsXid(TransactionId),
}

/// Bits of `t_infomask` (`access/htup_details.h`).
mod infomask {
    pub const XMAX_KEYSHR_LOCK: u16 = 0x0010;
    pub const XMAX_EXCL_LOCK: u16 = 0x0040;
    pub const XMAX_LOCK_ONLY: u16 = 0x0080;
    pub const LOCK_MASK: u16 = XMAX_KEYSHR_LOCK | XMAX_EXCL_LOCK;
    pub const XMIN_COMMITTED: u16 = 0x0100;
    pub const XMIN_INVALID: u16 = 0x0200;
    pub const XMIN_FROZEN: u16 = XMIN_COMMITTED | XMIN_INVALID;
    pub const XMAX_COMMITTED: u16 = 0x0400;
    pub const XMAX_INVALID: u16 = 0x0800;
    pub const XMAX_IS_MULTI: u16 = 0x1000;
    pub const MOVED_OFF: u16 = 0x4000;
    pub const MOVED_IN: u16 = 0x8000;
}

const INVALID_XID: TransactionId = 0;
const FIRST_NORMAL_XID: TransactionId = 3;

/// `TransactionIdPrecedes`: modulo 2^32 for normal ids; the permanent ones precede every normal one.
pub fn precedes(left: TransactionId, right: TransactionId) -> bool {
    if left < FIRST_NORMAL_XID || right < FIRST_NORMAL_XID {
        return left < right;
    }
    (left.wrapping_sub(right) as i32) < 0
}

/// Whether a transaction is committed, as the snapshot sees it.
enum CommitState {
    Committed,
    /// Running for the snapshot, or rolled back.
    NotCommitted,
    Undecided,
    NeedsXid,
}

/// Decides about tuples for one snapshot.
pub struct Visibility<'a> {
    snapshot: &'a Snapshot,
    xids: &'a dyn XidLookup,
    /// The last transaction looked up: neighbouring tuples usually have the same xmin or xmax.
    last: Option<(TransactionId, XidState)>,
    /// Some lookup returned a definite state.
    helped: bool,
}

impl<'a> Visibility<'a> {
    pub fn new(snapshot: &'a Snapshot, xids: &'a dyn XidLookup) -> Self {
        Self { snapshot, xids, last: None, helped: false }
    }

    /// Whether a lookup returned a definite state since the last call.
    pub fn take_helped(&mut self) -> bool {
        std::mem::take(&mut self.helped)
    }

    pub fn check(&mut self, tuple: &TupleHeader) -> TupleVisibility {
        use infomask::*;
        let mask = tuple.infomask;
        if mask & XMIN_COMMITTED == 0 {
            if mask & XMIN_INVALID != 0 {
                return TupleVisibility::Invisible;
            }
            if mask & (MOVED_OFF | MOVED_IN) != 0 {
                // Written by VACUUM FULL before 9.0: xvac decides, which is left to PostgreSQL.
                return TupleVisibility::Undecided;
            }
            match self.unhinted(tuple.xmin) {
                CommitState::Committed => {}
                CommitState::NotCommitted => return TupleVisibility::Invisible,
                CommitState::Undecided => return TupleVisibility::Undecided,
                CommitState::NeedsXid => return TupleVisibility::NeedsXid(tuple.xmin),
            }
        } else if mask & XMIN_FROZEN != XMIN_FROZEN {
            // Committed, but the snapshot may not see the transaction.
            match self.hinted_committed(tuple.xmin) {
                CommitState::Committed => {}
                CommitState::NotCommitted => return TupleVisibility::Invisible,
                CommitState::Undecided => return TupleVisibility::Undecided,
                CommitState::NeedsXid => return TupleVisibility::NeedsXid(tuple.xmin),
            }
        }
        // The inserting transaction is committed for the snapshot.
        if mask & XMAX_INVALID != 0 || is_locked_only(mask) {
            return TupleVisibility::Visible;
        }
        if mask & XMAX_IS_MULTI != 0 {
            return TupleVisibility::Undecided;
        }
        let outcome =
            if mask & XMAX_COMMITTED == 0 { self.unhinted(tuple.xmax) } else { self.hinted_committed(tuple.xmax) };
        match outcome {
            CommitState::Committed => TupleVisibility::Invisible,
            CommitState::NotCommitted => TupleVisibility::Visible,
            CommitState::Undecided => TupleVisibility::Undecided,
            CommitState::NeedsXid => TupleVisibility::NeedsXid(tuple.xmax),
        }
    }

    /// The state of a transaction without a hint bit. One lookup replaces TransactionIdIsCurrentTransactionId,
    /// XidInMVCCSnapshot and TransactionIdDidCommit.
    fn unhinted(&mut self, xid: TransactionId) -> CommitState {
        if xid < FIRST_NORMAL_XID {
            // TransactionLogFetch: the bootstrap and the frozen id are committed; the invalid id, which an aborted
            // speculative insertion leaves, is not.
            return if xid == INVALID_XID { CommitState::NotCommitted } else { CommitState::Committed };
        }
        match self.lookup(xid) {
            None => CommitState::NeedsXid,
            Some(XidState::Committed) => CommitState::Committed,
            Some(XidState::Running | XidState::Aborted) => CommitState::NotCommitted,
            Some(XidState::Unknown) => CommitState::Undecided,
        }
    }

    /// The state of a transaction whose hint bit says committed. The transaction is not the backend's own, so only
    /// XidInMVCCSnapshot matters.
    fn hinted_committed(&mut self, xid: TransactionId) -> CommitState {
        if precedes(xid, self.snapshot.xmin) {
            return CommitState::Committed;
        }
        if !precedes(xid, self.snapshot.xmax) {
            return CommitState::NotCommitted;
        }
        match self.lookup(xid) {
            None => CommitState::NeedsXid,
            Some(XidState::Committed) => CommitState::Committed,
            Some(XidState::Running) => CommitState::NotCommitted,
            // Aborted contradicts the hint bit.
            Some(XidState::Aborted | XidState::Unknown) => CommitState::Undecided,
        }
    }

    fn lookup(&mut self, xid: TransactionId) -> Option<XidState> {
        let state = match self.last {
            Some((last, state)) if last == xid => state,
            _ => {
                let state = self.xids.state(xid)?;
                self.last = Some((xid, state));
                state
            }
        };
        self.helped |= state != XidState::Unknown;
        Some(state)
    }
}

/// `HEAP_XMAX_IS_LOCKED_ONLY`, which also recognises exclusive locks from before 9.3.
fn is_locked_only(mask: u16) -> bool {
    use infomask::*;
    mask & XMAX_LOCK_ONLY != 0 || mask & (XMAX_IS_MULTI | LOCK_MASK) == XMAX_EXCL_LOCK
}

#[cfg(test)]
mod tests;
