//! One column of a batch under construction.

use crate::heap::{MISSING, NULL, varlena};
use cellar_format::postgres::{Align, Width};
use cellar_format::wire::Missing;

/// The format of a projected column in batches; part of the plan.
#[derive(Debug)]
pub struct ColumnLayout {
    pub width: Width,
    pub align: Align,
    pub missing: Missing,
}

impl ColumnLayout {
    /// Bytes from a row's value to the next row's; 0 for varlena and cstring.
    pub fn stride(&self) -> usize {
        match self.width {
            Width::Fixed(bytes) => self.align.up(bytes as usize),
            _ => 0,
        }
    }
}

/// The sections of a column in a batch: values, NULL flags, and the data that varlenas' values point into.
#[derive(Debug, Default)]
pub struct ColumnBuilder {
    pub values: Vec<u8>,
    pub data: Vec<u8>,
    /// One byte per row, 1 if the row is NULL; empty if no row is NULL.
    pub nulls: Vec<u8>,
}

impl ColumnBuilder {
    pub fn clear(&mut self) {
        self.values.clear();
        self.data.clear();
        self.nulls.clear();
    }

    pub fn bytes(&self) -> usize {
        self.values.len() + self.data.len() + self.nulls.len()
    }

    /// Returns the allocated memory in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.values.capacity() + self.data.capacity() + self.nulls.capacity()
    }

    /// Appends the values at `locations` to the `before` rows of the column.
    pub fn append(
        &mut self,
        layout: &ColumnLayout,
        pages: &[u8],
        locations: impl ExactSizeIterator<Item = u32>,
        before: usize,
    ) {
        let start = self.values.len();
        match (layout.width, layout.stride()) {
            (Width::Fixed(4), 4) => self.append_words::<4>(layout, pages, locations, before),
            (Width::Fixed(8), 8) => self.append_words::<8>(layout, pages, locations, before),
            (Width::Fixed(bytes), stride) => {
                self.values.resize(start + locations.len() * stride, 0);
                for (index, location) in locations.enumerate() {
                    let out = start + index * stride;
                    match self.datum(layout, pages, location, bytes as usize, before + index) {
                        Some(datum) => self.values[out..out + bytes as usize].copy_from_slice(datum),
                        None => continue,
                    }
                }
            }
            (Width::Varlena | Width::Cstring, _) => {
                self.values.reserve(locations.len() * 4);
                for (index, location) in locations.enumerate() {
                    let bytes = match location {
                        NULL | MISSING => 0,
                        location => variable_bytes(layout.width, pages, location as usize),
                    };
                    let at = match self.datum(layout, pages, location, bytes, before + index) {
                        Some(datum) => push_variable(&mut self.data, layout, datum),
                        None => 0,
                    };
                    self.values.extend_from_slice(&at.to_le_bytes());
                }
            }
        }
        if !self.nulls.is_empty() {
            let rows = match layout.stride() {
                0 => self.values.len() / 4,
                stride => self.values.len() / stride,
            };
            self.nulls.resize(rows, 0);
        }
    }

    /// [`Self::append`] for the common widths, without a function call per value.
    fn append_words<const N: usize>(
        &mut self,
        layout: &ColumnLayout,
        pages: &[u8],
        locations: impl ExactSizeIterator<Item = u32>,
        before: usize,
    ) {
        let start = self.values.len();
        let rows = locations.len();
        self.values.resize(start + rows * N, 0);
        for (index, location) in locations.enumerate() {
            let out = start + index * N;
            if location > MISSING {
                let at = location as usize;
                if let Some(datum) = pages.get(at..at + N) {
                    self.values[out..out + N].copy_from_slice(datum);
                }
            } else if let Some(datum) = self.datum(layout, pages, location, N, before + index) {
                self.values[out..out + N].copy_from_slice(datum);
            }
        }
    }

    /// The bytes of a datum. None: the datum is NULL, and `row` is marked as NULL.
    #[inline]
    fn datum<'a>(
        &mut self,
        layout: &'a ColumnLayout,
        pages: &'a [u8],
        location: u32,
        bytes: usize,
        row: usize,
    ) -> Option<&'a [u8]> {
        let datum = match (location, &layout.missing) {
            (NULL, _) | (MISSING, Missing::Null) => None,
            (MISSING, Missing::Value(value)) => Some(value.as_slice()),
            (location, _) => pages.get(location as usize..location as usize + bytes),
        };
        if datum.is_none() {
            self.nulls.resize(row + 1, 0);
            self.nulls[row] = 1;
        }
        datum
    }
}

/// The length of the varlena or cstring at `at`, which a walk has checked.
#[inline]
fn variable_bytes(width: Width, pages: &[u8], at: usize) -> usize {
    match width {
        Width::Cstring => memchr::memchr(0, &pages[at..]).map_or(0, |nul| nul + 1),
        _ => varlena::datum_bytes(pages, at, pages.len()).unwrap_or(0),
    }
}

/// Appends a datum to the data section and returns its offset. A datum with a four-byte header is aligned.
#[inline]
fn push_variable(data: &mut Vec<u8>, layout: &ColumnLayout, datum: &[u8]) -> u32 {
    let long = layout.width == Width::Varlena && datum.first().is_some_and(|first| first & 1 == 0);
    if long {
        data.resize(layout.align.up(data.len()), 0);
    }
    let at = data.len() as u32;
    data.extend_from_slice(datum);
    at
}
