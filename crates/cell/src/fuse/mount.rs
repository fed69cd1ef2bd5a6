//! Mounts and unmounts the file service, and removes stale mounts of crashed daemons.

use super::FileService;
use super::ring::{self, Ring};
use super::service::REQUEST_BYTES_MAX;
use crate::instance::Device;
use fuser::{BackgroundSession, Config, MountOption, Session, SessionACL};
use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};
use nix::sys::statvfs::statvfs;
use nix::unistd::Uid;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Threads of the `/dev/fuse` transport, which is also the maximum number of requests that wait for disks.
const DEVICE_THREADS: usize = 8;
/// The kernel's read-ahead on the mount: the largest request of a sequential reader.
const READ_AHEAD_KIB: u32 = 1024;
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum number of stale mounts on one mount point; more of them indicate a loop.
const STALE_MAX: usize = 16;

#[derive(Debug, Clone)]
pub struct MountOptions {
    /// The cell's name; shown by `mount`.
    pub name: String,
    /// Permit access by users other than the daemon's; needs root, or `user_allow_other` in /etc/fuse.conf.
    pub allow_other: bool,
    /// Use FUSE over io_uring if the kernel supports it.
    pub use_ring: bool,
    /// The program whose `keep-awake` command prevents idle CPUs from halting between requests; None permits halting.
    pub keep_awake_program: Option<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
#[error("could not {verb} {path}: {message}")]
pub struct MountError {
    verb: &'static str,
    path: String,
    message: String,
}

impl MountError {
    fn new(verb: &'static str, path: &Path, message: impl ToString) -> Self {
        Self { verb, path: path.display().to_string(), message: message.to_string() }
    }
}

/// A mounted file service.
pub struct Mount {
    path: PathBuf,
    session: Option<BackgroundSession>,
    ring: Option<Ring>,
}

impl Mount {
    pub fn new(mut service: FileService, path: &Path, options: &MountOptions) -> Result<Self, MountError> {
        let failed = |error: io::Error| MountError::new("mount", path, explain(&error));
        service.use_ring = options.use_ring && ring::enable();
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName(format!("cellar:{}", options.name)),
            MountOption::Subtype("cellar".into()),
            MountOption::DefaultPermissions,
            MountOption::NoDev,
            MountOption::NoSuid,
            MountOption::NoAtime,
        ];
        config.acl = if options.allow_other { SessionACL::All } else { SessionACL::Owner };
        // With rings, only requests that never block arrive on `/dev/fuse`: one thread suffices.
        config.n_threads = Some(if service.use_ring { 1 } else { DEVICE_THREADS });
        config.clone_fd = true;
        let session = Session::new(service.clone(), path, &config).map_err(failed)?;
        let ring = match service.use_ring {
            false => None,
            true => {
                let device = session.as_fd().try_clone_to_owned().map_err(failed)?;
                let hot_path = Arc::new(service.clone());
                let keep_awake = options.keep_awake_program.as_ref().map(|program| {
                    let mut command = Command::new(program);
                    command.arg0("cellar").arg("keep-awake");
                    command
                });
                Some(Ring::start(device, &service, hot_path, REQUEST_BYTES_MAX as usize, keep_awake).map_err(failed)?)
            }
        };
        let session = session.spawn().map_err(failed)?;
        let mount = Self { path: path.into(), session: Some(session), ring };
        if let Err(error) = mount.raise_read_ahead() {
            log::info!("could not raise the read-ahead of {}: {error}", path.display());
        }
        Ok(mount)
    }

    /// Returns the name of the transport in use.
    pub fn transport(&self) -> &'static str {
        if self.ring.is_some() { "io_uring" } else { "/dev/fuse" }
    }

    /// Raises the read-ahead through the mount's backing device, because INIT permits at most 128 KiB.
    fn raise_read_ahead(&self) -> io::Result<()> {
        let not_found = || io::Error::other(format!("{} is not in /proc/self/mountinfo", self.path.display()));
        let device = Device::mounted_on(&self.path).ok_or_else(not_found)?;
        std::fs::write(format!("/sys/class/bdi/{device}/read_ahead_kb"), READ_AHEAD_KIB.to_string())
    }

    /// Returns whether the file system is still mounted. Any process may unmount it.
    pub fn is_alive(&self) -> bool {
        self.session.as_ref().is_some_and(|session| !session.guard.is_finished())
    }

    /// Unmounts. Waits up to `timeout` while other processes use the mount, then detaches the mount; those processes
    /// get errors once this process exits.
    pub fn unmount(mut self, timeout: Duration) -> Result<(), MountError> {
        let started = Instant::now();
        let mut warned = false;
        while self.is_alive() {
            match unmount(&self.path, false) {
                Ok(()) => break,
                Err(error) if started.elapsed() >= timeout => {
                    log::warn!("detaching {}, which is still in use: {error}", self.path.display());
                    unmount(&self.path, true).map_err(|error| MountError::new("unmount", &self.path, error))?;
                    // Open files keep the session alive until the process exits, so do not wait for its threads.
                    std::mem::forget(self.session.take());
                    std::mem::forget(self.ring.take());
                    return Ok(());
                }
                Err(error) => {
                    if !warned {
                        log::warn!("waiting up to {timeout:?} for processes that use {}: {error}", self.path.display());
                        warned = true;
                    }
                    std::thread::sleep(RETRY_INTERVAL);
                }
            }
        }
        if let Some(session) = self.session.take() {
            match session.join() {
                // The kernel returns these errors if a reader races with the unmount.
                Err(error) if matches!(error.raw_os_error(), Some(libc::ECONNABORTED | libc::ENODEV)) => {}
                other => other.map_err(|error| MountError::new("serve", &self.path, error))?,
            }
        }
        if let Some(ring) = self.ring.take() {
            ring.join();
        }
        Ok(())
    }
}

fn unmount(path: &Path, lazily: bool) -> io::Result<()> {
    let flags = if lazily { MntFlags::MNT_DETACH } else { MntFlags::empty() };
    match umount2(path, flags) {
        // Without privileges, unmount through the setuid helper.
        Err(Errno::EPERM) if !Uid::effective().is_root() => {
            let mut command = Command::new("fusermount3");
            command.arg("-u").args(lazily.then_some("-z")).arg("--").arg(path);
            let output = command.output()?;
            match output.status.success() {
                true => Ok(()),
                false => Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
            }
        }
        other => Ok(other?),
    }
}

/// Returns whether the path is the mount point of a file service whose daemon crashed.
pub fn is_stale(path: &Path) -> bool {
    // statfs always reaches the daemon; stat may be served from the kernel's cache. Requests fail with ECANCELED while
    // the kernel still tears down the crashed daemon's rings.
    matches!(statvfs(path), Err(Errno::ENOTCONN | Errno::ECANCELED | Errno::ECONNABORTED))
}

/// Detaches all stale mounts from the path, and returns their devices.
pub fn release_stale(path: &Path) -> Result<Vec<Device>, MountError> {
    let mut devices = Vec::new();
    for _ in 0..STALE_MAX {
        if !is_stale(path) {
            return Ok(devices);
        }
        devices.extend(Device::mounted_on(path));
        unmount(path, true).map_err(|error| MountError::new("detach the stale mount from", path, error))?;
    }
    Err(MountError::new("detach the stale mount from", path, "the mount point still has stale mounts"))
}

/// Returns the message of a failed mount, with a hint.
fn explain(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENOENT) => {
            format!("{error}; create the directory, and make sure that /dev/fuse exists (modprobe fuse)")
        }
        Some(libc::EPERM | libc::EACCES) => {
            format!(
                "{error}; run as root, or install fuse3 and permit the user to write to the mount point and to open /dev/fuse"
            )
        }
        _ => error.to_string(),
    }
}
