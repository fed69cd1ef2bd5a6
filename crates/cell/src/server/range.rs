//! A block range of a scan, divided into parts that the scan's threads share.
//!
//! The session's thread starts alone, with a small part. Helper threads join if the first parts took so long that one
//! thread would need more than [`ALONE_MAX`] for the rest of the range.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use cellar_format::bytes::Corrupt;
use cellar_format::postgres::TransactionId;
use cellar_format::stats::ScanStats;
use cellar_format::units::REGION_BLOCKS;
use cellar_format::wire::{BlockRange, FrameHeader, Kind, RangeDone, XidQuery, XidState, XidStates};
use cellar_storage::request::carried;
use parking_lot::Mutex;

use super::error::SessionError;
use crate::frame_stream::{FrameStream, StreamError};
use crate::log_context;
use crate::relation::Segments;
use crate::smart_scan::{ScanSink, SmartScan};
use crate::state::{HelperPermit, HelperThreads};

/// Maximum number of ranges that a backend may request ahead while it answers a query.
const QUEUED_RANGES_MAX: usize = 1024;
/// Maximum blocks of a part, except that a part is at least one allocation unit.
const PART_BLOCKS_MAX: u32 = 1024;
/// Parts per thread in a small range; several parts let all threads finish at about the same time.
const PARTS_PER_THREAD: u32 = 8;
/// Helper threads join only if one thread would need longer than this for the rest of the range.
const ALONE_MAX: Duration = Duration::from_millis(2);
/// Maximum size of a thread's last frames that are sent together with those of the other threads. Sending them together
/// wakes the backend once.
const LAST_BYTES_MAX: usize = 64 << 10;
/// A helper thread that waits longer than this to send leaves the scan. The backend does not read then, for example because a client
/// fetches the rows of a portal in portions. At most two threads wait: the session's, and one that has started to send.
const STALL_MAX: Duration = Duration::from_millis(100);

/// A session's connection to its backend, for the scan of one range.
pub struct Backend<'a> {
    pub stream: &'a mut FrameStream,
    /// Receives the ranges that the backend requests before it answers a query.
    pub queued_ranges: &'a mut VecDeque<BlockRange>,
    /// Adds counts to the cell's metrics.
    pub count: &'a (dyn Fn(&ScanStats) + Sync),
}

/// Scans a range and sends `RangeDone`. `scans` contains a scan for each thread that may share the range, at least one.
pub fn scan(
    scans: &mut [SmartScan],
    segments: &Segments,
    range: BlockRange,
    helper_threads: &HelperThreads,
    backend: Backend<'_>,
) -> Result<(), SessionError> {
    let helper_count = scans.len() - 1;
    let parts = match helper_count {
        0 => Parts::new(range, u32::MAX),
        helpers => Parts::for_threads(range, 1 + helpers, segments.au_blocks(range.first)),
    };
    let count = backend.count;
    let (backend, left) = (Mutex::new(backend), Mutex::default());
    let shared = SharedRange { parts: &parts, segments, helper_threads, backend, count, left };
    let last = std::thread::scope(|scope| {
        let (own, helpers) = scans.split_first_mut().expect("a scan has at least one thread");
        let shared = &shared;
        let name = std::thread::current().name().unwrap_or("scan").to_owned();
        let log_context = log_context::current();
        // If a thread cannot be started, the other threads scan its parts.
        let start = |scan, permit| {
            let log_context = log_context.clone();
            std::thread::Builder::new().name(name.clone()).spawn_scoped(
                scope,
                carried(move || {
                    let _permit: HelperPermit<'_> = permit;
                    log_context::set(log_context);
                    shared.scan_parts(scan, &mut { shared.parts }, true)
                }),
            )
        };
        let mut idle = &mut helpers[..helper_count.min(parts.total() - 1)];
        let mut started_threads = Vec::new();
        let started = Instant::now();
        let mut own_parts = std::iter::from_fn(|| {
            let scanned = parts.taken_end() - range.first;
            if scanned > 0 && started.elapsed() * (range.end - range.first - scanned) >= ALONE_MAX * scanned {
                // Other scans may have released permits and memory since the previous part. A helper without memory would
                // only pass its parts through.
                for permit in helper_threads.acquire(idle.len()) {
                    if !idle.first_mut().is_some_and(SmartScan::reserve) {
                        break;
                    }
                    started_threads.extend(idle.split_off_first_mut().and_then(|scan| start(scan, permit).ok()));
                }
            }
            (&parts).next()
        });
        let mut last = shared.scan_parts(own, &mut own_parts, false);
        let joined: Vec<_> = started_threads.into_iter().map(|thread| thread.join()).collect();
        for helper in joined {
            let helpers_last = helper.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            last = last.and_then(|mut last| {
                last.extend(helpers_last?);
                Ok(last)
            });
        }
        let left = std::mem::take(&mut shared.left.lock().blocks);
        if !left.is_empty() {
            last = last.and_then(|mut last| {
                last.extend(shared.scan_parts(own, &mut left.into_iter(), false)?);
                Ok(last)
            });
        }
        last
    });
    let mut last = last?;
    last.append(&mut shared.left.lock().frames);
    if scans.iter().any(SmartScan::has_groups) {
        let permits = helper_threads.acquire(scans.len() - 1);
        last.extend(shared.finish_groups(scans, permits.len())?);
    }
    let mut done = Vec::new();
    FrameHeader::frame(&mut done, Kind::RangeDone, |out| RangeDone { stats: ScanStats::default() }.encode(out));
    shared.backend.into_inner().stream.send_all(&[&last, &done])?;
    scans.iter_mut().for_each(SmartScan::discard_groups);
    Ok(())
}

/// The data that the threads of a range share.
struct SharedRange<'a, 'b> {
    parts: &'a Parts,
    segments: &'a Segments,
    helper_threads: &'a HelperThreads,
    backend: Mutex<Backend<'b>>,
    count: &'b (dyn Fn(&ScanStats) + Sync),
    left: Mutex<Left>,
}

/// What helper threads that left the scan have not sent, and not scanned.
#[derive(Default)]
struct Left {
    frames: Vec<u8>,
    blocks: Vec<BlockRange>,
}

/// The sink of one thread of a range: the threads share the connection under a lock.
#[derive(Clone, Copy)]
struct ThreadSink<'a, 'b, 'c> {
    shared: &'c SharedRange<'a, 'b>,
    is_helper: bool,
    is_leaving: bool,
}

impl SharedRange<'_, '_> {
    /// Scans parts until none is left. Returns the thread's last frames if they are short.
    fn scan_parts(
        &self,
        scan: &mut SmartScan,
        parts: &mut dyn Iterator<Item = BlockRange>,
        is_helper: bool,
    ) -> Result<Vec<u8>, SessionError> {
        let stop_on_failure = StopParts(self.parts);
        let mut sink = ThreadSink { shared: self, is_helper, is_leaving: false };
        let current = Cell::new(BlockRange { first: 0, end: 0 });
        let parts = parts.inspect(|part| current.set(*part));
        let scanned = scan.range(parts.flat_map(|part| self.segments.split(part)), &mut sink);
        let (stats, frames) = scan.finish();
        (self.count)(&stats);
        if let Some(first) = scanned? {
            self.left.lock().blocks.push(BlockRange { first, end: current.get().end });
        }
        let last = sink.last_frames(&stats, frames)?;
        std::mem::forget(stop_on_failure);
        Ok(last)
    }

    /// Merges the groups of all threads and sends them. Returns the last frames if they are short.
    fn finish_groups(&self, scans: &mut [SmartScan], helpers: usize) -> Result<Vec<u8>, SessionError> {
        let sink = ThreadSink { shared: self, is_helper: false, is_leaving: false };
        SmartScan::finish_groups(scans, sink, helpers)?;
        let (stats, frames) = scans[0].finish();
        (self.count)(&stats);
        sink.last_frames(&stats, frames)
    }
}

impl<'b> ThreadSink<'_, 'b, '_> {
    /// Calls `exchange` with the connection. May wait for another thread and for the backend, for which a helper thread
    /// needs no permit.
    fn with_backend<T>(&self, exchange: impl FnOnce(&mut Backend<'b>) -> T) -> T {
        let _paused = self.is_helper.then(|| self.shared.helper_threads.pause());
        exchange(&mut self.shared.backend.lock())
    }

    /// Sends frames. Returns false if a helper thread leaves them to the session's thread.
    fn send(&self, progress: &[u8], frames: &[u8]) -> Result<bool, SessionError> {
        if !self.is_helper {
            let left = std::mem::take(&mut self.shared.left.lock().frames);
            self.with_backend(|backend| backend.stream.send_all(&[&left, progress, frames]))?;
            return Ok(true);
        }
        let _paused = self.shared.helper_threads.pause();
        if let Some(mut backend) = self.shared.backend.try_lock_for(STALL_MAX) {
            backend.stream.send_all(&[progress, frames])?;
            return Ok(true);
        }
        let mut left = self.shared.left.lock();
        left.frames.extend_from_slice(progress);
        left.frames.extend_from_slice(frames);
        Ok(false)
    }

    /// Sends a thread's last frames, or returns them if they are short.
    fn last_frames(&self, stats: &ScanStats, frames: &[u8]) -> Result<Vec<u8>, SessionError> {
        let mut last = progress_frame(stats);
        if frames.len() > LAST_BYTES_MAX {
            self.send(&last, frames)?;
            last.clear();
        } else {
            last.extend_from_slice(frames);
        }
        Ok(last)
    }
}

/// Stops the distribution of parts when a thread fails with an error or a panic.
struct StopParts<'a>(&'a Parts);

impl Drop for StopParts<'_> {
    fn drop(&mut self) {
        self.0.stopped.store(true, Ordering::Relaxed);
    }
}

/// Distributes the parts of a range to threads.
struct Parts {
    range: BlockRange,
    part_blocks: u32,
    /// Where the first part ends, if it is smaller than the others.
    first_end: Option<u32>,
    taken: AtomicU32,
    stopped: AtomicBool,
}

impl Parts {
    fn new(range: BlockRange, part_blocks: u32) -> Self {
        let (taken, stopped) = (AtomicU32::new(0), AtomicBool::new(false));
        Self { range, part_blocks, first_end: None, taken, stopped }
    }

    /// Sizes the parts for several threads. The size is a power of two of at least a region and an allocation unit, so
    /// parts start at boundaries of both. The first part ends with its region: the other threads wait for its end.
    fn for_threads(range: BlockRange, threads: usize, au_blocks: u32) -> Self {
        let share = range.end.saturating_sub(range.first) / (threads as u32).saturating_mul(PARTS_PER_THREAD);
        let least = au_blocks.max(REGION_BLOCKS);
        let part_blocks = 1 << share.clamp(least, least.max(PART_BLOCKS_MAX)).ilog2();
        let (number, region) = (range.first / part_blocks, range.first / REGION_BLOCKS);
        let part_end = number.saturating_add(1).saturating_mul(part_blocks).min(range.end);
        let first_end = Some(region.saturating_add(1).saturating_mul(REGION_BLOCKS)).filter(|end| *end < part_end);
        Self { first_end, ..Self::new(range, part_blocks) }
    }

    /// Returns the number of parts, which is at least one, even for an empty range.
    fn total(&self) -> usize {
        let first = self.range.first / self.part_blocks;
        let parts = self.range.end.div_ceil(self.part_blocks).saturating_sub(first).max(1);
        parts as usize + usize::from(self.first_end.is_some())
    }

    /// Returns the end of the parts that threads have taken.
    fn taken_end(&self) -> u32 {
        self.start(self.taken.load(Ordering::Relaxed))
    }

    /// Returns the first block of a part, or the end of the range for a number of at least [`Self::total`].
    fn start(&self, number: u32) -> u32 {
        let BlockRange { first, end } = self.range;
        let number = match (number, self.first_end) {
            (0, _) => return first.min(end),
            (1, Some(first_end)) => return first_end,
            (number, Some(_)) => number - 1,
            (number, None) => number,
        };
        (first / self.part_blocks).saturating_add(number).saturating_mul(self.part_blocks).clamp(first, end.max(first))
    }
}

impl Iterator for &Parts {
    type Item = BlockRange;

    fn next(&mut self) -> Option<BlockRange> {
        let next = self.taken.fetch_add(1, Ordering::Relaxed);
        if next as usize >= self.total() || self.stopped.load(Ordering::Relaxed) {
            return None;
        }
        Some(BlockRange { first: self.start(next), end: self.start(next + 1) })
    }
}

impl ScanSink for ThreadSink<'_, '_, '_> {
    type Error = SessionError;

    fn frames(&mut self, counts: &ScanStats, frames: &[u8]) -> Result<(), SessionError> {
        (self.shared.count)(counts);
        self.is_leaving = !self.send(&progress_frame(counts), frames)?;
        Ok(())
    }

    fn is_leaving(&self) -> bool {
        self.is_leaving
    }

    fn check_connected(&mut self) -> Result<(), SessionError> {
        match self.shared.backend.try_lock() {
            Some(backend) if backend.stream.is_closed() => Err(StreamError::Closed.into()),
            _ => Ok(()),
        }
    }

    fn xid_states(&mut self, xids: &[TransactionId]) -> Result<Vec<XidState>, SessionError> {
        self.with_backend(|backend| query_xids(backend, xids))
    }
}

fn query_xids(backend: &mut Backend<'_>, xids: &[TransactionId]) -> Result<Vec<XidState>, SessionError> {
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
            (Kind::ScanRange, payload) if backend.queued_ranges.len() < QUEUED_RANGES_MAX => {
                let range = BlockRange::decode(payload)?;
                backend.queued_ranges.push_back(range);
            }
            (kind, _) => return Err(SessionError::unexpected(kind)),
        }
    }
}

/// Returns the frame with the counts of the frames that follow.
fn progress_frame(counts: &ScanStats) -> Vec<u8> {
    let mut frame = Vec::new();
    FrameHeader::frame(&mut frame, Kind::RangeProgress, |out| RangeDone { stats: *counts }.encode(out));
    frame
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{Credentials, Permission};
    use crate::fixtures;
    use crate::state::CellState;
    use cellar_format::units::{REGION_BYTES, RegionIndex};
    use cellar_format::wire::Passthru;
    use cellar_storage::disk::{DirectoryDisk, Disk, Fault, FaultyDisk};
    use cellar_storage::{Volume, VolumeOptions};
    use std::os::unix::net::UnixStream;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;

    const REGIONS: u32 = 64;

    fn threads_named(name: &str) -> usize {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
        names.filter(|found| found.trim_end() == name).count()
    }

    #[test]
    fn a_panic_in_a_scan_thread_leaves_no_thread_no_permit_and_no_pin() {
        let folder = tempfile::tempdir().unwrap();
        let disk = Arc::new(FaultyDisk::new(Arc::new(DirectoryDisk::new(folder.path().join("disk")).unwrap()), 1));
        let options = VolumeOptions { prefetch_threads: 0, ..VolumeOptions::default() };
        let volume = Volume::open(vec![disk.clone() as Arc<dyn Disk>], options).unwrap();
        let object = fixtures::create(&volume, "table");
        // Zero pages are valid and contain no rows.
        (0..REGIONS).for_each(|region| {
            volume.write(object, RegionIndex(region).start(), &vec![0; REGION_BYTES]).unwrap();
        });
        let relation = fixtures::relation("table");
        let request = fixtures::scan_request(relation.clone(), 2);
        let state = Arc::new(CellState::new(volume.clone(), Arc::default(), Arc::default()));
        let segments = Segments::new(volume.clone(), &relation, Credentials::root(), Permission::Read);
        let scan_all = || {
            let mut scans = SmartScan::open(&state, &state.commit_cache.incarnation((1, 1)), &request, 2).unwrap();
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            let backend = std::thread::spawn(move || std::io::copy(&mut theirs, &mut std::io::sink()));
            let (mut stream, mut queued_ranges) = (FrameStream::new(ours), VecDeque::new());
            let scanned = catch_unwind(AssertUnwindSafe(|| {
                let backend = Backend { stream: &mut stream, queued_ranges: &mut queued_ranges, count: &|_| {} };
                let range = BlockRange { first: 0, end: REGIONS * REGION_BLOCKS };
                super::scan(&mut scans, &segments, range, &state.helper_threads, backend)
            }));
            drop(stream);
            backend.join().unwrap().unwrap();
            scanned
        };
        // The panic may hit the session's thread or a helper thread, before or after the helper starts.
        for after in [0, 3, 17, 40] {
            disk.set_faults(&[Fault::ReadPanic { after }]);
            std::thread::scope(|scope| {
                let session = std::thread::Builder::new().name("panicking scan".into());
                let scanned = session.spawn_scoped(scope, || scan_all().is_err()).unwrap();
                assert!(scanned.join().unwrap(), "no panic after {after} reads");
            });
            disk.set_faults(&[]);
            // A helper thread whose panic ended the scope may still be exiting.
            let started = Instant::now();
            while threads_named("panicking scan") > 0 {
                assert!(started.elapsed() < Duration::from_secs(10), "a thread is left");
                std::thread::yield_now();
            }
            let processors = state.helper_threads.processors;
            assert_eq!(state.helper_threads.acquire(processors + 1).len(), processors, "a permit was not released");
            for region in (0..REGIONS).map(RegionIndex) {
                let written = volume.try_write(object, region.start(), &[0; 8192]).unwrap();
                assert_eq!(written, Some(8192), "region {region} is pinned");
                let guard = volume.region(object, region).unwrap();
                assert!(guard.len() == REGION_BYTES && guard.iter().all(|byte| *byte == 0));
            }
            scan_all().unwrap().unwrap();
            volume.truncate(object, 0).unwrap();
            volume.truncate(object, u64::from(REGIONS) * REGION_BYTES as u64).unwrap();
        }
        volume.close().unwrap();
    }

    /// The file does not exist, so all of its blocks are passed through.
    #[test]
    fn helper_threads_leave_while_the_backend_does_not_read() {
        const BLOCKS: u32 = 512 * REGION_BLOCKS;
        let folder = tempfile::tempdir().unwrap();
        let volume = fixtures::volume(folder.path(), 1 << 20);
        let relation = fixtures::relation("missing");
        let request = fixtures::scan_request(relation.clone(), 4);
        let state = Arc::new(CellState::new(volume.clone(), Arc::default(), Arc::default()));
        let segments = Segments::new(volume.clone(), &relation, Credentials::root(), Permission::Read);
        let mut scans = SmartScan::open(&state, &state.commit_cache.incarnation((1, 1)), &request, 4).unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        std::thread::scope(|scope| {
            let session = std::thread::Builder::new().name("stalled scan".into());
            let scan = session.spawn_scoped(scope, || {
                let (mut stream, mut queued_ranges) = (FrameStream::new(ours), VecDeque::new());
                let backend = Backend { stream: &mut stream, queued_ranges: &mut queued_ranges, count: &|_| {} };
                super::scan(&mut scans, &segments, BlockRange { first: 0, end: BLOCKS }, &state.helper_threads, backend)
            });
            let scan = scan.unwrap();
            let mut stream = FrameStream::new(theirs);
            let mut blocks = Vec::new();
            // The backend stalls twice; the session's thread and one that is sending remain.
            for _ in 0..2 {
                std::thread::sleep(STALL_MAX);
                let started = Instant::now();
                while threads_named("stalled scan") > 2 {
                    assert!(started.elapsed() < Duration::from_secs(10), "more than two threads wait");
                    std::thread::sleep(STALL_MAX / 10);
                }
                assert!(!scan.is_finished(), "the frames fit into the socket's buffers");
                while blocks.len() < BLOCKS as usize / 2 {
                    match stream.receive().unwrap() {
                        (Kind::Passthru, payload) => blocks.push(Passthru::decode(payload).unwrap().block),
                        (kind, _) => assert_eq!(kind, Kind::RangeProgress),
                    }
                }
            }
            loop {
                match stream.receive().unwrap() {
                    (Kind::Passthru, payload) => blocks.push(Passthru::decode(payload).unwrap().block),
                    (Kind::RangeDone, _) => break,
                    (kind, _) => assert_eq!(kind, Kind::RangeProgress),
                }
            }
            scan.join().unwrap().unwrap();
            blocks.sort_unstable();
            assert!(blocks.iter().copied().eq(0..BLOCKS), "{} blocks are passed through", blocks.len());
        });
        assert_eq!(state.helper_threads.acquire(99).len(), state.helper_threads.processors);
        volume.close().unwrap();
    }

    fn parts(first: u32, end: u32, part_blocks: u32) -> Vec<(u32, u32)> {
        taken(&Parts::new(BlockRange { first, end }, part_blocks))
    }

    fn taken(mut parts: &Parts) -> Vec<(u32, u32)> {
        let taken: Vec<_> = parts.by_ref().map(|part| (part.first, part.end)).collect();
        assert_eq!(parts.total(), taken.len());
        taken
    }

    #[test]
    fn parts_cover_the_range_and_start_at_multiples_of_their_size() {
        assert_eq!(parts(100, 2500, 1024), [(100, 1024), (1024, 2048), (2048, 2500)]);
        assert_eq!(parts(0, 2048, 1024), [(0, 1024), (1024, 2048)]);
        assert_eq!(parts(5, 9, u32::MAX), [(5, 9)]);
        assert_eq!(parts(u32::MAX - 5, u32::MAX, 1024), [(u32::MAX - 5, u32::MAX)]);
        assert_eq!(parts(7, 7, 1024), [(7, 7)]);
    }

    #[test]
    fn the_first_part_for_several_threads_is_at_most_a_region() {
        const REGION: u32 = REGION_BLOCKS;
        let parts = |first, end| taken(&Parts::for_threads(BlockRange { first, end }, 2, 4 * REGION));
        assert_eq!(
            parts(0, 9 * REGION),
            [(0, REGION), (REGION, 4 * REGION), (4 * REGION, 8 * REGION), (8 * REGION, 9 * REGION)]
        );
        assert_eq!(parts(REGION + 1, 3 * REGION), [(REGION + 1, 2 * REGION), (2 * REGION, 3 * REGION)]);
        assert_eq!(
            parts(3 * REGION + 5, 5 * REGION),
            [(3 * REGION + 5, 4 * REGION), (4 * REGION, 5 * REGION)],
            "the first region ends with its part"
        );
        assert_eq!(parts(5, 9), [(5, 9)]);
        assert_eq!(parts(u32::MAX - 5, u32::MAX), [(u32::MAX - 5, u32::MAX)]);
    }

    #[test]
    fn no_part_is_distributed_after_a_thread_failed() {
        let parts = Parts::new(BlockRange { first: 0, end: 9999 }, 1024);
        assert!((&parts).next().is_some());
        drop(StopParts(&parts));
        assert!((&parts).next().is_none());
    }
}
