//! Inner joins with lookup tables: each row of the scan gets the columns of the row with the same key.
//!
//! Rows without a partner are dropped by a condition of the plan. A row whose key occurs several times in a table is not joined here:
//! the caller returns the row, and PostgreSQL joins the row. The columns of the tables have slots, like the columns of the relation;
//! their datums are in [`Column::looked_up`], their encoded values in [`table`].

mod index;
mod table;

use crate::heap::{PageRows, Slot};
use crate::predicate::{Column, Unsupported};
use crate::value::{Value, ValueKind};
use cellar_format::wire;
use index::{KeyIndex, NO_ROW, SEVERAL_ROWS};
pub use table::{LookedUpCodes, TableColumn};

/// Maximum number of rows of a table; fewer than the special values of [`KeyIndex`].
const ROWS_MAX: usize = 1 << 28;
/// Maximum bytes of the datums of a column, so that offsets have 32 bits.
const DATUM_BYTES_MAX: usize = 1 << 28;

/// A lookup table.
pub struct Lookup {
    /// The column of the relation that is equal to the key.
    pub key: Slot,
    index: KeyIndex,
    pub columns: Vec<TableColumn>,
}

/// The rows of a lookup table that some rows of a scan are joined with.
#[derive(Debug, Default)]
pub struct Partners {
    /// For each table, the row of the table for each row of the scan.
    pub entries: Vec<Vec<u32>>,
}

impl Lookup {
    /// `slots` are the slots of the table's columns, which have an entry in `columns`.
    pub fn new(
        wire: &wire::Lookup,
        key: Slot,
        slots: &[Slot],
        columns: &mut [Option<Column>],
    ) -> Result<Self, Unsupported> {
        if wire.keys.len() > ROWS_MAX || wire.columns.iter().any(|column| column.values.len() > DATUM_BYTES_MAX) {
            return Err(Unsupported("a lookup table is too large".into()));
        }
        let mut table = Vec::with_capacity(slots.len());
        for (slot, values) in slots.iter().zip(&wire.columns) {
            let Some(Some(column)) = columns.get_mut(*slot as usize) else {
                return Err(Unsupported("a lookup table has a column without a slot".into()));
            };
            table.push(TableColumn::new(*slot, values, column));
        }
        Ok(Self { key, index: KeyIndex::new(&wire.keys), columns: table })
    }

    /// Whether a column of this kind can be equal to keys.
    pub fn has_keys_of(kind: Option<ValueKind>) -> bool {
        use ValueKind::*;
        matches!(kind, Some(Int2 | Int4 | Int8 | Date | Timestamp | Timestamptz))
    }

    /// The most bytes that a table occupies.
    pub fn bytes_for(wire: &wire::Lookup) -> usize {
        KeyIndex::bytes_for(wire.keys.len()) + wire.columns.iter().map(table::bytes_for).sum::<usize>()
    }

    /// The column with this slot, if the table has one.
    pub fn column(&self, slot: Slot) -> Option<&TableColumn> {
        self.columns.iter().find(|column| column.slot == slot)
    }
}

impl Partners {
    /// Finds the partners of rows by their keys. `key_of` returns the key of a row in the column with a slot, and None if the key is
    /// unknown. Removes rows without a partner from `rows`, and moves rows that are not joined here to `others`.
    pub fn find(
        &mut self,
        lookups: &[Lookup],
        rows: &mut Vec<u16>,
        others: &mut Vec<u16>,
        mut key_of: impl FnMut(&Lookup, usize, u16) -> Option<Option<i64>>,
    ) {
        self.entries.resize_with(lookups.len(), Vec::new);
        self.entries.iter_mut().for_each(Vec::clear);
        let mut kept = 0;
        'rows: for index in 0..rows.len() {
            let row = rows[index];
            let mut is_joined = true;
            for (lookup, entries) in lookups.iter().zip(&mut self.entries) {
                let entry = match key_of(lookup, index, row) {
                    Some(Some(key)) => lookup.index.row(key),
                    Some(None) => NO_ROW,
                    None => SEVERAL_ROWS,
                };
                entries.truncate(kept);
                if entry == NO_ROW {
                    continue 'rows;
                }
                is_joined &= entry != SEVERAL_ROWS;
                entries.push(entry);
            }
            if is_joined {
                rows[kept] = row;
                kept += 1;
            } else {
                others.push(row);
            }
        }
        rows.truncate(kept);
        self.entries.iter_mut().for_each(|entries| entries.truncate(kept));
    }

    /// Sets the locations of all columns of the tables in the joined rows.
    pub fn locate(&self, lookups: &[Lookup], joined: &[u16], rows: &mut PageRows) {
        for (lookup, entries) in lookups.iter().zip(&self.entries) {
            for column in &lookup.columns {
                let locations = rows.locations_mut(column.slot);
                for (row, entry) in joined.iter().zip(entries) {
                    locations[*row as usize] = column.locations[*entry as usize];
                }
            }
        }
    }

    /// [`Self::find`] and [`Self::locate`] for rows whose keys have datums in `bytes`.
    pub fn join(
        &mut self,
        lookups: &[Lookup],
        bytes: &[u8],
        columns: &[Option<Column>],
        rows: &mut PageRows,
        selected: &mut Vec<u16>,
        others: &mut Vec<u16>,
    ) {
        self.find(lookups, selected, others, |lookup, _, row| {
            let column = columns.get(lookup.key as usize)?.as_ref()?;
            match column.value(bytes, rows.locations(lookup.key)[row as usize]) {
                Ok(Value::Int(key)) => Some(Some(key)),
                Ok(Value::Null) => Some(None),
                _ => None,
            }
        });
        self.locate(lookups, selected, rows);
    }
}
