//! Names: looking up, creating, linking, removing, and listing directories; references to inodes.
//!
//! Every call that returns an [`Attr`] for a name adds one reference to the inode, which [`Volume::forget`] releases.
//! An inode without names exists until its last reference is released.

use super::attributes::attr_of;
use super::{Attr, Ino, Kind, Namespace, Node, ROOT_INO, Volume, now};
use crate::error::{Error, ErrorKind, Result};
use crate::file::FileData;
use crate::meta::Inode;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const NAME_MAX: usize = 255;
const LINKS_MAX: u32 = 65_000;
const SET_GROUP_ID: u16 = 0o2000;

/// Attributes of an inode to create.
#[derive(Debug, Clone)]
pub struct NewNode<'a> {
    pub kind: Kind,
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    pub device: u32,
    /// The target of a symbolic link; empty for other kinds.
    pub target: &'a [u8],
}

/// An entry of a directory. A listing resumes after `cookie`.
#[derive(Debug, Clone, Copy)]
pub struct DirEntry<'a> {
    pub cookie: u64,
    pub name: &'a [u8],
    pub ino: Ino,
    pub kind: Kind,
}

/// Formats a name for messages.
pub(super) fn quoted(name: &[u8]) -> String {
    format!("{:?}", String::from_utf8_lossy(name))
}

pub(super) fn check_name(name: &[u8]) -> Result<()> {
    match name {
        [] | b"." | b".." => Err(Error::new(ErrorKind::Invalid, format!("{} is not a valid name", quoted(name)))),
        _ if name.len() > NAME_MAX => Err(too_long(name)),
        _ => Ok(()),
    }
}

fn too_long(name: &[u8]) -> Error {
    Error::new(ErrorKind::NameTooLong, format!("name {} is too long", quoted(name)))
}

/// Fails if the name is invalid or the directory already has an entry with this name.
fn check_new_entry(namespace: &Namespace, parent: Ino, name: &[u8]) -> Result<()> {
    check_name(name)?;
    match namespace.directory(parent)?.get(name) {
        Some(_) => Err(Error::new(ErrorKind::Exists, format!("{} already exists", quoted(name)))),
        None => Ok(()),
    }
}

impl Volume {
    pub fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr> {
        let unmeasured = {
            let namespace = self.namespace.read();
            let file = &namespace.node(find(&namespace, parent, name)?)?.file;
            file.as_ref().filter(|file| !file.is_measured()).cloned()
        };
        if let Some(file) = unmeasured {
            // Without the namespace's lock: measuring may read from the disks.
            file.size()?;
        }
        let namespace = self.namespace.read();
        let ino = find(&namespace, parent, name)?;
        let node = namespace.node(ino)?;
        let attr = attr_of(ino, node)?;
        node.lookups.fetch_add(1, Ordering::Relaxed);
        Ok(attr)
    }

    /// Creates a file, directory, symbolic link or device.
    pub fn create(&self, parent: Ino, name: &[u8], new: &NewNode<'_>) -> Result<Attr> {
        let mut namespace = self.namespace.write();
        check_new_entry(&namespace, parent, name)?;
        let directory = namespace.node(parent)?;
        if directory.names.is_empty() && parent != ROOT_INO {
            return Err(Error::new(ErrorKind::NotFound, format!("directory {parent} was removed")));
        }
        let is_directory = new.kind == Kind::Directory;
        if is_directory && directory.inode.nlink >= LINKS_MAX {
            return Err(Error::new(ErrorKind::TooManyLinks, format!("directory {parent} has too many subdirectories")));
        }
        let (mut mode, mut gid) = (new.mode & 0o7777, new.gid);
        if directory.inode.mode & SET_GROUP_ID != 0 {
            gid = directory.inode.gid;
            mode |= if is_directory { SET_GROUP_ID } else { 0 };
        }
        let time = now();
        let ino = namespace.take_ino();
        let layout = (new.kind == Kind::File).then(|| {
            let in_folder = |folder: Vec<u8>| match folder.is_empty() {
                true => name.to_vec(),
                false => [&folder[..], name].join(&b'/'),
            };
            let path = || namespace.path_of(parent).map(in_folder);
            let copies = self.copies_for(path);
            match self.passes_through_at(path) {
                true => self.group.new_unstriped_layout(ino, copies),
                false => self.group.new_layout(ino, copies),
            }
        });
        let file =
            layout.as_ref().map(|layout| Arc::new(FileData::new(ino, layout.clone(), self.group.stripes(), time)));
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
        note_entry_change(&mut namespace, parent, time, is_directory as i32)?;
        let node = namespace.node(ino)?;
        node.lookups.fetch_add(1, Ordering::Relaxed);
        attr_of(ino, node)
    }

    pub fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attr> {
        let mut namespace = self.namespace.write();
        check_new_entry(&namespace, parent, name)?;
        let node = namespace.node(ino)?;
        if node.inode.kind == Kind::Directory {
            return Err(Error::new(ErrorKind::NotPermitted, "cannot create a hard link to a directory"));
        }
        if node.names.is_empty() {
            return Err(Error::new(ErrorKind::NotFound, format!("inode {ino} was removed")));
        }
        if node.inode.nlink >= LINKS_MAX {
            return Err(Error::new(ErrorKind::TooManyLinks, format!("inode {ino} has too many links")));
        }
        let time = now();
        namespace.attach(parent, name, ino)?;
        let node = namespace.node_mut(ino)?;
        node.inode.nlink += 1;
        node.touch(time);
        note_entry_change(&mut namespace, parent, time, 0)?;
        let node = namespace.node(ino)?;
        node.lookups.fetch_add(1, Ordering::Relaxed);
        attr_of(ino, node)
    }

    pub fn unlink(&self, parent: Ino, name: &[u8]) -> Result<()> {
        let mut namespace = self.namespace.write();
        let ino = find(&namespace, parent, name)?;
        if namespace.node(ino)?.inode.kind == Kind::Directory {
            return Err(Error::new(ErrorKind::IsDirectory, format!("{} is a directory", quoted(name))));
        }
        let time = now();
        self.drop_name(&mut namespace, parent, name, ino, time)?;
        note_entry_change(&mut namespace, parent, time, 0)
    }

    pub fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<()> {
        let mut namespace = self.namespace.write();
        let ino = find(&namespace, parent, name)?;
        if !namespace.directory(ino)?.is_empty() {
            return Err(Error::new(ErrorKind::NotEmpty, format!("{} is not empty", quoted(name))));
        }
        let time = now();
        self.drop_name(&mut namespace, parent, name, ino, time)?;
        note_entry_change(&mut namespace, parent, time, -1)
    }

    /// Removes one name of an inode; also removes the inode if it has no other name and no reference.
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
        match (node.names.is_empty(), node.lookups.load(Ordering::Relaxed)) {
            (false, _) => {}
            (true, 0) => self.remove_inode(namespace, ino),
            (true, _) => _ = self.unlinked_in_use.fetch_add(1, Ordering::Relaxed),
        }
        Ok(())
    }

    /// Returns whether an inode has references.
    pub fn is_referenced(&self, ino: Ino) -> bool {
        self.namespace.read().node(ino).is_ok_and(|node| node.lookups.load(Ordering::Relaxed) > 0)
    }

    /// Releases references to an inode.
    pub fn forget(&self, ino: Ino, references: u64) {
        let last = {
            let namespace = self.namespace.read();
            let Ok(node) = namespace.node(ino) else { return };
            let before = node.lookups.fetch_sub(references, Ordering::Relaxed);
            debug_assert!(before >= references, "inode {ino}: {references} references released, only {before} exist");
            before <= references && node.names.is_empty() && ino != ROOT_INO
        };
        if last {
            let mut namespace = self.namespace.write();
            let unused = |node: &Node| node.names.is_empty() && node.lookups.load(Ordering::Relaxed) == 0;
            if namespace.node(ino).is_ok_and(unused) {
                self.unlinked_in_use.fetch_sub(1, Ordering::Relaxed);
                self.remove_inode(&mut namespace, ino);
            }
        }
    }

    /// Removes an inode without names and references. Its backing files are removed after the next transaction.
    fn remove_inode(&self, namespace: &mut Namespace, ino: Ino) {
        let Some(file) = namespace.remove_node(ino).and_then(|node| node.file) else { return };
        self.removed_files.lock().push((namespace.sequence(), file));
    }

    /// Calls `visit` for each entry of a directory after `cookie` (0: from the start) until it returns false.
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

    /// Returns the inode of an entry without adding a reference.
    pub fn entry(&self, parent: Ino, name: &[u8]) -> Option<Ino> {
        find(&self.namespace.read(), parent, name).ok()
    }

    /// Returns the parent of a directory; the root is its own parent.
    pub fn parent_of(&self, ino: Ino) -> Result<Ino> {
        let namespace = self.namespace.read();
        Ok(namespace.node(ino)?.names.first().map_or(ROOT_INO, |(parent, _)| *parent))
    }

    /// Returns the inode at a path relative to the root, without adding a reference. Does not follow symbolic links.
    pub fn resolve(&self, path: &str) -> Option<Ino> {
        let namespace = self.namespace.read();
        let names = path.split('/').filter(|name| !name.is_empty() && *name != ".");
        names.into_iter().try_fold(ROOT_INO, |at, name| find(&namespace, at, name.as_bytes()).ok())
    }

    /// Returns an inode's first path relative to the root, without a leading slash; None if the inode has no name.
    pub fn path_of(&self, ino: Ino) -> Option<String> {
        let path = self.namespace.read().path_of(ino)?;
        Some(String::from_utf8_lossy(&path).into_owned())
    }
}

pub(super) fn find(namespace: &Namespace, parent: Ino, name: &[u8]) -> Result<Ino> {
    namespace.directory(parent)?.get(name).ok_or_else(|| match name.len() > NAME_MAX {
        true => too_long(name),
        false => Error::new(ErrorKind::NotFound, format!("{} does not exist in directory {parent}", quoted(name))),
    })
}

/// Updates the times and the link count of a directory after a change of its entries. `subdirectories` is the number of
/// added subdirectories, negative for removed ones.
pub(super) fn note_entry_change(
    namespace: &mut Namespace,
    directory: Ino,
    time: i64,
    subdirectories: i32,
) -> Result<()> {
    let node = namespace.node_mut(directory)?;
    node.inode.mtime = time;
    node.inode.ctime = time;
    node.inode.nlink = node.inode.nlink.saturating_add_signed(subdirectories);
    Ok(())
}
