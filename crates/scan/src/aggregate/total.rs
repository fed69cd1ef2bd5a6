//! What all rows of a chunk come to, where that is known without looking at them one by one.

use super::AggregationPlan;
use super::functions::{ArgumentUse, StateKind};
use crate::heap::Slot;

/// What of an argument all rows' total is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TotalRequest {
    /// The column that the argument is; none of a `count(*)`.
    pub slot: Option<Slot>,
    /// Decimals of its numbers at most, if more than the number of values is asked for.
    pub scale: Option<u32>,
    pub sum: bool,
    pub bounds: bool,
}

/// What rows come to, as far as it was asked for.
#[derive(Debug, Clone, Copy, Default)]
pub struct Total {
    /// Values that are not NULL.
    pub values: i64,
    /// Of numbers times `10^decimals`.
    pub sum: i128,
    pub decimals: u8,
    /// The least number and the greatest; there is one.
    pub bounds: (i64, i64),
}

impl AggregationPlan {
    /// What has to be known of all rows, for each argument; None: it is not enough, or there are keys.
    pub fn total_requests(&self) -> Option<&[TotalRequest]> {
        self.total_requests.as_deref()
    }

    pub(super) fn compile_total_requests(&self) -> Option<Vec<TotalRequest>> {
        if !self.keys.is_empty() {
            return None;
        }
        let asked = self.arguments.iter().map(|argument| {
            let plain = argument.plain()?;
            let (slot, scale) = (plain.map(|(slot, _)| slot), plain.and_then(|(_, scale)| scale));
            Some(TotalRequest { slot, scale, sum: false, bounds: false })
        });
        let mut asked = asked.collect::<Option<Vec<_>>>()?;
        for state in &self.states {
            let asked = &mut asked[state.argument];
            match state.kind {
                StateKind::Count => {}
                StateKind::IntSum | StateKind::WideSum | StateKind::NumericSum => asked.sum = true,
                kind @ StateKind::Extreme { .. } if kind.argument_use() == ArgumentUse::Numbers => asked.bounds = true,
                _ => return None,
            }
        }
        Some(asked)
    }
}
