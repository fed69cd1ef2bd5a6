//! Files that contain reports: plain, `.gz`, `.zip`, folders, standard input. Recognized by content.

use crate::awr::source::Failure;
use std::fs::File;
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};

/// Bounds a decompressed file.
const BYTES_MAX: u64 = 2 << 30;
/// Bounds the files of a folder or an archive.
const FILES_MAX: usize = 100_000;
const DEPTH_MAX: usize = 32;

/// The bytes of a file, or of a member of an archive.
pub struct Input {
    pub name: String,
    pub bytes: Vec<u8>,
    /// The command line names the file itself, not its folder or archive.
    pub is_named: bool,
}

/// Calls `each` for every file. A failure of one file is passed to `each`; the others are read.
pub fn for_each(
    files: &[PathBuf],
    each: &mut dyn FnMut(Result<Input, Failure>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    for file in files {
        if file.as_os_str() == "-" {
            let mut bytes = Vec::new();
            let read = std::io::stdin().lock().take(BYTES_MAX + 1).read_to_end(&mut bytes);
            let read = read.map(|_| bytes).map_err(|error| could_not_read("standard input", &error));
            deliver("standard input".to_owned(), read, true, each)?;
        } else {
            path(file, true, 0, each)?;
        }
    }
    Ok(())
}

fn could_not_read(name: &str, error: &dyn std::fmt::Display) -> Failure {
    Failure::error(format!("could not read \"{name}\": {error}"))
}

fn path(
    path: &Path,
    is_named: bool,
    depth: usize,
    each: &mut dyn FnMut(Result<Input, Failure>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let name = path.display().to_string();
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) => return each(Err(could_not_read(&name, &error))),
    };
    if metadata.is_dir() {
        if depth > DEPTH_MAX {
            return each(Err(could_not_read(&name, &"too many nested folders")));
        }
        let mut files: Vec<PathBuf> = match std::fs::read_dir(path) {
            Ok(entries) => entries.filter_map(|entry| Some(entry.ok()?.path())).take(FILES_MAX).collect(),
            Err(error) => return each(Err(could_not_read(&name, &error))),
        };
        files.sort();
        let hidden = |file: &PathBuf| file.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        for file in files.iter().filter(|file| !hidden(file)) {
            self::path(file, false, depth + 1, each)?;
        }
        return Ok(());
    }
    if !metadata.is_file() && !is_named {
        return Ok(());
    }
    let read = File::open(path).and_then(|file| {
        let mut bytes = Vec::with_capacity(metadata.len().min(BYTES_MAX) as usize);
        file.take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    });
    deliver(name.clone(), read.map_err(|error| could_not_read(&name, &error)), is_named, each)
}

/// Decompresses and delivers a file.
fn deliver(
    name: String,
    read: Result<Vec<u8>, Failure>,
    is_named: bool,
    each: &mut dyn FnMut(Result<Input, Failure>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let bytes = match read {
        Ok(bytes) if bytes.len() as u64 > BYTES_MAX => return each(Err(too_large(&name))),
        Ok(bytes) => bytes,
        Err(failure) => return each(Err(failure)),
    };
    if bytes.starts_with(b"\x1f\x8b") {
        let result = unpacked(&name, flate2::read::MultiGzDecoder::new(&bytes[..]));
        return each(result.map(|bytes| Input { name, bytes, is_named }));
    }
    if bytes.starts_with(b"PK\x03\x04") {
        return archive(&name, bytes, each);
    }
    each(Ok(Input { name, bytes, is_named }))
}

fn too_large(name: &str) -> Failure {
    Failure::error(format!("could not read \"{name}\": the file is larger than 2 GB"))
}

fn unpacked(name: &str, reader: impl Read) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let read = reader.take(BYTES_MAX + 1).read_to_end(&mut bytes);
    match read {
        // What was unpacked before the damage may still be a report: the reader says that the report is cut off.
        Err(error) if bytes.is_empty() => Err(could_not_read(name, &error)),
        _ if bytes.len() as u64 > BYTES_MAX => Err(too_large(name)),
        _ => Ok(bytes),
    }
}

fn archive(
    name: &str,
    bytes: Vec<u8>,
    each: &mut dyn FnMut(Result<Input, Failure>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut archive = match zip::ZipArchive::new(Cursor::new(bytes)) {
        Ok(archive) => archive,
        Err(error) => return each(Err(could_not_read(name, &error))),
    };
    for index in 0..archive.len().min(FILES_MAX) {
        let read = match archive.by_index(index) {
            Ok(member) if member.is_dir() => continue,
            Ok(member) => {
                let member_name = format!("{name}/{}", member.name().unwrap_or_default());
                let bytes = unpacked(&member_name, member);
                bytes.map(|bytes| Input { name: member_name, bytes, is_named: false })
            }
            Err(error) => Err(could_not_read(name, &error)),
        };
        each(read)?;
    }
    Ok(())
}
