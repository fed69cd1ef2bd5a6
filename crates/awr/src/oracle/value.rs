//! Values as reports print them: `1,234.5`, `12.3K`, `564.00us`, `.5`, `1.E+03`, `27,9` where the comma is the decimal separator.
//! Groups of three digits may also be separated by apostrophes, by blanks that do not break, and by ordinary blanks where the comma
//! is the decimal separator.
//!
//! A blank, a text, `N/A` and an overflow (`#####`) have no value; a blank is not 0.

use std::borrow::Cow;

/// The unit that a name states, in parentheses or as a percent sign.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unit {
    #[default]
    None,
    Nanoseconds,
    Microseconds,
    Milliseconds,
    Centiseconds,
    Seconds,
    Minutes,
    Hours,
    Bytes,
    Kilobytes,
    Megabytes,
    Gigabytes,
    Terabytes,
    /// A size where the value has a suffix (`292M`), or else a plain number.
    Data,
    Percent,
}

impl Unit {
    /// The unit of values: `us`, `bytes`, `percent`, or empty.
    pub fn base(self) -> &'static str {
        match self {
            Self::None | Self::Data => "",
            Self::Nanoseconds
            | Self::Microseconds
            | Self::Milliseconds
            | Self::Centiseconds
            | Self::Seconds
            | Self::Minutes
            | Self::Hours => "us",
            Self::Bytes | Self::Kilobytes | Self::Megabytes | Self::Gigabytes | Self::Terabytes => "bytes",
            Self::Percent => "percent",
        }
    }

    /// The factor to the base unit.
    pub fn factor(self) -> f64 {
        match self {
            Self::Nanoseconds => 1e-3,
            Self::None | Self::Microseconds | Self::Bytes | Self::Data | Self::Percent => 1.0,
            Self::Milliseconds => 1e3,
            Self::Centiseconds => 1e4,
            Self::Seconds => 1e6,
            Self::Minutes => 60e6,
            Self::Hours => 3600e6,
            Self::Kilobytes => 1024.0,
            Self::Megabytes => 1_048_576.0,
            Self::Gigabytes => 1_073_741_824.0,
            Self::Terabytes => 1_099_511_627_776.0,
        }
    }

    fn is_time(self) -> bool {
        self.base() == "us"
    }

    fn is_size(self) -> bool {
        matches!(self, Self::Data) || self.base() == "bytes"
    }
}

/// A number with its base unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Value {
    /// In the base unit of `unit`.
    pub number: f64,
    pub unit: Unit,
    /// Half of the last printed digit, in the base unit: the report rounded by at most this much.
    pub error: f64,
}

/// The unit of a unit's name: `s`, `ms`, `MB`.
fn unit(name: &str) -> Option<Unit> {
    let known = [
        (Unit::Nanoseconds, &["ns"][..]),
        (Unit::Microseconds, &["us", "µs", "usec", "micsec"]),
        (Unit::Milliseconds, &["ms", "msec"]),
        (Unit::Centiseconds, &["cs", "csec"]),
        (Unit::Seconds, &["s", "sec", "secs", "second", "seconds"]),
        (Unit::Minutes, &["min", "mins", "minute", "minutes"]),
        (Unit::Hours, &["hr", "hrs", "hour", "hours"]),
        (Unit::Bytes, &["b", "byte", "bytes"]),
        (Unit::Kilobytes, &["k", "kb", "kbytes"]),
        (Unit::Megabytes, &["m", "mb", "mbytes"]),
        (Unit::Gigabytes, &["g", "gb", "gbytes"]),
        (Unit::Terabytes, &["t", "tb", "tbytes"]),
        (Unit::Percent, &["%"]),
    ];
    known
        .into_iter()
        .find(|(_, names)| names.iter().any(|known| known.eq_ignore_ascii_case(name)))
        .map(|(unit, _)| unit)
}

/// The unit that a column's name or a row's label states: `Time (s)`, `Data (MB)`, `%Total`, `Redo size (bytes):`.
pub fn unit_of_name(name: &str) -> Unit {
    let mut rest = name;
    while let Some((_, tail)) = rest.split_once('(') {
        let Some((inside, after)) = tail.split_once(')') else { break };
        if let Some(unit) = unit(inside.trim()) {
            return unit;
        }
        rest = after;
    }
    let name = name.trim().trim_end_matches(':').trim_end();
    if name.starts_with('%') || name.ends_with('%') || name.starts_with("Pct") || name.starts_with("Percent") {
        return Unit::Percent;
    }
    let is_size = |word: &str| {
        ["data", "size", "bytes", "cache", "memory", "mem", "requested", "buffer", "optimal"]
            .iter()
            .any(|size| word.eq_ignore_ascii_case(size))
    };
    if name.split(|c: char| !c.is_ascii_alphabetic()).any(is_size) { Unit::Data } else { Unit::None }
}

/// Digits with separators to a number. Returns the number and the place of its last digit (0.1 for `1.5`).
fn digits(text: &str, decimal_comma: bool) -> Option<(f64, f64)> {
    let bytes = text.as_bytes();
    let (group, point) = if decimal_comma { (b'.', b',') } else { (b',', b'.') };
    let exponent_at = bytes.iter().position(|byte| matches!(byte, b'e' | b'E'));
    let (mantissa, exponent) = match exponent_at {
        Some(at) => (&bytes[..at], text.get(at + 1..)?.parse::<i32>().ok()?),
        None => (bytes, 0),
    };
    if mantissa.len() > 40 || exponent.abs() > 300 {
        return None;
    }
    let mut plain = [0u8; 48];
    let (mut length, mut fraction, mut seen_point, mut seen_digit) = (0, 0i32, false, false);
    for (index, byte) in mantissa.iter().copied().enumerate() {
        match byte {
            b'+' | b'-' if index == 0 => {}
            b'0'..=b'9' => {
                seen_digit = true;
                fraction += i32::from(seen_point);
            }
            _ if byte == point && !seen_point => seen_point = true,
            _ if byte == group && !seen_point && seen_digit => {
                let run = mantissa[index + 1..].iter().take_while(|byte| byte.is_ascii_digit()).count();
                let more = mantissa[index + 1..].iter().any(|byte| *byte == group || *byte == point);
                match run {
                    3 => continue,
                    // A separator that does not group three digits is a decimal separator of another locale.
                    1..=2 if !more => seen_point = true,
                    _ => return None,
                }
            }
            _ => return None,
        }
        plain[length] = if byte == point || byte == group { b'.' } else { byte };
        length += 1;
    }
    if !seen_digit {
        return None;
    }
    let number: f64 = std::str::from_utf8(&plain[..length]).ok()?.parse().ok()?;
    let scale = 10f64.powi(exponent);
    Some((number * scale, 10f64.powi(exponent - fraction)))
}

/// Separators of groups of digits besides point and comma: no-break space, thin spaces, apostrophes.
const GROUP_SEPARATORS: [&str; 5] = ["\u{a0}", "\u{202f}", "\u{2009}", "'", "\u{2019}"];

/// Length of a separator of groups at an offset: a digit before it, exactly three digits behind it. 0 for other texts.
fn group_separator(text: &str, at: usize, with_blanks: bool) -> usize {
    let bytes = text.as_bytes();
    if at == 0 || !bytes[at - 1].is_ascii_digit() {
        return 0;
    }
    let length = match bytes[at] {
        b' ' if with_blanks => 1,
        b' ' => 0,
        _ => GROUP_SEPARATORS.iter().find(|known| text[at..].starts_with(**known)).map_or(0, |known| known.len()),
    };
    if length == 0 {
        return 0;
    }
    let digits = bytes[at + length..].iter().take(4).take_while(|byte| byte.is_ascii_digit()).count();
    if digits == 3 { length } else { 0 }
}

/// The text without separators of groups besides point and comma.
fn ungrouped(text: &str, with_blanks: bool) -> Cow<'_, str> {
    let is_separator = |byte: &u8| *byte == b'\'' || *byte >= 0x80 || (*byte == b' ' && with_blanks);
    if !text.as_bytes().iter().any(is_separator) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = 0;
    for (at, _) in text.char_indices().skip(1) {
        let length = group_separator(text, at, with_blanks);
        if length > 0 {
            out.push_str(&text[rest..at]);
            rest = at + length;
        }
    }
    out.push_str(&text[rest..]);
    Cow::Owned(out)
}

/// The value of a cell. `unit` is the unit of its column or row, which a unit in the cell overrides.
pub fn parse(text: &str, unit: Unit, decimal_comma: bool) -> Option<Value> {
    let text = text.trim();
    let first = *text.as_bytes().first()?;
    if !(first.is_ascii_digit() || matches!(first, b'.' | b',' | b'-' | b'+')) {
        return None;
    }
    let text = &*ungrouped(text, decimal_comma);
    // Everything up to the suffix; an exponent belongs to the number, an E alone does not.
    let is_number = |(index, byte): (usize, u8)| match byte {
        b'0'..=b'9' | b'.' | b',' | b'-' | b'+' => true,
        b'e' | b'E' => text.as_bytes().get(index + 1).is_some_and(|next| matches!(next, b'+' | b'-' | b'0'..=b'9')),
        _ => false,
    };
    let end = text.bytes().enumerate().position(|place| !is_number(place)).unwrap_or(text.len());
    let (number, place) = digits(&text[..end], decimal_comma)?;
    let suffix = text[end..].trim();
    let inside = suffix.strip_prefix('(').and_then(|inner| inner.strip_suffix(')'));
    let suffix = match inside {
        // A share that rounds to 0, with the count behind it: `0.0(6)`.
        Some(count) if count.bytes().all(|byte| byte.is_ascii_digit()) => "",
        Some(unit) => unit,
        None => suffix,
    };
    let (factor, unit) = match suffix {
        "" => (unit.factor(), unit),
        "%" => (1.0, Unit::Percent),
        "K" | "M" | "G" | "T" | "P" | "E" | "k" | "m" | "g" => {
            let power = "kmgtpe".find(suffix.to_ascii_lowercase().as_str())? as i32 + 1;
            match unit.is_size() {
                true if matches!(unit, Unit::Data | Unit::Bytes) => (1024f64.powi(power), Unit::Bytes),
                // A column in megabytes whose values have a suffix: the suffix is the unit.
                true => (1024f64.powi(power), unit),
                false => (1000f64.powi(power) * unit.factor(), unit),
            }
        }
        "s" if !unit.is_size() => (1e6, Unit::Seconds),
        suffix => {
            let own = self::unit(suffix)?;
            if !(own.is_time() || own.is_size()) {
                return None;
            }
            (own.factor(), own)
        }
    };
    Some(Value { number: number * factor, unit, error: place / 2.0 * factor })
}

/// Whether a text can only be a number with a decimal comma (Some(true)), or only one with a decimal point (Some(false)).
pub fn decimal_comma(text: &str) -> Option<bool> {
    let text = ungrouped(text.trim(), true);
    let text = text.trim_matches(|c: char| c.is_ascii_alphabetic() || c == '%' || c == ' ');
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b',' | b'-')) {
        return None;
    }
    let (point, comma) = (text.rfind('.'), text.rfind(','));
    match (point, comma) {
        (Some(point), Some(comma)) => Some(comma > point),
        (Some(at), None) | (None, Some(at)) => {
            let separators = text.bytes().filter(|byte| matches!(byte, b'.' | b',')).count();
            let decimals = text.len() - at - 1;
            (separators == 1 && (decimals != 3 || at == 0)).then_some(comma.is_some())
        }
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_reports_print_them() {
        let cases = [
            ("1,234.5", Unit::None, 1234.5, ""),
            ("12.3K", Unit::None, 12_300.0, ""),
            ("1.1M", Unit::Data, 1.1 * 1_048_576.0, "bytes"),
            (".5", Unit::Percent, 0.5, "percent"),
            ("564.00us", Unit::None, 564.0, "us"),
            ("52.86 s", Unit::None, 52_860_000.0, "us"),
            ("532.5ns", Unit::None, 0.5325, "us"),
            ("1.E+03", Unit::Percent, 1000.0, "percent"),
            ("2.4E+09", Unit::None, 2.4e9, ""),
            ("-3", Unit::None, -3.0, ""),
            ("478,4K", Unit::None, 478_400.0, ""),
            ("              60.09 (mins)", Unit::None, 60.09 * 60e6, "us"),
            ("3,692K", Unit::Data, 3692.0 * 1024.0, "bytes"),
            ("49", Unit::Milliseconds, 49_000.0, "us"),
        ];
        for (text, unit, number, base) in cases {
            let value = parse(text, unit, false).unwrap_or_else(|| panic!("{text}"));
            assert!((value.number - number).abs() <= 1e-9 * number.abs(), "{text}: {value:?}");
            assert_eq!(value.unit.base(), base, "{text}");
        }
        assert_eq!(parse("1.234,5", Unit::None, true).map(|value| value.number), Some(1234.5));
        assert_eq!(parse(",5", Unit::None, true).map(|value| value.number), Some(0.5));
        let locales = [
            ("1 234,5", true, Some(1234.5)),
            ("12 345 678,9", true, Some(12_345_678.9)),
            ("1\u{a0}234,5", true, Some(1234.5)),
            ("1\u{202f}234\u{202f}567", false, Some(1_234_567.0)),
            ("1'234.5", false, Some(1234.5)),
            ("1 234,5ms", true, Some(1_234_500.0)),
            ("1 234", false, None),
            ("2 10-Jul-14 04:00:45", true, None),
            ("1 23", true, None),
        ];
        for (text, comma, number) in locales {
            assert_eq!(parse(text, Unit::None, comma).map(|value| value.number), number, "{text}");
        }
        for text in
            ["", "N/A", "#####", "DB CPU", "6ajkhukk78nsr", "10-Jul-14 04:00:45", "1.2.3.4", "-", ".", "11.2.0.4.0"]
        {
            assert_eq!(parse(text, Unit::None, false), None, "{text}");
        }
    }

    #[test]
    fn units_are_read_from_names() {
        let cases = [
            ("Time (s)", Unit::Seconds),
            ("Wait Avg(ms)", Unit::Milliseconds),
            ("Total Wait Time (sec)", Unit::Seconds),
            ("Redo size (bytes):", Unit::Bytes),
            ("Offload Elig (GB)", Unit::Gigabytes),
            ("%Time -outs", Unit::Percent),
            ("Reads: Data", Unit::Data),
            ("parse count (total)", Unit::None),
            ("<1ms", Unit::None),
        ];
        for (name, unit) in cases {
            assert_eq!(unit_of_name(name), unit, "{name}");
        }
    }

    #[test]
    fn the_decimal_separator_is_recognized_where_it_is_unambiguous() {
        let cases = [
            ("1,234.5", Some(false)),
            ("1.234,5", Some(true)),
            (",5", Some(true)),
            (".500", Some(false)),
            ("12,34", Some(true)),
            ("1,234", None),
            ("1.234", None),
            ("1,234,567", None),
            ("12", None),
            ("1 234,5", Some(true)),
            ("1\u{a0}234,56", Some(true)),
            ("1'234.5", Some(false)),
            ("1 234", None),
        ];
        for (text, comma) in cases {
            assert_eq!(decimal_comma(text), comma, "{text}");
        }
    }
}
