//! Free space on the cell disks, and the reserve that lets checkpoints and crash recovery finish on a full disk.
//!
//! A write to a page of a compression unit needs new space although the page exists: the new page is stored raw, beside
//! the unit. A client that cannot refuse such a write (a database that writes a checkpoint) must never find the disk
//! full. Therefore each disk keeps a reserve, and every request for space has a [`SpacePriority`]: files stop growing
//! while the whole reserve is still free. The last part of the reserve is left for metadata, so that files can be
//! removed from a full disk.
//!
//! The reserve is allocated in the disk's [`ReserveFile`], so that no other program can use it up. Free space, in this
//! module, includes the reserve file.
//!
//! Measuring a disk and shortening its reserve file may wait for the disk. [`FreeSpace::is_ample`] never waits: it
//! compares a request with the last measurement, from which the requests since then are subtracted.

use super::reserve_file::ReserveFile;
use crate::disk::{Disk, Space};
use crate::error::{Context, Error, ErrorKind, Result};
use crate::growing::Growing;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// With this much more space than a request needs, in bytes, a recent measurement suffices.
const AMPLE: u64 = 256 << 20;
/// Maximum age of a measurement. The maintenance thread measures once a second. Other programs may use up the measured
/// space meanwhile: a request that then fails discards the measurement ([`FreeSpace::release`]).
const AGE_MAX: Duration = Duration::from_secs(2);
/// Bytes on every disk that only metadata may use, at most a sixteenth of the disk.
const METADATA_BYTES: u64 = 16 << 20;
/// Bytes that a metadata transaction, or the filesystem itself, may need beside the bytes of a request. Another program may
/// use up space that the cell takes from the reserve file but does not need, so the margin is small.
const MARGIN: u64 = 1 << 20;
const NEVER: u64 = u64::MAX;
/// Names all disks: bit n of disk n.
pub const ALL_DISKS: u64 = u64::MAX;

/// How much of the reserve a request may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum SpacePriority {
    /// Grows files while the whole reserve is free, and overwrites pages of compression units while half of the reserve
    /// is free.
    #[default]
    Normal,
    /// May use three quarters of the reserve.
    High,
    /// May use the reserve except for the part for metadata and for a new compression unit.
    Highest,
    /// Frees more space than it needs: may use the reserve, and half of the part for metadata.
    Freeing,
}

/// New space that a request needs, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// For bytes that the file does not have yet.
    Growth(u64),
    /// For a new copy of existing bytes: an overwrite of pages in compression units, or a new compression unit.
    Overwrite(u64),
}

impl Need {
    pub fn bytes(self) -> u64 {
        match self {
            Need::Growth(bytes) | Need::Overwrite(bytes) => bytes,
        }
    }
}

/// The space of one cell disk, in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskSpace {
    pub path: PathBuf,
    pub total: u64,
    /// Free space beyond the reserve: bytes by which files may grow.
    pub available: u64,
    /// Size of the reserve.
    pub reserve: u64,
    /// The part of the reserve that is free.
    pub reserve_free: u64,
}

#[derive(Debug)]
pub struct FreeSpace {
    disks: Growing<Arc<MeasuredDisk>>,
    /// Size of the reserve of each disk in bytes.
    reserve: u64,
    /// Bytes that a new compression unit needs at most.
    unit_bytes: u64,
    /// When all accessible disks were measured, after `started`.
    measured_ms: AtomicU64,
    started: Instant,
}

#[derive(Debug)]
struct MeasuredDisk {
    disk: Arc<dyn Disk>,
    reserve_file: ReserveFile,
    /// Bytes of the disk at the last measurement that succeeded; 0 before.
    total: AtomicU64,
    /// Bytes by which files may grow at the last measurement, minus the bytes of the requests since then.
    available: AtomicU64,
    /// The disk left the group.
    has_left: AtomicBool,
}

impl MeasuredDisk {
    fn new(disk: &Arc<dyn Disk>, reserve_file: ReserveFile) -> Arc<Self> {
        let [total, available] = [const { AtomicU64::new(0) }; 2];
        Arc::new(Self { disk: disk.clone(), reserve_file, total, available, has_left: AtomicBool::new(false) })
    }

    /// Returns the disk's space as the filesystem reports it, and the bytes that are free including the reserve file.
    fn measure(&self) -> Result<(Space, u64)> {
        let path = self.disk.path().display();
        let space = self.disk.space().context(|| format!("could not determine the free space of cell disk {path}"))?;
        Ok((space, space.available + self.reserve_file.length()))
    }

    /// Remembers a measurement.
    fn store(&self, space: &Space, growth: u64) {
        self.total.store(space.total, Ordering::Relaxed);
        self.available.store(growth, Ordering::Relaxed);
    }
}

impl FreeSpace {
    /// Manages the space of `disks`, each with a reserve of `reserve` bytes. A new compression unit needs at most `unit_bytes`.
    pub fn new(disks: &[Arc<dyn Disk>], reserve: u64, unit_bytes: u64) -> Self {
        let measured = |disk| MeasuredDisk::new(disk, ReserveFile::open(disk, reserve));
        Self { unit_bytes, ..Self::on(disks.iter().map(measured).collect(), reserve) }
    }

    /// Reports the space of disks that do not change.
    pub fn read_only(disks: &[Arc<dyn Disk>]) -> Self {
        Self::on(disks.iter().map(|disk| MeasuredDisk::new(disk, ReserveFile::absent(disk))).collect(), 0)
    }

    fn on(disks: Vec<Arc<MeasuredDisk>>, reserve: u64) -> Self {
        let measured_ms = AtomicU64::new(NEVER);
        Self { disks: Growing::new(disks), reserve, unit_bytes: 0, measured_ms, started: Instant::now() }
    }

    /// Manages another disk. The reserve file of a disk that is offline is opened by [`Self::reopen`].
    pub fn add(&self, disk: &Arc<dyn Disk>) {
        let reserve_file = match disk.is_accessible() {
            true => ReserveFile::open(disk, self.reserve),
            false => ReserveFile::closed(disk, self.reserve),
        };
        let added = MeasuredDisk::new(disk, reserve_file);
        if disk.is_accessible()
            && let Ok((space, free)) = added.measure()
        {
            added.store(&space, self.growth(&space, free));
        }
        self.disks.push(added);
    }

    /// Removes the reserve file of a disk that has left.
    pub fn remove_reserve(&self, number: usize, engine: &dyn Disk) {
        self.disks.all()[number].reserve_file.remove(engine);
    }

    /// Ends the use of a disk.
    pub fn remove(&self, number: usize) {
        self.disks.all()[number].has_left.store(true, Ordering::Release);
    }

    /// Returns an error of kind `NoSpace` if one of the disks that a request writes to, bit n of disk n, has too little free space
    /// for a request of this priority. Shortens reserve files if the request needs their space.
    pub fn check(&self, need: Need, priority: SpacePriority, disks: u64) -> Result<()> {
        let bytes_on = |disk: usize| if disks >> disk & 1 == 1 { need.bytes() } else { 0 };
        self.check_each(need, priority, bytes_on)
    }

    /// Works like [`Self::check`] for a request that grows a file by `bytes` on each disk, by disk number.
    pub fn check_growth(&self, bytes: &[u64], priority: SpacePriority) -> Result<()> {
        // A disk that has joined since then has nothing of the request.
        let bytes_on = |disk: usize| bytes.get(disk).copied().unwrap_or(0);
        self.check_each(Need::Growth(bytes.iter().sum()), priority, bytes_on)
    }

    fn check_each(&self, need: Need, priority: SpacePriority, bytes_on: impl Fn(usize) -> u64) -> Result<()> {
        if self.is_ample_on_each(&bytes_on) {
            return Ok(());
        }
        for (number, disk, space, free) in self.measure()? {
            let (bytes, floor) = (bytes_on(number), self.floor(need, priority, &space));
            if bytes == 0 {
                continue;
            }
            if free.saturating_sub(floor) < bytes {
                let message = format!(
                    "cannot allocate {bytes} bytes: cell disk {} has {free} bytes free, of which {floor} are reserved",
                    disk.disk.path().display()
                );
                return Err(Error::new(ErrorKind::NoSpace, message));
            }
            if space.available < bytes + MARGIN {
                disk.reserve_file.release(bytes + MARGIN - space.available);
            }
        }
        Ok(())
    }

    fn numbered(&self) -> impl Iterator<Item = (usize, &MeasuredDisk)> {
        let disks = self.disks.all().iter().map(AsRef::as_ref).enumerate();
        disks.filter(|(_, disk): &(usize, &MeasuredDisk)| {
            disk.disk.is_accessible() && !disk.has_left.load(Ordering::Acquire)
        })
    }

    fn accessible(&self) -> impl Iterator<Item = &MeasuredDisk> {
        self.numbered().map(|(_, disk)| disk)
    }

    /// Calls `work`, which frees space. Then extends the reserve files that are shorter than the reserve by the bytes that became
    /// available meanwhile: another program cannot use these up. Other programs keep the space that they had before.
    ///
    /// A request that shortened a reserve file may find its space taken back; it then fails, and is repeated
    /// ([`super::Volume::with_reserve`]).
    pub fn freeing<T>(&self, work: impl FnOnce() -> T) -> T {
        let available = |disk: &MeasuredDisk| disk.disk.space().ok().map(|space| space.available);
        let before: Vec<_> =
            self.accessible().filter_map(|disk| available(disk).map(|available| (disk, available))).collect();
        let result = work();
        for (disk, before) in before {
            if disk.reserve_file.is_short()
                && let Some(now) = available(disk)
            {
                disk.reserve_file.grow_by(now.saturating_sub(before));
            }
        }
        result
    }

    /// Measures and remembers the space of all accessible disks. Returns the number of each disk, the disk with its space, and its
    /// free bytes including the reserve file.
    fn measure(&self) -> Result<Vec<(usize, &MeasuredDisk, Space, u64)>> {
        let measured_ms = self.elapsed_ms();
        let mut spaces = Vec::new();
        for (number, disk) in self.numbered() {
            match disk.measure() {
                Ok((space, free)) => {
                    disk.store(&space, self.growth(&space, free));
                    spaces.push((number, disk, space, free));
                }
                // The disk went offline meanwhile.
                Err(_) if !disk.disk.is_accessible() => {}
                Err(error) => return Err(error),
            }
        }
        self.measured_ms.store(measured_ms, Ordering::Release);
        Ok(spaces)
    }

    /// Returns whether a recent measurement shows far more space than `bytes` on each of the disks: bit n of disk n. Then `bytes`
    /// count as used on all of them. Never waits.
    pub fn is_ample(&self, bytes: u64, disks: u64) -> bool {
        self.is_ample_on_each(|disk| if disks >> disk & 1 == 1 { bytes } else { 0 })
    }

    fn is_ample_on_each(&self, bytes_on: impl Fn(usize) -> u64) -> bool {
        let measured_ms = self.measured_ms.load(Ordering::Acquire);
        let age_ms = self.elapsed_ms().saturating_sub(measured_ms);
        let is_recent = measured_ms != NEVER && age_ms <= AGE_MAX.as_millis() as u64;
        let take = |disk: &MeasuredDisk, bytes: u64| {
            let rest = |available: u64| (available > bytes.saturating_add(AMPLE)).then(|| available - bytes);
            disk.available.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest).is_ok()
        };
        let mut needed = self.numbered().map(|(number, disk)| (disk, bytes_on(number))).filter(|(_, bytes)| *bytes > 0);
        is_recent && needed.all(|(disk, bytes)| take(disk, bytes))
    }

    /// Returns the bytes by which files may grow on a disk with `free` bytes.
    fn growth(&self, space: &Space, free: u64) -> u64 {
        free.saturating_sub(self.floor(Need::Growth(0), SpacePriority::Normal, space))
    }

    /// Returns an error of kind `NoSpace` if all disks together are smaller than a request. Does not need the disks of the request.
    pub fn check_size(&self, bytes: u64) -> Result<()> {
        let all: u64 = self.accessible().map(|disk| disk.total.load(Ordering::Relaxed)).sum();
        if all > 0 && bytes > all {
            let message = format!("cannot allocate {bytes} bytes: the cell disks together have {all} bytes");
            return Err(Error::new(ErrorKind::NoSpace, message));
        }
        Ok(())
    }

    /// Returns the bytes of each disk, as far as they were measured, and the disks for which `is_full` holds, called with the number of
    /// the disk and the bytes by which files may grow there: bit n of disk n.
    pub fn facts(&self, is_full: impl Fn(usize, u64) -> bool) -> (Vec<u64>, u64) {
        let sizes = self.disks.all().iter().map(|disk| disk.total.load(Ordering::Relaxed)).collect();
        let is_full = |(number, disk): &(usize, &MeasuredDisk)| {
            disk.total.load(Ordering::Relaxed) > 0 && is_full(*number, disk.available.load(Ordering::Relaxed))
        };
        (sizes, self.numbered().filter(is_full).fold(0, |all, (number, _)| all | 1 << number))
    }

    fn elapsed_ms(&self) -> u64 {
        self.started.elapsed().as_millis() as u64
    }

    /// Returns the free bytes that a request must leave on a disk.
    fn floor(&self, need: Need, priority: SpacePriority, space: &Space) -> u64 {
        let metadata = METADATA_BYTES.min(space.total / 16);
        // A new compression unit fits in what all other requests leave. A small reserve leaves at most a quarter for units.
        let units = metadata.max((metadata / 2 + self.unit_bytes).min(self.reserve / 4));
        match (priority, need) {
            (SpacePriority::Normal, Need::Growth(_)) => self.reserve.max(metadata),
            (SpacePriority::Normal, Need::Overwrite(_)) => (self.reserve / 2).max(metadata),
            (SpacePriority::High, _) => (self.reserve / 4).max(metadata),
            (SpacePriority::Highest, _) => units,
            (SpacePriority::Freeing, _) => metadata / 2,
        }
    }

    /// Discards the last measurement and shortens the reserve file of each disk whose filesystem has nearly no free
    /// space, after a request failed although [`Self::check`] had found space. Returns whether the request may succeed now: a
    /// file became shorter, or all disks have space again.
    pub fn release(&self) -> bool {
        self.measured_ms.store(NEVER, Ordering::Release);
        self.shorten_reserve_files()
    }

    fn shorten_reserve_files(&self) -> bool {
        let (mut released, mut full) = (false, false);
        for disk in self.accessible() {
            if disk.disk.space().is_ok_and(|space| space.available < MARGIN) {
                full = true;
                released |= disk.reserve_file.release(MARGIN);
            }
        }
        released || !full
    }

    /// Prepares the disks for a metadata transaction.
    pub fn prepare_commit(&self) {
        if !self.is_ample(MARGIN, ALL_DISKS) {
            self.shorten_reserve_files();
        }
    }

    /// Extends reserve files that are shorter than the reserve, as far as the disks have space, and measures the disks.
    pub fn replenish(&self) {
        self.accessible().for_each(|disk| disk.reserve_file.grow());
        if let Err(error) = self.measure() {
            log::debug!("{error}");
        }
    }

    /// Opens the reserve file of a disk that returned.
    pub fn reopen(&self, disk: usize) {
        self.disks.all()[disk].reserve_file.reopen();
    }

    /// Returns the sums over all disks. `free` includes the reserves, `available` excludes them.
    pub fn totals(&self) -> Result<Space> {
        let mut sum = Space::default();
        for (_, disk, space, free) in self.measure()? {
            sum.total += space.total;
            sum.free += space.free + disk.reserve_file.length();
            sum.available += free.saturating_sub(self.reserve);
            sum.files += space.files;
            sum.files_free += space.files_free;
        }
        Ok(sum)
    }

    /// Returns the space of each disk; zeros for a disk that cannot be measured.
    pub fn by_disk(&self) -> Vec<DiskSpace> {
        let of_disk = |disk: &Arc<MeasuredDisk>| {
            let has_left = disk.has_left.load(Ordering::Acquire);
            let (space, free) = if has_left { Default::default() } else { disk.measure().unwrap_or_default() };
            let (path, reserve) = (disk.disk.path().to_owned(), self.reserve);
            let (available, reserve_free) = (free.saturating_sub(reserve), free.min(reserve));
            DiskSpace { path, total: space.total, available, reserve, reserve_free }
        };
        self.disks.all().iter().map(of_disk).collect()
    }
}
