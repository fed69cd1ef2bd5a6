//! ALERTHISTORY: the alerts of the cell.

use super::super::ast::Operation;
use super::super::connection::Connection;
use super::super::error::Error;
use super::super::metrics::definitions;
use super::super::value::Value;
use super::{Object, ObjectType};
use cellar_cell::alerts::AlertRequest;
use serde_json::Value as Json;
use std::collections::BTreeMap;

pub struct AlertHistory;

impl ObjectType for AlertHistory {
    fn name(&self) -> &'static str {
        "ALERTHISTORY"
    }

    fn title(&self) -> &'static str {
        "Alert"
    }

    fn attributes(&self) -> &'static [&'static str] {
        &[
            "name",
            "ageInMinutes",
            "alertAction",
            "alertMessage",
            "alertObjectName",
            "alertSequenceID",
            "alertShortName",
            "alertType",
            "beginTime",
            "endTime",
            "examinedBy",
            "metricName",
            "metricObjectName",
            "metricValue",
            "notificationState",
            "sequenceBeginTime",
            "severity",
        ]
    }

    fn default_attributes(&self) -> &'static [&'static str] {
        &["name", "beginTime", "severity", "alertMessage"]
    }

    fn read(&self, cell: &Connection) -> Result<Vec<Object>, Error> {
        let report = cell.alerts(&AlertRequest::List)?;
        let alerts = report["alerts"].as_array().map(Vec::as_slice).unwrap_or_default();
        let mut begins: BTreeMap<u64, u64> = BTreeMap::new();
        for alert in alerts {
            let (sequence, begin) = (alert["alertSequenceID"].as_u64(), alert["beginTimeMs"].as_u64());
            let begin = begin.unwrap_or(0);
            begins.entry(sequence.unwrap_or(0)).and_modify(|first| *first = begin.min(*first)).or_insert(begin);
        }
        let mut objects: Vec<(u64, Object)> = Vec::new();
        for alert in alerts {
            let sequence = alert["alertSequenceID"].as_u64().unwrap_or(0);
            objects.push((sequence, object(alert, begins.get(&sequence).copied())));
        }
        // The events of a sequence follow each other.
        objects.sort_by_key(|(sequence, _)| *sequence);
        Ok(objects.into_iter().map(|(_, object)| object).collect())
    }

    fn alterations(&self) -> &'static [&'static str] {
        &["{ALL | name [, name]...} [WHERE condition] examinedBy = 'name'"]
    }

    fn alter(&self, cell: &Connection, object: &Object, operation: &Operation) -> Result<&'static str, Error> {
        let by = match operation {
            Operation::Assign(values) => match &values[..] {
                [(attribute, by)] if attribute.eq_ignore_ascii_case("examinedBy") => by.clone(),
                _ => return Err(self.cannot(operation)),
            },
            Operation::Words(_) => return Err(self.cannot(operation)),
        };
        cell.alerts(&AlertRequest::Examine { names: vec![object[0].text()], by })?;
        Ok("successfully altered")
    }

    fn can_drop(&self) -> bool {
        true
    }

    fn drop(&self, cell: &Connection, names: Vec<String>) -> Result<(), Error> {
        cell.alerts(&AlertRequest::Drop { names }).map(drop)
    }
}

fn object(alert: &Json, sequence_begin_ms: Option<u64>) -> Object {
    let text = |name: &str| Value::of_json(&alert[name], Value::Count);
    let sentence = |name: &str| Value::Sentence(alert[name].as_str().unwrap_or_default().to_owned());
    let time = |ms: Option<u64>| ms.map_or(Value::Unset, |ms| Value::of_seconds(ms / 1000));
    let now_ms = cellar_cell::metrics::now_ms();
    let begin_ms = alert["beginTimeMs"].as_u64();
    let age = begin_ms.map_or(Value::Unset, |begin| Value::Count(now_ms.saturating_sub(begin) / 60_000));
    vec![
        text("name"),
        age,
        sentence("alertAction"),
        sentence("alertMessage"),
        text("alertObjectName"),
        text("alertSequenceID"),
        text("alertShortName"),
        text("alertType"),
        time(alert["beginTimeMs"].as_u64()),
        time(alert["endTimeMs"].as_u64()),
        text("examinedBy"),
        text("metricName"),
        text("metricObjectName"),
        metric_value(alert),
        text("notificationState"),
        time(sequence_begin_ms),
        text("severity"),
    ]
}

fn metric_value(alert: &Json) -> Value {
    let metric = alert["metricName"].as_str().unwrap_or_default();
    let definition = definitions().iter().find(|definition| definition.name == metric);
    match (definition, alert["metricValue"].as_f64()) {
        (Some(definition), Some(number)) => Value::Quantity { number, unit: definition.unit },
        _ => Value::Unset,
    }
}
