//! Attributes that tell when an object was recorded: conditions about them limit what is read of a history.

use super::ast::{Operand, Operator};
use super::error::Error;
use super::value::{number, time_of};
use std::ops::RangeInclusive;

/// An attribute that tells when an object was recorded.
#[derive(Debug, Clone, Copy)]
pub enum Recorded {
    /// The attribute with this index is the time.
    At(usize),
    /// The attribute with the first index is the number of whole minutes before a time, which is in milliseconds since 1970.
    MinutesBefore(usize, u64),
}

/// Milliseconds since 1970.
pub type Times = RangeInclusive<u64>;
pub const ALL_TIMES: Times = 0..=u64::MAX;
const MINUTE_MS: f64 = 60_000.0;

impl Recorded {
    pub fn index(self) -> usize {
        match self {
            Self::At(index) | Self::MinutesBefore(index, _) => index,
        }
    }

    /// Returns the times outside of which a comparison of the attribute does not hold.
    pub fn times(self, operator: Operator, operand: &Operand) -> Result<Times, Error> {
        let text = operand.text();
        match self {
            Self::At(_) => {
                let Some(time) = time_of(text) else {
                    let message = format!("\"{text}\" is not a time; write one like '2026-08-06T11:30:00'");
                    return Err(Error::invalid_value(message));
                };
                // The attribute has whole seconds, a record milliseconds.
                let time = (time.seconds() * 1000.0).max(0.0) as u64;
                Ok(within(operator, time, time.saturating_add(999)))
            }
            Self::MinutesBefore(_, now_ms) => {
                let Some(minutes) = number(text) else {
                    return Err(Error::invalid_value(format!("\"{text}\" is not a number of minutes")));
                };
                // The age is rounded down to minutes, and the time to seconds.
                let before = |minutes: f64| (now_ms as f64 - minutes * MINUTE_MS).max(0.0) as u64;
                let (oldest, youngest) = (before(minutes + 2.0), before(minutes - 1.0));
                Ok(match operator {
                    Operator::Less | Operator::LessOrEqual => oldest..=u64::MAX,
                    Operator::Greater | Operator::GreaterOrEqual => 0..=youngest,
                    Operator::Equal | Operator::Like => oldest..=youngest,
                })
            }
        }
    }
}

/// Returns the times that compare so with some time from `first` to `last`.
fn within(operator: Operator, first: u64, last: u64) -> Times {
    match operator {
        Operator::Less | Operator::LessOrEqual => 0..=last,
        Operator::Greater | Operator::GreaterOrEqual => first..=u64::MAX,
        Operator::Equal | Operator::Like => first..=last,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_age_of_a_record_limits_the_times_that_are_read() {
        const NOW: u64 = 1_800_000_000_000;
        let times = |operator, minutes: &str| {
            let operand = Operand::Bare(minutes.to_owned());
            Recorded::MinutesBefore(0, NOW).times(operator, &operand)
        };
        let minutes_ago = |minutes: u64| NOW - minutes * 60_000;
        assert_eq!(times(Operator::Less, "5").unwrap(), minutes_ago(7)..=u64::MAX);
        assert_eq!(times(Operator::GreaterOrEqual, "5").unwrap(), 0..=minutes_ago(4));
        assert_eq!(times(Operator::Equal, "5").unwrap(), minutes_ago(7)..=minutes_ago(4));
        assert!(times(Operator::Greater, "-1").unwrap().contains(&NOW));
        assert_eq!(*times(Operator::Less, "1e300").unwrap().start(), 0);
        assert!(times(Operator::Less, "old").unwrap_err().to_string().contains("not a number of minutes"));
    }
}
