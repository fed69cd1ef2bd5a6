//! Losses of power and kills of the process at any operation of a device engine. What was synced is intact to the byte.
//! Each sector that was not synced has its content from before or after one of the changes, or zeros; never bytes of
//! another file, and never bytes that the file had before it was truncated.
//!
//! `SEED` selects one seed; `LONG=1` runs sixty times as many.

use crate::support;
use cellar_storage::disk::{DeviceDisk, Disk, Stream};
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use support::Random;
use support::memory_medium::MemoryMedium;

const DEVICE_BYTES: usize = 16 << 20;
const SECTOR: usize = 512;
const SEEDS: u64 = 4;
const CRASHES: u64 = 12;

/// What a crash may leave of a file.
#[derive(Debug, Default)]
struct File {
    has_durable_name: bool,
    /// The creation returned.
    is_created: bool,
    is_removed: bool,
    /// The content at the last sync, then after each change since.
    versions: Vec<Vec<u8>>,
}

impl File {
    fn last(&self) -> &Vec<u8> {
        self.versions.last().expect("there is at least one version")
    }

    fn check(&self, ino: u64, found: &[u8]) {
        if let [only] = &self.versions[..] {
            assert!(found == only, "inode {ino} does not have its synced content");
            return;
        }
        let lengths = self.versions.iter().map(Vec::len);
        let (least, most) = (lengths.clone().min().unwrap(), lengths.max().unwrap());
        assert!((least..=most).contains(&found.len()), "inode {ino} has {} bytes", found.len());
        for (number, sector) in found.chunks(SECTOR).enumerate() {
            let is_version = |version: &Vec<u8>| {
                let bytes = version.get(number * SECTOR..).unwrap_or_default();
                let known = bytes.len().min(sector.len());
                sector[..known] == bytes[..known] && sector[known..].iter().all(|byte| *byte == 0)
            };
            let is_known = sector.iter().all(|byte| *byte == 0) || self.versions.iter().any(is_version);
            assert!(is_known, "sector {number} of inode {ino} has neither a version's content nor zeros");
        }
    }
}

type Files = BTreeMap<u64, File>;

fn open(medium: &MemoryMedium) -> DeviceDisk {
    let disk = DeviceDisk::on(Arc::new(medium.clone()), PathBuf::from("memory"), false).unwrap();
    assert!(disk.lock().unwrap());
    disk
}

fn synced(files: &mut Files) {
    files.retain(|_, file| !file.is_removed);
    for file in files.values_mut() {
        file.versions.drain(..file.versions.len() - 1);
        file.has_durable_name = true;
    }
}

/// Changes files until the power is off, or `steps` are done.
fn change(disk: &DeviceDisk, files: &mut Files, next_ino: &mut u64, steps: u64, random: &mut Random) -> io::Result<()> {
    for _ in 0..steps {
        let living: Vec<u64> = files.iter().filter(|(_, file)| !file.is_removed).map(|(ino, _)| *ino).collect();
        let some = (!living.is_empty()).then(|| living[random.below(living.len() as u64) as usize]);
        let (kind, ino) = (random.below(14), some);
        let Some(ino) = ino.filter(|_| kind > 1 && living.len() < 12) else {
            if kind > 7
                && let Some(ino) = ino
            {
                files.get_mut(&ino).unwrap().is_removed = true;
                disk.remove(ino, Stream::Data)?;
                continue;
            }
            let ino = *next_ino;
            *next_ino += 1;
            files.insert(ino, File { versions: vec![Vec::new()], ..File::default() });
            disk.open(ino, Stream::Data, true)?;
            files.get_mut(&ino).unwrap().is_created = true;
            continue;
        };
        let file = disk.open(ino, Stream::Data, false)?.expect("the file exists");
        let known = files.get_mut(&ino).unwrap();
        let mut content = known.last().clone();
        let near = content.len() as u64 + 9000;
        match kind {
            2..=6 => {
                let at = random.below(near) as usize;
                let limit = if random.below(4) == 0 { 150_000 } else { 9000 };
                let length = 1 + random.below(limit) as usize;
                let data: Vec<u8> = (0..length).map(|_| 1 + random.below(255) as u8).collect();
                content.resize(content.len().max(at + length), 0);
                content[at..at + length].copy_from_slice(&data);
                known.versions.push(content);
                file.write_at(&data, at as u64)?;
            }
            7 | 8 => {
                let length = random.below(near.min(400_000));
                content.resize(length as usize, 0);
                known.versions.push(content);
                file.set_len(length)?;
            }
            9 => {
                let (at, length) = (random.below(near), 1 + random.below(40_000));
                let end = (at + length).min(content.len() as u64) as usize;
                content[(at as usize).min(end)..end].fill(0);
                known.versions.push(content);
                file.punch(at, length)?;
            }
            10 => {
                let (at, length) = (random.below(near), 1 + random.below(40_000));
                let keep_size = random.below(2) == 0;
                if !keep_size {
                    content.resize(content.len().max((at + length) as usize), 0);
                }
                known.versions.push(content);
                file.allocate(at, length, keep_size)?;
            }
            11 => {
                known.is_removed = true;
                disk.remove(ino, Stream::Data)?;
            }
            _ => {
                file.sync()?;
                synced(files);
            }
        }
        let file = files.get(&ino);
        if let Some(known) = file.filter(|file| !file.is_removed) {
            let mut bytes = vec![0; known.last().len() + 1];
            let count = disk.open(ino, Stream::Data, false)?.unwrap().read_at(&mut bytes, 0)?;
            assert!(bytes[..count] == *known.last(), "inode {ino} reads back differently");
        }
    }
    Ok(())
}

/// Checks the files after a restart. What is found becomes the state from which the next changes start.
fn check(disk: &DeviceDisk, files: &mut Files, lost_power: bool) {
    let found: Vec<u64> = disk.backing_files().unwrap().into_iter().map(|(ino, _)| ino).collect();
    for ino in &found {
        assert!(files.contains_key(ino), "inode {ino} exists again");
    }
    files.retain(|ino, file| {
        let Some(opened) = disk.open(*ino, Stream::Data, false).unwrap() else {
            let may_miss = file.is_removed || !file.is_created || lost_power && !file.has_durable_name;
            assert!(may_miss, "inode {ino} is lost");
            return false;
        };
        let mut bytes = vec![0; opened.len().unwrap() as usize];
        assert_eq!(opened.read_at(&mut bytes, 0).unwrap(), bytes.len());
        // A killed process loses at most the operation that it was in.
        let recent = file.versions.len().saturating_sub(2);
        if !lost_power {
            file.versions.drain(..recent);
        }
        file.check(*ino, &bytes);
        // Unsynced bytes that survived a kill are not durable: a loss of power may still take them.
        *file = File { versions: vec![bytes], has_durable_name: true, is_created: true, is_removed: false };
        true
    });
    // Syncing makes what was found durable, which the next check relies on.
    disk.sync_everything().unwrap();
}

fn run(seed: u64) -> u64 {
    let mut random = Random::seeded(seed);
    let mut medium = MemoryMedium::new(DEVICE_BYTES);
    let (mut files, mut next_ino, mut lost_power, mut checked) = (Files::new(), 1, true, 0);
    for _ in 0..CRASHES {
        let disk = open(&medium);
        check(&disk, &mut files, lost_power);
        checked += files.len() as u64;
        let limit = if random.below(3) == 0 { 30 } else { 1500 };
        let operations = random.below(limit);
        medium.power_off_after(operations);
        if let Err(error) = change(&disk, &mut files, &mut next_ino, 400, &mut random) {
            assert!(medium.is_off() || error.kind() == io::ErrorKind::StorageFull, "{error}");
        }
        drop(disk);
        lost_power = random.below(4) > 0;
        medium = medium.restarted(lost_power, &mut random);
    }
    check(&open(&medium), &mut files, lost_power);
    checked
}

#[test]
fn synced_content_survives_a_crash_at_any_operation_and_nothing_else_appears() {
    let one = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    let count = if std::env::var_os("LONG").is_some() { SEEDS * 60 } else { SEEDS };
    let seeds = one.map_or(0..count, |seed| seed..seed + 1);
    let mut checked = 0;
    for seed in seeds.clone() {
        println!("SEED={seed}");
        checked += run(seed);
    }
    assert!(one.is_some() || checked > 20 * count, "{checked} files were checked");
}

/// A file shrank, grew again and was synced in between: the bytes that it lost must not come back.
#[test]
fn a_file_that_grows_after_a_loss_of_power_reads_zeros_behind_its_old_end() {
    for seed in 0..40 {
        let mut random = Random::seeded(seed);
        let medium = MemoryMedium::new(DEVICE_BYTES);
        let disk = open(&medium);
        let file = disk.open(1, Stream::Data, true).unwrap().unwrap();
        file.write_at(&[7; 5000], 0).unwrap();
        file.sync().unwrap();
        // Not synced: an extension, in the last block and in new blocks.
        file.write_at(&[8; 20_000], 5000).unwrap();
        drop((file, disk));
        let medium = medium.restarted(true, &mut random);
        let disk = open(&medium);
        let file = disk.open(1, Stream::Data, false).unwrap().expect("the name is durable");
        let length = file.len().unwrap() as usize;
        assert!(length == 5000 || length == 25_000, "seed {seed}: {length} bytes");
        file.set_len(30_000).unwrap();
        let mut bytes = vec![9; 30_000];
        assert_eq!(file.read_at(&mut bytes, 0).unwrap(), 30_000);
        let behind = if length == 5000 { &bytes[5000..] } else { &bytes[25_000..] };
        assert!(bytes[..5000] == [7; 5000] && behind.iter().all(|byte| *byte == 0), "seed {seed}");
    }
}

#[test]
fn blocks_of_a_removed_file_are_not_used_before_the_removal_is_durable() {
    let mut random = Random::seeded(1);
    let medium = MemoryMedium::new(DEVICE_BYTES);
    let disk = open(&medium);
    let kept = disk.open(1, Stream::Data, true).unwrap().unwrap();
    kept.write_at(&vec![7; 8 << 20], 0).unwrap();
    kept.sync().unwrap();
    drop(kept);
    disk.remove(1, Stream::Data).unwrap();
    // Fits only in part beside the removed file; what does not fit makes the removal durable first.
    let other = disk.open(2, Stream::Data, true).unwrap().unwrap();
    other.write_at(&vec![8; 3 << 20], 0).unwrap();
    drop((other, disk));
    let restarted = medium.restarted(true, &mut random);
    let disk = open(&restarted);
    if let Some(file) = disk.open(1, Stream::Data, false).unwrap() {
        let mut bytes = vec![0; 8 << 20];
        assert_eq!(file.read_at(&mut bytes, 0).unwrap(), bytes.len());
        assert!(bytes.iter().all(|byte| *byte == 7));
    }
    let file = disk.open(3, Stream::Data, true).unwrap().unwrap();
    disk.remove(1, Stream::Data).unwrap();
    file.write_at(&vec![9; 10 << 20], 0).expect("a removed file's blocks are free after a sync");
}

#[test]
fn metadata_that_a_failed_sync_dropped_are_written_again() {
    let mut random = Random::seeded(1);
    let medium = MemoryMedium::new(DEVICE_BYTES);
    let disk = open(&medium);
    let file = disk.open(1, Stream::Data, true).unwrap().unwrap();
    file.write_at(&[7; 5000], 0).unwrap();
    file.sync().unwrap();
    file.set_len(100_000).unwrap();
    medium.fail_next_sync();
    file.sync().unwrap_err();
    file.set_len(50_000).unwrap();
    file.sync().unwrap();
    drop((file, disk));
    let disk = open(&medium.restarted(true, &mut random));
    assert_eq!(disk.measure(1, Stream::Data).unwrap().0, 50_000);
}
