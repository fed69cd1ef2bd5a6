//! `cellar group`: the disk group of a running cell.

mod config_file;

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

/// Show, change and scrub the disk group of a running cell
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
    /// Add an empty directory or a blank device to the group, and to the configuration file; a rebalance begins
    Add(DiskTarget),
    /// Drop a disk: a rebalance moves its data to the other disks, then the disk leaves the group
    Drop(DiskTarget),
    /// Cancel the drop of a disk that has not left the group yet
    Undrop(DiskTarget),
    /// Begin a rebalance, or set the power of rebalances
    Rebalance(RebalanceTarget),
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

#[derive(clap::Args)]
struct RebalanceTarget {
    /// How fast rebalances copy, from 0 (not at all) to 11 (as fast as the disks); begins no rebalance
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=11))]
    power: Option<u32>,
    #[command(flatten)]
    target: Target,
}

pub fn run(arguments: &GroupArguments) -> ExitCode {
    let of_disk = |action, disk: &DiskTarget| GroupRequest::on_disk(action, disk.disk.display().to_string());
    let of_group = GroupRequest::on_group;
    let (wanted, target, waits) = match &arguments.command {
        GroupCommand::Status(target) => (of_group(GroupAction::Status), target, false),
        GroupCommand::Online(disk) => (of_disk(GroupAction::Online, disk), &disk.target, false),
        GroupCommand::Offline(disk) => (of_disk(GroupAction::Offline, disk), &disk.target, false),
        GroupCommand::Add(disk) => (of_disk(GroupAction::Add, disk), &disk.target, false),
        GroupCommand::Drop(disk) => (of_disk(GroupAction::Drop, disk), &disk.target, false),
        GroupCommand::Undrop(disk) => (of_disk(GroupAction::Undrop, disk), &disk.target, false),
        GroupCommand::Rebalance(RebalanceTarget { power: Some(power), target }) => {
            (GroupRequest { power: *power, ..of_group(GroupAction::Power) }, target, false)
        }
        GroupCommand::Rebalance(RebalanceTarget { power: None, target }) => {
            (of_group(GroupAction::Rebalance), target, false)
        }
        GroupCommand::Scrub(scrub) if scrub.stop => (of_group(GroupAction::StopScrub), &scrub.target, false),
        GroupCommand::Scrub(scrub) => {
            let wanted = GroupRequest { rate: scrub.rate << 20, ..of_group(GroupAction::Scrub) };
            (wanted, &scrub.target, scrub.wait)
        }
    };
    let config = match Config::read(&target.config) {
        Ok(config) => config,
        Err(error) => {
            eprintln!("cellar group: {error}");
            return CONFIG_EXIT.into();
        }
    };
    let answer = match wanted.action {
        GroupAction::Add => add(&target.config, &config, &wanted),
        _ => request(&config.socket, &wanted).map_err(|error| error.to_string()),
    };
    let answer = answer.and_then(|report| match waits {
        true => wait_for_scrub(&config.socket, report).map_err(|error| error.to_string()),
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
    let status = GroupRequest::on_group(GroupAction::Status);
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

fn rebalance_line(rebalance: &Value) -> String {
    let number = |name: &str| rebalance[name].as_u64().unwrap_or(0);
    format!(
        "rebalance   {}, power {}, {} of {} allocation units moved{}{}",
        rebalance["state"].as_str().unwrap_or_default(),
        number("power"),
        number("sofar"),
        number("est_work"),
        match rebalance["est_minutes"].as_u64() {
            Some(minutes) if rebalance["state"] == "RUN" => {
                format!(", {} per minute, {minutes} minutes left", number("est_rate"))
            }
            _ => String::new(),
        },
        rebalance["error_code"].as_str().map(|error| format!(": {error}")).unwrap_or_default()
    )
}

/// Adds a disk to the configuration file, then to the group. A cell that is killed in between adds the disk when it starts.
fn add(file: &Path, config: &Config, request: &GroupRequest) -> Result<Value, String> {
    let is_absolute = Path::new(&request.disk).is_absolute();
    if !is_absolute {
        return Err(format!("{} is not absolute; name the disk by its full path", request.disk));
    }
    let before =
        std::fs::read_to_string(file).map_err(|error| format!("could not read {}: {error}", file.display()))?;
    let is_listed = config.disk_group.disks.iter().any(|disk| disk == Path::new(&request.disk));
    let after = if is_listed { None } else { config_file::with_disk(&before, &request.disk) };
    let written = after.as_ref().map(|after| config_file::replace(file, after));
    match cellar_cell::group::request(&config.socket, request) {
        Ok(report) => {
            if !is_listed && !matches!(written, Some(Ok(()))) {
                let reason = match written {
                    Some(Err(error)) => error.to_string(),
                    _ => "the list of disks could not be extended automatically".into(),
                };
                eprintln!(
                    "cellar group: warning: {} was not changed: {reason}; add \"{}\" to disk_group.disks before the next start",
                    file.display(),
                    request.disk
                );
            }
            Ok(report)
        }
        Err(error) => {
            // A cell that did not answer has perhaps added the disk: then a start without the disk would fail.
            let has_not_joined = !matches!(error, RequestError::NoAnswer { .. });
            if has_not_joined
                && let Some(Ok(())) = written
                && let Err(error) = config_file::replace(file, &before)
            {
                eprintln!("cellar group: warning: could not restore {}: {error}", file.display());
            }
            Err(error.to_string())
        }
    }
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
    lines.push(rebalance_line(&report["rebalance"]));
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
            match of_disk("state").as_str() {
                "NORMAL" => of_disk("mode_status"),
                state => format!("{}, {state}", of_disk("mode_status")),
            },
            of_disk("free_mb"),
            of_disk("total_mb"),
            of_disk("reads"),
            of_disk("writes"),
            disk["read_errs"].as_u64().unwrap_or(0) + disk["write_errs"].as_u64().unwrap_or(0)
        ));
    }
    lines.join("\n") + "\n"
}
