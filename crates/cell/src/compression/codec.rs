//! The storage code's codec: its units are the scan code's compression units.

use cellar_format::units::BLOCK_BYTES;
use cellar_scan::unit::{Unit, UnitError, UnitSource};
use cellar_storage::{Error, ErrorKind, Result, UnitBytes, UnitCodec};
use std::borrow::Cow;
use std::io;
use std::ops::Range;

#[derive(Debug)]
pub struct Codec;

impl UnitCodec for Codec {
    fn rebuild(&self, unit: &dyn UnitBytes, pages: Range<u32>, out: &mut [u8]) -> Result<()> {
        let source = Source(unit);
        let opened = Unit::open(&source).map_err(storage_error)?;
        for (page, out) in pages.zip(out.chunks_exact_mut(BLOCK_BYTES)) {
            let out = out.try_into().expect("a chunk is a page");
            opened.rebuild_page(&source, page as usize, out).map_err(storage_error)?;
        }
        Ok(())
    }
}

/// A stored unit's bytes as the scan code reads them.
pub struct Source<'a>(pub &'a dyn UnitBytes);

impl UnitSource for Source<'_> {
    fn read_at(&self, offset: u64, length: usize) -> io::Result<Cow<'_, [u8]>> {
        if offset.checked_add(length as u64).is_none_or(|end| end > self.0.length()) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut bytes = vec![0; length];
        self.0.read_at(&mut bytes, offset).map_err(io::Error::other)?;
        Ok(Cow::Owned(bytes))
    }
}

fn storage_error(error: UnitError) -> Error {
    let kind = match &error {
        UnitError::Corrupt(_) => ErrorKind::Corrupt,
        UnitError::Source(cause) => match cause.get_ref().and_then(|cause| cause.downcast_ref::<Error>()) {
            Some(cause) => cause.kind(),
            None if cause.kind() == io::ErrorKind::UnexpectedEof => ErrorKind::Corrupt,
            None => ErrorKind::Io,
        },
    };
    Error::new(kind, error.to_string())
}
