//! The parts of a file of a stripe that are open.

use crate::disk::DiskFile;
use parking_lot::Mutex;
use std::sync::Arc;

/// An opened part.
#[derive(Debug)]
pub struct Part {
    pub container: u16,
    pub file: Arc<dyn DiskFile>,
    /// The epoch of the placement when the part was opened.
    pub opened: u64,
    pub is_unsynced: bool,
    /// This file created the part, and its name is not durable.
    pub has_new_name: bool,
}

/// A part whose changes a sync makes durable.
pub struct Unsynced {
    pub container: u16,
    pub file: Arc<dyn DiskFile>,
    pub opened: u64,
    pub is_unsynced: bool,
    pub has_new_name: bool,
}

impl Unsynced {
    /// Takes the flags of a part.
    pub fn take(part: &mut Part) -> Self {
        Self {
            container: part.container,
            file: part.file.clone(),
            opened: part.opened,
            is_unsynced: std::mem::take(&mut part.is_unsynced),
            has_new_name: std::mem::take(&mut part.has_new_name),
        }
    }
}

/// The parts that a file has opened.
#[derive(Debug, Default)]
pub struct OpenedParts(pub Mutex<Vec<Part>>);

impl OpenedParts {
    /// Closes a part that was removed. One with changes that were not synced stays open until the next sync, which finds out
    /// whether the disk lost them before they were copied.
    pub fn close(&self, container: u16) {
        self.0.lock().retain(|part| part.container != container || part.is_unsynced);
    }
}
