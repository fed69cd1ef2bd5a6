//! Recompression while the reserve of a cell disk is in use.
//!
//! Each overwrite of a page in a compression unit needs space for the raw page, also on a full disk, where it comes from the
//! reserve ([`cellar_storage::SpacePriority`]). Statements that need no new page of a table can go on for any time, so without
//! recompression they would use up the reserve. A thread therefore stores allocation units with raw pages again as one unit, in the
//! format of the present unit: this frees the raw pages and the redo log. The space goes to the reserve before another program can use
//! it up ([`Volume::freeing`]).
//!
//! A unit whose encoding fails or panics is logged and left out until a write changes it or the cell starts again; the other units
//! follow.

use super::{Compression, CompressionError, MEMORY_AUS};
use crate::background::{Background, Stopping, lower_priority};
use crate::relation::{DiskObject, RelationAu};
use crate::state::{CellState, IncompressibleUnits, MemoryKind};
use cellar_format::units::{AuIndex, BLOCK_BYTES};
use cellar_scan::Grant;
use cellar_scan::unit::{Level, Unit};
use cellar_storage::request::{Origin, within};
use cellar_storage::{AuFormat, AuInfo, DiskSpace, Error, ErrorKind, Volume};
use std::cmp::Reverse;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often the thread looks at the reserve.
const INTERVAL: Duration = Duration::from_secs(1);
/// Delay after a pass that freed nothing, and while more than half of the reserve is free: statements may change the same units
/// all the time.
const PASS_INTERVAL: Duration = Duration::from_secs(5);
/// The thread pauses at the latest after it has worked for this time. A checkpointer waits longer for space.
const WORK_MAX: Duration = Duration::from_secs(2);
/// A pass ends when the reserve has become smaller by this many bytes: statements change more units than the thread stores.
const LOSS_MAX: i64 = 8 << 20;
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

/// One measurement of the reserves of all disks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Reserve {
    /// On the disk with the greatest use.
    usage: ReserveUse,
    /// Free bytes of the reserve on the disk that has the least.
    free: u64,
}

impl Reserve {
    fn measure(volume: &Volume) -> Self {
        Self::of(&volume.disk_spaces())
    }

    /// A disk that is offline or has left has no size and does not count.
    fn of(disks: &[DiskSpace]) -> Self {
        let measured = || disks.iter().filter(|disk| disk.total > 0);
        let usage = |disk: &DiskSpace| match disk.reserve_free {
            free if free >= disk.reserve => ReserveUse::None,
            free if free > disk.reserve / 2 => ReserveUse::Part,
            _ => ReserveUse::Most,
        };
        Self {
            usage: measured().map(usage).max().unwrap_or(ReserveUse::None),
            free: measured().map(|disk| disk.reserve_free).min().unwrap_or(0),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Pass {
    /// Bytes of raw pages.
    freed: u64,
    /// Bytes by which the free part of the reserve grew while the thread worked. Pauses do not count.
    change: i64,
}

/// Keeps the thread below half of a CPU: each pause is at least as long as the work since the last pause.
#[derive(Debug, Default)]
struct Pace {
    worked: Duration,
}

impl Pace {
    /// Adds the time of some work. Returns the pause that must follow now.
    fn pause_after(&mut self, work: Duration) -> Duration {
        self.worked += work;
        if self.worked < WORK_MAX { Duration::ZERO } else { std::mem::take(&mut self.worked) }
    }

    /// Returns the pause after a pass: at least `delay`.
    fn pause_between(&mut self, delay: Duration) -> Duration {
        std::mem::take(&mut self.worked).max(delay)
    }
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
    let mut pace = Pace::default();
    while !stopping.is_set() {
        let mut done = Pass::default();
        let before = Reserve::measure(&state.volume);
        if before.usage != ReserveUse::None {
            let pass = || pass(state, stopping, &mut pace, Reserve::measure, recompress);
            match catch_unwind(AssertUnwindSafe(pass)) {
                Ok(pass) => done = pass,
                Err(_) => log::error!("the search for changed units panicked; the next pass follows"),
            }
        }
        let Pass { freed, change } = done;
        if freed > 0 {
            log::info!("recompression freed {freed} bytes because the reserve of a cell disk is in use");
        }
        // Statements change more units than the thread stores. A checkpoint may wait for the last half of the reserve.
        let is_futile = freed > 0 && change < 0 && before.usage != ReserveUse::Most;
        losses = if is_futile { losses + 1 } else { 0 };
        let is_done = before.usage != ReserveUse::None && (freed == 0 || before.usage == ReserveUse::Part);
        stopping.pause(pace.pause_between(match losses {
            0 if is_done => PASS_INTERVAL,
            0 => INTERVAL,
            losses => PASS_INTERVAL.saturating_mul(1 << losses.min(6)),
        }));
    }
}

/// Stores changed units again with `recompress`, which returns the freed bytes; those with the most raw pages first, until the use of
/// the reserve is `None`. Measures the reserve once for each unit, and once at the end.
fn pass(
    state: &CellState,
    stopping: &Stopping,
    pace: &mut Pace,
    measure: impl Fn(&Volume) -> Reserve,
    recompress: impl Fn(&CellState, &ChangedUnit) -> Result<u64, CompressionError>,
) -> Pass {
    const FAILED: u32 = IncompressibleUnits::RECOMPRESSION_FAILED;
    let (mut done, mut failures) = (Pass::default(), 0u32);
    // The last measurement, unless a pause followed.
    let mut free_before = None;
    let change_to = |free: u64, before: Option<u64>| before.map_or(0, |before| free as i64 - before as i64);
    let mut started = Instant::now();
    for unit in changed_units(&state.volume) {
        let reserve = measure(&state.volume);
        done.change += change_to(reserve.free, free_before.replace(reserve.free));
        if done.change < -LOSS_MAX {
            break;
        }
        let is_due = match reserve.usage {
            _ if stopping.is_set() => break,
            ReserveUse::None => break,
            ReserveUse::Part => unit.raw_pages * PAGES_PER_RAW_PAGE >= unit.pages,
            ReserveUse::Most => true,
        };
        let ChangedUnit { object, au, .. } = unit;
        // A file that was removed meanwhile has no version.
        let Some(version) = is_due.then(|| state.volume.au_version(object, au).ok()).flatten() else { continue };
        if state.incompressible_units.contains(object, au, version, FAILED) {
            continue;
        }
        let failure = match catch_unwind(AssertUnwindSafe(|| recompress(state, &unit))) {
            Ok(Ok(bytes)) => {
                done.freed += bytes;
                None
            }
            // The file was removed meanwhile, or other requests have taken the space for the new unit.
            Ok(Err(CompressionError::Storage(error)))
                if [ErrorKind::Stale, ErrorKind::NoSpace].contains(&error.kind()) =>
            {
                log::debug!("{error}");
                None
            }
            Ok(Err(CompressionError::Stopping)) => break,
            // The units after it would fail as well.
            Ok(Err(CompressionError::Storage(error)))
                if ![ErrorKind::Corrupt, ErrorKind::Invalid].contains(&error.kind()) =>
            {
                log::warn!("recompression ends until the next pass: {error}");
                break;
            }
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some("the encoding panicked".into()),
        };
        if let Some(failure) = failure {
            state.incompressible_units.record(object, au, version, FAILED);
            let level = if failures == 0 { log::Level::Error } else { log::Level::Debug };
            log::log!(
                level,
                "could not compress allocation unit {au} of inode {object} again to free space of the reserve: {failure}"
            );
            failures += 1;
        }
        let pause = pace.pause_after(started.elapsed());
        if !pause.is_zero() {
            stopping.pause(pause);
            free_before = None;
        }
        started = Instant::now();
    }
    done.change += change_to(measure(&state.volume).free, free_before);
    if failures > 1 {
        log::error!("could not compress {failures} allocation units again to free space of the reserve");
    }
    pace.worked += started.elapsed();
    done
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
    volume.freeing(|| {
        compression.compress(&RelationAu { object, au, blocks: 0..pages }, level)?;
        compression.publish().map_err(CompressionError::from)
    })?;
    Ok(compression.progress.units_written * u64::from(raw_pages) * BLOCK_BYTES as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compression::{compress, due_units};
    use crate::fixtures;
    use cellar_format::wire::CompressProgress;
    use cellar_scan::unit::Shape;
    use std::cell::{Cell, RefCell};

    const AU_BYTES: usize = 1 << 20;
    const AU_PAGES: u32 = (AU_BYTES / BLOCK_BYTES) as u32;

    /// A cell with a file of four units, of which 1, 20, 40 and 0 pages are raw.
    struct Changed {
        state: CellState,
        object: DiskObject,
        content: Vec<u8>,
        stopping: Stopping,
        _folder: tempfile::TempDir,
    }

    impl Changed {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let volume = fixtures::volume(folder.path(), AU_BYTES);
            let state = CellState::new(volume.clone(), Arc::default(), Arc::default());
            let object = fixtures::create(&volume, "table");
            let content = vec![7; 4 * AU_BYTES];
            volume.write(object, 0, &content).unwrap();
            let mut cell = Self { state, object, content, stopping: Stopping::default(), _folder: folder };
            let report = |_: CompressProgress| Ok::<_, CompressionError>(());
            compress(&cell.state, &cell.units(), &Shape::default(), Some(Level::QueryHigh), report).unwrap();
            for (au, pages) in [(0, 1), (1, 20), (2, 40)] {
                cell.write(au, pages);
            }
            cell
        }

        fn units(&self) -> Vec<RelationAu> {
            let unit = |au: u32| RelationAu {
                object: self.object,
                au: AuIndex(u64::from(au)),
                blocks: au * AU_PAGES..(au + 1) * AU_PAGES,
            };
            (0..4).map(unit).collect()
        }

        fn write(&mut self, au: usize, pages: usize) {
            let range = au * AU_BYTES..au * AU_BYTES + pages * BLOCK_BYTES;
            self.content[range.clone()].fill(9);
            self.state.volume.write(self.object, range.start as u64, &self.content[range]).unwrap();
        }

        fn raw_pages(&self) -> [u32; 4] {
            let format = |au| self.state.volume.au_info(self.object, AuIndex(au)).unwrap().format;
            [0, 1, 2, 3].map(|au| match format(au) {
                AuFormat::Unit { tag, superseded, .. } if tag == Level::QueryHigh as u32 => superseded.len(),
                other => panic!("allocation unit {au} has the format {other:?}"),
            })
        }

        fn pass(&self, measure: impl Fn(&Volume) -> Reserve) -> u64 {
            pass(&self.state, &self.stopping, &mut Pace::default(), measure, recompress).freed
        }

        /// Runs a pass with `recompress`, and returns the allocation units for which it was called.
        fn tried(&self, recompress: impl Fn(&ChangedUnit) -> Result<u64, CompressionError>) -> Vec<u64> {
            let tried = RefCell::new(Vec::new());
            let recompress = |_: &CellState, unit: &ChangedUnit| {
                tried.borrow_mut().push(unit.au.index());
                recompress(unit)
            };
            pass(&self.state, &self.stopping, &mut Pace::default(), in_use(ReserveUse::Most), recompress);
            tried.into_inner()
        }
    }

    fn in_use(usage: ReserveUse) -> impl Fn(&Volume) -> Reserve {
        move |_| Reserve { usage, free: 0 }
    }

    #[test]
    fn the_disk_with_the_least_free_reserve_decides_and_an_offline_disk_does_not_count() {
        let disk =
            |total, reserve_free| DiskSpace { path: "disk".into(), total, available: 0, reserve: 64, reserve_free };
        for (free, usage) in
            [(64, ReserveUse::None), (63, ReserveUse::Part), (32, ReserveUse::Most), (0, ReserveUse::Most)]
        {
            let disks = [disk(1000, 64), disk(1000, free), disk(0, 0)];
            assert_eq!(Reserve::of(&disks), Reserve { usage, free });
        }
    }

    #[test]
    fn units_with_the_most_raw_pages_are_stored_again_until_the_reserve_is_free() {
        let cell = Changed::new();
        let calls = Cell::new(0);
        let first_unit = |_: &Volume| {
            let usage = if calls.replace(calls.get() + 1) == 0 { ReserveUse::Part } else { ReserveUse::None };
            Reserve { usage, free: 0 }
        };
        assert_eq!(cell.pass(in_use(ReserveUse::None)), 0);
        assert_eq!(cell.raw_pages(), [1, 20, 40, 0]);
        assert_eq!(cell.pass(first_unit), 40 * BLOCK_BYTES as u64);
        assert_eq!(cell.raw_pages(), [1, 20, 0, 0]);
        assert_eq!(calls.get(), 3, "one measurement for each unit, and one at the end");
        assert_eq!(cell.pass(in_use(ReserveUse::Part)), 20 * BLOCK_BYTES as u64);
        assert_eq!(cell.raw_pages(), [1, 0, 0, 0]);
        assert_eq!(cell.pass(in_use(ReserveUse::Most)), BLOCK_BYTES as u64);
        assert_eq!(cell.raw_pages(), [0, 0, 0, 0]);
        let mut read = vec![0; cell.content.len()];
        cell.state.volume.read(cell.object, 0, &mut read).unwrap();
        assert!(read == cell.content);
        cell.state.volume.close().unwrap();
    }

    #[test]
    fn a_pass_ends_when_the_reserve_shrinks_and_when_the_cell_stops() {
        let cell = Changed::new();
        let calls = Cell::new(0);
        let shrinking = |_: &Volume| {
            calls.set(calls.get() + 1);
            let free = (100 * LOSS_MAX - calls.get() * LOSS_MAX * 2 / 3) as u64;
            Reserve { usage: ReserveUse::Most, free }
        };
        let done = pass(&cell.state, &cell.stopping, &mut Pace::default(), shrinking, recompress);
        assert_eq!(done, Pass { freed: 60 * BLOCK_BYTES as u64, change: -2 * LOSS_MAX });
        assert_eq!(cell.raw_pages(), [1, 0, 0, 0], "the reserve lost more than the limit after two units");
        let mut cell = cell;
        cell.write(1, 20);
        let stopping = cell.stopping.clone();
        let stop = |_: &ChangedUnit| {
            stopping.set();
            Ok(0)
        };
        assert_eq!(cell.tried(stop), [1]);
        cell.state.volume.close().unwrap();
    }

    #[test]
    fn a_failed_unit_is_left_out_until_it_changes_and_others_follow() {
        let mut cell = Changed::new();
        let fails = |unit: &ChangedUnit| match unit.au.index() {
            2 => panic!("simulated"),
            1 => Err(Error::new(ErrorKind::Corrupt, "simulated").into()),
            _ => Err(Error::new(ErrorKind::NoSpace, "simulated").into()),
        };
        assert_eq!(cell.tried(fails), [2, 1, 0]);
        assert_eq!(cell.tried(|_| Ok(0)), [0], "a unit without space is tried again");
        cell.write(2, 41);
        assert_eq!(cell.tried(|_| Ok(0)), [2, 0]);
        // Policies and backends compress the failed unit all the same.
        cell.write(1, AU_PAGES as usize / 2);
        assert_eq!(cell.tried(fails), [1, 2, 0]);
        let due = due_units(&cell.state, &cell.units(), Level::QueryHigh as u8, 0).unwrap();
        assert_eq!(due.units.iter().map(|unit| unit.first / AU_PAGES).collect::<Vec<_>>(), [1, 2]);
        cell.state.volume.close().unwrap();
    }

    #[test]
    fn pauses_are_at_least_as_long_as_the_work_before() {
        let secs = Duration::from_secs;
        let mut pace = Pace::default();
        assert_eq!([1, 1, 1, 5].map(|work| pace.pause_after(secs(work))), [0, 2, 0, 6].map(secs));
        pace.pause_after(secs(1));
        assert_eq!(pace.pause_between(Duration::ZERO), secs(1));
        assert_eq!(pace.pause_between(INTERVAL), INTERVAL);
    }
}
