//! Operations of the cells on their disks: Oracle's statistics of cell disks, told apart by type.

use super::{Chart, Group, Section, files};
use crate::document::{CellDisk, Measure};
use crate::figures::time::average_wait_us;
use crate::figures::{MEGABYTE, add_each, histogram, ratio};
use crate::table::{Cell, Table};
use crate::view::{View, top};
use std::collections::BTreeMap;

const ROWS: usize = 60;
const CHARTS: usize = 4;

pub fn sections(view: &View<'_>) -> Vec<Section> {
    if view.document.cell_disks.is_empty() {
        let missing = match view.document.cell_io.is_empty() {
            true => view.missing("cell_disk_stat", "no cell stores files of the cluster, or none used its disks"),
            false => view.missing("cell_disk_stat", "the AWR snapshots do not contain I/O by disk"),
        };
        return vec![Section::new("cell-disk-io", Group::Cells, "Cell Disk I/O").sentence(missing)];
    }
    vec![by_disk(view), latencies(view)]
}

/// What the cells did on one disk.
#[derive(Clone, Copy, Default)]
struct Usage {
    reads: Measure,
    read_bytes: Measure,
    read_us: Measure,
    writes: Measure,
    write_bytes: Measure,
    write_us: Measure,
    syncs: Measure,
    sync_us: Measure,
    /// Of all operations.
    time_us: Measure,
    io_errors: Measure,
    no_space_errors: Measure,
}

impl Usage {
    fn add(&mut self, disk: &CellDisk) {
        let figures = [disk.operations, disk.bytes, disk.time_us];
        match &*disk.operation {
            "read" => add_each([&mut self.reads, &mut self.read_bytes, &mut self.read_us], figures),
            "write" => add_each([&mut self.writes, &mut self.write_bytes, &mut self.write_us], figures),
            "sync" => add_each([&mut self.syncs, &mut self.sync_us], [disk.operations, disk.time_us]),
            _ => {}
        }
        add_each(
            [&mut self.time_us, &mut self.io_errors, &mut self.no_space_errors],
            [disk.time_us, disk.io_errors.or(Some(0.0)), disk.no_space_errors.or(Some(0.0))],
        );
    }
}

fn by_disk(view: &View<'_>) -> Section {
    let columns = [
        "<Disk Type",
        "<Cell Name",
        "<Disk",
        "Reads/s",
        "Read MB/s",
        "Avg Read",
        "Writes/s",
        "Write MB/s",
        "Avg Write",
        "Syncs/s",
        "Avg Sync",
        "Avg Active",
        "IO Errors",
        "No Space",
    ];
    let line = |names: [&str; 3], usage: &Usage| {
        let rate = |operations: Measure| Cell::decimal(view.per_second(operations.or(Some(0.0))), 1);
        let megabytes = |bytes: Measure| Cell::decimal(view.per_second(bytes.or(Some(0.0))).map(|b| b / MEGABYTE), 2);
        let mut cells = names.map(Cell::text).to_vec();
        cells.extend([
            rate(usage.reads),
            megabytes(usage.read_bytes),
            Cell::duration(average_wait_us(usage.read_us, usage.reads)),
            rate(usage.writes),
            megabytes(usage.write_bytes),
            Cell::duration(average_wait_us(usage.write_us, usage.writes)),
            rate(usage.syncs),
            Cell::duration(average_wait_us(usage.sync_us, usage.syncs)),
            Cell::decimal(ratio(usage.time_us, view.document.elapsed_us), 2),
            Cell::count(usage.io_errors),
            Cell::count(usage.no_space_errors),
        ]);
        cells
    };
    let mut disks: BTreeMap<&str, BTreeMap<[&str; 3], Usage>> = BTreeMap::new();
    let mut totals: BTreeMap<&str, Usage> = BTreeMap::new();
    for disk in &view.document.cell_disks {
        let of_type = disks.entry(&*disk.disk_type).or_default();
        of_type.entry([&*disk.disk_type, &*disk.cell, &*disk.disk]).or_default().add(disk);
        totals.entry(&*disk.disk_type).or_default().add(disk);
    }
    let mut table = Table::new(&columns);
    for (of_type, (disk_type, total)) in disks.values().zip(&totals) {
        let listed = top(of_type, ROWS, |(_, usage)| usage.time_us);
        table = table.with_rows(listed.into_iter().map(|(names, usage)| line(*names, usage)));
        if of_type.len() > 1 {
            table = table.with_rows([line([*disk_type, &format!("Total ({})", of_type.len()), ""], total)]);
        }
    }
    Section::new("cell-disk-io", Group::Cells, "Cell Disk I/O")
        .note("counted and timed by the cells, of all clusters on them. A cell disk stores files, a flash disk is a cache or a log; the operating system may answer reads, and keep writes until a sync")
        .note("Avg Active: operations in progress at a time, on average; the utilisation of a device is not known to a cell")
        .table(table)
}

/// Histograms of reads, writes and syncs by disk, and pictures of the most time.
fn latencies(view: &View<'_>) -> Section {
    let disks = view.document.cell_disks.iter().filter(|disk| histogram::total(&disk.histogram) > 0.0);
    let listed = top(disks, ROWS, |disk| disk.time_us);
    let charts = listed.iter().take(CHARTS).map(|disk| Chart::Histogram {
        title: format!("{} of {} {} of {}", disk.operation, disk.disk_type, disk.disk, disk.cell),
        buckets: disk.histogram.to_vec(),
    });
    let charts: Vec<Chart> = charts.collect();
    let columns = ["<Disk Type", "<Cell Name", "<Disk", "<Operation", "Operations"];
    let table = files::histogram_table(&columns).with_rows(listed.into_iter().map(|disk| {
        let mut cells =
            [&disk.disk_type, &disk.cell, &disk.disk, &disk.operation].map(|text| Cell::text(&**text)).to_vec();
        cells.push(Cell::Count(histogram::total(&disk.histogram)));
        cells.extend(files::histogram_cells(&disk.histogram));
        cells
    }));
    let section = Section::new("cell-disk-histogram", Group::Cells, "Cell Disk Latency Histogram")
        .note("number of operations by duration, ordered by time desc; a column excludes the columns to its left")
        .table_or(table, "No operation of a disk has a histogram.");
    charts.into_iter().fold(section, Section::chart)
}
