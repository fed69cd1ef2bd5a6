//! The scrub: reads all copies of everything in the background, repairs damaged ones, and lists what it cannot repair.
//!
//! A scrub has no state on the disks. If the cell stops, the scrub ends, and the next scrub starts from the beginning.
//! Reads and writes go on: a scrub locks out the changes of a copy set only while it repairs a range.

use super::pages::{CheckedFile, is_in_unit, range_of};
use super::{Ino, Volume};
use crate::disk::{Check, Condition, FileStore, Stream};
use crate::error::{Context, Error, ErrorKind, Result};
use crate::file::{FileData, PAGE};
use crate::meta::Contents;
use crate::now;
use crate::request::{Origin, within};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Bytes of a range that is examined at once.
const PIECE: u64 = 1 << 20;
/// Maximum number of findings that a report lists.
const FINDINGS_MAX: usize = 1000;
/// Metadata of all disks together that are copied to memory. Transactions wait while larger ones are verified.
const SNAPSHOT_BYTES_MAX: u64 = 256 << 20;
/// Maximum time until a scrub that waits because of its rate stops.
const STOP_LATENCY: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScrubState {
    Running,
    Done,
    /// The operator, or a stop of the cell, ended the scrub.
    Stopped,
}

impl ScrubState {
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "RUNNING",
            Self::Done => "DONE",
            Self::Stopped => "STOPPED",
        }
    }
}

/// Damage that the scrub could not repair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScrubFinding {
    /// The file, below the root of the volume.
    pub path: String,
    /// Which bytes of the file, or which other object.
    pub place: String,
    pub problem: String,
}

/// What a scrub has done so far.
#[derive(Debug, Clone)]
pub struct ScrubReport {
    pub state: ScrubState,
    /// In nanoseconds since 1970.
    pub started: i64,
    pub ended: Option<i64>,
    /// Maximum bytes per second that are read, of all disks together; 0 for no limit.
    pub rate: u64,
    pub files_total: u64,
    pub files_done: u64,
    /// Estimated when the scrub starts.
    pub bytes_total: u64,
    /// Bytes read from disks, without holes.
    pub bytes_read: u64,
    /// Ranges of which damaged copies were rewritten.
    pub repaired: u64,
    /// Damage that could not be repaired; `findings` lists the first.
    pub unrepaired: u64,
    pub findings: Vec<ScrubFinding>,
}

/// The scrub of a volume: at most one at a time.
#[derive(Debug, Default)]
pub(super) struct Scrub {
    /// Of the present or the last scrub since the volume was opened.
    report: Mutex<Option<ScrubReport>>,
    stop: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// A part of the work.
enum Item {
    /// The backing file of an inode on one stripe.
    Data(u16, Ino),
    RedoLog(u16, Ino, Stream),
    /// The compression units of an inode.
    Units(Ino),
}

impl Item {
    fn ino(&self) -> Ino {
        match self {
            Self::Data(_, ino) | Self::RedoLog(_, ino, _) | Self::Units(ino) => *ino,
        }
    }
}

impl Volume {
    /// Starts a scrub that reads at most `rate` bytes per second; 0 sets no limit.
    pub fn start_scrub(self: &Arc<Self>, rate: u64) -> Result<()> {
        let mut thread = self.scrub.thread.lock();
        if thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
            let message = "a scrub is running; wait for its end, or stop it with: cellar group scrub --stop";
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        self.scrub.stop.store(false, Ordering::Release);
        *self.scrub.report.lock() = Some(ScrubReport {
            state: ScrubState::Running,
            started: now(),
            ended: None,
            rate,
            files_total: 0,
            files_done: 0,
            bytes_total: 0,
            bytes_read: 0,
            repaired: 0,
            unrepaired: 0,
            findings: Vec::new(),
        });
        let volume = self.clone();
        let spawned = std::thread::Builder::new()
            .name("scrub".into())
            .spawn(move || within(Origin::CELL, || volume.run_scrub(rate)));
        *thread = Some(spawned.context(|| "could not start thread scrub".into())?);
        Ok(())
    }

    /// Ends the scrub, and waits until it has ended.
    pub fn stop_scrub(&self) {
        self.scrub.stop.store(true, Ordering::Release);
        if let Some(thread) = self.scrub.thread.lock().take()
            && thread.join().is_err()
        {
            log::error!("the scrub panicked");
        }
    }

    /// Returns what the present or the last scrub has done; None if there was none since the volume was opened.
    pub fn scrub_report(&self) -> Option<ScrubReport> {
        self.scrub.report.lock().clone()
    }

    fn run_scrub(&self, rate: u64) {
        log::info!("scrub of the disk group begins");
        let mut run = Run { volume: self, rate, started: Instant::now(), read_bytes: 0 };
        let work = std::panic::AssertUnwindSafe(|| run.everything());
        if std::panic::catch_unwind(work).is_err() {
            run.finding("", "scrub", "a panic ended the scrub; see the cell's log");
        }
        let mut report = self.scrub.report.lock();
        let Some(report) = report.as_mut() else { return };
        report.state = if self.scrub.stop.load(Ordering::Acquire) { ScrubState::Stopped } else { ScrubState::Done };
        report.ended = Some(now());
        let (state, files, bytes) = (report.state.name(), report.files_done, report.bytes_read);
        let (repaired, unrepaired) = (report.repaired, report.unrepaired);
        let level = if unrepaired > 0 { log::Level::Error } else { log::Level::Info };
        log::log!(
            level,
            "scrub of the disk group: {state}; {files} files, {bytes} bytes read, {repaired} ranges repaired, \
             {unrepaired} damaged and not repaired"
        );
    }
}

/// A running scrub.
struct Run<'a> {
    volume: &'a Volume,
    rate: u64,
    started: Instant,
    read_bytes: u64,
}

impl Run<'_> {
    fn is_stopped(&self) -> bool {
        self.volume.scrub.stop.load(Ordering::Acquire)
    }

    fn report(&self, change: impl FnOnce(&mut ScrubReport)) {
        if let Some(report) = self.volume.scrub.report.lock().as_mut() {
            change(report);
        }
    }

    fn finding(&self, path: &str, place: impl Into<String>, problem: impl Into<String>) {
        let finding = ScrubFinding { path: path.to_owned(), place: place.into(), problem: problem.into() };
        log::error!("scrub: {} {}: {}", finding.path, finding.place, finding.problem);
        self.report(|report| {
            report.unrepaired += 1;
            if report.findings.len() < FINDINGS_MAX {
                report.findings.push(finding);
            }
        });
    }

    fn everything(&mut self) {
        self.metadata();
        let items = self.list();
        for item in items {
            if self.is_stopped() {
                return;
            }
            self.item(&item);
            self.report(|report| report.files_done += 1);
        }
    }

    /// Lists the files, and estimates the bytes to read.
    fn list(&self) -> Vec<Item> {
        let (mut items, mut inodes, mut bytes) = (Vec::new(), BTreeSet::new(), 0);
        for (stripe, disk) in self.volume.group.stripes().iter().enumerate() {
            let stripe = stripe as u16;
            let copies = self.volume.disks_of(stripe).len() as u64;
            match disk.backing_files() {
                Ok(files) => {
                    for (ino, stream) in files {
                        bytes += disk.measure(ino, stream).map_or(0, |(_, allocated)| allocated * copies);
                        match stream {
                            Stream::Data => items.push(Item::Data(stripe, ino)),
                            Stream::Units => drop(inodes.insert(ino)),
                            Stream::Redo0 | Stream::Redo1 => items.push(Item::RedoLog(stripe, ino, stream)),
                        }
                    }
                }
                Err(error) => self.finding("", format!("cell disk {}", disk.path().display()), error.to_string()),
            }
        }
        items.extend(inodes.into_iter().map(Item::Units));
        self.report(|report| (report.files_total, report.bytes_total) = (items.len() as u64, bytes));
        items
    }

    fn item(&mut self, item: &Item) {
        // A file that is not in the namespace was removed.
        let Ok(file) = self.volume.file(item.ino()) else { return };
        let path = self.volume.path_of(item.ino()).unwrap_or_else(|| "an unlinked file".into());
        let result = match item {
            Item::Data(stripe, _) => self.data(&file, &path, *stripe),
            Item::RedoLog(stripe, ino, stream) => {
                let stripe = &self.volume.group.stripes()[usize::from(*stripe)];
                self.redo_log(stripe, &path, *ino, *stream)
            }
            Item::Units(_) => self.units(&file, &path),
        };
        if let Err(error) = result
            && self.volume.file(item.ino()).is_ok()
        {
            self.finding(&path, "", error.to_string());
        }
    }

    /// Counts what was read, and waits as the rate requires.
    fn pace(&mut self, bytes: u64) {
        self.read_bytes += bytes;
        self.report(|report| report.bytes_read += bytes);
        if self.rate == 0 {
            return;
        }
        let due = self.started + Duration::from_secs_f64(self.read_bytes as f64 / self.rate as f64);
        while !self.is_stopped() {
            match due.checked_duration_since(Instant::now()) {
                Some(left) if !left.is_zero() => std::thread::sleep(left.min(STOP_LATENCY)),
                _ => break,
            }
        }
    }

    fn count(&self, path: &str, place: impl FnOnce() -> String, condition: Condition) {
        match condition {
            Condition::Sound => {}
            Condition::Repaired => self.report(|report| report.repaired += 1),
            Condition::Differ => self.finding(path, place(), "the copies differ, and nothing tells which one is right"),
            Condition::Damaged => self.finding(path, place(), "all copies are damaged"),
        }
    }

    fn data(&mut self, file: &FileData, path: &str, stripe: u16) -> Result<()> {
        let checked = self.volume.checked_file(file.ino);
        let size = file.size()?;
        for start in (0..size).step_by(PIECE as usize) {
            if self.is_stopped() {
                break;
            }
            if file.layout.disks[file.layout.disk_index(start)] != stripe {
                continue;
            }
            let range = start..size.min(start + PIECE);
            let is_valid = |bytes: &[u8]| checked.as_ref().is_none_or(|checked| checked.are_valid(start, bytes));
            let examined = file.examine(&range, &Check::new(&is_valid))?;
            self.pace(examined.read_bytes);
            if !examined.is_sound {
                self.pages(file, path, checked.as_ref(), range)?;
            }
        }
        Ok(())
    }

    /// Repairs the pages of a range of which a copy is damaged, or that was changed meanwhile.
    fn pages(&self, file: &FileData, path: &str, checked: Option<&CheckedFile<'_>>, range: Range<u64>) -> Result<()> {
        for page in range.start / PAGE..range.end.div_ceil(PAGE) {
            let bytes = range_of(page).start..range_of(page).end.min(range.end);
            // A raw page below a compression unit is outdated; of a torn block, a part is missing.
            let is_checked =
                bytes.end == range_of(page).end && !is_in_unit(file, page) && !file.torn_blocks.any_in(&range_of(page));
            let condition = match checked.filter(|_| is_checked) {
                Some(checked) => checked.repair(file, page)?,
                None => file.repair(&bytes, &Check::new(&|_| true))?,
            };
            self.count(path, || format!("bytes {} to {}", bytes.start, bytes.end), condition);
        }
        Ok(())
    }

    fn redo_log(&mut self, stripe: &Arc<dyn FileStore>, path: &str, ino: Ino, stream: Stream) -> Result<()> {
        let failed = || format!("could not read the redo log of {path}");
        let Some(file) = stripe.open(ino, stream, false).context(failed)? else { return Ok(()) };
        let (length, any) = (file.len().context(failed)?, Check::new(&|_| true));
        for start in (0..length).step_by(PIECE as usize) {
            let range = start..length.min(start + PIECE);
            let examined = file.examine(&range, &any).context(failed)?;
            self.pace(examined.read_bytes);
            if !examined.is_sound {
                let condition = file.repair(&range, &any).context(failed)?;
                self.count(path, || format!("redo log, bytes {} to {}", range.start, range.end), condition);
            }
        }
        Ok(())
    }

    fn units(&mut self, file: &FileData, path: &str) -> Result<()> {
        let Some(units) = file.units() else { return Ok(()) };
        for au in units.aus() {
            if self.is_stopped() {
                break;
            }
            // The file keeps the slot of a unit that is replaced meanwhile, so no other unit is kept during the scrub.
            let Some(extent) = units.extent(au) else { continue };
            let (condition, read_bytes) = extent.stored.scrub()?;
            self.pace(read_bytes);
            self.count(path, || extent.stored.describe(), condition);
        }
        Ok(())
    }

    /// Compares the metadata of all disks, and rewrites those that are damaged.
    fn metadata(&self) {
        let disks = self.volume.disks();
        let place = |disk: usize| format!("metadata of cell disk {}", disks[disk].path().display());
        let stripe_count = self.volume.group.stripes().len();
        let snapshot = self.volume.stores.lock().snapshot(SNAPSHOT_BYTES_MAX);
        let copies = match snapshot {
            Some(snapshot) => snapshot.verify(stripe_count),
            None => self.volume.stores.lock().verify(stripe_count),
        };
        let good: Vec<_> = copies.iter().filter_map(|(disk, copy)| Some((*disk, copy.as_ref().ok()?))).collect();
        for (disk, error) in copies.iter().filter_map(|(disk, copy)| Some((*disk, copy.as_ref().err()?))) {
            let repaired = match good.is_empty() {
                true => Err(error.clone()),
                false => self.volume.stores.lock().replace(disk, &disks[disk], stripe_count),
            };
            match repaired {
                Ok(()) => {
                    log::warn!("{error}; rewrote the metadata from another disk's copy");
                    self.report(|report| report.repaired += 1);
                }
                Err(error) => self.finding("", place(disk), error.to_string()),
            }
        }
        let Some((newest, (generation, contents))) = good.iter().max_by_key(|(_, (generation, _))| *generation) else {
            return;
        };
        // A disk that failed the last transaction has an older generation until the next one.
        let differs = |copy: &&(usize, &(Option<u64>, Contents))| copy.1.0 == *generation && copy.1.1 != *contents;
        for (disk, _) in good.iter().filter(differs) {
            self.finding("", place(*disk), format!("it differs from the {}", place(*newest)));
        }
    }
}
