//! The spinning threads, one per CPU, in a separate process.
//!
//! `SCHED_IDLE` applies only within a scheduling group, and by default each session is a group (autogroups). A spinning
//! thread in the daemon's session would get the same share of the CPU as Postgres's session. The spinners therefore run
//! in a session whose group has the lowest weight. Daemon and spinners share a page of memory, which is the spinners'
//! standard input. The spinners exit when the reading end of their standard output closes, that is, when the daemon
//! exits.

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

/// Spin-loop hints between two reads of the clock.
const PAUSES: usize = 32;
/// The lowest weight of a session's scheduling group.
const AUTOGROUP_NICENESS: &str = "19";
/// The longest time slice that the scheduler accepts.
const LONGEST_SLICE: Duration = Duration::from_millis(100);
/// The kernel limits autogroup changes of all unprivileged processes together to one per interval.
const AUTOGROUP_INTERVAL: Duration = Duration::from_millis(100);
const AUTOGROUP_ATTEMPTS: usize = 10;

/// The shared state of one CPU's spinner.
#[repr(C, align(64))]
struct Slot {
    /// End of the spin time, in nanoseconds of the monotonic clock.
    until: AtomicU64,
    /// 1 while the spinner waits on this futex.
    is_parked: AtomicU32,
}

/// The slots of all CPUs, in memory that daemon and spinners share.
#[derive(Debug)]
struct SharedSlots {
    slots: NonNull<Slot>,
    cpus: usize,
}

// SAFETY: the slots are atomics, and stay mapped until this value is dropped.
unsafe impl Send for SharedSlots {}
// SAFETY: as above.
unsafe impl Sync for SharedSlots {}

impl SharedSlots {
    fn map(memory: impl AsFd) -> io::Result<Self> {
        let bytes = fstat(&memory)?.st_size as usize;
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe { mmap(std::ptr::null_mut(), bytes, protection, flags, memory, 0)? };
        let slots = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("mapped at zero"))?;
        Ok(Self { slots, cpus: bytes / size_of::<Slot>() })
    }

    fn as_slice(&self) -> &[Slot] {
        // SAFETY: `cpus` slots are mapped, zero bytes are valid slots, and only atomic operations change them.
        unsafe { std::slice::from_raw_parts(self.slots.as_ptr(), self.cpus) }
    }
}

impl Drop for SharedSlots {
    fn drop(&mut self) {
        // SAFETY: references to the slots do not outlive this value.
        let _ = unsafe { munmap(self.slots.as_ptr().cast(), self.cpus * size_of::<Slot>()) };
    }
}

/// The daemon's handle of the spinner process.
#[derive(Debug)]
pub struct Spinners {
    slots: SharedSlots,
    process: Child,
    lifeline: Option<ChildStdout>,
}

impl Spinners {
    /// Starts `command`, which must run [`keep_awake`], and waits until the process is ready.
    pub fn start(mut command: Command, cpus: u16) -> io::Result<Self> {
        let memory = memfd_create("cellar-awake", MemfdFlags::CLOEXEC)?;
        ftruncate(&memory, u64::from(cpus) * size_of::<Slot>() as u64)?;
        let slots = SharedSlots::map(&memory)?;
        let mut process = command.stdin(Stdio::from(memory)).stdout(Stdio::piped()).spawn()?;
        let lifeline = process.stdout.take();
        let mut spinners = Self { slots, process, lifeline };
        let ready = spinners.lifeline.as_mut().map(|output| output.read_exact(&mut [0]));
        ready.unwrap_or_else(|| Err(io::Error::other("the keep-awake process has no output")))?;
        Ok(spinners)
    }

    /// Makes a CPU's spinner spin for `duration` from now.
    pub fn spin(&self, cpu: u16, duration: Duration) {
        let Some(slot) = self.slots.as_slice().get(usize::from(cpu)) else { return };
        slot.until.store(now() + duration.as_nanos() as u64, Ordering::Relaxed);
        if slot.is_parked.load(Ordering::Relaxed) == 1 && slot.is_parked.swap(0, Ordering::Relaxed) == 1 {
            let _ = futex::wake(&slot.is_parked, futex::Flags::empty(), 1);
        }
    }

    /// Stops a CPU's spinner.
    pub fn stop(&self, cpu: u16) {
        let Some(slot) = self.slots.as_slice().get(usize::from(cpu)) else { return };
        if slot.until.load(Ordering::Relaxed) != 0 {
            slot.until.store(0, Ordering::Relaxed);
        }
    }
}

impl Drop for Spinners {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Runs the spinners; returns when the daemon that started this process exits.
pub fn keep_awake() -> io::Result<()> {
    // setsid cannot fail: a new child process is not a group leader.
    rustix::process::setsid()?;
    lower_group()?;
    let slots: &'static SharedSlots = Box::leak(Box::new(SharedSlots::map(io::stdin())?));
    for (cpu, slot) in slots.as_slice().iter().enumerate() {
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

/// Gives the session's scheduling group the lowest weight. Without autogroups, `SCHED_IDLE` alone suffices.
fn lower_group() -> io::Result<()> {
    let lower = || std::fs::write("/proc/self/autogroup", AUTOGROUP_NICENESS);
    for _ in 0..AUTOGROUP_ATTEMPTS {
        match lower() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(AUTOGROUP_INTERVAL),
            result => return result,
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
            // A `spin` between the last check and this store has no effect until the next `spin`, which is harmless.
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

/// Gives the calling thread the policy `SCHED_IDLE`. Returns false if that is not permitted.
fn become_idle() -> bool {
    // Between groups, the time slice decides: a woken thread immediately preempts a thread with a longer slice, but
    // waits for the end of any other thread's slice. The slice persists when the policy changes.
    // SAFETY: zero bytes are a valid sched_attr.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    attributes.size = size_of::<libc::sched_attr>() as u32;
    attributes.sched_runtime = LONGEST_SLICE.as_nanos() as u64;
    // SAFETY: the structures outlive the calls; 0 is the calling thread.
    unsafe {
        if libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) != 0 {
            log::debug!("could not lengthen the time slice of a spinner: {}", io::Error::last_os_error());
        }
        libc::sched_setscheduler(0, libc::SCHED_IDLE, &libc::sched_param { sched_priority: 0 }) == 0
    }
}
