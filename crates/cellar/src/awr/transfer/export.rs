//! `cellar awr export`: streams a repository, or a part of it, to a file.

use super::super::repository::{Period, Repository, failure};
use super::super::source::Failure;
use super::copy;
use super::file::Writer;
use super::mask::{Column, Masker, Masking};
use postgres::{IsolationLevel, Transaction};
use serde_json::json;
use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::Path;

/// Columns of session samples that contain the numbers of words.
const WORD_COLUMNS: [&str; 7] =
    ["application", "client", "backend_type", "state", "wait_event_type", "wait_event", "consumer_group"];

/// What to export: instances (an empty list means all) and a period of AWR snapshots (None means all).
pub struct Selection {
    pub instances: Vec<i32>,
    pub period: Option<Period>,
}

/// Numbers of the exported AWR snapshots, and the size of the file.
#[derive(serde::Serialize)]
pub struct Exported {
    pub snapshots: i64,
    pub bytes: u64,
}

/// Exports the repository as of one moment.
pub fn export(
    repository: &mut Repository,
    selection: &Selection,
    masking: Masking,
    file: &Path,
) -> Result<Exported, Failure> {
    let mut transaction = repository
        .client()
        .build_transaction()
        .isolation_level(IsolationLevel::RepeatableRead)
        .read_only(true)
        .start()
        .map_err(|error| failure(&error))?;
    transaction
        .batch_execute("SET LOCAL timezone = 'UTC'; SET LOCAL datestyle = 'ISO, YMD'")
        .map_err(|error| failure(&error))?;
    let conditions = Conditions::new(selection);
    let about = transaction
        .query_one(
            "SELECT extversion::text, to_char(now(), 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"') FROM pg_extension WHERE extname = 'cellar'",
            &[],
        )
        .map_err(|error| failure(&error))?;
    let count = format!("SELECT count(*) FROM awr.snapshot WHERE {}", conditions.snapshots);
    let snapshots: i64 = transaction.query_one(&count, &[]).map_err(|error| failure(&error))?.get(0);
    if snapshots == 0 {
        return Err(Failure::error("the selection contains no AWR snapshot")
            .hint("\"cellar awr snapshots\" lists the AWR snapshots."));
    }
    let masked: Vec<&str> = [(masking.texts, "texts"), (masking.names, "names")]
        .iter()
        .filter(|(on, _)| *on)
        .map(|(_, what)| *what)
        .collect();
    let about = json!({
        "cellar_version": about.get::<_, String>(0),
        "time": about.get::<_, String>(1),
        "masked": masked,
    });

    let mut export = Export {
        transaction,
        writer: Writer::create(file, &about)?,
        masker: Masker::new(masking),
        words: HashMap::new(),
    };
    export.table("instance", &conditions.instances)?;
    // The sums of whole days are computed again after the import.
    let tables = "SELECT relname::text FROM pg_class WHERE relnamespace = 'awr'::regnamespace AND relkind = 'p' \
                  AND relname NOT IN ('sample_day', 'sample_day_event') ORDER BY relname <> 'snapshot', relname";
    for row in export.transaction.query(tables, &[]).map_err(|error| failure(&error))? {
        let table: String = row.get(0);
        match table.as_str() {
            "sample_chunk" => {
                export.words(&conditions.samples)?;
                export.table(&table, &conditions.samples)?;
            }
            "setting" => export.state("setting", "name", &conditions)?,
            "object_name" => export.state("object_name", "class, object", &conditions)?,
            _ => export.table(&table, &conditions.snapshots)?,
        }
    }
    export.table("query_text", &conditions.texts)?;
    export.table("plan_text", &conditions.texts)?;
    export.table("baseline", &conditions.baselines)?;
    let bytes = export.writer.finish()?;
    Ok(Exported { snapshots, bytes })
}

/// The conditions of the exported rows, by table.
struct Conditions {
    instances: String,
    snapshots: String,
    samples: String,
    texts: String,
    baselines: String,
    period: Option<Period>,
}

impl Conditions {
    fn new(selection: &Selection) -> Self {
        let instances = match selection.instances.as_slice() {
            [] => "true".to_owned(),
            numbers => {
                let list: Vec<String> = numbers.iter().map(i32::to_string).collect();
                format!("instance_id IN ({})", list.join(", "))
            }
        };
        let period = selection.period;
        let Some(Period { begin, end }) = period else {
            return Self {
                snapshots: instances.clone(),
                samples: instances.clone(),
                texts: instances.clone(),
                baselines: instances.clone(),
                instances,
                period,
            };
        };
        let snapshots = format!("{instances} AND snap_id BETWEEN {begin} AND {end}");
        let samples = format!(
            "{instances} AND end_time > (SELECT min(end_time) FROM awr.snapshot WHERE {snapshots}) \
             AND begin_time <= (SELECT max(end_time) FROM awr.snapshot WHERE {snapshots})"
        );
        let texts = format!(
            "{instances} AND query_id IN (SELECT query_id FROM awr.plan_stat WHERE {snapshots} \
             UNION SELECT queryid FROM awr.statement_stat WHERE {snapshots} UNION SELECT query_id FROM awr.activity WHERE {snapshots} \
             UNION SELECT unnest(query_id) FROM awr.sample_chunk WHERE {samples})"
        );
        let baselines = format!("{instances} AND begin_snap >= {begin} AND end_snap <= {end}");
        Self { instances, snapshots, samples, texts, baselines, period }
    }
}

struct Export<'a> {
    transaction: Transaction<'a>,
    writer: Writer,
    masker: Masker,
    /// The file's number of a word, by the repository's, for each of WORD_COLUMNS.
    words: HashMap<(usize, i32), i32>,
}

impl Export<'_> {
    fn columns(&mut self, table: &str) -> Result<Vec<Column>, Failure> {
        let sql = "SELECT a.attname::text, t.typcategory = 'S' OR t.typname IN ('json', 'jsonb', 'name') OR t.typcategory = 'U' \
                   FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid \
                   WHERE a.attrelid = ('awr.' || $1::text)::regclass AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum";
        let rows = self.transaction.query(sql, &[&table]).map_err(|error| failure(&error))?;
        Ok(rows.iter().map(|row| Column { name: row.get(0), is_text: row.get(1) }).collect())
    }

    fn table(&mut self, table: &str, condition: &str) -> Result<(), Failure> {
        let columns = self.columns(table)?;
        let query = format!("SELECT {} FROM awr.{table} WHERE {condition}", list(&columns));
        self.rows(table, &columns, &query)
    }

    /// Exports a table of which AWR snapshots store only changes. The first exported AWR snapshot gets the state before it.
    fn state(&mut self, table: &str, key: &str, conditions: &Conditions) -> Result<(), Failure> {
        let Some(Period { begin, end }) = conditions.period else {
            return self.table(table, &conditions.snapshots);
        };
        let columns = self.columns(table)?;
        let select: Vec<String> = columns
            .iter()
            .map(
                |column| {
                    if column.name == "snap_id" { format!("greatest(snap_id, {begin})") } else { column.name.clone() }
                },
            )
            .collect();
        let instances = &conditions.instances;
        let query = format!(
            "SELECT {} FROM (SELECT * FROM awr.{table} WHERE {instances} AND snap_id > {begin} AND snap_id <= {end} \
             UNION ALL (SELECT DISTINCT ON (instance_id, {key}) * FROM awr.{table} WHERE {instances} AND snap_id <= {begin} \
             AND snap_day = (SELECT min(snap_day) FROM awr.snapshot WHERE {}) ORDER BY instance_id, {key}, snap_id DESC)) s",
            select.join(", "),
            conditions.snapshots
        );
        self.rows(table, &columns, &query)
    }

    /// Exports the texts of session samples under new numbers, one for each masked text.
    fn words(&mut self, condition: &str) -> Result<(), Failure> {
        self.writer.begin_table("word", &["id".to_owned(), "word".to_owned()])?;
        let mut numbers: HashMap<String, i32> = HashMap::new();
        for (position, column) in WORD_COLUMNS.iter().enumerate() {
            let sql = format!(
                "SELECT w.id, w.word FROM awr.word w \
                 JOIN (SELECT DISTINCT unnest({column}) AS id FROM awr.sample_chunk WHERE {condition}) s USING (id) ORDER BY w.id"
            );
            for row in self.transaction.query(&sql, &[]).map_err(|error| failure(&error))? {
                let word = self.masker.word(column, row.get(1));
                let next = numbers.len() as i32 + 1;
                let number = *numbers.entry(word.clone()).or_insert(next);
                self.words.insert((position, row.get(0)), number);
                if number == next {
                    let mut line = format!("{number}\t");
                    copy::escape_to(&mut line, Some(&word));
                    self.writer.row(&line)?;
                }
            }
        }
        self.writer.end_table()
    }

    fn rows(&mut self, table: &str, columns: &[Column], query: &str) -> Result<(), Failure> {
        let names: Vec<String> = columns.iter().map(|column| column.name.clone()).collect();
        self.writer.begin_table(table, &names)?;
        let copy = format!("COPY ({query}) TO STDOUT");
        let mut lines =
            BufReader::with_capacity(1 << 16, self.transaction.copy_out(&copy).map_err(|error| failure(&error))?);
        let mut bytes = Vec::new();
        let mut row = String::new();
        loop {
            bytes.clear();
            let read = lines.read_until(b'\n', &mut bytes).map_err(|error| copy_failure(&error))?;
            if read == 0 {
                break;
            }
            let line = std::str::from_utf8(&bytes).map_err(|_| {
                Failure::error(format!("a row of awr.{table} is not valid in the encoding of the database"))
            })?;
            let mut values: Vec<Option<String>> = copy::fields(line.trim_end_matches('\n'))
                .iter()
                .map(|field| copy::unescape(field).map(|value| value.into_owned()))
                .collect();
            self.masker.row(table, columns, &mut values)?;
            if table == "sample_chunk" {
                renumber(&self.words, columns, &mut values)?;
            }
            row.clear();
            for (position, value) in values.iter().enumerate() {
                if position > 0 {
                    row.push('\t');
                }
                copy::escape_to(&mut row, value.as_deref());
            }
            self.writer.row(&row)?;
        }
        drop(lines);
        self.writer.end_table()
    }
}

/// The names of the columns as a select list; the names of this schema need no quotes except those that are keywords.
fn list(columns: &[Column]) -> String {
    let quoted: Vec<String> = columns.iter().map(|column| format!("\"{}\"", column.name)).collect();
    quoted.join(", ")
}

/// Replaces the numbers of words in a row of session samples.
fn renumber(
    words: &HashMap<(usize, i32), i32>,
    columns: &[Column],
    values: &mut [Option<String>],
) -> Result<(), Failure> {
    for (column, value) in columns.iter().zip(values) {
        let (Some(position), Some(text)) =
            (WORD_COLUMNS.iter().position(|name| *name == column.name), value.as_deref())
        else {
            continue;
        };
        let mut renumbered = String::with_capacity(text.len());
        renumbered.push('{');
        for (index, item) in text.trim_matches(['{', '}']).split(',').filter(|item| !item.is_empty()).enumerate() {
            if index > 0 {
                renumbered.push(',');
            }
            // A number without a text is the trace of a damaged table; the sample then lacks the text.
            match item.parse().ok().and_then(|id| words.get(&(position, id))) {
                Some(number) => renumbered.push_str(&number.to_string()),
                None => renumbered.push_str("NULL"),
            }
        }
        renumbered.push('}');
        *value = Some(renumbered);
    }
    Ok(())
}

/// The error of a server during COPY, which arrives as an I/O error.
pub fn copy_failure(error: &std::io::Error) -> Failure {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<postgres::Error>()) {
        Some(error) => failure(error),
        None => Failure::error(format!("could not copy from the server: {error}")),
    }
}
