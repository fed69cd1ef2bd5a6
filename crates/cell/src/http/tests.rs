//! Requests to a server that listens on a free port of the loopback address.

use super::*;
use crate::config::Config;
use crate::fixtures;
use crate::metrics::{Metrics, ProcessMetrics};
use crate::state::{CellState, MemoryBudget, MemoryKind, UnitDirectories};
use crate::status::CellInfo;
use std::io::Read;

fn server(folder: &std::path::Path) -> HttpServer {
    let volume = fixtures::volume(folder, 1 << 20);
    let disks = folder.join("disk").display().to_string();
    let config = format!("mount = \"/srv\"\n[disk_group]\ndisks = [\"{disks}\"]\n");
    let config = Config::parse(&config).unwrap();
    let budget = Arc::new(MemoryBudget::new(1 << 20, 64 << 20));
    let units = Arc::new(UnitDirectories::new(budget.account(MemoryKind::UnitDirectories)));
    let metrics =
        Metrics::new(ProcessMetrics::new(&config), volume.clone(), budget.clone(), Arc::default(), Arc::default());
    let state = Arc::new(CellState::new(volume, units, budget));
    let pages = Pages { state, metrics, info: Arc::new(CellInfo::new(&config)) };
    HttpServer::start("127.0.0.1:0".parse().unwrap(), move |path| pages.get(path)).unwrap()
}

/// Sends bytes and returns the whole response.
fn exchange(server: &HttpServer, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.write_all(request).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}

fn get(server: &HttpServer, path: &str) -> (String, String) {
    let response = exchange(server, format!("GET {path} HTTP/1.1\r\nHost: cell\r\n\r\n").as_bytes());
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

#[test]
fn every_page_is_served_with_its_type_and_a_strict_policy() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path());
    let types = [
        ("/", "text/html"),
        ("/?x=1", "text/html"),
        ("/page.css", "text/css"),
        ("/page.js", "text/javascript"),
        ("/charts.js", "text/javascript"),
        ("/metrics", "text/plain; version=0.0.4"),
        ("/json/metrics", "application/json"),
        ("/json/status", "application/json"),
    ];
    for (path, content_type) in types {
        let (head, body) = get(&server, path);
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{path}: {head}");
        assert!(head.contains(&format!("Content-Type: {content_type}")), "{path}: {head}");
        assert!(head.contains("Content-Security-Policy: default-src 'none'"), "{path}: {head}");
        assert!(head.contains(&format!("Content-Length: {}", body.len())), "{path}: {head}");
    }
    assert!(get(&server, "/json").0.starts_with("HTTP/1.1 404 "));
    let status: serde_json::Value = serde_json::from_str(&get(&server, "/json/status").1).unwrap();
    assert_eq!((&status["schema_version"], &status["mount"]), (&1.into(), &"/srv".into()));
    let metrics: serde_json::Value = serde_json::from_str(&get(&server, "/json/metrics").1).unwrap();
    assert_eq!(metrics["schema_version"], 1);
    assert_eq!(metrics["metrics"][0]["samples"][0]["labels"]["name"], "cell");
}

/// The policy forbids inline scripts and styles, and other hosts.
#[test]
fn the_page_contains_nothing_that_its_policy_forbids() {
    let page = include_str!("page.html");
    let script = concat!(include_str!("charts.js"), include_str!("page.js"));
    for forbidden in ["<style", "style=", "onclick", "<script>", "http://", "https://", "//cdn"] {
        assert!(!page.contains(forbidden), "{forbidden}");
    }
    for forbidden in ["innerHTML", "insertAdjacentHTML", "eval(", "document.write", "https://"] {
        assert!(!script.contains(forbidden), "{forbidden}");
    }
}

#[test]
fn other_methods_and_long_or_malformed_requests_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path());
    let status = |request: &[u8]| exchange(&server, request).lines().next().unwrap().to_owned();
    for method in ["POST", "PUT", "DELETE", "HEAD", "OPTIONS"] {
        let request = format!("{method} /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc");
        assert_eq!(status(request.as_bytes()), "HTTP/1.1 405 Method Not Allowed");
    }
    let long = format!("GET /metrics HTTP/1.1\r\nCookie: {}\r\n\r\n", "x".repeat(20_000));
    assert_eq!(status(long.as_bytes()), "HTTP/1.1 431 Request Header Fields Too Large");
    assert_eq!(status(b"\x16\x03\x01\x02\r\n\r\n"), "HTTP/1.1 400 Bad Request");
}

#[test]
fn clients_that_send_nothing_do_not_keep_others_out_for_long() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path());
    let silent: Vec<TcpStream> = (0..CONNECTIONS_MAX).map(|_| TcpStream::connect(server.address()).unwrap()).collect();
    // All slots are in use: the server refuses, and does not wait.
    let refused = exchange(&server, b"");
    assert!(refused.starts_with("HTTP/1.1 503 "), "{refused}");
    // The server closes the silent connections when their time is over.
    for mut stream in silent {
        assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0);
    }
    // The last slots are freed after the connections are closed.
    while !get(&server, "/metrics").0.starts_with("HTTP/1.1 200 ") {
        std::thread::yield_now();
    }
}
