//! Compressing a relation's allocation units, and what they are.

use super::message::BlockRange;
use super::request::ScanRequest;
use crate::bytes::{Corrupt, Reader, Write};

/// Compression levels on the wire: 0 is raw pages, 1 to 4 are `QUERY LOW` to `ARCHIVE HIGH`.
pub const COMPRESSION_LEVEL_MAX: u8 = 4;

/// Brings every allocation unit that lies in a range of blocks to one level.
#[derive(Debug, Clone, PartialEq)]
pub struct CompressRequest {
    pub level: u8,
    pub range: BlockRange,
    /// The relation, as a scan without quals and columns would name it.
    pub relation: ScanRequest,
}

/// Asks for the form of the allocation units in a range of blocks.
#[derive(Debug, Clone, PartialEq)]
pub struct UnitsQuery {
    pub range: BlockRange,
    pub relation: ScanRequest,
}

/// Asks which allocation units in a range of blocks a compression at that level would rewrite, of those that nothing
/// has written to for `idle_us` microseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct DueQuery {
    pub level: u8,
    pub idle_us: u64,
    pub range: BlockRange,
    pub relation: ScanRequest,
}

/// How far a compression has come; also its end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct CompressProgress {
    /// Of the range, those whose allocation unit was looked at.
    pub blocks_done: u64,
    /// Allocation units that were brought to the level now.
    pub units_written: u64,
    /// Allocation units that changed while they were encoded, or are still read in a former form; they stay as they are.
    pub units_skipped: u64,
    /// Pages that were encoded, and the units that they became.
    pub bytes_before: u64,
    pub bytes_after: u64,
}

/// The blocks of a relation that have one form.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct LevelUnits {
    pub level: u64,
    pub units: u64,
    pub blocks: u64,
    /// Blocks of compression units that were written since and lie raw.
    pub dead_blocks: u64,
    /// Taken on the disks, raw blocks beside units included.
    pub stored_bytes: u64,
}

/// The blocks of an allocation unit that is due, and how long nothing has written to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct DueUnit {
    pub first: u32,
    pub end: u32,
    pub idle_us: u64,
}

/// In the order of their blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueUnits {
    pub units: Vec<DueUnit>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Units {
    pub levels: Vec<LevelUnits>,
}

fn put_relation(out: &mut Vec<u8>, range: BlockRange, relation: &ScanRequest) {
    out.put_u32(range.first);
    out.put_u32(range.end);
    relation.encode(out);
}

fn relation(reader: &mut Reader<'_>) -> Result<(BlockRange, ScanRequest), Corrupt> {
    let range = BlockRange::decode(reader.take(8, "block range")?)?;
    let rest = reader.take(reader.remaining(), "relation")?;
    Ok((range, ScanRequest::decode(rest)?))
}

fn level(reader: &mut Reader<'_>) -> Result<u8, Corrupt> {
    match reader.u8("compression level")? {
        level @ 0..=COMPRESSION_LEVEL_MAX => Ok(level),
        other => Err(Corrupt::new("compression level", 0, other.to_string())),
    }
}

impl CompressRequest {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(self.level);
        put_relation(out, self.range, &self.relation);
    }

    pub fn decode(payload: &[u8]) -> Result<Self, Corrupt> {
        let mut reader = Reader::new(payload);
        let level = level(&mut reader)?;
        let (range, relation) = relation(&mut reader)?;
        Ok(Self { level, range, relation })
    }
}

impl UnitsQuery {
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_relation(out, self.range, &self.relation);
    }

    pub fn decode(payload: &[u8]) -> Result<Self, Corrupt> {
        let mut reader = Reader::new(payload);
        let (range, relation) = relation(&mut reader)?;
        Ok(Self { range, relation })
    }
}

impl DueQuery {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(self.level);
        out.put_u64(self.idle_us);
        put_relation(out, self.range, &self.relation);
    }

    pub fn decode(payload: &[u8]) -> Result<Self, Corrupt> {
        let mut reader = Reader::new(payload);
        let level = level(&mut reader)?;
        let idle_us = reader.u64("idle time")?;
        let (range, relation) = relation(&mut reader)?;
        Ok(Self { level, idle_us, range, relation })
    }
}

impl DueUnits {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u32(self.units.len() as u32);
        for unit in &self.units {
            out.put_u32(unit.first);
            out.put_u32(unit.end);
            out.put_u64(unit.idle_us);
        }
    }

    pub fn decode(payload: &[u8]) -> Result<Self, Corrupt> {
        let mut reader = Reader::new(payload);
        let count = reader.count(16, "allocation units")?;
        let mut unit = || -> Result<_, Corrupt> {
            let (first, end) = (reader.u32("first block")?, reader.u32("end block")?);
            Ok(DueUnit { first, end, idle_us: reader.u64("idle time")? })
        };
        let units = (0..count).map(|_| unit()).collect::<Result<_, _>>()?;
        reader.finish("allocation units")?;
        Ok(Self { units })
    }
}

impl CompressProgress {
    fn fields(&mut self) -> [&mut u64; 5] {
        let Self { blocks_done, units_written, units_skipped, bytes_before, bytes_after } = self;
        [blocks_done, units_written, units_skipped, bytes_before, bytes_after]
    }

    pub fn encode(mut self, out: &mut Vec<u8>) {
        self.fields().into_iter().for_each(|field| out.put_u64(*field));
    }

    pub fn decode(payload: &[u8]) -> Result<Self, Corrupt> {
        let mut reader = Reader::new(payload);
        let mut progress = Self::default();
        for field in progress.fields() {
            *field = reader.u64("compression progress")?;
        }
        reader.finish("compression progress")?;
        Ok(progress)
    }
}

impl Units {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u32(self.levels.len() as u32);
        for line in &self.levels {
            [line.level, line.units, line.blocks, line.dead_blocks, line.stored_bytes]
                .into_iter()
                .for_each(|field| out.put_u64(field));
        }
    }

    pub fn decode(payload: &[u8]) -> Result<Self, Corrupt> {
        let mut reader = Reader::new(payload);
        let count = reader.count(40, "compression levels")?;
        let mut levels = Vec::with_capacity(count);
        for _ in 0..count {
            let mut field = || reader.u64("compression level");
            levels.push(LevelUnits {
                level: field()?,
                units: field()?,
                blocks: field()?,
                dead_blocks: field()?,
                stored_bytes: field()?,
            });
        }
        reader.finish("compression levels")?;
        Ok(Self { levels })
    }
}
