//! Exceptions: whole datums of the few rows whose datum the attribute's representation cannot express.

use super::super::encoding::varint::{put_varint, varint};
use super::super::encoding::{CHUNK_ROWS, Strings, get_or_try_init, zstd};
use super::super::section::{DataSection, Part, Result, corrupt};
use cellar_format::bytes::{Corrupt, Reader, Write};
use std::ops::Range;
use std::sync::OnceLock;

/// Maximum uncompressed bytes of a chunk's exceptions: they come from at most 64 MiB of pages.
const BYTES_MAX: usize = 1 << 27;

/// Whole datums of some rows of a chunk.
#[derive(Debug, Default)]
pub struct Datums {
    /// Row numbers in the chunk, ascending.
    pub rows: Vec<u32>,
    datums: Strings,
}

impl Datums {
    pub fn push(&mut self, row: usize, datum: &[u8]) {
        self.rows.push(row as u32);
        self.datums.push(datum);
    }

    /// The datums of `rows`, with rows counted from the first of `rows`.
    pub fn in_rows(&self, rows: Range<usize>) -> impl Iterator<Item = (u32, &[u8])> {
        let first = self.rows.partition_point(|row| (*row as usize) < rows.start);
        let found = self.rows.iter().enumerate().skip(first).take_while(move |(_, row)| (**row as usize) < rows.end);
        found.map(move |(index, row)| (*row - rows.start as u32, self.datums.get(index).unwrap_or_default()))
    }

    /// Appends the datums to the data section. Returns None if there are no datums.
    pub fn encode(self, data: &mut Vec<u8>) -> Option<Exceptions> {
        if self.rows.is_empty() {
            return None;
        }
        let mut raw = Vec::new();
        let mut last = 0;
        for (row, datum) in self.rows.iter().zip(self.datums.iter()) {
            put_varint(&mut raw, (row - last) as u64);
            put_varint(&mut raw, datum.len() as u64);
            last = *row;
        }
        raw.extend_from_slice(&self.datums.bytes);
        let part = Part::append(data, &zstd::compress(&raw, 3));
        let count = self.rows.len() as u32;
        Some(Exceptions { part, raw_bytes: raw.len() as u32, count, datums: OnceLock::from(self) })
    }
}

/// The directory entry of exceptions. The datums are decoded once.
#[derive(Debug)]
pub struct Exceptions {
    part: Part,
    raw_bytes: u32,
    /// At least 1.
    pub count: u32,
    datums: OnceLock<Datums>,
}

impl Exceptions {
    pub fn data_bytes(&self) -> usize {
        self.part.bytes as usize
    }

    pub fn decoded_bytes_max(&self) -> usize {
        self.raw_bytes as usize + 8 * self.count as usize
    }

    /// The part with the datums, unless it is already decoded.
    pub fn unread_part(&self) -> Option<Part> {
        self.datums.get().is_none().then_some(self.part)
    }

    /// The datums of a chunk of `rows` rows.
    pub fn datums(&self, section: DataSection<'_>, rows: u32) -> Result<&Datums> {
        get_or_try_init(&self.datums, || {
            let (at, raw_bytes) = (self.part.offset as usize, self.raw_bytes as usize);
            if self.count as usize > CHUNK_ROWS || raw_bytes > BYTES_MAX {
                return corrupt("exceptions", at, format!("{} in {raw_bytes} bytes", self.count));
            }
            let raw = zstd::decompress(&section.read(self.part, "exceptions")?, raw_bytes, "exceptions")?;
            let mut reader = Reader::new(&raw);
            let mut found = Datums::default();
            let (mut row, mut end) = (0u64, 0u64);
            for _ in 0..self.count {
                row = row.saturating_add(varint(&mut reader, "exception row")?);
                end = end.saturating_add(varint(&mut reader, "exception length")?);
                if row >= rows as u64 || end > raw.len() as u64 {
                    return corrupt("exceptions", at, format!("row {row} of {rows}, end {end} of {}", raw.len()));
                }
                found.rows.push(row as u32);
                found.datums.ends.push(end as u32);
            }
            found.datums.bytes = reader.take(end as usize, "exception datums")?.to_vec();
            reader.finish("exceptions")?;
            Ok(found)
        })
    }

    /// Appends the directory entry: the number of exceptions, and unless it is 0, their part.
    pub fn put(exceptions: Option<&Self>, out: &mut Vec<u8>) {
        out.put_u32(exceptions.map_or(0, |exceptions| exceptions.count));
        if let Some(exceptions) = exceptions {
            exceptions.part.encode(out);
            out.put_u32(exceptions.raw_bytes);
        }
    }

    pub fn get(reader: &mut Reader<'_>) -> Result<Option<Self>, Corrupt> {
        Ok(match reader.u32("exceptions")? {
            0 => None,
            count => {
                let (part, raw_bytes) = (Part::decode(reader)?, reader.u32("exception bytes")?);
                Some(Self { part, raw_bytes, count, datums: OnceLock::new() })
            }
        })
    }
}
