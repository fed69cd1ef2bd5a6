//! Mounts as the kernel reports them. No function sends a request to a mounted file system, so none waits for a daemon.

use std::fmt;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Statx, StatxAttributes, StatxFlags, statx};

/// The device of a mounted file system. Device numbers are assigned again, so a device is identified by its number together
/// with the inode of its directory in sysfs, which is not reused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    major: u32,
    minor: u32,
    /// The inode of the device's directory in sysfs; 0 if sysfs is not available.
    sysfs_inode: u64,
}

impl Device {
    /// Returns the device of the topmost mount at a path; None if the path is not a mount point.
    pub fn mounted_at(path: &Path) -> Option<Self> {
        mount_root(path).map(|root| Self::present(root.stx_dev_major, root.stx_dev_minor))
    }

    /// Returns the device of an open mount.
    pub fn mounted_as(mount: impl AsFd) -> io::Result<Self> {
        let root = statx(mount, "", AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC, StatxFlags::empty())?;
        Ok(Self::present(root.stx_dev_major, root.stx_dev_minor))
    }

    /// Returns the device of a number "major:minor" and an inode in sysfs.
    pub(super) fn recorded(number: &str, sysfs_inode: u64) -> Option<Self> {
        let (major, minor) = number.split_once(':')?;
        Some(Self { major: major.parse().ok()?, minor: minor.parse().ok()?, sysfs_inode })
    }

    /// Looks for a device in sysfs.
    fn present(major: u32, minor: u32) -> Self {
        let mut device = Self { major, minor, sysfs_inode: 0 };
        device.sysfs_inode = device.present_inode().unwrap_or(0);
        device
    }

    fn present_inode(&self) -> io::Result<u64> {
        Ok(fs::metadata(format!("/sys/class/bdi/{self}"))?.ino())
    }

    pub(super) fn number(&self) -> (u32, u32) {
        (self.major, self.minor)
    }

    pub(super) fn sysfs_inode(&self) -> u64 {
        self.sysfs_inode
    }

    /// Returns whether the mount may still exist.
    pub(super) fn exists(&self) -> bool {
        match self.present_inode() {
            Ok(inode) => self.sysfs_inode == 0 || inode == self.sysfs_inode,
            // Without sysfs, nothing is known.
            Err(_) => !Path::new("/sys/class/bdi").exists(),
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

/// A line of /proc/self/mountinfo.
#[derive(Debug)]
pub struct MountEntry {
    id: u64,
    parent: u64,
    mount_point: PathBuf,
    pub device: Device,
    pub source: String,
}

impl MountEntry {
    fn parse(line: &str) -> Option<Self> {
        let (mount, file_system) = line.split_once(" - ")?;
        let fields: Vec<&str> = mount.split(' ').collect();
        let (major, minor) = fields.get(2)?.split_once(':')?;
        Some(Self {
            id: fields.first()?.parse().ok()?,
            parent: fields.get(1)?.parse().ok()?,
            mount_point: fields.get(4)?.into(),
            device: Device::present(major.parse().ok()?, minor.parse().ok()?),
            source: file_system.split(' ').nth(1)?.to_owned(),
        })
    }
}

/// Returns whether a mount of the device is at any path. True if the table of mounts is not available.
pub fn is_attached(device: &Device) -> bool {
    let Ok(table) = fs::read_to_string("/proc/self/mountinfo") else { return true };
    table.lines().filter_map(MountEntry::parse).any(|entry| entry.device == *device)
}

/// Returns the mounts at a path, topmost first. A mount hides those below it. Needs Linux 5.8; empty on older kernels.
pub fn mounts_at(path: &Path) -> Vec<MountEntry> {
    let top = mount_root(path).filter(|root| root.stx_mask & StatxFlags::MNT_ID.bits() != 0);
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mut entries: Vec<_> = table.lines().filter_map(MountEntry::parse).collect();
    let mut stack: Vec<MountEntry> = Vec::new();
    let mut next = top.map(|root| root.stx_mnt_id);
    while let Some(position) = entries.iter().position(|entry| Some(entry.id) == next) {
        let entry = entries.swap_remove(position);
        if stack.last().is_some_and(|above| above.mount_point != entry.mount_point) {
            break;
        }
        next = Some(entry.parent);
        stack.push(entry);
    }
    stack
}

/// Returns the kernel's attributes of the root directory of the topmost mount at a path; None if the path is not a mount
/// point.
fn mount_root(path: &Path) -> Option<Statx> {
    let root = statx(CWD, path, AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC, StatxFlags::MNT_ID).ok()?;
    root.stx_attributes.contains(StatxAttributes::MOUNT_ROOT).then_some(root)
}
