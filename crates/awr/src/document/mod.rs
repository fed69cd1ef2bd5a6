//! The report document, format 1: sums over the snapshots of one instance, as `awr.report_data` returns them.
//!
//! Times are microseconds, sizes are bytes. An absent figure is None, never 0. Unknown fields are ignored, so that a newer
//! repository can add fields without a new format. [`parse`] is the only way from bytes to a document; a parsed document
//! satisfies the checks of [`validate`](mod@validate).

/// Structs of figures whose fields may all be absent.
macro_rules! records {
    ($( $(#[$meta:meta])* $name:ident { $( $(#[$field_meta:meta])* $field:ident: $kind:ty, )* } )*) => {
        $(
            $(#[$meta])*
            #[derive(Clone, Debug, Default, PartialEq, Deserialize)]
            #[serde(default)]
            pub struct $name { $( $(#[$field_meta])* pub $field: $kind, )* }
        )*
    };
}

pub mod names;
mod normalize;
mod server;
mod sessions;
mod sql;
mod storage;
pub mod time;
mod validate;
mod value;

pub use normalize::is_foreground_type;
pub use server::*;
pub use sessions::*;
pub use sql::*;
pub use storage::*;
pub use time::Timestamp;
pub use validate::DocumentError;
pub use value::{List, Text};

use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// The document format that this release reads.
pub const FORMAT: u64 = 1;

/// A figure that may be unavailable. All figures are non-negative.
pub type Measure = Option<f64>;

/// How a figure was obtained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum How {
    Counted,
    Timed,
    Sampled,
    #[serde(other)]
    Unknown,
}

records! {
    /// Everything that a report about one instance is computed from.
    Document {
        /// `ash` for a document of `awr.ash_data`, `sql` for one of `awr.sql_data`; empty for one of `awr.report_data`.
        kind: Text,
        instance: Instance,
        begin: Boundary,
        end: Boundary,
        snapshots: List<SnapshotInterval>,
        elapsed_us: Measure,
        db_time_us: Measure,
        sources: List<Source>,
        notes: List<Note>,
        time_model: List<TimeStatistic>,
        statistics: List<Statistic>,
        events: List<Event>,
        os: List<OsStatistic>,
        databases: List<Database>,
        services: List<Service>,
        statements: List<Statement>,
        plans: List<Plan>,
        plan_history: List<PlanHistory>,
        tables: List<TableStatistics>,
        indexes: List<IndexStatistics>,
        io: List<IoStatistics>,
        session_io: List<SessionIo>,
        cell_io: List<CellIo>,
        cell_files: List<CellFile>,
        cell_statistics: List<CellStatistic>,
        cell_disks: List<CellDisk>,
        iorm: List<IormClass>,
        slru: List<Slru>,
        replication: List<Standby>,
        slots: List<Slot>,
        archiver: Archiver,
        vacuum_horizon: List<HorizonHolder>,
        sessions: Sessions,
        settings: List<Setting>,
        ash: Ash,
        history: History,
        statement: ReportedStatement,
    }
}

impl Document {
    /// Returns a statistic by name, or from the columns of PostgreSQL's views that stand for the statistic; 0 if the document has
    /// another column of the view, because a repository stores the columns that increased.
    pub fn statistic(&self, name: &str) -> Measure {
        let find = |name: &str| self.statistics.iter().find(|statistic| &*statistic.name == name)?.value;
        find(name)
            .or_else(|| {
                let columns = names::COLUMNS.iter().filter(|(statistic, ..)| *statistic == name);
                columns.filter_map(|(_, column, factor)| find(column).map(|value| value * factor)).next()
            })
            .or_else(|| self.did_not_increase(name).then_some(0.0))
    }

    /// Whether a statistic is absent because it did not increase: the server's release has its column, and the document contains
    /// columns of the views that are read together.
    fn did_not_increase(&self, name: &str) -> bool {
        let has_any = |views: &[&str]| {
            let is_of =
                |name: &str| views.iter().any(|view| name.strip_prefix(view).is_some_and(|rest| rest.starts_with('.')));
            self.statistics.iter().any(|statistic| is_of(&statistic.name))
        };
        let Some(version) = self.instance.server_version_num.map(|number| (number / 1e4).floor()) else { return false };
        if name == names::PHYSICAL_WRITES {
            return has_any(&names::WRITERS);
        }
        names::COLUMNS.iter().filter(|(statistic, ..)| *statistic == name).any(|(_, column, _)| {
            let view = column.split('.').next().unwrap_or("");
            let is_in_release = match view {
                "pg_stat_checkpointer" => version >= 17.0,
                "pg_stat_bgwriter" => version < 17.0 || names::BGWRITER_COLUMNS.contains(column),
                "pg_stat_wal" => version < 18.0 || names::WAL_COLUMNS.contains(column),
                _ => false,
            };
            is_in_release && if names::WRITERS.contains(&view) { has_any(&names::WRITERS) } else { has_any(&[view]) }
        })
    }

    /// Returns a statistic; 0 if only another statistic of the same source is present, because a repository stores the
    /// statistics that increased.
    pub fn statistic_beside(&self, name: &str, same_source: &str) -> Measure {
        self.statistic(name).or_else(|| self.statistic(same_source).map(|_| 0.0))
    }

    /// Time in which sessions executed statements, by database; None if the document does not tell it by application.
    pub fn executed_us(&self) -> Option<BTreeMap<&str, f64>> {
        let mut executed: BTreeMap<&str, f64> = BTreeMap::new();
        for service in &self.services {
            if let Some(us) = service.execute_us {
                // The server has no space for more applications: this time belongs to any database.
                if &*service.application == names::OTHER_APPLICATIONS && us > 0.0 {
                    return None;
                }
                *executed.entry(&service.database).or_default() += us;
            }
        }
        executed.values().any(|us| *us > 0.0).then_some(executed)
    }

    /// Returns a time of the time model by name, in microseconds.
    pub fn time(&self, name: &str) -> Measure {
        self.time_model.iter().find(|statistic| &*statistic.name == name)?.us
    }

    /// Returns a statistic of the operating system by name.
    pub fn os_statistic(&self, name: &str) -> Option<&OsStatistic> {
        self.os.iter().find(|statistic| &*statistic.name == name)
    }

    /// Returns a time of the host's CPUs; 0 if it did not increase, because a repository stores what did. IOWAIT_TIME is a part of
    /// IDLE_TIME.
    pub fn cpu_time(&self, name: &str) -> Measure {
        self.os_statistic("BUSY_TIME")?.value?;
        Some(self.os_statistic(name).and_then(|statistic| statistic.value).unwrap_or(0.0))
    }

    pub fn setting(&self, name: &str) -> Option<&Setting> {
        self.settings.iter().find(|setting| &*setting.name == name)
    }

    /// Returns the value of a setting in its base unit: bytes, microseconds, or a number without unit. A document contains
    /// the settings that differ from their defaults, so that `default` stands for an absent setting; None if the document
    /// contains no settings.
    pub fn setting_value(&self, name: &str, default: f64) -> Measure {
        let Some(setting) = self.setting(name) else { return (!self.settings.is_empty()).then_some(default) };
        let number = setting.end.known().or_else(|| setting.begin.known())?.parse::<f64>().ok()?;
        let digits = setting.unit.len() - setting.unit.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (count, unit) = setting.unit.split_at(digits);
        let factor = match unit {
            "" | "B" | "us" => 1.0,
            "kB" => 1024.0,
            "MB" => 1_048_576.0,
            "GB" => 1_073_741_824.0,
            "ms" => 1e3,
            "s" => 1e6,
            "min" => 60e6,
            _ => return None,
        };
        Some(number * factor * count.parse::<f64>().unwrap_or(1.0))
    }

    /// Returns a source by name.
    pub fn source(&self, name: &str) -> Option<&Source> {
        self.sources.iter().find(|source| &*source.name == name)
    }

    /// Bytes of a block, from the setting `block_size`; 8192 if the setting is absent.
    pub fn block_bytes(&self) -> f64 {
        self.setting("block_size").and_then(|setting| setting.end.known()?.parse().ok()).unwrap_or(8192.0)
    }

    /// Number of CPUs, from the instance or the operating system's statistics.
    pub fn cpus(&self) -> Measure {
        self.instance
            .cpus
            .or_else(|| self.os_statistic("NUM_CPUS").and_then(|cpus| cpus.end.or(cpus.value).or(cpus.begin)))
    }
}

/// Parses and checks one document, or an array of documents (one per instance).
pub fn parse(json: &[u8]) -> Result<Vec<Document>, DocumentError> {
    let value: Value = serde_json::from_slice(json)?;
    let values = match value {
        Value::Array(values) => values,
        value => vec![value],
    };
    if values.is_empty() {
        return Err(DocumentError::Empty);
    }
    values
        .into_iter()
        .map(|value| {
            validate::check_values(&value)?;
            let mut document: Document = serde_json::from_value(value)?;
            validate::check_times(&document)?;
            normalize::normalize(&mut document);
            Ok(document)
        })
        .collect()
}
