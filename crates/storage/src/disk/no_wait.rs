//! Reads that return instead of waiting for the device.
//!
//! The mode belongs to the calling thread, because the reads of one request are made by different layers: raw blocks,
//! and directory, checksums and chunks of a compression unit. Writes and syncs are not affected.

use std::cell::Cell;
use std::io;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Waits,
    NeverWaits,
    /// As `NeverWaits`, after a read that would have waited.
    WouldHaveWaited,
}

thread_local! {
    static MODE: Cell<Mode> = const { Cell::new(Mode::Waits) };
}

/// Restores waiting, also after a panic.
struct Restore;

impl Drop for Restore {
    fn drop(&mut self) {
        MODE.set(Mode::Waits);
    }
}

/// Runs `work`, whose reads from disk fail instead of waiting. Returns None if a read failed for this reason; the result
/// of `work` is then meaningless.
pub(crate) fn without_waiting<T>(work: impl FnOnce() -> T) -> Option<T> {
    let _restore = Restore;
    MODE.set(Mode::NeverWaits);
    let result = work();
    (MODE.get() == Mode::NeverWaits).then_some(result)
}

/// Returns whether reads of this thread must not wait.
pub(crate) fn is_on() -> bool {
    MODE.get() != Mode::Waits
}

/// Returns whether a read of the present [`without_waiting`] would have waited: the caller then repeats all its reads.
pub(crate) fn will_be_repeated() -> bool {
    MODE.get() == Mode::WouldHaveWaited
}

/// Records that a read would have waited, and returns its error.
pub(crate) fn would_wait() -> io::Error {
    MODE.set(Mode::WouldHaveWaited);
    io::ErrorKind::WouldBlock.into()
}
