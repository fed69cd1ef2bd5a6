//! Command-line arguments of the examples that encode heap files.
//!
//! COLUMNS is `lineitem`, or the attributes as `TYPE_OID:TYPLEN:TYPALIGN` with commas in between:
//! `select string_agg(atttypid || ':' || attlen || ':' || attalign, ',' order by attnum) from pg_attribute where
//! attrelid = 'TABLE'::regclass and attnum > 0`. LEVEL is low, high, archive_low or archive_high.

use cellar_format::postgres::{Align, Width};
use cellar_scan::unit::{Attribute, Level, Shape};

const LINEITEM: &str = "20:8:d,23:4:i,23:4:i,23:4:i,1700:-1:i,1700:-1:i,1700:-1:i,1700:-1:i,1042:-1:i,1042:-1:i,\
    1082:4:i,1082:4:i,1082:4:i,1042:-1:i,1042:-1:i,1043:-1:i";

/// Parses COLUMNS.
pub fn shape(columns: &str) -> Shape {
    let columns = if columns == "lineitem" { LINEITEM } else { columns };
    let attributes = columns.split(',').map(|column| {
        let fields: Vec<&str> = column.split(':').collect();
        let [oid, length, align] = fields[..] else { panic!("{column} is not TYPE_OID:TYPLEN:TYPALIGN") };
        let width = Width::from_typlen(length.parse().expect("TYPLEN is a number")).expect("a typlen");
        let align = Align::from_typalign(align.as_bytes()[0]).expect("a typalign");
        let type_oid = oid.parse().expect("TYPE_OID is a number");
        Attribute { type_oid, width, align, by_value: matches!(width, Width::Fixed(1..=8)), dropped: type_oid == 0 }
    });
    Shape { attributes: attributes.collect() }
}

/// Parses LEVEL.
pub fn level(name: &str) -> Level {
    match name {
        "low" => Level::QueryLow,
        "high" => Level::QueryHigh,
        "archive_low" => Level::ArchiveLow,
        "archive_high" => Level::ArchiveHigh,
        other => panic!("{other} is not a level"),
    }
}

/// The percentile at `share`, 0 to 1. Sorts `times`.
pub fn percentile(times: &mut [f64], share: f64) -> f64 {
    times.sort_by(f64::total_cmp);
    times[((times.len() - 1) as f64 * share) as usize]
}
