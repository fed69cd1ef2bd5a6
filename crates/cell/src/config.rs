//! `cell.toml`: the configuration of a cell, read at start. Unknown keys are errors. Error messages state a valid
//! value.

mod file_redundancy;

use crate::disks::DiskModel;
use cellar_format::wire::FileType;
use cellar_storage::disk::{FileMedium, ModelParameters, within};
use cellar_storage::iorm::Objective;
use cellar_storage::{AuSize, FlashCacheMode, FlashLogOptions, FlashOptions, Patience, Redundancy};
use nix::unistd::{Gid, Uid, User};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::state::memory::{WORKING_BYTES_MIN, default_working_bytes};

/// The configuration with all defaults applied and all paths absolute.
#[derive(Debug, Clone)]
pub struct Config {
    pub name: String,
    pub mount: PathBuf,
    pub socket: PathBuf,
    pub user: ClusterUser,
    /// The page cache.
    pub cache_bytes: u64,
    /// The memory budget besides the page cache.
    pub working_bytes: u64,
    pub log_level: log::LevelFilter,
    /// Smart Scans that take at least this long are logged; None logs no scan.
    pub slow_scan_log: Option<Duration>,
    pub metrics_listen: Option<SocketAddr>,
    /// Time between two records of the history of metrics.
    pub history_interval: Duration,
    /// The program that gets each alert; None for none.
    pub alert_hook: Option<PathBuf>,
    /// The objective of I/O resource management until a command sets one.
    pub iorm_objective: Objective,
    pub disk_group: DiskGroup,
    /// The flash cache; None without one.
    pub flash_cache: Option<FlashCache>,
    /// Bytes of the flash log; None without one.
    pub flash_log_size: Option<u64>,
    pub write_back: WriteBack,
    /// The kernel reads and writes WAL without the cell where one backing file contains it.
    pub wal_passthrough: bool,
    /// Start although disks are missing that may have newer data; set by an option of the command, not in the file.
    pub force_degraded: bool,
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
    /// The failure group whose disks are read if possible.
    pub preferred_read: Option<String>,
    /// How long the cell waits for its disks; None for no limit.
    pub patience: Option<Patience>,
    /// Size of the reserve of each disk in bytes; None if not configured.
    pub reserve_bytes: Option<u64>,
    pub disks: Vec<PathBuf>,
    /// The device model of each disk; None for a disk that runs at its own speed.
    pub models: Vec<Option<DiskModel>>,
    /// The failure group of each disk; None if no other disk shares it.
    pub failure_groups: Vec<Option<String>>,
    /// The redundancy of files of some types in a new group.
    pub file_redundancy: Vec<(FileType, Redundancy)>,
}

/// The smallest columnar cache: one unit of an allocation unit of the largest size.
const COLUMNAR_BYTES_MIN: u64 = 64 << 20;

#[derive(Debug, Clone)]
pub struct FlashCache {
    pub disks: Vec<PathBuf>,
    /// The device model of each flash disk.
    pub models: Vec<Option<DiskModel>>,
    /// Bytes on all flash disks together; None for most of their free space. Zero for no cache: the flash disks have only the flash
    /// log.
    pub size: Option<u64>,
    /// Bytes of the columnar cache on all flash disks together; 0 for no columnar cache.
    pub columnar_bytes: u64,
}

/// Write-back of the flash cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteBack {
    /// The mode until a command sets another one.
    pub mode: FlashCacheMode,
    /// Bytes of the log on each of the first two flash disks; None for a part of them.
    pub size: Option<u64>,
    /// Allows write-back on one flash disk.
    pub is_unmirrored: bool,
    /// Redo is written back, too.
    pub takes_redo: bool,
}

impl WriteBack {
    pub const SEGMENT_BYTES: u64 = 16 << 20;
    /// The smallest log: eight segments.
    pub const SIZE_MIN: u64 = 128 << 20;
    const SIZE_DEFAULT_MAX: u64 = 2 << 30;

    /// Returns the bytes of the log on each flash disk, whose sizes are given: by default a twentieth of the smaller one, at most
    /// 2 GiB, because a start after a crash writes the log to the cell disks first.
    pub fn size_on(&self, disk_sizes: &[u64]) -> u64 {
        let smallest = disk_sizes.iter().take(2).min().copied().unwrap_or(0);
        self.size.unwrap_or_else(|| (smallest / 20).clamp(Self::SIZE_MIN, Self::SIZE_DEFAULT_MAX))
    }

    /// Returns why the log does not fit on flash disks with these paths and sizes beside the smallest flash cache.
    pub fn misfit(&self, disks: &[(&Path, u64)]) -> Option<String> {
        let sizes: Vec<u64> = disks.iter().map(|(_, size)| *size).collect();
        let log = self.size_on(&sizes);
        let cache = (FlashOptions::SEGMENTS_MIN * FlashOptions::SEGMENT_BYTES).div_ceil(disks.len().max(1) as u64);
        let (path, size) = disks.iter().take(2).find(|(_, size)| *size < log + cache)?;
        Some(format!(
            "flash_cache_mode = \"writeback\": flash disk {} has {} MiB, but the write-back log needs {} MiB and the smallest flash \
             cache {} MiB of it; lower flash_write_back_size, or name a larger flash disk",
            path.display(),
            size >> 20,
            log >> 20,
            cache >> 20
        ))
    }
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
    memory_size: Option<String>,
    log_level: Option<String>,
    slow_scan_log_ms: Option<i64>,
    wal_passthrough: Option<bool>,
    flash_disks: Option<Vec<PathBuf>>,
    flash_cache_size: Option<String>,
    columnar_cache_size: Option<String>,
    flash_log_size: Option<String>,
    flash_cache_mode: Option<String>,
    flash_write_back_size: Option<String>,
    flash_write_back_unmirrored: Option<bool>,
    flash_log_write_back: Option<bool>,
    flash_model: Option<OneOrEach>,
    metrics: Option<FileMetrics>,
    alert_hook: Option<PathBuf>,
    iorm: Option<FileIorm>,
    disk_group: FileDiskGroup,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileMetrics {
    listen: Option<String>,
    history_interval_seconds: Option<i64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileIorm {
    objective: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileDiskGroup {
    au_size: Option<String>,
    redundancy: Option<String>,
    preferred_read: Option<String>,
    read_latency_cap: Option<String>,
    disk_timeout: Option<String>,
    reserve_size: Option<String>,
    disks: Vec<FileDisk>,
    model: Option<OneOrEach>,
    model_time_scale: Option<f64>,
    file_redundancy: Option<BTreeMap<String, String>>,
}

/// One value for all disks, or one for each.
#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrEach {
    One(String),
    Each(Vec<String>),
}

/// A disk as a path alone, or as a table.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a disk is a path, or { path = \"...\", failure_group = \"...\" }")]
enum FileDisk {
    Path(PathBuf),
    Table(FileDiskTable),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileDiskTable {
    path: PathBuf,
    failure_group: Option<String>,
}

impl Config {
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let error = |message: String| ConfigError { path: path.display().to_string(), message };
        let text = std::fs::read_to_string(path).map_err(|cause| error(format!("could not read the file: {cause}")))?;
        Self::parse(&text).map_err(error)
    }

    /// Parses the text of a configuration file.
    pub fn parse(text: &str) -> Result<Self, String> {
        let file: File = toml::from_str(text).map_err(|cause| cause.to_string())?;
        let disk = |disk: &FileDisk| match disk {
            FileDisk::Path(path) => Ok((absolute(path, "disk_group.disks")?, None)),
            FileDisk::Table(disk) => Ok((absolute(&disk.path, "disk_group.disks")?, disk.failure_group.clone())),
        };
        let disks = file.disk_group.disks.iter().map(disk).collect::<Result<Vec<_>, String>>()?;
        let (disks, failure_groups): (Vec<PathBuf>, Vec<Option<String>>) = disks.into_iter().unzip();
        let Some(first_disk) = disks.first() else {
            return Err("disk_group.disks is empty; name at least one directory or device".into());
        };
        if let Some((_, twice)) = disks.iter().enumerate().find(|(number, disk)| disks[..*number].contains(disk)) {
            return Err(format!("disk_group.disks names {} twice", twice.display()));
        }
        let mount = absolute(&file.mount, "mount")?;
        if let Some(disk) = disks.iter().find(|disk| disk.starts_with(&mount)) {
            let (disk, mount) = (disk.display(), mount.display());
            return Err(format!("disk {disk} is below the mount {mount}; a cell cannot store its own disks"));
        }
        let redundancy = match file.disk_group.redundancy.as_deref() {
            None | Some("external") => Redundancy::External,
            Some("normal") => Redundancy::Normal,
            Some("high") => Redundancy::High,
            Some(other) => {
                return Err(format!(
                    "disk_group.redundancy = \"{other}\" is not valid; write \"external\", \"normal\" (2 copies) or \"high\" (3 copies)"
                ));
            }
        };
        let file_redundancy = file_redundancy::parse(file.disk_group.file_redundancy.unwrap_or_default(), redundancy)?;
        let time_scale = file.disk_group.model_time_scale;
        let models = models(file.disk_group.model, time_scale, disks.len(), "disk_group.model")?;
        let flash_disks = file.flash_disks.as_deref();
        let sizes = (file.flash_cache_size.as_deref(), file.columnar_cache_size.as_deref());
        let flash_cache = flash_cache(flash_disks, sizes, (file.flash_model, time_scale), (&mount, &disks))?;
        let wal_passthrough = file.wal_passthrough.unwrap_or(false);
        let flash_log_size = flash_log_size(file.flash_log_size.as_deref(), flash_cache.as_ref(), wal_passthrough)?;
        let write_back = write_back(
            file.flash_cache_mode.as_deref(),
            file.flash_write_back_size.as_deref(),
            file.flash_write_back_unmirrored,
            file.flash_log_write_back,
            flash_cache.as_ref(),
        )?;
        if write_back.takes_redo
            && let Some(misfit) = misfit_of_redo(write_back.mode, flash_log_size, wal_passthrough)
        {
            return Err(misfit.into());
        }
        if redundancy == Redundancy::External
            && (failure_groups.iter().any(Option::is_some) || file.disk_group.preferred_read.is_some())
        {
            return Err(
                "failure_group and preferred_read need copies; write redundancy = \"normal\" or \"high\"".into()
            );
        }
        if disks.len() < redundancy.copies() {
            return Err(format!(
                "disk_group.redundancy = \"{redundancy}\" needs {} disks, but disk_group.disks names {}; add disks",
                redundancy.copies(),
                disks.len()
            ));
        }
        let preferred_read = file.disk_group.preferred_read.clone();
        if let Some(preferred) = preferred_read.as_ref().filter(|name| !failure_groups.contains(&Some((*name).clone())))
        {
            return Err(format!("disk_group.preferred_read = \"{preferred}\" is the failure_group of no disk"));
        }
        let cap = file.disk_group.read_latency_cap.as_deref();
        let patience = patience(cap, file.disk_group.disk_timeout.as_deref(), redundancy)?;
        let au_bytes = match &file.disk_group.au_size {
            None => AuSize::DEFAULT.bytes(),
            Some(size) => parse_size(size, "disk_group.au_size")?,
        };
        let reserve_size = file.disk_group.reserve_size.as_deref();
        let reserve_bytes = reserve_size.map(|size| parse_size(size, "disk_group.reserve_size")).transpose()?;
        let (cache_bytes, working_bytes) = memory(file.cache_size.as_deref(), file.memory_size.as_deref())?;
        let objective = file.iorm.and_then(|iorm| iorm.objective).map(|name| Objective::parse(&name)).transpose();
        let log_level = file.log_level.as_deref().unwrap_or("info");
        let socket = match &file.socket {
            Some(socket) => absolute(socket, "socket")?,
            None if redundancy != Redundancy::External => {
                return Err("socket is missing: with copies it must not be on a cell disk, which can be lost; \
                     write, for example, socket = \"/run/cellar/cell1.sock\""
                    .into());
            }
            None if FileMedium::is_device(first_disk) => {
                let disk = first_disk.display();
                return Err(format!(
                    "socket is missing: the first disk, {disk}, is a device and cannot contain the socket; write, for example, \
                     socket = \"/run/cellar/cell1.sock\""
                ));
            }
            None => first_disk.join("cell.sock"),
        };
        Ok(Self {
            name: file.name.unwrap_or_else(|| "cell".into()),
            socket,
            user: cluster_user(file.user.as_deref())?,
            cache_bytes,
            working_bytes,
            log_level: parse_log_level(log_level)?,
            slow_scan_log: file.slow_scan_log_ms.map(slow_scan_log).transpose()?,
            history_interval: history_interval(file.metrics.as_ref())?,
            alert_hook: file.alert_hook.map(|path| alert_hook(&path, &mount)).transpose()?,
            metrics_listen: file
                .metrics
                .and_then(|metrics| metrics.listen)
                .map(|text| metrics_listen(&text))
                .transpose()?,
            iorm_objective: objective.map_err(|error| format!("iorm.{error}"))?.unwrap_or_default(),
            disk_group: DiskGroup {
                au_size: AuSize::from_bytes(au_bytes).map_err(|error| format!("disk_group.au_size: {error}"))?,
                redundancy,
                preferred_read,
                patience,
                reserve_bytes,
                disks,
                models,
                failure_groups,
                file_redundancy,
            },
            flash_cache,
            flash_log_size,
            write_back,
            wal_passthrough,
            mount,
            force_degraded: false,
        })
    }
}

/// Returns how long a group with copies waits for its disks.
fn patience(cap: Option<&str>, timeout: Option<&str>, redundancy: Redundancy) -> Result<Option<Patience>, String> {
    if cap.is_none() && timeout.is_none() {
        return Ok(None);
    }
    if redundancy == Redundancy::External {
        return Err("read_latency_cap and disk_timeout need copies; write redundancy = \"normal\" or \"high\"".into());
    }
    let read_latency_cap = cap.map(|text| parse_duration(text, "disk_group.read_latency_cap")).transpose()?;
    let timeout = timeout.map(|text| parse_duration(text, "disk_group.disk_timeout")).transpose()?;
    let patience = Patience { read_latency_cap, timeout: timeout.unwrap_or(Patience::TIMEOUT_DEFAULT) };
    match read_latency_cap.is_some_and(|cap| cap >= patience.timeout) {
        true => Err(format!(
            "disk_group.read_latency_cap is not below disk_group.disk_timeout, which is {} ms; lower the cap",
            patience.timeout.as_millis()
        )),
        false => Ok(Some(patience)),
    }
}

/// Returns the flash cache; None if no flash disk is configured.
fn flash_cache(
    disks: Option<&[PathBuf]>,
    (size, columnar_size): (Option<&str>, Option<&str>),
    (model, time_scale): (Option<OneOrEach>, Option<f64>),
    (mount, cell_disks): (&Path, &[PathBuf]),
) -> Result<Option<FlashCache>, String> {
    let disks = disks.unwrap_or_default();
    if disks.is_empty() {
        return match size.or(columnar_size).is_some() || model.is_some() {
            true => Err("flash_cache_size, columnar_cache_size and flash_model need flash_disks; name at least one directory or \
                         device"
                .into()),
            false => Ok(None),
        };
    }
    let disks = disks.iter().map(|disk| absolute(disk, "flash_disks")).collect::<Result<Vec<_>, String>>()?;
    // Without symbolic links, of disks that exist.
    let real = |disk: &PathBuf| disk.canonicalize().unwrap_or_else(|_| disk.clone());
    // A flash disk that hangs does not stop the start of the cell.
    let real_flash = |disk: &PathBuf| {
        let path = disk.clone();
        within(FlashOptions::TIMEOUT, move || path.canonicalize()).unwrap_or_else(|_| disk.clone())
    };
    let (real_disks, real_cell_disks): (Vec<_>, Vec<_>) =
        (disks.iter().map(real_flash).collect(), cell_disks.iter().map(real).collect());
    let overlaps = |one: &Path, other: &Path| one.starts_with(other) || other.starts_with(one);
    for (number, (disk, real)) in disks.iter().zip(&real_disks).enumerate() {
        let shown = disk.display();
        if real_disks[..number].contains(real) {
            return Err(format!("flash_disks names {shown} twice"));
        }
        if real_cell_disks.contains(real) {
            return Err(format!("{shown} is a cell disk, too; name another directory or device in flash_disks"));
        }
        let others = disks[..number].iter().zip(&real_disks).chain(cell_disks.iter().zip(&real_cell_disks));
        if let Some((other, _)) = others.into_iter().find(|(_, other)| overlaps(real, other)) {
            let other = other.display();
            return Err(format!(
                "of flash disk {shown} and disk {other}, one contains the other; name another directory in flash_disks"
            ));
        }
        if disk.starts_with(mount) {
            return Err(format!("flash disk {shown} is below the mount {}; name another directory", mount.display()));
        }
    }
    let size = size.map(|size| parse_size(size, "flash_cache_size")).transpose()?;
    let columnar_size = columnar_size.map(|size| parse_size(size, "columnar_cache_size")).transpose()?;
    let columnar_bytes = columnar_size.unwrap_or(0);
    if columnar_size.is_some_and(|size| size < COLUMNAR_BYTES_MIN) {
        return Err(format!("columnar_cache_size is less than {} MiB; write a larger size", COLUMNAR_BYTES_MIN >> 20));
    }
    let models = models(model, time_scale, disks.len(), "flash_model")?;
    Ok(Some(FlashCache { disks, models, size, columnar_bytes }))
}

/// Returns the size of the flash log; None if none is configured.
fn flash_log_size(
    size: Option<&str>,
    flash: Option<&FlashCache>,
    wal_passthrough: bool,
) -> Result<Option<u64>, String> {
    let Some(size) = size.map(|size| parse_size(size, "flash_log_size")).transpose()? else {
        return match flash {
            Some(FlashCache { size: Some(0), columnar_bytes: 0, .. }) => {
                Err("flash_cache_size = \"0\" leaves nothing for the flash disks; remove flash_disks, or write \
                     flash_log_size = \"512MiB\""
                    .into())
            }
            _ => Ok(None),
        };
    };
    let (smallest, largest) = (FlashLogOptions::SIZE_MIN, FlashLogOptions::SIZE_MAX);
    if flash.is_none() {
        return Err("flash_log_size needs flash_disks; name at least one directory or device".into());
    }
    if wal_passthrough {
        return Err(
            "flash_log_size and wal_passthrough exclude each other: with wal_passthrough, the kernel writes WAL \
                    without the cell; remove one of them"
                .into(),
        );
    }
    if !(smallest..=largest).contains(&size) {
        return Err(format!(
            "flash_log_size must be {} MiB to {} GiB; \"512MiB\" is usual",
            smallest >> 20,
            largest >> 30
        ));
    }
    Ok(Some(size.next_multiple_of(4096)))
}

/// Returns the mode of the flash cache, and the write-back log.
fn write_back(
    mode: Option<&str>,
    size: Option<&str>,
    is_unmirrored: Option<bool>,
    takes_redo: Option<bool>,
    flash: Option<&FlashCache>,
) -> Result<WriteBack, String> {
    let mode = mode.map(FlashCacheMode::parse).transpose().map_err(|error| format!("flash_cache_mode: {error}"))?;
    let size = size.map(|size| parse_size(size, "flash_write_back_size")).transpose()?;
    let found = WriteBack {
        mode: mode.unwrap_or_default(),
        size,
        is_unmirrored: is_unmirrored.unwrap_or(false),
        takes_redo: takes_redo.unwrap_or(false),
    };
    if size.is_some_and(|size| size < WriteBack::SIZE_MIN) {
        return Err(format!(
            "flash_write_back_size is less than {} MiB; write a larger size",
            WriteBack::SIZE_MIN >> 20
        ));
    }
    let disks = flash.map_or(0, |flash| flash.disks.len());
    if disks == 0 && (size.is_some() || is_unmirrored.is_some() || found.mode == FlashCacheMode::WriteBack) {
        return Err("flash_cache_mode = \"writeback\", flash_write_back_size and flash_write_back_unmirrored need flash_disks; name \
                    two directories or devices"
            .into());
    }
    if found.mode == FlashCacheMode::WriteThrough {
        return Ok(found);
    }
    if flash.is_some_and(|flash| flash.size == Some(0)) {
        return Err(
            "flash_cache_mode = \"writeback\" needs a flash cache, but flash_cache_size is 0; write a larger size"
                .into(),
        );
    }
    if disks == 1 && !found.is_unmirrored {
        return Err("flash_cache_mode = \"writeback\" needs two flash disks, but flash_disks names one: its failure would lose \
                    changes that the cell disks lack; name a second one, or accept the loss with \
                    flash_write_back_unmirrored = true"
            .into());
    }
    Ok(found)
}

/// Returns why redo cannot be written back.
fn misfit_of_redo(mode: FlashCacheMode, flash_log_size: Option<u64>, wal_passthrough: bool) -> Option<&'static str> {
    if flash_log_size.is_some() {
        return Some(
            "flash_log_write_back and flash_log_size exclude each other: with flash_log_write_back, redo goes to the write-back log; \
             remove one of them",
        );
    }
    if wal_passthrough {
        return Some(
            "flash_log_write_back and wal_passthrough exclude each other: with wal_passthrough, the kernel writes WAL without the \
             cell; remove one of them",
        );
    }
    (mode != FlashCacheMode::WriteBack).then_some(
        "flash_log_write_back needs flash_cache_mode = \"writeback\": redo goes to the write-back log; write both, or remove \
         flash_log_write_back",
    )
}

/// Returns the device model of each of `count` disks, which `key` names. An empty name means no model.
fn models(
    names: Option<OneOrEach>,
    time_scale: Option<f64>,
    count: usize,
    key: &str,
) -> Result<Vec<Option<DiskModel>>, String> {
    let time_scale = time_scale.unwrap_or(1.0);
    if !(1e-6..=1e6).contains(&time_scale) {
        return Err(format!(
            "disk_group.model_time_scale = {time_scale} is not valid; write a number from 0.000001 to 1000000"
        ));
    }
    let names = match names {
        None => return Ok(vec![None; count]),
        Some(OneOrEach::One(name)) => vec![name; count],
        Some(OneOrEach::Each(names)) if names.len() == count => names,
        Some(OneOrEach::Each(names)) => {
            let named = names.len();
            return Err(format!("{key} names {named} models for {count} disks; write one name, or one for each"));
        }
    };
    let model = |name: String| match name.as_str() {
        "" => Ok(None),
        _ => ModelParameters::read(&name).map(|parameters| Some(DiskModel { name, parameters, time_scale })),
    };
    names.into_iter().map(model).collect::<Result<_, _>>().map_err(|error| format!("{key}: {error}"))
}

/// Returns the bytes of the page cache, and the bytes of all other kinds of memory.
fn memory(cache_size: Option<&str>, memory_size: Option<&str>) -> Result<(u64, u64), String> {
    let memory_bytes = memory_size.map(|size| parse_size(size, "memory_size")).transpose()?;
    let cache_bytes = match (cache_size, memory_bytes) {
        (Some(size), _) => parse_size(size, "cache_size")?,
        (None, None) => machine_memory_bytes() / 4,
        (None, Some(memory_bytes)) => (machine_memory_bytes() / 4).min(memory_bytes / 3 * 2),
    };
    let Some(memory_bytes) = memory_bytes else { return Ok((cache_bytes, default_working_bytes(cache_bytes))) };
    match memory_bytes.checked_sub(cache_bytes).filter(|bytes| *bytes >= WORKING_BYTES_MIN) {
        Some(working_bytes) => Ok((cache_bytes, working_bytes)),
        None => Err(format!(
            "memory_size = \"{}\" leaves less than {} MiB besides the page cache of {} MiB; \
             raise memory_size or lower cache_size",
            memory_size.unwrap_or_default(),
            WORKING_BYTES_MIN >> 20,
            cache_bytes >> 20
        )),
    }
}

fn slow_scan_log(milliseconds: i64) -> Result<Duration, String> {
    let valid = u64::try_from(milliseconds).map(Duration::from_millis);
    valid.map_err(|_| {
        format!(
            "slow_scan_log_ms = {milliseconds} is not valid; write a number of milliseconds, 0 to log every Smart Scan, \
             or leave the key out to log none"
        )
    })
}

pub fn parse_log_level(text: &str) -> Result<log::LevelFilter, String> {
    text.parse().map_err(|_| format!("log_level = \"{text}\" is not valid; write error, warn, info, debug or trace"))
}

/// Parses an address with a port, or only a port: then only this machine can connect.
pub fn parse_listen_address(text: &str) -> Result<SocketAddr, String> {
    let local = text.parse().map(|port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    local.or_else(|_| text.parse()).map_err(|_| {
        format!("\"{text}\" is not an address; write a port like \"9187\", or an address like \"127.0.0.1:9187\"")
    })
}

fn history_interval(metrics: Option<&FileMetrics>) -> Result<Duration, String> {
    let seconds = metrics.and_then(|metrics| metrics.history_interval_seconds).unwrap_or(60);
    match seconds {
        1..=3600 => Ok(Duration::from_secs(seconds as u64)),
        _ => Err(format!("metrics.history_interval_seconds = {seconds}; write a number from 1 to 3600")),
    }
}

fn metrics_listen(text: &str) -> Result<SocketAddr, String> {
    parse_listen_address(text).map_err(|error| format!("metrics.listen: {error}"))
}

fn absolute(path: &Path, key: &str) -> Result<PathBuf, String> {
    match path.is_absolute() {
        true => Ok(path.components().collect()),
        false => Err(format!("{key}: {} is not absolute; write the path from /", path.display())),
    }
}

/// Files on the mount belong to the cluster, and a program on it could not start while the mount does not answer.
fn alert_hook(path: &Path, mount: &Path) -> Result<PathBuf, String> {
    let program = absolute(path, "alert_hook")?;
    match program.starts_with(mount) {
        true => {
            Err(format!("alert_hook {} is below the mount {}; write another path", program.display(), mount.display()))
        }
        false => Ok(program),
    }
}

/// Parses a number of bytes: digits, then optionally B, KiB, MiB, GiB or TiB.
fn parse_size(text: &str, key: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim() {
        "" | "B" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        "TiB" => 40,
        _ => {
            return Err(format!(
                "{key} = \"{text}\" is not valid; write a number and KiB, MiB, GiB or TiB, like \"4GiB\""
            ));
        }
    };
    let number: u64 =
        number.parse().map_err(|_| format!("{key} = \"{text}\" is not valid; write a size like \"4GiB\""))?;
    number.checked_mul(1 << shift).ok_or_else(|| format!("{key} = \"{text}\" is too large"))
}

/// Parses a duration: digits, then ms or s.
fn parse_duration(text: &str, key: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number = number.parse::<u64>().ok().filter(|number| (1..=86_400_000).contains(number));
    match (number, unit.trim()) {
        (Some(number), "ms") => Ok(Duration::from_millis(number)),
        (Some(number), "s") => Ok(Duration::from_secs(number)),
        _ => Err(format!(
            "{key} = \"{text}\" is not valid; write a number from 1 to 86400000 and ms or s, like \"20ms\" or \"30s\""
        )),
    }
}

/// Returns the size of the machine's memory, or 1 GiB if it is unknown.
pub fn machine_memory_bytes() -> u64 {
    let kib = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    });
    kib.unwrap_or(1 << 20) * 1024
}

/// Returns the named user, or the user of this process.
fn cluster_user(name: Option<&str>) -> Result<ClusterUser, String> {
    let found = match name {
        Some(name) => User::from_name(name).ok().flatten(),
        None => User::from_uid(Uid::effective()).ok().flatten(),
    };
    match (found, name) {
        (Some(user), _) => Ok(ClusterUser { name: user.name, uid: user.uid.as_raw(), gid: user.gid.as_raw() }),
        (None, Some(name)) => {
            Err(format!("user = \"{name}\" does not exist on this machine; write the name of an operating-system user"))
        }
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
    fn a_minimal_file_has_all_defaults() {
        let config = Config::parse(MINIMAL).unwrap();
        assert_eq!(config.socket, Path::new("/disk1/cell.sock"));
        assert_eq!(config.disk_group.au_size, AuSize::DEFAULT);
        assert_eq!(config.user.uid, Uid::effective().as_raw());
        assert!(config.cache_bytes > 0 && config.working_bytes >= config.cache_bytes / 2);
        assert_eq!(config.slow_scan_log, None);
        assert_eq!(config.iorm_objective, Objective::Off);
    }

    #[test]
    fn a_slow_scan_log_threshold_is_in_milliseconds() {
        let parse = |value: &str| Config::parse(&format!("slow_scan_log_ms = {value}\n{MINIMAL}"));
        assert_eq!(parse("250").unwrap().slow_scan_log, Some(Duration::from_millis(250)));
        assert_eq!(parse("0").unwrap().slow_scan_log, Some(Duration::ZERO));
    }

    #[test]
    fn a_port_alone_listens_on_the_loopback_address() {
        let parse = |value: &str| Config::parse(&format!("{MINIMAL}[metrics]\nlisten = \"{value}\"\n"));
        let listen = |value: &str| parse(value).unwrap().metrics_listen.unwrap().to_string();
        assert_eq!(listen("9187"), "127.0.0.1:9187");
        assert_eq!(listen("0.0.0.0:9187"), "0.0.0.0:9187");
        assert_eq!(listen("[::1]:9187"), "[::1]:9187");
        for wrong in ["", "localhost:9187", "127.0.0.1", "70000"] {
            assert!(parse(wrong).unwrap_err().contains("write a port like"), "{wrong}");
        }
    }

    #[test]
    fn a_cell_whose_first_disk_is_a_device_names_its_socket() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = |socket: &str| {
            format!("mount = \"/m\"\n{socket}[disk_group]\ndisks = [\"{}\", \"/d\"]\n", file.path().display())
        };
        assert!(Config::parse(&text("")).unwrap_err().contains("socket is missing"));
        Config::parse(&text("socket = \"/run/cell.sock\"\n")).unwrap();
    }

    #[test]
    fn a_model_is_named_for_all_disks_or_for_each() {
        let parse = |keys: &str| Config::parse(&format!("{MINIMAL}{keys}\n")).unwrap().disk_group.models;
        let names = |keys: &str| parse(keys).into_iter().map(|model| model.map(|model| model.name)).collect::<Vec<_>>();
        assert_eq!(names(""), [None, None]);
        assert_eq!(names("model = \"hdd-15k\""), [Some("hdd-15k".into()), Some("hdd-15k".into())]);
        assert_eq!(names("model = [\"\", \"flash-mlc\"]"), [None, Some("flash-mlc".into())]);
        assert_eq!(parse("model = \"hdd-15k\"\nmodel_time_scale = 0.5")[1].as_ref().unwrap().time_scale, 0.5);
    }

    #[test]
    fn the_memory_budget_contains_the_page_cache() {
        let parse = |keys: &str| Config::parse(&format!("{keys}\n{MINIMAL}")).map(|c| (c.cache_bytes, c.working_bytes));
        const MIB: u64 = 1 << 20;
        assert_eq!(parse("cache_size = \"100MiB\""), Ok((100 * MIB, 512 * MIB)));
        assert_eq!(parse("cache_size = \"8GiB\""), Ok((8192 * MIB, 4096 * MIB)));
        assert_eq!(parse("cache_size = \"1GiB\"\nmemory_size = \"3GiB\""), Ok((1024 * MIB, 2048 * MIB)));
        assert_eq!(parse("memory_size = \"300MiB\""), Ok((200 * MIB, 100 * MIB)));
    }

    #[test]
    fn errors_state_a_valid_value() {
        let check = |text: &str, expected: &str| {
            let message = Config::parse(text).unwrap_err();
            assert!(message.contains(expected), "{expected:?} is not in {message:?}");
        };
        check(&format!("colour = 1\n{MINIMAL}"), "unknown field `colour`");
        check(&format!("cache_size = \"4GB\"\n{MINIMAL}"), "like \"4GiB\"");
        check(&format!("memory_size = \"1GiB\"\ncache_size = \"1GiB\"\n{MINIMAL}"), "raise memory_size or lower");
        check(&format!("slow_scan_log_ms = -1\n{MINIMAL}"), "write a number of milliseconds");
        check(
            &format!("{MINIMAL}[iorm]\nobjective = \"fast\"\n"),
            "iorm.objective \"fast\" does not exist; write one of off",
        );
        check(&format!("log_level = \"loud\"\n{MINIMAL}"), "write error, warn");
        check(&format!("user = \"no such user\"\n{MINIMAL}"), "does not exist on this machine");
        check("mount = \"/m\"\n[disk_group]\ndisks = []\n", "name at least one");
        check("mount = \"m\"\n[disk_group]\ndisks = [\"/d\"]\n", "mount: m is not absolute");
        check(&format!("alert_hook = \"hook\"\n{MINIMAL}"), "alert_hook: hook is not absolute");
        check("mount = \"/m\"\n[disk_group]\ndisks = [\"/m/d\"]\n", "cannot store its own disks");
        check("mount = \"/m\"\n[disk_group]\ndisks = [\"/d\", \"/e\", \"/d/\"]\n", "names /d twice");
        check(&format!("{MINIMAL}au_size = \"3MiB\"\n"), "3 MiB is not an allocation unit size");
        check(&format!("{MINIMAL}reserve_size = \"1GB\"\n"), "disk_group.reserve_size = \"1GB\" is not valid; write");
        check(&format!("{MINIMAL}model = \"tape\"\n"), "model \"tape\" does not exist; write one of hdd-15k");
        check(&format!("{MINIMAL}model = [\"hdd-15k\"]\n"), "names 1 models for 2 disks");
        check(&format!("{MINIMAL}model = \"hdd-15k\"\nmodel_time_scale = 0.0\n"), "write a number from 0.000001");
        let group = |keys: &str| format!("{MINIMAL}{keys}\n");
        check(&group("redundancy = \"double\""), "write \"external\", \"normal\" (2 copies) or \"high\" (3 copies)");
        check(&group("redundancy = \"high\""), "needs 3 disks, but disk_group.disks names 2");
        check(&group("preferred_read = \"a\""), "failure_group and preferred_read need copies");
        check(&group("redundancy = \"normal\"\npreferred_read = \"a\""), "is the failure_group of no disk");
        check(&group("redundancy = \"normal\""), "socket is missing: with copies");
        check("mount = \"/m\"\n[disk_group]\ndisks = [3]\n", "a disk is a path, or { path");
    }

    #[test]
    fn patience_needs_copies_and_a_cap_below_the_timeout() {
        let parse = |keys: &str| {
            let text = format!("mount = \"/m\"\nsocket = \"/s\"\n[disk_group]\ndisks = [\"/d\", \"/e\"]\n{keys}\n");
            Config::parse(&text).map(|config| config.disk_group.patience)
        };
        let (ms, copies) = (Duration::from_millis, "redundancy = \"normal\"\n");
        let of = |cap, timeout| Ok(Some(Patience { read_latency_cap: cap, timeout }));
        assert_eq!(parse(copies), Ok(None));
        assert_eq!(parse(&format!("{copies}read_latency_cap = \"20ms\"")), of(Some(ms(20)), ms(30_000)));
        assert_eq!(parse(&format!("{copies}disk_timeout = \"5s\"")), of(None, ms(5000)));
        let refused = |keys: &str, expected: &str| {
            let message = parse(keys).unwrap_err();
            assert!(message.contains(expected), "{expected:?} is not in {message:?}");
        };
        refused("read_latency_cap = \"20ms\"", "need copies");
        refused(&format!("{copies}read_latency_cap = \"20\""), "write a number from 1 to 86400000 and ms or s");
        refused(&format!("{copies}disk_timeout = \"0s\""), "write a number from 1 to 86400000 and ms or s");
        refused(&format!("{copies}read_latency_cap = \"2s\"\ndisk_timeout = \"2s\""), "lower the cap");
    }

    #[test]
    fn flash_disks_are_other_disks_than_cell_disks() {
        let parse = |keys: &str| {
            let text = format!("mount = \"/m\"\n{keys}\n[disk_group]\ndisks = [\"/d\"]\n");
            Config::parse(&text).map(|config| config.flash_cache)
        };
        assert!(parse("").unwrap().is_none() && parse("flash_disks = []").unwrap().is_none());
        let keys = "flash_disks = [\"/f\", \"/g\"]\nflash_cache_size = \"3GiB\"\nflash_model = [\"\", \"flash-mlc\"]";
        let flash = parse(keys).unwrap().unwrap();
        assert_eq!((flash.disks, flash.size), (vec!["/f".into(), "/g".into()], Some(3 << 30)));
        assert_eq!(flash.models.iter().map(Option::is_some).collect::<Vec<_>>(), [false, true]);
        let refused = |keys: &str, expected: &str| {
            let message = parse(keys).unwrap_err();
            assert!(message.contains(expected), "{expected:?} is not in {message:?}");
        };
        refused("flash_cache_size = \"3GiB\"", "need flash_disks");
        refused("flash_model = \"flash-mlc\"", "need flash_disks");
        refused("columnar_cache_size = \"1GiB\"", "need flash_disks");
        refused("flash_disks = [\"/f\"]\ncolumnar_cache_size = \"1MiB\"", "columnar_cache_size is less than 64 MiB");
        let columnar = parse("flash_disks = [\"/f\"]\ncolumnar_cache_size = \"1GiB\"").unwrap().unwrap();
        assert_eq!((columnar.columnar_bytes, flash.columnar_bytes), (1 << 30, 0));
        refused("flash_log_size = \"512MiB\"", "needs flash_disks");
        refused("flash_disks = [\"/f\"]\nflash_log_size = \"1MiB\"", "4 MiB to 2 GiB");
        refused("flash_disks = [\"/f\"]\nflash_log_size = \"5MiB\"\nwal_passthrough = true", "exclude each other");
        refused("flash_disks = [\"/f\"]\nflash_cache_size = \"0\"", "leaves nothing");
        refused("flash_disks = [\"f\"]", "write the path from /");
        refused("flash_disks = [\"/f\", \"/f/\"]", "names /f twice");
        refused("flash_disks = [\"/d\"]", "is a cell disk, too");
        refused("flash_disks = [\"/m/f\"]", "is below the mount");
        refused("flash_disks = [\"/d/flash\"]", "one contains the other");
        refused("flash_disks = [\"/f/a\", \"/f\"]", "one contains the other");
        assert!(parse("flash_disks = [\"/flash\", \"/dd\"]").is_ok());
        refused("flash_disks = [\"/f\"]\nflash_cache_size = \"3 apples\"", "flash_cache_size");
        refused("flash_disks = [\"/f\"]\nflash_model = [\"\", \"\"]", "flash_model names 2 models for 1 disks");
    }

    #[test]
    fn write_back_needs_two_flash_disks_unless_one_is_allowed() {
        let parse = |keys: &str| Config::parse(&format!("{keys}\n{MINIMAL}")).map(|config| config.write_back);
        let two = "flash_disks = [\"/f\", \"/g\"]\n";
        let (back, one) = ("flash_cache_mode = \"WriteBack\"\n", "flash_disks = [\"/f\"]\n");
        assert_eq!(parse("").unwrap().mode, FlashCacheMode::WriteThrough);
        assert_eq!(parse(&format!("{two}{back}")).unwrap().mode, FlashCacheMode::WriteBack);
        assert!(parse(&format!("{one}{back}flash_write_back_unmirrored = true")).unwrap().is_unmirrored);
        assert_eq!(parse(&format!("{two}flash_write_back_size = \"1GiB\"")).unwrap().size, Some(1 << 30));
        let refused = |keys: &str, expected: &str| {
            let message = parse(keys).unwrap_err();
            assert!(message.contains(expected), "{expected:?} is not in {message:?}");
        };
        refused(back, "need flash_disks; name two");
        refused("flash_write_back_size = \"1GiB\"", "need flash_disks");
        refused(&format!("{one}{back}"), "needs two flash disks");
        refused(&format!("{two}flash_cache_mode = \"back\""), "write \"writethrough\" or \"writeback\"");
        refused(&format!("{two}flash_write_back_size = \"1MiB\""), "less than 128 MiB");
        let redo = format!("{two}{back}flash_log_write_back = true\n");
        assert!(parse(&redo).unwrap().takes_redo && !parse(&format!("{two}{back}")).unwrap().takes_redo);
        refused(
            &format!("{redo}flash_log_size = \"512MiB\""),
            "flash_log_write_back and flash_log_size exclude each other",
        );
        refused(
            &format!("{redo}wal_passthrough = true"),
            "flash_log_write_back and wal_passthrough exclude each other",
        );
        refused(&format!("{two}flash_log_write_back = true"), "needs flash_cache_mode = \"writeback\"");
        refused("flash_log_write_back = true", "needs flash_cache_mode = \"writeback\"");
        assert!(!parse("flash_log_write_back = false\nwal_passthrough = true").unwrap().takes_redo);
        refused(&format!("{two}{back}flash_log_size = \"512MiB\"\nflash_cache_size = \"0\""), "needs a flash cache");
    }

    #[test]
    fn the_default_write_back_log_is_a_twentieth_of_a_flash_disk() {
        let write_back =
            WriteBack { mode: FlashCacheMode::WriteBack, size: None, is_unmirrored: false, takes_redo: false };
        assert_eq!(write_back.size_on(&[1 << 30, 1 << 30]), 128 << 20);
        assert_eq!(write_back.size_on(&[20 << 30, 400 << 30]), 1 << 30);
        assert_eq!(write_back.size_on(&[400 << 30, 400 << 30]), 2 << 30);
        let disks = [(Path::new("/f"), 200 << 20), (Path::new("/g"), 1 << 30)];
        assert!(write_back.misfit(&disks).unwrap().contains("flash disk /f has 200 MiB"));
        assert_eq!(write_back.misfit(&disks[1..]), None);
    }

    #[test]
    fn disks_may_name_their_failure_groups() {
        let text = "mount = \"/m\"\nsocket = \"/s\"\n[disk_group]\nredundancy = \"normal\"\npreferred_read = \"a\"\n\
                    disks = [{ path = \"/d\", failure_group = \"a\" }, \"/e\"]\n";
        let group = Config::parse(text).unwrap().disk_group;
        assert_eq!(group.redundancy, Redundancy::Normal);
        assert_eq!(group.disks, [Path::new("/d"), Path::new("/e")]);
        assert_eq!(group.failure_groups, [Some("a".to_owned()), None]);
    }
}
