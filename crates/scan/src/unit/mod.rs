//! Compression units: the heap pages of one allocation unit, held column-wise.
//!
//! Pages go in, bytes come out, and the other way round; no I/O happens but through [`ByteSource`]. Each page comes back
//! byte for byte, tuple headers, line pointers, LSN and checksum included. What makes that certain is not the encoder's
//! cleverness: the page is foretold from the series of its fields ([`model`]), rebuilt, compared, and the difference
//! kept as a patch; and whoever gives up the pages rebuilds each from the stored bytes before. A page that does not look
//! like a heap page of the relation is one big patch.
//!
//! Invariants: no bytes of a page make [`encode`] fail or panic; no bytes of a unit panic a reader; every part that is
//! read is checked first, so that damage is an error with its place, never a wrong byte. A reader touches only the
//! frames that it needs. Layout: `docs/format/compression-unit.md`.

mod attribute;
mod chunk;
mod column;
mod directory;
mod encode;
mod encoding;
mod field_runs;
mod model;
mod numeric;
mod open;
mod rebuild;
mod section;
mod shape;

pub use attribute::{AttributeChunk, Bounds};
pub use chunk::{Chunk, ChunkVisibility};
pub use column::{Block, ColumnReader, Gathering, HeaderReader};
pub use directory::{PAGES_MAX, VERSION};
pub use encode::{EncodeError, Encoder, encode, encode_raw, verify};
pub use encoding::zstd::release_memory;
pub use encoding::{BLOCK_ROWS, IntChunk, Strings};
pub use model::{HEADER_FIELDS, HeaderField, PageEntry, PageKind};
pub use open::Unit;
pub use rebuild::Rebuilder;
pub use section::UnitError;
pub use shape::{Attribute, Level, Shape};
