//! FSST: strings as codes of symbols of up to eight bytes, each decoded alone.
//!
//! Which symbols there are the `fsst` crate finds out. Source: Boncz, Neumann, Leis, *FSST: Fast Random Access String
//! Compression*, VLDB 2020.

use super::source::{Data, Part, Result, corrupt};
use super::strings::start_of;
use cellar_format::bytes::{Reader, Write};

/// The next byte stands for itself.
pub(super) const ESCAPE: u8 = 255;
/// Strings from which symbols are learnt.
const TRAINING: usize = 2048;

/// A symbol table, filled up so that every code has a symbol.
#[derive(Debug)]
pub(super) struct Symbols {
    words: [u64; 256],
    lengths: [u8; 256],
}

/// Room for the longest symbols, and for writing eight bytes at the end.
pub(super) fn room_for(coded_bytes: usize) -> usize {
    coded_bytes * 8 + 8
}

impl Symbols {
    pub fn read(data: Data<'_>, part: Part) -> Result<Box<Self>> {
        let bytes = data.read(part, "symbol table")?;
        let mut reader = Reader::new(&bytes);
        let count = reader.u8("symbols")? as usize;
        // A code without a symbol decodes to a zero byte.
        let mut symbols = Box::new(Self { words: [0; 256], lengths: [1; 256] });
        for (index, length) in reader.take(count, "symbol lengths")?.iter().enumerate() {
            if !(1..=8).contains(length) {
                return corrupt("symbol length", part.offset as usize, length.to_string());
            }
            symbols.lengths[index] = *length;
        }
        for index in 0..count {
            symbols.words[index] = reader.u64("symbol")?;
        }
        reader.finish("symbol table")?;
        Ok(symbols)
    }

    /// What a code stands for that is no escape.
    pub fn bytes(&self, code: u8) -> impl Iterator<Item = u8> {
        let (word, length) = (self.words[code as usize], self.lengths[code as usize]);
        word.to_le_bytes().into_iter().take(length as usize)
    }

    /// Writes what `coded` stands for to the front of `room`, which is large enough, and returns its length.
    #[inline(always)]
    pub fn decode_into(&self, coded: &[u8], room: &mut [u8]) -> usize {
        let (mut at, mut end) = (0, 0);
        while let Some(code) = coded.get(at) {
            at += 1;
            if *code == ESCAPE {
                room[end] = coded.get(at).copied().unwrap_or(0);
                at += 1;
                end += 1;
            } else {
                room[end..end + 8].copy_from_slice(&self.words[*code as usize].to_le_bytes());
                end += self.lengths[*code as usize] as usize;
            }
        }
        end
    }
}

/// A code, and above it how many bytes it stands for: one number, so that a choice between two needs no branch.
#[derive(Debug, Clone, Copy)]
struct Code(u16);

impl Code {
    const ESCAPE: Self = Self::new(ESCAPE, 1);

    const fn new(code: u8, length: u8) -> Self {
        Self(code as u16 | (length as u16) << 8)
    }

    fn code(self) -> u8 {
        self.0 as u8
    }

    fn length(self) -> usize {
        (self.0 >> 8) as usize
    }
}

/// A symbol of three bytes or more.
#[derive(Debug, Clone, Copy)]
struct Long {
    word: u64,
    mask: u64,
    code: Code,
}

/// As many as the crate's own table has, whose training keeps one symbol of those with the same [`slot`].
const SLOTS: usize = 1 << 11;

fn slot(word: u64) -> usize {
    let start = word & 0xff_ffff;
    (start.wrapping_mul(2_971_215_073) ^ start >> 15) as usize % SLOTS
}

/// Encodes strings, always by the longest symbol that they go on with.
pub(super) struct Coder {
    words: Vec<u64>,
    lengths: Vec<u8>,
    /// By the next byte: it alone, or an escape.
    one: [Code; 1 << 8],
    /// By the next two bytes: both, or as above.
    two: Box<[Code; 1 << 16]>,
    /// By [`slot`].
    long: Box<[Long; SLOTS]>,
}

impl Coder {
    /// Learns symbols from some of the strings, from everywhere among them.
    pub fn train(strings: &[&[u8]]) -> Self {
        let step = (strings.len() / TRAINING).max(1);
        let training: Vec<&[u8]> = strings.iter().copied().filter(|string| !string.is_empty()).step_by(step).collect();
        let trained = fsst::Compressor::train(&training);
        let symbols = trained.symbol_table().iter().zip(trained.symbol_lengths()).take(ESCAPE as usize);
        let (words, lengths): (Vec<u64>, Vec<u8>) = symbols.map(|(word, length)| (word.to_u64(), *length)).unzip();

        let codes = || (0..=u8::MAX).zip(&words).zip(&lengths);
        let mut one = [Code::ESCAPE; 1 << 8];
        for ((code, word), length) in codes().filter(|(_, length)| **length == 1) {
            one[*word as usize % one.len()] = Code::new(code, *length);
        }
        let mut two = vec![one; 1 << 8].into_flattened();
        // No string goes on with all of more bytes than there are.
        let none = Long { word: 1, mask: 0, code: Code::ESCAPE };
        let mut long = vec![none; SLOTS];
        for ((code, word), length) in codes() {
            let code = Code::new(code, *length);
            match length {
                0 | 1 => {}
                2 => two[*word as usize % (1 << 16)] = code,
                _ => long[slot(*word)] = Long { word: *word, mask: u64::MAX >> (64 - 8 * *length), code },
            }
        }
        let two = two.into_boxed_slice().try_into().expect("a code for any two bytes");
        let long = long.into_boxed_slice().try_into().expect("a symbol for any slot");
        Self { words, lengths, one, two, long }
    }

    /// The table's bytes in the data section, and the table.
    pub fn symbols(&self) -> (Vec<u8>, Box<Symbols>) {
        let Self { words, lengths, .. } = self;
        let mut table = Box::new(Symbols { words: [0; 256], lengths: [1; 256] });
        table.words[..words.len()].copy_from_slice(words);
        table.lengths[..lengths.len()].copy_from_slice(lengths);
        let mut bytes = vec![words.len() as u8];
        bytes.extend_from_slice(lengths);
        words.iter().for_each(|word| bytes.put_u64(*word));
        (bytes, table)
    }

    /// Appends the codes of strings, and how many bytes they are for each.
    pub fn encode(&self, strings: &[&[u8]], lengths: &mut Vec<u64>, out: &mut Vec<u8>) {
        let mut room = Vec::new();
        for group in strings.chunks(GROUP) {
            let mut end = 0;
            let mut codings: [Coding<'_>; GROUP] = std::array::from_fn(|index| {
                let (string, start) = (group.get(index).copied().unwrap_or_default(), end);
                end += CODE_BYTES_MAX * (string.len() + 1);
                Coding { string, at: 0, start, end: start }
            });
            if room.len() < end {
                room.resize(end, 0);
            }
            while codings.iter().any(|coding| coding.at < coding.string.len()) {
                codings.iter_mut().for_each(|coding| coding.step(self, &mut room));
            }
            for coding in &codings[..group.len()] {
                lengths.push((coding.end - coding.start) as u64);
                out.extend_from_slice(&room[coding.start..coding.end]);
            }
        }
    }
}

/// Strings that are encoded at the same time: each step in one of them waits for the one before.
const GROUP: usize = 4;
const CODE_BYTES_MAX: usize = 2;

/// A string on its way, and its codes in a room.
struct Coding<'a> {
    string: &'a [u8],
    at: usize,
    start: usize,
    end: usize,
}

impl Coding<'_> {
    /// Puts down the next code; at the string's end nothing.
    #[inline(always)]
    fn step(&mut self, coder: &Coder, room: &mut [u8]) {
        let left = self.string.len() - self.at;
        let (word, skip) = match self.string.last_chunk() {
            Some(last) if left < 8 => (u64::from_le_bytes(*last), 8 - left),
            Some(_) => (self.string[self.at..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word)), 0),
            None => (start_of(self.string).swap_bytes(), self.at),
        };
        // What lies behind the string is zeroes.
        let word = word >> (8 * skip as u32 % u64::BITS);
        let long = &coder.long[slot(word)];
        let is_long = (word & long.mask == long.word) & (long.code.length() <= left);
        let short = if left == 1 { coder.one[word as usize % 256] } else { coder.two[word as usize % (1 << 16)] };
        // Text does not foretell which of them it is.
        let code = Code(std::hint::select_unpredictable(is_long, long.code.0, short.0));
        room[self.end..self.end + CODE_BYTES_MAX].copy_from_slice(&[code.code(), word as u8]);
        let goes_on = usize::from(left > 0);
        self.end += (1 + usize::from(code.code() == ESCAPE)) * goes_on;
        self.at += code.length() * goes_on;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_of_any_length_and_bytes_come_back_and_text_becomes_short() {
        let texts = (0..3000).map(|index: usize| {
            let words = ["carefully", "final", "deposits", "sleep", "quickly", "", "a", "pinto beans"];
            let pick = |shift: u32| words[(index.wrapping_mul(2_654_435_761) >> shift) % words.len()];
            format!("{}{}{}", pick(5), pick(11), pick(17)).into_bytes()
        });
        // Zeroes at ends: what lies behind a string is no part of it.
        let zeroes = (0..40).map(|length| vec![0; length]);
        let others = (0..300).map(|index: usize| (0..index % 29).map(|at| (index * at * 7) as u8 & 0x83).collect());
        let strings: Vec<Vec<u8>> = texts.chain(zeroes).chain(others).collect();
        let strings: Vec<&[u8]> = strings.iter().map(Vec::as_slice).collect();
        let coder = Coder::train(&strings);
        let (mut lengths, mut coded) = (Vec::new(), Vec::new());
        coder.encode(&strings, &mut lengths, &mut coded);
        assert_eq!(lengths.len(), strings.len());
        let (_, symbols) = coder.symbols();
        let mut at = 0;
        for (string, length) in strings.iter().zip(&lengths) {
            let codes = &coded[at..at + *length as usize];
            let mut room = vec![0; room_for(codes.len())];
            let end = symbols.decode_into(codes, &mut room);
            assert_eq!(&room[..end], *string);
            at += codes.len();
        }
        assert_eq!(at, coded.len());
        assert!(coded.len() * 2 < strings.concat().len(), "{} of {}", coded.len(), strings.concat().len());
    }
}
