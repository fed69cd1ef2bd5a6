//! The head of a report, from the tables of the first sections, by the names of their columns.

use super::model::{Boundary, Header, Instance, Kind, Report, Row, Section, Table, same_name};
use super::value::{Unit, parse};

/// Sections in which the head is looked for.
const SECTIONS: usize = 12;

pub(super) fn read(report: &Report) -> Header {
    let mut header = Header::default();
    for table in report.sections().take(SECTIONS).flat_map(Section::tables) {
        database(&mut header, table);
        host(&mut header, table);
        snapshots(&mut header, table, report.decimal_comma);
    }
    if report.kind != Kind::Pdb {
        // A report about a root lists all of its containers.
        header.container.clear();
    }
    if report.kind == Kind::Global {
        for table in report.tables().take(40) {
            operating_systems(&mut header, table);
        }
    }
    let block = report.section("Cache Sizes").and_then(|section| {
        let rows = section.tables().flat_map(Table::rows);
        rows.flat_map(|row| row.cells().zip(row.cells().skip(1)).collect::<Vec<_>>())
            .find(|(label, _)| same_name(label, "Std Block Size"))
            .map(|(_, size)| size)
    });
    if let Some(size) = block.and_then(|size| parse(size, Unit::Data, report.decimal_comma)) {
        header.block_bytes = Some(size.number);
    }
    header
}

/// Sets a text that is not known yet from a column.
fn text(known: &mut String, table: Table<'_>, row: Row<'_>, names: &[&str]) {
    if known.is_empty()
        && let Some(column) = table.column(names)
    {
        row.text(column).clone_into(known);
    }
}

fn integer(table: Table<'_>, row: Row<'_>, names: &[&str]) -> Option<u64> {
    let is_separator = |c: char| c.is_whitespace() || matches!(c, ',' | '.' | '\'' | '\u{2019}');
    row.text(table.column(names)?).replace(is_separator, "").parse().ok()
}

fn yes(table: Table<'_>, row: Row<'_>, name: &str) -> Option<bool> {
    match row.text(table.column(&[name])?).to_ascii_uppercase().as_str() {
        "YES" | "Y" => Some(true),
        "NO" | "N" => Some(false),
        _ => None,
    }
}

/// The instance of a report about one instance, or the instance of a row.
fn instance<'a>(header: &'a mut Header, number: Option<u64>, name: &str) -> &'a mut Instance {
    let found = header.instances.iter().position(|instance| {
        (number.is_some() && instance.number == number) || (!name.is_empty() && instance.name == name)
    });
    let index = found.unwrap_or_else(|| {
        // A row without number and name describes the one instance.
        if header.instances.is_empty() || number.is_some() || !name.is_empty() {
            header.instances.push(Instance { number, name: name.to_owned(), ..Instance::default() });
        }
        header.instances.len() - 1
    });
    &mut header.instances[index]
}

fn database(header: &mut Header, table: Table<'_>) {
    const DB_ID: [&str; 2] = ["DB Id", "Database Id"];
    let has_database = table.column(&DB_ID).is_some();
    let named = table.column(&["Instance", "Inst Name"]).is_some()
        && table.column(&["Inst Num", "I#", "Startup Time"]).is_some();
    for row in table.rows().take(64) {
        if has_database {
            text(&mut header.db_name, table, row, &["DB Name", "Database Name", "Name"]);
            header.db_id = header.db_id.or_else(|| integer(table, row, &DB_ID));
            text(&mut header.unique_name, table, row, &["Unique Name"]);
            text(&mut header.role, table, row, &["Role", "DB Role"]);
            text(&mut header.edition, table, row, &["Edition"]);
            header.rac = header.rac.or_else(|| yes(table, row, "RAC")).or_else(|| yes(table, row, "Cluster"));
            header.cdb = header.cdb.or_else(|| yes(table, row, "CDB"));
            header.block_bytes = header.block_bytes.or_else(|| row.named(&["Block Size"]));
            header.begin.snap_id = header.begin.snap_id.or_else(|| integer(table, row, &["Snapshot Ids Begin"]));
            header.end.snap_id = header.end.snap_id.or_else(|| integer(table, row, &["Snapshot Ids End"]));
            let minutes = |names: &[&str]| Some(row.number(table.column(names)?)? * 60e6);
            header.db_time_us = header.db_time_us.or_else(|| minutes(&["Report Total (minutes) DB time"]));
            header.elapsed_us = header.elapsed_us.or_else(|| minutes(&["Report Total (minutes) Elapsed time"]));
        }
        text(&mut header.release, table, row, &["Release"]);
        text(&mut header.container, table, row, &["Container Name", "PDB Name"]);
        if named {
            let number = integer(table, row, &["Inst Num", "I#"]);
            let name = table.column(&["Instance", "Inst Name"]).map_or("", |column| row.text(column));
            if name.is_empty() && number.is_none() {
                continue;
            }
            let instance = instance(header, number, name);
            text(&mut instance.startup, table, row, &["Startup Time", "Startup"]);
            text(&mut instance.host, table, row, &["Host", "Host Name"]);
            text(&mut instance.release, table, row, &["Release"]);
            text(&mut instance.platform, table, row, &["Platform"]);
            instance.elapsed_us = row.named(&["Elapsed Time(min)"]).or(instance.elapsed_us);
            instance.db_time_us = row.named(&["DB time(min)"]).or(instance.db_time_us);
            text(&mut header.begin.time, table, row, &["Begin Snap Time"]);
            text(&mut header.end.time, table, row, &["End Snap Time"]);
        }
    }
}

fn host(header: &mut Header, table: Table<'_>) {
    if table.column(&["CPUs"]).is_none() || table.column(&["Platform", "Memory (GB)", "Memory (G)"]).is_none() {
        return;
    }
    let Some(row) = table.rows().next() else { return };
    let host = table.column(&["Host Name", "Host", "Name"]).map_or("", |column| row.text(column)).to_owned();
    let instance = instance(header, None, "");
    instance.host = host;
    text(&mut instance.platform, table, row, &["Platform"]);
    header.cpus = header.cpus.or_else(|| row.named(&["CPUs"]));
    header.cores = header.cores.or_else(|| row.named(&["Cores"]));
    header.sockets = header.sockets.or_else(|| row.named(&["Sockets"]));
    header.memory_bytes = header.memory_bytes.or_else(|| row.named(&["Memory (GB)", "Memory (G)"]));
}

/// Sums over the hosts of a RAC database.
fn operating_systems(header: &mut Header, table: Table<'_>) {
    let Some(cpus) = table.column(&["CPU #CPUs", "#CPUs"]) else { return };
    if header.cpus.is_some() {
        return;
    }
    let sum = |column: Option<usize>| {
        let column = column?;
        let rows = table.rows().filter(|row| row.text(0).bytes().all(|byte| byte.is_ascii_digit()));
        rows.filter_map(|row| row.number(column)).reduce(|a, b| a + b)
    };
    header.cpus = sum(Some(cpus));
    header.cores = sum(table.column(&["CPU #Cores", "#Cores"]));
    header.sockets = sum(table.column(&["CPU #Sckts", "#Sckts"]));
    header.memory_bytes = sum(table.column(&["Memory MB", "Memory (MB)"])).map(|megabytes| megabytes * 1_048_576.0);
}

fn snapshots(header: &mut Header, table: Table<'_>, decimal_comma: bool) {
    for row in table.rows().take(16) {
        let label = row.text(0);
        let boundary = |known: &mut Boundary| {
            known.snap_id = known.snap_id.or_else(|| integer(table, row, &["Snap Id"]));
            text(&mut known.time, table, row, &["Snap Time"]);
            known.sessions = known.sessions.or_else(|| row.named(&["Sessions"]));
        };
        let time = || {
            // Statspack prints another label behind the time: `60.00 (mins) Av Act Sess:`.
            let times = row.cells().skip(1).filter_map(|text| {
                let time = text.find(')').map_or(text, |end| &text[..=end]);
                parse(time, Unit::None, decimal_comma)
            });
            times.into_iter().find(|value| value.unit.base() == "us").map(|value| value.number)
        };
        if same_name(label, "Begin Snap") {
            boundary(&mut header.begin);
        } else if same_name(label, "End Snap") {
            boundary(&mut header.end);
        } else if same_name(label, "Elapsed") {
            header.elapsed_us = header.elapsed_us.or_else(time);
        } else if same_name(label, "DB Time") {
            header.db_time_us = header.db_time_us.or_else(time);
        }
    }
}
