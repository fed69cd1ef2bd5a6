//! Builds a scan request piece by piece, as the extension walks Postgres's structures.

use cellar_format::postgres::{Align, Collation, Oid, Width};
use cellar_format::wire::expr::Expr;
use cellar_format::wire::{Aggregate, Aggregation, Attribute, Missing, ScanMode, ScanRequest, Snapshot, SortKey, TopN};

/// A request under construction. What the caller got wrong is remembered and told when the request is used.
pub struct RequestBuilder {
    request: ScanRequest,
    /// The postfix program of the qual under construction.
    pub program: Vec<u8>,
    /// The filter of the aggregate under construction.
    filter: Option<Expr>,
    fault: Option<String>,
}

impl Default for RequestBuilder {
    fn default() -> Self {
        let request = ScanRequest {
            file: String::new(),
            segment_blocks: 131_072,
            checksums: false,
            encoding: 0,
            attributes: Vec::new(),
            quals: Vec::new(),
            projection: Vec::new(),
            mode: ScanMode::Columns,
            snapshot: Snapshot::default(),
            threads: 1,
            aggregation: None,
            top_n: None,
        };
        Self { request, program: Vec::new(), filter: None, fault: None }
    }
}

impl RequestBuilder {
    pub fn file(&mut self, path: &str, segment_blocks: u32, checksums: bool, encoding: u32) {
        self.request.file = path.to_owned();
        self.request.segment_blocks = segment_blocks;
        self.request.checksums = checksums;
        self.request.encoding = encoding;
    }

    pub fn attribute(
        &mut self,
        type_oid: u32,
        typmod: i32,
        typlen: i16,
        typalign: u8,
        by_value: bool,
        missing: Option<&[u8]>,
    ) {
        let (Some(width), Some(align)) = (Width::from_typlen(typlen), Align::from_typalign(typalign)) else {
            self.fault(format!("an attribute has typlen {typlen} and typalign {typalign}"));
            return;
        };
        let missing = missing.map_or(Missing::Null, |value| Missing::Value(value.to_vec()));
        self.request.attributes.push(Attribute { type_oid, typmod, width, align, by_value, missing });
    }

    pub fn snapshot(&mut self, snapshot: Snapshot) {
        self.request.snapshot = snapshot;
    }

    pub fn projection(&mut self, attributes: &[u16], whole_rows: bool) {
        self.request.projection = attributes.to_vec();
        self.request.mode = if whole_rows { ScanMode::Rows } else { ScanMode::Columns };
    }

    pub fn qual_end(&mut self) {
        match Expr::decode(&self.program) {
            Ok(qual) => self.request.quals.push(qual),
            Err(error) => self.fault(error.to_string()),
        }
        self.program.clear();
    }

    /// Rows are to come back as groups.
    pub fn aggregation(&mut self) -> &mut Aggregation {
        self.request.aggregation.get_or_insert_default()
    }

    pub fn group_key_end(&mut self) {
        match self.take_program() {
            Some(key) => self.aggregation().keys.push(key),
            None => self.fault("an empty group key".to_owned()),
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

    /// So many threads of the cell may share a range, whose blocks then come in any order.
    pub fn threads(&mut self, threads: u16) {
        self.request.threads = threads.max(1);
    }

    /// Only the first rows are wanted, in the order of the keys that follow.
    pub fn top_rows(&mut self, rows: u32) {
        self.request.top_n = Some(TopN { rows, keys: Vec::new() });
    }

    pub fn sort_key_end(&mut self, less: Oid, collation: Collation, descending: bool, nulls_first: bool) {
        let key = self.take_program();
        match (key, &mut self.request.top_n) {
            (Some(expr), Some(top_n)) => top_n.keys.push(SortKey { expr, less, collation, descending, nulls_first }),
            _ => self.fault("an empty sort key, or one without a number of rows".to_owned()),
        }
    }

    /// The expression under construction; None when there is none.
    fn take_program(&mut self) -> Option<Expr> {
        let program = std::mem::take(&mut self.program);
        if program.is_empty() {
            return None;
        }
        Expr::decode(&program).map_err(|error| self.fault(error.to_string())).ok()
    }

    pub fn fault(&mut self, what: String) {
        self.fault.get_or_insert(what);
    }

    /// The finished request in its wire form, decoded once so that what is sent is known to be readable.
    pub fn encode(&self) -> Result<Vec<u8>, String> {
        if let Some(fault) = &self.fault {
            return Err(fault.clone());
        }
        if !self.program.is_empty() {
            return Err("a qual was not ended".to_owned());
        }
        let mut payload = Vec::new();
        self.request.encode(&mut payload);
        ScanRequest::decode(&payload).map_err(|error| error.to_string())?;
        Ok(payload)
    }

    pub fn finish(&self) -> Result<ScanRequest, String> {
        ScanRequest::decode(&self.encode()?).map_err(|error| error.to_string())
    }
}
