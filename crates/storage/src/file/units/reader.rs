//! A stored unit's bytes for a codec: read from disk on demand with a count of the I/O, or all at once into memory.

use super::cached::CountedBytes;
use super::stored_unit::StoredUnit;
use crate::cache::IoCost;
use crate::error::{Error, ErrorKind, Result};
use crate::file::backing::Opened;
use cellar_format::ByteSource;
use parking_lot::Mutex;
use std::io;
use std::ops::Range;
use std::sync::OnceLock;

/// Reads a stored unit from disk.
pub struct StoredUnitReader<'a> {
    stored: &'a StoredUnit,
    opened: OnceLock<Opened<'a>>,
    cost: Mutex<IoCost>,
}

impl<'a> StoredUnitReader<'a> {
    pub fn new(stored: &'a StoredUnit) -> Self {
        Self { stored, opened: OnceLock::new(), cost: Mutex::default() }
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
        *self.cost.lock()
    }
}

impl CountedBytes for StoredUnitReader<'_> {
    fn count(&self, cost: IoCost) {
        self.cost.lock().add(cost);
    }
}

impl ByteSource for StoredUnitReader<'_> {
    fn length(&self) -> u64 {
        u64::from(self.stored.length)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.count(IoCost::of_request(|| self.stored.read(buffer, offset))?);
        Ok(())
    }

    fn read_unverified_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.stored.check_range(buffer, offset)?;
        if offset == 0 {
            self.count(IoCost::of_request(|| self.stored.read_start(buffer))?);
            return Ok(());
        }
        let opened = self.opened()?;
        let length = buffer.len() as u64;
        let read = || opened.read_exact(buffer, self.stored.offset() + offset).map(|()| length);
        self.count(IoCost::of_request(read)?);
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
