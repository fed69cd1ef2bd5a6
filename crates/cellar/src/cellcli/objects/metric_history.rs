//! METRICHISTORY: the values of the metrics at each minute of the last seven days.
//!
//! A rate is the increase since the record before. Metrics of the machine have no history.

use super::super::connection::Connection;
use super::super::error::Error;
use super::super::metrics::observe_between;
use super::super::recorded::Recorded;
use super::super::value::Value;
use super::metric_current::{check_metrics, object};
use super::{Object, ObjectType, Selection};
use std::time::{SystemTime, UNIX_EPOCH};

pub struct MetricHistory;

/// The attributes ageInMinutes and collectionTime.
const AGE: usize = 1;
pub const TIME: usize = 2;

impl ObjectType for MetricHistory {
    fn name(&self) -> &'static str {
        "METRICHISTORY"
    }

    fn title(&self) -> &'static str {
        "MetricHistory"
    }

    fn attributes(&self) -> &'static [&'static str] {
        &["name", "ageInMinutes", "collectionTime", "metricObjectName", "metricType", "metricValue", "objectType"]
    }

    fn default_attributes(&self) -> &'static [&'static str] {
        &["name", "metricObjectName", "metricValue", "collectionTime"]
    }

    fn read(&self, cell: &Connection) -> Result<Vec<Object>, Error> {
        self.read_selected(cell, &Selection { may_hold: &|_| true, times: &|_| Ok(0..=u64::MAX) })
    }

    fn read_selected(&self, cell: &Connection, selection: &Selection<'_>) -> Result<Vec<Object>, Error> {
        let mut objects = Vec::new();
        let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
        let times = (selection.times)(&[Recorded::At(TIME), Recorded::MinutesBefore(AGE, now_ms)])?;
        cell.readings(&times, |before, after| {
            let age = Value::Count(now_ms.saturating_sub(after.time_ms()) / 60_000);
            let all = observe_between(before, after).into_iter().map(|seen| object(seen, after, age.clone()));
            objects.extend(all.filter(|object| (selection.may_hold)(object)));
        })?;
        Ok(objects)
    }

    fn check_names(&self, names: &[String], _objects: &[Object]) -> Result<(), Error> {
        check_metrics(names)
    }
}
