//! METRICCURRENT: the present values of the metrics.
//!
//! Metrics that are increases of counters take two readings. The second one is only taken if a command shows such a metric.

use super::super::connection::Connection;
use super::super::error::Error;
use super::super::metrics::{Observation, Reading, observe, observe_between};
use super::super::value::Value;
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
        let (reading, states) = (cell.reading()?, AlertStates::read(cell)?);
        Ok(observe(&reading).into_iter().map(|seen| states.object(seen, &reading)).collect())
    }

    fn complete(&self, cell: &Connection, objects: Vec<Object>) -> Result<Vec<Object>, Error> {
        if objects.iter().all(|object| object[VALUE] != Value::Pending) {
            return Ok(objects);
        }
        let before = cell.reading()?;
        std::thread::sleep(cell.interval);
        let (after, states) = (cell.reading()?, AlertStates::read(cell)?);
        let all = observe_between(&before, &after).into_iter().map(|seen| states.object(seen, &after));
        let is_shown = |object: &Object| {
            let same = |shown: &Object| shown[0] == object[0] && shown[OBJECT_NAME] == object[OBJECT_NAME];
            objects.iter().any(same)
        };
        Ok(all.filter(is_shown).collect())
    }
}

/// The severities of the open alerts about thresholds, by metric and object.
struct AlertStates(BTreeMap<(String, String), String>);

impl AlertStates {
    fn read(cell: &Connection) -> Result<Self, Error> {
        Ok(Self::of_report(&cell.alerts(&AlertRequest::List)?))
    }

    fn of_report(report: &Json) -> Self {
        let alerts = report["alerts"].as_array().map(Vec::as_slice).unwrap_or_default();
        let open = alerts.iter().filter(|alert| alert["endTimeMs"].is_null());
        // The last event of an alert has its present severity.
        Self(
            open.filter_map(|alert| {
                let text = |name: &str| alert[name].as_str().map(str::to_owned);
                Some(((text("metricName")?, text("metricObjectName")?), text("severity")?))
            })
            .collect(),
        )
    }

    fn object(&self, seen: Observation, reading: &Reading) -> Object {
        let of_threshold = self.0.get(&(seen.definition.name.to_owned(), seen.object.clone()));
        let state = of_threshold.map_or("normal", String::as_str).into();
        object(seen, state, reading)
    }
}

/// Returns a value of a metric. `second` is the second attribute, the only one in which METRICCURRENT and METRICHISTORY differ.
pub(super) fn object(seen: Observation, second: Value, reading: &Reading) -> Object {
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
