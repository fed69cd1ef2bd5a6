//! The storage index: per region, minimum, maximum and NULL counts of the columns that queries filter on.
//!
//! An entry describes all tuples of a region at one region version, and is valid for one row layout only: a column that
//! was added, rolled back and added again may have another missing value under the same attribute number.
//!
//! A clean stop of the cell saves the index, and the next start loads it, so that the first scans after a restart exclude
//! regions. [`cellar_storage::SavedFacts`] guarantees that the next start gets no entry of a file that has changed since.
//! An entry is saved only if it is valid for the region's version at the stop, and is loaded with the region's version
//! at the start, before the first request: from then on a change of the region invalidates it like any other entry.
//! Layout of the entries: `docs/format/storage-index.md`.

use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::Arc;

use cellar_format::bytes::{Corrupt, Reader, Write};
use cellar_format::units::{RegionIndex, RegionVersion};
use cellar_format::wire::Attribute;
use cellar_scan::{Account, Plan, RegionSummary};
use cellar_storage::{Error, ErrorKind, FactsWriter, SavedFacts, Volume};

use super::clock_cache::HeapBytes;
use super::hash::stable_hash;
use super::region_table::{RegionKey, RegionTable};
use crate::relation::DiskObject;

/// Identifies a row layout: a hash of the relation's attributes, which is part of the format of saved entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowLayout(u64);

pub struct StorageIndex {
    entries: RegionTable<Entry>,
    loaded_regions: u64,
}

struct Entry {
    layout: RowLayout,
    summary: RegionSummary,
}

impl HeapBytes for Entry {
    fn heap_bytes(&self) -> usize {
        self.summary.heap_bytes()
    }
}

impl Entry {
    fn encode(&self, (object, region): RegionKey, out: &mut Vec<u8>) {
        out.put_u64(object);
        out.put_u32(region.0);
        out.put_u64(self.layout.0);
        self.summary.encode(out);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<(RegionKey, Self), Corrupt> {
        let key = (reader.u64("disk object")?, RegionIndex(reader.u32("region")?));
        let layout = RowLayout(reader.u64("row layout")?);
        Ok((key, Self { layout, summary: RegionSummary::decode(reader)? }))
    }
}

impl RowLayout {
    pub fn of(attributes: &[Attribute]) -> Self {
        let mut bytes = Vec::new();
        attributes.iter().for_each(|attribute| attribute.encode(&mut bytes));
        Self(stable_hash(&bytes))
    }
}

impl StorageIndex {
    /// Returns an index of at most `capacity_bytes`, whose memory is added to `account`.
    pub fn new(account: &Arc<Account>, capacity_bytes: u64) -> Self {
        Self { entries: RegionTable::new(account, capacity_bytes), loaded_regions: 0 }
    }

    /// Returns an index like [`Self::new`], with the entries that the last clean stop saved. Entries that exceed the
    /// capacity are evicted. Must be called before the first change of a file.
    pub fn load(volume: &Volume, account: &Arc<Account>, capacity_bytes: u64) -> Self {
        let Some(saved) = volume.take_saved_facts() else { return Self::new(account, capacity_bytes) };
        let files = saved.unchanged_files();
        let mut index = Self::new(account, capacity_bytes);
        match index.read(volume, saved) {
            Ok(()) => {
                log::info!("loaded the storage index: {} regions of {files} files", index.loaded_regions);
                index
            }
            Err(error) => {
                log::warn!("ignored the saved storage index: {error}");
                drop(index);
                Self::new(account, capacity_bytes)
            }
        }
    }

    fn read(&mut self, volume: &Volume, mut saved: SavedFacts) -> Result<(), Error> {
        let corrupt = |error: Corrupt| Error::new(ErrorKind::Corrupt, error.to_string());
        while let Some(frame) = saved.next_frame()? {
            let mut reader = Reader::new(&frame);
            while reader.remaining() > 0 {
                let (key, entry) = Entry::decode(&mut reader).map_err(corrupt)?;
                let (object, region) = key;
                if saved.is_unchanged(object) {
                    self.record(key, volume.region_version(object, region), entry.layout, entry.summary);
                    self.loaded_regions += 1;
                }
            }
        }
        Ok(())
    }

    /// Returns the number of regions whose entries were loaded when the cell started.
    pub fn loaded_regions(&self) -> u64 {
        self.loaded_regions
    }

    /// Returns the disk objects that have entries.
    pub fn objects(&self) -> HashSet<DiskObject> {
        let mut objects = HashSet::new();
        let Ok(()) = self.entries.try_for_each(|(object, _), _, _| {
            objects.insert(object);
            Ok::<(), Infallible>(())
        });
        objects
    }

    /// Appends the entries that are valid for the present versions of their regions. No file may change meanwhile.
    pub fn save(&self, volume: &Volume, writer: &mut FactsWriter) -> Result<(), Error> {
        self.entries.try_for_each(|key, version, entry| {
            let (object, region) = key;
            match writer.accepts(object) && volume.region_version(object, region) == version {
                true => writer.record(|out| entry.encode(key, out)),
                false => Ok(()),
            }
        })
    }

    /// Returns false if no row of the region can qualify at this version.
    pub fn may_match(&self, key: RegionKey, version: RegionVersion, layout: RowLayout, plan: &Plan) -> bool {
        let may_match = |entry: &Entry| entry.layout != layout || plan.may_match(&entry.summary);
        self.entries.look_up(key, version, may_match).unwrap_or(true)
    }

    /// Returns whether the region's entry has all columns that the plan prunes by.
    pub fn covers(&self, key: RegionKey, version: RegionVersion, layout: RowLayout, plan: &Plan) -> bool {
        let covers = |entry: &Entry| {
            let mut columns = plan.summary_columns().iter();
            entry.layout == layout && columns.all(|column| entry.summary.column(*column).is_some())
        };
        self.entries.look_up(key, version, covers).unwrap_or(false)
    }

    /// Adds the columns of a region's summary to its entry. The summary must describe the whole region.
    pub fn record(&self, key: RegionKey, version: RegionVersion, layout: RowLayout, summary: RegionSummary) {
        self.entries.record(key, version, Entry { layout, summary }, |entry, new| {
            if entry.layout == new.layout {
                entry.summary.merge(new.summary);
            } else {
                *entry = new;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;
    use crate::state::CellState;
    use cellar_format::postgres::{Align, Width, type_oid};
    use cellar_format::units::{BLOCK_BYTES, REGION_BYTES};
    use cellar_format::wire::Missing;
    use std::path::Path;

    fn state(folder: &Path) -> CellState {
        CellState::new(fixtures::volume(folder, 1 << 20), Arc::default(), Arc::default())
    }

    /// Returns a summary of one integer column without NULLs.
    fn summary(min: i64) -> RegionSummary {
        let mut bytes = Vec::new();
        bytes.put_u32(1);
        bytes.put_u16(1);
        bytes.put_u32(type_oid::INT4);
        bytes.put_bytes(&[2, 1]);
        bytes.put_u64(min as u64);
        bytes.put_u64(min as u64 + 9);
        RegionSummary::decode(&mut Reader::new(&bytes)).unwrap()
    }

    /// Creates a file of some regions and records the summary of each.
    fn file_with_summaries(state: &CellState, name: &str, regions: u32) -> DiskObject {
        let object = fixtures::create(&state.volume, name);
        state.volume.write(object, 0, &vec![1; regions as usize * REGION_BYTES]).unwrap();
        for region in RegionIndex::iter(RegionIndex(0)..RegionIndex(regions)) {
            let version = state.volume.region_version(object, region);
            state.storage_index.record((object, region), version, RowLayout(5), summary(i64::from(region.0)));
        }
        object
    }

    /// Returns the entry of a region that is valid now.
    fn entry(state: &CellState, object: DiskObject, region: u32) -> Option<(RowLayout, RegionSummary)> {
        let key = (object, RegionIndex(region));
        let version = state.volume.region_version(object, key.1);
        state.storage_index.entries.look_up(key, version, |entry| (entry.layout, entry.summary.clone()))
    }

    #[test]
    fn a_clean_restart_keeps_the_valid_entries_and_a_later_write_invalidates_them() {
        let folder = tempfile::tempdir().unwrap();
        let first = state(folder.path());
        assert_eq!(first.storage_index.loaded_regions(), 0);
        let object = file_with_summaries(&first, "table", 4);
        first.volume.write(object, REGION_BYTES as u64, &[2; BLOCK_BYTES]).unwrap();
        let removed = file_with_summaries(&first, "removed", 1);
        first.volume.unlink(cellar_storage::ROOT_INO, b"removed").unwrap();
        first.close().unwrap();
        drop(first);

        let second = state(folder.path());
        assert_eq!(second.storage_index.loaded_regions(), 3);
        assert!(second.memory.account(crate::state::MemoryKind::StorageIndex).used() > 0);
        let loaded = |region: u32| Some((RowLayout(5), summary(i64::from(region))));
        let entries = |state: &CellState| [0, 1, 2, 3].map(|region| entry(state, object, region));
        assert_eq!(entries(&second), [loaded(0), None, loaded(2), loaded(3)], "region 1 was written after its summary");
        assert_eq!(entry(&second, removed, 0), None);
        second.volume.write(object, 2 * REGION_BYTES as u64, &[3; BLOCK_BYTES]).unwrap();
        assert_eq!(entries(&second), [loaded(0), None, None, loaded(3)]);
        second.close().unwrap();
        drop(second);

        let third = state(folder.path());
        assert_eq!(entries(&third), [loaded(0), None, None, loaded(3)], "loaded entries are saved again");
        // A crash: the state is dropped without a clean stop.
        third.volume.abandon();
        drop(third);
        let fourth = state(folder.path());
        assert_eq!(fourth.storage_index.loaded_regions(), 0);
        assert_eq!(entries(&fourth), [None, None, None, None]);
        fourth.volume.close().unwrap();
    }

    #[test]
    fn a_smaller_index_loads_what_fits() {
        let folder = tempfile::tempdir().unwrap();
        let first = state(folder.path());
        let object = file_with_summaries(&first, "table", 1);
        for region in RegionIndex::iter(RegionIndex(0)..RegionIndex(10_000)) {
            let version = first.volume.region_version(object, region);
            first.storage_index.record((object, region), version, RowLayout(5), summary(i64::from(region.0)));
        }
        first.close().unwrap();
        drop(first);
        let volume = fixtures::volume(folder.path(), 1 << 20);
        let account = Account::new(1 << 20);
        let index = StorageIndex::load(&volume, &account, 1 << 20);
        assert_eq!(index.loaded_regions(), 10_000);
        assert!((1 << 19..=1 << 20).contains(&account.used()), "{}", account.used());
        volume.close().unwrap();
    }

    #[test]
    fn bytes_that_are_no_entries_leave_the_index_empty() {
        let folder = tempfile::tempdir().unwrap();
        let first = state(folder.path());
        let object = file_with_summaries(&first, "table", 1);
        let invalid = |writer: &mut FactsWriter| {
            first.storage_index.save(&first.volume, writer)?;
            writer.record(|out| out.extend([7; 30]))
        };
        first.volume.close_saving_facts([object], invalid).unwrap();
        drop(first);
        let second = state(folder.path());
        assert_eq!((second.storage_index.loaded_regions(), entry(&second, object, 0)), (0, None));
        assert_eq!(second.memory.account(crate::state::MemoryKind::StorageIndex).used(), 0);
        second.volume.close().unwrap();
    }

    /// The hash is part of the format of saved entries.
    #[test]
    fn the_hash_of_a_row_layout_never_changes() {
        let integer = Attribute {
            type_oid: type_oid::INT4,
            typmod: -1,
            width: Width::Fixed(4),
            align: Align::Int,
            by_value: true,
            missing: Missing::Null,
        };
        let added = Attribute { missing: Missing::Value(vec![7, 0, 0, 0]), ..integer.clone() };
        assert_eq!(RowLayout::of(&[]), RowLayout(0xcbf2_9ce4_8422_2325));
        assert_eq!(RowLayout::of(&[integer.clone(), integer.clone()]), RowLayout(0x1734_c4fc_f156_ee53));
        assert_eq!(RowLayout::of(&[integer, added]), RowLayout(0xd736_387f_3b82_2c93));
    }
}
