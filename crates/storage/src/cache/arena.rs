//! The cache's memory: one mapping on huge pages, cut into frames of one region each.
//!
//! Invariants: a frame's bytes are reached only through [`Arena::frame`], whose callers hold that frame's lock in the
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
    frames: usize,
}

// SAFETY: the arena is plain memory; who may touch which frame is decided by the frames' locks.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    pub fn new(frames: usize) -> io::Result<Self> {
        let mapping_bytes = frames * REGION_BYTES + HUGE_PAGE;
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
        // SAFETY: the mapping is a huge page longer than the frames, so the aligned start lies inside it.
        let first = unsafe { mapping.add(offset) };
        // SAFETY: the range lies inside the mapping. Advice may be refused; then pages are small, nothing else.
        unsafe { libc::madvise(first.as_ptr().cast(), frames * REGION_BYTES, libc::MADV_HUGEPAGE) };
        Ok(Self { mapping, mapping_bytes, first, frames })
    }

    pub fn frames(&self) -> usize {
        self.frames
    }

    /// Has the kernel back these frames with memory now, so that no load waits for zeroed pages. Content stays; a
    /// refusal only means that the memory comes at first use.
    pub fn populate(&self, frames: std::ops::Range<usize>) {
        let frames = frames.start.min(self.frames)..frames.end.min(self.frames);
        // SAFETY: the range lies inside the mapping.
        unsafe {
            let start = self.first.add(frames.start * REGION_BYTES);
            libc::madvise(start.as_ptr().cast(), frames.len() * REGION_BYTES, libc::MADV_POPULATE_WRITE);
        }
    }

    /// The address of a frame's [`REGION_BYTES`] bytes.
    pub fn frame(&self, index: usize) -> NonNull<u8> {
        assert!(index < self.frames);
        // SAFETY: inside the mapping by the assertion.
        unsafe { self.first.add(index * REGION_BYTES) }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: exactly what was mapped; no frame is borrowed, as borrows hold the arena.
        unsafe { libc::munmap(self.mapping.as_ptr().cast(), self.mapping_bytes) };
    }
}
