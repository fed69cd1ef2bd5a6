//! The file service's counters, which the extension's views show.

use crate::bytes::{Corrupt, Reader, Write};
use crate::postgres::Oid;

/// Buckets of a histogram of service times. Bucket `i` counts times from 2^(i-1) to below 2^i microseconds; the last
/// bucket has no upper bound.
pub const FILE_IO_BUCKETS: usize = 27;

/// Requests the counters of files below these directories, given relative to the mount's root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileIoQuery {
    pub roots: Vec<String>,
}

/// The kinds of file operations that are counted separately.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FileIoKind {
    /// A read of at most one Postgres block.
    SingleBlockRead = 0,
    MultiblockRead = 1,
    DataFileWrite = 2,
    /// A write to a file below `pg_wal`.
    WalWrite = 3,
    /// fsync, fdatasync.
    Sync = 4,
}

impl FileIoKind {
    pub const ALL: [Self; 5] =
        [Self::SingleBlockRead, Self::MultiblockRead, Self::DataFileWrite, Self::WalWrite, Self::Sync];

    pub fn name(self) -> &'static str {
        match self {
            Self::SingleBlockRead => "single-block read",
            Self::MultiblockRead => "multiblock read",
            Self::DataFileWrite => "data file write",
            Self::WalWrite => "WAL write",
            Self::Sync => "sync",
        }
    }
}

/// Operations of one kind on the files of one database.
#[derive(Debug, Clone, PartialEq, Eq)]
#[repr(C)]
pub struct FileIoCount {
    /// 0 for files that belong to no database.
    pub database: Oid,
    pub kind: u32,
    pub operations: u64,
    pub bytes: u64,
    pub microseconds: u64,
    pub histogram: [u64; FILE_IO_BUCKETS],
}

const COUNT_BYTES: usize = 8 + 8 * (3 + FILE_IO_BUCKETS);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileIoCounts {
    pub counts: Vec<FileIoCount>,
}

impl FileIoQuery {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u32(self.roots.len() as u32);
        self.roots.iter().for_each(|root| out.put_blob(root.as_bytes()));
    }

    pub fn decode(payload: &[u8]) -> Result<Self, Corrupt> {
        let mut reader = Reader::new(payload);
        let count = reader.count(4, "roots")?;
        let roots = (0..count).map(|_| reader.string("root")).collect::<Result<_, _>>()?;
        reader.finish("file I/O query")?;
        Ok(Self { roots })
    }
}

impl FileIoCounts {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u32(self.counts.len() as u32);
        for count in &self.counts {
            out.put_u32(count.database);
            out.put_u32(count.kind);
            out.put_u64(count.operations);
            out.put_u64(count.bytes);
            out.put_u64(count.microseconds);
            count.histogram.iter().for_each(|waits| out.put_u64(*waits));
        }
    }

    pub fn decode(payload: &[u8]) -> Result<Self, Corrupt> {
        let mut reader = Reader::new(payload);
        let count = reader.count(COUNT_BYTES, "file I/O counts")?;
        let mut counts = Vec::with_capacity(count);
        for _ in 0..count {
            let database = reader.u32("database")?;
            let kind = reader.u32("file I/O kind")?;
            if kind as usize >= FileIoKind::ALL.len() {
                return Err(Corrupt::new("file I/O kind", reader.position() - 4, kind.to_string()));
            }
            let (operations, bytes) = (reader.u64("operations")?, reader.u64("bytes")?);
            let microseconds = reader.u64("microseconds")?;
            let mut histogram = [0; FILE_IO_BUCKETS];
            for waits in &mut histogram {
                *waits = reader.u64("histogram")?;
            }
            counts.push(FileIoCount { database, kind, operations, bytes, microseconds, histogram });
        }
        reader.finish("file I/O counts")?;
        Ok(Self { counts })
    }
}
