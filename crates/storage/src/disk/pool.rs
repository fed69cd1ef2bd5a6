//! Threads that run the operations of one disk, so that a caller can stop waiting for an operation that hangs.
//!
//! A hanging system call cannot be cancelled: its thread stays until the call returns. An operation that has not begun when
//! its caller stops waiting never begins.

use parking_lot::{Condvar, Mutex};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

/// Maximum number of threads of a disk.
const THREADS_MAX: usize = 64;
/// A thread without work exits after this time.
const IDLE_MAX: Duration = Duration::from_secs(10);

type Job = Box<dyn FnOnce() + Send>;
type MayStopWaiting = Box<dyn Fn() -> bool>;

thread_local! {
    static MAY_STOP_WAITING: RefCell<Option<MayStopWaiting>> = const { RefCell::new(None) };
}

/// Restores the previous value, also after a panic.
struct Restore(Option<MayStopWaiting>);

impl Drop for Restore {
    fn drop(&mut self) {
        MAY_STOP_WAITING.set(self.0.take());
    }
}

/// Runs `work`. When the time of one of its operations is over, the operation is waited for once more unless `may_stop` returns true.
/// `may_stop` must not use a disk.
pub fn waiting_until<T>(may_stop: impl Fn() -> bool + 'static, work: impl FnOnce() -> T) -> T {
    let _restore = Restore(MAY_STOP_WAITING.replace(Some(Box::new(may_stop))));
    work()
}

fn may_stop_waiting() -> bool {
    MAY_STOP_WAITING.with_borrow(|may_stop| may_stop.as_ref().is_none_or(|may_stop| may_stop()))
}

#[derive(Default)]
struct State {
    queue: VecDeque<(u64, Job)>,
    /// When each operation was requested that has not ended.
    since: HashMap<u64, Instant>,
    /// The changes among them whose callers stopped waiting.
    late_changes: HashSet<u64>,
    last: u64,
    threads: usize,
    idle: usize,
}

/// The threads of one disk.
#[derive(Default)]
pub struct Pool {
    state: Mutex<State>,
    ready: Condvar,
    /// A change ended whose caller had stopped waiting.
    late_change_ended: Condvar,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pool({} operations)", self.outstanding())
    }
}

impl Pool {
    /// Returns the number of operations that were requested and have not ended, also of callers that stopped waiting.
    pub fn outstanding(&self) -> usize {
        self.state.lock().since.len()
    }

    /// Returns how long ago the oldest operation was requested that has not ended.
    pub fn oldest(&self) -> Option<Duration> {
        self.state.lock().since.values().min().map(Instant::elapsed)
    }

    /// Runs `work` in a thread of the disk and waits for the result, at most for `timeout`.
    pub fn run<T: Send + 'static>(
        self: &Arc<Self>,
        timeout: Duration,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        self.run_operation(timeout, false, work)
    }

    /// As [`Self::run`], for an operation that changes the disk. Refused while a change of a caller that stopped waiting has not ended:
    /// it could end after this one, and undo it.
    pub fn change<T: Send + 'static>(
        self: &Arc<Self>,
        timeout: Duration,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let mut state = self.state.lock();
        while !state.late_changes.is_empty() {
            if may_stop_waiting() {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "an earlier change of the disk has not ended"));
            }
            self.late_change_ended.wait_for(&mut state, timeout);
        }
        drop(state);
        self.run_operation(timeout, true, work)
    }

    fn run_operation<T: Send + 'static>(
        self: &Arc<Self>,
        timeout: Duration,
        is_change: bool,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let (sender, receiver) = sync_channel(1);
        let is_abandoned = Arc::new(AtomicBool::new(false));
        let abandoned = is_abandoned.clone();
        let id = self.spawn(move || {
            if !abandoned.load(Ordering::Acquire) {
                // The caller may have stopped waiting.
                let _ = sender.send(work());
            }
        })?;
        let received = loop {
            match receiver.recv_timeout(timeout) {
                Err(RecvTimeoutError::Timeout) if !may_stop_waiting() => {}
                received => break received,
            }
        };
        match received {
            Ok(result) => result,
            Err(RecvTimeoutError::Timeout) => {
                is_abandoned.store(true, Ordering::Release);
                let mut state = self.state.lock();
                if is_change && state.since.contains_key(&id) {
                    state.late_changes.insert(id);
                }
                Err(timed_out(timeout))
            }
            Err(RecvTimeoutError::Disconnected) => Err(io::Error::other("the operation panicked")),
        }
    }

    /// Runs `job` in a thread of the disk, now or when a thread is free. Returns the operation's number.
    pub fn spawn(self: &Arc<Self>, job: impl FnOnce() + Send + 'static) -> io::Result<u64> {
        let mut state = self.state.lock();
        if state.idle < state.queue.len() + 1 && state.threads < THREADS_MAX {
            let pool = self.clone();
            let spawned = std::thread::Builder::new().name("disk".into()).spawn(move || pool.serve());
            match spawned {
                Ok(_) => state.threads += 1,
                Err(error) if state.threads == 0 => return Err(error),
                Err(_) => {}
            }
        }
        state.last += 1;
        let id = state.last;
        state.since.insert(id, Instant::now());
        state.queue.push_back((id, Box::new(crate::request::carried(job))));
        self.ready.notify_one();
        Ok(id)
    }

    fn serve(&self) {
        let mut state = self.state.lock();
        loop {
            let Some((id, job)) = state.queue.pop_front() else {
                state.idle += 1;
                let waited = self.ready.wait_for(&mut state, IDLE_MAX);
                state.idle -= 1;
                if waited.timed_out() && state.queue.is_empty() {
                    state.threads -= 1;
                    return;
                }
                continue;
            };
            drop(state);
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
            state = self.state.lock();
            state.since.remove(&id);
            if state.late_changes.remove(&id) {
                self.late_change_ended.notify_all();
            }
            if result.is_err() {
                log::error!("an operation on a cell disk panicked");
            }
        }
    }
}

/// Returns the error of an operation that took too long.
pub fn timed_out(timeout: Duration) -> io::Error {
    let message = format!("the disk did not answer within {} ms", timeout.as_millis());
    io::Error::new(io::ErrorKind::TimedOut, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn a_caller_stops_waiting_and_other_operations_go_on() {
        let pool = Arc::new(Pool::default());
        let (release, held) = channel::<()>();
        let timeout = Duration::from_millis(50);
        let hanging = pool.run(timeout, move || Ok(held.recv().is_err()));
        assert_eq!(hanging.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(pool.run(Duration::from_secs(10), || Ok(7)).unwrap(), 7);
        // An operation is counted for a moment after its caller has its result.
        while pool.outstanding() > 1 {
            std::thread::yield_now();
        }
        assert!(pool.oldest().unwrap() >= timeout);
        drop(release);
        while pool.outstanding() > 0 {
            std::thread::yield_now();
        }
        assert!(pool.oldest().is_none());
        let panicked = pool.run(Duration::from_secs(10), || -> io::Result<()> { panic!("in a thread of the disk") });
        assert!(panicked.unwrap_err().to_string().contains("panicked"));
    }

    #[test]
    fn no_change_begins_while_a_late_one_runs() {
        let pool = Arc::new(Pool::default());
        let (release, held) = channel::<()>();
        let late = pool.change(Duration::from_millis(20), move || Ok(held.recv().is_err()));
        assert_eq!(late.unwrap_err().kind(), io::ErrorKind::TimedOut);
        let refused = pool.change(Duration::from_secs(10), || Ok(())).unwrap_err();
        assert!(refused.to_string().contains("has not ended"), "{refused}");
        pool.run(Duration::from_secs(10), || Ok(())).unwrap();
        drop(release);
        while pool.outstanding() > 0 {
            std::thread::yield_now();
        }
        pool.change(Duration::from_secs(10), || Ok(())).unwrap();
    }

    #[test]
    fn an_operation_that_has_not_begun_is_abandoned_with_its_caller() {
        let pool = Arc::new(Pool::default());
        let (release, held) = channel::<()>();
        let held = Arc::new(Mutex::new(held));
        for _ in 0..THREADS_MAX {
            let held = held.clone();
            pool.spawn(move || assert!(held.lock().recv().is_err())).unwrap();
        }
        let has_run = Arc::new(AtomicBool::new(false));
        let flag = has_run.clone();
        let result = pool.run(Duration::from_millis(20), move || Ok(flag.swap(true, Ordering::SeqCst)));
        assert_eq!(result.unwrap_err().kind(), io::ErrorKind::TimedOut);
        drop(release);
        while pool.outstanding() > 0 {
            std::thread::yield_now();
        }
        assert!(!has_run.load(Ordering::SeqCst));
    }
}
