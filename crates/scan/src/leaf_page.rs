//! Leaf pages of B-trees (nbtree): entries, and the heap rows that they point to.
//!
//! Invariant: every entry that a [`LeafPage`] returns is inside its block. An inconsistent page is [`Malformed`]. Source:
//! `access/nbtree.h`, `access/itup.h`. Decision 0029 describes which leaf pages a scan counts.

use crate::heap::{Item, Malformed, Page, is_normal, placement, u16_at, u32_at};
use cellar_format::units::BLOCK_BYTES;
use cellar_format::wire::HeapTid;

/// The size of `BTPageOpaqueData`.
const OPAQUE_BYTES: usize = 16;
const OPAQUE: usize = BLOCK_BYTES - OPAQUE_BYTES;
const BTP_LEAF: u16 = 1 << 0;
const BTP_DELETED: u16 = 1 << 2;
const BTP_META: u16 = 1 << 3;
const BTP_HALF_DEAD: u16 = 1 << 4;
/// `MAX_BT_CYCLE_ID`: the last two bytes of a page tell B-trees from other indexes.
const CYCLE_ID_MAX: u16 = 0xff7f;
/// `btpo_next` of the rightmost page.
const NO_PAGE: u32 = 0;

const ENTRY_HEADER_BYTES: usize = 8;
/// The size of `IndexAttributeBitMapData`.
const BITMAP_BYTES: usize = 4;
const SIZE_MASK: u16 = 0x1fff;
const ALTERNATIVE_TID: u16 = 0x2000;
const HAS_NULLS: u16 = 0x8000;
/// In the offset number of an alternative TID: the entry is a posting list; the other bits are the number of its TIDs.
const IS_POSTING: u16 = 0x2000;
const POSTING_COUNT_MASK: u16 = 0x0fff;
const TID_BYTES: usize = 6;
/// `MaxTIDsPerBTreePage`: the most rows that the entries of a page point to.
const TIDS_MAX: usize = (BLOCK_BYTES - 24 - OPAQUE_BYTES) / TID_BYTES;

/// A leaf page whose header has been checked.
#[derive(Clone, Copy)]
pub struct LeafPage<'a> {
    bytes: &'a [u8],
    page: Page<'a>,
    /// The right sibling; 0 if the page is the rightmost.
    pub right: u32,
}

/// The TIDs of an entry: one TID, or the TIDs of a posting list.
#[derive(Clone, Copy)]
pub struct Tids<'a>(&'a [u8]);

impl Tids<'_> {
    pub fn iter(&self) -> impl Iterator<Item = HeapTid> {
        self.0.chunks_exact(TID_BYTES).map(|tid| HeapTid { block: block_at(tid), line_pointer: u16_at(tid, 4) })
    }
}

/// The block number of an `ItemPointerData`, which is stored as two halves, the higher first.
fn block_at(tid: &[u8]) -> u32 {
    u32::from(u16_at(tid, 0)) << 16 | u32::from(u16_at(tid, 2))
}

impl<'a> LeafPage<'a> {
    /// Checks the page. None: the page is new, deleted or about to be, or of a higher level, and has no entries.
    pub fn new(bytes: &'a [u8]) -> Result<Option<Self>, Malformed> {
        let Some(page) = Page::with_special(bytes, OPAQUE_BYTES)? else { return Ok(None) };
        let (right, level) = (u32_at(bytes, OPAQUE + 4), u32_at(bytes, OPAQUE + 8));
        let (flags, cycle_id) = (u16_at(bytes, OPAQUE + 12), u16_at(bytes, OPAQUE + 14));
        if cycle_id > CYCLE_ID_MAX {
            return Err(Malformed);
        }
        if flags & (BTP_DELETED | BTP_META | BTP_HALF_DEAD) != 0 || flags & BTP_LEAF == 0 {
            return Ok(None);
        }
        if level != 0 || right == u32::MAX {
            return Err(Malformed);
        }
        Ok(Some(Self { bytes, page, right }))
    }

    pub fn page(&self) -> &Page<'a> {
        &self.page
    }

    /// Visits every entry that is not known to be dead, in order.
    pub fn for_each_entry(&self, mut visit: impl FnMut(Item, Tids<'a>)) -> Result<(), Malformed> {
        // The first item of a page that is not the rightmost is the high key.
        let high_keys = usize::from(self.right != NO_PAGE);
        let mut rows = 0;
        for (index, pointer) in self.page.line_pointers().enumerate().skip(high_keys) {
            if is_normal(pointer) {
                let (item, tids) = self.entry(index as u16 + 1, pointer)?;
                rows += tids.0.len() / TID_BYTES;
                if rows > TIDS_MAX || tids.iter().any(|tid| tid.line_pointer == 0) {
                    return Err(Malformed);
                }
                visit(item, tids);
            }
        }
        Ok(())
    }

    fn entry(&self, line: u16, pointer: u32) -> Result<(Item, Tids<'a>), Malformed> {
        let (offset, length) = placement(pointer);
        let placed = offset >= self.page.upper() && offset.is_multiple_of(8) && offset + length <= OPAQUE;
        if !placed || length < ENTRY_HEADER_BYTES {
            return Err(Malformed);
        }
        let entry = &self.bytes[offset..offset + length];
        let info = u16_at(entry, 6);
        let size = (info & SIZE_MASK) as usize;
        let has_nulls = info & HAS_NULLS != 0;
        let data = if has_nulls { (ENTRY_HEADER_BYTES + BITMAP_BYTES).next_multiple_of(8) } else { ENTRY_HEADER_BYTES };
        if size > length || data > size {
            return Err(Malformed);
        }
        let (end, tids) = if info & ALTERNATIVE_TID == 0 {
            (size, &entry[..TID_BYTES])
        } else {
            let count = u16_at(entry, 4);
            let (start, bytes) = (block_at(entry) as usize, (count & POSTING_COUNT_MASK) as usize * TID_BYTES);
            // An alternative TID without the bit belongs to a pivot tuple, which is not an entry of a leaf page.
            if count & IS_POSTING == 0 || start < data || start > size || start + bytes > size {
                return Err(Malformed);
            }
            (start, &entry[start..start + bytes])
        };
        let item = Item {
            offset: offset as u16,
            data: data as u8,
            end: end as u16,
            bitmap: ENTRY_HEADER_BYTES as u8,
            has_nulls,
            line,
        };
        Ok((item, Tids(tids)))
    }
}
