//! A cache with bounded memory. Eviction per shard is CLOCK (second chance), with probation for new entries.
//!
//! A new entry of a full shard is on probation: it is evicted before the other entries unless it is used first. A
//! repeated scan of a table larger than the cache therefore replaces few entries and finds the others again. With CLOCK
//! alone, each entry would be evicted shortly before its next use. One in [`ADMISSION`] unused new entries replaces an
//! entry that is not on probation, so entries of tables that are no longer scanned are evicted after some scans.
//!
//! Invariant: the memory of all entries, as [`Entry`] weighs them, is at most the capacity. An entry that is larger than
//! a shard's capacity is evicted at once.

use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, BuildHasherDefault, Hash};
use std::sync::Arc;

use cellar_scan::Account;

use super::hash::{Map, MixHasher};

const SHARDS: usize = 16;
/// The share of a shard's capacity for entries on probation, as a divisor.
const PROBATION_SHARE: usize = 8;
/// One in this many entries that were not used on probation is admitted.
const ADMISSION: u32 = 8;

/// A value whose memory on the heap is known.
pub trait HeapBytes {
    /// Returns the memory in bytes besides the value itself; an upper bound if the memory may grow later.
    fn heap_bytes(&self) -> usize;
}

#[derive(Debug)]
pub struct ClockCache<K, V> {
    shards: [Mutex<Shard<K, V>>; SHARDS],
    shard_capacity_bytes: usize,
    /// Contains the memory of all entries.
    account: Arc<Account>,
}

#[derive(Debug)]
struct Shard<K, V> {
    entries: Map<K, Entry<V>>,
    /// Keys on probation, oldest first.
    probation: VecDeque<K>,
    /// The other keys, in the order in which eviction considers their entries.
    admitted: VecDeque<K>,
    /// The memory of all entries.
    bytes: usize,
    /// The memory of the entries on probation.
    probation_bytes: usize,
    /// Unused entries that eviction found on probation since it admitted one.
    rejected: u32,
}

#[derive(Debug)]
struct Entry<V> {
    value: V,
    /// The value's [`HeapBytes`] when the entry was written last.
    heap_bytes: usize,
    /// Used since eviction last considered the entry.
    is_used: bool,
    is_on_probation: bool,
}

impl<K: Copy + Eq + Hash, V: HeapBytes> ClockCache<K, V> {
    /// Returns a cache of at most `capacity_bytes`, whose memory is added to `account`.
    pub fn new(account: &Arc<Account>, capacity_bytes: u64) -> Self {
        let shard = |_| Mutex::new(Shard::default());
        Self {
            shards: std::array::from_fn(shard),
            shard_capacity_bytes: (capacity_bytes / SHARDS as u64) as usize,
            account: account.clone(),
        }
    }

    /// Returns `read` of the value; None if the cache lacks the key.
    pub fn look_up<A>(&self, key: K, read: impl FnOnce(&V) -> A) -> Option<A> {
        let mut shard = self.shard(key).lock();
        let entry = shard.entries.get_mut(&key)?;
        entry.is_used = true;
        Some(read(&entry.value))
    }

    /// Inserts a value. If the cache has the key, calls `merge` with the existing value instead.
    pub fn insert(&self, key: K, value: V, merge: impl FnOnce(&mut V, V)) {
        let mut shard = self.shard(key).lock();
        let before = shard.bytes;
        shard.insert(key, value, self.shard_capacity_bytes, merge);
        shard.evict(self.shard_capacity_bytes);
        match shard.bytes.checked_sub(before) {
            Some(more) => self.account.add(more as u64),
            None => self.account.subtract((before - shard.bytes) as u64),
        }
    }

    /// Calls `visit` with every entry, those on probation last in each part of the cache. The cache must not be used
    /// within a call.
    pub fn try_for_each<E>(&self, mut visit: impl FnMut(K, &V) -> Result<(), E>) -> Result<(), E> {
        for shard in &self.shards {
            let shard = shard.lock();
            for key in shard.admitted.iter().chain(&shard.probation) {
                if let Some(entry) = shard.entries.get(key) {
                    visit(*key, &entry.value)?;
                }
            }
        }
        Ok(())
    }

    /// Returns the number of entries and their memory in bytes.
    #[cfg(test)]
    fn usage(&self) -> (usize, usize) {
        let each = self.shards.iter().map(|shard| {
            let shard = shard.lock();
            (shard.entries.len(), shard.bytes)
        });
        each.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1))
    }

    fn shard(&self, key: K) -> &Mutex<Shard<K, V>> {
        // The upper bits, because the shard's table uses the lower ones.
        &self.shards[(BuildHasherDefault::<MixHasher>::default().hash_one(key) >> 60) as usize]
    }
}

impl<K, V> ClockCache<K, V> {
    /// The memory of an entry in the table and in the queue. A table that has just grown has 16 slots per 7 entries, and
    /// one control byte per slot; a queue that has just grown has two places per entry.
    pub const ENTRY_BYTES: usize = (size_of::<(K, Entry<V>)>() + 1) * 16 / 7 + 2 * size_of::<K>();
}

impl<K, V> Default for Shard<K, V> {
    fn default() -> Self {
        Self {
            entries: HashMap::default(),
            probation: VecDeque::new(),
            admitted: VecDeque::new(),
            bytes: 0,
            probation_bytes: 0,
            rejected: 0,
        }
    }
}

impl<K: Copy + Eq + Hash, V: HeapBytes> Shard<K, V> {
    fn insert(&mut self, key: K, value: V, capacity_bytes: usize, merge: impl FnOnce(&mut V, V)) {
        if let Some(entry) = self.entries.get_mut(&key) {
            merge(&mut entry.value, value);
            let heap_bytes = entry.value.heap_bytes();
            let before = std::mem::replace(&mut entry.heap_bytes, heap_bytes);
            self.bytes = self.bytes - before + heap_bytes;
            if entry.is_on_probation {
                self.probation_bytes = self.probation_bytes - before + heap_bytes;
            }
            return;
        }
        let heap_bytes = value.heap_bytes();
        let entry_bytes = ClockCache::<K, V>::ENTRY_BYTES + heap_bytes;
        self.bytes += entry_bytes;
        let admitted_bytes = self.bytes - self.probation_bytes;
        let is_on_probation = admitted_bytes > capacity_bytes - capacity_bytes / PROBATION_SHARE;
        if is_on_probation {
            self.probation.push_back(key);
            self.probation_bytes += entry_bytes;
        } else {
            self.admitted.push_back(key);
        }
        self.entries.insert(key, Entry { value, heap_bytes, is_used: false, is_on_probation });
    }

    fn evict(&mut self, capacity_bytes: usize) {
        while self.bytes > capacity_bytes {
            if self.probation_bytes > capacity_bytes / PROBATION_SHARE || self.admitted.is_empty() {
                let Some(oldest) = self.probation.pop_front() else { return };
                self.end_probation(oldest);
            } else if let Some(oldest) = self.admitted.pop_front() {
                match self.entries.get_mut(&oldest) {
                    Some(entry) if entry.is_used => {
                        entry.is_used = false;
                        self.admitted.push_back(oldest);
                    }
                    _ => self.remove(oldest),
                }
            }
        }
    }

    /// Admits or removes an entry that was taken from the queue of entries on probation.
    fn end_probation(&mut self, key: K) {
        let Some(entry) = self.entries.get_mut(&key) else { return };
        self.probation_bytes -= ClockCache::<K, V>::ENTRY_BYTES + entry.heap_bytes;
        entry.is_on_probation = false;
        if !entry.is_used {
            self.rejected += 1;
            if self.rejected < ADMISSION {
                return self.remove(key);
            }
            self.rejected = 0;
        }
        entry.is_used = false;
        self.admitted.push_back(key);
    }

    fn remove(&mut self, key: K) {
        let heap_bytes = self.entries.remove(&key).map_or(0, |entry| entry.heap_bytes);
        self.bytes -= ClockCache::<K, V>::ENTRY_BYTES + heap_bytes;
    }
}

impl<K, V> Drop for ClockCache<K, V> {
    fn drop(&mut self) {
        let bytes: usize = self.shards.iter_mut().map(|shard| shard.get_mut().bytes).sum();
        self.account.subtract(bytes as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl HeapBytes for Vec<u8> {
        fn heap_bytes(&self) -> usize {
            self.capacity()
        }
    }

    const ENTRY: usize = ClockCache::<u64, Vec<u8>>::ENTRY_BYTES + 1000;

    #[test]
    fn memory_is_bounded_and_used_entries_stay() {
        let capacity = 16 * ENTRY * SHARDS;
        let account = Account::new(capacity as u64);
        let cache = ClockCache::new(&account, capacity as u64);
        let insert = |key: u64| cache.insert(key, vec![key as u8; 1000], |_, _| {});
        insert(0);
        for key in 1..10_000 {
            assert_eq!(cache.look_up(0, |value| value[0]), Some(0), "used before each insertion");
            insert(key);
            let (entries, bytes) = cache.usage();
            assert!(bytes <= capacity && bytes == entries * ENTRY && account.used() == bytes as u64);
        }
        assert_eq!(cache.usage().0, 16 * SHARDS, "all shards are full");
        assert!(cache.look_up(1, |_| ()).is_none() && cache.look_up(9999, |_| ()).is_some());
        drop(cache);
        assert_eq!(account.used(), 0);
    }

    /// Looks up `keys` and inserts those that the cache lacks. Returns the share of keys found, in per cent.
    fn scan(cache: &ClockCache<u64, Vec<u8>>, keys: std::ops::Range<u64>) -> usize {
        let count = (keys.end - keys.start) as usize;
        let mut found = 0;
        for key in keys {
            match cache.look_up(key, |_| ()) {
                Some(()) => found += 1,
                None => cache.insert(key, vec![0; 1000], |_, _| {}),
            }
        }
        found * 100 / count
    }

    #[test]
    fn repeated_scans_of_twice_the_capacity_find_a_third_of_the_entries() {
        let entries = 64 * SHARDS;
        let capacity = (entries * ENTRY) as u64;
        let cache = ClockCache::new(&Account::new(capacity), capacity);
        let large = 0..2 * entries as u64;
        scan(&cache, large.clone());
        for round in 0..20 {
            let found = scan(&cache, large.clone());
            assert!((33..=50).contains(&found), "round {round}: {found} %");
        }
    }

    #[test]
    fn a_full_cache_admits_entries_of_other_tables() {
        let entries = 64 * SHARDS;
        let capacity = (entries * ENTRY) as u64;
        let cache = ClockCache::new(&Account::new(capacity), capacity);
        scan(&cache, 0..2 * entries as u64);
        // A table that fits the share on probation is found by its second scan.
        let small = 1 << 32..(1 << 32) + entries as u64 / 16;
        scan(&cache, small.clone());
        assert!(scan(&cache, small) > 90);
        // A larger table replaces the entries of one that is no longer scanned.
        let other = 1 << 40..(1 << 40) + entries as u64 / 2;
        for _ in 0..40 {
            scan(&cache, other.clone());
        }
        assert!(scan(&cache, other) > 90);
    }

    #[test]
    fn merging_adjusts_the_memory_and_may_evict() {
        let capacity = 2 * ENTRY * SHARDS;
        let account = Account::new(capacity as u64);
        let cache = ClockCache::new(&account, capacity as u64);
        cache.insert(7u64, vec![1; 100], |_, _| {});
        cache.insert(7, vec![2; 50], |known: &mut Vec<u8>, new| known.extend(new));
        assert_eq!(cache.look_up(7, |value| value.len()), Some(150));
        let heap_bytes = cache.look_up(7, |value| value.capacity()).unwrap();
        assert_eq!(account.used() as usize, ENTRY - 1000 + heap_bytes);
        cache.insert(7, vec![0; capacity], |known, new| *known = new);
        assert_eq!((cache.usage(), account.used()), ((0, 0), 0), "an entry beyond the capacity is evicted");
    }
}
