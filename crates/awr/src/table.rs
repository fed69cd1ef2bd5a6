//! The table model: typed cells, their text and their JSON form.
//!
//! A cell contains the figure in its base unit (microseconds, bytes). Text rounds; JSON and sorting do not.

use crate::document::{How, Measure};
use crate::sql_id;
use serde_json::{Value, json};

#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// Not available. Never means 0.
    Absent,
    Text(String),
    SqlId(i64),
    Count(f64),
    /// A number with digits after the point.
    Decimal(f64, usize),
    /// Microseconds, printed as seconds with digits after the point.
    Seconds(f64, usize),
    /// Microseconds, printed in a suitable unit: 564.00us, 4.96ms.
    Duration(f64),
    /// Bytes, printed as multiples of 1024: 16K, 1.5T.
    Bytes(f64),
    Percent(f64, usize),
    /// How the row's figures were obtained, and the standard error of a sampled time in microseconds.
    How(How, Measure),
    /// Counts by log2 bucket.
    Histogram(Vec<f64>),
    /// A figure as another report prints it, and its value.
    Printed(String, f64),
}

impl Cell {
    pub fn text(text: impl Into<String>) -> Self {
        let text = text.into();
        if text.is_empty() { Self::Absent } else { Self::Text(text) }
    }

    pub fn sql_id(query_id: Option<i64>) -> Self {
        query_id.map_or(Self::Absent, Self::SqlId)
    }

    pub fn integer(number: Option<i64>) -> Self {
        number.map_or(Self::Absent, |number| Self::Text(number.to_string()))
    }

    pub fn count(count: Measure) -> Self {
        count.map_or(Self::Absent, Self::Count)
    }

    pub fn decimal(value: Measure, digits: usize) -> Self {
        value.map_or(Self::Absent, |value| Self::Decimal(value, digits))
    }

    pub fn seconds(us: Measure, digits: usize) -> Self {
        us.map_or(Self::Absent, |us| Self::Seconds(us, digits))
    }

    pub fn duration(us: Measure) -> Self {
        us.map_or(Self::Absent, Self::Duration)
    }

    pub fn bytes(bytes: Measure) -> Self {
        bytes.map_or(Self::Absent, Self::Bytes)
    }

    pub fn percent(percent: Measure, digits: usize) -> Self {
        percent.map_or(Self::Absent, |percent| Self::Percent(percent, digits))
    }

    pub fn how(how: Option<How>, stderr_us: Measure) -> Self {
        how.map_or(Self::Absent, |how| Self::How(how, stderr_us))
    }

    /// The figure in its base unit; None for texts and absent figures.
    pub fn number(&self) -> Measure {
        match *self {
            Self::Count(value)
            | Self::Decimal(value, _)
            | Self::Seconds(value, _)
            | Self::Duration(value)
            | Self::Bytes(value)
            | Self::Percent(value, _)
            | Self::Printed(_, value) => Some(value),
            Self::Absent | Self::Text(_) | Self::SqlId(_) | Self::How(..) | Self::Histogram(_) => None,
        }
    }

    /// The cell as reports print it; empty if absent.
    pub fn print(&self) -> String {
        match self {
            Self::Absent => String::new(),
            Self::Text(text) | Self::Printed(text, _) => text.clone(),
            Self::SqlId(query_id) => sql_id::format(*query_id),
            Self::Count(count) => grouped(*count, 0),
            Self::Decimal(value, digits) | Self::Percent(value, digits) => grouped(*value, *digits),
            Self::Seconds(us, digits) => grouped(us / 1e6, *digits),
            Self::Duration(us) => duration(*us),
            Self::Bytes(value) => bytes(*value),
            Self::How(how, stderr_us) => match (how, stderr_us) {
                (How::Counted, _) => "counted".to_owned(),
                (How::Timed, _) => "timed".to_owned(),
                (How::Sampled, None) => "sampled".to_owned(),
                (How::Sampled, Some(us)) => format!("sampled ±{}", duration(*us)),
                (How::Unknown, _) => String::new(),
            },
            Self::Histogram(buckets) => {
                let counts: Vec<String> = buckets.iter().map(|count| grouped(*count, 0)).collect();
                counts.join(" ")
            }
        }
    }

    pub fn json(&self) -> Value {
        match self {
            Self::Absent => Value::Null,
            Self::Text(text) => json!(text),
            Self::SqlId(query_id) => json!({ "sql_id": sql_id::format(*query_id), "query_id": query_id }),
            Self::Count(count) if count.fract() == 0.0 && count.abs() < 9e15 => json!(*count as i64),
            Self::How(how, stderr_us) => {
                let how = match how {
                    How::Counted => "counted",
                    How::Timed => "timed",
                    How::Sampled => "sampled",
                    How::Unknown => "unknown",
                };
                json!({ "how": how, "stderr_us": stderr_us })
            }
            Self::Histogram(buckets) => json!(buckets),
            number => number.number().map_or(Value::Null, |number| json!(number)),
        }
    }

    /// The unit of the cell's JSON form; empty for texts and plain numbers.
    pub fn unit(&self) -> &'static str {
        match self {
            Self::Seconds(..) | Self::Duration(_) => "us",
            Self::Bytes(_) => "bytes",
            Self::Percent(..) => "percent",
            _ => "",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    Left,
    Right,
    /// Left aligned, and printed below its row in text reports.
    Below,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    pub name: String,
    pub align: Align,
}

/// How text reports print a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Heading, rule, rows.
    Plain,
    /// The first column contains labels, which are right-aligned. The title stands in the first column's heading.
    Labelled,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    pub title: String,
    pub columns: Vec<Column>,
    pub rows: Vec<Vec<Cell>>,
    pub layout: Layout,
}

impl Table {
    /// A table from column names: `<` before a name aligns to the left, `_` prints the column below the row.
    pub fn new(columns: &[&str]) -> Self {
        let column = |name: &&str| match name.as_bytes().first() {
            Some(b'<') => Column { name: name[1..].to_owned(), align: Align::Left },
            Some(b'_') => Column { name: name[1..].to_owned(), align: Align::Below },
            _ => Column { name: (*name).to_owned(), align: Align::Right },
        };
        Self {
            title: String::new(),
            columns: columns.iter().map(column).collect(),
            rows: Vec::new(),
            layout: Layout::Plain,
        }
    }

    pub fn titled(mut self, title: impl Into<String>) -> Self {
        self.title = title.into();
        self
    }

    pub fn labelled(mut self) -> Self {
        self.layout = Layout::Labelled;
        self
    }

    pub fn push(&mut self, row: Vec<Cell>) {
        debug_assert_eq!(row.len(), self.columns.len());
        self.rows.push(row);
    }

    pub fn with_rows(mut self, rows: impl IntoIterator<Item = Vec<Cell>>) -> Self {
        for row in rows {
            self.push(row);
        }
        self
    }

    /// The column of that name.
    pub fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }

    /// Omits columns without any figure.
    pub fn without_empty_columns(mut self) -> Self {
        let filled: Vec<bool> =
            (0..self.columns.len()).map(|index| self.rows.iter().any(|row| row[index] != Cell::Absent)).collect();
        let keep = |index: usize| filled[index] || index == 0;
        let mut index = 0;
        self.columns.retain(|_| {
            index += 1;
            keep(index - 1)
        });
        for row in &mut self.rows {
            let mut index = 0;
            row.retain(|_| {
                index += 1;
                keep(index - 1)
            });
        }
        self
    }
}

/// A number with commas between groups of three digits.
pub fn grouped(value: f64, digits: usize) -> String {
    let text = format!("{:.digits$}", value.abs());
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let negative = value < 0.0 && text.bytes().any(|digit| (b'1'..=b'9').contains(&digit));
    let mut out = String::with_capacity(text.len() + text.len() / 3 + 1);
    if negative {
        out.push('-');
    }
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    if !fraction.is_empty() {
        out.push('.');
        out.push_str(fraction);
    }
    out
}

/// A time in microseconds with two digits and a unit: 564.00us, 4.96ms, 52.86s.
pub fn duration(us: f64) -> String {
    match us.abs() {
        0.0 => "0us".to_owned(),
        size if size < 999.995 => format!("{us:.2}us"),
        size if size < 999_995.0 => format!("{:.2}ms", us / 1e3),
        _ => format!("{}s", grouped(us / 1e6, 2)),
    }
}

/// A size in the largest unit, a power of 1024, that leaves a whole digit: 0, 512, 80K, 1.5T.
pub fn bytes(value: f64) -> String {
    let units = ["", "K", "M", "G", "T", "P", "E"];
    let mut scaled = value;
    let mut unit = 0;
    while scaled.abs() >= 1023.95 && unit + 1 < units.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    match unit {
        0 => format!("{scaled:.0}"),
        _ if scaled.abs() >= 99.95 => format!("{scaled:.0}{}", units[unit]),
        _ => format!("{scaled:.1}{}", units[unit]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_printed_as_in_oracle_reports() {
        assert_eq!(grouped(1_624_712_829_784.0, 0), "1,624,712,829,784");
        assert_eq!(grouped(-1234.567, 1), "-1,234.6");
        assert_eq!(grouped(-0.001, 1), "0.0");
        assert_eq!(grouped(999.0, 0), "999");
        let times =
            [(0.0, "0us"), (564.0, "564.00us"), (4_960.0, "4.96ms"), (52_860_000.0, "52.86s"), (999_999.0, "1.00s")];
        for (us, printed) in times {
            assert_eq!(duration(us), printed);
        }
        let sizes = [
            (0.0, "0"),
            (1023.0, "1023"),
            (1024.0, "1.0K"),
            (1_625_003_744_088.0, "1.5T"),
            (85_480_210_432.0, "79.6G"),
        ];
        for (size, printed) in sizes {
            assert_eq!(bytes(size), printed);
        }
    }

    #[test]
    fn an_absent_figure_is_blank_in_text_and_null_in_json() {
        for cell in [Cell::count(None), Cell::text(""), Cell::bytes(None), Cell::how(None, None)] {
            assert_eq!((cell.print(), cell.json()), (String::new(), Value::Null));
        }
        assert_eq!(Cell::Count(0.0).print(), "0");
    }

    #[test]
    fn columns_without_figures_are_omitted_except_the_first() {
        let table = Table::new(&["<Name", "A", "B"])
            .with_rows([vec![Cell::Absent, Cell::Absent, Cell::Count(1.0)]])
            .without_empty_columns();
        let names: Vec<&str> = table.columns.iter().map(|column| column.name.as_str()).collect();
        assert_eq!(names, ["Name", "B"]);
        assert_eq!(table.rows[0].len(), 2);
    }
}
