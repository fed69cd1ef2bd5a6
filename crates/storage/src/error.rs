//! The crate's error type: a kind to match on, the operation that failed, and the cause.

use std::fmt;
use std::io;

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Kinds of errors that callers distinguish.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    NotFound,
    Exists,
    NotDirectory,
    IsDirectory,
    NotEmpty,
    Invalid,
    NameTooLong,
    TooLarge,
    TooManyLinks,
    NoSpace,
    NotSupported,
    NotPermitted,
    /// The inode number does not exist any more.
    Stale,
    /// A disk belongs to another group, or a disk of the group is missing.
    ForeignDisk,
    /// Another daemon has locked the disk.
    Locked,
    /// Invalid bytes on a disk.
    Corrupt,
    /// A system call failed; the cause contains its error number.
    Io,
}

#[derive(Debug, Clone)]
pub struct Error {
    kind: ErrorKind,
    context: String,
    /// Error number and text of an `io::Error`, which is not `Clone`: one error may be reported to several waiters.
    source: Option<Cause>,
}

#[derive(Debug, Clone, thiserror::Error)]
#[error("{text}")]
struct Cause {
    errno: Option<i32>,
    text: String,
}

impl Error {
    pub fn new(kind: ErrorKind, context: impl Into<String>) -> Self {
        Self { kind, context: context.into(), source: None }
    }

    pub fn io(context: impl Into<String>, error: io::Error) -> Self {
        let kind = match error.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT) => ErrorKind::NoSpace,
            _ => ErrorKind::Io,
        };
        let cause = Cause { errno: error.raw_os_error(), text: error.to_string() };
        Self { kind, context: context.into(), source: Some(cause) }
    }

    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns whether a system call failed; false for an error that the storage itself found.
    pub(crate) fn is_of_system(&self) -> bool {
        self.source.is_some()
    }

    /// Returns the error number that a system call returns for this error.
    pub fn errno(&self) -> i32 {
        match self.kind {
            ErrorKind::NotFound => libc::ENOENT,
            ErrorKind::Exists => libc::EEXIST,
            ErrorKind::NotDirectory => libc::ENOTDIR,
            ErrorKind::IsDirectory => libc::EISDIR,
            ErrorKind::NotEmpty => libc::ENOTEMPTY,
            ErrorKind::Invalid => libc::EINVAL,
            ErrorKind::NameTooLong => libc::ENAMETOOLONG,
            ErrorKind::TooLarge => libc::EFBIG,
            ErrorKind::TooManyLinks => libc::EMLINK,
            ErrorKind::NoSpace => libc::ENOSPC,
            ErrorKind::NotSupported => libc::EOPNOTSUPP,
            ErrorKind::NotPermitted => libc::EPERM,
            ErrorKind::Stale => libc::ESTALE,
            ErrorKind::ForeignDisk => libc::ENXIO,
            ErrorKind::Locked => libc::EBUSY,
            ErrorKind::Corrupt => libc::EIO,
            ErrorKind::Io => self.source.as_ref().and_then(|cause| cause.errno).unwrap_or(libc::EIO),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.source {
            Some(cause) => write!(f, "{}: {cause}", self.context),
            None => f.write_str(&self.context),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|cause| cause as _)
    }
}

/// Adds the failed operation to an error.
pub(crate) trait Context<T> {
    fn context(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T> Context<T> for Result<T> {
    fn context(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| Error { context: format!("{}: {}", what(), error.context), ..error })
    }
}

impl<T> Context<T> for io::Result<T> {
    fn context(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| Error::io(what(), error))
    }
}
