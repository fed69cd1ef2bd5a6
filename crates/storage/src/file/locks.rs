//! The locks of one file, as guards: a method that needs a lock exists only on its guard or takes the guard.
//!
//! Lock order of the crate. A thread that holds a lock of this list acquires only locks further down:
//!
//! 1. conversion lock of a file ([`ConversionGuard`])
//! 2. sync lock of a file ([`SyncGuard`])
//! 3. write lock of a file ([`WriteGuard`])
//! 4. metadata stores (`Volume::stores`), or the removal of backing files (`Volume::removing`)
//! 5. namespace (`Volume::namespace`)
//! 6. a slot of the page cache, then the slot map of a cached file
//! 7. a file's redo log
//! 8. a file's unit table, write in flight, then versions
//! 9. queues of the volume (`removed_files`, `post_commit_actions`, `times_dirty`) and handles of backing files
//!
//! Debug builds check 1 to 3: acquiring one of them while holding it or a later one, of any file, panics.

use super::FileData;
use crate::request::Expedited;
use parking_lot::{Mutex, MutexGuard};
use std::cell::Cell;
use std::ops::Deref;
use std::sync::atomic::Ordering;

#[derive(Debug, Default)]
pub(super) struct Locks {
    conversion: Mutex<()>,
    sync: Mutex<()>,
    write: Mutex<()>,
}

#[derive(Debug, Clone, Copy)]
enum Rank {
    Conversion,
    Sync,
    Write,
}

thread_local! {
    /// One bit per [`Rank`] that the thread holds; maintained in debug builds only.
    static HELD: Cell<u8> = const { Cell::new(0) };
}

/// A held lock that takes part in the check of the lock order.
#[derive(Debug)]
struct Ranked<'a> {
    rank: Rank,
    _lock: MutexGuard<'a, ()>,
}

impl<'a> Ranked<'a> {
    fn lock(mutex: &'a Mutex<()>, rank: Rank) -> Self {
        if cfg!(debug_assertions) {
            let held = HELD.get();
            assert!(held >> rank as u8 == 0, "{rank:?} lock requested out of order, held: {held:03b}");
        }
        Self::held(mutex.lock(), rank)
    }

    fn held(lock: MutexGuard<'a, ()>, rank: Rank) -> Self {
        if cfg!(debug_assertions) {
            HELD.set(HELD.get() | 1 << rank as u8);
        }
        Self { rank, _lock: lock }
    }
}

impl Drop for Ranked<'_> {
    fn drop(&mut self) {
        if cfg!(debug_assertions) {
            HELD.set(HELD.get() & !(1 << self.rank as u8));
        }
    }
}

/// Serialises conversions of allocation units between raw pages and compression units.
#[derive(Debug)]
pub struct ConversionGuard<'a> {
    _lock: Ranked<'a>,
}

/// Serialises syncs of the file, so that every change of a page's durability has one author.
#[derive(Debug)]
pub struct SyncGuard<'a> {
    pub(super) file: &'a FileData,
    _lock: Ranked<'a>,
}

/// Serialises changes of the content. Dereferences to the file.
#[derive(Debug)]
pub struct WriteGuard<'a> {
    file: &'a FileData,
    _lock: Ranked<'a>,
    /// Writes of sessions wait for the lock.
    _expedited: Expedited,
}

impl Deref for WriteGuard<'_> {
    type Target = FileData;

    fn deref(&self) -> &FileData {
        self.file
    }
}

impl FileData {
    pub fn lock_conversion(&self) -> ConversionGuard<'_> {
        ConversionGuard { _lock: Ranked::lock(&self.locks.conversion, Rank::Conversion) }
    }

    pub fn lock_sync(&self) -> SyncGuard<'_> {
        SyncGuard { file: self, _lock: Ranked::lock(&self.locks.sync, Rank::Sync) }
    }

    /// Completes the undoing of a failed write first.
    pub fn lock_write(&self) -> WriteGuard<'_> {
        let _lock = Ranked::lock(&self.locks.write, Rank::Write);
        let write = WriteGuard { file: self, _lock, _expedited: Expedited::begin() };
        write.undo_growth();
        write
    }

    /// Returns None if another thread holds the write lock, or a failed write is to be undone. Never waits, so the lock
    /// order does not matter.
    pub fn try_lock_write(&self) -> Option<WriteGuard<'_>> {
        let lock = self.locks.write.try_lock().filter(|_| !self.is_overlong.load(Ordering::Acquire))?;
        Some(WriteGuard { file: self, _lock: Ranked::held(lock, Rank::Write), _expedited: Expedited::begin() })
    }

    /// Acquires the locks for a truncate, punch or zero, which syncs the file if it has compression units. If there
    /// is no sync guard, the file has no unit, and no unit is published while the write guard lives.
    pub fn lock_sync_and_write(&self) -> (Option<SyncGuard<'_>>, WriteGuard<'_>) {
        loop {
            let sync = self.units().map(|_| self.lock_sync());
            let write = self.lock_write();
            if sync.is_some() || self.units().is_none() {
                return (sync, write);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{DirectoryDisk, Disk, FileStore};
    use crate::group::{AuSize, StripeLayout, StripeOrder};
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;

    #[test]
    #[cfg(debug_assertions)]
    fn acquiring_locks_out_of_order_panics() {
        let folder = tempfile::tempdir().unwrap();
        let disk: Arc<dyn Disk> = Arc::new(DirectoryDisk::new(folder.path().join("disk")).unwrap());
        let disk: Arc<dyn FileStore> = Arc::new(disk);
        let file = |ino| {
            let layout = StripeLayout { au_size: AuSize::DEFAULT, start: 0, disks: vec![0], order: StripeOrder::Equal };
            FileData::new(ino, layout, std::slice::from_ref(&disk), 0)
        };
        let (one, other) = (file(16), file(17));
        {
            let _in_order = (one.lock_conversion(), one.lock_sync(), one.lock_write());
        }
        let panics = |lock: &dyn Fn()| catch_unwind(AssertUnwindSafe(lock)).is_err();
        let write = one.lock_write();
        assert!(panics(&|| drop(one.lock_sync())), "sync after write");
        assert!(panics(&|| drop(other.lock_write())), "two write locks");
        drop(write);
        assert!(!panics(&|| drop(other.lock_write())), "no lock is held");
    }
}
