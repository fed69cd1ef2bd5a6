//! The model of a link to an array: latency and bandwidth of both directions around another device.

use super::parameters::ArrayLinkParameters;
use super::service::{
    Access, Completion, MICROSECOND, ModelCounts, ModelTime, Request, Service, complete_ready, transfer,
};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::Range;

#[derive(Debug)]
pub struct ArrayLink {
    parameters: ArrayLinkParameters,
    device: Box<dyn Service>,
    /// Requests on their way to the device, by arrival and id.
    outbound: BTreeMap<(ModelTime, u64), Request>,
    /// When each direction becomes free.
    outbound_free: f64,
    inbound_free: f64,
    /// Bytes that the completion of a request brings back.
    in_flight: HashMap<u64, u64>,
    waiting: VecDeque<Request>,
    ready: BTreeSet<(ModelTime, u64)>,
    counts: ModelCounts,
}

impl ArrayLink {
    pub fn new(parameters: &ArrayLinkParameters, device: Box<dyn Service>) -> Self {
        Self {
            device,
            outbound: BTreeMap::new(),
            outbound_free: 0.0,
            inbound_free: 0.0,
            in_flight: HashMap::new(),
            waiting: VecDeque::new(),
            ready: BTreeSet::new(),
            counts: ModelCounts::default(),
            parameters: parameters.clone(),
        }
    }

    fn send(&mut self, at: f64, request: Request) {
        let (sent, returned) = match request.access {
            Access::Read => (0, request.length),
            Access::Write => (request.length, 0),
            Access::Flush => (0, 0),
        };
        self.outbound_free = self.outbound_free.max(at) + transfer(sent, self.parameters.link_mb_per_s);
        let arrives = (self.outbound_free + self.parameters.link_us * MICROSECOND) as u64;
        self.outbound.insert((arrives, request.id), request);
        self.in_flight.insert(request.id, returned);
    }

    /// Advances the device to `at` and sends its completions back.
    fn advance_device(&mut self, at: ModelTime) {
        let mut done = Vec::new();
        self.device.advance(at, &mut done);
        for Completion { id, at } in done {
            let bytes = self.in_flight.remove(&id).expect("the request was sent");
            self.inbound_free = self.inbound_free.max(at as f64) + transfer(bytes, self.parameters.link_mb_per_s);
            self.ready.insert(((self.inbound_free + self.parameters.link_us * MICROSECOND) as u64, id));
            if let Some(request) = self.waiting.pop_front() {
                self.send(at as f64, request);
            }
        }
    }
}

impl Service for ArrayLink {
    fn submit(&mut self, now: ModelTime, request: Request) {
        self.counts.arrived(&request);
        match self.in_flight.len() < self.parameters.queue_depth {
            true => self.send(now as f64, request),
            false => self.waiting.push_back(request),
        }
    }

    fn discard(&mut self, range: Range<u64>) {
        self.device.discard(range);
    }

    fn next_event(&self) -> Option<ModelTime> {
        let outbound = self.outbound.first_key_value().map(|((at, _), _)| *at);
        let ready = self.ready.first().map(|(at, _)| *at);
        outbound.into_iter().chain(ready).chain(self.device.next_event()).min()
    }

    fn advance(&mut self, now: ModelTime, completed: &mut Vec<Completion>) {
        loop {
            let outbound = self.outbound.first_key_value().map(|((at, _), _)| *at);
            let Some(at) = outbound.into_iter().chain(self.device.next_event()).min().filter(|at| *at <= now) else {
                break;
            };
            self.advance_device(at);
            if outbound == Some(at)
                && let Some((_, request)) = self.outbound.pop_first()
            {
                self.device.submit(at, request);
            }
        }
        self.advance_device(now);
        complete_ready(&mut self.ready, now, &mut self.counts, completed);
    }

    /// Returns the requests and the queue of the link, and the work of the device.
    fn counts(&self) -> ModelCounts {
        let device = self.device.counts();
        ModelCounts {
            busy_ns: device.busy_ns,
            programmed_bytes: device.programmed_bytes,
            collected_bytes: device.collected_bytes,
            foreground_erases: device.foreground_erases,
            idle_erases: device.idle_erases,
            ..self.counts
        }
    }
}
