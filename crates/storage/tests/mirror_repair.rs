//! Damaged copies: pages with checksums, units and metadata are repaired when they are read, and by the scrub.

use crate::support;
use cellar_format::units::{AuIndex, RegionIndex};
use cellar_storage::disk::{DirectoryDisk, Stream};
use cellar_storage::{
    DiskMode, FlashOptions, Ino, PageCheck, Redundancy, ScrubReport, ScrubState, Volume, VolumeOptions,
};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::codec::{PAGE, compress};
use support::{MIB, Random, create, disks, open_with, options, read_all};

/// The first four bytes of a page are the checksum of the others and of the page's number. Files named "plain" have none.
#[derive(Debug, Default)]
struct TestCheck {
    is_switching: AtomicBool,
}

fn checksum(page: &[u8], number: u32) -> u32 {
    page[4..].iter().fold(number ^ 0x5a5a, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(*byte)))
}

impl PageCheck for TestCheck {
    fn may_have_checksums(&self, path: &str) -> bool {
        !path.starts_with("plain")
    }
    fn first_page(&self, _: &Volume, path: &str) -> Option<u32> {
        (!path.starts_with("plain")).then_some(1000)
    }
    fn applies_now(&self, _: &Volume, _: &str) -> bool {
        !self.is_switching.load(Ordering::SeqCst)
    }
    fn is_valid(&self, page: &[u8], number: u32) -> bool {
        page[..4] == checksum(page, number).to_le_bytes() || page.iter().all(|byte| *byte == 0)
    }
    fn version(&self, page: &[u8]) -> u64 {
        u64::from_le_bytes(page[8..16].try_into().unwrap())
    }
}

fn options_of(redundancy: Redundancy, check: &Arc<TestCheck>) -> VolumeOptions {
    VolumeOptions {
        redundancy,
        cache_bytes: 4 * MIB,
        intent_idle: Duration::ZERO,
        online_returned_disks: false,
        page_check: Some(check.clone()),
        ..options()
    }
}

fn mirrored() -> VolumeOptions {
    options_of(Redundancy::Normal, &Arc::default())
}

/// Returns pages with valid checksums.
fn pages(count: usize, seed: u64) -> Vec<u8> {
    let mut bytes = Random::seeded(seed).bytes(count * PAGE);
    for (number, page) in bytes.chunks_exact_mut(PAGE).enumerate() {
        page[4..8].copy_from_slice(&(number as u32).to_le_bytes());
        let sum = checksum(page, 1000 + number as u32);
        page[..4].copy_from_slice(&sum.to_le_bytes());
    }
    bytes
}

/// Returns the files of one stream on a disk.
fn files_of(folder: &Path, number: usize, stream: Stream) -> Vec<std::fs::File> {
    let disk = disks(folder, number + 1).pop().unwrap();
    let listed = disk.backing_files().unwrap().into_iter().filter(|(_, of)| *of == stream);
    let open = |(tagged, stream): (u64, Stream)| {
        let name = format!("disk{number}/data/{:02x}/{tagged:016x}{}", tagged & 0xff, stream.suffix());
        std::fs::OpenOptions::new().read(true).write(true).open(folder.join(name)).unwrap()
    };
    listed.map(open).collect()
}

/// Changes a byte in each file of a stream on a disk, if the byte is not 0. Returns how many were changed.
fn damage(folder: &Path, number: usize, stream: Stream, at: u64) -> usize {
    let flip = |file: &std::fs::File| {
        let mut byte = [0];
        let is_data = file.read_at(&mut byte, at).unwrap() == 1 && byte != [0];
        if is_data {
            file.write_all_at(&[byte[0] ^ 0x40], at).unwrap();
        }
        is_data
    };
    files_of(folder, number, stream).iter().filter(|file| flip(file)).count()
}

/// Returns the contents of the backing files on a disk, in ascending order.
fn contents(folder: &Path, number: usize) -> Vec<Vec<u8>> {
    let read = |file: &std::fs::File| {
        let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    };
    let mut all: Vec<Vec<u8>> = files_of(folder, number, Stream::Data).iter().map(read).collect();
    all.sort();
    all
}

fn scrub(volume: &Arc<Volume>) -> ScrubReport {
    volume.start_scrub(0).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let report = volume.scrub_report().unwrap();
        if report.state != ScrubState::Running {
            return report;
        }
        assert!(Instant::now() < deadline, "the scrub does not end: {report:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn filled(volume: &Volume, name: &str, bytes: &[u8]) -> Ino {
    let ino = create(volume, name);
    volume.write(ino, 0, bytes).unwrap();
    volume.sync().unwrap();
    ino
}

#[test]
fn a_page_that_fails_its_checksum_is_read_from_the_other_copy_and_repaired() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open_with(folder.path(), 2, mirrored);
    let expected = pages(300, 1);
    let ino = filled(&volume, "table", &expected);
    let page_of = |number: usize| &expected[number * PAGE..(number + 1) * PAGE];
    let mut page = vec![0; PAGE];
    for disk in 0..2 {
        let before = volume.group_status().repairs;
        assert_eq!(damage(folder.path(), disk, Stream::Data, 140 * PAGE as u64 + 77), 1);
        // A thread that must not wait leaves the repair to the repetition of the read.
        let attempt = volume.try_read(ino, 140 * PAGE as u64, &mut page).unwrap();
        assert!(attempt.is_none() || page == page_of(140));
        assert!(read_all(&volume, ino) == expected, "disk {disk}");
        let report = scrub(&volume);
        assert_eq!((report.state, report.unrepaired), (ScrubState::Done, 0), "{report:?}");
        assert_eq!(volume.group_status().repairs, before + 1, "the read or the scrub repaired disk {disk}");
        assert_eq!(contents(folder.path(), 0), contents(folder.path(), 1));
    }
    assert_eq!(volume.group_status().repairs, 2);

    // A damaged page in the page cache.
    (0..2).for_each(|disk| assert_eq!(damage(folder.path(), disk, Stream::Data, 3 * PAGE as u64 + 5000), 1));
    drop(volume.region(ino, RegionIndex(0)).unwrap());
    assert_eq!(volume.read(ino, 3 * PAGE as u64, &mut page).unwrap(), PAGE);
    assert!(page != page_of(3), "no copy is undamaged");
    assert_eq!(volume.group_status().repairs, 2);
    damage(folder.path(), 1, Stream::Data, 3 * PAGE as u64 + 5000);
    volume.verify_pages(ino, 0..MIB).unwrap();
    assert!(read_all(&volume, ino) == expected);
    assert!(volume.region(ino, RegionIndex(0)).unwrap()[3 * PAGE..4 * PAGE] == *page_of(3));
    assert_eq!(volume.group_status().repairs, 3);
    volume.close().unwrap();
}

#[test]
fn no_page_is_repaired_while_the_checksums_are_being_switched() {
    let folder = tempfile::tempdir().unwrap();
    let check: Arc<TestCheck> = Arc::default();
    let volume = open_with(folder.path(), 2, || options_of(Redundancy::Normal, &check));
    let expected = pages(100, 2);
    let ino = filled(&volume, "table", &expected);
    // A newer page without a checksum on one disk, an older one with a checksum on the other.
    let first = (0..2).find(|disk| damage(folder.path(), *disk, Stream::Data, 5 * PAGE as u64 + 9) > 0).unwrap();
    check.is_switching.store(true, Ordering::SeqCst);
    let (_, report) = (read_all(&volume, ino), scrub(&volume));
    assert_eq!(volume.group_status().repairs, 0);
    assert_eq!(report.unrepaired, 1, "{report:?}");
    assert!(report.findings[0].problem.contains("the copies differ"), "{report:?}");
    check.is_switching.store(false, Ordering::SeqCst);
    assert_eq!(scrub(&volume).repaired, 1, "disk {first}");
    assert!(read_all(&volume, ino) == expected);
    volume.close().unwrap();
}

#[test]
fn the_scrub_repairs_what_checksums_or_a_majority_decide_and_lists_the_rest() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open_with(folder.path(), 2, mirrored);
    filled(&volume, "plain", &Random::seeded(5).bytes(3 * MIB as usize + 100));
    let report = scrub(&volume);
    assert_eq!((report.repaired, report.unrepaired, report.state), (0, 0, ScrubState::Done), "{report:?}");
    assert!(report.bytes_read >= 2 * 3 * MIB, "all copies are read: {report:?}");
    // Bytes without a checksum: two copies differ, and neither is better.
    assert!(damage(folder.path(), 1, Stream::Data, MIB + 12_345) > 0);
    let report = scrub(&volume);
    assert_eq!((report.repaired, report.unrepaired), (0, 1), "{report:?}");
    assert_eq!(
        (report.findings[0].path.as_str(), report.findings[0].place.as_str()),
        ("plain", "bytes 1056768 to 1064960")
    );
    volume.close().unwrap();

    let folder = tempfile::tempdir().unwrap();
    let volume = open_with(folder.path(), 3, || options_of(Redundancy::High, &Arc::default()));
    let bytes = Random::seeded(6).bytes(4 * MIB as usize);
    let ino = filled(&volume, "plain", &bytes);
    assert!(damage(folder.path(), 2, Stream::Data, 2 * MIB + 500) > 0);
    let report = scrub(&volume);
    assert_eq!((report.repaired, report.unrepaired), (1, 0), "two of three copies decide: {report:?}");
    assert!(read_all(&volume, ino) == bytes);
    assert_eq!(contents(folder.path(), 0), contents(folder.path(), 2));
    volume.close().unwrap();
}

#[test]
fn the_scrub_repairs_units_on_every_disk() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open_with(folder.path(), 2, mirrored);
    let ino = filled(&volume, "plain", &Random::seeded(8).bytes(2 * MIB as usize));
    let expected = read_all(&volume, ino);
    for au in 0..2 {
        compress(&volume, ino, au, 0).unwrap();
    }
    volume.sync().unwrap();
    for disk in 0..2 {
        // In the header, in the unit, and in its table, of whichever units the disk has.
        let damaged: usize = [3, 40, 700].iter().map(|at| damage(folder.path(), disk, Stream::Units, *at)).sum();
        assert!(damaged > 0, "no unit on disk {disk}");
        let report = scrub(&volume);
        assert!(report.repaired > 0 && report.unrepaired == 0, "{report:?}");
        let report = scrub(&volume);
        assert_eq!((report.repaired, report.unrepaired), (0, 0), "nothing is left: {report:?}");
    }
    assert!(read_all(&volume, ino) == expected);
    volume.close().unwrap();
}

#[test]
fn damaged_metadata_are_rewritten_from_another_disk() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open_with(folder.path(), 2, mirrored);
    for number in 0..200 {
        create(&volume, &format!("plain{number:0100}"));
    }
    volume.sync().unwrap();
    let path = folder.path().join("disk0/metadata.redb");
    let overwrite = || {
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        let length = file.metadata().unwrap().len();
        (1..length / 4096).for_each(|page| file.write_all_at(&[0xa5; 512], page * 4096).unwrap());
    };
    overwrite();
    let report = scrub(&volume);
    assert_eq!((report.repaired, report.unrepaired), (1, 0), "{report:?}");
    assert_eq!(volume.group_status().repairs, 1);
    assert_eq!(scrub(&volume).repaired, 0, "the metadata are good again");
    create(&volume, "plain later");
    volume.close().unwrap();
    drop(volume);

    overwrite();
    let volume = open_with(folder.path(), 2, mirrored);
    assert!(volume.resolve("plain later").is_some());
    assert_eq!(volume.group_status().repairs, 1, "the start rewrote the metadata");
    volume.close().unwrap();
}

#[test]
fn a_scrub_keeps_its_rate_and_stops() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open_with(folder.path(), 2, mirrored);
    filled(&volume, "plain", &Random::seeded(9).bytes(20 * MIB as usize));
    let started = Instant::now();
    volume.start_scrub(2 * MIB).unwrap();
    let again = volume.start_scrub(0).unwrap_err().to_string();
    assert!(again.contains("a scrub is running"), "{again}");
    let mut read = 0;
    while read == 0 {
        assert!(started.elapsed() < Duration::from_secs(60), "the scrub does not read");
        std::thread::sleep(Duration::from_millis(50));
        read = volume.scrub_report().unwrap().bytes_read;
    }
    let limit = (started.elapsed().as_secs_f64() * 2.0) as u64 * MIB + 4 * MIB;
    assert!(read <= limit, "read {read} bytes in {:?}", started.elapsed());
    volume.stop_scrub();
    assert_eq!(volume.scrub_report().unwrap().state, ScrubState::Stopped);
    // A stop of the volume ends a scrub too, and the next run starts without one.
    volume.start_scrub(MIB).unwrap();
    volume.close().unwrap();
    drop(volume);
    let volume = open_with(folder.path(), 2, mirrored);
    assert!(volume.scrub_report().is_none());
    volume.close().unwrap();
}

#[test]
fn a_group_with_external_redundancy_is_verified() {
    let folder = tempfile::tempdir().unwrap();
    let check: Arc<TestCheck> = Arc::default();
    let volume = open_with(folder.path(), 2, || options_of(Redundancy::External, &check));
    filled(&volume, "table", &pages(300, 3));
    assert_eq!(scrub(&volume).unrepaired, 0);
    let damaged: usize = (0..2).map(|disk| damage(folder.path(), disk, Stream::Data, 5 * PAGE as u64 + 9)).sum();
    assert_eq!(damaged, 1);
    let report = scrub(&volume);
    assert_eq!((report.repaired, report.unrepaired), (0, 1), "{report:?}");
    assert_eq!(report.findings[0].problem, "all copies are damaged");
    volume.close().unwrap();
}

/// Returns the descriptors of this process that lead below a folder.
fn descriptors_below(folder: &Path) -> Vec<String> {
    let links =
        std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    links.filter(|link| link.starts_with(folder)).map(|link| link.display().to_string()).collect()
}

#[test]
fn an_offline_disk_has_no_open_files_and_returns_without_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let reserved = || VolumeOptions { reserve_bytes: 4 * MIB, ..mirrored() };
    let volume = open_with(folder.path(), 2, reserved);
    let ino = filled(&volume, "plain", &[1; 300_000]);
    compress(&volume, filled(&volume, "units", &[7; 10 * PAGE]), 0, 0).unwrap();
    volume.prefetch(ino, RegionIndex(0)..RegionIndex(1));
    let second = folder.path().join("disk1");
    assert!(!descriptors_below(&second).is_empty());
    volume.offline_disk(&second).unwrap();
    volume.write(ino, 100_000, &[2; 300_000]).unwrap();
    volume.sync().unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    while !descriptors_below(&second).is_empty() {
        // A thread of the volume may be using a file.
        assert!(Instant::now() < deadline, "{:?}", descriptors_below(&second));
        std::thread::sleep(Duration::from_millis(5));
    }
    // As after a repair: the same content in another directory at the same path.
    std::fs::rename(&second, folder.path().join("before")).unwrap();
    copy_folder(&folder.path().join("before"), &second);

    volume.online_disk(disks(folder.path(), 2).pop().unwrap()).unwrap();
    assert!(volume.group_status().disks.iter().all(|disk| disk.mode == DiskMode::Online));
    assert_eq!(scrub(&volume).unrepaired, 0);
    volume.write(ino, 0, &[3; 1000]).unwrap();
    let expected = read_all(&volume, ino);
    assert_eq!(volume.disk_spaces()[1].reserve_free, 4 * MIB, "the reserve file is open again");
    volume.close().unwrap();
    drop(volume);
    std::fs::rename(folder.path().join("disk0"), folder.path().join("lost")).unwrap();
    let volume = open_with(folder.path(), 2, || VolumeOptions { force_degraded: true, ..reserved() });
    assert!(read_all(&volume, volume.resolve("plain").unwrap()) == expected);
    volume.close().unwrap();
}

/// Changes the first bytes of page `number`, which a disk that is offline lacks, and writes the region.
fn change_page(volume: &Volume, ino: Ino, expected: &mut [u8], number: usize) {
    let page = &mut expected[number * PAGE..(number + 1) * PAGE];
    page.copy_from_slice(&pages(number + 1, 77)[number * PAGE..]);
    volume.write(ino, (number * PAGE) as u64, page).unwrap();
    volume.sync().unwrap();
}

#[test]
fn a_resync_keeps_a_good_page_where_the_source_has_a_damaged_one() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open_with(folder.path(), 2, mirrored);
    let mut expected = pages(100, 11);
    let ino = filled(&volume, "table", &expected);
    volume.offline_disk(&folder.path().join("disk1")).unwrap();
    change_page(&volume, ino, &mut expected, 20);
    change_page(&volume, ino, &mut expected, 30);
    // On the only online disk: a page that is equal on the other disk, and one that is newer there.
    for page in [10, 30] {
        assert_eq!(damage(folder.path(), 0, Stream::Data, page * PAGE as u64 + 5000), 1);
    }
    volume.online_disk(disks(folder.path(), 2).pop().unwrap()).unwrap();
    let mut page = vec![0; PAGE];
    volume.read(ino, 10 * PAGE as u64, &mut page).unwrap();
    assert!(page == expected[10 * PAGE..11 * PAGE], "the good page is kept and repairs the other copy");
    volume.read(ino, 20 * PAGE as u64, &mut page).unwrap();
    assert!(page == expected[20 * PAGE..21 * PAGE], "the newer page is copied");
    volume.read(ino, 30 * PAGE as u64, &mut page).unwrap();
    assert_eq!(page[5000], expected[30 * PAGE + 5000] ^ 0x40, "an outdated page does not replace a newer one");
    let report = scrub(&volume);
    assert_eq!(report.unrepaired, 1, "{report:?}");
    assert_eq!(volume.group_status().repairs, 1);
    assert_eq!(contents(folder.path(), 0), contents(folder.path(), 1));
    volume.close().unwrap();
}

/// Crashes, with intents of all regions.
fn crash(volume: Arc<Volume>) {
    volume.sync().unwrap();
    volume.abandon();
    drop(volume);
}

/// Intents stay after a sync.
fn with_intents(redundancy: Redundancy) -> impl Fn() -> VolumeOptions {
    move || VolumeOptions { intent_idle: Duration::from_secs(3600), ..options_of(redundancy, &Arc::default()) }
}

#[test]
fn after_a_crash_the_undamaged_copy_of_a_page_wins() {
    for (redundancy, count) in [(Redundancy::Normal, 2), (Redundancy::High, 3)] {
        let folder = tempfile::tempdir().unwrap();
        let volume = open_with(folder.path(), count, with_intents(redundancy));
        let expected = pages(400, 13);
        let ino = filled(&volume, "table", &expected);
        crash(volume);
        // Each disk is the source of some allocation units: each has damaged pages in all of them.
        for disk in 0..count {
            for page in [3, 140, 270, 390].map(|page| page + disk) {
                assert_eq!(damage(folder.path(), disk, Stream::Data, page as u64 * PAGE as u64 + 5000), 1);
            }
        }
        // Of three copies, the last one alone is undamaged.
        for disk in 0..count - 1 {
            for page in [20, 150, 280, 399] {
                assert_eq!(damage(folder.path(), disk, Stream::Data, page * PAGE as u64 + 70), 1);
            }
        }
        let volume = open_with(folder.path(), count, with_intents(redundancy));
        assert!(volume.group_status().repairs > 0);
        let repairs = volume.group_status().repairs;
        let copies: Vec<_> = (0..count).map(|disk| contents(folder.path(), disk)).collect();
        assert!(copies.windows(2).all(|pair| pair[0] == pair[1]), "the copies are equal");
        assert!(read_all(&volume, ino) == expected, "{count} disks");
        assert_eq!(volume.group_status().repairs, repairs, "the start left no damage");
        assert_eq!(scrub(&volume).unrepaired, 0);
        volume.close().unwrap();
    }
}

#[test]
fn after_a_crash_the_undamaged_copy_of_a_unit_wins() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open_with(folder.path(), 2, with_intents(Redundancy::Normal));
    let ino = filled(&volume, "plain", &Random::seeded(16).bytes(4 * MIB as usize));
    for au in 0..4 {
        compress(&volume, ino, au, 0).unwrap();
    }
    let expected = read_all(&volume, ino);
    crash(volume);
    // Each disk is the source of two units; in each unit file, one slot is damaged in its header and another one in its unit.
    for (disk, at) in [(0, 3), (1, 700)] {
        let damaged: usize = (0..16).map(|slot| damage(folder.path(), disk, Stream::Units, slot * MIB + at)).sum();
        assert!(damaged >= 2, "{damaged} units were damaged on disk {disk}");
    }
    let volume = open_with(folder.path(), 2, with_intents(Redundancy::Normal));
    assert!(volume.group_status().repairs > 0);
    let report = scrub(&volume);
    assert_eq!((report.repaired, report.unrepaired), (0, 0), "the start repaired both disks: {report:?}");
    assert!(read_all(&volume, ino) == expected);
    volume.close().unwrap();
}

/// Overwrites bytes of the one backing file on a disk.
fn overwrite(folder: &Path, number: usize, at: usize, bytes: &[u8]) {
    files_of(folder, number, Stream::Data)[0].write_all_at(bytes, at as u64).unwrap();
}

#[test]
fn after_a_crash_one_disk_decides_where_checksums_do_not() {
    for name in ["table", "plain"] {
        let folder = tempfile::tempdir().unwrap();
        let volume = open_with(folder.path(), 2, with_intents(Redundancy::Normal));
        // One allocation unit: the same disk is the source of all pages.
        let expected = pages(100, 14);
        let ino = filled(&volume, name, &expected);
        crash(volume);
        let newer = pages(100, 15);
        let of = |number: usize| number * PAGE..(number + 1) * PAGE;
        for number in [7, 8] {
            // Two valid versions.
            overwrite(folder.path(), number - 7, of(number).start, &newer[of(number)]);
        }
        // A damaged page, and an empty one, which has no checksum, on the other disk; for either disk as the source.
        for (number, damaged) in [(20, 0), (21, 1)] {
            overwrite(folder.path(), damaged, of(number).start + 5000, &[!expected[of(number)][5000]]);
            overwrite(folder.path(), 1 - damaged, of(number).start, &[0; PAGE]);
        }
        // A page that is damaged on both.
        (0..2).for_each(|disk| overwrite(folder.path(), disk, of(30).start + 100, &[disk as u8 ^ 0x55]));
        let before = [contents(folder.path(), 0).remove(0), contents(folder.path(), 1).remove(0)];

        let volume = open_with(folder.path(), 2, with_intents(Redundancy::Normal));
        assert_eq!(volume.group_status().repairs, 0);
        let after = read_all(&volume, ino);
        let source = if after[of(7)] == newer[of(7)] { 0 } else { 1 };
        assert!(after == before[source], "{name}: all bytes are those of one disk");
        assert_eq!(contents(folder.path(), 0), contents(folder.path(), 1));
        volume.close().unwrap();
    }
}

#[test]
fn a_copy_that_cannot_be_opened_does_not_prevent_the_repair_of_others() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open_with(folder.path(), 3, || options_of(Redundancy::High, &Arc::default()));
    let expected = pages(100, 12);
    let ino = filled(&volume, "table", &expected);
    volume.close().unwrap();
    drop(volume);
    let volume = open_with(folder.path(), 3, || options_of(Redundancy::High, &Arc::default()));
    let of_disk = |number: usize| {
        let disk = disks(folder.path(), number + 1).pop().unwrap();
        let (tagged, _) = disk.backing_files().unwrap().into_iter().find(|(_, of)| *of == Stream::Data).unwrap();
        folder.path().join(format!("disk{number}/data/{:02x}/{tagged:016x}", tagged & 0xff))
    };
    assert_eq!(damage(folder.path(), 0, Stream::Data, 10 * PAGE as u64 + 5000), 1);
    std::fs::remove_file(of_disk(2)).unwrap();
    assert!(read_all(&volume, ino) == expected);
    let report = scrub(&volume);
    assert_eq!(report.unrepaired, 0, "{report:?}");
    assert!(volume.group_status().repairs > 0, "the read or the scrub repaired the copy");
    assert_eq!(volume.group_status().disks[2].mode, DiskMode::Offline, "the disk lacks a file");
    volume.online_disk(disks(folder.path(), 3).pop().unwrap()).unwrap();
    assert_eq!(contents(folder.path(), 0), contents(folder.path(), 2));
    volume.close().unwrap();
}

#[test]
fn units_that_are_replaced_during_a_scrub_are_released() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open_with(folder.path(), 2, mirrored);
    let ino = filled(&volume, "plain", &[5; 8 * MIB as usize]);
    for au in 0..8 {
        compress(&volume, ino, au, 0).unwrap();
    }
    volume.sync().unwrap();
    let of_units = || -> u64 {
        let disk = disks(folder.path(), 1).pop().unwrap();
        let files = disk.backing_files().unwrap().into_iter().filter(|(_, stream)| *stream == Stream::Units);
        files.map(|(number, stream)| disk.measure(number, stream).unwrap().1).sum()
    };
    let before = of_units();
    // The scrub waits after the first unit.
    volume.start_scrub(1).unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    while volume.scrub_report().unwrap().bytes_read == 0 {
        assert!(Instant::now() < deadline, "the scrub does not read");
        std::thread::sleep(Duration::from_millis(2));
    }
    for au in 0..8 {
        volume.decompress(ino, AuIndex(au)).unwrap();
    }
    while of_units() > before / 4 {
        assert!(Instant::now() < deadline, "{} of {before} bytes of units are left", of_units());
        volume.sync().unwrap();
        std::thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(volume.scrub_report().unwrap().state, ScrubState::Running);
    volume.close().unwrap();
}

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let (source, target) = (entry.as_ref().unwrap().path(), to.join(entry.unwrap().file_name()));
        match source.is_dir() {
            true => copy_folder(&source, &target),
            false => drop(std::fs::copy(&source, &target).unwrap()),
        }
    }
}

#[test]
fn a_page_that_is_damaged_in_flash_is_read_from_the_cell_disk() {
    let folder = tempfile::tempdir().unwrap();
    let flash = folder.path().join("flash");
    let segment_bytes = 256 << 10;
    let with_flash = || FlashOptions {
        disks: vec![Arc::new(DirectoryDisk::new(&flash).unwrap())],
        size: Some(FlashOptions::SEGMENTS_MIN * segment_bytes),
        columnar_bytes: 0,
        segment_bytes,
        fills_in_background: false,
        timeout: None,
    };
    let options = || VolumeOptions { flash: Some(with_flash()), ..options_of(Redundancy::External, &Arc::default()) };
    let volume = open_with(folder.path(), 1, options);
    let (ino, content) = (create(&volume, "file"), pages(3, 9));
    volume.write(ino, 0, &content).unwrap();
    volume.fsync(ino).unwrap();
    let read = |number: usize| {
        let mut page = vec![0; PAGE];
        volume.read(ino, (number * PAGE) as u64, &mut page).unwrap();
        assert!(page == content[number * PAGE..][..PAGE], "page {number}");
        volume.flash_stats().unwrap().read_hits
    };
    (0..3).for_each(|number| assert_eq!(read(number), 0));
    // A record is a header of 4096 bytes and a page.
    let segment = flash.join("data/10/0000000000000010");
    let file = std::fs::OpenOptions::new().write(true).open(segment).unwrap();
    file.write_all_at(b"damage", (4096 + PAGE) as u64 + 4096 + 1000).unwrap();
    assert_eq!((0..3).map(read).collect::<Vec<_>>(), [1, 2, 3], "flash answers, also with the damaged page");
    assert_eq!(volume.flash_stats().unwrap().used_bytes, 3 * PAGE as u64, "the page is cached again");
    assert_eq!((0..3).map(read).max(), Some(6));
    // The same page is damaged on the cell disk: flash has the only good one. Reads do not notice it, but the scrub does.
    let backing = folder.path().join(format!("disk0/data/{:02x}/{ino:016x}", ino & 0xff));
    std::fs::OpenOptions::new().write(true).open(&backing).unwrap().write_all_at(b"damage", PAGE as u64 + 100).unwrap();
    let report = scrub(&volume);
    assert_eq!((report.repaired, report.unrepaired), (1, 0), "{report:?}");
    volume.close().unwrap();
    drop(volume);
    assert!(std::fs::read(&backing).unwrap() == content);
}
