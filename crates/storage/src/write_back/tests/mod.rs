//! Files of one stripe with a write-back log, on disks in memory that crash, break and hold operations.
//!
//! The units of the model are sectors of 4 KiB, two to a page. All bytes of a sector are those of one number, that of the
//! change that wrote the sector; zeros have number 0.

mod crashes;
mod failures;
mod model;
mod races;
mod rules;
mod threads;

#[path = "../../../tests/support/breakable_disk.rs"]
#[allow(dead_code)]
pub(crate) mod breakable_disk;
#[path = "../../../tests/support/memory_disk.rs"]
#[allow(dead_code)]
mod memory_disk;
#[path = "../../../tests/support/random.rs"]
#[allow(dead_code)]
mod random;

use super::{Left, WriteBack, WriteBackDisk, WriteBackOptions};
use crate::disk::{Disk, DiskFile, FileStamp, FileStore, Stream, WatchedDisk};
use crate::error::Result;
use crate::flash::{CellDisks, FlashCache, FlashOptions, Object};
use crate::request::{IoKind, Origin, within};
use breakable_disk::{BreakableDisk, Breaker};
use memory_disk::{Crash, MemoryDisks};
use parking_lot::Mutex;
use random::Random;
use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const SECTOR: u64 = 4096;
const PAGE: u64 = 8192;
/// Writes of this file are redo if the log takes it.
const REDO: u64 = 22;
/// Three records of one page.
const SEGMENT: u64 = 40 << 10;

const OPTIONS: WriteBackOptions = WriteBackOptions {
    size: 8 * SEGMENT,
    segment_bytes: SEGMENT,
    allows_one_disk: true,
    takes_redo: false,
    destages_in_background: false,
};

/// An operation on a file of the cell disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    Write {
        start: u64,
        end: u64,
    },
    Sync,
    /// After the sync.
    Synced,
}

type Hook = Arc<dyn Fn(u64, Operation) -> io::Result<()> + Send + Sync>;

/// Called for each operation on a file of the cell disk, with the inode number.
#[derive(Clone, Default)]
struct Hooks(Arc<Mutex<Option<Hook>>>);

impl std::fmt::Debug for Hooks {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Hooks")
    }
}

impl Hooks {
    fn set(&self, hook: impl Fn(u64, Operation) -> io::Result<()> + Send + Sync + 'static) {
        *self.0.lock() = Some(Arc::new(hook));
    }

    fn clear(&self) {
        *self.0.lock() = None;
    }

    fn call(&self, ino: u64, operation: Operation) -> io::Result<()> {
        let hook = self.0.lock().clone();
        hook.map_or(Ok(()), |hook| hook(ino, operation))
    }
}

/// The cell disk as a stripe. Sectors of zeros are holes.
#[derive(Debug)]
struct HookedStripe {
    disk: Arc<dyn Disk>,
    hooks: Hooks,
}

#[derive(Debug)]
struct HookedFile {
    file: Arc<dyn DiskFile>,
    ino: u64,
    hooks: Hooks,
}

impl FileStore for HookedStripe {
    fn path(&self) -> &Path {
        self.disk.path()
    }
    fn open(&self, ino: u64, stream: Stream, create: bool) -> io::Result<Option<Arc<dyn DiskFile>>> {
        let file = self.disk.open(ino, stream, create)?;
        Ok(file.map(|file| Arc::new(HookedFile { file, ino, hooks: self.hooks.clone() }) as Arc<dyn DiskFile>))
    }
    fn measure(&self, ino: u64, stream: Stream) -> io::Result<(u64, u64)> {
        self.disk.measure(ino, stream)
    }
    fn stamp(&self, ino: u64, stream: Stream) -> io::Result<Option<FileStamp>> {
        self.disk.stamp(ino, stream)
    }
    fn remove(&self, ino: u64, stream: Stream) -> io::Result<()> {
        self.disk.remove(ino, stream)
    }
    fn sync_name(&self, ino: u64) -> io::Result<()> {
        self.disk.sync_name(ino)
    }
    fn backing_files(&self) -> io::Result<Vec<(u64, Stream)>> {
        self.disk.backing_files()
    }
    fn sync_everything(&self) -> io::Result<()> {
        self.disk.sync_everything()
    }
    fn has_copies(&self) -> bool {
        false
    }
    fn write_waits(&self, _: u64, _: Stream, _: &Range<u64>) -> bool {
        false
    }
}

impl DiskFile for HookedFile {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buffer, offset)
    }
    fn read_direct(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_direct(buffer, offset)
    }
    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.hooks.call(self.ino, Operation::Write { start: offset, end: offset + data.len() as u64 })?;
        self.file.write_at(data, offset)
    }
    fn set_len(&self, length: u64) -> io::Result<()> {
        self.file.set_len(length)
    }
    fn allocate(&self, offset: u64, length: u64, keep_size: bool) -> io::Result<()> {
        self.file.allocate(offset, length, keep_size)
    }
    fn punch(&self, offset: u64, length: u64) -> io::Result<()> {
        self.file.punch(offset, length)
    }
    fn is_hole(&self, offset: u64, length: u64) -> io::Result<bool> {
        let mut bytes = vec![0; length as usize];
        self.file.read_at(&mut bytes, offset)?;
        Ok(bytes == vec![0; length as usize])
    }
    fn sync(&self) -> io::Result<()> {
        self.hooks.call(self.ino, Operation::Sync)?;
        self.file.sync()?;
        self.hooks.call(self.ino, Operation::Synced)
    }
}

/// The cell disk. Not accessible while the flag is set.
#[derive(Debug)]
struct Group(Arc<dyn Disk>, Arc<AtomicBool>);

impl CellDisks for Group {
    fn accessible(&self) -> Vec<(usize, Arc<dyn Disk>)> {
        if self.1.load(Ordering::SeqCst) { Vec::new() } else { vec![(0, self.0.clone())] }
    }
    fn fail(&self, _: usize, error: &io::Error) -> io::Result<()> {
        Err(io::Error::new(error.kind(), error.to_string()))
    }
}

/// Whether a start has each of the flash disks.
type Present = [bool; 2];
const BOTH: Present = [true; 2];

/// The hardware: a cell disk and two flash disks.
#[derive(Clone)]
struct Machine {
    disks: MemoryDisks,
    breakers: [Breaker; 2],
    hooks: Hooks,
    /// Notes cannot be written.
    refuses_notes: Arc<AtomicBool>,
    takes_redo: bool,
    /// Time limit of the operations of the flash disks.
    timeout: Option<Duration>,
    /// For the settings of files only.
    cache: Arc<FlashCache>,
}

/// A process that uses the disks.
struct Cell {
    write_back: Arc<WriteBack>,
    store: WriteBackDisk,
    takes_redo: bool,
}

impl Machine {
    fn new() -> Self {
        let mut disks = MemoryDisks::new(2).disks();
        let options = FlashOptions {
            disks: disks.split_off(1),
            size: Some(FlashOptions::SEGMENTS_MIN * SEGMENT),
            columnar_bytes: 0,
            segment_bytes: SEGMENT,
            fills_in_background: false,
            timeout: None,
        };
        let cache =
            FlashCache::open(&options, Arc::new(Group(disks.remove(0), Arc::default())), true).unwrap().unwrap();
        let (disks, breakers) = (MemoryDisks::new(3), [Breaker::new(), Breaker::new()]);
        let (hooks, refuses_notes, takes_redo) = (Hooks::default(), Arc::default(), false);
        Self { disks, breakers, hooks, refuses_notes, takes_redo, timeout: None, cache }
    }

    fn taking_redo() -> Self {
        Self { takes_redo: true, ..Self::new() }
    }

    /// Returns the machine with the power on after a crash, with intact flash disks and without a hook.
    fn crash(&self, crash: Crash, random: &mut Random) -> Self {
        let disks = self.disks.crash(crash, random);
        let breakers = [Breaker::new(), Breaker::new()];
        let (hooks, refuses_notes, takes_redo) = (Hooks::default(), Arc::default(), self.takes_redo);
        Self { disks, breakers, hooks, refuses_notes, takes_redo, timeout: None, cache: self.cache.clone() }
    }

    fn group(&self) -> Arc<dyn CellDisks> {
        Arc::new(Group(self.cell_disk(), self.refuses_notes.clone()))
    }

    /// Lets the log write to both flash disks at the same time, in two threads.
    fn write_at_once(&self) {
        self.breakers.iter().for_each(Breaker::let_writes_wait);
    }

    /// Returns the files that a forced start without flash disks names.
    fn lacking(&self) -> BTreeSet<u64> {
        let left = Left::read(&[], self.group().as_ref(), true).unwrap();
        let lacking = left.lacking().cloned().unwrap_or_default();
        assert!(lacking.is_complete || left.lacking().is_none());
        lacking.inodes.into_iter().chain(lacking.has_redo.then_some(REDO)).collect()
    }

    /// Returns the numbers of sectors, and the length, that a file has on the cell disk.
    fn read_below(&self, ino: u64, sectors: &Range<usize>) -> (Vec<u32>, u64) {
        let file = self.cell_disk().open(ino, Stream::Data, false).unwrap().expect("the file exists");
        (read_sectors(file.as_ref(), sectors).unwrap(), file.len().unwrap())
    }

    fn cell_disk(&self) -> Arc<dyn Disk> {
        self.disks.disks().remove(0)
    }

    /// Starts a process. `known` are the inodes that the metadata have.
    fn start(&self, present: Present, known: &[u64]) -> Result<Cell> {
        let disk = self.cell_disk();
        let of_disk = |error: io::Error| crate::Error::new(crate::ErrorKind::Io, error.to_string());
        disk.sync_everything().map_err(of_disk)?;
        let files = disk.backing_files().map_err(of_disk)?;
        for (ino, stream) in files.into_iter().filter(|(ino, _)| !known.contains(ino)) {
            disk.remove(ino, stream).map_err(of_disk)?;
        }
        let breakable = |(inner, breaker): (_, &Breaker)| {
            let disk: Arc<dyn Disk> = Arc::new(BreakableDisk { inner, breaker: breaker.clone() });
            match self.timeout {
                Some(timeout) => Arc::new(WatchedDisk::new(disk, Arc::default(), timeout)),
                None => disk,
            }
        };
        let flash = self.disks.disks().split_off(1).into_iter().zip(&self.breakers).map(breakable);
        let flash: Vec<_> = flash.zip(present).filter(|(_, present)| *present).map(|(disk, _)| disk).collect();
        let cell_disks = self.group();
        let left = Left::read(&flash, cell_disks.as_ref(), false)?;
        let write_back = Arc::new(WriteBack::new(self.cache.clone()));
        let stripe: Arc<dyn FileStore> = Arc::new(HookedStripe { disk, hooks: self.hooks.clone() });
        let store = WriteBackDisk::new(stripe.clone(), 0, write_back.clone());
        let is_known = |object: Object| known.contains(&object.ino);
        left.apply(Some(&write_back), &[stripe], (&flash, cell_disks.as_ref()), is_known)?;
        let takes_redo = self.takes_redo;
        write_back.start(&WriteBackOptions { takes_redo, ..OPTIONS }, &flash, &cell_disks)?;
        Ok(Cell { write_back, store, takes_redo })
    }

    /// Starts a process after a crash. A start must not make a file longer: the space may belong to other files now.
    fn start_after_crash(&self, present: Present, known: &[u64]) -> Result<Cell> {
        let disk = self.cell_disk();
        self.hooks.set(move |ino, operation| match operation {
            Operation::Write { end, .. } if end > disk.measure(ino, Stream::Data)?.0 => {
                Err(io::Error::from_raw_os_error(libc::ENOSPC))
            }
            _ => Ok(()),
        });
        let cell = self.start(present, known);
        self.hooks.clear();
        cell
    }
}

impl Cell {
    fn create(&self, ino: u64) -> io::Result<()> {
        self.store.open(ino, Stream::Data, true)?;
        self.store.sync_name(ino)
    }

    fn file(&self, ino: u64) -> io::Result<Arc<dyn DiskFile>> {
        Ok(self.store.open(ino, Stream::Data, false)?.expect("the file exists"))
    }

    fn write(&self, ino: u64, sectors: &Range<usize>, number: u32) -> io::Result<()> {
        let write = || self.file(ino)?.write_at(&bytes_of(number, sectors.len()), sectors.start as u64 * SECTOR);
        within(self.origin(ino), write)
    }

    fn origin(&self, ino: u64) -> Origin {
        let kind = if self.takes_redo && ino == REDO { IoKind::Redo } else { IoKind::default() };
        Origin { kind, ..Origin::default() }
    }

    /// Returns the numbers of sectors, 0 beyond the end of the file.
    fn read(&self, ino: u64, sectors: &Range<usize>) -> io::Result<Vec<u32>> {
        read_sectors(self.file(ino)?.as_ref(), sectors)
    }

    fn dirty_pages(&self) -> u64 {
        self.write_back.stats().dirty_bytes / PAGE
    }
}

fn read_sectors(file: &dyn DiskFile, sectors: &Range<usize>) -> io::Result<Vec<u32>> {
    let mut bytes = vec![0; sectors.len() * SECTOR as usize];
    let count = file.read_at(&mut bytes, sectors.start as u64 * SECTOR)?;
    bytes[count..].fill(0);
    Ok(bytes.chunks_exact(SECTOR as usize).map(number_of).collect())
}

fn bytes_of(number: u32, sectors: usize) -> Vec<u8> {
    number.to_le_bytes().repeat(sectors * SECTOR as usize / 4)
}

fn number_of(sector: &[u8]) -> u32 {
    assert!(sector[4..] == sector[..sector.len() - 4], "a sector has bytes of several changes");
    u32::from_le_bytes(*sector.first_chunk().expect("four bytes"))
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Returns whether tests try more histories than usual.
fn is_long() -> bool {
    number("LONG") == Some(1)
}

/// Returns the seeds of histories: that of the environment variable SEED, or as many as given.
fn seeds_up_to(count: u64) -> Range<u64> {
    number("SEED").map_or(0..count, |seed| seed..seed + 1)
}

/// Returns the sectors of pages.
fn of_pages(pages: Range<usize>) -> Range<usize> {
    2 * pages.start..2 * pages.end
}
