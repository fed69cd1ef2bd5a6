//! Lines of a text report: columns of characters, rulers, headings, pairs of label and value.

use std::borrow::Cow;

/// A range of character columns.
pub type Range = (usize, usize);

/// Terminators of sections have 54 (AWR) or 61 (Statspack) hyphens.
const TERMINATORS: [usize; 2] = [54, 61];
const TERMINATOR_MIN: usize = 50;
/// Bounds the columns of a table. No report has as many.
const COLUMNS_MAX: usize = 128;
/// Characters of a line.
const LINE: usize = 80;
/// The name of the query's column, which SQL*Plus prints at the head of each page.
const PAGE_HEAD: &str = "OUTPUT";
/// Hyphens of the rule below the head of a page, at least.
const PAGE_RULE_MIN: usize = 80;

/// The lines of a text: without line ends, form feeds and tabs. A lone carriage return also ends a line. The heads of pages
/// that SQL*Plus prints every some lines (a blank line, `OUTPUT`, and a rule) are no lines of the report.
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

    /// The next line as it is in the text, without its end and form feeds.
    fn raw(&mut self) -> Option<&'a str> {
        if self.at >= self.text.len() {
            return None;
        }
        let rest = &self.text[self.at..];
        let end = rest.bytes().position(|byte| byte == b'\n' || byte == b'\r').unwrap_or(rest.len());
        let length = if rest[end..].starts_with("\r\n") { 2 } else { usize::from(end < rest.len()) };
        self.at += end + length;
        self.number += 1;
        Some(rest[..end].trim_start_matches('\u{c}').trim_end())
    }

    /// Skips the name and the rule of a page's head behind the blank line that is the first of the head.
    fn skip_page_head(&mut self) -> bool {
        let rest = self.text[self.at..].trim_start_matches('\u{c}');
        if !rest.starts_with(PAGE_HEAD) {
            return false;
        }
        let mut ahead = self.clone();
        if ahead.raw() != Some(PAGE_HEAD) {
            return false;
        }
        *self = ahead.clone();
        if ahead.raw().is_some_and(is_page_rule) {
            *self = ahead;
        }
        true
    }

    /// Whether the next line may begin with tildes, by its first bytes.
    pub fn may_be_tildes(&self) -> bool {
        let rest = &self.text.as_bytes()[self.at..];
        let head = &rest[..rest.len().min(16)];
        // A page's head may stand before the line.
        head.contains(&b'~')
            || (head.contains(&PAGE_HEAD.as_bytes()[0])
                && head.windows(PAGE_HEAD.len()).any(|bytes| bytes == PAGE_HEAD.as_bytes()))
    }
}

/// Whether a line is the rule below the head of a page.
fn is_page_rule(line: &str) -> bool {
    line.len() >= PAGE_RULE_MIN && line.bytes().all(|byte| byte == b'-')
}

/// The text of an HTML report with blanks in place of the heads of SQL*Plus's pages.
pub fn without_page_heads(text: &str) -> Cow<'_, str> {
    if !text.contains("\nOUTPUT") {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let (mut below_name, mut below_blank) = (false, true);
    let mut lines = text.split_inclusive('\n').peekable();
    while let Some(line) = lines.next() {
        let trimmed = line.trim();
        let mut has_rule = || lines.peek().is_some_and(|next| is_page_rule(next.trim()));
        let is_name = trimmed == PAGE_HEAD && (below_blank || has_rule());
        if is_name || (below_name && is_page_rule(trimmed)) {
            out.extend(line.chars().map(|c| if c == '\n' || c == '\r' { c } else { ' ' }));
        } else {
            out.push_str(line);
        }
        (below_name, below_blank) = (is_name, trimmed.is_empty());
    }
    Cow::Owned(out)
}

impl<'a> Iterator for Lines<'a> {
    type Item = Cow<'a, str>;

    fn next(&mut self) -> Option<Cow<'a, str>> {
        let mut line = self.raw()?;
        while (line.is_empty() || line == PAGE_HEAD) && {
            let rule = line == PAGE_HEAD && self.clone().raw().is_some_and(is_page_rule);
            if rule {
                self.raw();
            }
            rule || (line.is_empty() && self.skip_page_head())
        } {
            line = self.raw()?;
        }
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

/// Byte offsets of columns of a line, from left to right.
pub struct Offsets<'a> {
    line: &'a str,
    is_ascii: bool,
    column: usize,
    offset: usize,
}

impl<'a> Offsets<'a> {
    pub fn new(line: &'a str) -> Self {
        Self { line, is_ascii: line.is_ascii(), column: 0, offset: 0 }
    }

    /// The offset of a column, which is not left of the column before; the length of the line behind its end.
    pub fn at(&mut self, column: usize) -> usize {
        if self.is_ascii {
            return column.min(self.line.len());
        }
        if column > self.column {
            let mut rest = self.line[self.offset..].char_indices();
            let offset = rest.nth(column - self.column).map_or(self.line.len(), |(offset, _)| self.offset + offset);
            (self.column, self.offset) = (column, offset);
        }
        self.offset
    }
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
    if !line.bytes().all(|byte| matches!(byte, b'-' | b' ')) {
        return None;
    }
    let hyphens = line.bytes().filter(|byte| *byte == b'-').count();
    if hyphens < 3 {
        return None;
    }
    let columns = phrases(line, 1);
    (columns.len() <= COLUMNS_MAX).then_some(columns)
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
///
/// Lines are cut at 80 columns, so that a long name may leave no space for the snapshots.
pub fn heading(line: &str) -> Option<&str> {
    if !line.contains(':') {
        return None;
    }
    let marks = ["DB/Inst:", " DB:", " Inst:", " Instance:", " Database:"];
    let at = marks.iter().find_map(|mark| line.find(mark))?;
    let (mut heading, subject) = line.split_at(at);
    // Reports that compare periods name both: `Top Timed Events   First DB/Inst: … ,  Second DB/Inst: …`.
    if subject.contains(" Second ") {
        heading = heading.trim_end().strip_suffix(" First").unwrap_or(heading);
    }
    let is_cut = || {
        let names = subject.strip_prefix("DB/Inst: ").filter(|_| line.chars().count() + 2 >= LINE);
        let names = names.map(|names| names.split_whitespace().collect::<Vec<_>>());
        match names.as_deref() {
            Some([names]) => names.contains('/'),
            Some([names, cut]) => names.contains('/') && "Snap".starts_with(cut),
            _ => false,
        }
    };
    (!heading.trim().is_empty() && (subject.contains("Snap") || is_cut())).then_some(heading.trim())
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
        // A value ends before two blanks. A value is no label: the next pair begins here.
        let stop = rest.as_bytes().windows(2).position(|two| two == b"  " || two == b": ");
        let end = match stop {
            Some(at) if rest.as_bytes()[at] == b':' => 0,
            Some(at) => at,
            None if rest.ends_with(':') => 0,
            None => rest.len(),
        };
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
        let both = "Top Timed Events   First DB/Inst: A/a Snaps: 91-92 (…),  Second DB/Inst: B/b Snaps: 88-89 (…)";
        assert_eq!(heading(both), Some("Top Timed Events"));
        let cut = "Instance Activity Stats                          DB/Inst: RACDBNAME/racdbname1  Sna";
        assert_eq!(heading(cut), Some("Instance Activity Stats"));
    }

    #[test]
    fn lines_end_with_any_line_end() {
        let lines: Vec<String> = Lines::new("a\r\nb\n\u{c}c\rd\te").map(Cow::into_owned).collect();
        assert_eq!(lines, ["a", "b", "c", "d       e"]);
    }

    #[test]
    fn heads_of_pages_are_no_lines() {
        let rule = "-".repeat(80);
        let text = format!("a\n\nOUTPUT\n{rule}\nb\n\nOUTPUT\nc\nOUTPUT\nd\n\ne");
        let mut lines = Lines::new(&text);
        let read: Vec<String> = lines.by_ref().map(Cow::into_owned).collect();
        assert_eq!((read.join("|").as_str(), lines.number), ("a|b|c|OUTPUT|d||e", 12));
        let blanks = " ".repeat(6);
        let html = format!("<td>1\r\n\r\nOUTPUT\r\n{rule}\r\n<td>OUTPUT\n");
        let expected = format!("<td>1\r\n\r\n{blanks}\r\n{}\r\n<td>OUTPUT\n", " ".repeat(80));
        assert_eq!(without_page_heads(&html), expected);
    }

    #[test]
    fn slices_count_characters() {
        assert_eq!(slice("äöü abc", (4, 6)), "ab");
        assert_eq!(slice("äöü", (4, 6)), "");
        assert_eq!(slice("abc", (1, 9)), "bc");
    }
}
