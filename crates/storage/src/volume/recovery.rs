//! Opening a volume: group, metadata, removal of orphaned backing files, recovery of files with compression units.

use super::flash_cache_mode::{ModeState, flash_disks, leaving_space};
use super::free_space::FreeSpace;
use super::prefetcher::Prefetcher;
use super::rebalance::Rebalance;
use super::repair_time::RepairTime;
use super::saved_facts::FoundFacts;
use super::{FlashCacheMode, Namespace, Volume, VolumeOptions, now};
use crate::cache::Cache;
use crate::columnar::ColumnarCache;
use crate::disk::{Condition, Disk, Stream, on_each};
use crate::error::{Context, Error, ErrorKind, Result};
use crate::file::{FileData, Units};
use crate::flash::{FlashCache, Object};
use crate::flash_log::Opening;
use crate::group::Group;
use crate::group::mirror::Mirror;
use crate::group::rebalance::{inode_of, key_of};
use crate::meta::{AuKey, Batch, CommitSequence, Contents, FIRST_INO, Inode, Kind, Stores};
use crate::write_back::{Left, WriteBack};
use cellar_format::units::BLOCK_BYTES;
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize};
use std::sync::{Arc, OnceLock};

impl Volume {
    pub(super) fn recover(disks: Vec<Arc<dyn Disk>>, mut options: VolumeOptions) -> Result<Self> {
        let (mut group, is_new) = Group::open(disks, &options.of_group())?;
        // One that another daemon uses has the log of another cell.
        options.present_flash_disks.retain(|disk| disk.lock().is_ok_and(|is_locked| is_locked));
        let initial = || Batch::initial(root_directory(&options));
        match group.mirror() {
            Some(mirror) => mirror.restore_intents()?,
            // Sync the writes that an earlier process left unsynced: this process has no record of them.
            None => {
                let sync = |disk: &Arc<dyn Disk>| {
                    disk.sync_everything().context(|| format!("could not sync cell disk {}", disk.path().display()))
                };
                on_each(&group.accessible_disks(), sync).into_iter().collect::<Result<()>>()?;
            }
        }
        let free_space = FreeSpace::new(group.disks(), options.reserve_bytes, options.au_size.bytes());
        free_space.prepare_commit();
        let facts = if is_new { None } else { FoundFacts::take(&group) };
        let (stores, contents) = Stores::open(&group, is_new, initial)?;
        group.mark_ready()?;
        let redo = open_flash_log(&group, &options)?;
        let mode = ModeState::new(&contents.group, options.flash_cache_mode());
        open_flash(&mut group, &options, mode.get())?;
        let left = open_write_back(&mut group, &options)?;
        let mut volume = Self::assemble(group, stores, contents, free_space, options)?;
        volume.flash_cache_mode = mode;
        volume.start_flash()?;
        volume.open_columnar();
        volume.equalize_copies()?;
        if let Some(flash) = volume.group.flash() {
            flash.begin_fills();
        }
        volume.restore_rebalance();
        *volume.saved_facts.lock() = facts.and_then(|facts| facts.compare(&volume.namespace.read()));
        remove_orphans(&volume.group, &volume.namespace.read())?;
        volume.start_write_back(left)?;
        volume.recover_units()?;
        volume.free_space.replenish();
        volume.note_space();
        if is_new {
            // Disks of different size may need other copy sets than those that a group is formed with.
            volume.use_wanted_sets(volume.group.avoided())?;
        }
        volume.configure_file_redundancy(is_new)?;
        volume.start_flash_log(redo)?;
        volume.forget_outdated_mode()?;
        Ok(volume)
    }

    /// Builds the volume from the metadata. Writes nothing.
    pub(super) fn assemble(
        group: Group,
        stores: Stores,
        mut contents: Contents,
        free_space: FreeSpace,
        options: VolumeOptions,
    ) -> Result<Self> {
        let open_file = |ino, inode: &Inode| {
            let layout = inode.layout.clone().expect("checked when the record was decoded");
            Arc::new(FileData::existing(ino, layout, group.stripes(), (inode.mtime, inode.ctime)))
        };
        let cache = Arc::new(Cache::new(options.cache_bytes).context(|| {
            format!("could not map {} bytes for the cell's page cache; reduce cache_size", options.cache_bytes)
        })?);
        let extents = std::mem::take(&mut contents.extents);
        let rebalance = Rebalance::restore(&group, &contents, options.rebalance_power)?;
        let repair_time = RepairTime::new(RepairTime::stored_in(&contents.group), options.disk_repair_time);
        let namespace = Namespace::new(contents, open_file)?;
        for (AuKey { ino, au }, extent) in &extents {
            let file = namespace.node(*ino).ok().and_then(|node| node.file.as_ref()).filter(|file| {
                let pages = file.layout.au_size.bytes() / BLOCK_BYTES as u64;
                file.may_contain(*au) && u64::from(extent.superseded.page_count()) <= pages
            });
            let Some(file) = file else {
                let message =
                    format!("metadata: the extent record of allocation unit {au} of inode {ino} does not match a file");
                return Err(Error::new(ErrorKind::Corrupt, message));
            };
            let units = file.units_or_new(options.unit_codec.as_ref(), &cache);
            units.restore(&file.lock_write(), *au, extent);
        }
        Ok(Self {
            prefetcher: Prefetcher::start(cache.clone(), options.prefetch_threads)?,
            free_space,
            group,
            stores: Mutex::new(stores),
            namespace: RwLock::new(namespace),
            committed: AtomicU64::new(0),
            metadata_lost: AtomicBool::new(false),
            commit_failures: AtomicU64::new(0),
            cache,
            removed_files: Mutex::default(),
            removing: Mutex::default(),
            unlinked_in_use: AtomicUsize::new(0),
            waited_for_release: AtomicI64::new(0),
            post_commit_actions: Mutex::default(),
            times_dirty: Mutex::default(),
            checkpoint_requests: Arc::default(),
            columnar: None,
            rebalance,
            repair_time,
            saved_facts: Mutex::default(),
            passthrough: Default::default(),
            lacking_files: OnceLock::new(),
            flash_cache_mode: ModeState::new(&BTreeMap::new(), FlashCacheMode::WriteThrough),
            flash_log: OnceLock::new(),
            options,
            background: Mutex::new(None),
            scrub: Default::default(),
            damage_log: Default::default(),
        })
    }

    /// Makes the copies equal that a crash has left different.
    fn equalize_copies(&self) -> Result<()> {
        let Some(mirror) = self.group.mirror() else { return Ok(()) };
        self.repair_written_units(mirror);
        let copied = mirror.equalize(self)?;
        if copied.files > 0 {
            let (files, read, written) = (copied.files, copied.read_bytes >> 20, copied.written_bytes >> 20);
            log::info!("compared copies of {files} files: read {read} MiB, wrote {written} MiB");
        }
        Ok(())
    }

    /// Repairs compression units in regions whose copies are about to be made equal: an undamaged copy must win. Units that the
    /// metadata name were on all disks before the crash.
    fn repair_written_units(&self, mirror: &Mirror) {
        for (_, number, ranges) in mirror.written(Stream::Units) {
            let Ok(file) = self.file(inode_of(number)) else { continue };
            let extents = file.units().map(Units::extents).unwrap_or_default();
            let is_written = |slot: &Range<u64>| ranges.iter().any(|r| r.start < slot.end && slot.start < r.end);
            for stored in extents.iter().map(|extent| &extent.stored).filter(|stored| is_written(&stored.slot_range()))
            {
                match stored.scrub() {
                    Ok((Condition::Sound | Condition::Repaired, _)) => {}
                    Ok(_) => log::error!("{} is damaged on all disks", stored.describe()),
                    Err(error) => log::warn!("could not compare the copies of {}: {error}", stored.describe()),
                }
            }
        }
    }

    /// Makes the flash cache usable, before anything changes a file.
    fn start_flash(&self) -> Result<()> {
        let (Some(flash), Some(options)) = (self.group.flash(), &self.options.flash) else { return Ok(()) };
        // The copy that wins may not be the one that was cached, and a page in flash must not repair a copy.
        if let Some(mirror) = self.group.mirror() {
            for stream in [Stream::Data, Stream::Units] {
                for (container, number, ranges) in mirror.written(stream) {
                    let (ino, stripe) = key_of(number, container);
                    ranges.iter().for_each(|range| flash.forget(Object { stripe, ino, stream }, range));
                }
            }
        }
        let namespace = self.namespace.read();
        flash.start(options, |object| {
            let file = namespace.node(object.ino).ok().and_then(|node| node.file.as_ref());
            file.is_some_and(|file| object.stream == Stream::Data || file.units().is_some())
        })
    }

    /// Writes the pages that an earlier process left in the write-back log to the cell disks, and begins a log.
    fn start_write_back(&self, left: Left) -> Result<()> {
        let (write_back, cell_disks) = (self.group.write_back(), self.group.cell_disks());
        let disks = flash_disks(&self.group, &self.options);
        let is_known = |object: Object| self.file(object.ino).is_ok();
        let stripes = self.group.stripes();
        if let Some(lacking) = left.lacking() {
            self.tell_lacking(lacking);
        }
        left.apply(write_back.map(|one| &**one), stripes, (disks, cell_disks.as_ref()), is_known)?;
        match (write_back, &self.options.write_back) {
            (Some(write_back), Some(options)) if self.flash_cache_mode() == FlashCacheMode::WriteBack => {
                write_back.start(options, disks, &cell_disks)
            }
            _ => Ok(()),
        }
    }

    /// Opens the columnar cache on the disks of the flash cache, and removes what an earlier process left there.
    fn open_columnar(&mut self) {
        let (Some(flash), Some(options)) = (self.group.flash().filter(|flash| flash.is_on()), &self.options.flash)
        else {
            return;
        };
        // A file of the cache has a descriptor on each flash disk.
        let files_max = self.options.handles_max / 4 / flash.disks().len().max(1);
        self.columnar = match options.columnar_bytes {
            0 => {
                ColumnarCache::remove_leftovers(flash.disks());
                None
            }
            bytes => Some(ColumnarCache::open(flash.disks(), bytes, files_max, &self.cache)),
        };
    }

    /// Recovers every file with compression units: afterwards redo logs are empty and unused space is punched.
    fn recover_units(&self) -> Result<()> {
        let files: Vec<Arc<FileData>> = {
            let namespace = self.namespace.read();
            namespace.nodes().filter_map(|(_, node)| node.file.clone()).filter(|file| file.units().is_some()).collect()
        };
        for (done, file) in files.iter().enumerate() {
            (self.options.recovery_progress)(done, files.len());
            let Some(units) = file.units() else { continue };
            let recovered = self.with_reserve(|| file.recover_units(units))?;
            if !recovered.changed_aus.is_empty() {
                self.namespace.write().mark_extents(file.ino, recovered.changed_aus);
                self.drop_units(file.ino, recovered.unused);
            }
            // A crash during a checkpoint leaves records in both segments; each checkpoint empties one segment.
            for _ in 0..2 {
                self.sync_file(file, CommitSequence(0))?;
            }
            file.punch_leftovers(units)?;
        }
        self.run_post_commit_actions();
        Ok(())
    }
}

/// Reads the redo that an earlier start left in flash, before anything changes the flash disks.
fn open_flash_log(group: &Group, options: &VolumeOptions) -> Result<Opening> {
    if options.flash_log.as_ref().is_some_and(|log| log.size > 0) && options.wal_passthrough {
        let message = "the flash log and wal_passthrough exclude each other: the kernel writes WAL without the cell; remove \
                       flash_log_size or wal_passthrough";
        return Err(Error::new(ErrorKind::Invalid, message));
    }
    Opening::new(options.flash_log.as_ref(), group.cell_disks().as_ref(), options.force_degraded)
}

/// Opens the flash cache of the group. Without one, makes durable that no later start uses an earlier one.
fn open_flash(group: &mut Group, options: &VolumeOptions, mode: FlashCacheMode) -> Result<()> {
    let needs_log = mode == FlashCacheMode::WriteBack || options.reserves_write_back;
    let log_bytes = options.write_back.as_ref().filter(|_| needs_log).map_or(0, |log| log.size);
    let disks = group.cell_disks();
    match &options.flash {
        None => FlashCache::disown(disks.as_ref()),
        Some(flash) => {
            if let Some(cache) = FlashCache::open(&leaving_space(flash, log_bytes), disks, !options.force_degraded)? {
                group.cache_in(cache);
            }
            Ok(())
        }
    }
}

/// Reads what an earlier process left in the write-back log, whether or not a log is to be used now.
fn open_write_back(group: &mut Group, options: &VolumeOptions) -> Result<Left> {
    let left = Left::read(flash_disks(group, options), group.cell_disks().as_ref(), options.force_degraded)?;
    if let Some(flash) = group.flash().filter(|_| options.write_back.is_some()) {
        group.write_back_in(Arc::new(WriteBack::new(flash.clone())));
    }
    Ok(left)
}

fn root_directory(options: &VolumeOptions) -> Inode {
    let time = now();
    Inode {
        kind: Kind::Directory,
        mode: 0o755,
        uid: options.root_uid,
        gid: options.root_gid,
        nlink: 2,
        device: 0,
        atime: time,
        mtime: time,
        ctime: time,
        birth: time,
        layout: None,
        target: Vec::new(),
    }
}

/// Removes backing files of inodes that the metadata do not contain (never synced, or unlinked before a crash), and
/// unit files and redo logs of files without compression units. Looks on every container: a crash may have left a file where
/// no record of placement names one. A copy set with a dropped disk has no files, except removed ones on its other disks.
fn remove_orphans(group: &Group, namespace: &Namespace) -> Result<()> {
    let has_left = |container: &u16| group.disks_of(*container).iter().any(|disk| group.is_dropped(*disk));
    let is_readable = |container: &u16| group.mirror().is_some() || !has_left(container);
    let containers: Vec<u16> = (0..group.placement().containers().len() as u16).filter(is_readable).collect();
    let remove = |container: &u16| -> Result<()> {
        let disk = group.placement().container(*container);
        let path = disk.path().display();
        let backing_files = disk.backing_files().context(|| format!("could not list cell disk {path}"))?;
        let mut removed = 0;
        for (number, stream) in backing_files {
            let ino = inode_of(number);
            let file = namespace.node(ino).ok().and_then(|node| node.file.as_ref()).filter(|_| ino >= FIRST_INO);
            let known =
                !has_left(container) && file.is_some_and(|file| stream == Stream::Data || file.units().is_some());
            if !known {
                disk.remove(number, stream)
                    .context(|| format!("could not remove orphaned files of inode {ino} from cell disk {path}"))?;
                removed += 1;
            }
        }
        if removed > 0 {
            // Make the removals durable: a new file may get the inode number of a file that was never synced, and must
            // not contain the old file's bytes after another crash.
            disk.sync_everything().context(|| format!("could not sync cell disk {path}"))?;
            log::info!("removed {removed} orphaned backing files from cell disk {path}");
        }
        Ok(())
    };
    on_each(&containers, remove).into_iter().collect()
}
