//! Measures disk groups of modelled disks, in model time: stripes over 1, 2 and 4 disks, and allocation units of 1, 4 and
//! 8 MiB. Prints Markdown tables. The load of the machine matters little: requests take milliseconds.
//!
//! Usage: `device_models FOLDER [MODEL [MIB [SCALE]]]`: a folder for the bytes, the model of the disks (hdd-15k), the size of
//! the file (256), and real seconds per model second (1).

use cellar_storage::disk::{DirectoryDisk, Disk, ModelDisk, ModelParameters};
use cellar_storage::{AuSize, Ino, Kind, NewNode, ROOT_INO, Volume, VolumeOptions};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const MIB: u64 = 1 << 20;
const PAGE: u64 = 8192;
/// Requests in flight for each disk.
const SCANS: usize = 16;
const RANDOM_READERS: usize = 32;
const RANDOM_READS: u64 = 2000;

struct Case {
    volume: Arc<Volume>,
    disks: Vec<Arc<dyn Disk>>,
    ino: Ino,
    bytes: u64,
}

impl Case {
    fn new(folder: &Path, model: &str, disks: usize, au_mib: u64, bytes: u64, scale: f64) -> Self {
        let parameters = ModelParameters::read(model).expect("the model exists");
        let disk = |number: usize| {
            let directory = DirectoryDisk::new(folder.join(number.to_string())).expect("the folder can be created");
            Arc::new(ModelDisk::new(Arc::new(directory), model, &parameters, number as u64, scale)) as Arc<dyn Disk>
        };
        let disks: Vec<_> = (0..disks).map(disk).collect();
        let au_size = AuSize::from_bytes(au_mib * MIB).expect("a valid size");
        let options = VolumeOptions { au_size, cache_bytes: 16 * MIB, ..VolumeOptions::default() };
        let volume = Volume::open(disks.clone(), options).expect("the group can be formed");
        let node = NewNode { kind: Kind::File, mode: 0o600, uid: 0, gid: 0, device: 0, target: b"" };
        let ino = volume.create(ROOT_INO, b"file", &node).expect("the file can be created").ino;
        let case = Self { volume, disks, ino, bytes };
        // Neighbouring allocation units of a disk are written one after the other, as a load does.
        let data = vec![7; 4 * MIB as usize];
        for offset in (0..bytes).step_by(data.len()) {
            case.volume.write(ino, offset, &data).expect("the file can be written");
        }
        case.volume.fsync(ino).expect("the file can be synced");
        case
    }

    /// Runs readers until `total` requests are done; returns model seconds and requests to the disks.
    fn read(&self, readers: usize, total: u64, length: u64, place: impl Fn(u64) -> u64 + Sync) -> (f64, u64) {
        let count = || self.disks.iter().filter_map(|disk| disk.model_status()).map(|status| status.counts.reads).sum();
        let elapsed = || self.disks[0].model_status().map_or(0, |status| status.elapsed_ns);
        let (requests, started): (u64, u64) = (count(), elapsed());
        let next = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..readers {
                scope.spawn(|| {
                    let mut buffer = vec![0; length as usize];
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= total {
                            break;
                        }
                        let count =
                            self.volume.read(self.ino, place(number), &mut buffer).expect("the file can be read");
                        assert_eq!(count, buffer.len());
                    }
                });
            }
        });
        ((elapsed() - started) as f64 / 1e9, count() - requests)
    }

    /// Returns MB/s and requests of a scan with requests of 1 MiB.
    fn scan(&self) -> (f64, u64) {
        let (seconds, requests) = self.read(SCANS * self.disks.len(), self.bytes / MIB, MIB, |number| number * MIB);
        (self.bytes as f64 / 1e6 / seconds, requests)
    }

    /// Returns reads per second at random places.
    fn random(&self) -> f64 {
        let pages = self.bytes / PAGE;
        // Visits pages in an order without pattern.
        let place = |number: u64| (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) % pages * PAGE;
        let (disks, total) = (self.disks.len(), RANDOM_READS * self.disks.len() as u64);
        total as f64 / self.read(RANDOM_READERS * disks, total, PAGE, place).0
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let folder = arguments.first().expect("usage: device_models FOLDER [MODEL [MIB [SCALE]]]");
    let model = arguments.get(1).map_or("hdd-15k", String::as_str);
    let bytes = arguments.get(2).map_or(256, |text| text.parse().expect("a number of MiB")) * MIB;
    let scale = arguments.get(3).map_or(1.0, |text| text.parse().expect("a number"));
    let case = |name: String, disks, au_mib| {
        let folder = Path::new(folder).join(name);
        std::fs::create_dir_all(&folder).expect("the folder can be created");
        Case::new(&folder, model, disks, au_mib, bytes, scale)
    };
    println!("| disks {model} | scan, MB/s | | random reads per second | |\n|---:|---:|---:|---:|---:|");
    let mut first = None;
    for disks in [1, 2, 4] {
        let case = case(format!("stripes{disks}"), disks, 4);
        let (rate, random) = (case.scan().0, case.random());
        let (one_rate, one_random) = *first.get_or_insert((rate, random));
        println!("| {disks} | {rate:.0} | {:.2}x | {random:.0} | {:.2}x |", rate / one_rate, random / one_random);
        case.volume.close().expect("the volume can be closed");
    }
    println!("\n| allocation unit, 4 disks {model} | scan, MB/s | requests to the disks |\n|---:|---:|---:|");
    for au_mib in [1, 4, 8] {
        let case = case(format!("au{au_mib}"), 4, au_mib);
        let (rate, requests) = case.scan();
        println!("| {au_mib} MiB | {rate:.0} | {requests} |");
        case.volume.close().expect("the volume can be closed");
    }
}
