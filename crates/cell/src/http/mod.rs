//! The cell's HTTP endpoint: metrics for Prometheus, the same as JSON, and a page with charts. `cellar top --serve` uses the
//! same server with other pages.
//!
//! Invariants: a client can only read. A request has 8 KiB and five seconds; a response has ten seconds. At most
//! [`CONNECTIONS_MAX`] connections are served at the same time, each by one thread, so that slow clients cannot use up the
//! daemon's threads or memory. Each connection serves one request.
//!
//! The cell's endpoint has no authentication and no encryption. It contains neither rows nor texts of statements.

mod pages;
mod request;

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

pub use pages::{HTML, JAVASCRIPT, JSON, Pages, Response, shared_file};

const CONNECTIONS_MAX: usize = 32;
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause after a failed accept, for example without free file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Returns the response to a request for a path.
pub type Handler = dyn Fn(&str) -> Response + Send + Sync;

pub struct HttpServer {
    address: SocketAddr,
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl HttpServer {
    pub fn start(listen: SocketAddr, pages: impl Fn(&str) -> Response + Send + Sync + 'static) -> io::Result<Self> {
        let listener = TcpListener::bind(listen)?;
        let address = listener.local_addr()?;
        let stopping = Arc::new(AtomicBool::new(false));
        let (pages, stop): (Arc<Handler>, _) = (Arc::new(pages), stopping.clone());
        let thread =
            std::thread::Builder::new().name("http".to_owned()).spawn(move || accept(&listener, &pages, &stop))?;
        Ok(Self { address, stopping, thread: Some(thread) })
    }

    /// Returns the address that the server listens on; its port differs from the configured one if that was 0.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::SeqCst);
        let ip = match self.address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            ip => ip,
        };
        // Wakes the listener, which checks `stopping` after each connection.
        let woken = TcpStream::connect_timeout(&SocketAddr::new(ip, self.address.port()), REQUEST_TIMEOUT);
        if let (Ok(_), Some(thread)) = (woken, self.thread.take()) {
            let _ = thread.join();
        }
    }
}

/// Counts a served connection until the value is dropped.
struct Slot(Arc<AtomicUsize>);

impl Slot {
    /// Returns None if all slots are in use.
    fn take(used: &Arc<AtomicUsize>) -> Option<Self> {
        let increase = |count: usize| (count < CONNECTIONS_MAX).then_some(count + 1);
        used.fetch_update(Ordering::AcqRel, Ordering::Acquire, increase).ok().map(|_| Self(used.clone()))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

fn accept(listener: &TcpListener, pages: &Arc<Handler>, stopping: &AtomicBool) {
    let used = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
        if stopping.load(Ordering::SeqCst) {
            return;
        }
        let stream = match stream {
            Ok(stream) => stream,
            Err(error) => {
                log::warn!("could not accept an HTTP connection: {error}");
                std::thread::sleep(ACCEPT_PAUSE);
                continue;
            }
        };
        let Some(slot) = Slot::take(&used) else {
            // The response fits the socket's buffer, so the listener does not wait for the client.
            let _ = send(&stream, &Response::error(503, "too many connections"));
            continue;
        };
        let pages = pages.clone();
        let spawned = std::thread::Builder::new().name("http client".to_owned()).spawn(move || {
            let _slot = slot;
            if let Err(error) = serve(&stream, &*pages) {
                log::debug!("could not answer an HTTP request: {error}");
            }
        });
        if let Err(error) = spawned {
            log::warn!("could not start a thread for an HTTP connection: {error}");
        }
    }
}

fn serve(stream: &TcpStream, pages: &Handler) -> io::Result<()> {
    let response = match request::read(stream, REQUEST_TIMEOUT)? {
        Ok(path) => catch_unwind(AssertUnwindSafe(|| pages(&path))).unwrap_or_else(|_| {
            log::error!("an HTTP request panicked");
            Response::error(500, "internal error")
        }),
        Err(refused) => refused,
    };
    send(stream, &response)?;
    // A socket that is closed with unread bytes resets the connection, and the client may lose the response.
    stream.shutdown(Shutdown::Write)?;
    request::discard(stream, REQUEST_TIMEOUT);
    Ok(())
}

fn send(mut stream: &TcpStream, response: &Response) -> io::Result<()> {
    stream.set_write_timeout(Some(RESPONSE_TIMEOUT))?;
    stream.write_all(&response.head())?;
    stream.write_all(&response.body)
}

#[cfg(test)]
mod tests;
