//! The helper threads of all scans together: at most one per processor.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A counting semaphore of threads; it starts no thread itself.
pub struct HelperThreads {
    free: AtomicUsize,
    pub processors: usize,
}

/// Helper threads that a scan may run; released on drop.
pub struct HelperPermits<'a> {
    threads: &'a HelperThreads,
    pub count: usize,
}

impl Default for HelperThreads {
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Self { free: AtomicUsize::new(processors), processors }
    }
}

impl HelperThreads {
    /// Acquires up to `wanted` permits without waiting.
    pub fn acquire(&self, wanted: usize) -> HelperPermits<'_> {
        let take = |free: usize| Some(free - free.min(wanted));
        let count = self.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).unwrap_or(0).min(wanted);
        HelperPermits { threads: self, count }
    }
}

impl Drop for HelperPermits<'_> {
    fn drop(&mut self) {
        self.threads.free.fetch_add(self.count, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_are_limited_to_the_processors_and_released_on_drop() {
        let threads = HelperThreads { free: AtomicUsize::new(3), processors: 3 };
        let first = threads.acquire(2);
        let second = threads.acquire(2);
        assert_eq!((first.count, second.count, threads.acquire(1).count), (2, 1, 0));
        drop(first);
        assert_eq!(threads.acquire(5).count, 2);
        drop(second);
        assert_eq!(threads.acquire(5).count, 3);
    }
}
