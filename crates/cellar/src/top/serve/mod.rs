//! `cellar top --serve`: what the screen shows as a page with charts, as JSON and as metrics, over HTTP.
//!
//! The page contains names, and texts of statements of a server, and HTTP has no passwords. Therefore:
//!
//! - The paths of page and JSON begin with a secret, the token, which is printed at the start or read from a file. A page of
//!   another origin, or another user of the machine, does not know the token. `/metrics` contains no texts and needs none.
//! - Texts of statements are served only if the role may read the statistics of all roles (pg_monitor).
//! - A port without an address listens on the loopback address.

mod document;
mod token;

use super::collector::{Message, Targets, start};
use super::exposition;
use super::history::History;
use super::view::View;
use cellar_cell::http::{HTML, HttpServer, JAVASCRIPT, JSON, Response, shared_file};
use cellar_cell::metrics::CONTENT_TYPE;
use document::Document;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use token::Token;

/// How long the loop waits for a reading before it looks for signals.
const SIGNAL_WAIT: Duration = Duration::from_millis(200);
const CSS: &str = "text/css; charset=utf-8";

/// Serves until a signal ends the process.
pub fn run(targets: Targets, listen: SocketAddr, token_file: Option<&Path>, interval_ms: u64) -> Result<(), String> {
    let token = token_file.map_or_else(Token::random, Token::read)?;
    let stopped = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        signal_hook::flag::register(signal, stopped.clone()).map_err(|error| error.to_string())?;
    }
    let history = Arc::new(Mutex::new(History::default()));
    let pages = Pages { token, history: history.clone(), interval_seconds: interval_ms as f64 / 1000.0 };
    let path = pages.token.path();
    let server = HttpServer::start(listen, move |path| pages.get(path))
        .map_err(|error| format!("could not listen on {listen}: {error}"))?;
    announce(server.address(), &path).map_err(|error| format!("could not write to standard output: {error}"))?;

    let (readings, _waker) =
        start(targets, Arc::new(AtomicU64::new(interval_ms))).map_err(|error| error.to_string())?;
    while !stopped.load(Ordering::Relaxed) {
        let message = match readings.recv_timeout(SIGNAL_WAIT) {
            Ok(message) => message,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => return Err("the collector's thread has exited".to_owned()),
        };
        let mut history = history.lock().unwrap_or_else(PoisonError::into_inner);
        match message {
            Message::Before(activity) => history.begin_with(&activity, interval_ms as f64 / 1000.0),
            Message::Reading(reading) => history.push(*reading),
        }
    }
    Ok(())
}

fn announce(address: SocketAddr, path: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "http://{address}{path}/")?;
    if !address.ip().is_loopback() {
        eprintln!(
            "WARNING:  HTTP is not encrypted: others on the network can read the address and the page\n\
             HINT:  Listen on 127.0.0.1, and use an SSH tunnel or a proxy with TLS."
        );
    }
    out.flush()
}

struct Pages {
    token: Token,
    history: Arc<Mutex<History>>,
    interval_seconds: f64,
}

impl Pages {
    fn get(&self, path: &str) -> Response {
        if path == "/metrics" {
            let view = View::of(&self.history.lock().unwrap_or_else(PoisonError::into_inner));
            return view.map_or_else(not_read_yet, |view| Response::ok(CONTENT_TYPE, exposition::exposition(&view)));
        }
        match self.token.strip(path) {
            Some("/") => Response::ok(HTML, include_str!("page.html")),
            Some("/page.js") => Response::ok(JAVASCRIPT, include_str!("page.js")),
            Some("/top.css") => {
                Response::ok(CSS, [cellar_awr::render::COLOURS, include_str!("page.css")].concat().into_bytes())
            }
            Some("/json/top") => self.document(),
            Some(path) => shared_file(path).unwrap_or_else(not_found),
            None => not_found(),
        }
    }

    fn document(&self) -> Response {
        let document =
            Document::of(&self.history.lock().unwrap_or_else(PoisonError::into_inner), self.interval_seconds);
        match document.map(|document| serde_json::to_vec(&document)) {
            Some(Ok(text)) => Response::ok(JSON, text),
            Some(Err(error)) => Response::error(500, &error.to_string()),
            None => not_read_yet(),
        }
    }
}

fn not_read_yet() -> Response {
    Response::error(503, "nothing was read yet")
}

fn not_found() -> Response {
    Response::error(
        404,
        "cellar top serves /metrics, and the page and JSON below the address that it printed when it was started",
    )
}

#[cfg(test)]
mod tests;
