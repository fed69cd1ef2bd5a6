//! Regular expressions: a part of PostgreSQL's advanced regular expressions, with exactly PostgreSQL's matches.
//!
//! [`parse`] accepts ASCII characters, `.`, brackets without classes, groups, alternatives, the greedy quantifiers `*`, `+` and `?`, `^`
//! at the start and `$` at the end. Everything else stays in PostgreSQL: escapes that are letters or digits, other quantifiers,
//! constraints, back references, embedded options.
//!
//! The regular language alone determines whether a string matches, but not what a capturing group matches. PostgreSQL splits a branch
//! before and after each capturing group. It matches each part, in order, with the longest string that lets the parts after it match
//! the rest (`parseqatom` in `regex/regcomp.c`, `ccondissect` in `regex/regexec.c`). [`Replacement`] does the same for expressions
//! whose groups are neither nested nor quantified.
//!
//! Automata read bytes. In UTF-8, a match ends only where a character ends.

mod automaton;
mod parse;

use automaton::{Automaton, Work};
use parse::{Part, Pattern};
use std::cell::RefCell;
use std::rc::Rc;

/// Of the strings that a part can match, at most this many are tried.
const CANDIDATES_MAX: usize = 64;
/// Compiled expressions that a thread remembers.
const REMEMBERED_MAX: usize = 8;

/// How characters are encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    SingleByte,
    Utf8,
}

/// The operator `~`.
pub struct Search {
    automaton: Automaton,
    at_end: bool,
}

/// The first match of an expression that starts with `^`, with its groups.
pub struct Replacement {
    /// The parts of the expression: alternately outside and inside a capturing group.
    parts: Vec<Automaton>,
    /// For each part, the part and those that follow.
    rests: Vec<Automaton>,
    at_end: bool,
    encoding: Encoding,
}

/// A match: the ends of the parts. The first part starts at the start of the string.
pub struct Match {
    ends: Vec<usize>,
}

#[derive(Debug, PartialEq)]
pub enum Found {
    No,
    /// There is a match, but too many ways to split the string among the parts.
    Unknown,
}

impl Search {
    /// None: the expression is not supported.
    pub fn compile(pattern: &[u8], encoding: Encoding) -> Option<Self> {
        let Pattern { parts, at_start, at_end } = parse::parse(pattern)?;
        let nodes: Vec<_> = parts.into_iter().map(|Part { node, .. }| node).collect();
        Some(Self { automaton: Automaton::compile(&nodes, !at_start, encoding, &mut Work::new())?, at_end })
    }

    pub fn is_match(&self, text: &[u8]) -> bool {
        match self.at_end {
            true => self.automaton.accepts(text),
            false => self.automaton.accepts_start(text),
        }
    }
}

impl Replacement {
    /// None: the expression is not supported.
    pub fn compile(pattern: &[u8], encoding: Encoding) -> Option<Self> {
        let Pattern { parts, at_start, at_end } = parse::parse(pattern)?;
        if !at_start || parts.iter().any(|part| part.has_nested_groups) {
            return None;
        }
        let nodes: Vec<_> = parts.into_iter().map(|part| part.node).collect();
        let mut work = Work::new();
        let mut compile = |nodes: &[_]| Automaton::compile(nodes, false, encoding, &mut work);
        let parts = nodes.iter().map(|node| compile(std::slice::from_ref(node))).collect::<Option<_>>()?;
        let rests = (0..nodes.len()).map(|first| compile(&nodes[first..])).collect::<Option<_>>()?;
        Some(Self { parts, rests, at_end, encoding })
    }

    /// The first match in `text`, which is valid in the encoding.
    pub fn find(&self, text: &[u8]) -> Result<Match, Found> {
        let is_boundary = |at: usize| match text.get(at) {
            Some(byte) if self.encoding == Encoding::Utf8 => byte & 0xc0 != 0x80,
            _ => true,
        };
        let end = match self.at_end {
            true => self.rests[0].accepts(text).then_some(text.len()),
            false => {
                let mut last = None;
                self.rests[0].visit_ends(text, |end| last = if is_boundary(end) { Some(end) } else { last });
                last
            }
        };
        let text = &text[..end.ok_or(Found::No)?];
        let mut ends = Vec::with_capacity(self.parts.len());
        let mut start = 0;
        let mut candidates = Vec::new();
        for (part, rest) in self.parts.iter().zip(&self.rests[1..]) {
            candidates.clear();
            part.visit_ends(&text[start..], |end| {
                if is_boundary(start + end) {
                    candidates.push(start + end);
                }
            });
            let longest = candidates.iter().rev().take(CANDIDATES_MAX);
            start = *longest.into_iter().find(|end| rest.accepts(&text[**end..])).ok_or(Found::Unknown)?;
            ends.push(start);
        }
        ends.push(text.len());
        Ok(Match { ends })
    }
}

impl Match {
    /// The range of the whole match if `group` is 0, otherwise the range of a capturing group. None if the group does not exist.
    pub fn group(&self, group: usize) -> Option<std::ops::Range<usize>> {
        match group {
            0 => Some(0..*self.ends.last()?),
            _ => (2 * group - 1 < self.ends.len()).then(|| self.ends[2 * group - 2]..self.ends[2 * group - 1]),
        }
    }
}

type Remembered<T> = RefCell<Vec<(Vec<u8>, Encoding, Option<Rc<T>>)>>;

thread_local! {
    static SEARCHES: Remembered<Search> = const { RefCell::new(Vec::new()) };
    static REPLACEMENTS: Remembered<Replacement> = const { RefCell::new(Vec::new()) };
}

fn remembered<T>(
    known: &Remembered<T>,
    pattern: &[u8],
    encoding: Encoding,
    compile: impl FnOnce() -> Option<T>,
) -> Option<Rc<T>> {
    let mut known = known.borrow_mut();
    let position = known.iter().position(|(of, with, _)| of == pattern && *with == encoding);
    let position = position.unwrap_or_else(|| {
        if known.len() >= REMEMBERED_MAX {
            known.remove(0);
        }
        known.push((pattern.to_vec(), encoding, compile().map(Rc::new)));
        known.len() - 1
    });
    known[position].2.clone()
}

/// As [`Search::compile`]; compiles an expression once per thread.
pub fn search(pattern: &[u8], encoding: Encoding) -> Option<Rc<Search>> {
    SEARCHES.with(|known| remembered(known, pattern, encoding, || Search::compile(pattern, encoding)))
}

/// As [`Replacement::compile`]; compiles an expression once per thread.
pub fn replacement(pattern: &[u8], encoding: Encoding) -> Option<Rc<Replacement>> {
    REPLACEMENTS.with(|known| remembered(known, pattern, encoding, || Replacement::compile(pattern, encoding)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(pattern: &str, text: &str) -> Option<Vec<String>> {
        let compiled = Replacement::compile(pattern.as_bytes(), Encoding::Utf8).expect(pattern);
        let found = compiled.find(text.as_bytes()).ok()?;
        Some((0..).map_while(|group| found.group(group)).map(|range| text[range].to_owned()).collect())
    }

    /// The expected values are those of PostgreSQL's regexp_match.
    #[test]
    fn groups_are_those_of_postgresql() {
        let url = r"^https?://(?:www\.)?([^/]+)/.*$";
        for (pattern, text, expected) in [
            (url, "http://www.example.org/a/b", Some(vec!["http://www.example.org/a/b", "example.org"])),
            (url, "https://www./", Some(vec!["https://www./", "www."])),
            (url, "https://www.é/é", Some(vec!["https://www.é/é", "é"])),
            (url, "ftp://www.example.org/", None),
            // Outside of groups, the whole part is as long as possible, not its first item.
            ("^a?(?:ab)?(b*)", "abb", Some(vec!["abb", "b"])),
            ("^a?(?:ab)?(b*)$", "ab", Some(vec!["ab", ""])),
            ("^(a|ab)(c|bcd)(d*)", "abcd", Some(vec!["abcd", "ab", "c", "d"])),
            ("^(a*)(a*)", "aaa", Some(vec!["aaa", "aaa", ""])),
            ("^x*(.)", "xxx", Some(vec!["xxx", "x"])),
            ("^x*(.)", "xé€", Some(vec!["xé", "é"])),
            ("^(.)([^a]+)", "éé", Some(vec!["éé", "é", "é"])),
            ("^(.)([^a]+)", "é", None),
            ("^(a)", "ba", None),
            ("^[a-c-]+", "a-b-d", Some(vec!["a-b-"])),
            ("^(\n.)", "\n\n\n", Some(vec!["\n\n", "\n\n"])),
        ] {
            let expected = expected.map(|groups| groups.into_iter().map(str::to_owned).collect::<Vec<_>>());
            assert_eq!(groups(pattern, text), expected, "{pattern} in {text}");
        }
    }

    #[test]
    fn searches_find_matches_anywhere() {
        for (pattern, text, expected) in [
            ("b+c", "abbc", true),
            ("b+c$", "abbcd", false),
            ("^b", "ab", false),
            ("(a|b(c|d)+)*x$", "zbcdax", true),
            ("a.c", "aéc", true),
            ("a..c", "aéc", false),
            ("[^é]", "a", true),
            (r"\.org/", "example.org/", true),
            (r"\.org/", "exampleorg/", false),
            ("^$", "", true),
            ("^$", "a", false),
        ] {
            let Some(compiled) = Search::compile(pattern.as_bytes(), Encoding::Utf8) else {
                assert!(pattern.contains('é'), "{pattern}");
                continue;
            };
            assert_eq!(compiled.is_match(text.as_bytes()), expected, "{pattern} in {text}");
        }
    }

    /// PostgreSQL's planner waits for the answer. Each of these took seconds in a release build.
    #[test]
    fn expressions_that_take_too_much_work_are_refused_soon() {
        for repeated in ["x?|", "(x?|y*)?|", "x*|", "[a-z]?|"] {
            for times in [50, 110, 230, 5000] {
                let pattern = format!("({}[ab]......)", repeated.repeat(times));
                let started = std::time::Instant::now();
                assert!(Search::compile(pattern.as_bytes(), Encoding::Utf8).is_none(), "{repeated} {times} times");
                Replacement::compile(format!("^{pattern}").as_bytes(), Encoding::Utf8);
                assert!(started.elapsed().as_secs_f64() < 1.0, "{repeated} {times} times: {:?}", started.elapsed());
            }
        }
        let groups = format!("^{}", "(a?b?)".repeat(20));
        assert!(Replacement::compile(groups.as_bytes(), Encoding::Utf8).is_some());
    }

    #[test]
    fn other_expressions_are_not_supported() {
        for pattern in [
            "",
            "a{2}",
            "a*?",
            "a**",
            "*a",
            "(?i)a",
            "(?=a)",
            r"\d",
            r"(a)\1",
            "[[:alpha:]]",
            "[a",
            "(a",
            "a)",
            "a||b",
            "()",
            "***=a",
            "a^b",
            "a$b",
            r"[\w]",
            "[]a]",
            "é",
            "a|",
            "^*",
            "[b-a]",
            "[+-9]",
            r"a\",
            "(?:a",
            "[^",
            "[a-",
            "^^a",
            "a$$",
        ] {
            assert!(Search::compile(pattern.as_bytes(), Encoding::Utf8).is_none(), "{pattern}");
        }
        for pattern in ["a(b)", "^(a(b))", "^(a)*", "^(?:(a)b)", "^a|b", "^(a)|b"] {
            assert!(Replacement::compile(pattern.as_bytes(), Encoding::Utf8).is_none(), "{pattern}");
        }
    }
}
