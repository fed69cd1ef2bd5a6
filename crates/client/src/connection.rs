//! One connection to a cell: a state machine that never blocks.
//!
//! The owner calls [`Connection::next_event`] and does what the event says; it waits on [`Connection::socket`] itself.
//! A connection carries one scan. Opening another one while ranges of the first are unanswered drops the socket and
//! connects anew, so that no frame of an abandoned scan is ever taken for the new one's.
//!
//! A daemon that is stopped or overloaded accepts no connections, and once their queue is full, connecting would block.
//! The connection then tries again each time it is asked what to do, for two seconds.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cellar_format::bytes::Corrupt;
use cellar_format::stats::ScanStats;
use cellar_format::wire::{
    BlockRange, CompressProgress, CompressRequest, DueQuery, DueUnits, ErrorReport, FRAME_HEADER_BYTES, FileIoCounts,
    FileIoQuery, FrameHeader, Hello, Kind, Passthru, RangeDone, ScanRequest, Units, UnitsQuery, XidQuery, XidState,
    XidStates,
};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::batch::Batch;

/// How long the queue of new connections may stay full.
const CONNECT_PATIENCE: Duration = Duration::from_secs(2);

/// What the owner has to do next.
#[derive(Debug)]
pub enum Event {
    WaitReadable,
    WaitWritable,
    /// The cell takes no connections just now; ask again in some milliseconds. The socket cannot be waited on.
    WaitConnect,
    Batch(Batch),
    Passthru(Passthru),
    XidQuery(XidQuery),
    /// What the range under way has counted since it was last told; the range goes on.
    RangeProgress(ScanStats),
    RangeDone(ScanStats),
    FileIo(FileIoCounts),
    /// A compression goes on.
    CompressProgress(CompressProgress),
    CompressDone(CompressProgress),
    Units(Units),
    DueUnits(DueUnits),
    /// The connection is of no further use.
    Failed(ErrorReport),
}

pub struct Connection {
    path: PathBuf,
    hello: Hello,
    stream: UnixStream,
    /// Since when the cell has been taking no connection; None once there is one.
    connecting: Option<Instant>,
    outgoing: VecDeque<u8>,
    ranges_outstanding: usize,
    header: [u8; FRAME_HEADER_BYTES],
    header_filled: usize,
    /// The frame under way, or handed out.
    frame: Option<FrameHeader>,
    /// Eight-byte words, so that a batch's datums are aligned.
    payload: Vec<u64>,
    payload_filled: usize,
    /// A whole frame was handed out; the next call starts a new one.
    handed_out: bool,
    failed: Option<ErrorReport>,
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
            header: [0; FRAME_HEADER_BYTES],
            header_filled: 0,
            frame: None,
            payload: Vec::new(),
            payload_filled: 0,
            handed_out: false,
            failed: None,
        };
        connection.greet();
        Ok(connection)
    }

    pub fn socket(&self) -> RawFd {
        self.stream.as_raw_fd()
    }

    /// The bytes of the frame that the last event stood for.
    pub fn payload(&self) -> &[u8] {
        let bytes = bytemuck::cast_slice::<u64, u8>(&self.payload);
        &bytes[..self.payload_bytes()]
    }

    pub fn scan_open(&mut self, request: Result<Vec<u8>, String>) {
        let request = match request {
            Ok(request) => request,
            Err(fault) => {
                self.misbuilt(&fault);
                return;
            }
        };
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

    /// Asks what the file service counted; between scans only.
    pub fn ask_file_io(&mut self, query: FileIoQuery) {
        self.send(Kind::FileIoQuery, |out| query.encode(out));
    }

    /// Compresses, or with level 0 decompresses; the connection carries nothing else until that is done.
    pub fn compress(&mut self, relation: Result<ScanRequest, String>, range: BlockRange, level: u8) {
        match relation {
            Ok(relation) => {
                self.send(Kind::Compress, |out| CompressRequest { level, range, relation }.encode(out));
            }
            Err(fault) => self.misbuilt(&fault),
        }
    }

    /// Asks for the forms of a relation's allocation units; between scans only.
    pub fn ask_units(&mut self, relation: Result<ScanRequest, String>, range: BlockRange) {
        match relation {
            Ok(relation) => {
                self.send(Kind::UnitsQuery, |out| UnitsQuery { range, relation }.encode(out));
            }
            Err(fault) => self.misbuilt(&fault),
        }
    }

    /// Asks which allocation units are due; between scans only.
    pub fn ask_due(&mut self, relation: Result<ScanRequest, String>, range: BlockRange, level: u8, idle_us: u64) {
        match relation {
            Ok(relation) => {
                self.send(Kind::DueQuery, |out| DueQuery { level, idle_us, range, relation }.encode(out));
            }
            Err(fault) => self.misbuilt(&fault),
        }
    }

    pub fn answer_xids(&mut self, states: Vec<XidState>) {
        self.send(Kind::XidStates, |out| XidStates { states }.encode(out));
    }

    /// Sends what is queued, receives what has come, and tells what to do.
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
            if self.handed_out {
                self.forget_payload();
            }
            // What the cell said before it closed the connection explains a failed send better than the send does.
            let flushed = self.flush();
            let Some(kind) = self.fill()? else {
                flushed.map_err(|error| self.lost(&error))?;
                return Ok(if self.outgoing.is_empty() { Event::WaitReadable } else { Event::WaitWritable });
            };
            self.handed_out = true;
            match self.event(kind).map_err(|error| self.garbled(&error))? {
                Some(Event::Failed(report)) => return Err(report),
                Some(event) => return Ok(event),
                None => {}
            }
        }
    }

    /// Makes room for the next frame.
    fn forget_payload(&mut self) {
        self.handed_out = false;
        self.header_filled = 0;
        self.frame = None;
        self.payload_filled = 0;
    }

    fn payload_bytes(&self) -> usize {
        self.frame.map_or(0, |frame| frame.payload_bytes as usize)
    }

    /// None for a frame that the owner need not see.
    fn event(&mut self, kind: Kind) -> Result<Option<Event>, Corrupt> {
        let payload = self.payload();
        Ok(Some(match kind {
            Kind::Welcome => return Ok(None),
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
            Kind::CompressProgress => Event::CompressProgress(CompressProgress::decode(payload)?),
            Kind::CompressDone => Event::CompressDone(CompressProgress::decode(payload)?),
            Kind::Units => Event::Units(Units::decode(payload)?),
            Kind::DueUnits => Event::DueUnits(DueUnits::decode(payload)?),
            Kind::Hello
            | Kind::ScanOpen
            | Kind::ScanRange
            | Kind::XidStates
            | Kind::FileIoQuery
            | Kind::StatusQuery
            | Kind::Status
            | Kind::Compress
            | Kind::UnitsQuery
            | Kind::DueQuery => {
                return Err(Corrupt::new("frame kind", 4, format!("{kind:?} from a cell")));
            }
        }))
    }

    /// Receives until one whole frame is there, whose kind it tells, or nothing more has come.
    fn fill(&mut self) -> Result<Option<Kind>, ErrorReport> {
        let frame = match self.frame {
            Some(frame) => frame,
            None => {
                while self.header_filled < FRAME_HEADER_BYTES {
                    let received = receive(&mut self.stream, &mut self.header[self.header_filled..]);
                    match received.map_err(|error| self.lost(&error))? {
                        Some(count) => self.header_filled += count,
                        None => return Ok(None),
                    }
                }
                let frame = FrameHeader::decode(&self.header).map_err(|error| self.garbled(&error))?;
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
            match received.map_err(|error| self.lost(&error))? {
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

    /// True once there is a connection; an error when there was none for too long.
    fn try_connect(&mut self) -> Result<bool, ErrorReport> {
        let Some(since) = self.connecting else { return Ok(true) };
        if connect(&self.stream, &self.path).map_err(|error| unconnected(&self.path, &error))? {
            self.connecting = None;
            return Ok(true);
        }
        if since.elapsed() >= CONNECT_PATIENCE {
            let waited = format!("it took no connection in {} s", CONNECT_PATIENCE.as_secs());
            return Err(unconnected(&self.path, &io::Error::new(io::ErrorKind::TimedOut, waited)));
        }
        Ok(false)
    }

    fn greet(&mut self) {
        let hello = self.hello.clone();
        self.send(Kind::Hello, |out| hello.encode(out));
    }

    fn restart(&mut self, stream: UnixStream, connected: bool) {
        self.stream = stream;
        self.connecting = (!connected).then(Instant::now);
        self.outgoing.clear();
        self.ranges_outstanding = 0;
        self.forget_payload();
        self.greet();
    }

    fn send(&mut self, kind: Kind, write: impl FnOnce(&mut Vec<u8>)) {
        let mut frame = Vec::new();
        FrameHeader::frame(&mut frame, kind, write);
        self.outgoing.extend(frame);
        // A failure shows in the next step, after what the cell may have said about it.
        let _ = self.flush();
    }

    fn misbuilt(&mut self, fault: &str) {
        self.failed = Some(ErrorReport::new("XX000", format!("could not build a request: {fault}")));
    }

    fn lost(&self, error: &io::Error) -> ErrorReport {
        let mut report =
            ErrorReport::new("08006", format!("lost the connection to the cell at \"{}\"", self.path.display()));
        report.detail = match error.kind() {
            io::ErrorKind::UnexpectedEof => "The cell closed the connection.".to_owned(),
            _ => error.to_string(),
        };
        report.hint = "Look into the cell's log; when the cell runs again, repeat the statement.".to_owned();
        report
    }

    fn garbled(&self, error: &Corrupt) -> ErrorReport {
        let mut report =
            ErrorReport::new("08P01", format!("the cell at \"{}\" sent a garbled frame", self.path.display()));
        report.detail = error.to_string();
        report.hint = "Make sure that cell and extension are of the same version.".to_owned();
        report
    }
}

/// Receives some bytes; None when none have come.
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

/// A socket, and whether it is connected already.
fn start_connecting(path: &Path) -> Result<(UnixStream, bool), ErrorReport> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
        .map_err(|error| unconnected(path, &error.into()))?;
    let stream = UnixStream::from(socket);
    let connected = connect(&stream, path).map_err(|error| unconnected(path, &error))?;
    Ok((stream, connected))
}

/// False when the queue of new connections is full.
fn connect(stream: &UnixStream, path: &Path) -> io::Result<bool> {
    match rustix::net::connect(stream, &SocketAddrUnix::new(path)?) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn unconnected(path: &Path, error: &io::Error) -> ErrorReport {
    let mut report = ErrorReport::new("08001", format!("could not connect to the cell at \"{}\"", path.display()));
    report.detail = error.to_string();
    report.hint = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "Only the operating-system user named as \"user\" in the cell's configuration may use its socket."
        }
        io::ErrorKind::TimedOut => "The cell's daemon is stopped or overloaded; look into its log.",
        _ => "Start the cell with \"cellar cell\", or look into its log.",
    }
    .to_owned();
    report
}
