//! Requests of a queue that wait on worker threads, and the way of their replies back to the queue's thread.
//!
//! A waiting request keeps its ring entry. The worker borrows the entry's payload: the vector moves to the worker and
//! back, but its heap memory, whose address the kernel knows, stays in place.

use super::workers::Workers;
use parking_lot::Mutex;
use rustix::event::EventfdFlags;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// A request whose reply is ready.
pub struct Replied {
    /// The ring entry.
    pub index: usize,
    /// The id of the request.
    pub unique: u64,
    pub payload: Vec<u8>,
    /// Bytes of the payload that are the reply, or an errno.
    pub result: Result<usize, i32>,
}

pub struct WaitingRequests {
    workers: Workers,
    replies: Arc<Replies>,
}

struct Replies {
    ready: Mutex<Vec<Replied>>,
    /// An eventfd that is readable while replies are ready.
    event: OwnedFd,
}

impl WaitingRequests {
    /// `cpu` is the queue's CPU; `waiting_max` is the maximum number of requests that wait at the same time.
    pub fn new(cpu: u16, waiting_max: usize) -> io::Result<Self> {
        let event = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let replies = Arc::new(Replies { ready: Mutex::default(), event });
        Ok(Self { workers: Workers::new(waiting_max, Some(cpu)), replies })
    }

    /// Returns the descriptor that becomes readable when replies are ready.
    pub fn event(&self) -> RawFd {
        self.replies.event.as_raw_fd()
    }

    /// Runs `request` on a worker thread. A panic is the error EIO.
    pub fn run(
        &self,
        (index, unique, mut payload): (usize, u64, Vec<u8>),
        request: impl FnOnce(&mut Vec<u8>) -> Result<usize, i32> + Send + 'static,
    ) {
        let replies = self.replies.clone();
        self.workers.run(move || {
            let result = catch_unwind(AssertUnwindSafe(|| request(&mut payload))).unwrap_or_else(|_| {
                log::error!("a request panicked");
                Err(libc::EIO)
            });
            replies.ready.lock().push(Replied { index, unique, payload, result });
            if let Err(error) = rustix::io::write(&replies.event, &1_u64.to_ne_bytes()) {
                log::error!("could not wake a FUSE ring queue: {error}");
            }
        });
    }

    /// Returns the replies that are ready.
    pub fn take_ready(&self) -> Vec<Replied> {
        // The event is reset before the replies are taken, so no reply is left without an event.
        let _already_reset = rustix::io::read(&self.replies.event, &mut [0; 8]);
        std::mem::take(&mut *self.replies.ready.lock())
    }
}
