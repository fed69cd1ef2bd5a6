//! The words that every part of Cellar shares: units, identifiers and the wire between a Postgres backend and a cell.
//!
//! Invariants: no I/O and no Postgres call happens here; decoding never panics and never allocates more than the bytes
//! it was given justify; what `encode` writes, `decode` reads back equal. Layouts: `docs/format/wire.md`.

mod byte_source;
pub mod bytes;
pub mod postgres;
pub mod stats;
pub mod units;
pub mod wire;

pub use byte_source::ByteSource;
