//! Mounts and unmounts the file service, and replaces stale mounts of crashed daemons.

mod detached;
mod stale;

use super::FileService;
use super::ring::{self, Ring};
use super::service::REQUEST_BYTES_MAX;
use crate::instance::{Device, is_attached};
use detached::DetachedMount;
use fuser::{BackgroundSession, Config, MountOption, Session, SessionACL};
pub use stale::{is_mount_of_cell, is_stale, reduce_stale};
use stale::{release_stale, unmount};
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
/// The source of each mount of a cell begins with this prefix.
const SOURCE_PREFIX: &str = "cellar:";
const SUBTYPE: &str = "cellar";

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

/// The state of a mount that was unmounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unmounted {
    /// All requests were answered, and no request can arrive: the kernel unmounts only a mount without open files.
    AfterLastRequest,
    /// Processes have files of the mount open and can send requests until this process exits, or another process ended the
    /// mount, possibly during a request.
    MayBeInUse,
}

/// A mounted file service.
pub struct Mount {
    path: PathBuf,
    /// None if the device is unknown.
    device: Option<Device>,
    session: Option<BackgroundSession>,
    ring: Option<Ring>,
}

impl Mount {
    /// Serves the file system, and mounts the file system at `path`. If a stale mount is there, the new mount takes its
    /// place.
    pub fn new(mut service: FileService, path: &Path, options: &MountOptions) -> Result<Self, MountError> {
        let failed = |error: io::Error| MountError::new("mount", path, explain(path, &error));
        service.use_ring = options.use_ring && ring::enable();
        let mut config = Config::default();
        config.acl = if options.allow_other { SessionACL::All } else { SessionACL::Owner };
        // With rings, only requests that never block arrive on `/dev/fuse`: one thread suffices.
        config.n_threads = Some(if service.use_ring { 1 } else { DEVICE_THREADS });
        config.clone_fd = true;
        let (session, detached) = match DetachedMount::new(options).map_err(failed)? {
            Some((mount, device)) => {
                let session = Session::from_fd(service.clone(), device, config.acl, config).map_err(failed)?;
                (session, Some(mount))
            }
            // fusermount3 mounts and attaches in one step, and fails if a stale mount is at the mount point.
            None => {
                release_stale(path)?;
                config.mount_options = fusermount_options(&options.name);
                (Session::new(service.clone(), path, &config).map_err(failed)?, None)
            }
        };
        let ring = match service.use_ring {
            false => None,
            true => {
                let device = session.as_fd().try_clone_to_owned().map_err(failed)?;
                // The forwarding sessions, which start with the ring, send INIT too, but their answers do not reach the kernel.
                service.enable_passthrough(session.as_fd().try_clone_to_owned().map_err(failed)?);
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
        let device = match &detached {
            Some(mount) => {
                mount.attach(path)?;
                mount.device().ok()
            }
            None => Device::mounted_at(path),
        };
        let mount = Self { path: path.into(), device, session: Some(session), ring };
        if let Err(error) = mount.raise_read_ahead() {
            log::info!("could not raise the read-ahead of {}: {error}", path.display());
        }
        Ok(mount)
    }

    /// Returns the device of the mount; None if the device is unknown.
    pub fn device(&self) -> Option<&Device> {
        self.device.as_ref()
    }

    /// Returns the name of the transport in use.
    pub fn transport(&self) -> &'static str {
        if self.ring.is_some() { "io_uring" } else { "/dev/fuse" }
    }

    /// Raises the read-ahead through the mount's backing device, because INIT permits at most 128 KiB.
    fn raise_read_ahead(&self) -> io::Result<()> {
        let device = self.device.as_ref().ok_or_else(|| io::Error::other("the device of the mount is unknown"))?;
        std::fs::write(format!("/sys/class/bdi/{device}/read_ahead_kb"), READ_AHEAD_KIB.to_string())
    }

    /// Returns whether the file system is still mounted. Any process may unmount it.
    pub fn is_alive(&self) -> bool {
        self.session.as_ref().is_some_and(|session| !session.guard.is_finished())
    }

    /// Unmounts. Waits up to `timeout` while other processes use the mount, then detaches the mount; those processes
    /// get errors once this process exits.
    pub fn unmount(mut self, timeout: Duration) -> Result<Unmounted, MountError> {
        let started = Instant::now();
        let mut warned = false;
        let mut unmounted = Unmounted::MayBeInUse;
        while self.is_alive() {
            if self.is_detached() {
                log::warn!("processes still use {}, which was detached", self.path.display());
                return self.abandon();
            }
            match self.unmount_own(false) {
                Ok(()) => {
                    unmounted = Unmounted::AfterLastRequest;
                    break;
                }
                Err(error) if started.elapsed() >= timeout => {
                    log::warn!("detaching {}, which is still in use: {error}", self.path.display());
                    self.unmount_own(true).map_err(|error| MountError::new("unmount", &self.path, error))?;
                    return self.abandon();
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
        release_stale(&self.path)?;
        Ok(unmounted)
    }

    /// Leaves a detached mount to the processes that use it. Open files keep the session alive until this process exits, so
    /// this function does not wait for the session's threads.
    fn abandon(&mut self) -> Result<Unmounted, MountError> {
        std::mem::forget(self.session.take());
        std::mem::forget(self.ring.take());
        release_stale(&self.path)?;
        Ok(Unmounted::MayBeInUse)
    }

    /// Returns whether another process has detached the mount (`umount --lazy`).
    fn is_detached(&self) -> bool {
        self.device.as_ref().is_some_and(|device| !is_attached(device))
    }

    /// Unmounts the topmost mount of the path, provided that it is this mount.
    fn unmount_own(&self, lazily: bool) -> io::Result<()> {
        match (Device::mounted_at(&self.path), &self.device) {
            (Some(top), Some(own)) if top != *own => Err(io::Error::other("another file system is mounted above")),
            _ => unmount(&self.path, lazily),
        }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if self.is_alive() && !self.is_detached() {
            let _ = self.unmount_own(true);
        }
    }
}

/// Returns the source of a cell's mount, which `mount` shows.
fn source(name: &str) -> String {
    format!("{SOURCE_PREFIX}{name}")
}

fn fusermount_options(name: &str) -> Vec<MountOption> {
    vec![
        MountOption::FSName(source(name)),
        MountOption::Subtype(SUBTYPE.into()),
        MountOption::DefaultPermissions,
        MountOption::NoDev,
        MountOption::NoSuid,
        MountOption::NoAtime,
    ]
}

/// Returns the message of a failed mount at `path`, with a hint.
fn explain(path: &Path, error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::ENOENT) if !path.exists() => format!("{error}; create the directory"),
        Some(libc::ENOENT) if !Path::new("/dev/fuse").exists() => {
            "there is no /dev/fuse; load the kernel module (modprobe fuse), or give the container the device".into()
        }
        // Without the right to mount, fusermount3 is executed.
        Some(libc::ENOENT) => "fusermount3 is not installed; install the package fuse3, or run as root".into(),
        Some(libc::EPERM | libc::EACCES) => {
            format!(
                "{error}; run as root, or install fuse3 and permit the user to write to the mount point and to open /dev/fuse"
            )
        }
        _ => error.to_string(),
    }
}
