//! Fields of rows as runs of rows in which all fields are equal. Most rows of a table have equal tuple headers.

use super::encoding::IntChunk;
use std::ops::Range;

#[derive(Debug)]
pub(super) struct FieldRuns<const FIELDS: usize> {
    /// Fields, and the row after the run, ascending.
    runs: Vec<([i64; FIELDS], u32)>,
}

impl<const FIELDS: usize> Default for FieldRuns<FIELDS> {
    fn default() -> Self {
        Self { runs: Vec::new() }
    }
}

impl<const FIELDS: usize> FieldRuns<FIELDS> {
    pub fn len(&self) -> usize {
        self.runs.last().map_or(0, |(_, end)| *end as usize)
    }

    #[inline(always)]
    pub fn push(&mut self, fields: [i64; FIELDS]) {
        match self.runs.last_mut() {
            Some((last, end)) if *last == fields => *end += 1,
            _ => self.runs.push((fields, self.len() as u32 + 1)),
        }
    }

    pub fn truncate(&mut self, rows: usize) {
        self.runs.truncate(self.runs.partition_point(|(_, end)| (*end as usize) < rows) + usize::from(rows > 0));
        if let Some((_, end)) = self.runs.last_mut() {
            *end = rows as u32;
        }
    }

    /// The runs that contain `rows`, each with its number of those rows.
    pub fn overlapping(&self, rows: Range<usize>) -> impl Iterator<Item = (&[i64; FIELDS], usize)> {
        let first = self.runs.partition_point(|(_, end)| *end as usize <= rows.start);
        let mut start = rows.start;
        self.runs[first..].iter().map_while(move |(fields, end)| {
            let count = (*end as usize).min(rows.end) - start;
            start += count;
            (count > 0).then_some((fields, count))
        })
    }

    /// Encodes one field of `rows`; `scratch` is memory for its values.
    pub fn encode(&self, field: usize, rows: Range<usize>, scratch: &mut Vec<i64>, data: &mut Vec<u8>) -> IntChunk {
        let mut values = self.overlapping(rows.clone()).map(|(fields, _)| fields[field]);
        let first = values.next().unwrap_or(0);
        if values.all(|value| value == first) {
            return IntChunk::repeat(rows.len(), first);
        }
        scratch.clear();
        self.overlapping(rows).for_each(|(fields, count)| scratch.resize(scratch.len() + count, fields[field]));
        IntChunk::encode(scratch, data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_contain_the_rows_that_were_pushed_and_not_truncated() {
        let row = |row: usize| [(row / 10 % 3) as i64, (row / 7) as i64];
        let mut runs = FieldRuns::<2>::default();
        for keep in [0, 1, 14, 20, 55] {
            (runs.len()..60).for_each(|at| runs.push(row(at)));
            runs.truncate(keep);
            assert_eq!(runs.len(), keep);
            for rows in [0..keep, keep / 3..keep / 2, keep..keep] {
                let found: Vec<_> =
                    runs.overlapping(rows.clone()).flat_map(|(fields, count)| vec![*fields; count]).collect();
                assert_eq!(found, rows.map(row).collect::<Vec<_>>());
            }
        }
    }
}
