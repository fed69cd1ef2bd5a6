//! One connection to a cell: a state machine that never blocks.
//!
//! The owner calls [`Connection::next_event`] and does what the event says; it waits on [`Connection::socket`] itself.
//! A connection carries one scan. Opening another one while ranges of the first are unanswered drops the socket and
//! connects anew, so that no frame of an abandoned scan is ever taken for the new one's.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use cellar_format::bytes::Corrupt;
use cellar_format::stats::ScanStats;
use cellar_format::wire::{
    BlockRange, ErrorReport, FRAME_HEADER_BYTES, FileIoCounts, FileIoQuery, FrameHeader, Hello, Kind, Passthru,
    RangeDone, XidQuery, XidState, XidStates,
};

use crate::batch::Batch;

/// What the owner has to do next.
#[derive(Debug)]
pub enum Event {
    WaitReadable,
    WaitWritable,
    Batch(Batch),
    Passthru(Passthru),
    XidQuery(XidQuery),
    RangeDone(ScanStats),
    FileIo(FileIoCounts),
    /// The connection is of no further use.
    Failed(ErrorReport),
}

pub struct Connection {
    path: PathBuf,
    hello: Hello,
    stream: UnixStream,
    outgoing: VecDeque<u8>,
    ranges_outstanding: usize,
    header: [u8; FRAME_HEADER_BYTES],
    header_filled: usize,
    /// Eight-byte words, so that a batch's datums are aligned.
    payload: Vec<u64>,
    payload_bytes: usize,
    payload_filled: usize,
    /// A whole frame was handed out; the next call starts a new one.
    handed_out: bool,
    failed: Option<ErrorReport>,
}

impl Connection {
    pub fn open(path: &Path, hello: Hello) -> Result<Self, ErrorReport> {
        let stream = connect(path)?;
        let mut connection = Self {
            path: path.to_owned(),
            hello,
            stream,
            outgoing: VecDeque::new(),
            ranges_outstanding: 0,
            header: [0; FRAME_HEADER_BYTES],
            header_filled: 0,
            payload: Vec::new(),
            payload_bytes: 0,
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
        &bytes[..self.payload_bytes]
    }

    pub fn scan_open(&mut self, request: Result<Vec<u8>, String>) {
        let request = match request {
            Ok(request) => request,
            Err(fault) => {
                self.failed = Some(report("XX000", format!("could not build a Smart Scan request: {fault}")));
                return;
            }
        };
        if self.ranges_outstanding > 0 {
            match connect(&self.path) {
                Ok(stream) => self.restart(stream),
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
            if self.handed_out {
                self.forget_payload();
            }
            // What the cell said before it closed the connection explains a failed send better than the send does.
            let flushed = self.flush();
            match self.fill() {
                Ok(true) => {}
                Ok(false) => {
                    flushed.map_err(|error| self.lost(&error))?;
                    return Ok(if self.outgoing.is_empty() { Event::WaitReadable } else { Event::WaitWritable });
                }
                Err(error) => return Err(self.lost(&error)),
            }
            let header = FrameHeader::decode(&self.header).map_err(|error| self.garbled(&error))?;
            self.header_filled = 0;
            self.handed_out = true;
            match self.event(header.kind).map_err(|error| self.garbled(&error))? {
                Some(Event::Failed(report)) => return Err(report),
                Some(event) => return Ok(event),
                None => {}
            }
        }
    }

    /// Makes room for the next frame.
    fn forget_payload(&mut self) {
        self.handed_out = false;
        self.payload_filled = 0;
        self.payload_bytes = 0;
    }

    /// None for a frame that the owner need not see.
    fn event(&mut self, kind: Kind) -> Result<Option<Event>, Corrupt> {
        let payload = self.payload();
        Ok(Some(match kind {
            Kind::Welcome => return Ok(None),
            Kind::Batch => Event::Batch(Batch::check(payload)?),
            Kind::Passthru => Event::Passthru(Passthru::decode(payload)?),
            Kind::XidQuery => Event::XidQuery(XidQuery::decode(payload)?),
            Kind::RangeDone => {
                let done = RangeDone::decode(payload)?;
                self.ranges_outstanding = self.ranges_outstanding.saturating_sub(1);
                Event::RangeDone(done.stats)
            }
            Kind::Error => Event::Failed(ErrorReport::decode(payload)?),
            Kind::FileIoCounts => Event::FileIo(FileIoCounts::decode(payload)?),
            Kind::Hello | Kind::ScanOpen | Kind::ScanRange | Kind::XidStates | Kind::FileIoQuery => {
                return Err(Corrupt::new("frame kind", 4, format!("{kind:?} from a cell")));
            }
        }))
    }

    /// Receives until one whole frame is there (true) or nothing more has come (false).
    fn fill(&mut self) -> io::Result<bool> {
        loop {
            if self.header_filled == FRAME_HEADER_BYTES && self.payload_bytes == 0 && self.payload_filled == 0 {
                let Ok(header) = FrameHeader::decode(&self.header) else { return Ok(true) };
                self.payload_bytes = header.payload_bytes as usize;
                let words = self.payload_bytes.div_ceil(8);
                if self.payload.len() < words {
                    self.payload.resize(words, 0);
                }
            }
            let have_header = self.header_filled == FRAME_HEADER_BYTES;
            if have_header && self.payload_filled == self.payload_bytes {
                return Ok(true);
            }
            let received = if have_header {
                let bytes = bytemuck::cast_slice_mut::<u64, u8>(&mut self.payload);
                self.stream.read(&mut bytes[self.payload_filled..self.payload_bytes])
            } else {
                self.stream.read(&mut self.header[self.header_filled..])
            };
            match received {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) if have_header => self.payload_filled += count,
                Ok(count) => self.header_filled += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
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

    fn greet(&mut self) {
        let hello = self.hello.clone();
        self.send(Kind::Hello, |out| hello.encode(out));
    }

    fn restart(&mut self, stream: UnixStream) {
        self.stream = stream;
        self.outgoing.clear();
        self.ranges_outstanding = 0;
        self.header_filled = 0;
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

    fn lost(&self, error: &io::Error) -> ErrorReport {
        let mut report = report("08006", format!("lost the connection to the cell at \"{}\"", self.path.display()));
        report.detail = match error.kind() {
            io::ErrorKind::UnexpectedEof => "The cell closed the connection.".to_owned(),
            _ => error.to_string(),
        };
        report.hint = "Look into the cell's log; when the cell runs again, repeat the statement.".to_owned();
        report
    }

    fn garbled(&self, error: &Corrupt) -> ErrorReport {
        let mut report = report("08P01", format!("the cell at \"{}\" sent a garbled frame", self.path.display()));
        report.detail = error.to_string();
        report.hint = "Make sure that cell and extension are of the same version.".to_owned();
        report
    }
}

fn connect(path: &Path) -> Result<UnixStream, ErrorReport> {
    let connected = UnixStream::connect(path).and_then(|stream| {
        stream.set_nonblocking(true)?;
        Ok(stream)
    });
    connected.map_err(|error| {
        let mut report = report("08001", format!("could not connect to the cell at \"{}\"", path.display()));
        report.detail = error.to_string();
        report.hint = match error.kind() {
            io::ErrorKind::PermissionDenied => {
                "Only the operating-system user named as \"user\" in the cell's configuration may use its socket."
            }
            _ => "Start the cell with \"cellar cell\", or look into its log.",
        }
        .to_owned();
        report
    })
}

fn report(sqlstate: &str, message: String) -> ErrorReport {
    ErrorReport { sqlstate: sqlstate.to_owned(), message, detail: String::new(), hint: String::new() }
}
