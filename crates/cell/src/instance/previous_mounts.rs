//! Mounts of a cell by earlier runs of its daemon, and the processes that use them.
//!
//! A mount that is detached while processes have files open lives on until the last of these files is closed. It is then
//! in no list of mounts, but its device number is in use.
//!
//! Only regular files count: a page can be stale only in a file that was opened on the previous mount. A process that
//! merely has a directory of the mount as its working directory opens other files through absolute paths, which lead to
//! the present mount, or through relative paths, which lead to files that only the previous mount could change.
//! Processes of root do not count either: PostgreSQL never runs as root.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use rustix::process::geteuid;

use super::mount_table::Device;

/// The name of the record on each cell disk.
const RECORD: &str = "mounts";
/// The inode of the first PID namespace, whose `/proc` shows all processes.
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";

/// The record of a cell's mounts on its disks: for each mount a line with the id of the machine's boot, the device number
/// and the inode in sysfs. The record survives the daemon; a reboot makes the record void. The daemon finds a mount that is
/// still at the mount point without the record, so the record matters only for mounts that were detached.
#[derive(Debug)]
pub struct MountRecord {
    disks: Vec<PathBuf>,
    boot: String,
}

impl MountRecord {
    pub fn new(disks: &[PathBuf]) -> Self {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        Self { disks: disks.to_vec(), boot: boot.trim().to_owned() }
    }

    /// Returns the recorded mounts that still exist.
    fn read(&self) -> Vec<Device> {
        let lines = self.disks.iter().filter_map(|disk| fs::read_to_string(disk.join(RECORD)).ok());
        let lines: Vec<String> = lines.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()).collect();
        let devices = lines.iter().filter_map(|line| {
            let mut fields = line.split(' ');
            let is_of_this_boot = fields.next() == Some(&self.boot);
            let device = Device::recorded(fields.next()?, fields.next()?.parse().ok()?)?;
            (is_of_this_boot && device.exists()).then_some(device)
        });
        devices.collect()
    }

    /// Replaces the record on every disk.
    pub(super) fn write(&self, previous: &[Device], own: &Device) {
        let line = |device: &Device| format!("{} {device} {}\n", self.boot, device.sysfs_inode());
        let text: String = previous.iter().chain([own]).map(line).collect();
        for disk in &self.disks {
            let (path, new) = (disk.join(RECORD), disk.join(format!("{RECORD}.new")));
            if let Err(error) = fs::write(&new, &text).and_then(|()| fs::rename(&new, &path)) {
                log::warn!("could not write {}: {error}", path.display());
            }
        }
    }
}

/// A process that uses a previous mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum User {
    Process {
        pid: u32,
        name: String,
        descriptor: PathBuf,
    },
    /// The previous mount exists, but the daemon cannot see which processes use it.
    Unknown(Device),
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process { pid, name, .. } => {
                write!(f, "process {pid} ({name}) has files of a previous mount of the cell open")
            }
            Self::Unknown(device) => {
                write!(f, "a previous mount of the cell (device {device}) is in use by processes that are not visible")
            }
        }
    }
}

/// The mounts of earlier runs that may still be in use.
#[derive(Debug, Default)]
pub struct PreviousMounts {
    devices: Vec<Device>,
    /// The process that the last search found. Looking at its file first makes the next search short.
    last_user: Option<User>,
}

impl PreviousMounts {
    /// `detached` are the mounts that were still at the mount point; `record` may contain others.
    pub fn new(detached: Vec<Device>, record: &MountRecord) -> Self {
        let mut devices = detached;
        for device in record.read() {
            if !devices.contains(&device) {
                devices.push(device);
            }
        }
        Self { devices, last_user: None }
    }

    pub(super) fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// Returns a process that uses a previous mount, or None if there is no such process. Drops mounts that no longer
    /// exist.
    pub(super) fn find_user(&mut self) -> Option<User> {
        self.devices.retain(Device::exists);
        if self.devices.is_empty() {
            return None;
        }
        let is_last_user = |user: &User| match user {
            User::Process { descriptor, .. } => self.is_of_previous_mount(descriptor),
            User::Unknown(_) => false,
        };
        if !self.last_user.as_ref().is_some_and(is_last_user) {
            self.last_user = self.search();
        }
        self.last_user.clone()
    }

    /// Searches the descriptors of all processes.
    fn search(&self) -> Option<User> {
        let unknown = || self.devices.first().cloned().map(User::Unknown);
        let Ok(processes) = fs::read_dir("/proc") else { return unknown() };
        let mut is_complete = sees_all_processes();
        for process in processes.flatten() {
            let Some(pid) = process.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
            // A process that has exited meanwhile has no status.
            let Ok(status) = fs::read_to_string(process.path().join("status")) else { continue };
            if !may_use_mount(&status) {
                continue;
            }
            let descriptors = match fs::read_dir(process.path().join("fd")) {
                Ok(descriptors) => descriptors,
                Err(error) => {
                    is_complete &= error.kind() != io::ErrorKind::PermissionDenied;
                    continue;
                }
            };
            let found = descriptors.flatten().map(|entry| entry.path()).find(|path| self.is_of_previous_mount(path));
            if let Some(descriptor) = found {
                let name = status.lines().next().and_then(|line| line.strip_prefix("Name:\t")).unwrap_or_default();
                return Some(User::Process { pid, name: name.to_owned(), descriptor });
            }
        }
        if is_complete { None } else { unknown() }
    }

    /// Returns whether a descriptor in /proc is a regular file of a previous mount. Sends no request to a file system.
    fn is_of_previous_mount(&self, descriptor: &Path) -> bool {
        const REGULAR: u16 = libc::S_IFREG as u16;
        const TYPE: u16 = libc::S_IFMT as u16;
        statx(CWD, descriptor, AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE).is_ok_and(|file| {
            let number = (file.stx_dev_major, file.stx_dev_minor);
            file.stx_mode & TYPE == REGULAR && self.devices.iter().any(|device| device.number() == number)
        })
    }
}

/// Returns whether `/proc` shows all processes. The descriptors of a process may still be hidden.
pub fn sees_all_processes() -> bool {
    fs::read_link("/proc/self/ns/pid").is_ok_and(|link| link == Path::new(FIRST_PID_NAMESPACE))
}

/// Returns whether the kernel permits a process to use the mount, and the process may be a server. Only root's mount is
/// open to other users.
fn may_use_mount(status: &str) -> bool {
    let own = geteuid().as_raw();
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    let effective = users.and_then(|users| users.split_whitespace().nth(1)?.parse::<u32>().ok());
    effective.is_none_or(|user| if own == 0 { user != 0 } else { user == own })
}
