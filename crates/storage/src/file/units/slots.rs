//! Unit slots: the two places per allocation unit in the unit files of one file.
//!
//! The slots of allocation unit `a` start at `2a` and `2a + 1` times the allocation-unit size in the unit file of the
//! disk that stores `a`. A new unit is written to the slot that the current unit does not occupy, so the current unit
//! stays intact until the metadata name its successor.
//!
//! A slot is in use while a `StoredUnit` for it lives.

use crate::disk::{FileStore, Stream, on_each};
use crate::error::Result;
use crate::file::backing::Backing;
use crate::file::locks::ConversionGuard;
use crate::group::StripeLayout;
use crate::meta::SLOTS_PER_AU;
use cellar_format::units::AuIndex;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

#[derive(Debug)]
pub struct UnitSlots {
    pub ino: u64,
    pub layout: StripeLayout,
    /// One unit file per disk of the layout.
    pub unit_files: Box<[Backing]>,
    in_use: Mutex<HashSet<(AuIndex, u8)>>,
    failed_syncs: AtomicU64,
    is_abandoned: AtomicBool,
}

impl UnitSlots {
    pub fn new(ino: u64, layout: StripeLayout, unit_files: Box<[Backing]>) -> Arc<Self> {
        let (in_use, failed_syncs, is_abandoned) = Default::default();
        Arc::new(Self { ino, layout, unit_files, in_use, failed_syncs, is_abandoned })
    }

    /// Returns the slots of the columnar cache on flash disks, whose numbers are those of the layout.
    pub fn in_flash(ino: u64, layout: StripeLayout, disks: &[Arc<dyn FileStore>]) -> Arc<Self> {
        let unit_file = |disk: &u16| Backing::new(ino, Stream::Units, disks[*disk as usize].clone()).in_flash();
        let unit_files = layout.disks.iter().map(unit_file).collect();
        Self::new(ino, layout, unit_files)
    }

    /// Ends the punching of slots: the unit files are removed as a whole, or their disks are not used any more.
    pub fn abandon(&self) {
        self.is_abandoned.store(true, Ordering::Release);
    }

    /// Removes the unit files from the disks.
    pub fn remove(&self) -> Result<()> {
        self.unit_files.iter().try_for_each(Backing::remove)
    }

    /// Returns the unit file with the slots of an allocation unit.
    pub fn unit_file(&self, au: AuIndex) -> &Backing {
        &self.unit_files[self.layout.disk_index(self.layout.au_range(au).start)]
    }

    /// Returns the offset of a slot in the unit file.
    pub fn offset(&self, au: AuIndex, slot: u8) -> u64 {
        (au.index() * u64::from(SLOTS_PER_AU) + u64::from(slot)) * self.layout.au_size.bytes()
    }

    /// Makes the bytes of all units durable. The guard serialises syncs of the unit files.
    pub fn sync(&self, _: &ConversionGuard<'_>) -> Result<()> {
        let synced: Result<()> = on_each(&self.unit_files, Backing::sync).into_iter().collect();
        synced.inspect_err(|_| {
            self.failed_syncs.fetch_add(1, Ordering::AcqRel);
        })
    }

    /// Returns the number of failed syncs. The kernel reports a write-back error once: bytes that were written before a
    /// failed sync may be lost although a later sync succeeds.
    pub fn failed_syncs(&self) -> u64 {
        self.failed_syncs.load(Ordering::Acquire)
    }

    /// Takes a free slot of an allocation unit into use; None if both are in use.
    pub fn take_free(&self, au: AuIndex) -> Option<u8> {
        let mut in_use = self.in_use.lock();
        let slot = (0..SLOTS_PER_AU).find(|slot| !in_use.contains(&(au, *slot)))?;
        in_use.insert((au, slot));
        Some(slot)
    }

    /// Takes a slot into use that the metadata name.
    pub fn take(&self, au: AuIndex, slot: u8) {
        self.in_use.lock().insert((au, slot));
    }

    /// Ends the use of a slot; punches it first if `unused`, that is if no committed metadata name its unit.
    pub fn release(&self, au: AuIndex, slot: u8, unused: bool) {
        if unused
            && !self.is_abandoned.load(Ordering::Acquire)
            && let Err(error) = self.unit_file(au).discard(self.offset(au, slot), self.layout.au_size.bytes())
        {
            log::warn!("{error}; the next restart frees the space");
        }
        self.in_use.lock().remove(&(au, slot));
    }

    /// Punches all slots that are not in use if the unit files occupy more than `claimed` bytes, the size of all units:
    /// the surplus was left by a crash.
    pub fn punch_leftovers(&self, claimed: u64) -> Result<()> {
        let mut allocated = 0;
        for unit_file in &self.unit_files {
            allocated += unit_file.measure()?.1;
        }
        if allocated <= claimed {
            return Ok(());
        }
        let in_use = self.in_use.lock();
        for (disk_index, unit_file) in self.unit_files.iter().enumerate() {
            let au_bytes = self.layout.au_size.bytes();
            for number in 0..unit_file.length()?.div_ceil(au_bytes) {
                let au = AuIndex(number / u64::from(SLOTS_PER_AU));
                let slot = (number % u64::from(SLOTS_PER_AU)) as u8;
                let is_here = self.layout.disk_index(self.layout.au_range(au).start) == disk_index;
                if is_here && !in_use.contains(&(au, slot)) {
                    unit_file.discard(self.offset(au, slot), au_bytes)?;
                }
            }
        }
        Ok(())
    }
}
