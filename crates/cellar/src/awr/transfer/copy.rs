//! Fields of rows in the text format of COPY: separated by tabs, with backslash escapes, `\N` for NULL.

use std::borrow::Cow;

pub const NULL: &str = "\\N";

/// Returns the fields of a row, still escaped.
pub fn fields(row: &str) -> Vec<&str> {
    row.split('\t').collect()
}

/// Returns the value of a field, or None for NULL.
pub fn unescape(field: &str) -> Option<Cow<'_, str>> {
    if field == NULL {
        return None;
    }
    if !field.contains('\\') {
        return Some(Cow::Borrowed(field));
    }
    let mut value = String::with_capacity(field.len());
    let mut characters = field.chars();
    while let Some(character) = characters.next() {
        if character != '\\' {
            value.push(character);
            continue;
        }
        match characters.next() {
            Some('b') => value.push('\u{8}'),
            Some('f') => value.push('\u{c}'),
            Some('n') => value.push('\n'),
            Some('r') => value.push('\r'),
            Some('t') => value.push('\t'),
            Some('v') => value.push('\u{b}'),
            Some(other) => value.push(other),
            None => {}
        }
    }
    Some(Cow::Owned(value))
}

/// Appends a value as a field.
pub fn escape_to(row: &mut String, value: Option<&str>) {
    let Some(value) = value else {
        row.push_str(NULL);
        return;
    };
    for character in value.chars() {
        match character {
            '\u{8}' => row.push_str("\\b"),
            '\u{c}' => row.push_str("\\f"),
            '\n' => row.push_str("\\n"),
            '\r' => row.push_str("\\r"),
            '\t' => row.push_str("\\t"),
            '\u{b}' => row.push_str("\\v"),
            '\\' => row.push_str("\\\\"),
            other => row.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_survive_escaping() {
        for value in ["", "plain", "tab\tnew\nline\\N \r\u{8}\u{c}\u{b}", "\\N", "żółw"] {
            let mut row = String::new();
            escape_to(&mut row, Some(value));
            assert!(!row.contains('\t') && !row.contains('\n'), "{row}");
            assert_eq!(unescape(&row).as_deref(), Some(value));
        }
        assert_eq!(unescape("\\N"), None);
    }
}
