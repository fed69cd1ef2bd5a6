//! Pieces of text found in strings that are coded by symbols, without decoding them.
//!
//! An automaton that looks for the pieces, one after the other, goes over the codes: one step takes it over all the
//! bytes that a code stands for. It runs over strings that lie one behind the other as if they were one, so what it finds
//! may lie in two of them; but no string that contains the pieces is missed, because what was found too early can only
//! make it find the rest earlier, in the same string. Where something was found, the string is looked through alone.

use super::symbols::{ESCAPE, Symbols};

/// States: of so many bytes of pieces, and as many in which the next byte stands for itself.
const BYTES_MAX: usize = 63;
/// In an entry, below the state: the last piece was found on the way.
const FOUND: u16 = 1;
/// Parts of a body that are searched at the same time: each step in one of them waits for the one before.
const LANES: usize = 8;
/// Steps between two looks at whether something was found.
const STEPS: usize = 4;
/// What a state and a code make together.
const TABLE: usize = 1 << 16;

/// An automaton over the codes of one symbol table.
#[derive(Debug)]
pub(super) struct Search {
    pieces: Vec<Vec<u8>>,
    /// By state, in the upper half of an entry, and code: the next state's entry.
    table: Box<[u16; TABLE]>,
    /// The codes of a body at which something was found, a bit for each.
    found: Vec<u64>,
}

impl Search {
    /// For `pieces`, none of which is empty, one after the other; of long ones the first bytes have to do.
    pub fn new(pieces: &[&[u8]], symbols: &Symbols) -> Self {
        let (bytes, ends) = cut(pieces);
        let by_byte = steps_by_byte(&bytes, &ends);
        let states = bytes.len();
        let table = vec![0; TABLE].into_boxed_slice().try_into().expect("a table of this length");
        let pieces = pieces.iter().map(|piece| piece.to_vec()).collect();
        let mut search = Self { pieces, table, found: Vec::new() };
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

    pub fn is_for(&self, pieces: &[&[u8]]) -> bool {
        self.pieces == pieces
    }

    /// Replaces `found` by the numbers of the strings in which the pieces lie, ascending; where the pieces had to be cut,
    /// of strings in which they may lie. `starts` says where in
    /// `body` each string starts, and where the last one ends.
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
        let mut places = std::mem::take(&mut self.found);
        places.clear();
        places.resize(body.len().div_ceil(64), 0);
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
                // Behind what was found the steps were wrong.
                entries = before;
                for ((entry, codes), start) in entries.iter_mut().zip(&codes).zip(bounds) {
                    *entry = self.walk(*entry, codes, start + group * STEPS, &mut places);
                }
            }
        }
        for ((entry, lane), start) in entries.iter().zip(lanes).zip(bounds) {
            self.walk(*entry, &lane[groups * STEPS..], start + groups * STEPS, &mut places);
        }
        found.clear();
        let mut row = 0;
        for (word, bits) in places.iter().enumerate() {
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
        self.found = places;
    }

    /// From an entry without [`FOUND`].
    #[inline(always)]
    fn step(&self, entry: u16, code: u8) -> u16 {
        self.table[(entry | u16::from(code)) as usize]
    }

    /// Whether the pieces lie in one string.
    fn is_in(&self, codes: &[u8]) -> bool {
        let mut entry = 0;
        codes.iter().any(|code| {
            entry = self.step(entry, *code);
            entry & FOUND != 0
        })
    }

    /// Notes where the pieces are found in `codes`, which start at `place`.
    #[cold]
    #[inline(never)]
    fn walk(&self, mut entry: u16, codes: &[u8], place: usize, places: &mut [u64]) -> u16 {
        for (at, code) in codes.iter().enumerate() {
            entry = self.step(entry, *code);
            if entry & FOUND != 0 {
                places[(place + at) / 64] |= 1 << ((place + at) % 64);
                entry ^= FOUND;
            }
        }
        entry
    }
}

/// As many bytes of the pieces as there are states for, and where each piece ends.
fn cut(pieces: &[&[u8]]) -> (Vec<u8>, Vec<usize>) {
    let (mut bytes, mut ends) = (Vec::with_capacity(BYTES_MAX), Vec::new());
    for piece in pieces {
        let room = BYTES_MAX - bytes.len();
        if room > 0 {
            bytes.extend_from_slice(&piece[..piece.len().min(room)]);
            ends.push(bytes.len());
        }
    }
    (bytes, ends)
}

fn entry_of(state: usize) -> u16 {
    (state as u16) << 8
}

/// By state, which is how many bytes were found, and byte: the next state. Within a piece as Knuth, Morris and Pratt.
fn steps_by_byte(bytes: &[u8], ends: &[usize]) -> Vec<[u16; 256]> {
    let mut steps = vec![[0; 256]; bytes.len()];
    let mut start = 0;
    for end in ends {
        steps[start] = [entry_of(start); 256];
        // Where the bytes of the piece up to here, without its first one, lead to.
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
    use super::super::symbols::Coder;
    use super::*;

    /// Strings of few different letters, so that pieces are found, and nearly found, often.
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
                // A letter that is rare has no symbol.
                (0..length).map(|_| if random(200) == 0 { 0xff } else { b'a' + random(letters) as u8 }).collect()
            })
            .collect()
    }

    #[track_caller]
    fn check(letters: usize, pieces: &[&[u8]]) {
        let strings = strings(letters, 1024);
        let strings: Vec<&[u8]> = strings.iter().map(Vec::as_slice).collect();
        let coder = Coder::train(&strings);
        let (mut lengths, mut body) = (Vec::new(), Vec::new());
        coder.encode(&strings, &mut lengths, &mut body);
        let ends = lengths.iter().scan(0, |end, length| {
            *end += *length as u32;
            Some(*end)
        });
        let starts: Vec<u32> = [0].into_iter().chain(ends).collect();
        let mut search = Search::new(pieces, &coder.symbols().1);
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
    fn the_strings_with_the_pieces_are_found() {
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
    fn few_strings_and_empty_ones_are_searched() {
        let symbols = Coder::train(&[b"abc".as_slice()]).symbols().1;
        let mut search = Search::new(&[b"b"], &symbols);
        let mut found = Vec::new();
        search.find(&[], &[0], &mut found);
        assert!(found.is_empty());
        search.find(&[ESCAPE, b'b'], &[0, 0, 0, 2, 2], &mut found);
        assert_eq!(found, [2]);
    }
}
