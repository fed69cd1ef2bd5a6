//! Evaluates tests on encoded values, a block at a time.
//!
//! `marks` has one byte per row of the block, 1 for rows that are still selected. Each method clears the marks of rows that do
//! not pass and leaves other marks unchanged.

use super::super::encoding::{BLOCK_ROWS, SymbolSearch};
use super::super::section::Result;
use super::{BlockRef, ColumnReader, numbers_or_codes};
use crate::bounds::IntRange;
use crate::predicate::ColumnTest;

impl ColumnReader {
    /// Clears the marks of rows that are not NULL if `wanted`, otherwise of rows that are NULL.
    pub fn retain_nulls(&mut self, at: BlockRef<'_>, attribute: usize, wanted: bool, marks: &mut [u8]) -> Result<()> {
        self.switch_to(at.chunk.unit);
        let (section, entry) = (at.chunk.unit.section(at.chunk.source), at.chunk.attribute(attribute)?);
        let range = IntRange { lo: 0, hi: 0, inside: wanted };
        entry.validity().retain(section, at.block, &range, &mut self.scratch, marks)
    }

    /// Clears the marks of rows whose number, or code if the column has a dictionary, does not pass.
    pub fn retain(&mut self, at: BlockRef<'_>, attribute: usize, range: &IntRange, marks: &mut [u8]) -> Result<()> {
        self.switch_to(at.chunk.unit);
        let entry = at.chunk.attribute(attribute)?;
        let source = self.window.over(at.chunk.source);
        let section = at.chunk.unit.section(&source);
        numbers_or_codes(entry, section, attribute)?.retain(section, at.block, range, &mut self.scratch, marks)
    }

    /// As [`Self::retain`], with a function instead of a range.
    pub fn retain_each(
        &mut self,
        at: BlockRef<'_>,
        attribute: usize,
        passes: impl Fn(i64) -> bool,
        marks: &mut [u8],
    ) -> Result<()> {
        self.switch_to(at.chunk.unit);
        let entry = at.chunk.attribute(attribute)?;
        let source = self.window.over(at.chunk.source);
        let section = at.chunk.unit.section(&source);
        numbers_or_codes(entry, section, attribute)?.decode_block(section, at.block, &mut self.scratch)?;
        for (mark, value) in marks.iter_mut().zip(&self.scratch) {
            *mark &= u8::from(passes(*value));
        }
        Ok(())
    }

    /// Clears the marks of rows whose payload does not pass `test`. `pieces` are [`ColumnTest::pieces`] of the
    /// test.
    pub fn retain_strings(
        &mut self,
        at: BlockRef<'_>,
        attribute: usize,
        test: &ColumnTest,
        pieces: &[&[u8]],
        marks: &mut [u8],
    ) -> Result<()> {
        let mut marking = SearchMarks { test, marks, next: 0 };
        if !pieces.is_empty() && self.search(at, attribute, pieces, |row, payload| marking.test(row, payload))? {
            marking.finish();
            return Ok(());
        }
        let rows = at.chunk.entry()?.row_range();
        let first = rows.start + at.block * BLOCK_ROWS;
        let end = (first + marking.marks.len()).min(rows.end);
        self.read(at.chunk, attribute, first..end)?;
        if let Some(passes) = test.passes_empty_only() {
            let mut start = 0;
            for (mark, end) in marking.marks.iter_mut().zip(&self.decoded.strings.ends) {
                *mark &= u8::from((*end == start) == passes);
                start = *end;
            }
            return Ok(());
        }
        if let Some(finder) = test.required_substring() {
            // One search over the concatenated payloads excludes most rows.
            let mut found = std::mem::take(&mut self.found);
            self.find(finder, &mut found);
            found.iter().for_each(|row| marking.test(*row as usize, self.string(*row as usize)));
            marking.finish();
            self.found = found;
            return Ok(());
        }
        for (row, mark) in marking.marks.iter_mut().enumerate().filter(|(_, mark)| **mark != 0) {
            *mark = u8::from(test.passes_bytes(self.string(row)) == Some(true));
        }
        Ok(())
    }

    /// Calls `visit` with row and payload of the rows of a block, ascending, that may contain the pieces. Returns false, without
    /// a call, when the encoding cannot be searched.
    fn search(
        &mut self,
        at: BlockRef<'_>,
        attribute: usize,
        pieces: &[&[u8]],
        visit: impl FnMut(usize, &[u8]),
    ) -> Result<bool> {
        self.switch_to(at.chunk.unit);
        self.read = None;
        let source = self.window.over(at.chunk.source);
        let section = at.chunk.unit.section(&source);
        let Some(strings) = at.chunk.attribute(attribute)?.payloads() else { return Ok(false) };
        let Some(symbols) = strings.searchable_symbols(section)? else { return Ok(false) };
        if self.searches_chunk != at.chunk.number {
            self.searches.clear();
            self.searches_chunk = at.chunk.number;
        }
        let index = match self.searches.iter().position(|search| search.searches_for(pieces)) {
            Some(index) => index,
            None => {
                self.searches.push(SymbolSearch::new(pieces, symbols));
                self.searches.len() - 1
            }
        };
        strings.search(section, at.block, &mut self.searches[index], &mut self.cache.strings, visit)?;
        Ok(true)
    }

    /// Replaces `out` by the rows whose payload contains the text, ascending. An occurrence in the concatenated payloads may span
    /// several payloads, so some rows may not contain the text.
    fn find(&self, finder: &memchr::memmem::Finder<'_>, out: &mut Vec<u16>) {
        out.clear();
        let ends = &self.decoded.strings.ends;
        let mut row = 0;
        for at in finder.find_iter(&self.decoded.strings.bytes) {
            // `find_iter` skips occurrences that overlap this one, so all rows that this occurrence overlaps may match.
            let last = at + finder.needle().len() - 1;
            row += ends[row..].partition_point(|end| *end as usize <= at);
            let mut found = row;
            while found < ends.len() {
                if out.last() != Some(&(found as u16)) {
                    out.push(found as u16);
                }
                if ends[found] as usize > last {
                    break;
                }
                found += 1;
            }
        }
    }
}

/// The marks of a block during a search for a test's pieces: only rows that contain the pieces are tested.
struct SearchMarks<'a> {
    test: &'a ColumnTest,
    marks: &'a mut [u8],
    /// The first row whose mark is not final.
    next: usize,
}

impl SearchMarks<'_> {
    /// Tests the payload of a row. Rows before it that were not tested do not contain the pieces.
    fn test(&mut self, row: usize, payload: &[u8]) {
        self.skip_to(row);
        self.marks[row] &= u8::from(self.test.passes_bytes(payload) == Some(true));
        self.next = row + 1;
    }

    fn finish(mut self) {
        self.skip_to(self.marks.len());
    }

    /// Decides rows without the pieces: they pass a negated test, and no other.
    fn skip_to(&mut self, row: usize) {
        if !self.test.is_negated() {
            self.marks[self.next..row].fill(0);
        }
    }
}
