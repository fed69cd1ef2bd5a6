//! `cellar awr read`: the model of reports, as a summary, JSON, CSV or Parquet.

use super::Files;
use super::columnar::ParquetFiles;
use crate::awr::{source::Failure, to_stdout};
use cellar_awr::oracle::model::{Form, Report};
use cellar_awr::oracle::{csv, json};
use cellar_awr::table::duration;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

const OTHER_FORMS: [&str; 2] = ["json", "csv"];

/// Read Oracle's AWR and Statspack reports without losing a cell
///
/// Reads text and HTML reports of releases 11.2 to 23ai: instance, PDB, RAC global, comparison, SQL; and Statspack. Kind,
/// release and encoding are recognized by content. Prints a summary of each report: what the report is about, its sections,
/// tables and cells, and what could not be placed.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub struct ReadArguments {
    #[command(flatten)]
    files: Files,
    /// Print the reports as JSON: one object per line, with every section, table and cell
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Write each table to a CSV file in a folder, one subfolder for each report
    #[arg(long, value_name = "FOLDER")]
    csv: Option<PathBuf>,
    /// Write all reports to reports.parquet and all cells to cells.parquet in a folder
    #[arg(long, value_name = "FOLDER", conflicts_with_all = OTHER_FORMS)]
    parquet: Option<PathBuf>,
}

pub fn read(arguments: &ReadArguments) -> Result<(), Failure> {
    let mut folders = BTreeMap::new();
    let mut parquet = arguments.parquet.as_deref().map(ParquetFiles::create).transpose()?;
    let read = read_all(arguments, &mut folders, &mut parquet);
    // The files contain the reports that were read.
    if let Some(files) = parquet {
        to_stdout(&files.finish()?)?;
    }
    read
}

fn read_all(
    arguments: &ReadArguments,
    folders: &mut BTreeMap<String, usize>,
    parquet: &mut Option<ParquetFiles>,
) -> Result<(), Failure> {
    arguments.files.for_each("read", &mut |report| match (&arguments.csv, parquet.as_mut()) {
        (_, Some(files)) => files.add(&report),
        (Some(folder), _) => write_csv(folder, &report, folders),
        _ if arguments.json => to_stdout(&json::json(&report)).and_then(|()| to_stdout("\n")),
        _ => to_stdout(&summary(&report)),
    })
}

/// Writes the tables of a report below a folder that is named after the report's file.
fn write_csv(folder: &Path, report: &Report, folders: &mut BTreeMap<String, usize>) -> Result<(), Failure> {
    let name =
        Path::new(&report.name).file_name().map_or_else(|| "report".to_owned(), |n| n.to_string_lossy().into_owned());
    let count = folders.entry(name.clone()).or_insert(0);
    *count += 1;
    // Reports of the same name in several folders.
    let folder = folder.join(if *count == 1 { name } else { format!("{name}.{count}") });
    let write = |file: &str, text: &str| {
        let path = folder.join(file);
        std::fs::write(&path, text)
            .map_err(|error| Failure::error(format!("could not write \"{}\": {error}", path.display())))
    };
    std::fs::create_dir_all(&folder)
        .map_err(|error| Failure::error(format!("could not create \"{}\": {error}", folder.display())))?;
    for section in report.sections() {
        for table in section.tables() {
            write(&csv::file_name(section, table), &csv::table(table))?;
        }
    }
    write("index.csv", &csv::index(report))?;
    to_stdout(&format!("{}: {} tables\n", folder.display(), report.tables().len()))
}

/// A few lines about a report.
fn summary(report: &Report) -> String {
    let header = &report.header;
    let mut out = String::new();
    let form = match report.form {
        Form::Html => "HTML",
        Form::Text => "text",
        Form::Json => "JSON",
    };
    let mut line = |label: &str, text: String| {
        let _ = writeln!(out, "{label:>12}  {text}");
    };
    line("File", report.name.clone());
    line("Report", format!("{}, {form}, {}", report.kind.name(), report.encoding));
    let release = if header.release.is_empty() { "" } else { ", release " };
    let container =
        if header.container.is_empty() { String::new() } else { format!(", container {}", header.container) };
    line("Database", format!("{}{container}{release}{}", header.db_name, header.release));
    let instances: Vec<String> = header
        .instances
        .iter()
        .map(|instance| match instance.host.as_str() {
            "" => instance.name.clone(),
            host => format!("{} on {host}", instance.name),
        })
        .collect();
    line("Instances", instances.join(", "));
    let id = |id: Option<u64>| id.map_or_else(|| "?".to_owned(), |id| id.to_string());
    line(
        "Snapshots",
        format!(
            "{} to {}, {} to {}",
            id(header.begin.snap_id),
            id(header.end.snap_id),
            header.begin.time,
            header.end.time
        ),
    );
    let time = |us: Option<f64>| us.map_or_else(|| "unknown".to_owned(), duration);
    line("Elapsed", format!("{}, DB time {}", time(header.elapsed_us), time(header.db_time_us)));
    let (sections, tables) = (report.sections().len(), report.tables().len());
    let counts = &report.counts;
    line(
        "Cells",
        format!(
            "{} in {tables} tables of {sections} sections: {} placed, {} not placed",
            counts.read, counts.placed, counts.unplaced
        ),
    );
    for section in report.uncatalogued() {
        line("Uncatalogued", format!("\"{}\" (line {})", section.heading(), section.line()));
    }
    for cell in report.unplaced.iter().take(5) {
        line("Not placed", format!("line {}: {}", cell.line, cell.text));
    }
    for warning in &report.warnings {
        line("Warning", format!("line {}: {}", warning.line, warning.text));
    }
    out.push('\n');
    out
}
