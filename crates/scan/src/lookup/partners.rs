//! The partners of a scan's rows in lookup tables, a run of joined rows at a time.
//!
//! A joined row is a row of the scan with one row of each table. A row of the scan with several partners becomes several joined rows,
//! which are aggregated together or not at all: if the cell cannot aggregate one of them, the row of the scan is returned, and PostgreSQL
//! joins it with all its partners. Rows with more than [`COMBINATIONS_MAX`] combinations are returned, too.

use super::index::NO_ROW;
use super::{JoinPlan, KeyPart, Lookup};
use crate::aggregate::{Aggregator, RUN_ROWS};
use crate::batch::ResultWriter;
use crate::heap::{PageRows, Slot};
use crate::predicate::{Column, FALSE, RowSet, TRUE, UNDECIDED};
use crate::value::Value;
use cellar_format::stats::ScanStats;
use cellar_format::wire::JoinKind;
use smallvec::SmallVec;

/// The most combinations of partners that a row may have here: they must fit into one run of the aggregation.
pub const COMBINATIONS_MAX: usize = RUN_ROWS;
/// A row for which more partners are tried is returned: a scan can be cancelled only between rows.
const VISITS_MAX: usize = 8 * COMBINATIONS_MAX;
/// The first row number of joined rows in [`PageRows`] if some row has several partners. Greater than the number of any row of a scan: a
/// run of pages has fewer line pointers.
const FIRST_NUMBER: u16 = 1 << 15;

/// Joined rows.
#[derive(Debug, Default)]
pub struct Partners {
    /// The rows of the scan that are joined.
    pub rows: Vec<u16>,
    /// For each joined row, the position of its row of the scan in `rows`; ascending.
    pub sources: Vec<u16>,
    /// For each table, the row of the table in each joined row.
    pub entries: Vec<Vec<u32>>,
    /// The numbers of the joined rows in [`PageRows`]; see [`Self::locate`].
    pub numbers: Vec<u16>,
}

/// What becomes of a row of the scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Joined,
    Dropped,
    /// A key is unknown, or there are too many combinations.
    Returned,
}

/// The result of [`Partners::test`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tested {
    Unchanged,
    /// Some joined rows were dropped: the others have to be located again.
    Dropped,
    /// Datums have to decide.
    Undecided,
}

/// Returns the value of a column of the relation: None if the value is unknown, Some(None) for NULL.
type KeyOf<'a> = dyn FnMut(Slot) -> Option<Option<i64>> + 'a;

impl Partners {
    /// Finds the partners of rows from position `from` of `rows` on, until a run is full. `key_of` returns the value of a row in the column
    /// with a slot, by the row's position in `rows` and its number, as [`KeyOf`]. Appends rows that are not joined here to `others`. Returns
    /// the position of the first row that was not read.
    pub fn find(
        &mut self,
        lookups: &[Lookup],
        rows: &[u16],
        from: usize,
        others: &mut Vec<u16>,
        mut key_of: impl FnMut(Slot, usize, u16) -> Option<Option<i64>>,
    ) -> usize {
        self.entries.resize_with(lookups.len(), Vec::new);
        self.rows.clear();
        self.sources.clear();
        self.truncate(0);
        for (position, row) in rows.iter().enumerate().skip(from) {
            let before = self.sources.len();
            if before == RUN_ROWS {
                return position;
            }
            let mut key_of = |slot| key_of(slot, position, *row);
            let outcome = match self.join_single(lookups, before, &mut key_of) {
                Some(outcome) => outcome,
                None => {
                    self.truncate(before);
                    self.join_several(lookups, &mut SmallVec::new(), &mut 0, &mut key_of)
                }
            };
            let added = self.added(before);
            match outcome {
                Outcome::Joined if before + added > RUN_ROWS && before > 0 => {
                    self.truncate(before);
                    return position;
                }
                Outcome::Joined if added <= COMBINATIONS_MAX => {
                    let source = self.rows.len() as u16;
                    self.sources.resize(before + added, source);
                    self.rows.push(*row);
                    continue;
                }
                Outcome::Joined | Outcome::Returned => others.push(*row),
                Outcome::Dropped => {}
            }
            self.truncate(before);
        }
        rows.len()
    }

    /// Joins a row that has one partner in each table. None: some table has several.
    #[inline(always)]
    fn join_single(
        &mut self,
        lookups: &[Lookup],
        before: usize,
        key_of: &mut impl FnMut(Slot) -> Option<Option<i64>>,
    ) -> Option<Outcome> {
        for (number, lookup) in lookups.iter().enumerate() {
            let (earlier, later) = self.entries.split_at_mut(number);
            let entry = lookup.entry(lookups, |table| earlier.get(table)?.get(before).copied(), key_of);
            match lookup.first(entry) {
                Err(outcome) => return Some(outcome),
                Ok(first) if lookup.index.next(first) != NO_ROW => return None,
                Ok(first) => later[0].push(first),
            }
        }
        Some(Outcome::Joined)
    }

    /// Appends all combinations of a row's partners in the tables after those of `prefix`, which has the row's partners in the first tables.
    /// `visits` counts the partners, also those that have none in a later table.
    #[inline(never)]
    fn join_several(
        &mut self,
        lookups: &[Lookup],
        prefix: &mut SmallVec<[u32; 8]>,
        visits: &mut usize,
        key_of: &mut KeyOf<'_>,
    ) -> Outcome {
        let Some(lookup) = lookups.get(prefix.len()) else {
            self.entries.iter_mut().zip(prefix.iter()).for_each(|(entries, entry)| entries.push(*entry));
            return Outcome::Joined;
        };
        let entry = lookup.entry(lookups, |table| prefix.get(table).copied(), key_of);
        let mut entry = match lookup.first(entry) {
            Ok(first) => first,
            Err(outcome) => return outcome,
        };
        let before = self.entries[0].len();
        let mut outcome = Outcome::Dropped;
        while entry != NO_ROW {
            prefix.push(entry);
            *visits += 1;
            let found = self.join_several(lookups, prefix, visits, key_of);
            prefix.pop();
            match found {
                Outcome::Joined => outcome = Outcome::Joined,
                Outcome::Dropped => {}
                Outcome::Returned => return Outcome::Returned,
            }
            if self.entries[0].len() - before > COMBINATIONS_MAX || *visits > VISITS_MAX {
                return Outcome::Returned;
            }
            entry = lookup.index.next(entry);
        }
        outcome
    }

    /// The joined rows of the row that is being joined, after `before` others.
    fn added(&self, before: usize) -> usize {
        self.entries.first().map_or(0, Vec::len) - before
    }

    fn truncate(&mut self, joined: usize) {
        self.entries.iter_mut().for_each(|entries| entries.truncate(joined));
    }

    /// Whether each row of the scan has one joined row.
    pub fn are_single(&self) -> bool {
        self.rows.len() == self.sources.len()
    }

    /// Sets the locations of the tables' columns in the joined rows, whose row numbers are then in [`Self::numbers`]. If some row has several
    /// partners, the joined rows have own numbers and the locations of the relation's columns are copied.
    pub fn locate(&mut self, plan: JoinPlan<'_>, rows: &mut PageRows) {
        self.numbers.clear();
        if self.are_single() {
            self.numbers.extend_from_slice(&self.rows);
        } else {
            self.numbers.extend(FIRST_NUMBER..FIRST_NUMBER + self.sources.len() as u16);
            for slot in plan.slots {
                let locations = rows.locations_mut(*slot);
                for (number, source) in self.numbers.iter().zip(&self.sources) {
                    locations[*number as usize] = locations[self.rows[*source as usize] as usize];
                }
            }
        }
        for (lookup, entries) in plan.lookups.iter().zip(&self.entries) {
            for column in &lookup.columns {
                let locations = rows.locations_mut(column.slot);
                for (number, entry) in self.numbers.iter().zip(entries) {
                    locations[*number as usize] = column.locations[*entry as usize];
                }
            }
        }
    }

    /// Finds the partners of `selected` by datums in `bytes`, and adds the joined rows to groups. The rows that the cell does not aggregate
    /// stay selected, in ascending order. `in_pages`: see [`RowSet`].
    #[expect(clippy::too_many_arguments, reason = "the parts of two scanners")]
    pub fn aggregate(
        &mut self,
        plan: JoinPlan<'_>,
        aggregator: &mut Aggregator,
        bytes: &[u8],
        in_pages: bool,
        rows: &mut PageRows,
        selected: &mut Vec<u16>,
        out: &mut ResultWriter,
        stats: &mut ScanStats,
    ) {
        let mut others = Vec::new();
        let mut from = 0;
        while from < selected.len() {
            from = self.find(plan.lookups, selected, from, &mut others, |slot, _, row| {
                key_of_datum(plan.columns.get(slot as usize)?.as_ref()?, bytes, rows.locations(slot)[row as usize])
            });
            self.locate(plan, rows);
            let tested = self.test(plan, RowSet::of_datums(bytes, rows, plan.columns, in_pages), Some(&mut others));
            if tested == Tested::Dropped {
                self.locate(plan, rows);
            }
            let rows = RowSet::of_datums(bytes, rows, plan.columns, in_pages);
            self.add_to(plan, aggregator, rows, &mut others, out, stats);
        }
        others.sort_unstable();
        *selected = others;
    }

    /// Drops joined rows for which the conditions of the aggregation do not hold. Rows of the scan for which a condition is undecided are moved
    /// to `others`; without `others`, nothing is dropped then.
    pub fn test(&mut self, plan: JoinPlan<'_>, rows: RowSet<'_>, others: Option<&mut Vec<u16>>) -> Tested {
        if !plan.aggregation.has_conditions() {
            return Tested::Unchanged;
        }
        let mut truths = plan.aggregation.test_conditions(rows, &self.numbers);
        if truths.contains(&UNDECIDED) {
            let Some(others) = others else { return Tested::Undecided };
            let mut rest = truths.as_mut_slice();
            for same in self.sources.chunk_by(|one, other| one == other) {
                let (joined, later) = rest.split_at_mut(same.len());
                if joined.contains(&UNDECIDED) {
                    joined.fill(FALSE);
                    others.push(self.rows[same[0] as usize]);
                }
                rest = later;
            }
        }
        if !truths.contains(&FALSE) {
            return Tested::Unchanged;
        }
        self.retain(&truths);
        Tested::Dropped
    }

    /// Keeps the joined rows whose truth is [`TRUE`].
    fn retain(&mut self, truths: &[u8]) {
        let kept = |position: &usize| truths[*position] == TRUE;
        for entries in &mut self.entries {
            let mut positions = 0..;
            entries.retain(|_| positions.next().is_some_and(|position| kept(&position)));
        }
        let (mut rows, mut sources) = (Vec::with_capacity(self.rows.len()), Vec::with_capacity(self.sources.len()));
        let mut last = None;
        for source in (0..self.sources.len()).filter(kept).map(|position| self.sources[position]) {
            if last.replace(source) != Some(source) {
                rows.push(self.rows[source as usize]);
            }
            sources.push((rows.len() - 1) as u16);
        }
        (self.rows, self.sources) = (rows, sources);
    }

    /// Adds the joined rows, which are located, to groups. Appends the rows of the scan that the aggregation rejects to `others`.
    pub fn add_to(
        &mut self,
        plan: JoinPlan<'_>,
        aggregator: &mut Aggregator,
        rows: RowSet<'_>,
        others: &mut Vec<u16>,
        out: &mut ResultWriter,
        stats: &mut ScanStats,
    ) {
        let sources = if self.are_single() { None } else { Some(self.sources.as_slice()) };
        aggregator.add(plan.aggregation, rows, &mut self.numbers, sources, out, stats);
        for number in &self.numbers {
            let row = match sources {
                None => *number,
                Some(sources) => self.rows[sources[(*number - FIRST_NUMBER) as usize] as usize],
            };
            if others.last() != Some(&row) {
                others.push(row);
            }
        }
    }
}

impl Lookup {
    /// The first row with the key of a row of the scan, or [`NO_ROW`]. `entry_of` returns the row's partner in an earlier table. None: the key
    /// is unknown.
    #[inline(always)]
    fn entry(
        &self,
        lookups: &[Lookup],
        entry_of: impl Fn(usize) -> Option<u32>,
        key_of: &mut (impl FnMut(Slot) -> Option<Option<i64>> + ?Sized),
    ) -> Option<u32> {
        let mut part = |part: &KeyPart| match part {
            KeyPart::Column(slot) => key_of(*slot),
            KeyPart::LookedUp(table, column) => lookups.get(*table)?.columns.get(*column)?.int(entry_of(*table)?),
        };
        let row = match self.key.as_slice() {
            [only] => part(only)?.map_or(NO_ROW, |key| self.index.row(key)),
            parts => {
                // NULL if a part is NULL, unknown if a part is unknown.
                let key: Option<SmallVec<[Option<i64>; 4]>> = parts.iter().map(&mut part).collect();
                let key: Option<SmallVec<[i64; 4]>> = key?.into_iter().collect();
                key.map_or(NO_ROW, |key| self.index.row_of_parts(&key))
            }
        };
        match &self.compared {
            Some(compared) if row != NO_ROW => {
                let value = part(&compared.part)?;
                Some(if value.is_some_and(|value| compared.holds(value, row)) { row } else { NO_ROW })
            }
            _ => Some(row),
        }
    }

    /// The first partner of a row of the scan, by the result of [`Self::entry`], or what becomes of a row without partners.
    #[inline(always)]
    fn first(&self, entry: Option<u32>) -> Result<u32, Outcome> {
        match (self.kind, entry) {
            // The kind of join does not decide about a row whose key is unknown.
            (_, None) => Err(Outcome::Returned),
            (JoinKind::Inner | JoinKind::Semi, Some(NO_ROW)) => Err(Outcome::Dropped),
            (JoinKind::Left, Some(NO_ROW)) => Ok(self.null_row),
            (JoinKind::Semi, _) | (JoinKind::Anti, Some(NO_ROW)) => Ok(0),
            (JoinKind::Anti, _) => Err(Outcome::Dropped),
            (_, Some(entry)) => Ok(entry),
        }
    }
}

/// The value of a datum, as [`KeyOf`].
fn key_of_datum(column: &Column, bytes: &[u8], location: u32) -> Option<Option<i64>> {
    match column.value(bytes, location) {
        Ok(Value::Int(key)) => Some(Some(key)),
        Ok(Value::Null) => Some(None),
        _ => None,
    }
}
