//! A session's open scan: the threads' scans, the relation's segments, and the totals for the log of slow scans.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cellar_format::postgres::AttributeNumber;
use cellar_format::stats::ScanStats;
use cellar_format::wire::{BlockRange, ScanRequest};

use cellar_storage::request::Origin;

use super::error::SessionError;
use super::range::{self, Backend};
use crate::access::{Credentials, Permission};
use crate::relation::Segments;
use crate::smart_scan::{ScanError, SmartScan};
use crate::state::{CellState, Transactions};

pub struct OpenScan {
    segments: Segments,
    /// One scan per thread, at least one.
    threads: Vec<SmartScan>,
    /// The origin of the scan's requests to the disks.
    pub origin: Origin,
    /// Columns of the storage predicate, ascending.
    predicate_columns: Vec<AttributeNumber>,
    blocks: u64,
    elapsed: Duration,
}

impl OpenScan {
    /// `process` is the backend.
    pub fn open(
        state: &Arc<CellState>,
        transactions: &Arc<Transactions>,
        peer: Arc<Credentials>,
        request: &ScanRequest,
        process: u32,
    ) -> Result<Self, ScanError> {
        let threads = usize::from(request.threads).min(state.helper_threads.processors);
        let mut predicate_columns = Vec::new();
        request.quals.iter().for_each(|qual| qual.for_each_column(&mut |column| predicate_columns.push(column)));
        predicate_columns.sort_unstable();
        predicate_columns.dedup();
        Ok(Self {
            segments: Segments::new(state.volume.clone(), &request.relation, peer, Permission::Read),
            threads: SmartScan::open(state, transactions, request, threads)?,
            origin: crate::fuse::origin(&request.relation.file, process, &state.iorm),
            predicate_columns,
            blocks: 0,
            elapsed: Duration::ZERO,
        })
    }

    /// Scans a range and sends its results to the backend.
    pub fn range(&mut self, state: &CellState, range: BlockRange, backend: Backend<'_>) -> Result<(), SessionError> {
        let started = Instant::now();
        let scanned = range::scan(&mut self.threads, &self.segments, range, &state.helper_threads, backend);
        self.blocks += u64::from(range.end - range.first);
        self.elapsed += started.elapsed();
        scanned
    }

    /// Whether [`Self::release_memory`] frees memory.
    pub fn has_memory(&self) -> bool {
        self.threads.iter().any(SmartScan::has_memory)
    }

    /// Frees the memory that the scan does not need between two ranges.
    pub fn release_memory(&mut self) {
        self.threads.iter_mut().for_each(SmartScan::release_memory);
    }

    /// Logs the scan if the time spent on its ranges, waits for the backend included, is at least `threshold`.
    pub fn log_if_slow(&self, threshold: Option<Duration>) {
        if threshold.is_none_or(|threshold| self.elapsed < threshold) {
            return;
        }
        let mut totals = ScanStats::default();
        self.threads.iter().for_each(|scan| totals.add(scan.totals()));
        let regions_excluded: u64 = self.threads.iter().map(SmartScan::regions_excluded).sum();
        let columns = match self.predicate_columns.as_slice() {
            [] => "none".to_owned(),
            columns => columns.iter().map(u16::to_string).collect::<Vec<_>>().join(", "),
        };
        log::warn!(
            "slow Smart Scan: file {}, {} blocks, predicate columns: {columns}, {} rows scanned, {} rows returned, \
             elapsed {:.3} ms, CPU {:.3} ms, {regions_excluded} regions excluded, {} bytes saved by the storage index",
            self.segments.file(),
            self.blocks,
            totals.rows_scanned,
            totals.rows_returned,
            self.elapsed.as_secs_f64() * 1e3,
            totals.cell_cpu_ns as f64 / 1e6,
            totals.saved_by_storage_index_bytes,
        );
    }
}
