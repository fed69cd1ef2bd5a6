//! The allocation units that a compression policy should rewrite.
//!
//! Only the cell knows when an allocation unit was last written. The backend freezes the rows of the due units where
//! necessary, then requests their compression.

use super::raw_blocks;
use crate::relation::RelationAu;
use crate::state::CellState;
use cellar_format::wire::{DueUnit, DueUnits};
use cellar_storage::{AuFormat, Result};

/// An allocation unit of the wanted level is due if at least one in this many of its blocks is raw.
const BLOCKS_PER_RAW_BLOCK: u64 = 10;

/// Returns the allocation units that a compression at `level` (0: raw) would rewrite, among those without a write in
/// the last `idle_us` microseconds. Known incompressible units are not due.
pub fn due_units(state: &CellState, units: &[RelationAu], level: u8, idle_us: u64) -> Result<DueUnits> {
    let wanted = u32::from(level);
    let mut due = Vec::new();
    for RelationAu { object, au, blocks } in units {
        let unit_idle_us = state.volume.au_idle(*object, *au)?.as_micros() as u64;
        let unit = state.volume.au_info(*object, *au)?;
        let is_due = match unit.format {
            AuFormat::Unit { tag, superseded, .. } if tag == wanted => {
                let raw = raw_blocks(&superseded, blocks);
                raw > 0 && raw * BLOCKS_PER_RAW_BLOCK >= blocks.len() as u64
            }
            AuFormat::Unit { .. } => true,
            AuFormat::Raw => wanted > 0,
        };
        let is_incompressible = || state.incompressible_units.contains(*object, *au, unit.version, wanted);
        if is_due && unit_idle_us >= idle_us && !is_incompressible() {
            due.push(DueUnit { first: blocks.start, end: blocks.end, idle_us: unit_idle_us });
        }
    }
    Ok(DueUnits { units: due })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{Credentials, Permission};
    use crate::compression::{CompressionError, compress, units_by_level};
    use crate::fixtures;
    use crate::relation::Segments;
    use cellar_format::units::BLOCK_BYTES;
    use cellar_format::wire::{BlockRange, CompressProgress};
    use cellar_scan::unit::{Level, Shape};
    use std::sync::Arc;

    const AU_BYTES: usize = 1 << 20;
    const AU_BLOCKS: u32 = (AU_BYTES / BLOCK_BYTES) as u32;

    /// A cell that stores one relation, in one segment.
    struct Cell {
        state: CellState,
        segments: Segments,
        object: u64,
        _folder: tempfile::TempDir,
    }

    impl Cell {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let volume = fixtures::volume(folder.path(), AU_BYTES);
            let object = fixtures::create(&volume, "table");
            let relation = fixtures::relation("table");
            let segments = Segments::new(volume.clone(), &relation, Credentials::root(), Permission::Read);
            Self { state: CellState::new(volume, Arc::default(), Arc::default()), segments, object, _folder: folder }
        }

        fn write(&self, offset: usize, bytes: &[u8]) {
            self.state.volume.write(self.object, offset as u64, bytes).unwrap();
        }

        fn units(&self) -> Vec<RelationAu> {
            self.segments.allocation_units(BlockRange { first: 0, end: u32::MAX }).unwrap()
        }

        fn due(&self, level: u8, idle_us: u64) -> Vec<(u32, u32)> {
            let due = due_units(&self.state, &self.units(), level, idle_us).unwrap();
            due.units.iter().map(|unit| (unit.first, unit.end)).collect()
        }

        fn compress(&self) -> CompressProgress {
            let report = |_| Ok::<_, CompressionError>(());
            compress(&self.state, &self.units(), &Shape::default(), Some(Level::QueryLow), report).unwrap()
        }

        fn superseded_blocks(&self) -> u64 {
            let units = units_by_level(&self.state.volume, &self.units()).unwrap();
            units.levels.iter().map(|line| line.superseded_blocks).sum()
        }
    }

    #[test]
    fn idle_compressible_units_are_due_if_raw_or_of_another_level_or_one_tenth_superseded() {
        let cell = Cell::new();
        // These pages are not heap pages. Repeated bytes still compress, random bytes do not.
        let mut seed = 1u64;
        let mut noise = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 56) as u8
        };
        cell.write(0, &vec![7; 2 * AU_BYTES]);
        cell.write(2 * AU_BYTES, &(0..AU_BYTES).map(|_| noise()).collect::<Vec<_>>());
        let [first, second, third] = [0, 1, 2].map(|au| (au * AU_BLOCKS, (au + 1) * AU_BLOCKS));
        assert_eq!(cell.due(1, 0), [first, second, third]);
        assert_eq!(cell.due(1, 3_600_000_000), [], "written less than an hour ago");

        let done = cell.compress();
        assert_eq!((done.units_written, done.units_skipped), (2, 1));
        assert_eq!(cell.due(1, 0), [], "the third is incompressible at this level");
        assert_eq!(cell.due(3, 0), [first, second, third], "the third may be compressible at another level");

        let write = |block: u32| cell.write(block as usize * BLOCK_BYTES, &[5; BLOCK_BYTES]);
        for block in 0..AU_BLOCKS.div_ceil(10) - 1 {
            write(block);
        }
        assert_eq!(cell.due(1, 0), [], "less than one tenth of the first is superseded");
        write(AU_BLOCKS - 1);
        write(third.0);
        assert_eq!(
            cell.due(1, 0),
            [first, third],
            "one tenth is superseded; the changed third may be compressible now"
        );
        cell.state.volume.close().unwrap();
    }

    #[test]
    fn blocks_appended_to_a_compressed_allocation_unit_become_part_of_its_next_unit() {
        let cell = Cell::new();
        let half = AU_BYTES / 2;
        cell.write(0, &vec![7; half]);
        assert_eq!(cell.compress().units_written, 1);
        assert_eq!(cell.compress().units_written, 0);
        cell.write(half, &vec![8; half]);
        assert_eq!(cell.superseded_blocks(), u64::from(AU_BLOCKS / 2));
        assert_eq!(cell.due(1, 0), [(0, AU_BLOCKS)]);
        assert_eq!(cell.compress().units_written, 1);
        assert_eq!(cell.superseded_blocks(), 0);
        assert_eq!(cell.due(1, 0), []);
        cell.state.volume.close().unwrap();
    }
}
