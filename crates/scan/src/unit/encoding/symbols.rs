//! FSST: encodes a string as one-byte codes of symbols of up to eight bytes. Strings can be decoded one by one.
//!
//! The `fsst` crate chooses the symbols; encoding and decoding are here. Source: Boncz, Neumann, Leis, *FSST: Fast Random
//! Access String Compression*, VLDB 2020.

use super::super::section::{DataSection, Part, Result, corrupt};
use super::first_bytes;
use cellar_format::bytes::{Reader, Write};

/// The code before a byte that is stored literally.
pub const ESCAPE: u8 = 255;
/// Minimum number of strings in the sample that the symbols are chosen from.
const TRAINING_ROWS: usize = 2048;

/// The symbol of each code. Unused codes have a symbol of one zero byte.
#[derive(Debug)]
pub struct SymbolTable {
    words: [u64; 256],
    lengths: [u8; 256],
}

/// Required size of a buffer for [`SymbolTable::decode_into`]: every symbol may have eight bytes, and every symbol is written as
/// eight bytes.
pub fn decoded_bytes_max(code_bytes: usize) -> usize {
    code_bytes * 8 + 8
}

impl SymbolTable {
    pub fn read(section: DataSection<'_>, part: Part) -> Result<Box<Self>> {
        let bytes = section.read(part, "symbol table")?;
        let mut reader = Reader::new(&bytes);
        let count = reader.u8("symbols")? as usize;
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

    /// The symbol of a code other than [`ESCAPE`].
    pub fn bytes(&self, code: u8) -> impl Iterator<Item = u8> {
        let (word, length) = (self.words[code as usize], self.lengths[code as usize]);
        word.to_le_bytes().into_iter().take(length as usize)
    }

    /// Decodes a string to the front of `out`, which has at least [`decoded_bytes_max`] bytes, and returns the string's length.
    #[inline(always)]
    pub fn decode_into(&self, codes: &[u8], out: &mut [u8]) -> usize {
        let (mut at, mut end) = (0, 0);
        while let Some(code) = codes.get(at) {
            at += 1;
            if *code == ESCAPE {
                out[end] = codes.get(at).copied().unwrap_or(0);
                at += 1;
                end += 1;
            } else {
                out[end..end + 8].copy_from_slice(&self.words[*code as usize].to_le_bytes());
                end += self.lengths[*code as usize] as usize;
            }
        }
        end
    }
}

/// A code in the low byte and its symbol's length in the high byte: one number, so that selecting one of two needs no branch.
#[derive(Debug, Clone, Copy)]
struct SizedCode(u16);

impl SizedCode {
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
struct LongSymbol {
    word: u64,
    mask: u64,
    code: SizedCode,
}

/// As many slots as the `fsst` crate's table has: its training keeps one symbol per [`slot`].
const SLOTS: usize = 1 << 11;

fn slot(word: u64) -> usize {
    let start = word & 0xff_ffff;
    (start.wrapping_mul(2_971_215_073) ^ start >> 15) as usize % SLOTS
}

/// Encodes strings greedily: the longest symbol that matches comes next.
pub struct SymbolEncoder {
    words: Vec<u64>,
    lengths: Vec<u8>,
    /// By the next byte: the code of that byte, or an escape.
    one: [SizedCode; 1 << 8],
    /// By the next two bytes: the code of both, or else of the first byte.
    two: Box<[SizedCode; 1 << 16]>,
    /// By [`slot`].
    long: Box<[LongSymbol; SLOTS]>,
}

impl SymbolEncoder {
    /// Chooses symbols from a sample of evenly spaced strings.
    pub fn train(strings: &[&[u8]]) -> Self {
        let step = (strings.len() / TRAINING_ROWS).max(1);
        let training: Vec<&[u8]> = strings.iter().copied().filter(|string| !string.is_empty()).step_by(step).collect();
        let trained = fsst::Compressor::train(&training);
        let symbols = trained.symbol_table().iter().zip(trained.symbol_lengths()).take(ESCAPE as usize);
        let (words, lengths): (Vec<u64>, Vec<u8>) = symbols.map(|(word, length)| (word.to_u64(), *length)).unzip();

        let codes = || (0..=u8::MAX).zip(&words).zip(&lengths);
        let mut one = [SizedCode::ESCAPE; 1 << 8];
        for ((code, word), length) in codes().filter(|(_, length)| **length == 1) {
            one[*word as usize % one.len()] = SizedCode::new(code, *length);
        }
        let mut two = vec![one; 1 << 8].into_flattened();
        // Never matches: a masked word is 0, not 1.
        let none = LongSymbol { word: 1, mask: 0, code: SizedCode::ESCAPE };
        let mut long = vec![none; SLOTS];
        for ((code, word), length) in codes() {
            let code = SizedCode::new(code, *length);
            match length {
                0 | 1 => {}
                2 => two[*word as usize % (1 << 16)] = code,
                _ => long[slot(*word)] = LongSymbol { word: *word, mask: u64::MAX >> (64 - 8 * *length), code },
            }
        }
        let two = two.into_boxed_slice().try_into().expect("a code for any two bytes");
        let long = long.into_boxed_slice().try_into().expect("a symbol for any slot");
        Self { words, lengths, one, two, long }
    }

    /// The table as bytes of the data section, and the decoded table.
    pub fn table(&self) -> (Vec<u8>, Box<SymbolTable>) {
        let Self { words, lengths, .. } = self;
        let mut table = Box::new(SymbolTable { words: [0; 256], lengths: [1; 256] });
        table.words[..words.len()].copy_from_slice(words);
        table.lengths[..lengths.len()].copy_from_slice(lengths);
        let mut bytes = vec![words.len() as u8];
        bytes.extend_from_slice(lengths);
        words.iter().for_each(|word| bytes.put_u64(*word));
        (bytes, table)
    }

    /// Appends the strings' codes to `out`, and each string's number of code bytes to `lengths`.
    pub fn encode(&self, strings: &[&[u8]], lengths: &mut Vec<u64>, out: &mut Vec<u8>) {
        let mut buffer = Vec::new();
        for group in strings.chunks(GROUP) {
            let mut end = 0;
            let mut strings: [EncodedString<'_>; GROUP] = std::array::from_fn(|index| {
                let (string, start) = (group.get(index).copied().unwrap_or_default(), end);
                end += CODE_BYTES_MAX * (string.len() + 1);
                EncodedString { string, at: 0, start, end: start }
            });
            if buffer.len() < end {
                buffer.resize(end, 0);
            }
            while strings.iter().any(|string| string.at < string.string.len()) {
                strings.iter_mut().for_each(|string| string.step(self, &mut buffer));
            }
            for string in &strings[..group.len()] {
                lengths.push((string.end - string.start) as u64);
                out.extend_from_slice(&buffer[string.start..string.end]);
            }
        }
    }
}

/// Strings encoded in turns. Each step depends on the previous step of the same string, so steps of several strings overlap.
const GROUP: usize = 4;
const CODE_BYTES_MAX: usize = 2;

/// A string whose bytes before `at` are encoded; their codes are `start..end` of a buffer.
struct EncodedString<'a> {
    string: &'a [u8],
    at: usize,
    start: usize,
    end: usize,
}

impl EncodedString<'_> {
    /// Writes the next code. Does nothing at the string's end.
    #[inline(always)]
    fn step(&mut self, encoder: &SymbolEncoder, buffer: &mut [u8]) {
        let left = self.string.len() - self.at;
        let (word, skip) = match self.string.last_chunk() {
            Some(last) if left < 8 => (u64::from_le_bytes(*last), 8 - left),
            Some(_) => (self.string[self.at..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word)), 0),
            None => (first_bytes(self.string).swap_bytes(), self.at),
        };
        // Shifts in zeros for the bytes after the string.
        let word = word >> (8 * skip as u32 % u64::BITS);
        let long = &encoder.long[slot(word)];
        let is_long = (word & long.mask == long.word) & (long.code.length() <= left);
        let short = if left == 1 { encoder.one[word as usize % 256] } else { encoder.two[word as usize % (1 << 16)] };
        // Whether a long symbol matches is unpredictable in text, so a branch would be mispredicted often.
        let code = SizedCode(std::hint::select_unpredictable(is_long, long.code.0, short.0));
        buffer[self.end..self.end + CODE_BYTES_MAX].copy_from_slice(&[code.code(), word as u8]);
        let is_inside = usize::from(left > 0);
        self.end += (1 + usize::from(code.code() == ESCAPE)) * is_inside;
        self.at += code.length() * is_inside;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_of_any_length_and_bytes_decode_to_themselves_and_text_shrinks() {
        let texts = (0..3000).map(|index: usize| {
            let words = ["carefully", "final", "deposits", "sleep", "quickly", "", "a", "pinto beans"];
            let pick = |shift: u32| words[(index.wrapping_mul(2_654_435_761) >> shift) % words.len()];
            format!("{}{}{}", pick(5), pick(11), pick(17)).into_bytes()
        });
        // Zero bytes at the end: the padding after a string is not part of the string.
        let zeroes = (0..40).map(|length| vec![0; length]);
        let others = (0..300).map(|index: usize| (0..index % 29).map(|at| (index * at * 7) as u8 & 0x83).collect());
        let strings: Vec<Vec<u8>> = texts.chain(zeroes).chain(others).collect();
        let strings: Vec<&[u8]> = strings.iter().map(Vec::as_slice).collect();
        let encoder = SymbolEncoder::train(&strings);
        let (mut lengths, mut coded) = (Vec::new(), Vec::new());
        encoder.encode(&strings, &mut lengths, &mut coded);
        assert_eq!(lengths.len(), strings.len());
        let (_, symbols) = encoder.table();
        let mut at = 0;
        for (string, length) in strings.iter().zip(&lengths) {
            let codes = &coded[at..at + *length as usize];
            let mut out = vec![0; decoded_bytes_max(codes.len())];
            let end = symbols.decode_into(codes, &mut out);
            assert_eq!(&out[..end], *string);
            at += codes.len();
        }
        assert_eq!(at, coded.len());
        assert!(coded.len() * 2 < strings.concat().len(), "{} of {}", coded.len(), strings.concat().len());
    }
}
