//! The FUSE file service: a volume as a mounted file system.
//!
//! Invariants: no request changes the volume while a process uses a previous mount ([`Instance`]). Every write reaches the volume before it returns to its caller, so the kernel never has dirty pages of
//! `write` calls. The daemon never opens a file on its own mount, which could deadlock. The kernel checks permissions
//! and manages all file locks. `service.rs` negotiates the kernel's features (`init`).

mod class;
mod hot;
mod mount;
mod opens;
mod process;
mod reply;
mod ring;
mod service;
mod stats;

pub(crate) use class::{area_of, cluster_root, origin, relation_of, relation_segment, type_of};
pub use mount::{Mount, MountError, MountOptions, Unmounted, is_mount_of_cell, is_stale, reduce_stale};
pub use ring::keep_awake;
pub use stats::{Area, Histogram, IoCount, IoStats, RELATIONS_MAX, RelationCount};

use crate::instance::Instance;
use cellar_format::wire::FileType;
use cellar_storage::iorm::Iorm;
use cellar_storage::request::within;
use cellar_storage::{Ino, Result, Volume};
use class::{Classes, FileClass};
use opens::Opens;
use ring::Workers;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// The ioctl by which a Postgres backend finds the cell that serves a file or directory: `_IOR(0xCE, 1, char[4096])`.
/// An extended attribute would be slower: once a file system supports them, the kernel reads `security.capability` on
/// every write.
const WHICH_CELL: u32 = 2 << 30 | (WHICH_CELL_BYTES as u32) << 16 | 0xCE << 8 | 1;
const WHICH_CELL_BYTES: usize = 4096;

/// The ioctl that changes CELL_FLASH_CACHE of a file, or only reads it, `_IOWR(0xCE, 2, uint64_t[4])`. The first number is the
/// new setting or [`FLASH_CACHE_READ`]. The answer has the former setting, the cached bytes, the hits and the misses of the file.
const FLASH_CACHE: u32 = 3 << 30 | (FLASH_CACHE_BYTES as u32) << 16 | 0xCE << 8 | 2;
const FLASH_CACHE_BYTES: usize = 32;
const FLASH_CACHE_READ: u64 = u64::MAX;

/// The file service of one volume. Clones share one state.
#[derive(Debug, Clone)]
pub struct FileService {
    shared: Arc<Shared>,
    /// Whether to negotiate FUSE over io_uring when mounting.
    use_ring: bool,
}

#[derive(Debug)]
struct Shared {
    volume: Arc<Volume>,
    socket: PathBuf,
    /// Limit of the memory for groups of Smart Scans.
    group_bytes: u64,
    instance: Arc<Instance>,
    stats: Arc<IoStats>,
    classes: Classes,
    iorm: Arc<Iorm>,
    /// Run the requests of the classic transport that wait, and of the ring's forwarding sessions.
    workers: Workers,
    /// Which files are open, if some of them are passed through.
    opens: OnceLock<Opens>,
    /// The kernel of the mount can pass files through.
    can_pass_through: AtomicBool,
}

/// Maximum number of requests of the classic transport and of all forwarding sessions that wait at the same time.
const WAITING_MAX: usize = 1024;

impl FileService {
    /// Creates the service. `socket` is the socket of the cell's Smart Scan server, and `group_bytes` the limit of the
    /// memory for groups: the ioctl `WHICH_CELL` returns both.
    pub fn new(
        volume: Arc<Volume>,
        socket: &Path,
        group_bytes: u64,
        instance: Arc<Instance>,
        stats: Arc<IoStats>,
    ) -> Self {
        let (workers, classes) = (Workers::new(WAITING_MAX, None), Classes::default());
        let shared = Shared {
            volume,
            socket: socket.into(),
            group_bytes,
            instance,
            stats,
            classes,
            iorm: Arc::default(),
            workers,
            opens: OnceLock::new(),
            can_pass_through: AtomicBool::new(false),
        };
        Self { shared: Arc::new(shared), use_ring: false }
    }

    /// Gives the service the resource manager of the cell. Call this before the service is cloned.
    pub fn with_iorm(mut self, iorm: Arc<Iorm>) -> Self {
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            shared.iorm = iorm;
        }
        self
    }

    /// Returns the volume, for requests that change nothing.
    fn volume(&self) -> &Volume {
        &self.shared.volume
    }

    /// Returns the volume for a change; an error while the cell refuses changes ([`Instance`]).
    fn volume_to_change(&self) -> Result<&Volume> {
        self.shared.instance.check_change()?;
        Ok(&self.shared.volume)
    }

    /// Runs a request that may wait on a worker thread, so that it delays no other request.
    fn run_waiting(&self, request: impl FnOnce(&Self) + Send + 'static) {
        let service = self.clone();
        self.shared.workers.run(move || request(&service));
    }

    /// Runs `request` of a process for a file of a class, with the origin of its requests to the disks.
    fn within<T>(&self, class: &FileClass, process: u32, request: impl FnOnce() -> T) -> T {
        within(class.origin_of(process, &self.shared.iorm), request)
    }

    /// Lets the kernel read and write files itself if INIT has negotiated it. Call this before the first open: without account of
    /// open files the service lets the kernel open files without a request.
    fn enable_passthrough(&self, device: OwnedFd) {
        if !self.shared.can_pass_through.load(Ordering::Acquire) {
            if self.volume().passes_through(FileType::Wal) {
                log::warn!(
                    "the kernel does not support FUSE passthrough (Linux 6.9, io_uring): WAL is written through the cell"
                );
            }
            return;
        }
        if self.shared.opens.set(Opens::new(device)).is_ok() {
            let shared = Arc::downgrade(&self.shared);
            self.volume().set_end_unused_passthrough(move || {
                if let Some(shared) = shared.upgrade()
                    && let Some(opens) = shared.opens.get()
                {
                    opens.end_unused(&shared.volume);
                }
            });
        }
    }

    /// Returns the open files; None if the kernel opens files without a request.
    fn opens(&self) -> Option<&Opens> {
        self.shared.opens.get()
    }

    /// Returns whether a file has a type that the kernel may read and write itself.
    fn passes_through(&self, ino: Ino) -> bool {
        self.volume().passes_through(self.class_of(ino).file_type)
    }

    fn class_of(&self, ino: Ino) -> Arc<FileClass> {
        self.shared.classes.of(ino, &self.shared.volume, &self.shared.stats, &self.shared.iorm)
    }
}
