//! A file whose syncs use the flash log.

use super::{FileData, WriteGuard};
use crate::error::Result;
use crate::flash_log::{Capture, RedoFile};
use parking_lot::Mutex;

impl FileData {
    /// Returns whether syncs of the file use the flash log.
    pub fn is_redo(&self) -> bool {
        self.redo.get().is_some()
    }

    /// Lets the next sync wait for the cell disks.
    pub fn require_disks(&self) {
        if let Some(capture) = self.redo.get() {
            capture.lock().require_disks();
        }
    }

    /// Lets all syncs wait for the cell disks, from now on. Returns whether earlier ones may have used the flash log.
    pub fn end_capture(&self) -> bool {
        let was_redo = self.is_redo();
        self.capture().lock().end();
        was_redo
    }
}

impl WriteGuard<'_> {
    /// Captures a write that the backing files have, for the flash log.
    pub fn capture_write(&self, offset: u64, data: &[u8]) {
        if let Some(capture) = self.redo.get() {
            capture.lock().add(offset, data);
        }
    }
}

impl RedoFile for FileData {
    fn ino(&self) -> u64 {
        self.ino
    }

    fn capture(&self) -> &Mutex<Capture> {
        self.redo.get_or_init(|| Mutex::new(Capture::begun()))
    }

    fn sync_to_disks(&self) -> Result<()> {
        self.lock_sync().sync_backing()
    }
}
