//! Pages put together again from a unit, one by one.
//!
//! First what the series foretell, then the page's patch over it. Invariant: whatever a damaged unit says ends in an
//! error or in bytes within the page; checksums and the encoder's own comparison make sure that the bytes are right.

use super::attribute::{AttributeBlock, Decoded, Form, SHORT_PAYLOAD_MAX};
use super::chunk::Chunk;
use super::encoding::varint::varint;
use super::encoding::{IntBlockCache, Strings, zstd};
use super::model::{
    ATTRIBUTES_MASK, HAS_NULLS, HEADER_FIELDS, HeaderField, LP_NORMAL, PAGE_HEADER_BYTES, PAGE_SIZE_VERSION, PageEntry,
    PageKind, TUPLE_HEADER_BYTES, data_offset,
};
use super::numeric;
use super::open::Unit;
use super::section::{DataSection, Result, corrupt};
use super::shape::{Attribute, Number};
use cellar_format::ByteSource;
use cellar_format::bytes::Reader;
use cellar_format::postgres::{Align, Width};
use cellar_format::units::BLOCK_BYTES;
use std::ops::Range;

/// Bytes that the residues of one page can take: a raw page, or a patch with all its gaps.
const RESIDUE_BYTES_MAX: usize = 4 * BLOCK_BYTES;

/// No tuple is longer, but for a residue of a broken page, and that is patched; behind it is room for a short piece more.
const TUPLE_BYTES_MAX: usize = 4 * BLOCK_BYTES;
const TUPLE_ROOM: usize = TUPLE_BYTES_MAX + 64;

/// Memory for rebuilding pages, of any number of units one after the other; keeps the last blocks that it read.
#[derive(Debug, Default)]
pub struct Rebuilder {
    unit: Option<u64>,
    /// The page that would continue a reading in order.
    next: usize,
    line_state: IntBlockCache,
    line_rest: IntBlockCache,
    headers: [IntBlockCache; HEADER_FIELDS.len()],
    attributes: Vec<AttributeBlock>,
    residue: Option<usize>,
    residue_ends: Vec<u32>,
    residue_bytes: Vec<u8>,
    lines: Vec<i64>,
    rests: Vec<i64>,
    fields: [Vec<i64>; HEADER_FIELDS.len()],
    decoded: Vec<Decoded>,
    tuples: Tuples,
    ends: Vec<u32>,
    order: Vec<u16>,
    places: Vec<(u16, u16)>,
    parts: Vec<Range<u32>>,
    expected: Vec<Range<u64>>,
}

/// An attribute and its values in the page's rows.
struct Step<'a> {
    attribute: &'a Attribute,
    align_mask: usize,
    cells: Cells<'a>,
    /// 0 where the row is NULL; empty when none is.
    validity: &'a [i64],
    exceptions: &'a [(u32, Vec<u8>)],
}

enum Cells<'a> {
    Numbers(Number, &'a [i64]),
    Numerics { scale: u8, values: &'a [i64] },
    Payloads(&'a Strings),
    Datums(&'a Strings),
}

impl<'a> Step<'a> {
    /// None: the values are not such as the attribute has.
    fn new(attribute: &'a Attribute, decoded: &'a Decoded, rows: usize) -> Option<Self> {
        let cells = match decoded.form {
            Form::Number => Cells::Numbers(Number::of(attribute)?, decoded.ints.get(..rows)?),
            Form::Numeric { scale } => Cells::Numerics { scale, values: decoded.ints.get(..rows)? },
            Form::Payload => Cells::Payloads(&decoded.strings),
            Form::Datum => Cells::Datums(&decoded.strings),
        };
        let align_mask = attribute.align.bytes() - 1;
        Some(Self { attribute, align_mask, cells, validity: &decoded.validity, exceptions: &decoded.exceptions })
    }
}

impl Rebuilder {
    pub fn new() -> Self {
        Self::default()
    }

    /// Writes page `number` of the unit into `out`.
    pub fn page(
        &mut self,
        unit: &Unit,
        source: &dyn ByteSource,
        number: usize,
        out: &mut [u8; BLOCK_BYTES],
    ) -> Result<()> {
        let data = unit.data(source);
        if self.unit != Some(unit.id()) || number != self.next {
            self.expect(unit, data, number);
        }
        self.predict(unit, data, number, out)?;
        self.patch(unit, data, number, out)
    }

    /// Tells the source what the page takes, unless it is in memory.
    fn expect(&mut self, unit: &Unit, data: DataSection<'_>, number: usize) {
        let Some(page) = unit.pages().get(number) else { return };
        if data.source.verified_slice_at(data.start, 0).is_some() {
            return;
        }
        self.parts.clear();
        if let Some((_, chunk)) = unit.chunk_of(number).filter(|_| page.lines > 0) {
            let (row, line) =
                ((page.first_row - chunk.first_row) as usize, (page.first_line - chunk.first_line) as usize);
            chunk.expect(row..row + page.rows as usize, line..line + page.lines as usize, &mut self.parts);
        }
        let (group_pages, residues) = unit.residues();
        let residue = residues.get(number / group_pages).filter(|residue| residue.raw_bytes > 0);
        self.parts.extend(residue.map(|residue| residue.part.range()));
        self.parts.retain(|part| !part.is_empty());
        self.parts.sort_unstable_by_key(|part| part.start);
        self.expected.clear();
        let place = |at: u32| data.start + u64::from(at);
        self.expected.extend(self.parts.iter().map(|part| place(part.start)..place(part.end)));
        data.source.prefetch(&self.expected);
    }

    /// The page without its patch; a raw page is all patch.
    pub(super) fn predict(
        &mut self,
        unit: &Unit,
        data: DataSection<'_>,
        number: usize,
        out: &mut [u8; BLOCK_BYTES],
    ) -> Result<()> {
        if self.unit != Some(unit.id()) {
            self.forget();
            self.unit = Some(unit.id());
        }
        let Some(page) = unit.pages().get(number) else {
            return corrupt("page number", 0, format!("{number} of {}", unit.pages().len()));
        };
        self.attributes.resize_with(unit.shape().attributes.len(), AttributeBlock::default);
        // A page out of order is likely the only one of its blocks.
        self.set_sparse(number != self.next);
        self.next = number + 1;
        out.fill(0);
        if page.kind != PageKind::Rows {
            return Ok(());
        }
        self.write_header(page, out);
        if page.lines > 0 {
            self.load(unit, data, number, page)?;
            self.build_tuples(unit, number, page)?;
            self.place(page, out)?;
        } else {
            out[14..16].copy_from_slice(&((BLOCK_BYTES as i64 + page.upper as i64) as u16).to_le_bytes());
        }
        Ok(())
    }

    /// Bytes of the strings and residues that were read last.
    pub fn held_bytes(&self) -> usize {
        self.residue_bytes.capacity() + self.attributes.iter().map(AttributeBlock::held_bytes).sum::<usize>()
    }

    /// Forgets the blocks that were read last.
    pub fn forget(&mut self) {
        self.line_state = IntBlockCache::default();
        self.line_rest = IntBlockCache::default();
        self.headers = Default::default();
        self.attributes.clear();
        self.residue = None;
        self.residue_bytes = Vec::new();
    }

    fn set_sparse(&mut self, sparse: bool) {
        let own = [&mut self.line_state, &mut self.line_rest];
        own.into_iter().chain(&mut self.headers).for_each(|block| block.sparse = sparse);
        self.attributes.iter_mut().for_each(|block| block.set_lone(sparse));
    }

    fn write_header(&self, page: &PageEntry, out: &mut [u8; BLOCK_BYTES]) {
        out[0..4].copy_from_slice(&((page.lsn >> 32) as u32).to_le_bytes());
        out[4..8].copy_from_slice(&(page.lsn as u32).to_le_bytes());
        out[8..10].copy_from_slice(&page.checksum.to_le_bytes());
        out[10..12].copy_from_slice(&page.flags.to_le_bytes());
        out[12..14].copy_from_slice(&((PAGE_HEADER_BYTES + 4 * page.lines as usize) as u16).to_le_bytes());
        out[16..18].copy_from_slice(&(BLOCK_BYTES as u16).to_le_bytes());
        out[18..20].copy_from_slice(&PAGE_SIZE_VERSION.to_le_bytes());
        out[20..24].copy_from_slice(&page.prune_xid.to_le_bytes());
    }

    /// Reads what the series hold of the page.
    fn load(&mut self, unit: &Unit, data: DataSection<'_>, number: usize, page: &PageEntry) -> Result<()> {
        let Some((place, chunk)) = unit.chunk_of(number) else {
            return corrupt("page", number, "in no chunk");
        };
        let first = (page.first_line - chunk.first_line) as usize;
        let lines = first..first + page.lines as usize;
        self.lines.clear();
        self.rests.clear();
        chunk.line_state.read(data, place, lines.clone(), &mut self.line_state, &mut self.lines)?;
        chunk.line_rest.read(data, place, lines, &mut self.line_rest, &mut self.rests)?;
        let first = (page.first_row - chunk.first_row) as usize;
        let rows = first..first + page.rows as usize;
        for ((series, last), out) in chunk.headers.iter().zip(&mut self.headers).zip(&mut self.fields) {
            out.clear();
            series.read(data, place, rows.clone(), last, out)?;
        }
        self.decoded.resize_with(chunk.attributes.len().max(self.decoded.len()), Decoded::default);
        if page.rows > 0 {
            self.load_attributes(data, chunk, place, rows)?;
        }
        Ok(())
    }

    fn load_attributes(
        &mut self,
        data: DataSection<'_>,
        chunk: &Chunk,
        place: usize,
        rows: std::ops::Range<usize>,
    ) -> Result<()> {
        for ((attribute, last), out) in chunk.attributes.iter().zip(&mut self.attributes).zip(&mut self.decoded) {
            attribute.read(data, place, rows.clone(), last, out)?;
        }
        Ok(())
    }

    /// All tuples of the page, one after the other.
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
        let steps =
            attributes.iter().zip(&self.decoded).map(|(attribute, decoded)| Step::new(attribute, decoded, rows));
        let Some(steps) = steps.collect::<Option<Vec<_>>>() else {
            return corrupt("values", number, "of another form than the attribute's");
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
            tuple.push_of(&header, TUPLE_HEADER_BYTES);
            let mut built = tuple.pad_to(data);
            for (index, step) in steps[..natts].iter().enumerate() {
                if has_nulls {
                    if step.validity.get(row) == Some(&0) {
                        continue;
                    }
                    tuple.room[TUPLE_HEADER_BYTES + index / 8] |= 1 << (index % 8);
                }
                built = built.and_then(|()| push_value(&mut tuple, data, step, row));
            }
            built = built.filter(|()| tuple.end <= TUPLE_BYTES_MAX);
            let length = (tuple.end as i64).wrapping_add(field(HeaderField::Length));
            built = built.and_then(|()| tuple.pad_to(length.clamp(0, BLOCK_BYTES as i64) as usize));
            if built.is_none() {
                return corrupt("tuple", number, format!("row {row} of the page"));
            }
            self.tuples.end += tuple.end;
            self.ends.push(self.tuples.end as u32);
        }
        Ok(())
    }

    /// Puts the tuples where they lie, and the line pointers.
    fn place(&mut self, page: &PageEntry, out: &mut [u8; BLOCK_BYTES]) -> Result<()> {
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
        let mut behind = BLOCK_BYTES as i64;
        for row in &self.order {
            let row = *row as usize;
            let start = if row == 0 { 0 } else { self.ends[row - 1] as usize };
            let tuple = &self.tuples.bytes[start..self.ends[row] as usize];
            let expected = behind.wrapping_sub(Align::Double.up(tuple.len()) as i64);
            behind = expected.wrapping_sub(self.fields[HeaderField::Gap as usize][row]);
            self.places[row] = (behind as u16 & 0x7fff, tuple.len() as u16);
            // What a patch puts right later may lie outside the page now.
            if let Some(place) = usize::try_from(behind).ok().and_then(|at| out.get_mut(at..)) {
                let bytes = tuple.len().min(place.len());
                place[..bytes].copy_from_slice(&tuple[..bytes]);
            }
        }
        out[14..16].copy_from_slice(&(behind.wrapping_add(page.upper as i64) as u16).to_le_bytes());
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

    fn patch(&mut self, unit: &Unit, data: DataSection<'_>, number: usize, out: &mut [u8; BLOCK_BYTES]) -> Result<()> {
        let (group_pages, residues) = unit.residues();
        let group = number / group_pages;
        let residue = &residues[group];
        if residue.raw_bytes == 0 {
            return match unit.pages()[number].kind {
                PageKind::Raw => corrupt("residue", 0, format!("nothing for page {number}, which is kept raw")),
                _ => Ok(()),
            };
        }
        if self.residue != Some(group) {
            self.residue = None;
            let (raw_bytes, at) = (residue.raw_bytes as usize, residue.part.offset as usize);
            let pages = group_pages.min(unit.pages().len() - group * group_pages);
            if raw_bytes > pages * RESIDUE_BYTES_MAX {
                return corrupt("residue", at, format!("{raw_bytes} bytes for {pages} pages"));
            }
            self.residue_bytes = zstd::decompress(&data.read(residue.part, "residue")?, raw_bytes, "residue")?;
            let mut reader = Reader::new(&self.residue_bytes);
            self.residue_ends.clear();
            let mut end = 0u64;
            for _ in 0..pages {
                end = end.saturating_add(varint(&mut reader, "residue length")?);
                self.residue_ends.push(end.min(u32::MAX as u64) as u32);
            }
            if reader.remaining() as u64 != end {
                return corrupt("residue", at, format!("{} bytes of {end}", reader.remaining()));
            }
            let start = reader.position();
            self.residue_bytes.drain(..start);
            self.residue = Some(group);
        }
        let in_group = number % group_pages;
        let start = if in_group == 0 { 0 } else { self.residue_ends[in_group - 1] as usize };
        let bytes = &self.residue_bytes[start..self.residue_ends[in_group] as usize];
        if unit.pages()[number].kind == PageKind::Raw {
            if bytes.len() != BLOCK_BYTES {
                return corrupt("raw page", number, format!("{} bytes", bytes.len()));
            }
            out.copy_from_slice(bytes);
            return Ok(());
        }
        let mut reader = Reader::new(bytes);
        let mut at = 0usize;
        while reader.remaining() > 0 {
            at = at.saturating_add(varint(&mut reader, "patch place")? as usize);
            let count = varint(&mut reader, "patch length")? as usize;
            let patch = reader.take(count, "patch")?;
            let Some(place) = at.checked_add(count).and_then(|end| out.get_mut(at..end)) else {
                return corrupt("patch", number, format!("{count} bytes at {at}"));
            };
            place.copy_from_slice(patch);
            at += count;
        }
        Ok(())
    }
}

/// Where the page's tuples are put together. Written from the front; what lies behind `end` is undefined.
#[derive(Debug, Default)]
struct Tuples {
    bytes: Vec<u8>,
    end: usize,
}

impl Tuples {
    /// Room for one more tuple.
    fn next(&mut self) -> Tuple<'_> {
        if self.bytes.len() < self.end + TUPLE_ROOM {
            self.bytes.resize((self.end + TUPLE_ROOM).next_power_of_two(), 0);
        }
        let room = self.bytes[self.end..].first_chunk_mut().expect("as much room as was made");
        Tuple { room, end: 0 }
    }
}

/// The tuple that is put together. On the stack: what is written to the room cannot change its end, so that stays in a
/// register. One that is longer than a tuple can be is overwritten, and found out when it is done.
struct Tuple<'a> {
    room: &'a mut [u8; TUPLE_ROOM],
    end: usize,
}

impl Tuple<'_> {
    /// None: no tuple is so long.
    fn push(&mut self, bytes: &[u8]) -> Option<()> {
        let end = self.end + bytes.len();
        self.room.get_mut(self.end..end)?.copy_from_slice(bytes);
        self.end = end;
        Some(())
    }

    /// Zeroes up to `end`, or back to it.
    #[inline(always)]
    fn pad_to(&mut self, end: usize) -> Option<()> {
        if end > self.end + 1 {
            self.room.get_mut(self.end..end)?.fill(0);
        } else {
            self.push_of(&[0], 0);
        }
        self.end = end;
        Some(())
    }

    /// The first `count` of `bytes`. Copies of a fixed length are quicker than exact ones.
    #[inline(always)]
    fn push_of<const ROOM: usize>(&mut self, bytes: &[u8; ROOM], count: usize) {
        const { assert!(ROOM <= TUPLE_ROOM - TUPLE_BYTES_MAX) };
        debug_assert!(count <= ROOM);
        self.room[self.end % TUPLE_BYTES_MAX..][..ROOM].copy_from_slice(bytes);
        self.end += count;
    }

    /// `count` bytes of `bytes` from `start` on.
    #[inline(always)]
    fn push_from(&mut self, bytes: &[u8], start: usize, count: usize) -> Option<()> {
        const WIDE: usize = 32;
        match bytes.get(start..start + WIDE) {
            Some(wide) if count <= WIDE => self.push_of::<WIDE>(wide.try_into().ok()?, count),
            _ => self.push(bytes.get(start..start + count)?)?,
        }
        Some(())
    }

    /// Zeroes up to the boundary, as counted from where the tuple's data start.
    #[inline(always)]
    fn align(&mut self, data: usize, mask: usize) {
        let end = data + ((self.end - data + mask) & !mask);
        self.push_of(&[0; 8], end - self.end);
    }
}

/// Appends a value as `heap_fill_tuple` would; None: there is no such value.
#[inline(always)]
fn push_value(tuple: &mut Tuple<'_>, data: usize, step: &Step<'_>, row: usize) -> Option<()> {
    if !step.exceptions.is_empty()
        && let Ok(index) = step.exceptions.binary_search_by_key(&(row as u32), |(row, _)| *row)
    {
        return push_datum(tuple, data, step, &step.exceptions[index].1);
    }
    match step.cells {
        Cells::Numbers(number, values) => {
            tuple.align(data, step.align_mask);
            tuple.push_of(&number.encode(values[row]), number.bytes());
        }
        Cells::Numerics { scale, values } => {
            let (bytes, count) = numeric::encode(values[row], scale)?;
            tuple.push_of(&bytes, count);
        }
        Cells::Payloads(strings) => {
            let (start, end) = strings.span(row)?;
            let count = end - start;
            if count <= SHORT_PAYLOAD_MAX {
                tuple.push_of(&[((count + 1) << 1 | 1) as u8], 1);
            } else {
                tuple.align(data, step.align_mask);
                tuple.push_of(&((count as u32 + 4) << 2).to_le_bytes(), 4);
            }
            tuple.push_from(&strings.bytes, start, count)?;
        }
        Cells::Datums(strings) => push_datum(tuple, data, step, strings.get(row)?)?,
    }
    Some(())
}

fn push_datum(tuple: &mut Tuple<'_>, data: usize, step: &Step<'_>, datum: &[u8]) -> Option<()> {
    let has_padding = match step.attribute.width {
        Width::Fixed(_) => true,
        Width::Varlena => datum.first().is_some_and(|first| first & 1 == 0),
        Width::Cstring => false,
    };
    if has_padding {
        tuple.align(data, step.align_mask);
    }
    tuple.push(datum)
}
