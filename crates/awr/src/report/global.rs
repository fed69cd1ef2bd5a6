//! The global report: one column or row per instance, `*` for all of them, with sum, average and standard deviation.

use super::{Kind, Report, name, snapshots};
use crate::document::{Document, Measure, names};
use crate::figures::load::transactions;
use crate::figures::spread::Spread;
use crate::figures::time::{CLASSES, TimeModel, average_wait_us, background_waits, class_us, foreground_waits};
use crate::figures::{per_second, percent, ratio, sum};
use crate::findings::Findings;
use crate::rules;
use crate::sections::{Group, PREFERRED_ROWS, Section, TIMES_ARE_UTC};
use crate::table::{Cell, Table};
use crate::view::{View, one_line, time_text, top};
use std::collections::{BTreeMap, BTreeSet};

const SQL_ROWS: usize = 15;

/// The report about several instances, in the order of the documents.
pub fn global(documents: &[Document]) -> Report {
    let all: Vec<(String, &Document)> =
        documents.iter().enumerate().map(|(index, document)| (number(index, document), document)).collect();
    let database = documents.first().map_or("", |document| name(document));
    let snaps = documents.first().map(snapshots).unwrap_or_default();
    let mut sections = vec![
        summary(&all),
        instances(&all),
        findings(&all),
        host(&all),
        time_model(&all),
        time_model_percent(&all),
        wait_classes(&all),
        timed_events(&all, true),
        timed_events(&all, false),
    ];
    sections.extend(system_statistics(&all));
    sections.push(statistics(&all));
    sections.extend(sql(&all));
    Report {
        kind: Kind::Global,
        title: format!("AWR RAC Report for DB: {database}, Snaps: {snaps}"),
        subject: format!("DB/Inst: {database}  Snaps: {snaps}"),
        sections,
        findings: Findings::default(),
    }
}

type Instances<'a> = [(String, &'a Document)];

/// The instance's number; its position if the document has none.
fn number(index: usize, document: &Document) -> String {
    document.instance.id.known().map_or_else(|| (index + 1).to_string(), str::to_owned)
}

fn summary(all: &Instances<'_>) -> Section {
    let snap = |pick: fn(&Document) -> Option<i64>, best: fn(i64, i64) -> i64| {
        Cell::integer(all.iter().filter_map(|(_, document)| pick(document)).reduce(best))
    };
    let hosts: BTreeSet<&str> = all.iter().filter_map(|(_, document)| document.instance.host.known()).collect();
    let minutes = |us: Measure| Cell::decimal(us.map(|us| us / 60e6), 2);
    let db_time = sum(all.iter().map(|(_, document)| TimeModel::of(document).db_time_us));
    let elapsed = Spread::of(all.iter().map(|(_, document)| document.elapsed_us)).map(|spread| spread.maximum);
    let columns = ["<Name", "Begin Snap", "End Snap", "Instances", "Hosts", "DB time (min)", "Elapsed time (min)"];
    let table = Table::new(&columns).with_rows([vec![
        Cell::text(all.first().map_or("", |(_, document)| name(document))),
        snap(|document| document.begin.snap_id, i64::min),
        snap(|document| document.end.snap_id, i64::max),
        Cell::Count(all.len() as f64),
        Cell::Count(hosts.len() as f64),
        minutes(db_time),
        minutes(elapsed),
    ]]);
    Section::new("database-summary", Group::Summary, "Database Summary").table(table)
}

fn instances(all: &Instances<'_>) -> Section {
    let columns = [
        "<I#",
        "<Instance",
        "<Host",
        "<Startup",
        "<Begin Snap Time",
        "<End Snap Time",
        "<Release",
        "Elapsed Time(min)",
        "DB time(min)",
        "Avg Active Sessions",
    ];
    let table = Table::new(&columns).with_rows(all.iter().map(|(number, document)| {
        let model = TimeModel::of(document);
        let minutes = |us: Measure| Cell::decimal(us.map(|us| us / 60e6), 2);
        vec![
            Cell::text(number),
            Cell::text(&*document.instance.name),
            Cell::text(&*document.instance.host),
            Cell::text(time_text(&document.instance.start_time)),
            Cell::text(time_text(&document.begin.time)),
            Cell::text(time_text(&document.end.time)),
            Cell::text(&*document.instance.server_version),
            minutes(document.elapsed_us),
            minutes(model.db_time_us),
            Cell::decimal(model.average_active_sessions(), 2),
        ]
    }));
    Section::new("instances", Group::Summary, "Database Instances Included In Report")
        .note("Listed in order of instance number, I#")
        .note(TIMES_ARE_UTC)
        .table(table.without_empty_columns())
}

fn findings(all: &Instances<'_>) -> Section {
    let mut table = Table::new(&["<I#", "<Finding Name", "Avg Active Sessions", "% DB time", "<Type", "<Id"]);
    for (number, document) in all {
        for finding in rules::judge(document).findings {
            table.push(vec![
                Cell::text(number),
                Cell::text(finding.title),
                Cell::decimal(finding.impact.and_then(|impact| impact.active_sessions), 2),
                Cell::percent(finding.impact.and_then(|impact| impact.percent), 1),
                Cell::text(finding.kind.name()),
                Cell::text(finding.id),
            ]);
        }
    }
    Section::new("findings", Group::Summary, "Top ADDM Findings by Average Active Sessions")
        .note("Evidence and recommendations are in the reports of the instances")
        .table_or(table, "No finding: no rule applies to the figures of these intervals.")
}

/// Adds the rows Sum, Avg, Std, Min and Max, computed from the columns' figures.
fn with_totals(mut table: Table, has_sum: bool) -> Table {
    let columns = table.columns.len();
    let spreads: Vec<Option<Spread>> =
        (0..columns).map(|column| Spread::of(table.rows.iter().map(|row| row[column].number()))).collect();
    let pattern = |column: usize| {
        table.rows.iter().map(|row| &row[column]).find(|cell| cell.number().is_some()).cloned().unwrap_or(Cell::Absent)
    };
    let patterns: Vec<Cell> = (0..columns).map(pattern).collect();
    let mut total = |label: &str, pick: fn(&Spread) -> Measure| {
        let mut row = vec![Cell::text(label)];
        row.extend((1..columns).map(|column| like(&patterns[column], spreads[column].as_ref().and_then(pick))));
        table.rows.push(row);
    };
    if has_sum {
        total("Sum", |spread| Some(spread.sum));
    }
    total("Avg", |spread| Some(spread.average));
    total("Std", |spread| spread.standard_deviation);
    total("Min", |spread| Some(spread.minimum));
    total("Max", |spread| Some(spread.maximum));
    table
}

/// A figure in the form of another cell.
fn like(pattern: &Cell, value: Measure) -> Cell {
    let Some(value) = value else { return Cell::Absent };
    match pattern {
        Cell::Count(_) => Cell::Count(value),
        Cell::Decimal(_, digits) => Cell::Decimal(value, *digits),
        Cell::Seconds(_, digits) => Cell::Seconds(value, *digits),
        Cell::Duration(_) => Cell::Duration(value),
        Cell::Bytes(_) => Cell::Bytes(value),
        Cell::Percent(_, digits) => Cell::Percent(value, *digits),
        _ => Cell::Absent,
    }
}

fn host(all: &Instances<'_>) -> Section {
    let columns = [
        "<I#",
        "#CPUs",
        "Load Begin",
        "Load End",
        "% Busy",
        "% Usr",
        "% Nice",
        "% Sys",
        "% Steal",
        "% WIO",
        "% Idl",
        "Memory",
    ];
    let table = Table::new(&columns).with_rows(all.iter().map(|(number, document)| {
        let value = |name: &str| document.cpu_time(name);
        let load = document.os_statistic("LOAD");
        let total = sum([value("BUSY_TIME"), value("IDLE_TIME")]);
        let share = |name: &str| Cell::percent(percent(value(name), total), 2);
        vec![
            Cell::text(number),
            Cell::count(document.cpus()),
            Cell::decimal(load.and_then(|load| load.begin), 2),
            Cell::decimal(load.and_then(|load| load.end), 2),
            share("BUSY_TIME"),
            share("USER_TIME"),
            share("NICE_TIME"),
            Cell::percent(percent(sum([value("SYS_TIME"), value("IRQ_TIME")]), total), 2),
            share("STEAL_TIME"),
            share("IOWAIT_TIME"),
            share("IDLE_TIME"),
            Cell::bytes(document.instance.memory_bytes),
        ]
    }));
    Section::new("os-statistics", Group::Summary, "OS Statistics By Instance")
        .note("% Sys contains interrupts; % WIO is a part of % Idl; % Usr, % Nice, % Sys, % Steal and % Idl add up to 100")
        .table(table.without_empty_columns())
}

/// Columns of the time model, and the names of their times.
const TIMES: [(&str, &str); 8] = [
    ("DB time (s)", names::time::DB_TIME),
    ("DB CPU (s)", names::time::DB_CPU),
    ("SQL Exec Ela (s)", names::time::EXECUTE),
    ("Parse Ela (s)", names::time::PARSE),
    ("Plan Ela (s)", names::time::PLAN),
    ("Commit Ela (s)", names::time::COMMIT),
    ("bg time (s)", names::time::BACKGROUND_TIME),
    ("bg CPU (s)", names::time::BACKGROUND_CPU),
];

fn time_of(document: &Document, name: &str) -> Measure {
    if name == names::time::DB_TIME { TimeModel::of(document).db_time_us } else { document.time(name) }
}

fn time_model(all: &Instances<'_>) -> Section {
    let mut columns = vec!["<I#"];
    columns.extend(TIMES.iter().map(|(column, _)| *column));
    let table = Table::new(&columns).with_rows(all.iter().map(|(number, document)| {
        let mut row = vec![Cell::text(number)];
        row.extend(TIMES.iter().map(|(_, name)| Cell::seconds(time_of(document, name), 2)));
        row
    }));
    Section::new("time-model", Group::Waits, "Time Model").table(with_totals(table, true).without_empty_columns())
}

fn time_model_percent(all: &Instances<'_>) -> Section {
    let total = sum(all.iter().map(|(_, document)| TimeModel::of(document).db_time_us));
    let columns = ["<I#", "% Total DB time", "DB CPU", "SQL Exec Ela", "Parse Ela", "Plan Ela", "Commit Ela"];
    let table = Table::new(&columns).with_rows(all.iter().map(|(number, document)| {
        let db_time = TimeModel::of(document).db_time_us;
        let mut row = vec![Cell::text(number), Cell::percent(percent(db_time, total), 2)];
        row.extend(TIMES[1..6].iter().map(|(_, name)| Cell::percent(percent(document.time(name), db_time), 2)));
        row
    }));
    Section::new("time-model-percent", Group::Waits, "Time Model - % of DB time")
        .table(with_totals(table, false).without_empty_columns())
}

fn wait_classes(all: &Instances<'_>) -> Section {
    let classes: Vec<&str> = CLASSES.into_iter().filter(|class| !matches!(*class, "CPU" | "Idle")).collect();
    let names: Vec<String> = classes.iter().map(|class| format!("{class} (s)")).collect();
    let mut columns = vec!["<I#"];
    columns.extend(names.iter().map(String::as_str));
    columns.extend(["DB CPU (s)", "DB time"]);
    let table = Table::new(&columns).with_rows(all.iter().map(|(number, document)| {
        let model = TimeModel::of(document);
        let mut row = vec![Cell::text(number)];
        row.extend(classes.iter().map(|class| Cell::seconds(class_us(document, class), 2)));
        row.extend([Cell::seconds(model.db_cpu_us, 2), Cell::seconds(model.db_time_us, 2)]);
        row
    }));
    Section::new("foreground-wait-class", Group::Waits, "Foreground Wait Classes")
        .table(with_totals(table, true).without_empty_columns())
}

/// One event or DB CPU, by instance.
#[derive(Default)]
struct Timed<'a> {
    class: &'a str,
    event: &'a str,
    has_waits: bool,
    by_instance: BTreeMap<usize, (Measure, Measure)>,
}

impl Timed<'_> {
    fn waits(&self) -> Measure {
        sum(self.by_instance.values().map(|(waits, _)| *waits))
    }

    fn time_us(&self) -> Measure {
        sum(self.by_instance.values().map(|(_, us)| *us))
    }
}

/// Oracle prints N/A, so that programs that split lines into words find the next column.
fn or_not_applicable(cell: Cell) -> Cell {
    if cell == Cell::Absent { Cell::text("N/A") } else { cell }
}

fn timed_events(all: &Instances<'_>, foreground: bool) -> Section {
    let (id, title, share) = match foreground {
        true => ("top-timed-events", "Top Timed Foreground Events", "%DB time"),
        false => ("top-timed-background-events", "Top Timed Background Events", "%bg time"),
    };
    let mut events: BTreeMap<(&str, &str), Timed<'_>> = BTreeMap::new();
    let mut totals: Vec<Measure> = Vec::new();
    for (index, (_, document)) in all.iter().enumerate() {
        let waits: Vec<_> = match foreground {
            true => foreground_waits(document).collect(),
            false => background_waits(document).collect(),
        };
        for event in &waits {
            let timed = events.entry((&event.class, &event.event)).or_default();
            (timed.class, timed.event, timed.has_waits) = (&event.class, &event.event, true);
            let entry = timed.by_instance.entry(index).or_default();
            *entry = (sum([entry.0, event.waits]), sum([entry.1, event.time_us]));
        }
        let model = TimeModel::of(document);
        let (cpu_name, cpu_us) = match foreground {
            true => (names::time::DB_CPU, model.db_cpu_us),
            false => ("background cpu time", document.time(names::time::BACKGROUND_CPU)),
        };
        if cpu_us.is_some() {
            let cpu = events.entry(("", cpu_name)).or_default();
            cpu.event = cpu_name;
            cpu.by_instance.insert(index, (None, cpu_us));
        }
        totals.push(match foreground {
            true => model.db_time_us,
            false => document
                .time(names::time::BACKGROUND_TIME)
                .or_else(|| sum([sum(waits.iter().map(|event| event.time_us)), cpu_us])),
        });
    }
    let columns = [
        "<I#",
        "<Class",
        "<Event",
        "Waits",
        "%Timeouts",
        "Total(s)",
        "Avg Wait",
        share,
        "Avg",
        "Min",
        "Max",
        "Std Dev",
        "Cnt",
    ];
    let mut table = Table::new(&columns);
    let row = |number: &str, timed: &Timed<'_>, waits: Measure, us: Measure, total: Measure| {
        let mut row = vec![
            Cell::text(number),
            Cell::text(timed.class),
            Cell::text(timed.event),
            or_not_applicable(Cell::count(waits)),
            if timed.has_waits { Cell::Percent(0.0, 1) } else { Cell::text("N/A") },
            Cell::seconds(us, 2),
            or_not_applicable(Cell::duration(average_wait_us(us, waits))),
            Cell::percent(percent(us, total), 2),
        ];
        row.resize(columns.len(), Cell::Absent);
        row
    };
    for timed in top(events.values(), PREFERRED_ROWS, |timed| timed.time_us()) {
        let mut all_row = row("*", timed, timed.waits(), timed.time_us(), sum(totals.iter().copied()));
        let averages = timed.by_instance.values().map(|(waits, us)| average_wait_us(*us, *waits));
        if let Some(spread) = Spread::of(averages) {
            all_row[8] = Cell::Duration(spread.average);
            all_row[9] = Cell::Duration(spread.minimum);
            all_row[10] = Cell::Duration(spread.maximum);
            all_row[11] = Cell::duration(spread.standard_deviation);
        }
        all_row[12] = Cell::Count(timed.by_instance.len() as f64);
        table.push(all_row);
    }
    for (index, (number, _)) in all.iter().enumerate() {
        let here = events.values().filter(|timed| timed.by_instance.contains_key(&index));
        for timed in top(here, PREFERRED_ROWS, |timed| timed.by_instance[&index].1) {
            let (waits, us) = timed.by_instance[&index];
            table.push(row(number, timed, waits, us, totals[index]));
        }
    }
    Section::new(id, Group::Waits, title)
        .note("Instance '*' - cluster wide summary; Avg, Min, Max, Std Dev of the average waits of Cnt instances")
        .note("Ordered by Total Wait Time desc for each instance; PostgreSQL's waits have no timeouts")
        .table_or(table, "Not available: no instance sampled or timed wait events")
}

/// Columns of the system statistics, and their names; redo is in K.
const STATISTICS: [(&str, &str); 10] = [
    ("Logical Reads", names::LOGICAL_READS),
    ("Physical Reads", names::PHYSICAL_READS),
    ("Physical Writes", names::PHYSICAL_WRITES),
    ("Redo Size (k)", names::REDO_SIZE),
    ("Block Changes", names::BLOCK_CHANGES),
    ("User Calls", names::USER_CALLS),
    ("Execs", names::EXECUTIONS),
    ("Parses", names::PARSES),
    ("Logons", names::LOGONS),
    ("Txns", ""),
];

fn statistic(document: &Document, name: &str) -> Measure {
    match name {
        "" => transactions(document),
        names::REDO_SIZE => document.statistic(name).map(|bytes| bytes / 1024.0),
        name => document.statistic(name),
    }
}

fn system_statistics(all: &Instances<'_>) -> Vec<Section> {
    let table = |suffix: &str, figure: &dyn Fn(&Document, Measure) -> Measure, digits: usize| {
        let names: Vec<String> = STATISTICS.iter().map(|(column, _)| format!("{column}{suffix}")).collect();
        let mut columns = vec!["<I#"];
        columns.extend(names.iter().map(String::as_str));
        Table::new(&columns).with_rows(all.iter().map(|(number, document)| {
            let mut row = vec![Cell::text(number)];
            row.extend(
                STATISTICS.iter().map(|(_, name)| Cell::decimal(figure(document, statistic(document, name)), digits)),
            );
            row
        }))
    };
    let totals = table("", &|_, total| total, 0);
    let seconds = table("/s", &|document, total| per_second(total, document.elapsed_us), 2);
    let transactions = table("/tx", &|document, total| ratio(total, transactions(document)), 2);
    let section = |id, title, table: Table, has_sum| {
        Section::new(id, Group::Activity, title).table(with_totals(table, has_sum).without_empty_columns())
    };
    vec![
        section("system-statistics", "System Statistics", totals, true),
        section("system-statistics-second", "System Statistics - Per Second", seconds, true),
        section("system-statistics-transaction", "System Statistics - Per Transaction", transactions, false),
    ]
}

/// Every statistic, summed over the instances; the last columns describe the rates per second of the instances.
fn statistics(all: &Instances<'_>) -> Section {
    let names: BTreeSet<&str> =
        all.iter().flat_map(|(_, document)| document.statistics.iter().map(|statistic| &*statistic.name)).collect();
    let transactions = sum(all.iter().map(|(_, document)| transactions(document)));
    let columns = ["<Statistic", "Total", "per Second", "per Trans", "Average", "Std Dev", "Min", "Max"];
    let table = Table::new(&columns).with_rows(names.into_iter().map(|name| {
        let total = sum(all.iter().map(|(_, document)| document.statistic(name)));
        let rates = all.iter().map(|(_, document)| per_second(document.statistic(name), document.elapsed_us));
        let spread = Spread::of(rates);
        let of = |pick: fn(&Spread) -> Measure| Cell::decimal(spread.as_ref().and_then(pick), 2);
        vec![
            Cell::text(name),
            Cell::count(total),
            of(|spread| Some(spread.sum)),
            Cell::decimal(ratio(total, transactions), 2),
            of(|spread| Some(spread.average)),
            of(|spread| spread.standard_deviation),
            of(|spread| Some(spread.minimum)),
            of(|spread| Some(spread.maximum)),
        ]
    }));
    Section::new("system-statistics-global", Group::Activity, "System Statistics (Global)")
        .note("per Second: sum of the instances' rates")
        .table_or(table, "Not available: the snapshots contain no statistics")
}

/// A statement, summed over databases and instances.
#[derive(Clone, Copy, Default)]
struct GlobalSql<'a> {
    text: &'a str,
    io_us: Measure,
    elapsed_us: Measure,
    cpu_us: Measure,
    gets: Measure,
    reads: Measure,
    rows: Measure,
    calls: Measure,
}

fn sql(all: &Instances<'_>) -> Vec<Section> {
    let views: Vec<View<'_>> = all.iter().map(|(_, document)| View::new(document)).collect();
    let mut statements: BTreeMap<i64, GlobalSql<'_>> = BTreeMap::new();
    for sql in views.iter().flat_map(|view| &view.sql) {
        let Some(query_id) = sql.query_id.filter(|query_id| *query_id != 0) else { continue };
        let all = statements.entry(query_id).or_default();
        if all.text.is_empty() {
            all.text = sql.text;
        }
        for (total, value) in [
            (&mut all.io_us, sql.io_us),
            (&mut all.elapsed_us, sql.elapsed_us),
            (&mut all.cpu_us, sql.cpu_us),
            (&mut all.gets, sql.gets),
            (&mut all.reads, sql.reads),
            (&mut all.rows, sql.rows),
            (&mut all.calls, sql.calls),
        ] {
            *total = sum([*total, value]);
        }
    }
    type Key = fn(&GlobalSql<'_>) -> Measure;
    let lists: [(&str, &str, Key); 6] = [
        ("sql-elapsed-time", "SQL ordered by Elapsed Time (Global)", |sql| sql.elapsed_us),
        ("sql-cpu-time", "SQL ordered by CPU Time (Global)", |sql| sql.cpu_us),
        ("sql-user-io-time", "SQL ordered by User I/O Time (Global)", |sql| sql.io_us),
        ("sql-gets", "SQL ordered by Gets (Global)", |sql| sql.gets),
        ("sql-reads", "SQL ordered by Reads (Global)", |sql| sql.reads),
        ("sql-executions", "SQL ordered by Executions (Global)", |sql| sql.calls),
    ];
    let columns = [
        "<SQL Id",
        "Elapsed (s)",
        "CPU (s)",
        "IOWait (s)",
        "Gets",
        "Reads",
        "Rows",
        "Execs",
        "Elapsed (s) /exec",
        "Gets /exec",
        "Reads /exec",
        "Rows /exec",
        "_SQL Text",
    ];
    let mut sections = Vec::new();
    for (id, title, key) in lists {
        let table = Table::new(&columns).with_rows(top(&statements, SQL_ROWS, |(_, sql)| key(sql)).into_iter().map(
            |(query_id, sql)| {
                vec![
                    Cell::SqlId(*query_id),
                    Cell::seconds(sql.elapsed_us, 2),
                    Cell::seconds(sql.cpu_us, 2),
                    Cell::seconds(sql.io_us, 2),
                    Cell::count(sql.gets),
                    Cell::count(sql.reads),
                    Cell::count(sql.rows),
                    Cell::count(sql.calls),
                    Cell::seconds(ratio(sql.elapsed_us, sql.calls), 2),
                    Cell::decimal(ratio(sql.gets, sql.calls), 2),
                    Cell::decimal(ratio(sql.reads, sql.calls), 2),
                    Cell::decimal(ratio(sql.rows, sql.calls), 2),
                    Cell::text(one_line(sql.text, 400)),
                ]
            },
        ));
        if !table.rows.is_empty() {
            sections.push(Section::new(id, Group::Sql, title).table(table.without_empty_columns()));
        }
    }
    sections
}
