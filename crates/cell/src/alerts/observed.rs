//! The state of the cell that alerts follow from.

use std::sync::Arc;

use cellar_storage::disk::Disk;
use cellar_storage::{DiskMode, DiskSpace, FlashCacheMode, Volume, WriteBackStats};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Online,
    Syncing,
    Offline,
}

#[derive(Debug, Clone)]
pub struct ObservedDisk {
    pub number: u64,
    pub path: String,
    pub failure_group: String,
    pub mode: Mode,
}

#[derive(Debug, Clone, Default)]
pub struct Observed {
    pub cell: String,
    /// Copies of files by default; 1 without redundancy.
    pub copies: usize,
    pub disks: Vec<ObservedDisk>,
    /// Used part of the space of the fullest disk, without the reserve. None if no disk is measured.
    pub used_percent: Option<f64>,
    /// Ranges that were rewritten from another copy since the start of the cell.
    pub repairs: u64,
    /// Damaged places that the present or the last scrub could not repair.
    pub unrepaired: u64,
    /// None if the cell has no flash cache, or the operator dropped it.
    pub flash_cache_is_on: Option<bool>,
    pub flash_log_is_on: Option<bool>,
    /// Paths of the flash disks on which an operation failed since the start of the cell.
    pub failed_flash_disks: Vec<String>,
    /// None with the flash cache mode WriteThrough.
    pub write_back: Option<WriteBackStats>,
}

impl Observed {
    pub fn of(cell: &str, volume: &Volume) -> Self {
        let status = volume.group_status();
        let disk = |disk: &cellar_storage::GroupDisk| ObservedDisk {
            number: disk.number as u64,
            path: disk.path.display().to_string(),
            failure_group: disk.failure_group.clone().unwrap_or_default(),
            mode: match disk.mode {
                DiskMode::Online => Mode::Online,
                DiskMode::Syncing => Mode::Syncing,
                DiskMode::Offline => Mode::Offline,
            },
        };
        Self {
            cell: cell.to_owned(),
            copies: status.redundancy.copies(),
            disks: status.disks.iter().map(disk).collect(),
            used_percent: used_percent(&volume.disk_spaces()),
            repairs: status.repairs,
            unrepaired: volume.scrub_report().map_or(0, |scrub| scrub.unrepaired),
            flash_cache_is_on: volume.flash_stats().map(|stats| stats.is_on),
            flash_log_is_on: volume.flash_log_stats().map(|stats| stats.is_on),
            failed_flash_disks: failed(volume.flash_disks()),
            write_back: volume
                .write_back_stats()
                .filter(|_| volume.flash_stats().is_some() && volume.flash_cache_mode() == FlashCacheMode::WriteBack),
        }
    }
}

fn failed(disks: &[Arc<dyn Disk>]) -> Vec<String> {
    let has_failed = |disk: &&Arc<dyn Disk>| {
        disk.io_stats()
            .is_some_and(|stats| stats.counts().iter().any(|count| count.no_space_errors + count.io_errors > 0))
    };
    disks.iter().filter(has_failed).map(|disk| disk.path().display().to_string()).collect()
}

fn used_percent(spaces: &[DiskSpace]) -> Option<f64> {
    let used = |space: &DiskSpace| {
        let usable = space.total.saturating_sub(space.reserve);
        (usable > 0).then(|| 100.0 * (1.0 - space.available.min(usable) as f64 / usable as f64))
    };
    spaces.iter().filter_map(used).max_by(f64::total_cmp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fullest_disk_counts_without_its_reserve() {
        let space =
            |total, available| DiskSpace { path: "/d".into(), total, available, reserve: 100, reserve_free: 100 };
        assert_eq!(used_percent(&[space(1100, 900), space(1100, 250), space(0, 0)]), Some(75.0));
        assert_eq!(used_percent(&[]), None);
    }
}
