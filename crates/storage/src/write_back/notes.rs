//! The notes on the cell disks that say which log has changes that they lack.
//!
//! Invariant: while a log has pages that count, each accessible cell disk names its generation, and the flash disks that have
//! all of its durable records.

use super::format::{FilesNote, Note};
use crate::disk::Disk;
use crate::error::{Context, Error, ErrorKind, Result};
use crate::flash::{CellDisks, Generation};
use std::collections::BTreeSet;

const NAME: &str = "write_back";
/// The files that may lack changes.
const FILES: &str = "write_back_files";
/// On flash disks.
pub const DISK_NOTE: &str = "write_back_disk";

/// What the cell disks say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Named {
    /// The cell disks have everything.
    Nothing,
    Log(Note),
    /// A note is damaged, or the notes name different logs.
    Unclear,
}

fn could_not(verb: &str, disk: &dyn Disk) -> String {
    format!("could not {verb} the note about the write-back log on cell disk {}", disk.path().display())
}

/// Reads the notes of the accessible disks. A crash while notes were written leaves some disks without one. A disk that cannot be
/// read leaves the group. If the group needs it, that is an error, or, with `is_forced`, an entry of the cell's log.
pub fn read(disks: &dyn CellDisks, is_forced: bool) -> Result<Named> {
    let mut named = Named::Nothing;
    for (number, disk) in disks.accessible() {
        let bytes = match disk.read_note(NAME) {
            Ok(bytes) => bytes.unwrap_or_default(),
            Err(_) if !disk.is_accessible() => continue,
            Err(error) => {
                match disks.fail(number, &error).context(|| could_not("read", disk.as_ref())) {
                    Err(error) if !is_forced => return Err(error),
                    Err(error) => log::error!("{error}; if the cell had a write-back log, changes may be missing"),
                    Ok(()) => {}
                }
                continue;
            }
        };
        if bytes.is_empty() {
            continue;
        }
        named = match (Note::decode(&bytes), named) {
            (Ok(note), Named::Nothing) => Named::Log(note),
            // The notes differ if a crash came while a failed flash disk was taken off them, one cell disk after the other. Only the
            // flash disks that all notes name are sure to have everything.
            (Ok(note), Named::Log(other)) if note.generation == other.generation => {
                Named::Log(Note { value: note.value & other.value, ..note })
            }
            _ => Named::Unclear,
        };
    }
    Ok(named)
}

/// Makes all accessible disks name a log, or none. Durable on return.
pub fn write(disks: &dyn CellDisks, note: Option<&Note>) -> Result<()> {
    write_to_each(disks, NAME, &note.map(Note::encode).unwrap_or_default())
}

/// Makes all accessible disks name the files that may lack changes. Durable on return.
pub fn write_files(disks: &dyn CellDisks, note: &FilesNote) -> Result<()> {
    write_to_each(disks, FILES, &note.encode())
}

fn write_to_each(disks: &dyn CellDisks, name: &str, bytes: &[u8]) -> Result<()> {
    let mut written = 0;
    for (number, disk) in disks.accessible() {
        match write_to(disk.as_ref(), name, bytes) {
            Ok(()) => written += 1,
            Err(_) if !disk.is_accessible() => {}
            Err(error) => disks.fail(number, &error).context(|| could_not("write", disk.as_ref()))?,
        }
    }
    match written {
        0 => Err(Error::new(ErrorKind::Io, "no cell disk is accessible for the note about the write-back log")),
        _ => Ok(()),
    }
}

fn write_to(disk: &dyn Disk, name: &str, bytes: &[u8]) -> std::io::Result<()> {
    match disk.read_note(name)? {
        None if bytes.is_empty() => Ok(()),
        Some(found) if found == bytes => Ok(()),
        _ => disk.write_note(name, bytes),
    }
}

/// Writes the note about the log to a cell disk that joins the group or returns, so that it names the same log as the other cell
/// disks.
pub fn give_to(disk: &dyn Disk, note: Option<&Note>) -> Result<()> {
    write_to(disk, NAME, &note.map(Note::encode).unwrap_or_default()).context(|| could_not("write", disk))
}

/// Writes the note about the files that may lack changes to a cell disk that joins the group or returns. The caller does this before
/// [`give_to`]: a disk that names the log must name the files, too.
pub fn give_files_to(disk: &dyn Disk, note: &FilesNote) -> Result<()> {
    write_to(disk, FILES, &note.encode()).context(|| could_not("write", disk))
}

/// The files that lack changes after a start without the log, or without a part of the log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LackingFiles {
    /// Each file that lacks synced changes, and possibly files whose changes the cell disks have, or that do not exist any more.
    pub inodes: BTreeSet<u64>,
    /// Redo went to the log: all WAL files may lack changes. [`crate::Volume`] adds them to the inodes.
    pub has_redo: bool,
    /// False if the cell disks do not say which files lack changes. There may be others then.
    pub is_complete: bool,
}

/// Reads which files may lack changes of the log of a generation, or of any log.
pub fn read_files(disks: &dyn CellDisks, generation: Option<Generation>) -> LackingFiles {
    let (mut lacking, mut has_damage, mut has_whole) = (LackingFiles::default(), generation.is_none(), false);
    for (_, disk) in disks.accessible() {
        let read = disk.read_note(FILES).map_err(|error| error.to_string());
        let note = read.and_then(|bytes| match bytes.filter(|bytes| !bytes.is_empty()) {
            Some(bytes) => FilesNote::decode(&bytes).map(Some).map_err(|error| error.to_string()),
            None => Ok(None),
        });
        match note {
            Ok(Some(note)) if generation.is_none_or(|generation| generation == note.generation) => {
                lacking.inodes.extend(note.inodes);
                lacking.has_redo |= note.has_redo;
                has_whole = generation.is_some();
            }
            // No sync relied on the log.
            Ok(_) => {}
            Err(error) => {
                log::error!("{}: {error}", could_not("read", disk.as_ref()));
                has_damage = true;
            }
        }
    }
    // Each disk has all files.
    lacking.is_complete = has_whole || !has_damage;
    lacking
}
