//! `cellar cell`: the cell daemon.

use crate::{CONFIG_EXIT, logger, status};
use cellar_cell::config::{Config, parse_log_level};
use cellar_cell::daemon::{self, BlockedSignals, Findings};
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;

/// Run a cell: serve a cluster's files from cell disks, and scan its tables next to the disks
///
/// The cell mounts its disk group as a file system for a PostgreSQL data directory or tablespaces. It runs in the
/// foreground until SIGTERM or SIGINT. Stop PostgreSQL before the cell. After a crash, start the cell again: it removes
/// the stale mount, recovers, and mounts the file system.
///
/// To log slow Smart Scans, set slow_scan_log_ms in the configuration file to the minimum time in milliseconds.
///
/// Exit codes: 0 stopped cleanly; 1 error; 2 invalid arguments or configuration; 3 another daemon has locked the disks;
/// 4 a disk is missing or belongs to another disk group.
#[derive(clap::Args)]
#[command(verbatim_doc_comment, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct CellArguments {
    #[command(subcommand)]
    command: Option<CellCommand>,
    /// The cell's configuration file
    #[arg(long, value_name = "FILE", required = true)]
    config: Option<PathBuf>,
    /// Check whether the cell can start: read the configuration, disks and metadata, then exit; changes nothing
    #[arg(long)]
    check: bool,
    /// Print the result of --check as JSON
    #[arg(long, requires = "check")]
    json: bool,
    /// Start a group with copies although half or more of the disks with the newest data are missing. Data that only a missing
    /// disk has are lost. Use only if the missing disks will not return
    #[arg(long, conflicts_with = "check")]
    force_degraded: bool,
    /// Minimum level of log messages: error, warn, info, debug or trace; overrides log_level
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
}

#[derive(clap::Subcommand)]
enum CellCommand {
    Status(status::StatusArguments),
}

pub fn run(arguments: &CellArguments) -> ExitCode {
    if let Some(CellCommand::Status(arguments)) = &arguments.command {
        return status::run(arguments);
    }
    // A check has nothing to stop in order: a signal ends it.
    let signals = (!arguments.check).then(BlockedSignals::block);
    let config = match read_config(arguments) {
        Ok(config) => config,
        Err(message) => {
            eprintln!("cellar cell: {message}");
            return CONFIG_EXIT.into();
        }
    };
    logger::start(config.log_level);
    let result = match signals {
        None => daemon::check(&config).map(|findings| print_findings(&findings, arguments.json)),
        Some(signals) => signals.and_then(|signals| daemon::run(&config, signals)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cellar cell: {error}");
            error.exit_code().into()
        }
    }
}

fn print_findings(findings: &Findings, as_json: bool) {
    let Findings { name, disk_group, disks, inodes, total_bytes, available_bytes } = findings;
    if as_json {
        let findings = json!({
            "name": name, "disk_group": disk_group, "disks": disks, "inodes": inodes,
            "total_bytes": total_bytes, "available_bytes": available_bytes,
        });
        println!("{findings:#}");
        return;
    }
    let [total, available] = [total_bytes, available_bytes].map(|bytes| bytes >> 20);
    match disk_group {
        Some(group) => {
            println!(
                "cell {name}: disk group {group} on {disks} disks, {inodes} inodes, {available} of {total} MiB free"
            );
        }
        None => {
            println!("cell {name}: a start forms a new disk group on {disks} disks, {available} of {total} MiB free")
        }
    }
}

fn read_config(arguments: &CellArguments) -> Result<Config, String> {
    let path = arguments.config.as_deref().ok_or("--config is missing")?;
    let mut config = Config::read(path).map_err(|error| error.to_string())?;
    config.force_degraded = arguments.force_degraded;
    if let Some(level) = &arguments.log_level {
        config.log_level = parse_log_level(level)?;
    }
    Ok(config)
}
