//! Instance activity: every statistic with its rate per second and per transaction.

use super::{Group, Section};
use crate::document::{Statistic, names};
use crate::figures::ratio;
use crate::table::{Cell, Table};
use crate::view::View;

/// Statistics of the short list.
const KEY_STATISTICS: [&str; 13] = [
    names::BLOCK_CHANGES,
    names::EXECUTIONS,
    names::LOGONS,
    names::PARSES,
    names::PHYSICAL_READS,
    names::PHYSICAL_WRITES,
    names::REDO_SIZE,
    names::LOGICAL_READS,
    names::TEMP_BYTES,
    names::USER_CALLS,
    names::COMMITS,
    names::ROLLBACKS,
    names::ELIGIBLE,
];

pub fn sections(view: &View<'_>) -> Vec<Section> {
    let mut statistics: Vec<&Statistic> = view.document.statistics.iter().collect();
    statistics.sort_by_key(|statistic| statistic.name.to_lowercase());
    let key = statistics.iter().copied().filter(|statistic| KEY_STATISTICS.contains(&&*statistic.name));
    let section = |id, title, table: Table| {
        Section::new(id, Group::Activity, title)
            .note("Times in microseconds, sizes in bytes")
            .table_or(table, "Not available: the snapshots contain no statistics")
    };
    vec![
        section("key-activity", "Key Instance Activity Stats", table(view, key)),
        section("activity", "Instance Activity Stats", table(view, statistics.iter().copied())),
    ]
}

fn table<'a>(view: &View<'_>, statistics: impl Iterator<Item = &'a Statistic>) -> Table {
    let table = Table::new(&["<Statistic", "Total", "per Second", "per Trans", "<How"]);
    table
        .with_rows(statistics.map(|statistic| {
            vec![
                Cell::text(&*statistic.name),
                Cell::count(statistic.value),
                Cell::decimal(view.per_second(statistic.value), 2),
                Cell::decimal(ratio(statistic.value, view.transactions), 2),
                Cell::how(statistic.how, None),
            ]
        }))
        .without_empty_columns()
}
