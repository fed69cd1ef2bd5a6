//! Opening a volume: group, metadata, then the removal of backing files that no inode claims.

use super::regions::Prefetcher;
use super::room::Room;
use super::{Volume, VolumeOptions, now};
use crate::cache::Cache;
use crate::disk::Disk;
use crate::error::{Context, Result};
use crate::file::FileData;
use crate::group::Group;
use crate::meta::{Batch, FIRST_INO, Inode, Kind, Namespace, Stores};
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
        let (stores, contents) = Stores::open(group.disks(), is_new, initial)?;
        group.mark_ready()?;
        let open_file = |ino, inode: &Inode| {
            let layout = inode.layout.clone().expect("checked when the record was decoded");
            Arc::new(FileData::new(ino, layout, group.disks(), inode.mtime, inode.ctime, false))
        };
        let namespace = Namespace::new(contents, open_file)?;
        remove_orphans(&group, &namespace)?;
        let cache = Arc::new(Cache::new(options.cache_bytes).context(|| {
            format!("mapping {} bytes for the cell's page cache; lower cache_size", options.cache_bytes)
        })?);
        Ok(Self {
            prefetcher: Prefetcher::start(cache.clone(), options.prefetch_threads)?,
            room: Room::new(),
            group,
            stores: Mutex::new(stores),
            namespace: RwLock::new(namespace),
            committed: AtomicU64::new(0),
            cache,
            doomed: Mutex::default(),
            times_dirty: Mutex::default(),
            options,
            background: Mutex::new(None),
        })
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

/// Backing files of inodes that the metadata do not know: never synced, or unlinked before a crash.
fn remove_orphans(group: &Group, namespace: &Namespace) -> Result<()> {
    for disk in group.disks() {
        let path = disk.path().display();
        let backing_files = disk.backing_files().context(|| format!("listing cell disk {path}"))?;
        let mut removed = 0;
        for ino in backing_files {
            let known = ino >= FIRST_INO && namespace.node(ino).is_ok_and(|node| node.file.is_some());
            if !known {
                disk.remove(ino).context(|| format!("removing orphan {ino} from cell disk {path}"))?;
                removed += 1;
            }
        }
        if removed > 0 {
            log::info!("removed {removed} orphan backing files from cell disk {path}");
        }
    }
    Ok(())
}
