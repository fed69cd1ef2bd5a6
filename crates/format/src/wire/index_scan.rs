//! Scans of an index: what a request says about the index, and the messages about its leaf pages.

use crate::bytes::{Corrupt, Reader, Write};
use crate::postgres::AttributeNumber;

/// Replaces the heap as the source of a scan's rows by the leaf pages of a B-tree on it. The file of the request is that
/// of the index; attributes are those of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexScan {
    /// Pages with a greater LSN are not counted.
    pub lsn: u64,
    /// The attribute numbers of the table's columns in the index, in index order.
    pub columns: Vec<AttributeNumber>,
    /// One bit for each block of the table, lowest bit first: whether all its tuples are visible to the snapshot.
    pub all_visible: Vec<u8>,
}

impl IndexScan {
    /// Whether all tuples of a block of the table are visible.
    pub fn is_all_visible(&self, block: u32) -> bool {
        self.all_visible.get(block as usize / 8).is_some_and(|bits| bits >> (block % 8) & 1 == 1)
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.lsn);
        out.put_u32(self.columns.len() as u32);
        self.columns.iter().for_each(|column| out.put_u16(*column));
        out.put_blob(&self.all_visible);
    }

    /// `attributes` is the number of the table's attributes.
    pub(super) fn decode(reader: &mut Reader<'_>, attributes: usize) -> Result<Self, Corrupt> {
        let lsn = reader.u64("LSN of an index scan")?;
        let count = reader.count(2, "index columns")?;
        let mut columns = Vec::with_capacity(count);
        for _ in 0..count {
            let number = reader.u16("index column")?;
            if number == 0 || number as usize > attributes {
                return Err(Corrupt::new("index column", reader.position(), format!("{number} of {attributes}")));
            }
            columns.push(number);
        }
        Ok(Self { lsn, columns, all_visible: reader.blob("all-visible bits")?.to_vec() })
    }
}

/// The right links of consecutive blocks of an index, for those whose entries the cell has counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeafLinks {
    pub first_block: u32,
    /// [`LeafLinks::NOT_COUNTED`], or the right link of a counted leaf page: 0 if the page is the rightmost.
    pub links: Vec<u32>,
}

impl LeafLinks {
    pub const NOT_COUNTED: u32 = u32::MAX;

    /// The length of the payload is a multiple of eight, which keeps the frames after it aligned.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u32(self.first_block);
        out.put_u32(self.links.len() as u32);
        self.links.iter().for_each(|link| out.put_u32(*link));
        if !self.links.len().is_multiple_of(2) {
            out.put_u32(0);
        }
    }

    pub fn decode(payload: &[u8]) -> Result<Self, Corrupt> {
        let mut reader = Reader::new(payload);
        let first_block = reader.u32("first block of links")?;
        let count = reader.count(4, "right links")?;
        let links: Vec<u32> = (0..count).map(|_| reader.u32("right link")).collect::<Result<_, _>>()?;
        if !links.len().is_multiple_of(2) {
            reader.take(4, "padding of right links")?;
        }
        reader.finish("right links")?;
        if first_block.checked_add(links.len() as u32).is_none() {
            return Err(Corrupt::new("first block of links", 0, first_block.to_string()));
        }
        Ok(Self { first_block, links })
    }
}

/// The location of a heap row: block and line pointer number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct HeapTid {
    pub block: u32,
    pub line_pointer: u16,
}

/// Heap rows whose visibility and conditions the backend must check. Each tid occupies eight bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeapTids {
    pub tids: Vec<HeapTid>,
}

impl HeapTids {
    pub fn encode(&self, out: &mut Vec<u8>) {
        for tid in &self.tids {
            out.put_u32(tid.block);
            out.put_u16(tid.line_pointer);
            out.put_u16(0);
        }
    }

    pub fn decode(payload: &[u8]) -> Result<Self, Corrupt> {
        let mut reader = Reader::new(payload);
        let mut tids = Vec::with_capacity(payload.len() / 8);
        while reader.position() < payload.len() {
            let tid = HeapTid { block: reader.u32("heap block")?, line_pointer: reader.u16("line pointer")? };
            reader.take(2, "padding of a heap row")?;
            if tid.line_pointer == 0 {
                return Err(Corrupt::new("line pointer", reader.position(), "0"));
            }
            tids.push(tid);
        }
        Ok(Self { tids })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_and_tids_decode_to_their_equals_and_truncated_ones_are_corrupt() {
        for links in [vec![], vec![7], vec![LeafLinks::NOT_COUNTED, 0, 3]] {
            let links = LeafLinks { first_block: 128, links };
            let mut payload = Vec::new();
            links.encode(&mut payload);
            assert!(payload.len().is_multiple_of(8));
            assert_eq!(LeafLinks::decode(&payload), Ok(links));
            for length in 0..payload.len() {
                LeafLinks::decode(&payload[..length]).unwrap_err();
            }
        }
        let tids =
            HeapTids { tids: vec![HeapTid { block: 1, line_pointer: 2 }, HeapTid { block: 9, line_pointer: 291 }] };
        let mut payload = Vec::new();
        tids.encode(&mut payload);
        assert_eq!(HeapTids::decode(&payload), Ok(tids));
        HeapTids::decode(&payload[..15]).unwrap_err();
        HeapTids::decode(&[0; 8]).unwrap_err();
    }

    #[test]
    fn bits_beyond_the_copied_blocks_are_not_set() {
        let index = IndexScan { lsn: 0, columns: vec![1], all_visible: vec![0b101] };
        assert_eq!(
            [0, 1, 2, 3, 8, u32::MAX].map(|block| index.is_all_visible(block)),
            [true, false, true, false, false, false]
        );
    }
}
