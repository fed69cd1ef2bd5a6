//! The flash cache mode, as Oracle's attribute `flashCacheMode`: whether small writes go to the cell disks at once, or to the
//! write-back log on the flash disks first.
//!
//! The mode of the options holds until a command sets another one. The mode of a command is durable, and holds until the options
//! change: so the last change counts, wherever it was made.

use super::Volume;
use crate::disk::Disk;
use crate::error::{Error, ErrorKind, Result};
use crate::flash::FlashOptions;
use crate::group::Group;
use crate::request::{Origin, within};
use crate::write_back::WriteBackStats;
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Name of the value in the metadata stores: [`Stored`].
const NAME: &str = "flash_cache_mode";

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum FlashCacheMode {
    #[default]
    WriteThrough,
    WriteBack,
}

impl FlashCacheMode {
    /// Returns Oracle's name of the mode.
    pub fn name(self) -> &'static str {
        match self {
            Self::WriteThrough => "WriteThrough",
            Self::WriteBack => "WriteBack",
        }
    }

    /// Parses the name of a mode, in upper or lower case.
    pub fn parse(name: &str) -> Result<Self> {
        let found =
            [Self::WriteThrough, Self::WriteBack].into_iter().find(|mode| mode.name().eq_ignore_ascii_case(name));
        found.ok_or_else(|| {
            let message = format!("\"{name}\" is not a flash cache mode; write \"writethrough\" or \"writeback\"");
            Error::new(ErrorKind::Invalid, message)
        })
    }

    fn from_bit(bit: u64) -> Self {
        if bit & 1 == 1 { Self::WriteBack } else { Self::WriteThrough }
    }
}

/// The mode that a command set, and the mode of the options at that time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stored {
    mode: FlashCacheMode,
    of_options: FlashCacheMode,
}

impl Stored {
    fn encode(self) -> u64 {
        self.mode as u64 | (self.of_options as u64) << 1
    }

    fn decode(value: u64) -> Self {
        Self { mode: FlashCacheMode::from_bit(value), of_options: FlashCacheMode::from_bit(value >> 1) }
    }
}

#[derive(Debug)]
pub(super) struct ModeState {
    of_options: FlashCacheMode,
    writes_back: AtomicBool,
    /// The metadata have a mode of a command that does not hold any more.
    is_outdated: bool,
    /// Held during a command that begins or ends the log, and during a clean stop. Whether the volume was closed.
    commands: Mutex<bool>,
    /// Held while the log begins or ends, and while a disk that joins the group gets its note.
    pub(super) changing: Mutex<()>,
}

impl ModeState {
    /// Returns the mode of a start.
    pub(super) fn new(values: &BTreeMap<String, u64>, of_options: FlashCacheMode) -> Self {
        let stored = values.get(NAME).map(|value| Stored::decode(*value));
        let holds = stored.filter(|stored| stored.of_options == of_options);
        let mode = holds.map_or(of_options, |stored| stored.mode);
        let writes_back = AtomicBool::new(mode == FlashCacheMode::WriteBack);
        let is_outdated = stored.is_some() && holds.is_none();
        Self { of_options, writes_back, is_outdated, commands: Mutex::default(), changing: Mutex::default() }
    }

    pub(super) fn get(&self) -> FlashCacheMode {
        FlashCacheMode::from_bit(self.writes_back.load(Ordering::Acquire).into())
    }
}

impl Volume {
    /// Locks out other commands, and a clean stop. Fails after a clean stop, which has ended the log.
    pub(super) fn begin_mode_command(&self) -> Result<MutexGuard<'_, bool>> {
        let is_closed = self.flash_cache_mode.commands.lock();
        match *is_closed {
            true => Err(Error::new(ErrorKind::Invalid, "the cell is being stopped")),
            false => Ok(is_closed),
        }
    }

    /// Locks out commands until the end of a clean stop. Later ones fail.
    pub(super) fn end_mode_commands(&self) -> MutexGuard<'_, bool> {
        let mut is_closed = self.flash_cache_mode.commands.lock();
        *is_closed = true;
        is_closed
    }

    /// Returns the mode that the options or a command selected. [`WriteBackStats::is_on`] says whether write-back is in use.
    pub fn flash_cache_mode(&self) -> FlashCacheMode {
        self.flash_cache_mode.get()
    }

    /// Removes the mode of a command from the metadata if the options have changed since.
    pub(super) fn forget_outdated_mode(&self) -> Result<()> {
        match self.flash_cache_mode.is_outdated {
            true => self.commit_group_values([(NAME.to_owned(), None)]),
            false => Ok(()),
        }
    }

    /// Changes the mode while files are in use. On return from a change to WriteThrough, the cell disks have everything. Durable on
    /// return.
    pub fn set_flash_cache_mode(&self, mode: FlashCacheMode) -> Result<()> {
        let _one_at_a_time = self.begin_mode_command()?;
        match mode {
            FlashCacheMode::WriteBack => self.begin_write_back()?,
            FlashCacheMode::WriteThrough => self.end_write_back()?,
        }
        let of_options = self.flash_cache_mode.of_options;
        let stored = (mode != of_options).then_some(Stored { mode, of_options }.encode());
        self.commit_group_values([(NAME.to_owned(), stored)])?;
        self.flash_cache_mode.writes_back.store(mode == FlashCacheMode::WriteBack, Ordering::Release);
        log::info!("the flash cache mode is {}", mode.name());
        Ok(())
    }

    /// Writes all dirty pages to the cell disks, and everything through until [`Self::cancel_flash_flush`] or the next start.
    pub fn flush_flash_cache(&self) -> Result<()> {
        let Some(write_back) = self.group.write_back() else { return Ok(()) };
        log::info!("the flush of the flash cache begins");
        within(Origin::CELL, || write_back.flush())?;
        log::info!("the flush of the flash cache is complete");
        Ok(())
    }

    /// Lets pages become dirty again after [`Self::flush_flash_cache`], which ends with an error if it runs.
    pub fn cancel_flash_flush(&self) {
        if let Some(write_back) = self.group.write_back() {
            write_back.cancel_flush();
            log::info!("the flush of the flash cache was cancelled");
        }
    }

    /// Returns the counters of write-back; None if the options do not permit it. Write-back whose flash disks cannot be used is
    /// off.
    pub fn write_back_stats(&self) -> Option<WriteBackStats> {
        let unusable = || self.options.write_back.as_ref().map(|_| WriteBackStats::default());
        self.group.write_back().map(|write_back| write_back.stats()).or_else(unusable)
    }

    fn begin_write_back(&self) -> Result<()> {
        let invalid = |message: String| Err(Error::new(ErrorKind::Invalid, message));
        let Some(options) = &self.options.write_back else {
            return invalid(
                "write-back needs a flash cache on two flash disks; name them in flash_disks of cell.toml and restart the cell"
                    .into(),
            );
        };
        let flash = self.group.flash().filter(|flash| flash.is_on());
        let (Some(write_back), Some(flash)) = (self.group.write_back(), flash) else {
            return invalid(
                "the flash cache is not in use; write-back needs its flash disks: restart the cell with them".into(),
            );
        };
        let _changing = self.flash_cache_mode.changing.lock();
        if write_back.stats().log_bytes > 0 {
            write_back.cancel_flush();
            return Ok(());
        }
        let columnar = self.options.flash.as_ref().map_or(0, |flash| flash.columnar_bytes);
        let disks = flash.disks();
        let of_caches = (flash.stats().capacity_bytes + columnar) / disks.len().max(1) as u64;
        for disk in disks.iter().take(2) {
            let free = free_for_log(disk.as_ref())?.saturating_sub(of_caches);
            if free < options.size {
                return invalid(format!(
                    "flash disk {} has {} MiB besides the flash cache, but the write-back log needs {} MiB; lower \
                     flash_write_back_size or flash_cache_size and restart the cell",
                    disk.path().display(),
                    free >> 20,
                    options.size >> 20
                ));
            }
        }
        write_back.start(options, disks, &self.group.cell_disks())?;
        match write_back.stats().log_bytes {
            0 => {
                Err(Error::new(ErrorKind::Io, "could not write to the flash disks; the log of the cell has the cause"))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn end_write_back(&self) -> Result<()> {
        let Some(write_back) = self.group.write_back() else { return Ok(()) };
        // The most of it without the lock, which a disk that joins the group needs.
        within(Origin::CELL, || {
            write_back.flush().inspect_err(|_| write_back.cancel_flush())?;
            let _changing = self.flash_cache_mode.changing.lock();
            write_back.end()
        })
    }
}

/// Returns the bytes of a flash disk that are free, or used by segments and units of its caches.
fn free_for_log(disk: &dyn Disk) -> Result<u64> {
    let measured = || -> std::io::Result<u64> {
        let mut bytes = disk.space()?.available;
        for (ino, stream) in disk.backing_files()? {
            bytes += disk.measure(ino, stream)?.1;
        }
        Ok(bytes)
    };
    measured().map_err(|error| Error::io(format!("could not measure flash disk {}", disk.path().display()), error))
}

/// Returns the options of the flash cache with the space that it leaves to others: the write-back log is on the first two flash
/// disks, and each flash disk has an equal part of the cache.
pub(super) fn leaving_space(flash: &FlashOptions, log_bytes: u64) -> FlashOptions {
    let others = flash.columnar_bytes + log_bytes * flash.disks.len() as u64;
    FlashOptions { columnar_bytes: others, ..flash.clone() }
}

/// Returns the flash disks that may have the log of an earlier start.
pub(super) fn flash_disks<'a>(group: &'a Group, options: &'a super::VolumeOptions) -> &'a [Arc<dyn Disk>] {
    match (group.flash(), &options.flash) {
        (Some(flash), _) => flash.disks(),
        (None, Some(flash)) if !flash.disks.is_empty() => &flash.disks,
        _ => &options.present_flash_disks,
    }
}

#[cfg(test)]
mod tests {
    use super::FlashCacheMode::{WriteBack, WriteThrough};
    use super::*;

    #[test]
    fn the_last_change_of_command_or_options_counts() {
        let start = |stored: Option<Stored>, of_options| {
            let values = stored.map(|stored| (NAME.to_owned(), stored.encode())).into_iter().collect();
            let state = ModeState::new(&values, of_options);
            (state.get(), state.is_outdated)
        };
        for mode in [WriteThrough, WriteBack] {
            assert_eq!(start(None, mode), (mode, false));
        }
        let command = Some(Stored { mode: WriteBack, of_options: WriteThrough });
        assert_eq!(start(command, WriteThrough), (WriteBack, false));
        assert_eq!(start(command, WriteBack), (WriteBack, true));
        let command = Some(Stored { mode: WriteThrough, of_options: WriteBack });
        assert_eq!(start(command, WriteBack), (WriteThrough, false));
        assert_eq!(start(command, WriteThrough), (WriteThrough, true));
    }

    #[test]
    fn names_of_modes_are_read_in_upper_and_lower_case() {
        assert_eq!(FlashCacheMode::parse("writeback").unwrap(), WriteBack);
        assert_eq!(FlashCacheMode::parse("WriteThrough").unwrap(), WriteThrough);
        assert!(FlashCacheMode::parse("back").unwrap_err().to_string().contains("write \"writethrough\""));
    }
}
