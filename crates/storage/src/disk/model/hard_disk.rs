//! The model of a hard disk: seeks, rotation, zones, read-ahead, a queue that the disk reorders, and a volatile write cache.
//!
//! One request at a time uses the mechanics. The next one is the request with the shortest positioning time among the
//! oldest `queue_depth`, unless the oldest has waited too long. The seek curve is the power function through the single-track, average
//! and full-stroke seek; the average seek covers a third of the tracks.

use super::parameters::HardDiskParameters;
use super::service::{
    Access, Completion, MILLISECOND, ModelCounts, ModelTime, Request, Service, complete_ready, transfer,
};
use std::collections::{BTreeSet, VecDeque};

/// A continuation that starts within this time needs no positioning: the sector gap covers the turnaround.
const TURNAROUND_NS: f64 = 20_000.0;

#[derive(Debug)]
pub struct HardDisk {
    parameters: HardDiskParameters,
    zones: Vec<Zone>,
    rotation_ns: f64,
    /// Time offset of the rotation.
    phase_ns: f64,
    seek_exponent: f64,
    /// In the order of arrival.
    queue: VecDeque<Queued>,
    active: Option<Active>,
    /// Where and when the last transfer ended.
    head: u64,
    head_at: f64,
    /// Completions that do not need the mechanics, and finished transfers on the interface.
    ready: BTreeSet<(ModelTime, u64)>,
    cache: WriteCache,
    counts: ModelCounts,
}

#[derive(Debug)]
struct Zone {
    /// First byte.
    start: u64,
    end: u64,
    rate: f64,
    track_bytes: f64,
}

#[derive(Debug, Clone, Copy)]
struct Queued {
    request: Request,
    arrived: f64,
    /// Number of a write whose request is complete: its bytes are in the write cache.
    cached: Option<u64>,
}

#[derive(Debug)]
struct Active {
    queued: Queued,
    ends: f64,
}

#[derive(Debug, Default)]
struct WriteCache {
    used: u64,
    next: u64,
    /// Numbers of cached writes that are not on the medium.
    unwritten: BTreeSet<u64>,
    /// Flushes with the first number that they need not wait for.
    flushes: Vec<(u64, u64)>,
}

impl HardDisk {
    pub fn new(parameters: &HardDiskParameters, seed: u64) -> Self {
        let rotation_ns = 60e9 / parameters.rotations_per_minute;
        let total: f64 = parameters.zone_mb_per_s.iter().sum();
        let mut start = 0;
        let mut passed = 0.0;
        let zone = |rate: &f64| {
            passed += rate;
            let end = (parameters.capacity_bytes as f64 * passed / total) as u64;
            let track_bytes = rate * rotation_ns / 1e3;
            let zone = Zone { start, end, rate: *rate, track_bytes };
            start = end;
            zone
        };
        let zones = parameters.zone_mb_per_s.iter().map(zone).collect();
        let span = (parameters.seek_average_ms - parameters.seek_track_ms)
            / (parameters.seek_full_ms - parameters.seek_track_ms);
        Self {
            zones,
            rotation_ns,
            phase_ns: (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 11) as f64 / (1_u64 << 53) as f64 * rotation_ns,
            seek_exponent: span.ln() / (1.0_f64 / 3.0).ln(),
            queue: VecDeque::new(),
            active: None,
            head: 0,
            head_at: 0.0,
            ready: BTreeSet::new(),
            cache: WriteCache::default(),
            counts: ModelCounts::default(),
            parameters: parameters.clone(),
        }
    }

    fn zone(&self, offset: u64) -> (usize, &Zone) {
        let last = self.zones.len() - 1;
        let index = self.zones.partition_point(|zone| zone.end <= offset).min(last);
        (index, &self.zones[index])
    }

    /// Returns the track of a byte, from 0 at the outer edge to 1.
    fn track(&self, offset: u64) -> f64 {
        let (index, zone) = self.zone(offset);
        let inside = (offset - zone.start) as f64 / (zone.end - zone.start).max(1) as f64;
        (index as f64 + inside) / self.zones.len() as f64
    }

    fn seek_ns(&self, from: u64, to: u64) -> f64 {
        let distance = (self.track(from) - self.track(to)).abs();
        let (zone, other) = (self.zone(from).1, self.zone(to).1);
        if zone.start == other.start && (from.abs_diff(to) as f64) < zone.track_bytes {
            return 0.0;
        }
        let parameters = &self.parameters;
        let curve = distance.powf(self.seek_exponent);
        (parameters.seek_track_ms + (parameters.seek_full_ms - parameters.seek_track_ms) * curve) * MILLISECOND
    }

    /// Returns the time until the first byte of a request passes the head, and the bytes that read-ahead has fetched.
    fn position(&self, at: f64, request: &Request) -> (f64, u64) {
        let rate = self.zone(request.offset).1.rate;
        if request.offset == self.head {
            let idle = at - self.head_at;
            let passed = (idle * rate / 1e3) as u64;
            if request.access == Access::Read && passed < self.parameters.read_ahead_bytes {
                return (0.0, passed.min(request.length));
            }
            if idle <= TURNAROUND_NS {
                return (0.0, 0);
            }
        }
        let settle = if request.access == Access::Write { self.parameters.write_settle_ms * MILLISECOND } else { 0.0 };
        let seek = self.parameters.reposition_ms * MILLISECOND + self.seek_ns(self.head, request.offset) + settle;
        let zone = self.zone(request.offset).1;
        let target = ((request.offset - zone.start) as f64 / zone.track_bytes).fract();
        let angle = ((at + seek + self.phase_ns) / self.rotation_ns).fract();
        (seek + (target - angle).rem_euclid(1.0) * self.rotation_ns, 0)
    }

    /// Starts the next request at time `at`, if any waits.
    fn start(&mut self, at: f64) {
        let is_urgent = |queued: &Queued| queued.cached.is_none();
        let foreground = self.queue.iter().any(is_urgent);
        // A cache that is nearly full is emptied beside the reads.
        let drains = self.cache.used > self.parameters.write_cache_bytes / 4 * 3 || !foreground;
        let candidates = || {
            let of_turn = self.queue.iter().enumerate().filter(|(_, queued)| drains || is_urgent(queued));
            of_turn.take(self.parameters.queue_depth)
        };
        let starved = candidates().next().filter(|(_, oldest)| {
            is_urgent(oldest) && at - oldest.arrived > self.parameters.starvation_ms * MILLISECOND
        });
        let nearest = || {
            let time = |queued: &Queued| self.position(at, &queued.request).0;
            candidates().min_by(|(_, one), (_, other)| time(one).total_cmp(&time(other)))
        };
        let Some((index, _)) = starved.or_else(nearest) else { return };
        let queued = self.queue.remove(index).expect("the index is in the queue");
        let request = &queued.request;
        let (positioning, fetched) = self.position(at, request);
        let rate = self.zone(request.offset).1.rate;
        let service = positioning
            + transfer(fetched, self.parameters.interface_mb_per_s)
            + transfer(request.length - fetched, rate);
        self.counts.busy_ns += service as u64;
        self.head = request.offset + request.length;
        self.head_at = at + service;
        self.active = Some(Active { queued, ends: at + service });
    }

    fn finish(&mut self, Active { queued, ends }: Active) {
        let Some(number) = queued.cached else {
            self.ready.insert(((ends + self.parameters.command_ms * MILLISECOND) as u64, queued.request.id));
            return;
        };
        self.cache.used -= queued.request.length;
        self.cache.unwritten.remove(&number);
        let first = self.cache.unwritten.first().copied().unwrap_or(u64::MAX);
        let ready = &mut self.ready;
        self.cache.flushes.retain(|(id, limit)| {
            let waits = first < *limit;
            if !waits {
                ready.insert((ends as u64, *id));
            }
            waits
        });
    }

    fn clamped(&self, mut request: Request) -> Request {
        let capacity = self.parameters.capacity_bytes;
        request.offset = request.offset.min(capacity);
        request.length = request.length.min(capacity - request.offset);
        request
    }
}

impl Service for HardDisk {
    fn submit(&mut self, now: ModelTime, request: Request) {
        let request = self.clamped(request);
        self.counts.arrived(&request);
        let soon = (now as f64 + self.parameters.command_ms * MILLISECOND) as u64;
        let mut cached = None;
        match request.access {
            Access::Flush if self.cache.unwritten.is_empty() => {
                self.ready.insert((soon, request.id));
                return;
            }
            Access::Flush => {
                self.cache.flushes.push((request.id, self.cache.next));
                return;
            }
            Access::Write if self.cache.used + request.length <= self.parameters.write_cache_bytes => {
                let moved = transfer(request.length, self.parameters.interface_mb_per_s) as u64;
                self.ready.insert((soon + moved, request.id));
                self.cache.used += request.length;
                cached = Some(self.cache.next);
                self.cache.unwritten.insert(self.cache.next);
                self.cache.next += 1;
            }
            Access::Read | Access::Write => {}
        }
        self.queue.push_back(Queued { request, arrived: now as f64, cached });
        if self.active.is_none() {
            self.start(now as f64);
        }
    }

    fn next_event(&self) -> Option<ModelTime> {
        let active = self.active.as_ref().map(|active| active.ends.ceil() as u64);
        let ready = self.ready.first().map(|(at, _)| *at);
        active.into_iter().chain(ready).min()
    }

    fn advance(&mut self, now: ModelTime, completed: &mut Vec<Completion>) {
        while self.active.as_ref().is_some_and(|active| active.ends.ceil() as u64 <= now) {
            let active = self.active.take().expect("just seen");
            let ends = active.ends;
            self.finish(active);
            self.start(ends);
        }
        complete_ready(&mut self.ready, now, &mut self.counts, completed);
    }

    fn counts(&self) -> ModelCounts {
        self.counts
    }
}
