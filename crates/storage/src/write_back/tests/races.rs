//! Two threads at a place where one order of their steps breaks a rule.

use super::rules::{HOPELESS, INO, happens, wait_for, with_dirty_page, with_dirty_page_on};
use super::*;
use crate::write_back::log::Purpose;
use std::time::Instant;

#[test]
fn a_change_that_the_full_log_refused_is_repeated_although_a_destage_has_ended_meanwhile() {
    let (_machine, cell) = with_dirty_page();
    let log = cell.write_back.last_log().unwrap();
    let append = || log.append(Purpose::Pages, &[], &[]);
    while append().is_ok() {}
    assert!(log.is_nearly_full());
    let mut refused = 0;
    let changed = cell.write_back.with_space(|| {
        let appended = append();
        if appended.is_err() {
            refused += 1;
            // The destage of another thread.
            cell.write_back.destage()?;
            assert!(!log.is_nearly_full());
        }
        appended.map(drop)
    });
    changed.unwrap();
    assert_eq!(refused, 1);
}

/// The cell disks. The next request for the list of disks waits while `holds` is set.
#[derive(Debug)]
struct HeldDisks {
    inner: Arc<dyn CellDisks>,
    holds: AtomicBool,
    has_held: AtomicBool,
}

impl CellDisks for HeldDisks {
    fn accessible(&self) -> Vec<(usize, Arc<dyn Disk>)> {
        if self.holds.load(Ordering::SeqCst) && !self.has_held.swap(true, Ordering::SeqCst) {
            let started = Instant::now();
            while self.holds.load(Ordering::SeqCst) && started.elapsed() < HOPELESS {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        self.inner.accessible()
    }
    fn fail(&self, disk: usize, error: &io::Error) -> io::Result<()> {
        self.inner.fail(disk, error)
    }
}

/// A sync begins to note its file while the log ends, after the last destage, and a punch makes the file's page clean. So nothing keeps
/// the log from ending, and the next log begins while the note is being written.
#[test]
fn a_note_that_was_begun_in_a_former_log_does_not_replace_the_note_about_redo_of_the_next_one() {
    let (machine, cell) = with_dirty_page_on(Machine::taking_redo());
    cell.write_back.end().unwrap();
    let held =
        Arc::new(HeldDisks { inner: machine.group(), holds: AtomicBool::new(false), has_held: AtomicBool::new(false) });
    let cell_disks: Arc<dyn CellDisks> = held.clone();
    let (flash, options) = (machine.disks.disks().split_off(1), WriteBackOptions { takes_redo: true, ..OPTIONS });
    let start = || cell.write_back.start(&options, &flash, &cell_disks).unwrap();
    start();
    cell.write(INO, &of_pages(2..3), 3).unwrap();
    held.holds.store(true, Ordering::SeqCst);
    std::thread::scope(|scope| {
        scope.spawn(|| cell.file(INO).unwrap().sync().unwrap());
        wait_for(&held.has_held);
        cell.file(INO).unwrap().punch(2 * PAGE, PAGE).unwrap();
        assert_eq!(cell.dirty_pages(), 0);
        cell.write_back.last_log().unwrap().end().unwrap();
        let started = scope.spawn(start);
        happens(|| started.is_finished());
        held.holds.store(false, Ordering::SeqCst);
    });
    assert_eq!(machine.lacking(), BTreeSet::from([REDO]));
}
