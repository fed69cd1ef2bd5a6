//! Subexpressions that the interpreter computes: once per entry of a dictionary or per number of a small range, if the
//! subexpression reads one column that is encoded in this way, otherwise row by row.

use super::super::encoded::{CodeEncoding, EncodedColumn};
use super::super::lanes::{IS_NULL, Lanes, UNCERTAIN};
use super::super::node::Node;
use super::super::rows::RowSet;
use crate::heap::Slot;
use crate::value::{EvalResult, Value, ValueKind};
use std::borrow::Cow;

/// A subexpression whose value is an integer, a date or time, or a boolean.
#[derive(PartialEq)]
pub struct Interpreted {
    pub node: Node,
    /// The columns that the expression reads.
    pub slots: Vec<Slot>,
    /// The kind of the column, if the expression reads only one, and computing the expression per encoded value pays.
    pub only_column: Option<ValueKind>,
}

/// The number and the flags of a value.
fn number(value: EvalResult<'_>) -> (i64, u8) {
    match value {
        Ok(Value::Int(value)) => (value, 0),
        Ok(Value::Bool(value)) => (i64::from(value), 0),
        Ok(Value::Null) => (0, IS_NULL),
        _ => (0, UNCERTAIN),
    }
}

impl Interpreted {
    pub fn eval(&self, rows: RowSet<'_>, selected: &[u16]) -> Lanes {
        if let (Some(kind), [slot]) = (self.only_column, self.slots.as_slice())
            && let Some(encoded) = rows.encoded(*slot)
        {
            return self.eval_encoded(rows, encoded, kind, selected.len());
        }
        if self.slots.iter().any(|slot| rows.encoded(*slot).is_some()) {
            return Lanes::of(0, UNCERTAIN, selected.len());
        }
        collect(selected.iter().map(|row| number(self.node.eval(&rows.row(*row)))))
    }

    /// Computes each distinct code of the column once, if the codes are in a range not much longer than the run.
    fn eval_encoded(&self, rows: RowSet<'_>, encoded: &EncodedColumn<'_>, kind: ValueKind, count: usize) -> Lanes {
        let compute = |value: Value<'_>| number(self.node.eval(&rows.row_of(&value)));
        let value_of = |code: i64| match encoded.encoding {
            CodeEncoding::Strings(strings) | CodeEncoding::RowStrings(strings) => match strings.get(code as usize) {
                Some(bytes) => compute(Value::Bytes(Cow::Borrowed(bytes))),
                None => (0, UNCERTAIN),
            },
            CodeEncoding::Numbers { scale: None, .. } if kind == ValueKind::Bool => compute(Value::Bool(code != 0)),
            CodeEncoding::Numbers { scale: None, .. } => compute(Value::Int(code)),
            CodeEncoding::Numbers { .. } | CodeEncoding::Nulls => (0, UNCERTAIN),
        };
        let (least, codes) = encoded.code_range().filter(|(_, codes)| *codes <= 4 * count).unwrap_or((0, 0));
        let mut known: Vec<Option<(i64, u8)>> = vec![None; codes];
        let of_null = compute(Value::Null);
        collect(encoded.codes.iter().enumerate().map(|(row, code)| {
            if encoded.is_null(row) {
                return of_null;
            }
            match known.get_mut(code.wrapping_sub(least) as usize) {
                Some(known) => *known.get_or_insert_with(|| value_of(*code)),
                None => value_of(*code),
            }
        }))
    }
}

fn collect(numbers: impl Iterator<Item = (i64, u8)>) -> Lanes {
    let (values, mut flags): (Vec<i64>, Vec<u8>) = numbers.unzip();
    let bounds = (values.iter().copied().min().unwrap_or(0), values.iter().copied().max().unwrap_or(0));
    if flags.iter().all(|flags| *flags == 0) {
        flags.clear();
    }
    Lanes { values, flags, bounds }
}
