//! The claims: what a cell would offload, what flash would serve, what compression would save.

use super::figures::{Figures, Sourced, event_text};
use super::{Advice, Claim, segments};
use crate::document::names;
use crate::figures::{histogram, percent, sum};
use crate::rules::FLASH_READ_US;
use crate::table::{bytes, duration};

/// Ratios of QUERY LOW: a low one for data that compress badly, and the greatest that was measured (docs/benchmarks.md).
const COMPRESSION_LOW: f64 = 2.0;
const COMPRESSION_HIGH: f64 = 6.3;
/// Share of the reads that a flash device of part of the data serves.
const FLASH_HITS_LOW: f64 = 0.7;

const DIRECT_READS: &str = "physical reads direct";
const DIRECT_TEMPORARY: &str = "physical reads direct temporary tablespace";
const DIRECT_LOB: &str = "physical reads direct (lob)";
const PREFETCHED: &str = "physical reads cache prefetch";
const READ_BLOCKS: &str = "physical reads";
const MULTI_BLOCK_REQUESTS: &str = "physical read total multi block requests";

/// Events of reads that are offloadable, those that may become offloadable, and those that a cell already filters.
const DIRECT_EVENTS: [&str; 1] = ["direct path read"];
const SCATTERED_EVENTS: [&str; 3] =
    ["db file scattered read", "cell multiblock physical read", "cell multiblock read request"];
const SMART_EVENTS: [&str; 2] = ["cell smart table scan", "cell smart index scan"];
const SINGLE_BLOCK_EVENTS: [&str; 2] = ["db file sequential read", "cell single block physical read"];

/// Functions of pg_stat_io: reads of large scans through a ring of buffers, and all others.
const BULK: &str = "Direct Reads and Writes";
const BUFFERED: &str = "Buffer Cache Reads";

/// Bytes that scans read, as a range, of all bytes read.
struct Scans {
    low: f64,
    high: f64,
    total: f64,
    figures: Vec<String>,
    assumptions: Vec<String>,
}

/// The bytes of scans. Err: why the report does not say.
fn scans(figures: &Figures<'_>) -> Result<Scans, String> {
    let scans = if figures.is_own() { own_scans(figures)? } else { oracle_scans(figures)? };
    match scans.total > 0.0 {
        true => Ok(scans),
        false => Err("Offloadable reads: no block was read from storage in the interval.".to_owned()),
    }
}

fn oracle_scans(figures: &Figures<'_>) -> Result<Scans, String> {
    let mut assumptions: Vec<String> = figures.block_assumption.clone().into_iter().collect();
    let eligible = figures.statistic(names::ELIGIBLE).filter(|eligible| eligible.value > 0.0);
    if let Some((eligible, total)) = eligible.zip(figures.statistic(names::READ_BYTES)) {
        assumptions.push("bytes that storage cells already offload are those that a cell would offload".to_owned());
        return Ok(Scans {
            low: eligible.value.min(total.value),
            high: eligible.value.min(total.value),
            total: total.value,
            figures: vec![eligible.text, total.text],
            assumptions,
        });
    }
    let (Some(direct), Some(total)) = (figures.blocks(DIRECT_READS), figures.blocks(READ_BLOCKS)) else {
        return Err(format!(
            "Offloadable reads: the report has no statistics \"{DIRECT_READS}\" and \"{READ_BLOCKS}\"."
        ));
    };
    let others: Vec<Sourced> = [DIRECT_TEMPORARY, DIRECT_LOB].iter().filter_map(|name| figures.blocks(name)).collect();
    let low = (direct.value - others.iter().map(|other| other.value).sum::<f64>()).max(0.0);
    let prefetched = figures.blocks(PREFETCHED);
    let high = low + prefetched.as_ref().map_or(0.0, |prefetched| prefetched.value);
    assumptions.push("low: direct path reads without temporary segments and LOBs are those of scans".to_owned());
    match &prefetched {
        Some(_) => assumptions.push(
            "high: blocks that multi-block reads fetch into the buffer cache are of scans, which would be offloaded"
                .to_owned(),
        ),
        None => {
            assumptions.push(format!("the report has no statistic \"{PREFETCHED}\": the high bound is the low one"))
        }
    }
    let all = [direct].into_iter().chain(others).chain(prefetched).chain([total.clone()]);
    let figures = all.map(|figure| figure.text).collect();
    Ok(Scans { low, high: high.min(total.value), total: total.value, figures, assumptions })
}

fn own_scans(figures: &Figures<'_>) -> Result<Scans, String> {
    let mut assumptions: Vec<String> = figures.block_assumption.clone().into_iter().collect();
    let scanned = segments::scanned(figures.report, figures.block);
    let (bulk, buffered) = (figures.function(BULK), figures.function(BUFFERED));
    let size = |function: &Option<super::figures::Function>| function.as_ref().map_or(0.0, |function| function.bytes);
    let (low, total, mut texts) = match bulk.is_some() || buffered.is_some() {
        true => {
            assumptions.push(
                "low: reads through PostgreSQL's ring buffers (bulkread) are those of scans of large tables".to_owned(),
            );
            let texts: Vec<String> = [&bulk, &buffered].into_iter().flatten().map(|f| f.text.clone()).collect();
            (size(&bulk), size(&bulk) + size(&buffered), texts)
        }
        false => {
            let Some(total) = figures.blocks(READ_BLOCKS) else {
                return Err(
                    "Offloadable reads: the report has neither pg_stat_io (PostgreSQL 16 or newer) nor \"physical \
                            reads\"."
                        .to_owned(),
                );
            };
            assumptions
                .push("low: without pg_stat_io (PostgreSQL 16 or newer), no read is known to be of a scan".into());
            (0.0, total.value, vec![total.text])
        }
    };
    let high = low.max(scanned.bytes).min(total);
    if scanned.bytes > low {
        assumptions.push("high: all block reads of a table that was scanned sequentially are of its scans".to_owned());
        texts.extend(scanned.texts);
    }
    Ok(Scans { low, high, total, figures: texts, assumptions })
}

pub fn offloadable(figures: &Figures<'_>, advice: &mut Advice) {
    match scans(figures) {
        Err(reason) => advice.not_claimed.push(reason),
        Ok(scans) => {
            let share = |bytes: f64| 100.0 * bytes / scans.total;
            advice.claims.push(Claim {
                id: "offloadable-reads",
                title: "Reads of scans, which a cell can offload".to_owned(),
                low_percent: share(scans.low),
                high_percent: share(scans.high),
                of: "the bytes read",
                figures: scans.figures,
                assumptions: scans.assumptions,
            });
        }
    }
}

/// The time that sessions wait for the reads of scans.
pub fn scan_time(figures: &Figures<'_>, advice: &mut Advice) {
    let Some(db_time) = figures.db_time.clone() else {
        return advice.not_claimed.push("Times: the report has no DB time.".to_owned());
    };
    let share = |us: f64| (100.0 * us / db_time.value).clamp(0.0, 100.0);
    let mut assumptions = vec!["the waits are the most that offloading can save; DB CPU is not counted".to_owned()];
    let (low, high, mut texts) = if figures.is_own() {
        let Some(event) = figures.data_file_reads() else { return };
        let Ok(scans) = scans(figures) else { return };
        let us = event.time_us.unwrap_or(0.0);
        assumptions.push("waits for reads are divided as the bytes of the reads are".to_owned());
        let texts = std::iter::once(event_text(event)).chain(scans.figures).collect();
        (us * scans.low / scans.total, us * scans.high / scans.total, texts)
    } else {
        let (direct, mut texts) = figures.wait_time(&DIRECT_EVENTS);
        let (smart, smart_texts) = figures.wait_time(&SMART_EVENTS);
        let (scattered, scattered_texts) = figures.wait_time(&SCATTERED_EVENTS);
        texts.extend(smart_texts);
        if scattered > 0.0 {
            assumptions.push("high: multi-block reads into the buffer cache become offloadable scans".to_owned());
            texts.extend(scattered_texts);
        }
        (direct + smart, direct + smart + scattered, texts)
    };
    if high <= 0.0 {
        return advice.not_claimed.push("Waits for reads of scans: no session waited for such a read.".to_owned());
    }
    texts.push(db_time.text);
    advice.claims.push(Claim {
        id: "scan-waits",
        title: "Waits for reads of scans".to_owned(),
        low_percent: share(low),
        high_percent: share(high),
        of: "DB time",
        figures: texts,
        assumptions,
    });
}

/// The bytes that offloading keeps off the interconnect, as far as they were measured.
pub fn transfer(figures: &Figures<'_>, advice: &mut Advice) {
    let measured = [
        (names::ELIGIBLE, names::RETURNED, "statements of the interval stay as selective as they were"),
        (names::SIMULATED_ELIGIBLE, names::SIMULATED_RETURNED, "the simulated scans stand for all scans"),
    ];
    let pair = measured.iter().find_map(|(eligible, returned, assumption)| {
        let eligible = figures.statistic(eligible).filter(|eligible| eligible.value > 0.0)?;
        Some((eligible, figures.statistic(returned)?, *assumption))
    });
    let Some((eligible, returned, assumption)) = pair else {
        return advice.not_claimed.push(
            "Transfer avoided: the report does not say how many bytes the scans need. Offload simulation \
             (cellar.simulate_offload) measures it."
                .to_owned(),
        );
    };
    let avoided = 100.0 * (1.0 - returned.value / eligible.value);
    if avoided < 0.0 {
        return advice.not_claimed.push(format!(
            "Transfer avoided: more bytes were returned than eligible, because the tables are compressed: {}; {}.",
            returned.text, eligible.text
        ));
    }
    advice.claims.push(Claim {
        id: "transfer-avoided",
        title: "Bytes that a cell filters, so that sessions do not receive them".to_owned(),
        low_percent: avoided,
        high_percent: avoided,
        of: "the bytes of scans",
        figures: vec![eligible.text, returned.text],
        assumptions: vec![assumption.to_owned()],
    });
}

pub fn storage_index(figures: &Figures<'_>, advice: &mut Advice) {
    let eligible = figures.statistic(names::ELIGIBLE).filter(|eligible| eligible.value > 0.0);
    match eligible.zip(figures.statistic(names::SAVED)) {
        Some((eligible, saved)) => {
            let share = 100.0 * saved.value / eligible.value;
            advice.claims.push(Claim {
                id: "storage-index",
                title: "Reads of scans that a storage index avoids".to_owned(),
                low_percent: share,
                high_percent: share,
                of: "the bytes of scans",
                figures: vec![saved.text, eligible.text],
                assumptions: vec!["data and predicates are as clustered as they were".to_owned()],
            });
        }
        None => advice.not_claimed.push(
            "Storage index: the report does not say how data are ordered; the reads that a storage index avoids are not \
             computable."
                .to_owned(),
        ),
    }
}

/// The share of read requests that are small.
pub fn flash_requests(figures: &Figures<'_>, advice: &mut Advice) {
    if figures.is_own() {
        let (bulk, buffered) = (figures.function(BULK), figures.function(BUFFERED));
        let rates = |function: &Option<super::figures::Function>| {
            function.as_ref().and_then(|function| function.requests_per_second)
        };
        let Some(small) = rates(&buffered) else {
            return advice.not_claimed.push(
                "Requests that flash would serve: the report has no pg_stat_io (PostgreSQL 16 or newer).".into(),
            );
        };
        let all_requests = small + rates(&bulk).unwrap_or(0.0);
        if all_requests <= 0.0 {
            return advice.not_claimed.push("Requests that flash would serve: no read request was counted.".into());
        }
        let share = 100.0 * small / all_requests;
        let all = [buffered, bulk].into_iter().flatten();
        advice.claims.push(Claim {
            id: "flash-requests",
            title: "Small reads, which flash would serve".to_owned(),
            low_percent: share,
            high_percent: share,
            of: "the read requests",
            figures: all.map(|function| function.text).collect(),
            assumptions: vec!["the objects are stored on flash; the operating system's cache may serve some".into()],
        });
        return;
    }
    let waits = sum(figures.named(&SINGLE_BLOCK_EVENTS).map(|event| event.waits));
    let Some(total) = figures.statistic(names::READ_REQUESTS).filter(|total| total.value > 0.0) else {
        return advice.not_claimed.push(format!(
            "Requests that flash would serve: the report has no statistic \"{}\".",
            names::READ_REQUESTS
        ));
    };
    let mut texts: Vec<String> = figures.named(&SINGLE_BLOCK_EVENTS).map(event_text).collect();
    let mut assumptions =
        vec!["low: single-block reads of foreground sessions; the objects are stored on flash".to_owned()];
    let multi = figures.statistic(MULTI_BLOCK_REQUESTS);
    if waits.is_none() {
        if multi.is_none() {
            return advice.not_claimed.push(format!(
                "Requests that flash would serve: the report has neither single-block reads of sessions nor \"{MULTI_BLOCK_REQUESTS}\"."
            ));
        }
        assumptions = vec!["low: the report lists no single-block reads of foreground sessions".to_owned()];
    }
    let low = waits.map_or(0.0, |waits| (100.0 * waits / total.value).min(100.0));
    let high = match &multi {
        Some(multi) => {
            assumptions.push("high: all read requests but multi-block requests".to_owned());
            texts.push(multi.text.clone());
            (100.0 * (1.0 - multi.value / total.value)).clamp(low, 100.0)
        }
        None => low,
    };
    texts.push(total.text);
    advice.claims.push(Claim {
        id: "flash-requests",
        title: "Small reads, which flash would serve".to_owned(),
        low_percent: low,
        high_percent: high,
        of: "the read requests",
        figures: texts,
        assumptions,
    });
}

/// The waits for small reads that flash would shorten.
pub fn flash_time(figures: &Figures<'_>, advice: &mut Advice) {
    let Some(db_time) = figures.db_time.clone() else { return };
    let flash = duration(FLASH_READ_US);
    let mut texts = Vec::new();
    let mut saved = 0.0;
    let mut is_known = false;
    if figures.is_own() {
        let elapsed = figures.report.header.elapsed_us.map(|us| us / 1e6);
        let read = figures.function(BUFFERED);
        let average = read.as_ref().and_then(|read| Some((read.requests_per_second?, read.average_us?)));
        if let (Some((rate, average)), Some(seconds), Some(read)) = (average, elapsed, &read) {
            is_known = true;
            saved = rate * seconds * (average - FLASH_READ_US).max(0.0);
            texts.push(read.text.clone());
        }
    } else {
        let histograms = figures.report.histograms();
        for event in figures.named(&SINGLE_BLOCK_EVENTS) {
            let (Some(waits), Some(us)) = (event.waits, event.time_us) else { continue };
            is_known = true;
            saved += (us - waits * FLASH_READ_US).max(0.0);
            texts.push(event_text(event));
            if let Some(buckets) = histograms.get(&event.name).filter(|buckets| histogram::total(buckets) > 0.0) {
                // The bound below the time of a flash read.
                let exponent = FLASH_READ_US.log2().ceil() as usize;
                let slow = histogram::total(buckets) - histogram::below(buckets, exponent);
                if let Some(share) = percent(Some(slow), Some(histogram::total(buckets))) {
                    let bound = duration(histogram::bound_us(exponent));
                    texts.push(format!("{}: {share:.1} % of the waits took {bound} or more", event.name));
                }
            }
        }
    }
    if !is_known {
        return advice.not_claimed.push(
            "Waits that flash would shorten: the report has no count and time of single-block reads (PostgreSQL: \
             track_io_timing)."
                .to_owned(),
        );
    }
    let share = |us: f64| (100.0 * us / db_time.value).clamp(0.0, 100.0);
    let mut assumptions = vec![
        format!("a read from flash takes {flash}"),
        format!("low: {:.0} % of the reads are served by flash; high: all", 100.0 * FLASH_HITS_LOW),
    ];
    if saved == 0.0 {
        assumptions.push("the reads already take less than a read from flash on average".to_owned());
    }
    texts.push(db_time.text);
    advice.claims.push(Claim {
        id: "flash-waits",
        title: "Waits for small reads that flash would save".to_owned(),
        low_percent: share(saved * FLASH_HITS_LOW),
        high_percent: share(saved),
        of: "DB time",
        figures: texts,
        assumptions,
    });
}

/// The bytes that need not be read, if the tables that scans read are compressed.
pub fn compression(figures: &Figures<'_>, advice: &mut Advice) {
    let uncompressed = figures.statistic(names::UNCOMPRESSED);
    let eligible = figures.statistic(names::ELIGIBLE).filter(|eligible| eligible.value > 0.0);
    if let Some((eligible, uncompressed)) = eligible.zip(uncompressed) {
        let saved = figures.statistic(names::SAVED).map_or(0.0, |saved| saved.value);
        let ratio = (eligible.value - saved) / uncompressed.value;
        if ratio > 0.0 && ratio < 0.95 {
            return advice.not_claimed.push(format!(
                "Compression: the scanned tables are compressed already, by a factor of {:.1}: {}; {}.",
                1.0 / ratio,
                eligible.text,
                uncompressed.text
            ));
        }
    }
    let Ok(scans) = scans(figures) else { return };
    if scans.high <= 0.0 {
        return advice.not_claimed.push("Compression: the report shows no reads of scans.".to_owned());
    }
    let share = |bytes: f64, ratio: f64| 100.0 * bytes * (1.0 - 1.0 / ratio) / scans.total;
    let mut texts = scans.figures;
    texts.push(format!("reads of scans: {}B to {}B", bytes(scans.low), bytes(scans.high)));
    let mut assumptions = scans.assumptions;
    assumptions.push(format!(
        "level QUERY LOW; low: a ratio of {COMPRESSION_LOW:.0}; high: {COMPRESSION_HIGH}, the greatest of docs/benchmarks.md. \
         cellar.compression_advisor() measures the ratio of a table"
    ));
    assumptions.push("the scanned tables are not compressed yet, and scans read all columns".to_owned());
    advice.claims.push(Claim {
        id: "compression",
        title: "Bytes that scans of compressed tables do not read".to_owned(),
        low_percent: share(scans.low, COMPRESSION_LOW),
        high_percent: share(scans.high, COMPRESSION_HIGH),
        of: "the bytes read",
        figures: texts,
        assumptions,
    });
}

/// The time that no storage can save more than.
pub fn bound(figures: &Figures<'_>, advice: &mut Advice) {
    let Some(db_time) = figures.db_time.clone() else { return };
    let waits = figures.events.iter().filter(|event| !event.is_background && event.class == "User I/O");
    let us: f64 = waits.filter_map(|event| event.time_us).sum();
    if us <= 0.0 {
        return;
    }
    let share = (100.0 * us / db_time.value).min(100.0);
    advice.claims.push(Claim {
        id: "bound",
        title: "All waits for user I/O: the most that storage can save".to_owned(),
        low_percent: 0.0,
        high_percent: share,
        of: "DB time",
        figures: vec![format!("waits of class User I/O of the list of events: {}", duration(us)), db_time.text],
        assumptions: vec!["offloading moves CPU time to the cell, which is not counted".to_owned()],
    });
}
