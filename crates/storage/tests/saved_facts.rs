//! Facts about files that a clean stop saves: the next start returns them only if the files are unchanged.

use crate::support;
use cellar_storage::disk::{Disk, Fault, FaultyDisk, OverlayDisk};
use cellar_storage::{Ino, ReadOnlyVolume, Volume, VolumeOptions};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use support::codec::{PAGE, compress};
use support::limited_disk::LimitedDisk;
use support::memory_disk::{Crash, MemoryDisks};
use support::{MIB, Random, create, disks, open, options, read_all};

const FILE: &str = "storage-index";

/// The fact that the tests save about a file: a checksum of its content.
fn fact(volume: &Volume, ino: Ino) -> u32 {
    crc32c::crc32c(&read_all(volume, ino))
}

/// Stops the volume cleanly and saves a fact about each file.
fn close_with_facts(volume: &Volume, files: &[Ino]) {
    let facts: Vec<_> = files.iter().map(|ino| (*ino, fact(volume, *ino))).collect();
    volume
        .close_saving_facts(files.iter().copied(), |writer| {
            for (ino, fact) in facts {
                writer.record(|out| {
                    out.extend(ino.to_le_bytes());
                    out.extend(fact.to_le_bytes());
                })?;
            }
            Ok(())
        })
        .unwrap();
}

/// Returns the facts about unchanged files; None if there are no valid facts.
fn taken(volume: &Volume) -> Option<BTreeMap<Ino, u32>> {
    let mut saved = volume.take_saved_facts()?;
    let mut facts = BTreeMap::new();
    while let Some(frame) = saved.next_frame().ok()? {
        for record in frame.chunks(12) {
            let ino = Ino::from_le_bytes(record[..8].try_into().unwrap());
            if saved.is_unchanged(ino) {
                facts.insert(ino, u32::from_le_bytes(record[8..].try_into().unwrap()));
            }
        }
    }
    Some(facts)
}

fn written(volume: &Volume, name: &str, fill: u8) -> Ino {
    let ino = create(volume, name);
    volume.write(ino, 0, &vec![fill; MIB as usize + 5000]).unwrap();
    ino
}

fn is_on_disk(folder: &Path) -> bool {
    folder.join("disk0").join(FILE).exists()
}

#[test]
fn facts_of_a_clean_stop_are_returned_once_also_about_compressed_files() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open(folder.path(), 2);
    let files = [written(&volume, "raw", 1), written(&volume, "compressed", 2)];
    volume.fsync(files[1]).unwrap();
    compress(&volume, files[1], 0, 1).unwrap();
    volume.write(files[1], 3 * PAGE as u64, &[9; PAGE]).unwrap();
    let facts: BTreeMap<_, _> = files.iter().map(|ino| (*ino, fact(&volume, *ino))).collect();
    close_with_facts(&volume, &files);
    drop(volume);
    assert!(is_on_disk(folder.path()));

    let volume = open(folder.path(), 2);
    assert!(!is_on_disk(folder.path()), "removed before the first request");
    assert_eq!(taken(&volume), Some(facts.clone()));
    assert_eq!(files.map(|ino| fact(&volume, ino)), files.map(|ino| facts[&ino]));
    assert_eq!(taken(&volume), None);
    close_with_facts(&volume, &files[..1]);
    drop(volume);

    let volume = open(folder.path(), 2);
    assert_eq!(taken(&volume).unwrap().len(), 1, "the second stop saved its own facts");
    volume.close().unwrap();
    drop(volume);
    assert_eq!(taken(&open(folder.path(), 2)), None, "a stop that saves nothing leaves nothing");
}

/// Reads a named file of the first disk; None if it does not exist.
fn named(disks: &MemoryDisks, name: &str) -> Option<Vec<u8>> {
    let file = disks.disks()[0].open_existing(name).unwrap()?;
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_at(&mut bytes, 0).unwrap();
    Some(bytes)
}

fn put(disks: &MemoryDisks, name: &str, bytes: &[u8]) {
    let file = disks.disks()[0].open_named(name).unwrap();
    file.set_len(0).unwrap();
    file.write_at(bytes, 0).unwrap();
    file.sync().unwrap();
}

/// Runs of the daemon that write, stop cleanly, are killed or lose power, in random order. Some runs are of a release that
/// does not know facts: it neither reads nor removes their file. The stamps of files on these disks never change, so only
/// the state of the metadata shows that another run came between.
#[test]
fn random_runs_and_crashes_never_return_facts_about_other_bytes() {
    let mut random = Random::from_environment();
    let (mut accepted, mut after_an_old_release) = (0, 0);
    for _ in 0..12 {
        let mut disks = MemoryDisks::new(1 + random.below(2) as usize);
        let volume = Volume::open(disks.disks(), options()).unwrap();
        let files = [written(&volume, "one", 1), written(&volume, "two", 2)];
        close_with_facts(&volume, &files);
        drop(volume);
        for _ in 0..12 {
            let is_old = random.below(3) == 0;
            let kept = is_old.then(|| named(&disks, FILE)).flatten();
            if kept.is_some() {
                after_an_old_release += 1;
                disks.disks()[0].remove_named(FILE).unwrap();
            }
            let volume = Volume::open(disks.disks(), options()).unwrap();
            if !is_old && let Some(facts) = taken(&volume) {
                accepted += 1;
                for (ino, saved) in facts {
                    assert_eq!(fact(&volume, ino), saved, "file {ino}");
                }
            }
            for _ in 0..random.below(4) {
                let ino = files[random.below(2) as usize];
                let bytes = random.bytes(PAGE);
                volume.write(ino, random.below(125) * PAGE as u64, &bytes).unwrap();
                if random.below(2) == 0 {
                    volume.fsync(ino).unwrap();
                }
            }
            let crash = if random.below(2) == 0 { Crash::Kill } else { Crash::Power };
            let crashed = match random.below(4) {
                0 => Some(disks.crash(crash, &mut random)),
                1 => {
                    disks.freeze_after(1 + random.below(30));
                    None
                }
                _ => None,
            };
            if is_old {
                volume.close().unwrap();
            } else {
                close_with_facts(&volume, &files);
            }
            drop(volume);
            disks = match crashed {
                Some(crashed) => crashed,
                None if disks.is_frozen() => disks.crash(crash, &mut random),
                None => disks,
            };
            disks.thaw();
            if let Some(kept) = kept {
                put(&disks, FILE, &kept);
            }
        }
    }
    println!("{accepted} starts with facts, {after_an_old_release} old releases started with facts on the disk");
    assert!(accepted > 10 && after_an_old_release > 10);
}

#[test]
fn facts_beside_a_run_that_changed_nothing_and_was_killed_are_refused() {
    let mut random = Random::from_environment();
    let disks = MemoryDisks::new(2);
    let volume = Volume::open(disks.disks(), options()).unwrap();
    let file = written(&volume, "file", 1);
    close_with_facts(&volume, &[file]);
    drop(volume);
    let saved = named(&disks, FILE).unwrap();
    let unused = disks.crash(Crash::Kill, &mut random);
    assert_eq!(taken(&Volume::open(unused.disks(), options()).unwrap()).unwrap().len(), 1, "no run came between");
    for killed in [false, true] {
        let disks = disks.crash(Crash::Kill, &mut random);
        disks.disks()[0].remove_named(FILE).unwrap();
        let volume = Volume::open(disks.disks(), options()).unwrap();
        let after = match killed {
            true => disks.crash(Crash::Kill, &mut random),
            false => {
                volume.close().unwrap();
                disks.clone()
            }
        };
        drop(volume);
        put(&after, FILE, &saved);
        assert_eq!(taken(&Volume::open(after.disks(), options()).unwrap()), None, "killed: {killed}");
        assert_eq!(named(&after, FILE), None, "removed");
    }
}

#[test]
fn damaged_truncated_and_foreign_files_are_ignored_and_removed() {
    let mut random = Random::from_environment();
    let saved_on = |fill| {
        let disks = MemoryDisks::new(2);
        let volume = Volume::open(disks.disks(), options()).unwrap();
        let files = [written(&volume, "one", fill), written(&volume, "two", fill)];
        close_with_facts(&volume, &files);
        disks
    };
    let (disks, other) = (saved_on(1), saved_on(1));
    let saved = named(&disks, FILE).unwrap();
    let mut check = |bytes: &[u8], what: &str| {
        let copy = disks.crash(Crash::Kill, &mut random);
        put(&copy, FILE, bytes);
        let volume = Volume::open(copy.disks(), VolumeOptions { prefetch_threads: 1, ..options() }).unwrap();
        let facts = taken(&volume);
        assert_eq!(named(&copy, FILE), None, "{what}: removed");
        volume.abandon();
        facts
    };
    assert_eq!(check(&saved, "unchanged").unwrap().len(), 2);
    for at in (0..70).chain((70..saved.len()).step_by(91)) {
        let mut damaged = saved.clone();
        damaged[at] ^= 1 << (at % 8);
        assert_eq!(check(&damaged, "damaged"), None, "byte {at}");
    }
    for length in [0, 1, 63, 64, 100, saved.len() - 30, saved.len() - 1] {
        assert_eq!(check(&saved[..length], "truncated"), None, "{length} bytes");
    }
    assert_eq!(check(&named(&other, FILE).unwrap(), "foreign"), None);
}

/// Copies a folder with its subfolders.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let (path, target) = (entry.as_ref().unwrap().path(), to.join(entry.as_ref().unwrap().file_name()));
        if path.is_dir() {
            copy(&path, &target);
        } else {
            std::fs::copy(&path, &target).unwrap();
        }
    }
}

#[test]
fn files_that_another_program_changed_or_restored_have_no_facts() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open(folder.path(), 2);
    let files = [written(&volume, "one", 1), written(&volume, "two", 2)];
    close_with_facts(&volume, &files);
    drop(volume);
    let copied = tempfile::tempdir().unwrap();
    for disk in ["disk0", "disk1"] {
        copy(&folder.path().join(disk), &copied.path().join(disk));
    }
    assert_eq!(taken(&open(copied.path(), 2)), Some(BTreeMap::new()), "every file is a copy");

    // The same bytes, written by another program.
    let name = format!("data/{:02x}/{:016x}", files[1] & 0xff, files[1]);
    let path = folder.path().join("disk1").join(name);
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, bytes).unwrap();
    let volume = open(folder.path(), 2);
    assert_eq!(taken(&volume).unwrap().into_keys().collect::<Vec<_>>(), [files[0]]);
}

#[test]
fn an_inspection_leaves_the_facts() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open(folder.path(), 2);
    let file = written(&volume, "file", 1);
    close_with_facts(&volume, &[file]);
    drop(volume);
    let overlays = (0..2).map(|disk| OverlayDisk::new(folder.path().join(format!("disk{disk}"))).unwrap()).collect();
    let inspected = ReadOnlyVolume::open(overlays, options()).unwrap();
    assert!(inspected.take_saved_facts().is_none());
    drop(inspected);
    assert!(is_on_disk(folder.path()));
    assert_eq!(taken(&open(folder.path(), 2)).unwrap().len(), 1);
}

#[test]
fn a_full_disk_or_a_failing_write_saves_nothing_and_the_stop_succeeds() {
    let folder = tempfile::tempdir().unwrap();
    let open_disk = || disks(folder.path(), 1).remove(0);
    let limited = LimitedDisk::new(open_disk(), 64 * MIB);
    let volume = Volume::open(vec![Arc::new(limited.clone())], options()).unwrap();
    let file = written(&volume, "file", 1);
    volume.sync().unwrap();
    let saved = volume.close_saving_facts([file], |writer| {
        limited.occupy_all_but(0);
        (0..300_000).try_for_each(|_| writer.record(|out| out.extend([0; 12])))
    });
    saved.unwrap();
    drop((volume, limited));
    assert!(!is_on_disk(folder.path()), "the incomplete file is removed");

    let faulty = Arc::new(FaultyDisk::new(open_disk(), 1));
    let volume = Volume::open(vec![faulty.clone()], options()).unwrap();
    assert_eq!(taken(&volume), None);
    let saved = volume.close_saving_facts([file], |writer| {
        faulty.set_named_faults(&[Fault::Sync { errno: libc::EIO, one_in: 1 }]);
        writer.record(|out| out.extend([0; 12]))
    });
    saved.unwrap();
    drop((volume, faulty));
    assert!(!is_on_disk(folder.path()));
    assert_eq!(taken(&open(folder.path(), 1)), None);
}

/// After a failed sync the kernel may drop written bytes that a scan has read.
#[test]
fn a_file_with_a_failed_sync_has_no_facts() {
    let folder = tempfile::tempdir().unwrap();
    let faulty = Arc::new(FaultyDisk::new(disks(folder.path(), 1).remove(0), 1));
    let volume = Volume::open(vec![faulty.clone() as Arc<dyn Disk>], options()).unwrap();
    let files = [written(&volume, "one", 1), written(&volume, "two", 2)];
    volume.sync().unwrap();
    volume.write(files[0], 0, &[7; PAGE]).unwrap();
    faulty.set_faults(&[Fault::Sync { errno: libc::EIO, one_in: 1 }]);
    volume.fsync(files[0]).unwrap_err();
    faulty.set_faults(&[]);
    volume.fsync(files[0]).unwrap();
    close_with_facts(&volume, &files);
    drop(volume);
    drop(faulty);
    assert_eq!(taken(&open(folder.path(), 1)).unwrap().into_keys().collect::<Vec<_>>(), [files[1]]);
}

#[test]
fn after_a_stop_that_saves_facts_no_change_of_names_succeeds() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open(folder.path(), 1);
    let file = written(&volume, "file", 1);
    close_with_facts(&volume, &[file]);
    create(&volume, "late");
    volume.sync().unwrap_err();
    drop(volume);
    let volume = open(folder.path(), 1);
    assert_eq!(taken(&volume).unwrap().len(), 1);
    assert_eq!(volume.resolve("late"), None);
}
