//! A scan never panics on damaged pages: valid pages with seeded random damage, and random bytes. The cargo-fuzz target
//! `scan_page` covers more; this test needs no nightly toolchain. `CELLAR_SEED` and `CELLAR_CASES` choose the cases.

use crate::support::requests::requests;
use crate::support::{Random, setting};
use cellar_format::units::BLOCK_BYTES;
use cellar_format::wire::{ScanRequest, XidState};
use cellar_scan::{NoXids, Plan, Progress, ResultWriter, Scanner, XidLookup};
use std::sync::Arc;

/// Returns a state for every transaction.
struct AllKnown;

impl XidLookup for AllKnown {
    fn state(&self, xid: u32) -> Option<XidState> {
        XidState::from_u8((xid % 4) as u8)
    }
}

/// Returns a page of tuples with all eight columns; some have NULLs.
fn page(random: &mut Random, all_visible: bool) -> Vec<u8> {
    let mut page = vec![0; BLOCK_BYTES];
    let (mut lower, mut upper) = (24, BLOCK_BYTES);
    for row in 0..20u32 {
        let nulls = row % 5 == 0;
        let mut tuple = vec![0u8; 24];
        tuple[0..4].copy_from_slice(&(990 + row * 60).to_le_bytes());
        tuple[18] = 8;
        tuple[20..22].copy_from_slice(&(0x0800u16 | (0x0100 * (row as u16 % 2)) | u16::from(nulls)).to_le_bytes());
        tuple[22] = 24;
        tuple[23] = if nulls { 0b1110_1010 } else { 0 };
        if !nulls {
            tuple.extend((random.below(20) as u32).to_le_bytes());
        }
        tuple.extend(*b"\x13aaaabaaa");
        if !nulls {
            tuple.extend([0x0b, 0x01, 0x81, 42, 0]);
        }
        tuple.resize(tuple.len().next_multiple_of(8), 0);
        tuple.extend(1.25f64.to_le_bytes());
        if !nulls {
            tuple.extend(b"text\0");
        }
        tuple.extend([b'n'; 64]);
        tuple.resize(tuple.len().next_multiple_of(8), 0);
        tuple.extend(random.next().to_le_bytes());
        tuple.extend(77i32.to_le_bytes());
        upper = (upper - tuple.len()) / 8 * 8;
        page[upper..upper + tuple.len()].copy_from_slice(&tuple);
        let pointer = upper as u32 | 1 << 15 | (tuple.len() as u32) << 17;
        page[lower..lower + 4].copy_from_slice(&pointer.to_le_bytes());
        lower += 4;
    }
    page[10] = if all_visible { 4 } else { 0 };
    page[12..14].copy_from_slice(&(lower as u16).to_le_bytes());
    page[14..16].copy_from_slice(&(upper as u16).to_le_bytes());
    page[16..18].copy_from_slice(&(BLOCK_BYTES as u16).to_le_bytes());
    page[18..20].copy_from_slice(&(BLOCK_BYTES as u16 | 4).to_le_bytes());
    page
}

fn damage(random: &mut Random, page: &mut [u8]) {
    for _ in 0..1 + random.below(12) {
        // Damage in headers and line pointers exercises the most checks.
        let at = match random.below(4) {
            0 => random.below(24),
            1 => 24 + random.below(80),
            _ => random.below(page.len()),
        };
        page[at] = match random.below(3) {
            0 => random.next() as u8,
            1 => page[at] ^ (1 << random.below(8)),
            _ => *random.pick(&[0, 1, 2, 3, 18, 0x7f, 0x80, 0xff]),
        };
    }
}

#[test]
fn a_damaged_page_never_panics_the_scan() {
    let seed = setting("CELLAR_SEED", 1);
    let cases = setting("CELLAR_CASES", 3000);
    println!("CELLAR_SEED={seed} CELLAR_CASES={cases}");
    let mut random = Random::new(seed);
    let plans = requests().into_iter().map(|request| Plan::compile(&request).unwrap());
    let mut scanners: Vec<Scanner> = plans.map(|plan| Scanner::new(Arc::new(plan))).collect();
    for scanner in &mut scanners {
        let mut out = ResultWriter::new();
        let pages = [page(&mut random, true), page(&mut random, false)].concat();
        let Progress::Done { stats, .. } = scanner.scan(0, &pages, &AllKnown, &mut out, true) else {
            panic!("every state is known");
        };
        assert!(stats.passthru_blocks_page == 0, "an undamaged page was passed through: {stats:?}");
    }
    for case in 0..cases {
        let mut pages = Vec::new();
        for index in 0..3 {
            let mut page = page(&mut random, (case + index) % 2 == 0);
            damage(&mut random, &mut page);
            if random.one_in(50) {
                page.iter_mut().skip(random.below(40)).for_each(|byte| *byte = random.next() as u8);
            }
            pages.extend(page);
        }
        if random.one_in(20) {
            pages.truncate(random.below(pages.len()));
        }
        let scanner = random.below(scanners.len());
        let mut out = ResultWriter::new();
        let first = if random.one_in(9) { u32::MAX - 1 } else { 0 };
        let _ = scanners[scanner].scan(first, &pages, &NoXids, &mut out, case % 2 == 0);
        let _ = scanners[scanner].scan(first, &pages, &AllKnown, &mut out, case % 2 == 1);
        scanners[scanner].finish_range(&mut out);
        out.flush();
    }
}

#[test]
fn a_damaged_request_never_panics_the_decoder_or_the_compiler() {
    let mut random = Random::new(setting("CELLAR_SEED", 1));
    let wires: Vec<Vec<u8>> = requests()
        .iter()
        .map(|request| {
            let mut wire = Vec::new();
            request.encode(&mut wire);
            wire
        })
        .collect();
    for _ in 0..setting("CELLAR_CASES", 20_000) {
        let mut wire = random.pick::<Vec<u8>>(&wires).clone();
        for _ in 0..1 + random.below(4) {
            let at = random.below(wire.len());
            wire[at] = {
                let any = random.next() as u8;
                *random.pick(&[0, 1, 255, wire[at] ^ 1, any])
            };
        }
        if let Ok(request) = ScanRequest::decode(&wire)
            && let Ok(plan) = Plan::compile(&request)
        {
            let mut out = ResultWriter::new();
            let mut scanner = Scanner::new(Arc::new(plan));
            let _ = scanner.scan(0, &page(&mut random, true), &AllKnown, &mut out, true);
            scanner.finish_range(&mut out);
            out.flush();
        }
    }
}
