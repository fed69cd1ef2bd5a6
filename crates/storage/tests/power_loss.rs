//! Power is lost at any operation on a disk group of two disks: what was synced is there to the byte, and of the rest
//! each page is as it was, as it was written, or zeros.

mod support;

use cellar_storage::disk::Disk;
use cellar_storage::{Ino, ROOT_INO, RenameMode, Result, Volume};
use std::collections::BTreeMap;
use std::sync::Arc;
use support::codec::compress;
use support::power::{Power, PowerDisk};
use support::{MIB, Random, new_file, options, read_all};

const PAGE: usize = 4096;
const PLENTY: u64 = 1 << 40;
const ROUNDS: u64 = 40;
const REPLACEMENTS: usize = 20;

/// What a file may be after the loss.
struct File {
    ino: Ino,
    /// A sync said that its name is durable.
    has_durable_name: bool,
    is_unlinked: bool,
    /// Its content at the last sync, then as each change since left it.
    versions: Vec<Vec<u8>>,
}

impl File {
    fn content(&self) -> &Vec<u8> {
        self.versions.last().expect("there is always one version")
    }

    fn synced(&mut self) {
        self.versions.drain(..self.versions.len() - 1);
        self.has_durable_name = true;
    }

    fn check(&self, name: &str, found: &[u8]) {
        if let [only] = &self.versions[..] {
            assert!(found == only, "{name} is not what was synced");
            return;
        }
        let lengths = self.versions.iter().map(Vec::len);
        assert!(found.len() <= lengths.clone().max().unwrap(), "{name} grew to {}", found.len());
        assert!(found.len() >= lengths.min().unwrap(), "{name} shrank to {}", found.len());
        for (number, page) in found.chunks(PAGE).enumerate() {
            // A page may have arrived and the length that goes with it not: it then ends in zeros.
            let is_known = |version: &Vec<u8>| {
                let bytes = version.get(number * PAGE..).unwrap_or_default();
                if bytes.starts_with(page) {
                    return true;
                }
                let same = page.iter().zip(bytes).take_while(|(found, written)| found == written).count();
                page[same..].iter().all(|byte| *byte == 0)
            };
            assert!(self.versions.iter().any(is_known), "page {number} of {name} is none of its states, nor zeros");
        }
    }
}

/// Changes files until the power ends; everything that was acknowledged is noted.
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
                if aus > 0 {
                    compress(volume, file.ino, random.below(aus), 0)?;
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

/// Checks what is left and takes it for what will be there from now on.
fn check(volume: &Volume, files: &mut BTreeMap<String, File>) {
    let mut found = Vec::new();
    let listed = volume.readdir(ROOT_INO, 0, |entry| {
        found.push(entry.ino);
        true
    });
    listed.unwrap();
    let known: Vec<Ino> = files.keys().filter_map(|name| volume.resolve(name)).collect();
    assert!(found.iter().all(|ino| known.contains(ino) || *ino == ROOT_INO), "a file is back that was removed");
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

type Disks = [Arc<PowerDisk>; 2];

fn open(disks: &Disks) -> Result<Arc<Volume>> {
    Volume::open(disks.iter().map(|disk| disk.clone() as Arc<dyn Disk>).collect(), options())
}

fn lose_power(disks: &mut Disks, random: &mut Random, changes: u64) -> Arc<Power> {
    let power = Power::for_changes(changes);
    *disks = [0, 1].map(|index: usize| disks[index].after_loss(random, power.clone()));
    power
}

#[test]
fn what_was_synced_to_two_disks_survives_the_loss_of_power_at_any_operation() {
    let mut random = Random::from_environment();
    let mut power = Power::for_changes(5);
    let mut disks = ["disk1", "disk2"].map(|path| PowerDisk::blank(path, power.clone()));
    let mut files = BTreeMap::new();
    let mut rounds_with_files = 0;
    for round in 0..ROUNDS {
        // Forming the group and recovering may be cut short, too.
        match open(&disks) {
            Ok(volume) => {
                check(&volume, &mut files);
                rounds_with_files += u64::from(!files.is_empty());
                change(&volume, &mut files, round, &mut random).expect_err("it ends when the power does");
                volume.abandon();
            }
            Err(error) => assert!(power.is_off(), "round {round}: {error}"),
        }
        assert!(power.is_off());
        let limit = if random.below(3) == 0 { 40 } else { 600 };
        let changes = 1 + random.below(limit);
        power = lose_power(&mut disks, &mut random, changes);
    }
    lose_power(&mut disks, &mut random, PLENTY);
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
        let mut disks = ["disk1", "disk2"].map(|path| PowerDisk::blank(path, Power::for_changes(PLENTY)));
        let volume = open(&disks).unwrap();
        let (old, new) = (random.bytes(MIB as usize + 77), random.bytes(2 * MIB as usize - 5));
        let ino = volume.create(ROOT_INO, b"file", &new_file()).unwrap().ino;
        volume.write(ino, 0, &old).unwrap();
        volume.fsync(ino).unwrap();
        volume.abandon();
        drop(volume);

        let changes = 5 + random.below(150);
        let power = lose_power(&mut disks, &mut random, changes);
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
        assert!(result.is_ok() || power.is_off(), "{result:?}");

        lose_power(&mut disks, &mut random, PLENTY);
        let volume = open(&disks).unwrap();
        let found = read_all(&volume, volume.resolve("file").expect("one of them has the name"));
        assert!(found == new || found == old && result.is_err(), "the file is neither");
        replaced += usize::from(found == new);
        volume.close().unwrap();
    }
    assert!((1..REPLACEMENTS).contains(&replaced), "{replaced} of {REPLACEMENTS} were replaced");
}
