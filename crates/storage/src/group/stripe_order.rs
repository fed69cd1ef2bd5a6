//! The order in which the disks of a stripe layout get the allocation units of a file.
//!
//! Disks of equal size take equal turns. Otherwise, each disk has a weight, and the order is that of *smooth weighted round
//! robin*: each step adds its weight to the credit of every disk; the disk with the highest credit, the first one of several, gets
//! the allocation unit, and its credit falls by the sum of the weights. The order repeats after as many allocation units as the sum
//! of the weights, and each disk gets as many of these as its weight. Unless a disk has more than half of the weight, successive
//! allocation units are on different disks: the disk of the last allocation unit gets none, and a disk other than this one that
//! must get more than half of the rest gets the next one.
//!
//! The order is part of the stored format: it decides where existing files are (`docs/format/disk.md`).

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Weak};

/// Maximum sum of the weights of a layout.
pub const WEIGHTS_MAX: usize = 4096;

/// Which disk gets which allocation unit.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum StripeOrder {
    /// One after the other.
    #[default]
    Equal,
    Weighted(Arc<Turns>),
}

/// The order of disks with weights. Layouts with the same weights share it.
#[derive(Debug, PartialEq, Eq)]
pub struct Turns {
    weights: Box<[u16]>,
    /// Indexes into the disks of the layout.
    order: Box<[u16]>,
}

/// The orders in use, by their weights.
type Known = HashMap<Box<[u16]>, Weak<Turns>>;

static KNOWN: LazyLock<Mutex<Known>> = LazyLock::new(Mutex::default);

impl StripeOrder {
    /// Returns the order of disks with these weights; None if a weight is zero, or if the weights are too large.
    pub fn of(weights: &[u16]) -> Option<Self> {
        let sum: usize = weights.iter().map(|weight| usize::from(*weight)).sum();
        if weights.contains(&0) || sum > WEIGHTS_MAX {
            return None;
        }
        if weights.iter().all(|weight| *weight == 1) {
            return Some(Self::Equal);
        }
        let mut known = KNOWN.lock();
        if let Some(turns) = known.get(weights).and_then(Weak::upgrade) {
            return Some(Self::Weighted(turns));
        }
        known.retain(|_, turns| turns.strong_count() > 0);
        let turns = Arc::new(Turns { weights: weights.into(), order: smooth_order(weights, sum) });
        known.insert(weights.into(), Arc::downgrade(&turns));
        Some(Self::Weighted(turns))
    }

    /// Returns the weights; None if they are equal.
    pub fn weights(&self) -> Option<&[u16]> {
        match self {
            Self::Equal => None,
            Self::Weighted(turns) => Some(&turns.weights),
        }
    }

    /// Returns after how many allocation units of a layout of `disks` disks the order repeats.
    pub fn period(&self, disks: usize) -> usize {
        match self {
            Self::Equal => disks,
            Self::Weighted(turns) => turns.order.len(),
        }
    }

    /// Returns the index of the disk at a position of the order, in a layout of `disks` disks.
    pub fn index_at(&self, position: u64, disks: usize) -> usize {
        match self {
            Self::Equal => position as usize % disks,
            Self::Weighted(turns) => usize::from(turns.order[position as usize % turns.order.len()]),
        }
    }
}

fn smooth_order(weights: &[u16], sum: usize) -> Box<[u16]> {
    let alternates = weights.iter().all(|weight| usize::from(*weight) * 2 <= sum);
    let (mut credits, mut left) = (vec![0_i64; weights.len()], weights.to_vec());
    let mut order: Vec<u16> = Vec::with_capacity(sum);
    while order.len() < sum {
        credits.iter_mut().zip(weights).for_each(|(credit, weight)| *credit += i64::from(*weight));
        let last = order.last().filter(|_| alternates).map(|last| usize::from(*last));
        let others = (0..weights.len()).filter(|disk| left[*disk] > 0 && Some(*disk) != last);
        let is_due = |disk: &usize| alternates && usize::from(left[*disk]) * 2 > sum - order.len();
        // `max_by_key` returns the last of several.
        let next = others.clone().find(is_due).or_else(|| others.rev().max_by_key(|disk| credits[*disk]));
        let next = next.or(last).unwrap_or(0);
        credits[next] -= sum as i64;
        left[next] = left[next].saturating_sub(1);
        order.push(next as u16);
    }
    order.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(weights: &[u16]) -> Vec<usize> {
        let order = StripeOrder::of(weights).unwrap();
        (0..order.period(weights.len()) as u64).map(|at| order.index_at(at, weights.len())).collect()
    }

    #[test]
    fn disks_get_turns_by_weight_and_change_as_often_as_possible() {
        assert_eq!(order(&[1, 1, 1]), [0, 1, 2]);
        assert_eq!(order(&[2, 1, 1]), [0, 1, 2, 0]);
        assert_eq!(order(&[3, 1]), [0, 0, 1, 0]);
        for weights in [&[5, 4, 3][..], &[50, 49, 1], &[7, 7, 7, 20], &[20, 10, 10], &[1000, 999, 998, 3]] {
            let order = order(weights);
            for (disk, weight) in weights.iter().enumerate() {
                assert_eq!(order.iter().filter(|index| **index == disk).count(), usize::from(*weight));
            }
            assert!(order.windows(2).all(|pair| pair[0] != pair[1]), "{weights:?}: {order:?}");
        }
    }

    /// Files that exist rely on the order.
    #[test]
    fn the_order_of_a_release_stays() {
        assert_eq!(order(&[5, 3, 2]), [0, 1, 2, 0, 1, 0, 2, 0, 1, 0]);
    }

    #[test]
    fn layouts_with_the_same_weights_share_their_order() {
        let [StripeOrder::Weighted(one), StripeOrder::Weighted(other)] =
            [(); 2].map(|()| StripeOrder::of(&[3, 2]).unwrap())
        else {
            panic!("the weights differ");
        };
        assert!(Arc::ptr_eq(&one, &other));
        assert_eq!(StripeOrder::of(&[1, 1]), Some(StripeOrder::Equal));
        assert_eq!(StripeOrder::of(&[1, 0]), None);
        assert_eq!(StripeOrder::of(&[4000, 97]), None);
    }
}
