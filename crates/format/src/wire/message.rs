//! Messages of a few fields: greeting, block ranges, passed-through blocks, transaction states, statistics and errors.

use crate::bytes::{Corrupt, Reader, Write};
use crate::postgres::{Oid, TransactionId};
use crate::stats::ScanStats;

/// The first frame of a connection; identifies the backend. The commit cache keeps transaction states per
/// `incarnation`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    pub backend_pid: u32,
    pub database: Oid,
    pub system_identifier: u64,
    /// A random number that identifies one lifetime of the cluster's shared memory. After a crash, transaction ids may
    /// be used again.
    pub incarnation: u64,
}

impl Hello {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u32(self.backend_pid);
        out.put_u32(self.database);
        out.put_u64(self.system_identifier);
        out.put_u64(self.incarnation);
    }

    pub fn decode(payload: &[u8]) -> Result<Self, Corrupt> {
        let mut reader = Reader::new(payload);
        let hello = Self {
            backend_pid: reader.u32("pid")?,
            database: reader.u32("database")?,
            system_identifier: reader.u64("system identifier")?,
            incarnation: reader.u64("incarnation")?,
        };
        reader.finish("hello")?;
        Ok(hello)
    }
}

/// The answer to [`Hello`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Welcome {
    /// A random number, not 0, that identifies one run of the daemon.
    pub instance: u64,
}

impl Welcome {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.instance);
    }

    pub fn decode(payload: &[u8]) -> Result<Self, Corrupt> {
        let mut reader = Reader::new(payload);
        let instance = reader.u64("instance")?;
        reader.finish("welcome")?;
        if instance == 0 {
            return Err(Corrupt::new("instance", 0, "0".to_owned()));
        }
        Ok(Self { instance })
    }
}

/// Blocks `first..end` of the relation. The cell processes ranges in the order of their requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockRange {
    pub first: u32,
    pub end: u32,
}

impl BlockRange {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u32(self.first);
        out.put_u32(self.end);
    }

    pub fn decode(payload: &[u8]) -> Result<Self, Corrupt> {
        let mut reader = Reader::new(payload);
        let range = Self { first: reader.u32("first block")?, end: reader.u32("end block")? };
        reader.finish("block range")?;
        if range.first > range.end {
            return Err(Corrupt::new("block range", 0, format!("{}..{}", range.first, range.end)));
        }
        Ok(range)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum PassthruReason {
    /// The cell could not decide a row's visibility.
    Visibility = 1,
    /// The cell could not evaluate the predicate on some row, or the evaluation would raise an error.
    Predicate = 2,
    /// The page is missing, cannot be decoded, or has a wrong checksum. Postgres reads the page and reports the error.
    Page = 3,
}

impl PassthruReason {
    pub fn from_u8(value: u8) -> Option<Self> {
        [Self::Visibility, Self::Predicate, Self::Page].into_iter().find(|reason| *reason as u8 == value)
    }
}

/// A block that the backend must read and evaluate itself, in order among the batches. The payload is eight bytes long,
/// which keeps the frames after it aligned in a buffer of several frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Passthru {
    pub block: u32,
    pub reason: PassthruReason,
}

impl Passthru {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u32(self.block);
        out.put_u8(self.reason as u8);
        out.put_bytes(&[0; 3]);
    }

    pub fn decode(payload: &[u8]) -> Result<Self, Corrupt> {
        let mut reader = Reader::new(payload);
        let block = reader.u32("passed-through block")?;
        let value = reader.u8("reason")?;
        let reason = PassthruReason::from_u8(value).ok_or_else(|| Corrupt::new("reason", 4, value.to_string()))?;
        reader.take(3, "passthru padding")?;
        reader.finish("passthru")?;
        Ok(Self { block, reason })
    }
}

/// Transactions whose state neither the page nor the commit cache contains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XidQuery {
    pub xids: Vec<TransactionId>,
}

impl XidQuery {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u32(self.xids.len() as u32);
        self.xids.iter().for_each(|xid| out.put_u32(*xid));
    }

    pub fn decode(payload: &[u8]) -> Result<Self, Corrupt> {
        let mut reader = Reader::new(payload);
        let count = reader.count(4, "transaction ids")?;
        let xids = (0..count).map(|_| reader.u32("transaction id")).collect::<Result<_, _>>()?;
        reader.finish("transaction query")?;
        Ok(Self { xids })
    }
}

/// The state of a transaction under the scan's snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum XidState {
    /// Only Postgres can decide: the backend's own transaction, or one whose status was truncated. The block passes
    /// through.
    Unknown = 0,
    /// Committed and visible to the snapshot.
    Committed = 1,
    /// Running under the snapshot, even if finished since. Other snapshots may see another state.
    Running = 2,
    /// Rolled back, or running when the server crashed.
    Aborted = 3,
}

impl XidState {
    pub fn from_u8(value: u8) -> Option<Self> {
        [Self::Unknown, Self::Committed, Self::Running, Self::Aborted].into_iter().find(|state| *state as u8 == value)
    }
}

/// The answer to an [`XidQuery`]: one state per id, in the same order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XidStates {
    pub states: Vec<XidState>,
}

impl XidStates {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u32(self.states.len() as u32);
        self.states.iter().for_each(|state| out.put_u8(*state as u8));
    }

    pub fn decode(payload: &[u8]) -> Result<Self, Corrupt> {
        let mut reader = Reader::new(payload);
        let count = reader.count(1, "transaction states")?;
        let mut states = Vec::with_capacity(count);
        for _ in 0..count {
            let value = reader.u8("transaction state")?;
            let state = XidState::from_u8(value)
                .ok_or_else(|| Corrupt::new("transaction state", reader.position() - 1, value.to_string()))?;
            states.push(state);
        }
        reader.finish("transaction states")?;
        Ok(Self { states })
    }
}

/// Ends a range. `stats` contains the counts that no earlier `RangeProgress` frame of the range contained;
/// `RangeProgress` has the same payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RangeDone {
    pub stats: ScanStats,
}

impl RangeDone {
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.stats.to_array().into_iter().for_each(|value| out.put_u64(value));
    }

    pub fn decode(payload: &[u8]) -> Result<Self, Corrupt> {
        let mut reader = Reader::new(payload);
        let mut values = [0; ScanStats::FIELDS];
        for value in &mut values {
            *value = reader.u64("scan statistics")?;
        }
        reader.finish("scan statistics")?;
        Ok(Self { stats: ScanStats::from_array(values) })
    }
}

/// An error with the fields of a Postgres error report. The cell closes the connection after it has sent this frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorReport {
    /// Five characters.
    pub sqlstate: String,
    pub message: String,
    pub detail: String,
    pub hint: String,
}

impl ErrorReport {
    /// An error without detail and hint.
    pub fn new(sqlstate: &str, message: String) -> Self {
        Self { sqlstate: sqlstate.to_owned(), message, detail: String::new(), hint: String::new() }
    }

    /// Converts the text of a cause to a detail, which Postgres's error style requires to be a sentence: capitalizes
    /// the first word, unless it is a path or another name, and adds a full stop.
    pub fn detail_of(cause: &impl std::fmt::Display) -> String {
        let mut detail = cause.to_string();
        let first_word = detail.split(' ').next().unwrap_or_default();
        if first_word.len() < detail.len() && first_word.bytes().all(|byte| byte.is_ascii_lowercase()) {
            detail[..1].make_ascii_uppercase();
        }
        if !detail.is_empty() && !detail.ends_with('.') {
            detail.push('.');
        }
        detail
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        for text in [&self.sqlstate, &self.message, &self.detail, &self.hint] {
            out.put_blob(text.as_bytes());
        }
    }

    pub fn decode(payload: &[u8]) -> Result<Self, Corrupt> {
        let mut reader = Reader::new(payload);
        let sqlstate = reader.string("SQLSTATE")?;
        let valid = sqlstate.len() == 5 && sqlstate.bytes().all(|b| b.is_ascii_digit() || b.is_ascii_uppercase());
        if !valid {
            return Err(Corrupt::new("SQLSTATE", 0, sqlstate));
        }
        let report = Self {
            sqlstate,
            message: reader.string("message")?,
            detail: reader.string("detail")?,
            hint: reader.string("hint")?,
        };
        reader.finish("error")?;
        Ok(report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_welcome_decodes_to_its_equal_and_a_truncated_or_zero_instance_is_corrupt() {
        let mut payload = Vec::new();
        Welcome { instance: u64::MAX - 1 }.encode(&mut payload);
        assert_eq!(Welcome::decode(&payload), Ok(Welcome { instance: u64::MAX - 1 }));
        for length in 0..payload.len() {
            Welcome::decode(&payload[..length]).unwrap_err();
        }
        Welcome::decode(&[0; 8]).unwrap_err();
        Welcome::decode(&[1; 9]).unwrap_err();
    }

    #[test]
    fn a_detail_is_a_sentence() {
        let details = [
            ("corrupt frame kind at byte 4: 99", "Corrupt frame kind at byte 4: 99."),
            ("base/5/16384: could not read", "base/5/16384: could not read."),
            ("The cell closed the connection.", "The cell closed the connection."),
            ("x", "x."),
            ("", ""),
        ];
        for (cause, detail) in details {
            assert_eq!(ErrorReport::detail_of(&cause), detail);
        }
    }
}
