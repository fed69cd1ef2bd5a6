//! The FUSE operations on a volume.
//!
//! There are no file handles: the kernel opens files without a request (`FUSE_NO_OPEN_SUPPORT`), and the kernel's
//! reference to the inode keeps an unlinked open file alive. The kernel's page cache is write-through. All changes of a
//! file go through the mount, so the kernel's cached pages always equal the volume's content.
//!
//! Requests that may wait for a sync, a metadata transaction, a file's locks, a read from a device or a measurement of free space
//! run on worker threads. `docs/decisions/0011-requests-that-wait-leave-the-queue.md` lists these requests.

use super::class::first_segment;
use super::process::with_priority;
use super::reply::{TTL, absent, errno, file_attr, file_type, nanoseconds};
use super::{FLASH_CACHE, FLASH_CACHE_BYTES, FLASH_CACHE_READ, FileService, Shared, WHICH_CELL, WHICH_CELL_BYTES};
use cellar_format::wire::FileType;
use cellar_storage::{
    Attr, Error, ErrorKind, Fallocate, FlashSetting, Ino, Kind, NewNode, RenameMode, SetAttr, SetTime, Volume,
};
use fuser::{
    BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    IoctlFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Instant, SystemTime};

/// Maximum bytes of a read request, and of a request's buffer.
pub const REQUEST_BYTES_MAX: u32 = 1 << 20;
/// Maximum bytes of a write request. The kernel splits longer writes. A queue's thread copies the bytes to the backing file,
/// and other requests of its CPU wait meanwhile: 0.3 ms for 1 MiB.
const WRITE_BYTES_MAX: u32 = 128 << 10;
/// Maximum number of asynchronous requests that the kernel sends ahead for the mount: buffered reads, read-ahead and
/// asynchronous direct I/O. Further ones wait in the kernel. Each may occupy a buffer of [`REQUEST_BYTES_MAX`].
const BACKGROUND_MAX: u16 = 256;
/// Cookies of `.` and `..` in a directory listing; the entries' cookies follow.
const DOT: u64 = 1;
const DOT_DOT: u64 = 2;

/// Optional kernel features. The service works without each of them.
const WANTED: [InitFlags; 10] = [
    InitFlags::FUSE_EXPLICIT_INVAL_DATA,
    InitFlags::FUSE_PARALLEL_DIROPS,
    InitFlags::FUSE_ASYNC_DIO,
    InitFlags::FUSE_CACHE_SYMLINKS,
    InitFlags::FUSE_NO_OPEN_SUPPORT,
    InitFlags::FUSE_NO_OPENDIR_SUPPORT,
    InitFlags::FUSE_HANDLE_KILLPRIV_V2,
    InitFlags::FUSE_HAS_IOCTL_DIR,
    InitFlags::FUSE_BIG_WRITES,
    InitFlags::FUSE_OVER_IO_URING,
];

fn reply_entry(result: cellar_storage::Result<Attr>, reply: ReplyEntry) {
    match result {
        Ok(attr) => reply.entry(&TTL, &file_attr(&attr), Generation(0)),
        Err(error) => reply.error(errno(&error)),
    }
}

fn reply_attr(result: cellar_storage::Result<Attr>, reply: ReplyAttr) {
    match result {
        Ok(attr) => reply.attr(&TTL, &file_attr(&attr)),
        Err(error) => reply.error(errno(&error)),
    }
}

fn reply_empty(result: cellar_storage::Result<()>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(&error)),
    }
}

fn new_node<'a>(request: &Request, kind: Kind, mode: u32, target: &'a [u8]) -> NewNode<'a> {
    NewNode { kind, mode: (mode & 0o7777) as u16, uid: request.uid(), gid: request.gid(), device: 0, target }
}

fn set_time(time: TimeOrNow) -> SetTime {
    match time {
        TimeOrNow::SpecificTime(time) => SetTime::To(nanoseconds(time)),
        TimeOrNow::Now => SetTime::Now,
    }
}

/// Gives another segment or fork of a relation the flash cache setting of the first segment.
fn inherit_flash_setting(volume: &Volume, parent: Ino, name: &OsStr, ino: Ino) {
    let first = name.to_str().and_then(first_segment).and_then(|first| volume.entry(parent, first.as_bytes()));
    match first.and_then(|first| volume.flash_setting(first)) {
        None | Some(FlashSetting::Default) => {}
        Some(setting) => volume.set_flash_setting_of_new(ino, setting),
    }
}

impl FileService {
    /// Returns the answer to [`WHICH_CELL`], one per line: format version; socket; instance of the daemon; microseconds
    /// since the daemon's start; 1 while the cell refuses changes, else 0; limit of the memory for groups in bytes; path
    /// relative to the mount's root.
    fn which_cell(&self, ino: Ino) -> cellar_storage::Result<Vec<u8>> {
        let no_name = || Error::new(ErrorKind::NotFound, format!("inode {ino} has no name"));
        let path = self.volume().path_of(ino).ok_or_else(no_name)?;
        let Shared { socket, group_bytes, instance, .. } = &*self.shared;
        let (socket, age, refuses_changes) =
            (socket.display(), instance.age().as_micros(), u8::from(instance.refuses_changes()));
        let instance = instance.id();
        Ok(format!("3\n{socket}\n{instance}\n{age}\n{refuses_changes}\n{group_bytes}\n{path}").into_bytes())
    }

    fn create_node(&self, parent: INodeNo, name: &OsStr, new: &NewNode<'_>) -> cellar_storage::Result<Attr> {
        let volume = self.volume_to_change()?;
        let attr = volume.create(parent.0, name.as_bytes(), new)?;
        if new.kind == Kind::File {
            inherit_flash_setting(volume, parent.0, name, attr.ino);
        }
        Ok(attr)
    }

    /// Answers the ioctl [`FLASH_CACHE`] of a user.
    fn flash_cache(&self, ino: Ino, uid: u32, input: &[u8]) -> Result<[u8; FLASH_CACHE_BYTES], Errno> {
        let number = input.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes)).ok_or(Errno::EINVAL)?;
        let setting = match number {
            FLASH_CACHE_READ => None,
            code => Some(u8::try_from(code).ok().and_then(FlashSetting::from_code).ok_or(Errno::EINVAL)?),
        };
        let attr = self.volume().getattr(ino).map_err(|error| errno(&error))?;
        if uid != 0 && uid != attr.uid {
            return Err(Errno::EPERM);
        }
        let content = self.volume().flash_content(ino).ok_or(Errno::ENODEV)?;
        if let Some(setting) = setting {
            let changed = self.volume_to_change().and_then(|volume| volume.set_flash_setting(ino, setting));
            changed.map_err(|error| errno(&error))?;
        }
        let numbers = [content.setting as u64, content.cached_bytes, content.hits, content.misses];
        let mut answer = [0; FLASH_CACHE_BYTES];
        for (at, number) in answer.chunks_exact_mut(8).zip(numbers) {
            at.copy_from_slice(&number.to_ne_bytes());
        }
        Ok(answer)
    }
}

impl Filesystem for FileService {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        for flag in WANTED {
            if flag == InitFlags::FUSE_OVER_IO_URING && !self.use_ring {
                continue;
            }
            if config.add_capabilities(flag).is_err() {
                log::debug!("the kernel does not support {flag:?}");
            }
        }
        // A refused setting returns the largest value that the kernel accepts.
        let _ = config.set_max_write(WRITE_BYTES_MAX);
        if let Err(most) = config.set_max_readahead(REQUEST_BYTES_MAX) {
            let _ = config.set_max_readahead(most);
        }
        let _ = config.set_max_background(BACKGROUND_MAX);
        // Linux passes files through on a file system that may be at most one level of a stack.
        if self.use_ring && self.volume().passes_through(FileType::Wal) {
            let is_supported = config.add_capabilities(InitFlags::FUSE_PASSTHROUGH).is_ok();
            let can_pass_through = is_supported && config.set_max_stack_depth(1).is_ok();
            self.shared.can_pass_through.store(can_pass_through, Ordering::Release);
        }
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.volume().lookup(parent.0, name.as_bytes()) {
            Err(error) if error.kind() == ErrorKind::NotFound => reply.entry(&TTL, &absent(), Generation(0)),
            result => reply_entry(result, reply),
        }
    }

    fn forget(&self, _request: &Request, ino: INodeNo, references: u64) {
        self.shared.classes.forget(ino.0);
        self.volume().forget(ino.0, references);
        if let Some(opens) = self.opens() {
            opens.forget(ino.0, self.volume());
        }
    }

    fn getattr(&self, _request: &Request, ino: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        reply_attr(self.volume().getattr(ino.0), reply);
    }

    fn setattr(
        &self,
        _request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        // The kernel's request to clear set-user-id and set-group-id alone, before a fallocate and for a chown that changes
        // neither user nor group, has no attribute to set.
        let is_empty =
            mode.is_none() && uid.is_none() && gid.is_none() && size.is_none() && atime.is_none() && mtime.is_none();
        if (size.is_some() || is_empty)
            && let Err(error) = self.clear_privileges(ino.0)
        {
            return reply.error(errno(&error));
        }
        let mode = mode.map(|mode| (mode & 0o7777) as u16);
        let set = SetAttr { mode, uid, gid, size, atime: atime.map(set_time), mtime: mtime.map(set_time) };
        let change = move |service: &Self| service.volume_to_change().and_then(|volume| volume.setattr(ino.0, &set));
        match size {
            // A truncate through compression units is durable on return.
            Some(_) => self.run_waiting(move |service| reply_attr(change(service), reply)),
            None => reply_attr(change(self), reply),
        }
    }

    fn readlink(&self, _request: &Request, ino: INodeNo, reply: ReplyData) {
        match self.volume().readlink(ino.0) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        let kind = match mode & libc::S_IFMT {
            libc::S_IFREG | 0 => Kind::File,
            libc::S_IFIFO => Kind::Fifo,
            libc::S_IFSOCK => Kind::Socket,
            libc::S_IFCHR => Kind::CharDevice,
            libc::S_IFBLK => Kind::BlockDevice,
            _ => return reply.error(Errno::EINVAL),
        };
        reply_entry(self.create_node(parent, name, &NewNode { device, ..new_node(request, kind, mode, &[]) }), reply);
    }

    fn mkdir(&self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, _umask: u32, reply: ReplyEntry) {
        reply_entry(self.create_node(parent, name, &new_node(request, Kind::Directory, mode, &[])), reply);
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let new = new_node(request, Kind::Symlink, 0o777, target.as_os_str().as_bytes());
        reply_entry(self.create_node(parent, name, &new), reply);
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        match self.create_node(parent, name, &new_node(request, Kind::File, mode, &[])) {
            Ok(attr) => {
                if let Some(opens) = self.opens() {
                    opens.created(attr.ino);
                }
                let flags = FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH;
                reply.created(&TTL, &file_attr(&attr), Generation(0), FileHandle(0), flags);
            }
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn unlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply_empty(self.volume_to_change().and_then(|volume| volume.unlink(parent.0, name.as_bytes())), reply);
    }

    fn rmdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply_empty(self.volume_to_change().and_then(|volume| volume.rmdir(parent.0, name.as_bytes())), reply);
    }

    fn rename(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let mode = match flags {
            flags if flags.is_empty() => RenameMode::Replace,
            RenameFlags::RENAME_NOREPLACE => RenameMode::NoReplace,
            RenameFlags::RENAME_EXCHANGE => RenameMode::Exchange,
            _ => return reply.error(Errno::EINVAL),
        };
        let (from, to) = ((parent.0, name.as_bytes()), (new_parent.0, new_name.as_bytes()));
        let result = self.volume_to_change().and_then(|volume| volume.rename(from, to, mode));
        if result.is_ok()
            && parent != new_parent
            && let Some(ino) = self.volume().entry(to.0, to.1)
        {
            self.shared.classes.forget(ino);
        }
        reply_empty(result, reply);
    }

    fn link(&self, _request: &Request, ino: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let linked = self.volume_to_change().and_then(|volume| volume.link(ino.0, parent.0, name.as_bytes()));
        reply_entry(linked, reply);
    }

    fn open(&self, _request: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        // ENOSYS lets the kernel open all files without a request from now on.
        reply.error(Errno::ENOSYS);
    }

    fn release(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn opendir(&self, _request: &Request, _ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        reply.error(Errno::ENOSYS);
    }

    fn read(
        &self,
        request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let (since, pid, mut buffer) = (Instant::now(), request.pid(), vec![0; size as usize]);
        match self.try_read_into(ino.0, offset, &mut buffer, pid, since) {
            Ok(Some(count)) => reply.data(&buffer[..count]),
            Ok(None) => {
                self.run_waiting(move |service| match service.read_into(ino.0, offset, &mut buffer, pid, since) {
                    Ok(count) => reply.data(&buffer[..count]),
                    Err(error) => reply.error(errno(&error)),
                })
            }
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn write(
        &self,
        request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        if write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID)
            && let Err(error) = self.clear_privileges(ino.0)
        {
            return reply.error(errno(&error));
        }
        let (since, pid) = (Instant::now(), request.pid());
        match self.try_write_from(ino.0, offset, data, pid, since) {
            Ok(Some(count)) => reply.written(count as u32),
            Ok(None) => {
                let data = data.to_vec();
                self.run_waiting(move |service| match service.write_from(ino.0, offset, &data, pid, since) {
                    Ok(count) => reply.written(count as u32),
                    Err(error) => reply.error(errno(&error)),
                });
            }
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn flush(&self, _request: &Request, _ino: INodeNo, _handle: FileHandle, _owner: LockOwner, reply: ReplyEmpty) {
        // Closing a descriptor has no effect here; ENOSYS stops further flush requests.
        reply.error(Errno::ENOSYS);
    }

    fn fsync(&self, _request: &Request, ino: INodeNo, _handle: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        // The kernel locks the inode during this request: writes and fallocate of the same file wait in the kernel.
        self.run_waiting(move |service| reply_empty(service.sync_file(ino.0), reply));
    }

    fn fsyncdir(&self, _request: &Request, ino: INodeNo, _handle: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        self.run_waiting(move |service| reply_empty(service.volume().fsyncdir(ino.0), reply));
    }

    fn readdir(&self, _request: &Request, ino: INodeNo, _handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let parent = match self.volume().parent_of(ino.0) {
            Ok(parent) => parent,
            Err(error) => return reply.error(errno(&error)),
        };
        let dots = [(DOT, ino, "."), (DOT_DOT, INodeNo(parent), "..")];
        for (cookie, ino, name) in dots {
            if offset < cookie && reply.add(ino, cookie, fuser::FileType::Directory, name) {
                return reply.ok();
            }
        }
        let result = self.volume().readdir(ino.0, offset.saturating_sub(DOT_DOT), |entry| {
            let name = OsStr::from_bytes(entry.name);
            !reply.add(INodeNo(entry.ino), entry.cookie + DOT_DOT, file_type(entry.kind), name)
        });
        match result {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn statfs(&self, _request: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        const UNIT: u64 = 4096;
        self.run_waiting(|service| match service.volume().statfs() {
            Ok(space) => reply.statfs(
                space.total / UNIT,
                space.free / UNIT,
                space.available / UNIT,
                space.files,
                space.files_free,
                UNIT as u32,
                255,
                UNIT as u32,
            ),
            Err(error) => reply.error(errno(&error)),
        });
    }

    fn ioctl(
        &self,
        request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        _flags: IoctlFlags,
        command: u32,
        input: &[u8],
        _output_bytes: u32,
        reply: ReplyIoctl,
    ) {
        if command == FLASH_CACHE {
            let (uid, input) = (request.uid(), input.to_vec());
            return self.run_waiting(move |service| match service.flash_cache(ino.0, uid, &input) {
                Ok(answer) => reply.ioctl(0, &answer),
                Err(errno) => reply.error(errno),
            });
        }
        if command != WHICH_CELL {
            return reply.error(Errno::ENOTTY);
        }
        match self.which_cell(ino.0) {
            Ok(answer) if answer.len() < WHICH_CELL_BYTES => reply.ioctl(0, &answer),
            Ok(_) => reply.error(Errno::ENAMETOOLONG),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn fallocate(
        &self,
        request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let keep_size = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
        let operation = match mode & !libc::FALLOC_FL_KEEP_SIZE {
            0 => Fallocate::Reserve { keep_size },
            libc::FALLOC_FL_PUNCH_HOLE if keep_size => Fallocate::PunchHole,
            libc::FALLOC_FL_ZERO_RANGE => Fallocate::Zero { keep_size },
            _ => return reply.error(Errno::EOPNOTSUPP),
        };
        let pid = request.pid();
        self.run_waiting(move |service| {
            let fallocate =
                |priority| service.volume_to_change()?.fallocate_with(ino.0, offset, length, operation, priority);
            reply_empty(with_priority(service.class_of(ino.0).priority, pid, fallocate), reply);
        });
    }

    fn lseek(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        _offset: i64,
        _whence: i32,
        reply: ReplyLseek,
    ) {
        // SEEK_DATA and SEEK_HOLE: with ENOSYS the kernel treats the whole file as data.
        reply.error(Errno::ENOSYS);
    }

    fn copy_file_range(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: FileHandle,
        offset: u64,
        ino_out: INodeNo,
        _handle_out: FileHandle,
        offset_out: u64,
        length: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        // The reply has 32 bits for the count. Callers continue after a short copy.
        let length = length.min(1 << 30);
        self.run_waiting(move |service| {
            let copied = service
                .volume_to_change()
                .and_then(|volume| volume.copy_range((ino.0, offset), (ino_out.0, offset_out), length));
            match copied {
                Ok(count) => reply.written(count as u32),
                Err(error) => reply.error(errno(&error)),
            }
        });
    }
}
