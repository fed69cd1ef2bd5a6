//! Compression gives way to foreground work: where its thread had to wait for a CPU, others have it for a while.

use std::time::Duration;

/// Waiting for less than this part of the time that it ran is no sign of other work.
const WAITED_SHARE: u32 = 8;
/// How long it rests, in the time that it ran before: compression has a quarter of a CPU while others want it.
const REST_SHARE: u32 = 3;

/// What the scheduler has counted of a thread.
#[derive(Clone, Copy)]
struct Counted {
    ran: Duration,
    /// Was ready to run, and something else did.
    waited: Duration,
}

/// The pace of the thread that asks.
pub(super) struct Pace {
    /// None where the kernel does not count.
    before: Option<Counted>,
}

impl Pace {
    pub(super) fn new() -> Self {
        Self { before: counted() }
    }

    /// How long to rest after what was done since this was asked last.
    pub(super) fn rest(&mut self) -> Duration {
        let now = counted();
        let Some((now, before)) = now.zip(std::mem::replace(&mut self.before, now)) else { return Duration::ZERO };
        rest(now.ran.saturating_sub(before.ran), now.waited.saturating_sub(before.waited))
    }
}

fn rest(ran: Duration, waited: Duration) -> Duration {
    if waited * WAITED_SHARE < ran { Duration::ZERO } else { ran * REST_SHARE }
}

/// Source: Documentation/scheduler/sched-stats.rst of Linux, "/proc/<pid>/schedstat".
fn counted() -> Option<Counted> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let mut fields = text.split_ascii_whitespace().map(|field| field.parse().map(Duration::from_nanos));
    Some(Counted { ran: fields.next()?.ok()?, waited: fields.next()?.ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Instant;

    #[test]
    fn rests_where_it_had_to_wait() {
        let ms = Duration::from_millis;
        assert_eq!(rest(ms(80), ms(9)), ms(0));
        assert_eq!(rest(ms(80), ms(10)), ms(240));
        assert_eq!(rest(ms(0), ms(0)), ms(0));
    }

    #[test]
    fn a_crowd_on_every_cpu_is_noticed() {
        let done = AtomicBool::new(false);
        let spin = || {
            while !done.load(Ordering::Relaxed) {
                std::hint::spin_loop()
            }
        };
        let noticed = std::thread::scope(|scope| {
            let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get());
            (0..2 * cpus).for_each(|_| drop(scope.spawn(spin)));
            let mut pace = Pace::new();
            let deadline = Instant::now() + Duration::from_secs(20);
            let mut noticed = pace.before.is_none();
            while !noticed && Instant::now() < deadline {
                let turn = Instant::now() + Duration::from_millis(20);
                while Instant::now() < turn {
                    std::hint::spin_loop()
                }
                noticed = !pace.rest().is_zero();
            }
            done.store(true, Ordering::Relaxed);
            noticed
        });
        assert!(noticed);
    }
}
