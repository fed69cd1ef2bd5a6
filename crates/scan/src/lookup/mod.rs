//! Joins of the scan's rows with lookup tables. The rows of a lookup table with the same key as a row of the scan are its partners.
//!
//! - An inner join adds the columns of each partner. A left join also keeps rows without a partner, with NULLs for these columns.
//! - Semijoins and antijoins only decide whether a row is kept. They may also compare the row with its partners.
//!
//! A condition of the plan drops rows without a partner, unless the join keeps such rows. [`partners`] finds the partners of the
//! remaining rows. The columns of lookup tables have slots, like the columns of the relation. Their datums are in
//! [`Column::looked_up`], and their encoded values in [`table`].

mod compared;
mod index;
mod partners;
mod table;

use crate::aggregate::AggregationPlan;
use crate::heap::Slot;
use crate::predicate::{Column, Unsupported};
use crate::value::ValueKind;
use cellar_format::wire::{self, JoinKind};
use compared::Compared;
use index::KeyIndex;
pub use partners::{Partners, Tested};
use smallvec::SmallVec;
pub use table::{EncodedBuffer, TableColumn};

/// Maximum number of rows of a table; less than `NO_ROW` of [`index`].
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
    /// The parts that are equal.
    key: SmallVec<[KeyPart; 2]>,
    /// The last part on the wire, if it is compared in another way.
    compared: Option<Compared>,
    index: KeyIndex,
    pub columns: Vec<TableColumn>,
    /// The row of NULLs of a left join.
    null_row: u32,
}

/// The joins and the aggregation of a plan.
#[derive(Clone, Copy)]
pub struct JoinPlan<'a> {
    pub lookups: &'a [Lookup],
    /// The columns of the relation that the aggregation reads.
    pub slots: &'a [Slot],
    /// By slot.
    pub columns: &'a [Option<Column>],
    pub aggregation: &'a AggregationPlan,
}

impl Lookup {
    /// `slots` are the slots of the table's columns, which have an entry in `columns`. `key` has a part for each attribute of `wire`.
    pub fn new(
        wire: &wire::Lookup,
        mut key: SmallVec<[KeyPart; 2]>,
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
        let joins = matches!(wire.kind, JoinKind::Inner | JoinKind::Left);
        let parts = wire.attributes.len();
        let (index, compared) = match wire.comparison.filter(|_| parts > 1).zip(key.last().copied()) {
            None => (KeyIndex::new(&wire.keys, parts, joins), None),
            Some((comparison, part)) => {
                key.pop();
                let equal = wire.keys.chunks_exact(parts).flat_map(|key| &key[..parts - 1]).copied();
                let index = KeyIndex::new(&equal.collect::<Vec<_>>(), parts - 1, false);
                let compared = Compared::new(comparison, part, &wire.keys, parts, &index);
                (index, Some(compared))
            }
        };
        Ok(Self { kind: wire.kind, key, compared, index, columns: table, null_row: wire.rows() as u32 })
    }

    /// The slots of the relation's columns that are parts of the key.
    pub fn key_slots(&self) -> impl Iterator<Item = Slot> {
        let compared = self.compared.iter().map(|compared| &compared.part);
        self.key.iter().chain(compared).filter_map(|part| match part {
            KeyPart::Column(slot) => Some(*slot),
            KeyPart::LookedUp(..) => None,
        })
    }

    /// Whether a column of this kind can be equal to keys.
    pub fn has_keys_of(kind: Option<ValueKind>) -> bool {
        use ValueKind::*;
        matches!(kind, Some(Int2 | Int4 | Int8 | Date | Timestamp | Timestamptz))
    }

    /// The most bytes that a table occupies.
    pub fn bytes_for(wire: &wire::Lookup) -> usize {
        let compared = usize::from(wire.comparison.is_some());
        KeyIndex::bytes_for(wire.rows(), wire.attributes.len() - compared)
            + compared * Compared::bytes_for(wire.rows())
            + wire.columns.iter().map(table::bytes_for).sum::<usize>()
    }

    /// The column with this slot, if the table has one.
    pub fn column(&self, slot: Slot) -> Option<&TableColumn> {
        self.columns.iter().find(|column| column.slot == slot)
    }
}
