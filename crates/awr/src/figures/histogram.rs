//! Figures of log2 histograms of microseconds: bucket `i` counts waits shorter than 2^i and not shorter than 2^(i-1).

use crate::document::Measure;

/// Bucket of 2^10 microseconds, which reports print as 1 ms.
pub const MILLISECOND: usize = 10;
/// Bucket of 2^20 microseconds, which reports print as 1 s.
pub const SECOND: usize = 20;

/// Number of waits in all buckets.
pub fn total(buckets: &[f64]) -> f64 {
    buckets.iter().sum()
}

/// Number of waits shorter than 2^`exponent` microseconds.
pub fn below(buckets: &[f64], exponent: usize) -> f64 {
    buckets.iter().take(exponent + 1).sum()
}

/// Share of waits shorter than 2^`exponent` microseconds, in per cent; None without waits.
pub fn percent_below(buckets: &[f64], exponent: usize) -> Measure {
    super::percent(Some(below(buckets, exponent)), Some(total(buckets)))
}

/// Upper bound of a quantile in microseconds: the bound of the bucket that contains it. `quantile` is 0 to 1.
pub fn quantile_us(buckets: &[f64], quantile: f64) -> Measure {
    let wanted = total(buckets) * quantile;
    let mut seen = 0.0;
    for (exponent, count) in buckets.iter().enumerate() {
        seen += count;
        if *count > 0.0 && seen >= wanted {
            return Some(bound_us(exponent));
        }
    }
    None
}

/// Lower estimate of the time spent in waits of at least 2^`exponent` microseconds: each wait counts with the lower bound
/// of its bucket.
pub fn time_at_least_us(buckets: &[f64], exponent: usize) -> f64 {
    buckets.iter().enumerate().skip(exponent + 1).map(|(bucket, count)| count * bound_us(bucket - 1)).sum()
}

/// Upper bound of a bucket, in microseconds.
pub fn bound_us(exponent: usize) -> f64 {
    (exponent as f64).exp2()
}

/// The bound of a bucket as reports print it: 512us, 1ms, 1s, 2m.
pub fn bound_name(exponent: usize) -> String {
    match exponent {
        0..MILLISECOND => format!("{}us", 1_u64 << exponent),
        MILLISECOND..SECOND => format!("{}ms", 1_u64 << (exponent - MILLISECOND)),
        SECOND..26 => format!("{}s", 1_u64 << (exponent - SECOND)),
        26..32 => format!("{}m", 1_u64 << (exponent - 26)),
        _ => format!("{}h", 1_u64 << (exponent.min(60) - 32)),
    }
}
