//! One backend's connection: greeting, scans, ranges.

use std::collections::VecDeque;
use std::sync::Arc;

use cellar_format::bytes::Corrupt;
use cellar_format::stats::ScanStats;
use cellar_format::wire::{
    BlockRange, CompressProgress, CompressRequest, DueQuery, ErrorReport, FileIoCounts, FileIoQuery, Hello, Kind,
    ScanRequest, UnitsQuery,
};

use super::range::{self, Backend};
use super::stream::{FrameStream, StreamError};
use crate::compression::{self, CompressionError};
use crate::metrics::Metrics;
use crate::smart_scan::{ScanError, SmartScan, SmartScanState};
use crate::status::About;

#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    #[error(transparent)]
    Stream(#[from] StreamError),
    #[error(transparent)]
    Scan(#[from] ScanError),
    #[error(transparent)]
    Compression(#[from] CompressionError),
}

impl From<Corrupt> for SessionError {
    fn from(error: Corrupt) -> Self {
        Self::Stream(error.into())
    }
}

pub struct Session {
    stream: FrameStream,
    state: Arc<SmartScanState>,
    metrics: Arc<Metrics>,
    about: Arc<About>,
    hello: Hello,
}

impl Session {
    /// Greets the backend; the session then belongs to one backend of one database.
    pub fn greet(
        mut stream: FrameStream,
        state: Arc<SmartScanState>,
        metrics: Arc<Metrics>,
        about: Arc<About>,
    ) -> Result<Self, (FrameStream, SessionError)> {
        let hello = match stream.receive() {
            Ok((Kind::Hello, payload)) => Hello::decode(payload).map_err(SessionError::from),
            Ok((kind, _)) => Err(unexpected(kind)),
            Err(error) => Err(error.into()),
        };
        let hello = match hello {
            Ok(hello) => hello,
            Err(error) => return Err((stream, error)),
        };
        if let Err(error) = stream.send(Kind::Welcome, |_| {}) {
            return Err((stream, error.into()));
        }
        Ok(Self { stream, state, metrics, about, hello })
    }

    /// Serves until the backend closes the connection; an error has been told to the backend when this returns.
    pub fn run(mut self) -> Result<(), SessionError> {
        let ended = self.serve();
        match ended {
            Err(SessionError::Stream(StreamError::Closed)) => Ok(()),
            Err(error) => {
                let _ = tell(&mut self.stream, &error);
                Err(error)
            }
            Ok(()) => Ok(()),
        }
    }

    fn serve(&mut self) -> Result<(), SessionError> {
        let mut scans: Vec<SmartScan> = Vec::new();
        let mut asked = VecDeque::new();
        loop {
            let next = match asked.pop_front() {
                Some(range) => Some(range),
                None => match self.stream.receive()? {
                    (Kind::ScanOpen, payload) => {
                        let request = ScanRequest::decode(payload)?;
                        let incarnation = (self.hello.system_identifier, self.hello.incarnation);
                        let threads = usize::from(request.threads).min(self.state.helpers.processors);
                        scans = SmartScan::open(&self.state, incarnation, request, threads)?;
                        self.metrics.scan_opened(self.hello.database);
                        None
                    }
                    (Kind::ScanRange, payload) => Some(BlockRange::decode(payload)?),
                    (Kind::FileIoQuery, payload) => {
                        let counts = self.metrics.file_io(&FileIoQuery::decode(payload)?.roots);
                        self.stream.send(Kind::FileIoCounts, |out| FileIoCounts { counts }.encode(out))?;
                        None
                    }
                    (Kind::StatusQuery, _) => {
                        let status = self.about.status(&self.state.volume, &self.metrics);
                        self.stream.send(Kind::Status, |out| status.encode(out))?;
                        None
                    }
                    (Kind::Compress, payload) => {
                        let request = CompressRequest::decode(payload)?;
                        self.compress(&request)?;
                        None
                    }
                    (Kind::UnitsQuery, payload) => {
                        let units = compression::units(&self.state.volume, &UnitsQuery::decode(payload)?)?;
                        self.stream.send(Kind::Units, |out| units.encode(out))?;
                        None
                    }
                    (Kind::DueQuery, payload) => {
                        let query = DueQuery::decode(payload)?;
                        let due = compression::due(&self.state.volume, &self.state.unpaid, &query)?;
                        self.stream.send(Kind::DueUnits, |out| due.encode(out))?;
                        None
                    }
                    (kind, _) => return Err(unexpected(kind)),
                },
            };
            let Some(range) = next else { continue };
            if scans.is_empty() {
                return Err(unexpected(Kind::ScanRange));
            }
            let count = |stats: &ScanStats| self.metrics.range_scanned(self.hello.database, stats);
            let backend = Backend { stream: &mut self.stream, asked: &mut asked, count: &count };
            range::scan(&mut scans, range, &self.state.helpers, backend)?;
        }
    }

    fn compress(&mut self, request: &CompressRequest) -> Result<(), SessionError> {
        let stream = &mut self.stream;
        let tell = |progress: CompressProgress| -> Result<(), SessionError> {
            Ok(stream.send(Kind::CompressProgress, |out| progress.encode(out))?)
        };
        let done = compression::compress(&self.state.volume, &self.state.unpaid, request, &self.state.stopping, tell)?;
        Ok(self.stream.send(Kind::CompressDone, |out| done.encode(out))?)
    }
}

pub fn unexpected(kind: Kind) -> SessionError {
    Corrupt::new("frame kind", 4, format!("{kind:?} is not expected now")).into()
}

/// Tells the backend what went wrong, as far as it still listens.
pub fn tell(stream: &mut FrameStream, error: &SessionError) -> Result<(), StreamError> {
    let report = report(error);
    stream.send(Kind::Error, |out| report.encode(out))
}

fn report(error: &SessionError) -> ErrorReport {
    let (sqlstate, message, hint) = match error {
        SessionError::Stream(StreamError::Garbled(_)) => {
            ("08P01", "the cell received a garbled frame", "Make sure that cell and extension are of the same version.")
        }
        SessionError::Stream(_) => ("08006", "the cell lost its connection to the backend", ""),
        SessionError::Scan(ScanError::Unsupported(_)) => (
            "0A000",
            "the cell cannot evaluate the storage predicate",
            "Make sure that cell and extension are of the same version.",
        ),
        SessionError::Scan(ScanError::Storage(_)) => {
            ("58030", "the cell could not read the table", "Look into the cell's log and check its disks.")
        }
        SessionError::Scan(ScanError::Unit { .. }) => (
            "58030",
            "the cell could not read the table",
            "The table's other blocks are not affected. Check the cell's disks, and restore the table from a replica or a backup.",
        ),
        SessionError::Compression(CompressionError::Storage(_)) => {
            ("58030", "the cell could not read or write the table", "Look into the cell's log and check its disks.")
        }
        SessionError::Compression(CompressionError::Encode(_)) => {
            ("XX000", "the cell could not compress the table", "The table is as it was. Please report this.")
        }
        SessionError::Scan(ScanError::Stopping) | SessionError::Compression(CompressionError::Stopping) => {
            ("57P01", "the cell is shutting down", "When the cell runs again, repeat the statement.")
        }
    };
    ErrorReport {
        sqlstate: sqlstate.to_owned(),
        message: message.to_owned(),
        detail: error.to_string(),
        hint: hint.to_owned(),
    }
}
