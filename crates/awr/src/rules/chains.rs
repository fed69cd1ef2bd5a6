//! Chains of sessions that wait for locks of each other, from samples. Two rules use the chains; each wait counts in only one rule.

use crate::document::{Measure, SessionState};
use crate::view::{View, top};
use std::collections::{BTreeMap, BTreeSet};

/// The least time of a session idle in a transaction.
const IDLE_US_MIN: f64 = 60e6;

/// The sessions that one session blocked, directly or in a chain.
#[derive(Default)]
pub(super) struct Blocked<'a> {
    pub sessions: BTreeSet<i64>,
    /// The document does not list all sessions: at least this many were blocked.
    pub sessions_min: Option<usize>,
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
        match (self.sessions.len(), self.sessions_min) {
            (1, None) => "one session".to_owned(),
            (count, None) => format!("{count} sessions"),
            // Some sessions may be both in the list and in the sums.
            (count, Some(least)) => format!("at least {} sessions", count.max(least)),
        }
    }
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

/// Sessions at the heads of chains, by the samples of all sessions of the chain, most first.
pub(super) fn blockers<'a>(view: &View<'a>) -> Vec<(i64, Blocked<'a>)> {
    let mut blockers: BTreeMap<i64, Blocked<'a>> = BTreeMap::new();
    for wait in &view.document.sessions.blocking {
        let Some(pid) = wait.blocker_pid else { continue };
        let head = head_of_chain(view, pid);
        let blocked = blockers.entry(head).or_default();
        blocked.sessions.extend(wait.blocked_pid);
        if let Some(count) = wait.sessions.filter(|_| wait.blocked_pid.is_none()) {
            blocked.sessions_min = blocked.sessions_min.max(Some(count as usize));
        }
        blocked.samples += wait.samples.unwrap_or(0.0);
        if head == pid {
            blocked.state = blocked.state.or(wait.blocker_state.known());
            blocked.application = blocked.application.or(wait.blocker_application.known());
            blocked.last_query_id = blocked.last_query_id.or(wait.blocker_query_id);
        }
        blocked.query_id = blocked.query_id.or(wait.query_id);
    }
    top(blockers, usize::MAX, |(_, blocked)| Some(blocked.samples))
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
