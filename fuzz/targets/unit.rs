//! Arbitrary bytes as a compression unit, arbitrary pages through the encoder, and damaged units: nothing panics, and every
//! encoded page is rebuilt byte for byte.
//!
//! Bits of the first byte select the mode. A build with `cfg(fuzzing)` skips checksums, so that damage reaches the decoders.

#![no_main]

use cellar_format::postgres::{Align, Width, type_oid};
use cellar_format::units::BLOCK_BYTES;
use cellar_scan::unit::{Attribute, Level, Rebuilder, Shape, Unit, encode, verify};
use libfuzzer_sys::fuzz_target;

/// Bits of the first byte. Encodes the input as pages; otherwise the input is a unit.
const ENCODE: u8 = 1;
/// Writes valid page headers into the pages.
const VALID_HEADERS: u8 = 2;
/// Encodes at QUERY HIGH; otherwise at QUERY LOW.
const QUERY_HIGH: u8 = 4;
/// Overwrites some bytes of the encoded unit.
const DAMAGE: u8 = 8;

fn shape() -> Shape {
    let attribute = |type_oid, width, align| Attribute { type_oid, width, align, by_value: false, dropped: false };
    Shape {
        attributes: vec![
            attribute(type_oid::INT4, Width::Fixed(4), Align::Int),
            attribute(type_oid::TEXT, Width::Varlena, Align::Int),
            attribute(type_oid::NUMERIC, Width::Varlena, Align::Int),
            attribute(type_oid::FLOAT8, Width::Fixed(8), Align::Double),
            attribute(2275, Width::Cstring, Align::Char),
            attribute(type_oid::NAME, Width::Fixed(64), Align::Char),
        ],
    }
}

/// Opens the bytes as a unit, rebuilds its pages and reads the directory entries of all columns. Ignores errors.
fn read(bytes: &[u8]) {
    let Ok(unit) = Unit::open(&bytes) else { return };
    let mut rebuilder = Rebuilder::new();
    let mut page = [0; BLOCK_BYTES];
    for number in 0..unit.pages().len().min(64) {
        let _ = rebuilder.page(&unit, &bytes, number, &mut page);
        let _ = unit.row_lines(&bytes, number);
        let _ = unit.page_of_row(number);
    }
    for chunk in unit.chunks() {
        let _ = unit.visibility(chunk);
    }
    for index in 0..unit.shape().attributes.len() {
        unit.column(index).for_each(|chunk| drop((chunk.bounds(), chunk.encoding_name(), chunk.data_bytes())));
    }
}

fuzz_target!(|data: &[u8]| {
    let [pick, rest @ ..] = data else { return };
    if pick & ENCODE == 0 {
        return read(rest);
    }
    // Two pages, filled from the front and from the back. With VALID_HEADERS, pd_lower, pd_upper and pd_special are
    // consistent, so that the encoder sees line pointers and tuples.
    let mut pages = vec![0; 2 * BLOCK_BYTES];
    for (page, half) in pages.chunks_exact_mut(BLOCK_BYTES).zip(rest.chunks(rest.len() / 2 + 1)) {
        let (head, tail) = half.split_at(half.len() / 3);
        let (head, tail) = (&head[..head.len().min(BLOCK_BYTES)], &tail[..tail.len().min(BLOCK_BYTES)]);
        page[BLOCK_BYTES - tail.len()..].copy_from_slice(tail);
        page[..head.len()].copy_from_slice(head);
        if pick & VALID_HEADERS != 0 {
            let lower = (head.len().max(24) as u16) & !3;
            page[12..14].copy_from_slice(&lower.to_le_bytes());
            page[16..18].copy_from_slice(&(BLOCK_BYTES as u16).to_le_bytes());
            page[18..20].copy_from_slice(&(BLOCK_BYTES as u16 | 4).to_le_bytes());
        }
    }
    let level = Level::ALL[usize::from(pick & QUERY_HIGH != 0)];
    let mut bytes = encode(&pages, &shape(), level).expect("all pages can be encoded");
    assert_eq!(verify(&bytes, &pages).expect("an encoded unit can be read"), None);
    read(&bytes);
    if pick & DAMAGE != 0 {
        // Three bytes of the input, taken from its end, are the offset and the new value of one byte.
        for damage in rest.rchunks_exact(3).take(8) {
            let at = usize::from(u16::from_le_bytes([damage[0], damage[1]])) % bytes.len();
            bytes[at] = damage[2];
        }
        read(&bytes);
    }
});
