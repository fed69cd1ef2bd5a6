//! The helper threads of all scans together: at most one per processor.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicIsize, Ordering};

/// A counting semaphore of threads; it starts no thread itself.
pub struct HelperThreads {
    /// Less than 0 while threads that have paused continue.
    free: AtomicIsize,
    pub processors: usize,
}

/// The permit of a helper thread that a scan may run; released on drop.
pub struct HelperPermit<'a> {
    threads: &'a HelperThreads,
}

/// Permits that a scan has acquired. Those that are not taken out are released on drop.
pub struct HelperPermits<'a> {
    threads: &'a HelperThreads,
    count: usize,
}

impl Default for HelperThreads {
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Self { free: AtomicIsize::new(processors as isize), processors }
    }
}

impl HelperThreads {
    /// Acquires up to `wanted` permits without waiting.
    pub fn acquire(&self, wanted: usize) -> HelperPermits<'_> {
        let taken = |free: isize| (free.max(0) as usize).min(wanted);
        let take = |free: isize| Some(free - taken(free) as isize);
        let free = self.free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).unwrap_or(0);
        HelperPermits { threads: self, count: taken(free) }
    }

    /// Lends the permit of a helper thread to other scans while the thread may wait for a backend.
    pub fn pause(&self) -> PausedHelper<'_> {
        self.free.fetch_add(1, Ordering::Relaxed);
        PausedHelper { threads: self }
    }
}

/// A helper thread without permit. On drop, the thread takes its permit back without waiting, so there may be more helper
/// threads than processors until another one ends.
pub struct PausedHelper<'a> {
    threads: &'a HelperThreads,
}

impl Drop for PausedHelper<'_> {
    fn drop(&mut self) {
        self.threads.free.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<'a> Iterator for HelperPermits<'a> {
    type Item = HelperPermit<'a>;

    fn next(&mut self) -> Option<HelperPermit<'a>> {
        self.count = self.count.checked_sub(1)?;
        Some(HelperPermit { threads: self.threads })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.count, Some(self.count))
    }
}

impl ExactSizeIterator for HelperPermits<'_> {}

impl Drop for HelperPermit<'_> {
    fn drop(&mut self) {
        self.threads.free.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for HelperPermits<'_> {
    fn drop(&mut self) {
        self.threads.free.fetch_add(self.count as isize, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_are_limited_to_the_processors_and_released_on_drop() {
        let threads = HelperThreads { free: AtomicIsize::new(3), processors: 3 };
        let first = threads.acquire(2);
        let second = threads.acquire(2);
        assert_eq!((first.len(), second.len(), threads.acquire(1).len()), (2, 1, 0));
        drop(first);
        assert_eq!(threads.acquire(5).len(), 2);
        drop(second);
        assert_eq!(threads.acquire(5).len(), 3);
    }

    #[test]
    fn a_permit_is_released_when_its_thread_ends() {
        let threads = HelperThreads { free: AtomicIsize::new(3), processors: 3 };
        let mut permits = threads.acquire(3);
        let first = permits.next();
        assert_eq!((permits.len(), threads.acquire(1).len()), (2, 0));
        drop(first);
        assert_eq!(threads.acquire(5).len(), 1);
        drop(permits);
        assert_eq!(threads.acquire(5).len(), 3);
    }

    #[test]
    fn a_paused_thread_lends_its_permit_and_takes_it_back() {
        let threads = HelperThreads { free: AtomicIsize::new(1), processors: 1 };
        let first = threads.acquire(1);
        let paused = threads.pause();
        let second = threads.acquire(2);
        assert_eq!((first.len(), second.len()), (1, 1));
        drop(paused);
        assert_eq!(threads.acquire(1).len(), 0);
        drop(second);
        assert_eq!(threads.acquire(1).len(), 0, "the first thread continues");
        drop(first);
        assert_eq!(threads.acquire(2).len(), 1);
    }
}
