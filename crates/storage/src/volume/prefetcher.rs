//! A pool of threads that load regions into the cell's page cache ahead of scans.
//!
//! A load waits in the queue of I/O resource management while the plan holds its database back. Each database and consumer group
//! therefore has separate threads, so that each source has enough requests in the queues of the disks that the plan can choose among
//! them. When as many threads are busy as the first sources may have, other sources get one thread each: the loads of a source start
//! while up to 64 other sources wait.
//!
//! Invariant: the queues are bounded; a request that does not fit is dropped, because a scan loads missing regions
//! itself.

use super::regions::load;
use crate::cache::Cache;
use crate::error::{Context, Result};
use crate::file::FileData;
use crate::request::{self, DatabaseId, GroupId, Origin};
use cellar_format::units::RegionIndex;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

/// Prefetch requests of one source beyond this number are dropped.
const QUEUE_MAX: usize = 4096;

/// This many sources at most have all their threads at the same time.
const FULL_SOURCES_MAX: usize = 8;

/// Threads beyond those of these sources. Each works for a source that no other thread works for.
const SINGLE_THREADS_MAX: usize = 64;

/// A region to load, for the session with this origin.
type Job = (Arc<FileData>, RegionIndex, Origin);

/// The requests that a plan of I/O resource management treats alike.
type SourceId = (DatabaseId, GroupId);

#[derive(Debug)]
pub struct Prefetcher {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    cache: Arc<Cache>,
    queue: Mutex<Queue<Job>>,
    wake: Condvar,
}

impl Prefetcher {
    /// Starts a pool with `threads` threads for each source.
    pub fn start(cache: Arc<Cache>, threads: usize) -> Result<Self> {
        let (queue, wake) = (Mutex::new(Queue::new(threads)), Condvar::new());
        let shared = Arc::new(Shared { cache, queue, wake });
        let handles = (0..threads).map(|_| spawn(&shared)).collect::<Result<Vec<_>>>()?;
        shared.queue.lock().threads = handles.len();
        Ok(Self { shared, threads: Mutex::new(handles) })
    }

    /// Queues regions of files.
    pub fn push(&self, jobs: impl Iterator<Item = (Arc<FileData>, RegionIndex)>) {
        let (origin, mut queue) = (request::current(), self.shared.queue.lock());
        for (file, region) in jobs {
            if !queue.push((origin.database, origin.group), (file, region, origin)) {
                return;
            }
            if queue.lacks_thread() {
                match spawn(&self.shared) {
                    Ok(thread) => {
                        self.threads.lock().push(thread);
                        queue.threads += 1;
                    }
                    // The threads that exist do the work.
                    Err(error) => log::debug!("prefetch: {error}"),
                }
            }
            self.shared.wake.notify_one();
        }
    }

    pub fn stop(&self) {
        self.shared.queue.lock().stop();
        self.shared.wake.notify_all();
        for thread in self.threads.lock().drain(..) {
            if thread.join().is_err() {
                log::error!("a prefetch thread panicked");
            }
        }
    }
}

fn spawn(shared: &Arc<Shared>) -> Result<JoinHandle<()>> {
    let shared = shared.clone();
    let builder = std::thread::Builder::new().name("prefetch".into());
    builder.spawn(move || work(&shared)).context(|| "could not start a prefetch thread".into())
}

fn work(shared: &Shared) {
    let mut queue = shared.queue.lock();
    while !queue.is_stopped {
        let Some((source, (file, region, origin))) = queue.take() else {
            shared.wake.wait(&mut queue);
            continue;
        };
        drop(queue);
        let load = || shared.cache.prefetch(&file.cached, region, |buffer| load(&file, region, buffer));
        let prefetch = || request::within(origin, load);
        // The scan gets the error, or repeats the panic, when it reads the region.
        match catch_unwind(AssertUnwindSafe(prefetch)) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => log::debug!("prefetch: {error}"),
            Err(_) => log::error!("the prefetch of region {region} of inode {} panicked", file.ino),
        }
        queue = shared.queue.lock();
        queue.done(source);
    }
}

/// The jobs of all sources, and how many threads work for each.
#[derive(Debug)]
struct Queue<J> {
    /// Sources with jobs that wait or are being done. The one that was served last is at the end.
    sources: Vec<Source<J>>,
    /// Threads that may work for one source at the same time.
    threads_per_source: usize,
    threads: usize,
    is_stopped: bool,
}

#[derive(Debug)]
struct Source<J> {
    id: SourceId,
    jobs: VecDeque<J>,
    busy: usize,
}

impl<J> Queue<J> {
    fn new(threads_per_source: usize) -> Self {
        Self { sources: Vec::new(), threads_per_source, threads: 0, is_stopped: false }
    }

    /// Adds a job; returns false if there is no space for more.
    fn push(&mut self, id: SourceId, job: J) -> bool {
        if self.is_stopped || self.threads_per_source == 0 {
            return false;
        }
        let at = self.sources.iter().position(|source| source.id == id).unwrap_or_else(|| {
            self.sources.push(Source { id, jobs: VecDeque::new(), busy: 0 });
            self.sources.len() - 1
        });
        let jobs = &mut self.sources[at].jobs;
        let has_space = jobs.len() < QUEUE_MAX;
        if has_space {
            jobs.push_back(job);
        }
        has_space
    }

    /// Returns whether another thread would find a job, now or when the threads that were woken have found theirs.
    fn lacks_thread(&self) -> bool {
        let wanted = |source: &Source<J>| self.threads_per_source.min(source.busy + source.jobs.len());
        let wanted: usize = self.sources.iter().map(wanted).sum();
        let shared = self.shared_threads_max();
        if self.threads < shared {
            return self.threads < wanted;
        }
        let idle = self.threads.saturating_sub(self.busy());
        let unserved = self.sources.iter().filter(|source| source.busy == 0 && !source.jobs.is_empty()).count();
        idle < unserved && self.threads < shared + SINGLE_THREADS_MAX
    }

    /// Returns how many threads may be busy until sources get one thread each.
    fn shared_threads_max(&self) -> usize {
        FULL_SOURCES_MAX * self.threads_per_source
    }

    fn busy(&self) -> usize {
        self.sources.iter().map(|source| source.busy).sum()
    }

    /// Returns a job of the source with the fewest threads, of those with the same number the one that was not served longest. Call
    /// [`Self::done`] after the job.
    fn take(&mut self) -> Option<(SourceId, J)> {
        let busy_max = if self.busy() < self.shared_threads_max() { self.threads_per_source } else { 1 };
        let may_work = |source: &Source<J>| !source.jobs.is_empty() && source.busy < busy_max;
        let candidates = self.sources.iter().enumerate().filter(|(_, source)| may_work(source));
        let (at, _) = candidates.min_by_key(|(_, source)| source.busy)?;
        let mut source = self.sources.remove(at);
        let job = source.jobs.pop_front()?;
        source.busy += 1;
        let id = source.id;
        self.sources.push(source);
        Some((id, job))
    }

    fn done(&mut self, id: SourceId) {
        if let Some(at) = self.sources.iter().position(|source| source.id == id) {
            let source = &mut self.sources[at];
            source.busy -= 1;
            if source.busy == 0 && source.jobs.is_empty() {
                self.sources.remove(at);
            }
        }
    }

    fn stop(&mut self) {
        self.is_stopped = true;
        self.sources.iter_mut().for_each(|source| source.jobs.clear());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: SourceId = (DatabaseId(1), GroupId(0));
    const B: SourceId = (DatabaseId(2), GroupId(0));

    fn queue(threads: usize) -> Queue<u32> {
        Queue { threads, ..Queue::new(2) }
    }

    #[test]
    fn a_source_whose_loads_wait_takes_no_thread_of_another_one() {
        let mut queue = queue(2);
        assert!((0..5).all(|job| queue.push(A, job)));
        assert!(!queue.lacks_thread(), "two threads are enough for one source");
        assert_eq!((queue.take(), queue.take()), (Some((A, 0)), Some((A, 1))));
        assert_eq!(queue.take(), None, "a source has two threads");
        assert!(queue.push(B, 10) && queue.lacks_thread(), "the threads of A may wait for long");
        queue.threads += 1;
        assert_eq!(queue.take(), Some((B, 10)));
        assert!(!queue.lacks_thread());
        queue.done(A);
        assert_eq!(queue.take(), Some((A, 2)));
    }

    #[test]
    fn sources_take_turns_and_disappear_when_their_work_is_done() {
        let mut queue = queue(4);
        assert!((0..3).all(|job| queue.push(A, job)) && (10..13).all(|job| queue.push(B, job)));
        let taken: Vec<_> = std::iter::from_fn(|| queue.take()).collect();
        assert_eq!(taken, [(A, 0), (B, 10), (A, 1), (B, 11)]);
        queue.done(B);
        queue.done(B);
        assert_eq!(queue.take(), Some((B, 12)));
        queue.done(B);
        assert_eq!(queue.sources.len(), 1);
    }

    #[test]
    fn each_source_has_a_thread_while_many_others_wait() {
        let mut queue = queue(0);
        let source = |database| (DatabaseId(database), GroupId(0));
        let work = |queue: &mut Queue<u32>, database: u32| {
            let mut taken = Vec::new();
            for job in 0..5 {
                assert!(queue.push(source(database), job));
                queue.threads += usize::from(queue.lacks_thread());
                if queue.busy() < queue.threads {
                    taken.extend(queue.take());
                }
            }
            taken.into_iter().map(|(id, job)| (id.0.0, job)).collect::<Vec<_>>()
        };
        let (full, single) = (FULL_SOURCES_MAX as u32, SINGLE_THREADS_MAX as u32);
        for database in 0..full {
            assert_eq!(work(&mut queue, database), [(database, 0), (database, 1)]);
        }
        for database in full..full + single {
            assert_eq!(work(&mut queue, database), [(database, 0)], "one thread for each further source");
        }
        assert_eq!(work(&mut queue, full + single), []);
        queue.done(source(0));
        assert_eq!(queue.take(), Some((source(full + single), 0)), "a source without a thread is first");
        queue.done(source(full));
        assert_eq!(queue.take(), Some((source(full), 1)));
        queue.done(source(1));
        assert_eq!(queue.take(), None, "all sources have a thread");
    }

    #[test]
    fn threads_and_jobs_are_bounded() {
        let mut queue = queue(2 * FULL_SOURCES_MAX + SINGLE_THREADS_MAX);
        for database in 0..100 {
            assert!((0..3).all(|job| queue.push((DatabaseId(database), GroupId(0)), job)));
        }
        assert!(!queue.lacks_thread());
        assert_eq!((0..).take_while(|job| queue.push(A, *job)).count(), QUEUE_MAX - 3);
        queue.stop();
        assert!(!queue.push(A, 0) && queue.take().is_none());
    }
}
