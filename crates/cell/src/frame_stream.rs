//! Frames over a blocking Unix stream, for the server's sessions and for the operator's status command.

use std::io::{self, IoSlice, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use cellar_format::bytes::Corrupt;
use cellar_format::wire::{FRAME_HEADER_BYTES, FrameError, FrameHeader, Kind};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

/// Maximum payload of a received frame. The largest frames are requests with a long IN list.
const REQUEST_BYTES_MAX: usize = 16 << 20;
/// A payload buffer up to this size is kept between frames.
const PAYLOAD_BYTES_KEPT: usize = 16 << 10;

#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    #[error("the peer closed the connection")]
    Closed,
    #[error(transparent)]
    InvalidFrame(#[from] Corrupt),
    /// The peer uses another protocol version.
    #[error("{0}")]
    Version(FrameError),
    #[error("socket: {0}")]
    Io(#[from] io::Error),
    /// The peer did not send or receive for the time limit of a request.
    #[error("no data for {} s; check the cell's log and its disks", .0.as_secs())]
    TimedOut(Duration),
}

impl From<FrameError> for StreamError {
    fn from(error: FrameError) -> Self {
        match error {
            FrameError::Corrupt(error) => Self::InvalidFrame(error),
            version @ FrameError::Version(_) => Self::Version(version),
        }
    }
}

pub struct FrameStream {
    stream: UnixStream,
    payload: Vec<u8>,
}

impl FrameStream {
    pub fn new(stream: UnixStream) -> Self {
        Self { stream, payload: Vec::new() }
    }

    /// Returns whether the peer has closed the connection.
    pub fn is_closed(&self) -> bool {
        let mut stream = [PollFd::new(&self.stream, PollFlags::RDHUP)];
        let gone = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        rustix::event::poll(&mut stream, Some(&Timespec::default())).is_ok() && stream[0].revents().intersects(gone)
    }

    /// Waits for data from the peer, or for the end of the connection. Returns false after `timeout` without either.
    pub fn wait(&self, timeout: Duration) -> Result<bool, StreamError> {
        let mut stream = [PollFd::new(&self.stream, PollFlags::IN)];
        let timeout = Timespec::try_from(timeout).unwrap_or_default();
        match rustix::event::poll(&mut stream, Some(&timeout)) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::INTR) => Ok(true),
            Err(error) => Err(StreamError::Io(error.into())),
        }
    }

    /// Whether [`Self::release_memory`] frees memory.
    pub fn has_memory(&self) -> bool {
        self.payload.capacity() > PAYLOAD_BYTES_KEPT
    }

    /// Frees the buffer of the last payload if it is large.
    pub fn release_memory(&mut self) {
        if self.has_memory() {
            self.payload = Vec::new();
        }
    }

    /// Waits for the next frame. The payload is valid until the next call.
    pub fn receive(&mut self) -> Result<(Kind, &[u8]), StreamError> {
        let mut header = [0; FRAME_HEADER_BYTES];
        self.stream.read_exact(&mut header).map_err(closed)?;
        let header = FrameHeader::decode(&header)?;
        let payload_bytes = header.payload_bytes as usize;
        if payload_bytes > REQUEST_BYTES_MAX {
            return Err(Corrupt::new("frame length", 8, payload_bytes.to_string()).into());
        }
        self.payload.resize(payload_bytes, 0);
        self.stream.read_exact(&mut self.payload).map_err(closed)?;
        Ok((header.kind, &self.payload))
    }

    /// Sends one frame whose payload `write` appends.
    pub fn send(&mut self, kind: Kind, write: impl FnOnce(&mut Vec<u8>)) -> Result<(), StreamError> {
        let mut frame = Vec::new();
        FrameHeader::frame(&mut frame, kind, write);
        self.stream.write_all(&frame).map_err(closed)
    }

    /// Sends whole frames from several buffers with vectored writes.
    pub fn send_all(&mut self, parts: &[&[u8]]) -> Result<(), StreamError> {
        let mut parts: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
        let mut left = &mut parts[..];
        while !left.is_empty() {
            match self.stream.write_vectored(left) {
                Ok(0) => return Err(closed(io::ErrorKind::WriteZero.into())),
                Ok(sent) => IoSlice::advance_slices(&mut left, sent),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(closed(error)),
            }
        }
        Ok(())
    }
}

fn closed(error: io::Error) -> StreamError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => {
            StreamError::Closed
        }
        _ => StreamError::Io(error),
    }
}
