//! Documents from files, and the errors of the command.

use cellar_awr::document::{Document, parse};
use std::fmt;
use std::path::Path;

/// An error with the fields of a PostgreSQL error report.
#[derive(Debug)]
pub struct Failure {
    message: String,
    detail: Option<String>,
    hint: Option<String>,
    is_usage: bool,
}

impl Failure {
    pub fn error(message: impl Into<String>) -> Self {
        Self { message: message.into(), detail: None, hint: None, is_usage: false }
    }

    /// An error of the arguments.
    pub fn usage(message: impl Into<String>) -> Self {
        Self { is_usage: true, ..Self::error(message) }
    }

    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    pub fn is_usage(&self) -> bool {
        self.is_usage
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        for (label, text) in [("DETAIL", &self.detail), ("HINT", &self.hint)] {
            if let Some(text) = text {
                write!(f, "\n{label}:  {text}")?;
            }
        }
        Ok(())
    }
}

pub fn read(file: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(file)
        .map_err(|error| Failure::error(format!("could not read \"{}\": {error}", file.display())))
}

/// Parses and checks documents.
pub fn documents(json: &str) -> Result<Vec<Document>, Failure> {
    parse(json.as_bytes()).map_err(|error| Failure::error(error.to_string()))
}

/// A JSON array of documents.
pub fn array(documents: &[String]) -> String {
    format!("[{}]", documents.join(",\n"))
}
