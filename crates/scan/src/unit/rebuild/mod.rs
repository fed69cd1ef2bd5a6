//! Rebuilds pages from a unit, one by one.
//!
//! A page is predicted from the columns, and then its residue is applied. The result equals the original page because the
//! encoder predicts every page with this code and stores each difference as the residue.
//!
//! Invariant: a damaged unit whose checksums match leads to an error or to a wrong page, never to a panic.

mod tuple;

use super::attribute::{AttributeCache, DecodedValues};
use super::encoding::IntBlockCache;
use super::open::Unit;
use super::page::{
    ATTRIBUTES_MASK, HAS_NULLS, HEADER_FIELDS, HeaderField, LP_NORMAL, PAGE_HEADER_BYTES, PAGE_SIZE_VERSION, PageEntry,
    PageKind, TUPLE_HEADER_BYTES, data_offset,
};
use super::residue::ResidueReader;
use super::section::{DataSection, Result, corrupt};
use cellar_format::ByteSource;
use cellar_format::postgres::Align;
use cellar_format::units::BLOCK_BYTES;
use std::ops::Range;
use tuple::{RowValues, TUPLE_BYTES_MAX, TupleBuffer};

/// Rebuilds pages and caches the most recently decoded blocks of one unit. Works fastest on consecutive pages.
#[derive(Debug, Default)]
pub struct Rebuilder {
    /// The unit of the decoded blocks.
    unit: Option<u64>,
    /// The page after the last one that was rebuilt.
    next: usize,
    line_state: IntBlockCache,
    line_rest: IntBlockCache,
    headers: [IntBlockCache; HEADER_FIELDS.len()],
    attributes: Vec<AttributeCache>,
    residues: ResidueReader,
    /// The page's line pointers, header fields and attribute values.
    lines: Vec<i64>,
    rests: Vec<i64>,
    fields: [Vec<i64>; HEADER_FIELDS.len()],
    decoded: Vec<DecodedValues>,
    tuples: TupleBuffer,
    /// Where each tuple ends in `tuples`.
    ends: Vec<u32>,
    /// Rows by rank.
    order: Vec<u16>,
    /// Offset and length of each tuple in the page.
    places: Vec<(u16, u16)>,
    /// Ranges to prefetch, in the data section and in the source.
    ranges: Vec<Range<u32>>,
    source_ranges: Vec<Range<u64>>,
}

impl Unit {
    /// Writes one page, byte for byte, into `out`. A [`Rebuilder`] is faster for several pages.
    pub fn rebuild_page(&self, source: &dyn ByteSource, page: usize, out: &mut [u8; BLOCK_BYTES]) -> Result<()> {
        Rebuilder::new().page(self, source, page, out)
    }
}

impl Rebuilder {
    pub fn new() -> Self {
        Self::default()
    }

    /// Writes page `number` of the unit, byte for byte, into `out`.
    pub fn page(
        &mut self,
        unit: &Unit,
        source: &dyn ByteSource,
        number: usize,
        out: &mut [u8; BLOCK_BYTES],
    ) -> Result<()> {
        let section = unit.section(source);
        if self.unit != Some(unit.id()) || number != self.next {
            self.prefetch(unit, section, number);
        }
        self.predict(unit, section, number, out)?;
        self.residues.apply(unit.residues(), unit.pages(), section, number, out)
    }

    /// Predicts page `number` from the columns. All bytes of a raw page are predicted as zero.
    pub(super) fn predict(
        &mut self,
        unit: &Unit,
        section: DataSection<'_>,
        number: usize,
        out: &mut [u8; BLOCK_BYTES],
    ) -> Result<()> {
        if self.unit != Some(unit.id()) {
            self.clear();
            self.unit = Some(unit.id());
        }
        let Some(page) = unit.pages().get(number) else {
            return corrupt("page number", 0, format!("{number} of {}", unit.pages().len()));
        };
        self.attributes.resize_with(unit.shape().attributes.len(), AttributeCache::default);
        // A page out of order is probably the only page of its blocks that is read, so its rows are decoded alone.
        self.set_single_reads(number != self.next);
        self.next = number + 1;
        out.fill(0);
        if page.kind != PageKind::Rows {
            return Ok(());
        }
        write_header(page, out);
        if page.lines > 0 {
            self.read_columns(unit, section, number, page)?;
            self.build_tuples(unit, number, page)?;
            self.place_tuples(page, out)?;
        } else {
            out[14..16].copy_from_slice(&((BLOCK_BYTES as i64 + page.upper as i64) as u16).to_le_bytes());
        }
        Ok(())
    }

    /// Memory of cached strings and residues in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.residues.memory_bytes() + self.attributes.iter().map(AttributeCache::memory_bytes).sum::<usize>()
    }

    /// Frees the cached blocks.
    pub fn clear(&mut self) {
        self.line_state = IntBlockCache::default();
        self.line_rest = IntBlockCache::default();
        self.headers = Default::default();
        self.attributes.clear();
        self.residues = ResidueReader::default();
    }

    fn set_single_reads(&mut self, single_reads: bool) {
        let caches = [&mut self.line_state, &mut self.line_rest].into_iter().chain(&mut self.headers);
        caches.for_each(|cache| cache.sparse = single_reads);
        self.attributes.iter_mut().for_each(|cache| cache.set_single_reads(single_reads));
    }

    /// Prefetches all parts that the page needs, unless the source has its bytes in memory.
    fn prefetch(&mut self, unit: &Unit, section: DataSection<'_>, number: usize) {
        let Some(page) = unit.pages().get(number) else { return };
        if section.source.verified_slice_at(section.start, 0).is_some() {
            return;
        }
        self.ranges.clear();
        if let Some((_, chunk)) = unit.chunk_of(number).filter(|_| page.lines > 0) {
            let (row, line) =
                ((page.first_row - chunk.first_row) as usize, (page.first_line - chunk.first_line) as usize);
            chunk.prefetch(row..row + page.rows as usize, line..line + page.lines as usize, &mut self.ranges);
        }
        self.ranges.extend(unit.residues().part_of(number).map(|part| part.range()));
        self.ranges.retain(|range| !range.is_empty());
        self.ranges.sort_unstable_by_key(|range| range.start);
        self.source_ranges.clear();
        let place = |at: u32| section.start + u64::from(at);
        self.source_ranges.extend(self.ranges.iter().map(|range| place(range.start)..place(range.end)));
        section.source.prefetch(&self.source_ranges);
    }

    /// Reads the page's line pointers, header fields and attribute values.
    fn read_columns(&mut self, unit: &Unit, section: DataSection<'_>, number: usize, page: &PageEntry) -> Result<()> {
        let Some((index, chunk)) = unit.chunk_of(number) else {
            return corrupt("page", number, "in no chunk");
        };
        let first = (page.first_line - chunk.first_line) as usize;
        let lines = first..first + page.lines as usize;
        self.lines.clear();
        self.rests.clear();
        chunk.line_state.read(section, index, lines.clone(), &mut self.line_state, &mut self.lines)?;
        chunk.line_rest.read(section, index, lines, &mut self.line_rest, &mut self.rests)?;
        let first = (page.first_row - chunk.first_row) as usize;
        let rows = first..first + page.rows as usize;
        for ((series, cache), out) in chunk.headers.iter().zip(&mut self.headers).zip(&mut self.fields) {
            out.clear();
            series.read(section, index, rows.clone(), cache, out)?;
        }
        self.decoded.resize_with(chunk.attributes.len().max(self.decoded.len()), DecodedValues::default);
        if page.rows > 0 {
            for ((attribute, cache), out) in chunk.attributes.iter().zip(&mut self.attributes).zip(&mut self.decoded) {
                attribute.read(section, index, rows.clone(), cache, out)?;
            }
        }
        Ok(())
    }

    /// Builds all tuples of the page in `self.tuples`.
    fn build_tuples(&mut self, unit: &Unit, number: usize, page: &PageEntry) -> Result<()> {
        let rows = page.rows as usize;
        let attributes = &unit.shape().attributes;
        self.tuples.end = 0;
        self.ends.clear();
        let normal = self.lines.iter().filter(|state| **state == LP_NORMAL).count();
        if normal != rows {
            return corrupt("line pointers", number, format!("{normal} tuples instead of {rows}"));
        }
        if rows == 0 {
            return Ok(());
        }
        let columns =
            attributes.iter().zip(&self.decoded).map(|(attribute, decoded)| RowValues::new(attribute, decoded, rows));
        let Some(columns) = columns.collect::<Option<Vec<_>>>() else {
            return corrupt("values", number, "of a representation that their attribute cannot have");
        };
        let fields = self.fields.each_ref().map(|field| &field[..rows]);
        let lines = self.lines.iter().zip(1i64..).filter(|(state, _)| **state == LP_NORMAL);
        for (row, (_, line)) in (0..rows).zip(lines) {
            let field = |field: HeaderField| fields[field as usize][row];
            let (infomask, infomask2) = (field(HeaderField::Infomask), field(HeaderField::Infomask2));
            let natts = (infomask2 & ATTRIBUTES_MASK) as usize;
            if natts > attributes.len() {
                return corrupt("tuple", number, format!("{natts} attributes of {}", attributes.len()));
            }
            let has_nulls = infomask & HAS_NULLS != 0;
            let data_at = (data_offset(natts, has_nulls) as i64).wrapping_add(field(HeaderField::DataOffset)) as u8;
            let block = (field(HeaderField::CtidBlock) as u32).wrapping_add(number as u32);
            let mut header = [0u8; TUPLE_HEADER_BYTES + 1];
            header[0..4].copy_from_slice(&(field(HeaderField::Xmin) as u32).to_le_bytes());
            header[4..8].copy_from_slice(&(field(HeaderField::Xmax) as u32).to_le_bytes());
            header[8..12].copy_from_slice(&(field(HeaderField::Field3) as u32).to_le_bytes());
            header[12..14].copy_from_slice(&((block >> 16) as u16).to_le_bytes());
            header[14..16].copy_from_slice(&(block as u16).to_le_bytes());
            let ctid_line = field(HeaderField::CtidLine).wrapping_add(line) as u16;
            header[16..18].copy_from_slice(&ctid_line.to_le_bytes());
            header[18..20].copy_from_slice(&(infomask2 as u16).to_le_bytes());
            header[20..22].copy_from_slice(&(infomask as u16).to_le_bytes());
            header[22] = data_at;
            let bitmap = if has_nulls { natts.div_ceil(8) } else { 0 };
            let data = (data_at as usize).max(TUPLE_HEADER_BYTES + bitmap);
            let mut tuple = self.tuples.next();
            tuple.push_first(&header, TUPLE_HEADER_BYTES);
            let mut built = tuple.set_end(data);
            for (index, column) in columns[..natts].iter().enumerate() {
                if has_nulls {
                    if column.validity.get(row) == Some(&0) {
                        continue;
                    }
                    tuple.buffer[TUPLE_HEADER_BYTES + index / 8] |= 1 << (index % 8);
                }
                built = built.and_then(|()| tuple.push_value(data, column, row));
            }
            built = built.filter(|()| tuple.end <= TUPLE_BYTES_MAX);
            let length = (tuple.end as i64).wrapping_add(field(HeaderField::Length));
            built = built.and_then(|()| tuple.set_end(length.clamp(0, BLOCK_BYTES as i64) as usize));
            if built.is_none() {
                return corrupt("tuple", number, format!("row {row} of the page"));
            }
            self.tuples.end += tuple.end;
            self.ends.push(self.tuples.end as u32);
        }
        Ok(())
    }

    /// Copies the tuples to their offsets in the page, and writes `pd_upper` and the line pointers.
    fn place_tuples(&mut self, page: &PageEntry, out: &mut [u8; BLOCK_BYTES]) -> Result<()> {
        let rows = page.rows as usize;
        self.order.clear();
        self.order.resize(rows, u16::MAX);
        for row in 0..rows {
            let rank = (row as i64).wrapping_add(self.fields[HeaderField::Rank as usize][row]);
            match usize::try_from(rank).ok().and_then(|rank| self.order.get_mut(rank)) {
                Some(slot) if *slot == u16::MAX => *slot = row as u16,
                _ => return corrupt("rank", row, rank.to_string()),
            }
        }
        self.places.clear();
        self.places.resize(rows, (0, 0));
        let mut lowest = BLOCK_BYTES as i64;
        for row in &self.order {
            let row = *row as usize;
            let start = if row == 0 { 0 } else { self.ends[row - 1] as usize };
            let tuple = &self.tuples.bytes[start..self.ends[row] as usize];
            let expected = lowest.wrapping_sub(Align::Double.up(tuple.len()) as i64);
            lowest = expected.wrapping_sub(self.fields[HeaderField::Gap as usize][row]);
            self.places[row] = (lowest as u16 & 0x7fff, tuple.len() as u16);
            // A predicted tuple may extend beyond the page; the patch then contains the bytes that differ.
            if let Some(place) = usize::try_from(lowest).ok().and_then(|at| out.get_mut(at..)) {
                let bytes = tuple.len().min(place.len());
                place[..bytes].copy_from_slice(&tuple[..bytes]);
            }
        }
        out[14..16].copy_from_slice(&(lowest.wrapping_add(page.upper as i64) as u16).to_le_bytes());
        let mut places = self.places.iter();
        for (line, (state, rest)) in self.lines.iter().zip(&self.rests).enumerate() {
            let (offset, length) = match *state {
                LP_NORMAL => places.next().map_or((0, 0), |(offset, length)| (*offset as u32, *length as u32)),
                _ => (*rest as u32 & 0x7fff, *rest as u32 >> 15 & 0x7fff),
            };
            let pointer = offset | (*state as u32 & 3) << 15 | length << 17;
            let at = PAGE_HEADER_BYTES + 4 * line;
            out[at..at + 4].copy_from_slice(&pointer.to_le_bytes());
        }
        Ok(())
    }
}

/// Writes the page header except `pd_upper`, which follows from the tuples.
fn write_header(page: &PageEntry, out: &mut [u8; BLOCK_BYTES]) {
    out[0..4].copy_from_slice(&((page.lsn >> 32) as u32).to_le_bytes());
    out[4..8].copy_from_slice(&(page.lsn as u32).to_le_bytes());
    out[8..10].copy_from_slice(&page.checksum.to_le_bytes());
    out[10..12].copy_from_slice(&page.flags.to_le_bytes());
    out[12..14].copy_from_slice(&((PAGE_HEADER_BYTES + 4 * page.lines as usize) as u16).to_le_bytes());
    out[16..18].copy_from_slice(&(BLOCK_BYTES as u16).to_le_bytes());
    out[18..20].copy_from_slice(&PAGE_SIZE_VERSION.to_le_bytes());
    out[20..24].copy_from_slice(&page.prune_xid.to_le_bytes());
}
