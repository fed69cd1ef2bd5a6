//! Extending the list of disks in a configuration file. Everything else in the file stays as the operator wrote it.

use cellar_cell::config::Config;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

/// Returns the text of a configuration with one more disk; None if the place of the list is not clear.
pub fn with_disk(text: &str, disk: &str, failure_group: Option<&str>) -> Option<String> {
    let start = list_start(text)?;
    let end = list_end(&text[start..])? + start;
    let is_quotable =
        !disk.chars().chain(failure_group.unwrap_or_default().chars()).any(|c| matches!(c, '"' | '\\' | '\n'));
    let entry = match failure_group {
        None => format!("\"{disk}\""),
        Some(name) => format!("{{ path = \"{disk}\", failure_group = \"{name}\" }}"),
    };
    let content = text[start..end].trim_end();
    let separator = match content.chars().last() {
        _ if !is_quotable => return None,
        None => "",
        Some(',') => " ",
        Some(_) => ", ",
    };
    let at = start + content.len();
    let extended = format!("{}{separator}{entry}{}", &text[..at], &text[at..]);
    let (before, after) = (Config::parse(text).ok()?, Config::parse(&extended).ok()?);
    let expected: Vec<PathBuf> = before.disk_group.disks.into_iter().chain([PathBuf::from(disk)]).collect();
    (after.disk_group.disks == expected).then_some(extended)
}

/// Returns the offset after the bracket that opens the list of disks.
fn list_start(text: &str) -> Option<usize> {
    let (mut offset, mut is_group) = (0, false);
    for line in text.split_inclusive('\n') {
        let trimmed = line.trim_start();
        if trimmed.starts_with('[') {
            is_group = trimmed.trim_end().starts_with("[disk_group]");
        }
        let value = trimmed.strip_prefix("disks").map(str::trim_start).and_then(|rest| rest.strip_prefix('='));
        if let Some(value) = value.filter(|_| is_group)
            && value.trim_start().starts_with('[')
        {
            return Some(offset + line.find('[')? + 1);
        }
        offset += line.len();
    }
    None
}

/// Returns the offset of the bracket that closes a list. None if the list has comments, which may follow the last disk.
fn list_end(text: &str) -> Option<usize> {
    let (mut quote, mut depth) = (None, 0);
    for (at, character) in text.char_indices() {
        match (quote, character) {
            (Some(open), _) if character == open => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(character),
            (None, '#') => return None,
            (None, '[') => depth += 1,
            (None, ']') if depth == 0 => return Some(at),
            (None, ']') => depth -= 1,
            (None, _) => {}
        }
    }
    None
}

/// Replaces a file atomically, with the same owner and permissions. Durable on return.
pub fn replace(file: &Path, text: &str) -> io::Result<()> {
    let file = file.canonicalize()?;
    let (metadata, temporary) = (std::fs::metadata(&file)?, file.with_extension("toml.new"));
    let mut written = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    written.write_all(text.as_bytes())?;
    fchown(&written, Some(metadata.uid()), Some(metadata.gid()))?;
    written.set_permissions(metadata.permissions())?;
    written.sync_all()?;
    std::fs::rename(&temporary, &file)?;
    File::open(file.parent().unwrap_or(Path::new("/")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_appended_and_the_rest_stays() {
        let around = |disks: &str| format!("# cell\nmount = \"/m\"\n[disk_group]\n# disks\ndisks = {disks}\n# end\n");
        let check =
            |before: &str, after: &str| assert_eq!(with_disk(&around(before), "/new", None), Some(around(after)));
        check("[\"/a\"]", "[\"/a\", \"/new\"]");
        check("[\n  \"/a\",\n  \"/b\",\n]", "[\n  \"/a\",\n  \"/b\", \"/new\"\n]");
        check("[{ path = \"/a]\" }, \"/b\"]", "[{ path = \"/a]\" }, \"/b\", \"/new\"]");
        assert_eq!(with_disk(&around("[\"/a\", # first\n]"), "/new", None), None, "a comment");
        assert_eq!(with_disk(&around("[\"/a\"]"), "/a", None), None, "twice");
        assert_eq!(with_disk("mount = \"/m\"\n", "/new", None), None);
        let copies = |disks: &str| format!("socket = \"/s\"\n{}redundancy = \"normal\"\n", around(disks));
        assert_eq!(
            with_disk(&copies("[\"/a\", \"/b\"]"), "/new", Some("left")),
            Some(copies("[\"/a\", \"/b\", { path = \"/new\", failure_group = \"left\" }]"))
        );
    }

    #[test]
    fn a_file_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("cell.toml");
        std::fs::write(&file, "old").unwrap();
        replace(&file, "new").unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "new");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
