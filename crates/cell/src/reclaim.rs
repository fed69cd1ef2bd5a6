//! A thread that returns freed memory to the operating system, and drops the commit caches of postmasters that exited.
//!
//! glibc keeps freed memory in its arenas. Without this thread, the daemon's resident size would stay at the sum of the
//! arenas' highest sizes, although the memory budget counts the memory as free. The thread cannot return the free end of an
//! arena: glibc returns the end in a call of free() for that arena, if the end is longer than a threshold. By default, glibc
//! raises this threshold to twice the size of the largest mapping that was freed, up to 64 MiB for each arena, with 8 arenas for
//! each CPU. The daemon therefore sets the thresholds to fixed values.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::state::CellState;

const INTERVAL: Duration = Duration::from_secs(1);
/// Less released memory than this is not worth a pass over the allocator's arenas.
const RELEASED_BYTES_MIN: u64 = 1 << 20;
/// Free memory at the end of an arena that glibc keeps.
#[cfg(target_env = "gnu")]
const ARENA_END_BYTES_MAX: libc::c_int = 2 << 20;
/// Allocations of at least this size are mappings, which glibc returns when they are freed.
#[cfg(target_env = "gnu")]
const MAPPED_BYTES_MIN: libc::c_int = 4 << 20;

pub struct Reclaimer {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Reclaimer {
    pub fn start(state: Arc<CellState>) -> io::Result<Self> {
        fix_thresholds();
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = stop.clone();
        let thread =
            std::thread::Builder::new().name("reclaim".to_owned()).spawn(move || reclaim(&state, &stopping))?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Reclaimer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

fn reclaim(state: &CellState, stop: &AtomicBool) {
    let mut returned = 0;
    loop {
        std::thread::park_timeout(INTERVAL);
        if stop.load(Ordering::Acquire) {
            return;
        }
        state.commit_cache.drop_unused(Instant::now());
        let released = state.memory.released();
        if released - returned >= RELEASED_BYTES_MIN {
            returned = released;
            return_freed_memory();
        }
    }
}

#[cfg(target_env = "gnu")]
fn fix_thresholds() {
    for (parameter, value) in
        [(libc::M_TRIM_THRESHOLD, ARENA_END_BYTES_MAX), (libc::M_MMAP_THRESHOLD, MAPPED_BYTES_MIN)]
    {
        // SAFETY: the function takes no pointers and locks the allocator's arenas itself.
        if unsafe { libc::mallopt(parameter, value) } == 0 {
            log::warn!("could not set parameter {parameter} of the memory allocator to {value}");
        }
    }
}

#[cfg(not(target_env = "gnu"))]
fn fix_thresholds() {}

#[cfg(target_env = "gnu")]
fn return_freed_memory() {
    // SAFETY: the function takes no pointers and locks the allocator's arenas itself.
    unsafe { libc::malloc_trim(0) };
}

#[cfg(not(target_env = "gnu"))]
fn return_freed_memory() {}
