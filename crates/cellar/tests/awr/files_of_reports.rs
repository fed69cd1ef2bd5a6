//! Commands that read files of reports: Oracle's, and our own.

use super::{Files, ORACLE, archive, stderr, stdout};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::RowAccessor;

/// The commands that read one report or more, with the arguments that they need.
const COMMANDS: [&[&str]; 6] =
    [&["read"], &["findings"], &["rac-stats"], &["trend", "--stat", "redo size"], &["html"], &["advise"]];
const LOGIN: &str =
    "<html><head><title>Portal</title></head><body><form><input type=\"password\"></form></body></html>";
const ASH: &str =
    "<html><head><title>ASH Report - From 18-Oct-24 20:13:55 To 20-Oct-24 22:08:21</title></head><body><table>";

#[test]
fn every_command_says_in_one_line_what_a_foreign_file_is() {
    let files = Files::new();
    let cases: [(&str, &[u8], &str); 7] = [
        ("empty.txt", b"", "the file is empty"),
        ("binary.html", b"\x7fELF\x02\x01\x01\0\0\0\0\0", "a program"),
        ("login.html", LOGIN.as_bytes(), "a login page saved as HTML (\"Portal\")"),
        ("ash.html", ASH.as_bytes(), "an ASH report"),
        ("addm.txt", b"          ADDM Report for Task 'TASK_1'\n", "an ADDM report"),
        ("mail.txt", b"Hello all,\n", "a text that begins with \"Hello all,\""),
        ("other.json", b"{\"a\": 1}", "the file is JSON"),
    ];
    for (name, bytes, expected) in cases {
        std::fs::write(files.path(name), bytes).unwrap();
        for command in COMMANDS {
            let error = stderr(&files.awr(&[command, &[name]].concat()), 1);
            assert!(error.contains(name) && error.contains(expected), "{command:?}: {error}");
            assert_eq!(error.lines().count(), 1, "{command:?}: {error}");
        }
    }
    std::os::unix::fs::symlink("nowhere", files.path("link.txt")).unwrap();
    for command in COMMANDS {
        for name in ["missing.txt", "link.txt", "missing/folder"] {
            let error = stderr(&files.awr(&[command, &[name]].concat()), 1);
            assert!(error.contains(&format!("could not read \"{name}\"")), "{command:?}: {error}");
        }
        stderr(&files.awr(command), 2);
    }
    std::fs::write(files.path("good.txt"), ORACLE).unwrap();
    for command in [&["read", "--csv", "good.txt/folder"][..], &["read", "--parquet", "good.txt/folder"]] {
        let error = stderr(&files.awr(&[command, &["good.txt"]].concat()), 1);
        assert!(error.contains("could not create \"good.txt/folder"), "{error}");
    }
    // The other files are read.
    let output = files.awr(&["rac-stats", "login.html", "good.txt"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 2);
    assert!(stderr(&output, 1).contains("a login page"));
}

#[test]
fn a_report_becomes_a_page() {
    let files = Files::new();
    std::fs::write(files.path("awr.txt"), ORACLE).unwrap();
    let page = stdout(&files.awr(&["html", "awr.txt"]));
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("<svg") && page.contains("read total bytes"));
    assert_eq!(stdout(&files.awr(&["html", "awr.txt", "--output", "page.html"])), "");
    assert_eq!(std::fs::read_to_string(files.path("page.html")).unwrap(), page);
    // A page is a report.
    assert!(stdout(&files.awr(&["read", "page.html"])).contains("cellar, HTML"));
    let error = stderr(&files.awr(&["html", "awr.txt", "--output", "no/such/page.html"]), 1);
    assert!(error.contains("could not write \"no/such/page.html\""), "{error}");
    let error = stderr(&files.awr(&["html", "awr.txt", "page.html"]), 2);
    assert!(error.contains("several reports") && error.contains("HINT:"), "{error}");
    std::fs::create_dir(files.path("pages")).unwrap();
    let written = stdout(&files.awr(&["html", "awr.txt", "page.html", "awr.txt", "--output", "pages"]));
    assert_eq!(written, "pages/awr.txt.html\npages/page.html.html\npages/awr.txt.2.html\n");
    assert_eq!(std::fs::read_to_string(files.path("pages/awr.txt.html")).unwrap(), page);
}

#[test]
fn a_trend_is_a_table_or_a_chart() {
    let files = Files::new();
    let later = String::from_utf8_lossy(ORACLE).replace("10-Jul-14 05:00:00", "10-Jul-14 06:00:00");
    std::fs::write(files.path("reports.zip"), archive(&[("a.txt", ORACLE), ("b.txt", later.as_bytes())])).unwrap();
    let trend = |format: &str, stat: &str| files.awr(&["trend", "reports.zip", "--stat", stat, "--format", format]);
    let svg = stdout(&trend("svg", "log file sync"));
    assert!(svg.starts_with("<svg xmlns=") && svg.ends_with("</svg>\n"), "{svg}");
    assert_eq!((svg.matches("<circle").count(), svg.matches("class=\"caption\"").count()), (4, 2), "{svg}");
    let html = stdout(&trend("html", "log file sync"));
    assert!(html.starts_with("<!DOCTYPE html>") && html.matches("<circle").count() == 4, "{html}");
    assert!(stdout(&trend("csv", "redo size")).contains("ORCL/orcl1,reports.zip/b.txt"));
    for format in ["text", "csv", "json", "svg", "html"] {
        let error = stderr(&trend(format, "no such statistic"), 1);
        assert!(error.contains("no report contains \"no such statistic\""), "{error}");
    }
    stderr(&trend("pdf", "redo size"), 2);
}

#[test]
fn advice_is_given_about_reports_of_oracle_and_our_own() {
    let files = Files::new();
    std::fs::write(files.path("awr.txt"), ORACLE).unwrap();
    let text = stdout(&files.awr(&["advise", "awr.txt"]));
    assert!(text.contains("Waits for small reads that flash would save") && text.contains("Assumption: "), "{text}");
    let mut documents = Vec::new();
    for name in ["busy.json", "own.json", "own.html", "own.txt"] {
        if name != "busy.json" {
            stdout(&files.awr(&["report", "--from-json", "busy.json", "--output", name]));
        }
        let json = stdout(&files.awr(&["advise", name, "--json"]));
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(value["kind"], "advice");
        let gains = value["sections"].as_array().unwrap().iter().find(|section| section["id"] == "gains").unwrap();
        documents.push(gains["tables"][0]["rows"].as_array().unwrap().len());
    }
    assert!(documents[0] > 2 && documents.iter().all(|claims| *claims == documents[0]), "{documents:?}");
    assert!(stdout(&files.awr(&["advise", "awr.txt", "--format", "html"])).starts_with("<!DOCTYPE html>"));
}

#[test]
fn masks_hold_in_every_command() {
    let files = Files::new();
    std::fs::write(files.path("a.txt"), ORACLE).unwrap();
    std::fs::write(files.path("b.txt"), String::from_utf8_lossy(ORACLE).replace("720.0", "920.0")).unwrap();
    let mask = ["--mask", "hosts,users,sql"];
    let commands: [&[&str]; 7] = [
        &["read", "--json", "a.txt"],
        &["findings", "a.txt"],
        &["html", "a.txt"],
        &["advise", "a.txt"],
        &["trend", "a.txt", "--stat", "redo size", "--format", "html"],
        &["diff", "a.txt", "b.txt"],
        &["diff", "a.txt", "b.txt", "--format", "html"],
    ];
    for command in commands {
        let output = stdout(&files.awr(&[command, &mask[..]].concat()));
        for secret in ["node1", "SCOTT", "secret"] {
            assert!(!output.contains(secret), "{command:?}: {secret}");
        }
    }
    stderr(&files.awr(&["html", "a.txt", "--mask", "everything"]), 2);
    let error = stderr(&files.awr(&["diff", "--from-json", "busy.json", "healthy.json", "--mask", "hosts"]), 2);
    assert!(error.contains("--mask applies to the comparison of files of reports"), "{error}");
}

#[test]
fn many_reports_become_two_parquet_files() {
    let files = Files::new();
    std::fs::write(files.path("awr.txt"), ORACLE).unwrap();
    std::fs::write(files.path("login.html"), LOGIN).unwrap();
    let output = files.awr(&["read", "awr.txt", "busy.json", "login.html", "--parquet", "out"]);
    stderr(&output, 1);
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(printed.starts_with("out/reports.parquet: 2 reports; out/cells.parquet: "), "{printed}");
    let open = |name: &str| SerializedFileReader::new(std::fs::File::open(files.path(name)).unwrap()).unwrap();
    let reports: Vec<_> = open("out/reports.parquet").get_row_iter(None).unwrap().map(Result::unwrap).collect();
    let names: Vec<(i32, String)> =
        reports.iter().map(|row| (row.get_int(0).unwrap(), row.get_string(1).unwrap().clone())).collect();
    assert_eq!(names, [(1, "awr.txt".to_owned()), (2, "busy.json".to_owned())]);
    let json: serde_json::Value = serde_json::from_str(&stdout(&files.awr(&["read", "--json", "awr.txt"]))).unwrap();
    let mut expected = Vec::new();
    for section in json["sections"].as_array().unwrap() {
        for table in section["tables"].as_array().unwrap() {
            for row in table["rows"].as_array().unwrap() {
                let cells = row["cells"].as_array().unwrap().iter().zip(row["values"].as_array().unwrap());
                expected.extend(cells.filter(|(text, _)| *text != "").map(|(text, value)| {
                    let number = value.as_f64().or_else(|| value["value"].as_f64());
                    let unit = value["unit"].as_str().map(str::to_owned);
                    let heading = section["heading"].as_str().unwrap().to_owned();
                    (heading, text.as_str().unwrap().to_owned(), number, unit)
                }));
            }
        }
    }
    let mut found = Vec::new();
    for row in open("out/cells.parquet").get_row_iter(None).unwrap().map(Result::unwrap) {
        if row.get_int(0).unwrap() == 1 {
            let text = |column: usize| row.get_string(column).unwrap().clone();
            found.push((text(1), text(9), row.get_double(10).ok(), row.get_string(11).ok().cloned()));
        }
    }
    assert!(found.len() > 100);
    assert_eq!(found, expected);
    // Without a report, there are no files.
    stderr(&files.awr(&["read", "login.html", "--parquet", "none"]), 1);
    assert_eq!(std::fs::read_dir(files.path("none")).unwrap().count(), 0);
}
