//! Joins with lookup tables: each row of the scan gets the columns of the row with the same key. Semijoins and antijoins only decide
//! whether a row is kept; a left join has an additional row of NULLs for rows without a partner.
//!
//! Rows without a partner are dropped by a condition of the plan where the kind of join allows. A row whose key occurs several times in a table is not joined here:
//! the caller returns the row, and PostgreSQL joins the row. The columns of the tables have slots, like the columns of the relation;
//! their datums are in [`Column::looked_up`], their encoded values in [`table`].

mod index;
mod table;

use crate::heap::{PageRows, Slot};
use crate::predicate::{Column, Unsupported};
use crate::value::{Value, ValueKind};
use cellar_format::wire::{self, JoinKind};
use index::{KeyIndex, NO_ROW, SEVERAL_ROWS};
use smallvec::SmallVec;
pub use table::{LookedUpCodes, TableColumn};

/// Maximum number of rows of a table; fewer than the special values of [`KeyIndex`].
const ROWS_MAX: usize = 1 << 28;
/// Maximum bytes of the datums of a column, so that offsets have 32 bits.
const DATUM_BYTES_MAX: usize = 1 << 28;

/// A column that is equal to a part of a key.
#[derive(Debug, Clone, Copy)]
pub enum KeyPart {
    /// A column of the relation.
    Column(Slot),
    /// A column of an earlier lookup table, by their positions.
    LookedUp(usize, usize),
}

/// A lookup table.
pub struct Lookup {
    pub kind: JoinKind,
    pub key: SmallVec<[KeyPart; 2]>,
    index: KeyIndex,
    pub columns: Vec<TableColumn>,
    /// The row of NULLs of a left join.
    null_row: u32,
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
        key: SmallVec<[KeyPart; 2]>,
        slots: &[Slot],
        columns: &mut [Option<Column>],
    ) -> Result<Self, Unsupported> {
        if wire.rows() > ROWS_MAX || wire.columns.iter().any(|column| column.values.len() > DATUM_BYTES_MAX) {
            return Err(Unsupported("a lookup table is too large".into()));
        }
        let mut table = Vec::with_capacity(slots.len());
        for (slot, values) in slots.iter().zip(&wire.columns) {
            let Some(Some(column)) = columns.get_mut(*slot as usize) else {
                return Err(Unsupported("a lookup table has a column without a slot".into()));
            };
            table.push(TableColumn::new(*slot, values, column, wire.kind == JoinKind::Left));
        }
        let index = KeyIndex::new(&wire.keys, wire.attributes.len());
        Ok(Self { kind: wire.kind, key, index, columns: table, null_row: wire.rows() as u32 })
    }

    /// The slots of the relation's columns that are parts of the key.
    pub fn key_slots(&self) -> impl Iterator<Item = Slot> {
        self.key.iter().filter_map(|part| match part {
            KeyPart::Column(slot) => Some(*slot),
            KeyPart::LookedUp(..) => None,
        })
    }

    /// What becomes of a row of the scan. `entry`: the row of the table with its key, [`NO_ROW`] or [`SEVERAL_ROWS`]. None: the row is
    /// dropped.
    #[inline(always)]
    fn joined(&self, entry: u32) -> Option<u32> {
        match (self.kind, entry) {
            (JoinKind::Inner | JoinKind::Semi, NO_ROW) => None,
            (JoinKind::Left, NO_ROW) => Some(self.null_row),
            (JoinKind::Semi, _) | (JoinKind::Anti, NO_ROW) => Some(0),
            (JoinKind::Anti, _) => None,
            (_, entry) => Some(entry),
        }
    }

    /// Whether a column of this kind can be equal to keys.
    pub fn has_keys_of(kind: Option<ValueKind>) -> bool {
        use ValueKind::*;
        matches!(kind, Some(Int2 | Int4 | Int8 | Date | Timestamp | Timestamptz))
    }

    /// The most bytes that a table occupies.
    pub fn bytes_for(wire: &wire::Lookup) -> usize {
        KeyIndex::bytes_for(wire.rows(), wire.attributes.len())
            + wire.columns.iter().map(table::bytes_for).sum::<usize>()
    }

    /// The column with this slot, if the table has one.
    pub fn column(&self, slot: Slot) -> Option<&TableColumn> {
        self.columns.iter().find(|column| column.slot == slot)
    }
}

impl Partners {
    /// Finds the partners of rows by their keys. `key_of` returns the value of a row in the column with a slot, by the row's position in
    /// `rows` and its number, and None if the value is unknown. Removes rows that are dropped from `rows`, and moves rows that are not
    /// joined here to `others`.
    pub fn find(
        &mut self,
        lookups: &[Lookup],
        rows: &mut Vec<u16>,
        others: &mut Vec<u16>,
        mut key_of: impl FnMut(Slot, usize, u16) -> Option<Option<i64>>,
    ) {
        self.entries.resize_with(lookups.len(), Vec::new);
        self.entries.iter_mut().for_each(Vec::clear);
        let mut kept = 0;
        'rows: for index in 0..rows.len() {
            let row = rows[index];
            let mut is_joined = true;
            for number in 0..lookups.len() {
                let lookup = &lookups[number];
                let (earlier, later) = self.entries.split_at_mut(number);
                let mut part = |part: &KeyPart| match part {
                    KeyPart::Column(slot) => key_of(*slot, index, row),
                    KeyPart::LookedUp(table, column) => {
                        let entry = *earlier.get(*table)?.get(kept)?;
                        lookups.get(*table)?.columns.get(*column)?.int(entry)
                    }
                };
                let entry = match lookup.key.as_slice() {
                    [only] => part(only).map(|key| key.map_or(NO_ROW, |key| lookup.index.row(key))),
                    parts => {
                        // NULL if a part is NULL, unknown if a part is unknown.
                        let key: Option<SmallVec<[Option<i64>; 4]>> = parts.iter().map(part).collect();
                        let key: Option<Option<SmallVec<[i64; 4]>>> = key.map(|key| key.into_iter().collect());
                        key.map(|key| key.map_or(NO_ROW, |key| lookup.index.row_of_parts(&key)))
                    }
                };
                let entries = &mut later[0];
                entries.truncate(kept);
                // The kind of join does not decide about a row whose key is unknown.
                let joined = entry.map_or(Some(SEVERAL_ROWS), |entry| lookup.joined(entry));
                let Some(entry) = joined else { continue 'rows };
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
        self.find(lookups, selected, others, |slot, _, row| {
            let column = columns.get(slot as usize)?.as_ref()?;
            match column.value(bytes, rows.locations(slot)[row as usize]) {
                Ok(Value::Int(key)) => Some(Some(key)),
                Ok(Value::Null) => Some(None),
                _ => None,
            }
        });
        self.locate(lookups, selected, rows);
    }
}
