//! The writes of a redo file since its last sync, for the record of the next one.

use super::format::{DATA_BYTES_MAX, PIECES_MAX, Writes};

/// What a sync of the file has to make durable.
#[derive(Debug, Default)]
pub struct Capture {
    writes: Writes,
    /// A change that no record can contain, or that is not known: the next sync waits for the cell disks.
    needs_disks: bool,
    is_too_large: bool,
    /// Another part of the cell stores the file's bytes: nothing is captured any more.
    is_ended: bool,
}

/// What a sync takes from the capture.
#[derive(Debug, PartialEq, Eq)]
pub enum Captured {
    Nothing,
    Writes(Writes),
    /// More bytes or writes than a record can contain.
    TooLarge,
    /// Changes that a record cannot contain.
    OnlyDisks,
}

impl Capture {
    /// The capture of a file of whose earlier changes nothing is known.
    pub fn begun() -> Self {
        Self { needs_disks: true, ..Self::default() }
    }

    /// Adds a write that the cell disks have got.
    pub fn add(&mut self, offset: u64, data: &[u8]) {
        if self.needs_disks || self.is_too_large || self.is_ended {
            return;
        }
        let end = offset + data.len() as u64;
        let is_next = self.writes.pieces.last().is_some_and(|last| last.end == offset);
        if self.writes.data.len() + data.len() > DATA_BYTES_MAX || !is_next && self.writes.pieces.len() == PIECES_MAX {
            (self.is_too_large, self.writes) = (true, Writes::default());
            return;
        }
        match self.writes.pieces.last_mut() {
            Some(last) if is_next => last.end = end,
            _ => self.writes.pieces.push(offset..end),
        }
        self.writes.data.extend_from_slice(data);
    }

    /// Lets the next sync wait for the cell disks.
    pub fn require_disks(&mut self) {
        (self.needs_disks, self.writes) = (true, Writes::default());
    }

    /// Captures nothing any more: all syncs wait for the cell disks.
    pub fn end(&mut self) {
        self.is_ended = true;
        self.require_disks();
    }

    pub fn take(&mut self) -> Captured {
        let was = std::mem::take(self);
        self.is_ended = was.is_ended;
        match was {
            _ if was.needs_disks || was.is_ended => Captured::OnlyDisks,
            _ if was.is_too_large => Captured::TooLarge,
            _ if was.writes.data.is_empty() => Captured::Nothing,
            _ => Captured::Writes(was.writes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacent_writes_are_joined_and_large_or_unknown_changes_need_the_disks() {
        let mut capture = Capture::begun();
        capture.add(0, b"before");
        assert_eq!(capture.take(), Captured::OnlyDisks);
        assert_eq!(capture.take(), Captured::Nothing);
        [(0, "ab"), (2, "c"), (1, "x")].iter().for_each(|(offset, data)| capture.add(*offset, data.as_bytes()));
        let expected = Writes { pieces: vec![0..3, 1..2], data: b"abcx".to_vec() };
        assert_eq!(capture.take(), Captured::Writes(expected));
        capture.add(0, &vec![1; DATA_BYTES_MAX]);
        capture.add(0, b"more");
        assert_eq!((capture.take(), capture.take()), (Captured::TooLarge, Captured::Nothing));
        (0..=PIECES_MAX as u64).for_each(|piece| capture.add(2 * piece, b"x"));
        assert_eq!(capture.take(), Captured::TooLarge);
        capture.end();
        capture.add(0, b"x");
        assert_eq!((capture.take(), capture.take()), (Captured::OnlyDisks, Captured::OnlyDisks));
    }
}
