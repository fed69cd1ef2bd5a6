//! Losses of power at any operation on a disk group of two disks: synced content is intact to the byte, and each page
//! that was not synced has its content from before or after one of the writes, or zeros.

mod support;

use cellar_storage::{Ino, ROOT_INO, RenameMode, Result, Volume};
use std::collections::BTreeMap;
use std::sync::Arc;
use support::codec::{compress, compress_together};
use support::memory_disk::{Crash, MemoryDisks};
use support::{MIB, Random, new_file, options, read_all};

const PAGE: usize = 4096;
const ROUNDS: u64 = 40;
const REPLACEMENTS: usize = 20;

/// What a loss of power may leave of a file.
struct File {
    ino: Ino,
    /// A sync has made the name durable.
    has_durable_name: bool,
    is_unlinked: bool,
    /// The content at the last sync, then after each change since.
    versions: Vec<Vec<u8>>,
}

impl File {
    fn content(&self) -> &Vec<u8> {
        self.versions.last().expect("there is at least one version")
    }

    fn synced(&mut self) {
        self.versions.drain(..self.versions.len() - 1);
        self.has_durable_name = true;
    }

    fn check(&self, name: &str, found: &[u8]) {
        if let [only] = &self.versions[..] {
            assert!(found == only, "{name} does not have its synced content");
            return;
        }
        let lengths = self.versions.iter().map(Vec::len);
        assert!(found.len() <= lengths.clone().max().unwrap(), "{name} grew to {}", found.len());
        assert!(found.len() >= lengths.min().unwrap(), "{name} shrank to {}", found.len());
        for (number, page) in found.chunks(PAGE).enumerate() {
            // If the page reached the disk but the file length did not, the page ends in zeros.
            let is_known = |version: &Vec<u8>| {
                let bytes = version.get(number * PAGE..).unwrap_or_default();
                if bytes.starts_with(page) {
                    return true;
                }
                let same = page.iter().zip(bytes).take_while(|(found, written)| found == written).count();
                page[same..].iter().all(|byte| *byte == 0)
            };
            assert!(
                self.versions.iter().any(is_known),
                "page {number} of {name} has neither a version's content nor zeros"
            );
        }
    }
}

/// Changes files until the power is off and records every acknowledged change.
fn change(volume: &Volume, files: &mut BTreeMap<String, File>, round: u64, random: &mut Random) -> Result<()> {
    for step in 0.. {
        let names: Vec<String> =
            files.iter().filter(|(_, file)| !file.is_unlinked).map(|(name, _)| name.clone()).collect();
        let some = (!names.is_empty()).then(|| names[random.below(names.len() as u64) as usize].clone());
        match (random.below(12), some) {
            (0, _) | (_, None) => {
                let name = format!("{round}-{step}");
                let ino = volume.create(ROOT_INO, name.as_bytes(), &new_file())?.ino;
                let file = File { ino, has_durable_name: false, is_unlinked: false, versions: vec![Vec::new()] };
                files.insert(name, file);
            }
            (1..=4, Some(name)) => {
                let file = files.get_mut(&name).unwrap();
                let at = random.below(file.content().len() as u64 + MIB / 2) as usize;
                let limit = if random.below(4) == 0 { MIB } else { 20_000 };
                let length = 1 + random.below(limit) as usize;
                let data = random.bytes(length);
                let mut content = file.content().clone();
                content.resize(content.len().max(at + length), 0);
                content[at..at + length].copy_from_slice(&data);
                file.versions.push(content);
                volume.write(file.ino, at as u64, &data)?;
            }
            (5, Some(name)) => {
                let file = files.get_mut(&name).unwrap();
                let mut content = file.content().clone();
                content.resize(random.below(content.len() as u64 + 100_000) as usize, 0);
                let length = content.len() as u64;
                file.versions.push(content);
                volume.truncate(file.ino, length)?;
            }
            (6 | 7, Some(name)) => {
                let file = files.get_mut(&name).unwrap();
                volume.fsync(file.ino)?;
                file.synced();
            }
            (8, Some(name)) => {
                files.get_mut(&name).unwrap().is_unlinked = true;
                volume.unlink(ROOT_INO, name.as_bytes())?;
                volume.fsyncdir(ROOT_INO)?;
                files.remove(&name);
                files.values_mut().for_each(|file| file.has_durable_name = true);
                assert_eq!(volume.resolve(&name), None);
            }
            (9 | 10, Some(name)) => {
                let file = &files[&name];
                let aus = file.content().len() as u64 / MIB;
                match random.below(3) {
                    _ if aus == 0 => {}
                    0 => drop(compress_together(volume, file.ino, 0..aus, || {})?),
                    _ => drop(compress(volume, file.ino, random.below(aus), 0)?),
                }
            }
            _ => {
                volume.fsyncdir(ROOT_INO)?;
                files.values_mut().for_each(|file| file.has_durable_name = true);
            }
        }
    }
    Ok(())
}

/// Checks the files after a loss of power. Their content becomes the new synced state.
fn check(volume: &Volume, files: &mut BTreeMap<String, File>) {
    let mut found = Vec::new();
    let listed = volume.readdir(ROOT_INO, 0, |entry| {
        found.push(entry.ino);
        true
    });
    listed.unwrap();
    let known: Vec<Ino> = files.keys().filter_map(|name| volume.resolve(name)).collect();
    assert!(found.iter().all(|ino| known.contains(ino) || *ino == ROOT_INO), "a removed file exists again");
    files.retain(|name, file| match volume.resolve(name) {
        Some(ino) => {
            let content = read_all(volume, ino);
            file.check(name, &content);
            *file = File { ino, has_durable_name: true, is_unlinked: false, versions: vec![content] };
            true
        }
        None => {
            assert!(file.is_unlinked || !file.has_durable_name, "{name} is lost");
            false
        }
    });
}

fn open(disks: &MemoryDisks) -> Result<Arc<Volume>> {
    Volume::open(disks.disks(), options())
}

#[test]
fn synced_content_on_two_disks_survives_a_loss_of_power_at_any_operation() {
    let mut random = Random::from_environment();
    let mut disks = MemoryDisks::new(2);
    disks.power_off_after(5);
    let mut files = BTreeMap::new();
    let mut rounds_with_files = 0;
    for round in 0..ROUNDS {
        // Power may also be lost while the group is formed and during recovery.
        match open(&disks) {
            Ok(volume) => {
                check(&volume, &mut files);
                rounds_with_files += u64::from(!files.is_empty());
                change(&volume, &mut files, round, &mut random).expect_err("only the loss of power ends the changes");
                volume.abandon();
            }
            Err(error) => assert!(disks.is_off(), "round {round}: {error}"),
        }
        assert!(disks.is_off());
        let limit = if random.below(3) == 0 { 40 } else { 600 };
        let changes = 1 + random.below(limit);
        disks = disks.crash(Crash::Power, &mut random);
        disks.power_off_after(changes);
    }
    disks = disks.crash(Crash::Power, &mut random);
    let volume = open(&disks).unwrap();
    check(&volume, &mut files);
    assert!(rounds_with_files > ROUNDS / 4, "{rounds_with_files} rounds had something to check");
    volume.close().unwrap();
}

#[test]
fn a_rename_over_a_synced_file_leaves_one_of_the_two_contents() {
    let mut random = Random::from_environment();
    let mut replaced = 0;
    for _ in 0..REPLACEMENTS {
        let disks = MemoryDisks::new(2);
        let volume = open(&disks).unwrap();
        let (old, new) = (random.bytes(MIB as usize + 77), random.bytes(2 * MIB as usize - 5));
        let ino = volume.create(ROOT_INO, b"file", &new_file()).unwrap().ino;
        volume.write(ino, 0, &old).unwrap();
        volume.fsync(ino).unwrap();
        volume.abandon();
        drop(volume);

        let changes = 5 + random.below(150);
        let disks = disks.crash(Crash::Power, &mut random);
        disks.power_off_after(changes);
        let replace = || -> Result<()> {
            let volume = open(&disks)?;
            let result = (|| {
                let ino = volume.create(ROOT_INO, b"new", &new_file())?.ino;
                volume.write(ino, 0, &new)?;
                volume.fsync(ino)?;
                volume.rename((ROOT_INO, b"new"), (ROOT_INO, b"file"), RenameMode::Replace)?;
                volume.fsyncdir(ROOT_INO)
            })();
            volume.abandon();
            result
        };
        let result = replace();
        assert!(result.is_ok() || disks.is_off(), "{result:?}");

        let disks = disks.crash(Crash::Power, &mut random);
        let volume = open(&disks).unwrap();
        let found = read_all(&volume, volume.resolve("file").expect("one of the two files has the name"));
        assert!(found == new || found == old && result.is_err(), "the file has neither content");
        replaced += usize::from(found == new);
        volume.close().unwrap();
    }
    assert!((1..REPLACEMENTS).contains(&replaced), "{replaced} of {REPLACEMENTS} were replaced");
}
