//! `cellar group`: the disk group of a running cell.

mod config_file;

use crate::CONFIG_EXIT;
use cellar_cell::cell_request::RequestError;
use cellar_cell::config::Config;
use cellar_cell::group::{parse_file_redundancy, request};
use cellar_format::wire::{GroupAction, GroupRequest};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// The scrub found damage that it could not repair.
const DAMAGE_EXIT: u8 = 3;
/// The interval at which `scrub --wait` asks for the progress, and the number of intervals between two lines about it.
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
    Add(AddTarget),
    /// Drop a disk: a rebalance moves its data to the other disks, then the disk leaves the group
    Drop(DropTarget),
    /// Replace a disk: add the new disk and drop the former one, by force if the former disk is offline
    Replace(ReplaceTarget),
    /// Set attributes of the group
    Set(SetTarget),
    /// Cancel the drop of a disk that has not left the group yet
    Undrop(DiskTarget),
    /// Begin a rebalance, or set the power of rebalances
    Rebalance(RebalanceTarget),
    /// Read all copies of all data in the background, repair damaged copies, and list what cannot be repaired
    Scrub(ScrubTarget),
}

#[derive(clap::Args)]
struct ScrubTarget {
    /// Maximum MiB per second to read, from all disks together; 0 for no limit
    #[arg(long, value_name = "MIB", default_value_t = 50, value_parser = clap::value_parser!(u64).range(0..1 << 30))]
    rate: u64,
    /// Wait until the scrub has ended, and show its progress
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
    /// Path or number of the disk
    disk: PathBuf,
    #[command(flatten)]
    target: Target,
}

#[derive(clap::Args)]
struct AddTarget {
    /// Path of the new disk
    disk: PathBuf,
    /// With copies: the failure group of the disk; by default a new failure group
    #[arg(long, value_name = "NAME")]
    failure_group: Option<String>,
    #[command(flatten)]
    target: Target,
}

#[derive(clap::Args)]
struct DropTarget {
    /// Path or number of the disk
    disk: PathBuf,
    /// With copies: do not use the disk any more, and rebuild its copies from the other disks
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    target: Target,
}

#[derive(clap::Args)]
struct ReplaceTarget {
    /// Path of the former disk, as in the configuration file
    disk: PathBuf,
    /// Path of the new disk, an empty directory or a blank device; may be the same if the former disk is offline
    new: PathBuf,
    #[command(flatten)]
    target: Target,
}

#[derive(clap::Args)]
#[command(group = clap::ArgGroup::new("attribute").required(true))]
struct SetTarget {
    /// With copies: how long a disk may be offline before it is dropped by force, such as 90min, 12h or 2d; 0 for no limit
    #[arg(long, value_name = "TIME", value_parser = parse_time, group = "attribute")]
    disk_repair_time: Option<u64>,
    /// With copies: the redundancy of new files of a type, such as wal=high; TYPE=default sets the redundancy of the group. The
    /// next rebalance converts existing files. Types: relation, map, wal, temporary, control, other
    #[arg(long, value_name = "TYPE=REDUNDANCY", value_parser = parse_redundancy, group = "attribute")]
    redundancy: Option<String>,
    #[command(flatten)]
    target: Target,
}

/// Returns the seconds of a time with the unit s, min, h or d. A number alone is in hours, as in Oracle.
pub fn parse_time(text: &str) -> Result<u64, String> {
    let digits = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = match unit.trim().to_ascii_lowercase().as_str() {
        "s" => Some(1),
        "m" | "min" => Some(60),
        "h" | "" => Some(3600),
        "d" => Some(86_400),
        _ => None,
    };
    let seconds = number.parse::<u64>().ok().zip(unit).and_then(|(number, unit)| number.checked_mul(unit));
    seconds.ok_or_else(|| "write a number and s, min, h or d, such as 12h".into())
}

fn parse_redundancy(text: &str) -> Result<String, String> {
    parse_file_redundancy(text).map(|_| text.to_owned())
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
        GroupCommand::Add(add) => {
            let action = if add.failure_group.is_some() { GroupAction::AddTo } else { GroupAction::Add };
            let argument = add.failure_group.clone().unwrap_or_default();
            let request = GroupRequest { argument, ..GroupRequest::on_disk(action, add.disk.display().to_string()) };
            (request, &add.target, false)
        }
        GroupCommand::Drop(drop) => {
            let action = if drop.force { GroupAction::DropForce } else { GroupAction::Drop };
            (GroupRequest::on_disk(action, drop.disk.display().to_string()), &drop.target, false)
        }
        GroupCommand::Replace(replace) => {
            let request = GroupRequest::on_disk(GroupAction::Replace, replace.disk.display().to_string());
            (GroupRequest { argument: replace.new.display().to_string(), ..request }, &replace.target, false)
        }
        GroupCommand::Set(set) => {
            let request = match &set.redundancy {
                Some(argument) => GroupRequest { argument: argument.clone(), ..of_group(GroupAction::FileRedundancy) },
                None => {
                    let seconds = set.disk_repair_time.unwrap_or_default();
                    GroupRequest { seconds, ..of_group(GroupAction::RepairTime) }
                }
            };
            (request, &set.target, false)
        }
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
        GroupAction::Add | GroupAction::AddTo | GroupAction::Replace => {
            add(&target.config, &config, &wanted).map(|(report, warning)| {
                warning.iter().for_each(|warning| eprintln!("cellar group: warning: {warning}"));
                report
            })
        }
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
                let unit = if minutes == 1 { "minute" } else { "minutes" };
                format!(", {} per minute, {minutes} {unit} left", number("est_rate"))
            }
            _ => String::new(),
        },
        rebalance["error_code"].as_str().map(|error| format!(": {error}")).unwrap_or_default()
    )
}

/// Adds a disk to the configuration file, then to the group. A cell that is killed in between does not use the disk when it
/// starts, and says so.
///
/// Returns the state of the group, and a warning if the operator must extend the list of disks.
pub fn add(file: &Path, config: &Config, request: &GroupRequest) -> Result<(Value, Option<String>), String> {
    let is_replacement = request.action == GroupAction::Replace;
    let new = if is_replacement { &request.argument } else { &request.disk };
    let is_absolute = Path::new(new).is_absolute();
    if !is_absolute {
        return Err(format!("{new} is not absolute; name the disk by its full path"));
    }
    let failure_group = (request.action == GroupAction::AddTo).then_some(request.argument.as_str());
    let before =
        std::fs::read_to_string(file).map_err(|error| format!("could not read {}: {error}", file.display()))?;
    let is_listed = config.disk_group.disks.iter().any(|disk| disk == Path::new(new));
    let after = if is_listed { None } else { config_file::with_disk(&before, new, failure_group) };
    let written = after.as_ref().map(|after| config_file::replace(file, after));
    match cellar_cell::group::request(&config.socket, request) {
        Ok(report) => {
            let reason = match written {
                _ if is_listed => return Ok((report, None)),
                Some(Ok(())) => return Ok((report, None)),
                Some(Err(error)) => error.to_string(),
                None => "the list of disks could not be extended automatically".into(),
            };
            let file = file.display();
            let warning =
                format!("{file} was not changed: {reason}; add \"{new}\" to disk_group.disks before the next start");
            Ok((report, Some(warning)))
        }
        Err(error) => {
            // A disk that is perhaps a member stays in the configuration: a start without the disk could fail.
            let is_member = |report: Value| {
                report["disks"].as_array().into_iter().flatten().any(|disk| disk["path"] == new.as_str())
            };
            let status = GroupRequest::on_group(GroupAction::Status);
            let has_not_joined = match error {
                RequestError::Unreachable { .. } => true,
                RequestError::NoAnswer { .. } => false,
                RequestError::Refused { .. } => {
                    cellar_cell::group::request(&config.socket, &status).is_ok_and(|report| !is_member(report))
                }
            };
            let restored = match written {
                Some(Ok(())) if has_not_joined => config_file::replace(file, &before),
                _ => Ok(()),
            };
            Err(match restored {
                Ok(()) => error.to_string(),
                Err(cause) => format!(
                    "{error}; {} still names the disk, because it could not be restored: {cause}",
                    file.display()
                ),
            })
        }
    }
}

/// Returns a time as hours and minutes, or as seconds below a minute.
fn time(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        _ => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
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
        let repair_time = report["disk_repair_time"].as_u64().unwrap_or(0);
        let limit =
            if repair_time == 0 { "never dropped".into() } else { format!("dropped after {}", time(repair_time)) };
        lines.push(format!("repair      an offline disk is {limit}"));
        let types = report["file_redundancy"].as_array().into_iter().flatten();
        for own in types.filter(|found| found["is_default"] == false) {
            let (file_type, redundancy, usable) =
                (text(&own["file_type"]), text(&own["redundancy"]), text(&own["usable_file_mb"]));
            lines.push(format!("type        {file_type} files: redundancy {redundancy}, {usable} MB usable"));
        }
    }
    for warning in report["warnings"].as_array().into_iter().flatten() {
        lines.push(format!("warning     {}", text(warning)));
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
            "disk {:<7}{}: {}{failure_group}, {} of {} MB free, {} reads, {} writes, {} errors",
            of_disk("disk_number"),
            of_disk("path"),
            match (of_disk("state").as_str(), disk["repair_timer"].as_u64()) {
                ("NORMAL", None) => of_disk("mode_status"),
                ("NORMAL", Some(left)) => format!("{}, dropped in {}", of_disk("mode_status"), time(left)),
                (state, _) => format!("{}, {state}", of_disk("mode_status")),
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
