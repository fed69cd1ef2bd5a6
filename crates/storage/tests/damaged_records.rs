//! Records of the metadata store with damage that the store's own checksums do not detect, as defective memory leaves them:
//! opening the volume and reading all files ends with bytes or errors, and never panics.

mod support;

use cellar_format::units::AuIndex;
use cellar_storage::disk::{DirectoryDisk, Disk};
use cellar_storage::{ErrorKind, Ino, Kind, NewNode, ROOT_INO, UnitStored, Volume};
use redb::{Database, Key, ReadableDatabase, ReadableTable, TableDefinition, Value};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use support::codec::{PAGE, compress};
use support::{MIB, Random, create, new_directory, new_file, options};

const INODES: TableDefinition<u64, &[u8]> = TableDefinition::new("inodes");
const DENTRIES: TableDefinition<(u64, &[u8]), u64> = TableDefinition::new("dentries");
const EXTENTS: TableDefinition<(u64, u64), &[u8]> = TableDefinition::new("extents");
const PLACEMENTS: TableDefinition<(u64, u64), &[u8]> = TableDefinition::new("placements");

/// Damaged stores of `make test`; LONG=1 tries more.
const CASES: u64 = 60;
const CASES_LONG: u64 = 20_000;

/// Panics of any thread. The storage turns a panic during a read of the metadata into an error, which a test would accept.
static PANICS: AtomicUsize = AtomicUsize::new(0);

fn open(folder: &Path) -> cellar_storage::Result<Arc<Volume>> {
    let disk: Arc<dyn Disk> = Arc::new(DirectoryDisk::new(folder.join("disk")).unwrap());
    Volume::open(vec![disk], options())
}

/// Creates a cell disk with two files that have compression units, a directory, a link and an empty file.
fn prepare(folder: &Path) {
    let volume = open(folder).unwrap();
    for name in ["one", "other"] {
        let ino = create(&volume, name);
        volume.write(ino, 0, &[7; 2 * MIB as usize + PAGE]).unwrap();
        volume.fsync(ino).unwrap();
        assert_eq!(compress(&volume, ino, 0, 1).unwrap(), UnitStored::Stored);
        assert_eq!(compress(&volume, ino, 1, 1).unwrap(), UnitStored::Stored);
        volume.write(ino, 3 * PAGE as u64, &[8; PAGE]).unwrap();
        volume.fsync(ino).unwrap();
    }
    let folder = volume.create(ROOT_INO, b"folder", &new_directory()).unwrap().ino;
    volume.create(folder, b"empty", &new_file()).unwrap();
    let link = NewNode { kind: Kind::Symlink, target: b"one", ..new_file() };
    volume.create(folder, b"link", &link).unwrap();
    volume.close().unwrap();
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to.join(entry.file_name())),
            false => _ = std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap(),
        }
    }
}

/// Changes, truncates or extends bytes.
fn damage(random: &mut Random, bytes: &mut Vec<u8>) {
    match random.below(6) {
        0 => bytes.truncate(random.below(bytes.len() as u64 + 1) as usize),
        1 => bytes.extend((0..1 + random.below(40)).map(|at| at as u8)),
        _ => {
            for _ in 0..1 + random.below(3) {
                let at = random.below(bytes.len().max(1) as u64) as usize;
                let values = [0, 1, 0x7f, 0x80, 0xff, random.next() as u8];
                let Some(rest) = bytes.get_mut(at..) else { continue };
                let length = rest.len().min(1 << random.below(4));
                rest[..length].fill(values[random.below(6) as usize]);
            }
        }
    }
}

/// A number near the valid ones, or far from them.
fn number(random: &mut Random) -> u64 {
    [random.below(8), random.below(1 << 12), 1 << random.below(64), u64::MAX - random.below(3)]
        [random.below(4) as usize]
}

fn records<K: Key + 'static, V: Value + 'static, T>(
    database: &Database,
    table: TableDefinition<'_, K, V>,
    owned: impl Fn(K::SelfType<'_>, V::SelfType<'_>) -> T,
) -> Vec<T> {
    let transaction = database.begin_read().unwrap();
    let Ok(table) = transaction.open_table(table) else { return Vec::new() };
    let records = table.iter().unwrap().map(|record| record.unwrap());
    records.map(|(key, value)| owned(key.value(), value.value())).collect()
}

/// Damages one to three records of the metadata of a cell disk.
fn damage_store(random: &mut Random, folder: &Path) {
    let database = Database::open(folder.join("disk/metadata.redb")).unwrap();
    for _ in 0..1 + random.below(3) {
        let inodes = records(&database, INODES, |key, value| (key, value.to_vec()));
        let extents = records(&database, EXTENTS, |key, value| (key, value.to_vec()));
        let names = records(&database, DENTRIES, |(parent, name), ino| (parent, name.to_vec(), ino));
        let any = |random: &mut Random, count: usize| random.below(count.max(1) as u64) as usize;
        let transaction = database.begin_write().unwrap();
        match random.below(8) {
            0..=2 => {
                let Some((key, mut value)) = inodes.get(any(random, inodes.len())).cloned() else { continue };
                damage(random, &mut value);
                let key = if random.below(4) == 0 { number(random) } else { key };
                transaction.open_table(INODES).unwrap().insert(key, &value[..]).unwrap();
            }
            3 => {
                let Some((key, _)) = inodes.get(any(random, inodes.len())) else { continue };
                transaction.open_table(INODES).unwrap().remove(key).unwrap();
            }
            4..=5 => {
                let Some(((ino, au), mut value)) = extents.get(any(random, extents.len())).cloned() else { continue };
                damage(random, &mut value);
                let key = match random.below(4) {
                    0 => (number(random), au),
                    1 => (ino, number(random)),
                    _ => (ino, au),
                };
                transaction.open_table(EXTENTS).unwrap().insert(key, &value[..]).unwrap();
            }
            6 => {
                let Some((mut parent, mut name, mut ino)) = names.get(any(random, names.len())).cloned() else {
                    continue;
                };
                match random.below(3) {
                    0 => parent = number(random),
                    1 => ino = number(random),
                    _ => damage(random, &mut name),
                }
                transaction.open_table(DENTRIES).unwrap().insert((parent, &name[..]), ino).unwrap();
            }
            _ => {
                // Version 1, one run of regions, no leftover: random numbers in the places of counts and bounds.
                let mut value = vec![1];
                for _ in 0..random.below(12) {
                    value.extend((number(random) as u32).to_le_bytes());
                }
                damage(random, &mut value);
                let key = (2 + random.below(4), random.below(4));
                transaction.open_table(PLACEMENTS).unwrap().insert(key, &value[..]).unwrap();
            }
        }
        transaction.commit().unwrap();
    }
}

/// Reads all names, attributes and units, and parts of all files.
fn read(volume: &Volume, parent: Ino, depth: usize) {
    let mut entries = Vec::new();
    // An error is as good as an answer.
    let _ = volume.readdir(parent, 0, |entry| {
        entries.push((entry.ino, entry.kind));
        entries.len() < 100
    });
    for (ino, kind) in entries {
        let _ = (volume.getattr(ino), volume.path_of(ino));
        match kind {
            Kind::Directory if depth < 5 => read(volume, ino, depth + 1),
            Kind::File => {
                let mut buffer = vec![0; 5 * PAGE];
                for offset in [0, MIB - 100, 2 * MIB, 1 << 40] {
                    let _ = volume.read(ino, offset, &mut buffer);
                }
                for au in [0, 1, 2, u64::from(u32::MAX)] {
                    let _ = volume.unit_reader(ino, AuIndex(au));
                }
            }
            _ => {}
        }
    }
}

#[test]
fn damaged_records_of_the_metadata_store_never_panic() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        PANICS.fetch_add(1, Ordering::Relaxed);
        hook(panic);
    }));
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let count = if std::env::var_os("LONG").is_some() { CASES_LONG } else { CASES };
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("sound")).unwrap();
    prepare(&folder.path().join("sound"));
    let mut refused = 0;
    for case in seed..seed + count {
        let damaged = folder.path().join("damaged");
        copy(&folder.path().join("sound"), &damaged);
        damage_store(&mut Random::seeded(case), &damaged);
        match open(&damaged) {
            Ok(volume) => {
                read(&volume, ROOT_INO, 0);
                let _ = volume.close();
            }
            Err(_) => refused += 1,
        }
        assert_eq!(PANICS.load(Ordering::Relaxed), 0, "SEED={case}");
        std::fs::remove_dir_all(&damaged).unwrap();
    }
    // A store that opens with damage is one whose records are still valid, so both results must occur.
    assert!(refused > count / 5 && refused < count, "{refused} of {count} stores were refused");
}

/// Copies a record to another key and returns the error of opening the volume.
fn error_after<K: Key + 'static>(
    table: TableDefinition<'_, K, &[u8]>,
    key: impl Fn(K::SelfType<'_>) -> K::SelfType<'static>,
) -> String {
    let folder = tempfile::tempdir().unwrap();
    prepare(folder.path());
    let database = Database::open(folder.path().join("disk/metadata.redb")).unwrap();
    let (key, value) = records(&database, table, |found, value| (key(found), value.to_vec())).pop().unwrap();
    let transaction = database.begin_write().unwrap();
    transaction.open_table(table).unwrap().insert(key, &value[..]).unwrap();
    transaction.commit().unwrap();
    drop(database);
    let error = open(folder.path()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    error.to_string()
}

#[test]
fn numbers_beyond_their_bounds_are_errors_with_the_number() {
    let error = error_after(INODES, |ino| ino | 1 << 40);
    assert!(error.contains("is too large"), "{error}");
    let error = error_after(EXTENTS, |(ino, _)| (ino, 1 << 44));
    assert!(error.contains(&format!("allocation unit {}", 1u64 << 44)), "{error}");
}
