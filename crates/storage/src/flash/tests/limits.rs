//! Limits of databases.

use super::{Cell, PAGE, folder, open};
use crate::iorm::FlashLimits;
use crate::request::{DatabaseId, Origin, within};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const OTHER: DatabaseId = DatabaseId(7);

/// A cell whose file has pages of the byte 3 that are not cached, and the limits of databases: none yet.
fn open_with_limits(folder: &Path, segments: u64, pages: usize) -> (Cell, Arc<FlashLimits>) {
    let cell = open(folder, segments);
    cell.file.write_at(&vec![3; pages * PAGE as usize], 0).unwrap();
    let limits = Arc::new(FlashLimits::default());
    cell.cache.set_limits(limits.clone());
    (cell, limits)
}

#[test]
fn a_database_at_its_limit_fills_the_cache_no_more_and_keeps_what_it_has() {
    let folder = folder();
    let (cell, limits) = open_with_limits(folder.path(), 20, 64);
    let of = |database| Origin { database, ..Origin::default() };
    let hits =
        |database, pages: std::ops::Range<u64>| within(of(database), || pages.filter(|page| cell.read(*page)).count());

    limits.set(DatabaseId(1), Some(4 * PAGE));
    assert_eq!(hits(DatabaseId(1), 0..8), 0);
    assert_eq!(hits(DatabaseId(1), 0..8), 4, "as many as the limit permits");
    assert_eq!(cell.cache.bytes_of_databases().get(&DatabaseId(1)), Some(&(4 * PAGE)));

    // Another database has no limit. A page belongs to the database that read its file last.
    assert_eq!(hits(OTHER, 8..16), 0);
    assert_eq!(hits(OTHER, 8..16), 8);
    assert_eq!(cell.cache.bytes_of_databases().get(&OTHER), Some(&(12 * PAGE)));

    limits.set(OTHER, Some(0));
    assert_eq!(hits(OTHER, 16..18), 0);
    assert_eq!(hits(OTHER, 16..18), 0, "a database without flash fills nothing");
    assert_eq!((cell.stats().limit_skips, cell.stats().read_skips, cell.stats().setting_skips), (12, 12, 0));
    assert!(within(of(OTHER), || !cell.cache.serves_database()));
    limits.set(OTHER, None);
    assert_eq!((hits(OTHER, 16..18), hits(OTHER, 16..18)), (0, 2));

    // What left the cache counts no more after a second.
    cell.file.set_len(0).unwrap();
    cell.file.write_at(&vec![3; 64 * PAGE as usize], 0).unwrap();
    std::thread::sleep(Duration::from_millis(1100));
    assert_eq!((hits(DatabaseId(1), 0..4), hits(DatabaseId(1), 0..4)), (0, 4));
}

#[test]
fn pages_that_were_cached_before_a_limit_was_set_or_changed_count() {
    let folder = folder();
    let (cell, limits) = open_with_limits(folder.path(), 20, 64);
    let database = DatabaseId(1);
    let hits = |pages: std::ops::Range<u64>| {
        within(Origin { database, ..Origin::default() }, || pages.filter(|page| cell.read(*page)).count())
    };
    let bytes = || cell.cache.bytes_of_databases()[&database];

    hits(0..6);
    limits.set(database, Some(8 * PAGE));
    hits(6..20);
    assert_eq!(bytes(), 8 * PAGE);

    // Without a limit, pages are not counted.
    limits.set(database, None);
    hits(20..24);
    limits.set(database, Some(14 * PAGE));
    hits(24..40);
    assert_eq!(bytes(), 14 * PAGE);
}

#[test]
fn reads_count_with_the_pages_that_they_fill() {
    let folder = folder();
    let (cell, limits) = open_with_limits(folder.path(), 40, 128);
    let database = DatabaseId(1);
    limits.set(database, Some(4 * PAGE));
    let read = |offset: u64, length: usize| {
        let mut bytes = vec![0; length];
        within(Origin { database, ..Origin::default() }, || cell.file.read_at(&mut bytes, offset).unwrap());
        assert!(bytes.iter().all(|byte| *byte == 3));
    };

    // A large read of parts of pages fills nothing.
    read(64 * PAGE + 512, 32 * PAGE as usize);
    assert_eq!((cell.stats().used_bytes, cell.stats().read_skips), (0, 0));
    for page in 0..16 {
        read(page * PAGE + 512, 512);
    }
    assert_eq!(cell.cache.bytes_of_databases()[&database], 4 * PAGE);
}
