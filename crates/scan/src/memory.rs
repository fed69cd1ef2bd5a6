//! Memory accounting: an [`Account`] limits the bytes that memory of one kind may take, and a [`Grant`] is the part of
//! an account that one owner uses.
//!
//! Invariants: `used` is the sum of all live grants and of the bytes added with [`Account::add`]. A grant never makes
//! `used` exceed the limit. Accounts count bytes; they allocate nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Grants grow in multiples of this many bytes, so that an owner whose memory grows slowly rarely changes the account.
const GRANT_STEP: u64 = 64 << 10;

/// The limit and the use of one kind of memory, in bytes.
#[derive(Debug)]
pub struct Account {
    limit: u64,
    used: AtomicU64,
    /// All bytes that were subtracted from `used` so far.
    released: AtomicU64,
}

impl Account {
    pub fn new(limit: u64) -> Arc<Self> {
        Arc::new(Self { limit, used: AtomicU64::new(0), released: AtomicU64::new(0) })
    }

    /// Returns an account that grants every request.
    pub fn unlimited() -> Arc<Self> {
        Self::new(u64::MAX)
    }

    pub fn limit(&self) -> u64 {
        self.limit
    }

    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Returns the bytes that were released since the account was created.
    pub fn released(&self) -> u64 {
        self.released.load(Ordering::Relaxed)
    }

    /// Adds bytes without checking the limit, for caches that keep the limit by eviction.
    pub fn add(&self, bytes: u64) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Subtracts bytes that were added before.
    pub fn subtract(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
        self.released.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Adds bytes if the limit allows. Returns whether the bytes were added.
    fn try_add(&self, bytes: u64) -> bool {
        let add = |used: u64| used.checked_add(bytes).filter(|used| *used <= self.limit);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
    }
}

/// Memory of an account that one owner may use; released on drop.
#[derive(Debug)]
pub struct Grant {
    account: Arc<Account>,
    bytes: u64,
}

impl Grant {
    /// Returns a grant of no memory.
    pub fn new(account: &Arc<Account>) -> Self {
        Self { account: account.clone(), bytes: 0 }
    }

    pub fn account(&self) -> &Arc<Account> {
        &self.account
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Grows the grant to at least `bytes`. Returns false, and changes nothing, if the account's limit does not allow
    /// that. Never waits.
    pub fn cover(&mut self, bytes: u64) -> bool {
        if bytes <= self.bytes {
            return true;
        }
        let Some(more) = bytes.checked_next_multiple_of(GRANT_STEP).map(|bytes| bytes - self.bytes) else {
            return false;
        };
        let granted = self.account.try_add(more);
        if granted {
            self.bytes += more;
        }
        granted
    }

    /// Returns memory beyond `bytes` to the account.
    pub fn shrink(&mut self, bytes: u64) {
        let kept = bytes.checked_next_multiple_of(GRANT_STEP).map_or(self.bytes, |bytes| bytes.min(self.bytes));
        self.account.subtract(self.bytes - kept);
        self.bytes = kept;
    }

    /// Returns all memory to the account.
    pub fn release(&mut self) {
        self.account.subtract(std::mem::take(&mut self.bytes));
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_grow_up_to_the_limit_and_are_released_on_drop() {
        let account = Account::new(4 * GRANT_STEP);
        let mut first = Grant::new(&account);
        assert!(first.cover(1) && first.bytes() == GRANT_STEP);
        assert!(first.cover(GRANT_STEP) && account.used() == GRANT_STEP);
        let mut second = Grant::new(&account);
        assert!(second.cover(3 * GRANT_STEP));
        assert!(!first.cover(GRANT_STEP + 1), "the account is full");
        assert_eq!((first.bytes(), account.used()), (GRANT_STEP, 4 * GRANT_STEP));
        drop(second);
        assert!(first.cover(4 * GRANT_STEP));
        assert!(!first.cover(u64::MAX));
        first.shrink(u64::MAX);
        assert_eq!(first.bytes(), 4 * GRANT_STEP);
        first.shrink(GRANT_STEP + 1);
        assert_eq!((first.bytes(), account.used()), (2 * GRANT_STEP, 2 * GRANT_STEP));
        assert!(first.cover(4 * GRANT_STEP));
        first.release();
        assert_eq!((first.bytes(), account.used(), account.released()), (0, 0, 9 * GRANT_STEP));
    }

    #[test]
    fn concurrent_grants_never_exceed_the_limit() {
        let account = Account::new(10 * GRANT_STEP);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for steps in (1..=4).cycle().take(2000) {
                        let mut grant = Grant::new(&account);
                        grant.cover(steps * GRANT_STEP);
                        assert!(account.used() <= account.limit());
                    }
                });
            }
        });
        assert_eq!(account.used(), 0);
    }
}
