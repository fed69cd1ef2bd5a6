//! Seeded histories of groups with copies: changes, syncs, compression, crashes at any operation, and disks that break,
//! stay away, come back outdated or are left out at a start. Whatever subset of the disks opens the group, acknowledged
//! content is there, and no removed file exists again.

use crate::support;
use cellar_storage::disk::{Disk, Stream};
use cellar_storage::{AbsentDisk, DiskMode, Error, Redundancy, Result, Volume, VolumeOptions};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use support::breakable_disk::{BreakableDisk, Breaker};
use support::history::{File, change, check, run_histories, seeds};
use support::memory_disk::{Crash, MemoryDisks};
use support::{Random, options};

/// Histories of `make test`; LONG=1 runs more.
const SEEDS: u64 = 5;
const SEEDS_LONG: u64 = 2000;
const ROUNDS: u64 = 12;
const SET_SHIFT: u32 = 48;

struct History {
    random: Random,
    disks: MemoryDisks,
    redundancy: Redundancy,
    files: BTreeMap<String, File>,
    opened: u64,
    refused: u64,
    resynced: u64,
}

/// The disks of one run of the volume.
struct Run {
    disks: Vec<Arc<dyn Disk>>,
    breakers: Vec<Breaker>,
}

impl History {
    fn new(seed: u64) -> Self {
        let mut random = Random::seeded(seed);
        let (count, redundancy) = match random.below(4) {
            0 | 1 => (2, Redundancy::Normal),
            2 => (3 + random.below(2) as usize, Redundancy::Normal),
            _ => (3, Redundancy::High),
        };
        let disks = MemoryDisks::of_random_sizes(count, &mut random);
        Self { random, disks, redundancy, files: BTreeMap::new(), opened: 0, refused: 0, resynced: 0 }
    }

    /// Returns the disks, without those that are `absent`.
    fn run(&self, absent: &BTreeSet<usize>) -> Run {
        let breakers: Vec<Breaker> = (0..self.disks.count()).map(|_| Breaker::new()).collect();
        let wrap = |(number, inner): (usize, Arc<dyn Disk>)| -> Arc<dyn Disk> {
            match absent.contains(&number) {
                true => Arc::new(AbsentDisk::new(inner.path())),
                false => Arc::new(BreakableDisk { inner, breaker: breakers[number].clone() }),
            }
        };
        let disks = self.disks.disks().into_iter().enumerate().map(wrap).collect();
        Run { disks, breakers }
    }

    fn open(&self, run: &Run, force_degraded: bool) -> Result<Arc<Volume>> {
        let options = VolumeOptions {
            redundancy: self.redundancy,
            force_degraded,
            intent_idle: Duration::ZERO,
            online_returned_disks: false,
            ..options()
        };
        Volume::open(run.disks.clone(), options)
    }

    fn some_disk(&mut self) -> usize {
        self.random.below(self.disks.count()) as usize
    }

    /// Brings the offline disks online that are present.
    fn online(&mut self, volume: &Volume, run: &Run) -> Result<()> {
        for disk in volume.group_status().disks {
            if disk.mode == DiskMode::Offline && run.disks[disk.number].is_blank().is_ok_and(|is_blank| !is_blank) {
                volume.online_disk(run.disks[disk.number].clone())?;
                self.resynced += 1;
            }
        }
        Ok(())
    }

    /// Changes files, while disks break and return, until the power is off or an operation fails.
    fn change(&mut self, volume: &Volume, run: &Run, round: u64) -> Result<()> {
        for part in 0..6 {
            match self.random.below(4) {
                0 => {
                    let (disk, after) = (self.some_disk(), 1 + self.random.below(60));
                    // A second broken disk would only end the round.
                    if !run.breakers.iter().any(Breaker::is_broken) {
                        run.breakers[disk].break_after(after);
                    }
                }
                1 => {
                    run.breakers.iter().for_each(Breaker::repair);
                    self.online(volume, run)?;
                }
                2 => volume.trim_intents(),
                _ => {}
            }
            let steps = 1 + self.random.below(12);
            change(volume, &mut self.files, round * 10 + part, steps, &mut self.random)?;
        }
        Ok(())
    }

    fn round(&mut self, round: u64) {
        let mut absent = BTreeSet::new();
        while self.random.below(3) == 0 && round > 0 {
            absent.insert(self.some_disk());
        }
        let run = self.run(&absent);
        match self.open(&run, false) {
            Ok(volume) => {
                self.opened += 1;
                self.disks.with_power(|| check(&volume, &mut self.files));
                let changed = self.change(&volume, &run, round);
                if changed.is_ok() && self.random.below(3) == 0 {
                    let closed = volume.close();
                    if closed.is_ok() {
                        self.files.values_mut().for_each(File::synced);
                    }
                } else {
                    volume.abandon();
                }
            }
            Err(error) => {
                assert!(!absent.is_empty() || self.disks.is_off(), "round {round}: {error}");
                self.refused += 1;
            }
        }
        self.disks = self.disks.crash_until_next((60, 1500), &mut self.random);
    }

    /// Makes all disks return, and checks that each copy alone has everything.
    fn finish(&mut self) {
        self.disks = self.disks.crash(Crash::Power, &mut self.random);
        let run = self.run(&BTreeSet::new());
        let volume = self.open(&run, false).expect("all disks are present");
        check(&volume, &mut self.files);
        self.online(&volume, &run).expect("all disks work");
        assert!(!volume.group_status().is_degraded());
        volume.close().unwrap();
        assert_eq!(volume.group_status().intents, 0);
        drop(volume);
        self.check_copies();
        for lost in 0..self.disks.count() as usize {
            let copy = self.disks.crash(Crash::Kill, &mut self.random);
            let whole = std::mem::replace(&mut self.disks, copy);
            let run = self.run(&BTreeSet::from([lost]));
            let volume = self.open(&run, true).unwrap_or_else(|error| panic!("without disk {lost}: {error}"));
            check(&volume, &mut self.files);
            volume.abandon();
            self.disks = whole;
        }
    }

    /// Compares the copies of every file byte for byte.
    fn check_copies(&self) {
        let mut copies: BTreeMap<(u64, u64, Stream), Vec<Vec<u8>>> = BTreeMap::new();
        for (number, disk) in self.disks.disks().into_iter().enumerate() {
            for (tagged, stream) in disk.backing_files().unwrap() {
                let (ino, set) = (tagged & ((1 << SET_SHIFT) - 1), tagged >> SET_SHIFT);
                let set = if set == 0 { number as u64 } else { set - 1 };
                let mut bytes = vec![0; disk.measure(tagged, stream).unwrap().0 as usize];
                disk.open(tagged, stream, false).unwrap().unwrap().read_at(&mut bytes, 0).unwrap();
                copies.entry((set, ino, stream)).or_default().push(bytes);
            }
        }
        for (key, copies) in copies {
            assert_eq!(copies.len(), self.redundancy.copies(), "copies of {key:?}");
            assert!(copies.windows(2).all(|pair| pair[0] == pair[1]), "the copies of {key:?} differ");
        }
    }
}

#[test]
fn acknowledged_content_survives_crashes_and_lost_disks() {
    let (histories, failed) = run_histories(seeds(SEEDS, SEEDS_LONG), |seed| {
        let mut history = History::new(seed);
        (0..ROUNDS).for_each(|round| history.round(round));
        history.finish();
        (history.opened, history.refused, history.resynced)
    });
    let (mut opened, mut refused, mut resynced) = (0, 0, 0);
    for counts in histories {
        (opened, refused, resynced) = (opened + counts.0, refused + counts.1, resynced + counts.2);
    }
    println!("{opened} runs, {refused} refused starts, {resynced} resyncs");
    assert!(failed.is_empty(), "run again with SEED= one of {failed:?}");
    assert!(std::env::var("SEED").is_ok() || opened > SEEDS && refused > 0 && resynced > 0);
}

#[test]
fn errors_say_what_to_do() {
    let texts = |result: Result<Arc<Volume>>| -> Error { result.map(drop).expect_err("the group must be rejected") };
    let disks = MemoryDisks::new(2);
    let open = |disks: Vec<Arc<dyn Disk>>, redundancy, groups: &[&str]| {
        let failure_groups = groups.iter().map(|name| Some(name.to_string())).collect();
        Volume::open(disks, VolumeOptions { redundancy, failure_groups, ..options() })
    };
    let check = |error: Error, expected: &str| assert!(error.to_string().contains(expected), "{error}");
    check(texts(open(disks.disks(), Redundancy::High, &[])), "3 copies need 3 failure groups, but the disks are in 2");
    check(texts(open(disks.disks(), Redundancy::Normal, &["a", "a"])), "give the disks different failure groups");
    open(disks.disks(), Redundancy::Normal, &["a", "b"]).unwrap().close().unwrap();
    check(texts(open(disks.disks(), Redundancy::External, &[])), "write redundancy = \"normal\"");
    check(texts(open(disks.disks(), Redundancy::Normal, &["b", "a"])), "is in failure group \"a\"");
    let mut all = disks.disks();
    let first = all.remove(0);
    check(texts(open(all, Redundancy::Normal, &[])), "disk 0 (memory0) is missing and may have newer data");
    check(texts(open(vec![first.clone(), first], Redundancy::Normal, &[])), "list each disk once");
    let other = MemoryDisks::new(2);
    open(other.disks(), Redundancy::Normal, &[]).unwrap().close().unwrap();
    let mixed = vec![disks.disks().remove(0), other.disks().remove(1)];
    check(texts(open(mixed, Redundancy::Normal, &[])), "belongs to disk group");
}
