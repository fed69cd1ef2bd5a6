//! `cell.toml`: what a cell is told at start. Unknown keys are refused; messages say what to write instead.

use cellar_storage::{AuSize, Redundancy};
use nix::unistd::{Gid, Uid, User};
use serde::Deserialize;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// The configuration with every default filled in and every path absolute.
#[derive(Debug, Clone)]
pub struct Config {
    pub name: String,
    pub mount: PathBuf,
    pub socket: PathBuf,
    pub user: ClusterUser,
    pub cache_bytes: u64,
    pub log_level: log::LevelFilter,
    pub metrics_listen: Option<SocketAddr>,
    pub disk_group: DiskGroup,
}

/// The operating-system user that the cluster runs as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterUser {
    pub name: String,
    pub uid: u32,
    pub gid: u32,
}

#[derive(Debug, Clone)]
pub struct DiskGroup {
    pub au_size: AuSize,
    pub redundancy: Redundancy,
    pub disks: Vec<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
#[error("{path}: {message}")]
pub struct ConfigError {
    path: String,
    message: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: Option<String>,
    mount: PathBuf,
    socket: Option<PathBuf>,
    user: Option<String>,
    cache_size: Option<String>,
    log_level: Option<String>,
    metrics: Option<FileMetrics>,
    disk_group: FileDiskGroup,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileMetrics {
    listen: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileDiskGroup {
    au_size: Option<String>,
    redundancy: Option<String>,
    disks: Vec<PathBuf>,
}

impl Config {
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let error = |message: String| ConfigError { path: path.display().to_string(), message };
        let text = std::fs::read_to_string(path).map_err(|cause| error(format!("cannot be read: {cause}")))?;
        Self::parse(&text).map_err(error)
    }

    /// Parses the text of a configuration file.
    pub fn parse(text: &str) -> Result<Self, String> {
        let file: File = toml::from_str(text).map_err(|cause| cause.to_string())?;
        let disks = file.disk_group.disks.iter().map(|disk| absolute(disk, "disk_group.disks"));
        let disks = disks.collect::<Result<Vec<_>, _>>()?;
        let Some(first_disk) = disks.first() else {
            return Err("disk_group.disks is empty; name at least one directory".into());
        };
        if let Some((_, twice)) = disks.iter().enumerate().find(|(number, disk)| disks[..*number].contains(disk)) {
            return Err(format!("disk_group.disks names {} twice", twice.display()));
        }
        let mount = absolute(&file.mount, "mount")?;
        if let Some(disk) = disks.iter().find(|disk| disk.starts_with(&mount)) {
            let (disk, mount) = (disk.display(), mount.display());
            return Err(format!("disk {disk} lies below the mount {mount}; a cell cannot store itself"));
        }
        let redundancy = match file.disk_group.redundancy.as_deref() {
            None | Some("external") => Redundancy::External,
            Some("normal") => Redundancy::Normal,
            Some("high") => Redundancy::High,
            Some(other) => {
                return Err(format!("disk_group.redundancy = \"{other}\"; write \"external\", \"normal\" or \"high\""));
            }
        };
        let au_bytes = match &file.disk_group.au_size {
            None => AuSize::DEFAULT.bytes(),
            Some(size) => parse_size(size, "disk_group.au_size")?,
        };
        let cache_bytes = match &file.cache_size {
            None => memory_bytes() / 4,
            Some(size) => parse_size(size, "cache_size")?,
        };
        let log_level = file.log_level.as_deref().unwrap_or("info");
        let socket = match &file.socket {
            Some(socket) => absolute(socket, "socket")?,
            None => first_disk.join("cell.sock"),
        };
        Ok(Self {
            name: file.name.unwrap_or_else(|| "cell".into()),
            socket,
            user: cluster_user(file.user.as_deref())?,
            cache_bytes,
            log_level: parse_log_level(log_level)?,
            metrics_listen: file.metrics.and_then(|metrics| metrics.listen).map(|text| listen(&text)).transpose()?,
            disk_group: DiskGroup {
                au_size: AuSize::from_bytes(au_bytes).map_err(|error| format!("disk_group.au_size: {error}"))?,
                redundancy,
                disks,
            },
            mount,
        })
    }
}

pub fn parse_log_level(text: &str) -> Result<log::LevelFilter, String> {
    text.parse().map_err(|_| format!("log_level = \"{text}\"; write error, warn, info, debug or trace"))
}

fn listen(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| format!("metrics.listen = \"{text}\"; write an address like \"127.0.0.1:9187\""))
}

fn absolute(path: &Path, key: &str) -> Result<PathBuf, String> {
    match path.is_absolute() {
        true => Ok(path.components().collect()),
        false => Err(format!("{key}: {} is not absolute; write the path from /", path.display())),
    }
}

/// A number of bytes: digits, then nothing or one of KiB, MiB, GiB, TiB.
fn parse_size(text: &str, key: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim() {
        "" | "B" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        "TiB" => 40,
        _ => return Err(format!("{key} = \"{text}\"; write a number and KiB, MiB, GiB or TiB, like \"4GiB\"")),
    };
    let number: u64 = number.parse().map_err(|_| format!("{key} = \"{text}\"; write a size like \"4GiB\""))?;
    number.checked_mul(1 << shift).ok_or_else(|| format!("{key} = \"{text}\" is too large"))
}

fn memory_bytes() -> u64 {
    let kib = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    });
    kib.unwrap_or(1 << 20) * 1024
}

fn cluster_user(name: Option<&str>) -> Result<ClusterUser, String> {
    let found = match name {
        Some(name) => User::from_name(name).ok().flatten(),
        None => User::from_uid(Uid::effective()).ok().flatten(),
    };
    match (found, name) {
        (Some(user), _) => Ok(ClusterUser { name: user.name, uid: user.uid.as_raw(), gid: user.gid.as_raw() }),
        (None, Some(name)) => Err(format!("user = \"{name}\": there is no such user on this machine")),
        (None, None) => {
            let (uid, gid) = (Uid::effective().as_raw(), Gid::effective().as_raw());
            Ok(ClusterUser { name: uid.to_string(), uid, gid })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINIMAL: &str = "mount = \"/srv/cellar\"\n[disk_group]\ndisks = [\"/disk1\", \"/disk2\"]\n";

    #[test]
    fn a_minimal_file_gets_every_default() {
        let config = Config::parse(MINIMAL).unwrap();
        assert_eq!(config.socket, Path::new("/disk1/cell.sock"));
        assert_eq!(config.disk_group.au_size, AuSize::DEFAULT);
        assert_eq!(config.user.uid, Uid::effective().as_raw());
        assert!(config.cache_bytes > 0);
    }

    #[test]
    fn mistakes_are_refused_with_what_to_write() {
        let check = |text: &str, expected: &str| {
            let message = Config::parse(text).unwrap_err();
            assert!(message.contains(expected), "{message:?} lacks {expected:?}");
        };
        check(&format!("colour = 1\n{MINIMAL}"), "unknown field `colour`");
        check(&format!("cache_size = \"4GB\"\n{MINIMAL}"), "like \"4GiB\"");
        check(&format!("log_level = \"loud\"\n{MINIMAL}"), "write error, warn");
        check(&format!("user = \"no such user\"\n{MINIMAL}"), "no such user");
        check("mount = \"/m\"\n[disk_group]\ndisks = []\n", "name at least one");
        check("mount = \"m\"\n[disk_group]\ndisks = [\"/d\"]\n", "mount: m is not absolute");
        check("mount = \"/m\"\n[disk_group]\ndisks = [\"/m/d\"]\n", "cannot store itself");
        check("mount = \"/m\"\n[disk_group]\ndisks = [\"/d\", \"/e\", \"/d/\"]\n", "names /d twice");
        check(&format!("{MINIMAL}au_size = \"3MiB\"\n"), "not a power of two");
        check(&format!("{MINIMAL}redundancy = \"double\"\n"), "\"external\"");
    }
}
