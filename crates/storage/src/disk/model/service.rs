//! The interface of a device model: requests and their completions in model time.
//!
//! A model never waits and never reads a clock. The caller passes the time, which must not decrease. With the same
//! parameters, seed and calls a model returns the same completions.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::ops::Range;

/// Model time in nanoseconds since the model was created.
pub type ModelTime = u64;

pub const MICROSECOND: f64 = 1e3;
pub const MILLISECOND: f64 = 1e6;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    Read,
    Write,
    /// Completes when all earlier writes are durable.
    Flush,
}

/// A request at a range of the device's addresses, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Chosen by the caller; unique among the requests in flight.
    pub id: u64,
    pub access: Access,
    pub offset: u64,
    pub length: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    pub id: u64,
    pub at: ModelTime,
}

/// Counters of a model. All but the last two only increase.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ModelCounts {
    pub reads: u64,
    pub writes: u64,
    pub flushes: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
    /// Time during which the mechanics, or the flash dies together, worked. With several dies, more than the elapsed time.
    pub busy_ns: u64,
    /// Bytes that flash chips programmed for requests, and for garbage collection. Zero for a hard disk.
    pub programmed_bytes: u64,
    pub collected_bytes: u64,
    /// Blocks that garbage collection erased: while requests waited, and in idle time.
    pub foreground_erases: u64,
    pub idle_erases: u64,
    /// Requests that are not complete: now, and at most so far.
    pub queue: u64,
    pub queue_max: u64,
}

/// Moves the requests that are ready by `now` to the completed ones.
pub fn complete_ready(
    ready: &mut BTreeSet<(ModelTime, u64)>,
    now: ModelTime,
    counts: &mut ModelCounts,
    completed: &mut Vec<Completion>,
) {
    while let Some((at, id)) = ready.first().copied().filter(|(at, _)| *at <= now) {
        ready.remove(&(at, id));
        counts.queue -= 1;
        completed.push(Completion { id, at });
    }
}

impl ModelCounts {
    /// Returns the bytes programmed per byte that requests made the flash program; 1 without garbage collection, None
    /// before the first program.
    pub fn write_amplification(&self) -> Option<f64> {
        let total = self.programmed_bytes + self.collected_bytes;
        (self.programmed_bytes > 0).then(|| total as f64 / self.programmed_bytes as f64)
    }

    pub(super) fn arrived(&mut self, request: &Request) {
        match request.access {
            Access::Read => (self.reads, self.read_bytes) = (self.reads + 1, self.read_bytes + request.length),
            Access::Write => (self.writes, self.written_bytes) = (self.writes + 1, self.written_bytes + request.length),
            Access::Flush => self.flushes += 1,
        }
        self.queue += 1;
        self.queue_max = self.queue_max.max(self.queue);
    }
}

/// A device in model time.
pub trait Service: Send + Debug {
    /// Accepts a request. Call [`Service::advance`] up to `now` first.
    fn submit(&mut self, now: ModelTime, request: Request);

    /// Tells the device that the content of a range is not needed any more. Takes no time.
    fn discard(&mut self, _range: Range<u64>) {}

    /// Returns the earliest time at which [`Service::advance`] changes anything; None if the device is at rest.
    fn next_event(&self) -> Option<ModelTime>;

    /// Advances to `now`, and appends the requests that completed by then.
    fn advance(&mut self, now: ModelTime, completed: &mut Vec<Completion>);

    fn counts(&self) -> ModelCounts;
}

/// Returns the duration of a transfer in nanoseconds; a megabyte is 10^6 bytes.
pub fn transfer(bytes: u64, mb_per_s: f64) -> f64 {
    bytes as f64 * 1e3 / mb_per_s
}
