//! Rules about transactions that stay open, and standbys that stay behind.

use super::chains::{blocked_us, blockers, long_idle, long_idle_blockers};
use super::{Found, Judgement};
use crate::document::SessionState;
use crate::table::{bytes, duration};
use crate::view::{View, top};

const LAG_US_MIN: f64 = 10e6;
const LAG_BYTES_MIN: f64 = 1_073_741_824.0;

/// The impact is the time that other sessions waited for the idle sessions. Idle sessions that blocked others less than the
/// significant share are reported without an impact.
pub(super) fn idle_in_transaction(view: &View<'_>) -> Judgement {
    let sessions = &view.document.sessions;
    if sessions.idle_in_transaction.is_empty()
        && view.document.databases.iter().all(|d| d.idle_in_transaction_us.is_none())
    {
        return None;
    }
    let blockers = blockers(view);
    let blocked = |session: &SessionState| blockers.iter().find(|(pid, _)| session.pid == Some(*pid)).map(|(_, b)| b);
    let samples = |session: &SessionState| blocked(session).map_or(0.0, |blocked| blocked.samples);
    let mut long = top(long_idle(view), 5, |session| session.max_us);
    long.sort_by(|a, b| samples(b).total_cmp(&samples(a)));
    let Some(worst) = long.first() else { return Some(Vec::new()) };
    let name =
        |session: &SessionState| session.pid.map_or_else(|| "A session".to_owned(), |pid| format!("Session {pid}"));
    let victims =
        blocked(worst).map_or_else(String::new, |blocked| format!(" and blocked {}", blocked.session_count()));
    let mut found = Found::new(format!("{} stayed idle in a transaction{victims}", name(worst)));
    found.impact_us = blocked_us(view, &long_idle_blockers(view)).filter(|us| *us > 0.0);
    for session in &long {
        let application = session.application.known().map_or_else(String::new, |name| format!(" ({name})"));
        let us = session.max_us.unwrap_or(0.0);
        let text = format!("{}{application} was idle in a transaction for {}", name(session), duration(us));
        found = found.evidence("idle-in-transaction", text);
        if let Some(blocked) = blocked(session) {
            let us = blocked.samples * view.document.ash.period_us.unwrap_or(0.0);
            let text =
                format!("other sessions waited {} for the locks of {}", duration(us), name(session).to_lowercase());
            found = found.evidence("blocking", text);
        }
    }
    let saved_us = found.impact_us;
    let advice = "Commit before waiting for a user or another service; set idle_in_transaction_session_timeout";
    Some(vec![found.recommend(advice, saved_us)])
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
