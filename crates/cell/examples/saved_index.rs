//! Measures how long a clean stop needs to save the storage index, and a start to load it: region summaries of one integer
//! column and one string column.
//!
//! `cargo run --release -p cellar-cell --example saved_index -- FOLDER REGIONS`

use cellar_cell::state::storage_index::RowLayout;
use cellar_cell::state::{CellState, MemoryBudget};
use cellar_format::bytes::{Reader, Write};
use cellar_format::postgres::type_oid;
use cellar_format::units::{RegionIndex, RegionVersion};
use cellar_scan::RegionSummary;
use cellar_storage::disk::{DirectoryDisk, Disk};
use cellar_storage::{Kind, NewNode, ROOT_INO, Volume, VolumeOptions};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// Regions of a file of 1 GiB.
const REGIONS_PER_FILE: u32 = 1024;

fn summary(number: u32) -> RegionSummary {
    let mut bytes = Vec::new();
    bytes.put_u32(2);
    bytes.put_u16(1);
    bytes.put_u32(type_oid::INT4);
    bytes.put_bytes(&[2, 1]);
    bytes.put_u64(u64::from(number));
    bytes.put_u64(u64::from(number) + 100);
    bytes.put_u16(2);
    bytes.put_u32(type_oid::TEXT);
    bytes.put_bytes(&[2, 3]);
    for text in [b"minimum of text ", b"maximum of text "] {
        bytes.put_bytes(&[16, 1]);
        bytes.put_bytes(text);
    }
    RegionSummary::decode(&mut Reader::new(&bytes)).expect("valid bytes")
}

fn state(folder: &Path) -> CellState {
    let disk = Arc::new(DirectoryDisk::new(folder.join("disk")).expect("a directory")) as Arc<dyn Disk>;
    let volume = Volume::open(vec![disk], VolumeOptions::default()).expect("a volume");
    CellState::new(volume, Arc::default(), Arc::new(MemoryBudget::new(0, 16 << 30)))
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, folder, regions] = &arguments[..] else { panic!("usage: saved_index FOLDER REGIONS") };
    let (folder, regions) = (Path::new(folder), regions.parse::<u32>().expect("a number"));
    let first = state(folder);
    let new = NewNode { kind: Kind::File, mode: 0o600, uid: 0, gid: 0, device: 0, target: b"" };
    for file in 0..regions.div_ceil(REGIONS_PER_FILE) {
        let object = first.volume.create(ROOT_INO, file.to_string().as_bytes(), &new).expect("a file").ino;
        first.volume.write(object, 0, &[1; 8192]).expect("a write");
        for region in 0..REGIONS_PER_FILE.min(regions - file * REGIONS_PER_FILE) {
            let (key, layout) = ((object, RegionIndex(region)), RowLayout::of(&[]));
            let version: RegionVersion = first.volume.region_version(object, RegionIndex(region));
            first.storage_index.record(key, version, layout, summary(region));
        }
    }
    let started = Instant::now();
    first.volume.sync().expect("a sync");
    println!("sync of the files    {:?}", started.elapsed());
    let started = Instant::now();
    first.close().expect("a clean stop");
    println!("clean stop           {:?}", started.elapsed());
    let bytes = std::fs::metadata(folder.join("disk/storage-index")).expect("the saved index").len();
    println!("file                 {bytes} bytes");
    drop(first);
    let disk = Arc::new(DirectoryDisk::new(folder.join("disk")).expect("a directory")) as Arc<dyn Disk>;
    let started = Instant::now();
    let volume = Volume::open(vec![disk], VolumeOptions::default()).expect("a volume");
    println!("start of the volume  {:?}", started.elapsed());
    let started = Instant::now();
    let second = CellState::new(volume, Arc::default(), Arc::new(MemoryBudget::new(0, 16 << 30)));
    println!("load                 {:?}, {} regions", started.elapsed(), second.storage_index.loaded_regions());
    second.volume.close().expect("a stop");
}
