//! Builds the frames that answer a scan: batches of rows, and passed-through blocks between them in block order.
//!
//! Invariant: every frame, and every section of a batch, starts at a multiple of eight in the buffer. Rows of an empty
//! projection are only counted; the next flush writes their number, regardless of passed-through blocks.

mod aligned;
mod column;

pub use aligned::AlignedBuffer;
pub use column::{ColumnBuilder, ColumnLayout};

use crate::heap::{PageRows, Slot};
use cellar_format::units::BLOCK_BYTES;
use cellar_format::wire::{
    BATCH_HEADER_BYTES, BatchHeader, COLUMN_HEADER_BYTES, ColumnHeader, FRAME_HEADER_BYTES, FrameHeader, HeapTid,
    HeapTids, Kind, LeafLinks, Passthru, PassthruReason, ROW_ENTRY_BYTES, RowEntry, ScanMode,
};

/// A batch is flushed once it has at least this many bytes.
const BATCH_BYTES_TARGET: usize = 160 << 10;
/// The most rows that are appended between two checks of the batch's length.
const APPEND_ROWS_MAX: usize = 1024;

/// What a scan returns for the rows that qualify.
#[derive(Debug)]
pub enum Output {
    /// Only the number of rows.
    Count,
    /// Values of the projected columns.
    Columns(Vec<(Slot, ColumnLayout)>),
    /// Whole tuples.
    Rows,
}

/// Collects rows and passed-through blocks into frames.
#[derive(Debug, Default)]
pub struct ResultWriter {
    frames: AlignedBuffer,
    columns: Vec<ColumnBuilder>,
    entries: Vec<RowEntry>,
    tuples: Vec<u8>,
    rows: u32,
    first_block: u32,
    /// The format of the pending rows; None if there are none.
    mode: Option<ScanMode>,
    /// Columns of the pending batch; `columns` may be longer.
    column_count: usize,
    strides: Vec<usize>,
    /// The pending rows are only counted.
    counts: bool,
    /// Whether rows, groups or passed-through blocks were written since the start of the range.
    has_results: bool,
}

impl ResultWriter {
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts a range: [`Self::has_results`] is false until something is written.
    pub fn start_range(&mut self) {
        self.has_results = false;
    }

    /// Frees the buffers. The frames must have been sent. [`Self::has_results`] does not change: groups that a scan writes before it
    /// frees memory do not contain all rows of the range, and neither do those that it writes later.
    pub fn release_memory(&mut self) {
        debug_assert!(self.rows == 0);
        *self = Self { has_results: self.has_results, ..Self::default() };
    }

    /// Whether rows, groups or passed-through blocks were written since the start of the range.
    pub fn has_results(&self) -> bool {
        self.has_results
    }

    /// Bytes of complete frames in the buffer.
    pub fn pending_bytes(&self) -> usize {
        self.frames.len()
    }

    /// Rows that are not in a frame yet.
    pub fn pending_rows(&self) -> u32 {
        self.rows
    }

    /// The complete frames in the buffer.
    pub fn frames(&self) -> &[u8] {
        &self.frames
    }

    /// Removes all frames from the buffer without freeing the memory.
    pub fn clear_frames(&mut self) {
        self.frames.clear();
    }

    /// Returns the memory of the frames and of the pending batch in bytes.
    pub fn memory_bytes(&self) -> usize {
        let columns: usize = self.columns.iter().map(ColumnBuilder::memory_bytes).sum();
        let rows = self.tuples.capacity() + self.entries.capacity() * size_of::<RowEntry>();
        self.frames.capacity() + columns + rows
    }

    /// Removes and returns the buffer with all complete frames.
    pub fn take_frames(&mut self) -> AlignedBuffer {
        std::mem::take(&mut self.frames)
    }

    /// Writes the pending rows as a frame.
    pub fn flush(&mut self) {
        if self.rows == 0 {
            return;
        }
        match self.mode {
            Some(ScanMode::Rows) => self.flush_rows(),
            _ => self.flush_columns(),
        }
        self.rows = 0;
        self.mode = None;
    }

    /// Appends a passed-through block, which PostgreSQL reads itself.
    pub fn passthru(&mut self, block: u32, reason: PassthruReason) {
        self.has_results = true;
        if !self.counts {
            self.flush();
        }
        let mut frame = Vec::with_capacity(FRAME_HEADER_BYTES + 8);
        FrameHeader::frame(&mut frame, Kind::Passthru, |out| Passthru { block, reason }.encode(out));
        self.frames.extend_from_slice(&frame);
    }

    /// Notes that rows of the range exist that are neither in a group nor among the results written.
    pub fn set_incomplete(&mut self) {
        self.has_results = true;
    }

    /// Appends the right links of the blocks of an index from `first_block` on.
    pub(crate) fn leaf_links(&mut self, first_block: u32, links: Vec<u32>) {
        let mut frame = Vec::with_capacity(FRAME_HEADER_BYTES + 16 + 4 * links.len());
        FrameHeader::frame(&mut frame, Kind::LeafLinks, |out| LeafLinks { first_block, links }.encode(out));
        self.frames.extend_from_slice(&frame);
    }

    /// Appends heap rows that the backend must check.
    pub(crate) fn heap_tids(&mut self, tids: &[HeapTid]) {
        self.has_results = true;
        let mut frame = Vec::with_capacity(FRAME_HEADER_BYTES + 8 * tids.len());
        FrameHeader::frame(&mut frame, Kind::HeapTids, |out| HeapTids { tids: tids.to_vec() }.encode(out));
        self.frames.extend_from_slice(&frame);
    }

    /// Appends `rows` rows of an empty projection.
    pub(crate) fn count(&mut self, block: u32, rows: u64) {
        self.counts = true;
        self.has_results |= rows > 0;
        let mut left = rows;
        while left > 0 {
            if self.rows == 0 {
                self.first_block = block;
                self.mode = Some(ScanMode::Columns);
                self.column_count = 0;
            }
            let now = left.min((u32::MAX - self.rows) as u64);
            self.rows += now as u32;
            left -= now;
            if self.rows == u32::MAX {
                self.flush();
            }
        }
    }

    /// Appends the selected rows, which ascend and were walked over the projected columns.
    pub(crate) fn append(
        &mut self,
        output: &Output,
        pages: &[u8],
        first_block: u32,
        rows: &PageRows,
        selected: &[u16],
    ) {
        for selected in selected.chunks(APPEND_ROWS_MAX) {
            let block = first_block.wrapping_add(rows.page(selected[0]) as u32);
            match output {
                Output::Count => {
                    self.count(block, selected.len() as u64);
                    continue;
                }
                Output::Columns(columns) => {
                    self.begin(block, ScanMode::Columns);
                    self.columns.resize_with(columns.len().max(self.columns.len()), ColumnBuilder::default);
                    self.column_count = columns.len();
                    self.strides.clear();
                    self.strides.extend(columns.iter().map(|(_, layout)| layout.stride()));
                    for (builder, (slot, layout)) in self.columns.iter_mut().zip(columns) {
                        let locations = rows.locations(*slot);
                        let locations = selected.iter().map(|row| locations[*row as usize]);
                        builder.append(layout, pages, locations, self.rows as usize);
                    }
                }
                Output::Rows => {
                    self.begin(block, ScanMode::Rows);
                    for row in selected {
                        let row = rows.row(*row);
                        let Some(tuple) = pages.get(row.tuple as usize..row.tuple as usize + row.bytes as usize) else {
                            continue;
                        };
                        self.entries.push(RowEntry {
                            offset: self.tuples.len() as u32,
                            bytes: row.bytes as u32,
                            block: first_block.wrapping_add(row.page as u32),
                            line_pointer: row.line,
                        });
                        self.tuples.extend_from_slice(tuple);
                        self.tuples.resize(self.tuples.len().next_multiple_of(8), 0);
                    }
                }
            }
            self.rows += selected.len() as u32;
            if self.batch_bytes() >= BATCH_BYTES_TARGET {
                self.flush();
            }
        }
    }

    fn begin(&mut self, block: u32, mode: ScanMode) {
        self.counts = false;
        self.has_results = true;
        if self.rows == 0 {
            self.first_block = block;
            self.mode = Some(mode);
            self.columns.iter_mut().for_each(ColumnBuilder::clear);
            self.entries.clear();
            self.tuples.clear();
        }
    }

    fn batch_bytes(&self) -> usize {
        self.columns.iter().take(self.column_count).map(ColumnBuilder::bytes).sum::<usize>()
            + self.tuples.len()
            + self.entries.len() * ROW_ENTRY_BYTES
    }

    /// Appends groups as a batch of mode `mode`; `strides` as in [`ColumnLayout::stride`].
    pub(crate) fn groups(&mut self, mode: ScanMode, columns: &[ColumnBuilder], strides: &[usize], rows: u32) {
        self.flush();
        self.has_results = true;
        let header = BatchHeader { rows, first_block: 0, columns: columns.len() as u16, mode };
        put_columns(&mut self.frames, header, columns, strides);
    }

    fn flush_columns(&mut self) {
        let columns = &self.columns[..self.column_count.min(self.columns.len())];
        let header = BatchHeader {
            rows: self.rows,
            first_block: self.first_block,
            columns: columns.len() as u16,
            mode: ScanMode::Columns,
        };
        put_columns(&mut self.frames, header, columns, &self.strides);
        self.columns.iter_mut().for_each(ColumnBuilder::clear);
    }

    fn flush_rows(&mut self) {
        let start = BATCH_HEADER_BYTES + self.entries.len() * ROW_ENTRY_BYTES;
        let header = BatchHeader { rows: self.rows, first_block: self.first_block, columns: 0, mode: ScanMode::Rows };
        let payload = begin_frame(&mut self.frames, start + self.tuples.len());
        payload[..BATCH_HEADER_BYTES].copy_from_slice(&header.encode());
        for (entry, out) in self.entries.iter().zip(payload[BATCH_HEADER_BYTES..].chunks_exact_mut(ROW_ENTRY_BYTES)) {
            out.copy_from_slice(&RowEntry { offset: entry.offset + start as u32, ..*entry }.encode());
        }
        payload[start..].copy_from_slice(&self.tuples);
        self.entries.clear();
        self.tuples.clear();
    }
}

/// Appends a batch of columns to `frames`.
fn put_columns(frames: &mut AlignedBuffer, header: BatchHeader, columns: &[ColumnBuilder], strides: &[usize]) {
    let mut headers = Vec::with_capacity(columns.len());
    let mut end = (BATCH_HEADER_BYTES + columns.len() * COLUMN_HEADER_BYTES).next_multiple_of(8);
    let mut allocate = |bytes: usize| {
        let at = end;
        end = (end + bytes).next_multiple_of(8);
        at as u32
    };
    for (column, stride) in columns.iter().zip(strides) {
        headers.push(ColumnHeader {
            nulls_offset: if column.nulls.is_empty() { 0 } else { allocate(column.nulls.len()) },
            values_offset: allocate(column.values.len()),
            data_offset: if *stride == 0 { allocate(column.data.len()) } else { 0 },
            data_bytes: column.data.len() as u32,
            stride: *stride as u32,
        });
    }
    let payload = begin_frame(frames, end);
    payload[..BATCH_HEADER_BYTES].copy_from_slice(&header.encode());
    let mut at = BATCH_HEADER_BYTES;
    for (column, header) in columns.iter().zip(&headers) {
        payload[at..at + COLUMN_HEADER_BYTES].copy_from_slice(&header.encode());
        at += COLUMN_HEADER_BYTES;
        let sections = [
            (header.nulls_offset, &column.nulls),
            (header.values_offset, &column.values),
            (header.data_offset, &column.data),
        ];
        for (offset, section) in sections {
            put_section(payload, offset as usize, section);
        }
    }
}

/// Copies a section to `offset` and zeroes the padding after it. An empty section is not written.
fn put_section(payload: &mut [u8], offset: usize, section: &[u8]) {
    if !section.is_empty() {
        let end = offset + section.len();
        payload[offset..end].copy_from_slice(section);
        payload[end..end.next_multiple_of(8)].fill(0);
    }
}

/// Appends a batch frame with `bytes` bytes of payload and returns the payload, every byte of which must be written.
fn begin_frame(frames: &mut AlignedBuffer, bytes: usize) -> &mut [u8] {
    let header = FrameHeader { kind: Kind::Batch, payload_bytes: bytes as u32 };
    frames.extend_from_slice(&header.encode());
    frames.grow(bytes)
}

const _: () = assert!(BATCH_BYTES_TARGET > BLOCK_BYTES && FRAME_HEADER_BYTES.is_multiple_of(8));

#[cfg(test)]
mod tests {
    use super::{PassthruReason, ResultWriter};

    #[test]
    fn a_writer_that_frees_its_buffers_still_has_results() {
        let mut writer = ResultWriter::new();
        writer.release_memory();
        assert!(!writer.has_results());
        writer.passthru(0, PassthruReason::Visibility);
        writer.release_memory();
        assert!(writer.has_results(), "a range is not complete because its first frames were sent");
        writer.start_range();
        assert!(!writer.has_results());
    }
}
