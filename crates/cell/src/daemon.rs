//! The daemon: opens the disks, recovers, mounts, serves until it is stopped, and shuts down cleanly.
//!
//! Start order: the daemon locks the disks before it touches the mount point, so a second daemon changes nothing. The
//! Smart Scan server starts before the mount, so every file on the mount has a server. The daemon notifies the service
//! manager that it is ready after the mount. Shutdown is in reverse order.

use crate::columnar::ColumnarFiller;
use crate::compression::start_recompression;
use crate::config::{Config, FlashCache, WriteBack, machine_memory_bytes};
use crate::disks;
use crate::fuse::{self, FileService, IoStats, Mount, MountError, MountOptions, Unmounted};
use crate::instance::{Device, Instance, MountRecord, PreviousMounts};
use crate::page_check::ClusterChecksums;
use crate::server;
use crate::service_manager::{notify, notify_recovery};
use crate::shared_devices;
use crate::state::{CellState, MemoryBudget, MemoryKind, UnitDirectories};
use crate::unit_codec::Codec;
use cellar_storage::disk::{Disk, OverlayDisk, within};
use cellar_storage::iorm::Iorm;
use cellar_storage::{
    AbsentDisk, ErrorKind, FlashCacheMode, FlashLogOptions, FlashOptions, ReadOnlyVolume, Redundancy, Volume,
    VolumeOptions, WriteBackOptions, forms_new_group,
};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::{AccessFlags, Uid, access};
use std::fs::Permissions;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How long a shutdown waits for processes that use the mount.
const UNMOUNT_TIMEOUT: Duration = Duration::from_secs(10);
/// How often the daemon checks that its mount still exists.
const WATCH_INTERVAL: Duration = Duration::from_millis(500);
/// Adjustment of the out-of-memory score. Killing the daemon stops the whole cluster.
const OOM_SCORE: &str = "-900";
/// Desired limit of open files.
const DESCRIPTORS_WANTED: u64 = 1 << 19;
const GIB: u64 = 1 << 30;
/// Number of the first flash disk among the disks that follow device models.
const FLASH_MODEL_NUMBER: usize = 1000;
/// Descriptors reserved for sockets, logs and other files than backing files.
const DESCRIPTORS_RESERVED: u64 = 256;

#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    #[error("{0}")]
    Storage(#[from] cellar_storage::Error),
    #[error("{0}")]
    Mount(#[from] MountError),
    #[error("could not open cell disk {path}: {source}; connect or mount the disk, or correct the path")]
    MissingDisk { path: String, source: io::Error },
    #[error("{context}: {source}")]
    System { context: String, source: io::Error },
    #[error("{0}")]
    MountPoint(String),
    #[error("{0}")]
    Configuration(String),
}

impl DaemonError {
    /// Returns the process's exit code: 2 if the mount point is not a directory or in use by another cell or the configuration does not agree with the disk group, 3 if another daemon has locked the disks,
    /// 4 if a disk is missing or belongs to another disk group, 1 otherwise.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::MountPoint(_) | Self::Configuration(_) => 2,
            // The configuration does not agree with the disk group.
            Self::Storage(error) if error.kind() == ErrorKind::Invalid => 2,
            Self::Storage(error) if error.kind() == ErrorKind::Locked => 3,
            Self::Storage(error) if error.kind() == ErrorKind::ForeignDisk => 4,
            Self::MissingDisk { .. } => 4,
            _ => 1,
        }
    }

    /// Returns the error of a cell disk that could not be opened.
    fn of_disk(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.display().to_string();
        |source| match source.kind() {
            io::ErrorKind::NotFound => Self::MissingDisk { path, source },
            _ => Self::System { context: format!("could not open cell disk {path}"), source },
        }
    }

    fn system(context: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let context = context.into();
        |source| Self::System { context, source }
    }
}

/// Runs a cell until SIGTERM or SIGINT, or until its mount is unmounted.
pub fn run(config: &Config, BlockedSignals(signals): BlockedSignals) -> Result<(), DaemonError> {
    protect_from_oom_killer();
    let descriptors = raise_descriptor_limit();
    check_mount_point(config)?;
    check_not_nested(&config.disk_group.disks)?;
    check_socket_before_disks(config)?;
    notify("STATUS=opening the cell disks");
    let memory = Arc::new(MemoryBudget::new(config.cache_bytes, config.working_bytes));
    let units = Arc::new(UnitDirectories::new(memory.account(MemoryKind::UnitDirectories)));
    let iorm = Arc::new(Iorm::new(config.iorm_objective));
    let volume = open_volume(config, &units, descriptors, &iorm)?;
    iorm.load();
    // After the disks are locked: a second daemon of the same cell is an error of the locks.
    check_socket(&config.socket)?;
    // Check for a stale mount only after locking the disks: another daemon that has them locked may serve this mount.
    let stale = fuse::reduce_stale(&config.mount)?;
    match stale.is_empty() {
        true if fuse::is_mount_of_cell(&config.mount) => {
            let message = format!("the mount point {} is in use by another cell", config.mount.display());
            return Err(DaemonError::MountPoint(message));
        }
        true => {
            warn_about_hidden_files(config);
            restrict_mount_point(&config.mount);
        }
        false => log::warn!("replacing the mount of a crashed daemon at {}", config.mount.display()),
    }
    let record = MountRecord::new(&disks::directories(&config.disk_group.disks, &config.socket));
    let instance = Instance::new(PreviousMounts::new(stale, &record))
        .map_err(DaemonError::system("could not generate a random number"))?;
    let state = Arc::new(CellState { iorm, ..CellState::new(volume.clone(), units, memory) });
    let result = serve(config, &state, (Arc::new(instance), &record), &signals);
    match &result {
        Ok(Unmounted::AfterLastRequest) => state.close()?,
        Ok(Unmounted::MayBeInUse) => volume.close()?,
        Err(_) => {
            let closed = volume.close();
            result?;
            closed?;
        }
    }
    log::info!("cell {} stopped", config.name);
    Ok(())
}

/// The result of [`check`] for a cell that can start.
#[derive(Debug)]
pub struct Findings {
    pub name: String,
    /// None if a start forms a new disk group.
    pub disk_group: Option<String>,
    pub disks: usize,
    pub inodes: usize,
    /// Sums over the disks that exist.
    pub total_bytes: u64,
    pub available_bytes: u64,
}

/// Checks whether the cell can start: opens the disks and their metadata for reading. Changes nothing.
pub fn check(config: &Config) -> Result<Findings, DaemonError> {
    check_mount_point(config)?;
    check_not_nested(&config.disk_group.disks)?;
    warn_about_hidden_files(config);
    check_write_back(config)?;
    let has_copies = config.disk_group.redundancy != Redundancy::External;
    let (mut disks, mut failure_groups, mut missing) = (Vec::new(), Vec::new(), None);
    // The file systems on which a start creates directories.
    let mut absent = Vec::new();
    for (number, path) in config.disk_group.disks.iter().enumerate() {
        let failed = || DaemonError::of_disk(path);
        match OverlayDisk::new(path) {
            Ok(disk) => {
                let enter = if path.is_dir() { AccessFlags::X_OK } else { AccessFlags::empty() };
                let rights = AccessFlags::R_OK | AccessFlags::W_OK | enter;
                access(path, rights).map_err(|error| failed()(error.into()))?;
                disks.push(disk);
                failure_groups.push(config.disk_group.failure_groups.get(number).cloned().flatten());
            }
            // A start creates the directory, but not its parent.
            Err(error)
                if error.kind() == io::ErrorKind::NotFound
                    && path.parent().is_some_and(Path::is_dir)
                    && disks::is_creatable(path) =>
            {
                log::warn!("cell disk {} does not exist; a start creates the directory", path.display());
                let space = path.parent().map(|parent| OverlayDisk::new(parent).and_then(|disk| disk.space()));
                absent.extend(space.and_then(Result::ok));
            }
            Err(error) if has_copies => {
                log::error!("could not open cell disk {}: {error}; the disk counts as missing", path.display());
                missing = Some(failed()(error));
            }
            Err(error) => return Err(failed()(error)),
        }
    }
    let mut findings = Findings {
        name: config.name.clone(),
        disk_group: None,
        disks: config.disk_group.disks.len(),
        inodes: 0,
        total_bytes: 0,
        available_bytes: 0,
    };
    let present = disks.iter().map(|disk| disk.space()).collect::<io::Result<Vec<_>>>();
    let present = present.map_err(DaemonError::system("could not determine the free space of the cell disks"))?;
    for space in present.iter().chain(&absent) {
        findings.total_bytes += space.total;
        findings.available_bytes += space.available;
    }
    warn_about_reserve(config, present.iter().chain(&absent).map(|space| space.total));
    let options = VolumeOptions {
        cache_bytes: config.cache_bytes,
        redundancy: config.disk_group.redundancy,
        failure_groups,
        file_redundancy: config.disk_group.file_redundancy.clone(),
        force_degraded: config.force_degraded,
        ..VolumeOptions::default()
    };
    if forms_new_group(&disks)? {
        // A new group needs all disks.
        missing.map_or(Ok(()), Err)?;
        let failure_groups = config.disk_group.failure_groups.clone();
        VolumeOptions { failure_groups, ..options }.check_new_group(config.disk_group.disks.len())?;
    } else {
        let volume = ReadOnlyVolume::open_strictly(disks, options)?;
        findings.disk_group = Some(volume.group_id());
        findings.inodes = volume.inode_count();
    }
    check_socket(&config.socket)?;
    Ok(findings)
}

/// Warns if the configured reserve takes most of a disk: files cannot use it.
fn warn_about_reserve(config: &Config, disk_sizes: impl Iterator<Item = u64>) {
    if let (Some(reserve), Some(smallest)) = (config.disk_group.reserve_bytes, disk_sizes.min())
        && reserve > smallest / 2
    {
        log::warn!(
            "disk_group.reserve_size is {} MiB, but the smallest cell disk has {} MiB: files can use only what is left; lower \
             reserve_size",
            reserve >> 20,
            smallest >> 20
        );
    }
}

/// Returns whether a start forms a new group. If the disks cannot tell, for example because another daemon uses them, returns
/// false.
fn would_form(disks: &[PathBuf]) -> bool {
    forms_new_group(&overlays(disks)).unwrap_or(false)
}

fn overlays(disks: &[PathBuf]) -> Vec<OverlayDisk> {
    disks.iter().filter_map(|path| OverlayDisk::new(path).ok()).collect()
}

/// Refuses to form a group with a cell disk below another one. Groups of earlier releases may have such disks.
fn check_not_nested(disks: &[PathBuf]) -> Result<(), DaemonError> {
    let is_below = |disk: &Path, other: &Path| disk != other && disk.starts_with(other);
    let nested = disks.iter().find_map(|disk| Some((disk, disks.iter().find(|other| is_below(disk, other))?)));
    let Some((disk, other)) = nested else { return Ok(()) };
    let found = format!("cell disk {} is below cell disk {}", disk.display(), other.display());
    if would_form(disks) {
        let message = format!("{found}; name directories of which none contains another one");
        return Err(DaemonError::Configuration(message));
    }
    log::warn!("{found}; replace one of the two disks");
    Ok(())
}

/// Checks that the write-back log fits on the flash disks. Those that cannot be measured count as large enough.
fn check_write_back(config: &Config) -> Result<(), DaemonError> {
    let Some(flash) = config.flash_cache.as_ref().filter(|_| config.write_back.mode == FlashCacheMode::WriteBack)
    else {
        return Ok(());
    };
    let measure = |path: &Path| {
        within(FlashOptions::TIMEOUT, {
            let path = path.to_owned();
            move || OverlayDisk::new(&path)?.space()
        })
    };
    let sizes =
        flash.disks.iter().map(|path| (path.as_path(), measure(path).map_or(u64::MAX / 2, |space| space.total)));
    match config.write_back.misfit(&sizes.collect::<Vec<_>>()) {
        Some(misfit) => Err(DaemonError::Configuration(misfit)),
        None => Ok(()),
    }
}

fn open_volume(
    config: &Config,
    units: &Arc<UnitDirectories>,
    descriptors: u64,
    iorm: &Arc<Iorm>,
) -> Result<Arc<Volume>, DaemonError> {
    let has_copies = config.disk_group.redundancy != Redundancy::External;
    let models = config.disk_group.models.iter().map(Option::as_ref);
    let disks =
        config.disk_group.disks.iter().zip(models).enumerate().map(|(number, (path, model))| {
            match disks::open(path, number, model, iorm) {
                Err(error) if has_copies => {
                    log::error!("could not open cell disk {}: {error}; the disk counts as missing", path.display());
                    Ok(Arc::new(AbsentDisk::new(path)) as Arc<dyn Disk>)
                }
                opened => opened.map_err(DaemonError::of_disk(path)),
            }
        });
    let disks = disks.collect::<Result<Vec<_>, _>>()?;
    let disk_sizes: Vec<u64> = disks.iter().filter_map(|disk| disk.space().ok()).map(|space| space.total).collect();
    let reserve = config.disk_group.reserve_bytes;
    warn_about_reserve(config, disk_sizes.iter().copied());
    // A file type may have three copies.
    let copies = if has_copies { Redundancy::High } else { Redundancy::External }.copies() as u64;
    let opened = config.flash_cache.as_ref().map(|flash| (flash, open_flash_disks(flash, iorm)));
    let flash = opened.as_ref().map(|(flash, disks)| flash_options(flash, disks));
    let write_back = flash.as_ref().and_then(|flash| write_back_options(config, flash)).transpose()?;
    let log_size = config.flash_log_size.unwrap_or(0);
    let options = VolumeOptions {
        reserve_bytes: reserve.unwrap_or_else(|| {
            let (memory, disk_count) = (machine_memory_bytes(), disk_sizes.len().max(1) as u64);
            let reserve = default_reserve(memory, &disk_sizes);
            if reserve < memory / 2 / disk_count {
                log::warn!(
                    "the default reserve of each cell disk is limited to {} MiB; set disk_group.reserve_size if \
                     the shared_buffers of all clusters are more than {} MiB",
                    reserve >> 20,
                    (reserve * disk_count / 2) >> 20
                );
            }
            reserve
        }),
        au_size: config.disk_group.au_size,
        redundancy: config.disk_group.redundancy,
        failure_groups: config.disk_group.failure_groups.clone(),
        file_type: crate::fuse::type_of,
        file_redundancy: config.disk_group.file_redundancy.clone(),
        preferred_read: config.disk_group.preferred_read.clone(),
        patience: config.disk_group.patience,
        force_degraded: config.force_degraded,
        cache_bytes: config.cache_bytes,
        flash: flash.filter(|flash| flash.size != Some(0)),
        write_back,
        writes_through: config.write_back.mode == FlashCacheMode::WriteThrough,
        reserves_write_back: config.write_back.size.is_some(),
        present_flash_disks: opened.iter().flat_map(|(_, disks)| disks.iter().flatten().cloned()).collect(),
        // Without a size, redo of an earlier start is written to its files.
        flash_log: opened.map(|(flash, disks)| FlashLogOptions::new(or_absent(flash, disks), log_size)),
        wal_passthrough: config.wal_passthrough,
        // A backing file may have a second descriptor for direct reads, on each disk with a copy.
        handles_max: (descriptors.saturating_sub(DESCRIPTORS_RESERVED) / (2 * copies)).max(64) as usize,
        root_uid: config.user.uid,
        root_gid: config.user.gid,
        unit_codec: Some(Arc::new(Codec::new(units.clone()))),
        page_check: Some(Arc::new(ClusterChecksums::new(&config.mount))),
        recovery_progress: notify_recovery,
        ..VolumeOptions::default()
    };
    let volume = Volume::open(disks, options)?;
    volume.set_flash_limits(iorm.flash_limits());
    shared_devices::warnings(&volume).iter().for_each(|warning| log::warn!("{warning}"));
    Ok(volume)
}

/// Opens the flash disks. None in place of one that cannot be opened, or does not answer in time.
fn open_flash_disks(config: &FlashCache, iorm: &Arc<Iorm>) -> Vec<Option<Arc<dyn Disk>>> {
    let disks = config.disks.iter().zip(&config.models).enumerate().map(|(number, (path, model))| {
        let (to_open, model, iorm) = (path.clone(), model.clone(), iorm.clone());
        // Models of flash disks are not synchronized with models of cell disks.
        let open = move || disks::open_flash(&to_open, FLASH_MODEL_NUMBER + number, model.as_ref(), &iorm);
        let opened = within(FlashOptions::TIMEOUT, open);
        opened
            .inspect_err(|error| {
                log::error!(
                    "could not open flash disk {}: {error}; the cell works without flash cache, and writes go to the cell disks",
                    path.display()
                );
            })
            .ok()
    });
    disks.collect()
}

/// Returns the options of write-back, also for a cell whose mode is WriteThrough until a command changes it. None if the cell has
/// too few flash disks for it. An error says that the flash disks are too small.
fn write_back_options(config: &Config, flash: &FlashOptions) -> Option<Result<WriteBackOptions, DaemonError>> {
    let (wanted, configured) = (&config.write_back, config.flash_cache.as_ref()?);
    if configured.size == Some(0) || configured.disks.len() < 2 && !wanted.is_unmirrored {
        return None;
    }
    let size_of = |disk: &Arc<dyn Disk>| disk.space().map_or(0, |space| space.total);
    let sizes: Vec<u64> = flash.disks.iter().map(size_of).collect();
    let named: Vec<(&Path, u64)> = flash.disks.iter().map(|disk| disk.path()).zip(sizes.iter().copied()).collect();
    if let Some(misfit) = wanted.misfit(&named).filter(|_| wanted.mode == FlashCacheMode::WriteBack) {
        return Some(Err(DaemonError::Configuration(misfit)));
    }
    Some(Ok(WriteBackOptions {
        size: wanted.size_on(&sizes),
        segment_bytes: WriteBack::SEGMENT_BYTES,
        allows_one_disk: wanted.is_unmirrored,
        takes_redo: wanted.takes_redo,
        destages_in_background: true,
    }))
}

/// Returns the disks of the flash log, which needs only the one with its ring.
fn or_absent(config: &FlashCache, disks: Vec<Option<Arc<dyn Disk>>>) -> Vec<Arc<dyn Disk>> {
    let absent = |path| Arc::new(AbsentDisk::new(path)) as Arc<dyn Disk>;
    disks.into_iter().zip(&config.disks).map(|(disk, path)| disk.unwrap_or_else(|| absent(path))).collect()
}

/// Returns the options of the flash cache, without disks if one could not be opened: the cell works without flash cache.
fn flash_options(config: &FlashCache, disks: &[Option<Arc<dyn Disk>>]) -> FlashOptions {
    FlashOptions {
        disks: disks.iter().cloned().collect::<Option<Vec<_>>>().unwrap_or_default(),
        size: config.size,
        columnar_bytes: config.columnar_bytes,
        segment_bytes: FlashOptions::SEGMENT_BYTES,
        fills_in_background: true,
        timeout: Some(FlashOptions::TIMEOUT),
    }
}

/// Returns the default size of the reserve of each disk in bytes: the disks' share of twice the recommended size of
/// `shared_buffers`, a quarter of memory, because a page of a compression unit is written twice during a checkpoint. The
/// reserve is limited to 1 GiB or a 64th of the smallest disk, whichever is more, and to an eighth of the disk.
fn default_reserve(memory: u64, disk_sizes: &[u64]) -> u64 {
    let smallest = disk_sizes.iter().min().copied().unwrap_or(0);
    let limit = GIB.max(smallest / 64).min(smallest / 8);
    (memory / 2 / disk_sizes.len().max(1) as u64).max(GIB).min(limit)
}

fn serve(
    config: &Config,
    state: &Arc<CellState>,
    (instance, record): (Arc<Instance>, &MountRecord),
    signals: &SignalFd,
) -> Result<Unmounted, DaemonError> {
    let volume = &state.volume;
    let io_stats = Arc::new(IoStats::default());
    let server = server::start(state.clone(), config, instance.clone(), io_stats.clone()).map_err(
        DaemonError::system(format!("could not start the Smart Scan server on {}", config.socket.display())),
    )?;
    let filler = ColumnarFiller::start(state).unwrap_or_else(|error| {
        log::error!("could not start the thread of the columnar cache, which stays empty: {error}");
        None
    });
    let recompression = start_recompression(state)
        .inspect_err(|error| log::error!("could not start the thread that keeps the reserve free: {error}"));
    let mounted = mount(config, state, instance.clone(), io_stats);
    let result = mounted.and_then(|mount| {
        match mount.device() {
            Some(device) => instance.record_mount(record, device),
            None => log::warn!("could not record the mount: its device is unknown"),
        }
        eprintln!("cell {} ready: mounted on {} ({})", config.name, config.mount.display(), mount.transport());
        notify(&format!("READY=1\nSTATUS=mounted on {}", config.mount.display()));
        let is_signalled = wait_for_stop(&mount, signals)?;
        notify("STOPPING=1\nSTATUS=syncing and unmounting");
        // The thread ends after the unit that it stores now, while the volume is synced.
        if let Ok(recompression) = &recompression {
            recompression.begin_to_stop();
        }
        if is_signalled {
            log::info!("stopping");
            volume.sync()?;
        } else {
            log::warn!("stopping because another process unmounted {}", config.mount.display());
        }
        Ok(mount.unmount(UNMOUNT_TIMEOUT)?)
    });
    server.stop();
    if let Some(filler) = filler {
        filler.stop();
    }
    drop(recompression);
    result
}

fn mount(
    config: &Config,
    state: &CellState,
    instance: Arc<Instance>,
    io_stats: Arc<IoStats>,
) -> Result<Mount, DaemonError> {
    let group_bytes = state.memory.account(MemoryKind::Groups).limit();
    let service = FileService::new(state.volume.clone(), &config.socket, group_bytes, instance, io_stats)
        .with_iorm(state.iorm.clone());
    let is_root = Uid::effective().is_root();
    let options = MountOptions {
        name: config.name.clone(),
        allow_other: is_root,
        use_ring: true,
        keep_awake_program: Some("/proc/self/exe".into()),
    };
    Ok(Mount::new(service, &config.mount, &options)?)
}

/// Checks that the mount point is a directory. The stale mount of a crashed daemon is valid too; the daemon replaces
/// the mount after locking the disks.
fn check_mount_point(config: &Config) -> Result<(), DaemonError> {
    let path = config.mount.display();
    if fuse::is_stale(&config.mount) {
        return Ok(());
    }
    match std::fs::metadata(&config.mount) {
        Ok(metadata) if metadata.is_dir() => Ok(()),
        Ok(_) => Err(DaemonError::MountPoint(format!("the mount point {path} is not a directory"))),
        Err(error) => Err(DaemonError::MountPoint(format!(
            "could not open the mount point {path}: {error}; create the directory"
        ))),
    }
}

fn check_socket(socket: &Path) -> Result<(), DaemonError> {
    server::check_unused(socket)
        .map_err(|error| DaemonError::Configuration(format!("socket {}: {error}", socket.display())))
}

/// Refuses a socket that is in use before the start forms or recovers a group. If another daemon has locked the disks, their locks
/// say more about the cause.
fn check_socket_before_disks(config: &Config) -> Result<(), DaemonError> {
    check_socket(&config.socket).or_else(|error| match forms_new_group(&overlays(&config.disk_group.disks)) {
        Ok(_) => Err(error),
        Err(_) => Ok(()),
    })
}

/// Warns about files in the mount point's directory, which the mount hides.
fn warn_about_hidden_files(config: &Config) {
    if !is_empty(&config.mount) {
        log::warn!(
            "the mount point {} is not empty; the mount hides its files while the cell runs",
            config.mount.display()
        );
    }
}

fn is_empty(folder: &Path) -> bool {
    std::fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_none())
}

/// Removes all permissions of the mount point's directory if the directory is empty, so that lookups and creations by
/// PostgreSQL fail with EACCES while nothing is mounted. With permissions, a lookup would return ENOENT, which PostgreSQL
/// takes for a file that was removed. A cell of an ordinary user needs the permissions: fusermount3 enters the directory.
fn restrict_mount_point(mount: &Path) {
    let mode = std::fs::metadata(mount).map_or(0, |metadata| metadata.permissions().mode() & 0o7777);
    if mode == 0 || !Uid::effective().is_root() || Device::mounted_at(mount).is_some() || !is_empty(mount) {
        return;
    }
    match std::fs::set_permissions(mount, Permissions::from_mode(0o0)) {
        Ok(()) => log::info!("removed the permissions ({mode:o}) of the directory below the mount {}", mount.display()),
        Err(error) => log::warn!("could not remove the permissions of {}: {error}", mount.display()),
    }
}

/// Waits for a signal or for the end of the mount. Returns true for a signal.
fn wait_for_stop(mount: &Mount, signals: &SignalFd) -> Result<bool, DaemonError> {
    loop {
        let mut events = [PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
        match poll(&mut events, PollTimeout::try_from(WATCH_INTERVAL).unwrap_or(PollTimeout::NONE)) {
            Ok(0) | Err(Errno::EINTR) => {}
            Ok(_) => return Ok(true),
            Err(error) => return Err(DaemonError::system("could not wait for signals")(error.into())),
        }
        if !mount.is_alive() {
            return Ok(false);
        }
    }
}

/// The signals that stop the daemon, blocked in all threads, and a descriptor that receives them.
#[derive(Debug)]
pub struct BlockedSignals(SignalFd);

impl BlockedSignals {
    /// Blocks the signals in this thread and in all threads that it starts. Must be called before the configuration is read,
    /// which starts threads if the cell has flash disks: a signal ends the process if one thread does not block it.
    pub fn block() -> Result<Self, DaemonError> {
        let set: SigSet = [Signal::SIGTERM, Signal::SIGINT].into_iter().collect();
        let block = || -> nix::Result<SignalFd> {
            set.thread_block()?;
            SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
        };
        block().map(Self).map_err(|error| DaemonError::system("could not block signals")(error.into()))
    }
}

/// Lowers the process's out-of-memory score; needs privileges.
fn protect_from_oom_killer() {
    if let Err(error) = std::fs::write("/proc/self/oom_score_adj", OOM_SCORE) {
        log::debug!("could not lower the out-of-memory score: {error}");
    }
}

/// Raises the limit of open files up to the hard limit, and returns the limit.
fn raise_descriptor_limit() -> u64 {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return 1024 };
    let wanted = DESCRIPTORS_WANTED.min(hard).max(soft);
    match setrlimit(Resource::RLIMIT_NOFILE, wanted, hard) {
        Ok(()) => wanted,
        Err(_) => soft,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_does_not_exist_is_a_missing_disk() {
        let path = Path::new("/dev/absent");
        let error = DaemonError::of_disk(path)(io::ErrorKind::NotFound.into());
        assert_eq!(error.exit_code(), 4);
        assert!(error.to_string().contains("cell disk /dev/absent"), "{error}");
        assert_eq!(DaemonError::of_disk(path)(io::ErrorKind::PermissionDenied.into()).exit_code(), 1);
    }

    #[test]
    fn the_default_reserve_follows_memory_and_the_smallest_disk() {
        assert_eq!(default_reserve(8 * GIB, &[256 * GIB]), 4 * GIB);
        assert_eq!(default_reserve(8 * GIB, &[256 * GIB, 512 * GIB]), 2 * GIB);
        assert_eq!(default_reserve(64 * GIB, &[256 * GIB]), 4 * GIB);
        assert_eq!(default_reserve(8 * GIB, &[16 * GIB]), GIB);
        assert_eq!(default_reserve(8 * GIB, &[4 * GIB]), GIB / 2);
        assert_eq!(default_reserve(GIB, &[256 * GIB]), GIB);
    }
}
