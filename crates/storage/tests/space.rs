//! Full disks: files stop growing while the reserve is free, and overwrites always find space.

use crate::support;
use cellar_format::units::AuIndex;
use cellar_storage::disk::Disk;
use cellar_storage::{AuSize, ErrorKind, Fallocate, Ino, ROOT_INO, SpacePriority, UnitStored, Volume, VolumeOptions};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use support::codec::{PAGE, compress, encode, superseded};
use support::limited_disk::LimitedDisk;
use support::{MIB, create, disks, options, read_all};

const CAPACITY: u64 = 320 * MIB;
const RESERVE: u64 = 96 * MIB;
const PAGES: u64 = MIB / PAGE as u64;

fn limited(folder: &Path) -> (LimitedDisk, Arc<Volume>) {
    let disk = LimitedDisk::new(disks(folder, 1).remove(0), CAPACITY);
    let volume = open(&disk);
    (disk, volume)
}

fn open(disk: &LimitedDisk) -> Arc<Volume> {
    open_with(disk, options())
}

fn open_with(disk: &LimitedDisk, options: VolumeOptions) -> Arc<Volume> {
    let options = VolumeOptions { reserve_bytes: RESERVE, ..options };
    Volume::open(vec![Arc::new(disk.clone()) as Arc<dyn Disk>], options).unwrap()
}

/// Opens the volume again, as after a kill of the process.
fn reopened(folder: &Path, disk: LimitedDisk, volume: Arc<Volume>) -> (LimitedDisk, Arc<Volume>) {
    volume.abandon();
    while Arc::strong_count(&volume) > 1 {
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(volume);
    let disk = disk.restarted(|| disks(folder, 1).remove(0));
    let volume = open(&disk);
    (disk, volume)
}

fn page(number: u64) -> Vec<u8> {
    vec![(number % 255) as u8 + 1; PAGE]
}

/// Creates a file of `aus` compressed allocation units.
fn compressed(volume: &Volume, name: &str, aus: u64) -> (Ino, Vec<u8>) {
    let ino = create(volume, name);
    let data: Vec<u8> = (0..aus * PAGES).flat_map(page).collect();
    volume.write(ino, 0, &data).unwrap();
    volume.fsync(ino).unwrap();
    (0..aus).for_each(|au| assert_eq!(compress(volume, ino, au, 1).unwrap(), UnitStored::Stored));
    (ino, data)
}

/// Appends MiB by MiB until the volume refuses; returns the file and the number of MiB.
fn fill(volume: &Volume, name: &str) -> (Ino, u64) {
    let ino = create(volume, name);
    let bytes = vec![7; MIB as usize];
    for count in 0.. {
        if let Err(error) = volume.write(ino, count * MIB, &bytes) {
            assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
            return (ino, count);
        }
    }
    unreachable!()
}

/// Overwrites every page of `range` in steps of `step`, and the model.
fn overwrite(volume: &Volume, ino: Ino, model: &mut [u8], step: usize, priority: SpacePriority) {
    for number in (0..model.len() / PAGE).step_by(step) {
        let data = page(number as u64 + 100);
        volume.write_with(ino, (number * PAGE) as u64, &data, priority).unwrap();
        model[number * PAGE..][..PAGE].copy_from_slice(&data);
    }
}

#[test]
fn a_zeroed_range_that_the_disk_refuses_keeps_its_content() {
    let folder = tempfile::tempdir().unwrap();
    let (disk, volume) = limited(folder.path());
    let (ino, data) = compressed(&volume, "compressed", 4);
    let (raw, content) = (create(&volume, "raw"), vec![9; 4 * MIB as usize]);
    volume.write(raw, 0, &content).unwrap();
    let refused = |ino: Ino, length: u64, keep_size: bool| {
        let error = volume.fallocate(ino, MIB, length, Fallocate::Zero { keep_size }).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    };
    let check = || {
        assert!(read_all(&volume, raw) == content && read_all(&volume, ino) == data);
    };
    // The cell refuses the first requests, and the disk refuses the others after the cell has found space.
    for overstated in [0, CAPACITY] {
        disk.overstate(overstated);
        for keep_size in [false, true] {
            refused(raw, CAPACITY - 8 * MIB, keep_size);
            refused(ino, CAPACITY - 8 * MIB, keep_size);
            check();
        }
    }
    disk.overstate(0);
    volume.fallocate(raw, MIB, MIB, Fallocate::Zero { keep_size: true }).unwrap();
    volume.fallocate(ino, MIB, MIB, Fallocate::Zero { keep_size: true }).unwrap();
    for (ino, before) in [(raw, content), (ino, data)] {
        let mut zeroed = before;
        zeroed[MIB as usize..2 * MIB as usize].fill(0);
        assert!(read_all(&volume, ino) == zeroed);
    }
    volume.abandon();
}

#[test]
fn files_grow_until_the_reserve_and_no_further() {
    let folder = tempfile::tempdir().unwrap();
    let (disk, volume) = limited(folder.path());
    let before = volume.statfs().unwrap();
    assert_eq!(before.total, CAPACITY);
    assert!(before.free - before.available == RESERVE, "{before:?}");
    assert!(disk.space().unwrap().available <= before.available, "the reserve file occupies the reserve");
    let (ino, count) = fill(&volume, "fill");
    let after = volume.statfs().unwrap();
    assert!(count * MIB >= before.available - 4 * MIB && after.available < 2 * MIB, "{count} MiB, {after:?}");
    let grow = || volume.fallocate(ino, count * MIB, 4 * MIB, Fallocate::Reserve { keep_size: true });
    assert_eq!(grow().unwrap_err().kind(), ErrorKind::NoSpace);
    let [space] = &volume.disk_spaces()[..] else { panic!() };
    assert_eq!((space.reserve, space.reserve_free), (RESERVE, RESERVE));
}

#[test]
fn overwrites_of_raw_pages_need_no_space() {
    let folder = tempfile::tempdir().unwrap();
    let (disk, volume) = limited(folder.path());
    let (ino, mut model) = compressed(&volume, "file", 4);
    overwrite(&volume, ino, &mut model, 2, SpacePriority::Normal);
    volume.fsync(ino).unwrap();
    let (raw, count) = fill(&volume, "raw");
    // Use up the reserve, too.
    let essential = create(&volume, "essential");
    let mut used = 0;
    while volume.write_with(essential, used, &[1; 4096], SpacePriority::Highest).is_ok() {
        used += 4096;
    }
    disk.occupy_all_but(0);
    for at in 0..count {
        volume.write(raw, at * MIB + 77, &[at as u8; 5000]).unwrap();
    }
    // Every other page is raw, beside its unit, and the metadata name it superseded.
    overwrite(&volume, ino, &mut model, 2, SpacePriority::Normal);
    volume.write(ino, PAGE as u64, &page(0)).unwrap_err();
    assert!(read_all(&volume, ino) == model);
}

#[test]
fn a_checkpoint_completes_on_a_disk_that_another_program_has_filled() {
    let folder = tempfile::tempdir().unwrap();
    let (disk, volume) = limited(folder.path());
    let (ino, mut model) = compressed(&volume, "file", 12);
    disk.occupy_all_but(0);
    let grow = |priority| volume.write_with(create(&volume, "new"), 0, &[1; PAGE], priority).map(drop);
    assert_eq!(grow(SpacePriority::Normal).unwrap_err().kind(), ErrorKind::NoSpace);
    volume.unlink(ROOT_INO, b"new").unwrap();
    grow(SpacePriority::High).unwrap();
    // A twentieth of the pages, as a client's checkpoint writes them, then all pages.
    for step in [20, 1] {
        overwrite(&volume, ino, &mut model, step, SpacePriority::Normal);
        volume.fsync(ino).unwrap();
        volume.sync().unwrap();
        assert!(read_all(&volume, ino) == model);
    }
    let (_disk, volume) = reopened(folder.path(), disk, volume);
    assert!(read_all(&volume, ino) == model);
}

#[test]
fn recovery_completes_on_a_disk_that_another_program_has_filled() {
    let folder = tempfile::tempdir().unwrap();
    let (disk, volume) = limited(folder.path());
    let (ino, mut model) = compressed(&volume, "file", 4);
    disk.occupy_all_but(0);
    overwrite(&volume, ino, &mut model, 3, SpacePriority::Normal);
    // No sync: the redo log contains the pages.
    disk.occupy_all_but(0);
    let (_disk, volume) = reopened(folder.path(), disk, volume);
    assert!(read_all(&volume, ino) == model);
    assert_eq!(superseded(&volume, ino, 0).unwrap().len(), PAGES.div_ceil(3) as usize);
}

#[test]
fn a_priority_is_refused_when_its_part_of_the_reserve_is_used_up() {
    let folder = tempfile::tempdir().unwrap();
    let (_disk, volume) = limited(folder.path());
    let (ino, mut model) = compressed(&volume, "file", 2);
    fill(&volume, "fill");
    let essential = create(&volume, "essential");
    let mut used = 0;
    let mut use_reserve = |priority, bytes: u64| {
        while used < bytes {
            volume.write_with(essential, used, &[1; PAGE], priority)?;
            used += PAGE as u64;
        }
        Ok::<_, cellar_storage::Error>(())
    };
    overwrite(&volume, ino, &mut model, 50, SpacePriority::Normal);
    use_reserve(SpacePriority::High, RESERVE / 2 + 2 * MIB).unwrap();
    let write = |priority| volume.write_with(ino, PAGE as u64, &page(7), priority);
    assert_eq!(write(SpacePriority::Normal).unwrap_err().kind(), ErrorKind::NoSpace);
    assert_eq!(use_reserve(SpacePriority::High, RESERVE).unwrap_err().kind(), ErrorKind::NoSpace);
    write(SpacePriority::Highest).unwrap();
    model[PAGE..2 * PAGE].copy_from_slice(&page(7));
    // The last part of the reserve is left for metadata.
    volume.sync().unwrap();
    assert!(read_all(&volume, ino) == model);
}

/// Compresses an allocation unit as the cell does while the reserve is in use.
fn compress_from_reserve(volume: &Volume, ino: Ino, au: u64) -> UnitStored {
    let version = volume.au_version(ino, AuIndex(au)).unwrap();
    let au_bytes = volume.au_bytes(ino).unwrap();
    let mut pages = vec![0; au_bytes as usize];
    let count = volume.read_uncached(ino, au * au_bytes, &mut pages).unwrap();
    let mut staged = volume.stage_units(ino).unwrap();
    staged.use_reserve();
    let unit = encode(&pages[..count / PAGE * PAGE]);
    match volume.stage_unit(&mut staged, AuIndex(au), version, &unit, 1).unwrap() {
        UnitStored::Stored => volume.publish_units(staged).unwrap()[0],
        not_stored => not_stored,
    }
}

#[test]
fn the_space_that_a_new_unit_frees_goes_to_the_reserve_before_another_program_takes_it() {
    let folder = tempfile::tempdir().unwrap();
    let (disk, volume) = limited(folder.path());
    let (ino, mut model) = compressed(&volume, "file", 16);
    disk.occupy_all_but(0);
    overwrite(&volume, ino, &mut model, 1, SpacePriority::Normal);
    volume.fsync(ino).unwrap();
    let reserve_free = || volume.disk_spaces()[0].reserve_free;
    disk.occupy_all_but(0);
    let before = reserve_free();
    for au in 0..16 {
        assert_eq!(volume.freeing(|| compress_from_reserve(&volume, ino, au)), UnitStored::Stored);
        disk.occupy_all_but(0);
    }
    let after = reserve_free();
    assert!(after > before + 8 * MIB, "16 MiB of raw pages were freed, and the reserve grew from {before} to {after}");
    disk.occupy_all_but(200 * MIB);
    volume.freeing(|| disk.occupy_all_but(300 * MIB));
    assert!(disk.space().unwrap().available >= 300 * MIB - RESERVE, "the reserve file has its length at most");
    assert!(read_all(&volume, ino) == model);
}

#[test]
fn other_requests_leave_space_for_a_large_unit() {
    let folder = tempfile::tempdir().unwrap();
    let disk = LimitedDisk::new(disks(folder.path(), 1).remove(0), CAPACITY);
    let au_size = AuSize::from_bytes(16 * MIB).unwrap();
    let volume = open_with(&disk, VolumeOptions { au_size, ..options() });
    let ino = create(&volume, "file");
    // These bytes do not compress, so the unit is as large as its pages.
    let mut seed = 7u64;
    let mut noise = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 56) as u8
    };
    let model: Vec<u8> = (0..15 * MIB).map(|_| noise()).collect();
    volume.write(ino, 0, &model).unwrap();
    let (raw, count) = fill(&volume, "fill");
    let block = vec![1; 64 << 10];
    let mut end = count * MIB;
    while volume.write_with(raw, end, &block, SpacePriority::Highest).is_ok() {
        end += block.len() as u64;
    }
    assert_eq!(compress_from_reserve(&volume, ino, 0), UnitStored::Stored);
    assert!(read_all(&volume, ino) == model);
}

#[test]
fn the_space_of_a_removed_file_is_free_for_the_next_request() {
    let folder = tempfile::tempdir().unwrap();
    let (_disk, volume) = limited(folder.path());
    for round in 0..3 {
        let (ino, count) = fill(&volume, "fill");
        assert!(count > 100, "round {round}: {count} MiB");
        volume.unlink(ROOT_INO, b"fill").unwrap();
        // The client's kernel releases the inode a moment after the removal.
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(3));
                volume.forget(ino, 1);
            });
            let next = create(&volume, "next");
            volume.write(next, 0, &vec![1; 16 * MIB as usize]).unwrap();
            volume.unlink(ROOT_INO, b"next").unwrap();
            volume.forget(next, 1);
        });
        // At most one request per second waits for the release of an inode.
        std::thread::sleep(Duration::from_millis(1000));
    }
}

#[test]
fn the_space_of_truncated_units_is_free_when_truncate_returns() {
    let folder = tempfile::tempdir().unwrap();
    let (disk, volume) = limited(folder.path());
    let (ino, _) = compressed(&volume, "file", 8);
    let with_units = disk.space().unwrap().free;
    volume.truncate(ino, 0).unwrap();
    assert!(disk.space().unwrap().free > with_units);
}

#[test]
fn the_reserve_file_grows_again_when_the_disk_has_space() {
    let folder = tempfile::tempdir().unwrap();
    let (disk, volume) = limited(folder.path());
    let (ino, mut model) = compressed(&volume, "file", 12);
    disk.occupy_all_but(0);
    overwrite(&volume, ino, &mut model, 1, SpacePriority::Normal);
    volume.fsync(ino).unwrap();
    let reserve_free = || volume.disk_spaces()[0].reserve_free;
    assert!(reserve_free() < RESERVE);
    disk.occupy_all_but(200 * MIB);
    std::thread::sleep(Duration::from_millis(1500));
    let available = disk.space().unwrap().available;
    assert_eq!(reserve_free(), RESERVE);
    assert!(available < 200 * MIB - RESERVE / 8, "the reserve file grew: {available} bytes are available");
}
