//! The FUSE file service: a volume as a mounted file system.
//!
//! Invariants: every write reaches the volume before it returns to its caller (the kernel never holds dirty data of
//! writes); the daemon never opens a file on its own mount; the kernel checks permissions and keeps all file locks.
//! Settings: `init` in `service.rs`.

mod class;
mod hot;
mod mount;
mod reply;
mod ring;
mod service;
mod stats;

pub use mount::{Mount, MountError, MountOptions, is_stale, release_stale};
pub use ring::keep_awake;
pub use stats::{Area, Histogram, IoCount, IoStats};

use cellar_format::wire::FileIoKind;
use cellar_storage::{Ino, Volume};
use class::Classes;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// The ioctl by which a Postgres backend finds the cell that serves a file or directory: `_IOR(0xCE, 1, char[4096])`.
/// There are no extended attributes, so this is not one: for each write the kernel would ask for one of its own.
const WHICH_CELL: u32 = 2 << 30 | (WHICH_CELL_BYTES as u32) << 16 | 0xCE << 8 | 1;
const WHICH_CELL_BYTES: usize = 4096;

/// The file service of one volume; clones share it.
#[derive(Debug, Clone)]
pub struct FileService {
    shared: Arc<Shared>,
    /// Whether to ask the kernel for its rings when mounting.
    use_ring: bool,
}

#[derive(Debug)]
struct Shared {
    volume: Arc<Volume>,
    socket: PathBuf,
    stats: Arc<IoStats>,
    classes: Classes,
}

impl FileService {
    /// `socket` is where the cell's Smart Scan server listens; backends learn it by [`WHICH_CELL`].
    pub fn new(volume: Arc<Volume>, socket: &Path, stats: Arc<IoStats>) -> Self {
        let shared = Shared { volume, socket: socket.into(), stats, classes: Classes::default() };
        Self { shared: Arc::new(shared), use_ring: false }
    }

    fn volume(&self) -> &Volume {
        &self.shared.volume
    }

    /// Counts an operation that began at `since`.
    fn count(&self, ino: Ino, kind: FileIoKind, bytes: usize, since: Instant) {
        self.shared.classes.of(ino, &self.shared.volume, &self.shared.stats).count(kind, bytes, since.elapsed());
    }
}
