//! Prevents idle CPUs from halting between the requests of a single busy backend.
//!
//! After a reply, the scheduler may wake the backend on another, idle CPU. On a virtual machine, waking a halted CPU
//! takes 20 to 50 us, several times the cost of a request. Therefore each CPU has a spinning thread ([`spinners`]). The
//! thread spins for a short time after the backend has moved from its CPU to another one. It runs as `SCHED_IDLE`: any
//! other thread preempts it, and the scheduler still treats the CPU as idle when it places a woken backend. The CPU of
//! the current request needs no spinning, because a thread woken there would have to preempt the spinner first.
//!
//! Spinning is off while several processes send requests in turn: CPUs then rarely halt, and a CPU that appears busy
//! would not pull waiting work from other CPUs.

mod spinners;

pub use spinners::{Spinners, keep_awake};

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::time::Duration;

/// How long a CPU spins after its backend moved. The requests of a busy backend are 50 to 200 us apart.
const SPIN_TIME: Duration = Duration::from_micros(400);
/// Minimum streak of a process that counts as the only busy one.
const STREAK: u32 = 16;
const STREAK_MAX: u32 = 64;
/// Reduction of the streak by a request of another process.
const INTERRUPTION: u32 = 8;

/// Detects that a single process sends the requests of all queues: its process id and the length of its streak of
/// requests, packed in one word. If two queues update the word at the same time, one request may not be counted, which
/// only delays the detection.
#[derive(Debug, Default)]
struct Streak(AtomicU64);

impl Streak {
    /// Records a request of a process. Returns whether that process is the only busy one.
    fn record(&self, pid: u32) -> bool {
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

/// Decides, at each request of a queue, which CPU's thread spins.
#[derive(Debug)]
pub struct KeepAwake {
    streak: Streak,
    /// CPU of the last request.
    last_cpu: AtomicU16,
    /// None permits CPUs to halt.
    spinners: Option<Spinners>,
}

impl KeepAwake {
    pub fn new(spinners: Option<Spinners>) -> Arc<Self> {
        Arc::new(Self { streak: Streak::default(), last_cpu: AtomicU16::default(), spinners })
    }

    /// Records a request of a process on a CPU.
    pub fn record_request(&self, cpu: u16, pid: u32) {
        let Some(spinners) = &self.spinners else { return };
        let last = self.last_cpu.swap(cpu, Ordering::Relaxed);
        spinners.stop(cpu);
        if self.streak.record(pid) && last != cpu {
            spinners.spin(last, SPIN_TIME);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_busy_process_has_a_streak_and_several_busy_processes_have_none() {
        let streak = Streak::default();
        let one = (0..100).filter(|_| streak.record(7)).count();
        assert_eq!(one, 100 - STREAK as usize);
        assert!(streak.record(8), "a single request of another process does not end the streak");
        assert!((0..STREAK).any(|_| streak.record(7)));
        let several = (0..1000).map(|turn| streak.record(turn % 4)).skip(STREAK_MAX as usize).filter(|on| *on).count();
        assert_eq!(several, 0);
    }
}
