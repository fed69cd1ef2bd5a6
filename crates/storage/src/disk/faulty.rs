//! A disk for tests that wraps another engine and injects seeded errors and panics, and holds operations.
//!
//! A failed operation does not reach the wrapped engine. The exception is a failed write: a random prefix of its bytes
//! is written.
//!
//! A lost write is acknowledged and does not reach the wrapped engine. Reads return its bytes, as from the operating
//! system's page cache, until [`FaultyDisk::drop_lost_writes`].

use super::{Disk, DiskFile, FileStamp, ModelStatus, Space, Stream, no_wait};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// An operation that fails with `errno`, on average once in `one_in` calls; never if `one_in` is 0.
#[derive(Debug, Clone, Copy)]
pub enum Fault {
    Read {
        errno: i32,
        one_in: u64,
    },
    Write {
        errno: i32,
        one_in: u64,
    },
    Sync {
        errno: i32,
        one_in: u64,
    },
    /// Every sync waits until the faults are replaced.
    HeldSync,
    /// Every sync takes a time, and on average once in `one_in` calls a longer one.
    SlowSync {
        usual: Duration,
        outlier: Duration,
        one_in: u64,
    },
    /// Every read waits until the faults are replaced.
    HeldRead,
    /// Every read of one inode's files waits until the faults are replaced.
    HeldReadOf {
        ino: u64,
    },
    /// Every measurement of free space, and every change of a file's length, waits until the faults are replaced.
    HeldSpace,
    /// Every read after the first `after` reads panics.
    ReadPanic {
        after: u64,
    },
    /// Every write and every punch panics.
    WritePanic,
    /// Loses writes of one stream without an error.
    LoseWrite {
        stream: Stream,
        one_in: u64,
    },
}

/// A write that was acknowledged and is not in the wrapped engine.
#[derive(Debug)]
struct LostWrite {
    ino: u64,
    stream: Stream,
    offset: u64,
    data: Vec<u8>,
}

impl LostWrite {
    /// Returns the bytes of the write that fall into a range, and the part of the range that they fill.
    fn overlap(&mut self, offset: u64, length: usize) -> Option<(&mut [u8], Range<usize>)> {
        let start = self.offset.max(offset);
        let end = (self.offset + self.data.len() as u64).min(offset + length as u64);
        (start < end).then(|| {
            let own = (start - self.offset) as usize..(end - self.offset) as usize;
            (&mut self.data[own], (start - offset) as usize..(end - offset) as usize)
        })
    }
}

#[derive(Debug)]
struct State {
    random: u64,
    faults: Vec<Fault>,
    injected: u64,
    bytes_written: u64,
    syncs: u64,
    /// Operations that wait now.
    held: usize,
    panics: u64,
    /// Since the faults were set.
    reads: u64,
    /// In the order of the writes.
    lost: Vec<LostWrite>,
}

impl State {
    fn lost_in(&mut self, ino: u64, stream: Stream) -> impl Iterator<Item = &mut LostWrite> {
        self.lost.iter_mut().filter(move |lost| (lost.ino, lost.stream) == (ino, stream))
    }

    fn next(&mut self) -> u64 {
        // xorshift64*
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11
    }

    fn maybe_fail(&mut self, one_in: u64, errno: i32) -> io::Result<()> {
        if one_in != 0 && self.next().is_multiple_of(one_in) {
            self.injected += 1;
            return Err(io::Error::from_raw_os_error(errno));
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Injector {
    state: Mutex<State>,
    faults_changed: Condvar,
}

impl Injector {
    fn set(&self, faults: &[Fault]) {
        let mut state = self.state.lock();
        (state.faults, state.reads) = (faults.to_vec(), 0);
        self.faults_changed.notify_all();
    }

    /// Waits while a fault holds the operation.
    fn wait_while(&self, state: &mut MutexGuard<'_, State>, is_held: impl Fn(&Fault) -> bool) {
        while state.faults.iter().any(&is_held) {
            state.held += 1;
            self.faults_changed.wait(state);
            state.held -= 1;
        }
    }

    fn read(&self, place: Option<(u64, Stream)>) -> io::Result<()> {
        let mut state = self.state.lock();
        state.reads += 1;
        let is_held = |fault: &Fault| match fault {
            Fault::HeldRead => true,
            Fault::HeldReadOf { ino } => place.is_some_and(|(of, _)| of == *ino),
            _ => false,
        };
        if no_wait::is_on() && state.faults.iter().any(is_held) {
            return Err(no_wait::would_wait());
        }
        self.wait_while(&mut state, is_held);
        for fault in state.faults.clone() {
            match fault {
                Fault::Read { errno, one_in } => state.maybe_fail(one_in, errno)?,
                Fault::ReadPanic { after } if state.reads > after => {
                    state.panics += 1;
                    panic!("injected panic of a read");
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn maybe_panic_in_write(&self) {
        let mut state = self.state.lock();
        if state.faults.iter().any(|fault| matches!(fault, Fault::WritePanic)) {
            state.panics += 1;
            panic!("injected panic of a write");
        }
    }

    /// On failure, returns also how many of the `length` bytes still reach the disk.
    fn write(&self, length: usize) -> Result<(), (usize, io::Error)> {
        self.maybe_panic_in_write();
        let mut state = self.state.lock();
        for fault in state.faults.clone() {
            if let Fault::Write { errno, one_in } = fault
                && let Err(error) = state.maybe_fail(one_in, errno)
            {
                return Err((state.next() as usize % (length + 1), error));
            }
        }
        state.bytes_written += length as u64;
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.delay_sync();
        self.sleep_in_sync();
        let mut state = self.state.lock();
        for fault in state.faults.clone() {
            if let Fault::Sync { errno, one_in } = fault {
                state.maybe_fail(one_in, errno)?;
            }
        }
        Ok(())
    }

    fn sleep_in_sync(&self) {
        let time = {
            let mut state = self.state.lock();
            let random = state.next();
            state.faults.iter().find_map(|fault| match fault {
                Fault::SlowSync { outlier, one_in, .. } if random.is_multiple_of(*one_in) => Some(*outlier),
                Fault::SlowSync { usual, .. } => Some(*usual),
                _ => None,
            })
        };
        time.into_iter().for_each(std::thread::sleep);
    }

    fn delay_sync(&self) {
        let mut state = self.state.lock();
        state.syncs += 1;
        self.wait_while(&mut state, |fault| matches!(fault, Fault::HeldSync));
    }

    fn delay_space(&self) {
        self.wait_while(&mut self.state.lock(), |fault| matches!(fault, Fault::HeldSpace));
    }
}

#[derive(Debug)]
pub struct FaultyDisk {
    inner: Arc<dyn Disk>,
    injector: Arc<Injector>,
    named_injector: Arc<Injector>,
}

impl FaultyDisk {
    /// Wraps `inner`; injects no fault until [`FaultyDisk::set_faults`].
    pub fn new(inner: Arc<dyn Disk>, seed: u64) -> Self {
        let injector = || {
            let state = State {
                random: seed | 1,
                faults: Vec::new(),
                injected: 0,
                bytes_written: 0,
                syncs: 0,
                held: 0,
                panics: 0,
                reads: 0,
                lost: Vec::new(),
            };
            Arc::new(Injector { state: Mutex::new(state), faults_changed: Condvar::new() })
        };
        Self { inner, injector: injector(), named_injector: injector() }
    }

    /// Replaces the faults of backing files.
    pub fn set_faults(&self, faults: &[Fault]) {
        self.injector.set(faults);
    }

    /// Makes reads return what the wrapped engine contains instead of lost writes. Returns the number of lost writes.
    pub fn drop_lost_writes(&self) -> usize {
        std::mem::take(&mut self.injector.state.lock().lost).len()
    }

    /// Replaces the faults of named files, such as the metadata store; notes never fail.
    pub fn set_named_faults(&self, faults: &[Fault]) {
        self.named_injector.set(faults);
    }

    /// Returns the bytes of all complete writes to named files so far.
    pub fn named_bytes_written(&self) -> u64 {
        self.named_injector.state.lock().bytes_written
    }

    /// Returns the number of syncs so far, of files and of the whole disk.
    pub fn syncs(&self) -> u64 {
        self.injector.state.lock().syncs + self.named_injector.state.lock().syncs
    }

    /// Returns the number of operations that a fault makes wait now.
    pub fn held(&self) -> usize {
        self.injector.state.lock().held + self.named_injector.state.lock().held
    }

    /// Returns the number of panics injected so far.
    pub fn panics(&self) -> u64 {
        self.injector.state.lock().panics + self.named_injector.state.lock().panics
    }

    /// Returns the number of errors injected so far.
    pub fn injected(&self) -> u64 {
        self.injector.state.lock().injected + self.named_injector.state.lock().injected
    }
}

impl Disk for FaultyDisk {
    fn path(&self) -> &Path {
        self.inner.path()
    }
    fn lock(&self) -> io::Result<bool> {
        self.inner.lock()
    }
    fn is_blank(&self) -> io::Result<bool> {
        self.inner.is_blank()
    }
    fn read_note(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        self.inner.read_note(name)
    }
    fn write_note(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.inner.write_note(name, bytes)
    }
    fn open_named(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let inner = self.inner.open_named(name)?;
        Ok(Arc::new(FaultyFile { inner, injector: self.named_injector.clone(), place: None }))
    }
    fn open_existing(&self, name: &str) -> io::Result<Option<Arc<dyn DiskFile>>> {
        let wrap = |inner| FaultyFile { inner, injector: self.named_injector.clone(), place: None };
        Ok(self.inner.open_existing(name)?.map(|inner| Arc::new(wrap(inner)) as Arc<dyn DiskFile>))
    }
    fn remove_named(&self, name: &str) -> io::Result<()> {
        self.inner.remove_named(name)
    }
    fn open(&self, ino: u64, stream: Stream, create: bool) -> io::Result<Option<Arc<dyn DiskFile>>> {
        let place = Some((ino, stream));
        let wrap = |inner| Arc::new(FaultyFile { inner, injector: self.injector.clone(), place }) as Arc<dyn DiskFile>;
        Ok(self.inner.open(ino, stream, create)?.map(wrap))
    }
    fn measure(&self, ino: u64, stream: Stream) -> io::Result<(u64, u64)> {
        self.inner.measure(ino, stream)
    }
    fn stamp(&self, ino: u64, stream: Stream) -> io::Result<Option<FileStamp>> {
        self.inner.stamp(ino, stream)
    }
    fn remove(&self, ino: u64, stream: Stream) -> io::Result<()> {
        self.inner.remove(ino, stream)
    }
    fn sync_name(&self, ino: u64) -> io::Result<()> {
        self.injector.sync()?;
        self.inner.sync_name(ino)
    }
    fn backing_files(&self) -> io::Result<Vec<(u64, Stream)>> {
        self.inner.backing_files()
    }
    fn space(&self) -> io::Result<Space> {
        self.injector.delay_space();
        self.inner.space()
    }
    fn sync_everything(&self) -> io::Result<()> {
        self.injector.delay_sync();
        self.inner.sync_everything()
    }
    fn writes_wait(&self) -> bool {
        self.inner.writes_wait()
    }

    fn model_status(&self) -> Option<ModelStatus> {
        self.inner.model_status()
    }
}

#[derive(Debug)]
struct FaultyFile {
    inner: Arc<dyn DiskFile>,
    injector: Arc<Injector>,
    /// Inode and stream; None for a named file.
    place: Option<(u64, Stream)>,
}

impl FaultyFile {
    /// Returns whether the disk loses this write; remembers the bytes for reads.
    fn lose(&self, data: &[u8], offset: u64) -> bool {
        let Some((ino, stream)) = self.place else { return false };
        let mut state = self.injector.state.lock();
        let one_in = state.faults.iter().find_map(|fault| match fault {
            Fault::LoseWrite { stream: of, one_in } if *of == stream => Some(*one_in),
            _ => None,
        });
        let is_lost = one_in.is_some_and(|one_in| one_in != 0 && state.next().is_multiple_of(one_in));
        if is_lost {
            state.injected += 1;
            state.lost.push(LostWrite { ino, stream, offset, data: data.to_vec() });
        }
        is_lost
    }

    /// Calls `visit` with each lost byte string of this file in a range, and the part of the range that it fills.
    fn for_each_lost(&self, offset: u64, length: usize, mut visit: impl FnMut(&mut [u8], Range<usize>)) {
        let Some((ino, stream)) = self.place else { return };
        let mut state = self.injector.state.lock();
        for lost in state.lost_in(ino, stream) {
            if let Some((bytes, part)) = lost.overlap(offset, length) {
                visit(bytes, part);
            }
        }
    }
}

impl DiskFile for FaultyFile {
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.injector.read(self.place)?;
        let count = self.inner.read_at(buffer, offset)?;
        self.for_each_lost(offset, count, |lost, part| buffer[part].copy_from_slice(lost));
        Ok(count)
    }
    fn prefetch(&self, ranges: &[Range<u64>]) {
        self.inner.prefetch(ranges);
    }
    fn read_direct(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.injector.read(self.place)?;
        let count = self.inner.read_direct(buffer, offset)?;
        self.for_each_lost(offset, count, |lost, part| buffer[part].copy_from_slice(lost));
        Ok(count)
    }
    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        match self.injector.write(data.len()) {
            Ok(()) if self.lose(data, offset) => {
                // The length of the file is metadata, which a disk that loses a write of data keeps.
                let end = offset + data.len() as u64;
                if self.inner.len()? < end { self.inner.set_len(end) } else { Ok(()) }
            }
            Ok(()) => {
                self.inner.write_at(data, offset)?;
                self.for_each_lost(offset, data.len(), |lost, part| lost.copy_from_slice(&data[part]));
                Ok(())
            }
            Err((arrived, error)) => {
                self.inner.write_at(&data[..arrived], offset)?;
                Err(error)
            }
        }
    }
    fn set_len(&self, length: u64) -> io::Result<()> {
        self.injector.delay_space();
        self.inner.set_len(length)
    }
    fn allocate(&self, offset: u64, length: u64, keep_size: bool) -> io::Result<()> {
        self.injector.write(0).map_err(|(_, error)| error)?;
        self.inner.allocate(offset, length, keep_size)
    }
    fn punch(&self, offset: u64, length: u64) -> io::Result<()> {
        self.injector.maybe_panic_in_write();
        self.inner.punch(offset, length)?;
        self.for_each_lost(offset, length as usize, |lost, _| lost.fill(0));
        Ok(())
    }
    fn is_hole(&self, offset: u64, length: u64) -> io::Result<bool> {
        let mut is_lost = false;
        self.for_each_lost(offset, length as usize, |_, _| is_lost = true);
        Ok(!is_lost && self.inner.is_hole(offset, length)?)
    }
    fn has_unwritten_space(&self, offset: u64, length: u64) -> io::Result<bool> {
        self.inner.has_unwritten_space(offset, length)
    }
    fn sync(&self) -> io::Result<()> {
        self.injector.sync()?;
        self.inner.sync()
    }
}
