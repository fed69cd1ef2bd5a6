//! I/O that cells served: by class of files, by relation, and service times of reads by relation.
//!
//! The sum over the classes is the sum over all files of the cluster on cells.

use super::{Chart, Group, Section};
use crate::document::{CellFile, List, Measure};
use crate::figures::time::average_wait_us;
use crate::figures::{add_each, histogram, ratio, sum};
use crate::table::{Align, Cell, Column, Table};
use crate::view::{View, qualified, top};

const ROWS: usize = 20;

/// The name of a class of files, as Oracle names file types where Oracle has the type.
pub fn file_class(class: &str) -> &'static str {
    match class {
        "table" => "Data File",
        "index" => "Index",
        "toast" => "TOAST",
        "catalog" => "Catalog",
        "sequence" => "Sequence",
        "map" => "Free Space and Visibility Map",
        "wal" => "Log File",
        "temporary" => "Temp File",
        "control" => "Control File",
        "" => "Data File (dropped or not counted)",
        _ => "Other",
    }
}

const CLASSES_EXPLAINED: &str = "Data File: tables and materialized views; Data File (dropped or not counted): relations that were dropped \
    or rewritten, and those with little I/O beyond the 2048 relations that a cell counts";

/// Why there is no I/O by class of files.
pub(super) fn no_classes(view: &View<'_>) -> String {
    if view.document.cell_io.is_empty() {
        view.missing("cell_file_stat", "no file of the cluster is on a cell")
    } else {
        view.missing("cell_file_stat", "the cells run a release that does not count I/O by file")
    }
}

pub fn classes<'a>(view: &'a View<'_>) -> impl Iterator<Item = &'a CellFile> {
    view.document.cell_files.iter().filter(|file| file.is_class == Some(true))
}

pub(super) fn files<'a>(view: &'a View<'_>) -> impl Iterator<Item = &'a CellFile> {
    view.document.cell_files.iter().filter(|file| file.is_class != Some(true))
}

fn file_bytes(file: &CellFile) -> Measure {
    sum([file.read_bytes, file.write_bytes])
}

/// Combines two histograms bucket by bucket.
fn merged(a: &[f64], b: &[f64], combine: fn(f64, f64) -> f64) -> List<f64> {
    let bucket = |buckets: &[f64], index: usize| buckets.get(index).copied().unwrap_or(0.0);
    (0..a.len().max(b.len())).map(|index| combine(bucket(a, index), bucket(b, index))).collect::<Vec<f64>>().into()
}

fn measures(file: &mut CellFile) -> [&mut Measure; 10] {
    [
        &mut file.small_reads,
        &mut file.small_read_us,
        &mut file.reads,
        &mut file.read_bytes,
        &mut file.read_us,
        &mut file.writes,
        &mut file.write_bytes,
        &mut file.write_us,
        &mut file.syncs,
        &mut file.sync_us,
    ]
}

/// The sum of several rows of files.
fn sum_files<'a>(files: impl IntoIterator<Item = &'a CellFile>) -> CellFile {
    files.into_iter().fold(CellFile::default(), |mut total, file| {
        add_each(measures(&mut total), measures(&mut file.clone()).map(|measure| *measure));
        total.histogram = merged(&total.histogram, &file.histogram, |sum, count| sum + count);
        total
    })
}

pub fn by_file_type(view: &View<'_>) -> Section {
    let columns = [
        "<Filetype Name",
        "<Database",
        "Reads: Data",
        "Reqs per sec",
        "Data per sec",
        "Writes: Data",
        "Reqs per sec",
        "Data per sec",
        "Small Read",
        "Large Read",
        "Requests",
    ];
    let line = |name: &str, file: &CellFile| {
        let large_reads = difference(file.reads, file.small_reads);
        let large_us = difference(file.read_us, file.small_read_us);
        vec![
            Cell::text(name),
            Cell::text(&*file.database),
            Cell::bytes(file.read_bytes),
            Cell::decimal(view.per_second(file.reads), 2),
            Cell::bytes(view.per_second(file.read_bytes)),
            Cell::bytes(file.write_bytes),
            Cell::decimal(view.per_second(file.writes), 2),
            Cell::bytes(view.per_second(file.write_bytes)),
            Cell::duration(average_wait_us(file.small_read_us, file.small_reads)),
            Cell::duration(average_wait_us(large_us, large_reads)),
            Cell::count(sum([file.reads, file.writes, file.syncs])),
        ]
    };
    let mut table = Table::new(&columns);
    let rows: Vec<&CellFile> = top(classes(view), usize::MAX, |file| file_bytes(file));
    if !rows.is_empty() {
        table = table
            .with_rows(rows.iter().map(|file| line(file_class(&file.class), file)))
            .with_rows([line("TOTAL:", &sum_files(rows.iter().copied()))]);
    }
    Section::new("io-file-type", Group::Io, "IOStat by Filetype summary")
        .note("counted and timed by the cells: exact by file, and therefore by database; page cache hits of the kernel are absent")
        .note("Small Read (one block) and Large Read are average service times; Requests contain syncs; ordered by (Data Read + Write) desc")
        .note(CLASSES_EXPLAINED)
        .table_or(table.without_empty_columns(), no_classes(view))
}

fn difference(a: Measure, b: Measure) -> Measure {
    Some(a? - b.unwrap_or(0.0))
}

/// The name of a relation and of the index, if the relation is one.
fn file_name(file: &CellFile) -> String {
    if file.table.is_empty() {
        return format!("file {}", file.filenode.unwrap_or_default());
    }
    let table = qualified(&file.schema, &file.table);
    match &*file.index {
        "" => table,
        index => format!("{table}: {index}"),
    }
}

/// The relations with the most read time, and the rest of all files.
fn listed<'a>(view: &'a View<'_>) -> (Vec<&'a CellFile>, CellFile) {
    let rows = top(files(view), ROWS, |file| sum([file.read_us, file.write_us]));
    let (mut other, mut sum_listed) = (sum_files(classes(view)), sum_files(rows.iter().copied()));
    for (all, listed) in measures(&mut other).into_iter().zip(measures(&mut sum_listed)) {
        *all = difference(*all, *listed).map(|rest| rest.max(0.0));
    }
    other.histogram = merged(&other.histogram, &sum_listed.histogram, |all, listed| (all - listed).max(0.0));
    (rows, other)
}

const OTHER_FILES: &str = "(other files)";

pub fn by_file(view: &View<'_>) -> Section {
    let columns = [
        "<Database",
        "<Tablespace",
        "<Filename",
        "<Filetype",
        "Reads",
        "Av Rds/s",
        "Av Rd",
        "Av Blks/Rd",
        "1-bk Rds/s",
        "Av 1-bk Rd",
        "Writes",
        "Av Writes/s",
        "Av Wr",
    ];
    let line = |name: String, class: &'static str, file: &CellFile| {
        vec![
            Cell::text(&*file.database),
            Cell::text(&*file.tablespace),
            Cell::text(name),
            Cell::text(class),
            Cell::count(file.reads),
            Cell::decimal(view.per_second(file.reads), 2),
            Cell::duration(average_wait_us(file.read_us, file.reads)),
            Cell::decimal(ratio(file.read_bytes.map(|bytes| bytes / view.document.block_bytes()), file.reads), 2),
            Cell::decimal(view.per_second(file.small_reads), 2),
            Cell::duration(average_wait_us(file.small_read_us, file.small_reads)),
            Cell::count(file.writes),
            Cell::decimal(view.per_second(file.writes), 2),
            Cell::duration(average_wait_us(file.write_us, file.writes)),
        ]
    };
    let (rows, other) = listed(view);
    let mut table = Table::new(&columns);
    if !rows.is_empty() {
        table = table
            .with_rows(rows.iter().map(|file| line(file_name(file), file_class(&file.class), file)))
            .with_rows([line(OTHER_FILES.to_owned(), "", &other)]);
    }
    Section::new("io-file", Group::Io, "File IO Stats")
        .note("counted and timed by the cells, by relation (all segments of the main fork); ordered by time of reads and writes desc")
        .note("page cache hits of the kernel and Smart Scans are absent; (other files) is the rest of all files of the cluster on cells")
        .table_or(table.without_empty_columns(), no_classes(view))
}

/// Bounds of the columns of the read histogram: 2^n microseconds.
const READ_BOUNDS: [usize; 10] = [5, 7, 8, 9, 10, 11, 12, 13, 14, 17];

/// A table with a column for each part of a histogram of service times, after other columns. The row of a histogram ends with the
/// cells of [`histogram_cells`].
pub(super) fn histogram_table(first: &[&str]) -> Table {
    let mut table = Table::new(first);
    let bounds = READ_BOUNDS.map(|exponent| format!("<{}", histogram::bound_name(exponent)));
    let rest = format!(">={}", histogram::bound_name(READ_BOUNDS[READ_BOUNDS.len() - 1]));
    table.columns.extend(bounds.into_iter().chain([rest]).map(|name| Column { name, align: Align::Right }));
    table
}

pub(super) fn histogram_cells(buckets: &[f64]) -> impl Iterator<Item = Cell> {
    let mut before = 0.0;
    let below = READ_BOUNDS.map(|exponent| histogram::below(buckets, exponent));
    below.into_iter().chain([histogram::total(buckets)]).map(move |count| {
        let part = count - before;
        before = count;
        Cell::Count(part)
    })
}

pub fn read_histogram(view: &View<'_>) -> Section {
    let mut table = histogram_table(&["<Database", "<Filename", "Reads"]);
    let line = |name: String, file: &CellFile| {
        let all = Cell::Count(histogram::total(&file.histogram));
        let mut cells = vec![Cell::text(&*file.database), Cell::text(name), all];
        cells.extend(histogram_cells(&file.histogram));
        cells
    };
    let (rows, other) = listed(view);
    let mut chart = None;
    let read: Vec<&CellFile> = rows.into_iter().filter(|file| histogram::total(&file.histogram) > 0.0).collect();
    if !read.is_empty() {
        chart = Some(Chart::Histogram {
            title: format!("Reads by service time: {}", file_name(read[0])),
            buckets: read[0].histogram.to_vec(),
        });
        table = table
            .with_rows(read.iter().map(|file| line(file_name(file), file)))
            .with_rows([line(OTHER_FILES.to_owned(), &other)]);
    }
    let section = Section::new("io-file-histogram", Group::Io, "File Read Histogram Stats")
        .note("number of single block and multiblock reads by service time in the cell; a column excludes the columns to its left")
        .table_or(table, no_classes(view));
    match chart {
        Some(chart) => section.chart(chart),
        None => section,
    }
}
