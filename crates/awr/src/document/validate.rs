//! Checks of a document. A document that fails a check is rejected as a whole: a report never shows invented figures.

use super::{Document, FORMAT, Timestamp};
use serde_json::Value;

/// The most buckets of a histogram.
const BUCKETS_MAX: usize = 64;

/// Identifiers may be negative, values of settings are not figures, and ages and lags of a moment may be negative: they
/// compare two clocks or two positions that advance independently.
const NOT_FIGURES: [&str; 16] = [
    "query_id",
    "plan_id",
    "top_level_query_id",
    "blocker_query_id",
    "system_identifier",
    "settings",
    "frozen_age",
    "age_xids",
    "age_us",
    "xact_age_us",
    "lag_bytes_begin",
    "lag_bytes_end",
    "lag_bytes_max",
    "replay_lag_us_max",
    "retained_bytes",
    "since_us",
];

#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    #[error("report document is not valid JSON, or a field has another type: {0}")]
    Json(#[from] serde_json::Error),
    #[error("report document is an empty list: no instance has the snapshots")]
    Empty,
    #[error(
        "report document has format {found}, but this release reads format {FORMAT}; use the same release of cellar and of the extension"
    )]
    Format { found: String },
    #[error("report document has a negative figure: {path} is {value}")]
    Negative { path: String, value: f64 },
    #[error("report document has a histogram with more than {BUCKETS_MAX} buckets: {path}")]
    Histogram { path: String },
    #[error("begin snapshot {begin} is not before end snapshot {end}")]
    ReversedSnapshots { begin: i64, end: i64 },
    #[error("begin snapshot was taken at {begin}, after end snapshot at {end}")]
    ReversedTimes { begin: String, end: String },
}

/// Checks the format, and that no figure is negative.
pub(super) fn check_values(document: &Value) -> Result<(), DocumentError> {
    match document.get("format") {
        Some(format) if format.as_u64() == Some(FORMAT) => {}
        found => {
            let found = found.map_or_else(|| "(none)".to_owned(), Value::to_string);
            return Err(DocumentError::Format { found });
        }
    }
    check_value(document, &mut String::new())
}

/// Checks a value and the values in it. `path` names the value in errors and is unchanged on return.
fn check_value(value: &Value, path: &mut String) -> Result<(), DocumentError> {
    let before = path.len();
    match value {
        Value::Number(number) => match number.as_f64() {
            Some(value) if value < 0.0 => return Err(DocumentError::Negative { path: path.clone(), value }),
            _ => {}
        },
        Value::Array(items) => {
            if path.ends_with(".histogram") && items.len() > BUCKETS_MAX {
                return Err(DocumentError::Histogram { path: path.clone() });
            }
            for (index, item) in items.iter().enumerate() {
                *path += &format!("[{index}]");
                check_value(item, path)?;
                path.truncate(before);
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                // A database, table or index can shrink.
                if NOT_FIGURES.contains(&name.as_str()) || name.ends_with("_growth") {
                    continue;
                }
                *path += if before == 0 { "" } else { "." };
                *path += name;
                check_value(field, path)?;
                path.truncate(before);
            }
        }
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
    Ok(())
}

/// Checks that the report's interval is not reversed.
pub(super) fn check_times(document: &Document) -> Result<(), DocumentError> {
    if let (Some(begin), Some(end)) = (document.begin.snap_id, document.end.snap_id)
        && begin >= end
    {
        return Err(DocumentError::ReversedSnapshots { begin, end });
    }
    if let (Some(begin), Some(end)) = (Timestamp::parse(&document.begin.time), Timestamp::parse(&document.end.time))
        && begin > end
    {
        return Err(DocumentError::ReversedTimes { begin: begin.to_string(), end: end.to_string() });
    }
    Ok(())
}
