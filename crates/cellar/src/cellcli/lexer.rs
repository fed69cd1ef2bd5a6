//! Splits a command into words, quoted strings and signs.
//!
//! Quotation marks of either kind enclose a string that may contain the other kind; typographic marks are accepted, because
//! commands are copied from documents that contain them.

use super::error::Error;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Token {
    Word(String),
    Quoted(String),
    Sign(&'static str),
}

impl Token {
    pub fn text(&self) -> &str {
        match self {
            Self::Word(text) | Self::Quoted(text) => text,
            Self::Sign(sign) => sign,
        }
    }

    /// Returns whether the token is a keyword. Keywords are not case-sensitive; a quoted string is none.
    pub fn is(&self, keyword: &str) -> bool {
        matches!(self, Self::Word(word) if word.eq_ignore_ascii_case(keyword))
    }
}

/// Two-character signs first: the longest sign that matches is taken.
const SIGNS: [&str; 10] = ["!=", "<=", ">=", "=", "<", ">", "!", ",", "(", ")"];

/// Returns the marks that end a string that `start` begins; None if it begins no string.
pub fn closing_quotes(start: char) -> Option<&'static [char]> {
    match start {
        '\'' => Some(&['\'']),
        '"' => Some(&['"']),
        '\u{2018}' => Some(&['\u{2019}', '\u{2032}']),
        '\u{201c}' => Some(&['\u{201d}', '\u{2033}']),
        _ => None,
    }
}

pub fn tokens(text: &str) -> Result<Vec<Token>, Error> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        if let Some(closing) = closing_quotes(first) {
            let content = &rest[first.len_utf8()..];
            let Some(end) = content.find(closing) else {
                return Err(Error::syntax(Some(rest), "a closing quotation mark"));
            };
            tokens.push(Token::Quoted(content[..end].to_owned()));
            rest = &content[end..];
            rest = &rest[rest.chars().next().map_or(0, char::len_utf8)..];
        } else if let Some(sign) = SIGNS.into_iter().find(|sign| rest.starts_with(sign)) {
            tokens.push(Token::Sign(sign));
            rest = &rest[sign.len()..];
        } else {
            let ends = |c: char| c.is_whitespace() || closing_quotes(c).is_some() || "=<>!,()".contains(c);
            let (word, after) = rest.split_at(rest.find(ends).unwrap_or(rest.len()));
            tokens.push(Token::Word(word.to_owned()));
            rest = after;
        }
        rest = rest.trim_start();
    }
    Ok(tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<String> {
        tokens(text).unwrap().iter().map(|token| token.text().to_owned()).collect()
    }

    #[test]
    fn signs_end_words_and_quotes_protect_them() {
        assert_eq!(texts("a=b,c  !=d >=-5"), ["a", "=", "b", ",", "c", "!=", "d", ">=", "-5"]);
        assert_eq!(texts("like '/dev/c0d[2-5], (x)'"), ["like", "/dev/c0d[2-5], (x)"]);
        assert_eq!(texts("\"it's\" 2013-08-06T11:30:00-06:00"), ["it's", "2013-08-06T11:30:00-06:00"]);
        assert_eq!(texts("> \u{2018}2013\u{2032} \u{201c}a b\u{201d}"), [">", "2013", "a b"]);
        assert_eq!(texts(" \t "), Vec::<String>::new());
    }

    #[test]
    fn a_quoted_word_is_no_keyword() {
        let found = tokens("'detail' DeTail").unwrap();
        assert!(!found[0].is("DETAIL") && found[1].is("DETAIL"));
    }

    #[test]
    fn quotation_marks_must_match() {
        let error = tokens("where name = \"this is incorrect'").unwrap_err().to_string();
        assert!(error.starts_with("CELL-01504") && error.ends_with("expected a closing quotation mark"), "{error}");
    }
}
