//! The history of the metrics: their state at every minute of the last seven days.
//!
//! A record contains counters, not rates, so the increase between any two records is exact. A record at the start and one at the end
//! of each run of the daemon delimit what it counted.

mod day_files;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cellar_format::wire::{HistoryQuery, HistoryRecord, Kind};
use cellar_storage::{DiskMode, GroupDisk, Volume};
pub use day_files::FOLDER;
use day_files::{HistoryLog, HistoryReader, Record, is_full_day};
use serde_json::{Value, json};

use crate::background::{Background, Stopping};
use crate::cell_request::{CellRequest, RequestError};
use crate::disks;
use crate::frame_stream::{FrameStream, StreamError};
use crate::metrics::{Metrics, now_ms};

/// Time limit of each send and receive.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The beginnings of the names of metrics that the history contains.
const FAMILIES: [&str; 8] = [
    "cellar_cell_info",
    "cellar_start_time_seconds",
    "cellar_cpu_seconds_total",
    "cellar_iorm_",
    "cellar_disk_",
    "cellar_flash_cache_",
    "cellar_flash_log_",
    "cellar_smart_scan_",
];

pub struct History {
    socket: PathBuf,
    metrics: Arc<Metrics>,
    volume: Arc<Volume>,
}

impl History {
    pub fn new(socket: &Path, metrics: Arc<Metrics>, volume: Arc<Volume>) -> Arc<Self> {
        Arc::new(Self { socket: socket.to_owned(), metrics, volume })
    }

    /// Records until the result is dropped.
    pub fn start(self: Arc<Self>, interval: Duration) -> io::Result<Background> {
        Background::start("history", move |stopping| self.run(interval, stopping))
    }

    fn record(&self, log: &mut HistoryLog, was_full: &mut bool) {
        let mut document = self.metrics.json();
        let time_ms = document["time_ms"].as_u64().unwrap_or_else(now_ms);
        if let Some(families) = document["metrics"].as_array_mut() {
            families.retain(|family| {
                let name = family["name"].as_str().unwrap_or_default();
                FAMILIES.iter().any(|start| name.starts_with(start))
            });
            for family in families {
                let Some(fields) = family.as_object_mut() else { continue };
                fields.retain(|field, _| field == "name" || field == "samples");
                for sample in fields.get_mut("samples").and_then(Value::as_array_mut).into_iter().flatten() {
                    sample.as_object_mut().into_iter().for_each(|sample| drop(sample.remove("buckets")));
                }
            }
        }
        document["disks"] = numbered_disks(&self.volume);
        let record = Record { time_ms, text: document.to_string().into_bytes() };
        let result = log.append(&directories(&self.volume, &self.socket), &record);
        let is_full = result.as_ref().is_err_and(is_full_day);
        if let Err(error) = result
            && !(is_full && *was_full)
        {
            log::warn!("could not record the history of metrics: {error}");
        }
        *was_full = is_full;
    }

    fn run(&self, interval: Duration, stopping: &Stopping) {
        let interval_ms = (interval.as_millis() as u64).max(1);
        let (mut log, mut was_full) = (HistoryLog::default(), false);
        let mut recorded = u64::MAX;
        while !stopping.is_set() {
            let now = now_ms();
            if now / interval_ms != recorded {
                self.record(&mut log, &mut was_full);
                recorded = now / interval_ms;
            }
            stopping.pause(Duration::from_millis(interval_ms - now_ms() % interval_ms));
        }
        self.record(&mut log, &mut was_full);
    }

    /// Sends the records of these times, and the last one before them, whose counters the increases begin with.
    pub fn answer(&self, stream: &mut FrameStream, query: &HistoryQuery) -> Result<(), StreamError> {
        let log = HistoryReader::new(&directories(&self.volume, &self.socket));
        let times = log.times();
        let first = times.iter().rev().find(|time| **time < query.first_ms).copied().unwrap_or(query.first_ms);
        log.read(first..=query.last_ms, |Record { text, .. }| {
            stream.send(Kind::HistoryRecord, |out| HistoryRecord { is_last: false, text }.encode(out))
        })?;
        let text = json!({ "first_ms": times.first(), "last_ms": times.last() }).to_string().into_bytes();
        stream.send(Kind::HistoryRecord, |out| HistoryRecord { is_last: true, text }.encode(out))
    }
}

/// Returns the numbers and the paths of the cell disks, as a reading of metrics needs them.
pub fn numbered_disks(volume: &Volume) -> Value {
    let disk = |disk: GroupDisk| json!({ "disk_number": disk.number, "path": disk.path.display().to_string() });
    volume.group_status().disks.into_iter().map(disk).collect()
}

/// Returns the directories that the history is below: the disks that are online, or that of the socket.
pub fn directories(volume: &Volume, socket: &Path) -> Vec<PathBuf> {
    let members = volume.group_status().disks;
    let paths: Vec<PathBuf> = members.iter().map(|disk| disk.path.clone()).collect();
    let is_unusable = |disk: &GroupDisk| disk.mode != DiskMode::Online || disk.is_dropping;
    let mut directories = disks::directories(&paths, socket);
    directories.retain(|path| !members.iter().any(|disk| disk.path == *path && is_unusable(disk)));
    directories
}

/// The times of the first and the last record of a cell, in milliseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    pub first_ms: Option<u64>,
    pub last_ms: Option<u64>,
}

/// Calls `visit` with the records of a cell in order of the time: those of the query, and the last one before them.
pub fn query(socket: &Path, query: &HistoryQuery, mut visit: impl FnMut(Value)) -> Result<Extent, RequestError> {
    let mut request = CellRequest::send(socket, TIMEOUT, Kind::HistoryQuery, |out| query.encode(out))?;
    loop {
        let record = request.receive(Kind::HistoryRecord, HistoryRecord::decode)?;
        let document: Value =
            serde_json::from_slice(&record.text).map_err(|error| request.no_answer(io::Error::other(error).into()))?;
        if record.is_last {
            let time = |name: &str| document[name].as_u64();
            return Ok(Extent { first_ms: time("first_ms"), last_ms: time("last_ms") });
        }
        visit(document);
    }
}
