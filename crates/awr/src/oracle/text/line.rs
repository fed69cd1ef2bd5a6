//! Lines of a text report: columns of characters, rulers, headings, pairs of label and value.

use std::borrow::Cow;

/// A range of character columns.
pub type Range = (usize, usize);

/// Terminators of sections have 54 (AWR) or 61 (Statspack) hyphens.
const TERMINATORS: [usize; 2] = [54, 61];
const TERMINATOR_MIN: usize = 50;

/// The lines of a text: without line ends, form feeds and tabs. A lone carriage return also ends a line.
#[derive(Clone)]
pub struct Lines<'a> {
    text: &'a str,
    at: usize,
    pub number: u32,
}

impl<'a> Lines<'a> {
    pub fn new(text: &'a str) -> Self {
        Self { text, at: 0, number: 0 }
    }
}

impl<'a> Iterator for Lines<'a> {
    type Item = Cow<'a, str>;

    fn next(&mut self) -> Option<Cow<'a, str>> {
        if self.at >= self.text.len() {
            return None;
        }
        let rest = &self.text[self.at..];
        let end = rest.bytes().position(|byte| byte == b'\n' || byte == b'\r').unwrap_or(rest.len());
        let length = if rest[end..].starts_with("\r\n") { 2 } else { usize::from(end < rest.len()) };
        self.at += end + length;
        self.number += 1;
        let line = rest[..end].trim_start_matches('\u{c}').trim_end();
        Some(if line.contains('\t') { Cow::Owned(expanded(line)) } else { Cow::Borrowed(line) })
    }
}

/// A line with tabs expanded to multiples of eight columns.
fn expanded(line: &str) -> String {
    let mut out = String::with_capacity(line.len() + 16);
    let mut column = 0;
    for c in line.chars() {
        if c == '\t' {
            let blanks = 8 - column % 8;
            out.extend(std::iter::repeat_n(' ', blanks));
            column += blanks;
        } else {
            out.push(c);
            column += 1;
        }
    }
    out
}

/// The characters of a line in a range of columns.
pub fn slice(line: &str, (start, end): Range) -> &str {
    if line.is_ascii() {
        return &line[start.min(line.len())..end.min(line.len())];
    }
    let mut offsets = line.char_indices().map(|(offset, _)| offset);
    let from = offsets.nth(start).unwrap_or(line.len());
    let to = if end > start { offsets.nth(end - start - 1).unwrap_or(line.len()) } else { from };
    &line[from..to]
}

/// The words of a line that are separated by at least `gap` blanks, with their columns.
pub fn phrases(line: &str, gap: usize) -> Vec<Range> {
    let mut found: Vec<Range> = Vec::new();
    let mut blanks = usize::MAX;
    for (column, c) in line.chars().enumerate() {
        if c == ' ' {
            blanks = blanks.saturating_add(1);
            continue;
        }
        match found.last_mut() {
            Some(last) if blanks < gap => last.1 = column + 1,
            _ => found.push((column, column + 1)),
        }
        blanks = 0;
    }
    found
}

/// The columns that a ruler (`---- -----`) draws. None for other lines.
pub fn ruler(line: &str) -> Option<Vec<Range>> {
    let hyphens = line.bytes().filter(|byte| *byte == b'-').count();
    let only = line.bytes().all(|byte| matches!(byte, b'-' | b' '));
    (only && hyphens >= 3).then(|| phrases(line, 1))
}

/// Whether a line is the end of a section.
pub fn is_terminator(line: &str) -> bool {
    let rule = line.trim_start();
    let length = rule.len();
    length >= TERMINATOR_MIN
        && rule.bytes().all(|byte| byte == b'-')
        && (TERMINATORS.contains(&length) || line.len() > length)
}

/// The columns of a line of tildes, with or without hyphens and other text behind them: the columns of the tildes.
pub fn tildes(line: &str) -> Option<Range> {
    let start = line.len() - line.trim_start().len();
    let rule = line[start..].bytes().take_while(|byte| *byte == b'~').count();
    let rest = &line[start + rule..];
    (rule >= 3 && (rest.is_empty() || rest.starts_with(' '))).then_some((start, start + rule))
}

/// The heading of a line that also names instance and snapshots: `Time Model Statistics    DB/Inst: ORCL/orcl1  Snaps: 2-3`.
pub fn heading(line: &str) -> Option<&str> {
    let marks = ["DB/Inst:", " DB:", " Inst:", " Instance:", " Database:"];
    let at = marks.iter().find_map(|mark| line.find(mark))?;
    let (heading, subject) = line.split_at(at);
    (subject.contains("Snap") && !heading.trim().is_empty()).then_some(heading.trim())
}

/// Pairs of label and value in a line: `Buffer Nowait %:  99.99   Redo NoWait %:  100.00`. A label ends with a colon.
pub fn pairs(line: &str) -> Vec<(&str, &str)> {
    let mut pairs = Vec::new();
    let mut rest = line;
    loop {
        let colon =
            rest.char_indices().find(|(at, c)| *c == ':' && rest[at + 1..].chars().next().is_none_or(|c| c == ' '));
        let Some((colon, _)) = colon else { break };
        let label = rest[..=colon].trim();
        rest = rest[colon + 1..].trim_start();
        let end = rest.find("  ").unwrap_or(rest.len());
        // A value is no label: the next pair begins here.
        let is_label = rest[..end].contains(": ") || rest[..end].ends_with(':');
        let end = if is_label { 0 } else { end };
        if label.len() > 1 {
            pairs.push((label, rest[..end].trim()));
        }
        rest = &rest[end..];
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_split_at_colons() {
        assert_eq!(
            pairs("            Buffer  Hit   %:   99.68    In-memory Sort %:  100.00"),
            [("Buffer  Hit   %:", "99.68"), ("In-memory Sort %:", "100.00")]
        );
        assert_eq!(pairs("   Elapsed:               60.22 (mins)"), [("Elapsed:", "60.22 (mins)")]);
        assert_eq!(pairs("Begin Snap:         2 10-Jul-14 04:00:45"), [("Begin Snap:", "2 10-Jul-14 04:00:45")]);
        assert_eq!(
            pairs("Parse CPU %:          Latch Hit %:  100.00"),
            [("Parse CPU %:", ""), ("Latch Hit %:", "100.00")]
        );
    }

    #[test]
    fn headings_stand_before_instance_and_snapshots() {
        assert_eq!(
            heading("Time Model Statistics       DB/Inst: ORCL/orcl1  Snaps: 2-3"),
            Some("Time Model Statistics")
        );
        assert_eq!(heading("select DB: from x"), None);
    }

    #[test]
    fn lines_end_with_any_line_end() {
        let lines: Vec<String> = Lines::new("a\r\nb\n\u{c}c\rd\te").map(Cow::into_owned).collect();
        assert_eq!(lines, ["a", "b", "c", "d       e"]);
    }

    #[test]
    fn slices_count_characters() {
        assert_eq!(slice("äöü abc", (4, 6)), "ab");
        assert_eq!(slice("äöü", (4, 6)), "");
        assert_eq!(slice("abc", (1, 9)), "bc");
    }
}
