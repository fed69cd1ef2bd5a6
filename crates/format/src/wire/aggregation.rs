//! Aggregation on the wire: the group keys and the aggregates that a cell computes partial states of.
//!
//! An aggregate is identified by the OID of its `pg_proc` row. Each group is one row of a batch in
//! [`ScanMode::Groups`](super::ScanMode): the keys, then for each aggregate the transition state that Postgres's
//! partial aggregation (`AGGSPLIT_INITIAL_SERIAL`) would return. A group may come back in several rows; the backend
//! combines them. [`GroupPruning`] defines which groups the cell may omit.
//!
//! With [`DistinctAggregates`], a group is returned in one of two forms. In
//! [`ScanMode::Groups`](super::ScanMode), a row has the keys, a value of the argument, true if the aggregation has a filter, then
//! the transition states of the other aggregates. The states of a group are in one of its rows; its other rows have the
//! states of no row. A group without values has one row, whose value and filter are NULL. In
//! [`ScanMode::DistinctGroups`](super::ScanMode), a row has the keys, the transition states of the other aggregates, then those of
//! the aggregates with DISTINCT. The cell returns this form only if all qualifying rows of the relation are in the groups.

use super::{Expr, GroupPruning};
use crate::bytes::{Corrupt, Reader, Write};
use crate::postgres::{AttributeNumber, Collation, Oid};

/// Aggregates with DISTINCT; all have the same argument and the same filter.
#[derive(Debug, Clone, PartialEq)]
pub struct DistinctAggregates {
    pub argument: Expr,
    pub filter: Option<Expr>,
    /// The aggregates.
    pub functions: Vec<Oid>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Aggregate {
    pub function: Oid,
    pub collation: Collation,
    /// None for `count(*)`.
    pub argument: Option<Expr>,
    pub filter: Option<Expr>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Aggregation {
    /// Conditions on joined rows, over columns of the relation and of lookup tables: rows for which some condition is not true are not
    /// aggregated. Empty without lookup tables.
    pub conditions: Vec<Expr>,
    /// Two rows belong to the same group if the bytes of their keys are equal.
    pub keys: Vec<Expr>,
    pub aggregates: Vec<Aggregate>,
    pub distinct: Option<DistinctAggregates>,
    pub pruning: Option<GroupPruning>,
}

/// Bits of the byte after the aggregates with DISTINCT: which optional parts follow, in this order.
const CONDITIONS: u8 = 2;
const PRUNING: u8 = 1;

impl Aggregation {
    /// Visits the expressions over the relation's columns.
    pub fn for_each_expr<'a>(&'a self, visit: &mut impl FnMut(&'a Expr)) {
        self.keys.iter().chain(&self.conditions).for_each(&mut *visit);
        for aggregate in &self.aggregates {
            aggregate.argument.iter().chain(&aggregate.filter).for_each(&mut *visit);
        }
        if let Some(distinct) = &self.distinct {
            std::iter::once(&distinct.argument).chain(&distinct.filter).for_each(&mut *visit);
        }
    }

    /// The number of columns to which a pruning refers.
    pub fn outputs(&self) -> usize {
        let distinct = self.distinct.as_ref().map_or(0, |distinct| distinct.functions.len());
        self.keys.len() + self.aggregates.len() + distinct
    }

    pub fn for_each_column(&self, visit: &mut impl FnMut(AttributeNumber)) {
        self.for_each_expr(&mut |expr| expr.for_each_column(visit));
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u32(self.keys.len() as u32);
        for key in &self.keys {
            put_program(out, Some(key));
        }
        out.put_u32(self.aggregates.len() as u32);
        for aggregate in &self.aggregates {
            out.put_u32(aggregate.function);
            out.put_u8(aggregate.collation as u8);
            put_program(out, aggregate.argument.as_ref());
            put_program(out, aggregate.filter.as_ref());
        }
        out.put_bool(self.distinct.is_some());
        if let Some(distinct) = &self.distinct {
            put_program(out, Some(&distinct.argument));
            put_program(out, distinct.filter.as_ref());
            out.put_u32(distinct.functions.len() as u32);
            distinct.functions.iter().for_each(|function| out.put_u32(*function));
        }
        let conditions = if self.conditions.is_empty() { 0 } else { CONDITIONS };
        let pruning = if self.pruning.is_some() { PRUNING } else { 0 };
        out.put_u8(conditions | pruning);
        if !self.conditions.is_empty() {
            out.put_u32(self.conditions.len() as u32);
            self.conditions.iter().for_each(|condition| put_program(out, Some(condition)));
        }
        if let Some(pruning) = &self.pruning {
            pruning.encode(out);
        }
    }

    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        let count = reader.count(4, "group keys")?;
        let mut keys = Vec::with_capacity(count);
        for _ in 0..count {
            let at = reader.position();
            keys.push(program(reader)?.ok_or_else(|| Corrupt::new("group key", at, "empty program"))?);
        }
        let count = reader.count(13, "aggregates")?;
        let mut aggregates = Vec::with_capacity(count);
        for _ in 0..count {
            let function = reader.u32("aggregate")?;
            let at = reader.position();
            let byte = reader.u8("collation")?;
            let collation = Collation::from_u8(byte).ok_or_else(|| Corrupt::new("collation", at, byte.to_string()))?;
            aggregates.push(Aggregate { function, collation, argument: program(reader)?, filter: program(reader)? });
        }
        let distinct = if reader.bool("distinct")? { Some(DistinctAggregates::decode(reader)?) } else { None };
        let at = reader.position();
        let parts = reader.u8("optional parts of an aggregation")?;
        if parts & !(CONDITIONS | PRUNING) != 0 {
            return Err(Corrupt::new("optional parts of an aggregation", at, parts.to_string()));
        }
        let mut conditions = Vec::new();
        if parts & CONDITIONS != 0 {
            for _ in 0..reader.count(4, "conditions on joined rows")? {
                let at = reader.position();
                let condition = program(reader)?;
                conditions.push(condition.ok_or_else(|| Corrupt::new("condition", at, "empty program"))?);
            }
        }
        let mut aggregation = Self { conditions, keys, aggregates, distinct, pruning: None };
        if parts & PRUNING != 0 {
            aggregation.pruning = Some(GroupPruning::decode(reader, &aggregation)?);
        }
        Ok(aggregation)
    }
}

impl DistinctAggregates {
    fn decode(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        let at = reader.position();
        let argument = program(reader)?.ok_or_else(|| Corrupt::new("distinct argument", at, "empty program"))?;
        let filter = program(reader)?;
        let count = reader.count(4, "aggregates with DISTINCT")?;
        let mut functions = Vec::with_capacity(count);
        for _ in 0..count {
            functions.push(reader.u32("aggregate with DISTINCT")?);
        }
        Ok(Self { argument, filter, functions })
    }
}

/// Appends an expression; an empty program means that there is none.
fn put_program(out: &mut Vec<u8>, expr: Option<&Expr>) {
    let mut program = Vec::new();
    if let Some(expr) = expr {
        expr.encode(&mut program);
    }
    out.put_blob(&program);
}

fn program(reader: &mut Reader<'_>) -> Result<Option<Expr>, Corrupt> {
    let program = reader.blob("expression")?;
    if program.is_empty() { Ok(None) } else { Expr::decode(program).map(Some) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_aggregation_decodes_to_its_equal_and_a_truncated_aggregation_is_corrupt() {
        let aggregation = Aggregation {
            conditions: vec![Expr::Column(7), Expr::IsNull(Box::new(Expr::Column(6)))],
            keys: vec![Expr::Column(2)],
            aggregates: vec![
                Aggregate { function: 2803, collation: Collation::None, argument: None, filter: None },
                Aggregate {
                    function: 2145,
                    collation: Collation::Bytewise,
                    argument: Some(Expr::Column(1)),
                    filter: Some(Expr::IsNull(Box::new(Expr::Column(3)))),
                },
            ],
            distinct: Some(DistinctAggregates {
                argument: Expr::Column(4),
                filter: Some(Expr::IsNull(Box::new(Expr::Column(5)))),
                functions: vec![2147, 2108],
            }),
            pruning: Some(GroupPruning { conditions: vec![Expr::IsNull(Box::new(Expr::Column(5)))], top: None }),
        };
        let mut bytes = Vec::new();
        aggregation.encode(&mut bytes);
        assert_eq!(Aggregation::decode(&mut Reader::new(&bytes)).unwrap(), aggregation);
        for length in 0..bytes.len() {
            Aggregation::decode(&mut Reader::new(&bytes[..length])).unwrap_err();
        }
    }
}
