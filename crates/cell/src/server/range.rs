//! One block range of a scan, shared by as many threads as the scan has, once it shows to be worth it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use cellar_format::bytes::Corrupt;
use cellar_format::postgres::TransactionId;
use cellar_format::stats::ScanStats;
use cellar_format::units::REGION_BLOCKS;
use cellar_format::wire::{BlockRange, FrameHeader, Kind, RangeDone, XidQuery, XidState, XidStates};
use parking_lot::Mutex;

use super::session::{SessionError, unexpected};
use super::stream::{FrameStream, StreamError};
use crate::smart_scan::{Helpers, Outlet, SmartScan};

/// Ranges that a backend may ask for ahead.
const RANGES_AHEAD_MAX: usize = 1024;
/// Blocks that a thread takes at a time, at most, and whole compression units at least.
const PART_BLOCKS_MAX: u32 = 1024;
/// Parts for each thread where a range is smaller than that, so that all end at about the same time.
const PARTS: u32 = 8;
/// What takes one thread no longer than this is not worth another one.
const ALONE: Duration = Duration::from_millis(2);
/// Last frames that wait for those of the other threads; the backend is woken once for all of them.
const LAST_BYTES_MAX: usize = 64 << 10;

/// The connection, where further ranges may arrive while an answer is awaited.
pub struct Backend<'a> {
    pub stream: &'a mut FrameStream,
    pub asked: &'a mut VecDeque<BlockRange>,
    pub count: &'a (dyn Fn(&ScanStats) + Sync),
}

/// Scans the range with at most one thread for each of the scans, of which there is at least one, and tells the backend
/// when it is done.
pub fn scan(
    scans: &mut [SmartScan],
    range: BlockRange,
    helpers: &Helpers,
    backend: Backend<'_>,
) -> Result<(), SessionError> {
    let (own, others) = scans.split_first_mut().expect("there is one at least");
    let parts = match others.len() {
        0 => Parts::new(range, u32::MAX),
        others => Parts::for_threads(range, 1 + others, own.unit_blocks(range.first)),
    };
    let count = backend.count;
    let team = Team { parts: &parts, backend: Mutex::new(backend), count };
    let last = std::thread::scope(|scope| {
        let team = &team;
        // Where there is no further thread to be had, the others take its parts.
        let name = std::thread::current().name().unwrap_or("scan").to_owned();
        let call = |scan| {
            std::thread::Builder::new()
                .name(name.clone())
                .spawn_scoped(scope, move || team.work(scan, &mut { team.parts }))
        };
        let mut others = Some(others.iter_mut().take(parts.number() - 1)).filter(|others| others.len() > 0);
        let mut taken_helpers = 0;
        let mut called = Vec::new();
        let (started, mut taken) = (Instant::now(), 0);
        let mut own_parts = std::iter::from_fn(|| {
            let rest = (parts.number() as u32).saturating_sub(taken);
            if taken > 0
                && started.elapsed() * rest >= ALONE * taken
                && let Some(others) = others.take()
            {
                taken_helpers = helpers.take(others.len());
                called.extend(others.take(taken_helpers).filter_map(|scan| call(scan).ok()));
            }
            taken += 1;
            (&parts).next()
        });
        let mut last = team.work(own, &mut own_parts);
        let joined: Vec<_> = called.into_iter().map(|other| other.join()).collect();
        helpers.give_back(taken_helpers);
        for other in joined {
            let others_last = other.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            last = last.and_then(|mut last| {
                last.extend(others_last?);
                Ok(last)
            });
        }
        last
    });
    let mut done = Vec::new();
    FrameHeader::frame(&mut done, Kind::RangeDone, |out| RangeDone { stats: ScanStats::default() }.encode(out));
    Ok(team.backend.into_inner().stream.send_all(&[&last?, &done])?)
}

/// What the threads of a range have in common.
struct Team<'a, 'b> {
    parts: &'a Parts,
    backend: Mutex<Backend<'b>>,
    count: &'b (dyn Fn(&ScanStats) + Sync),
}

impl Team<'_, '_> {
    /// Scans parts until there are no more; returns the last frames, which wait for those of the other threads.
    fn work(&self, scan: &mut SmartScan, parts: &mut dyn Iterator<Item = BlockRange>) -> Result<Vec<u8>, SessionError> {
        let failing = GiveUp(self.parts);
        let ended = scan.range(parts, &mut { self });
        let (stats, frames) = scan.finish();
        (self.count)(&stats);
        ended?;
        let mut last = progress(&stats);
        if frames.len() > LAST_BYTES_MAX {
            self.backend.lock().stream.send_all(&[&last, frames])?;
            last.clear();
        } else {
            last.extend_from_slice(frames);
        }
        std::mem::forget(failing);
        Ok(last)
    }
}

/// Keeps the other threads from taking parts when one fails, however it does.
struct GiveUp<'a>(&'a Parts);

impl Drop for GiveUp<'_> {
    fn drop(&mut self) {
        self.0.given_up.store(true, Ordering::Relaxed);
    }
}

/// The parts of a range that no thread has taken.
struct Parts {
    range: BlockRange,
    part_blocks: u32,
    taken: AtomicU32,
    given_up: AtomicBool,
}

impl Parts {
    fn new(range: BlockRange, part_blocks: u32) -> Self {
        Self { range, part_blocks, taken: AtomicU32::new(0), given_up: AtomicBool::new(false) }
    }

    /// Parts begin with regions, and mostly with allocation units, which have `unit_blocks`.
    fn for_threads(range: BlockRange, threads: usize, unit_blocks: u32) -> Self {
        let share = range.end.saturating_sub(range.first) / (threads as u32).saturating_mul(PARTS);
        let least = unit_blocks.max(REGION_BLOCKS);
        Self::new(range, 1 << share.clamp(least, least.max(PART_BLOCKS_MAX)).ilog2())
    }

    /// At least one, also of an empty range.
    fn number(&self) -> usize {
        let first = self.range.first / self.part_blocks;
        (self.range.end.div_ceil(self.part_blocks).saturating_sub(first) as usize).max(1)
    }
}

impl Iterator for &Parts {
    type Item = BlockRange;

    fn next(&mut self) -> Option<BlockRange> {
        let next = self.taken.fetch_add(1, Ordering::Relaxed) as usize;
        if next >= self.number() || self.given_up.load(Ordering::Relaxed) {
            return None;
        }
        let start = (self.range.first / self.part_blocks + next as u32) * self.part_blocks;
        let end = start.saturating_add(self.part_blocks).min(self.range.end);
        Some(BlockRange { first: start.max(self.range.first), end })
    }
}

/// The outlet of one thread.
impl Outlet for &Team<'_, '_> {
    type Error = SessionError;

    fn frames(&mut self, counted: &ScanStats, frames: &[u8]) -> Result<(), SessionError> {
        (self.count)(counted);
        Ok(self.backend.lock().stream.send_all(&[&progress(counted), frames])?)
    }

    fn is_wanted(&mut self) -> Result<(), SessionError> {
        match self.backend.try_lock() {
            Some(backend) if backend.stream.is_closed() => Err(StreamError::Closed.into()),
            _ => Ok(()),
        }
    }

    fn ask(&mut self, xids: &[TransactionId]) -> Result<Vec<XidState>, SessionError> {
        let mut backend = self.backend.lock();
        let backend = &mut *backend;
        backend.stream.send(Kind::XidQuery, |out| XidQuery { xids: xids.to_vec() }.encode(out))?;
        loop {
            match backend.stream.receive()? {
                (Kind::XidStates, payload) => {
                    let states = XidStates::decode(payload)?.states;
                    if states.len() != xids.len() {
                        let found = format!("{} for {} ids", states.len(), xids.len());
                        return Err(Corrupt::new("transaction states", 0, found).into());
                    }
                    return Ok(states);
                }
                (Kind::ScanRange, payload) if backend.asked.len() < RANGES_AHEAD_MAX => {
                    let range = BlockRange::decode(payload)?;
                    backend.asked.push_back(range);
                }
                (kind, _) => return Err(unexpected(kind)),
            }
        }
    }
}

/// What was counted for the frames that follow.
fn progress(counted: &ScanStats) -> Vec<u8> {
    let mut frame = Vec::new();
    FrameHeader::frame(&mut frame, Kind::RangeProgress, |out| RangeDone { stats: *counted }.encode(out));
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(first: u32, end: u32, part_blocks: u32) -> Vec<(u32, u32)> {
        let parts = Parts::new(BlockRange { first, end }, part_blocks);
        let taken: Vec<_> = (&parts).map(|part| (part.first, part.end)).collect();
        assert_eq!(parts.number(), taken.len());
        taken
    }

    #[test]
    fn parts_make_up_the_range_and_begin_at_multiples() {
        assert_eq!(parts(100, 2500, 1024), [(100, 1024), (1024, 2048), (2048, 2500)]);
        assert_eq!(parts(0, 2048, 1024), [(0, 1024), (1024, 2048)]);
        assert_eq!(parts(5, 9, u32::MAX), [(5, 9)]);
        assert_eq!(parts(u32::MAX - 5, u32::MAX, 1024), [(u32::MAX - 5, u32::MAX)]);
        assert_eq!(parts(7, 7, 1024), [(7, 7)]);
    }

    #[test]
    fn nothing_is_taken_once_a_thread_has_failed() {
        let parts = Parts::new(BlockRange { first: 0, end: 9999 }, 1024);
        assert!((&parts).next().is_some());
        drop(GiveUp(&parts));
        assert!((&parts).next().is_none());
    }
}
