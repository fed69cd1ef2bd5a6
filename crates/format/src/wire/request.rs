//! The request that opens a scan: relation, snapshot, storage predicate, projection, aggregation and top-N.

use super::{Aggregation, Expr, IndexScan, Lookup, Relation, TopN};
use crate::bytes::{Corrupt, Reader, Write};
use crate::postgres::{AttributeNumber, TransactionId};

/// The form in which the cell returns rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ScanMode {
    /// Column batches with the projected columns.
    Columns = 0,
    /// Whole tuples, copied unchanged from the block, for scans that need most columns.
    Rows = 1,
    /// Groups with their partial states. Only batches have this mode, in response to a request with an aggregation.
    Groups = 2,
    /// As [`Self::Groups`], with the transition states of the aggregates with DISTINCT.
    DistinctGroups = 3,
}

/// Postgres's MVCC snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Snapshot {
    /// Every transaction below `xmin` had finished when the snapshot was taken.
    pub xmin: TransactionId,
    /// No transaction from `xmax` on had started when the snapshot was taken.
    pub xmax: TransactionId,
    /// True on a standby, where a scan must not trust all-visible bits.
    pub taken_during_recovery: bool,
    /// The next transaction id with its epoch; widens every 32-bit id on a page to 64 bits.
    pub next_full_xid: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ScanRequest {
    pub relation: Relation,
    /// A row qualifies if every qual is true. The order is that of Postgres's evaluation, which decides whether a qual
    /// that may raise an error is evaluated.
    pub quals: Vec<Expr>,
    /// The columns of a batch: 1-based attribute numbers, ascending.
    pub projection: Vec<AttributeNumber>,
    pub mode: ScanMode,
    pub snapshot: Snapshot,
    /// The most threads of the cell that may share a range, at least 1. With more than one thread, the blocks of a
    /// range come back in any order.
    pub threads: u16,
    /// Joins below the aggregation; empty without an aggregation.
    pub lookups: Vec<Lookup>,
    /// The cell returns the rows that it can aggregate as groups; mode and projection apply to all other rows.
    pub aggregation: Option<Aggregation>,
    /// The cell may omit rows that cannot be among the first rows of the order.
    pub top_n: Option<TopN>,
    /// The rows are those of an index.
    pub index: Option<IndexScan>,
}

/// Bits of the byte after `threads`: which optional parts follow. The order is lookups, aggregation, top-N, index.
const AGGREGATION: u8 = 1;
const TOP_N: u8 = 2;
const LOOKUPS: u8 = 4;
const INDEX: u8 = 8;

impl ScanRequest {
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.relation.encode(out);
        out.put_u32(self.quals.len() as u32);
        let mut program = Vec::new();
        for qual in &self.quals {
            program.clear();
            qual.encode(&mut program);
            out.put_blob(&program);
        }
        out.put_u32(self.projection.len() as u32);
        for number in &self.projection {
            out.put_u16(*number);
        }
        out.put_u8(self.mode as u8);
        out.put_u32(self.snapshot.xmin);
        out.put_u32(self.snapshot.xmax);
        out.put_bool(self.snapshot.taken_during_recovery);
        out.put_u64(self.snapshot.next_full_xid);
        out.put_u16(self.threads);
        let aggregation = if self.aggregation.is_some() { AGGREGATION } else { 0 };
        let top_n = if self.top_n.is_some() { TOP_N } else { 0 };
        let lookups = if self.lookups.is_empty() { 0 } else { LOOKUPS };
        let index = if self.index.is_some() { INDEX } else { 0 };
        out.put_u8(lookups | aggregation | top_n | index);
        if !self.lookups.is_empty() {
            out.put_u32(self.lookups.len() as u32);
            self.lookups.iter().for_each(|lookup| lookup.encode(out));
        }
        if let Some(aggregation) = &self.aggregation {
            aggregation.encode(out);
        }
        if let Some(top_n) = &self.top_n {
            top_n.encode(out);
        }
        if let Some(index) = &self.index {
            index.encode(out);
        }
    }

    pub fn decode(payload: &[u8]) -> Result<Self, Corrupt> {
        let mut reader = Reader::new(payload);
        let relation = Relation::decode(&mut reader)?;
        let attributes = relation.attributes.len();
        let count = reader.count(4, "quals")?;
        let mut quals = Vec::with_capacity(count);
        for _ in 0..count {
            let qual = Expr::decode(reader.blob("qual")?)?;
            check_columns(&qual, attributes, reader.position())?;
            quals.push(qual);
        }
        let count = reader.count(2, "projection")?;
        let mut projection = Vec::with_capacity(count);
        for _ in 0..count {
            let number = reader.u16("projected column")?;
            let ascending = projection.last().is_none_or(|last| *last < number);
            if number == 0 || number as usize > attributes || !ascending {
                return Err(Corrupt::new("projected column", reader.position(), number.to_string()));
            }
            projection.push(number);
        }
        let mode = match reader.u8("mode")? {
            0 => ScanMode::Columns,
            1 => ScanMode::Rows,
            other => return Err(Corrupt::new("mode", reader.position(), other.to_string())),
        };
        let snapshot = Snapshot {
            xmin: reader.u32("xmin")?,
            xmax: reader.u32("xmax")?,
            taken_during_recovery: reader.bool("recovery flag")?,
            next_full_xid: reader.u64("next transaction id")?,
        };
        let threads = reader.u16("threads")?;
        if threads == 0 {
            return Err(Corrupt::new("threads", reader.position(), "0"));
        }
        let at = reader.position();
        let parts = reader.u8("optional parts")?;
        if parts & !(AGGREGATION | TOP_N | LOOKUPS | INDEX) != 0 {
            return Err(Corrupt::new("optional parts", at, parts.to_string()));
        }
        let mut lookups = Vec::new();
        let mut looked_up = 0;
        if parts & LOOKUPS != 0 {
            let count = reader.count(10, "lookup tables")?;
            for _ in 0..count {
                let lookup = Lookup::decode(&mut reader)?;
                for attribute in &lookup.attributes {
                    check_columns(&Expr::Column(*attribute), attributes + looked_up, reader.position())?;
                }
                looked_up += lookup.columns.len();
                lookups.push(lookup);
            }
        }
        let mut aggregation = None;
        if parts & AGGREGATION != 0 {
            let decoded = Aggregation::decode(&mut reader)?;
            let mut checked = Ok(());
            decoded.for_each_expr(&mut |expr| {
                checked = checked.clone().and_then(|()| check_columns(expr, attributes + looked_up, reader.position()));
            });
            checked?;
            aggregation = Some(decoded);
        }
        let mut top_n = None;
        if parts & TOP_N != 0 {
            let decoded = TopN::decode(&mut reader)?;
            for key in &decoded.keys {
                check_columns(&key.expr, attributes, reader.position())?;
            }
            top_n = Some(decoded);
        }
        let index = match parts & INDEX {
            0 => None,
            _ => Some(IndexScan::decode(&mut reader, attributes)?),
        };
        reader.finish("scan request")?;
        Ok(Self { relation, quals, projection, mode, snapshot, threads, lookups, aggregation, top_n, index })
    }
}

/// Fails if an expression names a column that the relation lacks.
fn check_columns(expr: &Expr, attributes: usize, offset: usize) -> Result<(), Corrupt> {
    let mut bad = None;
    expr.for_each_column(&mut |number| {
        if number == 0 || number as usize > attributes {
            bad = Some(number);
        }
    });
    bad.map_or(Ok(()), |number| Err(Corrupt::new("column", offset, format!("{number} of {attributes}"))))
}
