//! Opening a volume: group, metadata, then the removal of backing files that no inode claims.

use super::regions::Prefetcher;
use super::room::Room;
use super::{Volume, VolumeOptions, now};
use crate::cache::Cache;
use crate::disk::{Disk, Stream};
use crate::error::{Context, Error, ErrorKind, Result};
use crate::file::FileData;
use crate::group::Group;
use crate::meta::{Batch, FIRST_INO, Inode, Kind, Namespace, Stores};
use cellar_format::units::BLOCK_BYTES;
use parking_lot::{Mutex, RwLock};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

impl Volume {
    pub(super) fn recover(disks: Vec<Arc<dyn Disk>>, options: VolumeOptions) -> Result<Self> {
        let (mut group, is_new) = Group::open(disks, options.au_size, options.redundancy)?;
        let initial = || Batch::initial(root_directory(&options));
        // What an earlier daemon wrote and did not sync before it died would look synced from now on.
        for disk in group.disks() {
            disk.sync_everything().context(|| format!("syncing cell disk {}", disk.path().display()))?;
        }
        let (stores, mut contents) = Stores::open(group.disks(), is_new, initial)?;
        group.mark_ready()?;
        let open_file = |ino, inode: &Inode| {
            let layout = inode.layout.clone().expect("checked when the record was decoded");
            Arc::new(FileData::new(ino, layout, group.disks(), inode.mtime, inode.ctime, false))
        };
        let cache = Arc::new(Cache::new(options.cache_bytes).context(|| {
            format!("mapping {} bytes for the cell's page cache; lower cache_size", options.cache_bytes)
        })?);
        let extents = std::mem::take(&mut contents.extents);
        let namespace = Namespace::new(contents, open_file)?;
        for ((ino, au), extent) in &extents {
            let file = namespace.node(*ino).ok().and_then(|node| node.file.as_ref()).filter(|file| {
                let pages = file.layout.au_size.bytes() / BLOCK_BYTES as u64;
                u64::from(extent.dead.page_count()) <= pages
            });
            let Some(file) = file else {
                let message = format!("metadata: the extent of allocation unit {au} of inode {ino} fits no file");
                return Err(Error::new(ErrorKind::Corrupt, message));
            };
            file.units_or_new(options.unit_codec.as_ref(), &cache).load(*au, extent);
        }
        remove_orphans(&group, &namespace)?;
        let volume = Self {
            prefetcher: Prefetcher::start(cache.clone(), options.prefetch_threads)?,
            room: Room::new(),
            group,
            stores: Mutex::new(stores),
            namespace: RwLock::new(namespace),
            committed: AtomicU64::new(0),
            cache,
            doomed: Mutex::default(),
            chores: Mutex::default(),
            times_dirty: Mutex::default(),
            options,
            background: Mutex::new(None),
        };
        volume.recover_units()?;
        Ok(volume)
    }

    /// Brings every file with compression units to a state without pending pages and leftovers.
    fn recover_units(&self) -> Result<()> {
        let files: Vec<Arc<FileData>> = {
            let namespace = self.namespace.read();
            namespace.nodes().filter_map(|(_, node)| node.file.clone()).filter(|file| file.units().is_some()).collect()
        };
        for file in files {
            let Some(units) = file.units() else { continue };
            let (changed, unused) = file.recover_units(units)?;
            if !changed.is_empty() {
                self.namespace.write().mark_extents(file.ino, changed);
                self.drop_places(file.ino, unused.into_iter().map(|place| (place.au, place)).collect());
            }
            // A crash during a sync leaves both segments; each sync empties one.
            for _ in 0..2 {
                self.sync_file(&file, 0)?;
            }
            file.punch_leftovers(units)?;
        }
        self.do_chores();
        Ok(())
    }
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

/// Files of inodes that the metadata do not know: never synced, or unlinked before a crash; and what was left of
/// compression units that a file no longer has.
fn remove_orphans(group: &Group, namespace: &Namespace) -> Result<()> {
    for disk in group.disks() {
        let path = disk.path().display();
        let backing_files = disk.backing_files().context(|| format!("listing cell disk {path}"))?;
        let mut removed = 0;
        for (ino, stream) in backing_files {
            let file = namespace.node(ino).ok().and_then(|node| node.file.as_ref()).filter(|_| ino >= FIRST_INO);
            let known = file.is_some_and(|file| stream == Stream::Data || file.units().is_some());
            if !known {
                disk.remove(ino, stream).context(|| format!("removing orphan {ino} from cell disk {path}"))?;
                removed += 1;
            }
        }
        if removed > 0 {
            // A new file may get the number of one that was never synced; after another crash it must not find its bytes.
            disk.sync_everything().context(|| format!("syncing cell disk {path}"))?;
            log::info!("removed {removed} orphan backing files from cell disk {path}");
        }
    }
    Ok(())
}
