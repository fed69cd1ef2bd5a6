//! METRICCURRENT: the present values of the metrics.
//!
//! Metrics that are increases of counters take two readings. The second one is only taken if a command shows such a metric.

use super::super::connection::Connection;
use super::super::error::Error;
use super::super::metrics::{Observation, Reading, definitions, observe, observe_between};
use super::super::value::Value;
use super::metric_definition::METRIC_DEFINITION;
use super::{Object, ObjectType};
use cellar_cell::alerts::AlertRequest;
use serde_json::Value as Json;
use std::collections::BTreeMap;

pub struct MetricCurrent;

const OBJECT_NAME: usize = 3;
const VALUE: usize = 5;

impl ObjectType for MetricCurrent {
    fn name(&self) -> &'static str {
        "METRICCURRENT"
    }

    fn title(&self) -> &'static str {
        "MetricCurrent"
    }

    fn attributes(&self) -> &'static [&'static str] {
        &["name", "alertState", "collectionTime", "metricObjectName", "metricType", "metricValue", "objectType"]
    }

    fn default_attributes(&self) -> &'static [&'static str] {
        &["name", "metricObjectName", "metricValue"]
    }

    fn read(&self, cell: &Connection) -> Result<Vec<Object>, Error> {
        let (alerts, reading) = (AlertStates::read(cell)?, cell.reading()?);
        Ok(observe(&reading).into_iter().map(|seen| alerts.object(seen, &reading)).collect())
    }

    fn check_names(&self, names: &[String], _objects: &[Object]) -> Result<(), Error> {
        check_metrics(names)
    }

    fn complete(&self, cell: &Connection, objects: Vec<Object>) -> Result<Vec<Object>, Error> {
        if objects.iter().all(|object| object[VALUE] != Value::Pending) {
            return Ok(objects);
        }
        let alerts = AlertStates::read(cell)?;
        let before = cell.reading()?;
        std::thread::sleep(cell.interval);
        let after = cell.reading()?;
        let all = observe_between(&before, &after).into_iter().map(|seen| alerts.object(seen, &after));
        let is_shown = |object: &Object| {
            let same = |shown: &Object| shown[0] == object[0] && shown[OBJECT_NAME] == object[OBJECT_NAME];
            objects.iter().any(same)
        };
        Ok(all.filter(is_shown).collect())
    }
}

/// The severities of open alerts about thresholds, by metric and object in lower case.
struct AlertStates(BTreeMap<(String, String), String>);

impl AlertStates {
    fn read(cell: &Connection) -> Result<Self, Error> {
        Ok(Self::of_report(&cell.alerts(&AlertRequest::List)?))
    }

    fn of_report(report: &Json) -> Self {
        // The last event of an alert has its present severity.
        let open = report["alerts"].as_array().into_iter().flatten().filter(|alert| alert["endTimeMs"].is_null());
        let state = |alert: &Json| {
            let text = |name: &str| alert[name].as_str().map(str::to_owned);
            let key = (text("metricName")?, text("metricObjectName")?.to_ascii_lowercase());
            Some((key, text("severity")?))
        };
        Self(open.filter_map(state).collect())
    }

    fn object(&self, seen: Observation, reading: &Reading) -> Object {
        let key = (seen.definition.name.to_owned(), seen.object.to_ascii_lowercase());
        let state = self.0.get(&key).map_or("normal", String::as_str);
        object(seen, reading, state.into())
    }
}

/// Fails if a name is not the name of a metric. A metric may have no values at present: those of the flash cache of a cell without
/// flash disks, for example.
pub(super) fn check_metrics(names: &[String]) -> Result<(), Error> {
    let is_metric = |name: &&String| definitions().iter().any(|definition| definition.name.eq_ignore_ascii_case(name));
    match names.iter().find(|name| !is_metric(name)) {
        Some(name) => {
            let known: Vec<String> = definitions().iter().map(|definition| definition.name.to_owned()).collect();
            Err(Error::unknown_object(METRIC_DEFINITION, name, &known))
        }
        None => Ok(()),
    }
}

/// Returns a value of a metric. The second attribute is the one in which METRICCURRENT and METRICHISTORY differ.
pub(super) fn object(seen: Observation, reading: &Reading, second: Value) -> Object {
    let unit = seen.definition.unit;
    let number = seen.number.map_or(Value::Pending, |number| Value::Quantity { number, unit });
    vec![
        seen.definition.name.into(),
        second,
        Value::of_seconds(reading.time_ms() / 1000),
        seen.object.into(),
        seen.definition.metric_type.name().into(),
        number,
        seen.definition.object_type().into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_state_of_a_metric_is_the_last_severity_of_its_open_alert() {
        let alert = |object: &str, severity: &str, end: Option<u64>| json!({"metricName": "CL_RUNQ", "metricObjectName": object, "severity": severity, "endTimeMs": end});
        let of_cell = json!({"metricName": null, "metricObjectName": null, "severity": "critical", "endTimeMs": null});
        let events =
            [alert("a", "warning", None), alert("a", "critical", None), alert("b", "warning", Some(1)), of_cell];
        let states = AlertStates::of_report(&json!({ "alerts": events }));
        let expected = [(("CL_RUNQ".to_owned(), "a".to_owned()), "critical".to_owned())];
        assert!(states.0.into_iter().eq(expected));
    }
}
