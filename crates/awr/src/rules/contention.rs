//! Rules about waits for other sessions, which no storage cures.

use super::{Found, Judgement, share_text};
use crate::document::Event;
use crate::figures::sum;
use crate::figures::time::foreground_waits;
use crate::table::duration;
use crate::view::{View, top};
use std::collections::{BTreeMap, BTreeSet};

/// Waits for heavyweight locks. The object checkpoint waits for writes, not for a session.
fn is_lock(event: &Event) -> bool {
    let is_object_checkpoint = event.event.starts_with("enq: KO");
    !is_object_checkpoint && (&*event.kind == "Lock" || &*event.class == "Application")
}

/// The sessions that one session blocked.
#[derive(Default)]
struct Blocked<'a> {
    sessions: BTreeSet<i64>,
    samples: f64,
    state: Option<&'a str>,
    /// A statement that waited.
    query_id: Option<i64>,
}

/// Returns the session at the head of a chain: follows, from `pid`, the blocker of most samples. A cycle, which samples of
/// different moments can form, ends the chain.
fn head_of_chain(view: &View<'_>, pid: i64) -> i64 {
    let mut visited = BTreeSet::from([pid]);
    let mut head = pid;
    loop {
        let waits = view.document.sessions.blocking.iter().filter(|wait| wait.blocked_pid == Some(head));
        match top(waits, 1, |wait| wait.samples).first().and_then(|wait| wait.blocker_pid) {
            Some(blocker) if visited.insert(blocker) => head = blocker,
            _ => return head,
        }
    }
}

/// Sessions at the heads of chains, by the samples of all sessions of the chain.
fn blockers<'a>(view: &View<'a>) -> Vec<(i64, Blocked<'a>)> {
    let mut blockers: BTreeMap<i64, Blocked<'a>> = BTreeMap::new();
    for wait in &view.document.sessions.blocking {
        let Some(pid) = wait.blocker_pid else { continue };
        let head = head_of_chain(view, pid);
        let blocked = blockers.entry(head).or_default();
        blocked.sessions.extend(wait.blocked_pid);
        blocked.samples += wait.samples.unwrap_or(0.0);
        if head == pid {
            blocked.state = blocked.state.or(wait.blocker_state.known());
        }
        blocked.query_id = blocked.query_id.or(wait.query_id);
    }
    top(blockers, usize::MAX, |(_, blocked)| Some(blocked.samples))
}

pub(super) fn locks(view: &View<'_>) -> Judgement {
    if view.document.events.is_empty() {
        return None;
    }
    let events: Vec<&Event> = foreground_waits(view.document).filter(|event| is_lock(event)).collect();
    let Some(us) = sum(events.iter().map(|event| event.time_us)) else { return Some(Vec::new()) };
    let blockers = blockers(view);
    let title = match blockers.first() {
        Some((pid, _)) => format!("Sessions waited for locks, most of all for session {pid}"),
        None => "Sessions waited for locks of other sessions".to_owned(),
    };
    let mut found = Found::new(title).impact(us);
    for event in top(events, 3, |event| event.time_us) {
        let us = event.time_us.unwrap_or(0.0);
        found =
            found.evidence("foreground-events", format!("{}: {}, {}", event.event, duration(us), share_text(view, us)));
    }
    for (pid, blocked) in blockers.iter().take(3) {
        let state = blocked.state.map_or_else(String::new, |state| format!(" ({state})"));
        let sql =
            blocked.query_id.map_or_else(String::new, |_| format!(" in: {}", view.sql_text(blocked.query_id, 60)));
        let sessions = match blocked.sessions.len() {
            1 => "one session".to_owned(),
            count => format!("{count} sessions"),
        };
        let text = format!("session {pid}{state} blocked {sessions} in {:.0} samples{sql}", blocked.samples);
        found = found.evidence("blocking", text);
    }
    Some(vec![
        found.recommend("Shorten the transactions that keep the locks; storage does not cure lock waits", Some(us)),
    ])
}

pub(super) fn lwlocks(view: &View<'_>) -> Judgement {
    if view.document.events.is_empty() {
        return None;
    }
    let events: Vec<&Event> = foreground_waits(view.document).filter(|event| &*event.class == "Concurrency").collect();
    let Some(us) = sum(events.iter().map(|event| event.time_us)) else { return Some(Vec::new()) };
    let worst = top(events, 3, |event| event.time_us);
    let name = worst.first().map_or("", |event| &*event.event);
    let mut found = Found::new(format!("Sessions contended for internal locks, most of all for {name}")).impact(us);
    for event in worst {
        let us = event.time_us.unwrap_or(0.0);
        found =
            found.evidence("foreground-events", format!("{}: {}, {}", event.event, duration(us), share_text(view, us)));
    }
    Some(vec![found.recommend("Lower the number of active sessions, for example with a connection pool", Some(us))])
}
