//! THRESHOLD: limits of metrics, beyond which the cell raises alerts.

use super::super::ast::Operation;
use super::super::connection::Connection;
use super::super::error::Error;
use super::super::value::Value;
use super::{Object, ObjectType};
use cellar_cell::alerts::AlertRequest;
use serde_json::Value as Json;

pub struct Threshold;

impl ObjectType for Threshold {
    fn name(&self) -> &'static str {
        "THRESHOLD"
    }

    fn title(&self) -> &'static str {
        "Threshold"
    }

    fn attributes(&self) -> &'static [&'static str] {
        &["name", "comparison", "critical", "observation", "occurrences", "warning"]
    }

    fn default_attributes(&self) -> &'static [&'static str] {
        &["name"]
    }

    fn read(&self, cell: &Connection) -> Result<Vec<Object>, Error> {
        let report = cell.alerts(&AlertRequest::List)?;
        let thresholds = report["thresholds"].as_array().map(Vec::as_slice).unwrap_or_default();
        let object = |threshold: &Json| {
            let value = |name: &str| Value::of_json(&threshold[name], Value::Count);
            // A limit has the unit of the metric.
            let limit = |name: &str| match threshold[name].as_f64() {
                Some(number) => Value::Number(number),
                None => Value::Unset,
            };
            vec![
                value("name"),
                value("comparison"),
                limit("critical"),
                value("observation"),
                value("occurrences"),
                limit("warning"),
            ]
        };
        Ok(thresholds.iter().map(object).collect())
    }

    fn alterations(&self) -> &'static [&'static str] {
        &["{ALL | name [, name]...} [WHERE condition] attribute = value [, attribute = value]..."]
    }

    fn alter(&self, cell: &Connection, object: &Object, operation: &Operation) -> Result<&'static str, Error> {
        let Operation::Assign(values) = operation else { return Err(self.cannot(operation)) };
        cell.alerts(&AlertRequest::AlterThreshold { name: object[0].text(), values: values.clone() })?;
        Ok("successfully altered")
    }

    fn creations(&self) -> &'static [&'static str] {
        &["metric.object comparison = {'<' | '<=' | '=' | '>=' | '>'} [, warning = number] [, critical = number]\n   \
           [, occurrences = number] [, observation = number]"]
    }

    fn create(&self, cell: &Connection, name: &str, values: &[(String, String)]) -> Result<(), Error> {
        cell.alerts(&AlertRequest::CreateThreshold { name: name.to_owned(), values: values.to_vec() }).map(drop)
    }

    fn can_drop(&self) -> bool {
        true
    }

    fn drop(&self, cell: &Connection, names: Vec<String>) -> Result<(), Error> {
        cell.alerts(&AlertRequest::DropThreshold { names }).map(drop)
    }
}
