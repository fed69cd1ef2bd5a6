//! A device model in real time: callers wait until the model has completed their requests.

use super::parameters::ModelParameters;
use super::service::{Access, Completion, ModelCounts, ModelTime, Request, Service};
use crate::operation_counters::{OperationCounters, OperationCounts};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::HashMap;
use std::ops::Range;
use std::time::{Duration, Instant};

/// State and counters of a modelled disk at one moment. Times are model times.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelStatus {
    pub model: String,
    pub time_scale: f64,
    /// Time since the model was created.
    pub elapsed_ns: ModelTime,
    pub counts: ModelCounts,
    pub read_latency: OperationCounts,
    pub write_latency: OperationCounts,
}

#[derive(Debug)]
pub struct ModelDevice {
    model: String,
    /// Real seconds per model second.
    time_scale: f64,
    started: Instant,
    state: Mutex<State>,
    completed: Condvar,
    read_latency: OperationCounters,
    write_latency: OperationCounters,
}

#[derive(Debug)]
struct State {
    service: Box<dyn Service>,
    next_id: u64,
    /// Completions that their callers have not seen.
    done: HashMap<u64, ModelTime>,
}

/// Requests that were submitted together.
#[derive(Debug)]
pub struct Submitted {
    access: Access,
    ids: Vec<u64>,
    bytes: u64,
    at: ModelTime,
}

impl ModelDevice {
    pub fn new(model: &str, parameters: &ModelParameters, seed: u64, time_scale: f64) -> Self {
        Self {
            model: model.to_owned(),
            time_scale,
            started: Instant::now(),
            state: Mutex::new(State { service: parameters.service(seed), next_id: 0, done: HashMap::new() }),
            completed: Condvar::new(),
            read_latency: OperationCounters::default(),
            write_latency: OperationCounters::default(),
        }
    }

    fn now(&self) -> ModelTime {
        (self.started.elapsed().as_nanos() as f64 / self.time_scale) as ModelTime
    }

    fn real(&self, at: ModelTime) -> Instant {
        self.started + Duration::from_nanos((at as f64 * self.time_scale) as u64)
    }

    /// Advances the model to the present.
    fn advance(&self, state: &mut MutexGuard<'_, State>) -> ModelTime {
        let (now, mut completed) = (self.now(), Vec::new());
        state.service.advance(now, &mut completed);
        if !completed.is_empty() {
            state.done.extend(completed.into_iter().map(|Completion { id, at }| (id, at)));
            self.completed.notify_all();
        }
        now
    }

    /// Submits one request for each range; one without a range for a flush.
    pub fn submit(&self, access: Access, ranges: &[Range<u64>]) -> Submitted {
        let mut state = self.state.lock();
        let at = self.advance(&mut state);
        let none = Range { start: 0, end: 0 };
        let ranges = if access == Access::Flush { std::slice::from_ref(&none) } else { ranges };
        let first = state.next_id;
        state.next_id += ranges.len() as u64;
        let ids: Vec<u64> = (first..state.next_id).collect();
        for (id, range) in ids.iter().zip(ranges) {
            let (offset, length) = (range.start, range.end - range.start);
            state.service.submit(at, Request { id: *id, access, offset, length });
        }
        Submitted { access, ids, bytes: ranges.iter().map(|range| range.end - range.start).sum(), at }
    }

    /// Waits until all requests are complete.
    pub fn wait(&self, submitted: Submitted) {
        let mut state = self.state.lock();
        let mut last = submitted.at;
        for id in &submitted.ids {
            last = last.max(self.wait_for(&mut state, *id));
        }
        let took = Duration::from_nanos(last - submitted.at);
        match submitted.access {
            Access::Read if !submitted.ids.is_empty() => self.read_latency.count(submitted.bytes as usize, took),
            Access::Write if !submitted.ids.is_empty() => self.write_latency.count(submitted.bytes as usize, took),
            _ => {}
        }
    }

    fn wait_for(&self, state: &mut MutexGuard<'_, State>, id: u64) -> ModelTime {
        loop {
            if let Some(at) = state.done.remove(&id) {
                return at;
            }
            // A waiter that processes a completion wakes the others, so each waits only for the next event.
            let next = state.service.next_event().expect("a request is in flight");
            self.completed.wait_until(state, self.real(next));
            self.advance(state);
        }
    }

    pub fn discard(&self, ranges: Vec<Range<u64>>) {
        let mut state = self.state.lock();
        self.advance(&mut state);
        ranges.into_iter().for_each(|range| state.service.discard(range));
    }

    pub fn status(&self) -> ModelStatus {
        let mut state = self.state.lock();
        let elapsed_ns = self.advance(&mut state);
        ModelStatus {
            model: self.model.clone(),
            time_scale: self.time_scale,
            elapsed_ns,
            counts: state.service.counts(),
            read_latency: self.read_latency.read(),
            write_latency: self.write_latency.read(),
        }
    }
}
