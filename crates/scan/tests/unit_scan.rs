//! Scans of compression units return what scans of their pages return: the same rows in the same order, and the same blocks
//! passed through, except blocks that the unit's bounds exclude.
//!
//! `CELLAR_SEED` and `CELLAR_CASES` select the random tables.

use crate::support::reader::{Answer, read};
use crate::support::requests::requests;
use crate::support::tables::Table;
use crate::support::{Random, setting};
use cellar_format::postgres::{Collation, type_oid};
use cellar_format::units::BLOCK_BYTES;
use cellar_format::wire::{Expr, ScanMode, ScanRequest, XidState};
use cellar_scan::unit::{Attribute, Level, Shape, Unit, encode};
use cellar_scan::{NoXids, Plan, Progress, ResultWriter, Scanner, UnitScanner, XidLookup, unit_summary};
use std::sync::Arc;

struct AllXids;

impl XidLookup for AllXids {
    fn state(&self, xid: u32) -> Option<XidState> {
        XidState::from_u8((xid % 4) as u8)
    }
}

fn call(function: u32, column: u16, type_oid: u32, value: &[u8]) -> Expr {
    let constant = Expr::Const { type_oid, value: Some(value.to_vec()) };
    Expr::Call { function, collation: Collation::Bytewise, args: vec![Expr::Column(column), constant] }
}

fn equals_text(function: u32, text: Expr, value: &str) -> Expr {
    let constant = Expr::Const { type_oid: type_oid::TEXT, value: Some(value.as_bytes().to_vec()) };
    Expr::Call { function, collation: Collation::Bytewise, args: vec![text, constant] }
}

/// Returns a predicate that encoded values decide, perhaps through the entries of a dictionary. The constant occurs in the column or does not.
fn simple_qual(random: &mut Random) -> Expr {
    let number = random.below(9) as u32 * 1_000_003 + random.below(2) as u32;
    let words = ["express 1000003", "deposits sleep 0", "pinto beans 3000009", "z", ""];
    let digit = (random.below(900) as u16).to_le_bytes();
    let numeric = [[0x00, 0x81], digit].concat();
    match random.below(15) {
        // Interpreted: left(c2, n) = constant, coalesce(c2, constant) = constant
        9 | 10 => {
            let word = *random.pick(&["ex", "d", "pinto", ""]);
            let length =
                Expr::Const { type_oid: type_oid::INT4, value: Some((word.len() as i32).to_le_bytes().to_vec()) };
            let left =
                Expr::Call { function: 3060, collation: Collation::Bytewise, args: vec![Expr::Column(2), length] };
            equals_text(*random.pick(&[67, 157]), left, word)
        }
        11..=14 => {
            let word = Expr::Const { type_oid: type_oid::TEXT, value: Some(b"z".to_vec()) };
            let value = *random.pick(&["z", "pinto beans 3000009"]);
            equals_text(67, Expr::Coalesce(vec![Expr::Column(2), word]), value)
        }
        // int4: = < >=
        0 => call(65, 1, type_oid::INT4, &number.to_le_bytes()),
        1 => call(66, 1, type_oid::INT4, &number.to_le_bytes()),
        2 => call(150, 1, type_oid::INT4, &number.to_le_bytes()),
        // text: = <> LIKE NOT LIKE
        3 => call(*random.pick(&[67, 157]), 2, type_oid::TEXT, random.pick(&words).as_bytes()),
        4 => {
            let patterns = ["%sleep%", "pinto%", "%7", "%e%s%", "%its%eep%", "exp%1%3", "sleep 0", "%o_it%"];
            call(*random.pick(&[850, 851]), 2, type_oid::TEXT, random.pick(&patterns).as_bytes())
        }
        // numeric: < >= =
        5 => call(1722, 3, type_oid::NUMERIC, &numeric),
        6 => call(1721, 3, type_oid::NUMERIC, &numeric),
        7 => call(1718, 3, type_oid::NUMERIC, &numeric),
        // date: <
        _ => call(1087, 8, type_oid::DATE, &number.to_le_bytes()),
    }
}

fn shape(request: &ScanRequest, count: usize) -> Shape {
    let attributes = request.relation.attributes[..count].iter().map(|attribute| Attribute {
        type_oid: attribute.type_oid,
        width: attribute.width,
        align: attribute.align,
        by_value: attribute.by_value,
        dropped: false,
    });
    Shape { attributes: attributes.collect() }
}

fn widths(request: &ScanRequest) -> Vec<Option<usize>> {
    use cellar_format::postgres::Width;
    let width = |number: &u16| match request.relation.attributes[*number as usize - 1].width {
        Width::Fixed(bytes) => Some(bytes as usize),
        _ => None,
    };
    request.projection.iter().map(width).collect()
}

/// Returns the answers of a scan of the pages and of a scan of the unit.
fn scan(request: &ScanRequest, first_block: u32, pages: &[u8], bytes: &Vec<u8>) -> (Answer, Answer) {
    let plan = Arc::new(Plan::compile(request).expect("a supported request"));
    let unit = Unit::open(bytes).unwrap();
    let mut scanner = UnitScanner::new(Arc::clone(&plan));
    let mut out = ResultWriter::new();
    let whole = 0..unit.pages().len();
    // A scan returns nothing before all needed transaction states are known.
    if let Progress::NeedXids(xids) = scanner.scan(first_block, &unit, bytes, whole.clone(), &NoXids, &mut out).unwrap()
    {
        out.flush();
        assert!(out.frames().is_empty() && !xids.is_empty());
        scanner.scan(first_block, &unit, bytes, whole, &AllXids, &mut out).unwrap();
    }
    out.flush();
    let of_unit = read(out.frames(), &widths(request));
    let mut out = ResultWriter::new();
    let reversed = ScanRequest { quals: request.quals.iter().rev().cloned().collect(), ..request.clone() };
    let reversed = Arc::new(Plan::compile(&reversed).expect("a supported request"));
    for (index, page) in pages.chunks(BLOCK_BYTES).enumerate() {
        let block = first_block + index as u32;
        let scan = |plan: &Arc<Plan>, out: &mut ResultWriter| {
            Scanner::new(Arc::clone(plan)).scan(block, page, &AllXids, out, false);
        };
        let mut alone = ResultWriter::new();
        scan(&plan, &mut alone);
        alone.flush();
        let passed = |answer: &Answer| answer.passthru.iter().any(|(passed, _)| *passed == block);
        // A unit scan may evaluate later predicates first and exclude rows that an earlier one would pass through.
        let decided = passed(&read(alone.frames(), &widths(request))) && !passed(&of_unit);
        scan(if decided { &reversed } else { &plan }, &mut out);
    }
    out.flush();
    (read(out.frames(), &widths(request)), of_unit)
}

#[test]
fn a_unit_scan_returns_what_a_heap_scan_of_its_pages_returns() {
    let first = setting("CELLAR_SEED", 1);
    let (mut rows, mut passed, mut pruned) = (0, 0, 0);
    for seed in first..first + setting("CELLAR_CASES", 30) {
        let mut random = Random::new(seed);
        let requests = requests();
        let count = requests[0].relation.attributes.len() - random.below(3);
        let mut table = Table::with(&mut random, &shape(&requests[0], count).attributes);
        let page_count = *random.pick(&[1, 20, 60]);
        let pages = table.pages(&mut random, page_count);
        let bytes = encode(&pages, &table.shape(), Level::ALL[seed as usize % 2]).unwrap();
        for index in 0..requests.len() + 8 {
            let mut request = requests[index % requests.len()].clone();
            if index >= requests.len() {
                request.quals = (0..1 + random.below(2)).map(|_| simple_qual(&mut random)).collect();
                request.mode = ScanMode::Columns;
                request.projection = (0..random.below(4)).map(|_| 1 + random.below(8) as u16).collect();
            }
            // This test compares rows; tests/aggregate.rs compares aggregates.
            request.aggregation = None;
            request.top_n = None;
            // The test's batch reader does not support NUL-terminated strings.
            request.projection.retain(|number| *number != 5);
            (request.snapshot.xmin, request.snapshot.xmax) = (820, 910);
            request.snapshot.taken_during_recovery = random.one_in(2);
            let (of_heap, of_unit) = scan(&request, 1000, &pages, &bytes);
            let place = format!("seed {seed}, request {index}: {:?}", request.quals);
            assert!(of_heap.rows == of_unit.rows, "rows, {place}");
            assert!(of_heap.tuples == of_unit.tuples, "tuples, {place}");
            assert_eq!(of_heap.counted, of_unit.counted, "{place}");
            if of_heap.passthru != of_unit.passthru {
                assert!(of_unit.passthru.iter().all(|block| of_heap.passthru.contains(block)), "{place}");
                pruned += 1;
            }
            rows += of_unit.counted;
            passed += of_unit.passthru.len();
        }
    }
    println!("{rows} rows, {passed} blocks passed through, {pruned} scans pruned");
    assert!(rows > 10_000 && passed > 100);
}

/// The summary excludes no pages with a row that a scan of the pages returns.
#[test]
fn the_summary_of_some_pages_of_a_unit_covers_their_rows() {
    let (mut excluded, mut matched, mut unknown) = (0, 0, 0);
    let first = setting("CELLAR_SEED", 1);
    for seed in first..first + setting("CELLAR_CASES", 30) {
        let mut random = Random::new(seed);
        let request = ScanRequest { mode: ScanMode::Columns, projection: vec![1], ..requests().remove(0) };
        let mut table = Table::with(&mut random, &shape(&request, request.relation.attributes.len()).attributes);
        let pages = table.pages(&mut random, 40);
        let bytes = encode(&pages, &table.shape(), Level::ALL[seed as usize % 4]).unwrap();
        let unit = Unit::open(&bytes).unwrap();
        for _ in 0..40 {
            let quals = vec![simple_qual(&mut random)];
            let request = ScanRequest { quals, aggregation: None, top_n: None, ..request.clone() };
            let plan = Arc::new(Plan::compile(&request).unwrap());
            let start = random.below(39);
            let some = start..start + 1 + random.below(40 - start);
            let Some(summary) = unit_summary(&plan, &unit, some.clone()) else {
                unknown += 1;
                continue;
            };
            let mut out = ResultWriter::new();
            let bytes = &pages[some.start * BLOCK_BYTES..some.end * BLOCK_BYTES];
            Scanner::new(plan.clone()).scan(0, bytes, &AllXids, &mut out, false);
            out.flush();
            match (plan.may_match(&summary), read(out.frames(), &widths(&request)).counted) {
                (false, rows) => {
                    assert_eq!(rows, 0, "seed {seed}, pages {some:?}: {:?}", request.quals);
                    excluded += 1;
                }
                (true, 0) => {}
                (true, _) => matched += 1,
            }
        }
    }
    println!("{excluded} excluded, {matched} with rows, {unknown} without a summary");
    assert!(excluded > 30 && matched > 30);
}

#[test]
fn excluded_pages_are_not_scanned() {
    let mut random = Random::new(3);
    let request = requests().remove(0);
    let mut table = Table::with(&mut random, &shape(&request, 8).attributes);
    let pages = table.pages(&mut random, 12);
    let bytes = encode(&pages, &table.shape(), Level::QueryLow).unwrap();
    let unit = Unit::open(&bytes).unwrap();
    let plan = Arc::new(Plan::compile(&request).unwrap());
    let mut scanner = UnitScanner::new(Arc::clone(&plan));
    let mut count = |ranges: &[std::ops::Range<usize>]| {
        let mut out = ResultWriter::new();
        for range in ranges {
            scanner.scan(0, &unit, &bytes, range.clone(), &AllXids, &mut out).unwrap();
        }
        out.flush();
        read(out.frames(), &widths(&request))
    };
    let heap = |range: std::ops::Range<usize>| {
        let mut out = ResultWriter::new();
        let bytes = &pages[range.start * BLOCK_BYTES..range.end * BLOCK_BYTES];
        Scanner::new(Arc::clone(&plan)).scan(range.start as u32, bytes, &AllXids, &mut out, false);
        out.flush();
        read(out.frames(), &widths(&request)).counted
    };
    assert_eq!(count(&[0..5, 6..12]).counted, heap(0..5) + heap(6..12));
    assert_eq!(count(std::slice::from_ref(&(0..100))).counted, heap(0..12));
}
