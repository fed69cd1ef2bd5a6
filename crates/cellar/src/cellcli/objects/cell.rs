//! CELL: the cell itself.

use super::super::ast::Operation;
use super::super::connection::Connection;
use super::super::error::Error;
use super::super::value::Value;
use super::{Object, ObjectType};
use crate::cell_source::Metrics;
use cellar_cell::status::{memory_limit_bytes, memory_used_bytes};
use cellar_format::wire::{GroupAction, GroupRequest};
use cellar_storage::FlashCacheMode;

pub struct Cell;

impl ObjectType for Cell {
    fn name(&self) -> &'static str {
        "CELL"
    }

    fn title(&self) -> &'static str {
        "Cell"
    }

    fn attributes(&self) -> &'static [&'static str] {
        &[
            "name",
            "cellsrvStatus",
            "cellVersion",
            "cpuCount",
            "flashCacheMode",
            "memoryGB",
            "memoryLimit",
            "memoryUsed",
            "mount",
            "pageCacheSize",
            "pageCacheUsed",
            "processId",
            "releaseVersion",
            "status",
            "upTime",
        ]
    }

    fn default_attributes(&self) -> &'static [&'static str] {
        &["name", "status"]
    }

    fn has_names(&self) -> bool {
        false
    }

    fn alterations(&self) -> &'static [&'static str] {
        &["flashCacheMode = {WriteThrough | WriteBack}"]
    }

    fn alter(&self, cell: &Connection, _object: &Object, operation: &Operation) -> Result<&'static str, Error> {
        let Operation::Assign(values) = operation else { return Err(self.cannot(operation)) };
        let [(attribute, value)] = &values[..] else { return Err(self.cannot(operation)) };
        if !attribute.eq_ignore_ascii_case("flashCacheMode") {
            return Err(self.cannot(operation));
        }
        let mode = FlashCacheMode::parse(value).map_err(|error| Error::invalid_value(error.to_string()))?;
        let request = GroupRequest::on_group(GroupAction::FlashCacheMode);
        cell.send(&GroupRequest { argument: mode.name().to_owned(), ..request })?;
        Ok("successfully altered")
    }

    fn read(&self, cell: &Connection) -> Result<Vec<Object>, Error> {
        let status = cell.status()?;
        let cpus = std::thread::available_parallelism().map_or(Value::Unset, |cpus| Value::Count(cpus.get() as u64));
        let mode = match Metrics(&cell.metrics()?).figure("cellar_write_back_selected") {
            Some(1) => FlashCacheMode::WriteBack.name().into(),
            Some(_) => FlashCacheMode::WriteThrough.name().into(),
            // A cell without flash disks.
            None => Value::Unset,
        };
        let up = status.uptime_seconds;
        let up_time = format!("{} days, {}:{:02}", up / 86_400, up / 3600 % 24, up / 60 % 60);
        // A cell that answers is online.
        Ok(vec![vec![
            status.name.as_str().into(),
            "running".into(),
            status.version.as_str().into(),
            cpus,
            mode,
            Value::Count(cellar_cell::config::machine_memory_bytes().div_ceil(1 << 30)),
            Value::Size(memory_limit_bytes(&status)),
            Value::Size(memory_used_bytes(&status)),
            status.mount.as_str().into(),
            Value::Size(status.cache_capacity_bytes),
            Value::Size(status.cache_used_bytes),
            Value::Count(status.pid.into()),
            status.version.as_str().into(),
            "online".into(),
            up_time.into(),
        ]])
    }
}
