//! Vacuum: dead rows, vacuum time, freeze age, what holds the horizon.

use super::{Group, Section};
use crate::document::TableStatistics;
use crate::figures::{percent, sum};
use crate::table::{Cell, Table};
use crate::view::{View, qualified, time_text, top};

const ROWS: usize = 15;

pub fn sections(view: &View<'_>) -> Vec<Section> {
    vec![dead_rows(view), vacuum_time(view), freeze_age(view), horizon(view)]
}

fn name(table: &TableStatistics) -> [Cell; 2] {
    [Cell::text(&*table.database), Cell::text(qualified(&table.schema, &table.name))]
}

fn dead_rows(view: &View<'_>) -> Section {
    let columns = ["<Database", "<Table", "Live Rows", "Dead Rows", "% Dead", "Vacuums", "Autovacuums", "<Last Vacuum"];
    let tables = top(view.document.tables.iter(), ROWS, |table| table.n_dead_tup);
    let table = Table::new(&columns).with_rows(tables.into_iter().map(|table| {
        let mut row = name(table).to_vec();
        row.extend([
            Cell::count(table.n_live_tup),
            Cell::count(table.n_dead_tup),
            Cell::percent(percent(table.n_dead_tup, sum([table.n_live_tup, table.n_dead_tup])), 1),
            Cell::count(table.vacuum_count),
            Cell::count(table.autovacuum_count),
            Cell::text(time_text(&table.last_vacuum)),
        ]);
        row
    }));
    Section::new("dead-rows", Group::Vacuum, "Tables by Dead Rows")
        .note("estimates of the statistics system at the end of the interval")
        .table_or(table.without_empty_columns(), "No table has dead rows.")
}

fn vacuum_time(view: &View<'_>) -> Section {
    let columns = [
        "<Database",
        "<Table",
        "Vacuum (s)",
        "Autovacuum (s)",
        "Analyze (s)",
        "Autoanalyze (s)",
        "Vacuums",
        "Analyzes",
    ];
    let time = |table: &&TableStatistics| {
        sum([table.total_vacuum_us, table.total_autovacuum_us, table.total_analyze_us, table.total_autoanalyze_us])
    };
    let counts = |table: &&TableStatistics| {
        sum([table.vacuum_count, table.autovacuum_count, table.analyze_count, table.autoanalyze_count])
    };
    let key = |table: &&TableStatistics| time(table).or_else(|| counts(table));
    let table = Table::new(&columns).with_rows(top(view.document.tables.iter(), ROWS, key).into_iter().map(|table| {
        let mut row = name(table).to_vec();
        row.extend([
            Cell::seconds(table.total_vacuum_us, 1),
            Cell::seconds(table.total_autovacuum_us, 1),
            Cell::seconds(table.total_analyze_us, 1),
            Cell::seconds(table.total_autoanalyze_us, 1),
            Cell::count(sum([table.vacuum_count, table.autovacuum_count])),
            Cell::count(sum([table.analyze_count, table.autoanalyze_count])),
        ]);
        row
    }));
    Section::new("vacuum-time", Group::Vacuum, "Tables by Vacuum Time")
        .note("times are counted by PostgreSQL 18 and newer")
        .table_or(table.without_empty_columns(), "No table was vacuumed or analyzed between the snapshots.")
}

fn freeze_age(view: &View<'_>) -> Section {
    let limit =
        view.document.setting("autovacuum_freeze_max_age").and_then(|limit| limit.end.known()?.parse::<f64>().ok());
    let limit = Some(limit.unwrap_or(200_000_000.0));
    let columns = ["<Database", "<Table", "Freeze Age (xids)", "% of autovacuum_freeze_max_age"];
    let mut table = Table::new(&columns);
    for database in top(view.document.databases.iter(), 5, |database| database.frozen_age) {
        let share = Cell::percent(percent(database.frozen_age, limit), 1);
        table.push(vec![
            Cell::text(&*database.name),
            Cell::text("(whole database)"),
            Cell::count(database.frozen_age),
            share,
        ]);
    }
    for relation in top(view.document.tables.iter(), ROWS, |table| table.frozen_age) {
        let mut row = name(relation).to_vec();
        row.extend([Cell::count(relation.frozen_age), Cell::percent(percent(relation.frozen_age, limit), 1)]);
        table.push(row);
    }
    Section::new("freeze-age", Group::Vacuum, "Freeze Age")
        .note("At 100 % an aggressive autovacuum starts; PostgreSQL refuses transactions at 2 billion")
        .table_or(table.without_empty_columns(), "Not available: the snapshots contain no freeze ages")
}

fn horizon(view: &View<'_>) -> Section {
    let table = Table::new(&["<Holder", "<Kind", "Age (xids)", "<Detail"]).with_rows(
        view.document.vacuum_horizon.iter().map(|holder| {
            vec![
                Cell::text(&*holder.holder),
                Cell::text(&*holder.kind),
                Cell::count(holder.age_xids),
                Cell::text(&*holder.detail),
            ]
        }),
    );
    Section::new("vacuum-horizon", Group::Vacuum, "What Holds the Vacuum Horizon")
        .note("VACUUM cannot remove rows that died after the oldest holder's snapshot")
        .table_or(
            table.without_empty_columns(),
            "No session, slot or prepared transaction held the horizon at the end snapshot.",
        )
}
