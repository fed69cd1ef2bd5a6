//! Counters of one kind of operation: number, bytes, and durations with a histogram.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Number of latency buckets: bucket `i` counts operations shorter than 2^i microseconds and not shorter than half of
/// that, the last one all longer operations.
pub const LATENCY_BUCKETS: usize = 27;

/// Counters that threads increase without a lock. They never decrease.
#[derive(Debug, Default)]
pub struct OperationCounters {
    operations: AtomicU64,
    bytes: AtomicU64,
    nanoseconds: AtomicU64,
    histogram: [AtomicU64; LATENCY_BUCKETS],
}

/// The values of the counters at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperationCounts {
    pub operations: u64,
    pub bytes: u64,
    pub nanoseconds: u64,
    pub histogram: [u64; LATENCY_BUCKETS],
}

impl OperationCounters {
    pub fn count(&self, bytes: usize, took: Duration) {
        self.operations.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.nanoseconds.fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
        self.histogram[bucket(took)].fetch_add(1, Ordering::Relaxed);
    }

    pub fn read(&self) -> OperationCounts {
        OperationCounts {
            operations: self.operations.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            nanoseconds: self.nanoseconds.load(Ordering::Relaxed),
            histogram: std::array::from_fn(|bucket| self.histogram[bucket].load(Ordering::Relaxed)),
        }
    }
}

/// Returns the histogram bucket of a latency.
fn bucket(took: Duration) -> usize {
    let microseconds = took.as_micros() as u64;
    ((u64::BITS - microseconds.leading_zeros()) as usize).min(LATENCY_BUCKETS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histogram_buckets_are_powers_of_two() {
        let cases =
            [(0, 0), (1, 1), (2, 2), (3, 2), (4, 3), (1023, 10), (1024, 11), (u64::MAX >> 20, LATENCY_BUCKETS - 1)];
        for (microseconds, expected) in cases {
            assert_eq!(bucket(Duration::from_micros(microseconds)), expected, "{microseconds}");
        }
    }
}
