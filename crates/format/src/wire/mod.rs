//! The wire between a Postgres backend (through `cellar-client`) and a cell: frames over a Unix socket.
//!
//! A frame is a 16-byte header and a payload. All integers are little-endian. Decoding checks every length before
//! using it. After a frame that does not decode, the cell sends an `Error` frame and closes
//! the connection.
//! Layouts: `docs/format/wire.md`.

mod aggregation;
mod batch;
mod compression;
pub mod expr;
mod file_io;
mod frame;
mod group;
mod group_pruning;
mod history;
mod index_scan;
mod inspect;
mod lookup;
mod message;
mod names;
mod relation;
mod request;
mod status;
mod top_n;

pub use aggregation::{Aggregate, Aggregation, DistinctAggregates};
pub use batch::{
    BATCH_HEADER_BYTES, BatchHeader, BatchMode, COLUMN_HEADER_BYTES, ColumnHeader, ROW_ENTRY_BYTES, RowEntry,
};
pub use compression::{
    COMPRESSION_LEVEL_MAX, CompressProgress, CompressRequest, DueQuery, DueUnit, DueUnits, LevelUnits, RelationBlocks,
    Units, UnitsQuery,
};
pub use expr::{BooleanTest, DEPTH_MAX, Expr, Integers};
pub use file_io::{
    FILE_IO_BUCKETS, FileIoCount, FileIoCounts, FileIoKind, FileIoQuery, FileType, FileTypeIoCount, FileTypeIoCounts,
};
pub use frame::{FRAME_HEADER_BYTES, FrameError, FrameHeader, Kind, PAYLOAD_BYTES_MAX, PROTOCOL_VERSION};
pub use group::{GroupAction, GroupRequest};
pub use group_pruning::{GroupPruning, TopGroups};
pub use history::{HistoryQuery, HistoryRecord};
pub use index_scan::{HeapTid, HeapTids, IndexScan, LeafLinks};
pub use inspect::{InspectQuery, InspectReport, Report};
pub use lookup::{Comparison, JoinKind, KEY_PARTS_MAX, Lookup, LookupColumn, LookupValues};
pub use message::{
    BlockRange, ErrorReport, Hello, Passthru, PassthruReason, RangeDone, Welcome, XidQuery, XidState, XidStates,
};
pub use names::{ConsumerGroups, DatabaseNames, NAME_BYTES_MAX};
pub use relation::{Attribute, Missing, Relation};
pub use request::{ScanMode, ScanRequest, Snapshot};
pub use status::{CellStatus, DiskStatus, MemoryStatus};
pub use top_n::{SortKey, TOP_ROWS_MAX, TopN};
