//! Sessions and locks: idle in transaction, longest transactions, blocking chains.

use super::{Group, Section};
use crate::document::{List, SessionState};
use crate::figures::percent;
use crate::table::{Cell, Table};
use crate::view::{View, top};
use std::collections::BTreeSet;

const ROWS: usize = 15;

pub fn sections(view: &View<'_>) -> Vec<Section> {
    let sessions = &view.document.sessions;
    let (idle, longest) = (&sessions.idle_in_transaction, &sessions.longest_transactions);
    vec![
        blocking(view),
        states(
            view,
            "idle-in-transaction",
            "Sessions Idle in Transaction",
            idle,
            "No session was idle in a transaction.",
        ),
        states(
            view,
            "longest-transactions",
            "Longest Transactions",
            longest,
            "No transaction was open at the snapshots.",
        ),
    ]
}

fn states(
    view: &View<'_>,
    id: &'static str,
    title: &'static str,
    sessions: &List<SessionState>,
    none: &'static str,
) -> Section {
    let columns =
        ["Pid", "<Database", "<Role", "<Application", "<State", "Longest (s)", "Samples", "<SQL Id", "<SQL Text"];
    let table =
        Table::new(&columns).with_rows(top(sessions, ROWS, |session| session.max_us).into_iter().map(|session| {
            vec![
                Cell::integer(session.pid),
                Cell::text(&*session.database),
                Cell::text(&*session.role),
                Cell::text(&*session.application),
                Cell::text(&*session.state),
                Cell::seconds(session.max_us, 1),
                Cell::count(session.samples),
                Cell::sql_id(session.query_id),
                Cell::text(view.sql_text(session.query_id, 40)),
            ]
        }));
    Section::new(id, Group::Sessions, title)
        .note("SQL Id: the last statement of the session")
        .table_or(table.without_empty_columns(), none)
}

/// Who blocked whom, by samples. A session that blocks and is not blocked is the head of its chain.
fn blocking(view: &View<'_>) -> Section {
    let chains = &view.document.sessions.blocking;
    let blocked: BTreeSet<i64> = chains.iter().filter_map(|chain| chain.blocked_pid).collect();
    let total = crate::figures::sum(chains.iter().map(|chain| chain.samples));
    let columns = [
        "Blocker Pid",
        "<Head of Chain",
        "<Blocker State",
        "Blocked Pid",
        "<Lock Type",
        "<Relation",
        "Samples",
        "% Samples",
        "<SQL Id",
        "<Waiting SQL Text",
    ];
    let table = Table::new(&columns).with_rows(top(chains, ROWS, |chain| chain.samples).into_iter().map(|chain| {
        let is_head = chain.blocker_pid.is_some_and(|pid| !blocked.contains(&pid));
        vec![
            Cell::integer(chain.blocker_pid),
            Cell::text(if is_head { "yes" } else { "no" }),
            Cell::text(&*chain.blocker_state),
            match (chain.blocked_pid, chain.sessions) {
                (None, Some(count)) => Cell::text(format!("{count:.0} others")),
                (pid, _) => Cell::integer(pid),
            },
            Cell::text(&*chain.locktype),
            Cell::text(&*chain.relation),
            Cell::count(chain.samples),
            Cell::percent(percent(chain.samples, total), 1),
            Cell::sql_id(chain.query_id),
            Cell::text(view.sql_text(chain.query_id, 40)),
        ]
    }));
    Section::new("blocking", Group::Sessions, "Blocking Chains")
        .note("sampled: a sample is one session that waited for a lock at a tick of cellar.awr_sample_period")
        .table_or(table.without_empty_columns(), "No session was seen waiting for a lock of another session.")
}
