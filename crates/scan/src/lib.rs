//! Scans heap pages of PostgreSQL 15 to 18, and compression units made of them: bytes in, batches out.
//!
//! Invariants: no I/O happens here except through the byte source of a unit; the crate knows no files, disks or
//! sockets. The bytes of a page never cause a panic: a malformed page becomes a passed-through block. A row is dropped
//! only if PostgreSQL would not return the row. Whatever is uncertain (the state of a transaction, a value outside the
//! page, an evaluation that may raise an error) passes the whole block through.
//!
//! Modules, lowest first; each uses only modules above itself in this list:
//!
//! - [`memory`]: accounts that limit the memory of scans.
//! - `vectors`: loops compiled for several instruction sets.
//! - [`heap`]: pages, line pointers, tuples, and the locations of columns in tuples.
//! - `leaf_page`: leaf pages of B-trees.
//! - `value`: SQL values, their types and orders.
//! - `bounds`: minimums and maximums of values, and the ranges that predicates compare them with.
//! - [`visibility`]: which tuples a snapshot sees.
//! - [`predicate`]: expressions, compiled and evaluated.
//! - `lookup`: joins with lookup tables.
//! - [`mod@unit`]: compression units: the pages of an allocation unit, stored column-wise.
//! - [`storage_index`]: summaries of regions, and pruning by them.
//! - [`batch`]: the frames that answer a scan.
//! - [`aggregate`]: rows folded into groups, groups returned as partial states.
//! - `top_n`: dropping rows that cannot be among the first rows of an order.
//! - `plan`: a compiled scan request.
//! - `scanner`: scans of heap pages, and of the leaf pages of an index.
//! - `unit_scan`: scans of compression units; pages that are not stored column-wise go through `scanner`.

pub mod aggregate;
pub mod batch;
mod bounds;
pub mod heap;
mod leaf_page;
mod lookup;
pub mod memory;
mod plan;
pub mod predicate;
mod scanner;
pub mod storage_index;
mod top_n;
pub mod unit;
mod unit_scan;
mod value;
mod vectors;
pub mod visibility;

pub use aggregate::{groupable_type, offloadable_aggregate, prunable_aggregate};
pub use batch::{AlignedBuffer, ResultWriter};
pub use heap::page_checksum;
pub use memory::{Account, Grant};
pub use plan::Plan;
pub use predicate::{
    CollationNeed, FunctionClass, FunctionInfo, Unsupported, function_class, knows_field, knows_regular_expression,
    offloadable, offloadable_functions, offloadable_type, vectorized,
};
pub use scanner::{Progress, Scanner};
pub use storage_index::{ColumnSummary, RegionSummary};
pub use unit_scan::{UnitScanner, unit_summary};
pub use visibility::{NoXids, XidLookup};
