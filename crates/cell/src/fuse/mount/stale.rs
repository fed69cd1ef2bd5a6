//! Stale mounts: mounts of daemons that crashed. Each lookup in a stale mount that needs the daemon fails with ENOTCONN. A
//! lookup in the directory below returns ENOENT, which PostgreSQL takes for a file that was removed. Therefore the last
//! stale mount stays on the mount point until the next mount takes its place.

use super::MountError;
use crate::instance::{Device, MountEntry, mounts_at};
use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};
use nix::sys::statvfs::statvfs;
use nix::unistd::Uid;
use std::io;
use std::path::Path;
use std::process::Command;

/// Maximum number of stale mounts on one mount point; more of them indicate a loop.
const STALE_MAX: usize = 16;

/// Returns whether the path is the mount point of a file service whose daemon crashed.
pub fn is_stale(path: &Path) -> bool {
    // statfs always reaches the daemon; stat may be served from the kernel's cache. Requests fail with ECANCELED while
    // the kernel still tears down the crashed daemon's rings.
    matches!(statvfs(path), Err(Errno::ENOTCONN | Errno::ECANCELED | Errno::ECONNABORTED))
}

/// Returns whether the path is the mount point of a cell, running or crashed.
pub fn is_mount_of_cell(path: &Path) -> bool {
    mounts_at(path).first().is_some_and(is_of_cell)
}

fn is_of_cell(mount: &MountEntry) -> bool {
    mount.source.starts_with(super::SOURCE_PREFIX)
}

/// Detaches all stale mounts from the path except the lowest, and returns the devices of all stale mounts.
pub fn reduce_stale(path: &Path) -> Result<Vec<Device>, MountError> {
    if !is_stale(path) {
        return Ok(Vec::new());
    }
    let devices: Vec<Device> = mounts_at(path).into_iter().take_while(is_of_cell).map(|mount| mount.device).collect();
    for _ in 1..devices.len() {
        if is_stale(path) {
            detach_stale(path)?;
        }
    }
    Ok(devices)
}

/// Detaches all stale mounts from the path.
pub fn release_stale(path: &Path) -> Result<(), MountError> {
    for _ in 0..STALE_MAX {
        if !is_stale(path) {
            return Ok(());
        }
        detach_stale(path)?;
    }
    Err(MountError::new("detach the stale mount from", path, "the mount point still has stale mounts"))
}

/// Detaches the topmost mount from the path.
pub fn detach_stale(path: &Path) -> Result<(), MountError> {
    unmount(path, true).map_err(|error| MountError::new("detach the stale mount from", path, error))
}

/// Unmounts the topmost mount at the path. With `lazily`, a mount that is in use is detached.
pub fn unmount(path: &Path, lazily: bool) -> io::Result<()> {
    let flags = if lazily { MntFlags::MNT_DETACH } else { MntFlags::empty() };
    match umount2(path, flags) {
        // Without privileges, unmount through the setuid helper.
        Err(Errno::EPERM) if !Uid::effective().is_root() => {
            let mut command = Command::new("fusermount3");
            command.arg("-u").args(lazily.then_some("-z")).arg("--").arg(path);
            let output = command.output().map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => io::Error::other("fusermount3 is not installed; install the package fuse3"),
                _ => error,
            })?;
            match output.status.success() {
                true => Ok(()),
                false => Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
            }
        }
        other => Ok(other?),
    }
}
