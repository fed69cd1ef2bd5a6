//! A scan whose account grants little or no memory returns the same groups, in more parts, and the same first rows.

use crate::support::Random;
use crate::support::reader::{Answer, Datum, read_with_groups};
use crate::support::requests::requests;
use crate::support::tables::Table;
use cellar_format::postgres::Collation;
use cellar_format::units::BLOCK_BYTES;
use cellar_format::wire::{Aggregate, Aggregation, DistinctAggregates, Expr, ScanMode, ScanRequest, XidState};
use cellar_scan::unit::{Attribute, Level, Unit, encode};
use cellar_scan::{Account, Plan, ResultWriter, Scanner, UnitScanner, XidLookup};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Returns a state for every transaction.
struct AllKnown;

impl XidLookup for AllKnown {
    fn state(&self, xid: u32) -> Option<XidState> {
        XidState::from_u8((xid % 4) as u8)
    }
}

const PAGES: usize = 500;
/// The projected columns, of rows that are not aggregated, and the columns of groups: int4, timestamp, and the count.
const WIDTHS: [Option<usize>; 2] = [Some(4), Some(8)];
const GROUP_WIDTHS: [Option<usize>; 3] = [Some(4), Some(8), Some(8)];

fn scan_pages(request: &ScanRequest, pages: &[u8], memory: &Arc<Account>) -> Answer {
    let mut scanner = Scanner::with_memory(Arc::new(Plan::compile(request).unwrap()), memory);
    let mut out = ResultWriter::new();
    for (index, run) in pages.chunks(16 * BLOCK_BYTES).enumerate() {
        scanner.scan(index as u32 * 16, run, &AllKnown, &mut out, false);
        assert!(memory.used() <= memory.limit());
    }
    let is_empty = out.pending_bytes() == 0 && out.pending_rows() == 0;
    assert_eq!(out.has_results(), !is_empty, "groups that are written early are results");
    scanner.finish_range(&mut out);
    assert_eq!(memory.used(), 0, "the groups are written");
    out.flush();
    read_with_groups(out.frames(), &WIDTHS, &GROUP_WIDTHS)
}

fn scan_unit(request: &ScanRequest, bytes: &Vec<u8>, memory: &Arc<Account>) -> Answer {
    let unit = Unit::open(bytes).unwrap();
    let mut scanner = UnitScanner::with_memory(Arc::new(Plan::compile(request).unwrap()), memory);
    let mut out = ResultWriter::new();
    scanner.scan(0, &unit, bytes, 0..unit.pages().len(), &AllKnown, &mut out).unwrap();
    assert!(memory.used() <= memory.limit());
    let is_empty = out.pending_bytes() == 0 && out.pending_rows() == 0;
    assert_eq!(out.has_results(), !is_empty, "groups that are written early are results");
    scanner.finish_range(&mut out);
    assert_eq!(memory.used(), 0, "the groups are written");
    out.flush();
    read_with_groups(out.frames(), &WIDTHS, &GROUP_WIDTHS)
}

/// Combines the partial states of each group.
fn counts(answer: &Answer) -> BTreeMap<Vec<Datum>, u64> {
    let mut counts = BTreeMap::new();
    for group in &answer.groups {
        let count: [u8; 8] = group[2].as_ref().unwrap()[..].try_into().unwrap();
        *counts.entry(group[..2].to_vec()).or_default() += u64::from_le_bytes(count);
    }
    counts
}

/// A scan with an account.
type Scan<'a> = &'a dyn Fn(&Arc<Account>) -> Answer;

fn request(aggregation: Aggregation) -> ScanRequest {
    let mut request = requests()[0].clone();
    (request.snapshot.xmin, request.snapshot.xmax) = (820, 910);
    request.mode = ScanMode::Columns;
    request.projection = vec![1, 7];
    request.quals = vec![];
    request.aggregation = Some(aggregation);
    request
}

/// Calls `visit` with the seeds of random tables and with scans of their pages and units.
fn for_each_scan(request: &ScanRequest, mut visit: impl FnMut(u64, Scan<'_>)) {
    let attribute = |attribute: &cellar_format::wire::Attribute| Attribute {
        type_oid: attribute.type_oid,
        width: attribute.width,
        align: attribute.align,
        by_value: attribute.by_value,
        dropped: false,
    };
    let attributes: Vec<Attribute> = request.relation.attributes.iter().map(attribute).collect();
    for seed in 1..=10 {
        let mut random = Random::new(seed);
        let mut table = Table::with(&mut random, &attributes);
        let pages = table.pages(&mut random, PAGES);
        let unit = encode(&pages, &table.shape(), Level::QueryLow).unwrap();
        visit(seed, &|memory| scan_pages(request, &pages, memory));
        visit(seed, &|memory| scan_unit(request, &unit, memory));
    }
}

fn count() -> Aggregate {
    Aggregate { function: 2803, collation: Collation::Bytewise, argument: None, filter: None }
}

#[test]
fn without_memory_groups_are_written_early_and_their_states_add_up() {
    let keys = vec![Expr::Column(1), Expr::Column(7)];
    let request = request(Aggregation { keys, aggregates: vec![count()], ..Aggregation::default() });
    let mut large = 0;
    for_each_scan(&request, |seed, scan| {
        let unlimited = scan(&Account::unlimited());
        let expected = counts(&unlimited);
        assert_eq!(expected.len(), unlimited.groups.len(), "seed {seed}: with memory, a group is written once");
        for limit in [0, 64 << 10, 256 << 10] {
            let limited = scan(&Account::new(limit));
            assert!(counts(&limited) == expected, "seed {seed}, limit {limit}");
            assert_eq!((limited.passthru, limited.rows), (unlimited.passthru.clone(), unlimited.rows.clone()));
            large += usize::from(limited.groups.len() > expected.len());
        }
    });
    assert!(large > 4, "some groups need more memory than is granted: {large}");
}

/// Returns the rows of each group, and the distinct values of each group.
fn values(answer: &Answer) -> (BTreeMap<Datum, u64>, BTreeSet<Vec<Datum>>) {
    let (mut rows, mut values) = (BTreeMap::new(), BTreeSet::new());
    for group in &answer.groups {
        let count: [u8; 8] = group[2].as_ref().unwrap()[..].try_into().unwrap();
        *rows.entry(group[0].clone()).or_default() += u64::from_le_bytes(count);
        values.extend(group[1].is_some().then(|| group[..2].to_vec()));
    }
    (rows, values)
}

#[test]
fn without_memory_distinct_values_are_written_early_and_counts_add_up() {
    let distinct = DistinctAggregates { argument: Expr::Column(7), filter: None, functions: vec![2147] };
    let request = request(Aggregation {
        keys: vec![Expr::Column(1)],
        aggregates: vec![count()],
        distinct: Some(distinct),
        ..Aggregation::default()
    });
    let mut large = 0;
    for_each_scan(&request, |seed, scan| {
        let unlimited = scan(&Account::unlimited());
        let expected = values(&unlimited);
        for limit in [0, 64 << 10, 256 << 10] {
            let limited = scan(&Account::new(limit));
            assert!(values(&limited) == expected, "seed {seed}, limit {limit}");
            assert_eq!((limited.passthru, limited.rows), (unlimited.passthru.clone(), unlimited.rows.clone()));
            large += usize::from(limited.groups.len() > unlimited.groups.len());
        }
    });
    assert!(large > 0, "some values need more memory than is granted: {large}");
}
