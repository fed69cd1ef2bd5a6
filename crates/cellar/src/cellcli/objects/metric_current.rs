//! METRICCURRENT: the present values of the metrics.
//!
//! Metrics that are increases of counters take two readings. The second one is only taken if a command shows such a metric.

use super::super::connection::Connection;
use super::super::error::Error;
use super::super::metrics::{Observation, Reading, observe, observe_between};
use super::super::value::Value;
use super::{Object, ObjectType};

pub struct MetricCurrent;

/// The attributes of METRICCURRENT and METRICHISTORY.
pub(super) const ATTRIBUTES: &[&str] =
    &["name", "collectionTime", "metricObjectName", "metricType", "metricValue", "objectType"];
const OBJECT_NAME: usize = 2;
const VALUE: usize = 4;

impl ObjectType for MetricCurrent {
    fn name(&self) -> &'static str {
        "METRICCURRENT"
    }

    fn title(&self) -> &'static str {
        "MetricCurrent"
    }

    fn attributes(&self) -> &'static [&'static str] {
        ATTRIBUTES
    }

    fn default_attributes(&self) -> &'static [&'static str] {
        &["name", "metricObjectName", "metricValue"]
    }

    fn read(&self, cell: &Connection) -> Result<Vec<Object>, Error> {
        let reading = cell.reading()?;
        Ok(observe(&reading).into_iter().map(|seen| object(seen, &reading)).collect())
    }

    fn complete(&self, cell: &Connection, objects: Vec<Object>) -> Result<Vec<Object>, Error> {
        if objects.iter().all(|object| object[VALUE] != Value::Pending) {
            return Ok(objects);
        }
        let before = cell.reading()?;
        std::thread::sleep(cell.interval);
        let after = cell.reading()?;
        let all = observe_between(&before, &after).into_iter().map(|seen| object(seen, &after));
        let is_shown = |object: &Object| {
            let same = |shown: &Object| shown[0] == object[0] && shown[OBJECT_NAME] == object[OBJECT_NAME];
            objects.iter().any(same)
        };
        Ok(all.filter(is_shown).collect())
    }
}

/// Returns a value of a metric, with [`ATTRIBUTES`].
pub(super) fn object(seen: Observation, reading: &Reading) -> Object {
    let unit = seen.definition.unit;
    let number = seen.number.map_or(Value::Pending, |number| Value::Quantity { number, unit });
    vec![
        seen.definition.name.into(),
        Value::of_seconds(reading.time_ms() / 1000),
        seen.object.into(),
        seen.definition.metric_type.name().into(),
        number,
        seen.definition.object_type().into(),
    ]
}
