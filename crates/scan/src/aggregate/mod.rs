//! Aggregation in the cell: rows that qualify are folded into groups, and groups are returned as partial states.
//!
//! A partial state has the format that PostgreSQL's own partial aggregation emits, so one Finalize node combines the
//! states of both. Rows whose keys or arguments cannot be computed here for certain (an error, NaN, a value outside the
//! page) are rejected: they stay selected, and the caller returns them to PostgreSQL as rows. Groups may be returned
//! before the end of a scan, so a group may be returned more than once.
//!
//! [`plan`] compiles a request. [`argument`] and [`key`] compute vectors from rows; the other modules do not
//! depend on how rows are stored. [`groups`] assigns group numbers to rows, [`distinct`] collects the values of aggregates with DISTINCT, [`state`] folds vectors into the states of groups, and [`partial`]
//! encodes states as PostgreSQL does. [`aggregator`] runs these steps. [`merge`] merges many groups of
//! several threads. [`pruning`] chooses the groups that the backend can need.

mod aggregator;
mod argument;
mod distinct;
mod functions;
mod groups;
mod key;
mod linear;
mod merge;
mod partial;
mod partitions;
mod plan;
mod pruning;
mod seen;
mod squares;
mod state;
mod strings;
mod total;
mod value_set;
mod zeroed;

pub use aggregator::{Aggregator, DistinctMerge};
pub use functions::{groupable_type, offloadable_aggregate, prunable_aggregate};
pub use merge::GroupMerge;
pub use plan::AggregationPlan;
pub use total::{Total, TotalRequest};

/// Groups are written after at most this many rows, so that sums of int4 cannot overflow 64 bits.
const ROWS_MAX: u64 = 1 << 31;
/// Groups are written when the magnitude of a sum of 128 bits might exceed this, and not merged if it might.
const MAGNITUDE_SUM_MAX: u128 = 1 << 126;
/// Rows that are aggregated together, step by step: their vectors fit into the first-level cache.
pub const RUN_ROWS: usize = 1024;
