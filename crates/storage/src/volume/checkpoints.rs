//! Checkpoints of redo logs in the background, so that the write that makes a log long does not wait for a sync.
//!
//! Invariants: a file is in the queue at most once; a failed checkpoint is not repeated here (see
//! `Units::take_checkpoint_request`). A writer that finds the log full runs the checkpoint itself, so writers never
//! depend on these threads, and a slow file delays only its own writers.

use super::Volume;
use crate::error::{Context, Result};
use crate::file::FileData;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

/// Checkpoints that run at the same time.
const THREADS: usize = 2;

/// Files whose redo logs need a checkpoint.
#[derive(Debug, Default)]
pub struct CheckpointRequests {
    queue: Mutex<Queue>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    files: VecDeque<Arc<FileData>>,
    stopped: bool,
}

impl CheckpointRequests {
    pub fn push(&self, file: Arc<FileData>) {
        let mut queue = self.queue.lock();
        if !queue.stopped {
            queue.files.push_back(file);
            self.wake.notify_one();
        }
    }

    /// Returns the number of files that wait for a thread.
    pub fn len(&self) -> usize {
        self.queue.lock().files.len()
    }

    /// Returns the next file; None after [`Self::stop`].
    fn next(&self) -> Option<Arc<FileData>> {
        let mut queue = self.queue.lock();
        loop {
            if queue.stopped {
                return None;
            }
            match queue.files.pop_front() {
                Some(file) => return Some(file),
                None => self.wake.wait(&mut queue),
            }
        }
    }

    /// Makes the threads exit after the checkpoints that they run.
    pub fn stop(&self) {
        let mut queue = self.queue.lock();
        queue.stopped = true;
        queue.files.clear();
        self.wake.notify_all();
    }
}

/// Starts the threads that serve a volume's requests.
pub fn start(volume: &Arc<Volume>) -> Result<Vec<JoinHandle<()>>> {
    let spawn = |_| {
        let (requests, volume) = (volume.checkpoint_requests.clone(), Arc::downgrade(volume));
        let builder = std::thread::Builder::new().name("checkpoint".into());
        builder.spawn(move || serve(&requests, &volume)).context(|| "could not start a checkpoint thread".into())
    };
    (0..THREADS).map(spawn).collect()
}

fn serve(requests: &CheckpointRequests, volume: &Weak<Volume>) {
    while let Some(file) = requests.next() {
        let Some(volume) = volume.upgrade() else { return };
        // After a panic the log keeps its records, and the next sync of the file runs the checkpoint again.
        match catch_unwind(AssertUnwindSafe(|| volume.sync_internally(&file))) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => log::error!("{error}; the next sync of the file returns the error"),
            Err(_) => log::error!("the checkpoint of the redo log of inode {} panicked", file.ino),
        }
    }
}
