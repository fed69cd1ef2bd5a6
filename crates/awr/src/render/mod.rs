//! Output forms of a report.

mod charts;
mod escape;
mod html;
mod json;
mod text;

pub use charts::standalone as svg;
pub use html::html;
pub use json::json;
pub use text::{WIDTH, table, text};

use crate::report::Report;

/// Colours as variables of a style sheet, for light and dark pages and pictures.
pub const COLOURS: &str = include_str!("colours.css");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Text,
    Html,
    Json,
}

impl Format {
    /// Returns the format of that name.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "text" => Some(Self::Text),
            "html" => Some(Self::Html),
            "json" => Some(Self::Json),
            _ => None,
        }
    }
}

/// Writes a report in a format.
pub fn render(report: &Report, format: Format) -> String {
    match format {
        Format::Text => text(report),
        Format::Html => html(report),
        Format::Json => json(report),
    }
}
