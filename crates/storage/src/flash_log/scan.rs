//! Reading the ring after a crash: which records a start must apply.

use super::format::{BLOCK, RecordHeader, Writes};
use crate::disk::DiskFile;
use crate::flash::Generation;
use std::collections::BTreeMap;
use std::io;

/// Bytes that are read at once.
const CHUNK: usize = 1 << 20;

/// Writes that a start applies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub ino: u64,
    pub writes: Writes,
}

/// What the ring has of a generation.
#[derive(Debug, Default)]
pub struct Scanned {
    /// In their order, without retired ones and those that were not durable.
    pub records: Vec<Record>,
    /// Records that were durable, and that are missing or damaged: the inode and the writes if the header is valid.
    pub damaged: Vec<(u64, Option<RecordHeader>)>,
}

/// Reads the ring. `retired` is what the cell disks say.
pub fn scan(ring: &dyn DiskFile, ring_bytes: u64, generation: Generation, retired: u64) -> io::Result<Scanned> {
    let mut headers: BTreeMap<u64, (u64, RecordHeader)> = BTreeMap::new();
    let mut buffer = crate::disk::AlignedBytes::new(CHUNK);
    let mut at = 0;
    while at < ring_bytes {
        let length = (ring_bytes - at).min(CHUNK as u64) as usize;
        let count = ring.read_at(&mut buffer[..length], at)?;
        for (number, block) in buffer[..count].chunks_exact(BLOCK).enumerate() {
            if let Ok(header) = RecordHeader::decode(block)
                && header.generation == generation
            {
                headers.insert(header.sequence, (at + (number * BLOCK) as u64, header));
            }
        }
        if count < length {
            break;
        }
        at += length as u64;
    }
    let all = || headers.values().map(|(_, header)| header);
    let retired = all().map(|header| header.retired).max().unwrap_or(0).max(retired);
    let durable = all().map(|header| header.durable).max().unwrap_or(0);
    let mut scanned = Scanned::default();
    let last = headers.last_key_value().map_or(0, |(sequence, _)| *sequence).max(durable);
    for sequence in retired + 1..=last {
        let found = headers.remove(&sequence);
        let writes = match &found {
            Some((place, header)) => writes_of(ring, *place, header)?,
            None => None,
        };
        match (found, writes) {
            (Some((_, header)), Some(writes)) if !writes.pieces.is_empty() => {
                scanned.records.push(Record { ino: header.ino, writes });
            }
            (Some(_), Some(_)) => {}
            (found, None) if sequence <= durable => {
                scanned.damaged.push((sequence, found.map(|(_, header)| header)));
            }
            // The loss of power interrupted the write of this record and of those after it.
            (_, None) => break,
            (None, Some(_)) => unreachable!("writes have a header"),
        }
    }
    Ok(scanned)
}

/// Returns the writes of a record; None if their bytes are not those that were written.
fn writes_of(ring: &dyn DiskFile, place: u64, header: &RecordHeader) -> io::Result<Option<Writes>> {
    let mut data = vec![0; header.data_bytes()];
    let count = ring.read_at(&mut data, place + BLOCK as u64)?;
    let is_whole = count == data.len() && header.is_data(&data);
    Ok(is_whole.then(|| Writes { pieces: header.pieces.clone(), data }))
}
