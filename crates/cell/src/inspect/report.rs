//! The reports of an inspection as plain data. Their JSON form is the output of `cellar inspect --json` and the payload
//! of the wire's `InspectReport`. Sizes are bytes; blocks are numbered within the file.

use serde::{Deserialize, Serialize};

/// One report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Inspection {
    /// The process that answered; None if the disks were read without a running cell.
    pub cell_pid: Option<u32>,
    #[serde(flatten)]
    pub report: ReportBody,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "report", rename_all = "snake_case")]
pub enum ReportBody {
    Disks(DisksReport),
    Files(FilesReport),
    File(FileReport),
    Unit(UnitReport),
    Block(BlockReport),
    FlashContent(FlashContentReport),
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DisksReport {
    /// The highest generation of all metadata stores. A start uses the contents with this generation.
    pub newest_generation: Option<u64>,
    pub disks: Vec<DiskReport>,
    pub problems: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DiskReport {
    pub path: String,
    /// None if the directory has no valid superblock.
    pub superblock: Option<SuperblockReport>,
    /// Generation of the metadata store; None if it is missing or unreadable.
    pub generation: Option<u64>,
    /// Whether the store has the newest generation.
    pub is_newest: bool,
    pub total_bytes: u64,
    pub available_bytes: u64,
    pub backing_files: FilesOfKind,
    pub unit_files: FilesOfKind,
    pub redo_logs: FilesOfKind,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SuperblockReport {
    pub group_id: String,
    pub disk_id: String,
    /// Number of the disk in the group, from 0.
    pub number: u16,
    pub disks: usize,
    /// `forming` or `ready`.
    pub state: String,
    /// Allocation-unit size when the group was formed.
    pub au_bytes: u64,
    pub redundancy: String,
}

/// Files of one kind on a disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilesOfKind {
    pub files: u64,
    /// Bytes that the files occupy, without their holes.
    pub allocated_bytes: u64,
}

/// What the flash cache has of each file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FlashContentReport {
    pub files: Vec<FlashContentFile>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FlashContentFile {
    pub path: String,
    /// The data directory, or the tablespace's version directory, that contains the file.
    pub root: String,
    pub database: Option<u32>,
    /// The number in the names of a relation's files; None for other files.
    pub relation: Option<u32>,
    /// The value of CELL_FLASH_CACHE.
    pub setting: String,
    pub cached_bytes: u64,
    /// Bytes in the columnar cache.
    pub columnar_bytes: u64,
    pub hits: u64,
    pub misses: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FilesReport {
    pub prefix: String,
    pub files: Vec<FileSummary>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FileSummary {
    /// None for a removed file that is still in use.
    pub path: Option<String>,
    pub inode: u64,
    pub size: u64,
    pub au_bytes: u64,
    /// Number of disks that the file is striped over.
    pub disks: usize,
    pub aus: u64,
    pub compressed_aus: u64,
    /// Bytes that the file occupies: its size, holes included, minus the savings of compression.
    pub stored_bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FileReport {
    pub file: FileSummary,
    pub disks: Vec<String>,
    /// Sums over all compression units.
    pub unit_bytes: u64,
    pub superseded_blocks: u64,
    pub logged_blocks: u64,
    pub allocation_units: Vec<AuReport>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AuReport {
    pub au: u64,
    pub first_block: u64,
    pub end_block: u64,
    pub disk: String,
    /// None if the allocation unit is raw.
    pub unit: Option<UnitPlace>,
    /// The allocation unit is raw and no space is allocated for it.
    pub is_hole: bool,
}

/// Where a compression unit is stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UnitPlace {
    pub level: String,
    pub slot: u8,
    /// Offset of the unit in the unit file.
    pub offset: u64,
    pub bytes: u64,
    /// Bytes with slot header and checksum table.
    pub stored_bytes: u64,
    /// Pages that the unit contains.
    pub pages: u32,
    /// Pages whose current content is raw.
    pub superseded_pages: u32,
    /// Superseded pages that the metadata do not yet name superseded: the redo log has them.
    pub logged_pages: u32,
    pub log_sequence: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UnitReport {
    pub path: String,
    pub inode: u64,
    pub au: u64,
    pub first_block: u64,
    pub end_block: u64,
    pub disk: String,
    pub place: UnitPlace,
    pub superseded_blocks: Vec<u64>,
    pub rows: usize,
    pub directory_bytes: u64,
    pub residue_bytes: u64,
    /// Pages that share a compressed residue.
    pub residue_pages: usize,
    pub zero_blocks: Vec<u64>,
    /// Blocks that the unit stores byte for byte.
    pub raw_blocks: Vec<u64>,
    pub chunks: Vec<ChunkReport>,
    /// None unless the verification was requested.
    pub verification: Option<Verification>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChunkReport {
    pub first_block: u64,
    pub end_block: u64,
    pub rows: usize,
    pub line_pointers: usize,
    pub is_all_visible: bool,
    pub is_all_frozen: bool,
    /// Bytes of line pointers and tuple headers.
    pub header_bytes: usize,
    pub columns: Vec<ColumnReport>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ColumnReport {
    pub attribute: usize,
    /// 0 if the attribute was dropped.
    pub type_oid: u32,
    pub encoding: String,
    pub bytes: usize,
    pub nulls: u32,
    /// Rows whose tuple ends before the attribute.
    pub missing: u32,
    /// Rows stored as whole values beside the encoding; minimum and maximum do not cover them.
    pub exceptions: u32,
    pub min: Option<String>,
    pub max: Option<String>,
}

/// The result of reading every byte of a unit and rebuilding every page.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Verification {
    pub pages: usize,
    pub damaged_blocks: Vec<u64>,
    /// One line per damaged place, at most 20.
    pub errors: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BlockReport {
    pub path: String,
    pub inode: u64,
    pub block: u64,
    pub au: u64,
    /// Page in the allocation unit.
    pub page: u32,
    pub disk: String,
    /// `backing file`, `compression unit` or `hole`.
    pub place: String,
    /// Why the block lies there.
    pub reason: String,
    /// The compression unit of the allocation unit, whether it has the block or not.
    pub unit: Option<UnitPlace>,
    /// None for a page of zeros, and for a page that is shorter than a block.
    pub header: Option<PageHeader>,
    /// Bytes of the block as hexadecimal digits; None unless requested.
    pub bytes: Option<String>,
}

/// Fields of a PostgreSQL page header.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PageHeader {
    pub lsn: String,
    pub checksum: u16,
    /// The correct checksum, for the block number in the relation with segments of 1 GiB.
    pub computed_checksum: u16,
    pub flags: u16,
    pub lower: u16,
    pub upper: u16,
    pub special: u16,
    pub page_size: u16,
    pub layout_version: u16,
    pub prune_xid: u32,
    pub line_pointers: usize,
}
