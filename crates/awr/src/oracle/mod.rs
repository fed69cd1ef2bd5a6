//! Reading Oracle's reports: AWR (instance, RAC global, PDB, comparison, SQL) and Statspack, as HTML or text; and our own reports,
//! also as JSON.
//!
//! [`read`] turns the bytes of a file into a [`model::Report`], whatever the version: readers work from structure (headings,
//! header rows, column rulers), not from a list of sections. [`value`] interprets cells; [`detect`] says what a file is.

pub mod advice;
mod builder;
pub mod csv;
pub mod detect;
mod document;
pub mod findings;
mod header;
mod headings;
mod html;
pub mod json;
pub mod lookup;
pub mod mask;
pub mod model;
mod own;
pub mod page;
pub mod rac_stats;
mod text;
pub mod trend;
pub mod value;

use detect::Refusal;
use model::{Form, Header, Report};

/// Reads a report. `name` is the file's name, for messages and output.
pub fn read(name: &str, bytes: &[u8]) -> Result<Report, Refusal> {
    let (text, encoding) = detect::decode(bytes)?;
    let detected = detect::detect(&text)?;
    let mut builder = match detected.form {
        Form::Json => own::read(&text).map_err(Refusal::NoJsonReport)?,
        Form::Html => html::read(&text::without_page_heads(&text)),
        Form::Text => text::read(&text, detected.kind),
    };
    if detected.headless {
        builder.warn(1, "the title of the report is missing: the file begins in the middle of a report");
    }
    let built = builder.finish();
    let mut report = Report {
        name: name.to_owned(),
        form: detected.form,
        kind: detected.kind,
        encoding,
        bytes: bytes.len() as u64,
        decimal_comma: built.decimal_comma,
        header: Header::default(),
        warnings: built.warnings,
        counts: built.counts,
        unplaced: built.unplaced,
        data: built.data,
    };
    report.header = header::read(&report);
    Ok(report)
}
