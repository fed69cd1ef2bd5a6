//! Checkpoints: the index on the first flash disk, in one of two files in turn.

use super::FlashCache;
use super::eviction::Maintenance;
use super::format::Checkpoint;
use super::index::Snapshot;
use super::log::CHECKPOINT_INOS;
use crate::disk::{Disk, Stream};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes that are written and made durable at once: each operation of a flash disk has a time limit.
const PART_BYTES: usize = 16 << 20;

impl FlashCache {
    /// Makes the index durable. Intents of regions that are synced end with the checkpoint.
    pub(super) fn checkpoint(&self, maintenance: &mut Maintenance) -> io::Result<()> {
        let checkpoint = self.copy_index(maintenance, || {})?;
        self.store(maintenance, &checkpoint)
    }

    pub(super) fn store(&self, maintenance: &mut Maintenance, checkpoint: &Checkpoint) -> io::Result<()> {
        write(&self.disks[0], maintenance.next_checkpoint, &checkpoint.encode())?;
        maintenance.next_checkpoint = 1 - maintenance.next_checkpoint;
        self.checkpointed.store(checkpoint.sequence, Ordering::Release);
        self.counters.checkpoints.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Copies the index as of the last record at the start. Fills and evictions need `maintenance`, so the only later records are
    /// intents, which do not wait for the copy, and which recovery applies after the checkpoint. Calls `between` before each object.
    pub(super) fn copy_index(&self, _: &mut Maintenance, mut between: impl FnMut()) -> io::Result<Checkpoint> {
        let (mut checkpoint, flush) = {
            let mut log = self.log.lock();
            let mut checkpoint = Checkpoint::new(log.generation(), log.last_sequence());
            checkpoint.segments = log.segments().collect();
            checkpoint.settings = self.settings.lock().iter().map(|(ino, setting)| (*ino, *setting)).collect();
            log.closed_since_checkpoint = 0;
            log.intents_since_checkpoint = 0;
            (checkpoint, log.begin_flush())
        };
        let flushed = flush.run();
        self.log.lock().end_flush(&flush, flushed)?;
        let objects: Vec<_> = self.objects.lock().values().cloned().collect();
        for object in objects {
            between();
            checkpoint.objects.push(object.object);
            let number = checkpoint.objects.len() as u32 - 1;
            let before = (checkpoint.runs.len(), checkpoint.open.len());
            object.snapshot(checkpoint.sequence, |found| match found {
                Snapshot::Page { page, location } => checkpoint.add_page(page, location),
                Snapshot::Open { first, last } => checkpoint.open.push((number, first, last)),
            });
            if before == (checkpoint.runs.len(), checkpoint.open.len()) {
                checkpoint.objects.pop();
            }
        }
        Ok(checkpoint)
    }
}

fn write(disk: &Arc<dyn Disk>, slot: usize, bytes: &[u8]) -> io::Result<()> {
    let ino = CHECKPOINT_INOS[slot];
    let file = disk.open(ino, Stream::Data, true)?.expect("a disk creates a missing file");
    // The other file has the last checkpoint.
    file.set_len(0)?;
    for (part, bytes) in bytes.chunks(PART_BYTES).enumerate() {
        file.write_at(bytes, (part * PART_BYTES) as u64)?;
        file.sync()?;
    }
    disk.sync_name(ino)
}

/// Reads the checkpoints that are valid, the newest first, each with its slot.
pub(super) fn read(disk: &Arc<dyn Disk>) -> io::Result<Vec<(Checkpoint, usize)>> {
    let mut found = Vec::new();
    for (slot, ino) in CHECKPOINT_INOS.into_iter().enumerate() {
        let Some(file) = disk.open(ino, Stream::Data, false)? else { continue };
        let mut bytes = vec![0; disk.measure(ino, Stream::Data)?.0 as usize];
        let count = file.read_at(&mut bytes, 0)?;
        match Checkpoint::decode(&bytes[..count]) {
            Ok(checkpoint) => found.push((checkpoint, slot)),
            Err(corrupt) => ::log::debug!("checkpoint {slot} of the flash cache is not complete: {corrupt}"),
        }
    }
    found.sort_by_key(|(checkpoint, _)| std::cmp::Reverse(checkpoint.sequence));
    Ok(found)
}
