//! What the cell's endpoint serves.
//!
//! The page's style and script are files of the binary. The content security policy allows only these and requests to the
//! endpoint itself: the page loads nothing from another host, and a text in a metric cannot become code.

use std::sync::Arc;

use serde_json::json;

use crate::metrics::{CONTENT_TYPE, Metrics, SCHEMA_VERSION, now_ms};
use crate::state::CellState;
use crate::status::{self, CellInfo};

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
pub const HTML: &str = "text/html; charset=utf-8";
pub const JAVASCRIPT: &str = "text/javascript; charset=utf-8";
pub const JSON: &str = "application/json";
const CSS: &str = "text/css; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";

pub struct Response {
    pub(super) status: u16,
    content_type: &'static str,
    pub(super) body: Vec<u8>,
}

impl Response {
    pub fn ok(content_type: &'static str, body: impl Into<Vec<u8>>) -> Self {
        Self { status: 200, content_type, body: body.into() }
    }

    pub fn error(status: u16, message: &str) -> Self {
        Self { status, content_type: TEXT, body: format!("{message}\n").into_bytes() }
    }

    /// Returns the status line and the header fields, with the empty line that ends them.
    pub fn head(&self) -> Vec<u8> {
        let reason = match self.status {
            200 => "OK",
            400 => "Bad Request",
            404 => "Not Found",
            405 => "Method Not Allowed",
            431 => "Request Header Fields Too Large",
            503 => "Service Unavailable",
            _ => "Internal Server Error",
        };
        let allow = if self.status == 405 { "Allow: GET\r\n" } else { "" };
        format!(
            "HTTP/1.1 {} {reason}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{allow}Cache-Control: no-store\r\n\
             Content-Security-Policy: {POLICY}\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n\
             Connection: close\r\n\r\n",
            self.status,
            self.content_type,
            self.body.len()
        )
        .into_bytes()
    }
}

/// Returns the files that all pages use: styles, charts and tables.
pub fn shared_file(path: &str) -> Option<Response> {
    match path {
        "/page.css" => Some(Response::ok(CSS, include_str!("page.css"))),
        "/charts.js" => Some(Response::ok(JAVASCRIPT, include_str!("charts.js"))),
        _ => None,
    }
}

/// The sources of the pages.
pub struct Pages {
    pub state: Arc<CellState>,
    pub metrics: Arc<Metrics>,
    pub info: Arc<CellInfo>,
}

impl Pages {
    pub fn get(&self, path: &str) -> Response {
        match path {
            "/" => Response::ok(HTML, include_str!("page.html")),
            "/page.js" => Response::ok(JAVASCRIPT, include_str!("page.js")),
            "/metrics" => Response::ok(CONTENT_TYPE, self.metrics.text()),
            "/json/metrics" => Response::ok(JSON, self.metrics.json().to_string()),
            "/json/status" => {
                let mut document = status::json(&self.info.status(&self.state, &self.metrics));
                document["schema_version"] = json!(SCHEMA_VERSION);
                document["time_ms"] = json!(now_ms());
                Response::ok(JSON, document.to_string())
            }
            _ => shared_file(path).unwrap_or_else(|| {
                Response::error(404, "this cell serves /, /metrics, /json/metrics and /json/status")
            }),
        }
    }
}
