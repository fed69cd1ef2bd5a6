//! What a write may wait for: a checkpoint of the redo log delays only the writers of the file whose log is full,
//! `try_write` never waits, and a reservation of space waits for no sync.

use crate::support;
use cellar_format::units::RegionIndex;
use cellar_storage::disk::{Disk, Fault, FaultyDisk, Stream};
use cellar_storage::{Fallocate, Ino, ROOT_INO, UnitStored, Volume, VolumeOptions};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread::Scope;
use std::time::{Duration, Instant};
use support::codec::{PAGE, compress};
use support::memory_disk::{Crash, MemoryDisks};
use support::{MIB, Random, create, disks, new_file, options, read_all};

/// Length of a redo log at which a checkpoint is requested, and at which writers wait for a checkpoint.
const CHECKPOINT_BYTES: u64 = 32 * MIB;
const LOG_BYTES_MAX: u64 = 64 * MIB;
const SOON: Duration = Duration::from_secs(60);
/// Reads of single pages of a unit before the next read loads the whole unit.
const READS_BEFORE_LOAD: usize = 32;
/// Some of them, more than half.
const REPEATED_READS: usize = 20;

fn compressed(volume: &Volume, name: &str) -> Ino {
    let ino = create(volume, name);
    volume.write(ino, 0, &vec![1; MIB as usize]).unwrap();
    volume.fsync(ino).unwrap();
    assert_eq!(compress(volume, ino, 0, 0).unwrap(), UnitStored::Stored);
    ino
}

fn log_bytes(volume: &Volume, ino: Ino) -> u64 {
    let length = |disk: &Arc<dyn Disk>, stream| {
        let file = disk.open(ino, stream, false).unwrap();
        file.map_or(0, |file| file.len().unwrap())
    };
    volume.disks().iter().map(|disk| length(disk, Stream::Redo0) + length(disk, Stream::Redo1)).sum()
}

/// Writes pages of a unit in turn until the redo log is longer than `bytes`, or so long that a write would wait.
fn fill_log(volume: &Volume, ino: Ino, bytes: u64) {
    let (started, mut number) = (Instant::now(), 0);
    while number < 4 * LOG_BYTES_MAX / PAGE as u64 && started.elapsed() < SOON {
        let page = number % (MIB / PAGE as u64);
        let written = volume.try_write(ino, page * PAGE as u64, &[number as u8; PAGE]).unwrap();
        if written.is_none() && log_bytes(volume, ino) > LOG_BYTES_MAX
            || number % 256 == 0 && log_bytes(volume, ino) > bytes
        {
            return;
        }
        match written {
            Some(_) => number += 1,
            // A checkpoint in the background holds a lock for a moment.
            None => std::thread::yield_now(),
        }
    }
    panic!("the redo log stays shorter than {bytes} bytes");
}

/// Runs `work` in a thread and returns a channel that receives its result.
fn in_thread<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Receiver<T> {
    let (sender, receiver) = channel();
    scope.spawn(move || sender.send(work()));
    receiver
}

fn wait_until(what: &str, is_true: impl Fn() -> bool) {
    let started = Instant::now();
    while !is_true() {
        assert!(started.elapsed() < SOON, "expected: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Releases held operations, also if an assertion fails.
struct Release<F: Fn()>(F);

impl<F: Fn()> Drop for Release<F> {
    fn drop(&mut self) {
        self.0();
    }
}

#[test]
fn a_full_redo_log_delays_only_the_writers_of_its_file() {
    let disks = MemoryDisks::new(2);
    let volume = &*Volume::open(disks.disks(), options()).unwrap();
    let (busy, other) = (compressed(volume, "busy"), compressed(volume, "other"));
    std::thread::scope(|scope| {
        disks.hold_syncs(true);
        let release = Release(|| disks.hold_syncs(false));
        in_thread(scope, || fill_log(volume, busy, CHECKPOINT_BYTES))
            .recv_timeout(SOON)
            .expect("the write that makes the log long does not wait for the sync");
        let started = Instant::now();
        while !disks.is_sync_held() {
            assert!(started.elapsed() < SOON, "no checkpoint was started");
            std::thread::yield_now();
        }
        in_thread(scope, || fill_log(volume, busy, LOG_BYTES_MAX))
            .recv_timeout(SOON)
            .expect("writes do not wait while the log is not full");

        assert_eq!(volume.try_write(busy, 0, &[7; PAGE]).unwrap(), None, "the log is full");
        let blocked = in_thread(scope, || volume.write(busy, 0, &[7; PAGE]));
        assert!(blocked.recv_timeout(Duration::from_millis(200)).is_err(), "a full log delays its writers");
        in_thread(scope, || {
            assert_eq!(volume.try_write(other, 0, &[9; PAGE]).unwrap(), Some(PAGE));
            volume.write(other, MIB, &[8; PAGE]).unwrap();
            let (mut bytes, mut same) = ([0; PAGE], [0; PAGE]);
            volume.read(other, 0, &mut bytes).unwrap();
            volume.read(busy, 3 * PAGE as u64, &mut same).unwrap();
            assert!(bytes == [9; PAGE] && same.iter().all(|byte| *byte == same[0]));
            volume.create(ROOT_INO, b"third", &new_file()).unwrap();
        })
        .recv_timeout(SOON)
        .expect("other files, and reads of this file, are not delayed");

        drop(release);
        assert_eq!(blocked.recv_timeout(SOON).expect("the checkpoint releases the writer").unwrap(), PAGE);
    });
    let mut first = [0; PAGE];
    volume.read(busy, 0, &mut first).unwrap();
    assert_eq!(first, [7; PAGE]);
    let started = Instant::now();
    while log_bytes(volume, busy) > CHECKPOINT_BYTES + MIB {
        assert!(started.elapsed() < SOON, "{} bytes of redo log", log_bytes(volume, busy));
        std::thread::sleep(Duration::from_millis(10));
    }
    let expected = read_all(volume, busy);
    volume.abandon();
    let killed = disks.crash(Crash::Kill, &mut Random::from_environment());
    assert!(read_all(&Volume::open(killed.disks(), options()).unwrap(), busy) == expected);
}

/// PostgreSQL 16 and later extend relations with `posix_fallocate`. Such a session must not wait for the syncs of compressions and of
/// checkpoints of the redo log.
#[test]
fn a_reservation_of_space_does_not_wait_for_a_sync_of_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let faulty = Arc::new(FaultyDisk::new(disks(folder.path(), 1).remove(0), 1));
    let volume = &*Volume::open(vec![faulty.clone()], options()).unwrap();
    let (raw, unit) = (create(volume, "raw"), compressed(volume, "unit"));
    for ino in [raw, unit] {
        volume.write(ino, 0, &[2; PAGE]).unwrap();
        let size = volume.size(ino).unwrap();
        std::thread::scope(|scope| {
            faulty.set_faults(&[Fault::HeldSync]);
            let release = Release(|| faulty.set_faults(&[]));
            let sync = in_thread(scope, move || volume.fsync(ino));
            wait_until("the disk holds the sync", || faulty.held() > 0);
            for keep_size in [true, false] {
                let reserve = move || volume.fallocate(ino, size, MIB, Fallocate::Reserve { keep_size });
                let reserved = in_thread(scope, reserve).recv_timeout(SOON);
                reserved.expect("the reservation does not wait for the sync").unwrap();
                assert_eq!(volume.size(ino).unwrap(), if keep_size { size } else { size + MIB });
            }
            assert!(sync.try_recv().is_err(), "the sync has ended before the reservation");
            drop(release);
            sync.recv_timeout(SOON).expect("the sync ends").unwrap();
        });
        let bytes = read_all(volume, ino);
        assert!(bytes[..PAGE] == [2; PAGE] && bytes[size as usize..].iter().all(|byte| *byte == 0));
    }
}

#[test]
fn writes_fail_while_the_redo_log_is_full_and_checkpoints_fail() {
    let folder = tempfile::tempdir().unwrap();
    let faulty = Arc::new(FaultyDisk::new(disks(folder.path(), 1).remove(0), 1));
    let volume = Volume::open(vec![faulty.clone()], options()).unwrap();
    let ino = compressed(&volume, "file");
    faulty.set_faults(&[Fault::Sync { errno: libc::EIO, one_in: 1 }]);
    fill_log(&volume, ino, LOG_BYTES_MAX);
    for _ in 0..3 {
        assert_eq!(volume.write(ino, 0, &[7; PAGE]).unwrap_err().errno(), libc::EIO);
    }
    assert!(log_bytes(&volume, ino) < LOG_BYTES_MAX + 2 * MIB, "the log is bounded");
    faulty.set_faults(&[]);
    volume.write(ino, 0, &[7; PAGE]).unwrap();
    assert_eq!(volume.fsync(ino).unwrap_err().errno(), libc::EIO, "the deferred error of the checkpoints");
    volume.fsync(ino).unwrap();
    assert_eq!(log_bytes(&volume, ino), 0);
}

#[test]
fn a_write_that_would_wait_for_a_scan_is_returned_and_a_read_does_not_wait() {
    let folder = tempfile::tempdir().unwrap();
    let volume = support::open(folder.path(), 2);
    let ino = create(&volume, "file");
    volume.write(ino, 0, &vec![1; 2 * MIB as usize]).unwrap();
    let pinned = volume.region(ino, RegionIndex(0)).unwrap();
    assert_eq!(volume.try_write(ino, 8192, &[2; PAGE]).unwrap(), None);
    assert_eq!(volume.try_write(ino, MIB, &[3; PAGE]).unwrap(), Some(PAGE), "another region");
    assert!(pinned.iter().all(|byte| *byte == 1));
    drop(pinned);
    assert_eq!(volume.try_write(ino, 8192, &[2; PAGE]).unwrap(), Some(PAGE));
    assert_eq!(volume.try_write(ino, 0, &[]).unwrap(), Some(0));
    assert!(volume.try_write(ino, u64::MAX - 5, &[1; 10]).is_err());
}

#[test]
fn a_write_that_fails_is_returned_before_it_is_undone() {
    let folder = tempfile::tempdir().unwrap();
    let faulty = Arc::new(FaultyDisk::new(disks(folder.path(), 1).remove(0), 3));
    let volume = &*Volume::open(vec![faulty.clone()], options()).unwrap();
    let ino = create(volume, "file");
    volume.write(ino, 0, &[1; PAGE]).unwrap();
    let length = || faulty.open(ino, Stream::Data, false).unwrap().unwrap().len().unwrap();
    let fails = Fault::Write { errno: libc::EIO, one_in: 1 };
    let end = PAGE as u64;
    std::thread::scope(|scope| {
        // Changes of a file's length wait, and a part of each failed write arrives.
        faulty.set_faults(&[fails, Fault::HeldSpace]);
        let release = Release(|| faulty.set_faults(&[fails]));
        let failed = in_thread(scope, || volume.try_write(ino, end, &vec![2; MIB as usize]));
        assert_eq!(failed.recv_timeout(SOON).expect("a write that fails waits for nothing").unwrap(), None);
        assert!(length() > end, "a part of the write has arrived");
        assert_eq!(read_all(volume, ino), [1; PAGE], "the file has its old size");
        let again = in_thread(scope, || volume.try_write(ino, end, &[3; PAGE]));
        assert_eq!(again.recv_timeout(SOON).expect("nor does the next write").unwrap(), None);
        let repeated = in_thread(scope, || volume.write(ino, end, &vec![2; MIB as usize]));
        assert!(repeated.recv_timeout(Duration::from_millis(200)).is_err(), "the repeated write undoes the failed one");
        drop(release);
        assert_eq!(repeated.recv_timeout(SOON).expect("the repeated write ends").unwrap_err().errno(), libc::EIO);
    });
    assert_eq!(length(), end, "the repeated write is undone before it returns");
    faulty.set_faults(&[]);
    assert_eq!(volume.try_write(ino, 3 * end, &[4; PAGE]).unwrap(), Some(PAGE));
    assert_eq!(read_all(volume, ino), [[1; PAGE], [0; PAGE], [0; PAGE], [4; PAGE]].concat());
}

#[test]
fn the_disks_of_a_group_are_opened_side_by_side() {
    const DISKS: usize = 4;
    let folder = tempfile::tempdir().unwrap();
    let open = || {
        let wrap = |disk| Arc::new(FaultyDisk::new(disk, 1));
        let faulty: Vec<Arc<FaultyDisk>> = disks(folder.path(), DISKS).into_iter().map(wrap).collect();
        let as_disks = faulty.iter().map(|disk| disk.clone() as Arc<dyn Disk>).collect::<Vec<_>>();
        (faulty, as_disks)
    };
    let ino = {
        let (faulty, as_disks) = open();
        let volume = Volume::open(as_disks, options()).unwrap();
        let ino = create(&volume, "file");
        volume.write(ino, 0, &[5; PAGE]).unwrap();
        volume.fsync(ino).unwrap();
        volume.abandon();
        drop((volume, faulty));
        ino
    };
    let (faulty, as_disks) = open();
    let set_faults = |faults: &[Fault]| {
        faulty.iter().for_each(|disk| {
            disk.set_faults(faults);
            disk.set_named_faults(faults);
        });
    };
    set_faults(&[Fault::HeldSync]);
    let volume = std::thread::scope(|scope| {
        let release = Release(|| set_faults(&[]));
        let opened =
            in_thread(scope, || Volume::open(as_disks, VolumeOptions { cache_bytes: 0, ..options() }).unwrap());
        let started = Instant::now();
        // No sync returns, so each disk is opened by another thread.
        while faulty.iter().any(|disk| disk.syncs() == 0) {
            assert!(started.elapsed() < SOON, "a disk is opened only after another disk");
            std::thread::yield_now();
        }
        drop(release);
        opened.recv_timeout(SOON).expect("the volume opens after the syncs")
    });
    assert_eq!(read_all(&volume, ino), [5; PAGE]);
}

#[test]
fn a_read_that_would_wait_for_the_device_is_returned() {
    let folder = tempfile::tempdir().unwrap();
    let faulty = Arc::new(FaultyDisk::new(disks(folder.path(), 1).remove(0), 1));
    let volume = &*Volume::open(vec![faulty.clone()], options()).unwrap();
    let (raw, unit) = (create(volume, "raw"), compressed(volume, "unit"));
    volume.write(raw, 0, &[7; PAGE]).unwrap();
    volume.fsync(raw).unwrap();
    let read = |ino, bytes: &mut [u8; PAGE]| volume.try_read(ino, 0, bytes).unwrap();
    let mut bytes = [0; PAGE];
    std::thread::scope(|scope| {
        faulty.set_faults(&[Fault::HeldRead]);
        let release = Release(|| faulty.set_faults(&[]));
        for ino in [raw, unit] {
            assert_eq!(read(ino, &mut bytes), None);
        }
        let blocked = in_thread(scope, || volume.read(raw, 0, &mut [0; PAGE]).unwrap());
        assert!(blocked.recv_timeout(Duration::from_millis(200)).is_err(), "a read waits for the device");
        drop(release);
        assert_eq!(blocked.recv_timeout(SOON).expect("the read returns"), PAGE);
    });
    for (ino, fill) in [(raw, 7), (unit, 1)] {
        assert_eq!(volume.read(ino, 0, &mut bytes).unwrap(), PAGE);
        bytes.fill(0);
        assert_eq!(read(ino, &mut bytes), Some(PAGE), "the bytes are in memory");
        assert_eq!(bytes, [fill; PAGE]);
    }
    assert_eq!(volume.try_read(raw, PAGE as u64, &mut bytes).unwrap(), Some(0), "the end of the file");
}

/// Reads a page of the unit like a queue of the file service: first without waiting, then waiting.
fn read_twice(volume: &Volume, faulty: &FaultyDisk, ino: Ino) {
    let mut bytes = [0; PAGE];
    faulty.set_faults(&[Fault::HeldRead]);
    assert_eq!(volume.try_read(ino, 0, &mut bytes).unwrap(), None);
    faulty.set_faults(&[]);
    assert_eq!(volume.read(ino, 0, &mut bytes).unwrap(), PAGE);
}

#[test]
fn a_read_of_a_unit_that_is_repeated_counts_once() {
    let folder = tempfile::tempdir().unwrap();
    let faulty = Arc::new(FaultyDisk::new(disks(folder.path(), 1).remove(0), 1));
    let volume = Volume::open(vec![faulty.clone()], options()).unwrap();
    let ino = compressed(&volume, "file");
    let is_loaded = || volume.cache_stats().used_bytes > 0;
    (0..REPEATED_READS).for_each(|_| read_twice(&volume, &faulty, ino));
    (REPEATED_READS..READS_BEFORE_LOAD).for_each(|_| _ = volume.read(ino, 0, &mut [0; PAGE]).unwrap());
    assert!(!is_loaded(), "{READS_BEFORE_LOAD} reads are not worth loading the unit");
    read_twice(&volume, &faulty, ino);
    assert!(is_loaded(), "the next read loads the unit");
    let mut bytes = [0; PAGE];
    faulty.set_faults(&[Fault::HeldRead]);
    assert_eq!(volume.try_read(ino, 0, &mut bytes).unwrap(), Some(PAGE), "the unit is in the page cache");
    assert_eq!(bytes, [1; PAGE]);
}

#[test]
fn a_read_of_a_unit_neither_loads_the_unit_nor_waits_for_its_load_if_it_must_not_wait() {
    let folder = tempfile::tempdir().unwrap();
    let faulty = Arc::new(FaultyDisk::new(disks(folder.path(), 1).remove(0), 1));
    let volume = &*Volume::open(vec![faulty.clone()], options()).unwrap();
    let ino = compressed(volume, "file");
    (0..READS_BEFORE_LOAD).for_each(|_| _ = volume.read(ino, 0, &mut [0; PAGE]).unwrap());
    let try_read = || volume.try_read(ino, 0, &mut [0; PAGE]).unwrap();
    assert_eq!(try_read(), None, "the unit is worth loading");
    assert_eq!(volume.cache_stats().used_bytes, 0);
    std::thread::scope(|scope| {
        faulty.set_faults(&[Fault::HeldRead]);
        let release = Release(|| faulty.set_faults(&[]));
        let loading = in_thread(scope, || volume.read(ino, 0, &mut [0; PAGE]).unwrap());
        wait_until("a read loads the unit", || faulty.held() > 0);
        let tried = in_thread(scope, try_read);
        assert_eq!(tried.recv_timeout(SOON).expect("the read does not wait for the load"), None);
        drop(release);
        assert_eq!(loading.recv_timeout(SOON).expect("the read returns"), PAGE);
    });
    assert_eq!(try_read(), Some(PAGE));
}

#[test]
fn a_write_that_would_measure_the_free_space_is_returned() {
    let folder = tempfile::tempdir().unwrap();
    let faulty = Arc::new(FaultyDisk::new(disks(folder.path(), 1).remove(0), 1));
    let volume = &*Volume::open(vec![faulty.clone()], options()).unwrap();
    let (raw, unit, other) = (create(volume, "raw"), compressed(volume, "unit"), create(volume, "other"));
    volume.write(other, 0, &[1; PAGE]).unwrap();
    std::thread::scope(|scope| {
        faulty.set_faults(&[Fault::HeldSpace]);
        let release = Release(|| faulty.set_faults(&[]));
        let grow = || (0..).find(|page| volume.try_write(raw, page * PAGE as u64, &[2; PAGE]).unwrap().is_none());
        let pages = in_thread(scope, move || grow().expect("the search has no end"));
        let pages = pages.recv_timeout(SOON).expect("the last measurement becomes too old");
        let blocked = in_thread(scope, move || volume.write(raw, pages * PAGE as u64, &[2; PAGE]).unwrap());
        // The maintenance thread measures, too.
        wait_until("the write measures the free space", || faulty.held() == 2);
        let tried = in_thread(scope, move || {
            let write = |ino, offset| volume.try_write(ino, offset, &[3; PAGE]).unwrap();
            [write(raw, 0), write(unit, 0), write(other, PAGE as u64), write(other, 0)]
        });
        let tried = tried.recv_timeout(SOON).expect("writes do not wait for the measurement");
        assert_eq!(tried, [None, None, None, Some(PAGE)], "only an overwrite of a raw page needs no space");
        assert!(blocked.try_recv().is_err());
        drop(release);
        assert_eq!(blocked.recv_timeout(SOON).expect("the write returns"), PAGE);
    });
    assert_eq!(volume.try_write(unit, 0, &[3; PAGE]).unwrap(), Some(PAGE), "the measurement is recent");
}

#[test]
fn a_write_that_would_read_the_rest_of_a_page_of_a_unit_is_returned() {
    let folder = tempfile::tempdir().unwrap();
    let faulty = Arc::new(FaultyDisk::new(disks(folder.path(), 1).remove(0), 1));
    let volume = &*Volume::open(vec![faulty.clone()], options()).unwrap();
    let ino = compressed(volume, "unit");
    std::thread::scope(|scope| {
        faulty.set_faults(&[Fault::HeldRead]);
        let _release = Release(|| faulty.set_faults(&[]));
        for (offset, length) in [(10, PAGE - 10), (PAGE, 10), (5, PAGE)] {
            let tried = in_thread(scope, move || volume.try_write(ino, offset as u64, &vec![2; length]).unwrap());
            assert_eq!(tried.recv_timeout(SOON).expect("the write does not wait for a read"), None);
        }
        assert_eq!(volume.try_write(ino, 0, &[2; PAGE]).unwrap(), Some(PAGE), "a whole page");
    });
}

#[test]
fn a_write_does_not_wait_while_another_thread_rewrites_the_redo_log() {
    let folder = tempfile::tempdir().unwrap();
    let faulty = Arc::new(FaultyDisk::new(disks(folder.path(), 1).remove(0), 1));
    let volume = &*Volume::open(vec![faulty.clone()], options()).unwrap();
    let ino = compressed(volume, "unit");
    volume.write(ino, 0, &[2; PAGE]).unwrap();
    std::thread::scope(|scope| {
        faulty.set_faults(&[Fault::Sync { errno: libc::EIO, one_in: 1 }, Fault::HeldRead]);
        let release = Release(|| faulty.set_faults(&[]));
        let failing = in_thread(scope, || volume.fsync(ino).map_err(|error| error.errno()));
        wait_until("the failed sync reads the redo log", || faulty.held() > 0);
        let tried = in_thread(scope, || volume.try_write(ino, 0, &[3; PAGE]).unwrap());
        assert_eq!(tried.recv_timeout(SOON).expect("the write does not wait for the rewrite"), None);
        drop(release);
        assert_eq!(failing.recv_timeout(SOON).expect("the sync returns"), Err(libc::EIO));
    });
}
