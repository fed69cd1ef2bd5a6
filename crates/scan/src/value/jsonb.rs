//! PostgreSQL's `jsonb`: lookup, containment and text.
//!
//! A value is a container: a header with the number of elements or pairs, an entry for each element, or for each key and
//! then each value, and the data of the entries. An entry has the length of its data, or the offset of their end. Numbers
//! and nested containers are aligned to four bytes relative to the data. A scalar is an array with one element.
//!
//! Values are not trusted: a malformed value is [`Undecided`], and so is one that is nested deeply, because the functions
//! here are recursive. Source: `utils/jsonb.h`, `utils/adt/jsonb_util.c`, `jsonb.c`, `json.c` (`escape_json`).

use super::numeric::Numeric;
use super::{Undecided, numeric_text};
use std::cmp::Ordering;

const COUNT: u32 = 0x0fff_ffff;
const SCALAR: u32 = 0x1000_0000;
const OBJECT: u32 = 0x2000_0000;
const ARRAY: u32 = 0x4000_0000;

const LENGTH_OR_END: u32 = 0x0fff_ffff;
const TYPE: u32 = 0x7000_0000;
const IS_STRING: u32 = 0;
const IS_NUMERIC: u32 = 0x1000_0000;
const IS_FALSE: u32 = 0x2000_0000;
const IS_TRUE: u32 = 0x3000_0000;
const IS_NULL: u32 = 0x4000_0000;
const IS_CONTAINER: u32 = 0x5000_0000;
const HAS_END: u32 = 0x8000_0000;

/// Deeper values are left to PostgreSQL.
const DEPTH_MAX: usize = 100;
/// Longer texts are left to PostgreSQL.
const TEXT_BYTES_MAX: usize = 64 << 20;

fn word(bytes: &[u8], at: usize) -> Result<u32, Undecided> {
    let bytes = bytes.get(at..).and_then(|bytes| bytes.first_chunk()).ok_or(Undecided)?;
    Ok(u32::from_le_bytes(*bytes))
}

/// An object, an array or a scalar.
#[derive(Debug, Clone, Copy)]
pub struct Container<'a> {
    /// Exactly the bytes of the container.
    bytes: &'a [u8],
    header: u32,
}

/// An element of an array or a value of an object.
#[derive(Debug, Clone, Copy)]
pub enum Item<'a> {
    Null,
    Bool(bool),
    String(&'a [u8]),
    /// The payload of the numeric.
    Numeric(&'a [u8]),
    Container(Container<'a>),
}

impl<'a> Container<'a> {
    /// Reads the header of a container. `bytes` are those of the container, or the payload of a datum.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Undecided> {
        let container = Self { bytes, header: word(bytes, 0)? };
        let is_known = matches!(container.header & !COUNT, OBJECT | ARRAY) || container.header == ARRAY | SCALAR | 1;
        if is_known && container.data_start() <= bytes.len() { Ok(container) } else { Err(Undecided) }
    }

    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    pub fn is_object(&self) -> bool {
        self.header & OBJECT != 0
    }

    /// Whether the container is an array or a scalar.
    pub fn has_elements(&self) -> bool {
        self.header & ARRAY != 0
    }

    /// The scalar, if the container is one.
    pub fn scalar(&self) -> Result<Option<Item<'a>>, Undecided> {
        if self.header & SCALAR == 0 { Ok(None) } else { self.element(0) }
    }

    /// The number of elements or pairs.
    pub fn count(&self) -> usize {
        (self.header & COUNT) as usize
    }

    fn entry_count(&self) -> usize {
        if self.is_object() { 2 * self.count() } else { self.count() }
    }

    fn data_start(&self) -> usize {
        4 + 4 * self.entry_count()
    }

    fn entry(&self, index: usize) -> Result<u32, Undecided> {
        word(self.bytes, 4 + 4 * index)
    }

    /// Where the data of an entry start.
    fn start(&self, index: usize) -> Result<usize, Undecided> {
        let mut start = 0;
        for before in (0..index).rev() {
            let entry = self.entry(before)?;
            start += (entry & LENGTH_OR_END) as usize;
            if entry & HAS_END != 0 {
                break;
            }
        }
        Ok(start)
    }

    /// The data of an entry, given where they start.
    fn data(&self, entry: u32, start: usize) -> Result<&'a [u8], Undecided> {
        let data = self.bytes.get(self.data_start()..).ok_or(Undecided)?;
        data.get(start..end(entry, start)).ok_or(Undecided)
    }

    /// The key of a pair. `start` is where its data start.
    fn key(&self, pair: usize, start: usize) -> Result<&'a [u8], Undecided> {
        let entry = self.entry(pair)?;
        if entry & TYPE != IS_STRING {
            return Err(Undecided);
        }
        self.data(entry, start)
    }

    /// The value of an entry, given where its data start.
    fn item(&self, index: usize, start: usize) -> Result<Item<'a>, Undecided> {
        let entry = self.entry(index)?;
        let aligned = || {
            let data = self.data(entry, start)?;
            data.get(start.next_multiple_of(4) - start..).ok_or(Undecided)
        };
        Ok(match entry & TYPE {
            IS_STRING => Item::String(self.data(entry, start)?),
            IS_NUMERIC => {
                let datum = aligned()?;
                let header = word(datum, 0)?;
                if header & 3 != 0 {
                    return Err(Undecided);
                }
                Item::Numeric(datum.get(4..(header >> 2) as usize).ok_or(Undecided)?)
            }
            IS_FALSE => Item::Bool(false),
            IS_TRUE => Item::Bool(true),
            IS_NULL => Item::Null,
            IS_CONTAINER => Item::Container(Container::parse(aligned()?)?),
            _ => return Err(Undecided),
        })
    }

    /// An element of an array or a scalar. None: the array has fewer elements.
    pub fn element(&self, index: usize) -> Result<Option<Item<'a>>, Undecided> {
        if !self.has_elements() || index >= self.count() {
            return Ok(None);
        }
        self.item(index, self.start(index)?).map(Some)
    }

    /// The value with this key. None: the container is no object, or has no such key.
    pub fn field(&self, key: &[u8]) -> Result<Option<Item<'a>>, Undecided> {
        if !self.is_object() {
            return Ok(None);
        }
        let (mut low, mut high) = (0, self.count());
        while low < high {
            let middle = low + (high - low) / 2;
            let found = self.key(middle, self.start(middle)?)?;
            // Keys are ordered by length, then by bytes.
            match found.len().cmp(&key.len()).then_with(|| found.cmp(key)) {
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
                Ordering::Equal => {
                    let index = self.count() + middle;
                    return self.item(index, self.start(index)?).map(Some);
                }
            }
        }
        Ok(None)
    }

    /// Calls `visit` with each element, or with each key and value, in order.
    fn for_each(
        &self,
        mut visit: impl FnMut(Option<&'a [u8]>, Item<'a>) -> Result<(), Undecided>,
    ) -> Result<(), Undecided> {
        let first = if self.is_object() { self.count() } else { 0 };
        let (mut key_start, mut start) = (0, self.start(first)?);
        for number in 0..self.count() {
            let key = if self.is_object() { Some(self.key(number, key_start)?) } else { None };
            visit(key, self.item(first + number, start)?)?;
            key_start = end(self.entry(number)?, key_start);
            start = end(self.entry(first + number)?, start);
        }
        Ok(())
    }

    /// Whether an array has this element. A container is no element in this sense.
    fn has_element(&self, wanted: &Item<'_>) -> Result<bool, Undecided> {
        let mut start = 0;
        for index in 0..self.count() {
            if self.item(index, start)?.equals(wanted)? {
                return Ok(true);
            }
            start = end(self.entry(index)?, start);
        }
        Ok(false)
    }

    /// Whether the string is a key of the object, or an element of the array, or the scalar itself (`jsonb_exists`).
    pub fn has_string(&self, string: &[u8]) -> Result<bool, Undecided> {
        if self.is_object() { Ok(self.field(string)?.is_some()) } else { self.has_element(&Item::String(string)) }
    }

    /// Whether the container contains `other` (`jsonb_contains`).
    pub fn contains(&self, other: &Container<'_>) -> Result<bool, Undecided> {
        self.contains_at(other, 0)
    }

    fn contains_at(&self, other: &Container<'_>, depth: usize) -> Result<bool, Undecided> {
        if depth > DEPTH_MAX {
            return Err(Undecided);
        }
        // An array may contain a scalar, but not the reverse.
        let is_scalar = |container: &Container<'_>| container.header & SCALAR != 0;
        if self.is_object() != other.is_object() || is_scalar(self) && !is_scalar(other) {
            return Ok(false);
        }
        if self.is_object() && self.count() < other.count() {
            return Ok(false);
        }
        let mut contained = true;
        other.for_each(|key, wanted| {
            contained = contained
                && match (key, wanted) {
                    (Some(key), wanted) => match (self.field(key)?, wanted) {
                        (Some(Item::Container(found)), Item::Container(wanted)) => {
                            found.contains_at(&wanted, depth + 1)?
                        }
                        (Some(found), wanted) => found.equals(&wanted)?,
                        (None, _) => false,
                    },
                    (None, Item::Container(wanted)) => self.has_container(&wanted, depth + 1)?,
                    (None, wanted) => self.has_element(&wanted)?,
                };
            Ok(())
        })?;
        Ok(contained)
    }

    /// Whether an element of the array contains `wanted`.
    fn has_container(&self, wanted: &Container<'_>, depth: usize) -> Result<bool, Undecided> {
        let mut found = false;
        self.for_each(|_, item| {
            if let Item::Container(element) = item
                && !found
            {
                found = element.contains_at(wanted, depth)?;
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// Appends the text of the container, as `JsonbToCString` prints it.
    fn write_text_at(&self, out: &mut Vec<u8>, depth: usize) -> Result<(), Undecided> {
        if depth > DEPTH_MAX || out.len() > TEXT_BYTES_MAX {
            return Err(Undecided);
        }
        if let Some(scalar) = self.scalar()? {
            return scalar.write_json_at(out, depth);
        }
        let (open, close) = if self.is_object() { (b'{', b'}') } else { (b'[', b']') };
        out.push(open);
        let mut is_first = true;
        self.for_each(|key, item| {
            if !std::mem::take(&mut is_first) {
                out.extend_from_slice(b", ");
            }
            if let Some(key) = key {
                write_escaped(key, out);
                out.extend_from_slice(b": ");
            }
            item.write_json_at(out, depth)
        })?;
        out.push(close);
        Ok(())
    }
}

/// Where the data of an entry end.
fn end(entry: u32, start: usize) -> usize {
    let number = (entry & LENGTH_OR_END) as usize;
    if entry & HAS_END != 0 { number } else { start + number }
}

impl<'a> Item<'a> {
    /// Whether two scalars are equal (`equalsJsonbScalarValue`). Containers are not equal to anything here.
    fn equals(&self, other: &Item<'_>) -> Result<bool, Undecided> {
        Ok(match (self, other) {
            (Item::Null, Item::Null) => true,
            (Item::Bool(left), Item::Bool(right)) => left == right,
            (Item::String(left), Item::String(right)) => left == right,
            (Item::Numeric(left), Item::Numeric(right)) => {
                left == right || numeric(left)?.compare(&numeric(right)?).is_eq()
            }
            _ => false,
        })
    }

    /// Appends the JSON text of the item.
    pub fn write_json(&self, out: &mut Vec<u8>) -> Result<(), Undecided> {
        self.write_json_at(out, 0)
    }

    fn write_json_at(&self, out: &mut Vec<u8>, depth: usize) -> Result<(), Undecided> {
        match self {
            Item::Null => out.extend_from_slice(b"null"),
            Item::Bool(true) => out.extend_from_slice(b"true"),
            Item::Bool(false) => out.extend_from_slice(b"false"),
            Item::String(string) => write_escaped(string, out),
            Item::Numeric(payload) => numeric_text::write(&numeric(payload)?, out).ok_or(Undecided)?,
            Item::Container(container) => container.write_text_at(out, depth + 1)?,
        }
        Ok(())
    }

    /// Appends the value as a `jsonb` scalar, or the container.
    pub fn write_jsonb(&self, out: &mut Vec<u8>) {
        let (kind, data) = match self {
            Item::Container(container) => return out.extend_from_slice(container.bytes()),
            Item::Null => (IS_NULL, &[][..]),
            Item::Bool(true) => (IS_TRUE, &[][..]),
            Item::Bool(false) => (IS_FALSE, &[][..]),
            Item::String(string) => (IS_STRING, *string),
            Item::Numeric(payload) => (IS_NUMERIC, *payload),
        };
        // The header of a varlena; see varatt.h.
        let header = ((data.len() as u32 + 4) << 2).to_le_bytes();
        let header = if kind == IS_NUMERIC { &header[..] } else { &[] };
        out.extend_from_slice(&(ARRAY | SCALAR | 1).to_le_bytes());
        // The first entry of a container has the offset of its end.
        out.extend_from_slice(&(kind | HAS_END | (header.len() + data.len()) as u32).to_le_bytes());
        out.extend_from_slice(header);
        out.extend_from_slice(data);
    }
}

/// Decodes the number of an [`Item::Numeric`].
pub fn numeric(payload: &[u8]) -> Result<Numeric, Undecided> {
    Numeric::decode(payload).ok_or(Undecided)
}

/// Appends a string with quotes (`escape_json`).
fn write_escaped(string: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for byte in string {
        match byte {
            b'\x08' => out.extend_from_slice(b"\\b"),
            b'\x0c' => out.extend_from_slice(b"\\f"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            control if *control < b' ' => out.extend_from_slice(format!("\\u{control:04x}").as_bytes()),
            other => out.push(*other),
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An array or object with these entries, each a type and its data.
    fn container(header: u32, entries: &[(u32, &[u8])]) -> Vec<u8> {
        let mut bytes = header.to_le_bytes().to_vec();
        let mut data = Vec::new();
        for (index, (kind, value)) in entries.iter().enumerate() {
            let start = data.len();
            if matches!(*kind, IS_NUMERIC | IS_CONTAINER) {
                data.resize(data.len().next_multiple_of(4), 0);
            }
            data.extend_from_slice(value);
            let has_end = index % 32 == 0;
            let number = if has_end { data.len() } else { data.len() - start };
            bytes.extend((kind | number as u32 | if has_end { HAS_END } else { 0 }).to_le_bytes());
        }
        bytes.extend(data);
        bytes
    }

    fn text(bytes: &[u8]) -> Result<String, Undecided> {
        let mut out = Vec::new();
        Container::parse(bytes)?.write_text_at(&mut out, 0)?;
        Ok(String::from_utf8_lossy(&out).into_owned())
    }

    fn nested(depth: usize) -> Vec<u8> {
        (0..depth).fold(container(ARRAY, &[]), |inner, _| container(ARRAY | 1, &[(IS_CONTAINER, &inner)]))
    }

    #[test]
    fn objects_with_many_keys_are_searched_by_length_and_bytes() {
        let keys: Vec<String> = (10..99).map(|number| format!("k{number}")).collect();
        let values: Vec<String> = (10..99).map(|number| format!("value {number}")).collect();
        let strings = keys.iter().chain(&values).map(|string| (IS_STRING, string.as_bytes()));
        let bytes = container(OBJECT | keys.len() as u32, &strings.collect::<Vec<_>>());
        let object = Container::parse(&bytes).unwrap();
        for (key, value) in keys.iter().zip(&values) {
            let Ok(Some(Item::String(found))) = object.field(key.as_bytes()) else { panic!("{key}") };
            assert_eq!(found, value.as_bytes());
        }
        for key in ["", "k", "k09", "k99", "k100", "zzz"] {
            assert!(object.field(key.as_bytes()).unwrap().is_none(), "{key}");
        }
        assert!(text(&bytes).unwrap().starts_with(r#"{"k10": "value 10", "k11": "value 11", "#));
    }

    #[test]
    fn text_is_escaped_as_in_postgresql() {
        let bytes = container(
            ARRAY | 4,
            &[(IS_STRING, "a\"b\\\n\u{1}\u{7f}é".as_bytes()), (IS_NULL, b""), (IS_TRUE, b""), (IS_FALSE, b"")],
        );
        assert_eq!(text(&bytes).unwrap(), "[\"a\\\"b\\\\\\n\\u0001\u{7f}é\", null, true, false]");
        assert_eq!(text(&container(OBJECT, &[])).unwrap(), "{}");
        assert_eq!(text(&container(ARRAY | SCALAR | 1, &[(IS_STRING, b"x")])).unwrap(), "\"x\"");
    }

    #[test]
    fn deep_values_are_undecided() {
        assert!(text(&nested(50)).is_ok());
        assert!(text(&nested(1000)).is_err());
        let deep = nested(1000);
        let deep = Container::parse(&deep).unwrap();
        assert!(deep.contains(&deep).is_err());
    }

    #[test]
    fn malformed_values_do_not_panic() {
        let inner = container(OBJECT | 1, &[(IS_STRING, b"n"), (IS_NUMERIC, &[24, 0, 0, 0, 0, 0x80])]);
        let number = [24, 0, 0, 0, 0x80, 0x80];
        let strings = [(IS_STRING, &b"a"[..]), (IS_STRING, b"b"), (IS_NUMERIC, &number), (IS_CONTAINER, &inner)];
        let good = container(OBJECT | 2, &strings);
        for at in 0..good.len() {
            for flip in [1u8, 2, 4, 8, 16, 32, 64, 128, 255] {
                let mut bytes = good.clone();
                bytes[at] ^= flip;
                for bytes in [&bytes[..], &bytes[..at]] {
                    let Ok(container) = Container::parse(bytes) else { continue };
                    let _ = text(bytes);
                    let _ = container.field(b"b");
                    let _ = container.element(1);
                    let _ = container.has_string(b"a");
                    let _ = container.contains(&container);
                }
            }
        }
    }
}
