//! Measuring what the requests to a disk cost: rates of reads and writes of a temporary file on the disk.
//!
//! The measured costs are kept in a note of the disk. Costs outside of what a device can do are refused, on measuring and on
//! reading the note.

use super::cost::CostModel;
use crate::disk::{Access, DIRECT_ALIGN, Disk, DiskFile};
use crate::error::{Context, Error, ErrorKind, Result};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The note in which a disk keeps its measured costs.
pub const NOTE: &str = "iorm-costs";
/// The file that is read and written.
const FILE: &str = "calibration";
/// Size of the file, if the disk has eight times as much free space, and the least size.
const FILE_BYTES_MAX: u64 = if cfg!(test) { 32 } else { 256 } << 20;
const FILE_BYTES_MIN: u64 = 16 << 20;
const WRITE_BYTES: usize = 1 << 20;
/// How long each rate is measured.
const DURATION: Duration = Duration::from_millis(if cfg!(test) { 20 } else { 250 });
/// Writes between two syncs while the file is written: a sync must not take as long as a disk may take that is not to fail.
const BYTES_PER_SYNC: u64 = 16 << 20;
/// Writes between two syncs of a thread.
const WRITES_PER_SYNC: u64 = 16;
/// Of ten requests of the mix, the number of writes, and the requests in flight.
const MIX_WRITES: u64 = 3;
const MIX_DEPTH: u64 = 16;
const SMALL_BYTES: u64 = 8192;
/// What a device can do: small requests and bytes per second.
const SMALL_RATES: std::ops::RangeInclusive<f64> = 5.0..=20e6;
const BYTE_RATES: std::ops::RangeInclusive<f64> = 256e3..=200e9;

/// Rates of a disk, from its costs.
#[derive(Debug, Clone, PartialEq)]
pub struct Calibration {
    pub small_reads: f64,
    pub small_writes: f64,
    /// Small requests, of which 30 % are writes; None if it was not measured.
    pub mixed: Option<f64>,
    pub read_bytes: f64,
    pub write_bytes: f64,
}

impl Calibration {
    pub fn of_costs(costs: &CostModel, mixed: Option<f64>) -> Self {
        let small = |is_write| 1.0 / costs.cost(is_write, SMALL_BYTES as usize, false);
        let bytes = |is_write| {
            let large = 1 << 20;
            large as f64 / costs.cost(is_write, large, true)
        };
        Self {
            small_reads: small(false),
            small_writes: small(true),
            mixed,
            read_bytes: bytes(false),
            write_bytes: bytes(true),
        }
    }

    /// Returns what is not possible about the rates.
    fn implausible(&self) -> Option<String> {
        let small = [("reads of 8 KiB", self.small_reads), ("writes of 8 KiB", self.small_writes)];
        let bytes = [("bytes read", self.read_bytes), ("bytes written", self.write_bytes)];
        let outside = |rates: std::ops::RangeInclusive<f64>| move |(_, rate): &(&str, f64)| !rates.contains(rate);
        let found =
            small.into_iter().find(outside(SMALL_RATES)).or_else(|| bytes.into_iter().find(outside(BYTE_RATES)));
        if let Some((what, rate)) = found {
            return Some(format!("{rate:.1} {what} per second"));
        }
        let slower = self.read_bytes < self.small_reads * SMALL_BYTES as f64 / 4.0;
        slower.then(|| {
            format!(
                "large reads of {:.1} MB/s beside {:.0} small reads per second",
                self.read_bytes / 1e6,
                self.small_reads
            )
        })
    }
}

/// Returns costs if a device can have them.
pub fn plausible(costs: CostModel) -> std::result::Result<CostModel, String> {
    match Calibration::of_costs(&costs, None).implausible() {
        None => Ok(costs),
        Some(reason) => Err(reason),
    }
}

/// Reads the costs that a disk keeps.
pub fn read(disk: &dyn Disk) -> Option<CostModel> {
    let note = disk.read_note(NOTE).ok().flatten()?;
    let costs = CostModel::from_note(&note).ok_or_else(|| "the note is damaged".to_owned()).and_then(plausible);
    costs
        .inspect_err(|reason| {
            log::error!(
                "cell disk {}: the calibrated costs are ignored: {reason}; run CALIBRATE FORCE again",
                disk.path().display()
            );
        })
        .ok()
}

/// Removes the file of a calibration that ended without removing it, because the process was killed.
pub fn remove_left_over(disk: &dyn Disk) {
    let removed = disk.open_existing(FILE).and_then(|file| file.map_or(Ok(()), |_| disk.remove_named(FILE)));
    if let Err(error) = removed {
        log::warn!("could not remove the file {FILE} from disk {}: {error}", disk.path().display());
    }
}

/// Measures a disk, and keeps the costs in its note.
pub fn measure(disk: &dyn Disk) -> Result<(CostModel, Calibration)> {
    let could_not = || format!("could not calibrate disk {}", disk.path().display());
    let free = disk.space().context(could_not)?.available;
    let bytes = (free / 8).min(FILE_BYTES_MAX) / WRITE_BYTES as u64 * WRITE_BYTES as u64;
    if bytes < FILE_BYTES_MIN {
        let message =
            format!("{}: {} MiB are free, {} are needed", could_not(), free >> 20, (8 * FILE_BYTES_MIN) >> 20);
        return Err(Error::new(ErrorKind::NoSpace, message));
    }
    let measured = File::create(disk, bytes).and_then(|file| {
        let costs = CostModel::from_rates(|access, length, is_sequential, depth| {
            file.rate(&|_| access, length, is_sequential, depth)
        })?;
        let mix = |request: u64| if request % 10 < MIX_WRITES { Access::Write } else { Access::Read };
        Ok((costs, file.rate(&mix, SMALL_BYTES, false, MIX_DEPTH)?))
    });
    let removed = disk.remove_named(FILE);
    let (costs, mixed) = measured.context(could_not)?;
    removed.context(could_not)?;
    let costs = plausible(costs).map_err(|reason| {
        let message = format!("{}: {reason} is no rate of a disk; the costs are unchanged", could_not());
        Error::new(ErrorKind::Invalid, message)
    })?;
    disk.write_note(NOTE, &costs.to_note()).context(could_not)?;
    Ok((costs, Calibration::of_costs(&costs, Some(mixed))))
}

struct File {
    file: Arc<dyn DiskFile>,
    bytes: u64,
}

impl File {
    /// Writes a file of bytes that no device compresses.
    fn create(disk: &dyn Disk, bytes: u64) -> io::Result<Self> {
        disk.remove_named(FILE)?;
        let file = disk.open_named(FILE)?;
        let mut buffer = vec![0; WRITE_BYTES];
        let mut random = Random(bytes);
        for offset in (0..bytes).step_by(WRITE_BYTES) {
            buffer.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&random.next().to_le_bytes()));
            file.write_at(&buffer, offset)?;
            if (offset + WRITE_BYTES as u64).is_multiple_of(BYTES_PER_SYNC) {
                file.sync()?;
            }
        }
        file.sync()?;
        Ok(Self { file, bytes })
    }

    /// Returns the requests per second of `depth` threads. `access` says for each request of a thread, by its number, what it does.
    fn rate(
        &self,
        access: &(dyn Fn(u64) -> Access + Sync),
        length: u64,
        is_sequential: bool,
        depth: u64,
    ) -> io::Result<f64> {
        let (ends, done) = (AtomicBool::new(false), AtomicU64::new(0));
        let blocks = self.bytes / length;
        let run = |thread: u64| -> io::Result<()> {
            let mut buffer = vec![0_u8; length as usize + DIRECT_ALIGN];
            let start = buffer.as_ptr().align_offset(DIRECT_ALIGN);
            let buffer = &mut buffer[start..start + length as usize];
            let mut random = Random(thread + length);
            buffer.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&random.next().to_le_bytes()));
            let (first, mut unsynced) = (blocks / depth * thread, 0);
            for number in 0.. {
                if ends.load(Ordering::Relaxed) {
                    break;
                }
                let block = if is_sequential { first + number } else { random.next() } % blocks;
                match access(number) {
                    Access::Read => _ = self.file.read_medium(buffer, block * length)?,
                    Access::Write => {
                        self.file.write_at(buffer, block * length)?;
                        unsynced += 1;
                        if unsynced == WRITES_PER_SYNC {
                            self.file.sync()?;
                            unsynced = 0;
                        }
                    }
                    Access::Flush => self.file.sync()?,
                }
                done.fetch_add(1, Ordering::Relaxed);
            }
            if unsynced > 0 { self.file.sync() } else { Ok(()) }
        };
        let began = Instant::now();
        let results: Vec<io::Result<()>> = std::thread::scope(|scope| {
            let run = &run;
            let spawn = |thread| std::thread::Builder::new().spawn_scoped(scope, move || run(thread));
            let threads: io::Result<Vec<_>> = (0..depth).map(spawn).collect();
            if threads.is_ok() {
                std::thread::sleep(DURATION);
            }
            ends.store(true, Ordering::Relaxed);
            let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
                thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread of the measurement failed")))
            };
            threads.map_or_else(|error| vec![Err(error)], |threads| threads.into_iter().map(join).collect())
        });
        let took = began.elapsed().as_secs_f64();
        results.into_iter().collect::<io::Result<()>>()?;
        // The requests in flight at the end count, so the rate is never 0.
        Ok(done.load(Ordering::Relaxed).max(1) as f64 / took)
    }
}

/// The generator SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::DirectoryDisk;

    #[test]
    fn measured_costs_are_kept_and_damaged_notes_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let disk = DirectoryDisk::new(folder.path().join("disk")).unwrap();
        assert_eq!(read(&disk), None);
        let (costs, rates) = measure(&disk).unwrap();
        assert_eq!(read(&disk), Some(costs));
        assert!(rates.mixed.is_some_and(|mixed| mixed > 0.0) && disk.open_existing(FILE).unwrap().is_none());
        let note = costs.to_note();
        assert_eq!(CostModel::from_note(&note), Some(costs));
        for damaged in [&note[..note.len() - 4], b"", b"1 a b", b"1 NaN 1 1 1 1 1 1 65536", b"2 1 1 1 1 1 1 1 65536"] {
            disk.write_note(NOTE, damaged).unwrap();
            assert_eq!(read(&disk), None, "{}", String::from_utf8_lossy(damaged));
        }
        // A device that reads 1 byte in a second.
        disk.write_note(NOTE, b"1 1e0 1e-5 1e-5 1e-9 1e-5 1e-5 1e-3 65536\n").unwrap();
        assert_eq!(read(&disk), None);
    }

    #[test]
    fn the_costs_of_ordinary_devices_and_models_are_plausible() {
        assert!(plausible(CostModel::ordinary()).is_ok());
        for name in crate::disk::ModelParameters::built_in() {
            let parameters = crate::disk::ModelParameters::read(name).unwrap();
            assert!(plausible(CostModel::of_model(&parameters, 1.0)).is_ok(), "{name}");
        }
    }
}
