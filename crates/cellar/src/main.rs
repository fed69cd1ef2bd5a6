//! The `cellar` binary: parses the arguments and runs the subcommand.

mod awr;
mod cell;
mod cell_source;
mod cellcli;
mod dcli;
mod disk;
mod group;
mod inspect;
mod iorm;
mod logger;
mod status;
mod top;

use clap::{CommandFactory, Parser, Subcommand};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Exit code for invalid arguments or configuration.
const CONFIG_EXIT: u8 = 2;

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
    Awr(awr::AwrArguments),
    Cell(cell::CellArguments),
    Cellcli(cellcli::CellcliArguments),
    Dcli(dcli::DcliArguments),
    Disk(disk::DiskArguments),
    Group(group::GroupArguments),
    Inspect(inspect::InspectArguments),
    Iorm(iorm::IormArguments),
    Top(top::TopArguments),
    /// Prevent idle CPUs from halting between file requests; started by a cell
    #[command(hide = true)]
    KeepAwake,
    /// Write the man pages of all commands into a folder
    #[command(hide = true)]
    ManPages {
        folder: PathBuf,
    },
}

/// Commands that a link to the binary with their name runs, so that commands written for Oracle's tools work as they are.
const LINKS: [&str; 2] = ["cellcli", "dcli"];

/// Returns the arguments of the process. The name of a link becomes the command, and usage lines begin with the name of the program.
fn arguments() -> Vec<OsString> {
    let mut arguments: Vec<OsString> = std::env::args_os().collect();
    let name = arguments.first().and_then(|path| Path::new(path).file_name()).map(OsString::from);
    if let Some(name) = name.filter(|name| LINKS.iter().any(|link| name == link)) {
        arguments.insert(1, name);
        arguments[0] = "cellar".into();
    }
    arguments
}

fn main() -> ExitCode {
    match Arguments::parse_from(arguments()).command {
        Command::Awr(arguments) => awr::run(&arguments),
        Command::Cell(arguments) => cell::run(&arguments),
        Command::Cellcli(arguments) => cellcli::run(&arguments),
        Command::Dcli(arguments) => dcli::run(&arguments),
        Command::Disk(arguments) => disk::run(&arguments),
        Command::Group(arguments) => group::run(&arguments),
        Command::Inspect(arguments) => inspect::run(&arguments),
        Command::Iorm(arguments) => iorm::run(&arguments),
        Command::Top(arguments) => top::run(&arguments),
        Command::KeepAwake => match cellar_cell::fuse::keep_awake() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("cellar keep-awake: {error}");
                ExitCode::FAILURE
            }
        },
        Command::ManPages { folder } => match clap_mangen::generate_to(Arguments::command(), folder) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("cellar man-pages: {error}");
                ExitCode::FAILURE
            }
        },
    }
}
