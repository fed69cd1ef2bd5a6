//! Rules about statements, plans and planner statistics.

use super::{Found, Judgement, share_text};
use crate::document::TableStatistics;
use crate::figures::plan_history::{StatementHistory, Verdict, statements};
use crate::figures::sum;
use crate::sql_id;
use crate::table::duration;
use crate::view::{View, top};

const TOP_SQL_PERCENT: f64 = 10.0;
const TOP_SQL_ROWS: usize = 5;
const ROWS_MIN: f64 = 10_000.0;

fn plan_name(plan_id: Option<i64>) -> String {
    plan_id.map_or_else(|| "unknown".to_owned(), |plan_id| plan_id.to_string())
}

pub(super) fn plan_regression(view: &View<'_>) -> Judgement {
    if view.document.plan_history.is_empty() && view.document.plans.is_empty() {
        return None;
    }
    let histories = statements(view.document);
    let found = histories.iter().filter_map(|history| {
        let regression = history.regression()?;
        let name = sql_id::format(history.query_id);
        let (slow, fast) = (regression.slow_plan, regression.fast_plan);
        let average =
            |plan| history.plans.get(&plan).and_then(|sums| sums.average_us()).map_or_else(String::new, duration);
        let text = format!(
            "plan {}: {} per execution; plan {}: {}",
            plan_name(slow),
            average(slow),
            plan_name(fast),
            average(fast)
        );
        let us = regression.excess_us;
        Some(
            Found::new(format!("Statement {name} runs with a plan that is {:.1} times slower", regression.factor))
                .impact(us)
                .evidence("plan-changes", text)
                .evidence("sql-texts", view.sql_text(Some(history.query_id), 100))
                .recommend(
                    "Compare the plans in Execution Plans; refresh or extend the statistics of the statement's tables",
                    Some(us),
                ),
        )
    });
    Some(found.collect())
}

pub(super) fn slower_storage(view: &View<'_>) -> Judgement {
    if view.document.plan_history.is_empty() && view.document.plans.is_empty() {
        return None;
    }
    let histories = statements(view.document);
    let slower = |history: &&StatementHistory<'_>| Some(history.slower_storage_us);
    let found = top(&histories, 3, slower).into_iter().map(|history| {
        let name = sql_id::format(history.query_id);
        let us = history.slower_storage_us;
        let mut found =
            Found::new(format!("Statement {name} became slower with the same plan and as many reads")).impact(us);
        for (row, verdict) in &history.executions {
            if let Verdict::SlowerStorage(_) = verdict {
                let snapshot = row.snap_id.map_or_else(String::new, |snap_id| format!("snapshot {snap_id}: "));
                found = found.evidence("plan-changes", format!("{snapshot}{}", verdict.text()));
            }
        }
        found.recommend("Look for what competes for the storage in these intervals, or for a degraded disk", Some(us))
    });
    Some(found.collect())
}

pub(super) fn top_sql(view: &View<'_>) -> Judgement {
    if view.sql.is_empty() {
        return None;
    }
    let large = view
        .sql
        .iter()
        .filter(|sql| view.model.percent_of_db_time(sql.elapsed_us).is_some_and(|percent| percent >= TOP_SQL_PERCENT));
    let large = top(large, TOP_SQL_ROWS, |sql| sql.elapsed_us);
    let us: f64 = large.iter().filter_map(|sql| sql.elapsed_us).sum();
    if large.is_empty() {
        return Some(Vec::new());
    }
    let title = match large.len() {
        1 => "A statement takes a great part of DB time".to_owned(),
        count => format!("{count} statements take a great part of DB time"),
    };
    let mut found = Found::new(title).impact(us);
    for sql in large {
        let us = sql.elapsed_us.unwrap_or(0.0);
        let parts: Vec<String> = [("CPU", sql.percent_cpu()), ("I/O", sql.percent_io())]
            .into_iter()
            .filter_map(|(name, percent)| Some(format!("{:.0} % {name}", percent?)))
            .collect();
        let parts = if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) };
        let text = format!("SQL {}: {}, {}{parts}", sql.name(), duration(us), share_text(view, us));
        found = found.evidence("sql-elapsed-time", text);
    }
    Some(vec![found.recommend("Tune these statements first", None)])
}

fn was_analyzed(table: &TableStatistics) -> bool {
    let times = [&table.last_analyze, &table.last_autoanalyze];
    let counts = sum([table.analyze_count, table.autoanalyze_count]);
    times.iter().any(|time| !time.is_empty()) || counts.is_some_and(|count| count > 0.0)
}

/// Judged only if the document knows of an analyzed table: a repository without these columns shows none.
pub(super) fn missing_statistics(view: &View<'_>) -> Judgement {
    let tables = &view.document.tables;
    if !tables.iter().any(was_analyzed) {
        return None;
    }
    let never = tables.iter().filter(|table| {
        let was_read = sum([table.seq_scan, table.idx_scan]).is_some_and(|scans| scans > 0.0);
        table.n_live_tup.is_some_and(|rows| rows >= ROWS_MIN)
            && table.toast != Some(true)
            && was_read
            && !was_analyzed(table)
    });
    let never = top(never, TOP_SQL_ROWS, |table| table.n_live_tup);
    if never.is_empty() {
        return Some(Vec::new());
    }
    let mut found = Found::new("Tables that queries read were never analyzed");
    for table in &never {
        let rows = table.n_live_tup.unwrap_or(0.0);
        found = found
            .evidence("dead-rows", format!("{}.{} in {}: {rows:.0} rows", table.schema, table.name, table.database));
    }
    Some(vec![found.recommend("ANALYZE these tables", None)])
}
