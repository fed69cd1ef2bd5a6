//! The keys of pages that left the small queue without being used: a page that comes back soon goes to the main queue.
//!
//! A hash table with a fixed number of entries stores a fingerprint of each key and when it was inserted. An entry counts
//! until as many keys as the main queue has pages were inserted after it. Collisions only make a page go to the wrong queue.

use super::format::Object;
use std::hash::{DefaultHasher, Hash, Hasher};

const WAYS: usize = 4;

#[derive(Debug)]
pub struct Ghost {
    /// Fingerprint and time of each entry; a time of 0 is an empty entry.
    buckets: Vec<[(u32, u32); WAYS]>,
    /// Number of the last insertion, from 1.
    time: u32,
    capacity: u32,
}

impl Ghost {
    /// Remembers about `capacity` keys.
    pub fn new(capacity: usize) -> Self {
        let buckets = capacity.div_ceil(WAYS / 2).max(1);
        Self { buckets: vec![[(0, 0); WAYS]; buckets], time: 0, capacity: capacity as u32 }
    }

    fn find(&self, object: Object, page: u32) -> (usize, u32) {
        let mut hasher = DefaultHasher::new();
        (object, page).hash(&mut hasher);
        let hash = hasher.finish();
        ((hash >> 32) as usize % self.buckets.len(), hash as u32)
    }

    pub fn insert(&mut self, object: Object, page: u32) {
        let (bucket, fingerprint) = self.find(object, page);
        self.time = self.time.checked_add(1).unwrap_or_else(|| {
            self.buckets.fill([(0, 0); WAYS]);
            1
        });
        let oldest = self.buckets[bucket].iter_mut().min_by_key(|(_, time)| *time).expect("a bucket has entries");
        *oldest = (fingerprint, self.time);
    }

    /// Returns whether a key is remembered, and forgets it.
    pub fn take(&mut self, object: Object, page: u32) -> bool {
        let (bucket, fingerprint) = self.find(object, page);
        let counts =
            |entry: &&mut (u32, u32)| entry.1 != 0 && entry.0 == fingerprint && self.time - entry.1 < self.capacity;
        let found = self.buckets[bucket].iter_mut().find(counts);
        found.map(|entry| *entry = (0, 0)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Stream;

    #[test]
    fn keys_are_remembered_until_as_many_others_came() {
        let object = Object { stripe: 0, ino: 20, stream: Stream::Data };
        let mut ghost = Ghost::new(100);
        (0..1000).for_each(|page| ghost.insert(object, page));
        let remembered = (900..1000).filter(|page| ghost.take(object, *page)).count();
        assert!(remembered >= 90, "{remembered}");
        assert!((900..1000).all(|page| !ghost.take(object, page)), "a taken key is forgotten");
        let old = (0..900).filter(|page| ghost.take(object, *page)).count();
        assert_eq!(old, 0);
    }
}
