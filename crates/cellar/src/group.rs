//! `cellar group`: the disk group of a running cell.

use crate::CONFIG_EXIT;
use cellar_cell::cell_request::RequestError;
use cellar_cell::config::Config;
use cellar_cell::group::request;
use cellar_format::wire::{GroupAction, GroupRequest};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// The scrub found damage that it could not repair.
const DAMAGE_EXIT: u8 = 3;
/// How often `scrub --wait` asks for the progress, and every how many times it shows it.
const WAIT_INTERVAL: Duration = Duration::from_millis(200);
const SHOWN_EVERY: usize = 25;

/// Show the disk group of a running cell, bring a disk online, take a disk offline, or scrub the group
///
/// Connects to the daemon's socket. Run the command as the cluster's user or as the user that started the cell.
///
/// Exit codes: 0 done; 1 the cell does not answer, or refused the request; 2 invalid arguments or configuration; 3 the scrub
/// found damage that it could not repair.
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
    /// Read all copies of everything in the background, repair damaged copies, and list what cannot be repaired
    Scrub(ScrubTarget),
}

#[derive(clap::Args)]
struct ScrubTarget {
    /// Maximum MiB per second that are read, of all disks together; 0 for no limit
    #[arg(long, value_name = "MIB", default_value_t = 50, value_parser = clap::value_parser!(u64).range(0..1 << 30))]
    rate: u64,
    /// Return when the scrub has ended, and show its progress meanwhile
    #[arg(long)]
    wait: bool,
    /// Stop the scrub
    #[arg(long, conflicts_with = "wait")]
    stop: bool,
    #[command(flatten)]
    target: Target,
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
    let on_disk = |action, disk: &DiskTarget| GroupRequest { action, disk: disk.disk.display().to_string(), rate: 0 };
    let on_group = |action, rate| GroupRequest { action, disk: String::new(), rate };
    let (wanted, target, waits) = match &arguments.command {
        GroupCommand::Status(target) => (on_group(GroupAction::Status, 0), target, false),
        GroupCommand::Online(disk) => (on_disk(GroupAction::Online, disk), &disk.target, false),
        GroupCommand::Offline(disk) => (on_disk(GroupAction::Offline, disk), &disk.target, false),
        GroupCommand::Scrub(scrub) if scrub.stop => (on_group(GroupAction::StopScrub, 0), &scrub.target, false),
        GroupCommand::Scrub(scrub) => (on_group(GroupAction::Scrub, scrub.rate << 20), &scrub.target, scrub.wait),
    };
    let config = match Config::read(&target.config) {
        Ok(config) => config,
        Err(error) => {
            eprintln!("cellar group: {error}");
            return CONFIG_EXIT.into();
        }
    };
    let answer = request(&config.socket, &wanted).and_then(|report| match waits {
        true => wait_for_scrub(&config.socket, report),
        false => Ok(report),
    });
    match answer {
        Ok(report) => {
            match target.json {
                true => println!("{report:#}"),
                false => print!("{}", as_text(&report)),
            }
            let is_damaged = waits && report["scrub"]["unrepaired"].as_u64().unwrap_or(0) > 0;
            if is_damaged { DAMAGE_EXIT.into() } else { ExitCode::SUCCESS }
        }
        Err(error) => {
            eprintln!("cellar group: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Asks for the state of the group until the scrub has ended; shows the progress.
fn wait_for_scrub(socket: &Path, mut report: Value) -> Result<Value, RequestError> {
    let status = GroupRequest { action: GroupAction::Status, disk: String::new(), rate: 0 };
    for asked in 1.. {
        if report["scrub"]["state"] != "RUNNING" {
            break;
        }
        if asked % SHOWN_EVERY == 0 {
            eprintln!("{}", scrub_line(&report["scrub"]));
        }
        std::thread::sleep(WAIT_INTERVAL);
        report = request(socket, &status)?;
    }
    Ok(report)
}

fn scrub_line(scrub: &Value) -> String {
    let number = |name: &str| scrub[name].as_u64().unwrap_or(0);
    format!(
        "scrub       {}, {} of {} files, {} of {} MiB read, {} ranges repaired, {} not repaired",
        scrub["state"].as_str().unwrap_or_default(),
        number("files_done"),
        number("files_total"),
        number("bytes_read") >> 20,
        number("bytes_total") >> 20,
        number("repaired"),
        number("unrepaired")
    )
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
    if !report["scrub"].is_null() {
        lines.push(scrub_line(&report["scrub"]));
        for finding in report["scrub"]["findings"].as_array().into_iter().flatten() {
            let (path, place, problem) = (text(&finding["path"]), text(&finding["place"]), text(&finding["problem"]));
            lines.push(format!("damaged     {path} {place}: {problem}"));
        }
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
