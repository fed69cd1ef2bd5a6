//! One block range of a scan, shared by as many threads as the scan has.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use cellar_format::bytes::Corrupt;
use cellar_format::postgres::TransactionId;
use cellar_format::stats::ScanStats;
use cellar_format::units::REGION_BLOCKS;
use cellar_format::wire::{BlockRange, FrameHeader, Kind, RangeDone, XidQuery, XidState, XidStates};
use parking_lot::Mutex;

use super::session::{SessionError, unexpected};
use super::stream::{FrameStream, StreamError};
use crate::smart_scan::{Outlet, SmartScan};

/// Ranges that a backend may ask for ahead.
const RANGES_AHEAD_MAX: usize = 1024;
/// Blocks that a thread takes at a time, at most: two compression units.
const PART_BLOCKS_MAX: u32 = 1024;
/// Parts for each thread where a range is smaller than that, so that all end at about the same time.
const PARTS: u32 = 8;
/// Last frames that wait for those of the other threads; the backend is woken once for all of them.
const LAST_BYTES_MAX: usize = 64 << 10;

/// The connection, where further ranges may arrive while an answer is awaited.
pub struct Backend<'a> {
    pub stream: &'a mut FrameStream,
    pub asked: &'a mut VecDeque<BlockRange>,
    pub count: &'a (dyn Fn(&ScanStats) + Sync),
}

/// Scans the range with one thread for each of the scans, of which there is at least one, and tells the backend when
/// it is done.
pub fn scan(scans: &mut [SmartScan], range: BlockRange, backend: Backend<'_>) -> Result<(), SessionError> {
    let parts = Parts::for_threads(range, scans.len());
    let count = backend.count;
    let backend = Mutex::new(backend);
    let work = |scan: &mut SmartScan| -> Result<Vec<u8>, SessionError> {
        let ended = scan.range(&parts, &mut Member { backend: &backend, count });
        let (stats, frames) = scan.finish();
        count(&stats);
        if ended.is_err() {
            parts.give_up();
        }
        ended?;
        let mut last = progress(&stats);
        if frames.len() > LAST_BYTES_MAX {
            backend.lock().stream.send_all(&[&last, frames])?;
            last.clear();
        } else {
            last.extend_from_slice(frames);
        }
        Ok(last)
    };
    let threads = scans.len().min(parts.number());
    let last = match &mut scans[..threads] {
        [scan] => work(scan),
        scans => std::thread::scope(|scope| {
            let work = &work;
            let (own, others) = scans.split_first_mut().expect("there are two at least");
            // Where there is no further thread to be had, the others take its parts.
            let name = std::thread::current().name().unwrap_or("scan").to_owned();
            let spawn = |scan| std::thread::Builder::new().name(name.clone()).spawn_scoped(scope, move || work(scan));
            let others: Vec<_> = others.iter_mut().filter_map(|scan| spawn(scan).ok()).collect();
            let mut last = work(own);
            for other in others {
                let others_last = other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                last = last.and_then(|mut last| {
                    last.extend(others_last?);
                    Ok(last)
                });
            }
            last
        }),
    };
    let mut done = Vec::new();
    FrameHeader::frame(&mut done, Kind::RangeDone, |out| RangeDone { stats: ScanStats::default() }.encode(out));
    Ok(backend.into_inner().stream.send_all(&[&last?, &done])?)
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

    /// Parts begin with regions.
    fn for_threads(range: BlockRange, threads: usize) -> Self {
        if threads == 1 {
            return Self::new(range, u32::MAX);
        }
        let share = range.end.saturating_sub(range.first) / (threads as u32).saturating_mul(PARTS);
        Self::new(range, 1 << share.clamp(REGION_BLOCKS, PART_BLOCKS_MAX).ilog2())
    }

    /// At least one, also of an empty range.
    fn number(&self) -> usize {
        let first = self.range.first / self.part_blocks;
        (self.range.end.div_ceil(self.part_blocks).saturating_sub(first) as usize).max(1)
    }

    fn give_up(&self) {
        self.given_up.store(true, Ordering::Relaxed);
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
struct Member<'a, 'b> {
    backend: &'a Mutex<Backend<'b>>,
    count: &'a (dyn Fn(&ScanStats) + Sync),
}

impl Outlet for Member<'_, '_> {
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
        parts.give_up();
        assert!((&parts).next().is_none());
    }
}
