//! Compares the outputs of a Postgres test suite with Smart Scan on with those with Smart Scan off.
//!
//! An output is split into result tables and the text between them (echoed statements, errors, notices). Text must be equal
//! byte for byte. A table must be equal, unless the file of excused differences lists it as one of
//! - `plan`: the table is the output of EXPLAIN in both runs; or
//! - `order`: the statement leaves the order of rows open and the rows are the same multiset. Without ORDER BY, and if only
//!   rows with equal sort keys are in another order, the comparison recognizes the open order itself.
//!
//! Both conditions are verified in each run, so such an entry never excuses a wrong, missing or additional row.
//!
//! Some tests print text that depends on the plan outside of EXPLAIN (a warning that an index was not used, notices of a
//! function that is called for fewer rows). For these, `exact` lists the digest of the whole difference, without plans and
//! without numbers in error messages. Any other difference of that test fails. `--update` never writes such an entry.
//!
//! If tables were compressed during the second run (`inject`), VACUUM ran before other statements. Plans, the order of rows
//! without ORDER BY, and the order of notices may then differ without being listed; the rows and notices may not. The list
//! names statements of one major version, so runs of another one excuse plans and open orders without a list (`unlisted`).

pub mod inject;
mod script;

use anyhow::{Context, Result, bail};
use clap::Args;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

#[derive(Args)]
pub struct Options {
    /// Name of the suite: the first field of entries in the list of excused differences.
    #[arg(long)]
    suite: String,
    /// Directory of the outputs (*.out) of the run with Smart Scan off.
    #[arg(long)]
    off: PathBuf,
    /// Directory of the outputs of the run with Smart Scan on.
    #[arg(long)]
    on: PathBuf,
    /// The list of excused differences.
    #[arg(long)]
    excused: PathBuf,
    /// Write this suite's part of the list instead of failing on an unlisted difference.
    #[arg(long)]
    update: bool,
    /// Tables were compressed during the second run: remove the injected lines, and excuse differences that VACUUM may cause.
    #[arg(long)]
    compressed: bool,
    /// Excuse differences of plans, and of orders that the statement leaves open, without being listed: the list was
    /// written for another major version.
    #[arg(long)]
    unlisted: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Piece<'a> {
    Text(Vec<&'a str>),
    Table { header: &'a str, rows: Vec<String> },
}

/// Maximum number of printed lines of an unlisted difference.
const SHOWN_LINES: usize = 30;

/// The kind of an allowed difference.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Kind {
    Plan,
    Order,
    Exact,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Plan => "plan",
            Kind::Order => "order",
            Kind::Exact => "exact",
        }
    }
}

/// Identifies a differing table: the test, the kind, and a digest of the statements before the table, with the table's
/// number among those of equal digest.
type Key = (String, Kind, String);

struct Found {
    key: Key,
    statement: String,
    smart_scan: bool,
    /// A plan, or an order that the statement leaves open: excused without being listed with `compressed` (VACUUM may cause
    /// the difference) and with `unlisted`.
    open: bool,
}

pub fn run(options: &Options) -> Result<bool> {
    let list = std::fs::read_to_string(&options.excused).unwrap_or_default();
    let excused = excused(&list, &options.suite)?;
    let mut names: Vec<String> = std::fs::read_dir(&options.off)
        .with_context(|| format!("cannot read {}", options.off.display()))?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok()?.strip_suffix(".out").map(str::to_owned))
        .collect();
    names.sort();
    if names.is_empty() {
        bail!("no outputs found in {}", options.off.display());
    }
    let (mut good, mut all_found) = (true, Vec::new());
    for name in &names {
        let read = |folder: &Path| {
            let bytes = std::fs::read(folder.join(format!("{name}.out")))
                .with_context(|| format!("cannot read the output of {name} in {}", folder.display()))?;
            // Some tests print bytes of other encodings; map each byte to a character.
            anyhow::Ok(bytes.iter().map(|&byte| byte as char).collect::<String>())
        };
        let outcome = read(&options.off).and_then(|off| Ok((off, read(&options.on)?))).map(|(off, on)| {
            let without_lines =
                |output: String| if options.compressed { inject::without_lines(&output) } else { output };
            (without_lines(off), without_lines(on))
        });
        let mut difference = Vec::new();
        let outcome = outcome.and_then(|(off, on)| {
            let (off, on) = (pieces(&off), pieces(&on));
            compare(name, &off, &on, options.compressed).inspect_err(|_| difference = exact_difference(&off, &on))
        });
        match outcome {
            Err(error) => {
                let lines: Vec<&str> = difference.iter().map(String::as_str).collect();
                let key = (name.clone(), Kind::Exact, fnv(&lines));
                if let Some(reason) = excused.get(&key) {
                    println!("ok - {} {name}: differs only as listed: {reason}", options.suite);
                    all_found.push(Found { key, statement: String::new(), smart_scan: false, open: false });
                    continue;
                }
                good = false;
                println!("not ok - {} {name}: {error:#}", options.suite);
                for line in lines.iter().take(SHOWN_LINES) {
                    println!("    {line}");
                }
                println!(
                    "    ({} differing lines; entry to list them: {} {name} exact {} REASON)",
                    lines.len(),
                    options.suite,
                    key.2
                );
            }
            Ok(found) => {
                let open_is_excused = options.compressed || options.unlisted;
                let is_excused = |found: &&Found| excused.contains_key(&found.key) || open_is_excused && found.open;
                let unlisted: Vec<&Found> = found.iter().filter(|found| !is_excused(found)).collect();
                if options.update || unlisted.is_empty() {
                    let detail = if found.is_empty() {
                        String::new()
                    } else {
                        format!(", {} excused plans or orders", found.len())
                    };
                    println!("ok - {} {name}: the same rows with Smart Scan{detail}", options.suite);
                } else {
                    good = false;
                    let first = unlisted[0];
                    println!(
                        "not ok - {} {name}: the same rows with Smart Scan: {} unlisted differences, the first ({}): {}",
                        options.suite,
                        unlisted.len(),
                        first.key.1.name(),
                        first.statement
                    );
                }
                all_found.extend(found);
            }
        }
    }
    if options.update {
        write_list(options, &list, &excused, &all_found)?;
    } else {
        for key in excused.keys().filter(|key| !options.unlisted && !is_used(key, &all_found)) {
            println!("note: unused entry: {} {} {}", key.0, key.1.name(), key.2);
        }
    }
    Ok(good)
}

/// Returns whether a run used the entry. A test may have one `exact` entry per major version; a run uses one of them.
fn is_used(key: &Key, found: &[Found]) -> bool {
    found
        .iter()
        .any(|found| found.key == *key || key.1 == Kind::Exact && found.key.1 == Kind::Exact && found.key.0 == key.0)
}

/// Splits the output of psql or isolationtester into aligned result tables and text.
fn pieces(output: &str) -> Vec<Piece<'_>> {
    let lines: Vec<&str> = output.lines().collect();
    let mut pieces = Vec::new();
    let mut text = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        match table_end(&lines, at) {
            Some(end) => {
                pieces.push(Piece::Text(std::mem::take(&mut text)));
                pieces.push(Piece::Table { header: lines[at], rows: rows(&lines[at + 2..end]) });
                at = end + 1;
            }
            None => {
                text.push(lines[at]);
                at += 1;
            }
        }
    }
    pieces.push(Piece::Text(text));
    pieces
}

/// Returns the index of the closing line "(N rows)" if the header of a table is at index `at`.
fn table_end(lines: &[&str], at: usize) -> Option<usize> {
    let rule = lines.get(at + 1)?;
    let header = lines[at];
    // A rule is as long as its header, and has a '+' where the header has a '|'. A comment of dashes is not a rule.
    let is_rule = !rule.is_empty()
        && rule.len() == header.len()
        && !header.starts_with("--")
        && rule.bytes().zip(header.bytes()).all(|(r, h)| r == b'-' || r == b'+' && h == b'|');
    if !is_rule {
        return None;
    }
    // A table without a closing line, such as the output of \d, ends at an empty line and counts as text.
    (at + 2..lines.len()).take_while(|&end| !lines[end].is_empty()).find(|&end| {
        let line = lines[end];
        line.starts_with('(') && (line.ends_with(" rows)") || line == "(1 row)")
    })
}

/// Returns the rows of a table. Joins the lines of a multi-line row ('+' before a column separator or the line end).
fn rows(lines: &[&str]) -> Vec<String> {
    let mut rows: Vec<String> = Vec::new();
    let mut continued = false;
    for line in lines {
        match rows.last_mut() {
            Some(row) if continued => {
                row.push('\n');
                row.push_str(line);
            }
            _ => rows.push((*line).to_owned()),
        }
        continued = line.trim_end().ends_with('+') || line.contains("+|");
    }
    rows
}

/// Returns whether EXPLAIN, or a function of the suite that runs EXPLAIN, printed the table.
fn is_plan(header: &str) -> bool {
    let header = header.trim();
    header == "QUERY PLAN" || header.starts_with("explain_") && !header.contains('|')
}

fn compare(test: &str, off: &[Piece<'_>], on: &[Piece<'_>], compressed: bool) -> Result<Vec<Found>> {
    let mut found = Vec::new();
    let mut repeated: BTreeMap<String, u32> = BTreeMap::new();
    let mut before = "";
    let (mut digest, mut order) = (String::new(), None);
    for (place, pair) in off.iter().zip(on).enumerate() {
        match pair {
            (Piece::Text(off), Piece::Text(on)) => {
                let same = off == on || compressed && notices_sorted(off) == notices_sorted(on);
                if !same {
                    let at = off.iter().zip(on).position(|(a, b)| a != b).unwrap_or(off.len().min(on.len()));
                    bail!("text differs: {:?} off, {:?} on, after {before:?}", off.get(at), on.get(at));
                }
                before = off.iter().rev().find(|line| !line.trim().is_empty()).unwrap_or(&before);
                digest = fnv(off);
                order = order_list(off);
            }
            (Piece::Table { header: off_header, rows: off }, Piece::Table { header: on_header, rows: on }) => {
                let count = repeated.entry(digest.clone()).or_default();
                *count += 1;
                let id = format!("{digest}.{count}");
                let statement = before.trim().chars().take(100).collect::<String>();
                if is_plan(off_header) && off_header.trim() == on_header.trim() {
                    if off != on {
                        let smart_scan = on.iter().any(|row| row.contains("(Smart Scan)"));
                        found.push(Found { key: (test.to_owned(), Kind::Plan, id), statement, smart_scan, open: true });
                    }
                } else if off_header != on_header {
                    bail!("table headers differ: {off_header:?} off, {on_header:?} on, after {before:?}");
                } else if off != on {
                    let open = order.as_ref().is_none_or(|list| only_ties_differ(list, off_header, off, on));
                    let (mut off, mut on) = (off.clone(), on.clone());
                    off.sort_unstable();
                    on.sort_unstable();
                    if off != on {
                        let only_off = off.iter().find(|row| !on.contains(row));
                        let only_on = on.iter().find(|row| !off.contains(row));
                        bail!(
                            "rows differ: {} off, {} on; only off {only_off:?}, only on {only_on:?}, after {before:?}",
                            off.len(),
                            on.len()
                        );
                    }
                    found.push(Found { key: (test.to_owned(), Kind::Order, id), statement, smart_scan: false, open });
                }
            }
            _ => bail!("piece {place} is a table in one run only, after {before:?}"),
        }
    }
    if off.len() != on.len() {
        bail!("{} tables off, {} on", off.len() / 2, on.len() / 2);
    }
    Ok(found)
}

/// Sorts each group of adjacent notices: triggers and functions emit notices in the order of rows.
fn notices_sorted<'a>(text: &[&'a str]) -> Vec<&'a str> {
    let is_notice = |line: &&str| ["NOTICE:", "DETAIL:", "CONTEXT:"].iter().any(|word| line.starts_with(word));
    let mut sorted = text.to_vec();
    sorted.chunk_by_mut(|a, b| is_notice(a) && is_notice(b)).for_each(<[&str]>::sort_unstable);
    sorted
}

/// Returns the items of the last statement's ORDER BY outside of parentheses and quotes, or None without an ORDER BY. A
/// parenthesis or quote remains in an item as the first character of what it encloses.
fn order_list(text: &[&str]) -> Option<Vec<String>> {
    let end = text.iter().rposition(|line| !line.trim().is_empty()).unwrap_or(0);
    let start = text[..end].iter().rposition(|line| line.trim_end().ends_with(';')).map_or(0, |at| at + 1);
    let mut depth = 0_usize;
    let (mut outside, mut quoted) = (String::new(), false);
    for line in &text[start..] {
        for c in line.split("--").next().unwrap_or_default().chars() {
            match c {
                '\'' => {
                    quoted = !quoted;
                    outside.push_str(" ' ");
                }
                _ if quoted => {}
                '(' => {
                    depth += 1;
                    outside.push_str(" ( ");
                }
                ')' => depth = depth.saturating_sub(1),
                _ if depth == 0 => outside.extend(c.to_lowercase()),
                _ => {}
            }
        }
        outside.push(' ');
    }
    let words: Vec<&str> = outside.split_whitespace().collect();
    let list = words.windows(2).rposition(|pair| pair == ["order", "by"])? + 2;
    let ends = |word: &&&str| !["limit", "offset", "fetch", "for"].contains(*word);
    let list = words[list..].iter().take_while(ends).copied().collect::<Vec<_>>().join(" ");
    Some(list.trim_end_matches(';').split(',').map(|item| item.trim().to_owned()).collect())
}

/// Returns whether rows differ only in the order of ties: each item of the ORDER BY is a column of the output, and these
/// columns have the same values in the same order in both outputs.
fn only_ties_differ(order: &[String], header: &str, off: &[String], on: &[String]) -> bool {
    let names: Vec<&str> = header.split('|').map(str::trim).collect();
    let column = |item: &String| {
        let (name, options) = item.split_once(' ').unwrap_or((item, ""));
        let known = options.split(' ').all(|word| ["", "asc", "desc", "nulls", "first", "last"].contains(&word));
        let mut places = names.iter().enumerate().filter(|(place, of)| **of == name || (place + 1).to_string() == name);
        match (known, places.next(), places.next()) {
            (true, Some((place, _)), None) => Some(place),
            _ => None,
        }
    };
    let Some(columns) = order.iter().map(column).collect::<Option<Vec<_>>>() else { return false };
    let keys = |rows: &[String]| -> Option<Vec<Vec<String>>> {
        let key = |row: &String| {
            let fields: Vec<&str> = row.split('|').collect();
            let whole = fields.len() == names.len() && !row.contains('\n');
            whole.then(|| columns.iter().map(|&column| fields[column].to_owned()).collect())
        };
        rows.iter().map(key).collect()
    };
    keys(off).is_some_and(|off| keys(on).is_some_and(|on| off == on))
}

/// Returns the lines that only one run has, in order, without plans and without numbers in error messages.
fn exact_difference(off: &[Piece<'_>], on: &[Piece<'_>]) -> Vec<String> {
    let lines = |pieces: &[Piece<'_>]| -> Vec<String> {
        let mut lines = Vec::new();
        for piece in pieces {
            match piece {
                Piece::Text(text) => lines.extend(text.iter().map(|line| without_numbers(line))),
                Piece::Table { header, .. } if is_plan(header) => lines.push("<plan>".to_owned()),
                Piece::Table { header, rows } => {
                    lines.push((*header).to_owned());
                    lines.extend(rows.iter().cloned());
                }
            }
        }
        lines
    };
    let (off, on) = (lines(off), lines(on));
    let start = off.iter().zip(&on).take_while(|(a, b)| a == b).count();
    let rest = off.len().min(on.len()) - start;
    let end = off.iter().rev().zip(on.iter().rev()).take(rest).take_while(|(a, b)| a == b).count();
    let (off, on) = (&off[start..off.len() - end], &on[start..on.len() - end]);
    // Longest common subsequence by dynamic programming; outputs have some thousand lines.
    let width = on.len() + 1;
    let mut longest = vec![0_u32; (off.len() + 1) * width];
    for i in (0..off.len()).rev() {
        for j in (0..on.len()).rev() {
            longest[i * width + j] = if off[i] == on[j] {
                longest[(i + 1) * width + j + 1] + 1
            } else {
                longest[(i + 1) * width + j].max(longest[i * width + j + 1])
            };
        }
    }
    let (mut i, mut j, mut difference) = (0, 0, Vec::new());
    while i < off.len() || j < on.len() {
        if i < off.len() && j < on.len() && off[i] == on[j] {
            (i, j) = (i + 1, j + 1);
        } else if j == on.len() || i < off.len() && longest[(i + 1) * width + j] >= longest[i * width + j + 1] {
            difference.push(format!("-{}", off[i]));
            i += 1;
        } else {
            difference.push(format!("+{}", on[j]));
            j += 1;
        }
    }
    difference
}

/// Replaces numbers in an error message by '#': object identifiers differ between runs.
fn without_numbers(line: &str) -> String {
    if !line.starts_with("ERROR:") {
        return line.to_owned();
    }
    let mut text = String::new();
    for c in line.chars() {
        let c = if c.is_ascii_digit() { '#' } else { c };
        if c != '#' || !text.ends_with('#') {
            text.push(c);
        }
    }
    text
}

/// Returns the FNV-1a hash, which is sufficient to distinguish statements of one file.
fn fnv(lines: &[&str]) -> String {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in lines.iter().flat_map(|line| line.bytes().chain([b'\n'])) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    format!("{hash:016x}")
}

/// Parses the entries of a suite and their reasons: `suite test kind digest.number reason — statement`.
fn excused(list: &str, suite: &str) -> Result<BTreeMap<Key, String>> {
    let mut entries = BTreeMap::new();
    for (number, line) in list.lines().enumerate() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let mut fields = line.splitn(5, ' ');
        let mut field = || fields.next().with_context(|| format!("line {} of the list is too short", number + 1));
        let (of, test, kind, digest, reason) = (field()?, field()?, field()?, field()?, field()?);
        let kind = match kind {
            "plan" => Kind::Plan,
            "order" => Kind::Order,
            "exact" => Kind::Exact,
            _ => bail!("line {} of the list: unknown kind \"{kind}\"", number + 1),
        };
        if of == suite {
            entries.insert((test.to_owned(), kind, digest.to_owned()), reason.to_owned());
        }
    }
    Ok(entries)
}

/// Returns whether `--update` rewrites the line: a `plan` or `order` entry of the suite.
fn is_written(line: &str, suite: &str) -> bool {
    let mut fields = line.split(' ');
    fields.next() == Some(suite) && matches!(fields.nth(1), Some("plan" | "order"))
}

fn write_list(options: &Options, list: &str, old: &BTreeMap<Key, String>, found: &[Found]) -> Result<()> {
    let mut text = String::new();
    for line in list.lines().filter(|line| !is_written(line, &options.suite)) {
        writeln!(text, "{line}")?;
    }
    for Found { key, statement, smart_scan, .. } in found.iter().filter(|found| found.key.1 != Kind::Exact) {
        let reason = match (key.1, smart_scan) {
            (Kind::Plan, true) => "the plan has a Smart Scan".to_owned(),
            (Kind::Plan, false) => "the plan is another one at Smart Scan's cost of zero".to_owned(),
            (Kind::Order, _) => "the statement leaves the order open".to_owned(),
            (Kind::Exact, _) => bail!("exact differences are only listed by hand"),
        };
        let reason = old.get(key).cloned().unwrap_or(format!("{reason} — {statement}"));
        writeln!(text, "{} {} {} {} {reason}", options.suite, key.0, key.1.name(), key.2)?;
    }
    std::fs::write(&options.excused, text).with_context(|| format!("cannot write {}", options.excused.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OFF: &str = "select a from t;\n a \n---\n 1\n 2\n(2 rows)\n\nexplain select a from t;\n  QUERY PLAN   \n---------------\n Seq Scan on t\n(1 row)\n\n";

    fn check(off: &str, on: &str) -> Result<Vec<Key>> {
        Ok(compare("test", &pieces(off), &pieces(on), false)?.into_iter().map(|found| found.key).collect())
    }

    #[test]
    fn exact_entries_of_other_major_versions_are_not_reported_as_unused() {
        let key = |test: &str, kind, digest: &str| (test.to_owned(), kind, digest.to_owned());
        let found = |key| Found { key, statement: String::new(), smart_scan: false, open: false };
        let found = [found(key("stats", Kind::Exact, "15")), found(key("join", Kind::Plan, "a.1"))];
        assert!(is_used(&key("stats", Kind::Exact, "15"), &found));
        assert!(is_used(&key("stats", Kind::Exact, "17"), &found));
        assert!(is_used(&key("join", Kind::Plan, "a.1"), &found));
        assert!(!is_used(&key("join", Kind::Plan, "b.1"), &found));
        assert!(!is_used(&key("brin", Kind::Exact, "15"), &found));
    }

    #[test]
    fn equal_outputs_have_no_difference() {
        assert!(check(OFF, OFF).unwrap().is_empty());
    }

    #[test]
    fn a_changed_plan_is_reported_as_a_plan() {
        let on = OFF.replace(" Seq Scan on t", " Custom Scan (Smart Scan) on t");
        let found = check(OFF, &on).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].1, Kind::Plan);
    }

    #[test]
    fn a_changed_order_is_reported_as_an_order() {
        let found = check(OFF, &OFF.replace(" 1\n 2\n", " 2\n 1\n")).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].1, Kind::Order);
    }

    #[test]
    fn wrong_missing_and_additional_rows_cannot_be_excused() {
        assert!(check(OFF, &OFF.replace(" 1\n 2\n", " 1\n 3\n")).is_err());
        assert!(check(OFF, &OFF.replace(" 1\n 2\n(2 rows)", " 1\n(1 row)")).is_err());
        assert!(check(OFF, &OFF.replace(" 1\n 2\n(2 rows)", " 1\n 2\n 2\n(3 rows)")).is_err());
        assert!(check(OFF, &OFF.replace(" a \n---\n 1\n 2\n(2 rows)\n", "ERROR:  no\n")).is_err());
    }

    #[test]
    fn an_exact_difference_contains_everything_except_plans() {
        let on = OFF.replace(" 2\n", " 3\n").replace(" Seq Scan on t", " Index Scan    ");
        assert_eq!(exact_difference(&pieces(OFF), &pieces(&on)), ["- 2", "+ 3"]);
        let (off, on) = ("a\nERROR:  operator 12\nb\n", "a\nERROR:  operator 345\nWARNING:  x\nb\n");
        assert_eq!(exact_difference(&pieces(off), &pieces(on)), ["+WARNING:  x"]);
    }

    #[test]
    fn with_compression_adjacent_notices_may_be_reordered_but_not_changed() {
        let differ =
            |on: &str| compare("test", &pieces("DELETE\nNOTICE:  1\nNOTICE:  2\n"), &pieces(on), true).is_err();
        assert!(!differ("DELETE\nNOTICE:  2\nNOTICE:  1\n"));
        assert!(differ("DELETE\nNOTICE:  2\nNOTICE:  2\n") && differ("DELETE\nNOTICE:  1\n"));
        assert!(differ("NOTICE:  1\nDELETE\nNOTICE:  2\n"));
    }

    #[test]
    fn only_the_order_by_of_the_last_statement_counts() {
        let ordered = |text: &str| order_list(&text.lines().collect::<Vec<_>>()).is_some();
        assert!(ordered("SELECT 1;\nSELECT *\n  FROM t ORDER\n  BY (a);\n"));
        assert!(ordered("table t order by 1;"));
        assert!(!ordered("SELECT * FROM t ORDER BY 1;\nSELECT * FROM t;"));
        assert!(!ordered(
            "SELECT a -- ORDER BY\n, rank() OVER (ORDER BY a) FROM\n  (SELECT * FROM t ORDER BY a) t;\n\n"
        ));
    }

    #[test]
    fn an_order_that_differs_only_in_ties_is_open() {
        let output = |order: &str, rows: [&str; 3]| {
            format!("SELECT a, b FROM t\n ORDER BY {order};\n a | b \n---+---\n{}\n(3 rows)\n", rows.join("\n"))
        };
        let open = |order: &str, on: [&str; 3]| {
            let (off, on) = (output(order, [" 1 |  ", " 2 |  ", " 3 | 7"]), output(order, on));
            compare("test", &pieces(&off), &pieces(&on), false).unwrap()[0].open
        };
        let (swapped, wrong) = ([" 2 |  ", " 1 |  ", " 3 | 7"], [" 1 |  ", " 3 | 7", " 2 |  "]);
        for order in ["b", "b DESC LIMIT 3", "2 NULLS FIRST"] {
            assert!(open(order, swapped), "{order}");
            assert!(!open(order, wrong), "{order}");
        }
        for order in ["a", "b, a", "b + 1", "b(a)", "(b)", "b || 'x'", "c", "3"] {
            assert!(!open(order, swapped), "{order}");
        }
    }

    #[test]
    fn a_multi_line_row_is_one_row() {
        let off = " a  \n----\n x +\n y\n x +\n z\n(2 rows)\n";
        let swapped = " a  \n----\n x +\n z\n x +\n y\n(2 rows)\n";
        let mixed = " a  \n----\n y +\n x\n x +\n z\n(2 rows)\n";
        assert_eq!(check(off, swapped).unwrap().len(), 1);
        assert!(check(off, mixed).is_err());
    }
}
