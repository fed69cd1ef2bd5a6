//! The bytes of the flash log: records in the ring, and the notes on flash disk and cell disks. `docs/format/flash-log.md`
//! describes them.

use crate::disk::AlignedBytes;
use crate::flash::Generation;
use cellar_format::bytes::{Corrupt, Reader, Write};
use std::ops::Range;

/// Unit of places in the ring.
pub const BLOCK: usize = 4096;
const RECORD_MAGIC: &[u8; 8] = b"CELLFLOG";
const RECORD_VERSION: u32 = 1;
const PIECES_AT: usize = 72;
const PIECE_BYTES: usize = 12;
const CHECKSUM_AT: usize = BLOCK - 4;
/// Maximum number of writes in a record.
pub const PIECES_MAX: usize = 256;
/// Maximum number of bytes of the writes in a record.
pub const DATA_BYTES_MAX: usize = 1 << 20;
const NOTE_VERSION: u32 = 1;

const _: () = assert!(PIECES_AT + PIECES_MAX * PIECE_BYTES <= CHECKSUM_AT);

/// Writes to one file, in their order, and their bytes one after the other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Writes {
    pub pieces: Vec<Range<u64>>,
    pub data: Vec<u8>,
}

impl Writes {
    /// Calls `visit` with the offset and the bytes of each write.
    pub fn for_each<E>(&self, mut visit: impl FnMut(u64, &[u8]) -> Result<(), E>) -> Result<(), E> {
        let mut at = 0;
        for piece in &self.pieces {
            let length = (piece.end - piece.start) as usize;
            visit(piece.start, &self.data[at..at + length])?;
            at += length;
        }
        Ok(())
    }

    /// Returns the bytes that a record of the writes has in the ring.
    pub fn record_bytes(&self) -> usize {
        BLOCK + self.data.len().next_multiple_of(BLOCK)
    }
}

/// A record: writes to one file; without any, the record only says what is retired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordHeader {
    pub generation: Generation,
    /// Increases by one with each record.
    pub sequence: u64,
    /// Records up to this sequence are not applied by a start: the cell disks have their bytes, or newer ones.
    pub retired: u64,
    /// Records up to this sequence were durable in flash when this record was written.
    pub durable: u64,
    pub ino: u64,
    pub pieces: Vec<Range<u64>>,
    data_bytes: u32,
    data_checksum: u32,
}

impl RecordHeader {
    pub fn new(generation: Generation, (sequence, retired, durable): (u64, u64, u64), ino: u64) -> Self {
        let (pieces, data_bytes, data_checksum) = (Vec::new(), 0, 0);
        Self { generation, sequence, retired, durable, ino, pieces, data_bytes, data_checksum }
    }

    /// Writes the record to `bytes`, which has [`Writes::record_bytes`].
    pub fn encode(&self, writes: &Writes, bytes: &mut [u8]) {
        assert!(writes.pieces.len() <= PIECES_MAX && writes.data.len() <= DATA_BYTES_MAX);
        let mut header = Vec::with_capacity(BLOCK);
        header.put_bytes(RECORD_MAGIC);
        header.put_u32(RECORD_VERSION);
        header.put_u32(writes.pieces.len() as u32);
        header.put_bytes(&self.generation.0);
        header.put_u64(self.sequence);
        header.put_u64(self.retired);
        header.put_u64(self.durable);
        header.put_u64(self.ino);
        header.put_u32(writes.data.len() as u32);
        header.put_u32(crc32c::crc32c(&writes.data));
        debug_assert_eq!(header.len(), PIECES_AT);
        for piece in &writes.pieces {
            header.put_u64(piece.start);
            header.put_u32((piece.end - piece.start) as u32);
        }
        header.resize(CHECKSUM_AT, 0);
        let checksum = crc32c::crc32c(&header);
        header.put_u32(checksum);
        bytes[..BLOCK].copy_from_slice(&header);
        bytes[BLOCK..BLOCK + writes.data.len()].copy_from_slice(&writes.data);
        bytes[BLOCK + writes.data.len()..].fill(0);
    }

    /// Decodes a header; does not check the bytes of the writes.
    pub fn decode(block: &[u8]) -> Result<Self, Corrupt> {
        let mut reader = Reader::new(block.get(..BLOCK).ok_or_else(|| Corrupt::new("record", 0, "too few bytes"))?);
        if reader.take(8, "record magic")? != RECORD_MAGIC {
            return Err(Corrupt::new("record magic", 0, "other bytes"));
        }
        let checksum = u32::from_le_bytes(block[CHECKSUM_AT..BLOCK].try_into().expect("four bytes"));
        if crc32c::crc32c(&block[..CHECKSUM_AT]) != checksum {
            return Err(Corrupt::new("record checksum", CHECKSUM_AT, format!("{checksum:08x}")));
        }
        let version = reader.u32("record version")?;
        if version != RECORD_VERSION {
            return Err(Corrupt::new("record version", 8, version.to_string()));
        }
        let count = reader.u32("number of writes")?;
        if count as usize > PIECES_MAX {
            return Err(Corrupt::new("number of writes", 12, count.to_string()));
        }
        let generation = Generation::read(&mut reader)?;
        let (sequence, retired, durable) = (reader.u64("sequence")?, reader.u64("retired")?, reader.u64("durable")?);
        let ino = reader.u64("inode")?;
        let (data_bytes, data_checksum) = (reader.u32("bytes")?, reader.u32("checksum of the bytes")?);
        let mut pieces = Vec::new();
        for _ in 0..count {
            let at = reader.position();
            let (offset, length) = (reader.u64("offset")?, reader.u32("length")?);
            let end = offset.checked_add(u64::from(length));
            pieces.push(offset..end.ok_or_else(|| Corrupt::new("offset", at, offset.to_string()))?);
        }
        let sum: u64 = pieces.iter().map(|piece| piece.end - piece.start).sum();
        if sum != u64::from(data_bytes) || data_bytes as usize > DATA_BYTES_MAX {
            return Err(Corrupt::new("bytes", 64, data_bytes.to_string()));
        }
        Ok(Self { generation, sequence, retired, durable, ino, pieces, data_bytes, data_checksum })
    }

    pub fn data_bytes(&self) -> usize {
        self.data_bytes as usize
    }

    pub fn is_data(&self, data: &[u8]) -> bool {
        data.len() == self.data_bytes() && crc32c::crc32c(data) == self.data_checksum
    }
}

/// Memory for the bytes of records.
pub fn memory(bytes: usize) -> AlignedBytes {
    AlignedBytes::new(bytes)
}

/// A note with a magic and a checksum.
fn encode_note(magic: &[u8; 8], fill: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.put_bytes(magic);
    bytes.put_u32(NOTE_VERSION);
    fill(&mut bytes);
    let checksum = crc32c::crc32c(&bytes);
    bytes.put_u32(checksum);
    bytes
}

fn decode_note<T>(
    magic: &[u8; 8],
    bytes: &[u8],
    read: impl FnOnce(&mut Reader<'_>) -> Result<T, Corrupt>,
) -> Result<T, Corrupt> {
    let mut reader = Reader::new(bytes);
    if reader.take(8, "magic of the note")? != magic {
        return Err(Corrupt::new("magic of the note", 0, "other bytes"));
    }
    let version = reader.u32("version of the note")?;
    if version != NOTE_VERSION {
        return Err(Corrupt::new("version of the note", 8, version.to_string()));
    }
    let content = read(&mut reader)?;
    let at = reader.position();
    let checksum = reader.u32("checksum of the note")?;
    reader.finish("note")?;
    match crc32c::crc32c(&bytes[..at]) == checksum {
        true => Ok(content),
        false => Err(Corrupt::new("checksum of the note", at, format!("{checksum:08x}"))),
    }
}

/// The note of a flash disk with a flash log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskNote {
    pub generation: Generation,
    /// Bytes of the ring.
    pub ring_bytes: u64,
}

impl DiskNote {
    const MAGIC: &[u8; 8] = b"CELLFLDN";

    pub fn encode(&self) -> Vec<u8> {
        encode_note(Self::MAGIC, |bytes| {
            bytes.put_bytes(&self.generation.0);
            bytes.put_u64(self.ring_bytes);
        })
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, Corrupt> {
        decode_note(Self::MAGIC, bytes, |reader| {
            Ok(Self { generation: Generation::read(reader)?, ring_bytes: reader.u64("bytes of the ring")? })
        })
    }
}

/// The note of a cell disk: which flash log may have redo that the cell disks lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CellNote {
    /// Increases with each note. A disk that was absent may have an older one.
    pub number: u64,
    /// Zeros without a flash log.
    pub generation: Generation,
    /// False after a clean stop: the cell disks have everything.
    pub is_needed: bool,
}

impl CellNote {
    const MAGIC: &[u8; 8] = b"CELLFLCN";

    /// The note after `former`, of a log that the cell disks do not need.
    pub fn after(former: Option<&Self>, generation: Generation) -> Self {
        Self { number: former.map_or(1, |former| former.number + 1), generation, is_needed: false }
    }

    pub fn encode(&self) -> Vec<u8> {
        encode_note(Self::MAGIC, |bytes| {
            bytes.put_u64(self.number);
            bytes.put_bytes(&self.generation.0);
            bytes.put_bool(self.is_needed);
        })
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, Corrupt> {
        decode_note(Self::MAGIC, bytes, |reader| {
            let (number, generation) = (reader.u64("number of the note")?, Generation::read(reader)?);
            Ok(Self { number, generation, is_needed: reader.bool("is needed")? })
        })
    }
}

/// The file on each cell disk that says which records are retired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    pub generation: Generation,
    pub retired: u64,
}

impl Mark {
    const MAGIC: &[u8; 8] = b"CELLFLRM";
    pub const BYTES: usize = 40;

    pub fn encode(&self) -> Vec<u8> {
        let bytes = encode_note(Self::MAGIC, |bytes| {
            bytes.put_bytes(&self.generation.0);
            bytes.put_u64(self.retired);
        });
        debug_assert_eq!(bytes.len(), Self::BYTES);
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, Corrupt> {
        decode_note(Self::MAGIC, bytes, |reader| {
            Ok(Self { generation: Generation::read(reader)?, retired: reader.u64("retired")? })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GENERATION: Generation = Generation([7; Generation::BYTES]);

    #[test]
    fn records_and_notes_read_back_and_no_flipped_bit_is_accepted() {
        let writes = Writes { pieces: vec![10..15, 8192..8195], data: b"hello123".to_vec() };
        let mut bytes = memory(writes.record_bytes());
        RecordHeader::new(GENERATION, (9, 3, 8), 77).encode(&writes, &mut bytes);
        let header = RecordHeader::decode(&bytes).unwrap();
        assert_eq!((header.sequence, header.retired, header.durable, header.ino), (9, 3, 8, 77));
        assert_eq!(header.pieces, writes.pieces);
        assert!(header.is_data(&bytes[BLOCK..BLOCK + 8]) && !header.is_data(b"hello124"));
        let mut seen = Vec::new();
        let visited: Result<(), ()> = writes.for_each(|offset, data| {
            seen.push((offset, data.to_vec()));
            Ok(())
        });
        assert_eq!((visited, seen), (Ok(()), vec![(10, b"hello".to_vec()), (8192, b"123".to_vec())]));
        for at in 0..BLOCK {
            bytes[at] ^= 1;
            assert!(RecordHeader::decode(&bytes).is_err(), "byte {at}");
            bytes[at] ^= 1;
        }
        let notes = [
            DiskNote { generation: GENERATION, ring_bytes: 1 << 20 }.encode(),
            CellNote { number: 4, generation: GENERATION, is_needed: true }.encode(),
            Mark { generation: GENERATION, retired: 12 }.encode(),
        ];
        let decode = |bytes: &[u8]| {
            let (disk, cell, mark) = (DiskNote::decode(bytes), CellNote::decode(bytes), Mark::decode(bytes));
            (disk.is_ok() as u8, cell.is_ok() as u8, mark.is_ok() as u8)
        };
        assert_eq!(notes.each_ref().map(|note| decode(note)), [(1, 0, 0), (0, 1, 0), (0, 0, 1)]);
        for mut note in notes {
            for at in 0..note.len() {
                note[at] ^= 1;
                assert_eq!(decode(&note), (0, 0, 0), "byte {at}");
                note[at] ^= 1;
            }
        }
    }
}
