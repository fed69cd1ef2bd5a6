//! The extent record: where the compression unit of an allocation unit is stored, and which of its pages are
//! superseded. Layout: `docs/format/disk.md`.
//!
//! The version of a record is also the format of the unit slot that the record names. A record keeps its version while
//! the slot contains the same unit.

use crate::page_set::PageSet;
use cellar_format::bytes::{Corrupt, Reader, Write};

/// The format of a unit slot; encoded as the version of the extent record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum SlotFormat {
    /// The slot starts with the unit. This release reads such slots and writes none.
    Bare = 1,
    /// The slot starts with a slot header, which names the unit in the slot.
    WithHeader = 2,
}

impl SlotFormat {
    fn from_u8(value: u8) -> Option<Self> {
        [Self::Bare, Self::WithHeader].into_iter().find(|format| *format as u8 == value)
    }
}

/// Unit slots per allocation unit, used alternately.
pub const SLOTS_PER_AU: u8 = 2;
/// Pages of the largest allocation unit.
const PAGES_MAX: u32 = (64 << 20) / 8192;
const LENGTH_MAX: u32 = 64 << 20;
/// No log reaches this sequence: at a million records a second, it lasts for 290,000 years.
const LOG_SEQUENCE_MAX: u64 = u64::MAX >> 1;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtentRecord {
    pub format: SlotFormat,
    /// Which of the allocation unit's unit slots contains the unit.
    pub slot: u8,
    /// Bytes of the compression unit.
    pub length: u32,
    /// CRC-32C of the unit's checksum table.
    pub checksum: u32,
    /// Opaque to the storage; see `Volume::store_unit`.
    pub tag: u32,
    /// Redo log records with a lower log sequence are older than the unit.
    pub log_sequence: u64,
    /// Pages whose current content is in the backing file. The page count is the number of pages of the unit.
    pub superseded: PageSet,
}

impl ExtentRecord {
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(28 + self.superseded.words().len() * 8);
        bytes.put_u8(self.format as u8);
        bytes.put_u8(self.slot);
        bytes.put_u16(0);
        bytes.put_u32(self.length);
        bytes.put_u32(self.checksum);
        bytes.put_u32(self.tag);
        bytes.put_u64(self.log_sequence);
        bytes.put_u32(self.superseded.page_count());
        self.superseded.words().iter().for_each(|word| bytes.put_u64(*word));
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, Corrupt> {
        let mut reader = Reader::new(bytes);
        let version = reader.u8("extent record version")?;
        let format = SlotFormat::from_u8(version)
            .ok_or_else(|| Corrupt::new("extent record version", 0, format!("{version}")))?;
        let slot = reader.u8("unit slot")?;
        reader.u16("reserved")?;
        let length = reader.u32("unit length")?;
        let checksum = reader.u32("unit checksum")?;
        let tag = reader.u32("unit tag")?;
        let log_sequence = reader.u64("log sequence")?;
        let pages = reader.u32("pages")?;
        let valid_size = length > 0 && length <= LENGTH_MAX && pages > 0 && pages <= PAGES_MAX;
        if slot >= SLOTS_PER_AU || !valid_size || log_sequence > LOG_SEQUENCE_MAX {
            let values = format!("slot {slot}, {length} bytes, {pages} pages, log sequence {log_sequence}");
            return Err(Corrupt::new("extent record", 1, values));
        }
        let words =
            (0..pages.div_ceil(64)).map(|_| reader.u64("superseded pages")).collect::<Result<Box<[u64]>, _>>()?;
        reader.finish("extent record")?;
        let superseded = PageSet::from_words(words, pages);
        Ok(Self { format, slot, length, checksum, tag, log_sequence, superseded })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cellar_format::units::PageInAu;

    #[test]
    fn an_extent_reads_back_and_a_truncated_one_is_corrupt() {
        let mut superseded = PageSet::new(100);
        superseded.insert(PageInAu(77));
        let format = SlotFormat::WithHeader;
        let extent =
            ExtentRecord { format, slot: 1, length: 5, checksum: 9, tag: 3, log_sequence: 1 << 40, superseded };
        let bytes = extent.encode();
        assert_eq!(ExtentRecord::decode(&bytes).unwrap(), extent);
        let bare = ExtentRecord { format: SlotFormat::Bare, ..extent };
        assert_eq!(ExtentRecord::decode(&bare.encode()).unwrap(), bare, "a record keeps its version");
        for length in 0..bytes.len() {
            assert!(ExtentRecord::decode(&bytes[..length]).is_err(), "{length}");
        }
        for at in [0, 1, 4, 20, 24] {
            let mut damaged = bytes.clone();
            damaged[at] = 0xff;
            damaged[at + 3] = 0xff;
            assert!(ExtentRecord::decode(&damaged).is_err(), "{at}");
        }
    }
}
