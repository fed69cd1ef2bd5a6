//! `cellar-harness`: the client that tests, demo and benchmarks run against a Postgres cluster.
//!
//! The harness only uses SQL. It starts no process and accesses no cell; the shell scripts do that. Every command also
//! works on a cluster without Cellar, where the settings of Smart Scan have no effect. Exceptions: `screen` starts a program
//! in a pseudo-terminal, and `monitoring` reads files.

mod compare;
mod connect;
mod crash;
mod demo;
mod differ;
mod efficiency;
mod monitoring;
mod regress;
mod screen;
mod tpch;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Parser)]
#[command(version, about)]
struct Arguments {
    /// Connection string in libpq's format, such as "host=/run/x port=5432 user=postgres dbname=tpch".
    #[arg(long, global = true, default_value = "host=/var/run/postgresql user=postgres dbname=postgres")]
    dsn: String,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Generate TPC-H data and load it.
    TpchLoad(tpch::load::Options),
    /// Compare the results of the 22 TPC-H queries with the published answers for scale factor 1.
    TpchAnswers(tpch::answers::Options),
    /// Run queries with Smart Scan off and on, and compare their rows and times.
    Compare(compare::Options),
    /// Time queries on heap tables with Smart Scan off and on, compress the tables, time the queries again.
    Demo(demo::Options),
    /// Run random queries over random tables with Smart Scan off and on, and compare their rows.
    Differ(differ::Options),
    /// Compare the outputs of a Postgres test suite run with Smart Scan off and on.
    RegressCompare(regress::Options),
    /// Insert lines into the scripts of a Postgres test suite that compress the tables that they write to.
    RegressInject(regress::inject::Options),
    /// Compress tables and log the result; executed by the injected lines.
    RegressCompress(regress::inject::CompressOptions),
    /// Summarize the log of the injected lines.
    RegressCompressed(regress::inject::SumOptions),
    /// Run a program in a pseudo-terminal and check what its screen shows; the script is read from standard input.
    Screen(screen::Options),
    /// Check the dashboard and the alert rules against metrics.
    Monitoring(monitoring::Options),
    /// Create the tables of the crash tests; pgbench creates its own.
    CrashSetup,
    /// Write, scan, compress and change tables until the sessions break; record what the server acknowledged.
    CrashLoad(crash::load::Options),
    /// Check after recovery that nothing acknowledged is missing, and that all tables have consistent contents.
    CrashVerify(crash::verify::Options),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let dsn = &arguments.dsn;
    let passed = match &arguments.command {
        Command::TpchLoad(options) => tpch::load::run(dsn, options),
        Command::TpchAnswers(options) => tpch::answers::run(dsn, options),
        Command::Compare(options) => compare::run(dsn, options),
        Command::Demo(options) => demo::run(dsn, options),
        Command::Differ(options) => differ::run(dsn, options),
        Command::RegressCompare(options) => regress::run(options),
        Command::RegressInject(options) => regress::inject::inject(options),
        Command::RegressCompress(options) => regress::inject::compress(dsn, options),
        Command::RegressCompressed(options) => regress::inject::sum_up(options),
        Command::Screen(options) => screen::run(options),
        Command::Monitoring(options) => monitoring::run(options),
        Command::CrashSetup => crash::setup(dsn),
        Command::CrashLoad(options) => crash::load::run(dsn, options),
        Command::CrashVerify(options) => crash::verify::run(dsn, options),
    };
    match passed {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("cellar-harness: {error:#}");
            ExitCode::FAILURE
        }
    }
}
