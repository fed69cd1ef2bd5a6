//! Crashes of the daemon and of the machine, between and during operations on a file with compression units. Each
//! crash is followed by a comparison with a model.
//!
//! The model records the versions of every sector since the last sync. After a loss of power, each sector has one of
//! these versions. After a crash of the daemon, it has the last version, or that of the interrupted operation.

use crate::support;
use cellar_format::units::{AuIndex, RegionIndex};
use cellar_storage::{Fallocate, Ino, UnitStored, Volume};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use support::codec::{PAGE, compress, compress_together};
use support::memory_disk::{Crash, MemoryDisks};
use support::{MIB, Random, create, options};

const SECTOR: usize = 4096;
const SIZE_MAX: u64 = 3 * MIB;

#[derive(Clone)]
struct Model {
    bytes: Vec<u8>,
    /// The versions of each sector since the last sync, with zeros beyond the end of the file; the last is current.
    sectors: Vec<Vec<Arc<[u8]>>>,
    sizes: Vec<u64>,
}

impl Model {
    fn new() -> Self {
        let zeros: Arc<[u8]> = vec![0; SECTOR].into();
        Self { bytes: Vec::new(), sectors: vec![vec![zeros]; (SIZE_MAX as usize).div_ceil(SECTOR)], sizes: vec![0] }
    }

    fn sector(&self, number: usize) -> Arc<[u8]> {
        let mut bytes = vec![0; SECTOR];
        let part = self.bytes.get(number * SECTOR..).unwrap_or_default();
        let count = part.len().min(SECTOR);
        bytes[..count].copy_from_slice(&part[..count]);
        bytes.into()
    }

    /// Records the current content of the sectors from byte `from` to byte `to`, and the current size, as new versions.
    fn record(&mut self, from: usize, to: usize) {
        for number in from / SECTOR..to.div_ceil(SECTOR).min(self.sectors.len()) {
            let sector = self.sector(number);
            if self.sectors[number].last() != Some(&sector) {
                self.sectors[number].push(sector);
            }
        }
        self.sizes.push(self.bytes.len() as u64);
    }

    fn write(&mut self, offset: usize, data: &[u8]) {
        let size = self.bytes.len();
        self.bytes.resize(size.max(offset + data.len()), 0);
        self.bytes[offset..offset + data.len()].copy_from_slice(data);
        self.record(offset.min(size), offset + data.len());
    }

    fn truncate(&mut self, size: usize) {
        let before = self.bytes.len();
        self.bytes.resize(size, 0);
        self.record(size.min(before), size.max(before));
    }

    fn zero(&mut self, from: usize, to: usize) {
        let to = to.min(self.bytes.len());
        if from < to {
            self.bytes[from..to].fill(0);
            self.record(from, to);
        }
    }

    fn sync(&mut self) {
        for sector in &mut self.sectors {
            sector.drain(..sector.len() - 1);
        }
        self.sizes = vec![self.bytes.len() as u64];
    }

    /// Checks that a crash may leave the content `found`, and makes it the new synced state.
    fn check_after_crash(&mut self, found: Vec<u8>, what: &str) {
        let (least, most) = (*self.sizes.iter().min().unwrap(), *self.sizes.iter().max().unwrap());
        let size = found.len() as u64;
        assert!((least..=most).contains(&size), "{what}: {size} bytes instead of {least} to {most}");
        for (number, sector) in found.chunks(SECTOR).enumerate() {
            let known = self.sectors[number].iter().any(|known| known[..sector.len()] == *sector);
            let is_new = (number * SECTOR + sector.len()) as u64 > least;
            let is_zero = *sector == [0; SECTOR][..sector.len()];
            assert!(
                known || is_new && is_zero,
                "{what}: page {} of {} bytes has content that was never written; first bytes {:?}, known {:?}",
                number as f64 / 2.0,
                size,
                &sector[..8],
                self.sectors[number].iter().map(|known| &known[..8]).collect::<Vec<_>>()
            );
        }
        self.bytes = found;
        for number in 0..self.sectors.len() {
            self.sectors[number] = vec![self.sector(number)];
        }
        self.sizes = vec![self.bytes.len() as u64];
    }
}

struct Pair {
    disks: MemoryDisks,
    volume: Arc<Volume>,
    ino: Ino,
    model: Model,
    random: Random,
    count: [u64; 12],
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Write {
        offset: u64,
        length: usize,
    },
    Truncate(u64),
    Punch {
        offset: u64,
        length: u64,
    },
    Sync,
    Compress(u64),
    /// Compresses all allocation units together.
    CompressAll,
    Decompress(u64),
}

impl Pair {
    fn new(disks: usize, size: u64, random: Random) -> Self {
        let disks = MemoryDisks::new(disks);
        let volume = Volume::open(disks.disks(), options()).unwrap();
        let ino = create(&volume, "file");
        let mut pair = Self { disks, volume, ino, model: Model::new(), random, count: [0; 12] };
        pair.write(0, size as usize);
        pair.run(Step::Sync);
        pair
    }

    fn write(&mut self, offset: u64, length: usize) {
        let data = self.random.bytes(length);
        self.volume.write(self.ino, offset, &data).unwrap();
        self.model.write(offset as usize, &data);
    }

    fn choose(&mut self) -> Step {
        let random = &mut self.random;
        let size = self.model.bytes.len() as u64;
        let au = random.below(size.div_ceil(MIB).max(1));
        match random.below(40) {
            0..16 => {
                let length = match random.below(4) {
                    0 => PAGE,
                    1 => 4096,
                    _ => 1 + random.below(40_000) as usize,
                };
                let offset = random.below(size.max(1));
                let offset = if random.below(2) == 0 { offset / 4096 * 4096 } else { offset };
                Step::Write { offset, length: length.min((SIZE_MAX - offset) as usize) }
            }
            16..18 => {
                let size = random.below(SIZE_MAX);
                Step::Truncate(if random.below(2) == 0 { size / PAGE as u64 * PAGE as u64 } else { size })
            }
            18..20 => Step::Punch { offset: random.below(SIZE_MAX), length: 1 + random.below(MIB) },
            20..25 => Step::Sync,
            25..34 => Step::Compress(au),
            34..37 => Step::CompressAll,
            _ => Step::Decompress(au),
        }
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Write { offset, length } => self.write(offset, length),
            Step::Truncate(size) => {
                self.volume.truncate(self.ino, size).unwrap();
                self.model.truncate(size as usize);
            }
            Step::Punch { offset, length } => {
                self.volume.fallocate(self.ino, offset, length, Fallocate::PunchHole).unwrap();
                self.model.zero(offset as usize, (offset + length) as usize);
            }
            Step::Sync => {
                self.volume.fsync(self.ino).unwrap();
                self.model.sync();
            }
            Step::Compress(au) => {
                if self.model.bytes.len() as u64 >= au * MIB + PAGE as u64 {
                    let stored = compress(&self.volume, self.ino, au, au as u32).unwrap();
                    assert_eq!(stored, UnitStored::Stored);
                }
            }
            Step::CompressAll => {
                let whole_aus = (self.model.bytes.len() as u64 + MIB - PAGE as u64) / MIB;
                let stored = compress_together(&self.volume, self.ino, 0..whole_aus, || {}).unwrap();
                assert!(stored.iter().all(|stored| *stored == UnitStored::Stored));
            }
            Step::Decompress(au) => drop(self.volume.decompress(self.ino, AuIndex(au)).unwrap()),
        }
    }

    fn check(&mut self) {
        let size = self.model.bytes.len() as u64;
        assert_eq!(self.volume.size(self.ino).unwrap(), size);
        let offset = self.random.below(size.max(1));
        let mut bytes = vec![0; 1 + self.random.below(100_000) as usize];
        let count = self.volume.read(self.ino, offset, &mut bytes).unwrap();
        assert!(bytes[..count] == self.model.bytes[offset as usize..][..count], "read at {offset}");
        let region = self.random.below(size.div_ceil(MIB).max(1)) as usize;
        let expected = self.model.bytes.chunks(MIB as usize).nth(region).unwrap_or_default();
        assert!(self.volume.region(self.ino, RegionIndex(region as u32)).unwrap()[..] == *expected, "region {region}");
    }

    /// Crashes, reopens the volume and checks the content.
    fn crash(&mut self, crash: Crash, what: &str) {
        let disks = self.disks.crash(crash, &mut self.random);
        self.volume.abandon();
        self.disks = disks;
        // A crash may also interrupt recovery. After a kill, recovery first syncs each disk: until then, a loss of power may
        // lose acknowledged writes.
        let first = if crash == Crash::Kill { self.disks.count() } else { 1 };
        self.disks.freeze_after(first + self.random.below(30));
        self.volume = Volume::open(self.disks.disks(), options()).unwrap();
        if self.random.below(2) == 0 && self.disks.is_frozen() {
            let disks = self.disks.crash([Crash::Kill, Crash::Power][self.random.below(2) as usize], &mut self.random);
            self.volume.abandon();
            self.disks = disks;
            self.volume = Volume::open(self.disks.disks(), options()).unwrap();
        }
        self.disks.thaw();
        assert_eq!(self.volume.resolve("file"), Some(self.ino));
        let found = support::read_all(&self.volume, self.ino);
        self.model.check_after_crash(found, what);
        self.count[crash as usize] += 1;
    }

    fn crash_between(&mut self, crash: Crash) {
        if crash == Crash::Kill {
            self.model.sync();
        }
        self.crash(crash, &format!("{crash:?} between steps"));
    }

    /// Runs a step and crashes after `changes` changes on the disks. Returns false if the step made fewer changes.
    fn crash_within(&mut self, step: Step, changes: u64, crash: Crash) -> bool {
        let mut before = self.model.clone();
        self.disks.freeze_after(changes);
        self.run(step);
        if !self.disks.is_frozen() {
            self.disks.thaw();
            return false;
        }
        match (step, crash) {
            (Step::Sync, _) => self.model = before,
            // All writes acknowledged before the step survive.
            (_, Crash::Kill) => {
                before.sync();
                let after = std::mem::replace(&mut self.model, before);
                for number in 0..after.sectors.len() {
                    self.model.sectors[number].push(after.sectors[number].last().unwrap().clone());
                }
                self.model.sizes.extend(after.sizes.last());
            }
            _ => {}
        }
        if crash == Crash::Kill && matches!(step, Step::Sync) {
            self.model.sync();
        }
        self.crash(crash, &format!("{crash:?} within {step:?} after {changes} changes"));
        true
    }
}

fn random_steps(disks: usize) {
    let mut pair = Pair::new(disks, 2 * MIB + 12345, Random::from_environment());
    for _ in 0..300 {
        let step = pair.choose();
        match pair.random.below(20) {
            0 => pair.crash_between(Crash::Kill),
            1 => pair.crash_between(Crash::Power),
            number @ 2..8 => {
                let crash = if number % 2 == 0 { Crash::Kill } else { Crash::Power };
                let changes = 1 + pair.random.below(12);
                pair.crash_within(step, changes, crash);
            }
            _ => pair.run(step),
        }
        pair.check();
    }
    assert!(pair.count[0] > 10 && pair.count[1] > 10, "{:?}", pair.count);
}

/// Crashes while one thread writes increasing numbers to pages and another syncs. Returns the number of half pages that
/// are newer after the crash than at the last sync.
fn crash_among_threads(crash: Crash, random: &mut Random) -> usize {
    const PAGES: usize = 128;
    let disks = MemoryDisks::new(2);
    let volume = &*Volume::open(disks.disks(), options()).unwrap();
    let ino = create(volume, "file");
    let page = |number: u64| number.to_le_bytes().repeat(PAGE / 8);
    volume.write(ino, 0, &page(1).repeat(PAGES)).unwrap();
    assert_eq!(compress(volume, ino, 0, 0).unwrap(), UnitStored::Stored);
    let number = || AtomicU64::new(1);
    let (acknowledged, synced): (Vec<_>, Vec<_>) = (0..PAGES).map(|_| (number(), number())).unzip();
    let (stop, pause) = (AtomicBool::new(false), random.below(60));
    let values = |numbers: &[AtomicU64]| numbers.iter().map(|number| number.load(Ordering::SeqCst)).collect::<Vec<_>>();
    let mut writer_random = random.clone();
    let (least_acknowledged, least_synced, left) = std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 2.. {
                if stop.load(Ordering::SeqCst) {
                    break;
                }
                let at = writer_random.below(PAGES as u64);
                volume.write(ino, at * PAGE as u64, &page(number)).unwrap();
                acknowledged[at as usize].store(number, Ordering::SeqCst);
                // Slow down, so that some pages are not written before the crash.
                std::thread::sleep(std::time::Duration::from_micros(300));
            }
        });
        scope.spawn(|| {
            while !stop.load(Ordering::SeqCst) {
                let before = values(&acknowledged);
                volume.fsync(ino).unwrap();
                synced.iter().zip(before).for_each(|(synced, number)| synced.store(number, Ordering::SeqCst));
            }
        });
        std::thread::sleep(std::time::Duration::from_millis(pause));
        let least = (values(&acknowledged), values(&synced));
        let left = disks.crash(crash, random);
        stop.store(true, Ordering::SeqCst);
        (least.0, least.1, left)
    });
    volume.abandon();
    let volume = Volume::open(left.disks(), options()).unwrap();
    let found = support::read_all(&volume, ino);
    let mut newer = 0;
    for (at, bytes) in found.chunks_exact(PAGE).enumerate() {
        let least = if crash == Crash::Kill { least_acknowledged[at] } else { least_synced[at] };
        for half in bytes.chunks_exact(SECTOR) {
            let number = u64::from_le_bytes(half[..8].try_into().unwrap());
            assert!(
                half.chunks_exact(8).all(|eight| eight == number.to_le_bytes()),
                "page {at} has content that was never written"
            );
            assert!(number >= least, "page {at} has number {number}, expected at least {least}, after {crash:?}");
            newer += (number > least_synced[at]) as usize;
        }
    }
    newer
}

#[test]
fn a_crash_during_concurrent_writes_and_syncs_loses_no_acknowledged_or_synced_write() {
    let mut random = Random::from_environment();
    for crash in [Crash::Kill, Crash::Power] {
        let newer: usize = (0..15).map(|_| crash_among_threads(crash, &mut random)).sum();
        assert!(crash == Crash::Power || newer > 0, "no crash found a page that was not synced");
    }
}

#[test]
fn pages_that_the_kernel_drops_after_a_failed_sync_are_restored_from_the_redo_log() {
    let mut random = Random::from_environment();
    let disks = MemoryDisks::new(1);
    let volume = Volume::open(disks.disks(), options()).unwrap();
    let ino = create(&volume, "file");
    let mut expected = random.bytes(MIB as usize);
    volume.write(ino, 0, &expected).unwrap();
    volume.fsync(ino).unwrap();
    assert_eq!(compress(&volume, ino, 0, 0).unwrap(), UnitStored::Stored);
    for number in 0..3 {
        volume.write(ino, number * 5000, &[number as u8; 3000]).unwrap();
        expected[number as usize * 5000..][..3000].fill(number as u8);
    }
    disks.lose_next_sync();
    assert_eq!(volume.fsync(ino).unwrap_err().errno(), 5);
    assert!(support::read_all(&volume, ino) == expected);
    volume.fsync(ino).unwrap();
    let left = disks.crash(Crash::Power, &mut random);
    volume.abandon();
    assert!(support::read_all(&Volume::open(left.disks(), options()).unwrap(), ino) == expected);
}

#[test]
fn random_steps_and_crashes_on_one_disk() {
    random_steps(1);
}

#[test]
fn random_steps_and_crashes_on_three_disks() {
    random_steps(3);
}

/// Crashes at the points of every step, starting with units, raw pages and pages in the redo log.
fn every_crash_point(crash: Crash) {
    let mut random = Random::from_environment();
    let steps = [
        Step::Compress(0),
        Step::Compress(1),
        Step::CompressAll,
        Step::Decompress(0),
        Step::Truncate(MIB / 2 + PAGE as u64 * 3),
        Step::Truncate(MIB / 2 + 1000),
        Step::Punch { offset: 100_000, length: 400_000 },
        Step::Write { offset: 64 * PAGE as u64 - 100, length: 30_000 },
        Step::Write { offset: 4096, length: 4096 },
        Step::Sync,
    ];
    for step in steps {
        // Every eighth point, starting at random; every point if LONG is set.
        let stride = if std::env::var_os("LONG").is_some() { 1 } else { 8 };
        for changes in (1 + random.below(stride)..).step_by(stride as usize) {
            let mut pair = Pair::new(2, MIB + 50_000, random.clone());
            random.next();
            pair.run(Step::Compress(0));
            pair.run(Step::Write { offset: 2 * PAGE as u64, length: PAGE });
            pair.run(Step::Sync);
            pair.run(Step::Write { offset: 20_000, length: 30_000 });
            pair.run(Step::Write { offset: 5, length: 5 });
            if !pair.crash_within(step, changes, crash) {
                assert!(changes > 1, "{step:?} changed nothing");
                break;
            }
            // The volume continues to work, and later changes survive too.
            pair.run(Step::Write { offset: 12_000, length: 9000 });
            pair.run(Step::Sync);
            pair.run(Step::Compress(0));
            pair.check();
            pair.crash_between(Crash::Power);
            pair.check();
        }
    }
}

#[test]
fn a_kill_of_the_daemon_at_any_point_loses_no_acknowledged_write() {
    every_crash_point(Crash::Kill);
}

#[test]
fn a_loss_of_power_at_any_point_loses_no_synced_write() {
    every_crash_point(Crash::Power);
}
