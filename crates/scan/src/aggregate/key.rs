//! Group keys: encodes the values of a column or an expression as codes of a [`GroupTable`], and decodes codes to
//! datums.

use super::groups::{GroupTable, INLINE_BYTES};
use super::linear::Linear;
use super::partial::{numeric_payload, stride};
use crate::batch::ColumnBuilder;
use crate::heap::{MISSING, NULL, Slot};
use crate::predicate::{
    CodeEncoding, Column, ColumnRequirement, EncodedColumn, EvalCache, Evaluation, IS_NULL, Lanes, Node, NumberExpr,
    RowSet, UNCERTAIN,
};
use crate::value::{NAME_BYTES, Numeric, Value, ValueKind, numeric};

/// The bounds of `value * 10^scale` within which this product is the code of a numeric of known scale.
const SCALED: (i64, i64) = (-(1 << 61), 1 << 61);
/// Marks the code of any other numeric of a key with a known scale: the string code of its datum's payload. A product within
/// [`SCALED`] has this bit only together with the sign bit. Without a known scale, all codes are string codes without this mark.
const DATUM_CODE: u64 = 1 << 62;
/// The greatest scale that `Numeric::from_decimal` accepts.
const KEY_DECIMALS_MAX: u16 = 8;

/// The key codes of a run of rows.
#[derive(Debug, Default)]
pub struct RowCodes {
    /// [`GroupTable::words`] words per row: a code for each key, then the NULL bits.
    pub words: Vec<u64>,
    /// Positions of the rows whose key could not be computed.
    pub undecided: Vec<u32>,
}

impl RowCodes {
    /// Replaces the contents by `words` zeroes.
    pub fn clear(&mut self, words: usize) {
        self.words.clear();
        self.words.resize(words, 0);
        self.undecided.clear();
    }

    /// Adds the rows for which a linear function of a key overflows to the undecided rows. `words` is the number of words per
    /// row.
    pub fn flag_undefined(&mut self, key: usize, linear: &Linear, words: usize) {
        let values = self.words.chunks_exact(words).map(|row| row[key] as i64);
        let bounds = values.clone().fold((i64::MAX, i64::MIN), |(min, max), value| (min.min(value), max.max(value)));
        if bounds.0 > bounds.1 || linear.is_defined_within(bounds) {
            return;
        }
        for (index, row) in self.words.chunks_exact(words).enumerate() {
            if row[words - 1] >> key & 1 == 0 && !linear.is_defined(row[key] as i64) {
                self.undecided.push(index as u32);
            }
        }
    }
}

/// Appends a linear function of key `number` to its column, which has `row` rows. `codes` are those of the group.
pub fn put_linear(number: usize, kind: ValueKind, linear: &Linear, codes: &[u64], row: usize, out: &mut ColumnBuilder) {
    match codes[codes.len() - 1] >> number & 1 {
        0 => out.push_int(kind, linear.sum((codes[number] as i64).into(), 1) as i64),
        _ => out.push_null(row, stride(kind)),
    }
}

/// An expression that rows are grouped by.
pub struct Key {
    node: Node,
    pub kind: ValueKind,
    /// The slot, if the key is a plain column.
    column: Option<Slot>,
    /// Computes codes over vectors, if the key is an expression whose values are integers, numerics of one scale, or `strings`.
    fast: Option<NumberExpr>,
    /// The strings whose positions `fast` computes, if the key is a CASE with constant strings as results.
    strings: Vec<Vec<u8>>,
    /// The display scale of all values, if the key is a numeric: a column with a declared scale, or computed by `fast`.
    scale: Option<u8>,
    /// The columns that the expression reads.
    pub slots: Vec<Slot>,
}

impl Key {
    pub fn new(
        node: Node,
        kind: ValueKind,
        slots: Vec<Slot>,
        columns: &[Option<Column>],
        evaluation: Evaluation,
    ) -> Self {
        let column = match node {
            Node::Column(slot) => Some(slot),
            _ => None,
        };
        let decimals = column.and_then(|slot| columns.get(slot as usize)?.as_ref()?.decimals);
        let scale = decimals.filter(|decimals| *decimals <= KEY_DECIMALS_MAX).map(|decimals| decimals as u8);
        let is_computed = column.is_none() && evaluation == Evaluation::Vectors;
        let mut fast = is_computed.then(|| NumberExpr::number(&node, kind, columns)).flatten();
        let choice = if is_computed { NumberExpr::choice(&node, columns) } else { None };
        let mut strings = Vec::new();
        if let Some((number, results)) = choice {
            (fast, strings) = (Some(number), results);
        }
        let mut scale = scale;
        if kind == ValueKind::Numeric && column.is_none() {
            // Codes are numerics times a power of ten, which represent the display scale, too.
            let display_scale = NumberExpr::display_scale(&node, columns).and_then(|scale| scale.constant());
            fast = fast
                .filter(|fast| display_scale == Some(fast.scale().into()) && fast.scale() <= KEY_DECIMALS_MAX.into());
            scale = fast.as_ref().map(|fast| fast.scale() as u8);
        }
        Self { node, kind, column, fast, strings, scale, slots }
    }

    /// Calls `visit` with the requirements under which codes can be computed without datums.
    pub fn for_each_requirement(&self, visit: &mut impl FnMut(Slot, ColumnRequirement)) {
        let requirement = match self.scale {
            Some(scale) => ColumnRequirement::Scaled { scale, bounds: SCALED },
            None if self.kind.is_int() => ColumnRequirement::Numbers { scale: 0 },
            None => ColumnRequirement::Strings,
        };
        match (self.column, &self.fast) {
            (Some(slot), _) => visit(slot, requirement),
            (None, Some(fast)) => fast.for_each_requirement(visit),
            (None, None) => self.slots.iter().for_each(|slot| visit(*slot, ColumnRequirement::Datums)),
        }
    }

    /// The encoded values of the key; None: the key needs datums.
    pub fn encoded<'a>(&self, rows: RowSet<'a>) -> Option<&'a EncodedColumn<'a>> {
        self.column.and_then(|slot| rows.encoded(slot))
    }

    /// Writes the key's code into word `number` of each selected row, or sets bit `number` of the row's last word if
    /// the key is NULL.
    pub fn codes<'a>(
        &'a self,
        number: usize,
        rows: RowSet<'a>,
        selected: &[u16],
        cache: &mut EvalCache<'a>,
        table: &mut GroupTable,
        codes: &mut RowCodes,
    ) {
        let row_words = table.words();
        if let Some(encoded) = self.encoded(rows) {
            return encoded_codes(encoded, number, 0..encoded.codes.len(), table, &mut codes.words);
        }
        if let Some(fast) = &self.fast {
            let lanes = fast.eval(rows, selected, cache);
            return self.lane_codes(&lanes, number, rows, selected, table, codes);
        }
        let column = self.column.and_then(|slot| Some((slot, rows.column(slot)?)));
        let is_string = self.is_string();
        let (mut long, mut long_rows): (Vec<&[u8]>, Vec<u32>) = (Vec::new(), Vec::new());
        for (index, (at, row)) in selected.iter().zip(codes.words.chunks_exact_mut(row_words)).enumerate() {
            if let Some((slot, column)) = column {
                let location = rows.locations(slot)[*at as usize];
                if location == NULL {
                    row[row_words - 1] |= 1 << number;
                    continue;
                }
                if is_string
                    && location != MISSING
                    && let Some(bytes) = column.plain_bytes(rows.bytes, location as usize)
                    && bytes.len() > INLINE_BYTES
                {
                    long.push(bytes);
                    long_rows.push(index as u32);
                    continue;
                }
                if location != MISSING
                    && let Some(code) = self.plain_code(column, rows.bytes, location as usize, table)
                {
                    row[number] = code;
                    continue;
                }
            }
            if !self.interpret(number, rows, *at, table, row) {
                codes.undecided.push(index as u32);
            }
        }
        table.listed_codes(&long, |index, code| codes.words[long_rows[index] as usize * row_words + number] = code);
    }

    /// [`Self::codes`] from computed numbers.
    fn lane_codes(
        &self,
        lanes: &Lanes,
        number: usize,
        rows: RowSet<'_>,
        selected: &[u16],
        table: &mut GroupTable,
        codes: &mut RowCodes,
    ) {
        let row_words = table.words();
        let has_datums = rows.encoded_columns.columns.is_empty();
        let string_codes: Vec<u64> = self.strings.iter().map(|string| table.string_code(string)).collect();
        let (least, most) = if self.kind == ValueKind::Numeric { SCALED } else { (i64::MIN, i64::MAX) };
        for (index, ((value, flags), row)) in lanes.iter().zip(codes.words.chunks_exact_mut(row_words)).enumerate() {
            if flags & UNCERTAIN != 0 || flags & IS_NULL == 0 && !(least..=most).contains(&value) {
                if !has_datums || !self.interpret(number, rows, selected[index], table, row) {
                    codes.undecided.push(index as u32);
                }
            } else if flags & IS_NULL != 0 {
                row[row_words - 1] |= 1 << number;
            } else {
                row[number] = string_codes.get(value as usize).copied().unwrap_or(value as u64);
            }
        }
    }

    /// Writes the key of a row, as the interpreter computes it, to the row's words. False: the key is undecided.
    fn interpret(&self, number: usize, rows: RowSet<'_>, at: u16, table: &mut GroupTable, row: &mut [u64]) -> bool {
        match self.node.eval(&rows.row(at)) {
            Ok(Value::Null) => row[row.len() - 1] |= 1 << number,
            Ok(Value::Bool(value)) => row[number] = u64::from(value),
            Ok(Value::Int(value)) => row[number] = value as u64,
            Ok(Value::Bytes(bytes)) => row[number] = table.string_code(&bytes),
            Ok(Value::Numeric(value)) => {
                let code = self.scale.and_then(|scale| value.scaled_by_ten(scale.into()));
                let datum_code = || table.string_code(&numeric_payload(&value)) | self.datum_mark();
                row[number] = code.map_or_else(datum_code, |code| code as u64);
            }
            _ => return false,
        }
        true
    }

    /// The code of an uncompressed inline datum; None for other datums.
    #[inline(always)]
    fn plain_code(&self, column: &Column, pages: &[u8], location: usize, table: &mut GroupTable) -> Option<u64> {
        if self.kind.is_int() {
            return column.int(self.kind, pages, location).map(|value| value as u64);
        }
        let bytes = column.plain_bytes(pages, location)?;
        if self.kind == ValueKind::Numeric {
            let number = self.scale.and_then(|scale| numeric::scaled_by_ten(bytes, scale.into()));
            return Some(number.map_or_else(|| table.string_code(bytes) | self.datum_mark(), |code| code as u64));
        }
        Some(table.string_code(bytes))
    }

    /// The mark of a code that is the string code of a numeric's payload.
    fn datum_mark(&self) -> u64 {
        if self.scale.is_some() { DATUM_CODE } else { 0 }
    }

    /// Appends the key of a group to its column, which has `row` rows.
    pub fn put(&self, number: usize, table: &GroupTable, group: usize, row: usize, out: &mut ColumnBuilder) {
        let codes = table.codes(group);
        match codes[codes.len() - 1] >> number & 1 {
            1 => out.push_null(row, stride(self.kind)),
            _ => self.put_code(codes[number], table, row, out),
        }
    }

    /// Appends the value of a code to a column, which has `row` rows.
    pub fn put_code(&self, code: u64, table: &GroupTable, row: usize, out: &mut ColumnBuilder) {
        if let Some(scale) = self.scale.filter(|_| code >> 62 != DATUM_CODE >> 62) {
            let value = Numeric::from_decimal(code as i64, scale.into());
            out.push_value(row, self.kind, &Value::Numeric(value));
        } else if self.kind.is_int() {
            out.push_int(self.kind, code as i64);
        } else {
            let code = if self.kind == ValueKind::Numeric { code & !DATUM_CODE } else { code };
            table.with_string(code, |bytes| out.push_value(row, self.kind, &Value::Bytes(bytes.into())));
        }
    }

    /// Calls `visit` with the key of a group.
    pub fn with_value<R>(
        &self,
        number: usize,
        table: &GroupTable,
        group: usize,
        visit: impl FnOnce(&Value<'_>) -> R,
    ) -> R {
        let codes = table.codes(group);
        let code = codes[number];
        if codes[codes.len() - 1] >> number & 1 == 1 {
            return visit(&Value::Null);
        }
        match self.kind {
            ValueKind::Bool => visit(&Value::Bool(code != 0)),
            ValueKind::Numeric => match self.scale.filter(|_| code >> 62 != DATUM_CODE >> 62) {
                Some(scale) => visit(&Value::Numeric(Numeric::from_decimal(code as i64, scale.into()))),
                None => table.with_string(code & !DATUM_CODE, |payload| {
                    visit(&Numeric::decode(payload).map_or(Value::Null, Value::Numeric))
                }),
            },
            kind if kind.is_int() => visit(&Value::Int(code as i64)),
            _ => table.with_string(code, |bytes| visit(&Value::Bytes(bytes.into()))),
        }
    }

    /// If a code is the number of a string in a table's list: the code without marks, and the marks.
    fn listed_code(&self, code: u64) -> Option<(u64, u64)> {
        let is_datum = self.kind == ValueKind::Numeric && (self.scale.is_none() || code >> 62 == DATUM_CODE >> 62);
        let mark = if is_datum { self.datum_mark() } else { 0 };
        let is_string = is_datum || self.is_string();
        (is_string && GroupTable::is_listed(code & !mark)).then_some((code & !mark, mark))
    }

    /// Replaces the codes of another table in word `word` of each row by those in `table`. Rows have `words` words; a row whose key
    /// is NULL stays.
    pub fn move_codes(
        &self,
        rows: &mut [u64],
        (words, word): (usize, usize),
        is_null: impl Fn(&[u64]) -> bool,
        from: &GroupTable,
        table: &mut GroupTable,
    ) {
        if self.kind.is_int() {
            return;
        }
        let (mut listed, mut places): (Vec<u64>, Vec<(usize, u64)>) = (Vec::new(), Vec::new());
        for (index, row) in rows.chunks_exact(words).enumerate() {
            if let Some((code, mark)) = self.listed_code(row[word])
                && !is_null(row)
            {
                listed.push(code);
                places.push((index * words + word, mark));
            }
        }
        table.moved_codes(from, &listed, |index, code| {
            let (place, mark) = places[index];
            rows[place] = code | mark;
        });
    }

    /// A number that the codes of a key in different tables share.
    pub fn table_independent(&self, code: u64, table: &GroupTable) -> u64 {
        self.listed_code(code).map_or(code, |(listed, _)| table.string_hash(listed))
    }

    /// Whether the codes of all values are codes of strings.
    pub fn is_string(&self) -> bool {
        !self.kind.is_int() && self.kind != ValueKind::Numeric
    }
}

/// [`Key::codes`] from the encoded values of the rows `among`.
pub fn encoded_codes(
    encoded: &EncodedColumn<'_>,
    number: usize,
    among: impl ExactSizeIterator<Item = usize>,
    table: &mut GroupTable,
    rows: &mut [u64],
) {
    let words = table.words();
    // If the list of strings is not much longer than the run, each string is looked up only once.
    let mut known = match encoded.encoding {
        CodeEncoding::Strings(strings) if strings.count() <= 4 * among.len() => vec![None; strings.count()],
        _ => Vec::new(),
    };
    let (mut long, mut long_rows): (Vec<&[u8]>, Vec<usize>) = (Vec::new(), Vec::new());
    for index in among {
        let (code, row) = (&encoded.codes[index], &mut rows[index * words..(index + 1) * words]);
        if encoded.is_null(index) {
            row[words - 1] |= 1 << number;
            continue;
        }
        row[number] = match encoded.encoding {
            CodeEncoding::Numbers { .. } | CodeEncoding::Nulls => *code as u64,
            CodeEncoding::Strings(strings) | CodeEncoding::RowStrings(strings) => {
                let string = strings.get(*code as usize).unwrap_or_default();
                match known.get_mut(*code as usize) {
                    Some(known) => *known.get_or_insert_with(|| table.string_code(string)),
                    None if string.len() <= INLINE_BYTES => table.string_code(string),
                    None => {
                        long.push(string);
                        long_rows.push(index);
                        continue;
                    }
                }
            }
        };
    }
    table.listed_codes(&long, |index, code| rows[long_rows[index] * words + number] = code);
}

const _: () = assert!(NAME_BYTES == 64);
