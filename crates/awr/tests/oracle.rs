//! Reading reports: generated tables as HTML and text, our own reports, damaged and foreign files.
//!
//! CELLAR_SEED selects other tables. CELLAR_AWR_SAMPLES names a folder with reports to read as well; a pair of files that
//! differ only in the extensions .html and .txt are the two forms of one report.

use crate::oracle_support::{Random, Source, instance_html, instance_text};
use cellar_awr::oracle::detect::Refusal;
use cellar_awr::oracle::mask::Masking;
use cellar_awr::oracle::model::{Form, Kind, Report, same_name};
use cellar_awr::oracle::{self, rac_stats};
use cellar_awr::render::{self, Format};
use cellar_awr::{report, sections::Block};

fn read(name: &str, bytes: &[u8]) -> Report {
    oracle::read(name, bytes).unwrap_or_else(|refusal| panic!("{name}: {refusal}"))
}

/// Text without blanks: readers join lines of headings and cells with one blank.
fn dense(text: &str) -> String {
    text.split_whitespace().collect()
}

/// Every section, column and cell of the source is in the report, and nothing else.
fn assert_same(source: &Source, report: &Report, context: &str) {
    let sections: Vec<_> = report.sections().filter(|section| section.tables().len() > 0).skip(1).collect();
    let headings: Vec<&str> = sections.iter().map(|section| section.heading()).collect();
    let expected: Vec<&str> = source.tables.iter().map(|table| table.heading.as_str()).collect();
    assert_eq!(headings, expected, "{context}");
    let mut cells = 0;
    for (table, section) in source.tables.iter().zip(&sections) {
        let read = section.tables().next().unwrap();
        let names: Vec<&str> = read.columns().map(|column| column.name()).collect();
        assert_eq!(names, table.names(), "{context}: {}", table.heading);
        let rows: Vec<Vec<&str>> = read.rows().map(|row| row.cells().collect()).collect();
        assert_eq!(rows, table.rows, "{context}: {}", table.heading);
        cells += table.rows.iter().map(Vec::len).sum::<usize>();
    }
    let head: usize = report
        .sections()
        .next()
        .unwrap()
        .tables()
        .map(|table| table.rows().map(|row| row.cells().len()).sum::<usize>())
        .sum();
    assert_eq!(report.counts.read, (cells + head) as u64, "{context}");
    assert_eq!(report.counts.unplaced, 0, "{context}: {:?}", report.unplaced);
    assert_eq!(report.warnings, [], "{context}");
}

#[test]
fn generated_tables_are_read_without_losing_a_cell() {
    let mut random = Random::from_environment();
    for _ in 0..if std::env::var("LONG").is_ok() { 2_000 } else { 40 } {
        let source = Source::generate(&mut random);
        let context = format!("seed {}", random.seed);
        let html = source.html(&mut random);
        assert_same(&source, &read("generated.html", html.as_bytes()), &format!("{context}\n{html}"));
        let text = source.text(&mut random);
        assert_same(&source, &read("generated.txt", text.as_bytes()), &format!("{context}\n{text}"));
    }
}

#[test]
fn a_report_cut_at_any_place_keeps_what_it_contains() {
    let mut random = Random::from_environment();
    let source = Source::generate(&mut random);
    for (name, whole) in [("cut.html", source.html(&mut random)), ("cut.txt", source.text(&mut random))] {
        let complete = read(name, whole.as_bytes());
        let begin = whole.find("Snaps").unwrap_or(400).max(700);
        for length in (begin..whole.len() - 20).step_by(311) {
            let report = read(name, &whole.as_bytes()[..length]);
            let warning = report.warnings.last().unwrap_or_else(|| panic!("{name} cut at {length} has no warning"));
            assert!(warning.text.contains("cut off"), "{warning:?}");
            assert!(report.counts.read <= complete.counts.read + 20, "{name} cut at {length}");
        }
    }
}

#[test]
fn encodings_are_recognized_by_content() {
    let text = instance_text().replace("node1", "nödé1");
    let utf16 = |big: bool| {
        let unit = |unit: u16| if big { unit.to_be_bytes() } else { unit.to_le_bytes() };
        text.encode_utf16().flat_map(unit).collect::<Vec<u8>>()
    };
    let latin: Vec<u8> = text.chars().map(|c| c as u8).collect();
    let marked = [b"\xff\xfe".to_vec(), utf16(false)].concat();
    let cases = [
        (text.clone().into_bytes(), "UTF-8"),
        ([b"\xef\xbb\xbf", text.as_bytes()].concat(), "UTF-8"),
        (latin, "windows-1252"),
        (utf16(false), "UTF-16LE"),
        (utf16(true), "UTF-16BE"),
        (marked, "UTF-16LE"),
    ];
    for (bytes, encoding) in cases {
        let report = read("report.txt", &bytes);
        assert_eq!((report.encoding, report.header.instances[0].host.as_str()), (encoding, "nödé1"));
    }
}

#[test]
fn the_two_forms_of_a_report_have_the_same_head_and_figures() {
    let (html, text) = (read("a.html", instance_html().as_bytes()), read("a.txt", instance_text().as_bytes()));
    assert_eq!((html.form, text.form), (Form::Html, Form::Text));
    assert_eq!(html.header, text.header);
    let header = &html.header;
    assert_eq!((html.kind, header.db_name.as_str(), header.major_release()), (Kind::Instance, "ORCL", Some(11)));
    assert_eq!((header.begin.snap_id, header.end.snap_id), (Some(2), Some(3)));
    assert_eq!(header.elapsed_us, Some(3600e6));
    assert_eq!(header.db_time_us, Some(7200e6));
    let (a, b) = (html.to_document(), text.to_document());
    for name in
        ["physical read IO requests", "physical read total bytes", "physical writes", "redo size", "user commits"]
    {
        assert_eq!(a.statistic(name), b.statistic(name), "{name}");
        assert!(a.statistic(name).is_some(), "{name}");
    }
    assert_eq!(a.time_model, b.time_model);
    assert_eq!(a.events, b.events);
    assert_eq!(a.statements.len(), 2);
    assert_eq!(a.statements, b.statements);
    assert_eq!(rac_stats::rac_stats(&html), rac_stats::rac_stats(&text));
}

#[test]
fn statspack_reports_are_read() {
    let report = read("sp.txt", include_bytes!("oracle_support/statspack.txt"));
    assert_eq!((report.kind, report.counts.unplaced, report.counts.uncatalogued), (Kind::Statspack, 0, 0));
    assert_eq!((report.header.elapsed_us, report.header.db_time_us), (Some(3600e6), Some(4320e6)));
    assert_eq!((report.header.begin.snap_id, report.header.cpus), (Some(101), Some(4.0)));
    let events = report.events();
    assert_eq!((events[0].waits, events[0].time_us, events[0].percent), (Some(600_000.0), Some(1800e6), Some(41.7)));
    let statements = report.section("SQL ordered by CPU").unwrap().tables().next().unwrap();
    let texts: Vec<&str> = statements.rows().map(|row| row.text(8)).collect();
    assert_eq!(texts, ["select * from t where a = :1", "select 2 from dual"]);
    assert_eq!(rac_stats::rac_stats(&report).read_latency_ms, Some(3.0));
}

#[test]
fn rac_stats_prints_the_columns_of_the_script() {
    let stats = rac_stats::rac_stats(&read("a.txt", instance_text().as_bytes()));
    assert_eq!(stats.line("awr.txt"), "awr.txt|150|100|2.00|50|41|");
}

#[test]
fn an_ambiguous_cut_name_is_never_guessed() {
    use cellar_awr::oracle::lookup::Lookup;
    let text = read("a.txt", instance_text().as_bytes());
    let html = read("a.html", instance_html().as_bytes());
    let name = "cell physical IO interconnect bytes";
    assert_eq!(html.statistic(name), Lookup::Found(5000.0));
    assert!(
        matches!(text.statistic(name), Lookup::Ambiguous(printed, _) if printed == "cell physical IO interconnect by")
    );
    assert_eq!(text.statistic("physical read total bytes"), Lookup::Found(409_600.0));
    assert_eq!(text.statistic("no such statistic"), Lookup::Absent);
}

#[test]
fn findings_name_oracle_waits_and_the_rows_that_show_them() {
    let report = read("a.txt", instance_text().as_bytes());
    let findings = oracle::findings::judge(&report);
    let ids: Vec<&str> = findings.findings.iter().map(|finding| finding.id).collect();
    assert!(ids.contains(&"single-block-reads") && ids.contains(&"commit-waits"), "{ids:?}");
    let text = render::render(&oracle::findings::report(&report), Format::Text);
    assert!(text.contains("db file sequential read: 1,440.00s, 20.0 % of DB time, average 2.00ms"), "{text}");
}

#[test]
fn masks_are_consistent_and_complete() {
    let mut masking = Masking::new(true, true, true);
    let mut outputs = Vec::new();
    for source in [instance_html(), instance_text()] {
        let mut report = read("a", source.as_bytes());
        masking.apply(&mut report);
        let json = oracle::json::json(&report);
        for secret in ["node1", "SCOTT", "select * from secret"] {
            assert!(!json.contains(secret), "{secret} in {json}");
        }
        outputs.push((report.header.instances[0].host.clone(), json.contains("user1")));
    }
    assert_eq!(outputs, [("host1".to_owned(), true), ("host1".to_owned(), true)]);
}

#[test]
fn the_json_form_has_its_schema_and_every_cell() {
    let report = read("a.html", instance_html().as_bytes());
    let value: serde_json::Value = serde_json::from_str(&oracle::json::json(&report)).unwrap();
    assert_eq!((value["schema"].as_str(), value["version"].as_u64()), (Some("cellar.oracle-report"), Some(1)));
    let tables = value["sections"].as_array().unwrap().iter().flat_map(|section| section["tables"].as_array().unwrap());
    let rows = tables.flat_map(|table| table["rows"].as_array().unwrap());
    let cells: usize = rows.map(|row| row["cells"].as_array().unwrap().len()).sum();
    assert_eq!(cells as u64, report.counts.read);
}

#[test]
fn foreign_files_are_refused_in_one_line() {
    let cases: [(&[u8], &str); 8] = [
        (b"", "empty"),
        (b" \n\n ", "empty"),
        (b"\x7fELF\x02\x01\x01\x00\x00\x00\x00", "program"),
        (b"%PDF-1.4\n\x00", "PDF"),
        (b"<html><head><title>Portal - Sign in</title></head><body><form><input type=\"password\"></form></body></html>", "login page"),
        (b"ASH Report For ORCL/orcl1\n\nDB Name  DB Id\n", "ASH report"),
        (b"          ADDM Report for Task 'TASK_1'\n", "ADDM report"),
        (b"Hello all,\nplease find attached\n", "Hello all,"),
    ];
    for (bytes, what) in cases {
        let refusal = oracle::read("x", bytes).unwrap_err();
        let line = refusal.to_string();
        assert!(line.contains(what) && !line.contains('\n'), "{line}");
        assert_eq!(refusal == Refusal::Empty, what == "empty");
    }
}

#[test]
fn our_own_reports_read_back_as_they_were_written() {
    for document in [crate::support::Builder::healthy().build(), crate::support::Builder::busy().build()] {
        reads_back(&report::instance(&document));
    }
}

/// Earlier releases wrote no blank line between the notes and the table of a section of the summary.
fn without_blank_lines_below_notes(text: &str) -> String {
    let mut written = String::new();
    let mut is_note = false;
    let summary = text.find("\nTime Model Statistics").expect("the section after the summary");
    for line in text[..summary].lines() {
        let continues = is_note && line.starts_with("   ") && !line.starts_with("    ");
        if !(is_note && line.is_empty()) {
            written.push_str(line);
            written.push('\n');
        }
        is_note = line.starts_with("-> ") || continues;
    }
    written + &text[summary..]
}

fn reads_back(written: &report::Report) {
    let forms = [(Format::Html, "own.html"), (Format::Text, "own.txt"), (Format::Text, "earlier.txt")];
    for (format, name) in forms {
        let mut output = render::render(written, format);
        if name == "earlier.txt" {
            output = without_blank_lines_below_notes(&output);
        }
        let read = read(name, output.as_bytes());
        assert_eq!(read.counts.unplaced, 0, "{:?}", read.unplaced);
        assert_eq!(read.warnings, []);
        let mut compared = 0;
        for section in &written.sections {
            let tables: Vec<_> = section
                .blocks
                .iter()
                .filter_map(|block| match block {
                    Block::Table(table) => Some(table),
                    _ => None,
                })
                .collect();
            let found = read.sections().filter(|found| same_name(found.heading(), &section.title));
            let found: Vec<_> = found.flat_map(|found| found.tables()).collect();
            // A wide table is written as several tables, which text reports only do.
            assert!(found.len() >= tables.len(), "{name}: {}", section.title);
            if found.len() != tables.len() {
                continue;
            }
            for (table, found) in tables.iter().zip(found) {
                for (row, read) in table.rows.iter().zip(found.rows()) {
                    for (index, column) in table.columns.iter().enumerate() {
                        let same =
                            |found: &cellar_awr::oracle::model::Column<'_>| dense(found.name()) == dense(&column.name);
                        let position = match index {
                            0 => Some(0),
                            // Names repeat.
                            _ if found.columns().nth(index).is_some_and(|found| same(&found)) => Some(index),
                            _ => found.columns().position(|found| dense(found.name()) == dense(&column.name)),
                        };
                        // Text below a row has no heading; of empty tables, nothing is compared.
                        let is_below = column.align == cellar_awr::table::Align::Below;
                        assert!(position.is_some() || is_below, "{name}: {} lacks {}", section.title, column.name);
                        let Some(position) = position else { continue };
                        let (expected, text) = (dense(&row[index].print()), dense(read.text(position)));
                        assert!(
                            expected == text || (!text.is_empty() && expected.starts_with(&text)),
                            "{name}: {} {}: {expected} {text}",
                            section.title,
                            column.name
                        );
                        compared += 1;
                    }
                }
                assert_eq!(found.rows().len(), table.rows.len(), "{name}: {}", section.title);
            }
        }
        assert!(compared > 500, "{name}: {compared}");
    }
}

#[test]
fn sessions_that_waited_for_a_core_were_not_limited_by_a_resource_plan() {
    // The run queue is the greatest wait of the report.
    let document = crate::support::Builder::healthy()
        .set("/databases/0/run_queue_us", 3.0 * crate::support::HOUR_US)
        .event("VacuumDelay", "Other", 0.4 * crate::support::HOUR_US)
        .build();
    let output = render::render(&report::instance(&document), Format::Text);
    assert!(output.contains("CPU run queue") && output.contains("Scheduler"), "{output}");
    let findings = oracle::findings::judge(&read("own.txt", output.as_bytes()));
    assert!(findings.findings.iter().all(|finding| finding.id != "resource-manager"), "{findings:?}");
}

#[test]
fn hostile_files_need_time_and_memory_in_proportion_to_their_size() {
    // Each would need far more if a step were quadratic; the test only finishes because none is.
    let size = if std::env::var("LONG").is_ok() { 100_000_000 } else { 40_000 };
    let title = "<h1>WORKLOAD REPOSITORY report for</h1>";
    let patterns = [
        "<table><tr><td>1",
        "<td>",
        "<tr><td rowspan=200>x",
        "<td colspan=200>",
        "<th rowspan=9>h",
        "<h3>a</h3>",
        "<p>a",
        "<a name=x>",
        "<li>x",
        "<table><tr><td>",
        "</table>",
    ];
    for pattern in patterns {
        let input = format!("{title}<table><tr>{}", pattern.repeat(size / pattern.len()));
        oracle::read("hostile.html", input.as_bytes()).unwrap();
    }
    let title = "WORKLOAD REPOSITORY report for\n";
    let table = "Event  Waits\n------ -----\nabc        1\n";
    let patterns = [
        "a\n",
        "--- ---\n",
        "->x\n",
        "abcdef\n",
        "\n",
        "~~~~\n",
        "a: b  ",
        "a: ",
        "\nOUTPUT\n",
        "x  DB/Inst: a/b  Snaps: 1-2\n",
        "      1\n",
        "a b\n---\n",
    ];
    for pattern in patterns {
        let input = format!("{title}{table}{}", pattern.repeat(size / pattern.len()));
        oracle::read("hostile.txt", input.as_bytes()).unwrap();
    }
    for columns in [100, 10_000] {
        let (ruler, lines) = ("- ".repeat(columns), "a\n".repeat(size / 2));
        let input = format!("{title}{table}\n{}\n---- {ruler}\n{lines}", "a ".repeat(columns));
        oracle::read("hostile.txt", input.as_bytes()).unwrap();
    }
}

#[test]
fn samples_are_read_completely() {
    let Some(folder) = std::env::var_os("CELLAR_AWR_SAMPLES") else { return };
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.display().to_string();
        let report = read(&name, &std::fs::read(&path).unwrap());
        let (counts, unknown) = (report.counts, report.counts.unplaced + report.counts.uncatalogued);
        assert_eq!(counts.read, counts.placed + counts.unplaced, "{name}");
        assert!(unknown * 100 <= counts.read, "{name}: {counts:?}");
        println!("{name}: {counts:?}, {} tables", report.tables().len());
        let twin = path.with_extension("html");
        if path.extension().is_some_and(|extension| extension == "txt") && twin.exists() {
            let html = read("twin", &std::fs::read(&twin).unwrap());
            crate::oracle_support::assert_twins(&html, &report);
        }
    }
}
