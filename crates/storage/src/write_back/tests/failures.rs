//! Failed and panicking operations after which the process goes on: nothing that it acknowledges later may be lost.

use super::rules::{INO, OTHER, only, with_dirty_page};
use super::*;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// One flash disk has the record of a write that failed. A start writes the record's page to the cell disks, so no later write of the
/// page may go to the cell disks.
#[test]
fn a_write_after_a_failed_record_of_the_same_page_does_not_go_around_the_log() {
    for panics in [false, true] {
        let (machine, cell) = with_dirty_page();
        cell.file(INO).unwrap().sync().unwrap();
        match panics {
            true => machine.breakers[0].panic_at_write(),
            false => {
                // The cell disks cannot be told that the flash disk failed, so its failure ends the log.
                machine.refuses_notes.store(true, Ordering::SeqCst);
                machine.breakers[0].break_after(0);
            }
        }
        let write = |number| cell.write(INO, &of_pages(1..2), number);
        let failed = catch_unwind(AssertUnwindSafe(|| write(3)));
        assert!(failed.is_err() == panics && !failed.is_ok_and(|written| written.is_ok()));
        let acknowledged = match write(4).and_then(|()| cell.file(INO)?.sync()) {
            Ok(()) => [4].as_slice(),
            Err(_) => &[1, 3, 4],
        };
        // Other files are not affected.
        cell.write(OTHER, &of_pages(1..2), 5).unwrap();
        let machine = machine.crash(Crash::Kill, &mut Random::seeded(1));
        let cell = machine.start_after_crash(only(1), &[INO, OTHER]).unwrap();
        let found = cell.read(INO, &(2..4)).unwrap();
        assert!(found[0] == found[1] && acknowledged.contains(&found[0]), "{found:?}, panics: {panics}");
        assert_eq!(cell.read(OTHER, &(2..4)).unwrap(), [5, 5]);
    }
}

#[test]
fn the_sync_after_one_that_panicked_syncs_the_cell_disks_again() {
    let (machine, cell) = with_dirty_page();
    // A part of a page that is not dirty goes to the cell disks.
    cell.write(INO, &(0..1), 3).unwrap();
    machine.hooks.set(|_, operation| {
        assert!(operation != Operation::Sync, "a cell disk panics");
        Ok(())
    });
    let sync = || cell.file(INO).unwrap().sync();
    catch_unwind(AssertUnwindSafe(sync)).unwrap_err();
    machine.hooks.clear();
    sync().unwrap();
    let machine = machine.crash(Crash::Power, &mut Random::seeded(1));
    let cell = machine.start_after_crash(BOTH, &[INO, OTHER]).unwrap();
    assert_eq!(cell.read(INO, &(0..2)).unwrap(), [3, 1]);
}

#[test]
fn the_sync_after_a_destage_whose_sync_panicked_reports_a_failure() {
    let (machine, cell) = with_dirty_page();
    let sync = |ino| cell.file(ino).unwrap().sync();
    sync(INO).unwrap();
    machine.hooks.set(|_, operation| {
        assert!(operation != Operation::Sync, "a cell disk panics");
        Ok(())
    });
    catch_unwind(AssertUnwindSafe(|| cell.write_back.destage())).unwrap_err();
    machine.hooks.clear();
    sync(OTHER).unwrap();
    sync(INO).unwrap_err();
    sync(INO).unwrap();
}
