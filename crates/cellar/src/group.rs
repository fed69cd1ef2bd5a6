//! `cellar group`: the disk group of a running cell.

use crate::CONFIG_EXIT;
use cellar_cell::config::Config;
use cellar_cell::group::request;
use cellar_format::wire::GroupAction;
use serde_json::Value;
use std::path::PathBuf;
use std::process::ExitCode;

/// Show the disk group of a running cell, bring a disk online, or take a disk offline
///
/// Connects to the daemon's socket. Run the command as the cluster's user or as the user that started the cell.
///
/// Exit codes: 0 done; 1 the cell does not answer, or refused the request; 2 invalid arguments or configuration.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct GroupArguments {
    #[command(subcommand)]
    command: GroupCommand,
}

#[derive(clap::Subcommand)]
enum GroupCommand {
    /// Show redundancy, state and free space of the group, and state and I/O of each disk
    Status(Target),
    /// Bring a disk online: copies to the disk what changed while it was offline, then returns
    Online(DiskTarget),
    /// Take a disk offline: the group does not use the disk until it is brought online or the cell starts again
    Offline(DiskTarget),
}

#[derive(clap::Args)]
struct Target {
    /// The cell's configuration file
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct DiskTarget {
    /// Path of the disk, as in the configuration file
    disk: PathBuf,
    #[command(flatten)]
    target: Target,
}

pub fn run(arguments: &GroupArguments) -> ExitCode {
    let (action, disk, target) = match &arguments.command {
        GroupCommand::Status(target) => (GroupAction::Status, String::new(), target),
        GroupCommand::Online(disk) => (GroupAction::Online, disk.disk.display().to_string(), &disk.target),
        GroupCommand::Offline(disk) => (GroupAction::Offline, disk.disk.display().to_string(), &disk.target),
    };
    let config = match Config::read(&target.config) {
        Ok(config) => config,
        Err(error) => {
            eprintln!("cellar group: {error}");
            return CONFIG_EXIT.into();
        }
    };
    match request(&config.socket, action, &disk) {
        Ok(report) if target.json => println!("{report:#}"),
        Ok(report) => print!("{}", as_text(&report)),
        Err(error) => {
            eprintln!("cellar group: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn as_text(report: &Value) -> String {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let get = |name: &str| text(&report[name]);
    let mut lines = vec![
        format!("disk group  {}, {}, redundancy {}", get("group_id"), get("state"), get("type")),
        format!("space       {} of {} MB free, {} MB usable", get("free_mb"), get("total_mb"), get("usable_file_mb")),
    ];
    if report["type"] != "EXTERN" {
        lines.push(format!(
            "copies      {} regions may differ, {} reads from another copy, {} repairs",
            get("write_intents"),
            get("reads_from_other_copy"),
            get("repairs")
        ));
    }
    for disk in report["disks"].as_array().into_iter().flatten() {
        let of_disk = |name: &str| text(&disk[name]);
        let failure_group = match &disk["failgroup"] {
            Value::Null => String::new(),
            name => format!(", failure group {}", text(name)),
        };
        lines.push(format!(
            "disk {}      {}: {}{failure_group}, {} of {} MB free, {} reads, {} writes, {} errors",
            of_disk("disk_number"),
            of_disk("path"),
            of_disk("mode_status"),
            of_disk("free_mb"),
            of_disk("total_mb"),
            of_disk("reads"),
            of_disk("writes"),
            disk["read_errs"].as_u64().unwrap_or(0) + disk["write_errs"].as_u64().unwrap_or(0)
        ));
    }
    lines.join("\n") + "\n"
}
