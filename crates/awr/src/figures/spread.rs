//! Distribution of a figure over instances, as global AWR reports print it.

use crate::document::Measure;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    pub count: usize,
    pub sum: f64,
    pub average: f64,
    pub minimum: f64,
    pub maximum: f64,
    /// Standard deviation of the sample (divisor n - 1), as Oracle prints it; None for one value.
    pub standard_deviation: Measure,
}

impl Spread {
    /// Returns the distribution of the available values, or None if no value is available.
    pub fn of(values: impl IntoIterator<Item = Measure>) -> Option<Self> {
        let values: Vec<f64> = values.into_iter().flatten().collect();
        if values.is_empty() {
            return None;
        }
        let count = values.len();
        let sum: f64 = values.iter().sum();
        let average = sum / count as f64;
        let squares: f64 = values.iter().map(|value| (value - average).powi(2)).sum();
        Some(Self {
            count,
            sum,
            average,
            minimum: values.iter().copied().fold(f64::INFINITY, f64::min),
            maximum: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            standard_deviation: (count > 1).then(|| (squares / (count - 1) as f64).sqrt()),
        })
    }
}
