//! Residues: the bytes of pages that the columns do not predict, compressed in groups of consecutive pages.
//!
//! The residue of a page stored as rows is a patch: the runs of bytes in which the page differs from its prediction. The
//! residue of a raw page is the page. A page of zeros has no residue.

use super::encoding::varint::{put_varint, varint};
use super::encoding::zstd;
use super::page::{PAGES_MAX, PageEntry, PageKind};
use super::section::{DataSection, Part, Result, corrupt};
use cellar_format::bytes::{Reader, Write};
use cellar_format::units::BLOCK_BYTES;

/// Maximum bytes of one page's residue: a raw page, or a patch of many short runs.
const RESIDUE_BYTES_MAX: usize = 4 * BLOCK_BYTES;
/// Differences at most this many bytes apart share a run: the equal bytes between them are cheaper than a second run.
const PATCH_DISTANCE_MAX: usize = 6;

/// The residues of all pages: the directory entry.
#[derive(Debug)]
pub struct Residues {
    /// Pages of a group; the last group may have fewer.
    pub group_pages: usize,
    pub groups: Vec<ResidueGroup>,
}

/// The residues of a group of consecutive pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResidueGroup {
    pub part: Part,
    /// Uncompressed bytes of the part; 0: no page of the group has a residue.
    pub raw_bytes: u32,
}

impl ResidueGroup {
    /// Compresses the residues of a group and appends the part to `data`. `lengths` contains the length of each page's residue
    /// as a varint, `residues` the residues one after another.
    pub fn encode(mut lengths: Vec<u8>, residues: &[u8], zstd_level: i32, data: &mut Vec<u8>) -> Self {
        if residues.is_empty() {
            return Self { part: Part::EMPTY, raw_bytes: 0 };
        }
        lengths.extend_from_slice(residues);
        Self { part: Part::append(data, &zstd::compress(&lengths, zstd_level)), raw_bytes: lengths.len() as u32 }
    }
}

impl Residues {
    /// Bytes in the data section.
    pub fn data_bytes(&self) -> u64 {
        self.groups.iter().map(|group| group.part.bytes as u64).sum()
    }

    /// The part with the residue of a page; None when no page of its group has a residue.
    pub fn part_of(&self, page: usize) -> Option<Part> {
        self.groups.get(page / self.group_pages).filter(|group| group.raw_bytes > 0).map(|group| group.part)
    }

    /// Appends the directory entry.
    pub fn put(&self, out: &mut Vec<u8>) {
        out.put_u16(self.group_pages as u16);
        for group in &self.groups {
            out.put_u32(group.raw_bytes);
            if group.raw_bytes > 0 {
                group.part.encode(out);
            }
        }
    }

    /// Reads the directory entry of `pages` pages.
    pub fn get(reader: &mut Reader<'_>, pages: usize) -> Result<Self> {
        let group_pages = reader.u16("residue group")? as usize;
        if !(1..=PAGES_MAX).contains(&group_pages) {
            return corrupt("residue group", reader.position() - 2, group_pages.to_string());
        }
        let mut groups = Vec::with_capacity(pages.div_ceil(group_pages));
        for _ in 0..pages.div_ceil(group_pages) {
            let raw_bytes = reader.u32("residue length")?;
            let part = if raw_bytes > 0 { Part::decode(reader)? } else { Part::EMPTY };
            groups.push(ResidueGroup { part, raw_bytes });
        }
        Ok(Self { group_pages, groups })
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

/// Applies residues to predicted pages. Caches the most recently decompressed group.
#[derive(Debug, Default)]
pub struct ResidueReader {
    group: Option<usize>,
    /// Where the residue of each page of the group ends in `bytes`.
    ends: Vec<u32>,
    bytes: Vec<u8>,
}

impl ResidueReader {
    /// Memory of the cached group in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// Applies the residue of page `number` to `page`, the predicted page. `pages` are all pages of the unit.
    pub fn apply(
        &mut self,
        residues: &Residues,
        pages: &[PageEntry],
        section: DataSection<'_>,
        number: usize,
        page: &mut [u8; BLOCK_BYTES],
    ) -> Result<()> {
        let group = number / residues.group_pages;
        let is_raw = pages[number].kind == PageKind::Raw;
        if residues.groups[group].raw_bytes == 0 {
            return match is_raw {
                true => corrupt("residue", 0, format!("none for page {number}, which is raw")),
                false => Ok(()),
            };
        }
        if self.group != Some(group) {
            self.load(residues, pages.len(), section, group)?;
        }
        let in_group = number % residues.group_pages;
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

    /// Decompresses a group. `unit_pages` is the number of pages of the unit.
    fn load(&mut self, residues: &Residues, unit_pages: usize, section: DataSection<'_>, group: usize) -> Result<()> {
        self.group = None;
        let ResidueGroup { part, raw_bytes } = residues.groups[group];
        let (raw_bytes, at) = (raw_bytes as usize, part.offset as usize);
        let pages = residues.group_pages.min(unit_pages - group * residues.group_pages);
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
