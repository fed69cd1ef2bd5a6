//! A running cell as a source of figures: finds the cell's socket, and reads its metrics in the JSON form that
//! [`cellar_cell::status::query_metrics`] returns.

pub use cellar_cell::cell_metrics::{Document as Metrics, label};
use cellar_cell::config::Config;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// Returns the socket that an argument of --cell names: a socket, or the configuration file of a cell.
pub fn socket(path: &Path) -> Result<PathBuf, String> {
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.file_type().is_socket() => Ok(path.to_owned()),
        _ => Config::read(path).map(|config| config.socket).map_err(|error| error.to_string()),
    }
}
