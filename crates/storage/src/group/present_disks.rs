//! The disks of a group that can be used now, also for code that does not own the group.

use super::mirror::Mirror;
use crate::disk::Disk;
use crate::flash::CellDisks;
use crate::growing::Growing;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug)]
pub(super) struct PresentDisks {
    /// In the order of disk numbers, also dropped ones.
    pub all: Growing<Arc<dyn Disk>>,
    /// Disks that were dropped: bit n of disk n.
    pub dropped: AtomicU64,
    pub mirror: Option<Arc<Mirror>>,
}

impl CellDisks for PresentDisks {
    fn accessible(&self) -> Vec<(usize, Arc<dyn Disk>)> {
        let dropped = self.dropped.load(Ordering::Acquire);
        let disks = self.all.all().iter().cloned().enumerate();
        disks.filter(|(number, disk)| dropped >> number & 1 == 0 && disk.is_accessible()).collect()
    }

    fn fail(&self, number: usize, error: &io::Error) -> io::Result<()> {
        match &self.mirror {
            Some(mirror) => mirror.fail_disk(number, error),
            None => Err(io::Error::new(error.kind(), error.to_string())),
        }
    }
}
