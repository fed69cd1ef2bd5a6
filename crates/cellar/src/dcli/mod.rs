//! `cellar dcli`: runs a command on several cells over ssh, as Oracle's dcli.

mod keys;
mod remote;
mod report;

use crate::CONFIG_EXIT;
use regex_lite::Regex;
use remote::{NotStarted, Remote, quoted};
use report::{Outcome, python_list, report};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Cells that work at the same time, unless --batchsize.
const BATCH_DEFAULT: u16 = 64;

/// Run a command on several cells over ssh, and print its output with the names of the cells
///
/// The words after the options are the command, which the shell of each cell runs. ssh must not ask for a password.
///
/// Exit codes: 0 done on all cells; 1 a cell was not reached, or the command failed there; 2 nothing was run.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct DcliArguments {
    /// The cells, with commas between them
    #[arg(short = 'c', value_name = "CELLS", value_delimiter = ',')]
    cells: Vec<String>,
    /// A file with a cell on each line
    #[arg(short = 'g', value_name = "FILE")]
    group_file: Option<PathBuf>,
    /// The user on the cells
    #[arg(short = 'l', value_name = "USER")]
    user: Option<String>,
    /// List the cells where the command succeeded, in place of their output
    #[arg(short = 'n')]
    abbreviates: bool,
    /// Add your public key to the authorized keys of the user on the cells first, one cell after the other; ssh may ask for passwords
    #[arg(short = 'k')]
    adds_key: bool,
    /// Remove your public key from the authorized keys of the user on the cells; nothing else is done
    #[arg(
        long,
        conflicts_with = "adds_key",
        conflicts_with = "files",
        conflicts_with = "script",
        conflicts_with = "command"
    )]
    unkey: bool,
    /// Remove output lines whose start matches the regular expression, and list the cells that printed such lines
    #[arg(short = 'r', value_name = "REGEXP", value_parser = line_pattern)]
    removed: Option<LinePattern>,
    /// List the cells first
    #[arg(short = 't')]
    lists_cells: bool,
    /// Copy a file or folder to the cells before the command runs; may be repeated
    #[arg(short = 'f', value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Target of -f and -x on the cells: a file, or a folder that exists or ends with a slash; the home folder by default
    #[arg(short = 'd', value_name = "DESTINATION", default_value = "", hide_default_value = true)]
    destination: String,
    /// Copy a script to the cells and run it, with the words after the options as its arguments; CellCLI runs files named *.scl
    #[arg(short = 'x', value_name = "SCRIPT")]
    script: Option<PathBuf>,
    /// Options for ssh and scp, with blanks between them
    #[arg(
        short = 's',
        value_name = "OPTIONS",
        allow_hyphen_values = true,
        default_value = "",
        hide_default_value = true
    )]
    ssh_options: String,
    /// Run on one cell after the other
    #[arg(long)]
    serial: bool,
    /// Maximum number of cells that work at the same time
    #[arg(long, value_name = "COUNT", default_value_t = BATCH_DEFAULT, value_parser = clap::value_parser!(u16).range(1..))]
    batchsize: u16,
    /// Hide what the command prints to standard error
    #[arg(long)]
    hidestderr: bool,
    /// The program to use as ssh
    #[arg(long, value_name = "PROGRAM", default_value = "ssh")]
    ssh: PathBuf,
    /// The program to use as scp
    #[arg(long, value_name = "PROGRAM", default_value = "scp")]
    scp: PathBuf,
    /// The command, after -- if it starts with a hyphen
    #[arg(trailing_var_arg = true)]
    command: Vec<String>,
}

#[derive(Debug, Clone)]
pub struct LinePattern {
    text: String,
    regex: Regex,
}

fn line_pattern(text: &str) -> Result<LinePattern, String> {
    let regex = Regex::new(&format!("^(?:{text})")).map_err(|error| error.to_string())?;
    Ok(LinePattern { text: text.to_owned(), regex })
}

pub fn run(arguments: &DcliArguments) -> ExitCode {
    match run_on_cells(arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("cellar dcli: {error}");
            CONFIG_EXIT.into()
        }
    }
}

/// Returns whether everything succeeded on all cells.
fn run_on_cells(arguments: &DcliArguments) -> Result<bool, String> {
    let mut cells = arguments.cells.clone();
    if let Some(path) = &arguments.group_file {
        let text = std::fs::read_to_string(path);
        cells.extend(group(&text.map_err(|error| format!("could not read {}: {error}", path.display()))?));
    }
    let cells = distinct(cells)?;
    if arguments.lists_cells {
        print(&format!("Target cells: {}\n", python_list(&cells)))?;
    }
    if arguments.unkey {
        let (remote, removal) = (remote(arguments), keys::removal()?);
        return show(arguments, &cells, in_parallel(&cells, batch(arguments), |cell| remote.run(cell, &removal)));
    }
    let command = command(arguments)?;
    let copies = !arguments.files.is_empty() || arguments.script.is_some();
    let has_work = command.is_some() || copies;
    if !has_work && !arguments.adds_key {
        return match arguments.lists_cells {
            true => Ok(true),
            false => Err("there is no command; write it after the options, or use -f, -k, -x or -t".to_owned()),
        };
    }
    let mut remote = remote(arguments);
    if arguments.adds_key {
        let key_command = keys::addition()?;
        remote.may_ask = true;
        let added = show(arguments, &cells, in_parallel(&cells, 1, |cell| remote.run(cell, &key_command)))?;
        if !added || !has_work {
            return Ok(added);
        }
        remote.may_ask = false;
    }
    let work = |cell: &str| -> Result<Outcome, NotStarted> {
        let files: Vec<&Path> = arguments.files.iter().chain(&arguments.script).map(PathBuf::as_path).collect();
        let copied = match files[..] {
            [] => None,
            _ => Some(remote.copy(cell, &files, &arguments.destination)?),
        };
        match (copied, &command) {
            (Some(copied), _) if !copied.succeeded() => Ok(copied),
            (_, Some(command)) => remote.run(cell, command),
            (copied, None) => Ok(copied.unwrap_or_default()),
        }
    };
    show(arguments, &cells, in_parallel(&cells, batch(arguments), work))
}

fn remote(arguments: &DcliArguments) -> Remote<'_> {
    Remote {
        ssh: &arguments.ssh,
        scp: &arguments.scp,
        options: arguments.ssh_options.split_whitespace().collect(),
        user: arguments.user.as_deref(),
        hides_errors: arguments.hidestderr,
        may_ask: false,
    }
}

/// Returns how many cells work at the same time.
fn batch(arguments: &DcliArguments) -> usize {
    if arguments.serial { 1 } else { usize::from(arguments.batchsize) }
}

/// Prints what the cells have done. Returns whether everything succeeded on all of them.
fn show(
    arguments: &DcliArguments,
    cells: &[String],
    results: Vec<Result<Outcome, NotStarted>>,
) -> Result<bool, String> {
    if let Some(Err(error)) = results.first().filter(|_| results.iter().all(Result::is_err)) {
        return Err(error.to_string());
    }
    let failed = |error: NotStarted| Outcome { failure: Some(error.to_string()), output: String::new() };
    let outcomes: Vec<Outcome> = results.into_iter().map(|result| result.unwrap_or_else(failed)).collect();
    let removed = arguments.removed.as_ref().map(|pattern| (pattern.text.as_str(), &pattern.regex));
    print(&report(cells, &outcomes, arguments.abbreviates, removed))?;
    Ok(outcomes.iter().all(Outcome::succeeded))
}

/// Writes to standard output. A reader that wants no more, such as head, is no error.
fn print(text: &str) -> Result<(), String> {
    let written = io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush());
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(format!("could not write the output: {error}")),
        _ => Ok(()),
    }
}

/// Returns what the cells run.
fn command(arguments: &DcliArguments) -> Result<Option<String>, String> {
    let words = arguments.command.join(" ");
    let Some(script) = &arguments.script else {
        let command = without_typographic_quotes(words.trim());
        return Ok(Some(command.to_owned()).filter(|command| !command.is_empty()));
    };
    let name = script.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| format!("-x {} is not a file", script.display()))?;
    let is_cellcli = name.ends_with(".scl");
    if is_cellcli && !words.is_empty() {
        return Err(format!("a script of CellCLI takes no arguments, but {words} follows"));
    }
    let (path, may_be_folder) = match arguments.destination.as_str() {
        "" => (name.to_owned(), false),
        folder if folder.ends_with('/') => (format!("{folder}{name}"), false),
        destination => (destination.to_owned(), true),
    };
    let path = if path.contains('/') { path } else { format!("./{path}") };
    let mut command = format!("p={}; ", quoted(&path));
    if may_be_folder {
        command += &format!("[ -d \"$p\" ] && p=$p/{}; ", quoted(name));
    }
    command += &match is_cellcli {
        true => "cellar cellcli -e \"@'$p'\"".to_owned(),
        false => format!("chmod u+x \"$p\" && \"$p\" {words}"),
    };
    Ok(Some(command.trim_end().to_owned()))
}

/// Removes typographic quotation marks around a whole command: a shell does not remove them.
fn without_typographic_quotes(command: &str) -> &str {
    let inner = command.strip_prefix(['\u{2018}', '\u{201c}']);
    inner.and_then(|inner| inner.strip_suffix(['\u{2019}', '\u{201d}'])).unwrap_or(command)
}

/// Returns the cells of a group file: one on each line, with comments after #.
fn group(text: &str) -> Vec<String> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    lines.filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

/// Returns each cell once. A name that ssh would take for an option is an error.
fn distinct(cells: Vec<String>) -> Result<Vec<String>, String> {
    let mut distinct: Vec<String> = Vec::new();
    for cell in cells.iter().map(|cell| cell.trim()).filter(|cell| !cell.is_empty()) {
        if cell.starts_with('-') || cell.contains(char::is_whitespace) {
            return Err(format!("\"{cell}\" is not the name of a cell"));
        }
        if !distinct.iter().any(|known| known == cell) {
            distinct.push(cell.to_owned());
        }
    }
    match distinct.is_empty() {
        true => Err("there are no cells; name them with -c or -g".to_owned()),
        false => Ok(distinct),
    }
}

/// Works on all cells, on at most `batch` of them at a time, and returns the results in the order of the cells.
fn in_parallel<T: Send>(cells: &[String], batch: usize, work: impl Fn(&str) -> T + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<Option<T>>> = Mutex::new(cells.iter().map(|_| None).collect());
    std::thread::scope(|scope| {
        for _ in 0..batch.min(cells.len()) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(cell) = cells.get(at) else { return };
                    let result = work(cell);
                    results.lock().unwrap_or_else(std::sync::PoisonError::into_inner)[at] = Some(result);
                }
            });
        }
    });
    let results = results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    results.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_file_has_a_cell_on_each_line() {
        assert_eq!(group("# cells\ncell1\n\n  cell2 # new\r\n"), ["cell1", "cell2"]);
        let cells = |cells: &[&str]| distinct(cells.iter().map(|cell| (*cell).to_owned()).collect());
        assert_eq!(cells(&["b", " a", "", "b"]).unwrap(), ["b", "a"]);
        assert!(cells(&["-oProxyCommand=x"]).unwrap_err().contains("not the name of a cell"));
        assert!(cells(&[]).unwrap_err().contains("name them with -c or -g"));
    }

    #[test]
    fn results_are_in_the_order_of_the_cells() {
        let cells: Vec<String> = (0..20).map(|number| number.to_string()).collect();
        for batch in [1, 3, 64] {
            assert_eq!(in_parallel(&cells, batch, str::to_owned), cells);
        }
    }

    #[test]
    fn typographic_quotes_around_a_command_are_removed() {
        let command = "\u{2018}cellcli -e alter iormplan objective = auto\u{2019}";
        assert_eq!(without_typographic_quotes(command), "cellcli -e alter iormplan objective = auto");
        assert_eq!(without_typographic_quotes("echo \u{2019}"), "echo \u{2019}");
    }
}
