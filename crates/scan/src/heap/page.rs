//! Page headers and line pointers.
//!
//! Invariant: every tuple that a [`Page`] returns is inside its block. An inconsistent header is [`Malformed`], and the
//! block is passed through to PostgreSQL. Source: `storage/bufpage.h`, `storage/itemid.h`,
//! `PageIsVerifiedExtended` in `bufpage.c`.

use cellar_format::units::BLOCK_BYTES;

pub const PAGE_HEADER_BYTES: usize = 24;
const LINE_POINTER_BYTES: usize = 4;
/// BLCKSZ with page layout version 4 in the low byte; PostgreSQL 8.3 and later.
const PAGE_SIZE_VERSION: u16 = BLOCK_BYTES as u16 | 4;
const PD_ALL_VISIBLE: u16 = 0x0004;
const PD_VALID_FLAG_BITS: u16 = 0x0007;
const LP_NORMAL: u32 = 1;
/// `SizeofHeapTupleHeader` rounded up to MAXALIGN: the minimum of `t_hoff`.
pub const TUPLE_HEADER_BYTES: usize = 24;

pub fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// A page header, line pointer or tuple header is inconsistent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

/// A block whose header has been checked.
#[derive(Clone, Copy)]
pub struct Page<'a> {
    bytes: &'a [u8],
    lower: usize,
    upper: usize,
    flags: u16,
}

impl<'a> Page<'a> {
    /// Checks the page header. None: an all-zero page, which has no tuples.
    pub fn new(bytes: &'a [u8]) -> Result<Option<Self>, Malformed> {
        Self::with_special(bytes, 0)
    }

    /// As [`Self::new`], for a page whose last `special_bytes` bytes belong to an access method.
    pub fn with_special(bytes: &'a [u8], special_bytes: usize) -> Result<Option<Self>, Malformed> {
        if bytes.len() != BLOCK_BYTES {
            return Err(Malformed);
        }
        let (flags, lower, upper) = (u16_at(bytes, 10), u16_at(bytes, 12) as usize, u16_at(bytes, 14) as usize);
        let (special, size_version) = (u16_at(bytes, 16) as usize, u16_at(bytes, 18));
        if upper == 0 {
            // PageIsNew, but only if all bytes are zero.
            return if bytes.iter().all(|byte| *byte == 0) { Ok(None) } else { Err(Malformed) };
        }
        let ordered =
            PAGE_HEADER_BYTES <= lower && lower <= upper && upper <= special && special + special_bytes == BLOCK_BYTES;
        if !ordered || flags & !PD_VALID_FLAG_BITS != 0 || size_version != PAGE_SIZE_VERSION {
            return Err(Malformed);
        }
        Ok(Some(Self { bytes, lower, upper, flags }))
    }

    pub fn all_visible(&self) -> bool {
        self.flags & PD_ALL_VISIBLE != 0
    }

    pub fn stored_checksum(&self) -> u16 {
        u16_at(self.bytes, 8)
    }

    /// The WAL position after the last logged change of the page (`pd_lsn`).
    pub fn lsn(&self) -> u64 {
        u64::from(u32_at(self.bytes, 0)) << 32 | u64::from(u32_at(self.bytes, 4))
    }

    /// The offset of the page's free space's end: items are at or after it.
    pub fn upper(&self) -> usize {
        self.upper
    }

    /// The line pointers (`ItemIdData`), in order.
    pub fn line_pointers(&self) -> impl Iterator<Item = u32> + 'a {
        let whole = (self.lower - PAGE_HEADER_BYTES) / LINE_POINTER_BYTES * LINE_POINTER_BYTES;
        self.bytes[PAGE_HEADER_BYTES..PAGE_HEADER_BYTES + whole].chunks_exact(LINE_POINTER_BYTES).map(|p| u32_at(p, 0))
    }

    /// The number of line pointers that point to tuples; the tuples are not checked.
    pub fn normal_count(&self) -> u32 {
        self.line_pointers().map(|pointer| u32::from(is_normal(pointer))).sum()
    }

    /// Visits every tuple with its 1-based line pointer number, in line pointer order.
    pub fn for_each_tuple(&self, mut visit: impl FnMut(u16, TupleHeader)) -> Result<(), Malformed> {
        for (index, pointer) in self.line_pointers().enumerate() {
            if is_normal(pointer) {
                visit(index as u16 + 1, self.tuple(pointer)?);
            }
        }
        Ok(())
    }

    fn tuple(&self, pointer: u32) -> Result<TupleHeader, Malformed> {
        let (offset, length) = placement(pointer);
        let placed = offset >= self.upper && offset.is_multiple_of(8) && offset + length <= BLOCK_BYTES;
        if !placed || length < TUPLE_HEADER_BYTES {
            return Err(Malformed);
        }
        let header: &[u8; TUPLE_HEADER_BYTES] =
            self.bytes[offset..offset + TUPLE_HEADER_BYTES].try_into().map_err(|_| Malformed)?;
        let tuple = TupleHeader {
            offset: offset as u16,
            length: length as u16,
            xmin: u32_at(header, 0),
            xmax: u32_at(header, 4),
            infomask2: u16_at(header, 18),
            infomask: u16_at(header, 20),
            data: header[22],
        };
        let data = tuple.data as usize;
        let bitmap = if tuple.has_nulls() { tuple.attributes().div_ceil(8) } else { 0 };
        if !data.is_multiple_of(8) || data > length || TUPLE_HEADER_BYTES - 1 + bitmap > data {
            return Err(Malformed);
        }
        Ok(tuple)
    }
}

/// Whether a line pointer points to an item that is not known to be dead.
pub fn is_normal(pointer: u32) -> bool {
    (pointer >> 15) & 3 == LP_NORMAL
}

/// The offset and the length of a line pointer's item; neither is checked.
pub fn placement(pointer: u32) -> (usize, usize) {
    ((pointer & 0x7fff) as usize, (pointer >> 17) as usize)
}

/// Fields of a tuple header (`HeapTupleHeaderData`), checked against the page.
#[derive(Debug, Clone, Copy)]
pub struct TupleHeader {
    /// Offset of the header in the page, a multiple of eight.
    pub offset: u16,
    /// Bytes of the tuple, header included.
    pub length: u16,
    pub xmin: u32,
    pub xmax: u32,
    pub infomask2: u16,
    pub infomask: u16,
    /// `t_hoff`: offset of the data in the tuple, a multiple of eight and at most `length`.
    pub data: u8,
}

impl TupleHeader {
    const HASNULL: u16 = 0x0001;

    pub fn has_nulls(&self) -> bool {
        self.infomask & Self::HASNULL != 0
    }

    /// The number of attributes in the tuple.
    pub fn attributes(&self) -> usize {
        (self.infomask2 & 0x07ff) as usize
    }
}
