//! The payload of a `Batch` frame: qualifying rows in a layout that a backend can point into without copying.
//!
//! Offsets count from the start of the payload. Every section starts at a multiple of eight bytes, so datums are
//! aligned if the payload is eight-byte aligned in memory. See `docs/format/wire.md`.

use crate::bytes::{Corrupt, Reader, Write};

pub const BATCH_HEADER_BYTES: usize = 16;
pub const COLUMN_HEADER_BYTES: usize = 24;
pub const ROW_ENTRY_BYTES: usize = 16;

pub type BatchMode = super::ScanMode;

/// The start of a batch. `columns` column headers follow in `Columns` and `Groups` mode, `rows` row entries in `Rows`
/// mode.
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
            3 => BatchMode::DistinctGroups,
            other => return Err(Corrupt::new("batch mode", 10, other.to_string())),
        };
        reader.take(5, "batch header")?;
        Ok(Self { rows, first_block, columns, mode })
    }
}

/// The offsets of one column's sections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ColumnHeader {
    /// The NULL flags: one byte per row, 1 for NULL. The offset is 0 if no row is NULL.
    pub nulls_offset: u32,
    /// Fixed width: `stride` bytes per row. Varlena and cstring: a u32 per row, the datum's offset in the data section.
    pub values_offset: u32,
    /// The data section of a varlena or cstring column: datums with their headers, aligned to `typalign`.
    pub data_offset: u32,
    pub data_bytes: u32,
    /// Bytes per value; 0 for varlena and cstring.
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
    /// Offset of the tuple's header (`HeapTupleHeaderData`), a multiple of eight.
    pub offset: u32,
    /// Length of the tuple, header included.
    pub bytes: u32,
    pub block: u32,
    /// 1-based number of the tuple's line pointer.
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
