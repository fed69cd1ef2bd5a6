//! Forms of Oracle's reports that differ between releases and settings: rows of two lines, names of pluggable databases,
//! heads of SQL*Plus's pages, cut cells and names, coarse histograms, rounded averages.

use cellar_awr::oracle::mask::Masking;
use cellar_awr::oracle::model::{Kind, Report, Section};
use cellar_awr::oracle::{self, json, rac_stats, trend};

const TITLE: &str = "WORKLOAD REPOSITORY report for\n\n";

/// A text report with sections: heading and lines.
fn text(sections: &[(&str, &str)]) -> Report {
    let mut text = TITLE.to_owned();
    for (heading, lines) in sections {
        let hyphens = "-".repeat(54);
        text.push_str(&format!("{heading:<46}DB/Inst: ORCL/orcl  Snaps: 1-2\n\n{lines}\n{:26}{hyphens}\n\n", ""));
    }
    text.push_str("End of Report\n");
    oracle::read("report.txt", text.as_bytes()).unwrap()
}

fn rows<'a>(section: Section<'a>) -> Vec<Vec<&'a str>> {
    section.tables().flat_map(|table| table.rows().map(|row| row.cells().collect())).collect()
}

#[test]
fn rows_of_two_lines_name_their_pluggable_database() {
    let lines = "                     Tablespace
Owner                   Name
-------------------- ----------
                     Subobject  Obj.                         Logical
Object Name            Name     Type       Obj#   Dataobj#        Reads  %Total
-------------------- ---------- ----- ---------- ---------- ------------ -------
SCOTT                USERS
EMP                             TABLE      73181      73181        1,000   50.00
   PDB: PDB1
SYS                  SYSTEM
OBJ$                 P1         TABLE         18         18          500   25.00
   PDB: CDB$ROOT
a text that fits no column and crosses the first of the two lines of a row";
    let report = text(&[("Segments by Logical Reads", lines)]);
    let section = report.section("Segments by Logical Reads").unwrap();
    assert_eq!(
        rows(section)[..2],
        [
            ["SCOTT", "USERS", "EMP", "", "TABLE", "73181", "73181", "1,000", "50.00", "PDB1"],
            ["SYS", "SYSTEM", "OBJ$", "P1", "TABLE", "18", "18", "500", "25.00", "CDB$ROOT"],
        ]
    );
    let table = section.tables().next().unwrap();
    assert_eq!(table.columns().last().map(|column| column.name()), Some("PDB Name"));
    assert_eq!(table.rows().next().and_then(|row| row.named(&["Logical Reads"])), Some(1000.0));
}

#[test]
fn a_pluggable_database_is_no_sql_text() {
    let lines = "        Elapsed                  Elapsed Time
        Time (s)    Executions  per Exec (s)  %Total   %CPU    %IO    SQL Id
---------------- -------------- ------------- ------ ------ ------ -------------
           720.0            100          7.20   10.0   50.0   10.0 0kkhhb2w93cx0
Module: SQL*Plus
   PDB: PDB1
update t set a = 1

           360.0              7         51.43    5.0   50.0   10.0 5ms6rbzdnq16t
select 1 from dual
";
    let report = text(&[("SQL ordered by Elapsed Time", lines)]);
    let table = report.section("SQL ordered by Elapsed Time").unwrap().tables().next().unwrap();
    let [module, sql, container] = ["SQL Module", "SQL Text", "PDB Name"].map(|name| table.column(&[name]).unwrap());
    let found: Vec<_> = table.rows().map(|row| (row.text(module), row.text(sql), row.text(container))).collect();
    assert_eq!(found, [("SQL*Plus", "update t set a = 1", "PDB1"), ("", "select 1 from dual", "")]);
    assert_eq!(report.counts.unplaced, 0, "{:?}", report.unplaced);
}

#[test]
fn heads_of_pages_are_no_part_of_a_table() {
    let table = "Event                          Waits\n-------------------------- ---------\none                                1\n";
    let head = format!("\nOUTPUT\n{}\n", "-".repeat(80));
    for head in [head.as_str(), "\nOUTPUT\n"] {
        let report = text(&[("Foreground Wait Events", &format!("{table}{head}two                                2"))]);
        let section = report.section("Foreground Wait Events").unwrap();
        assert_eq!(rows(section), [["one", "1"], ["two", "2"]]);
    }
    let rule = "-".repeat(120);
    let html = format!(
        "<h1>WORKLOAD REPOSITORY report for</h1>\n<h3>Latch Activity</h3>\n\nOUTPUT\n{rule}\n<table><tr><th>a</th></tr>\
         <tr><td>1\n\nOUTPUT\n{rule}\n</td></tr></table></body></html>"
    );
    let report = oracle::read("report.html", html.as_bytes()).unwrap();
    assert_eq!(rows(report.section("Latch Activity").unwrap()), [["1"]]);
}

#[test]
fn cut_cells_are_not_joined() {
    let lines = "                                                                End value
Parameter Name                Begin value                       (if different)
----------------------------- --------------------------------- --------------
audit_file_dest_of_the_databa
control_files                 +DATA/ORCL/CONTROLFILE/current.26
                              +FRA/ORCL/CONTROLFILE/current.256
db_name                       ORCL";
    let report = text(&[("init.ora Parameters", lines)]);
    let found = rows(report.section("init.ora Parameters").unwrap());
    let first: Vec<&str> = found.iter().map(|row| row[0]).collect();
    assert_eq!(first, ["audit_file_dest_of_the_databa", "control_files", "", "db_name"]);
    assert_eq!(found[3].len(), 3);
}

#[test]
fn histograms_before_12_2_are_refined_by_their_details() {
    let base = "                                           % of Waits
                           -----------------------------------------------
                           Total
Event                      Waits  <1ms  <2ms  <4ms  <8ms <16ms <32ms  <=1s   >1s
-------------------------- ----- ----- ----- ----- ----- ----- ----- ----- -----
db file sequential read     1000  50.0                          10.0  40.0";
    let detail = "                           Waits                  % of Total Waits
                           64ms  -----------------------------------------------
Event                      to 2s <32ms <64ms <1/8s <1/4s <1/2s   <1s   <2s  >=2s
-------------------------- ----- ----- ----- ----- ----- ----- ----- ----- -----
db file sequential read      400  60.0  30.0   5.0               5.0";
    let report = text(&[("Wait Event Histogram", base), ("Wait Event Histogram Detail (64 msec to 2 sec)", detail)]);
    let counts = &report.histograms()["db file sequential read"];
    assert_eq!((counts[10], counts[15], counts[16], counts[17]), (500.0, 100.0, 300.0, 50.0));
    assert_eq!((counts[20], counts.iter().sum::<f64>()), (50.0, 1000.0));
}

const EVENTS: &str = "                                        %Time Total Wait    wait    Waits   % DB
Event                             Waits -outs   Time (s)    (ms)     /txn   time
-------------------------- ------------ ----- ---------- ------- -------- ------
";

#[test]
fn averages_are_those_that_are_rounded_least() {
    let top = "                                           Total Wait       Wait   % DB Wait
Event                                Waits Time (sec)    Avg(ms)   time Class
------------------------------ ----------- ---------- ---------- ------ --------
cell single block physical rea      90,000        450       5.00   20.0 User I/O
db file sequential read              1,000          1       1.37   20.0 User I/O";
    let report = text(&[("Top 10 Foreground Events by Total Wait Time", top)]);
    assert_eq!(rac_stats::rac_stats(&report).read_latency_ms, Some(1.37));
    assert_eq!(rac_stats::rac_stats(&report).reads, None);
    let load = "                    Per Second\n                    ----------\nPhysical reads:           50.0";
    assert_eq!(rac_stats::rac_stats(&text(&[("Load Profile", load)])).reads, None);
}

#[test]
fn a_time_is_that_of_the_time_model() {
    let times = "Statistic Name                                       Time (s)
------------------------------------------ ------------------
DB time                                               7,200.0";
    let statistics = "Statistic                                     Total     per Second     per Trans
-------------------------------- ------------------ -------------- -------------
DB time                                     720,001          200.0         200.0";
    let report = text(&[("Instance Activity Stats", statistics), ("Time Model Statistics", times)]);
    let point = trend::point(&report, "DB time");
    assert_eq!((point.source, point.total), (Some(trend::Source::TimeModel), Some(7200e6)));
}

#[test]
fn cut_names_of_events_stand_for_one_name_or_none() {
    let lines = format!(
        "{EVENTS}enq: TX - row lock content           10     0          1     100      0.0    2.0\n\
         cell single block physical           20     0          2     100      0.0    3.0\n\
         a local wait with a long n            5     0          1     200      0.0    1.0"
    );
    let top = "Event                                    Waits Time(s) Wait Class
------------------------------------ --------- ------- ----------
a local wait with a long name                5       1 Configurat";
    let report = text(&[("Foreground Wait Events", &lines), ("Top 5 Timed Foreground Events", top)]);
    let point = trend::point(&report, "enq: TX - row lock contention");
    assert_eq!((point.source, point.count), (Some(trend::Source::Event), Some(10.0)));
    let point = trend::point(&report, "cell single block physical read");
    assert_eq!(point.source, None);
    assert!(point.ambiguous.unwrap().contains("cell single block physical read: flash cache"));
    let events = report.events();
    let class = |beginning: &str| events.iter().find(|event| event.name.starts_with(beginning)).unwrap().class.clone();
    assert_eq!(class("a local wait"), "Configuration");
    assert_eq!(class("enq: TX"), "Application");
}

#[test]
fn hosts_are_masked_in_addresses_cells_and_either_case() {
    let html = "<h1>WORKLOAD REPOSITORY report for</h1><h3>Database</h3>
<table><tr><th>Instance</th><th>Inst Num</th><th>Startup Time</th><th>Host</th></tr>
<tr><td>orcl</td><td>1</td><td>1-Jan-24</td><td>dbnode1.example.com</td></tr></table>
<h3>Exadata Cells</h3><table><tr><th>Cell Name</th><th>IP Address</th></tr><tr><td>Total (3)</td><td></td></tr>
<tr><td>exacel01</td><td>192.168.10.5</td></tr><tr><td>All</td><td></td></tr></table>
<h3>init.ora Parameters</h3><table><tr><th>Parameter Name</th><th>Begin value</th></tr>
<tr><td>local_listener</td><td>(ADDRESS=(PROTOCOL=TCP)(HOST = scanvip)(PORT=1521)) DBNODE1 (host=dbnode1)</td></tr></table></body>";
    let mut report = oracle::read("report.html", html.as_bytes()).unwrap();
    Masking::new(true, false, false).apply(&mut report);
    let json = json::json(&report);
    for secret in ["dbnode1", "DBNODE1", "exacel01", "192.168", "scanvip", "example.com"] {
        assert!(!json.contains(secret), "{secret} in {json}");
    }
    assert!(json.contains("Total (3)") && json.contains("\"All\""), "{json}");
    assert!(json.contains("(PORT=1521)) host1 (host=host1)"), "{json}");
}

#[test]
fn hosts_are_masked_in_programs_and_only_as_whole_words() {
    let html = "<h1>WORKLOAD REPOSITORY report for</h1><h3>Database</h3>
<table><tr><th>Instance</th><th>Inst Num</th><th>Startup Time</th><th>Host</th></tr>
<tr><td>orcl</td><td>1</td><td>1-Jan-24</td><td>user</td></tr></table>
<h3>Sessions</h3><table><tr><th>Program</th><th>Module</th><th>Wait Class</th></tr>
<tr><td>sqlplus@app07 (TNS V1-V3)</td><td>payroll</td><td>Superuser on USER-vip</td></tr></table></body>";
    let mut report = oracle::read("report.html", html.as_bytes()).unwrap();
    Masking::new(true, false, true).apply(&mut report);
    let masked = rows(report.section("Sessions").unwrap());
    assert_eq!(masked, [["sqlplus@host2 (TNS V1-V3)", "sql1", "Superuser on host1-vip"]]);
}

#[test]
fn long_numbers_and_many_sections_are_read_in_linear_time() {
    let html = format!(
        "<h1>WORKLOAD REPOSITORY report for</h1><h3>Numbers</h3><table><tr><th>Value</th></tr><tr><td>{}'</td></tr></table></body>",
        "1".repeat(300_000)
    );
    assert!(oracle::read("report.html", html.as_bytes()).is_ok());
    let sections = vec!["{}"; 100_000].join(",");
    let json = format!("{{\"kind\":\"instance\",\"sections\":[{sections}]}}");
    let _ = oracle::read("report.json", json.as_bytes());
}

#[test]
fn further_headings_and_files_are_recognized() {
    for heading in ["Parameters modified by this Container", "Multi-Valued Parameters"] {
        let report = text(&[(heading, "Name     Value\n-------- -----\na            1")]);
        assert!(report.section(heading).unwrap().catalogued(), "{heading}");
    }
    let cut = format!("{:<49}DB/Inst: RACDBNAME/racdbname1  Sna", "Instance Activity Stats");
    let report = format!("{TITLE}{cut}\n\nStatistic      Total\n--------- ----------\na                  1\n");
    let report = oracle::read("report.txt", report.as_bytes()).unwrap();
    assert_eq!(rows(report.section("Instance Activity Stats").unwrap()), [["a", "1"]]);
    let mut tar = vec![b'a'; 600];
    tar[257..262].copy_from_slice(b"ustar");
    assert!(oracle::read("a", &tar).unwrap_err().to_string().contains("a tar archive"));
    let office = b"PK\x03\x04\x14\0\0\0[Content_Types].xml";
    assert!(oracle::read("a", office).unwrap_err().to_string().contains("Microsoft Office"));
    assert!(Kind::Compare.without_figures().is_some() && Kind::Global.without_figures().is_none());
}
