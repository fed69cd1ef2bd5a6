//! Room on the cell disks: data stop growing while the metadata still have some.
//!
//! The measure is up to [`AGE_MAX`] old when there is plenty; the reserve absorbs what was written since.

use crate::disk::Disk;
use crate::error::{Context, Error, ErrorKind, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// With this much more room than a change needs, an older measure is good enough.
const PLENTY: u64 = 256 << 20;
const AGE_MAX: Duration = Duration::from_millis(50);
/// Data leave this much room on every disk, or a sixteenth of a small one, to the metadata: without it nothing could
/// be removed from a full disk.
const METADATA_ROOM: u64 = 16 << 20;
const NEVER: u64 = u64::MAX;

#[derive(Debug)]
pub struct Room {
    /// Bytes that data may still take on the fullest disk, as of `measured_ms` after `started`.
    left: AtomicU64,
    measured_ms: AtomicU64,
    started: Instant,
}

impl Room {
    pub fn new() -> Self {
        Self { left: AtomicU64::new(0), measured_ms: AtomicU64::new(NEVER), started: Instant::now() }
    }

    /// An error when the disks have no room for `length` more bytes of data.
    pub fn check(&self, length: u64, disks: &[Arc<dyn Disk>]) -> Result<()> {
        let now_ms = self.started.elapsed().as_millis() as u64;
        let measured_ms = self.measured_ms.load(Ordering::Relaxed);
        let is_current = measured_ms != NEVER && now_ms.saturating_sub(measured_ms) <= AGE_MAX.as_millis() as u64;
        if is_current && self.left.load(Ordering::Relaxed) > length.saturating_add(PLENTY) {
            return Ok(());
        }
        let mut left = u64::MAX;
        for disk in disks {
            let path = disk.path().display();
            let space = disk.space().context(|| format!("statvfs of cell disk {path}"))?;
            left = left.min(space.available.saturating_sub(METADATA_ROOM.min(space.total / 16)));
        }
        self.left.store(left, Ordering::Relaxed);
        self.measured_ms.store(now_ms, Ordering::Relaxed);
        if left < length {
            let message = format!("no room for {length} more bytes: a cell disk has {left} left for data");
            return Err(Error::new(ErrorKind::NoSpace, message));
        }
        Ok(())
    }
}
