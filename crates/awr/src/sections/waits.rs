//! Wait events: time model, wait classes, foreground and background events, histograms, services.

use super::{Chart, Group, Section};
use crate::document::{Event, Measure, Service, Statement, names};
use crate::figures::time::{average_wait_us, background_waits, foreground_waits, is_wait, wait_classes};
use crate::figures::{histogram, percent, ratio, sum};
use crate::table::{Cell, Table, duration};
use crate::view::{View, top};

const EVENT_ROWS: usize = 60;
const HISTOGRAM_CHARTS: usize = 6;
const SERVICE_ROWS: usize = 30;
const DATABASE_ROWS: usize = 30;

pub fn sections(view: &View<'_>) -> Vec<Section> {
    let mut sections = vec![time_model(view), foreground_classes(view), events(view, true), events(view, false)];
    sections.extend(histograms(view));
    sections.push(services(view));
    sections.push(databases(view));
    sections
}

fn no_samples(view: &View<'_>) -> String {
    view.missing("session samples", "set cellar.awr_sample_period above 0 to sample wait events")
}

fn time_model(view: &View<'_>) -> Section {
    let model = &view.model;
    let cpu = sum([model.db_cpu_us, view.document.time(names::time::BACKGROUND_CPU)]);
    let row = |name: &str, us: Measure, how: Cell| {
        let background = name.starts_with("background");
        let share = if background || name == names::time::DB_TIME { None } else { model.percent_of_db_time(us) };
        let cpu_share =
            if name == names::time::DB_CPU || name == names::time::BACKGROUND_CPU { percent(us, cpu) } else { None };
        vec![Cell::text(name), Cell::seconds(us, 2), Cell::percent(share, 2), Cell::percent(cpu_share, 2), how]
    };
    let mut statistics: Vec<_> = view.document.time_model.iter().collect();
    let rank = |name: &str| match name {
        name if name.starts_with("background") => 2,
        names::time::DB_TIME => 1,
        _ => 0,
    };
    statistics.sort_by(|a, b| {
        rank(&a.name).cmp(&rank(&b.name)).then(b.us.partial_cmp(&a.us).unwrap_or(std::cmp::Ordering::Equal))
    });
    let mut table = Table::new(&["<Statistic Name", "Time (s)", "% of DB Time", "% of Total CPU Time", "<How"]);
    for statistic in statistics {
        table.push(row(&statistic.name, statistic.us, Cell::how(statistic.how, statistic.stderr_us)));
    }
    if !table.rows.is_empty() {
        let derived = |text: &str| Cell::text(text);
        if view.document.time(names::time::RUN_QUEUE).is_none() && model.run_queue_us.is_some() {
            table.push(row(names::time::RUN_QUEUE, model.run_queue_us, derived("sum over databases")));
        }
        let outside_us = model.run_queue_outside_waits_us();
        if outside_us.is_some() {
            table.push(row("run queue outside of waits", outside_us, derived("at most")));
        }
        table.push(row("non-idle wait time", model.wait_us, derived("sum of events")));
        if model.idle_us.is_some() {
            table.push(row("idle waits in statements", model.idle_us, derived("sum of events")));
        }
        table.push(row("unaccounted for", model.unaccounted_us(), derived("difference")));
    }
    let db_time = model.db_time_us.map_or_else(|| "unknown".to_owned(), duration);
    Section::new("time-model", Group::Waits, "Time Model Statistics")
        .note(format!("Total time in database user-calls (DB Time): {db_time}"))
        .note("Statistics including the word \"background\" measure background processes and are no part of DB time")
        .note("DB time = DB CPU + run queue outside of waits + non-idle wait time + idle waits in statements + unaccounted for")
        .note("A woken session shows its wait until the session gets a core: a part of the run-queue time is in the waits")
        .table_or(table.without_empty_columns(), "Not available: the snapshots contain no time model")
}

fn foreground_classes(view: &View<'_>) -> Section {
    let model = &view.model;
    let mut table = Table::new(&["<Wait Class", "Waits", "Total Wait Time (s)", "Avg wait", "%DB time"]);
    for class in wait_classes(foreground_waits(view.document).collect::<Vec<_>>().into_iter()) {
        table.push(vec![
            Cell::text(class.class),
            Cell::count(class.waits),
            Cell::seconds(class.time_us, 0),
            Cell::duration(average_wait_us(class.time_us, class.waits)),
            Cell::percent(model.percent_of_db_time(class.time_us), 2),
        ]);
    }
    if model.db_cpu_us.is_some() {
        let share = Cell::percent(model.percent_of_db_time(model.db_cpu_us), 2);
        table.push(vec![Cell::text("DB CPU"), Cell::Absent, Cell::seconds(model.db_cpu_us, 0), Cell::Absent, share]);
    }
    let seconds = |us: Measure| us.map_or_else(|| "unknown".to_owned(), duration);
    Section::new("foreground-wait-class", Group::Waits, "Foreground Wait Class")
        .note("s - second, ms - millisecond, us - microsecond; ordered by wait time desc")
        .note(format!("Total FG Wait Time: {}, DB CPU time: {}", seconds(model.wait_us), seconds(model.db_cpu_us)))
        .table_or(table, no_samples(view))
}

fn events(view: &View<'_>, foreground: bool) -> Section {
    let (id, title, share) = match foreground {
        true => ("foreground-events", "Foreground Wait Events", "% DB time"),
        false => ("background-events", "Background Wait Events", "% bg time"),
    };
    let events: Vec<&Event> = match foreground {
        true => foreground_waits(view.document).collect(),
        false => background_waits(view.document).collect(),
    };
    let background_us = view.document.time(names::time::BACKGROUND_TIME).or_else(|| {
        sum([sum(events.iter().map(|event| event.time_us)), view.document.time(names::time::BACKGROUND_CPU)])
    });
    let columns =
        ["<Event", "Waits", "Total Wait Time (s)", "Avg wait", "Max wait", "Waits /txn", share, "<Wait Class", "<How"];
    let table =
        Table::new(&columns).with_rows(top(events, EVENT_ROWS, |event| event.time_us).into_iter().map(|event| {
            let of_time = match foreground {
                true => view.model.percent_of_db_time(event.time_us),
                false => percent(event.time_us, background_us),
            };
            vec![
                Cell::text(&*event.event),
                Cell::count(event.waits),
                Cell::seconds(event.time_us, 1),
                Cell::duration(average_wait_us(event.time_us, event.waits)),
                Cell::duration(event.max_us),
                Cell::decimal(ratio(event.waits, view.transactions), 2),
                Cell::percent(of_time, 2),
                Cell::text(&*event.class),
                Cell::how(event.how, event.stderr_us),
            ]
        }));
    Section::new(id, Group::Waits, title)
        .note("ordered by wait time desc; idle events are omitted")
        .note("A sampled event has no number of waits: time = samples x sample period; its standard error follows the mark")
        .table_or(table.without_empty_columns(), no_samples(view))
}

/// The columns of one histogram table: counts below the first bound, one column per bound, and the rest.
struct Range {
    id: &'static str,
    title: &'static str,
    waits: &'static str,
    /// Exponents of the first and the last bound.
    first: usize,
    last: usize,
}

const RANGES: [Range; 5] = [
    Range { id: "histogram", title: "Wait Event Histogram", waits: "Total Waits", first: 3, last: 9 },
    Range {
        id: "histogram-64us",
        title: "Wait Event Histogram (up to 64 us)",
        waits: "Waits 1us - 64us",
        first: 0,
        last: 6,
    },
    Range {
        id: "histogram-32ms",
        title: "Wait Event Histogram (up to 32 ms)",
        waits: "Waits 1ms to 32ms",
        first: 9,
        last: 15,
    },
    Range {
        id: "histogram-2s",
        title: "Wait Event Histogram (up to 2 sec)",
        waits: "Waits 64ms to 2s",
        first: 15,
        last: 21,
    },
    Range {
        id: "histogram-2m",
        title: "Wait Event Histogram (up to 2 min)",
        waits: "Waits 4s to 2m",
        first: 21,
        last: 27,
    },
];

fn histograms(view: &View<'_>) -> Vec<Section> {
    let mut events: Vec<(String, &[f64])> = view
        .document
        .events
        .iter()
        .filter(|event| is_wait(event) && histogram::total(&event.histogram) > 0.0)
        .map(|event| (event.event.to_string(), &event.histogram[..]))
        .collect();
    events.sort_by(|a, b| a.0.cmp(&b.0));
    let mut sections = Vec::new();
    for (index, range) in RANGES.iter().enumerate() {
        let bound = |exponent: usize| format!("<{}", histogram::bound_name(exponent));
        let mut columns = vec!["<Event".to_owned(), range.waits.to_owned()];
        // A leading "<" of a column name would align the column to the left: the bounds get two.
        columns.extend((range.first..=range.last).map(bound));
        columns.push(format!(">={}", histogram::bound_name(range.last)));
        let names: Vec<&str> = columns.iter().map(String::as_str).collect();
        let mut table = Table::new(&names);
        for (column, name) in table.columns.iter_mut().zip(&columns).skip(2) {
            column.name.clone_from(name);
            column.align = crate::table::Align::Right;
        }
        for (event, buckets) in &events {
            let total = histogram::total(buckets);
            let inside = match index {
                0 => total,
                _ => histogram::below(buckets, range.last) - histogram::below(buckets, range.first),
            };
            if inside <= 0.0 {
                continue;
            }
            let share = |count: f64| match count {
                0.0 => Cell::Absent,
                count => Cell::percent(percent(Some(count), Some(total)), 1),
            };
            let mut row = vec![Cell::text(event), Cell::Count(inside)];
            row.push(share(histogram::below(buckets, range.first)));
            row.extend((range.first + 1..=range.last).map(|bucket| share(buckets.get(bucket).copied().unwrap_or(0.0))));
            row.push(share(total - histogram::below(buckets, range.last)));
            table.push(row);
        }
        if index > 0 && table.rows.is_empty() {
            continue;
        }
        let mut section = Section::new(range.id, Group::Waits, range.title)
            .note("% of total waits; value of .0 indicates a count above 0 that rounds to 0.0, blank is 0");
        if index == 0 {
            section = section.table_or(
                table,
                "Not available: no event is timed; exact wait times need tables on a cell, or Smart Scans",
            );
            let mut charts: Vec<&Event> = view
                .document
                .events
                .iter()
                .filter(|event| is_wait(event) && histogram::total(&event.histogram) > 0.0)
                .collect();
            charts.sort_by(|a, b| b.time_us.partial_cmp(&a.time_us).unwrap_or(std::cmp::Ordering::Equal));
            for event in charts.into_iter().take(HISTOGRAM_CHARTS) {
                let title = format!(
                    "{} ({})",
                    event.event,
                    if event.foreground == Some(false) { "background" } else { "foreground" }
                );
                section = section.chart(Chart::Histogram { title, buckets: event.histogram.to_vec() });
            }
        } else {
            section = section.table(table);
        }
        sections.push(section);
    }
    sections
}

fn services(view: &View<'_>) -> Section {
    let document = view.document;
    let period = document.ash.period_us;
    let columns = [
        "<Service Name",
        "<Database",
        "<Role",
        "DB Time (s)",
        "% DB time",
        "<How",
        "DB CPU (s)",
        "CPU run queue (s)",
        "Parse (s)",
        "Plan (s)",
        "Execute (s)",
        "Commit (s)",
        "Parallel (s)",
    ];
    let sampled = |service: &Service| service.samples.zip(period).map(|(samples, us)| samples * us);
    let timed = |service: &Service| service.active_us.map(|us| us + service.parallel_us.unwrap_or(0.0));
    let db_time = |service: &Service| timed(service).or(sampled(service));
    let services = top(document.services.iter(), SERVICE_ROWS, |service| {
        db_time(service).or(sum([service.cpu_us, service.run_queue_us]))
    });
    let table = Table::new(&columns).with_rows(services.into_iter().map(|service| {
        let us = db_time(service);
        let how = match (timed(service), us) {
            (Some(_), _) => "timed",
            (None, Some(_)) => "sampled",
            (None, None) => "",
        };
        vec![
            Cell::text(service.application.known().unwrap_or("(none)")),
            Cell::text(&*service.database),
            Cell::text(&*service.role),
            Cell::seconds(us, 1),
            Cell::percent(view.model.percent_of_db_time(us), 1),
            Cell::text(how),
            Cell::seconds(service.cpu_us, 1),
            Cell::seconds(service.run_queue_us, 1),
            Cell::seconds(service.parse_us, 1),
            Cell::seconds(service.plan_us, 1),
            Cell::seconds(service.execute_us, 1),
            Cell::seconds(service.commit_us, 1),
            Cell::seconds(service.parallel_us, 1),
        ]
    }));
    Section::new("services", Group::Waits, "Service Statistics")
        .note("A service is an application_name; DB time is timed, or sampled where How says so, CPU times are counted by the kernel, parse, plan, execution and commit times of sessions and the time of their parallel workers are timed")
        .table_or(table.without_empty_columns(), no_samples(view))
}

/// The time model of each database.
fn databases(view: &View<'_>) -> Section {
    let document = view.document;
    let columns = [
        "<Database",
        "DB Time (s)",
        "% DB time",
        "DB CPU (s)",
        "CPU run queue (s)",
        "Parse (s)",
        "Plan (s)",
        "Execute (s)",
        "Commit (s)",
    ];
    let of_statements = |name: &str, us: fn(&Statement) -> Measure| {
        sum(document.statements.iter().filter(|statement| &*statement.database == name).map(us))
    };
    // Statements also contain the work of background workers: the time of sessions is preferred.
    let executed = document.executed_us();
    let executed_us = |name: &str| match &executed {
        Some(all) => all.get(name).copied(),
        None => of_statements(name, |statement| statement.elapsed_us),
    };
    let databases = top(document.databases.iter(), DATABASE_ROWS, |database| database.active_us);
    let table = Table::new(&columns).with_rows(databases.into_iter().map(|database| {
        vec![
            Cell::text(database.name.known().unwrap_or("(shared)")),
            Cell::seconds(database.active_us, 2),
            Cell::percent(view.model.percent_of_db_time(database.active_us), 2),
            Cell::seconds(database.cpu_us, 2),
            Cell::seconds(database.run_queue_us, 2),
            Cell::seconds(database.parse_us, 2),
            Cell::seconds(of_statements(&database.name, |statement| statement.plan_us), 2),
            Cell::seconds(executed_us(&database.name), 2),
            Cell::seconds(database.commit_us, 2),
        ]
    }));
    Section::new("time-model-databases", Group::Waits, "Time Model Statistics by Database")
        .note("Timed and counted as in Time Model Statistics; CPU and run queue of sessions and their parallel workers")
        .table_or(table.without_empty_columns(), "Not available: the snapshots contain no databases")
}
