//! The interface between a Smart Scan and the connection to its backend.

use std::ops::Range;

use cellar_format::postgres::TransactionId;
use cellar_format::stats::ScanStats;
use cellar_format::wire::XidState;
use cellar_scan::Unsupported;

/// Consumes a scan's results and answers its queries.
pub trait ScanSink {
    type Error: From<ScanError>;

    /// Sends whole frames, in order, after the counts of the work that produced them. Because counts precede their
    /// frames, a backend that stops early has the counts of everything that it received.
    fn frames(&mut self, counts: &ScanStats, frames: &[u8]) -> Result<(), Self::Error>;

    /// Fails if the backend has closed its connection. The scan calls this method every few steps.
    fn check_connected(&mut self) -> Result<(), Self::Error>;

    /// Returns the states of transactions: one per id, in the same order. May wait for the backend.
    fn xid_states(&mut self, xids: &[TransactionId]) -> Result<Vec<XidState>, Self::Error>;

    /// Whether the thread must stop, and leave its other blocks to another thread.
    fn is_leaving(&self) -> bool {
        false
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    #[error("the storage predicate cannot be evaluated: {0}")]
    Unsupported(#[from] Unsupported),
    #[error(transparent)]
    Storage(#[from] cellar_storage::Error),
    #[error("the compression unit of blocks {} to {} is damaged: {error}", .blocks.start, .blocks.end - 1)]
    DamagedUnit { blocks: Range<u32>, error: cellar_scan::unit::UnitError },
    #[error("the cached unit of blocks {} to {} could not be read from flash: {error}", .blocks.start, .blocks.end - 1)]
    FlashFailed { blocks: Range<u32>, error: cellar_scan::unit::UnitError },
    #[error("the cell is shutting down")]
    Stopping,
}
