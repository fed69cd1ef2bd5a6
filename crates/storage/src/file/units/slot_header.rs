//! The header of a unit slot, which names the unit that was written to the slot. Layout: `docs/format/disk.md`.
//!
//! The header protects reads of parts of a unit against lost and misdirected writes. For example, a disk acknowledges
//! the write of a new unit and keeps the older unit of the same allocation unit in the slot. All checksums inside the
//! older unit are correct. The header contains the checksum of the unit's checksum table, so the older unit has another
//! header than the one that the extent record describes.

use cellar_format::bytes::{Corrupt, Reader, Write};
use cellar_format::units::AuIndex;
use std::fmt;

const MAGIC: [u8; 8] = *b"CELLSLOT";
const VERSION: u32 = 1;
pub const SLOT_HEADER_BYTES: usize = 64;
const CHECKSUM_AT: usize = SLOT_HEADER_BYTES - 4;

/// Identifies the bytes of a unit and the allocation unit that they belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotHeader {
    pub ino: u64,
    pub au: AuIndex,
    /// Bytes of the unit.
    pub length: u32,
    /// CRC-32C of the unit's checksum table. Two units of the same length with the same checksum have the same bytes.
    pub checksum: u32,
}

impl SlotHeader {
    pub fn encode(&self) -> [u8; SLOT_HEADER_BYTES] {
        let mut bytes = Vec::with_capacity(SLOT_HEADER_BYTES);
        bytes.put_bytes(&MAGIC);
        bytes.put_u32(VERSION);
        bytes.put_u32(self.length);
        bytes.put_u64(self.ino);
        bytes.put_u64(self.au.index());
        bytes.put_u32(self.checksum);
        bytes.resize(CHECKSUM_AT, 0);
        bytes.put_u32(crc32c::crc32c(&bytes));
        bytes.try_into().expect("the fields fill the header")
    }

    pub fn decode(bytes: &[u8; SLOT_HEADER_BYTES]) -> Result<Self, Corrupt> {
        let mut reader = Reader::new(bytes);
        if reader.take(MAGIC.len(), "magic")? != MAGIC {
            return Err(Corrupt::new("slot header magic", 0, format!("{:02x?}", &bytes[..MAGIC.len()])));
        }
        let computed = crc32c::crc32c(&bytes[..CHECKSUM_AT]);
        let version = reader.u32("slot header version")?;
        let length = reader.u32("unit length")?;
        let (ino, au) = (reader.u64("inode")?, AuIndex(reader.u64("allocation unit")?));
        let checksum = reader.u32("unit checksum")?;
        reader.take(CHECKSUM_AT - reader.position(), "reserved")?;
        let stored = reader.u32("slot header checksum")?;
        if computed != stored {
            let found = format!("{computed:08x} instead of {stored:08x}");
            return Err(Corrupt::new("slot header checksum", CHECKSUM_AT, found));
        }
        if version != VERSION {
            return Err(Corrupt::new("slot header version", MAGIC.len(), format!("{version}")));
        }
        Ok(Self { ino, au, length, checksum })
    }
}

impl fmt::Display for SlotHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ino, au, length, checksum } = self;
        write!(f, "inode {ino}, allocation unit {au}, {length} bytes, checksum {checksum:08x}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_header_reads_back_and_every_damaged_byte_is_detected() {
        let header = SlotHeader { ino: 17, au: AuIndex(1 << 33), length: 5000, checksum: 0xdead_beef };
        let bytes = header.encode();
        assert_eq!(SlotHeader::decode(&bytes).unwrap(), header);
        for at in 0..SLOT_HEADER_BYTES {
            let mut damaged = bytes;
            damaged[at] ^= 0x10;
            assert!(SlotHeader::decode(&damaged).is_err(), "byte {at}");
        }
        assert!(SlotHeader::decode(&[0; SLOT_HEADER_BYTES]).is_err(), "a punched slot");
    }
}
