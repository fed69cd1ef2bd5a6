//! The flash log with disks that hang, are slow or fail: what a sync waits for, and what a start finds.

use crate::support;
use cellar_format::wire::FileType;
use cellar_storage::disk::{Disk, Fault, FaultyDisk};
use cellar_storage::{FlashLogOptions, FlashLogStats, Ino, Result, Volume, VolumeOptions};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use support::memory_disk::{Crash, MemoryDisks};
use support::{MIB, Random, create, options, read_all};

const PAGE: usize = 8192;

/// A cell disk and a flash disk that can be held, failed and slowed down.
struct Cell {
    disks: MemoryDisks,
    cell_disk: Arc<FaultyDisk>,
    flash_disk: Arc<FaultyDisk>,
}

impl Cell {
    fn on(disks: MemoryDisks) -> Self {
        Self::with(disks, 0, 1)
    }

    fn with(disks: MemoryDisks, cell_disk: usize, flash_disk: usize) -> Self {
        let faulty = |number: usize| Arc::new(FaultyDisk::new(disks.disks().remove(number), 11 + number as u64));
        Self { cell_disk: faulty(cell_disk), flash_disk: faulty(flash_disk), disks }
    }

    fn open(&self, size: Option<u64>) -> Result<Arc<Volume>> {
        self.open_with(size, false)
    }

    fn open_with(&self, size: Option<u64>, force_degraded: bool) -> Result<Arc<Volume>> {
        let log = |size| FlashLogOptions::new(vec![self.flash_disk.clone() as Arc<dyn Disk>], size);
        let options =
            VolumeOptions { file_type: |_| FileType::Wal, flash_log: size.map(log), force_degraded, ..options() };
        Volume::open(vec![self.cell_disk.clone()], options)
    }

    /// Opens a volume with a flash log and a WAL file whose writes are captured.
    fn begun(&self) -> (Arc<Volume>, Ino) {
        let volume = self.open(Some(4 * MIB)).unwrap();
        let ino = create(&volume, "wal");
        write(&volume, ino, 0).unwrap();
        write(&volume, ino, 1).unwrap();
        (volume, ino)
    }

    /// Loses power, and opens the volume on what is left.
    fn after_crash(&self, volume: &Volume) -> Self {
        let left = Self::on(self.disks.crash(Crash::Power, &mut Random::seeded(3)));
        [&self.cell_disk, &self.flash_disk].iter().for_each(|disk| {
            disk.set_faults(&[]);
            disk.set_named_faults(&[]);
        });
        volume.abandon();
        left
    }
}

/// Commits: writes a page and syncs.
fn write(volume: &Volume, ino: Ino, byte: u8) -> Result<()> {
    volume.write(ino, 0, &[byte; PAGE])?;
    volume.fsync(ino)
}

fn stats(volume: &Volume) -> FlashLogStats {
    volume.flash_log_stats().unwrap()
}

fn check(cell: &Cell, byte: u8) -> FlashLogStats {
    let volume = cell.open(Some(4 * MIB)).unwrap();
    assert!(read_all(&volume, volume.resolve("wal").unwrap()) == [byte; PAGE], "the newest redo is missing");
    let stats = stats(&volume);
    volume.close().unwrap();
    stats
}

fn wait_until(mut is_done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !is_done() {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_cell_disk_that_hangs_delays_no_sync_and_the_redo_is_found_in_flash() {
    let cell = Cell::on(MemoryDisks::new(2));
    let (volume, ino) = cell.begun();
    cell.cell_disk.set_faults(&[Fault::HeldSync]);
    for byte in 2..9 {
        write(&volume, ino, byte).unwrap();
    }
    let counted = stats(&volume);
    assert!(counted.flash_first >= 7 && counted.unreleased_records >= 7, "{counted:?}");
    let left = cell.after_crash(&volume);
    let error = left.open(None).unwrap_err().to_string();
    assert!(error.contains("only in the flash log") && error.contains("--force-degraded"), "{error}");
    assert!(check(&left, 8).applied_records > 0);
    // A clean stop needs no flash log afterwards, and a start without its size removes it.
    assert_eq!(check(&left, 8).applied_records, 0);
    left.open(None).unwrap().close().unwrap();
}

#[test]
fn a_flash_log_that_another_cell_needs_is_neither_overwritten_nor_removed() {
    let cell = Cell::on(MemoryDisks::new(4));
    let (volume, ino) = cell.begun();
    cell.cell_disk.set_faults(&[Fault::HeldSync]);
    write(&volume, ino, 2).unwrap();
    let left = cell.after_crash(&volume);
    // The other cell has used another flash disk, and now has the flash disk of the first cell.
    Cell::with(left.disks.clone(), 2, 3).begun().0.close().unwrap();
    let other = Cell::with(left.disks.clone(), 2, 1);
    let started = other.open(Some(4 * MIB)).unwrap();
    assert!(!stats(&started).is_on);
    started.close().unwrap();
    other.open(Some(0)).unwrap().close().unwrap();
    assert!(check(&left, 2).applied_records > 0);
    // After a clean stop, the flash disk is free.
    let started = other.open(Some(4 * MIB)).unwrap();
    assert!(stats(&started).is_on);
    started.close().unwrap();
}

#[test]
fn a_cell_disk_that_replaces_another_one_names_the_flash_log() {
    let cell = Cell::on(MemoryDisks::new(3));
    let (volume, ino) = cell.begun();
    let joined = Cell::with(cell.disks.clone(), 2, 1);
    volume.add_disk(joined.cell_disk.clone(), None).unwrap();
    volume.drop_disk(cell.cell_disk.path(), false).unwrap();
    wait_until(|| volume.group_status().disks.len() == 1);
    joined.cell_disk.set_faults(&[Fault::HeldSync]);
    write(&volume, ino, 2).unwrap();
    let left = Cell::with(joined.after_crash(&volume).disks, 2, 1);
    let error = left.open(None).unwrap_err().to_string();
    assert!(error.contains("only in the flash log"), "{error}");
    assert!(check(&left, 2).applied_records > 0);
}

#[test]
fn a_start_that_does_not_know_what_is_retired_is_refused() {
    let cell = Cell::on(MemoryDisks::new(2));
    let (volume, ino) = cell.begun();
    cell.cell_disk.set_faults(&[Fault::HeldSync]);
    write(&volume, ino, 2).unwrap();
    let left = cell.after_crash(&volume);
    left.cell_disk.remove_named("flash_log_retired").unwrap();
    let error = left.open(Some(4 * MIB)).unwrap_err().to_string();
    assert!(error.contains("retired") && error.contains("--force-degraded"), "{error}");
    left.open_with(Some(4 * MIB), true).unwrap().close().unwrap();
    check(&left, 2);
}

#[test]
fn a_start_with_a_ring_that_cannot_be_read_is_refused() {
    let cell = Cell::on(MemoryDisks::new(2));
    let (volume, ino) = cell.begun();
    cell.cell_disk.set_faults(&[Fault::HeldSync]);
    (2..5).for_each(|byte| write(&volume, ino, byte).unwrap());
    let left = cell.after_crash(&volume);
    left.flash_disk.set_named_faults(&[Fault::Read { errno: libc::EIO, one_in: 1 }]);
    assert!(left.open(Some(4 * MIB)).unwrap_err().to_string().contains("cannot be read"));
    left.flash_disk.set_named_faults(&[]);
    assert!(check(&left, 4).applied_records > 0);
}

#[test]
fn without_new_redo_everything_is_retired() {
    let cell = Cell::on(MemoryDisks::new(2));
    let (volume, ino) = cell.begun();
    // The sync of the cell disks ends when the log has nothing else to do.
    cell.cell_disk.set_faults(&[Fault::HeldSync]);
    write(&volume, ino, 2).unwrap();
    cell.cell_disk.set_faults(&[]);
    wait_until(|| {
        let left = Cell::on(cell.disks.crash(Crash::Power, &mut Random::seeded(3)));
        check(&left, 2).applied_records == 0
    });
    volume.close().unwrap();
}

#[test]
fn a_flash_disk_that_hangs_delays_no_sync_and_no_older_redo_replaces_the_newest() {
    let cell = Cell::on(MemoryDisks::new(2));
    let (volume, ino) = cell.begun();
    // This redo is in flash, and on the cell disks.
    for byte in 2..5 {
        write(&volume, ino, byte).unwrap();
    }
    cell.flash_disk.set_named_faults(&[Fault::HeldSync]);
    for byte in 5..9 {
        write(&volume, ino, byte).unwrap();
    }
    let counted = stats(&volume);
    assert!(counted.disk_first + counted.skips_busy >= 4, "{counted:?}");
    let left = cell.after_crash(&volume);
    check(&left, 8);
}

#[test]
fn after_a_failed_sync_of_the_cell_disks_syncs_fail_and_a_start_writes_the_redo_again() {
    let cell = Cell::on(MemoryDisks::new(2));
    let (volume, ino) = cell.begun();
    cell.cell_disk.set_faults(&[Fault::Sync { errno: libc::EIO, one_in: 1 }]);
    let acknowledged = (2..200).take_while(|byte| write(&volume, ino, *byte).is_ok()).count() as u8;
    cell.cell_disk.set_faults(&[]);
    assert!(write(&volume, ino, 250).is_err(), "a later sync could rely on bytes that the kernel has dropped");
    let other = create(&volume, "other");
    assert!(write(&volume, other, 1).is_err(), "PostgreSQL must not go on with another WAL file");
    assert!(volume.close().is_err());
    let left = cell.after_crash(&volume);
    let volume = left.open(Some(4 * MIB)).unwrap();
    let content = read_all(&volume, volume.resolve("wal").unwrap());
    assert!(content[0] > acknowledged, "{} of {acknowledged} syncs", content[0]);
    volume.close().unwrap();
}

#[test]
fn a_flash_disk_that_fails_is_switched_off_and_not_needed_any_more() {
    let cell = Cell::on(MemoryDisks::new(2));
    let (volume, ino) = cell.begun();
    cell.flash_disk.set_named_faults(&[Fault::Write { errno: libc::EIO, one_in: 1 }]);
    for byte in 2..6 {
        write(&volume, ino, byte).unwrap();
    }
    wait_until(|| !stats(&volume).is_on);
    assert_eq!(stats(&volume).flash_errors, 1);
    // The cell disks record in the background that they need no flash log.
    let deadline = Instant::now() + Duration::from_secs(30);
    let started = loop {
        let left = Cell::on(cell.disks.crash(Crash::Power, &mut Random::seeded(3)));
        match left.open(None) {
            Ok(started) => break started,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    assert!(read_all(&started, started.resolve("wal").unwrap()) == [5; PAGE]);
    started.close().unwrap();
    volume.abandon();
}

#[test]
fn a_flash_disk_that_fails_between_two_syncs_leaves_the_next_one_to_the_cell_disks() {
    let cell = Cell::on(MemoryDisks::new(2));
    let (volume, ino) = cell.begun();
    // Without redo, the log writes that everything is retired.
    cell.flash_disk.set_named_faults(&[Fault::Write { errno: libc::EIO, one_in: 1 }]);
    wait_until(|| !stats(&volume).is_on);
    for byte in 2..20 {
        write(&volume, ino, byte).unwrap();
        let left = cell.disks.crash(Crash::Power, &mut Random::seeded(u64::from(byte)));
        check(&Cell::on(left), byte);
    }
    volume.close().unwrap();
}

/// Returns the durations of commits on a cell disk with outliers.
fn commits(with_log: bool, count: usize) -> Vec<Duration> {
    let cell = Cell::on(MemoryDisks::new(2));
    let volume = cell.open(with_log.then_some(16 * MIB)).unwrap();
    let ino = create(&volume, "wal");
    volume.write(ino, 0, &vec![0; 2 * MIB as usize]).unwrap();
    volume.fsync(ino).unwrap();
    let ms = Duration::from_millis;
    cell.cell_disk.set_faults(&[Fault::SlowSync { usual: ms(2), outlier: ms(400), one_in: 200 }]);
    cell.flash_disk.set_named_faults(&[Fault::SlowSync {
        usual: Duration::from_micros(100),
        outlier: ms(20),
        one_in: 400,
    }]);
    let commit = |number: usize| {
        let started = Instant::now();
        volume.write(ino, (number as u64 / 2 % 256) * PAGE as u64, &[number as u8; PAGE]).unwrap();
        volume.fsync(ino).unwrap();
        started.elapsed()
    };
    let mut times: Vec<Duration> = (0..count).map(commit).collect();
    if let Some(stats) = volume.flash_log_stats() {
        println!("{stats:?}");
    }
    cell.cell_disk.set_faults(&[]);
    volume.close().unwrap();
    times.sort_unstable();
    times
}

#[test]
fn outliers_of_cell_disk_and_flash_disk_do_not_become_outliers_of_commits() {
    let count = 1000;
    let (without, with) = (commits(false, count), commits(true, count));
    let at = |times: &[Duration], per_mille: usize| times[(times.len() * per_mille).div_ceil(1000) - 1];
    for (name, times) in [("without", &without), ("with", &with)] {
        println!("{name} flash log: p50 {:?}, p99 {:?}, p99.9 {:?}", at(times, 500), at(times, 990), at(times, 999));
    }
    // A busy machine delays threads, so only the number of outliers is compared.
    let late = |times: &[Duration]| times.iter().filter(|time| **time >= Duration::from_millis(400)).count();
    assert!(late(&without) >= 3 && late(&with) * 3 <= late(&without), "{} of {}", late(&with), late(&without));
}

#[test]
fn a_sync_without_changes_returns_at_once_and_syncs_of_several_threads_are_durable() {
    let cell = Cell::on(MemoryDisks::new(2));
    let (volume, ino) = cell.begun();
    cell.cell_disk.set_faults(&[Fault::HeldSync]);
    write(&volume, ino, 2).unwrap();
    volume.fsync(ino).unwrap();
    cell.cell_disk.set_faults(&[]);
    let (sender, receiver) = channel();
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (volume, sender) = (volume.clone(), sender.clone());
            scope.spawn(move || {
                for round in 0..20_u8 {
                    volume.write(ino, (1 + thread) * PAGE as u64, &[round; PAGE]).unwrap();
                    volume.fsync(ino).unwrap();
                    sender.send(()).unwrap();
                }
            });
        }
    });
    assert_eq!(receiver.try_iter().count(), 80);
    let left = cell.after_crash(&volume);
    let volume = left.open(Some(4 * MIB)).unwrap();
    let content = read_all(&volume, volume.resolve("wal").unwrap());
    assert!(content[PAGE..] == [19; 4 * PAGE], "the last redo of each thread");
    volume.close().unwrap();
}
