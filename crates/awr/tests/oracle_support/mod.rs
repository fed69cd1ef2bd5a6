//! Generates reports in Oracle's formats, and writes small reports by hand.

use cellar_awr::oracle::model::{Report, Row, Table, same_name};
use std::collections::BTreeMap;
use std::fmt::Write;

/// A generator of random numbers (xorshift64*).
pub struct Random {
    pub seed: u64,
    state: u64,
}

impl Random {
    /// The seed of CELLAR_SEED, or a fixed one.
    pub fn from_environment() -> Self {
        let seed = std::env::var("CELLAR_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20_261_126);
        Self { seed, state: seed | 1 }
    }

    pub fn below(&mut self, bound: usize) -> usize {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        (self.state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % bound
    }

    fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }
}

pub struct SourceTable {
    pub heading: String,
    /// Name, width, and whether cells are aligned to the left.
    columns: Vec<(String, usize, bool)>,
    pub rows: Vec<Vec<String>>,
}

impl SourceTable {
    pub fn names(&self) -> Vec<&str> {
        self.columns.iter().map(|(name, ..)| name.as_str()).collect()
    }
}

/// Tables of an instance report.
pub struct Source {
    pub tables: Vec<SourceTable>,
}

const HEADINGS: [&str; 8] = [
    "Foreground Wait Events",
    "Instance Activity Stats",
    "Segments by Logical Reads",
    "Latch Activity",
    "A Section of a Later Release",
    "Undo Segment Summary",
    "PGA Aggr Target Stats",
    "File IO Stats",
];
const WORDS: [&str; 10] =
    ["Event", "Waits", "Total", "Avg (ms)", "% DB time", "Name", "Reqs/s", "Size (M)", "Class", "Tr&ns"];
const TEXTS: [&str; 7] = ["db file sequential read", "enq: TX - row", "a<b", "R&D", "cursor: pin S", "SYS$USERS", "x"];

impl Source {
    pub fn generate(random: &mut Random) -> Self {
        let mut tables = Vec::new();
        for index in 0..1 + random.below(4) {
            let heading = format!("{} {index}", HEADINGS[random.below(HEADINGS.len())]);
            let columns: Vec<(String, usize, bool)> = (0..2 + random.below(6))
                .map(|column| {
                    let name = format!("{} {column}", WORDS[random.below(WORDS.len())]);
                    let width = name.len() + random.below(12);
                    // The first column has names.
                    if column == 0 { (name, width.max(32), true) } else { (name, width, random.chance(4)) }
                })
                .collect();
            let rows = (0..1 + random.below(30)).map(|row| {
                let cells = columns.iter().enumerate().map(|(index, (_, width, _))| match index {
                    0 => format!("{row} {}", TEXTS[random.below(TEXTS.len())]),
                    // At least one figure follows the name: a line with a name only may be a wrapped name.
                    1 => random.below(1000).to_string(),
                    _ if random.chance(5) => String::new(),
                    _ => number(random, *width),
                });
                cells.collect()
            });
            let rows = rows.collect();
            tables.push(SourceTable { heading, columns, rows });
        }
        Self { tables }
    }

    /// The report as HTML: tags of either case, quoted and unquoted attributes, with and without end tags.
    pub fn html(&self, random: &mut Random) -> String {
        let upper = random.chance(2);
        let open = random.chance(2);
        let tag = |name: &str| if upper { name.to_uppercase() } else { name.to_owned() };
        let end = |name: &str| if open { "\n".to_owned() } else { format!("</{}>", tag(name)) };
        let mut out = format!(
            "<html><head><title>AWR Report for DB: ORCL, Inst: orcl, Snaps: 1-2</title></head><body>{HEAD_HTML}"
        );
        for table in &self.tables {
            let _ = write!(out, "<{}>{}</{}>", tag("h3"), table.heading, tag("h3"));
            let _ = write!(out, "<ul><li>a note</li></ul><{} class=tdiff summary=\"about\n it\">", tag("table"));
            let _ = write!(out, "<{}>", tag("tr"));
            for name in table.names() {
                let _ = write!(out, "<{} class=awrbg scope=\"col\">{}{}", tag("th"), escaped(name), end("th"));
            }
            out.push_str(&end("tr"));
            for row in &table.rows {
                let _ = write!(out, "<{}>", tag("tr"));
                for cell in row {
                    let blank = ["", "&#160;", "&nbsp;", "  "][random.below(4)];
                    let text = if cell.is_empty() { blank.to_owned() } else { format!("  {}", escaped(cell)) };
                    let _ = write!(out, "<{} align=right>{text}{}", tag("td"), end("td"));
                }
                out.push_str(&end("tr"));
            }
            let _ = write!(out, "</{}><a href=\"#top\">Back to Top</a><p />", tag("table"));
        }
        out.push_str("\nEnd of Report\n</body></html>\n");
        out
    }

    /// The report as text: names on one or two lines, page breaks in the middle of tables.
    pub fn text(&self, random: &mut Random) -> String {
        let line_end = ["\n", "\r\n"][random.below(2)];
        let mut out = HEAD_TEXT.to_owned();
        for table in &self.tables {
            let header = |out: &mut String, two_lines: bool| {
                let _ = writeln!(out, "{:<46}DB/Inst: ORCL/orcl  Snaps: 1-2\n-> a note\n", table.heading);
                for line in 0..2 {
                    let names: Vec<String> = table
                        .columns
                        .iter()
                        .map(|(name, width, left)| {
                            let (first, rest) = name.rsplit_once(' ').unwrap_or(("", name));
                            let name = match (two_lines, line) {
                                (true, 0) => first,
                                (true, _) => rest,
                                (false, 0) => "",
                                (false, _) => name,
                            };
                            if *left { format!("{name:<width$}") } else { format!("{name:>width$}") }
                        })
                        .collect();
                    let names = names.join(" ");
                    if !names.trim().is_empty() {
                        let _ = writeln!(out, "{}", names.trim_end());
                    }
                }
                let ruler: Vec<String> = table.columns.iter().map(|(_, width, _)| "-".repeat(*width)).collect();
                let _ = writeln!(out, "{}", ruler.join(" "));
            };
            let two_lines = random.chance(2);
            header(&mut out, two_lines);
            for (index, row) in table.rows.iter().enumerate() {
                if index > 0 && random.chance(10) {
                    out.push('\u{c}');
                    header(&mut out, two_lines);
                }
                let cells: Vec<String> = table
                    .columns
                    .iter()
                    .zip(row)
                    .map(
                        |((_, width, left), cell)| {
                            if *left { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
                        },
                    )
                    .collect();
                let _ = writeln!(out, "{}", cells.join(" ").trim_end());
            }
            let _ = writeln!(out, "{}{}\n", " ".repeat(26), "-".repeat(54));
        }
        out.push_str("End of Report\n");
        out.replace('\n', line_end)
    }
}

/// A figure of at most a width, in one of the forms of reports.
fn number(random: &mut Random, width: usize) -> String {
    let value = random.below(1_000_000);
    let forms = [
        value.to_string(),
        format!(".{}", value % 100),
        format!("{}.{}", value % 1000, value % 10),
        format!("{},{:03}", value % 1000, value % 997),
        format!("{}.{}K", value % 100, value % 10),
        format!("{}us", value % 1000),
        "N/A".to_owned(),
        "#####".to_owned(),
        "1.E+03".to_owned(),
        format!("-{}", value % 10),
    ];
    let form = &forms[random.below(forms.len())];
    if form.len() <= width { form.clone() } else { (value % 10).to_string() }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

const HEAD_TEXT: &str = "
WORKLOAD REPOSITORY report for

DB Name         DB Id    Instance     Inst Num Startup Time    Release     RAC
------------ ----------- ------------ -------- --------------- ----------- ---
ORCL          1380142923 orcl                1 10-Jul-14 03:10 11.2.0.4.0  NO

";

const HEAD_HTML: &str = "<h1 class=\"awr\">WORKLOAD REPOSITORY report for</h1><p />
<table summary=\"This table displays database instance information\"><tr><th>DB Name</th><th>DB Id</th><th>Instance</th><th>Inst num</th>
<th>Startup Time</th><th>Release</th><th>RAC</th></tr><tr><td>ORCL</td><td>1380142923</td><td>orcl</td><td>1</td>
<td>10-Jul-14 03:10</td><td>11.2.0.4.0</td><td>NO</td></tr></table><p />";

/// An hour of an instance, as text.
pub fn instance_text() -> String {
    include_str!("instance.txt").to_owned()
}

/// The same hour as HTML.
pub fn instance_html() -> String {
    include_str!("instance.html").to_owned()
}

/// The value of a row and a column, for comparisons: texts without blanks.
fn cell(row: Row<'_>, column: usize) -> String {
    row.text(column).split_whitespace().collect::<String>().to_lowercase()
}

/// Why a cell of the text form differs from the cell of the HTML form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// Text reports cut names to the width of the column.
    CutInText,
    /// HTML reports cut SQL text, and end it with three points.
    CutInHtml,
    /// One form prints fewer digits: the values are equal up to the last printed digit.
    Rounded,
    /// The text form prints N/A, the HTML form nothing.
    NotApplicable,
    /// The text form prints a name in the first of the rows that have it.
    NotRepeated,
    /// The forms have different labels for a figure.
    OtherLabel,
    /// The forms were written at different times, and the time of startup is derived.
    OtherTime,
    /// The forms arrange the table differently.
    OtherLayout,
    Unexplained,
}

fn cause(text: (&str, Row<'_>, usize), html: (&str, Row<'_>, usize)) -> Option<Cause> {
    let ((one, text_row, text_column), (two, html_row, html_column)) = (text, html);
    let values = text_row.value(text_column).zip(html_row.value(html_column));
    let near = |x: f64, y: f64, error: f64| (x - y).abs() <= error + 1e-9 * y.abs();
    match () {
        () if one == two => None,
        () if values.is_some_and(|(x, y)| near(x.number, y.number, x.error + y.error)) => Some(Cause::Rounded),
        () if two.strip_suffix("...").is_some_and(|two| one.starts_with(two)) => Some(Cause::CutInHtml),
        () if one == "n/a" && two.is_empty() => Some(Cause::NotApplicable),
        () if (two.starts_with(one) || two.ends_with(one)) && !one.is_empty() => Some(Cause::CutInText),
        () if text_column == 0 && one.ends_with(':') && two.ends_with(':') => Some(Cause::OtherLabel),
        () => Some(Cause::Unexplained),
    }
}

/// Every table of the HTML form that the text form has, too, has the same rows; cells differ only for a known cause.
pub fn assert_twins(html: &Report, text: &Report) {
    let (mut compared, mut tables) = (0, 0);
    let mut causes: BTreeMap<Cause, usize> = BTreeMap::new();
    let mut unexplained = Vec::new();
    for section in text.sections() {
        let Some(other) = html.section(section.heading()) else { continue };
        for (a, b) in section.tables().zip(other.tables()) {
            tables += 1;
            compare(section.heading(), a, b, &mut compared, &mut causes, &mut unexplained);
        }
    }
    println!("twins: {tables} tables, {compared} cells compared, differences {causes:?}: {unexplained:#?}");
    assert!(tables > 90 && compared > 5000);
    assert_eq!(unexplained, [] as [String; 0]);
    assert!(causes.get(&Cause::OtherLayout).is_none_or(|tables| *tables <= 3), "{causes:?}");
}

fn compare(
    heading: &str,
    text: Table<'_>,
    html: Table<'_>,
    compared: &mut usize,
    causes: &mut BTreeMap<Cause, usize>,
    unexplained: &mut Vec<String>,
) {
    if text.rows().len() != html.rows().len() {
        println!("{heading}: {} rows, {} rows", text.rows().len(), html.rows().len());
        *causes.entry(Cause::OtherLayout).or_default() += 1;
        return;
    }
    for (position, column) in text.columns().enumerate() {
        let same = |other: &cellar_awr::oracle::model::Column<'_>| same_name(other.name(), column.name());
        let same_position = html.columns().nth(position).filter(same).map(|_| position);
        let Some(other) = same_position.or_else(|| html.columns().position(|other| same(&other))) else { continue };
        let mut above = String::new();
        for (a, b) in text.rows().zip(html.rows()) {
            let (one, two) = (cell(a, position), cell(b, other));
            *compared += 1;
            let before = std::mem::replace(&mut above, two.clone());
            let is_repeated = one.is_empty() && two == before;
            if let Some(cause) = cause((&one, a, position), (&two, b, other)) {
                let cause = match cause {
                    Cause::Unexplained if is_repeated => Cause::NotRepeated,
                    Cause::Unexplained if column.name() == "Startup Time" => Cause::OtherTime,
                    cause => cause,
                };
                *causes.entry(cause).or_default() += 1;
                if cause == Cause::Unexplained {
                    unexplained.push(format!("{heading} line {} {}: \"{one}\" \"{two}\"", a.line(), column.name()));
                }
            }
        }
    }
}
