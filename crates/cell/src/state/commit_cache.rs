//! The commit cache: final states of transactions, for rows whose page has no hint bits yet.
//!
//! The cache contains only final states (committed, aborted), by 64-bit transaction id. Each lifetime of a cluster's
//! shared memory (incarnation) has its own states: after a crash or a restore, the same ids may belong to other
//! transactions. The visibility of a committed transaction depends on the snapshot, so the cached state "committed" decides only
//! about transactions that precede the snapshot's xmin. The states of an incarnation whose postmaster has exited are dropped.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cellar_format::postgres::TransactionId;
use cellar_format::wire::{Snapshot, XidState};
use cellar_scan::{Account, XidLookup};
use parking_lot::{Mutex, RwLock};

use super::hash::Map;

/// Maximum number of incarnations; the one without sessions that was created first is dropped first.
const INCARNATIONS_MAX: usize = 64;
/// An incarnation without sessions is dropped after this time.
const UNUSED_MAX: Duration = Duration::from_secs(600);
/// Transactions per block of states.
const BLOCK_TRANSACTIONS: u64 = 128;
/// The memory of a block in a table that has just grown: 16 slots per 7 entries.
const BLOCK_BYTES: u64 = (size_of::<(u64, Block)>() as u64 + 1) * 16 / 7;
/// Maximum number of states that a scan keeps besides the commit cache.
const KNOWN_MAX: usize = 16 << 10;

/// One lifetime of a cluster's shared memory: the system identifier and a random number.
pub type Incarnation = (u64, u64);

/// The states of consecutive transactions, two bits each: 0 unknown, 1 aborted, 2 committed.
type Block = [u64; (BLOCK_TRANSACTIONS / 32) as usize];

/// Invariant: every incarnation uses at most an equal share of the account's limit, so the limit is kept.
pub struct CommitCache {
    account: Arc<Account>,
    /// The most bytes that each incarnation may use.
    share_bytes: Arc<AtomicU64>,
    incarnations: Mutex<Vec<Known>>,
}

struct Known {
    id: Incarnation,
    transactions: Arc<Transactions>,
    /// When the incarnation was first found without sessions.
    unused_since: Option<Instant>,
}

impl Known {
    /// Returns whether a session or a scan refers to the incarnation.
    fn is_in_use(&self) -> bool {
        Arc::strong_count(&self.transactions) > 1
    }
}

/// The final states of one incarnation's transactions, by block number.
pub struct Transactions {
    blocks: RwLock<Map<u64, Block>>,
    share_bytes: Arc<AtomicU64>,
    account: Arc<Account>,
}

impl CommitCache {
    /// Returns a cache that keeps the account's limit.
    pub fn new(account: &Arc<Account>) -> Self {
        let share_bytes = Arc::new(AtomicU64::new(account.limit()));
        Self { account: account.clone(), share_bytes, incarnations: Mutex::default() }
    }

    /// Returns the states of an incarnation, which is created on first use. Creating an incarnation drops the cluster's
    /// incarnations that have no sessions: after a restart of the cluster, their postmasters have exited. A session
    /// keeps the returned value as long as it exists.
    pub fn incarnation(&self, id: Incarnation) -> Arc<Transactions> {
        let mut incarnations = self.incarnations.lock();
        if let Some(known) = incarnations.iter().find(|known| known.id == id) {
            return known.transactions.clone();
        }
        incarnations.retain(|known| known.id.0 != id.0 || known.is_in_use());
        if incarnations.len() >= INCARNATIONS_MAX {
            let unused = incarnations.iter().position(|known| !known.is_in_use());
            incarnations.remove(unused.unwrap_or(0));
        }
        let (share_bytes, account) = (self.share_bytes.clone(), self.account.clone());
        let transactions = Arc::new(Transactions { blocks: RwLock::default(), share_bytes, account });
        incarnations.push(Known { id, transactions: transactions.clone(), unused_since: None });
        self.share(&incarnations);
        transactions
    }

    /// Drops the incarnations that have had no session for [`UNUSED_MAX`] at `now`.
    pub fn drop_unused(&self, now: Instant) {
        let mut incarnations = self.incarnations.lock();
        incarnations.retain_mut(|known| {
            if known.is_in_use() {
                known.unused_since = None;
                return true;
            }
            now.saturating_duration_since(*known.unused_since.get_or_insert(now)) < UNUSED_MAX
        });
        self.share(&incarnations);
    }

    /// Divides the limit among the incarnations, and clears those that use more than their share.
    fn share(&self, incarnations: &[Known]) {
        let share_bytes = self.account.limit() / incarnations.len().max(1) as u64;
        self.share_bytes.store(share_bytes, Ordering::Relaxed);
        for known in incarnations {
            let mut blocks = known.transactions.blocks.write();
            if blocks.len() as u64 * BLOCK_BYTES > share_bytes {
                known.transactions.clear(&mut blocks);
            }
        }
    }
}

impl Transactions {
    /// Records final states: true for committed, false for aborted. Clears all states first if the new ones might exceed
    /// the incarnation's share.
    fn record(&self, states: &[(u64, bool)]) {
        if states.is_empty() {
            return;
        }
        let mut blocks = self.blocks.write();
        let blocks_max = self.share_bytes.load(Ordering::Relaxed) / BLOCK_BYTES;
        if (blocks.len() + states.len()) as u64 > blocks_max {
            let missing = |(xid, _): &&(u64, bool)| !blocks.contains_key(&(xid / BLOCK_TRANSACTIONS));
            if (blocks.len() + states.iter().filter(missing).count()) as u64 > blocks_max {
                self.clear(&mut blocks);
            }
        }
        let before = blocks.len();
        for (xid, is_committed) in states {
            let number = xid / BLOCK_TRANSACTIONS;
            if blocks.len() as u64 >= blocks_max && !blocks.contains_key(&number) {
                continue;
            }
            let (word, shift) = place(*xid);
            let block = blocks.entry(number).or_default();
            block[word] = block[word] & !(3 << shift) | (1 + u64::from(*is_committed)) << shift;
        }
        self.account.add((blocks.len() - before) as u64 * BLOCK_BYTES);
    }

    /// Returns a final state: true for committed, false for aborted.
    fn get(&self, xid: u64) -> Option<bool> {
        let (word, shift) = place(xid);
        let state = self.blocks.read().get(&(xid / BLOCK_TRANSACTIONS))?[word] >> shift & 3;
        (state > 0).then_some(state == 2)
    }

    fn clear(&self, blocks: &mut Map<u64, Block>) {
        self.account.subtract(blocks.len() as u64 * BLOCK_BYTES);
        *blocks = Map::default();
    }
}

impl Drop for Transactions {
    fn drop(&mut self) {
        self.account.subtract(self.blocks.get_mut().len() as u64 * BLOCK_BYTES);
    }
}

/// Returns the word of a transaction in its block, and the shift of its state in the word.
fn place(xid: u64) -> (usize, u32) {
    let index = xid % BLOCK_TRANSACTIONS;
    ((index / 32) as usize, (index % 32 * 2) as u32)
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
        let mut final_states = Vec::with_capacity(xids.len());
        for (&xid, &state) in xids.iter().zip(states) {
            known.insert(xid, state);
            match state {
                XidState::Committed => final_states.push((widen(xid, self.next_full_xid), true)),
                XidState::Aborted => final_states.push((widen(xid, self.next_full_xid), false)),
                XidState::Running | XidState::Unknown => {}
            }
        }
        self.transactions.record(&final_states);
    }

    /// Drops the states that the scan keeps if they are many. They are looked up or queried again when needed, so the
    /// caller must not do this between recording states and the attempt that needs them.
    pub fn trim(&self) {
        if self.known.borrow().len() > KNOWN_MAX {
            self.forget();
        }
    }

    /// Drops the states that the scan keeps, and their memory.
    pub fn forget(&self) {
        self.known.take();
    }

    /// Returns and resets the counts of look-ups in the commit cache and of states found there.
    pub fn take_counts(&self) -> (u64, u64) {
        (self.queries.take(), self.found.take())
    }

    fn look_up(&self, xid: TransactionId) -> Option<XidState> {
        let full_xid = widen(xid, self.next_full_xid);
        match self.transactions.get(full_xid) {
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

    fn cache() -> CommitCache {
        CommitCache::new(&Account::new(1 << 20))
    }

    #[test]
    fn a_cached_commit_decides_only_below_the_snapshots_xmin() {
        let transactions = cache().incarnation((1, 1));
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
        let transactions = cache().incarnation((1, 1));
        let scan = ScanXids::new(transactions.clone(), &snapshot(100));
        scan.record(&[103], &[XidState::Running]);
        assert_eq!(scan.state(103), Some(XidState::Running));
        assert_eq!(ScanXids::new(transactions, &snapshot(200)).state(103), None);
    }

    #[test]
    fn incarnations_share_no_states() {
        let cache = cache();
        ScanXids::new(cache.incarnation((1, 1)), &snapshot(100)).record(&[50], &[XidState::Committed]);
        assert_eq!(ScanXids::new(cache.incarnation((1, 2)), &snapshot(200)).state(50), None);
    }

    #[test]
    fn a_restarted_cluster_drops_the_states_of_its_earlier_incarnations() {
        let cache = cache();
        let record = |transactions: &Arc<Transactions>| transactions.record(&[(50, true)]);
        let (primary, standby, other) =
            (cache.incarnation((1, 1)), cache.incarnation((1, 2)), cache.incarnation((2, 1)));
        [&primary, &standby, &other].into_iter().for_each(record);
        assert_eq!(cache.account.used(), 3 * BLOCK_BYTES);
        drop((primary, other));
        // The standby has a session, and the other cluster may have a running postmaster.
        let restarted = cache.incarnation((1, 3));
        assert_eq!(cache.account.used(), 2 * BLOCK_BYTES);
        assert_eq!(cache.incarnation((1, 1)).get(50), None);
        assert_eq!((standby.get(50), cache.incarnation((2, 1)).get(50)), (Some(true), Some(true)));
        // Incarnations without sessions are dropped after a time.
        let now = Instant::now();
        drop(restarted);
        cache.drop_unused(now);
        cache.drop_unused(now + UNUSED_MAX / 2);
        assert_eq!(cache.incarnations.lock().len(), 4);
        cache.drop_unused(now + UNUSED_MAX);
        assert_eq!(cache.incarnations.lock().len(), 1, "only the standby has a session");
        assert_eq!(cache.account.used(), BLOCK_BYTES);
    }

    #[test]
    fn all_incarnations_together_keep_the_limit() {
        let account = Account::new(100 * BLOCK_BYTES);
        let cache = CommitCache::new(&account);
        let sparse = |count: u64| -> Vec<(u64, bool)> {
            (0..count).map(|number| (number * BLOCK_TRANSACTIONS, number % 2 == 0)).collect()
        };
        let first = cache.incarnation((1, 1));
        first.record(&sparse(100));
        assert_eq!((account.used(), first.get(0)), (100 * BLOCK_BYTES, Some(true)));
        first.record(&[(1, false), (127, true)]);
        assert_eq!((first.get(0), first.get(1), first.get(127)), (Some(true), Some(false), Some(true)));
        assert_eq!(account.used(), 100 * BLOCK_BYTES, "states of known blocks need no memory");
        first.record(&[(1 << 40, true)]);
        assert_eq!((account.used(), first.get(0), first.get(1 << 40)), (BLOCK_BYTES, None, Some(true)));
        first.record(&sparse(99));
        let second = cache.incarnation((2, 1));
        assert_eq!(first.get(0), None, "the first incarnation used more than a half");
        for transactions in [&first, &second] {
            transactions.record(&sparse(1000));
            assert!(account.used() <= account.limit());
        }
        assert_eq!(account.used(), account.limit());
    }

    #[test]
    fn a_scan_forgets_surplus_states_but_the_commit_cache_keeps_them() {
        let scan = ScanXids::new(cache().incarnation((1, 1)), &snapshot(1_000_000));
        let xids: Vec<u32> = (0..KNOWN_MAX as u32 + 1).collect();
        scan.record(&xids, &vec![XidState::Aborted; xids.len()]);
        assert_eq!(scan.take_counts().0, 0);
        scan.trim();
        assert_eq!(scan.known.borrow().len(), 0);
        assert_eq!((scan.state(7), scan.take_counts()), (Some(XidState::Aborted), (1, 1)));
    }

    #[test]
    fn ids_widen_into_the_nearest_epoch() {
        assert_eq!(widen(5, (3 << 32) + 10), (3 << 32) + 5);
        assert_eq!(widen(u32::MAX, (3 << 32) + 10), (2 << 32) + u64::from(u32::MAX));
        assert_eq!(widen(3, (3 << 32) - 1), (3 << 32) + 3);
    }
}
