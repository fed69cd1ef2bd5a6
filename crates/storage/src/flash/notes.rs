//! The notes on the disks of the group that say which flash cache has their pages.
//!
//! A flash cache counts only if every accessible disk of the group names its generation. Each start writes another
//! generation, so a flash cache is not used after a start without it, nor with disks that were restored from a backup.
//!
//! A file beside the note contains the sequence of the last record that a change of a file relied on. A flash cache without that
//! record is an older copy, or damaged, and does not count.

use super::format::{Generation, LastIntent};
use crate::disk::{Disk, DiskFile};
use crate::error::{Context, Error, ErrorKind, Result};
use parking_lot::Mutex;
use std::fmt::Debug;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const NAME: &str = "flash_generation";
/// The file with the sequence of the last intent.
const INTENT_FILE: &str = "flash_intent";
/// The note of a group whose flash cache does not count any more, and whose flash disks are not to be empty.
const VOID: &[u8] = b"void";

/// The disks of the group that a flash cache belongs to.
pub trait CellDisks: Debug + Send + Sync {
    /// Returns the disks that are accessible now, with their numbers, without dropped ones.
    fn accessible(&self) -> Vec<(usize, Arc<dyn Disk>)>;
    /// Takes a disk that failed out of the group. Durable on return. Returns an error if the group cannot continue without
    /// the disk.
    fn fail(&self, number: usize, error: &io::Error) -> io::Result<()>;
}

fn could_not(verb: &str, disk: &dyn Disk) -> String {
    format!("could not {verb} the note about the flash cache on cell disk {}", disk.path().display())
}

/// What the accessible disks name.
pub struct Named {
    /// The generation that all of them name.
    pub generation: Option<Generation>,
    /// One of them names a generation, or a flash cache that does not count any more.
    pub by_any: bool,
    /// After a clean stop, the sequence of the last checkpoint.
    pub sequence: Option<u64>,
    /// The sequence of the last record that a change relied on.
    pub intent: u64,
}

/// Returns what the accessible disks name. A disk whose note cannot be read names no generation.
pub fn read(disks: &dyn CellDisks) -> Named {
    let note_of = |disk: &dyn Disk| {
        disk.read_note(NAME).unwrap_or_else(|error| {
            ::log::error!("{}: {error}; the flash cache is emptied", could_not("read", disk));
            None
        })
    };
    let decode = |disk: &dyn Disk, note: &[u8]| {
        let generation = Generation(*note.first_chunk()?);
        // A stop that was interrupted wrote the sequence to some disks only.
        let sequence = note[Generation::BYTES..].first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
        let intent = last_intent(disk).unwrap_or_else(|error| {
            ::log::error!("{}: {error}; the flash cache is emptied", could_not("read", disk));
            None
        });
        let intent = intent.filter(|intent| intent.generation == generation)?;
        Some((generation, sequence, intent.sequence))
    };
    let notes: Vec<_> = disks.accessible().into_iter().map(|(_, disk)| (note_of(disk.as_ref()), disk)).collect();
    let found: Vec<_> = notes.iter().map(|(note, disk)| decode(disk.as_ref(), note.as_deref()?)).collect();
    let generations: Vec<_> = found.iter().map(|found| found.map(|(generation, ..)| generation)).collect();
    let is_common = generations.iter().all(|generation| *generation == generations[0]);
    Named {
        generation: generations.first().copied().flatten().filter(|_| is_common),
        by_any: notes.iter().any(|(note, _)| note.as_ref().is_some_and(|note| !note.is_empty())),
        sequence: found.iter().flatten().find_map(|(_, sequence, _)| *sequence),
        intent: found.iter().flatten().map(|(.., intent)| *intent).max().unwrap_or(0),
    }
}

fn last_intent(disk: &dyn Disk) -> io::Result<Option<LastIntent>> {
    let Some(file) = disk.open_existing(INTENT_FILE)? else { return Ok(None) };
    let mut bytes = [0; LastIntent::BYTES];
    let count = file.read_at(&mut bytes, 0)?;
    Ok(LastIntent::decode(&bytes[..count]).ok())
}

/// The sequence of the last record that a change relied on, as the accessible disks record it.
#[derive(Debug)]
pub struct IntentNotes {
    generation: Generation,
    /// Held while the files are written.
    writing: Mutex<()>,
    written: AtomicU64,
    durable: AtomicU64,
}

impl IntentNotes {
    pub fn new(generation: Generation) -> Self {
        let (written, durable) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { generation, writing: Mutex::new(()), written, durable }
    }

    /// Returns the sequence that the disks record.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    /// Records a sequence, so that a kill of the process does not lose it.
    pub fn write(&self, disks: &dyn CellDisks, sequence: u64) -> Result<()> {
        if self.written() >= sequence {
            return Ok(());
        }
        let _one_at_a_time = self.writing.lock();
        if self.written() >= sequence {
            return Ok(());
        }
        let bytes = LastIntent { generation: self.generation, sequence }.encode();
        change_each(disks, "write", |disk| intent_file(disk)?.write_at(&bytes, 0))?;
        self.written.store(sequence, Ordering::Release);
        Ok(())
    }

    /// Records a sequence durably.
    pub fn sync(&self, disks: &dyn CellDisks, sequence: u64) -> Result<()> {
        if self.durable.load(Ordering::Acquire) >= sequence {
            return Ok(());
        }
        self.write(disks, sequence)?;
        let _one_at_a_time = self.writing.lock();
        if self.durable.load(Ordering::Acquire) >= sequence {
            return Ok(());
        }
        let written = self.written();
        change_each(disks, "write", |disk| intent_file(disk)?.sync())?;
        self.durable.store(written, Ordering::Release);
        Ok(())
    }
}

/// Opens the file. A disk that joined the group has none yet.
fn intent_file(disk: &dyn Disk) -> io::Result<Arc<dyn DiskFile>> {
    match disk.open_existing(INTENT_FILE)? {
        Some(file) => Ok(file),
        None => disk.open_named(INTENT_FILE),
    }
}

/// Makes the accessible disks name a generation, and after a clean stop the sequence of the last checkpoint.
pub fn write(disks: &dyn CellDisks, generation: Generation, stopped_at: Option<u64>) -> Result<()> {
    let mut note = generation.0.to_vec();
    note.extend(stopped_at.into_iter().flat_map(u64::to_le_bytes));
    change_each(disks, "write", |disk| disk.write_note(NAME, &note))
}

/// Makes the accessible disks name no generation, but remember that there was one, so that an empty directory is not taken for
/// a flash disk.
pub fn revoke(disks: &dyn CellDisks) -> Result<()> {
    change_each(disks, "revoke", |disk| match disk.read_note(NAME) {
        Ok(note) if note.as_ref().is_none_or(|note| note.is_empty() || note == VOID) => Ok(()),
        Ok(_) | Err(_) => disk.write_note(NAME, VOID),
    })
}

/// Makes the accessible disks name no flash cache.
pub fn forget(disks: &dyn CellDisks) -> Result<()> {
    change_each(disks, "revoke", clear_note)
}

/// Makes a disk name no generation. A disk without a note does not change.
pub fn clear(disk: &dyn Disk) -> Result<()> {
    clear_note(disk).context(|| could_not("revoke", disk))
}

fn clear_note(disk: &dyn Disk) -> io::Result<()> {
    match disk.read_note(NAME) {
        Ok(note) if note.as_ref().is_none_or(Vec::is_empty) => Ok(()),
        Ok(_) | Err(_) => disk.write_note(NAME, &[]),
    }
}

/// Changes the notes of the accessible disks. A disk that fails leaves the group: it is not used before it returned, and then
/// its note is empty.
fn change_each(disks: &dyn CellDisks, verb: &str, change: impl Fn(&dyn Disk) -> io::Result<()>) -> Result<()> {
    let mut changed = 0;
    for (number, disk) in disks.accessible() {
        match change(disk.as_ref()) {
            Ok(()) => changed += 1,
            Err(_) if !disk.is_accessible() => {}
            Err(error) => disks.fail(number, &error).context(|| could_not(verb, disk.as_ref()))?,
        }
    }
    match changed {
        0 => Err(Error::new(
            ErrorKind::Io,
            "no cell disk is accessible to record which flash cache belongs to the group",
        )),
        _ => Ok(()),
    }
}
