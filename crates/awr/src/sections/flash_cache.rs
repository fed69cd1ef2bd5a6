//! The flash cache of the cells, with the tables of Oracle's reports for Exadata, and I/O resource management.

use super::{Group, Section};
use crate::document::Measure;
use crate::figures::time::average_wait_us;
use crate::figures::{GIGABYTE, MEGABYTE, add_each, percent, sum};
use crate::table::{Cell, Table};
use crate::view::{View, top};
use std::collections::{BTreeMap, BTreeSet};

const ROWS: usize = 20;

pub fn sections(view: &View<'_>) -> Vec<Section> {
    let cells = Cells::of(view);
    let mut sections = match cells.0.is_empty() {
        true => vec![
            Section::new("flash-cache", Group::Cells, "Flash Cache")
                .sentence(view.missing("cell_stat", "no cell of the cluster has a flash cache")),
        ],
        false => vec![
            configuration(&cells),
            space(&cells),
            reads(view, &cells),
            efficiency(&cells),
            user_writes(view, &cells),
            skips(view, &cells),
            internal_reads(view, &cells),
            internal_writes(view, &cells),
        ],
    };
    sections.extend(iorm(view));
    sections
}

/// The cells with a flash cache, and the figures of each.
struct Cells<'a>(Vec<(&'a str, Figures<'a>)>);

#[derive(Default)]
struct Figures<'a>(BTreeMap<&'a str, Measure>);

impl Figures<'_> {
    /// Returns a metric by its name without `cellar_flash_cache_`.
    fn get(&self, name: &str) -> Measure {
        self.0.get(format!("flash_cache_{name}").as_str()).copied().flatten()
    }

    /// As [`Self::get`], of write-back.
    fn of_write_back(&self, name: &str) -> Measure {
        self.0.get(format!("write_back_{name}").as_str()).copied().flatten()
    }

    fn writes_back(&self) -> bool {
        self.of_write_back("selected") == Some(1.0)
    }

    /// Returns the increase of a counter; 0 if it did not increase, because a repository stores what did.
    fn count(&self, name: &str) -> Measure {
        Some(self.get(name).unwrap_or(0.0))
    }

    fn megabytes(&self, name: &str) -> Measure {
        self.count(name).map(|bytes| bytes / MEGABYTE)
    }
}

impl<'a> Cells<'a> {
    fn of(view: &View<'a>) -> Self {
        let mut cells: BTreeMap<&str, Figures<'_>> = BTreeMap::new();
        for statistic in &view.document.cell_statistics {
            let figure = statistic.total.or(statistic.value);
            cells.entry(&statistic.cell).or_default().0.insert(&statistic.name, figure);
        }
        cells.retain(|_, figures| figures.get("capacity_bytes").is_some());
        Self(cells.into_iter().collect())
    }

    fn table(&self, columns: &[&'static str], row: impl Fn(&Figures<'a>) -> Vec<Cell>) -> Table {
        let columns: Vec<&str> = ["<Cell Name"].iter().chain(columns).copied().collect();
        let rows = self.0.iter().map(|(name, figures)| {
            let cells = std::iter::once(Cell::text(*name));
            cells.chain(row(figures)).collect()
        });
        Table::new(&columns).with_rows(rows)
    }
}

fn difference(all: Measure, part: Measure) -> Measure {
    all.zip(part).map(|(all, part)| (all - part).max(0.0))
}

fn hit_percent(hits: Measure, misses: Measure) -> Cell {
    Cell::percent(percent(hits, sum([hits, misses])), 1)
}

fn gigabytes(bytes: Measure) -> Cell {
    Cell::decimal(bytes.map(|bytes| bytes / GIGABYTE), 2)
}

fn configuration(cells: &Cells<'_>) -> Section {
    let table =
        Table::new(&["<Mode", "<Status", "Size (GB)", "<Cells"]).with_rows(cells.0.iter().map(|(name, cell)| {
            let is_used = cell.get("online").is_some_and(|online| online > 0.0);
            let status = if is_used { "normal" } else { "critical" };
            vec![
                Cell::text(if cell.writes_back() { "WriteBack" } else { "WriteThrough" }),
                Cell::text(status),
                gigabytes(cell.get("capacity_bytes")),
                Cell::text(*name),
            ]
        }));
    Section::new("flash-cache-configuration", Group::Cells, "Flash Cache Configuration").note("at the end").table(table)
}

fn space(cells: &Cells<'_>) -> Section {
    let table = cells.table(&["Space (GB)", "%Used", "Default: %Clean", "Keep: %Clean"], |cell| {
        let (size, used, kept) = (cell.get("capacity_bytes"), cell.count("used_bytes"), cell.count("keep_used_bytes"));
        vec![
            gigabytes(size),
            Cell::percent(percent(used, size), 1),
            Cell::percent(percent(difference(used, kept), size), 1),
            Cell::percent(percent(kept, size), 1),
        ]
    });
    Section::new("flash-cache-space", Group::Cells, "Flash Cache Space Usage")
        .note("at the end; all cached pages are clean: with write-back, dirty pages are in its log, beside the cache")
        .table(table)
}

fn reads(view: &View<'_>, cells: &Cells<'_>) -> Section {
    let columns = [
        "Requests: Total Hits",
        "Hits per Sec",
        "OLTP",
        "Scan",
        "Keep",
        "Misses",
        "Megabytes: Total Hits",
        "Hit MB/s",
        "OLTP",
        "Scan",
        "Keep",
        "Misses",
    ];
    let table = cells.table(&columns, |cell| {
        let (hits, bytes) = (cell.count("hits_total"), cell.megabytes("hit_bytes_total"));
        let (large, large_bytes) = (cell.count("large_hits_total"), cell.megabytes("large_hit_bytes_total"));
        vec![
            Cell::count(hits),
            Cell::decimal(view.per_second(hits), 1),
            Cell::count(difference(hits, large)),
            Cell::count(large),
            Cell::count(cell.count("keep_hits_total")),
            Cell::count(cell.count("misses_total")),
            Cell::decimal(bytes, 1),
            Cell::decimal(view.per_second(bytes), 2),
            Cell::decimal(difference(bytes, large_bytes), 1),
            Cell::decimal(large_bytes, 1),
            Cell::decimal(cell.megabytes("keep_hit_bytes_total"), 1),
            Cell::decimal(cell.megabytes("miss_bytes_total"), 1),
        ]
    });
    Section::new("flash-cache-user-reads", Group::Cells, "Flash Cache User Reads")
        .note("counted by the cells, of all clusters on them. OLTP: reads of up to 128 KiB, Scan: larger ones, Keep: of both, those of files with the setting KEEP")
        .table(table)
}

fn efficiency(cells: &Cells<'_>) -> Section {
    let columns = [
        "Total Hits: Requests",
        "MB",
        "%Hit",
        "OLTP: Read Hits",
        "Misses",
        "%Hit",
        "Scan: Read MB",
        "Attempted MB",
        "%Hit",
        "Keep: Read Hits",
        "Misses",
        "%Hit",
    ];
    let table = cells.table(&columns, |cell| {
        let (hits, misses) = (cell.count("hits_total"), cell.count("misses_total"));
        let small_hits = difference(hits, cell.count("large_hits_total"));
        let small_misses = difference(misses, cell.count("large_misses_total"));
        let (scanned, missed) = (cell.megabytes("large_hit_bytes_total"), cell.megabytes("large_miss_bytes_total"));
        let (kept, not_kept) = (cell.count("keep_hits_total"), cell.count("keep_misses_total"));
        vec![
            Cell::count(hits),
            Cell::decimal(cell.megabytes("hit_bytes_total"), 1),
            hit_percent(hits, misses),
            Cell::count(small_hits),
            Cell::count(small_misses),
            hit_percent(small_hits, small_misses),
            Cell::decimal(scanned, 1),
            Cell::decimal(sum([scanned, missed]), 1),
            hit_percent(scanned, missed),
            Cell::count(kept),
            Cell::count(not_kept),
            hit_percent(kept, not_kept),
        ]
    });
    Section::new("flash-cache-efficiency", Group::Cells, "Flash Cache User Reads Efficiency").table(table)
}

/// Writes to the write-back log. Empty in the mode WriteThrough.
fn user_writes(view: &View<'_>, cells: &Cells<'_>) -> Section {
    let columns = [
        "Requests: Total",
        "per Sec",
        "First",
        "Overwrites",
        "Megabytes: Total",
        "per Sec",
        "First",
        "Overwrites",
        "Disk Writes",
        "Dirty (MB)",
    ];
    let count = |cell: &Figures<'_>, name: &str| Some(cell.of_write_back(name).unwrap_or(0.0));
    let megabytes = |cell: &Figures<'_>, name: &str| count(cell, name).map(|bytes| bytes / MEGABYTE);
    let table = cells.table(&columns, |cell| {
        let (requests, bytes) = (count(cell, "write_requests_total"), megabytes(cell, "written_bytes_total"));
        vec![
            Cell::count(requests),
            Cell::decimal(view.per_second(requests), 1),
            Cell::count(count(cell, "first_write_requests_total")),
            Cell::count(count(cell, "overwrite_requests_total")),
            Cell::decimal(bytes, 1),
            Cell::decimal(view.per_second(bytes), 2),
            Cell::decimal(megabytes(cell, "first_written_bytes_total"), 1),
            Cell::decimal(megabytes(cell, "overwritten_bytes_total"), 1),
            Cell::decimal(megabytes(cell, "destaged_bytes_total"), 1),
            Cell::decimal(megabytes(cell, "dirty_bytes"), 1),
        ]
    });
    let section = Section::new("flash-cache-user-writes", Group::Cells, "Flash Cache User Writes");
    let is_used = |cell: &Figures<'_>| cell.writes_back() || cell.of_write_back("written_bytes_total").is_some();
    match cells.0.iter().any(|(_, cell)| is_used(cell)) {
        true => section
            .note("writes to the write-back log. First: of pages that become dirty. Disk Writes: megabytes from flash to the cell disks. Dirty: at the end")
            .table(table),
        false => section.sentence("Writes go to the cell disks: the flash cache mode is WriteThrough."),
    }
}

fn skips(view: &View<'_>, cells: &Cells<'_>) -> Section {
    let columns = [
        "Requests Skipped: Total",
        "per Second",
        "Storage Clause",
        "IORM Limit",
        "Large IO",
        "MB Skipped: Total",
        "per Second",
    ];
    let table = cells.table(&columns, |cell| {
        let (skips, bytes) = (cell.count("skips_total"), cell.megabytes("skip_bytes_total"));
        let (by_setting, by_limit) = (cell.count("setting_skips_total"), cell.count("limit_skips_total"));
        vec![
            Cell::count(skips),
            Cell::decimal(view.per_second(skips), 1),
            Cell::count(by_setting),
            Cell::count(by_limit),
            Cell::count(difference(skips, sum([by_setting, by_limit]))),
            Cell::decimal(bytes, 1),
            Cell::decimal(view.per_second(bytes), 2),
        ]
    });
    Section::new("flash-cache-skips", Group::Cells, "Flash Cache User Reads Skips")
        .note(
            "misses that were not to be cached. Storage Clause: of files with the setting NONE. IORM Limit: of databases \
             with flashcache = off, or at their flashcachelimit",
        )
        .table(table)
}

fn internal_reads(view: &View<'_>, cells: &Cells<'_>) -> Section {
    let table = cells.table(&["Read MB: Total", "per Sec", "Segments Evicted"], |cell| {
        let bytes = cell.megabytes("kept_bytes_total");
        vec![
            Cell::decimal(bytes, 1),
            Cell::decimal(view.per_second(bytes), 2),
            Cell::count(cell.count("evicted_segments_total")),
        ]
    });
    Section::new("flash-cache-internal-reads", Group::Cells, "Flash Cache Internal Reads")
        .note("pages that an eviction copied because they are in use")
        .table(table)
}

fn internal_writes(view: &View<'_>, cells: &Cells<'_>) -> Section {
    let columns = [
        "Population Requests",
        "per Sec",
        "Write MB: Total",
        "per Sec",
        "Population",
        "Rewritten",
        "Evictions",
        "Fills Dropped",
        "Intents",
        "Checkpoints",
    ];
    let table = cells.table(&columns, |cell| {
        let requests = cell.count("populated_requests_total");
        let parts =
            ["populated_bytes_total", "rewritten_bytes_total", "kept_bytes_total"].map(|name| cell.megabytes(name));
        let total = sum(parts);
        let counts =
            ["dropped_fills_total", "intents_total", "checkpoints_total"].map(|name| Cell::count(cell.count(name)));
        let mut row = vec![
            Cell::count(requests),
            Cell::decimal(view.per_second(requests), 1),
            Cell::decimal(total, 1),
            Cell::decimal(view.per_second(total), 2),
        ];
        row.extend(parts.map(|bytes| Cell::decimal(bytes, 1)));
        row.extend(counts);
        row
    });
    Section::new("flash-cache-internal-writes", Group::Cells, "Flash Cache Internal Writes")
        .note("Population: after reads that missed; Rewritten: cached pages that a write changed; Evictions: pages in use that an eviction copied")
        .table(table)
}

// ---- I/O resource management ----

/// What the requests of one size did, on cell disks.
#[derive(Clone, Copy, Default)]
struct OfSize {
    requests: Measure,
    bytes: Measure,
    wait_us: Measure,
    request_us: Measure,
}

#[derive(Clone, Copy, Default)]
struct Usage {
    small: OfSize,
    large: OfSize,
    device_us: Measure,
    flash_requests: Measure,
    flash_bytes: Measure,
}

impl Usage {
    fn bytes(&self) -> Measure {
        sum([self.small.bytes, self.large.bytes, self.flash_bytes])
    }
}

fn iorm(view: &View<'_>) -> Vec<Section> {
    let mut databases: BTreeMap<&str, Usage> = BTreeMap::new();
    let mut groups: BTreeMap<(&str, &str), Usage> = BTreeMap::new();
    for class in &view.document.iorm {
        let add = |usage: &mut Usage| {
            let of_size = if &*class.size == "large" { &mut usage.large } else { &mut usage.small };
            add_each(
                [
                    &mut of_size.requests,
                    &mut of_size.bytes,
                    &mut of_size.wait_us,
                    &mut of_size.request_us,
                    &mut usage.device_us,
                    &mut usage.flash_requests,
                    &mut usage.flash_bytes,
                ],
                [
                    class.requests,
                    class.bytes,
                    class.wait_us,
                    class.request_us,
                    class.device_us,
                    class.flash_requests,
                    class.flash_bytes,
                ],
            );
        };
        add(databases.entry(&*class.database).or_default());
        add(groups.entry((&*class.database, &*class.consumer_group)).or_default());
    }
    if databases.is_empty() {
        let missing = view.missing("iorm_stat", "no cell stores files of the cluster, or none had I/O");
        return vec![Section::new("iorm", Group::Cells, "I/O Resource Management").sentence(missing)];
    }
    let total_device_us = sum(databases.values().map(|usage| usage.device_us));
    let (databases, groups): (Vec<_>, Vec<_>) = (databases.into_iter().collect(), groups.into_iter().collect());
    let by_database = Table::new(&columns(&["<Database"])).with_rows(
        top(&databases, ROWS, |(_, usage)| usage.bytes())
            .into_iter()
            .map(|(name, usage)| row(view, vec![Cell::text(*name)], usage, total_device_us)),
    );
    let by_group = Table::new(&columns(&["<Database", "<Consumer Group"])).with_rows(
        top(&groups, 2 * ROWS, |(_, usage)| usage.bytes()).into_iter().map(|((database, group), usage)| {
            row(view, vec![Cell::text(*database), Cell::text(*group)], usage, total_device_us)
        }),
    );
    vec![
        objective(view),
        Section::new("iorm-databases", Group::Cells, "IORM by Database")
            .note("requests to the cell disks, of all clusters on the cells. Small: up to 128 KiB. Wait: in the queues of the cell disks. %Device: of the device time that all requests are charged with")
            .table_or(by_database, "No database had I/O on the cells."),
        Section::new("iorm-consumer-groups", Group::Cells, "IORM by Consumer Group")
            .note("_ORACLE_BACKGROUND_GROUP_: background processes; _ORACLE_LOWPRIBG_GROUP_: background work of the cells")
            .table_or(by_group, "No consumer group had I/O on the cells."),
    ]
}

fn objective(view: &View<'_>) -> Section {
    let name = |mode: f64| match mode as u64 {
        0 => "off",
        1 => "low_latency",
        3 => "high_throughput",
        _ => "balanced, auto or basic",
    };
    let mut cells: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for statistic in view.document.cell_statistics.iter().filter(|statistic| &*statistic.name == "iorm_mode_number") {
        if let Some(mode) = statistic.value {
            cells.entry(name(mode)).or_default().insert(&statistic.cell);
        }
    }
    let table = Table::new(&["<End", "<Cells"]).with_rows(cells.into_iter().map(|(objective, cells)| {
        vec![Cell::text(objective), Cell::text(cells.into_iter().collect::<Vec<_>>().join(", "))]
    }));
    Section::new("iorm-objective", Group::Cells, "IORM Objective")
        .table_or(table, view.missing("cell_stat", "the cells did not report their objectives"))
}

fn columns(names: &[&'static str]) -> Vec<&'static str> {
    const FIGURES: [&str; 13] = [
        "Small Reqs",
        "per Sec",
        "MB",
        "Avg Wait",
        "Avg Time",
        "Large Reqs",
        "per Sec",
        "MB",
        "Avg Wait",
        "Avg Time",
        "%Device",
        "Flash Reqs",
        "Flash MB",
    ];
    names.iter().chain(&FIGURES).copied().collect()
}

fn row(view: &View<'_>, names: Vec<Cell>, usage: &Usage, total_device_us: Measure) -> Vec<Cell> {
    let megabytes = |bytes: Measure| Cell::decimal(bytes.map(|bytes| bytes / MEGABYTE), 1);
    let of_size = |size: &OfSize| {
        [
            Cell::count(size.requests),
            Cell::decimal(view.per_second(size.requests), 1),
            megabytes(size.bytes),
            Cell::duration(average_wait_us(size.wait_us, size.requests)),
            Cell::duration(average_wait_us(size.request_us, size.requests)),
        ]
    };
    let rest = [
        Cell::percent(percent(usage.device_us, total_device_us), 1),
        Cell::count(usage.flash_requests),
        megabytes(usage.flash_bytes),
    ];
    names.into_iter().chain(of_size(&usage.small)).chain(of_size(&usage.large)).chain(rest).collect()
}
