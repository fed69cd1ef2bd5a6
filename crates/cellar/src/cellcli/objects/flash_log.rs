//! FLASHLOG: the flash log of the cell. A cell without `flash_log_size` has none.

use super::super::connection::Connection;
use super::super::error::Error;
use super::super::names::flash_log_name;
use super::super::value::Value;
use super::{Object, ObjectType};
use crate::cell_source::Metrics;

pub struct FlashLog;

impl ObjectType for FlashLog {
    fn name(&self) -> &'static str {
        "FLASHLOG"
    }

    fn title(&self) -> &'static str {
        "FlashLog"
    }

    fn attributes(&self) -> &'static [&'static str] {
        &["name", "effectiveSize", "efficiency", "size", "status"]
    }

    fn default_attributes(&self) -> &'static [&'static str] {
        &["name", "status"]
    }

    fn read(&self, cell: &Connection) -> Result<Vec<Object>, Error> {
        let (status, document) = (cell.status()?, cell.metrics()?);
        let metrics = Metrics(&document);
        let figure = |name: &str| metrics.figure(&format!("cellar_flash_log_{name}"));
        let (Some(online), Some(size)) = (figure("online"), figure("size_bytes")) else { return Ok(Vec::new()) };
        let is_used = online == 1;
        let count = |name: &str| figure(name).unwrap_or(0) as f64;
        let (prevented, actual) = (count("prevented_outliers_total"), count("actual_outliers_total"));
        // As Oracle's: without outliers, all were prevented.
        let efficiency = if prevented + actual > 0.0 { 100.0 * prevented / (prevented + actual) } else { 100.0 };
        Ok(vec![vec![
            flash_log_name(&status.name).into(),
            Value::Size(if is_used { size } else { 0 }),
            format!("{efficiency:.1}").into(),
            Value::Size(size),
            if is_used { "normal" } else { "critical" }.into(),
        ]])
    }
}
