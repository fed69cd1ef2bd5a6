//! A connection to a cell: a state machine that never blocks.
//!
//! The owner calls [`Connection::next_event`], handles the event, and waits on [`Connection::socket`] itself.
//!
//! A connection carries one scan at a time. [`Connection::scan_open`] replaces the socket if ranges of the previous
//! scan are still unanswered. The new scan therefore never receives a frame of the abandoned scan.
//!
//! A stopped or overloaded daemon accepts no connections, and `connect` would block once the listen queue is full. Each
//! call of [`Connection::next_event`] then tries to connect again, for up to two seconds.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cellar_format::bytes::Corrupt;
use cellar_format::stats::ScanStats;
use cellar_format::wire::{
    BlockRange, CompressProgress, CompressRequest, ConsumerGroups, DatabaseNames, DueQuery, DueUnits, ErrorReport,
    FRAME_HEADER_BYTES, FileIoCounts, FileIoQuery, FileTypeIoCounts, FrameError, FrameHeader, GroupAction,
    GroupRequest, HeapTids, Hello, Kind, LeafLinks, PROTOCOL_VERSION, Passthru, RangeDone, RelationBlocks, Units,
    UnitsQuery, Welcome, XidQuery, XidState, XidStates,
};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::batch::Batch;

/// Maximum time to wait for space in the cell's listen queue.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

const SAME_VERSION_HINT: &str = "Install the same version of the cell and of the extension.";

/// The next action of the owner, or a frame from the cell.
#[derive(Debug)]
pub enum Event {
    WaitReadable,
    WaitWritable,
    /// The cell's listen queue is full: call [`Connection::next_event`] again after some milliseconds. The socket is
    /// not connected yet, so waiting on the socket has no effect.
    WaitConnect,
    Batch(Batch),
    Passthru(Passthru),
    XidQuery(XidQuery),
    /// The current range's counts since the previous `RangeProgress`; the range continues.
    RangeProgress(ScanStats),
    /// The range is complete; the counts are those since the last `RangeProgress`.
    RangeDone(ScanStats),
    FileIo(FileIoCounts),
    FileTypeIo(FileTypeIoCounts),
    /// The totals of a compression so far; the compression continues.
    CompressProgress(CompressProgress),
    CompressDone(CompressProgress),
    Units(Units),
    DueUnits(DueUnits),
    /// The state of the disk group, or the metrics, as JSON text.
    Group(String),
    LeafLinks(LeafLinks),
    HeapTids(HeapTids),
    /// The connection is unusable; every later call of [`Connection::next_event`] returns the same error.
    Failed(ErrorReport),
}

pub struct Connection {
    path: PathBuf,
    hello: Hello,
    stream: UnixStream,
    /// Start of the attempts to connect; None once connected.
    connecting: Option<Instant>,
    outgoing: VecDeque<u8>,
    ranges_outstanding: usize,
    /// The instance of the daemon; None until the cell has sent `Welcome`.
    instance: Option<u64>,
    header: [u8; FRAME_HEADER_BYTES],
    header_filled: usize,
    /// Header of the frame being received, or of the frame of the last event.
    frame: Option<FrameHeader>,
    /// Eight-byte words, which align a batch's datums.
    payload: Vec<u64>,
    payload_filled: usize,
    /// The last event delivered a whole frame; the next call starts to receive another frame.
    frame_delivered: bool,
    failed: Option<ErrorReport>,
    /// What the cell was told last on this connection.
    told_names: DatabaseNames,
    told_groups: ConsumerGroups,
}

impl Connection {
    pub fn open(path: &Path, hello: Hello) -> Result<Self, ErrorReport> {
        let (stream, connected) = start_connecting(path)?;
        let mut connection = Self {
            path: path.to_owned(),
            hello,
            stream,
            connecting: (!connected).then(Instant::now),
            outgoing: VecDeque::new(),
            ranges_outstanding: 0,
            instance: None,
            header: [0; FRAME_HEADER_BYTES],
            header_filled: 0,
            frame: None,
            payload: Vec::new(),
            payload_filled: 0,
            frame_delivered: false,
            failed: None,
            told_names: DatabaseNames::default(),
            told_groups: ConsumerGroups::default(),
        };
        connection.send_hello();
        Ok(connection)
    }

    pub fn socket(&self) -> RawFd {
        self.stream.as_raw_fd()
    }

    /// Returns the instance of the daemon: a random number, not 0, that each run of the daemon chooses. None until
    /// [`Connection::next_event`] has received the cell's greeting.
    pub fn instance(&self) -> Option<u64> {
        self.instance
    }

    /// Returns the payload of the last event's frame.
    pub fn payload(&self) -> &[u8] {
        let bytes = bytemuck::cast_slice::<u64, u8>(&self.payload);
        &bytes[..self.payload_bytes()]
    }

    /// Opens a scan; `request` is an encoded `ScanRequest`, or the error of building the request.
    pub fn scan_open(&mut self, request: Result<Vec<u8>, String>) {
        let Some(request) = self.built(request) else { return };
        if self.ranges_outstanding > 0 {
            match start_connecting(&self.path) {
                Ok((stream, connected)) => self.restart(stream, connected),
                Err(error) => {
                    self.failed = Some(error);
                    return;
                }
            }
        }
        self.send(Kind::ScanOpen, |out| out.extend_from_slice(&request));
    }

    pub fn scan_range(&mut self, range: BlockRange) {
        self.ranges_outstanding += 1;
        self.send(Kind::ScanRange, |out| range.encode(out));
    }

    /// Requests the file service's counters. Allowed only while no range is unanswered.
    pub fn query_file_io(&mut self, query: FileIoQuery) {
        self.send(Kind::FileIoQuery, |out| query.encode(out));
    }

    /// Like `query_file_io`, by file type and relation. A cell of an earlier release answers with an error.
    pub fn query_file_type_io(&mut self, query: FileIoQuery) {
        self.send(Kind::FileTypeIoQuery, |out| query.encode(out));
    }

    /// Compresses blocks, or decompresses them with level 0. The connection carries nothing else until the compression
    /// is done.
    pub fn compress(&mut self, blocks: Result<RelationBlocks, String>, level: u8) {
        let Some(blocks) = self.built(blocks) else { return };
        self.send(Kind::Compress, |out| CompressRequest { level, blocks }.encode(out));
    }

    /// Requests the levels of blocks' allocation units. Allowed only while no range is unanswered.
    pub fn query_units(&mut self, blocks: Result<RelationBlocks, String>) {
        let Some(blocks) = self.built(blocks) else { return };
        self.send(Kind::UnitsQuery, |out| UnitsQuery { blocks }.encode(out));
    }

    /// Requests the allocation units that are due for compression. Allowed only while no range is unanswered.
    pub fn query_due_units(&mut self, blocks: Result<RelationBlocks, String>, level: u8, idle_us: u64) {
        let Some(blocks) = self.built(blocks) else { return };
        self.send(Kind::DueQuery, |out| DueQuery { level, idle_us, blocks }.encode(out));
    }

    /// Requests the state of the disk group. Allowed only while no range is unanswered.
    pub fn query_group(&mut self) {
        let query = GroupRequest::on_group(GroupAction::Status);
        self.send(Kind::GroupRequest, |out| query.encode(out));
    }

    /// Requests the cell's metrics. Allowed only while no range is unanswered.
    pub fn query_metrics(&mut self) {
        self.send(Kind::MetricsQuery, |_| {});
    }

    /// Tells the names of the databases of a cluster, unless the cell was told the same. Does nothing while earlier bytes wait to be
    /// sent: call again later.
    pub fn tell_names(&mut self, names: DatabaseNames) {
        if self.outgoing.is_empty() && names != self.told_names {
            self.send(Kind::DatabaseNames, |out| names.encode(out));
            self.told_names = names;
        }
    }

    /// Like [`Self::tell_names`], the consumer groups of the processes of a server.
    pub fn tell_all_groups(&mut self, groups: ConsumerGroups) {
        if self.outgoing.is_empty() {
            self.tell_group(groups);
        }
    }

    /// Tells the consumer group of this process before the next request, unless the cell was told the same.
    pub fn tell_group(&mut self, groups: ConsumerGroups) {
        if groups != self.told_groups {
            self.send(Kind::ConsumerGroups, |out| groups.encode(out));
            self.told_groups = groups;
        }
    }

    pub fn answer_xids(&mut self, states: Vec<XidState>) {
        self.send(Kind::XidStates, |out| XidStates { states }.encode(out));
    }

    /// Sends queued bytes, receives available bytes, and returns the next event. Never blocks.
    pub fn next_event(&mut self) -> Event {
        if let Some(report) = &self.failed {
            return Event::Failed(report.clone());
        }
        match self.step() {
            Ok(event) => event,
            Err(report) => {
                self.failed = Some(report.clone());
                Event::Failed(report)
            }
        }
    }

    fn step(&mut self) -> Result<Event, ErrorReport> {
        loop {
            if self.connecting.is_some() && !self.try_connect()? {
                return Ok(Event::WaitConnect);
            }
            if self.frame_delivered {
                self.reset_frame();
            }
            // Receive before reporting a failed send: the cell may have sent an error before it closed the connection.
            let flushed = self.flush();
            let Some(kind) = self.fill()? else {
                flushed.map_err(|error| self.connection_lost(&error))?;
                return Ok(if self.outgoing.is_empty() { Event::WaitReadable } else { Event::WaitWritable });
            };
            self.frame_delivered = true;
            match self.event(kind).map_err(|error| self.invalid_frame(&error))? {
                Some(Event::Failed(report)) => return Err(report),
                Some(event) => return Ok(event),
                None => {}
            }
        }
    }

    /// Prepares to receive the next frame.
    fn reset_frame(&mut self) {
        self.frame_delivered = false;
        self.header_filled = 0;
        self.frame = None;
        self.payload_filled = 0;
    }

    fn payload_bytes(&self) -> usize {
        self.frame.map_or(0, |frame| frame.payload_bytes as usize)
    }

    /// Decodes the received frame. Returns None for a frame without an event.
    fn event(&mut self, kind: Kind) -> Result<Option<Event>, Corrupt> {
        let payload = self.payload();
        Ok(Some(match kind {
            Kind::Welcome => {
                self.instance = Some(Welcome::decode(payload)?.instance);
                return Ok(None);
            }
            Kind::Batch => Event::Batch(Batch::check(payload)?),
            Kind::Passthru => Event::Passthru(Passthru::decode(payload)?),
            Kind::XidQuery => Event::XidQuery(XidQuery::decode(payload)?),
            Kind::RangeProgress => Event::RangeProgress(RangeDone::decode(payload)?.stats),
            Kind::RangeDone => {
                let done = RangeDone::decode(payload)?;
                self.ranges_outstanding = self.ranges_outstanding.saturating_sub(1);
                Event::RangeDone(done.stats)
            }
            Kind::Error => Event::Failed(ErrorReport::decode(payload)?),
            Kind::FileIoCounts => Event::FileIo(FileIoCounts::decode(payload)?),
            Kind::FileTypeIoCounts => Event::FileTypeIo(FileTypeIoCounts::decode(payload)?),
            Kind::CompressProgress => Event::CompressProgress(CompressProgress::decode(payload)?),
            Kind::CompressDone => Event::CompressDone(CompressProgress::decode(payload)?),
            Kind::Units => Event::Units(Units::decode(payload)?),
            Kind::DueUnits => Event::DueUnits(DueUnits::decode(payload)?),
            Kind::GroupReport | Kind::Metrics => Event::Group(String::from_utf8_lossy(payload).into_owned()),
            Kind::LeafLinks => Event::LeafLinks(LeafLinks::decode(payload)?),
            Kind::HeapTids => Event::HeapTids(HeapTids::decode(payload)?),
            Kind::Hello
            | Kind::ScanOpen
            | Kind::ScanRange
            | Kind::XidStates
            | Kind::FileIoQuery
            | Kind::FileTypeIoQuery
            | Kind::StatusQuery
            | Kind::Status
            | Kind::Compress
            | Kind::UnitsQuery
            | Kind::DueQuery
            | Kind::InspectQuery
            | Kind::InspectReport
            | Kind::GroupRequest
            | Kind::IormRequest
            | Kind::IormReport
            | Kind::AlertRequest
            | Kind::AlertReport
            | Kind::DatabaseNames
            | Kind::ConsumerGroups
            | Kind::HistoryQuery
            | Kind::HistoryRecord
            | Kind::MetricsQuery => {
                return Err(Corrupt::new("frame kind", 4, format!("{kind:?} from a cell")));
            }
        }))
    }

    /// Receives until one frame is complete and returns its kind. Returns None if the socket has no more bytes yet.
    fn fill(&mut self) -> Result<Option<Kind>, ErrorReport> {
        let frame = match self.frame {
            Some(frame) => frame,
            None => {
                while self.header_filled < FRAME_HEADER_BYTES {
                    let received = receive(&mut self.stream, &mut self.header[self.header_filled..]);
                    match received.map_err(|error| self.connection_lost(&error))? {
                        Some(count) => self.header_filled += count,
                        None => return Ok(None),
                    }
                }
                let frame = FrameHeader::decode(&self.header).map_err(|error| match error {
                    FrameError::Version(version) => self.version_mismatch(version),
                    FrameError::Corrupt(error) => self.invalid_frame(&error),
                })?;
                let words = (frame.payload_bytes as usize).div_ceil(8);
                if self.payload.len() < words {
                    self.payload.resize(words, 0);
                }
                *self.frame.insert(frame)
            }
        };
        let bytes = frame.payload_bytes as usize;
        while self.payload_filled < bytes {
            let payload = bytemuck::cast_slice_mut::<u64, u8>(&mut self.payload);
            let received = receive(&mut self.stream, &mut payload[self.payload_filled..bytes]);
            match received.map_err(|error| self.connection_lost(&error))? {
                Some(count) => self.payload_filled += count,
                None => return Ok(None),
            }
        }
        Ok(Some(frame.kind))
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.connecting.is_some() {
            return Ok(());
        }
        while !self.outgoing.is_empty() {
            let (front, _) = self.outgoing.as_slices();
            match self.stream.write(front) {
                Ok(count) => drop(self.outgoing.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Tries to connect. Returns whether the socket is connected; fails after [`CONNECT_TIMEOUT`].
    fn try_connect(&mut self) -> Result<bool, ErrorReport> {
        let Some(since) = self.connecting else { return Ok(true) };
        if connect(&self.stream, &self.path).map_err(|error| connect_error(&self.path, &error))? {
            self.connecting = None;
            return Ok(true);
        }
        if since.elapsed() >= CONNECT_TIMEOUT {
            let detail = format!("The cell accepted no connection in {} s.", CONNECT_TIMEOUT.as_secs());
            return Err(connect_error(&self.path, &io::Error::new(io::ErrorKind::TimedOut, detail)));
        }
        Ok(false)
    }

    fn send_hello(&mut self) {
        let hello = self.hello.clone();
        self.send(Kind::Hello, |out| hello.encode(out));
    }

    /// Continues on a new socket, dropping all state of the old one.
    fn restart(&mut self, stream: UnixStream, connected: bool) {
        self.stream = stream;
        self.connecting = (!connected).then(Instant::now);
        self.outgoing.clear();
        self.ranges_outstanding = 0;
        self.instance = None;
        self.reset_frame();
        self.send_hello();
        self.told_names = DatabaseNames::default();
        let groups = std::mem::take(&mut self.told_groups);
        self.tell_group(groups);
    }

    fn send(&mut self, kind: Kind, write: impl FnOnce(&mut Vec<u8>)) {
        let mut frame = Vec::new();
        FrameHeader::frame(&mut frame, kind, write);
        self.outgoing.extend(frame);
        // `step` reports a failure, after receiving any error that the cell sent.
        let _ = self.flush();
    }

    /// Returns the request; after an error of building the request, fails the connection and returns None.
    fn built<T>(&mut self, request: Result<T, String>) -> Option<T> {
        request
            .map_err(|error| {
                self.failed = Some(ErrorReport::new("XX000", format!("could not build a request to a cell: {error}")));
            })
            .ok()
    }

    fn connection_lost(&self, error: &io::Error) -> ErrorReport {
        let mut report =
            ErrorReport::new("08006", format!("lost the connection to the cell at \"{}\"", self.path.display()));
        report.detail = match error.kind() {
            io::ErrorKind::UnexpectedEof => "The cell closed the connection.".to_owned(),
            _ => ErrorReport::detail_of(error),
        };
        report.hint = "Check the cell's log. Repeat the statement when the cell runs again.".to_owned();
        report
    }

    fn invalid_frame(&self, error: &Corrupt) -> ErrorReport {
        let mut report = ErrorReport::new(
            "08P01",
            format!("received an invalid frame from the cell at \"{}\"", self.path.display()),
        );
        report.detail = ErrorReport::detail_of(error);
        report.hint = SAME_VERSION_HINT.to_owned();
        report
    }

    fn version_mismatch(&self, cell_version: u16) -> ErrorReport {
        let message = format!("the cell at \"{}\" uses another protocol version", self.path.display());
        let mut report = ErrorReport::new("08P01", message);
        report.detail =
            format!("The cell uses protocol version {cell_version}, the extension uses version {PROTOCOL_VERSION}.");
        report.hint = SAME_VERSION_HINT.to_owned();
        report
    }
}

/// Receives at least one byte. Returns None if no byte is available.
fn receive(stream: &mut UnixStream, into: &mut [u8]) -> io::Result<Option<usize>> {
    loop {
        match stream.read(into) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => return Ok(Some(count)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Creates a nonblocking socket and starts to connect. Returns the socket and whether it is connected.
fn start_connecting(path: &Path) -> Result<(UnixStream, bool), ErrorReport> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
        .map_err(|error| connect_error(path, &error.into()))?;
    let stream = UnixStream::from(socket);
    let connected = connect(&stream, path).map_err(|error| connect_error(path, &error))?;
    Ok((stream, connected))
}

/// Returns false if the cell's listen queue is full.
fn connect(stream: &UnixStream, path: &Path) -> io::Result<bool> {
    match rustix::net::connect(stream, &SocketAddrUnix::new(path)?) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn connect_error(path: &Path, error: &io::Error) -> ErrorReport {
    let mut report = ErrorReport::new("08001", format!("could not connect to the cell at \"{}\"", path.display()));
    report.detail = ErrorReport::detail_of(error);
    report.hint = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "Set \"user\" in the cell's configuration to the operating-system user of the server."
        }
        io::ErrorKind::TimedOut => "The cell's daemon is stopped or overloaded. Check the cell's log.",
        _ => "Start the cell with \"cellar cell\", or check the cell's log.",
    }
    .to_owned();
    report
}
