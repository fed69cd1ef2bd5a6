//! Requests that wait for a sync, for a device or for a measurement of free space delay no other request of their CPU. On a
//! real mount; needs /dev/fuse, and fusermount3 or root.

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
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::Scope;
use std::time::{Duration, Instant};
use support::{mount, mount_point, stop};

const AU_BYTES: usize = 1 << 20;
/// After this time a request counts as blocked. Far above the duration of requests on a busy machine with a slow disk.
const BLOCKED: Duration = Duration::from_secs(60);
/// Rounds of requests of other files.
const ROUNDS: usize = 100;
/// More requests of one CPU than the kernel once had ring entries for, and than it once sent ahead for the whole mount.
const SYNCS: usize = 320;
/// Requests that begin at the same time, fewer than the kernel has ring entries for.
const BURST: usize = 160;
const READS: usize = 48;
const BACKGROUND_READS: usize = 100;
/// Held reads of one file, at least, while another file is read.
const HELD_MIN: usize = 32;
const SPACE_REQUESTS: usize = 16;
/// Bounds the growth of a file that no measurement holds, in bytes.
const LENGTH_MAX: u64 = 4 << 20;
/// Writes that make a redo log long enough for a checkpoint (32 MiB), but not full (64 MiB).
const LONG_LOG_WRITES: usize = 40 * AU_BYTES / BLOCK_BYTES;
/// Further writes, more than the log accepts while its checkpoint waits.
const FULL_LOG_WRITES: usize = 30 * AU_BYTES / BLOCK_BYTES;

/// A mount whose cell disk can hold its syncs or reads.
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

    /// Makes all syncs or reads of the cell disk wait until the returned guard is dropped.
    fn hold(&self, fault: Fault) -> Held<'_> {
        self.set_faults(&[fault]);
        Held(self)
    }

    fn set_faults(&self, faults: &[Fault]) {
        self.disk.set_faults(faults);
        self.disk.set_named_faults(faults);
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
        stop(self.mount.take().unwrap(), &self.volume);
    }
}

struct Held<'a>(&'a Mounted);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.set_faults(&[]);
    }
}

/// Ends the work of other threads, also if an assertion fails.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
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

/// Runs `work` in a thread on the first CPU and returns a channel that receives its result.
fn in_thread<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Receiver<T> {
    let (sender, receiver) = channel();
    scope.spawn(move || {
        pin();
        sender.send(work())
    });
    receiver
}

/// Overwrites, creates, looks up and, if `can_read`, reads other files; returns when all requests have completed.
fn run_requests<'scope>(
    scope: &'scope Scope<'scope, '_>,
    m: &'scope Mounted,
    other: &'scope File,
    beside: &'static str,
    can_read: bool,
) {
    let requests = in_thread(scope, move || {
        for number in 0..ROUNDS {
            if can_read {
                other.read_exact_at(&mut Block([0; BLOCK_BYTES]).0, 3 * BLOCK_BYTES as u64).unwrap();
            }
            write(other, 5, number as u8);
            drop(File::create(m.root.join(format!("{beside} {number}"))).unwrap());
            assert!(fs::metadata(m.root.join(format!("absent {beside} {number}"))).is_err());
        }
    });
    requests.recv_timeout(BLOCKED).unwrap_or_else(|_| panic!("the requests of other files wait beside {beside}"));
}

fn check(use_ring: bool) {
    let m = &Mounted::new(use_ring);
    let (table, other) = (&m.create("table"), &m.create("other"));
    m.compress("table");
    let written = &AtomicUsize::new(0);
    let write_pages = |count: usize| {
        for number in 0..count {
            write(table, number % (AU_BYTES / BLOCK_BYTES), number as u8);
            written.fetch_add(1, Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        let held = m.hold(Fault::HeldSync);
        let syncs = m.disk.syncs();
        let long_log = in_thread(scope, || write_pages(LONG_LOG_WRITES));
        long_log.recv_timeout(BLOCKED).expect("writes do not wait for the checkpoint of a redo log that is not full");
        wait_until("the checkpoint begins", || m.disk.syncs() > syncs);
        run_requests(scope, m, other, "a redo log that needs a checkpoint", true);

        let full_log = in_thread(scope, || write_pages(FULL_LOG_WRITES));
        wait_until("a write waits for the full redo log", || {
            let before = written.load(Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(300));
            before > LONG_LOG_WRITES && written.load(Ordering::Relaxed) == before
        });
        run_requests(scope, m, other, "a full redo log", true);
        assert!(full_log.try_recv().is_err(), "the redo log has more bytes than its maximum");
        drop(held);
        full_log.recv_timeout(BLOCKED).expect("the checkpoint releases the writer");
    });
    table.sync_all().unwrap();

    // A burst of syncs: more than the forwarding session has threads.
    let files: &Vec<File> =
        &(0..SYNCS).map(|number| File::create(m.root.join(format!("synced{number}"))).unwrap()).collect();
    check_held(m, other, (Fault::HeldSync, "syncs", SYNCS), |number, begin| {
        files[number].write_all_at(b"x", 0).unwrap();
        begin();
        files[number].sync_all().unwrap();
    });
}

/// Runs `count` requests that `fault` holds, and shows that requests of other files complete meanwhile. `work` calls its
/// second argument before the request that is held.
fn check_held(
    m: &Mounted,
    other: &File,
    (fault, name, count): (Fault, &'static str, usize),
    work: impl Fn(usize, &dyn Fn()) + Sync,
) {
    let (work, started) = (&work, &AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let held = m.hold(fault);
        let begin = move || _ = started.fetch_add(1, Ordering::Relaxed);
        let requests: Vec<_> = (0..count)
            .map(|number| {
                if number % BURST == 0 {
                    wait_until("a burst of requests begins", || started.load(Ordering::Relaxed) == number);
                }
                in_thread(scope, move || work(number, &begin))
            })
            .collect();
        wait_until("all requests begin", || started.load(Ordering::Relaxed) == count);
        std::thread::sleep(Duration::from_millis(100));
        run_requests(scope, m, other, name, !matches!(fault, Fault::HeldRead));
        let is_held = |request: &Receiver<()>| request.try_recv().is_err();
        assert!(requests.iter().all(is_held), "{name} returned before those of the cell disk");
        drop(held);
        let returned = |request: &Receiver<()>| request.recv_timeout(BLOCKED).expect("the requests return");
        requests.iter().for_each(returned);
    });
}

fn check_reads(use_ring: bool) {
    let m = &Mounted::new(use_ring);
    let (table, other) = (&m.create("table"), &m.create("other"));
    check_held(m, other, (Fault::HeldRead, "reads", READS), |block, begin| {
        begin();
        let mut bytes = Block([0; BLOCK_BYTES]);
        table.read_exact_at(&mut bytes.0, (block * BLOCK_BYTES) as u64).unwrap();
        assert_eq!(bytes.0, [1; BLOCK_BYTES]);
    });
}

/// Buffered reads are asynchronous requests of the kernel, whose number is limited.
fn check_buffered_reads(use_ring: bool) {
    let m = &Mounted::new(use_ring);
    drop((m.create("table"), m.create("other")));
    let ino = m.volume.resolve("table").unwrap();
    let read = |name: &str, block: usize| {
        let file = File::open(m.root.join(name)).unwrap();
        // Without read-ahead, each block is one request.
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random).unwrap();
        let mut bytes = [0; BLOCK_BYTES];
        file.read_exact_at(&mut bytes, (block * BLOCK_BYTES) as u64).unwrap();
        assert_eq!(bytes, [1; BLOCK_BYTES]);
    };
    std::thread::scope(|scope| {
        let held = m.hold(Fault::HeldReadOf { ino });
        let reads: Vec<_> = (0..BACKGROUND_READS).map(|block| in_thread(scope, move || read("table", block))).collect();
        wait_until("many reads wait for the device", || m.disk.held() >= HELD_MIN);
        let others = in_thread(scope, || (0..AU_BYTES / BLOCK_BYTES).for_each(|block| read("other", block)));
        others.recv_timeout(BLOCKED).expect("buffered reads of another file do not wait");
        wait_until("all reads wait for the device", || m.disk.held() == BACKGROUND_READS);
        drop(held);
        reads.iter().for_each(|read| read.recv_timeout(BLOCKED).expect("the reads return"));
    });
}

/// Requests that measure the free space: writes that grow files, when the last measurement is old, and STATFS.
fn check_space(use_ring: bool) {
    let m = &Mounted::new(use_ring);
    let other = &m.create("other");
    let released = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (held, release) = (m.hold(Fault::HeldSpace), SetOnDrop(released));
        let grow = |number: usize| {
            let file = File::create(m.root.join(format!("growing{number}"))).unwrap();
            let lengths = (0..LENGTH_MAX).take_while(|_| !released.load(Ordering::Relaxed));
            lengths.for_each(|length| file.write_all_at(b"x", length).unwrap());
        };
        let growing: Vec<_> = (0..SPACE_REQUESTS).map(|number| in_thread(scope, move || grow(number))).collect();
        let measuring: Vec<_> =
            (0..SPACE_REQUESTS).map(|_| in_thread(scope, || _ = rustix::fs::statvfs(&m.root).unwrap())).collect();
        // The maintenance thread measures, too.
        wait_until("all requests measure the free space", || m.disk.held() > 2 * SPACE_REQUESTS);
        run_requests(scope, m, other, "measurements of free space", true);
        assert!(growing.iter().chain(&measuring).all(|request| request.try_recv().is_err()));
        drop((held, release));
        let requests = growing.iter().chain(&measuring);
        requests.for_each(|request| request.recv_timeout(BLOCKED).expect("the requests return"));
    });
}

fn wait_until(what: &str, is_true: impl Fn() -> bool) {
    let started = Instant::now();
    while !is_true() {
        assert!(started.elapsed() < BLOCKED, "expected: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_long_redo_log_and_syncs_delay_no_other_request_of_the_cpu_with_io_uring() {
    check(true);
}

#[test]
fn a_long_redo_log_and_syncs_delay_no_other_request_with_the_classic_transport() {
    check(false);
}

#[test]
fn reads_that_wait_for_the_device_delay_no_other_request_of_the_cpu_with_io_uring() {
    check_reads(true);
}

#[test]
fn reads_that_wait_for_the_device_delay_no_other_request_with_the_classic_transport() {
    check_reads(false);
}

#[test]
fn buffered_reads_that_wait_for_the_device_delay_no_read_of_another_file_with_io_uring() {
    check_buffered_reads(true);
}

#[test]
fn buffered_reads_that_wait_for_the_device_delay_no_read_of_another_file_with_the_classic_transport() {
    check_buffered_reads(false);
}

#[test]
fn measurements_of_free_space_delay_no_other_request_of_the_cpu_with_io_uring() {
    check_space(true);
}

#[test]
fn measurements_of_free_space_delay_no_other_request_with_the_classic_transport() {
    check_space(false);
}
