//! Sections of the SQL report: one statement by plan, by AWR snapshot and by wait event.
//!
//! Statistics of executions are timed and counted; waits are estimates from session samples. A plan is identified by its plan
//! hash. Executions and samples without a plan, such as those of utility statements, have the plan None.

use super::sql::{PLAN_CHANGE_COLUMNS, VERDICTS, plan_row, plan_texts};
use super::{Bar, Chart, Column, Group, Section, history, summary};
use crate::document::{AshActivity, Document, How, Measure, SnapshotInterval, Timestamp};
use crate::figures::plan_history::{StatementHistory, Verdict, sampled_reason, statements};
use crate::figures::{percent, ratio, sum};
use crate::sql_id;
use crate::table::{Cell, Table, duration, grouped};
use crate::view::{Sql, View, by_plan, one_line};

const TEXT_CHARACTERS: usize = 400;
/// Bars of the chart of waits, and rows of waits per plan.
const BARS: usize = 12;
const WAITS_OF_PLAN: usize = 20;
/// Plans with a colour in the chart; those with the least elapsed time share the last one.
const SERIES_MAX: usize = 12;
const DAY_US: f64 = 86_400e6;
const NO_PLAN: &str = "(no plan)";
const NO_EXECUTION: &str =
    "No execution ended between the AWR snapshots. Session samples show executions that failed or had not ended.";

/// One plan of the statement, with its figures in the period.
struct Plan<'a> {
    plan_id: Option<i64>,
    figures: Sql<'a>,
}

/// All sections, in the order of the report.
pub fn sections(document: &Document) -> Vec<Section> {
    let view = View::new(document);
    let mut plans: Vec<Plan<'_>> =
        by_plan(document).into_iter().map(|(plan_id, figures)| Plan { plan_id, figures }).collect();
    plans.sort_by(|a, b| b.figures.elapsed_us.unwrap_or(0.0).total_cmp(&a.figures.elapsed_us.unwrap_or(0.0)));
    let histories = statements(document);
    let history = histories.iter().find(|history| Some(history.query_id) == document.statement.query_id);
    let mut sections = vec![summary::header(&view, "WORKLOAD REPOSITORY SQL Report")];
    if !document.notes.is_empty() {
        sections.push(summary::notes(&view));
    }
    sections.extend([
        sql_summary(&view, history),
        text(document),
        plan_list(document, &plans, history),
        totals(&plans),
        per_execution(&plans),
        by_snapshot(&view, history),
        waits(document, &plans),
        plan_texts(&view),
    ]);
    sections
}

fn plan_name(plan_id: Option<i64>) -> String {
    plan_id.filter(|plan_id| *plan_id != 0).map_or_else(|| NO_PLAN.to_owned(), |plan_id| plan_id.to_string())
}

fn plan_cell(plan_id: Option<i64>) -> Cell {
    Cell::Text(plan_name(plan_id))
}

/// Whether an interval of the history belongs to the period; the history begins before the period.
fn is_reported(document: &Document, snap_id: Option<i64>) -> bool {
    document.begin.snap_id.is_none() || snap_id > document.begin.snap_id
}

fn sql_summary(view: &View<'_>, history: Option<&StatementHistory<'_>>) -> Section {
    let document = view.document;
    let total = |figure: fn(&Sql<'_>) -> Measure| sum(view.sql.iter().map(figure));
    let elapsed_us = total(|sql| sql.elapsed_us);
    let is_of_sessions = view.sql.iter().any(|sql| !sql.is_background);
    let modules: Vec<String> = view.sql.iter().map(Sql::module).filter(|module| !module.is_empty()).collect();
    let columns = ["<SQL Id", "Query Id", "Elapsed Time", "Executions", "Mean Time", "% Total DB Time", "<SQL Module"];
    let table = Table::new(&columns).with_rows([vec![
        Cell::sql_id(document.statement.query_id),
        Cell::integer(document.statement.query_id),
        Cell::duration(elapsed_us),
        Cell::count(total(|sql| sql.calls)),
        Cell::duration(ratio(elapsed_us, total(|sql| sql.calls))),
        Cell::percent(percent(elapsed_us, view.model.db_time_us.filter(|_| is_of_sessions)), 2),
        Cell::text(modules.join(", ")),
    ]]);
    let section = Section::new("sql-summary", Group::Summary, "SQL Summary").table(table);
    let section = match document.statement.text.known() {
        Some(text) => section.sentence(one_line(text, TEXT_CHARACTERS)),
        None => section,
    };
    match chart(document, history) {
        Some(chart) => section.chart(chart),
        None => section,
    }
}

/// The mean time of an execution by AWR snapshot and plan; None without executions.
fn chart(document: &Document, history: Option<&StatementHistory<'_>>) -> Option<Chart> {
    let history = history?;
    let executed = || {
        let rows = history.executions.iter().map(|(row, _)| *row);
        rows.filter(|row| is_reported(document, row.snap_id) && row.calls > Some(0.0))
    };
    let mut plans: Vec<Option<i64>> = Vec::new();
    for row in executed() {
        if !plans.contains(&row.plan_id) {
            plans.push(row.plan_id);
        }
    }
    let has_others = plans.len() > SERIES_MAX;
    if has_others {
        let elapsed_us = |plan: &Option<i64>| history.reported.get(plan).map_or(0.0, |sums| sums.elapsed_us);
        plans.sort_by(|a, b| elapsed_us(b).total_cmp(&elapsed_us(a)));
        plans.truncate(SERIES_MAX - 1);
    }
    let slots = document.snapshots.iter().map(|snapshot| {
        let columns = executed().filter(|row| row.snap_id == snapshot.snap_id).filter_map(|row| {
            let us = ratio(row.elapsed_us, row.calls)?;
            let plan = plan_name(row.plan_id);
            let snap = row.snap_id.map_or_else(|| "?".to_owned(), |snap| snap.to_string());
            let calls = grouped(row.calls.unwrap_or(0.0), 0);
            let description = format!("AWR snapshot {snap}, plan {plan}: {} in {calls} executions", duration(us));
            let series = plans.iter().position(|plan| *plan == row.plan_id).unwrap_or(plans.len());
            Some(Column { series, us, description })
        });
        (slot_label(snapshot, document.elapsed_us), columns.collect::<Vec<_>>())
    });
    let slots: Vec<_> = slots.collect();
    let mut series: Vec<String> = plans.iter().map(|plan| format!("Plan {}", plan_name(*plan))).collect();
    if has_others {
        series.push("Other plans".to_owned());
    }
    slots.iter().any(|(_, columns)| !columns.is_empty()).then(|| Chart::Columns {
        title: "Mean elapsed time of an execution by AWR snapshot and plan".to_owned(),
        series,
        slots,
    })
}

/// The time of an AWR snapshot; with the date if the period is longer than a day.
fn slot_label(snapshot: &SnapshotInterval, elapsed_us: Measure) -> String {
    let Some(time) = Timestamp::parse(&snapshot.time) else { return snapshot.time.to_string() };
    if elapsed_us <= Some(DAY_US) {
        return time.clock();
    }
    // 23-Nov-26 05:00:00
    let text = time.to_string();
    format!("{} {}", &text[..6], &time.clock()[..5])
}

fn text(document: &Document) -> Section {
    let known = document.statement.query_id.filter(|_| !document.statement.text.is_empty());
    let table = Table::new(&["<SQL Id", "_SQL Text"])
        .with_rows(known.map(|query_id| vec![Cell::SqlId(query_id), Cell::text(&*document.statement.text)]));
    Section::new("sql-texts", Group::Sql, "Full SQL Text")
        .table_or(table, "Not available: the repository contains no text of the statement")
}

fn plan_list(document: &Document, plans: &[Plan<'_>], history: Option<&StatementHistory<'_>>) -> Section {
    let id = document.statement.query_id.map_or_else(|| "(unknown)".to_owned(), sql_id::format);
    let columns = [
        "#",
        "Plan Hash Value",
        "Total Elapsed Time",
        "% Total",
        "Executions",
        "Mean Time",
        "x Fastest",
        "1st Capture Snap ID",
        "Last Capture Snap ID",
    ];
    let elapsed_us = sum(plans.iter().map(|plan| plan.figures.elapsed_us));
    let mean_us = |plan: &Plan<'_>| ratio(plan.figures.elapsed_us, plan.figures.calls);
    let fastest_us = plans.iter().filter_map(mean_us).min_by(f64::total_cmp);
    let snaps = |plan_id: Option<i64>| -> Vec<i64> {
        let rows = document.plan_history.iter().filter(|row| {
            row.plan_id.filter(|plan_id| *plan_id != 0) == plan_id
                && row.calls > Some(0.0)
                && is_reported(document, row.snap_id)
        });
        rows.filter_map(|row| row.snap_id).collect()
    };
    let table = Table::new(&columns).with_rows(plans.iter().enumerate().map(|(index, plan)| {
        let snaps = snaps(plan.plan_id);
        vec![
            Cell::integer(i64::try_from(index + 1).ok()),
            plan_cell(plan.plan_id),
            Cell::duration(plan.figures.elapsed_us),
            Cell::percent(percent(plan.figures.elapsed_us, elapsed_us), 1),
            Cell::count(plan.figures.calls),
            Cell::duration(mean_us(plan)),
            Cell::decimal(ratio(mean_us(plan), fastest_us), 1),
            Cell::integer(snaps.iter().min().copied()),
            Cell::integer(snaps.iter().max().copied()),
        ]
    }));
    let mut section = Section::new("sql-plan-list", Group::Sql, format!("SQL ID: {id}"))
        .note(
            "1st Capture and Last Capture Snap IDs are the first and last AWR snapshots of the period with executions",
        )
        .table_or(table, NO_EXECUTION);
    for sentence in history.map(|history| conclusions(document, history)).unwrap_or_default() {
        section = section.sentence(sentence);
    }
    section
}

/// What changed in the period, in sentences.
fn conclusions(document: &Document, history: &StatementHistory<'_>) -> Vec<String> {
    let snaps = |is_wanted: fn(Verdict) -> bool| -> Option<String> {
        let rows = history.executions.iter().filter(|(row, verdict)| {
            is_wanted(*verdict) && row.calls > Some(0.0) && is_reported(document, row.snap_id)
        });
        let mut snaps: Vec<i64> = rows.filter_map(|(row, _)| row.snap_id).collect();
        snaps.dedup();
        let list: Vec<String> = snaps.iter().map(i64::to_string).collect();
        (!list.is_empty()).then(|| list.join(", "))
    };
    let mut sentences = Vec::new();
    if let Some(snaps) = snaps(|verdict| matches!(verdict, Verdict::PlanChanged(_))) {
        sentences.push(format!("Plan changed. AWR snapshots: {snaps}."));
    }
    if let Some(regression) = history.regression() {
        sentences.push(format!(
            "Plan {} takes {:.1} times as long as plan {} and reads more blocks: {} more in the period.",
            plan_name(regression.slow_plan),
            regression.factor,
            plan_name(regression.fast_plan),
            duration(regression.excess_us.max(0.0))
        ));
    }
    if let Some(snaps) = snaps(|verdict| matches!(verdict, Verdict::SlowerStorage(_))) {
        let excess = duration(history.slower_storage_us.max(0.0));
        sentences.push(format!(
            "Same plan, slower storage: as many reads, but {excess} more than executions took before. AWR snapshots: {snaps}."
        ));
    }
    if let Some(snaps) = snaps(|verdict| matches!(verdict, Verdict::MoreReads(_))) {
        sentences.push(format!("Same plan, more reads: more blocks and more time. AWR snapshots: {snaps}."));
    }
    if let Some(snaps) = snaps(|verdict| matches!(verdict, Verdict::MoreCpu(_))) {
        sentences.push(format!("Same plan, more CPU time: as many reads, but more computing. AWR snapshots: {snaps}."));
    }
    if let Some(snaps) = snaps(|verdict| matches!(verdict, Verdict::SlowerElsewhere(_))) {
        let reason =
            sampled_reason(document, history.query_id).map_or_else(String::new, |reason| format!(", {reason}"));
        sentences.push(format!("Same plan, slower for another reason than reads{reason}. AWR snapshots: {snaps}."));
    }
    if sentences.is_empty() && !history.reported.is_empty() {
        sentences.push("Neither the plan nor the time of an execution changed notably.".to_owned());
    }
    sentences
}

/// Figures of a plan that are totals, and averages per execution in the next section.
fn totals(plans: &[Plan<'_>]) -> Section {
    let columns = [
        "Plan Hash Value",
        "Executions",
        "Elapsed Time",
        "CPU Time",
        "CPU Queue",
        "I/O Wait",
        "Max Time",
        "Rows Processed",
        "Buffer Gets",
        "Physical Reads",
        "Temp Blocks",
        "WAL",
        "Parse Calls",
        "Parse Time",
        "Plannings",
        "Plan Time",
        "Offload Eligible",
        "Saved by SI",
        "Offload Returned",
    ];
    let table = Table::new(&columns).with_rows(plans.iter().map(|plan| {
        let sql = &plan.figures;
        vec![
            plan_cell(plan.plan_id),
            Cell::count(sql.calls),
            Cell::duration(sql.elapsed_us),
            Cell::duration(sql.cpu_us),
            Cell::duration(sql.run_queue_us),
            Cell::duration(sql.io_us),
            Cell::duration(sql.max_us),
            Cell::count(sql.rows),
            Cell::count(sql.gets),
            Cell::count(sql.reads),
            Cell::count(sql.temp_blocks),
            Cell::bytes(sql.wal_bytes),
            Cell::count(sql.parse_calls),
            Cell::duration(sql.parse_us),
            Cell::count(sql.plan_calls),
            Cell::duration(sql.plan_us),
            Cell::bytes(sql.eligible_bytes),
            Cell::bytes(sql.saved_bytes),
            Cell::bytes(sql.returned_bytes),
        ]
    }));
    Section::new("sql-plan-statistics", Group::Sql, "Plan Statistics")
        .note("CPU Queue is the time waiting for a core; gets, reads and temporary blocks are blocks. All but Elapsed Time include parallel workers, so that CPU Time and CPU Queue can exceed Elapsed Time")
        .note("CPU Time and CPU Queue of statements with a mean CPU Time below 1 ms are estimated from a part of the executions")
        .note("I/O Wait is measured if track_io_timing is on. Offload Eligible, Saved by SI, Offload Returned: Smart Scan bytes")
        .table_or(table, NO_EXECUTION)
}

fn per_execution(plans: &[Plan<'_>]) -> Section {
    let columns = [
        "Plan Hash Value",
        "Executions",
        "Elapsed Time",
        "CPU Time",
        "CPU Queue",
        "I/O Wait",
        "Rows Processed",
        "Buffer Gets",
        "Physical Reads",
        "Temp Blocks",
        "WAL",
        "Parse Time",
        "Plan Time",
        "Offload Eligible",
        "Saved by SI",
        "Offload Returned",
    ];
    let table = Table::new(&columns).with_rows(plans.iter().map(|plan| {
        let sql = &plan.figures;
        let each = |total: Measure| ratio(total, sql.calls);
        vec![
            plan_cell(plan.plan_id),
            Cell::count(sql.calls),
            Cell::duration(each(sql.elapsed_us)),
            Cell::duration(each(sql.cpu_us)),
            Cell::duration(each(sql.run_queue_us)),
            Cell::duration(each(sql.io_us)),
            Cell::decimal(each(sql.rows), 1),
            Cell::decimal(each(sql.gets), 1),
            Cell::decimal(each(sql.reads), 1),
            Cell::decimal(each(sql.temp_blocks), 1),
            Cell::bytes(each(sql.wal_bytes)),
            Cell::duration(ratio(sql.parse_us, sql.parse_calls)),
            Cell::duration(ratio(sql.plan_us, sql.plan_calls)),
            Cell::bytes(each(sql.eligible_bytes)),
            Cell::bytes(each(sql.saved_bytes)),
            Cell::bytes(each(sql.returned_bytes)),
        ]
    }));
    Section::new("sql-plan-averages", Group::Sql, "Plan Statistics per Execution")
        .note("Parse Time and Plan Time are averages of a parse and a planning; a prepared statement can be parsed and planned once for \
               many executions")
        .table_or(table, NO_EXECUTION)
}

/// Executions per AWR snapshot and plan.
fn by_snapshot(view: &View<'_>, history: Option<&StatementHistory<'_>>) -> Section {
    let mut table = Table::new(&PLAN_CHANGE_COLUMNS);
    if let Some(history) = history {
        for (row, verdict) in &history.executions {
            if is_reported(view.document, row.snap_id) {
                table.push(plan_row(view, history.query_id, row, *verdict));
            }
        }
    }
    Section::new("plan-changes", Group::Sql, "SQL Statistics by Snapshot")
        .note("AVG_ETIME in seconds; AVG_LIO and AVG_PIO in blocks per execution; NODE is the instance")
        .note(VERDICTS)
        .note("A verdict also considers the AWR snapshots before the period")
        .table_or(table, NO_EXECUTION)
}

/// Session samples by plan and event: plans as in the other sections, then those that only samples contain.
fn waits(document: &Document, plans: &[Plan<'_>]) -> Section {
    let samples = &document.history.groups;
    let of_plan = |plan_id: Option<i64>| -> Vec<&AshActivity> {
        samples.iter().filter(|activity| activity.plan_id == plan_id).collect()
    };
    let mut ids: Vec<Option<i64>> = plans.iter().map(|plan| plan.plan_id).collect();
    for activity in samples {
        if !ids.contains(&activity.plan_id) {
            ids.push(activity.plan_id);
        }
    }
    let columns = [
        "Plan Hash Value",
        "<Event",
        "<Event Class",
        "% of Plan",
        "% Activity",
        "Samples",
        "Sessions",
        "Active Time (s)",
        "<How",
    ];
    let mut table = Table::new(&columns);
    for plan_id in ids {
        let activities = of_plan(plan_id);
        let total = sum(activities.iter().map(|activity| activity.samples));
        for activity in activities.into_iter().take(WAITS_OF_PLAN) {
            table.push(vec![
                plan_cell(plan_id),
                Cell::text(history::event_name(activity)),
                Cell::text(&*activity.class),
                Cell::percent(percent(activity.samples, total), 1),
                Cell::percent(percent(activity.samples, document.history.samples), 1),
                Cell::count(activity.samples),
                Cell::count(activity.sessions),
                Cell::seconds(activity.time_us, 1),
                Cell::how(activity.time_us.map(|_| How::Sampled), activity.stderr_us),
            ]);
        }
    }
    let mut section = Section::new("sql-waits", Group::Sql, "Top Events by Plan")
        .note("N samples of a state mean about N sample periods in the state; ± is the standard error. Parallel workers included")
        .note("(no plan): the statement was parsed or planned, or is a utility statement. Idle waits of an execution, such as PgSleep, are included");
    if let Some(lost) = document.history.lost.filter(|lost| *lost > 0.0) {
        section = section.note(format!("{lost} samples of all statements were lost: raise cellar.awr_sample_buffer"));
    }
    if !samples.is_empty() {
        section = section.chart(waits_chart(document));
    }
    section.table_or(table, "The statement was executing in no session sample.")
}

fn waits_chart(document: &Document) -> Chart {
    let bars = document.history.groups.iter().take(BARS).map(|activity| Bar {
        label: format!("{} {}", plan_name(activity.plan_id), history::event_name(activity)),
        value: activity.time_us.unwrap_or(0.0) / 1e6,
        text: format!("{} ±{}", duration(activity.time_us.unwrap_or(0.0)), duration(activity.stderr_us.unwrap_or(0.0))),
        link: None,
    });
    Chart::Bars { title: "Session samples by plan and event".to_owned(), unit: "s", bars: bars.collect() }
}
