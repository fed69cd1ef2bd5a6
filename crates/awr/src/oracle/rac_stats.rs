//! The table of the script `rac_stats.sh`, from EMC's paper "XtremIO and Oracle" (K. Closson, 2014), figure 26, for any report.
//!
//! | column | figure |
//! |---|---|
//! | Total IO | Reads + Writes |
//! | Reads | statistic `physical read total IO requests` per second; `physical read IO requests` before |
//! | Read Latency | milliseconds of a wait for `db file sequential read`, or for `cell single block physical read` |
//! | Writes | statistic `physical writes` per second: blocks, as the script has it |
//! | Redo MB/s | statistic `redo size` per second |
//!
//! The script cuts to whole numbers, except the latency. On a text report of a RAC database, the script reads the first line
//! that begins with `physical read`, which is `physical read IO requests`; this table reads the statistics by name.

use super::lookup::Lookup;
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

/// The events whose average is the read latency, in order.
const SINGLE_BLOCK: [&str; 2] = ["db file sequential read", "cell single block physical read"];

/// A statistic per second. `labels` are the rows of the load profile that contain the same figure.
fn rate(report: &Report, names: &[&str], labels: &[&str]) -> Option<f64> {
    let total = names.iter().find_map(|name| match report.statistic(name) {
        Lookup::Found(value) => Some(value),
        Lookup::Absent | Lookup::Ambiguous(..) => None,
    });
    let seconds = report.header.elapsed_us.map(|us| us / 1e6).filter(|seconds| *seconds > 0.0);
    total.zip(seconds).map(|(total, seconds)| total / seconds).or_else(|| report.load(labels))
}

pub fn rac_stats(report: &Report) -> RacStats {
    let events = report.events();
    let latency = |name: &str| {
        let waits = events.iter().find(|event| !event.is_background && event.name == name)?;
        let (us, waits) = (waits.time_us?, waits.waits.filter(|waits| *waits > 0.0)?);
        Some(us / waits / 1e3)
    };
    RacStats {
        reads: rate(
            report,
            &["physical read IO requests", "physical read total IO requests"],
            &["Read IO requests", "Physical reads", "Physical read (blocks)"],
        ),
        read_latency_ms: SINGLE_BLOCK.iter().find_map(|name| latency(name)),
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
