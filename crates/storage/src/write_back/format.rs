//! Bytes of the write-back log: records, and the notes that say which log has changes that the cell disks lack. Layout:
//! `docs/format/flash.md`.

use crate::disk::{AlignedBytes, Stream};
use crate::flash::{Generation, Object};
use cellar_format::bytes::{Corrupt, Reader, Write};

pub const PAGE: u64 = 8192;
pub const PAGE_BYTES: usize = PAGE as usize;
/// Size of a record's header.
pub const BLOCK: usize = 4096;
/// Maximum pages of a record.
pub const PAGES_MAX: usize = 64;
/// Maximum pieces of a record.
pub const PIECES_MAX: usize = (CHECKSUM_AT - PIECES_AT) / PIECE_BYTES;
const RECORD_MAGIC: &[u8; 8] = b"CELLWBRC";
const VERSION: u16 = 1;
const PIECES_AT: usize = 72;
const PIECE_BYTES: usize = 32;
const CHECKSUM_AT: usize = BLOCK - 4;

/// What a record says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece {
    /// The record contains successive pages of an object.
    Pages { object: Object, first: u32, count: u32 },
    /// The cell disks have these pages as of the records up to `up_to`, or the pages do not exist any more: no page of these
    /// records counts.
    Clean { object: Object, first: u32, last: u32, up_to: u64 },
}

/// The part of a record before its pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordHeader {
    pub generation: Generation,
    /// Increases by one with each record.
    pub sequence: u64,
    /// No record with a lower sequence counts.
    pub oldest: u64,
    /// Records up to this sequence were durable when this record was written.
    pub flushed: u64,
    pub pieces: Vec<Piece>,
    pub pages: usize,
    payload_checksum: u32,
}

impl RecordHeader {
    pub fn new(generation: Generation, (sequence, oldest, flushed): (u64, u64, u64)) -> Self {
        Self { generation, sequence, oldest, flushed, pieces: Vec::new(), pages: 0, payload_checksum: 0 }
    }

    /// Returns the bytes of the record. `payload` consists of the pages of the pieces.
    pub fn encode(&self, pieces: &[Piece], payload: &[u8]) -> AlignedBytes {
        assert!(pieces.len() <= PIECES_MAX && payload.len().is_multiple_of(PAGE_BYTES));
        assert!(payload.len() <= PAGES_MAX * PAGE_BYTES);
        let mut header = Vec::with_capacity(BLOCK);
        header.put_bytes(RECORD_MAGIC);
        header.put_u16(VERSION);
        header.put_u16(0);
        header.put_u32(pieces.len() as u32);
        header.put_bytes(&self.generation.0);
        header.put_u64(self.sequence);
        header.put_u64(self.oldest);
        header.put_u64(self.flushed);
        header.put_u32((payload.len() / PAGE_BYTES) as u32);
        header.put_u32(crc32c::crc32c(payload));
        header.put_u64(0);
        debug_assert_eq!(header.len(), PIECES_AT);
        pieces.iter().for_each(|piece| piece.encode(&mut header));
        header.resize(CHECKSUM_AT, 0);
        let checksum = crc32c::crc32c(&header);
        header.put_u32(checksum);
        let mut bytes = AlignedBytes::new(BLOCK + payload.len());
        bytes[..BLOCK].copy_from_slice(&header);
        bytes[BLOCK..].copy_from_slice(payload);
        bytes
    }

    /// Decodes a header; does not check the pages.
    pub fn decode(block: &[u8]) -> Result<Self, Corrupt> {
        let block = block.get(..BLOCK).ok_or_else(|| Corrupt::new("record", 0, "too few bytes"))?;
        let mut reader = Reader::new(block);
        if reader.take(8, "record magic")? != RECORD_MAGIC {
            return Err(Corrupt::new("record magic", 0, "other bytes"));
        }
        let checksum = u32::from_le_bytes(block[CHECKSUM_AT..].try_into().expect("four bytes"));
        if crc32c::crc32c(&block[..CHECKSUM_AT]) != checksum {
            return Err(Corrupt::new("record checksum", CHECKSUM_AT, format!("{checksum:08x}")));
        }
        let version = reader.u16("record version")?;
        if version != VERSION {
            return Err(Corrupt::new("record version", 8, version.to_string()));
        }
        reader.u16("reserved")?;
        let count = reader.u32("number of pieces")? as usize;
        let generation = Generation::read(&mut reader)?;
        let (sequence, oldest) = (reader.u64("sequence")?, reader.u64("oldest sequence")?);
        let flushed = reader.u64("durable sequence")?;
        let (pages, payload_checksum) = (reader.u32("number of pages")? as usize, reader.u32("payload checksum")?);
        reader.u64("reserved")?;
        if count > PIECES_MAX || pages > PAGES_MAX || oldest > sequence || flushed >= sequence {
            return Err(Corrupt::new("record", 12, format!("{count} pieces, {pages} pages, sequence {sequence}")));
        }
        let pieces = (0..count).map(|_| Piece::decode(&mut reader)).collect::<Result<Vec<_>, _>>()?;
        let contained = pieces.iter().map(|piece| match piece {
            Piece::Pages { count, .. } => u64::from(*count),
            Piece::Clean { .. } => 0,
        });
        if contained.sum::<u64>() != pages as u64 {
            return Err(Corrupt::new("number of pages", 56, pages.to_string()));
        }
        Ok(Self { generation, sequence, oldest, flushed, pieces, pages, payload_checksum })
    }

    /// Returns whether the pages after the header are those that were written.
    pub fn has_payload(&self, payload: &[u8]) -> bool {
        payload.get(..self.pages * PAGE_BYTES).is_some_and(|bytes| crc32c::crc32c(bytes) == self.payload_checksum)
    }

    /// Returns the bytes of the whole record.
    pub fn length(&self) -> u64 {
        (BLOCK + self.pages * PAGE_BYTES) as u64
    }

    /// Returns each page of the record, with its offset in a segment where the record begins at `start`.
    pub fn page_offsets(&self, start: u64) -> impl Iterator<Item = (Object, u32, u64)> {
        let runs = self.pieces.iter().filter_map(|piece| match piece {
            Piece::Pages { object, first, count } => Some((*first..first + count).map(move |page| (*object, page))),
            Piece::Clean { .. } => None,
        });
        let offsets = (0..).map(move |nth: u64| start + BLOCK as u64 + nth * PAGE);
        runs.flatten().zip(offsets).map(|((object, page), offset)| (object, page, offset))
    }
}

impl Piece {
    fn encode(&self, bytes: &mut Vec<u8>) {
        let (kind, object, first, second, up_to) = match self {
            Self::Pages { object, first, count } => (1, object, *first, *count, 0),
            Self::Clean { object, first, last, up_to } => (2, object, *first, *last, *up_to),
        };
        debug_assert_eq!(object.stream, Stream::Data);
        bytes.put_u8(kind);
        bytes.put_u8(0);
        bytes.put_u16(object.stripe);
        bytes.put_u32(first);
        bytes.put_u64(object.ino);
        bytes.put_u32(second);
        bytes.put_u32(0);
        bytes.put_u64(up_to);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        let at = reader.position();
        let kind = reader.u8("kind of piece")?;
        reader.u8("reserved")?;
        let stripe = reader.u16("stripe")?;
        let first = reader.u32("first page")?;
        let object = Object { stripe, ino: reader.u64("inode number")?, stream: Stream::Data };
        let second = reader.u32("last page")?;
        reader.u32("reserved")?;
        let up_to = reader.u64("sequence")?;
        match kind {
            1 if second as usize <= PAGES_MAX && first.checked_add(second).is_some() => {
                Ok(Self::Pages { object, first, count: second })
            }
            2 if first <= second => Ok(Self::Clean { object, first, last: second, up_to }),
            other => Err(Corrupt::new("kind of piece", at, other.to_string())),
        }
    }
}

/// A note about a log. On a flash disk, `value` is the number of the disk; on a cell disk, the flash disks whose records count:
/// bit n for disk n.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Note {
    pub generation: Generation,
    pub value: u32,
}

impl Note {
    const MAGIC: &'static [u8; 8] = b"CELLWBNT";

    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.put_bytes(Self::MAGIC);
        bytes.put_u32(u32::from(VERSION));
        bytes.put_bytes(&self.generation.0);
        bytes.put_u32(self.value);
        let checksum = crc32c::crc32c(&bytes);
        bytes.put_u32(checksum);
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, Corrupt> {
        let mut reader = Reader::new(bytes);
        if reader.take(8, "note magic")? != Self::MAGIC {
            return Err(Corrupt::new("note magic", 0, "other bytes"));
        }
        let version = reader.u32("note version")?;
        if version != u32::from(VERSION) {
            return Err(Corrupt::new("note version", 8, version.to_string()));
        }
        let (generation, value) = (Generation::read(&mut reader)?, reader.u32("note value")?);
        let at = reader.position();
        let checksum = reader.u32("note checksum")?;
        reader.finish("note")?;
        match crc32c::crc32c(&bytes[..at]) == checksum {
            true => Ok(Self { generation, value }),
            false => Err(Corrupt::new("note checksum", at, format!("{checksum:08x}"))),
        }
    }
}

/// The inodes of the files that may have pages which only the log of the generation has, in ascending order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilesNote {
    pub generation: Generation,
    /// Any WAL file may have such pages, too.
    pub has_redo: bool,
    pub inodes: Vec<u64>,
}

impl FilesNote {
    const MAGIC: &'static [u8; 8] = b"CELLWBFL";
    /// The version of a note of a log that takes redo.
    const VERSION_WITH_REDO: u32 = 2;

    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.put_bytes(Self::MAGIC);
        bytes.put_u32(if self.has_redo { Self::VERSION_WITH_REDO } else { VERSION.into() });
        bytes.put_u32(self.inodes.len() as u32);
        bytes.put_bytes(&self.generation.0);
        self.inodes.iter().for_each(|ino| bytes.put_u64(*ino));
        let checksum = crc32c::crc32c(&bytes);
        bytes.put_u32(checksum);
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, Corrupt> {
        let mut reader = Reader::new(bytes);
        if reader.take(8, "magic of a note of files")? != Self::MAGIC {
            return Err(Corrupt::new("magic of a note of files", 0, "other bytes"));
        }
        let version = reader.u32("version of a note of files")?;
        let has_redo = version == Self::VERSION_WITH_REDO;
        if !has_redo && version != u32::from(VERSION) {
            return Err(Corrupt::new("version of a note of files", 8, version.to_string()));
        }
        let count = reader.u32("number of files")?;
        let generation = Generation::read(&mut reader)?;
        let inodes = (0..count).map(|_| reader.u64("inode number")).collect::<Result<_, _>>()?;
        let at = reader.position();
        let checksum = reader.u32("checksum of a note of files")?;
        reader.finish("note of files")?;
        match crc32c::crc32c(&bytes[..at]) == checksum {
            true => Ok(Self { generation, has_redo, inodes }),
            false => Err(Corrupt::new("checksum of a note of files", at, format!("{checksum:08x}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_decoded_as_it_was_written_and_every_flipped_bit_is_detected() {
        let object = Object { stripe: 3, ino: 77, stream: Stream::Data };
        let pieces =
            [Piece::Pages { object, first: 5, count: 2 }, Piece::Clean { object, first: 0, last: u32::MAX, up_to: 8 }];
        let payload: Vec<u8> = (0..2 * PAGE_BYTES).map(|at| (at * 7) as u8).collect();
        let bytes = RecordHeader::new(Generation([4; 16]), (9, 2, 7)).encode(&pieces, &payload).to_vec();
        let header = RecordHeader::decode(&bytes).unwrap();
        assert_eq!((header.sequence, header.oldest, header.flushed, header.pages), (9, 2, 7, 2));
        assert_eq!((&header.pieces[..], header.length()), (&pieces[..], bytes.len() as u64));
        assert_eq!(header.page_offsets(4096).collect::<Vec<_>>(), [(object, 5, 8192), (object, 6, 16384)]);
        assert!(header.has_payload(&bytes[BLOCK..]) && !header.has_payload(&bytes[BLOCK..BLOCK + PAGE_BYTES]));
        for at in (0..BLOCK).chain([BLOCK, bytes.len() - 1]) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            let found = RecordHeader::decode(&damaged);
            assert!(found.is_err() || !found.unwrap().has_payload(&damaged[BLOCK..]), "byte {at}");
        }
    }

    #[test]
    fn a_note_is_decoded_as_it_was_written_and_every_flipped_bit_is_detected() {
        let note = Note { generation: Generation([9; 16]), value: 3 };
        let bytes = note.encode();
        assert_eq!(Note::decode(&bytes).unwrap(), note);
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            Note::decode(&damaged).unwrap_err();
        }
        for has_redo in [false, true] {
            let note = FilesNote { generation: Generation([9; 16]), has_redo, inodes: vec![3, 1 << 40] };
            let bytes = note.encode();
            assert_eq!(FilesNote::decode(&bytes).unwrap(), note);
            for at in 0..bytes.len() {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << (at % 8);
                FilesNote::decode(&damaged).unwrap_err();
                FilesNote::decode(&bytes[..at]).unwrap_err();
            }
        }
    }
}
