//! `LIKE` patterns.
//!
//! Source: `utils/adt/like_match.c` (`SB_MatchText`, `UTF8_MatchText`). A pattern that ends in the escape character
//! raises an error for texts that match up to its end, so such a pattern is left to PostgreSQL.

use super::functions::TextEncoding;
use memchr::memmem::Finder;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Item {
    Byte(u8),
    /// `_`
    Any,
    /// `%`
    Rest,
}

/// The shortest substring worth a search: shorter ones occur too often.
pub(super) const SUBSTRING_BYTES_MIN: usize = 3;

/// A compiled pattern.
#[derive(Debug, Clone)]
pub struct Pattern {
    items: Vec<Item>,
    encoding: TextEncoding,
    fragments: Option<Fragments>,
}

/// A pattern without `_`: the literals at the start, at the end, and between the `%` in this order.
#[derive(Debug, Clone)]
struct Fragments {
    start: Vec<u8>,
    middle: Vec<Finder<'static>>,
    /// None: the pattern has no `%`, so `start` is the whole text.
    end: Option<Vec<u8>>,
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.items == other.items && self.encoding == other.encoding
    }
}

impl Pattern {
    /// None: the pattern is invalid.
    pub fn new(pattern: &[u8], encoding: TextEncoding) -> Option<Self> {
        let mut items = Vec::with_capacity(pattern.len());
        let mut bytes = pattern.iter();
        while let Some(byte) = bytes.next() {
            items.push(match byte {
                b'\\' => Item::Byte(*bytes.next()?),
                b'%' => Item::Rest,
                b'_' => Item::Any,
                other => Item::Byte(*other),
            });
        }
        // In UTF-8 no character occurs inside the bytes of another character, so bytes can be searched.
        let searchable = encoding == TextEncoding::SingleByte || std::str::from_utf8(pattern).is_ok();
        let fragments = (searchable && !items.contains(&Item::Any)).then(|| Fragments::new(&items));
        Some(Self { items, encoding, fragments })
    }

    pub fn matches(&self, text: &[u8]) -> bool {
        match &self.fragments {
            Some(fragments) => fragments.matches(text),
            None => self.matches_items(text),
        }
    }

    /// The prefix of every matching text; None if unknown or empty.
    pub fn prefix(&self) -> Option<&[u8]> {
        self.fragments.as_ref().map(|fragments| fragments.start.as_slice()).filter(|start| !start.is_empty())
    }

    /// A searcher for the longest literal that every matching text contains; None if there is none worth a search.
    pub fn required_substring(&self) -> Option<&Finder<'static>> {
        let middle = &self.fragments.as_ref()?.middle;
        middle
            .iter()
            .max_by_key(|finder| finder.needle().len())
            .filter(|finder| finder.needle().len() >= SUBSTRING_BYTES_MIN)
    }

    /// The literals that every matching text contains in this order and without overlap; empty if unknown.
    pub fn pieces(&self) -> Vec<&[u8]> {
        let Some(Fragments { start, middle, end }) = &self.fragments else { return Vec::new() };
        let middle = middle.iter().map(|finder| finder.needle());
        let pieces = [start.as_slice()].into_iter().chain(middle).chain(end.as_deref());
        pieces.filter(|piece| !piece.is_empty()).collect()
    }

    /// Matches item by item. On a mismatch after a `%`, retries one character later in the text; quadratic at worst.
    fn matches_items(&self, text: &[u8]) -> bool {
        let (mut at, mut item) = (0, 0);
        let mut retry: Option<(usize, usize)> = None;
        loop {
            match self.items.get(item) {
                Some(Item::Rest) => {
                    item += 1;
                    retry = Some((at, item));
                    continue;
                }
                Some(Item::Any) if at < text.len() => {
                    at += self.next_character(&text[at..]);
                    item += 1;
                    continue;
                }
                Some(Item::Byte(byte)) if text.get(at) == Some(byte) => {
                    at += 1;
                    item += 1;
                    continue;
                }
                None if at == text.len() => return true,
                _ => {}
            }
            match retry {
                Some((start, first)) if start < text.len() => {
                    let start = start + self.next_character(&text[start..]);
                    retry = Some((start, first));
                    (at, item) = (start, first);
                }
                _ => return false,
            }
        }
    }

    /// The length of the first character, as `NextChar` determines it: in UTF-8, up to the next non-continuation byte.
    fn next_character(&self, text: &[u8]) -> usize {
        match self.encoding {
            TextEncoding::Utf8 => 1 + text[1..].iter().take_while(|byte| **byte & 0xc0 == 0x80).count(),
            _ => 1,
        }
    }
}

impl Fragments {
    fn new(items: &[Item]) -> Self {
        let literals: Vec<Vec<u8>> = items
            .split(|item| *item == Item::Rest)
            .map(|part| {
                part.iter().filter_map(|item| if let Item::Byte(byte) = item { Some(*byte) } else { None }).collect()
            })
            .collect();
        let (start, rest) = literals.split_first().map_or((Vec::new(), &[][..]), |(start, rest)| (start.clone(), rest));
        let (end, middle) = match rest.split_last() {
            Some((end, middle)) => (Some(end.clone()), middle),
            None => (None, rest),
        };
        let middle = middle.iter().filter(|part| !part.is_empty()).map(|part| Finder::new(part).into_owned()).collect();
        Self { start, middle, end }
    }

    #[inline]
    fn matches(&self, text: &[u8]) -> bool {
        let Some(end) = &self.end else { return text == self.start };
        // An empty prefix or suffix is common; skip the call.
        let mut rest = text;
        if !self.start.is_empty() {
            let Some(after) = rest.strip_prefix(self.start.as_slice()) else { return false };
            rest = after;
        }
        if !end.is_empty() {
            let Some(before) = rest.strip_suffix(end.as_slice()) else { return false };
            rest = before;
        }
        for finder in &self.middle {
            match finder.find(rest) {
                Some(at) => rest = &rest[at + finder.needle().len()..],
                None => return false,
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, pattern: &str, expected: bool) {
        let pattern = Pattern::new(pattern.as_bytes(), TextEncoding::Utf8).unwrap();
        assert_eq!(pattern.matches(text.as_bytes()), expected);
        assert_eq!(pattern.matches_items(text.as_bytes()), expected);
    }

    #[test]
    fn literals_and_wildcards_match_as_in_postgresql() {
        check("abc", "abc", true);
        check("abc", "ab", false);
        check("abc", "%", true);
        check("", "%", true);
        check("", "", true);
        check("abc", "a%c", true);
        check("ac", "a%c", true);
        check("a", "a%a", false);
        check("abcabd", "%abd", true);
        check("xexpressypintoz", "%express%pinto%", true);
        check("xpintoyexpressz", "%express%pinto%", false);
        check("100%", "100\\%", true);
        check("100x", "100\\%", false);
        check("a\\b", "a\\\\b", true);
        check("abab", "%ab%ab%", true);
        check("aba", "%ab%ba%", false);
    }

    #[test]
    fn an_underscore_matches_one_character() {
        check("é", "_", true);
        check("éa", "_a", true);
        check("日本", "__", true);
        check("日本", "%_本", true);
        check("日本", "___", false);
        check("abc", "%_%_%_%", true);
        check("ab", "%_%_%_%", false);
        let single = Pattern::new(b"__", TextEncoding::SingleByte).unwrap();
        assert!(single.matches("é".as_bytes()));
    }

    #[test]
    fn a_pattern_that_ends_in_the_escape_character_is_invalid() {
        assert!(Pattern::new(b"abc\\", TextEncoding::Utf8).is_none());
    }
}
