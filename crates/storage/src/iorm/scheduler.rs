//! The scheduler of one device, without clock and threads: callers pass the time, start what [`Scheduler::start`] returns, and
//! report when it has ended.

use super::controller::Controller;
use super::fair::{Allowed, Queues, Request};
use super::plan::{Objective, Terms};
use super::{DeviceSeconds, Nanoseconds};
use crate::request::{DatabaseId, GroupId, IoKind};
use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};

/// A request that ended in less than this part of its cost was answered from memory.
const CACHED_BELOW: f64 = 0.5;

/// Large requests in flight while several sources have some: fewer than a scan keeps outstanding with its prefetch threads, so that
/// requests of each scan wait here, where the plan orders them. A disk serves those in flight in its own order.
const LARGE_IN_FLIGHT_MAX: usize = 4;

/// A large request in flight for this time or longer hangs, because no disk passes a request over for so long: a hard disk does for up
/// to 300 ms. The order of the plan no longer depends on such a request, so others need not wait for it.
const HANGS_AFTER: Nanoseconds = 1_000_000_000;

/// A large request is passed over only after this multiple of the median latency: latencies of a device vary.
const PASSED_OVER_RATIO: f64 = 3.0;
/// The least time after which a large request is passed over. The costs of a device that was not calibrated may be far below its
/// latencies, and no latency is known at first.
const PASSED_OVER_MIN: DeviceSeconds = 0.01;
/// The factor by which a latency above or below the median moves it.
const MEDIAN_STEP: f64 = 1.05;

/// The requests that a plan treats alike.
type SourceId = (DatabaseId, GroupId);

#[derive(Debug)]
pub struct Scheduler {
    queues: Queues,
    controller: Controller,
    objective: Objective,
    /// Device time of requests in flight with which the device is fully used.
    depth: DeviceSeconds,
    in_flight: HashMap<u64, InFlight>,
    in_flight_cost: DeviceSeconds,
    large_cost: DeviceSeconds,
    /// The large requests in flight, by start.
    large_in_flight: BTreeSet<(Nanoseconds, u64)>,
    /// The sources with large requests.
    large_of: HashMap<SourceId, LargeOf>,
    /// The moving median of the latencies of large requests that started while several sources had some: while one source has the
    /// whole depth, requests wait for more others on the device. None if none has ended.
    large_latency: Option<DeviceSeconds>,
    background: usize,
    /// The small requests in flight, by arrival.
    small_in_flight: BTreeSet<(Nanoseconds, u64)>,
    /// Large requests that have started.
    large_started: u64,
    /// When each waiting request arrived, with `large_started` if no large one was in flight.
    arrived: HashMap<u64, (Nanoseconds, Option<u64>)>,
    /// The cost of the last large request.
    cost_of_large: DeviceSeconds,
}

/// Large requests of a source: all, and those in flight.
#[derive(Debug, Default)]
struct LargeOf {
    outstanding: usize,
    in_flight: usize,
}

#[derive(Debug, Clone, Copy)]
struct InFlight {
    request: Request,
    arrived: Nanoseconds,
    started: Nanoseconds,
    /// `large_started` when the request arrived; None if large I/O was in flight.
    large_before: Option<u64>,
    /// Whether several sources had large requests when the request started.
    is_shared: bool,
}

/// A request that may start, and how long it has waited.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Start {
    pub id: u64,
    pub waited: Nanoseconds,
}

/// Returns the device time that a request is charged with whose cost is known, and which took some time.
pub fn charge(cost: DeviceSeconds, took: DeviceSeconds) -> DeviceSeconds {
    if took < cost * CACHED_BELOW { took } else { cost }
}

impl Scheduler {
    /// `depth` is the device time of requests in flight with which the device is fully used.
    pub fn new(depth: DeviceSeconds) -> Self {
        Self {
            queues: Queues::default(),
            controller: Controller::new(depth),
            objective: Objective::Off,
            depth,
            in_flight: HashMap::new(),
            in_flight_cost: 0.0,
            large_cost: 0.0,
            large_in_flight: BTreeSet::new(),
            large_of: HashMap::new(),
            large_latency: None,
            background: 0,
            small_in_flight: BTreeSet::new(),
            large_started: 0,
            arrived: HashMap::new(),
            cost_of_large: depth,
        }
    }

    /// Changes the depth. Learned latencies are forgotten.
    pub fn set_depth(&mut self, depth: DeviceSeconds) {
        (self.depth, self.cost_of_large, self.large_latency) = (depth, depth, None);
        self.controller = Controller::new(depth);
        self.controller.set_objective(self.objective);
    }

    pub fn set_objective(&mut self, objective: Objective) {
        self.objective = objective;
        self.controller.set_objective(objective);
    }

    pub fn set_terms(&mut self, database: DatabaseId, terms: Terms) {
        self.queues.set_terms(database, terms);
    }

    pub fn controller(&self) -> &Controller {
        &self.controller
    }

    pub fn waiting(&self) -> usize {
        self.queues.waiting()
    }

    /// Returns whether large reads are to be split, because small I/O would wait for them.
    pub fn splits_large(&self, now: Nanoseconds) -> bool {
        self.objective != Objective::Off && self.controller.has_small(now)
    }

    /// Accepts a request. Call [`Self::start`] then.
    pub fn submit(&mut self, now: Nanoseconds, request: Request) {
        if matches!(request.kind, IoKind::Small | IoKind::Redo) {
            self.controller.small_arrived(now);
        }
        if request.kind == IoKind::Large {
            self.large_of.entry((request.database, request.group)).or_default().outstanding += 1;
        }
        let large_before = (self.large_cost == 0.0).then_some(self.large_started);
        self.arrived.insert(request.id, (now, large_before));
        self.queues.push(now, request);
    }

    fn has_capacity(&self) -> bool {
        self.in_flight_cost < self.depth || self.in_flight.is_empty()
    }

    /// Returns whether several sources have large requests that are in flight or that no limit holds back.
    fn is_shared(&self, now: Nanoseconds) -> bool {
        let competes = |((database, _), large): &(&SourceId, &LargeOf)| {
            large.in_flight > 0 || !self.queues.is_held_by_limit(now, *database)
        };
        self.large_of.len() > 1 && self.large_of.iter().filter(competes).nth(1).is_some()
    }

    /// Returns when the large requests started that are in flight and do not hang, in this order.
    fn large_starts(&self, now: Nanoseconds) -> impl Iterator<Item = Nanoseconds> {
        let since = now.saturating_sub(HANGS_AFTER - 1);
        self.large_in_flight.range((since, 0)..).map(|(started, _)| *started)
    }

    /// Returns whether the order of large requests is still that of the plan if another request starts that is held back, thus a
    /// large or background one. A disk may serve the neighbours of its last request for long before the only request of another
    /// source: then none starts until that one has ended, or hangs.
    fn keeps_order_of_held_back(&self, now: Nanoseconds) -> bool {
        if !self.is_shared(now) {
            return true;
        }
        let measured = self.large_latency.map_or(0.0, |latency| PASSED_OVER_RATIO * latency);
        let longest = (self.depth + self.cost_of_large).max(measured).max(PASSED_OVER_MIN);
        let is_passed_over = |started: Nanoseconds| now.saturating_sub(started) as f64 / super::SECOND > longest;
        self.large_starts(now).nth(LARGE_IN_FLIGHT_MAX - 1).is_none()
            && !self.large_starts(now).next().is_some_and(is_passed_over)
    }

    fn allowed(&self, now: Nanoseconds) -> Allowed {
        if self.objective == Objective::Off {
            return [true; IoKind::ALL.len()];
        }
        let capacity = self.has_capacity();
        let large = capacity
            && self.keeps_order_of_held_back(now)
            && self.controller.allows_large(now, self.large_cost, self.cost_of_large);
        // By `IoKind`. WAL never waits for other requests.
        [true, capacity, large, large && self.background == 0]
    }

    /// Returns whether a request of a kind that arrives now would wait.
    pub fn would_wait(&self, now: Nanoseconds, kind: IoKind) -> bool {
        self.queues.waiting_of(kind) > 0 || !self.allowed(now)[kind as usize]
    }

    /// Returns when the oldest small request arrived that is in flight.
    fn oldest_small(&self) -> Option<Nanoseconds> {
        self.small_in_flight.first().map(|(arrived, _)| *arrived)
    }

    fn waiting_large(&self) -> usize {
        self.queues.waiting_of(IoKind::Large) + self.queues.waiting_of(IoKind::Background)
    }

    /// Returns a request that starts now; None if none may start.
    pub fn start(&mut self, now: Nanoseconds) -> Option<Start> {
        if self.queues.waiting() == 0 {
            return None;
        }
        if self.objective == Objective::Off {
            return self.queues.pop_any().map(|request| self.started(now, request));
        }
        if self.waiting_large() > 0
            && let Some(arrived) = self.oldest_small()
        {
            self.controller.small_waits(arrived, now, self.cost_of_large);
        }
        let allowed = self.allowed(now);
        let request = self.queues.pop(now, &allowed)?;
        Some(self.started(now, request))
    }

    /// Starts a request that has waited too long.
    pub fn start_overdue(&mut self, now: Nanoseconds, id: u64) -> Option<Start> {
        let request = self.queues.take_id(id)?;
        Some(self.started(now, request))
    }

    fn started(&mut self, now: Nanoseconds, request: Request) -> Start {
        let (arrived, large_before) = self.arrived.remove(&request.id).unwrap_or((now, None));
        let is_shared = request.kind == IoKind::Large && self.is_shared(now);
        if request.kind.is_held_back() {
            self.controller.large_started(now, request.cost);
            (self.large_started, self.large_cost) = (self.large_started + 1, self.large_cost + request.cost);
            self.cost_of_large = request.cost;
        }
        if request.kind == IoKind::Small {
            self.small_in_flight.insert((arrived, request.id));
        }
        self.background += usize::from(request.kind == IoKind::Background);
        if request.kind == IoKind::Large {
            self.large_in_flight.insert((now, request.id));
            self.large_of.entry((request.database, request.group)).or_default().in_flight += 1;
        }
        self.in_flight_cost += request.cost;
        self.in_flight.insert(request.id, InFlight { request, arrived, started: now, large_before, is_shared });
        Start { id: request.id, waited: now.saturating_sub(arrived) }
    }

    /// Reports that a request has ended. Returns the device time that it is charged with. Call [`Self::start`] then.
    pub fn completed(&mut self, now: Nanoseconds, id: u64) -> DeviceSeconds {
        let Some(InFlight { request, arrived, started, large_before, is_shared }) = self.in_flight.remove(&id) else {
            return 0.0;
        };
        self.in_flight_cost -= request.cost;
        self.small_in_flight.remove(&(arrived, id));
        if request.kind.is_held_back() {
            self.large_cost -= request.cost;
        }
        self.background -= usize::from(request.kind == IoKind::Background);
        if request.kind == IoKind::Large {
            self.large_in_flight.remove(&(started, id));
            self.large_ended((request.database, request.group));
        }
        // Sums of floating-point numbers do not return to zero.
        if self.in_flight.is_empty() {
            (self.in_flight_cost, self.large_cost) = (0.0, 0.0);
        } else if !self.in_flight.values().any(|other| other.request.kind.is_held_back()) {
            self.large_cost = 0.0;
        }
        let took = now.saturating_sub(started) as f64 / super::SECOND;
        let charged = charge(request.cost, took);
        if charged < request.cost {
            self.queues.refund(&request, request.cost - charged);
            return charged;
        }
        if is_shared && now.saturating_sub(started) < HANGS_AFTER {
            self.learn_latency(took);
        }
        if request.kind == IoKind::Small {
            let was_alone = large_before == Some(self.large_started);
            let is_wanted = self.large_cost > 0.0 || self.waiting_large() > 0;
            self.controller.small_completed(arrived, now, was_alone, is_wanted, self.cost_of_large);
        }
        request.cost
    }

    /// A median, unlike a mean, does not grow with the requests that were passed over.
    fn learn_latency(&mut self, took: DeviceSeconds) {
        let step = |median: f64| if took > median { median * MEDIAN_STEP } else { median / MEDIAN_STEP };
        self.large_latency = Some(self.large_latency.map_or(took, step));
    }

    fn large_ended(&mut self, source: SourceId) {
        if let Entry::Occupied(mut of_source) = self.large_of.entry(source) {
            let large = of_source.get_mut();
            (large.outstanding, large.in_flight) = (large.outstanding - 1, large.in_flight - 1);
            if large.outstanding == 0 {
                of_source.remove();
            }
        }
    }

    /// Returns when a waiting request may start although none has ended; None if only an end lets one start.
    pub fn next_event(&self, now: Nanoseconds) -> Option<Nanoseconds> {
        let large = (self.waiting_large() > 0).then(|| {
            let hangs = self.large_starts(now).next().map(|started| started + HANGS_AFTER);
            [self.controller.next_large(now), hangs].into_iter().flatten().min()
        });
        [self.queues.next_limit(now), large.flatten()].into_iter().flatten().min()
    }
}
