//! How many copies the files of each type have.

use super::Redundancy;
use cellar_format::wire::FileType;
use std::collections::BTreeMap;

/// Values of the metadata stores with this prefix and the name of a file type: the number of copies.
const PREFIX: &str = "copies/";

/// The number of copies of new files, by type. Existing files have others until a rebalance has converted them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileCopies {
    /// The redundancy of the group, for types without their own.
    group: Redundancy,
    own: [Option<Redundancy>; FileType::ALL.len()],
}

impl FileCopies {
    /// Takes what the metadata stores contain. A value of a later release, or one that the group cannot have, does not count.
    pub fn restore(group: Redundancy, values: &BTreeMap<String, u64>) -> Self {
        let stored = |file_type: FileType| match values.get(&value_name(file_type)) {
            Some(2) => Some(Redundancy::Normal),
            Some(3) => Some(Redundancy::High),
            _ => None,
        };
        let own = FileType::ALL.map(stored);
        Self { group, own: if group == Redundancy::External { Default::default() } else { own } }
    }

    /// Returns the copies if files of a type get another redundancy; None stands for the redundancy of the group.
    pub fn with(mut self, file_type: FileType, redundancy: Option<Redundancy>) -> Self {
        self.own[file_type as usize] = redundancy.filter(|redundancy| *redundancy != self.group);
        self
    }

    pub fn of(&self, file_type: FileType) -> Redundancy {
        self.own(file_type).unwrap_or(self.group)
    }

    /// Returns the redundancy of a type if it differs from the group's.
    pub fn own(&self, file_type: FileType) -> Option<Redundancy> {
        self.own[file_type as usize]
    }

    pub fn group(&self) -> Redundancy {
        self.group
    }

    /// Returns whether files of all types have the same number of copies.
    pub fn is_uniform(&self) -> bool {
        self.own.iter().all(Option::is_none)
    }

    /// Returns the numbers of copies that files may have, each once; the group's first.
    pub fn in_use(&self) -> Vec<usize> {
        let mut counts = vec![self.group.copies()];
        for count in self.own.iter().flatten().map(|own| own.copies()) {
            if !counts.contains(&count) {
                counts.push(count);
            }
        }
        counts
    }
}

/// Returns the name of the value in the metadata stores.
pub fn value_name(file_type: FileType) -> String {
    format!("{PREFIX}{}", file_type.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_without_their_own_redundancy_have_that_of_the_group() {
        let normal = FileCopies::restore(Redundancy::Normal, &BTreeMap::new());
        assert!(normal.is_uniform() && normal.in_use() == [2]);
        let wal = normal.with(FileType::Wal, Some(Redundancy::High));
        assert_eq!((wal.of(FileType::Wal), wal.of(FileType::Relation)), (Redundancy::High, Redundancy::Normal));
        assert_eq!((wal.is_uniform(), wal.in_use()), (false, vec![2, 3]));
        assert_eq!(wal.with(FileType::Wal, None), normal);
        assert_eq!(wal.with(FileType::Wal, Some(Redundancy::Normal)), normal);
        let values = BTreeMap::from([(value_name(FileType::Wal), 3), (value_name(FileType::Map), 9)]);
        assert_eq!(FileCopies::restore(Redundancy::Normal, &values), wal);
        assert!(FileCopies::restore(Redundancy::External, &values).is_uniform());
    }
}
