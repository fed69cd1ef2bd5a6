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
const DAYS_KEPT: usize = 7;
/// A file does not grow beyond this size.
const FILE_BYTES_MAX: u64 = 32 << 20;
/// The folder of the history in a directory.
pub const FOLDER: &str = "metric-history";

/// A state of the metrics, as JSON text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub time_ms: u64,
    pub text: Vec<u8>,
}

/// Appends records. Between records no file is open, so that the filesystem of a disk can be unmounted.
#[derive(Debug, Default)]
pub struct HistoryLog {
    last: Option<LastFile>,
}

/// The file that the last record was appended to, whose records are valid up to its end.
#[derive(Debug)]
struct LastFile {
    path: PathBuf,
    length: u64,
}

impl HistoryLog {
    /// Appends a record below the first of the directories that takes it, and removes the files of days that are not kept any more.
    pub fn append(&mut self, directories: &[PathBuf], record: &Record) -> io::Result<()> {
        let bytes = encode(record)?;
        let day = record.time_ms / DAY_MS;
        let mut result = Err(io::Error::other("the cell has no directory for the history"));
        for directory in directories {
            result = self.append_below(&directory.join(FOLDER), day, &bytes);
            if result.as_ref().err().is_none_or(is_full_day) {
                break;
            }
        }
        result
    }

    fn append_below(&mut self, folder: &Path, day: u64, bytes: &[u8]) -> io::Result<()> {
        let path = folder.join(day.to_string());
        let last = self.last.take().filter(|last| last.path == path);
        let (mut file, length) = open_to_append(folder, &path, last)?;
        let written = match length + bytes.len() as u64 > FILE_BYTES_MAX {
            true => 0,
            false => {
                file.write_all(bytes)?;
                file.sync_data()?;
                bytes.len() as u64
            }
        };
        self.last = Some(LastFile { path, length: length + written });
        match written {
            0 => Err(io::Error::new(io::ErrorKind::FileTooLarge, "the history of the day has its maximum size")),
            _ => Ok(()),
        }
    }
}

/// Returns whether the history of the day has its maximum size. Other directories take no more records of the day, either.
pub fn is_full_day(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::FileTooLarge
}

/// Reads the history below some directories. A record that is being appended is visible as a whole or not at all.
#[derive(Debug)]
pub struct HistoryReader {
    folders: Vec<PathBuf>,
}

impl HistoryReader {
    pub fn new(directories: &[PathBuf]) -> Self {
        Self { folders: directories.iter().map(|directory| directory.join(FOLDER)).collect() }
    }

    /// Returns the times of all records, in order.
    pub fn times(&self) -> Vec<u64> {
        let mut times = Vec::new();
        for (_, path) in self.files() {
            visit_readable(&path, |time_ms, _| times.push(time_ms));
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
                visit_readable(&path, |time_ms, compressed| {
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

/// Opens a file of the history, and returns its length. Cuts off what an unfinished append has left, unless the file is as the last
/// append has left it.
fn open_to_append(folder: &Path, path: &Path, last: Option<LastFile>) -> io::Result<(File, u64)> {
    // Not the disk's own directory, whose filesystem may not be mounted.
    match fs::create_dir(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
    let length = file.metadata()?.len();
    if last.is_some_and(|last| last.length == length) {
        return Ok((file, length));
    }
    let valid = for_each_record(path, |_, _| ())?;
    if length > valid {
        log::info!("cut {} bytes of an unfinished record off {}", length - valid, path.display());
        file.set_len(valid)?;
    }
    File::open(folder)?.sync_all()?;
    remove_old(folder);
    Ok((file, valid))
}

fn files_below(folder: &Path) -> Vec<(u64, PathBuf)> {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let file = |entry: fs::DirEntry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path()));
    entries.filter_map(file).collect()
}

/// Keeps the newest files. The clock does not decide, because it may be set.
fn remove_old(folder: &Path) {
    let mut files = files_below(folder);
    files.sort_unstable_by_key(|(day, _)| std::cmp::Reverse(*day));
    for (_, path) in files.into_iter().skip(DAYS_KEPT + 1) {
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
fn for_each_record(path: &Path, mut visit: impl FnMut(u64, &[u8])) -> io::Result<u64> {
    let bytes = fs::read(path)?;
    let mut at = 0;
    while let Some((time_ms, compressed)) = decode(&bytes[at..]) {
        visit(time_ms, compressed);
        at += HEADER_BYTES + compressed.len();
    }
    Ok(at as u64)
}

/// As [`for_each_record`] for a reader, which goes on with the other files if one cannot be read.
fn visit_readable(path: &Path, visit: impl FnMut(u64, &[u8])) {
    match for_each_record(path, visit) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            log::warn!("could not read {}: {error}", path.display())
        }
        _ => {}
    }
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

    fn all(log: &HistoryReader, times: RangeInclusive<u64>) -> Vec<u64> {
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
        let mut log = HistoryLog::default();
        let reader = HistoryReader::new(&directories);
        [1, 2].into_iter().for_each(|time| log.append(&directories, &record(day + time)).unwrap());
        let path = folder.path().join(FOLDER).join("20000");
        let whole = fs::read(&path).unwrap();
        // Every length of the second record that a crash may leave, and bytes that were never written.
        let second = whole.len() - encode(&record(day + 2)).unwrap().len();
        for length in second..whole.len() {
            let zeros = vec![0; whole.len() - length];
            for torn in [whole[..length].to_vec(), [&whole[..length], &zeros].concat()] {
                fs::write(&path, &torn).unwrap();
                assert_eq!(all(&reader, 0..=u64::MAX), [day + 1], "{length}");
                HistoryLog::default().append(&directories, &record(day + 3)).unwrap();
                assert_eq!(all(&reader, 0..=u64::MAX), [day + 1, day + 3], "{length}");
            }
        }
    }

    #[test]
    fn days_are_kept_for_a_week_and_times_select_records() {
        let folder = tempfile::tempdir().unwrap();
        let directories = [folder.path().join("full/missing"), folder.path().to_owned()];
        let (mut log, reader) = (HistoryLog::default(), HistoryReader::new(&directories));
        // The first directory takes no records.
        fs::write(folder.path().join("full"), "").unwrap();
        let times: Vec<u64> = (0..10).map(|day| (20_000 + day) * DAY_MS + 5).collect();
        times.iter().for_each(|time| log.append(&directories, &record(*time)).unwrap());
        assert_eq!(reader.times(), times[2..]);
        assert_eq!(all(&reader, times[4]..=times[6]), times[4..7]);
        assert_eq!(all(&reader, times[4] + 1..=times[6] - 1), times[5..6]);
        assert_eq!(fs::read_dir(folder.path().join(FOLDER)).unwrap().count(), 8);
        // A clock that is set years ahead, and back, costs one day.
        let ahead = 50_000 * DAY_MS;
        [ahead, times[9] + 1].iter().for_each(|time| log.append(&directories, &record(*time)).unwrap());
        assert_eq!(reader.times(), [&times[3..], &[times[9] + 1, ahead]].concat());
    }

    #[test]
    fn a_file_that_cannot_be_read_is_not_cut() {
        let folder = tempfile::tempdir().unwrap();
        let directories = [folder.path().to_owned()];
        // A directory in place of the file cannot be read.
        fs::create_dir_all(folder.path().join(FOLDER).join("1/kept")).unwrap();
        assert!(HistoryLog::default().append(&directories, &record(DAY_MS)).is_err());
        assert!(folder.path().join(FOLDER).join("1/kept").exists());
        assert!(HistoryReader::new(&directories).times().is_empty());
    }

    #[test]
    fn the_history_of_a_day_is_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let other = tempfile::tempdir().unwrap();
        let directories = [folder.path().to_owned(), other.path().to_owned()];
        let mut log = HistoryLog::default();
        log.append(&directories, &record(DAY_MS)).unwrap();
        // Bytes beyond the first record, which the log takes for records.
        let path = folder.path().join(FOLDER).join("1");
        OpenOptions::new().append(true).open(&path).unwrap().set_len(FILE_BYTES_MAX).unwrap();
        log.last.as_mut().unwrap().length = FILE_BYTES_MAX;
        (1..3).for_each(|time| assert!(is_full_day(&log.append(&directories, &record(DAY_MS + time)).unwrap_err())));
        assert_eq!(all(&HistoryReader::new(&directories), 0..=u64::MAX), [DAY_MS]);
        log.append(&directories, &record(2 * DAY_MS)).unwrap();
    }
}
