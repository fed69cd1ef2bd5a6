//! Recompression while the reserve of a cell disk is in use.
//!
//! Each overwrite of a page in a compression unit needs space for the raw page, also on a full disk, where it comes from the
//! reserve ([`cellar_storage::SpacePriority`]). Statements that need no new page of a table can go on for any time, so without
//! recompression they would use up the reserve. A thread therefore stores allocation units with raw pages again as one unit, in the
//! format of the present unit: this frees the raw pages and the redo log.

use super::{Compression, CompressionError, MEMORY_AUS};
use crate::background::{Background, Stopping, lower_priority};
use crate::relation::{DiskObject, RelationAu};
use crate::state::{CellState, MemoryKind};
use cellar_format::units::{AuIndex, BLOCK_BYTES};
use cellar_scan::Grant;
use cellar_scan::unit::{Level, Unit};
use cellar_storage::request::{Origin, within};
use cellar_storage::{AuFormat, AuInfo, DiskSpace, Error, ErrorKind, Volume};
use std::cmp::Reverse;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// How often the thread looks at the reserve.
const INTERVAL: Duration = Duration::from_secs(1);
/// Delay after a pass that freed nothing, and while more than half of the reserve is free: statements may change the same units
/// all the time.
const PASS_INTERVAL: Duration = Duration::from_secs(5);
/// A pass ends when the reserve has become smaller by this many bytes, because another program takes what is freed.
const LOSS_MAX: u64 = 8 << 20;
/// While more than half of the reserve is free, only units with at least one raw page in this many are stored again.
const PAGES_PER_RAW_PAGE: u32 = 10;

/// A compression unit with raw pages.
struct ChangedUnit {
    object: DiskObject,
    au: AuIndex,
    level: Level,
    raw_pages: u32,
    pages: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ReserveUse {
    None,
    /// More than half of the reserve is free on each disk.
    Part,
    Most,
}

/// Starts the thread.
pub fn start_recompression(state: &Arc<CellState>) -> std::io::Result<Background> {
    let state = state.clone();
    Background::start("recompression", move |stopping| within(Origin::CELL, || run(&state, stopping)))
}

fn run(state: &CellState, stopping: &Stopping) {
    lower_priority();
    // Passes in succession during which the reserve became smaller.
    let mut losses = 0u32;
    while !stopping.is_set() {
        let mut freed = 0;
        let found = reserve_use(&state.volume);
        let free_before = least_free(&state.volume);
        if found != ReserveUse::None {
            match catch_unwind(AssertUnwindSafe(|| pass(state, stopping, reserve_use))) {
                Ok(bytes) => freed = bytes,
                Err(_) => log::error!("the recompression of changed units panicked; the next pass follows"),
            }
        }
        if freed > 0 {
            log::info!("recompression freed {freed} bytes because the reserve of a cell disk is in use");
        }
        // Another program takes what is freed.
        losses = if freed > 0 && least_free(&state.volume) < free_before { losses + 1 } else { 0 };
        let is_done = found != ReserveUse::None && (freed == 0 || found == ReserveUse::Part);
        stopping.pause(match losses {
            0 if is_done => PASS_INTERVAL,
            0 => INTERVAL,
            losses => PASS_INTERVAL.saturating_mul(1 << losses.min(6)),
        });
    }
}

fn reserve_use(volume: &Volume) -> ReserveUse {
    greatest_use(&volume.disk_spaces())
}

/// Returns the free bytes of the reserve on the disk that has the least.
fn least_free(volume: &Volume) -> u64 {
    measured(&volume.disk_spaces()).map(|disk| disk.reserve_free).min().unwrap_or(0)
}

/// Returns the disks that could be measured: a disk that is offline or has left has no size.
fn measured(disks: &[DiskSpace]) -> impl Iterator<Item = &DiskSpace> {
    disks.iter().filter(|disk| disk.total > 0)
}

fn greatest_use(disks: &[DiskSpace]) -> ReserveUse {
    let of_disk = |disk: &DiskSpace| match disk.reserve_free {
        free if free >= disk.reserve => ReserveUse::None,
        free if free > disk.reserve / 2 => ReserveUse::Part,
        _ => ReserveUse::Most,
    };
    measured(disks).map(of_disk).max().unwrap_or(ReserveUse::None)
}

/// Stores changed units again, those with the most raw pages first, until `reserve_use` returns `None`. Returns the freed bytes.
fn pass(state: &CellState, stopping: &Stopping, reserve_use: impl Fn(&Volume) -> ReserveUse) -> u64 {
    let mut freed = 0;
    let free_before = least_free(&state.volume);
    for unit in changed_units(&state.volume) {
        if least_free(&state.volume) + LOSS_MAX < free_before {
            break;
        }
        let is_due = match reserve_use(&state.volume) {
            _ if stopping.is_set() => break,
            ReserveUse::None => break,
            ReserveUse::Part => unit.raw_pages * PAGES_PER_RAW_PAGE >= unit.pages,
            ReserveUse::Most => true,
        };
        if !is_due {
            continue;
        }
        match recompress(state, &unit) {
            Ok(bytes) => freed += bytes,
            // The file was removed meanwhile, or other requests have taken the space for the new unit.
            Err(CompressionError::Storage(error)) if [ErrorKind::Stale, ErrorKind::NoSpace].contains(&error.kind()) => {
                log::debug!("{error}");
            }
            Err(error) => {
                let ChangedUnit { object, au, level, .. } = unit;
                // It is not tried again until a write changes it.
                if let Ok(version) = state.volume.au_version(object, au) {
                    state.incompressible_units.record(object, au, version, level as u32);
                }
                log::warn!(
                    "could not compress allocation unit {au} of inode {object} again to free space of the reserve: {error}"
                );
            }
        }
    }
    freed
}

/// Returns the units with raw pages, those with the most raw pages first.
fn changed_units(volume: &Volume) -> Vec<ChangedUnit> {
    let mut changed = Vec::new();
    for object in volume.files() {
        // A file that was removed meanwhile has no units.
        for AuInfo { au, format, .. } in volume.au_infos(object).unwrap_or_default() {
            if let AuFormat::Unit { tag, superseded, .. } = format
                && !superseded.is_empty()
                && let Some(level) = u8::try_from(tag).ok().and_then(Level::from_u8)
            {
                changed.push(ChangedUnit {
                    object,
                    au,
                    level,
                    raw_pages: superseded.len(),
                    pages: superseded.page_count(),
                });
            }
        }
    }
    changed.sort_unstable_by_key(|unit| Reverse(unit.raw_pages));
    changed
}

/// Compresses the pages of a changed unit again, in the present unit's format. Returns the freed bytes; 0 if the allocation unit
/// changed meanwhile, is incompressible now, or if there is no memory for the encoding.
fn recompress(state: &CellState, unit: &ChangedUnit) -> Result<u64, CompressionError> {
    let ChangedUnit { object, au, level, raw_pages, pages } = *unit;
    let volume = &state.volume;
    let mut memory = Grant::new(state.memory.account(MemoryKind::ScanBuffers));
    let version = volume.au_version(object, au)?;
    if state.incompressible_units.contains(object, au, version, level as u32)
        || !memory.cover(MEMORY_AUS * volume.au_bytes(object)?)
    {
        return Ok(0);
    }
    // A client may have compressed the unit again since it was listed.
    if !matches!(volume.au_info(object, au)?.format, AuFormat::Unit { tag, superseded, .. }
        if tag == level as u32 && !superseded.is_empty())
    {
        return Ok(0);
    }
    let Some(reader) = volume.unit_reader(object, au)? else { return Ok(0) };
    let shape = Unit::open(&reader).map_err(|error| Error::new(ErrorKind::Corrupt, error.to_string()))?.shape().clone();
    drop(reader);
    let mut compression = Compression::new(state, &shape);
    compression.uses_reserve = true;
    compression.compress(&RelationAu { object, au, blocks: 0..pages }, level)?;
    compression.publish()?;
    Ok(compression.progress.units_written * u64::from(raw_pages) * BLOCK_BYTES as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compression::compress;
    use crate::fixtures;
    use cellar_format::wire::CompressProgress;
    use cellar_scan::unit::Shape;
    use std::cell::Cell;

    const AU_BYTES: usize = 1 << 20;
    const AU_PAGES: u32 = (AU_BYTES / BLOCK_BYTES) as u32;

    #[test]
    fn the_disk_with_the_least_free_reserve_decides_and_an_offline_disk_does_not_count() {
        let disk =
            |total, reserve_free| DiskSpace { path: "disk".into(), total, available: 0, reserve: 64, reserve_free };
        for (free, expected) in
            [(64, ReserveUse::None), (63, ReserveUse::Part), (32, ReserveUse::Most), (0, ReserveUse::Most)]
        {
            assert_eq!(greatest_use(&[disk(1000, 64), disk(1000, free), disk(0, 0)]), expected, "{free}");
        }
    }

    #[test]
    fn units_with_the_most_raw_pages_are_stored_again_until_the_reserve_is_free() {
        let folder = tempfile::tempdir().unwrap();
        let volume = fixtures::volume(folder.path(), AU_BYTES);
        let state = CellState::new(volume.clone(), Arc::default(), Arc::default());
        let object = fixtures::create(&volume, "table");
        let mut content = vec![7; 4 * AU_BYTES];
        volume.write(object, 0, &content).unwrap();
        let unit =
            |au: u32| RelationAu { object, au: AuIndex(u64::from(au)), blocks: au * AU_PAGES..(au + 1) * AU_PAGES };
        let units: Vec<RelationAu> = (0..4).map(unit).collect();
        let report = |_: CompressProgress| Ok::<_, CompressionError>(());
        compress(&state, &units, &Shape::default(), Some(Level::QueryHigh), report).unwrap();
        // Raw pages in each allocation unit: 1, 20, 40, 0.
        for (au, pages) in [(0, 1), (1, 20), (2, 40)] {
            let range = au * AU_BYTES..au * AU_BYTES + pages * BLOCK_BYTES;
            content[range.clone()].fill(9);
            volume.write(object, range.start as u64, &content[range]).unwrap();
        }
        let raw_pages = || {
            let format = |au| volume.au_info(object, AuIndex(au)).unwrap().format;
            [0, 1, 2, 3].map(|au| match format(au) {
                AuFormat::Unit { tag, superseded, .. } if tag == Level::QueryHigh as u32 => superseded.len(),
                other => panic!("allocation unit {au} has the format {other:?}"),
            })
        };
        let stopping = Stopping::default();
        let calls = Cell::new(0);
        let first_unit =
            |_: &Volume| if calls.replace(calls.get() + 1) == 0 { ReserveUse::Part } else { ReserveUse::None };
        assert_eq!(pass(&state, &stopping, |_: &Volume| ReserveUse::None), 0);
        assert_eq!(raw_pages(), [1, 20, 40, 0]);
        assert_eq!(pass(&state, &stopping, first_unit), 40 * BLOCK_BYTES as u64);
        assert_eq!(raw_pages(), [1, 20, 0, 0]);
        assert_eq!(pass(&state, &stopping, |_: &Volume| ReserveUse::Part), 20 * BLOCK_BYTES as u64);
        assert_eq!(raw_pages(), [1, 0, 0, 0]);
        assert_eq!(pass(&state, &stopping, |_: &Volume| ReserveUse::Most), BLOCK_BYTES as u64);
        assert_eq!(raw_pages(), [0, 0, 0, 0]);
        let mut read = vec![0; content.len()];
        volume.read(object, 0, &mut read).unwrap();
        assert!(read == content);
        volume.close().unwrap();
    }
}
