//! What happens to files on the cell disks, below the cache.

use super::*;
use crate::disk::{Fault, FaultyDisk};

#[test]
fn a_file_is_not_cached_any_more_after_a_change_that_failed() {
    let changes: [fn(&dyn DiskFile) -> std::io::Result<()>; 2] =
        [|file| file.write_at(&[99; 10], PAGE), |file| file.write_at(&[99; 3 * PAGE as usize], PAGE)];
    for change in changes {
        let folder = folder();
        let faulty = Arc::new(FaultyDisk::new(disk(folder.path().join("disk")), 1));
        let group: Arc<dyn Disk> = faulty.clone();
        let cache = open_cache(folder.path(), 20 * SEGMENT, &group, |_| true).unwrap();
        let cached = FlashCachedDisk::new(Arc::new(group), 0, cache.clone());
        let file = cached.open(INO, Stream::Data, true).unwrap().unwrap();
        let cell = Cell { cache, file };
        cell.file.write_at(&[1; 200 * PAGE as usize], 0).unwrap();
        cell.file.sync().unwrap();
        assert_eq!([1, 1, 190, 190].map(|page| cell.read(page)), [false, true, false, true]);
        // With copies, one may have the change and another one not, so reads return one or the other.
        faulty.set_faults(&[Fault::Write { errno: libc::EIO, one_in: 1 }]);
        change(cell.file.as_ref()).unwrap_err();
        faulty.set_faults(&[]);
        cell.file.sync().unwrap();
        assert_eq!([1, 1, 2, 190].map(|page| cell.read(page)), [false; 4]);
        drop((cell, cached, faulty));
        let cell = open(folder.path(), 20);
        assert_eq!([190, 1, 1].map(|page| cell.read(page)), [true, false, true], "the other region was not changed");
    }
}

#[test]
fn a_region_that_a_start_forgets_is_read_from_the_cell_disk_and_filled_when_fills_begin() {
    let folder = folder();
    let group = disk(folder.path().join("disk"));
    let cell = open(folder.path(), 40);
    cell.file.write_at(&[1; 200 * PAGE as usize], 0).unwrap();
    cell.file.sync().unwrap();
    assert_eq!([127, 128, 130].map(|page| cell.read(page)), [false; 3]);
    cell.cache.close().unwrap();
    drop(cell);
    overwrite(&backing_file(folder.path()), &[99; 10], 130 * PAGE);
    let options = options(folder.path(), 40 * SEGMENT);
    let cache = FlashCache::open(&options, Arc::new(Group(vec![group.clone()])), true).unwrap().unwrap();
    cache.forget(Object { stripe: 0, ino: INO, stream: Stream::Data }, &(140 * PAGE..150 * PAGE));
    cache.forget(Object { stripe: 1, ino: INO, stream: Stream::Data }, &(0..u64::MAX));
    cache.start(&options, |_| true).unwrap();
    let file = FlashCachedDisk::new(Arc::new(group), 0, cache.clone()).open(INO, Stream::Data, false).unwrap().unwrap();
    let cell = Cell { cache, file };
    assert_eq!([127, 128, 130, 130].map(|page| cell.read(page)), [true, false, false, false]);
    assert_eq!(byte_of(&cell, 130, 5), 99);
    cell.cache.begin_fills();
    assert_eq!([130, 130].map(|page| cell.read(page)), [false, true]);
}
