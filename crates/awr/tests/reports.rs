//! Reports as a whole: the text of a small document, properties of all forms, bad input, global and diff reports.

use crate::support::{Builder, HOUR_US, SELECT};
use cellar_awr::document::{DocumentError, parse};
use cellar_awr::render::{Format, WIDTH, html, json, render, text};
use cellar_awr::report::{Report, difference, global, instance, of};
use cellar_awr::sections::{Block, Chart, Section};
use cellar_awr::sql_id;
use cellar_awr::table::Cell;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;

fn reports() -> Vec<Report> {
    let (healthy, busy) = (Builder::healthy().build(), Builder::busy().build());
    let empty = parse(br#"{"format": 1}"#).unwrap().remove(0);
    vec![
        instance(&healthy),
        instance(&busy),
        instance(&empty),
        global(&[healthy.clone(), busy.clone()]),
        global(&[empty.clone(), busy.clone()]),
        difference(&healthy, &busy),
        difference(&busy, &empty),
    ]
}

/// The text report is compared byte for byte. After an intended change, CELLAR_WRITE_FIXTURES=1 writes the file.
#[test]
fn text_of_the_busy_hour_is_unchanged() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/busy.txt");
    let text = text(&instance(&Builder::busy().build()));
    if std::env::var_os("CELLAR_WRITE_FIXTURES").is_some() {
        std::fs::write(&file, &text).unwrap();
    }
    let expected = std::fs::read_to_string(&file).unwrap_or_default();
    for (number, (line, wanted)) in text.lines().zip(expected.lines()).enumerate() {
        assert_eq!(line, wanted, "line {}", number + 1);
    }
    assert_eq!(text.lines().count(), expected.lines().count());
}

#[test]
fn no_line_of_a_text_report_exceeds_132_columns() {
    for report in reports() {
        for line in text(&report).lines() {
            assert!(line.chars().count() <= WIDTH, "{}: {line}", report.title);
            assert_eq!(line.trim_end(), line);
        }
    }
}

#[test]
fn html_is_one_balanced_file_without_references_to_others() {
    for report in reports() {
        let page = html(&report);
        for reference in ["http://", "https://", "src=", "@import", "url("] {
            assert!(!page.contains(reference), "{}: {reference}", report.title);
        }
        assert_balanced(&page);
        let ids: BTreeSet<&str> = attribute_values(&page, "id=\"").collect();
        assert_eq!(ids.len(), attribute_values(&page, "id=\"").count() - repeated_findings(&page), "{}", report.title);
        for target in attribute_values(&page, "href=\"#") {
            assert!(ids.contains(target), "{}: no element {target}", report.title);
        }
        let (content, _) = page.split_once("<script>").expect("a script");
        assert!(!content.contains("NaN") && !content.contains("inf\""), "{}", report.title);
    }
}

/// Several findings of one rule have the same anchor.
fn repeated_findings(page: &str) -> usize {
    let findings: Vec<&str> = attribute_values(page, "id=\"finding-").collect();
    findings.len() - findings.iter().collect::<BTreeSet<_>>().len()
}

fn attribute_values<'a>(page: &'a str, attribute: &'a str) -> impl Iterator<Item = &'a str> {
    page.split(attribute).skip(1).filter_map(|rest| rest.split('"').next())
}

/// Checks that every element is closed in order. Style and script contain no markup.
fn assert_balanced(page: &str) {
    let mut open: Vec<String> = Vec::new();
    let mut rest = page;
    while let Some(start) = rest.find('<') {
        rest = &rest[start + 1..];
        let end = rest.find('>').expect("an end of the tag");
        let tag = &rest[..end];
        rest = &rest[end + 1..];
        let name: String = tag.trim_start_matches('/').chars().take_while(|c| c.is_ascii_alphanumeric()).collect();
        if tag.starts_with('!') || tag.ends_with('/') || matches!(name.as_str(), "meta" | "br") {
            continue;
        }
        if tag.starts_with('/') {
            assert_eq!(open.pop().as_deref(), Some(name.as_str()), "before {:.80}", rest);
            continue;
        }
        if matches!(name.as_str(), "style" | "script") {
            rest = &rest[rest.find(&format!("</{name}>")).expect("an end of the element")..];
        }
        open.push(name);
    }
    assert_eq!(open, Vec::<String>::new());
}

#[test]
fn texts_of_the_document_cannot_inject_markup_or_break_lines() {
    let evil = "</td><script>alert(\"1\")</script>\u{1b}[31m'\n& x";
    let mut value = Builder::busy().0;
    replace_texts(&mut value, evil);
    let report = instance(&Builder(value).build());
    let page = html(&report);
    assert!(!page.contains("<script>alert") && !page.contains('\u{1b}'));
    assert_balanced(&page);
    let parsed: Value = serde_json::from_str(&json(&report)).unwrap();
    assert_eq!(parsed["kind"], "instance");
    assert!(text(&report).lines().all(|line| line.chars().count() <= WIDTH));
}

/// Replaces every text that an outside user can choose.
fn replace_texts(value: &mut Value, text: &str) {
    const CHOSEN: [&str; 10] =
        ["name", "text", "database", "schema", "application", "role", "table", "host", "object", "detail"];
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| replace_texts(item, text)),
        Value::Object(fields) => {
            let is_figure = fields.contains_key("value") || fields.contains_key("us");
            for (name, field) in fields {
                match field {
                    Value::String(old) if CHOSEN.contains(&name.as_str()) && !is_figure => *old = text.to_owned(),
                    field => replace_texts(field, text),
                }
            }
        }
        _ => {}
    }
}

#[test]
fn json_contains_exact_figures_with_units_and_findings() {
    let report: Value = serde_json::from_str(&json(&instance(&Builder::busy().build()))).unwrap();
    let sections = report["sections"].as_array().unwrap();
    let section = |id: &str| sections.iter().find(|section| section["id"] == id).unwrap_or_else(|| panic!("no {id}"));
    let table = &section("sql-elapsed-time")["tables"][0];
    assert_eq!(table["columns"][0], json!({ "name": "Elapsed Time (s)", "unit": "us" }));
    assert_eq!(table["rows"][0][0], json!(0.15 * HOUR_US));
    let id = &table["rows"][0][6];
    assert_eq!((id["query_id"].as_i64(), id["sql_id"].as_str()), (Some(SELECT), Some(sql_id::format(SELECT).as_str())));
    let ids: Vec<&str> =
        report["findings"].as_array().unwrap().iter().filter_map(|finding| finding["id"].as_str()).collect();
    assert!(ids.contains(&"lock-waits") && ids.contains(&"plan-regression"), "{ids:?}");
    let volumes = &section("smart-scan-volumes")["tables"][0]["rows"][0];
    assert_eq!(volumes[4], json!(2_591_843_581_952_i64));
}

#[test]
fn every_section_has_a_table_or_says_what_is_missing() {
    for report in reports() {
        let mut ids = BTreeSet::new();
        for section in &report.sections {
            assert!(ids.insert(section.id.clone()), "{} twice", section.id);
            let has_content = section.blocks.iter().any(|block| match block {
                Block::Table(table) => {
                    !table.rows.is_empty() && table.rows.iter().all(|row| row.len() == table.columns.len())
                }
                Block::Sentence(sentence) => !sentence.is_empty(),
                Block::Finding(_) => true,
                Block::Chart(_) => false,
            });
            assert!(has_content, "{}: {} is empty", report.title, section.id);
        }
    }
}

#[test]
fn an_unavailable_source_is_named_with_the_way_to_enable_it() {
    let text = text(&instance(&Builder::healthy().without("io").without("statements").build()));
    for sentence in [
        "no file of the cluster is on a cell",
        "pg_stat_io needs PostgreSQL 16 or newer",
        "set cellar.awr_track_statements to on",
    ] {
        assert!(text.contains(sentence), "{sentence}");
    }
}

/// Titles that programs search for when they read AWR reports.
#[test]
fn sections_and_columns_carry_the_names_of_oracle() {
    let text = text(&instance(&Builder::busy().build()));
    for title in [
        "WORKLOAD REPOSITORY report for",
        "Load Profile",
        "Instance Efficiency Percentages (Target 100%)",
        "Top 10 Foreground Events by Total Wait Time",
        "Wait Classes by Total Wait Time",
        "Host CPU",
        "IO Profile",
        "Time Model Statistics",
        "Operating System Statistics",
        "Foreground Wait Class",
        "Foreground Wait Events",
        "Background Wait Events",
        "Wait Event Histogram",
        "Wait Event Histogram (up to 32 ms)",
        "Service Statistics",
        "SQL ordered by Elapsed Time",
        "SQL ordered by CPU Time",
        "SQL ordered by User I/O Wait Time",
        "SQL ordered by Gets",
        "SQL ordered by Reads",
        "SQL ordered by Executions",
        "SQL ordered by Offload Eligible Bytes",
        "Complete List of SQL Text",
        "Key Instance Activity Stats",
        "Instance Activity Stats",
        "IOStat by Function summary",
        "IOStat by Filetype summary",
        "Tablespace IO Stats",
        "Buffer Pool Statistics",
        "Checkpoint Activity",
        "Segments by Logical Reads",
        "Segments by Physical Reads",
        "Top SQL with Top Events",
        "Activity Over Time",
        "Modified Parameters",
        "End of Report",
    ] {
        assert!(text.lines().any(|line| line.starts_with(title)), "{title}");
    }
    let starts = ["  Begin Snap:", "    End Snap:", "DB Time(s):", "Transactions:", "SNAP_ID NODE BEGIN_INTERVAL_TIME"];
    for start in starts {
        assert!(text.lines().any(|line| line.trim_start().starts_with(start.trim_start())), "{start}");
    }
}

/// The script of the XtremIO article divides word 9 by word 7 of the line of an event, from the class on, for the latency,
/// and takes word 4 of the line of a statistic for the rate.
#[test]
fn the_script_of_an_article_reads_the_global_report() {
    let mut document = Builder::healthy().build();
    document.events = parse(
        json!({ "format": 1, "events": [{ "event": "db file sequential read", "class": "User I/O", "foreground": true,
            "waits": 571_931_278, "time_us": 549_803_060_000_u64, "how": "timed" }] })
        .to_string()
        .as_bytes(),
    )
    .unwrap()
    .remove(0)
    .events;
    let text = text(&global(&[document.clone(), document]));
    let line = text.lines().find(|line| line.contains("db file sequential read")).expect("a line of the event");
    let words: Vec<&str> = line[line.find("User").unwrap()..].split_whitespace().collect();
    let number = |word: &str| word.replace(',', "").parse::<f64>().unwrap_or_else(|_| panic!("{word} in {line}"));
    let latency_ms = number(words[8]) / number(words[6]) * 1000.0;
    assert!((latency_ms - 0.961).abs() < 0.001, "{latency_ms}");
    let reads = text.lines().find(|line| line.starts_with("physical reads ")).expect("a line of the statistic");
    let words: Vec<&str> = reads.split_whitespace().collect();
    assert_eq!(number(words[3]), 200.0);
}

#[test]
fn plan_changes_and_slower_storage_are_told_apart() {
    let history = |snap: i64, plan: i64, seconds: f64, reads: f64| {
        json!({ "snap_id": snap, "time": "2013-07-15T07:30:03+00:00", "query_id": SELECT, "plan_id": plan, "calls": 1,
            "elapsed_us": seconds * 1e6, "logical_reads": reads, "physical_reads": reads - 400.0 })
    };
    // From the article about an I/O problem on Exadata: as many reads, three times the time; then another plan.
    let rows = json!([
        history(9700, 1, 288.559, 55_876_213.0),
        history(9748, 1, 334.543, 55_876_213.0),
        history(12_047, 1, 565.923, 55_876_638.0),
        history(12_096, 1, 1_148.289, 55_878_883.0),
        history(13_777, 1, 166.424, 55_876_181.0),
        history(13_800, 1, 900.0, 155_876_181.0),
        history(13_825, 2, 40.0, 1_000.0),
    ]);
    let report = instance(&Builder::healthy().set("/plan_history", rows).build());
    let section = report.sections.iter().find(|section| section.id == "plan-changes").unwrap();
    let table = section.tables().next().unwrap();
    let verdicts: Vec<String> = table.rows.iter().map(|row| row[9].print()).collect();
    assert_eq!(
        verdicts,
        [
            "",
            "",
            "same plan, slower storage, 1.8x",
            "same plan, slower storage, 3.7x",
            "",
            "same plan, more reads, 3.4x",
            "plan changed, 10.6x faster"
        ]
    );
    let names: Vec<&str> = table.columns.iter().map(|column| column.name.as_str()).collect();
    assert_eq!(
        names[..9],
        [
            "SNAP_ID",
            "NODE",
            "BEGIN_INTERVAL_TIME",
            "SQL_ID",
            "PLAN_HASH_VALUE",
            "EXECS",
            "AVG_ETIME",
            "AVG_LIO",
            "AVG_PIO"
        ]
    );
}

fn section<'a>(report: &'a Report, id: &str) -> &'a Section {
    report.sections.iter().find(|section| section.id == id).unwrap_or_else(|| panic!("no section {id}"))
}

/// The cells of the rows of a section's first table, as printed.
fn printed(report: &Report, id: &str) -> Vec<Vec<String>> {
    let table = section(report, id).tables().next().unwrap_or_else(|| panic!("{id} has no table"));
    table.rows.iter().map(|row| row.iter().map(Cell::print).collect()).collect()
}

#[test]
fn cell_disks_and_flash_disks_have_rates_latencies_and_errors_of_their_own() {
    let rows = printed(&instance(&Builder::busy().build()), "cell-disk-io");
    let names: Vec<&[String]> = rows.iter().map(|row| &row[..3]).collect();
    assert_eq!(
        names,
        [
            ["cell disk", "cell1", "/disks/a"],
            ["cell disk", "cell2", "/disks/b"],
            ["cell disk", "Total (2)", ""],
            ["flash disk", "cell1", "/flash/a"]
        ]
    );
    // 36,000 reads of 3.6 GiB in 144 s, 7,200 writes, and two errors in an hour.
    assert_eq!(rows[0][3..9], ["10.0", "1.00", "4.00ms", "2.0", "0.02", "1.00ms"]);
    assert_eq!(rows[0][12..], ["2", "0"]);
    assert_eq!(rows[2][9..12], ["0.2", "5.00ms", "0.04"]);
    assert_eq!(rows[3][3..6], ["100.0", "0.78", "100.00us"]);
    let histogram = printed(&instance(&Builder::busy().build()), "cell-disk-histogram");
    assert_eq!(histogram[0][..5], ["cell disk", "cell1", "/disks/a", "read", "36,000"]);
    let parts: f64 = histogram[0][5..].iter().map(|count| count.replace(',', "").parse::<f64>().unwrap()).sum();
    assert_eq!(parts, 36_000.0);
}

#[test]
fn io_over_time_is_charted_from_two_intervals_on() {
    let interval = |hour: usize, factor: f64| {
        json!({ "snap_id": 101 + hour, "time": format!("2026-11-23T{:02}:00:00+00:00", 5 + hour), "elapsed_us": HOUR_US,
            "db_time_us": HOUR_US, "io_counted_by": "cells", "reads": 360_000.0 * factor, "read_bytes": 3_774_873_600.0 * factor,
            "read_us": 1.8e8, "writes": 36_000.0, "write_bytes": 377_487_360.0, "write_us": 7.2e6 })
    };
    let report = |intervals: Value| instance(&Builder::healthy().set("/snapshots", intervals).build());
    let charts = |report: &Report| {
        let blocks = section(report, "io-over-time").blocks.iter();
        blocks.filter(|block| matches!(block, Block::Chart(Chart::Lines { .. }))).count()
    };
    let two = report(json!([interval(1, 1.0), interval(2, 2.0)]));
    assert_eq!(charts(&two), 3);
    let rows = printed(&two, "io-over-time");
    assert_eq!(rows[0][2..], ["1.00", "0.10", "100.0", "10.0", "0.500", "0.200"]);
    assert_eq!(rows[1][2..], ["2.00", "0.10", "200.0", "10.0", "0.250", "0.200"]);
    assert_eq!(charts(&report(json!([interval(1, 1.0)]))), 0);
    // PostgreSQL counts reads only: there is no line of writes.
    let reads = |hour: i64| {
        json!({ "snap_id": hour, "time": format!("2026-11-23T0{hour}:00:00+00:00"), "elapsed_us": HOUR_US, "io_counted_by": "PostgreSQL",
            "reads": 3600, "read_bytes": 29_491_200 })
    };
    let plain = report(json!([reads(5), reads(6)]));
    assert_eq!(charts(&plain), 2);
    assert_eq!(section(&plain, "io-over-time").tables().next().unwrap().columns.len(), 4);
}

#[test]
fn lists_say_how_their_figures_were_obtained() {
    let relation = json!({ "is_class": false, "database": "shop", "class": "index", "schema": "public", "table": "orders",
        "index": "orders_pkey", "filenode": 1, "writes": 10, "write_bytes": 163_840 });
    let class = json!({ "is_class": true, "database": "shop", "class": "index", "writes": 20, "write_bytes": 327_680 });
    let document = Builder::busy().set("/cell_files", json!([class, relation])).set("/tables/0/row_lock_waits", 3);
    let report = instance(&document.build());
    let how = |id: &str| {
        let table = section(&report, id).tables().next().unwrap_or_else(|| panic!("{id} has no table"));
        let column = table.column("How").unwrap_or_else(|| panic!("{id} has no column How"));
        table.rows.iter().map(|row| row[column].print()).collect::<Vec<_>>()
    };
    assert_eq!(how("sql-elapsed-time")[0], "timed");
    // Of the statement with a mean of 180 us, the CPU time is read in some executions.
    assert_eq!(how("sql-cpu-time"), ["counted", "sampled", "counted"]);
    assert_eq!(how("sql-gets")[0], "counted");
    assert_eq!(how("load-profile")[..2], ["timed", "counted"]);
    assert_eq!(how("segments-logical-reads")[0], "counted");
    assert_eq!(how("segments-row-lock-waits"), ["sampled"]);
    assert_eq!(how("segments-physical-writes"), ["counted"]);
    let writes = &printed(&report, "segments-physical-writes")[0];
    assert_eq!(writes[..3], ["public", "orders_pkey", "shop"]);
    assert_eq!(writes[3..7], ["INDEX", "10", "20", "50.00"]);
}

#[test]
fn db_time_is_the_sum_of_its_parts() {
    let report = instance(&Builder::busy().build());
    let section = report.sections.iter().find(|section| section.id == "wait-classes").unwrap();
    let table = section.tables().next().unwrap();
    let time = table.column("Total Wait Time (sec)").unwrap();
    let sum: f64 = table.rows.iter().filter_map(|row| row[time].number()).sum();
    assert!((sum - 2.0 * HOUR_US).abs() < 1.0, "{sum}");
}

/// PostgreSQL counts the blocks of a TOAST table in the row of the table and in the row of the TOAST table.
#[test]
fn blocks_of_toast_tables_count_once() {
    let mut builder = Builder::healthy();
    builder.0["databases"] = json!([]);
    builder.0["statements"] = json!([]);
    builder.0["tables"] = json!([
        { "database": "shop", "schema": "public", "name": "letters", "oid": 1, "toast": false, "tablespace": "fast",
          "heap_blks_read": 100, "heap_blks_hit": 300, "idx_blks_read": 10, "idx_blks_hit": 30,
          "toast_blks_read": 1000, "toast_blks_hit": 3000, "tidx_blks_read": 1, "tidx_blks_hit": 3 },
        { "database": "shop", "schema": "pg_toast", "name": "pg_toast_1", "oid": 2, "toast": true, "tablespace": "fast",
          "heap_blks_read": 1000, "heap_blks_hit": 3000, "idx_blks_read": 1, "idx_blks_hit": 3 },
        { "database": "shop", "schema": "pg_catalog", "name": "pg_class", "oid": 1259, "toast": false, "tablespace": "fast",
          "heap_blks_read": 20, "heap_blks_hit": 0, "idx_blks_read": 5, "idx_blks_hit": 0 }
    ]);
    let text = text(&instance(&builder.build()));
    let lines: Vec<String> = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    // Tablespace: 100 + 10 + 1000 + 1 + 20 + 5 blocks read.
    for start in ["fast 1,136 0.32 4,469 74.58", "TOAST 7.8M", "Table 800K", "Index 80.0K", "Catalog 200K"] {
        assert!(lines.iter().any(|line| line.starts_with(start)), "{start} is missing in\n{text}");
    }
}

#[test]
fn the_state_of_the_archiver_is_reported() {
    let mut builder = Builder::healthy();
    builder.0["archiver"] = json!({ "state": "failing", "backlog_bytes": 50_331_648, "since_us": 90_000_000, "last_failed": "00000001000000000000002A" });
    let text = text(&instance(&builder.build()));
    let lines: Vec<String> = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    for line in [
        "WAL that waits for the archiver, at the end 48.0M",
        "Time since the last archived file, at the end 90.00s",
        "File that the archiver failed to archive last 00000001000000000000002A",
    ] {
        assert!(lines.iter().any(|found| found.starts_with(line)), "{line} is missing in\n{text}");
    }
}

#[test]
fn a_diff_ranks_changes_by_their_share_of_db_time() {
    let report = difference(&Builder::healthy().build(), &Builder::busy().build());
    let section = report.sections.iter().find(|section| section.id == "changes").unwrap();
    let table = section.tables().next().unwrap();
    let first: Vec<String> = table.rows.iter().take(2).map(|row| row[1].print()).collect();
    assert_eq!(first, ["VacuumDelay", "DataFileRead"]);
    let share = table.column("% DB time").unwrap();
    assert_eq!(table.rows[1][share].print(), "21.0");
    // Sizes and periods of different length compare by rates.
    let half = Builder::healthy().set("/elapsed_us", 0.5 * HOUR_US).set("/db_time_us", HOUR_US).build();
    let report = difference(&Builder::healthy().build(), &half);
    assert!(text(&report).contains("DB time per second of the second period: 0.0 % more than the first"));
    for (sessions, expected) in
        [(137.0, "137 times the first"), (2.5, "2.5 times the first"), (0.4, "60.0 % less than the first")]
    {
        let second = Builder::healthy().set("/db_time_us", 2.0 * HOUR_US * sessions).build();
        let report = difference(&Builder::healthy().build(), &second);
        assert!(text(&report).contains(&format!("of the second period: {expected}")), "{expected}");
    }
}

#[test]
fn one_document_makes_an_instance_report_and_several_a_global_one() {
    let document = Builder::healthy().build();
    assert_eq!(of(std::slice::from_ref(&document)).kind.name(), "instance");
    assert_eq!(of(&[document.clone(), document]).kind.name(), "global");
}

#[test]
fn documents_with_errors_are_refused_with_the_place() {
    let error = |json: Value| parse(json.to_string().as_bytes()).unwrap_err();
    assert!(matches!(error(json!({ "format": 2 })), DocumentError::Format { found } if found == "2"));
    assert!(matches!(error(json!({})), DocumentError::Format { .. }));
    assert!(matches!(error(json!([])), DocumentError::Empty));
    assert!(matches!(parse(b"{").unwrap_err(), DocumentError::Json(_)));
    assert!(matches!(
        error(json!({ "format": 1, "begin": { "snap_id": 7 }, "end": { "snap_id": 7 } })),
        DocumentError::ReversedSnapshots { begin: 7, end: 7 }
    ));
    let times = error(
        json!({ "format": 1, "begin": { "time": "2026-11-23T06:00:00Z" }, "end": { "time": "2026-11-23T05:00:00Z" } }),
    );
    assert!(matches!(times, DocumentError::ReversedTimes { .. }), "{times}");
    let negative = error(json!({ "format": 1, "statements": [{}, { "query_id": -5, "calls": -1 }] }));
    assert_eq!(negative.to_string(), "report document has a negative figure: statements[1].calls is -1");
    let histogram = error(json!({ "format": 1, "events": [{ "histogram": vec![0; 65] }] }));
    assert!(matches!(histogram, DocumentError::Histogram { .. }), "{histogram}");
    // Absent and NULL are both unavailable; identifiers, settings and growths may be negative.
    let fine = json!({ "format": 1, "events": null, "databases": [{ "size_growth": -1 }], "plan_history": [{ "query_id": -1 }], "settings": [{ "name": "a", "end": -1 }] });
    assert_eq!(parse(fine.to_string().as_bytes()).unwrap()[0].db_time_us, None);
}

/// A report over many statements is rendered in seconds; unoptimized code and three forms are included.
#[test]
fn five_thousand_statements_are_rendered_quickly() {
    let mut builder = Builder::healthy();
    for query_id in 0..5_000_i64 {
        builder = builder.push("/statements", json!({ "query_id": query_id * 7_919, "database": "shop", "calls": query_id, "text": format!("SELECT {query_id}"),
            "elapsed_us": 1e6 * query_id as f64 % 977.0, "shared_blks_hit": query_id * 3 }));
    }
    let json = builder.json();
    let start = std::time::Instant::now();
    let report = of(&parse(&json).unwrap());
    for format in [Format::Text, Format::Html, Format::Json] {
        assert!(render(&report, format).len() > 10_000);
    }
    assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
}

/// On a host without a free core, sessions wait for a core after each wait, and the samples show the wait meanwhile.
#[test]
fn run_queue_time_that_the_waits_contain_is_not_counted_twice() {
    let busy_host = Builder::healthy().set("/databases/0/run_queue_us", HOUR_US).build();
    let model = cellar_awr::figures::time::TimeModel::of(&busy_host);
    // 2 hours of DB time - 0.9 of CPU - 1.02 of waits leave 0.08 for the run queue.
    let outside = model.run_queue_outside_waits_us().unwrap() / HOUR_US;
    assert!((outside - 0.08).abs() < 1e-9, "{outside}");
    assert!(model.unaccounted_us().unwrap().abs() < 1.0);
    assert_eq!(model.run_queue_us.map(|us| us / HOUR_US), Some(1.0));
}

/// Without this part, the time of a session in pg_sleep() was taken for run-queue time, or was unaccounted for.
#[test]
fn idle_waits_in_statements_are_a_part_of_db_time() {
    let sleep =
        json!({ "event": "PgSleep", "class": "Idle", "foreground": true, "time_us": 0.05 * HOUR_US, "how": "sampled" });
    let sleeping = |us: f64| {
        let mut sleep = sleep.clone();
        sleep["time_us"] = json!(us);
        Builder::healthy().set("/databases/0/run_queue_us", HOUR_US).push("/events", sleep).build()
    };
    let model = cellar_awr::figures::time::TimeModel::of(&sleeping(0.05 * HOUR_US));
    let outside = model.run_queue_outside_waits_us().unwrap() / HOUR_US;
    assert!((outside - 0.03).abs() < 1e-9, "{outside}");
    assert!(model.unaccounted_us().unwrap().abs() < 1.0);
    let report = text(&instance(&sleeping(0.05 * HOUR_US)));
    assert!(report.contains("idle waits in statements") && report.contains("(idle waits in statements)"), "{report}");
    assert!(!text(&instance(&Builder::healthy().build())).contains("(idle waits in statements)"));
}

/// Slots in which no session was active are absent in the document, also at the end of the interval.
#[test]
fn the_picture_of_active_sessions_contains_idle_slots() {
    let slot = |time: &str| json!({ "time": time, "ticks": 10, "by_class": { "CPU": 20 } });
    let slots = ["2026-11-23T05:00:00Z", "2026-11-23T05:00:10Z", "2026-11-23T05:00:40Z"].map(slot);
    let document = Builder::healthy().set("/ash/slots", json!(slots)).set("/end/time", "2026-11-23T05:01:00Z").build();
    let report = instance(&document);
    let header = report.sections.iter().find(|section| section.id == "header").unwrap();
    let chart = header.blocks.iter().find_map(|block| match block {
        Block::Chart(Chart::ActiveSessions { slots, .. }) => Some(slots),
        _ => None,
    });
    let sessions: Vec<f64> = chart.unwrap().iter().map(|(_, slot)| slot.values().sum()).collect();
    assert_eq!(sessions, [2.0, 2.0, 0.0, 0.0, 2.0, 0.0]);
}

/// Cells of an earlier release count I/O by database and kind only.
#[test]
fn a_report_names_cells_that_do_not_count_by_file() {
    let io =
        json!({ "cell": "/run/c", "database": "shop", "kind": "multiblock read", "operations": 3, "bytes": 196_608 });
    let old = text(&instance(&Builder::healthy().set("/cell_io", json!([io])).build()));
    assert!(old.contains("the cells run a release that does not count I/O by file"), "{old}");

    let class = json!({ "is_class": true, "database": "shop", "class": "index", "reads": 3, "read_bytes": 196_608,
        "small_reads": 1, "read_us": 300, "small_read_us": 50, "histogram": [0, 0, 0, 0, 0, 0, 1, 2] });
    let relation = json!({ "is_class": false, "database": "shop", "class": "index", "schema": "public", "table": "t",
        "index": "t_a", "filenode": 16384, "reads": 2, "read_bytes": 131_072, "small_reads": 1, "read_us": 200,
        "small_read_us": 50, "histogram": [0, 0, 0, 0, 0, 0, 1, 1] });
    let new = Builder::healthy().set("/cell_io", json!([io])).set("/cell_files", json!([class, relation]));
    let new = text(&instance(&new.build()));
    assert!(!new.contains("does not count I/O by file"), "{new}");
    let line = |start: &str| {
        let line = new.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{start}: {new}"));
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ")
    };
    // The two large reads took 250 us; the rest of the files has one read.
    assert!(line("Index ").starts_with("Index shop 192K"), "{}", line("Index "));
    assert!(line("Index ").contains("50.00us 125.00us"), "{}", line("Index "));
    assert!(new.contains("public.t: t_a"), "{new}");
    let rest = new.lines().find(|line| line.contains("(other files)") && !line.starts_with("->")).unwrap();
    assert!(rest.split_whitespace().any(|word| word == "1"), "{rest}");
}

/// PostgreSQL counts a process only while the process exists; the total of its type contains ended ones.
#[test]
fn the_io_of_ended_sessions_is_the_rest_of_their_type() {
    let total = json!({ "backend_type": "client backend", "object": "relation", "context": "normal",
        "reads": 100, "read_bytes": 819_200, "read_us": 5000, "write_bytes": 8192 });
    let wal = json!({ "backend_type": "client backend", "object": "wal", "context": "normal", "write_bytes": 16384 });
    let session = json!({ "pid": 4711, "backend_type": "client backend", "database": "shop", "user": "till",
        "application": "till-7", "reads": 60, "read_bytes": 491_520, "read_us": 3000, "wal_bytes": 16384 });
    let base = Builder::healthy().set("/io", json!([total, wal]));
    let report = text(&instance(&base.set("/session_io", json!([session])).build()));
    let line = |part: &str| {
        let line = report.lines().find(|line| line.contains(part)).unwrap_or_else(|| panic!("{part}: {report}"));
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert!(line(" till-7 ").ends_with("shop till till-7 60 480K 50.00us 16.0K 60.2"), "{}", line(" till-7 "));
    let rest = line("(ended, or not listed)");
    assert!(rest.ends_with("listed) 40 320K 50.00us 8.0K 0 39.8"), "{rest}");
    let old = text(&instance(&Builder::healthy().build()));
    assert!(old.contains("pg_stat_get_backend_io needs PostgreSQL 18 or newer"), "{old}");
}

#[test]
fn flash_cache_and_resource_management_have_sections() {
    let mib = 1_048_576.0;
    let total = |name: &str, total: f64| json!({ "cell": "cell1", "name": name, "total": total });
    let value = |name: &str, value: f64| json!({ "cell": "cell1", "name": name, "value": value });
    let class = |database: &str, group: &str, size: &str, requests: f64, wait_us: f64| {
        json!({ "cell": "cell1", "database": database, "consumer_group": group, "size": size, "requests": requests,
                "bytes": requests * mib, "wait_us": wait_us, "request_us": requests * 500.0, "device_us": requests * 100.0,
                "flash_requests": 7.0, "flash_bytes": 7.0 * mib })
    };
    let document = Builder::busy()
        .set(
            "/cell_statistics",
            json!([
                value("flash_cache_online", 1.0),
                value("flash_cache_capacity_bytes", 4096.0 * mib),
                value("flash_cache_used_bytes", 2048.0 * mib),
                value("flash_cache_keep_used_bytes", 1024.0 * mib),
                value("iorm_mode_number", 1.0),
                value("write_back_selected", 1.0),
                value("write_back_dirty_bytes", 96.0 * mib),
                total("write_back_write_requests_total", 5000.0),
                total("write_back_first_write_requests_total", 4000.0),
                total("write_back_overwrite_requests_total", 1000.0),
                total("write_back_written_bytes_total", 720.0 * mib),
                total("write_back_first_written_bytes_total", 700.0 * mib),
                total("write_back_overwritten_bytes_total", 20.0 * mib),
                total("write_back_destaged_bytes_total", 604.0 * mib),
                total("flash_cache_hits_total", 7200.0),
                total("flash_cache_hit_bytes_total", 720.0 * mib),
                total("flash_cache_large_hits_total", 200.0),
                total("flash_cache_large_hit_bytes_total", 200.0 * mib),
                total("flash_cache_misses_total", 2400.0),
                total("flash_cache_large_miss_bytes_total", 600.0 * mib),
            ]),
        )
        .set(
            "/iorm",
            json!([
                class("shop", "web", "small", 1000.0, 0.0),
                class("archive", "batch", "large", 3000.0, 6e6),
                class("archive", "batch", "small", 10.0, 0.0),
            ]),
        )
        .build();
    let report = text(&instance(&document));
    for line in [
        "WriteBack normal       4.00 cell1",
        "cell1                 4.00         50.0       25.0         25.0",
        "cell1           7,200            2.0    7,000      200",
        "cell1  5,000  1.4  4,000  1,000  720.0",
        "low_latency cell1",
    ] {
        let words: Vec<&str> = line.split_whitespace().collect();
        let found = report.lines().any(|found| found.split_whitespace().collect::<Vec<_>>().starts_with(&words));
        assert!(found, "{line} is not in {report}");
    }
    // Hits and misses of small reads, and bytes of large ones
    let efficiency = report.split("Flash Cache User Reads Efficiency").nth(1).unwrap();
    let row = efficiency.lines().find(|line| line.starts_with("cell1")).unwrap();
    let words: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(words[1..10], ["7,200", "720.0", "75.0", "7,000", "2,400", "74.5", "200.0", "800.0", "25.0"]);
    let groups = report.split("IORM by Consumer Group").nth(1).unwrap();
    let row = groups.lines().find(|line| line.starts_with("archive")).unwrap();
    assert!(row.contains("batch") && row.contains("3,000.0") && row.contains("2.00ms"), "{row}");
}

#[test]
fn a_verdict_about_reads_explains_the_time() {
    let row = |snap_id: i64, calls: f64, ms: f64, logical: f64, physical: f64, cpu_ms: f64| {
        json!({ "snap_id": snap_id, "query_id": 7, "plan_id": 1, "calls": calls, "elapsed_us": calls * ms * 1e3, "cpu_us": calls * cpu_ms * 1e3,
            "logical_reads": calls * logical, "physical_reads": calls * physical })
    };
    let verdict = |rows: Value, samples: Value| {
        let builder =
            Builder::healthy().set("/plan_history", rows).set("/begin/snap_id", 1).set("/ash/top_sql", samples);
        let report = instance(&builder.build());
        let section = report.sections.iter().find(|section| section.id == "plan-changes").unwrap();
        section.tables().next().unwrap().rows[1][9].print()
    };
    let sampled = |event: &str, class: &str, samples: f64| json!([{ "query_id": 7, "event": event, "class": class, "samples": samples }]);
    // An UPDATE waited for a row lock: some more blocks do not explain 500 times the time.
    let locked = json!([row(1, 400.0, 200.0, 7.8, 0.8, 1.0), row(2, 400.0, 106_000.0, 9.6, 0.0, 1.0)]);
    assert_eq!(
        verdict(locked.clone(), sampled("transactionid", "Application", 9.0)),
        "same plan, slower for another reason, 530.0x: mostly transactionid (Application)"
    );
    assert_eq!(verdict(locked, json!([])), "same plan, slower for another reason, 530.0x");
    // Two reads do not take 9 seconds.
    let starved = json!([row(1, 400.0, 1_000.0, 900.0, 2.0, 30.0), row(2, 400.0, 10_000.0, 900.0, 2.0, 40.0)]);
    assert_eq!(
        verdict(starved, sampled("CPU", "CPU", 40.0)),
        "same plan, slower for another reason, 10.0x: mostly on a CPU or waiting for one"
    );
    let computing = json!([row(1, 400.0, 1_000.0, 900.0, 2.0, 900.0), row(2, 400.0, 10_000.0, 900.0, 2.0, 9_000.0)]);
    assert_eq!(verdict(computing, json!([])), "same plan, more CPU time, 10.0x slower");
    let slower = json!([row(1, 400.0, 1_000.0, 900.0, 800.0, 30.0), row(2, 400.0, 10_000.0, 900.0, 800.0, 40.0)]);
    assert_eq!(verdict(slower.clone(), json!([])), "same plan, slower storage, 10.0x");
    // Reads that could explain the time, but the samples show a lock.
    assert_eq!(
        verdict(slower, sampled("tuple", "Application", 36.0)),
        "same plan, slower for another reason, 10.0x: mostly tuple (Application)"
    );
    let larger = json!([row(1, 400.0, 1_000.0, 900.0, 2.0, 30.0), row(2, 400.0, 10_000.0, 9_000.0, 2.0, 40.0)]);
    assert_eq!(verdict(larger, json!([])), "same plan, more reads, 10.0x");
    let uncached = json!([row(1, 400.0, 10.0, 900.0, 0.0, 9.0), row(2, 400.0, 1_000.0, 900.0, 800.0, 9.0)]);
    assert_eq!(verdict(uncached, json!([])), "same plan, more reads, 100.0x");
}

#[test]
fn a_statistic_that_did_not_grow_is_zero() {
    let report = |version: f64| {
        let statistics = json!([{ "name": "session logical reads", "value": 1000 }, { "name": "pg_stat_bgwriter.buffers_alloc", "value": 10 },
            { "name": "pg_stat_wal.wal_bytes", "value": 1000 }]);
        instance(
            &Builder::healthy().set("/statistics", statistics).set("/instance/server_version_num", version).build(),
        )
    };
    let cell = |report: &Report, id: &str, column: &str| {
        let table = report.sections.iter().find(|section| section.id == id).unwrap().tables().next().cloned().unwrap();
        table.column(column).map(|column| table.rows[0][column].print())
    };
    let zero = || Some("0".to_owned());
    let old = report(150_020.0);
    for (id, column) in [
        ("buffer-pool", "Physical Writes"),
        ("buffer-pool", "Backend Writes"),
        ("checkpoints", "Checkpoints requested"),
        ("checkpoints", "Bgwriter Buffers"),
        ("checkpoints", "Backend Buffers"),
        ("checkpoints", "Backend Syncs"),
    ] {
        assert_eq!(cell(&old, id, column), zero(), "{id} {column}");
    }
    assert!(
        text(&old).lines().any(|line| line.starts_with("WAL buffers full") && line.contains(" 0 ")),
        "{}",
        text(&old)
    );
    // PostgreSQL 17 does not count writes of sessions in pg_stat_bgwriter.
    let new = report(170_002.0);
    assert_eq!(cell(&new, "buffer-pool", "Backend Writes"), None);
    assert_eq!(cell(&new, "checkpoints", "Checkpoints requested"), zero());
}

#[test]
fn the_shares_of_the_hosts_cpus_add_up_to_100() {
    let os = |name: &str, us: f64| json!({ "name": name, "value": us, "unit": "us" });
    let times = json!([
        os("BUSY_TIME", 227e6),
        os("IDLE_TIME", 73e6),
        os("IOWAIT_TIME", 8e6),
        os("USER_TIME", 63e6),
        os("NICE_TIME", 92e6),
        os("SYS_TIME", 70e6),
        os("IRQ_TIME", 1.5e6),
        os("STEAL_TIME", 0.5e6)
    ]);
    let document = Builder::healthy().set("/os", times).build();
    let other = document.clone();
    for (report, id, columns) in [
        (instance(&document), "host-cpu", ["%User", "%Nice", "%System", "%Steal", "%Idle"]),
        (global(&[document, other]), "os-statistics", ["% Usr", "% Nice", "% Sys", "% Steal", "% Idl"]),
    ] {
        let table = report.sections.iter().find(|section| section.id == id).unwrap().tables().next().unwrap();
        let sum: f64 = columns.iter().filter_map(|column| table.rows[0][table.column(column).unwrap()].number()).sum();
        assert!((sum - 100.0).abs() < 1e-6, "{id}: {sum}");
    }
}

#[test]
fn the_head_of_each_report_says_that_times_are_utc() {
    let document = || Builder::healthy().build();
    let statement = parse(&Builder::healthy().set("/kind", "sql").json()).unwrap().remove(0);
    for report in [
        instance(&document()),
        global(&[document(), document()]),
        difference(&document(), &document()),
        of(&[statement]),
    ] {
        let head: Vec<_> =
            report.sections.iter().filter(|section| matches!(&*section.id, "header" | "instances")).collect();
        assert_eq!(head.len(), 1);
        assert!(head[0].notes.iter().any(|note| note == "Times are UTC"), "{}", report.title);
    }
}
