//! Functions over strings and byte strings.
//!
//! `lower` and `upper` depend on the collation's character types, so text with non-ASCII characters is left to
//! PostgreSQL. Functions that count characters support UTF-8 and single-byte encodings; the compiler rejects them in
//! other encodings. Source: `utils/adt/varlena.c`, `varchar.c`, `oracle_compat.c`, `formatting.c`, `like.c`.

use super::{
    CollationNeed, Context, Function, characters, characters_fallible, fallible, functions, ilike, like, safe,
};
use crate::predicate::regex;
use crate::value::{EvalResult, Undecided, Value, without_trailing_blanks};
use cellar_format::postgres::{Oid, encoding, type_oid};
use std::borrow::Cow;

/// How text is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextEncoding {
    SingleByte,
    Utf8,
    /// A multibyte encoding whose characters the cell does not distinguish.
    Opaque,
}

impl TextEncoding {
    /// Returns the encoding with this `pg_enc`; LATIN1 to KOI8U are single-byte (`mb/pg_wchar.h`).
    pub fn of(pg_enc: u32) -> Self {
        const LATIN1: u32 = 8;
        const KOI8U: u32 = 34;
        match pg_enc {
            encoding::UTF8 => Self::Utf8,
            encoding::SQL_ASCII | LATIN1..=KOI8U => Self::SingleByte,
            _ => Self::Opaque,
        }
    }

    /// Returns the length of the first character in bytes (`pg_utf_mblen`): at least 1, also for invalid text.
    pub fn character_bytes(self, bytes: &[u8]) -> usize {
        let length = match (self, bytes.first()) {
            (Self::Utf8, Some(first)) if first & 0xe0 == 0xc0 => 2,
            (Self::Utf8, Some(first)) if first & 0xf0 == 0xe0 => 3,
            (Self::Utf8, Some(first)) if first & 0xf8 == 0xf0 => 4,
            _ => 1,
        };
        length.min(bytes.len().max(1))
    }

    /// Returns the number of characters.
    fn count(self, bytes: &[u8]) -> i64 {
        match self {
            // In valid UTF-8 every byte that is not a continuation byte starts a character.
            Self::Utf8 if !bytes.is_ascii() => bytes.iter().filter(|byte| **byte & 0xc0 != 0x80).count() as i64,
            _ => bytes.len() as i64,
        }
    }

    /// Returns the length in bytes of the first `characters` characters (`pg_mbcharcliplen`).
    fn clip(self, bytes: &[u8], characters: i64) -> usize {
        if self != Self::Utf8 {
            return characters.clamp(0, bytes.len() as i64) as usize;
        }
        let mut at = 0;
        let mut left = characters;
        while at < bytes.len() && left > 0 {
            at += self.character_bytes(&bytes[at..]);
            left -= 1;
        }
        at
    }
}

/// Maximum bytes of a concatenation; longer results are left to PostgreSQL.
const RESULT_BYTES_MAX: usize = 64 << 20;

fn take<'a>(value: &mut Value<'a>) -> Result<Cow<'a, [u8]>, Undecided> {
    match std::mem::replace(value, Value::Null) {
        Value::Bytes(bytes) => Ok(bytes),
        _ => Err(Undecided),
    }
}

fn bytes<'v>(value: &'v Value<'_>) -> Result<&'v [u8], Undecided> {
    match value {
        Value::Bytes(bytes) => Ok(bytes),
        _ => Err(Undecided),
    }
}

fn int(value: &Value<'_>) -> Result<i64, Undecided> {
    match value {
        Value::Int(value) => Ok(*value),
        _ => Err(Undecided),
    }
}

/// Returns a part of a string, borrowed if the string is borrowed.
fn part<'a>(whole: Cow<'a, [u8]>, from: usize, to: usize) -> Value<'a> {
    let to = to.min(whole.len());
    let from = from.min(to);
    Value::Bytes(match whole {
        Cow::Borrowed(bytes) => Cow::Borrowed(&bytes[from..to]),
        Cow::Owned(bytes) => Cow::Owned(bytes[from..to].to_vec()),
    })
}

fn starts_with<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    Ok(Value::Bool(bytes(&args[0])?.starts_with(bytes(&args[1])?)))
}

/// Whether the function tests whether its first argument starts with its second argument.
pub fn is_prefix_test(function: &Function) -> bool {
    function.oid == STARTS_WITH
}

fn length<'a>(args: &mut [Value<'a>], context: &Context) -> EvalResult<'a> {
    Ok(Value::Int(context.encoding.count(bytes(&args[0])?)))
}

fn length_without_blanks<'a>(args: &mut [Value<'a>], context: &Context) -> EvalResult<'a> {
    Ok(Value::Int(context.encoding.count(without_trailing_blanks(bytes(&args[0])?))))
}

fn octets<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    Ok(Value::Int(bytes(&args[0])?.len() as i64))
}

/// Returns the characters `from..to`, counted from 1.
fn slice<'a>(whole: Cow<'a, [u8]>, from: i64, to: Option<i64>, context: &Context) -> Value<'a> {
    let from = from.max(1);
    let start = context.encoding.clip(&whole, from - 1);
    let end = match to {
        Some(to) => start + context.encoding.clip(&whole[start..], to - from),
        None => whole.len(),
    };
    part(whole, start, end)
}

/// Evaluates `text_substring`: a negative length is an error; an end that overflows int4 means the end of the string.
fn substring<'a>(args: &mut [Value<'a>], context: &Context) -> EvalResult<'a> {
    let (from, length) = (int(&args[1])?, int(&args[2])?);
    if length < 0 {
        return Err(Undecided);
    }
    let to = Some(from + length).filter(|to| i32::try_from(*to).is_ok());
    Ok(slice(take(&mut args[0])?, from, to, context))
}

/// Whether the function fails only if its third argument, a length, is negative.
pub fn takes_length(function: &Function) -> bool {
    matches!(function.oid, SUBSTR | SUBSTRING)
}

fn substring_to_end<'a>(args: &mut [Value<'a>], context: &Context) -> EvalResult<'a> {
    let from = int(&args[1])?;
    Ok(slice(take(&mut args[0])?, from, None, context))
}

/// A negative count omits as many characters from the right end.
fn left<'a>(args: &mut [Value<'a>], context: &Context) -> EvalResult<'a> {
    let mut count = int(&args[1])?;
    let whole = take(&mut args[0])?;
    if count < 0 {
        count += context.encoding.count(&whole);
    }
    let end = context.encoding.clip(&whole, count);
    Ok(part(whole, 0, end))
}

fn right<'a>(args: &mut [Value<'a>], context: &Context) -> EvalResult<'a> {
    let count = int(&args[1])?;
    if count == i32::MIN as i64 {
        return Err(Undecided);
    }
    let whole = take(&mut args[0])?;
    let skipped = if count < 0 { -count } else { context.encoding.count(&whole) - count };
    let start = context.encoding.clip(&whole, skipped);
    let end = whole.len();
    Ok(part(whole, start, end))
}

fn trim<'a>(value: &mut Value<'a>, left: bool, right: bool) -> EvalResult<'a> {
    let whole = take(value)?;
    let end = if right { without_trailing_blanks(&whole).len() } else { whole.len() };
    let start = if left { whole[..end].iter().take_while(|byte| **byte == b' ').count() } else { 0 };
    Ok(part(whole, start, end))
}

fn trim_both<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    trim(&mut args[0], true, true)
}

fn trim_left<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    trim(&mut args[0], true, false)
}

fn trim_right<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    trim(&mut args[0], false, true)
}

fn concatenate<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    let (left, right) = (bytes(&args[0])?, bytes(&args[1])?);
    if left.len() + right.len() > RESULT_BYTES_MAX {
        return Err(Undecided);
    }
    Ok(Value::Bytes(Cow::Owned([left, right].concat())))
}

/// Replaces all occurrences of the second string in the first by the third. In UTF-8 and single-byte encodings an occurrence of the
/// bytes is an occurrence of the characters.
fn replace<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    let (whole, sought, other) = (bytes(&args[0])?, bytes(&args[1])?, bytes(&args[2])?);
    if sought.is_empty() || memchr::memmem::find(whole, sought).is_none() {
        return Ok(Value::Bytes(take(&mut args[0])?));
    }
    let mut result = Vec::with_capacity(whole.len());
    let mut rest = whole;
    while let Some(at) = memchr::memmem::find(rest, sought) {
        result.extend_from_slice(&rest[..at]);
        result.extend_from_slice(other);
        rest = &rest[at + sought.len()..];
        if result.len() > RESULT_BYTES_MAX {
            return Err(Undecided);
        }
    }
    result.extend_from_slice(rest);
    Ok(Value::Bytes(result.into()))
}

/// Returns a field of a string, counted from 1 or from the end if negative. Field 0 is an error.
fn split_part<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    let number = int(&args[2])?;
    let (whole, separator) = (bytes(&args[0])?, bytes(&args[1])?);
    if number == 0 {
        return Err(Undecided);
    }
    let nothing = || Ok(Value::Bytes(Cow::Borrowed(&[][..])));
    if whole.is_empty() {
        return nothing();
    }
    if separator.is_empty() {
        return if matches!(number, 1 | -1) { Ok(Value::Bytes(take(&mut args[0])?)) } else { nothing() };
    }
    let ends = memchr::memmem::find_iter(whole, separator);
    let wanted = match number {
        1.. => number - 1,
        _ => memchr::memmem::find_iter(whole, separator).count() as i64 + 1 + number,
    };
    let mut start = 0;
    let mut field = None;
    for (index, end) in ends.chain([whole.len()]).enumerate() {
        if index as i64 == wanted {
            field = Some((start, end));
            break;
        }
        start = end + separator.len();
    }
    match field {
        Some((start, end)) => Ok(part(take(&mut args[0])?, start, end)),
        None => nothing(),
    }
}

/// Returns the 1-based character position of the second string in the first; 0 if the second string does not occur.
fn position<'a>(args: &mut [Value<'a>], context: &Context) -> EvalResult<'a> {
    let (whole, sought) = (bytes(&args[0])?, bytes(&args[1])?);
    let found = memchr::memmem::find(whole, sought);
    Ok(Value::Int(found.map_or(0, |at| context.encoding.count(&whole[..at]) + 1)))
}

const REGEX_EQUAL: Oid = 1254;
const REGEX_NOT_EQUAL: Oid = 1256;
const REGEX_REPLACE: Oid = 2284;

/// Returns whether the function is `~`, `!~` or `regexp_replace`.
pub fn takes_regular_expression(function: &Function) -> bool {
    matches!(function.oid, REGEX_EQUAL | REGEX_NOT_EQUAL | REGEX_REPLACE)
}

/// Returns whether the function supports this regular expression. An unsupported one would be undecided in every row.
pub fn knows_regular_expression(function: &Function, pattern: &[u8]) -> bool {
    match function.oid {
        REGEX_REPLACE => regex::replacement(pattern, regex::Encoding::Utf8).is_some(),
        _ => regex::search(pattern, regex::Encoding::Utf8).is_some(),
    }
}

/// Returns the encoding for regular expressions.
fn character_encoding(context: &Context) -> Result<regex::Encoding, Undecided> {
    match context.encoding {
        TextEncoding::Utf8 => Ok(regex::Encoding::Utf8),
        TextEncoding::SingleByte => Ok(regex::Encoding::SingleByte),
        TextEncoding::Opaque => Err(Undecided),
    }
}

fn matches_regex(args: &[Value<'_>], context: &Context) -> Result<bool, Undecided> {
    let search = regex::search(bytes(&args[1])?, character_encoding(context)?).ok_or(Undecided)?;
    Ok(search.is_match(bytes(&args[0])?))
}

fn regex_equal<'a>(args: &mut [Value<'a>], context: &Context) -> EvalResult<'a> {
    matches_regex(args, context).map(Value::Bool)
}

fn regex_not_equal<'a>(args: &mut [Value<'a>], context: &Context) -> EvalResult<'a> {
    matches_regex(args, context).map(|is_match| Value::Bool(!is_match))
}

/// Replaces the first match, as `replace_text_regexp` does.
fn regex_replace<'a>(args: &mut [Value<'a>], context: &Context) -> EvalResult<'a> {
    let replacement = regex::replacement(bytes(&args[1])?, character_encoding(context)?).ok_or(Undecided)?;
    let text = bytes(&args[0])?;
    let found = match replacement.find(text) {
        Ok(found) => found,
        Err(regex::Found::No) => return Ok(Value::Bytes(take(&mut args[0])?)),
        Err(regex::Found::Unknown) => return Err(Undecided),
    };
    let whole = found.group(0).ok_or(Undecided)?;
    let new = bytes(&args[2])?;
    if let [b'\\', group @ b'1'..=b'9'] = new
        && let Some(range) = found.group((group - b'0').into())
        && whole.end == text.len()
    {
        return Ok(part(take(&mut args[0])?, range.start, range.end));
    }
    let mut result = Vec::with_capacity(text.len());
    let mut rest = new;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        result.extend_from_slice(&rest[..at]);
        rest = &rest[at + 1..];
        let group = match rest.first() {
            Some(b'\\') => None,
            Some(b'&') => found.group(0),
            Some(digit @ b'1'..=b'9') => Some(found.group((digit - b'0').into()).unwrap_or_default()),
            // Another character is copied, together with the backslash.
            _ => {
                result.push(b'\\');
                continue;
            }
        };
        match group {
            None => result.push(b'\\'),
            Some(group) => result.extend_from_slice(&text[group]),
        }
        rest = &rest[1..];
        if result.len() > RESULT_BYTES_MAX {
            return Err(Undecided);
        }
    }
    result.extend_from_slice(rest);
    result.extend_from_slice(&text[whole.end..]);
    Ok(Value::Bytes(result.into()))
}

/// Changes the case of ASCII letters by `change`. Undecided if `stays` is false for a non-ASCII letter.
fn cased<'a>(args: &mut [Value<'a>], change: fn(&[u8]) -> Vec<u8>, stays: fn(char) -> bool) -> EvalResult<'a> {
    let text = bytes(&args[0])?;
    if !text.is_ascii() {
        let text = std::str::from_utf8(text).map_err(|_| Undecided)?;
        if !text.chars().filter(|letter| !letter.is_ascii()).all(stays) {
            return Err(Undecided);
        }
    }
    Ok(Value::Bytes(Cow::Owned(change(text))))
}

fn lower<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    cased(args, <[u8]>::to_ascii_lowercase, |_| false)
}

fn upper<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    cased(args, <[u8]>::to_ascii_uppercase, |_| false)
}

/// `substr(text, int4, int4)` and `substring(text, int4, int4)`.
pub const SUBSTR: Oid = 877;
const SUBSTRING: Oid = 936;

const STARTS_WITH: Oid = 3696;

/// `lower(text)` and `upper(text)`.
pub const LOWER: Oid = 870;
const UPPER: Oid = 871;

/// Variants of [`LOWER`] and [`UPPER`] that keep non-ASCII letters unchanged, which makes no difference if the result
/// is compared with ASCII text. Texts with a letter that PostgreSQL might change to an ASCII letter are undecided.
static KEEPING_NON_ASCII: [(Oid, Function); 2] = [
    (LOWER, Function::new(0, "lower", &[type_oid::TEXT], type_oid::TEXT, CollationNeed::Cased, safe(lower_ascii_only))),
    (UPPER, Function::new(0, "upper", &[type_oid::TEXT], type_oid::TEXT, CollationNeed::Cased, safe(upper_ascii_only))),
];

/// Returns the variant of `lower` or `upper` for UTF-8 text that is compared with ASCII text.
pub fn keeping_non_ascii(function: Oid) -> Option<&'static Function> {
    KEEPING_NON_ASCII.iter().find(|(oid, _)| *oid == function).map(|(_, function)| function)
}

fn lower_ascii_only<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    cased(args, <[u8]>::to_ascii_lowercase, |letter| !letter.to_lowercase().any(|mapped| mapped.is_ascii()))
}

fn upper_ascii_only<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    cased(args, <[u8]>::to_ascii_uppercase, |letter| !letter.to_uppercase().any(|mapped| mapped.is_ascii()))
}

fn same<'a>(args: &mut [Value<'a>], _: &Context) -> EvalResult<'a> {
    Ok(Value::Bytes(take(&mut args[0])?))
}

functions! {
    850 textlike (TEXT, TEXT) -> BOOL, Deterministic, like(true, false);
    1569 textlike (TEXT, TEXT) -> BOOL, Deterministic, like(true, false);
    1631 textlike (BPCHAR, TEXT) -> BOOL, Deterministic, like(true, false);
    858 namelike (NAME, TEXT) -> BOOL, Deterministic, like(true, false);
    1571 namelike (NAME, TEXT) -> BOOL, Deterministic, like(true, false);
    2005 bytealike (BYTEA, BYTEA) -> BOOL, Any, like(false, false);
    2007 bytealike (BYTEA, BYTEA) -> BOOL, Any, like(false, false);
    851 textnlike (TEXT, TEXT) -> BOOL, Deterministic, like(true, true);
    1570 textnlike (TEXT, TEXT) -> BOOL, Deterministic, like(true, true);
    1632 textnlike (BPCHAR, TEXT) -> BOOL, Deterministic, like(true, true);
    859 namenlike (NAME, TEXT) -> BOOL, Deterministic, like(true, true);
    1572 namenlike (NAME, TEXT) -> BOOL, Deterministic, like(true, true);
    2006 byteanlike (BYTEA, BYTEA) -> BOOL, Any, like(false, true);
    2008 byteanlike (BYTEA, BYTEA) -> BOOL, Any, like(false, true);
    1633 texticlike (TEXT, TEXT) -> BOOL, Cased, ilike(false);
    1660 texticlike (BPCHAR, TEXT) -> BOOL, Cased, ilike(false);
    1634 texticnlike (TEXT, TEXT) -> BOOL, Cased, ilike(true);
    1661 texticnlike (BPCHAR, TEXT) -> BOOL, Cased, ilike(true);
    870 lower (TEXT) -> TEXT, Cased, safe(lower);
    871 upper (TEXT) -> TEXT, Cased, safe(upper);
    3696 text_starts_with (TEXT, TEXT) -> BOOL, Deterministic, safe(starts_with);
    1257 textlen (TEXT) -> INT4, Any, characters(length);
    1317 textlen (TEXT) -> INT4, Any, characters(length);
    1369 textlen (TEXT) -> INT4, Any, characters(length);
    1381 textlen (TEXT) -> INT4, Any, characters(length);
    1318 bpcharlen (BPCHAR) -> INT4, Any, characters(length_without_blanks);
    1367 bpcharlen (BPCHAR) -> INT4, Any, characters(length_without_blanks);
    1372 bpcharlen (BPCHAR) -> INT4, Any, characters(length_without_blanks);
    1374 textoctetlen (TEXT) -> INT4, Any, safe(octets);
    1375 bpcharoctetlen (BPCHAR) -> INT4, Any, safe(octets);
    720 byteaoctetlen (BYTEA) -> INT4, Any, safe(octets);
    2010 byteaoctetlen (BYTEA) -> INT4, Any, safe(octets);
    877 text_substr (TEXT, INT4, INT4) -> TEXT, Any, characters_fallible(substring);
    936 text_substr (TEXT, INT4, INT4) -> TEXT, Any, characters_fallible(substring);
    883 text_substr_no_len (TEXT, INT4) -> TEXT, Any, characters(substring_to_end);
    937 text_substr_no_len (TEXT, INT4) -> TEXT, Any, characters(substring_to_end);
    3060 text_left (TEXT, INT4) -> TEXT, Any, characters(left);
    3061 text_right (TEXT, INT4) -> TEXT, Any, characters(right);
    885 btrim1 (TEXT) -> TEXT, Any, safe(trim_both);
    881 ltrim1 (TEXT) -> TEXT, Any, safe(trim_left);
    401 rtrim1 (BPCHAR) -> TEXT, Any, safe(trim_right);
    882 rtrim1 (TEXT) -> TEXT, Any, safe(trim_right);
    1258 textcat (TEXT, TEXT) -> TEXT, Any, fallible(concatenate);
    2011 byteacat (BYTEA, BYTEA) -> BYTEA, Any, fallible(concatenate);
    2087 replace_text (TEXT, TEXT, TEXT) -> TEXT, Deterministic, characters_fallible(replace);
    1254 textregexeq (TEXT, TEXT) -> BOOL, Deterministic, characters(regex_equal);
    1256 textregexne (TEXT, TEXT) -> BOOL, Deterministic, characters(regex_not_equal);
    2284 textregexreplace_noopt (TEXT, TEXT, TEXT) -> TEXT, Deterministic, characters(regex_replace);
    2088 split_part (TEXT, TEXT, INT4) -> TEXT, Deterministic, characters_fallible(split_part);
    849 textpos (TEXT, TEXT) -> INT4, Deterministic, characters(position);
    868 textpos (TEXT, TEXT) -> INT4, Deterministic, characters(position);
    406 name_text (NAME) -> TEXT, Any, safe(same);
    1401 name_text (NAME) -> VARCHAR, Any, safe(same);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_non_ascii_letters_change_to_ascii() {
        let becoming =
            |mapped: fn(char) -> bool| -> String { ('\u{80}'..=char::MAX).filter(|letter| mapped(*letter)).collect() };
        assert_eq!(becoming(|letter| letter.to_lowercase().any(|mapped| mapped.is_ascii())), "\u{130}\u{212a}");
        let to_upper = becoming(|letter| letter.to_uppercase().any(|mapped| mapped.is_ascii()));
        assert!(["ß", "ı", "ſ", "ﬁ"].iter().all(|letter| to_upper.contains(letter)) && to_upper.chars().count() < 30);
    }

    #[test]
    fn non_ascii_letters_are_kept() {
        let context = Context { encoding: TextEncoding::Utf8, result: crate::value::ValueKind::Text };
        let call = |function, text: &'static str| {
            let Some(Function { body: super::super::FunctionBody::Scalar(scalar), .. }) = keeping_non_ascii(function)
            else {
                panic!()
            };
            scalar(&mut [Value::Bytes(text.as_bytes().into())], &context).map(|value| match value {
                Value::Bytes(bytes) => String::from_utf8(bytes.into()).unwrap(),
                _ => panic!(),
            })
        };
        assert_eq!(call(LOWER, "MÜLLER 7").unwrap(), "mÜller 7");
        assert_eq!(call(UPPER, "Müller 7").unwrap(), "MüLLER 7");
        assert!(call(LOWER, "\u{212a}").is_err() && call(UPPER, "Straße").is_err());
        assert!(keeping_non_ascii(LOWER) != keeping_non_ascii(UPPER), "results of one are not reused for the other");
    }

    fn evaluate(scalar: super::super::Scalar, args: &[Value<'static>]) -> Option<String> {
        let context = Context { encoding: TextEncoding::Utf8, result: crate::value::ValueKind::Text };
        match scalar(&mut args.to_vec(), &context) {
            Ok(Value::Bytes(bytes)) => Some(String::from_utf8(bytes.into_owned()).unwrap()),
            _ => None,
        }
    }

    fn text(text: &'static str) -> Value<'static> {
        Value::Bytes(text.as_bytes().into())
    }

    /// The expected values are PostgreSQL's.
    #[test]
    fn regular_expressions_replace_as_in_postgresql() {
        let replaced = |whole, pattern, new| evaluate(regex_replace, &[text(whole), text(pattern), text(new)]);
        for (pattern, new, expected) in [
            ("^a(b+)(c)", r"\2\1", "cbbd"),
            ("^a(b+)(c)", r"<\&>", "<abbc>d"),
            ("^a(b+)(c)", r"\\1\3\x\", r"\1\x\d"),
            ("^a(b+).*$", r"\1", "bb"),
            ("^x", "y", "abbcd"),
        ] {
            assert_eq!(replaced("abbcd", pattern, new).as_deref(), Some(expected), "{pattern} by {new}");
        }
    }

    /// The expected values are PostgreSQL's.
    #[test]
    fn fields_and_replacements_are_those_of_postgresql() {
        let field =
            |whole, separator, number| evaluate(split_part, &[text(whole), text(separator), Value::Int(number)]);
        for (number, expected) in [(1, "a"), (2, ""), (3, "b"), (4, ""), (-1, "b"), (-2, ""), (-3, "a"), (-4, "")] {
            assert_eq!(field("a,,b", ",", number).as_deref(), Some(expected), "field {number}");
        }
        assert_eq!(field("a,b", ",", 0), None);
        assert_eq!(field("aaa", "aa", 1).as_deref(), Some(""));
        assert_eq!(field("aaaa", "", 1).as_deref(), Some("aaaa"));
        assert_eq!(field("aaaa", "", 2).as_deref(), Some(""));
        assert_eq!(field("", ",", 1).as_deref(), Some(""));
        let replaced = |whole, sought, other| evaluate(replace, &[text(whole), text(sought), text(other)]);
        assert_eq!(replaced("aaa", "aa", "b").as_deref(), Some("ba"));
        assert_eq!(replaced("äbä", "ä", "").as_deref(), Some("b"));
        assert_eq!(replaced("abc", "", "x").as_deref(), Some("abc"));
    }
}
