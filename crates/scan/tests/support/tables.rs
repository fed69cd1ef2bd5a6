//! Random tables as heap pages: every kind of attribute, tuple header, line pointer and page that PostgreSQL writes,
//! and malformed ones.

use super::Random;
use cellar_format::postgres::{Align, Width, type_oid};
use cellar_format::units::BLOCK_BYTES;
use cellar_scan::unit::{Attribute, Shape};

const PAGE_HEADER_BYTES: usize = 24;
const TYPES: [(u32, i16, u8); 20] = [
    (type_oid::BOOL, 1, b'c'),
    (type_oid::CHAR, 1, b'c'),
    (type_oid::INT2, 2, b's'),
    (type_oid::INT4, 4, b'i'),
    (type_oid::INT8, 8, b'd'),
    (type_oid::OID, 4, b'i'),
    (type_oid::FLOAT4, 4, b'i'),
    (type_oid::FLOAT8, 8, b'd'),
    (type_oid::DATE, 4, b'i'),
    (type_oid::TIMESTAMP, 8, b'd'),
    (type_oid::NUMERIC, -1, b'i'),
    (type_oid::NUMERIC, -1, b'i'),
    (type_oid::TEXT, -1, b'i'),
    (type_oid::TEXT, -1, b'i'),
    (type_oid::BPCHAR, -1, b'i'),
    // polygon: a varlena with double alignment.
    (604, -1, b'd'),
    (type_oid::NAME, 64, b'c'),
    (type_oid::UUID, 16, b'c'),
    (type_oid::INTERVAL, 16, b'd'),
    (2275, -2, b'c'),
];

/// The distribution of a column's values.
#[derive(Clone, Copy)]
enum Distribution {
    Constant,
    Few,
    Rising,
    Any,
}

struct Column {
    attribute: Attribute,
    distribution: Distribution,
    /// On average, one in this many values is unusual; 0: no value is unusual.
    odd_one_in: usize,
    null_one_in: usize,
    next: u64,
}

pub struct Table {
    columns: Vec<Column>,
    natts_min: usize,
    updates: bool,
    damage: bool,
}

impl Table {
    pub fn random(random: &mut Random) -> Self {
        let count = 1 + random.below(12);
        let columns: Vec<Column> = (0..count)
            .map(|_| {
                let (oid, typlen, typalign) = *random.pick(&TYPES);
                let width = Width::from_typlen(typlen).unwrap();
                let dropped = random.one_in(10);
                let attribute = Attribute {
                    type_oid: if dropped { 0 } else { oid },
                    width,
                    align: Align::from_typalign(typalign).unwrap(),
                    by_value: matches!(width, Width::Fixed(1..=8)),
                    dropped,
                };
                Column {
                    attribute,
                    distribution: *random.pick(&[
                        Distribution::Constant,
                        Distribution::Few,
                        Distribution::Rising,
                        Distribution::Any,
                    ]),
                    odd_one_in: *random.pick(&[0, 0, 2, 50]),
                    null_one_in: *random.pick(&[0, 0, 3, 40]),
                    next: random.next() >> 20,
                }
            })
            .collect();
        Self {
            natts_min: if random.one_in(3) { 1 + random.below(count) } else { count },
            columns,
            updates: random.one_in(2),
            damage: random.one_in(3),
        }
    }

    /// Returns a table with these attributes, and random distributions of values and NULLs.
    pub fn with(random: &mut Random, attributes: &[Attribute]) -> Self {
        let columns = attributes.iter().map(|attribute| Column {
            attribute: *attribute,
            distribution: *random.pick(&[
                Distribution::Constant,
                Distribution::Few,
                Distribution::Few,
                Distribution::Rising,
                Distribution::Any,
            ]),
            odd_one_in: *random.pick(&[0, 0, 50]),
            null_one_in: *random.pick(&[0, 0, 8]),
            next: random.next() >> random.pick(&[24, 50]),
        });
        let columns: Vec<Column> = columns.collect();
        let natts_min = if random.one_in(4) { 1 + random.below(columns.len()) } else { columns.len() };
        Self { natts_min, columns, updates: random.one_in(2), damage: random.one_in(4) }
    }

    pub fn shape(&self) -> Shape {
        Shape { attributes: self.columns.iter().map(|column| column.attribute).collect() }
    }

    pub fn pages(&mut self, random: &mut Random, count: usize) -> Vec<u8> {
        let mut pages = Vec::with_capacity(count * BLOCK_BYTES);
        let block = random.next() as u32;
        let mut lsn = random.next() >> 16;
        for index in 0..count {
            lsn += random.below(5000) as u64;
            let page = match random.below(if self.damage { 12 } else { 200 }) {
                0 => vec![0; BLOCK_BYTES],
                1 => (0..BLOCK_BYTES).map(|_| random.next() as u8).collect(),
                2 => {
                    let mut page = self.page(random, block.wrapping_add(index as u32), lsn);
                    for _ in 0..1 + random.below(20) {
                        let end = *random.pick(&[24, 400, BLOCK_BYTES]);
                        let at = random.below(end);
                        page[at] = random.next() as u8;
                    }
                    page
                }
                _ => self.page(random, block.wrapping_add(index as u32), lsn),
            };
            pages.extend(page);
        }
        pages
    }

    fn page(&mut self, random: &mut Random, block: u32, lsn: u64) -> Vec<u8> {
        let mut page = vec![0; BLOCK_BYTES];
        if random.one_in(3) {
            // Pruning leaves old bytes in the free space.
            page[3000..6000].iter_mut().for_each(|byte| *byte = random.next() as u8);
        }
        let limit = if random.one_in(8) { random.below(4) } else { 200 };
        let mut tuples: Vec<(usize, Vec<u8>)> = Vec::new();
        let mut pointers: Vec<u32> = Vec::new();
        let mut free_space = BLOCK_BYTES - PAGE_HEADER_BYTES;
        while pointers.len() < limit {
            let line = pointers.len() as u16 + 1;
            if self.updates && random.one_in(6) {
                pointers.push(match random.below(4) {
                    0 => 0,
                    1 => (1 + random.below(200) as u32) | 2 << 15,
                    2 => 3 << 15,
                    _ => (random.next() as u32 & !(3 << 15)) | 3 << 15,
                });
                free_space = free_space.saturating_sub(4);
                continue;
            }
            let tuple = self.tuple(random, block, line);
            let bytes = tuple.len().next_multiple_of(8) + 4;
            if bytes > free_space.saturating_sub(64) {
                break;
            }
            free_space -= bytes;
            tuples.push((pointers.len(), tuple));
            pointers.push(1 << 15);
        }
        if self.updates && random.one_in(2) {
            // Reused line pointers do not follow the order of tuples.
            for at in 0..tuples.len() {
                let other = random.below(tuples.len());
                tuples.swap(at, other);
            }
        }
        let mut upper = BLOCK_BYTES;
        for (line, tuple) in &tuples {
            let gap = if self.updates && random.one_in(10) && free_space > 100 { 8 * random.below(3) } else { 0 };
            free_space = free_space.saturating_sub(gap);
            upper -= tuple.len().next_multiple_of(8) + gap;
            page[upper..upper + tuple.len()].copy_from_slice(tuple);
            pointers[*line] |= upper as u32 | (tuple.len() as u32) << 17;
        }
        let lower = PAGE_HEADER_BYTES + 4 * pointers.len();
        for (index, pointer) in pointers.iter().enumerate() {
            page[PAGE_HEADER_BYTES + 4 * index..][..4].copy_from_slice(&pointer.to_le_bytes());
        }
        if random.one_in(20) {
            upper -= 8.min(upper - lower);
        }
        page[0..4].copy_from_slice(&((lsn >> 32) as u32).to_le_bytes());
        page[4..8].copy_from_slice(&(lsn as u32).to_le_bytes());
        page[8..10].copy_from_slice(&(random.next() as u16).to_le_bytes());
        page[10..12].copy_from_slice(&(random.below(8) as u16).to_le_bytes());
        page[12..14].copy_from_slice(&(lower as u16).to_le_bytes());
        page[14..16].copy_from_slice(&(upper as u16).to_le_bytes());
        page[16..18].copy_from_slice(&(BLOCK_BYTES as u16).to_le_bytes());
        page[18..20].copy_from_slice(&(BLOCK_BYTES as u16 | 4).to_le_bytes());
        if self.updates {
            page[20..24].copy_from_slice(&(700 + random.below(50) as u32).to_le_bytes());
        }
        page
    }

    fn tuple(&mut self, random: &mut Random, block: u32, line: u16) -> Vec<u8> {
        let natts = self.natts_min + random.below(self.columns.len() - self.natts_min + 1);
        let nulls: Vec<bool> = self.columns[..natts]
            .iter()
            .map(|column| column.null_one_in > 0 && random.one_in(column.null_one_in))
            .collect();
        let has_nulls = nulls.contains(&true);
        let bitmap = if has_nulls { natts.div_ceil(8) } else { 0 };
        let data = (23 + bitmap).next_multiple_of(8);
        let mut tuple = vec![0; data];
        let (mut xmax, mut infomask, mut infomask2) = (0u32, 0x0800u16 | 0x0100, natts as u16);
        let (mut to_block, mut to_line) = (block, line);
        if self.updates {
            match random.below(6) {
                // HOT-updated; updated to another page; locked; inserted by an aborted transaction; xmax is a
                // multixact; no hint bits.
                0 => (xmax, infomask, infomask2, to_line) = (900, 0x0100, infomask2 | 0x4000, line.wrapping_add(3)),
                1 => (xmax, infomask, to_block, to_line) = (901, 0x0500, random.next() as u32, 7),
                2 => (xmax, infomask) = (902, 0x0100 | 0x0080 | 0x0040),
                3 => infomask = 0x0a00,
                4 => (xmax, infomask) = (77, 0x1100),
                _ => infomask = 0x0800,
            }
        } else if random.one_in(2) {
            infomask |= 0x0200;
        }
        let xmin = 800 + if self.updates { random.below(60) as u32 } else { 0 };
        tuple[0..4].copy_from_slice(&xmin.to_le_bytes());
        tuple[4..8].copy_from_slice(&xmax.to_le_bytes());
        tuple[8..12].copy_from_slice(&(if self.updates { random.below(3) as u32 } else { 0 }).to_le_bytes());
        tuple[12..14].copy_from_slice(&((to_block >> 16) as u16).to_le_bytes());
        tuple[14..16].copy_from_slice(&(to_block as u16).to_le_bytes());
        tuple[16..18].copy_from_slice(&to_line.to_le_bytes());
        for (index, is_null) in nulls.iter().enumerate().filter(|_| has_nulls) {
            tuple[23 + index / 8] |= u8::from(!is_null) << (index % 8);
        }
        infomask |= u16::from(has_nulls) | 0x0002;
        tuple[18..20].copy_from_slice(&infomask2.to_le_bytes());
        tuple[20..22].copy_from_slice(&infomask.to_le_bytes());
        tuple[22] = data as u8;
        for (column, _) in self.columns[..natts].iter_mut().zip(&nulls).filter(|(_, is_null)| !**is_null) {
            let datum = column.datum(random);
            let short = column.attribute.width == Width::Varlena && datum[0] & 1 == 1;
            if !short && column.attribute.width != Width::Cstring {
                tuple.resize(data + column.attribute.align.up(tuple.len() - data), 0);
            }
            tuple.extend(datum);
        }
        tuple
    }
}

impl Column {
    fn datum(&mut self, random: &mut Random) -> Vec<u8> {
        self.next += random.below(3) as u64;
        let value = match self.distribution {
            Distribution::Constant => self.next >> 40,
            Distribution::Few => random.below(9) as u64 * 1_000_003,
            Distribution::Rising => self.next,
            Distribution::Any => random.next() >> random.below(60),
        };
        let odd = self.odd_one_in > 0 && random.one_in(self.odd_one_in);
        match self.attribute.width {
            Width::Fixed(bytes) => {
                let mut datum = value.to_le_bytes().to_vec();
                match self.attribute.type_oid {
                    type_oid::FLOAT8 if odd => datum = random.pick(&FLOATS).to_le_bytes().to_vec(),
                    type_oid::FLOAT8 => datum = (value as f64 / 8.0).to_le_bytes().to_vec(),
                    type_oid::FLOAT4 if odd => datum = (*random.pick(&FLOATS) as f32).to_le_bytes().to_vec(),
                    _ => {}
                }
                datum.resize(bytes as usize, if odd { 0xff } else { b'.' });
                datum
            }
            Width::Cstring => format!("{value}\0").into_bytes(),
            Width::Varlena if self.attribute.type_oid == type_oid::NUMERIC => numeric(random, value, odd),
            Width::Varlena => {
                let words = ["", "express", "deposits sleep", "pinto beans", "\0", "é日本"];
                let mut payload = format!("{} {value}", random.pick(&words)).into_bytes();
                if odd {
                    return odd_varlena(random, payload);
                }
                if random.one_in(30) {
                    payload.resize(100 + random.below(500), b'x');
                }
                varlena(&payload)
            }
        }
    }
}

const FLOATS: [f64; 6] = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, 0.0, 1e-300];

fn varlena(payload: &[u8]) -> Vec<u8> {
    if payload.len() <= 126 {
        return [&[((payload.len() + 1) << 1 | 1) as u8], payload].concat();
    }
    [&((payload.len() as u32 + 4) << 2).to_le_bytes(), payload].concat()
}

fn odd_varlena(random: &mut Random, payload: Vec<u8>) -> Vec<u8> {
    match random.below(3) {
        // A long header on a short value; a TOAST pointer; an inline compressed value.
        0 => [&((payload.len() as u32 + 4) << 2).to_le_bytes(), payload.as_slice()].concat(),
        1 => [&[1, 18], [random.next().to_le_bytes(), random.next().to_le_bytes()].concat().as_slice()].concat(),
        _ => {
            let header = ((payload.len() as u32 + 8) << 2 | 2).to_le_bytes();
            [&header, &[90, 0, 0, 0][..], payload.as_slice()].concat()
        }
    }
}

/// Returns a numeric with two decimals. If `odd`: another scale, NaN, infinity, very long, or with digits that
/// PostgreSQL never stores.
fn numeric(random: &mut Random, value: u64, odd: bool) -> Vec<u8> {
    let value = value % 1_000_000_000_000;
    let scale = if odd { random.below(9) as u16 } else { 2 };
    let header = |scale: u16, weight: i16, negative: bool| {
        0x8000u16 | u16::from(negative) << 13 | scale << 7 | (weight as u16 & 0x7f)
    };
    let payload = |header: u16, digits: &[u16]| {
        [header.to_le_bytes().to_vec(), digits.iter().flat_map(|digit| digit.to_le_bytes()).collect()].concat()
    };
    if odd && random.one_in(2) {
        return varlena(&match random.below(5) {
            0 => payload(*random.pick(&[0xc000, 0xd000, 0xf000]), &[]),
            1 => payload(header(2, 20, false), &[7; 21]),
            2 => payload(header(2, 1, true), &[0, 5, 0]),
            3 => payload(3, &[0xffff, 9, 9999]),
            _ => payload(header(2, 0, false), &[12345]),
        });
    }
    // A whole number of hundredths.
    let (whole, fraction) = (value / 100, value % 100 * 100);
    let mut digits: Vec<u16> =
        [whole / 100_000_000, whole / 10_000 % 10_000, whole % 10_000, fraction].map(|digit| digit as u16).to_vec();
    let mut weight = 2;
    while digits.first() == Some(&0) {
        digits.remove(0);
        weight -= 1;
    }
    while digits.last() == Some(&0) {
        digits.pop();
    }
    if digits.is_empty() {
        weight = 0;
    }
    let negative = random.one_in(3) && !digits.is_empty();
    varlena(&payload(header(scale, weight, negative), &digits))
}
