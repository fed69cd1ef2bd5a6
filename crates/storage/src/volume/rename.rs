//! Renaming, atomically: with or without replacing an existing entry, and exchanging two entries.

use super::names::{check_name, find, note_entry_change, quoted};
use super::{Ino, Kind, Namespace, Volume, now};
use crate::error::{Error, ErrorKind, Result};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenameMode {
    Replace,
    NoReplace,
    Exchange,
}

impl Volume {
    pub fn rename(&self, from: (Ino, &[u8]), to: (Ino, &[u8]), mode: RenameMode) -> Result<()> {
        check_name(from.1)?;
        check_name(to.1)?;
        let mut namespace = self.namespace.write();
        let ino = find(&namespace, from.0, from.1)?;
        let is_directory = namespace.node(ino)?.inode.kind == Kind::Directory;
        let target = namespace.directory(to.0)?.get(to.1);
        if namespace.node(to.0)?.inode.nlink == 0 {
            return Err(Error::new(ErrorKind::NotFound, format!("directory {} was removed", to.0)));
        }
        if is_directory && namespace.is_within(to.0, ino) {
            return Err(Error::new(ErrorKind::Invalid, "cannot move a directory into itself"));
        }
        match (mode, target) {
            (RenameMode::NoReplace, Some(_)) => {
                return Err(Error::new(ErrorKind::Exists, format!("{} already exists", quoted(to.1))));
            }
            (RenameMode::Exchange, None) => {
                return Err(Error::new(
                    ErrorKind::NotFound,
                    format!("{} does not exist in directory {}", quoted(to.1), to.0),
                ));
            }
            (RenameMode::Exchange, Some(other)) => return exchange(&mut namespace, from, to, ino, other),
            // POSIX: renaming onto another name of the same inode does nothing.
            (_, Some(other)) if other == ino => return Ok(()),
            _ => {}
        }
        let time = now();
        if let Some(replaced) = target {
            let replaces_directory = namespace.node(replaced)?.inode.kind == Kind::Directory;
            match (is_directory, replaces_directory) {
                (true, false) => return Err(Error::new(ErrorKind::NotDirectory, "the target is not a directory")),
                (false, true) => return Err(Error::new(ErrorKind::IsDirectory, "the target is a directory")),
                (true, true) if !namespace.directory(replaced)?.is_empty() => {
                    return Err(Error::new(ErrorKind::NotEmpty, "the target directory is not empty"));
                }
                _ => {}
            }
            self.drop_name(&mut namespace, to.0, to.1, replaced, time)?;
            note_entry_change(&mut namespace, to.0, time, -(replaces_directory as i32))?;
        }
        namespace.detach(from.0, from.1, ino)?;
        namespace.attach(to.0, to.1, ino)?;
        namespace.node_mut(ino)?.touch(time);
        note_entry_change(&mut namespace, from.0, time, -(is_directory as i32))?;
        note_entry_change(&mut namespace, to.0, time, is_directory as i32)
    }
}

fn exchange(namespace: &mut Namespace, from: (Ino, &[u8]), to: (Ino, &[u8]), ino: Ino, other: Ino) -> Result<()> {
    let is_directory =
        |namespace: &Namespace, ino| namespace.node(ino).map(|node| (node.inode.kind == Kind::Directory) as i32);
    let (ino_directory, other_directory) = (is_directory(namespace, ino)?, is_directory(namespace, other)?);
    if other_directory == 1 && namespace.is_within(from.0, other) {
        return Err(Error::new(ErrorKind::Invalid, "cannot move a directory into itself"));
    }
    if ino == other {
        return Ok(());
    }
    let time = now();
    namespace.detach(from.0, from.1, ino)?;
    namespace.detach(to.0, to.1, other)?;
    namespace.attach(to.0, to.1, ino)?;
    namespace.attach(from.0, from.1, other)?;
    namespace.node_mut(ino)?.touch(time);
    namespace.node_mut(other)?.touch(time);
    note_entry_change(namespace, from.0, time, other_directory - ino_directory)?;
    note_entry_change(namespace, to.0, time, ino_directory - other_directory)
}
