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
/// The member that all documents of Microsoft Office have.
const OFFICE_MEMBER: &str = "[Content_Types].xml";

/// The bytes of a file, or of a member of an archive.
pub struct Input {
    pub name: String,
    pub bytes: Vec<u8>,
    /// The compressed file is damaged: what follows the bytes is missing, or the bytes are not those that were written.
    pub damage: Option<String>,
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
        // A link may lead to a folder above.
        if !is_named && path.is_symlink() {
            return Ok(());
        }
        if depth > DEPTH_MAX {
            return each(Err(could_not_read(&name, &"too many nested folders")));
        }
        let mut files: Vec<PathBuf> = match std::fs::read_dir(path) {
            Ok(entries) => entries.filter_map(|entry| Some(entry.ok()?.path())).take(FILES_MAX + 1).collect(),
            Err(error) => return each(Err(could_not_read(&name, &error))),
        };
        if files.len() > FILES_MAX {
            files.truncate(FILES_MAX);
            each(Err(too_many(&name)))?;
        }
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
        return each(result.map(|(bytes, damage)| Input { name, bytes, damage, is_named }));
    }
    // The second are the first bytes of an archive without members.
    if bytes.starts_with(b"PK\x03\x04") || bytes.starts_with(b"PK\x05\x06") {
        return archive(name, bytes, is_named, each);
    }
    each(Ok(Input { name, bytes, damage: None, is_named }))
}

fn too_large(name: &str) -> Failure {
    Failure::error(format!("could not read \"{name}\": the file is larger than 2 GB"))
}

fn too_many(name: &str) -> Failure {
    Failure::error(format!("\"{name}\" contains more than {FILES_MAX} files: the rest is not read"))
}

/// The bytes of a compressed file, and its damage.
fn unpacked(name: &str, reader: impl Read) -> Result<(Vec<u8>, Option<String>), Failure> {
    let mut bytes = Vec::new();
    let read = reader.take(BYTES_MAX + 1).read_to_end(&mut bytes);
    match read {
        // What was unpacked before the damage may still be a report.
        Err(error) if bytes.is_empty() => Err(could_not_read(name, &error)),
        _ if bytes.len() as u64 > BYTES_MAX => Err(too_large(name)),
        Err(error) => Ok((bytes, Some(format!("the compressed file is damaged: {error}")))),
        Ok(_) => Ok((bytes, None)),
    }
}

/// Whether a member of an archive can be a report. Archives from macOS contain a hidden file beside each file.
fn is_visible(member: &str) -> bool {
    member.split(['/', '\\']).all(|part| !part.starts_with('.') && part != "__MACOSX")
}

fn archive(
    name: String,
    bytes: Vec<u8>,
    is_named: bool,
    each: &mut dyn FnMut(Result<Input, Failure>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut archive = match zip::ZipArchive::new(Cursor::new(bytes)) {
        Ok(archive) => archive,
        Err(error) => return each(Err(could_not_read(&name, &error))),
    };
    if archive.index_for_name(OFFICE_MEMBER).is_some() {
        // The reader refuses the document by name.
        let bytes = archive.into_inner().into_inner();
        return each(Ok(Input { name, bytes, damage: None, is_named }));
    }
    if archive.len() > FILES_MAX {
        each(Err(too_many(&name)))?;
    }
    for index in 0..archive.len().min(FILES_MAX) {
        let member =
            archive.name_for_index(index).and_then(Result::ok).map_or_else(String::new, |name| name.into_owned());
        if !is_visible(&member) {
            continue;
        }
        let member_name = format!("{name}/{member}");
        let read = match archive.by_index(index) {
            Ok(member) if member.is_dir() => continue,
            Ok(member) => unpacked(&member_name, member).map(|(bytes, damage)| Input {
                name: member_name,
                bytes,
                damage,
                is_named: false,
            }),
            Err(error) => Err(could_not_read(&member_name, &error)),
        };
        each(read)?;
    }
    Ok(())
}
