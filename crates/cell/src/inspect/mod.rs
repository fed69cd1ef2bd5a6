//! Inspection: reports about what the cell disks contain, for operators and engineers. Nothing is changed.
//!
//! [`report()`] builds a report from a [`Volume`]. A running cell answers from its volume ([`remote`] requests the report);
//! without a running cell, [`offline`] opens the disks for reading. Both use the same code.

mod block;
mod disks;
mod files;
mod flash_content;
pub mod offline;
pub mod remote;
pub mod report;
mod unit;

use crate::access::{Credentials, Permission};
use cellar_format::wire::{InspectQuery, Report};
use cellar_storage::{ErrorKind, Ino, Volume};
use report::ReportBody;

/// Prefix of a path that is an inode number.
const INODE_PREFIX: &str = "inode:";

/// Why a report cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    #[error("{0}")]
    Storage(#[from] cellar_storage::Error),
    /// The request names something that does not exist.
    #[error("{message}; {hint}")]
    NotFound { message: String, hint: String },
    #[error(
        "the compression unit of {path}, allocation unit {au}, is damaged: {source}; restore the file from a backup or a replica"
    )]
    DamagedUnit { path: String, au: u64, source: cellar_scan::unit::UnitError },
    #[error("could not open cell disk {path}: {source}")]
    Disk { path: String, source: std::io::Error },
}

impl InspectError {
    fn not_found(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::NotFound { message: message.into(), hint: hint.into() }
    }

    /// Returns whether the user of this process may not read a cell disk.
    pub fn is_permission_denied(&self) -> bool {
        match self {
            Self::Storage(error) => error.errno() == libc::EACCES,
            Self::Disk { source, .. } => source.kind() == std::io::ErrorKind::PermissionDenied,
            Self::NotFound { .. } | Self::DamagedUnit { .. } => false,
        }
    }

    /// Returns the kind of the storage's error; None for other errors.
    pub fn kind(&self) -> Option<ErrorKind> {
        if let Self::Storage(error) = self { Some(error.kind()) } else { None }
    }
}

/// Builds the report that a query describes, from the files that `peer` may read.
pub fn report(volume: &Volume, peer: &Credentials, query: &InspectQuery) -> Result<ReportBody, InspectError> {
    let resolve = |path| resolve(volume, peer, path);
    match query.report {
        Report::Disks => Ok(ReportBody::Disks(disks::report(volume.disk_states(), Vec::new()))),
        Report::Files => Ok(ReportBody::Files(files::list(volume, peer, &query.path)?)),
        Report::FlashContent => Ok(ReportBody::FlashContent(flash_content::report(volume, peer))),
        Report::File => Ok(ReportBody::File(files::file(volume, resolve(&query.path)?)?)),
        Report::Unit => {
            let ino = resolve(&query.path)?;
            Ok(ReportBody::Unit(unit::report(volume, ino, query.number, query.is_complete)?))
        }
        Report::Block => {
            let ino = resolve(&query.path)?;
            Ok(ReportBody::Block(block::report(volume, ino, query.number, query.is_complete)?))
        }
    }
}

/// Returns the file that a path below the mount, or `inode:` and a number, names.
fn resolve(volume: &Volume, peer: &Credentials, path: &str) -> Result<Ino, InspectError> {
    let number = path.strip_prefix(INODE_PREFIX).map(|number| number.parse::<Ino>().ok());
    let ino = match number {
        Some(number) => {
            number.map_or(Ok(()), |ino| peer.check(volume, ino, Permission::Read))?;
            number
        }
        None => peer.resolve(volume, path, Permission::Read)?,
    };
    let hint = "`cellar inspect files` lists all files";
    let Some(ino) = ino.filter(|ino| volume.getattr(*ino).is_ok()) else {
        return Err(InspectError::not_found(format!("file {path} does not exist"), hint));
    };
    match volume.size(ino) {
        Err(error) if matches!(error.kind(), ErrorKind::IsDirectory | ErrorKind::Invalid) => {
            Err(InspectError::not_found(format!("{path} is not a regular file"), hint))
        }
        Err(error) => Err(error.into()),
        Ok(_) => Ok(ino),
    }
}

/// Returns the path of a file, or its inode number in the form that [`resolve`] accepts.
fn name(volume: &Volume, ino: Ino) -> String {
    volume.path_of(ino).unwrap_or_else(|| format!("{INODE_PREFIX}{ino}"))
}
