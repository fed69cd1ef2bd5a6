//! Throttles compression while other threads need the CPUs. The scheduler's run-queue wait time of the compressing
//! thread shows the competition.

use std::time::Duration;

/// The thread competes for a CPU if its wait time is at least one eighth of its run time.
const RUN_PER_WAIT: u32 = 8;
/// Length of a pause as a multiple of the preceding run time: under competition, compression uses a quarter of a CPU.
const PAUSE_PER_RUN: u32 = 3;

/// The scheduler's totals of a thread.
#[derive(Clone, Copy)]
struct SchedulerTimes {
    running: Duration,
    /// Runnable, but waiting for a CPU.
    waiting: Duration,
}

/// The throttle of the thread that created it.
pub(crate) struct Throttle {
    /// None if the kernel does not maintain these times.
    before: Option<SchedulerTimes>,
}

impl Throttle {
    pub(crate) fn new() -> Self {
        Self { before: SchedulerTimes::of_this_thread() }
    }

    /// Returns how long the thread should sleep after the work since the last call.
    pub(crate) fn pause(&mut self) -> Duration {
        let now = SchedulerTimes::of_this_thread();
        let Some((now, before)) = now.zip(std::mem::replace(&mut self.before, now)) else { return Duration::ZERO };
        pause(now.running.saturating_sub(before.running), now.waiting.saturating_sub(before.waiting))
    }
}

fn pause(running: Duration, waiting: Duration) -> Duration {
    if waiting * RUN_PER_WAIT < running { Duration::ZERO } else { running * PAUSE_PER_RUN }
}

impl SchedulerTimes {
    /// Reads the times of the calling thread. Source: Linux, Documentation/scheduler/sched-stats.rst, section
    /// `/proc/<pid>/schedstat`. Returns None if the kernel does not maintain these times.
    fn of_this_thread() -> Option<Self> {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
        let mut fields = text.split_ascii_whitespace().map(|field| field.parse().map(Duration::from_nanos));
        Some(Self { running: fields.next()?.ok()?, waiting: fields.next()?.ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Instant;

    #[test]
    fn pauses_follow_waits_of_an_eighth_of_the_run_time() {
        let ms = Duration::from_millis;
        assert_eq!(pause(ms(80), ms(9)), ms(0));
        assert_eq!(pause(ms(80), ms(10)), ms(240));
        assert_eq!(pause(ms(0), ms(0)), ms(0));
    }

    #[test]
    fn competition_on_every_cpu_leads_to_pauses() {
        let done = AtomicBool::new(false);
        let spin = || {
            while !done.load(Ordering::Relaxed) {
                std::hint::spin_loop()
            }
        };
        let paused = std::thread::scope(|scope| {
            let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get());
            (0..2 * cpus).for_each(|_| drop(scope.spawn(spin)));
            let mut throttle = Throttle::new();
            let deadline = Instant::now() + Duration::from_secs(20);
            let mut paused = throttle.before.is_none();
            while !paused && Instant::now() < deadline {
                let turn = Instant::now() + Duration::from_millis(20);
                while Instant::now() < turn {
                    std::hint::spin_loop()
                }
                paused = !throttle.pause().is_zero();
            }
            done.store(true, Ordering::Relaxed);
            paused
        });
        assert!(paused);
    }
}
