//! The HTTP endpoint of the metrics: `GET /metrics`.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;

use super::Metrics;

pub struct MetricsServer {
    server: Arc<tiny_http::Server>,
    thread: Option<JoinHandle<()>>,
}

impl MetricsServer {
    pub fn start(listen: SocketAddr, metrics: Arc<Metrics>) -> io::Result<Self> {
        let server = Arc::new(tiny_http::Server::http(listen).map_err(io::Error::other)?);
        let serving = server.clone();
        let thread = std::thread::Builder::new().name("metrics".to_owned()).spawn(move || {
            for request in serving.incoming_requests() {
                let response = respond(&request, &metrics);
                if let Err(error) = request.respond(response) {
                    log::debug!("could not answer a metrics request: {error}");
                }
            }
        })?;
        Ok(Self { server, thread: Some(thread) })
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        self.server.unblock();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn respond(request: &tiny_http::Request, metrics: &Metrics) -> tiny_http::Response<io::Cursor<Vec<u8>>> {
    if request.url() != "/metrics" {
        return tiny_http::Response::from_string("The metrics are at /metrics.\n").with_status_code(404);
    }
    match metrics.render() {
        Ok(text) => {
            let kind = "Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8";
            tiny_http::Response::from_string(text)
                .with_header(kind.parse::<tiny_http::Header>().expect("a valid header"))
        }
        Err(error) => tiny_http::Response::from_string(error.to_string()).with_status_code(500),
    }
}
