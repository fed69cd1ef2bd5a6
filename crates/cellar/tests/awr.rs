//! `cellar awr` without a server: saved documents, formats, errors.

#![recursion_limit = "512"]

#[path = "../../awr/tests/support/mod.rs"]
mod support;

use std::path::PathBuf;
use std::process::{Command, Output};
use support::Builder;

struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        let files = Self(tempfile::tempdir().unwrap());
        std::fs::write(files.path("healthy.json"), Builder::healthy().json()).unwrap();
        std::fs::write(files.path("busy.json"), Builder::busy().json()).unwrap();
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn awr(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_cellar"))
            .arg("awr")
            .args(arguments)
            .current_dir(self.0.path())
            .output()
            .unwrap()
    }
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output, code: i32) -> String {
    assert_eq!(output.status.code(), Some(code), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn a_saved_document_is_rendered_in_every_format() {
    let files = Files::new();
    let text = stdout(&files.awr(&["report", "--from-json", "busy.json"]));
    assert!(text.contains("WORKLOAD REPOSITORY report for") && text.ends_with("End of Report\n"));
    let json = stdout(&files.awr(&["report", "--from-json", "busy.json", "--format", "json"]));
    assert!(json.starts_with('{') && json.contains("\"kind\": \"instance\""));
    let html = stdout(&files.awr(&["report", "--from-json", "busy.json", "--format", "html"]));
    assert!(html.starts_with("<!DOCTYPE html>"));
    // The extension of the file chooses the format.
    assert_eq!(stdout(&files.awr(&["report", "--from-json", "busy.json", "--output", "a.html"])), "");
    assert_eq!(std::fs::read_to_string(files.path("a.html")).unwrap(), html);
    // A document is saved as it was read, and renders to the same report.
    stdout(&files.awr(&["report", "--from-json", "busy.json", "--format", "document", "--output", "copy.json"]));
    assert_eq!(stdout(&files.awr(&["report", "--from-json", "copy.json"])), text);
}

#[test]
fn two_saved_documents_are_compared_and_several_are_reported_together() {
    let files = Files::new();
    let diff = stdout(&files.awr(&["diff", "--from-json", "healthy.json", "busy.json"]));
    assert!(diff.contains("Changes Ranked by Share of DB Time"));
    stdout(&files.awr(&[
        "diff",
        "--from-json",
        "healthy.json",
        "busy.json",
        "--format",
        "document",
        "--output",
        "both.json",
    ]));
    let global = stdout(&files.awr(&["global", "--from-json", "both.json"]));
    assert!(global.contains("WORKLOAD REPOSITORY REPORT (RAC)"));
    assert!(stdout(&files.awr(&["report", "--from-json", "both.json"])).contains("WORKLOAD REPOSITORY REPORT (RAC)"));
}

#[test]
fn errors_name_the_cause() {
    let files = Files::new();
    std::fs::write(files.path("future.json"), r#"{"format": 9}"#).unwrap();
    let error = stderr(&files.awr(&["report", "--from-json", "future.json"]), 1);
    assert!(error.contains("report document has format 9, but this release reads format 1"), "{error}");
    let error = stderr(&files.awr(&["report", "--from-json", "missing.json"]), 1);
    assert!(error.contains("could not read \"missing.json\""), "{error}");
    let error = stderr(&files.awr(&["report", "--from-json", "busy.json", "--output", "no/such/folder.txt"]), 1);
    assert!(error.contains("could not write"), "{error}");
    let error = stderr(&files.awr(&["report", "--dsn", "host=/nonexistent dbname=postgres user=postgres"]), 1);
    assert!(error.contains("could not connect to the server") && error.contains("HINT:"), "{error}");
    let error = stderr(&files.awr(&["report", "--dsn", "nonsense"]), 2);
    assert!(error.contains("invalid connection string"), "{error}");
    for usage in [
        &["report", "--begin", "1"][..],
        &["report", "--last", "1"],
        &["report", "--last", "3", "--begin", "1", "--end", "2"],
        &["report", "--format", "pdf"],
        &["diff", "1:2"],
    ] {
        stderr(&files.awr(usage), 2);
    }
}
