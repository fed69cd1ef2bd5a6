//! Blocks of which only a part has arrived.
//!
//! The kernel passes a block that Postgres writes on in two pieces where some of the writer's memory is not mapped yet
//! (since Linux 6.16). Until the second one comes, the file has neither the old block nor the new one.

use cellar_format::units::BLOCK_BYTES;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// Blocks that are told apart; of a file with more of them any block may be incomplete.
const BLOCKS_MAX: usize = 4096;

#[derive(Debug, Default)]
pub struct Halves {
    any: AtomicBool,
    blocks: Mutex<Incomplete>,
}

#[derive(Debug, Default)]
struct Incomplete {
    /// By number of the block: the bytes of it that arrived one after the other.
    blocks: BTreeMap<u64, Range<u64>>,
    /// There were too many of them.
    all: bool,
}

/// The blocks that a write covers in part, and which part.
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

impl Halves {
    /// To be called before a write, of at least one byte, can be seen.
    pub fn begin(&self, written: &Range<u64>) {
        for (block, part) in partial(written) {
            let mut incomplete = self.blocks.lock();
            self.any.store(true, Ordering::SeqCst);
            incomplete.blocks.entry(block).or_insert(part);
            if incomplete.blocks.len() > BLOCKS_MAX {
                incomplete.blocks.clear();
                incomplete.all = true;
            }
        }
    }

    /// To be called when all of the write can be seen.
    pub fn end(&self, written: &Range<u64>) {
        if !self.any.load(Ordering::SeqCst) {
            return;
        }
        let mut incomplete = self.blocks.lock();
        for (block, part) in partial(written) {
            let Some(arrived) = incomplete.blocks.get_mut(&block) else { continue };
            // Pieces come in order; whatever begins the block, or leaves a gap, is a new write of it.
            let goes_on = part.start > 0 && (arrived.start..=arrived.end).contains(&part.start);
            let start = if goes_on { arrived.start } else { part.start };
            *arrived = start..part.end;
            if *arrived == (0..BLOCK) {
                incomplete.blocks.remove(&block);
            }
        }
        let (first, end) = (written.start.div_ceil(BLOCK), written.end / BLOCK);
        while first < end
            && let Some((block, _)) = incomplete.blocks.range(first..end).next()
        {
            let block = *block;
            incomplete.blocks.remove(&block);
        }
        self.any.store(incomplete.all || !incomplete.blocks.is_empty(), Ordering::SeqCst);
    }

    /// Whether some block of the range may be incomplete.
    pub fn touch(&self, range: &Range<u64>) -> bool {
        if !self.any.load(Ordering::SeqCst) {
            return false;
        }
        let incomplete = self.blocks.lock();
        incomplete.all || incomplete.blocks.range(range.start / BLOCK..range.end.div_ceil(BLOCK)).next().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(halves: &Halves, written: Range<u64>) {
        halves.begin(&written);
        halves.end(&written);
    }

    #[test]
    fn a_block_in_pieces_is_incomplete_until_the_last_one() {
        let halves = Halves::default();
        write(&halves, 0..2 * BLOCK);
        assert!(!halves.touch(&(0..4 * BLOCK)));
        write(&halves, BLOCK..BLOCK + 5000);
        assert!(
            halves.touch(&(BLOCK..2 * BLOCK)) && !halves.touch(&(0..BLOCK)) && !halves.touch(&(2 * BLOCK..9 * BLOCK))
        );
        write(&halves, BLOCK + 5000..2 * BLOCK);
        assert!(!halves.touch(&(0..4 * BLOCK)));
    }

    #[test]
    fn the_pieces_have_to_be_of_one_write() {
        let halves = Halves::default();
        write(&halves, 0..5000);
        write(&halves, 6000..BLOCK);
        assert!(halves.touch(&(0..BLOCK)), "a gap");
        write(&halves, 0..6000);
        assert!(halves.touch(&(0..BLOCK)), "what was there is older than what begins the block");
        write(&halves, 6000..BLOCK + 100);
        assert!(!halves.touch(&(0..BLOCK)) && halves.touch(&(BLOCK..2 * BLOCK)));
        write(&halves, BLOCK..2 * BLOCK);
        assert!(!halves.touch(&(0..9 * BLOCK)));
    }

    #[test]
    fn appended_lines_complete_their_blocks() {
        let halves = Halves::default();
        (0..1000).for_each(|line| write(&halves, line * 100..(line + 1) * 100));
        let end = 1000 * 100 / BLOCK * BLOCK;
        assert!(!halves.touch(&(0..end)) && halves.touch(&(end..end + 1)));
    }

    #[test]
    fn of_too_many_blocks_any_may_be_incomplete() {
        let halves = Halves::default();
        (0..=BLOCKS_MAX as u64).for_each(|block| write(&halves, block * BLOCK + 1..block * BLOCK + 2));
        assert!(halves.touch(&(99_999 * BLOCK..100_000 * BLOCK)));
    }
}
