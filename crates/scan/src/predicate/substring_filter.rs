//! Where a piece of text occurs in the pages of a chunk, found in one search over all their bytes.
//!
//! Starting a search costs more than searching a short string. One long search tells most rows of `LIKE '%piece%'`
//! apart; it says nothing about values that do not lie in the page as they are.

use super::rows::RowSet;
use cellar_format::units::BLOCK_BYTES;
use memchr::memmem::Finder;

/// Bytes that share a bit.
const GRAIN_BYTES: usize = 16;
/// Of a varlena.
const HEADER_BYTES_MAX: usize = 4;
const WORD_BITS: usize = u64::BITS as usize;

/// The grains of some pages in which the piece, or a part of it, was found.
pub struct SubstringFilter {
    start: usize,
    bits: Vec<u64>,
}

impl SubstringFilter {
    /// None: so few rows are selected that they are better searched one by one.
    pub fn search(finder: &Finder<'_>, rows: RowSet<'_>, selected: &[u16]) -> Option<Self> {
        let (first, last) = (*selected.first()?, *selected.last()?);
        if !rows.in_pages || selected.len() < rows.rows.len() / 2 {
            return None;
        }
        let page = |row: u16| rows.rows.row(row).page as usize * BLOCK_BYTES;
        let start = page(first);
        let bytes = rows.pages.get(start..page(last) + BLOCK_BYTES)?;
        Some(Self::found(finder, start, bytes))
    }

    /// In `bytes`, which are those from `start` on.
    fn found(finder: &Finder<'_>, start: usize, bytes: &[u8]) -> Self {
        let mut bits = vec![0; bytes.len() / GRAIN_BYTES / WORD_BITS + 2];
        for at in finder.find_iter(bytes) {
            // All of it: an occurrence that starts inside this one is not reported.
            for grain in at / GRAIN_BYTES..=(at + finder.needle().len() - 1) / GRAIN_BYTES {
                bits[grain / WORD_BITS] |= 1 << (grain % WORD_BITS);
            }
        }
        Self { start, bits }
    }

    /// Whether the piece may occur in `payload`, that of the datum at `location`.
    #[inline(always)]
    pub fn may_contain(&self, location: usize, payload: &[u8]) -> bool {
        let Some(at) = location.checked_sub(self.start) else { return true };
        let (first, last) = (at / GRAIN_BYTES, (at + HEADER_BYTES_MAX + payload.len()) / GRAIN_BYTES);
        let word = first / WORD_BITS;
        let (Some(low), Some(high)) = (self.bits.get(word), self.bits.get(word + 1)) else { return true };
        // 64 grains from the first one on; a longer string is not worth more thought.
        let shift = first % WORD_BITS;
        let window = low >> shift | (high << 1) << (WORD_BITS - 1 - shift);
        let unused = WORD_BITS.checked_sub(last - first + 1);
        unused.is_none_or(|unused| window << unused != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_occurrence_is_overlooked() {
        // Occurrences may overlap, and payloads start and end anywhere around them.
        let mut bytes = vec![b'.'; 4096];
        for at in [0, 13, 15, 16, 100, 1022, 1023, 1024, 1025, 2000, 2002, 2004, 4093] {
            bytes[at..at + 3].copy_from_slice(b"aba");
        }
        let finder = Finder::new(b"aba");
        let filter = SubstringFilter::found(&finder, 8192, &bytes);
        let mut excluded = 0;
        for from in 0..bytes.len() {
            for to in (from..bytes.len().min(from + 1200)).step_by(7) {
                let payload = &bytes[from..to];
                // The header's bytes come before; here they are taken from the text.
                let may_contain = filter.may_contain(8192 + from.saturating_sub(1), payload);
                assert!(may_contain || finder.find(payload).is_none(), "{from}..{to}");
                excluded += usize::from(!may_contain);
            }
        }
        assert!(excluded > 0);
    }
}
