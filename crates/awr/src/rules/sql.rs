//! Rules about statements, plans and planner statistics.

use super::{Found, Judgement, share_text};
use crate::document::{AshActivity, Measure, Plan, Setting, TableStatistics, Text};
use crate::figures::plan_history::{Executions, StatementHistory, Verdict, statements};
use crate::figures::{ratio, sum};
use crate::sql_id;
use crate::table::{duration, grouped};
use crate::view::{View, one_line, top};

const TOP_SQL_PERCENT: f64 = 10.0;
const TOP_SQL_ROWS: usize = 5;
const ROWS_MIN: f64 = 10_000.0;
/// Changes that a finding about a plan lists at most.
const CHANGES: usize = 5;

/// Settings that change the plans of a server.
const PLANNER_SETTINGS: [&str; 18] = [
    "cellar.",
    "constraint_exclusion",
    "cpu_",
    "cursor_tuple_fraction",
    "default_statistics_target",
    "effective_cache_size",
    "enable_",
    "from_collapse_limit",
    "geqo",
    "hash_mem_multiplier",
    "jit",
    "join_collapse_limit",
    "max_parallel_workers",
    "parallel_",
    "plan_cache_mode",
    "random_page_cost",
    "seq_page_cost",
    "work_mem",
];

fn plan_name(plan_id: Option<i64>) -> String {
    plan_id.map_or_else(|| "unknown".to_owned(), |plan_id| plan_id.to_string())
}

/// The nodes of a plan, one per line of EXPLAIN that is not a property of a node.
fn plan_nodes<'a>(view: &View<'a>, query_id: i64, plan_id: Option<i64>) -> Vec<&'a str> {
    let is_plan = |plan: &&Plan| plan.query_id == Some(query_id) && plan.plan_id == plan_id;
    let text = view.document.plans.iter().find(is_plan).map_or("", |plan| &*plan.text);
    let nodes = text.lines().enumerate().filter_map(|(number, line)| match line.trim_start().strip_prefix("->") {
        Some(node) => Some(node.trim()),
        None => (number == 0).then_some(line.trim()),
    });
    nodes.collect()
}

/// Cost of an execution with a plan, and the plan's nodes that the other plan lacks.
fn plan_text(view: &View<'_>, history: &StatementHistory<'_>, plan_id: Option<i64>, other: Option<i64>) -> String {
    let sums = history.plans.get(&plan_id);
    let mut text = format!("plan {}", plan_name(plan_id));
    if let Some(us) = sums.and_then(Executions::average_us) {
        text += &format!(": {} per execution", duration(us));
    }
    if let Some(blocks) = sums.and_then(|sums| ratio(sums.logical_reads, Some(sums.calls))) {
        text += &format!(", {} blocks", grouped(blocks, 0));
    }
    let others = plan_nodes(view, history.query_id, other);
    let mut nodes = plan_nodes(view, history.query_id, plan_id);
    nodes.retain(|node| !others.contains(node));
    if !nodes.is_empty() {
        text += &format!(": {}", one_line(&nodes.join("; "), 100));
    }
    text
}

/// What changed in the interval and can have changed the statement's plan: settings, and statistics of the plans' tables.
fn changes(view: &View<'_>, query_id: i64, plans: [Option<i64>; 2]) -> Vec<(&'static str, String)> {
    let settings = view.document.settings.iter().filter(|setting| {
        setting.changed == Some(true) && PLANNER_SETTINGS.iter().any(|prefix| setting.name.starts_with(prefix))
    });
    let value =
        |setting: &Setting, value: &Text| match (value.known(), setting.unit.starts_with(|c: char| c.is_ascii_digit()))
        {
            (None, _) => "the default".to_owned(),
            (Some(value), true) => format!("{value} x {}", setting.unit),
            (Some(value), false) => format!("{value}{}", setting.unit),
        };
    let mut changes: Vec<(&str, String)> = settings
        .map(|setting| {
            let text = format!(
                "{} changed from {} to {}",
                setting.name,
                value(setting, &setting.begin),
                value(setting, &setting.end)
            );
            ("settings", text)
        })
        .collect();
    let nodes: Vec<&str> = plans.iter().flat_map(|plan| plan_nodes(view, query_id, *plan)).collect();
    let database = view.sql.iter().find(|sql| sql.query_id == Some(query_id)).map_or("", |sql| sql.database);
    let reads =
        |node: &&str, table: &str| node.split_once(" on ").and_then(|(_, rest)| rest.split(' ').next()) == Some(table);
    for table in view.document.tables.iter().filter(|table| &*table.database == database) {
        let analyzed = sum([table.analyze_count, table.autoanalyze_count]).is_some_and(|count| count > 0.0);
        if analyzed && nodes.iter().any(|node| reads(node, &table.name)) {
            changes.push(("dead-rows", format!("{}.{} was analyzed in the interval", table.schema, table.name)));
        }
    }
    changes
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
        let us = regression.excess_us;
        let digits = if regression.factor < 10.0 { 1 } else { 0 };
        let factor = grouped(regression.factor, digits);
        let mut found = Found::new(format!("Statement {name} runs with a plan that is {factor} times slower"))
            .impact(us)
            .evidence("plan-changes", format!("slow {}", plan_text(view, history, slow, fast)))
            .evidence("plan-changes", format!("fast {}", plan_text(view, history, fast, slow)))
            .evidence("sql-texts", view.sql_text(Some(history.query_id), 100));
        let changes = changes(view, history.query_id, [slow, fast]);
        let advice = match changes.is_empty() {
            true => "Compare the plans in Execution Plans; refresh or extend the statistics of the statement's tables",
            false => "Compare the plans in Execution Plans; check what changed in the interval",
        };
        for (section, text) in changes.into_iter().take(CHANGES) {
            found = found.evidence(section, text);
        }
        Some(found.recommend(advice, Some(us)))
    });
    Some(found.collect())
}

/// Time that a statement waited for I/O: timed where track_io_timing is on, or else sampled. None if neither is available.
fn io_us(view: &View<'_>, query_id: i64) -> Measure {
    let timed = sum(view.sql.iter().filter(|sql| sql.query_id == Some(query_id)).map(|sql| sql.io_us));
    let ash = &view.document.ash;
    let is_io = |activity: &&AshActivity| activity.query_id == Some(query_id) && &*activity.class == "User I/O";
    let samples = sum(ash.top_sql.iter().filter(is_io).map(|activity| activity.samples)).unwrap_or(0.0);
    let sampled = ash.period_us.filter(|_| !ash.top_sql.is_empty()).map(|period| samples * period);
    [timed, sampled].into_iter().flatten().reduce(f64::max)
}

pub(super) fn slower_storage(view: &View<'_>) -> Judgement {
    if view.document.plan_history.is_empty() && view.document.plans.is_empty() {
        return None;
    }
    let histories = statements(view.document);
    // A statement that became slower without waiting for storage waited for locks or a core.
    let excess_us = |history: &StatementHistory<'_>| {
        history.slower_storage_us.min(io_us(view, history.query_id).unwrap_or(f64::INFINITY))
    };
    let found = top(&histories, 3, |history| Some(excess_us(history))).into_iter().map(|history| {
        let name = sql_id::format(history.query_id);
        let us = excess_us(history);
        let mut found =
            Found::new(format!("Statement {name} became slower with the same plan and as many reads")).impact(us);
        for (row, verdict) in &history.executions {
            if let Verdict::SlowerStorage(_) = verdict {
                let snapshot = row.snap_id.map_or_else(String::new, |snap_id| format!("snapshot {snap_id}: "));
                found = found.evidence("plan-changes", format!("{snapshot}{}", verdict.text()));
            }
        }
        found
            .evidence("sql-texts", view.sql_text(Some(history.query_id), 100))
            .recommend("Look for what competes for the storage in these intervals, or for a degraded disk", Some(us))
    });
    Some(found.collect())
}

pub(super) fn top_sql(view: &View<'_>) -> Judgement {
    if !view.has_statistics() {
        return None;
    }
    let large = view.sql.iter().filter(|sql| view.sql_percent(sql).is_some_and(|percent| percent >= TOP_SQL_PERCENT));
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
        let statement = one_line(sql.text, 60);
        let text = format!("SQL {}: {}, {}{parts}: {statement}", sql.name(), duration(us), share_text(view, us));
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
