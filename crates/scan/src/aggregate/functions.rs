//! The aggregates that a cell evaluates: the only list of what can be offloaded.
//!
//! An aggregate is named by the OID of its `pg_proc` row, which is the same in PostgreSQL 15 to 18. Source:
//! `catalog/pg_aggregate.dat`, `pg_proc.dat`.

use crate::predicate::Operator;
use crate::value::ValueKind;
use cellar_format::postgres::{Collation, Oid};

/// The transition state of an aggregate. Aggregates with the same argument and the same kind of state share a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateKind {
    /// Rows, or values that are not NULL.
    Count,
    /// Count and sum of int2 or int4.
    IntSum,
    /// Count and sum of int8: `Int128AggState`.
    WideSum,
    /// Count, sum and display scale of numeric: `NumericAggState`.
    NumericSum,
    /// The sum of float8, or of float4 when `single`.
    FloatSum { single: bool },
    /// Count, sum and sum of squared differences of float8 (`float8_accum`).
    FloatMoments,
    /// Count, sum and sum of squares of integers (`int4_accum`) or numerics (`numeric_accum`).
    Squares,
    /// AND, OR or XOR of the bits of integers of a kind.
    Bits { operator: Operator, kind: ValueKind },
    /// The minimum or maximum of values of a kind; for booleans AND and OR.
    Extreme { greatest: bool, kind: ValueKind },
}

/// How a state uses its argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgumentUse {
    /// Whether the argument is NULL.
    Nulls,
    Numbers,
    Values,
}

impl StateKind {
    /// Whether the state is a sum of integers.
    pub fn is_integer_sum(self) -> bool {
        matches!(self, Self::IntSum | Self::WideSum)
    }

    pub fn argument_use(self) -> ArgumentUse {
        match self {
            Self::Count => ArgumentUse::Nulls,
            Self::Extreme { kind, .. } if !is_in_lanes(kind) => ArgumentUse::Values,
            _ => ArgumentUse::Numbers,
        }
    }
}

/// Whether extremes of the kind are found in lanes: integers, and floats by their bits.
pub fn is_in_lanes(kind: ValueKind) -> bool {
    kind.is_int() || matches!(kind, ValueKind::Float4 | ValueKind::Float8)
}

/// The format of a state in PostgreSQL's partial aggregation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputKind {
    Count,
    /// int8, NULL if there is no value.
    Sum,
    /// int8[]: count and sum.
    CountAndSum,
    /// The format of `int8_avg_serialize`.
    SerializedWideSum,
    /// The format of `numeric_avg_serialize`.
    SerializedNumericSum,
    /// The format of `numeric_poly_serialize`.
    SerializedIntSquares,
    /// The format of `numeric_serialize`.
    SerializedNumericSquares,
    Float4,
    Float8,
    /// float8[]: count, sum, sum of squared differences.
    Moments,
    Value(ValueKind),
}

/// How PostgreSQL computes an aggregate's result from its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// Count, sum or extreme, of this kind.
    Value(ValueKind),
    /// The sum divided by the count, of this kind.
    Average(ValueKind),
}

impl Finish {
    /// The type of the result.
    pub fn kind(self) -> ValueKind {
        match self {
            Self::Value(kind) | Self::Average(kind) => kind,
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub struct AggregateFunction {
    pub oid: Oid,
    /// None: no argument, or an argument of any type that is only tested for NULL.
    pub argument: Option<ValueKind>,
    pub state: StateKind,
    pub output: OutputKind,
}

const fn sum(oid: Oid, argument: ValueKind, state: StateKind, output: OutputKind) -> AggregateFunction {
    AggregateFunction { oid, argument: Some(argument), state, output }
}

const fn extreme(oid: Oid, kind: ValueKind, greatest: bool) -> AggregateFunction {
    let state = StateKind::Extreme { greatest, kind };
    AggregateFunction { oid, argument: Some(kind), state, output: OutputKind::Value(kind) }
}

const fn bits(oid: Oid, kind: ValueKind, operator: Operator) -> AggregateFunction {
    let state = StateKind::Bits { operator, kind };
    AggregateFunction { oid, argument: Some(kind), state, output: OutputKind::Value(kind) }
}

/// `variance` or `stddev`, of a population or of a sample.
const fn deviation(oid: Oid, argument: ValueKind) -> AggregateFunction {
    let output = match argument {
        ValueKind::Int2 | ValueKind::Int4 => OutputKind::SerializedIntSquares,
        _ => OutputKind::SerializedNumericSquares,
    };
    sum(oid, argument, StateKind::Squares, output)
}

const fn count(oid: Oid) -> AggregateFunction {
    AggregateFunction { oid, argument: None, state: StateKind::Count, output: OutputKind::Count }
}

pub const COUNT_ROWS: Oid = 2803;
pub const COUNT_VALUES: Oid = 2147;

static TABLE: &[AggregateFunction] = &[
    count(COUNT_ROWS),
    count(COUNT_VALUES),
    sum(2109, ValueKind::Int2, StateKind::IntSum, OutputKind::Sum),
    sum(2108, ValueKind::Int4, StateKind::IntSum, OutputKind::Sum),
    sum(2107, ValueKind::Int8, StateKind::WideSum, OutputKind::SerializedWideSum),
    sum(2114, ValueKind::Numeric, StateKind::NumericSum, OutputKind::SerializedNumericSum),
    sum(2110, ValueKind::Float4, StateKind::FloatSum { single: true }, OutputKind::Float4),
    sum(2111, ValueKind::Float8, StateKind::FloatSum { single: false }, OutputKind::Float8),
    sum(2102, ValueKind::Int2, StateKind::IntSum, OutputKind::CountAndSum),
    sum(2101, ValueKind::Int4, StateKind::IntSum, OutputKind::CountAndSum),
    sum(2100, ValueKind::Int8, StateKind::WideSum, OutputKind::SerializedWideSum),
    sum(2103, ValueKind::Numeric, StateKind::NumericSum, OutputKind::SerializedNumericSum),
    sum(2104, ValueKind::Float4, StateKind::FloatMoments, OutputKind::Moments),
    sum(2105, ValueKind::Float8, StateKind::FloatMoments, OutputKind::Moments),
    sum(2721, ValueKind::Float4, StateKind::FloatMoments, OutputKind::Moments),
    sum(2722, ValueKind::Float8, StateKind::FloatMoments, OutputKind::Moments),
    sum(2644, ValueKind::Float4, StateKind::FloatMoments, OutputKind::Moments),
    sum(2645, ValueKind::Float8, StateKind::FloatMoments, OutputKind::Moments),
    sum(2151, ValueKind::Float4, StateKind::FloatMoments, OutputKind::Moments),
    sum(2152, ValueKind::Float8, StateKind::FloatMoments, OutputKind::Moments),
    sum(2727, ValueKind::Float4, StateKind::FloatMoments, OutputKind::Moments),
    sum(2728, ValueKind::Float8, StateKind::FloatMoments, OutputKind::Moments),
    sum(2715, ValueKind::Float4, StateKind::FloatMoments, OutputKind::Moments),
    sum(2716, ValueKind::Float8, StateKind::FloatMoments, OutputKind::Moments),
    sum(2157, ValueKind::Float4, StateKind::FloatMoments, OutputKind::Moments),
    sum(2158, ValueKind::Float8, StateKind::FloatMoments, OutputKind::Moments),
    deviation(2148, ValueKind::Int8),
    deviation(2149, ValueKind::Int4),
    deviation(2150, ValueKind::Int2),
    deviation(2153, ValueKind::Numeric),
    deviation(2154, ValueKind::Int8),
    deviation(2155, ValueKind::Int4),
    deviation(2156, ValueKind::Int2),
    deviation(2159, ValueKind::Numeric),
    deviation(2641, ValueKind::Int8),
    deviation(2642, ValueKind::Int4),
    deviation(2643, ValueKind::Int2),
    deviation(2646, ValueKind::Numeric),
    deviation(2712, ValueKind::Int8),
    deviation(2713, ValueKind::Int4),
    deviation(2714, ValueKind::Int2),
    deviation(2717, ValueKind::Numeric),
    deviation(2718, ValueKind::Int8),
    deviation(2719, ValueKind::Int4),
    deviation(2720, ValueKind::Int2),
    deviation(2723, ValueKind::Numeric),
    deviation(2724, ValueKind::Int8),
    deviation(2725, ValueKind::Int4),
    deviation(2726, ValueKind::Int2),
    deviation(2729, ValueKind::Numeric),
    bits(2236, ValueKind::Int2, Operator::And),
    bits(2238, ValueKind::Int4, Operator::And),
    bits(2240, ValueKind::Int8, Operator::And),
    bits(2237, ValueKind::Int2, Operator::Or),
    bits(2239, ValueKind::Int4, Operator::Or),
    bits(2241, ValueKind::Int8, Operator::Or),
    bits(6164, ValueKind::Int2, Operator::Xor),
    bits(6165, ValueKind::Int4, Operator::Xor),
    bits(6166, ValueKind::Int8, Operator::Xor),
    extreme(2115, ValueKind::Int8, true),
    extreme(2116, ValueKind::Int4, true),
    extreme(2117, ValueKind::Int2, true),
    extreme(2118, ValueKind::Oid, true),
    extreme(2119, ValueKind::Float4, true),
    extreme(2120, ValueKind::Float8, true),
    extreme(2122, ValueKind::Date, true),
    extreme(2123, ValueKind::Time, true),
    extreme(2126, ValueKind::Timestamp, true),
    extreme(2127, ValueKind::Timestamptz, true),
    extreme(2129, ValueKind::Text, true),
    extreme(2130, ValueKind::Numeric, true),
    extreme(2131, ValueKind::Int8, false),
    extreme(2132, ValueKind::Int4, false),
    extreme(2133, ValueKind::Int2, false),
    extreme(2134, ValueKind::Oid, false),
    extreme(2135, ValueKind::Float4, false),
    extreme(2136, ValueKind::Float8, false),
    extreme(2138, ValueKind::Date, false),
    extreme(2139, ValueKind::Time, false),
    extreme(2142, ValueKind::Timestamp, false),
    extreme(2143, ValueKind::Timestamptz, false),
    extreme(2145, ValueKind::Text, false),
    extreme(2146, ValueKind::Numeric, false),
    extreme(2517, ValueKind::Bool, false),
    extreme(2519, ValueKind::Bool, false),
    extreme(2518, ValueKind::Bool, true),
];

pub fn find(oid: Oid) -> Option<&'static AggregateFunction> {
    TABLE.iter().find(|function| function.oid == oid)
}

impl AggregateFunction {
    /// None: the cell does not know how PostgreSQL computes the result.
    pub fn finish(&self) -> Option<Finish> {
        Some(match (self.oid, self.output) {
            (2100..=2103, _) => Finish::Average(ValueKind::Numeric),
            (2104 | 2105, _) => Finish::Average(ValueKind::Float8),
            (_, OutputKind::Moments | OutputKind::SerializedIntSquares | OutputKind::SerializedNumericSquares) => {
                return None;
            }
            (_, OutputKind::Count | OutputKind::Sum | OutputKind::CountAndSum) => Finish::Value(ValueKind::Int8),
            (_, OutputKind::SerializedWideSum | OutputKind::SerializedNumericSum) => Finish::Value(ValueKind::Numeric),
            (_, OutputKind::Float4) => Finish::Value(ValueKind::Float4),
            (_, OutputKind::Float8) => Finish::Value(ValueKind::Float8),
            (_, OutputKind::Value(kind)) => Finish::Value(kind),
        })
    }
}

/// Whether groups can be pruned by the result of this aggregate.
pub fn prunable_aggregate(oid: Oid) -> bool {
    find(oid).is_some_and(|function| function.finish().is_some())
}

/// Whether the cell evaluates this aggregate under this collation.
pub fn offloadable_aggregate(oid: Oid, collation: Collation) -> bool {
    find(oid).is_some_and(|function| function.argument != Some(ValueKind::Text) || collation == Collation::Bytewise)
}

/// Whether rows can be grouped by the bytes of values of this type. Equal values must have the same text, because any
/// of them may represent the group. This excludes floats (0 and -0), jsonb (`5.5` and `5.50`) and arrays, whose functions
/// for equality the cell does not know; the caller must ensure that numerics have one display scale (5.5 and 5.50 differ).
pub fn groupable_type(oid: Oid) -> bool {
    ValueKind::of(oid).is_some_and(groupable)
}

pub fn groupable(kind: ValueKind) -> bool {
    !matches!(kind, ValueKind::Float4 | ValueKind::Float8 | ValueKind::Jsonb | ValueKind::TextArray)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_aggregate_is_listed_once() {
        let mut seen = std::collections::HashSet::new();
        assert!(TABLE.iter().all(|function| seen.insert(function.oid)));
    }

    #[test]
    fn minimum_and_maximum_of_text_need_byte_order() {
        assert!(offloadable_aggregate(2145, Collation::Bytewise));
        assert!(!offloadable_aggregate(2145, Collation::Deterministic));
        assert!(offloadable_aggregate(2146, Collation::None));
    }
}
