//! What the classes have done on all devices.

use crate::request::{DatabaseId, GroupId, IoSize, Origin};
use parking_lot::Mutex;
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Requests of a class on all devices of a medium. They never decrease.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counted {
    pub requests: u64,
    pub bytes: u64,
    /// Time in the queues.
    pub waited_ns: u64,
    /// Time that the requests took, without the time in the queues.
    pub took_ns: u64,
    /// Device time that the requests are charged with.
    pub device_ns: u64,
}

impl Counted {
    pub fn add(&mut self, other: Self) {
        self.requests += other.requests;
        self.bytes += other.bytes;
        self.waited_ns += other.waited_ns;
        self.took_ns += other.took_ns;
        self.device_ns += other.device_ns;
    }
}

/// What devices are for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Medium {
    /// Cell disks.
    #[default]
    Disk,
    /// Disks of the flash cache.
    Flash,
}

/// What a class has counted by size on cell disks, then on flash disks.
#[derive(Debug, Clone, Copy, Default)]
pub struct CountsBySize([[Counted; IoSize::ALL.len()]; 2]);

impl CountsBySize {
    pub fn of(&self, medium: Medium, size: IoSize) -> Counted {
        self.0[medium as usize][size as usize]
    }

    fn add(&mut self, medium: Medium, size: IoSize, done: Counted) {
        self.0[medium as usize][size as usize].add(done);
    }

    pub fn add_all(&mut self, other: &Self) {
        for medium in [Medium::Disk, Medium::Flash] {
            IoSize::ALL.into_iter().for_each(|size| self.add(medium, size, other.of(medium, size)));
        }
    }
}

/// Threads share locks only with an eighth of the others.
const SHARDS: usize = 8;

/// Threads on different CPUs use different shards, so each begins a cache line.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard(Mutex<HashMap<(DatabaseId, GroupId), CountsBySize>>);

#[derive(Debug, Default)]
pub struct ClassCounters([Shard; SHARDS]);

thread_local! {
    static SHARD: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Returns the shard of this thread.
fn shard() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    if SHARD.get() == usize::MAX {
        SHARD.set(THREADS.fetch_add(1, Ordering::Relaxed) % SHARDS);
    }
    SHARD.get()
}

impl ClassCounters {
    pub fn count(&self, origin: Origin, medium: Medium, size: IoSize, done: Counted) {
        let mut classes = self.0[shard()].0.lock();
        classes.entry((origin.database, origin.group)).or_default().add(medium, size, done);
    }

    pub fn counts(&self) -> HashMap<(DatabaseId, GroupId), CountsBySize> {
        let mut sums: HashMap<(DatabaseId, GroupId), CountsBySize> = HashMap::new();
        for shard in &self.0 {
            shard.0.lock().iter().for_each(|(class, counts)| sums.entry(*class).or_default().add_all(counts));
        }
        sums
    }
}
