//! The process at the other end of a connection, as the kernel identified it when the process connected.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

use crate::access::Credentials;

#[derive(Debug)]
pub struct Peer {
    pub credentials: Credentials,
    /// 0 if the process is not visible in the daemon's PID namespace.
    pub process: i32,
}

impl Peer {
    pub fn of(stream: &UnixStream) -> io::Result<Self> {
        let mut user = libc::ucred { pid: 0, uid: 0, gid: 0 };
        // SAFETY: a `ucred` consists of integers, for which all bytes are valid.
        unsafe { socket_option(stream, libc::SO_PEERCRED, std::slice::from_mut(&mut user)) }?;
        let credentials = Credentials { uid: user.uid, gid: user.gid, groups: groups(stream)? };
        Ok(Self { credentials, process: user.pid })
    }
}

/// Returns the supplementary groups of the peer.
fn groups(stream: &UnixStream) -> io::Result<Vec<u32>> {
    let mut groups = vec![0_u32; 64];
    loop {
        // SAFETY: all bytes are valid integers.
        match unsafe { socket_option(stream, libc::SO_PEERGROUPS, &mut groups) } {
            Ok(count) => {
                groups.truncate(count);
                return Ok(groups);
            }
            Err(error) if error.raw_os_error() == Some(libc::ERANGE) => groups.resize(groups.len() * 4, 0),
            Err(error) => return Err(error),
        }
    }
}

/// Reads a socket option of level SOL_SOCKET and returns the number of items that the kernel wrote.
///
/// # Safety
///
/// All bytes must be valid for `T`.
unsafe fn socket_option<T>(stream: &UnixStream, option: libc::c_int, items: &mut [T]) -> io::Result<usize> {
    let mut bytes = size_of_val(items) as libc::socklen_t;
    // SAFETY: the kernel writes at most `bytes` bytes to `items`, and the length to `bytes`.
    let result = unsafe {
        libc::getsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, option, items.as_mut_ptr().cast(), &raw mut bytes)
    };
    match result {
        0 => Ok(bytes as usize / size_of::<T>()),
        _ => Err(io::Error::last_os_error()),
    }
}
