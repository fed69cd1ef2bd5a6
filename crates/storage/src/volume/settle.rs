//! Syncing files that have compression units, and what waits for a transaction.
//!
//! Order of a sync: backing files, then the transaction that names the dead pages, then the log of pending pages is
//! emptied. Lock order: a file's `install`, its sync's, its `write`, then the stores, the namespace, the file's units.

use super::{Ino, Volume};
use crate::error::{Error, Result};
use crate::file::{FileData, Place, Settling, Units};
use crate::meta::Sequence;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What is done once a change is committed.
#[derive(Debug)]
pub(super) enum Chore {
    /// The raw bytes of the live pages of a new unit go.
    PunchRaw { file: Arc<FileData>, au: u64, stamp: u64 },
    /// A unit's bytes go, as soon as nobody reads them.
    Condemn(Arc<Place>),
}

impl Volume {
    /// Makes a file's data durable, and what `changed` says of its inode.
    pub(super) fn sync_file(&self, file: &Arc<FileData>, changed: Sequence) -> Result<()> {
        let Some(units) = file.units() else {
            // Never twice: after a failure the kernel calls the second sync of lost pages a success.
            file.sync()?;
            return self.commit(changed);
        };
        {
            let _sync = file.lock_sync();
            let settling = {
                let _write = file.write.lock();
                file.begin_settling(units)?
            };
            if let Err(error) = self.settle(file, units, &settling, changed) {
                let _write = file.write.lock();
                write_again(file, units);
                return Err(error);
            }
            file.owed().map_or(Ok(()), Err)?;
        }
        self.do_chores();
        Ok(())
    }

    /// Makes the backing files durable and then commits which pages lie there. The caller holds the sync's lock.
    pub(super) fn settle(&self, file: &FileData, units: &Units, settling: &Settling, changed: Sequence) -> Result<()> {
        file.sync_pages(units)?;
        // Units that were installed or cut before this are in the transaction too.
        let mut needed = self.namespace.read().node(file.ino).map_or(changed, |node| node.changed.max(changed));
        if !settling.is_empty() {
            units.settle(settling);
            needed = needed.max(self.namespace.write().mark_extents(file.ino, settling.aus()));
        }
        self.commit(needed)?;
        let unused = units.committed(settling);
        if !unused.is_empty() {
            self.drop_places(file.ino, unused);
        }
        units.log.lock().empty()
    }

    /// Notes units that went out of use: their records go with the next transaction, their bytes after it.
    pub(super) fn drop_places(&self, ino: Ino, unused: Vec<(u64, Arc<Place>)>) -> Sequence {
        let sequence = self.namespace.write().mark_extents(ino, unused.iter().map(|(au, _)| *au));
        let chores = unused.into_iter().map(|(_, place)| (sequence, Chore::Condemn(place)));
        self.chores.lock().extend(chores);
        sequence
    }

    /// Does what waited for a transaction that is now committed. The caller holds no file's `write`.
    pub(super) fn do_chores(&self) {
        let committed = self.committed.load(Ordering::Acquire);
        let due: Vec<_> = self.chores.lock().extract_if(.., |(sequence, _)| *sequence <= committed).collect();
        for (_, chore) in due {
            match chore {
                Chore::Condemn(place) => {
                    place.condemn();
                    self.cache.forget(&place.cached, 0, u32::MAX);
                }
                Chore::PunchRaw { file, au, stamp } => {
                    let _write = file.write.lock();
                    let extent = file.units().and_then(|units| units.extent(au)).filter(|extent| extent.stamp == stamp);
                    if let Some(Err(error)) = extent.map(|extent| file.punch_live(&extent)) {
                        log::warn!("{error}; its room is given back after a restart");
                    }
                }
            }
        }
    }

    /// Syncs a file for the storage's own sake: an error is that of the next sync that somebody asks for, too. The kernel
    /// tells it once.
    pub(super) fn sync_unasked(&self, file: &Arc<FileData>) -> Result<()> {
        self.sync_file(file, 0).inspect_err(|error| file.owe(error.clone()))
    }

    /// Syncs a file when its log has grown too long.
    pub(super) fn settle_when_full(&self, file: &Arc<FileData>) {
        if file.units().is_some_and(|units| units.log.lock().is_full())
            && let Err(error) = self.sync_unasked(file)
        {
            log::error!("{error}");
        }
    }
}

/// After a failed sync that nobody had asked for, as [`Volume::sync_unasked`]. The caller holds the file's `write`.
pub(super) fn fail_unasked(file: &FileData, units: &Units, error: &Error) {
    file.owe(error.clone());
    write_again(file, units);
}

/// After a failed sync, at once, so that nobody reads what the kernel made of the pages. The caller holds the file's
/// `write`.
fn write_again(file: &FileData, units: &Units) {
    if let Err(error) = file.resend(units) {
        log::warn!("{error}; trying again with the next sync");
    }
}
