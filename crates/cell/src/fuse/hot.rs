//! Reads, writes and syncs for both transports, with their counters.

use super::FileService;
use super::process::with_priority;
use super::reply::attr_out;
use super::ring::{AttrOut, Call, HotPath, OpenOut, Opening};
use cellar_format::units::BLOCK_BYTES;
use cellar_format::wire::FileIoKind;
use cellar_storage::{Error, Ino};
use fuser::WriteFlags;
use std::time::Instant;

impl FileService {
    /// Reads for process `pid`, waiting for the device. `since` is the time at which the request arrived.
    pub(super) fn read_into(
        &self,
        ino: Ino,
        offset: u64,
        buffer: &mut [u8],
        pid: u32,
        since: Instant,
    ) -> Result<usize, Error> {
        let class = self.class_of(ino);
        let read = || self.volume().read(ino, offset, buffer);
        let count = self.within(&class, pid, read).inspect_err(|error| log::error!("read: {error}"))?;
        class.count(read_kind(buffer), count, since.elapsed());
        Ok(count)
    }

    /// Reads unless the read would wait for the device; returns None in that case.
    pub(super) fn try_read_into(
        &self,
        ino: Ino,
        offset: u64,
        buffer: &mut [u8],
        pid: u32,
        since: Instant,
    ) -> Result<Option<usize>, Error> {
        let class = self.class_of(ino);
        let read = || self.volume().try_read(ino, offset, buffer);
        let read = self.within(&class, pid, read).inspect_err(|error| log::error!("read: {error}"))?;
        if let Some(count) = read {
            class.count(read_kind(buffer), count, since.elapsed());
        }
        Ok(read)
    }

    /// Writes for process `pid`. `since` is the time at which the request arrived.
    pub(super) fn write_from(
        &self,
        ino: Ino,
        offset: u64,
        data: &[u8],
        pid: u32,
        since: Instant,
    ) -> Result<usize, Error> {
        let class = self.class_of(ino);
        let volume = self.volume_to_change()?;
        let write = |priority| volume.write_with(ino, offset, data, priority);
        let count = self.within(&class, pid, || with_priority(class.priority, pid, write));
        let count = count.inspect_err(|error| log::error!("write: {error}"))?;
        class.count(FileIoKind::DataFileWrite, count, since.elapsed());
        Ok(count)
    }

    /// Writes unless the write would wait; returns None in that case.
    pub(super) fn try_write_from(
        &self,
        ino: Ino,
        offset: u64,
        data: &[u8],
        pid: u32,
        since: Instant,
    ) -> Result<Option<usize>, Error> {
        let volume = self.volume_to_change()?;
        let class = self.class_of(ino);
        let write = || volume.try_write(ino, offset, data);
        let written = self.within(&class, pid, write).inspect_err(|error| log::error!("write: {error}"))?;
        if let Some(count) = written {
            class.count(FileIoKind::DataFileWrite, count, since.elapsed());
        }
        Ok(written)
    }

    pub(super) fn clear_privileges(&self, ino: Ino) -> Result<(), Error> {
        self.volume_to_change()?.clear_privileges(ino)
    }

    pub(super) fn sync_file(&self, ino: Ino) -> Result<(), Error> {
        let since = Instant::now();
        self.volume().fsync(ino).inspect_err(|error| log::error!("sync: {error}"))?;
        self.class_of(ino).count(FileIoKind::Sync, 0, since.elapsed());
        Ok(())
    }
}

fn read_kind(buffer: &[u8]) -> FileIoKind {
    if buffer.len() <= BLOCK_BYTES { FileIoKind::SingleBlockRead } else { FileIoKind::MultiblockRead }
}

impl HotPath for FileService {
    fn try_read(&self, call: Call, out: &mut [u8], since: Instant) -> Result<Option<usize>, i32> {
        self.try_read_into(call.ino, call.offset, out, call.pid, since).map_err(|error| error.errno())
    }

    fn read(&self, call: Call, out: &mut [u8], since: Instant) -> Result<usize, i32> {
        self.read_into(call.ino, call.offset, out, call.pid, since).map_err(|error| error.errno())
    }

    fn try_write(&self, call: Call, data: &[u8], since: Instant) -> Result<Option<usize>, i32> {
        if call.flags & WriteFlags::FUSE_WRITE_KILL_SUIDGID.bits() != 0 {
            self.clear_privileges(call.ino).map_err(|error| error.errno())?;
        }
        self.try_write_from(call.ino, call.offset, data, call.pid, since).map_err(|error| error.errno())
    }

    fn write(&self, call: Call, data: &[u8], since: Instant) -> Result<usize, i32> {
        self.write_from(call.ino, call.offset, data, call.pid, since).map_err(|error| error.errno())
    }

    fn sync(&self, ino: u64) -> Result<(), i32> {
        self.sync_file(ino).map_err(|error| error.errno())
    }

    fn sync_directory(&self, ino: u64) -> Result<(), i32> {
        self.volume().fsyncdir(ino).map_err(|error| error.errno())
    }

    fn getattr(&self, ino: u64) -> Result<AttrOut, i32> {
        self.volume().getattr(ino).map(|attr| attr_out(&attr)).map_err(|error| error.errno())
    }

    fn try_open(&self, ino: u64) -> Opening {
        match self.opens() {
            Some(opens) => opens.try_open(ino, || self.passes_through(ino)).map_or(Opening::Wait, Opening::Done),
            None => Opening::Forward,
        }
    }

    fn open(&self, ino: u64) -> OpenOut {
        match self.opens() {
            Some(opens) => {
                // Accesses of the kernel cannot be refused.
                let accepts_changes = self.volume_to_change().is_ok();
                opens.open(ino, self.volume(), accepts_changes && self.passes_through(ino))
            }
            None => OpenOut::default(),
        }
    }

    fn release(&self, ino: u64) -> bool {
        self.opens().map(|opens| opens.release(ino)).is_some()
    }
}
