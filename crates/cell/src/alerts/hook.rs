//! The program of `alert_hook`: runs once for each event, with the event as JSON on its standard input.

use super::book::Notification;
use crate::background::{Background, Stopping};
use serde_json::Value;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// Events that wait for the program. Further ones are dropped.
const QUEUE_MAX: usize = 100;
const POLL: Duration = Duration::from_millis(50);

/// An event that the program is to get.
pub struct Message {
    pub name: String,
    pub document: Value,
}

pub struct Hook {
    queue: SyncSender<Message>,
    _thread: Background,
}

impl Hook {
    /// Runs `program` for each message, one after the other, each for at most `limit`. `done` gets the result.
    pub fn start(
        program: &Path,
        limit: Duration,
        done: impl Fn(&str, Notification) + Send + 'static,
    ) -> io::Result<Self> {
        let (queue, messages) = sync_channel(QUEUE_MAX);
        let program = program.to_owned();
        let work = move |stopping: &Stopping| {
            while let Some(message) = next(&messages, stopping) {
                let result = run(&program, &message.document, limit, stopping);
                if let Err(error) = &result {
                    log::warn!("alert_hook {} failed for alert {}: {error}", program.display(), message.name);
                }
                done(&message.name, if result.is_ok() { Notification::Sent } else { Notification::Failed });
            }
        };
        Ok(Self { queue, _thread: Background::start("alert hook", work)? })
    }

    /// Queues a message. Returns false if too many wait.
    pub fn send(&self, message: Message) -> bool {
        self.queue.try_send(message).is_ok()
    }
}

fn next(messages: &Receiver<Message>, stopping: &Stopping) -> Option<Message> {
    while !stopping.is_set() {
        match messages.recv_timeout(POLL) {
            Ok(message) => return Some(message),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return None,
        }
    }
    None
}

/// A cell that runs as root does not run a program that another user can change.
fn check_owner(program: &Path) -> io::Result<()> {
    let metadata = std::fs::metadata(program)?;
    match nix::unistd::geteuid().is_root() && (metadata.uid() != 0 || metadata.mode() & 0o022 != 0) {
        true => Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "the cell runs as root, and another user can change the program; make it owned by root, and writable by root only",
        )),
        false => Ok(()),
    }
}

fn run(program: &Path, document: &Value, limit: Duration, stopping: &Stopping) -> io::Result<()> {
    check_owner(program)?;
    let mut command = Command::new(program);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    // SAFETY: the function makes system calls only, and allocates nothing.
    unsafe { command.pre_exec(begin_as_ordinary_process) };
    // In a new process group, so that a kill also ends the processes that the program started.
    let mut child = command.process_group(0).spawn()?;
    if let Some(mut input) = child.stdin.take() {
        // An event fits the buffer of a pipe, at least 4 KiB. A program need not read its input.
        match input.write_all(format!("{document}\n").as_bytes()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => log::debug!("alert_hook: {error}"),
            _ => {}
        }
    }
    let status = wait(&mut child, limit, stopping)?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("the program ended with {status}"))) }
}

/// Undoes what is set for the cell only: its signal mask, and its protection from the OOM killer.
fn begin_as_ordinary_process() -> io::Result<()> {
    nix::sys::signal::SigSet::empty().thread_set_mask()?;
    std::fs::write("/proc/self/oom_score_adj", "0")
}

/// Waits for the end of the program. After the limit, or when the cell stops, the program is killed.
fn wait(child: &mut Child, limit: Duration, stopping: &Stopping) -> io::Result<ExitStatus> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if stopping.is_set() || Instant::now() >= deadline {
            let group = nix::unistd::Pid::from_raw(child.id() as i32);
            let _ = nix::sys::signal::killpg(group, nix::sys::signal::Signal::SIGKILL);
            child.wait()?;
            return Err(io::Error::other(match stopping.is_set() {
                true => "the cell stops".to_owned(),
                false => format!("the program did not end within {} seconds", limit.as_secs_f64()),
            }));
        }
        std::thread::sleep(POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::mpsc::channel;

    /// Runs a script for one event, and returns what the hook reported.
    fn notification(folder: &Path, script: &str, limit: Duration) -> Notification {
        let program = folder.join("program");
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
        let (sender, results) = channel();
        let done = move |name: &str, notification| sender.send((name.to_owned(), notification)).unwrap();
        let hook = Hook::start(&program, limit, done).unwrap();
        assert!(hook.send(Message { name: "1_1".to_owned(), document: json!({ "name": "1_1" }) }));
        let (name, notification) = results.recv().unwrap();
        assert_eq!(name, "1_1");
        notification
    }

    #[test]
    fn the_program_gets_the_event_and_its_failure_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let long = Duration::from_secs(600);
        let copy = format!("cat > {}/copy", folder.path().display());
        assert_eq!(notification(folder.path(), &copy, long), Notification::Sent);
        assert_eq!(std::fs::read_to_string(folder.path().join("copy")).unwrap(), "{\"name\":\"1_1\"}\n");
        assert_eq!(notification(folder.path(), "exit 0", long), Notification::Sent);
        let ordinary = "grep -q '^SigBlk:.0*$' /proc/self/status && grep -q '^0$' /proc/self/oom_score_adj";
        assert_eq!(notification(folder.path(), ordinary, long), Notification::Sent);
        assert_eq!(notification(folder.path(), "exit 3", long), Notification::Failed);
        // The program and the process that it started are killed: the test would wait for them.
        assert_eq!(notification(folder.path(), "sleep 1000 & wait", Duration::ZERO), Notification::Failed);
    }

    #[test]
    fn a_missing_program_is_a_failure() {
        let (sender, results) = channel();
        let done = move |_: &str, notification| sender.send(notification).unwrap();
        let hook = Hook::start(Path::new("/nowhere/program"), Duration::from_secs(1), done).unwrap();
        hook.send(Message { name: "1_1".to_owned(), document: json!({}) });
        assert_eq!(results.recv().unwrap(), Notification::Failed);
    }
}
