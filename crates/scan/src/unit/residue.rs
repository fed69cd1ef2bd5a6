//! Residues: what the columns do not predict of pages, compressed by groups of pages.
//!
//! The residue of a page stored as rows is a patch: the runs of bytes in which the page differs from its prediction. The
//! residue of a raw page is the page. A zero page has none.

use super::encoding::varint::{put_varint, varint};
use super::encoding::zstd;
use super::open::Unit;
use super::page::PageKind;
use super::section::{DataSection, Part, Result, corrupt};
use cellar_format::bytes::Reader;
use cellar_format::units::BLOCK_BYTES;

/// Upper bound of the residue of one page: a raw page, or a patch of many short runs.
const RESIDUE_BYTES_MAX: usize = 4 * BLOCK_BYTES;
/// Differences at most this many bytes apart share a run: the equal bytes between them are cheaper than a second run.
const PATCH_DISTANCE_MAX: usize = 6;

/// The residues of a group of pages in the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Residue {
    pub part: Part,
    /// Uncompressed bytes of the part; 0: no page of the group has a residue.
    pub raw_bytes: u32,
}

impl Residue {
    /// Compresses the residues of a group, given each residue's length as a varint, and all residues. The part is appended to
    /// `data`.
    pub fn encode(mut lengths: Vec<u8>, residues: &[u8], zstd_level: i32, data: &mut Vec<u8>) -> Self {
        if residues.is_empty() {
            return Self { part: Part::EMPTY, raw_bytes: 0 };
        }
        lengths.extend_from_slice(residues);
        Self { part: Part::append(data, &zstd::compress(&lengths, zstd_level)), raw_bytes: lengths.len() as u32 }
    }
}

/// Appends the runs of bytes in which `page` differs from `predicted`: distance from the end of the run before, length, bytes.
pub fn push_patch(predicted: &[u8], page: &[u8], out: &mut Vec<u8>) {
    let mut end = 0;
    let mut at = 0;
    while let Some(start) = next_difference(predicted, page, at) {
        let mut last = start;
        while let Some(next) =
            next_difference(predicted, page, last + 1).filter(|next| next - last <= PATCH_DISTANCE_MAX)
        {
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

/// Applies residues to predicted pages. Keeps the most recently decompressed group.
#[derive(Debug, Default)]
pub struct ResidueReader {
    group: Option<usize>,
    /// Where the residue of each page of the group ends in `bytes`.
    ends: Vec<u32>,
    bytes: Vec<u8>,
}

impl ResidueReader {
    /// Memory of the group, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// Makes the predicted page `number` the original one.
    pub fn apply(
        &mut self,
        unit: &Unit,
        section: DataSection<'_>,
        number: usize,
        page: &mut [u8; BLOCK_BYTES],
    ) -> Result<()> {
        let (group_pages, residues) = unit.residues();
        let group = number / group_pages;
        let is_raw = unit.pages()[number].kind == PageKind::Raw;
        if residues[group].raw_bytes == 0 {
            return match is_raw {
                true => corrupt("residue", 0, format!("none for page {number}, which is raw")),
                false => Ok(()),
            };
        }
        if self.group != Some(group) {
            self.load(unit, section, group)?;
        }
        let in_group = number % group_pages;
        let start = if in_group == 0 { 0 } else { self.ends[in_group - 1] as usize };
        let residue = &self.bytes[start..self.ends[in_group] as usize];
        if !is_raw {
            return patch(residue, number, page);
        }
        if residue.len() != BLOCK_BYTES {
            return corrupt("raw page", number, format!("{} bytes", residue.len()));
        }
        page.copy_from_slice(residue);
        Ok(())
    }

    fn load(&mut self, unit: &Unit, section: DataSection<'_>, group: usize) -> Result<()> {
        self.group = None;
        let (group_pages, residues) = unit.residues();
        let Residue { part, raw_bytes } = residues[group];
        let (raw_bytes, at) = (raw_bytes as usize, part.offset as usize);
        let pages = group_pages.min(unit.pages().len() - group * group_pages);
        if raw_bytes > pages * RESIDUE_BYTES_MAX {
            return corrupt("residue", at, format!("{raw_bytes} bytes for {pages} pages"));
        }
        self.bytes = zstd::decompress(&section.read(part, "residue")?, raw_bytes, "residue")?;
        let mut reader = Reader::new(&self.bytes);
        self.ends.clear();
        let mut end = 0u64;
        for _ in 0..pages {
            end = end.saturating_add(varint(&mut reader, "residue length")?);
            self.ends.push(end.min(u32::MAX as u64) as u32);
        }
        if reader.remaining() as u64 != end {
            return corrupt("residue", at, format!("{} bytes of {end}", reader.remaining()));
        }
        let start = reader.position();
        self.bytes.drain(..start);
        self.group = Some(group);
        Ok(())
    }
}

/// Writes the runs of a patch over page `number`.
fn patch(patch: &[u8], number: usize, page: &mut [u8; BLOCK_BYTES]) -> Result<()> {
    let mut reader = Reader::new(patch);
    let mut at = 0usize;
    while reader.remaining() > 0 {
        at = at.saturating_add(varint(&mut reader, "patch place")? as usize);
        let count = varint(&mut reader, "patch length")? as usize;
        let bytes = reader.take(count, "patch")?;
        let Some(place) = at.checked_add(count).and_then(|end| page.get_mut(at..end)) else {
            return corrupt("patch", number, format!("{count} bytes at {at}"));
        };
        place.copy_from_slice(bytes);
        at += count;
    }
    Ok(())
}
