//! Rules about reads and temporary files.

use super::{Found, Judgement, share_text};
use crate::document::{Event, Measure, TableStatistics};
use crate::figures::time::{average_wait_us, class_us, foreground_waits};
use crate::figures::{histogram, ratio, sum};
use crate::table::{bytes, duration};
use crate::view::{Sql, View, one_line, top};

/// Reads of many blocks, which a cell could scan.
const SEQUENTIAL: [&str; 5] = [
    "direct path read",
    "db file scattered read",
    "cell multiblock physical read",
    "cell list of blocks physical read",
    "db file parallel read",
];
const SINGLE_BLOCK: [&str; 2] = ["db file sequential read", "cell single block physical read"];
/// PostgreSQL's wait for a read of a data file, sequential or not.
const EITHER: [&str; 4] = ["DataFileRead", "AioIoCompletion", "AioIoUringExecution", "DataFilePrefetch"];
const TEMPORARY: [&str; 5] =
    ["BufFileRead", "BufFileWrite", "BufFileTruncate", "direct path read temp", "direct path write temp"];

/// Default of PostgreSQL.
const WORK_MEM: f64 = 4_194_304.0;

/// A quantile this many times the average is a tail.
const TAIL_FACTOR: f64 = 8.0;
const TAIL_WAITS_MIN: f64 = 1000.0;
/// A single-block read from flash, which limits the benefit of flash.
pub(crate) const FLASH_READ_US: f64 = 150.0;

fn named_us(view: &View<'_>, names: &[&str]) -> Measure {
    sum(foreground_waits(view.document).filter(|event| names.contains(&&*event.event)).map(|event| event.time_us))
}

fn event_text(view: &View<'_>, event: &Event) -> String {
    let us = event.time_us.unwrap_or(0.0);
    let average = average_wait_us(event.time_us, event.waits)
        .map_or_else(String::new, |us| format!(", {} on average", duration(us)));
    format!("{}: {}{average}, {}", event.event, duration(us), share_text(view, us))
}

pub(super) fn bound(view: &View<'_>) -> Judgement {
    if view.document.events.is_empty() {
        return None;
    }
    let Some(us) = class_us(view.document, "User I/O") else { return Some(Vec::new()) };
    if view.model.percent_of_db_time(Some(us))? < 30.0 {
        return Some(Vec::new());
    }
    let mut found = Found::new("The workload is I/O bound")
        .impact(us)
        .evidence("wait-classes", format!("User I/O: {}, {}", duration(us), share_text(view, us)));
    let events = foreground_waits(view.document).filter(|event| &*event.class == "User I/O");
    for event in top(events, 3, |event| event.time_us) {
        found = found.evidence("foreground-events", event_text(view, event));
    }
    Some(vec![
        found.recommend(
            "Do less I/O, or make I/O faster; see the findings about sequential and single-block reads",
            None,
        ),
    ])
}

/// Blocks of a table that sequential scans read from storage: the share of its rows that sequential scans returned.
fn sequential_blocks(table: &TableStatistics) -> Measure {
    let rows = table.seq_tup_read?;
    let share = ratio(Some(rows), sum([Some(rows), table.idx_tup_fetch]))?;
    Some(share * table.heap_blks_read?)
}

/// Blocks of a table and its indexes that were read one by one.
fn single_blocks(table: &TableStatistics) -> Measure {
    let random = table.heap_blks_read.map(|blocks| blocks - sequential_blocks(table).unwrap_or(0.0));
    sum([random, table.idx_blks_read])
}

/// The share of reads that are sequential, in blocks of the tables. None without tables.
fn sequential_share(view: &View<'_>) -> Measure {
    let tables = &view.document.tables;
    let sequential = sum(tables.iter().map(sequential_blocks)).unwrap_or(0.0);
    let single = sum(tables.iter().map(single_blocks))?;
    ratio(Some(sequential), Some(sequential + single))
}

/// Time of reads of the named events, and of a share of the reads that may be either.
fn read_us(view: &View<'_>, names: &[&str], share: Measure) -> Measure {
    let either = named_us(view, &EITHER).zip(share).map(|(us, share)| us * share);
    sum([named_us(view, names), either])
}

fn object_name(table: &TableStatistics) -> String {
    let schema = if table.schema.is_empty() { String::new() } else { format!("{}.", table.schema) };
    let database = table.database.known().map_or_else(String::new, |database| format!(" in {database}"));
    format!("{schema}{}{database}", table.name)
}

pub(super) fn offloadable_scans(view: &View<'_>) -> Judgement {
    if view.document.events.is_empty() {
        return None;
    }
    let Some(us) = read_us(view, &SEQUENTIAL, sequential_share(view)) else { return Some(Vec::new()) };
    let objects = top(view.document.tables.iter(), 3, |table| sequential_blocks(table));
    let title = match objects.first() {
        Some(table) => format!("Sequential reads could be offloaded, most of all of {}", object_name(table)),
        None => "Sequential reads could be offloaded to a cell".to_owned(),
    };
    let mut found = Found::new(title).impact(us).evidence(
        "foreground-events",
        format!("sequential and direct reads: {}, {}", duration(us), share_text(view, us)),
    );
    let block = view.document.block_bytes();
    for table in &objects {
        let size = sequential_blocks(table).unwrap_or(0.0) * block;
        let place = match table.on_cell {
            Some(true) => ", on a cell: see cellar.why_not_offloaded",
            Some(false) => ", not on a cell",
            None => "",
        };
        let scans = table.seq_scan.unwrap_or(0.0);
        let text = format!("{}: about {}B read by {scans:.0} sequential scans{place}", object_name(table), bytes(size));
        found = found.evidence("segments-sequential-rows", text);
    }
    let advice = match objects.first().and_then(|table| table.on_cell) {
        Some(true) => {
            "Run such a scan and TABLE cellar.why_not_offloaded in one session, and remove the reason that it shows"
        }
        _ => "Move the tables to a cell, where Smart Scan filters them next to the disks",
    };
    Some(vec![found.recommend(advice, Some(us))])
}

pub(super) fn single_block_reads(view: &View<'_>) -> Judgement {
    if view.document.events.is_empty() {
        return None;
    }
    let share = sequential_share(view).map(|share| 1.0 - share);
    let Some(us) = read_us(view, &SINGLE_BLOCK, share) else { return Some(Vec::new()) };
    let objects = top(view.document.tables.iter(), 3, |table| single_blocks(table));
    let title = match objects.first() {
        Some(table) => format!("Single-block reads took much time, most of all of {}", object_name(table)),
        None => "Single-block reads took much time".to_owned(),
    };
    let mut found = Found::new(title).impact(us);
    let events = foreground_waits(view.document)
        .filter(|event| SINGLE_BLOCK.contains(&&*event.event) || EITHER.contains(&&*event.event));
    let mut average_us = None;
    for event in top(events, 2, |event| event.time_us) {
        average_us = average_us.or(average_wait_us(event.time_us, event.waits));
        found = found.evidence("foreground-events", event_text(view, event));
    }
    let block = view.document.block_bytes();
    for table in &objects {
        let size = single_blocks(table).unwrap_or(0.0) * block;
        found = found
            .evidence("io-relation", format!("{}: about {}B read block by block", object_name(table), bytes(size)));
    }
    let saved = average_us.map_or(us, |average| us * (1.0 - FLASH_READ_US / average).max(0.0));
    Some(vec![found.recommend(
        "Store the objects on flash, or raise shared_buffers or memory so that they are cached",
        Some(saved),
    )])
}

pub(super) fn latency_tail(view: &View<'_>) -> Judgement {
    let timed: Vec<&Event> =
        foreground_waits(view.document).filter(|event| histogram::total(&event.histogram) >= TAIL_WAITS_MIN).collect();
    if timed.is_empty() {
        return None;
    }
    let mut all = Vec::new();
    for event in timed {
        let total = histogram::total(&event.histogram);
        let Some(average) = average_wait_us(event.time_us, event.waits.or(Some(total))) else { continue };
        let Some(p99) = histogram::quantile_us(&event.histogram, 0.99) else { continue };
        if average <= 0.0 || p99 < TAIL_FACTOR * average {
            continue;
        }
        // Waits in buckets above the bound that is at least the average times the factor, halved for the bucket's width.
        let exponent = (TAIL_FACTOR / 2.0 * average).log2().ceil().max(1.0) as usize;
        let us = histogram::time_at_least_us(&event.histogram, exponent);
        let slow = total - histogram::below(&event.histogram, exponent);
        let found = Found::new(format!("The average hides slow requests of {}", event.event))
            .impact(us)
            .evidence("foreground-events", event_text(view, event))
            .evidence("histogram", format!("one request in a hundred took up to {}", duration(p99)))
            .evidence(
                "histogram",
                format!(
                    "{slow:.0} requests took {} or more: at least {}",
                    duration(histogram::bound_us(exponent)),
                    duration(us)
                ),
            )
            .recommend(
                "Look for the cause of the slow requests: garbage collection of flash, a slow disk, competing scans",
                Some(us),
            );
        all.push(found);
    }
    Some(all)
}

/// Time of a statement that temporary files account for, if the time of their blocks is not available: the share of
/// temporary blocks in all blocks that the statement accessed.
fn estimated_temp_us(sql: &Sql<'_>) -> Measure {
    let temp = sql.temp_blocks.filter(|blocks| *blocks > 0.0);
    let share = ratio(temp, sum([temp, sql.gets]))?;
    Some(share * sql.elapsed_us?)
}

pub(super) fn temp_spills(view: &View<'_>) -> Judgement {
    let waits_us = named_us(view, &TEMPORARY);
    let timed_us = sum(view.sql.iter().map(|sql| sql.temp_us));
    let has_temp_blocks = view.sql.iter().any(|sql| sql.temp_blocks.is_some());
    if view.document.events.is_empty() && timed_us.is_none() && !has_temp_blocks {
        return None;
    }
    let measured_us = waits_us.unwrap_or(0.0).max(timed_us.unwrap_or(0.0));
    let estimated_us = match timed_us {
        Some(us) if us > 0.0 => None,
        _ => sum(view.sql.iter().map(estimated_temp_us)),
    };
    let us = measured_us.max(estimated_us.unwrap_or(0.0));
    if us == 0.0 {
        return Some(Vec::new());
    }
    let worst = top(&view.sql, 1, |sql| sql.temp_us.filter(|us| *us > 0.0).or(sql.temp_blocks)).into_iter().next();
    let title = match worst {
        Some(sql) => format!("Statement {} spilled to temporary files", sql.name()),
        None => "Sorts or hashes spilled to temporary files".to_owned(),
    };
    let mut found = Found::new(title).impact(us).evidence(
        "foreground-events",
        format!("waits for temporary files: {}, {}", duration(measured_us), share_text(view, measured_us)),
    );
    if us > measured_us {
        let text = format!("estimated by the share of temporary blocks: {}, {}", duration(us), share_text(view, us));
        found = found.evidence("sql-temp", text);
    }
    if let Some(sql) = worst {
        let size = sql.temp_blocks.unwrap_or(0.0) * view.document.block_bytes();
        let each =
            ratio(Some(size), sql.calls).map_or_else(String::new, |size| format!(", {}B per execution", bytes(size)));
        let text = one_line(sql.text, 80);
        found = found
            .evidence("sql-temp", format!("SQL {}: {}B of temporary blocks{each}: {text}", sql.name(), bytes(size)));
    }
    let temp = sum(view.document.databases.iter().map(|database| database.temp_bytes));
    if let Some(size) = temp.filter(|size| *size > 0.0) {
        found = found.evidence("databases", format!("{}B of temporary files written", bytes(size)));
    }
    let memory = view
        .document
        .setting_value("work_mem", WORK_MEM)
        .map_or_else(String::new, |size| format!(" above {}B", bytes(size)));
    let target = worst.map_or_else(|| "for these statements".to_owned(), |sql| format!("for statement {}", sql.name()));
    Some(vec![
        found.recommend(format!("Raise work_mem{memory} {target}, or reduce the rows to sort or hash"), Some(us)),
    ])
}
