//! Reads and writes of a file on a device, in whole blocks.

use super::catalog::{Entry, Segment};
use super::core::{Core, OpenFile};
use super::layout::BLOCK;
use super::record::Record;
use crate::disk::{DiskFile, no_wait, with_aligned};
use std::io;
use std::ops::Range;
use std::sync::Arc;

#[derive(Debug)]
pub struct DeviceFile(pub Arc<OpenFile>);

/// Whole blocks that a byte range touches.
fn blocks(range: &Range<u64>) -> Range<u64> {
    range.start / BLOCK..range.end.div_ceil(BLOCK)
}

fn end_of(offset: u64, length: u64) -> io::Result<u64> {
    let end = offset.checked_add(length).filter(|end| *end <= i64::MAX as u64);
    end.ok_or_else(|| io::Error::from_raw_os_error(libc::EFBIG))
}

impl DeviceFile {
    fn core(&self) -> &Core {
        &self.0.core
    }

    fn with_entry<T>(&self, read: impl FnOnce(&Entry, u64) -> T) -> T {
        let state = self.core().state();
        read(&state.catalog.files[&self.0.id], state.catalog.session)
    }

    /// Reads whole blocks; holes and reserved blocks are zeros. The caller holds `io`.
    fn read_blocks(&self, segments: &[Segment], first: u64, buffer: &mut [u8]) -> io::Result<()> {
        for Segment { logical, count, extent } in segments {
            let start = ((logical - first) * BLOCK) as usize;
            let part = &mut buffer[start..start + (count * BLOCK) as usize];
            match extent {
                Some(extent) if extent.written => self.core().medium.read(part, extent.physical * BLOCK)?,
                _ => part.fill(0),
            }
        }
        Ok(())
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let _shared = self.0.io.read();
        let (length, segments) = self.with_entry(|entry, _| {
            let end = entry.length.min(offset.saturating_add(buffer.len() as u64)).max(offset);
            (entry.length, entry.segments(blocks(&(offset..end))))
        });
        let end = length.min(offset.saturating_add(buffer.len() as u64));
        if end <= offset {
            return Ok(0);
        }
        if no_wait::is_on() && segments.iter().any(|segment| segment.extent.is_some_and(|extent| extent.written)) {
            return Err(no_wait::would_wait());
        }
        let range = blocks(&(offset..end));
        let (bytes, whole) = ((end - offset) as usize, ((range.end - range.start) * BLOCK) as usize);
        if offset.is_multiple_of(BLOCK) && whole <= buffer.len() {
            self.read_blocks(&segments, range.start, &mut buffer[..whole])?;
            buffer[bytes..whole].fill(0);
        } else {
            with_aligned(whole, |aligned| {
                self.read_blocks(&segments, range.start, aligned)?;
                let start = (offset - range.start * BLOCK) as usize;
                buffer[..bytes].copy_from_slice(&aligned[start..start + bytes]);
                io::Result::Ok(())
            })?;
        }
        Ok(bytes)
    }

    /// Writes whole blocks in place if all of them contain data; returns false otherwise.
    fn overwrite(&self, data: &[u8], offset: u64) -> io::Result<bool> {
        let end = offset + data.len() as u64;
        if !offset.is_multiple_of(BLOCK) || !end.is_multiple_of(BLOCK) {
            return Ok(false);
        }
        let _shared = self.0.io.read();
        let (segments, is_covered) = self.with_entry(|entry, _| {
            let segments = entry.segments(blocks(&(offset..end)));
            let is_covered =
                end <= entry.length && segments.iter().all(|s| s.extent.is_some_and(|extent| extent.written));
            (segments, is_covered)
        });
        if is_covered {
            self.touch()?;
            self.write_blocks(&segments, offset / BLOCK, data)?;
        }
        Ok(is_covered)
    }

    fn write_blocks(&self, segments: &[Segment], first: u64, data: &[u8]) -> io::Result<()> {
        for Segment { logical, count, extent } in segments {
            let start = ((logical - first) * BLOCK) as usize;
            let physical = extent.expect("the block has a place").physical;
            self.core().medium.write(&data[start..start + (count * BLOCK) as usize], physical * BLOCK)?;
        }
        Ok(())
    }

    /// Records that the present session changes the file. A change in place would otherwise leave no trace in the metadata.
    fn touch(&self) -> io::Result<()> {
        let is_first = self.with_entry(|entry, session| entry.changed_in != session);
        let is_writing = self.core().is_writing();
        match is_first || !is_writing {
            true => self.core().change(&[Record::Touch { id: self.0.id }]),
            false => Ok(()),
        }
    }

    /// Zeroes a byte range inside one block, if the block contains data. The caller holds `io` exclusively.
    fn zero_part(&self, range: Range<u64>) -> io::Result<()> {
        let first = range.start / BLOCK;
        let segment = self.with_entry(|entry, _| entry.segments(first..first + 1));
        if range.is_empty() || !segment.iter().any(|segment| segment.extent.is_some_and(|extent| extent.written)) {
            return Ok(());
        }
        self.touch()?;
        with_aligned(BLOCK as usize, |block| {
            self.read_blocks(&segment, first, block)?;
            block[(range.start - first * BLOCK) as usize..(range.end - first * BLOCK) as usize].fill(0);
            self.write_blocks(&segment, first, block)
        })
    }

    /// Zeroes the bytes behind the end of the file in its last block before the file grows: they may be left of a longer
    /// file. A loss of power leaves the file as it was, because the growth is confirmed after the zeros are durable.
    fn clear_tail(&self, length: u64) -> io::Result<()> {
        self.zero_part(length..length.next_multiple_of(BLOCK))
    }

    /// Gives places to the holes of a range. Returns the segments without holes, and the blocks that were taken.
    fn fill_holes(&self, range: Range<u64>) -> io::Result<(Vec<Segment>, Vec<Range<u64>>)> {
        let (segments, hint) = self.with_entry(|entry, _| {
            let before = entry.extents.range(..range.start).next_back();
            let hint = before.map(|(_, extent)| extent.physical + extent.count);
            (entry.segments(range), hint)
        });
        let (mut placed, mut taken, mut hint) = (Vec::new(), Vec::new(), hint);
        for segment in segments {
            if let Some(extent) = segment.extent {
                hint = Some(extent.physical + extent.count);
                placed.push(segment);
                continue;
            }
            let parts = match self.core().allocate(segment.count, hint) {
                Ok(parts) => parts,
                Err(error) => {
                    self.core().give_back(taken);
                    return Err(error);
                }
            };
            let mut logical = segment.logical;
            for part in parts {
                let count = part.end - part.start;
                let extent = super::catalog::Extent { physical: part.start, count, written: false };
                placed.push(Segment { logical, count, extent: Some(extent) });
                logical += count;
                hint = Some(part.end);
                taken.push(part);
            }
        }
        Ok((placed, taken))
    }

    fn write_exclusively(&self, data: &[u8], offset: u64) -> io::Result<()> {
        let _exclusive = self.0.io.write();
        let id = self.0.id;
        let end = end_of(offset, data.len() as u64)?;
        let length = self.with_entry(|entry, _| entry.length);
        let range = blocks(&(offset..end));
        if end > length && length / BLOCK < range.start {
            self.clear_tail(length)?;
        }
        let (segments, taken) = self.fill_holes(range.clone())?;
        let written = (|| {
            self.touch()?;
            let start = (offset - range.start * BLOCK) as usize;
            with_aligned(((range.end - range.start) * BLOCK) as usize, |buffer| {
                let last = buffer.len() - BLOCK as usize;
                for (block, at) in [(range.start, 0), (range.end - 1, last)] {
                    let is_partial = block * BLOCK < offset || (block + 1) * BLOCK > end;
                    if is_partial && (at == 0 || last > 0) {
                        let known = self.with_entry(|entry, _| entry.segments(block..block + 1));
                        let part = &mut buffer[at..at + BLOCK as usize];
                        self.read_blocks(&known, block, part)?;
                        let valid = length.saturating_sub(block * BLOCK).min(BLOCK) as usize;
                        part[valid..].fill(0);
                    }
                }
                buffer[start..start + data.len()].copy_from_slice(data);
                self.write_blocks(&segments, range.start, buffer)
            })?;
            let mut records: Vec<Record> = segments
                .iter()
                .filter_map(|Segment { logical, count, extent }| {
                    let extent = extent.filter(|extent| !extent.written)?;
                    Some(Record::Map { id, logical: *logical, physical: extent.physical, count: *count })
                })
                .collect();
            if end > length {
                records.push(Record::Grow { id, length: end });
            }
            if records.is_empty() { Ok(()) } else { self.core().change(&records) }
        })();
        if written.is_err() {
            self.core().give_back(taken);
        }
        written
    }
}

impl DiskFile for DeviceFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.with_entry(|entry, _| entry.length))
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read(buffer, offset)
    }

    fn read_direct(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read(buffer, offset)
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        end_of(offset, data.len() as u64)?;
        if data.is_empty() || self.overwrite(data, offset)? {
            return Ok(());
        }
        self.write_exclusively(data, offset)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        end_of(length, 0)?;
        let _exclusive = self.0.io.write();
        let (id, old) = (self.0.id, self.with_entry(|entry, _| entry.length));
        if length > old {
            self.clear_tail(old)?;
            return self.core().change(&[Record::Grow { id, length }]);
        }
        // The same length again still releases blocks that were reserved beyond the end.
        self.core().change(&[Record::Shrink { id, length }])
    }

    fn allocate(&self, offset: u64, length: u64, keep_size: bool) -> io::Result<()> {
        let end = end_of(offset, length)?;
        let _exclusive = self.0.io.write();
        let (id, old) = (self.0.id, self.with_entry(|entry, _| entry.length));
        let grows = !keep_size && end > old;
        if grows {
            self.clear_tail(old)?;
        }
        let (segments, taken) = self.fill_holes(blocks(&(offset..end)))?;
        let is_taken = |physical: u64| taken.iter().any(|range| range.contains(&physical));
        let mut records: Vec<Record> = segments
            .iter()
            .filter_map(|Segment { logical, count, extent }| {
                let extent = extent.filter(|extent| is_taken(extent.physical))?;
                Some(Record::Reserve { id, logical: *logical, physical: extent.physical, count: *count })
            })
            .collect();
        if grows {
            records.push(Record::Grow { id, length: end });
        }
        if records.is_empty() {
            return Ok(());
        }
        let changed = self.core().change(&records);
        if changed.is_err() {
            self.core().give_back(taken);
        }
        changed
    }

    fn punch(&self, offset: u64, length: u64) -> io::Result<()> {
        let end = end_of(offset, length)?;
        let _exclusive = self.0.io.write();
        let file_length = self.with_entry(|entry, _| entry.length);
        let first = offset.div_ceil(BLOCK);
        // The block with the end of the file is punched whole if the range covers its bytes.
        let last = if end >= file_length { (end / BLOCK).max(file_length.div_ceil(BLOCK)) } else { end / BLOCK };
        if offset < first * BLOCK {
            self.zero_part(offset..end.min(first * BLOCK))?;
        }
        if last >= first && last * BLOCK < end.min(file_length) {
            self.zero_part(last * BLOCK..end)?;
        }
        match last > first {
            true => self.core().change(&[Record::Unmap { id: self.0.id, logical: first, count: last - first }]),
            false => Ok(()),
        }
    }

    fn is_hole(&self, offset: u64, length: u64) -> io::Result<bool> {
        let range = blocks(&(offset..end_of(offset, length)?));
        Ok(self.with_entry(|entry, _| entry.segments(range).iter().all(|segment| segment.extent.is_none())))
    }

    fn sync(&self) -> io::Result<()> {
        self.core().sync()
    }
}
