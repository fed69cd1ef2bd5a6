//! What new files are striped over: stripes on disks of different size get different weights, and full disks nothing.

use super::rebalance::Inventory;
use super::stripe_order::StripeOrder;
use super::{Group, StripeLayout, failure_groups, shares};
use crate::error::Result;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A size that changes by less than one part in this many is not a change.
const SIZE_STEPS: u64 = 100;

/// What new files are striped over.
#[derive(Debug)]
pub struct Spread {
    /// Numbers of disks or, with copies, of copy sets.
    places: Arc<[u16]>,
    order: StripeOrder,
}

/// What the last measurements of the disks have found.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct SpaceFacts {
    /// By disk number: bytes of the disk; 0 if the size is not known.
    sizes: Vec<u64>,
    /// Disks that have no space for another allocation unit: bit n of disk n.
    full: u64,
}

impl Group {
    /// Takes the sizes of the disks in bytes, 0 for a disk that could not be measured, and which disks are full: bit n of disk n.
    pub fn note_space(&self, measured: &[u64], full: u64) {
        let sizes = {
            let known = self.space.read();
            let of_disk = |(disk, size): (usize, &u64)| {
                let known = known.sizes.get(disk).copied().unwrap_or(0);
                if known.abs_diff(*size) <= known / SIZE_STEPS || *size == 0 { known } else { *size }
            };
            measured.iter().enumerate().map(of_disk).collect()
        };
        let found = SpaceFacts { sizes, full };
        if *self.space.read() != found {
            *self.space.write() = found;
            self.update_spread();
        }
    }

    pub(super) fn update_spread(&self) {
        // Of two updates, the later one sees the later state. `spread` itself stays free: threads that create files need it.
        let _no_other = self.spread_changing.lock();
        let of_group = self.redundancy.copies();
        // Copy sets of a size that no file shall have any more may have files.
        let sizes: BTreeSet<usize> =
            (0..self.stripes().len() as u16).map(|stripe| self.disks_of(stripe).len()).chain([of_group]).collect();
        let spread = sizes.into_iter().map(|copies| (copies, self.find_spread(copies)));
        let mut spread: BTreeMap<usize, Spread> = spread.collect();
        spread.retain(|copies, spread| *copies == of_group || !spread.places.is_empty());
        *self.spread.write() = spread;
    }

    /// Returns the stripes over which new files with `copies` copies are striped; if there are none, the stripes of other files.
    pub fn spread(&self, copies: usize) -> Arc<[u16]> {
        self.with_spread(copies, |spread| spread.places.clone())
    }

    fn with_spread<T>(&self, copies: usize, work: impl FnOnce(&Spread) -> T) -> T {
        let spread = self.spread.read();
        work(spread.get(&copies).or_else(|| spread.get(&self.redundancy.copies())).expect("set with the group"))
    }

    /// Returns the layout of a new file with `copies` copies. The inode number selects the disk of its first allocation unit.
    pub fn new_layout(&self, ino: u64, copies: usize) -> StripeLayout {
        self.with_spread(copies, |spread| {
            let (disks, order) = (spread.places.to_vec(), spread.order.clone());
            let start = (ino % order.period(disks.len()) as u64) as u16;
            StripeLayout { au_size: self.au_size, start, disks, order }
        })
    }

    /// Returns the layout of a new file that is stored on one disk. The inode number selects the disk.
    pub fn new_unstriped_layout(&self, ino: u64, copies: usize) -> StripeLayout {
        self.with_spread(copies, |Spread { places, order }| {
            let disks = vec![places[order.index_at(ino, places.len())]];
            StripeLayout { au_size: self.au_size, start: 0, disks, order: StripeOrder::Equal }
        })
    }

    /// Returns by how many bytes files with `copies` copies may grow, if each disk has `available` bytes: a failure group stores one
    /// copy of them at most. With too few failure groups left, new data have fewer copies until disks return.
    pub fn usable_bytes(&self, available: &[u64], copies: usize) -> u64 {
        let mut of_groups: BTreeMap<usize, u64> = BTreeMap::new();
        let avoided = self.avoided();
        for (disk, group) in self.failure_group_numbers().into_iter().enumerate() {
            if avoided >> disk & 1 == 0 && self.disks()[disk].is_accessible() {
                *of_groups.entry(group).or_default() += available.get(disk).unwrap_or(&0);
            }
        }
        let copies = copies.min(of_groups.len()).max(1) as u64;
        let fits = |bytes: u64| of_groups.values().map(|group| (*group).min(bytes)).sum::<u64>() >= copies * bytes;
        let (mut fitting, mut beyond) = (0, of_groups.values().sum::<u64>() / copies + 1);
        while fitting + 1 < beyond {
            let middle = fitting + (beyond - fitting) / 2;
            if fits(middle) { fitting = middle } else { beyond = middle }
        }
        fitting
    }

    /// Returns the disks that are full: bit n of disk n.
    pub fn full(&self) -> u64 {
        self.space.read().full
    }

    /// Returns the disks that were not dropped: bit n of disk n.
    pub fn present(&self) -> u64 {
        u64::MAX >> (u64::BITS as usize - self.disks().len()) & !self.disks.dropped.load(Ordering::Acquire)
    }

    fn find_spread(&self, copies: usize) -> Spread {
        let (avoided, full) = (self.avoided(), self.space.read().full);
        // While all disks are full, a file is created like at other times: its first write fails.
        let found = [avoided | full, avoided].map(|avoided| self.weighted(avoided, copies));
        let dropped = self.disks.dropped.load(Ordering::Acquire);
        let usable = found.into_iter().find(|spread| !spread.places.is_empty());
        usable.unwrap_or_else(|| Spread {
            places: self.stripes_without(dropped, copies).into(),
            order: StripeOrder::Equal,
        })
    }

    /// Returns the stripes without certain disks, and their order, in which the disks are filled in proportion.
    fn weighted(&self, avoided: u64, copies: usize) -> Spread {
        let (ring, all) = (self.ring(avoided, copies), self.stripes_without(avoided, copies));
        let in_use = all.iter().flat_map(|stripe| self.disks_of(*stripe)).fold(0, |disks, disk| disks | 1_u64 << disk);
        let targets = self.targets(!in_use, copies);
        let disks_of =
            |stripes: &[u16]| -> Vec<Vec<usize>> { stripes.iter().map(|stripe| self.disks_of(*stripe)).collect() };
        let equal = ring.unwrap_or_else(|| all.clone());
        if targets.is_empty() || equal.is_empty() || shares::suffice_equal(&targets, &disks_of(&equal)) {
            return Spread { places: equal.into(), order: StripeOrder::Equal };
        }
        let weights = shares::weights(&targets, &disks_of(&all));
        let (places, weights): (Vec<u16>, Vec<u16>) =
            all.into_iter().zip(weights).filter(|(_, weight)| *weight > 0).unzip();
        let order = StripeOrder::of(&weights).unwrap_or_default();
        Spread { places: places.into(), order }
    }

    /// Returns how many copies of an allocation unit each disk should store on average, without the disks in `avoided`: bit n of disk
    /// n. Nothing if no size is known.
    fn targets(&self, avoided: u64, copies: usize) -> Vec<f64> {
        let space = self.space.read();
        let used: Vec<usize> = (0..self.disks().len()).filter(|disk| avoided >> disk & 1 == 0).collect();
        let size = |disk: &usize| space.sizes.get(*disk).copied().filter(|size| *size > 0);
        let known: Vec<u64> = used.iter().filter_map(size).collect();
        let Some(sum) = known.iter().copied().reduce(u64::saturating_add) else { return Vec::new() };
        let mut weights = vec![0; self.disks().len()];
        for disk in used {
            // A disk that is offline has the size of the others until it was measured.
            weights[disk] = size(&disk).unwrap_or(sum / known.len() as u64);
        }
        let failure_groups = self.failure_group_numbers();
        Inventory { weights, failure_groups, containers: Vec::new() }.targets(1.0, copies)
    }

    /// Returns the number of the failure group of each disk.
    pub fn failure_group_numbers(&self) -> Vec<usize> {
        let count = self.disks().len();
        let Some(mirror) = &self.mirror else { return (0..count).collect() };
        let names: Vec<&str> = (0..count).map(|disk| mirror.failure_group(disk)).collect();
        names.iter().map(|name| names.iter().position(|other| other == name).unwrap_or(0)).collect()
    }

    /// Returns copy sets that disks of different size need beside those of the ring.
    pub(super) fn sets_for_sizes(&self, avoided: u64, copies: usize) -> Vec<Vec<u16>> {
        let targets = self.targets(avoided, copies);
        let (Ok(ring), false) = (self.wanted_sets(avoided, copies), targets.is_empty()) else { return Vec::new() };
        let ring: Vec<Vec<usize>> = ring.into_iter().map(|set| set.into_iter().map(usize::from).collect()).collect();
        if shares::suffice_equal(&targets, &ring) {
            return Vec::new();
        }
        let sets = shares::sets_in_proportion(&targets, &self.failure_group_numbers(), copies).into_iter();
        sets.map(|set| set.into_iter().map(|disk| disk as u16).collect()).collect()
    }

    /// Returns the copy sets of the ring without the disks in `avoided`. Unlike that of the superblock, does not wait for a
    /// change of the disks, which may wait for a disk that hangs.
    fn wanted_sets(&self, avoided: u64, copies: usize) -> Result<Vec<Vec<u16>>> {
        let of_disk =
            |disk| self.mirror.as_ref().map(|mirror| mirror.failure_group(disk).to_owned()).unwrap_or_default();
        let names: Vec<String> = (0..self.disks().len()).map(of_disk).collect();
        failure_groups::copy_sets_without(avoided, &names, copies)
    }

    /// Returns the stripes on the copy sets of the ring, if the group has them.
    fn ring(&self, avoided: u64, copies: usize) -> Option<Vec<u16>> {
        let mirror = self.mirror.as_ref()?;
        let wanted = self.wanted_sets(avoided, copies).ok()?;
        let find = |set: &Vec<u16>| (0..self.stripes().len() as u16).find(|stripe| mirror.set(*stripe) == set);
        wanted.iter().map(find).collect()
    }

    fn stripes_without(&self, avoided: u64, copies: usize) -> Vec<u16> {
        let stays = |stripe: &u16| {
            let disks = self.disks_of(*stripe);
            disks.len() == copies && disks.into_iter().all(|disk| avoided >> disk & 1 == 0)
        };
        (0..self.stripes().len() as u16).filter(stays).collect()
    }
}
