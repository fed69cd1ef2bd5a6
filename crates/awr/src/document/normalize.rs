//! Brings figures that a document contains twice, from session samples and from other sources, to one place.

use super::{Blocking, Chain, Document, How, List, Measure, Service, SessionState, names};
use std::collections::{BTreeMap, BTreeSet};

/// Backend types whose time is DB time.
const FOREGROUND: [&str; 2] = ["client backend", "parallel worker"];

pub fn is_foreground_type(backend_type: &str) -> bool {
    FOREGROUND.contains(&backend_type)
}

pub(super) fn normalize(document: &mut Document) {
    if document.sessions.blocking.is_empty() {
        document.sessions.blocking = std::mem::take(&mut document.ash.blocking);
    }
    if document.sessions.chains.is_empty() {
        document.sessions.chains = std::mem::take(&mut document.ash.chains);
    }
    if document.sessions.chains.is_empty() {
        document.sessions.chains = chains_of_pairs(&document.sessions.blocking);
    }
    remove_reads_that_cells_timed(document);
    name_lwlocks(document);
    add_sampled_idle_sessions(document);
    merge_services(document);
    limit_execution_time(document);
}

/// Limits the execution time of the time model to that of the sessions: the sum over statements contains background workers.
fn limit_execution_time(document: &mut Document) {
    let Some(executed) = document.executed_us() else { return };
    let executed_us: f64 = executed.values().sum();
    let mut times = document.time_model.to_vec();
    for time in times.iter_mut().filter(|time| &*time.name == names::time::EXECUTE) {
        time.us = time.us.map(|us| us.min(executed_us));
    }
    document.time_model = List::from(times);
}

/// Returns the chains that pairs of blocker and waiting session form, for a document without chains.
fn chains_of_pairs(pairs: &[Blocking]) -> List<Chain> {
    let mut waiting: BTreeMap<i64, BTreeSet<i64>> = BTreeMap::new();
    let mut samples: BTreeMap<i64, f64> = BTreeMap::new();
    for pair in pairs {
        let Some(blocker) = pair.blocker_pid else { continue };
        let head = head_of_pairs(pairs, blocker);
        waiting.entry(head).or_default().extend(pair.blocked_pid);
        *samples.entry(head).or_default() += pair.samples.unwrap_or(0.0);
    }
    let chain = |(head, sessions): (i64, BTreeSet<i64>)| Chain {
        head_pid: Some(head),
        sessions: Some(sessions.len() as f64),
        samples: samples.get(&head).copied(),
    };
    List::from(waiting.into_iter().map(chain).collect::<Vec<_>>())
}

/// Follows, from `pid`, the blocker of most samples. A cycle, which samples of different moments can form, ends the chain.
fn head_of_pairs(pairs: &[Blocking], pid: i64) -> i64 {
    let mut visited = BTreeSet::from([pid]);
    let mut head = pid;
    loop {
        let waits = pairs.iter().filter(|pair| pair.blocked_pid == Some(head) && pair.blocker_pid.is_some());
        let most = waits.max_by(|a, b| a.samples.unwrap_or(0.0).total_cmp(&b.samples.unwrap_or(0.0)));
        match most.and_then(|pair| pair.blocker_pid) {
            Some(blocker) if visited.insert(blocker) => head = blocker,
            _ => return head,
        }
    }
}

/// Reads of a session as the cells time them, and as samples show the same waits.
const TIMED_READS: [&str; 2] = ["cell single block physical read", "cell multiblock physical read"];
const SAMPLED_READS: [&str; 3] = ["DataFileRead", "AioIoCompletion", "AioIoUringExecution"];

/// Subtracts the reads that cells timed from the sampled waits for reads, which contain them: a wait counts once. What
/// remains of a sampled event is the time outside of cells: other storage, the kernel's page cache, the way to the cell.
fn remove_reads_that_cells_timed(document: &mut Document) {
    let is_timed = |event: &&super::Event| event.how == Some(How::Timed) && TIMED_READS.contains(&&*event.event);
    let mut timed_us: f64 = document.events.iter().filter(is_timed).filter_map(|event| event.time_us).sum();
    if timed_us == 0.0 {
        return;
    }
    let mut events = document.events.to_vec();
    for event in &mut events {
        let is_sampled = event.how == Some(How::Sampled) && event.foreground != Some(false);
        if let Some(us) = event.time_us.as_mut().filter(|_| is_sampled && SAMPLED_READS.contains(&&*event.event)) {
            let counted_twice = us.min(timed_us);
            *us -= counted_twice;
            timed_us -= counted_twice;
        }
    }
    document.events = List::from(events);
}

/// Adds the type to the names of LWLocks that are also names of other events: PostgreSQL has two waits WALWrite.
fn name_lwlocks(document: &mut Document) {
    let mut events = document.events.to_vec();
    for event in events.iter_mut().filter(|event| &*event.kind == "LWLock") {
        if document.events.iter().any(|other| other.event == event.event && other.kind != event.kind) {
            event.event = format!("{} (LWLock)", event.event).as_str().into();
        }
    }
    document.events = List::from(events);
}

/// Adds sessions that samples found idle in a transaction. A sample contains the age of the transaction, which is an upper
/// bound of the idle time; the number of samples is another one.
fn add_sampled_idle_sessions(document: &mut Document) {
    let mut sessions: Vec<SessionState> = document.sessions.idle_in_transaction.to_vec();
    for sampled in &document.ash.idle_in_transaction {
        let sampled_us = sampled.samples.zip(document.ash.period_us).map(|(samples, us)| samples * us);
        let idle_us = match (sampled.max_us, sampled_us) {
            (Some(age), Some(sampled)) => Some(age.min(sampled)),
            (age, sampled) => age.or(sampled),
        };
        match sessions.iter_mut().find(|session| session.pid.is_some() && session.pid == sampled.pid) {
            Some(session) => {
                session.max_us = greatest(session.max_us, idle_us);
                session.samples = session.samples.or(sampled.samples);
            }
            None => sessions.push(SessionState { max_us: idle_us, ..sampled.clone() }),
        }
    }
    document.sessions.idle_in_transaction = List::from(sessions);
}

fn greatest(a: Measure, b: Measure) -> Measure {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.max(b)),
        (a, b) => a.or(b),
    }
}

/// Sums CPU times and samples of foreground sessions by database and application.
fn merge_services(document: &mut Document) {
    let mut merged: BTreeMap<(String, String), Service> = BTreeMap::new();
    let is_foreground =
        |service: &&Service| service.backend_type.is_empty() || FOREGROUND.contains(&&*service.backend_type);
    for service in document.services.iter().filter(is_foreground).chain(&document.ash.by_service) {
        let key = (service.database.to_string(), service.application.to_string());
        let sum = merged.entry(key).or_default();
        sum.database = service.database.clone();
        sum.application = service.application.clone();
        if sum.role.is_empty() {
            sum.role = service.role.clone();
        }
        for (total, value) in [
            (&mut sum.samples, service.samples),
            (&mut sum.cpu_us, service.cpu_us),
            (&mut sum.run_queue_us, service.run_queue_us),
            (&mut sum.parse_us, service.parse_us),
            (&mut sum.plan_us, service.plan_us),
            (&mut sum.execute_us, service.execute_us),
            (&mut sum.commit_us, service.commit_us),
            (&mut sum.parallel_us, service.parallel_us),
            (&mut sum.active_us, service.active_us),
        ] {
            if let Some(value) = value {
                *total = Some(total.unwrap_or(0.0) + value);
            }
        }
    }
    document.services = List::from(merged.into_values().collect::<Vec<_>>());
}

#[cfg(test)]
mod tests {
    use crate::document::parse;

    #[test]
    fn a_read_of_a_cell_counts_once() {
        let json = br#"{"format": 1, "events": [
            {"event": "cell single block physical read", "class": "User I/O", "foreground": true, "waits": 9, "time_us": 300, "how": "timed"},
            {"event": "DataFileRead", "class": "User I/O", "foreground": false, "time_us": 50, "how": "sampled"},
            {"event": "DataFileRead", "class": "User I/O", "foreground": true, "time_us": 1000, "how": "sampled"},
            {"event": "AioIoCompletion", "class": "User I/O", "foreground": true, "time_us": 40, "how": "sampled"}]}"#;
        let times = |document: &crate::document::Document| -> Vec<_> {
            document.events.iter().map(|event| event.time_us).collect()
        };
        assert_eq!(times(&parse(json).unwrap()[0]), [Some(300.0), Some(50.0), Some(700.0), Some(40.0)]);
        let slow = String::from_utf8_lossy(json).replace("300", "1020");
        assert_eq!(times(&parse(slow.as_bytes()).unwrap()[0]), [Some(1020.0), Some(50.0), Some(0.0), Some(20.0)]);
    }

    #[test]
    fn events_of_the_same_name_are_told_apart() {
        let json = br#"{"format": 1, "events": [{"event": "WALWrite", "type": "IO", "time_us": 1}, {"event": "WALWrite", "type": "LWLock"},
            {"event": "WALInsert", "type": "LWLock"}]}"#;
        let document = parse(json).unwrap().remove(0);
        let names: Vec<&str> = document.events.iter().map(|event| &*event.event).collect();
        assert_eq!(names, ["WALWrite", "WALWrite (LWLock)", "WALInsert"]);
    }

    #[test]
    fn samples_and_other_sources_are_merged() {
        let json = br#"{"format": 1,
            "services": [{"database": "d", "backend_type": "client backend", "application": "a", "cpu_us": 5, "plan_us": 1, "execute_us": 4},
                         {"database": "d", "backend_type": "parallel worker", "application": "a", "cpu_us": 7, "parallel_us": 8},
                         {"backend_type": "checkpointer", "cpu_us": 9}],
            "sessions": {"idle_in_transaction": [{"pid": 1, "age_us": 10}], "blocking": null},
            "ash": {"period_us": 100, "by_service": [{"database": "d", "user": "u", "application": "a", "samples": 3}],
                    "blocking": [{"blocker_pid": 1, "blocked_pid": 2, "samples": 4}],
                    "idle_in_transaction": [{"pid": 1, "xact_age_us": 900, "samples": 2}, {"pid": 3, "xact_age_us": 50, "samples": 2}]}}"#;
        let document = parse(json).unwrap().remove(0);
        let service = &document.services[0];
        assert_eq!(
            (document.services.len(), service.cpu_us, service.samples, &*service.role),
            (1, Some(12.0), Some(3.0), "u")
        );
        assert_eq!((service.plan_us, service.execute_us, service.parallel_us), (Some(1.0), Some(4.0), Some(8.0)));
        let idle: Vec<_> =
            document.sessions.idle_in_transaction.iter().map(|session| (session.pid, session.max_us)).collect();
        assert_eq!(idle, [(Some(1), Some(200.0)), (Some(3), Some(50.0))]);
        assert_eq!(document.sessions.blocking.len(), 1);
    }
}
