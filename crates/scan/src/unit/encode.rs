//! From pages to a unit: take apart, encode, rebuild, note the differences.
//!
//! What comes out is not verified here: whoever gives pages up for a unit rebuilds each of them from the stored bytes
//! and compares it first, and takes [`encode_raw`] for pages where that fails.

use super::chunk::{Chunk, extent};
use super::directory::{Directory, HEADER_BYTES, Header, PAGES_MAX, Residue, chunk_pages};
use super::encoding::varint::put_varint;
use super::encoding::zstd;
use super::model::{Model, PageEntry, PageKind};
use super::open::Unit;
use super::rebuild::Rebuilder;
use super::section::{DataSection, Part, UnitError};
use super::shape::{ATTRIBUTES_MAX, Level, Shape};
use cellar_format::ByteSource;
use cellar_format::units::BLOCK_BYTES;

/// Equal bytes between two differences that are cheaper kept than skipped.
const PATCH_GAP_MIN: usize = 6;

#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    #[error("{bytes} bytes are no whole pages, or more than {PAGES_MAX}")]
    Length { bytes: usize },
    #[error("{attributes} attributes are more than {ATTRIBUTES_MAX}")]
    Attributes { attributes: usize },
    /// A bug, or failing memory.
    #[error("the series of a unit cannot be read: {0}")]
    Series(UnitError),
}

/// A unit of whole pages, at most 64 MiB.
///
/// Any bytes can be pages; those that are not heap pages of this shape are kept as they are.
pub fn encode(pages: &[u8], shape: &Shape, level: Level) -> Result<Vec<u8>, EncodeError> {
    Encoder::new(shape).encode(pages, level)
}

/// Encodes one unit after the other of a relation, in memory that is kept.
pub struct Encoder<'a> {
    shape: &'a Shape,
    model: Model,
}

impl<'a> Encoder<'a> {
    pub fn new(shape: &'a Shape) -> Self {
        Self { shape, model: Model::new(shape) }
    }

    /// As [`encode()`].
    pub fn encode(&mut self, pages: &[u8], level: Level) -> Result<Vec<u8>, EncodeError> {
        check(pages, self.shape)?;
        self.model.read(pages);
        encode_model(pages, &self.model, self.shape, level)
    }
}

/// As [`encode`], without cleverness: the pages as they are, compressed.
pub fn encode_raw(pages: &[u8], shape: &Shape, level: Level) -> Result<Vec<u8>, EncodeError> {
    check(pages, shape)?;
    encode_model(pages, &Model::raw(pages.len() / BLOCK_BYTES, shape), shape, level)
}

/// The first page that does not come back from a unit as it is in `pages`.
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

fn encode_model(pages: &[u8], model: &Model, shape: &Shape, level: Level) -> Result<Vec<u8>, EncodeError> {
    let mut data = Vec::new();
    let mut chunks = Vec::new();
    for range in chunk_pages(&model.pages) {
        chunks.push(Chunk::encode(model, shape, pages, &extent(&model.pages, range), level, &mut data));
    }
    let directory = Directory {
        shape: shape.clone(),
        pages: model.pages.clone(),
        residue_pages: level.residue_pages(),
        residues: Vec::new(),
        chunks,
    };
    let unit = Unit::new(level, 0, 0, directory);
    let mut residue_data = Vec::new();
    let residues = residues(&unit, &data, pages, &model.foretold, &mut residue_data).map_err(EncodeError::Series)?;
    let mut directory = unit.into_directory();
    directory.residues = residues;
    data.extend_from_slice(&residue_data);

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

/// What the series do not foretell, group by group of pages; `data` are the series, before the residues' own.
fn residues(
    unit: &Unit,
    data: &[u8],
    pages: &[u8],
    foretold: &[bool],
    out: &mut Vec<u8>,
) -> Result<Vec<Residue>, UnitError> {
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
                PageKind::Rows if foretold[number] => {}
                PageKind::Rows => {
                    rebuilder.predict(unit, section, number, &mut predicted)?;
                    push_patch(&predicted, page, &mut bytes);
                }
            }
            put_varint(&mut lengths, (bytes.len() - before) as u64);
        }
        if bytes.is_empty() {
            residues.push(Residue { part: Part::EMPTY, raw_bytes: 0 });
            continue;
        }
        lengths.extend_from_slice(&bytes);
        let mut part = Part::append(out, &zstd::compress(&lengths, level.zstd_level()));
        part.offset += data.len() as u32;
        residues.push(Residue { part, raw_bytes: lengths.len() as u32 });
    }
    Ok(residues)
}

/// The runs of bytes in which `page` differs from `predicted`: distance from the run before, length, bytes.
fn push_patch(predicted: &[u8], page: &[u8], out: &mut Vec<u8>) {
    let mut end = 0;
    let mut at = 0;
    while let Some(start) = next_difference(predicted, page, at) {
        let mut last = start;
        while let Some(next) = next_difference(predicted, page, last + 1).filter(|next| next - last <= PATCH_GAP_MIN) {
            last = next;
        }
        put_varint(out, (start - end) as u64);
        put_varint(out, (last + 1 - start) as u64);
        out.extend_from_slice(&page[start..=last]);
        end = last + 1;
        at = end;
    }
}

fn next_difference(left: &[u8], right: &[u8], from: usize) -> Option<usize> {
    const STEP: usize = 64;
    let mut at = from;
    while at < left.len() {
        let end = (at + STEP).min(left.len());
        if left[at..end] != right[at..end] {
            return (at..end).find(|at| left[*at] != right[*at]);
        }
        at = end;
    }
    None
}

impl Model {
    /// Pages that are all kept as they are.
    fn raw(pages: usize, shape: &Shape) -> Self {
        let mut model = Self::new(shape);
        model.pages = vec![PageEntry { kind: PageKind::Raw, ..PageEntry::EMPTY }; pages];
        model.foretold = vec![false; pages];
        model
    }
}
