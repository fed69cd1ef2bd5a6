//! A FUSE file system that is mounted nowhere yet. The daemon serves the file system before it attaches the mount to the
//! mount point, so attaching is one step.

use super::stale::{detach_stale, is_stale};
use super::{MountError, MountOptions};
use crate::instance::{Device, sees_all_processes};
use rustix::fs::CWD;
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, fsconfig_create, fsconfig_set_flag, fsconfig_set_string,
    fsmount, fsopen, move_mount,
};
use rustix::process::{getgid, getuid};
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

/// The file type of the root directory. The daemon supplies the permissions when the kernel requests attributes.
const ROOT_MODE: &str = "40000";

/// Dropping a mount that was not attached unmounts the file system.
pub struct DetachedMount(OwnedFd);

impl DetachedMount {
    /// Creates a file system. Returns the mount, and the open `/dev/fuse` on which the kernel sends the requests; None
    /// if this process may not mount, or Linux is older than 5.2.
    pub fn new(options: &MountOptions) -> io::Result<Option<(Self, OwnedFd)>> {
        let context = match fsopen("fuse", FsOpenFlags::FSOPEN_CLOEXEC) {
            Err(Errno::PERM | Errno::NOSYS) => return Ok(None),
            other => other?,
        };
        let device = OwnedFd::from(OpenOptions::new().read(true).write(true).open("/dev/fuse")?);
        let values = [
            ("source", super::source(&options.name)),
            ("subtype", super::SUBTYPE.to_owned()),
            ("fd", device.as_raw_fd().to_string()),
            ("rootmode", ROOT_MODE.to_owned()),
            ("user_id", getuid().as_raw().to_string()),
            ("group_id", getgid().as_raw().to_string()),
        ];
        for (key, value) in values {
            fsconfig_set_string(&context, key, value)?;
        }
        fsconfig_set_flag(&context, "default_permissions")?;
        if options.allow_other {
            fsconfig_set_flag(&context, "allow_other")?;
        }
        fsconfig_create(&context)?;
        let attributes =
            MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOATIME;
        let mount = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
        Ok(Some((Self(mount), device)))
    }

    pub fn device(&self) -> io::Result<Device> {
        Device::mounted_as(&self.0)
    }

    /// Attaches the mount to a mount point. If a stale mount is there, every lookup reaches the stale mount or this one.
    pub fn attach(&self, path: &Path) -> Result<(), MountError> {
        if !is_stale(path) {
            return self.move_to(path, MoveMountFlags::empty()).map_err(|error| failed(path, error));
        }
        match self.move_to(path, MoveMountFlags::MOVE_MOUNT_BENEATH) {
            Ok(()) => detach_stale(path),
            Err(Errno::INVAL) => self.attach_above(path, sees_all_processes()),
            Err(error) => Err(failed(path, error)),
        }
    }

    /// Attaches the mount above a stale mount, because Linux before 6.5 cannot attach a mount beneath another. If
    /// `keeps_stale`, the stale mount stays below until the cell stops. Otherwise a lookup between two system calls reaches
    /// the directory below: a daemon that does not see all processes must wait until the stale mount is gone.
    fn attach_above(&self, path: &Path, keeps_stale: bool) -> Result<(), MountError> {
        if !keeps_stale {
            detach_stale(path)?;
        }
        self.move_to(path, MoveMountFlags::empty()).map_err(|error| failed(path, error))
    }

    fn move_to(&self, path: &Path, flags: MoveMountFlags) -> rustix::io::Result<()> {
        // As mount(2) does, follow symbolic links.
        let flags = flags | MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_SYMLINKS;
        move_mount(&self.0, "", CWD, path, flags)
    }
}

fn failed(path: &Path, error: Errno) -> MountError {
    MountError::new("mount", path, super::explain(path, &error.into()))
}

#[cfg(test)]
mod tests {
    use super::super::stale::{reduce_stale, release_stale};
    use super::*;
    use crate::instance::mounts_at;

    /// Creates a mount whose daemon is dead. Returns None without the permission to mount.
    fn dead_mount() -> Option<DetachedMount> {
        let options =
            MountOptions { name: "test".into(), allow_other: true, use_ring: false, keep_awake_program: None };
        DetachedMount::new(&options).unwrap().map(|(mount, _)| mount)
    }

    /// The devices of the mounts at a path, topmost first.
    fn devices(path: &Path) -> Vec<Device> {
        mounts_at(path).into_iter().map(|mount| mount.device).collect()
    }

    #[test]
    fn a_mount_takes_the_place_of_a_stale_mount() {
        let Some(stale) = dead_mount() else { return };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let own_files = Device::mounted_at(path);
        assert_eq!((own_files, devices(path)), (None, vec![]));
        stale.attach(path).unwrap();
        let stale = stale.device().unwrap();
        assert_eq!((Device::mounted_at(path), devices(path)), (Some(stale.clone()), vec![stale.clone()]));

        let new = dead_mount().unwrap();
        let device = new.device().unwrap();
        assert_ne!(device, stale);
        new.attach_above(path, true).unwrap();
        assert_eq!(Device::mounted_at(path).as_ref(), Some(&device));
        assert_eq!(devices(path), [device.clone(), stale.clone()]);
        drop(new);
        assert_eq!(reduce_stale(path).unwrap(), [device, stale.clone()]);
        assert_eq!(devices(path), [stale], "the lowest stale mount remains");

        for attach in [DetachedMount::attach, |new: &DetachedMount, path: &Path| new.attach_above(path, false)] {
            let new = dead_mount().unwrap();
            attach(&new, path).unwrap();
            assert_eq!(devices(path), [new.device().unwrap()]);
        }
        release_stale(path).unwrap();
        assert_eq!(devices(path), []);
    }
}
