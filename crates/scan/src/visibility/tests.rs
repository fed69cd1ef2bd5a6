use super::infomask::*;
use super::*;
use std::collections::HashMap;

const SNAPSHOT_XMIN: u32 = 1000;
const SNAPSHOT_XMAX: u32 = 2000;

impl XidLookup for HashMap<TransactionId, XidState> {
    fn state(&self, xid: TransactionId) -> Option<XidState> {
        self.get(&xid).copied()
    }
}

#[track_caller]
fn check(xmin: u32, xmax: u32, infomask: u16, expected: TupleVisibility) {
    let snapshot = Snapshot { xmin: SNAPSHOT_XMIN, xmax: SNAPSHOT_XMAX, ..Snapshot::default() };
    let xids = HashMap::from([
        (500, XidState::Committed),
        (501, XidState::Aborted),
        (1500, XidState::Committed),
        (1501, XidState::Running),
        (1502, XidState::Aborted),
        (1503, XidState::Unknown),
    ]);
    let tuple = TupleHeader { offset: 8000, length: 24, xmin, xmax, infomask2: 0, infomask, data: 24 };
    assert_eq!(Visibility::new(&snapshot, &xids).check(&tuple), expected);
}

use TupleVisibility::*;

#[test]
fn xmin_hinted_committed_is_compared_with_the_snapshot() {
    let mask = XMIN_COMMITTED | XMAX_INVALID;
    check(999, 0, mask, Visible);
    check(2, 0, mask, Visible);
    check(2000, 0, mask, Invisible);
    check(1500, 0, mask, Visible);
    check(1501, 0, mask, Invisible);
    check(1502, 0, mask, Undecided);
    check(1503, 0, mask, Undecided);
    check(1000, 0, mask, NeedsXid(1000));
}

#[test]
fn a_frozen_tuple_needs_no_snapshot() {
    check(1999, 0, XMIN_FROZEN | XMAX_INVALID, Visible);
}

#[test]
fn an_xmin_without_hint_bit_is_always_looked_up() {
    check(999, 0, XMAX_INVALID, NeedsXid(999));
    check(2001, 0, XMAX_INVALID, NeedsXid(2001));
    check(500, 0, XMAX_INVALID, Visible);
    check(501, 0, XMAX_INVALID, Invisible);
    check(1501, 0, XMAX_INVALID, Invisible);
    check(1503, 0, XMAX_INVALID, Undecided);
    check(0, 0, XMAX_INVALID, Invisible);
    check(1, 0, XMAX_INVALID, Visible);
}

#[test]
fn an_invalid_xmin_hides_the_tuple_for_every_xmax() {
    check(999, 1503, XMIN_INVALID, Invisible);
}

#[test]
fn xmax_decides_if_xmin_is_visible() {
    let committed = XMIN_FROZEN | XMAX_COMMITTED;
    check(9, 999, committed, Invisible);
    check(9, 2000, committed, Visible);
    check(9, 1500, committed, Invisible);
    check(9, 1501, committed, Visible);
    check(9, 1502, committed, Undecided);
    check(9, 1700, committed, NeedsXid(1700));
    check(9, 999, XMIN_FROZEN, NeedsXid(999));
    check(9, 500, XMIN_FROZEN, Invisible);
    check(9, 501, XMIN_FROZEN, Visible);
    check(9, 1501, XMIN_FROZEN, Visible);
    check(9, 1503, XMIN_FROZEN, Undecided);
    check(9, 0, XMIN_FROZEN, Visible);
}

#[test]
fn a_locked_tuple_is_not_deleted() {
    check(9, 1503, XMIN_FROZEN | XMAX_LOCK_ONLY | XMAX_KEYSHR_LOCK, Visible);
    check(9, 1503, XMIN_FROZEN | XMAX_LOCK_ONLY | XMAX_IS_MULTI, Visible);
    check(9, 1503, XMIN_FROZEN | XMAX_EXCL_LOCK, Visible);
    check(9, 1503, XMIN_FROZEN | XMAX_EXCL_LOCK | XMAX_IS_MULTI, Undecided);
    check(9, 1503, XMIN_FROZEN | XMAX_EXCL_LOCK | XMAX_KEYSHR_LOCK, Undecided);
}

#[test]
fn multixacts_and_moved_tuples_are_left_to_postgres() {
    check(9, 77, XMIN_FROZEN | XMAX_IS_MULTI, Undecided);
    check(9, 0, MOVED_OFF | XMAX_INVALID, Undecided);
    check(9, 0, MOVED_IN | XMAX_INVALID, Undecided);
    check(9, 0, MOVED_IN | XMIN_COMMITTED | XMAX_INVALID, Visible);
}

#[test]
fn transaction_ids_are_compared_modulo_two_to_the_thirty_second() {
    assert!(precedes(4_294_967_290, 10));
    assert!(!precedes(10, 4_294_967_290));
    assert!(precedes(2, 3));
    assert!(precedes(1, u32::MAX));
    assert!(!precedes(5, 5));
}
