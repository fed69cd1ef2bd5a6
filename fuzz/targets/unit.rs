//! Fuzzes compression units in two ways; the first byte selects one. Any bytes as a unit: open it, rebuild every page, read every
//! column entry. Any bytes as pages: encode them and compare the rebuilt pages.
//!
//! A fuzzing build does not verify checksums, so that inputs reach the code behind them.

#![no_main]

use cellar_format::postgres::{Align, Width, type_oid};
use cellar_format::units::BLOCK_BYTES;
use cellar_scan::unit::{Attribute, Level, Rebuilder, Shape, Unit, encode, verify};
use libfuzzer_sys::fuzz_target;

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
    if pick & 1 == 0 {
        return read(rest);
    }
    // Two pages with the input at their front and end; bit 1 selects consistent page headers.
    let mut pages = vec![0; 2 * BLOCK_BYTES];
    for (page, half) in pages.chunks_exact_mut(BLOCK_BYTES).zip(rest.chunks(rest.len() / 2 + 1)) {
        let (head, tail) = half.split_at(half.len() / 3);
        let (head, tail) = (&head[..head.len().min(BLOCK_BYTES)], &tail[..tail.len().min(BLOCK_BYTES)]);
        page[BLOCK_BYTES - tail.len()..].copy_from_slice(tail);
        page[..head.len()].copy_from_slice(head);
        if pick & 2 != 0 {
            let lower = (head.len().max(24) as u16) & !3;
            page[12..14].copy_from_slice(&lower.to_le_bytes());
            page[16..18].copy_from_slice(&(BLOCK_BYTES as u16).to_le_bytes());
            page[18..20].copy_from_slice(&(BLOCK_BYTES as u16 | 4).to_le_bytes());
        }
    }
    let level = Level::ALL[*pick as usize >> 2 & 1];
    let bytes = encode(&pages, &shape(), level).expect("encode accepts any pages");
    assert_eq!(verify(&bytes, &pages).expect("a new unit can be read"), None);
    read(&bytes);
});
