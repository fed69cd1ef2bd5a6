//! Making a file's backing files durable.

use super::backing::Backing;
use super::{Checkpoint, FileData, SyncGuard, Units, WriteGuard};
use crate::error::{Error, Result};

impl FileData {
    /// Makes durable every change that was acknowledged before the call. For files without compression units.
    pub fn sync(&self) -> Result<()> {
        let sync = self.lock_sync();
        sync.sync_backing()?;
        sync.take_deferred_error()
    }

    /// Lets the next sync reach all backing files, also those without changes.
    pub fn require_sync(&self) {
        let unit_files = self.units().into_iter().flat_map(|units| units.unit_files());
        self.backing.iter().chain(unit_files).for_each(Backing::require_sync);
        self.require_disks();
    }

    /// Returns the deferred error of an earlier internal sync and clears it.
    pub fn take_deferred_error(&self) -> Result<()> {
        self.deferred_sync_error.lock().take().map_or(Ok(()), Err)
    }

    /// Keeps the error of an internal sync for the next sync that a client requests. The kernel reports a write-back
    /// error once, so without this the client's sync would succeed although its pages are lost.
    pub fn defer_sync_error(&self, error: Error) {
        self.deferred_sync_error.lock().get_or_insert(error);
    }
}

impl SyncGuard<'_> {
    pub fn ino(&self) -> u64 {
        self.file.ino
    }

    /// Syncs the backing files.
    pub fn sync_backing(&self) -> Result<()> {
        self.file.backing.iter().try_for_each(|backing| backing.sync())?;
        self.file.sync_kernel_file()
    }

    /// Syncs the backing files of a file with compression units. After an error the kernel may have dropped pages, so
    /// the pages of the redo log must be written again before anything relies on them.
    pub fn sync_backing_of(&self, units: &Units) -> Result<()> {
        self.sync_backing().inspect_err(|_| units.note_failed_sync())
    }

    /// Begins a checkpoint of the redo log. Returns the superseded pages that the checkpoint must make durable and
    /// commit. Records appended after this call survive the checkpoint.
    pub fn begin_checkpoint(&self, units: &Units, write: &WriteGuard<'_>) -> Result<Checkpoint> {
        write.rewrite_after_failed_sync(units)?;
        units.switch_redo_log_segment(self);
        Ok(units.uncommitted_pages(write))
    }

    /// Returns the deferred error of an earlier internal sync and clears it.
    pub fn take_deferred_error(&self) -> Result<()> {
        self.file.take_deferred_error()
    }
}
