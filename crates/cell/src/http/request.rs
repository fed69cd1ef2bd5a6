//! Reading a request: the request line is checked, header fields are ignored.

use super::pages::Response;
use std::io::{self, Read};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Maximum bytes of request line and header fields.
const HEAD_BYTES_MAX: usize = 8 << 10;
/// Bytes of a body that are read and ignored before the connection is closed.
const DISCARDED_BYTES_MAX: usize = 64 << 10;

/// Reads a request. Returns the path that it names, or the response that refuses it. An error means that the client
/// closed the connection, or sent no complete request in time.
pub fn read(mut stream: &TcpStream, timeout: Duration) -> io::Result<Result<String, Response>> {
    let deadline = Instant::now() + timeout;
    let mut head = Vec::new();
    let mut part = [0; 1024];
    loop {
        let count = read_before(&mut stream, &mut part, deadline)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        head.extend_from_slice(&part[..count]);
        if let Some(end) = head.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            return Ok(parse(&head[..end.min(HEAD_BYTES_MAX)], end));
        }
        if head.len() > HEAD_BYTES_MAX {
            return Ok(Err(Response::error(431, "the request is longer than 8 KiB")));
        }
    }
}

fn read_before(stream: &mut &TcpStream, buffer: &mut [u8], deadline: Instant) -> io::Result<usize> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    stream.set_read_timeout(Some(left))?;
    stream.read(buffer)
}

/// Parses a request line: `GET /path?query HTTP/1.1`. The query is ignored.
fn parse(head: &[u8], length: usize) -> Result<String, Response> {
    if length > HEAD_BYTES_MAX {
        return Err(Response::error(431, "the request is longer than 8 KiB"));
    }
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let bad = || Response::error(400, "not an HTTP/1 request");
    let line = std::str::from_utf8(line).map_err(|_| bad())?;
    let mut words = line.split(' ');
    let (Some(method), Some(target), Some(version), None) = (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(bad());
    };
    if !version.starts_with("HTTP/1.") || !target.starts_with('/') {
        return Err(bad());
    }
    if method != "GET" {
        return Err(Response::error(405, "only GET is supported"));
    }
    Ok(target.split('?').next().unwrap_or_default().to_owned())
}

/// Reads and ignores what the client still sends, until it closes the connection.
pub fn discard(mut stream: &TcpStream, timeout: Duration) {
    let deadline = Instant::now() + timeout;
    let mut part = [0; 1024];
    for _ in 0..DISCARDED_BYTES_MAX / part.len() {
        match read_before(&mut stream, &mut part, deadline) {
            Ok(count) if count > 0 => {}
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_line_names_a_path_or_is_refused() {
        let status = |head: &str| parse(head.as_bytes(), head.len()).map_err(|response| response.status);
        assert_eq!(status("GET /metrics HTTP/1.1\r\nHost: x"), Ok("/metrics".to_owned()));
        assert_eq!(status("GET /metrics?x=1&y=/z HTTP/1.0"), Ok("/metrics".to_owned()));
        assert_eq!(status("POST /metrics HTTP/1.1"), Err(405));
        for head in ["", "GET", "GET /", "GET / HTTP/2", "GET http://x/ HTTP/1.1", "GET / HTTP/1.1 x", "GET /\u{0} x"] {
            assert_eq!(status(head), Err(400), "{head:?}");
        }
        assert_eq!(parse(b"GET /\xff HTTP/1.1", 17).unwrap_err().status, 400);
    }
}
