//! Statistics of the operating system.

use super::{Group, Section};
use crate::figures::ratio;
use crate::table::{Cell, Table};
use crate::view::{View, time_text};

pub fn sections(view: &View<'_>) -> Vec<Section> {
    vec![statistics(view), detail(view), databases(view)]
}

fn statistics(view: &View<'_>) -> Section {
    let table = Table::new(&["<Statistic", "Value", "End Value", "<Unit"]).with_rows(view.document.os.iter().map(
        |statistic| {
            let digits = |value: f64| {
                if value.fract() == 0.0 || value >= 1e6 { Cell::Count(value) } else { Cell::Decimal(value, 2) }
            };
            let begin = statistic.begin.or(statistic.value);
            let end = statistic.end.filter(|end| Some(*end) != begin);
            vec![
                Cell::text(&*statistic.name),
                begin.map_or(Cell::Absent, digits),
                end.map_or(Cell::Absent, digits),
                Cell::text(&*statistic.unit),
            ]
        },
    ));
    Section::new("os-statistics", Group::Waits, "Operating System Statistics")
        .note("*TIME statistic values are diffed.  All others display actual values.  End Value is displayed if different")
        .table_or(table, view.missing("os_stat", "statistics of the host need /proc, which only Linux has"))
}

/// DB time of each interval of the report.
fn detail(view: &View<'_>) -> Section {
    let table = Table::new(&["Snap Id", "<Snap Time", "Elapsed (s)", "DB Time (s)", "Avg Active Sessions"]).with_rows(
        view.document.snapshots.iter().map(|snapshot| {
            vec![
                Cell::integer(snapshot.snap_id),
                Cell::text(time_text(&snapshot.time)),
                Cell::seconds(snapshot.elapsed_us, 1),
                Cell::seconds(snapshot.db_time_us, 1),
                Cell::decimal(ratio(snapshot.db_time_us, snapshot.elapsed_us), 2),
            ]
        }),
    );
    Section::new("snapshots", Group::Waits, "Snapshots of the Report")
        .table_or(table, "Not available: the document lists no snapshots")
}

fn databases(view: &View<'_>) -> Section {
    let columns = [
        "<Database",
        "Active (s)",
        "% DB time",
        "CPU (s)",
        "Commits",
        "Rollbacks",
        "Gets",
        "Reads",
        "Read Time (s)",
        "Temp",
        "Deadlocks",
        "Idle in txn (s)",
        "Size",
        "Growth",
    ];
    let table = Table::new(&columns).with_rows(view.document.databases.iter().map(|database| {
        let growth = database.size_end.zip(database.size_begin).map(|(end, begin)| end - begin);
        vec![
            Cell::text(database.name.known().unwrap_or("(shared)")),
            Cell::seconds(database.active_us, 1),
            Cell::percent(view.model.percent_of_db_time(database.active_us), 1),
            Cell::seconds(database.cpu_us, 1),
            Cell::count(database.xact_commit),
            Cell::count(database.xact_rollback),
            Cell::count(crate::figures::sum([database.blks_hit, database.blks_read])),
            Cell::count(database.blks_read),
            Cell::seconds(database.blk_read_us, 1),
            Cell::bytes(database.temp_bytes),
            Cell::count(database.deadlocks),
            Cell::seconds(database.idle_in_transaction_us, 1),
            Cell::bytes(database.size_end),
            Cell::bytes(growth),
        ]
    }));
    Section::new("databases", Group::Waits, "Database Statistics")
        .note("counted by pg_stat_database; Read Time needs track_io_timing")
        .table_or(table.without_empty_columns(), "Not available: the snapshots contain no databases")
}
