//! What the cell disks say about the flash log: which one may have redo that they lack, and which of its records are retired.

use super::format::{CellNote, Mark};
use crate::disk::{Disk, on_each};
use crate::error::{Context, Error, ErrorKind, Result};
use crate::flash::CellDisks;
use std::io;
use std::sync::Arc;

/// Name of the note on cell disks.
const NOTE: &str = "flash_log_state";
/// Name of the file with the mark.
const MARK: &str = "flash_log_retired";

fn could_not(verb: &str, disk: &dyn Disk) -> String {
    format!("could not {verb} the note about the flash log on cell disk {}", disk.path().display())
}

/// Returns the newest note of the accessible cell disks, and the error of one that cannot be read.
pub fn newest(disks: &dyn CellDisks) -> (Option<CellNote>, Option<Error>) {
    let (mut newest, mut problem): (Option<CellNote>, _) = (None, None);
    for (number, disk) in disks.accessible() {
        let bytes = match disk.read_note(NOTE) {
            Ok(bytes) => bytes,
            Err(error) => {
                let failed = disks.fail(number, &error).context(|| could_not("read", disk.as_ref()));
                problem = failed.err().or(problem);
                continue;
            }
        };
        let Some(bytes) = bytes.filter(|bytes| !bytes.is_empty()) else { continue };
        match CellNote::decode(&bytes) {
            Ok(note) => newest = newest.filter(|found| found.number >= note.number).or(Some(note)),
            Err(error) => {
                let message = format!("{}: {error}", could_not("read", disk.as_ref()));
                problem = Some(Error::new(ErrorKind::Corrupt, message));
            }
        }
    }
    (newest, problem)
}

/// Returns up to which sequence the cell disks say that records of the note's generation are retired; None if none says that.
pub fn retired(disks: &dyn CellDisks, note: &CellNote) -> Option<u64> {
    let mark_of = |disk: &dyn Disk| -> io::Result<Option<Mark>> {
        let Some(file) = disk.open_existing(MARK)? else { return Ok(None) };
        let mut bytes = [0; Mark::BYTES];
        let count = file.read_at(&mut bytes, 0)?;
        Ok(Mark::decode(&bytes[..count]).ok())
    };
    let marks = disks.accessible().into_iter().filter_map(|(_, disk)| mark_of(disk.as_ref()).ok().flatten());
    marks.filter(|mark| mark.generation == note.generation).map(|mark| mark.retired).max()
}

/// Makes a disk that joins the group, or returns, say what the others say. Durable on return.
pub fn give(disk: &dyn Disk, note: &CellNote, mark: &Mark) -> Result<()> {
    let given = write_mark(disk, &mark.encode()).and_then(|()| disk.write_note(NOTE, &note.encode()));
    given.context(|| could_not("write", disk))
}

/// Makes a disk that joins the group, or returns, name no log. A disk without a note does not change.
pub fn clear(disk: &dyn Disk) -> Result<()> {
    let cleared = disk.read_note(NOTE).and_then(|note| match note.is_none_or(|note| note.is_empty()) {
        true => Ok(()),
        false => disk.write_note(NOTE, &[]),
    });
    cleared.context(|| could_not("remove", disk))
}

/// Writes the note. Durable on return.
pub fn write(disks: &dyn CellDisks, note: &CellNote) -> Result<()> {
    let bytes = note.encode();
    change_each(disks, |disk| disk.write_note(NOTE, &bytes))
}

/// Records up to which sequence records are retired. Durable on return.
pub fn mark(disks: &dyn CellDisks, mark: &Mark) -> Result<()> {
    let bytes = mark.encode();
    change_each(disks, |disk| write_mark(disk, &bytes))
}

fn write_mark(disk: &dyn Disk, bytes: &[u8]) -> io::Result<()> {
    let file = match disk.open_existing(MARK)? {
        Some(file) => file,
        None => disk.open_named(MARK)?,
    };
    file.write_at(bytes, 0)?;
    file.sync()
}

/// Changes all accessible disks at once. A disk that fails leaves the group: when it returns, the others have newer notes.
fn change_each(disks: &dyn CellDisks, change: impl Fn(&dyn Disk) -> io::Result<()> + Sync) -> Result<()> {
    let accessible = disks.accessible();
    let results = on_each(&accessible, |(_, disk): &(usize, Arc<dyn Disk>)| change(disk.as_ref()));
    let mut changed = 0;
    for ((number, disk), result) in accessible.iter().zip(results) {
        match result {
            Ok(()) => changed += 1,
            Err(_) if !disk.is_accessible() => {}
            Err(error) => disks.fail(*number, &error).context(|| could_not("write", disk.as_ref()))?,
        }
    }
    match changed {
        0 => Err(Error::new(ErrorKind::Io, "no cell disk is accessible for the note about the flash log")),
        _ => Ok(()),
    }
}
