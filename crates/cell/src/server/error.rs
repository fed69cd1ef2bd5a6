//! Errors of a session, and their reports to the backend.

use cellar_format::bytes::Corrupt;
use cellar_format::wire::{ErrorReport, Kind};
use cellar_storage::ErrorKind;

use crate::compression::CompressionError;
use crate::frame_stream::StreamError;
use crate::inspect::InspectError;
use crate::inspect::remote::AnswerError;
use crate::smart_scan::ScanError;
use crate::unit_codec;

const SAME_VERSION_HINT: &str = "Install the same version of the cell and of the extension.";
const PERMISSION_HINT: &str = "Check owner, group and mode of the file and of its directories.";
const DISKS_HINT: &str = "Check the cell's log and its disks.";
const DAMAGED_HINT: &str = "Other blocks of the table are not affected. Check the cell's disks, and restore the table from \
                            a replica or a backup.";

#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    #[error(transparent)]
    Stream(#[from] StreamError),
    #[error(transparent)]
    Scan(#[from] ScanError),
    #[error(transparent)]
    Compression(#[from] CompressionError),
    #[error(transparent)]
    Inspect(#[from] InspectError),
    #[error(transparent)]
    Group(#[from] cellar_storage::Error),
    #[error(transparent)]
    Flash(cellar_storage::Error),
    #[error(transparent)]
    Iorm(cellar_storage::Error),
    #[error(transparent)]
    Alerts(cellar_storage::Error),
}

impl From<Corrupt> for SessionError {
    fn from(error: Corrupt) -> Self {
        Self::Stream(error.into())
    }
}

impl From<AnswerError> for SessionError {
    fn from(error: AnswerError) -> Self {
        match error {
            AnswerError::Inspect(error) => Self::Inspect(error),
            AnswerError::Stream(error) => Self::Stream(error),
        }
    }
}

impl SessionError {
    /// Returns whether the request only named something that does not exist, which the cell's log need not report.
    pub fn is_wrong_name(&self) -> bool {
        matches!(self, Self::Inspect(InspectError::NotFound { .. }))
    }

    /// Returns whether the cell refused an operator's request because of what the request says.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Group(error) | Self::Flash(error) | Self::Iorm(error) | Self::Alerts(error) => {
                matches!(error.kind(), ErrorKind::Invalid | ErrorKind::NotFound)
            }
            _ => false,
        }
    }

    /// Returns the error for a frame of a valid kind that the protocol does not allow at this point.
    pub fn unexpected(kind: Kind) -> Self {
        Corrupt::new("frame kind", 4, format!("unexpected {kind:?}")).into()
    }

    /// Returns the kind of the storage's error, whichever request failed.
    fn storage_kind(&self) -> Option<ErrorKind> {
        match self {
            Self::Scan(ScanError::DamagedUnit { error, .. })
            | Self::Inspect(InspectError::DamagedUnit { source: error, .. }) => Some(unit_codec::error_kind(error)),
            Self::Scan(ScanError::Storage(error)) | Self::Compression(CompressionError::Storage(error)) => {
                Some(error.kind())
            }
            Self::Inspect(error) => error.kind(),
            _ => None,
        }
    }

    /// Converts the error to the fields of a Postgres error report.
    pub fn report(&self) -> ErrorReport {
        let kind = self.storage_kind();
        let (sqlstate, message, hint) = match self {
            _ if kind == Some(ErrorKind::NotPermitted) => {
                ("42501", "permission denied for a file on the cell", PERMISSION_HINT)
            }
            Self::Stream(StreamError::Version(_)) => {
                ("08P01", "the cell and the extension use different protocol versions", SAME_VERSION_HINT)
            }
            Self::Stream(StreamError::InvalidFrame(_)) => {
                ("08P01", "the cell received an invalid frame", SAME_VERSION_HINT)
            }
            Self::Stream(_) => ("08006", "the cell lost its connection to the backend", ""),
            Self::Scan(ScanError::Unsupported(_)) => {
                ("0A000", "the cell cannot evaluate the storage predicate", SAME_VERSION_HINT)
            }
            _ if kind == Some(ErrorKind::Corrupt) => ("XX001", "the cell found damaged data", DAMAGED_HINT),
            Self::Scan(ScanError::Storage(_) | ScanError::DamagedUnit { .. }) => {
                ("58030", "the cell could not read the table", DISKS_HINT)
            }
            Self::Scan(ScanError::FlashFailed { .. }) => (
                "58030",
                "a flash disk of the columnar cache failed",
                "Repeat the statement: the cell then reads its disks.",
            ),
            Self::Compression(CompressionError::Storage(_)) => {
                ("58030", "the cell could not read or write the table", DISKS_HINT)
            }
            Self::Inspect(InspectError::NotFound { .. }) => ("42704", "the cell has no such object", ""),
            Self::Inspect(_) => ("58030", "the cell could not read the object", DISKS_HINT),
            Self::Group(_) => ("55000", "the cell could not change its disk group", ""),
            Self::Flash(_) => ("55000", "the cell could not change its flash cache", ""),
            Self::Iorm(error) if error.kind() == ErrorKind::Invalid => {
                ("22023", "the cell could not change the IORM plan", "")
            }
            Self::Alerts(error) if error.kind() == ErrorKind::Invalid => {
                ("22023", "the cell could not change alerts or thresholds", "")
            }
            Self::Alerts(_) => ("58030", "the cell could not keep alerts or thresholds", DISKS_HINT),
            Self::Iorm(_) => ("58030", "the cell could not keep the IORM plan", DISKS_HINT),
            Self::Compression(CompressionError::Encode(_)) => {
                ("XX000", "the cell could not compress the table", "The table is unchanged. Report this as a bug.")
            }
            Self::Scan(ScanError::Stopping) | Self::Compression(CompressionError::Stopping) => {
                ("57P01", "the cell is shutting down", "Repeat the statement when the cell runs again.")
            }
        };
        let detail = match self {
            // The message states the cause completely.
            Self::Scan(ScanError::Stopping) | Self::Compression(CompressionError::Stopping) => String::new(),
            Self::Scan(ScanError::Unsupported(cause)) => ErrorReport::detail_of(cause),
            // Begins with the name of an attribute.
            Self::Iorm(cause) | Self::Alerts(cause) => cause.to_string(),
            _ => ErrorReport::detail_of(self),
        };
        ErrorReport { sqlstate: sqlstate.to_owned(), message: message.to_owned(), detail, hint: hint.to_owned() }
    }
}
