//! Runs: the length and the value of each run of equal values. The part with all runs is decoded once.

use super::super::section::{DataSection, Part, Result, corrupt};
use super::bits::BLOCK_ROWS;
use super::tag::integers as tag;
use super::varint::{put_varint, unzigzag, varint, zigzag};
use super::{IntEncoding, get_or_try_init};
use crate::vectors::vectorized;
use cellar_format::bytes::{Corrupt, Reader, Write};
use std::sync::OnceLock;

vectorized! {
    /// The number of values that differ from the previous value.
    fn changes(values: &[i64]) -> usize {
        values.iter().zip(values.iter().skip(1)).map(|(one, next)| usize::from(one != next)).sum()
    }
}

/// The estimated encoded size.
pub struct RunsPlan {
    pub bytes: usize,
}

impl RunsPlan {
    /// Returns None if runs are shorter than eight values on average.
    pub fn new(values: &[i64]) -> Option<Self> {
        const RUN_BYTES: usize = 5;
        let runs = 1 + changes(values);
        (runs <= values.len() / 8 + 1).then_some(Self { bytes: runs * RUN_BYTES })
    }

    pub fn encode(self, values: &[i64], data: &mut Vec<u8>) -> Runs {
        let mut bytes = Vec::new();
        let mut decoded = DecodedRuns::default();
        let mut row = 0;
        let mut last = 0i64;
        for run in values.chunk_by(|a, b| a == b) {
            put_varint(&mut bytes, run.len() as u64);
            put_varint(&mut bytes, zigzag(run[0].wrapping_sub(last)));
            last = run[0];
            row += run.len() as u32;
            decoded.ends.push(row);
            decoded.values.push(last);
        }
        let part = Part::append(data, &bytes);
        Runs { part, rows: row, count: decoded.ends.len() as u32, decoded: OnceLock::from(decoded) }
    }
}

#[derive(Debug)]
pub struct Runs {
    part: Part,
    /// Rows of the chunk.
    rows: u32,
    count: u32,
    decoded: OnceLock<DecodedRuns>,
}

#[derive(Debug, Default)]
struct DecodedRuns {
    /// The row after each run, ascending. The last one is the number of rows.
    ends: Vec<u32>,
    values: Vec<i64>,
}

impl Runs {
    pub fn get(reader: &mut Reader<'_>, rows: usize) -> Result<Self, Corrupt> {
        let part = Part::decode(reader)?;
        Ok(Self { part, rows: rows as u32, count: reader.u32("runs")?, decoded: OnceLock::new() })
    }

    fn read_runs(&self, section: DataSection<'_>) -> Result<DecodedRuns> {
        let (at, count, rows) = (self.part.offset as usize, self.count as usize, self.rows as usize);
        let bytes = section.read(self.part, "runs")?;
        if count > bytes.len() {
            return corrupt("runs", at, format!("{count} runs in {} bytes", bytes.len()));
        }
        let mut reader = Reader::new(&bytes);
        let (mut ends, mut values) = (Vec::with_capacity(count), Vec::with_capacity(count));
        let (mut row, mut last) = (0usize, 0i64);
        for _ in 0..count {
            row = row.saturating_add(varint(&mut reader, "run length")? as usize);
            last = last.wrapping_add(unzigzag(varint(&mut reader, "run value")?));
            ends.push(row.min(rows) as u32);
            values.push(last);
        }
        reader.finish("runs")?;
        if row != rows {
            return corrupt("runs", at, format!("{row} rows of {rows}"));
        }
        Ok(DecodedRuns { ends, values })
    }
}

impl IntEncoding for Runs {
    fn name(&self) -> &'static str {
        "runs"
    }

    fn decode_block(&self, section: DataSection<'_>, block: usize, out: &mut [i64]) -> Result<()> {
        let runs = get_or_try_init(&self.decoded, || self.read_runs(section))?;
        let (mut row, end) = ((block * BLOCK_ROWS) as u32, (block * BLOCK_ROWS + out.len()) as u32);
        let mut run = runs.ends.partition_point(|end| *end <= row);
        let mut out = out;
        while row < end {
            let run_end = runs.ends[run].min(end);
            let (now, later) = out.split_at_mut((run_end - row) as usize);
            now.fill(runs.values[run]);
            out = later;
            row = run_end;
            run += 1;
        }
        Ok(())
    }

    fn unread_part(&self) -> Option<Part> {
        self.decoded.get().is_none().then_some(self.part)
    }

    fn data_bytes(&self) -> usize {
        self.part.bytes as usize
    }

    fn decoded_bytes_max(&self) -> usize {
        12 * self.count as usize
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.put_u8(tag::RUNS);
        self.part.encode(out);
        out.put_u32(self.count);
    }
}
