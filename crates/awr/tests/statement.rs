//! The SQL report: sections and figures of a small document, in all forms.

use cellar_awr::document::{Document, parse};
use cellar_awr::render::{WIDTH, html, json, text};
use cellar_awr::report::{Report, of};
use cellar_awr::sections::{Block, Chart, Section};
use serde_json::{Value, json};

const QUERY: i64 = 42;
const INDEX_PLAN: i64 = 1_111_111_111_111_111_111;
const SCAN_PLAN: i64 = 2_222_222_222_222_222_222;

/// AWR snapshots 10 to 14. The statement used an index, except in the interval that ends with snapshot 13. In the last interval,
/// executions with the index read as many blocks as before and took twice the time.
fn document() -> Value {
    let history = |snap: i64, plan: i64, calls: f64, us: f64, gets: f64, reads: f64| {
        json!({ "snap_id": snap, "time": format!("2026-11-23T{:02}:00:00+00:00", snap - 1), "query_id": QUERY, "plan_id": plan,
                "calls": calls, "elapsed_us": us * calls, "logical_reads": gets * calls, "physical_reads": reads * calls })
    };
    let snapshot = |snap: i64| json!({ "snap_id": snap, "time": format!("2026-11-23T{snap:02}:00:00+00:00"), "elapsed_us": 3.6e9 });
    let group = |plan: Option<i64>, event: &str, class: &str, samples: f64| {
        json!({ "plan_id": plan, "event": event, "class": class, "samples": samples, "sessions": 1, "time_us": samples * 1e6,
                "stderr_us": (samples.sqrt() * 1e6).round() })
    };
    let figures = |plan: i64, role: &str, calls: f64, us: f64, gets: f64| {
        json!({ "query_id": QUERY, "plan_id": plan, "database": "shop", "user": role, "calls": calls, "elapsed_us": us, "cpu_us": us / 2.0,
                "plans": calls, "plan_us": calls * 100.0, "rows": calls, "shared_blks_hit": gets, "shared_blks_read": calls * 2.0,
                "blk_read_us": us / 4.0, "temp_blks_read": 0, "temp_blks_written": 8.0 * calls, "wal_bytes": 1024.0 * calls,
                "eligible_bytes": 0, "saved_bytes": 0, "returned_bytes": 0, "max_us": us / calls * 3.0 })
    };
    json!({
        "format": 1, "kind": "sql",
        "instance": { "id": 1, "name": "shop", "cpus": 4 },
        "begin": { "snap_id": 11, "time": "2026-11-23T11:00:00+00:00" }, "end": { "snap_id": 14, "time": "2026-11-23T14:00:00+00:00" },
        "snapshots": [snapshot(12), snapshot(13), snapshot(14)],
        "elapsed_us": 3.0 * 3.6e9, "db_time_us": 100e6,
        "statement": { "query_id": QUERY, "text": "SELECT amount FROM stock WHERE id = $1" },
        "statements": [figures(INDEX_PLAN, "web", 900.0, 1.5e6, 3600.0), figures(INDEX_PLAN, "batch", 100.0, 0.5e6, 400.0),
                       figures(SCAN_PLAN, "web", 100.0, 20e6, 100_000.0)],
        "plans": [{ "query_id": QUERY, "plan_id": INDEX_PLAN, "text": "Index Scan using stock_id on stock" },
                  { "query_id": QUERY, "plan_id": SCAN_PLAN, "text": "Seq Scan on stock" }],
        "plan_history": [history(11, INDEX_PLAN, 500.0, 1000.0, 4.0, 2.0), history(12, INDEX_PLAN, 500.0, 1000.0, 4.0, 2.0),
                         history(13, SCAN_PLAN, 100.0, 200_000.0, 1000.0, 2.0), history(14, INDEX_PLAN, 500.0, 3000.0, 4.0, 2.0)],
        "history": { "samples": 25, "time_us": 25e6, "stderr_us": 5e6, "period_us": 1e6,
                     "groups": [group(Some(SCAN_PLAN), "DataFileRead", "User I/O", 16.0), group(Some(SCAN_PLAN), "CPU", "CPU", 4.0),
                                group(Some(INDEX_PLAN), "CPU", "CPU", 4.0), group(None, "CPU", "CPU", 1.0)] }
    })
}

fn built(value: &Value) -> Document {
    parse(value.to_string().as_bytes()).unwrap().remove(0)
}

fn section<'a>(report: &'a Report, id: &str) -> &'a Section {
    report.sections.iter().find(|section| section.id == id).unwrap_or_else(|| panic!("no {id}"))
}

fn cell(report: &Report, id: &str, row: usize, column: &str) -> String {
    let table = section(report, id).tables().next().unwrap_or_else(|| panic!("no table in {id}"));
    table.rows[row][table.column(column).unwrap_or_else(|| panic!("no {column} in {id}"))].print()
}

fn sentences(report: &Report, id: &str) -> Vec<String> {
    let sentence = |block: &Block| match block {
        Block::Sentence(sentence) => Some(sentence.clone()),
        _ => None,
    };
    section(report, id).blocks.iter().filter_map(sentence).collect()
}

#[test]
fn the_report_has_all_sections_and_fits_132_columns() {
    let text = text(&of(&[built(&document())]));
    for title in [
        "WORKLOAD REPOSITORY SQL Report",
        "SQL Summary",
        "Full SQL Text",
        "SQL ID: 000000000001a",
        "Plan Statistics ",
        "Plan Statistics per Execution",
        "SQL Statistics by Snapshot",
        "Top Events by Plan",
        "Execution Plans",
    ] {
        assert!(text.lines().any(|line| format!("{line} ").starts_with(title)), "{title}\n{text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
    assert!(text.contains("SELECT amount FROM stock WHERE id = $1") && text.contains("Seq Scan on stock"), "{text}");
    assert!(text.contains("SNAP_ID") && text.contains("AVG_ETIME") && text.contains("AVG_PIO"), "{text}");
}

#[test]
fn figures_are_summed_over_roles_and_shown_per_plan_and_per_execution() {
    let report = of(&[built(&document())]);
    let (scan, index) = (SCAN_PLAN.to_string(), INDEX_PLAN.to_string());
    // The plan with the most elapsed time comes first.
    assert_eq!(cell(&report, "sql-plan-list", 0, "Plan Hash Value"), scan);
    assert_eq!(cell(&report, "sql-plan-list", 0, "Mean Time"), "200.00ms");
    assert_eq!(cell(&report, "sql-plan-list", 0, "x Fastest"), "100.0");
    assert_eq!(cell(&report, "sql-plan-list", 1, "Plan Hash Value"), index);
    assert_eq!(cell(&report, "sql-plan-list", 1, "Executions"), "1,000");
    let captured = |row, column| cell(&report, "sql-plan-list", row, column);
    assert_eq!((captured(1, "1st Capture Snap ID"), captured(1, "Last Capture Snap ID")), ("12".into(), "14".into()));
    assert_eq!((captured(0, "1st Capture Snap ID"), captured(0, "Last Capture Snap ID")), ("13".into(), "13".into()));
    let total = |column| cell(&report, "sql-plan-statistics", 1, column);
    assert_eq!(
        (total("Elapsed Time"), total("CPU Time"), total("I/O Wait")),
        ("2.00s".into(), "1.00s".into(), "500.00ms".into())
    );
    assert_eq!(
        (total("Buffer Gets"), total("Physical Reads"), total("Rows Processed")),
        ("6,000".into(), "2,000".into(), "1,000".into())
    );
    assert_eq!(
        (total("Temp Blocks"), total("WAL"), total("Max Time")),
        ("8,000".into(), "1000K".into(), "15.00ms".into())
    );
    let each = |column| cell(&report, "sql-plan-averages", 1, column);
    assert_eq!(
        (each("Elapsed Time"), each("CPU Time"), each("I/O Wait")),
        ("2.00ms".into(), "1.00ms".into(), "500.00us".into())
    );
    assert_eq!((each("Buffer Gets"), each("Physical Reads"), each("WAL")), ("6.0".into(), "2.0".into(), "1.0K".into()));
    assert_eq!((each("Plan Time"), each("Offload Eligible")), ("100.00us".into(), "0".into()));
    assert_eq!(cell(&report, "sql-summary", 0, "% Total DB Time"), "22.00");
    assert_eq!(cell(&report, "sql-summary", 0, "SQL Module"), "batch,web@shop");
}

#[test]
fn a_changed_plan_and_slower_storage_are_told_apart() {
    let report = of(&[built(&document())]);
    let table = section(&report, "plan-changes").tables().next().unwrap();
    let verdicts: Vec<String> =
        (0..table.rows.len()).map(|row| cell(&report, "plan-changes", row, "VERDICT")).collect();
    // The first interval of the period is compared with the one before the period, which is not listed.
    assert_eq!(verdicts, ["", "plan changed, 200.0x slower", "plan changed, 66.7x faster"]);
    assert_eq!(cell(&report, "plan-changes", 0, "SNAP_ID"), "12");
    assert_eq!(sentences(&report, "sql-plan-list"), ["Plan changed. AWR snapshots: 13, 14."]);

    let mut value = document();
    value["plan_history"].as_array_mut().unwrap().remove(2);
    let report = of(&[built(&value)]);
    assert_eq!(cell(&report, "plan-changes", 1, "VERDICT"), "same plan, slower storage, 3.0x");
    assert_eq!(
        sentences(&report, "sql-plan-list"),
        ["Same plan, slower storage: as many reads, but 1.00s more than executions took before. AWR snapshots: 14."]
    );

    value["plan_history"][2]["physical_reads"] = json!(5000.0);
    let report = of(&[built(&value)]);
    assert_eq!(
        sentences(&report, "sql-plan-list"),
        ["Same plan, more reads: more blocks and more time. AWR snapshots: 14."]
    );
}

#[test]
fn a_slow_plan_in_the_last_interval_is_compared_with_the_fast_plan() {
    let mut value = document();
    value["plan_history"].as_array_mut().unwrap().pop();
    let report = of(&[built(&value)]);
    let expected = format!(
        "Plan {SCAN_PLAN} takes 200.0 times as long as plan {INDEX_PLAN} and reads more blocks: 19.90s more in the period."
    );
    assert_eq!(sentences(&report, "sql-plan-list"), ["Plan changed. AWR snapshots: 13.".to_owned(), expected]);
}

#[test]
fn waits_are_shares_of_the_samples_of_their_plan() {
    let report = of(&[built(&document())]);
    let row = |row: usize| {
        ["Plan Hash Value", "Event", "% of Plan", "% Activity", "How"]
            .map(|column| cell(&report, "sql-waits", row, column))
    };
    assert_eq!(row(0), [&SCAN_PLAN.to_string(), "DataFileRead", "80.0", "64.0", "sampled ±4.00s"]);
    assert_eq!(row(1), [&SCAN_PLAN.to_string(), "CPU + Wait for CPU", "20.0", "16.0", "sampled ±2.00s"]);
    assert_eq!(row(2), [&INDEX_PLAN.to_string(), "CPU + Wait for CPU", "100.0", "16.0", "sampled ±2.00s"]);
    assert_eq!(row(3), ["(no plan)", "CPU + Wait for CPU", "100.0", "4.0", "sampled ±1.00s"]);
}

#[test]
fn the_chart_has_a_slot_per_snapshot_and_a_series_per_plan() {
    let report = of(&[built(&document())]);
    let chart = report.sections.iter().flat_map(|section| &section.blocks).find_map(|block| match block {
        Block::Chart(Chart::Columns { series, slots, .. }) => Some((series.clone(), slots.clone())),
        _ => None,
    });
    let (series, slots) = chart.expect("a chart");
    assert_eq!(series, [format!("Plan {INDEX_PLAN}"), format!("Plan {SCAN_PLAN}")]);
    let columns: Vec<(&str, usize, f64)> =
        slots.iter().map(|(label, columns)| (label.as_str(), columns[0].series, columns[0].us)).collect();
    assert_eq!(columns, [("12:00:00", 0, 1000.0), ("13:00:00", 1, 200_000.0), ("14:00:00", 0, 3000.0)]);
    let page = html(&report);
    let (content, _) = page.split_once("<script>").expect("a script");
    assert!(content.contains("AWR snapshot 13, plan 2222222222222222222: 200.00ms in 100 executions"));
    assert!(content.contains("by AWR snapshot and plan (ms)") && !content.contains("NaN"));
    let value: Value = serde_json::from_str(&json(&report)).unwrap();
    assert_eq!(value["kind"], "sql");
}

#[test]
fn a_period_of_days_has_dates_and_one_without_executions_has_samples() {
    let mut value = document();
    value["elapsed_us"] = json!(90_000e6);
    let labels = |value: &Value| -> Vec<String> {
        let report = of(&[built(value)]);
        let blocks = report.sections.iter().flat_map(|section| &section.blocks);
        let slots = blocks.filter_map(|block| match block {
            Block::Chart(Chart::Columns { slots, .. }) => Some(slots.iter().map(|(label, _)| label.clone())),
            _ => None,
        });
        slots.flatten().collect()
    };
    assert_eq!(labels(&value), ["23-Nov 12:00", "23-Nov 13:00", "23-Nov 14:00"]);

    // The statement has been running for days: no execution ended.
    value["statements"] = json!([]);
    value["plan_history"] = json!([]);
    let report = of(&[built(&value)]);
    assert!(labels(&value).is_empty());
    assert_eq!(sentences(&report, "sql-plan-statistics").len(), 1);
    assert_eq!(cell(&report, "sql-waits", 0, "Plan Hash Value"), SCAN_PLAN.to_string());
    assert!(text(&report).contains("executions that failed or had not ended"));
    assert!(html(&report).contains("Seq Scan on stock"));
}

#[test]
fn texts_cannot_inject_markup_and_missing_texts_are_named() {
    let mut value = document();
    value["statement"]["text"] = json!("SELECT '<script>alert(1)</script>'");
    value["plans"][0]["text"] = json!("</td><script>");
    let page = html(&of(&[built(&value)]));
    assert!(!page.contains("<script>alert") && !page.contains("</td><script>"));
    value["statement"] = json!({ "query_id": QUERY });
    value["plans"] = Value::Null;
    let text = text(&of(&[built(&value)]));
    assert!(text.contains("the repository contains no text of the statement"), "{text}");
}

#[test]
fn many_plans_share_the_last_colour() {
    let mut value = document();
    let mut rows = Vec::new();
    for plan in 1..=30 {
        let mut row = value["plan_history"][1].clone();
        row["plan_id"] = json!(plan);
        row["elapsed_us"] = json!(1000.0 * f64::from(plan));
        rows.push(row);
    }
    value["plan_history"] = json!(rows);
    let report = of(&[built(&value)]);
    let chart = report.sections.iter().flat_map(|section| &section.blocks).find_map(|block| match block {
        Block::Chart(Chart::Columns { series, slots, .. }) => Some((series.clone(), slots.clone())),
        _ => None,
    });
    let (series, slots) = chart.expect("a chart");
    assert_eq!((series.len(), series[0].as_str(), series[11].as_str()), (12, "Plan 30", "Other plans"));
    assert_eq!(slots[0].1.iter().filter(|column| column.series == 11).count(), 19);
}
