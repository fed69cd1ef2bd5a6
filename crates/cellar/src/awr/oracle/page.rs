//! `cellar awr html`: reports as HTML pages with charts.

use super::Files;
use crate::awr::{source::Failure, to_stdout};
use cellar_awr::oracle::page;
use cellar_awr::render;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Render reports as HTML pages with findings, charts and all tables; one file without references to other files
#[derive(clap::Args)]
pub struct HtmlArguments {
    #[command(flatten)]
    files: Files,
    /// Write the page to a file, or one page for each report to an existing folder
    #[arg(long, value_name = "PATH")]
    output: Option<PathBuf>,
}

pub fn html(arguments: &HtmlArguments) -> Result<(), Failure> {
    let folder = arguments.output.as_deref().filter(|path| path.is_dir());
    let mut names = BTreeMap::new();
    let mut single: Option<String> = None;
    let read = arguments.files.for_each("html", &mut |report| {
        let text = render::html(&page::page(&report));
        match folder {
            Some(folder) => {
                let file = folder.join(file_name(&report.name, &mut names));
                write(&file, &text)?;
                to_stdout(&format!("{}\n", file.display()))
            }
            None if single.is_some() => Err(Failure::usage("the files contain several reports")
                .hint("Name an existing folder with --output; each report becomes a file.")),
            None => {
                single = Some(text);
                Ok(())
            }
        }
    });
    match (single, &arguments.output) {
        (Some(_), _) if read.as_ref().is_err_and(Failure::is_usage) => {}
        (Some(text), Some(file)) => write(file, &text)?,
        (Some(text), None) => to_stdout(&text)?,
        (None, _) => {}
    }
    read
}

fn write(file: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(file, text)
        .map_err(|error| Failure::error(format!("could not write \"{}\": {error}", file.display())))
}

/// The name of a report's page. Reports of the same name in several folders get numbers.
fn file_name(report: &str, names: &mut BTreeMap<String, usize>) -> String {
    let stem = Path::new(report).file_name().map_or_else(|| "report".into(), |name| name.to_string_lossy());
    let count = names.entry(stem.to_string()).or_insert(0);
    *count += 1;
    if *count == 1 { format!("{stem}.html") } else { format!("{stem}.{count}.html") }
}
