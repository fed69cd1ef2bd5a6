//! A volume and a plain directory have the same content after the same random operations, also after a clean restart,
//! with caches of different sizes.

use crate::support;
use cellar_format::units::RegionIndex;
use cellar_storage::{ErrorKind, Fallocate, Ino, Kind, ROOT_INO, RenameMode, SetAttr, Volume, VolumeOptions};
use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use support::{MIB, Random, disks, new_directory, new_file, options, read_all};

const STEPS: usize = 1500;
const OFFSET_MAX: u64 = 5 * MIB;

struct Pair {
    volume: Arc<Volume>,
    plain: PathBuf,
    random: Random,
}

impl Pair {
    fn name(&mut self) -> String {
        let directory = ["", "", "d0/", "d1/", "d0/e/"][self.random.below(5) as usize];
        format!("{directory}f{}", self.random.below(6))
    }

    fn directory_name(&mut self) -> String {
        ["d0", "d1", "d0/e", "d1/e"][self.random.below(4) as usize].into()
    }

    /// Returns the directory and the last name of a path; None if the directory does not exist.
    fn split<'a>(&self, path: &'a str) -> Option<(Ino, &'a [u8])> {
        let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
        Some((self.volume.resolve(directory)?, name.as_bytes()))
    }

    /// Asserts that an operation succeeded on both, or failed on both with the same error.
    fn agree<T, U>(&self, what: &str, ours: Option<cellar_storage::Result<T>>, plain: io::Result<U>) {
        match (ours, plain) {
            (Some(Ok(_)), Ok(_)) | (None, Err(_)) => {}
            (Some(Err(ours)), Err(plain)) => assert_eq!(Some(ours.errno()), plain.raw_os_error(), "{what}: {ours}"),
            (ours, plain) => panic!("{what}: {:?} but {:?}", ours.map(|o| o.map(drop)), plain.map(drop)),
        }
    }

    fn step(&mut self) {
        let path = self.name();
        let plain = self.plain.join(&path);
        let existing = self.volume.resolve(&path);
        let open = || std::fs::OpenOptions::new().read(true).write(true).open(&plain);
        match self.random.below(16) {
            0 => {
                let path = self.directory_name();
                let ours = self.split(&path).map(|(at, name)| self.volume.create(at, name, &new_directory()));
                self.agree("mkdir", ours, std::fs::create_dir(self.plain.join(&path)));
            }
            1 => {
                let path = self.directory_name();
                let ours = self.split(&path).map(|(at, name)| self.volume.rmdir(at, name));
                self.agree("rmdir", ours, std::fs::remove_dir(self.plain.join(&path)));
            }
            2 | 3 => {
                let ours = self.split(&path).map(|(at, name)| self.volume.create(at, name, &new_file()));
                self.agree("create", ours, std::fs::File::create_new(&plain));
            }
            4 => {
                let ours = self.split(&path).map(|(at, name)| self.volume.unlink(at, name));
                self.agree("unlink", ours, std::fs::remove_file(&plain));
            }
            5 => {
                let to = self.name();
                let ours = self.split(&path).zip(self.split(&to));
                let ours = ours.map(|(from, to)| self.volume.rename(from, to, RenameMode::Replace));
                self.agree("rename", ours, std::fs::rename(&plain, self.plain.join(&to)));
            }
            6 => {
                let to = self.name();
                let ours = existing.zip(self.split(&to)).map(|(ino, (at, name))| self.volume.link(ino, at, name));
                self.agree("link", ours, std::fs::hard_link(&plain, self.plain.join(&to)));
            }
            7 => {
                let size = self.random.below(OFFSET_MAX);
                let set = SetAttr { size: Some(size), ..SetAttr::default() };
                let ours = existing.map(|ino| self.volume.setattr(ino, &set));
                self.agree("truncate", ours, open().and_then(|file| file.set_len(size)));
            }
            8 => {
                let (offset, length) = (self.random.below(OFFSET_MAX), 1 + self.random.below(2 * MIB));
                let (what, mode) = match self.random.below(3) {
                    0 => (Fallocate::Reserve { keep_size: false }, 0),
                    1 => (Fallocate::PunchHole, libc_punch_hole()),
                    _ => (Fallocate::Zero { keep_size: true }, libc_zero_keep_size()),
                };
                let ours = existing.map(|ino| self.volume.fallocate(ino, offset, length, what));
                self.agree("fallocate", ours, open().and_then(|file| fallocate(&file, mode, offset, length)));
            }
            9 => drop(existing.map(|ino| self.volume.fsync(ino).unwrap())),
            10 => {
                if let Some(ino) = existing {
                    let regions = self.volume.size(ino).unwrap().div_ceil(MIB) as u32;
                    for region in 0..regions {
                        let guard = self.volume.region(ino, RegionIndex(region)).unwrap();
                        let mut expected = vec![0; MIB as usize];
                        let count = open().unwrap().read_at(&mut expected, u64::from(region) * MIB).unwrap();
                        assert!(guard[..] == expected[..count], "region {region} of {path}");
                    }
                }
            }
            _ => {
                let (offset, count) = (self.random.below(OFFSET_MAX), 1 + self.random.below(40_000) as usize);
                let data = self.random.bytes(count);
                let ours = existing.map(|ino| self.volume.write(ino, offset, &data));
                self.agree("write", ours, open().and_then(|file| file.write_all_at(&data, offset)));
            }
        }
    }

    fn compare(&self) {
        let (mut ours, mut plain) = (BTreeMap::new(), BTreeMap::new());
        collect_ours(&self.volume, ROOT_INO, "", &mut ours);
        collect_plain(&self.plain, "", &mut plain);
        assert_eq!(ours.keys().collect::<Vec<_>>(), plain.keys().collect::<Vec<_>>());
        for (path, (content, links)) in &ours {
            assert!(*content == plain[path].0, "content of {path}");
            assert_eq!(*links, plain[path].1, "links of {path}");
        }
    }
}

fn libc_punch_hole() -> i32 {
    libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE
}

fn libc_zero_keep_size() -> i32 {
    libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE
}

fn fallocate(file: &std::fs::File, mode: i32, offset: u64, length: u64) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    // SAFETY: the descriptor is open for the call.
    match unsafe { libc::fallocate(file.as_raw_fd(), mode, offset as i64, length as i64) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

type Tree = BTreeMap<String, (Vec<u8>, u32)>;

fn collect_ours(volume: &Volume, directory: Ino, prefix: &str, tree: &mut Tree) {
    let mut entries = Vec::new();
    let visit = |entry: cellar_storage::DirEntry<'_>| {
        entries.push((String::from_utf8(entry.name.to_vec()).unwrap(), entry.ino, entry.kind));
        true
    };
    volume.readdir(directory, 0, visit).unwrap();
    for (name, ino, kind) in entries {
        let (path, nlink) = (format!("{prefix}{name}"), volume.getattr(ino).unwrap().nlink);
        match kind {
            Kind::Directory => {
                tree.insert(path.clone(), (Vec::new(), nlink));
                collect_ours(volume, ino, &format!("{path}/"), tree);
            }
            _ => drop(tree.insert(path, (read_all(volume, ino), nlink))),
        }
    }
}

fn collect_plain(directory: &Path, prefix: &str, tree: &mut Tree) {
    use std::os::unix::fs::MetadataExt;
    for entry in std::fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let (path, metadata) = (format!("{prefix}{}", entry.file_name().to_str().unwrap()), entry.metadata().unwrap());
        let nlink = metadata.nlink() as u32;
        if metadata.is_dir() {
            tree.insert(path.clone(), (Vec::new(), nlink));
            collect_plain(&entry.path(), &format!("{path}/"), tree);
        } else {
            tree.insert(path, (std::fs::read(entry.path()).unwrap(), nlink));
        }
    }
}

fn check(disk_count: usize, options: VolumeOptions) {
    let folder = tempfile::tempdir().unwrap();
    let plain = folder.path().join("plain");
    std::fs::create_dir(&plain).unwrap();
    let open = || Volume::open(disks(folder.path(), disk_count), options.clone()).unwrap();
    let mut pair = Pair { volume: open(), plain, random: Random::from_environment() };
    for round in 0..3 {
        (0..STEPS / 3).for_each(|_| pair.step());
        pair.compare();
        pair.volume.close().unwrap();
        if round < 2 {
            // Dropping the volume unlocks the disks.
            let closed = std::mem::replace(&mut pair.volume, placeholder(folder.path(), round));
            drop(closed);
            pair.volume = open();
            pair.compare();
        }
    }
}

/// Returns another volume, to stand in while the volume under test is closed.
fn placeholder(folder: &Path, round: usize) -> Arc<Volume> {
    let elsewhere = folder.join(format!("placeholder{round}"));
    std::fs::create_dir(&elsewhere).unwrap();
    Volume::open(disks(&elsewhere, 1), VolumeOptions { cache_bytes: 0, ..support::options() }).unwrap()
}

#[test]
fn with_a_cache_on_two_disks() {
    check(2, options());
}

#[test]
fn with_a_cache_on_three_disks() {
    check(3, options());
}

#[test]
fn with_a_cache_of_two_regions() {
    check(2, VolumeOptions { cache_bytes: 2 * MIB, ..options() });
}

#[test]
fn without_a_cache() {
    check(1, VolumeOptions { cache_bytes: 0, ..options() });
}

#[test]
fn a_missing_name_and_a_missing_inode_are_different_errors() {
    let folder = tempfile::tempdir().unwrap();
    let volume = support::open(folder.path(), 1);
    assert_eq!(volume.lookup(ROOT_INO, b"x").unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(volume.getattr(999).unwrap_err().kind(), ErrorKind::Stale);
    assert_eq!(volume.size(ROOT_INO).unwrap_err().kind(), ErrorKind::IsDirectory);
}
