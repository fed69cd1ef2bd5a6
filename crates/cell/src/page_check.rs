//! Checksums of PostgreSQL's pages, for the storage: which files have them, and whether they are on.
//!
//! A page is checked only while `pg_control` of its cluster says that checksums are on. While they are being switched, or
//! if the cluster is unknown, pages without a valid checksum can be newer than others, so no page is checked.

use crate::fuse::{cluster_root, relation_segment};
use cellar_format::units::BLOCK_BYTES;
use cellar_scan::page_checksum;
use cellar_storage::{Ino, Kind, PageCheck, ROOT_INO, Result, Volume};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long the state of a cluster's checksums is remembered, for reads. A repair reads it again.
const AGE_MAX: Duration = Duration::from_secs(1);
const CHECKSUM_AT: usize = 8;
const CONTROL_FILE: &str = "global/pg_control";
/// Folders between the root of the volume and a data directory that is searched for tablespaces.
const DEPTH_MAX: usize = 3;

/// What `pg_control` says about a cluster's checksums (`data_checksum_version`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Checksums {
    Off,
    On,
    /// PostgreSQL 19 is switching them on or off.
    Switching,
}

#[derive(Debug)]
pub struct ClusterChecksums {
    mount: PathBuf,
    /// By root: a data directory, or a tablespace's version directory.
    known: Mutex<HashMap<String, (Instant, Option<Control>)>>,
}

/// The fields of `pg_control` that are used here.
#[derive(Debug, Clone, Copy)]
struct Control {
    catalog_version: u32,
    checksums: Checksums,
    /// Blocks of a segment of a relation (`RELSEG_SIZE`).
    segment_blocks: u32,
}

impl Control {
    /// Reads the file's fields. None if the file is not complete, or has a format that this release does not know.
    ///
    /// Source: `catalog/pg_control.h` of PostgreSQL 15 to 19. The CRC is the last field; before it are a nonce of 32 bytes, from
    /// 18 on a flag, and `data_checksum_version`. That field follows `blcksz`, `relseg_size`, five other numbers, `loblksize` and
    /// `float8ByVal`.
    fn decode(bytes: &[u8]) -> Option<Self> {
        const NONCE_BYTES: usize = 32;
        let number = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let (version, catalog_version) = (number(8)?, number(12)?);
        let flag_bytes = match version {
            1300..1800 => 0,
            1800..2000 => 4,
            _ => return None,
        };
        let is_crc = |at: &usize| number(*at) == bytes.get(..*at).map(crc32c::crc32c);
        let crc_at = (200..=508).step_by(4).find(is_crc)?;
        let field = crc_at - NONCE_BYTES - flag_bytes - 4;
        let (block_bytes, segment_blocks) = (number(field - 36)?, number(field - 32)?);
        let is_known =
            block_bytes == BLOCK_BYTES as u32 && number(field - 8)? == block_bytes / 4 && bytes[field - 4] == 1;
        if !is_known || segment_blocks == 0 {
            return None;
        }
        // 2 and 3 are the states between off and on.
        let checksums = match number(field)? {
            0 => Checksums::Off,
            1 => Checksums::On,
            _ => Checksums::Switching,
        };
        Some(Self { catalog_version, checksums, segment_blocks })
    }

    /// Reads the control file of a data directory; None if there is none that this release knows.
    fn read(volume: &Volume, data_directory: &str) -> Result<Option<Self>> {
        let Some(ino) = volume.resolve(&join(data_directory, CONTROL_FILE)) else { return Ok(None) };
        let mut bytes = [0; 512];
        let count = volume.read_uncached(ino, 0, &mut bytes)?;
        Ok(Self::decode(&bytes[..count]))
    }
}

fn join(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") }
}

impl ClusterChecksums {
    /// `mount` is where PostgreSQL finds the root of the volume.
    pub fn new(mount: &Path) -> Self {
        Self { mount: mount.to_owned(), known: Mutex::default() }
    }

    fn control(&self, volume: &Volume, root: &str) -> Result<Option<Control>> {
        match tablespace_version(root) {
            Some(version) => self.control_of_tablespace(volume, root, version),
            None => Control::read(volume, root),
        }
    }

    fn remembered_control(&self, volume: &Volume, root: &str) -> Option<Control> {
        if let Some((since, control)) = self.known.lock().get(root)
            && since.elapsed() < AGE_MAX
        {
            return *control;
        }
        // The search for the cluster of a tablespace lists folders.
        if tablespace_version(root).is_some() && volume.leave_to_waiting_thread() {
            return None;
        }
        // The read fails if the thread must not wait; then the whole read is repeated.
        let control = self.control(volume, root).ok()?;
        self.known.lock().insert(root.to_owned(), (Instant::now(), control));
        control
    }

    /// Returns the control file of the cluster whose tablespace has the version directory `root`: a symbolic link in the
    /// cluster's data directory, on the same volume, leads to the tablespace.
    fn control_of_tablespace(&self, volume: &Volume, root: &str, version: &str) -> Result<Option<Control>> {
        let tablespace = self.mount.join(root.strip_suffix(version).unwrap_or_default());
        let catalog_version = version.rsplit('_').next().and_then(|text| text.parse::<u32>().ok());
        let mut clusters = Vec::new();
        data_directories(volume, ROOT_INO, "", DEPTH_MAX, &mut clusters);
        for (_, path) in clusters.into_iter().filter(|(ino, _)| has_tablespace(volume, *ino, &tablespace)) {
            let control = Control::read(volume, &path)?;
            if control.as_ref().is_some_and(|control| Some(control.catalog_version) == catalog_version) {
                return Ok(control);
            }
        }
        Ok(None)
    }
}

/// Returns the name of the version directory if a root is a tablespace's.
fn tablespace_version(root: &str) -> Option<&str> {
    root.rsplit('/').next().filter(|name| name.starts_with("PG_"))
}

/// Adds the data directories below a folder.
fn data_directories(volume: &Volume, folder: Ino, path: &str, depth: usize, found: &mut Vec<(Ino, String)>) {
    let is_data_directory = volume.entry(folder, b"global").and_then(|global| volume.entry(global, b"pg_control"));
    if is_data_directory.is_some() {
        found.push((folder, path.to_owned()));
        return;
    }
    let mut folders = Vec::new();
    let _removed = volume.readdir(folder, 0, |entry| {
        if entry.kind == Kind::Directory {
            folders.push((entry.ino, join(path, &String::from_utf8_lossy(entry.name))));
        }
        true
    });
    if depth > 0 {
        folders.into_iter().for_each(|(ino, path)| data_directories(volume, ino, &path, depth - 1, found));
    }
}

fn has_tablespace(volume: &Volume, data_directory: Ino, tablespace: &Path) -> bool {
    let Some(links) = volume.entry(data_directory, b"pg_tblspc") else { return false };
    let mut inodes = Vec::new();
    let _removed = volume.readdir(links, 0, |entry| {
        if entry.kind == Kind::Symlink {
            inodes.push(entry.ino);
        }
        true
    });
    let leads_there = |target: Vec<u8>| String::from_utf8(target).is_ok_and(|target| Path::new(&target) == tablespace);
    inodes.into_iter().any(|ino| volume.readlink(ino).is_ok_and(leads_there))
}

impl PageCheck for ClusterChecksums {
    fn may_have_checksums(&self, path: &str) -> bool {
        relation_segment(path).is_some()
    }

    fn first_page(&self, volume: &Volume, path: &str) -> Option<u32> {
        let segment = relation_segment(path)?;
        let control = self.remembered_control(volume, &cluster_root(path))?;
        (control.checksums == Checksums::On).then(|| segment.wrapping_mul(control.segment_blocks))
    }

    fn applies_now(&self, volume: &Volume, path: &str) -> bool {
        let control = self.control(volume, &cluster_root(path));
        control.is_ok_and(|control| control.is_some_and(|control| control.checksums == Checksums::On))
    }

    fn is_valid(&self, page: &[u8], number: u32) -> bool {
        let Ok(page) = <&[u8; BLOCK_BYTES]>::try_from(page) else { return false };
        let stored = u16::from_le_bytes([page[CHECKSUM_AT], page[CHECKSUM_AT + 1]]);
        stored == page_checksum(page, number) || page.iter().all(|byte| *byte == 0)
    }

    /// Returns the LSN of the last change (`pd_lsn`).
    fn version(&self, page: &[u8]) -> u64 {
        page.first_chunk().map_or(0, |lsn| u64::from_le_bytes(*lsn))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cellar_storage::disk::DirectoryDisk;
    use cellar_storage::{NewNode, VolumeOptions};

    const SEGMENT_BLOCKS: u32 = 131_072;

    /// A control file as PostgreSQL writes it.
    fn control(version: u32, checksums: u32) -> Vec<u8> {
        control_with(version, checksums, (8192, SEGMENT_BLOCKS))
    }

    /// Like [`control`], with the bytes of a block and the blocks of a segment.
    fn control_with(version: u32, checksums: u32, (block_bytes, segment_blocks): (u32, u32)) -> Vec<u8> {
        let (field, crc_at) = if version < 1800 { (252, 288) } else { (252, 292) };
        let mut bytes = vec![7; crc_at];
        bytes[8..12].copy_from_slice(&version.to_le_bytes());
        bytes[12..16].copy_from_slice(&202_209_061u32.to_le_bytes());
        bytes[field - 36..field - 32].copy_from_slice(&block_bytes.to_le_bytes());
        bytes[field - 32..field - 28].copy_from_slice(&segment_blocks.to_le_bytes());
        bytes[field - 8..field - 4].copy_from_slice(&2048u32.to_le_bytes());
        bytes[field - 4..field].copy_from_slice(&[1, 0, 0, 0]);
        bytes[field..field + 4].copy_from_slice(&checksums.to_le_bytes());
        let crc = crc32c::crc32c(&bytes);
        bytes.extend(crc.to_le_bytes());
        bytes.resize(512, 0);
        bytes
    }

    #[test]
    fn the_control_file_tells_the_state_of_checksums() {
        let state = |version, checksums| Control::decode(&control(version, checksums)).map(|found| found.checksums);
        for version in [1300, 1800, 1905] {
            assert_eq!(state(version, 0), Some(Checksums::Off));
            assert_eq!(state(version, 1), Some(Checksums::On));
            assert_eq!(state(version, 2), Some(Checksums::Switching));
            assert_eq!(state(version, 3), Some(Checksums::Switching));
        }
        assert_eq!(state(1201, 1), None, "an unknown format");
        assert!(Control::decode(&control_with(1300, 1, (16384, SEGMENT_BLOCKS))).is_none(), "another block size");
        assert!(Control::decode(&control_with(1300, 1, (8192, 0))).is_none());
        let mut torn = control(1300, 1);
        torn[100] ^= 1;
        assert!(Control::decode(&torn).is_none());
        assert!(Control::decode(&torn[..100]).is_none());
    }

    /// Creates a file with its folders.
    fn put(volume: &Volume, path: &str, content: &[u8]) {
        let node = |kind, target| NewNode { kind, mode: 0o700, uid: 0, gid: 0, device: 0, target };
        let (mut folder, names) = (ROOT_INO, path.split('/').collect::<Vec<_>>());
        let (name, folders) = names.split_last().unwrap();
        for name in folders {
            folder = volume
                .entry(folder, name.as_bytes())
                .unwrap_or_else(|| volume.create(folder, name.as_bytes(), &node(Kind::Directory, b"")).unwrap().ino);
        }
        if path.contains("pg_tblspc/") {
            volume.create(folder, name.as_bytes(), &node(Kind::Symlink, content)).unwrap();
            return;
        }
        let ino = volume.entry(folder, name.as_bytes());
        let ino = ino.unwrap_or_else(|| volume.create(folder, name.as_bytes(), &node(Kind::File, b"")).unwrap().ino);
        volume.write(ino, 0, content).unwrap();
    }

    #[test]
    fn the_cluster_of_a_file_decides() {
        let folder = tempfile::tempdir().unwrap();
        let disk = std::sync::Arc::new(DirectoryDisk::new(folder.path().join("disk")).unwrap());
        let volume = Volume::open(vec![disk], VolumeOptions::default()).unwrap();
        put(&volume, "on/global/pg_control", &control(1300, 1));
        put(&volume, "off/global/pg_control", &control(1300, 0));
        put(&volume, "on/pg_tblspc/16400", b"/m/spaces/one");
        put(&volume, "off/pg_tblspc/16400", b"/m/spaces/two");
        put(&volume, "off/pg_tblspc/16401", b"/elsewhere/spaces/one");
        // Segments of 16 MiB.
        put(&volume, "small/global/pg_control", &control_with(1300, 1, (8192, 2048)));
        put(&volume, "small/pg_tblspc/16400", b"/m/spaces/four");
        let check = ClusterChecksums::new(Path::new("/m"));
        let cases = [
            ("on/base/5/1259", Some(0)),
            ("on/base/5/1259.2", Some(2 * SEGMENT_BLOCKS)),
            ("on/base/5/1259_vm", Some(0)),
            ("on/global/1262", Some(0)),
            ("off/base/5/1259", None),
            ("on/base/5/PG_VERSION", None),
            ("on/base/5/t3_16400", None),
            ("on/pg_wal/000000010000000000000001", None),
            ("spaces/one/PG_15_202209061/5/16500.1", Some(SEGMENT_BLOCKS)),
            ("spaces/one/PG_18_202506291/5/16500", None),
            ("spaces/two/PG_15_202209061/5/16500", None),
            ("spaces/three/PG_15_202209061/5/16500", None),
            ("base/5/1259", None),
            ("small/base/5/1259.3", Some(3 * 2048)),
            ("spaces/four/PG_15_202209061/5/16500.5", Some(5 * 2048)),
        ];
        for (path, expected) in cases {
            assert_eq!(check.first_page(&volume, path), expected, "{path}");
            assert_eq!(check.applies_now(&volume, path), expected.is_some() || path.starts_with("on/"), "{path}");
        }
        // A repair does not rely on what was remembered.
        put(&volume, "on/global/pg_control", &control(1300, 3));
        assert_eq!(check.first_page(&volume, "on/base/5/1259"), Some(0));
        assert!(!check.applies_now(&volume, "on/base/5/1259"));
        volume.close().unwrap();
    }

    /// Returns the backing files below a folder with their contents.
    fn backing_files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
        let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let of = |path: PathBuf| match path.is_dir() {
            true => backing_files(&path),
            false => std::fs::read(&path).map(|bytes| vec![(path, bytes)]).unwrap(),
        };
        entries.flat_map(of).collect()
    }

    #[test]
    fn a_start_after_a_crash_reads_the_control_file_when_its_copies_are_equal() {
        let page = |number: u32| {
            let mut page = [number as u8 + 1; BLOCK_BYTES];
            let checksum = page_checksum(&page, number).to_le_bytes();
            page[8..10].copy_from_slice(&checksum);
            page
        };
        let folder = tempfile::tempdir().unwrap();
        let disk = |number: usize| folder.path().join(format!("disk{number}"));
        let open = || {
            let disks = [0, 1].map(|number| std::sync::Arc::new(DirectoryDisk::new(disk(number)).unwrap()) as _);
            let page_check = Some(std::sync::Arc::new(ClusterChecksums::new(Path::new("/m"))) as _);
            let redundancy = cellar_storage::Redundancy::Normal;
            Volume::open(disks.into(), VolumeOptions { page_check, redundancy, ..VolumeOptions::default() })
        };
        let volume = open().unwrap();
        put(&volume, "global/pg_control", &control(1300, 1));
        put(&volume, "base/5/1259", &[page(0), page(1)].concat());
        volume.sync().unwrap();
        volume.abandon();
        drop(volume);
        // One page is damaged on the disk whose copies count, the other one on the other disk.
        for (number, target) in [0, 1].into_iter().enumerate() {
            let found = backing_files(&disk(target).join("data"));
            let (path, mut bytes) = found.into_iter().find(|(_, bytes)| bytes.len() == 2 * BLOCK_BYTES).unwrap();
            bytes[number * BLOCK_BYTES + 500] ^= 1;
            std::fs::write(path, bytes).unwrap();
        }
        // The control file is damaged where its copy does not count: there the number of the copy set is in its name.
        let has_set = |path: &Path| !path.file_name().unwrap().to_string_lossy().starts_with("0000");
        let control = backing_files(folder.path()).into_iter().filter(|(_, bytes)| bytes.len() == 512);
        let others: Vec<_> =
            control.filter(|(path, _)| path.to_string_lossy().contains("/data/") && has_set(path)).collect();
        assert_eq!(others.len(), 1);
        others.iter().for_each(|(path, _)| std::fs::write(path, [0; 512]).unwrap());
        let opened = (0..500).find_map(|_| match open() {
            Err(error) if error.kind() == cellar_storage::ErrorKind::Locked => {
                std::thread::sleep(Duration::from_millis(10));
                None
            }
            opened => Some(opened),
        });
        let volume = opened.unwrap().unwrap();
        let of_relation = |number: usize| {
            let found = backing_files(&disk(number).join("data"));
            found.into_iter().find(|(_, bytes)| bytes.len() == 2 * BLOCK_BYTES).unwrap().1
        };
        assert!(of_relation(0) == [page(0), page(1)].concat() && of_relation(0) == of_relation(1));
        volume.close().unwrap();
    }

    #[test]
    fn a_page_is_valid_at_its_own_number_only() {
        let check = ClusterChecksums::new(Path::new("/m"));
        let mut page = [0u8; BLOCK_BYTES];
        assert!(check.is_valid(&page, 3), "an empty page");
        page[100] = 1;
        let checksum = page_checksum(&page, 131_075).to_le_bytes();
        page[8..10].copy_from_slice(&checksum);
        assert!(check.is_valid(&page, 131_075));
        assert!(!check.is_valid(&page, 131_076));
        page[5000] ^= 1;
        assert!(!check.is_valid(&page, 131_075));
    }
}
