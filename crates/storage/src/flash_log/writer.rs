//! Writing records to the ring: those that wait in one write, then one flush.

use super::FlashLog;
use super::format::{self, RecordHeader};
use super::statistics::increase;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Maximum number of bytes of a write of several records.
const BATCH_BYTES_MAX: usize = 4 << 20;
/// When no redo was written for this time, all records are retired: the next start has nothing to apply.
const IDLE: Duration = Duration::from_secs(1);

impl FlashLog {
    /// Starts the thread that writes records.
    pub(super) fn start_writer(self: &Arc<Self>) -> io::Result<()> {
        let log = self.clone();
        let thread = std::thread::Builder::new().name("flash log".into()).spawn(move || {
            while log.wait_for_work() {
                if catch_unwind(AssertUnwindSafe(|| log.write_batch())).is_err() {
                    log.fail(&io::Error::other("the thread of the flash log panicked"));
                }
            }
        })?;
        *self.writer.lock() = Some(thread);
        Ok(())
    }

    /// Returns false when the log has stopped.
    fn wait_for_work(&self) -> bool {
        let mut state = self.state.lock();
        loop {
            if state.is_stopped || state.has_failed {
                return false;
            }
            if !state.queue.is_empty() || state.wants_retirement {
                return true;
            }
            match state.is_idle() {
                true => {
                    let waited = self.work.wait_for(&mut state, IDLE);
                    state.wants_retirement |= waited.timed_out() && state.is_idle();
                }
                false => self.work.wait(&mut state),
            }
        }
    }

    /// Writes the records that wait. Returns false if there are none.
    pub(super) fn write_batch(self: &Arc<Self>) -> bool {
        let (batch, retired, durable) = {
            let mut state = self.state.lock();
            let batch = state.take_batch(BATCH_BYTES_MAX);
            if batch.is_empty() {
                return false;
            }
            state.writing_since = Some(Instant::now());
            let retired = state.released().min(batch[0].sequence - 1);
            (batch, retired, state.durable)
        };
        let mut bytes = format::memory(batch.iter().map(|record| record.writes.record_bytes()).sum());
        let mut at = 0;
        for record in &batch {
            let header = RecordHeader::new(self.generation, (record.sequence, retired, durable), record.ino);
            let end = at + record.writes.record_bytes();
            header.encode(&record.writes, &mut bytes[at..end]);
            at = end;
        }
        let written = self.ring.write_at(&bytes, batch[0].place).and_then(|()| self.ring.sync());
        match written {
            Ok(()) => {
                increase(&self.counters.flash_bytes, bytes.len() as u64);
                let last = batch.last().expect("the batch is not empty").sequence;
                let mut state = self.state.lock();
                state.writing_since = None;
                // After a time limit, syncs may have been told that flash does not have the records.
                if !state.has_failed {
                    state.written(last, retired, &self.counters, self.options.outlier);
                }
            }
            Err(error) => self.fail(&error),
        }
        self.progress.notify_all();
        true
    }
}
