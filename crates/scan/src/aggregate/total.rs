//! What all rows of a chunk come to, where that is known without looking at them one by one.

use super::AggregationPlan;
use super::functions::{StateKind, Takes};
use crate::heap::Slot;

/// What of an argument all rows' total is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked {
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
    pub fn asked(&self) -> Option<&[Asked]> {
        self.asked.as_deref()
    }

    pub(super) fn ask(&self) -> Option<Vec<Asked>> {
        if !self.keys.is_empty() {
            return None;
        }
        let asked = self.arguments.iter().map(|argument| {
            let plain = argument.plain()?;
            let (slot, scale) = (plain.map(|(slot, _)| slot), plain.and_then(|(_, scale)| scale));
            Some(Asked { slot, scale, sum: false, bounds: false })
        });
        let mut asked = asked.collect::<Option<Vec<_>>>()?;
        for kept in &self.kept {
            let asked = &mut asked[kept.argument];
            match kept.kind {
                StateKind::Count => {}
                StateKind::IntSum | StateKind::WideSum | StateKind::NumericSum => asked.sum = true,
                kind @ StateKind::Extreme { .. } if kind.takes() == Takes::Numbers => asked.bounds = true,
                _ => return None,
            }
        }
        Some(asked)
    }
}
