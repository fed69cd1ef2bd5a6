//! The metrics: name, description, type, unit, and how each is computed.

use super::reading::{Counter, MeasuredObject, Reading};
use crate::names::{cell_disk_name, flash_cache_name, flash_log_name, grid_disk_name};
use std::sync::OnceLock;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricType {
    Cumulative,
    Instantaneous,
    Rate,
}

impl MetricType {
    pub fn name(self) -> &'static str {
        match self {
            Self::Cumulative => "Cumulative",
            Self::Instantaneous => "Instantaneous",
            Self::Rate => "Rate",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MeasuredType {
    Cell,
    CellDisk,
    ConsumerGroup,
    Database,
    FlashCache,
    FlashLog,
    GridDisk,
    SmartIo,
}

/// How the value of a metric follows from a counter.
#[derive(Debug, Clone, Copy)]
enum Formula {
    /// The counter divided by this.
    Total(f64),
    /// The increase of the counter divided by this, per second.
    PerSecond(f64),
    /// The increase of the counter divided by this, per increase of another counter; 0 if the other does not increase.
    Per(f64, Counter),
    /// The increase as a percentage of the increase of another counter.
    PercentOf(Counter),
    /// The counter as a percentage of the sum of it and of another one; 100 if both are zero.
    PercentWith(Counter),
    /// The increase, a time of cell disks, as a percentage of the time of all cell disks.
    PercentOfDisks,
}

#[derive(Debug)]
pub struct Definition {
    pub name: &'static str,
    pub description: &'static str,
    pub metric_type: MetricType,
    pub unit: &'static str,
    measured: MeasuredType,
    counter: Counter,
    formula: Formula,
}

impl Definition {
    pub fn object_type(&self) -> &'static str {
        match self.measured {
            MeasuredType::Cell => "CELL",
            MeasuredType::CellDisk => "CELLDISK",
            MeasuredType::ConsumerGroup => "IORM_CONSUMER_GROUP",
            MeasuredType::Database => "IORM_DATABASE",
            MeasuredType::FlashCache => "FLASHCACHE",
            MeasuredType::FlashLog => "FLASHLOG",
            MeasuredType::GridDisk => "GRIDDISK",
            MeasuredType::SmartIo => "SMARTIO",
        }
    }

    /// Returns whether the objects are databases or consumer groups, which exist from their first I/O on.
    pub fn has_changing_objects(&self) -> bool {
        matches!(self.measured, MeasuredType::ConsumerGroup | MeasuredType::Database)
    }

    pub fn objects(&self, reading: &Reading) -> Vec<MeasuredObject> {
        let of_disks = |name: fn(u64, &str) -> String| {
            let cell = reading.cell();
            let disks = reading.disks.iter();
            disks.map(|disk| MeasuredObject { name: name(disk.number, &cell), key: disk.path.clone() }).collect()
        };
        let one = |name: String| vec![MeasuredObject { name, key: String::new() }];
        match self.measured {
            MeasuredType::Cell => one(reading.cell()),
            MeasuredType::FlashCache => one(flash_cache_name(&reading.cell())),
            MeasuredType::FlashLog => one(flash_log_name(&reading.cell())),
            MeasuredType::SmartIo => one("SMARTIO".to_owned()),
            MeasuredType::CellDisk => of_disks(cell_disk_name),
            MeasuredType::GridDisk => of_disks(grid_disk_name),
            MeasuredType::ConsumerGroup => reading.io_classes(true),
            MeasuredType::Database => reading.io_classes(false),
        }
    }

    /// Returns whether the cell has an object with a name.
    pub fn has_object(&self, reading: &Reading, name: &str) -> bool {
        let found = self.objects(reading).into_iter().find(|object| object.name.eq_ignore_ascii_case(name));
        match self.measured {
            // Without a flash cache, the only object has its name, but no counters.
            MeasuredType::FlashCache | MeasuredType::FlashLog => {
                found.is_some_and(|object| self.exists(reading, &object.key))
            }
            _ => found.is_some(),
        }
    }

    pub fn needs_two_readings(&self) -> bool {
        !matches!(self.formula, Formula::Total(_) | Formula::PercentWith(_))
    }

    /// Returns whether the cell has the counters of the metric.
    pub fn exists(&self, reading: &Reading, object: &str) -> bool {
        reading.counter(self.counter, object).is_some()
    }

    pub fn at(&self, reading: &Reading, object: &str) -> Option<f64> {
        let counted = reading.counter(self.counter, object)?;
        Some(match self.formula {
            Formula::Total(scale) => counted / scale,
            Formula::PercentWith(other) => match counted + reading.counter(other, object)? {
                0.0 => 100.0,
                sum => 100.0 * counted / sum,
            },
            _ => return None,
        })
    }

    /// Returns None if a counter does not exist or has started from zero again, or if no time has passed.
    pub fn between(&self, before: &Reading, after: &Reading, object: &str) -> Option<f64> {
        let increase = |counter| after.increase_since(before, counter, object);
        let ratio = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
        let part = increase(self.counter)?;
        Some(match self.formula {
            Formula::Total(_) | Formula::PercentWith(_) => return self.at(after, object),
            Formula::PerSecond(scale) => ratio(part / scale, after.seconds_since(before)),
            Formula::Per(scale, other) => ratio(part / scale, increase(other)?),
            Formula::PercentOf(other) => 100.0 * ratio(part, increase(other)?),
            Formula::PercentOfDisks => 100.0 * ratio(part, after.seconds_since(before) * after.disks.len() as f64),
        })
    }
}

pub fn definitions() -> &'static [Definition] {
    static DEFINITIONS: OnceLock<Vec<Definition>> = OnceLock::new();
    DEFINITIONS.get_or_init(|| {
        let mut all = of_cell();
        all.extend(of_disks("CD", "a cell disk", MeasuredType::CellDisk));
        all.extend(of_disks("GD", "a grid disk", MeasuredType::GridDisk));
        all.extend(of_flash_cache());
        all.extend(of_flash_log());
        all.extend(of_io_classes("CG", "this consumer group", MeasuredType::ConsumerGroup));
        all.extend(of_io_classes("DB", "this database", MeasuredType::Database));
        all.extend(of_smart_io());
        all.sort_by_key(|definition| definition.name);
        all
    })
}

const MIB: f64 = 1048576.0;
const MICROSECONDS: f64 = 1e-6;

/// The table below is built once and lives as long as the program.
fn text(text: String) -> &'static str {
    text.leak()
}

fn of_cell() -> Vec<Definition> {
    let define = |name, description, metric_type, unit, counter, formula| Definition {
        name,
        description,
        metric_type,
        unit,
        measured: MeasuredType::Cell,
        counter,
        formula,
    };
    use MetricType::Instantaneous;
    vec![
        define(
            "CL_CPUT",
            "Percentage of time that the CPUs of the machine were not idle",
            Instantaneous,
            "%",
            Counter::MachineCpuBusy,
            Formula::PercentOf(Counter::MachineCpuTotal),
        ),
        define(
            "CL_CPUT_CS",
            "Percentage of the time of the CPUs of the machine that the cell used",
            Instantaneous,
            "%",
            Counter::CellCpu,
            Formula::PercentOf(Counter::MachineCpuTotal),
        ),
        define(
            "CL_MEMUT",
            "Percentage of the memory of the machine that is used",
            Instantaneous,
            "%",
            Counter::MachineMemoryPercent,
            Formula::Total(1.0),
        ),
        define(
            "CL_RUNQ",
            "Average number of processes, over the preceding minute, that run or wait for a CPU or a disk",
            Instantaneous,
            "Number",
            Counter::MachineRunQueue,
            Formula::Total(1.0),
        ),
        define(
            "IORM_MODE",
            "Objective of I/O resource management: 1 low_latency, 2 balanced, auto or basic, 3 high_throughput, 0 off",
            Instantaneous,
            "Number",
            Counter::IormMode,
            Formula::Total(1.0),
        ),
    ]
}

fn of_disks(prefix: &str, disk: &str, measured: MeasuredType) -> Vec<Definition> {
    let mut all = Vec::new();
    let mut define = |name: String, description: String, metric_type, unit, counter, formula| {
        let (name, description) = (text(format!("{prefix}_{name}")), text(description));
        all.push(Definition { name, description, metric_type, unit, measured, counter, formula });
    };
    use MetricType::{Cumulative, Rate};
    for (letter, operation, done, from, verb) in
        [('R', "read", "read", "from", "read"), ('W', "write", "written", "to", "write")]
    {
        for (size, blocks, is_large) in [("LG", "large blocks", true), ("SM", "small blocks", false)] {
            let bytes = Counter::DiskBytes { operation, is_large };
            let requests = Counter::DiskRequests { operation, is_large };
            let seconds = Counter::DiskSeconds { operation, is_large };
            let moved = format!("Number of megabytes {done} in {blocks}");
            let requested = format!("Number of requests to {verb} {blocks}");
            let name = |what: &str, end: &str| format!("IO_{what}_{letter}_{size}{end}");
            define(name("BY", ""), format!("{moved} {from} {disk}"), Cumulative, "MB", bytes, Formula::Total(MIB));
            define(
                name("BY", "_SEC"),
                format!("{moved} per second {from} {disk}"),
                Rate,
                "MB/sec",
                bytes,
                Formula::PerSecond(MIB),
            );
            define(
                name("RQ", ""),
                format!("{requested} {from} {disk}"),
                Cumulative,
                "IO requests",
                requests,
                Formula::Total(1.0),
            );
            define(
                name("RQ", "_SEC"),
                format!("{requested} {from} {disk} per second"),
                Rate,
                "IO/sec",
                requests,
                Formula::PerSecond(1.0),
            );
            define(
                name("TM", ""),
                format!("Cumulative latency of {verb} requests of {blocks} {from} {disk}"),
                Cumulative,
                "us",
                seconds,
                Formula::Total(MICROSECONDS),
            );
            define(
                name("TM", "_RQ"),
                format!("Average latency of {verb} requests of {blocks} {from} {disk}"),
                Rate,
                "us/request",
                seconds,
                Formula::Per(MICROSECONDS, requests),
            );
        }
    }
    define(
        "IO_ERRS".to_owned(),
        format!("Number of I/O errors on {disk}"),
        Cumulative,
        "IO requests",
        Counter::DiskErrors,
        Formula::Total(1.0),
    );
    if measured == MeasuredType::CellDisk {
        define(
            "IO_LOAD".to_owned(),
            format!("Average number of requests in progress on {disk}"),
            Rate,
            "Number",
            Counter::DiskBusySeconds,
            Formula::PerSecond(1.0),
        );
    }
    all
}

fn of_smart_io() -> Vec<Definition> {
    const METRICS: [(&str, &str, &str, bool); 8] = [
        ("EL_OF", "eligible for smart IO offload", "cellar_smart_scan_eligible_bytes_total", true),
        ("OF_RE", "returned by smart IO", "cellar_smart_scan_returned_bytes_total", true),
        ("PA_TH", "passed through by smart IO", "cellar_smart_scan_passthru_bytes_total", true),
        ("SI_SV", "saved by the storage index", "cellar_smart_scan_saved_by_storage_index_bytes_total", true),
        ("RD_HD", "read from disk by smart IO", "cellar_smart_scan_disk_read_bytes_total", true),
        ("RD_RQ_HD", "read from disk by smart IO", "cellar_smart_scan_disk_read_requests_total", false),
        ("RD_FC", "read from the flash cache by smart IO", "cellar_smart_scan_flash_read_bytes_total", true),
        ("RD_RQ_FC", "read from the flash cache by smart IO", "cellar_smart_scan_flash_read_requests_total", false),
    ];
    let of_metric = |(name, what, family, is_bytes): (&str, &str, &'static str, bool)| {
        let (things, unit, unit_per_second, scale) = match is_bytes {
            true => ("megabytes", "MB", "MB/sec", MIB),
            false => ("IO requests", "IO requests", "IO/sec", 1.0),
        };
        let define = |end: &str, description: String, metric_type, unit, formula| Definition {
            name: text(format!("SIO_IO_{name}{end}")),
            description: text(description),
            metric_type,
            unit,
            measured: MeasuredType::SmartIo,
            counter: Counter::SmartIo(family),
            formula,
        };
        let total = format!("Cumulative number of {things} {what}");
        let rate = format!("Number of {things} per second {what}");
        [
            define("", total, MetricType::Cumulative, unit, Formula::Total(scale)),
            define("_SEC", rate, MetricType::Rate, unit_per_second, Formula::PerSecond(scale)),
        ]
    };
    METRICS.into_iter().flat_map(of_metric).collect()
}

fn of_flash_cache() -> Vec<Definition> {
    const READS: [(&str, &str, &str, bool); 6] = [
        ("BY_R", "read from flash cache", "cellar_flash_cache_hit_bytes_total", true),
        ("BY_W_POPULATE", "written to flash cache after read misses", "cellar_flash_cache_populated_bytes_total", true),
        ("RQ_W_POPULATE", "whose misses populated flash cache", "cellar_flash_cache_populated_requests_total", false),
        ("RQ_R", "satisfied from flash cache", "cellar_flash_cache_hits_total", false),
        ("RQ_R_MISS", "that did not find all data in flash cache", "cellar_flash_cache_misses_total", false),
        ("RQ_R_SKIP", "that were not to be cached in flash cache", "cellar_flash_cache_skips_total", false),
    ];
    const WRITES: [(&str, &str, &str, bool); 8] = [
        ("BY_DISK_WRITE", "written from flash cache to hard disks", "cellar_write_back_destaged_bytes_total", true),
        ("BY_W", "written to flash cache", "cellar_write_back_written_bytes_total", true),
        ("BY_W_FIRST", "that are first writes into flash cache", "cellar_write_back_first_written_bytes_total", true),
        ("BY_W_OVERWRITE", "that overwrote flash cache", "cellar_write_back_overwritten_bytes_total", true),
        ("RQ_DISK_WRITE", "from flash cache to hard disks", "cellar_write_back_destage_requests_total", false),
        ("RQ_W", "that resulted in flash cache being populated", "cellar_write_back_write_requests_total", false),
        ("RQ_W_FIRST", "that are first writes into flash cache", "cellar_write_back_first_write_requests_total", false),
        ("RQ_W_OVERWRITE", "that overwrote flash cache", "cellar_write_back_overwrite_requests_total", false),
    ];
    let define = |name: String, description: String, metric_type, unit, family, formula| Definition {
        name: text(name),
        description: text(description),
        metric_type,
        unit,
        measured: MeasuredType::FlashCache,
        counter: Counter::FlashCache(family),
        formula,
    };
    let of_metric = |requests: &str, (name, what, family, is_bytes): (&str, &str, &'static str, bool)| {
        let (things, unit, unit_per_second, scale) = match is_bytes {
            true => ("megabytes", "MB", "MB/sec", MIB),
            false => (requests, "IO requests", "IO/sec", 1.0),
        };
        let (total, rate) = (format!("Number of {things} {what}"), format!("Number of {things} per second {what}"));
        let (cumulative, per_second) = (Formula::Total(scale), Formula::PerSecond(scale));
        [
            define(format!("FC_IO_{name}"), total, MetricType::Cumulative, unit, family, cumulative),
            define(format!("FC_IO_{name}_SEC"), rate, MetricType::Rate, unit_per_second, family, per_second),
        ]
    };
    let now = |name: &str, what: &str, family| {
        let description = format!("Number of megabytes {what}");
        define(name.to_owned(), description, MetricType::Instantaneous, "MB", family, Formula::Total(MIB))
    };
    let reads = READS.into_iter().flat_map(|metric| of_metric("read requests", metric));
    let writes = WRITES.into_iter().flat_map(|metric| of_metric("write requests", metric));
    let used = now("FC_BY_USED", "used in flash cache", "cellar_flash_cache_used_bytes");
    let dirty = now("FC_BY_DIRTY", "in flash cache that are not on hard disks yet", "cellar_write_back_dirty_bytes");
    reads.chain(writes).chain([used, dirty]).collect()
}

/// The metrics of the flash log. A write of redo is a sync of a WAL file.
fn of_flash_log() -> Vec<Definition> {
    const METRICS: [(&str, &str, &str); 11] = [
        (
            "FL_ACTUAL_OUTLIERS",
            "Number of times that redo writes to flash and to disk both exceeded the outlier threshold",
            "actual_outliers",
        ),
        ("FL_DISK_FIRST", "Number of redo writes that were first written to disk", "disk_first"),
        ("FL_DISK_IO_ERRS", "Number of disk I/O errors that the flash log encountered", "disk_errors"),
        ("FL_FLASH_FIRST", "Number of redo writes that were first written to flash", "flash_first"),
        ("FL_FLASH_IO_ERRS", "Number of flash I/O errors that the flash log encountered", "flash_errors"),
        (
            "FL_FLASH_ONLY_OUTLIERS",
            "Number of times that redo writes to flash exceeded the outlier threshold and those to disk did not",
            "flash_only_outliers",
        ),
        ("FL_IO_W", "Number of redo writes that the flash log serviced", "writes"),
        (
            "FL_IO_W_SKIP_BUSY",
            "Number of redo writes that the flash log could not service because the flash disk was busy",
            "skips_busy",
        ),
        (
            "FL_IO_W_SKIP_LARGE",
            "Number of redo writes that the flash log could not service because they were too large",
            "skips_large",
        ),
        (
            "FL_IO_W_SKIP_NO_BUFFER",
            "Number of redo writes that the flash log could not service because it had no free space",
            "skips_no_buffer",
        ),
        (
            "FL_PREVENTED_OUTLIERS",
            "Number of times that redo writes to disk exceeded the outlier threshold and those to flash did not",
            "prevented_outliers",
        ),
    ];
    let define = |name, description, metric_type, unit, counter, formula| Definition {
        name,
        description,
        metric_type,
        unit,
        measured: MeasuredType::FlashLog,
        counter,
        formula,
    };
    let of = |family: &str| Counter::FlashCache(text(format!("cellar_flash_log_{family}_total")));
    let total = |(name, description, family): (&'static str, &'static str, &str)| {
        define(name, description, MetricType::Cumulative, "IO requests", of(family), Formula::Total(1.0))
    };
    let skip_outliers = "Number of redo writes that did not use the flash log and exceeded the outlier threshold";
    let written = "Number of megabytes that the flash log wrote to flash";
    let efficiency = "Efficiency of the flash log: prevented outliers as a percentage of all outliers";
    METRICS
        .into_iter()
        .map(total)
        .chain([
            total(("FL_SKIP_OUTLIERS", skip_outliers, "skip_outliers")),
            define("FL_IO_FL_BY_W", written, MetricType::Cumulative, "MB", of("flash_bytes"), Formula::Total(MIB)),
            define(
                "FL_EFFICIENCY_PERCENTAGE",
                efficiency,
                MetricType::Instantaneous,
                "%",
                of("prevented_outliers"),
                Formula::PercentWith(of("actual_outliers")),
            ),
        ])
        .collect()
}

/// The metrics of what I/O resource management counts by database or consumer group.
fn of_io_classes(prefix: &str, class: &str, measured: MeasuredType) -> Vec<Definition> {
    const MILLISECONDS: f64 = 1e-3;
    let mut all = Vec::new();
    let mut define = |name: String, description: String, metric_type, unit, counter, formula| {
        let (name, description) = (text(format!("{prefix}_{name}")), text(description));
        all.push(Definition { name, description, metric_type, unit, measured, counter, formula });
    };
    use MetricType::{Cumulative, Instantaneous, Rate};
    let of_flash = |family| Counter::Iorm { family, size: None };
    let (bytes, requests) = (of_flash("cellar_iorm_flash_bytes_total"), of_flash("cellar_iorm_flash_requests_total"));
    let moved = format!("Number of megabytes of I/O to flash cache per second of {class}");
    define("FC_IO_BY_SEC".to_owned(), moved, Rate, "MB/sec", bytes, Formula::PerSecond(MIB));
    let requested = format!("Number of I/O requests to flash cache of {class}");
    define("FC_IO_RQ".to_owned(), requested.clone(), Cumulative, "IO requests", requests, Formula::Total(1.0));
    let per_second = format!("{requested} per second");
    define("FC_IO_RQ_SEC".to_owned(), per_second, Rate, "IO/sec", requests, Formula::PerSecond(1.0));
    for (end, blocks, size) in [("LG", "large", "large"), ("SM", "small", "small")] {
        let requests = Counter::Iorm { family: "cellar_iorm_flash_requests_total", size: Some(size) };
        let requested = format!("Number of {blocks} I/O requests to flash cache of {class}");
        define(format!("FC_IO_RQ_{end}"), requested.clone(), Cumulative, "IO requests", requests, Formula::Total(1.0));
        let per_second = format!("{requested} per second");
        define(format!("FC_IO_RQ_{end}_SEC"), per_second, Rate, "IO/sec", requests, Formula::PerSecond(1.0));
    }
    if measured == MeasuredType::Database {
        let used = of_flash("cellar_iorm_flash_used_bytes");
        let allocated = format!("Number of megabytes allocated in flash cache for {class}");
        define("FC_BY_ALLOCATED".to_owned(), allocated, Instantaneous, "MB", used, Formula::Total(MIB));
    }
    let bytes = Counter::Iorm { family: "cellar_iorm_bytes_total", size: None };
    let moved = format!("Number of megabytes of I/O per second of {class}");
    define("IO_BY_SEC".to_owned(), moved, Rate, "MB/sec", bytes, Formula::PerSecond(MIB));
    for (end, blocks, size) in [("LG", "large", "large"), ("SM", "small", "small")] {
        let of = |family| Counter::Iorm { family, size: Some(size) };
        let requests = of("cellar_iorm_requests_total");
        let (waits, times) = (of("cellar_iorm_wait_seconds_total"), of("cellar_iorm_device_seconds_total"));
        let latencies = of("cellar_iorm_request_seconds_total");
        let took = format!("Time that {blocks} requests of {class} took on cell disks");
        define(format!("IO_TM_{end}"), took, Cumulative, "ms", latencies, Formula::Total(MILLISECONDS));
        let took = format!("Average time that {blocks} requests of {class} took on cell disks");
        define(format!("IO_TM_{end}_RQ"), took, Rate, "ms/request", latencies, Formula::Per(MILLISECONDS, requests));
        let requested = format!("Number of {blocks} requests of {class}");
        define(format!("IO_RQ_{end}"), requested.clone(), Cumulative, "IO requests", requests, Formula::Total(1.0));
        let per_second = format!("{requested} per second");
        define(format!("IO_RQ_{end}_SEC"), per_second, Rate, "IO/sec", requests, Formula::PerSecond(1.0));
        let waited = format!("Time that {blocks} requests of {class} waited to be started");
        define(format!("IO_WT_{end}"), waited, Cumulative, "ms", waits, Formula::Total(MILLISECONDS));
        let waited = format!("Average time that {blocks} requests of {class} waited to be started");
        define(format!("IO_WT_{end}_RQ"), waited, Rate, "ms/request", waits, Formula::Per(MILLISECONDS, requests));
        let used = format!("Percentage of the time of the cell disks that {blocks} requests of {class} used");
        define(format!("IO_UTIL_{end}"), used, Instantaneous, "%", times, Formula::PercentOfDisks);
    }
    all
}
