//! Inspection of a running cell over its socket.

use super::InspectError;
use super::report::Inspection;
use crate::access::Credentials;
use crate::cell_request::{CellRequest, RequestError};
use crate::frame_stream::{FrameStream, StreamError};
use cellar_format::wire::{InspectQuery, InspectReport, Kind};
use cellar_storage::Volume;
use std::io;
use std::path::Path;
use std::time::Duration;

/// Time limit of each send and receive. Verifying the largest unit takes less than a second.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum bytes of a report in one frame.
const PART_BYTES: usize = 1 << 20;

/// Requests a report from the cell that listens on `socket`.
pub fn query(socket: &Path, query: &InspectQuery) -> Result<Inspection, RequestError> {
    let mut request = CellRequest::send(socket, TIMEOUT, Kind::InspectQuery, |out| query.encode(out))?;
    let mut text = Vec::new();
    loop {
        let is_last = request.receive(Kind::InspectReport, |payload| {
            let part = InspectReport::decode(payload)?;
            text.extend_from_slice(part.text);
            Ok(part.is_last)
        })?;
        if is_last {
            return serde_json::from_slice(&text).map_err(|error| request.no_answer(io::Error::other(error).into()));
        }
    }
}

/// Sends the report that a query of a peer describes, in parts.
pub(crate) fn answer(
    stream: &mut FrameStream,
    volume: &Volume,
    peer: &Credentials,
    query: &InspectQuery,
) -> Result<(), AnswerError> {
    let report = super::report(volume, peer, query)?;
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
