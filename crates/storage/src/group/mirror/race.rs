//! Reads that go to a second disk when the first one is slow: the first answer wins.
//!
//! A disk that answers late stays online. A disk whose operation has no result after the time limit goes offline
//! ([`Mirror::fail_hanging_disks`]), also if another disk has answered the read.

use super::mirror_disk::MirroredFile;
use super::{DiskMode, Mirror, is_refusal};
use crate::disk::{StartedRead, no_wait, pool::timed_out};
use crate::request::Expedited;
use std::io;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

/// How long a group waits for its disks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// A read that takes longer goes to another disk, too.
    pub read_latency_cap: Option<Duration>,
    /// A disk with an operation that takes longer goes offline.
    pub timeout: Duration,
}

impl Patience {
    pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);
}

impl MirroredFile {
    /// Reads a range. Returns None if the group has no cap for reads, or the thread must not wait.
    pub(super) fn race(&self, buffer: &mut [u8], offset: u64, direct: bool) -> Option<io::Result<usize>> {
        let patience = self.set.mirror.patience?;
        let cap = patience.read_latency_cap.filter(|_| !no_wait::is_on())?;
        // Bytes in memory need no race.
        let in_memory = no_wait::without_waiting(|| {
            let file = self.existing(self.set.online().next().ok_or(io::ErrorKind::NotFound)?)?;
            if direct { file.read_direct(buffer, offset) } else { file.read_at(buffer, offset) }
        });
        match in_memory {
            Some(Ok(count)) => Some(Ok(count)),
            _ => Some(self.race_for(buffer, offset, direct, (cap, patience.timeout))),
        }
    }

    fn race_for(
        &self,
        buffer: &mut [u8],
        offset: u64,
        direct: bool,
        (cap, timeout): (Duration, Duration),
    ) -> io::Result<usize> {
        let disks: Vec<u16> = self.set.online().collect();
        let (sender, receiver) = sync_channel(disks.len().max(1));
        let (mut waiting, mut failed, mut is_late) = (0, Vec::new(), false);
        let mut left = disks.iter().copied();
        // From the start of the first read, which may have waited in the queue of its disk.
        let mut deadline = None;
        loop {
            if let Some(disk) = left.next() {
                match self.existing(disk) {
                    Ok(file) => {
                        let sender = sender.clone();
                        let done = Box::new(move |result| {
                            // The reader may have its bytes from another disk.
                            let _ = sender.send((disk, result));
                        });
                        // Another disk helps only if it reads at once.
                        let _expedited = deadline.map(|_| Expedited::begin());
                        file.start_read(StartedRead { length: buffer.len(), offset, direct, done });
                        deadline.get_or_insert_with(|| Instant::now() + timeout);
                        waiting += 1;
                    }
                    Err(error) => {
                        failed.push((disk, error));
                        continue;
                    }
                }
            } else if waiting == 0 {
                break;
            }
            let is_last = left.len() == 0;
            let until_deadline = deadline.map_or(timeout, |at| at.saturating_duration_since(Instant::now()));
            match receiver.recv_timeout(if is_last { until_deadline } else { cap.min(until_deadline) }) {
                Ok((_, Ok((bytes, count)))) => {
                    buffer[..count].copy_from_slice(&bytes[..count]);
                    let mirror = &self.set.mirror;
                    Mirror::count(&mirror.events.reads_past_cap, u64::from(is_late));
                    Mirror::count(&mirror.events.reads_from_other_copy, failed.len() as u64);
                    // The read has its bytes; a group that cannot lose a disk keeps it.
                    failed.iter().for_each(|(failed, error)| drop(self.set.fail(*failed, error)));
                    return Ok(count);
                }
                Ok((_, Err(error))) if is_refusal(&error) => return Err(error),
                Ok((disk, Err(error))) => {
                    waiting -= 1;
                    failed.push((disk, error));
                }
                Err(RecvTimeoutError::Timeout) if is_last => {
                    self.set.mirror.fail_hanging_disks();
                    return Err(timed_out(timeout));
                }
                Err(_) => is_late = true,
            }
        }
        Err(failed.pop().map_or_else(|| io::Error::from_raw_os_error(libc::ENODEV), |(_, error)| error))
    }
}

impl Mirror {
    /// Takes disks offline that do not answer.
    pub fn fail_hanging_disks(&self) {
        let Some(patience) = self.patience else { return };
        for (disk, entry) in self.disks.all().iter().enumerate() {
            let hangs = entry.pool.oldest().is_some_and(|age| age >= patience.timeout);
            if hangs && self.member(disk).mode() == DiskMode::Online {
                // Logged; a group that cannot lose the disk keeps it.
                let _ = self.fail_disk(disk, &timed_out(patience.timeout));
            }
        }
    }
}
