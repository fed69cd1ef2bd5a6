//! What the classes have done on all devices.

use crate::request::{DatabaseId, GroupId, IoSize, Origin};
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// Requests of a class on all devices. They never decrease.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counted {
    pub bytes: u64,
    /// Time in the queues.
    pub waited_ns: u64,
    /// Time of the devices.
    pub device_ns: u64,
}

/// Requests of each size, with what they counted.
pub type CountsBySize = [(u64, Counted); IoSize::ALL.len()];

#[derive(Debug, Default)]
pub struct ClassCounters(Mutex<BTreeMap<(DatabaseId, GroupId), CountsBySize>>);

impl ClassCounters {
    pub fn count(&self, origin: Origin, size: IoSize, done: Counted) {
        let mut classes = self.0.lock();
        let (requests, counted) = &mut classes.entry((origin.database, origin.group)).or_default()[size as usize];
        *requests += 1;
        counted.bytes += done.bytes;
        counted.waited_ns += done.waited_ns;
        counted.device_ns += done.device_ns;
    }
    pub fn counts(&self) -> Vec<((DatabaseId, GroupId), CountsBySize)> {
        self.0.lock().iter().map(|(class, sizes)| (*class, *sizes)).collect()
    }
}
