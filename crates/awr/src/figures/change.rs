//! Comparisons of two measurements.

use super::ratio;
use crate::document::Measure;

/// Change from one measurement to another in per cent; 67 means that `to` is 67 % more than `from`.
pub fn percent_change(from: Measure, to: Measure) -> Measure {
    ratio(to, from).map(|ratio| 100.0 * (ratio - 1.0))
}

/// Scalability in per cent: a rate on `times` as much hardware, compared with `times` the rate of the base. 100 is linear.
pub fn scalability(base: Measure, scaled: Measure, times: f64) -> Measure {
    ratio(scaled, base).map(|ratio| 100.0 * ratio / times)
}
