//! The status of a running cell, and its metrics. The daemon collects them; an operator's command requests them over the
//! cell's socket.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub use cellar_format::wire::CellStatus;
use cellar_format::wire::{DiskStatus, Kind, MemoryStatus};
use serde_json::{Value, json};

use crate::cell_request::{CellRequest, RequestError};
use crate::config::Config;
use crate::metrics::Metrics;
use crate::state::CellState;

/// Time limit of each send and receive.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The properties of a cell that are fixed at the start of its daemon.
#[derive(Debug)]
pub struct CellInfo {
    name: String,
    mount: PathBuf,
    started: Instant,
}

impl CellInfo {
    pub fn new(config: &Config) -> Self {
        Self { name: config.name.clone(), mount: config.mount.clone(), started: Instant::now() }
    }

    pub fn status(&self, state: &CellState, metrics: &Metrics) -> CellStatus {
        let disks = state.volume.disk_spaces().into_iter().map(|disk| DiskStatus {
            path: disk.path.display().to_string(),
            total_bytes: disk.total,
            available_bytes: disk.available,
            reserve_bytes: disk.reserve,
            reserve_free_bytes: disk.reserve_free,
        });
        let (cache, (scans, counts)) = (state.volume.cache_stats(), metrics.totals());
        let memory = state.memory.usage(cache.used_bytes).map(|usage| MemoryStatus {
            kind: usage.kind.name().to_owned(),
            used_bytes: usage.used_bytes,
            limit_bytes: usage.limit_bytes,
        });
        CellStatus {
            name: self.name.clone(),
            mount: self.mount.display().to_string(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uptime_seconds: self.started.elapsed().as_secs(),
            disks: disks.collect(),
            cache_capacity_bytes: cache.capacity_bytes,
            cache_used_bytes: cache.used_bytes,
            memory: memory.to_vec(),
            storage_index_loaded_regions: state.storage_index.loaded_regions(),
            scans,
            eligible_bytes: counts.eligible_bytes,
            saved_by_storage_index_bytes: counts.saved_by_storage_index_bytes,
            returned_bytes: counts.returned_bytes,
        }
    }
}

/// Requests the status of the cell that listens on `socket`.
pub fn query(socket: &Path) -> Result<CellStatus, RequestError> {
    CellRequest::send(socket, TIMEOUT, Kind::StatusQuery, |_| {})?.receive(Kind::Status, CellStatus::decode)
}

/// Requests the metrics of the cell that listens on `socket`, in the JSON form of the HTTP endpoint.
pub fn query_metrics(socket: &Path) -> Result<Value, RequestError> {
    let mut request = CellRequest::send(socket, TIMEOUT, Kind::MetricsQuery, |_| {})?;
    let text = request.receive(Kind::Metrics, |payload| Ok(payload.to_vec()))?;
    serde_json::from_slice(&text).map_err(|error| request.no_answer(io::Error::other(error).into()))
}

/// Returns the JSON form of a status.
pub fn json(status: &CellStatus) -> Value {
    let disks = status.disks.iter().map(|disk| {
        json!({
            "path": disk.path,
            "total_bytes": disk.total_bytes,
            "available_bytes": disk.available_bytes,
            "reserve_bytes": disk.reserve_bytes,
            "reserve_free_bytes": disk.reserve_free_bytes,
        })
    });
    let kinds = status.memory.iter().map(|memory| {
        (memory.kind.clone(), json!({ "used_bytes": memory.used_bytes, "limit_bytes": memory.limit_bytes }))
    });
    json!({
        "name": status.name,
        "mount": status.mount,
        "version": status.version,
        "pid": status.pid,
        "uptime_seconds": status.uptime_seconds,
        "disks": disks.collect::<Vec<_>>(),
        "page_cache": { "capacity_bytes": status.cache_capacity_bytes, "used_bytes": status.cache_used_bytes },
        "memory": {
            "limit_bytes": memory_limit_bytes(status),
            "used_bytes": memory_used_bytes(status),
            "kinds": kinds.collect::<serde_json::Map<_, _>>(),
        },
        "storage_index": { "loaded_regions": status.storage_index_loaded_regions },
        "smart_scans": {
            "served": status.scans,
            "eligible_bytes": status.eligible_bytes,
            "saved_by_storage_index_bytes": status.saved_by_storage_index_bytes,
            "returned_bytes": status.returned_bytes,
        },
    })
}

/// Returns what a cell's metrics say about disks with a device model: an object for each, with the values by name and
/// label.
pub fn disk_models(metrics: &Value) -> Value {
    const PREFIX: &str = "cellar_disk_model_";
    let mut disks: std::collections::BTreeMap<String, serde_json::Map<String, Value>> = Default::default();
    for family in metrics["metrics"].as_array().into_iter().flatten() {
        let Some(name) = family["name"].as_str().and_then(|name| name.strip_prefix(PREFIX)) else { continue };
        for sample in family["samples"].as_array().into_iter().flatten() {
            let Some(disk) = sample["labels"]["disk"].as_str() else { continue };
            let disk = disks.entry(disk.to_owned()).or_default();
            let labels = sample["labels"].as_object().into_iter().flatten();
            let label = labels.filter(|(label, _)| *label != "disk").find_map(|(_, value)| value.as_str());
            match label {
                Some(model) if name == "time_scale_ratio" => {
                    disk.insert("model".into(), model.into());
                    disk.insert("time_scale".into(), sample["value"].clone());
                }
                Some(label) => {
                    let mut value = sample.clone();
                    if let Some(fields) = value.as_object_mut() {
                        fields.remove("labels");
                    }
                    let value = sample.get("value").cloned().unwrap_or(value);
                    disk.entry(name).or_insert_with(|| json!({}))[label] = value;
                }
                None => drop(disk.insert(name.to_owned(), sample["value"].clone())),
            }
        }
    }
    let with_amplification = |(path, mut disk): (String, serde_json::Map<String, Value>)| {
        let bytes = |cause: &str| disk["programmed_bytes_total"][cause].as_f64().unwrap_or(0.0);
        let (requested, collected) = (bytes("request"), bytes("collection"));
        if requested > 0.0 {
            disk.insert("write_amplification".into(), json!((requested + collected) / requested));
        }
        disk.insert("path".into(), path.into());
        Value::Object(disk)
    };
    disks.into_iter().map(with_amplification).collect()
}

/// Returns the memory budget of a cell.
pub fn memory_limit_bytes(status: &CellStatus) -> u64 {
    status.memory.iter().map(|memory| memory.limit_bytes).sum()
}

pub fn memory_used_bytes(status: &CellStatus) -> u64 {
    status.memory.iter().map(|memory| memory.used_bytes).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_metrics_of_a_device_model_become_one_object() {
        let sample = |labels: Value, value: Value| json!({ "labels": labels, "value": value });
        let metrics = json!({ "metrics": [
            { "name": "cellar_disk_size_bytes", "samples": [sample(json!({ "disk": "/d" }), json!(1))] },
            { "name": "cellar_disk_model_time_scale_ratio",
              "samples": [sample(json!({ "disk": "/d", "model": "flash-mlc" }), json!(0.5))] },
            { "name": "cellar_disk_model_queued_requests", "samples": [sample(json!({ "disk": "/d" }), json!(3))] },
            { "name": "cellar_disk_model_programmed_bytes_total", "samples": [
                sample(json!({ "disk": "/d", "cause": "request" }), json!(100)),
                sample(json!({ "disk": "/d", "cause": "collection" }), json!(150)) ] },
        ] });
        let expected = json!([{
            "path": "/d",
            "model": "flash-mlc",
            "time_scale": 0.5,
            "queued_requests": 3,
            "programmed_bytes_total": { "request": 100, "collection": 150 },
            "write_amplification": 2.5,
        }]);
        assert_eq!(disk_models(&metrics), expected);
        assert_eq!(disk_models(&json!({})), json!([]));
    }
}
