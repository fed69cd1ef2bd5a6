//! The columnar cache: a unit is found only while its pages are unchanged, the right units stay, and nothing survives a restart.
//!
//! The storage does not look into units, so the units of these tests are the pages themselves.

use cellar_format::ByteSource;
use cellar_format::units::AuIndex;
use cellar_storage::disk::{DirectoryDisk, Disk, Fault, FaultyDisk};
use cellar_storage::{
    AuSize, CachedColumns, ColumnarStats, ColumnsStored, Fallocate, FlashOptions, FlashSetting, Ino, Kind, NewColumns,
    NewNode, ROOT_INO, UnitReader, Volume, VolumeOptions,
};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const AU: u64 = 1 << 20;
const PAGE: usize = 8192;
const UNIT: usize = 64 << 10;
/// Bytes of a unit of `UNIT` bytes in flash.
const STORED: u64 = UNIT as u64 + 4096;

fn open_on(folder: &Path, flash: Arc<dyn Disk>, units: u64) -> Arc<Volume> {
    open_with(folder, flash, units, VolumeOptions::default().handles_max)
}

fn open_with(folder: &Path, flash: Arc<dyn Disk>, units: u64, handles_max: usize) -> Arc<Volume> {
    let disk = Arc::new(DirectoryDisk::new(folder.join("disk")).unwrap()) as Arc<dyn Disk>;
    let flash = FlashOptions {
        disks: vec![flash],
        size: Some(12 << 20),
        columnar_bytes: units * STORED,
        segment_bytes: 1 << 20,
        fills_in_background: false,
        timeout: None,
    };
    let au_size = AuSize::from_bytes(AU).unwrap();
    let options = VolumeOptions { au_size, handles_max, flash: Some(flash), ..VolumeOptions::default() };
    Volume::open(vec![disk], options).unwrap()
}

fn open(folder: &Path, units: u64) -> Arc<Volume> {
    open_on(folder, Arc::new(DirectoryDisk::new(folder.join("flash")).unwrap()), units)
}

fn create(volume: &Volume, name: &str, aus: u64) -> Ino {
    let new = NewNode { kind: Kind::File, mode: 0o600, uid: 0, gid: 0, device: 0, target: b"" };
    let ino = volume.create(ROOT_INO, name.as_bytes(), &new).unwrap().ino;
    volume.write(ino, 0, &vec![1; (aus * AU) as usize]).unwrap();
    ino
}

/// Stores a unit of the allocation unit's first bytes. `between` runs after they were read.
fn store_after(volume: &Volume, ino: Ino, au: u64, previous_use: Option<i64>, between: impl Fn()) -> ColumnsStored {
    let version = volume.au_version(ino, AuIndex(au)).unwrap();
    let mut bytes = vec![0; UNIT];
    volume.read_uncached(ino, au * AU, &mut bytes).unwrap();
    between();
    let page_count = (AU as usize / PAGE) as u32;
    let new = NewColumns { au: AuIndex(au), version, page_count, tag: 1, bytes: &bytes, previous_use };
    volume.store_columns(ino, new).unwrap()
}

fn store(volume: &Volume, ino: Ino, au: u64, previous_use: Option<i64>) -> ColumnsStored {
    store_after(volume, ino, au, previous_use, || {})
}

fn find(volume: &Volume, ino: Ino, au: u64) -> Option<UnitReader> {
    match volume.cached_columns(ino, AuIndex(au)).unwrap() {
        CachedColumns::Unit(reader) => Some(reader),
        CachedColumns::Changed | CachedColumns::Missing => None,
    }
}

fn has(volume: &Volume, ino: Ino, au: u64) -> bool {
    find(volume, ino, au).is_some()
}

fn stats(volume: &Volume) -> ColumnarStats {
    volume.columnar_stats().unwrap()
}

fn now() -> i64 {
    let elapsed = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    elapsed.as_nanos() as i64
}

#[test]
fn every_change_of_a_byte_makes_the_unit_void() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open(folder.path(), 16);
    let ino = create(&volume, "file", 4);
    let size = 4 * AU;
    let changes: [(&str, &dyn Fn()); 6] = [
        ("a write", &|| {
            volume.write(ino, 3 * AU + 5, &[7]).unwrap();
        }),
        ("a write without waiting", &|| {
            volume.try_write(ino, 4 * AU - 1, &[8]).unwrap().unwrap();
        }),
        ("a punch", &|| volume.fallocate(ino, 3 * AU, 8192, Fallocate::PunchHole).unwrap()),
        ("a zero", &|| volume.fallocate(ino, 3 * AU, 100, Fallocate::Zero { keep_size: true }).unwrap()),
        ("a copy", &|| {
            volume.copy_range((ino, 0), (ino, 3 * AU), 10).unwrap();
        }),
        ("a truncate", &|| {
            volume.truncate(ino, size - 8192).unwrap();
            volume.truncate(ino, size).unwrap();
        }),
    ];
    for (what, change) in changes {
        assert_eq!(store(&volume, ino, 3, None), ColumnsStored::Stored);
        assert_eq!(store(&volume, ino, 0, None), ColumnsStored::Stored);
        assert!(has(&volume, ino, 3), "before {what}");
        change();
        assert!(!has(&volume, ino, 3), "{what} leaves a stale unit");
        assert!(has(&volume, ino, 0), "{what} voids the unit of another allocation unit");
        // Between the read of the pages and the publication.
        assert_eq!(store_after(&volume, ino, 3, None, change), ColumnsStored::Changed, "{what}");
        assert!(!has(&volume, ino, 3), "{what} during the encoding leaves a stale unit");
    }
    assert_eq!(stats(&volume).invalidated_units, 6);
    volume.close().unwrap();
}

/// Ends the other thread, also after a failed assertion.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// A unit that is found after a write was acknowledged contains the write, whatever the threads do meanwhile. Fails if the cache
/// does not compare versions: then a unit of pages that were read before the write is found after it.
#[test]
fn a_write_that_races_with_the_publication_is_never_missed() {
    const WRITES: u32 = 640;
    let folder = tempfile::tempdir().unwrap();
    let volume = open(folder.path(), 16);
    let ino = create(&volume, "file", 1);
    let is_done = AtomicBool::new(false);
    let found = std::thread::scope(|scope| {
        let filler = scope.spawn(|| {
            while !is_done.load(Ordering::Acquire) {
                store(&volume, ino, 0, None);
            }
        });
        let done = Done(&is_done);
        let mut found = 0;
        for number in 0..WRITES {
            volume.write(ino, 4096, &number.to_le_bytes()).unwrap();
            // Gives the filler time for a unit now and then.
            let tries = if number % 32 == 0 { 2000 } else { 1 };
            for _ in 0..tries {
                if let Some(unit) = find(&volume, ino, 0) {
                    let mut bytes = [0; 4];
                    unit.read_at(&mut bytes, 4096).unwrap();
                    assert_eq!(u32::from_le_bytes(bytes), number, "a unit of older pages");
                    found += 1;
                    break;
                }
                std::thread::yield_now();
            }
        }
        drop(done);
        filler.join().unwrap();
        found
    });
    assert!(found > 0, "the filler was never fast enough");
    volume.close().unwrap();
}

#[test]
fn a_reader_keeps_its_unit_while_the_unit_is_replaced_and_evicted() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open(folder.path(), 2);
    let ino = create(&volume, "file", 4);
    assert_eq!(store(&volume, ino, 0, None), ColumnsStored::Stored);
    let reader = find(&volume, ino, 0).unwrap();
    volume.write(ino, 0, &vec![2; AU as usize]).unwrap();
    assert_eq!(store(&volume, ino, 0, None), ColumnsStored::Stored);
    let second = find(&volume, ino, 0).unwrap();
    volume.write(ino, 0, &vec![3; AU as usize]).unwrap();
    assert_eq!(store(&volume, ino, 0, None), ColumnsStored::Full, "both slots are being read");
    drop(second);
    assert_eq!(store(&volume, ino, 0, None), ColumnsStored::Stored);
    for au in 1..4 {
        store(&volume, ino, au, Some(now()));
    }
    let mut bytes = vec![0; UNIT];
    reader.read_at(&mut bytes, 0).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 1), "the reader sees the pages of before");
    volume.close().unwrap();
}

#[test]
fn repeated_scans_of_more_than_the_cache_keep_what_is_cached() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open(folder.path(), 4);
    let ino = create(&volume, "file", 8);
    let mut previous = [None; 8];
    let mut scan = || {
        let hits = (0..8).filter(|au| {
            let hit = has(&volume, ino, *au);
            if !hit && previous[*au as usize].is_some() && volume.has_space_for_columns(ino, previous[*au as usize]) {
                store(&volume, ino, *au, previous[*au as usize]);
            }
            previous[*au as usize] = Some(now());
            hit
        });
        hits.count()
    };
    assert_eq!([scan(), scan(), scan(), scan()], [0, 0, 4, 4]);
    let now = stats(&volume);
    assert_eq!((now.units, now.evicted_units, now.rejected_units), (4, 0, 0), "no unit was encoded in vain");
    // Another file that is scanned while this one is not.
    let other = create(&volume, "other", 4);
    let before = self::now();
    for au in 0..4 {
        assert_eq!(store(&volume, other, au, Some(before)), ColumnsStored::Stored);
    }
    assert_eq!((stats(&volume).evicted_units, volume.columnar_bytes(ino)), (4, 0));
    assert!(stats(&volume).used_bytes <= stats(&volume).capacity_bytes);
    volume.close().unwrap();
}

#[test]
fn kept_files_fill_their_quota_and_stay_and_others_are_not_cached() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open(folder.path(), 10);
    let [kept, other, none] = ["kept", "other", "none"].map(|name| create(&volume, name, 10));
    for au in 0..10 {
        assert_eq!(store(&volume, other, au, None), ColumnsStored::Stored);
    }
    volume.set_flash_setting(kept, FlashSetting::Keep).unwrap();
    volume.set_flash_setting(none, FlashSetting::None).unwrap();
    let results: Vec<_> = (0..10).map(|au| store(&volume, kept, au, None)).collect();
    let stored = results.iter().filter(|result| **result == ColumnsStored::Stored).count();
    assert_eq!(stored, 8, "80 % of the cache");
    assert_eq!((stats(&volume).keep_bytes, volume.columnar_bytes(other)), (8 * STORED, 2 * STORED));
    assert_eq!(store(&volume, other, 0, Some(now())), ColumnsStored::Stored);
    assert_eq!(volume.columnar_bytes(kept), 8 * STORED, "other files displace only each other");
    assert_eq!(store(&volume, none, 0, None), ColumnsStored::Refused);
    volume.set_flash_setting(kept, FlashSetting::None).unwrap();
    assert_eq!((volume.columnar_bytes(kept), stats(&volume).keep_bytes), (0, 0));
    volume.set_flash_setting(other, FlashSetting::Keep).unwrap();
    assert_eq!(stats(&volume).keep_bytes, 2 * STORED);
    volume.close().unwrap();
}

/// Returns the number of unit files on the flash disk.
fn unit_files(folder: &Path) -> usize {
    let mut folders = vec![folder.join("flash")];
    let mut found = 0;
    while let Some(path) = folders.pop() {
        match path.is_dir() {
            true => folders.extend(std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path())),
            false => found += usize::from(path.extension().is_some_and(|extension| extension == "units")),
        }
    }
    found
}

/// Waits for the background thread.
fn wait_for_unit_files(folder: &Path, expected: usize) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while unit_files(folder) != expected {
        assert!(Instant::now() < deadline, "{} unit files", unit_files(folder));
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn unlink(volume: &Volume, name: &str, ino: Ino) {
    volume.unlink(ROOT_INO, name.as_bytes()).unwrap();
    volume.forget(ino, 1);
    volume.fsyncdir(ROOT_INO).unwrap();
}

/// A commit that removes a file waits for no flash disk, and a unit that is being read stays readable.
#[test]
fn a_removed_file_leaves_as_a_whole() {
    let folder = tempfile::tempdir().unwrap();
    let flash = Arc::new(FaultyDisk::new(Arc::new(DirectoryDisk::new(folder.path().join("flash")).unwrap()), 1));
    let volume = open_on(folder.path(), flash.clone(), 8);
    let ino = create(&volume, "file", 4);
    (0..4).for_each(|au| assert_eq!(store(&volume, ino, au, None), ColumnsStored::Stored));
    let reader = find(&volume, ino, 0).unwrap();
    // Punches, too.
    flash.set_faults(&[Fault::WritePanic]);
    unlink(&volume, "file", ino);
    assert_eq!(stats(&volume).units, 0);
    reader.read_at(&mut vec![0; UNIT], 0).unwrap();
    assert_eq!(unit_files(folder.path()), 1);
    drop(reader);
    wait_for_unit_files(folder.path(), 0);
    flash.set_faults(&[]);
    assert!(stats(&volume).is_on);
    volume.close().unwrap();
}

/// The cache has a descriptor for each file; here for one.
#[test]
fn the_least_recently_used_file_leaves_for_another() {
    let folder = tempfile::tempdir().unwrap();
    let flash = Arc::new(DirectoryDisk::new(folder.path().join("flash")).unwrap());
    let volume = open_with(folder.path(), flash, 8, 4);
    let [first, second] = ["first", "second"].map(|name| create(&volume, name, 2));
    assert_eq!([0, 1].map(|au| store(&volume, first, au, None)), [ColumnsStored::Stored; 2]);
    let between = now();
    assert!(has(&volume, first, 0));
    assert!(!volume.has_space_for_columns(second, Some(between)));
    assert_eq!(store(&volume, second, 0, Some(between)), ColumnsStored::Full, "the other file is used more often");
    assert_eq!((volume.columnar_bytes(first), stats(&volume).evicted_units), (2 * STORED, 0));
    assert_eq!(store(&volume, second, 0, Some(now())), ColumnsStored::Stored);
    assert_eq!((volume.columnar_bytes(first), stats(&volume).evicted_units), (0, 2));
    wait_for_unit_files(folder.path(), 1);
    assert!(has(&volume, second, 0));
    volume.close().unwrap();
}

#[test]
fn a_unit_must_fit_in_its_slot() {
    let folder = tempfile::tempdir().unwrap();
    let volume = open(folder.path(), 64);
    let ino = create(&volume, "file", 1);
    let version = volume.au_version(ino, AuIndex(0)).unwrap();
    let bytes = vec![0; AU as usize];
    let page_count = (AU as usize / PAGE) as u32;
    let new = NewColumns { au: AuIndex(0), version, page_count, tag: 1, bytes: &bytes, previous_use: None };
    assert!(volume.store_columns(ino, new).is_err(), "header and checksums do not fit");
    let fitting = NewColumns { bytes: &bytes[..AU as usize - 1024], ..new };
    assert_eq!(volume.store_columns(ino, fitting).unwrap(), ColumnsStored::Stored);
    volume.close().unwrap();
}

#[test]
fn a_removed_file_and_a_restart_leave_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let unit_files = || unit_files(folder.path());
    let volume = open(folder.path(), 4);
    let [removed, left] = ["removed", "left"].map(|name| create(&volume, name, 1));
    assert_eq!([removed, left].map(|ino| store(&volume, ino, 0, None)), [ColumnsStored::Stored; 2]);
    assert_eq!(unit_files(), 2);
    unlink(&volume, "removed", removed);
    assert_eq!(stats(&volume).units, 1);
    wait_for_unit_files(folder.path(), 1);
    volume.abandon();
    drop(volume);
    let volume = open(folder.path(), 4);
    assert_eq!((unit_files(), stats(&volume).units), (0, 0));
    assert!(!has(&volume, left, 0));
    assert_eq!(store(&volume, left, 0, None), ColumnsStored::Stored);
    assert!(has(&volume, left, 0));
    volume.abandon();
    drop(volume);
    // Without columnar cache.
    let volume = open(folder.path(), 0);
    assert_eq!((unit_files(), volume.columnar_stats()), (0, None));
    assert_eq!(store(&volume, left, 0, None), ColumnsStored::Refused);
    volume.close().unwrap();
}

#[test]
fn a_failed_flash_disk_switches_the_cache_off() {
    let folder = tempfile::tempdir().unwrap();
    let flash = Arc::new(FaultyDisk::new(Arc::new(DirectoryDisk::new(folder.path().join("flash")).unwrap()), 1));
    let volume = open_on(folder.path(), flash.clone(), 4);
    let ino = create(&volume, "file", 2);
    assert_eq!(store(&volume, ino, 0, None), ColumnsStored::Stored);
    flash.set_faults(&[Fault::Write { errno: 5, one_in: 1 }]);
    assert_eq!(store(&volume, ino, 1, None), ColumnsStored::Refused);
    assert!(!stats(&volume).is_on && stats(&volume).units == 0 && !has(&volume, ino, 0));
    flash.set_faults(&[]);
    assert_eq!(store(&volume, ino, 1, None), ColumnsStored::Refused, "until the next start");
    volume.close().unwrap();
}
