//! Files whose backing files the kernel reads and writes itself, without requests to the cell (FUSE passthrough).
//!
//! Invariants:
//! - Only files with one backing file in a directory, without copies, flash cache and compression units, are passed through.
//! - A rebalance moves nothing while a file is passed through, and no passthrough begins while a rebalance runs or is
//!   tried again.

use super::{Ino, Volume};
use crate::error::{Error, ErrorKind, Result};
use crate::meta::Kind;
use cellar_format::units::RegionIndex;
use cellar_format::wire::FileType;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::fs::File;

/// Ends the passthrough of all files that no process has open.
type EndUnused = Box<dyn Fn() + Send + Sync>;

#[derive(Default)]
pub(super) struct Passthrough {
    files: Mutex<Files>,
    end_unused: Mutex<Option<EndUnused>>,
}

#[derive(Default)]
struct Files {
    open: HashSet<Ino>,
    /// A rebalance moves files, or waits for the end of the passthrough of all files.
    is_forbidden: bool,
}

impl std::fmt::Debug for Passthrough {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Passthrough({} files)", self.files.lock().open.len())
    }
}

impl Volume {
    /// Returns whether files of a type may be passed through.
    pub fn passes_through(&self, file_type: FileType) -> bool {
        let has_one_copy =
            self.group.mirror().is_none() && self.group.flash().is_none() && self.options.flash.is_none();
        self.options.wal_passthrough && file_type == FileType::Wal && has_one_copy
    }

    /// Returns whether the file with a path may be passed through.
    pub(super) fn passes_through_at(&self, path: impl FnOnce() -> Option<Vec<u8>>) -> bool {
        let file_type = |path: Vec<u8>| (self.options.file_type)(&String::from_utf8_lossy(&path));
        self.options.wal_passthrough && path().is_some_and(|path| self.passes_through(file_type(path)))
    }

    /// Sets what a rebalance calls before it moves files.
    pub fn set_end_unused_passthrough(&self, end_unused: impl Fn() + Send + Sync + 'static) {
        *self.passthrough.end_unused.lock() = Some(Box::new(end_unused));
    }

    /// Begins the passthrough of a file. Returns its backing file; None if the file cannot be passed through. The caller makes
    /// sure that no process has the file open, and that the path has a type that [`Self::passes_through`].
    pub fn begin_passthrough(&self, ino: Ino) -> Result<Option<File>> {
        let mut files = self.passthrough.files.lock();
        if files.is_forbidden || self.namespace.read().node(ino)?.inode.kind != Kind::File {
            return Ok(None);
        }
        let file = self.file(ino)?;
        let _write = file.lock_write();
        let begun = file.begin_passthrough()?;
        if begun.is_some() {
            files.open.insert(ino);
            file.versions.bump_from(0);
            self.cache.forget(&file.cached, RegionIndex(0)..RegionIndex::MAX);
        }
        Ok(begun)
    }

    /// Ends the passthrough of a file that no process has open.
    pub fn end_passthrough(&self, ino: Ino) -> Result<()> {
        let mut files = self.passthrough.files.lock();
        if !files.open.remove(&ino) {
            return Ok(());
        }
        // A file that was removed needs nothing more.
        let Ok(file) = self.file(ino) else { return Ok(()) };
        let _write = file.lock_write();
        let ended = file.end_passthrough();
        file.versions.bump_from(0);
        self.cache.forget(&file.cached, RegionIndex(0)..RegionIndex::MAX);
        self.touch_content(&file);
        ended
    }

    /// Returns an error if a file is passed through. Otherwise none is until [`Self::permit_passthrough`].
    pub(super) fn forbid_passthrough(&self) -> Result<()> {
        self.passthrough.files.lock().is_forbidden = true;
        if let Some(end_unused) = &*self.passthrough.end_unused.lock() {
            end_unused();
        }
        match self.passthrough.files.lock().open.len() {
            0 => Ok(()),
            count => {
                let message = format!(
                    "processes have {count} WAL files open that the kernel writes without the cell; restart the clusters on \
                     the cell"
                );
                Err(Error::new(ErrorKind::Io, message))
            }
        }
    }

    pub(super) fn permit_passthrough(&self) {
        self.passthrough.files.lock().is_forbidden = false;
    }
}
