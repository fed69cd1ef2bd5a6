//! A stored unit's bytes for a codec: read from disk on demand with a count of the I/O, or all at once into memory.

use super::cached::CountedBytes;
use super::stored_unit::StoredUnit;
use crate::cache::IoCost;
use crate::error::{Error, ErrorKind, Result};
use crate::file::backing::Opened;
use cellar_format::ByteSource;
use std::io;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Reads a stored unit from disk.
pub struct StoredUnitReader<'a> {
    stored: &'a StoredUnit,
    opened: OnceLock<Opened<'a>>,
    disk_bytes: AtomicU64,
    disk_requests: AtomicU64,
}

impl<'a> StoredUnitReader<'a> {
    pub fn new(stored: &'a StoredUnit) -> Self {
        Self { stored, opened: OnceLock::new(), disk_bytes: AtomicU64::new(0), disk_requests: AtomicU64::new(0) }
    }

    fn opened(&self) -> Result<&Opened<'a>> {
        if let Some(opened) = self.opened.get() {
            return Ok(opened);
        }
        let opened = self.stored.open()?;
        Ok(self.opened.get_or_init(|| opened))
    }

    /// Returns the I/O so far.
    pub fn cost(&self) -> IoCost {
        IoCost {
            disk_bytes: self.disk_bytes.load(Ordering::Relaxed),
            disk_requests: self.disk_requests.load(Ordering::Relaxed),
        }
    }
}

impl CountedBytes for StoredUnitReader<'_> {
    fn count(&self, bytes: u64, requests: u64) {
        self.disk_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.disk_requests.fetch_add(requests, Ordering::Relaxed);
    }
}

impl ByteSource for StoredUnitReader<'_> {
    fn length(&self) -> u64 {
        u64::from(self.stored.length)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let bytes = self.stored.read(buffer, offset)?;
        self.count(bytes, 1);
        Ok(())
    }

    fn read_unverified_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.stored.check_range(buffer, offset)?;
        if offset == 0 {
            let bytes = self.stored.read_start(buffer)?;
            self.count(bytes, 1);
            return Ok(());
        }
        self.opened()?.read_exact(buffer, self.stored.offset() + offset)?;
        self.count(buffer.len() as u64, 1);
        Ok(())
    }

    fn prefetch(&self, parts: &[Range<u64>]) {
        let (start, length) = (self.stored.offset(), u64::from(self.stored.length));
        let within = |part: &Range<u64>| start + part.start.min(length)..start + part.end.min(length);
        // An error is reported by the read that follows.
        if let Ok(opened) = self.opened() {
            opened.prefetch(&parts.iter().map(within).collect::<Vec<_>>());
        }
    }
}

/// All bytes of a stored unit in memory, verified when they were read.
pub struct UnitImage(Vec<u8>);

impl UnitImage {
    pub fn read(stored: &StoredUnit) -> Result<Self> {
        stored.read_start(&mut [0])?;
        let mut bytes = vec![0; stored.length as usize];
        stored.read(&mut bytes, 0)?;
        Ok(Self(bytes))
    }
}

impl ByteSource for UnitImage {
    fn length(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        match self.slice_at(offset, buffer.len()) {
            Some(bytes) => {
                buffer.copy_from_slice(bytes);
                Ok(())
            }
            None => {
                let message = format!("read of {} bytes at {offset} of {}", buffer.len(), self.0.len());
                Err(Error::new(ErrorKind::Corrupt, message).into())
            }
        }
    }

    fn slice_at(&self, offset: u64, length: usize) -> Option<&[u8]> {
        self.0.get(usize::try_from(offset).ok()?..)?.get(..length)
    }
}
