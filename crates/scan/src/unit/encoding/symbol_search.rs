//! Finds pieces of text in strings encoded by symbols, without decoding them (`LIKE '%a%b%'`).
//!
//! An automaton that matches the pieces in order runs over the codes: one step consumes all bytes of a code's symbol. The
//! automaton runs over the concatenated strings of a frame without stopping between them, so a match may span several
//! strings. No string that contains the pieces is missed: matching a part of the pieces too early only lets the
//! automaton complete the match earlier, in the same string. Each match is then confirmed by a run over its string alone.

use super::symbols::{ESCAPE, SymbolTable};

/// Bytes of pieces that the automaton matches. Each byte has two states: an ordinary one, and one for the byte after an escape.
const BYTES_MAX: usize = 63;
/// Flag in the low byte of a table entry: the transition completed the last piece.
const FOUND: u16 = 1;
/// Parts of a body searched in turns. Each step depends on the previous step of the same part, so steps of several parts
/// overlap.
const LANES: usize = 8;
/// Steps between two tests for a match.
const STEPS: usize = 4;
/// Entries of the table: 256 states by 256 codes.
const TABLE: usize = 1 << 16;

/// An automaton over the codes of one symbol table.
#[derive(Debug)]
pub struct SymbolSearch {
    pieces: Vec<Vec<u8>>,
    /// Indexed by state (high byte) and code (low byte): the next state in the high byte, [`FOUND`] in the low byte.
    table: Box<[u16; TABLE]>,
    /// One bit per code of a body: the code completed a match.
    matches: Vec<u64>,
}

impl SymbolSearch {
    /// Builds a search for `pieces` in this order; no piece is empty. Only the first [`BYTES_MAX`] bytes of all pieces are matched.
    pub fn new(pieces: &[&[u8]], symbols: &SymbolTable) -> Self {
        let (bytes, ends) = truncate(pieces);
        let by_byte = steps_by_byte(&bytes, &ends);
        let states = bytes.len();
        let table = vec![0; TABLE].into_boxed_slice().try_into().expect("a table of this length");
        let pieces = pieces.iter().map(|piece| piece.to_vec()).collect();
        let mut search = Self { pieces, table, matches: Vec::new() };
        for (state, steps) in by_byte.iter().enumerate() {
            for code in 0..=u8::MAX {
                search.table[state << 8 | code as usize] = match code {
                    ESCAPE => entry_of(states + state),
                    _ => symbols.bytes(code).fold(entry_of(state), |entry, byte| {
                        by_byte[(entry >> 8) as usize][byte as usize] | entry & FOUND
                    }),
                };
                search.table[(states + state) << 8 | code as usize] = steps[code as usize];
            }
        }
        search
    }

    /// Whether this is a search for `pieces`.
    pub fn searches_for(&self, pieces: &[&[u8]]) -> bool {
        self.pieces == pieces
    }

    /// Replaces `found` by the numbers, ascending, of the strings that contain the pieces; if the pieces were truncated, also of
    /// strings that may contain them. `starts` has the start of each string in `body`, and the end of the last one.
    pub fn find(&mut self, body: &[u8], starts: &[u32], found: &mut Vec<u16>) {
        let bounds: [usize; LANES + 1] = std::array::from_fn(|lane| {
            let row = starts.partition_point(|start| (*start as usize) < body.len() * lane / LANES);
            starts.get(row).map_or(body.len(), |start| *start as usize)
        });
        let lanes: [&[u8]; LANES] = std::array::from_fn(|lane| &body[bounds[lane]..bounds[lane + 1]]);
        let groups = lanes.iter().map(|lane| lane.len()).min().unwrap_or(0) / STEPS;
        let grouped: [&[[u8; STEPS]]; LANES] = lanes.map(|lane| &lane.as_chunks().0[..groups]);
        let codes_of = |group: usize| -> [[u8; STEPS]; LANES] { std::array::from_fn(|lane| grouped[lane][group]) };
        let mut entries = [0; LANES];
        let mut matches = std::mem::take(&mut self.matches);
        matches.clear();
        matches.resize(body.len().div_ceil(64), 0);
        for group in 0..groups {
            let codes = codes_of(group);
            let (before, mut seen) = (entries, 0);
            for step in 0..STEPS {
                for (entry, codes) in entries.iter_mut().zip(&codes) {
                    *entry = self.step(*entry, codes[step]);
                    seen |= *entry;
                }
            }
            if seen & FOUND != 0 {
                // Steps after a match started from a wrong state: repeat the group one code at a time.
                entries = before;
                for ((entry, codes), start) in entries.iter_mut().zip(&codes).zip(bounds) {
                    *entry = self.walk(*entry, codes, start + group * STEPS, &mut matches);
                }
            }
        }
        for ((entry, lane), start) in entries.iter().zip(lanes).zip(bounds) {
            self.walk(*entry, &lane[groups * STEPS..], start + groups * STEPS, &mut matches);
        }
        found.clear();
        let mut row = 0;
        for (word, bits) in matches.iter().enumerate() {
            let mut bits = *bits;
            while bits != 0 {
                let place = word * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                while starts[row + 1] as usize <= place {
                    row += 1;
                }
                let is_new = found.last() != Some(&(row as u16));
                if is_new && self.is_in(&body[starts[row] as usize..starts[row + 1] as usize]) {
                    found.push(row as u16);
                }
            }
        }
        self.matches = matches;
    }

    /// The transition from `entry`, which does not have [`FOUND`].
    #[inline(always)]
    fn step(&self, entry: u16, code: u8) -> u16 {
        self.table[(entry | u16::from(code)) as usize]
    }

    /// Whether one string contains the pieces.
    fn is_in(&self, codes: &[u8]) -> bool {
        let mut entry = 0;
        codes.iter().any(|code| {
            entry = self.step(entry, *code);
            entry & FOUND != 0
        })
    }

    /// Records the matches in `codes`, which start at `place` of the body.
    #[cold]
    #[inline(never)]
    fn walk(&self, mut entry: u16, codes: &[u8], place: usize, matches: &mut [u64]) -> u16 {
        for (at, code) in codes.iter().enumerate() {
            entry = self.step(entry, *code);
            if entry & FOUND != 0 {
                matches[(place + at) / 64] |= 1 << ((place + at) % 64);
                entry ^= FOUND;
            }
        }
        entry
    }
}

/// The first [`BYTES_MAX`] bytes of the pieces, and where each piece ends in them.
fn truncate(pieces: &[&[u8]]) -> (Vec<u8>, Vec<usize>) {
    let (mut bytes, mut ends) = (Vec::with_capacity(BYTES_MAX), Vec::new());
    for piece in pieces {
        let free = BYTES_MAX - bytes.len();
        if free > 0 {
            bytes.extend_from_slice(&piece[..piece.len().min(free)]);
            ends.push(bytes.len());
        }
    }
    (bytes, ends)
}

fn entry_of(state: usize) -> u16 {
    (state as u16) << 8
}

/// The transitions by state, which is the number of bytes matched so far, and by byte. Within a piece, the automaton of Knuth,
/// Morris and Pratt.
fn steps_by_byte(bytes: &[u8], ends: &[usize]) -> Vec<[u16; 256]> {
    let mut steps = vec![[0; 256]; bytes.len()];
    let mut start = 0;
    for end in ends {
        steps[start] = [entry_of(start); 256];
        // The state after the piece's bytes up to here, without the first one.
        let mut without_first = start;
        for state in start..*end {
            let byte = bytes[state] as usize;
            if state > start {
                steps[state] = steps[without_first];
                without_first = (steps[without_first][byte] >> 8) as usize;
            }
            steps[state][byte] = if state + 1 == bytes.len() { FOUND } else { entry_of(state + 1) };
        }
        start = *end;
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::super::symbols::SymbolEncoder;
    use super::*;

    /// Strings of a few different letters, so that matches and near matches are frequent.
    fn strings(letters: usize, count: usize) -> Vec<Vec<u8>> {
        let mut state = 88_172_645_463_325_252u64;
        let mut random = |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as usize % below
        };
        (0..count)
            .map(|_| {
                let length = random(30);
                // A rare letter gets no symbol.
                (0..length).map(|_| if random(200) == 0 { 0xff } else { b'a' + random(letters) as u8 }).collect()
            })
            .collect()
    }

    #[track_caller]
    fn check(letters: usize, pieces: &[&[u8]]) {
        let strings = strings(letters, 1024);
        let strings: Vec<&[u8]> = strings.iter().map(Vec::as_slice).collect();
        let encoder = SymbolEncoder::train(&strings);
        let (mut lengths, mut body) = (Vec::new(), Vec::new());
        encoder.encode(&strings, &mut lengths, &mut body);
        let ends = lengths.iter().scan(0, |end, length| {
            *end += *length as u32;
            Some(*end)
        });
        let starts: Vec<u32> = [0].into_iter().chain(ends).collect();
        let mut search = SymbolSearch::new(pieces, &encoder.table().1);
        let contains = |string: &[u8]| {
            let mut rest = Some(string);
            for piece in pieces {
                rest = rest.and_then(|rest| {
                    let at = rest.windows(piece.len()).position(|window| window == *piece)?;
                    Some(&rest[at + piece.len()..])
                });
            }
            rest.is_some()
        };
        let mut found = vec![7];
        search.find(&body, &starts, &mut found);
        assert!(found.is_sorted_by(|left, right| left < right));
        let wanted: Vec<u16> = (0..strings.len()).filter(|row| contains(strings[*row])).map(|row| row as u16).collect();
        assert!(wanted.iter().all(|row| found.contains(row)), "{pieces:?}");
        if pieces.concat().len() <= BYTES_MAX {
            assert_eq!(found, wanted, "{pieces:?}");
        }
    }

    #[test]
    fn exactly_the_strings_that_contain_the_pieces_are_found() {
        for letters in [2, 3, 8] {
            check(letters, &[b"abc"]);
            check(letters, &[b"aba"]);
            check(letters, &[b"abab", b"ba"]);
            check(letters, &[b"a", b"b", b"a"]);
            check(letters, &[b"aab", b"\xff"]);
            check(letters, &[b"\xffa"]);
        }
        check(2, &[&b"ab".repeat(40)]);
        check(4, &[b"d".repeat(62).as_slice(), b"ab"]);
    }

    #[test]
    fn few_and_empty_strings_are_searched() {
        let symbols = SymbolEncoder::train(&[b"abc".as_slice()]).table().1;
        let mut search = SymbolSearch::new(&[b"b"], &symbols);
        let mut found = Vec::new();
        search.find(&[], &[0], &mut found);
        assert!(found.is_empty());
        search.find(&[ESCAPE, b'b'], &[0, 0, 0, 2, 2], &mut found);
        assert_eq!(found, [2]);
    }
}
