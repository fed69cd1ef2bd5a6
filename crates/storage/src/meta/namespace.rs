//! The namespace in memory: directories, names and inodes, and which of them differ from the store.
//!
//! Invariants: a directory's entries name existing nodes; a node's `names` and the entries agree; `nlink` counts names
//! (for a directory: its name, its dot and its children's dot-dots); every change marks the inodes, entries and extents
//! that it changes dirty; every change but one of a file's times has a commit sequence. The type parameter `F` is the
//! content of a regular file, which this module does not interpret.

use super::ROOT_INO;
use super::batch::{AuKey, Batch, CommitSequence, Contents, Name};
use super::extent::ExtentRecord;
use super::record::{Inode, Kind};
use crate::error::{Error, ErrorKind, Result};
use cellar_format::units::AuIndex;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// The interface to a regular file's content.
pub trait FileContent {
    /// Returns mtime and ctime, in nanoseconds since 1970, and marks them as stored.
    fn take_times(&self) -> (i64, i64);

    /// Returns the extent record to store; None if the allocation unit has no compression unit.
    fn extent_record(&self, au: AuIndex) -> Option<ExtentRecord>;
}

#[derive(Debug)]
pub struct Node<F> {
    pub inode: Inode,
    /// The directory and the name of every link.
    pub names: Vec<(u64, Name)>,
    pub directory: Option<Directory>,
    /// Some for regular files.
    pub file: Option<Arc<F>>,
    /// References by the kernel or another user of the volume, see `Volume::forget`.
    pub lookups: AtomicU64,
    /// The last change that a sync of this inode must make durable.
    pub changed: CommitSequence,
}

/// Entries have increasing cookies, so that a listing resumes after the last entry it returned although entries were
/// added or removed in between.
#[derive(Debug, Default)]
pub struct Directory {
    /// Inode and cookie by name.
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

    /// Returns the entries after `cookie`: cookie, name and inode of each.
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

#[derive(Debug)]
pub struct Namespace<F> {
    nodes: HashMap<u64, Node<F>>,
    next_ino: u64,
    sequence: CommitSequence,
    dirty_inodes: HashSet<u64>,
    dirty_dentries: HashSet<(u64, Name)>,
    dirty_extents: HashSet<AuKey>,
}

impl<F: FileContent> Namespace<F> {
    /// Builds the namespace from the contents of a store. `open_file` returns the content of a file.
    pub fn new(contents: Contents, open_file: impl Fn(u64, &Inode) -> Arc<F>) -> Result<Self> {
        let mut nodes = HashMap::with_capacity(contents.inodes.len());
        for (ino, inode) in contents.inodes {
            let file = (inode.kind == Kind::File).then(|| open_file(ino, &inode));
            nodes.insert(ino, Node::new(inode, file));
        }
        let corrupt = |message: String| Error::new(ErrorKind::Corrupt, format!("metadata: {message}"));
        for (parent, name, ino) in contents.dentries {
            let name: Name = name.into();
            let shown = String::from_utf8_lossy(&name).into_owned();
            let node = nodes.get_mut(&ino).ok_or_else(|| {
                corrupt(format!("entry {shown:?} of directory {parent} names inode {ino}, which does not exist"))
            })?;
            node.names.push((parent, name.clone()));
            nodes
                .get_mut(&parent)
                .and_then(|node| node.directory.as_mut())
                .ok_or_else(|| corrupt(format!("entry {shown:?} belongs to inode {parent}, which is not a directory")))?
                .insert(name, ino);
        }
        if nodes.get(&ROOT_INO).is_none_or(|root| root.directory.is_none()) {
            return Err(corrupt("the root directory is missing".into()));
        }
        let next_ino = contents.next_ino;
        let (dirty_inodes, dirty_dentries, dirty_extents) = (HashSet::new(), HashSet::new(), HashSet::new());
        Ok(Self { nodes, next_ino, sequence: CommitSequence(0), dirty_inodes, dirty_dentries, dirty_extents })
    }

    pub fn node(&self, ino: u64) -> Result<&Node<F>> {
        self.nodes.get(&ino).ok_or_else(|| Error::new(ErrorKind::Stale, format!("inode {ino} does not exist")))
    }

    pub fn directory(&self, ino: u64) -> Result<&Directory> {
        let not_directory = || Error::new(ErrorKind::NotDirectory, format!("inode {ino} is not a directory"));
        self.node(ino)?.directory.as_ref().ok_or_else(not_directory)
    }

    pub fn nodes(&self) -> impl Iterator<Item = (u64, &Node<F>)> {
        self.nodes.iter().map(|(ino, node)| (*ino, node))
    }

    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns a node to change. The next transaction contains the change, and a sync of the inode waits for it.
    pub fn node_mut(&mut self, ino: u64) -> Result<&mut Node<F>> {
        let sequence = self.next_sequence();
        let node = self
            .nodes
            .get_mut(&ino)
            .ok_or_else(|| Error::new(ErrorKind::Stale, format!("inode {ino} does not exist")))?;
        node.changed = sequence;
        self.dirty_inodes.insert(ino);
        Ok(node)
    }

    /// Marks an inode's times as different from the store's. No sync waits for them.
    pub fn mark_times_dirty(&mut self, ino: u64) {
        if self.nodes.contains_key(&ino) {
            self.dirty_inodes.insert(ino);
        }
    }

    /// Marks extents of a file as changed; a sync of the inode waits for them. Returns the commit sequence of
    /// the change.
    pub fn mark_extents(&mut self, ino: u64, aus: impl IntoIterator<Item = AuIndex>) -> CommitSequence {
        let sequence = self.next_sequence();
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.changed = sequence;
            self.dirty_extents.extend(aus.into_iter().map(|au| AuKey { ino, au }));
        }
        sequence
    }

    fn next_sequence(&mut self) -> CommitSequence {
        self.sequence.0 += 1;
        self.sequence
    }

    pub fn take_ino(&mut self) -> u64 {
        let ino = self.next_ino;
        self.next_ino += 1;
        ino
    }

    pub fn insert_node(&mut self, ino: u64, inode: Inode, file: Option<Arc<F>>) {
        self.nodes.insert(ino, Node::new(inode, file));
    }

    /// Removes a node that has no name.
    pub fn remove_node(&mut self, ino: u64) -> Option<Node<F>> {
        debug_assert!(self.nodes.get(&ino).is_none_or(|node| node.names.is_empty()));
        self.dirty_inodes.insert(ino);
        self.nodes.remove(&ino)
    }

    /// Adds an entry; the directory must not have an entry of that name. The caller maintains link counts.
    pub fn attach(&mut self, parent: u64, name: &[u8], ino: u64) -> Result<()> {
        self.node_mut(ino)?.names.push((parent, name.into()));
        self.entries_mut(parent)?.insert(name.into(), ino);
        self.dirty_dentries.insert((parent, name.into()));
        Ok(())
    }

    /// Removes an entry. The caller maintains link counts.
    pub fn detach(&mut self, parent: u64, name: &[u8], ino: u64) -> Result<()> {
        let names = &mut self.node_mut(ino)?.names;
        names.retain(|(directory, entry)| *directory != parent || &entry[..] != name);
        self.entries_mut(parent)?.remove(name);
        self.dirty_dentries.insert((parent, name.into()));
        Ok(())
    }

    fn entries_mut(&mut self, parent: u64) -> Result<&mut Directory> {
        let not_directory = || Error::new(ErrorKind::NotDirectory, format!("inode {parent} is not a directory"));
        self.node_mut(parent)?.directory.as_mut().ok_or_else(not_directory)
    }

    /// Returns whether `ino` is `ancestor` or below it.
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

    /// Returns the first path of a node, relative to the root; None if the node has no name.
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

    /// Returns the commit sequence of the last change.
    pub fn sequence(&self) -> CommitSequence {
        self.sequence
    }

    /// Returns all changes that are not in the store and marks them clean.
    pub fn take_batch(&mut self) -> Batch {
        let mut batch = Batch { next_ino: self.next_ino, sequence: self.sequence, ..Batch::default() };
        for ino in self.dirty_inodes.drain() {
            let record = self.nodes.get(&ino).filter(|node| ino == ROOT_INO || !node.names.is_empty());
            batch.inodes.push((ino, record.map(|node| node.to_store().encode())));
        }
        for key in self.dirty_dentries.drain() {
            let ino = self.nodes.get(&key.0).and_then(|node| node.directory.as_ref()?.get(&key.1));
            batch.dentries.push((key, ino));
        }
        for key in self.dirty_extents.drain() {
            let node = self.nodes.get(&key.ino).filter(|node| !node.names.is_empty());
            let record: Option<ExtentRecord> = node.and_then(|node| node.file.as_ref()?.extent_record(key.au));
            batch.extents.push((key, record.map(|record| record.encode())));
        }
        batch
    }

    /// Marks the changes of a batch dirty again because its transaction failed.
    pub fn restore_batch(&mut self, batch: Batch) {
        self.dirty_inodes.extend(batch.inodes.into_iter().map(|(ino, _)| ino));
        self.dirty_dentries.extend(batch.dentries.into_iter().map(|(key, _)| key));
        self.dirty_extents.extend(batch.extents.into_iter().map(|(key, _)| key));
    }
}

impl<F: FileContent> Node<F> {
    fn new(inode: Inode, file: Option<Arc<F>>) -> Self {
        let directory = (inode.kind == Kind::Directory).then(Directory::default);
        Self { inode, names: Vec::new(), directory, file, lookups: AtomicU64::new(0), changed: CommitSequence(0) }
    }

    /// Returns the inode to store, with the file's current times, and marks the times as stored.
    fn to_store(&self) -> Inode {
        let mut inode = self.inode.clone();
        if let Some(file) = &self.file {
            (inode.mtime, inode.ctime) = file.take_times();
        }
        inode
    }
}
