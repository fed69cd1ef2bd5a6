//! Times scans of TPC-H's lineitem heap: `cargo run --release --example heap_scan -- HEAP_FILE [RUNS [warm|cached|unit [QUERY [VARIANT]]]]`.
//!
//! HEAP_FILE is a segment of `lineitem` (see `pg_relation_filepath`), copied after a CHECKPOINT. The file is read into
//! memory first, so the times are those of decoding on one thread. `cached` scans only the first region, repeatedly, to
//! exclude the cost of memory access. `unit` encodes the file into compression units (QUERY LOW) and scans these. QUERY is a
//! part of a query's name. VARIANT is `plain`, `hint` (ignores all-visible bits, so the visibility of every tuple is checked)
//! or `index` (builds region summaries).

use cellar_format::postgres::{Align, Collation, Width, encoding, type_oid};
use cellar_format::units::{BLOCK_BYTES, REGION_BYTES};
use cellar_format::wire::{
    Aggregate, Aggregation, Attribute, Expr, Missing, Relation, ScanMode, ScanRequest, Snapshot,
};
use cellar_scan::unit::{self, Level, Shape, Unit};
use cellar_scan::{NoXids, Plan, Progress, ResultWriter, Scanner, UnitScanner};
use std::sync::Arc;
use std::time::Instant;

fn attribute(type_oid: u32, width: Width, align: Align) -> Attribute {
    let by_value = matches!(width, Width::Fixed(_));
    Attribute { type_oid, typmod: -1, width, align, by_value, missing: Missing::Null }
}

fn lineitem() -> Vec<Attribute> {
    use type_oid::*;
    let types = [
        INT8, INT4, INT4, INT4, NUMERIC, NUMERIC, NUMERIC, NUMERIC, BPCHAR, BPCHAR, DATE, DATE, DATE, BPCHAR, BPCHAR,
        VARCHAR,
    ];
    types
        .into_iter()
        .map(|oid| match oid {
            INT8 => attribute(oid, Width::Fixed(8), Align::Double),
            // numeric(15,2)
            NUMERIC => Attribute { typmod: (15 << 16 | 2) + 4, ..attribute(oid, Width::Varlena, Align::Int) },
            INT4 | DATE => attribute(oid, Width::Fixed(4), Align::Int),
            _ => attribute(oid, Width::Varlena, Align::Int),
        })
        .collect()
}

/// Pages of an allocation unit of the default size.
const UNIT_PAGES: usize = 512;

fn encode_units(heap: &[u8]) -> Vec<(Unit, Vec<u8>)> {
    let attributes = lineitem().into_iter().map(|attribute| unit::Attribute {
        type_oid: attribute.type_oid,
        width: attribute.width,
        align: attribute.align,
        by_value: attribute.by_value,
        dropped: false,
    });
    let shape = Shape { attributes: attributes.collect() };
    let pages = heap.chunks(UNIT_PAGES * BLOCK_BYTES);
    let encoded = pages.map(|pages| unit::encode(pages, &shape, Level::QueryLow).expect("whole pages"));
    encoded.map(|bytes| (Unit::open(&bytes).expect("a unit"), bytes)).collect()
}

const QUANTITY: u16 = 5;
const EXTENDED_PRICE: u16 = 6;
const DISCOUNT: u16 = 7;
const TAX: u16 = 8;
const RETURN_FLAG: u16 = 9;
const LINE_STATUS: u16 = 10;
const SHIP_DATE: u16 = 11;
const COMMIT_DATE: u16 = 12;
const RECEIPT_DATE: u16 = 13;
const SHIP_MODE: u16 = 15;
const COMMENT: u16 = 16;

fn call(function: u32, left: Expr, right: Expr) -> Expr {
    Expr::Call { function, collation: Collation::Deterministic, args: vec![left, right] }
}

fn date(days_from_2000: i32) -> Expr {
    Expr::Const { type_oid: type_oid::DATE, value: Some(days_from_2000.to_le_bytes().to_vec()) }
}

fn text(value: &str) -> Expr {
    Expr::Const { type_oid: type_oid::TEXT, value: Some(value.as_bytes().to_vec()) }
}

fn int8(value: i64) -> Expr {
    Expr::Const { type_oid: type_oid::INT8, value: Some(value.to_le_bytes().to_vec()) }
}

/// A numeric constant below 100 with scale 2.
fn numeric(hundredths: u16) -> Expr {
    let mut payload = (0x8000u16 | 2 << 7).to_le_bytes().to_vec();
    let (whole, fraction) = (hundredths / 100, hundredths % 100 * 100);
    if whole == 0 {
        payload = (0x8000u16 | 2 << 7 | 0x7f).to_le_bytes().to_vec();
    } else {
        payload.extend(whole.to_le_bytes());
    }
    if fraction != 0 {
        payload.extend(fraction.to_le_bytes());
    }
    Expr::Const { type_oid: type_oid::NUMERIC, value: Some(payload) }
}

/// CPU time of this thread in milliseconds, which other programs on the machine affect least.
fn cpu_ms() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    stat.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(0.0) / 1e6
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().expect("usage: heap_scan HEAP_FILE [RUNS]");
    let runs: usize = arguments.next().map_or(5, |runs| runs.parse().expect("RUNS is a number"));
    let mode = arguments.next();
    let cached = mode.as_deref() == Some("cached");
    let in_units = mode.as_deref() == Some("unit");
    let only = arguments.next();
    let only_variant = arguments.next();
    let heap = std::fs::read(&file).expect("the heap file can be read");
    let units = if in_units { encode_units(&heap) } else { Vec::new() };
    let column = Expr::Column;
    const DATE_GE: u32 = 1090;
    const DATE_LT: u32 = 1087;
    const NUMERIC_GE: u32 = 1721;
    const NUMERIC_LE: u32 = 1723;
    const NUMERIC_LT: u32 = 1722;
    const NUMERIC_MUL: u32 = 1726;
    const INT8_EQ: u32 = 467;
    const INT8_MOD: u32 = 945;
    const NUMERIC_ADD: u32 = 1724;
    const NUMERIC_SUB: u32 = 1725;
    const SUM_NUMERIC: u32 = 2114;
    const AVG_NUMERIC: u32 = 2103;
    const COUNT_ROWS: u32 = 2803;
    const DATE_LE: u32 = 1088;
    let q6 = vec![
        call(DATE_GE, column(SHIP_DATE), date(-2191)),
        call(DATE_LT, column(SHIP_DATE), date(-1826)),
        call(NUMERIC_GE, column(DISCOUNT), numeric(5)),
        call(NUMERIC_LE, column(DISCOUNT), numeric(7)),
        call(NUMERIC_LT, column(QUANTITY), numeric(2400)),
    ];
    let like = vec![call(850, column(COMMENT), text("%express%pinto%"))];
    let product = call(NUMERIC_MUL, column(EXTENDED_PRICE), column(DISCOUNT));
    let modulo = call(INT8_MOD, column(1), int8(1000));
    let modes = Expr::AnyAll {
        function: 1048,
        collation: Collation::Deterministic,
        any: true,
        scalar: Box::new(column(SHIP_MODE)),
        elements: ["MAIL      ", "SHIP      "].map(text).to_vec(),
    };
    let q12 = vec![
        modes,
        call(DATE_LT, column(COMMIT_DATE), column(RECEIPT_DATE)),
        call(DATE_LT, column(SHIP_DATE), column(COMMIT_DATE)),
        call(DATE_GE, column(RECEIPT_DATE), date(-2191)),
    ];
    let queries: Vec<(&str, Vec<Expr>, Vec<u16>, ScanMode)> = vec![
        ("count(*)", vec![], vec![], ScanMode::Columns),
        ("price", vec![], vec![EXTENDED_PRICE], ScanMode::Columns),
        ("Q6", q6.clone(), vec![EXTENDED_PRICE, DISCOUNT], ScanMode::Columns),
        ("LIKE", like, vec![], ScanMode::Columns),
        ("flag = 'R'", vec![call(1048, column(RETURN_FLAG), text("R"))], vec![], ScanMode::Columns),
        ("Q12", q12, vec![1, SHIP_MODE], ScanMode::Columns),
        ("price*disc", vec![call(NUMERIC_LT, product, numeric(9900))], vec![], ScanMode::Columns),
        ("key % 1000", vec![call(INT8_EQ, modulo, int8(7))], vec![], ScanMode::Columns),
        ("all columns", vec![], (1..=16).collect(), ScanMode::Columns),
        ("Q1 agg", vec![call(DATE_LE, column(SHIP_DATE), date(-486))], vec![], ScanMode::Columns),
        ("Q6 agg", q6.clone(), vec![], ScanMode::Columns),
        ("all rows", vec![], vec![], ScanMode::Rows),
    ];
    let aggregate = |function, argument| Aggregate { function, collation: Collation::None, argument, filter: None };
    let disc_price = call(NUMERIC_MUL, column(EXTENDED_PRICE), call(NUMERIC_SUB, numeric(100), column(DISCOUNT)));
    let charge = call(NUMERIC_MUL, disc_price.clone(), call(NUMERIC_ADD, numeric(100), column(TAX)));
    let q1 = Aggregation {
        keys: vec![column(RETURN_FLAG), column(LINE_STATUS)],
        aggregates: vec![
            aggregate(SUM_NUMERIC, Some(column(QUANTITY))),
            aggregate(SUM_NUMERIC, Some(column(EXTENDED_PRICE))),
            aggregate(SUM_NUMERIC, Some(disc_price)),
            aggregate(SUM_NUMERIC, Some(charge)),
            aggregate(AVG_NUMERIC, Some(column(QUANTITY))),
            aggregate(AVG_NUMERIC, Some(column(EXTENDED_PRICE))),
            aggregate(AVG_NUMERIC, Some(column(DISCOUNT))),
            aggregate(COUNT_ROWS, None),
        ],
        ..Aggregation::default()
    };
    let revenue = call(NUMERIC_MUL, column(EXTENDED_PRICE), column(DISCOUNT));
    let q6_sum =
        Aggregation { keys: vec![], aggregates: vec![aggregate(SUM_NUMERIC, Some(revenue))], ..Aggregation::default() };
    println!(
        "{:12} {:>7} {:>9} {:>9} {:>9} {:>10} {:>9}",
        "query", "variant", "cpu min", "min ms", "median", "rows", "MB out"
    );
    for (name, quals, projection, mode) in queries {
        if only.as_ref().is_some_and(|only| !name.contains(only.as_str())) {
            continue;
        }
        let aggregation = match name {
            "Q1 agg" => Some(&q1),
            "Q6 agg" => Some(&q6_sum),
            _ => None,
        };
        for (hint, want_summary) in [(false, false), (true, false), (false, true)] {
            let request = ScanRequest {
                relation: Relation {
                    file: String::new(),
                    segment_blocks: 131_072,
                    checksums: false,
                    encoding: encoding::UTF8,
                    attributes: lineitem(),
                },
                quals: quals.clone(),
                projection: projection.clone(),
                mode,
                snapshot: Snapshot {
                    xmin: 1 << 30,
                    xmax: 1 << 30,
                    taken_during_recovery: hint,
                    next_full_xid: 1 << 30,
                },
                threads: 1,
                aggregation: aggregation.cloned(),
                lookups: Vec::new(),
                top_n: None,
                index: None,
            };
            let plan = Arc::new(Plan::compile(&request).expect("the request is supported"));
            let variant = match (hint, want_summary) {
                (true, _) => "hint",
                (_, true) => "index",
                _ => "plain",
            };
            let unwanted = in_units && want_summary || only_variant.as_ref().is_some_and(|only| only != variant);
            if unwanted || want_summary && plan.summary_columns().is_empty() {
                continue;
            }
            let mut unit_scanner = UnitScanner::new(Arc::clone(&plan));
            let mut scanner = Scanner::new(plan);
            let mut times = Vec::new();
            let mut cpu = f64::INFINITY;
            let (mut rows, mut bytes_out) = (0, 0);
            for _ in 0..runs {
                (rows, bytes_out) = (0, 0);
                let mut out = ResultWriter::new();
                let (start, start_cpu) = (Instant::now(), cpu_ms());
                for (index, (unit, bytes)) in units.iter().enumerate() {
                    let (first, pages) = ((index * UNIT_PAGES) as u32, 0..unit.pages().len());
                    match unit_scanner
                        .scan(first, unit, bytes, pages, &NoXids, &mut out)
                        .expect("the unit is not damaged")
                    {
                        Progress::Done { stats, .. } => rows += stats.rows_returned,
                        Progress::NeedXids(xids) => panic!("needs {} transactions", xids.len()),
                    }
                    bytes_out += out.pending_bytes();
                    out.clear_frames();
                }
                for (index, region) in heap[..if in_units { 0 } else { heap.len() }].chunks(REGION_BYTES).enumerate() {
                    let region = if cached { &heap[..REGION_BYTES.min(heap.len())] } else { region };
                    match scanner.scan(index as u32 * 128, region, &NoXids, &mut out, want_summary) {
                        Progress::Done { stats, .. } => rows += stats.rows_returned,
                        Progress::NeedXids(xids) => panic!("needs {} transactions", xids.len()),
                    }
                    bytes_out += out.pending_bytes();
                    out.clear_frames();
                }
                rows += scanner.finish_range(&mut out) + unit_scanner.finish_range(&mut out);
                out.flush();
                bytes_out += out.pending_bytes();
                times.push(start.elapsed().as_secs_f64() * 1e3);
                cpu = cpu.min(cpu_ms() - start_cpu);
            }
            times.sort_by(f64::total_cmp);
            let median = times[times.len() / 2];
            println!(
                "{name:12} {variant:>7} {cpu:9.1} {:9.1} {median:9.1} {rows:10} {:9.1}",
                times[0],
                bytes_out as f64 / 1e6
            );
        }
    }
}
