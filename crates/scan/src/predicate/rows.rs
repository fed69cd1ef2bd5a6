//! The rows that an expression is evaluated over, with access to the values of their columns.

use super::column::Column;
use super::encoded::{EncodedColumn, EncodedColumns};
use crate::heap::{MISSING, NULL, PageRows, Slot};
use crate::value::{EvalResult, Undecided, Value};

/// Rows and the values of their columns. A column is read either from its datums or from its encoded values.
#[derive(Clone, Copy)]
pub struct RowSet<'a> {
    /// Heap pages, or datums that were decoded from a compression unit. The locations in `rows` are offsets in these bytes.
    pub bytes: &'a [u8],
    pub rows: &'a PageRows,
    /// By slot.
    pub columns: &'a [Option<Column>],
    /// Whether `bytes` are heap pages, so that a row's datums are in the row's page.
    pub in_pages: bool,
    /// Columns that have no datums.
    pub encoded_columns: EncodedColumns<'a>,
}

impl<'a> RowSet<'a> {
    /// Rows whose columns all have datums.
    pub fn of_datums(bytes: &'a [u8], rows: &'a PageRows, columns: &'a [Option<Column>], in_pages: bool) -> Self {
        Self { bytes, rows, columns, in_pages, encoded_columns: EncodedColumns::default() }
    }

    /// The encoded values of a column; None: the column has datums.
    #[inline(always)]
    pub fn encoded(&self, slot: Slot) -> Option<&'a EncodedColumn<'a>> {
        self.encoded_columns.columns.get(slot as usize).and_then(Option::as_ref)
    }

    /// A column that some expression reads.
    #[inline(always)]
    pub fn column(&self, slot: Slot) -> Option<&'a Column> {
        self.columns.get(slot as usize).and_then(Option::as_ref)
    }

    /// The location of a column's datum in each row of `self.rows`.
    #[inline(always)]
    pub fn locations(&self, slot: Slot) -> &'a [u32; 1 << 16] {
        self.rows.locations(slot)
    }

    #[inline(always)]
    pub fn row(&self, row: u16) -> Row<'a> {
        Row { bytes: self.bytes, rows: Some(self.rows), columns: self.columns, row, value: None }
    }

    /// A row in which every column has this value.
    pub fn row_of<'v>(&self, value: &'v Value<'v>) -> Row<'v>
    where
        'a: 'v,
    {
        Row::of(value)
    }
}

/// One row, whose columns are read from their datums, or have a given value.
#[derive(Clone, Copy)]
pub struct Row<'a> {
    bytes: &'a [u8],
    /// None: the columns have `value`.
    rows: Option<&'a PageRows>,
    columns: &'a [Option<Column>],
    row: u16,
    value: Option<&'a Value<'a>>,
}

impl<'a> Row<'a> {
    /// A row in which every column has this value.
    pub fn of(value: &'a Value<'a>) -> Self {
        Self { bytes: &[], rows: None, columns: &[], row: 0, value: Some(value) }
    }

    pub fn value(&self, slot: Slot) -> EvalResult<'a> {
        if let Some(value) = self.value {
            return Ok(value.borrowed());
        }
        let column = self.columns.get(slot as usize).and_then(Option::as_ref).ok_or(Undecided)?;
        column.value(self.bytes, self.rows.ok_or(Undecided)?.locations(slot)[self.row as usize])
    }

    pub fn is_null(&self, slot: Slot) -> Result<bool, Undecided> {
        if let Some(value) = self.value {
            return Ok(value.is_null());
        }
        match self.rows.ok_or(Undecided)?.locations(slot)[self.row as usize] {
            NULL => Ok(true),
            MISSING => {
                let column = self.columns.get(slot as usize).and_then(Option::as_ref).ok_or(Undecided)?;
                // A missing value that cannot be decoded is still not NULL.
                Ok(matches!(column.missing, Ok(Value::Null)))
            }
            _ => Ok(false),
        }
    }
}
