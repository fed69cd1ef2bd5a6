//! The steps of a move of regions from one container to another. The caller commits records between the steps:
//!
//! 1. [`Placement::begin`], then a commit of the file's record: the new place is a leftover.
//! 2. [`Placement::copy`]: copies the regions and syncs the copy.
//! 3. [`Placement::prepare`] returns the record of the new place, which the caller commits. If the commit fails, the record may
//!    be durable or not, so the caller must repeat the commit until it succeeds.
//! 4. [`Placement::finish`]: reads use the new place, and the old one is freed.
//!
//! [`Placement::abort`] ends a move after step 1 or 2. The caller moves no regions of a file twice at the same time.

use super::placement::{
    FileKey, FilePlacement, Leftover, Moving, Phase, Placement, PlacementRecord, State, file_number,
};
use super::runs::{REGION, Runs, bytes_of};
use crate::disk::{DiskFile, Stream};
use parking_lot::Mutex;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of the steps in which holes are found.
const STEP: u64 = 64 << 10;

/// Regions of a file that move to another container. They are on one container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    pub key: FileKey,
    pub regions: Range<u32>,
    pub target: u16,
}

impl Placement {
    /// Begins a move. Returns whether there is something to move: then the file's record must be committed before
    /// [`Self::copy`].
    pub fn begin(&self, step: &Move) -> bool {
        self.note_guest(step.key.stripe, step.target);
        let file = self.file(step.key);
        let has_begun = {
            let mut state = file.state.write();
            let source = state.runs.container_of(&step.regions);
            let is_moving = state.moving.iter().any(|moving| intersects(&moving.regions, &step.regions));
            // Bytes of an earlier move from the target that are not freed yet.
            let is_leftover =
                |left: &Leftover| left.container == step.target && intersects(&left.regions, &step.regions);
            let can_move = source.is_some_and(|source| source != step.target)
                && !state.is_removed
                && !is_moving
                && !state.leftovers.iter().any(is_leftover);
            if can_move {
                state.leftovers.push(Leftover { regions: step.regions.clone(), container: step.target });
            }
            can_move
        };
        self.release(file);
        has_begun
    }

    /// Copies the regions and makes the copy durable. `pace` is called with the bytes of each piece that was copied, and
    /// ends the copy if it returns false. Returns whether the copy is complete.
    pub fn copy(&self, step: &Move, pace: &mut dyn FnMut(u64) -> bool) -> io::Result<bool> {
        let file = self.file(step.key);
        let source = {
            let mut state = file.state.write();
            let Some(source) = state.runs.container_of(&step.regions).filter(|_| !state.is_removed) else {
                return Ok(false);
            };
            // Another part than those of other moves would be a file whose removal was not durable before a crash.
            let is_held = state.runs.containers().contains(&step.target)
                || state.moving.iter().any(|moving| moving.target == step.target);
            let number = file_number(step.key.ino, step.key.stripe, step.target);
            match is_held {
                false => self.container(step.target).remove(number, step.key.stream)?,
                // A punch there was perhaps not durable before a crash, and the old place may be shorter than what it left.
                true => self.punch(number, step.key.stream, step.target, &step.regions)?,
            }
            let phase = Mutex::new(Phase::Copying);
            state.moving.push(Moving { regions: step.regions.clone(), target: step.target, phase });
            source
        };
        let (from, to) = (self.container(source), self.container(step.target));
        let number = |container: u16| file_number(step.key.ino, step.key.stripe, container);
        let (range, mut buffer) = (bytes_of(&step.regions), vec![0; REGION as usize]);
        let mut start = range.start;
        // One descriptor for all writes and the sync: another one might miss the error of a write.
        let mut target: Option<Arc<dyn DiskFile>> = None;
        loop {
            let copied = {
                let state = file.state.write();
                if !is_copying(&state, step) {
                    return Ok(false);
                }
                let Some(old) = from.open(number(source), step.key.stream, false)? else { break };
                let new = match &target {
                    Some(new) => new.clone(),
                    None => {
                        to.open(number(step.target), step.key.stream, true)?.expect("a disk creates a missing file")
                    }
                };
                target = Some(new.clone());
                let end = old.len()?.min(range.end);
                if start >= end {
                    if new.len()? < end {
                        new.set_len(end)?;
                    }
                    break;
                }
                let length = (end - start).min(REGION);
                let copied = copy_piece(&*old, &*new, start, &mut buffer[..length as usize])?;
                start += length;
                copied
            };
            if !pace(copied) {
                return Ok(false);
            }
        }
        if target.is_none() {
            target = to.open(number(step.target), step.key.stream, false)?;
        }
        if let Some(new) = target {
            new.sync()?;
            to.sync_name(number(step.target))?;
        }
        Ok(true)
    }

    /// Ends the time in which writes may fail to reach the new place. Returns whether the move may be committed.
    pub fn prepare(&self, step: &Move) -> bool {
        let file = self.file(step.key);
        let state = file.state.read();
        let moving = state.moving.iter().find(|moving| is_of(moving, step)).filter(|_| !state.is_removed);
        moving.is_some_and(|moving| {
            let mut phase = moving.phase.lock();
            let is_complete = *phase == Phase::Copying;
            if is_complete {
                *phase = Phase::Committing;
            }
            is_complete
        })
    }

    /// Returns the record of a file in which the moves that are being committed are done; None if the file was removed.
    pub fn record_of(&self, key: FileKey) -> Option<PlacementRecord> {
        let file = self.file(key);
        let record = {
            let state = file.state.read();
            let (runs, leftovers) = moved(&state);
            (!state.is_removed).then_some(PlacementRecord { runs, leftovers })
        };
        self.release(file);
        record
    }

    /// Ends the moves of a file that are committed, and frees what they left.
    pub fn finish(&self, key: FileKey) -> io::Result<()> {
        let file = self.file(key);
        {
            let mut state = file.state.write();
            (state.runs, state.leftovers) = moved(&state);
            state.moving.retain(|moving| *moving.phase.lock() != Phase::Committing);
        }
        self.free_leftovers(file)
    }

    /// Ends a move without effect, and frees the copy.
    pub fn abort(&self, step: &Move) -> io::Result<()> {
        let file = self.file(step.key);
        file.state.write().moving.retain(|moving| !is_of(moving, step));
        self.free_leftovers(file)
    }

    /// Frees bytes that no read may see. Those that cannot be freed remain in the record.
    pub fn free_leftovers(&self, file: Arc<FilePlacement>) -> io::Result<()> {
        let result = {
            let mut state = file.state.write();
            let mut result = Ok(());
            let is_needed = |state: &State, left: &Leftover| {
                state.moving.iter().any(|moving| moving.target == left.container && moving.regions == left.regions)
            };
            let all = std::mem::take(&mut state.leftovers);
            let (mut kept, free): (Vec<_>, Vec<_>) = all.into_iter().partition(|left| is_needed(&state, left));
            for left in free {
                // Nothing else than the leftovers is there.
                let is_last = !state.runs.containers().contains(&left.container)
                    && state.moving.iter().all(|moving| moving.target != left.container);
                if let Err(error) = self.free(&file, &mut state, &left, is_last) {
                    kept.push(left);
                    result = Err(error);
                }
            }
            state.leftovers = kept;
            result
        };
        self.release(file);
        result
    }

    fn free(&self, file: &FilePlacement, state: &mut State, left: &Leftover, is_last: bool) -> io::Result<()> {
        let key = file.key;
        let (disk, number) = (self.container(left.container), file_number(key.ino, key.stripe, left.container));
        if is_last {
            file.note_removal(state, left.container);
            return disk.remove(number, key.stream);
        }
        self.punch(number, key.stream, left.container, &left.regions)
    }

    /// Frees regions of a file on a container.
    fn punch(&self, number: u64, stream: Stream, container: u16, regions: &Range<u32>) -> io::Result<()> {
        let Some(part) = self.container(container).open(number, stream, false)? else { return Ok(()) };
        let range = bytes_of(regions);
        let end = range.end.min(part.len()?);
        if range.start < end { part.punch(range.start, end - range.start) } else { Ok(()) }
    }
}

fn intersects(one: &Range<u32>, other: &Range<u32>) -> bool {
    one.start < other.end && other.start < one.end
}

fn is_of(moving: &Moving, step: &Move) -> bool {
    moving.regions == step.regions && moving.target == step.target
}

fn is_copying(state: &State, step: &Move) -> bool {
    let moving = state.moving.iter().find(|moving| is_of(moving, step));
    !state.is_removed && moving.is_some_and(|moving| *moving.phase.lock() == Phase::Copying)
}

/// Returns the state after the moves that are being committed: the old places are leftovers, the new ones are not.
fn moved(state: &State) -> (Runs, Vec<Leftover>) {
    let (mut runs, mut leftovers) = (state.runs.clone(), state.leftovers.clone());
    for moving in state.moving.iter().filter(|moving| *moving.phase.lock() == Phase::Committing) {
        let source = runs.container_of(&moving.regions).expect("the regions of a move are on one container");
        leftovers.retain(|left| left.container != moving.target || left.regions != moving.regions);
        leftovers.push(Leftover { regions: moving.regions.clone(), container: source });
        runs.assign(&moving.regions, moving.target);
    }
    (runs, leftovers)
}

/// Copies a piece; holes become holes. Returns the bytes copied.
fn copy_piece(old: &dyn DiskFile, new: &dyn DiskFile, start: u64, buffer: &mut [u8]) -> io::Result<u64> {
    let (end, length, mut at, mut copied) = (start + buffer.len() as u64, new.len()?, start, 0);
    while at < end {
        let is_hole = |at: u64| old.is_hole(at, STEP.min(end - at));
        let (from, is_empty) = (at, is_hole(at)?);
        at = end.min(at + STEP);
        while at < end && is_hole(at)? == is_empty {
            at = end.min(at + STEP);
        }
        if !is_empty {
            let bytes = &mut buffer[..(at - from) as usize];
            let count = old.read_at(bytes, from)?;
            bytes[count..].fill(0);
            new.write_at(bytes, from)?;
            copied += at - from;
        } else {
            if from < length && !new.is_hole(from, at - from)? {
                // A punch of an earlier move from there was perhaps not durable before a crash.
                new.punch(from, at.min(length) - from)?;
            }
            if old.has_unwritten_space(from, at - from)? {
                // Allocated in advance: a write must not fail for lack of space after the move.
                new.allocate(from, at - from, true)?;
            }
        }
    }
    Ok(copied)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::{DirectoryDisk, Disk, FileStore};

    #[test]
    fn a_move_shows_nothing_that_a_crash_left_at_the_new_place() {
        let folder = tempfile::tempdir().unwrap();
        let disk = |number: u16| -> Arc<dyn FileStore> {
            let disk: Arc<dyn Disk> = Arc::new(DirectoryDisk::new(folder.path().join(number.to_string())).unwrap());
            Arc::new(disk)
        };
        let placement = Placement::new((0..2).map(disk).collect());
        let key = FileKey { ino: 16, stripe: 0, stream: Stream::Data };
        let mut runs = Runs::all_on(0);
        runs.assign(&(1..2), 1);
        placement.restore(&[], [(key, PlacementRecord { runs, leftovers: Vec::new() })]);
        let part = |container: u16| {
            let number = file_number(key.ino, key.stripe, container);
            placement.container(container).open(number, key.stream, true).unwrap().unwrap()
        };
        part(0).write_at(&[1; 4096], 0).unwrap();
        // Region 0 was there, and the punch that freed it was not durable before a crash.
        part(1).write_at(&vec![2; 2 * REGION as usize], 0).unwrap();
        let file = placement.stripe(0).open(key.ino, key.stream, false).unwrap().unwrap();
        let read = || {
            let mut bytes = vec![0; 2 * REGION as usize];
            assert_eq!(file.read_at(&mut bytes, 0).unwrap(), bytes.len());
            bytes
        };
        let before = read();
        let step = Move { key, regions: 0..1, target: 1 };
        assert!(placement.begin(&step) && placement.copy(&step, &mut |_| true).unwrap() && placement.prepare(&step));
        placement.finish(key).unwrap();
        assert!(read() == before, "a move changed the content");
    }
}
