//! Rules about waits for other sessions, which no storage cures.

use super::{Found, Judgement, share_text};
use crate::document::Event;
use crate::figures::sum;
use crate::figures::time::foreground_waits;
use crate::table::duration;
use crate::view::{View, top};

/// Waits for heavyweight locks. The object checkpoint waits for writes, not for a session.
fn is_lock(event: &Event) -> bool {
    let is_object_checkpoint = event.event.starts_with("enq: KO");
    !is_object_checkpoint && (&*event.kind == "Lock" || &*event.class == "Application")
}

pub(super) fn locks(view: &View<'_>) -> Judgement {
    if view.document.events.is_empty() {
        return None;
    }
    let events: Vec<&Event> = foreground_waits(view.document).filter(|event| is_lock(event)).collect();
    let Some(us) = sum(events.iter().map(|event| event.time_us)) else { return Some(Vec::new()) };
    let blocking = &view.document.sessions.blocking;
    let head = top(blocking, 1, |chain| chain.samples).into_iter().next();
    let title = match head.and_then(|chain| chain.blocker_pid) {
        Some(pid) => format!("Sessions waited for locks, most of all for session {pid}"),
        None => "Sessions waited for locks of other sessions".to_owned(),
    };
    let mut found = Found::new(title).impact(us);
    for event in top(events, 3, |event| event.time_us) {
        let us = event.time_us.unwrap_or(0.0);
        found =
            found.evidence("foreground-events", format!("{}: {}, {}", event.event, duration(us), share_text(view, us)));
    }
    for chain in top(blocking, 3, |chain| chain.samples) {
        let pid = |pid: Option<i64>| pid.map_or_else(|| "unknown".to_owned(), |pid| pid.to_string());
        let samples = chain.samples.unwrap_or(0.0);
        let state = chain.blocker_state.known().map_or_else(String::new, |state| format!(" ({state})"));
        let sql = chain.query_id.map_or_else(String::new, |_| format!(" in: {}", view.sql_text(chain.query_id, 60)));
        let text = format!(
            "session {}{state} blocked session {} in {samples:.0} samples{sql}",
            pid(chain.blocker_pid),
            pid(chain.blocked_pid)
        );
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
