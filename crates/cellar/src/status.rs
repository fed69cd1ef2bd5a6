//! `cellar cell status`: the status of a running cell, as text or JSON.

use crate::cell_source::Metrics;
use cellar_cell::config::Config;
use cellar_cell::status::{self, CellStatus, disk_models, memory_limit_bytes, memory_used_bytes, query, query_metrics};
use cellar_storage::FlashCacheMode;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::ExitCode;

/// Show the status of a running cell: disks and their free space, page cache, memory, Smart Scans
///
/// Connects to the daemon's socket. Run the command as the cluster's user or as the user that started the cell.
///
/// Exit codes: 0 the cell is running; 1 the cell does not answer; 2 invalid arguments or configuration.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct StatusArguments {
    /// The cell's configuration file
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Print one JSON object; sizes are bytes
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &StatusArguments) -> ExitCode {
    let config = match Config::read(&arguments.config) {
        Ok(config) => config,
        Err(error) => {
            eprintln!("cellar cell status: {error}");
            return crate::CONFIG_EXIT.into();
        }
    };
    let metrics = || query_metrics(&config.socket);
    match query(&config.socket) {
        Ok(status) if arguments.json => {
            let (mut json, metrics) = (status::json(&status), metrics().unwrap_or(Value::Null));
            json["disk_models"] = disk_models(&metrics);
            json["flash_cache"] = flash_cache_json(&metrics);
            json["flash_log"] = flash_log_json(&metrics);
            json["write_back"] = write_back_json(&metrics);
            let (critical, warning) = open_alerts(&metrics);
            json["open_alerts"] = json!({ "critical": critical, "warning": warning });
            println!("{json:#}");
        }
        Ok(status) => print!(
            "{}{}",
            as_text(&status),
            metrics().map_or_else(
                |_| String::new(),
                |metrics| flash(&metrics) + &write_back(&metrics) + &alerts(open_alerts(&metrics))
            )
        ),
        Err(error) => {
            eprintln!("cellar cell status: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// Returns the numbers of open alerts: critical ones, and warnings.
fn open_alerts(metrics: &Value) -> (u64, u64) {
    let count = |severity| Metrics(metrics).labelled("cellar_open_alerts", "severity", severity) as u64;
    (count("critical"), count("warning"))
}

/// Returns the state of the flash cache; null for a cell without one.
fn flash_cache_json(metrics: &Value) -> Value {
    let figure = |name: &str| Metrics(metrics).figure(&format!("cellar_flash_cache_{name}"));
    let (Some(online), Some(size)) = (figure("online"), figure("capacity_bytes")) else { return Value::Null };
    let is_write_back = Metrics(metrics).figure("cellar_write_back_selected") == Some(1);
    let mode = if is_write_back { FlashCacheMode::WriteBack } else { FlashCacheMode::WriteThrough };
    json!({
        "online": online == 1,
        "mode": mode.name(),
        "size_bytes": size,
        "used_bytes": figure("used_bytes"),
        "failed_disks": failed_flash_disks(metrics),
    })
}

/// Returns the state of the flash log; null for a cell without one.
fn flash_log_json(metrics: &Value) -> Value {
    let figure = |name: &str| Metrics(metrics).figure(&format!("cellar_flash_log_{name}"));
    let (Some(online), Some(size)) = (figure("online"), figure("size_bytes")) else { return Value::Null };
    json!({ "online": online == 1, "size_bytes": size, "writes": figure("writes_total"), "flash_first": figure("flash_first_total") })
}

/// Returns the paths of the flash disks on which an operation failed since the start of the cell.
fn failed_flash_disks(metrics: &Value) -> Vec<String> {
    let mut failed: Vec<String> = Metrics(metrics)
        .samples("cellar_flash_disk_errors_total")
        .filter(|sample| sample["value"].as_u64().unwrap_or(0) > 0)
        .filter_map(|sample| Some(sample["labels"]["disk"].as_str()?.to_owned()))
        .collect();
    failed.sort();
    failed.dedup();
    failed
}

/// Returns why the flash cache or the flash log is off. A disk with errors need not be the cause: another one may not have been opened.
fn why_off(metrics: &Value) -> String {
    match failed_flash_disks(metrics).join(", ") {
        none if none.is_empty() => "a flash disk could not be opened; the log of the cell says why".to_owned(),
        failed => {
            format!("a flash disk failed or could not be opened; the log of the cell says why; with errors: {failed}")
        }
    }
}

/// Returns the lines about the flash cache and the flash log.
fn flash(metrics: &Value) -> String {
    let (cache, log) = (flash_cache_json(metrics), flash_log_json(metrics));
    let bytes = |value: &Value| size(value.as_u64().unwrap_or(0));
    let mut text = String::new();
    if !cache.is_null() {
        let state = if cache["online"] == true { String::new() } else { format!("; off: {}", why_off(metrics)) };
        let (used, size) = (bytes(&cache["used_bytes"]), bytes(&cache["size_bytes"]));
        let mode = cache["mode"].as_str().unwrap_or_default();
        text += &format!("flash cache {used} of {size} filled, {mode}{state}\n");
    }
    if !log.is_null() {
        let state = match log["online"] == true {
            true => String::new(),
            false => format!("; off, redo goes to the cell disks: {}", why_off(metrics)),
        };
        let count = |name: &str| log[name].as_u64().unwrap_or(0);
        let (writes, first) = (count("writes"), count("flash_first"));
        text += &format!(
            "flash log   {}: {first} of {writes} redo writes durable in flash first{state}\n",
            bytes(&log["size_bytes"])
        );
    }
    text
}

/// Returns the state of write-back; null for a cell without flash disks that has all its files.
fn write_back_json(metrics: &Value) -> Value {
    let figure = |name: &str| Metrics(metrics).figure(&format!("cellar_write_back_{name}"));
    let (selected, lacking) = (figure("selected"), figure("lacking_files"));
    if selected.or(lacking).is_none() {
        return Value::Null;
    }
    let number = |name: &str| figure(name).unwrap_or(0);
    let mode = if selected == Some(1) { FlashCacheMode::WriteBack } else { FlashCacheMode::WriteThrough };
    json!({
        "flash_cache_mode": mode.name(),
        "online": number("online") == 1,
        "flushing": number("flushing") == 1,
        "dirty_bytes": number("dirty_bytes"),
        "size_bytes": number("size_bytes"),
        "used_bytes": number("used_bytes"),
        "flash_disks": number("flash_disks"),
        "flash_disks_left": number("flash_disks_left"),
        "takes_redo": number("takes_redo") == 1,
        "redo_bytes": number("redo_bytes_total"),
        "redo_requests": number("redo_requests_total"),
        "redo_skips": number("redo_skips_total"),
        "lacking_files": lacking,
    })
}

/// Returns the lines about write-back: nothing in the mode WriteThrough, unless files may lack changes.
fn write_back(metrics: &Value) -> String {
    let state = write_back_json(metrics);
    let lacking = state["lacking_files"].as_u64().map_or_else(String::new, |count| {
        format!("write-back  {count} files are known that may lack synced changes; the log of the cell names them\n")
    });
    if state["flash_cache_mode"] != FlashCacheMode::WriteBack.name() {
        return lacking;
    }
    let number = |name: &str| state[name].as_u64().unwrap_or(0);
    let (dirty, log) = (size(number("dirty_bytes")), size(number("size_bytes")));
    let (disks, left) = (number("flash_disks"), number("flash_disks_left"));
    let note = match (state["online"] == true, state["flushing"] == true) {
        (true, _) => "",
        (false, true) => "; flushed: writes go to the cell disks",
        (false, false) => "; not in use: writes go to the cell disks",
    };
    let redo = match state["takes_redo"] == true {
        true => format!("; {} of redo written", size(number("redo_bytes"))),
        false => String::new(),
    };
    format!("write-back  {dirty} dirty, log of {log} on {left} of {disks} flash disks{note}{redo}\n{lacking}")
}

fn alerts((critical, warning): (u64, u64)) -> String {
    match critical + warning {
        0 => "alerts      none is open\n".to_owned(),
        _ => format!(
            "alerts      open: {critical} critical, {warning} warning; LIST ALERTHISTORY of cellar cellcli shows them\n"
        ),
    }
}

fn as_text(status: &CellStatus) -> String {
    let CellStatus { name, mount, version, pid, .. } = status;
    let mut text = format!("cell {name}, version {version}, process {pid}, up {}\n", duration(status.uptime_seconds));
    text += &format!("mount       {mount}\n");
    for disk in &status.disks {
        let (available, total) = (size(disk.available_bytes), size(disk.total_bytes));
        let reserve = match disk.reserve_free_bytes {
            free if free < disk.reserve_bytes => format!("{} of {} free", size(free), size(disk.reserve_bytes)),
            free => size(free),
        };
        text += &format!("cell disk   {}: {available} of {total} free, reserve {reserve}\n", disk.path);
    }
    let (used, capacity) = (size(status.cache_used_bytes), size(status.cache_capacity_bytes));
    text += &format!("page cache  {used} of {capacity} filled\n");
    text +=
        &format!("memory      {} of {} in use\n", size(memory_used_bytes(status)), size(memory_limit_bytes(status)));
    for memory in &status.memory {
        let (used, limit) = (size(memory.used_bytes), size(memory.limit_bytes));
        text += &format!("            {}: {used} of {limit}\n", memory.kind.replace('_', " "));
    }
    text += &format!("index       {} regions loaded at the start\n", status.storage_index_loaded_regions);
    text += &format!(
        "scans       {} Smart Scans: {} eligible, {} of it saved by the storage index, {} returned\n",
        status.scans,
        size(status.eligible_bytes),
        size(status.saved_by_storage_index_bytes),
        size(status.returned_bytes)
    );
    text
}

fn duration(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min"),
        (0, _, _) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

/// Formats a size in the largest unit that leaves at least two digits.
pub(crate) fn size(bytes: u64) -> String {
    let units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let unit = (0..units.len() - 1).find(|unit| bytes >> (10 * unit) < 10_240).unwrap_or(units.len() - 1);
    format!("{} {}", bytes >> (10 * unit), units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_about_flash_name_a_disk_that_failed() {
        let document = |online: u64, errors: u64| {
            let family =
                |name: &str, value: u64| json!({ "name": name, "samples": [{ "labels": {}, "value": value }] });
            let failed = json!({ "labels": { "disk": "/f1", "operation": "read" }, "value": errors });
            json!({ "metrics": [
                family("cellar_flash_cache_online", online),
                family("cellar_flash_cache_capacity_bytes", 64 << 20),
                family("cellar_flash_cache_used_bytes", 16 << 20),
                family("cellar_flash_log_online", online),
                family("cellar_flash_log_size_bytes", 32 << 20),
                family("cellar_flash_log_writes_total", 9),
                family("cellar_flash_log_flash_first_total", 7),
                { "name": "cellar_flash_disk_errors_total", "samples": [failed] },
            ] })
        };
        let log = "flash log   32 MiB: 7 of 9 redo writes durable in flash first";
        assert_eq!(flash(&document(1, 0)), format!("flash cache 16 MiB of 64 MiB filled, WriteThrough\n{log}\n"));
        let why = "a flash disk failed or could not be opened; the log of the cell says why; with errors: /f1";
        assert_eq!(
            flash(&document(0, 2)),
            format!(
                "flash cache 16 MiB of 64 MiB filled, WriteThrough; off: {why}\n{log}; off, redo goes to the cell disks: {why}\n"
            )
        );
        let why = "a flash disk could not be opened; the log of the cell says why\n";
        let off = flash(&document(0, 0));
        assert_eq!(off.matches(why).count(), 2, "of the flash cache and the flash log: {off}");
        assert_eq!(flash(&json!({ "metrics": [] })), "");
        assert!(flash_cache_json(&json!({})).is_null() && flash_log_json(&json!({})).is_null());
    }

    #[test]
    fn sizes_and_times_are_printed_in_suitable_units() {
        let sizes = [
            (0, "0 bytes"),
            (10_239, "10239 bytes"),
            (10_240, "10 KiB"),
            (4 << 30, "4096 MiB"),
            (u64::MAX, "16777215 TiB"),
        ];
        for (bytes, expected) in sizes {
            assert_eq!(size(bytes), expected);
        }
        let times = [(59, "59 s"), (61, "1 min"), (3_720, "1 h 2 min"), (90_000, "1 d 1 h")];
        for (seconds, expected) in times {
            assert_eq!(duration(seconds), expected);
        }
    }
}
