//! Prefetches the next pages into the processor's cache while the current pages are decoded.
//!
//! A heap scan is bound by memory latency: the hardware prefetcher does not predict the jump from line pointers to
//! tuples. Prefetching a cache line at a time, spread over the decoding loops, overlaps memory access with decoding.

const LINE_BYTES: usize = 64;

/// Bytes that are not prefetched yet.
#[derive(Clone, Copy)]
pub struct Prefetch<'a> {
    bytes: &'a [u8],
}

impl<'a> Prefetch<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// Prefetches the next `lines` cache lines, or as many as are left.
    #[inline]
    pub fn steps(&mut self, lines: usize) {
        let (now, rest) = self.bytes.split_at(self.bytes.len().min(lines * LINE_BYTES));
        now.chunks(LINE_BYTES).for_each(prefetch);
        self.bytes = rest;
    }

    /// Prefetches the next cache line, if one is left.
    #[inline(always)]
    pub fn step(&mut self) {
        if let Some((line, rest)) = self.bytes.split_at_checked(LINE_BYTES) {
            prefetch(line);
            self.bytes = rest;
        }
    }
}

#[inline(always)]
fn prefetch(line: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        // SAFETY: a prefetch reads nothing architecturally and never faults; SSE is part of x86-64.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(line.as_ptr().cast()) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}
