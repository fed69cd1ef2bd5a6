//! Expressions evaluated over vectors: all selected rows of a run, one operation at a time, on encoded or decoded columns.
//!
//! [`NumberExpr`] computes numbers and [`Condition`] truth values. Both read columns of encoded numbers, dictionary codes, or
//! datums. A row that a vector cannot decide is flagged, and the interpreter ([`Node`](super::Node)) decides the row; a flag in a
//! branch of CASE that is not taken has no effect. [`ColumnRequirement`] says in which form an expression can read a column.

mod columns;
mod compile;
mod evaluate;
mod expression;
mod floats;
mod interpreted;
mod operand;
mod operators;
mod truth;
mod unary;

pub use compile::{Evaluation, is_vectorized};
pub use evaluate::{EvalCache, LaneBuffers, compared};
pub use expression::{ColumnRequirement, Condition, NumberExpr};
pub use truth::{FALSE, TRUE, UNDECIDED};
