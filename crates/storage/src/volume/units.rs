//! Compression units: storing one in place of an allocation unit's raw pages, reading it, going back to raw pages.

use super::settle::{Chore, fail_unasked};
use super::{Ino, Volume};
use crate::cache::Cache;
use crate::error::{Error, ErrorKind, Result};
use crate::file::{
    BATCH_PAGES, CachedUnit, CountedBytes, Extent, FileData, PAGE, PAGE_BYTES, PageSet, Place, PlaceImage, PlaceReader,
    Units, not_rebuilt,
};
use cellar_format::ByteSource;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What came of storing a compression unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnitStored {
    Stored,
    /// The allocation unit is not what was encoded any more; it stays as it is.
    Changed,
    /// Somebody still reads a former unit of this allocation unit; try again later.
    Busy,
}

/// The form of one allocation unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnitForm {
    Raw,
    /// `dead` are the pages that lie raw, of those that the unit holds.
    Unit {
        bytes: u64,
        tag: u32,
        dead: PageSet,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitInfo {
    pub au: u64,
    pub form: UnitForm,
    pub version: u64,
}

/// A compression unit as it was at one moment; its bytes stay readable when it is replaced.
#[derive(Debug)]
pub struct UnitReader {
    /// Holds the file's room.
    _file: Arc<FileData>,
    extent: Arc<Extent>,
    dead: PageSet,
    version: u64,
    disk_bytes: AtomicU64,
    disk_requests: AtomicU64,
    cache: Arc<Cache>,
    /// Frames that the page cache evicted since somebody asked for it before.
    evicted_since: Option<u64>,
}

impl UnitReader {
    /// The allocation unit's version that the bytes and the dead pages are of; compare it with
    /// [`Volume::au_version`].
    pub fn version(&self) -> u64 {
        self.version
    }

    pub fn tag(&self) -> u32 {
        self.extent.tag
    }

    /// As which unit a codec knows it.
    pub fn id(&self) -> u64 {
        self.extent.place.id
    }

    /// The pages that are not current in the unit; its count is the number of pages that the unit holds. Pages of the
    /// allocation unit after those are raw.
    pub fn dead(&self) -> &PageSet {
        &self.dead
    }

    /// Bytes read from disk through this reader so far, and the requests for them.
    pub fn disk_read(&self) -> (u64, u64) {
        (self.disk_bytes.load(Ordering::Relaxed), self.disk_requests.load(Ordering::Relaxed))
    }

    /// The bytes in the page cache, loaded as they are asked for. None the first time that anybody asks for the unit:
    /// what is scanned once reads no more than the columns that it needs, and drives nothing out of the cache. Nothing
    /// is loaded either when half of the cache went since the last time: the unit would be gone, too, before the next.
    pub fn in_cache(&self) -> Option<CachedUnit<'_>> {
        self.evicted_since
            .map(|evicted| CachedUnit::new(self, &self.extent.place, &self.cache, evicted < self.cache.frames() / 2))
    }
}

impl CountedBytes for UnitReader {
    fn count(&self, bytes: u64, requests: u64) {
        self.disk_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.disk_requests.fetch_add(requests, Ordering::Relaxed);
    }
}

impl UnitReader {
    fn counted(&self, read: impl FnOnce(&PlaceReader<'_>) -> io::Result<()>) -> io::Result<()> {
        let reader = PlaceReader::new(&self.extent.place);
        let result = read(&reader);
        let (bytes, requests) = reader.cost();
        self.count(bytes, requests);
        result
    }
}

impl ByteSource for UnitReader {
    fn length(&self) -> u64 {
        u64::from(self.extent.place.length)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.counted(|reader| reader.read_at(buffer, offset))
    }

    fn read_unverified_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.counted(|reader| reader.read_unverified_at(buffer, offset))
    }
}

impl Volume {
    /// Bytes of a file's allocation units.
    pub fn au_bytes(&self, ino: Ino) -> Result<u64> {
        Ok(self.file(ino)?.layout.au_size.bytes())
    }

    /// A number that changes with every change of a byte in the allocation unit, before it can be seen.
    pub fn au_version(&self, ino: Ino, au: u64) -> Result<u64> {
        let file = self.file(ino)?;
        check_au(&file, au)?;
        Ok(file.au_version(au))
    }

    /// How long nothing has written to the allocation unit. Of one that nothing wrote to since the volume was opened,
    /// how long nothing has written to its file.
    pub fn au_idle(&self, ino: Ino, au: u64) -> Result<Duration> {
        let file = self.file(ino)?;
        check_au(&file, au)?;
        Ok(Duration::from_nanos(crate::now().saturating_sub(file.au_changed(au)).max(0) as u64))
    }

    /// Puts a compression unit in place of the raw pages of an allocation unit: of all whole pages that the file has
    /// there. The caller took `version`, then read the pages, then encoded them; the unit is stored only if they are
    /// unchanged since. Durable on return of `Stored`. Before that every page is rebuilt from what lies on disk and
    /// compared: a unit that does not give the same pages back is an error of kind `Corrupt`, and nothing changed.
    pub fn unit_store(&self, ino: Ino, au: u64, version: u64, bytes: &[u8], tag: u32) -> Result<UnitStored> {
        let file = self.file(ino)?;
        check_au(&file, au)?;
        let au_bytes = file.layout.au_size.bytes();
        let pages = file.whole_pages(au)?;
        if pages == 0
            || bytes.is_empty()
            || crate::file::stored_bytes(bytes.len() as u32) > au_bytes
            || bytes.len() as u64 > au_bytes
        {
            let message = format!("a compression unit of {} bytes for {pages} pages of inode {ino}", bytes.len());
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        let units = file.units_or_new(self.options.unit_codec.as_ref(), &self.cache);
        units.codec()?;
        let _install = units.install.lock();
        if units.resend.load(Ordering::Acquire) {
            // After a failed sync the caller may have read what the kernel made of pending pages.
            self.sync_unasked(&file)?;
            return Ok(UnitStored::Changed);
        }
        if file.au_version(au) != version {
            return Ok(UnitStored::Changed);
        }
        self.with_reclaim(|| self.check_room(bytes.len() as u64))?;
        let Some(place) = units.homes().place_for(au, bytes) else { return Ok(UnitStored::Busy) };
        let place = Arc::new(place);
        // Until the metadata name it, nobody needs what lies there.
        let prepared = place.store(bytes).and_then(|()| self.check_unit(&file, units, &place, pages, version));
        match prepared {
            Ok(true) => {}
            Ok(false) => {
                place.condemn();
                return Ok(UnitStored::Changed);
            }
            Err(error) => {
                place.condemn();
                return Err(error);
            }
        }
        let sequence = {
            let _write = file.write.lock();
            if file.au_version(au) != version || file.whole_pages(au)? != pages {
                place.condemn();
                return Ok(UnitStored::Changed);
            }
            let former = units.install(place, pages, tag);
            file.note_install();
            let stamp = units.extent(au).expect("just installed").stamp;
            let sequence = self.namespace.write().mark_extents(ino, [au]);
            let mut chores = self.chores.lock();
            chores.push((sequence, Chore::PunchRaw { file: file.clone(), au, stamp }));
            chores.extend(former.map(|former| (sequence, Chore::Condemn(former.place.clone()))));
            sequence
        };
        self.commit(sequence)?;
        self.do_chores();
        Ok(UnitStored::Stored)
    }

    /// Whether a new unit gives back the pages that the file has; false when they changed meanwhile.
    fn check_unit(&self, file: &FileData, units: &Units, place: &Place, pages: u32, version: u64) -> Result<bool> {
        let image = PlaceImage::read(place)?;
        let mut unit = units.codec()?.open(&image, place.id).map_err(|error| not_rebuilt(error, place, 0..pages))?;
        let start = place.au * file.layout.au_size.bytes();
        let (mut rebuilt, mut current) = (Vec::new(), Vec::new());
        for first in (0..pages).step_by(BATCH_PAGES as usize) {
            let batch = first..pages.min(first + BATCH_PAGES);
            rebuilt.resize(batch.len() * PAGE_BYTES, 0);
            current.resize(batch.len() * PAGE_BYTES, 0);
            let result = unit.rebuild(&image, batch.clone(), &mut rebuilt);
            result.map_err(|error| not_rebuilt(error, place, batch.clone()))?;
            file.load(&mut current, start + u64::from(first) * PAGE, false)?;
            if rebuilt != current {
                if file.au_version(place.au) != version {
                    return Ok(false);
                }
                let differs = |page: &u32| {
                    let at = (page - first) as usize * PAGE_BYTES;
                    rebuilt[at..at + PAGE_BYTES] != current[at..at + PAGE_BYTES]
                };
                let page = batch.into_iter().find(differs).expect("one differs");
                let message =
                    format!("{} would not give page {page} back as it is; it was not stored", place.describe());
                return Err(Error::new(ErrorKind::Corrupt, message));
            }
        }
        Ok(true)
    }

    /// The form of every allocation unit of a file.
    pub fn units(&self, ino: Ino) -> Result<Vec<UnitInfo>> {
        let file = self.file(ino)?;
        let count = file.size()?.div_ceil(file.layout.au_size.bytes());
        Ok((0..count).map(|au| info(&file, au)).collect())
    }

    /// The form of one allocation unit.
    pub fn unit(&self, ino: Ino, au: u64) -> Result<UnitInfo> {
        let file = self.file(ino)?;
        check_au(&file, au)?;
        Ok(info(&file, au))
    }

    /// The compression unit of an allocation unit; None when it is raw.
    pub fn unit_reader(&self, ino: Ino, au: u64) -> Result<Option<UnitReader>> {
        let file = self.file(ino)?;
        check_au(&file, au)?;
        let Some(units) = file.units() else { return Ok(None) };
        let au_bytes = file.layout.au_size.bytes();
        let (range, pages_per_au) = (au * au_bytes..(au + 1) * au_bytes, au_bytes / PAGE);
        loop {
            let version = file.au_version(au);
            // A write under way has its version already and its pages' marks not yet.
            let under_way = file.pages_under_way(&range);
            let Some(extent) = units.extent(au) else { return Ok(None) };
            let mut dead = extent.raw.clone();
            let written = under_way.into_iter().flatten().map(|page| (page % pages_per_au) as u32);
            written
                .filter(|page| *page < dead.page_count())
                .collect::<Vec<_>>()
                .iter()
                .for_each(|page| dead.insert(*page));
            if version == file.au_version(au) {
                let (disk_bytes, disk_requests) = (AtomicU64::new(0), AtomicU64::new(0));
                let (cache, evicted_since) = (self.cache.clone(), extent.place.ask(self.cache.evictions()));
                let reader =
                    UnitReader { _file: file, extent, dead, version, disk_bytes, disk_requests, cache, evicted_since };
                return Ok(Some(reader));
            }
        }
    }

    /// Writes the pages of a compression unit raw again and drops it; durable on return. False when there is none.
    pub fn decompress(&self, ino: Ino, au: u64) -> Result<bool> {
        let file = self.file(ino)?;
        check_au(&file, au)?;
        let Some(units) = file.units() else { return Ok(false) };
        let _install = units.install.lock();
        let is_there = self.write_out(&file, units, au).inspect_err(|_| self.keep_unit(&file, units, au))?;
        if is_there {
            self.sync_unasked(&file)?;
            let changed = self.namespace.read().node(ino).map_or(0, |node| node.changed);
            self.commit(changed)?;
            self.do_chores();
        }
        Ok(is_there)
    }

    /// After a failed decompression: what was written so far lies under pages that are still the unit's, and goes as soon
    /// as a transaction names the unit.
    fn keep_unit(&self, file: &Arc<FileData>, units: &Units, au: u64) {
        let kept = {
            let _write = file.write.lock();
            units.mark_staying(au)
        };
        if let Some(extent) = kept {
            let sequence = self.namespace.read().node(file.ino).map_or(0, |node| node.changed);
            let chore = Chore::PunchRaw { file: file.clone(), au, stamp: extent.stamp };
            self.chores.lock().push((sequence, chore));
            self.do_chores();
        }
    }

    /// Writes the pages of a compression unit to their places and marks them raw there. False when there is no unit.
    fn write_out(&self, file: &FileData, units: &Units, au: u64) -> Result<bool> {
        let extent = {
            // A punch that still waits for its turn must not take what is written now.
            let _write = file.write.lock();
            let Some(extent) = units.mark_leaving(au) else { return Ok(false) };
            extent
        };
        self.with_reclaim(|| self.check_room(u64::from(extent.page_count() - extent.raw.len()) * PAGE))?;
        for first in (0..extent.page_count()).step_by(BATCH_PAGES as usize) {
            let _write = file.write.lock();
            // Cut or overwritten meanwhile.
            let Some(extent) = units.extent(au) else { return Ok(true) };
            let batch = first..extent.page_count().min(first.saturating_add(BATCH_PAGES));
            file.copy_out(units, &extent, batch)?;
        }
        {
            // Durable before anything else relies on them: the log does not have these pages.
            let _sync = file.lock_sync();
            file.sync_pages(units).inspect_err(|error| {
                let _write = file.write.lock();
                fail_unasked(file, units, error);
            })?;
            let _write = file.write.lock();
            let Some(extent) = units.extent(au) else { return Ok(true) };
            units.mark_raw(au, 0..extent.page_count());
        }
        Ok(true)
    }
}

fn check_au(file: &FileData, au: u64) -> Result<()> {
    match au.checked_mul(file.layout.au_size.bytes()).is_some_and(|start| start < crate::file::SIZE_MAX) {
        true => Ok(()),
        false => Err(Error::new(ErrorKind::Invalid, format!("inode {} has no allocation unit {au}", file.ino))),
    }
}

fn info(file: &FileData, au: u64) -> UnitInfo {
    let version = file.au_version(au);
    let form = match file.units().and_then(|units| units.extent(au)) {
        None => UnitForm::Raw,
        Some(extent) => {
            let bytes = u64::from(extent.place.length);
            UnitForm::Unit { bytes, tag: extent.tag, dead: extent.raw.clone() }
        }
    };
    UnitInfo { au, form, version }
}
