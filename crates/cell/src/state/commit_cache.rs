//! The commit cache: final states of transactions, for rows whose page has no hint bits yet.
//!
//! The cache contains only final states (committed, aborted), by 64-bit transaction id. Each lifetime of a cluster's
//! shared memory (incarnation) has its own states: after a crash or a restore, the same ids may belong to other
//! transactions. The visibility of a committed transaction depends on the snapshot, so a cached "committed" decides
//! only below the snapshot's xmin.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use cellar_format::postgres::TransactionId;
use cellar_format::wire::{Snapshot, XidState};
use cellar_scan::XidLookup;
use parking_lot::{Mutex, RwLock};

/// Maximum number of transactions per incarnation; a full cache is cleared.
const TRANSACTIONS_MAX: usize = 4 << 20;
/// Maximum number of incarnations; the oldest one is dropped first.
const INCARNATIONS_MAX: usize = 64;

/// One lifetime of a cluster's shared memory: the system identifier and a random number.
pub type Incarnation = (u64, u64);

type Map<K, V> = HashMap<K, V, BuildHasherDefault<MixHasher>>;

#[derive(Default)]
pub struct CommitCache {
    incarnations: Mutex<Vec<(Incarnation, Arc<Transactions>)>>,
}

/// The final states of one incarnation: true for committed, false for aborted.
#[derive(Default)]
pub struct Transactions {
    committed: RwLock<Map<u64, bool>>,
}

impl CommitCache {
    /// Returns the states of an incarnation, which is created on first use.
    pub fn incarnation(&self, id: Incarnation) -> Arc<Transactions> {
        let mut incarnations = self.incarnations.lock();
        if let Some((_, transactions)) = incarnations.iter().find(|(known, _)| *known == id) {
            return transactions.clone();
        }
        if incarnations.len() == INCARNATIONS_MAX {
            incarnations.remove(0);
        }
        let transactions = Arc::<Transactions>::default();
        incarnations.push((id, transactions.clone()));
        transactions
    }
}

/// The transaction states that are available to one scan: the backend's answers, then the commit cache.
pub struct ScanXids {
    transactions: Arc<Transactions>,
    next_full_xid: u64,
    full_xmin: u64,
    known: RefCell<Map<TransactionId, XidState>>,
    /// Look-ups in the commit cache, and the look-ups that found a state.
    queries: Cell<u64>,
    found: Cell<u64>,
}

impl ScanXids {
    pub fn new(transactions: Arc<Transactions>, snapshot: &Snapshot) -> Self {
        let full_xmin = widen(snapshot.xmin, snapshot.next_full_xid);
        Self {
            transactions,
            next_full_xid: snapshot.next_full_xid,
            full_xmin,
            known: RefCell::default(),
            queries: Cell::new(0),
            found: Cell::new(0),
        }
    }

    /// Records the backend's answers. `Unknown` is recorded too, which avoids a second query for the same id.
    pub fn record(&self, xids: &[TransactionId], states: &[XidState]) {
        let mut known = self.known.borrow_mut();
        let mut committed = self.transactions.committed.write();
        if committed.len() + xids.len() > TRANSACTIONS_MAX {
            committed.clear();
        }
        for (&xid, &state) in xids.iter().zip(states) {
            known.insert(xid, state);
            match state {
                XidState::Committed => drop(committed.insert(widen(xid, self.next_full_xid), true)),
                XidState::Aborted => drop(committed.insert(widen(xid, self.next_full_xid), false)),
                XidState::Running | XidState::Unknown => {}
            }
        }
    }

    /// Returns and resets the counts of look-ups in the commit cache and of states found there.
    pub fn take_counts(&self) -> (u64, u64) {
        (self.queries.take(), self.found.take())
    }

    fn look_up(&self, xid: TransactionId) -> Option<XidState> {
        let full_xid = widen(xid, self.next_full_xid);
        match self.transactions.committed.read().get(&full_xid) {
            Some(false) => Some(XidState::Aborted),
            Some(true) if full_xid < self.full_xmin => Some(XidState::Committed),
            _ => None,
        }
    }
}

impl XidLookup for ScanXids {
    fn state(&self, xid: TransactionId) -> Option<XidState> {
        if let Some(state) = self.known.borrow().get(&xid) {
            return Some(*state);
        }
        self.queries.set(self.queries.get() + 1);
        let state = self.look_up(xid)?;
        self.found.set(self.found.get() + 1);
        self.known.borrow_mut().insert(xid, state);
        Some(state)
    }
}

/// Widens an id from a page to 64 bits. Every such id is within 2^31 of the next transaction id.
fn widen(xid: TransactionId, next_full_xid: u64) -> u64 {
    let distance = xid.wrapping_sub(next_full_xid as u32) as i32;
    next_full_xid.wrapping_add_signed(i64::from(distance))
}

/// A fast multiplicative hash. Transaction ids are dense and not under an attacker's control.
#[derive(Default)]
pub struct MixHasher(u64);

impl Hasher for MixHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }
    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }
    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0 ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    }
    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(xmin: u32) -> Snapshot {
        Snapshot {
            xmin,
            xmax: xmin + 10,
            taken_during_recovery: false,
            next_full_xid: (7 << 32) + u64::from(xmin) + 20,
        }
    }

    #[test]
    fn a_cached_commit_decides_only_below_the_snapshots_xmin() {
        let transactions = CommitCache::default().incarnation((1, 1));
        ScanXids::new(transactions.clone(), &snapshot(100))
            .record(&[104, 105], &[XidState::Committed, XidState::Aborted]);
        let same_age = ScanXids::new(transactions.clone(), &snapshot(100));
        assert_eq!(same_age.state(104), None);
        assert_eq!(same_age.state(105), Some(XidState::Aborted));
        let later = ScanXids::new(transactions, &snapshot(200));
        assert_eq!(later.state(104), Some(XidState::Committed));
        assert_eq!(later.take_counts(), (1, 1));
    }

    #[test]
    fn a_running_transaction_is_known_to_its_own_scan_only() {
        let transactions = CommitCache::default().incarnation((1, 1));
        let scan = ScanXids::new(transactions.clone(), &snapshot(100));
        scan.record(&[103], &[XidState::Running]);
        assert_eq!(scan.state(103), Some(XidState::Running));
        assert_eq!(ScanXids::new(transactions, &snapshot(200)).state(103), None);
    }

    #[test]
    fn incarnations_share_no_states() {
        let cache = CommitCache::default();
        ScanXids::new(cache.incarnation((1, 1)), &snapshot(100)).record(&[50], &[XidState::Committed]);
        assert_eq!(ScanXids::new(cache.incarnation((1, 2)), &snapshot(200)).state(50), None);
    }

    #[test]
    fn ids_widen_into_the_nearest_epoch() {
        assert_eq!(widen(5, (3 << 32) + 10), (3 << 32) + 5);
        assert_eq!(widen(u32::MAX, (3 << 32) + 10), (2 << 32) + u64::from(u32::MAX));
        assert_eq!(widen(3, (3 << 32) - 1), (3 << 32) + 3);
    }
}
