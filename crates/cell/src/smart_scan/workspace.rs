//! The buffers of one thread of a scan, and the grant that covers their memory.
//!
//! A scan acquires memory before each step; without memory, the blocks of the step are passed through. The memory is
//! released when the scan pauses or ends.
//!
//! Invariant: the grant covers the buffers as they were at the start of the step, and [`STEP_BYTES`] or
//! [`UNIT_STEP_BYTES`] for what the step may add. Groups and top-N lists have separate grants.

use std::sync::Arc;

use cellar_scan::aggregate::Aggregator;
use cellar_scan::{Account, Grant, Plan, ResultWriter, Scanner, UnitScanner};

use crate::state::{MemoryBudget, MemoryKind};

/// Memory that a step of one region may add: result frames, and a copy of a region that has no slot in the page cache.
const STEP_BYTES: usize = 2 << 20;
/// Memory that a step of up to [`super::UNIT_BLOCKS_MAX`] blocks of a compression unit may add.
const UNIT_STEP_BYTES: usize = 8 << 20;

pub(super) struct Workspace {
    plan: Arc<Plan>,
    groups: Arc<Account>,
    pub scanner: Scanner,
    pub unit_scanner: UnitScanner,
    memory: Grant,
}

impl Workspace {
    pub fn new(plan: Arc<Plan>, budget: &MemoryBudget) -> Self {
        let groups = budget.account(MemoryKind::Groups).clone();
        Self {
            scanner: Scanner::with_memory(plan.clone(), &groups),
            unit_scanner: UnitScanner::with_memory(plan.clone(), &groups),
            plan,
            groups,
            memory: Grant::new(budget.account(MemoryKind::ScanBuffers)),
        }
    }

    /// Acquires memory for a step of one region. Returns false if there is none. `writer` is the scan's writer.
    pub fn reserve_step(&mut self, writer: &ResultWriter) -> bool {
        self.reserve(writer, STEP_BYTES)
    }

    /// Acquires memory for a step of several regions of a compression unit. Returns false if there is none.
    pub fn reserve_unit_step(&mut self, writer: &ResultWriter) -> bool {
        self.reserve(writer, UNIT_STEP_BYTES)
    }

    fn reserve(&mut self, writer: &ResultWriter, step_bytes: usize) -> bool {
        let buffers = self.scanner.memory_bytes() + self.unit_scanner.memory_bytes();
        let buffers = buffers.max(self.plan.scanner_bytes());
        self.memory.cover((buffers + writer.memory_bytes() + step_bytes) as u64)
    }

    /// The groups of raw pages and of compression units; none if the plan has no aggregation.
    pub fn aggregators(&mut self) -> impl Iterator<Item = &mut Aggregator> {
        [self.scanner.aggregator(), self.unit_scanner.aggregator()].into_iter().flatten()
    }

    pub fn has_memory(&self) -> bool {
        self.memory.bytes() > 0
    }

    /// Frees the buffers. The caller must have written the groups.
    pub fn release(&mut self) {
        self.scanner = Scanner::with_memory(self.plan.clone(), &self.groups);
        self.unit_scanner = UnitScanner::with_memory(self.plan.clone(), &self.groups);
        self.memory.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;

    #[test]
    fn a_scan_without_memory_gets_memory_when_another_scan_releases_its_memory() {
        let request = fixtures::scan_request(fixtures::relation("table"), 1);
        let plan = Arc::new(Plan::compile(&request).unwrap());
        // A quarter of the working memory are scan buffers: enough for one unit step or for three steps.
        let budget = MemoryBudget::new(0, 4 * 9 * (1 << 20));
        let used = || budget.account(MemoryKind::ScanBuffers).used();
        let writer = ResultWriter::new();
        let [mut first, mut second] = [(); 2].map(|()| Workspace::new(plan.clone(), &budget));
        assert!(!first.has_memory() && used() == 0);
        assert!(first.reserve_step(&writer) && first.has_memory());
        assert!(second.reserve_step(&writer), "two scans have memory for a step");
        assert!(!first.reserve_unit_step(&writer), "but no scan has memory for a unit step");
        second.release();
        assert!(first.reserve_unit_step(&writer) && !second.reserve_step(&writer));
        first.release();
        assert!(second.reserve_step(&writer));
        drop(second);
        assert_eq!(used(), 0);
    }
}
