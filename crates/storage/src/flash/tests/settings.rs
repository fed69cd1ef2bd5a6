//! CELL_FLASH_CACHE of files: which reads fill the cache, which pages stay, and what a crash leaves.

use super::super::eviction::FREE_MIN;
use super::super::format::{Checkpoint, Generation, Queue};
use super::super::{FlashContent, FlashSetting};
use super::*;

const SEGMENTS: u64 = 40;
/// Pages of a segment whose records are full.
const SEGMENT_PAGES: u64 = (SEGMENT - 4096) / PAGE;
const LARGE_PAGES: u64 = 32;
/// Inodes of two files.
const ONE: u64 = 20;
const OTHER: u64 = 21;

struct Files {
    cache: Arc<FlashCache>,
    disk: FlashCachedDisk,
}

impl Files {
    fn open(folder: &Path) -> Self {
        let group = disk(folder.join("disk"));
        let cache = open_cache(folder, SEGMENTS * SEGMENT, &group, |_| true).unwrap();
        Self { disk: FlashCachedDisk::new(Arc::new(group), 0, cache.clone()), cache }
    }

    fn file(&self, ino: u64) -> Arc<dyn DiskFile> {
        self.disk.open(ino, Stream::Data, true).unwrap().unwrap()
    }

    /// Writes pages of a file, each with its number, and syncs them.
    fn write(&self, ino: u64, pages: u64) {
        let bytes: Vec<u8> = (0..pages).flat_map(|page| vec![page as u8; PAGE as usize]).collect();
        self.file(ino).write_at(&bytes, 0).unwrap();
        self.file(ino).sync().unwrap();
    }

    /// Reads pages with requests of `size` pages, and returns how many of them were in flash.
    fn read(&self, ino: u64, pages: std::ops::Range<u64>, size: u64) -> u64 {
        let mut hits = 0;
        for first in pages.step_by(size as usize) {
            let before = self.cache.stats().read_hits;
            let mut bytes = vec![0; (size * PAGE) as usize];
            let count = self.file(ino).read_at(&mut bytes, first * PAGE).unwrap();
            for (page, bytes) in (first..).zip(bytes[..count].chunks(PAGE as usize)) {
                assert!(bytes.iter().all(|byte| *byte == page as u8), "page {page} of {ino}");
            }
            hits += self.cache.stats().read_hits - before;
        }
        hits
    }

    fn set(&self, ino: u64, setting: FlashSetting) -> FlashSetting {
        let former = self.cache.set_setting(ino, setting).unwrap();
        self.file(ino).sync().unwrap();
        former
    }

    fn content(&self, ino: u64) -> FlashContent {
        self.cache.contents().into_iter().find(|content| content.ino == ino).unwrap()
    }

    fn cached_pages(&self, ino: u64) -> u64 {
        self.content(ino).cached_bytes / PAGE
    }

    fn kept_segments(&self) -> u64 {
        self.cache.log.lock().segments_of(Queue::Keep)
    }
}

#[test]
fn a_file_with_none_is_never_in_the_cache() {
    let folder = folder();
    let files = Files::open(folder.path());
    files.write(ONE, 64);
    files.set(ONE, FlashSetting::None);
    for size in [1, LARGE_PAGES] {
        assert_eq!((files.read(ONE, 0..64, size), files.read(ONE, 0..64, size)), (0, 0));
    }
    files.write(ONE, 64);
    assert_eq!((files.cached_pages(ONE), files.content(ONE).misses), (0, 132));
    files.set(ONE, FlashSetting::Default);
    assert_eq!((files.read(ONE, 0..64, 1), files.read(ONE, 0..64, 1)), (0, 64));
}

#[test]
fn pages_that_none_removed_do_not_return_after_a_crash() {
    let folder = folder();
    let files = Files::open(folder.path());
    files.write(ONE, 64);
    files.read(ONE, 0..64, 1);
    files.cache.checkpoint(&mut files.cache.maintenance.lock()).unwrap();
    assert_eq!(files.set(ONE, FlashSetting::None), FlashSetting::Default);
    assert_eq!(files.cached_pages(ONE), 0);
    // Without the cache in between: no intent precedes this change.
    let intents = files.cache.stats().intents;
    files.file(ONE).write_at(&[77; PAGE as usize], 3 * PAGE).unwrap();
    files.file(ONE).sync().unwrap();
    assert_eq!(files.cache.stats().intents, intents);
    drop(files);
    let files = Files::open(folder.path());
    assert_eq!(files.cache.setting(ONE), FlashSetting::None, "a crash does not lose the setting");
    let mut bytes = vec![0; PAGE as usize];
    files.file(ONE).read_at(&mut bytes, 3 * PAGE).unwrap();
    assert_eq!((bytes[0], bytes[8191], files.cache.stats().used_bytes), (77, 77, 0));
}

#[test]
fn a_large_read_fills_a_kept_file_into_a_full_cache_and_others_do_not_displace_it() {
    let folder = folder();
    let files = Files::open(folder.path());
    let (kept, other) = (5 * LARGE_PAGES, 3 * SEGMENTS * SEGMENT_PAGES);
    files.write(ONE, kept);
    files.write(OTHER, other);
    files.read(OTHER, 0..other, 1);
    assert_eq!(files.read(ONE, 0..kept, LARGE_PAGES), 0);
    assert_eq!(files.cached_pages(ONE), 0, "a large read finds no free segment");
    files.set(ONE, FlashSetting::Keep);
    files.read(ONE, 0..kept, LARGE_PAGES);
    assert_eq!(files.cached_pages(ONE), kept);
    // Twice, so that the other pages are used.
    for _ in 0..2 {
        files.read(OTHER, 0..other, 1);
    }
    assert_eq!(files.read(ONE, 0..kept, 1), kept);
    drop(files);
    let files = Files::open(folder.path());
    assert_eq!(files.cache.setting(ONE), FlashSetting::Keep);
    files.read(OTHER, 0..other, 1);
    assert_eq!(files.read(ONE, 0..kept, 1), kept, "pages stay kept after a restart");
}

#[test]
fn pages_that_were_cached_before_keep_are_kept_too() {
    let folder = folder();
    let files = Files::open(folder.path());
    let (kept, other) = (5 * SEGMENT_PAGES, 3 * SEGMENTS * SEGMENT_PAGES);
    files.write(ONE, kept);
    files.write(OTHER, other);
    files.read(ONE, 0..kept, 1);
    files.set(ONE, FlashSetting::Keep);
    assert_eq!(files.cached_pages(ONE), kept);
    files.read(OTHER, 0..other, 1);
    assert_eq!(files.read(ONE, 0..kept, 1), kept);
}

#[test]
fn a_kept_file_that_is_larger_than_the_quota_leaves_space_for_others() {
    let folder = folder();
    let files = Files::open(folder.path());
    let quota = SEGMENTS * 80 / 100;
    let (kept, other) = (2 * SEGMENTS * SEGMENT_PAGES, 2 * SEGMENT_PAGES);
    files.write(ONE, kept);
    files.write(OTHER, other);
    files.set(ONE, FlashSetting::Keep);
    for size in [LARGE_PAGES, 1, LARGE_PAGES] {
        files.read(ONE, 0..kept, size);
        // The next fill evicts what exceeds the quota.
        assert!(files.kept_segments() <= quota + 1, "{} segments with reads of {size}", files.kept_segments());
        let cached = files.cached_pages(ONE);
        assert!(cached > (quota - 2) * SEGMENT_PAGES * 2 / 3, "{cached} pages with reads of {size}");
    }
    files.read(OTHER, 0..other, 1);
    files.read(ONE, 0..kept, LARGE_PAGES);
    assert_eq!(files.read(OTHER, 0..other, 1), other);
    // A scan of the whole file finds what the first one kept: it does not displace its own pages.
    assert!(files.read(ONE, 0..kept, LARGE_PAGES) > 0);
}

#[test]
fn segments_of_a_file_that_is_not_kept_any_more_are_used_for_others() {
    let folder = folder();
    let files = Files::open(folder.path());
    let (kept, other) = (25 * SEGMENT_PAGES, 3 * SEGMENTS * SEGMENT_PAGES);
    files.write(ONE, kept);
    files.write(OTHER, other);
    files.set(ONE, FlashSetting::Keep);
    files.read(ONE, 0..kept, LARGE_PAGES);
    assert!(files.kept_segments() >= 25);
    assert_eq!(files.set(ONE, FlashSetting::Default), FlashSetting::Keep);
    assert_eq!(files.cached_pages(ONE), 0);
    files.read(OTHER, 0..other, 1);
    assert!(files.kept_segments() <= 2, "{}", files.kept_segments());
    let most = (SEGMENTS - FREE_MIN as u64 - 2) * 10;
    assert!(files.cached_pages(OTHER) > most, "{} of {most}", files.cached_pages(OTHER));
}

#[test]
fn the_setting_of_a_removed_file_is_forgotten() {
    let folder = folder();
    let files = Files::open(folder.path());
    files.write(ONE, 4);
    files.set(ONE, FlashSetting::Keep);
    files.disk.remove(ONE, Stream::Data).unwrap();
    assert_eq!(files.cache.setting(ONE), FlashSetting::Default);
    assert_eq!(files.cache.contents(), []);
}

#[test]
fn a_checkpoint_of_the_first_version_has_no_settings() {
    let mut checkpoint = Checkpoint::new(Generation([7; 16]), 9);
    let first = {
        let mut bytes = checkpoint.encode();
        bytes.truncate(bytes.len() - 4);
        let body = crc32c::crc32c(&bytes[56..]);
        bytes[8] = 1;
        bytes[40..48].copy_from_slice(&16_u64.to_le_bytes());
        bytes[48..52].copy_from_slice(&body.to_le_bytes());
        let header = crc32c::crc32c(&bytes[..52]);
        bytes[52..56].copy_from_slice(&header.to_le_bytes());
        bytes
    };
    assert_eq!(Checkpoint::decode(&first).unwrap(), checkpoint);
    checkpoint.settings = vec![(20, FlashSetting::Keep), (21, FlashSetting::None)];
    let mut bytes = checkpoint.encode();
    assert_eq!(Checkpoint::decode(&bytes).unwrap(), checkpoint);
    *bytes.last_mut().unwrap() = 9;
    assert!(Checkpoint::decode(&bytes).is_err());
}
