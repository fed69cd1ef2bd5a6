//! The cache's memory: one mapping on huge pages, divided into slots of one region each.
//!
//! Invariants: a slot's bytes are accessed only through [`Arena::slot`], by callers that hold that slot's lock in the
//! matching mode; the mapping lives as long as the arena.

use cellar_format::units::REGION_BYTES;
use std::io;
use std::ptr::NonNull;

const HUGE_PAGE: usize = 2 << 20;

#[derive(Debug)]
pub struct Arena {
    mapping: NonNull<u8>,
    mapping_bytes: usize,
    first: NonNull<u8>,
    slots: usize,
}

// SAFETY: the arena is plain memory; the slots' locks serialise access to it.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    pub fn new(slots: usize) -> io::Result<Self> {
        let mapping_bytes = slots * REGION_BYTES + HUGE_PAGE;
        // SAFETY: a fresh private anonymous mapping at an address of the kernel's choice.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                mapping_bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let mapping = NonNull::new(address.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let offset = mapping.as_ptr().align_offset(HUGE_PAGE);
        // SAFETY: the mapping is a huge page longer than the slots, so the aligned start lies inside it.
        let first = unsafe { mapping.add(offset) };
        // SAFETY: the range lies inside the mapping. If the kernel refuses the advice, pages are small.
        unsafe { libc::madvise(first.as_ptr().cast(), slots * REGION_BYTES, libc::MADV_HUGEPAGE) };
        Ok(Self { mapping, mapping_bytes, first, slots })
    }

    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Makes the kernel back these slots with memory now, so that no load waits for zeroed pages. The content does not
    /// change. If the kernel refuses, each page is allocated at first use.
    pub fn populate(&self, slots: std::ops::Range<usize>) {
        let slots = slots.start.min(self.slots)..slots.end.min(self.slots);
        // SAFETY: the range lies inside the mapping.
        unsafe {
            let start = self.first.add(slots.start * REGION_BYTES);
            libc::madvise(start.as_ptr().cast(), slots.len() * REGION_BYTES, libc::MADV_POPULATE_WRITE);
        }
    }

    /// Returns the address of a slot's [`REGION_BYTES`] bytes.
    pub fn slot(&self, index: usize) -> NonNull<u8> {
        assert!(index < self.slots);
        // SAFETY: inside the mapping by the assertion.
        unsafe { self.first.add(index * REGION_BYTES) }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: this is exactly the mapped range; no slot is borrowed, because borrowers keep the arena alive.
        unsafe { libc::munmap(self.mapping.as_ptr().cast(), self.mapping_bytes) };
    }
}
