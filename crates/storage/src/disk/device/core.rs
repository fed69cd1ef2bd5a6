//! The state of an open device: the catalog, the free space and the journal, and the rules of their durability.
//!
//! - Data are written before the records that map them. A sync makes the data durable, then confirms the records: after a
//!   loss of power an unconfirmed record is ignored, so a file never shows what its blocks contained before.
//! - Records reach the operating system before a change returns, so a killed process loses nothing.
//! - A released block is used again only when its release is durable: an earlier file may need it after a loss of power.

use super::catalog::{Catalog, FreeSpace};
use super::journal::{Journal, Loaded};
use super::layout::{BLOCK, Header};
use super::medium::Medium;
use super::record::Record;
use crate::disk::FileKey;
use parking_lot::{Mutex, MutexGuard, RwLock};
use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Weak};

/// Released ranges of at least this many blocks are discarded on the device.
const DISCARD_MIN: u64 = 16;

#[derive(Debug)]
pub struct Core {
    pub medium: Arc<dyn Medium>,
    pub header: Header,
    pub is_read_only: bool,
    state: Mutex<State>,
    /// Held during a sync.
    sync: Mutex<()>,
}

#[derive(Debug)]
pub struct State {
    pub catalog: Catalog,
    pub free: FreeSpace,
    /// Released blocks, with the log block that contains the record.
    pending: Vec<(u64, Range<u64>)>,
    journal: Option<Journal>,
    /// This process has written its first checkpoint.
    is_writing: bool,
    /// Tentative records were written since the last confirmation.
    has_unconfirmed: bool,
    /// A sync or a checkpoint failed: the operating system may have dropped blocks of the log, or the medium may contain a
    /// newer checkpoint. The next change starts with a checkpoint.
    is_suspect: bool,
    open: HashMap<u64, Weak<OpenFile>>,
}

/// A file with open handles.
#[derive(Debug)]
pub struct OpenFile {
    pub id: u64,
    pub core: Arc<Core>,
    /// Held shared by I/O in place, exclusively by changes of the extents.
    pub io: RwLock<()>,
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        let mut state = self.core.state.lock();
        if state.open.get(&self.id).is_some_and(|open| open.strong_count() == 0) {
            state.open.remove(&self.id);
        }
        if state.catalog.files.get(&self.id).is_some_and(|entry| entry.is_removed) {
            state.release_file(self.id);
        }
    }
}

impl State {
    /// Forgets a file that has no name, and releases its blocks.
    fn release_file(&mut self, id: u64) {
        let freed = self.catalog.apply(&Record::Remove { id });
        self.release(freed);
    }

    fn release(&mut self, ranges: Vec<Range<u64>>) {
        let block = self.journal.as_ref().map_or(0, |journal| journal.next);
        self.pending.extend(ranges.into_iter().map(|range| (block, range)));
    }

    pub fn pending_blocks(&self) -> u64 {
        self.pending.iter().map(|(_, range)| range.end - range.start).sum()
    }
}

impl Core {
    /// Reads the metadata of a device. A device without a header is formatted at the first change, with `header`.
    pub fn load(medium: Arc<dyn Medium>, header: Header, is_formatted: bool, is_read_only: bool) -> io::Result<Self> {
        let none = Loaded { catalog: Catalog::default(), journal: None, has_unconfirmed: false };
        let loaded = if is_formatted { Journal::load(header, &*medium)? } else { none };
        let Loaded { catalog, journal, has_unconfirmed } = loaded;
        let free = catalog.free_space(header.data_blocks())?;
        let state = State {
            catalog,
            free,
            pending: Vec::new(),
            journal,
            is_writing: false,
            has_unconfirmed,
            is_suspect: false,
            open: HashMap::new(),
        };
        Ok(Self { medium, header, is_read_only, state: Mutex::new(state), sync: Mutex::new(()) })
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    pub fn is_writing(&self) -> bool {
        self.state.lock().is_writing
    }

    /// Returns the state, after the first change of this process has begun a session.
    fn writable(&self) -> io::Result<MutexGuard<'_, State>> {
        if self.is_read_only {
            return Err(io::Error::from_raw_os_error(libc::EROFS));
        }
        let mut state = self.state.lock();
        if !state.is_writing {
            if Header::read(&*self.medium)?.is_none() {
                self.header.write(&*self.medium)?;
            }
            state.catalog.session += 1;
            let begun = self.checkpoint(&mut state);
            if begun.is_err() {
                state.catalog.session -= 1;
            }
            begun?;
            state.is_writing = true;
        }
        Ok(state)
    }

    /// Makes everything durable with a new checkpoint.
    fn checkpoint(&self, state: &mut State) -> io::Result<()> {
        state.is_suspect = true;
        let journal = Journal::checkpoint(state.journal.as_ref(), self.header, &*self.medium, &state.catalog)?;
        state.journal = Some(journal);
        (state.has_unconfirmed, state.is_suspect) = (false, false);
        let pending = std::mem::take(&mut state.pending);
        self.reuse(state, pending);
        Ok(())
    }

    fn reuse(&self, state: &mut State, released: Vec<(u64, Range<u64>)>) {
        for (_, range) in released {
            // A device without discard is slower, not wrong.
            if range.end - range.start >= DISCARD_MIN {
                let _ = self.medium.discard(range.start * BLOCK..range.end * BLOCK);
            }
            state.free.insert(range);
        }
    }

    /// Records changes and applies them. Records of a removed file are applied only.
    pub fn change(&self, records: &[Record]) -> io::Result<()> {
        let mut state = self.writable()?;
        self.change_locked(&mut state, records)
    }

    fn change_locked(&self, state: &mut State, records: &[Record]) -> io::Result<()> {
        let is_of_removed = |record: &Record| {
            let is_by_name = matches!(record, Record::Create { .. } | Record::Remove { .. });
            let Some(id) = record.file().filter(|_| !is_by_name) else { return false };
            state.catalog.files.get(&id).is_none_or(|entry| entry.is_removed)
        };
        if !records.iter().any(is_of_removed) {
            let grows = |record: &Record| {
                !matches!(record, Record::Unmap { .. } | Record::Shrink { .. } | Record::Remove { .. })
            };
            let limit = self.header.region_bytes as usize / 4 * 3;
            if state.catalog.encoded_bytes_max() > limit && records.iter().any(grows) {
                return Err(io::Error::from_raw_os_error(libc::ENOSPC));
            }
            self.append(state, records)?;
            state.has_unconfirmed |= records.iter().any(Record::is_tentative);
        }
        for record in records {
            let freed = state.catalog.apply(record);
            state.release(freed);
        }
        Ok(())
    }

    fn append(&self, state: &mut State, records: &[Record]) -> io::Result<()> {
        let has_space = state.journal.as_ref().is_some_and(|journal| journal.has_space(records.len()));
        if !has_space || state.is_suspect {
            self.checkpoint(state)?;
        }
        self.append_now(state, records)
    }

    /// Appends records to a log that has space. After an error the medium may contain some of them: the next change starts
    /// with a checkpoint.
    fn append_now(&self, state: &mut State, records: &[Record]) -> io::Result<()> {
        let journal = state.journal.as_mut().expect("the session has a journal");
        let appended = journal.append(&*self.medium, records).map(drop);
        state.is_suspect |= appended.is_err();
        appended
    }

    /// Makes all earlier changes and data durable.
    pub fn sync(&self) -> io::Result<()> {
        if self.is_read_only {
            return Ok(());
        }
        let _one_at_a_time = self.sync.lock();
        let mut state = self.state.lock();
        if !state.is_writing {
            let has_unconfirmed = state.has_unconfirmed;
            drop(state);
            // The first checkpoint confirms what a killed process left.
            return if has_unconfirmed { self.writable().map(drop) } else { self.medium.sync() };
        }
        if state.is_suspect {
            return self.checkpoint(&mut state);
        }
        let seal = |state: &mut State| state.journal.as_mut().expect("the session has a journal").seal();
        let sealed = seal(&mut state);
        let unconfirmed = std::mem::take(&mut state.has_unconfirmed);
        let epoch = state.journal.as_ref().map(Journal::epoch);
        drop(state);
        let synced = self.medium.sync();
        let mut state = self.state.lock();
        if synced.is_err() {
            (state.is_suspect, state.has_unconfirmed) = (true, true);
            return synced;
        }
        // A checkpoint of another thread has confirmed everything.
        if state.journal.as_ref().map(Journal::epoch) != epoch {
            return Ok(());
        }
        if unconfirmed {
            if !state.journal.as_ref().is_some_and(|journal| journal.has_space(1)) {
                return self.checkpoint(&mut state);
            }
            let confirmed = self.append_now(&mut state, &[Record::Confirm { block: sealed }]);
            if confirmed.is_err() {
                state.has_unconfirmed = true;
                return confirmed;
            }
            seal(&mut state);
            drop(state);
            let synced = self.medium.sync();
            state = self.state.lock();
            if synced.is_err() {
                (state.is_suspect, state.has_unconfirmed) = (true, true);
                return synced;
            }
            if state.journal.as_ref().map(Journal::epoch) != epoch {
                return Ok(());
            }
        }
        let (durable, pending) = std::mem::take(&mut state.pending).into_iter().partition(|(block, _)| *block < sealed);
        state.pending = pending;
        self.reuse(&mut state, durable);
        Ok(())
    }

    /// Takes free blocks. If too few are free, a sync makes released ones usable first.
    pub fn allocate(&self, blocks: u64, hint: Option<u64>) -> io::Result<Vec<Range<u64>>> {
        for is_last in [false, true] {
            let mut state = self.writable()?;
            if let Some(taken) = state.free.allocate(blocks, hint) {
                return Ok(taken);
            }
            if is_last || state.pending.is_empty() {
                break;
            }
            state.is_suspect |= state.pending_blocks() > 0;
            drop(state);
            self.sync()?;
        }
        Err(io::Error::from_raw_os_error(libc::ENOSPC))
    }

    /// Returns blocks that were taken and not recorded.
    pub fn give_back(&self, ranges: Vec<Range<u64>>) {
        let mut state = self.state.lock();
        ranges.into_iter().for_each(|range| state.free.insert(range));
    }

    /// Opens a file; None if it does not exist and is not to be created. Returns also whether it was created.
    pub fn open(self: &Arc<Self>, key: FileKey, create: bool) -> io::Result<Option<(Arc<OpenFile>, bool)>> {
        let known = self.state.lock().catalog.names.contains_key(&key);
        if !known && !create {
            return Ok(None);
        }
        let mut state = if known { self.state.lock() } else { self.writable()? };
        let (id, is_new) = match state.catalog.names.get(&key) {
            Some(id) => (*id, false),
            None if !create => return Ok(None),
            None => {
                let id = state.catalog.next_id;
                self.change_locked(&mut state, &[Record::Create { id, key }])?;
                (id, true)
            }
        };
        let opened = state.open.get(&id).and_then(Weak::upgrade).unwrap_or_else(|| {
            let file = Arc::new(OpenFile { id, core: self.clone(), io: RwLock::new(()) });
            state.open.insert(id, Arc::downgrade(&file));
            file
        });
        Ok(Some((opened, is_new)))
    }

    /// Removes the name of a file. The content exists until the last handle is closed.
    pub fn remove(&self, key: &FileKey) -> io::Result<bool> {
        if !self.state.lock().catalog.names.contains_key(key) {
            return Ok(false);
        }
        // Dropped after the lock: dropping the last handle takes the lock.
        let open;
        let mut state = self.writable()?;
        let Some(id) = state.catalog.names.get(key).copied() else { return Ok(false) };
        open = state.open.get(&id).and_then(Weak::upgrade);
        if open.is_none() {
            self.change_locked(&mut state, &[Record::Remove { id }])?;
        } else {
            self.append(&mut state, &[Record::Remove { id }])?;
            state.catalog.names.remove(key);
            state.catalog.files.get_mut(&id).expect("a name has a file").is_removed = true;
        }
        Ok(true)
    }

    /// Replaces a note with a checkpoint, which is atomic and durable.
    pub fn write_note(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.writable()?;
        let old = state.catalog.notes.insert(name.to_owned(), bytes.to_vec());
        let written = self.checkpoint(&mut state);
        if written.is_err() {
            match old {
                Some(old) => state.catalog.notes.insert(name.to_owned(), old),
                None => state.catalog.notes.remove(name),
            };
        }
        written
    }
}
