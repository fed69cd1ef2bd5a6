//! The metadata store: one redb database per disk of the group, all with the same contents. Layout:
//! `docs/format/disk.md`.
//!
//! Invariants: every transaction increments the generation; at start the readable store with the highest generation is
//! authoritative and the others are rewritten from it. redb does its I/O through the `Disk` trait. After one failed I/O
//! redb refuses all further work, so the next transaction reopens the database: the store works again as soon as the
//! disk does.

use super::FIRST_INO;
use super::batch::{AuKey, Batch, Contents, PlacementKey};
use super::extent::ExtentRecord;
use super::record::Inode;
use crate::disk::{Disk, DiskFile, on_each};
use crate::error::{Context, Error, ErrorKind, Result};
use crate::group::Group;
use crate::group::mirror::Mirror;
use crate::group::rebalance::inode_of;
use cellar_format::units::AuIndex;
use redb::{Database, ReadableDatabase, ReadableTable, StorageBackend, TableDefinition};
use std::io;
use std::sync::Arc;

pub(super) const FILE: &str = "metadata.redb";
/// The version that this release writes. This release also reads version 1, which had no extents, and version 2, whose
/// extent records have version 1.
const VERSION: u64 = 3;
const VERSION_FIRST: u64 = 1;
const CACHE_BYTES: usize = 32 << 20;
/// redb's header is shorter. It contains the flag that the database is open or was not closed, and the number of the last
/// transaction.
pub const HEADER_BYTES: usize = 512;
/// Bytes per write when a store is rewritten after an error.
const REWRITE_CHUNK: usize = 1 << 20;

const INODES: TableDefinition<u64, &[u8]> = TableDefinition::new("inodes");
const DENTRIES: TableDefinition<(u64, &[u8]), u64> = TableDefinition::new("dentries");
/// Key: inode, allocation unit.
const EXTENTS: TableDefinition<(u64, u64), &[u8]> = TableDefinition::new("extents");
const GROUP: TableDefinition<&str, u64> = TableDefinition::new("group");
/// Key: inode, stripe and stream. Exists in groups that were rebalanced.
const PLACEMENTS: TableDefinition<(u64, u64), &[u8]> = TableDefinition::new("placements");
/// Exists in groups whose disks have changed.
const CHANGES: TableDefinition<&str, u64> = TableDefinition::new("changes");

#[derive(Debug)]
pub struct Stores {
    pub(super) stores: Vec<Store>,
    generation: u64,
    /// Takes disks that fail a transaction out of a group with copies.
    pub(super) mirror: Option<Arc<Mirror>>,
}

#[derive(Debug)]
pub(super) struct Store {
    pub(super) disk: Arc<dyn Disk>,
    /// Number of the disk in the group.
    pub(super) number: usize,
    /// Epoch of the group's member when the store was opened. After the disk was offline, the store has closed files.
    epoch: u64,
    /// None after an error, until the next use reopens it.
    database: Option<Database>,
}

#[derive(Debug)]
struct Backend(Arc<dyn DiskFile>);

impl StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        match self.0.read_at(out, offset)? {
            count if count == out.len() => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
    fn set_len(&self, length: u64) -> io::Result<()> {
        self.0.set_len(length)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.0.sync()
    }
    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_at(data, offset)
    }
}

impl Store {
    pub(super) fn open(disk: Arc<dyn Disk>, number: usize) -> Result<Self> {
        let file = open_file(&*disk)?;
        let database = Some(open_database(&*disk, file)?);
        Ok(Self { disk, number, epoch: 0, database })
    }

    /// Opens an empty store in place of the disk's former one.
    fn replacing(disk: &Arc<dyn Disk>, number: usize) -> Result<Self> {
        let path = disk.path().display();
        disk.remove_named(FILE).context(|| format!("could not remove the old metadata of cell disk {path}"))?;
        Self::open(disk.clone(), number)
    }

    /// Returns the database; reopens it after an error.
    fn database(&mut self) -> Result<&Database> {
        if self.database.is_none() {
            let file = open_file(&*self.disk)?;
            rewrite(&*file)
                .context(|| format!("could not rewrite the metadata of cell disk {}", self.disk.path().display()))?;
            self.database = Some(open_database(&*self.disk, file)?);
            log::info!("reopened the metadata of cell disk {} after an error", self.disk.path().display());
        }
        Ok(self.database.as_ref().expect("just opened"))
    }

    /// Returns the store's generation; None if the store was never written.
    pub(super) fn generation(&mut self) -> Result<Option<u64>> {
        let database = self.database()?;
        let read = || -> Result<Option<u64>, redb::Error> {
            let table = match database.begin_read()?.open_table(GROUP) {
                Err(redb::TableError::TableDoesNotExist(_)) => return Ok(None),
                table => table?,
            };
            let value = |key| table.get(key).map(|value| value.map(|value| value.value()));
            match value("version")? {
                Some(VERSION_FIRST..=VERSION) => Ok(value("generation")?),
                Some(other) => Err(redb::Error::Corrupted(format!(
                    "metadata version {other}; this release reads versions up to {VERSION}"
                ))),
                None => Ok(None),
            }
        };
        read().map_err(|error| failed(&*self.disk, "read", error))
    }

    pub(super) fn load(&mut self, disk_count: usize) -> Result<Contents> {
        let disk = self.disk.clone();
        let corrupt = |message: String| {
            Error::new(ErrorKind::Corrupt, format!("metadata of cell disk {}: {message}", disk.path().display()))
        };
        let failed = |error: redb::Error| failed(&*disk, "read", error);
        let read = self.database()?.begin_read().map_err(|error| failed(error.into()))?;
        let mut contents = Contents::default();
        let inodes = read.open_table(INODES).map_err(|error| failed(error.into()))?;
        for row in inodes.iter().map_err(|error| failed(error.into()))? {
            let (ino, record) = row.map_err(|error| failed(error.into()))?;
            let ino = ino.value();
            // The higher bits of the number of a stored file name its copy set and its stripe.
            if inode_of(ino) != ino {
                return Err(corrupt(format!("inode number {ino} is too large")));
            }
            let inode =
                Inode::decode(record.value(), disk_count).map_err(|error| corrupt(format!("inode {ino}: {error}")))?;
            contents.inodes.insert(ino, inode);
        }
        let dentries = read.open_table(DENTRIES).map_err(|error| failed(error.into()))?;
        for row in dentries.iter().map_err(|error| failed(error.into()))? {
            let (key, ino) = row.map_err(|error| failed(error.into()))?;
            let (parent, name) = key.value();
            contents.dentries.push((parent, name.to_vec(), ino.value()));
        }
        let extents = read.open_table(EXTENTS).map_err(|error| failed(error.into()))?;
        for row in extents.iter().map_err(|error| failed(error.into()))? {
            let (key, record) = row.map_err(|error| failed(error.into()))?;
            let (ino, au) = key.value();
            let extent = ExtentRecord::decode(record.value())
                .map_err(|error| corrupt(format!("allocation unit {au} of inode {ino}: {error}")))?;
            contents.extents.push((AuKey { ino, au: AuIndex(au) }, extent));
        }
        let group = read.open_table(GROUP).map_err(|error| failed(error.into()))?;
        let next = group.get("next_ino").map_err(|error| failed(error.into()))?;
        contents.next_ino = next.map_or(FIRST_INO, |value| value.value());
        self.load_changes(&mut contents).map_err(failed)?;
        Ok(contents)
    }

    /// Loads what groups have whose disks have changed.
    fn load_changes(&mut self, contents: &mut Contents) -> Result<(), redb::Error> {
        let Some(database) = &self.database else { return Ok(()) };
        let read = database.begin_read()?;
        match read.open_table(PLACEMENTS) {
            Err(redb::TableError::TableDoesNotExist(_)) => {}
            table => {
                for row in table?.iter()? {
                    let (key, record) = row?;
                    contents.placements.push((PlacementKey::of_row(key.value()), record.value().to_vec()));
                }
            }
        }
        match read.open_table(CHANGES) {
            Err(redb::TableError::TableDoesNotExist(_)) => {}
            table => {
                for row in table?.iter()? {
                    let (name, value) = row?;
                    contents.group.insert(name.value().to_owned(), value.value());
                }
            }
        }
        Ok(())
    }

    /// Commits a batch under `generation`. With `replace` the batch is the whole new contents. A panic of the database
    /// is an error like any other: the next transaction reopens the database.
    fn apply(&mut self, batch: &Batch, generation: u64, replace: bool) -> Result<()> {
        let disk = self.disk.clone();
        let applied = catching_panics(&disk, || self.apply_once(batch, generation, replace));
        if applied.is_err() {
            let database = self.database.take();
            // Closing the database may panic too, if the panic left a lock of the database poisoned.
            let _closed = catching_panics(&disk, || {
                drop(database);
                Ok(())
            });
        }
        applied
    }

    fn apply_once(&mut self, batch: &Batch, generation: u64, replace: bool) -> Result<()> {
        let database = self.database()?;
        let write = || -> Result<(), redb::Error> {
            let transaction = database.begin_write()?;
            if replace {
                transaction.delete_table(INODES)?;
                transaction.delete_table(DENTRIES)?;
                transaction.delete_table(EXTENTS)?;
                transaction.delete_table(PLACEMENTS)?;
                transaction.delete_table(CHANGES)?;
            }
            if !batch.placements.is_empty() {
                let mut placements = transaction.open_table(PLACEMENTS)?;
                for (key, record) in &batch.placements {
                    match record {
                        Some(record) => drop(placements.insert(key.row(), record.as_slice())?),
                        None => drop(placements.remove(key.row())?),
                    }
                }
            }
            if !batch.group.is_empty() {
                let mut changes = transaction.open_table(CHANGES)?;
                for (name, value) in &batch.group {
                    match value {
                        Some(value) => drop(changes.insert(name.as_str(), value)?),
                        None => drop(changes.remove(name.as_str())?),
                    }
                }
            }
            {
                // Opening a table creates it.
                let has_removals = batch.inodes.iter().any(|(_, record)| record.is_none());
                let mut placements = has_removals.then(|| transaction.open_table(PLACEMENTS)).transpose()?;
                let mut inodes = transaction.open_table(INODES)?;
                let mut extents = transaction.open_table(EXTENTS)?;
                for (ino, record) in &batch.inodes {
                    match record {
                        Some(record) => drop(inodes.insert(ino, record.as_slice())?),
                        None => {
                            inodes.remove(ino)?;
                            extents.retain_in((*ino, 0)..=(*ino, u64::MAX), |_, _| false)?;
                            if let Some(placements) = &mut placements {
                                placements.retain_in((*ino, 0)..=(*ino, u64::MAX), |_, _| false)?;
                            }
                        }
                    }
                }
                for (AuKey { ino, au }, record) in &batch.extents {
                    let key = (*ino, au.index());
                    match record {
                        Some(record) => drop(extents.insert(key, record.as_slice())?),
                        None => drop(extents.remove(key)?),
                    }
                }
                let mut dentries = transaction.open_table(DENTRIES)?;
                for ((parent, name), ino) in &batch.dentries {
                    match ino {
                        Some(ino) => drop(dentries.insert((*parent, &name[..]), ino)?),
                        None => drop(dentries.remove((*parent, &name[..]))?),
                    }
                }
                let mut group = transaction.open_table(GROUP)?;
                group.insert("version", VERSION)?;
                group.insert("generation", generation)?;
                group.insert("next_ino", batch.next_ino)?;
            }
            Ok(transaction.commit()?)
        };
        write().map_err(|error| failed(&*self.disk, "write", error))
    }
}

fn open_file(disk: &dyn Disk) -> Result<Arc<dyn DiskFile>> {
    disk.open_named(FILE).context(|| format!("could not open the metadata of cell disk {}", disk.path().display()))
}

fn open_database(disk: &dyn Disk, file: Arc<dyn DiskFile>) -> Result<Database> {
    redb::Builder::new()
        .set_cache_size(CACHE_BYTES)
        .create_with_backend(Backend(file))
        .map_err(|error| failed(disk, "open", error.into()))
}

/// Writes every byte of a file over itself and syncs the file. After a failed sync the kernel may return bytes from its
/// cache that are not on disk, and it reports the next sync as a success. redb would treat such bytes as committed; the
/// rewrite makes them durable.
///
/// The first chunk is synced alone, so that a disk that still fails costs one chunk.
fn rewrite(file: &dyn DiskFile) -> io::Result<()> {
    let (length, mut offset, mut chunk) = (file.len()?, 0, vec![0; REWRITE_CHUNK]);
    while offset < length {
        let count = file.read_at(&mut chunk, offset)?;
        if count == 0 {
            break;
        }
        // Filling holes would need space, and the rewrite may follow an error of a full disk. A chunk that was written but
        // not synced is no hole.
        let is_empty = chunk[..count].iter().all(|byte| *byte == 0) && file.is_hole(offset, count as u64)?;
        if !is_empty {
            file.write_at(&chunk[..count], offset)?;
        }
        if offset == 0 {
            file.sync()?;
        }
        offset += count as u64;
    }
    file.sync()
}

fn failed(disk: &dyn Disk, verb: &str, error: redb::Error) -> Error {
    let context = format!("could not {verb} the metadata of cell disk {}", disk.path().display());
    match error {
        redb::Error::Io(error) => Error::io(context, error),
        redb::Error::Corrupted(message) => Error::new(ErrorKind::Corrupt, format!("{context}: {message}")),
        other => Error::io(context, io::Error::other(other)),
    }
}

/// Returns the generation of a disk's store; None if the disk has no store or the store was never written. The store is
/// read through an [`crate::disk::OverlayDisk`], which keeps the repair of a store after a crash in memory.
pub fn generation_of(disk: &Arc<dyn Disk>) -> Result<Option<u64>> {
    catching_panics(disk, || Store::open(disk.clone(), 0)?.generation())
}

/// Drops a store whose database may be damaged: closing it may panic.
fn close(store: Store) {
    let disk = store.disk.clone();
    let _closed = catching_panics(&disk, || {
        drop(store);
        Ok(())
    });
}

/// Calls redb, which may panic on damaged bytes, and returns a panic as an error of kind `Corrupt`.
pub(super) fn catching_panics<T>(disk: &Arc<dyn Disk>, call: impl FnOnce() -> Result<T>) -> Result<T> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)).unwrap_or_else(|_| {
        let message = format!("metadata of cell disk {}: the database is damaged", disk.path().display());
        Err(Error::new(ErrorKind::Corrupt, message))
    })
}

/// Returns the header of a disk's store, which must not be open. Opening the store for changes changes the header before
/// anything else, and closing the store commits a transaction of redb, so a store never has the same header again after
/// a process has opened it, whatever the release of that process and however the process ended.
pub fn header_of(disk: &dyn Disk) -> Result<[u8; HEADER_BYTES]> {
    let failed = || format!("could not read the metadata of cell disk {}", disk.path().display());
    let mut header = [0; HEADER_BYTES];
    let file = disk.open_existing(FILE).context(failed)?;
    let count = file.map_or(Ok(0), |file| file.read_at(&mut header, 0)).context(failed)?;
    match count {
        HEADER_BYTES => Ok(header),
        _ => Err(Error::new(ErrorKind::Corrupt, format!("{}: {count} bytes", failed()))),
    }
}

impl Stores {
    /// Reads the store with the highest generation and leaves the others unchanged. The value has no store: every
    /// transaction is an error.
    pub fn read_only(disks: &[Arc<dyn Disk>], stripe_count: usize) -> Result<(Self, Contents)> {
        let (mut newest, mut unreadable) = (None, None);
        for disk in disks.iter().filter(|disk| disk.is_accessible()) {
            match generation_of(disk) {
                Ok(Some(generation)) if newest.is_none_or(|(known, _)| known < generation) => {
                    newest = Some((generation, disk));
                }
                Ok(_) => {}
                Err(error) => unreadable = Some(error),
            }
        }
        let Some((generation, disk)) = newest else {
            return Err(unreadable.unwrap_or_else(|| {
                Error::new(ErrorKind::Corrupt, "no disk of the group has metadata although the group is in use")
            }));
        };
        let contents = catching_panics(disk, || Store::open(disk.clone(), 0)?.load(stripe_count))?;
        Ok((Self { stores: Vec::new(), generation, mirror: None }, contents))
    }

    /// Closes the stores. Afterwards every transaction is an error.
    pub fn close(&mut self) -> Result<()> {
        let mut result = Ok(());
        for store in std::mem::take(&mut self.stores) {
            let Some(database) = store.database else { continue };
            let close = || database.close().map_err(|error| failed(&*store.disk, "close", error.into()));
            result = result.and(catching_panics(&store.disk, close));
        }
        result
    }

    /// Returns the generation of the last transaction.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Opens the stores of the accessible disks, side by side, and reads the one with the highest generation. For a new
    /// group, writes `initial` first.
    pub fn open(group: &Group, is_new: bool, initial: impl FnOnce() -> Batch) -> Result<(Self, Contents)> {
        let disk_count = group.stripes().len();
        let disks: Vec<(usize, &Arc<dyn Disk>)> = group
            .disks()
            .iter()
            .enumerate()
            .filter(|(number, disk)| !group.is_dropped(*number) && disk.is_accessible())
            .collect();
        let mirror = group.mirror().cloned();
        let mut stores = Vec::new();
        let mut unreadable = Vec::new();
        if is_new {
            for (_, disk) in &disks {
                let path = disk.path().display();
                disk.remove_named(FILE)
                    .context(|| format!("could not remove incomplete metadata of cell disk {path}"))?;
            }
        }
        // The repair of a database after a crash reads all of it.
        let open = |(number, disk): &(usize, &Arc<dyn Disk>)| {
            catching_panics(disk, || {
                let mut store = Store::open((*disk).clone(), *number)?;
                let generation = store.generation()?;
                Ok((store, generation))
            })
        };
        for ((number, disk), opened) in disks.iter().zip(on_each(&disks, open)) {
            match opened {
                Ok(opened) => stores.push(opened),
                Err(error) => unreadable.push((*number, (*disk).clone(), error)),
            }
        }
        if is_new {
            if let Some((_, _, error)) = unreadable.pop() {
                return Err(error);
            }
            let stores = stores.into_iter().map(|(store, _)| store).collect();
            let mut stores = Self { stores, generation: 0, mirror };
            stores.note_epochs();
            stores.apply(&initial())?;
            let contents = stores.stores[0].load(disk_count)?;
            return Ok((stores, contents));
        }
        let newest = stores.iter().filter_map(|(_, generation)| *generation).max();
        let Some(newest) = newest else {
            return Err(unreadable.pop().map(|(_, _, error)| error).unwrap_or_else(|| {
                Error::new(ErrorKind::Corrupt, "no disk of the group has metadata although the group is in use")
            }));
        };
        let contents = loop {
            let is_newest = |(_, generation): &(Store, Option<u64>)| *generation == Some(newest);
            let winner = stores.iter().position(is_newest).expect("the last store with the maximum stays");
            let disk = stores[winner].0.disk.clone();
            match catching_panics(&disk, || stores[winner].0.load(disk_count)) {
                Err(error) if stores.iter().filter(|store| is_newest(store)).count() > 1 => {
                    let (store, _) = stores.remove(winner);
                    unreadable.push((store.number, disk, error));
                    close(store);
                }
                loaded => break loaded?,
            }
        };
        let mut opened = Self { stores: Vec::new(), generation: newest, mirror };
        for (number, disk, error) in unreadable {
            log::warn!("{error}; rewriting the metadata from another disk's copy");
            match Store::replacing(&disk, number) {
                Ok(store) => {
                    opened.count_repair();
                    stores.push((store, None));
                }
                Err(error) => opened.take_out(number, error)?,
            }
        }
        for (mut store, generation) in stores {
            if generation != Some(newest) {
                let path = store.disk.path().display();
                log::warn!(
                    "metadata of cell disk {path} has generation {generation:?}, the newest is {newest}; rewriting the metadata"
                );
                if let Err(error) = store.apply(&Batch::everything(&contents), newest, true) {
                    opened.take_out(store.number, error)?;
                    continue;
                }
            }
            opened.stores.push(store);
        }
        opened.note_epochs();
        Ok((opened, contents))
    }

    /// Writes the metadata to a disk that returns, and includes the disk in later transactions.
    pub fn add(&mut self, number: usize, disk: &Arc<dyn Disk>, stripe_count: usize) -> Result<()> {
        self.retain_current();
        if let Some(former) = self.stores.iter().position(|store| store.number == number) {
            close(self.stores.remove(former));
        }
        let missing = || Error::new(ErrorKind::NotPermitted, "the metadata are not open for changes");
        let contents = self.stores.first_mut().ok_or_else(missing)?.load(stripe_count)?;
        let mut store = Store::replacing(disk, number)?;
        store.epoch = self.epoch_of(number);
        store.apply(&Batch::everything(&contents), self.generation, true)?;
        self.stores.push(store);
        Ok(())
    }

    /// Ends the use of disks that are offline, or that were offline since their stores were opened: such a disk may be in its
    /// resync, which an error of the former store must not end.
    fn retain_current(&mut self) {
        for store in std::mem::take(&mut self.stores) {
            match store.disk.is_accessible() && store.epoch == self.epoch_of(store.number) {
                true => self.stores.push(store),
                false => close(store),
            }
        }
    }

    fn note_epochs(&mut self) {
        let epochs: Vec<u64> = self.stores.iter().map(|store| self.epoch_of(store.number)).collect();
        self.stores.iter_mut().zip(epochs).for_each(|(store, epoch)| store.epoch = epoch);
    }

    fn epoch_of(&self, number: usize) -> u64 {
        self.mirror.as_ref().map_or(0, |mirror| mirror.member(number).epoch())
    }

    /// Ends the use of a disk that leaves the group.
    pub fn remove(&mut self, number: usize) {
        self.stores.retain(|store| store.number != number);
    }

    /// Takes a disk that failed out of a group with copies; returns the error if the group needs the disk.
    pub(super) fn take_out(&self, number: usize, error: Error) -> Result<()> {
        match &self.mirror {
            Some(mirror) if error.kind() != ErrorKind::NoSpace => {
                let cause = std::io::Error::other(error.to_string());
                mirror.fail_disk(number, &cause).map_err(|_| error)
            }
            _ => Err(error),
        }
    }

    /// Commits a batch of changes on every disk, in one transaction each. Durable on return.
    ///
    /// After an error some disks may have the batch; the caller includes the same changes in its next batch. In a group
    /// with copies, a disk that fails leaves the group, and the batch is committed without the disk.
    pub fn apply(&mut self, batch: &Batch) -> Result<()> {
        self.retain_current();
        if self.stores.is_empty() {
            return Err(Error::new(ErrorKind::NotPermitted, "the metadata are not open for changes"));
        }
        self.generation += 1;
        let generation = self.generation;
        if let [store] = &mut self.stores[..] {
            return store.apply(batch, generation, false);
        }
        // One thread per disk, so that the disks sync concurrently.
        let results: Vec<(usize, u64, Result<()>)> = std::thread::scope(|scope| {
            let (first, others) = self.stores.split_first_mut().expect("a group has a disk");
            let apply = |store: &mut Store| (store.number, store.epoch, store.apply(batch, generation, false));
            let threads: Vec<_> = others.iter_mut().map(|store| scope.spawn(move || apply(store))).collect();
            let mut results = vec![apply(first)];
            results.extend(threads.into_iter().map(|thread| thread.join().expect("a transaction catches panics")));
            results
        });
        let is_committed = results.iter().any(|(_, _, result)| result.is_ok());
        for (number, epoch, result) in results {
            match result {
                // The disk went offline meanwhile, with a durable membership. It may be in its resync, which rewrites the metadata.
                Err(_) if is_committed && epoch != self.epoch_of(number) => {}
                Err(error) if is_committed => self.take_out(number, error)?,
                result => result?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{DirectoryDisk, Fault, FaultyDisk};

    #[test]
    fn the_rewrite_on_a_disk_whose_syncs_fail_ends_after_the_first_chunk() {
        let folder = tempfile::tempdir().unwrap();
        let disk = FaultyDisk::new(Arc::new(DirectoryDisk::new(folder.path().join("disk")).unwrap()), 1);
        let file = disk.open_named(FILE).unwrap();
        file.write_at(&vec![1; 4 * REWRITE_CHUNK], 0).unwrap();
        disk.set_named_faults(&[Fault::Sync { errno: libc::EIO, one_in: 1 }]);
        let written = disk.named_bytes_written();
        for attempt in 1..=3 {
            assert_eq!(rewrite(&*file).unwrap_err().raw_os_error(), Some(libc::EIO));
            assert_eq!(disk.named_bytes_written() - written, attempt * REWRITE_CHUNK as u64);
        }
        disk.set_named_faults(&[]);
        rewrite(&*file).unwrap();
        assert_eq!(disk.named_bytes_written() - written, 7 * REWRITE_CHUNK as u64);
    }
}
