//! `cellar iorm`: reports about I/O resource management.

mod report;

use crate::CONFIG_EXIT;
use crate::cell_source::socket;
use crate::cellcli::{Connection, default_cell, history_condition};
use cellar_awr::document::Timestamp;
use report::Report;
use serde_json::Value;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Report the I/O of databases and consumer groups
///
/// Connects to the daemon's socket. Run the command as the cluster's user or as the user that started the cell.
///
/// Exit codes: 0 done; 1 the cell does not answer, or has no history of the times; 2 invalid arguments or configuration.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct IormArguments {
    #[command(subcommand)]
    command: IormCommand,
}

#[derive(clap::Subcommand)]
enum IormCommand {
    /// Show utilization, flash cache, throughput, and number and wait of small and large I/O, for each minute of the history
    Report(ReportArguments),
}

#[derive(clap::Args)]
struct ReportArguments {
    /// Condition about collectionTime, as of LIST METRICHISTORY: "collectionTime > '2026-08-06T11:30:00'"; by default all minutes
    #[arg(long = "where", value_name = "CONDITION", default_value = "")]
    condition: String,
    /// Configuration file or socket of the cell; by default $CELLAR_CELL, or the only .toml file in /etc/cellar
    #[arg(long, value_name = "PATH")]
    cell: Option<PathBuf>,
    /// Print a JSON array with an object for each minute
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &IormArguments) -> ExitCode {
    let IormCommand::Report(arguments) = &arguments.command;
    let fail = |message: String, code: u8| {
        eprintln!("cellar iorm report: {message}");
        ExitCode::from(code)
    };
    let condition = match history_condition(without_where(&arguments.condition)) {
        Ok(condition) => condition,
        Err(error) => return fail(error.to_string(), CONFIG_EXIT),
    };
    let connection = match arguments.cell.clone().map_or_else(default_cell, Ok).and_then(|path| socket(&path)) {
        Ok(socket) => Connection { socket, config: None, interval: Duration::ZERO },
        Err(error) => return fail(error, CONFIG_EXIT),
    };
    let mut reports = Vec::new();
    let found = connection.readings(&condition.times, |before, after| {
        let is_selected = condition.holds_at(after.time_ms() / 1000);
        reports.extend(is_selected.then(|| Report::between(before, after)).flatten());
    });
    match found {
        Err(error) => fail(error.to_string(), 1),
        Ok(extent) if reports.is_empty() => fail(no_reports(extent.first_ms.zip(extent.last_ms)), 1),
        Ok(_) if arguments.json => print(&format!("{:#}\n", reports.iter().map(Report::json).collect::<Value>())),
        Ok(_) => print(&reports.iter().map(Report::text).collect::<Vec<_>>().join("\n")),
    }
}

/// The condition may begin with WHERE, as in commands for Oracle's script, and may have typographic quotes around it.
fn without_where(condition: &str) -> &str {
    let condition = condition.trim().trim_matches(['\u{201c}', '\u{201d}']).trim();
    match condition.get(..6) {
        Some(word) if word.eq_ignore_ascii_case("where ") => condition[6..].trim(),
        _ => condition,
    }
}

fn no_reports(extent: Option<(u64, u64)>) -> String {
    let time = |ms: u64| Timestamp::from_micros(ms as i64 * 1000).iso();
    match extent {
        Some((first, last)) if first < last => format!(
            "the history has no minute for which the condition holds; it reaches from {} to {}",
            time(first),
            time(last)
        ),
        _ => "the cell has no history yet: repeat the command in two minutes".to_owned(),
    }
}

fn print(text: &str) -> ExitCode {
    use std::io::Write;
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            eprintln!("cellar iorm report: could not write to standard output: {error}");
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_read_as_oracles_script_takes_them() {
        for text in [
            "collectionTime > '2013-08-06T11:30:00-06:00'",
            "where collectionTime > '2013-08-06T11:30:00-06:00'",
            "\u{201c}where collectionTime > \u{2018}2013-08-06T11:30:00-06:00\u{2019}\u{201d}",
        ] {
            let condition = history_condition(without_where(text)).ok().unwrap();
            let at = |text| (Timestamp::parse(text).unwrap().seconds()) as u64;
            assert!(!condition.holds_at(at("2013-08-06T17:30:00")), "{text}");
            assert!(condition.holds_at(at("2013-08-06T17:30:01")), "{text}");
        }
        assert!(history_condition("").ok().unwrap().holds_at(0));
        for (text, expected) in [
            ("collectionTime > yesterday", "\"yesterday\" is not a time; write one like '2026-08-06T11:30:00'"),
            ("collectionTime", "expected an operator"),
            ("name = 'DB_IO_RQ_SM'", "a report has conditions about collectionTime only"),
            ("colour = red", "\"colour\" is not an attribute of METRICHISTORY"),
        ] {
            let Err(error) = history_condition(text) else { panic!("{text} is accepted") };
            assert!(error.to_string().contains(expected), "{text}: {error}");
        }
        assert!(no_reports(Some((0, 60_000))).ends_with("from 1970-01-01T00:00:00+00:00 to 1970-01-01T00:01:00+00:00"));
    }
}
