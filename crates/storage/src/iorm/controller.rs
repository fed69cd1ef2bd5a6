//! The controller of a device: how much large I/O may be in flight, so that small I/O keeps its latency.
//!
//! The latency of small I/O without large I/O is learned. A small request that takes longer than the target halves the budget of
//! large I/O. 99 requests must meet the target for each that missed it before the budget grows again, so that about one in a
//! hundred misses it. Between two starts of large requests it grows by a factor at most, because only large I/O shows whether a budget
//! is too high. While no small I/O comes, large I/O is not held back.

use super::plan::{Objective, Target};
use super::{DeviceSeconds, Nanoseconds, SECOND};

/// Without small I/O for this time, large I/O is not held back.
const QUIET_AFTER: Nanoseconds = 1_000_000_000;
/// Requests from which the latency without large I/O is known.
const LEARNED_MIN: u64 = 16;
/// Requests after which older ones count half.
const DECAY_AFTER: u64 = 2048;
/// Factors of the budget for a request that missed the target, and for one that met it.
const DECREASE: f64 = 0.5;
const INCREASE: f64 = 1.03;
/// The budget is at most this multiple of the one with which the last large request started.
const GROWTH_MAX: f64 = 1.5;
/// Requests that must meet the target for each that missed it, and at most.
const DEBT_OF_MISS: u32 = 99;
const DEBT_MAX: u32 = 99 * 16;
/// The budget of large I/O, in requests, until small I/O has met the target beside it.
const START_REQUESTS: f64 = 1.0;

const BUCKETS: usize = 384;
const BUCKETS_PER_OCTAVE: f64 = 16.0;

/// Latencies in buckets of a sixteenth of an octave (4.4 %), from a microsecond.
#[derive(Debug)]
struct Latencies {
    buckets: [u32; BUCKETS],
    count: u64,
    p99: Nanoseconds,
}

impl Latencies {
    fn add(&mut self, latency: Nanoseconds) {
        let octaves = (latency.max(1000) as f64 / 1000.0).log2();
        self.buckets[((octaves * BUCKETS_PER_OCTAVE) as usize).min(BUCKETS - 1)] += 1;
        self.count += 1;
        if self.count >= DECAY_AFTER {
            self.buckets.iter_mut().for_each(|bucket| *bucket /= 2);
            self.count = self.buckets.iter().map(|bucket| u64::from(*bucket)).sum();
        }
        if self.count.is_multiple_of(16) {
            self.p99 = self.percentile(0.99);
        }
    }

    fn percentile(&self, share: f64) -> Nanoseconds {
        let mut left = (self.count as f64 * (1.0 - share)) as u64;
        for (at, bucket) in self.buckets.iter().enumerate().rev() {
            if u64::from(*bucket) > left {
                return (1000.0 * ((at as f64 + 0.5) / BUCKETS_PER_OCTAVE).exp2()) as Nanoseconds;
            }
            left -= u64::from(*bucket);
        }
        0
    }
}

#[derive(Debug)]
pub struct Controller {
    objective: Objective,
    target: Option<Target>,
    /// The latency of small I/O without large I/O.
    idle: Latencies,
    /// Large I/O that may be in flight. Less than the cost of one request: the part of the time in which one is.
    budget: DeviceSeconds,
    budget_max: DeviceSeconds,
    /// The budget when the last large request started.
    budget_at_start: DeviceSeconds,
    /// When the last small request arrived or ended.
    last_small: Option<Nanoseconds>,
    /// The budget has been lowered for requests that arrived before this time.
    lowered: Nanoseconds,
    /// Requests that must meet the target before the budget grows.
    debt: u32,
    /// When the next large request may start, in seconds, while the budget is less than one request.
    next_large: f64,
}

impl Controller {
    pub fn new(budget_max: DeviceSeconds) -> Self {
        Self {
            objective: Objective::Off,
            target: None,
            idle: Latencies { buckets: [0; BUCKETS], count: 0, p99: 0 },
            budget: 0.0,
            budget_max,
            budget_at_start: 0.0,
            last_small: None,
            lowered: 0,
            debt: 0,
            next_large: 0.0,
        }
    }

    pub fn set_objective(&mut self, objective: Objective) {
        (self.objective, self.target, self.debt) = (objective, objective.target(), 0);
    }

    /// Returns the learned 99th percentile of small I/O without large I/O; None if it is not known yet.
    pub fn idle_p99(&self) -> Option<Nanoseconds> {
        (self.idle.count >= LEARNED_MIN).then_some(self.idle.p99)
    }

    /// Returns the latency that small I/O may have; None without a target or before the latency is known.
    pub fn small_limit(&self) -> Option<Nanoseconds> {
        let ratio = self.target?.ratio;
        self.idle_p99().map(|idle| (idle as f64 * ratio) as Nanoseconds)
    }

    pub fn budget(&self) -> DeviceSeconds {
        self.budget
    }

    /// Returns whether small I/O came during the last second.
    pub fn has_small(&self, now: Nanoseconds) -> bool {
        self.last_small.is_some_and(|last| now.saturating_sub(last) < QUIET_AFTER)
    }

    pub fn small_arrived(&mut self, now: Nanoseconds) {
        self.last_small = Some(now);
    }

    /// Learns from a small request. `was_alone`: no large one was in flight meanwhile. `is_wanted`: large ones wait or are in
    /// flight.
    pub fn small_completed(
        &mut self,
        arrived: Nanoseconds,
        now: Nanoseconds,
        was_alone: bool,
        is_wanted: bool,
        cost_of_large: DeviceSeconds,
    ) {
        self.last_small = Some(now);
        let latency = now.saturating_sub(arrived);
        let limit = self.small_limit();
        if was_alone {
            self.idle.add(latency);
        }
        let Some(limit) = limit else { return };
        if latency > limit && !was_alone {
            self.debt = (self.debt + DEBT_OF_MISS).min(DEBT_MAX);
            self.missed(arrived, now, cost_of_large);
        } else if self.debt > 0 {
            self.debt -= 1;
        } else if is_wanted {
            let most = self.budget_max.min(self.budget_at_start * GROWTH_MAX);
            self.budget = (self.budget * INCREASE).min(most).max(self.budget);
        }
    }

    /// Takes note of the oldest small request in flight, which may miss the target before it ends.
    pub fn small_waits(&mut self, arrived: Nanoseconds, now: Nanoseconds, cost_of_large: DeviceSeconds) {
        if self.small_limit().is_some_and(|limit| now.saturating_sub(arrived) > limit) {
            self.missed(arrived, now, cost_of_large);
        }
    }

    fn missed(&mut self, arrived: Nanoseconds, now: Nanoseconds, cost_of_large: DeviceSeconds) {
        // Requests that waited for the same large I/O count once.
        if let Some(target) = self.target
            && arrived >= self.lowered
        {
            self.lowered = now;
            self.budget = (self.budget * DECREASE).max(target.floor * cost_of_large);
        }
    }

    /// Returns whether a large request may start while large ones of `in_flight` are in flight.
    pub fn allows_large(&self, now: Nanoseconds, in_flight: DeviceSeconds, cost: DeviceSeconds) -> bool {
        let is_due = self.next_large <= now as f64 / SECOND;
        match self.objective {
            Objective::Off | Objective::HighThroughput => true,
            Objective::Static(percent) => percent >= 100 || is_due,
            _ if !self.has_small(now) => true,
            // Before the latency is known: one at a time, so that small I/O is alone between them.
            _ if self.idle_p99().is_none() => in_flight == 0.0,
            _ => in_flight + cost <= self.budget || in_flight == 0.0 && is_due,
        }
    }

    /// Returns when a large request may start that may not start now because of the time.
    pub fn next_large(&self, now: Nanoseconds) -> Option<Nanoseconds> {
        let due = (self.next_large * SECOND).ceil() as Nanoseconds;
        let quiet = self.last_small.map(|last| last + QUIET_AFTER).filter(|_| self.target.is_some());
        [Some(due), quiet].into_iter().flatten().filter(|at| *at > now).min()
    }

    pub fn large_started(&mut self, now: Nanoseconds, cost: DeviceSeconds) {
        let seconds = now as f64 / SECOND;
        if self.budget == 0.0 {
            self.budget = START_REQUESTS * cost;
        }
        self.budget_at_start = self.budget;
        self.next_large = match self.objective {
            Objective::Static(percent) if percent < 100 => {
                self.next_large.max(seconds - self.budget_max) + cost * 100.0 / f64::from(percent.max(1))
            }
            _ if self.target.is_some() && self.budget < cost => seconds + cost * cost / self.budget,
            _ => seconds,
        };
    }
}
