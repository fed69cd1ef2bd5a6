//! `cellar top`: what a server and its cells do at this moment, in a terminal or in a browser.

mod cells;
mod collector;
mod exposition;
mod grid;
mod history;
mod postgres;
mod reading;
mod serve;
mod terminal;
mod ui;
mod view;

use crate::{CONFIG_EXIT, cell_source};
use cellar_cell::config::parse_listen_address;
use collector::{Collector, Targets};
use history::History;
use std::io::{ErrorKind, IsTerminal, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use ui::App;
use view::View;

/// Rows of each table of --once.
const ONCE_ROWS: usize = 20;
const ONCE_WIDTH: usize = 160;
const INTERVAL_MS_MIN: u64 = 100;

/// Show what a server and its cells do: active sessions, top SQL, sessions, databases, I/O of cells
///
/// The screen shows active sessions by wait class as a moving chart; ? lists the keys. Without --dsn, the environment
/// variables PGHOST, PGPORT, PGUSER, PGDATABASE and PGPASSWORD choose the connection. The server needs no extension. If the
/// database has the extension cellar, statements are counted exactly, and the I/O of cells is shown.
///
/// Exit codes: 0 success; 1 no source could be read, or another error; 2 invalid arguments.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct TopArguments {
    /// Connection string of the server: "host=… dbname=… user=…" or a URI
    #[arg(long, value_name = "DSN")]
    dsn: Option<String>,
    /// Configuration file or socket of a cell, for its disks and memory; repeat the option for several cells
    #[arg(long, value_name = "PATH")]
    cell: Vec<PathBuf>,
    /// Time between two readings: a number of seconds, or with a unit ms, s or min
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: u64,
    /// Print one screen as text after one interval, and exit
    #[arg(long, group = "form")]
    once: bool,
    /// Print one screen as JSON after one interval, and exit
    #[arg(long, group = "form")]
    json: bool,
    /// Print metrics of the server in Prometheus text format after one interval, and exit
    #[arg(long, group = "form")]
    prometheus: bool,
    /// Serve a page with charts, JSON and metrics over HTTP, and print the address. ADDRESS is a port of 127.0.0.1, or an address
    /// with a port
    #[arg(long, value_name = "ADDRESS", group = "form", num_args = 0..=1, default_missing_value = "9188", value_parser = parse_listen_address)]
    serve: Option<SocketAddr>,
    /// File whose first line is the secret part of the address of --serve; by default, each start chooses a new secret
    #[arg(long, value_name = "FILE", requires = "serve")]
    token_file: Option<PathBuf>,
}

/// Parses an interval into milliseconds.
pub fn interval(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = match unit {
        "ms" => 1.0,
        "" | "s" => 1000.0,
        "min" => 60_000.0,
        _ => return Err("write a time like 500ms, 1s or 1min".to_owned()),
    };
    let milliseconds = number.parse::<f64>().map_err(|_| "write a time like 500ms, 1s or 1min".to_owned())? * factor;
    if !(INTERVAL_MS_MIN as f64..=3_600_000.0).contains(&milliseconds) {
        return Err(format!("the interval must be between {INTERVAL_MS_MIN}ms and 60min"));
    }
    Ok(milliseconds as u64)
}

pub fn run(arguments: &TopArguments) -> ExitCode {
    let cells: Result<Vec<PathBuf>, String> = arguments.cell.iter().map(|path| cell_source::socket(path)).collect();
    let cells = match cells {
        Ok(cells) => cells,
        Err(error) => {
            eprintln!("cellar top: {error}");
            return CONFIG_EXIT.into();
        }
    };
    let targets = Targets { dsn: arguments.dsn.clone(), cells };
    let result = match (arguments.serve, arguments.once || arguments.json || arguments.prometheus) {
        (Some(address), _) => serve::run(targets, address, arguments.token_file.as_deref(), arguments.interval),
        (None, true) => once(targets, arguments),
        (None, false) => screen(targets, arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cellar top: {error}");
            ExitCode::FAILURE
        }
    }
}

fn screen(targets: Targets, arguments: &TopArguments) -> Result<(), String> {
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return Err("standard input and output are not a terminal\nHINT:  Use --once, --json or --serve.".to_owned());
    }
    let has_colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let app = App::new(arguments.interval, has_colours);
    terminal::run(targets, app).map_err(|error| format!("could not use the terminal: {error}"))
}

/// Prints one screen, computed from two readings.
fn once(targets: Targets, arguments: &TopArguments) -> Result<(), String> {
    let mut collector = Collector::new(targets);
    let mut history = History::default();
    let reading = collector.read();
    if reading.server.is_none() && reading.cells.is_empty() && !arguments.prometheus {
        return Err(reading.missing.join("\n"));
    }
    history.push(reading);
    std::thread::sleep(Duration::from_millis(arguments.interval));
    history.push(collector.read_all());
    let Some(view) = View::of(&history) else { return Err("nothing was read".to_owned()) };
    let text = match (arguments.json, arguments.prometheus) {
        (true, _) => serde_json::to_string_pretty(&view).map_err(|error| error.to_string())? + "\n",
        (_, true) => exposition::exposition(&view),
        _ => text(&view),
    };
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        // A reader that closes the pipe early, such as `head`, is no error.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(format!("could not write to standard output: {error}"))
        }
        _ => Ok(()),
    }
}

fn text(view: &View) -> String {
    let mut out = String::new();
    if let Some(server) = &view.server {
        let cpus = server.cpus.map_or_else(String::new, |cpus| format!(", {cpus} CPUs"));
        out += &format!("{} {}, PostgreSQL {}{cpus}\n", server.address, server.database, server.version);
    }
    for missing in &view.missing {
        out += &format!("missing: {}\n", grid::printable(missing));
    }
    out += "\nActive sessions by wait class\n";
    for row in &view.active_sessions {
        out += &format!("{:<16} {:>6.1}\n", row.wait_class, row.average);
    }
    let mut grids = vec![grid::statements(view), grid::sessions(view, false), grid::databases(view)];
    if !view.cell_io.is_empty() {
        grids.push(grid::cell_io(view));
    }
    for grid in &grids {
        out += &format!("\n{}", grid.text(ONCE_ROWS, ONCE_WIDTH));
    }
    if !view.cells.is_empty() {
        out += &format!("\n{}\n\n{}", grid::cell_lines(view).join("\n"), grid::disks(view).text(ONCE_ROWS, ONCE_WIDTH));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_have_units() {
        for (text, expected) in [("1", 1000), ("1s", 1000), ("0.5s", 500), ("250ms", 250), ("2min", 120_000)] {
            assert_eq!(interval(text), Ok(expected), "{text}");
        }
        for text in ["", "s", "1h", "1 s", "10ms", "-1s", "2e3s", "100min"] {
            assert!(interval(text).is_err(), "{text}");
        }
    }
}
