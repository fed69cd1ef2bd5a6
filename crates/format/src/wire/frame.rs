//! Frame headers.

use crate::bytes::{Corrupt, Reader, Write};

/// Increased whenever the meaning of any frame changes; docs/format/wire.md lists the changes. Each side refuses frames of every
/// other version.
pub const PROTOCOL_VERSION: u16 = 14;
pub const FRAME_HEADER_BYTES: usize = 16;
/// Maximum payload length; a header with a longer one is corrupt.
pub const PAYLOAD_BYTES_MAX: usize = 64 << 20;
/// "CLR1" as a little-endian u32.
const MAGIC: u32 = u32::from_le_bytes(*b"CLR1");

/// The type of a frame's payload. Backends send kinds below 64, cells send kinds from 64 on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum Kind {
    Hello = 1,
    /// Opens the scan that later `ScanRange` frames of the connection refer to; replaces an earlier one.
    ScanOpen = 2,
    ScanRange = 3,
    /// The answer to an `XidQuery`.
    XidStates = 4,
    /// Requests the file service's counters.
    FileIoQuery = 5,
    /// Requests the cell's status.
    StatusQuery = 6,
    /// Compresses or decompresses; the cell answers with `CompressProgress` frames, then `CompressDone`.
    Compress = 7,
    UnitsQuery = 8,
    DueQuery = 9,
    /// Requests a report about disks, files, a unit or a block.
    InspectQuery = 10,
    /// Requests all metrics of the cell.
    MetricsQuery = 11,
    /// Requests the file service's counters by file type and relation. Cells without this kind answer with an error.
    FileTypeIoQuery = 12,
    /// Requests the state of the disk group, after an action on it.
    GroupRequest = 13,
    /// Requests the state of the resource manager, after a change of its plan. The payload is JSON text.
    IormRequest = 14,
    /// The names of the databases of a cluster. The cell does not answer.
    DatabaseNames = 15,
    /// The consumer groups of processes; replaces what the connection has told before. The cell does not answer.
    ConsumerGroups = 16,
    /// Requests the history of metrics.
    HistoryQuery = 17,
    /// Requests the alerts and thresholds, after a change of them. The payload is JSON text. Cells without this kind answer with an
    /// error.
    AlertRequest = 18,
    Welcome = 64,
    Batch = 65,
    Passthru = 66,
    XidQuery = 67,
    RangeDone = 68,
    Error = 69,
    FileIoCounts = 70,
    /// The current range's counts since the previous `RangeProgress`, sent before the frames that the counts cover.
    RangeProgress = 71,
    Status = 72,
    CompressProgress = 73,
    CompressDone = 74,
    Units = 75,
    DueUnits = 76,
    /// A part of a report.
    InspectReport = 77,
    /// All metrics as JSON text.
    Metrics = 78,
    FileTypeIoCounts = 79,
    /// The state of the disk group as JSON text.
    GroupReport = 80,
    /// The right links of the index pages that the cell has counted.
    LeafLinks = 81,
    /// Heap rows that the backend must check.
    HeapTids = 82,
    /// The state of the resource manager as JSON text.
    IormReport = 83,
    /// A record of the history of metrics, or the end of the answer.
    HistoryRecord = 84,
    /// The alerts and thresholds of the cell as JSON text.
    AlertReport = 85,
}

impl Kind {
    fn from_u16(value: u16) -> Option<Self> {
        use Kind::*;
        [
            Hello,
            ScanOpen,
            ScanRange,
            XidStates,
            FileIoQuery,
            StatusQuery,
            Compress,
            UnitsQuery,
            DueQuery,
            InspectQuery,
            MetricsQuery,
            GroupRequest,
            IormRequest,
            DatabaseNames,
            ConsumerGroups,
            HistoryQuery,
            HistoryRecord,
            AlertRequest,
            AlertReport,
            FileTypeIoQuery,
            Welcome,
            Batch,
            Passthru,
            XidQuery,
            RangeDone,
            Error,
            FileIoCounts,
            RangeProgress,
            Status,
            CompressProgress,
            CompressDone,
            Units,
            DueUnits,
            InspectReport,
            GroupReport,
            Metrics,
            FileTypeIoCounts,
            LeafLinks,
            HeapTids,
            IormReport,
        ]
        .into_iter()
        .find(|kind| *kind as u16 == value)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    pub kind: Kind,
    pub payload_bytes: u32,
}

/// A header that the receiver refuses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The peer is a cell or an extension of another release.
    #[error("the peer uses protocol version {0}, this side uses version {PROTOCOL_VERSION}")]
    Version(u16),
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
}

impl FrameHeader {
    pub fn encode(&self) -> [u8; FRAME_HEADER_BYTES] {
        let mut bytes = Vec::with_capacity(FRAME_HEADER_BYTES);
        bytes.put_u32(MAGIC);
        bytes.put_u16(self.kind as u16);
        bytes.put_u16(PROTOCOL_VERSION);
        bytes.put_u32(self.payload_bytes);
        bytes.put_u32(0);
        bytes.try_into().expect("a header is sixteen bytes")
    }

    /// Decodes the first [`FRAME_HEADER_BYTES`] bytes of a frame.
    pub fn decode(bytes: &[u8]) -> Result<Self, FrameError> {
        let mut reader = Reader::new(bytes);
        let magic = reader.u32("frame magic")?;
        if magic != MAGIC {
            return Err(Corrupt::new("frame magic", 0, format!("{magic:#010x}")).into());
        }
        let kind = reader.u16("frame kind")?;
        let version = reader.u16("frame version")?;
        if version != PROTOCOL_VERSION {
            return Err(FrameError::Version(version));
        }
        let payload_bytes = reader.u32("frame length")?;
        if payload_bytes as usize > PAYLOAD_BYTES_MAX {
            return Err(Corrupt::new("frame length", 8, payload_bytes.to_string()).into());
        }
        let kind = Kind::from_u16(kind).ok_or_else(|| Corrupt::new("frame kind", 4, kind.to_string()))?;
        Ok(Self { kind, payload_bytes })
    }

    /// Appends a frame to `out`: the header, then the payload that `write` appends.
    pub fn frame(out: &mut Vec<u8>, kind: Kind, write: impl FnOnce(&mut Vec<u8>)) {
        let start = out.len();
        out.resize(start + FRAME_HEADER_BYTES, 0);
        write(out);
        let payload_bytes = (out.len() - start - FRAME_HEADER_BYTES) as u32;
        out[start..start + FRAME_HEADER_BYTES].copy_from_slice(&Self { kind, payload_bytes }.encode());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_of_another_protocol_version_is_a_version_error() {
        let mut bytes = FrameHeader { kind: Kind::Hello, payload_bytes: 24 }.encode();
        assert_eq!(FrameHeader::decode(&bytes), Ok(FrameHeader { kind: Kind::Hello, payload_bytes: 24 }));
        bytes[6..8].copy_from_slice(&(PROTOCOL_VERSION - 1).to_le_bytes());
        assert_eq!(FrameHeader::decode(&bytes), Err(FrameError::Version(PROTOCOL_VERSION - 1)));
        bytes[0] ^= 1;
        assert!(matches!(FrameHeader::decode(&bytes), Err(FrameError::Corrupt(_))));
    }
}
