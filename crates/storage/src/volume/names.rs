//! Names: looking up, creating, linking and removing; listing directories; who still uses an inode.
//!
//! Every call that returns an [`Attr`] for a name takes one reference to the inode, which [`Volume::forget`] gives
//! back: an inode without names lives until its last reference is gone.

use super::attributes::attr_of;
use super::{Attr, Ino, Kind, ROOT_INO, Volume, now};
use crate::error::{Error, ErrorKind, Result};
use crate::file::FileData;
use crate::meta::{Inode, Namespace};
use std::sync::Arc;
use std::sync::atomic::Ordering;

const NAME_MAX: usize = 255;
const LINKS_MAX: u32 = 65_000;
const SET_GROUP_ID: u16 = 0o2000;

/// What is to be created.
#[derive(Debug, Clone)]
pub struct NewNode<'a> {
    pub kind: Kind,
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    pub device: u32,
    /// Of symbolic links.
    pub target: &'a [u8],
}

/// An entry of a directory; a listing goes on after `cookie`.
#[derive(Debug, Clone, Copy)]
pub struct DirEntry<'a> {
    pub cookie: u64,
    pub name: &'a [u8],
    pub ino: Ino,
    pub kind: Kind,
}

pub(super) fn shown(name: &[u8]) -> String {
    format!("{:?}", String::from_utf8_lossy(name))
}

pub(super) fn check_name(name: &[u8]) -> Result<()> {
    match name {
        [] | b"." | b".." => Err(Error::new(ErrorKind::Invalid, format!("{} is no name", shown(name)))),
        _ if name.len() > NAME_MAX => Err(Error::new(ErrorKind::NameTooLong, format!("{} is too long", shown(name)))),
        _ => Ok(()),
    }
}

impl Volume {
    pub fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr> {
        let namespace = self.namespace.read();
        let ino = find(&namespace, parent, name)?;
        let node = namespace.node(ino)?;
        let attr = attr_of(ino, node)?;
        node.lookups.fetch_add(1, Ordering::Relaxed);
        Ok(attr)
    }

    /// Creates a file, directory, symbolic link or device.
    pub fn create(&self, parent: Ino, name: &[u8], new: &NewNode<'_>) -> Result<Attr> {
        check_name(name)?;
        let mut namespace = self.namespace.write();
        if namespace.directory(parent)?.get(name).is_some() {
            return Err(Error::new(ErrorKind::Exists, format!("{} exists", shown(name))));
        }
        let directory = namespace.node(parent)?;
        if directory.names.is_empty() && parent != ROOT_INO {
            return Err(Error::new(ErrorKind::NotFound, format!("directory {parent} was removed")));
        }
        let is_directory = new.kind == Kind::Directory;
        if is_directory && directory.inode.nlink >= LINKS_MAX {
            return Err(Error::new(ErrorKind::TooManyLinks, format!("directory {parent} has too many directories")));
        }
        let (mut mode, mut gid) = (new.mode & 0o7777, new.gid);
        if directory.inode.mode & SET_GROUP_ID != 0 {
            gid = directory.inode.gid;
            mode |= if is_directory { SET_GROUP_ID } else { 0 };
        }
        let time = now();
        let ino = namespace.take_ino();
        let layout = (new.kind == Kind::File).then(|| self.group.new_layout(ino));
        let file = layout
            .as_ref()
            .map(|layout| Arc::new(FileData::new(ino, layout.clone(), self.group.disks(), time, time, true)));
        let inode = Inode {
            kind: new.kind,
            mode,
            uid: new.uid,
            gid,
            nlink: if is_directory { 2 } else { 1 },
            device: new.device,
            atime: time,
            mtime: time,
            ctime: time,
            birth: time,
            layout,
            target: new.target.to_vec(),
        };
        namespace.insert_node(ino, inode, file);
        namespace.attach(parent, name, ino)?;
        stamp(&mut namespace, parent, time, is_directory as i32)?;
        let node = namespace.node(ino)?;
        node.lookups.fetch_add(1, Ordering::Relaxed);
        attr_of(ino, node)
    }

    pub fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attr> {
        check_name(name)?;
        let mut namespace = self.namespace.write();
        if namespace.directory(parent)?.get(name).is_some() {
            return Err(Error::new(ErrorKind::Exists, format!("{} exists", shown(name))));
        }
        let node = namespace.node(ino)?;
        if node.inode.kind == Kind::Directory {
            return Err(Error::new(ErrorKind::NotPermitted, "a directory has one name"));
        }
        if node.names.is_empty() {
            return Err(Error::new(ErrorKind::NotFound, format!("inode {ino} was removed")));
        }
        if node.inode.nlink >= LINKS_MAX {
            return Err(Error::new(ErrorKind::TooManyLinks, format!("inode {ino} has too many names")));
        }
        let time = now();
        namespace.attach(parent, name, ino)?;
        let node = namespace.node_mut(ino)?;
        node.inode.nlink += 1;
        node.touch(time);
        stamp(&mut namespace, parent, time, 0)?;
        let node = namespace.node(ino)?;
        node.lookups.fetch_add(1, Ordering::Relaxed);
        attr_of(ino, node)
    }

    pub fn unlink(&self, parent: Ino, name: &[u8]) -> Result<()> {
        let mut namespace = self.namespace.write();
        let ino = find(&namespace, parent, name)?;
        if namespace.node(ino)?.inode.kind == Kind::Directory {
            return Err(Error::new(ErrorKind::IsDirectory, format!("{} is a directory", shown(name))));
        }
        let time = now();
        self.drop_name(&mut namespace, parent, name, ino, time)?;
        stamp(&mut namespace, parent, time, 0)
    }

    pub fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<()> {
        let mut namespace = self.namespace.write();
        let ino = find(&namespace, parent, name)?;
        if !namespace.directory(ino)?.is_empty() {
            return Err(Error::new(ErrorKind::NotEmpty, format!("{} is not empty", shown(name))));
        }
        let time = now();
        self.drop_name(&mut namespace, parent, name, ino, time)?;
        stamp(&mut namespace, parent, time, -1)
    }

    /// Takes one name from an inode, and the inode itself when nothing is left of it.
    pub(super) fn drop_name(
        &self,
        namespace: &mut Namespace,
        parent: Ino,
        name: &[u8],
        ino: Ino,
        time: i64,
    ) -> Result<()> {
        namespace.detach(parent, name, ino)?;
        let node = namespace.node_mut(ino)?;
        node.inode.nlink = if node.inode.kind == Kind::Directory { 0 } else { node.inode.nlink - 1 };
        node.touch(time);
        if node.names.is_empty() && node.lookups.load(Ordering::Relaxed) == 0 {
            self.bury(namespace, ino);
        }
        Ok(())
    }

    /// Gives back references to an inode.
    pub fn forget(&self, ino: Ino, references: u64) {
        let last = {
            let namespace = self.namespace.read();
            let Ok(node) = namespace.node(ino) else { return };
            let before = node.lookups.fetch_sub(references, Ordering::Relaxed);
            debug_assert!(before >= references, "inode {ino}: {references} of {before} references given back");
            before <= references && node.names.is_empty() && ino != ROOT_INO
        };
        if last {
            let mut namespace = self.namespace.write();
            let unused = |node: &crate::meta::Node| node.names.is_empty() && node.lookups.load(Ordering::Relaxed) == 0;
            if namespace.node(ino).is_ok_and(unused) {
                self.bury(&mut namespace, ino);
            }
        }
    }

    /// Ends an inode that has no name and no user; its backing files go after the next transaction.
    fn bury(&self, namespace: &mut Namespace, ino: Ino) {
        let Some(file) = namespace.remove_node(ino).and_then(|node| node.file) else { return };
        self.doomed.lock().push((namespace.sequence(), file));
    }

    /// Lists a directory from after `cookie` (0: from its start) until `visit` returns false.
    pub fn readdir(&self, ino: Ino, cookie: u64, mut visit: impl FnMut(DirEntry<'_>) -> bool) -> Result<()> {
        let namespace = self.namespace.read();
        for (cookie, name, ino) in namespace.directory(ino)?.after(cookie) {
            let kind = namespace.node(ino)?.inode.kind;
            if !visit(DirEntry { cookie, name, ino, kind }) {
                break;
            }
        }
        Ok(())
    }

    /// The inode that a directory's entry names. Takes no reference.
    pub fn entry(&self, parent: Ino, name: &[u8]) -> Option<Ino> {
        find(&self.namespace.read(), parent, name).ok()
    }

    /// The directory that a directory lies in; the root lies in itself.
    pub fn parent_of(&self, ino: Ino) -> Result<Ino> {
        let namespace = self.namespace.read();
        Ok(namespace.node(ino)?.names.first().map_or(ROOT_INO, |(parent, _)| *parent))
    }

    /// The inode at a path relative to the root; symbolic links are not followed. Takes no reference.
    pub fn resolve(&self, path: &str) -> Option<Ino> {
        let namespace = self.namespace.read();
        let names = path.split('/').filter(|name| !name.is_empty() && *name != ".");
        names.into_iter().try_fold(ROOT_INO, |at, name| find(&namespace, at, name.as_bytes()).ok())
    }

    /// An inode's first path relative to the root, without a leading slash.
    pub fn path_of(&self, ino: Ino) -> Option<String> {
        let path = self.namespace.read().path_of(ino)?;
        Some(String::from_utf8_lossy(&path).into_owned())
    }
}

pub(super) fn find(namespace: &Namespace, parent: Ino, name: &[u8]) -> Result<Ino> {
    let not_found = || Error::new(ErrorKind::NotFound, format!("no entry {} in directory {parent}", shown(name)));
    namespace.directory(parent)?.get(name).ok_or_else(not_found)
}

/// Updates a directory whose entries changed.
pub(super) fn stamp(namespace: &mut Namespace, directory: Ino, time: i64, subdirectories: i32) -> Result<()> {
    let node = namespace.node_mut(directory)?;
    node.inode.mtime = time;
    node.inode.ctime = time;
    node.inode.nlink = node.inode.nlink.saturating_add_signed(subdirectories);
    Ok(())
}
