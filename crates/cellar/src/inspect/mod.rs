//! `cellar inspect`: shows what the cell disks contain, as text or JSON.

mod text;

use crate::CONFIG_EXIT;
use cellar_cell::cell_request::RequestError;
use cellar_cell::config::Config;
use cellar_cell::inspect::report::{Inspection, ReportBody};
use cellar_cell::inspect::{InspectError, offline, remote};
use cellar_format::wire::{InspectQuery, Report};
use cellar_storage::ErrorKind;
use std::path::PathBuf;
use std::process::ExitCode;

/// Exit codes of errors that `cellar cell` reports in the same way.
const LOCKED_EXIT: u8 = 3;
const FOREIGN_DISK_EXIT: u8 = 4;

/// Show what cell disks contain: files, compression units, single blocks. Changes nothing
///
/// A running cell answers over its socket: run the command as the cluster's user or as the user that started the cell.
/// Without a running cell, the command reads the cell disks; until it ends, the cell cannot start.
///
/// PATH is a path below the mount, a path on the mount, or inode:NUMBER. In SQL, cellar.cell_of() returns the path of a
/// table's first segment. Blocks are numbered from 0 in each segment file.
///
/// Exit codes: 0 no problem found; 1 error, or problem found; 2 invalid arguments or configuration; 3 a daemon has locked
/// the disks that --disk names; 4 a disk is missing or belongs to another disk group.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct InspectArguments {
    #[command(subcommand)]
    command: InspectCommand,
}

#[derive(clap::Subcommand)]
enum InspectCommand {
    Disks(DisksArguments),
    Files(FilesArguments),
    File(FileArguments),
    Unit(UnitArguments),
    Block(BlockArguments),
}

/// The cell to inspect, and the form of the output.
#[derive(clap::Args)]
#[group(skip)]
#[command(group(clap::ArgGroup::new("cell").required(true).args(["config", "disk"])))]
struct Target {
    /// The cell's configuration file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// A cell disk of a cell that is not running; repeat the option for each disk of the group
    #[arg(long, value_name = "DIRECTORY")]
    disk: Vec<PathBuf>,
    /// Print one JSON object; sizes are bytes
    #[arg(long)]
    json: bool,
}

/// Show identity, metadata, free space and files of each cell disk, and problems such as a missing disk
#[derive(clap::Args)]
struct DisksArguments {
    #[command(flatten)]
    target: Target,
}

/// List all files with inode, size, allocation units and stored bytes
#[derive(clap::Args)]
struct FilesArguments {
    #[command(flatten)]
    target: Target,
    /// List only files whose path starts with PREFIX
    #[arg(long, value_name = "PREFIX", default_value = "")]
    path: String,
}

/// Show where each allocation unit of a file is stored: disk, raw or compression unit, superseded pages
#[derive(clap::Args)]
struct FileArguments {
    #[command(flatten)]
    target: Target,
    /// A path below the mount, a path on the mount, or inode:NUMBER
    path: String,
}

/// Show what a compression unit contains: pages, chunks, and per column encoding, bytes, minimum and maximum
#[derive(clap::Args)]
struct UnitArguments {
    #[command(flatten)]
    target: Target,
    /// Read every byte of the unit and rebuild every page
    #[arg(long)]
    verify: bool,
    /// A path below the mount, a path on the mount, or inode:NUMBER
    path: String,
    /// Number of the allocation unit in the file
    #[arg(value_name = "AU")]
    au: u64,
}

/// Show where the current content of a block is stored, and why; print the page header
#[derive(clap::Args)]
struct BlockArguments {
    #[command(flatten)]
    target: Target,
    /// Print the bytes of the block
    #[arg(long)]
    hex: bool,
    /// A path below the mount, a path on the mount, or inode:NUMBER
    path: String,
    /// Number of the block in the segment file
    block: u64,
}

pub fn run(arguments: &InspectArguments) -> ExitCode {
    let (target, report, path, number, is_complete) = match &arguments.command {
        InspectCommand::Disks(DisksArguments { target }) => (target, Report::Disks, "", 0, false),
        InspectCommand::Files(FilesArguments { target, path }) => (target, Report::Files, path.as_str(), 0, false),
        InspectCommand::File(FileArguments { target, path }) => (target, Report::File, path.as_str(), 0, false),
        InspectCommand::Unit(UnitArguments { target, verify, path, au }) => {
            (target, Report::Unit, path.as_str(), *au, *verify)
        }
        InspectCommand::Block(BlockArguments { target, hex, path, block }) => {
            (target, Report::Block, path.as_str(), *block, *hex)
        }
    };
    let config = match target.config.as_deref().map(Config::read).transpose() {
        Ok(config) => config,
        Err(error) => {
            eprintln!("cellar inspect: {error}");
            return CONFIG_EXIT.into();
        }
    };
    let path = below_mount(path, config.as_ref());
    let query = InspectQuery { report, path, number, is_complete };
    match inspect(target, config.as_ref(), &query) {
        Ok(inspection) => {
            match target.json {
                true => println!("{:#}", serde_json::json!(inspection)),
                false => print!("{}", text::text(&inspection)),
            }
            ExitCode::from(u8::from(has_problem(&inspection.report)))
        }
        Err((message, code)) => {
            eprintln!("cellar inspect: {message}");
            code.into()
        }
    }
}

/// Returns a path on the mount as a path below the mount, other paths unchanged.
fn below_mount(path: &str, config: Option<&Config>) -> String {
    let mount = config.and_then(|config| config.mount.to_str());
    let below =
        mount.and_then(|mount| path.strip_prefix(mount)).filter(|rest| rest.is_empty() || rest.starts_with('/'));
    below.map_or(path, |below| below.trim_start_matches('/')).to_owned()
}

/// Reads the disks, or requests the report from the running cell that has locked them. Returns a message and the exit code
/// on an error.
fn inspect(target: &Target, config: Option<&Config>, query: &InspectQuery) -> Result<Inspection, (String, u8)> {
    let disks = config.map_or(&target.disk, |config| &config.disk_group.disks);
    let error = match read_disks(disks, query) {
        Ok(inspection) => return Ok(inspection),
        Err(error) => error,
    };
    match (error.kind(), config) {
        // The cluster's user may query a cell whose disks that user cannot open.
        (_, Some(config)) if error.is_permission_denied() => {
            remote::query(&config.socket, query).map_err(|answer| match answer {
                RequestError::Unreachable { .. } => {
                    (format!("{error}; run the command as the user that runs the cell, or start the cell"), 1)
                }
                answer => (answer.to_string(), 1),
            })
        }
        (Some(ErrorKind::Locked), Some(config)) => {
            remote::query(&config.socket, query).map_err(|error| (error.to_string(), 1))
        }
        (Some(ErrorKind::Locked), None) => {
            let hint = "use --config FILE to query the running cell, or stop the cell";
            Err((format!("{error}; {hint}"), LOCKED_EXIT))
        }
        (Some(ErrorKind::ForeignDisk), _) => Err((error.to_string(), FOREIGN_DISK_EXIT)),
        _ => Err((error.to_string(), 1)),
    }
}

/// Reads the disks without printing a panic of the metadata store on damaged bytes, which becomes an error.
fn read_disks(disks: &[PathBuf], query: &InspectQuery) -> Result<Inspection, InspectError> {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|panic| log::debug!("{panic}")));
    let read = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| offline::report(disks, query)));
    std::panic::set_hook(hook);
    read.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn has_problem(report: &ReportBody) -> bool {
    match report {
        ReportBody::Disks(disks) => !disks.problems.is_empty(),
        ReportBody::Unit(unit) => {
            unit.verification.as_ref().is_some_and(|verification| !verification.errors.is_empty())
        }
        ReportBody::Files(_) | ReportBody::File(_) | ReportBody::Block(_) | ReportBody::FlashContent(_) => false,
    }
}
