//! Active session history: top events, SQL and sessions by samples, activity over time.

use super::{Chart, Group, Section};
use crate::document::{AshActivity, AshSlot, List, Measure, Timestamp};
use crate::figures::{percent, ratio, sum};
use crate::table::{Cell, Table};
use crate::view::{View, one_line, top};
use std::collections::BTreeMap;

const ROWS: usize = 15;
pub(super) const TEMP_MAX: &str =
    "Temp Max: greatest size of the session's temporary files in a sample; blank if the files may be on a cell";
/// The most consecutive empty slots of the picture.
const EMPTY_SLOTS_MAX: usize = 1000;

pub fn sections(view: &View<'_>) -> Vec<Section> {
    let ash = &view.document.ash;
    if ash.slots.is_empty() && ash.by_event.is_empty() && ash.top_sql.is_empty() {
        let hint = "set cellar.awr_sample_period above 0 to sample active sessions";
        let section = Section::new("activity-over-time", Group::History, "Activity Over Time");
        return vec![section.sentence(view.missing("session samples", hint))];
    }
    vec![over_time(view), top_events(view), top_sql(view), top_sessions(view), consumer_groups(view)]
}

/// Average active sessions of a slot by class: samples per tick.
fn active_sessions(slot: &AshSlot) -> BTreeMap<String, f64> {
    let ticks = slot.ticks.filter(|ticks| *ticks > 0.0);
    let average = |(class, samples): (&String, &f64)| Some((class.clone(), samples / ticks?));
    slot.by_class.iter().filter(|(class, _)| *class != "Idle").filter_map(average).collect()
}

/// The picture of active sessions by wait class over time; None without slots. Slots without samples are absent in the
/// document and empty in the picture.
pub(super) fn chart(view: &View<'_>) -> Option<Chart> {
    let slots = &view.document.ash.slots;
    let mut all: Vec<(String, BTreeMap<String, f64>)> = Vec::new();
    let mut times: Vec<Option<Timestamp>> = slots.iter().map(|slot| Timestamp::parse(&slot.time)).collect();
    let gap = |pair: &[Option<Timestamp>]| Some(pair[1]?.since(pair[0]?));
    let step = times.windows(2).filter_map(gap).filter(|us| *us > 0).min();
    // The last slot lasts to the end of the interval.
    times.push(Timestamp::parse(&view.document.end.time));
    for (slot, gap) in slots.iter().zip(times.windows(2).map(gap)) {
        all.push((clock(slot), active_sessions(slot)));
        let missing = gap.zip(step).map_or(0, |(gap, step)| (gap + step / 2) / step - 1);
        let missing = usize::try_from(missing).unwrap_or(0).min(EMPTY_SLOTS_MAX);
        let begin = Timestamp::parse(&slot.time);
        let label = |n: i64| begin.zip(step).map_or_else(String::new, |(begin, step)| begin.plus(n * step).clock());
        all.extend((1..).take(missing).map(|n| (label(n), BTreeMap::new())));
    }
    (!all.is_empty()).then(|| Chart::ActiveSessions { slots: all, cpus: view.document.cpus() })
}

fn clock(slot: &AshSlot) -> String {
    Timestamp::parse(&slot.time).map_or_else(|| slot.time.to_string(), Timestamp::clock)
}

fn over_time(view: &View<'_>) -> Section {
    let ash = &view.document.ash;
    let mut table =
        Table::new(&["<Slot Time", "Slot Count", "<Event", "Event Count", "% Event", "Avg Active Sessions"]);
    let total = sum(ash.slots.iter().map(|slot| Some(slot.by_class.values().sum())));
    for slot in &ash.slots {
        let count: f64 = slot.by_class.values().sum();
        let classes: Vec<(&String, &f64)> = slot.by_class.iter().collect();
        for (class, samples) in top(classes, 3, |(_, samples)| Some(**samples)) {
            table.push(vec![
                Cell::text(clock(slot)),
                Cell::Count(count),
                Cell::text(class),
                Cell::Count(*samples),
                Cell::percent(percent(Some(*samples), total), 2),
                Cell::decimal(ratio(Some(*samples), slot.ticks), 2),
            ]);
        }
    }
    let mut section = Section::new("activity-over-time", Group::History, "Activity Over Time")
        .note("Event is a wait class; the three greatest classes of each slot are listed. Times are UTC");
    if let Some(lost) = ash.lost.filter(|lost| *lost > 0.0) {
        section = section.note(format!("{lost} samples were lost: raise cellar.awr_sample_buffer"));
    }
    if let Some(chart) = chart(view) {
        section = section.chart(chart);
    }
    section.table_or(table, "No session was active in a sample.")
}

fn total_samples(view: &View<'_>) -> Measure {
    let ash = &view.document.ash;
    let of = |activities: &List<AshActivity>| sum(activities.iter().map(|activity| activity.samples));
    of(&ash.by_event).or_else(|| sum(ash.slots.iter().map(|slot| Some(slot.by_class.values().sum()))))
}

fn event_name(activity: &AshActivity) -> &str {
    activity.event.known().filter(|event| *event != "CPU").unwrap_or("CPU + Wait for CPU")
}

fn top_events(view: &View<'_>) -> Section {
    let ash = &view.document.ash;
    let total = total_samples(view);
    let table =
        Table::new(&["<Event", "<Event Class", "<Session Type", "% Activity", "Avg Active Sessions", "Samples"])
            .with_rows(top(&ash.by_event, ROWS, |activity| activity.samples).into_iter().map(|activity| {
                let kind =
                    activity.foreground.map_or("", |foreground| if foreground { "FOREGROUND" } else { "BACKGROUND" });
                vec![
                    Cell::text(event_name(activity)),
                    Cell::text(&*activity.class),
                    Cell::text(kind),
                    Cell::percent(percent(activity.samples, total), 2),
                    Cell::decimal(ratio(activity.samples, ash.ticks), 2),
                    Cell::count(activity.samples),
                ]
            }));
    Section::new("ash-top-events", Group::History, "Top Events")
        .table_or(table.without_empty_columns(), "No session was active in a sample.")
}

fn top_sql(view: &View<'_>) -> Section {
    let ash = &view.document.ash;
    let total = total_samples(view);
    let columns = ["<SQL ID", "Plan Hash", "% Activity", "<Event", "Avg Active Sessions", "Samples", "_SQL Text"];
    let table = Table::new(&columns).with_rows(top(&ash.top_sql, ROWS, |activity| activity.samples).into_iter().map(
        |activity| {
            vec![
                Cell::sql_id(activity.query_id),
                Cell::integer(activity.plan_id),
                Cell::percent(percent(activity.samples, total), 2),
                Cell::text(event_name(activity)),
                Cell::decimal(ratio(activity.samples, ash.ticks), 2),
                Cell::count(activity.samples),
                Cell::text(one_line(&view.sql_text(activity.query_id, 100), 100)),
            ]
        },
    ));
    Section::new("ash-top-sql", Group::History, "Top SQL with Top Events")
        .table_or(table.without_empty_columns(), "No statement was running in a sample.")
}

fn top_sessions(view: &View<'_>) -> Section {
    let ash = &view.document.ash;
    let total = total_samples(view);
    let columns = [
        "<Sid",
        "% Activity",
        "<Event",
        "<Top Event Class",
        "<User",
        "<Program",
        "<Consumer Group",
        "<Database",
        "<Session Type",
        "# Samples Active",
        "Temp Max",
    ];
    let table = Table::new(&columns).with_rows(
        top(&ash.top_sessions, ROWS, |activity| activity.samples).into_iter().map(|activity| {
            vec![
                Cell::integer(activity.pid),
                Cell::percent(percent(activity.samples, total), 2),
                Cell::text(if activity.event.is_empty() { "" } else { event_name(activity) }),
                Cell::text(&*activity.class),
                Cell::text(&*activity.role),
                Cell::text(&*activity.application),
                Cell::text(&*activity.consumer_group),
                Cell::text(&*activity.database),
                Cell::text(&*activity.backend_type),
                Cell::count(activity.samples),
                Cell::bytes(activity.temp_bytes),
            ]
        }),
    );
    Section::new("ash-top-sessions", Group::History, "Top Sessions")
        .note(TEMP_MAX)
        .table_or(table.without_empty_columns(), "No session was active in a sample.")
}

/// The activity of each consumer group: its share, and what its sessions did.
fn consumer_groups(view: &View<'_>) -> Section {
    let ash = &view.document.ash;
    let total = total_samples(view);
    let mut groups: BTreeMap<&str, BTreeMap<&str, f64>> = BTreeMap::new();
    for activity in &ash.by_consumer_group {
        let classes = groups.entry(&activity.consumer_group).or_default();
        *classes.entry(&activity.class).or_default() += activity.samples.unwrap_or(0.0);
    }
    let samples = |classes: &BTreeMap<&str, f64>| Some(classes.values().sum::<f64>());
    let columns =
        ["<Consumer Group", "% Activity", "Avg Active Sessions", "Samples", "% CPU", "<Top Wait Class", "% Class"];
    let table = Table::new(&columns).with_rows(top(groups, ROWS, |(_, classes)| samples(classes)).into_iter().map(
        |(group, classes)| {
            let all = samples(&classes);
            let waits = classes.iter().filter(|(class, _)| **class != "CPU").map(|(class, samples)| (*class, *samples));
            let greatest = waits.max_by(|a, b| a.1.total_cmp(&b.1));
            vec![
                Cell::text(group),
                Cell::percent(percent(all, total), 2),
                Cell::decimal(ratio(all, ash.ticks), 2),
                Cell::count(all),
                Cell::percent(percent(Some(classes.get("CPU").copied().unwrap_or(0.0)), all), 1),
                Cell::text(greatest.map_or("", |(class, _)| class)),
                Cell::percent(percent(greatest.map(|(_, samples)| samples), all), 1),
            ]
        },
    ));
    Section::new("ash-consumer-groups", Group::History, "Top Consumer Groups")
        .note("cellar.consumer_group and cellar.consumer_group_mappings determine the consumer group of a session")
        .table_or(table, "Not available: the session samples contain no consumer group.")
}
