//! The prompt: reads commands from a terminal, with history and completion.

use super::completion::complete;
use super::script::Splitter;
use super::session::{Flow, Session};
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::Validator;
use rustyline::{CompletionType, Config, Context, Editor, Helper};
use std::path::PathBuf;

const PROMPT: &str = "CellCLI> ";
const CONTINUATION_PROMPT: &str = "> ";
/// In the home folder of the user.
const HISTORY_FILE: &str = ".cellcli_history";
const HISTORY_MAX: usize = 1000;

struct Words;

impl Helper for Words {}
impl Highlighter for Words {}
impl Validator for Words {}

impl Hinter for Words {
    type Hint = String;
}

impl Completer for Words {
    type Candidate = String;

    fn complete(&self, line: &str, position: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<String>)> {
        Ok(complete(&line[..position]))
    }
}

/// Reads and runs commands until EXIT, QUIT or the end of the input.
pub fn run(session: &mut Session) -> Result<(), String> {
    let error = |error: ReadlineError| format!("could not use the terminal: {error}");
    let config = Config::builder().completion_type(CompletionType::List).max_history_size(HISTORY_MAX);
    let config = config.map_err(error)?.auto_add_history(true).build();
    let mut editor: Editor<Words, FileHistory> = Editor::with_config(config).map_err(error)?;
    editor.set_helper(Some(Words));
    let history = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(HISTORY_FILE));
    if let Some(path) = &history {
        // The first session has no file yet.
        let _ = editor.load_history(path);
    }
    let mut splitter = Splitter::default();
    loop {
        let prompt = if splitter.is_continued() { CONTINUATION_PROMPT } else { PROMPT };
        match editor.readline(prompt) {
            Ok(line) => {
                if session.run_all(&splitter.line(&line)) == Flow::Break(()) {
                    break;
                }
            }
            // Ctrl-C discards the command.
            Err(ReadlineError::Interrupted) => splitter = Splitter::default(),
            Err(ReadlineError::Eof) => break,
            Err(other) => return Err(error(other)),
        }
    }
    if let Some(path) = &history
        && let Err(error) = editor.append_history(path)
    {
        eprintln!("warning: could not write {}: {error}", path.display());
    }
    Ok(())
}
