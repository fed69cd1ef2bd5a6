//! Requests of an operator to the resource manager, and its state as JSON.

use crate::cell_request::{CellRequest, RequestError};
use cellar_format::wire::Kind;
use cellar_storage::iorm::{DeviceCalibration, DeviceReport, Iorm, Medium};
use cellar_storage::{Error, ErrorKind, Result, Volume};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::io;
use std::path::Path;
use std::time::Duration;

/// Time limit of each send and receive.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The same of a calibration, which writes and reads files on all disks.
const CALIBRATION_TIMEOUT: Duration = Duration::from_secs(600);
/// Without FORCE, a calibration waits this long for a request to a disk, which it would disturb.
const IDLE: Duration = Duration::from_secs(1);

/// What to change before the cell reports the state. None leaves a part as it is.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IormChange {
    pub objective: Option<String>,
    pub dbplan: Option<String>,
    /// Measures the disks; true also while they serve requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calibrate: Option<bool>,
}

/// Sends a request to the cell that listens on `socket`, and returns the state of the resource manager after it.
pub fn request(socket: &Path, change: &IormChange) -> std::result::Result<Value, RequestError> {
    let text = json!(change).to_string();
    let timeout = if change.calibrate.is_some() { CALIBRATION_TIMEOUT } else { TIMEOUT };
    let mut sent = CellRequest::send(socket, timeout, Kind::IormRequest, |out| out.extend_from_slice(text.as_bytes()))?;
    let text = sent.receive(Kind::IormReport, |payload| Ok(payload.to_vec()))?;
    serde_json::from_slice(&text).map_err(|error| sent.no_answer(io::Error::other(error).into()))
}

/// Does what a request says, and returns the state of the resource manager.
pub(crate) fn answer(iorm: &Iorm, volume: &Volume, request: &[u8]) -> Result<Value> {
    let change: IormChange = serde_json::from_slice(request)
        .map_err(|error| Error::new(ErrorKind::Invalid, format!("the request is not valid: {error}")))?;
    if change.objective.is_some() || change.dbplan.is_some() {
        iorm.alter(change.objective.as_deref(), change.dbplan.as_deref())?;
        let dbplan = match iorm.dbplan() {
            plan if plan.is_empty() => "no dbplan".to_owned(),
            plan => format!("dbplan {plan}"),
        };
        log::info!("the IORM plan was altered: objective {}, {dbplan}", iorm.plan().objective);
    }
    let mut report = report(iorm);
    if let Some(is_forced) = change.calibrate {
        if !is_forced {
            check_idle(iorm)?;
        }
        let calibrated = iorm.calibrate(|path, medium| volume.uses_disk(path, medium))?;
        report["calibration"] = calibrated.into_iter().map(calibration).collect();
    }
    Ok(report)
}

/// Fails if a disk serves requests of databases.
fn check_idle(iorm: &Iorm) -> Result<()> {
    let requests = || iorm.counts().iter().map(|class| class.disk.requests + class.flash.requests).sum::<u64>();
    let before = requests();
    std::thread::sleep(IDLE);
    match requests() - before {
        0 => Ok(()),
        count => {
            let message = format!(
                "the disks served {count} requests in a second, which a calibration would slow down and measure; stop the \
                 servers, or use CALIBRATE FORCE"
            );
            Err(Error::new(ErrorKind::Invalid, message))
        }
    }
}

fn calibration(device: DeviceCalibration) -> Value {
    let DeviceCalibration { path, medium, is_model, rates } = device;
    let (path, is_flash) = (path.display().to_string(), medium == Medium::Flash);
    let rates = match rates {
        Ok(rates) => rates,
        Err(error) => return json!({ "path": path, "is_flash": is_flash, "error": error.to_string() }),
    };
    json!({
        "path": path,
        "is_flash": is_flash,
        "is_model": is_model,
        "small_reads_per_second": rates.small_reads,
        "small_writes_per_second": rates.small_writes,
        "mixed_per_second": rates.mixed,
        "read_bytes_per_second": rates.read_bytes,
        "write_bytes_per_second": rates.write_bytes,
    })
}

fn report(iorm: &Iorm) -> Value {
    let device = |device: DeviceReport| {
        json!({
            "path": device.path.display().to_string(),
            "waiting": device.waiting,
            "idle_p99_us": device.idle_p99.map(|latency| latency.as_micros() as u64),
            "large_budget_us": (device.large_budget * 1e6) as u64,
            "depth_us": (device.depth * 1e6) as u64,
        })
    };
    json!({
        "objective": iorm.plan().objective.to_string(),
        "dbplan": iorm.dbplan(),
        "devices": iorm.devices().into_iter().map(device).collect::<Vec<_>>(),
    })
}
