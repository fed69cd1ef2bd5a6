//! Measures memory and start time of a volume with many files and compression units. The figures are in
//! `docs/scaling.md`. FOLDER contains DISKS cell disks; `create` and `units` need an empty folder.
//!
//! - `scale create FOLDER DISKS FILES` creates files of 100 bytes, with a backing file on each disk.
//! - `scale units FOLDER DISKS FILES` creates sparse files of 1 GiB whose metadata name a compression unit for each
//!   allocation unit. The units do not exist: the metadata are written directly, and no page can be read.
//! - `scale sparse FOLDER DISKS FILES` creates sparse files of 1 GiB.
//! - `scale open FOLDER DISKS` opens the volume and prints time and memory: of the start, and of the versions of all
//!   regions if the files are those of `sparse`. Unit files and redo logs do not exist, so recovery does little I/O per
//!   file.

use cellar_format::units::AuIndex;
use cellar_storage::disk::{DirectoryDisk, Disk};
use cellar_storage::{
    AuFormat, Error, ErrorKind, Fallocate, Kind, NewNode, OpenUnit, ROOT_INO, UnitCodec, Volume, VolumeOptions,
};
use redb::{Database, TableDefinition};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

const GIB: u64 = 1 << 30;
const EXTENTS: TableDefinition<(u64, u64), &[u8]> = TableDefinition::new("extents");

/// A codec that opens no unit.
#[derive(Debug)]
struct NoUnits;

impl UnitCodec for NoUnits {
    fn open(&self, _: &dyn cellar_format::ByteSource, _: u64) -> Result<Box<dyn OpenUnit + '_>, Error> {
        Err(Error::new(ErrorKind::NotSupported, "the units do not exist"))
    }
}

/// Returns the resident memory of the process in bytes.
fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("the process has a statm file");
    let pages: u64 = text.split(' ').nth(1).and_then(|field| field.parse().ok()).expect("statm has two numbers");
    pages * 4096
}

fn open(folder: &Path, disks: usize) -> Arc<Volume> {
    let disk = |index| {
        let disk = DirectoryDisk::new(folder.join(format!("disk{index}"))).expect("the cell disk can be created");
        Arc::new(disk) as Arc<dyn Disk>
    };
    let options = VolumeOptions { unit_codec: Some(Arc::new(NoUnits)), ..VolumeOptions::default() };
    Volume::open((0..disks).map(disk).collect(), options).expect("the volume opens")
}

/// Creates `files` files, and calls `fill` with the number of each inode.
fn create(volume: &Volume, files: u64, fill: impl Fn(u64)) -> Vec<u64> {
    let new = NewNode { kind: Kind::File, mode: 0o600, uid: 0, gid: 0, device: 0, target: b"" };
    let create = |number| {
        let ino = volume.create(ROOT_INO, format!("file{number}").as_bytes(), &new).expect("the file is new").ino;
        fill(ino);
        ino
    };
    (0..files).map(create).collect()
}

/// Returns an extent record of version 2 for a unit of 512 pages without superseded pages.
fn extent_record() -> Vec<u8> {
    let mut record = vec![2, 0, 0, 0];
    for number in [500_000_u32, 0, 1] {
        record.extend(number.to_le_bytes());
    }
    record.extend(1_u64.to_le_bytes());
    record.extend(512_u32.to_le_bytes());
    record.extend([0; 64]);
    record
}

fn write_extents(folder: &Path, disks: usize, inos: &[u64], aus_per_file: u64) {
    let record = extent_record();
    for index in 0..disks {
        let path = folder.join(format!("disk{index}/metadata.redb"));
        let database = Database::open(path).expect("the metadata can be opened");
        let transaction = database.begin_write().expect("the metadata can be written");
        {
            let mut extents = transaction.open_table(EXTENTS).expect("the metadata have extents");
            for (ino, au) in inos.iter().flat_map(|ino| (0..aus_per_file).map(move |au| (*ino, au))) {
                extents.insert((ino, au), &record[..]).expect("the metadata can be written");
            }
        }
        transaction.commit().expect("the metadata can be committed");
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |index: usize| arguments.get(index).expect("create|sparse|units|open FOLDER DISKS [FILES]");
    let number = |index: usize| argument(index).parse().expect("a number");
    let (folder, disks) = (Path::new(argument(1)), number(2) as usize);
    match argument(0).as_str() {
        "create" => {
            let volume = open(folder, disks);
            let inos = create(&volume, number(3), drop);
            volume.close().expect("the volume can be closed");
            // Written directly: the volume keeps the descriptors of files that are not synced.
            for (index, ino) in (0..disks).flat_map(|index| inos.iter().map(move |ino| (index, ino))) {
                let parent = folder.join(format!("disk{index}/data/{:02x}", ino & 0xff));
                std::fs::create_dir_all(&parent).expect("a folder can be created");
                std::fs::write(parent.join(format!("{ino:016x}")), [7; 100]).expect("a file can be written");
            }
        }
        "units" | "sparse" => {
            let volume = open(folder, disks);
            let inos = create(&volume, number(3), |ino| volume.truncate(ino, GIB).expect("the file can be extended"));
            let au_bytes = volume.au_bytes(inos[0]).expect("a file has allocation units");
            volume.close().expect("the volume can be closed");
            drop(volume);
            if argument(0) == "units" {
                write_extents(folder, disks, &inos, GIB / au_bytes);
            }
        }
        _ => measure(folder, disks),
    }
}

fn measure(folder: &Path, disks: usize) {
    let (before, started) = (resident_bytes(), Instant::now());
    let volume = open(folder, disks);
    let (seconds, opened) = (started.elapsed().as_secs_f64(), resident_bytes());
    let files = volume.files();
    let mib = |bytes: u64| bytes as f64 / (1 << 20) as f64;
    println!("opened {} files on {disks} disks in {seconds:.2} s, {:.1} MiB", files.len(), mib(opened - before));
    let is_sparse = |ino: &u64| {
        let is_raw = volume.au_info(*ino, AuIndex(0)).is_ok_and(|info| info.format == AuFormat::Raw);
        is_raw && volume.size(*ino).is_ok_and(|size| size == GIB)
    };
    let sparse: Vec<u64> = files.into_iter().filter(is_sparse).collect();
    let before = resident_bytes();
    for ino in &sparse {
        // Changes the version of each region.
        volume.fallocate(*ino, 0, GIB, Fallocate::PunchHole).expect("the file can be punched");
    }
    if !sparse.is_empty() {
        let regions = sparse.len() as u64 * (GIB >> 20);
        println!("versions of {regions} regions: {} bytes each", (resident_bytes() - before) / regions);
    }
    volume.abandon();
}
