//! Which allocation units move, so that every disk is used in proportion to its size.

use super::placement::FileKey;
use std::collections::BTreeMap;
use std::ops::Range;

/// A gain below this, times the square of the bytes moved, is an error of rounding: such moves would never end.
const NEGLIGIBLE: f64 = 1e-9;
/// Maximum number of passes over all containers.
const PASSES: usize = 16;

/// The disks and containers of a group.
#[derive(Debug, Clone, Default)]
pub struct Inventory {
    /// Of each disk: its size; 0 if it is to be emptied.
    pub weights: Vec<u64>,
    /// Of each disk: the number of its failure group, which stores at most one copy of an allocation unit.
    pub failure_groups: Vec<usize>,
    /// The disks of each container.
    pub containers: Vec<Vec<usize>>,
}

/// An allocation unit on a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    pub key: FileKey,
    pub regions: Range<u32>,
    pub container: u16,
    /// Bytes allocated on each disk of the container.
    pub bytes: u64,
}

impl Inventory {
    /// Returns whether a container stays in use.
    fn is_live(&self, container: usize) -> bool {
        let disks = &self.containers[container];
        !disks.is_empty() && disks.iter().all(|disk| self.weights[*disk] > 0)
    }

    /// Returns the bytes that each disk should store of `copies` copies of `total` bytes: in proportion to the sizes, but no
    /// failure group more than one copy.
    pub fn targets(&self, total: f64, copies: usize) -> Vec<f64> {
        let mut open: BTreeMap<usize, f64> = BTreeMap::new();
        for (group, weight) in self.failure_groups.iter().zip(&self.weights).filter(|(_, weight)| **weight > 0) {
            *open.entry(*group).or_default() += *weight as f64;
        }
        let (weights, mut shares, mut left) = (open.clone(), BTreeMap::new(), copies as f64 * total);
        // Groups that are too large for their share get one copy of everything; the others share the rest.
        while !open.is_empty() {
            let sum: f64 = open.values().sum();
            let share = |weight: f64| left * weight / sum;
            let full: Vec<usize> =
                open.iter().filter(|(_, weight)| share(**weight) > total).map(|(group, _)| *group).collect();
            if full.is_empty() {
                shares.extend(open.iter().map(|(group, weight)| (*group, share(*weight))));
                break;
            }
            for group in full {
                open.remove(&group);
                shares.insert(group, total);
                left -= total;
            }
        }
        let of_disk = |(group, weight): (&usize, &u64)| match *weight {
            0 => 0.0,
            weight => shares.get(group).copied().unwrap_or(0.0) * weight as f64 / weights[group],
        };
        self.failure_groups.iter().zip(&self.weights).map(of_disk).collect()
    }
}

/// Returns the allocation units to move, each with its new container, in ascending order. A move brings disks closer to their
/// targets, and takes from a disk that is beyond its target. The new container has as many disks as the former one.
pub fn plan(inventory: &Inventory, chunks: &[Chunk]) -> Vec<(usize, u16)> {
    let live: Vec<usize> = (0..inventory.containers.len()).filter(|number| inventory.is_live(*number)).collect();
    // By number of copies: bytes of all allocation units.
    let mut totals: BTreeMap<usize, f64> = BTreeMap::new();
    // By disk: bytes beyond the target.
    let mut surplus = vec![0.0; inventory.weights.len()];
    for chunk in chunks {
        let disks = &inventory.containers[usize::from(chunk.container)];
        disks.iter().for_each(|disk| surplus[*disk] += chunk.bytes as f64);
        *totals.entry(disks.len()).or_default() += chunk.bytes as f64;
    }
    for (copies, total) in totals {
        let targets = inventory.targets(total, copies);
        surplus.iter_mut().zip(targets).for_each(|(surplus, target)| *surplus -= target);
    }
    let mut on: Vec<Vec<usize>> = vec![Vec::new(); inventory.containers.len()];
    for (number, chunk) in chunks.iter().enumerate() {
        on[usize::from(chunk.container)].push(number);
    }
    let mut moves = Vec::new();
    // Copy sets have disks in common, so a pass over one of them changes what the others must move.
    for _ in 0..PASSES {
        let before = moves.len();
        for (source, own) in on.iter_mut().enumerate() {
            let (disks, is_live) = (&inventory.containers[source], inventory.is_live(source));
            let bytes: f64 = own.iter().map(|number| chunks[*number].bytes as f64).sum();
            let beyond = disks.iter().map(|disk| surplus[*disk]).fold(0.0, f64::max);
            // Allocation units that move are spread over the container's files, so that files stay spread, too.
            let (share, mut due) = ((beyond / bytes.max(1.0)).min(1.0), 0.0);
            own.retain(|number| {
                let bytes = chunks[*number].bytes as f64;
                due += share * bytes;
                if is_live && due < bytes / 2.0 {
                    return true;
                }
                let gain = |target: &usize| gain(&surplus, (disks, &inventory.containers[*target]), bytes);
                let is_as_large = |target: &usize| inventory.containers[*target].len() == disks.len();
                let others = live.iter().filter(|target| **target != source && is_as_large(target));
                let Some(target) = others.min_by(|one, other| gain(one).total_cmp(&gain(other))) else { return true };
                let new = &inventory.containers[*target];
                let relieves =
                    disks.iter().filter(|disk| !new.contains(disk)).map(|disk| surplus[*disk]).sum::<f64>() > 0.0;
                if is_live && (gain(target) >= -NEGLIGIBLE * bytes * bytes || !relieves) {
                    return true;
                }
                due -= bytes;
                disks.iter().for_each(|disk| surplus[*disk] -= bytes);
                new.iter().for_each(|disk| surplus[*disk] += bytes);
                moves.push((*number, *target as u16));
                false
            });
        }
        if moves.len() == before {
            break;
        }
    }
    moves.sort_unstable();
    moves
}

/// Returns by how much a move changes the sum of the squares of all disks' distances from their targets.
fn gain(surplus: &[f64], (from, to): (&[usize], &[usize]), bytes: f64) -> f64 {
    let change = |disk: &usize, by: f64| 2.0 * surplus[*disk] * by + by * by;
    let less: f64 = from.iter().filter(|disk| !to.contains(disk)).map(|disk| change(disk, -bytes)).sum();
    let more: f64 = to.iter().filter(|disk| !from.contains(disk)).map(|disk| change(disk, bytes)).sum();
    less + more
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Stream;

    const AU: u64 = 4 << 20;

    fn chunks(on: &[usize]) -> Vec<Chunk> {
        let chunk = |number: usize, container: usize| {
            let key = FileKey { ino: 16 + number as u64 / 50, stripe: container as u16, stream: Stream::Data };
            let region = number as u32 * 4;
            Chunk { key, regions: region..region + 4, container: container as u16, bytes: AU }
        };
        let of = |(container, count): (usize, &usize)| (0..*count).map(move |number| chunk(number, container));
        on.iter().enumerate().flat_map(of).collect()
    }

    fn single(weights: &[u64]) -> Inventory {
        let containers = (0..weights.len()).map(|disk| vec![disk]).collect();
        Inventory { weights: weights.to_vec(), failure_groups: (0..weights.len()).collect(), containers }
    }

    /// Returns the allocation units on each disk after the plan, and how many move.
    fn after(inventory: &Inventory, on: &[usize]) -> (Vec<usize>, usize) {
        let chunks = chunks(on);
        let moves = plan(inventory, &chunks);
        let mut containers = on.to_vec();
        for (number, target) in &moves {
            containers[usize::from(chunks[*number].container)] -= 1;
            containers[usize::from(*target)] += 1;
        }
        let mut disks = vec![0; inventory.weights.len()];
        for (count, set) in containers.iter().zip(&inventory.containers) {
            set.iter().for_each(|disk| disks[*disk] += count);
        }
        (disks, moves.len())
    }

    #[test]
    fn disks_are_used_in_proportion_and_no_more_moves_than_must() {
        assert_eq!(after(&single(&[1, 1, 1]), &[300, 300, 0]), (vec![200, 200, 200], 200));
        assert_eq!(after(&single(&[1, 1, 2]), &[400, 400, 0]), (vec![200, 200, 400], 400));
        assert_eq!(after(&single(&[3, 1]), &[500, 500]), (vec![750, 250], 250));
        assert_eq!(after(&single(&[1, 1, 0]), &[100, 100, 100]), (vec![150, 150, 0], 100));
        assert_eq!(after(&single(&[1, 1]), &[101, 100]).1, 0, "even use is kept");
        for count in 0..200 {
            assert_eq!(after(&single(&[1, 1, 1]), &[count + 1, count, count]).1, 0, "{count}: even use is kept");
            assert_eq!(after(&single(&[1; 7]), &[count, count, count, count, count, count, count + 1]).1, 0, "{count}");
        }
        let (on, moved) = after(&single(&[7, 5, 3, 11]), &[1000, 0, 777, 13]);
        let (total, least) = (1790.0, 1000.0 - 1790.0 * 7.0 / 26.0 + 777.0 - 1790.0 * 3.0 / 26.0);
        for (count, weight) in on.iter().zip([7.0, 5.0, 3.0, 11.0]) {
            let expected = total * weight / 26.0;
            assert!((*count as f64 - expected).abs() <= expected * 0.03, "{on:?}");
        }
        assert!(moved as f64 <= least * 1.1, "{moved} moves, {least} are needed");
        assert_eq!(after(&single(&[0, 0]), &[5, 5]).1, 0);
    }

    #[test]
    fn copies_move_to_a_new_disk_and_leave_an_old_one() {
        let containers = vec![vec![0, 1], vec![1, 0], vec![2, 0], vec![2, 1]];
        let added = Inventory { weights: vec![1; 3], failure_groups: vec![0, 1, 2], containers };
        let (on, moved) = after(&added, &[150, 150, 0, 0]);
        assert!(on.iter().all(|count| (194..=206).contains(count)), "{on:?}");
        assert!(moved <= 210, "{moved}");
        let dropped = Inventory { weights: vec![0, 1, 1], ..added };
        assert_eq!(after(&dropped, &[50, 50, 100, 100]), (vec![0, 300, 300], 200));
    }

    #[test]
    fn a_failure_group_stores_one_copy_at_most() {
        let inventory = Inventory {
            weights: vec![1, 1, 8],
            failure_groups: vec![0, 0, 1],
            containers: vec![vec![0, 2], vec![1, 2]],
        };
        assert_eq!(inventory.targets(100.0, 2), [50.0, 50.0, 100.0]);
        assert_eq!(after(&inventory, &[80, 20]), (vec![50, 50, 100], 30));
    }

    #[test]
    fn allocation_units_with_two_and_with_three_copies_share_the_disks() {
        let containers = vec![vec![0, 1], vec![1, 2], vec![2, 0], vec![3, 0], vec![0, 1, 2], vec![1, 2, 3]];
        let inventory = Inventory { weights: vec![1; 4], failure_groups: vec![0, 1, 2, 3], containers };
        let on = [100, 100, 100, 0, 90, 0];
        let chunks = chunks(&on);
        let moves = plan(&inventory, &chunks);
        assert!(!moves.is_empty());
        for (number, target) in &moves {
            let sizes = [chunks[*number].container, *target].map(|set| inventory.containers[usize::from(set)].len());
            assert_eq!(sizes[0], sizes[1]);
        }
        let (disks, _) = after(&inventory, &on);
        let most = disks.iter().max().unwrap() - disks.iter().min().unwrap();
        assert!(most <= 4, "{disks:?}");
        let emptied = Inventory { weights: vec![0, 1, 1, 1], ..inventory };
        let (disks, _) = after(&emptied, &[40, 0, 0, 0, 30, 0]);
        assert_eq!((disks[0], disks.iter().sum::<usize>()), (0, 40 * 2 + 30 * 3));
    }

    #[test]
    fn files_stay_spread() {
        let chunks = chunks(&[300, 0]);
        let moves = plan(&single(&[1, 1]), &chunks);
        for file in 0..6 {
            let of_file = moves.iter().filter(|(number, _)| chunks[*number].key.ino == 16 + file).count();
            assert!((24..=26).contains(&of_file), "{of_file} of 50 allocation units of a file move");
        }
    }
}
