//! The files of the history: one for each day (UTC), of records that are only appended.
//!
//! A record is durable when [`HistoryLog::append`] returns. What a crash leaves of an unfinished record is cut off before the next one
//! is appended. `docs/format/metric-history.md` describes the bytes.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::ops::RangeInclusive;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use cellar_format::bytes::{Reader, Write as _};

const MAGIC: u32 = u32::from_le_bytes(*b"CLMH");
const HEADER_BYTES: usize = 20;
/// Maximum length of a record before and after compression.
const TEXT_BYTES_MAX: usize = 16 << 20;
const DAY_MS: u64 = 24 * 3600 * 1000;
/// Days that are kept besides the present one.
const DAYS_KEPT: u64 = 7;
/// A file does not grow beyond this size.
const FILE_BYTES_MAX: u64 = 32 << 20;
const FOLDER: &str = "metric-history";

/// A state of the metrics, as JSON text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub time_ms: u64,
    pub text: Vec<u8>,
}

#[derive(Debug)]
pub struct HistoryLog {
    /// A record goes to the first of these directories that takes it.
    folders: Vec<PathBuf>,
    /// The file that records are appended to, with its folder, its day and its length.
    open: Option<OpenFile>,
}

#[derive(Debug)]
struct OpenFile {
    folder: PathBuf,
    day: u64,
    length: u64,
    file: File,
}

impl HistoryLog {
    /// Keeps the history below `directories`.
    pub fn new(directories: &[PathBuf]) -> Self {
        Self { folders: directories.iter().map(|directory| directory.join(FOLDER)).collect(), open: None }
    }

    /// Appends a record, and removes the files of days that are not kept any more.
    pub fn append(&mut self, record: &Record) -> io::Result<()> {
        let bytes = encode(record)?;
        let day = record.time_ms / DAY_MS;
        let mut result = Err(io::Error::other("the cell has no directory for the history"));
        for folder in self.folders.clone() {
            result = self.append_below(&folder, day, &bytes);
            if result.is_ok() {
                break;
            }
            self.open = None;
        }
        result
    }

    fn append_below(&mut self, folder: &Path, day: u64, bytes: &[u8]) -> io::Result<()> {
        let is_open = |open: &OpenFile| open.folder == folder && open.day == day;
        if !self.open.as_ref().is_some_and(is_open) {
            self.open = Some(OpenFile::new(folder, day)?);
            remove_before(folder, day.saturating_sub(DAYS_KEPT));
        }
        let Some(open) = &mut self.open else { return Ok(()) };
        if open.length + bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, "the history of the day has its maximum size"));
        }
        open.file.write_all(bytes)?;
        open.file.sync_data()?;
        open.length += bytes.len() as u64;
        Ok(())
    }

    /// Returns a log that only reads.
    pub fn reader(&self) -> Self {
        Self { folders: self.folders.clone(), open: None }
    }

    /// Returns the times of all records, in order.
    pub fn times(&self) -> Vec<u64> {
        let mut times = Vec::new();
        for (_, path) in self.files() {
            for_each_record(&path, |time_ms, _| times.push(time_ms));
        }
        times.sort_unstable();
        times.dedup();
        times
    }

    /// Calls `visit` for each record of these times, in order of the time.
    pub fn read<E>(&self, times: RangeInclusive<u64>, mut visit: impl FnMut(Record) -> Result<(), E>) -> Result<(), E> {
        let days = times.start() / DAY_MS..=times.end() / DAY_MS;
        let files = self.files();
        let mut of_day: BTreeMap<u64, Vec<PathBuf>> = BTreeMap::new();
        for (day, path) in files.into_iter().filter(|(day, _)| days.contains(day)) {
            of_day.entry(day).or_default().push(path);
        }
        for paths in of_day.into_values() {
            let mut records: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
            for path in paths {
                for_each_record(&path, |time_ms, compressed| {
                    if times.contains(&time_ms) {
                        records.insert(time_ms, compressed.to_vec());
                    }
                });
            }
            for (time_ms, compressed) in records {
                match decompress(&compressed) {
                    Some(text) => visit(Record { time_ms, text })?,
                    None => log::warn!("a record of the history of metrics is corrupt: time {time_ms}"),
                }
            }
        }
        Ok(())
    }

    /// Returns the files of all folders with their days.
    fn files(&self) -> Vec<(u64, PathBuf)> {
        self.folders.iter().flat_map(|folder| files_below(folder)).collect()
    }
}

impl OpenFile {
    /// Opens the file of a day, and cuts off what an unfinished append has left.
    fn new(folder: &Path, day: u64) -> io::Result<Self> {
        // Not the disk's own directory, whose filesystem may not be mounted.
        match fs::create_dir(folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let path = folder.join(day.to_string());
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(&path)?;
        let valid = for_each_record(&path, |_, _| ());
        let length = file.metadata()?.len();
        if length > valid {
            log::info!("cut {} bytes of an unfinished record off {}", length - valid, path.display());
            file.set_len(valid)?;
        }
        File::open(folder)?.sync_all()?;
        Ok(Self { folder: folder.to_owned(), day, length: valid, file })
    }
}

fn files_below(folder: &Path) -> Vec<(u64, PathBuf)> {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let file = |entry: fs::DirEntry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path()));
    entries.filter_map(file).collect()
}

fn remove_before(folder: &Path, day: u64) {
    for (_, path) in files_below(folder).into_iter().filter(|(of, _)| *of < day) {
        if let Err(error) = fs::remove_file(&path) {
            log::warn!("could not remove {}: {error}", path.display());
        }
    }
}

fn encode(record: &Record) -> io::Result<Vec<u8>> {
    if record.text.len() > TEXT_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("{} bytes of metrics", record.text.len())));
    }
    let compressed = lz4_flex::compress_prepend_size(&record.text);
    let mut checked = Vec::with_capacity(compressed.len() + 12);
    checked.put_u32(compressed.len() as u32);
    checked.put_u64(record.time_ms);
    checked.put_bytes(&compressed);
    let mut bytes = Vec::with_capacity(checked.len() + 8);
    bytes.put_u32(MAGIC);
    bytes.put_u32(crc32c::crc32c(&checked));
    bytes.put_bytes(&checked);
    Ok(bytes)
}

/// Calls `visit` with time and compressed text of each record, up to the first one that is not valid. Returns the length of the
/// valid records.
fn for_each_record(path: &Path, mut visit: impl FnMut(u64, &[u8])) -> u64 {
    let bytes = fs::read(path).unwrap_or_default();
    let mut at = 0;
    while let Some((time_ms, compressed)) = decode(&bytes[at..]) {
        visit(time_ms, compressed);
        at += HEADER_BYTES + compressed.len();
    }
    at as u64
}

fn decode(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut reader = Reader::new(bytes);
    let (magic, checksum) = (reader.u32("magic").ok()?, reader.u32("checksum").ok()?);
    let length = reader.u32("length").ok()? as usize;
    let time_ms = reader.u64("time").ok()?;
    let compressed = reader.take(length, "record").ok()?;
    let is_valid = magic == MAGIC && checksum == crc32c::crc32c(&bytes[8..HEADER_BYTES + length]);
    is_valid.then_some((time_ms, compressed))
}

fn decompress(compressed: &[u8]) -> Option<Vec<u8>> {
    let length = Reader::new(compressed).u32("length").ok()? as usize;
    (length <= TEXT_BYTES_MAX).then(|| lz4_flex::decompress_size_prepended(compressed).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(time_ms: u64) -> Record {
        Record { time_ms, text: format!("{time_ms} ").repeat(100).into_bytes() }
    }

    fn all(log: &HistoryLog, times: RangeInclusive<u64>) -> Vec<u64> {
        let mut found = Vec::new();
        let visit = |seen: Record| {
            assert_eq!(seen, record(seen.time_ms));
            found.push(seen.time_ms);
            Ok::<(), ()>(())
        };
        log.read(times, visit).unwrap();
        found
    }

    #[test]
    fn records_survive_a_restart_and_a_torn_end_is_cut() {
        let folder = tempfile::tempdir().unwrap();
        let directories = [folder.path().to_owned()];
        let day = 20_000 * DAY_MS;
        let mut log = HistoryLog::new(&directories);
        [1, 2].into_iter().for_each(|time| log.append(&record(day + time)).unwrap());
        let path = folder.path().join(FOLDER).join("20000");
        let whole = fs::read(&path).unwrap();
        // Every length of the second record that a crash may leave, and bytes that were never written.
        let second = whole.len() - encode(&record(day + 2)).unwrap().len();
        for length in second..whole.len() {
            let zeros = vec![0; whole.len() - length];
            for torn in [whole[..length].to_vec(), [&whole[..length], &zeros].concat()] {
                fs::write(&path, &torn).unwrap();
                let mut log = HistoryLog::new(&directories);
                assert_eq!(all(&log, 0..=u64::MAX), [day + 1], "{length}");
                log.append(&record(day + 3)).unwrap();
                assert_eq!(all(&log, 0..=u64::MAX), [day + 1, day + 3], "{length}");
            }
        }
    }

    #[test]
    fn days_are_kept_for_a_week_and_times_select_records() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = HistoryLog::new(&[folder.path().join("full/missing"), folder.path().to_owned()]);
        // The first directory takes no records.
        fs::write(folder.path().join("full"), "").unwrap();
        let times: Vec<u64> = (0..10).map(|day| (20_000 + day) * DAY_MS + 5).collect();
        times.iter().for_each(|time| log.append(&record(*time)).unwrap());
        assert_eq!(log.times(), times[2..]);
        assert_eq!(all(&log, times[4]..=times[6]), times[4..7]);
        assert_eq!(all(&log, times[4] + 1..=times[6] - 1), times[5..6]);
        assert_eq!(fs::read_dir(folder.path().join(FOLDER)).unwrap().count(), 8);
    }

    #[test]
    fn the_history_of_a_day_is_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = HistoryLog::new(&[folder.path().to_owned()]);
        log.append(&record(DAY_MS)).unwrap();
        log.open.as_mut().unwrap().length = FILE_BYTES_MAX;
        assert_eq!(log.append(&record(DAY_MS + 1)).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(all(&log, 0..=u64::MAX), [DAY_MS]);
        log.append(&record(2 * DAY_MS)).unwrap();
    }
}
