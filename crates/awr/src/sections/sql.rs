//! SQL statistics: lists ordered by a resource, complete texts, plan texts, plan changes.

use super::sql_lists;
use super::{Bar, Chart, Group, Section};
use crate::document::PlanHistory;
use crate::figures::plan_history::{Verdict, sampled_reason, statements};
use crate::figures::ratio;
use crate::sql_id;
use crate::table::{Cell, Table, duration};
use crate::view::{View, one_line, time_text, top};
use std::collections::BTreeMap;

/// The least share of DB time of a statement whose plan changes are listed, and the most statements.
const PLAN_CHANGE_PERCENT_MIN: f64 = 0.5;
const PLAN_CHANGE_STATEMENTS: usize = 20;
/// Columns of the script awr_plan_change, with the verdict on each change.
pub(super) const PLAN_CHANGE_COLUMNS: [&str; 10] = [
    "SNAP_ID",
    "NODE",
    "<BEGIN_INTERVAL_TIME",
    "<SQL_ID",
    "PLAN_HASH_VALUE",
    "EXECS",
    "AVG_ETIME",
    "AVG_LIO",
    "AVG_PIO",
    "<VERDICT",
];

pub fn sections(view: &View<'_>) -> Vec<Section> {
    if !view.has_statistics() {
        let hint = "set cellar.awr_track_statements to on, or install pg_stat_statements, to collect statements";
        let missing = view.missing("pg_stat_statements", hint);
        return vec![Section::new("sql-elapsed-time", Group::Sql, "SQL ordered by Elapsed Time").sentence(missing)];
    }
    let mut sections = sql_lists::sections(view);
    if let Some(section) = sections.first_mut() {
        section.blocks.push(super::Block::Chart(top_sql_chart(view)));
    }
    sections.extend([plan_changes(view), complete_texts(view), plan_texts(view)]);
    sections
}

fn top_sql_chart(view: &View<'_>) -> Chart {
    let bars = top(&view.sql, super::PREFERRED_ROWS, |sql| sql.elapsed_us).into_iter().map(|sql| Bar {
        label: format!("{} {}", sql.name(), one_line(sql.text, 40)),
        value: sql.elapsed_us.unwrap_or(0.0) / 1e6,
        text: format!(
            "{}, {}",
            duration(sql.elapsed_us.unwrap_or(0.0)),
            view.sql_percent(sql).map_or_else(String::new, |share| format!("{share:.1} % DB time"))
        ),
        link: sql.query_id.map(|query_id| format!("sql-{}", sql_id::format(query_id))),
    });
    Chart::Bars { title: "Top SQL by elapsed time".to_owned(), unit: "s", bars: bars.collect() }
}

pub(super) const VERDICTS: &str = "plan changed: another plan than before. same plan, slower storage: as many reads, which can explain the time. another reason: \
     what the session samples of the report show, if most show the same";

/// Executions per snapshot and plan of statements whose plan or time changed.
fn plan_changes(view: &View<'_>) -> Section {
    let histories = statements(view.document);
    // Statements that take no notable time change their times and plans by chance.
    let notable = histories.iter().filter(|history| {
        let share = view.model.percent_of_db_time(Some(history.elapsed_us()));
        history.is_notable() && share.is_none_or(|share| share >= PLAN_CHANGE_PERCENT_MIN)
    });
    let mut table = Table::new(&PLAN_CHANGE_COLUMNS);
    for history in top(notable, PLAN_CHANGE_STATEMENTS, |history| Some(history.elapsed_us())) {
        for (row, verdict) in &history.executions {
            table.push(plan_row(view, history.query_id, row, *verdict));
        }
    }
    Section::new("plan-changes", Group::Sql, "SQL Plan Changes")
        .note("AVG_ETIME in seconds; AVG_LIO and AVG_PIO in blocks per execution; NODE is the instance")
        .note(VERDICTS)
        .note("statements with at least 0.5 % of DB time, the longest time first")
        .table_or(table, "No statement changed its plan, or became slower with the same plan, between the snapshots.")
}

pub(super) fn plan_row(view: &View<'_>, query_id: i64, row: &PlanHistory, verdict: Verdict) -> Vec<Cell> {
    let average_us = ratio(row.elapsed_us, row.calls);
    // Only the samples of the report's intervals are known.
    let begin = view.document.begin.snap_id;
    let reason = match verdict {
        Verdict::SlowerElsewhere(_) if begin.is_none() || row.snap_id > begin => {
            sampled_reason(view.document, query_id)
        }
        _ => None,
    };
    let verdict_text = verdict.text() + &reason.map_or_else(String::new, |reason| format!(": {reason}"));
    vec![
        Cell::integer(row.snap_id),
        Cell::text(&*view.document.instance.id),
        Cell::text(time_text(&row.time)),
        Cell::SqlId(query_id),
        Cell::integer(row.plan_id),
        Cell::count(row.calls),
        Cell::seconds(average_us, if average_us >= Some(1e5) { 3 } else { 6 }),
        Cell::decimal(ratio(row.logical_reads, row.calls), 1),
        Cell::decimal(ratio(row.physical_reads, row.calls), 1),
        Cell::text(verdict_text),
    ]
}

fn complete_texts(view: &View<'_>) -> Section {
    let mut texts: BTreeMap<String, &str> = BTreeMap::new();
    for sql in view.sql.iter().filter(|sql| !sql.text.is_empty() && sql.query_id.is_some()) {
        texts.entry(sql.name()).or_insert(sql.text);
    }
    let ids: BTreeMap<String, i64> = view.sql.iter().filter_map(|sql| Some((sql.name(), sql.query_id?))).collect();
    let table = Table::new(&["<SQL Id", "_SQL Text"]).with_rows(texts.into_iter().map(|(name, text)| {
        let id = ids.get(&name).map_or(Cell::Absent, |query_id| Cell::SqlId(*query_id));
        vec![id, Cell::text(text)]
    }));
    Section::new("sql-texts", Group::Sql, "Complete List of SQL Text")
        .table_or(table, "Not available: only members of pg_monitor see the texts of statements")
}

pub(super) fn plan_texts(view: &View<'_>) -> Section {
    let rows = view.document.plans.iter().filter(|plan| !plan.text.is_empty());
    let table = Table::new(&["<SQL Id", "PLAN_HASH_VALUE", "_Plan"]).with_rows(
        rows.map(|plan| vec![Cell::sql_id(plan.query_id), Cell::integer(plan.plan_id), Cell::text(&*plan.text)]),
    );
    Section::new("sql-plans", Group::Sql, "Execution Plans")
        .table_or(table, view.missing("plans", "set cellar.awr_track_statements to on to collect plans"))
}
