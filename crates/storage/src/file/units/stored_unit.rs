//! A compression unit in a unit slot, read with its checksums.
//!
//! Invariants: the bytes never change while the value lives. Dropping the value ends the use of the slot; the slot is
//! punched only if the unit was marked unused.
//!
//! Every read is verified against the extent record. The record contains the checksum of the checksum table, and the table verifies
//! whole checksum blocks. A read of the unit's first bytes without the table is verified by the slot header
//! ([`StoredUnit::read_start`]); the codec then verifies the other parts of the unit by checksums in the first bytes.

use super::slot_header::{SLOT_HEADER_BYTES, SlotHeader};
use super::slots::UnitSlots;
use crate::cache::{CachedFile, IoCost, Loaded};
use crate::disk::{Check, Condition};
use crate::error::{Error, ErrorKind, Result};
use crate::file::backing::Opened;
use crate::meta::{ExtentRecord, SlotFormat};
use cellar_format::units::{AuIndex, REGION_BYTES, RegionIndex, RegionVersion};
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Bytes of a checksum block.
const CHECKSUM_BLOCK: u64 = 16 << 10;
const CHECKSUM_BYTES: u64 = 4;
/// Reads of single pages that together cost more than loading the whole unit.
const PAGE_READS_WORTH_LOADING: u32 = 32;
/// The smallest allocation of a filesystem.
const FILESYSTEM_BLOCK: u64 = 4096;

pub struct StoredUnit {
    /// Unique among all units while the process lives.
    pub id: u64,
    slots: Arc<UnitSlots>,
    pub au: AuIndex,
    pub format: SlotFormat,
    pub slot: u8,
    /// Bytes of the unit, without slot header and checksum table.
    pub length: u32,
    /// CRC-32C of the checksum table.
    pub checksum: u32,
    /// The checksum table, read from disk at first use.
    checksums: OnceLock<Box<[u32]>>,
    is_unused: AtomicBool,
    /// Regions of the unit's bytes in the page cache.
    pub cached: Arc<CachedFile>,
    /// Page reads since the whole unit was last worth loading, see [`Self::is_worth_loading`].
    page_reads: AtomicU32,
    /// The page cache's eviction count at the last use of the unit, plus 1; 0 before the first use.
    evictions_at_use: AtomicU64,
}

struct Location {
    au: AuIndex,
    format: SlotFormat,
    slot: u8,
    length: u32,
    checksum: u32,
}

static IDS: AtomicU64 = AtomicU64::new(0);

fn encode(checksums: &[u32]) -> Vec<u8> {
    checksums.iter().flat_map(|checksum| checksum.to_le_bytes()).collect()
}

/// Returns the bytes on disk of a new unit of `length` bytes, including slot header and checksum table.
pub fn stored_bytes(length: u32) -> u64 {
    slot_bytes(SlotFormat::WithHeader, length)
}

/// Returns the bytes that a unit of `length` bytes takes in a slot, including the checksum table.
fn slot_bytes(format: SlotFormat, length: u32) -> u64 {
    header_bytes(format) + table_offset(length) + table_bytes(length)
}

/// Returns the offset of the unit in the slot.
fn header_bytes(format: SlotFormat) -> u64 {
    match format {
        SlotFormat::Bare => 0,
        SlotFormat::WithHeader => SLOT_HEADER_BYTES as u64,
    }
}

/// Returns the offset of the checksum table from the start of the unit.
fn table_offset(length: u32) -> u64 {
    u64::from(length).next_multiple_of(CHECKSUM_BYTES)
}

fn table_bytes(length: u32) -> u64 {
    u64::from(length).div_ceil(CHECKSUM_BLOCK) * CHECKSUM_BYTES
}

impl StoredUnit {
    /// Reserves a slot for the bytes of a new unit, which [`Self::write`] then writes; None if both slots are in use.
    pub fn reserve(slots: &Arc<UnitSlots>, au: AuIndex, bytes: &[u8]) -> Option<Self> {
        let slot = slots.take_free(au)?;
        let checksums: Box<[u32]> = bytes.chunks(CHECKSUM_BLOCK as usize).map(crc32c::crc32c).collect();
        let (length, checksum) = (bytes.len() as u32, crc32c::crc32c(&encode(&checksums)));
        let location = Location { au, format: SlotFormat::WithHeader, slot, length, checksum };
        Some(Self::at(slots, location, OnceLock::from(checksums)))
    }

    /// Returns the unit that an extent record names.
    pub fn recorded(slots: &Arc<UnitSlots>, au: AuIndex, record: &ExtentRecord) -> Self {
        let ExtentRecord { format, slot, length, checksum, .. } = *record;
        slots.take(au, slot);
        Self::at(slots, Location { au, format, slot, length, checksum }, OnceLock::new())
    }

    fn at(slots: &Arc<UnitSlots>, location: Location, checksums: OnceLock<Box<[u32]>>) -> Self {
        let Location { au, format, slot, length, checksum } = location;
        Self {
            id: IDS.fetch_add(1, Ordering::Relaxed),
            slots: slots.clone(),
            au,
            format,
            slot,
            length,
            checksum,
            checksums,
            is_unused: AtomicBool::new(false),
            cached: Arc::default(),
            page_reads: AtomicU32::new(0),
            evictions_at_use: AtomicU64::new(0),
        }
    }

    /// Returns whether the unit consists of these bytes.
    pub fn has_bytes(&self, bytes: &[u8]) -> bool {
        let checksums: Vec<u32> = bytes.chunks(CHECKSUM_BLOCK as usize).map(crc32c::crc32c).collect();
        bytes.len() == self.length as usize && crc32c::crc32c(&encode(&checksums)) == self.checksum
    }

    /// Marks the unit as unused: its slot is punched when the last reader drops the unit.
    pub fn mark_unused(&self) {
        self.is_unused.store(true, Ordering::Release);
    }

    /// Records a use of the whole unit. `evictions` is the number of slots that the page cache has evicted so far.
    /// Returns the evictions since the previous use; None at the first use.
    pub fn note_use(&self, evictions: u64) -> Option<u64> {
        let last = self.evictions_at_use.swap(evictions + 1, Ordering::Relaxed);
        (last > 0).then(|| (evictions + 1).saturating_sub(last))
    }

    /// Returns whether the reads of single pages counted so far together cost more than loading the whole unit.
    pub fn is_worth_loading(&self) -> bool {
        self.page_reads.load(Ordering::Relaxed) >= PAGE_READS_WORTH_LOADING
    }

    /// Counts a read of single pages, or restarts the count if the read `may_load` the whole unit.
    pub fn count_page_read(&self, may_load: bool) {
        match may_load {
            true => self.page_reads.store(0, Ordering::Relaxed),
            false => _ = self.page_reads.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// Fills a slot of the page cache with a region of the unit's bytes, after verifying their checksums.
    pub fn load(&self, region: RegionIndex, buffer: &mut [u8]) -> Result<Loaded> {
        let start = region.start();
        let valid = u64::from(self.length).saturating_sub(start).min(REGION_BYTES as u64) as usize;
        let cost = IoCost::of_request(|| self.read(&mut buffer[..valid], start))?;
        Ok(Loaded { valid, version: RegionVersion::NONE, cost })
    }

    /// Writes slot header, unit and checksum table to the slot. [`UnitSlots::sync`] makes them durable.
    pub fn write(&self, bytes: &[u8]) -> Result<()> {
        assert_eq!(bytes.len(), self.length as usize);
        let mut image = Vec::with_capacity(stored_bytes(self.length) as usize);
        image.extend_from_slice(&self.header().encode());
        image.extend_from_slice(bytes);
        image.resize(SLOT_HEADER_BYTES + table_offset(self.length) as usize, 0);
        image.extend(encode(self.checksums.get().expect("a new unit has its checksum table")));
        self.slots.unit_file(self.au).write(&image, self.slot_offset())
    }

    /// Returns the bytes that the unit occupies on disk.
    pub fn allocated(&self) -> u64 {
        self.slot_bytes().next_multiple_of(FILESYSTEM_BLOCK)
    }

    /// Returns the bytes that the unit takes in its slot, including slot header and checksum table.
    pub fn slot_bytes(&self) -> u64 {
        slot_bytes(self.format, self.length)
    }

    /// Names the unit and its location, for messages.
    pub fn describe(&self) -> String {
        let pages = self.slots.layout.au_size.bytes() / super::PAGE;
        let file = self.slots.unit_file(self.au);
        format!(
            "the {} of inode {}, blocks {} to {}, on {}",
            if file.is_in_flash() { "unit of the columnar cache" } else { "compression unit" },
            self.slots.ino,
            self.au.index() * pages,
            (self.au.index() + 1) * pages - 1,
            file.disk_name()
        )
    }

    /// Reads and verifies bytes of the unit; returns the number of bytes read from disk, at least `buffer.len()`. Damaged
    /// bytes are repaired from another copy, if there is one.
    pub(super) fn read(&self, buffer: &mut [u8], offset: u64) -> Result<u64> {
        match self.read_once(buffer, offset) {
            Err(error) if self.repair(&error) => self.read_once(buffer, offset),
            result => result,
        }
    }

    /// Rewrites damaged copies of the unit from undamaged ones after a read found `error`. Returns whether the copies are
    /// sound now, so that the read may succeed: another thread may have repaired them.
    pub(super) fn repair(&self, error: &Error) -> bool {
        if error.kind() != ErrorKind::Corrupt || !self.slots.unit_file(self.au).disk().has_copies() {
            return false;
        }
        match self.repair_parts() {
            Ok(Condition::Sound | Condition::Repaired) => true,
            Ok(Condition::Differ | Condition::Damaged) => {
                log::error!("{error}; no copy of the unit is undamaged");
                false
            }
            Err(error) => {
                log::error!("{error}");
                false
            }
        }
    }

    /// Returns the bytes of the unit's slot in the unit file.
    pub fn slot_range(&self) -> Range<u64> {
        self.slot_offset()..self.slot_offset() + self.slot_bytes()
    }

    /// Reads all copies of the unit and repairs damaged ones. Returns also the bytes that were read.
    pub fn scrub(&self) -> Result<(Condition, u64)> {
        let range = self.slot_range();
        let table_at = (self.offset() - range.start + table_offset(self.length)) as usize;
        let is_valid = |slot: &[u8]| {
            let (start, table) = slot.split_at(table_at);
            let unit = &start[(self.offset() - range.start) as usize..][..self.length as usize];
            let blocks = unit.chunks(CHECKSUM_BLOCK as usize).flat_map(|block| crc32c::crc32c(block).to_le_bytes());
            self.is_header(start) && crc32c::crc32c(table) == self.checksum && blocks.eq(table.iter().copied())
        };
        let examined = self.slots.unit_file(self.au).examine(&range, &Check::new(&is_valid))?;
        let condition = if examined.is_sound { Condition::Sound } else { self.repair_parts()? };
        Ok((condition, examined.read_bytes))
    }

    /// Returns whether the start of a slot is the header of this unit; true for a slot without header.
    fn is_header(&self, slot: &[u8]) -> bool {
        let header = || slot.first_chunk().map(SlotHeader::decode);
        self.format == SlotFormat::Bare
            || header().is_some_and(|header| header.is_ok_and(|found| found == self.header()))
    }

    /// Repairs each part of the unit that has a checksum. Returns the worst condition of a part.
    fn repair_parts(&self) -> Result<Condition> {
        let file = self.slots.unit_file(self.au);
        let mut worst = Condition::Sound;
        let mut repair = |range: Range<u64>, is_valid: &dyn Fn(&[u8]) -> bool| -> Result<()> {
            worst = worst.max(file.repair(&range, &Check::new(is_valid))?);
            Ok(())
        };
        if self.format == SlotFormat::WithHeader {
            repair(self.slot_offset()..self.offset(), &|bytes| self.is_header(bytes))?;
        }
        let table_at = self.offset() + table_offset(self.length);
        let is_table = |bytes: &[u8]| crc32c::crc32c(bytes) == self.checksum;
        repair(table_at..table_at + table_bytes(self.length), &is_table)?;
        for (block, checksum) in self.checksums()?.iter().enumerate() {
            let start = block as u64 * CHECKSUM_BLOCK;
            let end = (start + CHECKSUM_BLOCK).min(u64::from(self.length));
            repair(self.offset() + start..self.offset() + end, &|bytes| crc32c::crc32c(bytes) == *checksum)?;
        }
        Ok(worst)
    }

    fn read_once(&self, buffer: &mut [u8], offset: u64) -> Result<u64> {
        let (length, end) = (u64::from(self.length), self.check_range(buffer, offset)?);
        if buffer.is_empty() {
            return Ok(0);
        }
        let blocks = offset / CHECKSUM_BLOCK..end.div_ceil(CHECKSUM_BLOCK);
        let range = blocks.start * CHECKSUM_BLOCK..(blocks.end * CHECKSUM_BLOCK).min(length);
        if range == (offset..end) {
            self.read_blocks(buffer, blocks)?;
        } else {
            let mut whole = vec![0; (range.end - range.start) as usize];
            self.read_blocks(&mut whole, blocks)?;
            buffer.copy_from_slice(&whole[(offset - range.start) as usize..][..buffer.len()]);
        }
        Ok(range.end - range.start)
    }

    /// Returns the end of a read, or an error if the read extends beyond the unit.
    pub(super) fn check_range(&self, buffer: &[u8], offset: u64) -> Result<u64> {
        let length = u64::from(self.length);
        let end = offset.checked_add(buffer.len() as u64).filter(|end| *end <= length);
        end.ok_or_else(|| self.damaged(format!("read of {} bytes at {offset} of {length}", buffer.len())))
    }

    /// Returns the offset of the slot in the unit file.
    fn slot_offset(&self) -> u64 {
        self.slots.offset(self.au, self.slot)
    }

    /// Returns the offset of the unit in the unit file.
    pub fn offset(&self) -> u64 {
        self.slot_offset() + header_bytes(self.format)
    }

    /// Returns the header that the slot of this unit has.
    fn header(&self) -> SlotHeader {
        SlotHeader { ino: self.slots.ino, au: self.au, length: self.length, checksum: self.checksum }
    }

    /// Reads the unit's first bytes, and verifies that the slot contains this unit, not an older unit or the unit of
    /// another allocation unit. The bytes may be damaged unless the slot has no header. Returns the number of bytes read
    /// from disk.
    pub(super) fn read_start(&self, buffer: &mut [u8]) -> Result<u64> {
        match self.read_start_once(buffer) {
            Err(error) if self.repair(&error) => self.read_start_once(buffer),
            result => result,
        }
    }

    fn read_start_once(&self, buffer: &mut [u8]) -> Result<u64> {
        if self.format == SlotFormat::Bare {
            return self.read(buffer, 0);
        }
        let mut bytes = vec![0; SLOT_HEADER_BYTES + buffer.len()];
        self.slots.unit_file(self.au).read_exact(&mut bytes, self.slot_offset())?;
        let (header, start) = bytes.split_first_chunk().expect("the buffer is longer than a header");
        let found = SlotHeader::decode(header).map_err(|error| self.damaged(error))?;
        let expected = self.header();
        if found != expected {
            let which = match (found.ino, found.au) == (expected.ino, expected.au) {
                true => "another unit of the allocation unit",
                false => "the unit of another allocation unit",
            };
            let message = format!("slot {} contains {which}: found {found}; expected {expected}", self.slot);
            return Err(self.damaged(message));
        }
        buffer.copy_from_slice(start);
        Ok(bytes.len() as u64)
    }

    pub(super) fn open(&self) -> Result<Opened<'_>> {
        self.slots.unit_file(self.au).opened()
    }

    fn damaged(&self, what: impl fmt::Display) -> Error {
        Error::new(ErrorKind::Corrupt, format!("{} is damaged: {what}", self.describe()))
    }

    fn checksums(&self) -> Result<&[u32]> {
        if let Some(checksums) = self.checksums.get() {
            return Ok(checksums);
        }
        let mut table = vec![0; table_bytes(self.length) as usize];
        self.slots.unit_file(self.au).read_exact(&mut table, self.offset() + table_offset(self.length))?;
        let computed = crc32c::crc32c(&table);
        if computed != self.checksum {
            let message = format!("checksum of the checksum table is {computed:08x}, expected {:08x}", self.checksum);
            return Err(self.damaged(message));
        }
        let table = table.chunks_exact(4).map(|bytes| u32::from_le_bytes(bytes.try_into().expect("4 bytes"))).collect();
        Ok(self.checksums.get_or_init(|| table))
    }

    /// Reads and verifies whole checksum blocks.
    fn read_blocks(&self, buffer: &mut [u8], blocks: Range<u64>) -> Result<()> {
        let checksums = self.checksums()?;
        self.slots.unit_file(self.au).read_exact(buffer, self.offset() + blocks.start * CHECKSUM_BLOCK)?;
        for (block, bytes) in blocks.zip(buffer.chunks(CHECKSUM_BLOCK as usize)) {
            let (computed, expected) = (crc32c::crc32c(bytes), checksums[block as usize]);
            if computed != expected {
                let offset = block * CHECKSUM_BLOCK;
                let message = format!("checksum of the bytes at {offset} is {computed:08x}, expected {expected:08x}");
                return Err(self.damaged(message));
            }
        }
        Ok(())
    }
}

impl fmt::Debug for StoredUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoredUnit({}, {} bytes in slot {})", self.au, self.length, self.slot)
    }
}

impl Drop for StoredUnit {
    fn drop(&mut self) {
        self.slots.release(self.au, self.slot, self.is_unused.load(Ordering::Acquire));
    }
}
