//! Offload simulation: runs the cell's scan code on pages that Postgres has read. The simulation counts the bytes that
//! a cell would have scanned and returned; Postgres produces the rows of the query itself.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use cellar_format::postgres::TransactionId;
use cellar_format::stats::ScanStats;
use cellar_format::units::BLOCK_BYTES;
use cellar_format::wire::{ErrorReport, XidState};
use cellar_scan::{Plan, Progress, ResultWriter, Scanner, XidLookup};

use crate::request::RequestBuilder;

/// Simulated results are discarded after this many bytes, which bounds memory.
const DISCARD_BYTES: usize = 128 << 10;

/// The result of [`Simulation::block`].
pub enum Step {
    Counted,
    /// The block is not counted yet: call [`Simulation::answer`] with the states of [`Simulation::needed_xids`], then
    /// scan the same block again.
    NeedXids,
}

pub struct Simulation {
    scanner: Scanner,
    writer: ResultWriter,
    known: KnownXids,
    needed_xids: Vec<TransactionId>,
    stats: ScanStats,
}

/// The states that the backend has answered.
#[derive(Default)]
struct KnownXids(RefCell<HashMap<TransactionId, XidState>>);

impl XidLookup for KnownXids {
    fn state(&self, xid: TransactionId) -> Option<XidState> {
        self.0.borrow().get(&xid).copied()
    }
}

impl Simulation {
    pub fn new(request: &RequestBuilder) -> Result<Self, ErrorReport> {
        let request = request.scan().map_err(|error| report("XX000", error))?;
        let plan = Arc::new(Plan::compile(&request).map_err(|error| report("0A000", error.to_string()))?);
        Ok(Self {
            scanner: Scanner::new(plan),
            writer: ResultWriter::new(),
            known: KnownXids::default(),
            needed_xids: Vec::new(),
            stats: ScanStats::default(),
        })
    }

    /// Scans one block, which must be `BLOCK_BYTES` long.
    pub fn block(&mut self, block: u32, page: &[u8]) -> Step {
        match self.scanner.scan(block, page, &self.known, &mut self.writer, false) {
            Progress::Done { stats: counts, .. } => {
                self.stats.add(&counts);
                self.stats.eligible_bytes += BLOCK_BYTES as u64;
                if self.writer.pending_bytes() >= DISCARD_BYTES {
                    self.discard();
                }
                Step::Counted
            }
            Progress::NeedXids(xids) => {
                self.needed_xids = xids;
                Step::NeedXids
            }
        }
    }

    pub fn needed_xids(&self) -> &[TransactionId] {
        &self.needed_xids
    }

    pub fn answer(&mut self, states: &[XidState]) {
        self.known.0.borrow_mut().extend(self.needed_xids.drain(..).zip(states.iter().copied()));
    }

    /// Returns all counts so far, including the rows and groups that the scan code still buffers.
    pub fn stats(&mut self) -> ScanStats {
        self.stats.rows_returned += self.scanner.finish_range(&mut self.writer);
        self.writer.flush();
        self.discard();
        self.stats
    }

    fn discard(&mut self) {
        self.stats.returned_bytes += self.writer.frames().len() as u64;
        self.writer.clear_frames();
    }
}

fn report(sqlstate: &str, error: String) -> ErrorReport {
    let detail = ErrorReport::detail_of(&error);
    ErrorReport { detail, ..ErrorReport::new(sqlstate, "could not simulate a Smart Scan".to_owned()) }
}
