//! `cellar-harness`: what the tests, the demo and the benchmarks run against a Postgres cluster.
//!
//! It only speaks SQL: it starts nothing and knows neither cells nor files (the shell scripts do that), so every command
//! also works on a cluster without Cellar, where Smart Scan "on" and "off" are the same thing.

mod commits;
mod compare;
mod connect;
mod demo;
mod differ;
mod efficiency;
mod regress;
mod tpch;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Parser)]
#[command(version, about)]
struct Arguments {
    /// Connection string, as libpq's: "host=/run/x port=5432 user=postgres dbname=tpch".
    #[arg(long, global = true, default_value = "host=/var/run/postgresql user=postgres dbname=postgres")]
    dsn: String,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Generate TPC-H data and load them.
    TpchLoad(tpch::load::Options),
    /// Compare the answers of the 22 queries with those that the TPC publishes for scale factor 1.
    TpchAnswers(tpch::answers::Options),
    /// Run queries with Smart Scan off and on: equal rows, times, speedup.
    Compare(compare::Options),
    /// Time queries on heap tables with Smart Scan off and on, compress the tables, time the queries again.
    Demo(demo::Options),
    /// Compare random queries over random tables with Smart Scan off and on.
    Differ(differ::Options),
    /// Compare the outputs of a Postgres test suite run with Smart Scan off and on.
    RegressCompare(regress::Options),
    /// Have a Postgres test suite's scripts compress the tables that they write to.
    RegressInject(regress::inject::Options),
    /// What the injected lines call: bring tables to a compression level, and note what became of it.
    RegressCompress(regress::inject::CompressOptions),
    /// Sum up what the injected lines did.
    RegressCompressed(regress::inject::SumOptions),
    /// Commit rows and record each acknowledged one in a file, until the server goes away.
    CommitsWrite(commits::WriteOptions),
    /// Check that every recorded commit is in the database.
    CommitsVerify(commits::VerifyOptions),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let dsn = &arguments.dsn;
    let outcome = match &arguments.command {
        Command::TpchLoad(options) => tpch::load::run(dsn, options),
        Command::TpchAnswers(options) => tpch::answers::run(dsn, options),
        Command::Compare(options) => compare::run(dsn, options),
        Command::Demo(options) => demo::run(dsn, options),
        Command::Differ(options) => differ::run(dsn, options),
        Command::RegressCompare(options) => regress::run(options),
        Command::RegressInject(options) => regress::inject::inject(options),
        Command::RegressCompress(options) => regress::inject::compress(dsn, options),
        Command::RegressCompressed(options) => regress::inject::sum_up(options),
        Command::CommitsWrite(options) => commits::write(dsn, options),
        Command::CommitsVerify(options) => commits::verify(dsn, options),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("cellar-harness: {error:#}");
            ExitCode::FAILURE
        }
    }
}
