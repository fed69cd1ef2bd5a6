//! `cellar awr` without a server: saved documents, formats, errors.

mod files_of_reports;
use crate::support::Builder;
use std::io::{Cursor, Write};
use std::path::PathBuf;
use std::process::{Command, Output};

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

/// An hour of an instance, as Oracle prints it.
const ORACLE: &[u8] = include_bytes!("../../../awr/tests/oracle_support/instance.txt");

fn compressed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn archive(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut archive = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in members {
        archive.start_file(*name, zip::write::SimpleFileOptions::default()).unwrap();
        archive.write_all(bytes).unwrap();
    }
    archive.finish().unwrap().into_inner()
}

#[test]
fn oracle_reports_are_read_from_compressed_files() {
    let files = Files::new();
    let whole = compressed(ORACLE);
    std::fs::write(files.path("whole.gz"), &whole).unwrap();
    let summary = stdout(&files.awr(&["read", "whole.gz"]));
    assert!(summary.contains("ORCL") && !summary.contains("damaged"), "{summary}");
    // The sum at the end of the file does not fit the bytes.
    let mut damaged = whole.clone();
    let sum = damaged.len() - 8;
    damaged[sum] ^= 1;
    std::fs::write(files.path("damaged.gz"), &damaged).unwrap();
    std::fs::write(files.path("cut.gz"), &whole[..whole.len() - 6]).unwrap();
    for name in ["damaged.gz", "cut.gz"] {
        let summary = stdout(&files.awr(&["read", name]));
        assert!(summary.contains("the compressed file is damaged: "), "{summary}");
        let output = files.awr(&["rac-stats", name]);
        assert!(stdout(&output).contains("|150|100|2.00|50|"), "{output:?}");
        assert!(stderr(&output, 0).contains("the compressed file is damaged: "), "{output:?}");
    }
}

#[test]
fn oracle_reports_are_read_from_archives() {
    let files = Files::new();
    let members: [(&str, &[u8]); 3] =
        [("__MACOSX/._awr.txt", b"\0\x05\x16\x07"), ("awr.txt", ORACLE), (".hidden/awr.txt", ORACLE)];
    std::fs::write(files.path("reports.zip"), archive(&members)).unwrap();
    let output = files.awr(&["rac-stats", "reports.zip"]);
    assert_eq!(stderr(&output, 0), "");
    assert_eq!(stdout(&output).lines().skip(1).collect::<Vec<_>>(), ["reports.zip/awr.txt|150|100|2.00|50|41|"]);
    std::fs::write(files.path("empty.zip"), archive(&[])).unwrap();
    let error = stderr(&files.awr(&["read", "empty.zip"]), 1);
    assert!(error.contains("contain no report"), "{error}");
    std::fs::write(files.path("a.docx"), archive(&[("a.xml", b"a"), ("[Content_Types].xml", b"a")])).unwrap();
    let error = stderr(&files.awr(&["read", "a.docx"]), 1);
    assert!(error.contains("a document of Microsoft Office"), "{error}");
    // A link to the folder above is not followed.
    std::fs::create_dir(files.path("folder")).unwrap();
    std::fs::write(files.path("folder/awr.txt"), ORACLE).unwrap();
    std::os::unix::fs::symlink("..", files.path("folder/above")).unwrap();
    assert_eq!(stdout(&files.awr(&["rac-stats", "folder"])).lines().count(), 2);
}

#[test]
fn reports_that_are_not_about_one_interval_are_only_read() {
    let files = Files::new();
    let text = String::from_utf8_lossy(ORACLE);
    let sql = text.replacen("WORKLOAD REPOSITORY report for", "WORKLOAD REPOSITORY SQL Report", 1);
    std::fs::write(files.path("sql.txt"), sql).unwrap();
    stdout(&files.awr(&["read", "sql.txt"]));
    for command in [&["findings", "sql.txt"][..], &["rac-stats", "sql.txt"], &["diff", "sql.txt", "sql.txt"]] {
        let error = stderr(&files.awr(command), 1);
        assert!(error.contains("a report about one statement"), "{error}");
    }
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
