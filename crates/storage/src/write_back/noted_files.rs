//! The files that may have changes which only flash has, durably on the cell disks: after the loss of all flash disks, a start
//! names them.
//!
//! Invariant: before a sync returns that covers a dirty page, the page's file is noted, and remains so until no page of the file is
//! dirty at the end of a destage. For files of which only redo made pages dirty, one note says so of all WAL files, from before the
//! first record until the log ends: a commit in a new WAL file waits for no cell disk.

use super::WriteBack;
use super::log::Log;
use super::notes;
use super::object::DirtyObject;
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl WriteBack {
    /// Notes a file that has dirty pages. If that fails, for example because the cell disks are full, the pages are clean
    /// afterwards.
    pub(super) fn note_file(&self, log: &Log, object: &Arc<DirtyObject>) -> io::Result<()> {
        if object.is_noted.load(Ordering::Acquire) || !object.needs_note.load(Ordering::Acquire) || !object.is_dirty() {
            return Ok(());
        }
        let Err(error) = self.note_dirty_files(log) else { return Ok(()) };
        ::log::warn!("{error}; the pages of inode {} are written to the cell disks instead", object.object.ino);
        self.with_space(|| {
            let _cleaning = object.cleaning.lock();
            self.clean(object, 0..u32::MAX)
        })
    }

    /// Notes all files that have dirty pages.
    pub(super) fn note_dirty_files(&self, log: &Log) -> io::Result<()> {
        let mut noted = self.noted_files.lock();
        // The next log may have begun.
        if log.is_ended() {
            return Ok(());
        }
        let mut dirty = self.objects();
        dirty.retain(|object| object.needs_note.load(Ordering::Acquire) && object.is_dirty());
        let mut files = noted.clone();
        files.extend(dirty.iter().map(|object| object.object.ino));
        if files != *noted {
            self.write_files(log, &files)?;
            *noted = files;
        }
        dirty.iter().for_each(|object| object.is_noted.store(true, Ordering::Release));
        Ok(())
    }

    /// Writes a note without the files that have no dirty page any more. If the cell disks refuse the note, the error is logged, and
    /// their note still names these files.
    pub(super) fn forget_files(&self, log: &Log) {
        let mut noted = self.noted_files.lock();
        let mut files = BTreeSet::new();
        for object in self.objects() {
            // The flag is cleared before the check of the pages: a sync that reads the flag afterwards writes a note itself, so no page
            // that becomes dirty after the check is covered by a sync without a note.
            if object.is_noted.swap(false, Ordering::AcqRel) && object.is_dirty() {
                object.is_noted.store(true, Ordering::Release);
                files.insert(object.object.ino);
            }
        }
        if files != *noted {
            match self.write_files(log, &files) {
                Ok(()) => *noted = files,
                Err(error) => ::log::warn!("{error}; the former files remain there"),
            }
        }
    }

    fn write_files(&self, log: &Log, files: &BTreeSet<u64>) -> io::Result<()> {
        let note = log.files_note(files);
        notes::write_files(log.cell_disks(), &note).map_err(|error| io::Error::other(error.to_string()))
    }
}
