//! `cellar cellcli`: administration of a cell with the commands of Oracle's CellCLI.
//!
//! `script` splits the input into commands, `lexer` and `parser` turn a command into a statement of `ast`, `session` runs
//! the statement on the types of `objects`, and `output` prints the result. Only `objects` knows what a cell consists of.

mod ast;
mod calibration;
mod completion;
mod connection;
mod error;
mod filter;
mod help;
mod interactive;
mod keyword;
mod lexer;
mod objects;
mod output;
mod parser;
mod recorded;
mod script;
mod session;
mod value;

use crate::CONFIG_EXIT;
use crate::cell_source::socket;
use ast::{Attributes, List, Statement};
use cellar_cell::{cell_metrics as metrics, names};
pub use connection::Connection;
pub use error::Error;
use filter::Filter;
use objects::{MetricHistory, ObjectType, TIME};
use recorded::Recorded;
use session::{Flow, Session};
use std::io::{BufRead, IsTerminal};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use value::Value;

/// Where the configuration files of cells are.
const CONFIG_FOLDER: &str = "/etc/cellar";
/// Names the cell if the option is missing.
const CELL_VARIABLE: &str = "CELLAR_CELL";

/// Administer a running cell with the commands of Oracle's CellCLI
///
/// Runs the commands of -e; without -e, reads commands from standard input, with a prompt on a terminal. HELP lists the
/// commands, and docs/reference/cellcli.md describes them. Run cellar cellcli as the cluster's user or as the user that
/// started the cell.
///
/// Exit codes: 0 all commands succeeded; 1 a command failed; 2 invalid arguments or configuration.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct CellcliArguments {
    /// Configuration file or socket of the cell; by default $CELLAR_CELL, or the only .toml file in /etc/cellar
    #[arg(long, value_name = "PATH")]
    cell: Option<PathBuf>,
    #[command(flatten)]
    commands: Commands,
    /// Refuse commands that change the cell
    #[arg(short = 'm')]
    is_read_only: bool,
    /// Print no prompt, even if standard input is a terminal
    #[arg(short = 'n')]
    is_not_interactive: bool,
    /// Print no banner before the first prompt
    #[arg(short = 'x')]
    has_no_banner: bool,
    /// Print results as JSON; sizes are bytes
    #[arg(long)]
    json: bool,
    /// Time between the two readings that rates are computed from
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = crate::top::interval)]
    interval: u64,
}

/// The commands of option -e. The words after one -e are one command, so that a command needs no quotes.
struct Commands(Vec<String>);

impl clap::FromArgMatches for Commands {
    fn from_arg_matches(matches: &clap::ArgMatches) -> Result<Self, clap::Error> {
        let occurrences = matches.get_occurrences::<String>("execute").into_iter().flatten();
        Ok(Self(occurrences.map(|words| join(words.map(String::as_str))).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &clap::ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl clap::Args for Commands {
    fn augment_args(command: clap::Command) -> clap::Command {
        let execute = clap::Arg::new("execute").short('e').value_name("COMMAND").num_args(1..);
        let help = "Run a command, or several with semicolons between them; may be repeated";
        command.arg(execute.action(clap::ArgAction::Append).help(help))
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

/// Joins the words of a command. A word that the shell took from between quotation marks gets them again: a word with blanks,
/// and a value of a condition with signs, which would end the value. The first word is a verb, or begins a whole command.
fn join<'w>(words: impl Iterator<Item = &'w str>) -> String {
    let mut text = String::new();
    let (mut is_in_condition, mut is_value) = (false, false);
    for word in words {
        let has_marks = word.contains(['"', '\'']);
        let needs_marks = match is_in_condition && is_value {
            true => !has_own_marks(word) && (word.is_empty() || word.contains(char::is_whitespace) || has_signs(word)),
            false => !has_marks && word.contains(char::is_whitespace),
        };
        let mark = ['"', '\''].into_iter().find(|mark| needs_marks && !word.contains(*mark));
        match mark {
            _ if text.is_empty() => text += word,
            Some(mark) => text += &format!(" {mark}{word}{mark}"),
            None => text += &format!(" {word}"),
        }
        is_in_condition |= word.eq_ignore_ascii_case("WHERE");
        is_value = word.eq_ignore_ascii_case("LIKE") || word.ends_with(['=', '<', '>']);
    }
    text
}

fn has_own_marks(word: &str) -> bool {
    word.chars().next().is_some_and(|first| lexer::closing_quotes(first).is_some())
}

/// Returns whether a value has signs that belong to it: a parenthesis or a comma at its end may end a condition.
fn has_signs(value: &str) -> bool {
    value.trim_end_matches([')', ',']).contains(['(', ')', ',', '=', '<', '>', '!'])
}

/// A condition about the times of the history of metrics.
pub struct HistoryCondition {
    filter: Option<Filter>,
    /// In milliseconds since 1970: at other times, the condition does not hold.
    pub times: RangeInclusive<u64>,
}

impl HistoryCondition {
    pub fn holds_at(&self, seconds: u64) -> bool {
        let mut object = vec![Value::Pending; MetricHistory.attributes().len()];
        object[TIME] = Value::of_seconds(seconds);
        self.filter.as_ref().is_none_or(|filter| filter.holds(&object) == Some(true))
    }
}

/// Parses the condition of LIST METRICHISTORY, which may be about collectionTime only. An empty text is no condition.
pub fn history_condition(text: &str) -> Result<HistoryCondition, Error> {
    let command = match text {
        "" => "LIST METRICHISTORY".to_owned(),
        text => format!("LIST METRICHISTORY WHERE {text}"),
    };
    let condition = match parser::parse(&command)? {
        Statement::List(List { filter, order, limit: None, attributes: Attributes::Default, .. })
            if order.is_empty() =>
        {
            filter
        }
        _ => return Err(Error::unsupported("only a condition may follow WHERE")),
    };
    let filter = condition.map(|condition| Filter::new(&condition, &MetricHistory)).transpose()?;
    if filter.as_ref().is_some_and(|filter| !filter.is_only_about(TIME)) {
        return Err(Error::unsupported(
            "a report has conditions about collectionTime only; LIST METRICHISTORY of cellcli has others",
        ));
    }
    let times = filter.as_ref().map_or(Ok(0..=u64::MAX), |filter| filter.times(&[Recorded::At(TIME)]))?;
    Ok(HistoryCondition { filter, times })
}

pub fn run(arguments: &CellcliArguments) -> ExitCode {
    let found = arguments.cell.clone().map_or_else(default_cell, Ok).and_then(|path| Ok((socket(&path)?, path)));
    let (socket, path) = match found {
        Ok(found) => found,
        Err(error) => {
            eprintln!("cellar cellcli: {error}");
            return CONFIG_EXIT.into();
        }
    };
    let config = Some(path).filter(|path| *path != socket);
    let connection = Connection { socket, config, interval: Duration::from_millis(arguments.interval) };
    let mut session = Session::new(connection, arguments.json, arguments.is_read_only);
    let commands = &arguments.commands.0;
    let is_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    if !commands.is_empty() {
        let _: Flow = commands.iter().try_for_each(|text| session.run_all(&script::commands(text)));
    } else if is_terminal && !arguments.is_not_interactive {
        if !arguments.has_no_banner {
            println!("CellCLI of cellar {}; HELP lists the commands\n", env!("CARGO_PKG_VERSION"));
        }
        if let Err(error) = interactive::run(&mut session) {
            session.fail(&format!("cellar cellcli: {error}"));
        }
    } else {
        let _: Flow = read_commands(&mut session);
    }
    if session.has_failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Runs the commands of standard input, each when its line has arrived.
fn read_commands(session: &mut Session) -> Flow {
    let mut splitter = script::Splitter::default();
    for line in std::io::stdin().lock().lines() {
        match line {
            Ok(line) => session.run_all(&splitter.line(&line))?,
            Err(error) => {
                session.fail(&format!("could not read standard input: {error}"));
                break;
            }
        }
    }
    session.run_all(&splitter.end())
}

/// Returns the path of the cell to use without the option.
pub fn default_cell() -> Result<PathBuf, String> {
    if let Some(path) = std::env::var_os(CELL_VARIABLE).filter(|path| !path.is_empty()) {
        return Ok(path.into());
    }
    only_configuration(Path::new(CONFIG_FOLDER))
}

fn only_configuration(folder: &Path) -> Result<PathBuf, String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> = entries.filter(|path| path.extension().is_some_and(|name| name == "toml")).collect();
    match files.len() {
        1 => Ok(files.remove(0)),
        count => {
            let folder = folder.display();
            let found =
                if count == 0 { "no configuration file".to_owned() } else { format!("{count} configuration files") };
            Err(format!("{folder} has {found}; name the cell with --cell, or in {CELL_VARIABLE}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_a_command_keep_their_quotes() {
        let join = |words: &[&str]| join(words.iter().copied());
        assert_eq!(join(&["list cell; list celldisk"]), "list cell; list celldisk");
        assert_eq!(join(&["list", "celldisk", "where", "name", "=", "a b"]), "list celldisk where name = \"a b\"");
        assert_eq!(join(&["x", "like", "'.* c'"]), "x like '.* c'");
        for (condition, expected) in [
            (&["name", "LIKE", "CD_(00|01).*"][..], "name LIKE \"CD_(00|01).*\""),
            (&["name", "!=", "a,b", "and", "(y=1)"], "name != \"a,b\" and (y=1)"),
            (&["(name", "=", "a)", "or", "name=", "b c"], "(name = a) or name= \"b c\""),
            (&["name", "=", "it's all"], "name = \"it's all\""),
            (&["name", "=", "a \"b\""], "name = 'a \"b\"'"),
            (&["name='a b'", "or", "name", "=", ""], "name='a b' or name = \"\""),
        ] {
            let words: Vec<&str> = ["list", "celldisk", "where"].into_iter().chain(condition.iter().copied()).collect();
            assert_eq!(join(&words), format!("list celldisk where {expected}"));
        }
        assert_eq!(join(&["alter", "x", "y", "=", "((a=b,", "c=d))"]), "alter x y = ((a=b, c=d))");
        assert_eq!(join(&["list cell where a = 1", "detail"]), "list cell where a = 1 detail");
    }

    #[test]
    fn the_only_configuration_file_is_the_default() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str| std::fs::write(folder.path().join(name), "").unwrap();
        write("notes.txt");
        assert!(only_configuration(folder.path()).unwrap_err().contains("no configuration file; name the cell"));
        write("a.toml");
        assert_eq!(only_configuration(folder.path()).unwrap(), folder.path().join("a.toml"));
        write("b.toml");
        assert!(only_configuration(folder.path()).unwrap_err().contains("2 configuration files"));
    }
}
