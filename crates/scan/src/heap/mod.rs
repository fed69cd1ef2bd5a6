//! Heap pages as bytes: headers, line pointers, tuples, and where a tuple's columns lie.
//!
//! Invariants: nothing here trusts a length or offset that a page states; nothing here knows visibility or predicates.

mod checksum;
mod chunk;
mod layout;
mod page;
mod pglz;
mod prefetch;
pub mod varlena;

pub use checksum::page_checksum;
pub use chunk::{Chunk, MISSING, NULL, PAGES_BYTES_MAX};
pub use layout::{Layout, Segment, Slot};
pub use page::{Malformed, Page, TupleHeader, u16_at, u32_at};
pub use prefetch::Prefetch;
