//! Details of a statement, a session or a database.

use crate::top::grid::{Key, count, printable, seconds, wait_event};
use crate::top::history::{History, Sample, StatementKey};
use crate::top::reading::Session;
use crate::top::view::View;
use cellar_awr::figures::time::CLASSES as CLASS_NAMES;
use cellar_awr::table::bytes;
use std::collections::BTreeMap;

pub struct Detail {
    pub title: String,
    pub lines: Vec<String>,
}

pub fn lines(key: &Key, view: &View, history: &History) -> Detail {
    match key {
        Key::Statement(key) => statement(key, view, history),
        Key::Session(pid) => session(*pid, view, history),
        Key::Database(name) => database(name, view, history),
        Key::Row(name) => Detail { title: name.clone(), lines: Vec::new() },
    }
}

fn statement(key: &StatementKey, view: &View, history: &History) -> Detail {
    let row = view.statements.iter().find(|row| row.key() == *key);
    let is_sample = |sample: &Sample| sample.statement.as_ref() == Some(key);
    let identifier =
        key.query_id.map_or_else(|| "no query identifier yet".to_owned(), |id| format!("query identifier {id}"));
    let mut lines = vec![format!("{identifier}, database {}", printable(&key.database)), String::new()];
    if let Some(row) = row {
        let text = row.text.as_deref().map_or_else(|| "(the text is not available)".to_owned(), printable);
        lines.extend([text, String::new()]);
        let figures = [
            ("average active sessions", Some(count(row.active_sessions))),
            ("executions per second", row.calls_per_second.map(count)),
            ("mean time", row.mean_seconds.map(seconds)),
            ("CPU, cores", row.cpu_cores.map(count)),
            ("rows per second", row.rows_per_second.map(count)),
            ("shared blocks hit per second", row.blocks_hit_per_second.map(count)),
            ("shared blocks read per second", row.blocks_read_per_second.map(count)),
            ("temporary blocks per second", row.temp_blocks_per_second.map(count)),
            ("WAL per second", row.wal_bytes_per_second.map(bytes)),
            ("eligible for offload per second", row.eligible_bytes_per_second.map(bytes)),
            ("returned by Smart Scan per second", row.returned_bytes_per_second.map(bytes)),
        ];
        let known = figures.into_iter().filter_map(|(name, figure)| Some(format!("{name:<36}{:>12}", figure?)));
        lines.extend(known);
        lines.push(String::new());
    }
    lines.extend(events(history, &is_sample));
    let is_executing = |session: &&Session| session.is_active && StatementKey::of(session).as_ref() == Some(key);
    let executing = view.sessions.iter().filter(is_executing);
    lines.extend(session_list("Sessions that execute the statement", executing));
    Detail { title: format!(" Statement {} ", key.query_id.map(cellar_awr::sql_id::format).unwrap_or_default()), lines }
}

fn session(pid: i32, view: &View, history: &History) -> Detail {
    let title = format!(" Session {pid} ");
    let Some(session) = view.sessions.iter().find(|session| session.pid == pid) else {
        return Detail { title, lines: vec!["The session does not exist any more.".to_owned()] };
    };
    let text = |text: &Option<String>| text.as_deref().map(printable);
    let blockers: Vec<String> = session.blockers.iter().map(i32::to_string).collect();
    let fields = [
        ("process", Some(session.backend_type.clone())),
        ("leader", session.leader_pid.map(|pid| pid.to_string())),
        ("database", text(&session.database)),
        ("role", text(&session.role)),
        ("application", Some(printable(&session.application))),
        ("consumer group", text(&session.consumer_group)),
        ("client", text(&session.client)),
        ("state", text(&session.state)),
        ("waits for", Some(wait_event(session))),
        ("wait class", session.is_active.then(|| session.wait_class.clone())),
        ("statement since", session.query_age_seconds.map(seconds)),
        ("transaction since", session.xact_age_seconds.map(seconds)),
        ("blocked by", Some(blockers.join(", "))),
        ("SQL Id", session.query_id.map(cellar_awr::sql_id::format)),
    ];
    let known = fields.into_iter().filter_map(|(name, value)| Some((name, value.filter(|value| !value.is_empty())?)));
    let mut lines: Vec<String> = known.map(|(name, value)| format!("{name:<20}{value}")).collect();
    lines.extend([String::new(), text(&session.query).unwrap_or_default(), String::new()]);
    lines.extend(events(history, &|sample: &Sample| sample.pid == pid));
    let blocked = view.sessions.iter().filter(|other| other.blockers.contains(&pid));
    lines.extend(session_list("Sessions that wait for this one", blocked));
    let blocking = view.sessions.iter().filter(|other| session.blockers.contains(&other.pid));
    lines.extend(session_list("Sessions that this one waits for", blocking));
    Detail { title, lines }
}

fn database(name: &str, view: &View, history: &History) -> Detail {
    let mut lines = events(history, &|sample: &Sample| sample.database.as_deref() == Some(name));
    let statements = view.statements.iter().filter(|row| row.database == name).take(10);
    let statements: Vec<String> = statements
        .map(|row| {
            let rate = row.calls_per_second.map(count).unwrap_or_default();
            let text = row.text.as_deref().map(printable).unwrap_or_default();
            let sql_id = row.sql_id.as_deref().unwrap_or_default();
            format!("{sql_id:<14}{:>8}{rate:>10}  {text}", count(row.active_sessions))
        })
        .collect();
    if !statements.is_empty() {
        lines.push(format!("{:<14}{:>8}{:>10}  statement", "SQL Id", "active", "calls/s"));
        lines.extend(statements);
        lines.push(String::new());
    }
    let io = view.cell_io.iter().filter(|row| row.database == name);
    let io: Vec<String> = io
        .map(|row| {
            let figure = |value: Option<f64>, format: fn(f64) -> String| value.map(format).unwrap_or_default();
            format!(
                "{:<11}{:<20}{:>10}{:>10}{:>10}{:>10}",
                row.class.as_deref().unwrap_or_default(),
                row.kind,
                figure(row.operations_per_second, count),
                figure(row.bytes_per_second, bytes),
                figure(row.mean_seconds, seconds),
                figure(row.p99_seconds, seconds)
            )
        })
        .collect();
    if !io.is_empty() {
        lines.push(format!("{:<31}{:>10}{:>10}{:>10}{:>10}", "cell I/O", "ops/s", "bytes/s", "mean", "p99"));
        lines.extend(io);
        lines.push(String::new());
    }
    let active = view.sessions.iter().filter(|session| session.is_active && session.database.as_deref() == Some(name));
    lines.extend(session_list("Active sessions", active));
    Detail { title: format!(" Database {} ", printable(name)), lines }
}

/// Where samples spent their time: wait events with their average active sessions and their share.
fn events(history: &History, is_sample: &dyn Fn(&Sample) -> bool) -> Vec<String> {
    let slots = history.window().count().max(1) as f64;
    let mut counts: BTreeMap<(usize, String), f64> = BTreeMap::new();
    for sample in history.window().flat_map(|slot| &slot.samples).filter(|sample| is_sample(sample)) {
        let event = sample.event.clone().unwrap_or_else(|| "on a CPU, or waiting for one".to_owned());
        *counts.entry((sample.class, event)).or_default() += 1.0;
    }
    let total: f64 = counts.values().sum();
    let mut sorted: Vec<_> = counts.into_iter().collect();
    sorted.sort_by(|a, b| b.1.total_cmp(&a.1));
    let mut lines = vec![format!("{:<16}{:<32}{:>8}{:>8}", "wait class", "wait event, last minute", "active", "%")];
    lines.extend(sorted.into_iter().map(|((class, event), samples)| {
        let share = 100.0 * samples / total;
        format!("{:<16}{:<32}{:>8}{share:>8.1}", CLASS_NAMES[class], printable(&event), count(samples / slots))
    }));
    lines.push(String::new());
    lines
}

fn session_list<'a>(title: &str, sessions: impl Iterator<Item = &'a Session>) -> Vec<String> {
    let sessions = sessions.map(|session| {
        let age = session.query_age_seconds.map(seconds).unwrap_or_default();
        let state = session.state.as_deref().unwrap_or_default();
        let query = session.query.as_deref().map(printable).unwrap_or_default();
        format!("{:>8}  {state:<20}{:<28}{age:>9}  {query}", session.pid, wait_event(session))
    });
    let sessions: Vec<String> = sessions.collect();
    if sessions.is_empty() { Vec::new() } else { [format!("{title}:")].into_iter().chain(sessions).collect() }
}
