//! Notifications to the service manager, in systemd's protocol (`man sd_notify`).
//!
//! A service manager that waits for notifications names a datagram socket in the environment variable NOTIFY_SOCKET.
//! Without the variable, nothing is sent. A failed notification is logged and does not stop the cell.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Sends one notification: `NAME=VALUE` assignments, one a line, such as `READY=1`.
pub fn notify(assignments: &str) {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET") else { return };
    if let Err(error) = send(&socket, assignments) {
        log::warn!("could not notify the service manager at {}: {error}", socket.display());
    }
}

/// Reports the progress of a recovery.
pub fn notify_recovery(done: usize, files: usize) {
    notify(&format!("STATUS=recovering {files} files, {done} done"));
}

/// A name that starts with `@` is in the abstract namespace.
fn send(socket: &OsStr, assignments: &str) -> io::Result<()> {
    let address = match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(assignments.as_bytes(), &address)?;
    Ok(())
}
