//! Disks that share a device. If they are in different failure groups, one failure can lose all copies. Otherwise, disks on one file
//! system count its space several times.

use cellar_storage::Volume;
use nix::sys::stat::{major, minor};
use std::collections::BTreeMap;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Returns a warning for each device that disks of several failure groups share, and for each file system with several disks of one
/// failure group or of a group without copies. Devices that a volume manager combines from others are not resolved.
pub fn warnings(volume: &Volume) -> Vec<String> {
    let disks = volume.group_status().disks;
    let with_copies = disks.iter().filter_map(|disk| Some((disk.path.as_path(), disk.failure_group.as_deref()?)));
    let of_space = disks.iter().map(|disk| (disk.path.as_path(), disk.failure_group.as_deref()));
    warnings_about(with_copies).into_iter().chain(warnings_about_space(of_space)).collect()
}

fn warnings_about<'a>(disks: impl Iterator<Item = (&'a Path, &'a str)>) -> Vec<String> {
    let mut by_device: BTreeMap<u64, Vec<(&Path, &str)>> = BTreeMap::new();
    for (path, failure_group) in disks {
        if let Some(device) = device_of(path) {
            by_device.entry(device).or_default().push((path, failure_group));
        }
    }
    let is_shared = |disks: &&Vec<(&Path, &str)>| disks.iter().any(|(_, group)| *group != disks[0].1);
    let warning = |disks: &Vec<(&Path, &str)>| {
        let names = disks.iter().map(|(path, group)| format!("{} (failure group {group})", path.display()));
        format!(
            "cell disks {} are on the same device, so one failure can lose all copies; move them to different devices",
            names.collect::<Vec<_>>().join(", ")
        )
    };
    by_device.values().filter(is_shared).map(warning).collect()
}

fn warnings_about_space<'a>(disks: impl Iterator<Item = (&'a Path, Option<&'a str>)>) -> Vec<String> {
    let mut by_file_system: BTreeMap<(u64, Option<&str>), Vec<String>> = BTreeMap::new();
    for (path, failure_group) in disks {
        if let Ok(metadata) = std::fs::metadata(path)
            && metadata.is_dir()
        {
            by_file_system.entry((metadata.dev(), failure_group)).or_default().push(path.display().to_string());
        }
    }
    let warning = |disks: &Vec<String>| {
        format!(
            "cell disks {} are on the same file system, so its space counts {} times; use one directory of a file system",
            disks.join(", "),
            disks.len()
        )
    };
    by_file_system.values().filter(|disks| disks.len() > 1).map(warning).collect()
}

/// Returns the device that a path is on, or that the path is; None if the path cannot be read.
fn device_of(path: &Path) -> Option<u64> {
    let metadata = std::fs::metadata(path).ok()?;
    let device = if metadata.file_type().is_block_device() { metadata.rdev() } else { metadata.dev() };
    Some(whole_device(device).unwrap_or(device))
}

/// Returns the device that a partition belongs to; None if the device is no partition.
fn whole_device(device: u64) -> Option<u64> {
    let folder = PathBuf::from(format!("/sys/dev/block/{}:{}", major(device), minor(device)));
    if !folder.join("partition").exists() {
        return None;
    }
    let text = std::fs::read_to_string(folder.join("../dev")).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some(nix::sys::stat::makedev(major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_directories_of_a_file_system_count_its_space_several_times() {
        let folder = tempfile::tempdir().unwrap();
        let disks = ["first", "second"].map(|name| folder.path().join(name));
        disks.iter().for_each(|disk| std::fs::create_dir(disk).unwrap());
        let of = |groups: [Option<&'static str>; 2]| {
            warnings_about_space(disks.iter().zip(groups).map(|(disk, group)| (disk.as_path(), group)))
        };
        for groups in [[None, None], [Some("a"), Some("a")]] {
            let [warning] = &of(groups)[..] else { panic!("no warning for {groups:?}") };
            assert!(warning.contains("its space counts 2 times"), "{warning}");
        }
        assert!(of([Some("a"), Some("b")]).is_empty(), "another warning names such disks");
        let apart = [disks[0].as_path(), Path::new("/proc"), &folder.path().join("absent")];
        assert!(warnings_about_space(apart.into_iter().map(|path| (path, None))).is_empty());
    }

    #[test]
    fn disks_of_different_failure_groups_on_one_file_system_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let [first, second, absent] = ["first", "second", "absent"].map(|name| folder.path().join(name));
        [&first, &second].into_iter().for_each(|disk| std::fs::create_dir(disk).unwrap());
        let of = |groups: [&'static str; 2]| {
            let disks = [&first, &second].into_iter().zip(groups).map(|(path, group)| (path.as_path(), group));
            warnings_about(disks.chain([(absent.as_path(), "c")]))
        };
        let [warning] = &of(["a", "b"])[..] else { panic!("{:?}", of(["a", "b"])) };
        let expected = format!("{} (failure group a), {} (failure group b)", first.display(), second.display());
        assert!(warning.contains(&expected), "{warning}");
        assert!(of(["a", "a"]).is_empty());
        let other = Path::new("/proc");
        assert!(warnings_about([(first.as_path(), "a"), (other, "b")].into_iter()).is_empty(), "another file system");
    }
}
