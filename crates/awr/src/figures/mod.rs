//! Derived figures: each has one definition here, with its source.
//!
//! Sources: the AWR articles in which a figure is defined or used, Oracle's documentation of the statistic, and
//! PostgreSQL's documentation of the counter. Inputs are microseconds, bytes and counts; shares are per cent.

pub mod change;
pub mod efficiency;
pub mod histogram;
pub mod load;
pub mod plan_history;
pub mod smart_scan;
pub mod spread;
pub mod time;

use crate::document::Measure;

/// Bytes.
pub const MEGABYTE: f64 = 1_048_576.0;
pub const GIGABYTE: f64 = 1024.0 * MEGABYTE;

/// A derived figure that may have no meaning for the given inputs.
#[derive(Clone, Debug, PartialEq)]
pub enum Figure {
    Value(f64),
    /// The inputs are known, but the figure would mislead. Contains the figure and the reason.
    NotMeaningful(f64, &'static str),
    /// An input is unavailable, or a divisor is zero.
    Unavailable,
}

impl Figure {
    /// Returns the figure if it is meaningful.
    pub fn value(&self) -> Measure {
        match self {
            Self::Value(value) => Some(*value),
            Self::NotMeaningful(..) | Self::Unavailable => None,
        }
    }
}

impl From<Measure> for Figure {
    fn from(measure: Measure) -> Self {
        measure.map_or(Self::Unavailable, Self::Value)
    }
}

/// `part / whole`; None if an operand is unavailable or `whole` is 0.
pub fn ratio(part: Measure, whole: Measure) -> Measure {
    match (part, whole) {
        (Some(part), Some(whole)) if whole != 0.0 => Some(part / whole),
        _ => None,
    }
}

/// `part` as per cent of `whole`.
pub fn percent(part: Measure, whole: Measure) -> Measure {
    ratio(part, whole).map(|ratio| 100.0 * ratio)
}

/// A total as a rate per second of the report's elapsed time.
pub fn per_second(total: Measure, elapsed_us: Measure) -> Measure {
    ratio(total, elapsed_us.map(|us| us / 1e6))
}

/// Adds each figure to the total in the same place.
pub fn add_each<const N: usize>(totals: [&mut Measure; N], figures: [Measure; N]) {
    for (total, figure) in totals.into_iter().zip(figures) {
        *total = sum([*total, figure]);
    }
}

/// The sum of the available figures; None if none is available.
pub fn sum(measures: impl IntoIterator<Item = Measure>) -> Measure {
    measures.into_iter().flatten().fold(None, |sum, value| Some(sum.unwrap_or(0.0) + value))
}
