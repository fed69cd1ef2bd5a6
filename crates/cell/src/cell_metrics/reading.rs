//! One reading of the counters of the cell and of its machine. A cell's socket is local, so the machine is the one that runs this
//! program.

use super::document::{Document, label};
use serde_json::Value;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Counter {
    DiskBytes {
        operation: &'static str,
        is_large: bool,
    },
    DiskRequests {
        operation: &'static str,
        is_large: bool,
    },
    DiskSeconds {
        operation: &'static str,
        is_large: bool,
    },
    /// Failed operations of all kinds.
    DiskErrors,
    /// Durations of all reads, writes and syncs. Its increase per second is the average number in progress.
    DiskBusySeconds,
    /// A family of metrics of the flash cache or of the flash log.
    FlashCache(&'static str),
    /// A family of metrics of I/O resource management, of one size of requests or of both.
    Iorm {
        family: &'static str,
        size: Option<&'static str>,
    },
    IormMode,
    /// A family of metrics of Smart Scans, of all databases.
    SmartIo(&'static str),
    /// Seconds of CPU time of the cell.
    CellCpu,
    /// Seconds of all CPUs, without those that they were idle or waited for disks.
    MachineCpuBusy,
    MachineCpuTotal,
    MachineMemoryPercent,
    MachineRunQueue,
}

/// An object that has a metric: its name, and the path of the disk, the key of the class of I/O, or an empty string.
pub struct MeasuredObject {
    pub name: String,
    pub key: String,
}

pub struct Reading {
    pub document: Value,
    pub disks: Vec<CellDisk>,
    pub machine: Machine,
    /// The time of the reading that this one was last compared with, and whether this one has the classes of I/O of that reading.
    pub(super) compared: Cell<Option<(u64, bool)>>,
}

/// The number of a disk in the disk group, and its path. The disks that follow a dropped disk keep their numbers.
#[derive(Debug, Clone)]
pub struct CellDisk {
    pub number: u64,
    pub path: String,
}

/// Between database and consumer group in the key of a class of I/O: no name contains it.
const KEY_SEPARATOR: char = '\0';

/// A counter is the difference of two counters of the cell, which do not decrease: small operations are all operations without
/// the large ones.
struct Terms {
    counted: f64,
    excluded: f64,
}

/// A counter of seconds or of bytes that seems to decrease by less has not decreased: the values are rounded.
const ROUNDING_MAX: f64 = 1e-6;

/// Figures of /proc; None where a file could not be read.
#[derive(Debug, Clone, Copy, Default)]
pub struct Machine {
    /// Busy and all seconds of the CPUs.
    pub cpu_seconds: Option<(f64, f64)>,
    pub memory_percent: Option<f64>,
    pub run_queue: Option<f64>,
}

impl Reading {
    /// Takes the metrics of a cell, in the JSON form of the HTTP endpoint, and a report of its disk group, on the machine of the cell.
    pub fn new(document: Value, group: &Value) -> Self {
        Self { document, disks: cell_disks(group), machine: Machine::read(), compared: Cell::default() }
    }

    /// Takes a record of the history of metrics. Figures of the machine are not known.
    pub fn recorded(document: Value) -> Self {
        Self { disks: cell_disks(&document), document, machine: Machine::default(), compared: Cell::default() }
    }

    pub fn metrics(&self) -> Document<'_> {
        Document(&self.document)
    }

    /// The name of the cell.
    pub fn cell(&self) -> String {
        self.metrics().samples("cellar_cell_info").next().map(|sample| label(sample, "name")).unwrap_or_default()
    }

    pub fn time_ms(&self) -> u64 {
        self.document["time_ms"].as_u64().unwrap_or(0)
    }

    pub fn seconds_since(&self, earlier: &Self) -> f64 {
        self.time_ms().saturating_sub(earlier.time_ms()) as f64 / 1000.0
    }

    /// Returns the classes of I/O that were counted: the consumer groups, as database and group, or the databases.
    pub fn io_classes(&self, are_groups: bool) -> Vec<MeasuredObject> {
        let class = |sample: &Value| {
            let (database, group) = (label(sample, "database"), label(sample, "consumer_group"));
            match are_groups {
                true => (format!("{database}{KEY_SEPARATOR}{group}"), format!("{database}.{group}")),
                false => (database.clone(), database),
            }
        };
        let classes: BTreeMap<_, _> = self.metrics().samples("cellar_iorm_requests_total").map(class).collect();
        classes.into_iter().map(|(key, name)| MeasuredObject { name, key }).collect()
    }

    /// Returns whether all classes of I/O of an earlier reading still exist: none got another name meanwhile.
    fn has_classes_of(&self, earlier: &Self) -> bool {
        if let Some((_, has_all)) = self.compared.get().filter(|(time_ms, _)| *time_ms == earlier.time_ms()) {
            return has_all;
        }
        let keys = |reading: &Self| -> BTreeSet<String> {
            reading.io_classes(true).into_iter().map(|class| class.key).collect()
        };
        let has_all = keys(earlier).is_subset(&keys(self));
        self.compared.set(Some((earlier.time_ms(), has_all)));
        has_all
    }

    /// Returns the parts of the key of a consumer group.
    pub fn database_and_group(key: &str) -> (&str, &str) {
        key.split_once(KEY_SEPARATOR).unwrap_or((key, ""))
    }

    /// Returns the value of a family with one sample; None if the cell has no sample of it.
    fn single(&self, family: &str) -> Option<f64> {
        self.metrics().samples(family).next()?["value"].as_f64()
    }

    fn start_time(&self) -> Option<f64> {
        self.single("cellar_start_time_seconds")
    }

    /// Returns a counter of the disk with a path or of the class of I/O with a key, which have no meaning for other counters. None if the cell or the machine
    /// does not have the counter.
    pub fn counter(&self, counter: Counter, disk: &str) -> Option<f64> {
        self.terms(counter, disk).map(|Terms { counted, excluded }| (counted - excluded).max(0.0))
    }

    /// Returns by how much a counter has increased since an earlier reading. None if a reading does not have the counter, if the
    /// counter has started from zero, or if no time has passed.
    pub fn increase_since(&self, earlier: &Self, counter: Counter, disk: &str) -> Option<f64> {
        if self.start_time() != earlier.start_time() || self.time_ms() <= earlier.time_ms() {
            return None;
        }
        let now = self.terms(counter, disk)?;
        let is_iorm = matches!(counter, Counter::Iorm { .. });
        if is_iorm && !self.has_classes_of(earlier) {
            return None;
        }
        let before = match earlier.terms(counter, disk) {
            Some(before) => before,
            None if is_iorm => Terms { counted: 0.0, excluded: 0.0 },
            None => return None,
        };
        let increase = |now: f64, before: f64| (now - before > -ROUNDING_MAX).then_some((now - before).max(0.0));
        let counted = increase(now.counted, before.counted)?;
        let excluded = increase(now.excluded, before.excluded)?;
        // The cell reads the two counters one after the other: a large operation between the reads increases one of them only.
        Some((counted - excluded).max(0.0))
    }

    fn terms(&self, counter: Counter, disk: &str) -> Option<Terms> {
        let of_size = |all_family: &str, field: &str, large_family: &str, operation: &str, is_large: bool| {
            let large = self.of_disk(large_family, disk, operation, "value")?;
            match is_large {
                true => Some(Terms { counted: large, excluded: 0.0 }),
                false => Some(Terms { counted: self.of_disk(all_family, disk, operation, field)?, excluded: large }),
            }
        };
        let counted = match counter {
            Counter::DiskBytes { operation, is_large } => {
                let (all, large) = ("cellar_disk_bytes_total", "cellar_disk_large_bytes_total");
                return of_size(all, "value", large, operation, is_large);
            }
            Counter::DiskRequests { operation, is_large } => {
                let (all, large) = ("cellar_disk_operations_total", "cellar_disk_large_operations_total");
                return of_size(all, "value", large, operation, is_large);
            }
            Counter::DiskSeconds { operation, is_large } => {
                let (all, large) = ("cellar_disk_operation_seconds", "cellar_disk_large_seconds_total");
                return of_size(all, "sum", large, operation, is_large);
            }
            Counter::DiskErrors => {
                let of_this =
                    self.metrics().samples("cellar_disk_errors_total").filter(|sample| label(sample, "disk") == disk);
                of_this.map(|sample| sample["value"].as_f64()).sum()
            }
            Counter::DiskBusySeconds => {
                let seconds = |operation| self.of_disk("cellar_disk_operation_seconds", disk, operation, "sum");
                Some(seconds("read")? + seconds("write")? + seconds("sync")?)
            }
            // Without a flash cache or a flash log, its families have no samples.
            Counter::FlashCache(family) => self.single(family),
            Counter::Iorm { family, size } => self.of_io_class(family, disk, size),
            Counter::IormMode => self.single("cellar_iorm_mode_number"),
            // A family has no samples before the first scan.
            Counter::SmartIo(family) => Some(self.metrics().value(family)),
            Counter::CellCpu => self.single("cellar_cpu_seconds_total"),
            Counter::MachineCpuBusy => self.machine.cpu_seconds.map(|(busy, _)| busy),
            Counter::MachineCpuTotal => self.machine.cpu_seconds.map(|(_, all)| all),
            Counter::MachineMemoryPercent => self.machine.memory_percent,
            Counter::MachineRunQueue => self.machine.run_queue,
        };
        counted.map(|counted| Terms { counted, excluded: 0.0 })
    }

    /// Returns the sum of a family for the class of I/O with a key; None if nothing of the class was counted.
    fn of_io_class(&self, family: &str, key: &str, size: Option<&str>) -> Option<f64> {
        let (database, group) =
            key.split_once(KEY_SEPARATOR).map_or((key, None), |(database, group)| (database, Some(group)));
        let is_of_class = |sample: &&Value| {
            label(sample, "database") == database
                && group.is_none_or(|group| label(sample, "consumer_group") == group)
                && size.is_none_or(|size| label(sample, "size") == size)
        };
        let mut values =
            self.metrics().samples(family).filter(is_of_class).filter_map(|sample| sample["value"].as_f64());
        let first = values.next()?;
        Some(first + values.sum::<f64>())
    }

    /// Returns a field of the sample of a family for a disk and an operation.
    fn of_disk(&self, family: &str, disk: &str, operation: &str, field: &str) -> Option<f64> {
        let is_this = |sample: &&Value| label(sample, "disk") == disk && label(sample, "operation") == operation;
        self.metrics().samples(family).find(is_this)?[field].as_f64()
    }
}

/// Returns the disks of a report of the disk group.
fn cell_disks(group: &Value) -> Vec<CellDisk> {
    let disks = group["disks"].as_array().map(Vec::as_slice).unwrap_or_default();
    let disk = |disk: &Value| {
        Some(CellDisk { number: disk["disk_number"].as_u64()?, path: disk["path"].as_str()?.to_owned() })
    };
    disks.iter().filter_map(disk).collect()
}

impl Machine {
    fn read() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).ok();
        Self {
            cpu_seconds: read("/proc/stat").and_then(|text| cpu_seconds(&text)),
            memory_percent: read("/proc/meminfo").and_then(|text| memory_percent(&text)),
            run_queue: read("/proc/loadavg").and_then(|text| text.split_whitespace().next()?.parse().ok()),
        }
    }
}

/// Linux counts CPU times in hundredths of a second, whatever its timer.
const TICKS_PER_SECOND: f64 = 100.0;

/// Returns the busy and all seconds of all CPUs from the first line of /proc/stat.
fn cpu_seconds(stat: &str) -> Option<(f64, f64)> {
    let fields = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
    // user, nice, system, idle, iowait, irq, softirq, steal; guest times are part of user and nice.
    let ticks = fields.take(8).map(str::parse).collect::<Result<Vec<f64>, _>>().ok()?;
    let [_, _, _, idle, iowait, ..] = ticks[..] else { return None };
    let all: f64 = ticks.iter().sum();
    Some(((all - idle - iowait) / TICKS_PER_SECOND, all / TICKS_PER_SECOND))
}

fn memory_percent(meminfo: &str) -> Option<f64> {
    let kib = |name: &str| -> Option<f64> {
        meminfo.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
    };
    let (total, available) = (kib("MemTotal:")?, kib("MemAvailable:")?);
    Some(100.0 * (total - available) / total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_have_their_numbers_in_the_group() {
        let group =
            serde_json::json!({ "disks": [{ "disk_number": 1, "path": "/b" }, { "disk_number": 2, "path": "/a" }] });
        let disks: Vec<(u64, String)> = cell_disks(&group).into_iter().map(|disk| (disk.number, disk.path)).collect();
        assert_eq!(disks, [(1, "/b".to_owned()), (2, "/a".to_owned())]);
    }

    #[test]
    fn figures_of_the_machine_are_read_from_proc() {
        let (busy, all) = cpu_seconds("cpu  100 0 50 800 50 0 0 0 0 0\ncpu0 1 2 3\n").unwrap();
        assert_eq!((busy, all), (1.5, 10.0));
        assert_eq!(memory_percent("MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable:   250 kB\n"), Some(75.0));
        assert_eq!((cpu_seconds("cpu 1 2"), memory_percent("MemTotal: 1 kB")), (None, None));
    }
}
