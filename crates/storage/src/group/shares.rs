//! Which share of new allocation units each container gets, so that every disk is filled in proportion to its size.
//!
//! Without copies, a container is a disk, and its share is that of the disk's size. With copies, a disk belongs to several copy
//! sets, so the shares solve a system: for each disk, the shares of its copy sets add up to the disk's target. *Generalized
//! iterative scaling* finds the solution that uses all copy sets as evenly as possible: each round multiplies the share of a copy
//! set by the geometric mean of target / load of its disks.

use super::stripe_order::WEIGHTS_MAX;

/// A disk may get this much more or less than its target, relative to the target. 3 % are promised.
const TOLERANCE: f64 = 0.01;
/// Deviation at which the scaling ends.
const PRECISION: f64 = 0.001;
const ROUNDS_MAX: usize = 2000;
/// Copy sets that would get less than this share of all data are not added.
const SHARE_MIN: f64 = 0.001;

/// Returns whether equal shares of the containers fill the disks in proportion. `targets` has the copies that each disk should
/// store of one allocation unit, on average, and `containers` the disks of each container.
pub fn suffice_equal(targets: &[f64], containers: &[Vec<usize>]) -> bool {
    deviation(targets, containers, &vec![1.0; containers.len()]) <= TOLERANCE
}

/// Returns the weight of each container. The weights fill the disks in proportion to the targets, as far as the containers
/// permit. A container with weight 0 gets nothing.
pub fn weights(targets: &[f64], containers: &[Vec<usize>]) -> Vec<u16> {
    let shares = shares(targets, containers);
    // The containers may not permit the targets.
    let reachable = loads(targets.len(), containers, &shares);
    let mut best = (f64::INFINITY, Vec::new());
    // A short order spreads files of a few allocation units as well as long ones.
    for sum in 1..=WEIGHTS_MAX - containers.len() {
        let rounded: Vec<f64> = shares.iter().map(|share| (share * sum as f64).round()).collect();
        let deviation = deviation(&reachable, containers, &rounded);
        if deviation < best.0 {
            best = (deviation, rounded);
        }
        if best.0 <= TOLERANCE {
            break;
        }
    }
    best.1.into_iter().map(|weight| weight as u16).collect()
}

/// Returns copy sets with which the targets can be met, whatever the sizes of the failure groups: each disk of a set once as the
/// first.
///
/// The targets of the disks are intervals on a line of the length `copies`, one after the other, those of a failure group together.
/// Points at the distance 1 are in different failure groups, because a failure group stores at most one copy. The points u, u + 1 …
/// with u from 0 to 1 then give each disk its target, with at most as many different sets as there are disks.
pub fn sets_in_proportion(targets: &[f64], failure_groups: &[usize], copies: usize) -> Vec<Vec<usize>> {
    let mut disks: Vec<usize> = (0..targets.len()).filter(|disk| targets[*disk] > 0.0).collect();
    disks.sort_by_key(|disk| (failure_groups[*disk], *disk));
    let ends = disks.iter().scan(0.0, |end, disk| {
        *end += targets[*disk];
        Some(*end)
    });
    let ends: Vec<f64> = ends.collect();
    let mut steps: Vec<f64> = ends.iter().map(|end| end.fract()).chain([0.0, 1.0]).collect();
    steps.sort_by(f64::total_cmp);
    let mut sets = Vec::new();
    for pair in steps.windows(2).filter(|pair| pair[1] - pair[0] >= SHARE_MIN) {
        let middle = (pair[0] + pair[1]) / 2.0;
        let at = |copy: usize| ends.iter().position(|end| *end > middle + copy as f64).map(|at| disks[at]);
        let Some(mut set) = (0..copies).map(at).collect::<Option<Vec<usize>>>() else { continue };
        for _ in 0..copies {
            set.rotate_left(1);
            if !sets.contains(&set) {
                sets.push(set.clone());
            }
        }
    }
    sets
}

fn shares(targets: &[f64], containers: &[Vec<usize>]) -> Vec<f64> {
    let mut shares = vec![1.0 / containers.len() as f64; containers.len()];
    for _ in 0..ROUNDS_MAX {
        if deviation(targets, containers, &shares) <= PRECISION {
            break;
        }
        let loads = loads(targets.len(), containers, &shares);
        for (share, disks) in shares.iter_mut().zip(containers) {
            let factor: f64 = disks.iter().map(|disk| targets[*disk] / loads[*disk]).product();
            *share *= factor.powf(1.0 / disks.len() as f64);
        }
        let sum: f64 = shares.iter().sum();
        shares.iter_mut().for_each(|share| *share /= sum);
    }
    shares
}

/// Returns how much of an allocation unit each disk stores.
fn loads(disks: usize, containers: &[Vec<usize>], shares: &[f64]) -> Vec<f64> {
    let (sum, mut loads) = (shares.iter().sum::<f64>(), vec![0.0; disks]);
    for (share, container) in shares.iter().zip(containers) {
        container.iter().for_each(|disk| loads[*disk] += share / sum);
    }
    loads
}

/// Returns by how much the load of a disk differs from its target at most, relative to the target.
fn deviation(targets: &[f64], containers: &[Vec<usize>], shares: &[f64]) -> f64 {
    let loads = loads(targets.len(), containers, shares);
    if loads.iter().any(|load| load.is_nan()) {
        return f64::INFINITY;
    }
    let of_disk = |(target, load): (&f64, &f64)| match *target > 0.0 {
        true => (load / target - 1.0).abs(),
        false if *load > 0.0 => f64::INFINITY,
        false => 0.0,
    };
    targets.iter().zip(&loads).map(of_disk).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::super::failure_groups;
    use super::super::rebalance::Inventory;
    use super::*;

    /// Returns the copies that each disk gets of an allocation unit, beside the targets.
    fn filled(sizes: &[u64], groups: &[usize], copies: usize) -> (Vec<f64>, Vec<f64>) {
        let names: Vec<String> = groups.iter().map(ToString::to_string).collect();
        let inventory = Inventory { weights: sizes.to_vec(), failure_groups: groups.to_vec(), containers: Vec::new() };
        let targets = inventory.targets(1.0, copies);
        let mut sets: Vec<Vec<usize>> = match copies {
            1 => (0..sizes.len()).map(|disk| vec![disk]).collect(),
            _ => failure_groups::copy_sets(&names, copies)
                .unwrap()
                .into_iter()
                .map(|set| set.into_iter().map(usize::from).collect())
                .collect(),
        };
        if copies > 1 && !suffice_equal(&targets, &sets) {
            sets.extend(sets_in_proportion(&targets, groups, copies));
        }
        for set in &sets {
            let mut own: Vec<usize> = set.iter().map(|disk| groups[*disk]).collect();
            own.sort_unstable();
            own.dedup();
            assert_eq!((own.len(), set.len()), (copies, copies), "{set:?} of {groups:?}");
        }
        let weights = weights(&targets, &sets);
        let sum: usize = weights.iter().map(|weight| usize::from(*weight)).sum();
        assert!((1..=WEIGHTS_MAX).contains(&sum), "{sum}");
        let shares: Vec<f64> = weights.iter().map(|weight| f64::from(*weight)).collect();
        (loads(sizes.len(), &sets, &shares), targets)
    }

    fn check(sizes: &[u64], groups: &[usize], copies: usize) {
        let (loads, targets) = filled(sizes, groups, copies);
        for (disk, (load, target)) in loads.iter().zip(&targets).enumerate() {
            assert!(
                (load / target - 1.0).abs() <= 0.03,
                "disk {disk} of {sizes:?} in {groups:?}, {copies} copies, stores {load} instead of {target}"
            );
        }
    }

    #[test]
    fn disks_of_any_size_are_filled_within_3_percent() {
        let own: Vec<usize> = (0..64).collect();
        let large: Vec<u64> = (0..64).map(|disk| 1000 + 37 * (disk * disk % 29)).collect();
        let cases: [&[u64]; 9] = [
            &[1440, 1440, 671],
            &[2, 1, 1, 1],
            &[3, 1, 1, 1],
            &[100, 1, 1],
            &[7, 5, 3, 11],
            &[960, 480, 480, 1920, 240],
            &[1, 1, 1, 1, 1, 2],
            &[500, 499, 501, 37],
            &large,
        ];
        for sizes in cases {
            for copies in 1..=3 {
                check(sizes, &own[..sizes.len()], copies);
            }
        }
    }

    #[test]
    fn failure_groups_of_any_size_are_filled_within_3_percent() {
        check(&[1, 1, 1], &[0, 0, 1], 2);
        check(&[1, 1, 1, 1, 1], &[0, 0, 1, 1, 2], 2);
        check(&[4, 2, 1, 8, 3], &[0, 0, 1, 1, 2], 2);
        check(&[4, 2, 1, 8, 3], &[0, 0, 1, 1, 2], 3);
        check(&[5, 1, 1, 1, 1, 1, 6], &[0, 1, 1, 2, 2, 3, 3], 3);
    }

    #[test]
    fn disks_of_equal_size_take_equal_turns() {
        for copies in 1..=3 {
            for count in copies..12 {
                let targets = vec![copies as f64 / count as f64; count];
                let names: Vec<String> = (0..count).map(|disk| disk.to_string()).collect();
                let sets = failure_groups::copy_sets(&names, copies).unwrap();
                let sets: Vec<Vec<usize>> =
                    sets.into_iter().map(|set| set.into_iter().map(usize::from).collect()).collect();
                assert!(suffice_equal(&targets, &sets), "{count} disks, {copies} copies");
            }
        }
        assert_eq!(weights(&[0.5, 0.25, 0.25], &[vec![0], vec![1], vec![2]]), [2, 1, 1]);
        assert_eq!(weights(&[0.5, 0.5, 0.0], &[vec![0], vec![1], vec![2]]), [1, 1, 0]);
    }
}
