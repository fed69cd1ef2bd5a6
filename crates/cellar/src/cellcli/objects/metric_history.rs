//! METRICHISTORY: the values of the metrics at each minute of the last seven days.
//!
//! A rate is the increase since the record before. Metrics of the machine have no history.

use super::super::connection::Connection;
use super::super::error::Error;
use super::super::metrics::observe_between;
use super::metric_current::{ATTRIBUTES, object};
use super::{Object, ObjectType, Selection};

pub struct MetricHistory;

/// The attribute collectionTime.
pub const TIME: usize = 1;

impl ObjectType for MetricHistory {
    fn name(&self) -> &'static str {
        "METRICHISTORY"
    }

    fn title(&self) -> &'static str {
        "MetricHistory"
    }

    fn attributes(&self) -> &'static [&'static str] {
        ATTRIBUTES
    }

    fn default_attributes(&self) -> &'static [&'static str] {
        &["name", "metricObjectName", "metricValue", "collectionTime"]
    }

    fn read(&self, cell: &Connection) -> Result<Vec<Object>, Error> {
        self.read_selected(cell, &Selection { may_hold: &|_| true, times: &|_| Ok(0..=u64::MAX) })
    }

    fn read_selected(&self, cell: &Connection, selection: &Selection<'_>) -> Result<Vec<Object>, Error> {
        let mut objects = Vec::new();
        cell.readings(&(selection.times)(TIME)?, |before, after| {
            let all = observe_between(before, after).into_iter().map(|seen| object(seen, after));
            objects.extend(all.filter(|object| (selection.may_hold)(object)));
        })?;
        Ok(objects)
    }
}
