//! ALERTDEFINITION: what alerts the cell raises.

use super::super::connection::Connection;
use super::super::error::Error;
use super::super::metrics::definitions;
use super::super::value::Value;
use super::{Object, ObjectType};
use cellar_cell::alerts::{ALERTS, AlertDefinition, AlertType, METRIC_PREFIX};

pub struct AlertDefinitions;

impl ObjectType for AlertDefinitions {
    fn name(&self) -> &'static str {
        "ALERTDEFINITION"
    }

    fn title(&self) -> &'static str {
        "AlertDefinition"
    }

    fn attributes(&self) -> &'static [&'static str] {
        &["name", "alertShortName", "alertSource", "alertType", "description", "metricName"]
    }

    fn default_attributes(&self) -> &'static [&'static str] {
        &["name"]
    }

    fn read(&self, _cell: &Connection) -> Result<Vec<Object>, Error> {
        let of_state = |definition: &AlertDefinition| {
            let alert_type = match definition.alert_type {
                AlertType::Stateful => "Stateful",
                AlertType::Stateless => "Stateless",
            };
            vec![
                definition.name.into(),
                definition.short_name.into(),
                definition.source.into(),
                alert_type.into(),
                Value::Sentence(definition.description.into()),
                Value::Unset,
            ]
        };
        let of_metrics = definitions().iter().map(|definition| {
            vec![
                format!("{METRIC_PREFIX}{}", definition.name).into(),
                definition.name.into(),
                "Metric".into(),
                "Stateful".into(),
                Value::Sentence(format!("Threshold: {}", definition.description)),
                definition.name.into(),
            ]
        });
        Ok(ALERTS.iter().map(of_state).chain(of_metrics).collect())
    }
}
