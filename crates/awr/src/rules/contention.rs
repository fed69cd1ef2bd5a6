//! Rules about waits for other sessions, which faster storage does not shorten.

use super::chains::{blocked_us, blockers, long_idle_blockers};
use super::{Found, Judgement, share_text};
use crate::document::Event;
use crate::figures::sum;
use crate::figures::time::foreground_waits;
use crate::table::duration;
use crate::view::{View, top};

/// Waits for heavyweight locks. The object checkpoint waits for writes, and the lock of a relation's extension is kept during
/// a write, not until the end of a transaction.
fn is_lock(event: &Event) -> bool {
    let is_write = event.event.starts_with("enq: KO") || &*event.event == "extend";
    !is_write && (&*event.kind == "Lock" || &*event.class == "Application")
}

pub(super) fn locks(view: &View<'_>) -> Judgement {
    if view.document.events.is_empty() {
        return None;
    }
    let events: Vec<&Event> = foreground_waits(view.document).filter(|event| is_lock(event)).collect();
    let Some(all_us) = sum(events.iter().map(|event| event.time_us)) else { return Some(Vec::new()) };
    // The rule idle-in-transaction reports the other waits.
    let idle = long_idle_blockers(view);
    let idle_us = blocked_us(view, &idle).unwrap_or(0.0);
    let us = (all_us - idle_us).max(0.0);
    let mut blockers = blockers(view);
    blockers.retain(|(pid, _)| !idle.contains(pid));
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
    if idle_us > 0.0 {
        found = found.evidence("blocking", format!("{} of it for sessions idle in a transaction", duration(idle_us)));
    }
    for (pid, blocked) in blockers.iter().take(3) {
        let description: Vec<&str> = blocked.application.into_iter().chain(blocked.state).collect();
        let state = if description.is_empty() { String::new() } else { format!(" ({})", description.join(", ")) };
        let sessions = blocked.session_count();
        let samples =
            if blocked.samples == 1.0 { "one sample".to_owned() } else { format!("{:.0} samples", blocked.samples) };
        let text = format!("session {pid}{state} blocked {sessions} in {samples}");
        found = found.evidence("blocking", text);
        if blocked.last_query_id.is_some() {
            let text = format!("last statement of session {pid}: {}", view.sql_text(blocked.last_query_id, 80));
            found = found.evidence("blocking", text);
        }
        if blocked.query_id.is_some() {
            let text = format!("waiting for session {pid}: {}", view.sql_text(blocked.query_id, 80));
            found = found.evidence("blocking", text);
        }
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
