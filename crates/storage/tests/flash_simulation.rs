//! Seeded histories with a flash cache: changes, reads, compression, crashes at any operation of cell disks and flash disk,
//! flash disks that break, and starts without them. Whatever happened, the content that the cache returns is the content of
//! the cell disks.

use crate::support;
use cellar_storage::disk::{Disk, Fault, FaultyDisk};
use cellar_storage::{DiskMode, FlashOptions, FlashSetting, ROOT_INO, Redundancy, Result, Volume, VolumeOptions};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::breakable_disk::{BreakableDisk, Breaker};
use support::history::{File, change, check, run_histories, seeds};
use support::memory_disk::{Crash, MemoryDisks};
use support::mirrored::{modes, wait_for_resync};
use support::{Random, options, read_all};

/// Histories of `make test`; LONG=1 runs more.
const SEEDS: u64 = 6;
const SEEDS_LONG: u64 = 2000;
const ROUNDS: u64 = 10;
const PAGE: usize = 8192;

struct History {
    random: Random,
    /// The last one is the flash disk.
    disks: MemoryDisks,
    redundancy: Redundancy,
    /// Small ones evict all the time.
    segment_bytes: u64,
    files: BTreeMap<String, File>,
    /// Read requests that flash answered, and those among them right after a start.
    hits: u64,
    surviving_hits: u64,
    broken: u64,
}

impl History {
    fn new(seed: u64) -> Self {
        let mut random = Random::seeded(seed);
        let redundancy = if random.below(3) == 0 { Redundancy::Normal } else { Redundancy::External };
        let disks = MemoryDisks::new(redundancy.copies() + 1);
        let segment_bytes = [20 << 10, 64 << 10, 256 << 10][random.below(3) as usize];
        let files = BTreeMap::new();
        Self { random, disks, redundancy, segment_bytes, files, hits: 0, surviving_hits: 0, broken: 0 }
    }

    fn open(&self, disks: &MemoryDisks, flash_breaker: Option<&Breaker>) -> Result<Arc<Volume>> {
        self.open_on(disks.disks(), flash_breaker, |_, disk| disk)
    }

    /// Opens the volume on disks that are wrapped by number.
    fn open_on(
        &self,
        mut disks: Vec<Arc<dyn Disk>>,
        flash_breaker: Option<&Breaker>,
        wrap: impl Fn(usize, Arc<dyn Disk>) -> Arc<dyn Disk>,
    ) -> Result<Arc<Volume>> {
        let inner = disks.pop().unwrap();
        let disks = disks.into_iter().enumerate().map(|(number, disk)| wrap(number, disk)).collect();
        let flash = flash_breaker.map(|breaker| FlashOptions {
            disks: vec![Arc::new(BreakableDisk { inner, breaker: breaker.clone() }) as Arc<dyn Disk>],
            size: Some(16 * self.segment_bytes),
            columnar_bytes: 0,
            segment_bytes: self.segment_bytes,
            fills_in_background: false,
            timeout: None,
        });
        let options = VolumeOptions { redundancy: self.redundancy, intent_idle: Duration::ZERO, flash, ..options() };
        Volume::open(disks, options)
    }

    /// Compares every file, read page by page through the cache, with the content of the cell disks.
    fn compare(&mut self, volume: &Volume) {
        if self.disks.is_off() {
            return;
        }
        let copy = self.disks.crash(Crash::Kill, &mut self.random);
        let without = self.open(&copy, None).expect("the copy has power");
        for name in self.files.keys() {
            let (Some(ino), Some(other)) = (volume.resolve(name), without.resolve(name)) else { continue };
            let expected = read_all(&without, other);
            for (number, expected) in expected.chunks(PAGE).enumerate() {
                let mut found = vec![0; expected.len()];
                match volume.read(ino, (number * PAGE) as u64, &mut found) {
                    Ok(count) => assert!(found[..count] == *expected, "page {number} of {name}"),
                    Err(error) => return assert!(self.disks.is_off(), "{error}"),
                }
            }
        }
        without.abandon();
    }

    fn read_some(&mut self, volume: &Volume) {
        for name in self.files.keys() {
            let Some(ino) = volume.resolve(name) else { continue };
            let size = volume.size(ino).unwrap_or(0);
            let mut buffer = vec![0; 1 + self.random.below(3 * PAGE as u64) as usize];
            if self.random.below(8) == 0 {
                let setting = FlashSetting::ALL[self.random.below(3) as usize];
                let _after_power_off = volume.set_flash_setting(ino, setting);
            }
            for _ in 0..4 {
                let _after_power_off = volume.read(ino, self.random.below(size + 1), &mut buffer);
            }
        }
    }

    fn round(&mut self, round: u64) {
        let breaker = Breaker::new();
        let with_flash = self.random.below(6) != 0;
        if with_flash && self.random.below(5) == 0 {
            breaker.break_after(self.random.below(400));
            self.broken += 1;
        }
        match self.open(&self.disks.clone(), with_flash.then_some(&breaker)) {
            Ok(volume) if self.disks.is_off() => volume.abandon(),
            Ok(volume) => {
                // Reads fill the cache: the checks are not to lose power.
                self.disks.power_off_after(1 << 40);
                self.compare(&volume);
                self.surviving_hits += volume.flash_stats().map_or(0, |stats| stats.read_hits);
                check(&volume, &mut self.files);
                let limit = if self.random.below(3) == 0 { 80 } else { 2500 };
                self.disks.power_off_after(1 + self.random.below(limit));
                let mut changed = Ok(());
                // A read after a change would often write the intent that the change needed.
                let reads = self.random.below(2) == 0;
                for part in 0..6 {
                    let steps = 1 + self.random.below(10);
                    changed = changed
                        .and_then(|()| change(&volume, &mut self.files, round * 10 + part, steps, &mut self.random));
                    if reads {
                        self.read_some(&volume);
                    }
                }
                if reads {
                    self.compare(&volume);
                }
                self.hits += volume.flash_stats().map_or(0, |stats| stats.read_hits);
                if changed.is_ok() && self.random.below(3) == 0 && volume.close().is_ok() {
                    self.files.values_mut().for_each(File::synced);
                }
                volume.abandon();
            }
            Err(error) => assert!(self.disks.is_off(), "round {round}: {error}"),
        }
        self.disks = self.disks.crash_until_next((80, 2500), &mut self.random);
    }
}

#[test]
fn the_cache_returns_what_the_disks_have_after_any_crash() {
    let (histories, failed) = run_histories(seeds(SEEDS, SEEDS_LONG), |seed| {
        let mut history = History::new(seed);
        (0..ROUNDS).for_each(|round| history.round(round));
        (history.hits, history.surviving_hits, history.broken)
    });
    let (mut hits, mut surviving, mut broken) = (0, 0, 0);
    for counts in histories {
        (hits, surviving, broken) = (hits + counts.0, surviving + counts.1, broken + counts.2);
    }
    println!("{hits} hits, {surviving} of pages that survived, {broken} broken flash disks");
    assert!(failed.is_empty(), "run again with SEED= one of {failed:?}");
    assert!(std::env::var("SEED").is_ok() || hits > 500 && surviving > 50 && broken > 2);
}

/// Returns the first byte of the page of `file`.
fn content(volume: &Volume) -> u8 {
    let mut bytes = vec![0; PAGE];
    volume.read(volume.resolve("file").unwrap(), 0, &mut bytes).unwrap();
    bytes[0]
}

#[test]
fn a_start_without_the_flash_disk_makes_its_contents_void() {
    let history = History::new(1);
    let (disks, breaker) = (MemoryDisks::new(history.redundancy.copies() + 1), Breaker::new());
    let open = |flash: bool| history.open(&disks, flash.then_some(&breaker)).unwrap();
    let volume = open(true);
    let ino = volume.create(ROOT_INO, b"file", &support::new_file()).unwrap().ino;
    volume.write(ino, 0, &vec![1; PAGE]).unwrap();
    volume.fsync(ino).unwrap();
    assert_eq!(content(&volume), 1);
    volume.close().unwrap();
    drop(volume);
    let volume = open(true);
    assert_eq!((content(&volume), volume.flash_stats().unwrap().read_hits), (1, 1));
    volume.close().unwrap();
    drop(volume);
    let volume = open(false);
    volume.write(volume.resolve("file").unwrap(), 0, &vec![2; PAGE]).unwrap();
    volume.close().unwrap();
    drop(volume);
    let volume = open(true);
    assert_eq!((content(&volume), volume.flash_stats().unwrap().read_hits), (2, 0));
    volume.close().unwrap();
}

/// Two copies, the second of which is offline when the flash cache is disowned, then returns and is used without the first one.
fn check_disk_that_returns(disown: impl FnOnce(&dyn Fn(bool) -> Arc<Volume>, Arc<Volume>, &Breaker) -> Arc<Volume>) {
    let history = History { redundancy: Redundancy::Normal, ..History::new(1) };
    let (disks, breaker) = (MemoryDisks::new(3), Breaker::new());
    let open = |flash: bool| history.open(&disks, flash.then_some(&breaker)).unwrap();
    let write = |volume: &Volume, byte: u8| {
        let ino = volume.resolve("file").unwrap();
        volume.write(ino, 0, &vec![byte; PAGE]).unwrap();
        volume.fsync(ino).unwrap();
    };
    let path = |number: usize| disks.disks()[number].path().to_owned();
    let volume = open(true);
    volume.create(ROOT_INO, b"file", &support::new_file()).unwrap();
    write(&volume, 1);
    assert_eq!((content(&volume), content(&volume)), (1, 1));
    assert_eq!(volume.flash_stats().unwrap().read_hits, 1);
    volume.offline_disk(&path(1)).unwrap();
    let volume = disown(&open, volume, &breaker);
    write(&volume, 2);
    if modes(&volume)[1] == DiskMode::Offline {
        // A start brings the disk online by itself.
        let _begun = volume.online_disk(disks.disks().remove(1));
    }
    wait_for_resync(&volume);
    volume.offline_disk(&path(0)).unwrap();
    volume.close().unwrap();
    drop(volume);
    breaker.repair();
    let volume = open(true);
    assert_eq!((content(&volume), volume.flash_stats().unwrap().read_hits), (2, 0));
    volume.close().unwrap();
}

#[test]
fn a_cell_disk_that_returns_after_the_flash_disk_failed_does_not_name_the_cache() {
    check_disk_that_returns(|_, volume, breaker| {
        breaker.break_after(0);
        volume.write(volume.resolve("file").unwrap(), 0, &vec![3; PAGE]).unwrap();
        assert!(!volume.flash_stats().unwrap().is_on);
        volume
    });
}

#[test]
fn a_cell_disk_that_returns_after_a_start_without_flash_does_not_name_the_cache() {
    check_disk_that_returns(|open, volume, _| {
        volume.close().unwrap();
        drop(volume);
        open(false)
    });
}

#[test]
fn a_flash_disk_that_hangs_is_switched_off_and_a_stop_does_not_wait_for_it() {
    let (disks, timeout) = (MemoryDisks::new(2), Duration::from_secs(1));
    let mut cell_disks = disks.disks();
    let flash_disk = Arc::new(FaultyDisk::new(cell_disks.pop().unwrap(), 1));
    let segment_bytes = 64 << 10;
    let flash = FlashOptions {
        disks: vec![flash_disk.clone()],
        size: Some(16 * segment_bytes),
        columnar_bytes: 0,
        segment_bytes,
        fills_in_background: true,
        timeout: Some(timeout),
    };
    let volume = Volume::open(cell_disks, VolumeOptions { flash: Some(flash), ..options() }).unwrap();
    let ino = volume.create(ROOT_INO, b"file", &support::new_file()).unwrap().ino;
    let mut bytes = vec![1; PAGE];
    volume.write(ino, 0, &bytes).unwrap();
    volume.fsync(ino).unwrap();
    volume.read(ino, 0, &mut bytes).unwrap();
    while volume.flash_stats().unwrap().used_bytes == 0 {
        std::thread::yield_now();
    }
    flash_disk.set_faults(&[Fault::HeldSync, Fault::HeldRead]);
    let started = Instant::now();
    // The intent cannot be made durable.
    volume.write(ino, 0, &vec![2; PAGE]).unwrap();
    volume.read(ino, 0, &mut bytes).unwrap();
    assert_eq!((bytes[0], volume.flash_stats().unwrap().is_on), (2, false));
    volume.close().unwrap();
    assert!(started.elapsed() < 20 * timeout && flash_disk.held() > 0, "{:?}", started.elapsed());
    flash_disk.set_faults(&[]);
}

#[test]
fn a_copy_that_fails_with_the_flash_disk_leaves_the_group() {
    let history = History { redundancy: Redundancy::Normal, ..History::new(1) };
    let (disks, breaker) = (MemoryDisks::new(3), Breaker::new());
    let volume = history
        .open_on(disks.disks(), Some(&breaker), |number, inner| match number {
            1 => Arc::new(BreakableDisk { inner, breaker: breaker.clone() }),
            _ => inner,
        })
        .unwrap();
    let ino = volume.create(ROOT_INO, b"file", &support::new_file()).unwrap().ino;
    let mut bytes = vec![1; PAGE];
    volume.write(ino, 0, &bytes).unwrap();
    volume.fsync(ino).unwrap();
    (0..2).for_each(|_| assert_eq!(volume.read(ino, 0, &mut bytes).unwrap(), PAGE));
    assert_eq!(volume.flash_stats().unwrap().read_hits, 1);
    breaker.break_after(0);
    volume.write(ino, 0, &vec![2; PAGE]).unwrap();
    volume.fsync(ino).unwrap();
    assert_eq!((modes(&volume)[1], volume.flash_stats().unwrap().is_on), (DiskMode::Offline, false));
    volume.close().unwrap();
    drop(volume);
    breaker.repair();
    let volume = history.open(&disks, Some(&breaker)).unwrap();
    volume.read(volume.resolve("file").unwrap(), 0, &mut bytes).unwrap();
    assert_eq!((bytes[0], volume.flash_stats().unwrap().read_hits), (2, 0));
    volume.close().unwrap();
}

#[test]
fn a_flash_disk_that_fails_is_switched_off_and_its_contents_do_not_return() {
    let history = History::new(1);
    let (disks, breaker) = (MemoryDisks::new(history.redundancy.copies() + 1), Breaker::new());
    let volume = history.open(&disks, Some(&breaker)).unwrap();
    let ino = volume.create(ROOT_INO, b"file", &support::new_file()).unwrap().ino;
    volume.write(ino, 0, &vec![1; PAGE]).unwrap();
    volume.fsync(ino).unwrap();
    assert_eq!((content(&volume), content(&volume)), (1, 1));
    assert!(volume.flash_stats().unwrap().is_on);
    breaker.break_after(0);
    // The intent of the write cannot be made durable.
    volume.write(ino, 0, &vec![2; PAGE]).unwrap();
    volume.fsync(ino).unwrap();
    assert!(!volume.flash_stats().unwrap().is_on);
    assert_eq!(content(&volume), 2);
    volume.abandon();
    drop(volume);
    breaker.repair();
    let volume = history.open(&disks, Some(&breaker)).unwrap();
    assert_eq!((content(&volume), volume.flash_stats().unwrap().read_hits), (2, 0));
    volume.close().unwrap();
}
