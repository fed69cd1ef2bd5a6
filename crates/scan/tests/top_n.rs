//! A scan with a top-N returns the first rows of the order, from heap pages and from compression units.
//!
//! `CELLAR_SEED` and `CELLAR_CASES` choose the random tables.

use crate::support::reader::{Answer, Datum, read};
use crate::support::requests::requests;
use crate::support::tables::Table;
use crate::support::{Random, setting};
use cellar_format::postgres::Collation;
use cellar_format::units::BLOCK_BYTES;
use cellar_format::wire::{Expr, ScanMode, ScanRequest, SortKey, TopN, XidState};
use cellar_scan::unit::{Attribute, Level, Unit, encode};
use cellar_scan::{Account, Plan, ResultWriter, Scanner, UnitScanner, XidLookup};
use std::cmp::Ordering;
use std::sync::Arc;

/// Returns a state for every transaction.
struct AllKnown;

impl XidLookup for AllKnown {
    fn state(&self, xid: u32) -> Option<XidState> {
        XidState::from_u8((xid % 4) as u8)
    }
}

/// Attribute number, the `<` function, and bytes of a value: int4, text, float8, date.
const COLUMNS: [(u16, u32, Option<usize>); 4] =
    [(1, 66, Some(4)), (2, 740, None), (4, 295, Some(8)), (8, 1087, Some(4))];

fn scan(request: &ScanRequest, pages: &[u8], memory: &Arc<Account>) -> Answer {
    let mut scanner = Scanner::with_memory(Arc::new(Plan::compile(request).unwrap()), memory);
    let mut out = ResultWriter::new();
    for (index, run) in pages.chunks(5 * BLOCK_BYTES).enumerate() {
        scanner.scan(index as u32 * 5, run, &AllKnown, &mut out, false);
    }
    out.flush();
    read(out.frames(), &COLUMNS.map(|column| column.2))
}

fn scan_unit(request: &ScanRequest, bytes: &Vec<u8>, memory: &Arc<Account>) -> Answer {
    let unit = Unit::open(bytes).unwrap();
    let mut scanner = UnitScanner::with_memory(Arc::new(Plan::compile(request).unwrap()), memory);
    let mut out = ResultWriter::new();
    scanner.scan(0, &unit, bytes, 0..unit.pages().len(), &AllKnown, &mut out).unwrap();
    out.flush();
    read(out.frames(), &COLUMNS.map(|column| column.2))
}

/// Returns the payload of a string that is neither compressed nor stored out of line.
fn payload(datum: &[u8]) -> Option<&[u8]> {
    match datum[0] {
        1 => None,
        first if first & 1 == 1 => Some(&datum[1..]),
        first if first & 3 == 0 => Some(&datum[4..]),
        _ => None,
    }
}

fn compare(column: usize, left: &[u8], right: &[u8]) -> Ordering {
    let int = |bytes: &[u8]| i32::from_le_bytes(bytes[..4].try_into().unwrap());
    let float = |bytes: &[u8]| f64::from_le_bytes(bytes[..8].try_into().unwrap());
    match column {
        1 => payload(left).cmp(&payload(right)),
        2 => match (float(left).is_nan(), float(right).is_nan()) {
            (false, false) => float(left).partial_cmp(&float(right)).unwrap(),
            (left, right) => left.cmp(&right),
        },
        _ => int(left).cmp(&int(right)),
    }
}

fn order(keys: &[(usize, bool, bool)], left: &[Datum], right: &[Datum]) -> Ordering {
    for (column, descending, nulls_first) in keys {
        let ordering = match (&left[*column], &right[*column]) {
            (None, None) => Ordering::Equal,
            (None, Some(_)) if *nulls_first => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(_), None) if *nulls_first => Ordering::Greater,
            (Some(_), None) => Ordering::Less,
            (Some(left), Some(right)) if *descending => compare(*column, right, left),
            (Some(left), Some(right)) => compare(*column, left, right),
        };
        if ordering.is_ne() {
            return ordering;
        }
    }
    Ordering::Equal
}

#[test]
fn a_top_n_scan_returns_the_first_rows() {
    let first = setting("CELLAR_SEED", 1);
    let (mut all_rows, mut returned, mut returned_without_memory, mut ordered_by_text) = (0, 0, 0, 0);
    let (unlimited, none) = (Account::unlimited(), Account::new(0));
    for seed in first..first + setting("CELLAR_CASES", 20) {
        let mut random = Random::new(seed);
        let mut request = requests()[0].clone();
        let attribute = |attribute: &cellar_format::wire::Attribute| Attribute {
            type_oid: attribute.type_oid,
            width: attribute.width,
            align: attribute.align,
            by_value: attribute.by_value,
            dropped: false,
        };
        let attributes: Vec<Attribute> = request.relation.attributes.iter().map(attribute).collect();
        let mut table = Table::with(&mut random, &attributes);
        let pages = table.pages(&mut random, 40);
        let bytes = encode(&pages, &table.shape(), Level::ALL[seed as usize % 2]).unwrap();
        (request.snapshot.xmin, request.snapshot.xmax) = (820, 910);
        request.mode = ScanMode::Columns;
        request.projection = COLUMNS.iter().map(|column| column.0).collect();
        if random.one_in(2) {
            request.quals = requests()[4].quals.clone();
        }
        let all = scan(&request, &pages, &unlimited);
        for _ in 0..12 {
            let keys: Vec<(usize, bool, bool)> =
                (0..1 + random.below(3)).map(|_| (random.below(4), random.one_in(2), random.one_in(2))).collect();
            let rows = *random.pick(&[1, 3, 50, 1000]);
            let key = |(column, descending, nulls_first): &(usize, bool, bool)| SortKey {
                expr: Expr::Column(COLUMNS[*column].0),
                less: COLUMNS[*column].1,
                collation: Collation::Bytewise,
                descending: *descending,
                nulls_first: *nulls_first,
            };
            request.top_n = Some(TopN { rows, keys: keys.iter().map(key).collect() });
            let case = format!("seed {seed}, {rows} rows by {keys:?}");
            let by_text = keys.iter().any(|key| key.0 == 1);
            let plain = |row: &Vec<Datum>| row[1].as_ref().is_none_or(|datum| payload(datum).is_some());
            if by_text && !all.rows.iter().all(plain) {
                continue;
            }
            ordered_by_text += u64::from(by_text);
            let answers = |memory| [scan(&request, &pages, memory), scan_unit(&request, &bytes, memory)];
            let (with_memory, without_memory) = (answers(&unlimited), answers(&none));
            returned += with_memory.iter().map(|answer| answer.rows.len()).sum::<usize>();
            returned_without_memory += without_memory.iter().map(|answer| answer.rows.len()).sum::<usize>();
            all_rows += 2 * all.rows.len();
            for answer in with_memory.iter().chain(&without_memory) {
                let mut rest = all.rows.iter();
                assert!(
                    answer.rows.iter().all(|row| rest.any(|other| other == row)),
                    "the answer is not a subsequence of the rows: {case}"
                );
                let sorted = |answer: &Answer| {
                    let mut rows = answer.rows.clone();
                    rows.sort_by(|left, right| order(&keys, left, right));
                    rows
                };
                let (expected, found) = (sorted(&all), sorted(answer));
                assert!(found.len() >= expected.len().min(rows as usize), "{case}");
                for (expected, found) in expected.iter().zip(&found).take(rows as usize) {
                    assert!(order(&keys, expected, found).is_eq(), "{case}");
                }
            }
        }
    }
    println!("{returned} of {all_rows} rows returned; {ordered_by_text} cases ordered by strings");
    assert!(returned * 2 < all_rows && ordered_by_text > 10);
    println!("{returned_without_memory} rows returned without memory for the list");
    assert!(returned < returned_without_memory, "some lists need more memory than is free");
}

#[test]
fn a_plan_rejects_unsupported_orders() {
    let mut request = requests()[0].clone();
    let mut is_rejected = |less, column| {
        let expr = Expr::Column(column);
        let key = SortKey { expr, less, collation: Collation::Deterministic, descending: false, nulls_first: false };
        request.top_n = Some(TopN { rows: 1, keys: vec![key] });
        Plan::compile(&request).is_err()
    };
    assert!(!is_rejected(66, 1));
    assert!(is_rejected(65, 1), "= is not a less-than operator");
    assert!(is_rejected(66, 8), "a date is not an int4");
    assert!(is_rejected(740, 2), "text under a collation other than C");
}
