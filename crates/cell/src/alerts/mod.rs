//! Alerts: what an operator should know about the state of the cell, and thresholds of metrics.
//!
//! A thread compares the state of the cell with the open alerts ([`evaluator`]). [`definitions`] is the list of alerts, [`book`] the
//! history, [`store`] its file, and [`hook`] runs a program for each event. Nothing here takes part in the I/O of files: the thread, and
//! a request that changes something, may wait for a disk that hangs. A request that lists takes only the lock of the history.

mod book;
mod definitions;
mod evaluator;
mod hook;
mod observed;
mod store;
mod threshold;

pub use book::{Event, METRIC_PREFIX};
pub use definitions::{ALERTS, AlertDefinition, AlertType, Severity};

use crate::background::{Background, Stopping};
use crate::cell_metrics::Reading;
use crate::cell_request::{CellRequest, RequestError};
use crate::history::{directories, numbered_disks};
use crate::metrics::{Metrics, OpenAlerts, now_ms};
use book::{Book, Notification};
use cellar_format::wire::Kind;
use cellar_storage::{Error, ErrorKind, Result, Volume};
use evaluator::Evaluator;
use hook::{Hook, Message};
use observed::Observed;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use threshold::find_definition;

/// How often the state of the cell is compared, unless metrics are recorded more often.
const STATE_INTERVAL: Duration = Duration::from_secs(5);
/// How often changes are stored.
const SAVE_INTERVAL: Duration = Duration::from_secs(1);
/// Time limit of the program of `alert_hook`.
const HOOK_LIMIT: Duration = Duration::from_secs(30);
/// Time limit of each send and receive.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A request of an operator.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "action", deny_unknown_fields)]
pub enum AlertRequest {
    List,
    Examine { names: Vec<String>, by: String },
    Drop { names: Vec<String> },
    CreateThreshold { name: String, values: Vec<(String, String)> },
    AlterThreshold { name: String, values: Vec<(String, String)> },
    DropThreshold { names: Vec<String> },
}

/// Sends a request to the cell that listens on `socket`, and returns its alerts and thresholds after it.
pub fn request(socket: &Path, request: &AlertRequest) -> std::result::Result<Value, RequestError> {
    let text = json!(request).to_string();
    let mut sent =
        CellRequest::send(socket, TIMEOUT, Kind::AlertRequest, |out| out.extend_from_slice(text.as_bytes()))?;
    let text = sent.receive(Kind::AlertReport, |payload| Ok(payload.to_vec()))?;
    serde_json::from_slice(&text).map_err(|error| sent.no_answer(io::Error::other(error).into()))
}

pub struct Alerts {
    cell: String,
    socket: PathBuf,
    metrics: Arc<Metrics>,
    volume: Arc<Volume>,
    open: Arc<OpenAlerts>,
    book: Mutex<Book>,
    /// The revision that the file has. Held while the file is written.
    saved: Mutex<u64>,
}

impl Alerts {
    pub fn load(cell: &str, socket: &Path, metrics: Arc<Metrics>, volume: Arc<Volume>) -> Arc<Self> {
        let book = store::load(&directories(&volume, socket));
        let (revision, open) = (book.revision, metrics.open_alerts());
        let (cell, socket) = (cell.to_owned(), socket.to_owned());
        let (book, saved) = (Mutex::new(book), Mutex::new(revision));
        Arc::new(Self { cell, socket, metrics, volume, open, book, saved })
    }

    /// Evaluates the alerts until the result is dropped, and the thresholds once in each interval. Another thread stores them, so that
    /// a disk that hangs raises an alert although nothing can be stored on it.
    pub fn start(self: Arc<Self>, interval: Duration, program: Option<&Path>) -> io::Result<Background> {
        let notified = {
            let alerts = self.clone();
            move |name: &str, result| alerts.book.lock().notified(name, result)
        };
        let hook = program.map(|program| Hook::start(program, HOOK_LIMIT, notified)).transpose()?;
        let store = {
            let alerts = self.clone();
            Background::start("alerts file", move |stopping| alerts.store(stopping))?
        };
        Background::start("alerts", move |stopping| {
            let _store = store;
            self.run(interval, hook.as_ref(), stopping);
        })
    }

    fn store(&self, stopping: &Stopping) {
        loop {
            let is_last = stopping.is_set();
            if let Err(error) = self.save() {
                log::warn!("could not store the alerts: {error}");
            }
            if is_last {
                return;
            }
            stopping.pause(SAVE_INTERVAL);
        }
    }

    fn run(&self, interval: Duration, hook: Option<&Hook>, stopping: &Stopping) {
        let mut evaluator = Evaluator::default();
        let mut next_thresholds = Instant::now();
        while !stopping.is_set() {
            let observed = Observed::of(&self.cell, &self.volume);
            let now = now_ms();
            let mut events = evaluator.definitions(&mut self.book.lock(), &observed, now);
            if Instant::now() >= next_thresholds {
                next_thresholds = Instant::now() + interval;
                let has_thresholds = !self.book.lock().thresholds.is_empty();
                let seen = evaluator.observe(has_thresholds.then(|| self.reading()));
                events.extend(evaluator.thresholds(&mut self.book.lock(), &seen, now));
            }
            self.publish(&events, hook);
            stopping.pause(interval.min(STATE_INTERVAL));
        }
    }

    fn reading(&self) -> Reading {
        Reading::new(self.metrics.json(), &json!({ "disks": numbered_disks(&self.volume) }))
    }

    /// Logs events, and gives them to the program of `alert_hook`.
    fn publish(&self, events: &[Event], hook: Option<&Hook>) {
        for event in events {
            let level = match event.severity {
                Severity::Critical => log::Level::Warn,
                Severity::Warning | Severity::Clear => log::Level::Info,
            };
            log::log!(level, "alert {} {}: {}", event.name(), event.severity.name(), event.message);
            let message = Message { name: event.name(), document: document(event, &self.cell) };
            if let Some(hook) = hook
                && !hook.send(message)
            {
                log::warn!("alert_hook does not get alert {}: too many alerts wait", event.name());
                self.book.lock().notified(&event.name(), Notification::Failed);
            }
        }
        let mut book = self.book.lock();
        book.expire(now_ms());
        let count = |severity| book.open().iter().filter(|event| event.severity == severity).count() as u64;
        self.open.set(count(Severity::Critical), count(Severity::Warning));
    }

    /// Makes changes durable.
    fn save(&self) -> io::Result<()> {
        let mut saved = self.saved.lock();
        let book = {
            let book = self.book.lock();
            if book.revision == *saved {
                return Ok(());
            }
            book.clone()
        };
        store::save(&directories(&self.volume, &self.socket), &book)?;
        *saved = book.revision;
        Ok(())
    }

    /// Does what a request says, and returns all alerts and thresholds.
    pub(crate) fn answer(&self, request: &[u8]) -> Result<Value> {
        let invalid = |message: String| Error::new(ErrorKind::Invalid, message);
        let request: AlertRequest =
            serde_json::from_slice(request).map_err(|error| invalid(format!("the request is not valid: {error}")))?;
        if let AlertRequest::CreateThreshold { name, .. } = &request {
            self.check_object(name).map_err(invalid)?;
        }
        self.apply(&request).map_err(invalid)?;
        if !matches!(request, AlertRequest::List) {
            self.save().map_err(|error| Error::io("the change is in effect, but could not be stored", error))?;
        }
        let book = self.book.lock();
        Ok(json!({
            "alerts": book.events.iter().map(|event| document(event, &self.cell)).collect::<Vec<_>>(),
            "thresholds": book.thresholds,
        }))
    }

    fn apply(&self, request: &AlertRequest) -> std::result::Result<(), String> {
        let mut book = self.book.lock();
        match request {
            AlertRequest::List => Ok(()),
            AlertRequest::Examine { names, by } => book.examine(names, by),
            AlertRequest::Drop { names } => book.drop_events(names),
            AlertRequest::CreateThreshold { name, values } => book.create_threshold(name, values),
            AlertRequest::AlterThreshold { name, values } => book.alter_threshold(name, values),
            AlertRequest::DropThreshold { names } => names.iter().try_for_each(|name| book.drop_threshold(name)),
        }
    }

    /// Checks the object of a threshold. Databases and consumer groups may do their first I/O later.
    fn check_object(&self, name: &str) -> std::result::Result<(), String> {
        let Some((metric, object)) = name.split_once('.') else { return Ok(()) };
        let Some(definition) = find_definition(metric).filter(|definition| !definition.has_changing_objects()) else {
            return Ok(());
        };
        let objects: Vec<String> = definition.objects(&self.reading()).into_iter().map(|object| object.name).collect();
        match object.is_empty() || objects.iter().any(|known| known.eq_ignore_ascii_case(object)) {
            true => Ok(()),
            false => {
                let (metric, known) = (definition.name, objects.join(", "));
                Err(format!("metric {metric} has no object \"{object}\"; its objects are {known}"))
            }
        }
    }
}

/// Returns an event under Oracle's names of its attributes.
fn document(event: &Event, cell: &str) -> Value {
    json!({
        "cell": cell,
        "name": event.name(),
        "alertSequenceID": event.sequence,
        "alertDefinition": event.definition,
        "alertShortName": event.short_name,
        "alertType": event.alert_type,
        "severity": event.severity,
        "alertObjectName": event.object,
        "metricName": event.metric,
        "metricObjectName": event.metric.as_ref().map(|_| &event.object),
        "metricValue": event.metric.as_ref().and(event.value),
        "alertMessage": event.message,
        "alertAction": event.action,
        "beginTimeMs": event.begin_ms,
        "endTimeMs": event.end_ms,
        "examinedBy": event.examined_by,
        "notificationState": event.notification as u8,
    })
}
