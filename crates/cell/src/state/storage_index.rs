//! The storage index: per region, minimum, maximum and NULL counts of the columns that queries filter on.
//!
//! An entry describes all tuples of a region at one region version, and is valid for one row layout only: a column that
//! was added, rolled back and added again may have another missing value under the same attribute number.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use cellar_format::units::RegionVersion;
use cellar_format::wire::Attribute;
use cellar_scan::{Account, Plan, RegionSummary};

use super::clock_cache::HeapBytes;
use super::region_table::{RegionKey, RegionTable};

/// Identifies a row layout: a hash of the relation's attributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowLayout(u64);

pub struct StorageIndex {
    entries: RegionTable<Entry>,
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

impl RowLayout {
    pub fn of(attributes: &[Attribute]) -> Self {
        let mut hasher = DefaultHasher::new();
        attributes.hash(&mut hasher);
        Self(hasher.finish())
    }
}

impl StorageIndex {
    /// Returns an index of at most `capacity_bytes`, whose memory is added to `account`.
    pub fn new(account: &Arc<Account>, capacity_bytes: u64) -> Self {
        Self { entries: RegionTable::new(account, capacity_bytes) }
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
