//! What a compression policy is to rewrite. The cell alone knows when an allocation unit was last written to; the backend
//! then freezes what needs it and commands the rest.

use super::{CompressionError, Place, places};
use crate::smart_scan::region_table::RegionTable;
use cellar_format::wire::{DueQuery, DueUnit, DueUnits};
use cellar_storage::{AuFormat, PageSet, Volume};
use std::ops::Range;

/// A unit is made anew by itself when one block in this many lies raw.
const RAW_SHARE: u64 = 10;

/// Allocation units that a unit at some levels (a bit each) would not make smaller, as long as nothing changes them.
pub type Unpaid = RegionTable<u8>;

/// The allocation units that a compression would rewrite, of those that nothing has written to for a while.
pub fn due(volume: &Volume, unpaid: &Unpaid, query: &DueQuery) -> Result<DueUnits, CompressionError> {
    let tag = u32::from(query.level);
    let mut units = Vec::new();
    for Place { ino, au, blocks } in places(volume, &query.relation, query.range)? {
        let idle_us = volume.au_idle(ino, au)?.as_micros() as u64;
        let unit = volume.au_info(ino, au)?;
        let is_due = match unit.format {
            AuFormat::Unit { tag: now, superseded: dead, .. } if now == tag => {
                raw_blocks(&dead, &blocks) * RAW_SHARE >= blocks.len() as u64 && raw_blocks(&dead, &blocks) > 0
            }
            AuFormat::Unit { .. } => true,
            AuFormat::Raw => tag > 0,
        };
        let pays = unpaid.look_up((ino, au as u32), unit.version, |levels| levels & (1 << tag) == 0);
        if is_due && idle_us >= query.idle_us && pays.unwrap_or(true) {
            units.push(DueUnit { first: blocks.start, end: blocks.end, idle_us });
        }
    }
    Ok(DueUnits { units })
}

/// Blocks of a unit that lie raw; those that came after it was made do, as dead ones.
pub(super) fn raw_blocks(dead: &PageSet, blocks: &Range<u32>) -> u64 {
    u64::from(dead.len()) + (blocks.len() as u64).saturating_sub(u64::from(dead.page_count()))
}

#[cfg(test)]
mod tests {
    use super::super::{Codec, compress, units};
    use super::*;
    use cellar_format::units::BLOCK_BYTES;
    use cellar_format::wire::{
        BlockRange, CompressProgress, CompressRequest, ScanMode, ScanRequest, Snapshot, UnitsQuery,
    };
    use cellar_storage::disk::{DirectoryDisk, Disk};
    use cellar_storage::{AuSize, Ino, Kind, NewNode, ROOT_INO, VolumeOptions};
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    const AU_BYTES: usize = 1 << 20;
    const AU_BLOCKS: u32 = (AU_BYTES / BLOCK_BYTES) as u32;

    fn due_blocks(volume: &Volume, unpaid: &Unpaid, level: u8, idle_us: u64) -> Vec<(u32, u32)> {
        let query = DueQuery { level, idle_us, range: BlockRange { first: 0, end: u32::MAX }, relation: relation() };
        due(volume, unpaid, &query).unwrap().units.iter().map(|unit| (unit.first, unit.end)).collect()
    }

    fn relation() -> ScanRequest {
        ScanRequest {
            file: "table".into(),
            segment_blocks: 131_072,
            checksums: false,
            encoding: 6,
            attributes: Vec::new(),
            quals: Vec::new(),
            projection: Vec::new(),
            mode: ScanMode::Rows,
            snapshot: Snapshot::default(),
            threads: 1,
            aggregation: None,
            top_n: None,
        }
    }

    /// A volume with an empty file that [`relation`] names.
    fn volume(folder: &Path) -> (Arc<Volume>, Ino) {
        let disk = Arc::new(DirectoryDisk::new(folder.join("disk")).unwrap()) as Arc<dyn Disk>;
        let au_size = AuSize::from_bytes(AU_BYTES as u64).unwrap();
        let options =
            VolumeOptions { au_size, unit_codec: Some(Arc::new(Codec::default())), ..VolumeOptions::default() };
        let volume = Volume::open(vec![disk], options).unwrap();
        let new = NewNode { kind: Kind::File, mode: 0o600, uid: 0, gid: 0, device: 0, target: b"" };
        let ino = volume.create(ROOT_INO, b"table", &new).unwrap().ino;
        (volume, ino)
    }

    fn compress_blocks(volume: &Volume, unpaid: &Unpaid) -> CompressProgress {
        let request = CompressRequest { level: 1, range: BlockRange { first: 0, end: u32::MAX }, relation: relation() };
        let tell = |_| Ok::<_, CompressionError>(());
        compress(volume, unpaid, &request, &AtomicBool::new(false), tell).unwrap()
    }

    #[test]
    fn due_is_what_is_idle_and_raw_or_of_another_level_or_raw_again_by_a_tenth_and_pays() {
        let folder = tempfile::tempdir().unwrap();
        let (volume, ino) = volume(folder.path());
        // No heap pages: those that repeat still become small, the others do not.
        let mut seed = 1u64;
        let mut noise = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 56) as u8
        };
        volume.write(ino, 0, &vec![7; 2 * AU_BYTES]).unwrap();
        volume.write(ino, 2 * AU_BYTES as u64, &(0..AU_BYTES).map(|_| noise()).collect::<Vec<_>>()).unwrap();
        let [first, second, third] = [0, 1, 2].map(|au| (au * AU_BLOCKS, (au + 1) * AU_BLOCKS));
        let unpaid = Unpaid::default();
        assert_eq!(due_blocks(&volume, &unpaid, 1, 0), [first, second, third]);
        assert_eq!(due_blocks(&volume, &unpaid, 1, 3_600_000_000), []);

        let done = compress_blocks(&volume, &unpaid);
        assert_eq!((done.units_written, done.units_skipped), (2, 1));
        assert_eq!(due_blocks(&volume, &unpaid, 1, 0), [], "the third would not become smaller");
        assert_eq!(due_blocks(&volume, &unpaid, 3, 0), [first, second, third], "at another level it may");

        let write = |block: u32| volume.write(ino, u64::from(block) * BLOCK_BYTES as u64, &[5; BLOCK_BYTES]).unwrap();
        for block in 0..AU_BLOCKS.div_ceil(10) - 1 {
            write(block);
        }
        assert_eq!(due_blocks(&volume, &unpaid, 1, 0), [], "less than a tenth of the first");
        write(AU_BLOCKS - 1);
        write(third.0);
        assert_eq!(due_blocks(&volume, &unpaid, 1, 0), [first, third], "a tenth; and what changed may pay now");
        volume.close().unwrap();
    }

    #[test]
    fn blocks_that_a_file_grew_by_are_merged_into_its_last_unit() {
        let folder = tempfile::tempdir().unwrap();
        let (volume, ino) = volume(folder.path());
        let unpaid = Unpaid::default();
        let half = AU_BYTES / 2;
        volume.write(ino, 0, &vec![7; half]).unwrap();
        assert_eq!(compress_blocks(&volume, &unpaid).units_written, 1);
        assert_eq!(compress_blocks(&volume, &unpaid).units_written, 0);
        volume.write(ino, half as u64, &vec![8; half]).unwrap();
        let query = UnitsQuery { range: BlockRange { first: 0, end: u32::MAX }, relation: relation() };
        let raw_blocks = || units(&volume, &query).unwrap().levels.iter().map(|line| line.dead_blocks).sum::<u64>();
        assert_eq!(raw_blocks(), u64::from(AU_BLOCKS / 2));
        assert_eq!(due_blocks(&volume, &unpaid, 1, 0), [(0, AU_BLOCKS)]);
        assert_eq!(compress_blocks(&volume, &unpaid).units_written, 1);
        assert_eq!(raw_blocks(), 0);
        assert_eq!(due_blocks(&volume, &unpaid, 1, 0), []);
        volume.close().unwrap();
    }
}
