//! Attributes of inodes: reading them (stat), changing them (chmod, chown, utimes, truncate).

use super::{Ino, Kind, Node, Volume, now};
use crate::error::{Error, ErrorKind, Result};
use crate::meta::Inode;
use std::sync::atomic::Ordering;

const SET_USER_ID: u16 = 0o4000;
const SET_GROUP_ID: u16 = 0o2000;
const GROUP_EXECUTE: u16 = 0o010;

/// The attributes that stat returns. Times are nanoseconds since 1970; sizes are bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attr {
    pub ino: Ino,
    pub kind: Kind,
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    pub nlink: u32,
    pub device: u32,
    pub size: u64,
    /// Bytes that the file occupies on disk: its size, holes included, minus the savings of compression.
    pub stored_bytes: u64,
    pub atime: i64,
    pub mtime: i64,
    pub ctime: i64,
    pub birth: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetTime {
    Now,
    To(i64),
}

impl SetTime {
    fn at(self, now: i64) -> i64 {
        match self {
            SetTime::Now => now,
            SetTime::To(time) => time,
        }
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub struct SetAttr {
    pub mode: Option<u16>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub atime: Option<SetTime>,
    pub mtime: Option<SetTime>,
}

impl Volume {
    pub fn getattr(&self, ino: Ino) -> Result<Attr> {
        let unmeasured = {
            let namespace = self.namespace.read();
            let node = namespace.node(ino)?;
            match &node.file {
                Some(file) if !file.is_measured() => file.clone(),
                _ => return attr_of(ino, node),
            }
        };
        // Without the namespace's lock: measuring may read from the disks.
        unmeasured.size()?;
        attr_of(ino, self.namespace.read().node(ino)?)
    }

    /// Returns the file's size in bytes. Does no I/O after the first call.
    pub fn size(&self, ino: Ino) -> Result<u64> {
        self.file(ino)?.size()
    }

    pub fn setattr(&self, ino: Ino, set: &SetAttr) -> Result<Attr> {
        if let Some(size) = set.size {
            self.truncate(ino, size)?;
        }
        let mut namespace = self.namespace.write();
        let owner_changes = set.uid.is_some() || set.gid.is_some();
        let record_changes = owner_changes || set.mode.is_some() || set.atime.is_some() || set.mtime.is_some();
        if !record_changes {
            return attr_of(ino, namespace.node(ino)?);
        }
        let time = now();
        let node = namespace.node_mut(ino)?;
        let inode = &mut node.inode;
        if owner_changes {
            inode.clear_privileges();
        }
        inode.mode = set.mode.map_or(inode.mode, |mode| mode & 0o7777);
        inode.uid = set.uid.unwrap_or(inode.uid);
        inode.gid = set.gid.unwrap_or(inode.gid);
        if let Some(atime) = set.atime {
            inode.atime = atime.at(time);
        }
        if let Some(mtime) = set.mtime {
            inode.mtime = mtime.at(time);
            if let Some(file) = &node.file {
                file.mtime.store(inode.mtime, Ordering::Relaxed);
            }
        }
        node.touch(time);
        attr_of(ino, node)
    }

    /// Clears set-user-id and set-group-id, as a write by an unprivileged user requires. Does nothing for a directory.
    pub fn clear_privileges(&self, ino: Ino) -> Result<()> {
        if self.namespace.read().node(ino)?.inode.has_privileges() {
            let mut namespace = self.namespace.write();
            let node = namespace.node_mut(ino)?;
            node.inode.clear_privileges();
            node.touch(now());
        }
        Ok(())
    }

    pub fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        let namespace = self.namespace.read();
        let inode = &namespace.node(ino)?.inode;
        match inode.kind {
            Kind::Symlink => Ok(inode.target.clone()),
            _ => Err(Error::new(ErrorKind::Invalid, format!("inode {ino} is not a symbolic link"))),
        }
    }
}

impl Inode {
    /// Returns the mode without set-user-id and set-group-id. Directories keep both bits.
    fn mode_without_privileges(&self) -> u16 {
        // Set-group-id without group execute means mandatory locking, not a privilege.
        match (self.kind, self.mode & GROUP_EXECUTE) {
            (Kind::Directory, _) => self.mode,
            (_, 0) => self.mode & !SET_USER_ID,
            _ => self.mode & !(SET_USER_ID | SET_GROUP_ID),
        }
    }

    fn has_privileges(&self) -> bool {
        self.mode_without_privileges() != self.mode
    }

    fn clear_privileges(&mut self) {
        self.mode = self.mode_without_privileges();
    }
}

impl Node {
    /// Sets ctime.
    pub(super) fn touch(&mut self, time: i64) {
        self.inode.ctime = time;
        if let Some(file) = &self.file {
            file.ctime.store(time, Ordering::Relaxed);
        }
    }
}

pub(super) fn attr_of(ino: Ino, node: &Node) -> Result<Attr> {
    let inode = &node.inode;
    let target_bytes = inode.target.len() as u64;
    let (size, stored_bytes) = match &node.file {
        Some(file) => (file.size()?, file.stored_bytes()?),
        None => (target_bytes, target_bytes),
    };
    let (mtime, ctime) = match &node.file {
        Some(file) => (file.mtime.load(Ordering::Relaxed), file.ctime.load(Ordering::Relaxed)),
        None => (inode.mtime, inode.ctime),
    };
    Ok(Attr {
        ino,
        kind: inode.kind,
        mode: inode.mode,
        uid: inode.uid,
        gid: inode.gid,
        nlink: inode.nlink,
        device: inode.device,
        size,
        stored_bytes,
        atime: inode.atime,
        mtime,
        ctime,
        birth: inode.birth,
    })
}
