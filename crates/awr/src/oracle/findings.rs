//! Findings about an Oracle report: the identifiers and thresholds of our own rules, with Oracle's names and advice.

use super::lookup::{Lookup, sections_of};
use super::model::Report;
use crate::document::{Event, Measure, names};
use crate::figures::time::{average_wait_us, foreground_waits};
use crate::findings::{Evidence, Finding, Findings, Impact, Kind, Recommendation};
use crate::report::{self, Kind as ReportKind};
use crate::rules::{self, FLASH_READ_US, SIGNIFICANT_PERCENT};
use crate::sections::{self, Block, Group, Section};
use crate::table::{Align, Cell, Column, Layout, Table, duration};
use crate::view::{View, top};

/// Share of DB time that DB CPU takes in an interval that is bound by CPU.
const CPU_PERCENT: f64 = 50.0;
/// The least share of the CPUs that DB CPU takes in such an interval, if the report has the number of CPUs.
const HOST_CPU_PERCENT: f64 = 10.0;
/// Rules whose conditions and advice hold for Oracle, too.
const SHARED_RULES: [&str; 4] = ["latency-tail", "compressed-comparison", "mixed-directions", "top-sql"];
/// Sections of our own reports that print figures of the document.
const SECTIONS: [&str; 6] = ["smart-scan", "wait-classes", "top-events", "histogram", "histogram-32ms", "histogram-2s"];
/// Statistics of the efficiency figures.
const EFFICIENCY: [&str; 6] =
    [names::ELIGIBLE, names::SAVED, names::RETURNED, names::INTERCONNECT, names::UNCOMPRESSED, names::FLASH_HITS];

/// Waits that one rule judges.
struct Rule {
    id: &'static str,
    title: &'static str,
    area: &'static str,
    advice: &'static str,
    /// Whether a wait counts, by class and name.
    applies: fn(&str, &str) -> bool,
}

const RULES: [Rule; 9] = [
    Rule {
        id: "single-block-reads",
        title: "Single-block reads took much time",
        area: "I/O",
        advice: "Store the objects on flash, or enlarge the buffer cache; tune statements that read many single blocks",
        applies: |_, event| event == "db file sequential read" || event.starts_with("cell single block physical"),
    },
    Rule {
        id: "offloadable-scans",
        title: "Direct-path and multi-block reads could be offloaded",
        area: "I/O",
        advice: "Direct-path reads are those that Smart Scan offloads; multi-block reads through the buffer cache are not \
                 offloaded until they become direct-path reads",
        applies: |_, event| matches!(event, "direct path read" | "db file scattered read"),
    },
    Rule {
        id: "temp-spills",
        title: "Reading and writing temporary segments took much time",
        area: "Temporary files",
        advice: "Enlarge PGA_AGGREGATE_TARGET, or reduce the rows that statements sort or hash",
        applies: |_, event| event.starts_with("direct path") && event.contains("temp"),
    },
    Rule {
        id: "commit-waits",
        title: "Sessions waited for commits",
        area: "Commit",
        advice: "Commit several changes in one transaction, or store redo logs on a faster device",
        applies: |class, _| class == "Commit",
    },
    Rule {
        id: "lock-waits",
        title: "Sessions waited for locks of other sessions",
        area: "Locks",
        advice: "Shorten the transactions that keep the locks; storage does not cure lock waits",
        applies: |class, _| class == "Application",
    },
    Rule {
        id: "lwlock-contention",
        title: "Sessions contended for latches, mutexes and buffers",
        area: "Concurrency",
        advice: "Reduce parsing and the sessions that are active at once; storage does not cure contention",
        applies: |class, _| class == "Concurrency",
    },
    Rule {
        id: "configuration-waits",
        title: "Sessions waited for free buffers or log files",
        area: "Configuration",
        advice: "Free buffers need faster writes or a larger buffer cache; log file switches need larger redo logs",
        applies: |class, _| class == "Configuration",
    },
    Rule {
        id: "cluster-waits",
        title: "Sessions waited for blocks of other instances",
        area: "Cluster",
        advice: "Direct the work on a table to one instance, or speed up the interconnect",
        applies: |class, _| class == "Cluster",
    },
    Rule {
        id: "resource-manager",
        title: "The resource manager made sessions wait",
        area: CPU_AREA,
        advice: "The resource plan limits CPU: compare the limits with the idle CPU of the hosts",
        // Our own reports print the time in which sessions waited for a core, which no plan caused, with the class of that wait.
        applies: |class, event| class == "Scheduler" && event != CPU_RUN_QUEUE,
    },
];

/// The finding about DB CPU, and its area.
const CPU_BOUND: &str = "cpu-bound";
const CPU_AREA: &str = "CPU";
/// The wait for a core in the events of our own reports.
const CPU_RUN_QUEUE: &str = "CPU run queue";

/// The findings about a report.
pub fn judge(report: &Report) -> Findings {
    let document = report.to_document();
    let view = View::new(&document);
    let shared = rules::judge(&document);
    let mut findings: Vec<Finding> =
        shared.findings.into_iter().filter(|finding| SHARED_RULES.contains(&finding.id)).collect();
    let mut result = Findings::default();
    let has_events = foreground_waits(&document).next().is_some() && view.model.db_time_us.is_some();
    for rule in &RULES {
        let waits = foreground_waits(&document).filter(|event| (rule.applies)(&event.class, &event.event));
        let waits: Vec<&Event> = waits.collect();
        let us: f64 = waits.iter().filter_map(|event| event.time_us).sum();
        let share = view.model.percent_of_db_time(Some(us));
        if share.is_some_and(|share| share >= SIGNIFICANT_PERCENT) {
            findings.push(finding(rule, us, &waits, &view));
        } else if has_events && !result.without_impact.contains(&rule.area) {
            result.without_impact.push(rule.area);
        } else if !has_events && !result.not_judged.contains(&rule.area) {
            result.not_judged.push(rule.area);
        }
    }
    findings.extend(cpu(&view));
    let is_found = |id: &str| findings.iter().any(|finding| finding.id == id);
    let has_impact = |area: &str| {
        RULES.iter().any(|rule| rule.area == area && is_found(rule.id)) || (area == CPU_AREA && is_found(CPU_BOUND))
    };
    result.without_impact.retain(|area| !has_impact(area));
    result.findings = findings;
    result.arrange(view.model.average_active_sessions());
    result
}

fn impact(view: &View<'_>, us: f64) -> Impact {
    let us_known = Some(us);
    Impact {
        us,
        active_sessions: view.model.active_sessions(us_known),
        percent: view.model.percent_of_db_time(us_known),
    }
}

fn finding(rule: &Rule, us: f64, waits: &[&Event], view: &View<'_>) -> Finding {
    let largest = top(waits.iter().copied(), 3, |event| event.time_us);
    let evidence = largest.iter().map(|event| {
        let share = view.model.percent_of_db_time(event.time_us).unwrap_or(0.0);
        let average = average_wait_us(event.time_us, event.waits)
            .map_or_else(String::new, |us| format!(", average {}", duration(us)));
        let text =
            format!("{}: {}, {share:.1} % of DB time{average}", event.event, duration(event.time_us.unwrap_or(0.0)));
        Evidence { section: "foreground-events", text }
    });
    // A read from flash would take less; other waits can vanish.
    let average = largest.first().and_then(|event| average_wait_us(event.time_us, event.waits));
    let saved = match (rule.id, average) {
        ("single-block-reads", Some(average)) => us * (1.0 - FLASH_READ_US / average).max(0.0),
        _ => us,
    };
    Finding {
        id: rule.id,
        kind: Kind::Problem,
        title: rule.title.to_owned(),
        impact: Some(impact(view, us)),
        evidence: evidence.collect(),
        recommendations: vec![Recommendation {
            text: rule.advice.to_owned(),
            benefit_percent: view.model.percent_of_db_time(Some(saved)).map(|percent| percent.min(100.0)),
        }],
    }
}

fn cpu(view: &View<'_>) -> Option<Finding> {
    let us = view.model.db_cpu_us?;
    let share = view.model.percent_of_db_time(Some(us)).filter(|share| *share >= CPU_PERCENT)?;
    let mut evidence =
        vec![Evidence { section: "top-events", text: format!("DB CPU: {}, {share:.1} % of DB time", duration(us)) }];
    let host = view.model.percent_of_host_cpu(view.document.cpus());
    let is_bound = host.is_none_or(|host| host >= HOST_CPU_PERCENT);
    if let Some(host) = host {
        evidence.push(Evidence { section: "top-events", text: format!("{host:.1} % of the CPUs of the hosts") });
    }
    Some(Finding {
        id: CPU_BOUND,
        kind: if is_bound { Kind::Problem } else { Kind::Symptom },
        title: match is_bound {
            true => "The interval is bound by CPU",
            false => "Sessions spent most of their time on a CPU, and left most CPUs idle",
        }
        .to_owned(),
        impact: Some(impact(view, us)),
        evidence,
        recommendations: vec![Recommendation {
            text: "Tune the statements with the most CPU time; faster storage does not shorten CPU time".to_owned(),
            benefit_percent: None,
        }],
    })
}

/// The report of `cellar awr findings`: findings, efficiency of Smart Scan, waits, histograms, I/O.
pub fn report(report: &Report) -> report::Report {
    let findings = judge(report);
    let document = report.to_document();
    let mut all = vec![head(report), sections::findings(&findings)];
    let own = sections::all(&document);
    for id in SECTIONS {
        let found =
            own.iter().filter(|section| section.id == id && section.tables().any(|table| !table.rows.is_empty()));
        all.extend(found.cloned());
    }
    all.extend(not_computable(report));
    all.extend(copied(report, "io-profile", "IO Profile", Group::Io, 20));
    all.extend(copied(report, "databases", "Top Databases by", Group::Io, 10));
    about(report, "Findings about ", all, findings)
}

/// A report about a report that was read. Its title is `prefix`, the name of the file, and what the file is about.
pub(super) fn about(report: &Report, prefix: &str, mut sections: Vec<Section>, findings: Findings) -> report::Report {
    sections.sort_by_key(|section| section.group);
    let header = &report.header;
    let id = |id: Option<u64>| id.map_or_else(|| "?".to_owned(), |id| id.to_string());
    let subject = format!("DB: {}  Snaps: {}-{}", header.db_name, id(header.begin.snap_id), id(header.end.snap_id));
    report::Report {
        kind: if header.instances.len() > 1 { ReportKind::Global } else { ReportKind::Instance },
        title: format!("{prefix}{}: {subject}", report.name),
        subject,
        sections,
        findings,
    }
}

pub(super) fn head(report: &Report) -> Section {
    let header = &report.header;
    let mut table =
        Table::new(&["<File", "<DB Name", "<Release", "Begin", "End", "Elapsed (min)", "DB Time (min)", "CPUs"]);
    let minutes = |us: Measure| Cell::decimal(us.map(|us| us / 60e6), 2);
    table.push(vec![
        Cell::text(&report.name),
        Cell::text(&header.db_name),
        Cell::text(&header.release),
        Cell::text(&header.begin.time),
        Cell::text(&header.end.time),
        minutes(header.elapsed_us),
        minutes(header.db_time_us),
        Cell::count(header.cpus),
    ]);
    let mut section = Section::new("header", Group::Summary, "Report").table(table);
    for warning in report.warnings.iter().take(5) {
        section = section.sentence(format!("Line {}: {}.", warning.line, warning.text));
    }
    section
}

/// Which statistics of the efficiency figures a text report does not identify.
pub(super) fn not_computable(report: &Report) -> Option<Section> {
    let mut section = Section::new("not-computable", Group::SmartScan, "Figures That Are Not Computable");
    for name in EFFICIENCY {
        if let Lookup::Ambiguous(printed, others) = report.statistic(name) {
            let others =
                others.iter().filter(|other| **other != name).map(|other| format!("\"{other}\"")).collect::<Vec<_>>();
            section = section.sentence(format!(
                "\"{name}\": the report cuts the name to \"{printed}\", which also stands for {}. The HTML form has the \
                 complete names.",
                others.join(", ")
            ));
        }
    }
    (!section.blocks.is_empty()).then_some(section)
}

/// The first tables of sections of the report, as printed.
fn copied(report: &Report, id: &'static str, heading: &str, group: Group, rows: usize) -> Vec<Section> {
    let mut all = Vec::new();
    let sections = sections_of(report, heading).filter(|section| section.tables().len() > 0);
    for (index, section) in sections.enumerate() {
        // Each section of a page has its own anchor.
        let id = if index == 0 { id.to_owned() } else { format!("{id}-{}", index + 1) };
        let mut copy = Section::new(id, group, section.heading());
        for table in section.tables() {
            let columns = table.columns().map(|column| Column {
                name: format!("{} {}", column.group(), column.name()).trim().to_owned(),
                align: Align::Right,
            });
            let mut columns: Vec<Column> = columns.collect();
            if let Some(first) = columns.first_mut() {
                first.align = Align::Left;
            }
            let width = columns.len();
            let cells =
                table.rows().take(rows).map(|row| (0..width).map(|column| Cell::text(row.text(column))).collect());
            copy.blocks.push(Block::Table(Table {
                title: String::new(),
                columns,
                rows: cells.collect(),
                layout: Layout::Plain,
            }));
        }
        all.push(copy);
    }
    all
}
