//! Measures how fast a scan reads regions, cold and warm: `scan_rate FOLDER [MIB]`. Compare with fio's sequential
//! O_DIRECT rate on the same disk. Creates a file in FOLDER at the first run and reuses it later.

use cellar_format::units::RegionIndex;
use cellar_storage::disk::{DirectoryDisk, Disk};
use cellar_storage::{Ino, Kind, NewNode, ROOT_INO, Volume, VolumeOptions};
use std::sync::Arc;
use std::time::Instant;

const PREFETCH: u32 = 16;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let folder = std::path::PathBuf::from(arguments.next().expect("a folder"));
    let mib: u64 = arguments.next().map_or(2048, |text| text.parse().expect("a number of MiB"));
    let disk = Arc::new(DirectoryDisk::new(folder.join("disk")).unwrap()) as Arc<dyn Disk>;
    let options = VolumeOptions { cache_bytes: (mib + 64) << 20, ..VolumeOptions::default() };
    let volume = Volume::open(vec![disk], options).unwrap();
    let ino = volume.resolve("file").unwrap_or_else(|| fill(&volume, mib));
    for label in ["cold", "warm", "warm"] {
        let started = Instant::now();
        let (mut sum, mut disk_bytes) = (0_u64, 0);
        for region in 0..mib as u32 {
            volume.prefetch(ino, RegionIndex(region + 1)..RegionIndex(region + 1 + PREFETCH));
            let guard = volume.region(ino, RegionIndex(region)).unwrap();
            disk_bytes += guard.cost().disk_bytes;
            // Touch one cache line of every page, like a check of page headers.
            sum += guard.iter().step_by(8192).map(|byte| u64::from(*byte)).sum::<u64>();
        }
        let seconds = started.elapsed().as_secs_f64();
        println!("{label}: {:.0} MiB/s, {} MiB from disk (sum {sum})", mib as f64 / seconds, disk_bytes >> 20);
    }
    volume.close().unwrap();
}

fn fill(volume: &Volume, mib: u64) -> Ino {
    let new = NewNode { kind: Kind::File, mode: 0o600, uid: 0, gid: 0, device: 0, target: b"" };
    let ino = volume.create(ROOT_INO, b"file", &new).unwrap().ino;
    for at in 0..mib {
        volume.write(ino, at << 20, &vec![at as u8; 1 << 20]).unwrap();
    }
    volume.fsync(ino).unwrap();
    ino
}
