//! Tests of the file service through system calls on a real mount. They need /dev/fuse, and fusermount3 or root.

mod support;

use cellar_cell::fuse::{IoStats, Mount};
use cellar_cell::instance::{Instance, PreviousMounts};
use cellar_format::units::RegionIndex;
use cellar_format::wire::FileIoKind;
use cellar_storage::Volume;
use cellar_storage::disk::{DirectoryDisk, Disk};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use support::{GROUP_BYTES, mount, mount_point, stop};

struct Mounted {
    mount: Option<Mount>,
    volume: Arc<Volume>,
    stats: Arc<IoStats>,
    instance: Arc<Instance>,
    root: PathBuf,
    _folder: tempfile::TempDir,
}

impl Mounted {
    fn new(use_ring: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (root, options) = mount_point(folder.path());
        let disk = |name| Arc::new(DirectoryDisk::new(folder.path().join(name)).unwrap()) as Arc<dyn Disk>;
        let volume = Volume::open(["disk1", "disk2"].map(disk).into(), options).unwrap();
        let stats = Arc::new(IoStats::default());
        let instance = Arc::new(Instance::new(PreviousMounts::default()).unwrap());
        let mount = Some(mount(&volume, &instance, &stats, &root, use_ring));
        Self { mount, volume, stats, instance, root, _folder: folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        stop(self.mount.take().unwrap(), &self.volume);
    }
}

/// Runs a check with both transports.
fn on_a_mount(check: impl Fn(&Mounted)) {
    check(&Mounted::new(false));
    check(&Mounted::new(true));
}

fn create(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create_new(true).open(path).unwrap()
}

/// Runs a function with the file access rights of an ordinary user and of the group of the same number.
fn as_user<T: Send>(id: u32, function: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: both calls change only the ids of this thread, which ends with the function.
            unsafe {
                libc::setfsgid(id);
                libc::setfsuid(id);
            }
            function()
        });
        thread.join().unwrap()
    })
}

fn errno<T: std::fmt::Debug>(result: std::io::Result<T>) -> i32 {
    result.unwrap_err().raw_os_error().unwrap()
}

#[test]
fn files_are_created_appended_truncated_and_read() {
    on_a_mount(|m| {
        let mut file = create(&m.path("a"));
        file.write_all(b"hello ").unwrap();
        let mut appending = OpenOptions::new().append(true).open(m.path("a")).unwrap();
        appending.write_all(b"world").unwrap();
        assert_eq!(fs::read(m.path("a")).unwrap(), b"hello world");
        assert_eq!(file.seek(SeekFrom::End(0)).unwrap(), 11);
        file.set_len(5).unwrap();
        file.set_len(7).unwrap();
        assert_eq!(fs::read(m.path("a")).unwrap(), b"hello\0\0");
        File::create(m.path("a")).unwrap();
        assert_eq!(fs::metadata(m.path("a")).unwrap().len(), 0);
        assert_eq!(errno(File::create_new(m.path("a"))), libc::EEXIST);
        assert_eq!(errno(File::open(m.path("b"))), libc::ENOENT);
        create(&m.path("b"));
        File::open(m.path("b")).expect("the kernel does not cache the absence of a created file");
    });
}

#[test]
fn large_and_sparse_offsets_keep_their_bytes() {
    on_a_mount(|m| {
        let file = create(&m.path("big"));
        let block = [7; 8192];
        for offset in [0, (1 << 20) - 4096, (3 << 30) + 8192, 1 << 40] {
            file.write_all_at(&block, offset).unwrap();
        }
        let mut read = [0; 8192];
        for (offset, byte) in [((3 << 30) + 8192, 7), (1 << 40, 7), (5 << 30, 0), (2 << 30, 0)] {
            file.read_exact_at(&mut read, offset).unwrap();
            assert_eq!(read, [byte; 8192], "{offset}");
        }
        assert_eq!(file.metadata().unwrap().len(), (1 << 40) + 8192);
        assert_eq!(errno(file.write_at(&block, 1 << 60)), libc::EFBIG);
        let data: Vec<u8> = (0..5_000_000_u32).map(|at| (at >> 8) as u8).collect();
        fs::write(m.path("long"), &data).unwrap();
        assert!(fs::read(m.path("long")).unwrap() == data);
    });
}

#[test]
fn renames_and_links_follow_posix() {
    on_a_mount(|m| {
        fs::write(m.path("a"), "a").unwrap();
        fs::write(m.path("b"), "b").unwrap();
        let replaced = File::open(m.path("b")).unwrap();
        fs::rename(m.path("a"), m.path("b")).unwrap();
        assert_eq!(fs::read_to_string(m.path("b")).unwrap(), "a");
        let mut still = String::new();
        (&replaced).read_to_string(&mut still).unwrap();
        assert_eq!(still, "b", "a replaced file stays readable while it is open");
        fs::hard_link(m.path("b"), m.path("c")).unwrap();
        assert_eq!(fs::metadata(m.path("c")).unwrap().nlink(), 2);
        fs::remove_file(m.path("b")).unwrap();
        assert_eq!(fs::read_to_string(m.path("c")).unwrap(), "a");
        assert_eq!(fs::metadata(m.path("c")).unwrap().nlink(), 1);
        symlink("c", m.path("s")).unwrap();
        assert_eq!(fs::read_link(m.path("s")).unwrap(), Path::new("c"));
        assert_eq!(fs::read_to_string(m.path("s")).unwrap(), "a");
    });
}

#[test]
fn an_unlinked_file_is_usable_until_it_is_closed() {
    on_a_mount(|m| {
        let mut file = create(&m.path("f"));
        file.write_all(b"one").unwrap();
        fs::remove_file(m.path("f")).unwrap();
        file.write_all(b"two").unwrap();
        file.sync_all().unwrap();
        file.rewind().unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "onetwo");
        assert_eq!(file.metadata().unwrap().nlink(), 0);
    });
}

#[test]
fn directories_of_thousands_of_entries_are_listed_and_removed() {
    on_a_mount(|m| {
        let many = m.path("many");
        fs::create_dir(&many).unwrap();
        (0..3000).for_each(|number| drop(create(&many.join(format!("file-{number}")))));
        let mut names: Vec<_> = fs::read_dir(&many).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 3000);
        assert_eq!(errno(fs::remove_dir(&many)), libc::ENOTEMPTY);
        fs::remove_dir_all(&many).unwrap();
        assert!(!many.exists());
        fs::create_dir_all(m.path("x/y/z")).unwrap();
        assert_eq!(fs::metadata(m.path("x")).unwrap().nlink(), 3);
        assert_eq!(errno(fs::rename(m.path("x"), m.path("x/y/w"))), libc::EINVAL);
        File::open(m.path("x")).unwrap().sync_all().unwrap();
    });
}

#[test]
fn modes_owners_and_times_are_stored() {
    on_a_mount(|m| {
        let file = create(&m.path("f"));
        file.set_permissions(Permissions::from_mode(0o640)).unwrap();
        let time = std::time::UNIX_EPOCH + Duration::from_millis(1_234_567_891);
        file.set_modified(time).unwrap();
        let metadata = fs::metadata(m.path("f")).unwrap();
        assert_eq!((metadata.mode() & 0o7777, metadata.modified().unwrap()), (0o640, time));
        file.write_at(b"x", 0).unwrap();
        assert!(fs::metadata(m.path("f")).unwrap().modified().unwrap() > time);
        let owner = fs::metadata(&m.root).unwrap().uid();
        assert_eq!(metadata.uid(), owner);
        if owner == 0 {
            std::os::unix::fs::chown(m.path("f"), Some(7), Some(8)).unwrap();
            let metadata = fs::metadata(m.path("f")).unwrap();
            assert_eq!((metadata.uid(), metadata.gid()), (7, 8));
        }
    });
}

/// The bits are visible although the mount option nosuid stops the kernel from applying them.
#[test]
fn changes_by_an_ordinary_user_clear_set_user_id_and_set_group_id() {
    const USER: u32 = 65534;
    on_a_mount(|m| {
        if fs::metadata(&m.root).unwrap().uid() != 0 {
            return;
        }
        fs::set_permissions(m._folder.path(), Permissions::from_mode(0o755)).unwrap();
        let path = m.path("f");
        create(&path);
        fs::create_dir(m.path("d")).unwrap();
        let fifo = std::ffi::CString::new(m.path("p").as_os_str().as_encoded_bytes()).unwrap();
        // SAFETY: the path is a C string.
        assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }, 0);
        let chown = |name: &str, uid, gid| std::os::unix::fs::chown(m.path(name), uid, gid).unwrap();
        let mode = |name: &str| fs::metadata(m.path(name)).unwrap().mode() & 0o7777;
        let set_mode = |name: &str, mode| fs::set_permissions(m.path(name), Permissions::from_mode(mode)).unwrap();
        ["f", "d", "p"].into_iter().for_each(|name| chown(name, Some(USER), Some(USER)));

        for (uid, gid) in [(Some(USER), Some(USER)), (None, Some(USER)), (None, None)] {
            for (name, before, after) in
                [("f", 0o6755, 0o755), ("f", 0o6745, 0o2745), ("p", 0o6755, 0o755), ("d", 0o6755, 0o6755)]
            {
                set_mode(name, before);
                as_user(USER, || chown(name, uid, gid));
                assert_eq!(mode(name), after, "{name}, mode {before:o}, chown to {uid:?}, {gid:?}");
            }
        }
        let writing = || OpenOptions::new().write(true).open(&path).unwrap();
        let changes: [(&str, &(dyn Fn() + Sync)); 5] = [
            ("write", &|| writing().write_all_at(b"x", 0).unwrap()),
            ("truncate", &|| writing().set_len(3).unwrap()),
            ("open with O_TRUNC", &|| drop(File::create(&path).unwrap())),
            // SAFETY: the descriptor is open.
            ("fallocate", &|| assert_eq!(unsafe { libc::fallocate(writing().as_raw_fd(), 0, 0, 8192) }, 0)),
            ("direct write", &|| {
                let file = OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(&path).unwrap();
                let memory = vec![0_u8; 3 * 4096];
                let start = memory.as_ptr().align_offset(4096);
                file.write_all_at(&memory[start..start + 4096], 0).unwrap();
            }),
        ];
        for (name, change) in changes {
            set_mode("f", 0o6755);
            as_user(USER, change);
            assert_eq!(mode("f"), 0o755, "{name}");
        }
        set_mode("f", 0o6755);
        writing().write_all_at(b"x", 0).unwrap();
        assert_eq!(mode("f"), 0o6755, "a write by root keeps the bits");
    });
}

#[test]
fn a_name_over_255_bytes_is_too_long_for_every_call() {
    on_a_mount(|m| {
        fs::write(m.path("f"), "x").unwrap();
        let longest = m.path(&"n".repeat(255));
        fs::rename(m.path("f"), &longest).unwrap();
        fs::rename(&longest, m.path("f")).unwrap();
        assert_eq!(errno(fs::metadata(&longest)), libc::ENOENT);
        for bytes in [256, 1024, 1025] {
            let long = m.path(&"n".repeat(bytes));
            // SAFETY: the path is a C string.
            let mknod = |mode| match unsafe {
                libc::mknod(std::ffi::CString::new(long.as_os_str().as_encoded_bytes()).unwrap().as_ptr(), mode, 0)
            } {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            };
            let results = [
                ("stat", fs::metadata(&long).map(drop)),
                ("open", File::open(&long).map(drop)),
                ("create", File::create(&long).map(drop)),
                ("mknod", mknod(libc::S_IFREG | 0o600)),
                ("mkfifo", mknod(libc::S_IFIFO | 0o600)),
                ("mkdir", fs::create_dir(&long)),
                ("rmdir", fs::remove_dir(&long)),
                ("unlink", fs::remove_file(&long)),
                ("symlink", symlink("f", &long)),
                ("link", fs::hard_link(m.path("f"), &long)),
                ("rename to", fs::rename(m.path("f"), &long)),
                ("rename from", fs::rename(&long, m.path("g"))),
                ("truncate", File::options().write(true).open(&long).map(drop)),
            ];
            for (call, result) in results {
                assert_eq!(errno(result), libc::ENAMETOOLONG, "{call} of a name of {bytes} bytes");
            }
        }
    });
}

#[test]
fn fallocate_reserves_and_punches() {
    on_a_mount(|m| {
        let file = create(&m.path("f"));
        let fallocate = |mode: i32, offset: i64, length: i64| {
            // SAFETY: the descriptor is open.
            match unsafe { libc::fallocate(file.as_raw_fd(), mode, offset, length) } {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        };
        fallocate(0, 0, 3 << 20).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 3 << 20);
        fallocate(libc::FALLOC_FL_KEEP_SIZE, 0, 4 << 20).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 3 << 20);
        file.write_all_at(&vec![1; 3 << 20], 0).unwrap();
        fallocate(libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, 4096, 2 << 20).unwrap();
        let bytes = fs::read(m.path("f")).unwrap();
        let hole = 4096..4096 + (2 << 20);
        assert!(bytes.iter().enumerate().all(|(at, byte)| *byte == u8::from(!hole.contains(&at))));
        assert_eq!(errno(fallocate(libc::FALLOC_FL_COLLAPSE_RANGE, 0, 4096)), libc::EOPNOTSUPP);
    });
}

#[test]
fn locks_memory_maps_and_direct_io_work() {
    on_a_mount(|m| {
        let file = create(&m.path("f"));
        file.write_all_at(&[3; 65536], 0).unwrap();
        file.lock().unwrap();
        assert!(File::open(m.path("f")).unwrap().try_lock().is_err());
        file.unlock().unwrap();
        File::open(m.path("f")).unwrap().try_lock().unwrap();

        // SAFETY: a new shared mapping of an open file that keeps its length; unmapped below.
        let mapped = unsafe {
            let address = libc::mmap(
                std::ptr::null_mut(),
                65536,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            );
            assert_ne!(address, libc::MAP_FAILED);
            std::slice::from_raw_parts_mut(address.cast::<u8>(), 65536)
        };
        assert!(mapped.iter().all(|byte| *byte == 3));
        file.write_all_at(&[4; 10], 100).unwrap();
        assert_eq!(mapped[99..111], [3, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 3]);
        mapped[0] = 9;
        // SAFETY: the mapping made above.
        unsafe {
            assert_eq!(libc::msync(mapped.as_mut_ptr().cast(), 65536, libc::MS_SYNC), 0);
            assert_eq!(libc::munmap(mapped.as_mut_ptr().cast(), 65536), 0);
        }

        let direct = OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(m.path("f")).unwrap();
        let mut memory = vec![0_u8; 3 * 8192];
        let start = memory.as_ptr().align_offset(8192);
        let aligned = &mut memory[start..start + 8192];
        direct.read_exact_at(aligned, 0).unwrap();
        assert_eq!((aligned[0], aligned[1], aligned[100]), (9, 3, 4));
        aligned.fill(5);
        direct.write_all_at(aligned, 8192).unwrap();
        let mut read = [0; 8192];
        file.read_exact_at(&mut read, 8192).unwrap();
        assert_eq!(read, [5; 8192], "a direct write is visible through the page cache");
    });
}

/// `_IOR(0xCE, 1, char[4096])`
const WHICH_CELL: u64 = 0x9000_CE01;

#[test]
fn an_ioctl_on_a_file_returns_its_cell() {
    on_a_mount(|m| {
        fs::create_dir(m.path("base")).unwrap();
        create(&m.path("base/1"));
        let which_cell = |path: &Path, command: u64| {
            let mut answer = vec![0; 4096];
            let file = fs::File::open(path).unwrap();
            // SAFETY: the commands below write at most the buffer's 4096 bytes.
            match unsafe { libc::ioctl(file.as_raw_fd(), command as _, answer.as_mut_ptr()) } {
                -1 => Err(std::io::Error::last_os_error()),
                _ => Ok(String::from_utf8(answer).unwrap().trim_end_matches('\0').to_string()),
            }
        };
        let instance = m.instance.id().to_string();
        let assert_answer = |path: &Path, name: &str| {
            let answer = which_cell(path, WHICH_CELL).unwrap();
            let lines: Vec<&str> = answer.split('\n').collect();
            let [version, socket, found, age, refuses_changes, group_bytes, file] = lines[..] else {
                panic!("{answer:?}")
            };
            assert_eq!([version, socket, found, refuses_changes, file], ["3", "/run/cell.sock", &instance, "0", name]);
            assert_eq!(group_bytes.parse(), Ok(GROUP_BYTES));
            assert!(Duration::from_micros(age.parse().unwrap()) <= m.instance.age());
        };
        assert_answer(&m.path("base/1"), "base/1");
        assert_answer(&m.path("base"), "base");
        assert_answer(&m.root, "");
        fs::rename(m.path("base"), m.path("moved")).unwrap();
        assert_answer(&m.path("moved/1"), "moved/1");
        assert_eq!(errno(which_cell(&m.path("moved/1"), WHICH_CELL + 1)), libc::ENOTTY);
    });
}

#[test]
fn statfs_returns_the_disks_space_and_operations_are_counted() {
    on_a_mount(|m| {
        fs::create_dir_all(m.path("base/5")).unwrap();
        fs::create_dir_all(m.path("pg_wal")).unwrap();
        let data = create(&m.path("base/5/100"));
        data.write_all_at(&[1; 8192], 0).unwrap();
        data.sync_all().unwrap();
        create(&m.path("pg_wal/1")).write_all_at(&[1; 8192], 0).unwrap();
        let find = |database, kind| {
            let snapshot = m.stats.snapshot();
            snapshot.into_iter().find(|line| line.area.database == database && line.kind == kind)
        };
        let line = find(Some(5), FileIoKind::DataFileWrite).unwrap();
        assert_eq!((line.operations, line.bytes, line.histogram.iter().sum::<u64>()), (1, 8192, 1));
        assert_eq!(find(Some(5), FileIoKind::Sync).unwrap().operations, 1);
        assert_eq!(find(None, FileIoKind::WalWrite).unwrap().operations, 1);
        let space = nix::sys::statvfs::statvfs(&m.root).unwrap();
        assert!(space.blocks() >= space.blocks_available() && space.blocks_available() > 0);
    });
}

#[test]
fn scans_and_the_mount_read_the_same_bytes() {
    on_a_mount(|m| {
        let file = create(&m.path("t"));
        file.write_all_at(&vec![1; 2 << 20], 0).unwrap();
        let ino = m.volume.resolve("t").unwrap();
        assert!(m.volume.region(ino, RegionIndex(1)).unwrap().iter().all(|byte| *byte == 1));
        file.write_all_at(&[2; 8192], 1 << 20).unwrap();
        assert_eq!(m.volume.region(ino, RegionIndex(1)).unwrap()[..8192], [2; 8192]);
        assert_eq!(m.volume.size(ino).unwrap(), 2 << 20);
        assert_eq!(m.volume.path_of(ino).unwrap(), "t");
        let missing = fs::metadata(m.path("u")).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::NotFound);
    });
}
