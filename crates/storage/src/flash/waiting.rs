//! Threads whose changes of files must not wait for the flash cache.
//!
//! Such a thread asks first whether a change would wait. A read that fills the cache afterwards may need an intent: then the
//! change fails, and another thread repeats it.

use std::cell::Cell;
use std::io;

thread_local! {
    static IS_REFUSED: Cell<bool> = const { Cell::new(false) };
}

/// Allows waiting again, also after a panic.
struct Restore;

impl Drop for Restore {
    fn drop(&mut self) {
        IS_REFUSED.set(false);
    }
}

/// Runs `work`, whose changes of files fail instead of waiting for the flash cache.
pub fn without_waiting<T>(work: impl FnOnce() -> T) -> T {
    let _restore = Restore;
    IS_REFUSED.set(true);
    work()
}

/// Returns an error if this thread must not wait.
pub fn check() -> io::Result<()> {
    match IS_REFUSED.get() {
        true => Err(io::Error::new(io::ErrorKind::WouldBlock, "the change waits for the flash cache")),
        false => Ok(()),
    }
}
