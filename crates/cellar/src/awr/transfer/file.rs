//! The export file of a repository, version 1; docs/format/awr-export.md describes the bytes.
//!
//! A header with magic, version and checksum precedes one zstd frame, whose checksum covers the contents. The contents are
//! lines: a JSON object about the export; per table a JSON object with its name and columns, the rows in the text format of
//! COPY, and a line `\.`; at the end a JSON object with the number of rows. A file that does not end this way is truncated.

use super::super::source::Failure;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

const MAGIC: [u8; 8] = *b"CELLRAWR";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 16;
/// The longest line that a reader accepts: PostgreSQL's limit of a field.
const LINE_BYTES_MAX: u64 = 1 << 30;
const END_OF_TABLE: &str = "\\.";

fn header() -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(&MAGIC);
    header[8..12].copy_from_slice(&VERSION.to_le_bytes());
    let checksum = crc32c::crc32c(&header[..12]);
    header[12..].copy_from_slice(&checksum.to_le_bytes());
    header
}

/// A table of the file: its name and the names of its columns.
pub struct TableHeader {
    pub name: String,
    pub columns: Vec<String>,
}

/// Writes to a temporary file beside the target. [`Writer::finish`] renames the file to the target; without it, the file is
/// deleted.
pub struct Writer {
    out: zstd::Encoder<'static, BufWriter<File>>,
    partial: PathBuf,
    target: PathBuf,
    rows: u64,
}

impl Writer {
    pub fn create(target: &Path, about: &Value) -> Result<Self, Failure> {
        let mut name = target.as_os_str().to_owned();
        name.push(".partial");
        let partial = PathBuf::from(name);
        let create = || {
            let mut file = BufWriter::new(File::create(&partial)?);
            file.write_all(&header())?;
            let mut out = zstd::Encoder::new(file, 6)?;
            out.include_checksum(true)?;
            writeln!(out, "{about}")?;
            Ok(out)
        };
        let out = create().map_err(|error| not_written(target, &error))?;
        Ok(Self { out, partial, target: target.to_owned(), rows: 0 })
    }

    fn line(&mut self, line: &str) -> Result<(), Failure> {
        let mut write = || {
            self.out.write_all(line.as_bytes())?;
            self.out.write_all(b"\n")
        };
        write().map_err(|error| not_written(&self.target, &error))
    }

    pub fn begin_table(&mut self, name: &str, columns: &[String]) -> Result<(), Failure> {
        self.line(&json!({ "table": name, "columns": columns }).to_string())
    }

    pub fn row(&mut self, row: &str) -> Result<(), Failure> {
        self.rows += 1;
        self.line(row)
    }

    pub fn end_table(&mut self) -> Result<(), Failure> {
        self.line(END_OF_TABLE)
    }

    /// Completes the file and makes it durable. Returns its size in bytes.
    pub fn finish(mut self) -> Result<u64, Failure> {
        self.line(&json!({ "rows": self.rows }).to_string())?;
        let mut complete = || {
            self.out.do_finish()?;
            self.out.get_mut().flush()?;
            self.out.get_ref().get_ref().sync_all()?;
            fs::rename(&self.partial, &self.target)?;
            Ok(fs::metadata(&self.target)?.len())
        };
        complete().map_err(|error| not_written(&self.target, &error))
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // After finish, the partial file no longer exists.
        let _ = fs::remove_file(&self.partial);
    }
}

fn not_written(target: &Path, error: &io::Error) -> Failure {
    Failure::error(format!("could not write \"{}\": {error}", target.display()))
}

/// A line after the first.
pub enum Line {
    Table(TableHeader),
    Row,
    EndOfTable,
    End,
}

pub struct Reader {
    lines: BufReader<zstd::Decoder<'static, BufReader<File>>>,
    name: String,
    in_table: bool,
    rows: u64,
    has_masked_names: bool,
    pub line: String,
}

impl Reader {
    pub fn open(file: &Path) -> Result<Self, Failure> {
        let name = file.display().to_string();
        let unreadable = |error: io::Error| Failure::error(format!("could not read \"{name}\": {error}"));
        let mut input = BufReader::new(File::open(file).map_err(unreadable)?);
        let mut found = [0; HEADER_BYTES];
        match input.read_exact(&mut found) {
            Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => return Err(unreadable(error)),
            _ => check_header(&name, &found)?,
        }
        let lines = zstd::Decoder::with_buffer(input).map_err(unreadable)?;
        let mut reader = Self {
            lines: BufReader::new(lines),
            name,
            in_table: false,
            rows: 0,
            has_masked_names: false,
            line: String::new(),
        };
        reader.read_line()?;
        let about: Value = serde_json::from_str(&reader.line)
            .map_err(|error| reader.damaged(&format!("The description of the export is not valid: {error}.")))?;
        reader.has_masked_names =
            about["masked"].as_array().is_some_and(|masked| masked.iter().any(|what| what == "names"));
        Ok(reader)
    }

    pub fn has_masked_names(&self) -> bool {
        self.has_masked_names
    }

    /// Reads the whole file, and fails if it is damaged.
    pub fn verify(file: &Path) -> Result<(), Failure> {
        let mut reader = Self::open(file)?;
        while !matches!(reader.next()?, Line::End) {}
        Ok(())
    }

    /// Reads a line. `self.line` contains it until the next call.
    pub fn next(&mut self) -> Result<Line, Failure> {
        self.read_line()?;
        if self.in_table {
            if self.line == END_OF_TABLE {
                self.in_table = false;
                return Ok(Line::EndOfTable);
            }
            self.rows += 1;
            return Ok(Line::Row);
        }
        let value: Value = serde_json::from_str(&self.line)
            .map_err(|error| self.damaged(&format!("The description of a table is not valid: {error}.")))?;
        if let Some(name) = value["table"].as_str() {
            let columns: Option<Vec<String>> = value["columns"]
                .as_array()
                .and_then(|columns| columns.iter().map(|column| Some(column.as_str()?.to_owned())).collect());
            let columns = columns.ok_or_else(|| self.damaged("The description of a table has no columns."))?;
            self.in_table = true;
            return Ok(Line::Table(TableHeader { name: name.to_owned(), columns }));
        }
        if value["rows"].as_u64() != Some(self.rows) {
            return Err(
                self.damaged(&format!("The file contains {} rows, but its end says {}.", self.rows, value["rows"]))
            );
        }
        // Reads the checksum of the frame, and finds bytes after the frame.
        match self.lines.fill_buf() {
            Ok([]) => Ok(Line::End),
            Ok(_) => Err(self.damaged("Bytes follow the end of the contents.")),
            Err(error) => Err(self.damaged(&format!("{error}."))),
        }
    }

    fn read_line(&mut self) -> Result<(), Failure> {
        let mut bytes = std::mem::take(&mut self.line).into_bytes();
        bytes.clear();
        if let Err(error) = (&mut self.lines).take(LINE_BYTES_MAX).read_until(b'\n', &mut bytes) {
            return Err(self.damaged(&format!("{error}.")));
        }
        if bytes.pop() != Some(b'\n') {
            return Err(self.damaged("The contents end before their last line."));
        }
        self.line = String::from_utf8(bytes).map_err(|_| self.damaged("A line is not valid UTF-8."))?;
        Ok(())
    }

    fn damaged(&self, detail: &str) -> Failure {
        Failure::error(format!("\"{}\" is damaged or truncated", self.name))
            .detail(detail)
            .hint("Copy the file again, or repeat \"cellar awr export\". Nothing was imported.")
    }
}

fn check_header(name: &str, found: &[u8; HEADER_BYTES]) -> Result<(), Failure> {
    let word = |at: usize| u32::from_le_bytes([found[at], found[at + 1], found[at + 2], found[at + 3]]);
    if found[..8] != MAGIC {
        return Err(Failure::error(format!("\"{name}\" is not an export of an AWR repository"))
            .hint("\"cellar awr export\" writes such files. \"cellar awr report --from-json\" reads documents."));
    }
    if crc32c::crc32c(&found[..12]) != word(12) {
        return Err(Failure::error(format!("\"{name}\" is damaged or truncated"))
            .detail("The checksum of the header is wrong.")
            .hint("Copy the file again, or repeat \"cellar awr export\". Nothing was imported."));
    }
    if word(8) != VERSION {
        return Err(Failure::error(format!("\"{name}\" has format version {}", word(8)))
            .detail(format!("This release reads version {VERSION}."))
            .hint("Import the file with the release of cellar that wrote the file, or a later one."));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example(folder: &Path) -> PathBuf {
        let file = folder.join("example.awr");
        let mut writer = Writer::create(&file, &json!({ "cellar": "1.1" })).unwrap();
        for table in ["first", "second"] {
            writer.begin_table(table, &["a".to_owned(), "b".to_owned()]).unwrap();
            for row in 0..1000 {
                writer.row(&format!("{row}\t{table}")).unwrap();
            }
            writer.end_table().unwrap();
        }
        writer.finish().unwrap();
        file
    }

    #[test]
    fn a_written_file_is_valid() {
        let folder = tempfile::tempdir().unwrap();
        Reader::verify(&example(folder.path())).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn an_unfinished_file_is_deleted() {
        let folder = tempfile::tempdir().unwrap();
        drop(Writer::create(&folder.path().join("x"), &json!({})).unwrap());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn every_truncation_and_every_changed_byte_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = example(folder.path());
        let bytes = fs::read(&file).unwrap();
        let damaged = folder.path().join("damaged");
        for length in 0..bytes.len() {
            fs::write(&damaged, &bytes[..length]).unwrap();
            assert!(Reader::verify(&damaged).is_err(), "{length} of {} bytes", bytes.len());
        }
        for position in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[position] ^= 0x11;
            fs::write(&damaged, &changed).unwrap();
            // Some bits of a zstd frame have no meaning: a changed file is refused, or has the same contents.
            if Reader::verify(&damaged).is_ok() {
                let contents = |bytes: &[u8]| zstd::decode_all(&bytes[HEADER_BYTES..]).unwrap();
                assert_eq!(contents(&changed), contents(&bytes), "byte {position}");
            }
        }
        fs::write(&damaged, [bytes.as_slice(), b"more"].concat()).unwrap();
        assert!(Reader::verify(&damaged).is_err());
    }

    #[test]
    fn a_newer_version_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = example(folder.path());
        let mut bytes = fs::read(&file).unwrap();
        bytes[8] = 2;
        let checksum = crc32c::crc32c(&bytes[..12]).to_le_bytes();
        bytes[12..16].copy_from_slice(&checksum);
        fs::write(&file, bytes).unwrap();
        let failure = Reader::verify(&file).unwrap_err().to_string();
        assert!(failure.contains("format version 2"), "{failure}");
    }
}
