//! What is where: which records are durable in flash, which ones the cell disks have, and which syncs wait for what.

use super::capture::Captured;
use super::format::Writes;
use super::ring::Ring;
use super::statistics::{Counters, Skip};
use crate::error::Error;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{Duration, Instant};

/// Maximum number of records that wait for the flash disk.
const QUEUE_MAX: usize = 64;

/// A record that is to be written.
#[derive(Debug)]
pub struct Queued {
    pub sequence: u64,
    pub place: u64,
    pub ino: u64,
    pub writes: Writes,
}

/// How long a record took.
#[derive(Debug)]
struct Timing {
    since: Instant,
    flash: Option<Duration>,
    disks: Option<Duration>,
}

/// The syncs of one file.
#[derive(Debug, Default)]
pub struct FileSyncs {
    /// Numbers of syncs of the cell disks: the last one that was requested, has begun, has succeeded.
    pub requested: u64,
    pub begun: u64,
    pub completed: u64,
    pub is_running: bool,
    /// A sync of the cell disks failed. They may lack what flash has: no later sync succeeds.
    pub error: Option<Error>,
    /// The removal of the file is durable.
    pub is_removed: bool,
    /// The last record of the file.
    pub last_sequence: u64,
    /// The sync of the cell disks after which no change of the file is missing in the records.
    uncovered: u64,
    waiting: Vec<Wait>,
}

/// What a sync waits for: flash, or the cell disks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wait {
    pub ino: u64,
    /// Flash has all changes when this record is durable, and this sync of the cell disks is complete.
    pub record: u64,
    uncovered: u64,
    /// The cell disks have all changes when this sync of them is complete.
    pub ticket: u64,
    /// A start must not apply records up to this one when only the cell disks have the newest changes.
    conflicting: u64,
    /// Why the sync does not use flash.
    pub skip: Option<Skip>,
    pub since: Instant,
}

/// Which of the two has all changes of a sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durable {
    InFlash,
    OnDisks,
}

#[derive(Debug)]
pub struct State {
    next_sequence: u64,
    /// The last record with writes.
    last_record: u64,
    pub queue: VecDeque<Queued>,
    /// When the write to the flash disk began that has not ended.
    pub writing_since: Option<Instant>,
    /// Records up to this one are durable in flash.
    pub durable: u64,
    /// A start applies no record up to this one.
    pub retired: u64,
    /// Records that the cell disks do not have yet, with their inodes.
    unreleased: BTreeMap<u64, u64>,
    timings: BTreeMap<u64, Timing>,
    ring: Ring,
    pub files: HashMap<u64, FileSyncs>,
    /// A sync of the cell disks failed: no later sync begins, as without flash log, where PostgreSQL stops at once.
    pub disk_error: Option<Error>,
    /// A record is to be written that says what is retired.
    pub wants_retirement: bool,
    /// The cell disks cannot record what is retired.
    pub mark_error: Option<Error>,
    /// The flash disk failed: no new record.
    pub has_failed: bool,
    pub is_revoking: bool,
    /// The cell disks do not need the flash log any more.
    pub is_revoked: bool,
    pub is_stopped: bool,
}

impl State {
    pub fn new(ring_bytes: u64) -> Self {
        Self {
            next_sequence: 1,
            last_record: 0,
            queue: VecDeque::new(),
            writing_since: None,
            durable: 0,
            retired: 0,
            unreleased: BTreeMap::new(),
            timings: BTreeMap::new(),
            ring: Ring::new(ring_bytes),
            files: HashMap::new(),
            disk_error: None,
            wants_retirement: false,
            mark_error: None,
            has_failed: false,
            is_revoking: false,
            is_revoked: false,
            is_stopped: false,
        }
    }

    /// Returns the sequence up to which the cell disks have all records.
    pub fn released(&self) -> u64 {
        self.unreleased.first_key_value().map_or(self.next_sequence, |(sequence, _)| *sequence) - 1
    }

    pub fn unreleased_records(&self) -> usize {
        self.unreleased.len()
    }

    /// Begins a sync of a file: queues the record, and requests a sync of the cell disks. Returns None if nothing has changed
    /// since a sync that succeeded.
    pub fn begin(&mut self, ino: u64, captured: Captured, busy_after: Duration) -> Result<Option<Wait>, Error> {
        if let Some(error) = &self.disk_error {
            return Err(error.clone());
        }
        let file = self.files.entry(ino).or_default();
        let before = file.last_sequence;
        let mut is_new = false;
        let skip = match captured {
            Captured::Nothing if self.durable >= before && file.completed >= file.uncovered => return Ok(None),
            Captured::Nothing => None,
            Captured::OnlyDisks => Some(Skip::Metadata),
            Captured::TooLarge => Some(Skip::Large),
            Captured::Writes(writes) => {
                let queued = self.enqueue(ino, writes, busy_after);
                is_new = queued.is_ok();
                queued.err()
            }
        };
        let file = self.files.entry(ino).or_default();
        file.requested = file.begun + 1;
        if skip.is_some() {
            file.uncovered = file.requested;
        }
        let wait = Wait {
            ino,
            record: file.last_sequence,
            uncovered: file.uncovered,
            ticket: file.requested,
            conflicting: if is_new { before } else { file.last_sequence },
            skip,
            since: Instant::now(),
        };
        file.waiting.push(wait);
        Ok(Some(wait))
    }

    fn enqueue(&mut self, ino: u64, writes: Writes, busy_after: Duration) -> Result<(), Skip> {
        let is_slow = self.writing_since.is_some_and(|since| since.elapsed() > busy_after);
        if self.has_failed || is_slow || self.queue.len() >= QUEUE_MAX {
            return Err(Skip::Busy);
        }
        let sequence = self.next_sequence;
        let Some(place) = self.ring.place(sequence, writes.record_bytes() as u64, false) else {
            self.wants_retirement = true;
            return Err(Skip::NoBuffer);
        };
        self.next_sequence += 1;
        self.last_record = sequence;
        self.queue.push_back(Queued { sequence, place, ino, writes });
        self.unreleased.insert(sequence, ino);
        self.timings.insert(sequence, Timing { since: Instant::now(), flash: None, disks: None });
        self.files.entry(ino).or_default().last_sequence = sequence;
        Ok(())
    }

    /// Takes the records that the flash disk is to get with the next write, at successive places.
    pub fn take_batch(&mut self, bytes_max: usize) -> Vec<Queued> {
        if self.queue.is_empty() && self.wants_retirement && self.can_retire() {
            let (sequence, writes) = (self.next_sequence, Writes::default());
            if let Some(place) = self.ring.place(sequence, writes.record_bytes() as u64, true) {
                self.next_sequence += 1;
                self.queue.push_back(Queued { sequence, place, ino: 0, writes });
            }
        }
        self.wants_retirement = false;
        let (mut batch, mut bytes): (Vec<Queued>, usize) = (Vec::new(), 0);
        while let Some(next) = self.queue.front() {
            let length = next.writes.record_bytes();
            let is_next = batch.first().is_none_or(|first| next.place == first.place + bytes as u64);
            if !is_next || !batch.is_empty() && bytes + length > bytes_max {
                break;
            }
            bytes += length;
            batch.extend(self.queue.pop_front());
        }
        batch
    }

    /// Records that the flash disk has records up to one, and a record of what was retired.
    pub fn written(&mut self, sequence: u64, retired: u64, counters: &Counters, outlier: Duration) {
        for (_, timing) in self.timings.range_mut(..=sequence).filter(|(_, timing)| timing.flash.is_none()) {
            timing.flash = Some(timing.since.elapsed());
        }
        self.durable = sequence;
        self.count_done(counters, outlier);
        self.retire(retired);
    }

    pub fn retire(&mut self, through: u64) {
        self.retired = self.retired.max(through);
        self.ring.retire(through);
        let retired = self.retired;
        self.files.retain(|_, file| {
            file.is_running || !file.waiting.is_empty() || file.error.is_some() || file.last_sequence > retired
        });
    }

    /// Records that the cell disks have everything that they had got before a sync of them began.
    pub fn synced(&mut self, ino: u64, (number, covered): (u64, u64), counters: &Counters, outlier: Duration) {
        if let Some(file) = self.files.get_mut(&ino) {
            file.completed = number;
        }
        let released: Vec<u64> =
            self.unreleased.range(..=covered).filter(|(_, of)| **of == ino).map(|(sequence, _)| *sequence).collect();
        for sequence in released {
            self.unreleased.remove(&sequence);
            if let Some(timing) = self.timings.get_mut(&sequence) {
                timing.disks = Some(timing.since.elapsed());
            }
        }
        self.count_done(counters, outlier);
    }

    /// Forgets the records of a file that is removed. Returns whether the cell disks lacked some.
    pub fn forget(&mut self, ino: u64) -> bool {
        let Some(file) = self.files.get_mut(&ino) else { return false };
        (file.is_removed, file.error) = (true, None);
        let before = self.unreleased.len();
        let timings = &mut self.timings;
        self.unreleased.retain(|sequence, of| {
            if *of == ino {
                timings.remove(sequence);
            }
            *of != ino
        });
        self.unreleased.len() < before
    }

    fn count_done(&mut self, counters: &Counters, outlier: Duration) {
        self.timings.retain(|_, timing| match (timing.flash, timing.disks) {
            (Some(flash), Some(disks)) => {
                counters.done(flash, disks, outlier);
                false
            }
            _ => true,
        });
    }

    /// Ends the use of the flash disk.
    pub fn fail(&mut self) {
        self.has_failed = true;
        self.queue.clear();
        self.timings.clear();
    }

    /// Returns what has all changes of a sync; None if it must wait. An error if nothing will.
    pub fn check(&self, wait: &Wait) -> Result<Option<Durable>, Error> {
        let Some(file) = self.files.get(&wait.ino) else { return Ok(Some(Durable::OnDisks)) };
        if wait.skip.is_none() && self.durable >= wait.record && file.completed >= wait.uncovered {
            return Ok(Some(Durable::InFlash));
        }
        if file.completed >= wait.ticket && (self.is_revoked || self.retired >= wait.conflicting) {
            return Ok(Some(Durable::OnDisks));
        }
        if let Some(error) = &file.error {
            return Err(error.clone());
        }
        // Without flash, the sync waits for a record of what is retired.
        let blocking = self.mark_error.as_ref().or_else(|| self.error_of_oldest(wait));
        match blocking.filter(|_| file.completed >= wait.ticket && (self.has_failed || wait.skip.is_some())) {
            Some(error) => Err(error.clone()),
            None => Ok(None),
        }
    }

    /// Returns the error that keeps the oldest record from being released, if a sync waits until records are retired.
    fn error_of_oldest(&self, wait: &Wait) -> Option<&Error> {
        let (oldest, ino) = self.unreleased.first_key_value().filter(|(oldest, _)| **oldest <= wait.conflicting)?;
        debug_assert!(*oldest > self.retired);
        self.files.get(ino)?.error.as_ref()
    }

    pub fn end(&mut self, wait: &Wait) {
        if let Some(file) = self.files.get_mut(&wait.ino)
            && let Some(at) = file.waiting.iter().position(|waiting| waiting == wait)
        {
            file.waiting.swap_remove(at);
        }
    }

    /// Returns up to which sequence records are to be retired if a sync waits only for that.
    pub fn needed_mark(&mut self) -> Option<u64> {
        let (retired, released) = (self.retired, self.released());
        let waits = |file: &FileSyncs, wait: &Wait| {
            file.completed >= wait.ticket && wait.conflicting > retired && wait.conflicting <= released
        };
        let waiting = self.files.values().flat_map(|file| file.waiting.iter().filter(|wait| waits(file, wait)));
        let skips: Vec<bool> = waiting.map(|wait| wait.skip.is_some()).collect();
        // A sync whose record flash is to get does not wait longer than for that: another record would delay it.
        self.wants_retirement |= skips.iter().any(|skips| *skips);
        (!skips.is_empty() && !self.is_revoked && !self.is_stopped).then_some(released)
    }

    /// Returns whether records could be retired that are not.
    fn can_retire(&self) -> bool {
        !self.has_failed && self.released().min(self.last_record) > self.retired
    }

    /// Returns whether no record is needed any more, although some are not retired.
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.unreleased.is_empty() && self.can_retire()
    }
}
