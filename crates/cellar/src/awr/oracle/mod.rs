//! `cellar awr read`, `findings`, `rac-stats`, `trend`, `html`, `advise`, and `diff` of files: commands that read reports of Oracle,
//! and our own.

mod analyze;
mod columnar;
mod inputs;
mod page;
mod read;

use crate::awr::source::Failure;
pub use analyze::{AdviseArguments, FindingsArguments, RacStatsArguments, TrendArguments};
pub use analyze::{advise, compared, findings, rac_stats, trend};
use cellar_awr::oracle::mask::Masking;
use cellar_awr::oracle::{self, model::Report, model::Warning};
use clap::builder::PossibleValuesParser;
pub use page::{HtmlArguments, html};
pub use read::{ReadArguments, read};
use std::path::PathBuf;

/// Values of --mask.
const MASKS: [&str; 3] = ["hosts", "users", "sql"];

/// What is replaced in reports
#[derive(clap::Args)]
pub struct Mask {
    /// Replace names of hosts, names of users, SQL text; the same name gets the same replacement in all reports of the command
    #[arg(long, value_name = "WHAT", value_delimiter = ',', value_parser = PossibleValuesParser::new(MASKS))]
    mask: Vec<String>,
}

impl Mask {
    pub fn is_empty(&self) -> bool {
        self.mask.is_empty()
    }

    fn masking(&self) -> Masking {
        let [hosts, users, sql] = MASKS.map(|what| self.mask.iter().any(|known| known == what));
        Masking::new(hosts, users, sql)
    }
}

/// Reports to read.
#[derive(clap::Args)]
pub struct Files {
    /// AWR or Statspack reports, as text or HTML, also .gz and .zip; folders; - for standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    mask: Mask,
}

/// The report in a file, or one line that says why there is none. `all`: also a report that is not about one interval.
fn report_of(input: &inputs::Input, all: bool) -> Result<Report, String> {
    let mut report = oracle::read(&input.name, &input.bytes).map_err(|refusal| match &input.damage {
        Some(damage) => format!("{refusal}; {damage}"),
        None => refusal.to_string(),
    })?;
    if let Some(what) = report.kind.without_figures().filter(|_| !all) {
        return Err(format!("the report is {what}, which only \"cellar awr read\" and \"html\" read"));
    }
    if let Some(damage) = &input.damage {
        report.warnings.insert(0, Warning { line: 1, text: damage.clone() });
    }
    Ok(report)
}

impl Files {
    /// Reads the reports one after the other. Prints what is not read to standard error, on one line a file. Fails if a file
    /// that the command line names is no report, or if there is no report at all.
    pub fn for_each(&self, command: &str, each: &mut dyn FnMut(Report) -> Result<(), Failure>) -> Result<(), Failure> {
        let (mut count, mut refused) = (0, 0);
        let mut masking = self.mask.masking();
        // The last failure: the result, if it is the only thing that happened.
        let mut failure: Option<Failure> = None;
        let refuse = |refusal: Failure, failure: &mut Option<Failure>| {
            if let Some(earlier) = failure.replace(refusal) {
                eprintln!("cellar awr {command}: {earlier}");
            }
        };
        inputs::for_each(&self.files, &mut |input| {
            let (name, is_named, report) = match input {
                Ok(input) => {
                    let report = report_of(&input, matches!(command, "read" | "html"));
                    // The output of these commands has no place for warnings.
                    if let Some(damage) = input.damage.filter(|_| matches!(command, "rac-stats" | "trend")) {
                        eprintln!("cellar awr {command}: \"{}\": {damage}", input.name);
                    }
                    (input.name, input.is_named, report)
                }
                Err(error) => {
                    refused += 1;
                    refuse(error, &mut failure);
                    return Ok(());
                }
            };
            match report {
                Ok(mut report) => {
                    count += 1;
                    masking.apply(&mut report);
                    each(report)
                }
                Err(refusal) => {
                    refused += usize::from(is_named);
                    refuse(Failure::error(format!("\"{name}\": {refusal}")), &mut failure);
                    Ok(())
                }
            }
        })?;
        match (refused, count, failure) {
            (1, 0, Some(failure)) => return Err(failure),
            (_, _, Some(failure)) => eprintln!("cellar awr {command}: {failure}"),
            _ => {}
        }
        match (refused, count) {
            (0, 0) => Err(Failure::error("the folders and archives contain no report")),
            (0, _) => Ok(()),
            (1, _) => Err(Failure::error("one file was not read")),
            _ => Err(Failure::error(format!("{refused} files were not read"))),
        }
    }
}
