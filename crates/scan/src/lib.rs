//! Scans heap pages of PostgreSQL 15 to 18: bytes in, batches out.
//!
//! Invariants: no I/O happens here and no disk or socket is known; bytes of a page never panic it, they become a
//! passed-through block. A row is dropped only when Postgres would not return it, and whatever is not certain (a
//! transaction's state, a value outside the page, an evaluation that would raise an error) sends its whole block back.
//!
//! The way of a page: [`heap`] checks it and finds its columns, [`visibility`] asks the snapshot, [`predicate`] drops
//! rows, [`aggregate`] folds rows into groups, `top_n` drops what cannot be among the first rows of an order, [`batch`] lays out what is left, [`storage_index`] keeps minimum and
//! maximum for the scans to come. [`unit`] holds the pages of an allocation unit column-wise, and a [`UnitScanner`] scans
//! them there.

pub mod aggregate;
pub mod batch;
pub mod heap;
mod plan;
pub mod predicate;
mod scanner;
pub mod storage_index;
mod top_n;
pub mod unit;
mod unit_scan;
mod vectors;
pub mod visibility;

pub use aggregate::{groupable_type, offloadable_aggregate};
pub use batch::{AlignedBuffer, ResultWriter};
pub use heap::page_checksum;
pub use plan::Plan;
pub use predicate::{
    CollationNeed, FunctionForm, FunctionInfo, Unsupported, form, knows_field, offloadable, offloadable_functions,
    offloadable_type,
};
pub use scanner::{Progress, Scanner};
pub use storage_index::{ColumnSummary, RegionSummary};
pub use unit_scan::UnitScanner;
pub use visibility::{NoXids, XidLookup};
