//! The operator's request for a report about what a cell stores, and the reply.

use crate::bytes::{Corrupt, Reader, Write};

/// The subject of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Report {
    Disks = 1,
    Files = 2,
    File = 3,
    Unit = 4,
    Block = 5,
    FlashContent = 6,
}

impl Report {
    fn from_u8(value: u8) -> Option<Self> {
        [Self::Disks, Self::Files, Self::File, Self::Unit, Self::Block, Self::FlashContent]
            .into_iter()
            .find(|report| *report as u8 == value)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InspectQuery {
    pub report: Report,
    /// A path below the mount, or `inode:` and an inode number; for [`Report::Files`] a prefix of paths.
    pub path: String,
    /// The allocation unit, or the block within the file; 0 for other reports.
    pub number: u64,
    /// For a unit: rebuild every page. For a block: return its bytes.
    pub is_complete: bool,
}

/// A part of a report, which is JSON text in UTF-8. Part boundaries may divide a character.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InspectReport<'a> {
    pub is_last: bool,
    pub text: &'a [u8],
}

impl InspectQuery {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(self.report as u8);
        out.put_blob(self.path.as_bytes());
        out.put_u64(self.number);
        out.put_bool(self.is_complete);
    }

    pub fn decode(payload: &[u8]) -> Result<Self, Corrupt> {
        let mut reader = Reader::new(payload);
        let report = reader.u8("report")?;
        let report = Report::from_u8(report).ok_or_else(|| Corrupt::new("report", 0, report.to_string()))?;
        let query = Self {
            report,
            path: reader.string("path")?,
            number: reader.u64("number")?,
            is_complete: reader.bool("completeness")?,
        };
        reader.finish("inspection")?;
        Ok(query)
    }
}

impl<'a> InspectReport<'a> {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_bool(self.is_last);
        out.put_bytes(self.text);
    }

    pub fn decode(payload: &'a [u8]) -> Result<Self, Corrupt> {
        let mut reader = Reader::new(payload);
        let is_last = reader.bool("end of the report")?;
        Ok(Self { is_last, text: reader.take(reader.remaining(), "report")? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_reads_back_and_a_damaged_one_is_corrupt() {
        let query = InspectQuery { report: Report::Unit, path: "base/5/1".into(), number: 7, is_complete: true };
        let mut bytes = Vec::new();
        query.encode(&mut bytes);
        assert_eq!(InspectQuery::decode(&bytes).unwrap(), query);
        for length in 0..bytes.len() {
            assert!(InspectQuery::decode(&bytes[..length]).is_err(), "{length}");
        }
        bytes[0] = 9;
        assert!(InspectQuery::decode(&bytes).is_err());
        assert!(InspectReport::decode(&[]).is_err());
    }
}
