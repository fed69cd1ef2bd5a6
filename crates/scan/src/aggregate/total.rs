//! Totals: aggregates over many rows at once, computed without reading the rows one by one.

use super::functions::{ArgumentUse, StateKind};
use super::plan::AggregationPlan;
use crate::heap::Slot;

/// The totals that an aggregation needs of one argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TotalRequest {
    /// The column that is the argument. None: `count(*)`.
    pub slot: Option<Slot>,
    /// The greatest scale that the numbers may have. None: only the number of values is needed.
    pub scale: Option<u32>,
    pub sum: bool,
    pub bounds: bool,
}

/// The totals of an argument over some rows. Fields that were not requested are unspecified.
#[derive(Debug, Clone, Copy, Default)]
pub struct Total {
    /// Values that are not NULL.
    pub values: i64,
    /// The sum of the values times `10^decimals`.
    pub sum: i128,
    pub decimals: u8,
    /// The minimum and the maximum; there is at least one value.
    pub bounds: (i64, i64),
}

impl AggregationPlan {
    /// The totals that the aggregation needs, one request per argument. None: totals do not suffice, or there are keys.
    pub fn total_requests(&self) -> Option<&[TotalRequest]> {
        self.total_requests.as_deref()
    }

    pub(super) fn compile_total_requests(&self) -> Option<Vec<TotalRequest>> {
        if !self.keys.is_empty() {
            return None;
        }
        let requests = self.arguments.iter().map(|argument| {
            let plain = argument.plain()?;
            let (slot, scale) = (plain.map(|(slot, _)| slot), plain.and_then(|(_, scale)| scale));
            Some(TotalRequest { slot, scale, sum: false, bounds: false })
        });
        let mut requests = requests.collect::<Option<Vec<_>>>()?;
        for state in &self.states {
            let request = &mut requests[state.argument];
            match state.kind {
                StateKind::Count => {}
                StateKind::IntSum | StateKind::WideSum | StateKind::NumericSum => request.sum = true,
                kind @ StateKind::Extreme { .. } if kind.argument_use() == ArgumentUse::Numbers => {
                    request.bounds = true
                }
                _ => return None,
            }
        }
        Some(requests)
    }
}
