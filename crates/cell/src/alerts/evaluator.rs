//! Compares the state of the cell with the open alerts, and returns what changed.

use super::book::{Book, Event, Subject};
use super::definitions::{ALERTS, AlertDefinition, AlertType, Finding, Severity};
use super::observed::Observed;
use super::threshold::{Progress, Threshold, find_definition};
use crate::cell_metrics::{Observation, Reading, observe, observe_between};
use std::collections::HashMap;

/// Evaluations in succession without the object of a threshold after which the alert ends. More than one, because a database has
/// counters from its first I/O after the start of the cell.
const MISSING_MAX: u32 = 3;

#[derive(Default)]
pub struct Evaluator {
    /// The counters of stateless alerts, by definition and object.
    counters: HashMap<(&'static str, String), f64>,
    /// What each threshold has seen, by its name. A changed threshold begins again.
    progress: HashMap<String, (Threshold, Progress)>,
    /// Evaluations in succession without the object of a threshold, by the threshold's name.
    missing: HashMap<String, u32>,
    before: Option<Reading>,
}

impl Evaluator {
    /// Evaluates the definitions.
    pub fn definitions(&mut self, book: &mut Book, observed: &Observed, now_ms: u64) -> Vec<Event> {
        let mut events = Vec::new();
        for definition in &ALERTS {
            let (subject, findings) = (Subject::of_definition(definition), (definition.find)(observed));
            match definition.alert_type {
                AlertType::Stateless => events.extend(
                    self.increases(definition, findings).iter().map(|finding| book.record(&subject, finding, now_ms)),
                ),
                AlertType::Stateful => {
                    let missing = missing(book, definition.name, &findings);
                    let findings = findings.iter().chain(&missing);
                    events.extend(findings.filter_map(|finding| book.report(&subject, finding, now_ms)));
                }
            }
        }
        events
    }

    /// Returns what has happened since the last evaluation: counters of stateless alerts that have increased. A counter that decreased
    /// has started again from zero.
    fn increases(&mut self, definition: &AlertDefinition, findings: Vec<Finding>) -> Vec<Finding> {
        let increase = |finding: Finding| {
            let count = finding.value?;
            let before = self.counters.insert((definition.name, finding.object.clone()), count).unwrap_or(0.0);
            let increase = if count < before { count } else { count - before };
            let message = format!("{increase} {}", finding.message);
            (increase > 0.0).then_some(Finding { message, value: Some(increase), ..finding })
        };
        findings.into_iter().filter_map(increase).collect()
    }

    /// Computes the metrics. `reading` is None if there are no thresholds.
    pub fn observe(&mut self, reading: Option<Reading>) -> Vec<Observation> {
        let seen = match (&self.before, &reading) {
            (Some(before), Some(reading)) => observe_between(before, reading),
            (None, Some(reading)) => observe(reading),
            (_, None) => Vec::new(),
        };
        self.before = reading;
        seen
    }

    /// Evaluates the thresholds.
    pub fn thresholds(&mut self, book: &mut Book, seen: &[Observation], now_ms: u64) -> Vec<Event> {
        let dropped = dropped_thresholds(book);
        let mut events: Vec<Event> =
            dropped.iter().filter_map(|(subject, finding)| book.report(subject, finding, now_ms)).collect();
        self.progress.retain(|name, _| book.thresholds.iter().any(|threshold| threshold.name == *name));
        let missing = self.missing_objects(book);
        events.extend(missing.iter().filter_map(|(subject, finding)| book.report(subject, finding, now_ms)));
        for threshold in book.thresholds.clone() {
            let Some(value) = value_of(&threshold, seen) else { continue };
            let new = || (threshold.clone(), Progress::default());
            let (known, progress) = self.progress.entry(threshold.name.clone()).or_insert_with(new);
            if *known != threshold {
                (*known, *progress) = new();
            }
            let (metric, _) = threshold.metric_and_object();
            if let Some(finding) = progress.observe(&threshold, value) {
                events.extend(book.report(&Subject::of_metric(metric), &finding, now_ms));
            }
        }
        events
    }

    /// Returns the end of the alert of each threshold whose object is not there any more.
    fn missing_objects(&mut self, book: &Book) -> Vec<(Subject, Finding)> {
        let Some(reading) = &self.before else { return Vec::new() };
        let mut missing = HashMap::new();
        for threshold in &book.thresholds {
            let (metric, object) = threshold.metric_and_object();
            if !find_definition(metric).is_some_and(|definition| definition.has_object(reading, object)) {
                let count = self.missing.get(&threshold.name).copied().unwrap_or(0);
                missing.insert(threshold.name.clone(), count.saturating_add(1));
            }
        }
        self.missing = missing;
        let missing = &self.missing;
        let is_gone = |name: &str| missing.get(name).is_some_and(|count| *count >= MISSING_MAX);
        self.progress.retain(|name, _| !is_gone(name));
        let end = |threshold: &Threshold| {
            let (metric, object) = threshold.metric_and_object();
            let message = format!("the cell has no values of {metric} for {object} any more");
            (
                Subject::of_metric(metric),
                Finding { object: object.to_owned(), severity: Severity::Clear, message, value: None },
            )
        };
        book.thresholds.iter().filter(|threshold| is_gone(&threshold.name)).map(end).collect()
    }
}

/// Returns the end of each open alert about the state of the cell whose object is not there any more.
fn missing(book: &Book, definition: &str, findings: &[Finding]) -> Vec<Finding> {
    let is_missing =
        |event: &&Event| event.definition == definition && !findings.iter().any(|found| found.object == event.object);
    let gone = |event: &Event| {
        let message = format!("{} does not exist any more", event.object);
        Finding { object: event.object.clone(), severity: Severity::Clear, message, value: None }
    };
    book.open().into_iter().filter(is_missing).map(gone).collect()
}

/// Returns the end of each open alert whose threshold was dropped.
fn dropped_thresholds(book: &Book) -> Vec<(Subject, Finding)> {
    let end = |event: &Event| {
        let metric = event.metric.as_deref()?;
        let name = format!("{metric}.{}", event.object);
        if book.thresholds.iter().any(|threshold| threshold.name == name) {
            return None;
        }
        let message = format!("the threshold {name} was dropped");
        let finding = Finding { object: event.object.clone(), severity: Severity::Clear, message, value: None };
        Some((Subject::of_metric(metric), finding))
    };
    book.open().into_iter().filter_map(end).collect()
}

/// Returns the value of the metric of a threshold; None if the cell does not have it at present.
fn value_of(threshold: &Threshold, seen: &[Observation]) -> Option<f64> {
    let (metric, object) = threshold.metric_and_object();
    let is_of = |seen: &&Observation| seen.definition.name == metric && seen.object.eq_ignore_ascii_case(object);
    seen.iter().find(is_of)?.number
}

#[cfg(test)]
mod tests {
    use super::super::observed::{Mode, ObservedDisk};
    use super::*;
    use serde_json::json;

    fn observed(mode: Mode, repairs: u64) -> Observed {
        let disk = ObservedDisk { number: 0, path: "/d".to_owned(), failure_group: "a".to_owned(), mode };
        Observed { cell: "c1".to_owned(), copies: 2, disks: vec![disk], repairs, ..Observed::default() }
    }

    fn texts(events: Vec<Event>) -> Vec<String> {
        let text =
            |event: Event| format!("{} {} {} {}", event.name(), event.short_name, event.severity.name(), event.message);
        events.into_iter().map(text).collect()
    }

    #[test]
    fn a_disk_raises_alerts_and_clears_them() {
        let (mut book, mut evaluator) = (Book::default(), Evaluator::default());
        let mut at = |observed: &Observed, now| texts(evaluator.definitions(&mut book, observed, now));
        assert!(at(&observed(Mode::Online, 0), 1).is_empty());
        let raised = at(&observed(Mode::Offline, 0), 2);
        assert_eq!(raised[0], "1_1 CellDisk critical Cell disk CD_00_c1 (/d) is offline");
        assert!(raised[1].starts_with("2_1 DiskGroup critical Disk group DG_c1 is degraded"), "{raised:?}");
        assert!(at(&observed(Mode::Offline, 0), 3).is_empty());
        let cleared = at(&observed(Mode::Online, 0), 4);
        let expected = [
            "1_2 CellDisk clear Cell disk CD_00_c1 (/d) is online",
            "2_2 DiskGroup clear Disk group DG_c1 has all copies",
        ];
        assert_eq!(cleared, expected);
        at(&observed(Mode::Offline, 0), 5);
        let gone = at(&Observed { disks: Vec::new(), ..observed(Mode::Online, 0) }, 6);
        assert_eq!(gone[0], "3_2 CellDisk clear CD_00_c1 does not exist any more");
    }

    #[test]
    fn each_increase_of_a_counter_is_an_alert() {
        let (mut book, mut evaluator) = (Book::default(), Evaluator::default());
        let mut at = |repairs| texts(evaluator.definitions(&mut book, &observed(Mode::Online, repairs), 1));
        let text = |name: &str, count| {
            [format!("{name} Repair warning {count} damaged ranges of files were rewritten from another copy")]
        };
        assert!(at(0).is_empty());
        assert_eq!(at(3), text("1_1", 3));
        assert!(at(3).is_empty());
        assert_eq!(at(5), text("2_1", 2));
        assert_eq!(at(1), text("3_1", 1), "the counter started again");
    }

    fn reading(time_ms: u64, errors: u64, eligible: u64) -> Reading {
        let sample = |labels: serde_json::Value, value: u64| json!([{ "labels": labels, "value": value }]);
        let family = |name: &str, samples: serde_json::Value| json!({ "name": name, "samples": samples });
        Reading::recorded(json!({
            "time_ms": time_ms,
            "disks": [{ "disk_number": 0, "path": "/d" }],
            "metrics": [
                family("cellar_cell_info", sample(json!({ "name": "c1" }), 1)),
                family("cellar_disk_errors_total", sample(json!({ "disk": "/d" }), errors)),
                family("cellar_smart_scan_eligible_bytes_total", sample(json!({}), eligible)),
            ],
        }))
    }

    #[test]
    fn thresholds_raise_alerts_clear_them_and_end_with_the_threshold() {
        const MIB: u64 = 1 << 20;
        let (mut book, mut evaluator) = (Book::default(), Evaluator::default());
        let values = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect::<Vec<_>>()
        };
        book.create_threshold("CD_IO_ERRS.CD_00_c1", &values(&[("comparison", ">"), ("critical", "0")])).unwrap();
        let limits = [("comparison", ">"), ("warning", "5"), ("critical", "50")];
        book.create_threshold("SIO_IO_EL_OF_SEC.SMARTIO", &values(&limits)).unwrap();
        let mut at = |book: &mut Book, time, errors, eligible| {
            let seen = evaluator.observe(Some(reading(time, errors, eligible * MIB)));
            texts(evaluator.thresholds(book, &seen, time))
        };
        assert!(at(&mut book, 1000, 0, 0).is_empty());
        let raised = at(&mut book, 2000, 2, 10);
        assert_eq!(
            raised,
            [
                "1_1 CD_IO_ERRS critical CD_IO_ERRS of CD_00_c1 is 2 IO requests, which is beyond the threshold: \
                 critical > 0 IO requests",
                "2_1 SIO_IO_EL_OF_SEC warning SIO_IO_EL_OF_SEC of SMARTIO is 10.000 MB/sec, which is beyond the threshold: \
                 warning > 5.000 MB/sec, critical > 50.000 MB/sec",
            ]
        );
        let changed = at(&mut book, 3000, 2, 12);
        assert_eq!(changed.len(), 1);
        assert!(changed[0].starts_with("2_2 SIO_IO_EL_OF_SEC clear"), "{changed:?}");
        book.drop_threshold("CD_IO_ERRS.CD_00_c1").unwrap();
        let ended = at(&mut book, 4000, 2, 12);
        assert_eq!(ended, ["1_2 CD_IO_ERRS clear the threshold CD_IO_ERRS.CD_00_c1 was dropped"]);
    }

    /// A reading of a cell with a cell disk that had 2 errors, a database with 9 small requests and a flash cache with 5 MiB of dirty
    /// pages; or without the three.
    fn reading_with(has_objects: bool, time_ms: u64) -> Reading {
        let family = |name: &str, labels: serde_json::Value, value: u64| json!({ "name": name, "samples": [{ "labels": labels, "value": value }] });
        let mut metrics = vec![family("cellar_cell_info", json!({ "name": "c1" }), 1)];
        if has_objects {
            metrics.push(family("cellar_disk_errors_total", json!({ "disk": "/d" }), 2));
            let class = json!({ "database": "sales", "consumer_group": "other", "size": "small" });
            metrics.push(family("cellar_iorm_requests_total", class, 9));
            metrics.push(family("cellar_write_back_dirty_bytes", json!({}), 5 << 20));
        }
        let disks = if has_objects { json!([{ "disk_number": 0, "path": "/d" }]) } else { json!([]) };
        Reading::recorded(json!({ "time_ms": time_ms, "disks": disks, "metrics": metrics }))
    }

    #[test]
    fn an_alert_of_a_threshold_ends_when_its_object_is_gone_and_begins_again_with_the_object() {
        let (mut book, mut evaluator) = (Book::default(), Evaluator::default());
        let limits = [("comparison", ">"), ("critical", "1")].map(|(name, limit)| (name.to_owned(), limit.to_owned()));
        for name in ["CD_IO_ERRS.CD_00_c1", "DB_IO_RQ_SM.sales", "FC_BY_DIRTY.c1_FLASHCACHE", "CL_RUNQ.c1"] {
            book.create_threshold(name, &limits).unwrap();
        }
        let mut at = |has_objects, time| {
            let seen = evaluator.observe(Some(reading_with(has_objects, time)));
            texts(evaluator.thresholds(&mut book, &seen, time))
        };
        let raised = at(true, 1000);
        assert_eq!(raised.len(), 3, "{raised:?}");
        // As after a restart of the cell: the database may have had no I/O yet.
        for time in [2000, 3000] {
            assert_eq!(at(false, time), [""; 0]);
        }
        assert_eq!(at(true, 4000), [""; 0]);
        for time in [5000, 6000] {
            assert_eq!(at(false, time), [""; 0]);
        }
        let ended = [
            "1_2 CD_IO_ERRS clear the cell has no values of CD_IO_ERRS for CD_00_c1 any more",
            "2_2 DB_IO_RQ_SM clear the cell has no values of DB_IO_RQ_SM for sales any more",
            "3_2 FC_BY_DIRTY clear the cell has no values of FC_BY_DIRTY for c1_FLASHCACHE any more",
        ];
        assert_eq!(at(false, 7000), ended);
        assert_eq!(at(false, 8000), [""; 0]);
        let raised = at(true, 9000);
        assert!(raised.len() == 3 && raised[0].starts_with("4_1 CD_IO_ERRS critical"), "{raised:?}");
    }
}
