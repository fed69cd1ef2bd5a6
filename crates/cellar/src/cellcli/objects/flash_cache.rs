//! FLASHCACHE: the flash cache of the cell. A cell without flash disks has none.

use super::super::connection::Connection;
use super::super::error::Error;
use super::super::names::flash_cache_name;
use super::super::value::Value;
use super::{Object, ObjectType};
use crate::cell_source::Metrics;

pub struct FlashCache;

impl ObjectType for FlashCache {
    fn name(&self) -> &'static str {
        "FLASHCACHE"
    }

    fn title(&self) -> &'static str {
        "FlashCache"
    }

    fn attributes(&self) -> &'static [&'static str] {
        &["name", "effectiveCacheSize", "size", "status", "usedSize"]
    }

    fn default_attributes(&self) -> &'static [&'static str] {
        &["name", "status"]
    }

    fn read(&self, cell: &Connection) -> Result<Vec<Object>, Error> {
        let (status, document) = (cell.status()?, cell.metrics()?);
        let metrics = Metrics(&document);
        let figure = |name: &str| metrics.figure(&format!("cellar_flash_cache_{name}"));
        let (Some(online), Some(size)) = (figure("online"), figure("capacity_bytes")) else { return Ok(Vec::new()) };
        let is_used = online == 1;
        Ok(vec![vec![
            flash_cache_name(&status.name).into(),
            Value::Size(if is_used { size } else { 0 }),
            Value::Size(size),
            // As Oracle's: a flash cache without its disks.
            if is_used { "normal" } else { "critical" }.into(),
            Value::Size(figure("used_bytes").filter(|_| is_used).unwrap_or(0)),
        ]])
    }
}
