//! A pool of threads that load regions into the cell's page cache ahead of scans.
//!
//! Invariant: the queue is bounded; a request that does not fit is dropped, because a scan loads missing regions
//! itself.

use super::regions::load;
use crate::cache::Cache;
use crate::error::{Context, Result};
use crate::file::FileData;
use crate::request::{self, Origin};
use cellar_format::units::RegionIndex;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

/// Prefetch requests beyond this number are dropped.
const QUEUE_MAX: usize = 4096;

/// A region to load, for the session with this origin.
type Job = (Arc<FileData>, RegionIndex, Origin);

#[derive(Debug)]
pub struct Prefetcher {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    jobs: VecDeque<Job>,
    stopped: bool,
}

impl Prefetcher {
    pub fn start(cache: Arc<Cache>, threads: usize) -> Result<Self> {
        let shared = Arc::<Shared>::default();
        let spawn = |_| {
            let (shared, cache) = (shared.clone(), cache.clone());
            let builder = std::thread::Builder::new().name("prefetch".into());
            builder.spawn(move || work(&shared, &cache)).context(|| "could not start a prefetch thread".into())
        };
        let threads = (0..threads).map(spawn).collect::<Result<Vec<_>>>()?;
        Ok(Self { shared, threads: Mutex::new(threads) })
    }

    /// Queues regions of files.
    pub fn push(&self, jobs: impl Iterator<Item = (Arc<FileData>, RegionIndex)>) {
        let (origin, mut queue) = (request::current(), self.shared.queue.lock());
        for (file, region) in jobs {
            if queue.jobs.len() >= QUEUE_MAX || queue.stopped {
                return;
            }
            queue.jobs.push_back((file, region, origin));
            self.shared.wake.notify_one();
        }
    }

    pub fn stop(&self) {
        {
            let mut queue = self.shared.queue.lock();
            queue.stopped = true;
            queue.jobs.clear();
        }
        self.shared.wake.notify_all();
        for thread in self.threads.lock().drain(..) {
            if thread.join().is_err() {
                log::error!("a prefetch thread panicked");
            }
        }
    }
}

fn work(shared: &Shared, cache: &Cache) {
    loop {
        let (file, region, origin) = {
            let mut queue = shared.queue.lock();
            loop {
                if queue.stopped {
                    return;
                }
                match queue.jobs.pop_front() {
                    Some(job) => break job,
                    None => shared.wake.wait(&mut queue),
                }
            }
        };
        let load = || cache.prefetch(&file.cached, region, |buffer| load(&file, region, buffer));
        let prefetch = || request::within(origin, load);
        // The scan gets the error, or repeats the panic, when it reads the region.
        match catch_unwind(AssertUnwindSafe(prefetch)) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => log::debug!("prefetch: {error}"),
            Err(_) => log::error!("the prefetch of region {region} of inode {} panicked", file.ino),
        }
    }
}
