//! A history of changes to a volume's files, and what a crash may leave of them.

use super::codec::{compress, compress_together};
use super::{MIB, Random, new_file, read_all};
use cellar_storage::{Ino, ROOT_INO, Result, Volume};
use std::collections::BTreeMap;

const PAGE: usize = 4096;

/// What a loss of power may leave of a file.
pub struct File {
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

    pub fn synced(&mut self) {
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

/// Changes files until an operation fails, because the power is off or a disk is lost, and records every acknowledged
/// change. Ends without an error after `steps` changes.
pub fn change(
    volume: &Volume,
    files: &mut BTreeMap<String, File>,
    round: u64,
    steps: u64,
    random: &mut Random,
) -> Result<()> {
    for step in 0..steps {
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

/// Writes whole pages of 8 KiB within a file, as PostgreSQL does: one page, or a few, again and again near the start of the file.
pub fn overwrite_pages(
    volume: &Volume,
    files: &mut BTreeMap<String, File>,
    count: u64,
    random: &mut Random,
) -> Result<()> {
    const BLOCK: usize = 8192;
    for _ in 0..count {
        let long = files.values_mut().filter(|file| !file.is_unlinked && file.content().len() >= 4 * BLOCK);
        let mut long: Vec<&mut File> = long.collect();
        if long.is_empty() {
            return Ok(());
        }
        let file = long.swap_remove(random.below(long.len() as u64) as usize);
        let blocks = (file.content().len() / BLOCK) as u64;
        let limit = if random.below(2) == 0 { blocks - 2 } else { 2 };
        let (first, count) = (random.below(limit) as usize, 1 + random.below(2) as usize);
        let data = random.bytes(count * BLOCK);
        let mut content = file.content().clone();
        content[first * BLOCK..first * BLOCK + data.len()].copy_from_slice(&data);
        file.versions.push(content);
        volume.write(file.ino, (first * BLOCK) as u64, &data)?;
        if random.below(6) == 0 {
            volume.fsync(file.ino)?;
            file.synced();
        }
    }
    Ok(())
}

/// Checks that each file has the content of the last change.
pub fn check_current(volume: &Volume, files: &BTreeMap<String, File>) {
    for (name, file) in files.iter().filter(|(_, file)| !file.is_unlinked) {
        assert!(read_all(volume, file.ino) == *file.content(), "{name} does not have its last content");
    }
}

/// Checks the files after a loss of power. Their content becomes the new synced state.
pub fn check(volume: &Volume, files: &mut BTreeMap<String, File>) {
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

/// Returns the seeds of the histories to run: that of the environment variable SEED, or `count` seeds, or `long` of them with
/// LONG=1.
pub fn seeds(count: u64, long: u64) -> Vec<u64> {
    let number = |name| std::env::var(name).ok().and_then(|value| value.parse().ok());
    match number("SEED") {
        Some(seed) => vec![seed],
        None => (0..if number("LONG") == Some(1) { long } else { count }).collect(),
    }
}

/// Runs a history for each seed. Returns what the histories return, and the seeds of those that panicked.
pub fn run_histories<T>(seeds: Vec<u64>, run: impl Fn(u64) -> T + std::panic::RefUnwindSafe) -> (Vec<T>, Vec<u64>) {
    let (mut results, mut failed) = (Vec::new(), Vec::new());
    for seed in seeds {
        match std::panic::catch_unwind(|| run(seed)) {
            Ok(result) => results.push(result),
            Err(_) => failed.push(seed),
        }
    }
    (results, failed)
}
