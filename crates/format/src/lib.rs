//! Definitions that all parts of Cellar share: block and region sizes, Postgres's identifiers, scan statistics and the
//! wire between a Postgres backend and a cell.
//!
//! Invariants: this crate does no I/O and calls no Postgres function. Decoding never panics and never allocates more
//! than the length of its input justifies. `decode` returns a value equal to the value that `encode` wrote. Layouts:
//! `docs/format/wire.md`.

mod byte_source;
pub mod bytes;
pub mod postgres;
pub mod stats;
pub mod units;
pub mod wire;

pub use byte_source::ByteSource;
