//! Group keys: from a column's or an expression's values to the codes of a [`GroupTable`], and back to datums.

use super::argument::Need;
use super::groups::GroupTable;
use crate::batch::ColumnBuilder;
use crate::heap::{MISSING, NULL, Slot};
use crate::predicate::{Column, Form, Gathered, Input, Kind, NAME_BYTES, Node, Row, Value};
use cellar_format::postgres::Width;

/// An expression that rows are grouped by.
pub struct Key {
    node: Node,
    pub kind: Kind,
    /// When it is a plain column.
    column: Option<Slot>,
    /// The columns that it reads.
    pub slots: Vec<Slot>,
}

impl Key {
    pub fn new(node: Node, kind: Kind, slots: Vec<Slot>) -> Self {
        let column = match node {
            Node::Column(slot) => Some(slot),
            _ => None,
        };
        Self { node, kind, column, slots }
    }

    /// Whether its codes come from a column without datums, of which `has` tells.
    pub fn needs_no_datum(&self, has: &impl Fn(Slot, Need) -> bool) -> bool {
        let need = if self.kind.is_int() { Need::Numbers { scale: 0 } } else { Need::Strings };
        self.column.is_some_and(|slot| has(slot, need))
    }

    pub fn gathered<'a>(&self, input: Input<'a>) -> Option<&'a Gathered<'a>> {
        self.column.and_then(|slot| input.gathered(slot))
    }

    /// Writes the key's code into word `number` of each selected row, and its bit into the row's last word. `undecided`
    /// gets the positions of rows whose key cannot be told.
    pub fn codes(
        &self,
        number: usize,
        input: Input<'_>,
        selected: &[u16],
        table: &mut GroupTable,
        rows: &mut [u64],
        undecided: &mut Vec<u32>,
    ) {
        let words = table.words();
        if let Some(gathered) = self.gathered(input) {
            return gathered_codes(gathered, number, table, rows);
        }
        let column = self.column.and_then(|slot| Some((slot, input.columns.get(slot as usize)?.as_ref()?)));
        for (index, (at, row)) in selected.iter().zip(rows.chunks_exact_mut(words)).enumerate() {
            if let Some((slot, column)) = column {
                let location = input.chunk.locations(slot)[*at as usize];
                if location == NULL {
                    row[words - 1] |= 1 << number;
                    continue;
                }
                if location != MISSING
                    && let Some(code) = self.plain_code(column, input.pages, location as usize, table)
                {
                    row[number] = code;
                    continue;
                }
            }
            let at = Row { pages: input.pages, chunk: input.chunk, columns: input.columns, row: *at };
            match self.node.eval(&at) {
                Ok(Value::Null) => row[words - 1] |= 1 << number,
                Ok(Value::Bool(value)) => row[number] = u64::from(value),
                Ok(Value::Int(value)) => row[number] = value as u64,
                Ok(Value::Bytes(bytes)) => row[number] = table.string_code(&bytes),
                _ => undecided.push(index as u32),
            }
        }
    }

    /// The code of a datum that lies in the page as it is.
    #[inline(always)]
    fn plain_code(&self, column: &Column, pages: &[u8], location: usize, table: &mut GroupTable) -> Option<u64> {
        if self.kind.is_int() {
            return column.int(self.kind, pages, location).map(|value| value as u64);
        }
        let bytes = column.plain_bytes(pages, location)?;
        Some(table.string_code(bytes))
    }

    /// Appends the key of a group to its column; `row` rows are there already.
    pub fn put(&self, number: usize, table: &GroupTable, group: usize, row: usize, out: &mut ColumnBuilder) {
        let codes = table.codes(group);
        if codes[codes.len() - 1] >> number & 1 == 1 {
            out.push_null(row, self.stride());
        } else if self.kind.is_int() {
            out.push_int(self.kind, codes[number] as i64);
        } else {
            table.with_string(codes[number], |bytes| out.push_value(row, self.kind, &Value::Bytes(bytes.into())));
        }
    }

    /// Bytes of a value in the key's column; 0 for a varlena.
    pub fn stride(&self) -> usize {
        match self.kind.width() {
            Width::Fixed(bytes) => bytes as usize,
            Width::Varlena | Width::Cstring => 0,
        }
    }
}

/// [`Key::codes`] of a column without datums.
fn gathered_codes(gathered: &Gathered<'_>, number: usize, table: &mut GroupTable, rows: &mut [u64]) {
    let words = table.words();
    // A list of strings that is not much longer than the run is looked up once.
    let mut known = match gathered.form {
        Form::Strings(strings) if strings.len() <= 4 * gathered.codes.len() => vec![None; strings.len()],
        _ => Vec::new(),
    };
    for (index, (code, row)) in gathered.codes.iter().zip(rows.chunks_exact_mut(words)).enumerate() {
        if gathered.is_null(index) {
            row[words - 1] |= 1 << number;
            continue;
        }
        row[number] = match gathered.form {
            Form::Numbers { .. } | Form::Nulls => *code as u64,
            Form::Strings(strings) => {
                let mut look_up = || table.string_code(strings.get(*code as usize).unwrap_or_default());
                match known.get_mut(*code as usize) {
                    Some(known) => *known.get_or_insert_with(look_up),
                    None => look_up(),
                }
            }
        };
    }
}

const _: () = assert!(NAME_BYTES == 64);
