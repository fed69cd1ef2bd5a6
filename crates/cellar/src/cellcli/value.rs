//! Values of attributes: how they are printed, and how they compare with each other and with values of conditions.

use super::ast::{Operand, Operator};
use super::metrics::quantity;
use cellar_awr::document::Timestamp;
use serde_json::{Value as Json, json};
use std::cmp::Ordering;

#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// The object does not have the attribute.
    Unset,
    /// Not read yet: a rate, which takes two readings.
    Pending,
    Text(String),
    /// Free text, printed in quotation marks.
    Sentence(String),
    Count(u64),
    /// A number without a unit.
    Number(f64),
    /// Bytes.
    Size(u64),
    Time(Timestamp),
    /// The value of a metric.
    Quantity {
        number: f64,
        unit: &'static str,
    },
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl Value {
    /// Takes a value of a report; null becomes an attribute that is not set.
    pub fn of_json(value: &Json, of: impl FnOnce(u64) -> Self) -> Self {
        match value {
            Json::String(text) => Self::Text(text.clone()),
            value => value.as_u64().map_or(Self::Unset, of),
        }
    }

    pub fn of_seconds(seconds: u64) -> Self {
        Self::Time(Timestamp::from_micros(seconds.saturating_mul(1_000_000) as i64))
    }

    pub fn text(&self) -> String {
        match self {
            Self::Unset | Self::Pending => String::new(),
            Self::Text(text) => text.clone(),
            Self::Sentence(text) => format!("\"{text}\""),
            Self::Count(count) => count.to_string(),
            Self::Number(number) => number.to_string(),
            Self::Size(bytes) => size(*bytes),
            Self::Time(time) => time.iso(),
            Self::Quantity { number, unit } => quantity(*number, unit),
        }
    }

    /// Returns the value in JSON: sizes are bytes, and the unit of a metric is an attribute of its definition.
    pub fn json(&self) -> Json {
        match self {
            Self::Unset | Self::Pending => Json::Null,
            Self::Sentence(text) => json!(text),
            Self::Count(number) | Self::Size(number) => json!(number),
            Self::Number(number) | Self::Quantity { number, .. } => json!(number),
            Self::Text(_) | Self::Time(_) => json!(self.text()),
        }
    }

    fn number(&self) -> Option<f64> {
        match self {
            Self::Count(number) | Self::Size(number) => Some(*number as f64),
            Self::Number(number) | Self::Quantity { number, .. } => Some(*number),
            _ => None,
        }
    }

    /// Compares for ORDER BY; attributes that are not set come first.
    pub fn order(&self, other: &Self) -> Ordering {
        match (self.number(), other.number(), self, other) {
            (Some(left), Some(right), ..) => left.total_cmp(&right),
            (_, _, Self::Time(left), Self::Time(right)) => left.cmp(right),
            _ => self.text().to_ascii_lowercase().cmp(&other.text().to_ascii_lowercase()),
        }
    }

    /// Compares with the value of a condition, except for LIKE. The value is read as what the attribute is, if it can be read so,
    /// with quotation marks or without; otherwise both are compared as strings, without regard to case.
    pub fn compare(&self, operator: Operator, operand: &Operand) -> bool {
        if operand.is_empty() && operator == Operator::Equal {
            return self.plain().is_empty();
        }
        if *operand == Operand::Null || *self == Self::Unset {
            return false;
        }
        let text = operand.text();
        let as_time = || match self {
            Self::Time(time) => Some(*time).zip(time_of(text)),
            _ => None,
        };
        let ordering = match (self.number().zip(number(text)), as_time()) {
            // The size that is printed may be rounded.
            (Some(_), _) if self.text().eq_ignore_ascii_case(text) => Ordering::Equal,
            (Some((left, right)), _) => left.total_cmp(&right),
            (_, Some((left, right))) => left.cmp(&right),
            _ => self.plain().to_ascii_lowercase().cmp(&text.to_ascii_lowercase()),
        };
        match operator {
            Operator::Equal | Operator::Like => ordering.is_eq(),
            Operator::Less => ordering.is_lt(),
            Operator::LessOrEqual => ordering.is_le(),
            Operator::Greater => ordering.is_gt(),
            Operator::GreaterOrEqual => ordering.is_ge(),
        }
    }

    /// Returns whether the value is a number that is equal to an operand without quotation marks.
    pub fn equals_number(&self, operand: &Operand) -> bool {
        matches!(operand, Operand::Bare(text) if self.number().is_some() && number(text).is_some())
            && self.compare(Operator::Equal, operand)
    }

    /// The text without the quotation marks that are printed around free text.
    pub fn plain(&self) -> String {
        match self {
            Self::Sentence(text) => text.clone(),
            _ => self.text(),
        }
    }
}

/// Reads a time. A date without a time means its first second, UTC.
pub fn time_of(text: &str) -> Option<Timestamp> {
    Timestamp::parse(text).or_else(|| Timestamp::parse(&format!("{}T00:00:00", text.trim())))
}

/// Reads a number with an optional suffix: K, M, G or T, also with B.
pub fn number(text: &str) -> Option<f64> {
    let text = text.trim();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" | "KB" => 10,
        "M" | "MB" => 20,
        "G" | "GB" => 30,
        "T" | "TB" => 40,
        _ => return None,
    };
    let number: f64 = digits.parse().ok()?;
    Some(number * f64::from(shift).exp2())
}

/// Formats bytes in the largest unit of which they are at least one, with as many digits as needed up to ten, which tell all
/// multiples of 512 bytes apart.
fn size(bytes: u64) -> String {
    let units = ["", "K", "M", "G", "T"];
    let unit = (0..units.len()).rev().find(|unit| bytes >> (10 * unit) > 0).unwrap_or(0);
    let number = format!("{:.10}", bytes as f64 / (1_u64 << (10 * unit)) as f64);
    format!("{}{}", number.trim_end_matches('0').trim_end_matches('.'), units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bare(text: &str) -> Operand {
        Operand::Bare(text.to_owned())
    }

    #[test]
    fn sizes_and_metrics_are_printed_as_cellcli_prints_them() {
        let gib = 1_u64 << 30;
        for (bytes, expected) in [
            (0, "0"),
            (512, "512"),
            (1536, "1.5K"),
            (gib, "1G"),
            (gib * 557 + gib / 128 * 110, "557.859375G"),
            (gib + 512, "1.0000004768G"),
        ] {
            assert_eq!(size(bytes), expected);
        }
        for (number, unit, expected) in [
            (2665.0, "IO requests", "2,665 IO requests"),
            (1_234_567.0, "us", "1,234,567 us"),
            (1.94, "MB", "1.940 MB"),
            (1234.5, "MB/sec", "1,234.500 MB/sec"),
            (4.75, "%", "4.8 %"),
            (0.0, "IO/sec", "0.0 IO/sec"),
            (6.94, "Number", "6.9"),
        ] {
            assert_eq!(Value::Quantity { number, unit }.text(), expected);
        }
    }

    #[test]
    fn bare_values_compare_as_what_the_attribute_is() {
        let size = Value::Size(100 << 20);
        assert!(size.compare(Operator::Equal, &bare("100M")) && size.compare(Operator::Less, &bare("1g")));
        assert!(size.compare(Operator::Greater, &bare("99.5MB")) && !size.compare(Operator::Equal, &bare("large")));
        let printed = Value::Size((1 << 41) + 512).text();
        assert_eq!(printed, "2.0000000005T");
        assert!(Value::Size((1 << 41) + 512).compare(Operator::Equal, &bare(&printed)));
        let metric = Value::Quantity { number: 12.0, unit: "MB" };
        assert!(metric.compare(Operator::GreaterOrEqual, &bare("12")) && metric.compare(Operator::Less, &bare("1000")));
        let time = Value::of_seconds(1_000_000_000);
        assert!(time.compare(Operator::Greater, &bare("2001-09-09T03:46:39+02:00")));
        assert!(time.compare(Operator::Equal, &Operand::Quoted("2001-09-08T19:46:40-06:00".into())));
        assert!(time.compare(Operator::Greater, &Operand::Quoted("2001-09-09".into())), "the first second of the date");
        assert!(time.compare(Operator::Less, &bare("2001-09-10")));
        assert_eq!([time_of("2001-09"), time_of("2026-13-28"), time_of("yesterday"), time_of("28-NOV-26")], [None; 4]);
    }

    #[test]
    fn strings_compare_without_regard_to_case() {
        let status = Value::from("normal");
        assert!(status.compare(Operator::Equal, &bare("NORMAL")));
        assert!(status.compare(Operator::Equal, &Operand::Quoted("Normal".into())));
        let name = Value::from("10");
        assert!(!name.compare(Operator::Greater, &bare("9")), "strings");
    }

    #[test]
    fn quoted_numbers_and_sizes_are_compared_as_numbers() {
        let quoted = |text: &str| Operand::Quoted(text.to_owned());
        let count = Value::Count(10);
        assert!(count.compare(Operator::Greater, &bare("9")) && count.compare(Operator::Greater, &quoted("9")));
        assert!(Value::Size(23 << 30).compare(Operator::Greater, &quoted("3G")));
        let metric = Value::Quantity { number: 1970.3, unit: "MB" };
        assert!(metric.compare(Operator::Greater, &quoted("200")));
    }

    #[test]
    fn an_attribute_that_is_not_set_equals_null_and_the_empty_string() {
        let empty = Operand::Quoted(String::new());
        assert!(Value::Unset.compare(Operator::Equal, &Operand::Null) && Value::Unset.compare(Operator::Equal, &empty));
        let count = Value::Count(10);
        assert!(!count.compare(Operator::Equal, &Operand::Null) && !count.compare(Operator::Equal, &empty));
        assert!(!Value::Unset.compare(Operator::Less, &bare("9")));
        let status = Value::from("normal");
        assert!(!status.compare(Operator::Equal, &empty));
        assert!(status.compare(Operator::Greater, &empty) && !status.compare(Operator::Greater, &Operand::Null));
        assert!(Value::Sentence(String::new()).compare(Operator::Equal, &Operand::Null));
    }
}
