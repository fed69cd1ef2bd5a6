//! A unit's contents as plain data, for reports: what its directory says about pages, chunks and columns.
//!
//! Everything comes from the directory; no row is decoded.

use super::attribute::{AttributeChunk, Bounds};
use super::chunk::Chunk;
use super::open::Unit;
use super::page::{HEADER_FIELDS, PageKind};
use super::shape::{Attribute, Level, Number};
use cellar_format::postgres::{Oid, type_oid};
use std::ops::Range;

const MICROSECONDS_PER_DAY: i64 = 86_400_000_000;
/// Days from 0000-03-01 to 2000-01-01 in the Gregorian calendar.
const DAYS_TO_2000: i64 = 730_425;
const DAYS_PER_ERA: i64 = 146_097;

/// The directory of a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitDescription {
    pub level: Level,
    /// Bytes of the whole unit.
    pub bytes: u64,
    /// Bytes of header and directory.
    pub directory_bytes: u64,
    /// Bytes of patches and raw pages, compressed.
    pub residue_bytes: u64,
    /// Pages that share a compressed residue.
    pub residue_pages: usize,
    pub pages: usize,
    pub rows: usize,
    /// Numbers of the pages whose bytes are all zero.
    pub zero_pages: Vec<u32>,
    /// Numbers of the pages that are stored byte for byte.
    pub raw_pages: Vec<u32>,
    pub chunks: Vec<ChunkDescription>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkDescription {
    pub pages: Range<usize>,
    /// Rows as numbers in the unit.
    pub rows: Range<usize>,
    pub lines: usize,
    /// Every page with rows is marked all-visible.
    pub is_all_visible: bool,
    /// Every row is frozen.
    pub is_all_frozen: bool,
    /// Bytes of line pointers and tuple headers.
    pub header_bytes: usize,
    pub columns: Vec<ColumnDescription>,
}

/// A column in one chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnDescription {
    /// 1-based attribute number.
    pub number: usize,
    /// 0 if the attribute was dropped.
    pub type_oid: Oid,
    /// Representation and encoding.
    pub encoding: String,
    pub bytes: usize,
    /// Rows that are NULL.
    pub nulls: u32,
    /// Rows whose tuple ends before the attribute.
    pub missing: u32,
    /// Rows stored as whole datums; minimum and maximum do not cover them.
    pub exceptions: u32,
    /// Minimum and maximum as text; None if the directory has none. Texts are cut to 32 bytes.
    pub bounds: Option<(String, String)>,
}

impl Unit {
    pub fn describe(&self) -> UnitDescription {
        let pages_of = |kind: PageKind| {
            let pages = self.pages().iter().enumerate().filter(move |(_, page)| page.kind == kind);
            pages.map(|(number, _)| number as u32).collect()
        };
        UnitDescription {
            level: self.level(),
            bytes: self.bytes(),
            directory_bytes: self.directory_bytes(),
            residue_bytes: self.residue_bytes(),
            residue_pages: self.residues().group_pages,
            pages: self.pages().len(),
            rows: self.rows(),
            zero_pages: pages_of(PageKind::Zero),
            raw_pages: pages_of(PageKind::Raw),
            chunks: self.chunks().iter().map(|chunk| self.describe_chunk(chunk)).collect(),
        }
    }

    fn describe_chunk(&self, chunk: &Chunk) -> ChunkDescription {
        let visibility = self.visibility(chunk);
        let lines = [&chunk.line_state, &chunk.line_rest];
        let headers = HEADER_FIELDS.map(|field| chunk.header(field).data_bytes());
        let columns = self.shape().attributes.iter().zip(&chunk.attributes).enumerate();
        ChunkDescription {
            pages: chunk.pages(),
            rows: chunk.row_range(),
            lines: chunk.line_state.count(),
            is_all_visible: visibility.all_visible,
            is_all_frozen: visibility.all_frozen,
            header_bytes: lines.map(|line| line.data_bytes()).iter().chain(&headers).sum(),
            columns: columns.map(|(index, (attribute, entry))| describe_column(index + 1, attribute, entry)).collect(),
        }
    }
}

fn describe_column(number: usize, attribute: &Attribute, entry: &AttributeChunk) -> ColumnDescription {
    let both = |text: &dyn Fn(i64) -> String, min, max| Some((text(min), text(max)));
    let bounds = match entry.bounds() {
        Bounds::None => None,
        Bounds::Number { min, max } => both(&|value| number_text(attribute, value), min, max),
        Bounds::Numeric { min, max, scale } => both(&|value| numeric_text(value, scale), min, max),
        Bounds::Bytes { min, max, max_is_cut } => {
            Some((bytes_text(&min), bytes_text(&max) + if max_is_cut { "…" } else { "" }))
        }
    };
    ColumnDescription {
        number,
        type_oid: attribute.type_oid,
        encoding: entry.encoding_name(),
        bytes: entry.data_bytes(),
        nulls: entry.nulls,
        missing: entry.missing,
        exceptions: entry.exceptions(),
        bounds,
    }
}

fn number_text(attribute: &Attribute, value: i64) -> String {
    let bytes = Number::of(attribute).map_or(value.to_le_bytes(), |number| number.encode(value));
    match attribute.type_oid {
        type_oid::FLOAT4 => f32::from_le_bytes(bytes[..4].try_into().expect("4 bytes")).to_string(),
        type_oid::FLOAT8 => f64::from_le_bytes(bytes).to_string(),
        type_oid::BOOL => (value != 0).to_string(),
        type_oid::DATE if value.unsigned_abs() < i32::MAX as u64 => date_text(value),
        type_oid::TIMESTAMP | type_oid::TIMESTAMPTZ if value.unsigned_abs() < i64::MAX as u64 => {
            let (day, time) = (value.div_euclid(MICROSECONDS_PER_DAY), value.rem_euclid(MICROSECONDS_PER_DAY));
            let seconds = time / 1_000_000;
            let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
            format!("{} {hour:02}:{minute:02}:{second:02}.{:06}", date_text(day), time % 1_000_000)
        }
        _ => value.to_string(),
    }
}

/// Formats a day, counted from 2000-01-01, in the Gregorian calendar.
fn date_text(day: i64) -> String {
    let days = day + DAYS_TO_2000;
    let (era, in_era) = (days.div_euclid(DAYS_PER_ERA), days.rem_euclid(DAYS_PER_ERA));
    let year = (in_era - in_era / 1460 + in_era / 36_524 - in_era / 146_096) / 365;
    let in_year = in_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * in_year + 2) / 153;
    let month = (from_march + 2) % 12 + 1;
    let year = year + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{:02}", in_year - (153 * from_march + 2) / 5 + 1)
}

fn numeric_text(value: i64, scale: u8) -> String {
    let digits = format!("{:0>width$}", value.unsigned_abs(), width = usize::from(scale) + 1);
    let (whole, fraction) = digits.split_at(digits.len() - usize::from(scale));
    let (sign, point) = (if value < 0 { "-" } else { "" }, if scale > 0 { "." } else { "" });
    format!("{sign}{whole}{point}{fraction}")
}

/// Formats bytes as text, or as hexadecimal digits if they are not UTF-8 apart from a cut last character.
fn bytes_text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.escape_debug().to_string(),
        Err(error) if error.error_len().is_none() => {
            String::from_utf8_lossy(&bytes[..error.valid_up_to()]).escape_debug().to_string()
        }
        Err(_) => bytes.iter().fold("\\x".to_owned(), |text, byte| text + &format!("{byte:02x}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cellar_format::postgres::{Align, Width};

    #[test]
    fn minimum_and_maximum_are_readable() {
        let text = |type_oid, width, value| {
            let align = Align::Int;
            let attribute = Attribute { type_oid, width: Width::Fixed(width), align, by_value: true, dropped: false };
            number_text(&attribute, value)
        };
        let dates =
            [(0, "2000-01-01"), (-1, "1999-12-31"), (59, "2000-02-29"), (60, "2000-03-01"), (9496, "2025-12-31")];
        for (day, expected) in dates {
            assert_eq!(text(type_oid::DATE, 4, day), expected);
        }
        assert_eq!(text(type_oid::TIMESTAMP, 8, -1), "1999-12-31 23:59:59.999999");
        assert_eq!(text(type_oid::INT4, 4, -7), "-7");
        assert_eq!(text(type_oid::FLOAT8, 8, 1.5_f64.to_bits() as i64), "1.5");
        for extreme in [i64::MIN, i64::MAX] {
            for oid in [type_oid::DATE, type_oid::TIMESTAMP, type_oid::FLOAT4, type_oid::INT8] {
                text(oid, 8, extreme);
            }
        }
        let numerics = [(-5, 2, "-0.05"), (12_345, 2, "123.45"), (7, 0, "7"), (i64::MIN, 0, "-9223372036854775808")];
        for (value, scale, expected) in numerics {
            assert_eq!(numeric_text(value, scale), expected);
        }
        assert_eq!(bytes_text("añ".as_bytes()), "añ");
        assert_eq!(bytes_text(&"añ".as_bytes()[..2]), "a");
        assert_eq!(bytes_text(&[b'a', 0xff, b'b']), "\\x61ff62");
    }
}
