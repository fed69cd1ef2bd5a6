//! A unit whose directory was read: what it holds, before any of its data are.

use super::attribute::AttributeChunk;
use super::chunk::{Chunk, ChunkVisibility};
use super::directory::{Directory, HEADER_BYTES, Header, Residue};
use super::model::{PageEntry, PageKind};
use super::rebuild::Rebuilder;
use super::section::{DataSection, Result, VERIFY_CHECKSUMS, corrupt, read_unverified};
use super::shape::{Level, Shape};
use cellar_format::ByteSource;
use cellar_format::units::BLOCK_BYTES;
use std::sync::atomic::{AtomicU64, Ordering};

/// A unit's directory, and the dictionaries that were read so far. Its data are read from the source given each time.
#[derive(Debug)]
pub struct Unit {
    id: u64,
    level: Level,
    data_start: u64,
    unit_bytes: u64,
    directory: Directory,
    /// Of each chunk, whether snapshots see all of its rows.
    all_visible: Box<[bool]>,
}

/// What header and directory mostly take at most.
const OPEN_BYTES: u64 = 16 << 10;

const PD_ALL_VISIBLE: u16 = 0x0004;

static IDS: AtomicU64 = AtomicU64::new(0);

impl Unit {
    /// Reads header and directory.
    pub fn open(source: &dyn ByteSource) -> Result<Self> {
        source.prefetch(std::slice::from_ref(&(0..OPEN_BYTES)));
        let header = Header::decode(&read_unverified(source, 0, HEADER_BYTES)?)?;
        let length = header.directory_bytes as usize;
        if HEADER_BYTES as u64 + length as u64 > header.unit_bytes {
            return corrupt("directory length", 20, format!("{length} bytes of {}", header.unit_bytes));
        }
        let bytes = read_unverified(source, HEADER_BYTES as u64, length)?;
        let found = crc32c::crc32c(&bytes);
        if bytes.len() != length || found != header.directory_checksum && VERIFY_CHECKSUMS {
            let found = format!("checksum {found:08x} instead of {:08x}", header.directory_checksum);
            return corrupt("directory", HEADER_BYTES, found);
        }
        let directory = Directory::decode(&bytes, header.pages as usize)?;
        Ok(Self::new(header.level, (HEADER_BYTES + length) as u64, header.unit_bytes, directory))
    }

    pub(super) fn new(level: Level, data_start: u64, unit_bytes: u64, directory: Directory) -> Self {
        let sees_all =
            |page: &PageEntry| page.kind == PageKind::Rows && page.rows > 0 && page.flags & PD_ALL_VISIBLE != 0;
        let all_visible = directory.chunks.iter().map(|chunk| directory.pages[chunk.pages()].iter().all(sees_all));
        let all_visible = all_visible.collect();
        Self { id: IDS.fetch_add(1, Ordering::Relaxed), level, data_start, unit_bytes, directory, all_visible }
    }

    pub(super) fn into_directory(self) -> Directory {
        self.directory
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(super) fn data<'a>(&self, source: &'a dyn ByteSource) -> DataSection<'a> {
        DataSection { source, start: self.data_start }
    }

    pub(super) fn residues(&self) -> (usize, &[Residue]) {
        (self.directory.residue_pages, &self.directory.residues)
    }

    pub fn level(&self) -> Level {
        self.level
    }

    pub fn shape(&self) -> &Shape {
        &self.directory.shape
    }

    /// Bytes that this takes in memory once every dictionary was read, about.
    pub fn memory_bytes_max(&self) -> usize {
        let Directory { pages, residues, chunks, .. } = &self.directory;
        let kept: usize = chunks.iter().map(Chunk::decoded_bytes_max).sum();
        // What the directory holds as bytes is held as structures.
        size_of_val(&pages[..]) + size_of_val(&residues[..]) + 4 * self.data_start as usize + kept
    }

    /// Bytes of the whole unit, of its header and directory, and of patches and raw pages.
    pub fn bytes(&self) -> u64 {
        self.unit_bytes
    }

    pub fn directory_bytes(&self) -> u64 {
        self.data_start
    }

    pub fn residue_bytes(&self) -> u64 {
        self.directory.residues.iter().map(|residue| residue.part.bytes as u64).sum()
    }

    pub fn pages(&self) -> &[PageEntry] {
        &self.directory.pages
    }

    /// Runs of pages, in order; pages that are not kept as rows may lie in none.
    pub fn chunks(&self) -> &[Chunk] {
        &self.directory.chunks
    }

    /// Whether all pages of a chunk are kept as rows, have some, and are marked all-visible.
    pub fn is_all_visible(&self, chunk: usize) -> bool {
        self.all_visible.get(chunk).is_some_and(|all| *all)
    }

    /// Tuples of the pages that are kept as rows, whoever sees them.
    pub fn rows(&self) -> usize {
        self.directory.chunks.iter().map(|chunk| chunk.rows as usize).sum()
    }

    /// An attribute's entries, chunk by chunk; `index` counts from 0.
    pub fn column(&self, index: usize) -> impl Iterator<Item = &AttributeChunk> {
        self.directory.chunks.iter().filter_map(move |chunk| chunk.attribute(index))
    }

    pub fn visibility(&self, chunk: &Chunk) -> ChunkVisibility {
        chunk.visibility(&self.directory.pages)
    }

    /// The rows of a page, as numbers in the unit; none of a page that is not kept as rows.
    pub fn page_rows(&self, page: usize) -> std::ops::Range<usize> {
        let entry = self.directory.pages.get(page);
        entry.map_or(0..0, |entry| entry.first_row as usize..entry.first_row as usize + entry.rows as usize)
    }

    /// The page that holds a row.
    pub fn page_of_row(&self, row: usize) -> Option<usize> {
        let after = self.directory.pages.partition_point(|page| page.first_row as usize <= row);
        // The last page that starts at or before the row and has any.
        (0..after).rev().find(|page| self.page_rows(*page).contains(&row))
    }

    /// The line pointer numbers of a page's rows, in the rows' order.
    pub fn row_lines(&self, source: &dyn ByteSource, page: usize) -> Result<Vec<u16>> {
        let Some(entry) = self.directory.pages.get(page).filter(|entry| entry.rows > 0) else { return Ok(Vec::new()) };
        let Some((place, chunk)) = self.chunk_of(page) else { return corrupt("page", page, "in no chunk") };
        let first = (entry.first_line - chunk.first_line) as usize;
        let mut states = Vec::with_capacity(entry.lines as usize);
        let lines = first..first + entry.lines as usize;
        chunk.line_state.read(self.data(source), place, lines, &mut Default::default(), &mut states)?;
        let normal = states.iter().enumerate().filter(|(_, state)| **state == super::model::LP_NORMAL);
        Ok(normal.map(|(line, _)| line as u16 + 1).collect())
    }

    pub(super) fn chunk_of(&self, page: usize) -> Option<(usize, &Chunk)> {
        let index = self.directory.chunks.partition_point(|chunk| chunk.pages.end <= page);
        self.directory.chunks.get(index).filter(|chunk| chunk.pages.contains(&page)).map(|chunk| (index, chunk))
    }

    /// One page, byte for byte. A [`Rebuilder`] is faster for more than one.
    pub fn rebuild_page(&self, source: &dyn ByteSource, page: usize, out: &mut [u8; BLOCK_BYTES]) -> Result<()> {
        Rebuilder::new().page(self, source, page, out)
    }
}
