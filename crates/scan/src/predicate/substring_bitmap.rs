//! Excludes rows of `LIKE '%substring%'` by one search over the bytes of several pages.
//!
//! Starting a search costs more than searching a short string. One search over the pages finds all values that may
//! contain the substring. The bitmap says nothing about values that are compressed or stored out of line.

use super::rows::RowSet;
use cellar_format::units::BLOCK_BYTES;
use memchr::memmem::Finder;

/// Bytes per bit.
const GRAIN_BYTES: usize = 16;
/// The longest header of a varlena.
const HEADER_BYTES_MAX: usize = 4;
const WORD_BITS: usize = u64::BITS as usize;

/// A bitmap over the bytes of some pages: a bit is set if an occurrence of the substring overlaps its grain of 16
/// bytes.
pub struct SubstringBitmap {
    start: usize,
    bits: Vec<u64>,
}

impl SubstringBitmap {
    /// Searches the pages of the selected rows. None: so few rows are selected that searching each is faster, or the
    /// rows are not in pages.
    pub fn search(finder: &Finder<'_>, rows: RowSet<'_>, selected: &[u16]) -> Option<Self> {
        let (first, last) = (*selected.first()?, *selected.last()?);
        if !rows.in_pages || selected.len() < rows.rows.len() / 2 {
            return None;
        }
        let page_start = |row: u16| rows.rows.row(row).page as usize * BLOCK_BYTES;
        let start = page_start(first);
        let bytes = rows.bytes.get(start..page_start(last) + BLOCK_BYTES)?;
        Some(Self::search_bytes(finder, start, bytes))
    }

    /// Searches `bytes`, which start at offset `start` of the scanned bytes.
    fn search_bytes(finder: &Finder<'_>, start: usize, bytes: &[u8]) -> Self {
        let mut bits = vec![0; bytes.len() / GRAIN_BYTES / WORD_BITS + 2];
        for at in finder.find_iter(bytes) {
            // Mark the whole occurrence: overlapping occurrences are not reported.
            for grain in at / GRAIN_BYTES..=(at + finder.needle().len() - 1) / GRAIN_BYTES {
                bits[grain / WORD_BITS] |= 1 << (grain % WORD_BITS);
            }
        }
        Self { start, bits }
    }

    /// Whether the substring may occur in `payload`, which belongs to the datum at `location`.
    #[inline(always)]
    pub fn may_contain(&self, location: usize, payload: &[u8]) -> bool {
        let Some(at) = location.checked_sub(self.start) else { return true };
        let (first, last) = (at / GRAIN_BYTES, (at + HEADER_BYTES_MAX + payload.len()) / GRAIN_BYTES);
        let word = first / WORD_BITS;
        let (Some(low), Some(high)) = (self.bits.get(word), self.bits.get(word + 1)) else { return true };
        // A window of 64 grains. A longer string is never excluded.
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
    fn every_payload_with_an_occurrence_passes() {
        // Occurrences may overlap, and payloads start and end anywhere around them.
        let mut bytes = vec![b'.'; 4096];
        for at in [0, 13, 15, 16, 100, 1022, 1023, 1024, 1025, 2000, 2002, 2004, 4093] {
            bytes[at..at + 3].copy_from_slice(b"aba");
        }
        let finder = Finder::new(b"aba");
        let bitmap = SubstringBitmap::search_bytes(&finder, 8192, &bytes);
        let mut excluded = 0;
        for from in 0..bytes.len() {
            for to in (from..bytes.len().min(from + 1200)).step_by(7) {
                let payload = &bytes[from..to];
                // A datum's header precedes its payload; here the preceding byte of the text stands for the header.
                let may_contain = bitmap.may_contain(8192 + from.saturating_sub(1), payload);
                assert!(may_contain || finder.find(payload).is_none(), "{from}..{to}");
                excluded += usize::from(!may_contain);
            }
        }
        assert!(excluded > 0);
    }
}
