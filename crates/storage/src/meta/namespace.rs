//! The namespace in memory: directories, names and inodes, and which of them the store does not know yet.
//!
//! Invariants: a directory's entries name live nodes; a node's `names` and the entries agree; `nlink` counts names (for
//! a directory: its own, its dot and its children's dot-dots); every change marks what it touched dirty, under a
//! sequence number that grows. Data of files are not here.

use super::extent::ExtentRecord;
use super::record::{Inode, Kind};
use super::store::Contents;
use super::{FIRST_INO, ROOT_INO};
use crate::error::{Error, ErrorKind, Result};
use crate::file::FileData;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

pub type Name = Box<[u8]>;
/// Inode and allocation unit.
pub type AuKey = (u64, u64);
/// Number of a change to the namespace.
pub type Sequence = u64;

#[derive(Debug)]
pub struct Node {
    pub inode: Inode,
    /// The directory and name of every link.
    pub names: Vec<(u64, Name)>,
    pub directory: Option<Directory>,
    pub file: Option<Arc<FileData>>,
    /// References that the kernel, or another user of the volume, holds.
    pub lookups: AtomicU64,
    /// The last change that a sync of this inode must make durable.
    pub changed: Sequence,
}

/// Entries have a cookie that only grows, so that a listing goes on where it stopped whatever happened in between.
#[derive(Debug, Default)]
pub struct Directory {
    by_name: HashMap<Name, (u64, u64)>,
    by_cookie: BTreeMap<u64, Name>,
    next_cookie: u64,
}

impl Directory {
    pub fn get(&self, name: &[u8]) -> Option<u64> {
        self.by_name.get(name).map(|(ino, _)| *ino)
    }

    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Entries after `cookie`: their own cookie, name and inode.
    pub fn after(&self, cookie: u64) -> impl Iterator<Item = (u64, &[u8], u64)> {
        self.by_cookie.range(cookie + 1..).map(|(cookie, name)| (*cookie, &name[..], self.by_name[name].0))
    }

    fn insert(&mut self, name: Name, ino: u64) {
        if let Some((known, _)) = self.by_name.get_mut(&name) {
            *known = ino;
            return;
        }
        self.next_cookie += 1;
        self.by_cookie.insert(self.next_cookie, name.clone());
        self.by_name.insert(name, (ino, self.next_cookie));
    }

    fn remove(&mut self, name: &[u8]) {
        if let Some((_, cookie)) = self.by_name.remove(name) {
            self.by_cookie.remove(&cookie);
        }
    }
}

/// Changes for the store: None stands for a removal.
#[derive(Debug, Default)]
pub struct Batch {
    pub inodes: Vec<(u64, Option<Vec<u8>>)>,
    pub dentries: Vec<((u64, Name), Option<u64>)>,
    /// By inode and allocation unit. The extents of a removed inode go with it.
    pub extents: Vec<(AuKey, Option<Vec<u8>>)>,
    pub next_ino: u64,
    pub sequence: Sequence,
}

impl Batch {
    pub fn everything(contents: &Contents) -> Self {
        let dentry = |(parent, name, ino): &(u64, Vec<u8>, u64)| ((*parent, name.clone().into()), Some(*ino));
        Self {
            inodes: contents.inodes.iter().map(|(ino, inode)| (*ino, Some(inode.encode()))).collect(),
            dentries: contents.dentries.iter().map(dentry).collect(),
            extents: contents.extents.iter().map(|(key, extent)| (*key, Some(extent.encode()))).collect(),
            next_ino: contents.next_ino,
            sequence: 0,
        }
    }

    /// The first transaction of a new group: an empty root directory.
    pub fn initial(root: Inode) -> Self {
        Self { inodes: vec![(ROOT_INO, Some(root.encode()))], next_ino: FIRST_INO, ..Self::default() }
    }
}

#[derive(Debug)]
pub struct Namespace {
    nodes: HashMap<u64, Node>,
    next_ino: u64,
    sequence: Sequence,
    dirty_inodes: HashSet<u64>,
    dirty_dentries: HashSet<(u64, Name)>,
    dirty_extents: HashSet<AuKey>,
}

impl Namespace {
    /// Builds the namespace from what the store holds; `open_file` makes a file's data.
    pub fn new(contents: Contents, open_file: impl Fn(u64, &Inode) -> Arc<FileData>) -> Result<Self> {
        let mut nodes = HashMap::with_capacity(contents.inodes.len());
        for (ino, inode) in contents.inodes {
            let file = (inode.kind == Kind::File).then(|| open_file(ino, &inode));
            nodes.insert(ino, Node::new(inode, file));
        }
        let corrupt = |message: String| Error::new(ErrorKind::Corrupt, format!("metadata: {message}"));
        for (parent, name, ino) in contents.dentries {
            let name: Name = name.into();
            let shown = String::from_utf8_lossy(&name).into_owned();
            let node = nodes
                .get_mut(&ino)
                .ok_or_else(|| corrupt(format!("entry {shown:?} of {parent} names a missing inode {ino}")))?;
            node.names.push((parent, name.clone()));
            nodes
                .get_mut(&parent)
                .and_then(|node| node.directory.as_mut())
                .ok_or_else(|| corrupt(format!("entry {shown:?} lies in {parent}, which is no directory")))?
                .insert(name, ino);
        }
        if nodes.get(&ROOT_INO).is_none_or(|root| root.directory.is_none()) {
            return Err(corrupt("there is no root directory".into()));
        }
        let next_ino = contents.next_ino;
        let (dirty_inodes, dirty_dentries, dirty_extents) = (HashSet::new(), HashSet::new(), HashSet::new());
        Ok(Self { nodes, next_ino, sequence: 0, dirty_inodes, dirty_dentries, dirty_extents })
    }

    pub fn node(&self, ino: u64) -> Result<&Node> {
        self.nodes.get(&ino).ok_or_else(|| Error::new(ErrorKind::Stale, format!("no inode {ino}")))
    }

    pub fn directory(&self, ino: u64) -> Result<&Directory> {
        let not_directory = || Error::new(ErrorKind::NotDirectory, format!("inode {ino} is no directory"));
        self.node(ino)?.directory.as_ref().ok_or_else(not_directory)
    }

    pub fn nodes(&self) -> impl Iterator<Item = (u64, &Node)> {
        self.nodes.iter().map(|(ino, node)| (*ino, node))
    }

    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// A node whose change the next transaction must contain, and which a sync of the inode waits for.
    pub fn node_mut(&mut self, ino: u64) -> Result<&mut Node> {
        self.sequence += 1;
        let sequence = self.sequence;
        let node = self.nodes.get_mut(&ino).ok_or_else(|| Error::new(ErrorKind::Stale, format!("no inode {ino}")))?;
        node.changed = sequence;
        self.dirty_inodes.insert(ino);
        Ok(node)
    }

    /// Notes that an inode's times differ from the store's; no sync waits for them.
    pub fn mark_times_dirty(&mut self, ino: u64) {
        if self.nodes.contains_key(&ino) {
            self.dirty_inodes.insert(ino);
        }
    }

    /// Notes that extents of a file changed; a sync of the inode waits for them. Returns the change's number.
    pub fn mark_extents(&mut self, ino: u64, aus: impl IntoIterator<Item = u64>) -> Sequence {
        self.sequence += 1;
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.changed = self.sequence;
            self.dirty_extents.extend(aus.into_iter().map(|au| (ino, au)));
        }
        self.sequence
    }

    pub fn take_ino(&mut self) -> u64 {
        let ino = self.next_ino;
        self.next_ino += 1;
        ino
    }

    pub fn insert_node(&mut self, ino: u64, inode: Inode, file: Option<Arc<FileData>>) {
        self.nodes.insert(ino, Node::new(inode, file));
    }

    /// Forgets a node that has no name any more.
    pub fn remove_node(&mut self, ino: u64) -> Option<Node> {
        debug_assert!(self.nodes.get(&ino).is_none_or(|node| node.names.is_empty()));
        self.dirty_inodes.insert(ino);
        self.nodes.remove(&ino)
    }

    /// Adds an entry; a former entry of that name must be gone. Link counts are the caller's.
    pub fn attach(&mut self, parent: u64, name: &[u8], ino: u64) -> Result<()> {
        self.node_mut(ino)?.names.push((parent, name.into()));
        self.entries_mut(parent)?.insert(name.into(), ino);
        self.dirty_dentries.insert((parent, name.into()));
        Ok(())
    }

    /// Removes an entry. Link counts are the caller's.
    pub fn detach(&mut self, parent: u64, name: &[u8], ino: u64) -> Result<()> {
        let names = &mut self.node_mut(ino)?.names;
        names.retain(|(directory, entry)| *directory != parent || &entry[..] != name);
        self.entries_mut(parent)?.remove(name);
        self.dirty_dentries.insert((parent, name.into()));
        Ok(())
    }

    fn entries_mut(&mut self, parent: u64) -> Result<&mut Directory> {
        let not_directory = || Error::new(ErrorKind::NotDirectory, format!("inode {parent} is no directory"));
        self.node_mut(parent)?.directory.as_mut().ok_or_else(not_directory)
    }

    /// True when `ino` is `ancestor` or lies below it.
    pub fn is_within(&self, ino: u64, ancestor: u64) -> bool {
        let mut at = ino;
        loop {
            if at == ancestor {
                return true;
            }
            match self.nodes.get(&at).and_then(|node| node.names.first()) {
                Some((parent, _)) => at = *parent,
                None => return false,
            }
        }
    }

    /// The first path of a node, relative to the root; None when it has no name.
    pub fn path_of(&self, ino: u64) -> Option<Vec<u8>> {
        let mut names = Vec::new();
        let mut at = ino;
        while at != ROOT_INO {
            let (parent, name) = self.nodes.get(&at)?.names.first()?;
            names.push(&name[..]);
            at = *parent;
        }
        names.reverse();
        Some(names.join(&b'/'))
    }

    pub fn has_changes(&self) -> bool {
        !self.dirty_inodes.is_empty() || !self.dirty_dentries.is_empty() || !self.dirty_extents.is_empty()
    }

    pub fn sequence(&self) -> Sequence {
        self.sequence
    }

    /// Takes everything that the store does not know yet.
    pub fn take_batch(&mut self) -> Batch {
        let mut batch = Batch { next_ino: self.next_ino, sequence: self.sequence, ..Batch::default() };
        for ino in self.dirty_inodes.drain() {
            let record = self.nodes.get(&ino).filter(|node| ino == ROOT_INO || !node.names.is_empty());
            batch.inodes.push((ino, record.map(|node| node.current().encode())));
        }
        for key in self.dirty_dentries.drain() {
            let ino = self.nodes.get(&key.0).and_then(|node| node.directory.as_ref()?.get(&key.1));
            batch.dentries.push((key, ino));
        }
        for (ino, au) in self.dirty_extents.drain() {
            let node = self.nodes.get(&ino).filter(|node| !node.names.is_empty());
            let record: Option<ExtentRecord> = node.and_then(|node| node.file.as_ref()?.extent_record(au));
            batch.extents.push(((ino, au), record.map(|record| record.encode())));
        }
        batch
    }

    /// Puts a batch back that could not be stored.
    pub fn return_batch(&mut self, batch: Batch) {
        self.dirty_inodes.extend(batch.inodes.into_iter().map(|(ino, _)| ino));
        self.dirty_dentries.extend(batch.dentries.into_iter().map(|(key, _)| key));
        self.dirty_extents.extend(batch.extents.into_iter().map(|(key, _)| key));
    }
}

impl Node {
    fn new(inode: Inode, file: Option<Arc<FileData>>) -> Self {
        let directory = (inode.kind == Kind::Directory).then(Directory::default);
        Self { inode, names: Vec::new(), directory, file, lookups: AtomicU64::new(0), changed: 0 }
    }

    /// The inode with a file's times as they are now.
    pub fn current(&self) -> Inode {
        use std::sync::atomic::Ordering::Relaxed;
        let mut inode = self.inode.clone();
        if let Some(file) = &self.file {
            inode.mtime = file.mtime.load(Relaxed);
            inode.ctime = file.ctime.load(Relaxed);
            file.times_dirty.store(false, Relaxed);
        }
        inode
    }
}
