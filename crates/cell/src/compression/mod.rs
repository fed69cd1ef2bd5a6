//! Hybrid columnar compression of a relation's allocation units, on a backend's command.
//!
//! Each allocation unit is read and encoded without any lock, then verified by the storage and put in place only if
//! nothing changed it meanwhile: writers and readers never wait for an encoder. What changed stays raw and is counted as
//! skipped. A unit that does not give its pages back is replaced by one that keeps them compressed as they are.

mod codec;
mod due;
mod pace;
mod table;

pub use codec::Codec;
pub use due::{Unpaid, due};
pub use table::UnitTable;

use cellar_format::units::BLOCK_BYTES;
use cellar_format::wire::{BlockRange, CompressProgress, CompressRequest, LevelUnits, ScanRequest, Units, UnitsQuery};
use cellar_scan::unit::{EncodeError, Encoder, Level, Shape, encode_raw};
use cellar_storage::{AuFormat, ErrorKind, Ino, UnitStored, Volume, stored_bytes};
use due::raw_blocks;
use pace::Pace;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Who cancels a compression that rests waits for no more than this.
const REST_PART: Duration = Duration::from_millis(200);
/// Levels of a report: raw and the four.
const LEVELS: usize = 5;
#[derive(Debug, thiserror::Error)]
pub enum CompressionError {
    #[error(transparent)]
    Storage(#[from] cellar_storage::Error),
    #[error(transparent)]
    Encode(#[from] EncodeError),
    #[error("the cell is shutting down")]
    Stopping,
}

/// One allocation unit of a relation: the file, its number there, and the relation's blocks that lie in it.
struct Place {
    ino: Ino,
    au: u64,
    blocks: Range<u32>,
}

/// Memory for one allocation unit after the other: that much of it is costly to ask the kernel for each time.
struct Work<'a> {
    shape: &'a Shape,
    encoder: Encoder<'a>,
    pages: Vec<u8>,
}

/// Brings every allocation unit that begins in the range to the level; `tell` hears of each and may end the work. Rests
/// between them while others want the CPUs.
pub fn compress<E: From<CompressionError>>(
    volume: &Volume,
    unpaid: &Unpaid,
    request: &CompressRequest,
    stopping: &AtomicBool,
    mut tell: impl FnMut(CompressProgress) -> Result<(), E>,
) -> Result<CompressProgress, E> {
    let shape = Shape::of(&request.relation);
    let mut work = Work { shape: &shape, encoder: Encoder::new(&shape), pages: Vec::new() };
    let (mut progress, mut pace) = (CompressProgress::default(), Pace::new());
    let mut damaged = None;
    for place in places(volume, &request.relation, request.range).map_err(E::from)? {
        if stopping.load(Ordering::Relaxed) {
            return Err(CompressionError::Stopping.into());
        }
        let done = match Level::from_u8(request.level) {
            Some(level) => compress_one(volume, unpaid, &place, &mut work, level, &mut progress),
            None => decompress_one(volume, &place, &mut progress).map_err(CompressionError::from),
        };
        match done {
            // The others are no worse for it.
            Err(CompressionError::Storage(error)) if error.kind() == ErrorKind::Corrupt => {
                log::error!("{error}; it is left as it is");
                progress.units_skipped += 1;
                damaged.get_or_insert(error);
            }
            done => done.map_err(E::from)?,
        }
        progress.blocks_done += u64::from(place.blocks.end - place.blocks.start);
        tell(progress)?;
        let mut rest = pace.rest();
        while !rest.is_zero() && !stopping.load(Ordering::Relaxed) {
            let part = rest.min(REST_PART);
            std::thread::sleep(part);
            rest -= part;
            tell(progress)?;
        }
    }
    damaged.map_or(Ok(progress), |error| Err(CompressionError::from(error).into()))
}

fn compress_one(
    volume: &Volume,
    unpaid: &Unpaid,
    place: &Place,
    work: &mut Work<'_>,
    level: Level,
    progress: &mut CompressProgress,
) -> Result<(), CompressionError> {
    let tag = level as u32;
    // The version comes first: a change while the pages are read makes it old.
    let version = volume.au_version(place.ino, place.au)?;
    let form = volume.au_info(place.ino, place.au)?.format;
    if matches!(&form, AuFormat::Unit { tag: now, superseded: dead, .. } if *now == tag && raw_blocks(dead, &place.blocks) == 0)
    {
        return Ok(());
    }
    let au_bytes = volume.au_bytes(place.ino)?;
    let base = place.au * au_bytes;
    // All that the file has of it now: it may have grown since the places were listed.
    let Work { shape, encoder, pages } = work;
    pages.resize(volume.size(place.ino)?.saturating_sub(base).min(au_bytes) as usize, 0);
    let read = volume.read_uncached(place.ino, base, pages)?;
    pages.truncate(read / BLOCK_BYTES * BLOCK_BYTES);
    if pages.is_empty() {
        return Ok(());
    }
    if volume.has_torn_block(place.ino, base..base + pages.len() as u64)? {
        // Of a block in it a part is still to come.
        progress.units_skipped += 1;
        return Ok(());
    }
    let store = |unit: &[u8]| match stored_bytes(unit.len() as u32) < pages.len() as u64 {
        true => volume.unit_store(place.ino, place.au, version, unit, tag).map(|stored| stored == UnitStored::Stored),
        false => {
            unpaid.learn((place.ino, place.au as u32), version, 1 << tag, |known, new| *known |= new);
            Ok(false)
        }
    };
    let unit_bytes = store_either(|| encoder.encode(pages, level), || encode_raw(pages, shape, level), store)?;
    match unit_bytes {
        Some(unit_bytes) => {
            progress.units_written += 1;
            progress.bytes_before += pages.len() as u64;
            progress.bytes_after += unit_bytes;
        }
        None => progress.units_skipped += 1,
    }
    Ok(())
}

/// Stores an encoding of pages, or the plain one when the storage finds that the first does not give them back. Returns
/// the bytes of the unit that was stored.
fn store_either(
    encoded: impl FnOnce() -> Result<Vec<u8>, EncodeError>,
    plain: impl FnOnce() -> Result<Vec<u8>, EncodeError>,
    store: impl Fn(&[u8]) -> cellar_storage::Result<bool>,
) -> Result<Option<u64>, CompressionError> {
    let unit = encoded()?;
    match store(&unit) {
        Err(error) if error.kind() == ErrorKind::Corrupt => {
            log::error!("{error}; its pages are kept as they are");
            let unit = plain()?;
            Ok(store(&unit)?.then_some(unit.len() as u64))
        }
        stored => Ok(stored?.then_some(unit.len() as u64)),
    }
}

fn decompress_one(volume: &Volume, place: &Place, progress: &mut CompressProgress) -> cellar_storage::Result<()> {
    if let AuFormat::Unit { bytes, .. } = volume.au_info(place.ino, place.au)?.format {
        volume.decompress(place.ino, place.au)?;
        progress.units_written += 1;
        progress.bytes_before += bytes;
        progress.bytes_after += u64::from(place.blocks.end - place.blocks.start) * BLOCK_BYTES as u64;
    }
    Ok(())
}

/// What a relation's allocation units are.
pub fn units(volume: &Volume, query: &UnitsQuery) -> Result<Units, CompressionError> {
    let mut levels: Vec<_> = (0..LEVELS as u64).map(|level| LevelUnits { level, ..LevelUnits::default() }).collect();
    for place in places(volume, &query.relation, query.range)? {
        let blocks = u64::from(place.blocks.end - place.blocks.start);
        let block_bytes = BLOCK_BYTES as u64;
        let (level, dead, bytes) = match volume.au_info(place.ino, place.au)?.format {
            AuFormat::Raw => (0, 0, blocks * block_bytes),
            AuFormat::Unit { bytes, tag, superseded: dead } => {
                let raw = raw_blocks(&dead, &place.blocks);
                (tag as usize, raw, bytes + raw * block_bytes)
            }
        };
        let line = &mut levels[level.min(LEVELS - 1)];
        line.units += 1;
        line.blocks += blocks;
        line.dead_blocks += dead;
        line.stored_bytes += bytes;
    }
    levels.retain(|line| line.units > 0);
    Ok(Units { levels })
}

/// The allocation units that hold a range of blocks, in order; segment files that are not there hold none.
fn places(volume: &Volume, relation: &ScanRequest, range: BlockRange) -> Result<Vec<Place>, CompressionError> {
    let mut places = Vec::new();
    for segment in range.first / relation.segment_blocks..range.end.div_ceil(relation.segment_blocks) {
        let name = match segment {
            0 => relation.file.clone(),
            _ => format!("{}.{segment}", relation.file),
        };
        let Some(ino) = volume.resolve(&name) else { continue };
        let au_blocks = (volume.au_bytes(ino)? / BLOCK_BYTES as u64) as u32;
        let base = segment * relation.segment_blocks;
        let size = ((volume.size(ino)? / BLOCK_BYTES as u64) as u32).min(relation.segment_blocks);
        let end = size.min(range.end - base);
        let first = range.first.saturating_sub(base) / au_blocks * au_blocks;
        places.extend((first..end).step_by(au_blocks as usize).map(|block| Place {
            ino,
            au: u64::from(block / au_blocks),
            blocks: base + block..base + (block + au_blocks).min(size),
        }));
    }
    Ok(places)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cellar_scan::unit::encode;
    use cellar_storage::disk::{DirectoryDisk, Disk};
    use cellar_storage::{Kind, NewNode, ROOT_INO, VolumeOptions};
    use std::sync::Arc;

    #[test]
    fn pages_that_an_encoding_would_not_give_back_are_kept_as_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let disk = Arc::new(DirectoryDisk::new(folder.path().join("disk")).unwrap()) as Arc<dyn Disk>;
        let options = VolumeOptions { unit_codec: Some(Arc::new(Codec::default())), ..VolumeOptions::default() };
        let volume = Volume::open(vec![disk], options).unwrap();
        let new = NewNode { kind: Kind::File, mode: 0o600, uid: 0, gid: 0, device: 0, target: b"" };
        let ino = volume.create(ROOT_INO, b"file", &new).unwrap().ino;
        let pages: Vec<u8> = (0..8 * BLOCK_BYTES).map(|at| (at / 100) as u8).collect();
        volume.write(ino, 0, &pages).unwrap();
        volume.fsync(ino).unwrap();
        let (shape, level) = (Shape::default(), Level::QueryLow);
        let version = volume.au_version(ino, 0).unwrap();
        let store =
            |unit: &[u8]| volume.unit_store(ino, 0, version, unit, 1).map(|stored| stored == UnitStored::Stored);
        let mut others = pages.clone();
        others[5 * BLOCK_BYTES + 9] ^= 1;
        let wrong = || encode(&others, &shape, level);
        // Nothing is given up while no unit gives the pages back.
        assert!(store_either(wrong, wrong, store).is_err());
        assert!(matches!(volume.au_info(ino, 0).unwrap().format, AuFormat::Raw));
        let bytes = store_either(wrong, || encode_raw(&pages, &shape, level), store).unwrap().unwrap();
        assert!(
            matches!(volume.au_info(ino, 0).unwrap().format, AuFormat::Unit { bytes: stored, .. } if stored == bytes)
        );
        let mut read = vec![0; pages.len()];
        volume.read(ino, 0, &mut read).unwrap();
        assert!(read == pages);
    }
}
