//! Frame headers.

use crate::bytes::{Corrupt, Reader, Write};

/// Raised whenever a frame's meaning changes; both sides refuse another number.
pub const PROTOCOL_VERSION: u16 = 4;
pub const FRAME_HEADER_BYTES: usize = 16;
/// No payload is longer; a longer length in a header is corruption.
pub const PAYLOAD_BYTES_MAX: usize = 64 << 20;
/// "CLR1", read as a little-endian u32.
const MAGIC: u32 = u32::from_le_bytes(*b"CLR1");

/// What a frame carries. Below 64 a backend sends it, from 64 on a cell does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum Kind {
    Hello = 1,
    /// Opens the scan that later `ScanRange` frames of the connection refer to; replaces an earlier one.
    ScanOpen = 2,
    ScanRange = 3,
    /// The answer to an `XidQuery`.
    XidStates = 4,
    /// Asks what the file service counted.
    FileIoQuery = 5,
    /// Asks for the cell's status.
    StatusQuery = 6,
    /// Compresses or decompresses; answered by `CompressProgress` frames, then `CompressDone`.
    Compress = 7,
    UnitsQuery = 8,
    DueQuery = 9,
    Welcome = 64,
    Batch = 65,
    Passthru = 66,
    XidQuery = 67,
    RangeDone = 68,
    Error = 69,
    FileIoCounts = 70,
    /// What the range under way counted since this was last told; comes before the frames that it took.
    RangeProgress = 71,
    Status = 72,
    CompressProgress = 73,
    CompressDone = 74,
    Units = 75,
    DueUnits = 76,
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

    pub fn decode(bytes: &[u8]) -> Result<Self, Corrupt> {
        let mut reader = Reader::new(bytes);
        let magic = reader.u32("frame magic")?;
        if magic != MAGIC {
            return Err(Corrupt::new("frame magic", 0, format!("{magic:#010x}")));
        }
        let kind = reader.u16("frame kind")?;
        let version = reader.u16("frame version")?;
        if version != PROTOCOL_VERSION {
            let found = format!(
                "protocol {version}; this side speaks {PROTOCOL_VERSION}: install the same version of cell and extension"
            );
            return Err(Corrupt::new("frame version", 6, found));
        }
        let payload_bytes = reader.u32("frame length")?;
        if payload_bytes as usize > PAYLOAD_BYTES_MAX {
            return Err(Corrupt::new("frame length", 8, payload_bytes.to_string()));
        }
        let kind = Kind::from_u16(kind).ok_or_else(|| Corrupt::new("frame kind", 4, kind.to_string()))?;
        Ok(Self { kind, payload_bytes })
    }

    /// Appends a whole frame whose payload `write` appends.
    pub fn frame(out: &mut Vec<u8>, kind: Kind, write: impl FnOnce(&mut Vec<u8>)) {
        let start = out.len();
        out.resize(start + FRAME_HEADER_BYTES, 0);
        write(out);
        let payload_bytes = (out.len() - start - FRAME_HEADER_BYTES) as u32;
        out[start..start + FRAME_HEADER_BYTES].copy_from_slice(&Self { kind, payload_bytes }.encode());
    }
}
