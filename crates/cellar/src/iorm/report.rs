//! The I/O of one minute in the layout of Oracle's script metric_iorm.pl.

use cellar_awr::document::Timestamp;
use cellar_cell::cell_metrics::{Counter, Reading};
use serde_json::{Value, json};
use std::fmt::Write;

const MIB: f64 = (1 << 20) as f64;
/// The database of files that belong to none. It comes last.
const OTHER: &str = "_OTHER_DATABASE_";

/// Small and large I/O.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct BySize {
    small: f64,
    large: f64,
}

/// Figures of a database or a consumer group.
#[derive(Debug, Clone, Default, PartialEq)]
struct Figures {
    utilization_percent: BySize,
    flash_iops: f64,
    disk_mbps: f64,
    iops: BySize,
    wait_ms: BySize,
}

#[derive(Debug)]
struct Database {
    name: String,
    figures: Figures,
    groups: Vec<(String, Figures)>,
}

#[derive(Debug)]
pub struct Report {
    time: Timestamp,
    seconds: f64,
    databases: Vec<Database>,
    read_ms: BySize,
    write_ms: BySize,
}

impl Report {
    /// Returns None if the cell was restarted between the readings.
    pub fn between(before: &Reading, after: &Reading) -> Option<Self> {
        after.increase_since(before, Counter::CellCpu, "")?;
        let mut databases: Vec<Database> = after
            .io_classes(false)
            .into_iter()
            .map(|class| Database { figures: figures(before, after, &class.key), name: class.name, groups: Vec::new() })
            .collect();
        for class in after.io_classes(true) {
            let (database, group) = Reading::database_and_group(&class.key);
            if let Some(database) = databases.iter_mut().find(|known| known.name == database) {
                database.groups.push((group.to_owned(), figures(before, after, &class.key)));
            }
        }
        databases.sort_by_key(|database| (database.name == OTHER, database.name.clone()));
        let latency = |operation| {
            let of_size = |is_large| {
                let sum = |counter: fn(&'static str, bool) -> Counter| -> f64 {
                    let increases = after
                        .disks
                        .iter()
                        .map(|disk| after.increase_since(before, counter(operation, is_large), &disk.path));
                    increases.flatten().sum()
                };
                let seconds = sum(|operation, is_large| Counter::DiskSeconds { operation, is_large });
                ratio(1000.0 * seconds, sum(|operation, is_large| Counter::DiskRequests { operation, is_large }))
            };
            BySize { small: of_size(false), large: of_size(true) }
        };
        Some(Self {
            time: Timestamp::from_micros(after.time_ms() as i64 * 1000),
            seconds: after.seconds_since(before),
            databases,
            read_ms: latency("read"),
            write_ms: latency("write"),
        })
    }

    fn total(&self, value: impl Fn(&Figures) -> f64) -> f64 {
        self.databases.iter().map(|database| value(&database.figures)).sum()
    }

    pub fn text(&self) -> String {
        let mut text = format!("Time: {}\n", self.time.iso());
        for database in &self.databases {
            let _ = writeln!(text, "Database: {}", database.name);
            database.figures.write(&mut text, "");
            for (group, figures) in &database.groups {
                let _ = writeln!(text, "\tConsumer Group: {group}");
                figures.write(&mut text, "\t");
            }
            text.push('\n');
        }
        let _ = write!(
            text,
            "CELL METRICS SUMMARY\n\n\
             Cell Total Utilization:     Small={:.0}%    Large={:.0}%\n\
             Cell Total Flash Cache:     IOPS={:.1}\n\
             Cell Total Disk Throughput: MBPS={:.3}\n\
             Cell Total Small I/O's:     IOPS={:.1}\n\
             Cell Total Large I/O's:     IOPS={:.1}\n\
             Cell Avg small read latency:  {:.2} ms\n\
             Cell Avg small write latency: {:.2} ms\n\
             Cell Avg large read latency:  {:.2} ms\n\
             Cell Avg large write latency: {:.2} ms\n",
            self.total(|figures| figures.utilization_percent.small),
            self.total(|figures| figures.utilization_percent.large),
            self.total(|figures| figures.flash_iops),
            self.total(|figures| figures.disk_mbps),
            self.total(|figures| figures.iops.small),
            self.total(|figures| figures.iops.large),
            self.read_ms.small,
            self.write_ms.small,
            self.read_ms.large,
            self.write_ms.large,
        );
        text
    }

    pub fn json(&self) -> Value {
        let database = |database: &Database| {
            let group = |(name, figures): &(String, Figures)| figures.json(name);
            let mut object = database.figures.json(&database.name);
            object["consumer_groups"] = database.groups.iter().map(group).collect();
            object
        };
        json!({
            "time": self.time.iso(),
            "seconds": self.seconds,
            "databases": self.databases.iter().map(database).collect::<Vec<_>>(),
            "cell": {
                "small_utilization_percent": self.total(|figures| figures.utilization_percent.small),
                "large_utilization_percent": self.total(|figures| figures.utilization_percent.large),
                "flash_iops": self.total(|figures| figures.flash_iops),
                "disk_mbps": self.total(|figures| figures.disk_mbps),
                "small_iops": self.total(|figures| figures.iops.small),
                "large_iops": self.total(|figures| figures.iops.large),
                "small_read_ms": self.read_ms.small,
                "small_write_ms": self.write_ms.small,
                "large_read_ms": self.read_ms.large,
                "large_write_ms": self.write_ms.large,
            },
        })
    }
}

impl Figures {
    fn write(&self, text: &mut String, indent: &str) {
        let Self { utilization_percent, flash_iops, disk_mbps, iops, wait_ms } = self;
        let _ = write!(
            text,
            "{indent}Utilization:     Small={:.0}%    Large={:.0}%\n\
             {indent}Flash Cache:     IOPS={}\n\
             {indent}Disk Throughput: MBPS={disk_mbps:.0}\n\
             {indent}Small I/O's:     IOPS={}    Avg qtime={}ms\n\
             {indent}Large I/O's:     IOPS={}    Avg qtime={}ms\n",
            utilization_percent.small,
            utilization_percent.large,
            short(*flash_iops),
            short(iops.small),
            short(wait_ms.small),
            short(iops.large),
            short(wait_ms.large),
        );
    }

    fn json(&self, name: &str) -> Value {
        json!({
            "name": name,
            "small_utilization_percent": self.utilization_percent.small,
            "large_utilization_percent": self.utilization_percent.large,
            "flash_iops": self.flash_iops,
            "disk_mbps": self.disk_mbps,
            "small_iops": self.iops.small,
            "large_iops": self.iops.large,
            "small_wait_ms": self.wait_ms.small,
            "large_wait_ms": self.wait_ms.large,
        })
    }
}

/// From 100 on without decimals, as Oracle's script.
fn short(number: f64) -> String {
    if number >= 99.95 { format!("{number:.0}") } else { format!("{number:.1}") }
}

fn ratio(part: f64, of: f64) -> f64 {
    if of > 0.0 { part / of } else { 0.0 }
}

/// Returns the figures of the class of I/O with a key.
fn figures(before: &Reading, after: &Reading, key: &str) -> Figures {
    let increase = |family, size| after.increase_since(before, Counter::Iorm { family, size }, key).unwrap_or(0.0);
    let seconds = after.seconds_since(before);
    let by_size = |value: &dyn Fn(Option<&'static str>) -> f64| BySize {
        small: value(Some("small")),
        large: value(Some("large")),
    };
    let device_seconds = seconds * after.disks.len() as f64;
    Figures {
        utilization_percent: by_size(&|size| {
            100.0 * ratio(increase("cellar_iorm_device_seconds_total", size), device_seconds)
        }),
        flash_iops: ratio(increase("cellar_iorm_flash_requests_total", None), seconds),
        disk_mbps: ratio(increase("cellar_iorm_bytes_total", None) / MIB, seconds),
        iops: by_size(&|size| ratio(increase("cellar_iorm_requests_total", size), seconds)),
        wait_ms: by_size(&|size| {
            ratio(
                1000.0 * increase("cellar_iorm_wait_seconds_total", size),
                increase("cellar_iorm_requests_total", size),
            )
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record after `minutes` with the same I/O in each minute, and `names` of its database.
    fn reading(minutes: u64, name: &str) -> Reading {
        let factor = minutes as f64;
        let class = |group: &str, size: &str, value: f64| json!({ "labels": { "database": name, "consumer_group": group, "size": size }, "value": value * factor });
        let family = |name: &str, values: [f64; 3]| {
            let [small, large, other] = values;
            json!({ "name": name, "samples": [class("OTHER_GROUPS", "small", small), class("OTHER_GROUPS", "large", large), class("b", "small", other)] })
        };
        let of_disk = |name: &str, field: &str, values: [f64; 2]| {
            let sample = |operation: &str, value: f64| json!({ "labels": { "disk": "/d", "operation": operation }, field: value * factor });
            json!({ "name": name, "samples": [sample("read", values[0]), sample("write", values[1])] })
        };
        let single = |name: &str, value: f64| json!({ "name": name, "samples": [{ "labels": {}, "value": value }] });
        Reading::recorded(json!({
            "time_ms": 1_375_792_383_000_u64 + 60_000 * minutes,
            "disks": [{ "disk_number": 1, "path": "/d" }],
            "metrics": [
                single("cellar_start_time_seconds", 5.0),
                single("cellar_cpu_seconds_total", factor),
                family("cellar_iorm_requests_total", [15_480.0, 6840.0, 120.0]),
                family("cellar_iorm_bytes_total", [60.0 * MIB, 7140.0 * MIB, 0.0]),
                family("cellar_iorm_wait_seconds_total", [17.028, 20_697.84, 0.0]),
                family("cellar_iorm_device_seconds_total", [2.4, 4.2, 0.0]),
                family("cellar_iorm_flash_requests_total", [5000.0, 0.0, 382.0]),
                of_disk("cellar_disk_operations_total", "value", [1100.0, 10.0]),
                of_disk("cellar_disk_operation_seconds", "sum", [23.35, 0.1]),
                of_disk("cellar_disk_large_operations_total", "value", [1000.0, 0.0]),
                of_disk("cellar_disk_large_seconds_total", "value", [13.35, 0.0]),
            ],
        }))
    }

    #[test]
    fn a_minute_has_the_layout_of_oracles_script() {
        let report = Report::between(&reading(1, "CRDB"), &reading(2, "CRDB")).unwrap();
        let expected = "\
Time: 2013-08-06T12:35:03+00:00
Database: CRDB
Utilization:     Small=4%    Large=7%
Flash Cache:     IOPS=89.7
Disk Throughput: MBPS=120
Small I/O's:     IOPS=260    Avg qtime=1.1ms
Large I/O's:     IOPS=114    Avg qtime=3026ms
\tConsumer Group: OTHER_GROUPS
\tUtilization:     Small=4%    Large=7%
\tFlash Cache:     IOPS=83.3
\tDisk Throughput: MBPS=120
\tSmall I/O's:     IOPS=258    Avg qtime=1.1ms
\tLarge I/O's:     IOPS=114    Avg qtime=3026ms
\tConsumer Group: b
\tUtilization:     Small=0%    Large=0%
\tFlash Cache:     IOPS=6.4
\tDisk Throughput: MBPS=0
\tSmall I/O's:     IOPS=2.0    Avg qtime=0.0ms
\tLarge I/O's:     IOPS=0.0    Avg qtime=0.0ms

CELL METRICS SUMMARY

Cell Total Utilization:     Small=4%    Large=7%
Cell Total Flash Cache:     IOPS=89.7
Cell Total Disk Throughput: MBPS=120.000
Cell Total Small I/O's:     IOPS=260.0
Cell Total Large I/O's:     IOPS=114.0
Cell Avg small read latency:  100.00 ms
Cell Avg small write latency: 10.00 ms
Cell Avg large read latency:  13.35 ms
Cell Avg large write latency: 0.00 ms
";
        assert_eq!(report.text(), expected);
        let object = report.json();
        assert_eq!((&object["databases"][0]["name"], &object["seconds"]), (&json!("CRDB"), &json!(60.0)));
        assert_eq!(object["databases"][0]["consumer_groups"][1]["small_iops"], json!(2.0));
    }

    #[test]
    fn a_new_class_counts_from_zero_and_a_new_name_does_not() {
        let classes = |reading: &mut Reading, names: &[&str]| {
            let families = reading.document["metrics"].as_array_mut().unwrap();
            for family in
                families.iter_mut().filter(|family| family["name"].as_str().unwrap().starts_with("cellar_iorm_"))
            {
                let samples = family["samples"].as_array_mut().unwrap();
                samples.retain(|sample| names.contains(&sample["labels"]["consumer_group"].as_str().unwrap()));
            }
        };
        let mut before = reading(1, "CRDB");
        classes(&mut before, &["OTHER_GROUPS"]);
        let report = Report::between(&before, &reading(2, "CRDB")).unwrap();
        assert_eq!(report.databases[0].groups[1].1.iops.small, 4.0, "all since the start");
        let report = Report::between(&reading(1, "16384"), &reading(2, "CRDB")).unwrap();
        assert_eq!(report.databases[0].figures.iops.small, 0.0, "CRDB was 16384 before");
    }
}
