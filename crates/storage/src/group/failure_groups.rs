//! The placement of copies: which disks store the copies of an allocation unit, by a formula over the failure groups.
//!
//! Allocation unit `a` of a file belongs to the disk that its stripe layout names, as without copies; that disk stores
//! the first copy. The other copies are on the *partners* of the disk, which are the same for all its allocation units.

use crate::error::{Error, ErrorKind, Result};
use std::collections::BTreeSet;

/// Maximum bytes of a failure group's name. The superblock fills the rest of its field with zeros.
pub const FAILURE_GROUP_BYTES: usize = 32;

/// Returns for each disk the disks that store the copies of its allocation units: the disk itself first.
///
/// The disks are put into a ring in which neighbours belong to different failure groups as far as possible: the first
/// disk of each failure group, then the second of each, and so on. The partners of a disk are the next disks in the
/// ring whose failure groups differ from the disk's and from each other. With failure groups of equal size, each disk
/// stores the same number of copies.
pub fn copy_sets(failure_groups: &[String], copies: usize) -> Result<Vec<Vec<u16>>> {
    let names: BTreeSet<&String> = failure_groups.iter().collect();
    if names.len() < copies {
        let message = format!(
            "{copies} copies need {copies} failure groups, but the disks are in {}; add disks, or give the disks \
             different failure groups",
            names.len()
        );
        return Err(Error::new(ErrorKind::Invalid, message));
    }
    let turn = |disk: &usize| failure_groups[..*disk].iter().filter(|name| **name == failure_groups[*disk]).count();
    let mut ring: Vec<usize> = (0..failure_groups.len()).collect();
    ring.sort_by_key(turn);
    let set_of = |disk: usize| {
        let at = ring.iter().position(|other| *other == disk).expect("every disk is in the ring");
        let mut set = vec![disk];
        for other in ring[at..].iter().chain(&ring[..at]) {
            if set.len() < copies && set.iter().all(|disk| failure_groups[*disk] != failure_groups[*other]) {
                set.push(*other);
            }
        }
        set.into_iter().map(|disk| disk as u16).collect()
    };
    Ok((0..failure_groups.len()).map(set_of).collect())
}

/// Returns the copy sets of the disks except those in `avoided`: bit n of disk n.
pub fn copy_sets_without(avoided: u64, failure_groups: &[String], copies: usize) -> Result<Vec<Vec<u16>>> {
    let used: Vec<u16> = (0..failure_groups.len() as u16).filter(|disk| avoided >> disk & 1 == 0).collect();
    let names: Vec<String> = used.iter().map(|disk| failure_groups[usize::from(*disk)].clone()).collect();
    let sets = copy_sets(&names, copies)?.into_iter();
    Ok(sets.map(|set| set.into_iter().map(|at| used[usize::from(at)]).collect()).collect())
}

/// Returns the failure group of each disk: as configured, or one that no other disk belongs to.
pub fn names(configured: &[Option<String>], disks: usize) -> Result<Vec<String>> {
    let name = |disk: usize| {
        let configured = configured.get(disk).and_then(Option::as_ref);
        let name = configured.cloned().unwrap_or_else(|| format!("disk{disk}"));
        match name.is_empty() || name.len() > FAILURE_GROUP_BYTES || name.contains('\0') {
            true => Err(Error::new(
                ErrorKind::Invalid,
                format!("failure group \"{name}\" is invalid; write a name of 1 to {FAILURE_GROUP_BYTES} bytes"),
            )),
            false => Ok(name),
        }
    };
    (0..disks).map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sets(names: &[&str], copies: usize) -> Vec<Vec<u16>> {
        copy_sets(&names.iter().map(ToString::to_string).collect::<Vec<_>>(), copies).unwrap()
    }

    #[test]
    fn copies_are_in_different_failure_groups_and_spread_evenly() {
        assert_eq!(sets(&["a", "b"], 2), [[0, 1], [1, 0]]);
        assert_eq!(sets(&["a", "b", "c"], 3), [[0, 1, 2], [1, 2, 0], [2, 0, 1]]);
        assert_eq!(sets(&["a", "a", "b", "b"], 2), [[0, 2], [1, 3], [2, 1], [3, 0]]);
        for (names, copies) in [(vec!["a", "b", "c", "a", "b", "c"], 2), (vec!["a", "a", "b", "c", "b", "c"], 3)] {
            let sets = sets(&names, copies);
            for (disk, set) in sets.iter().enumerate() {
                assert_eq!(usize::from(set[0]), disk);
                let groups: BTreeSet<&str> = set.iter().map(|disk| names[usize::from(*disk)]).collect();
                assert_eq!(groups.len(), copies, "{set:?}");
            }
            for disk in 0..names.len() as u16 {
                assert_eq!(sets.iter().filter(|set| set.contains(&disk)).count(), copies, "disk {disk}");
            }
        }
    }

    #[test]
    fn too_few_failure_groups_are_an_error() {
        let names: Vec<String> = ["a", "a", "b"].map(String::from).into();
        let error = copy_sets(&names, 3).unwrap_err().to_string();
        assert!(error.contains("3 copies need 3 failure groups, but the disks are in 2"), "{error}");
    }
}
