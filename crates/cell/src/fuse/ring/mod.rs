//! FUSE over io_uring: requests and replies go through rings that the kernel fills, one queue a CPU, instead of reads
//! and writes on `/dev/fuse`.
//!
//! A queue's thread is pinned to its CPU, so that a backend and the thread that serves it share one, and a request
//! costs no wake-up across CPUs. Reads, writes and GETATTR are served on the queue's thread. Everything else is handed, in the
//! classic form, to a `fuser` session over a socket pair, and its reply is taken from there, so there is one
//! implementation of every operation; what may block (a sync) never holds up the queue. FORGET and INTERRUPT still
//! come on `/dev/fuse`, where the main session reads them.
//!
//! Invariant: an entry is either the kernel's, waiting for a request, or ours, between a request and its commit.

mod abi;
mod awake;
mod cpu;
mod queue;

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::thread::JoinHandle;

use fuser::Filesystem;

pub use abi::AttrOut;
pub use awake::keep_awake;
use awake::{Awake, Companions};
use queue::Queue;

/// Whether the kernel lets servers use rings; writable by root.
const ENABLE: &str = "/sys/module/fuse/parameters/enable_uring";
const POSSIBLE_CPUS: &str = "/sys/devices/system/cpu/possible";

/// Where a read or write goes.
#[derive(Debug, Clone, Copy)]
pub struct Call {
    pub ino: u64,
    pub offset: u64,
    /// `FUSE_WRITE_*` of a write.
    pub flags: u32,
}

/// The operations that a queue's thread serves itself; errors are errno values.
pub trait HotPath: Send + Sync + 'static {
    fn read(&self, call: Call, out: &mut [u8]) -> Result<usize, i32>;
    fn write(&self, call: Call, data: &[u8]) -> Result<usize, i32>;
    /// Attributes of an inode: a write makes the kernel forget a file's size, and the next extension asks for it.
    fn getattr(&self, ino: u64) -> Result<AttrOut, i32>;
}

/// Switches the kernel's parameter on; false when there is none or it may not be written.
pub fn enable() -> bool {
    let is_on = || std::fs::read_to_string(ENABLE).is_ok_and(|value| value.trim() == "Y");
    is_on() || (Path::new(ENABLE).exists() && std::fs::write(ENABLE, "Y").is_ok() && is_on())
}

/// The running queues; they end by themselves when the file system is unmounted.
pub struct Ring {
    threads: Vec<JoinHandle<()>>,
}

impl Ring {
    /// Starts a queue for every possible CPU on a session's `/dev/fuse`; the session's INIT must have agreed on
    /// `FUSE_OVER_IO_URING`, and the kernel holds all requests back until every queue is there.
    /// `payload_bytes` is the larger of max_write and the largest read; `keeper` runs [`keep_awake`].
    pub fn start<F: Filesystem + Clone>(
        device: OwnedFd,
        filesystem: &F,
        hot_path: Arc<dyn HotPath>,
        payload_bytes: usize,
        keeper: Option<Command>,
    ) -> io::Result<Self> {
        let (device, cpus) = (Arc::new(device), possible_cpus()?);
        let companions = keeper.and_then(|keeper| {
            let started = Companions::start(keeper, cpus);
            started.inspect_err(|error| log::info!("CPUs may sleep between requests: {error}")).ok()
        });
        let awake = Awake::new(companions);
        let queues = (0..cpus)
            .map(|cpu| {
                Queue::new(cpu, device.clone(), filesystem.clone(), hot_path.clone(), payload_bytes, awake.clone())
            })
            .collect::<io::Result<Vec<_>>>()?;
        let spawn = |queue: Queue| {
            let name = format!("fuse ring {}", queue.cpu());
            std::thread::Builder::new().name(name).spawn(move || queue.run())
        };
        Ok(Self { threads: queues.into_iter().map(spawn).collect::<io::Result<_>>()? })
    }

    /// Waits until the file system is unmounted.
    pub fn join(self) {
        for thread in self.threads {
            if thread.join().is_err() {
                log::error!("a FUSE ring queue panicked");
            }
        }
    }
}

/// The kernel wants a queue for every CPU that could ever be there: "0-1" means two.
fn possible_cpus() -> io::Result<u16> {
    let text = std::fs::read_to_string(POSSIBLE_CPUS)?;
    let last = text.trim().rsplit(['-', ',']).next().and_then(|number| number.parse::<u16>().ok());
    last.map(|number| number + 1).ok_or_else(|| io::Error::other(format!("{POSSIBLE_CPUS} holds {:?}", text.trim())))
}
