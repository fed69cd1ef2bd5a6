//! `cellar disk`: devices that become cell disks without a file system.

use cellar_storage::Superblock;
use cellar_storage::disk::{DeviceDisk, FileMedium, Medium};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Exit code if another daemon uses the device.
const LOCKED_EXIT: u8 = 3;

/// Prepare block devices, partitions and preallocated files for use as cell disks
#[derive(clap::Args)]
pub struct DiskArguments {
    #[command(subcommand)]
    command: DiskCommand,
}

#[derive(clap::Subcommand)]
enum DiskCommand {
    Format(FormatArguments),
}

/// Format a device as an empty cell disk
///
/// Erases the device. A device that contains data, such as a file system or a cell disk, needs --force. A device that contains
/// only zeros at its start and end needs no formatting: the cell formats such a device at its first start.
///
/// Exit codes: 0 formatted; 1 error; 2 invalid arguments; 3 a cell uses the device.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
struct FormatArguments {
    /// A block device, a partition, or a preallocated regular file
    #[arg(value_name = "DEVICE")]
    device: PathBuf,
    /// Format the device although it is not blank
    #[arg(long)]
    force: bool,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &DiskArguments) -> ExitCode {
    let DiskCommand::Format(arguments) = &arguments.command;
    match format(arguments) {
        Ok(size) => {
            let device = arguments.device.display().to_string();
            match arguments.json {
                true => println!("{:#}", json!({ "device": device, "size_bytes": size })),
                false => println!("formatted {device}: an empty cell disk of {size} bytes"),
            }
            ExitCode::SUCCESS
        }
        Err((code, message)) => {
            eprintln!("cellar disk format: {}: {message}", arguments.device.display());
            code.into()
        }
    }
}

/// Formats the device and returns its size; an error is an exit code and a message.
fn format(arguments: &FormatArguments) -> Result<u64, (u8, String)> {
    let failed = |error: std::io::Error| (1, error.to_string());
    let medium = FileMedium::open(&arguments.device, false).map_err(failed)?;
    if !medium.lock().map_err(failed)? {
        return Err((LOCKED_EXIT, "a cell uses the device; stop the cell first".into()));
    }
    // A damaged header is no reason to refuse: the device is to be formatted.
    let content = DeviceDisk::content(&medium).unwrap_or(Some("a damaged cell disk"));
    if let Some(content) = content.filter(|_| !arguments.force) {
        let group = group_of(&arguments.device).map(|id| format!(" of disk group {id}")).unwrap_or_default();
        return Err((1, format!("contains {content}{group}; add --force if its content may be lost")));
    }
    DeviceDisk::format(&medium).map_err(failed)?;
    Ok(medium.size())
}

/// Returns the disk group that a device belongs to; None if there is none or it cannot be read.
fn group_of(device: &Path) -> Option<String> {
    let disk = DeviceDisk::read_only(device).ok()?;
    Superblock::read(&disk).ok().flatten().map(|superblock| superblock.group_id.to_string())
}
