//! The layout of a received batch. All offsets and lengths are checked once, before the backend points into the
//! payload.

use cellar_format::bytes::Corrupt;
use cellar_format::wire::{
    BATCH_HEADER_BYTES, BatchHeader, BatchMode, COLUMN_HEADER_BYTES, ColumnHeader, ROW_ENTRY_BYTES, RowEntry,
};

/// Bytes of `HeapTupleHeaderData` before the null bitmap: no tuple is shorter.
const TUPLE_HEADER_BYTES: u32 = 23;

/// One column's sections, checked against the payload's length and the number of rows.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    pub header: ColumnHeader,
}

/// The checked layout of a `Batch` payload; contains no bytes of the payload.
#[derive(Debug, Clone)]
pub struct Batch {
    pub rows: u32,
    pub first_block: u32,
    pub mode: BatchMode,
    pub columns: Vec<Column>,
}

impl Batch {
    /// Decodes and checks the headers of a batch.
    pub fn check(payload: &[u8]) -> Result<Self, Corrupt> {
        let header = BatchHeader::decode(payload)?;
        let mut batch =
            Self { rows: header.rows, first_block: header.first_block, mode: header.mode, columns: Vec::new() };
        match header.mode {
            BatchMode::Columns | BatchMode::Groups | BatchMode::DistinctGroups => {
                for index in 0..header.columns as usize {
                    let at = BATCH_HEADER_BYTES + index * COLUMN_HEADER_BYTES;
                    let bytes = section(payload, at, COLUMN_HEADER_BYTES, "column header")?;
                    let column = Column { header: ColumnHeader::decode(bytes)? };
                    column.check(payload, header.rows as usize)?;
                    batch.columns.push(column);
                }
            }
            BatchMode::Rows => {
                for row in 0..header.rows {
                    let entry = batch.row_entry(payload, row)?;
                    section(payload, entry.offset as usize, entry.bytes as usize, "tuple")?;
                    if entry.offset % 8 != 0 || entry.bytes < TUPLE_HEADER_BYTES {
                        let found = format!("{} bytes at {}", entry.bytes, entry.offset);
                        return Err(Corrupt::new("tuple", entry.offset as usize, found));
                    }
                }
            }
        }
        Ok(batch)
    }

    /// Returns the entry of a row; only batches in `Rows` mode have entries.
    pub fn row_entry(&self, payload: &[u8], row: u32) -> Result<RowEntry, Corrupt> {
        let at = BATCH_HEADER_BYTES + row as usize * ROW_ENTRY_BYTES;
        RowEntry::decode(section(payload, at, ROW_ENTRY_BYTES, "row entry")?)
    }
}

impl Column {
    fn check(&self, payload: &[u8], rows: usize) -> Result<(), Corrupt> {
        let header = &self.header;
        let aligned = [header.nulls_offset, header.values_offset, header.data_offset].iter().all(|at| at % 8 == 0);
        if !aligned {
            return Err(Corrupt::new("column header", header.values_offset as usize, format!("{header:?}")));
        }
        if header.nulls_offset != 0 {
            section(payload, header.nulls_offset as usize, rows, "null flags")?;
        }
        if header.stride > 0 {
            section(payload, header.values_offset as usize, rows * header.stride as usize, "column values")?;
            return Ok(());
        }
        section(payload, header.data_offset as usize, header.data_bytes as usize, "column data")?;
        let offsets = section(payload, header.values_offset as usize, rows * 4, "column offsets")?;
        let nulls = match header.nulls_offset {
            0 => None,
            at => Some(section(payload, at as usize, rows, "null flags")?),
        };
        for (row, offset) in offsets.chunks_exact(4).enumerate() {
            let offset = u32::from_le_bytes(offset.try_into().expect("four bytes"));
            let is_null = nulls.is_some_and(|nulls| nulls[row] != 0);
            if !is_null && offset >= header.data_bytes {
                let at = header.values_offset as usize + row * 4;
                return Err(Corrupt::new("datum offset", at, format!("{offset} of {}", header.data_bytes)));
            }
        }
        Ok(())
    }
}

fn section<'a>(payload: &'a [u8], offset: usize, bytes: usize, what: &'static str) -> Result<&'a [u8], Corrupt> {
    offset
        .checked_add(bytes)
        .and_then(|end| payload.get(offset..end))
        .ok_or_else(|| Corrupt::new(what, offset, format!("{bytes} bytes in a payload of {}", payload.len())))
}
