//! Encodes and decodes a unit's header and directory. Layout: `docs/format/compression-unit.md`.

use super::chunk::{Chunk, extent};
use super::encoding::varint::{put_varint, unzigzag, varint, zigzag};
use super::encoding::{CHUNK_ROWS, zstd};
use super::page::{LINES_MAX, PAGES_MAX, PageEntry, PageKind};
use super::residue::Residues;
use super::section::{Result, VERIFY_CHECKSUMS, corrupt};
use super::shape::{Level, Shape};
use cellar_format::bytes::{Corrupt, Reader, Write};

pub(super) const MAGIC: [u8; 8] = *b"CELLARCU";
pub const VERSION: u32 = 1;
pub(super) const HEADER_BYTES: usize = 64;
/// Maximum bytes of a page's entry in the uncompressed page table.
const PAGE_ENTRY_BYTES_MAX: usize = 40;

/// The first 64 bytes of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub level: Level,
    pub pages: u32,
    pub directory_bytes: u32,
    pub directory_checksum: u32,
    /// Bytes of the whole unit.
    pub unit_bytes: u64,
}

impl Header {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEADER_BYTES);
        out.put_bytes(&MAGIC);
        out.put_u32(VERSION);
        out.put_u8(self.level as u8);
        out.put_bytes(&[0; 3]);
        out.put_u32(self.pages);
        out.put_u32(self.directory_bytes);
        out.put_u32(self.directory_checksum);
        out.put_u32(0);
        out.put_u64(self.unit_bytes);
        out.resize(HEADER_BYTES - 4, 0);
        out.put_u32(crc32c::crc32c(&out));
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<Self> {
        if bytes.len() != HEADER_BYTES {
            return corrupt("header", 0, format!("{} bytes", bytes.len()));
        }
        let mut reader = Reader::new(bytes);
        if reader.take(8, "magic")? != MAGIC {
            return corrupt("magic", 0, format!("{:02x?}", &bytes[..8]));
        }
        let version = reader.u32("version")?;
        let stored = u32::from_le_bytes(bytes[HEADER_BYTES - 4..].try_into().unwrap_or_default());
        let found = crc32c::crc32c(&bytes[..HEADER_BYTES - 4]);
        if found != stored && VERIFY_CHECKSUMS {
            return corrupt("header", HEADER_BYTES - 4, format!("checksum {found:08x} instead of {stored:08x}"));
        }
        if version != VERSION {
            return corrupt("version", 8, format!("version {version}"));
        }
        let level = reader.u8("level")?;
        let Some(level) = Level::from_u8(level) else { return corrupt("level", 12, level.to_string()) };
        reader.take(3, "reserved")?;
        let (pages, directory_bytes) = (reader.u32("pages")?, reader.u32("directory length")?);
        let directory_checksum = reader.u32("directory checksum")?;
        reader.u32("reserved")?;
        let unit_bytes = reader.u64("unit length")?;
        if pages as usize > PAGES_MAX {
            return corrupt("pages", 16, pages.to_string());
        }
        Ok(Self { level, pages, directory_bytes, directory_checksum, unit_bytes })
    }
}

/// The decoded directory.
#[derive(Debug)]
pub(super) struct Directory {
    pub shape: Shape,
    pub pages: Vec<PageEntry>,
    pub residues: Residues,
    pub chunks: Vec<Chunk>,
}

/// Divides pages into chunks: a new chunk starts at each page whose line pointers would exceed [`CHUNK_ROWS`].
pub(super) fn chunk_pages(pages: &[PageEntry]) -> Vec<std::ops::Range<usize>> {
    let mut chunks = Vec::new();
    let (mut first, mut lines) = (0, 0);
    for (index, page) in pages.iter().enumerate() {
        if lines + page.lines as usize > CHUNK_ROWS {
            chunks.push(first..index);
            (first, lines) = (index, 0);
        }
        lines += page.lines as usize;
    }
    if lines > 0 {
        chunks.push(first..pages.len());
    }
    chunks
}

impl Directory {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.shape.encode(&mut out);
        let table = encode_pages(&self.pages);
        out.put_u32(table.len() as u32);
        out.put_blob(&zstd::compress(&table, 3));
        self.residues.put(&mut out);
        self.chunks.iter().for_each(|chunk| chunk.put(&mut out));
        out
    }

    pub fn decode(bytes: &[u8], pages: usize) -> Result<Self> {
        let mut reader = Reader::new(bytes);
        let shape = Shape::decode(&mut reader)?;
        let table_bytes = reader.u32("page table length")? as usize;
        if table_bytes > pages * PAGE_ENTRY_BYTES_MAX {
            return corrupt("page table length", reader.position() - 4, table_bytes.to_string());
        }
        let table = zstd::decompress(reader.blob("page table")?, table_bytes, "page table")?;
        let pages = decode_pages(&table, pages)?;
        let residues = Residues::get(&mut reader, pages.len())?;
        let mut chunks = Vec::new();
        for range in chunk_pages(&pages) {
            chunks.push(Chunk::get(&mut reader, &shape, extent(&pages, range))?);
        }
        reader.finish("directory")?;
        Ok(Self { shape, pages, residues, chunks })
    }
}

/// Encodes the page table field by field: the values of a field are similar in consecutive pages and compress well.
fn encode_pages(pages: &[PageEntry]) -> Vec<u8> {
    let mut out: Vec<u8> = pages.iter().map(|page| page.kind as u8).collect();
    let rows = || pages.iter().filter(|page| page.kind == PageKind::Rows);
    let mut last = 0;
    for page in rows() {
        put_varint(&mut out, zigzag(page.lsn.wrapping_sub(last) as i64));
        last = page.lsn;
    }
    rows().for_each(|page| out.put_u16(page.checksum));
    rows().for_each(|page| put_varint(&mut out, page.flags as u64));
    rows().for_each(|page| put_varint(&mut out, page.prune_xid as u64));
    rows().for_each(|page| put_varint(&mut out, page.lines as u64));
    rows().for_each(|page| put_varint(&mut out, (page.lines - page.rows) as u64));
    rows().for_each(|page| put_varint(&mut out, zigzag(page.upper as i64)));
    out
}

fn decode_pages(table: &[u8], count: usize) -> Result<Vec<PageEntry>> {
    let mut reader = Reader::new(table);
    let mut pages = vec![PageEntry::EMPTY; count];
    for (page, kind) in pages.iter_mut().zip(reader.take(count, "page kinds")?) {
        page.kind = match kind {
            0 => PageKind::Zero,
            1 => PageKind::Rows,
            2 => PageKind::Raw,
            other => return corrupt("page kind", 0, other.to_string()),
        };
    }
    let mut rows: Vec<&mut PageEntry> = pages.iter_mut().filter(|page| page.kind == PageKind::Rows).collect();
    let number = |reader: &mut Reader<'_>, what, max: u64| -> std::result::Result<u64, Corrupt> {
        let value = varint(reader, what)?;
        if value > max {
            return Err(Corrupt::new(what, reader.position(), value.to_string()));
        }
        Ok(value)
    };
    let mut last = 0u64;
    for page in &mut rows {
        last = last.wrapping_add(unzigzag(varint(&mut reader, "page LSN")?) as u64);
        page.lsn = last;
    }
    for page in &mut rows {
        page.checksum = reader.u16("page checksum")?;
    }
    for page in &mut rows {
        page.flags = number(&mut reader, "page flags", u16::MAX as u64)? as u16;
    }
    for page in &mut rows {
        page.prune_xid = number(&mut reader, "prune xid", u32::MAX as u64)? as u32;
    }
    for page in &mut rows {
        page.lines = number(&mut reader, "line pointers", LINES_MAX as u64)? as u16;
    }
    for page in &mut rows {
        page.rows = page.lines - number(&mut reader, "line pointers without a tuple", page.lines as u64)? as u16;
    }
    for page in &mut rows {
        page.upper = unzigzag(number(&mut reader, "upper", u16::MAX as u64)?) as i16;
    }
    reader.finish("page table")?;
    let (mut line, mut row) = (0, 0);
    for page in &mut pages {
        (page.first_line, page.first_row) = (line, row);
        line += page.lines as u32;
        row += page.rows as u32;
    }
    Ok(pages)
}
