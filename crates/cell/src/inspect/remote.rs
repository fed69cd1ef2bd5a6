//! Inspection of a running cell over its socket.

use super::InspectError;
use super::report::Inspection;
use crate::frame_stream::{FrameStream, StreamError};
use crate::status::{StatusError, connect, refused};
use cellar_format::wire::{Hello, InspectQuery, InspectReport, Kind};
use cellar_storage::Volume;
use std::io;
use std::path::Path;
use std::time::Duration;

/// Time limit of each send and receive. Verifying the largest unit takes less than a second.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum bytes of a report in one frame.
const PART_BYTES: usize = 1 << 20;

/// Requests a report from the cell that listens on `socket`.
pub fn query(socket: &Path, query: &InspectQuery) -> Result<Inspection, StatusError> {
    let at = || socket.display().to_string();
    let no_answer = |source| StatusError::NoAnswer { socket: at(), source };
    let stream = connect(socket, TIMEOUT).map_err(|source| StatusError::Unreachable { socket: at(), source })?;
    let mut stream = FrameStream::new(stream);
    let hello = Hello { backend_pid: std::process::id(), database: 0, system_identifier: 0, incarnation: 0 };
    stream.send(Kind::Hello, |out| hello.encode(out)).map_err(no_answer)?;
    stream.send(Kind::InspectQuery, |out| query.encode(out)).map_err(no_answer)?;
    let mut text = Vec::new();
    loop {
        match stream.receive().map_err(no_answer)? {
            (Kind::Welcome, _) => {}
            (Kind::InspectReport, payload) => {
                let part = InspectReport::decode(payload).map_err(|error| no_answer(error.into()))?;
                text.extend_from_slice(part.text);
                if part.is_last {
                    let invalid = |error| no_answer(io::Error::other(error).into());
                    return serde_json::from_slice(&text).map_err(invalid);
                }
            }
            (Kind::Error, payload) => return Err(refused(socket, payload)),
            (kind, _) => return Err(no_answer(io::Error::other(format!("unexpected frame {kind:?}")).into())),
        }
    }
}

/// Sends the report that a query describes, in parts.
pub(crate) fn answer(stream: &mut FrameStream, volume: &Volume, query: &InspectQuery) -> Result<(), AnswerError> {
    let report = super::report(volume, query)?;
    let inspection = Inspection { cell_pid: Some(std::process::id()), report };
    let text = serde_json::to_vec(&inspection).map_err(io::Error::other).map_err(StreamError::from)?;
    let parts = text.len().div_ceil(PART_BYTES);
    for (number, part) in text.chunks(PART_BYTES).enumerate() {
        let part = InspectReport { is_last: number + 1 == parts, text: part };
        stream.send(Kind::InspectReport, |out| part.encode(out))?;
    }
    Ok(())
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum AnswerError {
    #[error(transparent)]
    Inspect(#[from] InspectError),
    #[error(transparent)]
    Stream(#[from] StreamError),
}
