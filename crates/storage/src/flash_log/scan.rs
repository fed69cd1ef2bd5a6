//! Reading the ring after a crash: which records a start must apply.

use super::format::{BLOCK, DATA_BYTES_MAX, RecordHeader, Writes};
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
    let mut unreadable: Vec<u64> = Vec::new();
    let mut at = 0;
    while at < ring_bytes {
        let length = (ring_bytes - at).min(CHUNK as u64) as usize;
        let count = match ring.read_at(&mut buffer[..length], at) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::TimedOut => return Err(error),
            Err(error) => {
                log::error!("could not read {length} bytes of the flash log at {at}: {error}");
                unreadable.extend(read_blocks(ring, &mut buffer[..length], at));
                length
            }
        };
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
    let hides_next = hides_next(&headers, &unreadable, ring_bytes);
    for sequence in retired + 1..=last {
        let found = headers.remove(&sequence);
        let mut is_unreadable = !unreadable.is_empty();
        let writes = match &found {
            Some((place, header)) => match writes_of(ring, *place, header) {
                Err(error) if error.kind() == io::ErrorKind::TimedOut => return Err(error),
                // A loss of power does not make blocks unreadable: this record may have been durable.
                writes => {
                    is_unreadable = writes.is_err();
                    writes.ok().flatten()
                }
            },
            None => None,
        };
        match (found, writes) {
            (Some((_, header)), Some(writes)) if !writes.pieces.is_empty() => {
                scanned.records.push(Record { ino: header.ino, writes });
            }
            (Some(_), Some(_)) => {}
            (found, None) if sequence <= durable || is_unreadable => {
                scanned.damaged.push((sequence, found.map(|(_, header)| header)));
            }
            // The loss of power interrupted the write of this record and of those after it.
            (_, None) => break,
            (None, Some(_)) => unreachable!("writes have a header"),
        }
    }
    if hides_next {
        scanned.damaged.push((last + 1, None));
    }
    Ok(scanned)
}

/// Reads each block alone. Returns the places of those that cannot be read, which are zeros in the buffer.
fn read_blocks(ring: &dyn DiskFile, buffer: &mut [u8], at: u64) -> Vec<u64> {
    let mut unreadable = Vec::new();
    for (number, block) in buffer.chunks_mut(BLOCK).enumerate() {
        let place = at + (number * BLOCK) as u64;
        if !ring.read_at(block, place).is_ok_and(|count| count == block.len()) {
            block.fill(0);
            unreadable.push(place);
        }
    }
    unreadable
}

/// Returns whether the header of the record after the last one may be in a block that cannot be read.
fn hides_next(headers: &BTreeMap<u64, (u64, RecordHeader)>, unreadable: &[u64], ring_bytes: u64) -> bool {
    let end =
        |(place, header): &(u64, RecordHeader)| place + (BLOCK + header.data_bytes().next_multiple_of(BLOCK)) as u64;
    let head = headers.last_key_value().map_or(0, |(_, last)| end(last));
    // The largest record, and the free space after it.
    let may_wrap = head + (DATA_BYTES_MAX + 3 * BLOCK) as u64 > ring_bytes;
    unreadable.iter().any(|place| *place == head || *place == 0 && may_wrap)
}

/// Returns the writes of a record; None if their bytes are not those that were written.
fn writes_of(ring: &dyn DiskFile, place: u64, header: &RecordHeader) -> io::Result<Option<Writes>> {
    let mut data = vec![0; header.data_bytes()];
    let count = ring.read_at(&mut data, place + BLOCK as u64)?;
    let is_whole = count == data.len() && header.is_data(&data);
    Ok(is_whole.then(|| Writes { pieces: header.pieces.clone(), data }))
}
