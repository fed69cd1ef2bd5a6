//! Threads for requests that wait: for a sync, a metadata transaction, a file's locks, a read from a device, or a measurement of
//! free space.
//!
//! Threads start when no idle thread is left and exit after some idle time. A waiting request therefore delays no other
//! request, up to the maximum number of threads; beyond it, requests wait in a queue.

use super::cpu::{pin_with_priority, unpin};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

const IDLE_MAX: Duration = Duration::from_secs(10);

type Job = Box<dyn FnOnce() + Send>;

#[derive(Debug)]
pub struct Workers {
    shared: Arc<Shared>,
    threads_max: usize,
    /// The CPU that the threads are pinned to; None for threads that the scheduler may move.
    cpu: Option<u16>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    /// Threads that wait for a job.
    idle: usize,
    stopped: bool,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "State({} threads, {} idle, {} jobs)", self.threads, self.idle, self.jobs.len())
    }
}

impl Workers {
    pub fn new(threads_max: usize, cpu: Option<u16>) -> Self {
        Self { shared: Arc::default(), threads_max, cpu }
    }

    /// Runs a job on a thread. Runs the job on the calling thread if no thread can be started.
    pub fn run(&self, job: impl FnOnce() + Send + 'static) {
        let mut state = self.shared.state.lock();
        state.jobs.push_back(Box::new(job));
        if state.jobs.len() > state.idle && state.threads < self.threads_max {
            state.threads += 1;
            drop(state);
            self.start_thread();
        } else {
            self.shared.wake.notify_one();
        }
    }

    fn start_thread(&self) {
        let (shared, cpu) = (self.shared.clone(), self.cpu);
        let started = std::thread::Builder::new().name("fuse wait".into()).spawn(move || {
            match cpu {
                Some(cpu) => pin_with_priority(cpu),
                // The thread inherits the CPU of the thread that started it.
                None => unpin(),
            }
            shared.serve();
        });
        if let Err(error) = started {
            log::warn!("could not start a thread for a request: {error}");
            let mut state = self.shared.state.lock();
            state.threads -= 1;
            let job = if state.threads == 0 { state.jobs.pop_front() } else { None };
            drop(state);
            job.into_iter().for_each(run);
        }
    }
}

/// A panic drops the job's reply, which returns EIO to the caller.
fn run(job: Job) {
    if catch_unwind(AssertUnwindSafe(job)).is_err() {
        log::error!("a request panicked");
    }
}

impl Shared {
    fn serve(&self) {
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                run(job);
                state = self.state.lock();
                continue;
            }
            if state.stopped {
                break;
            }
            state.idle += 1;
            let timed_out = self.wake.wait_for(&mut state, IDLE_MAX).timed_out();
            state.idle -= 1;
            if timed_out && state.jobs.is_empty() {
                break;
            }
        }
        state.threads -= 1;
    }
}

impl Drop for Workers {
    /// Lets the threads finish the queued jobs and exit.
    fn drop(&mut self) {
        self.shared.state.lock().stopped = true;
        self.shared.wake.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    const SOON: Duration = Duration::from_secs(10);

    #[test]
    fn a_waiting_job_delays_no_other_job_and_a_panic_ends_no_thread() {
        let workers = Workers::new(8, None);
        let ((release, released), (sender, done)) = (channel::<()>(), channel());
        let waiting = sender.clone();
        workers.run(move || {
            let _ = released.recv();
            waiting.send("waited").unwrap();
        });
        workers.run(|| panic!("a job that panics"));
        for _ in 0..100 {
            let sender = sender.clone();
            workers.run(move || sender.send("ran").unwrap());
        }
        assert!((0..100).all(|_| done.recv_timeout(SOON) == Ok("ran")));
        drop(release);
        assert_eq!(done.recv_timeout(SOON), Ok("waited"));
        assert!(workers.shared.state.lock().threads <= 8);
    }

    #[test]
    fn jobs_beyond_the_maximum_of_threads_run_when_a_thread_is_free() {
        let workers = Workers::new(2, None);
        let ((release, released), (sender, done)) = (channel::<()>(), channel());
        let released = Arc::new(Mutex::new(released));
        for _ in 0..10 {
            let (released, sender) = (released.clone(), sender.clone());
            workers.run(move || {
                let _ = released.lock().recv();
                sender.send(()).unwrap();
            });
        }
        assert_eq!(workers.shared.state.lock().threads, 2);
        drop(release);
        drop(workers);
        assert!((0..10).all(|_| done.recv_timeout(SOON).is_ok()));
    }
}
