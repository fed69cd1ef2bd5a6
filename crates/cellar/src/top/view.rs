//! What a screen shows: rates between two readings, and activity averaged over the last samples. Also the JSON document of
//! `cellar top --json`.

use super::history::{History, StatementKey};
use super::reading::{CLASSES, CellIoCounters, CellState, IDLE, NO_DATABASE, RELATION, Reading, Server, Session};
use cellar_awr::figures::histogram::quantile_us;
use cellar_awr::figures::time::CLASSES as CLASS_NAMES;
use cellar_awr::sql_id;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Increased when a field of the JSON document changes its meaning or is removed.
pub const SCHEMA_VERSION: u32 = 1;
pub const SMART_SCAN: &str = "smart scan";

#[derive(Debug, Clone, Serialize)]
pub struct View {
    pub schema_version: u32,
    pub time: f64,
    /// The time over which rates are computed; None after the first reading, when there are no rates.
    pub rate_seconds: Option<f64>,
    pub server: Option<Server>,
    pub active_sessions: Vec<ClassRow>,
    pub statements: Vec<StatementRow>,
    pub sessions: Vec<Session>,
    pub databases: Vec<DatabaseRow>,
    pub cell_io: Vec<CellIoRow>,
    pub cells: Vec<CellState>,
    pub missing: Vec<String>,
}

#[derive(Debug, Clone, Serialize)]
pub struct ClassRow {
    pub wait_class: &'static str,
    pub now: f64,
    pub average: f64,
}

#[derive(Debug, Clone, Default, Serialize)]
pub struct StatementRow {
    /// None while the server parses the statement, or waits for locks of its tables to parse it.
    pub query_id: Option<i64>,
    pub sql_id: Option<String>,
    pub database: String,
    pub text: Option<String>,
    /// Average active sessions of the last minute.
    pub active_sessions: f64,
    /// The class of most samples.
    pub wait_class: Option<&'static str>,
    pub calls_per_second: Option<f64>,
    pub mean_seconds: Option<f64>,
    pub cpu_cores: Option<f64>,
    pub rows_per_second: Option<f64>,
    pub blocks_hit_per_second: Option<f64>,
    pub blocks_read_per_second: Option<f64>,
    pub temp_blocks_per_second: Option<f64>,
    pub wal_bytes_per_second: Option<f64>,
    pub eligible_bytes_per_second: Option<f64>,
    pub returned_bytes_per_second: Option<f64>,
}

impl StatementRow {
    fn new(key: &StatementKey) -> Self {
        Self {
            query_id: key.query_id,
            sql_id: key.query_id.map(sql_id::format),
            database: key.database.clone(),
            text: (!key.text.is_empty()).then(|| key.text.clone()),
            ..Self::default()
        }
    }

    pub fn key(&self) -> StatementKey {
        match (self.query_id, &self.text) {
            (Some(query_id), _) => StatementKey::counted(query_id, self.database.clone()),
            (None, text) => {
                StatementKey { query_id: None, text: text.clone().unwrap_or_default(), database: self.database.clone() }
            }
        }
    }
}

#[derive(Debug, Clone, Default, Serialize)]
pub struct DatabaseRow {
    pub database: String,
    pub sessions: i64,
    pub active_sessions: f64,
    pub transactions_per_second: Option<f64>,
    pub rollbacks_per_second: Option<f64>,
    pub blocks_read_per_second: Option<f64>,
    pub hit_percent: Option<f64>,
    pub rows_read_per_second: Option<f64>,
    pub rows_written_per_second: Option<f64>,
    pub temp_bytes_per_second: Option<f64>,
    pub cell_bytes_per_second: Option<f64>,
    pub deadlocks: i64,
}

#[derive(Debug, Clone, Default, Serialize)]
pub struct CellIoRow {
    pub cell: String,
    pub database: String,
    /// The class of the files; None for Smart Scans, and if a cell counts all files together.
    pub class: Option<String>,
    pub kind: String,
    pub operations_per_second: Option<f64>,
    pub bytes_per_second: Option<f64>,
    /// Smart scan: bytes returned to the server.
    pub returned_bytes_per_second: Option<f64>,
    pub mean_seconds: Option<f64>,
    pub p50_seconds: Option<f64>,
    pub p95_seconds: Option<f64>,
    pub p99_seconds: Option<f64>,
}

impl View {
    /// Removes the texts of statements.
    pub fn hide_texts(&mut self) {
        self.statements.iter_mut().for_each(|row| row.text = None);
        self.sessions.iter_mut().for_each(|session| session.query = None);
    }

    /// Returns None before the first reading.
    pub fn of(history: &History) -> Option<Self> {
        let last = history.last()?;
        let base = history.base();
        let rates = Rates { seconds: base.map(|base| last.at.duration_since(base.at).as_secs_f64().max(1e-3)) };
        let names = database_names(last);
        let name = |oid: u32| names.get(&oid).cloned().unwrap_or_else(|| oid.to_string());
        let cell_io = cell_io(last, base, &rates, &name);
        Some(Self {
            schema_version: SCHEMA_VERSION,
            time: last.time,
            rate_seconds: rates.seconds,
            server: last.server.clone(),
            active_sessions: classes(history),
            statements: statements(history, last, base, &rates, &name),
            sessions: last.sessions.clone(),
            databases: databases(history, last, base, &rates, &cell_io),
            cell_io,
            cells: last.cells.iter().map(|cell| with_ratios(cell, base)).collect(),
            missing: last.missing.clone(),
        })
    }
}

/// Returns the state of a cell with its ratios since an earlier reading.
fn with_ratios(cell: &CellState, base: Option<&Reading>) -> CellState {
    let mut cell = cell.clone();
    let Some(before) = base.and_then(|base| base.cells.iter().find(|before| before.mount == cell.mount)) else {
        return cell;
    };
    let of = |after: u64, before: u64| increase(after as f64, Some(before as f64));
    if let (Some(flash), Some(before)) = (&mut cell.flash_cache, &before.flash_cache) {
        let (hits, misses) = (of(flash.hits, before.hits), of(flash.misses, before.misses));
        flash.hit_percent = (hits + misses > 0.0).then(|| 100.0 * hits / (hits + misses));
    }
    let requests = of(cell.iorm_requests, before.iorm_requests);
    let waited = increase(cell.iorm_wait_seconds, Some(before.iorm_wait_seconds));
    cell.iorm_wait_per_request_seconds = (requests > 0.0).then(|| waited / requests);
    cell
}

struct Rates {
    seconds: Option<f64>,
}

impl Rates {
    /// The increase of a counter per second; None without an earlier reading. A counter that decreased was reset, or
    /// belongs to an entry that was evicted and created again.
    fn of(&self, after: f64, before: Option<f64>) -> Option<f64> {
        self.seconds.map(|seconds| increase(after, before) / seconds)
    }
}

fn increase(after: f64, before: Option<f64>) -> f64 {
    match before {
        Some(before) if before <= after => after - before,
        _ => after,
    }
}

fn database_names(reading: &Reading) -> HashMap<u32, String> {
    let named = reading.databases.iter().filter_map(|database| Some((database.oid, database.name.clone()?)));
    named.chain([(0, NO_DATABASE.to_owned())]).collect()
}

fn classes(history: &History) -> Vec<ClassRow> {
    let now = history.slots().back();
    let count = history.window().count().max(1) as f64;
    let average = |class: usize| history.window().map(|slot| slot.classes[class]).sum::<f64>() / count;
    let row = |class: usize| ClassRow {
        wait_class: CLASS_NAMES[class],
        now: now.map_or(0.0, |slot| slot.classes[class]),
        average: average(class),
    };
    (0..IDLE).map(row).filter(|row| row.now > 0.0 || row.average > 0.0).collect()
}

fn statements(
    history: &History,
    last: &Reading,
    base: Option<&Reading>,
    rates: &Rates,
    name: &dyn Fn(u32) -> String,
) -> Vec<StatementRow> {
    let mut rows: BTreeMap<StatementKey, StatementRow> = BTreeMap::new();
    let before: HashMap<(i64, u32), _> = base
        .map(|base| base.statements.iter().map(|counters| ((counters.query_id, counters.database), counters)).collect())
        .unwrap_or_default();
    for after in &last.statements {
        let before = before.get(&(after.query_id, after.database));
        let calls = increase(after.calls as f64, before.map(|before| before.calls as f64));
        if rates.seconds.is_none() || calls == 0.0 {
            continue;
        }
        let rate = |value: fn(&super::reading::StatementCounters) -> i64| {
            rates.of(value(after) as f64, before.map(|before| value(before) as f64))
        };
        let elapsed = increase(after.elapsed_us as f64, before.map(|before| before.elapsed_us as f64));
        let database = name(after.database);
        let key = StatementKey::counted(after.query_id, database);
        rows.insert(
            key.clone(),
            StatementRow {
                text: after.text.clone(),
                calls_per_second: rate(|counters| counters.calls),
                mean_seconds: Some(elapsed / calls / 1e6),
                cpu_cores: after.cpu_us.and_then(|_| rate(|counters| counters.cpu_us.unwrap_or(0))).map(|us| us / 1e6),
                rows_per_second: rate(|counters| counters.rows),
                blocks_hit_per_second: rate(|counters| counters.blocks_hit),
                blocks_read_per_second: rate(|counters| counters.blocks_read),
                temp_blocks_per_second: rate(|counters| counters.temp_blocks),
                wal_bytes_per_second: rate(|counters| counters.wal_bytes),
                eligible_bytes_per_second: rate(|counters| counters.eligible_bytes),
                returned_bytes_per_second: rate(|counters| counters.returned_bytes),
                ..StatementRow::new(&key)
            },
        );
    }
    add_samples(&mut rows, history, last);
    let mut rows: Vec<StatementRow> = rows.into_values().collect();
    let weight = |row: &StatementRow| {
        row.active_sessions + row.calls_per_second.unwrap_or(0.0) * row.mean_seconds.unwrap_or(0.0) * 1e-3
    };
    rows.sort_by(|a, b| weight(b).total_cmp(&weight(a)));
    rows
}

/// Adds the sampled activity of statements, also of those that are not complete and of servers that count none.
fn add_samples(rows: &mut BTreeMap<StatementKey, StatementRow>, history: &History, last: &Reading) {
    let count = history.window().count().max(1) as f64;
    let mut classes: HashMap<StatementKey, [f64; CLASSES]> = HashMap::new();
    for sample in history.window().flat_map(|slot| &slot.samples) {
        let Some(key) = &sample.statement else { continue };
        let row = rows.entry(key.clone()).or_insert_with(|| StatementRow::new(key));
        row.active_sessions += 1.0 / count;
        classes.entry(key.clone()).or_insert([0.0; CLASSES])[sample.class] += 1.0;
    }
    for (key, classes) in classes {
        let greatest = (0..CLASSES).max_by(|a, b| classes[*a].total_cmp(&classes[*b])).unwrap_or(0);
        if let Some(row) = rows.get_mut(&key) {
            row.wait_class = Some(CLASS_NAMES[greatest]);
        }
    }
    let counted = last.statements.iter().filter_map(|counters| Some((counters.query_id, counters.text.as_ref()?)));
    let running = last.sessions.iter().filter_map(|session| Some((session.query_id?, session.query.as_ref()?)));
    let texts: HashMap<i64, &String> = running.chain(counted).collect();
    for row in rows.values_mut().filter(|row| row.text.is_none()) {
        row.text = row.query_id.and_then(|query_id| texts.get(&query_id)).map(|text| (*text).clone());
    }
}

fn databases(
    history: &History,
    last: &Reading,
    base: Option<&Reading>,
    rates: &Rates,
    cell_io: &[CellIoRow],
) -> Vec<DatabaseRow> {
    let count = history.window().count().max(1) as f64;
    let row = |after: &super::reading::DatabaseCounters| {
        let before = base.and_then(|base| base.databases.iter().find(|before| before.oid == after.oid));
        let rate = |value: fn(&super::reading::DatabaseCounters) -> i64| {
            rates.of(value(after) as f64, before.map(|before| value(before) as f64))
        };
        let (hit, read) = (rate(|counters| counters.blocks_hit), rate(|counters| counters.blocks_read));
        let is_sample = |sample: &&super::history::Sample| sample.database == after.name;
        let samples = history.window().flat_map(|slot| &slot.samples).filter(is_sample).count();
        let database = after.name.clone().unwrap_or_else(|| NO_DATABASE.to_owned());
        let of_cells = cell_io.iter().filter(|row| row.database == database);
        let cell_bytes: Vec<f64> = of_cells.filter_map(|row| row.bytes_per_second).collect();
        DatabaseRow {
            sessions: after.sessions,
            active_sessions: samples as f64 / count,
            transactions_per_second: rate(|counters| counters.commits + counters.rollbacks),
            rollbacks_per_second: rate(|counters| counters.rollbacks),
            blocks_read_per_second: read,
            hit_percent: hit
                .zip(read)
                .filter(|(hit, read)| hit + read > 0.0)
                .map(|(hit, read)| 100.0 * hit / (hit + read)),
            rows_read_per_second: rate(|counters| counters.rows_read),
            rows_written_per_second: rate(|counters| counters.rows_written),
            temp_bytes_per_second: rate(|counters| counters.temp_bytes),
            cell_bytes_per_second: (!cell_bytes.is_empty()).then(|| cell_bytes.iter().sum()),
            deadlocks: after.deadlocks,
            database,
        }
    };
    let mut rows: Vec<DatabaseRow> = last.databases.iter().map(row).collect();
    rows.sort_by(|a, b| {
        let weight = |row: &DatabaseRow| (row.active_sessions, row.transactions_per_second.unwrap_or(0.0));
        weight(b).partial_cmp(&weight(a)).unwrap_or(std::cmp::Ordering::Equal)
    });
    rows
}

/// Cell, database, class and kind.
type IoKey = (String, Option<u32>, Option<String>, String);

/// Cell, database, relation, class and kind.
type IoIdentity<'a> = (&'a str, Option<u32>, Option<(u32, u32)>, Option<&'a str>, &'a str);

/// What identifies the same counters in two readings. The class of a relation is known only while the relation exists.
fn identity(counters: &CellIoCounters) -> IoIdentity<'_> {
    let class = counters.class.as_deref().filter(|_| counters.relation.is_none());
    (&counters.cell, counters.database, counters.relation, class, &counters.kind)
}

#[derive(Default)]
struct IoIncrease {
    operations: f64,
    bytes: f64,
    seconds: f64,
    buckets: Vec<f64>,
}

impl IoIncrease {
    fn of(after: &CellIoCounters, before: Option<&CellIoCounters>) -> Self {
        let of_bucket = |(bucket, count): (usize, &u64)| {
            increase(*count as f64, before.and_then(|before| before.buckets.get(bucket)).map(|count| *count as f64))
        };
        Self {
            operations: increase(after.operations as f64, before.map(|before| before.operations as f64)),
            bytes: increase(after.bytes as f64, before.map(|before| before.bytes as f64)),
            seconds: increase(after.seconds, before.map(|before| before.seconds)),
            buckets: after.buckets.iter().enumerate().map(of_bucket).collect(),
        }
    }

    fn add(&mut self, other: &Self, factor: f64) {
        self.operations += factor * other.operations;
        self.bytes += factor * other.bytes;
        self.seconds += factor * other.seconds;
        self.buckets.resize(self.buckets.len().max(other.buckets.len()), 0.0);
        for (sum, count) in self.buckets.iter_mut().zip(&other.buckets) {
            *sum += factor * count;
        }
    }
}

fn cell_io(last: &Reading, base: Option<&Reading>, rates: &Rates, name: &dyn Fn(u32) -> String) -> Vec<CellIoRow> {
    // The increases of each relation count in its class, and not in the type of all relations.
    let mut sums: BTreeMap<IoKey, IoIncrease> = BTreeMap::new();
    let before: HashMap<_, _> = base
        .map(|base| base.cell_io.iter().map(|counters| (identity(counters), counters)).collect())
        .unwrap_or_default();
    for after in &last.cell_io {
        let increase = IoIncrease::of(after, before.get(&identity(after)).copied());
        let key =
            |class: Option<&str>| (after.cell.clone(), after.database, class.map(str::to_owned), after.kind.clone());
        sums.entry(key(after.class.as_deref())).or_default().add(&increase, 1.0);
        if after.relation.is_some() {
            sums.entry(key(Some(RELATION))).or_default().add(&increase, -1.0);
        }
    }
    let is_classified: BTreeSet<(&String, Option<u32>)> = last
        .cell_io
        .iter()
        .filter(|counters| counters.relation.is_some())
        .map(|counters| (&counters.cell, counters.database))
        .collect();
    // Cells count while they answer, so that the rest of the relations can be below zero.
    sums.retain(|(cell, database, class, _), increase| {
        increase.operations > 0.0 || class.as_deref() != Some(RELATION) || !is_classified.contains(&(cell, *database))
    });
    let files = sums.into_iter().map(|((cell, database, class, kind), increase)| {
        let per_second = |value: f64| rates.seconds.map(|seconds| value.max(0.0) / seconds);
        let quantile =
            |share: f64| rates.seconds.and_then(|_| quantile_us(&increase.buckets, share)).map(|us| us / 1e6);
        CellIoRow {
            cell,
            database: name(database.unwrap_or(0)),
            class,
            kind,
            operations_per_second: per_second(increase.operations),
            bytes_per_second: per_second(increase.bytes),
            returned_bytes_per_second: None,
            mean_seconds: rates
                .seconds
                .filter(|_| increase.operations > 0.0)
                .map(|_| increase.seconds.max(0.0) / increase.operations),
            p50_seconds: quantile(0.5),
            p95_seconds: quantile(0.95),
            p99_seconds: quantile(0.99),
        }
    });
    let scans = last.scans.iter().map(|after| {
        let is_same =
            |before: &&super::reading::ScanCounters| (&before.cell, before.database) == (&after.cell, after.database);
        let before = base.and_then(|base| base.scans.iter().find(is_same));
        let rate = |value: fn(&super::reading::ScanCounters) -> f64| rates.of(value(after), before.map(value));
        CellIoRow {
            cell: after.cell.clone(),
            database: name(after.database),
            kind: SMART_SCAN.to_owned(),
            operations_per_second: after.scans.and_then(|_| rate(|counters| counters.scans.unwrap_or(0) as f64)),
            bytes_per_second: rate(|counters| counters.eligible_bytes as f64),
            returned_bytes_per_second: rate(|counters| counters.returned_bytes as f64),
            ..CellIoRow::default()
        }
    });
    let mut rows: Vec<CellIoRow> = files.chain(scans).collect();
    rows.sort_by(|a, b| b.bytes_per_second.unwrap_or(0.0).total_cmp(&a.bytes_per_second.unwrap_or(0.0)));
    rows
}
