//! Smart Scan, storage index and compression.

use super::{Group, Section};
use crate::document::{Measure, names};
use crate::figures::smart_scan::{SmartScan, one_to};
use crate::figures::{Figure, percent};
use crate::table::{Cell, Table, bytes};
use crate::view::{View, qualified, top};

const ROWS: usize = 15;

pub fn sections(view: &View<'_>) -> Vec<Section> {
    vec![efficiency(view), volumes(view), tables(view), simulation(view)]
}

fn no_cell(view: &View<'_>) -> String {
    view.missing("cell_io_stat", "no Smart Scan ran between the snapshots; tables on a cell are eligible")
}

/// The figures of a Smart Scan, each with its definition. A misleading figure is printed with the reason.
fn efficiency(view: &View<'_>) -> Section {
    let scan = SmartScan::of(view.document);
    let mut table = Table::new(&["<Figure", "Value", "<Definition, or why the figure is not meaningful"]);
    let mut size = |name: &str, value: Measure, definition: &str| {
        if let Some(value) = value {
            table.push(vec![Cell::text(name), Cell::Bytes(value), Cell::text(definition)]);
        }
    };
    size("Transfer avoided by Smart Scan", scan.avoided_bytes(), "eligible - returned by smart scan");
    size("Filtered by offload", scan.filtered_bytes(), "eligible - saved by storage index - returned by smart scan");
    size("Disk reads saved by storage index", scan.saved_by_storage_index, "saved by storage index");
    let copies = scan.write_copies();
    if let Some(copies) = copies.value() {
        let by_interconnect = scan.avoided_bytes_by_interconnect(copies.round());
        size("Transfer avoided, by interconnect", by_interconnect, "read + write copies x written - interconnect");
    }
    let mut figure = |name: &str, figure: Figure, definition: &str, print: fn(f64) -> String| match figure {
        Figure::Value(value) => table.push(vec![Cell::text(name), Cell::Text(print(value)), Cell::text(definition)]),
        Figure::NotMeaningful(value, reason) => {
            let reason = format!("not meaningful ({}): {reason}", print(value));
            table.push(vec![Cell::text(name), Cell::text("n/m"), Cell::Text(reason)]);
        }
        Figure::Unavailable => {}
    };
    let two_digits = |value: f64| format!("{value:.2}");
    figure("Smart Scan efficiency", scan.efficiency(), "returned / (uncompressed + saved by storage index)", one_to);
    figure(
        "Compression ratio",
        scan.compression_ratio(),
        "(eligible - saved by storage index) / uncompressed",
        two_digits,
    );
    figure("Write copies", copies, "(interconnect - read + eligible - returned) / written", two_digits);
    figure("Returned per eligible", scan.returned_per_eligible(), "returned / eligible", two_digits);
    figure("Returned per interconnect", scan.returned_per_interconnect(), "returned / interconnect", two_digits);
    if let Some(percent) = scan.flash_hit_percent() {
        let definition = "flash cache read hits as % of physical read total IO requests";
        table.push(vec![Cell::text("Flash cache hit %"), Cell::Percent(percent, 1), Cell::text(definition)]);
    }
    let is_used = scan.eligible.is_some_and(|eligible| eligible > 0.0);
    let section = Section::new("smart-scan", Group::SmartScan, "Smart Scan Efficiency");
    if !is_used {
        return section.sentence(no_cell(view));
    }
    section.note("Compare several figures; each ratio shows a part. Bytes are counted by the cells").table(table)
}

/// Where the bytes of the scans went.
fn volumes(view: &View<'_>) -> Section {
    let document = view.document;
    let eligible = document.statistic(names::ELIGIBLE);
    let statistics = [
        names::ELIGIBLE,
        names::SAVED,
        names::UNCOMPRESSED,
        names::RETURNED,
        names::PASSTHRU,
        names::BALANCE_CPU,
        names::INTERCONNECT,
        names::READ_BYTES,
        names::READ_BYTES_OPTIMIZED,
        names::WRITE_BYTES,
    ];
    let table = Table::new(&["<Statistic", "Total", "per Second", "% Eligible", "Bytes"]).with_rows(
        statistics.into_iter().filter_map(|name| Some((name, document.statistic(name)?))).map(|(name, value)| {
            vec![
                Cell::text(name),
                Cell::Bytes(value),
                Cell::bytes(view.per_second(Some(value))),
                Cell::percent(percent(Some(value), eligible), 1),
                Cell::Count(value),
            ]
        }),
    );
    Section::new("smart-scan-volumes", Group::SmartScan, "Smart Scan Volumes")
        .note("% Eligible compares sizes as stored with uncompressed sizes where tables are compressed")
        .table_or(table, no_cell(view))
}

fn tables(view: &View<'_>) -> Section {
    let columns =
        ["<Database", "<Table", "<On Cell", "Sequential Scans", "Eligible", "Saved by Index", "Returned", "Size"];
    let key = |table: &&crate::document::TableStatistics| table.eligible_bytes.filter(|bytes| *bytes > 0.0);
    let table = Table::new(&columns).with_rows(top(view.document.tables.iter(), ROWS, key).into_iter().map(|table| {
        vec![
            Cell::text(&*table.database),
            Cell::text(qualified(&table.schema, &table.name)),
            Cell::text(table.on_cell.map_or("", |on_cell| if on_cell { "yes" } else { "no" })),
            Cell::count(table.seq_scan),
            Cell::bytes(table.eligible_bytes),
            Cell::bytes(table.saved_bytes),
            Cell::bytes(table.returned_bytes),
            Cell::bytes(table.size_end),
        ]
    }));
    let missing = match view.document.statistic(names::ELIGIBLE).is_some_and(|eligible| eligible > 0.0) {
        true => {
            "Not available: the repository has no bytes by table; see SQL ordered by Offload Eligible Bytes".to_owned()
        }
        false => no_cell(view),
    };
    Section::new("smart-scan-tables", Group::SmartScan, "Smart Scan by Table")
        .table_or(table.without_empty_columns(), missing)
}

/// What offloading would have saved for tables that are not on a cell.
fn simulation(view: &View<'_>) -> Section {
    let section = Section::new("offload-simulation", Group::SmartScan, "Offload Simulation");
    let eligible = view.document.statistic(names::SIMULATED_ELIGIBLE).filter(|bytes| *bytes > 0.0);
    match (eligible, view.document.statistic(names::SIMULATED_RETURNED)) {
        (Some(eligible), Some(returned)) => section
            .note("the cell's code ran in the sessions, over tables that are not on a cell; the storage index is not simulated")
            .table(Table::new(&["<Figure", "Value"]).with_rows([
                vec![Cell::text(names::SIMULATED_ELIGIBLE), Cell::Bytes(eligible)],
                vec![Cell::text(names::SIMULATED_RETURNED), Cell::Bytes(returned)],
                vec![Cell::text("Transfer that offloading would avoid"), Cell::text(bytes(eligible - returned))],
            ])),
        _ => section.sentence("Not available: no scan was simulated; set cellar.simulate_offload to on in a session"),
    }
}
