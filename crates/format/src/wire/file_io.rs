//! The file service's counters, which the extension's views and AWR snapshots contain.

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

/// What a file contains, as far as the file's path shows. A relation is a table, an index, a TOAST table or a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum FileType {
    /// A segment of the main fork of a relation.
    Relation = 0,
    /// A free space map or a visibility map.
    Map = 1,
    /// A file below `pg_wal`.
    Wal = 2,
    /// A temporary file or a temporary relation.
    Temporary = 3,
    Control = 4,
    Other = 5,
}

impl FileType {
    pub const ALL: [Self; 6] = [Self::Relation, Self::Map, Self::Wal, Self::Temporary, Self::Control, Self::Other];

    pub fn name(self) -> &'static str {
        match self {
            Self::Relation => "relation",
            Self::Map => "map",
            Self::Wal => "wal",
            Self::Temporary => "temporary",
            Self::Control => "control",
            Self::Other => "other",
        }
    }

    /// Returns the type with a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|file_type| file_type.name().eq_ignore_ascii_case(name))
    }
}

/// Operations of one kind on the files of one type in one directory and database, or on one relation among them.
#[derive(Debug, Clone, PartialEq, Eq)]
#[repr(C)]
pub struct FileTypeIoCount {
    /// Position of the directory in the query.
    pub root: u32,
    /// 0 for files that belong to no database.
    pub database: Oid,
    /// A [`FileType`].
    pub file_type: u32,
    /// The file number of a relation, whose counts the counts of the file type contain too; 0 for the file type.
    pub relation: u32,
    /// A [`FileIoKind`].
    pub kind: u32,
    pub reserved: u32,
    /// Differs if the counters of the relation have started from zero again.
    pub generation: u64,
    pub operations: u64,
    pub bytes: u64,
    pub microseconds: u64,
    pub histogram: [u64; FILE_IO_BUCKETS],
}

const TYPE_COUNT_BYTES: usize = 4 * 6 + 8 * (4 + FILE_IO_BUCKETS);

/// The answer to a query of counters by file type and relation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileTypeIoCounts {
    pub counts: Vec<FileTypeIoCount>,
}

impl FileTypeIoCounts {
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_u32(self.counts.len() as u32);
        for count in &self.counts {
            let numbers = [count.root, count.database, count.file_type, count.relation, count.kind, count.reserved];
            numbers.into_iter().for_each(|number| out.put_u32(number));
            let sums = [count.generation, count.operations, count.bytes, count.microseconds];
            sums.into_iter().chain(count.histogram).for_each(|sum| out.put_u64(sum));
        }
    }

    pub fn decode(payload: &[u8]) -> Result<Self, Corrupt> {
        let mut reader = Reader::new(payload);
        let count = reader.count(TYPE_COUNT_BYTES, "file type I/O counts")?;
        let mut counts = Vec::with_capacity(count);
        for _ in 0..count {
            let (root, database) = (reader.u32("root")?, reader.u32("database")?);
            let file_type = below(&mut reader, "file type", FileType::ALL.len())?;
            let relation = reader.u32("relation")?;
            let kind = below(&mut reader, "file I/O kind", FileIoKind::ALL.len())?;
            let reserved = below(&mut reader, "reserved", 1)?;
            let (generation, operations) = (reader.u64("generation")?, reader.u64("operations")?);
            let (bytes, microseconds) = (reader.u64("bytes")?, reader.u64("microseconds")?);
            let mut histogram = [0; FILE_IO_BUCKETS];
            for waits in &mut histogram {
                *waits = reader.u64("histogram")?;
            }
            counts.push(FileTypeIoCount {
                root,
                database,
                file_type,
                relation,
                kind,
                reserved,
                generation,
                operations,
                bytes,
                microseconds,
                histogram,
            });
        }
        reader.finish("file type I/O counts")?;
        Ok(Self { counts })
    }
}

/// Reads a number that must be below `limit`.
fn below(reader: &mut Reader<'_>, name: &'static str, limit: usize) -> Result<u32, Corrupt> {
    let value = reader.u32(name)?;
    if value as usize >= limit {
        return Err(Corrupt::new(name, reader.position() - 4, value.to_string()));
    }
    Ok(value)
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
            let kind = below(&mut reader, "file I/O kind", FileIoKind::ALL.len())?;
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
