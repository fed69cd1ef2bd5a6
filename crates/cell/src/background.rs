//! A thread that runs until its owner is dropped.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long the owner waits for the end of the thread, which a disk that hangs may prevent.
const END_TIMEOUT: Duration = Duration::from_secs(10);

pub struct Background {
    name: &'static str,
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// Disconnected when the thread ends.
    ended: Receiver<()>,
}

/// Tells the thread to end.
pub struct Stopping(Arc<AtomicBool>);

impl Stopping {
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

impl Background {
    /// Runs `work`, which returns soon after the flag is set and the thread is unparked.
    pub fn start(name: &'static str, work: impl FnOnce(&Stopping) + Send + 'static) -> io::Result<Self> {
        let stopping = Arc::new(AtomicBool::new(false));
        let flag = Stopping(stopping.clone());
        let (running, ended) = channel();
        let run = move || {
            work(&flag);
            drop(running);
        };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run)?;
        Ok(Self { name, stopping, thread: Some(thread), ended })
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            if self.ended.recv_timeout(END_TIMEOUT) == Err(RecvTimeoutError::Timeout) {
                log::warn!("the thread {} does not end, because a disk does not answer", self.name);
                return;
            }
            let _ = thread.join();
        }
    }
}
