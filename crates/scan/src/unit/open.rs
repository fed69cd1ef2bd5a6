//! An open unit: the decoded directory, and lookups of pages, rows and chunks in it.

use super::attribute::AttributeChunk;
use super::chunk::{Chunk, ChunkVisibility};
use super::directory::{Directory, HEADER_BYTES, Header};
use super::page::{LP_NORMAL, PD_ALL_VISIBLE, PageEntry, PageKind};
use super::residue::Residues;
use super::section::{DataSection, Result, VERIFY_CHECKSUMS, corrupt, read_unverified};
use super::shape::{Level, Shape};
use cellar_format::ByteSource;
use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};

/// A unit's directory, with the dictionaries that reads have decoded so far. The unit does not own its bytes: each read takes
/// the source as an argument.
#[derive(Debug)]
pub struct Unit {
    /// Identifies the unit in this process. A cache stores the id to detect that its content belongs to another unit.
    id: u64,
    level: Level,
    data_start: u64,
    unit_bytes: u64,
    directory: Directory,
    /// For each chunk, see [`Unit::is_all_visible`].
    all_visible: Box<[bool]>,
}

/// Bytes that opening a unit reads at once: header and directory of most units.
const OPEN_BYTES: u64 = 16 << 10;

static IDS: AtomicU64 = AtomicU64::new(0);

impl Unit {
    /// Reads and verifies header and directory.
    pub fn open(source: &dyn ByteSource) -> Result<Self> {
        let start = read_unverified(source, 0, source.length().clamp(HEADER_BYTES as u64, OPEN_BYTES) as usize)?;
        let header = Header::decode(&start[..HEADER_BYTES])?;
        let length = header.directory_bytes as usize;
        if HEADER_BYTES as u64 + length as u64 > header.unit_bytes {
            return corrupt("directory length", 20, format!("{length} bytes of {}", header.unit_bytes));
        }
        let bytes = match start.get(HEADER_BYTES..HEADER_BYTES + length) {
            Some(bytes) => Cow::Borrowed(bytes),
            None => read_unverified(source, HEADER_BYTES as u64, length)?,
        };
        let found = crc32c::crc32c(&bytes);
        if bytes.len() != length || found != header.directory_checksum && VERIFY_CHECKSUMS {
            let found = format!("checksum {found:08x} instead of {:08x}", header.directory_checksum);
            return corrupt("directory", HEADER_BYTES, found);
        }
        let directory = Directory::decode(&bytes, header.pages as usize)?;
        Ok(Self::new(header.level, (HEADER_BYTES + length) as u64, header.unit_bytes, directory))
    }

    pub(super) fn new(level: Level, data_start: u64, unit_bytes: u64, directory: Directory) -> Self {
        let is_visible =
            |page: &PageEntry| page.kind == PageKind::Rows && page.rows > 0 && page.flags & PD_ALL_VISIBLE != 0;
        let all_visible = directory.chunks.iter().map(|chunk| directory.pages[chunk.pages()].iter().all(is_visible));
        let all_visible = all_visible.collect();
        Self { id: IDS.fetch_add(1, Ordering::Relaxed), level, data_start, unit_bytes, directory, all_visible }
    }

    pub(super) fn into_directory(self) -> Directory {
        self.directory
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(super) fn section<'a>(&self, source: &'a dyn ByteSource) -> DataSection<'a> {
        DataSection { source, start: self.data_start }
    }

    pub(super) fn residues(&self) -> &Residues {
        &self.directory.residues
    }

    pub fn level(&self) -> Level {
        self.level
    }

    pub fn shape(&self) -> &Shape {
        &self.directory.shape
    }

    /// Estimated memory of the open unit in bytes, after every dictionary has been decoded.
    pub fn memory_bytes_max(&self) -> usize {
        let Directory { pages, residues, chunks, .. } = &self.directory;
        let decoded: usize = chunks.iter().map(Chunk::decoded_bytes_max).sum();
        // The decoded directory is about four times as large as its bytes.
        size_of_val(&pages[..]) + size_of_val(&residues.groups[..]) + 4 * self.data_start as usize + decoded
    }

    /// Bytes of the whole unit.
    pub fn bytes(&self) -> u64 {
        self.unit_bytes
    }

    /// Bytes of header and directory.
    pub fn directory_bytes(&self) -> u64 {
        self.data_start
    }

    /// Bytes of patches and raw pages, compressed.
    pub fn residue_bytes(&self) -> u64 {
        self.directory.residues.data_bytes()
    }

    pub fn pages(&self) -> &[PageEntry] {
        &self.directory.pages
    }

    /// All chunks, in page order; none when the unit has no line pointer.
    pub fn chunks(&self) -> &[Chunk] {
        &self.directory.chunks
    }

    /// Whether all pages of a chunk are stored as rows, have rows, and are marked all-visible.
    pub fn is_all_visible(&self, chunk: usize) -> bool {
        self.all_visible.get(chunk).is_some_and(|all| *all)
    }

    /// Number of tuples in pages stored as rows, visible or not.
    pub fn rows(&self) -> usize {
        self.directory.chunks.iter().map(|chunk| chunk.rows as usize).sum()
    }

    /// An attribute's directory entries, chunk by chunk; `index` counts from 0.
    pub fn column(&self, index: usize) -> impl Iterator<Item = &AttributeChunk> {
        self.directory.chunks.iter().filter_map(move |chunk| chunk.attribute(index))
    }

    pub fn visibility(&self, chunk: &Chunk) -> ChunkVisibility {
        chunk.visibility(&self.directory.pages)
    }

    /// The rows of a page, as numbers in the unit; empty for a page that is not stored as rows.
    pub fn page_rows(&self, page: usize) -> std::ops::Range<usize> {
        let entry = self.directory.pages.get(page);
        entry.map_or(0..0, |entry| entry.first_row as usize..entry.first_row as usize + entry.rows as usize)
    }

    /// The page that contains a row.
    pub fn page_of_row(&self, row: usize) -> Option<usize> {
        let after = self.directory.pages.partition_point(|page| page.first_row as usize <= row);
        // Pages without rows have the same first row as the next page with rows.
        (0..after).rev().find(|page| self.page_rows(*page).contains(&row))
    }

    /// The line pointer numbers of a page's rows, in the rows' order.
    pub fn row_lines(&self, source: &dyn ByteSource, page: usize) -> Result<Vec<u16>> {
        let Some(entry) = self.directory.pages.get(page).filter(|entry| entry.rows > 0) else { return Ok(Vec::new()) };
        let Some((number, chunk)) = self.chunk_of(page) else { return corrupt("page", page, "in no chunk") };
        let first = (entry.first_line - chunk.first_line) as usize;
        let mut states = Vec::with_capacity(entry.lines as usize);
        let lines = first..first + entry.lines as usize;
        chunk.line_state.read(self.section(source), number, lines, &mut Default::default(), &mut states)?;
        let normal = states.iter().enumerate().filter(|(_, state)| **state == LP_NORMAL);
        Ok(normal.map(|(line, _)| line as u16 + 1).collect())
    }

    /// The chunk that contains a page, and the chunk's number.
    pub(super) fn chunk_of(&self, page: usize) -> Option<(usize, &Chunk)> {
        let index = self.directory.chunks.partition_point(|chunk| chunk.pages.end <= page);
        self.directory.chunks.get(index).filter(|chunk| chunk.pages.contains(&page)).map(|chunk| (index, chunk))
    }
}
