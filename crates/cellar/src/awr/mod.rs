//! `cellar awr`: AWR snapshots and reports of a cluster.
//!
//! The repository, the schema `awr` of the extension, returns a report document; the crate cellar-awr renders the document.

mod oracle;
mod repository;
mod source;
mod transfer;

use crate::CONFIG_EXIT;
use cellar_awr::render::{self, Format};
use cellar_awr::{report, sql_id};
use clap::builder::PossibleValuesParser;
use repository::{Interval, Period, Repository};
pub use repository::{configuration, with_cause};
use source::{Failure, documents};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Values of --mask.
const MASKS: [&str; 2] = ["texts", "names"];

/// Values of --format.
const FORMATS: [&str; 4] = ["text", "html", "json", "document"];

/// Take AWR snapshots of a cluster, and report what happened between them
///
/// Without --dsn, the environment variables PGHOST, PGPORT, PGUSER, PGDATABASE and PGPASSWORD choose the connection. The
/// database is the one that contains the extension (setting cellar.awr_database).
///
/// Exit codes: 0 success; 1 error; 2 invalid arguments.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct AwrArguments {
    #[command(subcommand)]
    command: AwrCommand,
}

#[derive(clap::Subcommand)]
enum AwrCommand {
    Report(ReportArguments),
    Diff(DiffArguments),
    Global(GlobalArguments),
    Ash(Box<AshArguments>),
    Sql(SqlArguments),
    Snapshots(SnapshotsArguments),
    Snapshot(SnapshotArguments),
    Export(ExportArguments),
    Import(ImportArguments),
    Read(oracle::ReadArguments),
    Findings(oracle::FindingsArguments),
    RacStats(oracle::RacStatsArguments),
    Trend(oracle::TrendArguments),
    Html(oracle::HtmlArguments),
    Advise(oracle::AdviseArguments),
}

#[derive(clap::Args)]
struct Connection {
    /// Connection string of the database that contains the repository: "host=… dbname=… user=…" or a URI
    #[arg(long, value_name = "DSN")]
    dsn: Option<String>,
}

#[derive(clap::Args)]
struct Output {
    /// Form of the report: text, html, json, or document (the figures that reports are computed from)
    #[arg(long, value_name = "FORMAT", value_parser = PossibleValuesParser::new(FORMATS))]
    format: Option<String>,
    /// Write the report to a file; its extension .html, .json or .txt also chooses the format
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// The AWR snapshots that a report covers
#[derive(clap::Args)]
struct ReportedSnapshots {
    /// First AWR snapshot
    #[arg(long, value_name = "SNAP_ID", requires = "end")]
    begin: Option<i64>,
    /// Last AWR snapshot
    #[arg(long, value_name = "SNAP_ID", requires = "begin")]
    end: Option<i64>,
    /// Report from the first to the last of the last COUNT AWR snapshots
    #[arg(long, value_name = "COUNT", conflicts_with = "begin", value_parser = clap::value_parser!(i64).range(2..))]
    last: Option<i64>,
    /// Instance whose AWR snapshots are reported, by number or name; 1 is the server that contains the repository
    #[arg(long, value_name = "INSTANCE", default_value = "1")]
    instance: String,
}

impl ReportedSnapshots {
    /// Returns the number of the instance, and the period; None if the command line has no period.
    fn find(&self, repository: &mut Repository) -> Result<(i32, Option<Period>), Failure> {
        let instance = repository.instance(&self.instance)?;
        let period = match (self.begin, self.end, self.last) {
            (Some(begin), Some(end), _) => Some(Period { begin, end }),
            (_, _, Some(count)) => Some(repository.last(instance, count)?),
            _ => None,
        };
        Ok((instance, period))
    }
}

/// Report about the interval between two AWR snapshots; by default between the last two
#[derive(clap::Args)]
struct ReportArguments {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    snapshots: ReportedSnapshots,
    /// Render a document that --format document wrote, without a connection
    #[arg(long, value_name = "FILE", conflicts_with_all = ["dsn", "begin", "last"])]
    from_json: Option<PathBuf>,
}

/// Compare two periods; changes are ranked by their share of DB time
///
/// A period is BEGIN:END, two numbers of AWR snapshots, or the name of a baseline; or FIRST and SECOND are files of Oracle's
/// reports. With --from-json, FIRST and SECOND are files that `cellar awr report --format document` wrote.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
struct DiffArguments {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    output: Output,
    /// Instance whose AWR snapshots are compared, by number or name
    #[arg(long, value_name = "INSTANCE", default_value = "1")]
    instance: String,
    /// The periods are files with documents
    #[arg(long, conflicts_with = "dsn")]
    from_json: bool,
    #[command(flatten)]
    mask: oracle::Mask,
    /// The first period
    first: String,
    /// The second period
    second: String,
}

/// Report about all instances in the repository: cluster-wide figures, and each instance
#[derive(clap::Args)]
struct GlobalArguments {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    output: Output,
    /// Report the last COUNT AWR snapshots of each instance
    #[arg(long, value_name = "COUNT", default_value_t = 2, value_parser = clap::value_parser!(i64).range(2..))]
    last: i64,
    /// Include only this instance, by number or name; repeat the option for several
    #[arg(long, value_name = "INSTANCE")]
    instance: Vec<String>,
    /// Render a file that contains an array of documents
    #[arg(long, value_name = "FILE", conflicts_with_all = ["dsn", "instance"])]
    from_json: Option<PathBuf>,
}

/// Report about the active sessions of any interval, from session samples; by default of the last 15 minutes
#[derive(clap::Args)]
struct AshArguments {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    output: Output,
    /// Begin of the interval: a time that PostgreSQL accepts, in the time zone of the server
    #[arg(long, value_name = "TIME", conflicts_with = "last")]
    begin: Option<String>,
    /// End of the interval; now by default
    #[arg(long, value_name = "TIME")]
    end: Option<String>,
    /// Length of the interval before its end, for example '10 minutes'
    #[arg(long, value_name = "INTERVAL")]
    last: Option<String>,
    /// Add a section with the samples by these dimensions: event, wait_class, sql_id, query_id, plan, database, user,
    /// application, client, backend_type, state, session, blocker
    #[arg(long, value_name = "DIMENSION", value_delimiter = ',')]
    by: Vec<String>,
    #[command(flatten)]
    filters: Filters,
    /// Instance whose session samples are reported, by number or name; 1 is the server that contains the repository
    #[arg(long, value_name = "INSTANCE", default_value = "1")]
    instance: String,
    /// Render a document that --format document wrote, without a connection
    #[arg(long, value_name = "FILE", conflicts_with_all = ["dsn", "begin", "end", "last", "by"])]
    from_json: Option<PathBuf>,
}

/// Conditions on session samples; all of them must hold.
#[derive(clap::Args)]
struct Filters {
    /// Only samples with this wait event; CPU for sessions on a CPU
    #[arg(long, value_name = "EVENT")]
    event: Option<String>,
    /// Only samples of this wait class; Idle also selects idle waits, such as pg_sleep()
    #[arg(long, value_name = "CLASS")]
    wait_class: Option<String>,
    /// Only samples of the statement with this SQL_ID
    #[arg(long, value_name = "SQL_ID")]
    sql_id: Option<String>,
    /// Only samples of the statement with this query identifier
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    query_id: Option<i64>,
    /// Only samples of executions with this plan hash
    #[arg(long, value_name = "PLAN_HASH")]
    plan: Option<i64>,
    /// Only samples of sessions in this database
    #[arg(long, value_name = "NAME")]
    database: Option<String>,
    /// Only samples of sessions of this role
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Only samples of sessions with this application name
    #[arg(long, value_name = "NAME")]
    application: Option<String>,
    /// Only samples of sessions of this client address
    #[arg(long, value_name = "ADDRESS")]
    client: Option<String>,
    /// Only samples of processes of this type, as in pg_stat_activity
    #[arg(long, value_name = "TYPE")]
    backend_type: Option<String>,
    /// Only samples of sessions in this state, as in pg_stat_activity
    #[arg(long, value_name = "STATE")]
    state: Option<String>,
    /// Only samples of the process with this process id
    #[arg(long, value_name = "PID")]
    session: Option<i32>,
    /// Only samples of sessions that waited for this process
    #[arg(long, value_name = "PID")]
    blocker: Option<i32>,
}

impl Filters {
    /// Returns the dimensions with a condition, and the value that each must have.
    fn conditions(&self) -> (Vec<&'static str>, Vec<String>) {
        let number = |number: Option<i32>| number.map(|number| number.to_string());
        [
            ("event", self.event.clone()),
            ("wait_class", self.wait_class.clone()),
            ("sql_id", self.sql_id.clone()),
            ("query_id", self.query_id.map(|query_id| query_id.to_string())),
            ("plan", self.plan.map(|plan| plan.to_string())),
            ("database", self.database.clone()),
            ("user", self.user.clone()),
            ("application", self.application.clone()),
            ("client", self.client.clone()),
            ("backend_type", self.backend_type.clone()),
            ("state", self.state.clone()),
            ("session", number(self.session)),
            ("blocker", number(self.blocker)),
        ]
        .into_iter()
        .filter_map(|(dimension, value)| Some((dimension, value?)))
        .unzip()
    }
}

/// Report about one statement over time: its plans, statistics per AWR snapshot, and waits; by default over all AWR snapshots
#[derive(clap::Args)]
#[command(group = clap::ArgGroup::new("statement").required(true).args(["sql_id", "query_id", "from_json"]))]
struct SqlArguments {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    output: Output,
    /// The statement, by its SQL_ID
    #[arg(long, value_name = "SQL_ID")]
    sql_id: Option<String>,
    /// The statement, by its query identifier
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    query_id: Option<i64>,
    #[command(flatten)]
    snapshots: ReportedSnapshots,
    /// Render a document that --format document wrote, without a connection
    #[arg(long, value_name = "FILE", conflicts_with_all = ["dsn", "begin", "last"])]
    from_json: Option<PathBuf>,
}

/// List the AWR snapshots of the repository
#[derive(clap::Args)]
struct SnapshotsArguments {
    #[command(flatten)]
    connection: Connection,
}

/// Take an AWR snapshot and print its number
///
/// With --source, the statistics of one server are stored in the repository of another: those of a standby, which cannot write,
/// or those of any server that has a central repository.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
struct SnapshotArguments {
    #[command(flatten)]
    connection: Connection,
    /// Server whose statistics are stored in the repository: connection string of a database with the extension
    #[arg(long, value_name = "DSN", conflicts_with = "dsn")]
    source: Option<String>,
    /// Connection string of the database that contains the repository, if --source names another server
    #[arg(long, value_name = "DSN", requires = "source")]
    repository: Option<String>,
    /// Name of the instance in the repository; by default cluster_name of the source, or else its host
    #[arg(long, value_name = "NAME", requires = "source")]
    name: Option<String>,
}

/// Write AWR snapshots with their session samples and texts to a file that `cellar awr import` reads
#[derive(clap::Args)]
struct ExportArguments {
    #[command(flatten)]
    connection: Connection,
    /// First AWR snapshot; all of them by default
    #[arg(long, value_name = "SNAP_ID", requires = "end")]
    begin: Option<i64>,
    /// Last AWR snapshot
    #[arg(long, value_name = "SNAP_ID", requires = "begin")]
    end: Option<i64>,
    /// Export this instance, by number or name; all instances by default, instance 1 with --begin
    #[arg(long, value_name = "INSTANCE")]
    instance: Vec<String>,
    /// Replace texts of statements and plans (texts), or those and all names (names)
    #[arg(long, value_name = "WHAT", value_delimiter = ',', value_parser = PossibleValuesParser::new(MASKS))]
    mask: Vec<String>,
    /// The file, which is replaced if it exists
    file: PathBuf,
}

/// Add the contents of a file of `cellar awr export` to a repository
#[derive(clap::Args)]
struct ImportArguments {
    #[command(flatten)]
    connection: Connection,
    /// The file
    file: PathBuf,
}

pub fn run(arguments: &AwrArguments) -> ExitCode {
    let (name, result) = match &arguments.command {
        AwrCommand::Report(arguments) => ("report", report(arguments)),
        AwrCommand::Diff(arguments) => ("diff", diff(arguments)),
        AwrCommand::Global(arguments) => ("global", global(arguments)),
        AwrCommand::Ash(arguments) => ("ash", ash(arguments)),
        AwrCommand::Sql(arguments) => ("sql", sql(arguments)),
        AwrCommand::Snapshots(arguments) => ("snapshots", snapshots(arguments)),
        AwrCommand::Snapshot(arguments) => ("snapshot", snapshot(arguments)),
        AwrCommand::Export(arguments) => ("export", export(arguments)),
        AwrCommand::Import(arguments) => ("import", import(arguments)),
        AwrCommand::Read(arguments) => ("read", oracle::read(arguments)),
        AwrCommand::Findings(arguments) => ("findings", oracle::findings(arguments)),
        AwrCommand::RacStats(arguments) => ("rac-stats", oracle::rac_stats(arguments)),
        AwrCommand::Trend(arguments) => ("trend", oracle::trend(arguments)),
        AwrCommand::Html(arguments) => ("html", oracle::html(arguments)),
        AwrCommand::Advise(arguments) => ("advise", oracle::advise(arguments)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("cellar awr {name}: {failure}");
            if failure.is_usage() { CONFIG_EXIT.into() } else { ExitCode::FAILURE }
        }
    }
}

fn report(arguments: &ReportArguments) -> Result<(), Failure> {
    let json = match &arguments.from_json {
        Some(file) => source::read(file)?,
        None => {
            let mut repository = Repository::connect(arguments.connection.dsn.as_deref())?;
            let (instance, period) = arguments.snapshots.find(&mut repository)?;
            let period = match period {
                Some(period) => period,
                None => repository.last(instance, 2)?,
            };
            repository.document(period, instance)?
        }
    };
    write(&arguments.output, &json, || Ok(report::of(&documents(&json)?)))
}

fn diff(arguments: &DiffArguments) -> Result<(), Failure> {
    // Files of Oracle's reports, unless the arguments choose periods of a repository.
    if !arguments.from_json && arguments.connection.dsn.is_none() {
        match oracle::compared([&arguments.first, &arguments.second], &arguments.mask)? {
            [Some(first), Some(second)] => {
                return match arguments.output.format.as_deref() {
                    Some("document") => {
                        Err(Failure::usage("the comparison of Oracle's reports has no form \"document\""))
                    }
                    _ => write(&arguments.output, "", || Ok(report::difference(&first, &second))),
                };
            }
            [None, None] => {}
            _ => {
                return Err(Failure::usage(
                    "both periods must be files of Oracle's reports, or periods of the repository",
                ));
            }
        }
    }
    if !arguments.mask.is_empty() {
        return Err(Failure::usage("--mask applies to the comparison of files of reports")
            .hint("\"cellar awr export --mask\" masks AWR snapshots."));
    }
    let periods = [&arguments.first, &arguments.second];
    let json = match arguments.from_json {
        true => periods.map(|file| source::read(Path::new(file))),
        false => {
            let mut repository = Repository::connect(arguments.connection.dsn.as_deref())?;
            let instance = repository.instance(&arguments.instance)?;
            periods.map(|period| {
                let (period, instance) = repository.period(period, instance)?;
                repository.document(period, instance)
            })
        }
    };
    let [first, second] = json;
    let (first, second) = (first?, second?);
    write(&arguments.output, &source::array(&[first.clone(), second.clone()]), || {
        let (first, second) = (documents(&first)?, documents(&second)?);
        match (first.as_slice(), second.as_slice()) {
            ([first], [second]) => Ok(report::difference(first, second)),
            _ => Err(Failure::usage("a period to compare must be the document of one instance")),
        }
    })
}

fn global(arguments: &GlobalArguments) -> Result<(), Failure> {
    let json = match &arguments.from_json {
        Some(file) => source::read(file)?,
        None => {
            let mut repository = Repository::connect(arguments.connection.dsn.as_deref())?;
            let mut all = Vec::new();
            let selected = instances(&mut repository, &arguments.instance)?;
            for instance in repository.instances()? {
                if selected.is_empty() || selected.contains(&instance) {
                    let period = repository.last(instance, arguments.last)?;
                    all.push(repository.document(period, instance)?);
                }
            }
            source::array(&all)
        }
    };
    write(&arguments.output, &json, || Ok(report::global(&documents(&json)?)))
}

fn ash(arguments: &AshArguments) -> Result<(), Failure> {
    let json = match &arguments.from_json {
        Some(file) => source::read(file)?,
        None => {
            let interval = Interval {
                begin: arguments.begin.as_deref(),
                end: arguments.end.as_deref(),
                last: arguments.last.as_deref(),
            };
            let (dimensions, values) = arguments.filters.conditions();
            let mut repository = Repository::connect(arguments.connection.dsn.as_deref())?;
            let instance = repository.instance(&arguments.instance)?;
            repository.session_history(&interval, &arguments.by, (&dimensions, &values), instance)?
        }
    };
    write(&arguments.output, &json, || Ok(report::of(&documents(&json)?)))
}

fn sql(arguments: &SqlArguments) -> Result<(), Failure> {
    let json = match (&arguments.from_json, &arguments.sql_id, arguments.query_id) {
        (Some(file), ..) => source::read(file)?,
        (None, sql_id, query_id) => {
            let query_id = match sql_id {
                Some(text) => Some(sql_id::parse(text).ok_or_else(|| {
                    Failure::usage(format!("invalid SQL_ID \"{text}\""))
                        .detail("An SQL_ID has 13 characters: digits and lower-case letters without e, i, l and o.")
                })?),
                None => query_id,
            };
            let mut repository = Repository::connect(arguments.connection.dsn.as_deref())?;
            let (instance, period) = arguments.snapshots.find(&mut repository)?;
            repository.statement_history(query_id, period, instance)?
        }
    };
    write(&arguments.output, &json, || Ok(report::of(&documents(&json)?)))
}

fn snapshots(arguments: &SnapshotsArguments) -> Result<(), Failure> {
    let list = Repository::connect(arguments.connection.dsn.as_deref())?.snapshots()?;
    to_stdout(&list)
}

fn snapshot(arguments: &SnapshotArguments) -> Result<(), Failure> {
    let number = match &arguments.source {
        None => Repository::connect(arguments.connection.dsn.as_deref())?.create_snapshot()?,
        Some(source) => {
            let mut source = Repository::connect(Some(source))?;
            let mut repository = Repository::connect(arguments.repository.as_deref())?;
            transfer::store_snapshot_of(&mut source, &mut repository, arguments.name.as_deref())?
        }
    };
    to_stdout(&format!("{number}\n"))
}

/// The numbers of instances that are named by number or name.
fn instances(repository: &mut Repository, texts: &[String]) -> Result<Vec<i32>, Failure> {
    texts.iter().map(|text| repository.instance(text)).collect()
}

fn export(arguments: &ExportArguments) -> Result<(), Failure> {
    let mut repository = Repository::connect(arguments.connection.dsn.as_deref())?;
    let mut selection =
        transfer::Selection { instances: instances(&mut repository, &arguments.instance)?, period: None };
    if let (Some(begin), Some(end)) = (arguments.begin, arguments.end) {
        if selection.instances.is_empty() {
            selection.instances.push(1);
        }
        // Refuses AWR snapshots that do not exist, with a list of those that do.
        for instance in &selection.instances {
            repository.check_period(Period { begin, end }, *instance)?;
        }
        selection.period = Some(Period { begin, end });
    }
    let exported =
        transfer::export(&mut repository, &selection, transfer::Masking::parse(&arguments.mask), &arguments.file)?;
    to_stdout(&format!("{} AWR snapshots, {} bytes\n", exported.snapshots, exported.bytes))
}

fn import(arguments: &ImportArguments) -> Result<(), Failure> {
    let mut repository = Repository::connect(arguments.connection.dsn.as_deref())?;
    for added in transfer::import(&mut repository, &arguments.file)? {
        let (number, name, count) = (added.instance_id, added.instance, added.snapshots);
        let range = match (added.first, added.last) {
            (Some(first), Some(last)) => format!(", {first} to {last}"),
            _ => String::new(),
        };
        to_stdout(&format!("instance {number} ({name}): {count} AWR snapshots added{range}\n"))?;
    }
    Ok(())
}

/// Writes the document or the rendered report to the file or to standard output.
fn write(output: &Output, json: &str, report: impl FnOnce() -> Result<report::Report, Failure>) -> Result<(), Failure> {
    let extension = output.output.as_ref().and_then(|file| file.extension()).and_then(|extension| extension.to_str());
    let name = output.format.as_deref().unwrap_or(match extension {
        Some("html" | "htm") => "html",
        Some("json") => "json",
        _ => "text",
    });
    let text = match Format::parse(name) {
        Some(format) => render::render(&report()?, format),
        // A document is checked before it is saved, too.
        None => {
            documents(json)?;
            format!("{json}\n")
        }
    };
    match &output.output {
        Some(file) => std::fs::write(file, text)
            .map_err(|error| Failure::error(format!("could not write \"{}\": {error}", file.display()))),
        None => to_stdout(&text),
    }
}

/// Writes to standard output. A reader that closes the pipe early, such as `head`, is no error.
fn to_stdout(text: &str) -> Result<(), Failure> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::error(format!("could not write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}
