//! The repository: the schema `awr` of the extension, over a PostgreSQL connection.

use super::source::Failure;
use cellar_awr::table::{Cell, Table, duration};
use postgres::error::SqlState;
use postgres::{Client, Config, NoTls, Row};
use std::env;
use std::path::Path;

/// Directories of PostgreSQL's socket: Debian's, and the default of PostgreSQL's build.
const SOCKET_DIRECTORIES: [&str; 2] = ["/var/run/postgresql", "/tmp"];

/// Numbers of two AWR snapshots of one instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period {
    pub begin: i64,
    pub end: i64,
}

/// An interval of an ASH report, in the forms of times and intervals that PostgreSQL accepts. Without `begin`, the interval
/// has the length `last`, 15 minutes by default; without `end`, the interval ends now.
pub struct Interval<'a> {
    pub begin: Option<&'a str>,
    pub end: Option<&'a str>,
    pub last: Option<&'a str>,
}

pub struct Repository {
    client: Client,
}

impl Repository {
    /// Connects with a connection string, or by the environment variables of libpq.
    pub fn connect(dsn: Option<&str>) -> Result<Self, Failure> {
        let client = configuration(dsn)?.connect(NoTls).map_err(|error| {
            let failure = server_error(&error)
                .unwrap_or_else(|| Failure::error(format!("could not connect to the server: {}", with_cause(&error))));
            failure
                .hint("Name the database that contains the extension cellar with --dsn. Connections are not encrypted.")
        })?;
        Ok(Self { client })
    }

    pub fn client(&mut self) -> &mut Client {
        &mut self.client
    }

    /// The number of an instance, which is named by its number or its name.
    pub fn instance(&mut self, text: &str) -> Result<i32, Failure> {
        let sql = "SELECT instance_id FROM awr.instance WHERE instance_id::text = $1 OR name = $1 ORDER BY instance_id::text <> $1 LIMIT 1";
        if let Some(row) = self.client.query_opt(sql, &[&text]).map_err(|error| failure(&error))? {
            return Ok(row.get(0));
        }
        // The cluster itself is instance 1, also before its first AWR snapshot.
        if text == "1" {
            return Ok(1);
        }
        let sql = "SELECT coalesce(string_agg(instance_id || ' (' || name || ')', ', ' ORDER BY instance_id), 'none') FROM awr.instance";
        let names: String = self.client.query_one(sql, &[]).map_err(|error| failure(&error))?.get(0);
        Err(Failure::usage(format!("AWR instance \"{text}\" does not exist"))
            .hint(format!("Instances in the repository: {names}.")))
    }

    /// The document of a period, as JSON.
    pub fn document(&mut self, period: Period, instance: i32) -> Result<String, Failure> {
        let parameters: [&(dyn postgres::types::ToSql + Sync); 3] = [&period.begin, &period.end, &instance];
        let row = self
            .client
            .query_one("SELECT awr.report_data($1, $2, $3)::text", &parameters)
            .map_err(|error| failure(&error))?;
        let document: Option<String> = row.get(0);
        document.ok_or_else(|| Failure::error("the repository returned no document"))
    }

    /// Fails unless both AWR snapshots exist and the first precedes the last.
    pub fn check_period(&mut self, period: Period, instance: i32) -> Result<(), Failure> {
        let sql = "SELECT awr.check_period($1, $2, $3)::text";
        self.client.query_one(sql, &[&period.begin, &period.end, &instance]).map_err(|error| failure(&error))?;
        Ok(())
    }

    /// The session samples of an interval by dimensions, as a JSON document. `filters` contains dimensions and, at the same
    /// positions, the values that they must have.
    pub fn session_history(
        &mut self,
        interval: &Interval<'_>,
        dimensions: &[String],
        filters: (&[&str], &[String]),
        instance: i32,
    ) -> Result<String, Failure> {
        let sql = "SELECT awr.ash_data(coalesce($1::text::timestamptz, e.t - coalesce($3::text::interval, '15 minutes')), e.t, $4, \
                   jsonb_object($5::text[], $6::text[]), $7)::text \
                   FROM (SELECT coalesce($2::text::timestamptz, now()) AS t) e";
        let parameters: [&(dyn postgres::types::ToSql + Sync); 7] =
            [&interval.begin, &interval.end, &interval.last, &dimensions, &filters.0, &filters.1, &instance];
        let row = self.client.query_one(sql, &parameters).map_err(|error| failure(&error))?;
        let document: Option<String> = row.get(0);
        document.ok_or_else(|| Failure::error("the repository returned no document"))
    }

    /// The history of a statement as a JSON document; over all AWR snapshots without a period.
    pub fn statement_history(
        &mut self,
        query_id: Option<i64>,
        period: Option<Period>,
        instance: i32,
    ) -> Result<String, Failure> {
        let (begin, end) = (period.map(|period| period.begin), period.map(|period| period.end));
        let parameters: [&(dyn postgres::types::ToSql + Sync); 4] = [&query_id, &begin, &end, &instance];
        let row = self
            .client
            .query_one("SELECT awr.sql_data($1, $2, $3, $4)::text", &parameters)
            .map_err(|error| failure(&error))?;
        let document: Option<String> = row.get(0);
        document.ok_or_else(|| Failure::error("the repository returned no document"))
    }

    /// The period from the first to the last of the last `count` AWR snapshots.
    pub fn last(&mut self, instance: i32, count: i64) -> Result<Period, Failure> {
        let sql = "SELECT snap_id FROM awr.snapshots WHERE instance_id = $1 ORDER BY snap_id DESC LIMIT $2";
        let rows = self.client.query(sql, &[&instance, &count]).map_err(|error| failure(&error))?;
        match (rows.first(), rows.last()) {
            (Some(end), Some(begin)) if rows.len() as i64 == count => {
                Ok(Period { begin: begin.get(0), end: end.get(0) })
            }
            _ => {
                let detail = match rows.len() {
                    0 => format!("Instance {instance} has no AWR snapshot."),
                    found => format!("Instance {instance} has {found} AWR snapshots, but {count} are necessary."),
                };
                let failure = Failure::error("not enough AWR snapshots").detail(detail);
                Err(failure.hint("\"cellar awr snapshot\" takes an AWR snapshot; \"cellar awr snapshots\" lists them."))
            }
        }
    }

    /// The period and instance of `BEGIN:END` or of a baseline's name.
    pub fn period(&mut self, text: &str, instance: i32) -> Result<(Period, i32), Failure> {
        if let Some(period) = parse_period(text) {
            return Ok((period, instance));
        }
        let sql = "SELECT begin_snap, end_snap, instance_id FROM awr.baseline WHERE name = $1";
        let row = self.client.query_opt(sql, &[&text]).map_err(|error| failure(&error))?;
        row.map(|row| (Period { begin: row.get(0), end: row.get(1) }, row.get(2))).ok_or_else(|| {
            Failure::usage(format!("baseline \"{text}\" does not exist"))
                .hint("Name a baseline of the table awr.baseline, or two AWR snapshots as BEGIN:END.")
        })
    }

    pub fn instances(&mut self) -> Result<Vec<i32>, Failure> {
        let sql = "SELECT DISTINCT instance_id FROM awr.snapshots ORDER BY 1";
        let rows = self.client.query(sql, &[]).map_err(|error| failure(&error))?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }

    pub fn create_snapshot(&mut self) -> Result<i64, Failure> {
        let row = self.client.query_one("SELECT awr.create_snapshot()", &[]).map_err(|error| failure(&error))?;
        Ok(row.get(0))
    }

    pub fn snapshots(&mut self) -> Result<Vec<Snapshot>, Failure> {
        let sql = "SELECT instance_id, instance::text, snap_id, to_char(end_time, 'YYYY-MM-DD HH24:MI:SS TZ'), \
                   to_char(end_time, 'YYYY-MM-DD\"T\"HH24:MI:SSTZH:TZM'), elapsed_us::bigint, requested_by::text, notes FROM \
                   awr.snapshots ORDER BY instance_id, snap_id";
        let rows = self.client.query(sql, &[]).map_err(|error| failure(&error))?;
        Ok(rows.iter().map(Snapshot::of).collect())
    }
}

/// A row of the view awr.snapshots.
#[derive(serde::Serialize)]
pub struct Snapshot {
    instance_id: i32,
    instance: String,
    snap_id: i64,
    #[serde(skip)]
    printed_end_time: String,
    end_time: String,
    /// None for the first AWR snapshot of an instance.
    elapsed_us: Option<i64>,
    requested_by: String,
    /// Kinds of events, separated by commas.
    notes: Option<String>,
}

impl Snapshot {
    fn of(row: &Row) -> Self {
        Self {
            instance_id: row.get(0),
            instance: row.get(1),
            snap_id: row.get(2),
            printed_end_time: row.get(3),
            end_time: row.get(4),
            elapsed_us: row.get(5),
            requested_by: row.get(6),
            notes: row.get(7),
        }
    }
}

/// The AWR snapshots as a text table.
pub fn snapshot_table(snapshots: &[Snapshot]) -> String {
    let table = Table::new(&["Inst", "<Instance", "Snap Id", "<Time", "Elapsed", "<Requested by", "<Notes"]).with_rows(
        snapshots.iter().map(|snapshot| {
            vec![
                Cell::text(snapshot.instance_id.to_string()),
                Cell::text(snapshot.instance.clone()),
                Cell::integer(Some(snapshot.snap_id)),
                Cell::text(snapshot.printed_end_time.clone()),
                Cell::text(snapshot.elapsed_us.map_or_else(String::new, |us| duration(us as f64))),
                Cell::text(snapshot.requested_by.clone()),
                Cell::text(snapshot.notes.clone().unwrap_or_default()),
            ]
        }),
    );
    cellar_awr::render::table(&table)
}

/// Parses `BEGIN:END`.
fn parse_period(text: &str) -> Option<Period> {
    let (begin, end) = text.split_once(':')?;
    Some(Period { begin: begin.trim().parse().ok()?, end: end.trim().parse().ok()? })
}

/// The configuration of a connection string. Keywords that the string lacks come from the environment variables of libpq, or are
/// libpq's defaults. Without a string, user and database are `postgres` by default.
pub fn configuration(dsn: Option<&str>) -> Result<Config, Failure> {
    let mut config = match dsn {
        Some(dsn) => dsn
            .parse::<Config>()
            .map_err(|error| Failure::usage(format!("invalid connection string \"{dsn}\": {error}")))?,
        None => Config::new(),
    };
    let variable = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
    if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
        let socket =
            || SOCKET_DIRECTORIES.into_iter().find(|directory| Path::new(directory).is_dir()).map(str::to_owned);
        config.host(&variable("PGHOST").or_else(socket).unwrap_or_else(|| "localhost".to_owned()));
    }
    if config.get_ports().is_empty()
        && let Some(port) = variable("PGPORT")
    {
        config.port(port.parse().map_err(|_| Failure::usage(format!("invalid port number \"{port}\" in PGPORT")))?);
    }
    let default = |name: &str| dsn.is_none().then(|| name.to_owned());
    if config.get_user().is_none()
        && let Some(user) = variable("PGUSER").or_else(|| variable("USER")).or_else(|| default("postgres"))
    {
        config.user(&user);
    }
    if config.get_dbname().is_none()
        && let Some(database) = variable("PGDATABASE").or_else(|| default("postgres"))
    {
        config.dbname(&database);
    }
    if config.get_password().is_none()
        && let Some(password) = variable("PGPASSWORD")
    {
        config.password(password);
    }
    Ok(config)
}

/// The error with its cause, which the crate postgres omits.
pub fn with_cause(error: &postgres::Error) -> String {
    match std::error::Error::source(error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

/// The message, detail and hint of an error that the server reported.
fn server_error(error: &postgres::Error) -> Option<Failure> {
    let error = error.as_db_error()?;
    let mut failure = Failure::error(error.message());
    if let Some(detail) = error.detail() {
        failure = failure.detail(detail);
    }
    if let Some(hint) = error.hint() {
        failure = failure.hint(hint);
    }
    Some(failure)
}

/// The error of a statement, with a hint where the repository is missing or not accessible.
pub fn failure(error: &postgres::Error) -> Failure {
    let Some(failure) = server_error(error) else {
        return Failure::error(format!("could not query the repository: {}", with_cause(error)));
    };
    match error.code() {
        Some(code) if *code == SqlState::INVALID_SCHEMA_NAME || *code == SqlState::UNDEFINED_TABLE || *code == SqlState::UNDEFINED_FUNCTION => {
            failure.hint(
                "Create the repository with CREATE EXTENSION cellar, update an extension of an earlier version with ALTER EXTENSION cellar UPDATE, \
                 or connect to the database that contains the extension.",
            )
        }
        Some(code) if *code == SqlState::INSUFFICIENT_PRIVILEGE => {
            failure.hint("Only members of pg_monitor can read the repository.")
        }
        _ => failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_are_two_numbers() {
        assert_eq!(parse_period("7:12"), Some(Period { begin: 7, end: 12 }));
        for text in ["7", "7:", "7:x", "before:after", "7-12"] {
            assert_eq!(parse_period(text), None, "{text}");
        }
    }
}
