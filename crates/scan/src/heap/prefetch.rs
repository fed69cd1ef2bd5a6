//! Asks the processor for the pages that come next while the present ones are decoded.
//!
//! A heap scan waits for memory more than it computes: the hardware does not foresee the jump from line pointers to
//! tuples. One line at a time, spread over the decoding loops, keeps the memory busy without stalling them.

const LINE_BYTES: usize = 64;

/// Lines of `bytes` that were not asked for yet.
#[derive(Clone, Copy)]
pub struct Prefetch<'a> {
    bytes: &'a [u8],
}

impl<'a> Prefetch<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// Asks for the next lines, as far as there are any.
    #[inline]
    pub fn steps(&mut self, lines: usize) {
        let (now, rest) = self.bytes.split_at(self.bytes.len().min(lines * LINE_BYTES));
        now.chunks(LINE_BYTES).for_each(prefetch);
        self.bytes = rest;
    }

    /// Asks for the next line, if there is one left.
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
