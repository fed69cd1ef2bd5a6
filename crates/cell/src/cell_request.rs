//! Requests of an operator's command to a running cell, over the cell's socket.
//!
//! The cell accepts connections from the cluster's user and from the daemon's own user only.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use cellar_format::bytes::Corrupt;
use cellar_format::wire::{ErrorReport, Hello, Kind};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::frame_stream::{FrameStream, StreamError};

#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    #[error("could not connect to a cell at {socket}: {source}; start the cell, or check its log")]
    Unreachable { socket: String, source: io::Error },
    #[error("no answer from the cell at {socket}: {source}")]
    NoAnswer { socket: String, source: StreamError },
    #[error("the cell at {socket} refused the request: {reason}")]
    Refused { socket: String, reason: String },
}

/// A connection to a running cell.
pub struct CellRequest {
    socket: String,
    stream: FrameStream,
    timeout: Duration,
}

impl CellRequest {
    /// Connects and sends a request whose payload `write` appends. Each send and receive fails after `timeout`.
    pub fn send(
        socket: &Path,
        timeout: Duration,
        kind: Kind,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Self, RequestError> {
        let shown = socket.display().to_string();
        let stream = match connect(socket, timeout) {
            Ok(stream) => FrameStream::new(stream),
            Err(source) => return Err(RequestError::Unreachable { socket: shown, source: connect_error(source) }),
        };
        let mut request = Self { socket: shown, stream, timeout };
        let hello = Hello { backend_pid: std::process::id(), database: 0, system_identifier: 0, incarnation: 0 };
        let greeted = request.stream.send(Kind::Hello, |out| hello.encode(out));
        let sent = greeted.and_then(|()| request.stream.send(kind, write));
        sent.map_err(|error| request.no_answer(error))?;
        Ok(request)
    }

    /// Receives a frame of the answer, and returns what `decode` returns for its payload.
    pub fn receive<T>(
        &mut self,
        answer: Kind,
        decode: impl FnOnce(&[u8]) -> Result<T, Corrupt>,
    ) -> Result<T, RequestError> {
        let received = loop {
            match self.stream.receive() {
                Ok((Kind::Welcome, _)) => {}
                Ok((kind, payload)) if kind == answer => break decode(payload).map_err(StreamError::from),
                Ok((Kind::Error, payload)) => match ErrorReport::decode(payload) {
                    Ok(report) => return Err(self.refused(&report)),
                    Err(error) => break Err(error.into()),
                },
                Ok((kind, _)) => break Err(io::Error::other(format!("unexpected frame {kind:?}")).into()),
                Err(error) => break Err(error),
            }
        };
        received.map_err(|error| self.no_answer(error))
    }

    /// Returns the error for an answer that is not valid.
    pub fn no_answer(&self, source: StreamError) -> RequestError {
        let source = match source {
            StreamError::Io(error) if error.kind() == io::ErrorKind::WouldBlock => StreamError::TimedOut(self.timeout),
            source => source,
        };
        RequestError::NoAnswer { socket: self.socket.clone(), source }
    }

    fn refused(&self, report: &ErrorReport) -> RequestError {
        let ErrorReport { message, detail, .. } = report;
        let reason = match detail.is_empty() {
            true => message.clone(),
            false => format!("{message}: {}", within_sentence(detail)),
        };
        RequestError::Refused { socket: self.socket.clone(), reason }
    }
}

/// Returns a detail, which begins with a capital letter like a sentence, as it continues a sentence. A name that
/// looks like a capitalized word becomes one, because nothing tells them apart; paths, abbreviations and names with other capital
/// letters or digits stay.
fn within_sentence(detail: &str) -> String {
    let is_word = |word: &str| word.len() > 1 && word.chars().skip(1).all(|c| c.is_ascii_lowercase());
    match detail.split_once(' ') {
        Some((word, rest)) if is_word(word) => format!("{} {rest}", word.to_ascii_lowercase()),
        _ => detail.to_owned(),
    }
}

/// The kernel refuses a connection without waiting if too many others wait for the cell.
fn connect_error(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::Error::other("the cell does not accept connections, and many wait already"),
        _ => error,
    }
}

/// Connects without waiting: if too many other connections wait for the listener, the error is [`io::ErrorKind::WouldBlock`].
/// Sends and receives on the connection fail after `timeout`.
pub fn connect(socket: &Path, timeout: Duration) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let stream = UnixStream::from(rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?);
    rustix::net::connect(&stream, &SocketAddrUnix::new(socket)?)?;
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_detail_continues_the_sentence_of_its_message() {
        assert_eq!(within_sentence("Cell disk /disk1 is full."), "cell disk /disk1 is full.");
        assert_eq!(within_sentence("Linux is older."), "linux is older.", "a name in the form of a word");
        for name in ["PostgreSQL is older.", "/disk1 was dropped.", "WAL is missing.", "Full."] {
            assert_eq!(within_sentence(name), name);
        }
    }

    #[test]
    fn a_cell_that_does_not_answer_is_named_with_the_time_limit() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("cell.sock");
        let _listener = UnixListener::bind(&socket).unwrap();
        let mut request = CellRequest::send(&socket, Duration::from_millis(50), Kind::StatusQuery, |_| {}).unwrap();
        request.timeout = Duration::from_secs(5);
        let error = request.receive(Kind::Status, |_| Ok(())).unwrap_err().to_string();
        let shown = socket.display();
        assert_eq!(
            error,
            format!("no answer from the cell at {shown}: no data for 5 s; check the cell's log and its disks")
        );
    }
}
