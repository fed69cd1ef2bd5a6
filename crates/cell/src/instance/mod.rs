//! One run of the daemon, and the changes that the run refuses while a process uses a previous mount.
//!
//! When a daemon exits, files that processes have open still belong to its mount. The kernel serves these files from its
//! page cache and never sees a change through the mount of the next daemon. Invariant: as long as a process of an ordinary
//! user has a regular file of a previous mount open, no file of the cell changes, so the kernel's copies equal the cell's
//! content. The file service checks the invariant before each change, and refuses the change.
//! `docs/decisions/0013-changes-wait-for-the-previous-mount.md` explains why.

mod mount_table;
mod previous_mounts;

use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

pub use mount_table::{Device, MountEntry, is_attached, mounts_at};
pub use previous_mounts::{MountRecord, PreviousMounts, User, sees_all_processes};

/// One run of the daemon.
#[derive(Debug)]
pub struct Instance {
    id: u64,
    started: Instant,
    /// Set once, when no process uses a previous mount any more.
    accepts_changes: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    previous: PreviousMounts,
    /// The refusal of changes has been logged.
    is_refusal_logged: bool,
}

impl Instance {
    /// Chooses the id of this run.
    pub fn new(previous: PreviousMounts) -> io::Result<Self> {
        let mut id = [0; 8];
        std::fs::File::open("/dev/urandom")?.read_exact(&mut id)?;
        let state = State { previous, is_refusal_logged: false };
        Ok(Self {
            id: u64::from_le_bytes(id).max(1),
            started: Instant::now(),
            accepts_changes: AtomicBool::new(false),
            state: Mutex::new(state),
        })
    }

    /// Returns a random number, not 0.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns the time since the daemon started.
    pub fn age(&self) -> Duration {
        self.started.elapsed()
    }

    /// Returns an error of errno EBUSY while a process uses a previous mount.
    #[inline]
    pub fn check_change(&self) -> cellar_storage::Result<()> {
        if self.accepts_changes.load(Ordering::Acquire) {
            return Ok(());
        }
        match self.user_of_previous_mount() {
            None => Ok(()),
            Some(user) => {
                let busy = io::Error::from_raw_os_error(libc::EBUSY);
                Err(cellar_storage::Error::io(user.to_string(), busy))
            }
        }
    }

    /// Returns whether the file service refuses changes now.
    pub fn refuses_changes(&self) -> bool {
        !self.accepts_changes.load(Ordering::Acquire) && self.user_of_previous_mount().is_some()
    }

    /// Looks for a process that uses a previous mount. The search starts after the call, so a caller that has waited for
    /// the exit of all such processes finds none.
    fn user_of_previous_mount(&self) -> Option<User> {
        let mut state = self.state.lock();
        if self.accepts_changes.load(Ordering::Acquire) {
            return None;
        }
        let user = state.previous.find_user();
        match &user {
            Some(user) if !state.is_refusal_logged => {
                log::warn!("refusing changes of files: {user}; the cell accepts changes when no process uses it");
                state.is_refusal_logged = true;
            }
            Some(_) => {}
            None => {
                if state.is_refusal_logged {
                    log::info!("accepting changes of files: no process uses a previous mount any more");
                }
                self.accepts_changes.store(true, Ordering::Release);
            }
        }
        user
    }

    /// Records the device of this run's mount on the cell disks, for the next run.
    pub fn record_mount(&self, record: &MountRecord, mount: &Device) {
        record.write(self.state.lock().previous.devices(), mount);
    }
}
