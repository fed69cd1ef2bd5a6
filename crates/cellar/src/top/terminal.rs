//! The terminal: raw mode and alternate screen, restored on every way out.
//!
//! `ratatui` restores the terminal when the screen panics. SIGTERM and SIGINT end the loop, which restores it too. SIGHUP ends
//! the process: the terminal does not exist any more.
//!
//! crossterm never returns from a read of a terminal that was closed. Therefore the loop waits for keys itself, and reads
//! them only from a terminal that exists.

use super::collector::{Message, Targets, start};
use super::ui::{Action, App};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::time::Duration;

/// How long the loop waits for a key before it looks for readings and signals.
const KEY_WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

pub fn run(targets: Targets, app: App) -> io::Result<()> {
    let stopped = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        signal_hook::flag::register(signal, stopped.clone())?;
    }
    let interval_ms = Arc::new(AtomicU64::new(app.interval_ms));
    let (readings, waker) = start(targets, interval_ms.clone())?;
    let mut terminal = ratatui::try_init()?;
    let result = serve(&mut terminal, app, &readings, &waker, &interval_ms, &stopped);
    ratatui::try_restore()?;
    result
}

fn serve(
    terminal: &mut DefaultTerminal,
    mut app: App,
    readings: &Receiver<Message>,
    waker: &Sender<()>,
    interval_ms: &AtomicU64,
    stopped: &AtomicBool,
) -> io::Result<()> {
    let mut is_changed = true;
    while !stopped.load(Ordering::Relaxed) {
        if is_changed {
            terminal.draw(|frame| app.draw(frame))?;
            is_changed = false;
        }
        if !wait_for_key()? {
            return Ok(());
        }
        while event::poll(Duration::ZERO)? {
            is_changed = true;
            match event::read()? {
                Event::Key(key) if key.kind != KeyEventKind::Release => match app.key(key) {
                    Action::Quit => return Ok(()),
                    Action::Redraw => {}
                    Action::Wake => {
                        interval_ms.store(app.interval_ms, Ordering::Relaxed);
                        let _ = waker.send(());
                    }
                },
                // A resize draws the whole screen again.
                _ => {}
            }
        }
        loop {
            match readings.try_recv() {
                Ok(Message::Before(activity)) => app.begin_with(&activity),
                Ok(Message::Reading(reading)) => app.push(*reading),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return Err(io::Error::other("the collector's thread has exited")),
            }
            is_changed = true;
        }
    }
    Ok(())
}

/// Waits for a key, at most [`KEY_WAIT`]. Returns false if the terminal was closed.
fn wait_for_key() -> io::Result<bool> {
    let stdin = io::stdin();
    let mut terminal = [PollFd::new(&stdin, PollFlags::IN)];
    match poll(&mut terminal, Some(&KEY_WAIT)) {
        Ok(_) => Ok(!terminal[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL)),
        // A signal, for example because the size of the terminal changed.
        Err(rustix::io::Errno::INTR) => Ok(true),
        Err(error) => Err(error.into()),
    }
}
