//! Codecs for tests, which compress each page separately.
//!
//! Layout: number of pages u32, then the end offset of each page's bytes u32 each, then the bytes.

use cellar_format::ByteSource;
use cellar_format::units::AuIndex;
use cellar_storage::{AuFormat, Error, ErrorKind, Ino, OpenUnit, Result, UnitCodec, UnitStored, Volume};
use std::ops::Range;

pub const PAGE: usize = 8192;

#[derive(Debug)]
pub struct PageCodec;

fn corrupt(what: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Corrupt, format!("page codec: {what}"))
}

/// Reads the unit without its checksum table, like a codec whose own checksums are correct in every unit that was ever
/// stored.
#[derive(Debug)]
pub struct UnverifiedPageCodec;

/// Reads bytes of a unit at an offset.
type ReadAt = fn(&dyn ByteSource, &mut [u8], u64) -> std::io::Result<()>;

struct Pages(ReadAt);

impl Pages {
    fn read(&self, unit: &dyn ByteSource, buffer: &mut [u8], offset: u64) -> Result<()> {
        (self.0)(unit, buffer, offset).map_err(Error::of_source)
    }

    fn number(&self, unit: &dyn ByteSource, index: u64) -> Result<u64> {
        let mut bytes = [0; 4];
        self.read(unit, &mut bytes, index * 4)?;
        Ok(u64::from(u32::from_le_bytes(bytes)))
    }
}

impl UnitCodec for PageCodec {
    fn open(&self, _: &dyn ByteSource, _: u64) -> Result<Box<dyn OpenUnit + '_>> {
        Ok(Box::new(Pages(|unit, buffer, offset| unit.read_at(buffer, offset))))
    }
}

impl UnitCodec for UnverifiedPageCodec {
    fn open(&self, _: &dyn ByteSource, _: u64) -> Result<Box<dyn OpenUnit + '_>> {
        Ok(Box::new(Pages(|unit, buffer, offset| unit.read_unverified_at(buffer, offset))))
    }
}

impl OpenUnit for Pages {
    fn rebuild(&mut self, unit: &dyn ByteSource, pages: Range<u32>, out: &mut [u8]) -> Result<()> {
        let count = self.number(unit, 0)?;
        if u64::from(pages.end) > count {
            return Err(corrupt(format!("page {} of {count}", pages.end - 1)));
        }
        let first = (count + 1) * 4;
        for (page, out) in pages.map(u64::from).zip(out.chunks_exact_mut(PAGE)) {
            let start = if page == 0 { first } else { self.number(unit, page)? };
            let end = self.number(unit, page + 1)?;
            let length = end.checked_sub(start).filter(|length| *length <= unit.length());
            let mut bytes = vec![0; length.ok_or_else(|| corrupt("a page ends before it starts"))? as usize];
            self.read(unit, &mut bytes, start)?;
            match lz4_flex::block::decompress_into(&bytes, out) {
                Ok(PAGE) => {}
                other => return Err(corrupt(format!("page {page}: {other:?}"))),
            }
        }
        Ok(())
    }
}

pub fn encode(pages: &[u8]) -> Vec<u8> {
    let blobs: Vec<Vec<u8>> = pages.chunks_exact(PAGE).map(lz4_flex::block::compress).collect();
    let mut unit = (blobs.len() as u32).to_le_bytes().to_vec();
    let mut end = 4 + blobs.len() * 4;
    for blob in &blobs {
        end += blob.len();
        unit.extend((end as u32).to_le_bytes());
    }
    blobs.iter().for_each(|blob| unit.extend(blob));
    unit
}

/// Encodes the current pages of an allocation unit and stores the unit.
pub fn compress(volume: &Volume, ino: Ino, au: u64, tag: u32) -> Result<UnitStored> {
    let version = volume.au_version(ino, AuIndex(au))?;
    let au_bytes = volume.au_bytes(ino)?;
    let mut bytes = vec![0; au_bytes as usize];
    // Not from the page cache, which may lack a write in flight that the version includes.
    let count = volume.read_uncached(ino, au * au_bytes, &mut bytes)?;
    volume.store_unit(ino, AuIndex(au), version, &encode(&bytes[..count / PAGE * PAGE]), tag)
}

/// Encodes the current pages of some allocation units and stores the units together. Calls `between` before the units
/// are published.
pub fn compress_together(
    volume: &Volume,
    ino: Ino,
    aus: Range<u64>,
    between: impl FnOnce(),
) -> Result<Vec<UnitStored>> {
    let mut staged = volume.stage_units(ino)?;
    let au_bytes = volume.au_bytes(ino)?;
    let mut bytes = vec![0; au_bytes as usize];
    for au in aus {
        let version = volume.au_version(ino, AuIndex(au))?;
        let count = volume.read_uncached(ino, au * au_bytes, &mut bytes)?;
        let unit = encode(&bytes[..count / PAGE * PAGE]);
        assert_eq!(volume.stage_unit(&mut staged, AuIndex(au), version, &unit, 0)?, UnitStored::Stored);
    }
    between();
    volume.publish_units(staged)
}

/// Returns the superseded pages of an allocation unit's unit; None if the allocation unit is raw.
pub fn superseded(volume: &Volume, ino: Ino, au: u64) -> Option<Vec<u32>> {
    match &volume.au_infos(ino).unwrap()[au as usize].format {
        AuFormat::Raw => None,
        AuFormat::Unit { superseded, .. } => Some(superseded.iter().map(|page| page.0).collect()),
    }
}
