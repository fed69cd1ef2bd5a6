//! Where everything is on a device, and its header. Bytes: `docs/format/disk.md`.

use super::medium::Medium;
use cellar_format::bytes::{Corrupt, Reader, Write};
use std::io;
use std::ops::Range;

/// Grain of allocation, and of writes that are atomic.
pub const BLOCK: u64 = 4096;
const MIB: u64 = 1 << 20;
const MAGIC: &[u8; 8] = b"CELLARDV";
const VERSION: u32 = 1;
const CHECKSUM_AT: usize = BLOCK as usize - 4;
/// The copies are far apart, so that a program that damages one does not damage the other.
const HEADER_COPIES: [u64; 2] = [0, MIB];
const REGIONS_AT: u64 = 2 * MIB;
/// The smallest device: two metadata regions and some data.
pub const SIZE_MIN: u64 = 16 * MIB;
/// Places where file systems and partition tables have their magic: name, offset, bytes.
const FOREIGN: [(&str, usize, &[u8]); 7] = [
    ("an ext2, ext3 or ext4 file system", 1080, &[0x53, 0xef]),
    ("an XFS file system", 0, b"XFSB"),
    ("a Btrfs file system", 65_600, b"_BHRfS_M"),
    ("an LVM physical volume", 512, b"LABELONE"),
    ("swap space", 4086, b"SWAPSPACE2"),
    ("a GPT partition table", 512, b"EFI PART"),
    ("a partition table or boot sector", 510, &[0x55, 0xaa]),
];

/// The identity and geometry of a device. Written once, when the device is formatted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Random; part of every metadata block, so that blocks of an earlier format are not taken for current ones.
    pub format_id: u64,
    pub size: u64,
    /// Bytes of each of the two metadata regions.
    pub region_bytes: u64,
}

impl Header {
    pub fn new(format_id: u64, size: u64) -> Self {
        let region_bytes = (size / 256).clamp(MIB, 256 * MIB) / BLOCK * BLOCK;
        Self { format_id, size, region_bytes }
    }

    pub fn region(&self, number: usize) -> u64 {
        REGIONS_AT + number as u64 * self.region_bytes
    }

    /// Returns the blocks for data of files.
    pub fn data_blocks(&self) -> Range<u64> {
        (self.region(2).next_multiple_of(MIB) / BLOCK)..self.size / BLOCK
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(BLOCK as usize);
        bytes.put_bytes(MAGIC);
        bytes.put_u32(VERSION);
        bytes.put_u32(BLOCK as u32);
        bytes.put_u64(self.format_id);
        bytes.put_u64(self.size);
        bytes.put_u64(self.region_bytes);
        bytes.resize(CHECKSUM_AT, 0);
        let checksum = crc32c::crc32c(&bytes);
        bytes.put_u32(checksum);
        bytes
    }

    /// Returns None if the bytes are no intact header.
    fn decode(bytes: &[u8]) -> Result<Option<Self>, Corrupt> {
        let mut reader = Reader::new(bytes);
        let is_header = reader.take(8, "device magic")? == MAGIC
            && Reader::new(&bytes[CHECKSUM_AT..]).u32("device checksum")? == crc32c::crc32c(&bytes[..CHECKSUM_AT]);
        if !is_header {
            return Ok(None);
        }
        let (version, block) = (reader.u32("device version")?, reader.u32("block size")?);
        if version != VERSION || u64::from(block) != BLOCK {
            let found = format!("version {version} with blocks of {block} bytes; this release reads version {VERSION}");
            return Err(Corrupt::new("device version", 8, found));
        }
        let (format_id, size) = (reader.u64("format id")?, reader.u64("device size")?);
        let header = Self { format_id, size, region_bytes: reader.u64("region size")? };
        let fits = header.region_bytes.is_multiple_of(BLOCK)
            && (MIB..=256 * MIB).contains(&header.region_bytes)
            && !header.data_blocks().is_empty();
        match fits {
            true => Ok(Some(header)),
            false => Err(Corrupt::new("device geometry", 24, format!("{header:?}"))),
        }
    }

    /// Reads the first intact copy; None if there is none.
    pub fn read(medium: &dyn Medium) -> io::Result<Option<Self>> {
        for at in HEADER_COPIES.into_iter().filter(|at| at + BLOCK <= medium.size()) {
            let mut bytes = vec![0; BLOCK as usize];
            medium.read_metadata(&mut bytes, at)?;
            let Some(header) = Self::decode(&bytes).map_err(corrupt)? else { continue };
            if header.size > medium.size() {
                let message = format!(
                    "the device has {} bytes, but was formatted with {}; restore its size, or check the path",
                    medium.size(),
                    header.size
                );
                return Err(io::Error::new(io::ErrorKind::InvalidData, message));
            }
            return Ok(Some(header));
        }
        Ok(None)
    }

    /// Writes both copies one after the other, so that one is intact after a loss of power.
    pub fn write(&self, medium: &dyn Medium) -> io::Result<()> {
        // An earlier format must not be found behind the new header.
        for region in 0..2 {
            medium.write_metadata(&[0; BLOCK as usize], self.region(region))?;
        }
        medium.sync()?;
        for at in HEADER_COPIES {
            medium.write_metadata(&self.encode(), at)?;
            medium.sync()?;
        }
        Ok(())
    }
}

/// Returns what a device without a header contains: None if its start and its end are zeros.
pub fn foreign_content(medium: &dyn Medium) -> io::Result<Option<&'static str>> {
    let mut start = vec![0; (2 * MIB).min(medium.size()) as usize];
    medium.read_metadata(&mut start, 0)?;
    let found = FOREIGN.iter().find(|(_, at, magic)| start.get(*at..at + magic.len()) == Some(*magic));
    if let Some((name, ..)) = found {
        return Ok(Some(name));
    }
    let mut end = vec![0; MIB.min(medium.size()) as usize];
    let end_at = medium.size() - end.len() as u64;
    medium.read_metadata(&mut end, end_at)?;
    let is_zero = start.iter().chain(&end).all(|byte| *byte == 0);
    Ok((!is_zero).then_some("data of an unknown kind"))
}

pub fn corrupt(error: Corrupt) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_header_is_not_accepted() {
        let header = Header::new(7, 64 * MIB);
        let bytes = header.encode();
        assert_eq!(Header::decode(&bytes).unwrap(), Some(header));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            assert_ne!(Header::decode(&damaged).ok().flatten(), Some(header), "byte {at}");
        }
    }
}
