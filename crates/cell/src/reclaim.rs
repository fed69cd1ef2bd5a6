//! A thread that returns freed memory to the operating system, and drops the commit caches of postmasters that exited.
//!
//! glibc keeps freed memory in its arenas. Without this thread, the daemon's resident size would stay at the sum of the
//! arenas' highest sizes, although the memory budget counts the memory as free.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::state::CellState;

const INTERVAL: Duration = Duration::from_secs(1);
/// Less released memory than this is not worth a pass over the allocator's arenas.
const RELEASED_BYTES_MIN: u64 = 1 << 20;

pub struct Reclaimer {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Reclaimer {
    pub fn start(state: Arc<CellState>) -> io::Result<Self> {
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
fn return_freed_memory() {
    // SAFETY: the function takes no pointers and locks the allocator's arenas itself.
    unsafe { libc::malloc_trim(0) };
}

#[cfg(not(target_env = "gnu"))]
fn return_freed_memory() {}
