//! The disk repair time: how long a disk of a group with copies may be offline before it is dropped by force, as Oracle's
//! attribute `disk_repair_time`.
//!
//! The moment at which a disk went offline is durable, so a restart does not reset the time. After a start, every offline disk has
//! at least [`GRACE`] left, because a disk that is present again is brought online in the background.

use super::Volume;
use crate::error::{Error, ErrorKind, Result};
use crate::group::mirror::DiskMode;
use crate::now;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Name of the value in the metadata stores, in seconds.
const NAME: &str = "disk_repair_time";
pub const SECONDS_MAX: u64 = 10 * 366 * 24 * 3600;
const GRACE: Duration = Duration::from_secs(600);
/// How often a drop is tried again that was refused.
const RETRY_DELAY: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub struct RepairTime {
    /// 0: disks are never dropped.
    seconds: AtomicU64,
    opened: Instant,
    /// Disks that wait for their resync after a start: bit n of disk n.
    returning: AtomicU64,
    /// When a drop was refused last, and why.
    refused: Mutex<Option<(Instant, String)>>,
}

impl RepairTime {
    /// Takes the time from the metadata; `default` if it was never set.
    pub(super) fn new(stored: Option<u64>, default: Duration) -> Self {
        let seconds = AtomicU64::new(stored.unwrap_or(default.as_secs()));
        let returning = AtomicU64::new(0);
        Self { seconds, opened: Instant::now(), returning, refused: Mutex::default() }
    }

    pub(super) fn stored_in(values: &BTreeMap<String, u64>) -> Option<u64> {
        values.get(NAME).copied()
    }

    /// Records whether a disk waits for its resync.
    pub(super) fn set_returning(&self, number: usize, is_returning: bool) {
        match is_returning {
            true => self.returning.fetch_or(1 << number, Ordering::AcqRel),
            false => self.returning.fetch_and(!(1 << number), Ordering::AcqRel),
        };
    }

    fn get(&self) -> Duration {
        Duration::from_secs(self.seconds.load(Ordering::Acquire))
    }

    /// Returns how long a disk that is offline since a time in nanoseconds since 1970 has left; None for ever.
    fn left(&self, offline_since: i64) -> Option<Duration> {
        let (limit, offline) = (self.get(), Duration::from_nanos(now().saturating_sub(offline_since).max(0) as u64));
        let grace = GRACE.min(limit).saturating_sub(self.opened.elapsed());
        (!limit.is_zero()).then(|| limit.saturating_sub(offline).max(grace))
    }
}

impl Volume {
    /// Returns how long a disk may be offline before it is dropped by force; zero for ever.
    pub fn disk_repair_time(&self) -> Duration {
        self.repair_time.get()
    }

    /// Sets how long a disk may be offline before it is dropped by force, in whole seconds; zero for ever. Durable on return.
    /// Holds for disks that are offline now, too.
    pub fn set_disk_repair_time(&self, time: Duration) -> Result<()> {
        if self.group.mirror().is_none() {
            let message = "only groups with copies have a disk repair time: without copies no disk can be offline";
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        let seconds = time.as_secs();
        if seconds > SECONDS_MAX {
            let message = format!("a disk repair time of {seconds} seconds is too long; use 0 for no limit");
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        self.commit_group_values([(NAME.to_owned(), Some(seconds))])?;
        self.repair_time.seconds.store(seconds, Ordering::Release);
        *self.repair_time.refused.lock() = None;
        Ok(())
    }

    /// Returns how long an offline disk has left before it is dropped; None if it is not offline, is being dropped already, or
    /// is never dropped.
    pub(super) fn repair_left(&self, number: usize, offline_since: Option<i64>) -> Option<Duration> {
        let mirror = self.group.mirror()?;
        let is_leaving = self.group.is_dropping(number) || self.group.is_dropped(number);
        // A disk that waits for its resync is not lost.
        let is_returning = self.repair_time.returning.load(Ordering::Acquire) >> number & 1 == 1;
        let is_offline = mirror.member(number).mode() == DiskMode::Offline && !is_leaving && !is_returning;
        self.repair_time.left(offline_since.filter(|_| is_offline)?)
    }

    /// Begins to drop disks by force whose repair time is over. A drop that is refused is tried again later.
    pub fn drop_expired_disks(&self) {
        let Some(mirror) = self.group.mirror() else { return };
        if self.repair_time.refused.lock().as_ref().is_some_and(|(at, _)| at.elapsed() < RETRY_DELAY) {
            return;
        }
        let offline_since = mirror.membership().offline_since;
        for (number, since) in offline_since.into_iter().enumerate().take(self.disks().len()) {
            let left = self.repair_left(number, since);
            if left != Some(Duration::ZERO) {
                continue;
            }
            let path = self.disks()[number].path().display();
            let offline = now().saturating_sub(since.unwrap_or_else(now)).max(0) as f64;
            let hours = offline / 3600e9;
            let mut refused = self.repair_time.refused.lock();
            match self.drop_offline_disk(number) {
                Ok(()) => {
                    log::error!("cell disk {path} was offline for {hours:.2} hours and is dropped by force");
                    *refused = None;
                }
                Err(error) => {
                    let reason = error.to_string();
                    if refused.as_ref().is_none_or(|(_, before)| *before != reason) {
                        log::error!(
                            "cell disk {path} was offline for {hours:.2} hours, but cannot be dropped: {reason}"
                        );
                    }
                    *refused = Some((Instant::now(), reason));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_repair_time_counts_since_the_disk_is_offline_and_leaves_time_after_a_start() {
        let hours = |hours: u64| Duration::from_secs(hours * 3600);
        let since = |time: RepairTime, hours: u64| time.left(now() - (hours * 3600 * 1_000_000_000) as i64);
        let time = |seconds| RepairTime::new(Some(seconds), hours(12));
        let left = since(RepairTime::new(None, hours(12)), 5).unwrap();
        assert!(left <= hours(7) && left > hours(7) - Duration::from_secs(60), "{left:?}");
        assert_eq!(since(time(0), 100), None);
        let after_start = since(time(3600), 100).unwrap();
        assert!(after_start <= GRACE && after_start > GRACE / 2, "{after_start:?}");
        let later = RepairTime { opened: Instant::now() - 2 * GRACE, ..time(3600) };
        assert_eq!(since(later, 100), Some(Duration::ZERO));
        assert_eq!(since(time(1), 0).map(|left| left <= Duration::from_secs(1)), Some(true));
    }
}
