//! WAL files that the kernel reads and writes itself (`wal_passthrough`), on a real mount. The tests need root and Linux 6.9 with
//! FUSE over io_uring; elsewhere they check nothing.

mod support;

use cellar_cell::fuse::{IoStats, Mount};
use cellar_cell::instance::{Instance, PreviousMounts};
use cellar_format::units::RegionIndex;
use cellar_format::wire::{FileIoKind, FileType};
use cellar_storage::disk::{DirectoryDisk, Disk};
use cellar_storage::{Volume, VolumeOptions};
use std::fs::{self, File, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use support::{mount, mount_point, stop};

const MIB: usize = 1 << 20;
const PAGE: usize = 8192;
const SEGMENT: usize = 5 * MIB;

struct Cell {
    mount: Option<Mount>,
    volume: Arc<Volume>,
    stats: Arc<IoStats>,
    root: PathBuf,
    folder: tempfile::TempDir,
}

fn file_type(path: &str) -> FileType {
    if path.starts_with("pg_wal/") { FileType::Wal } else { FileType::Other }
}

fn disk(folder: &Path, name: &str) -> Arc<dyn Disk> {
    Arc::new(DirectoryDisk::new(folder.join(name)).unwrap())
}

impl Cell {
    /// Returns None where the kernel cannot pass files through.
    fn new() -> Option<Self> {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let (root, options) = mount_point(folder.path());
        let options = VolumeOptions { wal_passthrough: true, file_type, rebalances: false, ..options };
        let disks = ["disk1", "disk2"].map(|name| disk(folder.path(), name));
        let volume = Volume::open(disks.into(), options).unwrap();
        let stats = Arc::new(IoStats::default());
        let instance = Arc::new(Instance::new(PreviousMounts::default()).unwrap());
        let mount = Some(mount(&volume, &instance, &stats, &root, true));
        let cell = Self { mount, volume, stats, root, folder };
        fs::create_dir(cell.root.join("pg_wal")).unwrap();
        let (file, _) = cell.segment("probe");
        file.write_all_at(&[1; PAGE], 0).unwrap();
        let is_root = nix::unistd::geteuid().is_root();
        let can_pass = cell.wal_writes() == writes_of(SEGMENT);
        eprintln!("root: {is_root}, passthrough: {can_pass}");
        can_pass.then_some(cell)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join("pg_wal").join(name)
    }

    /// Creates a WAL file as PostgreSQL does: under another name, with zeros, and opens it under its own name.
    fn segment(&self, name: &str) -> (File, u64) {
        let temporary = self.path("xlogtemp.1");
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&temporary).unwrap();
        file.write_all_at(&vec![0; SEGMENT], 0).unwrap();
        file.sync_all().unwrap();
        // The kernel caches the zeros.
        file.read_exact_at(&mut vec![1; SEGMENT], 0).unwrap();
        drop(file);
        fs::rename(&temporary, self.path(name)).unwrap();
        let file = self.open(name);
        let ino = file.metadata().unwrap().ino();
        (file, ino)
    }

    fn open(&self, name: &str) -> File {
        OpenOptions::new().read(true).write(true).open(self.path(name)).unwrap()
    }

    /// Returns the number of WAL writes that reached the cell.
    fn wal_writes(&self) -> u64 {
        let counts = self.stats.snapshot();
        counts.iter().filter(|count| count.kind == FileIoKind::WalWrite).map(|count| count.operations).sum()
    }

    /// Returns the backing files of an inode.
    fn backing_files(&self, ino: u64) -> Vec<PathBuf> {
        let of_disk = |name: &str| self.folder.path().join(format!("{name}/data/{:02x}/{ino:016x}", ino & 0xff));
        ["disk1", "disk2"].map(of_disk).into_iter().filter(|path| path.exists()).collect()
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        stop(self.mount.take().unwrap(), &self.volume);
    }
}

/// Returns the number of requests that a write of `bytes` is split into.
fn writes_of(bytes: usize) -> u64 {
    (bytes / (128 << 10)) as u64
}

/// Returns the number of pages of a file that the operating system has not written yet.
fn dirty_pages(path: &Path) -> u64 {
    const SYS_CACHESTAT: libc::c_long = 451;
    let (file, range, mut stat) = (File::open(path).unwrap(), [0u64; 2], [0u64; 5]);
    // SAFETY: the structures have the kernel's layout and outlive the call.
    let result = unsafe { libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), range.as_ptr(), stat.as_mut_ptr(), 0) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    stat[1] + stat[2]
}

fn read(file: &File, offset: u64) -> Vec<u8> {
    let mut page = vec![0; PAGE];
    file.read_exact_at(&mut page, offset).unwrap();
    page
}

#[test]
fn writes_of_the_kernel_are_synced_and_seen_by_the_cell() {
    let Some(cell) = Cell::new() else { return };
    let (file, ino) = cell.segment("1");
    let [backing] = &cell.backing_files(ino)[..] else { panic!("a WAL file is on one disk") };
    let writes = cell.wal_writes();
    for at in [0, 2 * MIB, SEGMENT - PAGE] {
        file.write_all_at(&[at as u8 | 1; PAGE], at as u64).unwrap();
        assert!(dirty_pages(backing) > 0);
        file.sync_data().unwrap();
        assert_eq!(dirty_pages(backing), 0, "an fsync must sync what the kernel has written");
        let (mut seen, other) = (vec![0; PAGE], cell.open("1"));
        cell.volume.read(ino, at as u64, &mut seen).unwrap();
        assert!(seen == [at as u8 | 1; PAGE] && read(&other, at as u64) == seen && read(&file, at as u64) == seen);
    }
    assert_eq!(cell.wal_writes(), writes, "no write reached the cell");
    assert!(cell.volume.region(ino, RegionIndex(0)).is_err(), "no scan reads bytes that change without the cell");
}

#[test]
fn the_size_and_the_time_of_a_file_are_those_of_its_backing_file() {
    let Some(cell) = Cell::new() else { return };
    let (mut file, ino) = cell.segment("1");
    let before = file.metadata().unwrap();
    std::thread::sleep(Duration::from_millis(20));
    file.write_all_at(&[7; PAGE], SEGMENT as u64 + 100).unwrap();
    let end = (SEGMENT + 100 + PAGE) as u64;
    assert_eq!(fs::metadata(cell.path("1")).unwrap().len(), end);
    assert!(
        (file.metadata().unwrap().mtime(), file.metadata().unwrap().mtime_nsec())
            > (before.mtime(), before.mtime_nsec())
    );
    assert_eq!((file.seek(SeekFrom::End(0)).unwrap(), cell.volume.size(ino).unwrap()), (end, end));
    file.set_len(MIB as u64).unwrap();
    assert_eq!(cell.open("1").seek(SeekFrom::End(0)).unwrap(), MIB as u64);
    file.set_len(2 * MIB as u64).unwrap();
    assert_eq!(read(&file, MIB as u64), [0; PAGE]);
    fs::remove_file(cell.path("1")).unwrap();
    file.write_all_at(&[9; PAGE], 0).unwrap();
    assert_eq!(read(&file, 0), [9; PAGE], "an unlinked file is usable until it is closed");
}

#[test]
fn a_file_that_is_open_without_passthrough_stays_so_until_it_is_closed() {
    let Some(cell) = Cell::new() else { return };
    let creating = OpenOptions::new().read(true).write(true).create_new(true).open(cell.path("1")).unwrap();
    creating.write_all_at(&[1; PAGE], 0).unwrap();
    let (second, writes) = (cell.open("1"), cell.wal_writes());
    second.write_all_at(&[2; PAGE], 0).unwrap();
    assert_eq!((read(&creating, 0), cell.wal_writes()), (vec![2; PAGE], writes + 1));
    drop((creating, second));
    let third = cell.open("1");
    third.write_all_at(&[3; PAGE], 0).unwrap();
    assert_eq!((read(&cell.open("1"), 0), cell.wal_writes()), (vec![3; PAGE], writes + 1));
    // A file with holes could need space for an overwrite, which the kernel does not take from the reserve.
    let sparse = File::create(cell.path("2")).unwrap();
    sparse.set_len(MIB as u64).unwrap();
    drop(sparse);
    let writes = cell.wal_writes();
    cell.open("2").write_all_at(&[4; PAGE], 0).unwrap();
    assert_eq!(cell.wal_writes(), writes + 1);
    // Files of other types are striped, and the cell serves them.
    let other = cell.root.join("other");
    fs::write(&other, vec![1; SEGMENT]).unwrap();
    assert_eq!(cell.backing_files(fs::metadata(&other).unwrap().ino()).len(), 2);
}

#[test]
fn a_rebalance_waits_for_open_files_and_leaves_no_stale_pages() {
    let Some(cell) = Cell::new() else { return };
    let (file, _) = cell.segment("1");
    file.write_all_at(&[5; PAGE], 0).unwrap();
    cell.volume.add_disk(disk(cell.folder.path(), "disk3"), None).unwrap();
    let refused = cell.volume.rebalance().unwrap_err().to_string();
    assert!(refused.contains("WAL file"), "{refused}");
    file.write_all_at(&[6; PAGE], 2 * MIB as u64).unwrap();
    drop(file);
    // The release of a file is asynchronous.
    let started = std::time::Instant::now();
    while let Err(error) = cell.volume.rebalance() {
        assert!(started.elapsed() < Duration::from_secs(10), "{error}");
        std::thread::sleep(Duration::from_millis(50));
    }
    // The kernel has cached zeros of both pages before the passthrough.
    let (file, writes) = (cell.open("1"), cell.wal_writes());
    assert!(read(&file, 0) == [5; PAGE] && read(&file, 2 * MIB as u64) == [6; PAGE]);
    file.write_all_at(&[8; PAGE], 0).unwrap();
    assert_eq!((read(&file, 0), cell.wal_writes()), (vec![8; PAGE], writes + 1));
}
