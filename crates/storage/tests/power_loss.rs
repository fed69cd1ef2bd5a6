//! Losses of power at any operation on a disk group of two disks: synced content is intact to the byte, and each page
//! that was not synced has its content from before or after one of the writes, or zeros.

use crate::support;
use cellar_storage::{ROOT_INO, RenameMode, Result, Volume};
use std::collections::BTreeMap;
use std::sync::Arc;
use support::history::{change, check};
use support::memory_disk::{Crash, MemoryDisks};
use support::{MIB, Random, new_file, options, read_all};

const ROUNDS: u64 = 40;
const REPLACEMENTS: usize = 20;

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
                change(&volume, &mut files, round, u64::MAX, &mut random)
                    .expect_err("only the loss of power ends the changes");
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
