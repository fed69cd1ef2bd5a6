//! FLASHCACHE: the flash cache of the cell. A cell without flash disks has none.

use super::super::ast::Operation;
use super::super::connection::Connection;
use super::super::error::Error;
use super::super::names::flash_cache_name;
use super::super::value::Value;
use super::{Object, ObjectType};
use crate::cell_source::Metrics;
use cellar_format::wire::GroupAction;

pub struct FlashCache;

impl ObjectType for FlashCache {
    fn name(&self) -> &'static str {
        "FLASHCACHE"
    }

    fn title(&self) -> &'static str {
        "FlashCache"
    }

    fn attributes(&self) -> &'static [&'static str] {
        &["name", "dirtySize", "effectiveCacheSize", "flushStatus", "size", "status", "usedSize"]
    }

    fn default_attributes(&self) -> &'static [&'static str] {
        &["name", "status"]
    }

    fn absence(&self) -> Option<&'static str> {
        Some(
            "this cell has no flash cache: flash_disks in its configuration file names no disks, or the flash cache was dropped",
        )
    }

    fn alterations(&self) -> &'static [&'static str] {
        &["{ALL | name} FLUSH", "{ALL | name} CANCEL FLUSH"]
    }

    fn alter(&self, cell: &Connection, _object: &Object, operation: &Operation) -> Result<&'static str, Error> {
        let Operation::Words(words) = operation else { return Err(self.cannot(operation)) };
        let words: Vec<String> = words.iter().map(|word| word.to_ascii_uppercase()).collect();
        let action = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["FLUSH"] => GroupAction::FlushFlashCache,
            ["CANCEL", "FLUSH"] => GroupAction::CancelFlush,
            _ => return Err(self.cannot(operation)),
        };
        cell.group_request(action, "", 0)?;
        Ok("altered successfully")
    }

    fn read(&self, cell: &Connection) -> Result<Vec<Object>, Error> {
        let (status, document) = (cell.status()?, cell.metrics()?);
        let metrics = Metrics(&document);
        let figure = |name: &str| metrics.figure(&format!("cellar_flash_cache_{name}"));
        let (Some(online), Some(size)) = (figure("online"), figure("capacity_bytes")) else { return Ok(Vec::new()) };
        let is_used = online == 1;
        let write_back = |name: &str| metrics.figure(&format!("cellar_write_back_{name}")).unwrap_or(0);
        let flush_status = match (write_back("flushing"), write_back("dirty_bytes")) {
            (0, _) => Value::Unset,
            (_, 0) => "completed".into(),
            _ => "working".into(),
        };
        Ok(vec![vec![
            flash_cache_name(&status.name).into(),
            Value::Size(write_back("dirty_bytes")),
            Value::Size(if is_used { size } else { 0 }),
            flush_status,
            Value::Size(size),
            // As Oracle's: a flash cache without its disks.
            if is_used { "normal" } else { "critical" }.into(),
            Value::Size(figure("used_bytes").filter(|_| is_used).unwrap_or(0)),
        ]])
    }
}
