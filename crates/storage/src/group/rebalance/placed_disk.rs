//! A stripe, which the code above uses like a disk: its files are [`PlacedFile`]s, each on one or several containers.

use super::placed_file::PlacedFile;
use super::placement::{FileKey, Placement, file_number, key_of};
use crate::disk::{DiskFile, FileStamp, FileStore, Stream};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

impl Placement {
    /// Returns a stripe, for the code that stripes files over disks.
    pub fn stripe(self: &Arc<Self>, stripe: u16) -> Arc<dyn FileStore> {
        Arc::new(PlacedDisk { placement: self.clone(), stripe })
    }
}

#[derive(Debug)]
pub struct PlacedDisk {
    placement: Arc<Placement>,
    stripe: u16,
}

impl PlacedDisk {
    fn key(&self, ino: u64, stream: Stream) -> FileKey {
        FileKey { ino, stripe: self.stripe, stream }
    }

    fn home(&self) -> &Arc<dyn FileStore> {
        self.placement.container(self.placement.home(self.stripe))
    }

    /// Returns the containers of a file, each with the file's number there.
    fn parts(&self, ino: u64, stream: Stream) -> Vec<(&Arc<dyn FileStore>, u64)> {
        let containers = self.placement.runs(self.key(ino, stream)).containers().into_iter();
        containers.map(|number| (self.placement.container(number), file_number(ino, self.stripe, number))).collect()
    }
}

impl FileStore for PlacedDisk {
    fn path(&self) -> &Path {
        self.home().path()
    }

    fn sync_everything(&self) -> io::Result<()> {
        let containers = self.placement.containers_of(self.stripe);
        containers.into_iter().try_for_each(|number| self.placement.container(number).sync_everything())
    }

    fn open(&self, ino: u64, stream: Stream, create: bool) -> io::Result<Option<Arc<dyn DiskFile>>> {
        let _no_change = create.then(|| self.placement.creation.read());
        let file = PlacedFile::new(self.placement.clone(), self.key(ino, stream));
        Ok(file.open(create)?.then(|| Arc::new(file) as Arc<dyn DiskFile>))
    }

    fn measure(&self, ino: u64, stream: Stream) -> io::Result<(u64, u64)> {
        let mut sum = (0, 0);
        for (container, number) in self.parts(ino, stream) {
            let (length, allocated) = container.measure(number, stream)?;
            sum = (sum.0.max(length), sum.1 + allocated);
        }
        Ok(sum)
    }

    fn stamp(&self, ino: u64, stream: Stream) -> io::Result<Option<FileStamp>> {
        let mut joined: Option<FileStamp> = None;
        for (container, number) in self.parts(ino, stream) {
            let Some(stamp) = container.stamp(number, stream)? else { continue };
            joined = Some(joined.map_or(stamp, |other| FileStamp {
                number: other.number.rotate_left(9) ^ stamp.number,
                length: other.length.max(stamp.length),
                modified: other.modified.wrapping_mul(31).wrapping_add(stamp.modified),
                changed: other.changed.wrapping_mul(31).wrapping_add(stamp.changed),
            }));
        }
        Ok(joined)
    }

    fn kernel_file(&self, ino: u64) -> io::Result<Option<File>> {
        match self.parts(ino, Stream::Data)[..] {
            [(container, number)] => container.kernel_file(number),
            _ => Ok(None),
        }
    }

    fn remove(&self, ino: u64, stream: Stream) -> io::Result<()> {
        let file = self.placement.file(self.key(ino, stream));
        let containers = self.placement.containers_of(self.stripe);
        let removed = {
            let mut state = file.state.write();
            state.is_removed = true;
            state.epoch += 1;
            let epoch = state.epoch;
            containers.into_iter().try_for_each(|number| {
                state.removals.insert(number, epoch);
                self.placement.container(number).remove(file_number(ino, self.stripe, number), stream)
            })
        };
        self.placement.release(file);
        removed
    }

    fn sync_name(&self, ino: u64) -> io::Result<()> {
        let (tail, home) = (self.placement.runs(self.key(ino, Stream::Data)).tail(), self.placement.home(self.stripe));
        let sync = |number: u16| self.placement.container(number).sync_name(file_number(ino, self.stripe, number));
        if tail == home {
            return sync(home);
        }
        // A new file may be on one of them only. [`PlacedFile`] syncs the names of other parts.
        let found = |result: io::Result<()>| match result {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        };
        found(sync(tail))?;
        found(sync(home))
    }

    fn backing_files(&self) -> io::Result<Vec<(u64, Stream)>> {
        let mut files = Vec::new();
        for number in self.placement.containers_of(self.stripe) {
            let listed = self.placement.container(number).backing_files()?.into_iter();
            files.extend(listed.filter_map(|(file, stream)| {
                let (ino, stripe) = key_of(file, number);
                (stripe == self.stripe).then_some((ino, stream))
            }));
        }
        files.sort_unstable();
        files.dedup();
        Ok(files)
    }

    fn has_copies(&self) -> bool {
        self.home().has_copies()
    }

    fn write_waits(&self, ino: u64, stream: Stream, range: &Range<u64>) -> bool {
        let file = self.placement.known(self.key(ino, stream));
        let home = self.placement.home(self.stripe);
        let waits = |range: &Range<u64>, number: u16| {
            self.placement.container(number).write_waits(file_number(ino, self.stripe, number), stream, range)
        };
        let Some(file) = file else { return waits(range, home) };
        let Some(state) = file.state.try_read() else { return true };
        !state.moving.is_empty() || state.runs.pieces(range.clone()).any(|(piece, number)| waits(&piece, number))
    }
}
