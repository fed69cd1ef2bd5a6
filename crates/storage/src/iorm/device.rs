//! The queue of one device in real time: threads wait until the scheduler starts their requests.

use super::cost::CostModel;
use super::counters::{ClassCounters, Counted, Medium};
use super::fair::Request;
use super::plan::{Objective, Terms};
use super::scheduler::charge;
use super::{DeviceSeconds, Nanoseconds, Scheduler};
use crate::request::{DatabaseId, IoKind, IoSize, Origin, SMALL_BYTES_MAX, Waiting, is_urgent};
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// A request starts at the latest after this time.
pub const WAIT_MAX: Duration = Duration::from_secs(10);

/// The length and place of a request.
#[derive(Debug, Clone, Copy)]
pub struct Operation {
    pub is_write: bool,
    pub bytes: usize,
    pub is_sequential: bool,
}

#[derive(Debug)]
pub struct DeviceQueue {
    path: PathBuf,
    medium: Medium,
    costs: RwLock<CostModel>,
    /// The origin of the times that the scheduler gets.
    since: Instant,
    /// Whether the objective is another one than off.
    is_active: AtomicBool,
    state: Mutex<State>,
    counters: Arc<ClassCounters>,
}

#[derive(Debug)]
struct State {
    scheduler: Scheduler,
    waiters: HashMap<u64, Arc<Waiter>>,
    next_id: u64,
}

#[derive(Debug)]
struct Waiter {
    thread: Thread,
    has_started: AtomicBool,
}

/// State of a device's queue at one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceReport {
    pub path: PathBuf,
    pub waiting: usize,
    /// The learned 99th percentile of small I/O without large I/O.
    pub idle_p99: Option<Duration>,
    /// Large I/O that may be in flight, in device time.
    pub large_budget: DeviceSeconds,
    pub depth: DeviceSeconds,
}

impl DeviceQueue {
    pub fn new(path: &Path, medium: Medium, costs: CostModel, counters: Arc<ClassCounters>) -> Self {
        let state = State { scheduler: Scheduler::new(costs.depth), waiters: HashMap::new(), next_id: 0 };
        let (since, is_active) = (Instant::now(), AtomicBool::new(false));
        let costs = RwLock::new(costs);
        Self { path: path.to_owned(), medium, costs, since, is_active, state: Mutex::new(state), counters }
    }

    fn now(&self) -> Nanoseconds {
        self.since.elapsed().as_nanos() as Nanoseconds
    }

    pub fn medium(&self) -> Medium {
        self.medium
    }

    pub fn costs(&self) -> CostModel {
        *self.costs.read()
    }

    /// Changes the costs of the requests from now on.
    pub fn set_costs(&self, costs: CostModel) {
        *self.costs.write() = costs;
        let mut state = self.state.lock();
        state.scheduler.set_depth(costs.depth);
        state.start_all(self.now());
    }

    pub fn set_objective(&self, objective: Objective) {
        let mut state = self.state.lock();
        state.scheduler.set_objective(objective);
        self.is_active.store(objective != Objective::Off, Ordering::Release);
        state.start_all(self.now());
    }

    pub fn set_terms(&self, database: DatabaseId, terms: Terms) {
        let mut state = self.state.lock();
        state.scheduler.set_terms(database, terms);
        state.start_all(self.now());
    }

    pub fn is_active(&self) -> bool {
        self.is_active.load(Ordering::Acquire)
    }

    /// Returns whether a request would wait now.
    pub fn would_wait(&self, origin: Origin, bytes: usize) -> bool {
        self.is_active() && !is_urgent() && self.state.lock().scheduler.would_wait(self.now(), origin.kind_of(bytes))
    }

    /// Returns the length of the parts into which large reads are to be split now, if they are.
    pub fn split_bytes(&self) -> Option<usize> {
        let is_split = self.is_active() && self.state.lock().scheduler.splits_large(self.now());
        is_split.then(|| self.costs().split_bytes)
    }

    /// Runs a request when the scheduler starts it.
    pub fn run<T>(&self, origin: Origin, operation: Operation, work: impl FnOnce() -> T) -> T {
        let ended = Self::begin(self, origin, operation);
        let result = work();
        drop(ended);
        result
    }

    /// Runs a request that does not wait, and charges its database.
    pub fn pass<T>(&self, origin: Origin, operation: Operation, work: impl FnOnce() -> T) -> T {
        let ended = Self::begin_at_once(self, origin, operation);
        let result = work();
        drop(ended);
        result
    }

    /// Counts a request that has passed the queue.
    pub fn count(&self, origin: Origin, operation: Operation, took: Duration) {
        self.count_ended(origin, operation, 0, took, charge(self.cost(operation), took.as_secs_f64()));
    }

    fn count_ended(
        &self,
        origin: Origin,
        operation: Operation,
        waited_ns: Nanoseconds,
        took: Duration,
        cost: DeviceSeconds,
    ) {
        let is_large = operation.bytes > SMALL_BYTES_MAX || origin.kind_of(operation.bytes) == IoKind::Large;
        let size = if is_large { IoSize::Large } else { IoSize::Small };
        let (bytes, took_ns) = (operation.bytes as u64, took.as_nanos() as u64);
        let device_ns = (cost * super::SECOND) as u64;
        self.counters.count(origin, self.medium, size, Counted { requests: 1, bytes, waited_ns, took_ns, device_ns });
    }

    /// Waits until the scheduler starts a request, which ends when the value is dropped. With the objective off, the request is only
    /// counted.
    pub fn begin<Q: Deref<Target = Self>>(queue: Q, origin: Origin, operation: Operation) -> Ended<Q> {
        if !queue.is_active() || is_urgent() {
            return Self::begin_at_once(queue, origin, operation);
        }
        let (id, waited) = queue.wait(queue.request(origin, operation));
        Ended { queue, id: Some(id), origin, operation, waited, started: Instant::now() }
    }

    /// Starts a request, which ends when the value is dropped.
    pub fn begin_at_once<Q: Deref<Target = Self>>(queue: Q, origin: Origin, operation: Operation) -> Ended<Q> {
        if !queue.is_active() {
            return Ended { queue, id: None, origin, operation, waited: 0, started: Instant::now() };
        }
        let request = queue.request(origin, operation);
        let id = {
            let mut state = queue.state.lock();
            let id = state.submit(queue.now(), request);
            state.scheduler.start_overdue(queue.now(), id);
            id
        };
        Ended { queue, id: Some(id), origin, operation, waited: 0, started: Instant::now() }
    }

    fn cost(&self, Operation { is_write, bytes, is_sequential }: Operation) -> DeviceSeconds {
        self.costs.read().cost(is_write, bytes, is_sequential)
    }

    /// The number follows when the request is submitted.
    fn request(&self, origin: Origin, operation: Operation) -> Request {
        let (kind, cost) = (origin.kind_of(operation.bytes), self.cost(operation));
        Request { id: 0, database: origin.database, group: origin.group, kind, cost }
    }

    fn wait(&self, request: Request) -> (u64, Nanoseconds) {
        let arrived = self.now();
        let mut state = self.state.lock();
        let id = state.submit(arrived, request);
        // Mostly the request starts at once.
        if state.start_all_until(arrived, id) {
            return (id, 0);
        }
        let waiter = Arc::new(Waiter { thread: std::thread::current(), has_started: AtomicBool::new(false) });
        state.waiters.insert(id, waiter.clone());
        let waiting = Waiting::begin();
        let overdue = arrived + WAIT_MAX.as_nanos() as Nanoseconds;
        loop {
            let now = self.now();
            if now >= overdue || waiting.is_urgent() {
                state.scheduler.start_overdue(now, id);
                state.waiters.remove(&id);
                break;
            }
            let wake = state.scheduler.next_event(now).unwrap_or(overdue).min(overdue);
            drop(state);
            std::thread::park_timeout(Duration::from_nanos(wake.saturating_sub(now).max(1)));
            if waiter.has_started.load(Ordering::Acquire) {
                break;
            }
            state = self.state.lock();
            state.start_all(self.now());
            if waiter.has_started.load(Ordering::Acquire) {
                break;
            }
        }
        (id, self.now() - arrived)
    }

    pub fn report(&self) -> DeviceReport {
        let state = self.state.lock();
        let controller = state.scheduler.controller();
        DeviceReport {
            path: self.path.clone(),
            waiting: state.scheduler.waiting(),
            idle_p99: controller.idle_p99().map(Duration::from_nanos),
            large_budget: controller.budget(),
            depth: self.costs().depth,
        }
    }
}

impl State {
    /// Gives a request its number, and submits it.
    fn submit(&mut self, now: Nanoseconds, request: Request) -> u64 {
        self.next_id += 1;
        self.scheduler.submit(now, Request { id: self.next_id, ..request });
        self.next_id
    }

    fn start_all(&mut self, now: Nanoseconds) {
        self.start_all_until(now, 0);
    }

    /// Starts all requests that may start. Returns whether one with this number was among them.
    fn start_all_until(&mut self, now: Nanoseconds, id: u64) -> bool {
        let mut has_started = false;
        while let Some(start) = self.scheduler.start(now) {
            has_started |= start.id == id;
            if let Some(waiter) = self.waiters.remove(&start.id) {
                waiter.has_started.store(true, Ordering::Release);
                waiter.thread.unpark();
            }
        }
        has_started
    }
}

/// Ends a request when it is dropped, also after a panic.
pub struct Ended<Q: Deref<Target = DeviceQueue>> {
    queue: Q,
    /// None if the scheduler does not know the request.
    id: Option<u64>,
    origin: Origin,
    operation: Operation,
    waited: Nanoseconds,
    started: Instant,
}

impl<Q: Deref<Target = DeviceQueue>> Drop for Ended<Q> {
    fn drop(&mut self) {
        let Self { ref queue, id, origin, operation, waited, started } = *self;
        let took = started.elapsed();
        let Some(id) = id else { return queue.count(origin, operation, took) };
        let cost = {
            let mut state = queue.state.lock();
            let now = queue.now();
            let cost = state.scheduler.completed(now, id);
            state.start_all(now);
            cost
        };
        queue.count_ended(origin, operation, waited, took, cost);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{self, Expedited, GroupId, Urgency, with_urgency};
    use std::sync::atomic::AtomicUsize;

    const READ: Operation = Operation { is_write: false, bytes: 8192, is_sequential: false };

    fn queue(objective: Objective) -> DeviceQueue {
        let queue = DeviceQueue::new(Path::new("/disk"), Medium::Disk, CostModel::ordinary(), Arc::default());
        queue.set_objective(objective);
        queue
    }

    fn of(database: u32, kind: IoKind) -> Origin {
        Origin { database: DatabaseId(database), group: GroupId::OTHER, kind }
    }

    #[test]
    fn requests_of_many_threads_all_run_and_few_at_a_time() {
        let (queue, running, most, ran) =
            (queue(Objective::HighThroughput), AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for number in 0..64 {
                let (queue, running, most, ran) = (&queue, &running, &most, &ran);
                scope.spawn(move || {
                    for _ in 0..20 {
                        queue.run(of(number % 3, IoKind::Small), READ, || {
                            most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                            std::thread::sleep(Duration::from_micros(300));
                            running.fetch_sub(1, Ordering::SeqCst);
                        });
                        ran.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!((ran.into_inner(), queue.report().waiting), (64 * 20, 0));
        let expected = (queue.costs().depth / queue.costs().cost(false, 8192, false)).ceil() as usize;
        let most = most.into_inner();
        assert!((2..=expected + 1).contains(&most), "{most} at a time, {expected} expected");
    }

    #[test]
    fn a_panic_ends_the_request_and_off_lets_everything_run() {
        let queue = queue(Objective::HighThroughput);
        for _ in 0..200 {
            let panicked =
                std::panic::AssertUnwindSafe(|| queue.run(of(1, IoKind::Small), READ, || panic!("in a read")));
            std::panic::catch_unwind(panicked).unwrap_err();
        }
        assert_eq!(queue.run(of(1, IoKind::Small), READ, || 7), 7);
        queue.set_objective(Objective::Off);
        assert_eq!(queue.run(of(1, IoKind::Small), READ, || queue.run(of(1, IoKind::Large), READ, || 8)), 8);
    }

    /// The objective off also releases the requests that wait.
    #[test]
    fn a_limited_database_waits_until_the_plan_changes() {
        let queue = queue(Objective::HighThroughput);
        queue.set_terms(DatabaseId(1), Terms { limit: Some(0.01), ..Terms::EQUAL });
        let long = Operation { bytes: 64 << 20, ..READ };
        // A cost of 64 ms, and a limit of 1 %: the next request is due after 6 s.
        queue.run(of(1, IoKind::Small), long, || std::thread::sleep(Duration::from_millis(70)));
        assert!(!queue.would_wait(of(2, IoKind::Small), 8192));
        let started = Instant::now();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| queue.run(of(1, IoKind::Small), READ, || started.elapsed()));
            while queue.report().waiting == 0 {
                std::thread::yield_now();
            }
            assert!(queue.run(of(2, IoKind::Small), READ, || true), "another database does not wait");
            std::thread::sleep(Duration::from_millis(50));
            assert_eq!(queue.report().waiting, 1);
            queue.set_objective(Objective::Off);
            let waited = waiting.join().unwrap();
            assert!(waited >= Duration::from_millis(50) && waited < Duration::from_secs(5), "{waited:?}");
        });
    }

    /// The load of a region by a limited scan holds a lock that a session waits for.
    #[test]
    fn a_request_that_others_wait_for_starts_at_once() {
        let queue = queue(Objective::HighThroughput);
        queue.set_terms(DatabaseId(1), Terms { limit: Some(0.01), ..Terms::EQUAL });
        let long = Operation { bytes: 64 << 20, ..READ };
        let use_up = || queue.run(of(1, IoKind::Small), long, || std::thread::sleep(Duration::from_millis(40)));
        use_up();
        let urgency = Arc::new(Urgency::default());
        let started = Instant::now();
        std::thread::scope(|scope| {
            let load = || with_urgency(&urgency, || queue.run(of(1, IoKind::Large), READ, || started.elapsed()));
            let waiting = scope.spawn(load);
            while queue.report().waiting == 0 {
                std::thread::yield_now();
            }
            urgency.raise();
            assert!(waiting.join().unwrap() < Duration::from_secs(2));
            assert!(load() < Duration::from_secs(2), "the next part does not wait either");
            urgency.lower();
            let waiting = scope.spawn(load);
            while queue.report().waiting == 0 {
                std::thread::yield_now();
            }
            let expedited = scope.spawn(move || {
                let _expedited = Expedited::begin();
                load()
            });
            assert!(expedited.join().unwrap() < Duration::from_secs(2));
            assert_eq!(queue.report().waiting, 1, "the other request still waits");
            urgency.raise();
            waiting.join().unwrap();
        });
        assert_eq!(queue.report().waiting, 0);
    }

    #[test]
    fn requests_are_counted_also_with_the_objective_off() {
        const PAUSE: Duration = Duration::from_millis(2);
        for objective in [Objective::Off, Objective::Auto] {
            let queue = queue(objective);
            for (kind, bytes) in [(IoKind::Small, 8192), (IoKind::Small, 1 << 20), (IoKind::Large, 8192)] {
                queue.run(of(1, kind), Operation { bytes, ..READ }, || std::thread::sleep(PAUSE));
            }
            queue.pass(of(2, IoKind::Small), Operation { is_write: true, ..READ }, || ());
            let counts = queue.counters.counts();
            let of_class = |database, size| counts[&(DatabaseId(database), GroupId::OTHER)].of(Medium::Disk, size);
            let (small, large) = (of_class(1, IoSize::Small), of_class(1, IoSize::Large));
            assert_eq!((small.requests, small.bytes), (1, 8192), "{objective}");
            assert_eq!((large.requests, large.bytes), (2, 8192 + (1 << 20)), "{objective}");
            assert!(large.took_ns >= 2 * PAUSE.as_nanos() as u64 && large.device_ns > 0, "{objective}: {large:?}");
            assert_eq!(
                (of_class(2, IoSize::Small).requests, of_class(2, IoSize::Large).requests),
                (1, 0),
                "{objective}"
            );
        }
    }

    #[test]
    #[ignore = "measures; run alone with --release --ignored"]
    fn the_cpu_time_of_a_request_is_small() {
        const REQUESTS: u32 = 1_000_000;
        for (objective, databases) in [(Objective::Off, 1), (Objective::Auto, 1), (Objective::Auto, 8)] {
            let queue = queue(objective);
            let started = Instant::now();
            for number in 0..REQUESTS {
                request::within(of(number % databases, IoKind::Small), || queue.run(request::current(), READ, || ()));
            }
            println!(
                "{objective}, {databases} databases: {:.0} ns",
                started.elapsed().as_nanos() as f64 / f64::from(REQUESTS)
            );
        }
    }
}
