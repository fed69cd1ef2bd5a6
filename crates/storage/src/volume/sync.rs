//! Syncing files with compression units, and actions that wait for a metadata transaction.
//!
//! A sync of such a file is a checkpoint of its redo log: (1) sync the backing files, (2) commit the extent records
//! that name the pages superseded, (3) empty the redo log. `docs/format/disk.md` explains the order.

use super::{Ino, Volume};
use crate::error::{Error, Result};
use crate::file::{Checkpoint, FileData, LogSequence, StoredUnit, SyncGuard, Units, WriteGuard};
use crate::meta::CommitSequence;
use cellar_format::units::{AuIndex, RegionIndex};
use std::sync::Arc;

/// Work that may start only after the metadata transaction that it depends on is durable.
#[derive(Debug)]
pub(super) enum PostCommitAction {
    /// Punches the raw pages under the current pages of a published unit.
    PunchRaw { file: Arc<FileData>, au: AuIndex, log_sequence: LogSequence },
    /// Frees the slot of an unused unit when its last reader is gone.
    FreeSlot(Arc<StoredUnit>),
}

impl Volume {
    /// Makes a file's data durable, and the metadata up to `changed`.
    pub(super) fn sync_file(&self, file: &Arc<FileData>, changed: CommitSequence) -> Result<()> {
        let Some(units) = file.units() else {
            if let Some(log) = self.flash_log_for(file) {
                return self.sync_redo(log, file, changed);
            }
            // No retry after an error: the kernel would report a second sync of the lost pages as a success.
            file.sync()?;
            return self.commit(changed);
        };
        {
            let sync = file.lock_sync();
            self.checkpoint(&sync, file, units, changed)?;
            sync.take_deferred_error()?;
        }
        self.run_post_commit_actions();
        Ok(())
    }

    /// Runs a whole checkpoint of a file.
    fn checkpoint(&self, sync: &SyncGuard<'_>, file: &FileData, units: &Units, changed: CommitSequence) -> Result<()> {
        let checkpoint = sync.begin_checkpoint(units, &file.lock_write())?;
        if let Err(error) = self.finish_checkpoint(sync, units, &checkpoint, changed) {
            rewrite_or_warn(&file.lock_write(), units);
            return Err(error);
        }
        Ok(())
    }

    /// Completes a checkpoint: syncs the backing files, commits the metadata up to `changed` together with the
    /// checkpoint's pages, and empties the redo log.
    pub(super) fn finish_checkpoint(
        &self,
        sync: &SyncGuard<'_>,
        units: &Units,
        checkpoint: &Checkpoint,
        changed: CommitSequence,
    ) -> Result<()> {
        sync.sync_backing_of(units)?;
        let ino = sync.ino();
        // The transaction includes earlier changes of the inode: units published or truncated before this sync.
        let mut needed = self.namespace.read().node(ino).map_or(changed, |node| node.changed.max(changed));
        if !checkpoint.is_empty() {
            units.mark_durable(sync, checkpoint);
            needed = needed.max(self.namespace.write().mark_extents(ino, checkpoint.aus()));
        }
        self.commit(needed)?;
        let unused = units.mark_committed(sync, checkpoint);
        if !unused.is_empty() {
            self.drop_units(ino, unused);
        }
        units.empty_redo_log(sync)
    }

    /// Removes the records of unused units with the next transaction and frees their slots after it. Returns the commit
    /// sequence of the change.
    pub(super) fn drop_units(&self, ino: Ino, unused: Vec<Arc<StoredUnit>>) -> CommitSequence {
        let sequence = self.namespace.write().mark_extents(ino, unused.iter().map(|stored| stored.au));
        let actions = unused.into_iter().map(|stored| (sequence, PostCommitAction::FreeSlot(stored)));
        self.post_commit_actions.lock().extend(actions);
        sequence
    }

    /// Runs the post-commit actions whose transactions are durable. Acquires write locks of files, so the calling
    /// thread must not hold one.
    pub(super) fn run_post_commit_actions(&self) {
        let committed = self.committed();
        let due: Vec<_> =
            self.post_commit_actions.lock().extract_if(.., |(sequence, _)| *sequence <= committed).collect();
        for (_, action) in due {
            match action {
                PostCommitAction::FreeSlot(stored) => {
                    stored.mark_unused();
                    self.cache.forget(&stored.cached, RegionIndex(0)..RegionIndex::MAX);
                }
                PostCommitAction::PunchRaw { file, au, log_sequence } => {
                    let write = file.lock_write();
                    let extent = file.units().and_then(|units| units.extent(au));
                    let extent = extent.filter(|extent| extent.log_sequence == log_sequence);
                    if let Some(Err(error)) = extent.map(|extent| write.punch_current_pages(&extent)) {
                        log::warn!("{error}; the next restart frees the space");
                    }
                }
            }
        }
    }

    /// Internal sync. The kernel reports a write-back error once, so a failure is also returned by the next client
    /// fsync.
    pub(super) fn sync_internally(&self, file: &Arc<FileData>) -> Result<()> {
        let defer = |error: &Error| file.defer_sync_error(error.clone());
        let Some(units) = file.units() else {
            // The guard lives until the end of the statement, so the error is deferred under the lock here, too.
            return file.lock_sync().sync_backing().inspect_err(defer);
        };
        {
            let sync = file.lock_sync();
            // Deferred under the lock: a client's fsync that waits for the lock must find the error.
            self.checkpoint(&sync, file, units, CommitSequence(0)).inspect_err(defer)?;
        }
        self.run_post_commit_actions();
        Ok(())
    }

    /// Runs a checkpoint if the file's redo log is full. Waits for a checkpoint that another thread runs. Returns the
    /// error of a failed checkpoint: the caller must not write, because the log would grow without bound.
    pub(super) fn ensure_log_space(&self, file: &Arc<FileData>) -> Result<()> {
        let Some(units) = file.units().filter(|units| units.is_redo_log_full()) else { return Ok(()) };
        {
            let sync = file.lock_sync();
            // Another thread's checkpoint may have emptied a segment meanwhile.
            if !units.is_redo_log_full() {
                return Ok(());
            }
            let checkpointed = self.checkpoint(&sync, file, units, CommitSequence(0));
            checkpointed.inspect_err(|error| file.defer_sync_error(error.clone()))?;
        }
        self.run_post_commit_actions();
        Ok(())
    }

    /// Requests a checkpoint in the background if the file's redo log has become long.
    pub(super) fn request_checkpoint_if_due(&self, file: &Arc<FileData>) {
        if file.units().is_some_and(Units::take_checkpoint_request) {
            self.checkpoint_requests.push(file.clone());
        }
    }
}

/// Handles a failed internal sync under the write lock: defers the error to the next client sync, and writes the logged
/// pages again.
pub(super) fn fail_internal_sync(write: &WriteGuard<'_>, units: &Units, error: &Error) {
    write.defer_sync_error(error.clone());
    rewrite_or_warn(write, units);
}

/// Writes the pages of the redo log to the backing file again after a failed sync, because the kernel may have dropped
/// them. A failure is not an error: the next sync repeats the rewrite.
fn rewrite_or_warn(write: &WriteGuard<'_>, units: &Units) {
    if let Err(error) = write.rewrite_after_failed_sync(units) {
        log::warn!("{error}; the next sync tries again");
    }
}
