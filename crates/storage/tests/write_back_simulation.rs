//! Seeded histories with a write-back log on two flash disks: changes, reads, compression, crashes at any operation of cell disks
//! and flash disks, a flash disk that breaks, and starts without one of them. Whatever happened, no synced change is lost, and no
//! older page returns.

use crate::support;
use cellar_format::wire::FileType;
use cellar_storage::disk::Disk;
use cellar_storage::request::{IoKind, Origin, within};
use cellar_storage::{
    ErrorKind, FlashOptions, ROOT_INO, Redundancy, Result, Volume, VolumeOptions, WriteBackOptions, WriteBackStats,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use support::breakable_disk::{BreakableDisk, Breaker};
use support::history::{File, change, check, check_current, overwrite_pages, run_histories, seeds};
use support::memory_disk::{Crash, MemoryDisks};
use support::{Random, options, read_all};

/// Histories of `make test`; LONG=1 runs more.
const SEEDS: u64 = 6;
const SEEDS_LONG: u64 = 2000;
const ROUNDS: u64 = 10;
const PAGE: usize = 8192;
const SEGMENT: u64 = 64 << 10;

const WRITE_BACK: WriteBackOptions = WriteBackOptions {
    size: 8 * SEGMENT,
    segment_bytes: SEGMENT,
    allows_one_disk: true,
    takes_redo: false,
    destages_in_background: false,
};

/// What happened in a history.
#[derive(Debug, Default)]
struct Counts {
    recovered: u64,
    destaged: u64,
    broken: u64,
    /// Starts with one flash disk of two.
    lost: u64,
    /// Those among them that were refused, because the other one had failed before.
    refused: u64,
}

struct History {
    random: Random,
    /// The last two are flash disks.
    disks: MemoryDisks,
    redundancy: Redundancy,
    files: BTreeMap<String, File>,
    counts: Counts,
}

/// The flash disks of a start: None for one that is lost.
type FlashDisks<'a> = [Option<&'a Breaker>; 2];

fn open(
    disks: &MemoryDisks,
    redundancy: Redundancy,
    flash: FlashDisks<'_>,
    write_back: Option<WriteBackOptions>,
) -> Result<Arc<Volume>> {
    let mut disks = disks.disks();
    let flash_disks = disks.split_off(disks.len() - 2);
    let options = VolumeOptions { redundancy, write_back, ..options_with(flash_disks, flash) };
    Volume::open(disks, options)
}

fn options_with(flash_disks: Vec<Arc<dyn Disk>>, flash: FlashDisks<'_>) -> VolumeOptions {
    let flash_disk = |(inner, breaker): (Arc<dyn Disk>, Option<&Breaker>)| {
        Some(Arc::new(BreakableDisk { inner, breaker: breaker?.clone() }) as Arc<dyn Disk>)
    };
    let flash = FlashOptions {
        disks: flash_disks.into_iter().zip(flash).filter_map(flash_disk).collect(),
        size: Some(16 * SEGMENT),
        columnar_bytes: 0,
        segment_bytes: SEGMENT,
        fills_in_background: false,
        timeout: None,
    };
    VolumeOptions { intent_idle: Duration::ZERO, flash: Some(flash), write_back: Some(WRITE_BACK), ..options() }
}

fn stats(volume: &Volume) -> WriteBackStats {
    volume.write_back_stats().unwrap_or_default()
}

impl History {
    fn new(seed: u64) -> Self {
        let mut random = Random::seeded(seed);
        let redundancy = if random.below(3) == 0 { Redundancy::Normal } else { Redundancy::External };
        let disks = MemoryDisks::new(redundancy.copies() + 2);
        Self { random, disks, redundancy, files: BTreeMap::new(), counts: Counts::default() }
    }

    /// Opens the volume, sometimes without one of the flash disks or without write-back. Returns None if the power is off.
    fn start(&mut self, breakers: &[Breaker; 2]) -> Option<Arc<Volume>> {
        let write_back = (self.random.below(8) != 0).then_some(WRITE_BACK);
        let both = [Some(&breakers[0]), Some(&breakers[1])];
        let lost = self.random.below(8) as usize;
        if lost < 2 {
            let mut flash = both;
            flash[lost] = None;
            match open(&self.disks, self.redundancy, flash, write_back) {
                Ok(volume) => {
                    self.counts.lost += 1;
                    return Some(volume);
                }
                Err(_) if self.disks.is_off() => return None,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::ForeignDisk, "{error}");
                    self.counts.refused += 1;
                }
            }
        } else if self.random.below(4) == 0 {
            breakers[lost % 2].break_after(self.random.below(500));
            self.counts.broken += 1;
        }
        loop {
            match open(&self.disks, self.redundancy, both, write_back) {
                Ok(volume) => return Some(volume),
                Err(_) if self.disks.is_off() => return None,
                // The only flash disk that counts broke while the log was read.
                Err(_) if breakers.iter().any(Breaker::is_broken) => breakers.iter().for_each(Breaker::repair),
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn round(&mut self, round: u64) {
        let breakers = [Breaker::new(), Breaker::new()];
        if let Some(volume) = self.start(&breakers) {
            match self.disks.is_off() {
                true => volume.abandon(),
                false => self.run(round, &volume),
            }
        }
        self.disks = self.disks.crash_until_next((80, 2500), &mut self.random);
    }

    fn run(&mut self, round: u64, volume: &Volume) {
        // The check is not to lose power.
        self.disks.power_off_after(1 << 40);
        check(volume, &mut self.files);
        let limit = if self.random.below(3) == 0 { 80 } else { 2500 };
        self.disks.power_off_after(1 + self.random.below(limit));
        let mut changed = Ok(());
        for part in 0..6 {
            let (steps, writes) = (1 + self.random.below(6), self.random.below(20));
            changed = changed
                .and_then(|()| change(volume, &mut self.files, round * 10 + part, steps, &mut self.random))
                .and_then(|()| overwrite_pages(volume, &mut self.files, writes, &mut self.random));
            match &changed {
                Ok(()) => self.disks.with_power(|| check_current(volume, &self.files)),
                Err(error) => assert!(self.disks.is_off(), "{error}"),
            }
        }
        if changed.is_ok() && self.random.below(3) == 0 && volume.close().is_ok() {
            self.files.values_mut().for_each(File::synced);
        }
        let stats = stats(volume);
        self.counts.recovered += stats.recovered_bytes;
        self.counts.destaged += stats.destaged_bytes;
        volume.abandon();
    }
}

#[test]
fn no_synced_page_is_lost_and_no_older_page_returns_after_any_crash() {
    let (histories, failed) = run_histories(seeds(SEEDS, SEEDS_LONG), |seed| {
        let mut history = History::new(seed);
        (0..ROUNDS).for_each(|round| history.round(round));
        history.counts
    });
    let mut all = Counts::default();
    for counts in histories {
        all.recovered += counts.recovered;
        all.destaged += counts.destaged;
        all.broken += counts.broken;
        all.lost += counts.lost;
        all.refused += counts.refused;
    }
    println!("{all:?}");
    assert!(failed.is_empty(), "run again with SEED= one of {failed:?}");
    let is_enough =
        all.recovered > 20 * PAGE as u64 && all.destaged > 200 * PAGE as u64 && all.lost > 2 && all.broken > 2;
    assert!(std::env::var("SEED").is_ok() || is_enough, "{all:?}");
}

/// A file of 16 pages that the cell disks have durably, all bytes 1.
fn with_file(volume: &Volume) -> u64 {
    let ino = volume.create(ROOT_INO, b"file", &support::new_file()).unwrap().ino;
    volume.write(ino, 0, &vec![1; 16 * PAGE]).unwrap();
    volume.fsync(ino).unwrap();
    volume.fsyncdir(ROOT_INO).unwrap();
    ino
}

fn write_page(volume: &Volume, ino: u64, page: usize, byte: u8) {
    volume.write(ino, (page * PAGE) as u64, &[byte; PAGE]).unwrap();
}

#[test]
fn a_synced_page_is_in_flash_only_until_a_clean_stop_writes_it_to_the_cell_disks() {
    let (disks, breakers) = (MemoryDisks::new(3), [Breaker::new(), Breaker::new()]);
    let flash = [Some(&breakers[0]), Some(&breakers[1])];
    let volume = open(&disks, Redundancy::External, flash, Some(WRITE_BACK)).unwrap();
    let ino = with_file(&volume);
    (0..3).for_each(|byte| write_page(&volume, ino, 4, byte));
    volume.fsync(ino).unwrap();
    let found = stats(&volume);
    assert_eq!((found.dirty_bytes, found.written_bytes, found.destaged_bytes), (PAGE as u64, 3 * PAGE as u64, 0));
    assert_eq!(read_all(&volume, ino)[4 * PAGE..6 * PAGE], [[2; PAGE], [1; PAGE]].concat());
    let mut random = Random::seeded(1);
    let crashed = disks.crash(Crash::Power, &mut random);
    volume.close().unwrap();
    let found = stats(&volume);
    assert_eq!((found.dirty_bytes, found.destaged_bytes, found.destage_requests), (0, PAGE as u64, 1));
    for (disks, recovered) in [(disks, 0), (crashed, PAGE as u64)] {
        let volume = open(&disks, Redundancy::External, flash, Some(WRITE_BACK)).unwrap();
        assert_eq!(read_all(&volume, volume.resolve("file").unwrap())[4 * PAGE], 2);
        assert_eq!(stats(&volume).recovered_bytes, recovered);
        volume.close().unwrap();
    }
}

#[test]
fn a_start_without_the_log_that_the_cell_disks_name_is_refused() {
    let (disks, breakers) = (MemoryDisks::new(3), [Breaker::new(), Breaker::new()]);
    let both = [Some(&breakers[0]), Some(&breakers[1])];
    let volume = open(&disks, Redundancy::External, both, Some(WRITE_BACK)).unwrap();
    let ino = with_file(&volume);
    write_page(&volume, ino, 4, 2);
    volume.fsync(ino).unwrap();
    // The second flash disk does not have the next page.
    breakers[1].break_after(0);
    write_page(&volume, ino, 4, 3);
    volume.fsync(ino).unwrap();
    breakers[1].repair();
    volume.abandon();
    drop(volume);
    for flash in [[None, None], [None, both[1]]] {
        let error = open(&disks, Redundancy::External, flash, Some(WRITE_BACK)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ForeignDisk, "{error}");
    }
    let volume = open(&disks, Redundancy::External, [both[0], None], None).unwrap();
    assert_eq!(read_all(&volume, volume.resolve("file").unwrap())[4 * PAGE], 3);
    volume.close().unwrap();
}

#[test]
fn reads_of_pages_that_only_a_failed_flash_disk_had_fail_and_others_do_not() {
    let (disks, breaker) = (MemoryDisks::new(3), Breaker::new());
    let volume = open(&disks, Redundancy::External, [Some(&breaker), None], Some(WRITE_BACK)).unwrap();
    let ino = with_file(&volume);
    write_page(&volume, ino, 4, 2);
    volume.fsync(ino).unwrap();
    breaker.break_after(0);
    let mut page = [0; PAGE];
    volume.read(ino, 4 * PAGE as u64, &mut page).unwrap_err();
    // Takes no part in write-back any more.
    volume.write(ino, 4 * PAGE as u64, &page).unwrap_err();
    write_page(&volume, ino, 5, 3);
    volume.read(ino, 5 * PAGE as u64, &mut page).unwrap();
    assert_eq!(page[0], 3);
    volume.abandon();
    drop(volume);
    breaker.repair();
    let error = open(&disks, Redundancy::External, [Some(&breaker), None], Some(WRITE_BACK)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ForeignDisk, "{error}");
}

#[test]
fn write_back_on_one_flash_disk_is_refused_unless_it_is_allowed() {
    let (disks, breaker) = (MemoryDisks::new(3), Breaker::new());
    let options = WriteBackOptions { allows_one_disk: false, ..WRITE_BACK };
    let error = open(&disks, Redundancy::External, [Some(&breaker), None], Some(options)).unwrap_err();
    assert!(error.to_string().contains("needs two flash disks"), "{error}");
}

#[test]
fn a_start_that_is_forced_without_the_log_names_the_files_that_lack_changes() {
    let (disks, breakers) = (MemoryDisks::new(3), [Breaker::new(), Breaker::new()]);
    let both = [Some(&breakers[0]), Some(&breakers[1])];
    let options = WriteBackOptions { takes_redo: true, ..WRITE_BACK };
    let volume = open(&disks, Redundancy::External, both, Some(options)).unwrap();
    let ino = with_file(&volume);
    let [other, redo] = ["other", "redo"].map(|name| support::create(&volume, name));
    for ino in [other, redo] {
        volume.write(ino, 0, &[1; PAGE]).unwrap();
    }
    volume.sync().unwrap();
    write_page(&volume, ino, 4, 2);
    volume.fsync(ino).unwrap();
    let of_redo = Origin { kind: IoKind::Redo, ..Origin::default() };
    within(of_redo, || write_page(&volume, redo, 0, 2));
    volume.fsync(redo).unwrap();
    assert_eq!((stats(&volume).redo_requests, stats(&volume).dirty_bytes), (1, 2 * PAGE as u64));
    volume.abandon();
    drop(volume);
    let forced = || {
        let options = VolumeOptions { force_degraded: true, ..options_with(Vec::new(), [None, None]) };
        let file_type = |path: &str| if path == "redo" { FileType::Wal } else { FileType::Other };
        let options = VolumeOptions { flash: None, write_back: None, file_type, ..options };
        Volume::open(disks.disks().drain(..1).collect(), options)
    };
    let volume = forced().unwrap();
    let lacking = volume.lacking_files().unwrap();
    assert!(lacking.is_complete && lacking.inodes.iter().eq([&ino, &redo]), "{lacking:?}");
    assert_eq!(read_all(&volume, redo), [1; PAGE]);
    assert_eq!(read_all(&volume, ino)[4 * PAGE], 1);
    volume.abandon();
    drop(volume);
    assert_eq!(forced().unwrap().lacking_files(), None);
}

#[test]
fn a_cell_disk_that_returns_or_joins_names_the_log_and_the_files_that_lack_changes() {
    let (disks, breakers) = (MemoryDisks::new(5), [Breaker::new(), Breaker::new()]);
    let mut cell_disks = disks.disks();
    let options = options_with(cell_disks.split_off(3), [Some(&breakers[0]), Some(&breakers[1])]);
    let new = cell_disks.remove(2);
    let options = VolumeOptions { redundancy: Redundancy::Normal, ..options };
    let volume = Volume::open(cell_disks.clone(), options).unwrap();
    let ino = with_file(&volume);
    volume.offline_disk(cell_disks[1].path()).unwrap();
    // The notes change: one flash disk counts, and the file lacks changes.
    breakers[1].break_after(0);
    write_page(&volume, ino, 4, 2);
    volume.fsync(ino).unwrap();
    let notes = |disk: &Arc<dyn Disk>| ["write_back", "write_back_files"].map(|name| disk.read_note(name).unwrap());
    let expected = notes(&cell_disks[0]);
    assert!(expected.iter().all(Option::is_some) && notes(&cell_disks[1]) != expected);
    volume.online_disk(cell_disks[1].clone()).unwrap();
    assert_eq!(notes(&cell_disks[1]), expected);
    volume.add_disk(new.clone(), None).unwrap();
    assert_eq!(notes(&new), expected);
    volume.abandon();
}
