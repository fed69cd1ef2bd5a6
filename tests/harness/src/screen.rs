//! Runs a program in a pseudo-terminal and follows a script: keys, and what the screen must show.
//!
//! Each line of the script, read from standard input, is one step. A step that waits fails after a minute, and prints the
//! screen:
//!
//! ```text
//! see TEXT             wait until the screen contains TEXT
//! gone TEXT            wait until the screen does not contain TEXT
//! key KEYS             send keys; \r \t \e \x03 as in C, UP DOWN END as names
//! resize ROWS COLUMNS  change the size of the terminal
//! print                print the screen
//! kill SIGNAL          send TERM, INT, or HUP to the program
//! close                close the terminal
//! exit STATUS          wait for the program's exit; a signal N counts as status 128 + N
//! restored             the terminal shows its main screen, with a cursor, in canonical mode
//! ```

use anyhow::{Context, Result, anyhow, bail, ensure};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::pty::{OpenptyResult, Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{LocalFlags, tcgetattr};
use nix::unistd::Pid;
use std::fs::File;
use std::io::{BufRead, Read, Write};
use std::num::NonZero;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time limit of a step that waits.
const STEP_TIMEOUT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);

#[derive(clap::Args)]
pub struct Options {
    #[arg(long, default_value = "40")]
    rows: NonZero<u16>,
    #[arg(long, default_value = "120")]
    columns: NonZero<u16>,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true)]
    command: Vec<String>,
}

struct Screen {
    child: Child,
    terminal: Option<File>,
    /// The program's end of the terminal, kept open so that its mode can be read after the exit.
    slave: Option<OwnedFd>,
    output: Receiver<Vec<u8>>,
    reader: Option<JoinHandle<()>>,
    /// Makes the reader release the terminal.
    closing: Arc<AtomicBool>,
    parser: vt100::Parser,
}

/// Returns true; a step that fails is an error.
pub fn run(options: &Options) -> Result<bool> {
    let mut screen = Screen::start(options)?;
    let mut result = Ok(());
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        if let Err(error) = screen.step(&line) {
            result = Err(anyhow!("the screen:\n{}\nstep \"{line}\": {error:#}", screen.text()));
            break;
        }
    }
    let _ = screen.child.kill();
    let _ = screen.child.wait();
    result.map(|()| true)
}

impl Screen {
    fn start(options: &Options) -> Result<Self> {
        let Options { rows, columns, command } = options;
        let size = Winsize { ws_row: rows.get(), ws_col: columns.get(), ws_xpixel: 0, ws_ypixel: 0 };
        let OpenptyResult { master, slave } = openpty(Some(&size), None).context("could not open a pseudo-terminal")?;
        // A copy of the master in the program would keep the terminal open.
        for end in [&master, &slave] {
            fcntl(end, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
        }
        // setsid(1) sets the controlling terminal of the program.
        let child = Command::new("setsid")
            .arg("--ctty")
            .args(command)
            .env("TERM", "xterm-256color")
            .stdin(slave.try_clone()?)
            .stdout(slave.try_clone()?)
            .stderr(slave.try_clone()?)
            .spawn()
            .context("could not start the program")?;
        let terminal = File::from(master);
        let mut reading = terminal.try_clone()?;
        let (sender, output) = channel();
        let closing = Arc::new(AtomicBool::new(false));
        let stop = closing.clone();
        let reader = std::thread::spawn(move || {
            let mut buffer = [0; 1 << 16];
            while !stop.load(Ordering::Relaxed) {
                let mut terminal = [PollFd::new(reading.as_fd(), PollFlags::POLLIN)];
                if poll(&mut terminal, PollTimeout::from(20_u8)).unwrap_or(0) == 0 {
                    continue;
                }
                match reading.read(&mut buffer) {
                    Ok(count @ 1..) if sender.send(buffer[..count].to_vec()).is_ok() => {}
                    _ => return,
                }
            }
        });
        let parser = vt100::Parser::new(*rows, *columns, 0);
        Ok(Self { child, terminal: Some(terminal), slave: Some(slave), output, reader: Some(reader), closing, parser })
    }

    fn text(&self) -> String {
        let lines: Vec<String> =
            self.parser.screen().contents().lines().map(|line| line.trim_end().to_owned()).collect();
        lines.join("\n")
    }

    /// Processes output for a moment. Returns false after the end of the output.
    fn pump(&mut self) -> bool {
        match self.output.recv_timeout(POLL) {
            Ok(bytes) => {
                self.parser.process(&bytes);
                true
            }
            Err(RecvTimeoutError::Timeout) => true,
            Err(RecvTimeoutError::Disconnected) => {
                std::thread::sleep(POLL);
                false
            }
        }
    }

    fn wait_until(&mut self, condition: impl Fn(&Self) -> bool) -> Result<()> {
        let deadline = Instant::now() + STEP_TIMEOUT;
        while !condition(self) {
            ensure!(Instant::now() < deadline, "not after {STEP_TIMEOUT:?}");
            self.pump();
        }
        Ok(())
    }

    fn step(&mut self, line: &str) -> Result<()> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "see" => self.wait_until(|screen| screen.text().contains(rest)),
            "gone" => self.wait_until(|screen| !screen.text().contains(rest)),
            "key" => {
                let terminal = self.terminal.as_mut().context("the terminal is closed")?;
                Ok(terminal.write_all(&keys(rest))?)
            }
            "resize" => {
                let (rows, columns) = rest.split_once(' ').context("write resize ROWS COLUMNS")?;
                self.resize(rows.parse()?, columns.parse()?)
            }
            "print" => {
                println!("{}", self.text());
                Ok(())
            }
            "kill" => {
                let signal: Signal = format!("SIG{rest}").parse()?;
                Ok(kill(Pid::from_raw(self.child.id() as i32), signal)?)
            }
            "close" => {
                self.closing.store(true, Ordering::Relaxed);
                if let Some(reader) = self.reader.take() {
                    ensure!(reader.join().is_ok(), "the reader panicked");
                }
                (self.slave, self.terminal) = (None, None);
                Ok(())
            }
            "exit" => self.exit(rest.parse()?),
            "restored" => self.restored(),
            _ => bail!("there is no step {word}"),
        }
    }

    fn resize(&mut self, rows: NonZero<u16>, columns: NonZero<u16>) -> Result<()> {
        self.parser.screen_mut().set_size(rows, columns);
        let device = self.slave.as_ref().context("the terminal is closed")?;
        let name = nix::unistd::ttyname(device.as_fd())?;
        let size = [("rows", rows), ("columns", columns)].map(|(name, value)| [name.to_owned(), value.to_string()]);
        let set = Command::new("stty").arg("-F").arg(name).args(size.concat()).status()?;
        ensure!(set.success(), "stty failed");
        Ok(())
    }

    fn exit(&mut self, expected: i32) -> Result<()> {
        let deadline = Instant::now() + STEP_TIMEOUT;
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            ensure!(Instant::now() < deadline, "the program has not exited after {STEP_TIMEOUT:?}");
            self.pump();
        };
        // The last output.
        for _ in 0..5 {
            self.pump();
        }
        let found = status.code().or(status.signal().map(|signal| 128 + signal));
        ensure!(found == Some(expected), "the program exited with {status}");
        Ok(())
    }

    fn restored(&mut self) -> Result<()> {
        let screen = self.parser.screen();
        ensure!(!screen.alternate_screen(), "the alternate screen is still shown");
        ensure!(!screen.hide_cursor(), "the cursor is hidden");
        let slave = self.slave.as_ref().context("the terminal is closed")?;
        let mode = tcgetattr(slave)?.local_flags;
        ensure!(mode.contains(LocalFlags::ICANON | LocalFlags::ECHO), "the terminal is still in raw mode");
        Ok(())
    }
}

/// The bytes of keys.
fn keys(text: &str) -> Vec<u8> {
    let named =
        [("UP", "\u{1b}[A"), ("DOWN", "\u{1b}[B"), ("RIGHT", "\u{1b}[C"), ("LEFT", "\u{1b}[D"), ("END", "\u{1b}[F")];
    let escaped = [("\\r", "\r"), ("\\t", "\t"), ("\\e", "\u{1b}"), ("\\x03", "\u{3}"), ("SPACE", " ")];
    let replace = |text: String, (name, bytes): &(&str, &str)| text.replace(name, bytes);
    named.iter().chain(&escaped).fold(text.to_owned(), replace).into_bytes()
}
