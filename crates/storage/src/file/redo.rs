//! A file whose syncs use the flash log.

use super::{FileData, WriteGuard};
use crate::error::Result;
use crate::flash_log::{Capture, RedoFile};
use parking_lot::Mutex;

impl FileData {
    /// Returns whether syncs of the file use the flash log.
    pub fn is_redo(&self) -> bool {
        matches!(self.redo.get(), Some(Some(_)))
    }

    /// Lets the next sync wait for the cell disks.
    pub fn require_disks(&self) {
        if let Some(Some(capture)) = self.redo.get() {
            capture.lock().require_disks();
        }
    }

    /// Lets all syncs wait for the cell disks, from now on. Returns whether earlier ones may have used the flash log.
    pub fn end_capture(&self) -> bool {
        match self.redo.get_or_init(|| None) {
            Some(capture) => capture.lock().end(),
            None => return false,
        }
        true
    }

    /// Captures writes from now on, for the flash log. Returns false if syncs must not use it any more.
    pub fn begin_capture(&self) -> bool {
        self.redo.get_or_init(|| Some(Mutex::new(Capture::begun()))).is_some()
    }
}

impl WriteGuard<'_> {
    /// Captures a write that the backing files have, for the flash log.
    pub fn capture_write(&self, offset: u64, data: &[u8]) {
        if let Some(Some(capture)) = self.redo.get() {
            capture.lock().add(offset, data);
        }
    }
}

impl RedoFile for FileData {
    fn ino(&self) -> u64 {
        self.ino
    }

    fn capture(&self) -> &Mutex<Capture> {
        self.redo.get().and_then(Option::as_ref).expect("syncs of the file use the log")
    }

    fn sync_to_disks(&self) -> Result<()> {
        self.lock_sync().sync_backing()
    }
}
