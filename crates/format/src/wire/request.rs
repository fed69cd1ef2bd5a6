//! What a backend asks for: the relation, its columns, the snapshot, the storage predicate and the projection.

use super::{Aggregation, Expr, TopN};
use crate::bytes::{Corrupt, Reader, Write};
use crate::postgres::{Align, AttributeNumber, Oid, TransactionId, Width};

/// How the rows come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ScanMode {
    /// Column batches with the projected columns.
    Columns = 0,
    /// Whole tuples as they stand in the block, for scans that need most of the row.
    Rows = 1,
    /// Groups with their partial aggregates; only of batches that answer a request with an aggregation.
    Groups = 2,
}

/// What an attribute is for tuples that were written before it was added (`attmissingval`).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Missing {
    Null,
    /// Fixed width: `typlen` bytes; varlena: whole datum with its header.
    Value(Vec<u8>),
}

/// One column of the tuple descriptor.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Attribute {
    /// The base type for a domain; 0 for a dropped column.
    pub type_oid: Oid,
    pub typmod: i32,
    pub width: Width,
    pub align: Align,
    pub by_value: bool,
    pub missing: Missing,
}

/// Postgres's MVCC snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Snapshot {
    /// Transactions below have ended.
    pub xmin: TransactionId,
    /// Transactions from here on had not begun.
    pub xmax: TransactionId,
    /// True on a standby: all-visible bits are not trusted then.
    pub taken_during_recovery: bool,
    /// The next transaction id, with its epoch: tells the 64-bit id of every id on a page.
    pub next_full_xid: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ScanRequest {
    /// Path of the relation's first segment file, relative to the mount's root.
    pub file: String,
    /// Blocks in a segment file (RELSEG_SIZE).
    pub segment_blocks: u32,
    /// Whether the cluster has data checksums.
    pub checksums: bool,
    /// The database encoding (`pg_enc`).
    pub encoding: u32,
    pub attributes: Vec<Attribute>,
    /// All of them must be true for a row to qualify; in the order in which Postgres would evaluate them.
    pub quals: Vec<Expr>,
    /// 1-based; ascending; the columns of a batch in this order.
    pub projection: Vec<AttributeNumber>,
    pub mode: ScanMode,
    pub snapshot: Snapshot,
    /// So many threads of the cell may share a range, whose blocks then come in any order.
    pub threads: u16,
    /// Rows that can be aggregated come back as groups; mode and projection are those of the others.
    pub aggregation: Option<Aggregation>,
    /// Rows that cannot be among the first ones need not come back.
    pub top_n: Option<TopN>,
}

/// What follows the snapshot, in this order.
const AGGREGATION: u8 = 1;
const TOP_N: u8 = 2;

impl ScanRequest {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_blob(self.file.as_bytes());
        out.put_u32(self.segment_blocks);
        out.put_bool(self.checksums);
        out.put_u32(self.encoding);
        out.put_u32(self.attributes.len() as u32);
        for attribute in &self.attributes {
            attribute.encode(out);
        }
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
        out.put_u8(aggregation | top_n);
        if let Some(aggregation) = &self.aggregation {
            aggregation.encode(out);
        }
        if let Some(top_n) = &self.top_n {
            top_n.encode(out);
        }
    }

    pub fn decode(payload: &[u8]) -> Result<Self, Corrupt> {
        let mut reader = Reader::new(payload);
        let file = reader.string("file")?;
        let segment_blocks = reader.u32("segment blocks")?;
        if segment_blocks == 0 {
            return Err(Corrupt::new("segment blocks", reader.position(), "0"));
        }
        let checksums = reader.bool("checksums")?;
        let encoding = reader.u32("encoding")?;
        let count = reader.count(13, "attributes")?;
        let attributes = (0..count).map(|_| Attribute::decode(&mut reader)).collect::<Result<Vec<_>, _>>()?;
        let count = reader.count(4, "quals")?;
        let mut quals = Vec::with_capacity(count);
        for _ in 0..count {
            let qual = Expr::decode(reader.blob("qual")?)?;
            check_columns(&qual, attributes.len(), reader.position())?;
            quals.push(qual);
        }
        let count = reader.count(2, "projection")?;
        let mut projection = Vec::with_capacity(count);
        for _ in 0..count {
            let number = reader.u16("projected column")?;
            let ascending = projection.last().is_none_or(|last| *last < number);
            if number == 0 || number as usize > attributes.len() || !ascending {
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
        let follows = reader.u8("what follows")?;
        if follows & !(AGGREGATION | TOP_N) != 0 {
            return Err(Corrupt::new("what follows", at, follows.to_string()));
        }
        let mut aggregation = None;
        if follows & AGGREGATION != 0 {
            let decoded = Aggregation::decode(&mut reader)?;
            let mut checked = Ok(());
            decoded.for_each_expr(&mut |expr| {
                checked = checked.clone().and_then(|()| check_columns(expr, attributes.len(), reader.position()));
            });
            checked?;
            aggregation = Some(decoded);
        }
        let mut top_n = None;
        if follows & TOP_N != 0 {
            let decoded = TopN::decode(&mut reader)?;
            for key in &decoded.keys {
                check_columns(&key.expr, attributes.len(), reader.position())?;
            }
            top_n = Some(decoded);
        }
        reader.finish("scan request")?;
        Ok(Self {
            file,
            segment_blocks,
            checksums,
            encoding,
            attributes,
            quals,
            projection,
            mode,
            snapshot,
            threads,
            aggregation,
            top_n,
        })
    }
}

fn check_columns(qual: &Expr, attributes: usize, offset: usize) -> Result<(), Corrupt> {
    let mut bad = None;
    qual.for_each_column(&mut |number| {
        if number == 0 || number as usize > attributes {
            bad = Some(number);
        }
    });
    bad.map_or(Ok(()), |number| Err(Corrupt::new("column", offset, format!("{number} of {attributes}"))))
}

impl Attribute {
    fn encode(&self, out: &mut Vec<u8>) {
        out.put_u32(self.type_oid);
        out.put_u32(self.typmod as u32);
        out.put_u16(self.width.typlen() as u16);
        out.put_u8(self.align.typalign());
        out.put_bool(self.by_value);
        match &self.missing {
            Missing::Null => out.put_bool(false),
            Missing::Value(value) => {
                out.put_bool(true);
                out.put_blob(value);
            }
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, Corrupt> {
        let type_oid = reader.u32("type")?;
        let typmod = reader.u32("typmod")? as i32;
        let at = reader.position();
        let typlen = reader.u16("typlen")? as i16;
        let width = Width::from_typlen(typlen).ok_or_else(|| Corrupt::new("typlen", at, typlen.to_string()))?;
        let typalign = reader.u8("typalign")?;
        let align = Align::from_typalign(typalign).ok_or_else(|| Corrupt::new("typalign", at, typalign.to_string()))?;
        let by_value = reader.bool("typbyval")?;
        if by_value && !matches!(width, Width::Fixed(1 | 2 | 4 | 8)) {
            return Err(Corrupt::new("typbyval", at, format!("typlen {typlen}")));
        }
        let missing = match reader.bool("missing flag")? {
            false => Missing::Null,
            true => Missing::Value(reader.blob("missing value")?.to_vec()),
        };
        if let (Missing::Value(value), Width::Fixed(bytes)) = (&missing, width)
            && value.len() != bytes as usize
        {
            return Err(Corrupt::new("missing value", at, format!("{} bytes for typlen {bytes}", value.len())));
        }
        Ok(Self { type_oid, typmod, width, align, by_value, missing })
    }
}
