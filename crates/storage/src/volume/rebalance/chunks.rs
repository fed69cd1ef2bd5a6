//! What a rebalance distributes: the allocation units of all files that occupy space, and the disks with their sizes.

use super::stopped;
use crate::disk::{DiskFile, Stream};
use crate::error::{Context, Error, ErrorKind, Result};
use crate::file::FileData;
use crate::group::rebalance::{Chunk, FileKey, Inventory, Move, REGION, regions_of};
use crate::volume::Volume;
use std::ops::Range;

/// Bytes of the steps in which the space of a sparse file is measured.
const PROBE: u64 = 64 << 10;

impl Volume {
    pub(super) fn inventory(&self) -> Result<Inventory> {
        let count = self.disks().len();
        let spaces = self.free_space.by_disk();
        let mut weights = vec![0; count];
        for disk in (0..count).filter(|disk| !self.group.is_dropped(*disk) && !self.group.is_dropping(*disk)) {
            weights[disk] = spaces[disk].total;
            if weights[disk] == 0 {
                let path = spaces[disk].path.display();
                return Err(Error::new(ErrorKind::Io, format!("could not determine the size of cell disk {path}")));
            }
        }
        let failure_groups = self.group.failure_group_numbers();
        let containers = 0..self.group.placement().containers().len() as u16;
        let containers = containers.map(|container| self.disks_of(container)).collect();
        Ok(Inventory { weights, failure_groups, containers })
    }

    /// Returns the allocation units of all files that occupy space.
    pub(super) fn chunks(&self) -> Result<Vec<Chunk>> {
        let mut chunks = Vec::new();
        for file in self.regular_files() {
            if self.rebalance.is_stopping() {
                return Err(stopped());
            }
            self.chunks_of(&file, &mut chunks).context(|| format!("could not examine inode {}", file.ino))?;
        }
        chunks.sort_by_key(|chunk| (chunk.key.ino, chunk.regions.start));
        Ok(chunks)
    }

    /// Returns the moves of what allocation units do not cover, of files that shall have another number of copies: parts without
    /// space, where files grow, and redo logs.
    pub(super) fn unconverted(&self) -> Vec<Move> {
        let placement = self.group.placement();
        let size = |container: u16| self.disks_of(container).len();
        if (1..placement.containers().len() as u16).all(|container| size(container) == size(0)) {
            return Vec::new();
        }
        let mut moves = Vec::new();
        for file in self.regular_files() {
            let copies = self.copies_of(file.ino);
            let streams = if file.units().is_some() { &Stream::ALL[..] } else { &[Stream::Data] };
            for (stripe, stream) in file.layout.disks.iter().flat_map(|stripe| streams.iter().map(|s| (*stripe, *s))) {
                let key = FileKey { ino: file.ino, stripe, stream };
                let runs = placement.runs(key);
                for container in runs.containers() {
                    let Some(target) = self.group.converted(container, copies) else { continue };
                    moves.extend(runs.on(container).into_iter().map(|regions| Move { key, regions, target }));
                }
            }
        }
        moves
    }

    /// Returns the bytes that the regions of a move occupy.
    pub(super) fn allocated_bytes(&self, step: &Move) -> Result<u64> {
        let FileKey { ino, stripe, stream } = step.key;
        let measured = || match self.group.stripes()[usize::from(stripe)].open(ino, stream, false)? {
            Some(file) => {
                let (start, end) = (u64::from(step.regions.start) * REGION, u64::from(step.regions.end) * REGION);
                occupied(&*file, start..end.min(file.len()?))
            }
            None => Ok(0),
        };
        measured().context(|| format!("could not examine inode {ino}"))
    }

    fn chunks_of(&self, file: &FileData, chunks: &mut Vec<Chunk>) -> std::io::Result<()> {
        let (layout, au_bytes) = (&file.layout, file.layout.au_size.bytes());
        let streams = if file.units().is_some() { &[Stream::Data, Stream::Units][..] } else { &[Stream::Data] };
        for (index, stripe) in layout.disks.iter().enumerate() {
            let disk = &self.group.stripes()[usize::from(*stripe)];
            for stream in streams {
                let key = FileKey { ino: file.ino, stripe: *stripe, stream: *stream };
                let (length, allocated) = disk.measure(file.ino, *stream)?;
                if allocated == 0 {
                    continue;
                }
                // Of a unit file: the slots of each allocation unit.
                let slots = if *stream == Stream::Units { u64::from(crate::meta::SLOTS_PER_AU) } else { 1 };
                let starts = layout.aus_of(index).flat_map(|au| au.index() * slots..(au.index() + 1) * slots);
                let starts = starts.map(|number| number * au_bytes).take_while(|start| *start < length);
                let ranges = starts.map(|start| start..(start + au_bytes).min(length));
                let opened = disk.open(file.ino, *stream, false)?;
                let Some(opened) = opened else { continue };
                let runs = self.group.placement().runs(key);
                let mut own = Vec::new();
                for range in ranges {
                    let regions = regions_of(&(range.start..range.start + au_bytes));
                    let Some(container) = runs.container_of(&regions) else { continue };
                    if !opened.is_hole(range.start, range.end - range.start)? {
                        own.push(Chunk { key, regions, container, bytes: range.end - range.start });
                    }
                }
                // Units and raw pages beside them occupy parts of allocation units.
                if allocated < own.iter().map(|chunk| chunk.bytes).sum() {
                    for chunk in &mut own {
                        let start = u64::from(chunk.regions.start) * REGION;
                        chunk.bytes = occupied(&*opened, start..start + chunk.bytes)?;
                    }
                }
                chunks.extend(own);
            }
        }
        Ok(())
    }
}

/// Returns the bytes that a range occupies, in steps of [`PROBE`].
fn occupied(file: &dyn DiskFile, range: Range<u64>) -> std::io::Result<u64> {
    let (mut at, mut bytes) = (range.start, 0);
    while at < range.end {
        let length = PROBE.min(range.end - at);
        bytes += if file.is_hole(at, length)? { 0 } else { length };
        at += length;
    }
    Ok(bytes)
}
