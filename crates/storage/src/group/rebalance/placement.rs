//! The table of placements.
//!
//! The lock of a file's state may be held as long as a disk needs for a piece of the file. No thread waits for this lock while it
//! holds the lock of the table.
//!
//! The container of the stripe's own number stores a file under its inode number. Other containers store it under
//! [`file_number`].

use super::opened_parts::OpenedParts;
use super::runs::Runs;
use crate::disk::{FileStore, Stream};
use crate::growing::Growing;
use cellar_format::bytes::{Corrupt, Reader, Write};
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::ops::Range;
use std::sync::{Arc, Weak};

/// Bits of an inode number below the number of the stripe. Copy sets use the bits from 48.
const STRIPE_SHIFT: u32 = 40;
const STRIPE_MASK: u64 = 0xff;

/// A file of a stripe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileKey {
    pub ino: u64,
    pub stripe: u16,
    pub stream: Stream,
}

/// Returns the number under which a container stores the files of an inode in a stripe.
pub fn file_number(ino: u64, stripe: u16, container: u16) -> u64 {
    debug_assert!(ino >> STRIPE_SHIFT == 0);
    if stripe == container { ino } else { ino | (u64::from(stripe) + 1) << STRIPE_SHIFT }
}

/// Returns the inode and the stripe of a file on a container.
pub fn key_of(number: u64, container: u16) -> (u64, u16) {
    let ino = inode_of(number);
    match number >> STRIPE_SHIFT & STRIPE_MASK {
        0 => (ino, container),
        stripe => (ino, stripe as u16 - 1),
    }
}

/// Returns the inode of a file on a container.
pub fn inode_of(number: u64) -> u64 {
    number & ((1 << STRIPE_SHIFT) - 1)
}

/// Bytes on a container that no read may see, and that are to be freed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leftover {
    pub regions: Range<u32>,
    pub container: u16,
}

/// What the metadata stores have about a file of a stripe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacementRecord {
    pub runs: Runs,
    pub leftovers: Vec<Leftover>,
}

impl PlacementRecord {
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.put_u8(1);
        self.runs.encode(&mut bytes);
        bytes.put_u32(self.leftovers.len() as u32);
        for Leftover { regions, container } in &self.leftovers {
            bytes.put_u32(regions.start);
            bytes.put_u32(regions.end);
            bytes.put_u16(*container);
        }
        bytes
    }

    /// Decodes a record of a group of `containers` containers.
    pub fn decode(bytes: &[u8], containers: usize) -> Result<Self, Corrupt> {
        let mut reader = Reader::new(bytes);
        match reader.u8("placement version")? {
            1 => {}
            other => return Err(Corrupt::new("placement version", 0, other.to_string())),
        }
        let runs = Runs::decode(&mut reader)?;
        let mut leftovers = Vec::new();
        for _ in 0..reader.count(10, "leftovers")? {
            let regions = reader.u32("start of a leftover")?..reader.u32("end of a leftover")?;
            leftovers.push(Leftover { regions, container: reader.u16("container of a leftover")? });
        }
        reader.finish("placement")?;
        let record = Self { runs, leftovers };
        match record.containers().last() {
            Some(last) if usize::from(*last) >= containers => {
                Err(Corrupt::new("placement", 0, format!("container {last} of {containers}")))
            }
            _ => Ok(record),
        }
    }

    pub fn containers(&self) -> BTreeSet<u16> {
        let mut containers = self.runs.containers();
        containers.extend(self.leftovers.iter().map(|leftover| leftover.container));
        containers
    }
}

/// How far a move of regions is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Writes go to both places.
    Copying,
    /// A write to the new place failed; the move ends without effect.
    Failed,
    /// The commit may be durable, so no write may miss the new place.
    Committing,
}

/// A move under way.
#[derive(Debug)]
pub struct Moving {
    pub regions: Range<u32>,
    pub target: u16,
    pub phase: Mutex<Phase>,
}

/// Where a file of a stripe is stored.
#[derive(Debug)]
pub struct State {
    pub runs: Runs,
    pub leftovers: Vec<Leftover>,
    pub moving: Vec<Moving>,
    /// Increases when the file is removed from a container.
    pub epoch: u64,
    /// By container: the epoch since the file's last removal from the container. Files opened earlier are not used.
    pub removals: HashMap<u16, u64>,
    /// The file was removed; moves end.
    pub is_removed: bool,
}

/// A file of a stripe that is open, or that is not stored as a whole on the stripe's container.
#[derive(Debug)]
pub struct FilePlacement {
    pub key: FileKey,
    /// Reads and writes hold the lock shared; the copy of a piece holds it exclusively.
    pub state: RwLock<State>,
    /// The parts that open files have opened.
    opened: Mutex<Vec<Weak<OpenedParts>>>,
}

impl FilePlacement {
    /// Adds the parts of an open file.
    pub fn add_opened(&self, parts: &Arc<OpenedParts>) {
        let mut opened = self.opened.lock();
        opened.retain(|parts| parts.strong_count() > 0);
        opened.push(Arc::downgrade(parts));
    }

    /// Records that the file was removed from a container, and closes the parts there, which would keep their space.
    pub fn note_removal(&self, state: &mut State, container: u16) {
        state.epoch += 1;
        state.removals.insert(container, state.epoch);
        self.opened.lock().iter().filter_map(Weak::upgrade).for_each(|parts| parts.close(container));
    }
}

#[derive(Debug, Default)]
struct Table {
    files: HashMap<FileKey, Arc<FilePlacement>>,
    /// Stripes that are on another container than the container with the stripe's number.
    homes: HashMap<u16, u16>,
    /// Containers that store or stored files of other stripes: stripe and container.
    guests: BTreeSet<(u16, u16)>,
    /// Containers of dropped disks, which have no files.
    retired: BTreeSet<u16>,
}

impl Table {
    fn home(&self, stripe: u16) -> u16 {
        self.homes.get(&stripe).copied().unwrap_or(stripe)
    }
}

/// Where the files of all stripes are stored.
#[derive(Debug)]
pub struct Placement {
    containers: Growing<Arc<dyn FileStore>>,
    table: RwLock<Table>,
    /// Held shared while a file is created, exclusively while the home of a stripe changes.
    pub creation: RwLock<()>,
}

impl Placement {
    pub fn new(containers: Vec<Arc<dyn FileStore>>) -> Arc<Self> {
        let (table, creation) = (RwLock::default(), RwLock::default());
        Arc::new(Self { containers: Growing::new(containers), table, creation })
    }

    /// Adds a container, and returns its number.
    pub fn add(&self, container: Arc<dyn FileStore>) -> u16 {
        self.containers.push(container);
        self.containers.all().len() as u16 - 1
    }

    pub fn containers(&self) -> &[Arc<dyn FileStore>] {
        self.containers.all()
    }

    pub fn container(&self, number: u16) -> &Arc<dyn FileStore> {
        &self.containers.all()[usize::from(number)]
    }

    /// Adds what the metadata stores contain.
    pub fn restore(&self, homes: &[(u16, u16)], records: impl IntoIterator<Item = (FileKey, PlacementRecord)>) {
        let mut table = self.table.write();
        table.homes = homes.iter().copied().collect();
        table.guests.extend(homes.iter().copied());
        for (key, record) in records {
            table.guests.extend(record.containers().into_iter().map(|container| (key.stripe, container)));
            table.files.insert(key, Arc::new(placement(key, record.runs, record.leftovers)));
        }
    }

    /// Returns the container of the files of a stripe that have no record.
    pub fn home(&self, stripe: u16) -> u16 {
        self.table.read().home(stripe)
    }

    /// Changes the home of a stripe. No file of the stripe may be on the former home, and none may be created meanwhile.
    pub fn set_home(&self, stripe: u16, home: u16) {
        loop {
            let mut table = self.table.write();
            let former = table.home(stripe);
            let files: Vec<_> = table.files.values().filter(|file| file.key.stripe == stripe).cloned().collect();
            let mut states = Vec::new();
            let busy = files.iter().find(|file| match file.state.try_write() {
                Some(state) => {
                    states.push(state);
                    false
                }
                None => true,
            });
            if let Some(busy) = busy {
                drop(states);
                drop(table);
                drop(busy.state.write());
                continue;
            }
            table.homes.insert(stripe, home);
            table.guests.insert((stripe, home));
            for state in states.iter_mut().filter(|state| state.runs == Runs::all_on(former)) {
                state.runs = Runs::all_on(home);
            }
            return;
        }
    }

    /// Ends the use of a container that has no files.
    pub fn retire(&self, container: u16) {
        self.table.write().retired.insert(container);
    }

    /// Removes files of a container that nothing refers to: a removal was not durable before a crash.
    pub fn remove_strays(&self, container: u16) -> io::Result<()> {
        let disk = self.container(container);
        for (number, stream) in disk.backing_files()? {
            let (ino, stripe) = key_of(number, container);
            let file = self.file(FileKey { ino, stripe, stream });
            let removed = {
                let mut state = file.state.write();
                let is_target = state.moving.iter().any(|moving| moving.target == container);
                let is_left = state.leftovers.iter().any(|left| left.container == container);
                match is_target || is_left || state.runs.containers().contains(&container) {
                    true => Ok(()),
                    false => {
                        file.note_removal(&mut state, container);
                        disk.remove(number, stream)
                    }
                }
            };
            self.release(file);
            removed?;
        }
        Ok(())
    }

    /// Returns the stripes whose home a container is.
    pub fn stripes_at(&self, container: u16) -> Vec<u16> {
        let table = self.table.read();
        (0..self.containers().len() as u16).filter(|stripe| table.home(*stripe) == container).collect()
    }

    /// Returns the files of which a container has a part, or shall get one.
    pub fn files_on(&self, container: u16) -> io::Result<BTreeSet<FileKey>> {
        let listed = self.container(container).backing_files()?.into_iter().map(|(number, stream)| {
            let (ino, stripe) = key_of(number, container);
            FileKey { ino, stripe, stream }
        });
        let mut keys: BTreeSet<FileKey> = listed.collect();
        for file in self.recorded() {
            if file.state.read().runs.containers().contains(&container) {
                keys.insert(file.key);
            }
        }
        Ok(keys)
    }

    /// Returns the record to store; None if the file needs none.
    pub fn needed_record(&self, key: FileKey) -> Option<PlacementRecord> {
        let home = self.home(key.stripe);
        self.record_of(key).filter(|record| record.runs != Runs::all_on(home) || !record.leftovers.is_empty())
    }

    /// Returns the files that have records.
    pub fn recorded(&self) -> Vec<Arc<FilePlacement>> {
        let (files, homes): (Vec<_>, Vec<u16>) = {
            let table = self.table.read();
            let homes = (0..self.containers().len() as u16).map(|stripe| table.home(stripe)).collect();
            (table.files.values().cloned().collect(), homes)
        };
        let is_recorded =
            |file: &Arc<FilePlacement>| is_recorded(&file.state.read(), homes[usize::from(file.key.stripe)]);
        let (recorded, others): (Vec<_>, Vec<_>) = files.into_iter().partition(is_recorded);
        // A file that was closed meanwhile still has its entry.
        others.into_iter().for_each(|file| self.release(file));
        recorded
    }

    /// Returns the number of runs of all files that have records, for statistics.
    pub fn run_count(&self) -> usize {
        self.recorded().iter().map(|file| file.state.read().runs.len()).sum()
    }

    /// Returns the placement of a file, which exists while the value or a record exists.
    pub fn file(&self, key: FileKey) -> Arc<FilePlacement> {
        if let Some(file) = self.table.read().files.get(&key) {
            return file.clone();
        }
        let mut table = self.table.write();
        let home = table.home(key.stripe);
        let new = || Arc::new(placement(key, Runs::all_on(home), Vec::new()));
        table.files.entry(key).or_insert_with(new).clone()
    }

    /// Returns the placement of a file that is open or has a record.
    pub fn known(&self, key: FileKey) -> Option<Arc<FilePlacement>> {
        self.table.read().files.get(&key).cloned()
    }

    /// Returns where a file is, without an entry for it.
    pub fn runs(&self, key: FileKey) -> Runs {
        let known = {
            let table = self.table.read();
            table.files.get(&key).cloned().ok_or_else(|| table.home(key.stripe))
        };
        known.map_or_else(Runs::all_on, |file| {
            let runs = file.state.read().runs.clone();
            self.release(file);
            runs
        })
    }

    /// Calls `work` with the containers of a byte range of a file.
    pub fn each_container(&self, key: FileKey, range: Range<u64>, mut work: impl FnMut(u16)) {
        self.each_piece(key, range, |_, container| work(container));
    }

    /// Calls `work` with the parts of a byte range of a file, and the container of each part.
    pub fn each_piece(&self, key: FileKey, range: Range<u64>, mut work: impl FnMut(Range<u64>, u16)) {
        let known = {
            let table = self.table.read();
            table.files.get(&key).cloned().ok_or_else(|| table.home(key.stripe))
        };
        match known {
            Err(home) => work(range, home),
            Ok(file) => file.state.read().runs.pieces(range).for_each(|(piece, container)| work(piece, container)),
        }
    }

    /// Drops the entry of a file that is not open and has no record.
    pub fn release(&self, file: Arc<FilePlacement>) {
        let mut table = self.table.write();
        // One reference is the table's, one the caller's. Of a file that is locked, a move is under way.
        let home = table.home(file.key.stripe);
        let is_unused = || file.state.try_read().is_some_and(|state| !is_recorded(&state, home));
        if Arc::strong_count(&file) == 2 && is_unused() {
            table.files.remove(&file.key);
        }
    }

    /// Forgets the files of an inode that was removed from the metadata stores.
    pub fn forget(&self, ino: u64, stripes: &[u16]) {
        let mut table = self.table.write();
        for (stripe, stream) in stripes.iter().flat_map(|stripe| Stream::ALL.map(|stream| (*stripe, stream))) {
            table.files.remove(&FileKey { ino, stripe, stream });
        }
    }

    pub fn note_guest(&self, stripe: u16, container: u16) {
        let is_known = self.table.read().guests.contains(&(stripe, container));
        if !is_known {
            self.table.write().guests.insert((stripe, container));
        }
    }

    /// Returns the containers that may store files of a stripe.
    pub fn containers_of(&self, stripe: u16) -> BTreeSet<u16> {
        let table = self.table.read();
        let guests = table.guests.range((stripe, 0)..=(stripe, u16::MAX)).map(|(_, container)| *container);
        guests.chain([stripe, table.home(stripe)]).filter(|container| !table.retired.contains(container)).collect()
    }
}

fn is_recorded(state: &State, home: u16) -> bool {
    state.runs != Runs::all_on(home) || !state.leftovers.is_empty() || !state.moving.is_empty()
}

fn placement(key: FileKey, runs: Runs, leftovers: Vec<Leftover>) -> FilePlacement {
    let (moving, removals) = (Vec::new(), HashMap::new());
    let state = RwLock::new(State { runs, leftovers, moving, epoch: 0, removals, is_removed: false });
    FilePlacement { key, state, opened: Mutex::default() }
}
