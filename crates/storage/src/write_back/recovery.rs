//! What an earlier process left in the log: a start writes these pages to the cell disks before anything else reads a file.
//!
//! Each record counts on its own if it is whole: records that were not durable before a crash are unsynced changes, each of
//! which may be there or not. A record that was durable must be there.

use super::WriteBack;
use super::destage::runs;
use super::format::{BLOCK, Note, PAGE, PAGE_BYTES, Piece, RecordHeader};
use super::log::{is_segment, remove_segments};
use super::notes::{self, DISK_NOTE, LackingFiles, Named};
use crate::disk::{Disk, DiskFile, FileStore};
use crate::error::{Context, Error, ErrorKind, Result};
use crate::flash::{CellDisks, Object};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Where a page is: the sequence of its record, and the offset in the record.
type Place = (u64, u64);

/// The pages that a log has and the cell disks lack.
#[derive(Debug, Default)]
pub struct Left {
    files: Vec<Arc<dyn DiskFile>>,
    records: BTreeMap<u64, Record>,
    /// In the order of their offsets.
    pages: HashMap<Object, BTreeMap<u32, Place>>,
    /// The cell disks name a log.
    is_named: bool,
    /// Set if the log is missing or damaged, and the start is forced.
    lacking: Option<LackingFiles>,
}

#[derive(Debug)]
struct Record {
    header: RecordHeader,
    /// Where it is whole, on one flash disk or several: number of the file, and offset.
    copies: Vec<(usize, u64)>,
}

/// What is in the segments of the flash disks that count.
#[derive(Default)]
struct Scanned {
    files: Vec<Arc<dyn DiskFile>>,
    records: BTreeMap<u64, Record>,
}

impl Left {
    /// Reads the log that the cell disks name. Changes nothing. With `is_forced`, a log that is missing or damaged is an entry
    /// of the cell's log, not an error.
    pub fn read(disks: &[Arc<dyn Disk>], cell_disks: &dyn CellDisks, is_forced: bool) -> Result<Self> {
        let note = match notes::read(cell_disks, is_forced)? {
            Named::Nothing => return Ok(Self::default()),
            Named::Log(note) => Some(note),
            Named::Unclear => None,
        };
        let lacking = || Some(notes::read_files(cell_disks, note.map(|note| note.generation)));
        let none = || Self { is_named: true, lacking: lacking(), ..Self::default() };
        let Some(note) = note else {
            let damaged = "the notes of the cell disks about the write-back log are damaged";
            return refuse(is_forced, damaged).map(|()| none());
        };
        let Some(Scanned { files, records }) = scan(disks, &note) else {
            let missing = "no flash disk has the write-back log that the cell disks name; connect its flash disks";
            return refuse(is_forced, missing).map(|()| none());
        };
        let oldest = records.values().map(|record| record.header.oldest).max().unwrap_or(1);
        let durable = records.values().map(|record| record.header.flushed).max().unwrap_or(0);
        let missing = (oldest..=durable).find(|sequence| !records.contains_key(sequence));
        if let Some(missing) = missing {
            refuse(is_forced, &format!("record {missing} of the write-back log is missing or damaged"))?;
        }
        let lacking = missing.and_then(|_| lacking());
        let pages = newest(records.range(oldest..).map(|(_, record)| &record.header));
        Ok(Self { files, records, pages, is_named: true, lacking })
    }

    /// Returns the files that may lack synced changes, because a forced start has no log or not all of the log.
    pub fn lacking(&self) -> Option<&LackingFiles> {
        self.lacking.as_ref()
    }

    /// Writes the pages of known objects durably to the stripes. Afterwards, the cell disks name no log.
    pub fn apply(
        self,
        write_back: Option<&WriteBack>,
        stripes: &[Arc<dyn FileStore>],
        (disks, cell_disks): (&[Arc<dyn Disk>], &dyn CellDisks),
        is_known: impl Fn(Object) -> bool,
    ) -> Result<()> {
        let mut written = 0;
        let mut objects: Vec<_> = self.pages.iter().filter(|(object, _)| is_known(**object)).collect();
        objects.sort_by_key(|(object, _)| (object.stripe, object.ino));
        for (object, pages) in objects {
            let describe = || format!("could not write the pages of the write-back log to inode {}", object.ino);
            let Some(stripe) = stripes.get(usize::from(object.stripe)) else { continue };
            if let Some(file) = stripe.open(object.ino, object.stream, false).context(describe)? {
                written += self.write(file.as_ref(), pages).context(describe)?;
            }
        }
        if written > 0 {
            ::log::info!("wrote {} KiB of the write-back log to the cell disks", (written * PAGE) >> 10);
        }
        if let Some(write_back) = write_back {
            write_back.counters.recovered_pages.fetch_add(written, Ordering::Relaxed);
        }
        if self.is_named {
            notes::write(cell_disks, None)?;
            remove_segments(disks);
        }
        Ok(())
    }

    fn write(&self, file: &dyn DiskFile, pages: &BTreeMap<u32, Place>) -> io::Result<u64> {
        let length = file.len()?;
        // A page beyond the end was written after the file became longer, and no sync followed; or the file became shorter since.
        let inside = pages.iter().filter(|(page, _)| (u64::from(**page) + 1) * PAGE <= length);
        let inside: Vec<(u32, Place)> = inside.map(|(page, place)| (*page, *place)).collect();
        for run in runs(&inside) {
            let mut bytes = vec![0; run.len() * PAGE_BYTES];
            for ((_, place), page) in run.iter().zip(bytes.chunks_exact_mut(PAGE_BYTES)) {
                self.read_page(*place, page)?;
            }
            file.write_at(&bytes, u64::from(run[0].0) * PAGE)?;
        }
        file.sync()?;
        Ok(inside.len() as u64)
    }

    /// Reads a page from the first copy of its record that can be read.
    fn read_page(&self, (sequence, offset): Place, page: &mut [u8]) -> io::Result<()> {
        let mut result = Err(io::Error::other("a record of the write-back log has no copy"));
        for (number, start) in &self.records[&sequence].copies {
            result = match self.files[*number].read_at(page, start + offset) {
                Ok(PAGE_BYTES) => return Ok(()),
                Ok(_) => Err(io::Error::other("a segment of the write-back log ends before a page")),
                Err(error) => Err(error),
            };
        }
        result
    }
}

fn refuse(is_forced: bool, what: &str) -> Result<()> {
    if is_forced {
        ::log::error!("{what}; changes of files that were synced are lost");
        return Ok(());
    }
    let message =
        format!("{what}; it has changes of files that the cell disks lack; to lose them, start with --force-degraded");
    Err(Error::new(ErrorKind::ForeignDisk, message))
}

/// Returns the newest version of each page that the cell disks may lack, from records in the order of their sequence.
fn newest<'a>(records: impl Iterator<Item = &'a RecordHeader>) -> HashMap<Object, BTreeMap<u32, Place>> {
    let (mut found, mut clean): (HashMap<Object, BTreeMap<u32, Place>>, Vec<Piece>) = Default::default();
    for header in records {
        for (object, page, offset) in header.page_offsets(0) {
            found.entry(object).or_default().insert(page, (header.sequence, offset));
        }
        clean.extend(header.pieces.iter().filter(|piece| matches!(piece, Piece::Clean { .. })));
    }
    for piece in clean {
        if let Piece::Clean { object, first, last, up_to } = piece
            && let Some(pages) = found.get_mut(&object)
        {
            pages.retain(|page, (sequence, _)| !(first..=last).contains(page) || *sequence > up_to);
        }
    }
    found
}

/// Reads the segments of all flash disks that the note names. None if there is none that can be read.
fn scan(disks: &[Arc<dyn Disk>], note: &Note) -> Option<Scanned> {
    let (mut scanned, mut is_any) = (Scanned::default(), false);
    for disk in disks {
        let own = disk.read_note(DISK_NOTE).ok().flatten().and_then(|bytes| Note::decode(&bytes).ok());
        let counts =
            |own: &Note| own.generation == note.generation && own.value < 32 && note.value >> own.value & 1 == 1;
        if !own.as_ref().is_some_and(counts) {
            continue;
        }
        match scan_disk(disk, note, &mut scanned) {
            Ok(()) => is_any = true,
            Err(error) => ::log::error!("could not read the write-back log on {}: {error}", disk.path().display()),
        }
    }
    is_any.then_some(scanned)
}

fn scan_disk(disk: &Arc<dyn Disk>, note: &Note, scanned: &mut Scanned) -> io::Result<()> {
    for (ino, stream) in disk.backing_files()?.into_iter().filter(|(ino, stream)| is_segment(*ino, *stream)) {
        let Some(file) = disk.open(ino, stream, false)? else { continue };
        let mut bytes = vec![0; disk.measure(ino, stream)?.0 as usize];
        let count = file.read_at(&mut bytes, 0)?;
        let (number, mut at) = (scanned.files.len(), 0);
        scanned.files.push(file);
        while at + BLOCK <= count {
            // A header that is not valid did not reach the disk, or is damaged: later ones may be valid.
            let header = RecordHeader::decode(&bytes[at..count]).ok();
            let Some(header) = header.filter(|header| header.generation == note.generation) else {
                at += BLOCK;
                continue;
            };
            let start = at as u64;
            at += header.length() as usize;
            if header.has_payload(&bytes[start as usize + BLOCK..count]) {
                let new = || Record { header: header.clone(), copies: Vec::new() };
                scanned.records.entry(header.sequence).or_insert_with(new).copies.push((number, start));
            }
        }
    }
    Ok(())
}
