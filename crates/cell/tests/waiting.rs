//! Requests that wait for a sync delay no other request of their CPU. On a real mount; needs /dev/fuse, and fusermount3
//! or root.

mod support;

use cellar_cell::compression::{CompressionError, compress};
use cellar_cell::fuse::Mount;
use cellar_cell::instance::{Instance, PreviousMounts};
use cellar_cell::relation::RelationAu;
use cellar_cell::state::CellState;
use cellar_cell::unit_codec::Codec;
use cellar_format::units::{AuIndex, BLOCK_BYTES};
use cellar_scan::unit::{Level, Shape};
use cellar_storage::disk::{DirectoryDisk, Disk, Fault, FaultyDisk};
use cellar_storage::{Volume, VolumeOptions};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::{mount, mount_point};

const AU_BYTES: usize = 1 << 20;
const SYNC: Duration = Duration::from_millis(1200);
/// Far above the duration of a request on a busy machine, far below that of a sync.
const LATENCY_MAX: Duration = Duration::from_millis(600);
/// Writes that make a redo log long enough for a checkpoint (32 MiB), but not full (64 MiB).
const LONG_LOG_WRITES: usize = 40 * AU_BYTES / BLOCK_BYTES;
/// Writes that fill a redo log although a checkpoint empties the other segment meanwhile.
const FULL_LOG_WRITES: usize = 75 * AU_BYTES / BLOCK_BYTES;

/// A mount whose cell disk takes [`SYNC`] for each sync while it is slow.
struct Mounted {
    mount: Option<Mount>,
    volume: Arc<Volume>,
    disk: Arc<FaultyDisk>,
    root: PathBuf,
    _folder: tempfile::TempDir,
}

impl Mounted {
    fn new(use_ring: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (root, options) = mount_point(folder.path());
        let disk = Arc::new(FaultyDisk::new(Arc::new(DirectoryDisk::new(folder.path().join("disk")).unwrap()), 1));
        let options = VolumeOptions { unit_codec: Some(Arc::new(Codec::default())), ..options };
        let volume = Volume::open(vec![disk.clone() as Arc<dyn Disk>], options).unwrap();
        let instance = Arc::new(Instance::new(PreviousMounts::default()).unwrap());
        let mount = Some(mount(&volume, &instance, &Arc::default(), &root, use_ring));
        Self { mount, volume, disk, root, _folder: folder }
    }

    fn set_slow(&self, is_slow: bool) {
        let slow = [Fault::SlowSync { milliseconds: SYNC.as_millis() as u64 }];
        self.disk.set_faults(if is_slow { &slow } else { &[] });
        self.disk.set_named_faults(if is_slow { &slow } else { &[] });
    }

    /// Creates a synced file of one allocation unit.
    fn create(&self, name: &str) -> File {
        let mut options = OpenOptions::new();
        // O_DIRECT: the kernel's page cache answers no read.
        let options = options.read(true).write(true).create_new(true).custom_flags(libc::O_DIRECT);
        let file = options.open(self.root.join(name)).unwrap();
        (0..AU_BYTES / BLOCK_BYTES).for_each(|block| write(&file, block, 1));
        file.sync_all().unwrap();
        file
    }

    fn compress(&self, name: &str) {
        let object = self.volume.resolve(name).unwrap();
        let state = CellState::new(self.volume.clone(), Arc::default(), Arc::default());
        let unit = RelationAu { object, au: AuIndex(0), blocks: 0..(AU_BYTES / BLOCK_BYTES) as u32 };
        let report = |_| Ok::<_, CompressionError>(());
        let done = compress(&state, &[unit], &Shape::default(), Some(Level::QueryLow), report).unwrap();
        assert_eq!(done.units_written, 1);
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.set_slow(false);
        let unmounted = self.mount.take().unwrap().unmount(Duration::from_secs(5));
        let closed = self.volume.close();
        if !std::thread::panicking() {
            unmounted.unwrap();
            closed.unwrap();
        }
    }
}

/// A block at an address that direct I/O accepts.
#[repr(align(4096))]
struct Block([u8; BLOCK_BYTES]);

fn write(file: &File, block: usize, fill: u8) {
    file.write_all_at(&Block([fill; BLOCK_BYTES]).0, (block * BLOCK_BYTES) as u64).unwrap();
}

/// Pins the calling thread to the first CPU, whose queue all requests of this test use.
fn pin() {
    let mut set = rustix::thread::CpuSet::new();
    set.set(0);
    rustix::thread::sched_setaffinity(None, &set).unwrap();
}

/// Reads, overwrites, creates and lists until `done`; returns the longest duration of one of them.
fn longest_request(m: &Mounted, other: &File, done: &AtomicBool) -> Duration {
    let (mut longest, mut number) = (Duration::ZERO, 0);
    while !done.load(Ordering::Relaxed) {
        let requests: [&dyn Fn(); 4] = [
            &|| other.read_exact_at(&mut Block([0; BLOCK_BYTES]).0, 3 * BLOCK_BYTES as u64).unwrap(),
            &|| write(other, 5, number as u8),
            &|| drop(File::create(m.root.join(format!("new{number}"))).unwrap()),
            &|| assert!(fs::metadata(m.root.join(format!("absent{number}"))).is_err()),
        ];
        for request in requests {
            let started = Instant::now();
            request();
            longest = longest.max(started.elapsed());
        }
        number += 1;
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(number > 100, "{number} rounds of requests");
    longest
}

/// Runs `work` in a pinned thread beside other requests of the same CPU. Returns the duration of the work and of the
/// longest other request.
fn beside_requests(m: &Mounted, other: &File, work: impl FnOnce() + Send) -> (Duration, Duration) {
    let done = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        let requests = scope.spawn(move || {
            pin();
            longest_request(m, other, done)
        });
        let worker = scope.spawn(move || {
            pin();
            let started = Instant::now();
            work();
            started.elapsed()
        });
        let worked = worker.join();
        done.store(true, Ordering::Relaxed);
        (worked.unwrap(), requests.join().unwrap())
    })
}

fn check(use_ring: bool) {
    let m = &Mounted::new(use_ring);
    let (table, other) = (&m.create("table"), &m.create("other"));
    m.compress("table");
    let write_pages = |count: usize| {
        (0..count).for_each(|number| write(table, number % (AU_BYTES / BLOCK_BYTES), number as u8));
    };
    m.set_slow(true);
    let (worked, longest) = beside_requests(m, other, || write_pages(LONG_LOG_WRITES));
    assert!(longest < LATENCY_MAX, "{longest:?} beside a redo log that needs a checkpoint, ring: {use_ring}");
    println!("ring {use_ring}: a long log {worked:?}, longest other request {longest:?}");
    let (worked, longest) = beside_requests(m, other, || write_pages(FULL_LOG_WRITES));
    assert!(longest < LATENCY_MAX, "{longest:?} beside a full redo log, ring: {use_ring}");
    println!("ring {use_ring}: a full log {worked:?}, longest other request {longest:?}");

    // More syncs than a queue has entries at first, and more than the forwarding session has threads.
    let files: Vec<File> =
        (0..16).map(|number| File::create(m.root.join(format!("synced{number}"))).unwrap()).collect();
    let sync_all = || {
        std::thread::scope(|scope| {
            for file in &files {
                scope.spawn(move || {
                    pin();
                    file.write_all_at(b"x", 0).unwrap();
                    file.sync_all().unwrap();
                });
            }
        });
    };
    let (worked, longest) = beside_requests(m, other, sync_all);
    println!("ring {use_ring}: syncs {worked:?}, longest other request {longest:?}");
    assert!(worked > SYNC, "the syncs took {worked:?}");
    assert!(longest < LATENCY_MAX, "{longest:?} beside {} syncs, ring: {use_ring}", files.len());
    m.set_slow(false);
    table.sync_all().unwrap();
}

#[test]
fn a_long_redo_log_and_syncs_delay_no_other_request_of_the_cpu_with_io_uring() {
    check(true);
}

#[test]
fn a_long_redo_log_and_syncs_delay_no_other_request_with_the_classic_transport() {
    check(false);
}
