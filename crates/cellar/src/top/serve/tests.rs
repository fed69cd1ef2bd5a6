//! The page of a history, requested over a socket.

use super::*;
use crate::top::reading::{Reading, Server, Session};
use std::io::Read as _;
use std::net::TcpStream;
use std::time::Instant;

fn reading(reads_all_statistics: bool) -> Reading {
    let session = Session {
        pid: 7,
        wait_class: "CPU".to_owned(),
        is_active: true,
        query_id: Some(3),
        query: Some("SELECT 'secret'".to_owned()),
        ..Session::default()
    };
    let idle = Session { pid: 8, wait_class: "Idle".to_owned(), state: Some("idle".to_owned()), ..Session::default() };
    let server = Server {
        version: "17.6".to_owned(),
        address: "local:5432".to_owned(),
        database: "sales".to_owned(),
        uptime_seconds: 1.0,
        is_standby: false,
        reads_all_statistics,
        cpus: Some(2),
        awr: None,
    };
    Reading {
        at: Instant::now(),
        time: 1.0,
        server: Some(server),
        sessions: vec![idle, session],
        statements: Vec::new(),
        databases: Vec::new(),
        cell_io: Vec::new(),
        scans: Vec::new(),
        cells: Vec::new(),
        missing: Vec::new(),
    }
}

fn pages(reading: Option<Reading>) -> (HttpServer, String) {
    let mut history = History::default();
    reading.into_iter().for_each(|reading| history.push(reading));
    let pages =
        Pages { token: Token::random().unwrap(), history: Arc::new(Mutex::new(history)), interval_seconds: 1.0 };
    let path = pages.token.path();
    (HttpServer::start("127.0.0.1:0".parse().unwrap(), move |path| pages.get(path)).unwrap(), path)
}

/// Returns status and body.
fn get(server: &HttpServer, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().to_owned(), body.to_owned())
}

#[test]
fn page_and_json_need_the_token_and_metrics_do_not() {
    let (server, token) = pages(Some(reading(true)));
    for path in ["/", "/page.css", "/charts.js", "/page.js", "/top.css", "/json/top"] {
        assert_eq!(get(&server, &format!("{token}{path}")).0, "200", "{path}");
        assert_eq!(get(&server, path).0, "404", "{path}");
        assert_eq!(get(&server, &format!("/{}{path}", "0".repeat(32))).0, "404", "{path}");
    }
    let (status, metrics) = get(&server, "/metrics");
    assert_eq!(status, "200");
    assert!(metrics.contains("cellar_server_up 1") && !metrics.contains("secret"), "{metrics}");
}

#[test]
fn the_document_lists_busy_sessions_and_the_activity_by_class() {
    let (server, token) = pages(Some(reading(true)));
    let document: serde_json::Value = serde_json::from_str(&get(&server, &format!("{token}/json/top")).1).unwrap();
    assert_eq!(document["session_count"], 2);
    assert_eq!(document["sessions"].as_array().unwrap().len(), 1);
    assert_eq!(document["sessions"][0]["query"], "SELECT 'secret'");
    assert_eq!(document["statements"][0]["text"], "SELECT 'secret'");
    assert_eq!((&document["wait_classes"][0], &document["activity"][0][0]), (&"CPU".into(), &1.0.into()));
}

#[test]
fn a_role_outside_of_pg_monitor_serves_no_texts() {
    let (server, token) = pages(Some(reading(false)));
    let (status, body) = get(&server, &format!("{token}/json/top"));
    assert!(status == "200" && body.contains("\"pid\":7") && !body.contains("secret"), "{body}");
}

#[test]
fn nothing_is_served_before_the_first_reading() {
    let (server, token) = pages(None);
    assert_eq!(get(&server, &format!("{token}/json/top")).0, "503");
    assert_eq!(get(&server, "/metrics").0, "503");
}

/// The policy of the responses forbids inline scripts and styles, and other hosts.
#[test]
fn the_page_contains_nothing_that_its_policy_forbids() {
    for forbidden in ["<style", "style=", "onclick", "<script>", "http://", "https://"] {
        assert!(!include_str!("page.html").contains(forbidden), "{forbidden}");
    }
    for forbidden in ["innerHTML", "insertAdjacentHTML", "eval(", "document.write", "https://", ".style."] {
        assert!(!include_str!("page.js").contains(forbidden), "{forbidden}");
    }
}
