//! Compression of allocation units at a backend's request.
//!
//! Each allocation unit is read and encoded without a lock. The storage verifies the new unit and publishes it only if
//! no write changed the allocation unit in the meantime, so encoding never blocks readers or writers. A changed
//! allocation unit stays raw and counts as skipped. Units become durable in batches ([`Batch`]). If the storage cannot rebuild every page byte for byte from a unit,
//! the pages are encoded again as opaque bytes ([`encode_raw`]).
//!
//! This module knows no file names: callers resolve names to allocation units ([`crate::relation`]).

mod due;
mod recompression;
pub mod throttle;

pub use due::due_units;
pub use recompression::start_recompression;

use crate::relation::RelationAu;
use crate::state::CellState;
use cellar_format::units::BLOCK_BYTES;
use cellar_format::wire::{COMPRESSION_LEVEL_MAX, CompressProgress, LevelUnits, Units};
use cellar_scan::unit::{EncodeError, Encoder, Level, Shape, encode_raw};
use cellar_storage::{AuFormat, ErrorKind, PageSet, StagedUnits, UnitStored, Volume, stored_bytes};
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use throttle::Throttle;

/// Bounds cancellation latency while throttled.
const SLEEP_MAX: Duration = Duration::from_millis(200);
/// Bounds of the units that become durable together, with one sync of each unit file and one metadata transaction: their
/// number, the space that they occupy beside the raw pages, and the time for which a unit is encoded but not stored.
const BATCH_UNITS_MAX: usize = 64;
const BATCH_BYTES_MAX: u64 = 64 << 20;
const BATCH_AGE_MAX: Duration = Duration::from_secs(2);
/// Memory of an encoding in allocation units: the pages, the parsed columns, and the unit.
pub const MEMORY_AUS: u64 = 3;
/// Levels of a report: raw, and one per compression level.
const LEVELS: usize = COMPRESSION_LEVEL_MAX as usize + 1;

#[derive(Debug, thiserror::Error)]
pub enum CompressionError {
    #[error(transparent)]
    Storage(#[from] cellar_storage::Error),
    #[error(transparent)]
    Encode(#[from] EncodeError),
    #[error("the cell is shutting down")]
    Stopping,
}

/// Rewrites allocation units to `level`; None decompresses them. `report` receives the totals after each allocation
/// unit and during pauses, and may cancel the compression with an error. Pauses between units while other work needs
/// the CPUs. A damaged unit is skipped; its error is returned after all other units are done.
pub fn compress<E: From<CompressionError>>(
    state: &CellState,
    units: &[RelationAu],
    shape: &Shape,
    level: Option<Level>,
    mut report: impl FnMut(CompressProgress) -> Result<(), E>,
) -> Result<CompressProgress, E> {
    let mut compression = Compression::new(state, shape);
    let result = compression.run(units, level, &mut report);
    // Also after a cancellation or an error: the staged units are encoded already.
    let published = compression.publish();
    let damaged = result?;
    published.map_err(|error| E::from(error.into()))?;
    damaged.map_or(Ok(compression.progress), |error| Err(CompressionError::from(error).into()))
}

impl Compression<'_> {
    /// Rewrites allocation units; the last of them may stay staged. Returns the error of the first damaged unit.
    fn run<E: From<CompressionError>>(
        &mut self,
        units: &[RelationAu],
        level: Option<Level>,
        report: &mut impl FnMut(CompressProgress) -> Result<(), E>,
    ) -> Result<Option<cellar_storage::Error>, E> {
        let mut throttle = Throttle::new();
        let mut damaged = None;
        for unit in units {
            if self.state.stopping.load(Ordering::Relaxed) {
                return Err(CompressionError::Stopping.into());
            }
            let done = match level {
                Some(level) => self.compress(unit, level),
                None => self.decompress(unit).map_err(CompressionError::from),
            };
            match done {
                Err(CompressionError::Storage(error)) if error.kind() == ErrorKind::Corrupt => {
                    log::error!("skipping a damaged allocation unit: {error}");
                    self.progress.units_skipped += 1;
                    damaged.get_or_insert(error);
                }
                done => done.map_err(E::from)?,
            }
            self.progress.blocks_done += unit.blocks.len() as u64;
            report(self.progress)?;
            let mut pause = throttle.pause();
            while !pause.is_zero() && !self.state.stopping.load(Ordering::Relaxed) {
                let part = pause.min(SLEEP_MAX);
                std::thread::sleep(part);
                pause -= part;
                report(self.progress)?;
            }
        }
        Ok(damaged)
    }
}

/// A running compression. Encoder and page buffer are reused for all allocation units, because mapping memory of this
/// size for each unit is expensive.
struct Compression<'a> {
    state: &'a CellState,
    shape: &'a Shape,
    encoder: Encoder<'a>,
    pages: Vec<u8>,
    /// None while no unit is staged.
    batch: Option<Batch>,
    /// Whether the units may use the reserve of the cell disks.
    uses_reserve: bool,
    progress: CompressProgress,
}

/// Units that become durable together. They belong to one disk object.
struct Batch {
    staged: StagedUnits,
    /// Bytes of the pages and of the unit, of each staged unit.
    sizes: Vec<(u64, u64)>,
    started: Instant,
}

impl Batch {
    fn is_full(&self) -> bool {
        self.staged.len() >= BATCH_UNITS_MAX
            || self.staged.bytes() >= BATCH_BYTES_MAX
            || self.started.elapsed() >= BATCH_AGE_MAX
    }
}

impl<'a> Compression<'a> {
    fn new(state: &'a CellState, shape: &'a Shape) -> Self {
        let progress = CompressProgress::default();
        Self {
            state,
            shape,
            encoder: Encoder::new(shape),
            pages: Vec::new(),
            batch: None,
            uses_reserve: false,
            progress,
        }
    }

    fn compress(&mut self, unit: &RelationAu, level: Level) -> Result<(), CompressionError> {
        if self.batch.as_ref().is_some_and(|batch| batch.staged.ino() != unit.object) {
            self.publish()?;
        }
        match self.stage(unit, level) {
            // Publishing frees the space of the raw pages.
            Err(CompressionError::Storage(error)) if error.kind() == ErrorKind::NoSpace && self.batch.is_some() => {
                self.publish()?;
                self.stage(unit, level)?;
            }
            staged => staged?,
        }
        match &self.batch {
            Some(batch) if batch.is_full() => Ok(self.publish()?),
            _ => Ok(()),
        }
    }

    /// Makes the staged units durable and current, and counts them.
    fn publish(&mut self) -> cellar_storage::Result<()> {
        let Some(Batch { staged, sizes, .. }) = self.batch.take() else { return Ok(()) };
        let published = self.state.volume.publish_units(staged)?;
        for (result, (bytes_before, bytes_after)) in published.into_iter().zip(sizes) {
            match result {
                UnitStored::Stored => {
                    self.progress.units_written += 1;
                    self.progress.bytes_before += bytes_before;
                    self.progress.bytes_after += bytes_after;
                }
                UnitStored::Changed | UnitStored::Busy => self.progress.units_skipped += 1,
            }
        }
        Ok(())
    }

    /// Encodes an allocation unit and adds the compression unit to the batch.
    fn stage(&mut self, unit: &RelationAu, level: Level) -> Result<(), CompressionError> {
        let Self { state, shape, encoder, pages, batch, uses_reserve, progress } = self;
        let (volume, tag) = (&state.volume, level as u32);
        // Read the version before the pages: a write during the read changes the version.
        let version = volume.au_version(unit.object, unit.au)?;
        if is_complete_at(&volume.au_info(unit.object, unit.au)?.format, tag, &unit.blocks) {
            return Ok(());
        }
        let au_bytes = volume.au_bytes(unit.object)?;
        let base = unit.au.index() * au_bytes;
        // Encode all pages that the file has now: the file may have grown since the units were listed.
        pages.resize(volume.size(unit.object)?.saturating_sub(base).min(au_bytes) as usize, 0);
        let read = volume.read_uncached(unit.object, base, pages)?;
        pages.truncate(read / BLOCK_BYTES * BLOCK_BYTES);
        if pages.is_empty() {
            return Ok(());
        }
        if volume.has_torn_block(unit.object, base..base + pages.len() as u64)? {
            progress.units_skipped += 1;
            return Ok(());
        }
        let mut staged = match batch.take() {
            Some(batch) => batch,
            None => Batch { staged: volume.stage_units(unit.object)?, sizes: Vec::new(), started: Instant::now() },
        };
        if *uses_reserve {
            staged.staged.use_reserve();
        }
        let stage = |bytes: &[u8]| match stored_bytes(bytes.len() as u32) < pages.len() as u64 {
            true => Ok(volume.stage_unit(&mut staged.staged, unit.au, version, bytes, tag)? == UnitStored::Stored),
            false => {
                state.incompressible_units.record(unit.object, unit.au, version, tag);
                Ok(false)
            }
        };
        let result = stage_either(|| encoder.encode(pages, level), || encode_raw(pages, shape, level), stage);
        match &result {
            Ok(Some(unit_bytes)) => staged.sizes.push((pages.len() as u64, *unit_bytes)),
            Ok(None) => progress.units_skipped += 1,
            Err(_) => {}
        }
        *batch = (!staged.staged.is_empty()).then_some(staged);
        result.map(drop)
    }

    fn decompress(&mut self, unit: &RelationAu) -> cellar_storage::Result<()> {
        if let AuFormat::Unit { bytes, .. } = self.state.volume.au_info(unit.object, unit.au)?.format {
            self.state.volume.decompress(unit.object, unit.au)?;
            self.progress.units_written += 1;
            self.progress.bytes_before += bytes;
            self.progress.bytes_after += unit.blocks.len() as u64 * BLOCK_BYTES as u64;
        }
        Ok(())
    }
}

/// Stages the encoded pages. If the storage cannot rebuild the pages from that unit, stages the opaque encoding instead.
/// Returns the length of the staged unit in bytes, or None if no unit was staged.
fn stage_either(
    encoded: impl FnOnce() -> Result<Vec<u8>, EncodeError>,
    opaque: impl FnOnce() -> Result<Vec<u8>, EncodeError>,
    mut stage: impl FnMut(&[u8]) -> cellar_storage::Result<bool>,
) -> Result<Option<u64>, CompressionError> {
    let unit = encoded()?;
    match stage(&unit) {
        Err(error) if error.kind() == ErrorKind::Corrupt => {
            log::error!("storing pages as opaque bytes because their encoding does not reproduce them: {error}");
            let unit = opaque()?;
            Ok(stage(&unit)?.then_some(unit.len() as u64))
        }
        staged => Ok(staged?.then_some(unit.len() as u64)),
    }
}

/// Counts allocation units by level; levels without units are absent.
pub fn units_by_level(volume: &Volume, units: &[RelationAu]) -> cellar_storage::Result<Units> {
    let mut levels: Vec<_> = (0..LEVELS as u64).map(|level| LevelUnits { level, ..LevelUnits::default() }).collect();
    for unit in units {
        let blocks = unit.blocks.len() as u64;
        let (level, superseded, bytes) = match volume.au_info(unit.object, unit.au)?.format {
            AuFormat::Raw => (0, 0, blocks * BLOCK_BYTES as u64),
            AuFormat::Unit { bytes, tag, superseded } => {
                let raw = raw_blocks(&superseded, &unit.blocks);
                (tag as usize, raw, bytes + raw * BLOCK_BYTES as u64)
            }
        };
        let line = &mut levels[level.min(LEVELS - 1)];
        line.units += 1;
        line.blocks += blocks;
        line.superseded_blocks += superseded;
        line.stored_bytes += bytes;
    }
    levels.retain(|line| line.units > 0);
    Ok(Units { levels })
}

/// Returns whether an allocation unit has a unit of the level and no raw blocks.
fn is_complete_at(format: &AuFormat, level: u32, blocks: &Range<u32>) -> bool {
    matches!(format, AuFormat::Unit { tag, superseded, .. } if *tag == level && raw_blocks(superseded, blocks) == 0)
}

/// Counts the raw blocks of an allocation unit with a compression unit: superseded pages, and pages by which the file
/// grew after the unit was created.
fn raw_blocks(superseded: &PageSet, blocks: &Range<u32>) -> u64 {
    u64::from(superseded.len()) + (blocks.len() as u64).saturating_sub(u64::from(superseded.page_count()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;
    use cellar_format::units::AuIndex;
    use cellar_scan::unit::encode;
    use std::sync::Arc;

    #[test]
    fn a_cancelled_compression_stores_the_units_that_it_has_encoded() {
        const AU_BYTES: usize = 1 << 20;
        let folder = tempfile::tempdir().unwrap();
        let volume = fixtures::volume(folder.path(), AU_BYTES);
        let object = fixtures::create(&volume, "file");
        volume.write(object, 0, &vec![7; 5 * AU_BYTES]).unwrap();
        let blocks = (AU_BYTES / BLOCK_BYTES) as u32;
        let unit = |au: u32| RelationAu { object, au: AuIndex(u64::from(au)), blocks: au * blocks..(au + 1) * blocks };
        let units: Vec<RelationAu> = (0..5).map(unit).collect();
        let state = CellState::new(volume.clone(), Arc::default(), Arc::default());
        let cancel = |progress: CompressProgress| match progress.blocks_done < 3 * u64::from(blocks) {
            true => Ok(()),
            false => Err(CompressionError::Stopping),
        };
        let cancelled = compress(&state, &units, &Shape::default(), Some(Level::QueryLow), cancel);
        assert!(matches!(cancelled, Err(CompressionError::Stopping)));
        let is_stored = |au: u64| volume.au_info(object, AuIndex(au)).unwrap().format != AuFormat::Raw;
        assert_eq!([0, 1, 2, 3, 4].map(is_stored), [true, true, true, false, false]);
        let report = |_| Ok::<_, CompressionError>(());
        let done = compress(&state, &units, &Shape::default(), Some(Level::QueryLow), report).unwrap();
        assert_eq!((done.units_written, done.units_skipped, done.blocks_done), (2, 0, 5 * u64::from(blocks)));
        assert_eq!(done.bytes_before, 2 * AU_BYTES as u64);
        volume.close().unwrap();
    }

    #[test]
    fn pages_that_a_unit_does_not_reproduce_are_stored_as_opaque_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let volume = fixtures::volume(folder.path(), 4 << 20);
        let object = fixtures::create(&volume, "file");
        let pages: Vec<u8> = (0..8 * BLOCK_BYTES).map(|at| (at / 100) as u8).collect();
        volume.write(object, 0, &pages).unwrap();
        volume.fsync(object).unwrap();
        let (shape, level) = (Shape::default(), Level::QueryLow);
        let au = AuIndex(0);
        let version = volume.au_version(object, au).unwrap();
        let store = |bytes: &[u8]| Ok(volume.store_unit(object, au, version, bytes, 1)? == UnitStored::Stored);
        let mut other_pages = pages.clone();
        other_pages[5 * BLOCK_BYTES + 9] ^= 1;
        let wrong = || encode(&other_pages, &shape, level);
        // The pages stay raw as long as no unit reproduces them.
        assert!(stage_either(wrong, wrong, store).is_err());
        assert!(matches!(volume.au_info(object, au).unwrap().format, AuFormat::Raw));
        let bytes = stage_either(wrong, || encode_raw(&pages, &shape, level), store).unwrap().unwrap();
        assert!(
            matches!(volume.au_info(object, au).unwrap().format, AuFormat::Unit { bytes: stored, .. } if stored == bytes)
        );
        let mut read = vec![0; pages.len()];
        volume.read(object, 0, &mut read).unwrap();
        assert!(read == pages);
    }
}
