//! Threads that write, sync, destage, shorten and remove the same files, and a crash at any operation.
//!
//! Changes of a sector that overlap in time may have any order. A change is lost if a later one, whose end a sync followed, is not
//! there and the sector has a change that ended before that one began.

use super::*;
use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const THREADS: u64 = 4;
const FILES: u64 = 3;
const INO_FIRST: u64 = 20;
const SECTORS: usize = 16;
/// A change that has not ended.
const NEVER: u64 = u64::MAX;

#[derive(Debug, Clone, Copy)]
struct Change {
    number: u32,
    began: u64,
    ended: u64,
}

/// All changes of a file.
#[derive(Debug, Default)]
struct History {
    sectors: HashMap<usize, Vec<Change>>,
    /// When the last successful sync began.
    synced: u64,
    /// Whether the metadata have the file.
    is_known: bool,
}

impl History {
    /// Checks what a read from `began` on found, which must have what ended before then.
    fn check(&self, sectors: &Range<usize>, found: &[u32], began: u64) -> std::result::Result<(), String> {
        for (sector, found) in sectors.clone().zip(found) {
            let first = Change { number: 0, began: 0, ended: 0 };
            let changes: Vec<Change> =
                [first].into_iter().chain(self.sectors.get(&sector).into_iter().flatten().copied()).collect();
            let newer =
                |change: &Change| changes.iter().find(|other| other.began > change.ended && other.ended < began);
            let is_right = |change: &Change| change.number == *found && newer(change).is_none();
            if !changes.iter().any(is_right) {
                return Err(format!("sector {sector} is {found} at {began}: {changes:?}"));
            }
        }
        Ok(())
    }
}

struct Files {
    cell: Cell,
    clock: AtomicU64,
    number: AtomicU32,
    /// Locked for changes of the length, punches and removals. The volume locks out writes meanwhile, too.
    locks: [RwLock<()>; FILES as usize],
    histories: [Mutex<History>; FILES as usize],
}

impl Files {
    fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    /// Runs a change that writes a number to sectors.
    fn change(
        &self,
        file: usize,
        sectors: Range<usize>,
        number: u32,
        work: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let began = self.now();
        // Numbers of writes occur once, so the pair identifies the change.
        let change = Change { number, began, ended: NEVER };
        for sector in sectors.clone() {
            self.histories[file].lock().sectors.entry(sector).or_default().push(change);
        }
        work()?;
        let mut history = self.histories[file].lock();
        let ended = self.now();
        for sector in sectors {
            let changes = history.sectors.get_mut(&sector).expect("the sector has changes");
            changes.iter_mut().filter(|change| change.began == began).for_each(|change| change.ended = ended);
        }
        Ok(())
    }

    fn write(&self, file: usize, sectors: Range<usize>) -> io::Result<()> {
        let number = 1 + self.number.fetch_add(1, Ordering::SeqCst);
        self.change(file, sectors.clone(), number, || self.cell.write(INO_FIRST + file as u64, &sectors, number))
    }

    fn sync(&self, file: usize) -> io::Result<()> {
        let began = self.now();
        self.cell.file(INO_FIRST + file as u64)?.sync()?;
        let mut history = self.histories[file].lock();
        history.synced = history.synced.max(began);
        Ok(())
    }

    fn create(&self, file: usize) -> io::Result<()> {
        self.cell.create(INO_FIRST + file as u64)?;
        self.histories[file].lock().is_known = true;
        self.write(file, 0..SECTORS)?;
        self.sync(file)
    }

    fn read(&self, file: usize, sectors: Range<usize>) -> io::Result<()> {
        let began = self.now();
        let found = self.cell.read(INO_FIRST + file as u64, &sectors)?;
        self.histories[file].lock().check(&sectors, &found, began).unwrap();
        Ok(())
    }

    /// Changes files until the power is off.
    fn work(&self, random: &mut Random) -> io::Result<()> {
        loop {
            let (file, ino) = (random.below(FILES) as usize, INO_FIRST);
            let page = random.below(SECTORS as u64 / 2) as usize;
            let ino = ino + file as u64;
            match random.below(40) {
                0 => {
                    let _alone = self.locks[file].write();
                    let length = random.below(SECTORS as u64);
                    let set_length = || self.cell.file(ino)?.set_len(length * SECTOR);
                    self.change(file, length as usize..SECTORS, 0, set_length)?;
                }
                1 => {
                    let _alone = self.locks[file].write();
                    self.histories[file].lock().is_known = false;
                    let remove = || self.cell.store.remove(ino, Stream::Data);
                    self.change(file, 0..SECTORS, 0, remove)?;
                    // No change of the removed file returns.
                    let now = self.now();
                    self.histories[file].lock().synced = now;
                    self.create(file)?;
                }
                2 => {
                    let _alone = self.locks[file].write();
                    let punch = || self.cell.file(ino)?.punch(page as u64 * PAGE, PAGE);
                    self.change(file, of_pages(page..page + 1), 0, punch)?;
                }
                3 => self.cell.write_back.destage()?,
                4..=7 => {
                    let _shared = self.locks[file].read();
                    self.sync(file)?;
                }
                8..=12 => {
                    let _shared = self.locks[file].read();
                    let sector = random.below(SECTORS as u64) as usize;
                    self.write(file, sector..sector + 1)?;
                }
                13..=18 => {
                    let _shared = self.locks[file].read();
                    self.read(file, of_pages(page..(page + 2).min(SECTORS / 2)))?;
                }
                _ => {
                    let _shared = self.locks[file].read();
                    let page = if random.below(2) == 0 { page } else { page % 2 };
                    self.write(file, of_pages(page..(page + 1 + random.below(2) as usize).min(SECTORS / 2)))?;
                }
            }
        }
    }
}

#[test]
fn threads_lose_no_synced_change_in_a_crash() {
    for seed in seeds_up_to(if is_long() { 5000 } else { 8 }) {
        println!("SEED={seed}");
        let (mut machine, mut random) = (Machine::new(), Random::seeded(seed));
        machine.takes_redo = seed % 4 > 1;
        if seed % 2 == 1 {
            machine.write_at_once();
        }
        let files = Files {
            cell: machine.start(BOTH, &[]).unwrap(),
            clock: AtomicU64::new(1),
            number: AtomicU32::default(),
            locks: Default::default(),
            histories: Default::default(),
        };
        (0..FILES as usize).for_each(|file| files.create(file).unwrap());
        machine.disks.power_off_after(1 + random.below(3000));
        // Lets other threads run in the middle of a destage or sync.
        machine.hooks.set(|_, _| {
            std::thread::yield_now();
            Ok(())
        });
        if random.below(3) == 0 {
            machine.breakers[random.below(2) as usize].break_after(random.below(500));
        }
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (files, mut random) = (&files, Random::seeded(seed << 8 | thread));
                scope.spawn(move || files.work(&mut random).unwrap_err());
            }
        });
        assert!(machine.disks.is_off());
        let crash = if random.below(4) == 0 { Crash::Kill } else { Crash::Power };
        let machine = machine.crash(crash, &mut random);
        let histories: Vec<History> = files.histories.into_iter().map(Mutex::into_inner).collect();
        let known: Vec<usize> = (0..histories.len()).filter(|file| histories[*file].is_known).collect();
        let inodes: Vec<u64> = known.iter().map(|file| INO_FIRST + *file as u64).collect();
        let lacking = machine.lacking();
        for (file, ino) in known.iter().zip(&inodes) {
            let ((found, _), history) = (machine.read_below(*ino, &(0..SECTORS)), &histories[*file]);
            let checked = history.check(&(0..SECTORS), &found, history.synced);
            assert!(checked.is_ok() || lacking.contains(ino), "inode {ino} is not among {lacking:?}: {checked:?}");
        }
        let cell = machine.start_after_crash(BOTH, &inodes).unwrap();
        for file in known {
            let history = &histories[file];
            let found = cell.read(INO_FIRST + file as u64, &(0..SECTORS)).unwrap();
            history.check(&(0..SECTORS), &found, history.synced).unwrap();
        }
    }
}
