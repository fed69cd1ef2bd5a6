//! The history of metrics.

use crate::bytes::{Corrupt, Reader, Write};

/// Requests the records of these times, in milliseconds since 1970, and the last record before them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistoryQuery {
    pub first_ms: u64,
    pub last_ms: u64,
}

/// A record as JSON text. The last frame of an answer contains the times of the first and the last record that the cell has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryRecord {
    pub is_last: bool,
    pub text: Vec<u8>,
}

impl HistoryQuery {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.first_ms);
        out.put_u64(self.last_ms);
    }

    pub fn decode(payload: &[u8]) -> Result<Self, Corrupt> {
        let mut reader = Reader::new(payload);
        let query = Self { first_ms: reader.u64("first time")?, last_ms: reader.u64("last time")? };
        reader.finish("history query")?;
        Ok(query)
    }
}

impl HistoryRecord {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_bool(self.is_last);
        out.put_bytes(&self.text);
    }

    pub fn decode(payload: &[u8]) -> Result<Self, Corrupt> {
        let mut reader = Reader::new(payload);
        let is_last = reader.bool("last record")?;
        Ok(Self { is_last, text: reader.take(reader.remaining(), "record")?.to_vec() })
    }
}
