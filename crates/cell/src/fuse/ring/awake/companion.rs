//! The threads that spin, one for each CPU, in a process of their own.
//!
//! `SCHED_IDLE` counts only within a scheduling group, and by default each session is one (autogroups): beside the
//! groups of Postgres and of everybody else, a group that spins gets a share like theirs. So the companions have a
//! session of their own, and its group the least weight that there is. Daemon and companions share a page of memory,
//! the companions' standard input; when the reading end of their standard output is gone, so is the daemon.

use super::super::cpu::pin;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{MemfdFlags, fstat, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::thread::futex;
use rustix::time::{ClockId, clock_gettime};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Pauses between two looks at the clock.
const PAUSES: usize = 32;
/// The lowest weight of a session's group.
const AUTOGROUP_NICENESS: &str = "19";

/// The longest slice that the scheduler gives.
const LONGEST_SLICE: Duration = Duration::from_millis(100);

/// Only root may lower groups as often as it likes, others once an interval in all.
const INTERVAL: Duration = Duration::from_millis(100);
const ATTEMPTS: usize = 10;

/// What a CPU's companion is told.
#[repr(C, align(64))]
struct Slot {
    /// Nanoseconds of the monotonic clock until which the CPU stays awake.
    until: AtomicU64,
    /// 1 while the companion sleeps.
    is_parked: AtomicU32,
}

/// The slots of all CPUs, in memory that both processes have.
#[derive(Debug)]
struct Board {
    slots: NonNull<Slot>,
    cpus: usize,
}

// SAFETY: the slots are atomics, and mapped until the board is dropped.
unsafe impl Send for Board {}
// SAFETY: as above.
unsafe impl Sync for Board {}

impl Board {
    fn map(memory: impl AsFd) -> io::Result<Self> {
        let bytes = fstat(&memory)?.st_size as usize;
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping, wherever the kernel puts it, which is whole pages.
        let start = unsafe { mmap(std::ptr::null_mut(), bytes, protection, flags, memory, 0)? };
        let slots = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("mapped at zero"))?;
        Ok(Self { slots, cpus: bytes / size_of::<Slot>() })
    }

    fn slots(&self) -> &[Slot] {
        // SAFETY: so many slots are mapped, all zero bits are good ones, and only atomics change them.
        unsafe { std::slice::from_raw_parts(self.slots.as_ptr(), self.cpus) }
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        // SAFETY: nobody has a reference to what was mapped for this board.
        let _ = unsafe { munmap(self.slots.as_ptr().cast(), self.cpus * size_of::<Slot>()) };
    }
}

/// The daemon's end of its companions, which end with it.
#[derive(Debug)]
pub struct Companions {
    board: Board,
    process: Child,
    lifeline: Option<ChildStdout>,
}

impl Companions {
    /// Starts `command`, a program that runs [`keep_awake`], and waits until it is ready.
    pub fn start(mut command: Command, cpus: u16) -> io::Result<Self> {
        let memory = memfd_create("cellar-awake", MemfdFlags::CLOEXEC)?;
        ftruncate(&memory, u64::from(cpus) * size_of::<Slot>() as u64)?;
        let board = Board::map(&memory)?;
        let mut process = command.stdin(Stdio::from(memory)).stdout(Stdio::piped()).spawn()?;
        let lifeline = process.stdout.take();
        let mut companions = Self { board, process, lifeline };
        let ready = companions.lifeline.as_mut().map(|output| output.read_exact(&mut [0]));
        ready.unwrap_or_else(|| Err(io::Error::other("it has no output")))?;
        Ok(companions)
    }

    /// Keeps a CPU awake for so long from now on.
    pub fn keep_awake(&self, cpu: u16, window: Duration) {
        let Some(slot) = self.board.slots().get(usize::from(cpu)) else { return };
        slot.until.store(now() + window.as_nanos() as u64, Ordering::Relaxed);
        if slot.is_parked.load(Ordering::Relaxed) == 1 && slot.is_parked.swap(0, Ordering::Relaxed) == 1 {
            let _ = futex::wake(&slot.is_parked, futex::Flags::empty(), 1);
        }
    }

    /// Lets a CPU's companion sleep.
    pub fn rest(&self, cpu: u16) {
        let Some(slot) = self.board.slots().get(usize::from(cpu)) else { return };
        if slot.until.load(Ordering::Relaxed) != 0 {
            slot.until.store(0, Ordering::Relaxed);
        }
    }
}

impl Drop for Companions {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The companions' program: returns when the daemon that started it is gone.
pub fn keep_awake() -> io::Result<()> {
    // Not the leader of a group: a new child of the daemon.
    rustix::process::setsid()?;
    lower_group()?;
    let board: &'static Board = Box::leak(Box::new(Board::map(io::stdin())?));
    for (cpu, slot) in board.slots().iter().enumerate() {
        std::thread::Builder::new().name(format!("fuse awake {cpu}")).spawn(move || {
            pin(cpu as u16);
            if become_idle() {
                slot.run();
            }
        })?;
    }
    let mut output = io::stdout();
    output.write_all(b"\n")?;
    output.flush()?;
    let mut ends = [PollFd::new(&output, PollFlags::empty())];
    while poll(&mut ends, None) == Err(rustix::io::Errno::INTR) {}
    Ok(())
}

/// Gives the session's group the lowest weight. Where there are no autogroups `SCHED_IDLE` does.
fn lower_group() -> io::Result<()> {
    let lower = || std::fs::write("/proc/self/autogroup", AUTOGROUP_NICENESS);
    for _ in 0..ATTEMPTS {
        match lower() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(INTERVAL),
            outcome => return outcome,
        }
    }
    lower()
}

impl Slot {
    fn run(&self) -> ! {
        loop {
            while now() < self.until.load(Ordering::Relaxed) {
                (0..PAUSES).for_each(|_| std::hint::spin_loop());
            }
            // A request between the last look and the wait is missed until the next one: nothing waits for us.
            self.is_parked.store(1, Ordering::Relaxed);
            while self.is_parked.load(Ordering::Relaxed) == 1 {
                let _ = futex::wait(&self.is_parked, futex::Flags::empty(), 1, None);
            }
        }
    }
}

fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Puts the calling thread behind every other one; false where that is not allowed.
fn become_idle() -> bool {
    // Between groups it is slices that decide: one that wakes goes before one with a longer slice at once, and
    // waits for the end of a turn of any other. A slice stays when the policy changes.
    // SAFETY: all zero bits are a good one.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    attributes.size = size_of::<libc::sched_attr>() as u32;
    attributes.sched_runtime = LONGEST_SLICE.as_nanos() as u64;
    // SAFETY: the structures live through the calls; 0 is the calling thread.
    unsafe {
        if libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) != 0 {
            log::debug!("companions keep the usual slice: {}", io::Error::last_os_error());
        }
        libc::sched_setscheduler(0, libc::SCHED_IDLE, &libc::sched_param { sched_priority: 0 }) == 0
    }
}
