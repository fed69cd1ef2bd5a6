//! Bytes of the flash cache: records of the log, checkpoints, and notes. Layout: `docs/format/flash.md`.

use super::location::{Location, PAGE_BYTES, SEGMENT_BLOCKS_MAX, SEGMENTS_MAX};
use super::setting::FlashSetting;
use crate::disk::{AlignedBytes, Stream};
use cellar_format::bytes::{Corrupt, Reader, Write};
use std::io::{self, Read};

/// Unit of places in a segment, and the size of a record's header.
pub const BLOCK: usize = 4096;
/// Maximum pages of a record.
pub const RECORD_PAGES_MAX: usize = 128;
/// Maximum pieces of a record.
pub const PIECES_MAX: usize = 160;
const RECORD_MAGIC: &[u8; 8] = b"CELLFREC";
const RECORD_VERSION: u16 = 1;
const PIECES_AT: usize = 64;
const PIECE_BYTES: usize = 24;
const CHECKSUM_AT: usize = BLOCK - 4;
const _: () = assert!(PIECES_AT + PIECES_MAX * PIECE_BYTES <= CHECKSUM_AT);

const CHECKPOINT_MAGIC: &[u8; 8] = b"CELLFCKP";
/// Version 1 has no settings.
const CHECKPOINT_VERSION: u32 = 2;
/// Bytes before the body of a checkpoint.
pub const CHECKPOINT_HEADER_BYTES: usize = 56;

const NOTE_MAGIC: &[u8; 8] = b"CELLFDSK";
const NOTE_VERSION: u32 = 1;

const INTENT_MAGIC: &[u8; 8] = b"CELLFINT";
const INTENT_VERSION: u32 = 1;

/// Identifies one run of a cell with a flash cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Generation(pub [u8; 16]);

impl Generation {
    pub const BYTES: usize = 16;

    pub fn random() -> io::Result<Self> {
        let mut bytes = [0; Self::BYTES];
        std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        Ok(Self(bytes))
    }

    pub fn read(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        Ok(Self(reader.take(Self::BYTES, "generation")?.try_into().expect("16 bytes")))
    }
}

/// One file of an inode on one stripe of the disk group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Object {
    pub stripe: u16,
    pub ino: u64,
    pub stream: Stream,
}

/// The queue that a segment belongs to: one of S3-FIFO, or that of kept files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Queue {
    Small = 0,
    Main = 1,
    /// Pages of files that are kept.
    Keep = 2,
}

/// What a record says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// The record contains pages of an object.
    Pages { object: Object, first: u32, count: u32 },
    /// Regions of an object change from now on: after a crash, no page of them counts.
    Intent { object: Object, first: u32, last: u32 },
    /// No page in the segment counts, if the segment has this incarnation.
    Retired { segment: u32, incarnation: u64 },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordHeader {
    pub generation: Generation,
    /// Increases by one with each record.
    pub sequence: u64,
    /// The sequence of the segment's first record.
    pub incarnation: u64,
    /// Records up to this sequence were durable when this record was written.
    pub flushed: u64,
    pub queue: Queue,
    pub pieces: Vec<Piece>,
    pub pages: usize,
    payload_checksum: u32,
}

impl RecordHeader {
    pub fn new(generation: Generation, (sequence, incarnation, flushed): (u64, u64, u64), queue: Queue) -> Self {
        let (pieces, pages, payload_checksum) = (Vec::new(), 0, 0);
        Self { generation, sequence, incarnation, flushed, queue, pieces, pages, payload_checksum }
    }

    /// Returns the bytes of the record.
    pub fn encode(mut self, pieces: &[Piece], payload: &[&[u8]]) -> AlignedBytes {
        assert!(pieces.len() <= PIECES_MAX && payload.len() <= RECORD_PAGES_MAX);
        self.pages = payload.len();
        let mut bytes = AlignedBytes::new(BLOCK + payload.len() * PAGE_BYTES);
        for (at, page) in bytes[BLOCK..].chunks_exact_mut(PAGE_BYTES).zip(payload) {
            at.copy_from_slice(page);
        }
        let mut header = Vec::with_capacity(BLOCK);
        header.put_bytes(RECORD_MAGIC);
        header.put_u16(RECORD_VERSION);
        header.put_u8(self.queue as u8);
        header.put_u8(0);
        header.put_u32(pieces.len() as u32);
        header.put_bytes(&self.generation.0);
        header.put_u64(self.sequence);
        header.put_u64(self.incarnation);
        header.put_u64(self.flushed);
        header.put_u32(self.pages as u32);
        header.put_u32(crc32c::crc32c(&bytes[BLOCK..]));
        debug_assert_eq!(header.len(), PIECES_AT);
        pieces.iter().for_each(|piece| piece.encode(&mut header));
        header.resize(CHECKSUM_AT, 0);
        let checksum = crc32c::crc32c(&header);
        header.put_u32(checksum);
        bytes[..BLOCK].copy_from_slice(&header);
        bytes
    }

    /// Decodes a header; does not check the pages.
    pub fn decode(block: &[u8]) -> Result<Self, Corrupt> {
        let mut reader = Reader::new(block.get(..BLOCK).ok_or_else(|| Corrupt::new("record", 0, "too few bytes"))?);
        if reader.take(8, "record magic")? != RECORD_MAGIC {
            return Err(Corrupt::new("record magic", 0, "other bytes"));
        }
        let checksum = u32::from_le_bytes(block[CHECKSUM_AT..BLOCK].try_into().expect("four bytes"));
        if crc32c::crc32c(&block[..CHECKSUM_AT]) != checksum {
            return Err(Corrupt::new("record checksum", CHECKSUM_AT, format!("{checksum:08x}")));
        }
        let version = reader.u16("record version")?;
        if version != RECORD_VERSION {
            return Err(Corrupt::new("record version", 8, version.to_string()));
        }
        let queue = match reader.u8("queue")? {
            0 => Queue::Small,
            1 => Queue::Main,
            2 => Queue::Keep,
            other => return Err(Corrupt::new("queue", 10, other.to_string())),
        };
        reader.u8("reserved")?;
        let count = reader.u32("number of pieces")? as usize;
        let generation = Generation::read(&mut reader)?;
        let (sequence, incarnation, flushed) =
            (reader.u64("sequence")?, reader.u64("incarnation")?, reader.u64("flushed")?);
        let (pages, payload_checksum) = (reader.u32("number of pages")? as usize, reader.u32("payload checksum")?);
        if count > PIECES_MAX || pages > RECORD_PAGES_MAX {
            return Err(Corrupt::new("record size", 12, format!("{count} pieces, {pages} pages")));
        }
        let pieces = (0..count).map(|_| Piece::decode(&mut reader)).collect::<Result<Vec<_>, _>>()?;
        let contained = pieces.iter().map(|piece| match piece {
            Piece::Pages { count, .. } => u64::from(*count),
            Piece::Intent { .. } | Piece::Retired { .. } => 0,
        });
        if contained.sum::<u64>() != pages as u64 {
            return Err(Corrupt::new("number of pages", 56, pages.to_string()));
        }
        Ok(Self { generation, sequence, incarnation, flushed, queue, pieces, pages, payload_checksum })
    }

    /// Returns whether the pages after the header are those that were written.
    pub fn has_payload(&self, payload: &[u8]) -> bool {
        payload.get(..self.pages * PAGE_BYTES).is_some_and(|bytes| crc32c::crc32c(bytes) == self.payload_checksum)
    }

    /// Returns the bytes of the whole record.
    pub fn length(&self) -> usize {
        BLOCK + self.pages * PAGE_BYTES
    }

    /// Returns each page of the record, with its block in the segment if the record begins at `block`.
    pub fn page_blocks(&self, block: u32) -> impl Iterator<Item = (Object, u32, u32)> {
        let runs = self.pieces.iter().filter_map(|piece| match piece {
            Piece::Pages { object, first, count } => Some((0..*count).map(move |nth| (*object, first + nth))),
            Piece::Intent { .. } | Piece::Retired { .. } => None,
        });
        let blocks = (0..).map(move |nth: u32| block + 1 + nth * (PAGE_BYTES / BLOCK) as u32);
        runs.flatten().zip(blocks).map(|((object, page), block)| (object, page, block))
    }
}

impl Piece {
    fn encode(&self, bytes: &mut Vec<u8>) {
        let no_object = Object { stripe: 0, ino: 0, stream: Stream::Data };
        let (kind, object, first, last) = match self {
            Self::Pages { object, first, count } => (1, *object, *first, *count),
            Self::Intent { object, first, last } => (2, *object, *first, *last),
            Self::Retired { segment, incarnation } => (3, Object { ino: *incarnation, ..no_object }, *segment, 0),
        };
        bytes.put_u8(kind);
        bytes.put_u8(stream_code(object.stream));
        bytes.put_u16(object.stripe);
        bytes.put_u32(first);
        bytes.put_u64(object.ino);
        bytes.put_u32(last);
        bytes.put_u32(0);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        let at = reader.position();
        let kind = reader.u8("kind of piece")?;
        let object_stream = stream_of(reader)?;
        let stripe = reader.u16("stripe")?;
        let first = reader.u32("first page")?;
        let ino = reader.u64("inode number")?;
        let last = reader.u32("last page")?;
        let flags = reader.u32("flags of piece")?;
        let object = Object { stripe, ino, stream: object_stream };
        match kind {
            _ if flags != 0 => Err(Corrupt::new("flags of piece", at + 20, flags.to_string())),
            1 if last as usize <= RECORD_PAGES_MAX && first.checked_add(last).is_some() => {
                Ok(Self::Pages { object, first, count: last })
            }
            2 if first <= last => Ok(Self::Intent { object, first, last }),
            3 if first < SEGMENTS_MAX => Ok(Self::Retired { segment: first, incarnation: ino }),
            other => Err(Corrupt::new("kind of piece", at, other.to_string())),
        }
    }
}

fn stream_code(stream: Stream) -> u8 {
    Stream::ALL.iter().position(|other| *other == stream).expect("the list contains every stream") as u8
}

fn stream_of(reader: &mut Reader<'_>) -> Result<Stream, Corrupt> {
    let at = reader.position();
    let code = reader.u8("stream")?;
    Stream::ALL.get(usize::from(code)).copied().ok_or_else(|| Corrupt::new("stream", at, code.to_string()))
}

/// A run of pages at successive places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageRun {
    /// Index in [`Checkpoint::objects`].
    pub object: u32,
    pub first: u32,
    pub place: Location,
    pub count: u32,
}

/// A segment in a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListedSegment {
    pub number: u32,
    pub incarnation: u64,
    /// Later records may be in the segment.
    pub is_open: bool,
    /// Bytes of the records that the checkpoint contains.
    pub length: u32,
}

/// The state of the index after all records up to a sequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    pub generation: Generation,
    pub sequence: u64,
    pub segments: Vec<ListedSegment>,
    pub objects: Vec<Object>,
    /// Regions whose pages do not count: index of the object, first and last region.
    pub open: Vec<(u32, u32, u32)>,
    pub runs: Vec<PageRun>,
    /// Files whose setting is not the default, by inode.
    pub settings: Vec<(u64, FlashSetting)>,
}

impl Checkpoint {
    pub fn new(generation: Generation, sequence: u64) -> Self {
        let (segments, objects, open, runs) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { generation, sequence, segments, objects, open, runs, settings: Vec::new() }
    }

    /// Adds a page of the last object.
    pub fn add_page(&mut self, page: u32, location: Location) {
        let object = self.objects.len() as u32 - 1;
        if let Some(last) = self.runs.last_mut()
            && (last.object, last.first.wrapping_add(last.count)) == (object, page)
            && last.place.place() + last.count * (PAGE_BYTES / BLOCK) as u32 == location.place()
            && last.place.segment() == location.segment()
        {
            last.count += 1;
            return;
        }
        self.runs.push(PageRun { object, first: page, place: location, count: 1 });
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        body.put_u32(self.segments.len() as u32);
        for ListedSegment { number, incarnation, is_open, length } in &self.segments {
            body.put_u32(*number);
            body.put_u64(*incarnation);
            body.put_bool(*is_open);
            body.put_u32(*length);
        }
        body.put_u32(self.objects.len() as u32);
        for object in &self.objects {
            body.put_u16(object.stripe);
            body.put_u8(stream_code(object.stream));
            body.put_u64(object.ino);
        }
        body.put_u32(self.open.len() as u32);
        for (object, first, last) in &self.open {
            [object, first, last].iter().for_each(|value| body.put_u32(**value));
        }
        body.put_u32(self.runs.len() as u32);
        for PageRun { object, first, place, count } in &self.runs {
            [*object, *first, place.place(), *count].iter().for_each(|value| body.put_u32(*value));
        }
        body.put_u32(self.settings.len() as u32);
        for (ino, setting) in &self.settings {
            body.put_u64(*ino);
            body.put_u8(*setting as u8);
        }
        let mut bytes = Vec::with_capacity(CHECKPOINT_HEADER_BYTES + body.len());
        bytes.put_bytes(CHECKPOINT_MAGIC);
        bytes.put_u32(CHECKPOINT_VERSION);
        bytes.put_u32(0);
        bytes.put_bytes(&self.generation.0);
        bytes.put_u64(self.sequence);
        bytes.put_u64(body.len() as u64);
        bytes.put_u32(crc32c::crc32c(&body));
        let checksum = crc32c::crc32c(&bytes);
        bytes.put_u32(checksum);
        bytes.extend_from_slice(&body);
        bytes
    }

    /// Returns the version of a checkpoint, the length of its body, and the checksum of the body.
    fn header(bytes: &[u8]) -> Result<(Self, u32, u64, u32), Corrupt> {
        let mut reader = Reader::new(bytes);
        if reader.take(8, "checkpoint magic")? != CHECKPOINT_MAGIC {
            return Err(Corrupt::new("checkpoint magic", 0, "other bytes"));
        }
        let version = reader.u32("checkpoint version")?;
        if !(1..=CHECKPOINT_VERSION).contains(&version) {
            return Err(Corrupt::new("checkpoint version", 8, version.to_string()));
        }
        reader.u32("reserved")?;
        let generation = Generation::read(&mut reader)?;
        let (sequence, length) = (reader.u64("sequence")?, reader.u64("length of the body")?);
        let body_checksum = reader.u32("checksum of the body")?;
        let at = reader.position();
        let checksum = reader.u32("checkpoint checksum")?;
        if crc32c::crc32c(&bytes[..at]) != checksum {
            return Err(Corrupt::new("checkpoint checksum", at, format!("{checksum:08x}")));
        }
        Ok((Self::new(generation, sequence), version, length, body_checksum))
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, Corrupt> {
        let (mut checkpoint, version, length, checksum) = Self::header(bytes)?;
        let body = bytes.get(CHECKPOINT_HEADER_BYTES..).and_then(|body| body.get(..usize::try_from(length).ok()?));
        let body = body.ok_or_else(|| Corrupt::new("length of the body", 40, length.to_string()))?;
        if crc32c::crc32c(body) != checksum {
            return Err(Corrupt::new("checksum of the body", 48, format!("{checksum:08x}")));
        }
        let mut reader = Reader::new(body);
        for _ in 0..reader.count(17, "segments")? {
            checkpoint.segments.push(ListedSegment {
                number: reader.u32("segment")?,
                incarnation: reader.u64("incarnation")?,
                is_open: reader.bool("open segment")?,
                length: reader.u32("length of the segment")?,
            });
        }
        for _ in 0..reader.count(11, "objects")? {
            let stripe = reader.u16("stripe")?;
            let stream = stream_of(&mut reader)?;
            checkpoint.objects.push(Object { stripe, ino: reader.u64("inode number")?, stream });
        }
        let objects = checkpoint.objects.len() as u32;
        let known = |object: u32, at: usize| match object < objects {
            true => Ok(object),
            false => Err(Corrupt::new("object", at, object.to_string())),
        };
        for _ in 0..reader.count(12, "open regions")? {
            let object = known(reader.u32("object")?, reader.position())?;
            checkpoint.open.push((object, reader.u32("first region")?, reader.u32("last region")?));
        }
        for _ in 0..reader.count(16, "runs")? {
            let object = known(reader.u32("object")?, reader.position())?;
            let (first, bits, count) = (reader.u32("page")?, reader.u32("place")?, reader.u32("count")?);
            let place = Location::decode(bits).filter(|place| {
                let end = u64::from(place.block()) + u64::from(count) * (PAGE_BYTES / BLOCK) as u64;
                !place.is_none() && end <= u64::from(SEGMENT_BLOCKS_MAX)
            });
            let place = place.filter(|_| first.checked_add(count).is_some());
            let place = place.ok_or_else(|| Corrupt::new("place", reader.position(), bits.to_string()))?;
            checkpoint.runs.push(PageRun { object, first, place, count });
        }
        let settings = if version == 1 { 0 } else { reader.count(9, "settings")? };
        for _ in 0..settings {
            let (ino, at) = (reader.u64("inode number")?, reader.position());
            let code = reader.u8("setting")?;
            let setting = FlashSetting::from_code(code).ok_or_else(|| Corrupt::new("setting", at, code.to_string()))?;
            checkpoint.settings.push((ino, setting));
        }
        reader.finish("checkpoint")?;
        Ok(checkpoint)
    }
}

/// The last record that a change relied on, in a file of each cell disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastIntent {
    pub generation: Generation,
    pub sequence: u64,
}

impl LastIntent {
    pub const BYTES: usize = 40;

    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::BYTES);
        bytes.put_bytes(INTENT_MAGIC);
        bytes.put_u32(INTENT_VERSION);
        bytes.put_bytes(&self.generation.0);
        bytes.put_u64(self.sequence);
        let checksum = crc32c::crc32c(&bytes);
        bytes.put_u32(checksum);
        debug_assert_eq!(bytes.len(), Self::BYTES);
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, Corrupt> {
        let mut reader = Reader::new(bytes);
        if reader.take(8, "intent magic")? != INTENT_MAGIC {
            return Err(Corrupt::new("intent magic", 0, "other bytes"));
        }
        let version = reader.u32("intent version")?;
        if version != INTENT_VERSION {
            return Err(Corrupt::new("intent version", 8, version.to_string()));
        }
        let (generation, sequence) = (Generation::read(&mut reader)?, reader.u64("sequence")?);
        let at = reader.position();
        let checksum = reader.u32("intent checksum")?;
        reader.finish("last intent")?;
        match crc32c::crc32c(&bytes[..at]) == checksum {
            true => Ok(Self { generation, sequence }),
            false => Err(Corrupt::new("intent checksum", at, format!("{checksum:08x}"))),
        }
    }
}

/// The note that makes a disk a flash disk: which one of which cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskNote {
    pub generation: Generation,
    pub index: u32,
    pub count: u32,
    pub segment_bytes: u64,
    pub segments: u32,
}

impl DiskNote {
    pub const NAME: &str = "flash_disk";

    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.put_bytes(NOTE_MAGIC);
        bytes.put_u32(NOTE_VERSION);
        bytes.put_bytes(&self.generation.0);
        bytes.put_u32(self.index);
        bytes.put_u32(self.count);
        bytes.put_u64(self.segment_bytes);
        bytes.put_u32(self.segments);
        let checksum = crc32c::crc32c(&bytes);
        bytes.put_u32(checksum);
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, Corrupt> {
        let mut reader = Reader::new(bytes);
        if reader.take(8, "flash disk magic")? != NOTE_MAGIC {
            return Err(Corrupt::new("flash disk magic", 0, "other bytes"));
        }
        let version = reader.u32("flash disk version")?;
        if version != NOTE_VERSION {
            return Err(Corrupt::new("flash disk version", 8, version.to_string()));
        }
        let generation = Generation::read(&mut reader)?;
        let (index, count) = (reader.u32("index")?, reader.u32("count")?);
        let (segment_bytes, segments) = (reader.u64("segment size")?, reader.u32("segments")?);
        let at = reader.position();
        let checksum = reader.u32("flash disk checksum")?;
        reader.finish("flash disk note")?;
        match crc32c::crc32c(&bytes[..at]) == checksum {
            true => Ok(Self { generation, index, count, segment_bytes, segments }),
            false => Err(Corrupt::new("flash disk checksum", at, format!("{checksum:08x}"))),
        }
    }
}
