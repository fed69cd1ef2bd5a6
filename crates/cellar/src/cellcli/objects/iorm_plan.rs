//! IORMPLAN: the plan of I/O resource management.

use super::super::ast::Operation;
use super::super::connection::Connection;
use super::super::error::Error;
use super::super::value::Value;
use super::{Object, ObjectType};
use cellar_cell::iorm::IormChange;

pub struct IormPlan;

impl ObjectType for IormPlan {
    fn name(&self) -> &'static str {
        "IORMPLAN"
    }

    fn title(&self) -> &'static str {
        "IORMPLAN"
    }

    fn attributes(&self) -> &'static [&'static str] {
        &["name", "catPlan", "dbPlan", "objective", "status"]
    }

    fn default_attributes(&self) -> &'static [&'static str] {
        &["name", "objective", "status"]
    }

    fn has_names(&self) -> bool {
        false
    }

    fn read(&self, cell: &Connection) -> Result<Vec<Object>, Error> {
        let (status, state) = (cell.status()?, cell.iorm(&IormChange::default())?);
        let text = |name: &str| match state[name].as_str() {
            Some(text) if !text.is_empty() => Value::from(text.to_owned()),
            _ => Value::Unset,
        };
        let is_off = state["objective"] == "off";
        let name = format!("{}_IORMPLAN", status.name);
        let shown = if is_off { "inactive" } else { "active" };
        Ok(vec![vec![name.into(), Value::Unset, text("dbplan"), text("objective"), shown.into()]])
    }

    fn alterations(&self) -> &'static [&'static str] {
        &["objective = objective", "dbplan = ((name = database, attribute = value [, ...]) [, ...])", "dbplan = \"\""]
    }

    fn alter(&self, cell: &Connection, _object: &Object, operation: &Operation) -> Result<&'static str, Error> {
        let Operation::Assign(values) = operation else { return Err(self.cannot(operation)) };
        let mut change = IormChange::default();
        for (attribute, value) in values {
            match attribute.to_ascii_lowercase().as_str() {
                "objective" => change.objective = Some(value.clone()),
                "dbplan" => change.dbplan = Some(value.clone()),
                // Oracle's commands clear the plan of categories together with the plan of databases.
                "catplan" if value.is_empty() => {}
                "catplan" => return Err(Error::unsupported("a cell has no categories of databases; use dbplan")),
                _ => return Err(self.cannot(operation)),
            }
        }
        cell.iorm(&change)?;
        Ok("successfully altered")
    }
}
