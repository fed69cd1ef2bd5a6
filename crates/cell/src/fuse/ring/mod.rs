//! FUSE over io_uring: the kernel passes requests and replies through one ring queue per CPU, instead of reads and
//! writes on `/dev/fuse`.
//!
//! A queue's thread is pinned to its CPU. A backend and the thread that serves it share a CPU, so a request needs no
//! wake-up across CPUs. The queue's thread serves reads, writes and GETATTR itself. Syncs, and reads and writes that would
//! wait, run on worker threads of the queue. The queue forwards every other request, in the format of `/dev/fuse`, to a
//! `fuser` session over a socket pair, and passes the session's reply to the kernel. Requests that wait never delay the
//! queue. FORGET and INTERRUPT arrive on `/dev/fuse`, which the main session reads.
//!
//! Invariant: a ring entry belongs either to the kernel, which fills in a request, or to the queue, until it commits
//! the reply.

mod abi;
mod cpu;
mod keep_awake;
mod queue;
mod waiting;
mod workers;

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use fuser::Filesystem;

pub use abi::{AttrOut, OpenOut};
pub use keep_awake::keep_awake;
use keep_awake::{KeepAwake, Spinners};
use queue::Queue;
pub use workers::Workers;

/// Module parameter that permits FUSE over io_uring; writable by root.
const ENABLE: &str = "/sys/module/fuse/parameters/enable_uring";
const POSSIBLE_CPUS: &str = "/sys/devices/system/cpu/possible";

/// The target of a read or write.
#[derive(Debug, Clone, Copy)]
pub struct Call {
    pub ino: u64,
    pub offset: u64,
    /// `FUSE_WRITE_*` flags of a write.
    pub flags: u32,
    /// The calling process; 0 if it is in another pid namespace.
    pub pid: u32,
}

/// The operations that a queue serves itself. Errors are errno values. `try_read`, `try_write` and `getattr` run on the
/// queue's thread, and wait neither for a device nor for a sync; the others run on worker threads. Requests arrived at
/// `since`.
pub trait HotPath: Send + Sync + 'static {
    /// Returns None if the read would wait; `out` is then undefined.
    fn try_read(&self, call: Call, out: &mut [u8], since: Instant) -> Result<Option<usize>, i32>;
    /// Repeats a read for which `try_read` returned None.
    fn read(&self, call: Call, out: &mut [u8], since: Instant) -> Result<usize, i32>;
    /// Returns None, and writes nothing, if the write would wait.
    fn try_write(&self, call: Call, data: &[u8], since: Instant) -> Result<Option<usize>, i32>;
    /// Repeats a write for which `try_write` returned None.
    fn write(&self, call: Call, data: &[u8], since: Instant) -> Result<usize, i32>;
    fn sync(&self, ino: u64) -> Result<(), i32>;
    fn sync_directory(&self, ino: u64) -> Result<(), i32>;
    /// Attributes of an inode. A write invalidates the kernel's cached size, so extending a file requests the
    /// attributes each time.
    fn getattr(&self, ino: u64) -> Result<AttrOut, i32>;
    /// Answers an open; [`Opening::Forward`] unless the service keeps account of open files.
    fn try_open(&self, ino: u64) -> Opening;
    /// Answers an open for which `try_open` returned [`Opening::Wait`].
    fn open(&self, ino: u64) -> OpenOut;
    /// Answers the end of an open. Returns false if the forwarding session answers it.
    fn release(&self, ino: u64) -> bool;
}

/// The answer to an open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opening {
    Done(OpenOut),
    /// The open waits for a disk.
    Wait,
    Forward,
}

/// Enables FUSE over io_uring in the kernel. Returns false if the kernel lacks the parameter or forbids the change.
pub fn enable() -> bool {
    let is_on = || std::fs::read_to_string(ENABLE).is_ok_and(|value| value.trim() == "Y");
    is_on() || (Path::new(ENABLE).exists() && std::fs::write(ENABLE, "Y").is_ok() && is_on())
}

/// The running queues; their threads exit when the file system is unmounted.
pub struct Ring {
    threads: Vec<JoinHandle<()>>,
}

impl Ring {
    /// Starts a queue for every possible CPU on a session's `/dev/fuse`. The session must have negotiated
    /// `FUSE_OVER_IO_URING` in INIT; the kernel delays all requests until every queue is registered. `payload_bytes` is
    /// the maximum size of a read or write; `keep_awake_command` runs [`keep_awake()`].
    pub fn start<F: Filesystem + Clone>(
        device: OwnedFd,
        filesystem: &F,
        hot_path: Arc<dyn HotPath>,
        payload_bytes: usize,
        keep_awake_command: Option<Command>,
    ) -> io::Result<Self> {
        let (device, cpus) = (Arc::new(device), possible_cpus()?);
        let spinners = keep_awake_command.and_then(|command| {
            let started = Spinners::start(command, cpus);
            started.inspect_err(|error| log::info!("could not start the keep-awake process: {error}")).ok()
        });
        let keep_awake = KeepAwake::new(spinners);
        let queues = (0..cpus)
            .map(|cpu| {
                Queue::new(cpu, device.clone(), filesystem.clone(), hot_path.clone(), payload_bytes, keep_awake.clone())
            })
            .collect::<io::Result<Vec<_>>>()?;
        let spawn = |queue: Queue| {
            let name = format!("fuse ring {}", queue.cpu());
            std::thread::Builder::new().name(name).spawn(move || queue.run())
        };
        Ok(Self { threads: queues.into_iter().map(spawn).collect::<io::Result<_>>()? })
    }

    /// Waits until the file system is unmounted and all queues have exited.
    pub fn join(self) {
        for thread in self.threads {
            if thread.join().is_err() {
                log::error!("a FUSE ring queue panicked");
            }
        }
    }
}

/// Returns the number of possible CPUs ("0-1" means two); the kernel requires a queue for each of them.
fn possible_cpus() -> io::Result<u16> {
    let text = std::fs::read_to_string(POSSIBLE_CPUS)?;
    let last = text.trim().rsplit(['-', ',']).next().and_then(|number| number.parse::<u16>().ok());
    last.map(|number| number + 1).ok_or_else(|| io::Error::other(format!("{POSSIBLE_CPUS} contains {:?}", text.trim())))
}
