//! Hybrid columnar compression of a relation's allocation units, on a backend's command.
//!
//! Each allocation unit is read, encoded and verified without any lock, then put in place only if nothing changed it
//! meanwhile: writers and readers never wait for an encoder. What changed stays raw and is counted as skipped.

mod codec;

pub use codec::{Codec, Source};

use cellar_format::units::BLOCK_BYTES;
use cellar_format::wire::{BlockRange, CompressProgress, CompressRequest, LevelUnits, ScanRequest, Units, UnitsQuery};
use cellar_scan::unit::{Attribute, EncodeError, Level, Shape, encode, estimate};
use cellar_storage::{Ino, UnitForm, UnitStored, Volume};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

/// Pages of the sample from which a level's yield is estimated, and how many places of the relation they come from.
const SAMPLE_PAGES: u32 = 96;
const SAMPLE_PLACES: u32 = 5;
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

/// Brings every allocation unit that begins in the range to the level; `tell` hears of each and may end the work.
pub fn compress<E: From<CompressionError>>(
    volume: &Volume,
    request: &CompressRequest,
    stopping: &AtomicBool,
    mut tell: impl FnMut(CompressProgress) -> Result<(), E>,
) -> Result<CompressProgress, E> {
    let shape = shape(&request.relation);
    let mut progress = CompressProgress::default();
    for place in places(volume, &request.relation, request.range).map_err(E::from)? {
        if stopping.load(Ordering::Relaxed) {
            return Err(CompressionError::Stopping.into());
        }
        match Level::from_u8(request.level) {
            Some(level) => compress_one(volume, &place, &shape, level, &mut progress).map_err(E::from)?,
            None => decompress_one(volume, &place, &mut progress).map_err(|error| E::from(error.into()))?,
        }
        progress.blocks_done += u64::from(place.blocks.end - place.blocks.start);
        tell(progress)?;
    }
    Ok(progress)
}

fn compress_one(
    volume: &Volume,
    place: &Place,
    shape: &Shape,
    level: Level,
    progress: &mut CompressProgress,
) -> Result<(), CompressionError> {
    let tag = level as u32;
    // The version comes first: a change while the pages are read makes it old.
    let version = volume.au_version(place.ino, place.au)?;
    let form = volume.unit(place.ino, place.au)?.form;
    if matches!(&form, UnitForm::Unit { tag: now, dead, .. } if *now == tag && dead.is_empty()) {
        return Ok(());
    }
    let au_bytes = volume.au_bytes(place.ino)?;
    let base = place.au * au_bytes;
    // All that the file has of it now: it may have grown since the places were listed.
    let mut pages = vec![0; volume.size(place.ino)?.saturating_sub(base).min(au_bytes) as usize];
    let read = volume.read(place.ino, base, &mut pages)?;
    pages.truncate(read / BLOCK_BYTES * BLOCK_BYTES);
    if pages.is_empty() {
        return Ok(());
    }
    let unit = encode(&pages, shape, level)?;
    if unit.len() >= pages.len() {
        progress.units_skipped += 1;
        return Ok(());
    }
    match volume.unit_store(place.ino, place.au, version, &unit, tag)? {
        UnitStored::Stored => {
            progress.units_written += 1;
            progress.bytes_before += pages.len() as u64;
            progress.bytes_after += unit.len() as u64;
        }
        UnitStored::Changed | UnitStored::Busy => progress.units_skipped += 1,
    }
    Ok(())
}

fn decompress_one(volume: &Volume, place: &Place, progress: &mut CompressProgress) -> cellar_storage::Result<()> {
    if let UnitForm::Unit { bytes, .. } = volume.unit(place.ino, place.au)?.form {
        volume.decompress(place.ino, place.au)?;
        progress.units_written += 1;
        progress.bytes_before += bytes;
        progress.bytes_after += u64::from(place.blocks.end - place.blocks.start) * BLOCK_BYTES as u64;
    }
    Ok(())
}

/// What a relation's allocation units are; or, to choose a level, what each would make of a sample.
pub fn units(volume: &Volume, query: &UnitsQuery) -> Result<Units, CompressionError> {
    let places = places(volume, &query.relation, query.range)?;
    let levels = match query.estimate {
        true => estimates(volume, &places, &shape(&query.relation))?,
        false => forms(volume, &places)?,
    };
    Ok(Units { levels })
}

fn forms(volume: &Volume, places: &[Place]) -> Result<Vec<LevelUnits>, CompressionError> {
    let mut levels: Vec<_> = (0..LEVELS as u64).map(|level| LevelUnits { level, ..LevelUnits::default() }).collect();
    for place in places {
        let blocks = u64::from(place.blocks.end - place.blocks.start);
        let block_bytes = BLOCK_BYTES as u64;
        let (level, dead, bytes) = match volume.unit(place.ino, place.au)?.form {
            UnitForm::Raw => (0, 0, blocks * block_bytes),
            UnitForm::Unit { bytes, tag, dead } => {
                // Blocks that came after the unit was made lie raw, as dead ones do.
                let raw = u64::from(dead.len()) + blocks.saturating_sub(u64::from(dead.page_count()));
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
    Ok(levels)
}

fn estimates(volume: &Volume, places: &[Place], shape: &Shape) -> Result<Vec<LevelUnits>, CompressionError> {
    let mut sample = Vec::new();
    let step = (places.len() / SAMPLE_PLACES as usize).max(1);
    for place in places.iter().step_by(step) {
        let want = (SAMPLE_PAGES / SAMPLE_PLACES).min(place.blocks.end - place.blocks.start) as usize;
        let mut pages = vec![0; want * BLOCK_BYTES];
        let read = volume.read(place.ino, place.au * volume.au_bytes(place.ino)?, &mut pages)?;
        pages.truncate(read / BLOCK_BYTES * BLOCK_BYTES);
        sample.extend(pages);
    }
    if sample.is_empty() {
        return Ok(Vec::new());
    }
    let line = |level: Level| {
        let estimate = estimate(&sample, shape, level)?;
        let blocks = estimate.page_bytes / BLOCK_BYTES as u64;
        Ok(LevelUnits { level: level as u64, units: 1, blocks, dead_blocks: 0, stored_bytes: estimate.unit_bytes })
    };
    Level::ALL.into_iter().map(line).collect()
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

fn shape(relation: &ScanRequest) -> Shape {
    let attributes = relation.attributes.iter().map(|attribute| Attribute {
        type_oid: attribute.type_oid,
        width: attribute.width,
        align: attribute.align,
        by_value: attribute.by_value,
        dropped: attribute.type_oid == 0,
    });
    Shape { attributes: attributes.collect() }
}
