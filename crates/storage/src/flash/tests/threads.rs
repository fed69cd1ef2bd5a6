//! Threads that read, write and take checkpoints, and changes that must not wait for one.

use super::super::eviction::FREE_MIN;
use super::super::location::Location;
use super::*;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

#[test]
fn a_change_does_not_wait_while_a_checkpoint_copies_the_index() {
    let folder = folder();
    drop(filled(folder.path(), 8));
    let cell = open_if(folder.path(), 20, |_| true);
    let group = FlashCachedDisk::new(Arc::new(disk(folder.path().join("disk"))), 0, cell.cache.clone());
    let other = group.open(INO + 1, Stream::Data, true).unwrap();
    let mut maintenance = cell.cache.maintenance.lock();
    let mut byte = 90;
    let mut change = || {
        assert!(cell.cache.log.try_lock().is_some(), "the lock of the log is held");
        byte += 1;
        cell.file.write_at(&[byte; 10], u64::from(byte - 91) * PAGE).unwrap();
    };
    let checkpoint = cell.cache.copy_index(&mut maintenance, &mut change).unwrap();
    change();
    cell.cache.store(&mut maintenance, &checkpoint).unwrap();
    drop(maintenance);
    assert!(cell.stats().intents > 0 && byte >= 93, "{byte}");
    drop((cell, group, other));
    let cell = open(folder.path(), 20);
    for page in 0..u64::from(byte - 90) {
        assert_eq!(byte_of(&cell, page, 5), page as u8 + 91);
    }
}

#[test]
fn an_intent_that_a_checkpoint_contains_must_be_repeated() {
    let object = Object { stripe: 0, ino: INO, stream: Stream::Data };
    let object = CachedObject::new(object, Arc::new(SegmentPages::new(1)), 0);
    object.restore(3, Location::new(0, 1));
    let needs = || object.begin_change(&(3..4)).is_err();
    assert!(needs());
    object.snapshot(10, |_| {});
    assert!(!object.set_intent(&(0..1), 10) && needs());
    assert!(object.set_intent(&(0..1), 11) && object.intent() == 11);
    assert!(!needs());
}

#[test]
fn a_change_does_not_wait_for_evictions() {
    let folder = folder();
    let cell = open(folder.path(), 20);
    // Pages of all of the 70 regions.
    cell.file.set_len(9000 * PAGE).unwrap();
    cell.file.sync().unwrap();
    let mut page = 0;
    while cell.stats().evicted_segments < 3 {
        page = (page + 151) % 9000;
        cell.read(page);
    }
    assert_eq!(cell.cache.log.lock().free_segments(), FREE_MIN);
    cell.cache.checkpoint(&mut cell.cache.maintenance.lock()).unwrap();
    let (maintenance, before) = (cell.cache.maintenance.lock(), cell.stats().intents);
    std::thread::scope(|scope| {
        let ((done, ended), cell) = (channel(), &cell);
        scope.spawn(move || {
            (0..64).for_each(|region| cell.file.write_at(&[99; 10], region << 20).unwrap());
            done.send(cell.stats().intents - before).unwrap();
        });
        let intents = ended.recv_timeout(Duration::from_secs(10));
        drop(maintenance);
        assert!(intents.is_ok_and(|intents| intents > 50), "{intents:?}");
    });
}

/// Writes and reads pages that no other thread uses, in regions that all threads use. Returns the last bytes of each page.
fn work(cell: &Cell, thread: u64, round: u8, until: Instant) -> HashMap<u64, u8> {
    let (mut written, mut random) = (HashMap::new(), 0x9e37_79b9_7f4a_7c15 ^ (thread << 20 | u64::from(round)));
    while Instant::now() < until {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let page = random % 150 * 3 + thread;
        match random >> 32 & 7 {
            // The other regions keep their pages through a kill.
            0 if page < 256 => {
                let byte = (random >> 40) as u8;
                cell.file.write_at(&vec![byte; PAGE as usize], page * PAGE).unwrap();
                written.insert(page, byte);
            }
            1 if random >> 40 & 31 == 0 => cell.file.sync().unwrap(),
            2 if random >> 40 & 63 == 0 => cell.cache.checkpoint(&mut cell.cache.maintenance.lock()).unwrap(),
            _ => {
                let mut bytes = vec![0; 2 * PAGE as usize];
                cell.file.read_at(&mut bytes, page * PAGE).unwrap();
                let is_right = |byte: &u8| bytes[..PAGE as usize].iter().all(|found| found == byte);
                assert!(written.get(&page).is_none_or(is_right), "page {page}");
            }
        }
    }
    written
}

#[test]
fn threads_read_what_they_wrote_and_a_kill_leaves_no_stale_page() {
    let folder = folder();
    let group = disk(folder.path().join("disk"));
    let (mut expected, mut hits, mut surviving) = (HashMap::new(), 0, 0);
    for round in 0..4 {
        let with_thread = FlashOptions { fills_in_background: true, ..options(folder.path(), 20 * SEGMENT) };
        let cache = FlashCache::open(&with_thread, Arc::new(Group(vec![group.clone()])), true).unwrap().unwrap();
        cache.start(&with_thread, |_| true).unwrap();
        cache.begin_fills();
        let cached = FlashCachedDisk::new(Arc::new(group.clone()), 0, cache.clone());
        let cell = Cell { file: cached.open(INO, Stream::Data, true).unwrap().unwrap(), cache };
        if round == 0 {
            cell.file.set_len(500 * PAGE).unwrap();
        }
        for (page, byte) in &expected {
            assert_eq!(byte_of(&cell, *page, 77), *byte, "page {page} in round {round}");
        }
        surviving += (256..450).filter(|page| cell.read(*page)).count();
        let until = Instant::now() + Duration::from_millis(250);
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..3)
                .map(|thread| {
                    let cell = &cell;
                    scope.spawn(move || work(cell, thread, round, until))
                })
                .collect();
            threads.into_iter().for_each(|thread| expected.extend(thread.join().unwrap()));
        });
        hits += cell.stats().read_hits;
        assert!(cell.cache.is_on());
        cell.cache.stop();
    }
    assert!(hits > 100 && surviving > 10, "{hits} hits, {surviving} of pages that survived");
}
