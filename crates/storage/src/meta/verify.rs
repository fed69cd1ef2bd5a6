//! Damaged metadata: reading the stores of all disks with their checksums, and rewriting damaged ones.

use super::batch::Contents;
use super::store::{Store, Stores, catching_panics};
use crate::disk::{Disk, OverlayDisk, on_each};
use crate::error::Result;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The metadata of one disk, by the number of the disk, with their generation.
type DiskMetadata = (usize, Result<(Option<u64>, Contents)>);

impl Stores {
    /// Reads the metadata of each accessible disk again, with all checksums. No transaction runs meanwhile.
    pub fn verify(&self, stripe_count: usize) -> Vec<DiskMetadata> {
        let accessible: Vec<_> = self.stores.iter().filter(|store| store.disk.is_accessible()).collect();
        // The database counts as not closed, so opening it checks everything; the overlay keeps the repair in memory.
        let read = |store: &&Store| {
            catching_panics(&store.disk, || {
                let overlay: Arc<dyn Disk> = Arc::new(OverlayDisk::over(store.disk.clone()));
                let mut copy = Store::open(overlay, store.number)?;
                Ok((copy.generation()?, copy.load(stripe_count)?))
            })
        };
        accessible.iter().map(|store| store.number).zip(on_each(&accessible, read)).collect()
    }

    /// Rewrites the metadata of a disk from another disk's.
    pub fn replace(&mut self, number: usize, disk: &Arc<dyn Disk>, stripe_count: usize) -> Result<()> {
        if let Err(error) = self.add(number, disk, stripe_count) {
            // The disk has no metadata now: it must not stay a member.
            self.take_out(number, error.clone())?;
            return Err(error);
        }
        self.count_repair();
        Ok(())
    }

    pub(super) fn count_repair(&self) {
        if let Some(mirror) = &self.mirror {
            mirror.events.repairs.fetch_add(1, Ordering::Relaxed);
        }
    }
}
