//! Fills the columnar cache: a thread encodes raw allocation units that scans read again and again, and stores the compression
//! units on the flash disks. Scans never wait for the thread.
//!
//! Invariants: the version of the allocation unit is read before its pages, and the cache returns the unit only while the allocation
//! unit has this version. A unit is stored only if it rebuilds every page, if no block is torn, and if every page has its checksum:
//! scans of the unit return what scans of the pages return.

mod backed;

pub use backed::{BackedByHeap, Unreadable};

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use cellar_format::units::{AuIndex, BLOCK_BYTES, RegionVersion};
use cellar_scan::unit::{Level, Shape, encode, verify};
use cellar_scan::{Grant, page_checksum};
use cellar_storage::request::{Origin, within};
use cellar_storage::{ColumnsStored, Error, ErrorKind, NewColumns, Result, Volume, stored_bytes};

use crate::background::lower_priority;
use crate::compression::MEMORY_AUS;
use crate::compression::throttle::Throttle;
use crate::relation::DiskObject;
use crate::state::{Candidate, CellState, IncompressibleUnits, MemoryKind};

const LEVEL: Level = Level::QueryLow;
/// Allocation units that failed for another reason than their size are not encoded again until a write changes them.
const FAILED: u32 = IncompressibleUnits::COLUMNS_FAILED;
/// Bounds the time until the thread ends.
const SLEEP_MAX: Duration = Duration::from_millis(200);
const CHECKSUM_AT: usize = 8;

/// The thread that fills the cache.
pub struct ColumnarFiller {
    state: Arc<CellState>,
    thread: JoinHandle<()>,
}

impl ColumnarFiller {
    /// Starts the thread. Returns None if there is no columnar cache.
    pub fn start(state: &Arc<CellState>) -> std::io::Result<Option<Self>> {
        if !state.volume.has_columnar_cache() {
            return Ok(None);
        }
        let of_thread = state.clone();
        let thread = std::thread::Builder::new().name("columnar".into()).spawn(move || {
            within(Origin::CELL, || run(&of_thread));
        })?;
        Ok(Some(Self { state: state.clone(), thread }))
    }

    pub fn stop(self) {
        self.state.columnar_candidates.close();
        if self.thread.join().is_err() {
            log::error!("the thread of the columnar cache panicked");
        }
    }
}

fn run(state: &CellState) {
    lower_priority();
    let mut throttle = Throttle::new();
    while let Some(candidate) = state.columnar_candidates.next() {
        let Candidate { object, au, version, .. } = candidate;
        let failed = match catch_unwind(AssertUnwindSafe(|| fill(state, &candidate))) {
            Ok(Ok(_)) => None,
            // The file was removed after the scan.
            Ok(Err(error)) if error.kind() == ErrorKind::Stale => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some(format!("the encoding of allocation unit {au} of inode {object} panicked")),
        };
        if let Some(error) = failed {
            log::warn!("{error}; the allocation unit is not in the columnar cache");
            state.incompressible_units.record(object, au, version, FAILED);
        }
        let mut pause = throttle.pause();
        while !pause.is_zero() && !state.columnar_candidates.is_closed() {
            let part = pause.min(SLEEP_MAX);
            std::thread::sleep(part);
            pause -= part;
        }
    }
}

/// Encodes an allocation unit and stores the unit, unless there is no space or no memory for it, or the allocation unit has changed.
/// Returns whether the unit was stored.
pub fn fill(state: &CellState, candidate: &Candidate) -> Result<bool> {
    let Candidate { object, au, version, previous_use, .. } = *candidate;
    let volume = &state.volume;
    let au_bytes = volume.au_bytes(object)?;
    let mut memory = Grant::new(state.memory.account(MemoryKind::ScanBuffers));
    if volume.au_version(object, au)? != version
        || [LEVEL as u32, FAILED].iter().any(|why| state.incompressible_units.contains(object, au, version, *why))
        || !volume.has_space_for_columns(object, previous_use)
        || !memory.cover(MEMORY_AUS * au_bytes)
    {
        return Ok(false);
    }
    let Some(pages) = read_pages(volume, object, au, version)? else { return Ok(false) };
    if candidate.heap.checksums && !have_checksums(&pages, candidate.first_block) {
        state.incompressible_units.record(object, au, version, FAILED);
        return Ok(false);
    }
    let unit = encode_pages(&pages, &candidate.heap.shape)?;
    if unit.len() >= pages.len() || stored_bytes(unit.len() as u32) > au_bytes {
        state.incompressible_units.record(object, au, version, LEVEL as u32);
        return Ok(false);
    }
    match verify(&unit, &pages) {
        Ok(None) => {}
        Ok(Some(page)) => return Err(differs(au, format!("page {page} differs"))),
        Err(error) => return Err(differs(au, error.to_string())),
    }
    let page_count = (pages.len() / BLOCK_BYTES) as u32;
    let new = NewColumns { au, version, page_count, tag: LEVEL as u32, bytes: &unit, previous_use };
    Ok(volume.store_columns(object, new)? == ColumnsStored::Stored)
}

fn differs(au: AuIndex, how: String) -> Error {
    Error::new(ErrorKind::Corrupt, format!("the columns of allocation unit {au} do not rebuild its pages: {how}"))
}

/// Reads the whole pages of an allocation unit. None if it does not have this version, or if a block is torn.
fn read_pages(volume: &Volume, object: DiskObject, au: AuIndex, version: RegionVersion) -> Result<Option<Vec<u8>>> {
    if volume.au_version(object, au)? != version {
        return Ok(None);
    }
    let au_bytes = volume.au_bytes(object)?;
    let base = au.index() * au_bytes;
    let mut pages = vec![0; volume.size(object)?.saturating_sub(base).min(au_bytes) as usize];
    let read = volume.read_uncached(object, base, &mut pages)?;
    pages.truncate(read / BLOCK_BYTES * BLOCK_BYTES);
    let is_torn = volume.has_torn_block(object, base..base + read as u64)?;
    let is_unchanged = volume.au_version(object, au)? == version;
    Ok((is_unchanged && !is_torn && !pages.is_empty()).then_some(pages))
}

fn encode_pages(pages: &[u8], shape: &Shape) -> Result<Vec<u8>> {
    encode(pages, shape, LEVEL).map_err(|error| Error::new(ErrorKind::Invalid, error.to_string()))
}

/// Returns whether every page that is not empty has the checksum of its block.
fn have_checksums(pages: &[u8], first_block: u32) -> bool {
    pages.chunks_exact(BLOCK_BYTES).zip(first_block..).all(|(page, block)| {
        let page: &[u8; BLOCK_BYTES] = page.try_into().expect("a chunk is a page");
        let stored = u16::from_le_bytes([page[CHECKSUM_AT], page[CHECKSUM_AT + 1]]);
        page_checksum(page, block) == stored || page.iter().all(|byte| *byte == 0)
    })
}
