//! One ring queue: its entries, its thread, and the forwarding session behind it.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use fuser::{Config, Filesystem, Session, SessionACL};
use io_uring::{IoUring, opcode, squeue, types};

use super::abi::{
    CMD_COMMIT_AND_FETCH, CMD_REGISTER, CommandRequest, EntryInOut, IN_HEADER_BYTES, IOV_SEGMENTS, InHeader, InitIn,
    OP_FSYNC, OP_FSYNCDIR, OP_GETATTR, OP_INIT, OP_OPEN, OP_READ, OP_RELEASE, OP_WRITE, OUT_HEADER_BYTES, OutHeader,
    ReadWriteIn, RequestHeader, WriteOut,
};
use super::cpu::pin_with_priority;
use super::keep_awake::KeepAwake;
use super::waiting::{Replied, WaitingRequests};
use super::{Call, HotPath, Opening};

/// The time in which a ring must be created, and the time between attempts.
const RING_CREATION_MAX: Duration = Duration::from_secs(10);
const RETRY_INTERVAL: Duration = Duration::from_millis(50);
/// Entries that a queue keeps free of waiting requests, as far as [`ENTRIES_MAX`] permits.
///
/// Linux does not pass queued requests to a newly registered entry. A request that arrives when no entry is free is
/// therefore queued until another request of the CPU completes. The number covers bursts: requests that arrive before
/// the queue's thread registers more entries. An entry occupies no memory before its first use, only address space, and the
/// kernel uses the entry that became free last.
const DEPTH: usize = 256;
/// Maximum number of entries, and of requests of a CPU that wait at the same time. [`DEPTH`] fewer waiting requests delay
/// no other request. The number is far above the kernel's read-ahead requests for the mount (`BACKGROUND_MAX`): the other
/// requests come from processes that wait, at most one from each.
const ENTRIES_MAX: usize = 1024;
/// Threads of the forwarding session. It passes requests that wait to worker threads.
const FORWARDING_THREADS: usize = 2;
/// User data of the receive on the forwarding session's socket, and of the poll for replies of waiting requests.
/// Entries have their index as user data.
const FORWARDING: u64 = u64::MAX;
const WAITING: u64 = u64::MAX - 1;
/// Maximum reply of a forwarding session: a directory listing.
const FORWARDING_REPLY_BYTES: usize = 1 << 20;
/// FUSE protocol version in the INIT request to forwarding sessions, which matches [`InitIn`].
const PROTOCOL: (u32, u32) = (7, 40);

pub struct Queue {
    cpu: u16,
    device: Arc<OwnedFd>,
    ring: IoUring<squeue::Entry128>,
    entries: Vec<Entry>,
    /// Number of entries whose requests other threads process.
    elsewhere: usize,
    hot_path: Arc<dyn HotPath>,
    forwarding: ForwardingSession,
    waiting: WaitingRequests,
    payload_bytes: usize,
    keep_awake: Arc<KeepAwake>,
}

/// The buffers of one request. The kernel has their addresses as long as the queue exists.
struct Entry {
    header: Box<RequestHeader>,
    payload: Vec<u8>,
    segments: Box<[libc::iovec; 2]>,
    /// The thread that processes the entry's request, if it is not the queue's thread.
    elsewhere: Option<Elsewhere>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Elsewhere {
    /// The forwarding session has the request with this id.
    Forwarded(u64),
    /// A worker thread has the request and the entry's payload.
    Waiting,
}

// SAFETY: the raw pointers in `segments` point to the heap memory of `header` and `payload`, which moves do not change.
unsafe impl Send for Entry {}

/// A `fuser` session whose device is one end of a socket pair.
struct ForwardingSession {
    socket: UnixDatagram,
    reply: Vec<u8>,
}

/// Creates a ring. The creation can fail with ENOMEM although memory is available, while other programs fill the page cache: Linux does
/// not reclaim memory for a ring. Such a failure lasts for seconds, so try again.
fn create_ring() -> io::Result<IoUring<squeue::Entry128>> {
    let started = Instant::now();
    loop {
        let ring = IoUring::builder()
            .setup_cqsize(4 * ENTRIES_MAX as u32)
            // Only the queue's thread submits, and it waits in the kernel between requests.
            .setup_r_disabled()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .build(2 * ENTRIES_MAX as u32);
        match ring {
            Err(error) if error.raw_os_error() == Some(libc::ENOMEM) && started.elapsed() < RING_CREATION_MAX => {
                std::thread::sleep(RETRY_INTERVAL);
            }
            ring => return ring,
        }
    }
}

impl Queue {
    pub fn new<F: Filesystem>(
        cpu: u16,
        device: Arc<OwnedFd>,
        filesystem: F,
        hot_path: Arc<dyn HotPath>,
        payload_bytes: usize,
        keep_awake: Arc<KeepAwake>,
    ) -> io::Result<Self> {
        let ring = create_ring()?;
        let entries = (0..DEPTH).map(|_| Entry::new(payload_bytes)).collect();
        let forwarding = ForwardingSession::start(cpu, filesystem)?;
        let waiting = WaitingRequests::new(cpu, ENTRIES_MAX)?;
        let elsewhere = 0;
        Ok(Self { cpu, device, ring, entries, elsewhere, hot_path, forwarding, waiting, payload_bytes, keep_awake })
    }

    pub fn cpu(&self) -> u16 {
        self.cpu
    }

    pub fn run(mut self) {
        pin_with_priority(self.cpu);
        let cpu = self.cpu;
        match catch_unwind(AssertUnwindSafe(|| self.serve())) {
            Ok(Ok(())) => return,
            Ok(Err(error)) => log::error!("FUSE ring queue {cpu}: {error}"),
            Err(_) => log::error!("FUSE ring queue {cpu} panicked"),
        }
        // Without this queue, every request from this CPU would hang. The service manager restarts an aborted daemon.
        std::process::abort();
    }

    fn serve(&mut self) -> io::Result<()> {
        self.ring.submitter().register_enable_rings()?;
        for index in 0..self.entries.len() {
            self.submit(index, CMD_REGISTER, 0)?;
        }
        self.submit_receive()?;
        self.submit_poll()?;
        loop {
            match self.ring.submit_and_wait(1) {
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => continue,
                other => other?,
            };
            let completed: Vec<_> = self.ring.completion().map(|cqe| (cqe.user_data(), cqe.result())).collect();
            for (user_data, result) in completed {
                if user_data == FORWARDING {
                    self.receive_reply(result)?;
                } else if user_data == WAITING {
                    self.reply_to_waiting()?;
                } else if result == -libc::ENOTCONN || result == -libc::ECONNABORTED || result == -libc::ENODEV {
                    return Ok(());
                } else if result == -libc::EINTR || result == -libc::EAGAIN {
                    self.submit(user_data as usize, CMD_REGISTER, 0)?;
                } else if result < 0 {
                    return Err(io::Error::from_raw_os_error(-result));
                } else {
                    self.serve_request(user_data as usize)?;
                }
            }
        }
    }

    fn serve_request(&mut self, index: usize) -> io::Result<()> {
        let entry = &mut self.entries[index];
        let header: InHeader = *bytemuck::from_bytes(&entry.header.in_out[..IN_HEADER_BYTES]);
        self.keep_awake.record_request(self.cpu, header.pid);
        let arguments: ReadWriteIn = *bytemuck::from_bytes(&entry.header.op_in[..size_of::<ReadWriteIn>()]);
        let (offset, flags) = (arguments.offset, arguments.read_write_flags);
        let call = Call { ino: header.nodeid, offset, flags, pid: header.pid };
        let size = (arguments.size as usize).min(entry.payload.len());
        match header.opcode {
            OP_READ => {
                let since = Instant::now();
                match self.hot_path.try_read(call, &mut entry.payload[..size], since).transpose() {
                    Some(result) => self.commit(index, header.unique, result),
                    None => self.wait(index, header.unique, move |hot_path, payload| {
                        hot_path.read(call, &mut payload[..size], since)
                    }),
                }
            }
            OP_WRITE => {
                let size = size.min(entry.header.entry.payload_sz as usize);
                let since = Instant::now();
                match self.hot_path.try_write(call, &entry.payload[..size], since).transpose() {
                    Some(written) => {
                        let result = written.map(|written| write_reply(&mut entry.payload, written));
                        self.commit(index, header.unique, result)
                    }
                    None => self.wait(index, header.unique, move |hot_path, payload| {
                        let written = hot_path.write(call, &payload[..size], since)?;
                        Ok(write_reply(payload, written))
                    }),
                }
            }
            OP_FSYNC => self.wait(index, header.unique, move |hot_path, _| hot_path.sync(header.nodeid).map(|()| 0)),
            OP_FSYNCDIR => {
                self.wait(index, header.unique, move |hot_path, _| hot_path.sync_directory(header.nodeid).map(|()| 0))
            }
            OP_GETATTR => {
                let result = self.hot_path.getattr(header.nodeid).map(|out| set_reply(&mut entry.payload, &out));
                self.commit(index, header.unique, result)
            }
            OP_OPEN => match self.hot_path.try_open(header.nodeid) {
                Opening::Done(out) => {
                    let length = set_reply(&mut entry.payload, &out);
                    self.commit(index, header.unique, Ok(length))
                }
                Opening::Wait => self.wait(index, header.unique, move |hot_path, payload| {
                    Ok(set_reply(payload, &hot_path.open(header.nodeid)))
                }),
                Opening::Forward => self.forward(index, &header),
            },
            OP_RELEASE if self.hot_path.release(header.nodeid) => self.commit(index, header.unique, Ok(0)),
            _ => self.forward(index, &header),
        }
    }

    /// Runs a request that may wait on a worker thread. `request` returns the length of the reply in the payload.
    fn wait(
        &mut self,
        index: usize,
        unique: u64,
        request: impl FnOnce(&dyn HotPath, &mut [u8]) -> Result<usize, i32> + Send + 'static,
    ) -> io::Result<()> {
        let entry = &mut self.entries[index];
        entry.elsewhere = Some(Elsewhere::Waiting);
        self.elsewhere += 1;
        let payload = std::mem::take(&mut entry.payload);
        let hot_path = self.hot_path.clone();
        self.waiting.run((index, unique, payload), move |payload| request(&*hot_path, payload));
        self.keep_entries_free()
    }

    /// Passes the replies of waiting requests to the kernel.
    fn reply_to_waiting(&mut self) -> io::Result<()> {
        for Replied { index, unique, payload, result } in self.waiting.take_ready() {
            let entry = &mut self.entries[index];
            entry.payload = payload;
            entry.elsewhere = None;
            self.elsewhere -= 1;
            self.commit(index, unique, result)?;
        }
        self.submit_poll()
    }

    /// Adds an entry if fewer than [`DEPTH`] entries are free of requests that other threads process. Without a free
    /// entry, the requests of the CPU would wait for these threads.
    fn keep_entries_free(&mut self) -> io::Result<()> {
        if self.entries.len() - self.elsewhere >= DEPTH || self.entries.len() >= ENTRIES_MAX {
            return Ok(());
        }
        self.entries.push(Entry::new(self.payload_bytes));
        self.submit(self.entries.len() - 1, CMD_REGISTER, 0)
    }

    /// Sends a request to the forwarding session, as one datagram in the format of `/dev/fuse`.
    fn forward(&mut self, index: usize, header: &InHeader) -> io::Result<()> {
        let entry = &mut self.entries[index];
        let payload_bytes = entry.header.entry.payload_sz as usize;
        let argument_bytes = (header.len as usize).saturating_sub(IN_HEADER_BYTES + payload_bytes);
        if argument_bytes > entry.header.op_in.len() || payload_bytes > entry.payload.len() {
            return self.commit(index, header.unique, Err(libc::EIO));
        }
        let parts = [
            io::IoSlice::new(&entry.header.in_out[..IN_HEADER_BYTES]),
            io::IoSlice::new(&entry.header.op_in[..argument_bytes]),
            io::IoSlice::new(&entry.payload[..payload_bytes]),
        ];
        entry.elsewhere = Some(Elsewhere::Forwarded(header.unique));
        match send(&self.forwarding.socket, &parts) {
            Ok(()) => {
                self.elsewhere += 1;
                self.keep_entries_free()
            }
            Err(error) => {
                entry.elsewhere = None;
                log::error!("FUSE ring queue {}: could not forward a request: {error}", self.cpu);
                self.commit(index, header.unique, Err(libc::EIO))
            }
        }
    }

    /// Passes a reply of the forwarding session to the kernel. `result` is that of the receive: bytes, or a negative
    /// errno.
    fn receive_reply(&mut self, result: i32) -> io::Result<()> {
        match result {
            // The forwarding session has exited because the file system was unmounted.
            0 => return Ok(()),
            1.. => {}
            error if [libc::EINTR, libc::EAGAIN, libc::ENOBUFS, libc::ENOMEM].contains(&-error) => {
                return self.submit_receive();
            }
            error => return Err(io::Error::from_raw_os_error(-error)),
        }
        let reply_bytes = result as usize;
        let Some(out) = self.forwarding.reply.get(..OUT_HEADER_BYTES).filter(|_| reply_bytes >= OUT_HEADER_BYTES)
        else {
            return Err(io::Error::other("the forwarding session sent a reply without a header"));
        };
        let out: OutHeader = bytemuck::pod_read_unaligned(out);
        let forwarded = Some(Elsewhere::Forwarded(out.unique));
        let index = self.entries.iter().position(|entry| entry.elsewhere == forwarded);
        if let Some(index) = index {
            let entry = &mut self.entries[index];
            entry.elsewhere = None;
            self.elsewhere -= 1;
            let body = &self.forwarding.reply[OUT_HEADER_BYTES..reply_bytes];
            let result = match (out.error, entry.payload.get_mut(..body.len())) {
                (0, Some(payload)) => {
                    payload.copy_from_slice(body);
                    Ok(body.len())
                }
                (0, None) => Err(libc::EIO),
                (error, _) => Err(-error),
            };
            self.commit(index, out.unique, result)?;
        }
        self.submit_receive()
    }

    /// Replies with the first bytes of the entry's payload, or with an errno, and returns the entry to the kernel.
    fn commit(&mut self, index: usize, unique: u64, result: Result<usize, i32>) -> io::Result<()> {
        let entry = &mut self.entries[index];
        let payload_bytes = result.unwrap_or(0) as u32;
        let out =
            OutHeader { len: OUT_HEADER_BYTES as u32 + payload_bytes, error: result.err().map_or(0, |e| -e), unique };
        entry.header.in_out[..OUT_HEADER_BYTES].copy_from_slice(bytemuck::bytes_of(&out));
        let commit_id = entry.header.entry.commit_id;
        entry.header.entry = EntryInOut { commit_id, payload_sz: payload_bytes, ..EntryInOut::default() };
        self.submit(index, CMD_COMMIT_AND_FETCH, commit_id)
    }

    fn submit(&mut self, index: usize, command: u32, commit_id: u64) -> io::Result<()> {
        let request = CommandRequest { commit_id, qid: self.cpu, ..CommandRequest::default() };
        let mut bytes = [0; 80];
        bytes[..size_of::<CommandRequest>()].copy_from_slice(bytemuck::bytes_of(&request));
        let mut submission = opcode::UringCmd80::new(types::Fd(self.device.as_raw_fd()), command)
            .cmd(bytes)
            .addr(Some(self.entries[index].segments.as_ptr() as u64))
            .build()
            .user_data(index as u64);
        set_len(&mut submission, IOV_SEGMENTS);
        self.push(&submission)
    }

    fn submit_receive(&mut self) -> io::Result<()> {
        let socket = types::Fd(self.forwarding.socket.as_raw_fd());
        let reply = &mut self.forwarding.reply;
        let receive = opcode::Recv::new(socket, reply.as_mut_ptr(), reply.len() as u32).build().user_data(FORWARDING);
        self.push(&receive.into())
    }

    fn submit_poll(&mut self) -> io::Result<()> {
        let event = types::Fd(self.waiting.event());
        let poll = opcode::PollAdd::new(event, libc::POLLIN as u32).build().user_data(WAITING);
        self.push(&poll.into())
    }

    fn push(&mut self, submission: &squeue::Entry128) -> io::Result<()> {
        // SAFETY: entries, their segments and the reply buffer stay at their heap addresses as long as the queue
        // exists, and the ring is dropped with the queue.
        unsafe { self.ring.submission().push(submission) }.map_err(|_| io::Error::other("the submission queue is full"))
    }
}

impl Entry {
    fn new(payload_bytes: usize) -> Self {
        let header = RequestHeader { in_out: [0; 128], op_in: [0; 128], entry: EntryInOut::default() };
        let mut header = Box::new(header);
        let mut payload = vec![0; payload_bytes];
        let segments = Box::new([
            libc::iovec { iov_base: (&raw mut *header).cast(), iov_len: size_of::<RequestHeader>() },
            libc::iovec { iov_base: payload.as_mut_ptr().cast(), iov_len: payload_bytes },
        ]);
        Self { header, payload, segments, elsewhere: None }
    }
}

impl ForwardingSession {
    /// Starts a session on one end of a socket pair, and sends INIT as the kernel does.
    fn start<F: Filesystem>(cpu: u16, filesystem: F) -> io::Result<Self> {
        let (ours, theirs) = packet_pair()?;
        for end in [&ours, &theirs] {
            rustix::net::sockopt::set_socket_send_buffer_size(end, 4 * FORWARDING_REPLY_BYTES)?;
        }
        let header = InHeader {
            len: (IN_HEADER_BYTES + size_of::<InitIn>()) as u32,
            opcode: OP_INIT,
            unique: 1,
            ..InHeader::default()
        };
        let init = InitIn {
            major: PROTOCOL.0,
            minor: PROTOCOL.1,
            max_readahead: 1 << 20,
            flags: u32::MAX,
            flags2: u32::MAX,
            unused: [0; 11],
        };
        let ours = UnixDatagram::from(ours);
        send(&ours, &[io::IoSlice::new(bytemuck::bytes_of(&header)), io::IoSlice::new(bytemuck::bytes_of(&init))])?;
        let mut config = Config::default();
        config.n_threads = Some(FORWARDING_THREADS);
        let session = Session::from_fd(filesystem, theirs, SessionACL::All, config)?;
        let mut reply = vec![0; FORWARDING_REPLY_BYTES];
        ours.recv(&mut reply)?;
        std::thread::Builder::new().name(format!("fuse forward {cpu}")).spawn(move || {
            pin_with_priority(cpu);
            // The queue stops the session by closing its end of the socket pair; the session then returns an error.
            if let Err(error) = session.spawn().and_then(|session| session.join()) {
                log::debug!("FUSE forwarding session {cpu}: {error}");
            }
        })?;
        Ok(Self { socket: ours, reply })
    }
}

/// Writes a reply's body to the payload and returns its length.
fn set_reply<T: bytemuck::Pod>(payload: &mut [u8], body: &T) -> usize {
    payload[..size_of::<T>()].copy_from_slice(bytemuck::bytes_of(body));
    size_of::<T>()
}

fn write_reply(payload: &mut [u8], written: usize) -> usize {
    set_reply(payload, &WriteOut { size: written as u32, padding: 0 })
}

fn packet_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

fn send(socket: &UnixDatagram, parts: &[io::IoSlice<'_>]) -> io::Result<()> {
    rustix::io::writev(socket, parts)?;
    Ok(())
}

/// Sets the `len` field of a submission, which the builder leaves at zero.
fn set_len(submission: &mut squeue::Entry128, len: u32) {
    const LEN_OFFSET: usize = 24;
    // SAFETY: an Entry128 is a 128-byte `struct io_uring_sqe`, whose `len` is at byte 24.
    unsafe { (&raw mut *submission).cast::<u8>().add(LEN_OFFSET).cast::<u32>().write(len) };
}

const _: () = assert!(size_of::<squeue::Entry128>() == 128);
