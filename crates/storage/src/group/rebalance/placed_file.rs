//! A file of a stripe: its parts on the containers that store its regions.
//!
//! Invariants:
//! - The length of the file is the largest length of its parts.
//! - A write, a change of the length, an allocation and a punch also reach the new place of regions that are being moved.
//! - A part is closed when the file is removed from its container, or at the next sync if it has unsynced changes.

use super::opened_parts::{OpenedParts, Part, Unsynced};
use super::placement::{FileKey, FilePlacement, Phase, Placement, State, file_number};
use super::runs::{bytes_of, regions_of};
use crate::disk::{Check, Condition, DiskFile, Examined, no_wait, read_range};
use parking_lot::RwLockReadGuard;
use std::io;
use std::ops::Range;
use std::sync::Arc;

#[derive(Debug)]
pub struct PlacedFile {
    placement: Arc<Placement>,
    file: Option<Arc<FilePlacement>>,
    parts: Arc<OpenedParts>,
}

/// A piece of a byte range that is stored on one container.
type Piece = (Range<u64>, u16);

impl PlacedFile {
    pub fn new(placement: Arc<Placement>, key: FileKey) -> Self {
        let (file, parts) = (placement.file(key), Arc::default());
        file.add_opened(&parts);
        Self { placement, file: Some(file), parts }
    }

    fn file(&self) -> &FilePlacement {
        self.file.as_ref().expect("only a dropped file has no placement")
    }

    fn key(&self) -> FileKey {
        self.file().key
    }

    /// Returns whether the file exists, after creating it if `create`.
    pub fn open(&self, create: bool) -> io::Result<bool> {
        if create {
            self.file().state.write().is_removed = false;
        }
        let state = self.state()?;
        for container in state.runs.containers() {
            if self.part(&state, container, false)?.is_some() {
                return Ok(true);
            }
        }
        Ok(create && self.part(&state, state.runs.tail(), true)?.is_some())
    }

    /// Locks the placement against moves. A thread that must not wait gets an error while a piece is copied.
    fn state(&self) -> io::Result<RwLockReadGuard<'_, State>> {
        match no_wait::is_on() {
            true => self.file().state.try_read().ok_or_else(no_wait::would_wait),
            false => Ok(self.file().state.read()),
        }
    }

    /// Returns the part on a container; None if it does not exist and `create` is false.
    fn part(&self, state: &State, container: u16, create: bool) -> io::Result<Option<Arc<dyn DiskFile>>> {
        let mut parts = self.parts.0.lock();
        let removed = state.removals.get(&container).copied().unwrap_or(0);
        if let Some(at) = parts.iter().position(|part| part.container == container) {
            if parts[at].opened >= removed {
                return Ok(Some(parts[at].file.clone()));
            }
            parts.swap_remove(at);
        }
        let FileKey { ino, stripe, stream } = self.key();
        let (disk, number) = (self.placement.container(container), file_number(ino, stripe, container));
        let mut has_new_name = false;
        let mut opened = disk.open(number, stream, false)?;
        if opened.is_none() && create {
            // A late write must not create a removed file again.
            if state.is_removed {
                return Err(io::Error::from_raw_os_error(libc::ENOENT));
            }
            (opened, has_new_name) = (disk.open(number, stream, true)?, true);
        }
        let Some(file) = opened else { return Ok(None) };
        parts.push(Part { container, file: file.clone(), opened: state.epoch, is_unsynced: false, has_new_name });
        Ok(Some(file))
    }

    fn note_unsynced(&self, container: u16) {
        let mut parts = self.parts.0.lock();
        parts.iter_mut().filter(|part| part.container == container).for_each(|part| part.is_unsynced = true);
    }

    /// Changes a part, which is created if it does not exist.
    fn change_part(
        &self,
        state: &State,
        container: u16,
        work: impl FnOnce(&dyn DiskFile) -> io::Result<()>,
    ) -> io::Result<()> {
        let part = self.part(state, container, true)?.expect("a disk creates a missing file");
        // After an error, too: a prefix may have arrived.
        let changed = work(&*part);
        self.note_unsynced(container);
        changed
    }

    /// Changes a byte range where it is stored, and where it is being moved to.
    fn change(&self, range: Range<u64>, work: impl Fn(&dyn DiskFile, Range<u64>) -> io::Result<()>) -> io::Result<()> {
        let state = self.file().state.read();
        if let Some(container) = state.runs.single().filter(|_| state.moving.is_empty()) {
            return self.change_part(&state, container, |part| work(part, range));
        }
        for (piece, container) in state.runs.pieces(range.clone()) {
            self.change_part(&state, container, |part| work(part, piece.clone()))?;
        }
        self.change_moving(&state, |regions| overlap(regions, &range), work)
    }

    /// Changes the new places of regions that are being moved, where `affected` returns a range. A failure ends the move,
    /// or, if the move may be durable already, is returned.
    fn change_moving(
        &self,
        state: &State,
        affected: impl Fn(&Range<u32>) -> Option<Range<u64>>,
        work: impl Fn(&dyn DiskFile, Range<u64>) -> io::Result<()>,
    ) -> io::Result<()> {
        for moving in &state.moving {
            let Some(range) = affected(&moving.regions) else { continue };
            // Held during the change: the phase must not become Committing without it.
            let mut phase = moving.phase.lock();
            if *phase == Phase::Failed {
                continue;
            }
            let changed = self.change_part(state, moving.target, |part| work(part, range));
            match (*phase, changed) {
                (Phase::Committing, changed) => changed?,
                (_, Err(error)) => {
                    let path = self.placement.container(moving.target).path().display();
                    log::warn!("could not write to cell disk {path}: {error}; a move to the disk ends");
                    *phase = Phase::Failed;
                }
                (_, Ok(())) => {}
            }
        }
        Ok(())
    }

    fn length(&self, state: &State) -> io::Result<u64> {
        let mut length = 0;
        for container in state.runs.containers() {
            if let Some(part) = self.part(state, container, false)? {
                length = part.len()?.max(length);
            }
        }
        Ok(length)
    }

    /// Reads each piece from its part, with zeros where a part is shorter than the file.
    fn read(
        &self,
        buffer: &mut [u8],
        offset: u64,
        read: impl Fn(&dyn DiskFile, &mut [u8], u64) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let state = self.state()?;
        if let Some(container) = state.runs.single() {
            return self.part(&state, container, false)?.map_or(Ok(0), |part| read(&*part, buffer, offset));
        }
        let (range, mut is_short) = (offset..offset + buffer.len() as u64, false);
        for (piece, container) in state.runs.pieces(range) {
            let target = &mut buffer[(piece.start - offset) as usize..(piece.end - offset) as usize];
            let part = self.part(&state, container, false)?;
            let count = part.map_or(Ok(0), |part| read(&*part, target, piece.start))?;
            is_short |= count < target.len();
            target[count..].fill(0);
        }
        match is_short {
            true => Ok(self.length(&state)?.saturating_sub(offset).min(buffer.len() as u64) as usize),
            false => Ok(buffer.len()),
        }
    }

    /// Returns whether an error says that all disks of a copy set have left the group, after its files were moved.
    fn has_left(&self, container: u16, error: &io::Error) -> bool {
        self.placement.container(container).has_copies() && error.raw_os_error() == Some(libc::ENODEV)
    }

    /// Returns the part that stores a byte range whose copies are compared as a whole; None if it does not exist.
    fn part_with(&self, state: &State, range: &Range<u64>) -> io::Result<Option<Arc<dyn DiskFile>>> {
        match state.runs.container_of(&regions_of(range)) {
            Some(container) => self.part(state, container, false),
            None => {
                let (start, end, ino) = (range.start, range.end, self.key().ino);
                let message = format!("bytes {start} to {end} of a file of inode {ino} are on several disks");
                Err(io::Error::new(io::ErrorKind::InvalidInput, message))
            }
        }
    }

    /// Returns the parts that store a byte range, without those that do not exist.
    fn existing(&self, state: &State, range: Range<u64>) -> io::Result<Vec<(Piece, Arc<dyn DiskFile>)>> {
        let mut found = Vec::new();
        for (piece, container) in state.runs.pieces(range) {
            if let Some(part) = self.part(state, container, false)? {
                found.push(((piece, container), part));
            }
        }
        Ok(found)
    }
}

impl DiskFile for PlacedFile {
    fn len(&self) -> io::Result<u64> {
        let state = self.state()?;
        self.length(&state)
    }

    fn lengths(&self) -> io::Result<(u64, u64)> {
        let state = self.state()?;
        let (mut shortest, mut longest) = (0, 0);
        for container in state.runs.containers() {
            let Some(part) = self.part(&state, container, false)? else { continue };
            let (low, high) = part.lengths()?;
            // The part with the file's length decides whether its copies are equal.
            if high >= longest {
                (shortest, longest) = (low, high);
            }
        }
        Ok((shortest, longest))
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read(buffer, offset, |part, buffer, offset| part.read_at(buffer, offset))
    }

    fn read_direct(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read(buffer, offset, |part, buffer, offset| part.read_direct(buffer, offset))
    }

    fn read_medium(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.read(buffer, offset, |part, buffer, offset| part.read_medium(buffer, offset))
    }

    fn prefetch(&self, ranges: &[Range<u64>]) {
        let Some(state) = self.file().state.try_read() else { return };
        for container in state.runs.containers() {
            let pieces = ranges.iter().flat_map(|range| state.runs.pieces(range.clone()));
            let here: Vec<Range<u64>> = pieces.filter(|(_, on)| *on == container).map(|(piece, _)| piece).collect();
            if !here.is_empty()
                && let Ok(Some(part)) = self.part(&state, container, false)
            {
                part.prefetch(&here);
            }
        }
    }

    fn write_at(&self, data: &[u8], offset: u64) -> io::Result<()> {
        self.change(offset..offset + data.len() as u64, |part, piece| {
            part.write_at(&data[(piece.start - offset) as usize..(piece.end - offset) as usize], piece.start)
        })
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        let state = self.file().state.read();
        let tail = state.runs.tail();
        for container in state.runs.containers() {
            let Some(part) = self.part(&state, container, container == tail)? else { continue };
            if container == tail || part.lengths()?.1 > length {
                self.change_part(&state, container, |part| part.set_len(length))?;
            }
        }
        self.change_moving(
            &state,
            |regions| Some(bytes_of(regions)),
            |part, range| {
                // The new place has the length that the file has within the moved regions.
                let (now, wanted) = (part.len()?, length.min(range.end));
                match now > length || now < wanted && length > range.start {
                    true => part.set_len(if now > length { length } else { wanted }),
                    false => Ok(()),
                }
            },
        )
    }

    fn allocate(&self, offset: u64, length: u64, keep_size: bool) -> io::Result<()> {
        self.change(offset..offset + length, |part, piece| {
            part.allocate(piece.start, piece.end - piece.start, keep_size)
        })
    }

    fn punch(&self, offset: u64, length: u64) -> io::Result<()> {
        self.change(offset..offset + length, |part, piece| part.punch(piece.start, piece.end - piece.start))
    }

    fn is_hole(&self, offset: u64, length: u64) -> io::Result<bool> {
        let state = self.state()?;
        for ((piece, _), part) in self.existing(&state, offset..offset + length)? {
            if !part.is_hole(piece.start, piece.end - piece.start)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn examine(&self, range: &Range<u64>, check: &Check<'_>) -> io::Result<Examined> {
        let state = self.file().state.read();
        match self.part_with(&state, range)? {
            Some(part) => part.examine(range, check),
            None => Ok(Examined { is_sound: true, read_bytes: 0 }),
        }
    }

    fn repair(&self, range: &Range<u64>, check: &Check<'_>) -> io::Result<Condition> {
        {
            let state = self.file().state.read();
            if !is_moving(&state, range) {
                return self.part_with(&state, range)?.map_or(Ok(Condition::Sound), |part| part.repair(range, check));
            }
        }
        // The new place may have the damaged bytes. The lock excludes writes, which reach both places.
        let state = self.file().state.write();
        let Some(part) = self.part_with(&state, range)? else { return Ok(Condition::Sound) };
        let condition = part.repair(range, check)?;
        if condition == Condition::Repaired {
            let bytes = read_range(&*part, &(range.start..range.end.min(part.len()?)))?;
            self.change_moving(
                &state,
                |regions| overlap(regions, range),
                |new, piece| {
                    let (from, to) = ((piece.start - range.start) as usize, (piece.end - range.start) as usize);
                    new.write_at(&bytes[from.min(bytes.len())..to.min(bytes.len())], piece.start)
                },
            )?;
        }
        Ok(condition)
    }

    fn sync(&self) -> io::Result<()> {
        let FileKey { ino, stripe, .. } = self.key();
        // Without the placement's lock: a copy that waits for a sync would keep readers waiting.
        let unsynced: Vec<Unsynced> = {
            let mut parts = self.parts.0.lock();
            let changed = parts.iter_mut().filter(|part| part.is_unsynced || part.has_new_name);
            changed.map(Unsynced::take).collect()
        };
        let mut result = Ok(());
        for Unsynced { container, file, opened, is_unsynced, has_new_name } in unsynced {
            let sync_name = || self.placement.container(container).sync_name(file_number(ino, stripe, container));
            let synced = if is_unsynced { file.sync() } else { Ok(()) };
            let synced = synced.and_then(|()| if has_new_name { sync_name() } else { Ok(()) });
            let Err(error) = synced else {
                if let Some(state) = self.file().state.try_read() {
                    let removed = state.removals.get(&container).copied().unwrap_or(0);
                    let is_stale = |part: &Part| part.container == container && part.opened < removed;
                    self.parts.0.lock().retain(|part| !is_stale(part) || part.is_unsynced);
                }
                continue;
            };
            let removed = self.file().state.read().removals.get(&container).copied().unwrap_or(0);
            if opened >= removed {
                let mut parts = self.parts.0.lock();
                if let Some(part) = parts.iter_mut().find(|part| part.container == container) {
                    part.is_unsynced |= is_unsynced;
                    part.has_new_name |= has_new_name;
                }
                result = Err(error);
            } else if is_unsynced && !self.has_left(container, &error) {
                // The part was moved: the copy may lack bytes that the disk lost before they were copied.
                result = Err(error);
            }
        }
        result
    }
}

/// Returns the part of a byte range that is in regions.
fn overlap(regions: &Range<u32>, range: &Range<u64>) -> Option<Range<u64>> {
    let bytes = bytes_of(regions);
    let piece = bytes.start.max(range.start)..bytes.end.min(range.end);
    (!piece.is_empty()).then_some(piece)
}

fn is_moving(state: &State, range: &Range<u64>) -> bool {
    state.moving.iter().any(|moving| overlap(&moving.regions, range).is_some())
}

impl Drop for PlacedFile {
    fn drop(&mut self) {
        if let Some(file) = self.file.take() {
            self.placement.release(file);
        }
    }
}
