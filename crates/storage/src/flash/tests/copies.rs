//! Flash disks that are not those of the last run: copies, damaged ones, and directories whose device is not mounted.

use super::*;

#[test]
fn flash_disks_that_cannot_be_used_leave_the_cell_without_cache() {
    let folder = folder();
    let group = disk(folder.path().join("disk"));
    drop(filled(folder.path(), 8));
    let (flash, other) = (folder.path().join("flash"), folder.path().join("other"));
    let open_empty = || open_cache(folder.path(), 20 * SEGMENT, &group, |_| true);
    // The device is not mounted: the directory is empty, also at the next starts.
    std::fs::rename(&flash, &other).unwrap();
    for _ in 0..3 {
        assert!(open_empty().is_none());
        assert!(std::fs::read_dir(&flash).unwrap().all(|entry| entry.unwrap().file_name() == "lock"));
    }
    // What the device has does not count any more: the cell was started without it.
    std::fs::remove_dir_all(&flash).unwrap();
    std::fs::rename(&other, &flash).unwrap();
    assert_eq!(open_empty().unwrap().stats().used_bytes, 0);
    // The disk became smaller than the cache and its checkpoints, or has files of others.
    let space = disk(flash.clone()).space().unwrap();
    assert!(open_cache(folder.path(), space.available, &group, |_| true).is_none());
    std::fs::remove_file(flash.join("flash_disk")).unwrap();
    assert!(open_empty().is_none());
}

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap().is_dir() {
            true => copy_folder(&entry.path(), &to.join(entry.file_name())),
            false => drop(std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap()),
        }
    }
}

#[test]
fn a_flash_disk_that_was_copied_during_the_last_run_does_not_count_after_a_clean_stop() {
    let folder = folder();
    let (flash, copy) = (folder.path().join("flash"), folder.path().join("copy"));
    for use_copy in [false, true] {
        let cell = filled(folder.path(), 8);
        let _old = std::fs::remove_dir_all(&copy);
        copy_folder(&flash, &copy);
        cell.file.write_at(&[99; 10], 3 * PAGE).unwrap();
        cell.file.sync().unwrap();
        cell.cache.close().unwrap();
        drop(cell);
        if use_copy {
            std::fs::remove_dir_all(&flash).unwrap();
            std::fs::rename(&copy, &flash).unwrap();
        }
        let cell = open(folder.path(), 20);
        assert_eq!((cell.stats().used_bytes == 0, byte_of(&cell, 3, 5)), (use_copy, 99));
        cell.file.write_at(&[3; 10], 3 * PAGE).unwrap();
        cell.file.set_len(0).unwrap();
        cell.file.sync().unwrap();
    }
}

/// Fills a cache, copies its flash disk, lets `change` change page 0, ends like a crash, and starts with the copy.
fn check_copy(in_place: bool, change: impl FnOnce(&Cell)) {
    let folder = folder();
    let (flash, copy) = (folder.path().join("flash"), folder.path().join("copy"));
    let cell = filled(folder.path(), 8);
    cell.file.set_len(4000 * PAGE).unwrap();
    cell.file.sync().unwrap();
    cell.cache.checkpoint(&mut cell.cache.maintenance.lock()).unwrap();
    copy_folder(&flash, &copy);
    change(&cell);
    drop(cell);
    match in_place {
        true => {
            std::fs::remove_dir_all(flash.join("data")).unwrap();
            copy_folder(&copy, &flash);
        }
        false => {
            std::fs::remove_dir_all(&flash).unwrap();
            std::fs::rename(&copy, &flash).unwrap();
        }
    }
    let cell = open(folder.path(), 20);
    assert_eq!((byte_of(&cell, 0, 5), cell.stats().read_hits), (99, 0));
}

#[test]
fn a_flash_disk_that_was_copied_during_the_last_run_does_not_count_after_a_crash() {
    for in_place in [false, true] {
        // A kill does not lose what was not synced.
        for syncs in [false, true] {
            check_copy(in_place, |cell| {
                cell.file.write_at(&[99; 10], 0).unwrap();
                if syncs {
                    cell.file.sync().unwrap();
                }
            });
        }
    }
}

#[test]
fn a_flash_disk_that_was_copied_before_an_eviction_does_not_count_after_a_crash() {
    check_copy(false, |cell| {
        let mut page = 1000;
        while cell.stats().evicted_segments < 3 {
            cell.read(page);
            page += 1;
        }
        let before = cell.stats().intents;
        let object = cell.cache.object(Object { stripe: 0, ino: INO, stream: Stream::Data }, false).unwrap();
        assert!(!object.has_any(0..8), "pages that are evicted need no intent");
        cell.file.write_at(&[99; 10], 0).unwrap();
        cell.file.sync().unwrap();
        assert_eq!(cell.stats().intents, before);
    });
}

#[test]
fn a_last_record_that_was_zeroed_after_it_was_durable_empties_the_cache() {
    let folder = folder();
    let cell = filled(folder.path(), 8);
    // The last record is the intent: no record says that it was durable.
    cell.file.write_at(&[99; 10], 0).unwrap();
    assert_eq!(cell.stats().intents, 1);
    drop(cell);
    overwrite(&segments(folder.path()).remove(0), &[0; 4096], 8 * 12_288);
    let cell = open(folder.path(), 20);
    assert_eq!((byte_of(&cell, 0, 5), cell.stats().read_hits), (99, 0));
}

#[test]
fn a_cell_disk_without_the_record_of_the_last_intent_names_no_cache() {
    let folder = folder();
    drop(filled(folder.path(), 8));
    std::fs::remove_file(folder.path().join("disk/flash_intent")).unwrap();
    let cell = open(folder.path(), 20);
    assert_eq!((cell.stats().used_bytes, check(&cell, 8)), (0, 0));
}

#[test]
fn an_empty_directory_is_a_flash_disk_after_a_start_without_flash_disks() {
    let folder = folder();
    let group = disk(folder.path().join("disk"));
    drop(filled(folder.path(), 8));
    std::fs::remove_dir_all(folder.path().join("flash")).unwrap();
    let open_empty = || open_cache(folder.path(), 20 * SEGMENT, &group, |_| true);
    assert!(open_empty().is_none() && open_empty().is_none());
    let cell_disks: &dyn CellDisks = &Group(vec![group.clone()]);
    FlashCache::disown(cell_disks).unwrap();
    assert_eq!(open_empty().unwrap().stats().used_bytes, 0);
}
