//! Lets a queue's thread run as soon as a request is there.
//!
//! A request takes the thread microseconds, and somebody waits for it. Niceness does not tell the scheduler that: it
//! counts among the threads of one session or control group, and between those every one gets slices of milliseconds in
//! its turn. With a few busy sessions beside the cell, one read in a hundred waited for several such slices. So the
//! thread is a real-time one of the lowest priority, where the cell may have such; the kernel leaves others a share of
//! the CPU even then.

use std::io;

const PRIORITY: i32 = 1;

/// Puts the calling thread before every ordinary one. Threads that it starts are ordinary ones.
pub fn go_first() -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: PRIORITY };
    // SAFETY: the structure lives through the call; 0 is the calling thread.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_RR | libc::SCHED_RESET_ON_FORK, &parameters) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> i32 {
        // SAFETY: no memory is passed; 0 is the calling thread.
        unsafe { libc::sched_getscheduler(0) }
    }

    #[test]
    fn only_the_thread_itself_goes_first_where_it_may() {
        let thread = std::thread::spawn(|| {
            let before = policy();
            match go_first() {
                Ok(()) => assert_eq!(policy(), libc::SCHED_RR | libc::SCHED_RESET_ON_FORK),
                Err(error) => {
                    assert_eq!(error.raw_os_error(), Some(libc::EPERM));
                    assert_eq!(policy(), before);
                }
            }
            assert_eq!(std::thread::spawn(policy).join().unwrap(), libc::SCHED_OTHER);
        });
        thread.join().unwrap();
    }
}
