//! Offload simulation: the cell's scan code over pages that Postgres has read, to count what a cell would have found
//! eligible and what it would have sent back. The rows themselves come from Postgres.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use cellar_format::postgres::TransactionId;
use cellar_format::stats::ScanStats;
use cellar_format::units::BLOCK_BYTES;
use cellar_format::wire::{ErrorReport, XidState};
use cellar_scan::{Plan, Progress, ResultWriter, Scanner, XidLookup};

use crate::request::RequestBuilder;

/// Simulated results are thrown away when this much has gathered.
const DISCARD_BYTES: usize = 128 << 10;

pub enum Step {
    Counted,
    /// Answer [`Simulation::wanted`], then scan the same block again.
    NeedXids,
}

pub struct Simulation {
    scanner: Scanner,
    writer: ResultWriter,
    known: Known,
    wanted: Vec<TransactionId>,
    stats: ScanStats,
}

#[derive(Default)]
struct Known(RefCell<HashMap<TransactionId, XidState>>);

impl XidLookup for Known {
    fn state(&self, xid: TransactionId) -> Option<XidState> {
        self.0.borrow().get(&xid).copied()
    }
}

impl Simulation {
    pub fn new(request: &RequestBuilder) -> Result<Self, ErrorReport> {
        let request = request.finish().map_err(|fault| report("XX000", fault))?;
        let plan = Arc::new(Plan::compile(&request).map_err(|error| report("0A000", error.to_string()))?);
        Ok(Self {
            scanner: Scanner::new(plan),
            writer: ResultWriter::new(),
            known: Known::default(),
            wanted: Vec::new(),
            stats: ScanStats::default(),
        })
    }

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
                self.wanted = xids;
                Step::NeedXids
            }
        }
    }

    pub fn wanted(&self) -> &[TransactionId] {
        &self.wanted
    }

    pub fn answer(&mut self, states: &[XidState]) {
        self.known.0.borrow_mut().extend(self.wanted.drain(..).zip(states.iter().copied()));
    }

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

fn report(sqlstate: &str, fault: String) -> ErrorReport {
    ErrorReport::new(sqlstate, format!("could not simulate a Smart Scan: {fault}"))
}
