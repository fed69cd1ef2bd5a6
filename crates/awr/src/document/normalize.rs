//! Brings figures that a document contains twice, from session samples and from other sources, to one place.

use super::{Document, List, Measure, Service, SessionState};
use std::collections::BTreeMap;

/// Backend types whose time is DB time.
const FOREGROUND: [&str; 2] = ["client backend", "parallel worker"];

pub(super) fn normalize(document: &mut Document) {
    if document.sessions.blocking.is_empty() {
        document.sessions.blocking = std::mem::take(&mut document.ash.blocking);
    }
    add_sampled_idle_sessions(document);
    merge_services(document);
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
    fn samples_and_other_sources_are_merged() {
        let json = br#"{"format": 1,
            "services": [{"database": "d", "backend_type": "client backend", "application": "a", "cpu_us": 5},
                         {"database": "d", "backend_type": "parallel worker", "application": "a", "cpu_us": 7},
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
        let idle: Vec<_> =
            document.sessions.idle_in_transaction.iter().map(|session| (session.pid, session.max_us)).collect();
        assert_eq!(idle, [(Some(1), Some(200.0)), (Some(3), Some(50.0))]);
        assert_eq!(document.sessions.blocking.len(), 1);
    }
}
