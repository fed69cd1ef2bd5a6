//! A flash cache above copies that change below it: conversions to another number of copies, and starts after a crash that make
//! copies equal.

use crate::support;
use cellar_format::wire::FileType;
use cellar_storage::disk::{DirectoryDisk, Stream};
use cellar_storage::{FlashOptions, FlashSetting, Ino, Redundancy, Volume, VolumeOptions};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use support::disk_changes::{disk, while_writing};
use support::mirrored::mirrored;
use support::{MIB, Random, create, open_with, read_all};

const PAGE: usize = 8192;

fn with_flash(folder: &Path) -> VolumeOptions {
    let flash = FlashOptions {
        disks: vec![Arc::new(DirectoryDisk::new(folder.join("flash")).unwrap())],
        size: Some(32 * MIB),
        columnar_bytes: 0,
        segment_bytes: MIB,
        fills_in_background: false,
        timeout: None,
    };
    let file_type = |path: &str| if path.starts_with("wal") { FileType::Wal } else { FileType::Relation };
    VolumeOptions { flash: Some(flash), rebalances: false, rebalance_power: 11, file_type, ..mirrored() }
}

/// Reads a file page by page, and returns how many pages came from flash.
fn hits(volume: &Volume, ino: Ino, content: &[u8]) -> u64 {
    let before = volume.flash_stats().unwrap().read_hits;
    for (number, expected) in content.chunks(PAGE).enumerate() {
        let mut page = vec![0; expected.len()];
        volume.read(ino, (number * PAGE) as u64, &mut page).unwrap();
        assert!(page == expected, "page {number} of inode {ino}");
    }
    volume.flash_stats().unwrap().read_hits - before
}

/// The pages that a change of the setting dropped count as changed until a sync: without one, the file would leave flash at each start.
#[test]
fn pages_that_are_read_after_a_change_of_the_setting_survive_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let open = || open_with(folder.path(), 3, || with_flash(folder.path()));
    let volume = open();
    let (ino, content) = (create(&volume, "table"), Random::seeded(5).bytes(40 * PAGE));
    volume.write(ino, 0, &content).unwrap();
    volume.fsync(ino).unwrap();
    for setting in [FlashSetting::None, FlashSetting::Keep] {
        volume.set_flash_setting(ino, setting).unwrap();
    }
    hits(&volume, ino, &content);
    assert_eq!(hits(&volume, ino, &content), 40);
    volume.close().unwrap();
    drop(volume);
    let volume = open();
    assert_eq!(volume.flash_setting(ino), Some(FlashSetting::Keep));
    assert_eq!(hits(&volume, ino, &content), 40);
}

#[test]
fn cached_pages_are_those_of_the_file_while_and_after_its_number_of_copies_changes() {
    let folder = tempfile::tempdir().unwrap();
    let open = || open_with(folder.path(), 3, || with_flash(folder.path()));
    let mut volume = open();
    let pages = 300;
    let mut files: Vec<(Ino, Vec<u8>)> = ["wal", "table"]
        .map(|name| (create(&volume, name), Random::seeded(name.len() as u64).bytes(pages * PAGE)))
        .into_iter()
        .collect();
    for (ino, content) in &files {
        volume.write(*ino, 0, content).unwrap();
        volume.fsync(*ino).unwrap();
        hits(&volume, *ino, content);
        assert_eq!(hits(&volume, *ino, content), pages as u64);
    }
    for redundancy in [Some(Redundancy::High), None] {
        volume.set_file_redundancy(FileType::Wal, redundancy).unwrap();
        files = while_writing(&volume, files, || volume.rebalance().unwrap());
        assert!(volume.rebalance_status().moved > 0);
        for (ino, content) in &files {
            hits(&volume, *ino, content);
            assert_eq!(hits(&volume, *ino, content), pages as u64, "a converted file is cached");
        }
        // After a crash, regions that were written do not count; after a stop, all do.
        for is_clean in [false, true] {
            if is_clean {
                volume.close().unwrap();
            }
            drop(volume);
            volume = open();
            for (ino, content) in &files {
                let first = hits(&volume, *ino, content);
                assert!(!is_clean || first == pages as u64, "{first} pages were cached");
            }
        }
    }
    volume.close().unwrap();
    drop(volume);
    let volume = open_with(folder.path(), 3, || VolumeOptions { flash: None, ..with_flash(folder.path()) });
    files.iter().for_each(|(ino, content)| assert!(read_all(&volume, *ino) == *content));
    volume.close().unwrap();
}

#[test]
fn a_page_whose_copies_a_crash_left_different_is_read_as_the_copy_that_won() {
    let changed = [99; PAGE];
    let copy = |folder: &Path, number: usize, ino: Ino| {
        let disk = disk(folder, number);
        let (tagged, _) = *disk.backing_files().unwrap().iter().find(|(n, _)| n & 0xff_ffff == ino).unwrap();
        disk.open(tagged, Stream::Data, false).unwrap().unwrap()
    };
    let mut changed_won = 0;
    for victim in 0..2 {
        let folder = tempfile::tempdir().unwrap();
        let options = || VolumeOptions { intent_idle: Duration::from_secs(3600), ..with_flash(folder.path()) };
        let volume = open_with(folder.path(), 2, options);
        let (ino, content) = (create(&volume, "file"), Random::seeded(7).bytes(4 * PAGE));
        volume.write(ino, 0, &content).unwrap();
        volume.fsync(ino).unwrap();
        assert_eq!((0..2).map(|_| hits(&volume, ino, &content)).collect::<Vec<_>>(), [0, 4]);
        volume.sync().unwrap();
        drop(volume);
        copy(folder.path(), victim, ino).write_at(&changed, 2 * PAGE as u64).unwrap();

        let volume = open_with(folder.path(), 2, options);
        let mut pages = [0, 1].map(|_| vec![0; PAGE]);
        for (number, page) in pages.iter_mut().enumerate() {
            copy(folder.path(), number, ino).read_at(page, 2 * PAGE as u64).unwrap();
        }
        assert!(pages[0] == pages[1], "the copies are equal");
        for _ in 0..2 {
            let mut page = vec![0; PAGE];
            volume.read(ino, 2 * PAGE as u64, &mut page).unwrap();
            assert!(page == pages[0], "the page is the one on the cell disks");
        }
        assert_eq!(volume.flash_stats().unwrap().read_hits, 1, "the second read is answered by flash");
        changed_won += usize::from(pages[0] == changed);
        volume.close().unwrap();
    }
    assert_eq!(changed_won, 1, "the copy of one disk wins");
}
