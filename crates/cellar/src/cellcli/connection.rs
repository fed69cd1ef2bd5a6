//! Requests to the cell.

use super::error::Error;
use cellar_cell::alerts::{self, AlertRequest};
use cellar_cell::cell_metrics::Reading;
use cellar_cell::cell_request::RequestError;
use cellar_cell::config::Config;
use cellar_cell::history::{self, Extent};
use cellar_cell::inspect::remote;
use cellar_cell::inspect::report::{FlashContentFile, ReportBody};
use cellar_cell::iorm::{self, IormChange};
use cellar_cell::{group, status};
use cellar_format::wire::{CellStatus, GroupAction, GroupRequest, HistoryQuery, InspectQuery, Report};
use serde_json::Value;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

pub struct Connection {
    pub socket: PathBuf,
    /// The cell's configuration file, if the command knows it.
    pub config: Option<PathBuf>,
    /// Time between the two readings that rates are computed from.
    pub interval: Duration,
}

impl Connection {
    pub fn status(&self) -> Result<CellStatus, Error> {
        status::query(&self.socket).map_err(error)
    }

    /// Returns the metrics, in the JSON form of the HTTP endpoint.
    pub fn metrics(&self) -> Result<Value, Error> {
        status::query_metrics(&self.socket).map_err(error)
    }

    /// Returns what the flash cache has of each file.
    pub fn flash_content(&self) -> Result<Vec<FlashContentFile>, Error> {
        let (path, report) = (String::new(), Report::FlashContent);
        let query = InspectQuery { report, path, number: 0, is_complete: false };
        match remote::query(&self.socket, &query).map_err(error)?.report {
            ReportBody::FlashContent(report) => Ok(report.files),
            _ => Err(Error::refused("the cell answered with another report")),
        }
    }

    pub fn group(&self) -> Result<Value, Error> {
        self.group_request(GroupAction::Status, "", 0)
    }

    /// Sends a request for the disk group, and returns the state of the group after it.
    pub fn group_request(&self, action: GroupAction, disk: &str, rate: u64) -> Result<Value, Error> {
        self.send(&GroupRequest { rate, ..GroupRequest::on_disk(action, disk.to_owned()) })
    }

    pub fn send(&self, request: &GroupRequest) -> Result<Value, Error> {
        group::request(&self.socket, request).map_err(error)
    }

    /// Changes the plan of the resource manager, and returns its state.
    pub fn iorm(&self, change: &IormChange) -> Result<Value, Error> {
        iorm::request(&self.socket, change).map_err(error)
    }

    /// Returns the alerts and thresholds after a request.
    pub fn alerts(&self, request: &AlertRequest) -> Result<Value, Error> {
        alerts::request(&self.socket, request).map_err(error)
    }

    /// Calls `visit` with the records of the history of metrics of these times, in milliseconds since 1970, and with the last record
    /// before them. Returns the times of the first and the last record that the cell has.
    pub fn history(&self, times: &RangeInclusive<u64>, visit: impl FnMut(Value)) -> Result<Extent, Error> {
        let query = HistoryQuery { first_ms: *times.start(), last_ms: *times.end() };
        history::query(&self.socket, &query, visit).map_err(error)
    }

    /// Reads the counters of the cell and of its machine. The socket of a cell is local, so its machine is the one that runs this
    /// program.
    pub fn reading(&self) -> Result<Reading, Error> {
        Ok(Reading::new(self.metrics()?, &self.group()?))
    }

    /// Calls `visit` with each record of the history of metrics of these times, in milliseconds since 1970, after the record before
    /// it. Returns the times of the first and the last record that the cell has.
    pub fn readings(
        &self,
        times: &RangeInclusive<u64>,
        mut visit: impl FnMut(&Reading, &Reading),
    ) -> Result<Extent, Error> {
        let mut before: Option<Reading> = None;
        self.history(times, |document| {
            let reading = Reading::recorded(document);
            if let Some(before) = before.as_ref().filter(|_| times.contains(&reading.time_ms())) {
                visit(before, &reading);
            }
            before = Some(reading);
        })
    }

    /// Adds a disk to the group, and to the configuration file if it is known. Returns false if the operator must extend the
    /// list of disks there.
    pub fn add(&self, request: &GroupRequest) -> Result<bool, Error> {
        let Some(file) = &self.config else { return self.send(request).map(|_| false) };
        let config = Config::read(file).map_err(|error| Error::refused(error.to_string()))?;
        let (_, warning) = crate::group::add(file, &config, request).map_err(Error::refused)?;
        Ok(warning.is_none())
    }
}

fn error(error: RequestError) -> Error {
    match error {
        RequestError::Refused { reason, .. } => Error::refused(format!("the cell refused the request: {reason}")),
        error => Error::no_connection(error),
    }
}
