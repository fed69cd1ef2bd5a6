//! Moving allocation units in batches: copies, commits, and the pace of copies.

use super::{IDLE_WAIT, POWER_MAX, Rebalance, stopped, stored_key};
use crate::disk::on_each;
use crate::error::{Error, ErrorKind, Result};
use crate::group::rebalance::{FileKey, Move, OPEN_END, REGION};
use crate::volume::Volume;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Allocation units that a thread moves between two commits.
const BATCH_PER_THREAD: usize = 8;
/// Bytes that a target disk must have beyond what a batch writes.
const TARGET_MARGIN: u64 = 4 << 20;

/// Slows copies down: at power p, a thread pauses (11 - p) / p times 1.5 as long as it copies.
struct Pace<'a> {
    rebalance: &'a Rebalance,
    last: Instant,
}

impl Pace<'_> {
    /// Returns false if the copy must end.
    fn after(&mut self, bytes: u64) -> bool {
        let busy = self.last.elapsed();
        self.rebalance.update(|status| status.copied_bytes += bytes);
        let mut left = match self.rebalance.power() {
            0 => IDLE_WAIT,
            power if power < POWER_MAX && bytes > 0 => {
                busy.mul_f64(f64::from(POWER_MAX - power) / f64::from(power) * 1.5)
            }
            _ => Duration::ZERO,
        };
        while !left.is_zero() && !self.rebalance.is_stopping() {
            let pause = left.min(Duration::from_millis(50));
            std::thread::sleep(pause);
            left -= pause;
            if self.rebalance.power() == 0 {
                left = IDLE_WAIT;
            }
        }
        self.last = Instant::now();
        !self.rebalance.is_stopping()
    }
}

impl Volume {
    /// Runs moves in batches. Returns an error if the rebalance cannot go on.
    pub(in crate::volume) fn run(&self, moves: &[Move]) -> Result<()> {
        let mut next = 0;
        while next < moves.len() {
            if self.rebalance.is_stopping() {
                return Err(stopped());
            }
            let threads = match self.rebalance.power() {
                0..=3 => 1,
                4..=7 => 2,
                _ => 4,
            };
            let batch = &moves[next..moves.len().min(next + threads * BATCH_PER_THREAD)];
            self.run_batch(batch, threads)?;
            next += batch.len();
            self.rebalance.update(|status| status.moved += batch.len() as u64);
        }
        Ok(())
    }

    fn run_batch(&self, batch: &[Move], threads: usize) -> Result<()> {
        self.check_all_online()?;
        self.check_space(batch)?;
        let placement = self.group.placement();
        let begun: Vec<&Move> = batch.iter().filter(|step| placement.begin(step)).collect();
        let keys: BTreeSet<FileKey> = begun.iter().map(|step| step.key).collect();
        let mut result = self.commit_placements(&keys);
        let mut complete: Vec<bool> = vec![false; begun.len()];
        if result.is_ok() {
            let numbers: Vec<Vec<usize>> =
                (0..threads).map(|thread| (thread..begun.len()).step_by(threads).collect()).collect();
            let copied = on_each(&numbers, |own| {
                let mut pace = Pace { rebalance: &self.rebalance, last: Instant::now() };
                let copy = |number: &usize| placement.copy(begun[*number], &mut |bytes| pace.after(bytes));
                own.iter().map(copy).collect::<Vec<_>>()
            });
            for (number, copied) in numbers.into_iter().flatten().zip(copied.into_iter().flatten()) {
                match copied {
                    Ok(is_complete) => complete[number] = is_complete,
                    Err(error) => {
                        let (step, path) = (begun[number], placement.container(begun[number].target).path());
                        let context = format!("could not move inode {} to cell disk {}", step.key.ino, path.display());
                        result = Err(Error::io(context, error));
                    }
                }
            }
        }
        let (mut committing, mut failed) = (BTreeSet::new(), false);
        for (step, is_complete) in begun.iter().zip(complete) {
            match is_complete && placement.prepare(step) {
                true => drop(committing.insert(step.key)),
                false => {
                    failed = true;
                    self.rebalance.outdated.lock().insert(step.key);
                    if let Err(error) = placement.abort(step) {
                        log::warn!("could not free a copy of inode {}: {error}", step.key.ino);
                    }
                }
            }
        }
        self.rebalance.in_doubt.lock().extend(committing);
        self.commit_moves()?;
        if failed && result.is_ok() && self.rebalance.is_stopping() {
            result = Err(stopped());
        }
        result
    }

    /// Commits the moves that are copied, and frees the former places. After an error the moves remain in doubt: writes go to
    /// both places until a later commit succeeds.
    pub(super) fn commit_moves(&self) -> Result<()> {
        let keys = std::mem::take(&mut *self.rebalance.in_doubt.lock());
        self.commit_placements(&keys).inspect_err(|_| self.rebalance.in_doubt.lock().extend(keys.iter().copied()))?;
        for key in &keys {
            if let Err(error) = self.group.placement().finish(*key) {
                log::warn!("could not free the former place of inode {}: {error}", key.ino);
            }
        }
        self.rebalance.outdated.lock().extend(keys);
        Ok(())
    }

    /// Checks that the targets of moves have space for them. Regions may be sparse: how much of them is allocated is measured
    /// only if the targets could not take them in full.
    fn check_space(&self, batch: &[Move]) -> Result<()> {
        let spaces = self.free_space.by_disk();
        let is_enough = |(disk, bytes): (&usize, &u64)| spaces[*disk].available >= bytes + TARGET_MARGIN;
        let full = |step: &Move| Ok(u64::from(step.regions.end - step.regions.start) * REGION);
        if self.needed_by_disk(batch, full)?.iter().all(is_enough) {
            return Ok(());
        }
        for (disk, bytes) in self.needed_by_disk(batch, |step| self.allocated_bytes(step))? {
            let available = spaces[disk].available;
            if !is_enough((&disk, &bytes)) {
                let message = format!(
                    "the rebalance needs {} MiB on cell disk {}, which has {} MiB available; free space or add a disk",
                    (bytes + TARGET_MARGIN) >> 20,
                    self.disks()[disk].path().display(),
                    available >> 20
                );
                return Err(Error::new(ErrorKind::NoSpace, message));
            }
        }
        Ok(())
    }

    /// Returns how many bytes a batch needs on each disk. The open end of a file, where the file grows, counts as empty.
    fn needed_by_disk(&self, batch: &[Move], bytes_of: impl Fn(&Move) -> Result<u64>) -> Result<BTreeMap<usize, u64>> {
        let mut needed: BTreeMap<usize, u64> = BTreeMap::new();
        for step in batch.iter().filter(|step| step.regions.end != OPEN_END) {
            let bytes = bytes_of(step)?;
            self.disks_of(step.target).into_iter().for_each(|disk| *needed.entry(disk).or_default() += bytes);
        }
        Ok(needed)
    }

    /// Makes the present records of files durable.
    pub(super) fn commit_placements(&self, keys: &BTreeSet<FileKey>) -> Result<()> {
        let placement = self.group.placement();
        let outdated = std::mem::take(&mut *self.rebalance.outdated.lock());
        let keys: BTreeSet<FileKey> = keys.union(&outdated).copied().collect();
        {
            let records = keys.iter().map(|key| (stored_key(*key), placement.needed_record(*key)));
            let records: Vec<_> = records.map(|(key, record)| (key, record.map(|record| record.encode()))).collect();
            self.rebalance.changes.lock().placements.extend(records);
        }
        self.commit_everything().inspect_err(|_| self.rebalance.outdated.lock().extend(keys))
    }
}
