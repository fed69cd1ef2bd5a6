//! Places of pages in segments.

use std::sync::atomic::{AtomicU32, Ordering};

/// Bytes of a page, the unit of caching.
pub const PAGE: u64 = 8192;
pub const PAGE_BYTES: usize = PAGE as usize;
/// Where a page is in flash, and how often it was read there (0 to 3). The highest bit is reserved for pages that the disk
/// does not have yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Location(u32);

/// How many pages of the index are in each segment.
#[derive(Debug)]
pub struct SegmentPages(Box<[AtomicU32]>);

impl SegmentPages {
    pub fn new(segments: u32) -> Self {
        Self((0..segments).map(|_| AtomicU32::new(0)).collect())
    }

    /// Returns the number of pages in a segment. Pages change under the locks of their objects.
    pub fn get(&self, segment: u32) -> u32 {
        self.0[segment as usize].load(Ordering::Acquire)
    }

    /// Counts that a page moves from one location to another.
    pub fn moved(&self, from: Location, to: Location) {
        if !to.is_none() {
            self.0[to.segment() as usize].fetch_add(1, Ordering::AcqRel);
        }
        if !from.is_none() {
            self.0[from.segment() as usize].fetch_sub(1, Ordering::AcqRel);
        }
    }
}

const BLOCK_BITS: u32 = 12;
const SEGMENT_BITS: u32 = 17;
/// Segment numbers are below this.
pub const SEGMENTS_MAX: u32 = 1 << SEGMENT_BITS;
/// Blocks of a segment at most.
pub const SEGMENT_BLOCKS_MAX: u32 = 1 << BLOCK_BITS;
const PLACE_MASK: u32 = (1 << (BLOCK_BITS + SEGMENT_BITS)) - 1;
const USES_SHIFT: u32 = BLOCK_BITS + SEGMENT_BITS;
const USES_MAX: u32 = 3;

impl Location {
    /// No page: the first block of a segment is always a record's header.
    pub const NONE: Self = Self(0);

    pub fn new(segment: u32, block: u32) -> Self {
        assert!(segment < SEGMENTS_MAX && (1..SEGMENT_BLOCKS_MAX).contains(&block), "location {segment}:{block}");
        Self(segment << BLOCK_BITS | block)
    }

    /// Decodes a location without uses; None if no page can be there.
    pub fn decode(bits: u32) -> Option<Self> {
        (bits & !PLACE_MASK == 0 && (bits == 0 || !bits.is_multiple_of(SEGMENT_BLOCKS_MAX))).then_some(Self(bits))
    }

    /// Returns the location without uses, for the checkpoint.
    pub fn place(self) -> u32 {
        self.0 & PLACE_MASK
    }

    pub fn is_none(self) -> bool {
        self.place() == 0
    }

    pub fn segment(self) -> u32 {
        self.place() >> BLOCK_BITS
    }

    pub fn block(self) -> u32 {
        self.0 % SEGMENT_BLOCKS_MAX
    }

    pub fn uses(self) -> u32 {
        self.0 >> USES_SHIFT & USES_MAX
    }

    pub fn with_uses(self, uses: u32) -> Self {
        Self(self.place() | uses.min(USES_MAX) << USES_SHIFT)
    }
}
