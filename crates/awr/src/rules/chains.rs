//! Chains of sessions that wait for locks of each other, from samples. Two rules use the chains; each wait counts in only one rule.

use crate::document::{Measure, SessionState};
use crate::view::{View, top};
use std::collections::BTreeSet;

/// The least time of a session idle in a transaction.
const IDLE_US_MIN: f64 = 60e6;

/// The sessions that one session blocked, directly or in a chain.
pub(super) struct Blocked<'a> {
    pub sessions: f64,
    pub samples: f64,
    pub state: Option<&'a str>,
    pub application: Option<&'a str>,
    /// The last statement of the blocker.
    pub last_query_id: Option<i64>,
    /// A statement that waited.
    pub query_id: Option<i64>,
}

impl Blocked<'_> {
    /// The number of sessions, in words.
    pub fn session_count(&self) -> String {
        if self.sessions == 1.0 { "one session".to_owned() } else { format!("{:.0} sessions", self.sessions) }
    }
}

/// Sessions at the heads of chains, by the samples of all sessions of the chain, most first.
pub(super) fn blockers<'a>(view: &View<'a>) -> Vec<(i64, Blocked<'a>)> {
    let sessions = &view.document.sessions;
    let blocked = sessions.chains.iter().filter_map(|chain| {
        let pid = chain.head_pid?;
        let waits = || sessions.blocking.iter().filter(move |wait| wait.blocker_pid == Some(pid));
        Some((
            pid,
            Blocked {
                sessions: chain.sessions.unwrap_or(0.0),
                samples: chain.samples.unwrap_or(0.0),
                state: waits().find_map(|wait| wait.blocker_state.known()),
                application: waits().find_map(|wait| wait.blocker_application.known()),
                last_query_id: waits().find_map(|wait| wait.blocker_query_id),
                query_id: waits().find_map(|wait| wait.query_id),
            },
        ))
    });
    top(blocked, usize::MAX, |(_, blocked)| Some(blocked.samples))
}

/// Sessions that were idle in a transaction for long.
pub(super) fn long_idle<'a>(view: &View<'a>) -> impl Iterator<Item = &'a SessionState> {
    let sessions = &view.document.sessions.idle_in_transaction;
    sessions.into_iter().filter(|session| session.max_us.is_some_and(|us| us >= IDLE_US_MIN))
}

/// Time that sessions waited, directly or in a chain, for the given heads of chains; None without samples.
pub(super) fn blocked_us(view: &View<'_>, heads: &BTreeSet<i64>) -> Measure {
    let period_us = view.document.ash.period_us?;
    let blockers = blockers(view);
    Some(blockers.iter().filter(|(pid, _)| heads.contains(pid)).map(|(_, blocked)| blocked.samples * period_us).sum())
}

/// Sessions whose long idle time in a transaction made other sessions wait for a significant share of DB time.
pub(super) fn long_idle_blockers(view: &View<'_>) -> BTreeSet<i64> {
    let idle: BTreeSet<i64> = long_idle(view).filter_map(|session| session.pid).collect();
    match view.model.percent_of_db_time(blocked_us(view, &idle)) {
        Some(percent) if percent >= super::SIGNIFICANT_PERCENT => idle,
        _ => BTreeSet::new(),
    }
}
