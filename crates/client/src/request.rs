//! Builds requests step by step while the extension walks Postgres's structures.

use cellar_format::bytes::Reader;
use cellar_format::postgres::{Collation, Oid};
use cellar_format::wire::expr::Expr;
use cellar_format::wire::{
    Aggregate, Aggregation, Attribute, BlockRange, Comparison, DistinctAggregates, GroupPruning, IndexScan, JoinKind,
    Lookup, LookupColumn, Relation, RelationBlocks, ScanMode, ScanRequest, Snapshot, SortKey, TopGroups, TopN,
};

/// A request under construction: a relation alone, or a whole scan. The builder records its first
/// error and returns that error when the request is used.
pub struct RequestBuilder {
    request: ScanRequest,
    /// The postfix program of the current expression.
    pub program: Vec<u8>,
    /// The filter of the current aggregate.
    filter: Option<Expr>,
    error: Option<String>,
}

impl Default for RequestBuilder {
    fn default() -> Self {
        let request = ScanRequest {
            relation: Relation {
                file: String::new(),
                segment_blocks: 131_072,
                checksums: false,
                encoding: 0,
                attributes: Vec::new(),
            },
            quals: Vec::new(),
            projection: Vec::new(),
            mode: ScanMode::Columns,
            snapshot: Snapshot::default(),
            threads: 1,
            lookups: Vec::new(),
            aggregation: None,
            top_n: None,
            index: None,
        };
        Self { request, program: Vec::new(), filter: None, error: None }
    }
}

impl RequestBuilder {
    pub fn file(&mut self, path: &str, segment_blocks: u32, checksums: bool, encoding: u32) {
        let relation = &mut self.request.relation;
        relation.file = path.to_owned();
        relation.segment_blocks = segment_blocks;
        relation.checksums = checksums;
        relation.encoding = encoding;
    }

    pub fn attribute(&mut self, attribute: Attribute) {
        self.request.relation.attributes.push(attribute);
    }

    pub fn snapshot(&mut self, snapshot: Snapshot) {
        self.request.snapshot = snapshot;
    }

    pub fn projection(&mut self, attributes: &[u16], whole_rows: bool) {
        self.request.projection = attributes.to_vec();
        self.request.mode = if whole_rows { ScanMode::Rows } else { ScanMode::Columns };
    }

    /// Makes the entries of an index the rows of the scan.
    pub fn index(&mut self, lsn: u64, columns: &[u16], all_visible: &[u8]) {
        let (columns, all_visible) = (columns.to_vec(), all_visible.to_vec());
        self.request.index = Some(IndexScan { lsn, columns, all_visible });
    }

    /// Adds a join with a lookup table, whose columns follow.
    pub fn lookup(&mut self, kind: u8, comparison: u8, attributes: &[u16], keys: &[i64]) {
        let comparison = Some(Comparison::from_u8(comparison)).filter(|known| known.is_some() || comparison == 0);
        match JoinKind::from_u8(kind).zip(comparison) {
            Some((kind, comparison)) => self.request.lookups.push(Lookup {
                kind,
                comparison,
                attributes: attributes.to_vec(),
                keys: keys.to_vec(),
                columns: Vec::new(),
            }),
            None => self.fail("an unknown kind of join or comparison"),
        }
    }

    /// Adds a column of the last lookup table.
    pub fn lookup_column(&mut self, attribute: Attribute, nulls: &[u8], values: &[u8]) {
        match self.request.lookups.last_mut() {
            Some(lookup) => {
                lookup.columns.push(LookupColumn { attribute, nulls: nulls.to_vec(), values: values.to_vec() })
            }
            None => self.fail("a column of a lookup table precedes the table"),
        }
    }

    pub fn qual_end(&mut self) {
        match Expr::decode(&self.program) {
            Ok(qual) => self.request.quals.push(qual),
            Err(error) => self.fail(error.to_string()),
        }
        self.program.clear();
    }

    /// Requests that only joined rows for which the current expression is true are aggregated.
    pub fn join_condition_end(&mut self) {
        match self.take_program() {
            Some(condition) => self.aggregation().conditions.push(condition),
            None => self.fail("a condition on joined rows is empty"),
        }
    }

    /// Requests groups in place of rows, and returns the aggregation for its keys and aggregates.
    pub fn aggregation(&mut self) -> &mut Aggregation {
        self.request.aggregation.get_or_insert_default()
    }

    pub fn group_key_end(&mut self) {
        match self.take_program() {
            Some(key) => self.aggregation().keys.push(key),
            None => self.fail("a group key is empty"),
        }
    }

    pub fn aggregate_filter_end(&mut self) {
        self.filter = self.take_program();
    }

    pub fn aggregate_end(&mut self, function: Oid, collation: Collation) {
        let argument = self.take_program();
        let filter = self.filter.take();
        self.aggregation().aggregates.push(Aggregate { function, collation, argument, filter });
    }

    pub fn distinct_argument_end(&mut self) {
        let argument = self.take_program();
        let filter = self.filter.take();
        match argument {
            Some(argument) => {
                let distinct = DistinctAggregates { argument, filter, functions: Vec::new() };
                self.aggregation().distinct = Some(distinct);
            }
            None => self.fail("the argument of aggregates with DISTINCT is empty"),
        }
    }

    pub fn distinct_aggregate(&mut self, function: Oid) {
        match &mut self.aggregation().distinct {
            Some(distinct) => distinct.functions.push(function),
            None => self.fail("an aggregate with DISTINCT precedes the argument"),
        }
    }

    fn pruning(&mut self) -> &mut GroupPruning {
        self.aggregation().pruning.get_or_insert_default()
    }

    /// Requests only groups for which the current expression, over the outputs of the aggregation, is true.
    pub fn group_condition_end(&mut self) {
        match self.take_program() {
            Some(condition) => self.pruning().conditions.push(condition),
            None => self.fail("a group condition is empty"),
        }
    }

    /// Requests only the first groups of the order that later sort keys define.
    pub fn top_groups(&mut self, groups: u32, with_ties: bool) {
        self.pruning().top = Some(TopGroups { groups, with_ties, keys: Vec::new() });
    }

    /// Sets the most threads of the cell that may share a range. With more than one thread, blocks come in any order.
    pub fn threads(&mut self, threads: u16) {
        self.request.threads = threads.max(1);
    }

    /// Requests only the first rows of the order that later sort keys define.
    pub fn top_rows(&mut self, rows: u32) {
        self.request.top_n = Some(TopN { rows, keys: Vec::new() });
    }

    pub fn sort_key_end(&mut self, less: Oid, collation: Collation, descending: bool, nulls_first: bool) {
        let key = self.take_program().map(|expr| SortKey { expr, less, collation, descending, nulls_first });
        let ScanRequest { top_n, aggregation, .. } = &mut self.request;
        let top_groups = aggregation.as_mut().and_then(|aggregation| aggregation.pruning.as_mut()?.top.as_mut());
        match (key, top_n, top_groups) {
            (Some(key), Some(top_n), _) => top_n.keys.push(key),
            (Some(key), None, Some(top_groups)) => top_groups.keys.push(key),
            _ => self.fail("a sort key is empty or precedes the number of rows or groups"),
        }
    }

    /// Decodes and clears the current program. Returns None for an empty or invalid program.
    fn take_program(&mut self) -> Option<Expr> {
        let program = std::mem::take(&mut self.program);
        if program.is_empty() {
            return None;
        }
        Expr::decode(&program).map_err(|error| self.fail(error.to_string())).ok()
    }

    /// Records an error; only the first one is kept.
    pub fn fail(&mut self, error: impl Into<String>) {
        self.error.get_or_insert_with(|| error.into());
    }

    /// Returns the size of the scan request as encoded so far.
    pub fn bytes(&self) -> usize {
        let mut payload = Vec::new();
        self.request.encode(&mut payload);
        payload.len()
    }

    /// Returns the encoded scan request after decoding it once, which proves that the cell can decode it.
    pub fn encode(&self) -> Result<Vec<u8>, String> {
        self.check()?;
        let mut payload = Vec::new();
        self.request.encode(&mut payload);
        ScanRequest::decode(&payload).map_err(|error| error.to_string())?;
        Ok(payload)
    }

    /// Returns the scan request.
    pub fn scan(&self) -> Result<ScanRequest, String> {
        ScanRequest::decode(&self.encode()?).map_err(|error| error.to_string())
    }

    /// Returns the relation without the rest of the scan request.
    pub fn relation(&self) -> Result<Relation, String> {
        self.check()?;
        let mut bytes = Vec::new();
        self.request.relation.encode(&mut bytes);
        Relation::decode(&mut Reader::new(&bytes)).map_err(|error| error.to_string())
    }

    /// Returns the relation with a range of its blocks.
    pub fn blocks(&self, range: BlockRange) -> Result<RelationBlocks, String> {
        Ok(RelationBlocks { relation: self.relation()?, range })
    }

    fn check(&self) -> Result<(), String> {
        match &self.error {
            Some(error) => Err(error.clone()),
            None if !self.program.is_empty() => Err("an expression is incomplete".to_owned()),
            None => Ok(()),
        }
    }
}
