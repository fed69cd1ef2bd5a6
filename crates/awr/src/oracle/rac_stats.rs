//! The table of the script `rac_stats.sh`, from EMC's paper "XtremIO and Oracle" (K. Closson, 2014), figure 26, for any report.
//!
//! | column | figure |
//! |---|---|
//! | Total IO | Reads + Writes |
//! | Reads | statistic `physical read IO requests` per second, as in the script |
//! | Read Latency | milliseconds of a wait for `db file sequential read`, or else for `cell single block physical read` |
//! | Writes | statistic `physical writes` per second: blocks, as in the script |
//! | Redo MB/s | statistic `redo size` per second |
//!
//! The script truncates all figures except the latency to whole numbers. On a text report of a RAC database, the script reads the first line
//! that begins with `physical read`, which is `physical read IO requests`; this table reads the statistics by name.

use super::model::Report;

/// The columns of the script.
pub const COLUMNS: [&str; 6] = ["FILE", "Total IO", "Reads", "Read Latency", "Writes", "Redo MB/s"];

/// One line. Figures are None where the report does not contain them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RacStats {
    pub reads: Option<f64>,
    pub read_latency_ms: Option<f64>,
    pub writes: Option<f64>,
    pub redo_mb: Option<f64>,
}

/// The events of single-block reads, without and with storage cells.
const SINGLE_BLOCK: [&str; 2] = ["db file sequential read", "cell single block physical read"];

/// A statistic per second. `labels` are the rows of the load profile that contain the same figure.
fn rate(report: &Report, names: &[&str], labels: &[&str]) -> Option<f64> {
    names.iter().find_map(|name| report.statistic_per_second(name).value()).or_else(|| report.load(labels))
}

pub fn rac_stats(report: &Report) -> RacStats {
    // As the script: the list of the busiest events before the complete lists, sessions before background processes.
    let mut events = report.top_events();
    events.extend(report.events());
    let average = |name: &&str| {
        Some(events.iter().find(|event| event.name == *name && event.average_us.is_some())?.average_us? / 1e3)
    };
    RacStats {
        reads: rate(report, &["physical read IO requests", "physical read total IO requests"], &["Read IO requests"]),
        read_latency_ms: SINGLE_BLOCK.iter().find_map(average),
        writes: rate(report, &["physical writes"], &["Physical write (blocks)", "Physical writes"]),
        redo_mb: rate(report, &["redo size"], &["Redo size (bytes)", "Redo size"]).map(|bytes| bytes / 1_048_576.0),
    }
}

impl RacStats {
    pub fn total(&self) -> Option<f64> {
        Some(self.reads?.trunc() + self.writes?.trunc())
    }

    /// The line that the script prints. A figure that the report does not contain is empty.
    pub fn line(&self, file: &str) -> String {
        let whole = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{}", value.trunc()));
        let latency = self.read_latency_ms.map_or_else(String::new, |ms| format!("{ms:.2}"));
        format!(
            "{file}|{}|{}|{latency}|{}|{}|",
            whole(self.total()),
            whole(self.reads),
            whole(self.writes),
            whole(self.redo_mb)
        )
    }
}
