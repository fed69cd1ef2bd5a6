//! The redundancy of files by their type.
//!
//! A file gets the number of copies of its type when it is created, and keeps it until the next rebalance.

use super::redundancy::no_copies;
use super::{Ino, Volume};
use crate::error::{Context, Error, ErrorKind, Result};
use crate::group::{Redundancy, copies_value};
use cellar_format::wire::FileType;

/// The redundancy of the files of one type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileRedundancy {
    pub file_type: FileType,
    pub redundancy: Redundancy,
    /// The redundancy of the group applies.
    pub is_of_group: bool,
}

impl Volume {
    /// Returns the redundancy of new files of each type.
    pub fn file_redundancy(&self) -> Vec<FileRedundancy> {
        let copies = self.group.copies();
        let of = |file_type| FileRedundancy {
            file_type,
            redundancy: copies.of(file_type),
            is_of_group: copies.own(file_type).is_none(),
        };
        FileType::ALL.into_iter().map(of).collect()
    }

    /// Sets the redundancy of new files of a type; None for that of the group. Durable on return. The next rebalance converts
    /// existing files.
    pub fn set_file_redundancy(&self, file_type: FileType, redundancy: Option<Redundancy>) -> Result<()> {
        let _changes = self.rebalance.disk_changes.lock();
        let Some(mirror) = self.group.mirror() else { return Err(no_copies("so all its files have one copy")) };
        if redundancy == Some(Redundancy::External) {
            let message = "files of a group with copies need two or three: a file with one copy would be lost with its disk, and \
                           the group could not continue without the disk; write normal or high";
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        let copies = self.group.copies().with(file_type, redundancy);
        let (in_use, avoided, name) = (copies.in_use(), self.group.avoided(), file_type.name());
        let failed = || format!("could not set the redundancy of files of type \"{name}\"");
        self.group.check_failure_groups(avoided, None, &in_use).context(failed)?;
        let is_needed = |number: &usize| avoided >> number & 1 == 0;
        let mut needed = (0..self.disks().len()).filter(is_needed);
        if let Some(offline) = needed.find(|number| !mirror.member(*number).is_online()) {
            let path = self.disks()[offline].path().display();
            let message = format!("{}: cell disk {path} is not online; bring the disk online, or drop it", failed());
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        self.free_space.prepare_commit();
        self.group.add_sets(avoided, &in_use).context(failed)?;
        let value = copies.own(file_type).map(|own| own.copies() as u64);
        self.commit_group_values([(copies_value(file_type), value)]).context(failed)?;
        self.group.set_copies(copies);
        log::info!("new files of type \"{name}\" have redundancy {}", copies.of(file_type));
        Ok(())
    }

    /// Applies the configured redundancy of file types in a new group. In another group, warns of what differs.
    pub(super) fn configure_file_redundancy(&self, is_new: bool) -> Result<()> {
        for (file_type, redundancy) in self.options.file_redundancy.iter().copied() {
            let current = self.group.copies().of(file_type);
            if current == redundancy {
                continue;
            }
            if is_new {
                self.set_file_redundancy(file_type, Some(redundancy))?;
                continue;
            }
            let name = file_type.name();
            log::warn!(
                "files of type \"{name}\" have redundancy {current}; the configured redundancy, {redundancy}, applies to new groups \
                 only; run cellar group set --redundancy {name}={redundancy}, or correct the configuration"
            );
        }
        Ok(())
    }

    /// Returns the copies that a new file has. `path` is called if this depends on the path.
    pub(super) fn copies_for(&self, path: impl FnOnce() -> Option<Vec<u8>>) -> usize {
        let copies = self.group.copies();
        if copies.is_uniform() {
            return copies.group().copies();
        }
        let file_type = path().map(|path| (self.options.file_type)(&String::from_utf8_lossy(&path)));
        file_type.map_or(copies.group(), |file_type| copies.of(file_type)).copies()
    }

    /// Returns the copies that a file has after the next rebalance.
    pub(super) fn copies_of(&self, ino: Ino) -> usize {
        self.copies_for(|| self.namespace.read().path_of(ino))
    }
}
