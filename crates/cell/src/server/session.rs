//! One connection: the greeting, then requests in the order of their arrival.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use cellar_format::stats::ScanStats;
use cellar_format::wire::{
    BlockRange, CompressProgress, CompressRequest, ConsumerGroups, DatabaseNames, DueQuery, FileIoCounts, FileIoQuery,
    FileTypeIoCounts, GroupRequest, Hello, HistoryQuery, InspectQuery, Kind, Relation, RelationBlocks, ScanRequest,
    UnitsQuery, Welcome,
};
use cellar_scan::unit::{Level, Shape};
use cellar_storage::iorm::ToldGroups;
use cellar_storage::request::{Origin, within};

use super::error::SessionError;
use super::range::Backend;
use super::scan::OpenScan;
use crate::access::{Credentials, Permission};
use crate::alerts::Alerts;
use crate::compression::{self, CompressionError};
use crate::frame_stream::{FrameStream, StreamError};
use crate::group;
use crate::history::History;
use crate::inspect;
use crate::instance::Instance;
use crate::iorm;
use crate::log_context;
use crate::metrics::Metrics;
use crate::relation::{RelationAu, Segments};
use crate::state::{CellState, Transactions};
use crate::status::CellInfo;

/// A session that waits this long for a request releases its memory.
const IDLE_MAX: Duration = Duration::from_millis(100);

/// The parts of the cell that sessions use.
pub struct SessionContext {
    pub state: Arc<CellState>,
    pub metrics: Arc<Metrics>,
    pub history: Arc<History>,
    pub alerts: Arc<Alerts>,
    pub info: Arc<CellInfo>,
    pub instance: Arc<Instance>,
    /// Scans that take at least this long are logged; None logs no scan.
    pub slow_scan_log: Option<Duration>,
}

pub struct Session<'a> {
    stream: FrameStream,
    context: &'a SessionContext,
    /// Decide which files the requests of this session may name.
    peer: Arc<Credentials>,
    hello: Hello,
    scan: Option<OpenScan>,
    /// The transaction states of the backend's cluster, from the first scan on.
    transactions: Option<Arc<Transactions>>,
    /// Ranges that the backend requested while it answered a query for transaction states.
    queued_ranges: VecDeque<BlockRange>,
    /// The consumer groups of processes that the connection has told.
    told_groups: ToldGroups,
    /// Log context of the session itself, without a relation.
    log_context: String,
}

impl<'a> Session<'a> {
    /// Serves a connection until the backend closes it. An error is reported to the backend before this function
    /// returns.
    pub fn serve(mut stream: FrameStream, peer: Credentials, context: &'a SessionContext) -> Result<(), SessionError> {
        let hello = match greet(&mut stream, &context.instance) {
            Ok(hello) => hello,
            Err(error) => {
                report_error(&mut stream, &error);
                return Err(error);
            }
        };
        let log_context = format!("{}, database {}", log_context::current(), hello.database);
        log_context::set(log_context.clone());
        let mut session = Session {
            stream,
            context,
            peer: Arc::new(peer),
            hello,
            scan: None,
            transactions: None,
            queued_ranges: VecDeque::new(),
            told_groups: context.state.iorm.process_groups().connect(),
            log_context,
        };
        let Err(error) = session.serve_requests();
        session.close_scan();
        match error {
            SessionError::Stream(StreamError::Closed) => Ok(()),
            error => {
                report_error(&mut session.stream, &error);
                Err(error)
            }
        }
    }

    /// Serves requests until the connection fails; [`StreamError::Closed`] is the regular end of a session.
    fn serve_requests(&mut self) -> Result<Infallible, SessionError> {
        loop {
            if let Some(range) = self.queued_ranges.pop_front() {
                self.scan_range(range)?;
                continue;
            }
            self.release_memory_when_idle()?;
            let SessionContext { state, metrics, info, .. } = self.context;
            match self.stream.receive()? {
                (Kind::ScanOpen, payload) => {
                    let request = ScanRequest::decode(payload)?;
                    self.open_scan(&request)?;
                }
                (Kind::ScanRange, payload) => {
                    let range = BlockRange::decode(payload)?;
                    self.scan_range(range)?;
                }
                (kind @ (Kind::FileIoQuery | Kind::FileTypeIoQuery), payload) => {
                    let roots = FileIoQuery::decode(payload)?.roots;
                    self.check_roots(&roots)?;
                    if kind == Kind::FileTypeIoQuery {
                        let counts = metrics.file_type_io(&roots);
                        self.stream.send(Kind::FileTypeIoCounts, |out| FileTypeIoCounts { counts }.encode(out))?;
                        continue;
                    }
                    let counts = metrics.file_io(&roots);
                    self.stream.send(Kind::FileIoCounts, |out| FileIoCounts { counts }.encode(out))?;
                }
                (Kind::StatusQuery, _) => {
                    let status = info.status(state, metrics);
                    self.stream.send(Kind::Status, |out| status.encode(out))?;
                }
                (Kind::MetricsQuery, _) => {
                    let text = metrics.json().to_string();
                    self.stream.send(Kind::Metrics, |out| out.extend_from_slice(text.as_bytes()))?;
                }
                (Kind::GroupRequest, payload) => {
                    let request = GroupRequest::decode(payload)?;
                    let error = if request.action.is_about_flash() { SessionError::Flash } else { SessionError::Group };
                    let text = group::answer(state, &request).map_err(error)?.to_string();
                    self.stream.send(Kind::GroupReport, |out| out.extend_from_slice(text.as_bytes()))?;
                }
                (Kind::IormRequest, payload) => {
                    let text =
                        iorm::answer(&state.iorm, &state.volume, payload).map_err(SessionError::Iorm)?.to_string();
                    self.stream.send(Kind::IormReport, |out| out.extend_from_slice(text.as_bytes()))?;
                }
                (Kind::AlertRequest, payload) => {
                    let text = self.context.alerts.answer(payload).map_err(SessionError::Alerts)?.to_string();
                    self.stream.send(Kind::AlertReport, |out| out.extend_from_slice(text.as_bytes()))?;
                }
                (Kind::DatabaseNames, payload) => {
                    let DatabaseNames { roots, databases } = DatabaseNames::decode(payload)?;
                    self.check_roots(&roots)?;
                    state.iorm.name_cluster(&roots, &databases);
                }
                (Kind::ConsumerGroups, payload) => {
                    let told = ConsumerGroups::decode(payload)?.processes;
                    let told: Vec<_> =
                        told.into_iter().map(|(process, group)| (process, state.iorm.group(&group))).collect();
                    self.told_groups.set(&told);
                }
                (Kind::HistoryQuery, payload) => {
                    let query = HistoryQuery::decode(payload)?;
                    self.context.history.answer(&mut self.stream, &query)?;
                }
                (Kind::Compress, payload) => {
                    let request = CompressRequest::decode(payload)?;
                    self.compress(&request)?;
                }
                (Kind::UnitsQuery, payload) => {
                    let query = UnitsQuery::decode(payload)?;
                    let units = self.allocation_units(&query.blocks, Permission::Read)?;
                    let units = compression::units_by_level(&state.volume, &units).map_err(CompressionError::from)?;
                    self.stream.send(Kind::Units, |out| units.encode(out))?;
                }
                (Kind::DueQuery, payload) => {
                    let query = DueQuery::decode(payload)?;
                    let units = self.allocation_units(&query.blocks, Permission::Read)?;
                    let due = compression::due_units(state, &units, query.level, query.idle_us)
                        .map_err(CompressionError::from)?;
                    self.stream.send(Kind::DueUnits, |out| due.encode(out))?;
                }
                (Kind::InspectQuery, payload) => {
                    let query = InspectQuery::decode(payload)?;
                    inspect::remote::answer(&mut self.stream, &state.volume, &self.peer, &query)?;
                }
                (kind, _) => return Err(SessionError::unexpected(kind)),
            }
        }
    }

    /// Fails unless the peer may list the directories.
    fn check_roots(&self, roots: &[String]) -> Result<(), SessionError> {
        for root in roots {
            let resolved = self.peer.resolve(&self.context.state.volume, root, Permission::List);
            resolved.map_err(CompressionError::from)?;
        }
        Ok(())
    }

    fn open_scan(&mut self, request: &ScanRequest) -> Result<(), SessionError> {
        self.close_scan();
        self.set_log_relation(&request.relation);
        let incarnation = (self.hello.system_identifier, self.hello.incarnation);
        let state = &self.context.state;
        let transactions = self.transactions.get_or_insert_with(|| state.commit_cache.incarnation(incarnation));
        let process = self.hello.backend_pid;
        self.scan = Some(OpenScan::open(state, transactions, self.peer.clone(), request, process)?);
        self.context.metrics.scan_opened(self.hello.database);
        Ok(())
    }

    /// Waits for the next request. If none arrives soon, releases the memory that the session does not need meanwhile.
    fn release_memory_when_idle(&mut self) -> Result<(), SessionError> {
        let has_memory = self.stream.has_memory() || self.scan.as_ref().is_some_and(OpenScan::has_memory);
        if has_memory && !self.stream.wait(IDLE_MAX)? {
            self.stream.release_memory();
            if let Some(scan) = &mut self.scan {
                scan.release_memory();
            }
            self.queued_ranges = VecDeque::new();
        }
        Ok(())
    }

    fn close_scan(&mut self) {
        if let Some(scan) = self.scan.take() {
            scan.log_if_slow(self.context.slow_scan_log);
        }
    }

    fn scan_range(&mut self, range: BlockRange) -> Result<(), SessionError> {
        let SessionContext { state, metrics, .. } = self.context;
        let Some(scan) = &mut self.scan else { return Err(SessionError::unexpected(Kind::ScanRange)) };
        let database = self.hello.database;
        let count = |stats: &ScanStats| metrics.range_scanned(database, stats);
        let backend = Backend { stream: &mut self.stream, queued_ranges: &mut self.queued_ranges, count: &count };
        within(scan.origin, || scan.range(state, range, backend))
    }

    fn compress(&mut self, request: &CompressRequest) -> Result<(), SessionError> {
        let units = self.allocation_units(&request.blocks, Permission::ReadAndWrite)?;
        let shape = Shape::of(&request.blocks.relation);
        let stream = &mut self.stream;
        let report = |progress: CompressProgress| -> Result<(), SessionError> {
            Ok(stream.send(Kind::CompressProgress, |out| progress.encode(out))?)
        };
        let level = Level::from_u8(request.level);
        let state = &self.context.state;
        let done = within(Origin::CELL, || compression::compress(state, &units, &shape, level, report))?;
        Ok(self.stream.send(Kind::CompressDone, |out| done.encode(out))?)
    }

    /// Resolves blocks of a relation to allocation units of disk objects.
    fn allocation_units(
        &self,
        blocks: &RelationBlocks,
        permission: Permission,
    ) -> Result<Vec<RelationAu>, SessionError> {
        self.set_log_relation(&blocks.relation);
        let volume = self.context.state.volume.clone();
        let segments = Segments::new(volume, &blocks.relation, self.peer.clone(), permission);
        Ok(segments.allocation_units(blocks.range).map_err(CompressionError::from)?)
    }

    fn set_log_relation(&self, relation: &Relation) {
        log_context::set(format!("{}, file {}", self.log_context, relation.file));
    }
}

fn greet(stream: &mut FrameStream, instance: &Instance) -> Result<Hello, SessionError> {
    let hello = match stream.receive()? {
        (Kind::Hello, payload) => Hello::decode(payload)?,
        (kind, _) => return Err(SessionError::unexpected(kind)),
    };
    stream.send(Kind::Welcome, |out| Welcome { instance: instance.id() }.encode(out))?;
    Ok(hello)
}

/// Sends an error to the backend, which may have closed the connection.
fn report_error(stream: &mut FrameStream, error: &SessionError) {
    let report = error.report();
    let _ = stream.send(Kind::Error, |out| report.encode(out));
}
