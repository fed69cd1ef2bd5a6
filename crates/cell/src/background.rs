//! A thread that runs until its owner is dropped.

use parking_lot::{Condvar, Mutex};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long the owner waits for the end of the thread, which a disk that hangs may prevent.
const END_TIMEOUT: Duration = Duration::from_secs(10);
/// Scheduling priority of threads that encode units for the cell itself.
const NICENESS: i32 = 10;

/// Lets other threads of the machine go before the calling thread.
pub fn lower_priority() {
    if let Err(error) = rustix::process::setpriority_process(None, NICENESS) {
        log::debug!("could not lower the priority of a background thread: {error}");
    }
}

pub struct Background {
    name: &'static str,
    stopping: Stopping,
    thread: Option<JoinHandle<()>>,
    /// Disconnected when the thread ends.
    ended: Receiver<()>,
}

/// Tells the thread to end.
#[derive(Clone, Default)]
pub struct Stopping(Arc<(Mutex<bool>, Condvar)>);

impl Stopping {
    pub fn is_set(&self) -> bool {
        *self.0.0.lock()
    }

    /// Waits for some time, or until the thread is to end.
    pub fn pause(&self, time: Duration) {
        let mut is_set = self.0.0.lock();
        self.0.1.wait_while_for(&mut is_set, |is_set| !*is_set, time);
    }

    pub fn set(&self) {
        *self.0.0.lock() = true;
        self.0.1.notify_all();
    }
}

impl Background {
    /// Runs `work`, which returns soon after the flag is set.
    pub fn start(name: &'static str, work: impl FnOnce(&Stopping) + Send + 'static) -> io::Result<Self> {
        let stopping = Stopping::default();
        let flag = stopping.clone();
        let (running, ended) = channel();
        let run = move || {
            work(&flag);
            drop(running);
        };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run)?;
        Ok(Self { name, stopping, thread: Some(thread), ended })
    }

    /// Tells the thread to end, without waiting for it.
    pub fn begin_to_stop(&self) {
        self.stopping.set();
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stopping.set();
        if let Some(thread) = self.thread.take() {
            if self.ended.recv_timeout(END_TIMEOUT) == Err(RecvTimeoutError::Timeout) {
                log::warn!(
                    "the thread {} does not end, because a disk, or a program that it runs, does not answer",
                    self.name
                );
                return;
            }
            let _ = thread.join();
        }
    }
}
