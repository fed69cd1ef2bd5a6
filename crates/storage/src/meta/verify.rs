//! Damaged metadata: reading the stores of all disks with their checksums, and rewriting damaged ones.

use super::batch::Contents;
use super::store::{FILE, Store, Stores, catching_panics};
use crate::disk::{Disk, OverlayDisk, on_each};
use crate::error::{Context, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The metadata of one disk, by the number of the disk, with their generation.
type DiskMetadata = (usize, Result<(Option<u64>, Contents)>);

/// The metadata of the accessible disks at one time, each over a disk that is not changed.
pub struct Snapshot(Vec<(usize, Result<Arc<dyn Disk>>)>);

impl Snapshot {
    /// Reads the metadata with all checksums.
    pub fn verify(&self, stripe_count: usize) -> Vec<DiskMetadata> {
        // The database counts as not closed, so opening it checks everything; the overlay keeps the repair in memory.
        let read = |(number, disk): &(usize, Result<Arc<dyn Disk>>)| {
            let disk = disk.clone()?;
            catching_panics(&disk, || {
                let mut copy = Store::open(disk.clone(), *number)?;
                Ok((copy.generation()?, copy.load(stripe_count)?))
            })
        };
        self.0.iter().map(|(number, _)| *number).zip(on_each(&self.0, read)).collect()
    }
}

impl Stores {
    /// Copies the metadata of each accessible disk to memory, so that transactions can run during the verification. None
    /// if that needs more than `bytes_max`.
    pub fn snapshot(&self, bytes_max: u64) -> Option<Snapshot> {
        let overlays = self.overlays();
        let length = |(_, disk): &(usize, Arc<OverlayDisk>)| disk.named_length(FILE).unwrap_or(0);
        if overlays.iter().map(length).sum::<u64>() > bytes_max {
            return None;
        }
        let load = |(number, disk): &(usize, Arc<OverlayDisk>)| {
            let path = disk.path().display();
            let loaded = disk.load(FILE).context(|| format!("could not read the metadata of cell disk {path}"));
            (*number, loaded.map(|()| disk.clone() as Arc<dyn Disk>))
        };
        Some(Snapshot(on_each(&overlays, load)))
    }

    /// Reads the metadata of each accessible disk again, with all checksums. No transaction runs meanwhile.
    pub fn verify(&self, stripe_count: usize) -> Vec<DiskMetadata> {
        let overlays = self.overlays().into_iter().map(|(number, disk)| (number, Ok(disk as Arc<dyn Disk>)));
        Snapshot(overlays.collect()).verify(stripe_count)
    }

    fn overlays(&self) -> Vec<(usize, Arc<OverlayDisk>)> {
        let accessible = self.stores.iter().filter(|store| store.disk.is_accessible());
        accessible.map(|store| (store.number, Arc::new(OverlayDisk::over(store.disk.clone())))).collect()
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
