//! Instance efficiency: percentages whose target is 100.

use super::{percent, sum};
use crate::document::{Document, Measure, names};

/// Share of logical reads that needed no physical read.
///
/// Source: Oracle's `Buffer Hit %`. PostgreSQL's physical read may still be served by the operating system's cache.
pub fn buffer_hit_percent(document: &Document) -> Measure {
    let logical = document.statistic(names::LOGICAL_READS);
    complement(document.statistic(names::PHYSICAL_READS), logical)
}

/// Share of executions that needed no parse call.
pub fn execute_to_parse_percent(document: &Document) -> Measure {
    complement(document.statistic(names::PARSES), document.statistic(names::EXECUTIONS))
}

/// Share of parse calls that needed no planning. A plan is PostgreSQL's counterpart of a hard parse.
pub fn soft_parse_percent(document: &Document) -> Measure {
    complement(document.statistic(names::HARD_PARSES), document.statistic(names::PARSES))
}

/// Share of DB CPU that was not spent in parsing and planning; an upper bound, because parse and plan time are wall-clock
/// times.
pub fn non_parse_cpu_percent(document: &Document) -> Measure {
    let parse = sum([document.time(names::time::PARSE), document.time(names::time::PLAN)]);
    complement(parse, document.time(names::time::DB_CPU))
}

/// Share of transactions that committed.
pub fn commit_percent(document: &Document) -> Measure {
    percent(document.statistic(names::COMMITS), super::load::transactions(document))
}

/// Share of updated rows whose new version is on the same page and needed no index entry.
pub fn hot_update_percent(document: &Document) -> Measure {
    let updates = sum(document.tables.iter().map(|table| table.n_tup_upd));
    percent(sum(document.tables.iter().map(|table| table.n_tup_hot_upd)), updates)
}

/// Share of SLRU accesses that needed no read.
pub fn slru_hit_percent(document: &Document) -> Measure {
    let hits = sum(document.slru.iter().map(|slru| slru.blks_hit));
    percent(hits, sum([hits, sum(document.slru.iter().map(|slru| slru.blks_read))]))
}

/// `100 * (1 - part / whole)`; None if the result would be negative, because the parts then count different things.
fn complement(part: Measure, whole: Measure) -> Measure {
    percent(part, whole).map(|percent| 100.0 - percent).filter(|percent| *percent >= 0.0)
}
