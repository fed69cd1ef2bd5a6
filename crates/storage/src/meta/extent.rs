//! The extent record: where an allocation unit's compression unit lies, and which pages are not current in it any
//! more. Layout: `docs/format/disk.md`.

use crate::file::PageSet;
use cellar_format::bytes::{Corrupt, Reader, Write};

const VERSION: u8 = 1;
/// The homes that an allocation unit's compression units take turns in.
pub const HOMES: u8 = 2;
/// Pages in the largest allocation unit.
const PAGES_MAX: u32 = (64 << 20) / 8192;
const LENGTH_MAX: u32 = 64 << 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtentRecord {
    pub home: u8,
    /// Bytes of the compression unit.
    pub length: u32,
    /// CRC-32C of its table of checksums.
    pub checksum: u32,
    /// Means something to the codec's side only.
    pub tag: u32,
    /// Pending pages with a lower stamp are older than the unit.
    pub stamp: u64,
    /// Pages that lie in the backing file; its count is the number of pages that the unit holds.
    pub dead: PageSet,
}

impl ExtentRecord {
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(28 + self.dead.words().len() * 8);
        bytes.put_u8(VERSION);
        bytes.put_u8(self.home);
        bytes.put_u16(0);
        bytes.put_u32(self.length);
        bytes.put_u32(self.checksum);
        bytes.put_u32(self.tag);
        bytes.put_u64(self.stamp);
        bytes.put_u32(self.dead.page_count());
        self.dead.words().iter().for_each(|word| bytes.put_u64(*word));
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, Corrupt> {
        let mut reader = Reader::new(bytes);
        let version = reader.u8("extent record version")?;
        if version != VERSION {
            return Err(Corrupt::new("extent record version", 0, format!("{version}")));
        }
        let home = reader.u8("home")?;
        reader.u16("reserved")?;
        let length = reader.u32("unit length")?;
        let checksum = reader.u32("unit checksum")?;
        let tag = reader.u32("unit tag")?;
        let stamp = reader.u64("stamp")?;
        let pages = reader.u32("pages")?;
        if home >= HOMES || length == 0 || length > LENGTH_MAX || pages == 0 || pages > PAGES_MAX {
            return Err(Corrupt::new("extent record", 1, format!("home {home}, {length} bytes, {pages} pages")));
        }
        let words = (0..pages.div_ceil(64)).map(|_| reader.u64("dead pages")).collect::<Result<Box<[u64]>, _>>()?;
        reader.finish("extent record")?;
        Ok(Self { home, length, checksum, tag, stamp, dead: PageSet::from_words(words, pages) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extent_reads_back_and_a_cut_one_is_corrupt() {
        let mut dead = PageSet::new(100);
        dead.insert(77);
        let extent = ExtentRecord { home: 1, length: 5, checksum: 9, tag: 3, stamp: 1 << 40, dead };
        let bytes = extent.encode();
        assert_eq!(ExtentRecord::decode(&bytes).unwrap(), extent);
        for length in 0..bytes.len() {
            assert!(ExtentRecord::decode(&bytes[..length]).is_err(), "{length}");
        }
        for at in [0, 1, 4, 24] {
            let mut damaged = bytes.clone();
            damaged[at] = 0xff;
            damaged[at + 3] = 0xff;
            assert!(ExtentRecord::decode(&damaged).is_err(), "{at}");
        }
    }
}
