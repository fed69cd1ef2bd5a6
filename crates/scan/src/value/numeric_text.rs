//! The text of numerics: output as `numeric_out` prints it, and input of the notations that all releases accept.

use super::numeric::{Class, Numeric};

/// Longer numbers, and greater exponents, are left to PostgreSQL, which has limits.
const INPUT_BYTES_MAX: usize = 500;
const EXPONENT_MAX: i32 = 500;

/// Appends the text. None: the value is infinite or NaN.
pub fn write(value: &Numeric, out: &mut Vec<u8>) -> Option<()> {
    if value.class != Class::Finite {
        return None;
    }
    if value.negative {
        out.push(b'-');
    }
    let digit = |weight: i32| {
        let index = usize::try_from(value.weight - weight).ok();
        index.and_then(|index| value.digits.get(index)).copied().unwrap_or(0)
    };
    let group = |weight: i32| {
        let digit = digit(weight);
        [digit / 1000, digit / 100 % 10, digit / 10 % 10, digit % 10].map(|decimal| b'0' + decimal as u8)
    };
    match value.weight {
        0.. => {
            let first = group(value.weight);
            let zeroes = first.iter().take_while(|decimal| **decimal == b'0').count().min(3);
            out.extend_from_slice(&first[zeroes..]);
            (0..value.weight).rev().for_each(|weight| out.extend_from_slice(&group(weight)));
        }
        _ => out.push(b'0'),
    }
    if value.scale > 0 {
        out.push(b'.');
        let end = out.len() + value.scale as usize;
        let mut weight = -1;
        while out.len() < end {
            out.extend_from_slice(&group(weight));
            weight -= 1;
        }
        out.truncate(end);
    }
    Some(())
}

/// Whether bytes around a number are ignored (`isspace` in the C locale).
pub fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// A number without the white space around it, if it is in decimal or scientific notation.
pub fn decimal(text: &[u8]) -> Option<&str> {
    let start = text.iter().position(|byte| !is_space(*byte))?;
    let end = text.iter().rposition(|byte| !is_space(*byte))? + 1;
    let number = &text[start..end];
    let digits = |bytes: &[u8]| bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let after_sign = |bytes: &[u8]| usize::from(matches!(bytes.first(), Some(b'+' | b'-')));
    let mut at = after_sign(number);
    let whole = digits(&number[at..]);
    at += whole;
    let mut fraction = 0;
    if number.get(at) == Some(&b'.') {
        fraction = digits(&number[at + 1..]);
        at += 1 + fraction;
    }
    if whole + fraction == 0 || number.len() > INPUT_BYTES_MAX {
        return None;
    }
    if matches!(number.get(at), Some(b'e' | b'E')) {
        at += 1;
        at += after_sign(&number[at..]);
        let exponent = digits(&number[at..]);
        if exponent == 0 {
            return None;
        }
        at += exponent;
    }
    if at == number.len() { std::str::from_utf8(number).ok() } else { None }
}

/// Parses a number as `numeric_in` does. None: PostgreSQL must decide.
pub fn parse(text: &[u8]) -> Option<Numeric> {
    let text = decimal(text)?.to_ascii_lowercase();
    let exponent: i32 = text.split_once('e').map_or(Ok(0), |(_, exponent)| exponent.parse()).ok()?;
    if exponent.abs() > EXPONENT_MAX {
        return None;
    }
    Numeric::parse(text.strip_prefix('+').unwrap_or(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected texts are PostgreSQL's.
    #[test]
    fn numbers_are_read_and_printed_as_in_postgresql() {
        for (input, expected) in [
            ("0", "0"),
            ("-0.00", "0.00"),
            (" +12.50\n", "12.50"),
            (".5", "0.5"),
            ("5.", "5"),
            ("0010", "10"),
            ("-10000.0001", "-10000.0001"),
            ("1e3", "1000"),
            ("1.50E+1", "15.0"),
            ("1e-7", "0.0000001"),
            ("123456789012345678901234567890.1200", "123456789012345678901234567890.1200"),
            ("0.00012300", "0.00012300"),
        ] {
            let mut out = Vec::new();
            write(&parse(input.as_bytes()).unwrap(), &mut out).unwrap();
            assert_eq!(String::from_utf8(out).unwrap(), expected, "{input}");
        }
        for input in ["", " ", "-", ".", "1e", "1e+", "e5", "0x10", "1_000", "NaN", "1 2", "1e9999", "--1", "12abc"] {
            assert!(parse(input.as_bytes()).is_none(), "{input}");
        }
    }
}
