//! Where a compression unit's bytes lie, and reading them with their checksums.
//!
//! Each allocation unit `a` has two homes in the unit file of its disk: at `2a` and `2a + 1` times its size. A new unit
//! goes to the home that the current one does not have, so the current one stays whole until the metadata name the new.
//! Invariants: a home is in use from the making of its [`Place`] until the last holder lets go of it; only a condemned
//! place gives its room back then.

use super::super::backing::{Backing, Opened};
use super::cached::CountedBytes;
use crate::cache::{CachedFile, Loaded, RegionSource};
use crate::error::{Error, ErrorKind, Result};
use crate::group::Layout;
use crate::meta::{ExtentRecord, HOMES};
use cellar_format::ByteSource;
use cellar_format::units::REGION_BYTES;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Bytes that share a checksum.
const CHUNK: u64 = 16 << 10;
const SUM_BYTES: u64 = 4;
/// Reads of pages that together take longer than to load the whole unit.
const PAGE_READS_WORTH_LOADING: u32 = 32;
/// What filesystems allocate at least.
const BLOCK: u64 = 4096;

/// The unit files of one file, one per disk.
#[derive(Debug)]
pub struct Homes {
    pub ino: u64,
    pub layout: Layout,
    pub backing: Box<[Backing]>,
    in_use: Mutex<HashSet<(u64, u8)>>,
}

/// One compression unit's bytes on disk.
pub struct Place {
    /// Tells all places apart that there are while the process lives.
    pub id: u64,
    homes: Arc<Homes>,
    pub au: u64,
    pub home: u8,
    pub length: u32,
    /// CRC-32C of the table of checksums.
    pub checksum: u32,
    /// The table, once it was read.
    sums: OnceLock<Box<[u32]>>,
    condemned: AtomicBool,
    /// Regions of the unit's bytes in the page cache.
    pub cached: Arc<CachedFile>,
    /// Reads of its pages since the page cache was asked to load it.
    page_reads: AtomicU32,
    /// One more than the page cache's evictions when this was asked last; 0 until then.
    asked: AtomicU64,
}

static IDS: AtomicU64 = AtomicU64::new(0);

fn new_id() -> u64 {
    IDS.fetch_add(1, Ordering::Relaxed)
}

impl Homes {
    pub fn new(ino: u64, layout: Layout, backing: Box<[Backing]>) -> Arc<Self> {
        Arc::new(Self { ino, layout, backing, in_use: Mutex::default() })
    }

    fn backing(&self, au: u64) -> &Backing {
        &self.backing[self.layout.slot(au * self.layout.au_size.bytes())]
    }

    fn start(&self, au: u64, home: u8) -> u64 {
        (au * u64::from(HOMES) + u64::from(home)) * self.layout.au_size.bytes()
    }

    /// A place for the bytes of a new unit; None when both homes are in use.
    pub fn place_for(self: &Arc<Self>, au: u64, bytes: &[u8]) -> Option<Place> {
        let mut in_use = self.in_use.lock();
        let home = (0..HOMES).find(|home| !in_use.contains(&(au, *home)))?;
        in_use.insert((au, home));
        let sums: Box<[u32]> = bytes.chunks(CHUNK as usize).map(crc32c::crc32c).collect();
        let (length, checksum) = (bytes.len() as u32, crc32c::crc32c(&encode(&sums)));
        Some(Place::new(self, au, home, length, checksum, OnceLock::from(sums)))
    }

    /// The place that the metadata name.
    pub fn known_place(self: &Arc<Self>, au: u64, record: &ExtentRecord) -> Place {
        self.in_use.lock().insert((au, record.home));
        let ExtentRecord { home, length, checksum, .. } = *record;
        Place::new(self, au, home, length, checksum, OnceLock::new())
    }

    /// Gives back what lies in homes that are not in use: left by a crash.
    pub fn punch_leftovers(&self, claimed: u64) -> Result<bool> {
        let mut allocated = 0;
        for backing in &self.backing {
            allocated += backing.measure()?.1;
        }
        if allocated <= claimed {
            return Ok(false);
        }
        let in_use = self.in_use.lock();
        for (slot, backing) in self.backing.iter().enumerate() {
            let (au_bytes, length) = (self.layout.au_size.bytes(), backing.length()?);
            let homes = (0..length.div_ceil(au_bytes)).map(|home| (home / u64::from(HOMES), home % u64::from(HOMES)));
            for (au, home) in homes {
                if self.layout.slot(au * au_bytes) == slot && !in_use.contains(&(au, home as u8)) {
                    backing.discard(self.start(au, home as u8), au_bytes)?;
                }
            }
        }
        Ok(true)
    }
}

fn encode(sums: &[u32]) -> Vec<u8> {
    sums.iter().flat_map(|sum| sum.to_le_bytes()).collect()
}

/// Bytes on disk of a unit of `length` bytes, its table included.
pub fn stored_bytes(length: u32) -> u64 {
    table_start(length) + u64::from(length).div_ceil(CHUNK) * SUM_BYTES
}

fn table_start(length: u32) -> u64 {
    u64::from(length).next_multiple_of(SUM_BYTES)
}

impl Place {
    fn new(homes: &Arc<Homes>, au: u64, home: u8, length: u32, checksum: u32, sums: OnceLock<Box<[u32]>>) -> Self {
        let (condemned, page_reads, asked) = (AtomicBool::new(false), AtomicU32::new(0), AtomicU64::new(0));
        let (id, homes, cached) = (new_id(), homes.clone(), Arc::default());
        Self { id, homes, au, home, length, checksum, sums, condemned, cached, page_reads, asked }
    }

    /// How many frames of the page cache were evicted, of `evictions` in all, since this was asked last; None the first
    /// time.
    pub fn ask(&self, evictions: u64) -> Option<u64> {
        let last = self.asked.swap(evictions + 1, Ordering::Relaxed);
        (last > 0).then(|| (evictions + 1).saturating_sub(last))
    }

    /// Some pages are read. Whether so many were that all of the unit's bytes may as well be in the page cache.
    pub fn is_worth_loading(&self) -> bool {
        let is_worth = self.page_reads.fetch_add(1, Ordering::Relaxed) >= PAGE_READS_WORTH_LOADING;
        if is_worth {
            self.page_reads.store(0, Ordering::Relaxed);
        }
        is_worth
    }

    /// Fills a frame of the page cache with a region of the unit's bytes, which match their checksums.
    pub fn load(&self, region: u32, buffer: &mut [u8]) -> Result<Loaded> {
        let start = u64::from(region) * REGION_BYTES as u64;
        let valid = u64::from(self.length).saturating_sub(start).min(REGION_BYTES as u64) as usize;
        let disk_bytes = self.read(&mut buffer[..valid], start)?;
        Ok(Loaded { valid, version: 0, source: RegionSource { disk_bytes, disk_requests: 1 } })
    }

    /// Writes the unit's bytes and their table, and makes them durable.
    pub fn store(&self, bytes: &[u8]) -> Result<()> {
        assert_eq!(bytes.len(), self.length as usize);
        let mut image = Vec::with_capacity(stored_bytes(self.length) as usize);
        image.extend_from_slice(bytes);
        image.resize(table_start(self.length) as usize, 0);
        image.extend(encode(self.sums.get().expect("a new place has its table")));
        let backing = self.homes.backing(self.au);
        backing.write(&image, self.start())?;
        backing.sync()
    }

    fn start(&self) -> u64 {
        self.homes.start(self.au, self.home)
    }

    /// Bytes that the unit takes on disk.
    pub fn allocated(&self) -> u64 {
        stored_bytes(self.length).next_multiple_of(BLOCK)
    }

    /// From now on the bytes are needed only by whoever still holds the place.
    pub fn condemn(&self) {
        self.condemned.store(true, Ordering::Release);
    }

    /// Where the unit lies, for messages.
    pub fn describe(&self) -> String {
        let blocks = self.homes.layout.au_size.bytes() / super::PAGE;
        format!(
            "the compression unit of inode {}, blocks {} to {}, on cell disk {}",
            self.homes.ino,
            self.au * blocks,
            (self.au + 1) * blocks - 1,
            self.homes.backing(self.au).disk().path().display()
        )
    }

    fn damaged(&self, what: impl fmt::Display) -> Error {
        Error::new(ErrorKind::Corrupt, format!("{} is damaged: {what}", self.describe()))
    }

    fn sums(&self) -> Result<&[u32]> {
        if let Some(sums) = self.sums.get() {
            return Ok(sums);
        }
        let mut table = vec![0; (u64::from(self.length).div_ceil(CHUNK) * SUM_BYTES) as usize];
        self.homes.backing(self.au).read_exact(&mut table, self.start() + table_start(self.length))?;
        let computed = crc32c::crc32c(&table);
        if computed != self.checksum {
            let message = format!("its table of checksums has {computed:08x}, the metadata say {:08x}", self.checksum);
            return Err(self.damaged(message));
        }
        let sums = table.chunks_exact(4).map(|sum| u32::from_le_bytes(sum.try_into().expect("4 bytes"))).collect();
        Ok(self.sums.get_or_init(|| sums))
    }

    /// Where a read ends, within the unit.
    fn end(&self, buffer: &[u8], offset: u64) -> Result<u64> {
        let length = u64::from(self.length);
        let end = offset.checked_add(buffer.len() as u64).filter(|end| *end <= length);
        end.ok_or_else(|| self.damaged(format!("byte {offset}+{} of {length} asked", buffer.len())))
    }

    /// Fills `buffer` from `offset` with bytes that match their checksums; returns the bytes read from disk for it.
    fn read(&self, buffer: &mut [u8], offset: u64) -> Result<u64> {
        let (length, end) = (u64::from(self.length), self.end(buffer, offset)?);
        if buffer.is_empty() {
            return Ok(0);
        }
        let chunks = offset / CHUNK..end.div_ceil(CHUNK);
        let range = chunks.start * CHUNK..(chunks.end * CHUNK).min(length);
        if range == (offset..end) {
            self.read_chunks(buffer, chunks)?;
        } else {
            let mut whole = vec![0; (range.end - range.start) as usize];
            self.read_chunks(&mut whole, chunks)?;
            buffer.copy_from_slice(&whole[(offset - range.start) as usize..][..buffer.len()]);
        }
        Ok(range.end - range.start)
    }

    fn read_chunks(&self, buffer: &mut [u8], chunks: Range<u64>) -> Result<()> {
        let sums = self.sums()?;
        self.homes.backing(self.au).read_exact(buffer, self.start() + chunks.start * CHUNK)?;
        for (chunk, bytes) in chunks.zip(buffer.chunks(CHUNK as usize)) {
            let (computed, expected) = (crc32c::crc32c(bytes), sums[chunk as usize]);
            if computed != expected {
                let message =
                    format!("its bytes from {} have the checksum {computed:08x}, not {expected:08x}", chunk * CHUNK);
                return Err(self.damaged(message));
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Place({}, {} bytes in home {})", self.au, self.length, self.home)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.condemned.load(Ordering::Acquire)
            && let Err(error) = self.homes.backing(self.au).discard(self.start(), self.homes.layout.au_size.bytes())
        {
            log::warn!("{error}; its room is given back after a restart");
        }
        self.homes.in_use.lock().remove(&(self.au, self.home));
    }
}

/// Reads a place for a codec and counts what that takes.
pub struct PlaceReader<'a> {
    place: &'a Place,
    opened: OnceLock<Opened<'a>>,
    bytes: AtomicU64,
    requests: AtomicU64,
}

impl<'a> PlaceReader<'a> {
    pub fn new(place: &'a Place) -> Self {
        Self { place, opened: OnceLock::new(), bytes: AtomicU64::new(0), requests: AtomicU64::new(0) }
    }

    fn opened(&self) -> Result<&Opened<'a>> {
        if let Some(opened) = self.opened.get() {
            return Ok(opened);
        }
        let opened = self.place.homes.backing(self.place.au).opened()?;
        Ok(self.opened.get_or_init(|| opened))
    }

    /// Bytes and requests so far.
    pub fn cost(&self) -> (u64, u64) {
        (self.bytes.load(Ordering::Relaxed), self.requests.load(Ordering::Relaxed))
    }
}

impl CountedBytes for PlaceReader<'_> {
    fn count(&self, bytes: u64, requests: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.requests.fetch_add(requests, Ordering::Relaxed);
    }
}

impl ByteSource for PlaceReader<'_> {
    fn length(&self) -> u64 {
        u64::from(self.place.length)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let bytes = self.place.read(buffer, offset)?;
        self.count(bytes, 1);
        Ok(())
    }

    fn read_unverified_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.place.end(buffer, offset)?;
        self.opened()?.read_exact(buffer, self.place.start() + offset)?;
        self.count(buffer.len() as u64, 1);
        Ok(())
    }

    fn prefetch(&self, parts: &[Range<u64>]) {
        let (start, length) = (self.place.start(), u64::from(self.place.length));
        let within = |part: &Range<u64>| start + part.start.min(length)..start + part.end.min(length);
        // Whoever reads is told what is wrong.
        if let Ok(opened) = self.opened() {
            opened.expect(&parts.iter().map(within).collect::<Vec<_>>());
        }
    }
}

/// All bytes of a place, as they were read from disk and checked.
pub struct PlaceImage(Vec<u8>);

impl PlaceImage {
    pub fn read(place: &Place) -> Result<Self> {
        let mut bytes = vec![0; place.length as usize];
        place.read(&mut bytes, 0)?;
        Ok(Self(bytes))
    }
}

impl ByteSource for PlaceImage {
    fn length(&self) -> u64 {
        self.0.len() as u64
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        match self.slice_at(offset, buffer.len()) {
            Some(bytes) => {
                buffer.copy_from_slice(bytes);
                Ok(())
            }
            None => {
                let context = format!("byte {offset}+{} of {}", buffer.len(), self.0.len());
                Err(Error::new(ErrorKind::Corrupt, context).into())
            }
        }
    }

    fn slice_at(&self, offset: u64, length: usize) -> Option<&[u8]> {
        self.0.as_slice().get(usize::try_from(offset).ok()?..)?.get(..length)
    }
}
