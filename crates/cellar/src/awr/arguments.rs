//! The arguments of `cellar awr`.

use super::oracle;
use super::repository::{Period, Repository};
use super::source::Failure;
use clap::builder::PossibleValuesParser;
use std::path::PathBuf;

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
    pub command: AwrCommand,
}

#[derive(clap::Subcommand)]
pub enum AwrCommand {
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
pub struct Connection {
    /// Connection string of the database that contains the repository: "host=… dbname=… user=…" or a URI
    #[arg(long, value_name = "DSN")]
    pub dsn: Option<String>,
}

#[derive(clap::Args)]
pub struct Output {
    /// Form of the report: text, html, json, or document (the figures that reports are computed from)
    #[arg(long, value_name = "FORMAT", value_parser = PossibleValuesParser::new(FORMATS))]
    pub format: Option<String>,
    /// Write the report to a file; its extension .html, .json or .txt also chooses the format
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// The AWR snapshots that a report covers
#[derive(clap::Args)]
pub struct ReportedSnapshots {
    /// First AWR snapshot
    #[arg(long, value_name = "SNAP_ID", requires = "end")]
    pub begin: Option<i64>,
    /// Last AWR snapshot
    #[arg(long, value_name = "SNAP_ID", requires = "begin")]
    pub end: Option<i64>,
    /// Report from the first to the last of the last COUNT AWR snapshots
    #[arg(long, value_name = "COUNT", conflicts_with = "begin", value_parser = clap::value_parser!(i64).range(2..))]
    pub last: Option<i64>,
    /// Instance whose AWR snapshots are reported, by number or name; 1 is the server that contains the repository
    #[arg(long, value_name = "INSTANCE", default_value = "1")]
    pub instance: String,
}

impl ReportedSnapshots {
    /// Returns the number of the instance, and the period; None if the command line has no period.
    pub fn find(&self, repository: &mut Repository) -> Result<(i32, Option<Period>), Failure> {
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
pub struct ReportArguments {
    #[command(flatten)]
    pub connection: Connection,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub snapshots: ReportedSnapshots,
    /// Render a document that --format document wrote, without a connection
    #[arg(long, value_name = "FILE", conflicts_with_all = ["dsn", "begin", "last"])]
    pub from_json: Option<PathBuf>,
}

/// Compare two periods; changes are ranked by their share of DB time
///
/// A period is BEGIN:END, two numbers of AWR snapshots, or the name of a baseline; or FIRST and SECOND are files of Oracle's
/// reports. With --from-json, FIRST and SECOND are files that `cellar awr report --format document` wrote.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct DiffArguments {
    #[command(flatten)]
    pub connection: Connection,
    #[command(flatten)]
    pub output: Output,
    /// Instance whose AWR snapshots are compared, by number or name
    #[arg(long, value_name = "INSTANCE", default_value = "1")]
    pub instance: String,
    /// The periods are files with documents
    #[arg(long, conflicts_with = "dsn")]
    pub from_json: bool,
    #[command(flatten)]
    pub mask: oracle::Mask,
    /// The first period
    pub first: String,
    /// The second period
    pub second: String,
}

/// Report about all instances in the repository: cluster-wide figures, and each instance
#[derive(clap::Args)]
pub struct GlobalArguments {
    #[command(flatten)]
    pub connection: Connection,
    #[command(flatten)]
    pub output: Output,
    /// Report the last COUNT AWR snapshots of each instance
    #[arg(long, value_name = "COUNT", default_value_t = 2, value_parser = clap::value_parser!(i64).range(2..))]
    pub last: i64,
    /// Include only this instance, by number or name; repeat the option for several
    #[arg(long, value_name = "INSTANCE")]
    pub instance: Vec<String>,
    /// Render a file that contains an array of documents
    #[arg(long, value_name = "FILE", conflicts_with_all = ["dsn", "instance"])]
    pub from_json: Option<PathBuf>,
}

/// Report about the active sessions of any interval, from session samples; by default of the last 15 minutes
#[derive(clap::Args)]
pub struct AshArguments {
    #[command(flatten)]
    pub connection: Connection,
    #[command(flatten)]
    pub output: Output,
    /// Begin of the interval: a time that PostgreSQL accepts, in the time zone of the server
    #[arg(long, value_name = "TIME", conflicts_with = "last")]
    pub begin: Option<String>,
    /// End of the interval; now by default
    #[arg(long, value_name = "TIME")]
    pub end: Option<String>,
    /// Length of the interval before its end, for example '10 minutes'
    #[arg(long, value_name = "INTERVAL")]
    pub last: Option<String>,
    /// Add a section with the samples by these dimensions: event, wait_class, sql_id, query_id, plan, database, user,
    /// application, consumer_group, client, backend_type, state, session, blocker
    #[arg(long, value_name = "DIMENSION", value_delimiter = ',')]
    pub by: Vec<String>,
    #[command(flatten)]
    pub filters: Filters,
    /// Instance whose session samples are reported, by number or name; 1 is the server that contains the repository
    #[arg(long, value_name = "INSTANCE", default_value = "1")]
    pub instance: String,
    /// Render a document that --format document wrote, without a connection
    #[arg(long, value_name = "FILE", conflicts_with_all = ["dsn", "begin", "end", "last", "by"])]
    pub from_json: Option<PathBuf>,
}

/// Conditions on session samples; all of them must hold.
#[derive(clap::Args)]
pub struct Filters {
    /// Only samples with this wait event; CPU for sessions on a CPU
    #[arg(long, value_name = "EVENT")]
    pub event: Option<String>,
    /// Only samples of this wait class; Idle also selects idle waits, such as pg_sleep()
    #[arg(long, value_name = "CLASS")]
    pub wait_class: Option<String>,
    /// Only samples of the statement with this SQL_ID
    #[arg(long, value_name = "SQL_ID")]
    pub sql_id: Option<String>,
    /// Only samples of the statement with this query identifier
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    pub query_id: Option<i64>,
    /// Only samples of executions with this plan hash
    #[arg(long, value_name = "PLAN_HASH")]
    pub plan: Option<i64>,
    /// Only samples of sessions in this database
    #[arg(long, value_name = "NAME")]
    pub database: Option<String>,
    /// Only samples of sessions of this role
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// Only samples of sessions with this application name
    #[arg(long, value_name = "NAME")]
    pub application: Option<String>,
    /// Only samples of sessions of this consumer group
    #[arg(long, value_name = "NAME")]
    pub consumer_group: Option<String>,
    /// Only samples of sessions of this client address
    #[arg(long, value_name = "ADDRESS")]
    pub client: Option<String>,
    /// Only samples of processes of this type, as in pg_stat_activity
    #[arg(long, value_name = "TYPE")]
    pub backend_type: Option<String>,
    /// Only samples of sessions in this state, as in pg_stat_activity
    #[arg(long, value_name = "STATE")]
    pub state: Option<String>,
    /// Only samples of the process with this process id
    #[arg(long, value_name = "PID")]
    pub session: Option<i32>,
    /// Only samples of sessions that waited for this process
    #[arg(long, value_name = "PID")]
    pub blocker: Option<i32>,
}

impl Filters {
    /// Returns the dimensions with a condition, and the value that each must have.
    pub fn conditions(&self) -> (Vec<&'static str>, Vec<String>) {
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
            ("consumer_group", self.consumer_group.clone()),
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
pub struct SqlArguments {
    #[command(flatten)]
    pub connection: Connection,
    #[command(flatten)]
    pub output: Output,
    /// The statement, by its SQL_ID
    #[arg(long, value_name = "SQL_ID")]
    pub sql_id: Option<String>,
    /// The statement, by its query identifier
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true)]
    pub query_id: Option<i64>,
    #[command(flatten)]
    pub snapshots: ReportedSnapshots,
    /// Render a document that --format document wrote, without a connection
    #[arg(long, value_name = "FILE", conflicts_with_all = ["dsn", "begin", "last"])]
    pub from_json: Option<PathBuf>,
}

/// List the AWR snapshots of the repository
#[derive(clap::Args)]
pub struct SnapshotsArguments {
    #[command(flatten)]
    pub connection: Connection,
    /// Print a JSON array with an object for each AWR snapshot
    #[arg(long)]
    pub json: bool,
}

/// Take an AWR snapshot and print its number
///
/// With --source, the statistics of one server are stored in the repository of another server: for a standby, which cannot
/// write, or to collect the AWR snapshots of several servers in one repository.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct SnapshotArguments {
    #[command(flatten)]
    pub connection: Connection,
    /// Server whose statistics are stored in the repository: connection string of a database with the extension
    #[arg(long, value_name = "DSN", conflicts_with = "dsn")]
    pub source: Option<String>,
    /// Connection string of the database that contains the repository, if --source names another server
    #[arg(long, value_name = "DSN", requires = "source")]
    pub repository: Option<String>,
    /// Name of the instance in the repository; by default cluster_name of the source, or else its host
    #[arg(long, value_name = "NAME", requires = "source")]
    pub name: Option<String>,
    /// Print a JSON object
    #[arg(long)]
    pub json: bool,
}

/// Write AWR snapshots with their session samples and texts to a file that `cellar awr import` reads
#[derive(clap::Args)]
pub struct ExportArguments {
    #[command(flatten)]
    pub connection: Connection,
    /// First AWR snapshot; all of them by default
    #[arg(long, value_name = "SNAP_ID", requires = "end")]
    pub begin: Option<i64>,
    /// Last AWR snapshot
    #[arg(long, value_name = "SNAP_ID", requires = "begin")]
    pub end: Option<i64>,
    /// Export this instance, by number or name; all instances by default, instance 1 with --begin
    #[arg(long, value_name = "INSTANCE")]
    pub instance: Vec<String>,
    /// Replace the texts of statements and plans (texts), or these texts and all names (names)
    #[arg(long, value_name = "WHAT", value_delimiter = ',', value_parser = PossibleValuesParser::new(MASKS))]
    pub mask: Vec<String>,
    /// Print a JSON object
    #[arg(long)]
    pub json: bool,
    /// The file, which is replaced if it exists
    pub file: PathBuf,
}

/// Add the contents of a file of `cellar awr export` to a repository
#[derive(clap::Args)]
pub struct ImportArguments {
    #[command(flatten)]
    pub connection: Connection,
    /// Print a JSON array with an object for each instance
    #[arg(long)]
    pub json: bool,
    /// The file
    pub file: PathBuf,
}
