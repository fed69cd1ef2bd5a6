//! Encodes pages into a unit: parse the pages, encode the columns, predict each page from them, store the residues.
//!
//! The encoded unit is not verified here. Before the pages are discarded, storage rebuilds each page from the stored bytes
//! and compares it with the original. If a page differs, the caller encodes the pages again with [`encode_raw`].

use super::chunk::{Chunk, extent};
use super::directory::{Directory, HEADER_BYTES, Header, chunk_pages};
use super::encoding::varint::put_varint;
use super::open::Unit;
use super::page::{PAGES_MAX, PageKind};
use super::parse::ParsedPages;
use super::rebuild::Rebuilder;
use super::residue::{ResidueGroup, Residues, push_patch};
use super::section::{DataSection, UnitError};
use super::shape::{ATTRIBUTES_MAX, Level, Shape};
use cellar_format::ByteSource;
use cellar_format::units::BLOCK_BYTES;

#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    #[error("{bytes} bytes are not whole pages, or more than {PAGES_MAX} pages")]
    Length { bytes: usize },
    #[error("{attributes} attributes are more than {ATTRIBUTES_MAX}")]
    Attributes { attributes: usize },
    /// A bug, or a memory error.
    #[error("could not read the columns of a new unit: {0}")]
    Columns(UnitError),
}

/// Encodes whole pages, at most 64 MiB of them, into a unit.
///
/// The pages may have any content: those that are not heap pages of this shape are stored raw.
pub fn encode(pages: &[u8], shape: &Shape, level: Level) -> Result<Vec<u8>, EncodeError> {
    Encoder::new(shape).encode(pages, level)
}

/// Encodes the units of a relation, reusing memory.
pub struct Encoder<'a> {
    shape: &'a Shape,
    parsed: ParsedPages,
}

impl<'a> Encoder<'a> {
    pub fn new(shape: &'a Shape) -> Self {
        Self { shape, parsed: ParsedPages::new(shape) }
    }

    /// See [`encode()`].
    pub fn encode(&mut self, pages: &[u8], level: Level) -> Result<Vec<u8>, EncodeError> {
        check(pages, self.shape)?;
        self.parsed.parse(pages);
        encode_parsed(pages, &self.parsed, self.shape, level)
    }
}

/// Encodes pages as [`encode()`] does, but stores every page raw.
pub fn encode_raw(pages: &[u8], shape: &Shape, level: Level) -> Result<Vec<u8>, EncodeError> {
    check(pages, shape)?;
    encode_parsed(pages, &ParsedPages::raw(pages.len() / BLOCK_BYTES, shape), shape, level)
}

/// Rebuilds all pages of a unit and returns the number of the first page that differs from `pages`.
pub fn verify(unit: &dyn ByteSource, pages: &[u8]) -> Result<Option<usize>, UnitError> {
    let opened = Unit::open(unit)?;
    let mut rebuilder = Rebuilder::new();
    let mut rebuilt = [0; BLOCK_BYTES];
    for (number, page) in pages.chunks_exact(BLOCK_BYTES).enumerate() {
        rebuilder.page(&opened, unit, number, &mut rebuilt)?;
        if rebuilt != page {
            return Ok(Some(number));
        }
    }
    Ok(None)
}

fn check(pages: &[u8], shape: &Shape) -> Result<(), EncodeError> {
    if !pages.len().is_multiple_of(BLOCK_BYTES) || pages.len() / BLOCK_BYTES > PAGES_MAX {
        return Err(EncodeError::Length { bytes: pages.len() });
    }
    if shape.attributes.len() > ATTRIBUTES_MAX {
        return Err(EncodeError::Attributes { attributes: shape.attributes.len() });
    }
    Ok(())
}

fn encode_parsed(pages: &[u8], parsed: &ParsedPages, shape: &Shape, level: Level) -> Result<Vec<u8>, EncodeError> {
    let mut data = Vec::new();
    let mut chunks = Vec::new();
    for range in chunk_pages(&parsed.pages) {
        chunks.push(Chunk::encode(parsed, shape, pages, &extent(&parsed.pages, range), level, &mut data));
    }
    let directory = Directory {
        shape: shape.clone(),
        pages: parsed.pages.clone(),
        residues: Residues { group_pages: level.residue_pages(), groups: Vec::new() },
        chunks,
    };
    let unit = Unit::new(level, 0, 0, directory);
    let mut residue_data = Vec::new();
    let residues = encode_residues(&unit, &data, pages, &parsed.predicted, &mut residue_data);
    let mut residues = residues.map_err(EncodeError::Columns)?;
    // Residues follow the columns in the data section.
    let stored = residues.iter_mut().filter(|residue| residue.raw_bytes > 0);
    stored.for_each(|residue| residue.part.offset += data.len() as u32);
    data.extend_from_slice(&residue_data);
    let mut directory = unit.into_directory();
    directory.residues.groups = residues;

    let directory = directory.encode();
    let header = Header {
        level,
        pages: (pages.len() / BLOCK_BYTES) as u32,
        directory_bytes: directory.len() as u32,
        directory_checksum: crc32c::crc32c(&directory),
        unit_bytes: (HEADER_BYTES + directory.len() + data.len()) as u64,
    };
    let mut unit = header.encode();
    unit.reserve_exact(directory.len() + data.len());
    unit.extend_from_slice(&directory);
    unit.extend_from_slice(&data);
    Ok(unit)
}

/// Predicts each page from the columns in `data` and encodes the differences, group by group. Skips pages that are completely
/// predicted according to the parser (`is_predicted`).
fn encode_residues(
    unit: &Unit,
    data: &[u8],
    pages: &[u8],
    is_predicted: &[bool],
    out: &mut Vec<u8>,
) -> Result<Vec<ResidueGroup>, UnitError> {
    let level = unit.level();
    let mut residues = Vec::new();
    let mut rebuilder = Rebuilder::new();
    let section = DataSection { source: &data, start: 0 };
    let mut predicted = [0; BLOCK_BYTES];
    for (group, group_pages) in pages.chunks(level.residue_pages() * BLOCK_BYTES).enumerate() {
        let (mut lengths, mut bytes) = (Vec::new(), Vec::new());
        for (index, page) in group_pages.chunks_exact(BLOCK_BYTES).enumerate() {
            let number = group * level.residue_pages() + index;
            let before = bytes.len();
            match unit.pages()[number].kind {
                PageKind::Raw => bytes.extend_from_slice(page),
                PageKind::Zero => {}
                PageKind::Rows if is_predicted[number] => {}
                PageKind::Rows => {
                    rebuilder.predict(unit, section, number, &mut predicted)?;
                    push_patch(&predicted, page, &mut bytes);
                }
            }
            put_varint(&mut lengths, (bytes.len() - before) as u64);
        }
        residues.push(ResidueGroup::encode(lengths, &bytes, level.zstd_level(), out));
    }
    Ok(residues)
}
