//! The `cellar` binary; each subcommand is a separate program.

mod cell;
mod logger;
mod status;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Parser)]
#[command(
    name = "cellar",
    version,
    about = "Smart storage for PostgreSQL: a cell stores a cluster's files and scans its tables next to the disks",
    max_term_width = 100
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Cell(cell::CellArguments),
    /// Prevents idle CPUs from halting between file requests; started by a cell
    #[command(hide = true)]
    KeepAwake,
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Cell(arguments) => cell::run(&arguments),
        Command::KeepAwake => match cellar_cell::fuse::keep_awake() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("cellar keep-awake: {error}");
                ExitCode::FAILURE
            }
        },
    }
}
