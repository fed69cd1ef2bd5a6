//! Decodes frames: batches as rows, and passed-through blocks.

use cellar_format::wire::{
    BATCH_HEADER_BYTES, BatchHeader, COLUMN_HEADER_BYTES, ColumnHeader, FRAME_HEADER_BYTES, FrameHeader, HeapTid,
    HeapTids, Kind, LeafLinks, Passthru, PassthruReason, ROW_ENTRY_BYTES, RowEntry, ScanMode,
};

/// A value of a column batch: the whole datum, or None for NULL.
pub type Datum = Option<Vec<u8>>;

/// The decoded frames of a scan.
#[derive(Debug, Default, PartialEq)]
pub struct Answer {
    /// Column batches, row by row.
    pub rows: Vec<Vec<Datum>>,
    /// Row batches: block, line pointer, tuple.
    pub tuples: Vec<(u32, u16, Vec<u8>)>,
    /// Groups, row by row.
    pub groups: Vec<Vec<Datum>>,
    /// Rows of all batches except groups.
    pub counted: u64,
    pub passthru: Vec<(u32, PassthruReason)>,
    /// The counted pages of an index, and their right links.
    pub links: Vec<(u32, u32)>,
    pub tids: Vec<HeapTid>,
}

pub fn varlena_bytes(datum: &[u8]) -> usize {
    match datum[0] {
        1 => 18,
        first if first & 1 == 1 => (first >> 1) as usize,
        _ => (u32::from_le_bytes(datum[..4].try_into().unwrap()) >> 2) as usize,
    }
}

/// Decodes frames. `widths` are the bytes of each projected column, None for varlena.
pub fn read(frames: &[u8], widths: &[Option<usize>]) -> Answer {
    read_with_groups(frames, widths, &[])
}

/// Decodes frames as [`read`] does, with groups; `group_widths` are the widths of the columns of groups.
pub fn read_with_groups(mut frames: &[u8], widths: &[Option<usize>], group_widths: &[Option<usize>]) -> Answer {
    let mut answer = Answer::default();
    while !frames.is_empty() {
        let header = FrameHeader::decode(frames).unwrap();
        let end = FRAME_HEADER_BYTES + header.payload_bytes as usize;
        assert!(end.is_multiple_of(8), "a frame is not aligned");
        let payload = &frames[FRAME_HEADER_BYTES..end];
        frames = &frames[end..];
        match header.kind {
            Kind::Passthru => {
                let passthru = Passthru::decode(payload).unwrap();
                answer.passthru.push((passthru.block, passthru.reason));
            }
            Kind::Batch => read_batch(payload, widths, group_widths, &mut answer),
            Kind::LeafLinks => {
                let LeafLinks { first_block, links } = LeafLinks::decode(payload).unwrap();
                let links = (first_block..).zip(links);
                answer.links.extend(links.filter(|(_, link)| *link != LeafLinks::NOT_COUNTED));
            }
            Kind::HeapTids => answer.tids.extend(HeapTids::decode(payload).unwrap().tids),
            other => panic!("unexpected {other:?} frame"),
        }
    }
    answer
}

fn read_batch(payload: &[u8], widths: &[Option<usize>], group_widths: &[Option<usize>], answer: &mut Answer) {
    let header = BatchHeader::decode(payload).unwrap();
    let groups = matches!(header.mode, ScanMode::Groups | ScanMode::DistinctGroups);
    let widths = if groups { group_widths } else { widths };
    answer.counted += if groups { 0 } else { header.rows as u64 };
    if header.mode == ScanMode::Rows {
        for row in 0..header.rows as usize {
            let entry = RowEntry::decode(&payload[BATCH_HEADER_BYTES + row * ROW_ENTRY_BYTES..]).unwrap();
            assert!(entry.offset.is_multiple_of(8));
            let tuple = &payload[entry.offset as usize..(entry.offset + entry.bytes) as usize];
            answer.tuples.push((entry.block, entry.line_pointer, tuple.to_vec()));
        }
        return;
    }
    assert_eq!(header.columns as usize, widths.len());
    let mut columns: Vec<Vec<Datum>> = Vec::new();
    for (index, width) in widths.iter().enumerate() {
        let column = ColumnHeader::decode(&payload[BATCH_HEADER_BYTES + index * COLUMN_HEADER_BYTES..]).unwrap();
        for offset in [column.nulls_offset, column.values_offset, column.data_offset] {
            assert!(offset.is_multiple_of(8));
        }
        let mut values = Vec::new();
        for row in 0..header.rows as usize {
            if column.nulls_offset != 0 && payload[column.nulls_offset as usize + row] == 1 {
                values.push(None);
                continue;
            }
            let datum = match width {
                Some(bytes) => {
                    let at = column.values_offset as usize + row * column.stride as usize;
                    &payload[at..at + bytes]
                }
                None => {
                    let at = column.values_offset as usize + row * 4;
                    let offset = u32::from_le_bytes(payload[at..at + 4].try_into().unwrap());
                    assert!(offset < column.data_bytes);
                    let datum = &payload[(column.data_offset + offset) as usize..];
                    &datum[..varlena_bytes(datum)]
                }
            };
            values.push(Some(datum.to_vec()));
        }
        columns.push(values);
    }
    let rows = if groups { &mut answer.groups } else { &mut answer.rows };
    for row in 0..header.rows as usize {
        rows.push(columns.iter().map(|column| column[row].clone()).collect());
    }
}
