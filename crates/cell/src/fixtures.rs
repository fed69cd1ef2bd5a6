//! Fixtures of the crate's unit tests: a volume with one empty file, and requests about a relation without columns.

use crate::unit_codec::Codec;
use cellar_format::wire::{Relation, ScanMode, ScanRequest, Snapshot};
use cellar_storage::disk::{DirectoryDisk, Disk};
use cellar_storage::{AuSize, Ino, Kind, NewNode, ROOT_INO, Volume, VolumeOptions};
use std::path::Path;
use std::sync::Arc;

/// Opens a volume on one cell disk in `folder`, with a codec of compression units.
pub fn volume(folder: &Path, au_bytes: usize) -> Arc<Volume> {
    let disk = Arc::new(DirectoryDisk::new(folder.join("disk")).unwrap()) as Arc<dyn Disk>;
    let au_size = AuSize::from_bytes(au_bytes as u64).unwrap();
    let unit_codec = Some(Arc::new(Codec::default()) as _);
    Volume::open(vec![disk], VolumeOptions { au_size, unit_codec, ..VolumeOptions::default() }).unwrap()
}

/// Creates an empty file in the root directory. Returns its disk object.
pub fn create(volume: &Volume, name: &str) -> Ino {
    let new = NewNode { kind: Kind::File, mode: 0o600, uid: 0, gid: 0, device: 0, target: b"" };
    volume.create(ROOT_INO, name.as_bytes(), &new).unwrap().ino
}

pub fn relation(file: &str) -> Relation {
    Relation { file: file.into(), segment_blocks: 131_072, checksums: false, encoding: 6, attributes: Vec::new() }
}

/// Returns a request for all rows of a relation, without columns.
pub fn scan_request(relation: Relation, threads: u16) -> ScanRequest {
    ScanRequest {
        relation,
        quals: Vec::new(),
        projection: Vec::new(),
        mode: ScanMode::Columns,
        snapshot: Snapshot { xmin: 1000, xmax: 1000, taken_during_recovery: false, next_full_xid: 1000 },
        threads,
        aggregation: None,
        lookups: Vec::new(),
        top_n: None,
        index: None,
    }
}
