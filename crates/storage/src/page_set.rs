//! A set of pages of one allocation unit, as a bitmap.

use cellar_format::units::PageInAu;
use std::ops::Range;

/// A set of pages by number in the allocation unit, over pages 0 to `page_count()` - 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageSet {
    words: Box<[u64]>,
    count: u32,
}

impl PageSet {
    /// Returns an empty set over pages 0 to `count` - 1.
    pub fn new(count: u32) -> Self {
        Self { words: vec![0; words_for(count)].into(), count }
    }

    pub(crate) fn from_words(words: Box<[u64]>, count: u32) -> Self {
        assert_eq!(words.len(), words_for(count));
        let mut set = Self { words, count };
        set.clear_excess();
        set
    }

    pub(crate) fn words(&self) -> &[u64] {
        &self.words
    }

    /// Returns the number of pages that the set is over, whether they are members or not.
    pub fn page_count(&self) -> u32 {
        self.count
    }

    pub fn contains(&self, page: PageInAu) -> bool {
        page.0 < self.count && self.words[page.0 as usize / 64] >> (page.0 % 64) & 1 == 1
    }

    /// Returns the end of the longest prefix of `pages` whose pages are all members or all non-members. The first page
    /// must be below the page count.
    pub fn run_end(&self, pages: Range<u32>) -> u32 {
        debug_assert!(pages.start < self.count);
        let end = pages.end.min(self.count);
        let flip = if self.contains(PageInAu(pages.start)) { u64::MAX } else { 0 };
        let mut at = pages.start;
        while at < end {
            let other = (self.words[at as usize / 64] ^ flip) >> (at % 64);
            if other != 0 {
                return (at + other.trailing_zeros()).min(end);
            }
            at = (at / 64 + 1) * 64;
        }
        end
    }

    pub fn insert(&mut self, page: PageInAu) {
        assert!(page.0 < self.count);
        self.words[page.0 as usize / 64] |= 1 << (page.0 % 64);
    }

    /// Adds the members of `other`, which may be over more pages.
    pub(crate) fn insert_all(&mut self, other: &Self) {
        for (word, more) in self.words.iter_mut().zip(&other.words) {
            *word |= more;
        }
        self.clear_excess();
    }

    /// Removes the members of `other`.
    pub(crate) fn remove_all(&mut self, other: &Self) {
        for (word, less) in self.words.iter_mut().zip(&other.words) {
            *word &= !less;
        }
    }

    /// Returns the same set over its first `count` pages.
    pub(crate) fn truncated(&self, count: u32) -> Self {
        assert!(count <= self.count);
        Self::from_words(self.words[..words_for(count)].into(), count)
    }

    /// Returns the number of members.
    pub fn len(&self) -> u32 {
        self.words.iter().map(|word| word.count_ones()).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    pub fn is_full(&self) -> bool {
        self.len() == self.count
    }

    pub fn iter(&self) -> impl Iterator<Item = PageInAu> + '_ {
        (0..self.count).map(PageInAu).filter(|page| self.contains(*page))
    }

    fn clear_excess(&mut self) {
        if !self.count.is_multiple_of(64)
            && let Some(last) = self.words.last_mut()
        {
            *last &= (1 << (self.count % 64)) - 1;
        }
    }
}

/// Returns the number of 64-bit words of a bitmap over `count` pages.
fn words_for(count: u32) -> usize {
    count.div_ceil(64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_truncated_set_keeps_the_members_below_its_end() {
        let mut set = PageSet::new(130);
        [0, 63, 64, 99, 129].into_iter().for_each(|page| set.insert(PageInAu(page)));
        assert_eq!(set.truncated(99).iter().collect::<Vec<_>>(), [0, 63, 64].map(PageInAu));
        let mut other = PageSet::new(99);
        other.insert_all(&set);
        assert_eq!(other, set.truncated(99));
        other.remove_all(&set);
        assert!(other.is_empty() && !other.is_full() && !set.contains(PageInAu(500)));
        assert!(PageSet::from_words([u64::MAX].into(), 3).is_full());
    }

    #[test]
    fn a_run_ends_where_membership_changes() {
        let mut set = PageSet::new(300);
        (60..200).chain([299]).for_each(|page| set.insert(PageInAu(page)));
        for page in 0..300 {
            for end in [page, page + 1, 64, 128, 199, 200, 298, 299, 300, 400] {
                let same = |other: &u32| set.contains(PageInAu(*other)) == set.contains(PageInAu(page));
                let expected = (page..end.min(300)).find(|other| !same(other)).unwrap_or(end.min(300));
                assert_eq!(set.run_end(page..end), expected, "{page} {end}");
            }
        }
    }
}
