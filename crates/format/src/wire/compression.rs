//! Compression requests: rewrite allocation units to a level, report the levels, and find the due units.

use super::Relation;
use super::message::BlockRange;
use crate::bytes::{Corrupt, Reader, Write};

/// Compression levels on the wire: 0 is raw pages, 1 to 4 are `QUERY LOW` to `ARCHIVE HIGH`.
pub const COMPRESSION_LEVEL_MAX: u8 = 4;

/// Blocks of a relation. The request covers every allocation unit that has one of these blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelationBlocks {
    pub relation: Relation,
    pub range: BlockRange,
}

/// Rewrites every allocation unit of the blocks to one level.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompressRequest {
    pub level: u8,
    pub blocks: RelationBlocks,
}

/// Requests the number and size of the blocks' allocation units by level.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitsQuery {
    pub blocks: RelationBlocks,
}

/// Requests the allocation units that a compression at `level` would rewrite, among those without a write in the last
/// `idle_us` microseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueQuery {
    pub level: u8,
    pub idle_us: u64,
    pub blocks: RelationBlocks,
}

/// Running totals of a compression; also its final result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct CompressProgress {
    /// Blocks whose allocation unit has been processed, rewritten or not.
    pub blocks_done: u64,
    /// Allocation units that this compression rewrote.
    pub units_written: u64,
    /// Allocation units left unchanged: modified while the cell encoded them, incompressible, damaged, or without a
    /// free unit slot because a scan still reads a replaced unit.
    pub units_skipped: u64,
    /// Compression: bytes of the encoded pages. Decompression: bytes of the compression units.
    pub bytes_before: u64,
    /// Compression: bytes of the new compression units. Decompression: bytes of the raw pages.
    pub bytes_after: u64,
}

/// The allocation units of a relation that have one level.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct LevelUnits {
    pub level: u64,
    pub units: u64,
    pub blocks: u64,
    /// Raw blocks of allocation units with a compression unit: blocks that were written after the unit was created.
    pub superseded_blocks: u64,
    /// Bytes on the cell disks, raw pages beside units included.
    pub stored_bytes: u64,
}

/// The blocks of an allocation unit that is due for compression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct DueUnit {
    pub first: u32,
    pub end: u32,
    /// Microseconds since the last write to the allocation unit.
    pub idle_us: u64,
}

/// The answer to a [`DueQuery`], in block order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueUnits {
    pub units: Vec<DueUnit>,
}

/// The answer to a [`UnitsQuery`]; levels without units are absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Units {
    pub levels: Vec<LevelUnits>,
}

impl RelationBlocks {
    fn encode(&self, out: &mut Vec<u8>) {
        self.range.encode(out);
        self.relation.encode(out);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        let range = BlockRange::decode(reader.take(8, "block range")?)?;
        let relation = Relation::decode(reader)?;
        reader.finish("relation")?;
        Ok(Self { relation, range })
    }
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
        self.blocks.encode(out);
    }

    pub fn decode(payload: &[u8]) -> Result<Self, Corrupt> {
        let mut reader = Reader::new(payload);
        Ok(Self { level: level(&mut reader)?, blocks: RelationBlocks::decode(&mut reader)? })
    }
}

impl UnitsQuery {
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.blocks.encode(out);
    }

    pub fn decode(payload: &[u8]) -> Result<Self, Corrupt> {
        Ok(Self { blocks: RelationBlocks::decode(&mut Reader::new(payload))? })
    }
}

impl DueQuery {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u8(self.level);
        out.put_u64(self.idle_us);
        self.blocks.encode(out);
    }

    pub fn decode(payload: &[u8]) -> Result<Self, Corrupt> {
        let mut reader = Reader::new(payload);
        let level = level(&mut reader)?;
        let idle_us = reader.u64("idle time")?;
        Ok(Self { level, idle_us, blocks: RelationBlocks::decode(&mut reader)? })
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
            [line.level, line.units, line.blocks, line.superseded_blocks, line.stored_bytes]
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
                superseded_blocks: field()?,
                stored_bytes: field()?,
            });
        }
        reader.finish("compression levels")?;
        Ok(Self { levels })
    }
}
