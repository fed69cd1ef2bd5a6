//! Redo in the flash log: which files use it, and what a start does with the redo that is in flash.

use super::{Ino, SpacePriority, Volume};
use crate::disk::Disk;
use crate::error::{Context, Result};
use crate::file::FileData;
use crate::flash_log::{FlashLog, FlashLogStats, Lost, NotesGuard, Opening};
use crate::meta::CommitSequence;
use crate::write_back::{self, LackingFiles, WriteBack};
use cellar_format::wire::FileType;
use std::collections::BTreeSet;
use std::sync::Arc;

type WriteBackNotes<'a> = (Option<write_back::NotesGuard<'a>>, parking_lot::MutexGuard<'a, ()>);

/// Number of files that a message names.
const NAMED_MAX: usize = 8;

impl Volume {
    /// Returns the counters of the flash log; None if none is configured. One that cannot be used is off.
    pub fn flash_log_stats(&self) -> Option<FlashLogStats> {
        let options = self.options.flash_log.as_ref().filter(|options| options.size > 0)?;
        let off = FlashLogStats { size_bytes: options.size, ..FlashLogStats::default() };
        Some(self.flash_log.get().map_or(off, |log| log.stats()))
    }

    /// Returns the log if syncs of a file use it. The first sync of a WAL file begins that.
    pub(super) fn flash_log_for(&self, file: &Arc<FileData>) -> Option<&Arc<FlashLog>> {
        let log = self.flash_log.get().filter(|log| log.is_needed())?;
        let uses_log = file.is_redo() || self.type_of(file.ino) == Some(FileType::Wal) && file.begin_capture();
        uses_log.then_some(log)
    }

    fn type_of(&self, ino: Ino) -> Option<FileType> {
        let path = self.namespace.read().path_of(ino)?;
        Some((self.options.file_type)(&String::from_utf8_lossy(&path)))
    }

    pub(super) fn captures_redo(&self) -> bool {
        self.flash_log.get().is_some_and(|log| log.is_on())
    }

    pub(super) fn sync_redo(&self, log: &Arc<FlashLog>, file: &Arc<FileData>, changed: CommitSequence) -> Result<()> {
        // A change of the metadata waits for the cell disks in any case, and a record must not name a file that a start may
        // not find.
        log.sync(file, self.committed() < changed)?;
        file.take_deferred_error()?;
        self.commit(changed)
    }

    /// Lets the cell disks have everything of a file, before other code than its syncs stores its bytes.
    pub(super) fn end_redo(&self, file: &Arc<FileData>) -> Result<()> {
        match self.flash_log.get() {
            Some(log) if file.units().is_none() && file.end_capture() => log.sync(file, true),
            _ => Ok(()),
        }
    }

    /// Makes a disk that joins the group, or returns, say about the flash log what the others say. The caller keeps the result
    /// until the disk is accessible.
    pub(super) fn give_flash_log_notes_to(&self, disk: &dyn Disk) -> Result<Option<NotesGuard<'_>>> {
        let Some(log) = self.flash_log.get() else { return FlashLog::clear_notes_of(disk).map(|()| None) };
        log.give_notes_to(disk).map(Some)
    }

    /// As [`Self::give_flash_log_notes_to`], for the write-back log, which neither begins nor ends while the caller keeps the
    /// result.
    pub(super) fn give_write_back_notes_to(&self, disk: &dyn Disk) -> Result<WriteBackNotes<'_>> {
        let changing = self.flash_cache_mode.changing.lock();
        let notes = match self.group.write_back() {
            Some(write_back) => write_back.give_notes_to(disk)?,
            None => WriteBack::clear_notes_of(disk).map(|()| None)?,
        };
        Ok((notes, changing))
    }

    /// Logs which files may lack changes of the write-back log, and keeps that for clients. Files that do not exist any more are left
    /// out.
    pub(super) fn tell_lacking(&self, lacking: &LackingFiles) {
        let is_file = |ino: &Ino| self.file(*ino).is_ok();
        let mut lacking = LackingFiles { inodes: lacking.inodes.iter().copied().filter(is_file).collect(), ..*lacking };
        if lacking.has_redo {
            log::error!("redo that was synced may be missing; the files below include all WAL files");
            lacking.inodes.extend(self.wal_files().iter().map(|file| file.ino));
        }
        let inodes: Vec<Ino> = lacking.inodes.iter().copied().collect();
        for some in inodes.chunks(NAMED_MAX) {
            let files = self.named(&some.iter().copied().collect());
            log::error!("changes that were synced may be missing in {files}");
        }
        match lacking.is_complete {
            true => log::error!("{} files may lack changes of the write-back log", inodes.len()),
            false => log::error!(
                "the cell disks do not say which files lack changes of the write-back log: any file that was written since the last \
                 clean stop may lack changes"
            ),
        }
        self.lacking_files.set(lacking).expect("a volume is opened once");
    }

    /// Lets the cell disks have everything, before a clean stop.
    pub(super) fn close_flash_log(&self) -> Result<()> {
        self.flash_log.get().map_or(Ok(()), |log| log.close())
    }

    /// Writes the redo that an earlier start left in flash to its files, durably, and begins a log.
    pub(super) fn start_flash_log(&self, opening: Opening) -> Result<()> {
        if let Some(lost) = &opening.lost {
            self.tell_lost(lost);
        }
        let (mut files, mut applied) = (BTreeSet::new(), (0, 0));
        for record in &opening.records {
            // The file may have been removed since.
            let Ok(file) = self.file(record.ino) else { continue };
            let describe = || format!("could not write redo of the flash log to inode {}", file.ino);
            let write = |offset, data: &[u8]| self.write_with(file.ino, offset, data, SpacePriority::Highest).map(drop);
            record.writes.for_each(write).context(describe)?;
            applied = (applied.0 + 1, applied.1 + record.writes.data.len() as u64);
            files.insert(file.ino);
        }
        for ino in &files {
            self.fsync(*ino)?;
        }
        if applied.0 > 0 {
            let (records, bytes) = applied;
            log::info!("wrote {records} records of the flash log, {bytes} bytes, to {}", self.named(&files));
        }
        if opening.may_be_old && applied.0 > 0 {
            log::error!(
                "the cell disks did not say which redo is retired: {} may have older redo in place of newer",
                self.named(&files)
            );
        }
        let log = opening.start(self.options.flash_log.clone(), &self.group.cell_disks(), applied)?;
        if let Some(log) = log {
            self.flash_log.set(log).expect("a volume is opened once");
        }
        Ok(())
    }

    fn named(&self, files: &BTreeSet<Ino>) -> String {
        let name = |ino: &Ino| self.path_of(*ino).unwrap_or_else(|| format!("removed inode {ino}"));
        let names: Vec<String> = files.iter().take(NAMED_MAX).map(name).collect();
        match files.len() - names.len() {
            0 => names.join(", "),
            others => format!("{} and {others} other files", names.join(", ")),
        }
    }

    fn wal_files(&self) -> Vec<Arc<FileData>> {
        let mut wal: Vec<Arc<FileData>> = self.regular_files();
        wal.retain(|file| self.type_of(file.ino) == Some(FileType::Wal));
        wal
    }

    /// Logs which files may lack redo that was acknowledged.
    fn tell_lost(&self, lost: &Lost) {
        match lost {
            Lost::Unknown => {
                let mut wal = self.wal_files();
                wal.sort_by_key(|file| std::cmp::Reverse(file.mtime.load(std::sync::atomic::Ordering::Relaxed)));
                let newest = wal.iter().take(NAMED_MAX).map(|file| file.ino).collect();
                log::error!(
                    "redo that was acknowledged may be missing at the end of WAL; the WAL files that were written last are {}",
                    self.named(&newest)
                );
            }
            Lost::Records(records) => {
                for record in records {
                    let Some((ino, pieces)) = record else {
                        log::error!("a record of the flash log is lost, of which the file is not known");
                        continue;
                    };
                    let ranges: Vec<String> =
                        pieces.iter().map(|piece| format!("{} to {}", piece.start, piece.end)).collect();
                    log::error!("{} lacks redo: bytes {}", self.named(&BTreeSet::from([*ino])), ranges.join(", "));
                }
            }
        }
    }
}
