//! Candidates for the columnar cache: allocation units that scans read as raw pages, and the queue of those to encode.
//!
//! An allocation unit is queued when a scan reads it the second time without a write in between; with KEEP the first time. The
//! threads and workers of one scan read parts of the same allocation unit: reads within a second count as one. An allocation
//! unit that was written recently is not queued. Each time a write makes a cached unit useless, the time without writes that the
//! allocation unit needs doubles.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use cellar_format::units::{AuIndex, RegionVersion};
use cellar_scan::Account;
use cellar_scan::unit::Shape;
use cellar_storage::{FlashSetting, Volume};
use parking_lot::{Condvar, Mutex};

use super::clock_cache::{ClockCache, HeapBytes};
use crate::relation::DiskObject;

/// Allocation units that wait at most. Those beyond are queued by later scans.
const QUEUED_MAX: usize = 4096;
/// Doublings of the time without writes at most: from 5 seconds to 6 hours.
const CHANGES_MAX: u32 = 12;

/// What a unit of a relation's pages depends on besides the pages.
#[derive(Debug)]
pub struct Heap {
    pub shape: Shape,
    /// Whether the cluster has data checksums.
    pub checksums: bool,
}

/// An allocation unit to encode.
#[derive(Debug, Clone)]
pub struct Candidate {
    pub object: DiskObject,
    pub au: AuIndex,
    /// The relation's number of the allocation unit's first block.
    pub first_block: u32,
    pub version: RegionVersion,
    /// The last scan but one, in nanoseconds since 1970.
    pub previous_use: Option<i64>,
    pub heap: Arc<Heap>,
}

/// What scans saw of an allocation unit.
#[derive(Debug, Clone, Copy)]
struct Seen {
    version: RegionVersion,
    scans: u32,
    /// Cached units that writes made useless.
    changes: u32,
    last_use: i64,
    previous_use: Option<i64>,
}

impl HeapBytes for Seen {
    fn heap_bytes(&self) -> usize {
        0
    }
}

/// The times that decide whether an allocation unit is queued.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// The time without writes that an allocation unit needs at first.
    pub idle_min: Duration,
    /// The time between two reads of an allocation unit that count as two scans.
    pub between_scans: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self { idle_min: Duration::from_secs(5), between_scans: Duration::from_secs(1) }
    }
}

impl Seen {
    fn new(version: RegionVersion, now: i64) -> Self {
        Self { version, scans: 1, changes: 0, last_use: now, previous_use: None }
    }

    /// Returns what is known after another read. `is_same_scan` if it belongs to the scan that was counted last.
    fn again(self, version: RegionVersion, now: i64, is_same_scan: bool) -> Self {
        let more = u32::from(!is_same_scan);
        let scans = if self.version == version { self.scans.saturating_add(more) } else { 1 };
        match is_same_scan {
            true => Self { version, scans, ..self },
            false => Self { version, scans, last_use: now, previous_use: Some(self.last_use), ..self },
        }
    }
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Candidate>,
    keys: HashSet<(DiskObject, AuIndex)>,
    is_closed: bool,
}

pub struct ColumnarCandidates {
    seen: ClockCache<(DiskObject, AuIndex), Seen>,
    queue: Mutex<Queue>,
    added: Condvar,
    times: Times,
}

impl ColumnarCandidates {
    /// Returns candidates whose memory is added to `account`, at most `capacity_bytes`.
    pub fn new(account: &Arc<Account>, capacity_bytes: u64, times: Times) -> Self {
        let seen = ClockCache::new(account, capacity_bytes);
        Self { seen, queue: Mutex::default(), added: Condvar::new(), times }
    }

    /// Records that a scan reads the pages of an allocation unit, and queues it if it is to be cached.
    pub fn note_scan(
        &self,
        volume: &Volume,
        (object, au): (DiskObject, AuIndex),
        first_block: u32,
        heap: &Arc<Heap>,
    ) -> cellar_storage::Result<()> {
        if !volume.has_columnar_cache() {
            return Ok(());
        }
        let scans_min = match volume.columnar_setting(object) {
            FlashSetting::None => return Ok(()),
            FlashSetting::Keep => 1,
            FlashSetting::Default => 2,
        };
        let (version, now) = (volume.au_version(object, au)?, now());
        let between_scans = self.times.between_scans.as_nanos() as u64;
        let (mut seen, mut is_same_scan) = (Seen::new(version, now), false);
        self.seen.insert((object, au), seen, |known, _| {
            is_same_scan = now.abs_diff(known.last_use) < between_scans;
            seen = known.again(version, now, is_same_scan);
            *known = seen;
        });
        if is_same_scan {
            return Ok(());
        }
        let idle_min = self.times.idle_min.saturating_mul(1 << seen.changes.min(CHANGES_MAX));
        if seen.scans < scans_min || volume.au_idle(object, au)? < idle_min {
            return Ok(());
        }
        let (heap, previous_use) = (heap.clone(), seen.previous_use);
        self.queue(Candidate { object, au, first_block, version, previous_use, heap });
        Ok(())
    }

    /// Records that a write has made the cached unit of an allocation unit useless.
    pub fn note_change(&self, object: DiskObject, au: AuIndex) {
        let seen = Seen { scans: 0, changes: 1, ..Seen::new(RegionVersion::NONE, now()) };
        self.seen.insert((object, au), seen, |known, _| known.changes = known.changes.saturating_add(1));
    }

    fn queue(&self, candidate: Candidate) {
        let mut queue = self.queue.lock();
        if queue.waiting.len() < QUEUED_MAX && queue.keys.insert((candidate.object, candidate.au)) {
            queue.waiting.push_back(candidate);
            self.added.notify_one();
        }
    }

    /// Returns the next candidate, waiting for one. None after [`Self::close`].
    pub fn next(&self) -> Option<Candidate> {
        let mut queue = self.queue.lock();
        while queue.waiting.is_empty() && !queue.is_closed {
            self.added.wait(&mut queue);
        }
        queue.take()
    }

    /// Returns the next candidate, if there is one.
    pub fn try_next(&self) -> Option<Candidate> {
        self.queue.lock().take()
    }

    /// Ends the thread that waits for candidates.
    pub fn close(&self) {
        self.queue.lock().is_closed = true;
        self.added.notify_all();
    }

    pub fn is_closed(&self) -> bool {
        self.queue.lock().is_closed
    }
}

impl Queue {
    fn take(&mut self) -> Option<Candidate> {
        let candidate = self.waiting.pop_front().filter(|_| !self.is_closed)?;
        self.keys.remove(&(candidate.object, candidate.au));
        Some(candidate)
    }
}

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_nanos() as i64)
}
