//! Detects by its content what a file is: encoding, form and kind of the report. For a file that no reader supports, says what the
//! file seems to be.

use super::model::{Form, Kind};
use std::borrow::Cow;
use std::fmt;

/// Bytes of the beginning that are searched first. Heads with style sheets take some kilobytes.
const HEAD_BYTES: usize = 256 * 1024;

/// Lines of the head of our own reports.
const OWN_HEAD_LINES: usize = 40;

/// Why a file is not read. The text is one line that says what the file seems to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    Empty,
    /// What the first bytes say.
    Binary(&'static str),
    /// A web page of a portal, with its title.
    LoginPage(String),
    /// Another web page, with its title.
    WebPage(String),
    /// A report of Oracle that this release does not read.
    OtherReport(&'static str),
    /// Another text, with its first line.
    NoReport(String),
    /// JSON that is no report of ours, with the reason.
    NoJsonReport(String),
    /// Larger than the model can address.
    TooLarge,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the file is empty"),
            Self::Binary(what) => write!(f, "not a report: the file seems to be {what}"),
            Self::LoginPage(title) if title.is_empty() => {
                f.write_str("not a report: the file seems to be a login page saved as HTML")
            }
            Self::LoginPage(title) => {
                write!(f, "not a report: the file seems to be a login page saved as HTML (\"{title}\")")
            }
            Self::WebPage(title) if title.is_empty() => {
                f.write_str("not a report: the file seems to be another web page")
            }
            Self::WebPage(title) => write!(f, "not a report: the file seems to be a web page (\"{title}\")"),
            Self::OtherReport(what) => {
                write!(f, "the file is {what}; only AWR and Statspack reports are read")
            }
            Self::NoReport(line) => write!(f, "not a report: the file is a text that begins with \"{line}\""),
            Self::NoJsonReport(reason) => {
                write!(f, "not a report: the file is JSON, but no report or document of \"cellar awr\": {reason}")
            }
            Self::TooLarge => f.write_str("the file is larger than 2 GB"),
        }
    }
}

impl std::error::Error for Refusal {}

/// The text of a file, and its encoding.
pub fn decode(bytes: &[u8]) -> Result<(Cow<'_, str>, &'static str), Refusal> {
    if bytes.iter().take(HEAD_BYTES).all(u8::is_ascii_whitespace) && bytes.len() <= HEAD_BYTES {
        return Err(Refusal::Empty);
    }
    if bytes.len() > i32::MAX as usize {
        return Err(Refusal::TooLarge);
    }
    if let Some((encoding, length)) = encoding_rs::Encoding::for_bom(bytes) {
        let (text, _) = encoding.decode_without_bom_handling(&bytes[length..]);
        return Ok((text, encoding.name()));
    }
    let head = &bytes[..bytes.len().min(4096)];
    let zeros = |parity: usize| head.iter().skip(parity).step_by(2).filter(|byte| **byte == 0).count() * 2;
    for (parity, encoding) in [(1, encoding_rs::UTF_16LE), (0, encoding_rs::UTF_16BE)] {
        if head.len() >= 8 && zeros(parity) > head.len() * 3 / 4 && zeros(1 - parity) < head.len() / 8 {
            let (text, _) = encoding.decode_without_bom_handling(bytes);
            return Ok((text, encoding.name()));
        }
    }
    // All documents of Microsoft Office have this member.
    if head.starts_with(b"PK\x03\x04") && find(bytes, "[Content_Types].xml", 0).is_some() {
        return Err(Refusal::Binary("a document of Microsoft Office"));
    }
    if head.get(257..262) == Some(b"ustar") {
        return Err(Refusal::Binary("a tar archive"));
    }
    if let Some(what) = binary(head) {
        return Err(Refusal::Binary(what));
    }
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok((Cow::Borrowed(text), "UTF-8")),
        Err(_) => {
            let (mut invalid, mut multibyte) = (0usize, 0usize);
            for chunk in bytes.utf8_chunks() {
                invalid += usize::from(!chunk.invalid().is_empty());
                multibyte += chunk.valid().chars().filter(|c| !c.is_ascii()).count();
            }
            let encoding = if multibyte > invalid { encoding_rs::UTF_8 } else { encoding_rs::WINDOWS_1252 };
            let (text, _) = encoding.decode_without_bom_handling(bytes);
            Ok((text, encoding.name()))
        }
    }
}

/// What a binary file is, by its first bytes.
fn binary(head: &[u8]) -> Option<&'static str> {
    let known: [(&[u8], &str); 12] = [
        (b"%PDF", "a PDF document"),
        (b"PK\x03\x04", "a ZIP archive"),
        (b"\x1f\x8b", "a gzip file"),
        (b"\x28\xb5\x2f\xfd", "a Zstandard file"),
        (b"BZh", "a bzip2 file"),
        (b"\xfd7zXZ", "an xz file"),
        (b"\x89PNG", "a PNG image"),
        (b"\xff\xd8\xff", "a JPEG image"),
        (b"\x7fELF", "a program"),
        (b"\xd0\xcf\x11\xe0", "a document of Microsoft Office"),
        (b"\x03\x00EXPORT:V", "an Oracle export dump"),
        (b"SQLite format", "an SQLite database"),
    ];
    if let Some((_, what)) = known.iter().find(|(magic, _)| head.starts_with(magic)) {
        return Some(what);
    }
    let control = |byte: &&u8| **byte < 9 || (14..32).contains(*byte) || **byte == 127;
    (head.contains(&0) || head.iter().filter(control).count() * 10 > head.len()).then_some("binary data")
}

/// Finds a text without regard to ASCII case. Linear: candidates begin with either case of the first letter.
fn find(text: &[u8], needle: &str, from: usize) -> Option<usize> {
    let needle = needle.as_bytes();
    let first = [needle[0].to_ascii_lowercase(), needle[0].to_ascii_uppercase()];
    let last = text.len().checked_sub(needle.len())?;
    (from..=last).find(|at| first.contains(&text[*at]) && text[*at..*at + needle.len()].eq_ignore_ascii_case(needle))
}

/// The words behind an offset, without tags.
fn words(text: &str, at: usize) -> String {
    let mut end = (at + 160).min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[at..end].split_whitespace().collect::<Vec<_>>().join(" ").to_ascii_lowercase()
}

/// What a decoded file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Detected {
    pub form: Form,
    pub kind: Kind,
    /// The title was not found: the beginning is missing, and other marks told the kind.
    pub headless: bool,
}

/// Recognizes a report by its title, or else by the headings of its sections.
pub fn detect(text: &str) -> Result<Detected, Refusal> {
    let bytes = text.as_bytes();
    let head = &bytes[..bytes.len().min(HEAD_BYTES)];
    let begins = text.trim_start_matches(|c: char| c.is_whitespace() || c == '\u{feff}');
    let has_tables = find(head, "<table", 0).is_some();
    let is_html = has_tables || (begins.starts_with('<') && find(head, "<html", 0).is_some());
    let form = if is_html { Form::Html } else { Form::Text };
    let detected = |kind| Ok(Detected { form, kind, headless: false });
    if super::own::is_json(text) {
        return Ok(Detected { form: Form::Json, kind: Kind::Cellar, headless: false });
    }
    if let Some(at) = find(head, "name=\"generator\" content=\"cellar awr", 0).or_else(|| find(head, "cellar awr ", 0))
        && at < 1000
    {
        return detected(Kind::Cellar);
    }
    // The head of our own text reports names the release of Cellar beside the host.
    let is_own_host = |line: &str| line.starts_with("Host Name") && line.trim_end().ends_with(" Cellar");
    if form == Form::Text && text.lines().take(OWN_HEAD_LINES).any(is_own_host) {
        return detected(Kind::Cellar);
    }
    let mut from = 0;
    while let Some(at) = find(head, "WORKLOAD REPOSITORY", from) {
        let title = words(text, at);
        let title = title.trim_start_matches("workload repository").trim_start();
        let kind = match title {
            title if title.contains("compare period") => Some(Kind::Compare),
            title if title.starts_with("report (rac)") || title.starts_with("rac report") => Some(Kind::Global),
            title if title.starts_with("pdb report") => Some(Kind::Pdb),
            title if title.starts_with("sql report") => Some(Kind::Sql),
            title if title.starts_with("report") => Some(Kind::Instance),
            _ => None,
        };
        if let Some(kind) = kind {
            return detected(kind);
        }
        from = at + 1;
    }
    if find(head, "STATSPACK report for", 0).is_some() || find(head, "STATSPACK Statistics Report for", 0).is_some() {
        return detected(Kind::Statspack);
    }
    let others = [
        ("ASH Report For", "an ASH report"),
        ("ASH Report -", "an ASH report"),
        ("ASH Global Report", "an ASH report"),
        ("ADDM Report for", "an ADDM report"),
        ("DETAILED ADDM REPORT", "an ADDM report"),
        ("Performance Hub", "a Performance Hub report"),
        ("SQL Monitoring Report", "an SQL monitoring report"),
        ("SQL Monitor Report", "an SQL monitoring report"),
        ("TKPROF: Release", "a TKPROF report"),
    ];
    for (mark, what) in others {
        if find(head, mark, 0).is_some() {
            return Err(Refusal::OtherReport(what));
        }
    }
    let marks = ["Snaps: ", "Load Profile", "Time Model", "Instance Activity Stats", "Wait Events", "SQL ordered by"];
    let found = marks.iter().filter(|mark| find(bytes, mark, 0).is_some()).count();
    if found >= 2 {
        let is_global = find(bytes, "System Statistics - Per Second", 0).is_some();
        let kind = if is_global { Kind::Global } else { Kind::Instance };
        return Ok(Detected { form, kind, headless: true });
    }
    Err(refusal(text, head, is_html || begins.starts_with('<')))
}

fn refusal(text: &str, head: &[u8], is_markup: bool) -> Refusal {
    if is_markup {
        let title = find(head, "<title", 0)
            .and_then(|at| text[at..].split_once('>'))
            .map_or("", |(_, title)| title.split('<').next().unwrap_or(""));
        let title = shortened(title);
        let marks =
            ["type=\"password\"", "type='password'", "type=password", "sign in", "log in", "login", "single sign-on"];
        return match marks.iter().any(|mark| find(head, mark, 0).is_some()) {
            true => Refusal::LoginPage(title),
            false => Refusal::WebPage(title),
        };
    }
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("");
    Refusal::NoReport(shortened(line))
}

/// A text on one line, at most 60 characters, without control characters.
fn shortened(text: &str) -> String {
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut line: String = line.chars().filter(|c| !c.is_control()).take(61).collect();
    if line.chars().count() > 60 {
        line.pop();
        line.push('…');
    }
    line
}
