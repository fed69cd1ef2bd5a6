//! The units of the columnar cache by file, and the order in which they are evicted.
//!
//! A unit replaces the least recently used ones, but only those that were not used since the previous scan of its allocation unit.
//! Repeated scans of more than the cache can store therefore keep what is cached, and units that are no longer scanned leave.
//!
//! Units of files with KEEP are not evicted for those of other files. They fill at most [`KEEP_PERCENT`] of the cache.

use crate::file::{Extent, UnitSlots};
use crate::flash::FlashSetting;
use cellar_format::units::{AuIndex, RegionVersion};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// The part of the cache that units of files with KEEP may fill, in percent, as in the flash cache.
const KEEP_PERCENT: u64 = 80;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    Other,
    Keep,
}

impl Class {
    const COUNT: usize = 2;

    /// Returns None for a file that is not cached.
    pub fn of(setting: FlashSetting) -> Option<Self> {
        match setting {
            FlashSetting::Default => Some(Self::Other),
            FlashSetting::Keep => Some(Self::Keep),
            FlashSetting::None => None,
        }
    }
}

#[derive(Debug)]
pub struct Entry {
    pub extent: Arc<Extent>,
    pub version: RegionVersion,
    /// Bytes in flash.
    pub bytes: u64,
    /// The last use, in nanoseconds since 1970.
    pub used: i64,
}

/// The space for a unit.
#[derive(Debug)]
pub struct Wanted {
    pub bytes: u64,
    pub class: Class,
    pub previous_use: Option<i64>,
}

#[derive(Debug)]
struct CachedFile {
    slots: Arc<UnitSlots>,
    class: Class,
    entries: BTreeMap<AuIndex, Entry>,
    /// The last use of any unit.
    used: i64,
}

/// What the cache may use.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub bytes: u64,
    /// Files with units, each of which has a descriptor on each flash disk.
    pub files: usize,
}

#[derive(Debug, Default)]
pub struct Table {
    files: HashMap<u64, CachedFile>,
    /// The slots of files that left the table. Their unit files are removed later, without the table's lock; until then, their
    /// inodes get no new slots.
    leaving: HashMap<u64, Arc<UnitSlots>>,
    /// The units of each class, in the order of their last use.
    order: [BTreeSet<(i64, u64, AuIndex)>; Class::COUNT],
    bytes: [u64; Class::COUNT],
    /// Bytes of units that are being written.
    pub reserved_bytes: u64,
    /// Bytes of the last unit that found no place.
    rejected_bytes: u64,
}

impl Table {
    pub fn bytes(&self) -> u64 {
        self.bytes.iter().sum()
    }

    /// Returns the bytes that must be free before a unit is encoded: the size of an average unit, or, if larger, of the last unit
    /// that was encoded and then found no place.
    pub fn usual_bytes(&self) -> u64 {
        (self.bytes() / self.len().max(1) as u64).max(self.rejected_bytes)
    }

    pub fn bytes_in(&self, class: Class) -> u64 {
        self.bytes[class as usize]
    }

    pub fn len(&self) -> usize {
        self.order.iter().map(BTreeSet::len).sum()
    }

    pub fn bytes_of(&self, ino: u64) -> u64 {
        self.files.get(&ino).map_or(0, |file| file.entries.values().map(|entry| entry.bytes).sum())
    }

    pub fn entry(&self, ino: u64, au: AuIndex) -> Option<&Entry> {
        self.files.get(&ino)?.entries.get(&au)
    }

    /// Returns whether the slots are those of the file.
    pub fn has(&self, ino: u64, slots: &Arc<UnitSlots>) -> bool {
        self.files.get(&ino).is_some_and(|file| Arc::ptr_eq(&file.slots, slots))
    }

    /// Records a use of a unit.
    pub fn touch(&mut self, ino: u64, au: AuIndex, now: i64) {
        let Some(file) = self.files.get_mut(&ino) else { return };
        let (order, Some(entry)) = (&mut self.order[file.class as usize], file.entries.get_mut(&au)) else { return };
        order.remove(&(entry.used, ino, au));
        (entry.used, file.used) = (now, now);
        order.insert((now, ino, au));
    }

    /// Adds a unit of a file that has slots. Returns the unit that it replaces.
    pub fn insert(&mut self, (ino, au): (u64, AuIndex), class: Class, entry: Entry) -> Option<Arc<Extent>> {
        let replaced = self.remove(ino, au);
        let file = self.files.get_mut(&ino)?;
        if file.entries.is_empty() {
            file.class = class;
        }
        self.order[file.class as usize].insert((entry.used, ino, au));
        self.bytes[file.class as usize] += entry.bytes;
        file.used = file.used.max(entry.used);
        file.entries.insert(au, entry);
        replaced
    }

    /// Removes a unit. Its slot is punched when the last reader drops the extent: the caller does so without a lock.
    pub fn remove(&mut self, ino: u64, au: AuIndex) -> Option<Arc<Extent>> {
        let file = self.files.get_mut(&ino)?;
        let entry = file.entries.remove(&au)?;
        self.order[file.class as usize].remove(&(entry.used, ino, au));
        self.bytes[file.class as usize] -= entry.bytes;
        Some(entry.extent)
    }

    /// Removes a file, and returns its units. Dropping them punches no slots, because the unit files leave as a whole.
    pub fn remove_file(&mut self, ino: u64) -> Vec<Arc<Extent>> {
        let aus: Vec<AuIndex> = self.files.get(&ino).map_or(Vec::new(), |file| file.entries.keys().copied().collect());
        let units = aus.into_iter().filter_map(|au| self.remove(ino, au)).collect();
        if let Some(file) = self.files.remove(&ino) {
            file.slots.abandon();
            self.leaving.insert(ino, file.slots);
        }
        units
    }

    /// Returns the slots of files that left the table and have no reader.
    pub fn removable(&self) -> Vec<Arc<UnitSlots>> {
        self.leaving.values().filter(|slots| Arc::strong_count(slots) == 1).cloned().collect()
    }

    /// Records that the unit files of a file that left the table are removed.
    pub fn set_removed(&mut self, ino: u64) {
        self.leaving.remove(&ino);
    }

    /// Ends the punching of slots of all files.
    pub fn abandon(&self) {
        self.files.values().for_each(|file| file.slots.abandon());
    }

    /// Moves the units of a file to a class. Without a class, removes the file and returns its units.
    pub fn set_class(&mut self, ino: u64, class: Option<Class>) -> Vec<Arc<Extent>> {
        let Some(class) = class else { return self.remove_file(ino) };
        let Some(file) = self.files.get_mut(&ino) else { return Vec::new() };
        let from = std::mem::replace(&mut file.class, class);
        for (au, entry) in &file.entries {
            let key = (entry.used, ino, *au);
            self.order[from as usize].remove(&key);
            self.order[class as usize].insert(key);
            self.bytes[from as usize] -= entry.bytes;
            self.bytes[class as usize] += entry.bytes;
        }
        Vec::new()
    }

    /// Reserves space for a unit of a file. Returns the slots of the file, `new` ones if it has none, and the units that leave; None,
    /// without a change, if the unit has no place.
    pub fn make_space(
        &mut self,
        ino: u64,
        wanted: &Wanted,
        limits: Limits,
        new: impl FnOnce() -> Arc<UnitSlots>,
    ) -> Option<(Arc<UnitSlots>, Vec<Arc<Extent>>)> {
        if !self.has_space(ino, wanted, limits) {
            self.rejected_bytes = wanted.bytes;
            return None;
        }
        let file = self.file_victim(ino, wanted, limits.files).flatten();
        let mut evicted = file.map_or(Vec::new(), |file| self.remove_file(file));
        let victims = self.victims(wanted, limits.bytes).unwrap_or_default();
        evicted.extend(victims.into_iter().filter_map(|(ino, au)| self.remove(ino, au)));
        let new = || CachedFile { slots: new(), class: wanted.class, entries: BTreeMap::new(), used: 0 };
        let slots = self.files.entry(ino).or_insert_with(new).slots.clone();
        self.reserved_bytes += wanted.bytes;
        Some((slots, evicted))
    }

    /// Returns whether a unit of a file would find a place.
    pub fn has_space(&self, ino: u64, wanted: &Wanted, limits: Limits) -> bool {
        self.file_victim(ino, wanted, limits.files).is_some() && self.victims(wanted, limits.bytes).is_some()
    }

    /// Returns the file that leaves if one without slots comes, the least recently used; `Some(None)` if none has to, None if none
    /// can. The rules for units hold: none that is used more often, and none with KEEP for another.
    fn file_victim(&self, ino: u64, wanted: &Wanted, files_max: usize) -> Option<Option<u64>> {
        if self.leaving.contains_key(&ino) {
            return None;
        }
        if self.files.contains_key(&ino) || self.files.len() < files_max.max(1) {
            return Some(None);
        }
        let is_older = |file: &CachedFile| wanted.previous_use.is_some_and(|previous| file.used < previous);
        let may_leave = |file: &CachedFile| match (wanted.class, file.class) {
            _ if file.entries.is_empty() => true,
            (Class::Keep, Class::Other) => true,
            (wanted, of_file) => wanted == of_file && is_older(file),
        };
        let candidates = self.files.iter().filter(|(_, file)| may_leave(file));
        let oldest = candidates.min_by_key(|(_, file)| (!file.entries.is_empty(), file.class as u8, file.used));
        oldest.map(|(ino, _)| Some(*ino))
    }

    /// Returns the units that a new one would replace; None if the new one has no place.
    fn victims(&self, wanted: &Wanted, capacity_bytes: u64) -> Option<Vec<(u64, AuIndex)>> {
        let Wanted { bytes, class, previous_use } = *wanted;
        let keep_max = capacity_bytes.saturating_mul(KEEP_PERCENT) / 100;
        let keeps = class == Class::Keep && self.bytes_in(Class::Keep) + bytes <= keep_max;
        let from = if keeps { Class::Other } else { class };
        let total = self.bytes() + self.reserved_bytes + bytes;
        let mut excess = total.saturating_sub(capacity_bytes);
        if class == Class::Keep && !keeps {
            excess = excess.max((self.bytes_in(Class::Keep) + bytes).saturating_sub(keep_max));
        }
        let mut victims = Vec::new();
        let mut candidates = self.order[from as usize].iter();
        while excess > 0 {
            let (used, ino, au) = *candidates.next()?;
            if !keeps && previous_use.is_none_or(|previous| used >= previous) {
                return None;
            }
            excess = excess.saturating_sub(self.entry(ino, au).map_or(0, |entry| entry.bytes));
            victims.push((ino, au));
        }
        Some(victims)
    }
}
