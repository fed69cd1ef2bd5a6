//! Allocation units that a growing file would get on a full disk are placed on other disks.
//!
//! The layout of a file says on which disk an allocation unit is, before it exists. If this disk is full, the allocation unit is moved
//! like those that a rebalance moves; usually it is empty.

use crate::disk::Stream;
use crate::error::{ErrorKind, Result};
use crate::file::FileData;
use crate::group::rebalance::{FileKey, Move, regions_of};
use crate::volume::Volume;
use cellar_format::units::AuIndex;
use std::ops::Range;

/// Allocation units beyond those that are needed which are placed in the same transaction.
const AUS_AHEAD: u64 = 16;
/// Bytes that a disk must have beyond an allocation unit.
const MARGIN: u64 = 1 << 20;

impl Volume {
    /// Calls `attempt`, which needs new space for a range of a file. After an error of kind `NoSpace`, frees space, then places the
    /// allocation units of the range that are on full disks on other disks, and calls `attempt` again. The calling thread must hold
    /// no write lock.
    pub(in crate::volume) fn with_space_for<T>(
        &self,
        file: &FileData,
        range: impl Fn() -> Result<Range<u64>>,
        attempt: impl Fn() -> Result<T>,
    ) -> Result<T> {
        let error = match self.with_space(&attempt) {
            Err(error) if error.kind() == ErrorKind::NoSpace => error,
            result => return result,
        };
        match range().and_then(|range| self.divert(file, range)) {
            Ok(true) => self.with_space(attempt),
            Ok(false) => Err(error),
            Err(failure) => {
                log::warn!(
                    "could not place allocation units of inode {} on a disk with free space: {failure}",
                    file.ino
                );
                Err(error)
            }
        }
    }

    /// Places the allocation units of a range on disks that are not full. Returns false if there are no such disks.
    fn divert(&self, file: &FileData, range: Range<u64>) -> Result<bool> {
        // The kernel writes such files without the cell, so they must not move.
        let may_pass_through =
            self.options.wal_passthrough && self.group.mirror().is_none() && file.layout.disks.len() == 1;
        if range.is_empty() || may_pass_through || self.disks().len() == 1 {
            return Ok(false);
        }
        let Some(_claim) = self.rebalance.claim_after_others(file.ino) else { return Ok(false) };
        let Some(moves) = self.diversions(file, &range)? else { return Ok(false) };
        // Otherwise another thread has placed them meanwhile.
        if !moves.is_empty() {
            self.group.note_moves()?;
            self.run_claimed(&moves, 1, false)?;
        }
        Ok(true)
    }

    /// Returns the moves from full disks; None if the other disks have no space for an allocation unit that is needed.
    fn diversions(&self, file: &FileData, range: &Range<u64>) -> Result<Option<Vec<Move>>> {
        let (layout, placement) = (&file.layout, self.group.placement());
        let needed = layout.aus(range.clone());
        let bytes = layout.au_size.bytes();
        let mut space = self.free_space.growth_space()?;
        let mut moves = Vec::new();
        for au in needed.start.index()..needed.end.index() + AUS_AHEAD {
            let range = layout.au_range(AuIndex(au));
            let stripe = layout.disks[layout.disk_index(range.start)];
            let (key, regions) = (FileKey { ino: file.ino, stripe, stream: Stream::Data }, regions_of(&range));
            let Some(container) = placement.runs(key).container_of(&regions) else { continue };
            let least = |space: &[u64], container: u16| {
                self.disks_of(container).into_iter().map(|disk| space[disk]).min().unwrap_or(0)
            };
            let mut place = container;
            if least(&space, container) < bytes + MARGIN {
                let copies = self.disks_of(container).len();
                let others = self.group.live_containers(copies).into_iter();
                let best = others.max_by_key(|other| least(&space, *other));
                match best.filter(|other| least(&space, *other) >= bytes + MARGIN) {
                    Some(best) => place = best,
                    None if au < needed.end.index() => return Ok(None),
                    None => break,
                }
                moves.push(Move { key, regions, target: place });
            }
            self.disks_of(place).into_iter().for_each(|disk| space[disk] = space[disk].saturating_sub(bytes));
        }
        Ok(Some(moves))
    }
}
