//! Torn blocks: blocks of which the kernel has delivered only a part so far.
//!
//! Since Linux 6.16 the kernel splits one write of a block by PostgreSQL into two FUSE writes if a page of the writer's
//! buffer is not mapped. Between the two, the file contains neither the old block nor the new one.

use cellar_format::units::BLOCK_BYTES;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// Torn blocks tracked per file. If a file has more, all of its blocks count as torn from then on.
const BLOCKS_MAX: usize = 4096;

#[derive(Debug, Default)]
pub struct TornBlocks {
    /// False if there is no torn block, so that the common case takes no lock.
    any: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// By block number: the bytes of the block that have arrived.
    blocks: BTreeMap<u64, Range<u64>>,
    /// Set when there were too many torn blocks to track.
    overflowed: bool,
}

/// Returns the blocks that a write covers in part, and the part of each in bytes from the block's start.
fn partial(written: &Range<u64>) -> impl Iterator<Item = (u64, Range<u64>)> {
    let (first, last) = (written.start / BLOCK, (written.end - 1) / BLOCK);
    let last = (last != first).then_some(last);
    let part = {
        let written = written.clone();
        move |block: u64| {
            let start = block * BLOCK;
            (block, written.start.max(start) - start..written.end.min(start + BLOCK) - start)
        }
    };
    [Some(first), last].into_iter().flatten().map(part).filter(|(_, part)| *part != (0..BLOCK))
}

impl TornBlocks {
    /// Must be called before a write becomes visible. `written` is not empty.
    pub fn begin(&self, written: &Range<u64>) {
        for (block, part) in partial(written) {
            let mut state = self.state.lock();
            self.any.store(true, Ordering::SeqCst);
            state.blocks.entry(block).or_insert(part);
            if state.blocks.len() > BLOCKS_MAX {
                state.blocks.clear();
                state.overflowed = true;
            }
        }
    }

    /// Must be called after all of the write has become visible.
    pub fn end(&self, written: &Range<u64>) {
        if !self.any.load(Ordering::SeqCst) {
            return;
        }
        let mut state = self.state.lock();
        for (block, part) in partial(written) {
            let Some(arrived) = state.blocks.get_mut(&block) else { continue };
            // Pieces of one write arrive in order. A piece at the start of the block, or after a gap, belongs to a new
            // write.
            let continues = part.start > 0 && (arrived.start..=arrived.end).contains(&part.start);
            let start = if continues { arrived.start } else { part.start };
            *arrived = start..part.end;
            if *arrived == (0..BLOCK) {
                state.blocks.remove(&block);
            }
        }
        let (first, end) = (written.start.div_ceil(BLOCK), written.end / BLOCK);
        while first < end
            && let Some((block, _)) = state.blocks.range(first..end).next()
        {
            let block = *block;
            state.blocks.remove(&block);
        }
        self.any.store(state.overflowed || !state.blocks.is_empty(), Ordering::SeqCst);
    }

    /// Returns whether some block of the range may be torn.
    pub fn any_in(&self, range: &Range<u64>) -> bool {
        if !self.any.load(Ordering::SeqCst) {
            return false;
        }
        let state = self.state.lock();
        state.overflowed || state.blocks.range(range.start / BLOCK..range.end.div_ceil(BLOCK)).next().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(torn_blocks: &TornBlocks, written: Range<u64>) {
        torn_blocks.begin(&written);
        torn_blocks.end(&written);
    }

    #[test]
    fn a_block_that_arrives_in_pieces_is_torn_until_the_last_piece() {
        let torn_blocks = TornBlocks::default();
        write(&torn_blocks, 0..2 * BLOCK);
        assert!(!torn_blocks.any_in(&(0..4 * BLOCK)));
        write(&torn_blocks, BLOCK..BLOCK + 5000);
        assert!(
            torn_blocks.any_in(&(BLOCK..2 * BLOCK))
                && !torn_blocks.any_in(&(0..BLOCK))
                && !torn_blocks.any_in(&(2 * BLOCK..9 * BLOCK))
        );
        write(&torn_blocks, BLOCK + 5000..2 * BLOCK);
        assert!(!torn_blocks.any_in(&(0..4 * BLOCK)));
    }

    #[test]
    fn pieces_of_different_writes_do_not_complete_a_block() {
        let torn_blocks = TornBlocks::default();
        write(&torn_blocks, 0..5000);
        write(&torn_blocks, 6000..BLOCK);
        assert!(torn_blocks.any_in(&(0..BLOCK)), "a gap");
        write(&torn_blocks, 0..6000);
        assert!(torn_blocks.any_in(&(0..BLOCK)), "the earlier pieces belong to an older write");
        write(&torn_blocks, 6000..BLOCK + 100);
        assert!(!torn_blocks.any_in(&(0..BLOCK)) && torn_blocks.any_in(&(BLOCK..2 * BLOCK)));
        write(&torn_blocks, BLOCK..2 * BLOCK);
        assert!(!torn_blocks.any_in(&(0..9 * BLOCK)));
    }

    #[test]
    fn small_appends_complete_their_blocks() {
        let torn_blocks = TornBlocks::default();
        (0..1000).for_each(|line| write(&torn_blocks, line * 100..(line + 1) * 100));
        let end = 1000 * 100 / BLOCK * BLOCK;
        assert!(!torn_blocks.any_in(&(0..end)) && torn_blocks.any_in(&(end..end + 1)));
    }

    #[test]
    fn after_too_many_torn_blocks_every_block_counts_as_torn() {
        let torn_blocks = TornBlocks::default();
        (0..=BLOCKS_MAX as u64).for_each(|block| write(&torn_blocks, block * BLOCK + 1..block * BLOCK + 2));
        assert!(torn_blocks.any_in(&(99_999 * BLOCK..100_000 * BLOCK)));
    }
}
