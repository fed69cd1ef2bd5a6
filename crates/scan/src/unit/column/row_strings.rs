//! Strings of selected rows whose chunk has no list of its strings, as positions in a list of the block or of the rows.

use super::super::encoding::{BLOCK_ROWS, Strings};
use super::super::section::Result;
use super::{BlockRef, ColumnReader};
use crate::predicate::{CodeEncoding, EncodedColumn, StringList};

/// If at most one row in 64 of a block is selected, the rows are decoded one by one.
const SPARSE_SHARE: usize = 64;

/// The strings that [`ColumnReader::gather_strings`] read.
#[derive(Debug, Default)]
pub(super) struct RowStrings {
    /// The position of each selected row's string.
    codes: Vec<i64>,
    /// 0 where the selected row is NULL; empty when no row of the chunk is.
    validity: Vec<i64>,
    /// The strings of the selected rows, if they were decoded one by one. Otherwise positions are those in the decoded block.
    single: Option<Strings>,
}

impl RowStrings {
    pub fn memory_bytes(&self) -> usize {
        (self.codes.capacity() + self.validity.capacity()) * 8 + self.single.as_ref().map_or(0, Strings::memory_bytes)
    }

    /// The column of the selected rows. `block` has the strings of the decoded block.
    pub fn column<'a>(&'a self, block: &'a Strings) -> EncodedColumn<'a> {
        let Strings { bytes, ends } = self.single.as_ref().unwrap_or(block);
        EncodedColumn {
            codes: &self.codes,
            validity: (!self.validity.is_empty()).then_some(&self.validity),
            encoding: CodeEncoding::RowStrings(StringList { bytes, ends }),
        }
    }
}

impl ColumnReader {
    /// Reads the strings of `rows` (row numbers in the block).
    pub(super) fn gather_strings(&mut self, at: BlockRef<'_>, attribute: usize, rows: &[u16]) -> Result<()> {
        let has_nulls = at.chunk.attribute(attribute)?.nulls > 0;
        let chunk_rows = at.chunk.entry()?.row_range();
        let first = chunk_rows.start + at.block * BLOCK_ROWS;
        let block = first..(first + BLOCK_ROWS).min(chunk_rows.end);
        let mut gathered = std::mem::take(&mut self.row_strings);
        gathered.codes.clear();
        gathered.validity.clear();
        gathered.single = None;
        // A predicate may have decoded the block.
        let is_decoded = self.read.as_ref() == Some(&(at.chunk.number, block.clone()));
        let sparse = !is_decoded && rows.len() * SPARSE_SHARE <= block.len();
        self.set_sparse(sparse);
        if sparse {
            let mut single = Strings::default();
            for row in rows {
                let row = first + usize::from(*row);
                self.read(at.chunk, attribute, row..row + 1)?;
                gathered.codes.push(single.len() as i64);
                gathered.validity.extend(has_nulls.then(|| i64::from(!self.is_null(0))));
                single.push(self.string(0));
            }
            gathered.single = Some(single);
        } else {
            self.read(at.chunk, attribute, block)?;
            gathered.codes.extend(rows.iter().map(|row| i64::from(*row)));
            if has_nulls {
                gathered.validity.extend(rows.iter().map(|row| i64::from(!self.is_null(usize::from(*row)))));
            }
        }
        self.row_strings = gathered;
        Ok(())
    }
}
