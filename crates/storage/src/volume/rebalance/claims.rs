//! Which files are being moved: a rebalance and a file that grows must not move the same regions at the same time.

use super::Rebalance;
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// How long a file that grows waits for a batch of moves.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// The inodes whose files are being moved.
#[derive(Debug, Default)]
pub struct Claims {
    inodes: Mutex<BTreeSet<u64>>,
    released: Condvar,
}

/// Inodes whose files only the holder moves.
#[derive(Debug)]
pub struct Claim<'a> {
    claims: &'a Claims,
    inodes: BTreeSet<u64>,
}

impl Claim<'_> {
    pub fn has(&self, ino: u64) -> bool {
        self.inodes.contains(&ino)
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.claims.inodes.lock().retain(|ino| !self.inodes.contains(ino));
        self.claims.released.notify_all();
    }
}

impl Rebalance {
    /// Claims those of the inodes that no other thread has claimed.
    pub fn claim(&self, inodes: impl Iterator<Item = u64>) -> Claim<'_> {
        let mut claimed = self.claims.inodes.lock();
        let wanted: BTreeSet<u64> = inodes.collect();
        let inodes: BTreeSet<u64> = wanted.difference(&claimed).copied().collect();
        claimed.extend(&inodes);
        Claim { claims: &self.claims, inodes }
    }

    /// Claims an inode, after the thread that has claimed it. None if that takes too long.
    pub fn claim_after_others(&self, ino: u64) -> Option<Claim<'_>> {
        let deadline = Instant::now() + WAIT_MAX;
        let mut claimed = self.claims.inodes.lock();
        while !claimed.insert(ino) {
            if self.claims.released.wait_until(&mut claimed, deadline).timed_out() {
                return None;
            }
        }
        Some(Claim { claims: &self.claims, inodes: BTreeSet::from([ino]) })
    }
}
