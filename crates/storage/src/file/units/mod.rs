//! The compression units of one file: which pages of which allocation units they hold.
//!
//! Invariants: a page of an allocation unit is current either in its compression unit or in the backing file, never
//! both; `extents` says where, and readers take one [`Extent`] as it is at one moment. The sets of an extent grow only:
//! `raw` ⊇ `settled` ⊇ `committed`. A page is `raw` when the backing file has it, `settled` when it is durable there,
//! `committed` when the metadata on every disk say so. A write to a page that is not committed goes to the log of
//! pending pages before it is acknowledged.

mod access;
mod cached;
mod codec;
mod pages;
mod pending;
mod place;

pub use access::{BATCH_PAGES, not_rebuilt};
pub use cached::{CachedUnit, CountedBytes};
pub use codec::{OpenUnit, UnitCodec};
pub use pages::PageSet;
pub use pending::PendingLog;
pub use place::{Homes, Place, PlaceImage, PlaceReader, stored_bytes};

use super::backing::Backing;
use crate::cache::Cache;
use crate::error::{Error, ErrorKind, Result};
use crate::group::Layout;
use crate::meta::ExtentRecord;
use cellar_format::units::BLOCK_BYTES;
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

/// What a compression unit rebuilds at once.
pub const PAGE_BYTES: usize = BLOCK_BYTES;
pub const PAGE: u64 = BLOCK_BYTES as u64;

#[derive(Debug)]
pub struct Units {
    codec: Option<Arc<dyn UnitCodec>>,
    cache: Arc<Cache>,
    homes: Arc<Homes>,
    state: RwLock<State>,
    pub log: Mutex<PendingLog>,
    /// Serialises what turns allocation units into compression units and back.
    pub install: Mutex<()>,
    /// Set when a sync failed: the kernel may have dropped pages that only the log still has.
    pub resend: AtomicBool,
    /// Bytes that the file takes more (or less, below 0) than its size because of its units.
    extra_bytes: AtomicI64,
}

#[derive(Debug, Default)]
struct State {
    extents: BTreeMap<u64, Arc<Extent>>,
    /// Allocation units with raw pages that are not committed.
    pending: BTreeSet<u64>,
}

/// An allocation unit that has a compression unit.
#[derive(Debug, Clone)]
pub struct Extent {
    pub place: Arc<Place>,
    pub tag: u32,
    pub stamp: u64,
    /// Its count is the number of pages that the unit holds, from the allocation unit's start; those after are raw.
    pub raw: PageSet,
    /// The live pages are being written to the backing file, so nothing there is left over.
    pub is_leaving: bool,
    settled: PageSet,
    committed: PageSet,
}

impl Extent {
    fn new(place: Arc<Place>, tag: u32, stamp: u64, dead: PageSet) -> Self {
        Self { place, tag, stamp, is_leaving: false, settled: dead.clone(), committed: dead.clone(), raw: dead }
    }

    pub fn page_count(&self) -> u32 {
        self.raw.page_count()
    }

    /// Whether the page is current in the unit.
    pub fn is_live(&self, page: u32) -> bool {
        page < self.page_count() && !self.raw.contains(page)
    }

    /// Runs of live pages within `pages`.
    pub fn live_runs(&self, pages: Range<u32>) -> Vec<Range<u32>> {
        let mut runs: Vec<Range<u32>> = Vec::new();
        for page in pages.filter(|page| self.is_live(*page)) {
            match runs.last_mut() {
                Some(run) if run.end == page => run.end += 1,
                _ => runs.push(page..page + 1),
            }
        }
        runs
    }

    fn record(&self) -> ExtentRecord {
        let Place { home, length, checksum, .. } = *self.place;
        ExtentRecord { home, length, checksum, tag: self.tag, stamp: self.stamp, dead: self.settled.clone() }
    }

    fn extra_bytes(&self) -> i64 {
        self.place.allocated() as i64 - i64::from(self.page_count() - self.raw.len()) * PAGE as i64
    }
}

/// The pages that a sync makes durable.
#[derive(Debug, Default)]
pub struct Settling(Vec<(u64, u64, PageSet)>);

impl Settling {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn aus(&self) -> Vec<u64> {
        self.0.iter().map(|(au, ..)| *au).collect()
    }
}

impl Units {
    pub fn new(
        ino: u64,
        layout: &Layout,
        codec: Option<Arc<dyn UnitCodec>>,
        cache: Arc<Cache>,
        backing: Box<[Backing]>,
        log: PendingLog,
    ) -> Self {
        Self {
            codec,
            cache,
            homes: Homes::new(ino, layout.clone(), backing),
            state: RwLock::default(),
            log: Mutex::new(log),
            install: Mutex::new(()),
            resend: AtomicBool::new(false),
            extra_bytes: AtomicI64::new(0),
        }
    }

    pub fn homes(&self) -> &Arc<Homes> {
        &self.homes
    }

    pub fn codec(&self) -> Result<&dyn UnitCodec> {
        let missing = || Error::new(ErrorKind::NotSupported, "compression units are not supported by this cell");
        self.codec.as_deref().ok_or_else(missing)
    }

    pub fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }

    pub fn extent(&self, au: u64) -> Option<Arc<Extent>> {
        self.state.read().extents.get(&au).cloned()
    }

    pub fn extents(&self) -> Vec<(u64, Arc<Extent>)> {
        self.state.read().extents.iter().map(|(au, extent)| (*au, extent.clone())).collect()
    }

    /// True when one of these allocation units has a compression unit.
    pub fn touches(&self, aus: Range<u64>) -> bool {
        self.state.read().extents.range(aus).next().is_some()
    }

    pub fn record(&self, au: u64) -> Option<ExtentRecord> {
        self.state.read().extents.get(&au).map(|extent| extent.record())
    }

    pub fn extra_bytes(&self) -> i64 {
        self.extra_bytes.load(Ordering::Relaxed)
    }

    /// Takes over what the metadata say.
    pub fn load(&self, au: u64, record: &ExtentRecord) {
        let place = Arc::new(self.homes.known_place(au, record));
        self.log.lock().skip_stamps(record.stamp);
        let extent = Extent::new(place, record.tag, record.stamp, record.dead.clone());
        self.put(&mut self.state.write(), au, Some(extent));
    }

    /// Makes a unit the current one of its allocation unit, for all its pages; the former one is returned. The caller
    /// holds the file's `write`.
    pub fn install(&self, place: Arc<Place>, pages: u32, tag: u32) -> Option<Arc<Extent>> {
        let stamp = self.log.lock().take_stamp();
        let (au, mut state) = (place.au, self.state.write());
        state.pending.remove(&au);
        self.put(&mut state, au, Some(Extent::new(place, tag, stamp, PageSet::new(pages))))
    }

    fn put(&self, state: &mut State, au: u64, extent: Option<Extent>) -> Option<Arc<Extent>> {
        let more = extent.as_ref().map_or(0, Extent::extra_bytes);
        let former = match extent {
            Some(extent) => state.extents.insert(au, Arc::new(extent)),
            None => state.extents.remove(&au),
        };
        let less = former.as_ref().map_or(0, |former| former.extra_bytes());
        self.extra_bytes.fetch_add(more - less, Ordering::Relaxed);
        former
    }

    /// Notes that the backing file has the current content of pages. The caller holds the file's `write`.
    pub fn mark_raw(&self, au: u64, pages: impl Iterator<Item = u32>) {
        let mut state = self.state.write();
        let Some(extent) = state.extents.get_mut(&au) else { return };
        let extent = Arc::make_mut(extent);
        let before = extent.extra_bytes();
        let count = extent.page_count();
        pages.filter(|page| *page < count).for_each(|page| extent.raw.insert(page));
        let (after, is_pending) = (extent.extra_bytes(), extent.raw != extent.committed);
        self.extra_bytes.fetch_add(after - before, Ordering::Relaxed);
        if is_pending {
            state.pending.insert(au);
        }
    }

    /// Says that the unit's live pages are going to be raw; None when there is no unit. The caller holds the file's
    /// `write`.
    pub fn mark_leaving(&self, au: u64) -> Option<Arc<Extent>> {
        let mut state = self.state.write();
        let extent = state.extents.get_mut(&au)?;
        Arc::make_mut(extent).is_leaving = true;
        Some(extent.clone())
    }

    /// Takes back [`Self::mark_leaving`]; None when there is no unit any more. The caller holds the file's `write`.
    pub fn mark_staying(&self, au: u64) -> Option<Arc<Extent>> {
        let mut state = self.state.write();
        let extent = state.extents.get_mut(&au)?;
        Arc::make_mut(extent).is_leaving = false;
        Some(extent.clone())
    }

    /// Cuts the units at a size: what lies past it is current in no unit any more. Returns the allocation units that
    /// changed and the places that became unused. The caller holds the file's `write`.
    pub fn cut(&self, size: u64) -> (Vec<u64>, Vec<Arc<Place>>) {
        let au_bytes = self.homes.layout.au_size.bytes();
        let mut state = self.state.write();
        let behind: Vec<(u64, Arc<Extent>)> =
            state.extents.range(size / au_bytes..).map(|(au, extent)| (*au, extent.clone())).collect();
        let (mut changed, mut unused) = (Vec::new(), Vec::new());
        for (au, extent) in behind {
            let pages = (size.saturating_sub(au * au_bytes) / PAGE).min(u64::from(extent.page_count())) as u32;
            if pages == extent.page_count() {
                continue;
            }
            changed.push(au);
            if pages == 0 {
                self.put(&mut state, au, None);
                state.pending.remove(&au);
                unused.push(extent.place.clone());
                continue;
            }
            let [raw, settled, committed] =
                [&extent.raw, &extent.settled, &extent.committed].map(|pages_of| pages_of.cut(pages));
            if raw == committed {
                state.pending.remove(&au);
            }
            self.put(&mut state, au, Some(Extent { raw, settled, committed, ..Extent::clone(&extent) }));
        }
        (changed, unused)
    }

    /// What a sync that begins now has to settle. The caller holds the file's `write`.
    pub fn settling(&self) -> Settling {
        let state = self.state.read();
        let pages = state.pending.iter().map(|au| {
            let extent = &state.extents[au];
            let mut pages = extent.raw.clone();
            pages.remove_all(&extent.committed);
            (*au, extent.stamp, pages)
        });
        Settling(pages.collect())
    }

    /// The pages are durable in the backing files: from now on a transaction may say so.
    pub fn settle(&self, settling: &Settling) {
        let mut state = self.state.write();
        for (au, stamp, pages) in &settling.0 {
            if let Some(extent) = state.extents.get_mut(au).filter(|extent| extent.stamp == *stamp) {
                Arc::make_mut(extent).settled.insert_all(pages);
            }
        }
    }

    /// The metadata on every disk say so. Units none of whose pages is current are dropped and returned.
    pub fn committed(&self, settling: &Settling) -> Vec<(u64, Arc<Place>)> {
        let mut state = self.state.write();
        let mut unused = Vec::new();
        for (au, stamp, pages) in &settling.0 {
            let Some(extent) = state.extents.get_mut(au).filter(|extent| extent.stamp == *stamp) else { continue };
            let extent = Arc::make_mut(extent);
            extent.committed.insert_all(pages);
            if extent.committed.is_full() {
                unused.push((*au, extent.place.clone()));
                state.pending.remove(au);
                self.put(&mut state, *au, None);
            } else if extent.raw == extent.committed {
                state.pending.remove(au);
            }
        }
        unused
    }

    /// Drops units none of whose pages is current, as the metadata of an earlier daemon may hold them.
    pub fn drop_dead(&self) -> Vec<Arc<Place>> {
        let mut state = self.state.write();
        let dead: Vec<u64> =
            state.extents.iter().filter(|(_, extent)| extent.committed.is_full()).map(|(au, _)| *au).collect();
        dead.into_iter().filter_map(|au| self.put(&mut state, au, None)).map(|extent| extent.place.clone()).collect()
    }

    pub fn backing(&self) -> impl Iterator<Item = &Backing> {
        self.homes.backing.iter()
    }
}
