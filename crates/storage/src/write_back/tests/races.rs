//! Two threads at a place where one order of their steps breaks a rule.

use super::rules::with_dirty_page;
use crate::write_back::log::Purpose;

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
