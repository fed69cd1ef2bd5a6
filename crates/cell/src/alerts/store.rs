//! The file of alerts and thresholds: JSON text, replaced as a whole, beside the history of metrics. Each directory has a copy; the one
//! with the highest revision counts.

use super::book::Book;
use crate::history::FOLDER;
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

const FILE: &str = "alerts";
const NEW_FILE: &str = "alerts.new";
const DAMAGED_FILE: &str = "alerts.damaged";
const VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
struct Document {
    version: u32,
    book: Book,
}

/// Reads the newest copy. A file that cannot be read is kept under another name.
pub fn load(directories: &[PathBuf]) -> Book {
    let mut newest = Book::default();
    for folder in directories.iter().map(|directory| directory.join(FOLDER)) {
        let path = folder.join(FILE);
        match read(&path) {
            Ok(Some(book)) if book.revision > newest.revision => newest = book,
            Ok(_) => {}
            Err(error) if error.kind() != io::ErrorKind::InvalidData => {
                log::error!("could not read the alerts in {}: {error}", path.display());
            }
            Err(error) => {
                let kept = folder.join(DAMAGED_FILE);
                log::error!(
                    "could not read the alerts in {}: {error}; the file becomes {}",
                    path.display(),
                    kept.display()
                );
                if let Err(error) = fs::rename(&path, &kept) {
                    log::warn!("could not rename {}: {error}", path.display());
                }
            }
        }
    }
    newest
}

fn read(path: &Path) -> io::Result<Option<Book>> {
    let text = match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        text => text?,
    };
    let damaged = |message: String| io::Error::new(io::ErrorKind::InvalidData, message);
    let document: Document = serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
    match document.version {
        VERSION => Ok(Some(document.book)),
        version => Err(damaged(format!("the file has version {version}, this cell knows version {VERSION}"))),
    }
}

/// Writes a copy to each directory. Fails if none takes it.
pub fn save(directories: &[PathBuf], book: &Book) -> io::Result<()> {
    let text = serde_json::to_vec(&Document { version: VERSION, book: book.clone() })?;
    let results = directories.iter().map(|directory| replace(&directory.join(FOLDER), &text));
    let results: Vec<io::Result<()>> = results.collect();
    let first_error = || Err(io::Error::other("the cell has no directory for alerts"));
    match results.iter().any(Result::is_ok) {
        true => Ok(()),
        false => results.into_iter().next().unwrap_or_else(first_error),
    }
}

fn replace(folder: &Path, text: &[u8]) -> io::Result<()> {
    // Not the disk's own directory, whose filesystem may not be mounted.
    match fs::create_dir(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let new = folder.join(NEW_FILE);
    let mut file = OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(text)?;
    file.sync_all()?;
    fs::rename(&new, folder.join(FILE))?;
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::super::book::Subject;
    use super::super::definitions::{Finding, Severity};
    use super::*;

    fn book(changes: u64) -> Book {
        let mut book = Book::default();
        for change in 0..changes {
            let finding = Finding {
                object: format!("o{change}"),
                severity: Severity::Critical,
                message: "it \"failed\"".to_owned(),
                value: Some(0.1),
            };
            book.report(&Subject::of_metric("CL_RUNQ"), &finding, change);
        }
        let values = [("comparison", ">="), ("warning", "2")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        book.create_threshold("CL_RUNQ.c1", &values).unwrap();
        book
    }

    #[test]
    fn the_newest_copy_counts_and_a_directory_without_space_is_no_error() {
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let directories: Vec<PathBuf> = folders.iter().map(|folder| folder.path().to_owned()).collect();
        assert_eq!(load(&directories), Book::default());
        save(&directories, &book(1)).unwrap();
        save(&directories[1..], &book(2)).unwrap();
        assert_eq!(load(&directories), book(2));
        assert_eq!(load(&directories[..1]), book(1));
        let missing = directories[0].join("missing");
        save(&[missing.clone(), directories[0].clone()], &book(3)).unwrap();
        assert_eq!(load(&directories), book(3));
        assert!(save(&[missing], &book(3)).is_err());
    }

    #[test]
    fn a_damaged_file_is_kept_and_another_copy_counts() {
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let directories: Vec<PathBuf> = folders.iter().map(|folder| folder.path().to_owned()).collect();
        save(&directories, &book(1)).unwrap();
        let path = directories[0].join(FOLDER).join(FILE);
        let text = fs::read(&path).unwrap();
        fs::write(&path, &text[..text.len() - 1]).unwrap();
        assert_eq!(load(&directories), book(1));
        assert!(!path.exists() && directories[0].join(FOLDER).join(DAMAGED_FILE).exists());
        fs::write(&path, String::from_utf8(text).unwrap().replace("\"version\":1", "\"version\":2")).unwrap();
        assert_eq!(load(&directories[..1]), Book::default());
    }
}
