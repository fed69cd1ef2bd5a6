//! Pruning of groups on the wire: which groups of an aggregation the backend can need.
//!
//! The expressions are evaluated over the outputs of the aggregation. Column `n` is output `n`, counted from 1: the group
//! keys, then the results of the aggregates as PostgreSQL's finalizing aggregation returns them, those with DISTINCT last.
//!
//! A backend whose request has a pruning scans the whole relation as one range. If all qualifying rows of the range are in
//! the groups, and no frame with rows, groups or a passed-through block was sent before, the cell may omit groups that fail a
//! condition, and groups that are not among the first of the order.

use super::top_n::{SortKey, TOP_ROWS_MAX, decode_sort_keys, encode_sort_keys};
use super::{Aggregation, Expr};
use crate::bytes::{Corrupt, Reader, Write};

/// The first groups of an order.
#[derive(Debug, Clone, PartialEq)]
pub struct TopGroups {
    /// 1 to [`TOP_ROWS_MAX`].
    pub groups: u32,
    /// Whether the backend also needs every group that ties with the last of the first groups, because it sorts by more keys.
    pub with_ties: bool,
    /// Without keys, the backend needs any `groups` groups.
    pub keys: Vec<SortKey>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct GroupPruning {
    /// The backend needs only groups for which every condition is true.
    pub conditions: Vec<Expr>,
    /// Of these groups, the backend needs only the first.
    pub top: Option<TopGroups>,
}

impl GroupPruning {
    pub fn for_each_expr<'a>(&'a self, visit: &mut impl FnMut(&'a Expr)) {
        self.conditions.iter().for_each(&mut *visit);
        self.top.iter().flat_map(|top| &top.keys).for_each(|key| visit(&key.expr));
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u32(self.conditions.len() as u32);
        let mut program = Vec::new();
        for condition in &self.conditions {
            program.clear();
            condition.encode(&mut program);
            out.put_blob(&program);
        }
        out.put_u32(self.top.as_ref().map_or(0, |top| top.groups));
        if let Some(top) = &self.top {
            out.put_bool(top.with_ties);
            encode_sort_keys(&top.keys, out);
        }
    }

    /// Decodes the pruning of `aggregation`.
    pub fn decode(reader: &mut Reader<'_>, aggregation: &Aggregation) -> Result<Self, Corrupt> {
        let count = reader.count(4, "group conditions")?;
        let mut conditions = Vec::with_capacity(count);
        for _ in 0..count {
            conditions.push(Expr::decode(reader.blob("group condition")?)?);
        }
        let at = reader.position();
        let groups = reader.u32("top groups")?;
        if groups > TOP_ROWS_MAX {
            return Err(Corrupt::new("top groups", at, groups.to_string()));
        }
        let mut pruning = Self { conditions, top: None };
        if groups > 0 {
            let with_ties = reader.bool("ties")?;
            pruning.top = Some(TopGroups { groups, with_ties, keys: decode_sort_keys(reader)? });
        }
        let outputs = aggregation.outputs();
        let mut bad = None;
        pruning.for_each_expr(&mut |expr| {
            expr.for_each_column(&mut |number| {
                if number == 0 || number as usize > outputs {
                    bad = Some(number);
                }
            });
        });
        match bad {
            Some(number) => Err(Corrupt::new("output", reader.position(), format!("{number} of {outputs}"))),
            None => Ok(pruning),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::postgres::Collation;
    use crate::wire::Aggregate;

    #[test]
    fn a_pruning_decodes_to_its_equal_and_a_truncated_pruning_is_corrupt() {
        let count = Aggregate { function: 2803, collation: Collation::None, argument: None, filter: None };
        let aggregation =
            Aggregation { keys: vec![Expr::Column(7)], aggregates: vec![count], ..Aggregation::default() };
        let key = |output| SortKey {
            expr: Expr::Column(output),
            less: 66,
            collation: Collation::None,
            descending: true,
            nulls_first: true,
        };
        let conditions = vec![Expr::IsNotNull(Box::new(Expr::Column(2)))];
        let top = |keys| Some(TopGroups { groups: 10, with_ties: true, keys });
        for pruning in [
            GroupPruning { conditions: conditions.clone(), top: None },
            GroupPruning { conditions: vec![], top: top(vec![]) },
            GroupPruning { conditions, top: top(vec![key(2), key(1)]) },
        ] {
            let mut bytes = Vec::new();
            pruning.encode(&mut bytes);
            assert_eq!(GroupPruning::decode(&mut Reader::new(&bytes), &aggregation).unwrap(), pruning);
            for length in 0..bytes.len() {
                GroupPruning::decode(&mut Reader::new(&bytes[..length]), &aggregation).unwrap_err();
            }
        }
        let mut bytes = Vec::new();
        GroupPruning { conditions: vec![], top: top(vec![key(3)]) }.encode(&mut bytes);
        GroupPruning::decode(&mut Reader::new(&bytes), &aggregation).unwrap_err();
    }
}
