//! METRICDEFINITION: what the metrics mean.

use super::super::connection::Connection;
use super::super::error::Error;
use super::super::metrics::definitions;
use super::super::value::Value;
use super::{Object, ObjectType};

pub struct MetricDefinition;

pub(super) const METRIC_DEFINITION: &str = "METRICDEFINITION";

impl ObjectType for MetricDefinition {
    fn name(&self) -> &'static str {
        METRIC_DEFINITION
    }

    fn title(&self) -> &'static str {
        "MetricDefinition"
    }

    fn attributes(&self) -> &'static [&'static str] {
        &["name", "description", "metricType", "objectType", "unit"]
    }

    fn default_attributes(&self) -> &'static [&'static str] {
        &["name"]
    }

    fn read(&self, _cell: &Connection) -> Result<Vec<Object>, Error> {
        let object = |definition: &'static super::super::metrics::Definition| {
            vec![
                definition.name.into(),
                Value::Sentence(definition.description.to_owned()),
                definition.metric_type.name().into(),
                definition.object_type().into(),
                definition.unit.into(),
            ]
        };
        Ok(definitions().iter().map(object).collect())
    }
}
