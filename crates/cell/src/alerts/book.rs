//! The history of alerts: which are open, and what has happened.
//!
//! An alert has a sequence number. A stateful alert begins with event 1; a change of its severity, and its end, are further events of
//! the sequence. A stateless alert is a sequence of one event. There is at most one open alert for an object of a definition.

use super::definitions::{AlertDefinition, AlertType, Finding, Severity};
use super::threshold::Threshold;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// How long events are kept after their alert ended.
const KEPT_MS: u64 = 7 * 24 * 3600 * 1000;
/// Events that are kept.
const EVENTS_MAX: usize = 2000;
pub const THRESHOLDS_MAX: usize = 500;
/// Longest name of a threshold, and longest `examinedBy`, in bytes.
const TEXT_MAX: usize = 256;
/// Prefix of the definitions of alerts about metrics.
pub const METRIC_PREFIX: &str = "StatefulAlert_";

/// Whether the program of `alert_hook` has the event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Notification {
    /// No program is configured, or it did not run yet.
    None = 0,
    Sent = 1,
    Failed = 3,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    pub sequence: u64,
    /// Number of the event in its sequence, from 1.
    pub number: u32,
    pub definition: String,
    pub short_name: String,
    pub alert_type: AlertType,
    pub severity: Severity,
    pub object: String,
    /// Of an alert about a threshold.
    pub metric: Option<String>,
    pub value: Option<f64>,
    pub message: String,
    pub action: String,
    pub begin_ms: u64,
    /// When the alert ended; the same for all events of the sequence.
    pub end_ms: Option<u64>,
    pub examined_by: Option<String>,
    pub notification: Notification,
}

impl Event {
    pub fn name(&self) -> String {
        format!("{}_{}", self.sequence, self.number)
    }

    fn is_open(&self) -> bool {
        self.alert_type == AlertType::Stateful && self.end_ms.is_none()
    }

    /// When the event is not needed any more.
    fn expires_ms(&self) -> u64 {
        match self.is_open() {
            true => u64::MAX,
            false => self.end_ms.unwrap_or(self.begin_ms).saturating_add(KEPT_MS),
        }
    }
}

/// What alerts are about: a definition, or a threshold of a metric.
#[derive(Debug, Clone)]
pub struct Subject {
    pub definition: String,
    pub short_name: String,
    pub action: String,
    pub metric: Option<String>,
}

impl Subject {
    pub fn of_definition(definition: &AlertDefinition) -> Self {
        Self {
            definition: definition.name.to_owned(),
            short_name: definition.short_name.to_owned(),
            action: definition.action.to_owned(),
            metric: None,
        }
    }

    pub fn of_metric(metric: &str) -> Self {
        Self {
            definition: format!("{METRIC_PREFIX}{metric}"),
            short_name: metric.to_owned(),
            action: "Examine the metric with LIST METRICHISTORY, or change the threshold with ALTER THRESHOLD."
                .to_owned(),
            metric: Some(metric.to_owned()),
        }
    }
}

fn check_text(what: &str, text: &str) -> Result<(), String> {
    match text.len() > TEXT_MAX || text.contains(char::is_control) {
        true => Err(format!("{what} has more than {TEXT_MAX} bytes, or control characters")),
        false => Ok(()),
    }
}

/// Everything that survives a restart.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
pub struct Book {
    /// Increases with each change.
    pub revision: u64,
    last_sequence: u64,
    pub events: Vec<Event>,
    pub thresholds: Vec<Threshold>,
}

impl Book {
    /// Takes the state of an object of a stateful alert. Returns the new event, if the severity changed.
    pub fn report(&mut self, subject: &Subject, finding: &Finding, now_ms: u64) -> Option<Event> {
        let last = self.open_event(&subject.definition, &finding.object);
        let (sequence, number) = match (last, finding.severity) {
            (None, Severity::Clear) => return None,
            (Some(last), severity) if last.severity == severity => return None,
            (Some(last), _) => (last.sequence, last.number + 1),
            (None, _) => (self.last_sequence + 1, 1),
        };
        Some(self.add(subject, AlertType::Stateful, finding, (sequence, number), now_ms))
    }

    /// Adds a stateless alert.
    pub fn record(&mut self, subject: &Subject, finding: &Finding, now_ms: u64) -> Event {
        self.add(subject, AlertType::Stateless, finding, (self.last_sequence + 1, 1), now_ms)
    }

    fn add(
        &mut self,
        subject: &Subject,
        alert_type: AlertType,
        finding: &Finding,
        (sequence, number): (u64, u32),
        now_ms: u64,
    ) -> Event {
        let end_ms = (finding.severity == Severity::Clear).then_some(now_ms);
        let event = Event {
            sequence,
            number,
            definition: subject.definition.clone(),
            short_name: subject.short_name.clone(),
            alert_type,
            severity: finding.severity,
            object: finding.object.clone(),
            metric: subject.metric.clone(),
            value: finding.value,
            message: finding.message.clone(),
            action: subject.action.clone(),
            begin_ms: now_ms,
            end_ms,
            examined_by: None,
            notification: Notification::None,
        };
        if end_ms.is_some() {
            let of_sequence = self.events.iter_mut().filter(|event| event.sequence == sequence);
            of_sequence.for_each(|event| event.end_ms = end_ms);
        }
        self.last_sequence = self.last_sequence.max(sequence);
        self.events.push(event.clone());
        self.changed();
        event
    }

    /// Returns the last event of the open alert about an object.
    fn open_event(&self, definition: &str, object: &str) -> Option<&Event> {
        let is_about = |event: &&Event| event.is_open() && event.definition == definition && event.object == object;
        self.events.iter().rev().find(is_about)
    }

    /// Returns the last event of each open alert.
    pub fn open(&self) -> Vec<&Event> {
        let mut seen = BTreeSet::new();
        let open = self.events.iter().rev().filter(|event| event.is_open());
        open.filter(|event| seen.insert(event.sequence)).collect()
    }

    fn changed(&mut self) {
        self.revision += 1;
    }

    /// Removes events that are not kept any more.
    pub fn expire(&mut self, now_ms: u64) {
        let before = self.events.len();
        self.events.retain(|event| event.expires_ms() > now_ms);
        while self.events.len() > EVENTS_MAX {
            // The oldest event that says nothing about an open alert's present state.
            let last_open: BTreeSet<String> = self.open().into_iter().map(Event::name).collect();
            let Some(oldest) = self.events.iter().position(|event| !last_open.contains(&event.name())) else { break };
            self.events.remove(oldest);
        }
        if self.events.len() != before {
            self.changed();
        }
    }

    fn known(&self) -> String {
        match self.events.len() {
            0 => "this cell has no alerts".to_owned(),
            _ => "LIST ALERTHISTORY shows the alerts".to_owned(),
        }
    }

    fn check_exist(&self, names: &[String]) -> Result<(), String> {
        let exists = |name: &&String| self.events.iter().any(|event| event.name() == **name);
        match names.iter().find(|name| !exists(name)) {
            Some(name) => Err(format!("alert \"{name}\" does not exist; {}", self.known())),
            None => Ok(()),
        }
    }

    pub fn examine(&mut self, names: &[String], by: &str) -> Result<(), String> {
        self.check_exist(names)?;
        check_text("examinedBy", by)?;
        let by = Some(by.to_owned()).filter(|by| !by.is_empty());
        for event in self.events.iter_mut().filter(|event| names.contains(&event.name())) {
            event.examined_by = by.clone();
        }
        self.changed();
        Ok(())
    }

    /// Removes alerts, each with all events of its sequence.
    pub fn drop_events(&mut self, names: &[String]) -> Result<(), String> {
        self.check_exist(names)?;
        let is_named = |event: &Event| names.contains(&event.name());
        let sequences: BTreeSet<u64> =
            self.events.iter().filter(|event| is_named(event)).map(|event| event.sequence).collect();
        let kept = self.events.iter().find(|event| sequences.contains(&event.sequence) && !is_named(event));
        if let Some(kept) = kept {
            let (name, sequence) = (kept.name(), kept.sequence);
            return Err(format!("alert {name} is of sequence {sequence}, too; drop all alerts of a sequence at once"));
        }
        self.events.retain(|event| !sequences.contains(&event.sequence));
        self.changed();
        Ok(())
    }

    pub fn create_threshold(&mut self, name: &str, values: &[(String, String)]) -> Result<(), String> {
        check_text("the name of a threshold", name)?;
        let threshold = Threshold::new(name, values)?;
        if self.thresholds.iter().any(|existing| existing.is_named(&threshold.name)) {
            return Err(format!("threshold {} exists already; change it with ALTER THRESHOLD", threshold.name));
        }
        if self.thresholds.len() >= THRESHOLDS_MAX {
            return Err(format!("this cell has {THRESHOLDS_MAX} thresholds, which is the maximum; drop one first"));
        }
        self.thresholds.push(threshold);
        self.thresholds.sort_by(|left, right| left.name.cmp(&right.name));
        self.changed();
        Ok(())
    }

    fn threshold_index(&self, name: &str) -> Result<usize, String> {
        let found = self.thresholds.iter().position(|threshold| threshold.is_named(name));
        found.ok_or_else(|| format!("threshold \"{name}\" does not exist; LIST THRESHOLD shows the thresholds"))
    }

    pub fn alter_threshold(&mut self, name: &str, values: &[(String, String)]) -> Result<(), String> {
        let index = self.threshold_index(name)?;
        self.thresholds[index] = self.thresholds[index].clone().altered(values)?;
        self.changed();
        Ok(())
    }

    pub fn drop_threshold(&mut self, name: &str) -> Result<(), String> {
        let index = self.threshold_index(name)?;
        self.thresholds.remove(index);
        self.changed();
        Ok(())
    }

    /// Records whether the program of `alert_hook` got an event.
    pub fn notified(&mut self, name: &str, notification: Notification) {
        if let Some(event) = self.events.iter_mut().find(|event| event.name() == name) {
            event.notification = notification;
            self.changed();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject() -> Subject {
        Subject::of_metric("CL_RUNQ")
    }

    fn finding(object: &str, severity: Severity) -> Finding {
        Finding {
            object: object.to_owned(),
            severity,
            message: format!("{object} {}", severity.name()),
            value: Some(1.0),
        }
    }

    fn names(book: &Book) -> Vec<String> {
        book.events.iter().map(Event::name).collect()
    }

    #[test]
    fn an_alert_is_a_sequence_of_events_from_its_begin_to_its_end() {
        let mut book = Book::default();
        let mut report = |object: &str, severity, now| {
            book.report(&subject(), &finding(object, severity), now).map(|event| (event.name(), event.severity))
        };
        assert_eq!(report("a", Severity::Clear, 1), None);
        assert_eq!(report("a", Severity::Warning, 2), Some(("1_1".to_owned(), Severity::Warning)));
        assert_eq!(report("a", Severity::Warning, 3), None, "nothing changed");
        assert_eq!(report("b", Severity::Critical, 4), Some(("2_1".to_owned(), Severity::Critical)));
        assert_eq!(report("a", Severity::Critical, 5), Some(("1_2".to_owned(), Severity::Critical)));
        assert_eq!(report("a", Severity::Clear, 6), Some(("1_3".to_owned(), Severity::Clear)));
        assert_eq!(report("a", Severity::Warning, 7), Some(("3_1".to_owned(), Severity::Warning)), "it begins again");
        let ends: Vec<Option<u64>> = book.events.iter().map(|event| event.end_ms).collect();
        assert_eq!(ends, [Some(6), None, Some(6), Some(6), None]);
        let open: Vec<String> = book.open().into_iter().map(Event::name).collect();
        assert_eq!(open, ["3_1", "2_1"]);
    }

    #[test]
    fn events_are_kept_for_a_week_after_the_end_and_open_alerts_for_ever() {
        let mut book = Book::default();
        book.report(&subject(), &finding("open", Severity::Critical), 1);
        book.report(&subject(), &finding("ended", Severity::Critical), 2);
        book.report(&subject(), &finding("ended", Severity::Clear), 10);
        book.record(&subject(), &finding("event", Severity::Warning), 20);
        book.expire(9 + KEPT_MS);
        assert_eq!(names(&book), ["1_1", "2_1", "2_2", "3_1"]);
        book.expire(10 + KEPT_MS);
        assert_eq!(names(&book), ["1_1", "3_1"]);
        book.expire(20 + KEPT_MS);
        assert_eq!(names(&book), ["1_1"]);
        assert_eq!(book.record(&subject(), &finding("event", Severity::Warning), 30).name(), "4_1", "no number again");
    }

    #[test]
    fn the_number_of_events_is_bounded_and_the_open_state_is_kept() {
        let mut book = Book::default();
        for round in 0..EVENTS_MAX as u64 + 7 {
            let severity = if round % 2 == 0 { Severity::Warning } else { Severity::Critical };
            book.report(&subject(), &finding("a", severity), round);
        }
        book.expire(1);
        assert_eq!(book.events.len(), EVENTS_MAX);
        assert_eq!(book.open().len(), 1);
        assert_eq!(book.events.last().map(|event| event.number as usize), Some(EVENTS_MAX + 7));
    }

    #[test]
    fn operators_examine_and_drop_alerts_by_name() {
        let mut book = Book::default();
        book.report(&subject(), &finding("a", Severity::Critical), 1);
        book.report(&subject(), &finding("a", Severity::Clear), 2);
        book.record(&subject(), &finding("b", Severity::Warning), 3);
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert!(book.examine(&list(&["1_1", "9_1"]), "me").unwrap_err().contains("\"9_1\" does not exist"));
        assert_eq!(book.events[0].examined_by, None, "an error changes nothing");
        book.examine(&list(&["1_1"]), "me").unwrap();
        assert_eq!(book.events[0].examined_by.as_deref(), Some("me"));
        assert!(book.drop_events(&list(&["1_1"])).unwrap_err().contains("1_2 is of sequence 1"));
        book.drop_events(&list(&["1_1", "1_2"])).unwrap();
        assert_eq!(names(&book), ["2_1"]);
    }

    #[test]
    fn thresholds_have_one_name_each() {
        let values = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect::<Vec<_>>()
        };
        let mut book = Book::default();
        let limits = values(&[("comparison", ">"), ("warning", "1")]);
        book.create_threshold("CL_RUNQ.c1", &limits).unwrap();
        assert!(book.create_threshold("cl_runq.C1", &limits).unwrap_err().contains("exists already"));
        book.alter_threshold("CL_RUNQ.c1", &values(&[("critical", "2")])).unwrap();
        assert_eq!((book.thresholds[0].warning, book.thresholds[0].critical), (Some(1.0), Some(2.0)));
        assert!(book.alter_threshold("CL_RUNQ.c2", &limits).unwrap_err().contains("does not exist"));
        assert!(book.drop_threshold("CL_RUNQ.c2").unwrap_err().contains("does not exist"));
        book.drop_threshold("CL_RUNQ.c1").unwrap();
        assert!(book.thresholds.is_empty());
    }
}
