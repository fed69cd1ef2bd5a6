//! Expressions that the cell evaluates: storage predicates, arguments of aggregates, group keys and sort keys.
//!
//! [`compile`] checks an expression of the wire format and compiles it to a [`node`] tree, which is evaluated row by
//! row and defines the meaning. [`vector`] evaluates expressions over vectors of rows. [`kernel`] selects rows by common
//! predicates, with [`column_test`] for comparisons with constants. [`functions`] lists what can be offloaded.
//!
//! Invariant: a row is dropped only if PostgreSQL would drop the row without raising an error, and selected only if
//! PostgreSQL would select the row.

mod column;
mod column_test;
mod compile;
mod encoded;
mod functions;
mod kernel;
mod lanes;
mod like;
mod node;
mod regex;
mod rows;
mod substring_bitmap;
mod vector;

pub use column::Column;
pub use column_test::{ColumnTest, EncodedTest};
pub use compile::{Compiler, IntegerCall, Unsupported, integer_call};
pub use encoded::{CodeEncoding, EncodedColumn, EncodedColumns, StringList, scale_factor};
pub use functions::{CollationNeed, FunctionBody, Operator, TextEncoding};
pub use kernel::{Kernel, number_of};
pub use lanes::{IS_NULL, Lanes, UNCERTAIN};
#[cfg(test)]
pub use like::Pattern;
pub use node::Node;
pub use rows::RowSet;
pub use vector::{
    ColumnRequirement, Condition, EvalCache, Evaluation, FALSE, LaneBuffers, NumberExpr, TRUE, UNDECIDED,
};

use crate::value::{Comparison, ValueKind};
use cellar_format::postgres::{Collation, Oid};

/// A function that predicates may call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FunctionInfo {
    pub oid: Oid,
    /// The name of the C function (`prosrc`).
    pub name: &'static str,
    pub args: &'static [Oid],
    pub result: Oid,
    pub collation: CollationNeed,
    /// Whether PostgreSQL may raise an error for some arguments. The cell then passes the block through.
    pub fallible: bool,
}

/// All functions that the cell evaluates.
pub fn offloadable_functions() -> impl Iterator<Item = FunctionInfo> {
    functions::all().map(|function| FunctionInfo {
        oid: function.oid,
        name: function.name,
        args: function.args,
        result: function.result,
        collation: function.collation,
        fallible: function.fallible,
    })
}

/// Whether the cell evaluates this function under this collation.
pub fn offloadable(function: Oid, collation: Collation) -> bool {
    functions::find(function).is_some_and(|function| function.collation.met_by(collation))
}

/// Whether predicates evaluate calls of this function over vectors of numbers, and not row by row.
pub fn vectorized(function: Oid) -> bool {
    functions::find(function).is_some_and(vector::is_vectorized)
}

/// Classes of offloadable functions with additional conditions that the planner checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FunctionClass {
    Other = 0,
    /// `=` or `<>`
    Equality = 1,
    /// Another comparison.
    Order = 2,
    /// LIKE
    Pattern = 3,
    /// ILIKE. Under the collation, changing the case of an ASCII letter must give an ASCII letter.
    CaseInsensitivePattern = 4,
    /// `lower` or `upper`, with the same condition. Texts with non-ASCII letters are decided only if the result is compared with
    /// ASCII text.
    Case = 5,
    /// The first argument must be a constant that [`knows_field`] accepts.
    Field = 6,
    /// The second argument must be a constant that [`knows_regular_expression`] accepts.
    RegularExpression = 7,
}

/// The class of a function; `Other` for a function that is not offloadable.
pub fn function_class(function: Oid) -> FunctionClass {
    let Some(function) = functions::find(function) else { return FunctionClass::Other };
    match function.body {
        FunctionBody::Compare(_, Comparison::Equal | Comparison::NotEqual) => FunctionClass::Equality,
        FunctionBody::Compare(..) => FunctionClass::Order,
        FunctionBody::Like { ignores_case: true, .. } => FunctionClass::CaseInsensitivePattern,
        FunctionBody::Like { .. } => FunctionClass::Pattern,
        _ if function.collation == CollationNeed::Cased => FunctionClass::Case,
        _ if functions::takes_field(function) => FunctionClass::Field,
        _ if functions::takes_regular_expression(function) => FunctionClass::RegularExpression,
        _ => FunctionClass::Other,
    }
}

/// Whether the cell evaluates `extract`, `date_part` or `date_trunc` for this field.
pub fn knows_field(function: Oid, field: &[u8]) -> bool {
    functions::find(function).is_some_and(|function| functions::knows_field(function, field))
}

/// Whether the cell evaluates `~` or `regexp_replace` with this regular expression.
pub fn knows_regular_expression(function: Oid, pattern: &[u8]) -> bool {
    functions::find(function).is_some_and(|function| functions::knows_regular_expression(function, pattern))
}

/// Whether expressions can use values of this type. Values of any type can be projected and tested for NULL.
pub fn offloadable_type(oid: Oid) -> bool {
    ValueKind::of(oid).is_some()
}
