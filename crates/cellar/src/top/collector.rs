//! Reads all sources, in a thread of the screen: a server that does not answer never freezes the keys.

use super::cells;
use super::postgres::Source;
use super::reading::Reading;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Shortest time between two attempts to connect.
const RECONNECT_INTERVAL: Duration = Duration::from_secs(2);

/// What the collector reads.
#[derive(Debug, Clone, Default)]
pub struct Targets {
    pub dsn: Option<String>,
    /// Sockets of cells that were named on the command line.
    pub cells: Vec<PathBuf>,
}

pub struct Collector {
    targets: Targets,
    source: Option<Source>,
    connected_at: Option<Instant>,
    connect_error: String,
}

/// Active sessions before the start, as `Source::history` returns them.
pub type Activity = Vec<(f64, String, f64)>;

pub enum Message {
    Before(Activity),
    Reading(Box<Reading>),
}

impl Collector {
    pub fn new(targets: Targets) -> Self {
        Self { targets, source: None, connected_at: None, connect_error: String::new() }
    }

    /// Returns the activity before the start.
    pub fn activity(&mut self) -> Activity {
        self.connect();
        self.source.as_mut().map(Source::history).unwrap_or_default()
    }

    /// Like [`Self::read`], with the state of the repository.
    pub fn read_all(&mut self) -> Reading {
        let mut reading = self.read();
        let awr = self.source.as_mut().and_then(Source::awr_state);
        if let Some(server) = &mut reading.server {
            server.awr = awr;
        }
        reading
    }

    pub fn read(&mut self) -> Reading {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let mut reading = Reading {
            at: Instant::now(),
            time,
            server: None,
            sessions: Vec::new(),
            statements: Vec::new(),
            databases: Vec::new(),
            cell_io: Vec::new(),
            scans: Vec::new(),
            cells: Vec::new(),
            missing: Vec::new(),
        };
        self.connect();
        match &mut self.source {
            Some(source) => {
                if let Err(error) = source.read(&mut reading) {
                    self.source = None;
                    self.connect_error = format!("lost the connection to the server: {error}");
                    reading.missing.push(self.connect_error.clone());
                }
            }
            None => reading.missing.push(self.connect_error.clone()),
        }
        self.read_cells(&mut reading);
        reading
    }

    fn connect(&mut self) {
        let is_due = self.connected_at.is_none_or(|at| at.elapsed() >= RECONNECT_INTERVAL);
        if self.source.is_some() || !is_due {
            return;
        }
        self.connected_at = Some(Instant::now());
        match Source::connect(self.targets.dsn.as_deref()) {
            Ok(source) => self.source = Some(source),
            Err(error) => self.connect_error = error,
        }
    }

    /// Reads the cells that were named, and the cells of the server where this process may use their sockets.
    fn read_cells(&self, reading: &mut Reading) {
        for socket in &self.targets.cells {
            let name = socket.display().to_string();
            let is_counted = reading.cell_io.iter().any(|counters| counters.cell == name);
            if let Err(error) = cells::read(socket, !is_counted, reading) {
                reading.missing.push(error);
            }
        }
        let mut sockets: Vec<PathBuf> = reading.cell_io.iter().map(|counters| counters.cell.clone().into()).collect();
        sockets.sort();
        sockets.dedup();
        for socket in sockets.iter().filter(|socket| !self.targets.cells.contains(socket) && socket.exists()) {
            if cells::read(socket, false, reading).is_err() {
                let socket = socket.display();
                reading.missing.push(format!("disks and memory of the cell at {socket}: run as the cluster's user"));
            }
        }
    }
}

/// Starts a thread that sends a reading every `interval_ms`. The thread ends when the receiver is dropped.
pub fn start(targets: Targets, interval_ms: Arc<AtomicU64>) -> std::io::Result<(Receiver<Message>, Sender<()>)> {
    let (sender, receiver) = mpsc::channel();
    // The screen sends to this channel to wake the collector, and drops its end to stop it.
    let (waker, woken) = mpsc::channel();
    std::thread::Builder::new().name("collector".to_owned()).spawn(move || {
        let mut collector = Collector::new(targets);
        let before = collector.activity();
        if sender.send(Message::Before(before)).is_err() {
            return;
        }
        loop {
            let started = Instant::now();
            if sender.send(Message::Reading(Box::new(collector.read()))).is_err() {
                return;
            }
            let interval = Duration::from_millis(interval_ms.load(Ordering::Relaxed));
            match woken.recv_timeout(interval.saturating_sub(started.elapsed())) {
                Ok(()) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    })?;
    Ok((receiver, waker))
}
