//! CPU affinity and priority of the ring's threads.

/// Favours the queues: a backend that waits for its queue must not wait for the time slices of other programs.
const NICENESS: i32 = -15;

/// Ties the calling thread, and the threads that it starts, to a CPU.
pub fn pin(cpu: u16) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu as usize);
    if let Err(error) = rustix::thread::sched_setaffinity(None, &set) {
        // A possible CPU may be absent; its queue never receives a request.
        log::debug!("FUSE ring queue {cpu}: could not pin a thread: {error}");
    }
}

/// Permits the calling thread, and the threads that it starts, to run on every CPU.
pub fn unpin() {
    let mut set = rustix::thread::CpuSet::new();
    (0..rustix::thread::CpuSet::MAX_CPU).for_each(|cpu| set.set(cpu));
    if let Err(error) = rustix::thread::sched_setaffinity(None, &set) {
        log::debug!("could not unpin a thread: {error}");
    }
}

/// Ties the calling thread, and the threads that it starts, to a CPU, and raises their priority if permitted.
pub fn pin_with_priority(cpu: u16) {
    pin(cpu);
    if let Err(error) = rustix::process::setpriority_process(None, NICENESS) {
        log::debug!("FUSE ring queue {cpu}: could not raise the priority: {error}");
    }
}
