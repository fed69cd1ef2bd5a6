//! Changes of the flash cache mode while files are written: no written page is lost or becomes older, whenever the power fails.

use crate::support;
use cellar_storage::FlashCacheMode::{WriteBack, WriteThrough};
use cellar_storage::disk::Disk;
use cellar_storage::{
    ErrorKind, FlashOptions, ROOT_INO, Result, Volume, VolumeOptions, WriteBackOptions, WriteBackStats,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::breakable_disk::{BreakableDisk, Breaker};
use support::memory_disk::{Crash, MemoryDisks};
use support::mirrored::mirrored;
use support::{Random, options, read_all};

const PAGE: usize = 8192;
const PAGES: usize = 32;
const SEGMENT: u64 = 64 << 10;
const WRITE_BACK: WriteBackOptions = WriteBackOptions {
    size: 8 * SEGMENT,
    segment_bytes: SEGMENT,
    allows_one_disk: false,
    takes_redo: false,
    destages_in_background: true,
};

/// Opens the volume; the last two disks are flash disks.
fn open(disks: &MemoryDisks, breaker: &Breaker, writes_through: bool) -> Result<Arc<Volume>> {
    open_with(disks, breaker, VolumeOptions { write_back: Some(WRITE_BACK), writes_through, ..options() })
}

fn open_with(disks: &MemoryDisks, breaker: &Breaker, options: VolumeOptions) -> Result<Arc<Volume>> {
    let mut disks = disks.disks();
    let mut flash_disks = disks.split_off(disks.len() - 2);
    let inner = flash_disks.pop().unwrap();
    flash_disks.push(Arc::new(BreakableDisk { inner, breaker: breaker.clone() }) as Arc<dyn Disk>);
    let flash = FlashOptions {
        disks: flash_disks,
        size: Some(16 * SEGMENT),
        columnar_bytes: 0,
        segment_bytes: SEGMENT,
        fills_in_background: false,
        timeout: None,
    };
    Volume::open(disks, VolumeOptions { flash: Some(flash), ..options })
}

fn stats(volume: &Volume) -> WriteBackStats {
    volume.write_back_stats().unwrap()
}

fn with_file(volume: &Volume) -> u64 {
    let ino = volume.create(ROOT_INO, b"file", &support::new_file()).unwrap().ino;
    volume.write(ino, 0, &vec![0; PAGES * PAGE]).unwrap();
    volume.fsync(ino).unwrap();
    volume.fsyncdir(ROOT_INO).unwrap();
    ino
}

fn write_page(volume: &Volume, ino: u64, page: usize, byte: u8) {
    volume.write(ino, (page * PAGE) as u64, &[byte; PAGE]).unwrap();
    volume.fsync(ino).unwrap();
}

#[test]
fn the_mode_of_a_command_survives_a_restart_until_the_options_change() {
    let (disks, breaker) = (MemoryDisks::new(3), Breaker::new());
    let volume = open(&disks, &breaker, true).unwrap();
    let ino = with_file(&volume);
    write_page(&volume, ino, 1, 1);
    assert_eq!((volume.flash_cache_mode(), stats(&volume)), (WriteThrough, WriteBackStats::default()));
    volume.set_flash_cache_mode(WriteBack).unwrap();
    volume.set_flash_cache_mode(WriteBack).unwrap();
    write_page(&volume, ino, 1, 2);
    assert_eq!((volume.flash_cache_mode(), stats(&volume).dirty_bytes), (WriteBack, PAGE as u64));
    drop(volume);
    for (writes_through, mode, byte) in [(true, WriteBack, 3), (false, WriteBack, 4), (true, WriteThrough, 5)] {
        let volume = open(&disks, &breaker, writes_through).unwrap();
        assert_eq!((volume.flash_cache_mode(), stats(&volume).is_on), (mode, mode == WriteBack));
        assert_eq!((read_all(&volume, ino)[PAGE], stats(&volume).dirty_bytes), (byte - 1, 0));
        write_page(&volume, ino, 1, byte);
        drop(volume);
    }
}

#[test]
fn a_flush_keeps_pages_from_becoming_dirty_until_it_is_cancelled() {
    let (disks, breaker) = (MemoryDisks::new(3), Breaker::new());
    let volume = open(&disks, &breaker, false).unwrap();
    let ino = with_file(&volume);
    (0..4).for_each(|page| write_page(&volume, ino, page, 1));
    volume.flush_flash_cache().unwrap();
    write_page(&volume, ino, 3, 2);
    let found = stats(&volume);
    assert_eq!((found.dirty_bytes, found.destaged_bytes, found.is_flushing), (0, 4 * PAGE as u64, true));
    volume.cancel_flash_flush();
    write_page(&volume, ino, 3, 3);
    assert_eq!((stats(&volume).dirty_bytes, stats(&volume).is_on), (PAGE as u64, true));
    volume.drop_flash_cache().unwrap();
    assert_eq!((stats(&volume).dirty_bytes, stats(&volume).log_bytes), (0, 0));
    assert_eq!(read_all(&volume, ino)[3 * PAGE], 3);
    assert_eq!(volume.set_flash_cache_mode(WriteBack).unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn with_one_flash_disk_left_dirty_pages_are_written_to_the_cell_disks() {
    let (disks, breaker) = (MemoryDisks::new(3), Breaker::new());
    let volume = open(&disks, &breaker, false).unwrap();
    let ino = with_file(&volume);
    (0..4).for_each(|page| write_page(&volume, ino, page, 1));
    breaker.break_after(0);
    write_page(&volume, ino, 4, 2);
    let begin = Instant::now();
    while stats(&volume).dirty_bytes > 0 {
        assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", stats(&volume));
        volume.fsync(ino).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    write_page(&volume, ino, 5, 3);
    let found = stats(&volume);
    assert_eq!((found.dirty_bytes, found.is_on, found.disks_left), (0, false, 1));
    // The cell disks have everything: no start needs a flash disk.
    volume.abandon();
    let crashed = disks.crash(Crash::Power, &mut Random::seeded(3));
    let volume = open(&crashed, &Breaker::new(), true).unwrap();
    let ino = volume.resolve("file").unwrap();
    let content = read_all(&volume, ino);
    assert_eq!([0, 4, 5].map(|page| content[page * PAGE]), [1, 2, 3]);
}

#[test]
fn a_clean_stop_and_commands_follow_each_other() {
    let without_flash = |disks: &MemoryDisks| Volume::open(disks.disks()[..1].to_vec(), options());
    let (disks, breaker) = (MemoryDisks::new(3), Breaker::new());
    for _ in 0..8 {
        let volume = open(&disks, &breaker, true).unwrap();
        std::thread::scope(|scope| {
            let command = scope.spawn(|| {
                let mut modes = [WriteBack, WriteThrough].into_iter().cycle();
                modes.find_map(|mode| volume.set_flash_cache_mode(mode).err()).expect("commands fail at the end")
            });
            volume.close().unwrap();
            assert_eq!(command.join().unwrap().kind(), ErrorKind::Invalid);
        });
        assert_eq!(volume.set_flash_cache_mode(WriteBack).unwrap_err().kind(), ErrorKind::Invalid);
        assert_eq!(volume.drop_flash_cache().unwrap_err().kind(), ErrorKind::Invalid);
        drop(volume);
        // The cell disks name no log.
        without_flash(&disks).unwrap().close().unwrap();
    }
}

#[test]
fn no_page_becomes_older_while_the_mode_changes_and_threads_write() {
    for seed in 1..=8 {
        let (disks, breaker, stop) = (MemoryDisks::new(3), Breaker::new(), AtomicBool::new(false));
        let volume = open(&disks, &breaker, seed % 2 == 0).unwrap();
        let ino = with_file(&volume);
        let crashed = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..2)
                .map(|thread| {
                    let (volume, stop) = (&volume, &stop);
                    // Each thread writes its own pages, with bytes that increase; the last one of each page was synced.
                    scope.spawn(move || {
                        let (mut random, mut synced) = (Random::seeded(seed * 10 + thread), vec![0; PAGES]);
                        while !stop.load(Ordering::Acquire) {
                            let page = random.below(PAGES as u64 / 2) as usize * 2 + thread as usize;
                            if synced[page] < 250 {
                                synced[page] += 1;
                                write_page(volume, ino, page, synced[page]);
                            } else if random.below(16) == 0 {
                                return synced;
                            }
                        }
                        synced
                    })
                })
                .collect();
            // Cancels whatever is under way.
            scope.spawn(|| {
                while !stop.load(Ordering::Acquire) {
                    volume.cancel_flash_flush();
                    std::thread::yield_now();
                }
            });
            let is_cancelled = |error: cellar_storage::Error| error.to_string().contains("cancelled");
            let mut random = Random::seeded(seed);
            for _ in 0..12 {
                let mode = if random.below(2) == 0 { WriteBack } else { WriteThrough };
                if let Err(error) = volume.set_flash_cache_mode(mode) {
                    assert!(is_cancelled(error));
                }
                if random.below(3) == 0
                    && let Err(error) = volume.flush_flash_cache()
                {
                    assert!(is_cancelled(error));
                }
                std::thread::sleep(Duration::from_millis(random.below(4)));
            }
            stop.store(true, Ordering::Release);
            let synced: Vec<Vec<u8>> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
            let expected: Vec<u8> = (0..PAGES).map(|page| synced[page % 2][page]).collect();
            let content = read_all(&volume, ino);
            assert_eq!((0..PAGES).map(|page| content[page * PAGE]).collect::<Vec<_>>(), expected, "seed {seed}");
            volume.abandon();
            (disks.crash(Crash::Power, &mut random), expected)
        });
        let (disks, expected) = crashed;
        let volume = open(&disks, &Breaker::new(), seed % 2 == 0).unwrap();
        let content = read_all(&volume, volume.resolve("file").unwrap());
        assert_eq!(
            (0..PAGES).map(|page| content[page * PAGE]).collect::<Vec<_>>(),
            expected,
            "seed {seed}, after a crash"
        );
    }
}

/// A removed file has pages in the log, and the flash disk fails that gets the record of their removal. The commit then changes the
/// notes of the cell disks, which a disk that comes online gets at the same time.
#[test]
fn a_disk_comes_online_while_a_commit_changes_the_notes_about_the_log() {
    let (disks, breaker) = (MemoryDisks::new(4), Breaker::new());
    let cell_disks = disks.disks()[..2].to_vec();
    let write_back = WriteBackOptions { allows_one_disk: true, destages_in_background: false, ..WRITE_BACK };
    let volume = open_with(&disks, &breaker, VolumeOptions { write_back: Some(write_back), ..mirrored() });
    let volume = volume.unwrap();
    let ino = with_file(&volume);
    write_page(&volume, ino, 1, 1);
    assert_eq!(stats(&volume).dirty_bytes, PAGE as u64);
    volume.offline_disk(cell_disks[1].path()).unwrap();
    write_page(&volume, ino, 1, 2);
    breaker.hold_writes();
    volume.unlink(ROOT_INO, b"file").unwrap();
    volume.forget(ino, 1);
    let spawn = |work: Box<dyn FnOnce(&Volume) + Send>| {
        let volume = volume.clone();
        std::thread::spawn(move || work(&volume))
    };
    let committed = spawn(Box::new(|volume| volume.fsyncdir(ROOT_INO).unwrap()));
    let wait_until = |what: &str, holds: &dyn Fn() -> bool| {
        let begin = Instant::now();
        while !holds() {
            assert!(begin.elapsed() < Duration::from_secs(30), "{what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    wait_until("the commit removes the file", &|| breaker.has_held());
    let returning = cell_disks[1].clone();
    let online = spawn(Box::new(move |volume| {
        volume.online_disk(returning).unwrap();
    }));
    // Time in which a thread that locks the notes before the metadata stores has the notes, and waits for the commit.
    std::thread::sleep(Duration::from_millis(100));
    breaker.break_after(0);
    breaker.release_writes();
    wait_until("the disk comes online", &|| online.is_finished());
    wait_until("the commit ends", &|| committed.is_finished());
    online.join().unwrap();
    committed.join().unwrap();
    let note = |disk: &Arc<dyn Disk>| disk.read_note("write_back").unwrap();
    assert_eq!((stats(&volume).disks_left, note(&cell_disks[0])), (1, note(&cell_disks[1])));
    volume.abandon();
}
