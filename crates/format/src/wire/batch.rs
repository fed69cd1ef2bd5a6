//! The payload of a `Batch` frame: rows that qualified, laid out so that a backend points into it without copying.
//!
//! Offsets count from the start of the payload; every section starts on a multiple of eight bytes, so that a payload
//! that is itself eight-byte aligned in memory holds aligned datums. See `docs/format/wire.md`.

use crate::bytes::{Corrupt, Reader, Write};

pub const BATCH_HEADER_BYTES: usize = 16;
pub const COLUMN_HEADER_BYTES: usize = 24;
pub const ROW_ENTRY_BYTES: usize = 16;

pub type BatchMode = super::ScanMode;

/// `rows` rows from blocks `first_block` on; `columns` column headers follow in `Columns` and `Groups` mode, `rows`
/// row entries in `Rows` mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchHeader {
    pub rows: u32,
    pub first_block: u32,
    pub columns: u16,
    pub mode: BatchMode,
}

impl BatchHeader {
    pub fn encode(&self) -> [u8; BATCH_HEADER_BYTES] {
        let mut out = Vec::with_capacity(BATCH_HEADER_BYTES);
        out.put_u32(self.rows);
        out.put_u32(self.first_block);
        out.put_u16(self.columns);
        out.put_u8(self.mode as u8);
        out.put_u8(0);
        out.put_u32(0);
        out.try_into().expect("a batch header is sixteen bytes")
    }

    pub fn decode(payload: &[u8]) -> Result<Self, Corrupt> {
        let mut reader = Reader::new(payload);
        let rows = reader.u32("batch rows")?;
        let first_block = reader.u32("batch block")?;
        let columns = reader.u16("batch columns")?;
        let mode = match reader.u8("batch mode")? {
            0 => BatchMode::Columns,
            1 => BatchMode::Rows,
            2 => BatchMode::Groups,
            other => return Err(Corrupt::new("batch mode", 10, other.to_string())),
        };
        reader.take(5, "batch header")?;
        Ok(Self { rows, first_block, columns, mode })
    }
}

/// Where one column's sections lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ColumnHeader {
    /// One byte a row, 1 for NULL; 0 when no row is NULL.
    pub nulls_offset: u32,
    /// Fixed width: `stride` bytes a row. Varlena and cstring: a u32 a row, the datum's offset in the data section.
    pub values_offset: u32,
    /// The data section of a varlena or cstring column: datums with their headers, aligned as `typalign` asks.
    pub data_offset: u32,
    pub data_bytes: u32,
    /// Bytes from a row's value to the next one's; 0 for varlena and cstring.
    pub stride: u32,
}

impl ColumnHeader {
    pub fn encode(&self) -> [u8; COLUMN_HEADER_BYTES] {
        let mut out = Vec::with_capacity(COLUMN_HEADER_BYTES);
        for field in [self.nulls_offset, self.values_offset, self.data_offset, self.data_bytes, self.stride, 0] {
            out.put_u32(field);
        }
        out.try_into().expect("a column header is twenty-four bytes")
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, Corrupt> {
        let mut reader = Reader::new(bytes);
        let header = Self {
            nulls_offset: reader.u32("nulls offset")?,
            values_offset: reader.u32("values offset")?,
            data_offset: reader.u32("data offset")?,
            data_bytes: reader.u32("data length")?,
            stride: reader.u32("stride")?,
        };
        reader.take(4, "column header")?;
        Ok(header)
    }
}

/// One tuple of a `Rows` batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowEntry {
    /// Where the tuple's header (`HeapTupleHeaderData`) starts, a multiple of eight.
    pub offset: u32,
    /// Bytes of the tuple, header included.
    pub bytes: u32,
    pub block: u32,
    /// Its line pointer's 1-based number.
    pub line_pointer: u16,
}

impl RowEntry {
    pub fn encode(&self) -> [u8; ROW_ENTRY_BYTES] {
        let mut out = Vec::with_capacity(ROW_ENTRY_BYTES);
        out.put_u32(self.offset);
        out.put_u32(self.bytes);
        out.put_u32(self.block);
        out.put_u16(self.line_pointer);
        out.put_u16(0);
        out.try_into().expect("a row entry is sixteen bytes")
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, Corrupt> {
        let mut reader = Reader::new(bytes);
        let entry = Self {
            offset: reader.u32("tuple offset")?,
            bytes: reader.u32("tuple length")?,
            block: reader.u32("tuple block")?,
            line_pointer: reader.u16("line pointer")?,
        };
        reader.take(2, "row entry")?;
        Ok(entry)
    }
}
