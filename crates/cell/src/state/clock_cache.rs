//! A cache with bounded memory. Eviction is CLOCK (second chance) per shard.
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
    /// Keys in the order in which eviction considers their entries.
    queue: VecDeque<K>,
    /// The memory of all entries.
    bytes: usize,
}

#[derive(Debug)]
struct Entry<V> {
    value: V,
    /// The value's [`HeapBytes`] when the entry was written last.
    heap_bytes: usize,
    /// Used since eviction last considered the entry.
    is_used: bool,
}

impl<K: Copy + Eq + Hash, V: HeapBytes> ClockCache<K, V> {
    /// Returns a cache of at most `capacity_bytes`, whose memory is added to `account`.
    pub fn new(account: &Arc<Account>, capacity_bytes: u64) -> Self {
        let shard = |_| Mutex::new(Shard { entries: HashMap::default(), queue: VecDeque::new(), bytes: 0 });
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
        shard.insert(key, value, merge);
        shard.evict(self.shard_capacity_bytes);
        match shard.bytes.checked_sub(before) {
            Some(more) => self.account.add(more as u64),
            None => self.account.subtract((before - shard.bytes) as u64),
        }
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

impl<K: Copy + Eq + Hash, V: HeapBytes> Shard<K, V> {
    fn insert(&mut self, key: K, value: V, merge: impl FnOnce(&mut V, V)) {
        if let Some(entry) = self.entries.get_mut(&key) {
            merge(&mut entry.value, value);
            let heap_bytes = entry.value.heap_bytes();
            self.bytes = self.bytes - std::mem::replace(&mut entry.heap_bytes, heap_bytes) + heap_bytes;
            return;
        }
        let heap_bytes = value.heap_bytes();
        self.entries.insert(key, Entry { value, heap_bytes, is_used: false });
        self.queue.push_back(key);
        self.bytes += ClockCache::<K, V>::ENTRY_BYTES + heap_bytes;
    }

    fn evict(&mut self, capacity_bytes: usize) {
        while self.bytes > capacity_bytes {
            let Some(oldest) = self.queue.pop_front() else { return };
            match self.entries.get_mut(&oldest) {
                Some(entry) if entry.is_used => {
                    entry.is_used = false;
                    self.queue.push_back(oldest);
                }
                _ => {
                    let heap_bytes = self.entries.remove(&oldest).map_or(0, |entry| entry.heap_bytes);
                    self.bytes -= ClockCache::<K, V>::ENTRY_BYTES + heap_bytes;
                }
            }
        }
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
        let capacity = 3 * ENTRY * SHARDS;
        let account = Account::new(capacity as u64);
        let cache = ClockCache::new(&account, capacity as u64);
        let insert = |key: u64| cache.insert(key, vec![key as u8; 1000], |_, _| {});
        insert(0);
        for key in 1..1000 {
            assert_eq!(cache.look_up(0, |value| value[0]), Some(0), "used before each insertion");
            insert(key);
            let (entries, bytes) = cache.usage();
            assert!(bytes <= capacity && bytes == entries * ENTRY && account.used() == bytes as u64);
        }
        assert_eq!(cache.usage().0, 3 * SHARDS, "all shards are full");
        assert!(cache.look_up(1, |_| ()).is_none() && cache.look_up(999, |_| ()).is_some());
        drop(cache);
        assert_eq!(account.used(), 0);
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
