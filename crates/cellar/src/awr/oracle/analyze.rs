//! `cellar awr findings`, `rac-stats`, `trend` and `advise`, and the documents of reports that `diff` compares.

use super::{Files, Mask};
use crate::awr::{source::Failure, to_stdout};
use cellar_awr::document::Document;
use cellar_awr::oracle::mask::Masking;
use cellar_awr::oracle::trend::{self, Point, point, sortable};
use cellar_awr::oracle::{advice, csv, findings as rules, rac_stats as script};
use cellar_awr::render::{self, Format};
use clap::builder::PossibleValuesParser;
use serde_json::json;
use std::path::Path;

/// The form in which a report is printed.
#[derive(clap::Args)]
struct Form {
    /// Form of the output: text, html or json
    #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = PossibleValuesParser::new(["text", "html", "json"]))]
    format: String,
    /// Short for --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

impl Form {
    fn format(&self) -> Format {
        let name = if self.json { "json" } else { &self.format };
        Format::parse(name).unwrap_or(Format::Text)
    }
}

/// Analyze Oracle's AWR and Statspack reports: findings, Smart Scan efficiency, waits, histograms, I/O profile
#[derive(clap::Args)]
pub struct FindingsArguments {
    #[command(flatten)]
    files: Files,
    #[command(flatten)]
    form: Form,
}

pub fn findings(arguments: &FindingsArguments) -> Result<(), Failure> {
    let format = arguments.form.format();
    arguments.files.for_each("findings", &mut |report| {
        let text = render::render(&rules::report(&report), format);
        to_stdout(&text)
    })
}

/// Print the table of the script rac_stats.sh: IO requests, read latency, writes and redo per second of each report
#[derive(clap::Args)]
pub struct RacStatsArguments {
    #[command(flatten)]
    files: Files,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

pub fn rac_stats(arguments: &RacStatsArguments) -> Result<(), Failure> {
    if !arguments.json {
        to_stdout(&format!("{}|\n", script::COLUMNS.join("|")))?;
    }
    arguments.files.for_each("rac-stats", &mut |report| {
        let stats = script::rac_stats(&report);
        let line = match arguments.json {
            true => json!({
                "file": report.name,
                "total_io_per_s": stats.total(),
                "reads_per_s": stats.reads,
                "read_latency_ms": stats.read_latency_ms,
                "writes_per_s": stats.writes,
                "redo_mb_per_s": stats.redo_mb,
            })
            .to_string(),
            false => stats.line(&report.name),
        };
        to_stdout(&format!("{line}\n"))
    })
}

const TREND_FORMATS: [&str; 5] = ["text", "csv", "json", "svg", "html"];

/// Show how a statistic, an event, a time of the time model or a statement changes over Oracle's reports, in order of time
#[derive(clap::Args)]
pub struct TrendArguments {
    #[command(flatten)]
    files: Files,
    /// Name of the statistic or event, as reports print it, or SQL_ID of the statement
    #[arg(long, value_name = "NAME")]
    stat: String,
    /// Form of the output: text, csv, json, svg (chart) or html (chart and table)
    #[arg(long, value_name = "FORMAT", default_value = "text", value_parser = PossibleValuesParser::new(TREND_FORMATS))]
    format: String,
    /// Short for --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

pub fn trend(arguments: &TrendArguments) -> Result<(), Failure> {
    let mut points: Vec<Point> = Vec::new();
    let read = arguments.files.for_each("trend", &mut |report| {
        points.push(point(&report, &arguments.stat));
        Ok(())
    });
    points.sort_by_key(|point| (sortable(&point.end), point.end_snap));
    for point in points.iter().filter_map(|point| Some((&point.file, point.ambiguous.as_ref()?))) {
        eprintln!("cellar awr trend: \"{}\": the name is ambiguous: {}", point.0, point.1);
    }
    if !points.is_empty() && points.iter().all(|point| point.source.is_none() && point.ambiguous.is_none()) {
        return Err(Failure::error(format!("no report contains \"{}\"", arguments.stat)));
    }
    match if arguments.json { "json" } else { arguments.format.as_str() } {
        "json" => to_stdout(&format!("{}\n", json!(points.iter().map(object).collect::<Vec<_>>())))?,
        "csv" => to_stdout(&comma_separated(&points))?,
        "html" => to_stdout(&render::html(&trend::report(&points, &arguments.stat)))?,
        "svg" => {
            let charts = trend::charts(&points, &arguments.stat);
            if charts.is_empty() {
                return Err(Failure::error(format!("no report contains a figure of \"{}\"", arguments.stat)));
            }
            to_stdout(&render::svg(&charts))?;
        }
        _ => to_stdout(&render::table(&trend::table(&points)))?,
    }
    read
}

fn comma_separated(points: &[Point]) -> String {
    let mut out = String::new();
    csv::record(
        &mut out,
        ["end", "end_snap", "elapsed_us", "total", "per_second", "count", "average_us", "source", "database", "file"],
    );
    let number = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
    for point in points {
        let fields = [
            sortable(&point.end),
            point.end_snap.map_or_else(String::new, |id| id.to_string()),
            number(point.elapsed_us),
            number(point.total),
            number(point.per_second),
            number(point.count),
            number(point.average_us),
            point.source.map_or("", |source| source.name()).to_owned(),
            point.subject.clone(),
            point.file.clone(),
        ];
        csv::record(&mut out, fields.iter().map(String::as_str));
    }
    out
}

fn object(point: &Point) -> serde_json::Value {
    json!({
        "file": point.file,
        "database": point.subject,
        "end": sortable(&point.end),
        "end_snap": point.end_snap,
        "elapsed_us": point.elapsed_us,
        "source": point.source.map(|source| source.name()),
        "total": point.total,
        "per_second": point.per_second,
        "count": point.count,
        "average_us": point.average_us,
        "ambiguous": point.ambiguous,
    })
}

/// Estimate from AWR reports what the workloads would gain from a cell
///
/// Reads AWR and Statspack reports of Oracle, and reports of `cellar awr report` as text, HTML, JSON or document. Each estimate is a
/// range, with its assumptions and the figures of the report from which it is computed.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct AdviseArguments {
    #[command(flatten)]
    files: Files,
    #[command(flatten)]
    form: Form,
}

pub fn advise(arguments: &AdviseArguments) -> Result<(), Failure> {
    let format = arguments.form.format();
    arguments.files.for_each("advise", &mut |report| to_stdout(&render::render(&advice::report(&report), format)))
}

/// The documents of two files that contain reports, masked alike; each None if the file does not exist or contains JSON.
pub fn compared(files: [&str; 2], mask: &Mask) -> Result<[Option<Document>; 2], Failure> {
    let mut masking = mask.masking();
    let [first, second] = files;
    Ok([one_document(first, &mut masking)?, one_document(second, &mut masking)?])
}

fn one_document(file: &str, masking: &mut Masking) -> Result<Option<Document>, Failure> {
    if !Path::new(file).is_file() {
        return Ok(None);
    }
    let mut documents = Vec::new();
    super::inputs::for_each(&[file.into()], &mut |input| {
        let input = input?;
        if input.bytes.trim_ascii_start().starts_with(b"{") || input.bytes.trim_ascii_start().starts_with(b"[") {
            return Ok(());
        }
        let report = super::report_of(&input, false);
        let mut report = report.map_err(|refusal| Failure::error(format!("\"{}\": {refusal}", input.name)))?;
        masking.apply(&mut report);
        if let Some(damage) = &input.damage {
            eprintln!("cellar awr diff: \"{}\": {damage}", input.name);
        }
        documents.push(report.to_document());
        Ok(())
    })?;
    match documents.len() {
        0 | 1 => Ok(documents.pop()),
        count => Err(Failure::usage(format!("\"{file}\" contains {count} reports, but one is compared"))),
    }
}
