//! Rules of `README.md` that only several threads, failed operations or failed flash disks can break.

use super::model::Model;
use super::*;
use std::time::{Duration, Instant};

pub(super) const INO: u64 = 20;
pub(super) const OTHER: u64 = 21;
/// For a thread that waits for something that the rules make impossible.
const PATIENCE: Duration = Duration::from_millis(100);

/// For a thread that waits for something that the rules make happen.
pub(super) const HOPELESS: Duration = Duration::from_secs(20);

/// Returns false if something does not happen in a time in which it happens without the rule. The outcome must not depend on
/// the result.
pub(super) fn happens(what: impl Fn() -> bool) -> bool {
    let started = Instant::now();
    while !what() && started.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(1));
    }
    what()
}

pub(super) fn wait_for(flag: &AtomicBool) {
    while !flag.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub(super) fn eio() -> io::Error {
    io::Error::from_raw_os_error(libc::EIO)
}

/// A machine and a process with a file of 8 synced pages, number 1, and page 2 dirty with number 2.
pub(super) fn with_dirty_page() -> (Machine, Cell) {
    with_dirty_page_on(Machine::new())
}

pub(super) fn with_dirty_page_on(machine: Machine) -> (Machine, Cell) {
    let cell = machine.start(BOTH, &[]).unwrap();
    for ino in [INO, OTHER] {
        cell.create(ino).unwrap();
        cell.write(ino, &(0..16), 1).unwrap();
        cell.file(ino).unwrap().sync().unwrap();
    }
    cell.write(INO, &of_pages(2..3), 2).unwrap();
    assert_eq!(cell.dirty_pages(), 1);
    (machine, cell)
}

#[test]
fn a_destage_writes_no_page_that_is_clean_meanwhile() {
    let (machine, cell) = with_dirty_page();
    let (is_destaging, is_changed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let hook = (is_destaging.clone(), is_changed.clone());
    machine.hooks.set(move |_, operation| {
        if matches!(operation, Operation::Write { .. }) && !hook.0.swap(true, Ordering::SeqCst) {
            // The punch waits for the destage, so this waits for nothing.
            happens(|| hook.1.load(Ordering::SeqCst));
        }
        Ok(())
    });
    std::thread::scope(|scope| {
        scope.spawn(|| cell.write_back.destage().unwrap());
        wait_for(&is_destaging);
        cell.file(INO).unwrap().punch(2 * PAGE, PAGE).unwrap();
        cell.write(INO, &(4..5), 3).unwrap();
        is_changed.store(true, Ordering::SeqCst);
    });
    assert_eq!(cell.read(INO, &(3..7)).unwrap(), [1, 3, 0, 1]);
}

#[test]
fn a_page_leaves_the_index_after_every_thread_that_writes_it_to_the_cell_disks() {
    let (machine, cell) = with_dirty_page();
    cell.write(OTHER, &of_pages(2..3), 2).unwrap();
    let flags: [Arc<AtomicBool>; 3] = Default::default();
    let [may_clean, is_cleaning, is_changed] = flags.clone();
    machine.hooks.set(move |ino, operation| {
        let [has_written, is_cleaning, is_changed] = &flags;
        if matches!(operation, Operation::Write { .. }) {
            if ino == OTHER {
                // The destage has written the page of the first file. Another thread begins to do the same.
                has_written.store(true, Ordering::SeqCst);
                wait_for(is_cleaning);
            } else if has_written.load(Ordering::SeqCst) && !is_cleaning.swap(true, Ordering::SeqCst) {
                happens(|| is_changed.load(Ordering::SeqCst));
            }
        }
        Ok(())
    });
    let object = cell.write_back.object(Object { stripe: 0, ino: INO, stream: Stream::Data });
    std::thread::scope(|scope| {
        scope.spawn(|| cell.write_back.destage().unwrap());
        scope.spawn(|| {
            wait_for(&may_clean);
            let _cleaning = object.cleaning.lock();
            cell.write_back.clean(&object, 2..3).unwrap();
        });
        wait_for(&is_cleaning);
        // The page is dirty as long as the other thread writes it: a write goes to the log.
        happens(|| !object.is_dirty());
        cell.write(INO, &(4..5), 3).unwrap();
        is_changed.store(true, Ordering::SeqCst);
    });
    assert_eq!(cell.read(INO, &(4..6)).unwrap(), [3, 2]);
}

#[test]
fn a_sync_returns_after_the_sync_that_covers_its_changes() {
    let (machine, cell) = with_dirty_page();
    cell.write(INO, &(4..5), 3).unwrap();
    cell.write(INO, &(0..1), 3).unwrap();
    let flags: [Arc<AtomicBool>; 2] = Default::default();
    let [is_syncing, is_second_done] = flags.clone();
    machine.hooks.set(move |_, operation| {
        if operation == Operation::Sync && !flags[0].swap(true, Ordering::SeqCst) {
            assert!(!happens(|| flags[1].load(Ordering::SeqCst)), "a sync did not wait for another one");
        }
        Ok(())
    });
    std::thread::scope(|scope| {
        scope.spawn(|| cell.file(INO).unwrap().sync().unwrap());
        wait_for(&is_syncing);
        cell.file(INO).unwrap().sync().unwrap();
        is_second_done.store(true, Ordering::SeqCst);
    });
}

#[test]
fn a_failed_sync_of_a_destage_is_reported_by_the_next_sync_of_the_file() {
    let (machine, cell) = with_dirty_page();
    cell.write(INO, &(0..1), 3).unwrap();
    let sync = |ino| cell.file(ino).unwrap().sync();
    // The kernel reports an error once.
    let fail_next = || {
        let has_failed = AtomicBool::new(false);
        machine.hooks.set(move |_, operation| match operation == Operation::Sync {
            true if !has_failed.swap(true, Ordering::SeqCst) => Err(eio()),
            _ => Ok(()),
        });
    };
    fail_next();
    cell.write_back.destage().unwrap_err();
    assert_eq!((cell.dirty_pages(), cell.read(INO, &(4..5)).unwrap()), (1, vec![2]));
    sync(OTHER).unwrap();
    sync(INO).unwrap_err();
    sync(INO).unwrap();
    // The same for a file that becomes shorter.
    fail_next();
    cell.write(INO, &(0..1), 4).unwrap();
    let shorten = || cell.file(INO).unwrap().set_len(PAGE);
    shorten().unwrap_err();
    sync(INO).unwrap_err();
    sync(INO).unwrap();
    shorten().unwrap();
    assert_eq!((cell.dirty_pages(), cell.read(INO, &(0..6)).unwrap()), (0, vec![4, 1, 0, 0, 0, 0]));
}

#[test]
fn a_sync_during_a_sync_of_a_destage_that_fails_reports_the_failure() {
    let (machine, cell) = with_dirty_page();
    cell.write(INO, &(0..1), 3).unwrap();
    let flags: [Arc<AtomicBool>; 2] = Default::default();
    let [is_syncing, is_synced] = flags.clone();
    machine.hooks.set(move |_, operation| {
        if operation == Operation::Sync && !flags[0].swap(true, Ordering::SeqCst) {
            // The kernel has reported the error to the destage.
            happens(|| flags[1].load(Ordering::SeqCst));
            return Err(eio());
        }
        Ok(())
    });
    std::thread::scope(|scope| {
        scope.spawn(|| cell.write_back.destage().unwrap_err());
        wait_for(&is_syncing);
        let synced = cell.file(INO).unwrap().sync();
        is_synced.store(true, Ordering::SeqCst);
        synced.unwrap_err();
    });
}

#[test]
fn writes_into_holes_and_beyond_the_end_find_out_at_once_that_the_cell_disks_are_full() {
    let (machine, cell) = with_dirty_page();
    cell.file(INO).unwrap().set_len(12 * PAGE).unwrap();
    cell.file(INO).unwrap().punch(5 * PAGE, PAGE).unwrap();
    machine.hooks.set(|_, operation| match operation {
        Operation::Write { .. } => Err(io::Error::from_raw_os_error(libc::ENOSPC)),
        _ => Ok(()),
    });
    for pages in [5..6, 4..6, 8..9, 12..13, 11..13, 20..21] {
        let error = cell.write(INO, &of_pages(pages.clone()), 3).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull, "pages {pages:?}");
    }
    cell.write(INO, &of_pages(6..8), 3).unwrap();
    assert_eq!((cell.dirty_pages(), cell.file(INO).unwrap().len().unwrap()), (3, 12 * PAGE));
    machine.hooks.clear();
    cell.write(INO, &of_pages(8..9), 3).unwrap();
    assert_eq!((cell.dirty_pages(), cell.read(INO, &of_pages(5..9)).unwrap()), (3, vec![0, 0, 3, 3, 3, 3, 3, 3]));
}

/// Changes of each kind, which need a few segments.
fn change(cell: &Cell, model: &mut Model) -> io::Result<()> {
    for round in 0..3 {
        model.write(cell, INO, of_pages(1..4))?;
        model.write(cell, OTHER, of_pages(2..3))?;
        model.sync(cell, INO)?;
        model.write(cell, INO, 3..4)?;
        model.punch(cell, INO, 4..5)?;
        model.sync(cell, INO)?;
        if round == 1 {
            cell.write_back.destage()?;
            model.write(cell, INO, of_pages(6..8))?;
            model.set_length(cell, INO, 13)?;
            model.sync(cell, INO)?;
            model.remove(cell, OTHER)?;
            model.create(cell, OTHER)?;
            model.fill(cell, OTHER, 4)?;
        }
    }
    model.sync(cell, OTHER)?;
    model.write(cell, OTHER, of_pages(0..1))
}

fn with_files() -> (Machine, Cell, Model) {
    let (machine, mut model) = (Machine::new(), Model::default());
    let cell = machine.start(BOTH, &[]).unwrap();
    for ino in [INO, OTHER] {
        model.create(&cell, ino).unwrap();
        model.fill(&cell, ino, 8).unwrap();
    }
    (machine, cell, model)
}

pub(super) fn only(disk: usize) -> Present {
    [disk == 0, disk == 1]
}

/// Returns each flash disk with the numbers of operations after which it fails.
fn disks_and_operations(operations_max: u64) -> impl Iterator<Item = (usize, u64)> {
    let step = if is_long() { 1 } else { 8 };
    (0..2).flat_map(move |disk| (disk as u64..operations_max).step_by(step).map(move |operations| (disk, operations)))
}

#[test]
fn a_flash_disk_that_fails_at_any_operation_loses_nothing_and_does_not_count_until_it_has_everything() {
    for (disk, operations) in disks_and_operations(400) {
        let (machine, cell, mut model) = with_files();
        machine.breakers[disk].break_after(operations);
        change(&cell, &mut model).unwrap();
        let is_broken = machine.breakers[disk].is_broken();
        // The log finds out now if it did not before.
        model.write(&cell, INO, of_pages(0..1)).unwrap();
        model.sync(&cell, INO).unwrap();
        model.check_current(&cell).unwrap();
        if !is_broken {
            assert!(operations > 40, "{operations}");
            continue;
        }
        let mut random = Random::seeded(operations);
        let crash = |machine: &Machine, random: &mut Random| machine.crash(Crash::Power, random);
        // Alone, the disk lacks changes.
        let refused = crash(&machine, &mut random).start_after_crash(only(disk), &model.known());
        let error = refused.err().expect("a flash disk that failed is the only one");
        assert_eq!(error.kind(), crate::ErrorKind::ForeignDisk, "{error}");
        for present in [only(1 - disk), BOTH] {
            let (mut machine, mut model) = (crash(&machine, &mut random), model.clone());
            let cell = machine.start_after_crash(present, &model.known()).unwrap();
            model.check(&cell);
            if present == BOTH {
                // The disk has returned: it has what is written from now on.
                change(&cell, &mut model).unwrap();
                machine = crash(&machine, &mut random);
                model.check(&machine.start_after_crash(only(disk), &model.known()).unwrap());
            }
        }
    }
}

#[test]
fn only_writes_that_use_the_log_wait_for_its_flash_disks() {
    let (machine, cell) = with_dirty_page();
    let waits = |ino| cell.store.write_waits(ino, Stream::Data, &(0..PAGE));
    assert!(!waits(INO) && !waits(OTHER));
    machine.write_at_once();
    assert!(waits(INO) && waits(OTHER));
    let redo = Origin { kind: IoKind::Redo, ..Origin::default() };
    // The file has a dirty page.
    within(redo, || assert!(waits(INO) && !waits(OTHER)));
    cell.write_back.flush().unwrap();
    assert!(!waits(INO) && !waits(OTHER));
    cell.write_back.cancel_flush();
    assert!(waits(INO) && waits(OTHER));
}

#[test]
fn a_write_and_a_sync_return_when_both_flash_disks_have_the_record() {
    for disk in 0..2 {
        let (machine, cell) = with_dirty_page();
        machine.write_at_once();
        machine.breakers[disk].hold_writes();
        let (is_written, is_synced) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                cell.write(INO, &of_pages(2..3), 3).unwrap();
                is_written.store(true, Ordering::SeqCst);
            });
            while !machine.breakers[disk].has_held() {
                std::thread::sleep(Duration::from_millis(1));
            }
            // The records of another file: its sync covers all records that began before.
            scope.spawn(|| {
                cell.store.sync_everything().unwrap();
                is_synced.store(true, Ordering::SeqCst);
            });
            let has_returned = happens(|| is_written.load(Ordering::SeqCst) || is_synced.load(Ordering::SeqCst));
            machine.breakers[disk].release_writes();
            assert!(!has_returned, "disk {disk}");
        });
        let mut random = Random::seeded(1);
        for present in [only(0), only(1)] {
            let cell = machine.crash(Crash::Power, &mut random).start_after_crash(present, &[INO, OTHER]).unwrap();
            assert_eq!(cell.read(INO, &(3..7)).unwrap(), [1, 3, 3, 1], "{present:?}");
        }
    }
}

#[test]
fn records_of_several_files_are_written_at_the_same_time_and_a_flush_makes_all_of_them_durable() {
    let (machine, cell) = with_dirty_page();
    machine.breakers[1].hold_writes();
    std::thread::scope(|scope| {
        scope.spawn(|| cell.write(INO, &of_pages(2..3), 3).unwrap());
        while !machine.breakers[1].has_held() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let other = scope.spawn(|| cell.write(OTHER, &of_pages(1..2), 3).unwrap());
        let numbers = || cell.write_back.last_log().unwrap().records_being_written();
        while numbers() < 2 {
            std::thread::sleep(Duration::from_millis(1));
        }
        machine.breakers[1].release_writes();
        other.join().unwrap();
        cell.file(OTHER).unwrap().sync().unwrap();
    });
    cell.file(INO).unwrap().sync().unwrap();
    for present in [only(0), only(1)] {
        let machine = machine.crash(Crash::Power, &mut Random::seeded(1));
        let cell = machine.start_after_crash(present, &[INO, OTHER]).unwrap();
        assert_eq!(cell.read(INO, &(3..7)).unwrap(), [1, 3, 3, 1]);
        assert_eq!(cell.read(OTHER, &(1..5)).unwrap(), [1, 3, 3, 1]);
    }
}

#[test]
fn a_sync_waits_for_earlier_records_of_other_files() {
    let (machine, cell) = with_dirty_page();
    cell.write(OTHER, &of_pages(1..2), 2).unwrap();
    // The cell disks name both files, so the sync below waits for nothing but the record.
    [INO, OTHER].iter().for_each(|ino| cell.file(*ino).unwrap().sync().unwrap());
    machine.breakers[1].hold_one_write();
    std::thread::scope(|scope| {
        scope.spawn(|| cell.write(INO, &of_pages(2..3), 3).unwrap());
        while !machine.breakers[1].has_held() {
            std::thread::sleep(Duration::from_millis(1));
        }
        cell.write(OTHER, &of_pages(1..2), 3).unwrap();
        let synced = scope.spawn(|| cell.file(OTHER).unwrap().sync().unwrap());
        let has_returned = happens(|| synced.is_finished());
        machine.breakers[1].release_writes();
        assert!(!has_returned, "the log says that an earlier record is durable which a flash disk lacks");
    });
    for present in [only(0), only(1)] {
        let machine = machine.crash(Crash::Power, &mut Random::seeded(1));
        let cell = machine.start_after_crash(present, &[INO, OTHER]).unwrap();
        assert_eq!((cell.read(INO, &(4..6)).unwrap(), cell.read(OTHER, &(2..4)).unwrap()), (vec![3, 3], vec![3, 3]));
    }
}

/// Both flash disks are behind the same switch, for example, and do not answer for longer than the time limit.
#[test]
fn a_stall_that_both_flash_disks_have_in_common_leaves_one_of_them() {
    // A write to an open segment, and one that creates a segment.
    for creates in [false, true] {
        let (machine, cell) =
            with_dirty_page_on(Machine { timeout: Some(Duration::from_millis(20)), ..Machine::new() });
        cell.file(INO).unwrap().sync().unwrap();
        let log = cell.write_back.last_log().unwrap();
        let mut last = 2;
        for _ in 0..if creates { 2 } else { 0 } {
            last += 1;
            cell.write(INO, &of_pages(2..3), last).unwrap();
        }
        assert_eq!((log.used_segments().0, log.disks()), (1, (2, 2)));
        machine.breakers.iter().for_each(Breaker::hold_writes);
        std::thread::scope(|scope| {
            // The second one finds that the first one's operation on a disk was not waited for.
            let writers = [INO, OTHER].map(|ino| {
                let cell = &cell;
                scope.spawn(move || cell.write(ino, &of_pages(2..3), 9))
            });
            // An operation of the last disk is late, and waited for once more.
            while log.waits_for_last_disk() == 0 && !writers.iter().all(|writer| writer.is_finished()) {
                std::thread::sleep(Duration::from_millis(1));
            }
            machine.breakers.iter().for_each(Breaker::release_writes);
            for writer in writers {
                writer.join().unwrap().expect("one flash disk is left");
            }
        });
        assert_eq!((log.disks(), log.is_writable()), ((2, 1), true));
        cell.file(INO).unwrap().sync().unwrap();
        assert_eq!(cell.read(INO, &(3..7)).unwrap(), [1, 9, 9, 1]);
        assert_eq!(machine.read_below(INO, &(4..6)).0, [1, 1]);
        let machine = machine.crash(Crash::Power, &mut Random::seeded(1));
        let cell = machine.start_after_crash(BOTH, &[INO, OTHER]).unwrap();
        assert_eq!(cell.read(INO, &(3..7)).unwrap(), [1, 9, 9, 1]);
    }
}

#[test]
fn a_late_disk_is_waited_for_when_the_other_one_has_returned_an_error() {
    let (machine, cell) = with_dirty_page_on(Machine { timeout: Some(Duration::from_millis(20)), ..Machine::new() });
    cell.file(INO).unwrap().sync().unwrap();
    let log = cell.write_back.last_log().unwrap();
    machine.breakers[0].break_after(0);
    machine.breakers[1].hold_writes();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| cell.write(INO, &of_pages(2..3), 9));
        while log.waits_for_last_disk() == 0 && !writer.is_finished() {
            std::thread::sleep(Duration::from_millis(1));
        }
        machine.breakers[1].release_writes();
        writer.join().unwrap().expect("one flash disk is left");
    });
    assert_eq!((log.disks(), log.is_writable()), ((2, 1), true));
    assert_eq!(cell.read(INO, &(4..6)).unwrap(), [9, 9]);
}

#[test]
fn after_a_panic_in_a_write_nothing_relies_on_later_records() {
    for at_once in [false, true] {
        let (machine, cell) = with_dirty_page();
        cell.file(INO).unwrap().sync().unwrap();
        if at_once {
            machine.write_at_once();
        }
        // The first flash disk is written in the thread of the caller.
        machine.breakers[0].panic_at_write();
        let write = || cell.write(INO, &of_pages(1..2), 3);
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(write)).unwrap_err();
        // A later record would say that the missing one is durable.
        cell.write(INO, &of_pages(2..3), 4).unwrap_err();
        cell.write_back.last_log().unwrap().flush_all().unwrap_err();
        assert_eq!(cell.read(INO, &(3..7)).unwrap(), [1, 2, 2, 1]);
        let machine = machine.crash(Crash::Kill, &mut Random::seeded(1));
        let cell = machine.start_after_crash(BOTH, &[INO, OTHER]).unwrap();
        assert_eq!(cell.read(INO, &(4..6)).unwrap(), [2, 2]);
    }
}

#[test]
fn redo_waits_neither_for_a_new_segment_nor_for_a_destage() {
    let (machine, cell) = with_dirty_page();
    let log = cell.write_back.last_log().unwrap();
    for number in 3..5 {
        cell.write(INO, &of_pages(2..3), number).unwrap();
    }
    let redo = |bytes: &[u8]| {
        let file = cell.file(OTHER).unwrap();
        assert!(!cell.store.write_waits(OTHER, Stream::Data, &(0..PAGE)));
        file.write_at(bytes, 0).and_then(|()| file.sync())
    };
    let of_redo = Origin { kind: IoKind::Redo, ..Origin::default() };
    assert_eq!(log.used_segments().0, 1);
    machine.breakers[0].hold_writes();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| cell.write(INO, &of_pages(2..3), 5).unwrap());
        while !machine.breakers[0].has_held() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let synced = scope.spawn(|| within(of_redo, || redo(&bytes_of(6, 2)).unwrap()));
        let started = Instant::now();
        while !synced.is_finished() && started.elapsed() < HOPELESS {
            std::thread::sleep(Duration::from_millis(1));
        }
        let is_synced = synced.is_finished();
        machine.breakers[0].release_writes();
        synced.join().unwrap();
        writer.join().unwrap();
        assert!(is_synced, "redo waited for a flash disk");
    });
    assert_eq!(machine.read_below(OTHER, &(0..2)).0, [6, 6]);
    // A destage makes no space for redo.
    while !log.is_nearly_full() {
        cell.write(INO, &of_pages(2..3), 7).unwrap();
    }
    machine.hooks.set(|ino, operation| match operation {
        Operation::Write { .. } if ino == OTHER => Err(io::Error::from_raw_os_error(libc::ENOSPC)),
        _ => Ok(()),
    });
    let refused = within(of_redo, || redo(&bytes_of(8, 2))).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::StorageFull);
    assert_eq!(cell.write_back.stats().destage_requests, 0);
}

/// As [`with_dirty_page`], with a file of redo on a log that takes it.
fn with_redo() -> (Machine, Cell) {
    let (machine, cell) = with_dirty_page_on(Machine::taking_redo());
    cell.create(REDO).unwrap();
    cell.write(REDO, &(0..16), 1).unwrap();
    cell.file(REDO).unwrap().sync().unwrap();
    (machine, cell)
}

#[test]
fn a_log_that_takes_redo_has_it_durably_and_no_commit_waits_for_a_note() {
    let (machine, cell) = with_redo();
    let sync = |ino| cell.file(ino).unwrap().sync().unwrap();
    // Without redo, only the note about all WAL files is there.
    assert_eq!(machine.lacking(), BTreeSet::from([REDO]));
    machine.refuses_notes.store(true, Ordering::SeqCst);
    for number in 2..4 {
        cell.write(REDO, &of_pages(2..4), number).unwrap();
        sync(REDO);
    }
    let stats = cell.write_back.stats();
    assert_eq!((stats.redo_requests, stats.redo_bytes, stats.redo_skips), (2, 4 * PAGE, 0));
    assert_eq!((cell.dirty_pages(), stats.destage_requests), (3, 0));
    assert_eq!(machine.read_below(REDO, &(4..8)).0, [1, 1, 1, 1]);
    let of_redo = cell.origin(REDO);
    machine.write_at_once();
    within(of_redo, || assert!(cell.store.write_waits(REDO, Stream::Data, &(0..PAGE))));
    for present in [only(0), only(1)] {
        let cell = machine.crash(Crash::Power, &mut Random::seeded(1)).start_after_crash(present, &[INO, OTHER, REDO]);
        assert_eq!(cell.unwrap().read(REDO, &(3..9)).unwrap(), [1, 3, 3, 3, 3, 1]);
    }
    // Other writes to the file are noted as those of any file.
    machine.refuses_notes.store(false, Ordering::SeqCst);
    cell.file(REDO).unwrap().write_at(&bytes_of(4, 2), 0).unwrap();
    sync(REDO);
    let left = Left::read(&[], machine.group().as_ref(), true).unwrap();
    assert_eq!(left.lacking().unwrap().inodes, BTreeSet::from([INO, REDO]));
    // The next log of the process has the note, too.
    cell.write_back.end().unwrap();
    assert_eq!(machine.lacking(), BTreeSet::new());
    let flash = machine.disks.disks().split_off(1);
    let options = WriteBackOptions { takes_redo: true, ..OPTIONS };
    cell.write_back.start(&options, &flash, &machine.group()).unwrap();
    assert_eq!(machine.lacking(), BTreeSet::from([REDO]));
}

#[test]
fn redo_goes_to_the_cell_disks_while_the_log_is_nearly_full_except_for_dirty_pages() {
    let (machine, cell) = with_redo();
    let log = cell.write_back.last_log().unwrap();
    cell.write(REDO, &of_pages(2..3), 2).unwrap();
    // All segments that other pages may have.
    while crate::flash::without_waiting(|| cell.write(OTHER, &of_pages(1..2), 3)).is_ok() {}
    assert!(log.is_nearly_full());
    let records = cell.write_back.stats().redo_requests;
    // The first page has space in the segment that is left to redo.
    let write = |pages, number| crate::flash::without_waiting(|| cell.write(REDO, &of_pages(pages), number));
    write(2..4, 4).unwrap();
    write(3..4, 5).unwrap();
    let stats = cell.write_back.stats();
    assert_eq!((stats.redo_requests - records, stats.redo_skips, stats.destage_requests), (1, 2, 0));
    // Other pages do not use that segment.
    let refused = crate::flash::without_waiting(|| cell.write(OTHER, &of_pages(1..2), 3)).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
    assert_eq!(machine.read_below(REDO, &(4..8)).0, [1, 1, 5, 5]);
    assert_eq!(cell.read(REDO, &(4..8)).unwrap(), [4, 4, 5, 5]);
    // When that is full, too, a dirty page waits for a destage.
    let refused = (0..4).find_map(|_| write(2..3, 6).err());
    assert_eq!(refused.unwrap().kind(), io::ErrorKind::WouldBlock);
    cell.write(REDO, &of_pages(2..3), 7).unwrap();
    assert!(cell.write_back.stats().destage_requests > 0);
    cell.file(REDO).unwrap().sync().unwrap();
    let machine = machine.crash(Crash::Power, &mut Random::seeded(1));
    let cell = machine.start_after_crash(BOTH, &[INO, OTHER, REDO]).unwrap();
    assert_eq!(cell.read(REDO, &(4..8)).unwrap(), [7, 7, 5, 5]);
}

#[test]
fn a_sync_does_not_wait_for_an_internal_one_that_covers_only_pages_of_the_log() {
    let (machine, cell) = with_redo();
    cell.write(REDO, &of_pages(2..3), 2).unwrap();
    let flags: [Arc<AtomicBool>; 3] = Default::default();
    let [is_syncing, may_end, has_waited] = flags.clone();
    machine.hooks.set(move |ino, operation| {
        if ino == REDO && operation == Operation::Sync && !flags[0].swap(true, Ordering::SeqCst) {
            let started = Instant::now();
            while !flags[1].load(Ordering::SeqCst) && started.elapsed() < HOPELESS {
                std::thread::sleep(Duration::from_millis(1));
            }
            flags[2].store(!flags[1].load(Ordering::SeqCst), Ordering::SeqCst);
        }
        Ok(())
    });
    std::thread::scope(|scope| {
        scope.spawn(|| cell.write_back.destage().unwrap());
        wait_for(&is_syncing);
        cell.write(REDO, &of_pages(2..4), 3).unwrap();
        cell.file(REDO).unwrap().sync().unwrap();
        // The redo is in flash only.
        for present in [only(0), only(1)] {
            let machine = machine.crash(Crash::Power, &mut Random::seeded(1));
            let cell = machine.start_after_crash(present, &[INO, OTHER, REDO]).unwrap();
            assert_eq!(cell.read(REDO, &(3..9)).unwrap(), [1, 3, 3, 3, 3, 1]);
        }
        may_end.store(true, Ordering::SeqCst);
    });
    assert!(!has_waited.load(Ordering::SeqCst), "a sync waited for a cell disk");
    assert_eq!(cell.read(REDO, &(3..9)).unwrap(), [1, 3, 3, 3, 3, 1]);
}

#[test]
fn a_sync_waits_for_an_internal_one_if_an_earlier_one_has_failed_or_the_cell_disks_lack_changes() {
    for has_failed in [false, true] {
        let (machine, cell) = with_redo();
        cell.write(REDO, &of_pages(2..3), 2).unwrap();
        if has_failed {
            machine.hooks.set(|_, operation| if operation == Operation::Sync { Err(eio()) } else { Ok(()) });
            cell.write_back.destage().unwrap_err();
        } else {
            // A part of a page that is not dirty.
            cell.write(REDO, &(0..1), 3).unwrap();
        }
        let flags: [Arc<AtomicBool>; 2] = Default::default();
        let [is_syncing, is_synced] = flags.clone();
        machine.hooks.set(move |ino, operation| {
            if ino == REDO && operation == Operation::Sync && !flags[0].swap(true, Ordering::SeqCst) {
                assert!(!happens(|| flags[1].load(Ordering::SeqCst)), "a sync did not wait");
            }
            Ok(())
        });
        std::thread::scope(|scope| {
            scope.spawn(|| cell.write_back.destage().unwrap());
            wait_for(&is_syncing);
            let synced = cell.file(REDO).unwrap().sync();
            is_synced.store(true, Ordering::SeqCst);
            assert_eq!(synced.is_err(), has_failed);
        });
        cell.file(REDO).unwrap().sync().unwrap();
    }
}

/// A log without space: the write destages first, or goes to the cell disks.
#[test]
fn a_write_that_finds_the_log_full_destages_first_and_one_that_must_not_wait_is_refused() {
    let (machine, cell) = with_dirty_page();
    let log = cell.write_back.last_log().unwrap();
    let write = |number| cell.write(OTHER, &of_pages(1..2), number);
    let mut number = 3;
    while !log.is_nearly_full() {
        write(number).unwrap();
        number += 1;
    }
    assert_eq!(cell.write_back.stats().destage_requests, 0);
    // The last segment has space for at most three records.
    let refused = (0..4).find_map(|_| crate::flash::without_waiting(|| write(number)).err());
    assert_eq!(refused.unwrap().kind(), io::ErrorKind::WouldBlock);
    assert_eq!(cell.write_back.stats().destage_requests, 0);
    write(number + 1).unwrap();
    // The pages of both files, and the write afterwards is dirty.
    assert_eq!((cell.write_back.stats().destage_requests, cell.dirty_pages()), (2, 1));
    assert_eq!((cell.read(INO, &(4..6)).unwrap(), machine.read_below(INO, &(4..6)).0), (vec![2, 2], vec![2, 2]));
    let (used, max) = log.used_segments();
    assert!(used < max / 2, "{used} of {max} segments");
    // A destage that fails still frees the records whose pages have all been overwritten.
    machine.hooks.set(|_, _| Err(eio()));
    let mut last = number + 1;
    while cell.write_back.stats().written_bytes < 2 * SEGMENT * max as u64 {
        last += 1;
        write(last).unwrap();
    }
    // If it frees nothing, it refuses the write, and loses nothing.
    machine.hooks.clear();
    cell.write(INO, &of_pages(2..3), 2).unwrap();
    machine.hooks.set(|_, _| Err(eio()));
    while write(last + 1).is_ok() {
        last += 1;
    }
    assert_eq!(cell.read(OTHER, &(2..4)).unwrap(), [last, last]);
    machine.hooks.clear();
    cell.file(OTHER).unwrap().sync().unwrap();
    let machine = machine.crash(Crash::Power, &mut Random::seeded(1));
    let cell = machine.start_after_crash(BOTH, &[INO, OTHER]).unwrap();
    assert_eq!(cell.read(OTHER, &(2..4)).unwrap(), [last, last]);
}

#[test]
fn without_space_on_a_flash_disk_writes_go_to_the_cell_disks() {
    let (machine, cell) = with_dirty_page();
    let log = cell.write_back.last_log().unwrap();
    cell.write(INO, &of_pages(2..3), 3).unwrap();
    cell.write(INO, &of_pages(2..3), 4).unwrap();
    assert_eq!(log.used_segments().0, 1);
    machine.breakers[1].refuse_files(true);
    cell.write(OTHER, &of_pages(1..2), 5).unwrap();
    assert_eq!((cell.dirty_pages(), log.disks(), log.takes_pages()), (0, (2, 2), false));
    assert_eq!(machine.read_below(OTHER, &(2..4)).0, [5, 5]);
    assert_eq!(machine.read_below(INO, &(4..6)).0, [4, 4]);
}

#[test]
fn a_flash_disk_that_fails_during_a_start_loses_nothing() {
    for (disk, operations) in disks_and_operations(60) {
        let (machine, cell, mut model) = with_files();
        change(&cell, &mut model).unwrap();
        let mut random = Random::seeded(operations);
        let machine = machine.crash(Crash::Power, &mut random);
        machine.breakers[disk].break_after(operations);
        if let Ok(cell) = machine.start_after_crash(BOTH, &model.known()) {
            model.check(&cell);
            change(&cell, &mut model).unwrap();
        }
        let machine = machine.crash(Crash::Power, &mut random);
        let mut cell = machine.start_after_crash(only(1 - disk), &model.known());
        if cell.is_err() {
            cell = machine.start_after_crash(BOTH, &model.known());
        }
        model.check(&cell.unwrap());
    }
}

#[test]
fn damage_of_one_of_two_copies_of_any_record_loses_nothing() {
    let (machine, cell, mut model) = with_files();
    change(&cell, &mut model).unwrap();
    model.sync(&cell, OTHER).unwrap();
    let mut random = Random::seeded(1);
    for (disk, block) in (1..3).flat_map(|disk| (0..10).map(move |block| (disk, block))) {
        let (machine, mut model) = (machine.crash(Crash::Power, &mut random), model.clone());
        let flash = machine.disks.disks().remove(disk);
        for (ino, stream) in flash.backing_files().unwrap() {
            flash.open(ino, stream, false).unwrap().unwrap().write_at(&[77; 10], block * SECTOR + 100).unwrap();
        }
        model.check(&machine.start_after_crash(BOTH, &model.known()).unwrap());
    }
}

#[test]
fn the_cell_disks_name_the_files_with_synced_pages_that_they_lack_and_no_others() {
    let (machine, cell) = with_dirty_page();
    let names = |expected: &[u64]| assert_eq!(machine.lacking(), expected.iter().copied().collect());
    let sync = |ino| cell.file(ino).unwrap().sync().unwrap();
    names(&[]);
    sync(INO);
    names(&[INO]);
    cell.write(OTHER, &of_pages(1..2), 3).unwrap();
    cell.store.sync_everything().unwrap();
    names(&[INO, OTHER]);
    cell.write_back.destage().unwrap();
    names(&[]);
    sync(INO);
    names(&[]);
    cell.write(INO, &of_pages(1..2), 3).unwrap();
    sync(INO);
    names(&[INO]);
    cell.store.remove(INO, Stream::Data).unwrap();
    cell.write_back.destage().unwrap();
    names(&[]);
}

#[test]
fn a_sync_of_a_file_that_cannot_be_noted_writes_the_pages_to_the_cell_disks() {
    let (machine, cell) = with_dirty_page();
    machine.refuses_notes.store(true, Ordering::SeqCst);
    cell.file(INO).unwrap().sync().unwrap();
    assert_eq!((cell.dirty_pages(), machine.read_below(INO, &(3..7)).0), (0, vec![1, 2, 2, 1]));
    cell.write(OTHER, &of_pages(2..3), 2).unwrap();
    cell.store.sync_everything().unwrap();
    assert_eq!((cell.dirty_pages(), machine.read_below(OTHER, &(3..7)).0), (0, vec![1, 2, 2, 1]));
}
