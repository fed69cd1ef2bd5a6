//! The kernel's structures of FUSE over io_uring, with the kernel's layout.
//!
//! Source: `include/uapi/linux/fuse.h` (protocol 7.42), `Documentation/filesystems/fuse/fuse-io-uring.rst`.

/// Bytes of `fuse_in_header` and `fuse_out_header`.
pub const IN_HEADER_BYTES: usize = 40;
pub const OUT_HEADER_BYTES: usize = 16;
/// Segments of a ring entry: the header and the payload.
pub const IOV_SEGMENTS: u32 = 2;

pub const CMD_REGISTER: u32 = 1;
pub const CMD_COMMIT_AND_FETCH: u32 = 2;

pub const OP_GETATTR: u32 = 3;
pub const OP_OPEN: u32 = 14;
pub const OP_READ: u32 = 15;
pub const OP_WRITE: u32 = 16;
pub const OP_RELEASE: u32 = 18;
pub const OP_FSYNC: u32 = 20;
pub const OP_INIT: u32 = 26;
pub const OP_FSYNCDIR: u32 = 30;

/// `fuse_in_header`.
#[repr(C)]
#[derive(Clone, Copy, Default, bytemuck::Pod, bytemuck::Zeroable)]
pub struct InHeader {
    pub len: u32,
    pub opcode: u32,
    pub unique: u64,
    pub nodeid: u64,
    pub uid: u32,
    pub gid: u32,
    pub pid: u32,
    pub total_extlen: u16,
    pub padding: u16,
}

/// `fuse_out_header`.
#[repr(C)]
#[derive(Clone, Copy, Default, bytemuck::Pod, bytemuck::Zeroable)]
pub struct OutHeader {
    pub len: u32,
    pub error: i32,
    pub unique: u64,
}

/// `fuse_read_in`; `fuse_write_in` has the same layout.
#[repr(C)]
#[derive(Clone, Copy, Default, bytemuck::Pod, bytemuck::Zeroable)]
pub struct ReadWriteIn {
    pub fh: u64,
    pub offset: u64,
    pub size: u32,
    pub read_write_flags: u32,
    pub lock_owner: u64,
    pub flags: u32,
    pub padding: u32,
}

/// `fuse_write_out`.
#[repr(C)]
#[derive(Clone, Copy, Default, bytemuck::Pod, bytemuck::Zeroable)]
pub struct WriteOut {
    pub size: u32,
    pub padding: u32,
}

/// `fuse_open_out`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct OpenOut {
    pub fh: u64,
    /// `FOPEN_*` flags.
    pub open_flags: u32,
    /// The registered backing file, with `FOPEN_PASSTHROUGH`.
    pub backing_id: i32,
}

/// `fuse_attr_out` with its `fuse_attr`.
#[repr(C)]
#[derive(Clone, Copy, Default, bytemuck::Pod, bytemuck::Zeroable)]
pub struct AttrOut {
    pub valid_seconds: u64,
    pub valid_nanoseconds: u32,
    pub padding: u32,
    pub ino: u64,
    pub size: u64,
    pub blocks: u64,
    pub atime: u64,
    pub mtime: u64,
    pub ctime: u64,
    pub atime_nanoseconds: u32,
    pub mtime_nanoseconds: u32,
    pub ctime_nanoseconds: u32,
    /// File type and permission bits.
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    pub device: u32,
    pub block_bytes: u32,
    pub flags: u32,
}

/// `fuse_init_in`.
#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
pub struct InitIn {
    pub major: u32,
    pub minor: u32,
    pub max_readahead: u32,
    pub flags: u32,
    pub flags2: u32,
    pub unused: [u32; 11],
}

/// `fuse_uring_ent_in_out`.
#[repr(C)]
#[derive(Clone, Copy, Default, bytemuck::Pod, bytemuck::Zeroable)]
pub struct EntryInOut {
    pub flags: u64,
    pub commit_id: u64,
    pub payload_sz: u32,
    pub padding: u32,
    pub reserved: u64,
}

/// `fuse_uring_req_header`.
#[repr(C, align(8))]
pub struct RequestHeader {
    pub in_out: [u8; 128],
    pub op_in: [u8; 128],
    pub entry: EntryInOut,
}

/// `fuse_uring_cmd_req`, the command part of a submission.
#[repr(C)]
#[derive(Clone, Copy, Default, bytemuck::Pod, bytemuck::Zeroable)]
pub struct CommandRequest {
    pub flags: u64,
    pub commit_id: u64,
    pub qid: u16,
    pub padding: [u8; 6],
}

const _: () = assert!(size_of::<InHeader>() == IN_HEADER_BYTES);
const _: () = assert!(size_of::<OutHeader>() == OUT_HEADER_BYTES);
const _: () = assert!(size_of::<RequestHeader>() == 288);
const _: () = assert!(size_of::<CommandRequest>() == 24);
const _: () = assert!(size_of::<ReadWriteIn>() == 40);
const _: () = assert!(size_of::<OpenOut>() == 16);
const _: () = assert!(size_of::<AttrOut>() == 104);
