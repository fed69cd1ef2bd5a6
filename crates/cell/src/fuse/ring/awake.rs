//! Keeps a CPU from falling asleep between the requests of one busy backend.
//!
//! The scheduler may wake a backend that waited for a reply on another CPU, an idle one. On a virtual machine a halted
//! CPU takes 20 to 50 us to wake, several times what a request itself costs. So each CPU has a [`companion`] that spins
//! for a moment after the backend left the CPU for another, as `SCHED_IDLE`: only where nothing else wants to, and the
//! scheduler places a woken backend there as if the CPU were idle. The CPU that a request comes on needs none: what is
//! woken there would only have to wait for it to give way. With requests of several processes in turn, on whichever
//! CPUs, it stays out of the way: CPUs then hardly sleep, and one that looks busy takes over no waiting work.

mod companion;

pub use companion::{Companions, keep_awake};

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::time::Duration;

/// How long a CPU stays awake once its backend has gone: requests of a busy one are 50 to 200 us apart.
const WINDOW: Duration = Duration::from_micros(400);
/// Requests in a row, nearly, that make a process the only busy one.
const STREAK: u32 = 16;
const STREAK_MAX: u32 = 64;
/// What a request of another process takes off the streak.
const INTERRUPTION: u32 = 8;

/// Whether one process makes the requests of all queues. Two queues that count at the same time may lose one of them.
#[derive(Debug, Default)]
struct Streak(AtomicU64);

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

/// What queues tell their companions, if there are any.
#[derive(Debug)]
pub struct Awake {
    streak: Streak,
    /// Where the last request came.
    last_cpu: AtomicU16,
    companions: Option<Companions>,
}

impl Awake {
    pub fn new(companions: Option<Companions>) -> Arc<Self> {
        Arc::new(Self { streak: Streak::default(), last_cpu: AtomicU16::default(), companions })
    }

    /// A request of this process has come on this CPU.
    pub fn request(&self, cpu: u16, pid: u32) {
        let Some(companions) = &self.companions else { return };
        let last = self.last_cpu.swap(cpu, Ordering::Relaxed);
        companions.rest(cpu);
        if self.streak.goes_on(pid) && last != cpu {
            companions.keep_awake(last, WINDOW);
        }
    }
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
