//! `cellar awr`: AWR snapshots and reports of a cluster.
//!
//! The repository, the schema `awr` of the extension, returns a report document; the crate cellar-awr renders the document.

mod arguments;
mod oracle;
mod repository;
mod source;
mod transfer;

use crate::CONFIG_EXIT;
pub use arguments::AwrArguments;
use arguments::{
    AshArguments, AwrCommand, DiffArguments, ExportArguments, GlobalArguments, ImportArguments, Output,
    ReportArguments, SnapshotArguments, SnapshotsArguments, SqlArguments,
};
use cellar_awr::render::{self, Format};
use cellar_awr::{report, sql_id};
use repository::{Interval, Period, Repository};
pub use repository::{configuration, with_cause};
use serde_json::{Value, json};
use source::{Failure, documents};
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::ExitCode;

pub fn run(arguments: &AwrArguments) -> ExitCode {
    let (name, result) = match &arguments.command {
        AwrCommand::Report(arguments) => ("report", report(arguments)),
        AwrCommand::Diff(arguments) => ("diff", diff(arguments)),
        AwrCommand::Global(arguments) => ("global", global(arguments)),
        AwrCommand::Ash(arguments) => ("ash", ash(arguments)),
        AwrCommand::Sql(arguments) => ("sql", sql(arguments)),
        AwrCommand::Snapshots(arguments) => ("snapshots", snapshots(arguments)),
        AwrCommand::Snapshot(arguments) => ("snapshot", snapshot(arguments)),
        AwrCommand::Export(arguments) => ("export", export(arguments)),
        AwrCommand::Import(arguments) => ("import", import(arguments)),
        AwrCommand::Read(arguments) => ("read", oracle::read(arguments)),
        AwrCommand::Findings(arguments) => ("findings", oracle::findings(arguments)),
        AwrCommand::RacStats(arguments) => ("rac-stats", oracle::rac_stats(arguments)),
        AwrCommand::Trend(arguments) => ("trend", oracle::trend(arguments)),
        AwrCommand::Html(arguments) => ("html", oracle::html(arguments)),
        AwrCommand::Advise(arguments) => ("advise", oracle::advise(arguments)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("cellar awr {name}: {failure}");
            if failure.is_usage() { CONFIG_EXIT.into() } else { ExitCode::FAILURE }
        }
    }
}

fn report(arguments: &ReportArguments) -> Result<(), Failure> {
    let json = match &arguments.from_json {
        Some(file) => source::read(file)?,
        None => {
            let mut repository = Repository::connect(arguments.connection.dsn.as_deref())?;
            let (instance, period) = arguments.snapshots.find(&mut repository)?;
            let period = match period {
                Some(period) => period,
                None => repository.last(instance, 2)?,
            };
            repository.document(period, instance)?
        }
    };
    write(&arguments.output, &json, || Ok(report::of(&documents(&json)?)))
}

fn diff(arguments: &DiffArguments) -> Result<(), Failure> {
    // Files of Oracle's reports, unless the arguments choose periods of a repository.
    if !arguments.from_json && arguments.connection.dsn.is_none() {
        match oracle::compared([&arguments.first, &arguments.second], &arguments.mask)? {
            [Some(first), Some(second)] => {
                return match arguments.output.format.as_deref() {
                    Some("document") => {
                        Err(Failure::usage("the comparison of Oracle's reports has no form \"document\""))
                    }
                    _ => write(&arguments.output, "", || Ok(report::difference(&first, &second))),
                };
            }
            [None, None] => {}
            _ => {
                return Err(Failure::usage(
                    "both periods must be files of Oracle's reports, or periods of the repository",
                ));
            }
        }
    }
    if !arguments.mask.is_empty() {
        return Err(Failure::usage("--mask applies to the comparison of files of reports")
            .hint("\"cellar awr export --mask\" masks AWR snapshots."));
    }
    let periods = [&arguments.first, &arguments.second];
    let json = match arguments.from_json {
        true => periods.map(|file| source::read(Path::new(file))),
        false => {
            let mut repository = Repository::connect(arguments.connection.dsn.as_deref())?;
            let instance = repository.instance(&arguments.instance)?;
            periods.map(|period| {
                let (period, instance) = repository.period(period, instance)?;
                repository.document(period, instance)
            })
        }
    };
    let [first, second] = json;
    let (first, second) = (first?, second?);
    write(&arguments.output, &source::array(&[first.clone(), second.clone()]), || {
        let (first, second) = (documents(&first)?, documents(&second)?);
        match (first.as_slice(), second.as_slice()) {
            ([first], [second]) => Ok(report::difference(first, second)),
            _ => Err(Failure::usage("a period to compare must be the document of one instance")),
        }
    })
}

fn global(arguments: &GlobalArguments) -> Result<(), Failure> {
    let json = match &arguments.from_json {
        Some(file) => source::read(file)?,
        None => {
            let mut repository = Repository::connect(arguments.connection.dsn.as_deref())?;
            let mut all = Vec::new();
            let selected = instances(&mut repository, &arguments.instance)?;
            for instance in repository.instances()? {
                if selected.is_empty() || selected.contains(&instance) {
                    let period = repository.last(instance, arguments.last)?;
                    all.push(repository.document(period, instance)?);
                }
            }
            source::array(&all)
        }
    };
    write(&arguments.output, &json, || Ok(report::global(&documents(&json)?)))
}

fn ash(arguments: &AshArguments) -> Result<(), Failure> {
    let json = match &arguments.from_json {
        Some(file) => source::read(file)?,
        None => {
            let interval = Interval {
                begin: arguments.begin.as_deref(),
                end: arguments.end.as_deref(),
                last: arguments.last.as_deref(),
            };
            let (dimensions, values) = arguments.filters.conditions();
            let mut repository = Repository::connect(arguments.connection.dsn.as_deref())?;
            let instance = repository.instance(&arguments.instance)?;
            repository.session_history(&interval, &arguments.by, (&dimensions, &values), instance)?
        }
    };
    write(&arguments.output, &json, || Ok(report::of(&documents(&json)?)))
}

fn sql(arguments: &SqlArguments) -> Result<(), Failure> {
    let json = match (&arguments.from_json, &arguments.sql_id, arguments.query_id) {
        (Some(file), ..) => source::read(file)?,
        (None, sql_id, query_id) => {
            let query_id = match sql_id {
                Some(text) => Some(sql_id::parse(text).ok_or_else(|| {
                    Failure::usage(format!("invalid SQL_ID \"{text}\""))
                        .detail("An SQL_ID has 13 characters: digits and lower-case letters without e, i, l and o.")
                })?),
                None => query_id,
            };
            let mut repository = Repository::connect(arguments.connection.dsn.as_deref())?;
            let (instance, period) = arguments.snapshots.find(&mut repository)?;
            repository.statement_history(query_id, period, instance)?
        }
    };
    write(&arguments.output, &json, || Ok(report::of(&documents(&json)?)))
}

fn snapshots(arguments: &SnapshotsArguments) -> Result<(), Failure> {
    let list = Repository::connect(arguments.connection.dsn.as_deref())?.snapshots()?;
    match arguments.json {
        true => json_to_stdout(&json!(list)),
        false => to_stdout(&repository::snapshot_table(&list)),
    }
}

fn snapshot(arguments: &SnapshotArguments) -> Result<(), Failure> {
    let number = match &arguments.source {
        None => Repository::connect(arguments.connection.dsn.as_deref())?.create_snapshot()?,
        Some(source) => {
            let mut source = Repository::connect(Some(source))?;
            let mut repository = Repository::connect(arguments.repository.as_deref())?;
            transfer::store_snapshot_of(&mut source, &mut repository, arguments.name.as_deref())?
        }
    };
    match arguments.json {
        true => json_to_stdout(&json!({"snap_id": number})),
        false => to_stdout(&format!("{number}\n")),
    }
}

/// The numbers of instances that are named by number or name.
fn instances(repository: &mut Repository, texts: &[String]) -> Result<Vec<i32>, Failure> {
    texts.iter().map(|text| repository.instance(text)).collect()
}

fn export(arguments: &ExportArguments) -> Result<(), Failure> {
    let mut repository = Repository::connect(arguments.connection.dsn.as_deref())?;
    let mut selection =
        transfer::Selection { instances: instances(&mut repository, &arguments.instance)?, period: None };
    if let (Some(begin), Some(end)) = (arguments.begin, arguments.end) {
        if selection.instances.is_empty() {
            selection.instances.push(1);
        }
        // Refuses AWR snapshots that do not exist, with a list of those that do.
        for instance in &selection.instances {
            repository.check_period(Period { begin, end }, *instance)?;
        }
        selection.period = Some(Period { begin, end });
    }
    let exported =
        transfer::export(&mut repository, &selection, transfer::Masking::parse(&arguments.mask), &arguments.file)?;
    match arguments.json {
        true => json_to_stdout(&json!(exported)),
        false => to_stdout(&format!("{} AWR snapshots, {} bytes\n", exported.snapshots, exported.bytes)),
    }
}

fn import(arguments: &ImportArguments) -> Result<(), Failure> {
    let mut repository = Repository::connect(arguments.connection.dsn.as_deref())?;
    let imported = transfer::import(&mut repository, &arguments.file)?;
    if arguments.json {
        return json_to_stdout(&json!(imported));
    }
    for added in imported {
        let (number, name, count) = (added.instance_id, added.instance, added.snapshots);
        let range = match (added.first, added.last) {
            (Some(first), Some(last)) => format!(", {first} to {last}"),
            _ => String::new(),
        };
        to_stdout(&format!("instance {number} ({name}): {count} AWR snapshots added{range}\n"))?;
    }
    Ok(())
}

/// Writes the document or the rendered report to the file or to standard output.
fn write(output: &Output, json: &str, report: impl FnOnce() -> Result<report::Report, Failure>) -> Result<(), Failure> {
    let extension = output.output.as_ref().and_then(|file| file.extension()).and_then(|extension| extension.to_str());
    let name = output.format.as_deref().unwrap_or(match extension {
        Some("html" | "htm") => "html",
        Some("json") => "json",
        _ => "text",
    });
    let text = match Format::parse(name) {
        Some(format) => render::render(&report()?, format),
        // A document is checked before it is saved, too.
        None => {
            documents(json)?;
            format!("{json}\n")
        }
    };
    match &output.output {
        Some(file) => std::fs::write(file, text)
            .map_err(|error| Failure::error(format!("could not write \"{}\": {error}", file.display()))),
        None => to_stdout(&text),
    }
}

fn json_to_stdout(value: &Value) -> Result<(), Failure> {
    to_stdout(&format!("{value:#}\n"))
}

/// Writes to standard output. A reader that closes the pipe early, such as `head`, is no error.
fn to_stdout(text: &str) -> Result<(), Failure> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::error(format!("could not write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}
