//! The notes on the cell disks that say which log has changes that they lack.
//!
//! Invariant: while a log has pages that count, each accessible cell disk names its generation, and the flash disks that have
//! all of its durable records.

use super::format::Note;
use crate::disk::Disk;
use crate::error::{Context, Error, ErrorKind, Result};
use crate::flash::CellDisks;

const NAME: &str = "write_back";
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
            // While a flash disk was left out, a crash may have come between the notes: the smaller set was not relied on by
            // all, but its disks have everything.
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
    let mut written = 0;
    for (number, disk) in disks.accessible() {
        match write_to(disk.as_ref(), note) {
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

fn write_to(disk: &dyn Disk, note: Option<&Note>) -> std::io::Result<()> {
    let bytes = note.map(Note::encode).unwrap_or_default();
    match disk.read_note(NAME)? {
        None if bytes.is_empty() => Ok(()),
        Some(found) if found == bytes => Ok(()),
        _ => disk.write_note(NAME, &bytes),
    }
}

/// Makes a disk that joins the group, or returns, say the same as the others.
pub fn give_to(disk: &dyn Disk, note: Option<&Note>) -> Result<()> {
    write_to(disk, note).context(|| could_not("write", disk))
}
