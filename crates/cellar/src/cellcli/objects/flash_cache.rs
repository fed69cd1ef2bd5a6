//! FLASHCACHE: the flash cache of the cell. A cell without flash disks has none.

use super::super::ast::Operation;
use super::super::connection::Connection;
use super::super::error::Error;
use super::super::names::flash_cache_name;
use super::super::value::Value;
use super::{Object, ObjectType};
use crate::cell_source::{Metrics, label};
use cellar_format::wire::GroupAction;
use std::collections::BTreeMap;

pub struct FlashCache;

impl ObjectType for FlashCache {
    fn name(&self) -> &'static str {
        "FLASHCACHE"
    }

    fn title(&self) -> &'static str {
        "FlashCache"
    }

    fn attributes(&self) -> &'static [&'static str] {
        &[
            "name",
            "cellDisk",
            "degradedCelldisks",
            "dirtySize",
            "effectiveCacheSize",
            "flushStatus",
            "size",
            "status",
            "usedSize",
        ]
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
            flash_disks(&metrics, |_| true),
            flash_disks(&metrics, |errors| errors > 0),
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

/// Returns the paths of the open flash disks whose number of failed operations since the start of the cell `is_listed`.
fn flash_disks(metrics: &Metrics<'_>, is_listed: impl Fn(u64) -> bool) -> Value {
    let mut errors: BTreeMap<String, u64> = BTreeMap::new();
    for sample in metrics.samples("cellar_flash_disk_errors_total") {
        *errors.entry(label(sample, "disk")).or_default() += sample["value"].as_u64().unwrap_or(0);
    }
    let listed: Vec<String> =
        errors.into_iter().filter(|(_, errors)| is_listed(*errors)).map(|(disk, _)| disk).collect();
    if listed.is_empty() { Value::Unset } else { listed.join(",").into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn flash_disks_with_failed_operations_are_degraded() {
        let sample = |disk: &str, operation: &str, errors: u64| json!({ "labels": { "disk": disk, "operation": operation }, "value": errors });
        let samples =
            [sample("/f1", "read", 0), sample("/f2", "read", 0), sample("/f1", "write", 0), sample("/f2", "write", 3)];
        let document = json!({ "metrics": [{ "name": "cellar_flash_disk_errors_total", "samples": samples }] });
        let metrics = Metrics(&document);
        assert_eq!(flash_disks(&metrics, |_| true), "/f1,/f2".into());
        assert_eq!(flash_disks(&metrics, |errors| errors > 0), "/f2".into());
        let none = json!({ "metrics": [] });
        assert_eq!(flash_disks(&Metrics(&none), |_| true), Value::Unset);
    }
}
