//! Opening the flash log: what an earlier start left, and the preparation of the ring.

use super::format::{self, CellNote, DiskNote, Mark};
use super::scan::{Record, Scanned, scan};
use super::state::State;
use super::{Counters, FlashLog, FlashLogOptions, Simulation, notes};
use crate::disk::{Disk, DiskFile, WatchedDisk};
use crate::error::{Context, Error, ErrorKind, Result};
use crate::flash::{self, CellDisks, FLASH_LOG_NOTE, Generation};
use parking_lot::{Condvar, Mutex};
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// The file of the ring on the flash disk.
const RING: &str = "flash_log_ring";
/// The generation of no flash log, and on a flash disk of one that no cell needs.
pub(super) const NO_GENERATION: Generation = Generation([0; Generation::BYTES]);
/// Bytes that are written at once when the ring is created.
const CHUNK: usize = 1 << 20;

const REPAIR: &str = "repair the cell disk, or start with --force-degraded";

/// Redo that was acknowledged and that a start with `--force-degraded` does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lost {
    /// The flash log is missing: which redo it had is not known.
    Unknown,
    /// These records are damaged: inode and writes, None if not even these are known.
    Records(Vec<Option<(u64, Vec<Range<u64>>)>>),
}

/// The flash log of a start, before the files have what an earlier start left.
#[derive(Debug)]
pub struct Opening {
    /// To be applied in this order.
    pub records: Vec<Record>,
    pub lost: Option<Lost>,
    /// The cell disks do not say which records are retired: some may be older than what the files have.
    pub may_be_old: bool,
    note: Option<CellNote>,
    ring: Option<(Arc<dyn Disk>, Arc<dyn DiskFile>)>,
}

fn could_not(verb: &str, disk: &dyn Disk) -> String {
    format!("could not {verb} the flash log on flash disk {}", disk.path().display())
}

impl Opening {
    /// Reads what an earlier start left, and prepares the ring. Fails if the cell disks may lack redo that was acknowledged and
    /// that cannot be read, unless `force`.
    pub fn new(options: Option<&FlashLogOptions>, cell_disks: &dyn CellDisks, force: bool) -> Result<Self> {
        let (note, problem) = notes::newest(cell_disks);
        let needed = note.filter(|note| note.is_needed);
        if let Some(error) = problem {
            let has_log = needed.is_some() || options.is_some_and(|options| options.size > 0);
            if has_log && !force {
                let message = format!("{error}; {REPAIR}, which may lose transactions that PostgreSQL has committed");
                return Err(Error::new(error.kind(), message));
            }
            log::error!("{error}; if the cell had a flash log, redo may be missing");
        }
        let mut opening = Self { records: Vec::new(), lost: None, may_be_old: false, note, ring: None };
        let disks = options.map(watched).unwrap_or_default();
        if let Some(note) = needed {
            let retired = notes::retired(cell_disks, &note);
            opening.may_be_old = retired.is_none();
            if opening.may_be_old && !force {
                let message = format!(
                    "no cell disk says which redo of the flash log is retired; {REPAIR}, which may replace newer redo by older"
                );
                return Err(Error::new(ErrorKind::Corrupt, message));
            }
            opening.take(read(&disks, &note, retired.unwrap_or(0)), force)?;
        }
        if let Some(options) = options.filter(|options| options.size > 0) {
            match opening.prepare(options, &disks) {
                Ok(ring) => opening.ring = Some(ring),
                Err(error) => log::error!("{error}; the cell works without flash log"),
            }
        }
        Ok(opening)
    }

    fn take(&mut self, scanned: Result<Scanned>, force: bool) -> Result<()> {
        let advice = "connect the flash disk and start the cell again; --force-degraded starts without this redo, which loses \
                      transactions that PostgreSQL has committed";
        match scanned {
            Ok(Scanned { records, damaged }) => {
                if !damaged.is_empty() && !force {
                    let numbers: Vec<String> = damaged.iter().take(8).map(|(number, _)| number.to_string()).collect();
                    let message = format!(
                        "the flash log is damaged: {} records with redo that the cell disks may lack cannot be read (first numbers: \
                         {}); {advice}",
                        damaged.len(),
                        numbers.join(", ")
                    );
                    return Err(Error::new(ErrorKind::Corrupt, message));
                }
                if !damaged.is_empty() {
                    let known = |header: format::RecordHeader| (header.ino, header.pieces);
                    self.lost = Some(Lost::Records(damaged.into_iter().map(|(_, header)| header.map(known)).collect()));
                }
                self.records = records;
                Ok(())
            }
            Err(error) if force => {
                log::error!("{error}; started without the flash log because of --force-degraded");
                self.lost = Some(Lost::Unknown);
                Ok(())
            }
            Err(error) => {
                let message = format!(
                    "the cell disks may lack redo that is only in the flash log, which is missing: {error}; {advice}"
                );
                Err(Error::new(error.kind(), message))
            }
        }
    }

    fn is_needed(&self) -> bool {
        self.note.is_some_and(|note| note.is_needed)
    }

    /// Returns whether the ring of a flash disk is of this cell, or of none.
    fn may_replace(&self, noted: &DiskNote) -> bool {
        noted.generation == NO_GENERATION || self.note.is_some_and(|note| note.generation == noted.generation)
    }

    /// Returns the flash disk of the log and the file of the ring.
    fn prepare(
        &self,
        options: &FlashLogOptions,
        disks: &[Arc<dyn Disk>],
    ) -> Result<(Arc<dyn Disk>, Arc<dyn DiskFile>)> {
        let [disk, ..] = disks else { return Err(Error::new(ErrorKind::Invalid, "no flash disk could be opened")) };
        let noted = locked_note(disk.as_ref())?;
        let path = disk.path().display();
        if noted.is_none() && !flash::is_usable(disk.as_ref()).context(|| could_not("read", disk.as_ref()))? {
            let message =
                format!("{path} is neither empty nor a flash disk; name an empty directory or a blank device");
            return Err(Error::new(ErrorKind::ForeignDisk, message));
        }
        let is_empty = disk.is_blank().context(|| could_not("read", disk.as_ref()))?;
        let had_log = self.note.is_some_and(|note| note.generation != NO_GENERATION);
        if had_log && is_empty && flash::is_plain_directory(disk.path()) {
            let message = format!(
                "flash disk {path} is an empty directory, but the cell has a flash log; mount the device of the flash disk and \
                 restart the cell; to use the empty directory, first start the cell once without flash_log_size"
            );
            return Err(Error::new(ErrorKind::ForeignDisk, message));
        }
        if let Some(noted) = noted.filter(|noted| !self.may_replace(noted)) {
            let which = noted.generation.0.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
            let message = format!(
                "flash disk {path} has flash log {which}, which is not the last one of this cell; if no other cell needs it, empty \
                 the directory or format the device"
            );
            return Err(Error::new(ErrorKind::ForeignDisk, message));
        }
        let existing = disk.open_existing(RING).context(|| could_not("open", disk.as_ref()))?;
        let length =
            existing.as_ref().map_or(Ok(0), |file| file.len()).context(|| could_not("measure", disk.as_ref()))?;
        // A ring that the cell disks need is replaced after the files have its redo.
        let is_kept = length == options.size && noted.is_some_and(|note| note.ring_bytes == options.size);
        if let Some(file) = existing.filter(|_| is_kept || self.is_needed()) {
            return Ok((disk.clone(), file));
        }
        let file = create(disk.as_ref(), options.size).context(|| {
            let free = disk.space().map_or(0, |space| space.available >> 20);
            format!("{} of {} MiB ({free} MiB are free)", could_not("create", disk.as_ref()), options.size >> 20)
        })?;
        Ok((disk.clone(), file))
    }

    /// Begins a log, after the files have what the earlier one had, durably. Returns None if there is none.
    pub fn start(
        self,
        options: Option<FlashLogOptions>,
        cell_disks: &Arc<dyn CellDisks>,
        applied: (u64, u64),
    ) -> Result<Option<Arc<FlashLog>>> {
        let generation = Generation::random().context(|| "could not read /dev/urandom".into())?;
        let mut note = self.note;
        if let Some(needed) = note.as_mut().filter(|note| note.is_needed) {
            // Before the flash disk gets another generation: a start after an interrupted one must not miss this one.
            *needed = CellNote::after(Some(needed), needed.generation);
            notes::write(cell_disks.as_ref(), needed)?;
        }
        let is_wanted = options.as_ref().is_some_and(|options| options.size > 0);
        let (Some((disk, ring)), Some(options)) = (self.ring, options.clone().filter(|_| is_wanted)) else {
            if !is_wanted && let Some(former) = note.filter(|note| note.generation != NO_GENERATION) {
                remove_rings(options.as_ref(), former.generation);
                notes::write(cell_disks.as_ref(), &CellNote::after(Some(&former), NO_GENERATION))?;
            }
            return Ok(None);
        };
        let ring_bytes = options.size;
        let written = |result: io::Result<_>| match result.context(|| could_not("write", disk.as_ref())) {
            Ok(written) => Some(written),
            Err(error) => {
                log::error!("{error}; the cell works without flash log");
                None
            }
        };
        let Some(()) = written(empty_ring(disk.as_ref(), ring, ring_bytes)) else { return Ok(None) };
        // Whenever this is interrupted, the flash disk has no generation, or that of the cell disks.
        let note = CellNote::after(note.as_ref(), generation);
        notes::write(cell_disks.as_ref(), &note)?;
        let begun = disk.write_note(FLASH_LOG_NOTE, &DiskNote { generation, ring_bytes }.encode());
        let Some(()) = written(begun) else { return Ok(None) };
        // Without a time limit in another thread: the log has its own.
        let ring = options.disks[0].open_named(RING).context(|| could_not("open", disk.as_ref()))?;
        notes::mark(cell_disks.as_ref(), &Mark { generation, retired: 0 })?;
        let note = CellNote { is_needed: true, ..CellNote::after(Some(&note), generation) };
        notes::write(cell_disks.as_ref(), &note)?;
        let random = options.simulated.unwrap_or(0) | 1;
        let log = Arc::new(FlashLog {
            disk,
            ring,
            ring_bytes,
            cell_disks: cell_disks.clone(),
            generation,
            state: Mutex::new(State::new(ring_bytes)),
            progress: Condvar::new(),
            work: Condvar::new(),
            notes: Mutex::new(note),
            counters: Counters::default(),
            pool: Arc::default(),
            writer: Mutex::new(None),
            simulation: Mutex::new(Simulation { random, ..Simulation::default() }),
            applied,
            options,
        });
        if log.options.simulated.is_none() {
            log.start_writer().context(|| "could not start the thread of the flash log".into())?;
        }
        log::info!("flash log of {} MiB on {}", ring_bytes >> 20, log.disk.path().display());
        Ok(Some(log))
    }
}

/// Returns the flash disks, with a time limit for each operation if there is one.
fn watched(options: &FlashLogOptions) -> Vec<Arc<dyn Disk>> {
    let watched = |disk: &Arc<dyn Disk>| -> Arc<dyn Disk> {
        match options.timeout {
            Some(timeout) => Arc::new(WatchedDisk::new(disk.clone(), Arc::default(), timeout)),
            None => disk.clone(),
        }
    };
    options.disks.iter().map(watched).collect()
}

/// Locks a flash disk. Returns its note about a flash log.
fn locked_note(disk: &dyn Disk) -> Result<Option<DiskNote>> {
    if !disk.lock().context(|| could_not("lock", disk))? {
        let path = disk.path().display();
        let message = format!("flash disk {path} is in use by another cell daemon; stop that daemon first");
        return Err(Error::new(ErrorKind::Locked, message));
    }
    let note = disk.read_note(FLASH_LOG_NOTE).context(|| could_not("read", disk))?;
    let decode = |bytes: Vec<u8>| {
        DiskNote::decode(&bytes).map_err(|error| {
            let message = format!(
                "{}: {error}; if no cell needs it, empty the directory or format the device",
                could_not("read", disk)
            );
            Error::new(ErrorKind::Corrupt, message)
        })
    };
    note.filter(|bytes| !bytes.is_empty()).map(decode).transpose()
}

/// Reads the records of the log that the cell disks name.
fn read(disks: &[Arc<dyn Disk>], note: &CellNote, retired: u64) -> Result<Scanned> {
    if disks.is_empty() {
        return Err(Error::new(ErrorKind::ForeignDisk, "no flash disk is configured, or one could not be opened"));
    }
    let mut problem = Error::new(ErrorKind::ForeignDisk, "no flash disk has the flash log of this cell");
    for disk in disks {
        match locked_note(disk.as_ref()) {
            Ok(Some(found)) if found.generation == note.generation => {
                let describe = || could_not("read", disk.as_ref());
                let missing = || Error::new(ErrorKind::Corrupt, format!("{}: the ring is missing", describe()));
                let ring = disk.open_existing(RING).context(describe)?.ok_or_else(missing)?;
                return scan(ring.as_ref(), found.ring_bytes, note.generation, retired).context(describe);
            }
            Ok(_) => {}
            Err(error) => problem = error,
        }
    }
    Err(problem)
}

/// Creates the ring, with all its space written, so that no later write changes metadata of a filesystem.
fn create(disk: &dyn Disk, bytes: u64) -> io::Result<Arc<dyn DiskFile>> {
    let note = DiskNote { generation: NO_GENERATION, ring_bytes: 0 };
    disk.write_note(FLASH_LOG_NOTE, &note.encode())?;
    disk.remove_named(RING)?;
    let ring = disk.open_named(RING)?;
    ring.allocate(0, bytes, false)?;
    let zeros = format::memory(CHUNK.min(bytes as usize));
    for at in (0..bytes).step_by(CHUNK) {
        ring.write_at(&zeros[..(bytes - at).min(CHUNK as u64) as usize], at)?;
    }
    ring.sync()?;
    Ok(ring)
}

/// Makes the ring one that no cell needs.
fn empty_ring(disk: &dyn Disk, ring: Arc<dyn DiskFile>, ring_bytes: u64) -> io::Result<()> {
    if ring.len()? != ring_bytes {
        create(disk, ring_bytes)?;
    }
    disk.write_note(FLASH_LOG_NOTE, &DiskNote { generation: NO_GENERATION, ring_bytes }.encode())
}

/// Removes the ring of the last log of the cell. The rings of other cells stay.
fn remove_rings(options: Option<&FlashLogOptions>, last: Generation) {
    for disk in options.map(watched).unwrap_or_default() {
        let removed = match locked_note(disk.as_ref()) {
            Ok(Some(note)) if note.generation == last || note.generation == NO_GENERATION => disk
                .remove_named(RING)
                .and_then(|()| disk.write_note(FLASH_LOG_NOTE, &[]))
                .context(|| could_not("remove", disk.as_ref())),
            found => found.map(drop),
        };
        if let Err(error) = removed {
            log::warn!("{error}");
        }
    }
}
