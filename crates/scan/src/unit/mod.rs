//! Compression units: the heap pages of one allocation unit, stored column-wise.
//!
//! [`encode()`] parses pages into columns ([`parse`]) and encodes each column ([`encoding`]). [`Rebuilder`] rebuilds any page
//! byte for byte, including tuple headers, line pointers, LSN and checksum. Correctness does not depend on the encoder: each page
//! is predicted from its columns, compared, and differences are stored as a patch ([`residue`]). A page that is not a heap
//! page of the relation is stored raw. The caller verifies a stored unit before it discards the pages.
//!
//! [`ColumnReader`] reads columns for scans, without rebuilding pages.
//!
//! Invariants: [`encode()`] accepts any bytes as pages. Reading a damaged unit returns an error with the offset of the damage:
//! every part is verified by its checksum before use. Reading never panics, even if damage passes the checksums. A reader reads
//! only the parts that it needs. All I/O goes through [`ByteSource`](cellar_format::ByteSource). Layout: `docs/format/compression-unit.md`.

mod attribute;
mod chunk;
mod column;
mod describe;
mod directory;
mod encode;
mod encoding;
mod field_runs;
mod numeric;
mod open;
mod page;
mod parse;
mod rebuild;
mod residue;
mod section;
mod shape;

pub use attribute::{AttributeChunk, Bounds};
pub use chunk::{Chunk, ChunkVisibility};
pub use column::{BlockRef, ChunkRef, ColumnReader, GatherMode, HeaderReader};
pub use describe::{ChunkDescription, ColumnDescription, UnitDescription};
pub use directory::VERSION;
pub use encode::{EncodeError, Encoder, encode, encode_raw, verify};
pub use encoding::zstd::release_memory;
pub use encoding::{BLOCK_ROWS, IntChunk, Strings};
pub use open::Unit;
pub use page::{HEADER_FIELDS, HeaderField, PAGES_MAX, PageEntry, PageKind};
pub use rebuild::Rebuilder;
pub use section::UnitError;
pub use shape::{Attribute, Level, Shape};
