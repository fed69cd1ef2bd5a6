//! Keeps a CPU from falling asleep between the requests of one busy backend.
//!
//! The scheduler wakes a backend that waited for a reply on the other CPU, the idle one. On a virtual machine a halted
//! CPU takes 20 to 50 us to wake, several times what a request itself costs. So each queue has a companion on its CPU
//! that spins for a moment after a request. It runs as `SCHED_IDLE`: only where nothing else wants to, and the
//! scheduler places a woken backend there as if the CPU were idle. With requests of several processes in turn, on
//! whichever CPUs, it stays out of the way: CPUs then hardly sleep, and one that looks busy takes over no waiting work.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a CPU stays awake after a request: those of a busy backend are 50 to 200 us apart.
const WINDOW: Duration = Duration::from_micros(400);
/// Pauses between two looks at the clock.
const PAUSES: usize = 32;
/// Requests in a row, nearly, that make a process the only busy one.
const STREAK: u32 = 16;
const STREAK_MAX: u32 = 64;
/// What a request of another process takes off the streak.
const INTERRUPTION: u32 = 8;

/// Whether one process makes the requests of all queues. Two queues that count at the same time may lose one of them.
#[derive(Debug, Default)]
pub struct Streak(AtomicU64);

impl Streak {
    /// A request of this process has come: whether it is the only busy one.
    fn goes_on(&self, pid: u32) -> bool {
        let packed = self.0.load(Ordering::Relaxed);
        let (last, length) = ((packed >> 32) as u32, packed as u32);
        let length = match pid == last {
            true => (length + 1).min(STREAK_MAX),
            false => length.saturating_sub(INTERRUPTION),
        };
        self.0.store(u64::from(pid) << 32 | u64::from(length), Ordering::Relaxed);
        length >= STREAK
    }
}

/// A queue's end of its companion.
pub struct Awake {
    shared: Arc<Shared>,
    companion: JoinHandle<()>,
    streak: Arc<Streak>,
}

struct Shared {
    start: Instant,
    /// Nanoseconds after `start` at which the CPU may sleep.
    until: AtomicU64,
    is_parked: AtomicBool,
    is_over: AtomicBool,
}

impl Awake {
    /// Starts the companion of a CPU; all queues share a streak.
    pub fn start(cpu: u16, streak: Arc<Streak>) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            start: Instant::now(),
            until: AtomicU64::new(0),
            is_parked: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        });
        let companion = {
            let shared = shared.clone();
            std::thread::Builder::new().name(format!("fuse awake {cpu}")).spawn(move || {
                super::queue::pin(cpu);
                match become_idle() {
                    true => shared.run(),
                    false => log::debug!("FUSE ring queue {cpu}: no SCHED_IDLE, the CPU sleeps between requests"),
                }
            })?
        };
        Ok(Self { shared, companion, streak })
    }

    /// A request of this process has come.
    pub fn request(&mut self, pid: u32) {
        if self.streak.goes_on(pid) {
            self.shared.until.store(self.shared.now() + WINDOW.as_nanos() as u64, Ordering::Relaxed);
            if self.shared.is_parked.load(Ordering::Relaxed) {
                self.companion.thread().unpark();
            }
        }
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        self.companion.thread().unpark();
    }
}

impl Shared {
    fn run(&self) {
        while !self.is_over.load(Ordering::Relaxed) {
            while self.now() < self.until.load(Ordering::Relaxed) {
                (0..PAUSES).for_each(|_| std::hint::spin_loop());
            }
            // A request between the last look and the park is missed until the next one: nothing waits for us.
            self.is_parked.store(true, Ordering::Relaxed);
            std::thread::park();
            self.is_parked.store(false, Ordering::Relaxed);
        }
    }

    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }
}

/// Puts the calling thread behind every other one; false where that is not allowed.
fn become_idle() -> bool {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the structure lives through the call; 0 is the calling thread.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &parameters) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_busy_process_has_a_streak_and_several_have_none() {
        let streak = Streak::default();
        let one = (0..100).filter(|_| streak.goes_on(7)).count();
        assert_eq!(one, 100 - STREAK as usize);
        assert!(streak.goes_on(8), "a single request of another process does not end it");
        assert!((0..STREAK).any(|_| streak.goes_on(7)));
        let several = (0..1000).map(|turn| streak.goes_on(turn % 4)).skip(STREAK_MAX as usize).filter(|on| *on).count();
        assert_eq!(several, 0);
    }
}
