//! Fields of pages, line pointers and tuple headers in a unit's directory.
//!
//! Source: `storage/bufpage.h`, `storage/itemid.h`, `access/htup_details.h`.

use cellar_format::postgres::Align;
use cellar_format::units::BLOCK_BYTES;

pub(super) const PAGE_HEADER_BYTES: usize = 24;
/// BLCKSZ with page layout version 4.
pub(super) const PAGE_SIZE_VERSION: u16 = BLOCK_BYTES as u16 | 4;
pub(super) const PD_ALL_VISIBLE: u16 = 0x0004;
pub(super) const LP_NORMAL: i64 = 1;
pub(super) const TUPLE_HEADER_BYTES: usize = 23;
/// `HEAP_HASNULL` of `t_infomask`.
pub(super) const HAS_NULLS: i64 = 0x0001;
/// `HEAP_NATTS_MASK` of `t_infomask2`.
pub(super) const ATTRIBUTES_MASK: i64 = 0x07ff;
/// Pages of the largest allocation unit.
pub const PAGES_MAX: usize = (64 << 20) / BLOCK_BYTES;
/// Maximum number of line pointers in a page.
pub const LINES_MAX: usize = (BLOCK_BYTES - PAGE_HEADER_BYTES) / 4;
const _: () = assert!(LINES_MAX < u16::MAX as usize);

/// Fields that describe a tuple's header and its place in the page, one number per row. A field that follows from others in most
/// tuples is stored as a difference, so that most numbers are 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum HeaderField {
    Xmin,
    Xmax,
    /// `t_cid` or `t_xvac`.
    Field3,
    /// Block of `t_ctid`, less the page's number in the unit.
    CtidBlock,
    /// Line pointer of `t_ctid`, less the tuple's own.
    CtidLine,
    Infomask2,
    Infomask,
    /// `t_hoff`, less the aligned size of header and null bitmap.
    DataOffset,
    /// Length in the line pointer, less the end of the last attribute.
    Length,
    /// Position among the page's tuples counted from the end of the page, less the row's position in the page.
    Rank,
    /// Bytes between the tuple and the next tuple towards the end of the page, beyond alignment.
    Gap,
}

pub const HEADER_FIELDS: [HeaderField; 11] = [
    HeaderField::Xmin,
    HeaderField::Xmax,
    HeaderField::Field3,
    HeaderField::CtidBlock,
    HeaderField::CtidLine,
    HeaderField::Infomask2,
    HeaderField::Infomask,
    HeaderField::DataOffset,
    HeaderField::Length,
    HeaderField::Rank,
    HeaderField::Gap,
];

/// How a page is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum PageKind {
    /// All bytes are zero.
    Zero = 0,
    /// As rows in columns.
    Rows = 1,
    /// Byte for byte.
    Raw = 2,
}

/// A page's header (`PageHeaderData`), and its place in the unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageEntry {
    pub kind: PageKind,
    pub lsn: u64,
    pub checksum: u16,
    pub flags: u16,
    pub prune_xid: u32,
    /// Number of line pointers.
    pub lines: u16,
    /// Number of line pointers that point to tuples.
    pub rows: u16,
    /// `pd_upper`, less the offset of the lowest tuple.
    pub upper: i16,
    /// The number in the unit of the page's first line pointer.
    pub first_line: u32,
    /// The number in the unit of the page's first row.
    pub first_row: u32,
}

impl PageEntry {
    pub(super) const EMPTY: Self = Self {
        kind: PageKind::Zero,
        lsn: 0,
        checksum: 0,
        flags: 0,
        prune_xid: 0,
        lines: 0,
        rows: 0,
        upper: 0,
        first_line: 0,
        first_row: 0,
    };
}

/// `t_hoff` of a tuple with these attributes.
#[inline(always)]
pub(super) fn data_offset(natts: usize, has_nulls: bool) -> usize {
    let bitmap = if has_nulls { natts.div_ceil(8) } else { 0 };
    Align::Double.up(TUPLE_HEADER_BYTES + bitmap)
}
