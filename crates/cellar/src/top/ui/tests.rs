//! The screen, drawn to memory.

use super::*;
use crate::top::reading::{CellIoCounters, DatabaseCounters, Reading, Server, Session, StatementCounters};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use std::time::{Duration, Instant};

fn session(pid: i32, class: &str, event: Option<(&str, &str)>, query: &str) -> Session {
    Session {
        pid,
        database: Some("sales".to_owned()),
        application: format!("app{pid}"),
        backend_type: "client backend".to_owned(),
        state: Some("active".to_owned()),
        wait_event_type: event.map(|(event_type, _)| event_type.to_owned()),
        wait_event: event.map(|(_, event)| event.to_owned()),
        wait_class: class.to_owned(),
        is_active: true,
        query_id: Some(i64::from(pid)),
        query: Some(query.to_owned()),
        query_age_seconds: Some(2.0),
        ..Session::default()
    }
}

/// A reading `seconds` after the first, with counters that increased since.
fn reading(start: Instant, seconds: u64) -> Reading {
    let n = seconds as i64;
    let statement = StatementCounters {
        query_id: 1,
        database: 5,
        text: Some("SELECT \u{1b}[31m price\nFROM orders".to_owned()),
        calls: 100 * n,
        elapsed_us: 250_000 * n,
        ..StatementCounters::default()
    };
    let database =
        DatabaseCounters { oid: 5, name: Some("sales".to_owned()), commits: 40 * n, ..DatabaseCounters::default() };
    let io = CellIoCounters {
        cell: "/run/c1.sock".to_owned(),
        database: Some(5),
        class: Some("table".to_owned()),
        relation: None,
        kind: "single block read".to_owned(),
        operations: 1000 * seconds,
        bytes: 8_192_000 * seconds,
        seconds: 0.1 * seconds as f64,
        buckets: vec![0, 0, 0, 0, 0, 0, 0, 900 * seconds, 0, 0, 100 * seconds],
    };
    let mut waiting = session(2, "Application", Some(("Lock", "relation")), "UPDATE orders");
    waiting.blockers = vec![1];
    Reading {
        at: start + Duration::from_secs(seconds),
        time: 36_000.0 + seconds as f64,
        server: Some(Server {
            version: "17.6".to_owned(),
            address: "local:5432".to_owned(),
            database: "sales".to_owned(),
            uptime_seconds: 100.0 + seconds as f64,
            reads_all_statistics: true,
            is_standby: false,
            cpus: Some(2),
            awr: None,
        }),
        sessions: vec![session(1, "CPU", None, "SELECT price FROM orders"), waiting],
        statements: vec![statement],
        databases: vec![database],
        cell_io: vec![io],
        scans: Vec::new(),
        cells: Vec::new(),
        missing: vec!["something is missing".to_owned()],
    }
}

fn app() -> App {
    let mut app = App::new(1000, false);
    let start = Instant::now();
    for seconds in 0..4 {
        app.push(reading(start, seconds));
    }
    app
}

fn screen(app: &mut App, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| app.draw(frame)).unwrap();
    let buffer = terminal.backend().buffer();
    let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned() + "\n";
    (0..height).map(line).collect()
}

fn press(app: &mut App, keys: &str) {
    for key in keys.chars() {
        let code = match key {
            '\r' => KeyCode::Enter,
            '\u{1b}' => KeyCode::Esc,
            key => KeyCode::Char(key),
        };
        app.key(KeyEvent::new(code, KeyModifiers::NONE));
    }
}

fn check(app: &mut App, expected: &[&str]) {
    let screen = screen(app, 130, 30);
    for text in expected {
        assert!(screen.contains(text), "{text:?} is not on the screen:\n{screen}");
    }
}

#[test]
fn rates_are_increases_over_the_readings_and_activity_is_sampled() {
    let mut app = app();
    check(&mut app, &["10:00:03 UTC", "Active sessions by wait class: 2.0 on average, 2 CPUs", "something is missing"]);
    // 100 executions of 2.5 ms each second, one session that was active in each sample.
    check(&mut app, &["0000000000001   1.00 CPU              100  2.50ms", "SELECT [31m price FROM orders"]);
    press(&mut app, "5");
    check(&mut app, &["table     small read         1000     7.8M", "100us    128us   1.02ms   1.02ms"]);
    press(&mut app, "4");
    check(&mut app, &["sales                     0   2.00      40.0"]);
}

#[test]
fn details_show_waits_and_blocking_sessions() {
    let mut app = app();
    press(&mut app, "3j\r");
    check(&mut app, &["Session 2", "Application     relation", "Sessions that this one waits for:"]);
    press(&mut app, "\u{1b}");
    check(&mut app, &["Sessions: active, blocked, or in a transaction (2 of 2)"]);
}

#[test]
fn a_paused_screen_keeps_its_figures() {
    let mut app = app();
    press(&mut app, "p");
    app.push(reading(Instant::now(), 9));
    check(&mut app, &["10:00:03 UTC", "PAUSED"]);
    press(&mut app, "p");
    check(&mut app, &["10:00:09 UTC"]);
}

#[test]
fn no_size_of_the_terminal_is_an_error() {
    let mut app = app();
    for tab in ["1", "2", "3", "4", "5", "6", "?", "?2\r"] {
        press(&mut app, tab);
        for (width, height) in [(1, 1), (59, 40), (60, 12), (61, 13), (80, 24), (100, 15), (300, 100)] {
            screen(&mut app, width, height);
        }
    }
}

#[test]
fn columns_sort_in_both_directions_and_return_to_the_order_of_the_view() {
    let mut app = app();
    press(&mut app, "3");
    let first = |app: &mut App| {
        let screen = screen(app, 130, 30);
        let row = screen.lines().find(|line| line.contains("sales") && line.contains("app")).unwrap_or_default();
        row.split_whitespace().next().unwrap_or_default().to_owned()
    };
    let by_view = first(&mut app);
    press(&mut app, "s");
    assert_eq!(first(&mut app), "2");
    press(&mut app, "r");
    assert_eq!(first(&mut app), "1");
    press(&mut app, "r0");
    assert_eq!(first(&mut app), by_view);
}

#[test]
fn cell_io_of_relations_counts_in_their_class_and_leaves_the_rest_to_the_type() {
    let start = Instant::now();
    let io = |class: &str, relation, operations: u64| CellIoCounters {
        class: Some(class.to_owned()),
        relation,
        operations,
        bytes: 8192 * operations,
        buckets: vec![0, operations],
        ..CellIoCounters {
            cell: "c".to_owned(),
            database: Some(5),
            kind: "single block read".to_owned(),
            ..CellIoCounters::default()
        }
    };
    // Between the readings, one table is dropped: its earlier operations are no decrease of its class.
    let mut before = reading(start, 1);
    before.cell_io = vec![
        io("relation", None, 1000),
        io("table", Some((1, 10)), 600),
        io("table", Some((1, 11)), 300),
        io("wal", None, 50),
    ];
    let mut after = reading(start, 11);
    after.cell_io = vec![
        io("relation", None, 2000),
        io("table", Some((1, 10)), 800),
        io("index", Some((1, 12)), 500),
        io("wal", None, 60),
    ];
    let mut app = App::new(1000, false);
    app.push(before);
    app.push(after);
    let view = app.view.as_ref().unwrap();
    let mut rows: Vec<(&str, f64)> = view
        .cell_io
        .iter()
        .map(|row| (row.class.as_deref().unwrap_or_default(), row.operations_per_second.unwrap()))
        .collect();
    rows.sort_by(|a, b| a.0.cmp(b.0));
    assert_eq!(rows, [("index", 50.0), ("relation", 30.0), ("table", 20.0), ("wal", 1.0)]);
}

#[test]
fn an_idle_server_has_zero_active_sessions() {
    let mut app = App::new(1000, false);
    let start = Instant::now();
    for seconds in 0..2 {
        app.push(Reading { sessions: Vec::new(), ..reading(start, seconds) });
    }
    let text = screen(&mut app, 120, 30);
    assert!(text.contains("0 sessions, 0 active"), "{text}");
    assert!(text.contains("by wait class: 0.0 on average"), "{text}");
}
