//! A running cell as a source of figures: finds the cell's socket, and reads its metrics in the JSON form that
//! [`cellar_cell::status::query_metrics`] returns.

use cellar_cell::config::Config;
use serde_json::Value;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// Returns the socket that an argument of --cell names: a socket, or the configuration file of a cell.
pub fn socket(path: &Path) -> Result<PathBuf, String> {
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.file_type().is_socket() => Ok(path.to_owned()),
        _ => Config::read(path).map(|config| config.socket).map_err(|error| error.to_string()),
    }
}

/// A document of `/json/metrics`.
#[derive(Clone, Copy)]
pub struct Metrics<'a>(pub &'a Value);

impl<'a> Metrics<'a> {
    pub fn samples(&self, name: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
        let families = self.0["metrics"].as_array().map(Vec::as_slice).unwrap_or_default();
        let family = families.iter().find(|family| family["name"] == name);
        family.and_then(|family| family["samples"].as_array()).map(Vec::as_slice).unwrap_or_default().iter()
    }

    /// The value of a metric without labels; None if it has no sample.
    pub fn figure(&self, name: &str) -> Option<u64> {
        self.samples(name).next().and_then(|sample| sample["value"].as_u64())
    }

    /// The sum of all samples.
    pub fn value(&self, name: &str) -> f64 {
        self.samples(name).filter_map(|sample| sample["value"].as_f64()).fold(0.0, |sum, value| sum + value)
    }

    /// The sum of the samples with a label.
    pub fn labelled(&self, name: &str, label: &str, value: &str) -> f64 {
        let matching = self.samples(name).filter(|sample| sample["labels"][label] == value);
        matching.filter_map(|sample| sample["value"].as_f64()).fold(0.0, |sum, value| sum + value)
    }
}

/// Returns a label of a sample; empty if the sample does not have it.
pub fn label(sample: &Value, name: &str) -> String {
    sample["labels"][name].as_str().unwrap_or_default().to_owned()
}
