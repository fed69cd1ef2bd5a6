//! Sections of the ASH report: the session samples of any interval by event, service, statement, session, blocker and time.
//! Every figure is an estimate from samples; the column How contains its standard error.

use super::{Chart, Group, Section};
use crate::document::{AshActivity, Document, How, List, Measure, Timestamp};
use crate::figures::{percent, ratio};
use crate::table::{Cell, Table};
use crate::view::{View, time_text};
use std::collections::BTreeMap;

/// What stands in place of a table without rows.
fn no_sample(document: &Document) -> &'static str {
    let history = &document.history;
    match !history.filters.is_empty() && history.samples.unwrap_or(0.0) == 0.0 {
        true => "No sample matches the filter.",
        false => "No session was active in a sample.",
    }
}

const TEXT_CHARACTERS: usize = 100;

/// All sections, in the order of the report.
pub fn sections(document: &Document) -> Vec<Section> {
    let view = View::new(document);
    let mut sections = vec![header(document)];
    if !document.notes.is_empty() {
        sections.push(notes(document));
    }
    if !document.history.dimensions.is_empty() {
        sections.push(groups(&view));
    }
    sections.extend([
        events(document, true),
        events(document, false),
        services(document),
        clients(document),
        databases(document),
        consumer_groups(document),
        top_sql(&view),
        top_sessions(document),
        blockers(document),
        over_time(document),
        texts(document),
    ]);
    sections
}

fn header(document: &Document) -> Section {
    let (instance, history) = (&document.instance, &document.history);
    let database = Table::new(&["<DB Name", "DB Id", "Inst Num", "<Release", "<Host Name", "CPUs"]).with_rows([vec![
        Cell::text(&*instance.name),
        Cell::text(&*instance.system_identifier),
        Cell::text(&*instance.id),
        Cell::text(&*instance.server_version),
        Cell::text(&*instance.host),
        Cell::count(document.cpus()),
    ]]);
    let sessions = ratio(history.time_us, covered_us(document));
    let foreground = ratio(history.foreground_us, covered_us(document));
    let filters: Vec<String> =
        history.filters.iter().map(|filter| format!("{} = {}", filter.dimension, filter.value)).collect();
    let elapsed = document.elapsed_us.map_or(Cell::Absent, |us| Cell::Text(format!("{:.2} (mins)", us / 60e6)));
    let mut analysis = Table::new(&["", "Value", "<How"]).labelled();
    for (label, value) in [
        ("Analysis Begin Time:", Cell::text(time_text(&document.begin.time))),
        ("Analysis End Time:", Cell::text(time_text(&document.end.time))),
        ("Elapsed Time:", elapsed),
        ("Sample Count:", Cell::count(history.samples)),
        ("Sample Period:", Cell::duration(history.period_us)),
    ] {
        analysis.push(vec![Cell::text(label), value, Cell::Absent]);
    }
    let how = || Cell::how(history.time_us.map(|_| How::Sampled), history.stderr_us);
    analysis.push(vec![Cell::text("Active Time (s):"), Cell::seconds(history.time_us, 0), how()]);
    analysis.push(vec![Cell::text("Average Active Sessions:"), Cell::decimal(sessions, 2), Cell::Absent]);
    analysis.push(vec![Cell::text("Avg. Foreground Sessions:"), Cell::decimal(foreground, 2), Cell::Absent]);
    analysis.push(vec![
        Cell::text("Avg. Active Session per CPU:"),
        Cell::decimal(ratio(sessions, document.cpus()), 2),
        Cell::Absent,
    ]);
    let target = if filters.is_empty() { "None specified".to_owned() } else { filters.join(", ") };
    analysis.push(vec![Cell::text("Report Target:"), Cell::text(target), Cell::Absent]);
    let mut section = Section::new("header", Group::Summary, "ASH Report For").table(database).table(analysis);
    if let Some(lost) = history.lost.filter(|lost| *lost > 0.0) {
        section = section.note(format!("{lost} samples were lost: raise cellar.awr_sample_buffer"));
    }
    if let Some(note) = coverage(document) {
        section = section.note(note);
    }
    section
        .note("Times are UTC. N samples of a state mean about N sample periods in the state; ± is the standard error")
        .chart(chart(document))
}

/// The least share of the interval without samples that is told.
const UNCOVERED_SHARE: f64 = 0.05;

/// The time that averages refer to: that in which the server took samples, if the document tells it.
fn covered_us(document: &Document) -> Measure {
    document.history.covered_us.or(document.elapsed_us)
}

/// A note that the samples cover only a part of the interval.
fn coverage(document: &Document) -> Option<String> {
    let (history, elapsed_us) = (&document.history, document.elapsed_us?);
    let is_short = |us: f64| us < (1.0 - UNCOVERED_SHARE) * elapsed_us;
    let minutes = |us: f64| crate::table::grouped(us / 60e6, 2);
    if let Some(us) = history.covered_us {
        let times = match (history.covered_begin.known(), history.covered_end.known()) {
            (Some(begin), Some(end)) => format!(", from {} to {}", time_text(begin), time_text(end)),
            _ => String::new(),
        };
        return is_short(us).then(|| {
            format!("Samples cover {} of {} minutes{times}: averages refer to them", minutes(us), minutes(elapsed_us))
        });
    }
    // A filter makes slots empty. Without a filter, they had no activity or no samples.
    let slots = || history.slots.iter().filter(|slot| slot.samples > Some(0.0));
    let (first, last) = (Timestamp::parse(&slots().next()?.time)?, slots().next_back()?);
    let end = Timestamp::parse(&last.time)?.plus(last.duration_us? as i64);
    (history.filters.is_empty() && is_short(end.since(first) as f64)).then(|| {
        format!("All samples are from {first} to {end}: the rest of the interval had no activity, or was not sampled")
    })
}

/// Average active sessions by wait class, from all samples that the report's filters select.
fn chart(document: &Document) -> Chart {
    let slots = document.history.slots.iter().map(|slot| {
        let duration_us = slot.duration_us.filter(|us| *us > 0.0);
        let average = |(class, us): (&String, &f64)| Some((class.clone(), us / duration_us?));
        (clock(&slot.time), slot.by_class.iter().filter_map(average).collect::<BTreeMap<_, _>>())
    });
    Chart::ActiveSessions { slots: slots.collect(), cpus: document.cpus() }
}

fn clock(time: &str) -> String {
    Timestamp::parse(time).map_or_else(|| time.to_owned(), Timestamp::clock)
}

fn notes(document: &Document) -> Section {
    let table = Table::new(&["<Time", "<Kind", "<Note"]).with_rows(
        document
            .notes
            .iter()
            .map(|note| vec![Cell::text(time_text(&note.time)), Cell::text(&*note.kind), Cell::text(&*note.text)]),
    );
    Section::new("notes", Group::Summary, "Notes")
        .note("Events between AWR snapshots that overlap the interval: the server took no samples while stopped")
        .table(table)
}

/// The figures of every table: share of the report's samples, average active sessions, samples, time with its error.
const FIGURES: [&str; 5] = ["% Activity", "Avg Active Sessions", "Samples", "Active Time (s)", "<How"];

fn figures(document: &Document, activity: &AshActivity) -> [Cell; 5] {
    [
        Cell::percent(share(document, activity.samples), 2),
        Cell::decimal(ratio(activity.time_us, covered_us(document)), 2),
        Cell::count(activity.samples),
        Cell::seconds(activity.time_us, 0),
        Cell::how(activity.time_us.map(|_| How::Sampled), activity.stderr_us),
    ]
}

fn share(document: &Document, samples: Measure) -> Measure {
    percent(samples, document.history.samples)
}

fn table<'a>(
    document: &Document,
    columns: &[&str],
    rows: &'a List<AshActivity>,
    cells: impl Fn(&'a AshActivity) -> Vec<Cell>,
) -> Table {
    let all: Vec<&str> = columns.iter().chain(&FIGURES).copied().collect();
    let row = |activity: &'a AshActivity| {
        let mut row = cells(activity);
        row.extend(figures(document, activity));
        row
    };
    Table::new(&all).with_rows(rows.into_iter().map(row)).without_empty_columns()
}

pub(super) fn event_name(activity: &AshActivity) -> &str {
    activity.event.known().filter(|event| *event != "CPU").unwrap_or("CPU + Wait for CPU")
}

/// The samples by the dimensions that the user chose.
fn groups(view: &View<'_>) -> Section {
    let document = view.document;
    let dimensions: Vec<&str> = document.history.dimensions.iter().map(|dimension| &**dimension).collect();
    let heading = |dimension: &&str| match *dimension {
        "event" => "<Event",
        "wait_class" => "<Wait Class",
        "query_id" => "Query Id",
        "sql_id" => "<SQL ID",
        "plan" => "Plan Hash",
        "database" => "<Database",
        "user" => "<User",
        "application" => "<Application",
        "consumer_group" => "<Consumer Group",
        "client" => "<Client",
        "backend_type" => "<Session Type",
        "state" => "<State",
        "session" => "Sid",
        "blocker" => "Blocking Sid",
        _ => "<",
    };
    let columns: Vec<&str> = dimensions.iter().map(heading).collect();
    let cell = |dimension: &str, activity: &AshActivity| match dimension {
        "event" => Cell::text(event_name(activity)),
        "wait_class" => Cell::text(&*activity.class),
        "query_id" => Cell::integer(activity.query_id),
        "sql_id" => Cell::sql_id(activity.query_id),
        "plan" => Cell::integer(activity.plan_id),
        "database" => Cell::text(&*activity.database),
        "user" => Cell::text(&*activity.role),
        "application" => Cell::text(&*activity.application),
        "consumer_group" => Cell::text(&*activity.consumer_group),
        "client" => Cell::text(&*activity.client),
        "backend_type" => Cell::text(&*activity.backend_type),
        "state" => Cell::text(&*activity.state),
        "session" => Cell::integer(activity.pid),
        "blocker" => Cell::integer(activity.blocker_pid),
        _ => Cell::Absent,
    };
    let table = table(document, &columns, &document.history.groups, |activity| {
        dimensions.iter().map(|dimension| cell(dimension, activity)).collect()
    });
    Section::new("ash-groups", Group::History, format!("Activity by {}", dimensions.join(", ")))
        .note("The 50 combinations with the most samples")
        .table_or(table, no_sample(document))
}

fn events(document: &Document, foreground: bool) -> Section {
    let (id, title, rows) = match foreground {
        true => ("ash-user-events", "Top User Events", &document.history.events),
        false => ("ash-background-events", "Top Background Events", &document.history.background_events),
    };
    let table = table(document, &["<Event", "<Event Class"], rows, |activity| {
        vec![Cell::text(event_name(activity)), Cell::text(&*activity.class)]
    });
    Section::new(id, Group::History, title).table_or(table, no_sample(document))
}

fn services(document: &Document) -> Section {
    let table = table(document, &["<Service", "<User", "<Database"], &document.history.services, |activity| {
        vec![
            Cell::text(activity.application.known().unwrap_or("(none)")),
            Cell::text(&*activity.role),
            Cell::text(&*activity.database),
        ]
    });
    Section::new("ash-services", Group::History, "Top Service/Module")
        .note("A service is an application_name")
        .table_or(table, no_sample(document))
}

fn clients(document: &Document) -> Section {
    let table = table(document, &["<Client ID", "<User", "<Database"], &document.history.clients, |activity| {
        vec![Cell::text(&*activity.client), Cell::text(&*activity.role), Cell::text(&*activity.database)]
    });
    Section::new("ash-clients", Group::History, "Top Client IDs")
        .note("The address of the client; sessions over a Unix-domain socket have none")
        .table_or(table, "No session with a client address was active in a sample.")
}

fn databases(document: &Document) -> Section {
    let table = table(document, &["<Database", "Sessions"], &document.history.databases, |activity| {
        vec![Cell::text(&*activity.database), Cell::count(activity.sessions)]
    });
    Section::new("ash-databases", Group::History, "Top Databases").table_or(table, no_sample(document))
}

fn consumer_groups(document: &Document) -> Section {
    let columns = ["<Consumer Group", "<Wait Class", "Sessions"];
    let table = table(document, &columns, &document.history.consumer_groups, |activity| {
        vec![Cell::text(&*activity.consumer_group), Cell::text(&*activity.class), Cell::count(activity.sessions)]
    });
    Section::new("ash-consumer-groups", Group::History, "Top Consumer Groups")
        .note("cellar.consumer_group and cellar.consumer_group_mappings determine the consumer group of a session")
        .table_or(table, no_sample(document))
}

fn top_sql(view: &View<'_>) -> Section {
    let document = view.document;
    let table = table(
        document,
        &["<SQL ID", "Plan Hash", "<Event", "<Event Class", "Sessions", "_SQL Text"],
        &document.history.top_sql,
        |activity| {
            vec![
                Cell::sql_id(activity.query_id),
                Cell::integer(activity.plan_id),
                Cell::text(event_name(activity)),
                Cell::text(&*activity.class),
                Cell::count(activity.sessions),
                Cell::text(view.sql_text(activity.query_id, TEXT_CHARACTERS)),
            ]
        },
    );
    Section::new("ash-top-sql", Group::History, "Top SQL with Top Events")
        .note(
            "Plan Hash is blank for samples in which no plan was executed, for example while the statement was planned",
        )
        .table_or(table, "No statement with a query identifier was running in a sample.")
}

fn top_sessions(document: &Document) -> Section {
    let columns = [
        "Sid",
        "<Event",
        "<Event Class",
        "<User",
        "<Program",
        "<Consumer Group",
        "<Database",
        "<Session Type",
        "Temp Max",
    ];
    let table = table(document, &columns, &document.history.top_sessions, |activity| {
        vec![
            Cell::integer(activity.pid),
            Cell::text(event_name(activity)),
            Cell::text(&*activity.class),
            Cell::text(&*activity.role),
            Cell::text(&*activity.application),
            Cell::text(&*activity.consumer_group),
            Cell::text(&*activity.database),
            Cell::text(&*activity.backend_type),
            Cell::bytes(activity.temp_bytes),
        ]
    });
    Section::new("ash-top-sessions", Group::History, "Top Sessions")
        .note(super::ash::TEMP_MAX)
        .table_or(table.without_empty_columns(), no_sample(document))
}

fn blockers(document: &Document) -> Section {
    let columns = ["Blocking Sid", "<Event Caused", "<Event Class", "Blocked Sessions", "<User", "<Program", "<State"];
    let table = table(document, &columns, &document.history.blockers, |activity| {
        vec![
            Cell::integer(activity.blocker_pid),
            Cell::text(event_name(activity)),
            Cell::text(&*activity.class),
            Cell::count(activity.sessions),
            Cell::text(&*activity.role),
            Cell::text(&*activity.application),
            Cell::text(&*activity.state),
        ]
    });
    Section::new("ash-blocking-sessions", Group::History, "Top Blocking Sessions")
        .note("Figures are those of the sessions that waited; User, Program and State are those of the blocker, if sampled")
        .table_or(table, "No session was seen waiting for a lock of another session.")
}

fn over_time(document: &Document) -> Section {
    let columns = [
        "<Slot Time (Duration)",
        "Slot Count",
        "<Event",
        "<Event Class",
        "Event Count",
        "% Event",
        "Avg Active Sessions",
        "<How",
    ];
    let mut table = Table::new(&columns);
    for slot in &document.history.slots {
        for event in &slot.events {
            let duration = slot.duration_us.map_or_else(String::new, crate::table::duration);
            table.push(vec![
                Cell::text(format!("{} ({duration})", clock(&slot.time))),
                Cell::count(slot.samples),
                Cell::text(event_name(event)),
                Cell::text(&*event.class),
                Cell::count(event.samples),
                Cell::percent(share(document, event.samples), 2),
                Cell::decimal(ratio(event.time_us, slot.duration_us), 2),
                Cell::how(event.time_us.map(|_| How::Sampled), event.stderr_us),
            ]);
        }
    }
    Section::new("activity-over-time", Group::History, "Activity Over Time")
        .note("The three greatest events of each slot; a slot without a row had no active session. Times are UTC")
        .note("Slot Count, Event Count: samples in the slot; % Event: of all samples of the report")
        .table_or(table, no_sample(document))
}

fn texts(document: &Document) -> Section {
    let known = document.statements.iter().filter(|statement| !statement.text.is_empty());
    let table = Table::new(&["<SQL Id", "_SQL Text"])
        .with_rows(known.map(|sql| vec![Cell::sql_id(sql.query_id), Cell::text(&*sql.text)]));
    Section::new("sql-texts", Group::History, "Complete List of SQL Text")
        .table_or(table, "Not available: the repository contains no text of these statements")
}
