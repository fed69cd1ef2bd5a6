//! Runs commands on a cell with ssh, and copies files to it with scp.

use super::report::Outcome;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

pub struct Remote<'a> {
    pub ssh: &'a Path,
    pub scp: &'a Path,
    pub options: Vec<&'a str>,
    pub user: Option<&'a str>,
    pub hides_errors: bool,
}

/// Bytes of a cell's output that are kept.
const OUTPUT_MAX: u64 = 64 << 20;

impl Remote<'_> {
    /// Runs a command with the shell of the cell.
    pub fn run(&self, cell: &str, command: &str) -> std::io::Result<Outcome> {
        let mut ssh = self.program(self.ssh);
        if let Some(user) = self.user {
            ssh.args(["-l", user]);
        }
        ssh.args([cell, command]);
        self.outcome(ssh)
    }

    pub fn copy(&self, cell: &str, files: &[&Path], destination: &str) -> std::io::Result<Outcome> {
        let host = if cell.contains(':') { format!("[{cell}]") } else { cell.to_owned() };
        let user = self.user.map_or_else(String::new, |user| format!("{user}@"));
        let mut scp = self.program(self.scp);
        scp.args(["-q", "-p", "-r", "--"]).args(files).arg(format!("{user}{host}:{destination}"));
        self.outcome(scp)
    }

    fn program(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        // Several programs cannot ask for passwords at the same terminal.
        command.args(["-o", "BatchMode=yes"]).args(&self.options);
        command
    }

    /// Waits for a program. Its standard output and standard error are one stream, in the order in which they were written.
    fn outcome(&self, mut program: Command) -> std::io::Result<Outcome> {
        let (reader, writer) = std::io::pipe()?;
        let errors = if self.hides_errors { Stdio::null() } else { writer.try_clone()?.into() };
        let mut child = program.stdin(Stdio::null()).stdout(writer).stderr(errors).spawn()?;
        // The command holds the ends of the pipe that the child has, without which the output would not end.
        drop(program);
        let mut output = Vec::new();
        (&reader).take(OUTPUT_MAX).read_to_end(&mut output)?;
        std::io::copy(&mut &reader, &mut std::io::sink())?;
        let status = child.wait()?;
        Ok(Outcome { succeeded: status.success(), output: String::from_utf8_lossy(&output).into_owned() })
    }
}

/// Quotes a word for a shell.
pub fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-~+:".contains(c);
    match word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}
