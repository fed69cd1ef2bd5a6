//! Metrics of the server in Prometheus text format, for the textfile collector of node_exporter.

use super::reading::Session;
use super::view::{StatementRow, View};
use cellar_awr::figures::time::CLASSES as CLASS_NAMES;
use cellar_cell::metrics::family::{Family, Labels, Value};
use cellar_cell::metrics::text;
use std::collections::BTreeMap;

/// Statements with the most active sessions that have a metric.
const STATEMENTS_MAX: usize = 20;

pub fn exposition(view: &View) -> String {
    text(&families(view))
}

/// The names do not depend on the values.
pub fn families(view: &View) -> Vec<Family> {
    let server = view.server.as_ref();
    let label = |name: &'static str, value: &str| -> Labels { vec![(name, value.to_owned())] };
    let classes = CLASS_NAMES.iter().filter(|class| server.is_some() && **class != "Idle").map(|class| {
        let active = view.active_sessions.iter().find(|row| row.wait_class == *class);
        (label("wait_class", class), active.map_or(0.0, |row| row.now))
    });
    let mut states: BTreeMap<String, u64> = BTreeMap::new();
    for session in view.sessions.iter().filter(|session| session.backend_type == "client backend") {
        *states.entry(session.state.clone().unwrap_or_else(|| "unknown".to_owned())).or_default() += 1;
    }
    let is_blocked = |session: &&Session| !session.blockers.is_empty();
    let longest = view.sessions.iter().filter_map(|session| session.xact_age_seconds).fold(0.0, f64::max);
    let awr = server.and_then(|server| server.awr.as_ref());
    let statements = view.statements.iter().filter(|row| row.active_sessions > 0.0).take(STATEMENTS_MAX);
    let statement_labels = |row: &StatementRow| -> Labels {
        let sql_id = row.sql_id.clone().unwrap_or_default();
        vec![("sql_id", sql_id), ("database", row.database.clone())]
    };
    let mut activity: BTreeMap<Labels, f64> = BTreeMap::new();
    for row in statements {
        *activity.entry(statement_labels(row)).or_default() += row.active_sessions;
    }
    vec![
        Family::gauge("cellar_server_up", "1 if the server answers, 0 if not")
            .value(Value::Integer(u64::from(server.is_some()))),
        Family::gauge("cellar_server_uptime_seconds", "Time since the server was started")
            .with(server, |server| (Vec::new(), Value::Real(server.uptime_seconds))),
        Family::gauge("cellar_server_cpus", "CPUs of the server's machine")
            .with(server.and_then(|server| server.cpus), |cpus| (Vec::new(), Value::Integer(cpus as u64))),
        Family::gauge("cellar_server_active_sessions", "Active sessions, by wait class")
            .with(classes, |(labels, value)| (labels, Value::Real(value))),
        Family::gauge("cellar_server_sessions", "Sessions of clients, by state")
            .with(states, |(state, count)| (label("state", &state), Value::Integer(count))),
        Family::gauge("cellar_server_blocked_sessions", "Sessions that wait for a lock of another session")
            .with(server, |_| (Vec::new(), Value::Integer(view.sessions.iter().filter(is_blocked).count() as u64))),
        Family::gauge("cellar_server_longest_transaction_seconds", "Age of the oldest transaction")
            .with(server, |_| (Vec::new(), Value::Real(longest))),
        Family::gauge(
            "cellar_server_statement_active_sessions",
            "Active sessions of the statements with the most of them",
        )
        .with(activity, |(labels, value)| (labels, Value::Real(value))),
        Family::gauge("cellar_awr_last_snapshot_time_seconds", "Time of the last AWR snapshot, in seconds since 1970")
            .with(awr, |awr| (Vec::new(), Value::Real(awr.last_snapshot_time))),
        Family::gauge(
            "cellar_awr_snapshot_interval_seconds",
            "Time between AWR snapshots; 0 if none are taken regularly",
        )
        .with(awr, |awr| (Vec::new(), Value::Real(awr.interval_seconds))),
        Family::gauge("cellar_awr_failed_sources", "Sources that the last AWR snapshot could not read")
            .with(awr, |awr| (Vec::new(), Value::Integer(awr.failed_sources as u64))),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_reference_lists_exactly_the_metrics() {
        let view = View {
            schema_version: 1,
            time: 0.0,
            rate_seconds: None,
            server: None,
            active_sessions: Vec::new(),
            statements: Vec::new(),
            sessions: Vec::new(),
            databases: Vec::new(),
            cell_io: Vec::new(),
            cells: Vec::new(),
            missing: Vec::new(),
        };
        let page =
            std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/cli.md")).unwrap();
        let rows = page.lines().filter(|line| line.starts_with("| `cellar_"));
        let names = rows.flat_map(|row| row.split('|').nth(1).unwrap_or_default().split('`').skip(1).step_by(2));
        let documented: BTreeSet<String> = names.map(str::to_owned).collect();
        let existing: BTreeSet<String> = families(&view).iter().map(|family| family.name.to_owned()).collect();
        assert_eq!(documented, existing);
    }
}
