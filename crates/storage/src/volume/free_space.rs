//! Free space on the cell disks: data stop growing while there is space left for metadata.
//!
//! While there is ample space, a measurement may be up to [`AGE_MAX`] old: the reserve for metadata absorbs the writes
//! since then.

use crate::disk::Disk;
use crate::error::{Context, Error, ErrorKind, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// With this much more space than a change needs, in bytes, a recent measurement suffices.
const AMPLE: u64 = 256 << 20;
const AGE_MAX: Duration = Duration::from_millis(50);
/// Bytes on every disk that are reserved for metadata, at most a sixteenth of the disk. Without them, files could not
/// be removed from a full disk.
const METADATA_RESERVE: u64 = 16 << 20;
const NEVER: u64 = u64::MAX;

#[derive(Debug)]
pub struct FreeSpace {
    /// Bytes that data may still allocate on the fullest disk, measured `measured_ms` after `started`.
    available: AtomicU64,
    measured_ms: AtomicU64,
    started: Instant,
}

impl FreeSpace {
    pub fn new() -> Self {
        Self { available: AtomicU64::new(0), measured_ms: AtomicU64::new(NEVER), started: Instant::now() }
    }

    /// Returns an error of kind `NoSpace` if some disk does not have `length` bytes available for data.
    pub fn check(&self, length: u64, disks: &[Arc<dyn Disk>]) -> Result<()> {
        let now_ms = self.started.elapsed().as_millis() as u64;
        let measured_ms = self.measured_ms.load(Ordering::Relaxed);
        let is_recent = measured_ms != NEVER && now_ms.saturating_sub(measured_ms) <= AGE_MAX.as_millis() as u64;
        if is_recent && self.available.load(Ordering::Relaxed) > length.saturating_add(AMPLE) {
            return Ok(());
        }
        let mut available = u64::MAX;
        for disk in disks {
            let path = disk.path().display();
            let space = disk.space().context(|| format!("could not determine the free space of cell disk {path}"))?;
            available = available.min(space.available.saturating_sub(METADATA_RESERVE.min(space.total / 16)));
        }
        self.available.store(available, Ordering::Relaxed);
        self.measured_ms.store(now_ms, Ordering::Relaxed);
        if available < length {
            let message = format!("cannot allocate {length} bytes: a cell disk has {available} bytes left for data");
            return Err(Error::new(ErrorKind::NoSpace, message));
        }
        Ok(())
    }
}
