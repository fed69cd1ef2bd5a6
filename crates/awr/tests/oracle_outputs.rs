//! What is made of reports that were read: pages, trends, advice; locales, comparisons of periods, our own reports.

use crate::oracle_support::{Random, Source, instance_html, instance_text};
use cellar_awr::document::parse;
use cellar_awr::oracle::advice::{self, Advice, Claim};
use cellar_awr::oracle::model::{Form, Kind, Report, Row, same_name};
use cellar_awr::oracle::{self, page, trend};
use cellar_awr::render::{self, Format};
use cellar_awr::report;
use cellar_awr::sections::{Block, Chart};

fn read(name: &str, text: &str) -> Report {
    oracle::read(name, text.as_bytes()).unwrap_or_else(|refusal| panic!("{name}: {refusal}"))
}

/// A text report with sections: heading and lines.
fn text(sections: &[(&str, &str)]) -> Report {
    let mut text = "WORKLOAD REPOSITORY report for\n\n".to_owned();
    for (heading, lines) in sections {
        let hyphens = "-".repeat(54);
        text.push_str(&format!("{heading:<46}DB/Inst: ORCL/orcl  Snaps: 1-2\n\n{lines}\n{:26}{hyphens}\n\n", ""));
    }
    text.push_str("End of Report\n");
    read("report.txt", &text)
}

fn cells(row: Row<'_>) -> Vec<String> {
    row.cells().map(|cell| cell.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

/// Each section of a report that was read is in the page that was rendered from the report, with all cells.
fn assert_page_is_complete(report: &Report) {
    let html = render::html(&page::page(report));
    for reference in [" src=", "url(", "@import", "<link", "http://", "https://"] {
        let own = html.matches(reference).count();
        let of_report: usize = report
            .sections()
            .flat_map(|section| section.tables().flat_map(|table| table.rows().flat_map(|row| row.cells())))
            .map(|cell| cell.matches(reference).count())
            .sum();
        assert!(own <= of_report, "{}: the page contains {reference}", report.name);
    }
    let page = read("page.html", &html);
    assert_eq!((page.kind, page.counts.unplaced, page.warnings.len()), (Kind::Cellar, 0, 0), "{}", report.name);
    let mut has_texts = false;
    for (index, section) in report.sections().enumerate() {
        if section.tables().len() == 0 {
            continue;
        }
        let texts =
            same_name(section.heading(), "Complete List of SQL Text") && !std::mem::replace(&mut has_texts, true);
        let anchor = if texts { "sql-texts".to_owned() } else { format!("section-{index}") };
        let found = page.sections().find(|found| found.anchor() == anchor);
        let found = found.unwrap_or_else(|| panic!("{}: no {anchor} ({})", report.name, section.heading()));
        assert_eq!(found.tables().len(), section.tables().len(), "{}: {}", report.name, section.heading());
        for (written, read) in section.tables().zip(found.tables()) {
            for (written, read) in written.rows().zip(read.rows()) {
                let (mut expected, mut cells) = (cells(written), cells(read));
                let width = expected.len().max(cells.len());
                expected.resize(width, String::new());
                cells.resize(width, String::new());
                assert_eq!(cells, expected, "{}: {}", report.name, section.heading());
            }
            assert_eq!(read.rows().len(), written.rows().len(), "{}: {}", report.name, section.heading());
        }
    }
}

#[test]
fn a_page_contains_every_cell_of_its_report() {
    let mut random = Random::from_environment();
    for _ in 0..if std::env::var("LONG").is_ok() { 500 } else { 10 } {
        let source = Source::generate(&mut random);
        assert_page_is_complete(&read("generated.html", &source.html(&mut random)));
        assert_page_is_complete(&read("generated.txt", &source.text(&mut random)));
    }
    for (name, text) in [("instance.txt", instance_text()), ("instance.html", instance_html())] {
        assert_page_is_complete(&read(name, &text));
    }
    let Some(folder) = std::env::var_os("CELLAR_AWR_SAMPLES") else { return };
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        assert_page_is_complete(&oracle::read(&path.display().to_string(), &std::fs::read(&path).unwrap()).unwrap());
    }
}

#[test]
fn a_page_has_the_charts_of_a_text_report() {
    let page = page::page(&read("instance.txt", &instance_text()));
    let charts: Vec<&str> = page
        .sections
        .iter()
        .flat_map(|section| &section.blocks)
        .filter_map(|block| match block {
            Block::Chart(Chart::Bars { title, .. } | Chart::Histogram { title, .. }) => Some(title.as_str()),
            _ => None,
        })
        .collect();
    for expected in ["Where foreground sessions spent DB time, by wait class", "Statements by elapsed time"] {
        assert!(charts.contains(&expected), "{charts:?}");
    }
    assert!(page.findings.findings.iter().any(|finding| finding.id == "single-block-reads"));
}

const STATISTICS: &str = "Statistic                                     Total     per Second     per Trans
-------------------------------- ------------------ -------------- -------------
physical read total IO requests             100,000           27.8           1.0
physical read total multi block              20,000            5.6           0.2
physical reads                            1,000,000          277.8          10.0
physical reads cache prefetch               100,000           27.8           1.0
physical reads direct                       500,000          138.9           5.0
physical reads direct (lob)                  20,000            5.6           0.2
physical reads direct temporary              80,000           22.2           0.8";

const TIMES: &str = "Statistic Name                                       Time (s) % of DB Time
------------------------------------------ ------------------ ------------
DB CPU                                                  200.0         20.0
DB time                                               1,000.0        100.0";

const WAITS: &str = "                                                             Avg
                                        %Time Total Wait    wait    Waits   % DB
Event                             Waits -outs   Time (s)    (ms)     /txn   time
-------------------------- ------------ ----- ---------- ------- -------- ------
db file sequential read          60,000     0        300       5      0.6   30.0
direct path read                 10,000     0        200      20      0.1   20.0
db file scattered read            5,000     0         50      10      0.1    5.0";

const DIRECT: &str = "           Tablespace                      Subobject  Obj.        Direct
Owner         Name    Object Name            Name     Type         Reads  %Total
---------- ---------- -------------------- ---------- ----- ------------ -------
SCOTT      USERS      SALES                           TABLE      300,000   60.00
SCOTT      USERS      ORDERS                          TABLE      100,000   20.00";

fn claim<'a>(advice: &'a Advice, id: &str) -> &'a Claim {
    advice.claims.iter().find(|claim| claim.id == id).unwrap_or_else(|| panic!("no {id}: {advice:?}"))
}

fn range(advice: &Advice, id: &str) -> (f64, f64) {
    let claim = claim(advice, id);
    ((claim.low_percent * 10.0).round() / 10.0, (claim.high_percent * 10.0).round() / 10.0)
}

#[test]
fn advice_is_computed_from_the_figures_that_it_names() {
    let sections = [
        ("Time Model Statistics", TIMES),
        ("Foreground Wait Events", WAITS),
        ("Instance Activity Stats", STATISTICS),
        ("Segments by Direct Physical Reads", DIRECT),
    ];
    let report = text(&sections);
    let advice = advice::advise(&report);
    // 500,000 - 20,000 - 80,000 of 1,000,000 blocks; with prefetched blocks, 500,000.
    assert_eq!(range(&advice, "offloadable-reads"), (40.0, 50.0));
    assert_eq!(range(&advice, "scan-waits"), (20.0, 25.0));
    assert_eq!(range(&advice, "flash-requests"), (60.0, 80.0));
    // 300 s - 60,000 x 150 us = 291 s of 1000 s; 70 % of that.
    assert_eq!(range(&advice, "flash-waits"), (20.4, 29.1));
    assert_eq!(range(&advice, "compression"), (20.0, 42.1));
    assert_eq!(range(&advice, "bound"), (0.0, 55.0));
    for claim in &advice.claims {
        assert!(!claim.figures.is_empty() && !claim.assumptions.is_empty(), "{claim:?}");
        assert!(claim.low_percent <= claim.high_percent && claim.high_percent <= 100.0, "{claim:?}");
    }
    let figures = &claim(&advice, "offloadable-reads").figures;
    assert!(
        figures
            .iter()
            .any(|text| text.contains("physical reads direct: 500,000 blocks, 3.8GB (Instance Activity Stats, line ")),
        "{figures:?}"
    );
    // Each figure is cited at its own line, although the name of one is the beginning of the other's.
    let line =
        |name: &str| figures.iter().find(|text| text.starts_with(name)).and_then(|text| text.rsplit("line ").next());
    assert_ne!(line("physical reads direct: "), line("physical reads direct temporary tablespace: "), "{figures:?}");
    assert!(advice.not_claimed.iter().any(|reason| reason.starts_with("Transfer avoided")), "{advice:?}");
    let printed = render::text(&advice::report(&report));
    for expected in ["40.0 to 50.0 % of the bytes read", "Assumption: ", "SCOTT.SALES", "2.3G", "75.0"] {
        assert!(printed.contains(expected), "{expected} in {printed}");
    }
}

#[test]
fn an_area_with_a_finding_is_not_listed_as_one_without_impact() {
    let times = TIMES.replace("200.0         20.0", "800.0         80.0");
    let findings =
        oracle::findings::judge(&text(&[("Time Model Statistics", &times), ("Foreground Wait Events", WAITS)]));
    assert!(findings.findings.iter().any(|finding| finding.id == "cpu-bound"), "{findings:?}");
    assert!(!findings.without_impact.contains(&"CPU"), "{findings:?}");
}

/// Of a host with many CPUs, a single session that computes leaves most of them idle.
#[test]
fn an_interval_that_leaves_most_cpus_idle_is_not_bound_by_cpu() {
    let bound = |db_time_s: f64, cpus: u32| {
        let document = format!(
            r#"{{"format": 1, "elapsed_us": 3.6e9, "db_time_us": {us}, "instance": {{"name": "shop", "cpus": {cpus}}},
            "time_model": [{{"name": "DB CPU", "us": {us}}}]}}"#,
            us = db_time_s * 1e6
        );
        let document = parse(document.as_bytes()).unwrap().remove(0);
        let output = render::render(&report::instance(&document), Format::Json);
        let findings = oracle::findings::judge(&read("own.json", &output)).findings;
        findings.into_iter().find(|finding| finding.id == "cpu-bound").expect("a finding").kind.name()
    };
    assert_eq!(bound(3_600.0, 2), "PROBLEM");
    assert_eq!(bound(3_600.0, 16), "SYMPTOM");
    // Fewer than 0.01 average active sessions.
    assert_eq!(bound(30.0, 2), "INFORMATION");
}

#[test]
fn a_report_without_figures_leads_to_no_claim() {
    let advice = advice::advise(&text(&[("Latch Activity", "Name     Gets\n-------- ----\na           1")]));
    assert_eq!(advice.claims, []);
    assert!(advice.not_claimed.len() >= 4, "{advice:?}");
}

#[test]
fn advice_about_an_offloaded_workload_uses_what_was_measured() {
    let statistics = "<table><tr><th>Statistic</th><th>Total</th><th>per Second</th></tr>
<tr><td>cell physical IO bytes eligible for predicate offload</td><td>800,000</td><td>1</td></tr>
<tr><td>cell physical IO bytes saved by storage index</td><td>200,000</td><td>1</td></tr>
<tr><td>cell physical IO interconnect bytes returned by smart scan</td><td>80,000</td><td>1</td></tr>
<tr><td>cell IO uncompressed bytes</td><td>1,800,000</td><td>1</td></tr>
<tr><td>physical read total bytes</td><td>1,000,000</td><td>1</td></tr></table>";
    let html =
        format!("<h1>WORKLOAD REPOSITORY report for</h1><h3>Instance Activity Stats</h3>{statistics}</body></html>");
    let advice = advice::advise(&read("report.html", &html));
    assert_eq!(range(&advice, "offloadable-reads"), (80.0, 80.0));
    assert_eq!(range(&advice, "transfer-avoided"), (90.0, 90.0));
    assert_eq!(range(&advice, "storage-index"), (25.0, 25.0));
    let compressed = advice.not_claimed.iter().find(|reason| reason.starts_with("Compression"));
    assert!(compressed.is_some_and(|reason| reason.contains("a factor of 3.0")), "{advice:?}");
}

/// A report of Cellar in each form, and its document.
fn own_forms(document: &[u8]) -> Vec<Report> {
    let written = report::of(&parse(document).unwrap());
    let forms = [("own.txt", Format::Text), ("own.html", Format::Html), ("own.json", Format::Json)];
    let mut all: Vec<Report> =
        forms.into_iter().map(|(name, format)| read(name, &render::render(&written, format))).collect();
    all.push(oracle::read("document.json", document).unwrap());
    all
}

#[test]
fn all_forms_of_our_own_reports_lead_to_the_same_advice() {
    for document in [crate::support::Builder::busy().json(), crate::support::Builder::healthy().json()] {
        let forms = own_forms(&document);
        let advice: Vec<Advice> = forms.iter().map(advice::advise).collect();
        assert!(advice[0].claims.len() >= 3, "{:?}", advice[0]);
        for (other, report) in advice.iter().zip(&forms) {
            let ids = |advice: &Advice| advice.claims.iter().map(|claim| claim.id).collect::<Vec<_>>();
            assert_eq!(ids(other), ids(&advice[0]), "{}", report.name);
            for (a, b) in other.claims.iter().zip(&advice[0].claims) {
                // Text and HTML round.
                let near = |a: f64, b: f64| (a - b).abs() < 2.5;
                assert!(near(a.low_percent, b.low_percent) && near(a.high_percent, b.high_percent), "{a:?} {b:?}");
            }
        }
        assert_eq!(advice[2], advice[3]);
    }
}

#[test]
fn our_own_json_reports_read_back_with_exact_values() {
    let written = report::of(&parse(&crate::support::Builder::busy().json()).unwrap());
    let json = render::json(&written);
    let read = read("own.json", &json);
    assert_eq!((read.form, read.kind, read.counts.unplaced), (Form::Json, Kind::Cellar, 0));
    assert_eq!(read.header.db_name, "shop");
    assert_eq!((read.header.begin.snap_id, read.header.elapsed_us), (Some(101), Some(3600e6)));
    let sections: Vec<_> = read.sections().collect();
    assert_eq!(sections.len(), written.sections.len());
    let mut compared = 0;
    for (section, written) in sections.iter().zip(&written.sections) {
        assert_eq!((section.heading(), section.anchor()), (written.title.as_str(), &*written.id));
        assert!(json.lines().nth(section.line() as usize - 1).unwrap().contains(&*written.id));
        let tables: Vec<_> = written.tables().collect();
        assert_eq!(section.tables().len(), tables.len());
        for (table, written) in section.tables().zip(tables) {
            let names: Vec<&str> = table.columns().map(|column| column.name()).collect();
            let expected: Vec<String> = written
                .columns
                .iter()
                .map(|column| column.name.split_whitespace().collect::<Vec<_>>().join(" "))
                .collect();
            assert_eq!(names, expected, "{}", section.heading());
            assert_eq!(table.rows().len(), written.rows.len());
            for (row, cells) in table.rows().zip(&written.rows) {
                for (column, cell) in cells.iter().enumerate() {
                    match cell.number() {
                        Some(number) if !cell.unit().is_empty() => {
                            let value = row.value(column).unwrap();
                            assert!((value.number - number).abs() <= 1e-9 * number.abs(), "{cell:?} {value:?}");
                            assert_eq!(value.unit.base(), cell.unit(), "{cell:?}");
                            compared += 1;
                        }
                        Some(number) => {
                            let read = row.text(column).parse::<f64>().unwrap();
                            assert!((read - number).abs() <= 1e-12 * number.abs(), "{cell:?} {read}");
                        }
                        None if matches!(cell, cellar_awr::table::Cell::Text(_)) => {
                            assert_eq!(row.text(column), cell.print().trim());
                        }
                        None => {}
                    }
                }
            }
        }
    }
    assert!(compared > 200, "{compared}");
}

#[test]
fn json_that_is_no_report_is_refused_in_one_line() {
    for json in ["{\"a\": 1}", "{\"format\": 9}", "{\"sections\": [", "[{}]"] {
        let line = oracle::read("x.json", json.as_bytes()).unwrap_err().to_string();
        assert!(line.contains("the file is JSON") && !line.contains('\n'), "{line}");
    }
    // A bracket may begin the prompt of a shell.
    let spool = format!("[oracle@node1 ~]$ sqlplus / as sysdba\n{}", instance_text());
    assert_eq!(read("spool.txt", &spool).form, Form::Text);
}

/// The instance's report with other snapshots.
fn at(snap: u32, time: &str, total: &str) -> Report {
    let text = instance_text()
        .replace("End Snap:         3 10-Jul-14 05:00:00", &format!("End Snap: {snap:>9} {time}"))
        .replace("154,769,817,600   42,991,616.0", &format!("{total:>15}            1.0"));
    read(&format!("awr{snap}.txt"), &text)
}

#[test]
fn trends_are_charts_by_time() {
    let reports = [
        at(3, "10-Jul-14 05:00:00", "3,600,000,000"),
        at(4, "10-Jul-14 06:00:00", "7,200,000,000"),
        at(14, "10-Jul-14 16:00:00", "1,800,000,000"),
    ];
    let points: Vec<_> = reports.iter().map(|report| trend::point(report, "redo size")).collect();
    let charts = trend::charts(&points, "redo size");
    let [Chart::Lines { unit, series, .. }] = charts.as_slice() else { panic!("{charts:?}") };
    assert_eq!((unit.as_str(), series.len(), series[0].name.as_str()), ("MB/s", 1, "ORCL/orcl1"));
    let [a, b, c] = series[0].points.as_slice() else { panic!("{series:?}") };
    assert_eq!((b.at - a.at, c.at - a.at), (3600.0, 11.0 * 3600.0));
    assert!((b.value / a.value - 2.0).abs() < 1e-9 && (a.value * 1_048_576.0 - 1e6).abs() < 1.0, "{series:?}");
    // An event has a second chart: the average of a wait.
    let points: Vec<_> = reports.iter().map(|report| trend::point(report, "db file sequential read")).collect();
    let charts = trend::charts(&points, "db file sequential read");
    let [_, Chart::Lines { unit, series, .. }] = charts.as_slice() else { panic!("{charts:?}") };
    assert_eq!((unit.as_str(), series[0].points[0].value), ("ms", 2.0));
    let html = render::html(&trend::report(&points, "db file sequential read"));
    assert!(html.contains("<svg") && html.contains("10-Jul-14 16:00:00"), "{html}");
}

#[test]
fn reports_with_blanks_between_groups_of_digits_have_the_same_figures() {
    let plain = read("a.txt", &instance_text());
    let blank = |text: &str, group: &str, point: &str| {
        // Digits, a comma and three digits; digits, a point and digits.
        let bytes: Vec<char> = text.chars().collect();
        let digit = |at: usize| bytes.get(at).is_some_and(char::is_ascii_digit);
        let mut out = String::new();
        for (at, c) in bytes.iter().enumerate() {
            match c {
                ',' if at > 0 && digit(at - 1) && digit(at + 1) => out.push_str(group),
                '.' if digit(at + 1) => out.push_str(point),
                c => out.push(*c),
            }
        }
        out.replace("11,2,0,4,0", "11.2.0.4.0")
    };
    for (group, point) in [(" ", ","), (".", ","), ("\u{a0}", ",")] {
        let read = read("locale.txt", &blank(&instance_text(), group, point));
        assert!(read.decimal_comma, "{group:?}");
        let figures = |report: &Report| {
            let document = report.to_document();
            (report.header.elapsed_us, document.time_model, document.statistics, document.events)
        };
        assert_eq!(figures(&read), figures(&plain), "{group:?}");
    }
}

#[test]
fn comparisons_of_periods_are_read_as_text() {
    let lines = "WORKLOAD REPOSITORY COMPARE PERIOD REPORT (PDB snapshots)

Snapshot Set    DB Id    Unique Name Release     Host
------------ ----------- ----------- ----------- ------------
First (1st)    909607496 CDB1        19.0.0.0.0  node1
Second (2nd)   909607496 CDB1        19.0.0.0.0  node1

Snapshot Set  Begin Snap Id Begin Snap Time           Elapsed Time (min)     DB time (min)
------------ -------------- ------------------------- ------------------ -----------------
1st                      91 08-Dec-23 00:29:40 (Fri)                 5.0              35.2
2nd                      88 08-Dec-23 00:23:57 (Fri)                 5.0              35.5
                                              ~~~~~~~ ~~~~~~~~~~~~~~~~~~ ~~~~~~~~~~~~~~~~~
                                              %Diff:                0.0%              0.6%
~~~~~~~~~~~~~~~~~~~                      1st Per Sec          2nd Per Sec      %Diff
                                     ---------------      ---------------     ------
                       DB time:                  7.0                  7.1        0.6
             Redo size (bytes):          5,362,725.0          4,971,434.4       -7.3

Top Timed Events   First DB/Inst: CDB1/CDB1 Snaps: 91-92 (Elapsed time: 300 sec),  Second DB/Inst: CDB1/CDB1 Snaps: 88-89
-> Events with a \"-\" did not make the Top list

                     1st                                             2nd
---------------------------------------------   ---------------------------------------------
Event                           Waits Time(s)   Event                           Waits Time(s)
------------------------------ ------ -------   ------------------------------ ------ -------
 CPU time                         N/A   1,752    CPU time                         N/A   1,721
 log file sync                 332963     711    log file sync                 315745     753
-library cache: mutex X            74       0   -                                 N/A     N/A
                          ------------------------------------------------------

End of Report
";
    let report = read("diff.txt", lines);
    assert_eq!((report.kind, report.counts.unplaced, report.counts.uncatalogued), (Kind::Compare, 0, 0));
    let tables: Vec<Vec<Vec<&str>>> = report
        .sections()
        .flat_map(|section| section.tables().map(|table| table.rows().map(|row| row.cells().collect()).collect()))
        .collect();
    assert_eq!(tables.len(), 4, "{tables:?}");
    assert_eq!(tables[0][1][..2], ["Second (2nd)", "909607496"]);
    assert_eq!(tables[1][2][3..], ["0.0%", "0.6%"]);
    assert_eq!(tables[2][1], ["Redo size (bytes):", "5,362,725.0", "4,971,434.4", "-7.3"]);
    assert_eq!(tables[3][1], ["log file sync", "332963", "711", "log file sync", "315745", "753"]);
    let section = report.section("Top Timed Events").unwrap();
    let columns: Vec<_> = section.tables().next().unwrap().columns().map(|c| (c.group(), c.name())).collect();
    assert_eq!((columns[1], columns[4]), (("1st", "Waits"), ("2nd", "Waits")));
}

#[test]
fn pieces_of_sql_text_of_statspack_reports_are_joined() {
    let full = "select decode(failover_method, NULL, 0 , 'BASIC', 1, 'PRECONNECT";
    assert_eq!(full.len(), 64);
    let report = format!(
        "STATSPACK report for\n\nSQL ordered by CPU  DB/Inst: A/a  Snaps: 1-2\n\n    CPU                  CPU per             Elapsd                     Old\n  Time (s)   Executions  Exec (s)  %Total   Time (s)    Buffer Gets  Hash Value\n---------- ------------ ---------- ------ ---------- --------------- ----------\n     60.93      620,469       0.00    5.1      60.34       1,241,016 3425645771\n{full}\n', 2) from service$ where name = :1\nand a = 2\n\n     {}\nEnd of Report\n",
        "-".repeat(61)
    );
    let report = read("sp.txt", &report);
    let table = report.section("SQL ordered by CPU").unwrap().tables().next().unwrap();
    let row = table.rows().next().unwrap();
    let expected = format!("{full}', 2) from service$ where name = :1 and a = 2");
    assert_eq!(row.text(table.column(&["SQL Text"]).unwrap()), expected);
}

#[test]
fn pages_of_sql_plus_break_rows_of_several_lines() {
    let lines = "      Object ID % Activity Event                             % Event
--------------- ---------- ------------------------------ ----------

OUTPUT
Object Name (Type)                                    Tablespace
----------------------------------------------------- --------------------------
                             Container Name
-------------------------------------------
          73139     100.00 enq: TX - row lock contention      100.00

OUTPUT
QUERY_TUNING.ORDERS_DEMO (TABLE)                      USERS
                                       PDB1";
    let report = text(&[("Top DB Objects", lines)]);
    let table = report.section("Top DB Objects").unwrap().tables().next().unwrap();
    let rows: Vec<Vec<&str>> = table.rows().map(|row| row.cells().collect()).collect();
    let expected = [
        "73139",
        "100.00",
        "enq: TX - row lock contention",
        "100.00",
        "QUERY_TUNING.ORDERS_DEMO (TABLE)",
        "USERS",
        "PDB1",
    ];
    assert_eq!(rows, [expected], "{:?}", report.unplaced);
}

#[test]
fn memory_is_bounded_and_the_rest_is_counted() {
    // More columns than a table keeps.
    let cells = "<td>1</td>".repeat(1500);
    let html =
        format!("<h1>WORKLOAD REPOSITORY report for</h1><h3>a</h3><table><tr>{cells}</tr></table></body></html>");
    let report = read("wide.html", &html);
    assert_eq!((report.counts.read, report.counts.unplaced), (1500, 500));
}

#[test]
fn statements_in_our_own_reports_are_masked() {
    for mut report in own_forms(&crate::support::Builder::busy().json()) {
        cellar_awr::oracle::mask::Masking::new(true, false, true).apply(&mut report);
        let json = oracle::json::json(&report);
        for secret in ["SELECT * FROM orders", "UPDATE stock", "db1.example", "Index Scan using orders_pkey"] {
            assert!(
                !json.contains(secret),
                "{secret} in {}: {}",
                report.name,
                &json[json.find(secret).unwrap() - 200..][..400]
            );
        }
    }
}
