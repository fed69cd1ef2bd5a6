//! The cache against a simulation of S3-FIFO, and logs whose end is torn or damaged.

use super::format::Object;
use super::index::CachedObject;
use super::location::SegmentPages;
use super::{CellDisks, FlashCache, FlashCachedDisk, FlashOptions, FlashStats};
use crate::disk::{DirectoryDisk, Disk, DiskFile, FileStore, Stream};
use std::collections::{HashMap, HashSet, VecDeque};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

mod below;
mod copies;
mod limits;
mod settings;
mod threads;

const PAGE: u64 = 8192;
const INO: u64 = 20;
const SEGMENT: u64 = 128 << 10;

#[derive(Debug)]
struct Group(Vec<Arc<dyn Disk>>);

impl CellDisks for Group {
    fn accessible(&self) -> Vec<(usize, Arc<dyn Disk>)> {
        self.0.iter().cloned().enumerate().collect()
    }

    fn fail(&self, _: usize, error: &std::io::Error) -> std::io::Result<()> {
        Err(std::io::Error::new(error.kind(), error.to_string()))
    }
}

struct Cell {
    cache: Arc<FlashCache>,
    file: Arc<dyn DiskFile>,
}

/// A folder in memory, if possible: the tests sync often.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

fn disk(path: PathBuf) -> Arc<dyn Disk> {
    Arc::new(DirectoryDisk::new(path).unwrap())
}

fn open(folder: &Path, segments: u64) -> Cell {
    open_if(folder, segments, |object| object.ino == INO)
}

fn options(folder: &Path, size: u64) -> FlashOptions {
    FlashOptions {
        disks: vec![disk(folder.join("flash"))],
        size: Some(size),
        columnar_bytes: 0,
        segment_bytes: SEGMENT,
        fills_in_background: false,
        timeout: None,
    }
}

fn open_cache(
    folder: &Path,
    size: u64,
    group: &Arc<dyn Disk>,
    is_known: fn(Object) -> bool,
) -> Option<Arc<FlashCache>> {
    let options = options(folder, size);
    let cache = FlashCache::open(&options, Arc::new(Group(vec![group.clone()])), true).unwrap()?;
    cache.start(&options, is_known).unwrap();
    cache.begin_fills();
    Some(cache)
}

/// Opens a cache that drops the objects that are not known.
fn open_if(folder: &Path, segments: u64, is_known: fn(Object) -> bool) -> Cell {
    let group = disk(folder.join("disk"));
    let cache = open_cache(folder, segments * SEGMENT, &group, is_known).unwrap();
    let cached = FlashCachedDisk::new(Arc::new(group), 0, cache.clone());
    let file = cached.open(INO, Stream::Data, true).unwrap().unwrap();
    Cell { cache, file }
}

impl Cell {
    fn stats(&self) -> FlashStats {
        self.cache.stats()
    }

    /// Reads a page; returns whether it was in flash.
    fn read(&self, page: u64) -> bool {
        let before = self.stats().read_hits;
        let mut bytes = vec![1; PAGE as usize];
        assert_eq!(self.file.read_at(&mut bytes, page * PAGE).unwrap(), bytes.len());
        self.stats().read_hits > before
    }
}

/// S3-FIFO as published, for keys of equal size.
struct Reference {
    capacity: usize,
    small: VecDeque<u64>,
    main: VecDeque<u64>,
    ghost: VecDeque<u64>,
    uses: HashMap<u64, u32>,
}

impl Reference {
    /// Returns whether the key was cached.
    fn access(&mut self, key: u64) -> bool {
        if let Some(uses) = self.uses.get_mut(&key) {
            *uses = 3.min(*uses + 1);
            return true;
        }
        while self.uses.len() >= self.capacity {
            self.evict();
        }
        match self.ghost.iter().position(|ghost| *ghost == key) {
            Some(at) => {
                self.ghost.remove(at);
                self.main.push_back(key);
            }
            None => self.small.push_back(key),
        }
        self.uses.insert(key, 0);
        false
    }

    fn evict(&mut self) {
        if self.small.len() >= self.capacity / 10 || self.main.is_empty() {
            let key = self.small.pop_front().unwrap();
            if self.uses[&key] > 0 {
                self.uses.insert(key, 0);
                return self.main.push_back(key);
            }
            self.uses.remove(&key);
            self.ghost.push_back(key);
            if self.ghost.len() > self.capacity {
                self.ghost.pop_front();
            }
            return;
        }
        let key = self.main.pop_front().unwrap();
        match self.uses[&key] {
            0 => drop(self.uses.remove(&key)),
            uses => {
                self.uses.insert(key, uses - 1);
                self.main.push_back(key);
            }
        }
    }
}

/// Pages with Zipf-like popularity, and now and then a run of pages that are read once.
fn trace(length: usize, pages: u64) -> Vec<u64> {
    let mut random = 88_172_645_463_325_252_u64;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 11) as f64 / (1u64 << 53) as f64
    };
    let (mut trace, mut once) = (Vec::new(), pages);
    while trace.len() < length {
        if next() < 0.002 {
            trace.extend(once..once + 60);
            once += 60;
        }
        // The inverse of the distribution with density 1/x on [1, pages].
        let rank = (pages as f64).powf(next());
        // Spread popular pages over the file.
        trace.push((rank as u64 - 1) * 7919 % pages);
    }
    trace.truncate(length);
    trace
}

#[test]
fn the_hit_ratio_is_that_of_s3_fifo() {
    let folder = folder();
    let cell = open(folder.path(), 100);
    let trace = trace(24_000, 6000);
    cell.file.set_len((trace.iter().max().unwrap() + 1) * PAGE).unwrap();
    let ours = trace.iter().filter(|page| cell.read(**page)).count();
    let stats = cell.stats();
    assert!(stats.evicted_segments > 100 && stats.kept_bytes > 100 * PAGE, "{stats:?}");
    let capacity = (stats.used_bytes / PAGE) as usize;
    let (small, main, ghost, uses) = Default::default();
    let mut reference = Reference { capacity, small, main, ghost, uses };
    let expected = trace.iter().filter(|page| reference.access(**page)).count();
    let ratio = |hits: usize| hits as f64 / trace.len() as f64;
    println!("{capacity} pages: hit ratio {:.4}, S3-FIFO {:.4}", ratio(ours), ratio(expected));
    assert!((ratio(ours) - ratio(expected)).abs() <= 0.02, "{} and {}", ratio(ours), ratio(expected));
    let distinct = trace.iter().collect::<HashSet<_>>().len();
    assert!(ratio(expected) > 0.3 && distinct > 3 * capacity, "the trace does not test the policy");
}

/// Returns the files of segments, in the order of their numbers.
fn segments(folder: &Path) -> Vec<PathBuf> {
    let data = folder.join("flash/data");
    let mut files: Vec<PathBuf> = std::fs::read_dir(data)
        .unwrap()
        .flat_map(|fan| std::fs::read_dir(fan.unwrap().path()).unwrap())
        .map(|file| file.unwrap().path())
        .filter(|path| path.file_name().unwrap() >= std::ffi::OsStr::new("0000000000000010"))
        .collect();
    files.sort();
    files
}

/// Fills `pages` pages of a synced file, one record each, and ends like a crash.
fn filled(folder: &Path, pages: u64) -> Cell {
    let cell = open(folder, 20);
    for page in 0..pages {
        cell.file.write_at(&vec![page as u8; PAGE as usize], page * PAGE).unwrap();
    }
    cell.file.sync().unwrap();
    (0..pages).for_each(|page| assert!(!cell.read(page)));
    cell
}

fn check(cell: &Cell, pages: u64) -> usize {
    let mut hits = 0;
    for page in 0..pages {
        let before = cell.stats().read_hits;
        let mut bytes = vec![0; PAGE as usize];
        cell.file.read_at(&mut bytes, page * PAGE).unwrap();
        assert!(bytes.iter().all(|byte| *byte == page as u8), "page {page}");
        hits += usize::from(cell.stats().read_hits > before);
    }
    hits
}

#[test]
fn a_segment_that_is_shorter_than_the_checkpoint_says_empties_the_cache() {
    let folder = folder();
    let cell = filled(folder.path(), 8);
    cell.cache.close().unwrap();
    drop(cell);
    let path = segments(folder.path()).remove(0);
    std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(4 * 12_288).unwrap();
    assert_eq!(check(&open(folder.path(), 20), 8), 0);
}

#[test]
fn a_torn_record_ends_the_log() {
    for keep in [0, 4096, 9000, 12_287] {
        let folder = folder();
        drop(filled(folder.path(), 8));
        let path = segments(folder.path()).remove(0);
        // Eight records of a header and a page; the sixth one is torn.
        let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
        file.write_all_at(&vec![0; 12_288 - keep], 5 * 12_288 + keep as u64).unwrap();
        drop(file);
        let cell = open(folder.path(), 20);
        let hits = check(&cell, 8);
        assert!(hits == 5 || keep == 12_287 && hits == 8, "{hits} hits, {keep} bytes of the record are left");
        // What is filled after the crash survives the next one.
        drop(cell);
        assert_eq!(check(&open(folder.path(), 20), 8), 8);
    }
}

#[test]
fn damage_before_a_durable_record_empties_the_cache() {
    let folder = folder();
    let cell = filled(folder.path(), 8);
    // Durable intents follow the pages.
    cell.file.write_at(&vec![0; PAGE as usize], 0).unwrap();
    cell.file.write_at(&vec![0; PAGE as usize], 1 << 20).unwrap();
    cell.read(0);
    drop(cell);
    let path = segments(folder.path()).remove(0);
    std::fs::OpenOptions::new().write(true).open(path).unwrap().write_all_at(&[7], 2 * 12_288 + 5000).unwrap();
    let cell = open(folder.path(), 20);
    assert_eq!(cell.stats().used_bytes, 0);
    assert_eq!(check(&cell, 8), 0);
}

#[test]
fn a_header_with_other_bytes_than_zeros_empties_the_cache() {
    let folder = folder();
    drop(filled(folder.path(), 8));
    overwrite(&segments(folder.path()).remove(0), &vec![0; 4096 - 100], 5 * 12_288 + 100);
    let cell = open(folder.path(), 20);
    assert_eq!((cell.stats().used_bytes, check(&cell, 8)), (0, 0));
}

#[test]
fn an_intent_after_a_damaged_record_counts() {
    let folder = folder();
    let cell = filled(folder.path(), 8);
    // The last record is the intent: none says that it was durable.
    cell.file.write_at(&[99; 10], 0).unwrap();
    assert_eq!(cell.stats().intents, 1);
    drop(cell);
    overwrite(&segments(folder.path()).remove(0), &[7], 2 * 12_288 + 5000);
    assert_eq!(byte_of(&open(folder.path(), 20), 0, 5), 99);
}

#[test]
fn a_change_leaves_nothing_that_a_crash_brings_back() {
    let folder = folder();
    let cell = filled(folder.path(), 8);
    assert_eq!(check(&cell, 8), 8);
    let other = vec![99; PAGE as usize];
    cell.file.write_at(&other, 3 * PAGE).unwrap();
    let mut bytes = other.clone();
    cell.file.read_at(&mut bytes, 3 * PAGE).unwrap();
    assert!(bytes == other && cell.stats().rewritten_bytes == PAGE);
    cell.file.punch(5 * PAGE + 10, 10).unwrap();
    cell.file.set_len(6 * PAGE + 1).unwrap();
    cell.file.set_len(8 * PAGE).unwrap();
    drop(cell);
    let cell = open(folder.path(), 20);
    let content = |page: u64| {
        let mut bytes = vec![1; PAGE as usize];
        cell.file.read_at(&mut bytes, page * PAGE).unwrap();
        bytes
    };
    assert_eq!(content(3), other);
    assert_eq!(content(5)[..30], [[5; 10], [0; 10], [5; 10]].concat());
    assert_eq!((content(6)[0], content(6)[1], content(7)[0]), (6, 0, 0));
}

/// Returns the path of the file that is cached.
fn backing_file(folder: &Path) -> PathBuf {
    folder.join(format!("disk/data/{:02x}/{INO:016x}", INO & 0xff))
}

fn overwrite(path: &Path, bytes: &[u8], offset: u64) {
    std::fs::OpenOptions::new().write(true).open(path).unwrap().write_all_at(bytes, offset).unwrap();
}

fn byte_of(cell: &Cell, page: u64, at: usize) -> u8 {
    let mut bytes = vec![0; PAGE as usize];
    cell.file.read_at(&mut bytes, page * PAGE).unwrap();
    bytes[at]
}

#[test]
fn a_part_of_a_page_is_written_after_its_intent() {
    let folder = folder();
    drop(filled(folder.path(), 8));
    let cell = open(folder.path(), 20);
    assert!(cell.read(3));
    cell.file.write_at(&[99; 10], 3 * PAGE).unwrap();
    assert_eq!(cell.stats().intents, 1);
    cell.file.write_at(&[98; 10], 4 * PAGE).unwrap();
    assert_eq!(cell.stats().intents, 1, "the region has an intent");
    drop(cell);
    let cell = open(folder.path(), 20);
    assert_eq!((byte_of(&cell, 3, 5), byte_of(&cell, 4, 5), byte_of(&cell, 4, 50)), (99, 98, 4));
}

#[test]
fn a_page_that_was_not_durable_on_the_cell_disk_does_not_count_after_a_loss_of_power() {
    let folder = folder();
    let cell = open(folder.path(), 20);
    cell.file.write_at(&vec![1; 4 * PAGE as usize], 0).unwrap();
    cell.file.sync().unwrap();
    cell.file.write_at(&vec![2; PAGE as usize], PAGE).unwrap();
    assert_eq!(byte_of(&cell, 1, 0), 2, "fills the cache");
    assert!(cell.read(1));
    drop(cell);
    // The write was lost.
    overwrite(&backing_file(folder.path()), &vec![1; PAGE as usize], PAGE);
    assert_eq!(byte_of(&open(folder.path(), 20), 1, 0), 1);
}

#[test]
fn a_segment_whose_removal_was_not_durable_does_not_count() {
    let folder = folder();
    drop(filled(folder.path(), 1));
    let cell = open(folder.path(), 20);
    let first = segments(folder.path()).remove(0);
    let kept = std::fs::read(&first).unwrap();
    cell.file.set_len(4000 * PAGE).unwrap();
    cell.file.sync().unwrap();
    // Other regions, until the segment is evicted.
    let mut page = 1000;
    while cell.stats().evicted_segments == 0 {
        cell.read(page);
        page += 1;
    }
    cell.file.write_at(&[99; 10], 0).unwrap();
    cell.file.sync().unwrap();
    drop(cell);
    std::fs::write(&first, kept).unwrap();
    assert_eq!(byte_of(&open(folder.path(), 20), 0, 5), 99);
}

#[test]
fn a_read_does_not_use_a_segment_whose_number_was_used_again() {
    let folder = folder();
    let cell = filled(folder.path(), 8);
    let object = cell.cache.object(Object { stripe: 0, ino: INO, stream: Stream::Data }, false).unwrap();
    // A read finds the places of two pages, and goes on after the eviction of their segment.
    let found = object.find(2..4).unwrap();
    let read = || {
        let mut bytes = vec![99; 2 * PAGE as usize];
        cell.cache.read((&object, 2, &found), &mut bytes, 0, false).unwrap().then_some(bytes)
    };
    assert_eq!(read(), Some([[2; PAGE as usize], [3; PAGE as usize]].concat()));
    let number = found[0].segment();
    let incarnation = || cell.cache.segment(number).map(|segment| segment.incarnation);
    let first = incarnation();
    cell.file.set_len(4000 * PAGE).unwrap();
    cell.file.sync().unwrap();
    for page in 1000.. {
        cell.read(page);
        if incarnation() != first && incarnation().is_some() {
            break;
        }
    }
    for page in 3000..3020 {
        cell.read(page);
    }
    assert_eq!(read(), None);
}

#[test]
fn pages_after_a_damaged_header_leave_the_index_with_their_segment() {
    let folder = folder();
    let cell = filled(folder.path(), 8);
    let object = cell.cache.object(Object { stripe: 0, ino: INO, stream: Stream::Data }, false).unwrap();
    let number = object.find(3..4).unwrap()[0].segment();
    overwrite(&segments(folder.path()).remove(0), &[7; 4096], 2 * 12_288);
    cell.file.set_len(4000 * PAGE).unwrap();
    cell.file.sync().unwrap();
    for page in 1000.. {
        cell.read(page);
        if cell.stats().evicted_segments > 0 {
            break;
        }
    }
    // The pages before the damage were in use.
    let kept = (0..8).filter(|page| object.has_any(*page..page + 1)).collect::<Vec<_>>();
    assert!(!kept.contains(&3) && kept.iter().all(|page| *page < 2), "{kept:?}");
    assert!(cell.cache.segment_pages.get(number) == 0 || cell.cache.segment(number).is_some());
    check(&cell, 8);
}

#[test]
fn a_change_on_a_thread_that_must_not_wait_fails_instead_of_writing_an_intent() {
    let folder = folder();
    let cell = filled(folder.path(), 8);
    let write = || cell.file.write_at(&[99; 10], 3 * PAGE);
    let error = super::without_waiting(write).unwrap_err();
    assert_eq!((error.kind(), cell.stats().intents), (std::io::ErrorKind::WouldBlock, 0));
    assert_eq!(check(&cell, 8), 8, "nothing changed");
    write().unwrap();
    super::without_waiting(write).unwrap();
    assert_eq!((byte_of(&cell, 3, 5), cell.stats().intents), (99, 1));
}

#[test]
fn an_intent_that_a_fill_wrote_and_a_crash_lost_is_not_needed() {
    let folder = folder();
    drop(filled(folder.path(), 8));
    // The pages are durable: the start wrote a checkpoint.
    let cell = open(folder.path(), 20);
    cell.file.set_len(9 * PAGE).unwrap();
    cell.file.sync().unwrap();
    cell.cache.checkpoint(&mut cell.cache.maintenance.lock()).unwrap();
    // One of the pages is in flash already.
    let mut bytes = vec![0; 2 * PAGE as usize];
    cell.file.read_at(&mut bytes, 7 * PAGE).unwrap();
    cell.file.write_at(&[99; 10], 7 * PAGE).unwrap();
    cell.file.sync().unwrap();
    let before = cell.cache.log.lock().unsynced_bytes();
    drop(cell);
    if before > 0 {
        // Records that no flush followed are lost.
        for path in segments(folder.path()).split_off(1) {
            let length = std::fs::metadata(&path).unwrap().len();
            overwrite(&path, &vec![0; length as usize], 0);
        }
    }
    assert_eq!(byte_of(&open(folder.path(), 20), 7, 5), 99);
}

#[test]
fn a_write_fills_the_cache_only_if_no_other_one_changed_the_region_meanwhile() {
    let object = Object { stripe: 0, ino: INO, stream: Stream::Data };
    let object = CachedObject::new(object, Arc::new(SegmentPages::new(1)), 0);
    let begin = || object.begin_change(&(0..2)).unwrap().0;
    let end = |change| object.end_change(change, 0..2, 100).len();
    assert_eq!(end(begin()), 1);
    // The bytes of the first write may be older than those of the second one.
    let (first, second) = (object.begin_change(&(300..302)).unwrap().0, object.begin_change(&(300..301)).unwrap().0);
    assert_eq!(object.end_change(second, 300..301, 100).len(), 0);
    assert_eq!(object.end_change(first, 300..302, 100).len(), 0);
}

#[test]
fn a_file_that_does_not_exist_any_more_leaves_no_page() {
    let folder = folder();
    drop(filled(folder.path(), 8));
    drop(open_if(folder.path(), 20, |_| false));
    let cell = open(folder.path(), 20);
    assert_eq!(cell.stats().used_bytes, 0);
}
