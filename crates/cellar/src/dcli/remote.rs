//! Runs commands on a cell with ssh, and copies files to it with scp.

use super::report::Outcome;
use std::ffi::OsString;
use std::fmt;
use std::io::{self, PipeReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

pub struct Remote<'a> {
    pub ssh: &'a Path,
    pub scp: &'a Path,
    pub options: Vec<&'a str>,
    pub user: Option<&'a str>,
    pub hides_errors: bool,
    /// ssh may ask for passwords at the terminal; not while several programs run at the same time.
    pub may_ask: bool,
}

/// A program that was not started.
#[derive(Debug)]
pub struct NotStarted {
    program: OsString,
    error: io::Error,
}

impl fmt::Display for NotStarted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "could not run {}: {}", self.program.display(), self.error)
    }
}

/// A cell that does not answer does not delay the others for long. A shared connection that ssh started in the background
/// would keep the output open.
const DEFAULT_OPTIONS: [&str; 3] = ["ConnectTimeout=10", "ServerAliveInterval=15", "ControlMaster=no"];

/// Bytes of a cell's output that are kept.
const OUTPUT_MAX: u64 = 64 << 20;

impl Remote<'_> {
    /// Runs a command with the shell of the cell.
    pub fn run(&self, cell: &str, command: &str) -> Result<Outcome, NotStarted> {
        let mut ssh = self.program(self.ssh);
        if let Some(user) = self.user {
            ssh.args(["-l", user]);
        }
        ssh.args([cell, command]);
        self.outcome(ssh)
    }

    pub fn copy(&self, cell: &str, files: &[&Path], destination: &str) -> Result<Outcome, NotStarted> {
        let host = if cell.contains(':') { format!("[{cell}]") } else { cell.to_owned() };
        let user = self.user.map_or_else(String::new, |user| format!("{user}@"));
        let mut scp = self.program(self.scp);
        // scp takes a relative path with a colon for one on another machine.
        let files =
            files.iter().map(|file| if file.is_relative() { Path::new(".").join(file) } else { file.to_path_buf() });
        scp.args(["-q", "-p", "-r", "--"]).args(files).arg(format!("{user}{host}:{destination}"));
        self.outcome(scp)
    }

    fn program(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        // Several programs cannot ask for passwords at the same terminal.
        let batch_mode = if self.may_ask { "BatchMode=no" } else { "BatchMode=yes" };
        command.args(["-o", batch_mode]).args(&self.options);
        // ssh uses the first value of an option, so that the options of the user take precedence.
        command.args(DEFAULT_OPTIONS.iter().flat_map(|option| ["-o", option]));
        command
    }

    /// Waits for a program. Its standard output and standard error are one stream, in the order in which they were written.
    fn outcome(&self, program: Command) -> Result<Outcome, NotStarted> {
        let name = program.get_program().to_owned();
        let (mut child, reader) = self.start(program).map_err(|error| NotStarted { program: name, error })?;
        let mut output = Vec::new();
        let read = read_output(&reader, OUTPUT_MAX, &mut output);
        // A program whose output cannot be read must not wait for it to be read.
        drop(reader);
        let failure = match (child.wait(), read) {
            (Ok(status), Ok(())) => (!status.success()).then(|| reason(status)),
            (Err(error), _) | (_, Err(error)) => Some(error.to_string()),
        };
        Ok(Outcome { failure, output: String::from_utf8_lossy(&output).into_owned() })
    }

    fn start(&self, mut program: Command) -> io::Result<(Child, PipeReader)> {
        let (reader, writer) = io::pipe()?;
        let errors = if self.hides_errors { Stdio::null() } else { writer.try_clone()?.into() };
        // The command holds the ends of the pipe that the child has, without which the output would not end. It is dropped here.
        let child = program.stdin(Stdio::null()).stdout(writer).stderr(errors).spawn()?;
        Ok((child, reader))
    }
}

/// Reads to the end, and keeps `max` bytes and a line that says so if there are more.
fn read_output(mut reader: impl Read, max: u64, output: &mut Vec<u8>) -> io::Result<()> {
    reader.by_ref().take(max).read_to_end(output)?;
    let more = io::copy(&mut reader, &mut io::sink())?;
    if more > 0 {
        output.extend_from_slice(format!("\ndcli: {more} more bytes of output are not shown\n").as_bytes());
    }
    Ok(())
}

fn reason(status: ExitStatus) -> String {
    status.code().map_or_else(|| status.to_string(), |code| format!("exit code {code}"))
}

/// Quotes a word for a shell.
pub fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-~+:".contains(c);
    match word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_that_is_cut_off_says_so() {
        let read = |max| {
            let mut output = Vec::new();
            read_output(&b"one\ntwo"[..], max, &mut output).unwrap();
            String::from_utf8(output).unwrap()
        };
        assert_eq!(read(7), "one\ntwo");
        assert_eq!(read(5), "one\nt\ndcli: 2 more bytes of output are not shown\n");
    }
}
