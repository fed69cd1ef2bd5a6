//! Storage predicates: compiled from the wire, evaluated over decoded columns.
//!
//! [`node`] is the meaning, row by row; [`kernel`] is the fast form of the common shapes. Invariant: a row is dropped
//! only if Postgres would drop it without raising an error, and selected only if Postgres would select it.

mod arithmetic;
mod column;
mod column_test;
mod compile;
mod encoded;
mod functions;
mod kernel;
mod like;
mod node;
mod rows;
mod substring_filter;

pub use arithmetic::{Arithmetic, EvalCache, IS_NULL, LaneBuffers, Lanes, UNCERTAIN};
pub use column::Column;
pub use column_test::{ColumnTest, EncodedTest};
pub use compile::{Compiler, Unsupported};
pub use encoded::{CodeEncoding, EncodedColumn, EncodedColumns, StringList, scale_factor};
pub use functions::{CollationNeed, FunctionBody, Operator, TextEncoding};
pub use kernel::{Kernel, number_of};
#[cfg(test)]
pub use like::Pattern;
pub use node::Node;
pub use rows::RowSet;

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
    /// Whether Postgres may raise an error in it; the cell then leaves the block to Postgres.
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

/// What a planner has to know of a function beside that the cell evaluates it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FunctionClass {
    Other = 0,
    /// `=` or `<>`
    Equality = 1,
    /// Another comparison.
    Order = 2,
    /// LIKE
    Pattern = 3,
    /// ILIKE
    CasedPattern = 4,
    /// `lower` or `upper`: best where the result is compared with ASCII.
    Case = 5,
    /// Its first argument must be known, see [`knows_field`].
    Field = 6,
}

pub fn function_class(function: Oid) -> FunctionClass {
    let Some(function) = functions::find(function) else { return FunctionClass::Other };
    match function.body {
        FunctionBody::Compare(_, Comparison::Equal | Comparison::NotEqual) => FunctionClass::Equality,
        FunctionBody::Compare(..) => FunctionClass::Order,
        FunctionBody::Like { ignores_case: true, .. } => FunctionClass::CasedPattern,
        FunctionBody::Like { .. } => FunctionClass::Pattern,
        _ if function.collation == CollationNeed::Cased => FunctionClass::Case,
        _ if functions::takes_field(function) => FunctionClass::Field,
        _ => FunctionClass::Other,
    }
}

/// Whether the cell knows the field that `extract` or the like is to take.
pub fn knows_field(function: Oid, field: &[u8]) -> bool {
    functions::find(function).is_some_and(|function| functions::knows_field(function, field))
}

/// Whether predicates can look into values of this type; any type can be projected and tested for NULL.
pub fn offloadable_type(oid: Oid) -> bool {
    ValueKind::of(oid).is_some()
}
