//! Rules about transactions that stay open, and standbys that stay behind.

use super::{Found, Judgement};
use crate::document::SessionState;
use crate::figures::sum;
use crate::table::{bytes, duration};
use crate::view::{View, top};

const IDLE_US_MIN: f64 = 60e6;
const LAG_US_MIN: f64 = 10e6;
const LAG_BYTES_MIN: f64 = 1_073_741_824.0;

/// The impact is the time that other sessions waited for the idle session's locks.
pub(super) fn idle_in_transaction(view: &View<'_>) -> Judgement {
    let sessions = &view.document.sessions;
    if sessions.idle_in_transaction.is_empty()
        && view.document.databases.iter().all(|d| d.idle_in_transaction_us.is_none())
    {
        return None;
    }
    let long = |session: &&SessionState| session.max_us.filter(|us| *us >= IDLE_US_MIN);
    let long = top(&sessions.idle_in_transaction, 5, long);
    if long.is_empty() {
        return Some(Vec::new());
    }
    let blocked = sum(sessions
        .blocking
        .iter()
        .filter(|chain| long.iter().any(|session| session.pid.is_some() && session.pid == chain.blocker_pid))
        .map(|chain| chain.samples));
    let blocked_us = blocked.zip(view.document.ash.period_us).map(|(samples, period)| samples * period);
    let mut found = Found::new("Sessions stayed idle in a transaction");
    // A session that blocked others less than the significant share is reported without an impact.
    let share = view.model.percent_of_db_time(blocked_us).unwrap_or(0.0);
    found.impact_us = blocked_us.filter(|_| share >= super::SIGNIFICANT_PERCENT);
    for session in long {
        let pid = session.pid.map_or_else(|| "unknown".to_owned(), |pid| pid.to_string());
        let application = session.application.known().map_or_else(String::new, |name| format!(" ({name})"));
        let us = session.max_us.unwrap_or(0.0);
        let text = format!("session {pid}{application} was idle in a transaction for {}", duration(us));
        found = found.evidence("idle-in-transaction", text);
    }
    if let Some(us) = blocked_us.filter(|us| *us > 0.0) {
        found = found.evidence("blocking", format!("other sessions waited {} for their locks", duration(us)));
    }
    let advice = "Commit before waiting for a user or another service; set idle_in_transaction_session_timeout";
    Some(vec![found.recommend(advice, blocked_us)])
}

pub(super) fn replication_lag(view: &View<'_>) -> Judgement {
    let document = view.document;
    let mut found = Found::new("A standby or replication slot is far behind");
    for standby in &document.replication {
        let behind =
            standby.lag_bytes_end.filter(|lag| *lag >= LAG_BYTES_MIN).map(|lag| format!("{}B behind", bytes(lag)));
        let late =
            standby.replay_lag_us_max.filter(|us| *us >= LAG_US_MIN).map(|us| format!("{} behind", duration(us)));
        if let Some(text) = behind.or(late) {
            found = found.evidence("replication", format!("standby {}: {text}", standby.application));
        }
    }
    for slot in document.slots.iter().filter(|slot| slot.active == Some(false)) {
        if let Some(size) = slot.retained_bytes.filter(|size| *size >= LAG_BYTES_MIN) {
            found = found.evidence("slots", format!("inactive slot {} retains {}B of WAL", slot.name, bytes(size)));
        }
    }
    if found.evidence.is_empty() {
        return Some(Vec::new());
    }
    Some(vec![
        found.recommend("Check the network and the disks of the standby; drop slots that are not used any more", None),
    ])
}
