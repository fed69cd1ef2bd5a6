//! Vectors of truth values: one byte per selected row, with PostgreSQL's three-valued logic.
//!
//! [`UNDECIDED`] marks rows that the interpreter must decide, because an operand might raise an error. AND and OR evaluate
//! operands from left to right and stop at the first operand that decides, so an undecided operand after it has no effect.

use super::super::lanes::{IS_NULL, Lanes, UNCERTAIN};
use crate::vectors::vectorized;
use cellar_format::wire::BooleanTest;

pub const FALSE: u8 = 0;
pub const TRUE: u8 = 1;
pub const UNKNOWN: u8 = 2;
pub const UNDECIDED: u8 = 3;

vectorized! {
    /// ANDs the next operand to the result so far.
    pub fn and(result: &mut [u8], operand: &[u8]) {
        for (result, operand) in result.iter_mut().zip(operand) {
            let is_final = *result == FALSE || *result == UNDECIDED;
            *result = if is_final || *operand == TRUE { *result } else { *operand };
        }
    }

    /// ORs the next operand to the result so far.
    pub fn or(result: &mut [u8], operand: &[u8]) {
        for (result, operand) in result.iter_mut().zip(operand) {
            let is_final = *result == TRUE || *result == UNDECIDED;
            *result = if is_final || *operand == FALSE { *result } else { *operand };
        }
    }

    pub fn not(result: &mut [u8]) {
        for result in result.iter_mut() {
            *result = if *result <= TRUE { 1 - *result } else { *result };
        }
    }

    /// Replaces marks, 1 or 0, by truth values, given the flags of the compared numbers.
    pub fn flag(marks: &mut [u8], flags: &[u8]) {
        for (mark, flags) in marks.iter_mut().zip(flags) {
            let unknown = if *flags & IS_NULL != 0 { UNKNOWN } else { *mark };
            *mark = if *flags & UNCERTAIN != 0 { UNDECIDED } else { unknown };
        }
    }
}

/// Tests truth values. Undecided rows stay undecided.
pub fn test(test: BooleanTest, result: &mut [u8]) {
    let (value, wanted) = match test {
        BooleanTest::IsTrue => (TRUE, TRUE),
        BooleanTest::IsNotTrue => (TRUE, FALSE),
        BooleanTest::IsFalse => (FALSE, TRUE),
        BooleanTest::IsNotFalse => (FALSE, FALSE),
        BooleanTest::IsUnknown => (UNKNOWN, TRUE),
        BooleanTest::IsNotUnknown => (UNKNOWN, FALSE),
    };
    for result in result.iter_mut().filter(|result| **result != UNDECIDED) {
        *result = if *result == value { wanted } else { 1 - wanted };
    }
}

/// Whether numbers are NULL, or not NULL if `negated`.
pub fn nulls(lanes: &Lanes, negated: bool) -> Vec<u8> {
    let truth = |row| match lanes.flags(row) {
        flags if flags & UNCERTAIN != 0 => UNDECIDED,
        flags => u8::from((flags & IS_NULL != 0) != negated),
    };
    (0..lanes.values.len()).map(truth).collect()
}

/// Truth values of booleans, which are numbers other than 0 if true.
pub fn of_numbers(lanes: &Lanes) -> Vec<u8> {
    let mut truths: Vec<u8> = lanes.values.iter().map(|value| u8::from(*value != 0)).collect();
    flag(&mut truths, &lanes.flags);
    truths
}

/// Truth values as numbers.
pub fn to_numbers(truths: &[u8]) -> Lanes {
    let values = truths.iter().map(|truth| i64::from(*truth == TRUE)).collect();
    let mut lanes = Lanes::without_flags(values, (0, 1));
    if truths.iter().any(|truth| *truth > TRUE) {
        let flags = |truth: &u8| [0, 0, IS_NULL, UNCERTAIN][usize::from(*truth & 3)];
        lanes.flags = truths.iter().map(flags).collect();
    }
    lanes
}

vectorized! {
    fn choose_values(truths: &[u8], then: &[i64], values: &mut [i64]) {
        for ((value, then), truth) in values.iter_mut().zip(then).zip(truths) {
            *value = if *truth == TRUE { *then } else { *value };
        }
    }

    fn choose_flags(truths: &[u8], then: &[u8], flags: &mut [u8]) {
        for ((flags, then), truth) in flags.iter_mut().zip(then).zip(truths) {
            let chosen = if *truth == TRUE { *then } else { *flags };
            *flags = if *truth == UNDECIDED { UNCERTAIN } else { chosen };
        }
    }
}

/// Replaces numbers by the numbers of `then` where the condition is true. Rows with an undecided condition become uncertain.
pub fn choose(truths: &[u8], then: &Lanes, otherwise: &mut Lanes) {
    choose_values(truths, &then.values, &mut otherwise.values);
    otherwise.bounds = (otherwise.bounds.0.min(then.bounds.0), otherwise.bounds.1.max(then.bounds.1));
    if then.flags.is_empty() && otherwise.flags.is_empty() && !truths.contains(&UNDECIDED) {
        return;
    }
    let rows = otherwise.values.len();
    otherwise.flags.resize(rows, 0);
    match then.flags.as_slice() {
        [] => choose_flags(truths, &vec![0; rows], &mut otherwise.flags),
        flags => choose_flags(truths, flags, &mut otherwise.flags),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vectors::tests::with_each;

    const ALL: [u8; 4] = [FALSE, TRUE, UNKNOWN, UNDECIDED];

    #[test]
    fn the_first_operand_that_decides_ends_and_and_or() {
        // By result so far, then by operand.
        let conjunction = [[0; 4], [0, 1, 2, 3], [0, 2, 2, 3], [3; 4]];
        let disjunction = [[0, 1, 2, 3], [1; 4], [2, 1, 2, 3], [3; 4]];
        with_each(|_| {
            for left in ALL {
                let mut result = vec![left; 100];
                let operand: Vec<u8> = (0..100).map(|row| ALL[row % 4]).collect();
                and(&mut result, &operand);
                assert!((0..100).all(|row| result[row] == conjunction[left as usize][row % 4]));
                let mut result = vec![left; 100];
                or(&mut result, &operand);
                assert!((0..100).all(|row| result[row] == disjunction[left as usize][row % 4]));
            }
            let mut result = ALL.repeat(9);
            not(&mut result);
            assert_eq!(result, [TRUE, FALSE, UNKNOWN, UNDECIDED].repeat(9));
        });
    }

    #[test]
    fn a_branch_that_is_not_taken_decides_nothing() {
        with_each(|_| {
            let mut numbers = Lanes { values: vec![1, 2, 3, 4], flags: vec![UNCERTAIN, 0, IS_NULL, 0], bounds: (1, 4) };
            let then = Lanes { values: vec![9; 4], flags: vec![0, IS_NULL, 0, UNCERTAIN], bounds: (9, 9) };
            choose(&[TRUE, FALSE, UNDECIDED, UNKNOWN], &then, &mut numbers);
            assert_eq!(numbers.values[0], 9);
            assert_eq!(numbers.values[3], 4);
            assert_eq!(numbers.flags, [0, 0, UNCERTAIN, 0]);
            assert_eq!(numbers.bounds, (1, 9));
        });
    }
}
