//! The ASH report: sections and figures of a small document, in all forms.

use cellar_awr::document::{Document, parse};
use cellar_awr::render::{WIDTH, html, json, text};
use cellar_awr::report::of;
use cellar_awr::sections::{Block, Chart};
use serde_json::{Value, json};

const QUERY: i64 = 42;

/// Ten minutes with 600 samples of one second: one session waited for process 4711 for half of the time, one was on a CPU.
fn document() -> Value {
    let row = |value: Value, samples: f64| {
        let mut row = value;
        row["samples"] = json!(samples);
        row["time_us"] = json!(samples * 1e6);
        row["stderr_us"] = json!((samples.sqrt() * 1e6).round());
        row
    };
    let waiting = json!({ "event": "transactionid", "class": "Application" });
    let running = json!({ "event": "CPU", "class": "CPU" });
    let slot = |minute: u32| {
        json!({ "time": format!("2026-11-23T10:{minute}:00+00:00"), "duration_us": 300e6, "samples": 300,
                "by_class": { "CPU": 150e6, "Application": 150e6 },
                "events": [row(waiting.clone(), 150.0), row(running.clone(), 150.0)] })
    };
    json!({
        "format": 1, "kind": "ash",
        "instance": { "id": 1, "name": "shop", "cpus": 4 },
        "begin": { "time": "2026-11-23T10:30:00+00:00" }, "end": { "time": "2026-11-23T10:40:00+00:00" },
        "elapsed_us": 600e6,
        "notes": [{ "time": "2026-11-23T10:35:00+00:00", "kind": "crash", "text": "the server recovered" }],
        "history": {
            "samples": 600, "time_us": 600e6, "stderr_us": 24_494_897, "foreground_us": 540e6, "period_us": 1e6,
            "dimensions": ["sql_id", "blocker"], "filters": [{ "dimension": "database", "value": "shop" }],
            "groups": [row(json!({ "query_id": QUERY, "blocker_pid": 4711 }), 300.0), row(json!({ "query_id": QUERY }), 300.0)],
            "events": [row(waiting.clone(), 300.0), row(running.clone(), 240.0)],
            "background_events": [row(running.clone(), 60.0)],
            "services": [row(json!({ "application": "shopd", "role": "web", "database": "shop" }), 540.0)],
            "consumer_groups": [row(json!({ "consumer_group": "web", "class": "Application", "sessions": 1 }), 300.0)],
            "top_sql": [row(json!({ "query_id": QUERY, "event": "transactionid", "class": "Application", "sessions": 1 }), 300.0)],
            "top_sessions": [row(json!({ "pid": 4712, "event": "transactionid", "class": "Application", "application": "shopd" }), 300.0)],
            "blockers": [row(json!({ "blocker_pid": 4711, "event": "transactionid", "class": "Application", "sessions": 1,
                "application": "batch", "role": "web", "state": "idle in transaction" }), 300.0)],
            "slots": [slot(30), slot(35)]
        },
        "statements": [{ "query_id": QUERY, "text": "UPDATE stock SET amount = 0 WHERE id = $1" }]
    })
}

fn built(value: &Value) -> Document {
    parse(value.to_string().as_bytes()).unwrap().remove(0)
}

#[test]
fn the_report_has_the_titles_of_oracle_and_fits_132_columns() {
    let text = text(&of(&[built(&document())]));
    for title in [
        "ASH Report For",
        "Activity by sql_id, blocker",
        "Top User Events",
        "Top Background Events",
        "Top Service/Module",
        "Top Client IDs",
        "Top Consumer Groups",
        "Top SQL with Top Events",
        "Top Sessions",
        "Top Blocking Sessions",
        "Activity Over Time",
        "Complete List of SQL Text",
    ] {
        assert!(text.lines().any(|line| line.starts_with(title)), "{title}\n{text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
    assert!(text.contains("database = shop") && text.contains("the server recovered"), "{text}");
    assert!(text.contains("23-Nov-26 10:30:00 to 10:40:00"), "{text}");
}

#[test]
fn figures_are_shares_sessions_and_times_with_their_standard_error() {
    let report = of(&[built(&document())]);
    let section =
        |id: &str| report.sections.iter().find(|section| section.id == id).unwrap_or_else(|| panic!("no {id}"));
    let cell = |id: &str, row: usize, column: &str| {
        let table = section(id).tables().next().unwrap_or_else(|| panic!("no table in {id}"));
        table.rows[row][table.column(column).unwrap_or_else(|| panic!("no {column} in {id}"))].print()
    };
    let first = |column: &str| cell("ash-user-events", 0, column);
    assert_eq!(first("Event"), "transactionid");
    assert_eq!((first("% Activity"), first("Avg Active Sessions")), ("50.00".to_owned(), "0.50".to_owned()));
    assert_eq!((first("Samples"), first("Active Time (s)")), ("300".to_owned(), "300".to_owned()));
    // The square root of 300 samples of one second.
    assert_eq!(first("How"), "sampled ±17.32s");
    assert_eq!(cell("ash-user-events", 1, "Event"), "CPU + Wait for CPU");
    assert_eq!(cell("ash-blocking-sessions", 0, "State"), "idle in transaction");
    assert_eq!(cell("ash-groups", 0, "Blocking Sid"), "4711");
    assert_eq!(cell("activity-over-time", 0, "% Event"), "25.00");
    // In its slot of five minutes, the wait was seen in half of the samples of one session.
    assert_eq!(cell("activity-over-time", 0, "Avg Active Sessions"), "0.50");
}

#[test]
fn the_chart_shows_average_active_sessions_of_each_slot() {
    let report = of(&[built(&document())]);
    let chart = report.sections.iter().flat_map(|section| &section.blocks).find_map(|block| match block {
        Block::Chart(Chart::ActiveSessions { slots, cpus }) => Some((slots.clone(), *cpus)),
        _ => None,
    });
    let (slots, cpus) = chart.expect("a chart");
    assert_eq!(cpus, Some(4.0));
    assert_eq!(slots.iter().map(|(time, _)| time.as_str()).collect::<Vec<_>>(), ["10:30:00", "10:35:00"]);
    assert!(slots.iter().all(|(_, slot)| slot["CPU"] == 0.5 && slot["Application"] == 0.5), "{slots:?}");
    let page = html(&report);
    let (content, _) = page.split_once("<script>").expect("a script");
    assert!(content.contains("<svg") && !content.contains("NaN"));
    let value: Value = serde_json::from_str(&json(&report)).unwrap();
    assert_eq!(value["kind"], "ash");
}

#[test]
fn an_interval_without_activity_says_so_in_each_section() {
    let idle = json!({ "format": 1, "kind": "ash", "elapsed_us": 60e6, "begin": { "time": "2026-11-23T10:30:00Z" },
        "end": { "time": "2026-11-23T10:31:00Z" }, "history": { "samples": 0, "time_us": 0, "stderr_us": 0 } });
    let report = of(&[built(&idle)]);
    for section in report.sections.iter().filter(|section| section.id != "header") {
        assert!(section.blocks.iter().any(|block| matches!(block, Block::Sentence(_))), "{}", section.id);
    }
    assert!(html(&report).contains("No session was active in a sample."));
    assert!(text(&report).lines().all(|line| line.chars().count() <= WIDTH));
}

#[test]
fn names_of_sessions_cannot_inject_markup() {
    let mut value = document();
    value["history"]["services"][0]["application"] = json!("<script>alert(1)</script>");
    value["history"]["filters"][0]["value"] = json!("</td><script>");
    value["history"]["dimensions"] = json!(["<b>"]);
    let page = html(&of(&[built(&value)]));
    assert!(!page.contains("<script>alert") && !page.contains("</td><script>") && !page.contains("<b>"));
}

#[test]
fn a_filter_without_samples_is_told_from_an_idle_interval() {
    let idle = json!({ "format": 1, "kind": "ash", "elapsed_us": 60e6, "history": { "samples": 0, "time_us": 0, "stderr_us": 0,
        "filters": [{ "dimension": "database", "value": "sohp" }] } });
    let page = text(&of(&[built(&idle)]));
    assert!(
        page.contains("No sample matches the filter.") && !page.contains("No session was active in a sample."),
        "{page}"
    );
}

#[test]
fn figures_and_short_texts_are_never_cut() {
    let mut value = document();
    value["history"]["top_sessions"] = json!([{ "pid": 4712, "event": "CPU", "class": "CPU", "role": "r".repeat(30), "application": "a".repeat(60),
        "consumer_group": "consumers_of_the_shop", "database": "a_database_of_a_shop", "backend_type": "client backend", "temp_bytes": 9_003_008,
        "samples": 2, "time_us": 2e6, "stderr_us": 1_414_214 }]);
    let text = text(&of(&[built(&value)]));
    let section = text
        .split("Top Sessions")
        .nth(1)
        .unwrap()
        .split("------------------------------------------------------\n")
        .next()
        .unwrap();
    for whole in ["sampled ±1.41s", "client backend", "CPU + Wait for CPU", "a_database_of_a_shop", "8.6M"] {
        assert!(section.contains(whole), "{whole} is cut in\n{section}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
}

#[test]
fn averages_refer_to_the_time_that_the_samples_cover() {
    let mut value = document();
    value["history"]["covered_us"] = json!(300e6);
    value["history"]["covered_begin"] = json!("2026-11-23T10:35:00+00:00");
    value["history"]["covered_end"] = json!("2026-11-23T10:40:00+00:00");
    let page = text(&of(&[built(&value)]));
    let note =
        "Samples cover 5.00 of 10.00 minutes, from 23-Nov-26 10:35:00 to 23-Nov-26 10:40:00: averages refer to them";
    assert!(page.contains(note), "{page}");
    assert!(
        page.lines().any(|line| line.contains("Average Active Sessions:") && line.trim_end().ends_with("2.00")),
        "{page}"
    );
    // A document that does not tell the covered time.
    let mut value = document();
    value["history"]["filters"] = json!([]);
    let whole = text(&of(&[built(&value)]));
    assert!(!whole.contains("All samples are"), "{whole}");
    value["history"]["slots"][0]["samples"] = json!(0);
    let half = text(&of(&[built(&value)]));
    assert!(half.contains("All samples are from 23-Nov-26 10:35:00 to 23-Nov-26 10:40:00"), "{half}");
}
